/* SPDX-License-Identifier: BSD-3-Clause */
/* train_sample.c - models applied to tokens of caches (spec linear 2 to 4) */
#include "train_sample.h"

#include <string.h>

#include "kernels/linear_formulas.h"
#include "numeric/rope_angles.h"
#include "numeric/rotate.h"
#include "train_table.h"
#include "train_run.h"

enum { PIECE = 64 };

kvarc_ret kvi_train_pieces_choose(kvarc_trainer *trainer, const struct kvi_train_task *task,
                                  bool held, size_t most, struct kvi_train_pieces *pieces)
{
	size_t all = 0, count = 0;
	for (size_t i = 0; i < task->stack->n_caches; i++) {
		const struct kvi_train_cache *c = task->stack->caches[i];
		all += ((held ? c->n - c->held : c->held) + PIECE - 1) / PIECE;
	}
	size_t every = (all * PIECE + most - 1) / most;
	every += every == 0;
	*pieces = (struct kvi_train_pieces){ 0 };
	pieces->p = kvi_array(&trainer->alloc, all / every + 1, sizeof *pieces->p);
	if (!pieces->p)
		return kvi_train_no_memory(trainer);
	for (size_t i = 0; i < task->stack->n_caches; i++) {
		const struct kvi_train_cache *c = task->stack->caches[i];
		size_t at = held ? c->held : 0, end = held ? c->n : c->held;
		for (; at < end; at += PIECE) {
			size_t n = end - at < PIECE ? end - at : PIECE;
			if (count++ % every)
				continue;
			pieces->p[pieces->n++] = (struct kvi_train_piece){ i, at, n,
				                                           pieces->n_tokens };
			pieces->n_tokens += n;
		}
	}
	return KVARC_OK;
}

/* ---- one piece ---- */

/* A tensor's numbers of a piece; rows of KVI_TRAIN_BLOCK. */
struct numbers {
	int32_t *X, *U;
	int16_t *r;
};

struct sample_work {
	kvarc_trainer *t;
	const struct kvi_train_task *task;
	const struct kvi_train_piece *piece;
	unsigned level;
	struct kvi_train_view *views;
	struct numbers num[KVI_TRAIN_TENSORS];
};

/* Adds the token table's rows; marks the tokens that it lacks. */
static void add_table(const struct sample_work *w, const struct kvi_model *model, size_t c,
                      uint8_t *unknown, int32_t *base)
{
	const struct kvi_train_piece *p = w->piece;
	const struct kvi_train_cache *cache = w->task->stack->caches[p->cache];
	for (size_t v = 0; v < p->n; v++) {
		size_t at = p->t0 + v;
		int32_t row = -1;
		if (at >= cache->held || !kvi_train_pretend(cache->ids[at]))
			row = kvi_train_table_row(model, cache->ids[at]);
		unknown[v] = row < 0;
		if (row >= 0)
			base[v] += model->table[(size_t)row * model->C + c] * (1 << model->tshift);
	}
}

