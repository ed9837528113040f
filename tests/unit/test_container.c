/* SPDX-License-Identifier: BSD-3-Clause */
/* test_container.c - every struct of the container to bytes and back; one encoding a value */
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
	sb.incompat = 2;
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
	assert_int_equal(kvi_frame_bytes(1), 56);
	assert_int_equal(kvi_frame_bytes(8), 56);
	assert_int_equal(kvi_frame_bytes(KVI_FOOTER_BYTES), KVI_FOOTER_FRAME_BYTES);
}

static void test_frame_types(void **state)
{
	(void)state;
	for (uint32_t type = 0; type <= UINT16_MAX; type++)
		for (uint16_t flags = 0; flags < 4; flags++) {
			struct kvi_frame_head h = { .type = (uint16_t)type, .flags = flags };
			bool critical = flags & 1;
			bool known = type >= 1 && type <= 11;
			bool is_c = type == 1 || (type >= 5 && type <= 8) || type == 11 ||
			            type == 14 || type == 15;
			kvarc_ret want;
			if (type == 0 || flags > 1)
				want = KVARC_DATA;
			else if (type <= 15 && critical != is_c)
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
			assert_int_equal(kvi_pack(&p, &out, content, n), KVARC_OK);
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
	struct kvi_chunk_header h = { 70000, 3, 65535, 1ull << 40, 9,
		                      5,     1, 256,   UINT32_MAX, 0x1122334455667788u },
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
	assert_false(kvi_chunk_header_parse(&back, b, sizeof b - 1));
	b[25] = 2;
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
	struct kvi_commit c = { 12, 800, { 5, 6 } }, back;
	struct kvi_footer f = { 80, 160, 9 }, fback;
	uint64_t got[3];
	uint8_t b[KVI_FOOTER_BYTES];
	struct kvi_out out;
	(void)state;
	kvi_out_init(&out, &alloc);
	kvi_commit_put(&out, &c, tokens, 3);
	assert_true(kvi_commit_parse(&back, got, 3, out.p, out.n));
	assert_memory_equal(&c, &back, sizeof c);
	assert_memory_equal(tokens, got, sizeof got);
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
	const struct kvi_index_entry list[] = {
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
		{ .type = 0, .offset = 1ull << 40, .sequence = 1000 },
	};
	enum { N = sizeof list / sizeof list[0] };
	struct kvi_index_delta d = { 0, 0 };
	struct kvi_index_reader r;
	struct kvi_index_entry e;
	struct kvi_out out;
	(void)state;
	kvi_out_init(&out, &alloc);
	kvi_put64(&out, 64);
	kvi_put_varint(&out, N);
	for (size_t i = 0; i < N; i++)
		kvi_index_put(&out, &d, &list[i]);
	assert_true(kvi_index_begin(&r, out.p, out.n));
	assert_int_equal(r.previous, 64);
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
	out.p[9] = KVI_FRAME_INDEX; /* never listed */
	assert_true(kvi_index_begin(&r, out.p, out.n));
	assert_false(kvi_index_next(&r, &e));
	assert_false(kvi_index_end(&r));
	done(&out);
}

static void test_identity(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
		kvarc_ret ret;
	} cases[] = {
		{ "\0", 1, KVARC_OK },
		{ "\1\1a\1b", 5, KVARC_OK },
		{ "\1\1a\1b\0", 6, KVARC_DATA },
		{ "\2\1a\0\1a\0", 7, KVARC_DATA },  /* twice */
		{ "\2\1b\0\1a\0", 7, KVARC_DATA },  /* order */
		{ "\2\1a\0\1\xc3\0", 7, KVARC_OK }, /* unsigned order */
		{ "\1\2a\0\0", 5, KVARC_DATA },     /* zero byte */
		{ "\2\1a\1b", 5, KVARC_DATA },
		{ "\1\x81\0a\0", 5, KVARC_DATA }, /* long varint */
	};
	struct kvi_identity id = { 0 };
	struct kvi_out out;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct kvi_identity one = { 0 };
		assert_int_equal(kvi_identity_parse(&one, &alloc, (const uint8_t *)cases[i].bytes,
		                                    cases[i].n),
		                 cases[i].ret);
		kvi_identity_free(&one, &alloc);
	}
	assert_int_equal(kvi_identity_set(&id, &alloc, "m", "1"), KVARC_OK);
	assert_int_equal(kvi_identity_set(&id, &alloc, "a", "2"), KVARC_OK);
	assert_int_equal(kvi_identity_set(&id, &alloc, "z", "3"), KVARC_OK);
	assert_int_equal(kvi_identity_set(&id, &alloc, "m", "4"), KVARC_OK);
	assert_int_equal(id.n, 3);
	assert_string_equal(id.pairs[0].key, "a");
	assert_string_equal(kvi_identity_get(&id, "m"), "4");
	kvi_out_init(&out, &alloc);
	kvi_identity_put(&out, &id);
	struct kvi_identity back = { 0 };
	assert_int_equal(kvi_identity_set(&back, &alloc, "z", "old"), KVARC_OK);
	assert_int_equal(kvi_identity_parse(&back, &alloc, out.p, out.n), KVARC_OK);
	assert_int_equal(back.n, 3);
	assert_string_equal(kvi_identity_get(&back, "z"), "3");
	kvi_identity_free(&back, &alloc);
	kvi_identity_free(&id, &alloc);
	done(&out);
}

