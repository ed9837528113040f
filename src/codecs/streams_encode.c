/* SPDX-License-Identifier: BSD-3-Clause */
/* streams_encode.c - cuts a chunk into streams and encodes them, on all threads that are free */
#include "streams.h"

#include "util/pool.h"

/* Cost of one more stream, in bytes; its largest share of a payload, in 1/1000. */
enum { STREAM_COST = 120, COST_MAX = 3 };

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
static unsigned choose_size(size_t rows, const struct kvi_streams_encoder *encoder, uint8_t *end)
{
	uint32_t state[KVI_LANES];
	if (rows <= KVI_LANES)
		return KVI_ONE_STREAM;
	const struct kvi_stream_part p = { (rows - encoder->trial) / 2 / KVI_LANES * KVI_LANES,
		                           encoder->trial };
	if (encoder->begin)
		encoder->begin(encoder->opaque, encoder->trial, encoder->trial);
	uint64_t words = encoder->part(encoder->opaque, &p, (uint16_t *)(void *)end, state);
	return size_for(rows, 2 * words * rows / encoder->trial + encoder->plane_bytes);
}

/* Streams that follow each other, in memory of their own. */
struct streams_group {
	unsigned first, end;
	uint8_t *from, *to; /* begin and end of their words; from: set once they are encoded */
};

/* The streams of a chunk on their way out. */
struct streams_out {
	const struct kvi_streams *s;
	const struct kvi_streams_encoder *e;
	struct streams_group group[KVI_STREAMS_MAX];
	uint32_t state[KVI_STREAMS_MAX][KVI_LANES], n_words[KVI_STREAMS_MAX];
};

/* Moves the n bytes below `from` to stand, with padding, below `end`; returns where they begin. */
static uint8_t *put_words(uint8_t *end, const uint8_t *from, size_t n)
{
	const size_t pad = -n % KVI_STREAM_ALIGN;
	memmove(end - pad - n, from - n, n);
	memset(end - pad, 0, pad);
	return end - pad - n;
}

/* Bytes that a part may need while it is made. */
static size_t part_room(const struct kvi_streams_encoder *encoder,
                        const struct kvi_stream_part *part)
{
	const size_t bytes = 2 * (encoder->token_words * part->rows + KVI_SPARE_WORDS);
	return bytes + (-bytes & (KVI_STREAM_ALIGN - 1));
}

/* Encodes streams i and i - 1 below `end`; returns where they begin. */
static uint8_t *encode_two(struct streams_out *out, unsigned i, uint8_t *end)
{
	const struct kvi_stream_part p[2] = { kvi_stream_part_of(out->s, i),
		                              kvi_stream_part_of(out->s, i - 1) };
	uint8_t *below[2] = { end, end - part_room(out->e, &p[0]) };
	size_t n[2];
	out->e->two(out->e->opaque, p, (uint16_t *const[2]){ (void *)below[0], (void *)below[1] },
	            n, (uint32_t *const[2]){ out->state[i], out->state[i - 1] });
	for (unsigned k = 0; k < 2; k++) {
		out->n_words[i - k] = (uint32_t)n[k];
		end = put_words(end, below[k], 2 * n[k]);
	}
	return end;
}

static void encode_group(void *opaque, size_t number)
{
	struct streams_out *x = opaque;
	struct streams_group *g = &x->group[number];
	uint8_t *end = g->to;
	for (unsigned i = g->end; i > g->first;) {
		if (x->e->two && i - g->first > 1) {
			i -= 2;
			end = encode_two(x, i + 1, end);
			continue;
		}
		const struct kvi_stream_part p = kvi_stream_part_of(x->s, --i);
		size_t n = x->e->part(x->e->opaque, &p, (uint16_t *)(void *)end, x->state[i]);
		x->n_words[i] = (uint32_t)n;
		end = put_words(end, end, 2 * n);
	}
	g->from = end;
}

/* Divides the streams among n groups, and the memory below `end`. */
static void make_groups(struct streams_out *out, unsigned n, uint8_t *end)
{
	for (unsigned i = n; i-- > 0;) {
		struct streams_group *g = &out->group[i];
		g->first = i * out->s->n / n;
		g->end = (i + 1) * out->s->n / n;
		g->to = end;
		const size_t rows = kvi_stream_first(out->s, g->end) -
		                    kvi_stream_first(out->s, g->first);
		const size_t words = out->e->token_words * rows +
		                     (size_t)(g->end - g->first) * KVI_SPARE_WORDS;
		end -= 2 * words + (-2 * words & (KVI_STREAM_ALIGN - 1)) +
		       (size_t)(g->end - g->first) * KVI_STREAM_ALIGN;
	}
}

/* Moves the words of all groups together, down from the last one; returns their begin. */
static uint8_t *join_groups(const struct streams_out *out, unsigned n)
{
	uint8_t *at = out->group[n - 1].from;
	for (unsigned i = n - 1; i-- > 0;) {
		const size_t bytes = (size_t)(out->group[i].to - out->group[i].from);
		at -= bytes;
		memmove(at, out->group[i].from, bytes);
	}
	return at;
}

uint8_t *kvi_streams_encode(struct kvi_pool *pool, struct kvi_streams *streams,
                            const struct kvi_streams_encoder *encoder, uint8_t *end)
{
	struct streams_out x = { .s = streams, .e = encoder };
	kvi_streams_cut(streams, choose_size(streams->rows, encoder, end), streams->rows);
	if (encoder->begin)
		encoder->begin(encoder->opaque, kvi_stream_part_of(streams, 0).rows,
		               kvi_stream_part_of(streams, streams->n - 1).rows);
	const unsigned threads = 1 + kvi_pool_idle(pool),
		       n = threads < streams->n ? threads : streams->n;
	make_groups(&x, n, end);
	kvi_pool_loop(pool, n, encode_group, &x);
	end = join_groups(&x, n);
	for (unsigned i = streams->n; i-- > 0;) {
		end -= 4 * KVI_LANES;
		for (unsigned l = 0; l < KVI_LANES; l++)
			kvi_store32(end + 4 * l, x.state[i][l]);
	}
	for (unsigned i = streams->n; i-- > 0;) {
		end -= 16;
		memset(end, 0, 16);
		kvi_store32(end, x.n_words[i]);
	}
	return end;
}
