/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_util.c - a tiny model, a cache that it could have made, and a profile for the two */
#include "config.h"

#include "prediction_util.h"

#include <stdio.h>

#include "predictor_handle.h"
#include "numeric/formats.h"
#include "profile/profile_io.h"
#include "profile/profile_handle.h"

const char *model_path(const char *name)
{
	const char *dir = getenv("srcdir"); /* set by `make check' */
	static char path[1024];
	snprintf(path, sizeof path, "%s/tests/data/models/%s", dir ? dir : ".", name);
	return path;
}

kvarc_predictor *open_model(const char *name)
{
	kvarc_predictor *p;
	kvarc_ret ret = kvarc_predictor_open_model(&p, model_path(name), NULL);
#ifndef HAVE_JANSSON
	if (ret == KVARC_OPTIONS)
		skip(); /* a folder */
#endif
	assert_int_equal(ret, KVARC_OK);
	return p;
}

/* ---- a cache that the model could have made ---- */

static uint16_t bf16(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	return (uint16_t)((b + 0x8000) >> 16);
}

/* Half-split channels of a slot. */
static size_t channel(size_t slot)
{
	return slot / 2 + (slot & 1 ? CHANNELS / 2 : 0);
}

static void take_layer(struct cache *c, struct kvi_run *run, size_t layer, size_t t0, size_t n,
                       uint64_t *seed)
{
	struct kvi_predicted p = kvi_run_predict(run);
	float k[256 * CHANNELS], v[256 * CHANNELS];
	uint16_t *key = (uint16_t *)(void *)c->data[2 * layer];
	uint16_t *value = (uint16_t *)(void *)c->data[2 * layer + 1];
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < CHANNELS; i++) {
			uint64_t z = rand_next(seed);
			float noise = (float)(int8_t)z * 0x1p-14f;
			float other = (float)(int8_t)(z >> 8) * 0x1p-14f;
			k[t * CHANNELS + i] = p.k[t * p.stride + i] + noise;
			v[t * CHANNELS + i] = p.v[t * p.stride + i] + other;
		}
	kvi_run_rotate(run, k, CHANNELS);
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < CHANNELS; i++) {
			size_t at = (t0 + t) * CHANNELS;
			key[at + channel(i)] = bf16(k[t * CHANNELS + i]);
			value[at + i] = bf16(v[t * CHANNELS + i]);
		}
	assert_int_equal(kvi_run_advance(run, k, v, CHANNELS, false), KVARC_OK);
}

/* What the model predicts, bit for bit, and nothing but that. */
static void take_exactly(struct cache *c, struct kvi_run *run, size_t layer, size_t t0, size_t n,
                         bool closed)
{
	struct kvi_predicted p = kvi_run_predict(run);
	const unsigned dtype = c->tensors[0].dtype;
	const size_t row = CHANNELS * kvarc_dtype_bytes(dtype);
	float k[256 * CHANNELS], v[256 * CHANNELS], x[CHANNELS];
	for (size_t t = 0; t < n; t++) {
		memcpy(k + t * CHANNELS, p.k + t * p.stride, sizeof x);
		memcpy(v + t * CHANNELS, p.v + t * p.stride, sizeof x);
	}
	kvi_run_rotate(run, k, CHANNELS);
	for (size_t t = 0; t < n; t++) {
		uint8_t *key = c->data[2 * layer] + (t0 + t) * row;
		uint8_t *value = c->data[2 * layer + 1] + (t0 + t) * row;
		for (size_t i = 0; i < CHANNELS; i++)
			x[channel(i)] = k[t * CHANNELS + i];
		kvi_floats_store(dtype, x, CHANNELS, key);
		kvi_floats_store(dtype, v + t * CHANNELS, CHANNELS, value);
		if (!closed)
			continue;
		kvi_floats_exact(dtype, key, CHANNELS, x);
		for (size_t i = 0; i < CHANNELS; i++)
			k[t * CHANNELS + i] = x[channel(i)];
		kvi_floats_exact(dtype, value, CHANNELS, v + t * CHANNELS);
	}
	assert_int_equal(kvi_run_advance(run, k, v, CHANNELS, false), KVARC_OK);
}

