/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stored.c - segments in a store: keys, reading, what a store lacks (spec frames 12.3) */
#include "stored_util.h"
#include "util/bytes.h"
#include "util/key_hash.h"

/* An archive whose tracks begin with stored segments of `most` tokens, up to half of the track, and
 * whose other tokens it has itself. */
static void make(struct torn *t, const struct cache *c, const char *ns, uint32_t most, bool text,
                 kvarc_writer_options o)
{
	kvarc_writer *w = stored_writer(t, c, ns, o);
	for (uint32_t i = 0; i < c->g.n_tracks; i++) {
		uint8_t chain[16];
		stored_root(c, ns, chain);
		put_stored(w, c, i, 0, (c->n[i] + 1) / 2, most, text, chain);
	}
	for (uint32_t i = 0; i < c->g.n_tracks; i++)
		assert_int_equal(append_tokens(w, c, i, (c->n[i] + 1) / 2, c->n[i]), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
}

/* Chain values and digests are those that archives have, whatever the layout of tensors. */
static void test_keys(void **state)
{
	struct cache c;
	uint8_t chain[16], there[16], packed[16], strided[16];
	(void)state;
	cache_make(&c, 0, 3);
	cache_as_text(&c);
	kvarc_writer_options o = stream_options(1, 0);
	struct memfile f = stream_written(&c, &o);
	kvarc_source source = memfile_source(&f);
	kvarc_reader *r;
	kvarc_stored s;
	unsigned flags;
	const char *const keys[] = { "model", "engine", "weights" };
	const char *const values[] = { "test model", "ignored", "" };
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_chain_root(&c.g, 3, keys, values, chain), KVARC_OK);
	uint64_t t0 = 0, i = 0;
	for (; kvarc_reader_segment_at(r, i, &s, &flags) == KVARC_OK; i++, t0 += s.n) {
		assert_int_equal(flags, 0);
		assert_int_equal(s.t0, t0);
		assert_int_equal(s.left, s.n);
		assert_int_equal(s.bytes, s.n * 256);
		assert_int_equal(
			kvarc_chain_next(chain, 0, s.n, c.ids[0] + t0, c.positions[0] + t0, chain),
			KVARC_OK);
		assert_true(s.has_chain);
		assert_memory_equal(s.chain, chain, 16);
		assert_int_equal(kvarc_reader_chain(r, 0, t0 + s.n, there), KVARC_OK);
		assert_memory_equal(there, chain, 16);
	}
	assert_int_equal(t0, c.n[0]);
	assert_int_equal(kvarc_reader_segment_at(r, 1, &s, NULL), KVARC_OK);
	assert_int_equal(s.t0, 256);
	assert_int_equal(kvarc_reader_segment_at(r, i, &s, NULL), KVARC_END);
	kvarc_reader_close(&r);
	/* [heads][tokens][channels], and channels apart. */
	enum { N = 200 };
	kvarc_view views[16];
	uint8_t *other = calloc(4, N * 32 * 4);
	assert_non_null(other);
	for (int apart = 1; apart <= 2; apart++) {
		for (uint32_t k = 0; k < 4; k++) {
			uint8_t *at = other + (size_t)k * N * 32 * 4;
			for (size_t e = 0; e < (size_t)N * 32; e++) {
				const size_t t = e / 32, h = e % 32 / 16, ch = e % 16;
				memcpy(at + ((h * N + t) * 16 + ch) * 2 * apart, c.data[k] + e * 2,
				       2);
			}
			views[k] = (kvarc_view){ .data = at,
				                 .block_elems = 16,
				                 .elem_stride = 2 * (uint32_t)apart,
				                 .token_stride = 32 * (uint64_t)apart,
				                 .block_stride = 32 * (uint64_t)apart * N };
		}
		assert_int_equal(
			kvarc_content_digest(&c.g, 0, N, c.ids[0], c.positions[0], c.views, packed),
			KVARC_OK);
		assert_int_equal(
			kvarc_content_digest(&c.g, 0, N, c.ids[0], c.positions[0], views, strided),
			KVARC_OK);
		assert_memory_equal(packed, strided, 16);
	}
	assert_int_equal(kvarc_content_digest(&c.g, 0, N, NULL, c.positions[0], views, strided),
	                 KVARC_OK);
	assert_memory_not_equal(packed, strided, 16);
	assert_int_equal(kvarc_content_digest(&c.g, 1, N, NULL, c.positions[0], views, strided),
	                 KVARC_GEOMETRY);
	assert_int_equal(kvarc_content_digest(&c.g, 0, 257, NULL, c.positions[0], views, strided),
	                 KVARC_PROG);
	assert_int_equal(kvarc_chain_next(chain, 0, 0, c.ids[0], c.positions[0], chain),
	                 KVARC_PROG);
	free(other);
	memfile_free(&f);
	cache_free(&c);
}

