/* SPDX-License-Identifier: BSD-3-Clause */
/* gate_pack.c - rates of layers that keep a model's answers, or attention outputs, as they are */
#include "gate_pack.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "eval_state.h"
#include "codecs/codec.h"
#include "format/geometry_check.h"
#include "numeric/formats.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/parallel.h"

/* ==== Attention outputs of stand-in queries, before and after an archive ==== */

enum { QUERIES = 64 };

/*
 * Attention is as sharp as logits with this standard deviation make it. Chosen, as random
 * directions were instead of keys, by the rank correlation of layers' errors and their KL alone
 * (bench/METHOD.md).
 */
static const double SHARPNESS = 4;

/* The tensors of a layer. */
struct proxy_layer {
	enum kvi_proxy_layer has;
	const kvarc_tensor *key, *value;
};

/* Buffers of a worker: one head of a cache as floats. */
struct proxy_buffers {
	float *k, *v;      /* keys and values of all tokens */
	double *z;         /* logits of a query */
	double *q;         /* QUERIES of them */
	double *o, *other; /* outputs of them all, and of one */
	double scale[QUERIES];
};

struct kvi_proxy {
	kvarc_eval *e;
	uint32_t n_layers;
	size_t n; /* tokens */
	struct proxy_layer *layers;
	struct proxy_buffers *buffers;
	unsigned n_buffers;
	double *error; /* error of each layer, for the current call */
};

/* ---- layers ---- */

static void find_layers(struct kvi_proxy *proxy)
{
	const kvarc_geometry *g = proxy->e->geometry;
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		struct proxy_layer *l = &proxy->layers[t->layer];
		const kvarc_tensor **place = t->kind == KVARC_KEY ? &l->key : &l->value;
		bool fine = (t->kind == KVARC_KEY || t->kind == KVARC_VALUE) &&
		            t->role == KVARC_WHOLE && kvi_float_format(t->dtype) && proxy->n > 1 &&
		            !*place;
		if (fine)
			*place = t;
		if (!fine || l->has == KVI_PROXY_OTHER)
			l->has = KVI_PROXY_OTHER;
		else
			l->has = KVI_PROXY_ATTENTION;
	}
	for (uint32_t i = 0; i < proxy->n_layers; i++) {
		struct proxy_layer *l = &proxy->layers[i];
		if (l->has == KVI_PROXY_ATTENTION &&
		    (!l->key || !l->value || l->key->heads != l->value->heads))
			l->has = KVI_PROXY_OTHER;
	}
}

static kvarc_ret open_buffers(struct kvi_proxy *proxy)
{
	const struct kvi_alloc *alloc = &proxy->e->alloc;
	size_t k = 0, v = 0;
	for (uint32_t i = 0; i < proxy->n_layers; i++)
		if (proxy->layers[i].has == KVI_PROXY_ATTENTION) {
			const struct proxy_layer *l = &proxy->layers[i];
			k = l->key->channels > k ? l->key->channels : k;
			v = l->value->channels > v ? l->value->channels : v;
		}
	if (!k || !v)
		return KVARC_OK;
	proxy->n_buffers = kvi_pool_workers(proxy->e->pool);
	proxy->buffers = kvi_calloc(alloc, proxy->n_buffers, sizeof *proxy->buffers);
	if (!proxy->buffers)
		return KVARC_MEM;
	/* Products do not overflow: none is more than the bytes of the exact cache, or 64 channels
	 * of each head. */
	for (unsigned i = 0; i < proxy->n_buffers; i++) {
		struct proxy_buffers *r = &proxy->buffers[i];
		r->k = kvi_array(alloc, proxy->n * k, sizeof *r->k);
		r->v = kvi_array(alloc, proxy->n * v, sizeof *r->v);
		r->z = kvi_array(alloc, proxy->n, sizeof *r->z);
		r->q = kvi_array(alloc, QUERIES * k, sizeof *r->q);
		r->o = kvi_array(alloc, QUERIES * v, sizeof *r->o);
		r->other = kvi_array(alloc, v, sizeof *r->other);
		if (!r->k || !r->v || !r->z || !r->q || !r->o || !r->other)
			return KVARC_MEM;
	}
	return KVARC_OK;
}

/* ---- one head ---- */

