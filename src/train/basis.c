/* SPDX-License-Identifier: BSD-3-Clause */
/* basis.c - bases of lossy profiles, and the weights of heads */
#include "basis.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "dense.h"
#include "train_layer.h"
#include "train_run.h"
#include "codecs/had/had.h"
#include "eval/sensitivity.h"
#include "numeric/formats.h"
#include "profile/linear_model.h"
#include "profile/profile_io.h"
#include "util/ckd.h"
#include "util/error.h"
#include "util/fpmode.h"

/* ==== Finer steps for the heads that a model's answers depend on most ==== */

/*
 * The effects of changes to single heads on the answers nearly add up, and grow with the square of
 * a change. The fewest bits for a given sum have a head's change proportional to one over the root
 * of its effect: reverse water-filling over heads (Cover and Thomas, Elements of Information
 * Theory, 10.3.3), with the model's own measure.
 */

enum {
	SEQUENCES = 4,
	PREFIX = 512,
	CONTINUATION = 64,
	LEAST = 64,             /* tokens */
	DEVIATION_MOST = 3 * 16 /* largest deviation from the average */
};

/* ---- sequences ---- */

static size_t tokens_of(const struct kvi_train_cache *cache)
{
	return cache->ids ? cache->n : 0;
}

static kvarc_ret open_eval(kvarc_trainer *trainer, kvarc_eval **eval)
{
	size_t most = 0;
	kvarc_eval_options o = KVARC_EVAL_OPTIONS_INIT;
	for (size_t s = 0; s < trainer->n_stacks; s++)
		for (size_t i = 0; i < trainer->stacks[s].n_caches; i++)
			if (tokens_of(trainer->stacks[s].caches[i]) > most)
				most = tokens_of(trainer->stacks[s].caches[i]);
	if (most < LEAST + CONTINUATION)
		return KVARC_END;
	o.common = trainer->options.common;
	o.predictor = trainer->options.klt.sensitivity;
	unsigned dtype = kvi_train_tensor_of(trainer->stacks[0].caches[0], 0)->dtype;
	if (dtype == KVARC_F32 || dtype == KVARC_F16)
		o.dtype = dtype; /* others are weighed as they are in bf16 */
	o.continuation = CONTINUATION;
	o.prefix = most - CONTINUATION < PREFIX ? (uint32_t)most - CONTINUATION : PREFIX;
	return kvarc_eval_open(eval, &o);
}

/* Whether the model's caches have the trainer's tensors: otherwise it would weigh heads that those
 * do not have. */
static bool is_of_model(const kvarc_trainer *trainer, const kvarc_geometry *geometry)
{
	const struct kvi_train_stack *s = &trainer->stacks[0];
	for (size_t i = 0; i < s->n_shapes; i++) {
		const struct kvi_train_shape *x = &s->shapes[i];
		size_t k = 0;
		while (k < geometry->n_tensors && (geometry->tensors[k].layer != x->layer ||
		                                   (uint8_t)geometry->tensors[k].kind != x->kind))
			k++;
		if (k == geometry->n_tensors || geometry->tensors[k].heads != x->heads ||
		    geometry->tensors[k].channels != x->channels)
			return false;
	}
	return trainer->n_stacks == 1;
}

static bool long_enough(const kvarc_eval *eval, const struct kvi_train_cache *cache)
{
	return tokens_of(cache) >= kvi_sensitivity_tokens(eval);
}

/* Measures the sensitivity over caches that are spread evenly. */
static kvarc_ret measure(const kvarc_trainer *trainer, kvarc_eval *eval, double *sensitivity)
{
	size_t n = 0, at = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t s = 0; s < trainer->n_stacks; s++)
		for (size_t i = 0; i < trainer->stacks[s].n_caches; i++)
			n += long_enough(eval, trainer->stacks[s].caches[i]);
	for (size_t s = 0; s < trainer->n_stacks; s++)
		for (size_t i = 0; i < trainer->stacks[s].n_caches && !ret; i++) {
			const struct kvi_train_cache *c = trainer->stacks[s].caches[i];
			if (!long_enough(eval, c))
				continue;
			/* SEQUENCES of the n, or all of them */
			if (at * SEQUENCES % n < SEQUENCES)
				ret = kvi_sensitivity_add(eval, c->ids, sensitivity);
			at++;
		}
	return ret;
}

/* ---- units ---- */

/* Sensitivity in quarters of an octave, limited to 1 down to 2^-30 of a nat. */
static int quarters(double sensitivity)
{
	float v = sensitivity > 1 ? 1 : sensitivity > 0x1p-30 ? (float)sensitivity : 0x1p-30f;
	return kvi_quarter_log(v);
}

