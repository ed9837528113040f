/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_index.h - the index of a store: which archive holds which tokens, in SQLite
 *
 * A cache: all of it but the times of last use can be made again from the archives. It has keyed
 * hashes of the hashes, first ids and namespaces of encrypted ones (veil.h). Several processes may
 * use one file at once (WAL). Calls return OK, END, DATA (the file is damaged: make it again), IO,
 * MEM, and fill the error of open.
 */
#ifndef KVI_STORE_INDEX_H
#define KVI_STORE_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"
#include "kvarc.h"
#include "util/alloc.h"

struct kvi_store_index;

/*
 * Tokens that can be named at a chain value. Those of a whole segment lie in `pack`; of a cut one
 * (whole_n is not 0) they are the first n of the segment that the whole_ members name, which
 * another pack may hold.
 */
struct kvi_index_row {
	int64_t row, pack;
	uint64_t name_space; /* H64 of its name */
	uint64_t parent;     /* first 8 bytes of the chain value before; 0: has none */
	bool has_first;
	int32_t first; /* id of the first token, where it is known */
	uint32_t track, n;
	uint64_t t0;
	bool has_chain, has_digest;
	uint8_t chain[16], digest[16];
	uint32_t whole_n;
	uint8_t whole_chain[16], whole_digest[16];
	uint8_t id[16]; /* id of the pack */
};

/* A segment that an archive names, and another one holds. */
struct kvi_index_ref {
	int64_t pack;
	uint64_t name_space;
	uint32_t track, n, left;
	uint64_t t0;
	bool has_chain;
	uint8_t key[16]; /* chain value, or content digest */
	uint8_t digest[16];
};

/* An archive. */
struct kvi_index_pack {
	int64_t pack;
	uint8_t id[16];
	uint64_t bytes; /* bytes of its object (struct kvi_object) when its contents were read */
	int64_t time;   /* time of that object; so is the stamp */
	uint64_t stamp;
	bool encrypted;
	bool locked; /* encrypted, and no key has opened it: its contents are not in the index */
	bool broken; /* not whole: its rows are marked as damaged, and saves do not name it */
	bool lacks;  /* kvi_index_packs: rows are missing that were added */
};

/* Whether the object of a pack is the one that was read for the index, as far as its size and its
 * stamp show it. */
bool kvi_index_same_object(const struct kvi_index_pack *pack, const struct kvi_object *object);

/*
 * Opens or makes a file, mode 0600; path NULL: in memory. A file of another version, or one that is
 * damaged, is replaced by an empty one. *made: it is empty now and to be filled; *why: NULL, or
 * a clause on why one that was there is not used. error gets the errors of all calls.
 */
kvarc_ret kvi_index_open(struct kvi_store_index **x, const char *path,
                         const kvarc_allocator *allocator, bool *made, const char **why,
                         kvarc_error *error);
/* Makes one in memory with what a file has, which cannot be written. A file that cannot be read, of
 * another version or damaged: *made, it is empty. Returns as kvi_index_open. */
kvarc_ret kvi_index_open_copy(struct kvi_store_index **x, const char *path,
                              const kvarc_allocator *allocator, bool *made, kvarc_error *error);
/* Whether a call has found that the file is damaged. */
bool kvi_index_damaged(const struct kvi_store_index *index);
/* Whether a call has found that the file cannot be read or written: a full disk, no permission. */
bool kvi_index_unusable(const struct kvi_store_index *index);
/* NULL-safe; sets *index to NULL. */
void kvi_index_close(struct kvi_store_index **index);

/* All changes between begin and end happen, or (ret is not OK) none. Returns ret, or why not. */
kvarc_ret kvi_index_begin_change(struct kvi_store_index *index);
/* Ends what kvi_index_begin_change has begun. */
kvarc_ret kvi_index_end_change(struct kvi_store_index *index, kvarc_ret ret);
/* Removes everything but the times of use; inside of begin and end. */
kvarc_ret kvi_index_clear(struct kvi_store_index *index);
/* Between them many rows are added: `on` false makes what look-ups need. */
kvarc_ret kvi_index_bulk(struct kvi_store_index *index, bool on);

/* Adds a pack that is not there yet: pack->pack is set. */
kvarc_ret kvi_index_add_pack(struct kvi_store_index *index, struct kvi_index_pack *pack);
/* Adds tokens of a pack. */
kvarc_ret kvi_index_add_row(struct kvi_store_index *index, const struct kvi_index_row *row);
/* Adds what a pack names. */
kvarc_ret kvi_index_add_ref(struct kvi_store_index *index, const struct kvi_index_ref *ref);
/* Ends a pack: all that it holds and names was added. */
kvarc_ret kvi_index_end_pack(struct kvi_store_index *index, int64_t pack);
/* Stores the content digest of a row that was read and the id of its first token, once they are
 * known. */
