/* SPDX-License-Identifier: BSD-3-Clause */
/* test_session.c - chain values (spec 5.3) through writer and reader; rewinds and forks (spec 6.2,
 * 6.3) of the vectors, read in order, by range and in salvage */
#include <stdio.h>

#include "stream_util.h"

enum { TOKENS = 300, FULL = 256 };

/* What differs from the first archive. */
struct variant {
	int32_t id_behind;   /* added to the ids of the last segment */
	int32_t id_first;    /* added to the first id */
	int32_t position;    /* added to all positions */
	const char *key;     /* of an identity pair, NULL: none */
	bool no_ids, coarse; /* coarse: fewer tokens a segment */
};

/* Chain values of an archive at FULL and TOKENS; false: there is none. */
static bool chains(const struct variant *v, uint8_t full[16], uint8_t all[16])
{
	struct cache c;
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	int32_t ids[TOKENS], positions[TOKENS];
	const char *value = "value";
	kvarc_writer *w;
	kvarc_reader *r;
	cache_make(&c, 0, 1);
	for (int i = 0; i < TOKENS; i++) {
		ids[i] = 7 * i + (i < FULL ? 0 : v->id_behind) + (i ? 0 : v->id_first);
		positions[i] = i + v->position;
	}
	o.segment_tokens = v->coarse ? 128 : 0;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	if (v->key)
		assert_int_equal(kvarc_writer_identity(w, 1, &v->key, &value), KVARC_OK);
	for (int at = 0; at < TOKENS; at += 50)
		assert_int_equal(kvarc_writer_append(w, 0, 50, v->no_ids ? NULL : ids + at,
		                                     positions + at, c.views),
		                 KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	kvarc_ret ret = kvarc_reader_chain(r, 0, FULL, full);
	assert_int_equal(kvarc_reader_chain(r, 0, TOKENS, all), ret);
	assert_int_equal(kvarc_reader_chain(r, 0, TOKENS - 1, all), KVARC_END);
	assert_int_equal(kvarc_reader_chain(r, 99, 1, all), KVARC_GEOMETRY);
	kvarc_reader_close(&r);
	assert_int_equal(cache_verify(&f, NULL), KVARC_OK);
	memfile_free(&f);
	cache_free(&c);
	return ret == KVARC_OK;
}

static void test_chains(void **state)
{
	static const struct {
		struct variant v;
		bool full, all, any; /* the same value; there is one */
	} cases[] = {
		{ { 0 }, true, true, true },
		{ { .key = "engine" }, true, true, true },
		{ { .id_behind = 1 }, true, false, true },
		{ { .id_first = 1 }, false, false, true },
		{ { .key = "model" }, false, false, true },
		{ { .key = "namespace" }, false, false, true },
		{ { .coarse = true }, false, false, true },
		{ { .no_ids = true }, false, false, false },
		{ { .id_first = -1 }, false, false, false },
		{ { .position = 1 }, false, false, false },
	};
	uint8_t full[2][16], all[2][16];
	(void)state;
	assert_true(chains(&cases[0].v, full[0], all[0]));
	for (size_t i = 1; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(chains(&cases[i].v, full[1], all[1]), cases[i].any);
		if (!cases[i].any)
			continue;
		assert_int_equal(!memcmp(full[0], full[1], 16), cases[i].full);
		assert_int_equal(!memcmp(all[0], all[1], 16), cases[i].all);
	}
}

/* Everything of an archive: elements of each tensor, ids and positions of each track. */
struct whole {
	const kvarc_geometry *g;
	uint8_t *tensors[16];
	int32_t *ids[4], *positions[4];
};

enum { TOKENS_MAX = 300 };

static size_t row_of(const kvarc_tensor *t)
{
	return (size_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
}

static void whole_make(struct whole *x, const kvarc_geometry *g)
{
	*x = (struct whole){ .g = g };
	for (size_t i = 0; i < g->n_tensors; i++)
		x->tensors[i] = calloc(TOKENS_MAX, row_of(&g->tensors[i]));
	for (size_t i = 0; i < g->n_tracks; i++) {
		x->ids[i] = calloc(TOKENS_MAX, sizeof(int32_t));
		x->positions[i] = calloc(TOKENS_MAX, sizeof(int32_t));
	}
}

static void whole_free(struct whole *x)
{
	for (size_t i = 0; i < 16; i++)
		free(x->tensors[i]);
	for (size_t i = 0; i < 4; i++) {
		free(x->ids[i]);
		free(x->positions[i]);
	}
}

static int take(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, const void *src)
{
	struct whole *x = opaque;
	const kvarc_tensor *t = &x->g->tensors[tensor];
	size_t one = row_of(t) / t->heads;
	assert_true(t0 + n <= TOKENS_MAX);
	for (uint32_t i = 0; i < n; i++)
		memcpy(x->tensors[tensor] + (t0 + i) * row_of(t) + head * one,
		       (const uint8_t *)src + i * heads * one, heads * one);
	return 0;
}

/* In order, or in salvage. */
static void read_in_order(struct whole *x, kvarc_reader *r)
{
	kvarc_segment s;
	kvarc_ret ret;
	uint64_t tokens[4] = { 0 };
	while ((ret = kvarc_reader_next_segment(r, &s)) == KVARC_OK) {
		assert_int_equal(s.t0, tokens[s.track]);
		tokens[s.track] += s.n;
		for (uint32_t i = 0; i < s.n; i++) {
			x->positions[s.track][s.t0 + i] = s.positions[i];
			x->ids[s.track][s.t0 + i] = s.ids ? s.ids[i] : -1;
		}
		assert_int_equal(kvarc_reader_segment_deliver(r, take, x), KVARC_OK);
	}
	assert_int_equal(ret, KVARC_END);
	for (uint32_t i = 0; i < x->g->n_tracks; i++)
		assert_int_equal(tokens[i], kvarc_reader_tokens(r, i));
}

/* Parts of tracks here and there, against what was read in order. */
static void read_ranges(const struct whole *x, kvarc_reader *r, uint64_t seed)
{
	for (int i = 0; i < 40; i++) {
		struct whole part;
		kvarc_range range = KVARC_RANGE_ALL((uint32_t)(rand_next(&seed) % x->g->n_tracks));
		uint64_t tokens = kvarc_reader_tokens(r, range.track);
		int32_t id, position;
		if (!tokens)
			continue;
		range.t0 = rand_next(&seed) % tokens;
		range.n = 1 + rand_next(&seed) % (tokens - range.t0);
		whole_make(&part, x->g);
		assert_int_equal(kvarc_reader_read_deliver(r, &range, take, &part), KVARC_OK);
		for (size_t k = 0; k < x->g->n_tensors; k++) {
			const kvarc_tensor *t = &x->g->tensors[k];
			size_t at = (size_t)range.t0 * row_of(t);
			if (t->track == range.track)
				assert_memory_equal(part.tensors[k] + at, x->tensors[k] + at,
				                    (size_t)range.n * row_of(t));
		}
		kvarc_ret ret = kvarc_reader_read_tokens(r, range.track, range.t0, 1, &id,
		                                         &position);
		assert_int_equal(ret, x->ids[range.track][range.t0] < 0 ? KVARC_OPTIONS : KVARC_OK);
		if (!ret) {
			assert_int_equal(id, x->ids[range.track][range.t0]);
			assert_int_equal(position, x->positions[range.track][range.t0]);
		}
		whole_free(&part);
	}
}

static void load(struct memfile *f, const char *name)
{
	char path[4096];
	const char *srcdir = getenv("srcdir");
	snprintf(path, sizeof path, "%s/spec/vectors/%s", srcdir ? srcdir : ".", name);
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	*f = (struct memfile){ .fail_at = -1, .p = malloc(1 << 20) };
	f->n = f->cap = fread(f->p, 1, 1 << 20, file);
	fclose(file);
}

/* One state of a vector; checkpoint 0: the last. */
static void read_state(struct memfile *f, const kvarc_predictor *model, uint64_t checkpoint)
{
	kvarc_reader_options o = { .predictor = model, .checkpoint = checkpoint };
	struct whole in_order, salvaged;
	kvarc_reader *r[3];
	kvarc_source source = memfile_source(f);
	for (int i = 0; i < 3; i++) {
		o.flags = i == 2 ? KVARC_READ_SALVAGE : 0;
		assert_int_equal(kvarc_reader_open(&r[i], &source, &o), KVARC_OK);
	}
	whole_make(&in_order, kvarc_reader_geometry(r[0]));
	whole_make(&salvaged, kvarc_reader_geometry(r[2]));
	read_in_order(&in_order, r[0]);
	read_ranges(&in_order, r[1], checkpoint);
	read_in_order(&salvaged, r[2]);
	assert_int_equal(kvarc_reader_damage(r[2], NULL, NULL), 0);
	for (size_t i = 0; i < in_order.g->n_tensors; i++)
		assert_memory_equal(in_order.tensors[i], salvaged.tensors[i],
		                    TOKENS_MAX * row_of(&in_order.g->tensors[i]));
	for (size_t i = 0; i < in_order.g->n_tracks; i++)
		assert_memory_equal(in_order.ids[i], salvaged.ids[i], TOKENS_MAX * 4);
	whole_free(&in_order);
	whole_free(&salvaged);
	for (int i = 0; i < 3; i++)
		kvarc_reader_close(&r[i]);
}

static void test_rewinds(void **state)
{
	static const char *const names[][2] = {
		{ "good-rewind.kva", NULL },
		{ "good-rewind-tracks.kva", NULL },
		{ "good-rewind-repeat.kva", NULL },
		{ "good-rewind-indexes.kva", NULL },
		{ "good-transformer-rewind.kva", "transformer.gguf" },
		{ "good-transformer-tokens-rewind.kva", "tokens.gguf" },
		{ "good-fork.kva", NULL },
		{ "good-fork-rewind.kva", NULL },
		{ "good-fork-repeat.kva", NULL },
		{ "good-fork-params.kva", NULL },
		{ "good-linear-fork.kva", NULL },
		{ "good-transformer-fork.kva", "transformer.gguf" },
		{ "good-transformer-tokens-fork.kva", "tokens.gguf" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct memfile f;
		kvarc_predictor *model = NULL;
		kvarc_checkpoint c;
		kvarc_reader *r;
		char path[4096];
		const char *srcdir = getenv("srcdir");
		load(&f, names[i][0]);
		snprintf(path, sizeof path, "%s/spec/vectors/%s", srcdir ? srcdir : ".",
		         names[i][1] ? names[i][1] : "");
		if (names[i][1])
			assert_int_equal(kvarc_predictor_open_model(&model, path, NULL), KVARC_OK);
		read_state(&f, model, 0);
		kvarc_source source = memfile_source(&f);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		size_t k = 0;
		for (; kvarc_reader_checkpoint(r, k, &c) == KVARC_OK; k++)
			read_state(&f, model, c.number);
		assert_int_equal(kvarc_reader_checkpoint(r, k, &c), KVARC_END);
		kvarc_reader_close(&r);
		kvarc_predictor_close(&model);
		memfile_free(&f);
	}
}

/* A file that is damaged behind a checkpoint is good as of it. */
static void test_damage_behind(void **state)
{
	(void)state;
	struct memfile f;
	kvarc_checkpoint c;
	kvarc_reader *r;
	load(&f, "good-rewind.kva");
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	for (int cut = 0; cut < 2; cut++) {
		f.p[f.n - 40] ^= 1;
		f.p[f.n - 2000] ^= 1;
		f.n -= cut ? 2500 : 0;
		kvarc_source source = memfile_source(&f);
		assert_int_equal(cache_verify(&f, NULL), cut ? KVARC_OK : KVARC_DATA);
		o.checkpoint = 3;
		assert_int_equal(cache_verify(&f, &o), KVARC_OK);
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		assert_int_equal(kvarc_reader_checkpoint(r, 2, &c), KVARC_OK);
		assert_int_equal(c.number, 3);
		assert_int_equal(c.label_bytes, 6);
		assert_memory_equal(c.label, "turn 2", 6);
		assert_int_equal(kvarc_reader_checkpoint(r, 3, &c), KVARC_END);
		assert_int_equal(kvarc_reader_tokens(r, 0), 230);
		kvarc_reader_close(&r);
		o.checkpoint = 11;
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OPTIONS);
	}
	memfile_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chains),
		cmocka_unit_test(test_rewinds),
		cmocka_unit_test(test_damage_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