/* base of slot c (spec linear 3), and r. */
static void make_base(const struct sample_work *w, size_t i, size_t c, int32_t *base)
{
	const struct kvi_train_view *view = &w->views[i];
	const struct kvi_model *m = view->model;
	const struct kvi_train_piece *p = w->piece;
	size_t row = kvi_train_row_of(m, c), n = (p->n + 31) & ~(size_t)31;
	size_t at = w->task->stack->caches[p->cache]->first + p->t0;
	uint32_t source = 0;
	int32_t acc[KVI_TRAIN_BLOCK] = { 0 };
	for (size_t b = 0; m->n_lower && w->level == KVI_LEVEL_LOWER && b < w->task->n_below; b++)
		for (size_t s = 0; s < w->task->below[b]->n; s++, source++) {
			const struct kvi_train_tensor *x = &w->task->below[b]->tensors[s];
			size_t head_rows = kvi_train_head_stride(x->shape);
			bool head = m->lower[source].scope;
			size_t first = head ? c / m->head_channels % x->shape->heads * head_rows
			                    : 0;
			w->t->kernels->weigh(
				acc, m->a + c * m->a_stride + kvi_train_entry(m, true, source),
				x->z + first * x->capacity + at, x->capacity,
				head ? head_rows : x->rows, n);
		}
	/* the mean of a level 3 model includes the sources' means */
	int32_t mean = w->level == KVI_LEVEL_CELLS && m->level == KVI_LEVEL_LOWER
	                       ? w->task->layer->tensors[i].mean[row]
	                       : m->mean[c];
	const struct kvi_train_tensor *own = &w->task->layer->tensors[i];
	const int16_t *expected = own->expected ? own->expected + row * own->capacity : NULL;
	for (size_t v = 0; v < p->n; v++) {
		int32_t sum = m->n_lower && w->level == KVI_LEVEL_LOWER
		                      ? (acc[v] + kvi_linear_half(m->qa[c])) >> m->qa[c]
		                      : 0;
		base[v] = mean + sum + (expected ? expected[at + v] : 0);
	}
	if (w->level == KVI_LEVEL_LOWER && m->flags & KVI_MODEL_TABLE)
		add_table(w, m, c, view->unknown + p->at, base);
	for (size_t v = 0; v < p->n; v++) {
		size_t to = row * KVI_TRAIN_BLOCK + v;
		base[v] = kvi_linear_limited(base[v]);
		w->num[i].r[to] = (int16_t)kvi_linear_limited(w->num[i].U[to] - base[v]);
	}
}

/* pred of slot c from its base. */
static void predict(const struct sample_work *w, size_t i, size_t c, size_t earlier,
                    const int32_t *base, int32_t *pred)
{
	const struct kvi_model *m = w->views[i].model;
	size_t n = (w->piece->n + 31) & ~(size_t)31, head = c / m->head_channels;
	int32_t acc[KVI_TRAIN_BLOCK] = { 0 };
	const int16_t *row = m->b ? m->b + c * m->b_stride : NULL;
	for (unsigned s = 0; row && s < m->n_same; s++) {
		const struct kvi_model *from = m->same[s].model;
		size_t head_rows = kvi_head_stride(from);
		bool by_head = m->same[s].scope;
		size_t first = by_head ? head % from->heads * head_rows : 0;
		w->t->kernels->weigh(acc, row + kvi_train_entry(m, false, s),
		                     w->num[s].r + first * KVI_TRAIN_BLOCK, KVI_TRAIN_BLOCK,
		                     by_head ? head_rows : from->heads * head_rows, n);
	}
	if (row && m->flags & KVI_MODEL_SELF) {
		size_t head_rows = kvi_head_stride(m);
		bool by_head = m->flags & KVI_MODEL_SELF_HEAD;
		size_t first = by_head ? head * head_rows : 0;
		w->t->kernels->weigh(acc, row + kvi_train_entry(m, false, m->n_same),
		                     w->num[i].r + first * KVI_TRAIN_BLOCK, KVI_TRAIN_BLOCK,
		                     kvi_train_row_of(m, earlier) - first, n);
	}
	for (size_t v = 0; v < w->piece->n; v++) {
		int32_t sum = row ? (acc[v] + kvi_linear_half(m->qb[c])) >> m->qb[c] : 0;
		pred[v] = kvi_linear_limited(base[v] + sum);
	}
}

