/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stream.c - writer and reader: round trips, threads, ranges, views, pipes */
#include "stream_util.h"

#include <pthread.h>

#include "reader/reader_internal.h"
#include "writer/writer_segment.h"
#include "writer/writer_internal.h"
#include "format/frame.h"

static void test_round_trips(void **state)
{
	(void)state;
	for (int number = 0; number < CACHES; number++)
		for (int level = 0; level <= KVARC_LEVEL_DEFAULT; level++) {
			struct cache c, back;
			struct memfile first = { .fail_at = -1 };
			cache_make(&c, number, 1);
			for (unsigned run = 0; run < 6; run++) {
				struct memfile f = { .fail_at = -1 };
				kvarc_writer_options wo = stream_options(level, 1 + run % 4);
				kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
				kvarc_state how = KVARC_STATE_UNKNOWN;
				wo.common.overlap = run / 4;
				ro.common.threads = wo.common.threads;
				ro.common.overlap = wo.common.overlap;
				wo.flags |= KVARC_WRITE_VERIFY;
				wo.chunk_bytes = 64 << 10;
				assert_int_equal(cache_write(&c, &f, &wo), KVARC_OK);
				cache_make_empty(&back, &c);
				assert_int_equal(cache_read_seq(&back, &f, &ro, &how), KVARC_OK);
				assert_int_equal(how, KVARC_STATE_CLOSED);
				assert_true(cache_equal(&c, &back));
				cache_free(&back);
				cache_make_empty(&back, &c);
				assert_int_equal(cache_read_range(&back, &f, &ro), KVARC_OK);
				assert_true(cache_equal(&c, &back));
				cache_free(&back);
				assert_int_equal(cache_verify(&f, &ro), KVARC_OK);
				if (!first.p) {
					first = f;
					continue;
				}
				assert_int_equal(f.n, first.n);
				assert_memory_equal(f.p, first.p, f.n);
				memfile_free(&f);
			}
			memfile_free(&first);
			cache_free(&c);
		}
}

static void test_append_in_pieces(void **state)
{
	static const uint64_t pieces[][4] = {
		{ 1, 1, 1, 1 }, { 300, 5, 251, 3 }, { 7, 255, 256, 257 }, { 600, 600, 600, 600 }
	};
	struct cache c;
	kvarc_writer_options o = stream_options(1, 2);
	(void)state;
	cache_make(&c, 0, 2);
	struct memfile whole = stream_written(&c, &o);
	for (size_t k = 0; k < 4; k++) {
		struct memfile f = { .fail_at = -1 };
		kvarc_sink sink = memfile_sink(&f);
		kvarc_writer *w;
		kvarc_view views[16];
		uint64_t at = 0;
		static const char *const keys[] = { "engine", "model" };
		static const char *const values[] = { "none", "test model" };
		assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
		assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
		assert_int_equal(kvarc_writer_identity(w, 2, keys, values), KVARC_OK);
		for (int i = 0; at < c.n[0]; i++) {
			uint64_t n = pieces[k][i % 4];
			n = n < c.n[0] - at ? n : c.n[0] - at;
			cache_views_at(&c, at, views);
			assert_int_equal(kvarc_writer_append(w, 0, n, c.ids[0] + at,
			                                     c.positions[0] + at, views),
			                 KVARC_OK);
			at += n;
		}
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		assert_int_equal(f.n, whole.n);
		assert_memory_equal(f.p, whole.p, f.n);
		memfile_free(&f);
	}
	memfile_free(&whole);
	cache_free(&c);
}

/* Calls of a writer or reader, and those from another thread than the one that made this. */
struct callers {
	struct cache *c;
	pthread_t own;
	unsigned calls, foreign;
};

static void count_caller(struct callers *x)
{
	x->calls++;
	x->foreign += !pthread_equal(pthread_self(), x->own);
}

static int fetch_counted(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                         uint32_t n, void *dst)
{
	struct callers *x = opaque;
	count_caller(x);
	return cache_fetch(x->c, tensor, head, heads, t0, n, dst);
}

static int deliver_counted(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads,
                           uint64_t t0, uint32_t n, const void *src)
{
	struct callers *x = opaque;
	const kvarc_tensor *t = &x->c->g.tensors[tensor];
	size_t bytes = (size_t)n * heads * t->channels * kvarc_dtype_bytes(t->dtype);
	uint8_t *want = malloc(bytes);
	count_caller(x);
	assert_int_equal(cache_fetch(x->c, tensor, head, heads, t0, n, want), 0);
	assert_memory_equal(src, want, bytes);
	free(want);
	return 0;
}

