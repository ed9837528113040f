/* SPDX-License-Identifier: BSD-3-Clause */
/* cache_proxy.c - attention outputs of stand-in queries, before and after an archive */
#include "cache_proxy.h"

#include <math.h>
#include <string.h>

#include "util/hash.h"
#include "util/parallel.h"
#include "numeric/formats.h"

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
