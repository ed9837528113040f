/* SPDX-License-Identifier: BSD-3-Clause */
/* test_lists.c - LIST frames: chunks that are read when they are needed; damaged ones */
#include <stdatomic.h>
#include <stdio.h>

#include "stream_util.h"

#include "format/commit.h"
#include "format/frame_index.h"
#include "format/frame_input.h"
#include "format/frame_content.h"
#include "format/superblock.h"
#include "reader/reader_internal.h"

enum { TENSORS = 120, WIDTH = 4, STEP = 2, LONG = 150, ROWS = STEP * (LONG + 10) };

/* A cache of many small tensors: token t of tensor i begins at rows[t + i]. */
static uint16_t rows[ROWS + TENSORS][WIDTH];
/* Those of a second track follow those of the first. */
static kvarc_tensor tensors[2 * TENSORS];
static const kvarc_track tracks[2] = { { .label = "a" }, { .label = "b" } };

static void make_cache(void)
{
	uint64_t seed = 3;
	for (size_t i = 0; i < ROWS + TENSORS; i++)
		for (int k = 0; k < WIDTH; k++)
			rows[i][k] = (uint16_t)rand_next(&seed);
	for (unsigned i = 0; i < 2 * TENSORS; i++)
		tensors[i] = (kvarc_tensor){ .layer = i % TENSORS / 2,
			                     .track = i / TENSORS,
			                     .kind = i % 2 ? KVARC_VALUE : KVARC_KEY,
			                     .dtype = KVARC_BF16,
			                     .heads = 1,
			                     .channels = WIDTH };
}

/* Segments of STEP tokens from one on, a checkpoint behind each where `named`. */
static void add(kvarc_writer *w, unsigned from, unsigned segments, bool named)
{
	kvarc_view views[TENSORS];
	for (unsigned s = from; s < from + segments; s++) {
		for (unsigned i = 0; i < TENSORS; i++)
			views[i] = (kvarc_view){ .data = rows[STEP * s + i],
				                 .token_stride = 2 * WIDTH,
				                 .block_elems = WIDTH,
				                 .elem_stride = 2 };
		assert_int_equal(kvarc_writer_append(w, 0, STEP, NULL, NULL, views), KVARC_OK);
		assert_int_equal(named ? kvarc_writer_checkpoint(w, "", 0, NULL)
		                       : kvarc_writer_commit(w),
		                 KVARC_OK);
	}
}

static void write_cache(struct memfile *f, unsigned segments, bool named,
                        const kvarc_writer_options *options)
{
	const kvarc_geometry g = {
		.n_tracks = 1, .tracks = tracks, .n_tensors = TENSORS, .tensors = tensors
	};
	kvarc_sink sink = memfile_sink(f);
	kvarc_writer *w;
	assert_int_equal(kvarc_writer_open(&w, &sink, options), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &g), KVARC_OK);
	add(w, 0, segments, named);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
}

static int truncate_to(void *opaque, uint64_t size)
{
	struct memfile *f = opaque;
	f->n = (size_t)size;
	return 0;
}

static void append_to(struct memfile *f, unsigned from, unsigned segments,
                      const kvarc_writer_options *options)
{
	const kvarc_source source = memfile_source(f);
	kvarc_sink sink = memfile_sink(f);
	kvarc_writer *w;
	sink.truncate = truncate_to;
	assert_int_equal(kvarc_writer_open_append(&w, &source, &sink, options), KVARC_OK);
	add(w, from, segments, true);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
}

static int compare(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                   uint32_t n, const void *src)
{
	(void)head, (void)heads;
	atomic_fetch_add((_Atomic uint64_t *)opaque, n); /* several threads deliver */
	return memcmp(src, rows[t0 + tensor % TENSORS], n * sizeof rows[0]) != 0;
}

static int count(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                 uint32_t n, const void *src)
{
	(void)tensor, (void)head, (void)heads, (void)t0, (void)src;
	atomic_fetch_add((_Atomic uint64_t *)opaque, n);
	return 0;
}

