/* SPDX-License-Identifier: BSD-3-Clause */
/* train_correct.c - how residuals of keys and values correct the hidden state (spec model 3) */
#include <math.h>
#include <string.h>

#include "dense.h"
#include "train_predict.h"
#include "train_rows.h"
#include "train_run.h"

enum { UNIT = 1024, LIMIT = 32767 }; /* UNIT: a sigma of a target */

/* ---- D ---- */

struct fitting {
	kvarc_trainer *t;
	const struct kvi_train_task *task;
	const float *w;
	size_t n_x, n_y;
	int16_t *y; /* n_y rows of `capacity` tokens */
	size_t capacity;
	double *sigma; /* sigma of a target, before it was made an integer */
	double *a;     /* n_x x n_y */
	struct kvi_model *m;
	atomic_bool failed;
};

/* Fills target i: teacher minus student, in units of the root. */
static void fill_target(void *arg, size_t i)
{
	struct fitting *f = arg;
	const struct kvi_train_predictor *p = f->t->predictor;
	size_t n = f->task->stack->n_tokens;
	int16_t *y = f->y + i * f->capacity;
	double sum = 0, count = 0;
	for (int pass = 0; pass < 2; pass++) {
		double unit = pass && f->sigma[i] > 0 ? UNIT / f->sigma[i] : 0;
		for (size_t v = 0; v < n; v++) {
			size_t at = v * p->width + i;
			if (!(f->w[v] > 0))
				continue;
			double d = ((double)p->teacher.h[at] - p->student.h[at]) /
			           p->student.root[v];
			if (!pass) {
				double w = (double)f->w[v] * f->w[v];
				sum += w * d * d;
				count += w;
				continue;
			}
			d *= unit;
			d = d > LIMIT ? LIMIT : d < -LIMIT ? -LIMIT : d;
			y[v] = (int16_t)(d < 0 ? d - 0.5 : d + 0.5);
		}
		if (!pass)
			f->sigma[i] = count > 0 ? sqrt(sum / count) : 0;
	}
}

/* Row i as integers; the layer's rows of features are in the order of the entries. */
static void store_row(void *arg, size_t i)
{
	struct fitting *f = arg;
	double *b = kvi_array(&f->t->alloc, f->n_x, sizeof *b), sum = 0;
	int16_t *to = f->m->d + i * f->m->d_stride;
	if (!b) {
		atomic_store(&f->failed, true);
		return;
	}
	for (size_t k = 0; k < f->n_x; k++) {
		b[k] = f->a[k * f->n_y + i] * f->sigma[i] / UNIT;
		sum += fabs(b[k]);
	}
	int e = KVI_CORRECTS_SHIFT_MAX;
	uint64_t size;
	while (e >= 0 && sum * kvi_train_power(e) > KVI_COEF_SUM_MAX)
		e--;
	while (e >= 0 && !kvi_train_round_all(b, f->n_x, e, to, &size))
		e--;
	if (e < 0 || !(sum > 0))
		memset(to, 0, f->n_x * sizeof *to);
	f->m->e[i] = e < 0 || !(sum > 0) ? 0 : (uint8_t)e;
	kvi_free(&f->t->alloc, b);
}

static size_t list(const struct kvi_train_layer *layer, const struct fitting *fitting,
                   struct kvi_train_feature *to)
{
	size_t n = 0;
	for (size_t i = 0; i < layer->n; i++) {
		const struct kvi_train_tensor *x = &layer->tensors[i];
		for (size_t r = 0; r < x->rows; r++)
			to[n++] = (struct kvi_train_feature){ x->z + r * x->capacity, x->sigma[r] };
	}
	for (size_t i = 0; i < fitting->n_y; i++)
		to[n++] = (struct kvi_train_feature){ fitting->y + i * fitting->capacity,
			                              fitting->sigma[i] > 0 ? UNIT : 0 };
	return n;
}

/* a = (Gxx + ridge)^-1 Gxy */
static kvarc_ret solve(struct fitting *fitting, const double *g, double *l, double *w)
{
	size_t nx = fitting->n_x, ny = fitting->n_y, d = nx + ny;
	double ridge = fitting->task->plan.ridge_b;
	for (size_t r = 0; r < nx; r++) {
		memcpy(l + r * nx, g + r * d, nx * sizeof *l);
		l[r * nx + r] *= 1 + ridge;
		memcpy(fitting->a + r * ny, g + r * d + nx, ny * sizeof *l);
	}
	if (!kvi_train_cholesky(fitting->t, l, nx, nx))
		return kvi_train_no_memory(fitting->t);
	kvi_train_solve(fitting->t, l, nx, nx, fitting->a, ny, w);
	kvi_train_parallel(fitting->t, ny, store_row, fitting);
	return atomic_load(&fitting->failed) ? kvi_train_no_memory(fitting->t) : KVARC_OK;
}

