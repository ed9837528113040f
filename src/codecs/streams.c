/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.c - how the tokens of a chunk are cut into streams, and their table (spec rans 4) */
#include "streams.h"

#include "util/hash.h"

/* What a stream more costs, in bytes, and how much that may be of a payload, in 1/1000. */
enum { STREAM_COST = 120, COST_MAX = 3 };

bool kvi_streams_cut(struct kvi_streams *s, unsigned size, size_t rows)
{
	const size_t tokens = (size_t)KVI_LANES << size;
	*s = (struct kvi_streams){ .size = size,
		                   .n = (unsigned)((rows + tokens - 1) / tokens),
		                   .rows = rows,
		                   .tokens = tokens };
	return s->n > 1 || size == KVI_ONE_STREAM;
}

/* The number of the token behind the n-th one that remains. */
static size_t token_behind(const struct kvi_mask *m, size_t n)
{
	size_t t = 0;
	if (!m->row_bits)
		return n;
	while (n)
		n -= !kvi_bit(m->row_bits, t++);
	return t;
}

uint64_t kvi_streams_check(const struct kvi_streams *s, const struct kvi_mask *m,
                           const uint8_t *raw, uint64_t check[KVI_STREAMS_MAX])
{
	const size_t row = m->C * m->size;
	uint8_t bytes[8 * KVI_STREAMS_MAX];
	size_t from = 0;
	if (s->n < 2)
		return kvi_h64(raw, m->T * row);
	for (unsigned i = 0; i < s->n; i++) {
		size_t to = i + 1 < s->n ? token_behind(m, kvi_stream_first(s, i + 1)) : m->T;
		check[i] = kvi_h64(raw + from * row, (to - from) * row);
		kvi_store64(bytes + 8 * i, check[i]);
		from = to;
	}
	return kvi_h64(bytes, 8 * (size_t)s->n);
}

bool kvi_get_padding(struct kvi_in *in, size_t n)
{
	static const uint8_t zeros[KVI_STREAM_ALIGN];
	const size_t rest = -n % KVI_STREAM_ALIGN;
	const uint8_t *p = kvi_get_bytes(in, rest);
	return p && !memcmp(p, zeros, rest);
}

bool kvi_states_get(struct kvi_in *in, uint32_t state[KVI_LANES])
{
	const uint32_t low = KVI_RANS_LOW;
	const uint8_t *states = kvi_get_bytes(in, 4 * KVI_LANES);
	for (unsigned l = 0; states && l < KVI_LANES; l++) {
		state[l] = kvi_load32(states + 4 * l);
		if (state[l] < low)
			return false;
	}
	return states;
}

bool kvi_streams_get(struct kvi_streams_in *x, const struct kvi_streams *s, size_t section_bytes,
                     struct kvi_in *in)
{
	if (!kvi_get_padding(in, section_bytes))
		return false;
	for (unsigned i = 0; i < s->n; i++) {
		x->stream[i].n_words = kvi_get32(in);
		if (kvi_get32(in))
			return false;
		x->check[i] = kvi_get64(in);
	}
	if (in->bad || (s->n == 1 && x->check[0]))
		return false;
	for (unsigned i = 0; i < s->n; i++)
		if (!kvi_states_get(in, x->stream[i].state))
			return false;
	for (unsigned i = 0; i < s->n; i++) {
		size_t n = x->stream[i].n_words;
		if (n > kvi_in_remaining(in) / 2)
			return false;
		x->stream[i].words = kvi_get_bytes(in, 2 * n);
		if (!x->stream[i].words || !kvi_get_padding(in, 2 * n))
			return false;
	}
	return true;
}

bool kvi_streams_decode(const struct kvi_streams *s, const struct kvi_streams_in *x,
                        const struct kvi_streams_decoder *d)
{
	unsigned i = 0;
	for (; d->two && i + 1 < s->n; i += 2) {
		const struct kvi_stream_part p[2] = { kvi_stream_part_of(s, i),
			                              kvi_stream_part_of(s, i + 1) };
		bool ok[2];
		d->two(d->opaque, p, x->stream + i, ok);
		if (!ok[0] || !ok[1])
			return false;
	}
	for (; i < s->n; i++) {
		const struct kvi_stream_part p = kvi_stream_part_of(s, i);
		if (!d->one(d->opaque, &p, &x->stream[i]))
			return false;
	}
	return true;
}

/* The most streams that cost little of a payload of this size. */
static unsigned size_for(size_t rows, uint64_t bytes)
{
	struct kvi_streams s;
	for (unsigned size = 0; size < KVI_ONE_STREAM; size++)
		if (kvi_streams_cut(&s, size, rows) &&
		    (uint64_t)(s.n - 1) * STREAM_COST * 1000 <= bytes * COST_MAX)
			return size;
	return KVI_ONE_STREAM;
}

/* The size of the streams, by the words of some tokens in the middle. */
static unsigned choose_size(size_t rows, const struct kvi_streams_encoder *e, uint8_t *end)
{
	uint32_t state[KVI_LANES];
	if (rows <= KVI_LANES)
		return KVI_ONE_STREAM;
	const struct kvi_stream_part p = { (rows - e->trial) / 2 / KVI_LANES * KVI_LANES,
		                           e->trial };
	uint64_t words = e->part(e->opaque, &p, (uint16_t *)(void *)end, state);
	return size_for(rows, 2 * words * rows / e->trial + e->plane_bytes);
}

uint8_t *kvi_streams_encode(struct kvi_streams *s, const struct kvi_streams_encoder *e,
                            uint8_t *end)
{
	uint32_t state[KVI_STREAMS_MAX][KVI_LANES], n_words[KVI_STREAMS_MAX];
	kvi_streams_cut(s, choose_size(s->rows, e, end), s->rows);
	for (unsigned i = s->n; i-- > 0;) {
		const struct kvi_stream_part p = kvi_stream_part_of(s, i);
		size_t n = 2 * e->part(e->opaque, &p, (uint16_t *)(void *)end, state[i]);
		const size_t pad = -n % KVI_STREAM_ALIGN;
		n_words[i] = (uint32_t)(n / 2);
		memmove(end - pad - n, end - n, n);
		memset(end - pad, 0, pad);
		end -= n + pad;
	}
	for (unsigned i = s->n; i-- > 0;) {
		end -= 4 * KVI_LANES;
		for (unsigned l = 0; l < KVI_LANES; l++)
			kvi_store32(end + 4 * l, state[i][l]);
	}
	for (unsigned i = s->n; i-- > 0;) {
		end -= 16;
		memset(end, 0, 16);
		kvi_store32(end, n_words[i]);
	}
	return end;
}

void kvi_streams_set_checks(const struct kvi_streams *s, uint8_t *table,
                            const uint64_t check[KVI_STREAMS_MAX])
{
	for (unsigned i = 0; s->n > 1 && i < s->n; i++)
		kvi_store64(table + 16 * i + 8, check[i]);
}
