/* SPDX-License-Identifier: BSD-3-Clause */
/* test_compact.c - archives of the last state alone: short segments, replaced tokens, items of
 * earlier states, lossy tiers */
#include "append_util.h"
#include "format/frame.h"
#include "format/restore.h"
#include "writer/writer_internal.h"

static kvarc_ret compact(struct torn *from, struct torn *to, uint64_t checkpoint, unsigned read)
{
	static kvarc_error e;
	kvarc_reader_options o = { .flags = read, .checkpoint = checkpoint };
	kvarc_writer_options wo = stream_options(1, 0);
	kvarc_source source = torn_source(from);
	kvarc_sink sink = torn_sink(to);
	kvarc_reader *r;
	o.common.error = wo.common.error = &e;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	if (!ret)
		ret = kvarc_compact(r, &sink, &wo, NULL);
	kvarc_reader_close(&r);
	return ret;
}

static struct torn empty(void)
{
	return (struct torn){ .fail_at = -1, .f = { .fail_at = -1 } };
}

static uint64_t segments_of(struct torn *t)
{
	kvarc_source source = torn_source(t);
	kvarc_reader *r;
	kvarc_info info;
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	kvarc_reader_close(&r);
	return info.segments;
}

static kvarc_writer *begin(struct torn *t, const struct cache *c, const kvarc_lossy *lossy)
{
	kvarc_writer_options o = stream_options(1, 0);
	kvarc_sink sink = torn_sink(t);
	kvarc_writer *w;
	o.lossy = lossy;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c->g), KVARC_OK);
	assert_int_equal(kvarc_writer_identity(w, 1, (const char *const[]){ "model" },
	                                       (const char *const[]){ "a model" }),
	                 KVARC_OK);
	return w;
}

/* Several tracks, short segments, a rewind and two checkpoints. */
static void test_states(void **state)
{
	(void)state;
	for (int number = 0; number < CACHES; number++) {
		struct cache c, other;
		struct torn t = empty(), small;
		uint64_t n[4] = { 0 }, full = 0;
		cache_make(&c, number, 1);
		cache_make(&other, number, 2);
		kvarc_writer *w = begin(&t, &c, NULL);
		for (uint64_t at = 0; at < 1000; at += 30)
			for (uint32_t i = 0; i < c.g.n_tracks; i++) {
				uint64_t end = at + 30 < c.n[i] ? at + 30 : c.n[i];
				if (end > at)
					assert_int_equal(append_tokens(w, &other, i, at, end),
					                 KVARC_OK);
				assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
			}
		assert_int_equal(kvarc_writer_checkpoint(w, "first", 0, NULL), KVARC_OK);
		for (uint32_t i = 0; i < c.g.n_tracks; i++) {
			assert_int_equal(kvarc_writer_rewind(w, i, c.n[i] / 3), KVARC_OK);
			n[i] = c.n[i] / 3;
			if (c.n[i] > n[i])
				n[i]++;
			assert_int_equal(append_tokens(w, &c, i, c.n[i] / 3, n[i]), KVARC_OK);
		}
		assert_int_equal(kvarc_writer_checkpoint(w, "second", 0, NULL), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		small = empty();
		assert_int_equal(compact(&t, &small, 1, 0), KVARC_OK);
		assert_int_equal(append_check(&small.f, &other, c.n, 0), KVARC_STATE_CLOSED);
		for (size_t i = 0; i < c.g.n_tracks; i++) {
			if (number != 6) /* whose segments are shorter */
				full += (c.n[i] + 255) / 256;
			cache_mix(&other, &c, (uint32_t)i, c.n[i] / 3);
		}
		if (number != 6)
			assert_int_equal(segments_of(&small), full);
		assert_true(small.f.n <= t.f.n);
		torn_free(&small);
		assert_int_equal(compact(&t, &small, 0, 0), KVARC_OK);
		append_check(&small.f, &other, n, 0);
		kvarc_source source = torn_source(&small);
		kvarc_checkpoint point;
		kvarc_reader *r;
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		assert_string_equal(kvarc_reader_identity(r, "model"), "a model");
		assert_int_equal(kvarc_reader_checkpoint(r, 0, &point), KVARC_END);
		kvarc_reader_close(&r);
		torn_free(&small);
		torn_free(&t);
		cache_free(&c);
		cache_free(&other);
	}
}

/* Tokens with ids and without ids keep apart. */
static void test_ids(void **state)
{
	struct cache c;
	struct torn t = empty(), small = empty();
	kvarc_segment s;
	kvarc_view views[16];
	kvarc_reader *r;
	int32_t positions[200];
	(void)state;
	cache_make(&c, 0, 1);
	kvarc_writer *w = begin(&t, &c, NULL);
	for (uint64_t at = 0; at < 600; at += 20) {
		cache_views_at(&c, at, views);
		assert_int_equal(kvarc_writer_append(w, 0, 20, at / 200 == 1 ? NULL : c.ids[0] + at,
		                                     c.positions[0] + at, views),
		                 KVARC_OK);
		assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	}
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	assert_int_equal(compact(&t, &small, 0, 0), KVARC_OK);
	assert_int_equal(segments_of(&small), 3);
	kvarc_source source = torn_source(&small);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_OK);
		assert_int_equal(s.n, 200);
		assert_int_equal(!s.ids, i == 1);
		if (s.ids)
			assert_memory_equal(s.ids, c.ids[0] + 200 * i, 800);
	}
	assert_int_equal(kvarc_reader_read_tokens(r, 0, 200, 200, NULL, positions), KVARC_OK);
	assert_memory_equal(positions, c.positions[0] + 200, 800);
	kvarc_reader_close(&r);
	torn_free(&small);
	torn_free(&t);
	cache_free(&c);
}

