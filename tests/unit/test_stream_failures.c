/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stream_failures.c - writer and reader: failing I/O and memory, limits, misuse */
#include "stream_util.h"

#include "reader/reader_internal.h"
#include "writer/writer_internal.h"

static kvarc_ret write_and_read(const struct cache *c, const kvarc_writer_options *wo,
                                const kvarc_reader_options *ro, long write_fail, long read_fail)
{
	struct memfile f = { .fail_at = write_fail };
	struct cache back;
	kvarc_ret ret = cache_write(c, &f, wo);
	if (ret == KVARC_OK) {
		f.fail_at = read_fail;
		f.short_max = 2000; /* or a file of this size would be one read */
		f.calls = 0;
		cache_make_empty(&back, c);
		ret = cache_read_seq(&back, &f, ro, NULL);
		if (ret == KVARC_OK)
			ret = cache_read_range(&back, &f, ro);
		if (ret == KVARC_OK)
			ret = cache_verify(&f, ro);
		cache_free(&back);
	}
	memfile_free(&f);
	return ret;
}

static void test_failing_io(void **state)
{
	struct cache c;
	(void)state;
	cache_make(&c, 2, 6);
	for (unsigned run = 0; run < 4; run++) {
		kvarc_writer_options wo = stream_options(1, 1 + run % 2);
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		kvarc_error e = { 0 };
		wo.common.error = ro.common.error = &e;
		wo.common.overlap = ro.common.overlap = run / 2;
		ro.common.threads = wo.common.threads;
		long n = 0;
		kvarc_ret ret;
		do {
			ret = write_and_read(&c, &wo, &ro, n++, -1);
			assert_true(ret == KVARC_IO || ret == KVARC_OK);
			assert_true(ret == KVARC_OK || e.text[0]);
		} while (ret != KVARC_OK);
		assert_true(n > 20);
		n = 0;
		do {
			ret = write_and_read(&c, &wo, &ro, -1, n++);
			assert_true(ret == KVARC_IO || ret == KVARC_OK);
		} while (ret != KVARC_OK);
		assert_true(n > 40);
	}
	cache_free(&c);
}

static void test_failing_allocator(void **state)
{
	struct cache c;
	(void)state;
	cache_make(&c, 2, 7);
	for (int round = 0; round < 6; round++) {
		kvarc_writer_options wo = stream_options(1, 1 + (unsigned)round % 2);
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		struct counting count = { .fail_at = 0, .sticky = round >= 2 };
		wo.common.overlap = ro.common.overlap = round >= 4;
		kvarc_allocator a = counting_allocator(&count);
		kvarc_ret ret;
		wo.flags |= KVARC_WRITE_VERIFY;
		ro.common.threads = wo.common.threads;
		wo.common.allocator = ro.common.allocator = &a;
		bool failed = true;
		while (failed) {
			count.calls = 0;
			ret = write_and_read(&c, &wo, &ro, -1, -1);
			failed = count.calls > count.fail_at;
			assert_int_equal(count.held, 0);
			/* An encoder may do without what was only an attempt. */
			assert_true(ret == KVARC_OK || (failed && ret == KVARC_MEM));
			count.fail_at++;
		}
		assert_true(count.fail_at > 100);
	}
	cache_free(&c);
}

static void test_memory_limit(void **state)
{
	struct cache c;
	kvarc_writer_options wo = stream_options(1, 1);
	kvarc_ret ret = KVARC_MEMLIMIT;
	(void)state;
	cache_make(&c, 3, 7);
	struct memfile f = stream_written(&c, &wo);
	unsigned refused = 0;
	for (uint64_t limit = 1000; ret != KVARC_OK; limit += limit / 3) {
		struct cache back;
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		ro.common.memlimit = limit;
		cache_make_empty(&back, &c);
		ret = cache_read_seq(&back, &f, &ro, NULL);
		assert_true(ret == KVARC_OK || ret == KVARC_MEMLIMIT);
		refused += ret == KVARC_MEMLIMIT;
		cache_free(&back);
		wo.common.memlimit = limit;
		struct memfile g = { .fail_at = -1 };
		kvarc_ret wrote = cache_write(&c, &g, &wo);
		assert_true(wrote == KVARC_OK || wrote == KVARC_MEMLIMIT);
		memfile_free(&g);
	}
	assert_true(refused > 2);
	memfile_free(&f);
	cache_free(&c);
}

static void test_short_reads(void **state)
{
	struct cache c, back;
	kvarc_writer_options o = stream_options(1, 1);
	(void)state;
	cache_make(&c, 2, 9);
	struct memfile f = stream_written(&c, &o);
	for (f.short_max = 1; f.short_max < 200; f.short_max += 33) {
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &f, NULL, NULL), KVARC_OK);
		assert_int_equal(cache_read_range(&back, &f, NULL), KVARC_OK);
		assert_true(cache_equal(&c, &back));
		cache_free(&back);
	}
	memfile_free(&f);
	cache_free(&c);
}

