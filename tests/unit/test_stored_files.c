/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stored_files.c - archives with parts in a store: rewinds, appends, cuts, damage, failures */
#include <stdio.h>

#include "stored_util.h"

/* The state holds exactly the first n tokens of track 0 of a cache: verified, in order, by range.
 */
static void check(struct torn *t, struct shelf *s, uint64_t n, uint64_t checkpoint)
{
	const struct cache *c = s->c;
	struct cache part = *c, back;
	kvarc_reader_options o = shelf_options(s, 0);
	kvarc_error e = { 0 };
	kvarc_state how;
	o.checkpoint = checkpoint;
	o.common.error = &e;
	part.n[0] = n;
	s->asked = 0;
	kvarc_ret ret = cache_verify(&t->f, &o);
	if (ret)
		fail_msg("verify: %s: %s", kvarc_strerror(ret), e.text);
	for (int k = 0; k < 2; k++) {
		cache_make_empty(&back, &part);
		s->asked = 0;
		ret = k ? cache_read_range(&back, &t->f, &o)
		        : cache_read_seq(&back, &t->f, &o, &how);
		if (ret)
			fail_msg("%s: %s", kvarc_strerror(ret), e.text);
		assert_true(cache_equal(&part, &back));
		cache_free(&back);
	}
	s->asked = 0;
}

/* Whether the store was asked for a segment that begins at a token. */
static bool was_asked(const struct shelf *s, uint64_t t0)
{
	for (unsigned i = 0; i < s->asked; i++)
		if (s->asked_t0[i] == t0)
			return true;
	return false;
}

/* A rewind into a stored segment cuts it, in the same writer and in one that appends, with and
 * without the store; what is replaced need not be in the store; checkpoints still show it. */
