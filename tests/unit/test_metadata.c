/* SPDX-License-Identifier: BSD-3-Clause */
/* test_metadata.c - identity, predictors, geometry, order, restore and blobs to bytes and back */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/commit.h"
#include "format/identity.h"
#include "format/frame_index.h"
#include "format/packed.h"
#include "format/predictor_frame.h"
#include "format/restore.h"
#include "format/segment.h"
#include "format/chunk_order.h"

static struct kvi_alloc alloc;

static void done(struct kvi_out *out)
{
	assert_false(out->failed);
	kvi_out_free(out);
	assert_int_equal(alloc.used, 0);
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
		/* another arithmetic; levels, attention of 12 bits and of 15 */
		out.p[2] ^= 0x80;
		assert_int_equal(parse_predictor((char *)out.p, out.n), KVARC_OK);
		out.p[2] ^= 0x80;
		for (size_t n = 3; n < 6; n++) {
			uint8_t old = out.p[n];
			out.p[n] = n < 4 ? 0x88 : n == 4 ? 0xa0 : 0xc0;
			assert_int_equal(parse_predictor((char *)out.p, out.n), KVARC_DATA);
			out.p[n] = old;
		}
		/* keys of 12 bits by queries of 15 */
		if (i == 1) {
			out.p[4] = 0x80;
			out.p[5] = 0x20;
			assert_int_equal(parse_predictor((char *)out.p, out.n), KVARC_DATA);
			out.p[4] = out.p[5] = 0;
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
		p.wide_weights = i == 0 ? 0xc1 : 0;
		p.wide_activations = i == 0 ? 0x9f : 0;
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
	assert_int_equal(parse_predictor("\2\1\1", 3), KVARC_DATA);
	/* kinds of later versions, and an extension field */
	assert_int_equal(parse_predictor("\3\1x", 3), KVARC_OK);
	assert_int_equal(parse_predictor("\4\0\5\1x", 5), KVARC_OK);
	assert_int_equal(parse_predictor("\4\0\5\2x", 5), KVARC_DATA);
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
	*rope = (kvarc_rope){ .pairing = KVARC_ROPE_INTERLEAVED, .rotary = 8, .freq = freqs };
	tracks[0] = (kvarc_track){ .kind = KVARC_TRACK_SELF, .label = "a" };
	tracks[1] = (kvarc_track){ .kind = KVARC_TRACK_OTHER, .window = UINT32_MAX };
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
	*g = (kvarc_geometry){ .n_ropes = 1,
		               .n_tracks = 2,
		               .n_tensors = 2,
		               .ropes = rope,
		               .tracks = tracks,
		               .tensors = tensors };
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
			if (kvi_geometry_parse(&back, &alloc, out.p, out.n) == KVARC_OK) {
				again.n = 0;
				kvi_geometry_put(&again, &back);
				/* the rest may have become extension fields */
				assert_true(again.n <= out.n);
				assert_memory_equal(again.p, out.p, again.n);
			}
			kvi_geometry_free(&back, &alloc);
			out.p[i] ^= (uint8_t)x;
		}
	/* an unknown extension field is passed over */
	kvi_put_bytes(&out, "\x09\2xy", 4);
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
	WRONG(t[0].layer = 65536);
	WRONG(t[0].dtype = 192);
	WRONG(t[0].flags = 4);
	WRONG(t[0].source_type = 255);
	WRONG(t[0].heads = 17);
	WRONG(t[0].heads = 0);
	WRONG(t[0].channels = 65536);
	WRONG(t[0].channels = 7); /* fewer than the rope turns */
	WRONG(t[0].track = 2);
	WRONG(t[0].rope = 2);
	WRONG(t[0].first_head = 84);
	WRONG(t[0].group = 1);
	WRONG(t[0].belongs_to = 3);
	WRONG((t[0].belongs_to = 1, t[0].group = 1));
	WRONG(g.n_tracks = 0);
	WRONG(g.tensors = NULL);
#undef WRONG
	assert_int_equal(kvarc_dtype_bytes(KVARC_F32), 4);
	assert_int_equal(kvarc_dtype_bytes(8), 1);
	assert_int_equal(kvarc_dtype_bytes(63), 1);
	assert_int_equal(kvarc_dtype_bytes(64), 2);
	assert_int_equal(kvarc_dtype_bytes(191), 4);
	assert_int_equal(kvarc_dtype_bytes(192), 0);
	assert_string_equal(kvarc_dtype_name(KVARC_E4M3), "e4m3");
	assert_string_equal(kvarc_dtype_name(99), "unknown-99");
	assert_string_equal(kvarc_dtype_name(255), "unknown-255");
	assert_null(kvarc_dtype_name(256));
	assert_string_equal(kvarc_kind_name(KVARC_KEY), "key");
	assert_string_equal(kvarc_kind_name(10), "unknown-10");
}

static void test_order(void **state)
{
	kvarc_track tracks[2] = { { 0 }, { 0 } };
	kvarc_tensor t[6];
	static const uint8_t layer[6] = { 2, 0, 1, 0, 2, 0 };
	static const uint8_t kind[6] = { 0, 1, 0, 0, 0, 0 };
	static const uint32_t want[6] = { 3, 5, 1, 2, 0, 4 };
	const kvarc_geometry g = { .n_tracks = 2, .n_tensors = 6, .tracks = tracks, .tensors = t };
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
	const kvarc_geometry g = { .n_tracks = 1, .n_tensors = 2, .tracks = &track, .tensors = t };
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
	WRONG(r.file_bytes = 250, r.file_bytes = 251);
	WRONG(pieces[0].bytes = 0, pieces[0].bytes = 10);
	WRONG(pieces[0].type = 3, pieces[0].type = 0);
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
		cmocka_unit_test(test_identity),        cmocka_unit_test(test_predictor_model),
		cmocka_unit_test(test_predictor),       cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_geometry_limits), cmocka_unit_test(test_order),
		cmocka_unit_test(test_restore),         cmocka_unit_test(test_blob),
	};
	kvi_alloc_init(&alloc, NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