static int stop_at(void *opaque, uint64_t done, uint64_t total)
{
	uint64_t *limit = opaque;
	assert_true(done <= total);
	return done >= *limit;
}

static void test_progress(void **state)
{
	struct cache c, back;
	kvarc_writer_options o = stream_options(1, 2);
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	uint64_t limit = UINT64_MAX;
	(void)state;
	cache_make(&c, 0, 9);
	o.common.progress = ro.common.progress = stop_at;
	o.common.progress_opaque = ro.common.progress_opaque = &limit;
	struct memfile f = stream_written(&c, &o);
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
	limit = 50000;
	assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_IO);
	assert_int_equal(cache_read_range(&back, &f, &ro), KVARC_IO);
	memfile_free(&f);
	assert_int_equal(cache_write(&c, &f, &o), KVARC_IO);
	memfile_free(&f);
	cache_free(&back);
	cache_free(&c);
}

/* Rules of the headers about order and arguments. */
static void test_misuse(void **state)
{
	struct cache c;
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer_options o = stream_options(1, 1);
	kvarc_error e = { 0 };
	kvarc_writer *w;
	kvarc_reader *r;
	kvarc_segment s;
	(void)state;
	cache_make(&c, 0, 1);
	o.common.error = &e;
	o.reserved[0] = 1;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_PROG);
	assert_null(w);
	o.reserved[0] = 0;
	o.level = KVARC_LEVEL_MAX + 1;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OPTIONS);
	o.level = KVARC_LEVEL(0);
	o.segment_tokens = 257;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_PROG);
	o.segment_tokens = 0;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_PROG);
	assert_non_null(strstr(e.text, "kvarc_writer_commit"));
	assert_int_equal(kvarc_writer_close(&w), KVARC_PROG);
	assert_null(w);
	assert_int_equal(f.n, 0);
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	c.tensors[1].heads = 0;
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_GEOMETRY);
	assert_non_null(strstr(e.text, "heads"));
	c.tensors[1].heads = 2;
	c.tensors[1].reserved[0] = 1;
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_PROG);
	assert_non_null(strstr(e.text, "kvarc_tensor"));
	c.tensors[1].reserved[0] = 0;
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	assert_int_equal(kvarc_writer_append(w, 0, 5, NULL, NULL, c.views), KVARC_OK);
	assert_int_equal(kvarc_writer_append_fetch(w, 0, 5, NULL, NULL, cache_fetch, &c),
	                 KVARC_PROG);
	assert_int_equal(kvarc_writer_append(w, 9, 5, NULL, NULL, c.views), KVARC_GEOMETRY);
	assert_int_equal(e.reason, KVARC_REASON_NO_TRACK);
	assert_int_equal(e.track, c.g.n_tracks);
	c.views[1].block_elems = 0;
	assert_int_equal(kvarc_writer_append(w, 0, 5, NULL, NULL, c.views), KVARC_PROG);
	assert_non_null(strstr(e.text, "views[1].block_elems"));
	c.views[1].block_elems = c.views[0].block_elems;
	/* None of these was done: the writer can be used. */
	assert_int_equal(kvarc_writer_append(w, 0, 5, NULL, NULL, c.views), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	memfile_free(&f);
	f = stream_written(&c, &o);
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_segment_deliver(r, cache_deliver, &c), KVARC_PROG);
	assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_OK);
	kvarc_reader_close(&r);
	kvarc_reader_close(&r);
	f.n = 0;
	source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_FORMAT);
	memfile_free(&f);
	cache_free(&c);
}

/* A cache of one tensor [16][2][8] of f16, in a view. */
enum { V_TOKENS = 16, V_HEADS = 2, V_CHANNELS = 8, V_WIDTH = V_HEADS * V_CHANNELS };
static const kvarc_tensor v_tensor = { .dtype = KVARC_F16,
	                               .heads = V_HEADS,
	                               .channels = V_CHANNELS };
static const kvarc_track v_track = { 0 };
static const kvarc_geometry v_geometry = {
	.n_tracks = 1, .tracks = &v_track, .n_tensors = 1, .tensors = &v_tensor
};
static uint16_t v_memory[4096];