/* B128 as Python's hashlib.blake2b(digest_size=16) has it, also in parts. */
static void test_key_hash(void **state)
{
	static const struct {
		size_t bytes; /* 0, 1, 2, ... */
		uint8_t digest[16];
	} known[] = {
		{ 0,
		  { 0xca, 0xe6, 0x69, 0x41, 0xd9, 0xef, 0xbd, 0x40, 0x4e, 0x4d, 0x88, 0x75, 0x8e,
		    0xa6, 0x76, 0x70 } },
		{ 1,
		  { 0x70, 0x25, 0xe0, 0x75, 0xd5, 0xe2, 0xf6, 0xcd, 0xe3, 0xcc, 0x05, 0x1a, 0x31,
		    0xf0, 0x76, 0x60 } },
		{ 127,
		  { 0x28, 0xb1, 0x29, 0x6c, 0x7d, 0x48, 0x07, 0x88, 0x3d, 0xe6, 0xee, 0x4e, 0xc0,
		    0x4d, 0xcc, 0x0a } },
		{ 128,
		  { 0xa7, 0x47, 0x87, 0x00, 0x4e, 0xf5, 0x89, 0xe3, 0x11, 0x49, 0x18, 0x39, 0x00,
		    0xd0, 0x29, 0x4a } },
		{ 129,
		  { 0xaa, 0xf1, 0xb0, 0x37, 0x1f, 0x6d, 0x4e, 0xe4, 0x9e, 0xe4, 0xfb, 0x5d, 0xdd,
		    0x9c, 0x49, 0xef } },
		{ 1000,
		  { 0x97, 0x8a, 0x3f, 0x8b, 0x45, 0x50, 0x8a, 0x42, 0xfe, 0x7f, 0x0f, 0x99, 0xca,
		    0xf2, 0xc4, 0x23 } },
	};
	uint8_t text[1000], digest[16];
	(void)state;
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		struct kvi_key_hasher h;
		kvi_store_h128(digest, kvi_b128(text, known[i].bytes));
		assert_memory_equal(digest, known[i].digest, 16);
		kvi_key_hasher_begin(&h);
		for (size_t at = 0, part = 1; at < known[i].bytes;
		     at += part, part = 3 * part % 257) {
			if (part > known[i].bytes - at)
				part = known[i].bytes - at;
			kvi_key_hasher_add(&h, text + at, part);
		}
		kvi_store_h128(digest, kvi_key_hasher_end(&h));
		assert_memory_equal(digest, known[i].digest, 16);
	}
}

/* XXH3 has collisions that anybody can make: where ids are words of its secret, the next ones are
 * added up and no more. As keys of stores such texts are two. */