/* A frame that packing writes. */
static void put(kvarc_writer *w, uint16_t type, struct kvi_out *out)
{
	assert_false(out->failed);
	assert_int_equal(kvi_writer_frame(w, type, out->p, out->n, true), KVARC_OK);
	kvi_out_free(out);
}

static bool half_blob; /* the second half of the text is missing */

/* An item of literal text, all tokens of tensor 0, and what pieces add. */
static void put_item(kvarc_writer *w, const struct cache *c, uint64_t item, uint64_t n,
                     const char *text, const struct kvi_piece *more)
{
	const uint64_t row = cache_bytes(c, 0) / c->n[0], bytes = strlen(text);
	struct kvi_area_view view = { .block_elems = (uint32_t)row,
		                      .token_stride = row,
		                      .elem_stride = 2 };
	struct kvi_piece pieces[3] = {
		{ .type = KVI_PIECE_LITERAL, .bytes = bytes },
		{ .type = KVI_PIECE_AREA,
		  .bytes = n * row,
		  .n_tokens = n,
		  .n_views = 1,
		  .views = &view },
	};
	struct kvi_restore x = { .kind = KVI_ITEM_OPAQUE,
		                 .name = (char *)(uintptr_t) "a file",
		                 .file_bytes = bytes + n * row + (more ? more->bytes : 0),
		                 .n_pieces = more ? 3 : 2,
		                 .pieces = pieces };
	struct kvi_out out;
	if (more) /* before the literal: both become one piece */
		pieces[2] = pieces[1], pieces[1] = pieces[0], pieces[0] = *more;
	kvi_out_init(&out, kvi_writer_alloc(w));
	kvi_restore_put(&out, &x);
	put(w, KVI_FRAME_RESTORE, &out);
	kvi_out_init(&out, kvi_writer_alloc(w));
	kvi_blob_put_head(&out, item, 0);
	kvi_put_bytes(&out, text, bytes / 2);
	put(w, KVI_FRAME_BLOB, &out);
	if (half_blob)
		return;
	kvi_out_init(&out, kvi_writer_alloc(w));
	kvi_blob_put_head(&out, item, bytes / 2);
	kvi_put_bytes(&out, text + bytes / 2, bytes - bytes / 2);
	put(w, KVI_FRAME_BLOB, &out);
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct torn *t = opaque;
	assert_string_equal(item->name, "a file");
	t->anywhere = true;
	*sink = torn_sink(t);
	return 0;
}

/* What an item must be: text, then rows. */
static void check_item(struct torn *t, uint64_t checkpoint, const struct cache *c, uint64_t n,
                       const char *text)
{
	kvarc_reader_options o = { .checkpoint = checkpoint };
	struct torn back = empty();
	kvarc_source source = torn_source(t);
	kvarc_reader *r;
	const size_t rows = cache_bytes(c, 0) / (size_t)c->n[0] * (size_t)n;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	assert_int_equal(kvarc_unpack(r, open_item, &back), KVARC_OK);
	kvarc_reader_close(&r);
	assert_int_equal(back.f.n, strlen(text) + rows);
	assert_memory_equal(back.f.p, text, strlen(text));
	assert_memory_equal(back.f.p + strlen(text), c->data[0], rows);
	torn_free(&back);
}

