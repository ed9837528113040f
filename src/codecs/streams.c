/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.c - how the tokens of a chunk are cut into streams, and their table (spec rans 4) */
#include "streams.h"

#include "util/hash.h"

bool kvi_streams_cut(struct kvi_streams *s, unsigned size, size_t rows)
{
	const size_t tokens = (size_t)KVI_LANES << size;
	*s = (struct kvi_streams){ .size = size,
		                   .n = (unsigned)((rows + tokens - 1) / tokens),
		                   .rows = rows,
		                   .tokens = tokens };
	return s->n > 1 || size == KVI_ONE_STREAM;
}

struct kvi_tokens kvi_stream_tokens(const struct kvi_streams *s, const struct kvi_mask *m,
                                    unsigned i)
{
	return (struct kvi_tokens){
		kvi_mask_token(m, kvi_stream_first(s, i)),
		i + 1 < s->n ? kvi_mask_token(m, kvi_stream_first(s, i + 1)) : m->T,
	};
}

uint64_t kvi_streams_check_of(const struct kvi_streams *s, const uint64_t check[KVI_STREAMS_MAX])
{
	uint8_t bytes[8 * KVI_STREAMS_MAX];
	for (unsigned i = 0; i < s->n; i++)
		kvi_store64(bytes + 8 * i, check[i]);
	return kvi_h64(bytes, 8 * (size_t)s->n);
}

uint64_t kvi_streams_check(const struct kvi_streams *s, const struct kvi_mask *m,
                           const uint8_t *raw, uint64_t check[KVI_STREAMS_MAX])
{
	const size_t row = m->C * m->size;
	if (s->n < 2)
		return kvi_h64(raw, m->T * row);
	for (unsigned i = 0; i < s->n; i++) {
		const struct kvi_tokens t = kvi_stream_tokens(s, m, i);
		check[i] = kvi_h64(raw + t.first * row, (t.end - t.first) * row);
	}
	return kvi_streams_check_of(s, check);
}

struct kvi_tokens kvi_streams_choose(struct kvi_streams_in *x, const struct kvi_streams *s,
                                     const struct kvi_mask *m, struct kvi_tokens t)
{
	unsigned i = 0, end = s->n;
	while (i + 1 < end && kvi_stream_tokens(s, m, i).end <= t.first)
		i++;
	while (end > i + 1 && kvi_stream_tokens(s, m, end - 1).first >= t.end)
		end--;
	x->first = i;
	x->end = end;
	return (struct kvi_tokens){ kvi_stream_tokens(s, m, i).first,
		                    kvi_stream_tokens(s, m, end - 1).end };
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

void kvi_streams_set_checks(const struct kvi_streams *s, uint8_t *table,
                            const uint64_t check[KVI_STREAMS_MAX])
{
	for (unsigned i = 0; s->n > 1 && i < s->n; i++)
		kvi_store64(table + 16 * i + 8, check[i]);
}
