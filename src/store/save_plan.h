/* SPDX-License-Identifier: BSD-3-Clause */
/* save_plan.h - which tokens of a file a store has already */
#ifndef KVI_SAVE_PLAN_H
#define KVI_SAVE_PLAN_H

#include "store_state.h"

/* A segment of the store that stands for tokens of the file, for the first `use` of its own. */
struct kvi_piece_kept {
	kvarc_stored stored;
	uint32_t use;
	uint8_t pack[16]; /* that holds it */
	int32_t *tokens;  /* cut: ids, then positions, of all its tokens; NULL: those of the file */
	uint8_t digest[16]; /* cut: of the tokens that are used, */
	uint8_t chain[16];  /* and their chain value */
	int32_t first;
	uint8_t before[16]; /* the chain value of the tokens before it */
};

/* One track of the file. */
struct kvi_track_plan {
	struct kvi_list pieces; /* struct kvi_piece_kept */
	uint64_t tokens, kept;
	bool has_ids;
	bool chained;      /* the kept tokens have a chain value: */
	uint8_t chain[16]; /* the last one, or the root */
};

/* A file on its way into the store. */
struct kvi_save_plan {
	struct kvarc_store *s;
	kvarc_import *im;
	const kvarc_geometry *g;
	const struct kvi_veil *veil; /* of what may be shared */
	uint64_t name_space;         /* as the index has it */
	bool alone;                  /* nothing is looked for */
	uint8_t root[16];
	struct kvi_track_plan *tracks;
	struct kvi_store_rows rows, other; /* of the track in hand: of the file, of the store */
	uint64_t kept, tokens, kept_bytes;
};

/* Looks for the tokens of an import in the archives of a store that have the same veil; alone: in
 * none. p is to be freed, also on failure. Returns OK, MEM, MEMLIMIT, IO, DATA (the index is
 * damaged). */
kvarc_ret kvi_plan_save(struct kvi_save_plan *p, struct kvarc_store *s, kvarc_import *im,
                        const struct kvi_veil *veil, bool alone);
/* NULL-safe in all members. */
void kvi_plan_free(struct kvi_save_plan *p);

/* Tokens of the import from t0 on into p->rows, n of them, 1..256; elements: their elements, too.
 * Returns OK, MEM, IO. */
kvarc_ret kvi_plan_read(struct kvi_save_plan *p, uint32_t track, uint64_t t0, uint32_t n,
                        bool elements);
/* The content digest of p->rows. Returns OK, MEM. */
kvarc_ret kvi_plan_digest(struct kvi_save_plan *p, uint32_t n, uint8_t digest[16]);
/* Bytes of n tokens of a track. */
uint64_t kvi_plan_bytes(const struct kvi_save_plan *p, uint32_t track, uint32_t n);
/* A new piece at the end of a track; NULL: no memory. */
struct kvi_piece_kept *kvi_plan_add(struct kvi_save_plan *p, uint32_t track);
/* What stops a save, and not only a look-up, as damage of an archive does. */
bool kvi_plan_final(const struct kvi_save_plan *p, kvarc_ret ret);
/* Makes a piece cut, with the tokens of a whole segment in p->other. Returns OK, MEM. */
kvarc_ret kvi_piece_cut(struct kvi_save_plan *p, struct kvi_piece_kept *k);

/*
 * save_partial.c: at the end of what whole segments give, the segment of the store that shares the
 * longest prefix with the tokens from t->kept on becomes the last piece. Returns as kvi_plan_save.
 */
kvarc_ret kvi_plan_partial(struct kvi_save_plan *p, uint32_t track);

#endif