/* False when an element is not finite. */
static bool load(const kvarc_view *view, const kvarc_tensor *tensor, uint32_t head, size_t n,
                 float *x)
{
	size_t bytes = tensor->channels * kvarc_dtype_bytes(tensor->dtype);
	const uint8_t *from = (const uint8_t *)view->data + head * bytes;
	bool finite = true;
	for (size_t i = 0; i < n; i++, from += view->token_stride) {
		finite = finite && kvi_floats_finite(tensor->dtype, from, tensor->channels);
		kvi_floats_exact(tensor->dtype, from, tensor->channels, x + i * tensor->channels);
	}
	return finite;
}

static bool load_head(struct kvi_proxy *proxy, struct proxy_buffers *r,
                      const struct proxy_layer *layer, const struct kvi_eval_cache *cache,
                      uint32_t head)
{
	const kvarc_tensor *first = proxy->e->geometry->tensors;
	return load(&cache->views[layer->key - first], layer->key, head, proxy->n, r->k) &&
	       load(&cache->views[layer->value - first], layer->value, head, proxy->n, r->v);
}

/* Directions at random, the same in every run: sums of four uniform numbers, almost normal. */
static void make_queries(struct proxy_buffers *r, uint64_t seed, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t x = kvi_splitmix64(&seed);
		r->q[i] = (double)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) +
		                   (x >> 48)) -
		          131070;
	}
}

static void dot_all(const double *q, const float *k, size_t n, size_t d, double *z)
{
	for (size_t t = 0; t < n; t++, k += d) {
		double sum[4] = { 0 };
		size_t c = 0;
		for (; c + 4 <= d; c += 4)
			for (size_t i = 0; i < 4; i++)
				sum[i] += q[c + i] * (double)k[c + i];
		for (; c < d; c++)
			sum[0] += q[c] * (double)k[c];
		z[t] = sum[0] + sum[1] + sum[2] + sum[3];
	}
}

/* 0 for logits that are all the same. */
static double scale_of(const double *z, size_t n)
{
	double mean = 0, square = 0;
	for (size_t t = 0; t < n; t++)
		mean += (z[t] - z[0]) / (double)n;
	for (size_t t = 0; t < n; t++)
		square += (z[t] - z[0] - mean) * (z[t] - z[0] - mean) / (double)n;
	return square > 0 ? SHARPNESS / sqrt(square) : 0;
}

static void attend(const double *z, double scale, const float *v, size_t n, size_t d, double *o)
{
	double most = z[0], sum = 0;
	for (size_t t = 1; t < n; t++)
		most = z[t] > most ? z[t] : most;
	memset(o, 0, d * sizeof *o);
	for (size_t t = 0; t < n; t++, v += d) {
		double w = exp((z[t] - most) * scale);
		sum += w;
		for (size_t c = 0; c < d; c++)
			o[c] += w * (double)v[c];
	}
	for (size_t c = 0; c < d; c++)
		o[c] /= sum;
}

/* The number of tokens that query i of m attends to: evenly spaced, up to all but one. */
static size_t tokens_of(size_t i, size_t m, size_t n)
{
	return n - 1 - i * (n - 1) / m;
}

static double head_error(struct kvi_proxy *proxy, struct proxy_buffers *r,
                         const struct proxy_layer *layer, uint32_t head)
{
	const size_t m = proxy->n - 1 < QUERIES ? proxy->n - 1 : QUERIES;
	const size_t kd = layer->key->channels, vd = layer->value->channels;
	double error = 0, size = 0;
	make_queries(r, ((uint64_t)layer->key->layer << 32) + head, m * kd);
	if (!load_head(proxy, r, layer, &proxy->e->exact, head))
		return INFINITY;
	for (size_t i = 0; i < m; i++) {
		size_t n = tokens_of(i, m, proxy->n);
		dot_all(r->q + i * kd, r->k, n, kd, r->z);
		r->scale[i] = scale_of(r->z, n);
		attend(r->z, r->scale[i], r->v, n, vd, r->o + i * vd);
	}
	if (!load_head(proxy, r, layer, &proxy->e->back, head))
		return INFINITY;
	for (size_t i = 0; i < m; i++) {
		size_t n = tokens_of(i, m, proxy->n);
		const double *o = r->o + i * vd;
		dot_all(r->q + i * kd, r->k, n, kd, r->z);
		attend(r->z, r->scale[i], r->v, n, vd, r->other);
		for (size_t c = 0; c < vd; c++) {
			error += (r->other[c] - o[c]) * (r->other[c] - o[c]);
			size += o[c] * o[c];
		}
	}
	if (error == 0)
		return 0;
	double ratio = sqrt(error / size);
	return isfinite(ratio) ? ratio : INFINITY;
}