static kvarc_ret parse_predictor(const char *content, size_t bytes)
{
	struct kvi_predictor p;
	kvarc_ret ret = kvi_predictor_parse(&p, &alloc, (const uint8_t *)content, bytes);
	if (ret == KVARC_OK)
		kvi_predictor_free(&p, &alloc);
	return ret;
}

/* Kind 2 (spec model 1). */
static void test_predictor_model(void **state)
{
	struct kvi_predictor p = { .kind = KVI_PREDICTOR_MODEL,
		                   .level = 6,
		                   .closed = true,
		                   .digest = { 7, 9 },
		                   .weights = { 5, 3 },
		                   .wide_weights = 1,
		                   .wide_activations = 0x1f,
		                   .name = (char *)(uintptr_t) "left",
		                   .model_name = (char *)(uintptr_t) "smol" },
			     back;
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct kvi_out out;
		kvi_out_init(&out, &alloc);
		kvi_predictor_put(&out, &p);
		assert_false(out.failed);
		assert_int_equal(kvi_predictor_parse(&back, &alloc, out.p, out.n), KVARC_OK);
		assert_int_equal(back.kind, 2);
		assert_int_equal(back.level, 6);
		assert_int_equal(back.closed, p.closed);
		assert_int_equal(back.fp8, p.fp8);
		assert_int_equal(back.wide_weights, p.wide_weights);
		assert_int_equal(back.wide_activations, p.wide_activations);
		assert_true(kvi_h128_equal(back.digest, p.digest));
		assert_true(kvi_h128_equal(back.weights, p.weights));
		assert_string_equal(back.name, "left");
		assert_string_equal(back.model_name, "smol");
		assert_int_equal(back.content_bytes, p.content_bytes);
		kvi_predictor_free(&back, &alloc);
		for (size_t n = 0; n < out.n; n++)
			assert_int_equal(parse_predictor((char *)out.p, n), KVARC_DATA);
		/* reserved flags, levels and kinds of matrices */
		for (size_t n = 2; n < 6; n++) {
			uint8_t old = out.p[n];
			out.p[n] = 0x88;
			assert_int_equal(parse_predictor((char *)out.p, out.n), KVARC_DATA);
			out.p[n] = old;
		}
		/* of FP8 nothing is wide */
		for (size_t n = 4; n < 6 && p.fp8; n++) {
			out.p[n] = 1;
			assert_int_equal(parse_predictor((char *)out.p, out.n), KVARC_DATA);
			out.p[n] = 0;
		}
		kvi_out_free(&out);
		p.closed = false;
		p.embedded = i == 0;
		p.content_bytes = i == 0 ? 77 : 0;
		p.fp8 = i == 1;
		p.wide_weights = i == 0;
		p.wide_activations = i == 0 ? 0x1f : 0;
	}
}

