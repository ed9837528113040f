/* SPDX-License-Identifier: BSD-3-Clause */
/* store_map.h - all versions of a store, and which archives each needs */
#ifndef KVI_STORE_MAP_H
#define KVI_STORE_MAP_H

#include "store_state.h"

/* A version of any namespace. */
struct kvi_map_version {
	struct kvi_session_key key;
	uint8_t digest[16];    /* digest of its manifest */
	uint8_t id[16];        /* id of its archive */
	bool encrypted;        /* the manifest lists the archives that it needs */
	struct kvi_list named; /* ids of these, without its own archive */
	uint64_t bytes;        /* bytes of the file */
	uint64_t pack_bytes;   /* bytes of its archive when it was saved; 0: not known */
	int64_t used;          /* seconds since 1970 */
	bool last;             /* the last version of its session */
	bool removed;          /* the archives that it needs are not counted any more */
	bool lost;             /* the archive is missing, or not whole */
	bool lacking;          /* a segment that it needs is missing */
	struct kvi_list needs; /* size_t: numbers of archives, its own one first */
};

/* An archive. */
struct kvi_map_pack {
	uint8_t id[16];
	uint64_t bytes;
	int64_t time;
	uint64_t needed; /* number of versions that need it */
	uint64_t named;  /* number of manifests that name it, as their own archive or in a list */
	bool retired;    /* gc has put its tombstone */
	bool encrypted;
	bool broken; /* not whole: nothing is removed of it */
	/* Rank during a gc (store_gc.h). An archive with a rank may go although it is needed, where
	 * another archive holds the same segments; among those the lowest rank stays. 0: it may not
	 * go. */
	uint64_t rank;
	uint64_t copy_bytes; /* bytes of the copy that replaces it; 0: there is none */
};

/* The versions and archives of a store. */
struct kvi_store_map {
	struct kvarc_store *s;
	struct kvi_store_index *uses;    /* has the times of last use */
	struct kvi_list versions, packs; /* packs by id */
	uint64_t unreadable;             /* manifests */
	uint64_t unreadable_packs;
	void (*report)(void *opaque, const char *text);
	void *opaque;
};

/*
 * Reads all manifests, and then brings the index of the store up to date, which has all archives
 * that they need: those were put before. report, which may be NULL, gets a line about each manifest
 * and archive that cannot be read. rank: as for kvi_protocol_needs. map is to be freed, also on
 * failure. Returns OK, IO, MEM, MEMLIMIT, DATA (the index is damaged).
 */
kvarc_ret kvi_map_make(struct kvi_store_map *map, struct kvarc_store *store,
                       struct kvi_store_index *uses, const struct kvi_holder_rank *rank,
                       void (*report)(void *opaque, const char *text), void *opaque);
/* Frees what kvi_map_make has made; all zero: nothing. */
void kvi_map_free(struct kvi_store_map *map);
/* The archives that a version needs, as kvi_protocol_needs does. */
kvarc_ret kvi_map_needs(struct kvi_store_map *map, const struct kvi_map_version *version,
                        const struct kvi_holder_rank *rank, struct kvi_list *ids);
/* Takes a version out of the counts of the archives that it needs. */
void kvi_map_remove(struct kvi_store_map *map, struct kvi_map_version *version);
/* Bytes of the archives that are needed. */
uint64_t kvi_map_needed_bytes(const struct kvi_store_map *map);
/* The archive with an id; NULL: none. */
struct kvi_map_pack *kvi_map_find(const struct kvi_store_map *map, const uint8_t id[16]);
/* A line for the report of the map, if there is any. */
void kvi_map_report(const struct kvi_store_map *map, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * The store uses an empty index in memory until kvi_own_index, so that what is in it comes from the
 * archives alone. *own: its own one. Returns OK, IO, MEM; kvi_own_index follows also after a
 * failure.
 */
kvarc_ret kvi_fresh_index(struct kvarc_store *store, struct kvi_store_index **own);
/* The store uses its own index again, which learns what the other one has found to be damaged. The
 * other one is closed. */
void kvi_own_index(struct kvarc_store *store, struct kvi_store_index **own);

#endif
