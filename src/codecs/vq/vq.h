/* SPDX-License-Identifier: BSD-3-Clause */
/* vq.h - what the sources of the codec vq share (spec/codecs/vq.md) */
#ifndef KVI_VQ_H
#define KVI_VQ_H

#include "codecs/lossy/lossy_codec.h"
#include "codecs/symbols.h"

/* Sizes and limits of codebooks. */
enum {
	KVI_VQ_ENTRIES = 256,
	KVI_VQ_DIM_MAX = 8,
	KVI_VQ_STAGES_MAX = 3,
	KVI_VQ_UNIT = 128 /* of entries */
};

/* Parameters of the codec vq. */
struct kvi_vq_params {
	struct kvi_params common;
	unsigned dim, parts, stages;
	struct kvi_freqs freqs; /* parts * stages tables of KVI_BYTE_SYMBOLS */
	int8_t *book;           /* of each part and stage: KVI_VQ_ENTRIES x dim */
};

/* The parameters of the codec vq; NULL: they are of another codec. */
static inline struct kvi_vq_params *kvi_vq_params_of(const struct kvi_params *p)
{
	return p->codec == KVI_CODEC_VQ ? (struct kvi_vq_params *)(uintptr_t)p : NULL;
}
/* The codebook of a table. */
static inline int8_t *kvi_vq_book(const struct kvi_vq_params *p, unsigned table)
{
	return p->book + (size_t)table * KVI_VQ_ENTRIES * p->dim;
}

/* A codebook laid out for a search: entries by dimension, and their squares. */
struct kvi_vq_search {
	float entry[KVI_VQ_DIM_MAX][KVI_VQ_ENTRIES];
	float square[KVI_VQ_ENTRIES];
};
/* Prepares a search among KVI_VQ_ENTRIES vectors of dim numbers. */
void kvi_vq_search_set(struct kvi_vq_search *s, const float *from, unsigned dim);
/* Prepares a search in a codebook. */
void kvi_vq_search_book(struct kvi_vq_search *s, const int8_t *book, unsigned dim);
/* The entry nearest to x, the first one of several. */
unsigned kvi_vq_nearest(const struct kvi_vq_search *s, const float *x, unsigned dim);

/* A token's scales, and its vectors in units of entries, dim numbers per vector and zeros behind
 * the channels of a head. numbers: of the token; false: it has no valid scale. */
bool kvi_vq_vectors(const struct kvi_chunk *chunk, unsigned dim, const float *numbers,
                    uint16_t *scales, float *vectors);

/* Fits codebooks and tables of p, whose shape is set. Returns OK, MEM, MEMLIMIT, END (too few
 * vectors). */
kvarc_ret kvi_vq_fit(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_vq_params *p);

#endif
