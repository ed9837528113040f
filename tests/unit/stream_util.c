/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_util.c - helpers of the stream tests */
#include "stream_util.h"

#include <math.h>
#include <stdatomic.h>

static int mem_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct memfile *f = opaque;
	if (f->fail_at >= 0 && atomic_fetch_add(&f->calls, 1) >= f->fail_at)
		return -1;
	assert_int_equal(offset, f->n); /* strictly forward */
	if (f->n + bytes > f->cap) {
		f->cap = 2 * (f->n + bytes);
		f->p = realloc(f->p, f->cap);
		assert_non_null(f->p);
	}
	memcpy(f->p + f->n, buf, bytes);
	f->n += bytes;
	return 0;
}

static int64_t mem_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct memfile *f = opaque;
	if (f->fail_at >= 0 && atomic_fetch_add(&f->calls, 1) >= f->fail_at)
		return -1;
	if (f->pipe) {
		assert_int_equal(offset, f->next);
	} else {
		assert_true(offset + bytes <= f->n);
	}
	size_t n = f->n - (size_t)offset;
	n = n < bytes ? n : bytes;
	if (f->short_max && n > f->short_max)
		n = f->short_max;
	memcpy(buf, f->p + offset, n);
	if (f->pipe)
		f->next += n;
	return (int64_t)n;
}

void memfile_free(struct memfile *f)
{
	free(f->p);
	f->p = NULL;
	f->n = f->cap = 0;
}

kvarc_sink memfile_sink(struct memfile *f)
{
	return (kvarc_sink){ .write = mem_write, .opaque = f };
}

kvarc_source memfile_source(struct memfile *f)
{
	f->next = 0;
	return (kvarc_source){ .read = mem_read,
		               .opaque = f,
		               .size = f->pipe ? KVARC_UNKNOWN : f->n };
}

static void *count_alloc(void *opaque, size_t bytes)
{
	struct counting *c = opaque;
	long call = atomic_fetch_add(&c->calls, 1);
	if (c->fail_at >= 0 && (c->sticky ? call >= c->fail_at : call == c->fail_at))
		return NULL;
	void *p = malloc(bytes);
	if (p)
		atomic_fetch_add(&c->held, 1);
	return p;
}

static void count_free(void *opaque, void *p)
{
	struct counting *c = opaque;
	if (p)
		atomic_fetch_sub(&c->held, 1);
	free(p);
}

kvarc_allocator counting_allocator(struct counting *c)
{
	return (kvarc_allocator){ .alloc = count_alloc, .free = count_free, .opaque = c };
}

uint64_t rand_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static const uint64_t freqs[8] = { 0x28be60db9391054aull, 0x0cdf0e3b9d1e6c41ull,
	                           0x041253f0c1d4c9b0ull, 0x01490bcd1f1aa1c3ull,
	                           0x006817e0a5a3b8d2ull, 0x0020ea5f1b7d2e11ull,
	                           0x000a66d43a1d97b5ull, 0x00034a2b7f3c1d0eull };

static void add(struct cache *c, uint32_t layer, unsigned kind, unsigned dtype, uint32_t heads,
                uint32_t channels, uint32_t track, uint32_t rope)
{
	c->tensors[c->g.n_tensors++] = (kvarc_tensor){ .layer = layer,
		                                       .kind = (uint8_t)kind,
		                                       .dtype = (uint8_t)dtype,
		                                       .flags = rope ? KVARC_TENSOR_POST_ROPE : 0,
		                                       .heads = heads,
		                                       .channels = channels,
		                                       .track = track,
		                                       .rope = rope,
		                                       .name = layer % 2 ? "blk" : NULL };
}

