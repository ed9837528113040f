/* SPDX-License-Identifier: BSD-3-Clause */
/* test_append.c - archives that a writer continues: closed, not closed, cut; rewinds and
 * checkpoints (spec 6.2, 9.1, 9.3); a crash at every write */
#include <stdio.h>

#include "append_util.h"
#include "format/frame.h"
#include "util/bytes.h"

/* How the first writer ended. */
enum ending { CLOSED, COMMITTED, CUT, TORN, ENDINGS };

static const char *const keys[] = { "model" };
static const char *const values[] = { "a model" };

static void begin(struct torn *t, const struct cache *c, const kvarc_writer_options *o,
                  kvarc_writer **w)
{
	kvarc_sink sink = torn_sink(t);
	assert_int_equal(kvarc_writer_open(w, &sink, o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(*w, &c->g), KVARC_OK);
	assert_int_equal(kvarc_writer_identity(*w, 1, keys, values), KVARC_OK);
}

/* An archive of the first n tokens of each track. */
static void first_part(struct torn *t, const struct cache *c, const uint64_t *n,
                       const kvarc_writer_options *o, enum ending end)
{
	kvarc_writer *w;
	begin(t, c, o, &w);
	for (uint32_t i = 0; i < c->g.n_tracks; i++)
		assert_int_equal(append_tokens(w, c, i, 0, n[i]), KVARC_OK);
	if (end == CLOSED) {
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		return;
	}
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	/* Frames behind the last commit, whole or not. */
	if (end == CUT || end == TORN) {
		t->fail_at = t->calls + (end == CUT ? 2 : 1);
		t->part = 7;
		if (append_tokens(w, c, 0, 0, c->n[0]) == KVARC_OK)
			assert_int_not_equal(kvarc_writer_commit(w), KVARC_OK);
	}
	kvarc_writer_abort(&w);
	t->fail_at = -1;
}

static void test_states(void **state)
{
	uint64_t seed = 5;
	(void)state;
	for (int k = 0; k < 4 * ENDINGS; k++) {
		static const int numbers[] = { 0, 2, 3, 5 };
		const enum ending end = (enum ending)(k % ENDINGS);
		struct cache c;
		struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
		uint64_t n[4] = { 0 };
		kvarc_writer_options o = stream_options(k & 1, (unsigned)k % 3);
		cache_make(&c, numbers[k / ENDINGS], (uint64_t)k);
		for (size_t i = 0; i < c.g.n_tracks; i++)
			n[i] = rand_next(&seed) % (c.n[i] + 1);
		first_part(&t, &c, n, &o, end);
		assert_int_equal(append_check(&t.f, &c, n, 0), end == CLOSED ? KVARC_STATE_CLOSED
		                                               : end == COMMITTED
		                                                       ? KVARC_STATE_OPEN
		                                                       : KVARC_STATE_CUT);
		o.level = KVARC_LEVEL(1 - k % 2);
		kvarc_writer *w = append_open(&t, &o);
		assert_int_equal(t.truncates, end == CUT || end == TORN);
		for (uint32_t i = 0; i <= c.g.n_tracks; i++)
			assert_int_equal(kvarc_writer_tokens(w, i), i < c.g.n_tracks ? n[i] : 0);
		for (uint32_t i = 0; i < c.g.n_tracks; i++)
			assert_int_equal(append_tokens(w, &c, i, n[i], c.n[i]), KVARC_OK);
		assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
		append_check(&t.f, &c, c.n, 0);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		assert_int_equal(append_check(&t.f, &c, c.n, 0), KVARC_STATE_CLOSED);
		/* Nothing to append: the file stays as it is. */
		size_t bytes = t.f.n;
		w = append_open(&t, &o);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		assert_int_equal(t.f.n, bytes);
		torn_free(&t);
		cache_free(&c);
	}
}

/* Token by token, in sessions of one writer each: chain values and PARAMS go on. */
static void test_sessions(void **state)
{
	enum { TOKENS = 40, START = 100 };
	struct cache c;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_writer_options o = stream_options(1, 0);
	uint8_t chain[16];
	uint64_t n = START;
	kvarc_reader *r;
	kvarc_chunk_info chunk;
	(void)state;
	cache_make(&c, 3, 3);
	cache_as_text(&c);
	first_part(&t, &c, &n, &o, CLOSED);
	for (; n < START + TOKENS; n++) {
		kvarc_view views[16];
		kvarc_writer *w = append_open(&t, &o);
		cache_views_at(&c, n, views);
		/* positions go on */
		assert_int_equal(kvarc_writer_append(w, 0, 1, c.ids[0] + n, NULL, views), KVARC_OK);
		if (n % 3)
			assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
		if (n % 3 == 1)
			kvarc_writer_abort(&w);
		else
			assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	}
	append_check(&t.f, &c, &n, 0);
	kvarc_source source = torn_source(&t);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_chain(r, 0, n, chain), KVARC_OK);
	assert_string_equal(kvarc_reader_identity(r, "model"), "a model");
	uint64_t i = 0, grid = 0;
	for (; kvarc_reader_chunk(r, i, &chunk) == KVARC_OK; i++)
		grid += chunk.n == 1 && chunk.codec == 5;
	assert_int_equal(i, 1 + TOKENS);
	/* One token is too few to fit parameters to. */
	assert_int_equal(grid, TOKENS);
	kvarc_reader_close(&r);
	torn_free(&t);
	cache_free(&c);
}

