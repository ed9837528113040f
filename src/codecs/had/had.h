/* SPDX-License-Identifier: BSD-3-Clause */
/* had.h - what the sources of codec 13 share (spec/codecs/had.md) */
#ifndef KVI_HAD_H
#define KVI_HAD_H

#include "codecs/had/transform.h"
#include "codecs/lossy/lossy_codec.h"
#include "codecs/lossy/quantiser.h"

/* In one block of memory with struct kvi_params. */
struct kvi_had_params {
	bool turned, hadamard;
	float rms;   /* of coefficients; encoders alone */
	float *mean; /* C, bf16 numbers */
	int16_t *k;  /* C */
};

/* Blocks of 32 tokens on their way: rows of KVI_LANES. */
struct kvi_tiles {
	const struct kvi_lossy_job *job;
	const struct kvi_kernels *kernels;
	const struct kvi_transform *transform;
	struct kvi_turned turned;
	const struct kvi_rotations *turns; /* NULL: nothing turns */
	float *x, *cos, *sin;              /* of a head; of the block */
	int32_t *points;
	int8_t *codes;         /* of a head */
	uint16_t *tile, *rows; /* of all heads, by channel and by token */
};
/* turned: whether params turn keys. Returns OK, MEM, MEMLIMIT, DATA (positions or rope are
 * missing). */
kvarc_ret kvi_tiles_open(struct kvi_tiles *t, struct kvi_coder *c, const struct kvi_lossy_job *job,
                         bool turned);
/* Tokens of the block from `first`. */
static inline size_t kvi_tile_tokens(const struct kvi_tiles *t, size_t first)
{
	size_t left = t->job->chunk.n_tokens - first;
	return left < KVI_LANES ? left : KVI_LANES;
}
/* The block's cosines, and for encoders its elements by channel. */
void kvi_tiles_rotate(struct kvi_tiles *t, size_t first);
/* Loads the elements of a block of tokens as floats. */
void kvi_tiles_load(struct kvi_tiles *t, size_t first);
/* A head of the block: x, turned back. */
void kvi_tiles_head(struct kvi_tiles *t, size_t first, size_t head);
/* x of a head to elements, when it is turned; and those of all heads to job->decoded. */
void kvi_tiles_put(struct kvi_tiles *t, size_t first, size_t head);
/* Stores the elements of a block that was decoded. */
void kvi_tiles_store(struct kvi_tiles *t, size_t first);
/* Tokens of the block that have a bit set to job->refused; whether there are none. */
bool kvi_tiles_refuse(const struct kvi_tiles *t, size_t first, uint32_t refused);
/* A head's codes to their place in the stream, of lanes of tokens, or from it. */
void kvi_tiles_codes(const struct kvi_tiles *t, size_t first, size_t head, int8_t *stream,
                     bool to_stream);

/* Parameters without values. */
struct kvi_params *kvi_had_params_new(const struct kvi_alloc *alloc, const struct kvi_chunk *shape);
/* Fits the classes of the coefficients to the samples of a job. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_had_fit(struct kvi_coder *c, const struct kvi_lossy_job *job,
                      struct kvi_params **out);

#endif
