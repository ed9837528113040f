/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stream_items.c - items and their literal bytes through writer and reader */
#include "stream_util.h"

#include "reader/reader_internal.h"
#include "writer/writer_internal.h"
#include "format/frame.h"

struct blobs {
	uint8_t bytes[64];
	size_t n;
};

static int take_blob(void *opaque, uint64_t item, uint64_t offset, const uint8_t *data,
                     size_t bytes)
{
	struct blobs *b = opaque;
	if (item != 1 || offset != b->n || b->n + bytes > sizeof b->bytes)
		return -1;
	memcpy(b->bytes + b->n, data, bytes);
	b->n += bytes;
	return 0;
}

static void put_item(kvarc_writer *w, uint64_t literal, const char *name)
{
	struct kvi_piece piece = { .type = KVI_PIECE_LITERAL, .bytes = literal };
	struct kvi_restore item = { .kind = KVI_ITEM_OPAQUE,
		                    .name = (char *)(uintptr_t)name,
		                    .file_bytes = literal,
		                    .n_pieces = literal ? 1 : 0,
		                    .pieces = &piece };
	struct kvi_out out;
	kvi_out_init(&out, kvi_writer_alloc(w));
	kvi_restore_put(&out, &item);
	assert_int_equal(kvi_writer_frame(w, KVI_FRAME_RESTORE, out.p, out.n, true), KVARC_OK);
	kvi_out_free(&out);
}

static void put_blob(kvarc_writer *w, uint64_t item, uint64_t offset, const char *text)
{
	struct kvi_out out;
	kvi_out_init(&out, kvi_writer_alloc(w));
	kvi_blob_put_head(&out, item, offset);
	kvi_put_bytes(&out, text, strlen(text));
	assert_int_equal(kvi_writer_frame(w, KVI_FRAME_BLOB, out.p, out.n, true), KVARC_OK);
	kvi_out_free(&out);
}

static void test_items(void **state)
{
	(void)state;
	for (int way = 0; way < 4; way++) { /* file, pipe, salvage, a hole */
		struct cache c;
		struct memfile f = { .fail_at = -1, .pipe = way == 1 };
		struct blobs blobs = { .n = 0 };
		kvarc_sink sink = memfile_sink(&f);
		kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		kvarc_writer *w;
		kvarc_reader *r;
		kvarc_segment s;
		kvarc_info info;
		cache_make(&c, 0, 1);
		o.flags |= KVARC_WRITE_STREAMABLE;
		assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
		assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
		put_item(w, 0, "empty");
		put_item(w, 11, "hello");
		put_blob(w, 1, 0, "hello ");
		if (way != 3)
			put_blob(w, 1, 6, "world");
		assert_int_equal(kvarc_writer_append(w, 0, 50, NULL, NULL, c.views), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		kvarc_source source = memfile_source(&f);
		ro.flags = way == 2 ? KVARC_READ_SALVAGE : 0;
		assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
		assert_int_equal(kvi_reader_n_items(r), 2);
		assert_string_equal(kvi_reader_restore(r, 1)->name, "hello");
		kvi_reader_set_blob_handler(r, take_blob, &blobs);
		assert_false(kvi_reader_started(r));
		assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_OK);
		assert_true(kvi_reader_started(r));
		assert_int_equal(kvarc_reader_next_segment(r, &s),
		                 way == 3 ? KVARC_DATA : KVARC_END);
		if (way != 3) {
			assert_int_equal(blobs.n, 11);
			assert_memory_equal(blobs.bytes, "hello world", 11);
		}
		assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
		assert_int_equal(info.n_items, 2);
		assert_int_equal(info.literal_bytes, 11);
		kvarc_reader_close(&r);
		assert_int_equal(cache_verify(&f, NULL), way == 3 ? KVARC_DATA : KVARC_OK);
		memfile_free(&f);
		cache_free(&c);
	}
}
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_items),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
