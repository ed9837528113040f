/* SPDX-License-Identifier: BSD-3-Clause */
/* train_scales.c - scale classes of the slots, and how they follow the token */
#include <string.h>

#include "numeric/formats.h"
#include "train_sample.h"
#include "train_run.h"

enum { BINS = 1024, K_MIN = -400, K_MAX = 400, REACH = 1, FEW = 256 };

struct scales_job {
	struct kvi_train_view *v;
	const float *token; /* scale of each, about 1 */
	float *q;           /* by slot: 68 % quantile */
	size_t every;       /* looks at one token in `every` */
};

/* The 68 % quantile of |residual| / token scale: sigma of a normal one, whatever its tails. */
static void quantile(void *arg, size_t c)
{
	const struct scales_job *j = arg;
	const int32_t *left = j->v->left + c * j->v->capacity;
	uint32_t bins[BINS] = { 0 };
	size_t n = 0;
	for (size_t i = 0; i < j->v->n; i += j->every, n++) {
		float x = (float)(left[i] < 0 ? -left[i] : left[i]) / j->token[i];
		uint32_t b;
		memcpy(&b, &x, sizeof b);
		/* 32 bins a factor of two, from 2^-12 on */
		int at = (int)(b >> 18) - (115 << 5);
		bins[at < 0 ? 0 : at >= BINS ? BINS - 1 : at]++;
	}
	size_t at = 0, want = n * 17 / 25, have = bins[0];
	while (at + 1 < BINS && have <= want)
		have += bins[++at];
	uint32_t b = ((uint32_t)at + (115 << 5)) << 18 | 1 << 17;
	memcpy(&j->q[c], &b, sizeof b);
	if (at == 0)
		j->q[c] = 0;
}

/* Mean |residual| of each token in units of the slots' scales, 1 in the mean. */
static void token_scales(const struct kvi_train_view *view, const float *q, float *token)
{
	double sum = 0;
	memset(token, 0, view->n * sizeof *token);
	for (size_t c = 0; c < view->model->C; c++) {
		const int32_t *left = view->left + c * view->capacity;
		if (!(q[c] > 0))
			continue;
		float f = 1 / q[c];
		for (size_t i = 0; i < view->n; i++)
			token[i] += (float)(left[i] < 0 ? -left[i] : left[i]) * f;
	}
	for (size_t i = 0; i < view->n; i++)
		sum += token[i];
	float f = sum > 0 ? (float)((double)view->n / sum) : 0;
	for (size_t i = 0; i < view->n; i++) {
		token[i] *= f;
		token[i] = token[i] > 0.125f ? token[i] : 0.125f;
	}
}

/* round(4 log2 v), v positive */
static int class_of(float v)
{
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	uint32_t m = b & 0x7fffff;
	/* mantissas of 2^(1/8), 2^(3/8), ... */
	int part = (m >= 759234) + (m >= 2490071) + (m >= 4548395) + (m >= 6996167);
	return 4 * ((int)(b >> 23) - 127) + part;
}

/* Smallest class of a slot: not far below the steps of elements around the mean (cf. the fit of
 * codec grid). */
static int least_class(const struct kvi_train_view *view, size_t c)
{
	const struct kvi_grid_format *f = &kvi_float_format(view->dtype[0])->grid;
	const struct kvi_model *m = view->model;
	int least = 4 * (f->emin - f->mant_bits) - 4;
	float mean = (float)(m->mean[c] < 0 ? -m->mean[c] : m->mean[c]);
	if (mean > 0) {
		int at = class_of(mean) / 4 * 4 + 4 * m->step[c] - 4 * f->mant_bits - 8;
		least = at > least ? at : least;
	}
	return least;
}

static int16_t class_in(int k)
{
	return (int16_t)(k < K_MIN ? K_MIN : k > K_MAX ? K_MAX : k);
}

static void set_classes(const struct kvi_train_view *view, const float *q, int16_t *k)
{
	for (size_t c = 0; c < view->model->C; c++) {
		int least = least_class(view, c), at = K_MIN;
		if (q[c] > 0)
			at = class_of(q[c]) + 4 * view->model->step[c];
		k[c] = class_in(at < least ? least : at);
	}
}

struct best {
	kvarc_trainer *t;
	struct kvi_train_view *v;
	struct kvi_train_scale s;
	uint64_t price;
};

static bool better(struct best *best, const struct kvi_train_scale *scale)
{
	uint64_t price = kvi_train_price(best->t, best->v, scale, NULL);
	if (price >= best->price)
		return false;
	best->price = price;
	best->s = *scale;
	return true;
}

static void try_offsets(struct best *best)
{
	for (int d = -1; d <= 1; d += 2)
		for (int i = 0; i < 8; i++) {
			struct kvi_train_scale s = best->s;
			s.offset += d;
			if (!better(best, &s))
				break;
		}
}