/* Reads layers and tokens, and compares them. */
static void read_part(kvarc_reader *r, uint32_t layer, uint32_t n_layers, uint64_t t0, uint64_t n)
{
	const kvarc_range range = { .layer0 = layer, .n_layers = n_layers, .t0 = t0, .n = n };
	_Atomic uint64_t got = 0;
	assert_int_equal(kvarc_reader_read_deliver(r, &range, compare, &got), KVARC_OK);
	assert_int_equal(got, 2 * n_layers * n);
}

static kvarc_reader *open_at(struct memfile *f, uint64_t checkpoint, unsigned threads)
{
	const kvarc_reader_options o = { .checkpoint = checkpoint, .common.threads = threads };
	const kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	return r;
}

/* Parts, then all, then chunk by chunk. */
static void read_all(struct memfile *f, uint64_t checkpoint, unsigned segments, unsigned threads)
{
	kvarc_reader *r = open_at(f, checkpoint, threads);
	kvarc_chunk_info c, before = { .offset = 0 };
	kvarc_info info;
	uint64_t n = 0;
	assert_true(kvi_reader_is_whole(r)); /* nothing was found by a scan */
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	assert_int_equal(info.chunks, segments * TENSORS);
	read_part(r, 3, 1, STEP * segments / 2, 1);
	read_part(r, 0, TENSORS / 2, 0, STEP * segments);
	for (; kvarc_reader_chunk(r, n, &c) == KVARC_OK; n++) {
		assert_true(c.offset > before.offset);
		assert_int_equal(c.tensor, n % TENSORS);
		assert_int_equal(c.t0, n / TENSORS * STEP);
		before = c;
	}
	assert_int_equal(n, segments * TENSORS);
	read_part(r, 5, 2, 1, STEP * segments - 1);
	kvarc_reader_close(&r);
}

static void verify(struct memfile *f, kvarc_ret want)
{
	assert_int_equal(cache_verify(f, NULL), want);
}

/* The offset of the i-th frame of a type; 0: there are fewer. */
static size_t find_frame(const struct memfile *f, uint16_t type, unsigned i)
{
	const uint64_t sync = kvi_frame_sync(f->p + 24);
	struct kvi_frame_head h;
	for (size_t at = KVI_SUPERBLOCK_BYTES; at < f->n;
	     at += (size_t)kvi_frame_bytes(h.payload_bytes)) {
		assert_true(kvi_frame_head_parse(&h, f->p + at, sync, at));
		if (h.type == type && i-- == 0)
			return at;
	}
	return 0;
}

/* INDEX frames that a reader goes through. */
static unsigned count_indexes(struct memfile *f)
{
	struct kvi_alloc alloc;
	struct kvi_packer packer;
	struct kvi_buffer buf = { 0 };
	struct kvi_footer foot;
	unsigned n = 0;
	kvi_alloc_init(&alloc, NULL, 0);
	kvi_packer_init(&packer, &alloc);
	assert_true(kvi_footer_parse(&foot, f->p + f->n - KVI_FOOTER_FRAME_BYTES + 32,
	                             KVI_FOOTER_BYTES));
	const struct kvi_input in = { .source = memfile_source(f),
		                      .alloc = &alloc,
		                      .sync = kvi_frame_sync(f->p + 24) };
	for (uint64_t at = foot.index; at; n++) {
		struct kvi_frame frame;
		struct kvi_index_reader ir;
		const uint8_t *content;
		uint8_t *owned = NULL;
		assert_int_equal(kvi_frame_read(&in, at, &buf, &frame, NULL), KVARC_OK);
		assert_int_equal(kvi_frame_content(&packer, &frame, &content, &owned, NULL),
		                 KVARC_OK);
		assert_true(kvi_index_begin(&ir, content, frame.head.decoded_bytes));
		at = ir.head.follows;
		kvi_free(&alloc, owned);
	}
	kvi_free(&alloc, buf.p);
	kvi_packer_free(&packer);
	return n;
}