static void test_chosen_ids(void **state)
{
	enum { N = 200, IDS_AT = 44 }; /* label, value before, track, a run of 200 positions */
	static const struct {
		size_t id;
		uint32_t word;
	} secret[] = { { (64 - IDS_AT) / 4, 0x2c81017c }, { (128 - IDS_AT) / 4, 0xe96dd4de } };
	int32_t ids[2][N], positions[N];
	const uint8_t before[16] = { 1 };
	uint8_t chain[2][16], want[16], text[2][IDS_AT + 4 * N];
	(void)state;
	for (int i = 0; i < N; i++) {
		positions[i] = i;
		ids[0][i] = 1000 + 7 * i;
	}
	for (int i = 0; i < 2; i++)
		ids[0][secret[i].id] = (int32_t)secret[i].word;
	memcpy(ids[1], ids[0], sizeof ids[0]);
	ids[1][secret[0].id + 1] += 29000;
	ids[1][secret[1].id + 1] -= 29000;
	for (int i = 0; i < 2; i++) {
		struct kvi_alloc alloc;
		struct kvi_out out;
		kvi_alloc_init(&alloc, NULL, 0);
		kvi_out_init(&out, &alloc);
		kvi_put_bytes(&out, "kvarc chain link", 16);
		kvi_put_bytes(&out, before, 16);
		kvi_put64(&out, 0);
		kvi_put_varint(&out, 1);
		kvi_put_zigzag(&out, 0);
		kvi_put_varint(&out, N);
		assert_int_equal(out.n, IDS_AT);
		for (int k = 0; k < N; k++)
			kvi_put32(&out, (uint32_t)ids[i][k]);
		memcpy(text[i], out.p, sizeof text[i]);
		kvi_out_free(&out);
		assert_int_equal(kvarc_chain_next(before, 0, N, ids[i], positions, chain[i]),
		                 KVARC_OK);
		kvi_store_h128(want, kvi_b128(text[i], sizeof text[i]));
		assert_memory_equal(chain[i], want, 16);
	}
	assert_true(kvi_h128_equal(kvi_h128(text[0], sizeof text[0]),
	                           kvi_h128(text[1], sizeof text[1])));
	assert_memory_not_equal(chain[0], chain[1], 16);
}

/* In order, by range, from a pipe; verified. */
static void test_read(void **state)
{
	static const int numbers[] = { 0, 1, 2, 3, 5, 6 };
	(void)state;
	for (int k = 0; k < 24; k++) {
		const bool text = k & 1;
		struct cache c, back;
		struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
		kvarc_state how;
		cache_make(&c, numbers[k % 6], (uint64_t)k);
		if (text)
			cache_as_text(&c);
		struct shelf s = SHELF(&c);
		s.ns = k & 2 ? "mine" : "";
		make(&t, &c, s.ns, k % 3 ? 100 : 33, text, stream_options(k & 1, (unsigned)k % 3));
		kvarc_reader_options o = shelf_options(&s, (unsigned)k % 3);
		kvarc_error e = { 0 };
		o.common.error = &e;
		o.common.overlap = k % 5 == 4;
		kvarc_ret ret = cache_verify(&t.f, &o);
		if (ret)
			fail_msg("%d: %s: %s", k, kvarc_strerror(ret), e.text);
		cache_make_empty(&back, &c);
		s.asked = 0;
		assert_int_equal(cache_read_seq(&back, &t.f, &o, &how), KVARC_OK);
		assert_int_equal(how, KVARC_STATE_CLOSED);
		assert_true(cache_equal(&c, &back));
		cache_free(&back);
		cache_make_empty(&back, &c);
		s.asked = 0;
		assert_int_equal(cache_read_range(&back, &t.f, &o), KVARC_OK);
		assert_true(cache_equal(&c, &back));
		cache_free(&back);
		cache_make_empty(&back, &c);
		s.asked = 0;
		t.f.pipe = true;
		assert_int_equal(cache_read_seq(&back, &t.f, &o, &how), KVARC_OK);
		assert_true(cache_equal(&c, &back));
		t.f.pipe = false;
		cache_free(&back);
		torn_free(&t);
		cache_free(&c);
	}
}

