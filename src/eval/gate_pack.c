/* SPDX-License-Identifier: BSD-3-Clause */
/* gate_pack.c - rates of layers that keep a model's answers, or attention outputs, as they are */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codecs/codec.h"
#include "eval_state.h"
#include "cache_proxy.h"
#include "format/geometry_check.h"
#include "util/arguments.h"
#include "util/error.h"

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