/* With overlap the caller's thread alone takes and gives elements. */
static void test_overlap(void **state)
{
	struct cache c;
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	kvarc_reader *r;
	kvarc_segment segment;
	(void)state;
	cache_make(&c, 0, 3);
	struct callers in = { .c = &c, .own = pthread_self() }, out = in;
	for (unsigned threads = 0; threads <= 2; threads++) {
		kvarc_writer_options wo = stream_options(1, threads);
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		wo.common.overlap = ro.common.overlap = 1;
		ro.common.threads = threads;
		in.calls = out.calls = 0;
		assert_int_equal(kvarc_writer_open(&w, &sink, &wo), KVARC_OK);
		assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
		assert_int_equal(kvarc_writer_append_fetch(w, 0, c.n[0], c.ids[0], c.positions[0],
		                                           fetch_counted, &in),
		                 KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		kvarc_source src = memfile_source(&f);
		assert_int_equal(kvarc_reader_open(&r, &src, &ro), KVARC_OK);
		while (kvarc_reader_next_segment(r, &segment) == KVARC_OK)
			assert_int_equal(kvarc_reader_segment_deliver(r, deliver_counted, &out),
			                 KVARC_OK);
		kvarc_reader_close(&r);
		assert_true(in.calls > 0);
		assert_int_equal(out.calls, in.calls);
		assert_int_equal(in.foreign + out.foreign, 0);
		memfile_free(&f);
		f = (struct memfile){ .fail_at = -1 };
	}
	cache_free(&c);
}

static void test_append_fetch_and_commit(void **state)
{
	struct cache c, back;
	kvarc_writer_options o = stream_options(1, 3);
	kvarc_writer_stats stats;
	kvarc_view views[16];
	kvarc_writer *w;
	struct memfile f = { .fail_at = -1 };
	(void)state;
	cache_make(&c, 0, 3);
	kvarc_sink sink = memfile_sink(&f);
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	assert_int_equal(
		kvarc_writer_append_fetch(w, 0, 300, c.ids[0], c.positions[0], cache_fetch, &c),
		KVARC_OK);
	cache_views_at(&c, 300, views);
	assert_int_equal(kvarc_writer_append(w, 0, 10, c.ids[0] + 300, c.positions[0] + 300, views),
	                 KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	size_t committed = f.n;
	/* Nothing waits: another commit writes nothing. */
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	assert_int_equal(f.n, committed);
	assert_int_equal(kvarc_writer_append_fetch(w, 0, 290, c.ids[0] + 310, c.positions[0] + 310,
	                                           cache_fetch, &c),
	                 KVARC_OK);
	kvarc_writer_get_stats(w, &stats);
	assert_int_equal(stats.raw_bytes, 600 * 4 * 64);
	assert_int_equal(stats.elements, 600 * 4 * 32);
	assert_int_equal(stats.file_bytes, f.n);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_seq(&back, &f, NULL, NULL), KVARC_OK);
	assert_true(cache_equal(&c, &back));
	cache_free(&back);
	/* Cut after the commit: a legal prefix. */
	kvarc_state how;
	f.n = committed;
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_seq(&back, &f, NULL, &how), KVARC_OK);
	assert_int_equal(how, KVARC_STATE_OPEN);
	assert_memory_equal(back.data[0], c.data[0], 310 * 64);
	assert_int_equal(back.data[0][310 * 64], 0xa5);
	assert_int_equal(cache_verify(&f, NULL), KVARC_OK);
	cache_free(&back);
	memfile_free(&f);
	cache_free(&c);
}

