/* SPDX-License-Identifier: BSD-3-Clause */
/* had.h - blocks of 32 tokens, and what codes them by a transform (spec/codecs/had.md, klt.md) */
#ifndef KVI_HAD_H
#define KVI_HAD_H

#include "codecs/had/transform.h"
#include "codecs/lossy/lossy_codec.h"
#include "codecs/lossy/quantiser.h"

/* Parameters of the codec had: arrays of C entries. common.rotates: RoPE is removed from keys. */
struct kvi_had_params {
	struct kvi_params common;
	bool hadamard;
	float rms;   /* of coefficients; encoders alone */
	float *mean; /* bf16 numbers */
	int16_t *k;  /* size of coefficients, in classes */
};

/* The parameters of the codec had; NULL: they are of another codec. */
static inline struct kvi_had_params *kvi_had_params_of(const struct kvi_params *p)
{
	return p->codec == KVI_CODEC_HAD ? (struct kvi_had_params *)(uintptr_t)p : NULL;
}
/* Parameters of zeros; NULL: no memory. */
struct kvi_had_params *kvi_had_params_new(const struct kvi_alloc *alloc,
                                          const struct kvi_chunk *shape);
/* Fits means and classes to the elements of a job (kvi_codec.fit). */
kvarc_ret kvi_had_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                      struct kvi_params **out);

/* A block of 32 tokens at work: rows of KVI_LANES. */
struct kvi_tiles {
	const struct kvi_coder_job *job;
	const struct kvi_kernels *kernels;
	const struct kvi_transform *transform;
	struct kvi_turned turned;
	const struct kvi_rotations *turns; /* NULL: no rotation */
	float *x, *cos, *sin;              /* of a head; of the block */
	int32_t *points;
	int8_t *codes;         /* of a head */
	uint16_t *tile, *rows; /* of all heads, by channel and by token */
};
/* rotates: RoPE is removed from keys. Returns OK, MEM, MEMLIMIT, DATA (positions or rope are
 * missing). */
kvarc_ret kvi_tiles_open(struct kvi_tiles *t, struct kvi_coder *c, const struct kvi_coder_job *job,
                         bool rotates);
/* Tokens of the block that starts at token `first`. */
static inline size_t kvi_tile_tokens(const struct kvi_tiles *t, size_t first)
{
	size_t left = t->job->chunk->n_tokens - first;
	return left < KVI_LANES ? left : KVI_LANES;
}
/* Computes cosines and sines of the block. */
void kvi_tiles_rotate(struct kvi_tiles *t, size_t first);
/* Encoders: loads the elements of the block, by channel. */
void kvi_tiles_load(struct kvi_tiles *t, size_t first);
/* A head of the loaded block to t->x, without RoPE. */
void kvi_tiles_head(struct kvi_tiles *t, size_t first, size_t head);
/* t->x of a head to elements of the block, with RoPE. */
void kvi_tiles_put(struct kvi_tiles *t, size_t first, size_t head);
/* Stores the elements of the block in job->decoded. */
void kvi_tiles_store(struct kvi_tiles *t, size_t first);

/*
 * A transform codec at work, the first member of its own struct. Functions get this struct; work on
 * the block that starts at token `first`, and leave out what a codec does not need (NULL).
 */
struct kvi_tile_codec {
	struct kvi_tiles t;
	struct kvi_body body;
	const int16_t *k; /* size of each coefficient in classes, C */
	/* Once the step is known, in front of all blocks. */
	void (*begin)(struct kvi_tile_codec *w);
	/* In front of the heads of a block. */
	void (*block)(struct kvi_tile_codec *w, size_t first);
	/* Encoders: t.x of a head to its coefficients, which are returned. */
	const float *(*analyse)(struct kvi_tile_codec *w, size_t head);
	/* t.codes of a head to t.x. decoding: `analyse` did not see this head. */
	void (*synthesise)(struct kvi_tile_codec *w, size_t head, bool decoding);
};
/* Decodes a body. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_tile_codec_decode(struct kvi_tile_codec *w, struct kvi_coder *c, struct kvi_in *in);
/* Encodes the job, with coefficients of this root mean square (kvi_codec.encode). Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_tile_codec_encode(struct kvi_tile_codec *w, struct kvi_coder *c, float rms,
                                struct kvi_payload *out);

#endif
