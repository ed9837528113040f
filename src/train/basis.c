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
#include "eigen.h"
#include "gram.h"
#include "train_layer.h"
#include "train_run.h"
#include "codecs/lossy/quantiser.h"
#include "eval/sensitivity.h"
#include "numeric/formats.h"
#include "profile/linear_model.h"
#include "profile/profile_io.h"
#include "util/ckd.h"
#include "util/error.h"
#include "util/fpmode.h"

/* ==== Finer steps for the heads that a model's answers depend on most ==== */

/*
 * What changes of single heads do to the answers nearly adds up, and grows with the square of a
 * change. The fewest bits for a sum have a head's change go with one over the root of what it
 * does: reverse water- filling over heads (Cover and Thomas, Elements of Information Theory,
 * 10.3.3), with the model's own measure.
 */

enum {
	SEQUENCES = 4,
	PREFIX = 512,
	CONTINUATION = 64,
	LEAST = 64,             /* tokens */
	DEVIATION_MOST = 3 * 16 /* from the average at most */
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
			t->units[at] = (struct kvi_train_unit){
				g->tensors[i].layer, h, (uint8_t)g->tensors[i].kind,
				(int16_t)(u > DEVIATION_MOST    ? DEVIATION_MOST
				          : u < -DEVIATION_MOST ? -DEVIATION_MOST
				                                : u)
			};
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

/* As a factor; 1 where nothing is known. */
static double train_unit_of(const kvarc_trainer *t, const struct kvi_model *m, size_t head)
{
	for (size_t i = 0; i < t->n_units; i++)
		if (t->units[i].layer == m->layer && t->units[i].kind == m->kind &&
		    t->units[i].head == head)
			return kvi_power_of(t->units[i].unit);
	return 1;
}

/* ==== Linear predictions between tensors that klt transforms (spec klt 2) ==== */

/*
 * Least squares of a tensor's channels on those of the tensors before it, with the noise that
 * decoding adds to them: on the diagonal of their covariance, so that sources that are mostly
 * noise get small coefficients, and in the covariance of the residual.
 */

/* The largest number of source tensors held in memory. */
enum { TRAIN_BELOW_KEPT = 8 };

/* A tensor that others may be predicted from: numbers in units of 2^step about its means. */
struct train_kept {
	const struct kvi_model *m;
	int16_t *z;   /* C rows of all tokens */
	double noise; /* variance that decoded elements of a head of weight 1 will have about them,
	                     * in those units */
};

/* The tensors of lower layers that a transform may predict from, in the order of
 * train_below_keep(). */
struct train_below {
	size_t n;
	struct train_kept kept[TRAIN_BELOW_KEPT];
};

enum {
	TOKENS_EACH = 4,      /* required for each source channel */
	HEAD_BLOCK_FROM = 513 /* channels of a tensor */
};

static bool head_block(const kvarc_trainer *t, const struct kvi_model *m)
{
	if (t->options.flags & (KVARC_TRAIN_HEAD_BLOCK | KVARC_TRAIN_WHOLE_LAYER))
		return t->options.flags & KVARC_TRAIN_HEAD_BLOCK;
	return (size_t)m->heads * m->head_channels >= HEAD_BLOCK_FROM;
}

static void let_go(kvarc_trainer *t, struct train_below *b, size_t i)
{
	kvi_free(&t->alloc, b->kept[i].z);
	b->kept[i] = b->kept[--b->n];
}

/* Frees all z in *b. */
static void train_below_free(kvarc_trainer *t, struct train_below *b)
{
	while (b->n)
		let_go(t, b, b->n - 1);
}

/* Adds a tensor to *b. Takes ownership of z (C rows of all tokens); frees it when *b is full. */
static void train_below_keep(kvarc_trainer *t, struct train_below *b, const struct kvi_model *m,
                             int16_t *z, double noise)
{
	if (b->n == TRAIN_BELOW_KEPT)
		kvi_free(&t->alloc, z);
	else
		b->kept[b->n++] = (struct train_kept){ m, z, noise };
}

/* Sets the sources of m, which has none, from the tensors in *b; frees those of layers that are
 * too low. tokens: the number of tokens to fit on. */
static void train_below_choose(kvarc_trainer *t, struct train_below *b, struct kvi_model *m,
                               double tokens)
{
	const bool block = head_block(t, m), first = m->layer % t->options.klt.group == 0;
	double channels = 0;
	for (size_t i = b->n; i-- > 0;)
		if (b->kept[i].m->layer + 1 < m->layer)
			let_go(t, b, i);
	for (size_t i = 0; i < b->n && m->n_lower < KVI_LOWER_MAX; i++) {
		const struct kvi_model *from = b->kept[i].m;
		bool by_head = block && m->heads % from->heads == 0;
		if (first && from->layer != m->layer)
			continue;
		channels += (by_head ? 1.0 : from->heads) * from->head_channels;
		m->lower[m->n_lower++] =
			(struct kvi_source){ .delta = (uint8_t)(m->layer - from->layer),
			                     .kind = from->kind,
			                     .scope = by_head };
	}
	if (tokens < TOKENS_EACH * channels)
		m->n_lower = 0;
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
	/* Of the channels [first, first + n_y) of the tensor and what they are predicted from. */
	size_t first, n_y, n_seen;
	size_t *seen, *entry; /* features; the indices of their entries in rows of A */
	double *s, *a, *work;
};

static const struct train_kept *kept_of(const struct below_fit *f, unsigned source)
{
	for (size_t i = 0; i < f->b->n; i++)
		if (f->b->kept[i].m == f->m->lower[source].model)
			return &f->b->kept[i];
	return NULL; /* they were chosen from these */
}

static kvarc_ret take_moments(struct below_fit *f, const int16_t *z, const float *w,
                              size_t n_tokens)
{
	kvarc_trainer *t = f->t;
	struct kvi_train_feature *x = kvi_calloc(&t->alloc, f->n_all, sizeof *x);
	double *mean = kvi_array(&t->alloc, f->n_all, sizeof *mean);
	kvarc_ret ret = x && mean ? KVARC_OK : kvi_train_no_memory(t);
	size_t at = 0;
	for (unsigned i = 0; i <= f->m->n_lower && !ret; i++) {
		const struct train_kept *k = i < f->m->n_lower ? kept_of(f, i) : NULL;
		const struct kvi_model *m = k ? k->m : f->m;
		for (size_t c = 0; c < m->C; c++, at++) {
			const double unit = k ? train_unit_of(t, m, c / m->head_channels) : 1;
			double sum = 0;
			x[at].z = (k ? k->z : z) + c * n_tokens;
			for (size_t n = 0; n < n_tokens; n++)
				sum += (double)x[at].z[n] * x[at].z[n];
			x[at].sigma = sqrt(sum / (double)n_tokens);
			if (k)
				f->noise[at] = k->noise * unit * unit;
		}
	}
	if (!ret)
		ret = kvi_train_gram(t, x, f->n_all, w, n_tokens, f->g, mean);
	kvi_free(&t->alloc, x);
	kvi_free(&t->alloc, mean);
	return ret;
}

/* Which features the channels see, and where their coefficients are. */
static void look_around(struct below_fit *f)
{
	size_t feature = 0, entry = 0;
	f->n_seen = 0;
	for (unsigned i = 0; i < f->m->n_lower; i++) {
		const struct kvi_model *from = f->m->lower[i].model;
		const size_t hc = from->head_channels, buffer = kvi_head_stride(from);
		size_t h0 = 0, heads = from->heads;
		if (f->m->lower[i].scope) {
			h0 = f->first / f->m->head_channels % heads;
			heads = 1;
		}
		for (size_t h = 0; h < heads; h++)
			for (size_t c = 0; c < hc; c++) {
				f->seen[f->n_seen] = feature + (h0 + h) * hc + c;
				f->entry[f->n_seen++] = entry + h * buffer + c;
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

static kvarc_ret fit_channels(struct below_fit *f)
{
	kvarc_trainer *t = f->t;
	const size_t n = f->n_seen, y = f->n_x + f->first;
	for (size_t i = 0; i < n; i++) {
		const double *row = f->g + f->seen[i] * f->n_all;
		for (size_t k = 0; k < n; k++)
			f->s[i * n + k] = row[f->seen[k]];
		f->s[i * n + i] += f->noise[f->seen[i]];
		memcpy(f->a + i * f->n_y, row + y, f->n_y * sizeof *f->a);
	}
	if (!kvi_train_cholesky(t, f->s, n, n))
		return kvi_train_no_memory(t);
	kvi_train_solve(t, f->s, n, n, f->a, f->n_y, f->work);
	kvi_train_parallel(t, f->n_y, store_row, f);
	kvi_train_parallel(t, f->n_y, multiply, f);
	kvi_train_parallel(t, f->n_y, leave, f);
	return KVARC_OK;
}

static kvarc_ret fit_all(struct below_fit *f, bool by_head)
{
	kvarc_ret ret = KVARC_OK;
	f->n_y = by_head ? f->m->head_channels : f->m->C;
	for (f->first = 0; f->first < f->m->C && !ret; f->first += f->n_y) {
		look_around(f);
		ret = fit_channels(f);
	}
	return ret;
}

/*
 * Fits the rows of A of a model that has its means and steps. cov, written: the covariance of the
 * residual of each head, in units of 2^step. w: weights of the tokens. Returns OK, MEM, MEMLIMIT.
 */
static kvarc_ret train_below_fit(kvarc_trainer *t, const struct train_below *b, struct kvi_model *m,
                                 const int16_t *z, const float *w, size_t n_tokens, double *cov)
{
	const struct kvi_alloc *alloc = &t->alloc;
	struct below_fit f = { .t = t, .b = b, .m = m, .cov = cov };
	bool by_head = false;
	for (unsigned i = 0; i < m->n_lower; i++) {
		f.n_x += m->lower[i].model->C;
		by_head = by_head || m->lower[i].scope;
	}
	f.n_all = f.n_x + m->C;
	const size_t most = f.n_x > m->C ? f.n_x : m->C;
	f.g = kvi_array(alloc, f.n_all, f.n_all * sizeof *f.g);
	f.noise = kvi_calloc(alloc, f.n_x, sizeof *f.noise);
	f.seen = kvi_array(alloc, f.n_x, sizeof *f.seen);
	f.entry = kvi_array(alloc, f.n_x, sizeof *f.entry);
	f.s = kvi_array(alloc, f.n_x, f.n_x * sizeof *f.s);
	f.a = kvi_array(alloc, f.n_x, m->C * sizeof *f.a);
	f.work = kvi_array(alloc, f.n_x, most * sizeof *f.work);
	kvarc_ret ret = f.g && f.noise && f.seen && f.entry && f.s && f.a && f.work
	                        ? KVARC_OK
	                        : kvi_train_no_memory(t);
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
	STEP_BITS = 8, /* of a standard deviation, for means */
	FIRST_EXPONENT = 128,
	KLT_RATES = 6 /* that are reported */
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
	double *cov;   /* of each head hc x hc: sums of products, then eigenvectors in columns */
	double *value; /* C: eigenvalues */
	double *work;  /* hc x hc of each head */
	double *rows;  /* a block of tokens, by slot */
	float *elements;
	uint8_t *raw;
	size_t tokens;                   /* of the block */
	uint32_t index[KVI_TRAIN_BLOCK]; /* which of them are there */
	int16_t *z;    /* C rows of all tokens; NULL: nothing is predicted from them */
	float *weight; /* of all tokens */
	size_t all;    /* tokens */
	double rms;    /* of all elements about their means */
	double *unit;  /* of each head: what its coefficients are multiples of, near it */
	bool too_few;  /* tokens for the channels */
};

/* A block of a cache as numbers by slot, RoPE of keys removed; tokens with values that are not
 * finite are dropped. */
static kvarc_ret load(struct basis *b, const struct kvi_train_cache *c, size_t t0, uint32_t n,
                      struct kvi_rotations *turns, void *buffer)
{
	const kvarc_tensor *x = kvi_train_tensor_of(c, b->shape);
	const kvarc_rope *rope = kvi_tensor_rope(&c->geometry, x);
	const size_t C = b->m->C, hc = b->hc, row = kvi_tensor_bytes(x);
	int32_t positions[KVI_TRAIN_BLOCK];
	kvarc_ret ret = kvi_train_fetch(b->t, c, c->tensors[b->shape], t0, n, b->raw);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < n; i++)
		positions[i] = c->positions[kvi_train_token(c, t0 + i)];
	if (rope)
		kvi_rotations_make(turns, buffer, rope, positions, n);
	b->tokens = 0;
	for (uint32_t i = 0; i < n; i++) {
		double *to = b->rows + b->tokens * C;
		if (kvi_train_token(c, t0 + i) < SINKS ||
		    !kvi_floats_finite(x->dtype, b->raw + i * row, C))
			continue;
		kvi_floats_exact(x->dtype, b->raw + i * row, C, b->elements);
		for (size_t s = 0; s < C; s++)
			to[s] = b->elements[s / hc * hc + kvi_slot_channel(b->m, rope, s % hc)];
		for (size_t p = 0; rope && p < C / hc * turns->pairs; p++) {
			size_t pair = p % turns->pairs;
			double *a = to + p / turns->pairs * hc + 2 * pair;
			const int16_t *cs = turns->turn + 2 * (pair * turns->tokens_capacity + i);
			double u = a[0] * cs[0] + a[1] * cs[1];
			a[1] = (a[1] * cs[0] - a[0] * cs[1]) / 16384;
			a[0] = u / 16384;
		}
		b->index[b->tokens++] = i;
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
static bool set_means(struct basis *b, size_t h)
{
	const size_t n = b->hc;
	int step = exponent(b->rms) - STEP_BITS;
	for (size_t i = 0; i < n; i++) {
		double v = b->sum[h * n + i], size = v < 0 ? -v : v;
		if (size > 0 && exponent(size) - 13 > step)
			step = exponent(size) - 13;
	}
	for (size_t i = 0; i < n; i++) {
		b->m->step[h * n + i] = (int16_t)step;
		b->m->mean[h * n + i] = nearest(ldexp(b->sum[h * n + i], -step));
	}
	return step >= KVI_STEP_MIN && step <= KVI_STEP_MAX;
}

/* Rows as integers, as large as the sum of a row may be. */
static bool set_rows(struct basis *b, size_t h)
{
	const size_t n = b->hc;
	const double *v = b->work + h * n * n, unit = b->unit[h];
	for (size_t i = 0; i < n; i++) {
		double sum = 0;
		for (size_t j = 0; j < n; j++)
			sum += v[i * n + j] < 0 ? -v[i * n + j] : v[i * n + j];
		/* with what rounding may add */
		int e = exponent(sum * unit / (KVI_COEF_SUM_MAX - (double)n)) + 1;
		while (ldexp(sum * unit, -e) * 2 < KVI_COEF_SUM_MAX - (double)n &&
		       ldexp(unit, -e) * 2 < INT16_MAX)
			e--;
		while (ldexp(unit, -e) > INT16_MAX)
			e++;
		if (e < -FIRST_EXPONENT || e >= FIRST_EXPONENT)
			return false;
		b->m->qm[h * n + i] = (uint8_t)(e + FIRST_EXPONENT);
		for (size_t j = 0; j < n; j++)
			b->m->m[(h * n + i) * b->m->m_stride + j] =
				(int16_t)nearest(ldexp(v[i * n + j] * unit, -e));
	}
	return true;
}

static void set_classes(struct basis *b)
{
	enum { FAR = -200 };
	for (size_t i = 0; i < b->m->C; i++) {
		const double unit = b->unit[i / b->hc];
		float v = (float)(b->value[i] / (unit * unit));
		b->m->k[i] = (int16_t)(v > 0x1p-80f ? (kvi_quarter_log(v) + 1) >> 1 : FAR);
	}
}

/* Means; the size of elements, which steps are parts of. */
static kvarc_ret centre(struct basis *b)
{
	const size_t n = b->hc;
	double all = 0;
	kvi_train_parallel(b->t, b->m->heads, centre_head, b);
	for (size_t i = 0; i < b->m->C; i++)
		all += b->cov[i / n * n * n + i % n * (n + 1)];
	b->rms = sqrt(all / (double)b->m->C);
	if (!(b->rms > 1e-20) || !(b->rms < 1e20))
		return KVARC_END;
	for (size_t h = 0; h < b->m->heads; h++) {
		b->unit[h] = b->rms * train_unit_of(b->t, b->m, h);
		if (!set_means(b, h))
			return KVARC_END;
	}
	return KVARC_OK;
}

/* Covariances of the heads' residuals. */
static kvarc_ret predict(struct basis *b, const struct train_below *below)
{
	const size_t square = b->hc * b->hc;
	kvarc_ret ret = train_below_fit(b->t, below, b->m, b->z, b->weight, b->all, b->cov);
	for (size_t i = 0; i < b->m->C * b->hc && !ret; i++)
		b->cov[i] = ldexp(b->cov[i], 2 * b->m->step[i / square * b->hc]);
	return ret;
}

static kvarc_ret transform(struct basis *b)
{
	kvi_train_parallel(b->t, b->m->heads, solve_head, b);
	for (size_t h = 0; h < b->m->heads; h++)
		if (!set_rows(b, h))
			return KVARC_END;
	set_classes(b);
	return KVARC_OK;
}

static void take_sums(struct basis *b, size_t at)
{
	(void)at;
	kvi_train_parallel(b->t, b->m->heads, add_head, b);
	b->n += (double)b->tokens;
}

static void take_z(struct basis *b, size_t at)
{
	for (size_t i = 0; i < b->tokens; i++) {
		const double *x = b->rows + i * b->m->C;
		const size_t to = at + b->index[i];
		b->weight[to] = 1;
		for (size_t c = 0; c < b->m->C; c++) {
			double v = ldexp(x[c], -b->m->step[c]) - b->m->mean[c];
			v = v < -INT16_MAX ? -INT16_MAX : v > INT16_MAX ? INT16_MAX : v;
			b->z[c * b->all + to] = (int16_t)nearest(v);
		}
	}
}

/* Blocks of a cache whose first token is token `at` of all. */
static kvarc_ret each_block(struct basis *b, const struct kvi_train_cache *c, size_t at,
                            void take(struct basis *b, size_t at))
{
	const kvarc_tensor *x = kvi_train_tensor_of(c, b->shape);
	const kvarc_rope *rope = kvi_tensor_rope(&c->geometry, x);
	struct kvi_rotations turns = { .pairs = 0 };
	kvarc_ret ret = KVARC_OK;
	void *buffer = rope ? kvi_malloc(&b->t->alloc,
	                                 kvi_rotations_bytes(rope->rotary / 2, KVI_TRAIN_BLOCK))
	                    : NULL;
	if (rope && !buffer)
		return kvi_train_no_memory(b->t);
	for (size_t t = 0; t < c->held && !ret; t += KVI_TRAIN_BLOCK) {
		size_t left = c->held - t;
		uint32_t n = left < KVI_TRAIN_BLOCK ? (uint32_t)left : KVI_TRAIN_BLOCK;
		ret = load(b, c, t, n, &turns, buffer);
		if (ret)
			break;
		take(b, at + t);
		ret = kvi_train_progress(b->t, n * kvi_tensor_bytes(x));
	}
	kvi_free(&b->t->alloc, buffer);
	return ret;
}

static kvarc_ret each_cache(struct basis *b, void take(struct basis *b, size_t at))
{
	kvarc_ret ret = KVARC_OK;
	size_t at = 0;
	for (size_t i = 0; i < b->stack->n_caches && !ret; i++) {
		ret = each_block(b, b->stack->caches[i], at, take);
		at += b->stack->caches[i]->held;
	}
	return ret;
}

/* What is predicted from it, or is predicted itself, is fitted in integers. */
static kvarc_ret take_integers(struct basis *b)
{
	const struct kvi_alloc *a = &b->t->alloc;
	if (b->t->options.klt.group == 1)
		return KVARC_OK;
	b->z = kvi_calloc(a, b->m->C, b->all * sizeof *b->z);
	b->weight = kvi_calloc(a, b->all, sizeof *b->weight);
	return b->z && b->weight ? each_cache(b, take_z) : kvi_train_no_memory(b->t);
}

static kvarc_ret open_basis(struct basis *b)
{
	const struct kvi_alloc *a = &b->t->alloc;
	const size_t C = b->m->C, hc = b->hc;
	size_t square;
	if (kvi_mul(C, hc, &square))
		return kvi_train_no_memory(b->t);
	b->sum = kvi_calloc(a, C, sizeof *b->sum);
	b->unit = kvi_calloc(a, b->m->heads, sizeof *b->unit);
	b->value = kvi_calloc(a, C, sizeof *b->value);
	b->cov = kvi_calloc(a, square, sizeof *b->cov);
	b->work = kvi_calloc(a, square, sizeof *b->work);
	b->rows = kvi_calloc(a, C, KVI_TRAIN_BLOCK * sizeof *b->rows);
	b->elements = kvi_calloc(a, C, sizeof *b->elements);
	b->raw = kvi_calloc(a, C, KVI_TRAIN_BLOCK * sizeof(float));
	return b->sum && b->unit && b->value && b->cov && b->work && b->rows && b->elements &&
	                       b->raw
	               ? KVARC_OK
	               : kvi_train_no_memory(b->t);
}

static void close_basis(struct basis *b)
{
	const struct kvi_alloc *a = &b->t->alloc;
	void *const buffers[] = { b->sum,  b->unit,     b->value, b->cov, b->work,
		                  b->rows, b->elements, b->raw,   b->z,   b->weight };
	for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
		kvi_free(a, buffers[i]);
}

/* What a code of each class takes, in 1/256 bit, when codes are as the class expects them. */
static kvarc_ret price_classes(kvarc_trainer *t, double price[KVI_CODE_CLASSES])
{
	struct kvi_coder_tables *tables;
	const uint16_t *freq = kvi_code_freq;
	if (kvi_coder_tables_open(&tables, &t->alloc))
		return kvi_train_no_memory(t);
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
static kvarc_ret report(struct basis *b, kvarc_trained *to)
{
	const struct kvi_chunk chunk = { .kind = KVARC_VALUE };
	double price[KVI_CODE_CLASSES];
	kvarc_ret ret = price_classes(b->t, price);
	*to = (kvarc_trained){ .layer = b->m->layer,
		               .kind = b->m->kind,
		               .elements = (uint64_t)b->n * b->m->C };
	for (int rate = 1; rate <= KLT_RATES && !ret; rate++) {
		const kvarc_lossy how = { .rate = 16 * rate };
		int shift = kvi_quarter_log(kvi_step_of(&how, &chunk, 1)) - KVI_CODE_UNIT;
		double sum = 0;
		for (size_t i = 0; i < b->m->C; i++) {
			int k = b->m->k[i] - shift;
			sum += price[k < 0 ? 0 : k >= KVI_CODE_CLASSES ? KVI_CODE_CLASSES - 1 : k];
		}
		to->klt_bits[rate] = sum / 256 / (double)b->m->C;
	}
	return ret;
}

static kvarc_ret add_report(struct basis *b)
{
	kvarc_trainer *t = b->t;
	if (!kvi_array_grow(&t->alloc, &t->report, &t->cap_report, t->n_report, sizeof *t->report))
		return kvi_train_no_memory(t);
	return report(b, &t->report[t->n_report++]);
}

static kvarc_ret fit(struct basis *b, const struct train_below *below)
{
	kvarc_ret ret = each_cache(b, take_sums);
	if (!ret && b->n < (double)b->hc) {
		b->too_few = true;
		ret = KVARC_END;
	}
	if (!ret)
		ret = centre(b);
	if (!ret)
		ret = take_integers(b);
	if (!ret && b->m->n_lower)
		ret = predict(b, below);
	if (!ret)
		ret = transform(b);
	return ret ? ret : add_report(b);
}

/* Others may be predicted from it. Decoding leaves 1/64 of the variance as noise at some 2 to 3
 * bits an element: one profile serves all rates. */
static void keep(struct basis *b, struct train_below *below)
{
	double rms = ldexp(b->rms, -b->m->step[0]);
	if (b->z)
		train_below_keep(b->t, below, b->m, b->z, rms * rms / 64);
	b->z = NULL;
}

/* Says why a tensor has no transform. The first reason is an error when no tensor has one. */
static void explain(const struct basis *b)
{
	kvarc_trainer *t = b->t;
	const unsigned layer = b->m->layer;
	const char *kind = b->m->kind == KVARC_KEY ? "keys" : "values";
	char why[160];
	if (b->too_few)
		snprintf(why, sizeof why,
		         "its %s have %.0f tokens to fit for %zu channels: at "
		         "least %zu are needed; the first %d, and those with infinities or NaNs, "
		         "do not count",
		         kind, b->n, b->hc, b->hc, SINKS);
	else
		snprintf(why, sizeof why, "its %s do not vary, or their numbers are out of range",
		         kind);
	kvi_train_note(t, "layer %u: no transform, %s", layer, why);
	if (!t->no_transform[0])
		snprintf(t->no_transform, sizeof t->no_transform, "layer %u: %s", layer, why);
}

static kvarc_ret run_shape(kvarc_trainer *t, const struct kvi_train_stack *s, size_t shape,
                           struct train_below *below)
{
	struct kvi_profile *p = kvi_train_profile(t);
	const struct kvi_train_shape *x = &s->shapes[shape];
	struct basis b = {
		.t = t, .stack = s, .shape = shape, .m = &p->models[p->n_models], .hc = x->channels
	};
	*b.m = (struct kvi_model){ .level = KVI_LEVEL_BASIS,
		                   .kind = x->kind,
		                   .layer = x->layer,
		                   .heads = x->heads,
		                   .head_channels = x->channels,
		                   .rope = x->rope,
		                   .flags = KVI_MODEL_BASIS };
	for (size_t i = 0; i < s->n_caches; i++)
		b.all += s->caches[i]->held;
	train_below_choose(t, below, b.m, (double)b.all);
	if (kvi_model_reserve(p, b.m))
		return kvi_train_no_memory(t);
	p->n_models++; /* its memory is the profile's now */
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

kvarc_ret kvi_train_bases(kvarc_trainer *t, const struct kvi_train_stack *s)
{
	uint64_t mode = kvi_fp_exact();
	struct train_below below = { .n = 0 };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < s->n_shapes && !ret; i++)
		if (s->shapes[i].kind != KVARC_MLA_LATENT)
			ret = run_shape(t, s, i, &below);
	train_below_free(t, &below);
	kvi_fp_restore(mode);
	return ret;
}