/* exact: a level, or 0: noise is added. */
static void fill(struct cache *c, const kvarc_predictor *p, int exact)
{
	const struct kvi_alloc *alloc = kvi_predictor_alloc(p);
	const struct kvi_engine_level best = kvi_engine_level(exact ? (unsigned)exact : 7);
	struct kvi_run_options o = { .alloc = alloc };
	struct kvi_run *run;
	uint64_t seed = 3;
	assert_int_equal(kvi_predictor_engine(p, &best.arithmetic, 0, &o.engine, NULL), KVARC_OK);
	assert_int_equal(kvi_pool_open(&o.pool, alloc, 1), KVARC_OK);
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	for (size_t t = 0; t < TOKENS; t++) {
		c->ids[0][t] = (int32_t)(rand_next(&seed) % WORDS);
		c->positions[0][t] = (int32_t)t;
	}
	for (size_t t = 0; t < TOKENS; t += 256) {
		size_t n = TOKENS - t < 256 ? TOKENS - t : 256;
		assert_int_equal(kvi_run_segment(run, c->ids[0] + t, c->positions[0] + t, n),
		                 KVARC_OK);
		for (size_t l = 0; l < LAYERS && !exact; l++)
			take_layer(c, run, l, t, n, &seed);
		for (size_t l = 0; l < LAYERS && exact; l++)
			take_exactly(c, run, l, t, n, best.closed);
	}
	kvi_run_close(&run);
	kvi_pool_close(o.pool);
}

static void make_cache(struct cache *c, const kvarc_predictor *p, unsigned dtype, int exact)
{
	/* A copy: tests replace the model by another predictor. It is always the same. */
	static uint64_t freqs[CHANNELS / 2];
	const struct kvi_model_rope *r = &kvi_predictor_file(p)->ropes[0];
	assert_int_equal(r->rotary, CHANNELS);
	memcpy(freqs, r->freq, sizeof freqs);
	memset(c, 0, sizeof *c);
	c->ropes[0] = (kvarc_rope){ .pairing = KVARC_ROPE_HALF, .rotary = CHANNELS, .freq = freqs };
	c->g.n_ropes = 1;
	c->g.n_tracks = 1;
	c->n[0] = TOKENS;
	for (uint32_t i = 0; i < 2 * LAYERS; i++) {
		bool key = i % 2 == 0;
		c->tensors[c->g.n_tensors++] =
			(kvarc_tensor){ .layer = i / 2,
			                .kind = key ? KVARC_KEY : KVARC_VALUE,
			                .dtype = (uint8_t)dtype,
			                .heads = 1,
			                .channels = CHANNELS,
			                .flags = key ? KVARC_TENSOR_POST_ROPE : 0,
			                .rope = key };
	}
	cache_link(c);
	fill(c, p, exact);
}

/* ---- a profile for it ---- */

static void fill_model(struct kvi_model *m, uint64_t *seed)
{
	for (size_t i = 0; i < CHANNELS; i++) {
		m->step[i] = -13;
		m->k[i] = -32;
		if (m->b_stride) {
			m->qb[i] = 8;
			m->b[i * m->b_stride] = (int16_t)(rand_next(seed) % 9);
		}
	}
	for (size_t i = 0; m->d_stride && i < m->width; i++) {
		m->e[i] = 20;
		for (size_t j = 0; j < m->d_stride; j++)
			m->d[i * m->d_stride + j] = (int16_t)(rand_next(seed) % 31);
	}
}

