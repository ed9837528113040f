/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_io.h - profiles as bytes: layout, sizes, checks, files */
#ifndef KVI_PROFILE_IO_H
#define KVI_PROFILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "format/identity.h"
#include "format/levels.h"
#include "kernels/rans.h"
#include "util/alloc.h"
#include "util/bytes.h"
#include "util/hash.h"
#include "util/shared.h"

struct kvi_model;

/* Sizes and limits of a profile (spec profile 2). */
enum {
	KVI_PROFILE_HEADER_BYTES = 64,
	KVI_PROFILE_PAIRS = 256,
	KVI_MODELS_MAX = 65536,
	KVI_TABLE_ROWS_MAX = 1 << 20,
	KVI_STEP_MIN = -100,
	KVI_STEP_MAX = 100,
	KVI_CLASS_MAX = 400,
	KVI_UNIT_MAX = 32767, /* |X|, |mean| and the like (spec linear 2) */
	KVI_SHIFT_MAX = 16,
	KVI_TABLE_SHIFT_MAX = 8,
	KVI_UNKNOWN_MAX = 128,
	KVI_BETA_MAX = 16,
	KVI_LOWER_MAX = 8,
	KVI_SAME_MAX = 4,
	KVI_COEF_SUM_MAX = 65536, /* |coefficients| of a row */
	KVI_MODEL_SELF = 1,
	KVI_MODEL_SELF_HEAD = 2,
	KVI_MODEL_SCALE = 4,
	KVI_MODEL_TABLE = 8,
	KVI_MODEL_CORRECTS = 16,
	KVI_MODEL_BASIS = 32,
	KVI_CORRECTS_WIDTH_MAX = 1 << 20,
	KVI_CORRECTS_SHIFT_MAX = 63
};

/* The level whose models another one uses (spec model 1). */
static inline unsigned kvi_models_level(unsigned level)
{
	return level == KVI_LEVEL_PREDICTED ? KVI_LEVEL_LAST : level;
}

/* A tensor that a linear model of another tensor predicts from. */
struct kvi_source {
	uint8_t delta; /* 0: same layer */
	uint8_t kind;
	uint8_t scope;                 /* 0 all heads, 1 the slot's own head */
	const struct kvi_model *model; /* resolved; in the same profile */
};

/*
 * Model of one tensor. Arrays are by slot (spec linear 1). Coefficients are stored as kernels want
 * them: a row of A or B is a block a source and then (B) a block of earlier slots; a block has the
 * source's heads in scope (all, or one) times kvi_head_stride(its head channels) entries, zero
 * where there is no feature. So a row lines up with feature rows (kernels/slots.h), also for heads
 * of an odd number of channels. Rows of D are like rows of B, of all heads, with all of the model's
 * own slots.
 */
struct kvi_model {
	uint8_t level, kind, flags;
	uint32_t layer, heads, head_channels;
	uint32_t rope;   /* 0 none, else 1 + index into the profile's ropes */
	uint32_t rotary; /* rotated channels of the rope, 0: none */
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
	int32_t *ids;  /* ascending */
	int8_t *table; /* n_ids x C */
	/* correction of the hidden state (spec model 3) */
	uint32_t width; /* width of the state: rows of D */
	uint8_t *e;
	int16_t *d;
	size_t d_stride; /* entries a row, even; 0: no matrix */
	/* basis of each head (spec klt 2): rows of slots, by coefficient */
	uint8_t *qm;
	int16_t *m;
	size_t m_stride; /* entries a row, even; 0: no matrix */
};

/* Channels of a head rounded up to a multiple of 2. */
static inline size_t kvi_head_stride(const struct kvi_model *model)
{
	return (model->head_channels + 1) & ~(size_t)1;
}

/* A RoPE of a profile: its rotated channels and their frequencies. */
struct kvi_profile_rope {
	uint32_t rotary;
	uint64_t *freq; /* rotary / 2 */
};

/* A profile in memory (spec profile 2). */
struct kvi_profile {
	const struct kvi_alloc *alloc;
	struct kvi_h128 digest;
	struct kvi_identity identity; /* model, weights, tokenizer, fitted_on ... */
	size_t n_ropes;
	struct kvi_profile_rope *ropes;
	size_t n_models;
	struct kvi_model *models; /* ascending by (level, layer, kind) */
};

/* Parses a content (spec profile 2) and checks everything the page asks for.
 * Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_profile_parse(struct kvi_profile **out, const struct kvi_alloc *alloc,
                            const uint8_t *content, size_t bytes);
/* Appends the content; sets profile->digest. profile may have been built by a trainer and
 * is finished. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_profile_serialise(struct kvi_profile *profile, struct kvi_out *out);
/* Appends the content without setting the digest. Test out->failed afterwards. */
void kvi_profile_put(const struct kvi_profile *profile, struct kvi_out *out);

