/* SPDX-License-Identifier: BSD-3-Clause */
/* test_lists_hostile.c - INDEX and LIST frames that take much, are many, or cannot be read */
#include <errno.h>
#include <stdio.h>

#include "stream_util.h"

#include "format/commit.h"
#include "format/frame.h"
#include "format/frame_index.h"
#include "format/packed.h"
#include "format/superblock.h"

/* A file of LONG segments has a LIST far from its end. */
enum { TENSORS = 120, WIDTH = 4, APPENDS = 80, LONG = 150 };

static uint16_t row[WIDTH] = { 1, 2, 3, 4 };
static kvarc_tensor tensors[TENSORS];
static kvarc_view views[TENSORS];

static void make_cache(void)
{
	for (unsigned i = 0; i < TENSORS; i++) {
		tensors[i] = (kvarc_tensor){ .layer = i / 2,
			                     .kind = i % 2 ? KVARC_VALUE : KVARC_KEY,
			                     .dtype = KVARC_BF16,
			                     .heads = 1,
			                     .channels = WIDTH };
		views[i] = (kvarc_view){ .data = row,
			                 .token_stride = sizeof row,
			                 .block_elems = WIDTH,
			                 .elem_stride = 2 };
	}
}

/* Segments of one token each, a checkpoint behind each. */
static void add(kvarc_writer *w, unsigned segments)
{
	for (unsigned i = 0; i < segments; i++) {
		assert_int_equal(kvarc_writer_append(w, 0, 1, NULL, NULL, views), KVARC_OK);
		assert_int_equal(kvarc_writer_checkpoint(w, "", 0, NULL), KVARC_OK);
	}
}

static void write_segments(struct memfile *f, unsigned segments)
{
	static const kvarc_track track = { 0 };
	const kvarc_geometry g = {
		.n_tracks = 1, .tracks = &track, .n_tensors = TENSORS, .tensors = tensors
	};
	const kvarc_writer_options o = { .level = 0 };
	kvarc_sink sink = memfile_sink(f);
	kvarc_writer *w;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &g), KVARC_OK);
	add(w, segments);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
}

static int truncate_to(void *opaque, uint64_t size)
{
	struct memfile *f = opaque;
	f->n = (size_t)size;
	return 0;
}

static void append_segment(struct memfile *f)
{
	const kvarc_writer_options o = { .level = 0 };
	const kvarc_source source = memfile_source(f);
	kvarc_sink sink = memfile_sink(f);
	kvarc_writer *w;
	sink.truncate = truncate_to;
	assert_int_equal(kvarc_writer_open_append(&w, &source, &sink, &o), KVARC_OK);
	add(w, 1);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
}

/* Opens a file and returns its tokens. */
static kvarc_ret open_limited(struct memfile *f, uint64_t memlimit, uint64_t request_cost,
                              unsigned flags, uint64_t *tokens)
{
	const kvarc_reader_options o = { .flags = flags,
		                         .request_cost = request_cost,
		                         .common.memlimit = memlimit };
	const kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	*tokens = kvarc_reader_tokens(r, 0);
	kvarc_reader_close(&r);
	return ret;
}

/* Each append repeats the entries of the INDEX before. A reader that has to go through all of them
 * keeps none: together they may be larger than its memory. */
static void test_many_appends(void **state)
{
	enum { LIMIT = 2 << 20 };
	struct memfile f = { .fail_at = -1 };
	uint64_t tokens;
	(void)state;
	write_segments(&f, 1);
	for (unsigned i = 0; i < APPENDS; i++)
		append_segment(&f);
	assert_int_equal(open_limited(&f, LIMIT, 0, 0, &tokens), KVARC_OK);
	assert_int_equal(tokens, APPENDS + 1);
	f.n -= KVI_FRAME_ALIGN; /* no FOOTER is left */
	assert_int_equal(open_limited(&f, LIMIT, 0, 0, &tokens), KVARC_OK);
	assert_int_equal(tokens, APPENDS + 1);
	assert_int_equal(open_limited(&f, LIMIT, 0, KVARC_READ_SALVAGE, &tokens), KVARC_OK);
	assert_int_equal(tokens, APPENDS + 1);
	memfile_free(&f);
}

/* ==== Sources that fail ==== */

/* Bytes of a file that cannot be read. */
struct broken {
	struct memfile *f;
	uint64_t from, to;
};

static int64_t read_broken(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct broken *b = opaque;
	const kvarc_source source = memfile_source(b->f);
	if (offset < b->to && offset + bytes > b->from) {
		errno = EIO;
		return -1;
	}
	return source.read(source.opaque, buf, bytes, offset);
}