#define DIGEST "0123456789abcdef"

static void test_predictor(void **state)
{
	struct kvi_predictor p = { .kind = KVI_PREDICTOR_PROFILE,
		                   .level = 3,
		                   .embedded = true,
		                   .digest = { 7, 9 },
		                   .name = (char *)(uintptr_t) "smol",
		                   .content_bytes = 300 },
			     back;
	struct kvi_profile_part part;
	(void)state;
	assert_int_equal(parse_predictor("\0\0", 2), KVARC_OK);
	assert_int_equal(parse_predictor("\0\1x", 3), KVARC_DATA);
	assert_int_equal(parse_predictor("\0", 1), KVARC_DATA);
	assert_int_equal(parse_predictor("\2\1x", 3), KVARC_DATA);
	assert_int_equal(parse_predictor("\3\1x", 3), KVARC_OPTIONS);
	assert_int_equal(parse_predictor("\4\0", 2), KVARC_OPTIONS);
	for (int i = 0; i < 2; i++) {
		struct kvi_out out;
		kvi_out_init(&out, &alloc);
		kvi_predictor_put(&out, &p);
		assert_false(out.failed);
		assert_int_equal(kvi_predictor_parse(&back, &alloc, out.p, out.n), KVARC_OK);
		assert_int_equal(back.kind, 1);
		assert_int_equal(back.level, 3);
		assert_true(kvi_h128_equal(back.digest, p.digest));
		assert_string_equal(back.name, "smol");
		assert_int_equal(back.embedded, p.embedded);
		assert_int_equal(back.content_bytes, p.content_bytes);
		kvi_predictor_free(&back, &alloc);
		for (size_t n = 0; n < out.n; n++)
			assert_int_equal(parse_predictor((char *)out.p, n), KVARC_DATA);
		done(&out);
		p.embedded = false;
		p.content_bytes = 0;
	}
	assert_int_equal(parse_predictor("\1\23\0\2" DIGEST "\0", 21), KVARC_OK);
	assert_int_equal(parse_predictor("\1\23\2\2" DIGEST "\0", 21), KVARC_DATA); /* where */
	assert_int_equal(parse_predictor("\1\23\0\1" DIGEST "\0", 21), KVARC_DATA); /* level */
	assert_int_equal(parse_predictor("\1\23\0\4" DIGEST "\0", 21), KVARC_DATA);
	assert_int_equal(parse_predictor("\1\24\0\2" DIGEST "\0\1", 22),
	                 KVARC_DATA); /* elsewhere, but with a size */
	assert_int_equal(parse_predictor("\1\24\1\2" DIGEST "\0\0", 22),
	                 KVARC_DATA); /* embedded, but nothing */
	assert_false(kvi_profile_part_parse(&part, (const uint8_t *)"\1", 1));
	assert_false(kvi_profile_part_parse(&part, (const uint8_t *)"", 0));
	assert_true(kvi_profile_part_parse(&part, (const uint8_t *)"\5xy", 3));
	assert_int_equal(part.offset, 5);
	assert_int_equal(part.bytes, 2);
}

static const uint64_t freqs[4] = { 1, 2, 3, UINT64_MAX };

