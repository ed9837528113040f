/* SPDX-License-Identifier: BSD-3-Clause */
/* store_state.h - the insides of a store, shared by its sources */
#ifndef KVI_STORE_STATE_H
#define KVI_STORE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc/store.h"
#include "backend.h"
#include "manifest.h"
#include "session_names.h"
#include "store_index.h"
#include "veil.h"
#include "util/alloc.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/list.h"

/* Archives that stay open; tokens of a segment. */
enum { KVI_OPEN_PACKS = 4, KVI_SEGMENT_MOST = 256 };
/* Limit of the keys of a store; key of the object that has the salt of its passphrases. */
enum { KVI_STORE_KEYS = 32 };
#define KVI_SALT "salt"

/* An archive of the store that is open. */
struct kvi_open_pack {
	uint8_t id[16];
	char key[KVI_BLOCK_KEY]; /* key of a pack, or of a block */
	kvarc_source source;
	kvarc_reader *r;      /* NULL: no archive is open here */
	bool whole;           /* false: opened with `any`, and its end is missing or damaged */
	struct kvi_veil veil; /* key of its hashes in the index */
	uint64_t name_space;  /* namespace in the index */
	kvarc_error error;
	uint64_t used; /* ascends */
};

/* A store that is open. One thread uses it at a time. */
struct kvarc_store {
	struct kvi_alloc alloc;
	kvarc_error own_error, *error; /* the caller's, or its own; never NULL */
	kvarc_store_options options;
	char name_space[KVI_NAMESPACE_MAX + 1];
	char *index_path; /* NULL: in memory */
	struct kvi_backend *backend;
	struct kvi_store_index *index;
	struct kvi_open_pack packs[KVI_OPEN_PACKS];
	uint64_t uses;
	/* Keys for readers: those that are given, then passphrases that were derived for the salt
	 * of the store, then passphrases. */
	kvarc_key keys[2 * KVI_STORE_KEYS];
	size_t n_given;
	kvarc_keys ready;           /* keys with which archives are opened so far */
	bool keys_complete, salted; /* passphrases are in it, derived for the store's salt */
	uint8_t derived[KVI_STORE_KEYS][KVARC_KEY_DERIVED_BYTES];
	bool service_checked;      /* kvi_service_check has returned OK */
	struct kvi_veil save_veil; /* hash key of archives that are encrypted with the first key */
	/* Manifest and key of the version that the caller of kvarc_store_load has. */
	struct kvi_manifest version;
	struct kvi_session_key version_key;
};