/* ids for some tokens only, positions made up */
static void test_ids_and_positions(void **state)
{
	struct cache c;
	kvarc_writer_options o = stream_options(0, 1);
	kvarc_writer *w;
	kvarc_reader *r;
	kvarc_segment s;
	kvarc_view views[16];
	struct memfile f = { .fail_at = -1 };
	int32_t positions[60];
	(void)state;
	cache_make(&c, 0, 3);
	kvarc_sink sink = memfile_sink(&f);
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	assert_int_equal(kvarc_writer_append(w, 0, 20, c.ids[0], NULL, c.views), KVARC_OK);
	cache_views_at(&c, 20, views);
	for (int i = 0; i < 20; i++)
		positions[i] = 1000 - i;
	assert_int_equal(kvarc_writer_append(w, 0, 20, NULL, positions, views), KVARC_OK);
	cache_views_at(&c, 40, views);
	assert_int_equal(kvarc_writer_append(w, 0, 20, NULL, NULL, views), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_OK);
	assert_int_equal(s.n, 20);
	assert_memory_equal(s.ids, c.ids[0], 80);
	assert_int_equal(s.positions[19], 19);
	assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_OK);
	assert_int_equal(s.n, 40);
	assert_null(s.ids);
	assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_END);
	assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_END);
	assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, 60, NULL, positions), KVARC_OK);
	assert_int_equal(positions[20], 1000);
	assert_int_equal(positions[39], 981);
	assert_int_equal(positions[40], 982);
	assert_int_equal(kvarc_reader_read_tokens(r, 0, 10, 20, positions, NULL), KVARC_OPTIONS);
	kvarc_reader_close(&r);
	memfile_free(&f);
	cache_free(&c);
}

static void check_range(const struct cache *c, kvarc_reader *r, uint32_t layer0, uint32_t layers,
                        uint64_t t0, uint64_t n)
{
	struct cache back;
	kvarc_view views[16];
	const kvarc_range range = { .layer0 = layer0, .n_layers = layers, .t0 = t0, .n = n };
	cache_make_empty(&back, c);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		views[i] = back.views[i];
	assert_int_equal(kvarc_reader_read(r, &range, views), KVARC_OK);
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		uint32_t layer = c->tensors[i].layer;
		size_t row = (size_t)c->views[i].token_stride;
		bool in = layer >= layer0 && (layers == UINT32_MAX || layer < layer0 + layers);
		size_t bytes = in ? (size_t)n * row : 0;
		if (bytes)
			assert_memory_equal(back.data[i], c->data[i] + t0 * row, bytes);
		for (size_t k = bytes; k < cache_bytes(c, i); k++)
			assert_int_equal(back.data[i][k], 0xa5);
	}
	cache_free(&back);
}

/* A source in memory is not read. */
static void test_memory(void **state)
{
	(void)state;
	for (int number = 0; number < CACHES; number++) {
		struct cache c, back;
		kvarc_writer_options o = stream_options(number & 1, 1);
		kvarc_reader *r;
		cache_make(&c, number, 8);
		cache_make_empty(&back, &c);
		struct memfile f = stream_written(&c, &o);
		kvarc_source source = { .size = f.n, .memory = f.p };
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		for (uint32_t t = 0; t < c.g.n_tracks; t++) {
			const kvarc_range all = KVARC_RANGE_ALL(t);
			assert_int_equal(kvarc_reader_read(r, &all, back.views), KVARC_OK);
		}
		for (size_t i = 0; i < c.g.n_tensors; i++)
			assert_memory_equal(back.data[i], c.data[i], cache_bytes(&c, i));
		assert_int_equal(kvarc_reader_verify(r, NULL, NULL), KVARC_OK);
		kvarc_reader_close(&r);
		source.size = KVARC_UNKNOWN;
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_PROG);
		memfile_free(&f);
		cache_free(&back);
		cache_free(&c);
	}
}

/* Another raw_check in chunk i, under a frame check that holds. */
static kvarc_chunk_info spoil(struct memfile *f, uint64_t i)
{
	enum { RAW_CHECK = 32 }; /* in a chunk header (spec 7) */
	kvarc_chunk_info chunk;
	kvarc_reader *r;
	kvarc_source source = memfile_source(f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_chunk(r, i, &chunk), KVARC_OK);
	kvarc_reader_close(&r);
	uint8_t *frame = f->p + chunk.offset;
	uint8_t *payload = frame + KVI_FRAME_HEAD_BYTES;
	size_t padded = kvi_frame_padded(chunk.payload_bytes);
	payload[RAW_CHECK] ^= 1;
	kvi_store_h128(payload + padded, kvi_frame_check(frame, chunk.offset, payload, padded));
	return chunk;
}

/* Chunks are decoded in place where views are packed: what is not what was
 * packed does not stay there. */
