/* SPDX-License-Identifier: BSD-3-Clause */
/* vq.h - what the sources of codec 12 share (spec/codecs/vq.md) */
#ifndef KVI_VQ_H
#define KVI_VQ_H

#include "codecs/lossy/lossy_codec.h"

/* Sizes and limits of codebooks. */
enum {
	KVI_VQ_ENTRIES = 256,
	KVI_VQ_DIM_MAX = 8,
	KVI_VQ_STAGES_MAX = 3,
	KVI_VQ_UNIT = 128 /* of entries */
};

/* In one block of memory with struct kvi_params, as its frequencies are. */
struct kvi_vq_params {
	unsigned dim, parts, stages;
	int8_t *book; /* of each part and stage: KVI_VQ_ENTRIES x dim */
};

/* Parameters without values; n_tables is parts * stages. */
struct kvi_params *kvi_vq_params_new(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                                     unsigned dim, unsigned parts, unsigned stages);
/* The codebook of a table. */
static inline int8_t *kvi_vq_book(const struct kvi_vq_params *p, unsigned table)
{
	return p->book + (size_t)table * KVI_VQ_ENTRIES * p->dim;
}

/* A codebook as encoders search it: entries by dimension, and their squares. */
struct kvi_vq_search {
	float entry[KVI_VQ_DIM_MAX][KVI_VQ_ENTRIES];
	float square[KVI_VQ_ENTRIES];
};
/* from: entries of dim numbers each. */
void kvi_vq_search_set(struct kvi_vq_search *s, const float *from, unsigned dim);
/* Prepares a search in a codebook. */
void kvi_vq_search_book(struct kvi_vq_search *s, const int8_t *book, unsigned dim);
/* The entry nearest to x, the first one of several. */
unsigned kvi_vq_nearest(const struct kvi_vq_search *s, const float *x, unsigned dim);

/* A token's scales, and its vectors in units of entries, dim numbers each and zeros behind a head's
 * channels. numbers: of the token; false: there is no scale for it. */
bool kvi_vq_vectors(const struct kvi_chunk *chunk, unsigned dim, const float *numbers,
                    uint16_t *scales, float *vectors);

/* Codebooks and tables of p, whose shape is set. Returns OK, MEM, MEMLIMIT, END (too few
 * vectors). */
kvarc_ret kvi_vq_fit(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_params *p);

#endif