static void test_at_close(void **state)
{
	const kvarc_writer_options o = stream_options(0, 1);
	(void)state;
	for (unsigned segments = 1; segments < 5; segments++) {
		struct memfile f = { .fail_at = -1 };
		write_cache(&f, segments, false, &o);
		/* An INDEX has 240 chunks, and no more. */
		assert_int_equal(find_frame(&f, KVI_FRAME_LIST, 0) > 0, segments > 2);
		assert_int_equal(find_frame(&f, KVI_FRAME_LIST, 1), 0);
		verify(&f, KVARC_OK);
		read_all(&f, 0, segments, 1);
		read_all(&f, 0, segments, 4);
		memfile_free(&f);
	}
}

/* Each of several LISTs is damaged in turn: what is read is the same, and a verifier says so. */
static void test_damaged(void **state)
{
	const kvarc_writer_options o = stream_options(0, 1);
	struct memfile f = { .fail_at = -1 };
	(void)state;
	write_cache(&f, LONG, false, &o);
	assert_true(find_frame(&f, KVI_FRAME_LIST, 1));
	verify(&f, KVARC_OK);
	read_all(&f, 0, LONG, 1);
	for (unsigned i = 0; i < 2; i++) {
		uint8_t *p = f.p + find_frame(&f, KVI_FRAME_LIST, i) + KVI_FRAME_HEAD_BYTES + 9;
		*p ^= 1;
		verify(&f, KVARC_DATA);
		read_all(&f, 0, LONG, 4);
		*p ^= 1;
	}
	memfile_free(&f);
}