static kvarc_ret fit(struct fitting *fitting, const struct kvi_train_layer *layer)
{
	kvarc_trainer *t = fitting->t;
	size_t nx = fitting->n_x, d = nx + fitting->n_y, n = fitting->task->stack->n_tokens;
	struct kvi_train_feature *x = kvi_array(&t->alloc, d, sizeof *x);
	double *g = kvi_array(&t->alloc, d, d * sizeof *g);
	double *mean = kvi_array(&t->alloc, d, sizeof *mean);
	double *work = kvi_array(&t->alloc, nx, 2 * nx * sizeof *work);
	kvarc_ret ret = KVARC_OK;
	if (!x || !g || !mean || !work)
		ret = kvi_train_no_memory(t);
	if (!ret) {
		kvi_train_parallel(t, fitting->n_y, fill_target, fitting);
		list(layer, fitting, x);
		ret = kvi_train_gram(t, x, d, fitting->w, n, g, mean);
	}
	if (!ret)
		ret = solve(fitting, g, work, work + nx * nx);
	kvi_free(&t->alloc, x);
	kvi_free(&t->alloc, g);
	kvi_free(&t->alloc, mean);
	kvi_free(&t->alloc, work);
	return ret;
}

/* The model that corrects is the layer's last one. */
static struct kvi_model *corrector(const struct kvi_train_task *task)
{
	return task->models[0][task->layer->n - 1];
}

kvarc_ret kvi_train_correct_fit(kvarc_trainer *trainer, struct kvi_train_task *task,
                                const struct kvi_train_layer *taught, const float *weights)
{
	struct fitting f = {
		.t = trainer,
		.task = task,
		.w = weights,
		.n_y = trainer->predictor->width,
		.m = corrector(task),
		.capacity = (task->stack->n_tokens + 127) & ~(size_t)63,
	};
	for (size_t i = 0; i < taught->n; i++)
		f.n_x += taught->tensors[i].rows;
	f.y = kvi_calloc(&trainer->alloc, f.n_y, f.capacity * sizeof *f.y);
	f.sigma = kvi_calloc(&trainer->alloc, f.n_y, sizeof *f.sigma);
	f.a = kvi_array(&trainer->alloc, f.n_x, f.n_y * sizeof *f.a);
	kvarc_ret ret = f.y && f.sigma && f.a ? fit(&f, taught) : kvi_train_no_memory(trainer);
	kvi_free(&trainer->alloc, f.y);
	kvi_free(&trainer->alloc, f.sigma);
	kvi_free(&trainer->alloc, f.a);
	return ret;
}

/* ---- its use ---- */

struct applying {
	const kvarc_trainer *t;
	const struct kvi_train_task *task;
	const struct kvi_train_layer *layer;
	const struct kvi_train_walk *walk;
	const struct kvi_model *m;
};

/* Tokens from `at` on, n of them. r of the layer is z: what its models have of mean is in it. */
static void correct_tokens(const struct applying *applying, size_t at, size_t n)
{
	size_t width = applying->t->predictor->width;
	for (size_t i = 0; i < width; i++) {
		const int16_t *row = applying->m->d + i * applying->m->d_stride;
		float scale = (float)kvi_train_power(-(int)applying->m->e[i]);
		int32_t sum[KVI_TRAIN_BLOCK] = { 0 };
		for (size_t k = 0; k < applying->layer->n; k++) {
			const struct kvi_train_tensor *x = &applying->layer->tensors[k];
			applying->t->kernels->weigh(sum, row, x->z + at, x->capacity, x->rows,
			                            (n + 31) & ~(size_t)31);
			row += x->rows;
		}
		for (size_t v = 0; v < n; v++)
			applying->walk->h[(at + v) * width + i] += applying->walk->root[at + v] *
			                                           ((float)sum[v] * scale);
	}
}

static void correct_cache(void *arg, size_t k)
{
	const struct applying *a = arg;
	const struct kvi_train_cache *c = a->task->stack->caches[k];
	for (size_t t0 = 0; t0 < c->n; t0 += KVI_TRAIN_BLOCK)
		correct_tokens(a, c->first + t0,
		               c->n - t0 < KVI_TRAIN_BLOCK ? c->n - t0 : KVI_TRAIN_BLOCK);
}

void kvi_train_correct(kvarc_trainer *trainer, const struct kvi_train_task *task,
                       const struct kvi_train_layer *layer, const struct kvi_train_walk *w)
{
	struct applying a = { trainer, task, layer, w, corrector(task) };
	kvi_train_parallel(trainer, w->n_caches, correct_cache, &a);
}