/* The states of a random session, by checkpoint. */
struct session {
	struct torn t;
	struct cache now, other; /* what the track holds, and what comes next */
	uint64_t n[4];
	struct cache kept[8];
	uint64_t kept_n[8][4];
	size_t checkpoints;
};

static void copy_cache(struct cache *to, const struct cache *from)
{
	cache_make_empty(to, from);
	for (uint32_t i = 0; i < from->g.n_tracks; i++)
		cache_mix(to, from, i, 0);
}

static void step(struct session *s, kvarc_writer **w, const kvarc_writer_options *o, uint64_t *seed)
{
	const uint32_t track = (uint32_t)(rand_next(seed) % s->now.g.n_tracks);
	uint64_t most = s->now.n[track] - s->n[track];
	switch (rand_next(seed) % 8) {
	case 0:
		s->n[track] -= rand_next(seed) % (s->n[track] + 1);
		assert_int_equal(kvarc_writer_rewind(*w, track, s->n[track]), KVARC_OK);
		/* Without tokens behind it a rewind does nothing. */
		if (s->n[track] < s->now.n[track]) {
			cache_make(&s->other, s->now.g.n_tracks > 1 ? 2 : 0, rand_next(seed));
			cache_as_text(&s->other);
			cache_mix(&s->now, &s->other, track, s->n[track]);
			cache_free(&s->other);
			assert_int_equal(
				append_tokens(*w, &s->now, track, s->n[track], s->n[track] + 1),
				KVARC_OK);
			s->n[track]++;
		}
		return;
	case 1:
		assert_int_equal(kvarc_writer_commit(*w), KVARC_OK);
		return;
	case 2:
		if (s->checkpoints < 8) {
			uint64_t number;
			assert_int_equal(kvarc_writer_checkpoint(*w, "a label", 17, &number),
			                 KVARC_OK);
			memcpy(s->kept_n[s->checkpoints], s->n, sizeof s->n);
			copy_cache(&s->kept[s->checkpoints++], &s->now);
			assert_int_equal(number, s->checkpoints);
		}
		return;
	case 3: /* closed, or a crash behind a commit */
		if (rand_next(seed) % 2) {
			assert_int_equal(kvarc_writer_close(w), KVARC_OK);
		} else {
			assert_int_equal(kvarc_writer_commit(*w), KVARC_OK);
			kvarc_writer_abort(w);
		}
		append_check(&s->t.f, &s->now, s->n, 0);
		*w = append_open(&s->t, o);
		return;
	default:
		most = most ? rand_next(seed) % most : 0;
		most = most % 90;
		assert_int_equal(append_tokens(*w, &s->now, track, s->n[track], s->n[track] + most),
		                 KVARC_OK);
		s->n[track] += most;
	}
}