/* Finishes one slot, or the two slots of a RoPE pair. */
static void finish_slots(const struct sample_work *w, size_t i, size_t c, bool pair,
                         const int32_t *pred)
{
	struct kvi_train_view *view = &w->views[i];
	const struct kvi_model *m = view->model;
	const struct kvi_train_piece *p = w->piece;
	const struct kvi_train_cache *cache = w->task->stack->caches[p->cache];
	size_t row = kvi_train_row_of(m, c) * KVI_TRAIN_BLOCK;
	const int32_t *X = w->num[i].X + row, *U = w->num[i].U + row;
	size_t s = c % m->head_channels / 2;
	for (size_t v = 0; v < p->n; v++) {
		size_t a = c * view->capacity + p->at + v, b = a + view->capacity;
		int32_t pa = pred[v], pb = pred[KVI_TRAIN_BLOCK + v];
		view->left[a] = U[v] - pa;
		if (!pair) {
			view->mu[a] = kvi_scaled_bits(pa, m->step[c]);
			view->miss[a] = X[v] - pa;
			continue;
		}
		struct kvi_pair_rotation turn = kvi_pair_rotation(w->t->ropes[m->rope - 1].freq[s],
		                                                  cache->positions[p->t0 + v]);
		int32_t rotated[2];
		kvi_linear_apply_rope(pa, pb, turn.cosine, turn.sine, rotated);
		view->left[b] = U[KVI_TRAIN_BLOCK + v] - pb;
		view->mu[a] = kvi_scaled_bits(rotated[0], m->step[c] - 6);
		view->mu[b] = kvi_scaled_bits(rotated[1], m->step[c] - 6);
		view->miss[a] = X[v] - kvi_linear_expected(rotated[0]);
		view->miss[b] = X[KVI_TRAIN_BLOCK + v] - kvi_linear_expected(rotated[1]);
		view->angle[s * view->capacity + p->at + v] =
			(uint8_t)(kvi_angle_class(turn.angle));
	}
}

static void copy_elements(const struct sample_work *w, size_t i)
{
	struct kvi_train_view *view = &w->views[i];
	const struct kvi_model *m = view->model;
	const struct kvi_train_piece *p = w->piece;
	const struct kvi_train_cache *cache = w->task->stack->caches[p->cache];
	const kvarc_tensor *g = &cache->geometry.tensors[cache->tensors[w->task->first + i]];
	const kvarc_rope *rope = kvi_tensor_rope(&cache->geometry, g);
	const struct kvi_train_tensor *x = &w->task->layer->tensors[i];
	const uint8_t *raw = x->raw + x->raw_at[p->cache] + p->t0 * kvi_tensor_bytes(g);
	uint16_t *elements = (uint16_t *)(void *)w->num[i].X; /* X is not needed any more */
	kvi_train_channels(w->t, g->dtype, raw, p->n, m->C, elements);
	memset(view->dtype + p->at, g->dtype, p->n);
	for (size_t c = 0; c < m->C; c++) {
		size_t h = c / g->channels, s = c % g->channels;
		size_t at = h * g->channels + kvi_rope_channel(rope, s);
		memcpy(view->element + c * view->capacity + p->at, elements + at * p->n,
		       p->n * sizeof *elements);
	}
}

static void apply(struct sample_work *w, size_t i)
{
	const struct kvi_model *m = w->views[i].model;
	const struct kvi_train_tensor *x = &w->task->layer->tensors[i];
	int32_t base[2 * KVI_TRAIN_BLOCK], pred[2 * KVI_TRAIN_BLOCK];
	kvi_train_integers(w->t, w->task->stack, w->piece->cache, w->task->first + i, x,
	                   w->piece->t0, w->piece->n, w->num[i].X, w->num[i].U);
	for (size_t c = 0; c < m->C;) {
		bool pair = c % m->head_channels < m->rotary;
		size_t n = pair ? 2 : 1;
		for (size_t s = 0; s < n; s++) {
			int32_t *b = base + s * KVI_TRAIN_BLOCK;
			make_base(w, i, c + s, b);
		}
		for (size_t s = 0; s < n; s++) {
			int32_t *b = base + s * KVI_TRAIN_BLOCK;
			int32_t *to = pred + s * KVI_TRAIN_BLOCK;
			if (w->level == KVI_LEVEL_CELLS)
				memcpy(to, b, w->piece->n * sizeof *to);
			else
				predict(w, i, c + s, c, b, to);
		}
		finish_slots(w, i, c, pair, pred);
		c += n;
	}
	copy_elements(w, i);
}

/* ---- all pieces ---- */

struct view_job {
	struct sample_work work;
	const struct kvi_train_pieces *pieces;
	atomic_bool failed;
};

