/* SPDX-License-Identifier: BSD-3-Clause */
/* test_external.c - predictors of an application (spec model 5), through writer and reader */
#include <stdatomic.h>

#include "prediction_util.h"
#include "numeric/formats.h"

/* Knows what the cache holds, up to noise. */
struct oracle {
	const struct cache *c;
	float noise;
	int fail;       /* function that fails, counted from 1 */
	size_t fail_at; /* from this token on */
	atomic_int opened, inside;
};

struct external_sequence {
	struct oracle *o;
	size_t t0, n;
	uint32_t layer;
};

enum { OPEN = 1, SEGMENT, PREDICT, ADVANCE, RESTART };

static int fails(const struct external_sequence *s, int function)
{
	return s->o->fail == function && s->t0 >= s->o->fail_at;
}

static void enter(struct external_sequence *s)
{
	assert_int_equal(atomic_fetch_add(&s->o->inside, 1), 0);
}

static int leave(struct external_sequence *s, int function)
{
	atomic_fetch_sub(&s->o->inside, 1);
	return fails(s, function);
}

static float element(const struct oracle *o, uint32_t layer, bool value, size_t i)
{
	const uint16_t *x = (const uint16_t *)(const void *)o->c->data[2 * layer + value];
	uint32_t bits = (uint32_t)x[i] << 16;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static int oracle_open(void *opaque, void **sequence)
{
	struct external_sequence *s = calloc(1, sizeof *s);
	assert_non_null(s);
	s->o = opaque;
	if (fails(s, OPEN)) {
		free(s);
		return -1;
	}
	s->o->opened++;
	*sequence = s;
	return 0;
}

static void oracle_close(void *sequence)
{
	struct external_sequence *s = sequence;
	s->o->opened--;
	free(s);
}

static int oracle_segment(void *sequence, const int32_t *ids, const int32_t *positions, size_t n)
{
	struct external_sequence *s = sequence;
	enter(s);
	s->t0 += s->n;
	s->n = n;
	s->layer = 0;
	assert_memory_equal(ids, s->o->c->ids[0] + s->t0, n * sizeof *ids);
	assert_memory_equal(positions, s->o->c->positions[0] + s->t0, n * sizeof *ids);
	return leave(s, SEGMENT);
}

static int oracle_predict(void *sequence, uint32_t layer, float *k, float *v)
{
	struct external_sequence *s = sequence;
	enter(s);
	assert_int_equal(layer, s->layer);
	for (size_t i = 0; i < s->n * CHANNELS; i++) {
		size_t at = s->t0 * CHANNELS + i;
		float noise = (float)((at * 7919 + layer) % 17) - 8;
		k[i] = element(s->o, layer, false, at) + noise * s->o->noise;
		v[i] = element(s->o, layer, true, at) - noise * s->o->noise;
	}
	return leave(s, PREDICT);
}

static int oracle_advance(void *sequence, uint32_t layer, const float *k, const float *v)
{
	struct external_sequence *s = sequence;
	enter(s);
	assert_int_equal(layer, s->layer);
	s->layer++;
	for (size_t i = 0; i < s->n * CHANNELS; i++) {
		size_t at = s->t0 * CHANNELS + i;
		assert_true(k[i] == element(s->o, layer, false, at));
		assert_true(v[i] == element(s->o, layer, true, at));
	}
	return leave(s, ADVANCE);
}

static int oracle_restart(void *sequence)
{
	struct external_sequence *s = sequence;
	enter(s);
	s->t0 = s->n = 0;
	return leave(s, RESTART);
}

static const kvarc_external shape = {
	.identity = { 1, 2, 3 },
	.name = "oracle",
	.layers = LAYERS,
	.heads = 1,
	.channels = CHANNELS,
	.open = oracle_open,
	.close = oracle_close,
	.segment = oracle_segment,
	.predict = oracle_predict,
	.advance = oracle_advance,
	.restart = oracle_restart,
};

static kvarc_predictor *external(struct oracle *o, unsigned identity)
{
	kvarc_external x = shape;
	kvarc_predictor *p;
	x.identity[15] = (uint8_t)identity;
	x.opaque = o;
	assert_int_equal(kvarc_predictor_open_external(&p, &x, NULL), KVARC_OK);
	return p;
}

/* A world whose predictor is the oracle. */
static void begin(struct world *w, struct oracle *o, int level, float noise)
{
	world_open(w, level);
	kvarc_predictor_close(&w->model);
	memset(o, 0, sizeof *o);
	o->c = &w->c;
	o->noise = noise;
	w->model = external(o, 0);
	w->wo.predictor = w->ro.predictor = w->model;
}

static void end(struct world *w, struct oracle *o)
{
	assert_int_equal(o->opened, 0);
	world_close(w);
}

static double bits_each(const struct world *w)
{
	return 8.0 * (double)w->f.n / (TOKENS * CHANNELS * 2 * LAYERS);
}

static void test_round_trip(void **state)
{
	static const float noises[] = { 0, 0x1p-12f, 0x1p-7f };
	(void)state;
	for (int level = 4; level <= 7; level++) {
		double before = 0;
		for (size_t i = 0; i < 3; i++) {
			struct world w;
			struct oracle o;
			begin(&w, &o, level, noises[i]);
			w.wo.common.threads = w.ro.common.threads = (unsigned)i + 1;
			world_write(&w);
			assert_true(bits_each(&w) > before);
			before = bits_each(&w);
			print_message("level %d, noise %g: %.3f bits\n", level, (double)noises[i],
			              before);
			assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
			assert_true(cache_equal(&w.c, &w.back));
			world_empty(&w);
			assert_int_equal(cache_read_range(&w.back, &w.f, &w.ro), KVARC_OK);
			assert_true(cache_equal(&w.c, &w.back));
			end(&w, &o);
		}
	}
}

/* A range of layers, then one before it. */
static void test_ranges(void **state)
{
	static const kvarc_range ranges[] = { { .n_layers = 1, .t0 = 300, .n = 100 },
		                              { .layer0 = 1, .n_layers = 1, .t0 = 10, .n = 5 },
		                              { .n_layers = 2, .t0 = 590, .n = 10 } };
	struct world w;
	struct oracle o;
	kvarc_reader *r;
	(void)state;
	begin(&w, &o, 5, 0x1p-10f);
	world_write(&w);
	kvarc_source source = memfile_source(&w.f);
	assert_int_equal(kvarc_reader_open(&r, &source, &w.ro), KVARC_OK);
	for (size_t i = 0; i < 3; i++) {
		const kvarc_range *g = &ranges[i];
		size_t row = 2 * CHANNELS, at = g->t0 * row;
		kvarc_view views[16];
		world_empty(&w);
		cache_views_at(&w.back, g->t0, views);
		assert_int_equal(kvarc_reader_read(r, g, views), KVARC_OK);
		assert_memory_equal(w.back.data[2 * g->layer0] + at, w.c.data[2 * g->layer0] + at,
		                    g->n * row);
	}
	kvarc_reader_close(&r);
	end(&w, &o);
}

static void test_errors(void **state)
{
	struct world w;
	struct oracle o;
	(void)state;
	begin(&w, &o, 5, 0);
	world_write(&w);
	o.noise = 0x1p-8f; /* came to other numbers */
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "diverged at layer 0"));
	o.noise = 0;
	kvarc_predictor *other = external(&o, 9);
	w.ro.predictor = other;
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "other weights"));
	kvarc_predictor_close(&other);
	w.ro.predictor = open_model("llama");
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_PREDICTOR);
	kvarc_predictor_close((kvarc_predictor **)(uintptr_t)&w.ro.predictor);
	end(&w, &o);
}

