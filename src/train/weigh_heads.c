/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weigh_heads.c - finer steps for the heads that a model's answers depend on most
 *
 * What changes of single heads do to the answers nearly adds up, and grows with the square of a
 * change. The fewest bits for a sum have a head's change go with one over the root of what it does:
 * reverse water-filling over heads (Cover and Thomas, Elements of Information Theory, 10.3.3), with
 * the model's own measure.
 */
#include "weigh_heads.h"

#include "codecs/lossy/quantiser.h"
#include "eval/sensitivity.h"
#include "util/error.h"

enum {
	SEQUENCES = 4,
	PREFIX = 512,
	CONTINUATION = 64,
	LEAST = 64,  /* tokens */
	FAR = 3 * 16 /* from the average at most */
};

/* ---- sequences ---- */

static size_t tokens_of(const struct kvi_train_cache *c)
{
	return c->ids ? c->n : 0;
}

static kvarc_ret open_eval(kvarc_trainer *t, kvarc_eval **e)
{
	size_t most = 0;
	kvarc_eval_options o = KVARC_EVAL_OPTIONS_INIT;
	for (size_t s = 0; s < t->n_stacks; s++)
		for (size_t i = 0; i < t->stacks[s].n_caches; i++)
			if (tokens_of(t->stacks[s].caches[i]) > most)
				most = tokens_of(t->stacks[s].caches[i]);
	if (most < LEAST + CONTINUATION)
		return KVARC_END;
	o.common = t->options.common;
	o.predictor = t->options.klt.sensitivity;
	unsigned dtype = kvi_train_tensor_of(t->stacks[0].caches[0], 0)->dtype;
	if (dtype == KVARC_F32 || dtype == KVARC_F16)
		o.dtype = dtype; /* others are weighed as they are in bf16 */
	o.continuation = CONTINUATION;
	o.prefix = most - CONTINUATION < PREFIX ? (uint32_t)most - CONTINUATION : PREFIX;
	return kvarc_eval_open(e, &o);
}

/* Otherwise it would weigh heads that the caches do not have. */
static bool is_of_model(const kvarc_trainer *t, const kvarc_geometry *g)
{
	const struct kvi_train_stack *s = &t->stacks[0];
	for (size_t i = 0; i < s->n_shapes; i++) {
		const struct kvi_train_shape *x = &s->shapes[i];
		size_t k = 0;
		while (k < g->n_tensors &&
		       (g->tensors[k].layer != x->layer || (uint8_t)g->tensors[k].kind != x->kind))
			k++;
		if (k == g->n_tensors || g->tensors[k].heads != x->heads ||
		    g->tensors[k].channels != x->channels)
			return false;
	}
	return t->n_stacks == 1;
}

static bool long_enough(const kvarc_eval *e, const struct kvi_train_cache *c)
{
	return tokens_of(c) >= kvi_sensitivity_tokens(e);
}

/* Over caches that are spread evenly. */
static kvarc_ret measure(const kvarc_trainer *t, kvarc_eval *e, double *sensitivity)
{
	size_t n = 0, at = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t s = 0; s < t->n_stacks; s++)
		for (size_t i = 0; i < t->stacks[s].n_caches; i++)
			n += long_enough(e, t->stacks[s].caches[i]);
	for (size_t s = 0; s < t->n_stacks; s++)
		for (size_t i = 0; i < t->stacks[s].n_caches && !ret; i++) {
			const struct kvi_train_cache *c = t->stacks[s].caches[i];
			if (!long_enough(e, c))
				continue;
			/* SEQUENCES of the n, or all of them */
			if (at * SEQUENCES % n < SEQUENCES)
				ret = kvi_sensitivity_add(e, c->ids, sensitivity);
			at++;
		}
	return ret;
}

/* ---- units ---- */

/* From 1 up to 2^-30 of a nat, in quarters of an octave. */
static int quarters(double sensitivity)
{
	float v = sensitivity > 1 ? 1 : sensitivity > 0x1p-30 ? (float)sensitivity : 0x1p-30f;
	return kvi_quarter_log(v);
}

static kvarc_ret set_units(kvarc_trainer *t, const kvarc_eval *e, const double *sensitivity)
{
	const kvarc_geometry *g = kvi_sensitivity_geometry(e);
	const size_t n = kvi_sensitivity_heads(e);
	int sum = 0;
	size_t at = 0;
	t->units = kvi_array(&t->alloc, n, sizeof *t->units);
	if (!t->units)
		return kvi_train_no_memory(t);
	t->n_units = n;
	for (size_t i = 0; i < n; i++)
		sum += quarters(sensitivity[i]);
	for (size_t i = 0; i < g->n_tensors; i++)
		for (uint32_t h = 0; h < g->tensors[i].heads; h++, at++) {
			/* half of a quarter, in sixteenths */
			int u = 2 * (sum / (int)n - quarters(sensitivity[at]));
			t->units[at] = (struct kvi_train_unit){ g->tensors[i].layer, h,
				                                (uint8_t)g->tensors[i].kind,
				                                (int16_t)(u > FAR    ? FAR
				                                          : u < -FAR ? -FAR
				                                                     : u) };
		}
	return KVARC_OK;
}

kvarc_ret kvi_train_weigh(kvarc_trainer *t)
{
	kvarc_eval *e = NULL;
	double *sensitivity = NULL;
	if (!t->options.klt.sensitivity)
		return KVARC_OK;
	kvarc_ret ret = open_eval(t, &e);
	if (ret == KVARC_END)
		kvi_train_note(t,
		               "no cache has %d tokens with token ids: all heads get "
		               "the same quantisation steps",
		               LEAST + CONTINUATION);
	if (ret == KVARC_OPTIONS)
		kvi_train_note(t, "the model has no output matrix: all heads get the "
		                  "same quantisation steps");
	if (ret)
		return ret == KVARC_END || ret == KVARC_OPTIONS ? KVARC_OK : ret;
	if (!is_of_model(t, kvi_sensitivity_geometry(e)))
		ret = kvi_fail(t->error, KVARC_PREDICTOR,
		               "the caches are not of the model that measures head sensitivity");
	if (!ret) {
		sensitivity = kvi_calloc(&t->alloc, kvi_sensitivity_heads(e), sizeof *sensitivity);
		ret = sensitivity ? measure(t, e, sensitivity) : kvi_train_no_memory(t);
	}
	if (!ret)
		ret = set_units(t, e, sensitivity);
	kvi_free(&t->alloc, sensitivity);
	kvarc_eval_close(&e);
	return ret;
}

double kvi_train_unit_of(const kvarc_trainer *t, const struct kvi_model *m, size_t head)
{
	for (size_t i = 0; i < t->n_units; i++)
		if (t->units[i].layer == m->layer && t->units[i].kind == m->kind &&
		    t->units[i].head == head)
			return kvi_power_of(t->units[i].unit);
	return 1;
}