/* What info and the list of segments say; layer by layer asks once for each of two segments. */
static void test_layers(void **state)
{
	struct cache c, back;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_info info;
	kvarc_stored x;
	kvarc_reader *r;
	unsigned flags;
	(void)state;
	cache_make(&c, 0, 9);
	cache_as_text(&c);
	struct shelf s = SHELF(&c);
	make(&t, &c, "", 200, true, stream_options(1, 0));
	kvarc_reader_options o = shelf_options(&s, 0);
	kvarc_source source = torn_source(&t);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	assert_int_equal(info.stored_tokens, 300);
	assert_int_equal(info.segments, 4);
	assert_int_equal(info.chunks, 8);
	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(kvarc_reader_segment_at(r, i, &x, &flags), KVARC_OK);
		assert_int_equal(flags, i < 2 ? KVARC_SEGMENT_STORED : 0);
		assert_int_equal(x.n, i == 0 ? 200 : i == 1 ? 100 : i == 2 ? 256 : 44);
		assert_int_equal(x.bytes, x.n * 256);
	}
	assert_int_equal(s.asked, 0);
	cache_make_empty(&back, &c);
	for (uint32_t layer = 0; layer < 2; layer++) {
		kvarc_range range = KVARC_RANGE_ALL(0);
		range.layer0 = layer;
		range.n_layers = 1;
		assert_int_equal(kvarc_reader_read(r, &range, back.views), KVARC_OK);
	}
	assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, 600, back.ids[0], back.positions[0]),
	                 KVARC_OK);
	assert_true(cache_equal(&c, &back));
	assert_int_equal(s.asked, 2);
	/* Some tokens, by callback and into views. */
	for (uint64_t t0 = 150; t0 < 350; t0 += 37) {
		const kvarc_range range = { .n_layers = UINT32_MAX, .t0 = t0, .n = 90 };
		kvarc_view views[16];
		cache_free(&back);
		cache_make_empty(&back, &c);
		assert_int_equal(kvarc_reader_read_deliver(r, &range, cache_deliver, &back),
		                 KVARC_OK);
		for (size_t i = 0; i < c.g.n_tensors; i++)
			assert_memory_equal(back.data[i] + t0 * 64, c.data[i] + t0 * 64, 90 * 64);
		cache_free(&back);
		cache_make_empty(&back, &c);
		cache_views_at(&back, t0, views);
		assert_int_equal(kvarc_reader_read(r, &range, views), KVARC_OK);
		for (size_t i = 0; i < c.g.n_tensors; i++)
			assert_memory_equal(back.data[i] + t0 * 64, c.data[i] + t0 * 64, 90 * 64);
	}
	cache_free(&back);
	kvarc_reader_close(&r);
	/* Short segments stay while memory allows it. */
	struct torn shorter = { .fail_at = -1, .f = { .fail_at = -1 } };
	make(&shorter, &c, "", 60, true, stream_options(1, 0));
	source = torn_source(&shorter);
	s.asked = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	cache_make_empty(&back, &c);
	for (uint32_t layer = 0; layer < 2; layer++) {
		kvarc_range range = KVARC_RANGE_ALL(0);
		range.layer0 = layer;
		range.n_layers = 1;
		range.n = 300;
		assert_int_equal(kvarc_reader_read(r, &range, back.views), KVARC_OK);
	}
	for (size_t i = 0; i < c.g.n_tensors; i++)
		assert_memory_equal(back.data[i], c.data[i], 300 * 64);
	assert_int_equal(s.asked, 5);
	kvarc_reader_close(&r);
	cache_free(&back);
	torn_free(&shorter);
	/* From a pipe each segment comes once. */
	kvarc_segment segment;
	uint64_t n = 0;
	t.f.pipe = true;
	source = memfile_source(&t.f);
	s.asked = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	for (; kvarc_reader_next_segment(r, &segment) == KVARC_OK; n += segment.n)
		assert_int_equal(segment.t0, n);
	assert_int_equal(n, 600);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	assert_int_equal(info.segments, 4);
	assert_int_equal(info.stored_tokens, 300);
	assert_int_equal(s.asked, 2);
	kvarc_reader_close(&r);
	torn_free(&t);
	cache_free(&c);
}