static void sample(kvarc_geometry *g, kvarc_rope *rope, kvarc_track *tracks, kvarc_tensor *tensors)
{
	*rope = (kvarc_rope){ KVARC_ROPE_INTERLEAVED, 8, freqs };
	tracks[0] = (kvarc_track){ KVARC_TRACK_SELF, 0, "a" };
	tracks[1] = (kvarc_track){ KVARC_TRACK_OTHER, UINT32_MAX, NULL };
	tensors[0] = (kvarc_tensor){ .layer = 65535,
		                     .kind = KVARC_OPAQUE,
		                     .role = KVARC_HIGH_BITS,
		                     .dtype = KVARC_E5M2,
		                     .flags = 3,
		                     .source_type = 0x108,
		                     .heads = 16,
		                     .channels = 65535,
		                     .track = 1,
		                     .rope = 1,
		                     .first_head = 5,
		                     .total_heads = 99,
		                     .name = "t" };
	tensors[1] = (kvarc_tensor){
		.kind = KVARC_VALUE, .dtype = KVARC_BF16, .heads = 1, .channels = 1
	};
	*g = (kvarc_geometry){ 1, 2, 2, rope, tracks, tensors };
}

static void test_geometry(void **state)
{
	kvarc_rope rope;
	kvarc_track tracks[2];
	kvarc_tensor tensors[2];
	kvarc_geometry g, copy, back;
	struct kvi_out out, again;
	(void)state;
	sample(&g, &rope, tracks, tensors);
	assert_null(kvi_geometry_wrong(&g));
	assert_int_equal(kvi_geometry_copy(&copy, &alloc, &g), KVARC_OK);
	assert_int_equal(copy.tensors[1].total_heads, 1);
	kvi_out_init(&out, &alloc);
	kvi_out_init(&again, &alloc);
	kvi_geometry_put(&out, &copy);
	assert_int_equal(kvi_geometry_parse(&back, &alloc, out.p, out.n), KVARC_OK);
	kvi_geometry_put(&again, &back);
	assert_int_equal(out.n, again.n);
	assert_memory_equal(out.p, again.p, out.n);
	assert_int_equal(back.tensors[0].source_type, 0x108);
	assert_int_equal(back.ropes[0].freq[3], UINT64_MAX);
	assert_string_equal(back.tensors[0].name, "t");
	assert_string_equal(back.tracks[1].label, "");
	kvi_geometry_free(&back, &alloc);
	for (size_t n = 0; n < out.n; n++) {
		assert_int_equal(kvi_geometry_parse(&back, &alloc, out.p, n), KVARC_DATA);
		kvi_geometry_free(&back, &alloc);
	}
	/* every changed byte is refused or gives other content back as it is */
	for (size_t i = 0; i < out.n; i++)
		for (int x = 1; x < 256; x += x) {
			out.p[i] ^= (uint8_t)x;
			if (kvi_geometry_parse(&back, &alloc, out.p, out.n) == KVARC_OK &&
			    out.p[out.n - 1] == 0) {
				again.n = 0;
				kvi_geometry_put(&again, &back);
				assert_int_equal(again.n, out.n);
				assert_memory_equal(again.p, out.p, out.n);
			}
			kvi_geometry_free(&back, &alloc);
			out.p[i] ^= (uint8_t)x;
		}
	/* an unknown extension is skipped */
	out.n--;
	kvi_put_bytes(&out, "\1\x09\2xy", 5);
	assert_int_equal(kvi_geometry_parse(&back, &alloc, out.p, out.n), KVARC_OK);
	kvi_geometry_free(&back, &alloc);
	kvi_geometry_free(&copy, &alloc);
	kvi_out_free(&again);
	done(&out);
}