/* The header of the first frame of a type; its offset. */
static size_t find_first(const struct memfile *f, uint16_t type, struct kvi_frame_head *h)
{
	size_t at = KVI_SUPERBLOCK_BYTES;
	assert_true(kvi_frame_head_parse(h, f->p + at, kvi_frame_sync(f->p + 24), at));
	while (h->type != type) {
		at += (size_t)kvi_frame_bytes(h->payload_bytes);
		assert_true(at < f->n);
		assert_true(kvi_frame_head_parse(h, f->p + at, kvi_frame_sync(f->p + 24), at));
	}
	return at;
}

/* A LIST that a device cannot read is not one that lacks chunks. As of a checkpoint in front of it,
 * it is read when the file is opened. */
static void test_failing_source(void **state)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_error e = { .code = KVARC_OK };
	const kvarc_reader_options o = { .common.error = &e, .checkpoint = LONG / 2 };
	struct kvi_frame_head h;
	kvarc_reader *r;
	(void)state;
	write_segments(&f, LONG);
	const size_t at = find_first(&f, KVI_FRAME_LIST, &h);
	struct broken b = { &f, at, at + 1 };
	const kvarc_source source = { .read = read_broken, .opaque = &b, .size = f.n };
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_IO);
	assert_null(r);
	assert_int_equal(e.code, KVARC_IO);
	assert_non_null(strstr(e.text, "reading"));
	assert_int_equal(e.offset, at);
	assert_int_not_equal(e.reason, KVARC_REASON_SALVAGE);
	memfile_free(&f);
}

/* ==== INDEX frames behind those of a file ==== */

/* The last INDEX of a file without FOOTER, and what the next frame and FOOTER say. */
struct index_chain {
	struct memfile *f;
	struct kvi_footer footer;
	uint64_t sequence;
	struct kvi_alloc alloc;
	struct kvi_packer packer;
};

static void chain_begin(struct index_chain *c, struct memfile *f)
{
	struct kvi_frame_head h;
	*c = (struct index_chain){ .f = f };
	write_segments(f, 1);
	f->n -= KVI_FOOTER_FRAME_BYTES;
	assert_true(kvi_frame_head_parse(&h, f->p + f->n, kvi_frame_sync(f->p + 24), f->n));
	assert_true(
		kvi_footer_parse(&c->footer, f->p + f->n + KVI_FRAME_HEAD_BYTES, KVI_FOOTER_BYTES));
	c->sequence = h.sequence;
	kvi_alloc_init(&c->alloc, NULL, 0);
	kvi_packer_init(&c->packer, &c->alloc);
}

static void chain_put(struct index_chain *c, uint16_t type, const void *payload, size_t bytes,
                      size_t decoded)
{
	const struct kvi_frame_head h = { type, 0, (uint32_t)bytes, (uint32_t)decoded,
		                          c->sequence++ };
	const size_t n = (size_t)kvi_frame_bytes(h.payload_bytes);
	const kvarc_sink sink = memfile_sink(c->f);
	uint8_t *p = calloc(1, n);
	assert_non_null(p);
	kvi_frame_head_write(p, &h, kvi_frame_sync(c->f->p + 24), c->f->n);
	memcpy(p + KVI_FRAME_HEAD_BYTES, payload, bytes);
	kvi_frame_close(p, c->f->n, h.payload_bytes, kvi_frame_rest(p, h.payload_bytes));
	assert_int_equal(sink.write(sink.opaque, p, n, c->f->n), 0);
	free(p);
}

/* An INDEX that follows the last one: n entries, and what stands behind them. */
static void chain_index(struct index_chain *c, uint64_t n, const struct kvi_out *rest)
{
	struct kvi_out content, payload;
	const uint64_t at = c->f->n;
	kvi_out_init(&content, &c->alloc);
	kvi_out_init(&payload, &c->alloc);
	const struct kvi_index_head head = { c->footer.index, c->footer.index_bytes, 1 };
	kvi_index_put_head(&content, &head, n);
	kvi_put_bytes(&content, rest->p, rest->n);
	assert_int_equal(kvi_pack(&c->packer, &payload, content.p, content.n, 1), KVARC_OK);
	assert_false(content.failed || payload.failed);
	chain_put(c, KVI_FRAME_INDEX, payload.p, payload.n, content.n);
	c->footer.index = at;
	c->footer.index_bytes = (uint32_t)(c->f->n - at);
	kvi_out_free(&content);
	kvi_out_free(&payload);
}

