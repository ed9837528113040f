/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/store.h - stores of sessions: files that grow from save to save; in a folder, S3, Redis */
/*
 * These calls are in libkvarc-store, which needs the libkvarc of the same version. docs/store.md
 * has the layout of a store and what it promises.
 */
#ifndef KVARC_STORE_H
#define KVARC_STORE_H

#include <kvarc.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A store keeps versions of sessions. A version is a file (a slot of an engine, or any file) that
 * loads byte for byte. Tokens that the store has already, with equal ids and equal elements, are
 * not stored again. Any number of processes and machines may use a store at once, without locks.
 * A handle serves one thread at a time. Names of sessions: 1 to 200 bytes, components separated by
 * '/', none of which is empty, "." or ".."; no control characters, no leading '-', and no '@'
 * before a number at the end. A call that gets another one returns PROG.
 */
typedef struct kvarc_store kvarc_store;

/* A folder is made, with mode 0700, when it is not there. */
#define KVARC_STORE_CREATE 0x1u
/* A folder without fsync: what was saved may be lost in a power failure. */
#define KVARC_STORE_NO_SYNC 0x2u
/* Saves go to a service that cannot keep what is acknowledged, too (docs/store.md): which one
 * it is, and why, is recorded in the store, so that later saves need not say it again. */
#define KVARC_STORE_ACCEPT_WEAK 0x4u

/* How a store is opened; set unused members to 0. */
typedef struct kvarc_store_options {
	/* error must outlive the store. memlimit is for each archive that is open */
	kvarc_common common;
	unsigned flags; /* KVARC_STORE_* */
	/* who may share what is stored: sessions, tokens and answers of other namespaces are
	 * not visible. At most 64 bytes; NULL: "default" */
	const char *name_space;
	/* path of the index, a cache that may be removed at any time. NULL: index.sqlite in the
	 * folder of a store in a folder, memory for others, and in place of a file that cannot be
	 * written */
	const char *index;
	/* where archives are written before they are put into the store, in files without a name;
	 * NULL: in memory */
	const char *temp_dir;
	/* profiles for archives of levels 2 and 3, as in kvarc_reader_options */
	const kvarc_profile *const *profiles;
	size_t n_profiles;
	kvarc_find_profile find_profile;
	void *find_opaque;
	/* NULL, or called with one line about something that was mended: an index made again */
	void (*note)(void *opaque, const char *text);
	void *note_opaque;
	/* S3, all may be NULL: credentials, without which requests are not signed, and what the URL
	 * does not say: region (us-east-1), "https://HOST" of the service (that of AWS) */
	const char *access_key, *secret_key, *session_token, *region, *endpoint;
	/* for archives that are encrypted, at most 32; the first one is that of saves that encrypt.
	 * They and their bytes must stay until the store is closed. NULL: none */
	const kvarc_keys *keys;
	uint64_t reserved[3]; /* zero */
} kvarc_store_options;
#define KVARC_STORE_OPTIONS_INIT KVARC_ZERO

/*
 * Opens what a URL names: a path or file:PATH, s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME],
 * redis://HOST[:PORT][/DB][?prefix=TEXT]. options may be NULL, and what it points to must outlive
 * the store. On failure *s is NULL.
 * Returns OK, OPTIONS (a kind that is not known or was not built in, no such folder), IO, MEM,
 * MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_open(kvarc_store **s, const char *url,
                                                      const kvarc_store_options *options);
/* NULL-safe; sets *s to NULL. */
KVARC_API void kvarc_store_close(kvarc_store **s);

/*
 * A URL of a store, of blocks or of a server as it may be shown: without user and password, also
 * of an endpoint in it, percent-encoded or not; in doubt up to the last '@'. The texts of all
 * errors of this library have it so. Writes capacity bytes at most, strlen(url) + 1 hold all.
 * Returns text; NULL: an argument is NULL or 0.
 */
KVARC_API char *kvarc_store_shown(const char *url, char *text, size_t capacity);

#define KVARC_SAVE_ENCRYPT 1
#define KVARC_SAVE_PLAIN (-1)