/* Whichever function fails, early or late: an error, no hang, and all is closed. */
static void test_failures(void **state)
{
	struct world w;
	struct oracle o;
	(void)state;
	begin(&w, &o, 5, 0);
	world_write(&w);
	for (unsigned i = 0; i < 5 * 2 * 3; i++) {
		struct memfile f = { .fail_at = -1 };
		o.fail = OPEN + (int)(i % 5);
		o.fail_at = i / 5 % 2 ? 256 : 0;
		if (o.fail_at && (o.fail == OPEN || o.fail == RESTART))
			continue; /* once, before the first token */
		w.wo.common.threads = w.ro.common.threads = i / 10 + 1;
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_PREDICTOR);
		assert_non_null(strstr(w.error.text, "external predictor"));
		kvarc_ret ret = cache_write(&w.c, &f, &w.wo);
		assert_int_equal(ret, o.fail == RESTART ? KVARC_OK : KVARC_PREDICTOR);
		memfile_free(&f);
	}
	end(&w, &o);
}

/* The sizes of channels are as good as a profile. */
static void test_sizes(void **state)
{
	struct world w;
	struct oracle o;
	kvarc_profile *p;
	(void)state;
	begin(&w, &o, 6, 0x1p-12f);
	world_write(&w);
	double fitted = bits_each(&w);
	assert_int_equal(kvarc_profile_of_sizes(&p, 6, &w.c.g, 100, w.c.views, NULL), KVARC_OK);
	w.wo.profile = p;
	w.wo.flags |= KVARC_WRITE_EMBED_PROFILE;
	world_write(&w);
	print_message("%.3f bits, %.3f with sizes\n", fitted, bits_each(&w));
	assert_true(bits_each(&w) < fitted);
	w.ro.n_profiles = 0;
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
	assert_true(cache_equal(&w.c, &w.back));
	kvarc_profile_close(&p);
	assert_int_equal(kvarc_profile_of_sizes(&p, 3, &w.c.g, 100, w.c.views, NULL), KVARC_PROG);
	assert_null(p);
	w.c.tensors[0].kind = w.c.tensors[1].kind = KVARC_MLA_LATENT;
	w.c.tensors[2].kind = w.c.tensors[3].kind = KVARC_MLA_LATENT;
	w.c.tensors[0].flags = w.c.tensors[2].flags = 0;
	w.c.tensors[0].rope = w.c.tensors[2].rope = 0;
	assert_int_equal(kvarc_profile_of_sizes(&p, 5, &w.c.g, 100, w.c.views, NULL),
	                 KVARC_GEOMETRY);
	assert_null(p);
	end(&w, &o);
}