static void test_geometry_limits(void **state)
{
	kvarc_rope rope;
	kvarc_track tracks[2];
	kvarc_tensor t[2];
	kvarc_geometry g;
	(void)state;
#define WRONG(change)                                    \
	do {                                             \
		sample(&g, &rope, tracks, t);            \
		change;                                  \
		assert_non_null(kvi_geometry_wrong(&g)); \
	} while (0)
	WRONG(rope.rotary = 7);
	WRONG(rope.rotary = 0);
	WRONG(rope.pairing = 2);
	WRONG(rope.freq = NULL);
	WRONG(tracks[0].kind = 4);
	WRONG(t[0].layer = 65536);
	WRONG(t[0].kind = 10);
	WRONG(t[0].role = 5);
	WRONG(t[0].dtype = 8);
	WRONG(t[0].flags = 4);
	WRONG(t[0].source_type = 255);
	WRONG(t[0].heads = 17);
	WRONG(t[0].heads = 0);
	WRONG(t[0].channels = 65536);
	WRONG(t[0].channels = 7); /* fewer than the rope turns */
	WRONG(t[0].track = 2);
	WRONG(t[0].rope = 2);
	WRONG(t[0].first_head = 84);
	WRONG(g.n_tracks = 0);
	WRONG(g.tensors = NULL);
#undef WRONG
	assert_int_equal(kvarc_dtype_bytes(KVARC_F32), 4);
	assert_int_equal(kvarc_dtype_bytes(8), 0);
	assert_string_equal(kvarc_dtype_name(KVARC_E4M3), "e4m3");
	assert_null(kvarc_dtype_name(99));
	assert_string_equal(kvarc_kind_name(KVARC_KEY), "key");
	assert_null(kvarc_kind_name(10));
}

static void test_order(void **state)
{
	kvarc_track tracks[2] = { { 0 }, { 0 } };
	kvarc_tensor t[6];
	static const uint8_t layer[6] = { 2, 0, 1, 0, 2, 0 };
	static const uint8_t kind[6] = { 0, 1, 0, 0, 0, 0 };
	static const uint32_t want[6] = { 3, 5, 1, 2, 0, 4 };
	const kvarc_geometry g = { 0, 2, 6, NULL, tracks, t };
	struct kvi_order o;
	struct kvi_order_walk w;
	(void)state;
	for (int i = 0; i < 6; i++)
		t[i] = (kvarc_tensor){
			.layer = layer[i], .kind = kind[i], .dtype = 3, .heads = 3, .channels = 2
		};
	t[4].track = 1;
	assert_int_equal(kvi_order_make(&o, &alloc, &g), KVARC_OK);
	assert_memory_equal(o.tensors, want, sizeof want);
	assert_int_equal(o.first[1], 5);
	kvi_order_begin(&w, &o, 1);
	assert_false(kvi_order_next(&w, &o, &g, 3, 0, 3));
	assert_false(kvi_order_next(&w, &o, &g, 4, 1, 2));
	assert_false(kvi_order_next(&w, &o, &g, 4, 0, 4));
	assert_true(kvi_order_next(&w, &o, &g, 4, 0, 2));
	assert_false(kvi_order_done(&w));
	assert_false(kvi_order_next(&w, &o, &g, 4, 0, 2));
	assert_true(kvi_order_next(&w, &o, &g, 4, 2, 1));
	assert_true(kvi_order_done(&w));
	assert_false(kvi_order_next(&w, &o, &g, 4, 0, 3));
	kvi_order_free(&o, &alloc);
	assert_int_equal(alloc.used, 0);
}