static void layer_error(void *opaque, size_t layer, unsigned worker)
{
	struct kvi_proxy *p = opaque;
	const struct proxy_layer *l = &p->layers[layer];
	double worst = 0;
	if (l->has == KVI_PROXY_ATTENTION)
		for (uint32_t h = 0; h < l->key->heads && worst < INFINITY; h++) {
			double e = head_error(p, &p->buffers[worker], l, h);
			worst = e > worst ? e : worst;
		}
	p->error[layer] = worst;
}

/* ---- the handle ---- */

kvarc_ret kvi_proxy_open(struct kvi_proxy **out, kvarc_eval *eval, uint32_t n_layers)
{
	struct kvi_proxy *p = kvi_calloc(&eval->alloc, 1, sizeof *p);
	*out = p;
	if (!p)
		return KVARC_MEM;
	p->e = eval;
	p->n = (size_t)eval->exact.n;
	p->n_layers = n_layers;
	p->layers = kvi_calloc(&eval->alloc, n_layers, sizeof *p->layers);
	kvarc_ret ret = p->layers ? KVARC_OK : KVARC_MEM;
	if (!ret)
		find_layers(p);
	if (!ret)
		ret = open_buffers(p);
	if (ret)
		kvi_proxy_close(out);
	return ret;
}

void kvi_proxy_close(struct kvi_proxy **out)
{
	struct kvi_proxy *p = *out;
	if (!p)
		return;
	const struct kvi_alloc *alloc = &p->e->alloc;
	for (unsigned i = 0; p->buffers && i < p->n_buffers; i++) {
		struct proxy_buffers *r = &p->buffers[i];
		kvi_free(alloc, r->k);
		kvi_free(alloc, r->v);
		kvi_free(alloc, r->z);
		kvi_free(alloc, r->q);
		kvi_free(alloc, r->o);
		kvi_free(alloc, r->other);
	}
	kvi_free(alloc, p->buffers);
	kvi_free(alloc, p->layers);
	kvi_free(alloc, p);
	*out = NULL;
}

enum kvi_proxy_layer kvi_proxy_has(const struct kvi_proxy *proxy, uint32_t layer)
{
	return proxy->layers[layer].has;
}

void kvi_proxy_measure(struct kvi_proxy *proxy, double *error)
{
	proxy->error = error;
	kvi_parallel(proxy->e->pool, proxy->n_layers, layer_error, proxy);
}

/* ==== Rates of layers that keep a model's answers, or attention outputs, as they are ==== */

enum { PREFIX_DEFAULT = 4096, CONTINUATION_DEFAULT = 64 };

enum {
	FETCH_TOKENS = 256,
	QUARTER = 4,       /* finest step of a layer: a quarter bit, in 1/16 bit */
	HALF = 8,          /* step of all layers together */
	ARCHIVES_MAX = 12, /* archives to try without a model */
	NOTE_BYTES = 256
};

struct kvarc_gate {
	struct kvarc_eval e;
	double max_kl, max_error; /* the other one is 0 */
	kvarc_import *im;
	kvarc_writer_options writer;
	kvarc_lossy lossy;
	uint32_t n_layers;
	int16_t *rates;      /* rate of each layer, as kvarc_lossy.layer_rate */
	double *sensitivity; /* KL of each layer alone, or the error of its outputs */
	struct kvi_proxy *proxy;
	kvarc_view *mixed; /* one view per tensor */
	int32_t *ids;
	kvarc_gate_result result;
	char note[NOTE_BYTES];
};

static kvarc_ret fail(const struct kvarc_eval *eval, kvarc_ret ret, const char *what)
{
	return kvi_fail(eval->o.common.error, ret, "%s", what);
}

/* ---- the cache ---- */