/* A LIST whose checks hold and that lacks chunks: the headers of the frames say the rest. */
static void read_incomplete(const char *name)
{
	const char *srcdir = getenv("srcdir");
	const kvarc_range all = KVARC_RANGE_ALL(0);
	char path[4096];
	kvarc_source source;
	kvarc_reader *r;
	_Atomic uint64_t tokens = 0;
	snprintf(path, sizeof path, "%s/spec/vectors/%s.kva", srcdir ? srcdir : ".", name);
	assert_int_equal(kvarc_source_open_path(&source, path, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_true(kvi_reader_is_whole(r));
	assert_int_equal(kvarc_reader_read_deliver(r, &all, count, &tokens), KVARC_OK);
	assert_int_equal(tokens, 2 * kvarc_reader_tokens(r, 0));
	kvarc_reader_close(&r);
	kvarc_source_close(&source);
}

static void test_incomplete(void **state)
{
	(void)state;
	read_incomplete("bad-list-segment");
	read_incomplete("bad-list-missing");
}

/* As of checkpoints in front of the LIST that has their chunks. */
static void test_checkpoints(void **state)
{
	const kvarc_writer_options o = stream_options(0, 1);
	struct memfile f = { .fail_at = -1 };
	(void)state;
	write_cache(&f, 6, true, &o);
	assert_true(find_frame(&f, KVI_FRAME_LIST, 0));
	for (unsigned segments = 1; segments <= 6; segments++)
		read_all(&f, segments, segments, segments % 2 ? 1 : 4);
	memfile_free(&f);
}

/* Many appends leave few INDEX frames in force. */
static void test_appends(void **state)
{
	const kvarc_writer_options o = stream_options(0, 1);
	struct memfile f = { .fail_at = -1 };
	unsigned n = 4;
	(void)state;
	write_cache(&f, n, true, &o);
	/* Some leave their chunks to the INDEX, some write a LIST. */
	for (; n < 150; n += 1 + n % 4)
		append_to(&f, n, 1 + n % 4, &o);
	verify(&f, KVARC_OK);
	assert_true(count_indexes(&f) <= 3);
	read_all(&f, 0, n, 1);
	read_all(&f, 7, 7, 4);
	memfile_free(&f);
}

/* An archive that was cut behind any frame is continued. */
static void test_cut(void **state)
{
	const kvarc_writer_options o = stream_options(0, 1);
	struct memfile whole = { .fail_at = -1 };
	(void)state;
	write_cache(&whole, 5, true, &o);
	append_to(&whole, 5, 1, &o);
	for (unsigned type = KVI_FRAME_COMMIT; type <= KVI_FRAME_LIST; type++)
		for (unsigned i = 0; i < 3; i++) {
			const size_t at = find_frame(&whole, (uint16_t)type, i);
			struct memfile f = { .fail_at = -1, .n = at, .cap = at };
			kvarc_info info;
			if (!at)
				continue;
			f.p = malloc(at);
			assert_non_null(f.p);
			memcpy(f.p, whole.p, at);
			const kvarc_source source = memfile_source(&f);
			kvarc_reader *r;
			assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
			assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
			kvarc_reader_close(&r);
			append_to(&f, (unsigned)info.segments, 4, &o);
			verify(&f, KVARC_OK);
			read_all(&f, 0, (unsigned)info.segments + 4, 1);
			memfile_free(&f);
		}
	memfile_free(&whole);
}

/* Tokens that a fork took have their chunks in the LIST of the other track. */
static void test_forked(void **state)
{
	const kvarc_geometry g = {
		.n_tracks = 2, .tracks = tracks, .n_tensors = 2 * TENSORS, .tensors = tensors
	};
	const kvarc_writer_options o = stream_options(0, 1);
	enum { SEGMENTS = 5, TOOK = 2 * STEP + 1 };
	(void)state;
	for (unsigned more = 0; more < 2; more++) {
		const kvarc_range range = {
			.track = 1, .n_layers = 2, .layer0 = 9, .t0 = 1, .n = 4
		};
		struct memfile f = { .fail_at = -1 };
		kvarc_sink sink = memfile_sink(&f);
		kvarc_writer *w;
		kvarc_chunk_info c;
		uint64_t got = 0, n = 0;
		assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
		assert_int_equal(kvarc_writer_set_geometry(w, &g), KVARC_OK);
		add(w, 0, SEGMENTS, false);
		assert_int_equal(kvarc_writer_fork(w, 1, 0, TOOK), KVARC_OK);
		if (more)
			add(w, SEGMENTS, 1, false);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		assert_true(find_frame(&f, KVI_FRAME_LIST, 0));
		verify(&f, KVARC_OK);
		kvarc_reader *r = open_at(&f, 0, 4);
		assert_true(kvi_reader_is_whole(r));
		assert_int_equal(kvarc_reader_tokens(r, 1), TOOK);
		assert_int_equal(kvarc_reader_read_deliver(r, &range, compare, &got), KVARC_OK);
		assert_int_equal(got, 2 * range.n_layers * range.n);
		while (kvarc_reader_chunk(r, n, &c) == KVARC_OK)
			n++;
		assert_int_equal(n, (SEGMENTS + more) * TENSORS);
		got = 0;
		assert_int_equal(kvarc_reader_read_deliver(r, &range, compare, &got), KVARC_OK);
		assert_int_equal(got, 2 * range.n_layers * range.n);
		kvarc_reader_close(&r);
		memfile_free(&f);
	}
}

static void test_encrypted_parity(void **state)
{
	const uint8_t bytes[KVARC_KEY_BYTES] = { 7 };
	const kvarc_key key = { .kind = KVARC_KEY_GIVEN, .bytes = bytes, .n = sizeof bytes };
	const kvarc_keys keys = { .list = &key, .n = 1 };
	const kvarc_parity parity = { .pieces = 16, .rows = 1 };
	kvarc_writer_options o = stream_options(0, 2);
	const kvarc_reader_options ro = { .keys = &keys };
	struct memfile f = { .fail_at = -1 };
	kvarc_reader *r;
	(void)state;
	o.keys = &keys;
	o.parity = &parity;
	write_cache(&f, 5, false, &o);
	assert_int_equal(cache_verify(&f, &ro), KVARC_OK);
	const kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
	read_part(r, 7, 3, 1, 7);
	kvarc_reader_close(&r);
	memfile_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_at_close),         cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_checkpoints),      cmocka_unit_test(test_incomplete),
		cmocka_unit_test(test_appends),          cmocka_unit_test(test_cut),
		cmocka_unit_test(test_encrypted_parity), cmocka_unit_test(test_forked),
	};
	make_cache();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