/* What the store lacks or has otherwise is STORE, names the key, and nothing of it is given out;
 * the rest can be read, and so can all of it once the store has it. */
static void test_lacks(void **state)
{
	struct cache c, back;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	(void)state;
	cache_make(&c, 0, 9);
	make(&t, &c, "", 200, false, stream_options(1, 0));
	for (int k = 0; k < 6; k++) {
		struct shelf s = SHELF(&c);
		kvarc_reader_options o = shelf_options(&s, (unsigned)k % 2);
		kvarc_source source = torn_source(&t);
		kvarc_error e = { 0 };
		kvarc_range range = KVARC_RANGE_ALL(0);
		kvarc_stored x;
		kvarc_reader *r;
		o.common.error = &e;
		o.stored_read = k == 0 ? NULL : shelf_read;
		s.gone = k == 1 ? 200 : UINT64_MAX;
		s.wrong = k >= 2 ? 200 : UINT64_MAX;
		s.wrong_of = k % 3;
		s.fails = false;
		if (k == 5) {
			s.wrong = UINT64_MAX;
			s.no_ids = true; /* and the digest is of some */
		}
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		assert_int_equal(kvarc_reader_segment_at(r, k == 0 || k == 5 ? 0 : 1, &x, NULL),
		                 KVARC_OK);
		cache_make_empty(&back, &c);
		assert_int_equal(kvarc_reader_read(r, &range, back.views), KVARC_STORE);
		assert_int_equal(e.code, KVARC_STORE);
		assert_int_equal(e.reason, k == 0   ? KVARC_REASON_NO_STORE
		                           : k == 1 ? KVARC_REASON_STORE_LACKS
		                                    : KVARC_REASON_STORE_DIFFERS);
		assert_memory_equal(e.digest, x.digest, 16);
		assert_non_null(strstr(e.text, "in a store"));
		for (size_t i = 0; i < c.g.n_tensors; i++)
			for (size_t b = 200 * 64; b < 300 * 64; b++)
				assert_int_equal(back.data[i][b], 0xa5);
		assert_int_equal(kvarc_reader_read_tokens(r, 0, 250, 1, back.ids[0], NULL),
		                 KVARC_STORE);
		/* The archive's own. */
		range.t0 = 300;
		kvarc_view views[16];
		cache_views_at(&back, 300, views);
		assert_int_equal(kvarc_reader_read(r, &range, views), KVARC_OK);
		assert_memory_equal(back.data[0] + 300 * 64, c.data[0] + 300 * 64, 300 * 64);
		assert_int_equal(cache_verify(&t.f, &o), KVARC_STORE);
		if (k) {
			s.gone = s.wrong = UINT64_MAX;
			s.no_ids = false;
			range.t0 = 0;
			assert_int_equal(kvarc_reader_read(r, &range, back.views), KVARC_OK);
			assert_memory_equal(back.data[1], c.data[1], 600 * 64);
		}
		kvarc_reader_close(&r);
		cache_free(&back);
	}
	/* In order, the error stays. */
	struct shelf s = SHELF(&c);
	kvarc_reader_options o = shelf_options(&s, 0);
	kvarc_source source = torn_source(&t);
	kvarc_segment segment;
	kvarc_reader *r;
	s.gone = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	assert_int_equal(kvarc_reader_next_segment(r, &segment), KVARC_STORE);
	assert_int_equal(kvarc_reader_next_segment(r, &segment), KVARC_STORE);
	kvarc_reader_close(&r);
	/* A store that fails is not one that lacks something. */
	s.fails = true;
	kvarc_range range = KVARC_RANGE_ALL(0);
	cache_make_empty(&back, &c);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	assert_int_equal(kvarc_reader_read(r, &range, back.views), KVARC_IO);
	kvarc_reader_close(&r);
	cache_free(&back);
	torn_free(&t);
	cache_free(&c);
}

