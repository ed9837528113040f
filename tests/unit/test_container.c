/* SPDX-License-Identifier: BSD-3-Clause */
/* test_container.c - superblock, frames, segments, chunks, commits, index: to bytes and back */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/chunk_header.h"
#include "format/commit.h"
#include "format/frame.h"
#include "format/identity.h"
#include "format/frame_index.h"
#include "format/packed.h"
#include "format/predictor_frame.h"
#include "format/params_header.h"
#include "format/restore.h"
#include "format/segment.h"
#include "format/superblock.h"
#include "format/chunk_order.h"

static struct kvi_alloc alloc;

static void done(struct kvi_out *out)
{
	assert_false(out->failed);
	kvi_out_free(out);
	assert_int_equal(alloc.used, 0);
}

static void test_superblock(void **state)
{
	struct kvi_superblock sb = { 1, 7, 0x11, 0x22, 0, "0123456789abcde" };
	struct kvi_superblock back;
	uint8_t b[KVI_SUPERBLOCK_BYTES];
	(void)state;
	kvi_superblock_write(b, &sb);
	assert_int_equal(kvi_superblock_parse(&back, b), KVARC_OK);
	assert_memory_equal(&sb, &back, sizeof sb);
	for (int bit = 0; bit < 8 * KVI_SUPERBLOCK_BYTES; bit++) {
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(kvi_superblock_parse(&back, b),
		                 bit < 64 ? KVARC_FORMAT : KVARC_DATA);
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	/* encrypted, with parts in a store, both; a bit that is not known */
	for (sb.incompat = 1; sb.incompat < 4; sb.incompat++) {
		kvi_superblock_write(b, &sb);
		assert_int_equal(kvi_superblock_parse(&back, b), KVARC_OK);
	}
	kvi_superblock_write(b, &sb);
	assert_int_equal(kvi_superblock_parse(&back, b), KVARC_OPTIONS);
	sb.incompat = 0;
	sb.major = 2;
	kvi_superblock_write(b, &sb);
	assert_int_equal(kvi_superblock_parse(&back, b), KVARC_OPTIONS);
	sb.major = 1;
	kvi_superblock_write(b, &sb);
	b[50] = 1; /* reserved */
	kvi_store64(b + 56, kvi_h64(b, 56));
	assert_int_equal(kvi_superblock_parse(&back, b), KVARC_DATA);
	assert_false(kvi_superblock_pre_release(b));
	/* an archive that was made before 1.0 */
	memset(b + 8, 0, 48);
	b[8] = 1;
	memcpy(b + 24, "kvarc test file!", 16);
	kvi_store64(b + 56, 0xcdb6b62ecf385da4);
	assert_int_equal(kvi_superblock_parse(&back, b), KVARC_DATA);
	assert_true(kvi_superblock_pre_release(b));
	b[24] ^= 1;
	assert_false(kvi_superblock_pre_release(b));
}

static void test_frame(void **state)
{
	const uint8_t id[16] = "file id of test";
	uint64_t sync = kvi_frame_sync(id);
	struct kvi_frame_head h = { KVI_FRAME_CHUNK, 1, 77, 1000, 5 }, back;
	uint8_t b[KVI_FRAME_HEAD_BYTES];
	(void)state;
	h.decoded_bytes = 1000;
	kvi_frame_head_write(b, &h, sync, 4096);
	assert_true(kvi_frame_head_parse(&back, b, sync, 4096));
	assert_int_equal(back.type, h.type);
	assert_int_equal(back.payload_bytes, 77);
	assert_int_equal(back.decoded_bytes, 1000);
	assert_int_equal(back.sequence, h.sequence);
	/* bound to its offset and its file */
	assert_false(kvi_frame_head_parse(&back, b, sync, 4104));
	assert_false(kvi_frame_head_parse(&back, b, sync + 1, 4096));
	for (int bit = 0; bit < 8 * KVI_FRAME_HEAD_BYTES; bit++) {
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(kvi_frame_head_parse(&back, b, sync, 4096));
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(kvi_frame_bytes(0), 48);
	assert_int_equal(kvi_frame_bytes(1), 64);
	assert_int_equal(kvi_frame_bytes(16), 64);
	assert_int_equal(kvi_frame_bytes(KVI_FOOTER_BYTES), KVI_FOOTER_FRAME_BYTES);
}

static void test_frame_types(void **state)
{
	(void)state;
	for (uint32_t type = 0; type <= UINT16_MAX; type++)
		for (uint16_t flags = 0; flags < 4; flags++) {
			struct kvi_frame_head h = { .type = (uint16_t)type, .flags = flags };
			bool critical = flags & 1;
			bool known = (type >= 1 && type <= 11) || type == 15 || type == 18 ||
			             type == 19;
			bool is_c = type == 1 || (type >= 5 && type <= 8) || type == 11 ||
			            type == 15 || type == 19;
			kvarc_ret want;
			if (type == 0 || flags > 1 || type == 14 || type == 16)
				want = KVARC_DATA;
			else if ((type <= 13 || type == 15 || type >= 17) && type <= 19 &&
			         critical != is_c)
				want = KVARC_DATA;
			else
				want = known || !critical ? KVARC_OK : KVARC_OPTIONS;
			assert_int_equal(kvi_frame_head_check(&h), want);
		}
	struct kvi_frame_head h = { .type = 7, .flags = 1, .payload_bytes = KVI_FRAME_MAX };
	assert_int_equal(kvi_frame_head_check(&h), KVARC_OK);
	h.payload_bytes++;
	assert_int_equal(kvi_frame_head_check(&h), KVARC_DATA);
}

static void test_packed(void **state)
{
	static uint8_t content[5000];
	struct kvi_packer p;
	const uint8_t *got;
	uint8_t *owned;
	(void)state;
	kvi_packer_init(&p, &alloc);
	for (size_t n = 0; n <= sizeof content; n += 50) {
		struct kvi_out out;
		for (int random = 0; random < 2; random++) {
			for (size_t i = 0; i < n; i++)
				content[i] = (uint8_t)(random ? (size_t)rand() : i / 99);
			kvi_out_init(&out, &alloc);
			assert_int_equal(kvi_pack(&p, &out, content, n, 1), KVARC_OK);
			assert_true(out.n <= n + 1);
			assert_int_equal(kvi_unpack(&p, out.p, out.n, n, &got, &owned), KVARC_OK);
			if (n)
				assert_memory_equal(got, content, n);
			kvi_free(&alloc, owned);
			/* another size, a byte more, another method */
			assert_int_equal(kvi_unpack(&p, out.p, out.n, n + 1, &got, &owned),
			                 KVARC_DATA);
			if (n)
				assert_int_equal(kvi_unpack(&p, out.p, out.n, n - 1, &got, &owned),
				                 KVARC_DATA);
			kvi_put8(&out, 0);
			assert_int_equal(kvi_unpack(&p, out.p, out.n, n, &got, &owned), KVARC_DATA);
			out.p[0] = 2;
			assert_int_equal(kvi_unpack(&p, out.p, out.n, n, &got, &owned),
			                 KVARC_OPTIONS);
			kvi_out_free(&out);
		}
	}
	assert_int_equal(kvi_unpack(&p, content, 0, 0, &got, &owned), KVARC_DATA);
	kvi_packer_free(&p);
	assert_int_equal(alloc.used, 0);
}

static void segment_trip(const struct kvi_segment *s)
{
	struct kvi_segment back;
	struct kvi_out out;
	kvi_out_init(&out, &alloc);
	kvi_segment_put(&out, s);
	assert_true(kvi_segment_parse(&back, out.p, out.n));
	assert_int_equal(back.track, s->track);
	assert_int_equal(back.t0, s->t0);
	assert_int_equal(back.n, s->n);
	assert_memory_equal(back.positions, s->positions, 4 * s->n);
	assert_int_equal(back.has_ids, s->has_ids);
	if (s->has_ids)
		assert_memory_equal(back.ids, s->ids, 4 * s->n);
	for (size_t n = 0; n < out.n; n++)
		assert_false(kvi_segment_parse(&back, out.p, n));
	kvi_put8(&out, 0);
	assert_false(kvi_segment_parse(&back, out.p, out.n));
	done(&out);
}

static void test_segment(void **state)
{
	struct kvi_segment s = { .track = 4095, .n = 256, .t0 = 1ull << 33 };
	static const struct {
		const char *bytes;
		size_t n;
		bool ok;
	} cases[] = {
		{ "\0\0\1\0\1\0\1", 7, true },
		{ "\0\0\0\0\0", 5, false },                        /* no tokens */
		{ "\0\0\1\2\1\0\1", 7, false },                    /* flag */
		{ "\0\0\2\0\2\0\1\2\1", 9, false },                /* 0, 1: one run */
		{ "\0\0\2\0\2\0\1\0\1", 9, true },                 /* 0, 0: two */
		{ "\0\0\2\0\1\0\1", 7, false },                    /* too few */
		{ "\0\0\1\0\1\0\2", 7, false },                    /* too many */
		{ "\0\0\2\0\2\0\0\0\2", 9, false },                /* an empty run */
		{ "\0\0\1\0\1\x80\0\1", 8, false },                /* long varint */
		{ "\0\0\1\0\1\xff\xff\xff\xff\x0f\1", 11, true },  /* -2^31 */
		{ "\0\0\1\0\1\x80\x80\x80\x80\x10\1", 11, false }, /* 2^31 */
		{ "\0\0\1\0\1\x81\x80\x80\x80\x10\1", 11, false },
	};
	(void)state;
	for (int i = 0; i < 256; i++) {
		s.positions[i] = i % 7 ? i * (i % 3) : INT32_MIN + i;
		s.ids[i] = i * 1000003;
	}
	segment_trip(&s);
	s.has_ids = true;
	segment_trip(&s);
	s.n = 1;
	s.positions[0] = INT32_MAX;
	segment_trip(&s);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(kvi_segment_parse(&s, (const uint8_t *)cases[i].bytes, cases[i].n),
		                 cases[i].ok);
}

static void test_chunk_and_params(void **state)
{
	struct kvi_chunk_header h = { 70000, 3,         65535, 1ull << 40, 9,
		                      5,     { 1, 77 }, 256,   UINT32_MAX, 0x1122334455667788u },
				back;
	struct kvi_params_header p = { 70000, 3, 9, 5 }, pback;
	uint8_t b[KVI_CHUNK_HEADER_BYTES];
	(void)state;
	memset(&back, 0, sizeof back);
	kvi_chunk_header_write(b, &h);
	assert_true(kvi_chunk_header_parse(&back, b, sizeof b));
	assert_int_equal(back.tensor, h.tensor);
	assert_int_equal(back.heads, h.heads);
	assert_int_equal(back.segment, h.segment);
	assert_int_equal(back.params, h.params);
	assert_int_equal(back.t0, h.t0);
	assert_int_equal(back.raw_check, h.raw_check);
	assert_int_equal(back.cut.stream_size, 1);
	assert_int_equal(back.cut.section_bytes, 77);
	assert_false(kvi_chunk_header_parse(&back, b, sizeof b - 1));
	b[25] = 4;
	assert_false(kvi_chunk_header_parse(&back, b, sizeof b));
	b[25] = 0;
	kvi_store16(b + 26, 257);
	assert_false(kvi_chunk_header_parse(&back, b, sizeof b));
	kvi_store16(b + 26, 1);
	kvi_store16(b + 6, 0);
	assert_false(kvi_chunk_header_parse(&back, b, sizeof b));
	kvi_params_header_write(b, &p);
	assert_true(kvi_params_header_parse(&pback, b, KVI_PARAMS_HEADER_BYTES));
	assert_int_equal(pback.tensor, p.tensor);
	assert_int_equal(pback.heads, p.heads);
	assert_int_equal(pback.codec, p.codec);
	assert_false(kvi_params_header_parse(&pback, b, 8));
}

static void test_commit_and_footer(void **state)
{
	const uint64_t tokens[3] = { 0, 300, 1ull << 40 };
	const uint8_t label[] = "turn 7";
	struct kvi_commit c = { 12, 800, { 7, 1780000000000, label, 6 } }, back;
	struct kvi_footer f = { 80, 160, 9, 96, 112 }, fback;
	uint64_t got[3];
	uint8_t b[KVI_FOOTER_BYTES];
	struct kvi_out out;
	(void)state;
	kvi_out_init(&out, &alloc);
	kvi_commit_put(&out, &c, tokens, 3);
	assert_true(kvi_commit_parse(&back, got, 3, out.p, out.n));
	assert_memory_equal(back.checkpoint.label, label, back.checkpoint.label_bytes);
	back.checkpoint.label = label;
	assert_memory_equal(&c, &back, sizeof c);
	assert_memory_equal(tokens, got, sizeof got);
	for (size_t n = 0; n < out.n; n++)
		assert_false(kvi_commit_parse(&back, got, 3, out.p, n));
	assert_false(kvi_commit_parse(&back, got, 2, out.p, out.n));
	assert_false(kvi_commit_parse(&back, got, 3, out.p, out.n - 1));
	kvi_put8(&out, 0);
	assert_false(kvi_commit_parse(&back, got, 3, out.p, out.n));
	done(&out);
	kvi_footer_write(b, &f);
	assert_true(kvi_footer_parse(&fback, b, sizeof b));
	assert_memory_equal(&f, &fback, sizeof f);
	assert_false(kvi_footer_parse(&fback, b, sizeof b - 1));
}

static void test_index(void **state)
{
	struct kvi_index_entry list[] = {
		{ .type = KVI_FRAME_GEOMETRY, .offset = 64, .sequence = 0 },
		{ .type = KVI_FRAME_SEGMENT,
		  .tensor = 3,
		  .n = 256,
		  .segment = 1 << 20,
		  .offset = 640,
		  .sequence = 1 },
		{ .type = KVI_FRAME_PARAMS,
		  .tensor = 9,
		  .head = 4,
		  .heads = 5,
		  .codec = 6,
		  .params = 1,
		  .offset = 720,
		  .sequence = 2 },
		{ .type = KVI_FRAME_CHUNK,
		  .tensor = 9,
		  .head = 4,
		  .heads = 5,
		  .segment = 1,
		  .params = 2,
		  .offset = 1 << 30,
		  .sequence = 9 },
		{ .type = KVI_FRAME_LIST, .n = 70000, .offset = (1 << 30) + 96, .sequence = 11 },
		{ .type = 0, .offset = 1ull << 40, .sequence = 1000 },
	};
	enum { N = sizeof list / sizeof list[0] };
	const struct kvi_index_head head = { 64, 48, kvi_codec_bit(3) | kvi_codec_bit(200) };
	struct kvi_index_delta d = { 0, 0 };
	struct kvi_index_reader r;
	struct kvi_index_entry e;
	struct kvi_out out;
	(void)state;
	kvi_out_init(&out, &alloc);
	kvi_index_put_head(&out, &head, N);
	for (size_t i = 0; i < N; i++) {
		list[i].bytes = (uint32_t)(48 + 16 * i);
		kvi_index_put(&out, &d, &list[i]);
	}
	assert_true(kvi_index_begin(&r, out.p, out.n));
	assert_int_equal(r.head.follows, 64);
	assert_int_equal(r.head.follows_bytes, 48);
	assert_true(r.head.codecs == (UINT64_C(1) << 63 | 8));
	for (size_t i = 0; i < N; i++) {
		assert_true(kvi_index_next(&r, &e));
		assert_int_equal(e.type, list[i].type);
		assert_int_equal(e.offset, list[i].offset);
		assert_int_equal(e.sequence, list[i].sequence);
		assert_int_equal(e.tensor, list[i].tensor);
		assert_int_equal(e.head, list[i].head);
		assert_int_equal(e.heads, list[i].heads);
		assert_int_equal(e.segment, list[i].segment);
		assert_int_equal(e.params, list[i].params);
		assert_int_equal(e.codec, list[i].codec);
		assert_int_equal(e.n, list[i].n);
		assert_int_equal(e.bytes, list[i].bytes);
	}
	assert_false(kvi_index_next(&r, &e));
	assert_true(kvi_index_end(&r));
	for (size_t n = 0; n < out.n; n++) {
		bool ok = kvi_index_begin(&r, out.p, n);
		while (ok && kvi_index_next(&r, &e))
			;
		assert_false(ok && kvi_index_end(&r));
	}
	out.p[0] = 65; /* not aligned */
	assert_false(kvi_index_begin(&r, out.p, out.n));
	out.p[0] = 64;
	out.p[8] = 47; /* no size of a frame */
	assert_false(kvi_index_begin(&r, out.p, out.n));
	out.p[8] = 48;
	out.p[21] = KVI_FRAME_INDEX; /* never listed */
	assert_true(kvi_index_begin(&r, out.p, out.n));
	assert_false(kvi_index_next(&r, &e));
	assert_false(kvi_index_end(&r));
	done(&out);
}

/* Entries of chunks go into a LIST, but for those that an earlier INDEX has. */
static void test_pending(void **state)
{
	struct kvi_pending_entries p;
	struct kvi_index_reader r;
	struct kvi_index_entry e = { .bytes = 64, .heads = 1, .n = 1 };
	struct kvi_out list;
	(void)state;
	kvi_out_init(&list, &alloc);
	kvi_pending_init(&p, &alloc);
	for (uint64_t i = 0; i < 6; i++) {
		e.type = i % 3 ? KVI_FRAME_CHUNK : KVI_FRAME_SEGMENT;
		e.offset = 64 + 64 * i;
		e.sequence = i;
		e.segment = i % 3 ? i / 3 * 3 : 0;
		assert_true(kvi_pending_add(&p, &e));
		if (i == 2) {
			assert_int_equal(p.chunks, 2);
			p.restated = p.n;
			p.chunks = 0;
		}
	}
	assert_int_equal(p.chunks, 2);
	assert_true(kvi_pending_take_chunks(&p, &list));
	assert_int_equal(p.n, 4);
	assert_int_equal(p.restated, 3);
	assert_int_equal(p.chunks, 0);
	assert_true(kvi_list_begin(&r, list.p, list.n));
	for (uint64_t i = 4; i < 6; i++) {
		assert_true(kvi_index_next(&r, &e));
		assert_int_equal(e.type, KVI_FRAME_CHUNK);
		assert_int_equal(e.offset, 64 + 64 * i);
		assert_int_equal(e.segment, 3);
	}
	assert_true(kvi_index_end(&r));
	list.p[1] = KVI_FRAME_SEGMENT;
	assert_true(kvi_list_begin(&r, list.p, list.n));
	assert_false(kvi_index_next(&r, &e));
	kvi_pending_clear(&p);
	assert_int_equal(p.n + p.restated, 0);
	kvi_out_free(&p.entries);
	done(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_superblock),        cmocka_unit_test(test_frame),
		cmocka_unit_test(test_frame_types),       cmocka_unit_test(test_packed),
		cmocka_unit_test(test_segment),           cmocka_unit_test(test_chunk_and_params),
		cmocka_unit_test(test_commit_and_footer), cmocka_unit_test(test_index),
		cmocka_unit_test(test_pending),
	};
	kvi_alloc_init(&alloc, NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
