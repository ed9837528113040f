/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * profile.h - profiles in memory: linear models of tensors (spec/profile.md)
 *
 * A profile is immutable once made and may be shared by threads.
 */
#ifndef KVI_PROFILE_H
#define KVI_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entropy/rans.h"
#include "kvarc.h"
#include "util/alloc.h"
#include "util/bytes.h"
#include "util/hash.h"

enum {
	KVI_PROFILE_HEADER_BYTES = 64,
	KVI_LOWER_MAX = 8, KVI_SAME_MAX = 4,
	KVI_COEF_SUM_MAX = 65536,  /* |coefficients| of a row */
	KVI_MODEL_SELF = 1, KVI_MODEL_SELF_HEAD = 2, KVI_MODEL_SCALE = 4,
	KVI_MODEL_TABLE = 8
};

struct kvi_source {
	uint8_t delta; /* 0: same layer */
	uint8_t kind;
	uint8_t scope; /* 0 all heads, 1 the slot's own head */
	const struct kvi_model *model; /* resolved; in the same profile */
};

/*
 * Model of one tensor. Arrays are by slot (spec linear 1). Coefficients are
 * kept as kernels want them: a row of A or B is a block a source and then (B) a
 * block of earlier slots; a block has the source's heads in scope (all, or one)
 * times kvi_head_room(its head channels) entries, zero where there is no
 * feature. So a row lines up with feature rows (linear.h), also for heads of an
 * odd number of channels.
 */
struct kvi_model {
	uint8_t level, kind, set, flags;
	uint32_t layer, heads, head_channels;
	uint32_t rope; /* 0 none, else 1 + index into the profile's ropes */
	uint32_t rotary; /* of that rope, 0 without */
	size_t C;
	unsigned n_lower, n_same;
	struct kvi_source lower[KVI_LOWER_MAX], same[KVI_SAME_MAX];
	const struct kvi_model *scale_source; /* NULL: none */
	uint8_t n0, beta, scale_kind;
	int16_t *step, *k;
	int32_t *mean;
	uint8_t *qa, *qb;
	size_t a_stride, b_stride; /* entries a row, even; 0: no matrix */
	int16_t *a, *b;            /* C rows each */
	/* token table */
	uint8_t tshift, unknown;
	uint32_t n_ids;
	int32_t *ids;              /* ascending */
	int8_t *table;             /* n_ids x C */
};

/* Channels of a head rounded up to a multiple of 2. */
static inline size_t kvi_head_room(const struct kvi_model *m)
{
	return (m->head_channels + 1) & ~(size_t)1;
}

struct kvi_profile_rope {
	uint32_t rotary;
	uint64_t *freq; /* rotary / 2 */
};

struct kvi_profile {
	const struct kvi_alloc *alloc;
	struct kvi_h128 digest;
	size_t n_pairs;
	char **keys, **values;
	size_t n_ropes;
	struct kvi_profile_rope *ropes;
	unsigned n_sets;           /* without the built-in one */
	uint16_t *set_freq;        /* n_sets x 192 x 41 */
	struct kvi_tables *sets;   /* n_sets, kernels' form: lut and enc */
	size_t n_models;
	struct kvi_model *models;  /* ascending by (level, layer, kind) */
};

/* Parses a content (spec profile 2) and checks everything the page asks for.
 * Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_profile_parse(struct kvi_profile **out,
                            const struct kvi_alloc *alloc,
                            const uint8_t *content, size_t bytes);
/* Appends the content; sets p->digest. p may have been built by a trainer. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_profile_serialise(struct kvi_profile *p, struct kvi_out *out);
/* A whole file in memory: header, check, packed content. Returns as parse, FORMAT too. */
kvarc_ret kvi_profile_read_file(struct kvi_profile **out,
                                const struct kvi_alloc *alloc,
                                const uint8_t *file, size_t bytes);
/* Appends header and packed content. */
kvarc_ret kvi_profile_write_file(struct kvi_profile *p, struct kvi_out *out);
void kvi_profile_free(struct kvi_profile *p); /* NULL-safe */

/* For trainers: an empty profile; room for the arrays of a model whose shape, sources
 * and flags are set (zeroed, all from p->alloc). models must stay where they are once
 * resolved. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_profile_new(struct kvi_profile **out, const struct kvi_alloc *alloc);
kvarc_ret kvi_model_room(struct kvi_profile *p, struct kvi_model *m);
/* Sorts the models, resolves sources, checks as parse does: DATA when one is wrong. */
kvarc_ret kvi_profile_finish(struct kvi_profile *p);

/* What a public handle holds; lives as long as it. */
const struct kvi_profile *kvi_profile_of(const kvarc_profile *p);

/* NULL when there is none. */
const struct kvi_model *kvi_profile_model(const struct kvi_profile *p,
                                          unsigned level, uint32_t layer,
                                          unsigned kind);
/* Whether a model is of this tensor's shape (spec linear): heads, head
 * channels, rope or not and its rotary, floating-point dtype, whole role, all heads. */
bool kvi_model_fits(const struct kvi_model *m, const kvarc_tensor *t,
                    const kvarc_rope *rope);

#endif
