/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * below.c - linear predictions between tensors that klt transforms (spec klt 2)
 *
 * Least squares of a tensor's channels on those of the tensors before it, with the noise that
 * decoding adds to them: on the diagonal of their covariance, so that sources that are
 * mostly noise get small coefficients, and in the covariance of the residual.
 */
#include <math.h>
#include <string.h>

#include "below.h"
#include "dense.h"
#include "gram.h"
#include "train_layer.h"
#include "util/ckd.h"
#include "weigh_heads.h"

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

static void let_go(kvarc_trainer *t, struct kvi_train_below *b, size_t i)
{
	kvi_free(&t->alloc, b->kept[i].z);
	b->kept[i] = b->kept[--b->n];
}

void kvi_train_below_free(kvarc_trainer *t, struct kvi_train_below *b)
{
	while (b->n)
		let_go(t, b, b->n - 1);
}

void kvi_train_below_keep(kvarc_trainer *t, struct kvi_train_below *b, const struct kvi_model *m,
                          int16_t *z, double noise)
{
	if (b->n == KVI_TRAIN_BELOW_KEPT)
		kvi_free(&t->alloc, z);
	else
		b->kept[b->n++] = (struct kvi_train_kept){ m, z, noise };
}

void kvi_train_below_choose(kvarc_trainer *t, struct kvi_train_below *b, struct kvi_model *m,
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
	const struct kvi_train_below *b;
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

static const struct kvi_train_kept *kept_of(const struct below_fit *f, unsigned source)
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
		const struct kvi_train_kept *k = i < f->m->n_lower ? kept_of(f, i) : NULL;
		const struct kvi_model *m = k ? k->m : f->m;
		for (size_t c = 0; c < m->C; c++, at++) {
			const double unit = k ? kvi_train_unit_of(t, m, c / m->head_channels) : 1;
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

kvarc_ret kvi_train_below_fit(kvarc_trainer *t, const struct kvi_train_below *b,
                              struct kvi_model *m, const int16_t *z, const float *w,
                              size_t n_tokens, double *cov)
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
