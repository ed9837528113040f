/* SPDX-License-Identifier: BSD-3-Clause */
/* test_dropped.c - rates of single tokens: out of scores, and through a writer that leaves some
 * out */
#include "stream_util.h"

#include <math.h>

#include "codecs/codec.h"

enum { TOKENS = 700, HEADS = 3, CHANNELS = 40, WIDTH = HEADS * CHANNELS };

/* ---- scores to rates ---- */

static kvarc_lossy tier(const char *text)
{
	kvarc_lossy l;
	kvarc_error e;
	assert_int_equal(kvarc_lossy_parse(&l, text, &e), KVARC_OK);
	return l;
}

static void expect(const char *text, const float *score, size_t n, const int *rates)
{
	kvarc_lossy l = tier(text);
	int16_t got[64];
	assert_int_equal(kvarc_lossy_rates(&l, score, n, got), KVARC_OK);
	for (size_t i = 0; i < n; i++)
		if (got[i] != rates[i])
			fail_msg("%s: token %zu has %d, not %d", text, i, got[i], rates[i]);
}

enum { D = KVARC_LOSSY_DROP, X = KVARC_LOSSY_NOTHING };

static void test_rates(void **state)
{
	static const float score[] = { -1, 5, 3, -0.f, 0, 9, INFINITY, -2, 1, 1, 1, 2 };
	static const float mean[] = { 8, 7, 6, 5, 4, 3, 2, 1 };
	(void)state;
	expect("had:4", score, 12, (const int[]){ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 });
	/* Six: two exact, three recent ones, and the best of the others. */
	expect("had:4,exact=2,keep=0.5", score, 12,
	       (const int[]){ 0, 0, D, D, D, D, 0, D, D, 0, 0, 0 });
	expect("had:4,exact=0,keep=0.5,recent=0", score, 12,
	       (const int[]){ D, 0, 0, D, D, 0, 0, D, D, D, 0, 0 });
	/* Of equal ones the later, and -0 is 0. */
	expect("had:4,exact=0,keep=0.75,recent=0", score, 12,
	       (const int[]){ D, 0, 0, D, 0, 0, 0, D, 0, 0, 0, 0 });
	/* Exact, recent and last ones stay even if they are too many. */
	expect("had:4,exact=3,keep=0.25,recent=5", score, 12,
	       (const int[]){ 0, 0, 0, D, D, D, D, 0, 0, 0, 0, 0 });
	expect("had:4,exact=3,keep=0.001,tail=2", score, 12,
	       (const int[]){ 0, 0, 0, D, D, D, D, D, D, D, 0, 0 });
	expect("had:4,exact=0,top=0.25", score, 12,
	       (const int[]){ 0, X, 0, 0, 0, X, X, 0, 0, 0, 0, 0 });
	expect("had:4,exact=0,top=1,keep=0.5,recent=0", score, 12,
	       (const int[]){ D, X, X, D, D, X, X, D, D, D, X, X });
	expect("had:4,spread=1", mean, 8, (const int[]){ 16, 16, 5, 5, -5, -5, -16, -16 });
	expect("had:4,spread=-0.5", mean, 8, (const int[]){ -8, -8, -3, -3, 3, 3, 8, 8 });
	expect("had:4,spread=0.0625", mean, 8, (const int[]){ 1, 1, 0, 0, 0, 0, -1, -1 });
	expect("had:4,exact=0,spread=+1,keep=0.75,top=0.25,recent=1", mean, 8,
	       (const int[]){ X, X, 16, 5, -5, D, D, -16 });
	expect("had:4,spread=1", mean, 1, (const int[]){ -16 });
	expect("tsc:4,keep=0.25,exact=0,recent=0", mean, 4, (const int[]){ 0, D, D, D });
}

/* The same as sorting. */
static void test_many(void **state)
{
	enum { N = 5000 };
	static float score[N];
	static int16_t rate[N];
	uint64_t seed = 3;
	kvarc_lossy l = tier("had:4,exact=0,recent=0,keep=0.3");
	(void)state;
	for (size_t i = 0; i < N; i++)
		score[i] = (float)(int)(rand_next(&seed) % 2000) / 7 - 100;
	assert_int_equal(kvarc_lossy_rates(&l, score, N, rate), KVARC_OK);
	for (size_t i = 0; i < N; i += 7) {
		size_t above = 0;
		for (size_t k = 0; k < N; k++)
			above += score[k] > score[i] || (score[k] == score[i] && k > i);
		assert_int_equal(rate[i], above < 1500 ? 0 : D);
	}
}