static kvarc_ret set_units(kvarc_trainer *trainer, const kvarc_eval *eval,
                           const double *sensitivity)
{
	const kvarc_geometry *g = kvi_sensitivity_geometry(eval);
	const size_t n = kvi_sensitivity_heads(eval);
	int sum = 0;
	size_t at = 0;
	trainer->units = kvi_array(&trainer->alloc, n, sizeof *trainer->units);
	if (!trainer->units)
		return kvi_train_no_memory(trainer);
	trainer->n_units = n;
	for (size_t i = 0; i < n; i++)
		sum += quarters(sensitivity[i]);
	for (size_t i = 0; i < g->n_tensors; i++)
		for (uint32_t h = 0; h < g->tensors[i].heads; h++, at++) {
			/* half of a quarter, in sixteenths */
			int u = 2 * (sum / (int)n - quarters(sensitivity[at]));
			trainer->units[at] = (struct kvi_train_unit){
				g->tensors[i].layer, h, (uint8_t)g->tensors[i].kind,
				(int16_t)(u > DEVIATION_MOST    ? DEVIATION_MOST
				          : u < -DEVIATION_MOST ? -DEVIATION_MOST
				                                : u)
			};
		}
	return KVARC_OK;
}

kvarc_ret kvi_train_weigh(kvarc_trainer *trainer)
{
	kvarc_eval *e = NULL;
	double *sensitivity = NULL;
	if (!trainer->options.klt.sensitivity)
		return KVARC_OK;
	kvarc_ret ret = open_eval(trainer, &e);
	if (ret == KVARC_END)
		kvi_train_note(trainer,
		               "no cache has %d tokens with token ids: all heads get "
		               "the same quantisation steps",
		               LEAST + CONTINUATION);
	if (ret == KVARC_OPTIONS)
		kvi_train_note(trainer, "the model has no output matrix: all heads get the "
		                        "same quantisation steps");
	if (ret)
		return ret == KVARC_END || ret == KVARC_OPTIONS ? KVARC_OK : ret;
	if (!is_of_model(trainer, kvi_sensitivity_geometry(e)))
		ret = kvi_fail(trainer->error, KVARC_PREDICTOR,
		               "the caches are not of the model that measures head sensitivity");
	if (!ret) {
		sensitivity = kvi_calloc(&trainer->alloc, kvi_sensitivity_heads(e),
		                         sizeof *sensitivity);
		ret = sensitivity ? measure(trainer, e, sensitivity) : kvi_train_no_memory(trainer);
	}
	if (!ret)
		ret = set_units(trainer, e, sensitivity);
	kvi_free(&trainer->alloc, sensitivity);
	kvarc_eval_close(&e);
	return ret;
}

/* Unit of a head as a factor; 1 where it is not known. */
static double train_unit_of(const kvarc_trainer *trainer, const struct kvi_model *model,
                            size_t head)
{
	for (size_t i = 0; i < trainer->n_units; i++)
		if (trainer->units[i].layer == model->layer &&
		    trainer->units[i].kind == model->kind && trainer->units[i].head == head)
			return kvi_power_of(trainer->units[i].unit);
	return 1;
}

/* ==== Linear predictions between tensors that klt transforms (spec klt 2) ==== */

/*
 * Least squares of a tensor's channels on those of the tensors before it, with the noise that
 * decoding adds to them: on the diagonal of their covariance, so that sources that are mostly
 * noise get small coefficients, and in the covariance of the residual.
 */

/* The largest number of source tensors held in memory. */
enum { TRAIN_SOURCES_MOST = 8 };

/* A tensor that others may be predicted from: numbers in units of 2^step about its means. */
struct train_source {
	const struct kvi_model *m;
	int16_t *z;   /* C rows of all tokens */
	double noise; /* variance that decoded elements of a head of weight 1 will have about them,
	                     * in those units */
};

/* The tensors of lower layers that a transform may predict from, in the order of
 * train_below_add(). */
struct train_below {
	size_t n;
	struct train_source sources[TRAIN_SOURCES_MOST];
};

enum {
	TOKENS_EACH = 4,      /* required for each source channel */
	HEAD_BLOCK_FROM = 513 /* channels of a tensor */
};

static bool head_block(const kvarc_trainer *trainer, const struct kvi_model *model)
{
	if (trainer->options.flags & (KVARC_TRAIN_HEAD_BLOCK | KVARC_TRAIN_WHOLE_LAYER))
		return trainer->options.flags & KVARC_TRAIN_HEAD_BLOCK;
	return (size_t)model->heads * model->head_channels >= HEAD_BLOCK_FROM;
}

static void drop_source(kvarc_trainer *trainer, struct train_below *below, size_t i)
{
	kvi_free(&trainer->alloc, below->sources[i].z);
	below->sources[i] = below->sources[--below->n];
}

/* Frees all z in *below. */
static void train_below_free(kvarc_trainer *trainer, struct train_below *below)
{
	while (below->n)
		drop_source(trainer, below, below->n - 1);
}

/* Adds a tensor to *below. Takes ownership of z (C rows of all tokens); frees it when *below is
 * full. */
static void train_below_add(kvarc_trainer *trainer, struct train_below *below,
                            const struct kvi_model *model, int16_t *z, double noise)
{
	if (below->n == TRAIN_SOURCES_MOST)
		kvi_free(&trainer->alloc, z);
	else
		below->sources[below->n++] = (struct train_source){ model, z, noise };
}

/* Sets the sources of model, which has none, from the tensors in *below; frees those of layers
 * that are too low. tokens: the number of tokens to fit on. */
