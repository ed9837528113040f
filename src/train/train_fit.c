/* SPDX-License-Identifier: BSD-3-Clause */
/* train_fit.c - ridge regressions of a layer from the second moments of its features */
#include "train_fit.h"

#include <string.h>

#include "dense.h"
#include "train_predict.h"
#include "train_rows.h"
#include "train_table.h"
#include "train_run.h"

/* ---- models ---- */

unsigned kvi_train_level(const kvarc_trainer *trainer, unsigned level)
{
	return trainer->predictor && level == KVI_LEVEL_PROFILE ? trainer->predictor->level : level;
}

/* The last model of a layer, when another layer follows. */
static bool corrects(const kvarc_trainer *trainer, const struct kvi_train_task *task, size_t i)
{
	return trainer->predictor && trainer->predictor->corrects && i + 1 == task->layer->n &&
	       task->layer->tensors[i].shape->layer + 1 < trainer->predictor->file->n_layers;
}

static kvarc_ret add_model(kvarc_trainer *trainer, struct kvi_train_task *task,
                           const struct kvi_train_ids *ids, unsigned level, size_t i)
{
	const struct kvi_train_tensor *x = &task->layer->tensors[i];
	struct kvi_profile *p = kvi_train_profile(trainer);
	struct kvi_model *m = &p->models[p->n_models];
	uint8_t scope = task->plan.head;
	*m = (struct kvi_model){
		.level = (uint8_t)kvi_train_level(trainer, level),
		.kind = x->shape->kind,
		.layer = x->shape->layer,
		.heads = x->shape->heads,
		.head_channels = x->shape->channels,
		.rope = x->shape->rope,
	};
	if (task->plan.self) {
		m->flags |= KVI_MODEL_SELF | (scope ? KVI_MODEL_SELF_HEAD : 0);
		for (size_t s = 0; s < i; s++)
			m->same[m->n_same++] = (struct kvi_source){
				0, task->layer->tensors[s].shape->kind, scope, NULL
			};
	}
	for (size_t b = 0; level == KVI_LEVEL_LOWER && b < task->n_below; b++)
		for (size_t s = 0; s < task->below[b]->n; s++) {
			const struct kvi_train_shape *from = task->below[b]->tensors[s].shape;
			m->lower[m->n_lower++] = (struct kvi_source){
				(uint8_t)(x->shape->layer - from->layer), from->kind, scope, NULL
			};
		}
	if (level == KVI_LEVEL_LOWER && ids->n) {
		m->flags |= KVI_MODEL_TABLE;
		m->n_ids = ids->n;
	}
	if (corrects(trainer, task, i)) {
		m->flags |= KVI_MODEL_CORRECTS;
		m->width = (uint32_t)trainer->predictor->width;
	}
	p->n_models++;
	if (kvi_model_reserve(p, m))
		return kvi_train_no_memory(trainer);
	for (size_t c = 0; c < m->C; c++) {
		m->step[c] = x->step[kvi_train_row_of(m, c)];
		m->mean[c] = x->mean[kvi_train_row_of(m, c)];
	}
	if (m->n_ids)
		memcpy(m->ids, ids->id, ids->n * sizeof *ids->id);
	task->models[level - 2][i] = m;
	return KVARC_OK;
}

kvarc_ret kvi_train_add_models(kvarc_trainer *trainer, struct kvi_train_task *task,
                               const struct kvi_train_ids *ids)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned level = KVI_LEVEL_PROFILE; level <= KVI_LEVEL_LOWER; level++)
		for (size_t i = 0; i < task->layer->n && !ret; i++)
			if (trainer->options.levels >> level & 1)
				ret = add_model(trainer, task, ids, level, i);
	return ret;
}

size_t kvi_train_entry(const struct kvi_model *model, bool lower, unsigned source)
{
	const struct kvi_source *s = lower ? model->lower : model->same;
	size_t at = 0;
	for (unsigned i = 0; i < source; i++)
		at += (s[i].scope ? 1 : s[i].model->heads) * kvi_head_stride(s[i].model);
	return at;
}

/* ---- variables of a regression ---- */

/* A row of features: source number (in order of the models' sources) and row. */
struct variable {
	uint32_t source, row;
};

/* Regression of a layer, or of one head of it. */
struct fit_group {
	kvarc_trainer *t;
	struct kvi_train_task *task;
	size_t n_x, n_y;
	struct variable *x, *y;
	double *g, *mean;     /* (n_x + n_y)^2; n_x + n_y */
	double *a, *s, *work; /* n_x * n_y; n_y^2; */
	unsigned level;
};