static void test_wrong(void **state)
{
	static const char *const bad[] = { "had:4,keep=0",     "had:4,keep=1.1", "had:4,keep=",
		                           "had:4,keep=-1",    "had:4,top=2",    "had:4,top=0",
		                           "had:4,spread=4.1", "had:4,spread=x", "had:4,recent=-1",
		                           "had:4,recent",     "tsc:4,spread=1", "vq:2,spread=1",
		                           "near:0.1,spread=1" };
	const float nan[] = { 1, NAN };
	int16_t rate[2];
	kvarc_lossy l = tier("had:4,keep=0.5");
	(void)state;
	assert_int_equal(l.select.keep, 500);
	assert_int_equal(tier("vq-84x").select.keep, 750);
	assert_int_equal(kvarc_lossy_rates(&l, nan, 1, rate), KVARC_OK);
	assert_int_equal(kvarc_lossy_rates(&l, nan, 2, rate), KVARC_OPTIONS);
	assert_int_equal(kvarc_lossy_rates(&l, NULL, 0, NULL), KVARC_OK);
	assert_int_equal(kvarc_lossy_rates(&l, NULL, 1, rate), KVARC_PROG);
	assert_int_equal(kvarc_lossy_rates(&l, nan, 1, NULL), KVARC_PROG);
	assert_int_equal(kvarc_lossy_rates(NULL, nan, 1, rate), KVARC_PROG);
	l.select.keep = 1001;
	assert_int_equal(kvarc_lossy_rates(&l, nan, 1, rate), KVARC_PROG);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (kvarc_lossy_parse(&l, bad[i], NULL) != KVARC_OPTIONS)
			fail_msg("%s was taken", bad[i]);
}

/* ---- through a writer ---- */

static void make(struct cache *c)
{
	uint64_t seed = 11;
	memset(c, 0, sizeof *c);
	c->tracks[0] = (kvarc_track){ .kind = KVARC_TRACK_SELF, .label = "main" };
	for (size_t i = 0; i < 2; i++)
		c->tensors[i] = (kvarc_tensor){ .kind = i ? KVARC_VALUE : KVARC_KEY,
			                        .dtype = KVARC_U8,
			                        .heads = HEADS,
			                        .channels = CHANNELS };
	c->g.n_tracks = 1;
	c->g.n_tensors = 2;
	c->n[0] = TOKENS;
	cache_link(c);
	for (size_t i = 0; i < TOKENS; i++) {
		c->positions[0][i] = 3 + (int32_t)(i + i / 100 * 7);
		c->ids[0][i] = (int32_t)(rand_next(&seed) % 1000);
	}
	for (size_t k = 0; k < 2; k++)
		for (size_t i = 0; i < TOKENS * WIDTH; i++)
			c->data[k][i] = (uint8_t)rand_next(&seed);
}

struct plan {
	size_t longest; /* append; 0: all at once */
	bool fetch, positions, ids, commit;
	unsigned threads;
	uint32_t chunk_bytes;
	int share; /* percent that are dropped */
	kvarc_lossy lossy;
};

static void put_all(const struct cache *c, const struct plan *p, kvarc_writer *w)
{
	uint64_t seed = 77;
	for (uint64_t at = 0; at < TOKENS;) {
		uint64_t n = p->longest ? rand_next(&seed) % p->longest + 1 : TOKENS;
		bool fetch = p->fetch && rand_next(&seed) % 2;
		const int32_t *ids = p->ids ? c->ids[0] + at : NULL;
		const int32_t *positions = p->positions ? c->positions[0] + at : NULL;
		kvarc_view views[16];
		n = n < TOKENS - at ? n : TOKENS - at;
		cache_views_at(c, at, views);
		if (fetch || (p->commit && rand_next(&seed) % 4 == 0))
			assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
		assert_int_equal(fetch ? kvarc_writer_append_fetch(w, 0, n, ids, positions,
		                                                   cache_fetch, (void *)c)
		                       : kvarc_writer_append(w, 0, n, ids, positions, views),
		                 KVARC_OK);
		at += n;
	}
}