static void train_below_choose(kvarc_trainer *trainer, struct train_below *below,
                               struct kvi_model *model, double tokens)
{
	const bool block = head_block(trainer, model),
		   first = model->layer % trainer->options.klt.group == 0;
	double channels = 0;
	for (size_t i = below->n; i-- > 0;)
		if (below->sources[i].m->layer + 1 < model->layer)
			drop_source(trainer, below, i);
	for (size_t i = 0; i < below->n && model->n_lower < KVI_LOWER_MAX; i++) {
		const struct kvi_model *from = below->sources[i].m;
		bool by_head = block && model->heads % from->heads == 0;
		if (first && from->layer != model->layer)
			continue;
		channels += (by_head ? 1.0 : from->heads) * from->head_channels;
		model->lower[model->n_lower++] =
			(struct kvi_source){ .delta = (uint8_t)(model->layer - from->layer),
			                     .kind = from->kind,
			                     .scope = by_head };
	}
	if (tokens < TOKENS_EACH * channels)
		model->n_lower = 0;
}

/* A fit at work: features are all channels of the sources, then the tensor's own. */
struct below_fit {
	kvarc_trainer *t;
	const struct train_below *b;
	struct kvi_model *m;
	size_t n_x, n_all;
	double *g;     /* n_all x n_all */
	double *noise; /* n_x */
	double *cov;
	/* Fit of the channels [first, first + n_y) of the tensor to the features that predict
	 * them. */
	size_t first, n_y, n_seen;
	size_t *seen, *entry; /* features; the indices of their entries in rows of A */
	double *s, *a, *work;
};

static const struct train_source *source_of(const struct below_fit *fit, unsigned source)
{
	for (size_t i = 0; i < fit->b->n; i++)
		if (fit->b->sources[i].m == fit->m->lower[source].model)
			return &fit->b->sources[i];
	return NULL; /* never reached: the models were chosen from these */
}

static kvarc_ret take_moments(struct below_fit *fit, const int16_t *z, const float *w,
                              size_t n_tokens)
{
	kvarc_trainer *t = fit->t;
	struct kvi_train_feature *x = kvi_calloc(&t->alloc, fit->n_all, sizeof *x);
	double *mean = kvi_array(&t->alloc, fit->n_all, sizeof *mean);
	kvarc_ret ret = x && mean ? KVARC_OK : kvi_train_no_memory(t);
	size_t at = 0;
	for (unsigned i = 0; i <= fit->m->n_lower && !ret; i++) {
		const struct train_source *k = i < fit->m->n_lower ? source_of(fit, i) : NULL;
		const struct kvi_model *m = k ? k->m : fit->m;
		for (size_t c = 0; c < m->C; c++, at++) {
			const double unit = k ? train_unit_of(t, m, c / m->head_channels) : 1;
			double sum = 0;
			x[at].z = (k ? k->z : z) + c * n_tokens;
			for (size_t n = 0; n < n_tokens; n++)
				sum += (double)x[at].z[n] * x[at].z[n];
			x[at].sigma = sqrt(sum / (double)n_tokens);
			if (k)
				fit->noise[at] = k->noise * unit * unit;
		}
	}
	if (!ret)
		ret = kvi_train_gram(t, x, fit->n_all, w, n_tokens, fit->g, mean);
	kvi_free(&t->alloc, x);
	kvi_free(&t->alloc, mean);
	return ret;
}

/* Finds the features that the channels see, and the indices of their coefficients. */
static void look_around(struct below_fit *fit)
{
	size_t feature = 0, entry = 0;
	fit->n_seen = 0;
	for (unsigned i = 0; i < fit->m->n_lower; i++) {
		const struct kvi_model *from = fit->m->lower[i].model;
		const size_t hc = from->head_channels, buffer = kvi_head_stride(from);
		size_t h0 = 0, heads = from->heads;
		if (fit->m->lower[i].scope) {
			h0 = fit->first / fit->m->head_channels % heads;
			heads = 1;
		}
		for (size_t h = 0; h < heads; h++)
			for (size_t c = 0; c < hc; c++) {
				fit->seen[fit->n_seen] = feature + (h0 + h) * hc + c;
				fit->entry[fit->n_seen++] = entry + h * buffer + c;
			}
		feature += from->C;
		entry += heads * buffer;
	}
}

/* Column c of a, as integers in a row of A, and what those mean. */
static void store_row(void *arg, size_t c)
{
	const struct below_fit *f = arg;
	struct kvi_model *m = f->m;
	int16_t *to = m->a + (f->first + c) * m->a_stride;
	double sum = 0, most = 0, unit = 65536;
	unsigned q = 16;
	for (size_t i = 0; i < f->n_seen; i++) {
		double v = f->a[i * f->n_y + c], size = v < 0 ? -v : v;
		sum += size;
		most = size > most ? size : most;
	}
	/* Rounding adds half a unit for each coefficient at most. */
	for (; q &&
	       (sum * unit > KVI_COEF_SUM_MAX - (double)f->n_seen || most * unit > INT16_MAX - 1);
	     q--)
		unit /= 2;
	const bool fits = sum * unit <= KVI_COEF_SUM_MAX - (double)f->n_seen &&
	                  most * unit <= INT16_MAX - 1;
	m->qa[f->first + c] = (uint8_t)q;
	for (size_t i = 0; i < f->n_seen; i++) {
		double v = f->a[i * f->n_y + c] * unit;
		to[f->entry[i]] = (int16_t)(!fits ? 0 : v < 0 ? v - 0.5 : v + 0.5);
		f->a[i * f->n_y + c] = to[f->entry[i]] / unit;
	}
}