/* How a version is saved; set unused members to 0. */
typedef struct kvarc_save_options {
	/* level, profile, flags, segment_tokens and threads of what is new. Levels 0 to 3; no tier,
	 * no KVARC_WRITE_STREAMABLE, no file_id, no keys */
	kvarc_writer_options writer;
	const char *label; /* readable text, at most 1000 bytes; NULL: none */
	uint64_t time;     /* milliseconds since 1970, UTC; 0: not known */
	/* NULL, or asked once before the version becomes visible: 0 to go on, anything else to
	 * stop with IO (the file has changed meanwhile) */
	int (*confirm)(void *opaque);
	void *confirm_opaque;
	/* KVARC_SAVE_ENCRYPT: the archive is encrypted with the first key of the store, and shares
	 * tokens with archives of this key alone; KVARC_SAVE_PLAIN: not, and with archives that are
	 * not. 0: as the archive of the last version of the session is, which a key must open;
	 * OPTIONS where it cannot be read, or is not encrypted although the store has keys; the
	 * first one is not encrypted */
	int encrypt;
	uint64_t mode;        /* permission bits of the file, 0777 of them; 0: not known */
	uint64_t reserved[2]; /* zero */
} kvarc_save_options;
#define KVARC_SAVE_OPTIONS_INIT KVARC_ZERO

/* Account of a save. Bytes are of all tracks, tokens of all sequences: rows of windows, indexers
 * and states are none. */
typedef struct kvarc_saved {
	uint64_t version;
	uint64_t tokens, kept_tokens, new_tokens; /* kept: that the store had */
	uint64_t file_bytes;                      /* of the file that was saved */
	uint64_t written_bytes;                   /* of the archive that was put */
	uint64_t not_written_bytes;               /* of the elements of kept tokens */
	uint64_t tries;     /* 1, or more: what it shared was being removed, or is damaged */
	uint64_t unchanged; /* 1: the last version, `version`, is this file: there is no new one */
	const char
		*differs; /* a key of the identity that the version before has another value of, or
	                        none, so that nothing was shared with it; NULL: nothing differs */
	uint64_t reserved[2];
} kvarc_saved;

/*
 * Saves the file of an import as the next version of a session. It is durable, as far as the kind
 * of store promises that, when this returns OK; after any other return the session is as it was.
 * The import gets the identity pair "namespace". options and saved may be NULL. Where all tokens
 * are in the store, the last version is decoded and compared: one that is the same file, with the
 * same label or none given, stays the last one. With KVARC_WRITE_VERIFY a version is put only after
 * it was decoded with all that it shares and compared with the file; what turns out to be damaged
 * is stored again. Without it, archives that a version shares are there, but are not read.
 * Returns OK, OPTIONS (a level or option that stores do not have; encrypt is needed; the service
 * cannot keep what is acknowledged, and KVARC_STORE_ACCEPT_WEAK was not given), MEM,
 * MEMLIMIT, IO, DATA, AUTH (the session is encrypted, and no key opens it), PREDICTOR, PROG (also:
 * KVARC_SAVE_ENCRYPT without a key).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_save(kvarc_store *s, const char *session,
                                                      kvarc_import *im,
                                                      const kvarc_save_options *options,
                                                      kvarc_saved *saved);

/* A version of a session. Strings stay until the callback or call that gives it returns. */
typedef struct kvarc_session_version {
	const char *session;
	uint64_t number; /* ascending, from 1 */
	uint64_t time;   /* milliseconds since 1970; 0: not known */
	uint64_t tokens; /* of the longest track */
	uint64_t file_bytes;
	const char *label;  /* "": none */
	const char *parent; /* the session that it was forked from; "": none */
	uint64_t parent_number;
	uint8_t archive[16]; /* the file_id of its archive */
	uint64_t encrypted;  /* 1: its archive is */
	uint64_t mode;       /* permission bits of the file that was saved; 0: not known */
	/* of kvarc_store_load: number 0 was asked for, and this is the last version, which was
	 * passed over as its archives are not there (its save was stopped, or they were lost);
	 * 0: none was */
	uint64_t passed_over;
	/* of kvarc_store_load, when it has returned: 1: the end of an archive is missing or
	 * damaged, and all that the version needs was there; the next save stores it again */
	uint64_t not_whole;
	uint64_t reserved[2];
} kvarc_session_version;
/* Takes one version; not 0 ends the call, which returns IO. */
typedef int (*kvarc_session_version_fn)(void *opaque, const kvarc_session_version *version);

/*
 * Restores the files of a version, as kvarc_unpack does; number 0: the last one whose archives
 * are there (version->passed_over). version, which may be NULL, is filled before `open` is
 * called; its strings stay until the next call. Of an archive whose end alone is missing or
 * damaged what is left is read (version->not_whole). Returns OK, END (no such session or
 * version), AUTH (no key opens it), STORE (an archive or a segment is missing or differs; the
 * version is not encrypted, and the store has keys), DATA (an archive is damaged, or another
 * one), and what kvarc_unpack returns.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_load(kvarc_store *s, const char *session,
                                                      uint64_t number, kvarc_item_open open,
                                                      void *opaque, kvarc_session_version *version);

/* Takes one pair of an identity; not 0 ends the call, which returns IO. */
typedef int (*kvarc_identity_fn)(void *opaque, const char *key, const char *value);