static void test_no_unchecked_bytes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 24; i++) {
		struct cache c, back;
		kvarc_writer_options o = stream_options((int)(i & 1), 1);
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		const kvarc_range all = KVARC_RANGE_ALL(0);
		kvarc_reader *r;
		ro.common.threads = 1 + i / 2 % 3;
		ro.flags = i & 8 ? KVARC_READ_SALVAGE : 0;
		cache_make(&c, 0, 9);
		cache_make_empty(&back, &c);
		struct memfile f = stream_written(&c, &o);
		kvarc_chunk_info bad = spoil(&f, i % 5);
		kvarc_source source = memfile_source(&f);
		assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
		assert_int_equal(kvarc_reader_read(r, &all, back.views),
		                 ro.flags ? KVARC_OK : KVARC_DATA);
		kvarc_reader_close(&r);
		const kvarc_view *v = &c.views[bad.tensor];
		size_t row = (size_t)v->token_stride;
		const uint8_t *lost = back.data[bad.tensor] + bad.t0 * row;
		size_t bytes = (size_t)bad.n * row;
		assert_true(lost[0] == 0 || lost[0] == 0xa5);
		if (ro.flags)
			assert_int_equal(lost[0], 0xa5);
		for (size_t k = 0; k < bytes && bad.raw_bytes == bytes; k++)
			assert_int_equal(lost[k], lost[0]);
		memfile_free(&f);
		cache_free(&back);
		cache_free(&c);
	}
}

/* Chunks of the same bytes are repeats of each other if they have the same number of tokens, too:
 * a chunk of half as many tokens and twice the width is none. */
static void test_repeat_table(void **state)
{
	(void)state;
	struct kvi_alloc alloc;
	kvi_alloc_init(&alloc, NULL, 0);
	struct kvi_repeat_table *t = kvi_repeat_open(&alloc);
	const struct kvi_h128 hash = { 1, 2 }, other = { 1, 3 };
	const struct kvi_repeat r = { .hash = hash, .bytes = 100, .n_tokens = 10, .sequence = 7 };
	assert_non_null(t);
	assert_null(kvi_repeat_find(t, hash, 100, 10));
	kvi_repeat_add(t, &r);
	assert_int_equal(kvi_repeat_find(t, hash, 100, 10)->sequence, 7);
	assert_null(kvi_repeat_find(t, hash, 100, 5));
	assert_null(kvi_repeat_find(t, hash, 200, 10));
	assert_null(kvi_repeat_find(t, other, 100, 10));
	kvi_repeat_close(t, &alloc);
}

static void test_ranges(void **state)
{
	(void)state;
	for (unsigned threads = 1; threads <= 3; threads++) {
		struct cache c;
		kvarc_writer_options o = stream_options(1, 1);
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		kvarc_reader *r;
		ro.common.threads = threads;
		cache_make(&c, 0, 5);
		struct memfile f = stream_written(&c, &o);
		kvarc_source source = memfile_source(&f);
		assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
		assert_int_equal(kvarc_reader_tokens(r, 0), 600);
		assert_int_equal(kvarc_reader_tokens(r, 1), 0);
		check_range(&c, r, 0, UINT32_MAX, 0, 600);
		check_range(&c, r, 1, 1, 255, 2);
		check_range(&c, r, 0, 1, 599, 1);
		check_range(&c, r, 0, 2, 100, 0);
		check_range(&c, r, 1, 0, 0, 600);
		const kvarc_range outside = { .n_layers = 1, .t0 = 590, .n = 11 };
		assert_int_equal(kvarc_reader_read(r, &outside, c.views), KVARC_GEOMETRY);
		check_range(&c, r, 0, 1, 599, 1); /* nothing sticks */
		assert_int_equal(kvarc_reader_verify(r, NULL, NULL), KVARC_OK);
		kvarc_reader_close(&r);
		memfile_free(&f);
		cache_free(&c);
	}
}

/* Layers or tokens that do not exist are an error, never an answer without data. */
static void test_ranges_outside(void **state)
{
	static const kvarc_range outside[] = {
		{ .layer0 = UINT32_MAX, .n_layers = UINT32_MAX, .n = 600 },
		{ .layer0 = UINT32_MAX, .n_layers = 1, .n = 600 },
		{ .layer0 = 2, .n_layers = 1, .n = 600 },
		{ .layer0 = 2, .n_layers = UINT32_MAX, .n = 600 },
		{ .n_layers = 3, .n = 600 },
		{ .layer0 = 1, .n_layers = UINT32_MAX - 1, .n = 600 },
		{ .n_layers = 2, .t0 = 600, .n = 1 },
		{ .track = 1, .n_layers = 2, .n = 600 }
	};
	struct cache c;
	kvarc_writer_options o = stream_options(1, 1);
	(void)state;
	cache_make(&c, 0, 5);
	struct memfile f = stream_written(&c, &o);
	kvarc_source source = memfile_source(&f);
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_error e = KVARC_ZERO;
	kvarc_reader *r;
	ro.common.error = &e;
	assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
	for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
		assert_int_equal(kvarc_reader_read(r, &outside[i], c.views), KVARC_GEOMETRY);
		assert_true(kvarc_usable(e.code));
		if (i < 6) {
			assert_int_equal(e.reason, KVARC_REASON_PAST_LAYERS);
			assert_int_equal(e.layer, 2);
		} else if (outside[i].track) {
			assert_int_equal(e.reason, KVARC_REASON_NO_TRACK);
			assert_int_equal(e.track, 1);
		} else {
			assert_int_equal(e.reason, KVARC_REASON_PAST_TOKENS);
			assert_int_equal(e.tokens, 600);
		}
	}
	kvarc_reader_close(&r);
	memfile_free(&f);
	cache_free(&c);
}