static size_t put_rows(const struct kvi_train_tensor *tensor, uint32_t source, size_t head,
                       bool by_head, struct variable *variable, struct kvi_train_feature *feature)
{
	size_t head_rows = kvi_train_head_stride(tensor->shape);
	size_t first = by_head ? head % tensor->shape->heads * head_rows : 0;
	size_t n = by_head ? head_rows : tensor->rows;
	for (size_t i = 0; variable && i < n; i++) {
		variable[i] = (struct variable){ source, (uint32_t)(first + i) };
		feature[i] = (struct kvi_train_feature){ tensor->z + (first + i) * tensor->capacity,
			                                 tensor->sigma[first + i] };
	}
	return n;
}

/* Lists the rows of a group; variable NULL: counts only. */
static void list_rows(struct fit_group *group, size_t head, struct variable *variable,
                      struct kvi_train_feature *feature)
{
	const struct kvi_train_task *k = group->task;
	bool by_head = k->plan.head;
	size_t n = 0;
	uint32_t source = 0;
	for (size_t b = 0; group->level == KVI_LEVEL_LOWER && b < k->n_below; b++)
		for (size_t s = 0; s < k->below[b]->n; s++, source++)
			n += put_rows(&k->below[b]->tensors[s], source, head, by_head,
			              variable ? variable + n : NULL, feature ? feature + n : NULL);
	group->n_x = n;
	for (uint32_t i = 0; i < k->layer->n; i++)
		n += put_rows(&k->layer->tensors[i], i, head, by_head,
		              variable ? variable + n : NULL, feature ? feature + n : NULL);
	group->n_y = n - group->n_x;
}

/* ---- lower layers ---- */

struct rows_job {
	struct fit_group *g;
	const double *l;        /* for B: the factor of the targets' covariance */
	const double *diagonal; /* second moments of the features of the rows */
	atomic_bool failed;
};

/* Whether a target row is a slot, and which one. */
static bool slot_of(const struct kvi_model *model, size_t row, size_t *c)
{
	size_t head_rows = kvi_head_stride(model), i = row % head_rows;
	*c = row / head_rows * model->head_channels + i;
	return i < model->head_channels;
}

/* Entry of a variable in a row of its source's block. */
static size_t entry_of(const struct kvi_source *source, const struct kvi_model *from, size_t row)
{
	return source && source->scope ? row % kvi_head_stride(from) : row;
}

/* The factor by which the residual of a fit with n coefficients is too small on its tokens. */
static double blown_up(const struct fit_group *group, size_t n)
{
	double tokens = (double)group->task->weights->fitted;
	double free = tokens - (double)n;
	return free > 0.1 * tokens ? tokens / free : 10;
}

static bool is_few(const struct fit_group *group, size_t n)
{
	return group->task->weights->fitted < 2 * n;
}

/* Quantises column y of a, and replaces it by the quantised values. */
static void store_a(void *arg, size_t y)
{
	struct rows_job *j = arg;
	struct fit_group *g = j->g;
	const struct variable *v = &g->y[y];
	struct kvi_model *m = g->task->models[1][v->source];
	size_t d = g->n_x + g->n_y, c;
	if (!slot_of(m, v->row, &c))
		return;
	double *b = kvi_array(&g->t->alloc, 2 * g->n_x, sizeof *b);
	int16_t *q = kvi_array(&g->t->alloc, g->n_x, sizeof *q);
	if (b && q) {
		const double *target = g->g + (g->n_x + y) * d;
		double all = target[g->n_x + y], left = all;
		for (size_t i = 0; i < g->n_x; i++) {
			b[i] = g->a[i * g->n_y + y];
			left -= b[i] * target[i];
		}
		/* B reduces the residual further */
		left = (left > 0.001 * all ? left : 0.001 * all) * blown_up(g, g->n_x);
		const struct kvi_train_row r = { g->g,
			                         d,
			                         g->n_x,
			                         j->diagonal,
			                         target,
			                         g->task->plan.ridge_a,
			                         all,
			                         0.6,
			                         0.6 * left,
			                         is_few(g, g->n_x),
			                         g->task->plan.tokens };
		m->qa[c] = kvi_train_round_row(g->t->kernels, &r, b, q, b + g->n_x);
		double shift = 0; /* sources have means with these weights */
		for (size_t i = 0; i < g->n_x; i++)
			shift -= b[i] * g->mean[i];
		m->mean[c] = kvi_train_shifted(m->mean[c], shift);
		int16_t *row = m->a + c * m->a_stride;
		for (size_t i = 0; i < g->n_x; i++) {
			const struct kvi_source *s = &m->lower[g->x[i].source];
			row[kvi_train_entry(m, true, g->x[i].source) +
			    entry_of(s, s->model, g->x[i].row)] = q[i];
			g->a[i * g->n_y + y] = b[i];
		}
	} else {
		atomic_store(&j->failed, true);
	}
	kvi_free(&g->t->alloc, b);
	kvi_free(&g->t->alloc, q);
}