/* Column c of the features' covariance with noise times a, into work. */
static void multiply(void *arg, size_t c)
{
	const struct below_fit *f = arg;
	for (size_t i = 0; i < f->n_seen; i++) {
		const double *row = f->g + f->seen[i] * f->n_all;
		double sum = f->noise[f->seen[i]] * f->a[i * f->n_y + c];
		for (size_t k = 0; k < f->n_seen; k++)
			sum += row[f->seen[k]] * f->a[k * f->n_y + c];
		f->work[i * f->n_y + c] = sum;
	}
}

/* Covariance of the residuals y - a^T x of two channels of a head. */
static void leave(void *arg, size_t c)
{
	const struct below_fit *f = arg;
	const size_t hc = f->m->head_channels, h = c / hc * hc;
	const size_t y = f->n_x + f->first;
	for (size_t d = h; d < h + hc; d++) {
		double sum = f->g[(y + c) * f->n_all + y + d];
		for (size_t i = 0; i < f->n_seen; i++) {
			const double *row = f->g + f->seen[i] * f->n_all + y;
			sum += f->a[i * f->n_y + c] * (f->work[i * f->n_y + d] - row[d]) -
			       row[c] * f->a[i * f->n_y + d];
		}
		f->cov[(f->first + c) * hc + d - h] = sum;
	}
}

static kvarc_ret fit_channels(struct below_fit *fit)
{
	kvarc_trainer *t = fit->t;
	const size_t n = fit->n_seen, y = fit->n_x + fit->first;
	for (size_t i = 0; i < n; i++) {
		const double *row = fit->g + fit->seen[i] * fit->n_all;
		for (size_t k = 0; k < n; k++)
			fit->s[i * n + k] = row[fit->seen[k]];
		fit->s[i * n + i] += fit->noise[fit->seen[i]];
		memcpy(fit->a + i * fit->n_y, row + y, fit->n_y * sizeof *fit->a);
	}
	if (!kvi_train_cholesky(t, fit->s, n, n))
		return kvi_train_no_memory(t);
	kvi_train_solve(t, fit->s, n, n, fit->a, fit->n_y, fit->work);
	kvi_train_parallel(t, fit->n_y, store_row, fit);
	kvi_train_parallel(t, fit->n_y, multiply, fit);
	kvi_train_parallel(t, fit->n_y, leave, fit);
	return KVARC_OK;
}

static kvarc_ret fit_all(struct below_fit *fit, bool by_head)
{
	kvarc_ret ret = KVARC_OK;
	fit->n_y = by_head ? fit->m->head_channels : fit->m->C;
	for (fit->first = 0; fit->first < fit->m->C && !ret; fit->first += fit->n_y) {
		look_around(fit);
		ret = fit_channels(fit);
	}
	return ret;
}

/*
 * Fits the rows of A of a model that has its means and steps. cov, written: the covariance of the
 * residual of each head, in units of 2^step. w: weights of the tokens. Returns OK, MEM, MEMLIMIT.
 */
static kvarc_ret train_below_fit(kvarc_trainer *trainer, const struct train_below *below,
                                 struct kvi_model *model, const int16_t *z, const float *w,
                                 size_t n_tokens, double *cov)
{
	const struct kvi_alloc *alloc = &trainer->alloc;
	struct below_fit f = { .t = trainer, .b = below, .m = model, .cov = cov };
	bool by_head = false;
	for (unsigned i = 0; i < model->n_lower; i++) {
		f.n_x += model->lower[i].model->C;
		by_head = by_head || model->lower[i].scope;
	}
	f.n_all = f.n_x + model->C;
	const size_t most = f.n_x > model->C ? f.n_x : model->C;
	f.g = kvi_array(alloc, f.n_all, f.n_all * sizeof *f.g);
	f.noise = kvi_calloc(alloc, f.n_x, sizeof *f.noise);
	f.seen = kvi_array(alloc, f.n_x, sizeof *f.seen);
	f.entry = kvi_array(alloc, f.n_x, sizeof *f.entry);
	f.s = kvi_array(alloc, f.n_x, f.n_x * sizeof *f.s);
	f.a = kvi_array(alloc, f.n_x, model->C * sizeof *f.a);
	f.work = kvi_array(alloc, f.n_x, most * sizeof *f.work);
	kvarc_ret ret = f.g && f.noise && f.seen && f.entry && f.s && f.a && f.work
	                        ? KVARC_OK
	                        : kvi_train_no_memory(trainer);
	if (!ret)
		ret = take_moments(&f, z, w, n_tokens);
	if (!ret)
		ret = fit_all(&f, by_head);
	void *const buffers[] = { f.g, f.noise, f.seen, f.entry, f.s, f.a, f.work };
	for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
		kvi_free(alloc, buffers[i]);
	return ret;
}