static kvarc_ret check_cache(struct kvarc_gate *gate)
{
	const kvarc_geometry *x = kvarc_import_geometry(gate->im);
	uint64_t n = x->n_tracks == 1 ? kvarc_import_tokens(gate->im, 0) : 0;
	struct kvarc_eval *e = &gate->e;
	if (x->n_tracks != 1 || !x->n_tensors)
		return fail(e, KVARC_GEOMETRY,
		            "a gate needs a cache with one track of keys and values");
	if (gate->max_error > 0)
		e->o.continuation = 0; /* no text follows the cache */
	if (n < (uint64_t)e->o.continuation + 1)
		return fail(e, KVARC_GEOMETRY, "the cache has too few tokens for a gate");
	if (n - e->o.continuation < e->o.prefix)
		e->o.prefix = (uint32_t)(n - e->o.continuation);
	e->o.dtype = x->tensors[0].dtype;
	e->geometry = x;
	return KVARC_OK;
}

static kvarc_ret fetch_elements(struct kvarc_gate *gate)
{
	struct kvarc_eval *e = &gate->e;
	const kvarc_geometry *x = e->geometry;
	for (uint32_t i = 0; i < x->n_tensors; i++)
		for (uint32_t t = 0; t < e->o.prefix; t += FETCH_TOKENS) {
			uint32_t n = e->o.prefix - t < FETCH_TOKENS ? e->o.prefix - t
			                                            : FETCH_TOKENS;
			uint8_t *to = (uint8_t *)e->exact.views[i].data +
			              t * e->exact.views[i].token_stride;
			if (kvarc_import_fetch(gate->im, i, 0, x->tensors[i].heads, t, n, to))
				return fail(e, KVARC_IO, "the cache cannot be read");
		}
	return KVARC_OK;
}

/* Reads the cache for the model: with token ids. */
static kvarc_ret fetch(struct kvarc_gate *gate)
{
	struct kvarc_eval *e = &gate->e;
	const uint32_t all = e->o.prefix + e->o.continuation;
	kvarc_ret ret = kvarc_import_read_tokens(gate->im, 0, 0, all, gate->ids, e->positions);
	if (ret == KVARC_OPTIONS)
		return fail(e, KVARC_GEOMETRY,
		            "a gate needs the token ids of the cache, and the file has none");
	for (uint32_t i = 0; i < all && !ret; i++)
		if (e->positions[i] != (int32_t)i)
			ret = fail(e, KVARC_GEOMETRY, "a gate needs positions from 0 on");
	return ret ? ret : fetch_elements(gate);
}

static kvarc_ret open_layers(struct kvarc_gate *gate, uint32_t n)
{
	gate->n_layers = n;
	gate->rates = kvi_calloc(&gate->e.alloc, n, sizeof *gate->rates);
	gate->sensitivity = kvi_calloc(&gate->e.alloc, n, sizeof *gate->sensitivity);
	return gate->rates && gate->sensitivity
	               ? KVARC_OK
	               : kvi_fail_alloc(gate->e.o.common.error, &gate->e.alloc);
}

static kvarc_ret start(struct kvarc_gate *gate)
{
	struct kvarc_eval *e = &gate->e;
	const struct kvi_model_file *m = kvi_predictor_file(e->o.predictor);
	if (!m)
		return fail(e, KVARC_OPTIONS, "a gate needs a model that runs here");
	if ((uint64_t)e->o.prefix + e->o.continuation > kvi_model_positions(m))
		return fail(e, KVARC_GEOMETRY, "the cache is longer than the model can see");
	kvarc_ret ret = open_layers(gate, m->n_layers);
	if (ret)
		return ret;
	gate->mixed = kvi_calloc(&e->alloc, e->geometry->n_tensors, sizeof *gate->mixed);
	gate->ids = kvi_calloc(&e->alloc, (size_t)e->o.prefix + e->o.continuation,
	                       sizeof *gate->ids);
	if (!gate->mixed || !gate->ids)
		return kvi_fail_alloc(e->o.common.error, &e->alloc);
	ret = kvi_eval_start(e);
	if (!ret)
		ret = fetch(gate);
	return ret ? ret : kvi_eval_make_exact(e, gate->ids);
}

