/* SPDX-License-Identifier: BSD-3-Clause */
/* range_coder.c - a range coder of 64 bits with carries (spec tokens 3, 4) */
#include "range_coder.h"

#define FULL UINT64_MAX
#define LEAST ((uint64_t)1 << 56)

static uint64_t part_begins(uint64_t range, const struct kvi_range_part *part)
{
	return range / part->total * part->below;
}

/* The range after a symbol; the last part has the remainder of the division. */
static uint64_t part_range(uint64_t range, const struct kvi_range_part *part)
{
	return part->below + part->weight == part->total ? range - part_begins(range, part)
	                                                 : range / part->total * part->weight;
}

void kvi_range_begin(struct kvi_range_encoder *encoder, uint8_t *p)
{
	*encoder = (struct kvi_range_encoder){ .p = p, .range = FULL };
}

static void add(struct kvi_range_encoder *encoder, uint64_t more)
{
	size_t i = encoder->n;
	encoder->low += more;
	if (encoder->low < more) /* the bytes so far are a number below 1: it ends somewhere */
		while (i-- && ++encoder->p[i] == 0)
			;
}

void kvi_range_put(struct kvi_range_encoder *encoder, const struct kvi_range_part *part)
{
	add(encoder, part_begins(encoder->range, part));
	for (encoder->range = part_range(encoder->range, part); encoder->range < LEAST;
	     encoder->range <<= 8, encoder->low <<= 8)
		encoder->p[encoder->n++] = (uint8_t)(encoder->low >> 56);
}

size_t kvi_range_end(struct kvi_range_encoder *encoder)
{
	/* The range holds a number of which no more than the top byte is not 0. */
	if (encoder->low) {
		add(encoder, LEAST - 1);
		encoder->p[encoder->n++] = (uint8_t)(encoder->low >> 56);
	}
	while (encoder->n && encoder->p[encoder->n - 1] == 0)
		encoder->n--;
	return encoder->n;
}

static uint8_t next(struct kvi_range_decoder *decoder)
{
	size_t at = decoder->at++;
	return at < decoder->n ? decoder->p[at] : 0;
}

void kvi_range_open(struct kvi_range_decoder *decoder, const uint8_t *p, size_t n)
{
	*decoder = (struct kvi_range_decoder){ .p = p, .n = n, .range = FULL };
	for (int i = 0; i < 8; i++)
		decoder->value = decoder->value << 8 | next(decoder);
}

uint64_t kvi_range_get(const struct kvi_range_decoder *decoder, uint64_t total)
{
	uint64_t t = decoder->value / (decoder->range / total);
	return t < total ? t : total - 1;
}

void kvi_range_take(struct kvi_range_decoder *decoder, const struct kvi_range_part *part)
{
	decoder->value -= part_begins(decoder->range, part);
	for (decoder->range = part_range(decoder->range, part); decoder->range < LEAST;
	     decoder->range <<= 8)
		decoder->value = decoder->value << 8 | next(decoder);
}

bool kvi_range_done(const struct kvi_range_decoder *decoder)
{
	return decoder->n <= decoder->at && (!decoder->n || decoder->p[decoder->n - 1]);
}
