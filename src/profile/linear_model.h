/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_model.h - applying a tensor's linear model to the tokens of a segment
 * (spec/codecs/linear.md 2 to 4, model.md 2)
 *
 * Features are as kernels want them (kernels/slots.h): 32 tokens after 32
 * tokens, in them the pairs of slots of head after head.
 */
#ifndef KVI_LINEAR_MODEL_H
#define KVI_LINEAR_MODEL_H

#include "kernels/slots.h"
#include "profile_io.h"
#include "numeric/rope_angles.h"

/* Features of a tensor in one segment, for upper tensors: z, r, and the scale at its end. */
struct kvi_features {
	size_t n_tokens, tokens_capacity;
	int16_t *z, *r;         /* heads * kvi_head_stride * tokens_capacity */
	uint32_t *w;            /* tokens_capacity */
	uint32_t n;             /* N of spec linear 4 */
	bool has_z;             /* z is there and read by others: only read it */
	uint64_t expected_hash; /* kvi_expected_hash, of models from KVI_LEVEL_MODEL on */
};
/* Memory for the features of n_tokens tokens. Returns OK, MEM, MEMLIMIT; on failure *f is NULL. */
kvarc_ret kvi_features_open(struct kvi_features **f, const struct kvi_alloc *alloc,
                            const struct kvi_model *model, size_t n_tokens);
/* Frees the features; NULL-safe. */
void kvi_features_close(struct kvi_features *features, const struct kvi_alloc *alloc);

/* Sources of a model's prediction, in the order of m->lower and m->same. */
struct kvi_linear_in {
	const struct kvi_model *model;
	uint8_t dtype;
	size_t n_tokens;
	const int32_t *positions; /* may be NULL when nothing rotates */
	const int32_t *ids;       /* NULL: not known */
	const kvarc_rope *rope;   /* the file's: pairing and frequencies */
	const struct kvi_features *lower[KVI_LOWER_MAX], *same[KVI_SAME_MAX];
	const struct kvi_features *scale; /* NULL: none */
	/* E of spec model 2 by token and slot, for models from KVI_LEVEL_MODEL on and only
	 * for them; NULL: none. */
	const int16_t *expected;
	/* P of spec predicted 1, kvi_chunk_bytes; an encoder's are the elements themselves where
	 * they are P and finite, a decoder's where they are decoded to. NULL: not known. */
	const uint8_t *predicted;
};

/* A model at work on a segment. The first group is set by the caller. */
struct kvi_linear {
	const struct kvi_linear_in *in;
	const struct kvi_kernels *kernels;
	const struct kvi_tables *tables;
	const struct kvi_rotations *turns; /* NULL when nothing rotates */
	struct kvi_features *out;          /* z NULL: not wanted */
	bool predicts;                     /* mu is wanted: there is a stream or w */
	bool only_z;                       /* only out->z is wanted */

	size_t tokens_capacity;
	int16_t *unknown, *table; /* table: of a panel */
	const int8_t **ids;       /* rows of the token table */
	int32_t *below, *sum;     /* sums of a stretch, of a panel */
};
/* Slots of a head whose sums over lower layers are made together. */
enum { KVI_STRETCH = 32 };
/* Scratch memory, 64-aligned, for kvi_linear_begin, which sets out->w and n. */
size_t kvi_linear_bytes(const struct kvi_linear_in *in);
/* Starts with the first token of linear->in; buffer: kvi_linear_bytes, owned by the caller. */
void kvi_linear_begin(struct kvi_linear *linear, void *buffer);

/*
 * Some tokens of the segment: whole steps of 32, in parts of equal size, or the last tokens.
 * Elements are rows of `lanes` a step in each part; row[slot] is the index of a slot's row. Rows
 * from n_coded on are not in the stream (constant channels).
 */
struct kvi_linear_block {
	size_t first, steps;
	unsigned lanes;
	uint16_t *x;
	const uint32_t *row;
	size_t n_coded;
	struct kvi_slot_reader *reader; /* reader of each 2^part_shift steps; NULL: all elements
	                                 * are known */
	unsigned part_shift;            /* 3 or more: there is one part */
	size_t x_part;                  /* elements from one part to the next */
	uint32_t *ctx;                  /* contexts in stream order; NULL: not wanted */
};
/* Fills the block's part of out, and of x or ctx. False when the words of the
 * stream do not suffice. */
bool kvi_linear_apply(const struct kvi_linear *linear, const struct kvi_linear_block *block);

/* Channel of slot c of a head (spec linear 1). */
static inline size_t kvi_slot_channel(const struct kvi_model *model, const kvarc_rope *rope,
                                      size_t c)
{
	if (c >= model->rotary || rope->pairing != KVARC_ROPE_HALF)
		return c;
	return c / 2 + (c & 1 ? model->rotary / 2 : 0);
}

#endif
