/* SPDX-License-Identifier: BSD-3-Clause */
/* grid.h - what the grid codec shares with the near codec (spec grid) */
#ifndef KVI_GRID_H
#define KVI_GRID_H

#include "codecs/coder.h"
#include "numeric/rope_angles.h"

/* Parameters of the codecs grid and near: arrays of C entries. */
struct kvi_grid_params {
	struct kvi_params common;
	int16_t *k;    /* scale class: 4 log2 of the standard deviation */
	int16_t *mean; /* mean in units of the class (spec grid 1) */
	uint8_t *set;  /* table set */
	uint32_t *ctx; /* contexts without rotation */
};

/* The parameters of the codec grid or near; NULL: they are of another codec. */
static inline struct kvi_grid_params *kvi_grid_params_of(const struct kvi_params *params)
{
	bool yes = params->codec == KVI_CODEC_GRID || params->codec == KVI_CODEC_NEAR;
	return yes ? (struct kvi_grid_params *)(uintptr_t)params : NULL;
}
/* Parameters of zeros; NULL: no memory. */
struct kvi_grid_params *kvi_grid_params_new(const struct kvi_alloc *alloc, uint8_t codec,
                                            const struct kvi_chunk *shape);
/* Reads the parameters of a codec. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_grid_params_parse(const struct kvi_alloc *alloc, uint8_t codec,
                                const struct kvi_chunk *shape, struct kvi_in *in,
                                struct kvi_params **out);
/* Writes what kvi_grid_params_parse reads. */
void kvi_grid_params_serialise(const struct kvi_params *params, struct kvi_out *out);
/* Sets ctx from k and mean. */
void kvi_grid_params_finish(struct kvi_grid_params *params);
/* Fits the parameters of a codec to the elements of a job. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_grid_params_fit(struct kvi_coder *coder, uint8_t codec,
                              const struct kvi_coder_job *job, struct kvi_params **out);

/* Contexts of the elements of a job, for streams of its tokens in the order of elements. */
struct kvi_grid_contexts {
	const struct kvi_grid_format *fmt;
	const struct kvi_tables *tables;
	size_t channels;
	uint32_t *ctx;   /* context of each element; with rings: of each channel */
	uint32_t *rings; /* two buffers; NULL: there are none */
	size_t ring;     /* entries of a buffer */
	struct kvi_rings of;
	/* Inputs of kvi_grid_contexts_fill where there are no rings; rows NULL: ctx holds all
	 * contexts. */
	const struct kvi_coder *coder;
	const struct kvi_coder_job *job;
	const struct kvi_grid_params *p;
	const struct kvi_token_turns *turns;
	uint32_t *rows; /* a buffer for each stream that a chunk can have */
};
/* Prepares the contexts of a job. fmt: the grid format of the dtype. Contexts can be used once
 * kvi_grid_contexts_cut and, for each part, kvi_grid_contexts_fill were called. Returns OK, MEM,
 * MEMLIMIT, DATA (rotation without positions). */
kvarc_ret kvi_grid_contexts_open(struct kvi_coder *coder, const struct kvi_coder_job *job,
                                 const struct kvi_grid_params *params,
                                 const struct kvi_grid_format *fmt,
                                 struct kvi_grid_contexts *contexts);
/* Lays out the contexts for parts of `rows` tokens, the last part of `last` tokens. */
void kvi_grid_contexts_cut(struct kvi_grid_contexts *contexts, size_t rows, size_t last);
/* Makes the contexts of a part. number: its stream; no two calls for one stream at once. */
void kvi_grid_contexts_fill(const struct kvi_grid_contexts *contexts,
                            const struct kvi_stream_part *part, unsigned number);
/* The kernels' job for a part. */
struct kvi_grid_job kvi_grid_part(const struct kvi_grid_contexts *contexts,
                                  const struct kvi_stream_part *part);
/*
 * Encodes the elements of a job with these contexts, planes from `planes` on, which lies behind
 * out->words where others stand between. Returns OK, MEM, MEMLIMIT.
 */
kvarc_ret kvi_grid_encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                          const struct kvi_grid_contexts *contexts, uint8_t *planes,
                          struct kvi_payload *out);
/* Decodes the elements that kvi_grid_encode encoded; in: at their planes. Returns OK, MEM,
 * MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_grid_decode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                          const struct kvi_grid_contexts *contexts, struct kvi_in *in);
/* The kernels' job for the elements of a job in the order of tokens, with params;
 * fmt: that of a lattice (near.h). Returns OK, MEM, MEMLIMIT, DATA (rotation without positions). */
kvarc_ret kvi_grid_token_job(struct kvi_coder *coder, const struct kvi_coder_job *job,
                             const struct kvi_grid_params *params,
                             const struct kvi_grid_format *fmt, struct kvi_grid_job *grid_job);

/* The kernels' rotation of the contexts of token t, of those that have turns under a rope. */
static inline struct kvi_rotation kvi_grid_rotation(const struct kvi_coder_tables *tables,
                                                    const struct kvi_grid_params *params,
                                                    const struct kvi_grid_format *fmt,
                                                    const kvarc_rope *rope,
                                                    const struct kvi_token_turns *turns, size_t t)
{
	return (struct kvi_rotation){
		.fmt = fmt,
		.pairs = rope->rotary / 2,
		.interleaved = rope->pairing == KVARC_ROPE_INTERLEAVED,
		.turn = turns->turn + t * turns->pairs,
		.angle_class = turns->angle_class + t * turns->pairs,
		.scales = tables->scale_pairs,
		.mean = params->mean,
		.k = params->k,
		.heads = params->common.heads,
		.head_channels = params->common.head_channels,
	};
}
/* Contexts of all channels of token t of those that have turns under a rope; coder: its kernels and
 * tables are read. */
void kvi_grid_rotate_row(const struct kvi_coder *coder, const struct kvi_grid_params *params,
                         const struct kvi_grid_format *fmt, const kvarc_rope *rope,
                         const struct kvi_token_turns *turns, size_t t, uint32_t *ctx);
/* Contexts of all channels without rotation. */
void kvi_grid_fixed_contexts(const struct kvi_grid_params *params,
                             const struct kvi_grid_format *fmt, uint32_t *ctx);

/* Most words that an element takes in a stream. */
enum { KVI_GRID_WORDS = 3 };

#endif