/* Segments without ids; the digest says so. */
static void test_no_ids(void **state)
{
	struct cache c, back;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_stored x = KVARC_STORED_INIT;
	kvarc_segment segment;
	kvarc_reader *r;
	(void)state;
	cache_make(&c, 5, 1);
	kvarc_writer *w = stored_writer(&t, &c, "", stream_options(1, 0));
	x.n = 40;
	x.bytes = 40 * 12;
	assert_int_equal(kvarc_content_digest(&c.g, 0, 40, NULL, c.positions[0], c.views, x.digest),
	                 KVARC_OK);
	assert_int_equal(kvarc_writer_append_stored(w, 1, &x, NULL, c.positions[0]), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	struct shelf s = SHELF(&c);
	kvarc_reader_options o = shelf_options(&s, 0);
	kvarc_source source = torn_source(&t);
	for (int k = 0; k < 2; k++) {
		s.no_ids = k; /* whatever the store leaves there */
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		assert_int_equal(kvarc_reader_next_segment(r, &segment), KVARC_OK);
		assert_null(segment.ids);
		assert_memory_equal(segment.positions, c.positions[0], 160);
		cache_make_empty(&back, &c);
		assert_int_equal(kvarc_reader_segment_deliver(r, cache_deliver, &back), KVARC_OK);
		assert_memory_equal(back.data[0], c.data[0], 40 * 8);
		assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, 1, back.ids[0], NULL),
		                 KVARC_OPTIONS);
		cache_free(&back);
		kvarc_reader_close(&r);
	}
	torn_free(&t);
	cache_free(&c);
}

/* A segment needs memory as a whole; older ones make way. */
static void test_memory(void **state)
{
	struct cache c, back;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_error e = { 0 };
	kvarc_reader *r;
	(void)state;
	cache_make(&c, 3, 1); /* 2,560 bytes per token */
	make(&t, &c, "", 100, false, stream_options(1, 0));
	struct shelf s = SHELF(&c);
	kvarc_reader_options o = shelf_options(&s, 0);
	kvarc_source source = torn_source(&t);
	o.common.error = &e;
	o.common.memlimit = 240000;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	cache_make_empty(&back, &c);
	assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, 1, back.ids[0], NULL), KVARC_MEMLIMIT);
	assert_true(e.bytes_needed > 256000);
	assert_int_equal(s.asked, 0);
	kvarc_reader_close(&r);
	/* Where one fits, the next one does, too: the first makes way. */
	kvarc_ret ret = KVARC_MEMLIMIT;
	range.n = 100;
	for (o.common.memlimit = 300000; ret; o.common.memlimit += 4096) {
		assert_true(o.common.memlimit < 8000000);
		s.asked = 0;
		if (kvarc_reader_open(&r, &source, &o))
			continue;
		ret = kvarc_reader_read(r, &range, back.views);
		assert_true(ret == KVARC_OK || ret == KVARC_MEMLIMIT);
		kvarc_reader_close(&r);
	}
	range.n = 150;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	assert_int_equal(kvarc_reader_read(r, &range, back.views), KVARC_OK);
	kvarc_reader_close(&r);
	assert_memory_equal(back.data[0], c.data[0], 150 * 2560);
	cache_free(&back);
	torn_free(&t);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),       cmocka_unit_test(test_key_hash),
		cmocka_unit_test(test_chosen_ids), cmocka_unit_test(test_read),
		cmocka_unit_test(test_layers),     cmocka_unit_test(test_lacks),
		cmocka_unit_test(test_no_ids),     cmocka_unit_test(test_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