/* The identity of the archive of a version, number 0: the last one: which model its file comes
 * from, and what else was recorded. Returns OK, END (no such version), AUTH, STORE (its archive is
 * missing), DATA, IO, MEM, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_identity(kvarc_store *s, const char *session,
                                                          uint64_t number, kvarc_identity_fn fn,
                                                          void *opaque);

/* The versions of a session, ascending. Returns OK, END (there is none), DATA (a damaged one; the
 * others were given), IO, MEM, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_log(kvarc_store *s, const char *session,
                                                     kvarc_session_version_fn fn, void *opaque);

/* The last version of every session, in the order of their names. Returns OK, DATA (a damaged one;
 * the others were given), IO, MEM. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_list(kvarc_store *s, kvarc_session_version_fn fn,
                                                      void *opaque);

/*
 * Makes a version, number 0: the last one, the only version of a session that has none:
 * nothing is copied. Where this fails, nothing is removed but what it has put itself. Returns
 * OK, END (no such version), OPTIONS (the new session has versions already), STORE (its
 * archives are being removed), OPTIONS (as kvarc_store_save: the service), DATA, IO, MEM,
 * PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_fork(kvarc_store *s, const char *session,
                                                      uint64_t number, const char *to);

/* Removes all versions of a session, the oldest first; space is freed by kvarc_store_gc. A
 * save meanwhile stays, and numbers go on: no later version has one that was used. *versions,
 * which may be NULL: how many were removed. Returns OK, END (there is no such session), IO,
 * MEM, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_remove(kvarc_store *s, const char *session,
                                                        uint64_t *versions);

/* Takes, or is asked for, an archive by its id. kvarc_store_have: not 0 ends the call, which
 * returns IO; kvarc_store_send: not 0: the receiver has it. */
typedef int (*kvarc_has_fn)(void *opaque, const uint8_t id[16]);

/* The archives of a store, so that another one need not send them; those are left out that are
 * known to be damaged. Returns OK, IO, MEM, DATA, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_have(kvarc_store *s, kvarc_has_fn fn,
                                                      void *opaque);

/* Account of a send. */
typedef struct kvarc_sent {
	uint64_t archives, archive_bytes;
	uint64_t left_out; /* archives that the receiver has */
	uint64_t bytes;    /* of the stream */
	uint64_t reserved[4];
} kvarc_sent;

/*
 * Writes a version, number 0: the last one, as a stream for kvarc_store_receive: a pax tar of the
 * archives that it needs, but those that `has` (NULL: none) says the receiver has, and of its
 * manifest at the end. The sink takes writes in order, a pipe for instance. sent may be NULL.
 * Returns OK, END (no such version), STORE (archives are missing), OPTIONS (no
 * libarchive), IO, MEM, MEMLIMIT, DATA, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_send(kvarc_store *s, const char *session,
                                                      uint64_t number, const kvarc_sink *sink,
                                                      kvarc_has_fn has, void *opaque,
                                                      kvarc_sent *sent);

/* Account of a receive. */
typedef struct kvarc_received {
	uint64_t version; /* of the session, 0: none */
	uint64_t archives, archive_bytes;
	uint64_t left_out; /* archives that were here already */
	uint64_t was_here; /* 1: and so was the version, which is not put again */
	uint64_t reserved[3];
} kvarc_received;

/*
 * Reads such a stream, also from a pipe, and puts what it brings as the next version of a
 * session. Archives that came before a stream breaks stay: kvarc_store_have names them, and a
 * sender need not send them again. One that is here already is checked, and where it is damaged the
 * one that comes replaces it. received may be NULL, and is filled also on failure. Returns
 * OK, DATA (the stream is damaged, or ends too soon), STORE (the version names archives that are
 * nowhere), OPTIONS (as kvarc_store_send; a newer version; as kvarc_store_save: the service), IO,
 * MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_receive(kvarc_store *s, const char *session,
                                                         const kvarc_source *source,
                                                         kvarc_received *received);

/* A session that begins as a file does. */
typedef struct kvarc_found {
	const char *session; /* until the callback returns */
	uint64_t number, tokens;
	uint64_t common_tokens; /* leading tokens of the first track with equal ids */
	const char *model;      /* of its identity, or as a server called it; NULL: not known */
	uint64_t reserved[3];
} kvarc_found;
/* Takes one session; not 0 ends the call, which returns OK. */
typedef int (*kvarc_found_fn)(void *opaque, const kvarc_found *found);