/* Starts a gate without a model. Layers without attention stay as they are. */
static kvarc_ret start_proxy(struct kvarc_gate *gate)
{
	struct kvarc_eval *e = &gate->e;
	const kvarc_geometry *x = e->geometry;
	uint32_t n = 0;
	for (size_t i = 0; i < x->n_tensors; i++)
		n = x->tensors[i].layer >= n ? x->tensors[i].layer + 1 : n;
	kvarc_ret ret = open_layers(gate, n);
	if (!ret)
		ret = kvi_eval_start_caches(e);
	if (!ret)
		ret = fetch_elements(gate);
	if (!ret && kvarc_import_read_tokens(gate->im, 0, 0, e->o.prefix, NULL, e->positions))
		ret = fail(e, KVARC_IO, "the cache cannot be read");
	if (ret)
		return ret;
	ret = kvi_proxy_open(&gate->proxy, e, n);
	if (ret)
		return kvi_fail_alloc(e->o.common.error, &e->alloc);
	for (uint32_t l = 0; l < n; l++)
		if (kvi_proxy_has(gate->proxy, l) == KVI_PROXY_OTHER)
			gate->rates[l] = KVARC_LOSSY_NOTHING;
	return KVARC_OK;
}

/* ---- rates ---- */

static kvarc_ret try_rates(struct kvarc_gate *gate, int *passed)
{
	kvarc_eval_result *r = &gate->result.eval;
	kvarc_ret ret = kvi_eval_through_archive(&gate->e, gate->ids, &gate->writer, r);
	gate->result.archives++;
	if (!ret)
		ret = kvi_eval_compare(&gate->e, gate->e.back.views, gate->e.back.n, r);
	*passed = !ret && kvarc_eval_passes(r, gate->max_kl);
	return ret;
}

/* Measures each layer alone, as decoded from the archive. */
static kvarc_ret try_layers(struct kvarc_gate *gate)
{
	const kvarc_geometry *x = gate->e.geometry;
	kvarc_ret ret = KVARC_OK;
	for (uint32_t l = 0; l < gate->n_layers && !ret; l++) {
		kvarc_eval_result r = { 0 };
		for (size_t i = 0; i < x->n_tensors; i++)
			gate->mixed[i] = x->tensors[i].layer == l ? gate->e.back.views[i]
			                                          : gate->e.exact.views[i];
		ret = kvi_eval_compare(&gate->e, gate->mixed, gate->e.exact.n, &r);
		/* The gate's two conditions as one number. */
		gate->sensitivity[l] = r.mean_kl > r.p99_kl / 30 ? r.mean_kl : r.p99_kl / 30;
	}
	return ret;
}

/* Raises a layer by `more` sixteenths of a bit; it is lossless beyond the tier's largest rate. */
static void raise(struct kvarc_gate *gate, uint32_t layer, int more)
{
	if (gate->rates[layer] == KVARC_LOSSY_NOTHING)
		return;
	int rate = gate->rates[layer] + more;
	gate->rates[layer] = gate->lossy.rate + rate > kvi_lossy_max_rate(gate->lossy.tier)
	                             ? KVARC_LOSSY_NOTHING
	                             : (int16_t)rate;
}

/*
 * The layers' divergences are assumed to add up, and to fall to a quarter with each bit. The least
 * bits for a sum then give all raised layers the same divergence, the highest that fits.
 */
static void raise_worst(struct kvarc_gate *gate)
{
	const double all = 0.8 * gate->max_kl, quarter_bit = 0.70710678118654752;
	double most = 0, sum = 2 * all;
	for (uint32_t l = 0; l < gate->n_layers; l++)
		most = gate->sensitivity[l] > most ? gate->sensitivity[l] : most;
	for (unsigned i = 0; i < 200 && sum > all; i++, most *= 0.84) {
		sum = 0;
		for (uint32_t l = 0; l < gate->n_layers; l++)
			sum += gate->sensitivity[l] < most ? gate->sensitivity[l] : most;
	}
	for (uint32_t l = 0; l < gate->n_layers; l++) {
		int more = 0;
		for (double kl = gate->sensitivity[l]; kl > most && more < HALF * QUARTER * 4;
		     kl *= quarter_bit)
			more += QUARTER;
		raise(gate, l, more);
	}
}

static void count(struct kvarc_gate *gate)
{
	kvarc_gate_result *r = &gate->result;
	r->layers = r->raised = r->unchanged = 0;
	for (uint32_t l = 0; l < gate->n_layers; l++) {
		if (gate->proxy && kvi_proxy_has(gate->proxy, l) == KVI_PROXY_NOTHING)
			continue;
		r->layers++;
		r->unchanged += gate->rates[l] == KVARC_LOSSY_NOTHING;
		r->raised += gate->rates[l] != KVARC_LOSSY_NOTHING && gate->rates[l] > 0;
	}
}