static void shape(struct cache *c, int number)
{
	c->ropes[0] = (kvarc_rope){ .pairing = KVARC_ROPE_HALF, .rotary = 16, .freq = freqs };
	c->ropes[1] = (kvarc_rope){ .pairing = KVARC_ROPE_INTERLEAVED, .rotary = 8, .freq = freqs };
	c->tracks[0] = (kvarc_track){ .kind = KVARC_TRACK_SELF, .label = "main" };
	c->tracks[1] = (kvarc_track){ .kind = KVARC_TRACK_WINDOW, .window = 128 };
	c->tracks[2] = (kvarc_track){ .kind = KVARC_TRACK_STATE, .label = "state" };
	c->g.n_tracks = 1;
	switch (number) {
	case 0: /* usual: keys and values, given in a mixed order */
		c->g.n_ropes = 1;
		add(c, 1, KVARC_VALUE, KVARC_BF16, 2, 16, 0, 0);
		add(c, 0, KVARC_VALUE, KVARC_BF16, 2, 16, 0, 0);
		add(c, 0, KVARC_KEY, KVARC_BF16, 2, 16, 0, 1);
		add(c, 1, KVARC_KEY, KVARC_BF16, 2, 16, 0, 1);
		c->n[0] = 600;
		break;
	case 1: /* every dtype */
		for (unsigned d = 0; d < 8; d++)
			add(c, d, KVARC_KEY, d, 1, 5, 0, 0);
		c->n[0] = 70;
		break;
	case 2: /* several tracks */
		c->g.n_tracks = 3;
		c->g.n_ropes = 2;
		add(c, 0, KVARC_KEY, KVARC_F16, 3, 8, 0, 2);
		add(c, 0, KVARC_VALUE, KVARC_F16, 3, 8, 0, 0);
		add(c, 1, KVARC_KEY, KVARC_F16, 3, 8, 1, 2);
		add(c, 1, KVARC_VALUE, KVARC_F16, 3, 8, 1, 0);
		add(c, 1, KVARC_RECURRENT_STATE, KVARC_F32, 1, 777, 2, 0);
		c->n[0] = 300;
		c->n[1] = 128;
		c->n[2] = 1;
		break;
	case 3: /* many head groups: 256 tokens of a head are 128 KiB; copies of parameters */
		add(c, 0, KVARC_KEY, KVARC_BF16, 5, 256, 0, 0);
		c->n[0] = 1000;
		break;
	case 4: /* nothing in it */
		c->g.n_tracks = 2;
		add(c, 0, KVARC_KEY, KVARC_BF16, 1, 4, 0, 0);
		break;
	case 5: /* tiny */
		add(c, 0, KVARC_KEY, KVARC_BF16, 1, 4, 0, 0);
		add(c, 0, KVARC_VALUE, KVARC_I8, 1, 4, 0, 0);
		c->n[0] = 40;
		break;
	default: /* a head so wide that segments are cut short */
		add(c, 0, KVARC_OPAQUE, KVARC_BYTES, 1, 30000, 0, 0);
		c->n[0] = 40;
		break;
	}
}

size_t cache_bytes(const struct cache *c, size_t tensor)
{
	const kvarc_tensor *t = &c->tensors[tensor];
	return (size_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype) *
	       (size_t)c->n[t->track];
}

void cache_link(struct cache *c)
{
	c->g.ropes = c->ropes;
	c->g.tracks = c->tracks;
	c->g.tensors = c->tensors;
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		const kvarc_tensor *t = &c->tensors[i];
		uint32_t elem = (uint32_t)kvarc_dtype_bytes(t->dtype);
		c->data[i] = malloc(cache_bytes(c, i) + 1);
		assert_non_null(c->data[i]);
		memset(c->data[i], 0xa5, cache_bytes(c, i) + 1);
		c->views[i] =
			(kvarc_view){ .data = c->data[i],
			              .block_elems = t->heads * t->channels,
			              .elem_stride = elem,
			              .token_stride = (uint64_t)elem * t->heads * t->channels };
	}
	for (size_t i = 0; i < c->g.n_tracks; i++) {
		c->ids[i] = calloc((size_t)c->n[i] + 1, 4);
		c->positions[i] = calloc((size_t)c->n[i] + 1, 4);
		assert_non_null(c->ids[i]);
		assert_non_null(c->positions[i]);
	}
}