/* What writing from a view, reading into it, and its digest return, which must be the same. */
static kvarc_ret take_view(uint64_t token, uint64_t block, uint32_t elems, uint32_t elem,
                           uint64_t n, const char *text)
{
	static const uint16_t packed[V_TOKENS * V_WIDTH];
	const kvarc_view good = { .const_data = packed,
		                  .token_stride = 2 * V_WIDTH,
		                  .block_elems = V_WIDTH,
		                  .elem_stride = 2 };
	const kvarc_view v = { .data = v_memory,
		               .token_stride = token,
		               .block_stride = block,
		               .block_elems = elems,
		               .elem_stride = elem };
	const kvarc_range first = { .n_layers = 1, .n = n };
	const int32_t zeros[V_TOKENS] = { 0 };
	uint8_t digest[16];
	kvarc_writer_options o = stream_options(1, 1);
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_error e = { 0 };
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	kvarc_reader *r;
	o.common.error = ro.common.error = &e;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &v_geometry), KVARC_OK);
	kvarc_ret ret = kvarc_writer_append(w, 0, n, NULL, NULL, &v);
	assert_true(ret == KVARC_OK || strstr(e.text, text));
	if (ret)
		assert_int_equal(kvarc_writer_append(w, 0, n, NULL, NULL, &good), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
	e.text[0] = 0;
	assert_int_equal(kvarc_reader_read(r, &first, &v), ret);
	assert_true(ret == KVARC_OK || strstr(e.text, text));
	kvarc_reader_close(&r);
	assert_int_equal(kvarc_content_digest(&v_geometry, 0, (uint32_t)n, zeros, zeros, &v,
	                                      digest),
	                 ret);
	memfile_free(&f);
	return ret;
}

#define REFUSED(text, ...) assert_int_equal(take_view(__VA_ARGS__, V_TOKENS, text), KVARC_PROG)
#define TAKEN(...) assert_int_equal(take_view(__VA_ARGS__, ""), KVARC_OK)

/* Elements of a view have bytes of their own. */
static void test_impossible_views(void **state)
{
	(void)state;
	/* token, head and channel outermost; with gaps; of one row any stride of tokens */
	TAKEN(32, 0, V_WIDTH, 2, V_TOKENS);
	TAKEN(32, 16, V_CHANNELS, 2, V_TOKENS);
	TAKEN(16, 16 * V_TOKENS, V_CHANNELS, 2, V_TOKENS);
	TAKEN(2, 0, V_WIDTH, 2 * V_TOKENS, V_TOKENS);
	TAKEN(2, 2 * V_TOKENS * V_CHANNELS, V_CHANNELS, 2 * V_TOKENS, V_TOKENS);
	TAKEN(70, 34, V_CHANNELS, 4, V_TOKENS);
	TAKEN(0, 0, V_WIDTH, 2, 1);
	TAKEN(32, 2, 1, 0, V_TOKENS);
	REFUSED("views[0].elem_stride is 1", 32, 0, V_WIDTH, 1);
	REFUSED("views[0].elem_stride is 0", 32, 0, V_WIDTH, 0);
	REFUSED("overlap", 31, 0, V_WIDTH, 2);
	REFUSED("overlap", 0, 0, V_WIDTH, 2);
	REFUSED("overlap", 32, 0, V_CHANNELS, 2);
	REFUSED("overlap", 32, 15, V_CHANNELS, 2);
	REFUSED("overlap", 16, 16 * V_TOKENS - 1, V_CHANNELS, 2);
	REFUSED("overlap", 2, 0, V_WIDTH, 2 * V_TOKENS - 1);
	REFUSED("block_elems is 5", 32, 10, 5, 2);
	REFUSED("block_elems is 32", 32, 0, 2 * V_WIDTH, 2);
	REFUSED("block_elems is 0", 32, 0, 0, 2);
	REFUSED("larger than memory", UINT64_MAX / 8, 0, V_WIDTH, 2);
	REFUSED("larger than memory", UINT64_MAX - 31, 0, V_WIDTH, 2);
}

/* Of a range that was zeroed all is read; with another member set 0 is nothing. */
static void test_zeroed_range(void **state)
{
	const kvarc_range none[] = { { .n_layers = UINT32_MAX }, { .n = 5 } };
	kvarc_range zeros = KVARC_ZERO;
	struct cache c, back;
	kvarc_reader *r;
	kvarc_writer_options o = stream_options(1, 1);
	(void)state;
	cache_make(&c, 2, 6);
	struct memfile f = stream_written(&c, &o);
	kvarc_source source = memfile_source(&f);
	cache_make_empty(&back, &c);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(kvarc_reader_read(r, &none[i], back.views), KVARC_OK);
		for (size_t k = 0; k < cache_bytes(&back, 0); k++)
			assert_int_equal(back.data[0][k], 0xa5);
	}
	for (zeros.track = 0; zeros.track < c.g.n_tracks; zeros.track++)
		assert_int_equal(kvarc_reader_read(r, &zeros, back.views), KVARC_OK);
	for (size_t i = 0; i < c.g.n_tensors; i++)
		assert_memory_equal(back.data[i], c.data[i], cache_bytes(&c, i));
	kvarc_reader_close(&r);
	cache_free(&back);
	cache_free(&c);
	memfile_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failing_io),   cmocka_unit_test(test_failing_allocator),
		cmocka_unit_test(test_memory_limit), cmocka_unit_test(test_short_reads),
		cmocka_unit_test(test_progress),     cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_impossible_views), cmocka_unit_test(test_zeroed_range),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