static void test_restore(void **state)
{
	kvarc_track track = { 0 };
	kvarc_tensor t[2] = { { .dtype = KVARC_F16, .heads = 2, .channels = 6 },
		              { .dtype = KVARC_F16, .heads = 2, .channels = 6, .kind = 1 } };
	const kvarc_geometry g = { 0, 1, 2, NULL, &track, t };
	/* a row: 4 bytes of something else of the other, 12 elements */
	struct kvi_area_view views[2] = {
		{ 0, 12, 0, 48, 0, 2 },  /* token-major */
		{ 1, 6, 24, 48, 12, 2 }, /* in two blocks */
	};
	struct kvi_piece pieces[3] = {
		{ .type = KVI_PIECE_LITERAL, .bytes = 10 },
		{ .type = KVI_PIECE_AREA,
		  .bytes = 5 * 48,
		  .n_tokens = 5,
		  .n_views = 2,
		  .views = views },
		{ .type = KVI_PIECE_LITERAL, .bytes = 1 },
	};
	char name[] = "slot.bin";
	struct kvi_restore r = { KVI_ITEM_LLAMA_SEQ, name, 251, 3, pieces };
	struct kvi_restore back;
	struct kvi_out out, again;
	(void)state;
	assert_true(kvi_restore_valid(&r, &g));
	assert_int_equal(kvi_restore_literal_bytes(&r), 11);
	kvi_out_init(&out, &alloc);
	kvi_out_init(&again, &alloc);
	kvi_restore_put(&out, &r);
	assert_int_equal(kvi_restore_parse(&back, &alloc, &g, out.p, out.n), KVARC_OK);
	assert_string_equal(back.name, "slot.bin");
	kvi_restore_put(&again, &back);
	assert_int_equal(again.n, out.n);
	assert_memory_equal(again.p, out.p, out.n);
	kvi_restore_free(&back, &alloc);
	for (size_t n = 0; n < out.n; n++)
		assert_int_equal(kvi_restore_parse(&back, &alloc, &g, out.p, n), KVARC_DATA);
#define WRONG(change, undo)                              \
	do {                                             \
		change;                                  \
		assert_false(kvi_restore_valid(&r, &g)); \
		undo;                                    \
	} while (0)
	WRONG(r.kind = 6, r.kind = 2);
	WRONG(r.file_bytes = 250, r.file_bytes = 251);
	WRONG(pieces[0].bytes = 0, pieces[0].bytes = 10);
	WRONG(pieces[0].type = 2, pieces[0].type = 0);
	WRONG(pieces[1].track = 1, pieces[1].track = 0);
	WRONG(pieces[1].n_tokens = 4, pieces[1].n_tokens = 5);
	WRONG(views[1].offset = 25, views[1].offset = 24);
	WRONG(views[1].token_stride = 49, views[1].token_stride = 48);
	WRONG(views[1].block_elems = 0, views[1].block_elems = 6);
	WRONG(views[1].block_stride = UINT64_MAX, views[1].block_stride = 12);
	WRONG(views[1].block_stride = 14, views[1].block_stride = 12);
	WRONG(views[0].tensor = 2, views[0].tensor = 0);
	WRONG(views[0].elem_stride = UINT64_MAX / 2, views[0].elem_stride = 2);
#undef WRONG
	assert_true(kvi_restore_valid(&r, &g));
	kvi_out_free(&again);
	done(&out);
}

static void test_blob(void **state)
{
	struct kvi_blob b;
	struct kvi_out out;
	(void)state;
	kvi_out_init(&out, &alloc);
	kvi_blob_put_head(&out, 300, 1 << 20);
	assert_false(kvi_blob_parse(&b, out.p, out.n)); /* no bytes */
	kvi_put_bytes(&out, "abc", 3);
	assert_true(kvi_blob_parse(&b, out.p, out.n));
	assert_int_equal(b.item, 300);
	assert_int_equal(b.offset, 1 << 20);
	assert_int_equal(b.bytes, 3);
	assert_memory_equal(b.data, "abc", 3);
	assert_false(kvi_blob_parse(&b, out.p, 1));
	done(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_superblock),        cmocka_unit_test(test_frame),
		cmocka_unit_test(test_frame_types),       cmocka_unit_test(test_packed),
		cmocka_unit_test(test_segment),           cmocka_unit_test(test_chunk_and_params),
		cmocka_unit_test(test_commit_and_footer), cmocka_unit_test(test_index),
		cmocka_unit_test(test_identity),          cmocka_unit_test(test_predictor),
		cmocka_unit_test(test_predictor_model),   cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_geometry_limits),   cmocka_unit_test(test_order),
		cmocka_unit_test(test_restore),           cmocka_unit_test(test_blob),
	};
	kvi_alloc_init(&alloc, NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