static void test_random_sessions(void **state)
{
	(void)state;
	for (uint64_t k = 0; k < 16; k++) {
		struct session s = { .t = { .fail_at = -1, .f = { .fail_at = -1 } } };
		uint64_t seed = k;
		kvarc_writer_options o = stream_options((int)k % 2, (unsigned)k % 3);
		kvarc_writer *w;
		kvarc_reader *r;
		kvarc_checkpoint c;
		o.segment_tokens = k % 4 ? 32 + (uint32_t)k : 0;
		cache_make(&s.now, k % 4 ? 0 : 2, k);
		cache_as_text(&s.now);
		begin(&s.t, &s.now, &o, &w);
		for (int i = 0; i < 60; i++)
			step(&s, &w, &o, &seed);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		assert_int_equal(append_check(&s.t.f, &s.now, s.n, 0), KVARC_STATE_CLOSED);
		kvarc_source source = torn_source(&s.t);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		for (size_t i = 0; i < s.checkpoints; i++) {
			assert_int_equal(kvarc_reader_checkpoint(r, i, &c), KVARC_OK);
			assert_int_equal(c.number, i + 1);
			assert_int_equal(c.time, 17);
			assert_memory_equal(c.label, "a label", 7);
			append_check(&s.t.f, &s.kept[i], s.kept_n[i], c.number);
			cache_free(&s.kept[i]);
		}
		for (uint32_t i = 0; i < s.now.g.n_tracks; i++) { /* chain values go on */
			uint8_t chain[16];
			if (s.n[i])
				assert_int_equal(kvarc_reader_chain(r, i, s.n[i], chain), KVARC_OK);
		}
		kvarc_reader_close(&r);
		torn_free(&s.t);
		cache_free(&s.now);
	}
}

/* A session behind an archive: two turns, the second of which replaces tokens of the first. */
static kvarc_ret second_part(kvarc_writer **w, const struct cache *next, uint64_t from)
{
	kvarc_ret ret = kvarc_writer_checkpoint(*w, "turn 1", 0, NULL);
	if (!ret)
		ret = kvarc_writer_rewind(*w, 0, from);
	if (!ret)
		ret = append_tokens(*w, next, 0, from, from + 100);
	if (!ret)
		ret = kvarc_writer_commit(*w);
	if (!ret)
		ret = append_tokens(*w, next, 0, from + 100, 600);
	if (!ret)
		ret = kvarc_writer_checkpoint(*w, "turn 2", 0, NULL);
	if (ret)
		kvarc_writer_abort(w);
	return ret ? ret : kvarc_writer_close(w);
}

/* The tokens that the first `bytes` bytes of an archive hold. */
static uint64_t tokens_in(struct torn *t, size_t bytes)
{
	kvarc_source source = torn_source(t);
	kvarc_reader *r;
	source.size = bytes;
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	uint64_t n = kvarc_reader_tokens(r, 0);
	kvarc_reader_close(&r);
	return n;
}

static void test_crashes(void **state)
{
	static const unsigned parts[] = { 0, 1, 8, 15 };
	const uint64_t kept = 298, before = 300;
	struct cache first, next;
	struct torn start = { .fail_at = -1, .f = { .fail_at = -1 } }, all;
	kvarc_writer_options o = stream_options(1, 0);
	(void)state;
	cache_make(&first, 0, 1);
	cache_make(&next, 0, 2);
	cache_as_text(&first);
	cache_as_text(&next);
	cache_mix(&first, &next, 0, 0);
	cache_free(&next);
	cache_make(&next, 0, 3);
	cache_as_text(&next);
	for (uint32_t i = 0; i < first.g.n_tensors; i++)
		memcpy(next.data[i], first.data[i], cache_bytes(&first, i) / 600 * kept);
	memcpy(next.ids[0], first.ids[0], 4 * kept);
	first_part(&start, &first, &before, &o, CLOSED);
	torn_copy(&all, &start.f, start.f.n);
	kvarc_writer *w = append_open(&all, &o);
	assert_int_equal(second_part(&w, &next, kept), KVARC_OK);
	for (long k = 0; k < all.calls; k++) {
		for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
			struct torn t;
			uint64_t n, whole = 600;
			torn_copy(&t, &start.f, start.f.n);
			t.fail_at = k;
			t.part = parts[p];
			w = append_open(&t, &o);
			assert_int_equal(second_part(&w, &next, kept), KVARC_IO);
			/* Exactly the last commit: of this session, or the one before it. */
			size_t end = t.n_commits ? t.commits[t.n_commits - 1] : start.f.n;
			n = tokens_in(&all, end);
			const struct cache *is = n <= before && end <= all.commits[0] ? &first
			                                                              : &next;
			append_check(&t.f, is, &n, 0);
			/* And another writer continues it. */
			t.fail_at = -1;
			w = append_open(&t, &o);
			assert_int_equal(kvarc_writer_rewind(w, 0, n < kept ? n : kept), KVARC_OK);
			assert_int_equal(append_tokens(w, &next, 0, n < kept ? n : kept, 600),
			                 KVARC_OK);
			assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
			assert_int_equal(append_check(&t.f, &next, &whole, 0), KVARC_STATE_CLOSED);
			torn_free(&t);
		}
	}
	assert_true(all.calls >= 16);
	torn_free(&start);
	torn_free(&all);
	cache_free(&first);
	cache_free(&next);
}