/* The header of a .kvp file. */
struct kvi_profile_header {
	uint64_t content_bytes, packed_bytes;
	struct kvi_h128 digest;
};
/* Parses the header in the first bytes of a file. Returns OK, FORMAT, OPTIONS, DATA (also when
 * there are fewer than KVI_PROFILE_HEADER_BYTES). */
kvarc_ret kvi_profile_header_parse(struct kvi_profile_header *header, const uint8_t *file,
                                   size_t bytes);
/* Unpacks and parses the content of a file; packed: the header->packed_bytes bytes behind the
 * header. Returns as kvi_profile_parse. */
kvarc_ret kvi_profile_unpack(struct kvi_profile **out, const struct kvi_alloc *alloc,
                             const struct kvi_profile_header *header, const uint8_t *packed);
/* Reads a whole file in memory: header, check, packed content. Returns as kvi_profile_parse, and
 * FORMAT. */
kvarc_ret kvi_profile_read_file(struct kvi_profile **out, const struct kvi_alloc *alloc,
                                const uint8_t *file, size_t bytes);
/* Appends header and packed content. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_profile_write_file(const struct kvi_profile *profile, struct kvi_out *out);
void kvi_profile_free(struct kvi_profile *profile); /* NULL-safe */
/*
 * Makes an empty profile for trainers, to be filled with memory from its alloc. Returns OK, MEM,
 * MEMLIMIT.
 */
KVI_SHARED kvarc_ret kvi_profile_new(struct kvi_profile **out, const struct kvi_alloc *alloc);
/* Allocates the arrays of a model whose level, layer, kind, shape, sources, flags, n_ids and width
 * are set, zeroed; the models that its sources name are in profile->models with their shapes.
 * Arrays that the model has are freed. Returns OK, MEM, MEMLIMIT, DATA (a source is missing). */
KVI_SHARED kvarc_ret kvi_model_reserve(const struct kvi_profile *profile, struct kvi_model *model);
/* Prepares a model for predictions without errors, or with small ones: sets k from the model's
 * steps, and flag and n0 of a scale that follows the tokens. The means are left. */
KVI_SHARED void kvi_model_expect_nothing(struct kvi_model *model);
/* Sorts the models (they must not be moved afterwards), resolves sources, checks as parse does.
 * Returns OK, MEM, MEMLIMIT; DATA, OPTIONS when something is wrong. */
KVI_SHARED kvarc_ret kvi_profile_finish(struct kvi_profile *profile);
/*
 * Merges n (at least 1) profiles into a finished one: each tensor gets the model of the first
 * profile that has it with all its sources. On failure *out is NULL. Returns OK, MEM, MEMLIMIT,
 * GEOMETRY (the profiles name different models).
 */
kvarc_ret kvi_profile_merge(struct kvi_profile **out, const struct kvi_alloc *alloc,
                            const struct kvi_profile *const *list, size_t n);
/* The profile of a public handle, which owns it. */
const struct kvi_profile *kvi_profile_of(const kvarc_profile *profile);
/* The model of a level, layer and kind; NULL: there is none. */
KVI_SHARED const struct kvi_model *kvi_profile_model(const struct kvi_profile *profile,
                                                     unsigned level, uint32_t layer, unsigned kind);
/* Whether a model is of this tensor's shape (spec linear): heads, head
 * channels, rope or not and its rotary, floating-point dtype, whole role, all heads. */
KVI_SHARED bool kvi_model_fits(const struct kvi_model *model, const kvarc_tensor *tensor,
                               const kvarc_rope *rope);
/* Stored coefficients of all its matrices. */
uint64_t kvi_model_coefficients(const struct kvi_model *model);

/* ==== What the parts of a profile's code share ==== */

/*
 * Stored coefficients of row c of a matrix, in the order of the file, as runs
 * that lie in one piece in memory (spec profile 3).
 */
typedef void kvi_run(void *ctx, int16_t *p, size_t n);
/* Visits the coefficients of a row of matrix A, B, D or M. */
void kvi_model_row_a(const struct kvi_model *model, size_t c, kvi_run *run, void *ctx);
void kvi_model_row_b(const struct kvi_model *model, size_t c, kvi_run *run, void *ctx);
void kvi_model_row_d(const struct kvi_model *model, size_t i, kvi_run *run, void *ctx);
/* Frees the arrays of a model; NULL arrays are fine. */
KVI_SHARED void kvi_model_free(const struct kvi_profile *profile, struct kvi_model *model);
/* Ascending by (level, layer, kind); for qsort. */
int kvi_model_compare(const void *a, const void *b);

#endif
