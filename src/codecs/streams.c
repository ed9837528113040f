/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.c - how the tokens of a chunk are cut into streams, coded and decoded in threads */
#include "streams.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "coder.h"
#include "util/hash.h"
#include "util/pool.h"

/* ==== How the tokens of a chunk are cut into streams, and their table (spec rans 4) ==== */

bool kvi_streams_cut(struct kvi_streams *streams, unsigned size, size_t rows)
{
	const size_t tokens = (size_t)KVI_LANES << size;
	*streams = (struct kvi_streams){ .size = size,
		                         .n = (unsigned)((rows + tokens - 1) / tokens),
		                         .rows = rows,
		                         .tokens = tokens };
	return streams->n > 1 || size == KVI_ONE_STREAM;
}

/* The tokens that the check of stream i covers (spec rans 4); mask: the chunk's. */
static struct kvi_tokens stream_tokens(const struct kvi_streams *streams,
                                       const struct kvi_mask *mask, unsigned i)
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
		const struct kvi_tokens t = stream_tokens(streams, mask, i);
		check[i] = kvi_h64(raw + t.first * row, (t.end - t.first) * row);
	}
	return kvi_streams_check_of(streams, check);
}

struct kvi_tokens kvi_streams_choose(struct kvi_streams_in *in, const struct kvi_streams *streams,
                                     const struct kvi_mask *mask, struct kvi_tokens tokens)
{
	unsigned i = 0, end = streams->n;
	while (i + 1 < end && stream_tokens(streams, mask, i).end <= tokens.first)
		i++;
	while (end > i + 1 && stream_tokens(streams, mask, end - 1).first >= tokens.end)
		end--;
	in->first = i;
	in->end = end;
	return (struct kvi_tokens){ stream_tokens(streams, mask, i).first,
		                    stream_tokens(streams, mask, end - 1).end };
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

/* ==== Decodes the wanted streams of a chunk, on all threads that are free ==== */

/* A chunk whose streams are being decoded. */
struct streams_run {
	const struct kvi_coder_job *job;
	const struct kvi_streams_decoder *d;
	unsigned at_once;
	atomic_bool bad;
};

/* Puts the elements of a stream where they go, constant ones included; compares its check. */
static bool finish_stream(const struct kvi_coder_job *job, unsigned i)
{
	const struct kvi_mask *m = &job->mask;
	const struct kvi_tokens t = stream_tokens(&job->streams, m, i);
	const size_t row = m->C * m->size;
	if (kvi_mask_any(m))
		kvi_mask_scatter(m, job->decoded, t.first, t.end, job->whole);
	return job->streams.n < 2 || !job->checked ||
	       kvi_h64(job->whole + t.first * row, (t.end - t.first) * row) ==
	               job->streams_in->check[i];
}

static void decode_step(void *opaque, size_t number)
{
	struct streams_run *r = opaque;
	const unsigned first = r->job->streams_in->first + (unsigned)number * r->at_once;
	const unsigned left = r->job->streams_in->end - first;
	const unsigned n = left < r->at_once ? left : r->at_once;
	if (atomic_load(&r->bad))
		return;
	bool ok = r->d->some(r->d->opaque, first, n);
	for (unsigned i = 0; i < n && ok; i++)
		ok = finish_stream(r->job, first + i);
	if (!ok)
		atomic_store(&r->bad, true);
}

kvarc_ret kvi_streams_decode(const struct kvi_coder *coder, const struct kvi_coder_job *job,
                             const struct kvi_streams_decoder *decoder)
{
	const unsigned n = job->streams_in->end - job->streams_in->first;
	const unsigned idle = kvi_pool_idle(coder->pool, decoder->work);
	const unsigned threads = 1 + (idle > decoder->helpers ? idle : decoder->helpers);
	struct kvi_pool *pool = threads > 1 ? coder->pool : NULL;
	const unsigned each = (n + threads - 1) / threads;
	struct streams_run r = { .job = job,
		                 .d = decoder,
		                 .at_once = each < decoder->most ? each : decoder->most };
	atomic_init(&r.bad, false);
	kvi_pool_loop(pool, (n + r.at_once - 1) / r.at_once, decode_step, &r);
	return atomic_load(&r.bad) ? KVARC_DATA : KVARC_OK;
}

/* ==== Cuts a chunk into streams and encodes them, on all threads that are free ==== */

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
	const unsigned threads = 1 + kvi_pool_idle(pool, 0),
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