static void take_diagonal(double *to, const double *s, size_t stride, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = s[i * stride + i];
}

static void transpose(double *to, const double *from, size_t stride, size_t m, size_t n)
{
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j++)
			to[j * m + i] = from[i * stride + j];
}

/* a = (Gxx + ridge)^-1 Gxy, rounded; s = covariance of y - a x. */
static kvarc_ret fit_lower(struct fit_group *group)
{
	kvarc_trainer *t = group->t;
	size_t nx = group->n_x, ny = group->n_y, d = nx + ny;
	size_t most = nx > ny ? nx : ny;
	double *l = kvi_array(&t->alloc, nx, nx * sizeof *l);
	double *w = kvi_array(&t->alloc, nx, most * sizeof *w);
	double *diagonal = kvi_array(&t->alloc, nx, sizeof *diagonal);
	struct rows_job j = { .g = group, .diagonal = diagonal };
	bool ok = l && w && diagonal;
	if (ok)
		take_diagonal(diagonal, group->g, d, nx);
	for (size_t r = 0; ok && r < nx; r++) {
		memcpy(l + r * nx, group->g + r * d, nx * sizeof *l);
		l[r * nx + r] *= 1 + group->task->plan.ridge_a;
		memcpy(group->a + r * ny, group->g + r * d + nx, ny * sizeof *l);
	}
	ok = ok && kvi_train_cholesky(t, l, nx, nx);
	if (ok) {
		kvi_train_solve(t, l, nx, nx, group->a, ny, w);
		kvi_train_parallel(t, ny, store_a, &j);
		/* l: Gxy - Gxx a, then a^T times that; and Gyx a */
		double *rest = l;
		for (size_t r = 0; r < nx; r++)
			memcpy(w + r * ny, group->g + r * d + nx, ny * sizeof *w);
		if (nx < ny) { /* the work buffer is too small: rest is nx x ny */
			kvi_free(&t->alloc, l);
			l = rest = kvi_array(&t->alloc, nx, ny * sizeof *l);
		}
		ok = rest != NULL;
	}
	if (ok) {
		double *rest = l;
		memcpy(rest, w, nx * ny * sizeof *rest);
		kvi_train_subtract(t, rest, ny, group->g, d, group->a, ny, nx, ny, nx);
		transpose(w, group->a, ny, nx, ny);
		kvi_train_subtract(t, group->s, ny, w, nx, rest, ny, ny, ny, nx);
		transpose(w, group->g + nx, d, nx, ny);
		kvi_train_subtract(t, group->s, ny, w, nx, group->a, ny, ny, ny, nx);
	}
	kvi_free(&t->alloc, l);
	kvi_free(&t->alloc, w);
	kvi_free(&t->alloc, diagonal);
	return ok && !atomic_load(&j.failed) ? KVARC_OK : kvi_train_no_memory(t);
}

/* ---- the layer itself ---- */

/* Earlier variables of a target: those of a pair see what is before the pair. */
static size_t earlier(const struct fit_group *group, size_t y, const struct kvi_model *model)
{
	size_t i = group->y[y].row % kvi_head_stride(model);
	return i < model->rotary ? y - (i & 1) : y;
}

static void store_b(void *arg, size_t y)
{
	struct rows_job *j = arg;
	struct fit_group *g = j->g;
	const struct variable *v = &g->y[y];
	struct kvi_model *m = g->task->models[g->level - 2][v->source];
	size_t p = earlier(g, y, m), c;
	if (p == 0 || !slot_of(m, v->row, &c))
		return;
	double *b = kvi_array(&g->t->alloc, 2 * p, sizeof *b);
	int16_t *q = kvi_array(&g->t->alloc, p, sizeof *q);
	if (b && q) {
		double root = j->l[y * g->n_y + y];
		const struct kvi_source own = { .scope = g->task->plan.head };
		/* a left-out target has no residual worth digits */
		const struct kvi_train_row r = { g->s,
			                         g->n_y,
			                         p,
			                         j->diagonal,
			                         g->s + y * g->n_y,
			                         g->task->plan.ridge_b,
			                         g->s[y * g->n_y + y],
			                         1,
			                         root > 1e30 ? 0 : root * root * blown_up(g, p),
			                         is_few(g, p),
			                         g->task->plan.tokens };
		kvi_train_regress(g->t->kernels, j->l, g->n_y, y, p, b);
		m->qb[c] = kvi_train_round_row(g->t->kernels, &r, b, q, b + p);
		int16_t *row = m->b + c * m->b_stride;
		for (size_t i = 0; i < p; i++) {
			unsigned from = g->y[i].source;
			bool self = from == v->source;
			row[kvi_train_entry(m, false, from) +
			    entry_of(self ? &own : &m->same[from], self ? m : m->same[from].model,
			             g->y[i].row)] = q[i];
		}
	} else {
		atomic_store(&j->failed, true);
	}
	kvi_free(&g->t->alloc, b);
	kvi_free(&g->t->alloc, q);
}