/* Seconds since 1970. */
int64_t kvi_store_now(void);
/* Sends a line to the caller's note, if it has one. */
void kvi_store_note(const struct kvarc_store *store, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Repairs an index that a failure shows to be damaged or unusable: it is made again from the
 * archives. Returns true: try once more; false: nothing was repaired, and the error stays. */
bool kvi_store_mend(struct kvarc_store *store, kvarc_ret ret);
/* 16 random bytes. Returns OK, IO. */
kvarc_ret kvi_store_random(struct kvarc_store *store, uint8_t id[16]);

/* Whether the service behind the store keeps what is acknowledged (service.c): before the first
 * version that a handle puts. Returns OK; OPTIONS: it cannot, and nobody has accepted that; IO,
 * MEM. */
kvarc_ret kvi_service_check(struct kvarc_store *store);

/* Keys (store_keys.c). */

/* Checks the keys of the caller. Returns OK, PROG. */
kvarc_ret kvi_store_keys_open(struct kvarc_store *store);
void kvi_store_keys_close(struct kvarc_store *store); /* wipes */
/* Derives the passphrases; make: the store gets a salt where it has none. Returns OK; END: that is
 * done already, or there are none; IO, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_store_keys_complete(struct kvarc_store *store, bool make);
/* Makes the key with which archives are encrypted: the first key, in the store's memory; sets
 * store->save_veil. Returns as kvi_store_keys_complete, but END; PROG: there is no key. */
kvarc_ret kvi_store_save_key(struct kvarc_store *store, kvarc_key *key);

/* Archives (store_packs.c). */

/*
 * An object of a store is put as a whole. So an archive is whole, with its own id and with its
 * INDEX and FOOTER at its end, or the call returns DATA, and the index then marks all of its
 * segments as damaged. Calls that have `any` read the rest of an archive whose end alone is missing
 * or damaged, for loads.
 */

/*
 * The reader of an archive, which the store keeps open for a while: until three others were asked
 * for, or kvi_pack_forget. It has no store: segments of other archives answer STORE. Returns OK;
 * END (there is no such archive); DATA (it is not whole); what kvarc_reader_open does.
 */
kvarc_ret kvi_pack_reader(struct kvarc_store *store, const uint8_t id[16], bool any,
                          kvarc_reader **r);
/* The archive behind such a reader; NULL: it is not open. */
const struct kvi_open_pack *kvi_pack_find(const struct kvarc_store *store, const uint8_t id[16]);
/* Closes an archive that is about to be removed. */
void kvi_pack_forget(struct kvarc_store *store, const uint8_t id[16]);
struct kvi_store_content;
/*
 * Opens an archive for one caller, which closes it. content NULL: as kvi_pack_reader; else segments
 * of other archives come from the store. pack must stay where it is. Returns as kvi_pack_reader;
 * then there is nothing to close.
 */
kvarc_ret kvi_pack_open(struct kvarc_store *store, struct kvi_open_pack *pack, const uint8_t id[16],
                        bool any, struct kvi_store_content *content);
/* Opens an archive that is not in the store yet, as kvi_pack_open does; source stays the
 * caller's. */
kvarc_ret kvi_pack_open_source(struct kvarc_store *store, struct kvi_open_pack *pack,
                               const uint8_t id[16], const kvarc_source *source,
                               struct kvi_store_content *content);
/* Closes what kvi_pack_open has opened. */
void kvi_pack_close(struct kvi_open_pack *pack);
/* Checks the frames of an archive that no key opens, and its id. Returns OK, END (it is not there),
 * DATA, FORMAT, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_pack_check_locked(struct kvarc_store *store, const uint8_t id[16]);
/* Checks the frames of a block. AUTH: no key opens it, and its frames are sound. Returns OK, AUTH,
 * END (it is not there), DATA, FORMAT, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_block_check(struct kvarc_store *store, const char *key);
/* Return value after a failure of an archive's reader: IO becomes END where the archive was removed
 * meanwhile. */
kvarc_ret kvi_pack_gone(struct kvarc_store *store, const uint8_t id[16], kvarc_ret ret);
/* Options for readers of a store's archives; error: their error. */
void kvi_pack_reader_options(const struct kvarc_store *store, kvarc_reader_options *options,
                             kvarc_error *error);

/* Rows (store_rows.c): tokens of archives. */

/* n tokens of a track in memory. */
struct kvi_store_rows {
	uint32_t n;
	bool has_ids;
	int32_t ids[KVI_SEGMENT_MOST], positions[KVI_SEGMENT_MOST];
	const kvarc_geometry *geometry;
	uint32_t track;
	kvarc_view *views; /* views of all tensors, packed; data NULL: of another track */
	uint8_t *data;
};
/* Memory for 256 tokens of a track. *rows is to be freed, also on failure. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_rows_make(struct kvarc_store *store, struct kvi_store_rows *rows,
                        const kvarc_geometry *geometry, uint32_t track);
/* NULL-safe in all members. */
void kvi_rows_free(struct kvarc_store *store, struct kvi_store_rows *rows);
/* Ids, positions and, with elements, views of a row of the index: a whole segment. Returns OK;
 * END: the archive is not there, or has other tensors; else what readers return. */
kvarc_ret kvi_rows_read(struct kvarc_store *store, const struct kvi_index_row *row,
                        struct kvi_store_rows *rows, bool elements);
/* Reads a row as kvi_rows_read does, into memory of the caller; any: also of an archive that is not
 * whole. ids and positions as in struct kvi_store_rows; views NULL: no elements. A damaged row is
 * marked in the index at once. */
kvarc_ret kvi_row_read(struct kvarc_store *store, const struct kvi_index_row *row,
                       const kvarc_geometry *geometry, bool any, int32_t *ids, int32_t *positions,
                       const kvarc_view *views, bool *has_ids);
/* Whether a failure says that an archive is damaged, and nothing else. */
bool kvi_store_is_damage(const struct kvarc_store *store, kvarc_ret ret);
/* Whether a failure to read a segment is damage, or a missing archive: another one may have it. */
bool kvi_store_may_pass(kvarc_ret ret);
/* Finds a row of a whole segment under a key with a content digest, which is read where it is not
 * known; key and digest are as in the index (veil.h). digest NULL: any. Returns OK, END (there is
 * none), MEM, MEMLIMIT, IO, DATA. */
kvarc_ret kvi_content_find(struct kvarc_store *store, const kvarc_geometry *geometry,
                           uint64_t name_space, const uint8_t key[16], const uint8_t *digest,
                           struct kvi_index_row *row);
/* Whether two archives have the same tensors, so that tokens of one can be read in place of those
 * of the other. true, too, where one cannot be opened. */
bool kvi_packs_alike(struct kvarc_store *store, const uint8_t a[16], const uint8_t b[16]);

/* Computes the content digest of a row that has none, from its archive, in the form of the index
 * (veil.h), and stores it there. Returns OK, and as kvi_rows_read. */
kvarc_ret kvi_row_digest(struct kvarc_store *store, struct kvi_index_row *row);

/* Content (store_content.c): segments that an archive names. */

/* State with which a reader asks a store for segments. */
struct kvi_store_content {
	struct kvarc_store *s;
	kvarc_stored_read read;         /* with this struct as opaque */
	const kvarc_geometry *geometry; /* geometry of the reader, once it is open */
	struct kvi_veil veil;           /* key of the reader's archive, for look-ups */
	kvarc_ret failed;               /* OK, END, or a failure whose reason is in s->error */
	bool any;                       /* archives that are not whole may be read */
	bool has_damaged;               /* an archive that has an asked segment is damaged */
	uint8_t damaged[16];            /* id of the last such archive */
	bool has_cut;                   /* with `any`: an archive that was read is not whole */
};
/* Initial state: nothing was asked for. any: archives that are not whole may be read. */
struct kvi_store_content kvi_content_of(struct kvarc_store *store, bool any);

/* Marks in the index, after damage was found in an archive, its segments that cannot be decoded, so
 * that the next save stores their tokens again. Returns OK, END (the archive is not in the index),
 * IO, MEM, MEMLIMIT, DATA (the index is damaged). */
kvarc_ret kvi_doubt_damaged(struct kvarc_store *store, const uint8_t id[16]);

/* The index (index_fill.c). */

/* Facts about segments of an archive beyond its INDEX. */
struct kvi_known {
	uint32_t track, n; /* the first n tokens of a segment */
	uint64_t t0;
	uint8_t digest[16];
	uint8_t chain[16]; /* chain value of those n tokens, where they are not the whole segment */
	int32_t first;
	bool has_first;
};
/* Adds an archive to an index, inside of its begin and end; nothing where it is there already.
 * object: as it is listed. known may be empty. Returns OK; END: chain values of cut segments
 * need archives that are not in the index yet (with `last` they are left out instead); DATA,
 * IO, MEM, MEMLIMIT. */
kvarc_ret kvi_index_fill(struct kvarc_store *store, struct kvi_store_index *index,
                         const uint8_t id[16], const struct kvi_object *object, kvarc_reader *r,
                         const struct kvi_list *known, bool last);
/*
 * Makes the index that of the archives that the store has: adds those that it lacks, reads
 * those again whose objects were changed or whose rows are not all there, and forgets those
 * that are gone. report, which may be NULL, gets a line about each that is not whole or cannot
 * be read; *unreadable counts them.
 */
kvarc_ret kvi_index_refresh(struct kvarc_store *store, struct kvi_store_index *index,
                            void (*report)(void *opaque, const char *text), void *opaque,
                            uint64_t *unreadable);
/*
 * Refreshes the index and asks, until ask(opaque) returns something else than END, or two listings
 * of the archives are the same. What an index lacks after one listing may have moved: gc puts a
 * copy behind the part of the listing that has passed, and removes the archive before it is read.
 * Returns what ask returned last; IO, MEM, MEMLIMIT of a refresh.
 */
kvarc_ret kvi_index_refresh_until(struct kvarc_store *store, struct kvi_store_index *index,
                                  kvarc_ret (*ask)(void *opaque), void *opaque);
/* Reads one archive into the index again, whose object differs from the one that the index knows.
 * Returns OK, IO, MEM, MEMLIMIT, DATA (the index is damaged). */
kvarc_ret kvi_index_renew(struct kvarc_store *store, const uint8_t id[16],
                          const struct kvi_object *object);

/* Sessions (sessions.c). */

/* The numbers of a session's versions, ascending: entries of numbers are uint64_t. *marked, which
 * may be NULL: up to here numbers were taken. Returns OK, END (none; *marked is set), IO, MEM. */
kvarc_ret kvi_session_numbers(struct kvarc_store *store, const char *session,
                              struct kvi_list *numbers, uint64_t *marked);
/* Reads the manifest under a key. Returns OK, END (there is none), DATA, OPTIONS, IO, MEM. */
kvarc_ret kvi_manifest_read(struct kvarc_store *store, const char *key,
                            struct kvi_manifest *manifest);
/* A version of a session of this namespace; number 0: the last one. *number: which it is. Returns
 * OK, END, and as kvi_manifest_read. */
kvarc_ret kvi_version_read(struct kvarc_store *store, const char *session, uint64_t *number,
                           struct kvi_manifest *manifest);
/* n bytes in memory, which stay the caller's, as a source. */
kvarc_source kvi_text_source(const char *text, size_t n);
/* Puts a manifest as the version behind the last one that there ever was: it takes the number by a
 * mark, which one process alone can put, so that a number is never used twice; `first`: of a
 * session that has no version. *number: which it is; 0 unless the return is OK. manifest->digest is
 * set. Returns OK, END (with `first`: it has versions), IO, MEM, PROG. */
kvarc_ret kvi_version_put(struct kvarc_store *store, const char *session,
                          struct kvi_manifest *manifest, bool first, uint64_t *number);
/* Before versions of a session are removed, the highest of which is session_key: sees to it that
 * its mark is there, also where somebody has put the version without one. Returns OK, IO, MEM. */
kvarc_ret kvi_version_mark(struct kvarc_store *store, const struct kvi_session_key *session_key);
/* Removes a version, up to whose number there is a mark, and whose manifest is the one that
 * was read or put, by its digest; NULL: that which is there now. Returns OK, END (it is not
 * there any more, or another one), IO, MEM. */
kvarc_ret kvi_version_remove(struct kvarc_store *store, const struct kvi_session_key *session_key,
                             const uint8_t *digest);
/* Takes back a version that kvi_version_put has put and that is not acknowledged. */
void kvi_version_take_back(struct kvarc_store *store, const char *session, uint64_t number,
                           const struct kvi_manifest *manifest);
/* Called for each manifest of a list; a return other than OK ends the list, which returns it.
 * wrong: not OK: the manifest cannot be read, and s->error says why. */
typedef kvarc_ret (*kvi_manifest_fn)(void *opaque, const char *key, const struct kvi_session_key *k,
                                     const struct kvi_manifest *m, kvarc_ret wrong);
/* Whether a manifest is left out of a list, and is not read. */
typedef bool (*kvi_manifest_skip_fn)(void *opaque, const char *key);
/* Lists all manifests under a prefix, by name and number, but those that skip, which may be NULL,
 * leaves out, and those that go meanwhile. */
kvarc_ret kvi_manifests(struct kvarc_store *store, const char *prefix, kvi_manifest_skip_fn skip,
                        kvi_manifest_fn fn, void *opaque);
/* PROG where a session cannot be called that. */
kvarc_ret kvi_session_check(struct kvarc_store *store, const char *session);
/* Fills what callers see; its strings are those of key and manifest. */
void kvi_version_fill(kvarc_session_version *version, const struct kvi_session_key *key,
                      const struct kvi_manifest *manifest);

/* The protocol with gc (protocol.c, docs/store.md). */

/*
 * After a manifest was put: whether an archive, and all that it names, stay: none is retired, and
 * each is there, as the index has read it. Returns OK; END: one does not, and the index has learned
 * of it; IO, MEM, MEMLIMIT, DATA (the index is damaged).
 */
kvarc_ret kvi_protocol_confirm(struct kvarc_store *store, const struct kvi_list *ids);
/* Whether an id is in a list of ids. */
bool kvi_protocol_has(const struct kvi_list *ids, const uint8_t id[16]);
/* The ids of all tombstones that are there are added to a list. Returns OK, IO, MEM. */
kvarc_ret kvi_protocol_retired(struct kvarc_store *store, struct kvi_list *ids);

/*
 * Order of preference among archives that hold the same segment: one of rank 0 is enough; else all
 * of the lowest rank count, and all whose segment cannot be read.
 */
struct kvi_holder_rank {
	uint64_t (*rank)(void *opaque, const uint8_t id[16]);
	void *opaque;
};
/* Rank for kvi_holder_rank.rank: 1 of those in a struct kvi_list of ids, else 0. */
uint64_t kvi_protocol_rank_listed(void *opaque, const uint8_t id[16]);
/* A segment, whole, that an archive names, in the archive that counts. Not OK ends the call. */
typedef kvarc_ret (*kvi_holder_fn)(void *opaque, const struct kvi_index_row *row);
/* Calls fn with each segment that an archive names, as a row of every archive that counts for it.
 * rank NULL: 0 for all. Returns OK; END: the archive is not in the index, or a segment is in no
 * archive; IO, DATA, MEM, MEMLIMIT. */
kvarc_ret kvi_protocol_holders(struct kvarc_store *store, const uint8_t id[16],
                               const struct kvi_holder_rank *rank, kvi_holder_fn fn, void *opaque);
/* The archives that a version needs, its own one first: what the manifest of an encrypted one
 * lists, else those that hold what its archive names, as kvi_protocol_holders gives them. Entries
 * of ids are 16 bytes. Returns the same. */
kvarc_ret kvi_protocol_needs(struct kvarc_store *store, const struct kvi_needs *needs,
                             const struct kvi_holder_rank *rank, struct kvi_list *ids);
/* After a manifest was put: whether what it needs stays, in whatever archives. Returns OK; END: it
 * is missing, or being removed; IO, DATA, MEM, MEMLIMIT. */
kvarc_ret kvi_protocol_stays(struct kvarc_store *store, const struct kvi_needs *needs);

#endif