/* An archive without a commit continues behind its geometry. */
static void test_no_commit(void **state)
{
	(void)state;
	for (int identity = 0; identity < 2; identity++) {
		struct cache c;
		struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
		kvarc_writer_options o = stream_options(1, 0);
		kvarc_writer *w;
		kvarc_reader *r;
		cache_make(&c, 0, 1);
		cache_as_text(&c); /* chain values depend on the identity */
		begin(&t, &c, &o, &w);
		kvarc_writer_abort(&w);
		w = append_open(&t, &o);
		assert_int_equal(t.truncates, 1);
		if (identity)
			assert_int_equal(kvarc_writer_identity(w, 1, keys, values), KVARC_OK);
		assert_int_equal(append_tokens(w, &c, 0, 0, c.n[0]), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		append_check(&t.f, &c, c.n, 0);
		kvarc_source source = torn_source(&t);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		assert_int_equal(!!kvarc_reader_identity(r, "model"), identity);
		kvarc_reader_close(&r);
		torn_free(&t);
		cache_free(&c);
	}
}

static kvarc_ret try_append(struct torn *t, const kvarc_writer_options *o, bool pipe)
{
	kvarc_source source = torn_source(t);
	kvarc_sink sink = torn_sink(t);
	kvarc_writer *w;
	const size_t bytes = t->f.n;
	source.size = pipe ? KVARC_UNKNOWN : source.size;
	kvarc_ret ret = kvarc_writer_open_append(&w, &source, &sink, o);
	assert_int_equal(!w, ret != KVARC_OK);
	if (ret)
		assert_int_equal(bytes, t->f.n);
	kvarc_writer_abort(&w);
	return ret;
}

static void test_refusals(void **state)
{
	const kvarc_lossy tier = { .tier = KVARC_TIER_HAD, .rate = 64 };
	struct cache c;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_writer_options o = stream_options(1, 0), other;
	const uint64_t n = 300;
	kvarc_error e = { 0 };
	kvarc_writer *w;
	(void)state;
	o.common.error = &e;
	cache_make(&c, 0, 1);
	first_part(&t, &c, &n, &o, CUT);
	t.no_truncate = true;
	assert_int_equal(try_append(&t, &o, false), KVARC_OPTIONS);
	assert_non_null(strstr(e.text, "truncate"));
	t.no_truncate = false;
	assert_int_equal(try_append(&t, &o, true), KVARC_OPTIONS);
	assert_int_equal(try_append(&t, &o, false), KVARC_OK); /* cuts the rest */
	other = o;
	other.level = 2;
	assert_int_equal(try_append(&t, &other, false), KVARC_PREDICTOR);
	other = o;
	other.file_id[3] = 1;
	assert_int_equal(try_append(&t, &other, false), KVARC_PROG);
	other = o;
	other.lossy = &tier;
	assert_int_equal(try_append(&t, &other, false), KVARC_LOSSY);
	other = o;
	other.common.memlimit = 100000;
	assert_int_equal(try_append(&t, &other, false), KVARC_MEMLIMIT);
	/* Calls that come too late, and rewinds that are not possible. */
	w = append_open(&t, &o);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_PROG);
	kvarc_writer_abort(&w);
	w = append_open(&t, &o);
	assert_int_equal(kvarc_writer_identity(w, 1, keys, values), KVARC_PROG);
	kvarc_writer_abort(&w);
	w = append_open(&t, &o);
	assert_int_equal(kvarc_writer_rewind(w, 0, n + 1), KVARC_GEOMETRY);
	assert_int_equal(kvarc_writer_tokens(w, 0), n); /* nothing was done */
	assert_int_equal(kvarc_writer_rewind(w, 0, n - 1), KVARC_OK);
	assert_int_equal(kvarc_writer_tokens(w, 0), n - 1);
	kvarc_writer_abort(&w);
	w = append_open(&t, &o);
	assert_int_equal(kvarc_writer_rewind(w, 1, 0), KVARC_GEOMETRY);
	kvarc_writer_abort(&w);
	other = o;
	other.flags |= KVARC_WRITE_STREAMABLE;
	w = append_open(&t, &other);
	assert_int_equal(kvarc_writer_rewind(w, 0, 5), KVARC_PROG);
	kvarc_writer_abort(&w);
	/* Damage behind the last commit is no cut. */
	w = append_open(&t, &o);
	assert_int_equal(append_tokens(w, &c, 0, n, 600), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	kvarc_writer_abort(&w);
	t.f.p[t.f.n / 2] ^= 1;
	assert_int_equal(try_append(&t, &o, false), KVARC_DATA);
	assert_int_equal(kvarc_writer_rewind(NULL, 0, 0), KVARC_PROG);
	assert_int_equal(kvarc_writer_checkpoint(NULL, NULL, 0, NULL), KVARC_PROG);
	torn_free(&t);
	cache_free(&c);
}

/* A rewind that no append follows changes nothing. */
static void test_rewind_alone(void **state)
{
	struct cache c;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_writer_options o = stream_options(1, 0);
	const uint64_t n = 300;
	(void)state;
	cache_make(&c, 0, 1);
	first_part(&t, &c, &n, &o, CLOSED);
	for (int way = 0; way < 3; way++) {
		kvarc_writer *w = append_open(&t, &o);
		assert_int_equal(kvarc_writer_rewind(w, 0, 100), KVARC_OK);
		if (way == 1)
			assert_int_equal(kvarc_writer_checkpoint(w, NULL, 0, NULL), KVARC_OK);
		if (way == 2)
			assert_int_equal(kvarc_writer_append(w, 0, 0, NULL, NULL, c.views),
			                 KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		append_check(&t.f, &c, &n, 0);
	}
	torn_free(&t);
	cache_free(&c);
}

/* A chain value says the whole text: where a position is left out, or an id is none, there is no
 * value from there on. */
static void test_no_chain(void **state)
{
	enum { SEGMENT = 32, AT = 100, N = 140 };
	(void)state;
	for (int k = 0; k < 3; k++) {
		kvarc_writer_options o = stream_options(0, 0);
		struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
		struct cache c;
		uint64_t n = N;
		o.segment_tokens = SEGMENT;
		uint8_t chain[16];
		kvarc_reader *r;
		cache_make(&c, 3, 3);
		assert_true(c.n[0] >= N);
		cache_as_text(&c);
		for (uint64_t i = AT; k == 1 && i < c.n[0]; i++)
			c.positions[0][i]++;
		if (k == 2)
			c.ids[0][AT] = -1;
		first_part(&t, &c, &n, &o, CLOSED);
		kvarc_source source = torn_source(&t);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		assert_int_equal(kvarc_reader_chain(r, 0, AT / SEGMENT * SEGMENT, chain), KVARC_OK);
		assert_int_equal(kvarc_reader_chain(r, 0, N, chain) == KVARC_OK, k == 0);
		kvarc_reader_close(&r);
		torn_free(&t);
		cache_free(&c);
	}
}

/* verify decodes what a rewind has replaced: a checkpoint in front of it may be read. */
static void test_verify_replaced(void **state)
{
	enum { RAW_CHECK = 32 }; /* in a chunk header (spec 7) */
	(void)state;
	for (int k = 0; k < 4; k++) {
		struct cache c, other;
		struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
		const kvarc_writer_options o = stream_options(k & 1, 0);
		kvarc_checkpoint checkpoint;
		kvarc_chunk_info chunk;
		kvarc_writer *w;
		kvarc_reader *r;
		cache_make(&c, 0, 11);
		cache_make(&other, 0, 12); /* nothing is a repeat */
		const uint64_t to = k & 2 ? 0 : c.n[0] / 2;
		begin(&t, &c, &o, &w);
		assert_int_equal(append_tokens(w, &c, 0, 0, c.n[0]), KVARC_OK);
		assert_int_equal(kvarc_writer_checkpoint(w, NULL, 1, NULL), KVARC_OK);
		assert_int_equal(kvarc_writer_rewind(w, 0, to), KVARC_OK);
		assert_int_equal(append_tokens(w, &other, 0, to, c.n[0]), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		assert_int_equal(cache_verify(&t.f, NULL), KVARC_OK);
		/* another check of what was packed, under a frame check that holds */
		kvarc_source source = torn_source(&t);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		assert_int_equal(kvarc_reader_checkpoint(r, 0, &checkpoint), KVARC_OK);
		assert_int_equal(kvarc_reader_chunk(r, 0, &chunk), KVARC_OK);
		kvarc_reader_close(&r);
		uint8_t *frame = t.f.p + chunk.offset, *payload = frame + KVI_FRAME_HEAD_BYTES;
		const size_t padded = kvi_frame_padded(chunk.payload_bytes);
		payload[RAW_CHECK] ^= 1;
		kvi_store_h128(payload + padded,
		               kvi_frame_check(frame, chunk.offset, payload, padded));
		assert_int_equal(cache_verify(&t.f, NULL), KVARC_DATA);
		torn_free(&t);
		cache_free(&other);
		cache_free(&c);
	}
}

static uint64_t frames_of(const struct memfile *f, unsigned type)
{
	uint64_t n = 0;
	for (size_t at = 64; at < f->n;) {
		uint32_t bytes;
		memcpy(&bytes, f->p + at + 12, sizeof bytes);
		n += f->p[at + 8] == type;
		at += (size_t)kvi_frame_bytes(bytes);
	}
	return n;
}

/* An archive that can be read from a pipe stays so, also behind copies of PARAMS. */
static void test_streamable(void **state)
{
	struct cache c, back;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_writer_options o = stream_options(1, 0);
	(void)state;
	o.flags |= KVARC_WRITE_STREAMABLE;
	cache_make(&c, 3, 1);
	cache_free(&c);
	c.n[0] = 900;
	cache_link(&c);
	uint64_t seed = 1;
	for (size_t i = 0; i < cache_bytes(&c, 0); i++)
		c.data[0][i] = (uint8_t)(i % 2 ? 0x3c + i / 2 % 3 : rand_next(&seed));
	const uint64_t n = 880;
	first_part(&t, &c, &n, &o, CLOSED);
	assert_int_equal(frames_of(&t.f, KVI_FRAME_PARAMS), 2); /* and a copy */
	for (uint64_t at = n; at < c.n[0]; at += 10) {
		kvarc_writer *w = append_open(&t, &o);
		assert_int_equal(append_tokens(w, &c, 0, at, at + 10), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	}
	t.f.pipe = true;
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_seq(&back, &t.f, NULL, NULL), KVARC_OK);
	assert_true(cache_equal(&c, &back));
	cache_free(&back);
	torn_free(&t);
	cache_free(&c);
}

/* A file of tests/data/sample. */
static struct memfile sample(const char *name)
{
	struct memfile f = { .fail_at = -1, .p = malloc(1 << 23) };
	char path[4096];
	const char *srcdir = getenv("srcdir");
	snprintf(path, sizeof path, "%s/tests/data/sample/%s", srcdir ? srcdir : ".", name);
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	f.n = fread(f.p, 1, 1 << 23, file);
	fclose(file);
	return f;
}

static void append_import(kvarc_writer *w, kvarc_import *im, uint64_t t0, uint32_t n)
{
	int32_t ids[256], positions[256];
	assert_int_equal(kvarc_import_read_tokens(im, 0, t0, n, ids, positions), KVARC_OK);
	assert_int_equal(kvarc_writer_append_fetch(w, 0, n, ids, positions, kvarc_import_fetch, im),
	                 KVARC_OK);
}

/* Elements are those of the file. */
static int compare(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                   uint32_t n, const void *src)
{
	static uint8_t wanted[1 << 17];
	const kvarc_tensor *t = &kvarc_import_geometry(opaque)->tensors[tensor];
	size_t bytes = (size_t)n * heads * t->channels * kvarc_dtype_bytes(t->dtype);
	assert_true(bytes <= sizeof wanted);
	assert_int_equal(kvarc_import_fetch(opaque, tensor, head, heads, t0, n, wanted), 0);
	assert_memory_equal(src, wanted, bytes);
	return 0;
}

/* Levels 2 and 1 in turn: the profile that is embedded once serves to the end. */
static void test_profile(void **state)
{
	struct memfile slot = sample("smollm2-135m-f16-160.slot");
	struct memfile file = sample("smollm2-135m-level2.kvp");
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_source source = memfile_source(&file);
	kvarc_sink sink = torn_sink(&t);
	kvarc_writer_options o = stream_options(2, 0);
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_profile *profile;
	kvarc_import *im;
	kvarc_writer *w;
	kvarc_reader *r;
	kvarc_chunk_info chunk;
	uint64_t linear[2] = { 0 };
	(void)state;
	assert_int_equal(kvarc_profile_open(&profile, &source, NULL), KVARC_OK);
	source = memfile_source(&slot);
	assert_int_equal(kvarc_import_open(&im, &source, "slot", NULL), KVARC_OK);
	o.profile = profile;
	o.flags |= KVARC_WRITE_EMBED_PROFILE;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, kvarc_import_geometry(im)), KVARC_OK);
	append_import(w, im, 0, 70);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	const uint64_t frames = frames_of(&t.f, KVI_FRAME_PREDICTOR);
	for (uint64_t at = 70; at < 160; at += 30) {
		o.level = at == 100 ? 1 : 2;
		w = append_open(&t, &o);
		append_import(w, im, at, 30);
		assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
		kvarc_writer_abort(&w);
	}
	assert_int_equal(frames_of(&t.f, KVI_FRAME_PREDICTOR), frames);
	source = torn_source(&t);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_tokens(r, 0), 160);
	assert_int_equal(kvarc_reader_verify(r, NULL, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_read_deliver(r, &all, compare, im), KVARC_OK);
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &chunk) == KVARC_OK; i++)
		linear[chunk.t0 == 100] += chunk.codec == 7;
	assert_true(linear[0] > 60);
	assert_int_equal(linear[1], 0);
	kvarc_reader_close(&r);
	kvarc_profile_close(&profile);
	kvarc_import_close(&im);
	memfile_free(&slot);
	memfile_free(&file);
	torn_free(&t);
}

