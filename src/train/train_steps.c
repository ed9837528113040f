/* SPDX-License-Identifier: BSD-3-Clause */
/* train_steps.c - means and scales of a layer's channels, from a sample of tokens */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train_layer.h"
#include "numeric/formats.h"
#include "numeric/rope_angles.h"
#include "numeric/rotate.h"
#include "train_run.h"

enum {
	SAMPLE = 8192,        /* tokens for means and scales, */
	SAMPLE_IN_FILE = 512, /* tokens of these when it must be quick */
	SHARE = 24,           /* sigmas that 16 bits must hold */
	STEP_MIN = -100,
	STEP_MAX = 100,
	LIMIT = 32767
};

/* A sample of the fitted tokens as numbers, one row a channel slot. */
struct sample {
	const struct kvi_train_stack *stack;
	size_t shape, n, every;
	struct kvi_train_tensor *x;
	float *v;  /* rows x n, then a token */
	bool left; /* v holds residuals */
};

/* Every `every`-th fitted token, RoPE removed. */
static void gather(const struct sample *sample, const uint8_t *bad, size_t h)
{
	const struct kvi_train_tensor *x = sample->x;
	size_t head_rows = kvi_train_head_stride(x->shape), at = 0, count = 0;
	size_t channels = x->shape->channels;
	float *v = sample->v + h * head_rows * sample->n;
	float *token = sample->v + x->rows * sample->n + h * head_rows;
	for (size_t k = 0; k < sample->stack->n_caches; k++) {
		const struct kvi_train_cache *c = sample->stack->caches[k];
		const kvarc_tensor *g = kvi_train_tensor_of(c, sample->shape);
		const kvarc_rope *rope = kvi_tensor_rope(&c->geometry, g);
		size_t size = kvarc_dtype_bytes(g->dtype);
		for (size_t i = 0; i < c->held; i++) {
			if (bad[c->first + i] || count++ % sample->every)
				continue;
			const uint8_t *raw = x->raw + x->raw_at[k] + i * kvi_tensor_bytes(g) +
			                     h * channels * size;
			float *to = v + at++;
			kvi_floats_widen(g->dtype, raw, channels, token);
			for (size_t q = 0; q < channels; q++)
				to[q * sample->n] = token[kvi_rope_channel(rope, q)];
			for (size_t q = 0; rope && q < rope->rotary; q += 2) {
				struct kvi_pair_rotation w = kvi_pair_rotation(rope->freq[q / 2],
				                                               c->positions[i]);
				float cs = (float)w.cosine * (1 / 16384.0f);
				float sn = (float)w.sine * (1 / 16384.0f);
				float a = to[q * sample->n], b = to[(q + 1) * sample->n];
				to[q * sample->n] = a * cs + b * sn;
				to[(q + 1) * sample->n] = b * cs - a * sn;
			}
			const float *less =
				sample->left ? x->predicted + ((c->first + i) * x->shape->heads +
			                                       h) * channels
					     : NULL;
			for (size_t q = 0; less && q < channels; q++)
				to[q * sample->n] -= less[q];
		}
	}
}

static int compare_floats(const void *a, const void *b)
{
	float x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x > y) - (x < y);
}

/* Median and quartiles of some of the values, then mean and variance of what
 * is near: outliers do not count. */
static void robust(const float *v, size_t n, double *mean, double *sigma)
{
	enum { FEW = 63 };
	float few[FEW];
	size_t count = n < FEW ? n : FEW;
	for (size_t i = 0; i < count; i++)
		few[i] = v[i * n / count];
	qsort(few, count, sizeof *few, compare_floats);
	*mean = few[count / 2];
	*sigma = ((double)few[count * 3 / 4] - few[count / 4]) * 0.7413;
	if (!(*sigma > 0))
		*sigma = ((double)few[count - 1] - few[0]) / 4;
	for (int pass = 0; pass < 2; pass++) {
		double limit = *sigma * (pass ? 6 : 8), s1 = 0, s2 = 0, k = 0;
		if (pass == 0 && !(*sigma > 0))
			limit = 3e38; /* most are equal: all count */
		for (size_t i = 0; i < n; i++) {
			double d = v[i] - *mean;
			if (!(d <= limit && d >= -limit))
				continue;
			k++;
			s1 += d;
			s2 += d * d;
		}
		if (k < 1)
			break;
		*mean += s1 / k;
		*sigma = sqrt(s2 / k - s1 / k * (s1 / k));
	}
}