/* Strided views: [heads][tokens][channels], and channels first */
static void test_views(void **state)
{
	enum { T = 40, H = 2, C = 16 };
	static uint16_t by_head[H][T][C], by_channel[H * C][T];
	static uint16_t back_head[H][T][C], back_channel[H * C][T];
	kvarc_tensor tensors[2] = { { .dtype = KVARC_F16, .heads = H, .channels = C },
		                    { .dtype = KVARC_F16, .heads = H, .channels = C, .kind = 1 } };
	kvarc_track track = { 0 };
	kvarc_geometry g = { .n_tracks = 1, .n_tensors = 2, .tracks = &track, .tensors = tensors };
	kvarc_view in[2] = { { .data = by_head,
		               .token_stride = sizeof by_head[0][0],
		               .block_stride = sizeof by_head[0],
		               .block_elems = C,
		               .elem_stride = 2 },
		             { .data = by_channel,
		               .token_stride = 2,
		               .block_elems = H * C,
		               .elem_stride = 2 * T } },
		   out[2] = { in[0], in[1] };
	size_t bound = kvarc_encode_bound(&g, T), n;
	uint8_t *file = malloc(bound);
	(void)state;
	out[0].data = back_head;
	out[1].data = back_channel;
	for (int h = 0; h < H; h++)
		for (int t = 0; t < T; t++)
			for (int c = 0; c < C; c++) {
				by_head[h][t][c] = (uint16_t)(h * 1000 + t * 20 + c);
				by_channel[h * C + c][t] = (uint16_t)(77 + h * 1000 + t * 20 + c);
			}
	assert_int_equal(kvarc_encode_buffer(file, bound, &n, &g, T, NULL, in, NULL), KVARC_OK);
	assert_true(n <= bound);
	assert_int_equal(kvarc_decode_buffer(file, n, out, 2, NULL), KVARC_OK);
	assert_memory_equal(by_head, back_head, sizeof by_head);
	assert_memory_equal(by_channel, back_channel, sizeof by_channel);
	assert_int_equal(kvarc_decode_buffer(file, n, out, 1, NULL), KVARC_GEOMETRY);
	assert_int_equal(kvarc_decode_buffer(file, n - 1, out, 2, NULL), KVARC_DATA);
	assert_int_equal(kvarc_encode_buffer(file, n / 2, &n, &g, T, NULL, in, NULL), KVARC_PROG);
	free(file);
}

/* Elements that are packed in the caller's memory are encoded from there if they are aligned; else
 * from a copy, to the same archive. The memory stays as it is. */
static void test_packed_views(void **state)
{
	(void)state;
	for (int number = 0; number < CACHES; number++)
		for (int level = 0; level < 2; level++) {
			struct cache c, moved;
			kvarc_writer_options o = stream_options(level, 2);
			cache_make(&c, number, 12);
			moved = c;
			for (size_t i = 0; i < c.g.n_tensors; i++) {
				const size_t bytes = cache_bytes(&c, i);
				moved.data[i] = malloc(bytes + 1);
				memcpy(moved.data[i] + 1, c.data[i], bytes);
				moved.views[i].data = moved.data[i] + 1;
			}
			struct memfile a = stream_written(&c, &o), b = stream_written(&moved, &o);
			assert_int_equal(a.n, b.n);
			assert_memory_equal(a.p, b.p, a.n);
			for (size_t i = 0; i < c.g.n_tensors; i++) {
				assert_memory_equal(moved.data[i] + 1, c.data[i],
				                    cache_bytes(&c, i));
				free(moved.data[i]);
			}
			memfile_free(&a);
			memfile_free(&b);
			cache_free(&c);
		}
}