/* Numbers as caches have them, for the float types; some rows repeat. */
static void fill(struct cache *c, size_t tensor, uint64_t *seed)
{
	const kvarc_tensor *t = &c->tensors[tensor];
	size_t width = (size_t)t->heads * t->channels;
	size_t elem = kvarc_dtype_bytes(t->dtype);
	for (size_t i = 0; i < c->n[t->track] * width; i++) {
		uint64_t z = rand_next(seed);
		uint8_t *at = c->data[tensor] + i * elem;
		double u = (double)(int16_t)z / 32768.0 + (double)(i % width) / 7.0 - 0.3;
		float f = (float)u;
		uint32_t bits;
		memcpy(&bits, &f, 4);
		if (t->dtype == KVARC_F32)
			memcpy(at, &bits, 4);
		else if (t->dtype == KVARC_BF16)
			memcpy(at, (uint8_t *)&bits + 2, 2);
		else if (t->dtype == KVARC_F16)
			memcpy(at,
			       &(uint16_t){ (uint16_t)(0x3400 + (i % width) * 8 + (z & 0x3ff)) },
			       2);
		else
			*at = (uint8_t)(z % 23 + (i % width));
	}
}

void cache_make(struct cache *c, int number, uint64_t seed)
{
	memset(c, 0, sizeof *c);
	shape(c, number);
	cache_link(c);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		fill(c, i, &seed);
	for (size_t i = 0; i < c->g.n_tracks; i++)
		for (uint64_t t = 0; t < c->n[i]; t++) {
			c->ids[i][t] = (int32_t)(rand_next(&seed) % 50000) - 1;
			/* jumps, also backwards */
			c->positions[i][t] = (int32_t)(t % 100 == 99 ? 7 - (int64_t)t
			                                             : (int64_t)t + 3);
		}
}

void cache_make_empty(struct cache *c, const struct cache *like)
{
	*c = *like;
	cache_link(c);
}

void cache_free(struct cache *c)
{
	for (size_t i = 0; i < c->g.n_tensors; i++)
		free(c->data[i]);
	for (size_t i = 0; i < c->g.n_tracks; i++) {
		free(c->ids[i]);
		free(c->positions[i]);
	}
}

bool cache_equal(const struct cache *a, const struct cache *b)
{
	for (size_t i = 0; i < a->g.n_tensors; i++)
		if (memcmp(a->data[i], b->data[i], cache_bytes(a, i)))
			return false;
	for (size_t i = 0; i < a->g.n_tracks; i++)
		if (memcmp(a->ids[i], b->ids[i], 4 * a->n[i]) ||
		    memcmp(a->positions[i], b->positions[i], 4 * a->n[i]))
			return false;
	return true;
}

void cache_views_at(const struct cache *c, uint64_t t0, kvarc_view *views)
{
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		views[i] = c->views[i];
		views[i].data = c->data[i] + t0 * views[i].token_stride;
	}
}

/* Bytes of a row, of the wanted heads, and where they begin. */
static void span(const struct cache *c, uint32_t tensor, uint32_t head, uint32_t heads, size_t *row,
                 size_t *from, size_t *bytes)
{
	const kvarc_tensor *t = &c->tensors[tensor];
	size_t one = t->channels * kvarc_dtype_bytes(t->dtype);
	*row = one * t->heads;
	*from = one * head;
	*bytes = one * heads;
}

int cache_fetch(void *cache, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, void *dst)
{
	const struct cache *c = cache;
	size_t row, from, bytes;
	span(c, tensor, head, heads, &row, &from, &bytes);
	for (uint32_t t = 0; t < n; t++)
		memcpy((uint8_t *)dst + t * bytes, c->data[tensor] + (t0 + t) * row + from, bytes);
	return 0;
}