kvarc_ret kvi_index_set_known(struct kvi_store_index *index, const struct kvi_index_row *row);
/* Marks a row of a whole segment as damaged, or not: saves do not count on one whose archive is
 * damaged there, and loads try it last. */
kvarc_ret kvi_index_set_doubt(struct kvi_store_index *index, int64_t row, bool damaged);
/* Marks the row at the same tokens of the same pack as damaged, if there is one. */
kvarc_ret kvi_index_doubt_at(struct kvi_store_index *index, const struct kvi_index_row *row);
/* Marks a pack as broken: it is not whole, or cannot be opened. One that is not there is fine. */
kvarc_ret kvi_index_break(struct kvi_store_index *index, const uint8_t id[16]);
/* Takes the marks of damage off all rows of a pack. One that was broken is forgotten, and read
 * again. */
kvarc_ret kvi_index_trust(struct kvi_store_index *index, const uint8_t id[16]);
/* Forgets a pack and what it holds and names; one that is not there is fine. */
kvarc_ret kvi_index_remove_pack(struct kvi_store_index *index, const uint8_t id[16]);

/* The number of a pack; END: it is not there, locked or broken. */
kvarc_ret kvi_index_find_pack(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack);
/* Finds a pack as kvi_index_find_pack does, also one that is locked. */
kvarc_ret kvi_index_find_locked(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack);
/* Finds a pack as kvi_index_find_pack does, also one that is locked or broken. */
kvarc_ret kvi_index_find_any(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack);
/* Reads all fields of a pack but `lacks`. Returns as kvi_index_find_any, also END. */
kvarc_ret kvi_index_get_pack(struct kvi_store_index *index, const uint8_t id[16],
                             struct kvi_index_pack *pack);

/* The lengths, in tokens, of the rows that follow a chain value (its first 8 bytes), descending. */
kvarc_ret kvi_index_lengths(struct kvi_store_index *index, uint64_t parent, uint32_t n[256],
                            size_t *count);
/* Finds up to most rows of tokens that follow one chain value and end with another one. */
kvarc_ret kvi_index_match(struct kvi_store_index *index, uint64_t name_space, uint64_t parent,
                          const uint8_t chain[16], struct kvi_index_row *rows, size_t most,
                          size_t *n);
/* Finds up to most rows of whole segments that follow a chain value and begin with an id, or with
 * one that is not known; long ones first. */
kvarc_ret kvi_index_children(struct kvi_store_index *index, uint64_t name_space, uint64_t parent,
                             int32_t first, struct kvi_index_row *rows, size_t most, size_t *n);
/* Finds up to most rows of whole segments under a key: a chain value, or a content digest of
 * segments without one; damaged: those that are marked as damaged, else the others. */
kvarc_ret kvi_index_holders(struct kvi_store_index *index, uint64_t name_space,
                            const uint8_t key[16], bool damaged, struct kvi_index_row *rows,
                            size_t most, size_t *n);

/* Called for each; not OK ends the call, which returns it. */
typedef kvarc_ret (*kvi_index_pack_fn)(void *opaque, const struct kvi_index_pack *p);
typedef kvarc_ret (*kvi_index_row_fn)(void *opaque, const struct kvi_index_row *row);
typedef kvarc_ret (*kvi_index_ref_fn)(void *opaque, const struct kvi_index_ref *ref);
/* Lists all packs. count: their rows are counted, for `lacks`. */
kvarc_ret kvi_index_packs(struct kvi_store_index *index, bool count, kvi_index_pack_fn fn,
                          void *opaque);
/* Lists the whole segments of a pack, in the order of tracks and tokens. */
kvarc_ret kvi_index_rows(struct kvi_store_index *index, int64_t pack, kvi_index_row_fn fn,
                         void *opaque);
/* Lists the whole segments of all packs that are marked as damaged. */
kvarc_ret kvi_index_doubts(struct kvi_store_index *index, kvi_index_row_fn fn, void *opaque);
/* Lists the segments that a pack names and others hold, in the order of its file. */
kvarc_ret kvi_index_refs(struct kvi_store_index *index, int64_t pack, kvi_index_ref_fn fn,
                         void *opaque);

/* The number of packs and of whole segments. */
kvarc_ret kvi_index_counts(struct kvi_store_index *index, uint64_t *packs, uint64_t *segments);

/* Notes that a version is used, seconds since 1970. key: of its manifest. */
kvarc_ret kvi_index_use(struct kvi_store_index *index, const char *key, int64_t time);
/* When it was used last; 0: not known. */
kvarc_ret kvi_index_last_use(struct kvi_store_index *index, const char *key, int64_t *time);

#endif