/* Two checkpoints with a file each; the second refers to bytes of the first. Then tokens follow. */
static void test_items(void **state)
{
	const struct kvi_piece piece = { .type = KVI_PIECE_REFERENCE, .bytes = 5, .from = 3 };
	struct cache c, other;
	struct torn t = empty(), small = empty();
	uint64_t n = 120;
	(void)state;
	cache_make(&c, 0, 1);
	cache_make(&other, 0, 2);
	cache_mix(&other, &c, 0, 100);
	cache_mix(&c, &other, 0, 0);
	cache_free(&other);
	cache_make(&other, 0, 2);
	kvarc_writer *w = begin(&t, &c, NULL);
	assert_int_equal(append_tokens(w, &c, 0, 0, 100), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	put_item(w, &c, 0, 100, "abcdefghij", NULL);
	assert_int_equal(kvarc_writer_checkpoint(w, "one", 0, NULL), KVARC_OK);
	assert_int_equal(append_tokens(w, &c, 0, 100, 120), KVARC_OK);
	put_item(w, &c, 1, 110, "klmno", &piece);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	check_item(&t, 1, &c, 100, "abcdefghij");
	check_item(&t, 0, &c, 110, "defghklmno");
	for (uint64_t checkpoint = 0; checkpoint < 2; checkpoint++) {
		assert_int_equal(compact(&t, &small, checkpoint, 0), KVARC_OK);
		check_item(&small, 0, &c, checkpoint ? 100 : 110,
		           checkpoint ? "abcdefghij" : "defghklmno");
		assert_int_equal(cache_verify(&small.f, NULL), KVARC_OK);
		torn_free(&small);
	}
	/* Tokens behind the file, but none in their place. */
	kvarc_writer_options o = stream_options(1, 0);
	w = append_open(&t, &o);
	assert_int_equal(append_tokens(w, &c, 0, 120, 130), KVARC_OK);
	assert_int_equal(kvarc_writer_rewind(w, 0, 110), KVARC_OK);
	assert_int_equal(append_tokens(w, &c, 0, 110, 140), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	n = 140;
	append_check(&t.f, &c, &n, 0);
	check_item(&t, 0, &c, 110, "defghklmno");
	w = append_open(&t, &o);
	assert_int_equal(kvarc_writer_rewind(w, 0, 109), KVARC_PROG);
	kvarc_writer_abort(&w);
	w = append_open(&t, &o);
	assert_int_equal(kvarc_writer_checkpoint(w, "two", 0, NULL), KVARC_OK);
	assert_int_equal(kvarc_writer_rewind(w, 0, 50), KVARC_OK);
	assert_int_equal(append_tokens(w, &other, 0, 50, 60), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	check_item(&t, 1, &c, 100, "abcdefghij");
	check_item(&t, 2, &c, 110, "defghklmno");
	torn_free(&t);
	cache_free(&c);
	cache_free(&other);
}

/* An archive that was cut while files were packed is neither continued nor compacted. */
static void test_cut_pack(void **state)
{
	struct cache c;
	struct torn t = empty(), small = empty();
	kvarc_writer_options o = stream_options(1, 0);
	kvarc_writer *w;
	(void)state;
	cache_make(&c, 0, 1);
	for (int way = 0; way < 3; way++) { /* tokens are missing, bytes, or nothing */
		w = begin(&t, &c, NULL);
		half_blob = way == 1;
		put_item(w, &c, 0, way ? 50 : 100, "abcdefghij", NULL);
		half_blob = false;
		assert_int_equal(append_tokens(w, &c, 0, 0, 50), KVARC_OK);
		assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
		kvarc_writer_abort(&w);
		kvarc_source source = torn_source(&t);
		kvarc_sink sink = torn_sink(&t);
		kvarc_ret ret = kvarc_writer_open_append(&w, &source, &sink, &o);
		assert_int_equal(ret, way == 2 ? KVARC_OK : KVARC_DATA);
		kvarc_writer_abort(&w);
		assert_int_equal(compact(&t, &small, 0, 0), way == 2 ? KVARC_OK : KVARC_DATA);
		torn_free(&small);
		torn_free(&t);
	}
	cache_free(&c);
}

/* Chunks of a lossy tier are copied, those that were cut are decoded. */
static void test_lossy(void **state)
{
	const kvarc_lossy tier = { .tier = KVARC_TIER_NEAR, .params.bound.max_error = 1 << 20 };
	struct cache c, back[2];
	struct torn t = empty(), small = empty();
	kvarc_reader_options allow = { .flags = KVARC_READ_ALLOW_LOSSY };
	(void)state;
	cache_make(&c, 2, 1);
	kvarc_writer *w = begin(&t, &c, &tier);
	for (uint32_t i = 0; i < c.g.n_tracks; i++)
		assert_int_equal(append_tokens(w, &c, i, 0, c.n[i]), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	assert_int_equal(compact(&t, &small, 0, 0), KVARC_OK);
	for (int i = 0; i < 2; i++) {
		cache_make_empty(&back[i], &c);
		assert_int_equal(cache_read_range(&back[i], i ? &small.f : &t.f, &allow), KVARC_OK);
	}
	assert_false(cache_equal(&back[0], &c));
	assert_true(cache_equal(&back[0], &back[1]));
	assert_int_equal(cache_verify(&small.f, NULL), KVARC_OK);
	torn_free(&small);
	for (int i = 0; i < 2; i++)
		cache_free(&back[i]);
	torn_free(&t);
	cache_free(&c);
}

static void test_refusals(void **state)
{
	const kvarc_lossy tier = { .tier = KVARC_TIER_HAD, .rate = 64 };
	struct cache c;
	struct torn t = empty(), small = empty();
	kvarc_writer_options o = stream_options(1, 0);
	kvarc_segment s;
	kvarc_reader *r;
	(void)state;
	cache_make(&c, 0, 1);
	kvarc_writer *w = begin(&t, &c, NULL);
	assert_int_equal(append_tokens(w, &c, 0, 0, 300), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	assert_int_equal(append_tokens(w, &c, 0, 300, 600), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	assert_int_equal(compact(&t, &small, 0, KVARC_READ_SALVAGE), KVARC_PROG);
	kvarc_sink sink = torn_sink(&small);
	kvarc_source source = torn_source(&t);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_compact(NULL, &sink, &o, NULL), KVARC_PROG);
	assert_int_equal(kvarc_compact(r, NULL, &o, NULL), KVARC_PROG);
	o.lossy = &tier;
	assert_int_equal(kvarc_compact(r, &sink, &o, NULL), KVARC_PROG);
	assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_OK);
	assert_int_equal(kvarc_compact(r, &sink, NULL, NULL), KVARC_PROG);
	kvarc_reader_close(&r);
	t.f.pipe = true;
	source = memfile_source(&t.f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_compact(r, &sink, NULL, NULL), KVARC_OPTIONS);
	kvarc_reader_close(&r);
	t.f.pipe = false;
	for (long k = 0; k < 8; k++) {
		small.fail_at = k;
		assert_int_equal(compact(&t, &small, 0, 0), KVARC_IO);
		torn_free(&small);
	}
	t.f.p[t.f.n - 30] ^= 1;    /* no footer */
	t.f.p[t.f.n * 3 / 4] ^= 1; /* and damage, with frames behind it */
	assert_int_equal(compact(&t, &small, 0, 0), KVARC_DATA);
	assert_int_equal(small.f.n, 0);
	torn_free(&t);
	cache_free(&c);
}

/* Memory that runs out at each call. */
static void test_memory(void **state)
{
	struct cache c;
	struct torn t = empty();
	kvarc_ret ret = KVARC_MEM;
	(void)state;
	cache_make(&c, 0, 1);
	kvarc_writer *w = begin(&t, &c, NULL);
	put_item(w, &c, 0, 50, "abcdefghij", NULL);
	for (uint64_t at = 0; at < 100; at += 10) {
		assert_int_equal(append_tokens(w, &c, 0, at, at + 10), KVARC_OK);
		assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	}
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	for (long k = 0; ret != KVARC_OK; k++) {
		struct counting counting = { .fail_at = k, .sticky = true };
		kvarc_allocator allocator = counting_allocator(&counting);
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		kvarc_writer_options o = stream_options(1, 0);
		struct torn small = empty();
		kvarc_source source = torn_source(&t);
		kvarc_sink sink = torn_sink(&small);
		kvarc_reader *r;
		ro.common.allocator = o.common.allocator = &allocator;
		ret = kvarc_reader_open(&r, &source, &ro);
		if (!ret)
			ret = kvarc_compact(r, &sink, &o, NULL);
		kvarc_reader_close(&r);
		assert_true(ret == KVARC_OK || ret == KVARC_MEM);
		assert_int_equal(counting.held, 0);
		assert_true(k < 3000);
		torn_free(&small);
	}
	torn_free(&t);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states), cmocka_unit_test(test_ids),
		cmocka_unit_test(test_items),  cmocka_unit_test(test_cut_pack),
		cmocka_unit_test(test_lossy),  cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