/*
 * ==== The basis in which a head's channels vary independently of each other (spec klt) *
 * Karhunen-Loeve transform: eigenvectors of the covariance over all tokens that are fitted, keys
 * without RoPE.
 */

enum {
	SINKS = 4,     /* first tokens, which are like no others and stay exact */
	STEP_BITS = 8, /* bits of a standard deviation, for means */
	FIRST_EXPONENT = 128,
	KLT_RATES = 6 /* number of rates in the report */
};

/* The fit of one tensor. */
struct basis {
	kvarc_trainer *t;
	const struct kvi_train_stack *stack;
	size_t shape;
	struct kvi_model *m;
	size_t hc;
	double n;      /* tokens */
	double *sum;   /* C */
	double *cov;   /* hc x hc of each head: sums of products, then eigenvectors in columns */
	double *value; /* C: eigenvalues */
	double *work;  /* hc x hc of each head */
	double *rows;  /* a block of tokens, by slot */
	float *elements;
	uint8_t *raw;
	size_t tokens;                   /* tokens of the block */
	uint32_t index[KVI_TRAIN_BLOCK]; /* indices of its tokens that are not dropped */
	int16_t *z;    /* C rows of all tokens; NULL: nothing is predicted from them */
	float *weight; /* weights of all tokens */
	size_t all;    /* tokens */
	double rms;    /* root mean square of all elements about their means */
	double *unit;  /* per head: its coefficients are multiples of a number near this */
	bool too_few;  /* fewer tokens than the channels need */
};

/* A block of a cache as numbers by slot, RoPE of keys removed; tokens with values that are not
 * finite are dropped. */
static kvarc_ret load(struct basis *basis, const struct kvi_train_cache *cache, size_t t0,
                      uint32_t n, struct kvi_rotations *turns, void *buffer)
{
	const kvarc_tensor *x = kvi_train_tensor_of(cache, basis->shape);
	const kvarc_rope *rope = kvi_tensor_rope(&cache->geometry, x);
	const size_t C = basis->m->C, hc = basis->hc, row = kvi_tensor_bytes(x);
	int32_t positions[KVI_TRAIN_BLOCK];
	kvarc_ret ret = kvi_train_fetch(basis->t, cache, cache->tensors[basis->shape], t0, n,
	                                basis->raw);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < n; i++)
		positions[i] = cache->positions[kvi_train_token(cache, t0 + i)];
	if (rope)
		kvi_rotations_make(turns, buffer, rope, positions, n);
	basis->tokens = 0;
	for (uint32_t i = 0; i < n; i++) {
		double *to = basis->rows + basis->tokens * C;
		if (kvi_train_token(cache, t0 + i) < SINKS ||
		    !kvi_floats_finite(x->dtype, basis->raw + i * row, C))
			continue;
		kvi_floats_exact(x->dtype, basis->raw + i * row, C, basis->elements);
		for (size_t s = 0; s < C; s++)
			to[s] = basis->elements[s / hc * hc +
			                        kvi_slot_channel(basis->m, rope, s % hc)];
		for (size_t p = 0; rope && p < C / hc * turns->pairs; p++) {
			size_t pair = p % turns->pairs;
			double *a = to + p / turns->pairs * hc + 2 * pair;
			const int16_t *cs = turns->turn + 2 * (pair * turns->tokens_capacity + i);
			double u = a[0] * cs[0] + a[1] * cs[1];
			a[1] = (a[1] * cs[0] - a[0] * cs[1]) / 16384;
			a[0] = u / 16384;
		}
		basis->index[basis->tokens++] = i;
	}
	return KVARC_OK;
}

static void add_head(void *arg, size_t h)
{
	struct basis *b = arg;
	const size_t hc = b->hc;
	double *cov = b->cov + h * hc * hc, *sum = b->sum + h * hc;
	for (size_t t = 0; t < b->tokens; t++) {
		const double *x = b->rows + t * b->m->C + h * hc;
		for (size_t i = 0; i < hc; i++) {
			sum[i] += x[i];
			for (size_t j = 0; j <= i; j++)
				cov[i * hc + j] += x[i] * x[j];
		}
	}
}

/* Mean and covariance of a head from its sums. */
static void centre_head(void *arg, size_t h)
{
	struct basis *b = arg;
	const size_t n = b->hc;
	double *a = b->cov + h * n * n, *sum = b->sum + h * n;
	for (size_t i = 0; i < n; i++)
		sum[i] /= b->n;
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j <= i; j++)
			a[i * n + j] = a[j * n + i] = a[i * n + j] / b->n - sum[i] * sum[j];
}

static void solve_head(void *arg, size_t h)
{
	struct basis *b = arg;
	const size_t n = b->hc;
	kvi_eigen(n, b->cov + h * n * n, b->work + h * n * n, b->value + h * n);
}