static kvarc_profile *make_profile(const struct cache *c, unsigned level, uint32_t width)
{
	const kvarc_common common = KVARC_COMMON_INIT;
	kvarc_profile *h;
	uint64_t seed = 5;
	assert_int_equal(kvi_profile_handle_new(&h, &common), KVARC_OK);
	assert_int_equal(kvi_profile_new(&h->profile, &h->alloc), KVARC_OK);
	struct kvi_profile *p = h->profile;
	p->ropes = kvi_calloc(p->alloc, 1, sizeof *p->ropes);
	p->models = kvi_calloc(p->alloc, 2 * LAYERS, sizeof *p->models);
	size_t freqs = CHANNELS / 2 * sizeof(uint64_t);
	p->ropes[0].rotary = CHANNELS;
	p->ropes[0].freq = kvi_malloc(p->alloc, freqs);
	memcpy(p->ropes[0].freq, c->ropes[0].freq, freqs);
	p->n_ropes = 1;
	for (uint32_t i = 0; i < 2 * LAYERS; i++) {
		struct kvi_model *m = &p->models[p->n_models++];
		bool key = i % 2 == 0;
		*m = (struct kvi_model){
			.level = (uint8_t)level,
			.layer = i / 2,
			.kind = key ? KVARC_KEY : KVARC_VALUE,
			.heads = 1,
			.head_channels = CHANNELS,
			.rope = key,
			.flags = KVI_MODEL_SCALE,
			.n0 = 8,
		};
		if (!key) {
			m->n_same = 1;
			m->same[0].kind = KVARC_KEY;
			m->flags |= level > 4 ? KVI_MODEL_CORRECTS : 0;
			m->width = width;
		}
		assert_int_equal(kvi_model_reserve(p, m), KVARC_OK);
		fill_model(m, &seed);
	}
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	assert_int_equal(kvi_profile_handle_finish(h), KVARC_OK);
	return h;
}

/* ---- all of it ---- */

static void open_world(struct world *w, int level, unsigned dtype, int exact)
{
	memset(w, 0, sizeof *w);
	w->f.fail_at = -1;
	w->model = open_model("llama");
	make_cache(&w->c, w->model, dtype, exact);
	w->profile = make_profile(&w->c, kvi_models_level((unsigned)level),
	                          kvi_predictor_file(w->model)->width);
	w->list[0] = w->profile;
	w->wo = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	w->wo.level = KVARC_LEVEL(level);
	w->wo.flags = KVARC_WRITE_FILE_ID;
	w->wo.profile = w->profile;
	w->wo.predictor = w->model;
	w->wo.predictor_name = "tiny";
	w->wo.common.error = &w->error;
	w->ro.common.error = &w->error;
	w->ro.profiles = w->list;
	w->ro.n_profiles = 1;
	w->ro.predictor = w->model;
	cache_make_empty(&w->back, &w->c);
}

void world_open(struct world *w, int level)
{
	open_world(w, level, KVARC_BF16, 0);
}

void world_open_exact(struct world *w, int level, unsigned dtype)
{
	open_world(w, level, dtype, level);
}

void world_close(struct world *w)
{
	memfile_free(&w->f);
	cache_free(&w->c);
	cache_free(&w->back);
	kvarc_profile_close(&w->profile);
	kvarc_predictor_close(&w->model);
}

void world_empty(struct world *w)
{
	cache_free(&w->back);
	cache_make_empty(&w->back, &w->c);
}

void world_read(struct world *w)
{
	world_empty(w);
	kvarc_ret ret = cache_read_seq(&w->back, &w->f, &w->ro, NULL);
	if (ret)
		fail_msg("%d: %s", ret, w->error.text);
	assert_true(cache_equal(&w->c, &w->back));
}

void world_write(struct world *w)
{
	memfile_free(&w->f);
	w->f = (struct memfile){ .fail_at = -1 };
	kvarc_ret ret = cache_write(&w->c, &w->f, &w->wo);
	if (ret)
		print_message("%s\n", w->error.text);
	assert_int_equal(ret, KVARC_OK);
}

size_t world_chunk(struct world *w, uint32_t tensor, uint64_t t0)
{
	kvarc_source source = memfile_source(&w->f);
	kvarc_chunk_info chunk;
	kvarc_reader *r;
	assert_int_equal(kvarc_reader_open(&r, &source, &w->ro), KVARC_OK);
	for (uint64_t i = 0;; i++) {
		assert_int_equal(kvarc_reader_chunk(r, i, &chunk), KVARC_OK);
		if (chunk.tensor == tensor && chunk.t0 == t0)
			break;
	}
	kvarc_reader_close(&r);
	return (size_t)chunk.offset;
}