static kvarc_ret fit_self(struct fit_group *group)
{
	kvarc_trainer *t = group->t;
	size_t n = group->n_y;
	double *l = kvi_array(&t->alloc, n, (n + 1) * sizeof *l);
	struct rows_job j = { .g = group, .l = l };
	bool ok = l;
	if (ok) {
		j.diagonal = l + n * n;
		take_diagonal(l + n * n, group->s, n, n);
		memcpy(l, group->s, n * n * sizeof *l);
		for (size_t i = 0; i < n; i++)
			l[i * n + i] *= 1 + group->task->plan.ridge_b;
		ok = kvi_train_cholesky(t, l, n, n);
	}
	if (ok)
		kvi_train_parallel(t, n, store_b, &j);
	kvi_free(&t->alloc, l);
	return ok && !atomic_load(&j.failed) ? KVARC_OK : kvi_train_no_memory(t);
}

/* ---- the fit of a layer ---- */

/* Second moments of the targets about their means, when the model's mean will be right for these
 * weights, or about the mean that it has. */
static void take_targets(struct fit_group *group, bool centred)
{
	size_t d = group->n_x + group->n_y;
	const double *mean = group->mean + group->n_x;
	for (size_t r = 0; r < group->n_y; r++) {
		const double *from = group->g + (group->n_x + r) * d + group->n_x;
		for (size_t c = 0; c < group->n_y; c++)
			group->s[r * group->n_y + c] = from[c] + (centred ? 0 : mean[r] * mean[c]);
	}
}

static kvarc_ret fit_levels(struct fit_group *group, unsigned levels)
{
	kvarc_ret ret = KVARC_OK;
	bool self = group->task->plan.self;
	take_targets(group, false);
	if (self && levels >> 2 & 1) {
		group->level = KVI_LEVEL_PROFILE;
		ret = fit_self(group);
	}
	if (ret || !(levels >> 3 & 1))
		return ret;
	group->level = KVI_LEVEL_LOWER;
	if (group->n_x) {
		take_targets(group, true);
		ret = fit_lower(group);
	}
	if (!ret && self)
		ret = fit_self(group);
	return ret;
}

static kvarc_ret fit_group(kvarc_trainer *trainer, struct kvi_train_task *task, size_t head,
                           unsigned levels)
{
	struct fit_group g = { .t = trainer, .task = task, .level = levels >> 3 & 1 ? 3 : 2 };
	list_rows(&g, head, NULL, NULL);
	size_t d = g.n_x + g.n_y;
	struct variable *v = kvi_array(&trainer->alloc, d, sizeof *v);
	struct kvi_train_feature *f = kvi_array(&trainer->alloc, d, sizeof *f);
	g.g = kvi_array(&trainer->alloc, d, d * sizeof *g.g);
	g.mean = kvi_array(&trainer->alloc, d, sizeof *g.mean);
	g.s = kvi_array(&trainer->alloc, g.n_y, g.n_y * sizeof *g.s);
	if (g.n_x)
		g.a = kvi_array(&trainer->alloc, g.n_x, g.n_y * sizeof *g.a);
	kvarc_ret ret = KVARC_OK;
	if (!v || !f || !g.g || !g.mean || !g.s || (g.n_x && !g.a))
		ret = kvi_train_no_memory(trainer);
	if (!ret) {
		list_rows(&g, head, v, f);
		g.x = v;
		g.y = v + g.n_x;
		ret = kvi_train_gram(trainer, f, d, task->weights->w, task->stack->n_tokens, g.g,
		                     g.mean);
	}
	if (!ret)
		ret = fit_levels(&g, levels);
	kvi_free(&trainer->alloc, v);
	kvi_free(&trainer->alloc, f);
	kvi_free(&trainer->alloc, g.g);
	kvi_free(&trainer->alloc, g.mean);
	kvi_free(&trainer->alloc, g.s);
	kvi_free(&trainer->alloc, g.a);
	return ret;
}

kvarc_ret kvi_train_fit(kvarc_trainer *trainer, struct kvi_train_task *task, unsigned levels)
{
	size_t heads = task->plan.head ? task->layer->tensors[0].shape->heads : 1;
	kvarc_ret ret = KVARC_OK;
	for (size_t h = 0; h < heads && !ret; h++)
		ret = fit_group(trainer, task, h, levels);
	return ret;
}
