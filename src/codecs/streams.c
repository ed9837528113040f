/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.c - how the tokens of a chunk are cut into streams, and their table (spec rans 4) */
#include "streams.h"

#include "util/hash.h"

bool kvi_streams_cut(struct kvi_streams *streams, unsigned size, size_t rows)
{
	const size_t tokens = (size_t)KVI_LANES << size;
	*streams = (struct kvi_streams){ .size = size,
		                         .n = (unsigned)((rows + tokens - 1) / tokens),
		                         .rows = rows,
		                         .tokens = tokens };
	return streams->n > 1 || size == KVI_ONE_STREAM;
}

struct kvi_tokens kvi_stream_tokens(const struct kvi_streams *streams, const struct kvi_mask *mask,
                                    unsigned i)
{
	return (struct kvi_tokens){
		kvi_mask_token(mask, kvi_stream_first(streams, i)),
		i + 1 < streams->n ? kvi_mask_token(mask, kvi_stream_first(streams, i + 1))
				   : mask->T,
	};
}

uint64_t kvi_streams_check_of(const struct kvi_streams *streams,
                              const uint64_t check[KVI_STREAMS_MAX])
{
	uint8_t bytes[8 * KVI_STREAMS_MAX];
	for (unsigned i = 0; i < streams->n; i++)
		kvi_store64(bytes + 8 * i, check[i]);
	return kvi_h64(bytes, 8 * (size_t)streams->n);
}

uint64_t kvi_streams_check(const struct kvi_streams *streams, const struct kvi_mask *mask,
                           const uint8_t *raw, uint64_t check[KVI_STREAMS_MAX])
{
	const size_t row = mask->C * mask->size;
	if (streams->n < 2)
		return kvi_h64(raw, mask->T * row);
	for (unsigned i = 0; i < streams->n; i++) {
		const struct kvi_tokens t = kvi_stream_tokens(streams, mask, i);
		check[i] = kvi_h64(raw + t.first * row, (t.end - t.first) * row);
	}
	return kvi_streams_check_of(streams, check);
}

struct kvi_tokens kvi_streams_choose(struct kvi_streams_in *in, const struct kvi_streams *streams,
                                     const struct kvi_mask *mask, struct kvi_tokens tokens)
{
	unsigned i = 0, end = streams->n;
	while (i + 1 < end && kvi_stream_tokens(streams, mask, i).end <= tokens.first)
		i++;
	while (end > i + 1 && kvi_stream_tokens(streams, mask, end - 1).first >= tokens.end)
		end--;
	in->first = i;
	in->end = end;
	return (struct kvi_tokens){ kvi_stream_tokens(streams, mask, i).first,
		                    kvi_stream_tokens(streams, mask, end - 1).end };
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

bool kvi_streams_get(struct kvi_streams_in *streams_in, const struct kvi_streams *streams,
                     size_t section_bytes, struct kvi_in *in)
{
	if (!kvi_get_padding(in, section_bytes))
		return false;
	for (unsigned i = 0; i < streams->n; i++) {
		streams_in->stream[i].n_words = kvi_get32(in);
		if (kvi_get32(in))
			return false;
		streams_in->check[i] = kvi_get64(in);
	}
	if (in->bad || (streams->n == 1 && streams_in->check[0]))
		return false;
	for (unsigned i = 0; i < streams->n; i++)
		if (!kvi_states_get(in, streams_in->stream[i].state))
			return false;
	for (unsigned i = 0; i < streams->n; i++) {
		size_t n = streams_in->stream[i].n_words;
		if (n > kvi_in_remaining(in) / 2)
			return false;
		streams_in->stream[i].words = kvi_get_bytes(in, 2 * n);
		if (!streams_in->stream[i].words || !kvi_get_padding(in, 2 * n))
			return false;
	}
	return true;
}

void kvi_streams_set_checks(const struct kvi_streams *streams, uint8_t *table,
                            const uint64_t check[KVI_STREAMS_MAX])
{
	for (unsigned i = 0; streams->n > 1 && i < streams->n; i++)
		kvi_store64(table + 16 * i + 8, check[i]);
}