/* ---- an exact engine of a usual shape ---- */

enum {
	WIDE_HEADS = 8,
	WIDE_CHANNELS = 64,
	WIDE = WIDE_HEADS * WIDE_CHANNELS,
	WIDE_LAYERS = 4,
	WIDE_TOKENS = 768,
	OTHER_TOKENS = 300
};

static float hash(uint32_t tensor, size_t at)
{
	uint32_t x = (uint32_t)at * 2654435761u + tensor;
	x ^= x >> 15;
	return (float)(int32_t)(x * 2246822519u) * 0x1p-31f;
}

static int wide_predict(void *sequence, uint32_t layer, float *k, float *v)
{
	const struct external_sequence *s = sequence;
	for (size_t i = 0; i < s->n * WIDE; i++) {
		k[i] = hash(2 * layer, s->t0 * WIDE + i);
		v[i] = hash(2 * layer + 1, s->t0 * WIDE + i);
	}
	return 0;
}

static int wide_segment(void *sequence, const int32_t *ids, const int32_t *positions, size_t n)
{
	struct external_sequence *s = sequence;
	(void)ids;
	(void)positions;
	s->t0 += s->n;
	s->n = n;
	return 0;
}

static int wide_advance(void *sequence, uint32_t layer, const float *k, const float *v)
{
	(void)sequence, (void)layer, (void)k, (void)v;
	return 0;
}

/* With a second track, which no predictor can go through. */
static void make_wide(struct cache *c)
{
	memset(c, 0, sizeof *c);
	c->g.n_tracks = 2;
	c->g.n_tensors = 2 * WIDE_LAYERS + 1;
	c->n[0] = WIDE_TOKENS;
	c->n[1] = OTHER_TOKENS;
	c->tracks[1].kind = KVARC_TRACK_STATE;
	c->tensors[2 * WIDE_LAYERS] = (kvarc_tensor){
		.kind = KVARC_OPAQUE, .dtype = KVARC_U8, .heads = 1, .channels = 4, .track = 1
	};
	for (uint32_t i = 0; i < 2 * WIDE_LAYERS; i++)
		c->tensors[i] = (kvarc_tensor){ .layer = i / 2,
			                        .kind = i & 1 ? KVARC_VALUE : KVARC_KEY,
			                        .dtype = KVARC_F16,
			                        .heads = WIDE_HEADS,
			                        .channels = WIDE_CHANNELS };
	cache_link(c);
	for (uint32_t i = 0; i < 2 * WIDE_LAYERS; i++)
		for (size_t at = 0; at < WIDE_TOKENS * WIDE; at++) {
			float x = hash(i, at);
			kvi_floats_store(KVARC_F16, &x, 1, c->data[i] + 2 * at);
		}
	for (int t = 0; t < WIDE_TOKENS; t++) {
		c->positions[0][t] = t;
		c->ids[0][t] = (int32_t)((uint32_t)t * 40503u % 50000u);
	}
	for (int t = 0; t < OTHER_TOKENS; t++) {
		c->positions[1][t] = c->ids[1][t] = t;
		memset(c->data[2 * WIDE_LAYERS] + 4 * t, t, 4);
	}
}