static void apply_piece(void *arg, size_t index)
{
	struct view_job *j = arg;
	struct sample_work w = j->work;
	const struct kvi_alloc *alloc = &w.t->alloc;
	w.piece = &j->pieces->p[index];
	bool ok = true;
	for (size_t i = 0; i < w.task->layer->n; i++) {
		size_t n = w.task->layer->tensors[i].rows * KVI_TRAIN_BLOCK;
		w.num[i].X = kvi_calloc(alloc, n, 2 * sizeof(int32_t));
		w.num[i].U = w.num[i].X ? w.num[i].X + n : NULL;
		w.num[i].r = kvi_calloc(alloc, n, sizeof(int16_t));
		ok = ok && w.num[i].X && w.num[i].r;
	}
	for (size_t i = 0; i < w.task->layer->n && ok; i++)
		apply(&w, i);
	for (size_t i = 0; i < w.task->layer->n; i++) {
		kvi_free(alloc, w.num[i].X);
		kvi_free(alloc, w.num[i].r);
	}
	if (!ok)
		atomic_store(&j->failed, true);
}

static bool open_view(kvarc_trainer *trainer, struct kvi_train_view *view,
                      const struct kvi_model *model, size_t n)
{
	size_t pairs = model->rotary / 2 + 1;
	view->model = model;
	view->n = n;
	view->capacity = (n + 31) & ~(size_t)31;
	view->element = kvi_calloc(&trainer->alloc, model->C,
	                           view->capacity * sizeof *view->element);
	view->mu = kvi_calloc(&trainer->alloc, model->C, view->capacity * sizeof *view->mu);
	view->left = kvi_calloc(&trainer->alloc, model->C, view->capacity * sizeof *view->left);
	view->miss = kvi_calloc(&trainer->alloc, model->C, view->capacity * sizeof *view->miss);
	view->angle = kvi_calloc(&trainer->alloc, pairs, view->capacity);
	view->unknown = kvi_calloc(&trainer->alloc, 3, view->capacity + 1);
	view->dtype = view->unknown ? view->unknown + view->capacity : NULL;
	view->scale = view->unknown ? view->unknown + 2 * view->capacity : NULL;
	return view->element && view->mu && view->left && view->miss && view->angle &&
	       view->unknown;
}

void kvi_train_view_free(kvarc_trainer *trainer, struct kvi_train_view view[KVI_TRAIN_TENSORS])
{
	for (size_t i = 0; i < KVI_TRAIN_TENSORS; i++) {
		kvi_free(&trainer->alloc, view[i].element);
		kvi_free(&trainer->alloc, view[i].mu);
		kvi_free(&trainer->alloc, view[i].left);
		kvi_free(&trainer->alloc, view[i].miss);
		kvi_free(&trainer->alloc, view[i].angle);
		kvi_free(&trainer->alloc, view[i].unknown);
	}
	memset(view, 0, KVI_TRAIN_TENSORS * sizeof *view);
}

kvarc_ret kvi_train_view_make(kvarc_trainer *trainer, const struct kvi_train_task *task,
                              const struct kvi_train_pieces *pieces, unsigned level,
                              struct kvi_train_view view[KVI_TRAIN_TENSORS])
{
	struct view_job j = { .work = { .t = trainer, .task = task, .level = level, .views = view },
		              .pieces = pieces };
	bool ok = true;
	memset(view, 0, KVI_TRAIN_TENSORS * sizeof *view);
	for (size_t i = 0; i < task->layer->n && ok; i++) {
		const struct kvi_model *m = task->models[level == KVI_LEVEL_LOWER][i];
		if (!m) /* level 1, and level 2 is not wanted */
			m = task->models[level != KVI_LEVEL_LOWER][i];
		ok = open_view(trainer, &view[i], m, pieces->n_tokens);
	}
	if (ok)
		kvi_train_parallel(trainer, pieces->n, apply_piece, &j);
	return ok && !atomic_load(&j.failed) ? KVARC_OK : kvi_train_no_memory(trainer);
}
