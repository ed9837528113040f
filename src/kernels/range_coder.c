/* SPDX-License-Identifier: BSD-3-Clause */
/* range_coder.c - a range coder of 64 bits with carries (spec tokens 3, 4) */
#include "range_coder.h"

#define FULL UINT64_MAX
#define LEAST ((uint64_t)1 << 56)

static uint64_t part_begins(uint64_t range, const struct kvi_range_part *p)
{
	return range / p->total * p->below;
}

/* The range after a symbol; the last part has the remainder of the division. */
static uint64_t part_range(uint64_t range, const struct kvi_range_part *p)
{
	return p->below + p->weight == p->total ? range - part_begins(range, p)
	                                        : range / p->total * p->weight;
}

void kvi_range_begin(struct kvi_range_encoder *e, uint8_t *p)
{
	*e = (struct kvi_range_encoder){ .p = p, .range = FULL };
}

static void add(struct kvi_range_encoder *e, uint64_t more)
{
	size_t i = e->n;
	e->low += more;
	if (e->low < more) /* the bytes so far are a number below 1: it ends somewhere */
		while (i-- && ++e->p[i] == 0)
			;
}

void kvi_range_put(struct kvi_range_encoder *e, const struct kvi_range_part *part)
{
	add(e, part_begins(e->range, part));
	for (e->range = part_range(e->range, part); e->range < LEAST; e->range <<= 8, e->low <<= 8)
		e->p[e->n++] = (uint8_t)(e->low >> 56);
}

size_t kvi_range_end(struct kvi_range_encoder *e)
{
	/* The range holds a number of which no more than the top byte is not 0. */
	if (e->low) {
		add(e, LEAST - 1);
		e->p[e->n++] = (uint8_t)(e->low >> 56);
	}
	while (e->n && e->p[e->n - 1] == 0)
		e->n--;
	return e->n;
}

static uint8_t next(struct kvi_range_decoder *d)
{
	size_t at = d->at++;
	return at < d->n ? d->p[at] : 0;
}

void kvi_range_open(struct kvi_range_decoder *d, const uint8_t *p, size_t n)
{
	*d = (struct kvi_range_decoder){ .p = p, .n = n, .range = FULL };
	for (int i = 0; i < 8; i++)
		d->value = d->value << 8 | next(d);
}

uint64_t kvi_range_get(const struct kvi_range_decoder *d, uint64_t total)
{
	uint64_t t = d->value / (d->range / total);
	return t < total ? t : total - 1;
}

void kvi_range_take(struct kvi_range_decoder *d, const struct kvi_range_part *part)
{
	d->value -= part_begins(d->range, part);
	for (d->range = part_range(d->range, part); d->range < LEAST; d->range <<= 8)
		d->value = d->value << 8 | next(d);
}

bool kvi_range_done(const struct kvi_range_decoder *d)
{
	return d->n <= d->at && (!d->n || d->p[d->n - 1]);
}