static void read_all(struct memfile *f, const struct cache *c, struct cache *back,
                     const struct plan *p)
{
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	size_t k = 0, row = WIDTH;
	cache_make_empty(back, c);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	uint64_t n = kvarc_reader_tokens(r, 0);
	if (n) {
		assert_int_equal(kvarc_reader_read(r, &all, back->views), KVARC_OK);
		assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, n, p->ids ? back->ids[0] : NULL,
		                                          back->positions[0]),
		                 KVARC_OK);
	}
	for (size_t i = 0; i < TOKENS; i++) {
		if (kvi_lossy_rate_at(&p->lossy, i, TOKENS) == D)
			continue;
		assert_true(k < n);
		assert_int_equal(back->positions[0][k], p->positions ? c->positions[0][i] : (int)i);
		if (p->ids)
			assert_int_equal(back->ids[0][k], c->ids[0][i]);
		for (size_t t = 0; t < 2; t++)
			assert_memory_equal(back->data[t] + k * row, c->data[t] + i * row, row);
		k++;
	}
	assert_int_equal(k, n);
	kvarc_reader_close(&r);
	cache_free(back);
}

static void through(const struct plan *p, uint64_t *dropped)
{
	struct cache c, back;
	struct memfile f = { .fail_at = -1 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_writer_stats stats;
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	make(&c);
	o.lossy = &p->lossy;
	o.flags = KVARC_WRITE_FILE_ID;
	o.common.threads = p->threads;
	o.chunk_bytes = p->chunk_bytes;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	put_all(&c, p, w);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	kvarc_writer_get_stats(w, &stats);
	assert_int_equal(stats.elements, 2 * TOKENS * WIDTH);
	assert_int_equal(stats.raw_bytes, 2 * TOKENS * WIDTH);
	*dropped = stats.dropped_tokens;
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	read_all(&f, &c, &back, p);
	memfile_free(&f);
	cache_free(&c);
}

static void test_appends(void **state)
{
	static const size_t longest[] = { 0, 1, 30, 200, 400 };
	static const int shares[] = { 0, 5, 50, 97, 100 };
	static int16_t rate[TOKENS];
	uint64_t seed = 9;
	(void)state;
	for (unsigned k = 0; k < 100; k++) {
		struct plan p = { .longest = longest[k % 5],
			          .share = shares[k / 5 % 5],
			          .fetch = k % 2,
			          .positions = k % 3,
			          .ids = k % 7,
			          .commit = k % 11 > 5,
			          .threads = k % 4 + 1,
			          .chunk_bytes = k % 13 > 6 ? 64 << 10 : 0,
			          .lossy = tier("had:4,exact=0") };
		uint64_t dropped, want = 0;
		for (size_t i = 0; i < TOKENS; i++) {
			rate[i] = rand_next(&seed) % 100 < (uint64_t)p.share ? D : 0;
			want += rate[i] == D;
		}
		p.lossy.token_rate = rate;
		p.lossy.n_token_rates = TOKENS;
		through(&p, &dropped);
		assert_int_equal(dropped, want);
	}
}

/* First and last tokens that stay exact are never dropped; neither are tokens without a plan. */
static void test_exact_wins(void **state)
{
	static int16_t rate[TOKENS];
	struct plan p = { .ids = true, .lossy = tier("had:4,exact=5,tail=3") };
	uint64_t dropped;
	(void)state;
	for (size_t i = 0; i < TOKENS; i++)
		rate[i] = D;
	p.lossy.token_rate = rate;
	p.lossy.n_token_rates = TOKENS;
	assert_int_equal(kvi_lossy_rate_at(&p.lossy, 4, TOKENS), X);
	assert_int_equal(kvi_lossy_rate_at(&p.lossy, 5, TOKENS), D);
	assert_int_equal(kvi_lossy_rate_at(&p.lossy, TOKENS - 4, TOKENS), D);
	assert_int_equal(kvi_lossy_rate_at(&p.lossy, TOKENS - 3, TOKENS), X);
	through(&p, &dropped);
	assert_int_equal(dropped, TOKENS - 8);
	p.lossy.n_token_rates = 100;
	through(&p, &dropped);
	assert_int_equal(dropped, 95);
}

static void put_bf16(uint8_t *to, float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	memcpy(to, &(uint16_t){ (uint16_t)(b >> 16) }, 2);
}

/* Rates come to the chunks of their tokens, through appends and waiting tokens. */
static void test_rates_of_chunks(void **state)
{
	static int16_t rate[TOKENS];
	static const char *const texts[] = { "had:3,exact=0", "tsc:3,exact=0", "vq:1,exact=0" };
	(void)state;
	for (unsigned k = 0; k < 6; k++) {
		struct plan p = { .longest = k % 2 ? 90 : 0,
			          .threads = k % 2 + 1,
			          .fetch = true,
			          .lossy = tier(texts[k / 2]) };
		const kvarc_range all = KVARC_RANGE_ALL(0);
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
		struct memfile f = { .fail_at = -1 };
		struct cache c, back;
		kvarc_writer *w;
		kvarc_reader *r;
		uint64_t seed = 5, at = 0, exact = 0, changed = 0;
		make(&c);
		cache_free(&c);
		c.tensors[0].dtype = c.tensors[1].dtype = KVARC_BF16;
		cache_link(&c);
		for (size_t i = 0; i < 2 * (size_t)TOKENS * WIDTH; i++)
			put_bf16(c.data[i % 2] + i / 2 * 2,
			         (float)(rand_next(&seed) % 2001) - 1000);
		for (size_t i = 0; i < TOKENS; i++)
			rate[i] = i % 7 == 3 ? D : i % 3 == 0 ? X : i % 2 ? 16 : 0;
		p.lossy.token_rate = rate;
		p.lossy.n_token_rates = TOKENS;
		o.lossy = &p.lossy;
		o.common.threads = p.threads;
		ro.flags = KVARC_READ_ALLOW_LOSSY;
		kvarc_sink sink = memfile_sink(&f);
		assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
		assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
		put_all(&c, &p, w);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		cache_make_empty(&back, &c);
		kvarc_source source = memfile_source(&f);
		assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
		assert_int_equal(kvarc_reader_read(r, &all, back.views), KVARC_OK);
		kvarc_reader_close(&r);
		for (size_t i = 0; i < TOKENS; i++) {
			const size_t row = 2 * (size_t)WIDTH;
			if (rate[i] == D)
				continue;
			bool same = !memcmp(back.data[1] + at * row, c.data[1] + i * row, row);
			exact += same && rate[i] == X;
			changed += !same && rate[i] != X;
			at++;
		}
		assert_int_equal(exact + changed, at);
		assert_true(exact > 150 && changed > 300);
		cache_free(&back);
		cache_free(&c);
		memfile_free(&f);
	}
}

static kvarc_ret opened(const kvarc_lossy *l)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	o.lossy = l;
	kvarc_ret ret = kvarc_writer_open(&w, &sink, &o);
	kvarc_writer_abort(&w);
	memfile_free(&f);
	return ret;
}

static void test_options(void **state)
{
	static const char *const wanting[] = { "had:4,keep=0.5", "had:4,top=0.1",
		                               "had:4,spread=1" };
	int16_t rates[8] = { 1, 2, 3, 3, D, X, 0, 1 };
	kvarc_lossy l;
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		l = tier(wanting[i]);
		assert_int_equal(opened(&l), KVARC_OPTIONS);
		l.token_rate = rates;
		l.n_token_rates = 8;
		assert_int_equal(opened(&l), KVARC_OK);
	}
	rates[7] = 4; /* the fifth */
	assert_int_equal(opened(&l), KVARC_PROG);
	l.n_token_rates = 7;
	assert_int_equal(opened(&l), KVARC_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates),      cmocka_unit_test(test_many),
		cmocka_unit_test(test_wrong),      cmocka_unit_test(test_appends),
		cmocka_unit_test(test_exact_wins), cmocka_unit_test(test_rates_of_chunks),
		cmocka_unit_test(test_options),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