/* The exponent of v > 0: 2^e <= v < 2^(e+1). Exact. */
static int exponent(double v)
{
	int e;
	(void)frexp(v, &e);
	return e - 1;
}

static int32_t nearest(double v)
{
	return (int32_t)(v + (v < 0 ? -0.5 : 0.5));
}

/* Units of the means, the same for all slots of a head. false: they are out of range. */
static bool set_means(struct basis *basis, size_t h)
{
	const size_t n = basis->hc;
	int step = exponent(basis->rms) - STEP_BITS;
	for (size_t i = 0; i < n; i++) {
		double v = basis->sum[h * n + i], size = v < 0 ? -v : v;
		if (size > 0 && exponent(size) - 13 > step)
			step = exponent(size) - 13;
	}
	for (size_t i = 0; i < n; i++) {
		basis->m->step[h * n + i] = (int16_t)step;
		basis->m->mean[h * n + i] = nearest(ldexp(basis->sum[h * n + i], -step));
	}
	return step >= KVI_STEP_MIN && step <= KVI_STEP_MAX;
}

/* Rows as integers, as large as the sum of a row may be. */
static bool set_rows(struct basis *basis, size_t h)
{
	const size_t n = basis->hc;
	const double *v = basis->work + h * n * n, unit = basis->unit[h];
	for (size_t i = 0; i < n; i++) {
		double sum = 0;
		for (size_t j = 0; j < n; j++)
			sum += v[i * n + j] < 0 ? -v[i * n + j] : v[i * n + j];
		/* n: the most that rounding adds to the sum */
		int e = exponent(sum * unit / (KVI_COEF_SUM_MAX - (double)n)) + 1;
		while (ldexp(sum * unit, -e) * 2 < KVI_COEF_SUM_MAX - (double)n &&
		       ldexp(unit, -e) * 2 < INT16_MAX)
			e--;
		while (ldexp(unit, -e) > INT16_MAX)
			e++;
		if (e < -FIRST_EXPONENT || e >= FIRST_EXPONENT)
			return false;
		basis->m->qm[h * n + i] = (uint8_t)(e + FIRST_EXPONENT);
		for (size_t j = 0; j < n; j++)
			basis->m->m[(h * n + i) * basis->m->m_stride + j] =
				(int16_t)nearest(ldexp(v[i * n + j] * unit, -e));
	}
	return true;
}

static void set_classes(struct basis *basis)
{
	enum { FAR = -200 };
	for (size_t i = 0; i < basis->m->C; i++) {
		const double unit = basis->unit[i / basis->hc];
		float v = (float)(basis->value[i] / (unit * unit));
		basis->m->k[i] = (int16_t)(v > 0x1p-80f ? (kvi_quarter_log(v) + 1) >> 1 : FAR);
	}
}

/* Means; the size of elements, which steps are parts of. */
static kvarc_ret centre(struct basis *basis)
{
	const size_t n = basis->hc;
	double all = 0;
	kvi_train_parallel(basis->t, basis->m->heads, centre_head, basis);
	for (size_t i = 0; i < basis->m->C; i++)
		all += basis->cov[i / n * n * n + i % n * (n + 1)];
	basis->rms = sqrt(all / (double)basis->m->C);
	if (!(basis->rms > 1e-20) || !(basis->rms < 1e20))
		return KVARC_END;
	for (size_t h = 0; h < basis->m->heads; h++) {
		basis->unit[h] = basis->rms * train_unit_of(basis->t, basis->m, h);
		if (!set_means(basis, h))
			return KVARC_END;
	}
	return KVARC_OK;
}

/* Covariances of the heads' residuals. */
static kvarc_ret predict(struct basis *basis, const struct train_below *below)
{
	const size_t square = basis->hc * basis->hc;
	kvarc_ret ret = train_below_fit(basis->t, below, basis->m, basis->z, basis->weight,
	                                basis->all, basis->cov);
	for (size_t i = 0; i < basis->m->C * basis->hc && !ret; i++)
		basis->cov[i] = ldexp(basis->cov[i], 2 * basis->m->step[i / square * basis->hc]);
	return ret;
}

static kvarc_ret transform(struct basis *basis)
{
	kvi_train_parallel(basis->t, basis->m->heads, solve_head, basis);
	for (size_t h = 0; h < basis->m->heads; h++)
		if (!set_rows(basis, h))
			return KVARC_END;
	set_classes(basis);
	return KVARC_OK;
}

static void take_sums(struct basis *basis, size_t at)
{
	(void)at;
	kvi_train_parallel(basis->t, basis->m->heads, add_head, basis);
	basis->n += (double)basis->tokens;
}

static void take_z(struct basis *basis, size_t at)
{
	for (size_t i = 0; i < basis->tokens; i++) {
		const double *x = basis->rows + i * basis->m->C;
		const size_t to = at + basis->index[i];
		basis->weight[to] = 1;
		for (size_t c = 0; c < basis->m->C; c++) {
			double v = ldexp(x[c], -basis->m->step[c]) - basis->m->mean[c];
			v = v < -INT16_MAX ? -INT16_MAX : v > INT16_MAX ? INT16_MAX : v;
			basis->z[c * basis->all + to] = (int16_t)nearest(v);
		}
	}
}