static kvarc_ret search(struct kvarc_gate *gate)
{
	int passed;
	kvarc_ret ret = try_rates(gate, &passed);
	if (!ret && !passed)
		ret = try_layers(gate);
	if (!ret && !passed) {
		raise_worst(gate);
		ret = try_rates(gate, &passed);
	}
	count(gate);
	while (!ret && !passed && gate->result.unchanged < gate->result.layers) {
		for (uint32_t l = 0; l < gate->n_layers; l++)
			raise(gate, l, HALF);
		count(gate);
		ret = try_rates(gate, &passed);
	}
	gate->result.passed = passed && gate->result.unchanged < gate->result.layers;
	return ret;
}

/* ---- rates without a model ---- */

static kvarc_ret try_errors(struct kvarc_gate *gate)
{
	kvarc_gate_result *r = &gate->result;
	kvarc_ret ret = kvi_eval_through_archive(&gate->e, NULL, &gate->writer, &r->eval);
	r->archives++;
	if (ret)
		return ret;
	kvi_proxy_measure(gate->proxy, gate->sensitivity);
	r->worst_error = 0;
	for (uint32_t l = 0; l < gate->n_layers; l++)
		if (gate->rates[l] != KVARC_LOSSY_NOTHING && gate->sensitivity[l] > r->worst_error)
			r->worst_error = gate->sensitivity[l];
	r->passed = r->worst_error <= gate->max_error;
	return kvi_eval_progress(&gate->e, gate->e.o.prefix);
}

/* The sixteenths of a bit to add, if an error halves with each bit; the tier's largest rate is
 * tried before a layer stays as it is. Towards the end that is at once. */
static int more_bits(const struct kvarc_gate *gate, uint32_t layer)
{
	const double quarter_bit = 0.84089641525371454;
	int most = kvi_lossy_max_rate(gate->lossy.tier), more = 0;
	int capacity = most - gate->lossy.rate - gate->rates[layer];
	double e = gate->sensitivity[layer];
	if (isinf(e) || gate->result.archives + 2 >= ARCHIVES_MAX)
		return most;
	for (; e > gate->max_error && more < most; e *= quarter_bit)
		more += QUARTER;
	return capacity > 0 && more > capacity ? capacity : more;
}

/* Layers that others are predicted from change the errors of those, too: all are measured again. */
static void raise_errors(struct kvarc_gate *gate)
{
	for (uint32_t l = 0; l < gate->n_layers; l++)
		if (gate->rates[l] != KVARC_LOSSY_NOTHING && gate->sensitivity[l] > gate->max_error)
			raise(gate, l, more_bits(gate, l));
}

static kvarc_ret search_errors(struct kvarc_gate *gate)
{
	kvarc_gate_result *r = &gate->result;
	kvarc_ret ret = KVARC_OK;
	for (count(gate);
	     !ret && !r->passed && r->unchanged < r->layers && r->archives < ARCHIVES_MAX;
	     count(gate)) {
		ret = try_errors(gate);
		if (!ret && !r->passed)
			raise_errors(gate);
	}
	return ret;
}

static void make_note(struct kvarc_gate *gate)
{
	const kvarc_gate_result *r = &gate->result;
	const kvarc_lossy *from = gate->writer.lossy;
	char found[NOTE_BYTES / 2];
	if (gate->proxy)
		snprintf(found, sizeof found,
		         "error of attention outputs (proxy) %.2e, limit %g over %u tokens",
		         r->worst_error, gate->max_error, (unsigned)gate->e.o.prefix);
	else
		snprintf(found, sizeof found, "KL %.2e, p99 %.2e, limit %g over %u tokens",
		         r->eval.mean_kl, r->eval.p99_kl, gate->max_kl,
		         (unsigned)gate->e.o.continuation);
	snprintf(gate->note, sizeof gate->note,
	         "%.80s; gate: %s; of %u layers %u with more bits, %u unchanged",
	         from->note ? from->note : "", found, (unsigned)r->layers, (unsigned)r->raised,
	         (unsigned)r->unchanged);
	gate->lossy.note = gate->note;
}

/* ---- the handle ---- */

