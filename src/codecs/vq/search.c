/* SPDX-License-Identifier: BSD-3-Clause */
/* search.c - vectors of a token and their nearest codebook entries, for encoders of vq */
#include "codecs/lossy/quantiser_scales.h"
#include "codecs/vq/vq.h"

enum { BLOCK = 16 };

void kvi_vq_search_set(struct kvi_vq_search *s, const float *from, unsigned dim)
{
	for (size_t k = 0; k < KVI_VQ_ENTRIES; k++) {
		float square = 0;
		for (unsigned d = 0; d < dim; d++) {
			float v = from[k * dim + d];
			s->entry[d][k] = v;
			square = square + v * v;
		}
		s->square[k] = square;
	}
}

void kvi_vq_search_book(struct kvi_vq_search *s, const int8_t *book, unsigned dim)
{
	float entries[KVI_VQ_ENTRIES * KVI_VQ_DIM_MAX];
	for (size_t i = 0; i < (size_t)KVI_VQ_ENTRIES * dim; i++)
		entries[i] = book[i];
	kvi_vq_search_set(s, entries, dim);
}

/* |x - e|^2 less |x|^2, which is the same for all. */
unsigned kvi_vq_nearest(const struct kvi_vq_search *s, const float *x, unsigned dim)
{
	float far[KVI_VQ_ENTRIES];
	float least[BLOCK];
	unsigned best = 0;
	memcpy(far, s->square, sizeof far);
	for (unsigned d = 0; d < dim; d++) {
		const float *entry = s->entry[d], twice = 2 * x[d];
		for (size_t k = 0; k < KVI_VQ_ENTRIES; k++)
			far[k] = far[k] - twice * entry[k];
	}
	/* The least distance first, then its index: both loops are fast. */
	memcpy(least, far, sizeof least);
	for (size_t k = BLOCK; k < KVI_VQ_ENTRIES; k += BLOCK)
		for (size_t i = 0; i < BLOCK; i++)
			least[i] = far[k + i] < least[i] ? far[k + i] : least[i];
	for (size_t i = 1; i < BLOCK; i++)
		least[0] = least[i] < least[0] ? least[i] : least[0];
	while (best < KVI_VQ_ENTRIES - 1 && far[best] != least[0])
		best++;
	return best;
}

bool kvi_vq_vectors(const struct kvi_chunk *chunk, unsigned dim, const float *numbers,
                    uint16_t *scales, float *vectors)
{
	const size_t hc = chunk->head_channels;
	const size_t padded = (hc + dim - 1) / dim * dim;
	for (size_t h = 0; h < chunk->heads; h++, numbers += hc) {
		float largest = 0;
		for (size_t i = 0; i < hc; i++) {
			float size = numbers[i] < 0 ? -numbers[i] : numbers[i];
			largest = size > largest ? size : largest;
		}
		scales[h] = kvi_scale_of(largest);
		if (!scales[h])
			return false;
		const float scale = kvi_scale_value(scales[h]);
		for (size_t i = 0; i < padded; i++)
			*vectors++ = i < hc ? numbers[i] / scale * KVI_VQ_UNIT : 0;
	}
	return true;
}