/* Blocks of a cache whose first token is token `at` of all. */
static kvarc_ret each_block(struct basis *basis, const struct kvi_train_cache *cache, size_t at,
                            void take(struct basis *basis, size_t at))
{
	const kvarc_tensor *x = kvi_train_tensor_of(cache, basis->shape);
	const kvarc_rope *rope = kvi_tensor_rope(&cache->geometry, x);
	struct kvi_rotations turns = { .pairs = 0 };
	kvarc_ret ret = KVARC_OK;
	void *buffer = rope ? kvi_malloc(&basis->t->alloc,
	                                 kvi_rotations_bytes(rope->rotary / 2, KVI_TRAIN_BLOCK))
	                    : NULL;
	if (rope && !buffer)
		return kvi_train_no_memory(basis->t);
	for (size_t t = 0; t < cache->held && !ret; t += KVI_TRAIN_BLOCK) {
		size_t left = cache->held - t;
		uint32_t n = left < KVI_TRAIN_BLOCK ? (uint32_t)left : KVI_TRAIN_BLOCK;
		ret = load(basis, cache, t, n, &turns, buffer);
		if (ret)
			break;
		take(basis, at + t);
		ret = kvi_train_progress(basis->t, n * kvi_tensor_bytes(x));
	}
	kvi_free(&basis->t->alloc, buffer);
	return ret;
}

static kvarc_ret each_cache(struct basis *basis, void take(struct basis *basis, size_t at))
{
	kvarc_ret ret = KVARC_OK;
	size_t at = 0;
	for (size_t i = 0; i < basis->stack->n_caches && !ret; i++) {
		ret = each_block(basis, basis->stack->caches[i], at, take);
		at += basis->stack->caches[i]->held;
	}
	return ret;
}

/* Collects the integers z of all tokens: predictions from this tensor and of it are fitted to
 * them. */
static kvarc_ret take_integers(struct basis *basis)
{
	const struct kvi_alloc *a = &basis->t->alloc;
	if (basis->t->options.klt.group == 1)
		return KVARC_OK;
	basis->z = kvi_calloc(a, basis->m->C, basis->all * sizeof *basis->z);
	basis->weight = kvi_calloc(a, basis->all, sizeof *basis->weight);
	return basis->z && basis->weight ? each_cache(basis, take_z)
	                                 : kvi_train_no_memory(basis->t);
}

static kvarc_ret open_basis(struct basis *basis)
{
	const struct kvi_alloc *a = &basis->t->alloc;
	const size_t C = basis->m->C, hc = basis->hc;
	size_t square;
	if (kvi_mul(C, hc, &square))
		return kvi_train_no_memory(basis->t);
	basis->sum = kvi_calloc(a, C, sizeof *basis->sum);
	basis->unit = kvi_calloc(a, basis->m->heads, sizeof *basis->unit);
	basis->value = kvi_calloc(a, C, sizeof *basis->value);
	basis->cov = kvi_calloc(a, square, sizeof *basis->cov);
	basis->work = kvi_calloc(a, square, sizeof *basis->work);
	basis->rows = kvi_calloc(a, C, KVI_TRAIN_BLOCK * sizeof *basis->rows);
	basis->elements = kvi_calloc(a, C, sizeof *basis->elements);
	basis->raw = kvi_calloc(a, C, KVI_TRAIN_BLOCK * sizeof(float));
	return basis->sum && basis->unit && basis->value && basis->cov && basis->work &&
	                       basis->rows && basis->elements && basis->raw
	               ? KVARC_OK
	               : kvi_train_no_memory(basis->t);
}

static void close_basis(struct basis *basis)
{
	const struct kvi_alloc *a = &basis->t->alloc;
	void *const buffers[] = { basis->sum,  basis->unit,  basis->value,    basis->cov,
		                  basis->work, basis->rows,  basis->elements, basis->raw,
		                  basis->z,    basis->weight };
	for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
		kvi_free(a, buffers[i]);
}

/* Computes the cost of a code of each class, in 1/256 bit, for codes with the frequencies of the
 * class. */
static kvarc_ret price_classes(kvarc_trainer *trainer, double price[KVI_CODE_CLASSES])
{
	struct kvi_coder_tables *tables;
	const uint16_t *freq = kvi_code_freq;
	if (kvi_coder_tables_open(&tables, &trainer->alloc))
		return kvi_train_no_memory(trainer);
	for (size_t k = 0; k < KVI_CODE_CLASSES; freq += kvi_code_counts[k++]) {
		int left = KVI_PROB_TOTAL;
		price[k] = 0;
		for (int q = 0; q < kvi_code_counts[k]; q++) {
			int f = q ? 2 * freq[q] : freq[q];
			price[k] += (double)f * tables->cost[freq[q]] / KVI_PROB_TOTAL;
			left -= f;
		}
		price[k] += (double)left * (tables->cost[left] + 8 * 256) / KVI_PROB_TOTAL;
	}
	kvi_coder_tables_close(tables);
	return KVARC_OK;
}