/* The sessions whose last version has the tensors of an import, and leading tokens in common with
 * its first track, the most first, whatever their identities are. Returns OK, OPTIONS (it has no
 * token ids), IO, MEM, DATA, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_find(kvarc_store *s, kvarc_import *im,
                                                      kvarc_found_fn fn, void *opaque);

/* Contents of a store, of all namespaces. */
typedef struct kvarc_store_sizes {
	uint64_t sessions, versions;
	uint64_t archives, archive_bytes;
	uint64_t file_bytes;             /* of the files of all versions */
	uint64_t segments;               /* that the archives hold */
	uint64_t unnamed, unnamed_bytes; /* archives that no version needs */
	uint64_t unreadable;             /* manifests and archives */
	uint64_t encrypted;              /* archives */
	uint64_t blocks, block_bytes;    /* of engines (kvarc/blocks.h), not among the archives */
	uint64_t reserved[1];
} kvarc_store_sizes;
/* Returns OK, IO, MEM. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_stat(kvarc_store *s, kvarc_store_sizes *sizes);

/* Options of kvarc_store_gc; set unused members to 0. */
typedef struct kvarc_gc_options {
	/* archives, without blocks, may take this many bytes: versions are removed until they do,
	 * those whose last use is longest ago first, the last version of a session only when no
	 * other is left, and none that was used within the grace period. 0: no version is removed
	 * for it */
	uint64_t budget;
	uint64_t keep;  /* of each session this many last versions stay; 0: all */
	uint64_t grace; /* archives younger than this many seconds are left alone; 0: 7200 */
	int dry_run;    /* nothing is removed */
	int no_grace;   /* grace is 0 seconds: no other process may save meanwhile */
	/* NULL, or called with one line about each thing that cannot be read or was removed */
	void (*report)(void *opaque, const char *text);
	void *opaque;
	/* not 0: archives that hold more than is needed stay as they are */
	uint64_t no_repack;
	uint64_t reserved[3]; /* zero */
} kvarc_gc_options;
#define KVARC_GC_OPTIONS_INIT KVARC_ZERO

/* Account of a gc: what it did, or would do. */
typedef struct kvarc_gc_result {
	uint64_t archives, archive_bytes; /* before */
	uint64_t removed, removed_bytes;  /* archives */
	uint64_t versions;                /* that were removed */
	uint64_t young;                   /* archives that nothing needs, but that are too young */
	uint64_t unreadable;              /* manifests and archives */
	uint64_t repacked;                /* archives, in whose place a smaller one is */
	uint64_t repacked_bytes;          /* that this has freed */
	uint64_t over_budget; /* bytes that versions used within the grace period need above it */
	uint64_t reserved[1];
} kvarc_gc_result;

/*
 * Removes archives that no version needs; encrypted ones need no key for that. While a manifest, or
 * an archive that a version needs, cannot be read, nothing is removed, as what it names is not
 * known: DATA. Of archives that others need less than half of, and that no version has as its own,
 * a copy of what is needed is put in their place, but not of encrypted ones; what cannot be copied
 * is reported, and stays.
 * Returns OK, DATA, IO, MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_gc(kvarc_store *s, const kvarc_gc_options *options,
                                                    kvarc_gc_result *result);

/* One loss that kvarc_store_verify has found, as one line that names the archive or manifest, or
 * the session that cannot be loaded. */
typedef void (*kvarc_store_loss_fn)(void *opaque, const char *text);

/* Reads every archive, checks all of it, and that every version can be loaded: its archive is
 * whole and has files, and every segment that it names is in an archive that is whole, with
 * these elements. Of every block it checks the frames. *losses: how many were found; an
 * archive or block that is encrypted, and that no key opens, counts as one, as nothing is
 * known of it. Returns OK (also with losses), IO, MEM, MEMLIMIT, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_verify(kvarc_store *s, kvarc_store_loss_fn fn,
                                                        void *opaque, uint64_t *losses);

/* Makes the index again from the archives. *archives, *segments, which may be NULL: how many are
 * in it. Returns OK, IO, MEM, MEMLIMIT. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_rebuild(kvarc_store *s, uint64_t *archives,
                                                         uint64_t *segments);

#ifdef __cplusplus
}
#endif

#endif