/* Memory that runs out at each call is said, and no byte of it is lost. */
static void test_memory(void **state)
{
	struct cache c;
	struct torn start = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_writer_options o = stream_options(1, 0);
	const uint64_t n = 300;
	kvarc_ret ret = KVARC_MEM;
	(void)state;
	cache_make(&c, 0, 1);
	cache_as_text(&c);
	first_part(&start, &c, &n, &o, CUT);
	for (long k = 0; ret != KVARC_OK; k++) {
		struct counting counting = { .fail_at = k, .sticky = true };
		kvarc_allocator allocator = counting_allocator(&counting);
		struct torn t;
		kvarc_writer *w;
		torn_copy(&t, &start.f, start.f.n);
		kvarc_source source = torn_source(&t);
		kvarc_sink sink = torn_sink(&t);
		o.common.allocator = &allocator;
		ret = kvarc_writer_open_append(&w, &source, &sink, &o);
		if (!ret)
			ret = kvarc_writer_rewind(w, 0, 290);
		if (!ret)
			ret = append_tokens(w, &c, 0, 290, 600);
		if (!ret)
			ret = kvarc_writer_close(&w);
		kvarc_writer_abort(&w);
		assert_true(ret == KVARC_OK || ret == KVARC_MEM);
		assert_int_equal(counting.held, 0);
		assert_true(k < 3000);
		torn_free(&t);
	}
	torn_free(&start);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),          cmocka_unit_test(test_sessions),
		cmocka_unit_test(test_random_sessions), cmocka_unit_test(test_crashes),
		cmocka_unit_test(test_no_commit),       cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_rewind_alone),    cmocka_unit_test(test_memory),
		cmocka_unit_test(test_streamable),      cmocka_unit_test(test_profile),
		cmocka_unit_test(test_verify_replaced), cmocka_unit_test(test_no_chain),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