static void test_bound(void **state)
{
	(void)state;
	for (int number = 0; number < CACHES; number++)
		for (uint32_t tokens = 0; tokens <= 256; tokens += 32) {
			struct cache c;
			kvarc_writer_options o = stream_options(1, 1);
			size_t n;
			cache_make(&c, number, 8);
			size_t bound = kvarc_encode_bound(&c.g, c.n[0]);
			uint8_t *file = malloc(bound);
			o.segment_tokens = tokens;
			o.chunk_bytes = 1;
			assert_int_not_equal(bound, 0);
			assert_non_null(file);
			kvarc_ret want = c.g.n_tracks == 1 ? KVARC_OK : KVARC_GEOMETRY;
			assert_int_equal(kvarc_encode_buffer(file, bound, &n, &c.g, c.n[0],
			                                     c.ids[0], c.views, &o),
			                 want);
			free(file);
			cache_free(&c);
		}
}

static void test_pipe(void **state)
{
	(void)state;
	for (int number = 0; number < CACHES; number++) {
		struct cache c, back;
		kvarc_writer_options o = stream_options(1, 2);
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		kvarc_state how = KVARC_STATE_CUT;
		kvarc_reader *r;
		kvarc_info info;
		ro.common.threads = 2;
		o.flags |= KVARC_WRITE_STREAMABLE;
		cache_make(&c, number, 4);
		struct memfile f = stream_written(&c, &o);
		f.pipe = true;
		f.short_max = 1000;
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &f, &ro, &how), KVARC_OK);
		assert_int_equal(how, KVARC_STATE_CLOSED);
		assert_true(cache_equal(&c, &back));
		cache_free(&back);
		assert_int_equal(cache_verify(&f, &ro), KVARC_OK);
		kvarc_source source = memfile_source(&f);
		assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
		assert_string_equal(kvarc_reader_identity(r, "model"), "test model");
		assert_null(kvarc_reader_identity(r, "mode"));
		assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
		assert_int_equal(info.state, KVARC_STATE_UNKNOWN);
		const kvarc_range all = KVARC_RANGE_ALL(0);
		assert_int_equal(kvarc_reader_read(r, &all, c.views), KVARC_OPTIONS);
		kvarc_reader_close(&r);
		ro.flags = KVARC_READ_SALVAGE;
		assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OPTIONS);
		memfile_free(&f);
		cache_free(&c);
	}
}

static void test_repeats(void **state)
{
	struct cache c, back;
	kvarc_writer_options o = stream_options(1, 2);
	kvarc_chunk_info chunk;
	kvarc_reader *r;
	unsigned repeats = 0;
	(void)state;
	cache_make(&c, 0, 4);
	/* Both value tensors are the same, and so are two segments of one. */
	memcpy(c.data[1], c.data[0], cache_bytes(&c, 0));
	memcpy(c.data[3] + 256 * 64, c.data[3], 256 * 64);
	struct memfile f = stream_written(&c, &o);
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_seq(&back, &f, NULL, NULL), KVARC_OK);
	assert_true(cache_equal(&c, &back));
	cache_free(&back);
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_range(&back, &f, NULL), KVARC_OK);
	assert_true(cache_equal(&c, &back));
	assert_int_equal(cache_verify(&f, NULL), KVARC_OK);
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &chunk) == KVARC_OK; i++) {
		repeats += chunk.codec == 3;
		assert_int_equal(chunk.raw_bytes, chunk.n * 64);
	}
	assert_true(repeats >= 4);
	kvarc_reader_close(&r);
	f.pipe = true;
	assert_int_equal(cache_read_seq(&back, &f, NULL, NULL), KVARC_OPTIONS);
	cache_free(&back);
	memfile_free(&f);
	o.flags |= KVARC_WRITE_STREAMABLE;
	f = stream_written(&c, &o);
	f.pipe = true;
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_seq(&back, &f, NULL, NULL), KVARC_OK);
	assert_true(cache_equal(&c, &back));
	cache_free(&back);
	memfile_free(&f);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_append_in_pieces),
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_append_fetch_and_commit),
		cmocka_unit_test(test_ids_and_positions),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_no_unchecked_bytes),
		cmocka_unit_test(test_repeat_table),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_ranges_outside),
		cmocka_unit_test(test_views),
		cmocka_unit_test(test_packed_views),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_pipe),
		cmocka_unit_test(test_repeats),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