static bool may_open(const kvarc_gate_options *options)
{
	if (!options->writer || !options->writer->lossy)
		return false;
	if (options->max_error > 0)
		return options->max_error < 1 && options->max_kl == 0;
	return options->max_error == 0 && options->predictor && options->max_kl > 0 &&
	       options->continuation > 1;
}

static kvarc_ret run(struct kvarc_gate *gate)
{
	if (!kvi_lossy_max_rate(gate->lossy.tier))
		return fail(&gate->e, KVARC_OPTIONS,
		            "a gate can raise the rates of the tiers had and klt alone");
	kvarc_ret ret = check_cache(gate);
	/* Layers of caches with other tokens cannot stand side by side. */
	uint64_t n = ret ? 0 : kvarc_import_tokens(gate->im, 0);
	for (uint64_t t = 0; t < n && !ret; t++)
		if (kvi_lossy_rate_at(&gate->lossy, t, n) == KVARC_LOSSY_DROP)
			ret = fail(&gate->e, KVARC_OPTIONS,
			           "a gate cannot raise the rates of tokens that are left out");
	if (!ret)
		ret = gate->max_error > 0 ? start_proxy(gate) : start(gate);
	if (ret)
		return ret;
	gate->lossy.layer_rate = gate->rates;
	gate->lossy.n_layers = gate->n_layers;
	ret = gate->max_error > 0 ? search_errors(gate) : search(gate);
	make_note(gate);
	return ret;
}

kvarc_ret kvarc_gate_import(kvarc_gate **out, kvarc_import *im, const kvarc_gate_options *options)
{
	struct kvarc_gate *g;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	if (!options)
		return KVARC_PROG;
	kvarc_gate_options complete = *options, *o = &complete;
	o->prefix = o->prefix ? o->prefix : PREFIX_DEFAULT;
	o->continuation = o->continuation ? o->continuation : CONTINUATION_DEFAULT;
	if (!im || !may_open(o))
		return kvi_fail(o->common.error, KVARC_PROG,
		                "kvarc_gate_import: an import, a writer's options with a tier, and "
		                "one limit are needed: of errors, or of a KL with a predictor and "
		                "a continuation of at least 2 tokens");
	kvarc_ret ret = KVI_CHECK_RESERVED(o->common.error, "kvarc_gate_import",
	                                   "kvarc_gate_options", o);
	if (ret)
		return ret;
	uint64_t limit = o->common.memlimit ? o->common.memlimit : UINT64_MAX;
	ret = kvi_handle_new(&g, sizeof *g, offsetof(struct kvarc_gate, e.alloc), &o->common,
	                     limit);
	if (ret)
		return ret;
	g->e.o = (kvarc_eval_options){ .common = o->common,
		                       .predictor = o->predictor,
		                       .prefix = o->prefix,
		                       .continuation = o->continuation };
	g->e.o.common.memlimit = limit;
	g->e.total = KVARC_UNKNOWN;
	g->im = im;
	g->max_kl = o->max_kl;
	g->max_error = o->max_error;
	g->lossy = *o->writer->lossy;
	g->writer = *o->writer;
	g->writer.lossy = &g->lossy;
	g->writer.flags &= ~(unsigned)KVARC_WRITE_EMBED_PROFILE;
	ret = run(g);
	if (ret)
		kvarc_gate_close(&g);
	*out = g;
	return ret;
}

void kvarc_gate_close(kvarc_gate **out)
{
	struct kvarc_gate *g = out ? *out : NULL;
	if (!g)
		return;
	const struct kvi_alloc *alloc = &g->e.alloc;
	kvi_proxy_close(&g->proxy); /* the proxy's memory is the evaluation's */
	kvi_eval_stop(&g->e);
	kvi_free(alloc, g->rates);
	kvi_free(alloc, g->sensitivity);
	kvi_free(alloc, g->mixed);
	kvi_free(alloc, g->ids);
	kvi_free(alloc, g);
	*out = NULL;
}

const kvarc_lossy *kvarc_gate_lossy(const kvarc_gate *g)
{
	return g && g->result.passed ? &g->lossy : NULL;
}

kvarc_ret kvarc_gate_get_result(const kvarc_gate *g, kvarc_gate_result *result)
{
	if (!g || !result)
		return KVARC_PROG;
	*result = g->result;
	return KVARC_OK;
}