/* floor(log2 v), v positive and normal */
static int log2_floor(double v)
{
	uint64_t b;
	memcpy(&b, &v, sizeof b);
	return (int)(b >> 52 & 2047) - 1023;
}

/* Moments of a row: of its values, and of the residuals to be coded, which are the
 * values without a transformer's predictions. */
struct moments {
	double *all_mean, *all_sigma, *mean, *sigma;
};

/* step of rows a..a+n-1 (two for a RoPE pair), which share it: it holds the values */
static void set_step(struct kvi_train_tensor *tensor, const struct moments *moments, size_t a,
                     size_t n)
{
	const double *mean = moments->mean, *sigma = moments->sigma;
	double most = 0, wide = 0, all = 0;
	for (size_t i = a; i < a + n; i++) {
		wide = sigma[i] > wide ? sigma[i] : wide;
		all = moments->all_sigma[i] > all ? moments->all_sigma[i] : all;
		most += moments->all_mean[i] * moments->all_mean[i];
	}
	most = sqrt(most); /* RoPE: each slot may be as large as the norm of its pair */
	/* a constant channel: as if its mean were not known so well */
	double scale = wide > 0 ? wide : most / 256;
	int step = scale > 1e-30 ? log2_floor(scale) - 9 : STEP_MIN;
	step = step < STEP_MIN ? STEP_MIN : step > STEP_MAX ? STEP_MAX : step;
	while (step < STEP_MAX && most + SHARE * all > LIMIT * kvi_train_power(step))
		step++;
	for (size_t i = a; i < a + n; i++) {
		double v = mean[i] / kvi_train_power(step);
		v = v > LIMIT ? LIMIT : v < -LIMIT ? -LIMIT : v;
		tensor->step[i] = (int16_t)step;
		tensor->mean[i] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
		tensor->sigma[i] = sigma[i] / kvi_train_power(step);
	}
}

struct step_scales_job {
	struct sample sample;
	const uint8_t *bad;
	struct moments m; /* moments by row */
};

static void fit_head(void *arg, size_t h)
{
	struct step_scales_job *j = arg;
	struct kvi_train_tensor *x = j->sample.x;
	struct sample sample = j->sample;
	size_t head_rows = kvi_train_head_stride(x->shape), n = sample.n;
	for (int left = 0; left <= (x->predicted ? 1 : 0); left++) {
		sample.left = left;
		gather(&sample, j->bad, h);
		for (size_t i = 0; i < x->shape->channels; i++) {
			size_t row = h * head_rows + i;
			robust(sample.v + row * n, n, (left ? j->m.mean : j->m.all_mean) + row,
			       (left ? j->m.sigma : j->m.all_sigma) + row);
		}
	}
	for (size_t i = 0; i < x->shape->channels;) {
		size_t pair = i < x->rotary ? 2 : 1;
		set_step(x, &j->m, h * head_rows + i, pair);
		i += pair;
	}
}

kvarc_ret kvi_train_fit_steps(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                              size_t shape, struct kvi_train_tensor *tensor,
                              const struct kvi_train_weights *w)
{
	const size_t most = trainer->options.flags & KVARC_TRAIN_IN_FILE ? SAMPLE_IN_FILE : SAMPLE;
	struct step_scales_job j = { .sample = { stack, shape, 0, w->fitted / most + 1, tensor,
		                                 NULL, false },
		                     .bad = w->bad };
	if (w->fitted == 0)
		return KVARC_OK;
	j.sample.n = (w->fitted + j.sample.every - 1) / j.sample.every;
	j.sample.v = kvi_calloc(&trainer->alloc, tensor->rows,
	                        (j.sample.n + 1) * sizeof *j.sample.v);
	double *m = kvi_calloc(&trainer->alloc, 4 * tensor->rows, sizeof *m);
	const size_t own = tensor->predicted ? 2 * tensor->rows : 0;
	bool ok = j.sample.v && m;
	if (ok) {
		j.m = (struct moments){ m, m + tensor->rows, m + own, m + own + tensor->rows };
		kvi_train_parallel(trainer, tensor->shape->heads, fit_head, &j);
	}
	kvi_free(&trainer->alloc, j.sample.v);
	kvi_free(&trainer->alloc, m);
	return ok ? KVARC_OK : kvi_train_no_memory(trainer);
}