static void try_following(struct best *best)
{
	static const unsigned priors[] = { 8, 16, 32, 64 };
	for (size_t i = 0; i < sizeof priors / sizeof *priors; i++) {
		struct kvi_train_scale s = best->s;
		s.n0 = priors[i];
		s.beta = 0;
		better(best, &s);
	}
	for (unsigned beta = 4; best->s.source && best->s.n0 && beta <= 12; beta += 4) {
		struct kvi_train_scale s = best->s;
		s.beta = beta;
		better(best, &s);
	}
	for (size_t i = 0; best->s.beta && i < sizeof priors / sizeof *priors; i++) {
		struct kvi_train_scale s = best->s;
		s.n0 = priors[i];
		better(best, &s);
	}
}

static void try_unknown(struct best *best)
{
	for (unsigned u = 2; u <= 64; u += 2) {
		struct kvi_train_scale s = best->s;
		s.unknown = u;
		better(best, &s);
	}
}

/* Chooses for each slot (each pair) the best offset. The price is then approximate. */
static void try_slots(struct best *b, int16_t *k, _Atomic uint64_t *slots)
{
	const struct kvi_model *m = b->v->model;
	enum { N = 2 * REACH + 1 };
	struct kvi_train_scale s = b->s;
	s.reach = REACH;
	for (size_t i = 0; i < N * m->C; i++)
		atomic_store(&slots[i], 0);
	kvi_train_price(b->t, b->v, &s, slots);
	b->price = 0;
	for (size_t c = 0; c < m->C;) {
		size_t n = c % m->head_channels < m->rotary ? 2 : 1;
		uint64_t least = UINT64_MAX;
		int best = 0;
		for (int d = 0; d < N; d++) {
			uint64_t sum = 0;
			for (size_t i = 0; i < n; i++)
				sum += atomic_load(&slots[d * m->C + c + i]);
			if (sum < least) {
				least = sum;
				best = d - REACH;
			}
		}
		b->price += least;
		for (size_t i = 0; i < n; i++)
			k[c + i] = class_in(k[c + i] + b->s.offset + best);
		c += n;
	}
	b->s.offset = 0;
}

static void fit(struct best *best, int16_t *k, bool follows, float *work, _Atomic uint64_t *slots)
{
	const struct kvi_model *m = best->v->model;
	struct scales_job j = { best->v, work, work + best->v->n, best->v->n >= FEW ? 2 : 1 };
	/* a quarter of the tokens is enough to choose a few numbers */
	best->s.every = best->v->n >= FEW ? 4 : 1;
	for (size_t i = 0; i < best->v->n; i++)
		work[i] = 1;
	for (int pass = 0; pass < (follows ? 3 : 1); pass++) {
		if (pass)
			token_scales(best->v, j.q, work);
		kvi_train_parallel(best->t, m->C, quantile, &j);
	}
	set_classes(best->v, j.q, k);
	best->s.k = k;
	if (follows) {
		best->price = kvi_train_price(best->t, best->v, &best->s, NULL);
		if (m->flags & KVI_MODEL_TABLE)
			try_unknown(best);
		try_following(best);
		try_offsets(best);
	}
	best->s.every = best->v->n >= FEW ? 2 : 1;
	try_slots(best, k, slots);
}

/* The price of all tokens, by that of those groups that were looked at. */
static uint64_t price_of_all(const struct best *best)
{
	size_t seen = 0, n = best->v->n, step = KVI_LANES * (best->s.every ? best->s.every : 1);
	for (size_t at = 0; at < n; at += step)
		seen += n - at < KVI_LANES ? n - at : KVI_LANES;
	return seen ? (uint64_t)((double)best->price * (double)n / (double)seen) : 0;
}

kvarc_ret kvi_train_fit_scales(kvarc_trainer *trainer, struct kvi_train_view *view,
                               struct kvi_model *model, struct kvi_train_view *source,
                               int16_t *level1, uint64_t *price)
{
	size_t C = view->model->C;
	struct best b = { .t = trainer, .v = view };
	float *work = kvi_array(&trainer->alloc, view->n + C, sizeof *work);
	_Atomic uint64_t *slots = kvi_array(&trainer->alloc, C, (2 * REACH + 1) * sizeof *slots);
	bool ok = work && slots;
	if (ok) {
		bool follows = !level1 && !(trainer->options.flags & KVARC_TRAIN_NO_STAGES);
		b.s.source = source && follows ? source->scale : NULL;
		fit(&b, level1 ? level1 : model->k, follows, work, slots);
	}
	if (ok && !level1) {
		model->n0 = (uint8_t)b.s.n0;
		model->flags |= b.s.n0 ? KVI_MODEL_SCALE : 0;
		model->beta = b.s.n0 ? (uint8_t)b.s.beta : 0;
		model->scale_kind = model->beta ? source->model->kind : 0;
		model->unknown = (uint8_t)b.s.unknown;
		/* scales at the end, for the next tensor */
		b.price = kvi_train_price(trainer, view, &b.s, NULL);
	}
	*price = price_of_all(&b);
	kvi_free(&trainer->alloc, work);
	kvi_free(&trainer->alloc, slots);
	return ok ? KVARC_OK : kvi_train_no_memory(trainer);
}