static void chain_end(struct index_chain *c)
{
	uint8_t p[KVI_FOOTER_BYTES];
	c->footer.frames = c->sequence;
	kvi_footer_write(p, &c->footer);
	chain_put(c, KVI_FRAME_FOOTER, p, sizeof p, sizeof p);
	kvi_packer_free(&c->packer);
}

/* Extension fields of zeros, some kilobytes in the file and a megabyte each in memory. */
static void test_large_fields(void **state)
{
	enum { FIELD = 1 << 20, LIMIT = 8 << 20 };
	struct memfile f = { .fail_at = -1 };
	struct index_chain c;
	struct kvi_out field;
	uint64_t tokens;
	void *zeros = calloc(1, FIELD);
	(void)state;
	assert_non_null(zeros);
	chain_begin(&c, &f);
	kvi_out_init(&field, &c.alloc);
	kvi_put_varint(&field, 100);
	kvi_put_varint(&field, FIELD);
	kvi_put_bytes(&field, zeros, FIELD);
	for (unsigned i = 0; i < 20; i++)
		chain_index(&c, 0, &field);
	chain_end(&c);
	assert_int_equal(cache_verify(&f, NULL), KVARC_OK);
	assert_int_equal(open_limited(&f, 0, 0, 0, &tokens), KVARC_OK);
	assert_int_equal(tokens, 1);
	/* Not a second of work for each megabyte of file. */
	assert_int_equal(open_limited(&f, LIMIT, 0, 0, &tokens), KVARC_MEMLIMIT);
	kvi_out_free(&field);
	free(zeros);
	memfile_free(&f);
}

/* INDEX frames that all name the same frames: a reader that fetches what they name does not keep a
 * range for each. */
static void test_same_frames(void **state)
{
	enum { FRAMES = 1000, INDEXES = 200, LIMIT = 2 << 20 };
	struct memfile f = { .fail_at = -1 };
	struct index_chain c;
	struct kvi_out entries;
	struct kvi_index_delta delta = { 0, 0 };
	const uint8_t pad[16] = { 0 };
	uint64_t tokens;
	(void)state;
	chain_begin(&c, &f);
	kvi_out_init(&entries, &c.alloc);
	for (unsigned i = 0; i < FRAMES; i++) {
		const struct kvi_index_entry e = { .type = KVI_FRAME_IDENTITY,
			                           .offset = f.n,
			                           .sequence = c.sequence,
			                           .bytes = (uint32_t)kvi_frame_bytes(sizeof pad) };
		kvi_index_put(&entries, &delta, &e);
		chain_put(&c, KVI_FRAME_PAD, pad, sizeof pad, 0);
	}
	for (unsigned i = 0; i < INDEXES; i++)
		chain_index(&c, FRAMES, &entries);
	chain_end(&c);
	assert_int_equal(open_limited(&f, LIMIT, 4096, 0, &tokens), KVARC_OK);
	assert_int_equal(tokens, 1);
	kvi_out_free(&entries);
	memfile_free(&f);
}

/* An INDEX names frames in front of it; what another says is no item that was lost. */
static void test_behind_itself(void **state)
{
	const kvarc_reader_options o = { .flags = KVARC_READ_SALVAGE };
	struct memfile f = { .fail_at = -1 };
	struct index_chain c;
	struct kvi_out entries;
	struct kvi_index_delta delta = { 0, 0 };
	kvarc_item item;
	kvarc_reader *r;
	(void)state;
	chain_begin(&c, &f);
	kvi_out_init(&entries, &c.alloc);
	for (unsigned i = 1; i <= 1000; i++) {
		const struct kvi_index_entry e = { .type = KVI_FRAME_RESTORE,
			                           .offset = f.n + i * (uint64_t)4096,
			                           .sequence = c.sequence + i,
			                           .bytes = (uint32_t)kvi_frame_bytes(0) };
		kvi_index_put(&entries, &delta, &e);
	}
	chain_index(&c, 1000, &entries);
	chain_end(&c);
	const kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	assert_int_equal(kvarc_reader_item(r, 0, &item), KVARC_END);
	assert_int_equal(kvarc_reader_tokens(r, 0), 1);
	kvarc_reader_close(&r);
	kvi_out_free(&entries);
	memfile_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_appends),  cmocka_unit_test(test_failing_source),
		cmocka_unit_test(test_large_fields),  cmocka_unit_test(test_same_frames),
		cmocka_unit_test(test_behind_itself),
	};
	make_cache();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