static void test_rewind(void **state)
{
	(void)state;
	for (int k = 0; k < 6; k++) {
		const bool again = k & 1, text = k < 4;
		struct cache c, other;
		struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
		uint8_t chain[16];
		uint64_t number;
		kvarc_stored x;
		unsigned flags;
		kvarc_reader *r;
		cache_make(&c, 0, 1);
		cache_make(&other, 0, 2);
		if (text) {
			cache_as_text(&c);
			cache_as_text(&other);
		}
		struct shelf s = SHELF(&c);
		kvarc_writer_options wo = stream_options(1, 0);
		kvarc_writer *w = stored_writer(&t, &c, "", wo);
		stored_root(&c, "", chain);
		put_stored(w, &c, 0, 0, 300, 100, text, chain);
		assert_int_equal(kvarc_writer_checkpoint(w, "first", 0, &number), KVARC_OK);
		if (again) {
			assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
			wo.stored_read = shelf_read;
			wo.stored_opaque = &s;
			w = append_open(&t, &wo);
		}
		assert_int_equal(kvarc_writer_tokens(w, 0), 300);
		assert_int_equal(kvarc_writer_rewind(w, 0, 150), KVARC_OK);
		/* From token 150 on, another text. */
		struct cache mixed;
		cache_make(&mixed, 0, 1);
		if (text)
			cache_as_text(&mixed);
		cache_mix(&mixed, &other, 0, 150);
		assert_int_equal(append_tokens(w, &mixed, 0, 150, 600), KVARC_OK);
		assert_int_equal(kvarc_writer_checkpoint(w, "second", 0, &number), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		check(&t, &s, 300, 1);
		/* Stored ones are of the first text; those at tokens 0 and 100 alone are needed. */
		s.gone = 200;
		kvarc_reader_options o = shelf_options(&s, 0);
		kvarc_source source = torn_source(&t);
		struct cache back;
		kvarc_state how;
		s.asked = 0;
		assert_int_equal(cache_verify(&t.f, &o), KVARC_OK);
		assert_true(was_asked(&s, 100) && !was_asked(&s, 200));
		cache_make_empty(&back, &mixed);
		assert_int_equal(cache_read_seq(&back, &t.f, &o, &how), KVARC_OK);
		assert_true(cache_equal(&mixed, &back));
		cache_free(&back);
		cache_make_empty(&back, &mixed);
		assert_int_equal(cache_read_range(&back, &t.f, &o), KVARC_OK);
		assert_true(cache_equal(&mixed, &back));
		cache_free(&back);
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		assert_int_equal(kvarc_reader_segment_at(r, 1, &x, &flags), KVARC_OK);
		assert_int_equal(flags, KVARC_SEGMENT_STORED | KVARC_SEGMENT_CUT);
		assert_int_equal(x.n, 100);
		assert_int_equal(x.left, 50);
		assert_int_equal(kvarc_reader_segment_at(r, 2, &x, &flags), KVARC_OK);
		assert_int_equal(x.t0, 150);
		assert_int_equal(flags, 0);
		assert_int_equal(x.has_chain, text);
		kvarc_info info;
		assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
		assert_int_equal(info.stored_tokens, 150);
		kvarc_reader_close(&r);
		cache_free(&mixed);
		cache_free(&other);
		cache_free(&c);
		torn_free(&t);
	}
}

/* A segment that was cut and then replaced: what cut it is verified without it. */
static void test_gone(void **state)
{
	struct cache c;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	uint8_t chain[16];
	(void)state;
	cache_make(&c, 0, 1);
	cache_as_text(&c);
	kvarc_writer *w = stored_writer(&t, &c, "", stream_options(1, 0));
	stored_root(&c, "", chain);
	put_stored(w, &c, 0, 0, 200, 100, true, chain);
	assert_int_equal(kvarc_writer_rewind(w, 0, 150), KVARC_OK);
	assert_int_equal(append_tokens(w, &c, 0, 150, 300), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	assert_int_equal(kvarc_writer_rewind(w, 0, 50), KVARC_OK);
	assert_int_equal(append_tokens(w, &c, 0, 50, 600), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	struct shelf s = SHELF(&c);
	s.gone = 100;
	check(&t, &s, 600, 0);
	torn_free(&t);
	cache_free(&c);
}

/* Appends behind stored segments, level by level, with the store and without: then positions must
 * be given, and a rewind into them is STORE. */
static void test_append(void **state)
{
	(void)state;
	for (int k = 0; k < 4; k++) {
		const bool store = k & 1;
		struct cache c;
		struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
		uint8_t chain[16], there[16];
		kvarc_view views[16];
		kvarc_reader *r;
		cache_make(&c, 0, 1);
		cache_as_text(&c);
		struct shelf s = SHELF(&c);
		kvarc_writer_options wo = stream_options(k / 2, 0);
		kvarc_writer *w = stored_writer(&t, &c, "", wo);
		stored_root(&c, "", chain);
		put_stored(w, &c, 0, 0, 200, 100, true, chain);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		wo.stored_read = store ? shelf_read : NULL;
		wo.stored_opaque = &s;
		w = append_open(&t, &wo);
		cache_views_at(&c, 200, views);
		if (!store)
			assert_int_equal(
				kvarc_writer_append(w, 0, 100, c.ids[0] + 200, NULL, views),
				KVARC_PROG);
		assert_int_equal(kvarc_writer_append(w, 0, 100, c.ids[0] + 200,
		                                     store ? NULL : c.positions[0] + 200, views),
		                 KVARC_OK);
		put_stored(w, &c, 0, 300, 100, 256, false, chain);
		assert_int_equal(append_tokens(w, &c, 0, 400, 600), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		check(&t, &s, 600, 0);
		/* The chain continues behind a stored segment that has one, not behind others. */
		kvarc_source source = torn_source(&t);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		assert_int_equal(kvarc_reader_chain(r, 0, 300, there), KVARC_OK);
		assert_int_equal(kvarc_chain_next(chain, 0, 100, c.ids[0] + 200,
		                                  c.positions[0] + 200, chain),
		                 KVARC_OK);
		assert_memory_equal(chain, there, 16);
		assert_int_equal(kvarc_reader_chain(r, 0, 600, there), KVARC_END);
		kvarc_reader_close(&r);
		w = append_open(&t, &wo);
		assert_int_equal(kvarc_writer_rewind(w, 0, 150), store ? KVARC_OK : KVARC_STORE);
		kvarc_writer_abort(&w);
		torn_free(&t);
		cache_free(&c);
	}
}

/* Archives that were not closed, or cut inside a frame: up to each commit, and continued. */
static void test_cut(void **state)
{
	struct cache c;
	struct torn whole = { .fail_at = -1, .f = { .fail_at = -1 } }, t;
	uint8_t chain[16];
	(void)state;
	cache_make(&c, 5, 1);
	cache_as_text(&c);
	struct shelf s = SHELF(&c);
	kvarc_writer_options wo = stream_options(1, 0);
	kvarc_writer *w = stored_writer(&whole, &c, "", wo);
	stored_root(&c, "", chain);
	put_stored(w, &c, 0, 0, 10, 5, true, chain);
	put_stored(w, &c, 0, 10, 8, 5, true, chain);
	assert_int_equal(append_tokens(w, &c, 0, 18, 40), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	wo.stored_read = shelf_read;
	wo.stored_opaque = &s;
	for (size_t n = whole.commits[0]; n < whole.f.n; n += 7) {
		const uint64_t tokens = n >= whole.commits[2]   ? 40
		                        : n >= whole.commits[1] ? 18
		                                                : 10;
		torn_copy(&t, &whole.f, n);
		check(&t, &s, tokens, 0);
		w = append_open(&t, &wo);
		assert_int_equal(kvarc_writer_tokens(w, 0), tokens);
		assert_int_equal(append_tokens(w, &c, 0, tokens, 40), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		check(&t, &s, 40, 0);
		torn_free(&t);
	}
	torn_free(&whole);
	cache_free(&c);
}

/* A plain archive comes of a cut and of a compaction. */
static void test_plain(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++) {
		struct cache c;
		struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
		struct torn plain = { .fail_at = -1, .f = { .fail_at = -1 } };
		const uint64_t n = 500;
		uint8_t chain[16];
		kvarc_range range = KVARC_RANGE_ALL(0);
		kvarc_reader *r;
		cache_make(&c, 0, 1);
		cache_as_text(&c);
		struct shelf s = SHELF(&c);
		kvarc_writer_options wo = stream_options(1, 0);
		kvarc_writer *w = stored_writer(&t, &c, "", wo);
		stored_root(&c, "", chain);
		put_stored(w, &c, 0, 0, 300, 10, true, chain);
		assert_int_equal(append_tokens(w, &c, 0, 300, 500), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		kvarc_reader_options o = shelf_options(&s, 0);
		kvarc_source source = torn_source(&t);
		kvarc_sink sink = torn_sink(&plain);
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		assert_int_equal(k ? kvarc_compact(r, &sink, &wo, NULL)
		                   : kvarc_cut(r, &range, &sink, &wo, NULL),
		                 KVARC_OK);
		kvarc_reader_close(&r);
		assert_true(s.asked <= 3 * 30 + 1); /* not for each tensor */
		append_check(&plain.f, &c, &n, 0);
		/* Without the store neither comes of it. */
		o.stored_read = NULL;
		torn_free(&plain);
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		assert_int_equal(k ? kvarc_compact(r, &sink, &wo, NULL)
		                   : kvarc_cut(r, &range, &sink, &wo, NULL),
		                 KVARC_STORE);
		kvarc_reader_close(&r);
		torn_free(&plain);
		torn_free(&t);
		cache_free(&c);
	}
}

/* More segments than a frame takes. */
static void test_frames(void **state)
{
	enum { N = 5000 };
	struct cache c;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_stored *x = calloc(N, sizeof *x), got;
	kvarc_reader *r;
	kvarc_info info;
	(void)state;
	assert_non_null(x);
	cache_make(&c, 5, 1);
	kvarc_writer *w = stored_writer(&t, &c, "", stream_options(1, 0));
	for (uint32_t i = 0; i < N; i++) {
		x[i] = (kvarc_stored){ .n = 1, .t0 = i, .bytes = 12 };
		x[i].digest[0] = (uint8_t)i;
	}
	assert_int_equal(kvarc_writer_append_stored(w, N, x, NULL, NULL), KVARC_OK);
	assert_int_equal(t.n_commits, 2);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	kvarc_source source = torn_source(&t);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_tokens(r, 0), N);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	assert_int_equal(info.stored_tokens, N);
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(kvarc_reader_segment_at(r, i, &got, NULL), KVARC_OK);
		assert_memory_equal(got.digest, x[i].digest, 16);
	}
	kvarc_reader_close(&r);
	free(x);
	torn_free(&t);
	cache_free(&c);
}

/* What does not fit is refused, and nothing is written. */
static void test_refused(void **state)
{
	struct cache c;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	uint8_t chain[16], wrong[16] = { 1 };
	kvarc_stored good, x;
	(void)state;
	cache_make(&c, 0, 1);
	cache_as_text(&c);
	kvarc_writer *w = stored_writer(&t, &c, "", stream_options(1, 0));
	stored_root(&c, "", chain);
	assert_int_equal(stored_segments(&c, 0, 0, 100, 100, true, chain, &good), 1);
	const size_t bytes = t.f.n;
	for (int k = 0; k < 8; k++) {
		x = good;
		const kvarc_ret want = k == 6 ? KVARC_PROG : KVARC_GEOMETRY;
		x.track = k == 0;
		x.t0 = k == 1;
		x.n += k == 2;
		x.bytes += k == 3;
		if (k == 4)
			memcpy(x.chain, wrong, 16);
		x.n = k == 5 ? 0 : x.n;
		x.reserved[3] = k == 6;
		assert_int_equal(kvarc_writer_append_stored(w, 1, &x, k == 7 ? NULL : c.ids[0],
		                                            c.positions[0]),
		                 want);
		assert_int_equal(t.f.n, bytes);
	}
	assert_int_equal(kvarc_writer_append_stored(w, 1, &good, c.ids[0], c.positions[0]),
	                 KVARC_OK);
	kvarc_writer_abort(&w);
	torn_free(&t);
	/* Not without the flag, neither in a new archive nor behind one. */
	kvarc_writer_options o = stream_options(1, 0);
	kvarc_sink sink = torn_sink(&t);
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	assert_int_equal(kvarc_writer_append_stored(w, 1, &good, c.ids[0], c.positions[0]),
	                 KVARC_PROG);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	o.flags |= KVARC_WRITE_STORED;
	w = append_open(&t, &o);
	assert_int_equal(kvarc_writer_append_stored(w, 1, &good, c.ids[0], c.positions[0]),
	                 KVARC_PROG);
	kvarc_writer_abort(&w);
	torn_free(&t);
	cache_free(&c);
}

/* A small archive with all of it: stored, cut, replaced, own. */
static void make_small(struct torn *t, const struct cache *c)
{
	uint8_t chain[16];
	kvarc_writer *w = stored_writer(t, c, "ns", stream_options(1, 0));
	stored_root(c, "ns", chain);
	put_stored(w, c, 0, 0, 20, 10, true, chain);
	assert_int_equal(append_tokens(w, c, 0, 20, 25), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	assert_int_equal(kvarc_writer_rewind(w, 0, 15), KVARC_OK);
	assert_int_equal(append_tokens(w, c, 0, 15, 40), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
}

/* No byte can be changed without a verifier's notice, and no reader gives out wrong elements. */
static void test_flips(void **state)
{
	struct cache c, back;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	(void)state;
	cache_make(&c, 5, 7);
	cache_as_text(&c);
	make_small(&t, &c);
	struct shelf s = SHELF(&c);
	s.ns = NULL; /* IDENTITY may be damaged, too */
	for (size_t i = 0; i < t.f.n; i++) {
		kvarc_reader_options o = shelf_options(&s, 0);
		kvarc_state how;
		t.f.p[i] ^= (uint8_t)(1u << (i % 8));
		s.asked = 0;
		const kvarc_ret verified = cache_verify(&t.f, &o);
		if (i < t.commits[t.n_commits - 1]) /* else it is one that was cut */
			assert_int_not_equal(verified, KVARC_OK);
		cache_make_empty(&back, &c);
		s.asked = 0;
		if (cache_read_range(&back, &t.f, &o) == KVARC_OK)
			assert_true(cache_equal(&c, &back));
		cache_free(&back);
		cache_make_empty(&back, &c);
		t.f.pipe = true;
		s.asked = 0;
		assert_int_not_equal(cache_read_seq(&back, &t.f, &o, &how), KVARC_OK);
		t.f.pipe = false;
		cache_free(&back);
		/* Salvage ends well, whatever it finds. */
		kvarc_source source = torn_source(&t);
		kvarc_segment segment;
		kvarc_reader *r;
		o.flags = KVARC_READ_SALVAGE;
		s.asked = 0;
		if (kvarc_reader_open(&r, &source, &o) == KVARC_OK) {
			cache_make_empty(&back, &c);
			while (kvarc_reader_next_segment(r, &segment) == KVARC_OK)
				if (kvarc_reader_segment_deliver(r, cache_deliver, &back))
					break;
			cache_free(&back);
			kvarc_reader_close(&r);
		}
		t.f.p[i] ^= (uint8_t)(1u << (i % 8));
	}
	torn_free(&t);
	cache_free(&c);
}

/* Salvage gives what the store has, and the good frames of the archive. */
static void test_salvage(void **state)
{
	struct cache c, back;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_reader *r;
	kvarc_segment segment;
	kvarc_ret ret;
	(void)state;
	cache_make(&c, 5, 7);
	cache_as_text(&c);
	make_small(&t, &c);
	struct shelf s = SHELF(&c);
	s.ns = "ns";
	kvarc_reader_options o = shelf_options(&s, 0);
	o.flags = KVARC_READ_SALVAGE;
	t.f.n -= 100; /* footer and index */
	kvarc_source source = torn_source(&t);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	cache_make_empty(&back, &c);
	uint64_t n = 0;
	while ((ret = kvarc_reader_next_segment(r, &segment)) == KVARC_OK) {
		assert_memory_equal(segment.positions, c.positions[0] + segment.t0, 4 * segment.n);
		n += segment.n;
		assert_int_equal(kvarc_reader_segment_deliver(r, cache_deliver, &back), KVARC_OK);
	}
	assert_int_equal(ret, KVARC_END);
	assert_int_equal(n, 40);
	assert_memory_equal(back.data[0], c.data[0], 40 * 8);
	assert_memory_equal(back.data[1], c.data[1], 40 * 4);
	cache_free(&back);
	kvarc_reader_close(&r);
	torn_free(&t);
	cache_free(&c);
}

/* Memory fails at every allocation: an error, and nothing is lost. */
static void test_allocations(void **state)
{
	struct cache c, back;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	(void)state;
	cache_make(&c, 5, 7);
	cache_as_text(&c);
	make_small(&t, &c);
	struct shelf s = SHELF(&c);
	s.ns = "ns";
	for (int range = 0; range < 2; range++)
		for (long at = 0;; at++) {
			struct counting counting = { .fail_at = at, .sticky = at & 1 };
			kvarc_allocator a = counting_allocator(&counting);
			kvarc_reader_options o = shelf_options(&s, 0);
			kvarc_state how;
			o.common.allocator = &a;
			cache_make_empty(&back, &c);
			s.asked = 0;
			kvarc_ret ret = range ? cache_read_range(&back, &t.f, &o)
			                      : cache_read_seq(&back, &t.f, &o, &how);
			assert_int_equal(counting.held, 0);
			bool done = counting.calls <= at;
			if (ret == KVARC_OK)
				assert_true(cache_equal(&c, &back));
			else
				assert_int_equal(ret, KVARC_MEM);
			cache_free(&back);
			if (done)
				break;
		}
	for (long at = 0;; at++) {
		struct counting counting = { .fail_at = at };
		kvarc_allocator a = counting_allocator(&counting);
		kvarc_writer_options o = stream_options(1, 0);
		kvarc_stored x[4];
		kvarc_writer *w;
		uint8_t chain[16];
		o.common.allocator = &a;
		o.flags |= KVARC_WRITE_STORED;
		torn_free(&t);
		kvarc_sink sink = torn_sink(&t);
		stored_root(&c, "", chain);
		kvarc_ret ret = kvarc_writer_open(&w, &sink, &o);
		if (!ret)
			ret = kvarc_writer_set_geometry(w, &c.g);
		if (!ret)
			ret = kvarc_writer_append_stored(
				w, stored_segments(&c, 0, 0, 40, 10, false, chain, x), x, c.ids[0],
				NULL);
		if (ret)
			kvarc_writer_abort(&w);
		else
			ret = kvarc_writer_close(&w);
		assert_int_equal(counting.held, 0);
		assert_true(ret == KVARC_OK || ret == KVARC_MEM);
		if (counting.calls <= at)
			break;
	}
	torn_free(&t);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rewind),  cmocka_unit_test(test_gone),
		cmocka_unit_test(test_cut),     cmocka_unit_test(test_append),
		cmocka_unit_test(test_plain),   cmocka_unit_test(test_frames),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_flips),
		cmocka_unit_test(test_salvage), cmocka_unit_test(test_allocations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