/* Bits of an element by tier klt, at rates without a fraction. */
static kvarc_ret report(struct basis *basis, kvarc_trained *to)
{
	double price[KVI_CODE_CLASSES];
	kvarc_ret ret = price_classes(basis->t, price);
	*to = (kvarc_trained){ .layer = basis->m->layer,
		               .kind = basis->m->kind,
		               .elements = (uint64_t)basis->n * basis->m->C };
	for (int rate = 1; rate <= KLT_RATES && !ret; rate++) {
		const kvarc_lossy how = { .rate = 16 * rate };
		int shift = kvi_quarter_log(kvi_step_of(&how, KVARC_VALUE, 1)) - KVI_CODE_UNIT;
		double sum = 0;
		for (size_t i = 0; i < basis->m->C; i++) {
			int k = basis->m->k[i] - shift;
			sum += price[k < 0 ? 0 : k >= KVI_CODE_CLASSES ? KVI_CODE_CLASSES - 1 : k];
		}
		to->klt_bits[rate] = sum / 256 / (double)basis->m->C;
	}
	return ret;
}

static kvarc_ret add_report(struct basis *basis)
{
	kvarc_trainer *t = basis->t;
	if (!kvi_array_grow(&t->alloc, &t->report, &t->cap_report, t->n_report, sizeof *t->report))
		return kvi_train_no_memory(t);
	return report(basis, &t->report[t->n_report++]);
}

static kvarc_ret fit(struct basis *basis, const struct train_below *below)
{
	kvarc_ret ret = each_cache(basis, take_sums);
	if (!ret && basis->n < (double)basis->hc) {
		basis->too_few = true;
		ret = KVARC_END;
	}
	if (!ret)
		ret = centre(basis);
	if (!ret)
		ret = take_integers(basis);
	if (!ret && basis->m->n_lower)
		ret = predict(basis, below);
	if (!ret)
		ret = transform(basis);
	return ret ? ret : add_report(basis);
}

/* Others may be predicted from it. Decoding leaves 1/64 of the variance as noise at some 2 to 3
 * bits an element: one profile serves all rates. */
static void keep(struct basis *basis, struct train_below *below)
{
	double rms = ldexp(basis->rms, -basis->m->step[0]);
	if (basis->z)
		train_below_add(basis->t, below, basis->m, basis->z, rms * rms / 64);
	basis->z = NULL;
}

/* Says why a tensor has no transform. The first reason is an error when no tensor has one. */
static void explain(const struct basis *basis)
{
	kvarc_trainer *t = basis->t;
	const unsigned layer = basis->m->layer;
	const char *kind = basis->m->kind == KVARC_KEY ? "keys" : "values";
	char why[160];
	if (basis->too_few)
		snprintf(why, sizeof why,
		         "its %s have %.0f tokens to fit for %zu channels: at "
		         "least %zu are needed; the first %d, and those with infinities or NaNs, "
		         "do not count",
		         kind, basis->n, basis->hc, basis->hc, SINKS);
	else
		snprintf(why, sizeof why, "its %s do not vary, or their numbers are out of range",
		         kind);
	kvi_train_note(t, "layer %u: no transform, %s", layer, why);
	if (!t->no_transform[0])
		snprintf(t->no_transform, sizeof t->no_transform, "layer %u: %s", layer, why);
}

static kvarc_ret run_shape(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                           size_t shape, struct train_below *below)
{
	struct kvi_profile *p = kvi_train_profile(trainer);
	const struct kvi_train_shape *x = &stack->shapes[shape];
	struct basis b = { .t = trainer,
		           .stack = stack,
		           .shape = shape,
		           .m = &p->models[p->n_models],
		           .hc = x->channels };
	*b.m = (struct kvi_model){ .level = KVI_LEVEL_BASIS,
		                   .kind = x->kind,
		                   .layer = x->layer,
		                   .heads = x->heads,
		                   .head_channels = x->channels,
		                   .rope = x->rope,
		                   .flags = KVI_MODEL_BASIS };
	for (size_t i = 0; i < stack->n_caches; i++)
		b.all += stack->caches[i]->held;
	train_below_choose(trainer, below, b.m, (double)b.all);
	if (kvi_model_reserve(p, b.m))
		return kvi_train_no_memory(trainer);
	p->n_models++; /* the profile owns its memory from now on */
	kvarc_ret ret = open_basis(&b);
	if (!ret)
		ret = fit(&b, below);
	if (!ret)
		keep(&b, below);
	if (ret == KVARC_END) {
		explain(&b);
		p->n_models--;
		kvi_model_free(p, b.m);
		ret = KVARC_OK;
	}
	close_basis(&b);
	return ret;
}

kvarc_ret kvi_train_bases(kvarc_trainer *trainer, const struct kvi_train_stack *stack)
{
	uint64_t mode = kvi_fp_exact();
	struct train_below below = { .n = 0 };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < stack->n_shapes && !ret; i++)
		if (stack->shapes[i].kind != KVARC_MLA_LATENT)
			ret = run_shape(trainer, stack, i, &below);
	train_below_free(trainer, &below);
	kvi_fp_restore(mode);
	return ret;
}