/* fp32 that rounds to the elements: nothing is left but checks and token ids. */
static void test_exact(void **state)
{
	static struct cache c, back;
	struct memfile f = { .fail_at = -1 };
	struct oracle o = { .noise = 0 };
	kvarc_external x = shape;
	kvarc_predictor *p;
	kvarc_profile *sizes;
	(void)state;
	make_wide(&c);
	x.layers = WIDE_LAYERS;
	x.heads = WIDE_HEADS;
	x.channels = WIDE_CHANNELS;
	x.segment = wide_segment;
	x.predict = wide_predict;
	x.advance = wide_advance;
	x.opaque = &o;
	assert_int_equal(kvarc_predictor_open_external(&p, &x, NULL), KVARC_OK);
	assert_int_equal(kvarc_profile_of_sizes(&sizes, 8, &c.g, 100, c.views, NULL), KVARC_OK);
	const kvarc_profile *list[] = { sizes };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = { .profiles = list, .n_profiles = 1, .predictor = p };
	wo.level = 8;
	wo.predictor = p;
	wo.profile = sizes;
	assert_int_equal(cache_write(&c, &f, &wo), KVARC_OK);
	size_t raw = 4 * (size_t)WIDE_LAYERS * WIDE_TOKENS * WIDE;
	print_message("%zu bytes to %zu: %zu times smaller\n", raw, f.n, raw / f.n);
	assert_true(f.n < raw / 500);
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
	assert_true(cache_equal(&c, &back));
	cache_free(&back);
	cache_make_empty(&back, &c);
	assert_int_equal(cache_read_range(&back, &f, &ro), KVARC_OK);
	assert_true(cache_equal(&c, &back));
	kvarc_profile_close(&sizes);
	kvarc_predictor_close(&p);
	memfile_free(&f);
	cache_free(&c);
	cache_free(&back);
}

static void test_wrong_calls(void **state)
{
	kvarc_predictor *p;
	kvarc_predictor_model m;
	uint8_t digest[16];
	struct oracle o = { .c = NULL };
	(void)state;
	kvarc_external bad[4] = { shape, shape, shape, shape };
	bad[0].predict = NULL;
	bad[1].channels = 257;
	bad[2].layers = 0;
	bad[3].heads = 65536;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(kvarc_predictor_open_external(&p, &bad[i], NULL), KVARC_PROG);
		assert_null(p);
	}
	/* each function is needed */
	for (int i = 0; i < 6; i++) {
		kvarc_external x = shape;
		x.open = i == 0 ? NULL : x.open;
		x.close = i == 1 ? NULL : x.close;
		x.segment = i == 2 ? NULL : x.segment;
		x.predict = i == 3 ? NULL : x.predict;
		x.advance = i == 4 ? NULL : x.advance;
		x.restart = i == 5 ? NULL : x.restart;
		assert_int_equal(kvarc_predictor_open_external(&p, &x, NULL), KVARC_PROG);
	}
	assert_int_equal(kvarc_predictor_open_external(&p, NULL, NULL), KVARC_PROG);
	p = external(&o, 4);
	assert_int_equal(kvarc_predictor_get_model(p, &m), KVARC_OK);
	assert_string_equal(m.name, "oracle");
	assert_int_equal(m.channels, CHANNELS);
	assert_int_equal(kvarc_predictor_digest(p, digest), KVARC_OK);
	assert_int_equal(digest[15], 4);
	kvarc_predictor_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_errors),      cmocka_unit_test(test_failures),
		cmocka_unit_test(test_sizes),       cmocka_unit_test(test_exact),
		cmocka_unit_test(test_wrong_calls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