int cache_deliver(void *cache, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                  uint32_t n, const void *src)
{
	struct cache *c = cache;
	size_t row, from, bytes;
	if (t0 + n > c->n[c->tensors[tensor].track])
		return -1;
	span(c, tensor, head, heads, &row, &from, &bytes);
	for (uint32_t t = 0; t < n; t++)
		memcpy(c->data[tensor] + (t0 + t) * row + from, (const uint8_t *)src + t * bytes,
		       bytes);
	return 0;
}

kvarc_ret cache_write(const struct cache *c, struct memfile *f, const kvarc_writer_options *o)
{
	static const char *const keys[] = { "model", "engine" };
	static const char *const values[] = { "test model", "none" };
	kvarc_sink sink = memfile_sink(f);
	kvarc_writer *w;
	kvarc_ret ret = kvarc_writer_open(&w, &sink, o);
	if (ret)
		return ret;
	ret = kvarc_writer_set_geometry(w, &c->g);
	if (ret == KVARC_OK)
		ret = kvarc_writer_identity(w, 2, keys, values);
	for (uint32_t i = 0; i < c->g.n_tracks && ret == KVARC_OK; i++)
		ret = kvarc_writer_append(w, i, c->n[i], c->ids[i], c->positions[i], c->views);
	if (ret) {
		kvarc_writer_abort(&w);
		return ret;
	}
	ret = kvarc_writer_close(&w);
	assert_null(w);
	return ret;
}

static kvarc_ret read_segments(kvarc_reader *r, struct cache *to)
{
	kvarc_segment s;
	kvarc_ret ret;
	while ((ret = kvarc_reader_next_segment(r, &s)) == KVARC_OK) {
		if (s.t0 + s.n > to->n[s.track])
			return KVARC_PROG;
		if (s.ids)
			memcpy(to->ids[s.track] + s.t0, s.ids, 4 * s.n);
		if (s.positions)
			memcpy(to->positions[s.track] + s.t0, s.positions, 4 * s.n);
		ret = kvarc_reader_segment_deliver(r, cache_deliver, to);
		if (ret)
			return ret;
	}
	return ret;
}

kvarc_ret cache_read_seq(struct cache *to, struct memfile *f, const kvarc_reader_options *o,
                         kvarc_state *state)
{
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	kvarc_info info;
	kvarc_ret ret = kvarc_reader_open(&r, &source, o);
	if (ret) {
		assert_null(r);
		return ret;
	}
	ret = read_segments(r, to);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	if (state)
		*state = info.state;
	kvarc_reader_close(&r);
	assert_null(r);
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret cache_read_range(struct cache *to, struct memfile *f, const kvarc_reader_options *o)
{
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	kvarc_ret ret = kvarc_reader_open(&r, &source, o);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < to->g.n_tracks && ret == KVARC_OK; i++) {
		kvarc_range all = KVARC_RANGE_ALL(i);
		ret = kvarc_reader_read(r, &all, to->views);
		if (ret == KVARC_OK && to->n[i])
			ret = kvarc_reader_read_tokens(r, i, 0, to->n[i], to->ids[i],
			                               to->positions[i]);
	}
	kvarc_reader_close(&r);
	return ret;
}

kvarc_ret cache_verify(struct memfile *f, const kvarc_reader_options *o)
{
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	kvarc_ret ret = kvarc_reader_open(&r, &source, o);
	if (ret == KVARC_OK)
		ret = kvarc_reader_verify(r, NULL, NULL);
	kvarc_reader_close(&r);
	return ret;
}

kvarc_writer_options stream_options(int level, unsigned threads)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.level = KVARC_LEVEL(level);
	o.common.threads = threads;
	o.flags = KVARC_WRITE_FILE_ID;
	return o;
}

struct memfile stream_written(const struct cache *c, const kvarc_writer_options *o)
{
	struct memfile f = { .fail_at = -1 };
	assert_int_equal(cache_write(c, &f, o), KVARC_OK);
	return f;
}
