/* SPDX-License-Identifier: BSD-3-Clause */
/* price_tokens.c - scales of elements and what they cost (spec linear 4) */
#include "kernels/linear_formulas.h"
#include "numeric/rotate.h"
#include "train_sample.h"
#include "train_run.h"

enum { LANES = KVI_LANES, START = KVI_LINEAR_DISTANCE_START };

struct price_job {
	kvarc_trainer *t;
	struct kvi_train_view *v;
	const struct kvi_train_scale *s;
	_Atomic uint64_t *slots;
	_Atomic uint64_t sum;
};

/* k' of a slot of a group of tokens. */
static void classes(const struct price_job *job, size_t c, bool second, size_t at, int32_t *k)
{
	const struct kvi_train_view *v = job->v;
	const struct kvi_model *m = v->model;
	const int16_t *kc = job->s->k + c;
	const uint8_t *unknown = v->unknown + at;
	const int more = (int)job->s->unknown;
	size_t s = c % m->head_channels;
	int32_t own = kc[0] + job->s->offset;
	for (size_t i = 0; i < LANES; i++)
		k[i] = own + (unknown[i] ? more : 0);
	if (s < m->rotary) {
		const uint8_t *angle = v->angle + s / 2 * v->capacity + at;
		int32_t kb = second ? kc[0] : kc[1];
		int32_t ka = second ? kc[-1] : kc[0];
		const int8_t *rot = kvi_rot_scale +
		                    (kvi_train_clamp(ka - kb, KVI_LINEAR_SHIFT_LIMIT) +
		                     KVI_LINEAR_SHIFT_LIMIT) *
		                            64;
		for (size_t i = 0; i < LANES; i++)
			k[i] += kb - kc[0] + rot[(angle[i] + 32 * second) & 63];
	}
}

static uint64_t price(const struct price_job *job, size_t first, const uint8_t *dtypes, size_t n,
                      const int16_t *k)
{
	const struct kvi_train_view *v = job->v;
	uint64_t sum = 0;
	for (size_t i = 0, end; i < n; i = end) {
		unsigned dtype = dtypes[i];
		for (end = i + 1; end < n && dtypes[end] == dtype;)
			end++;
		sum += kvi_train_prices_sum(job->t->prices, dtype, v->element + first + i,
		                            v->mu + first + i, k + i, end - i);
	}
	return sum;
}

/* The elements of slot c of a group, in classes k' + o and those around them. */
static uint64_t price_slot(const struct price_job *job, size_t c, size_t at, size_t n,
                           const int32_t *k, const int32_t *o)
{
	const struct kvi_train_view *v = job->v;
	const int reach = job->s->reach;
	int16_t class[LANES];
	uint64_t own = 0;
	for (int d = -reach; d <= reach; d++) {
		for (size_t i = 0; i < LANES; i++)
			class[i] = (int16_t)kvi_linear_class(k[i] + d, o[i]);
		uint64_t sum = price(job, c * v->capacity + at, v->dtype + at, n, class);
		own = d ? own : sum;
		if (job->slots)
			atomic_fetch_add(&job->slots[(size_t)(d + reach) * v->model->C + c], sum);
	}
	return own;
}

/* Slots c and, of a pair, c + 1 have been seen. */
static void follow(const struct price_job *job, size_t c, size_t slots, size_t at,
                   int32_t k[2][LANES], uint32_t *w, uint32_t *count)
{
	const struct kvi_train_view *v = job->v;
	for (size_t x = 0; x < slots && c + x < KVI_SCALE_SLOTS; x++, ++*count) {
		const int32_t *miss = v->miss + (c + x) * v->capacity + at;
		for (size_t i = 0; i < LANES; i++)
			w[i] += kvi_linear_distance(miss[i], k[x][i], v->model->step[c]);
	}
}

/* The arrays of a view are padded, so that loops go over all lanes. */
static void price_group(void *arg, size_t group)
{
	struct price_job *j = arg;
	const struct kvi_train_scale *s = j->s;
	struct kvi_train_view *v = j->v;
	const struct kvi_model *m = v->model;
	size_t at = group * LANES * (s->every ? s->every : 1);
	size_t n = v->n - at < LANES ? v->n - at : LANES;
	uint32_t w[LANES], count = s->n0 ? s->n0 : 1;
	int32_t o[LANES] = { 0 }, k[2][LANES];
	uint64_t sum = 0;
	for (size_t i = 0; i < LANES; i++)
		w[i] = s->beta && s->source
		               ? count * (START * (16 - s->beta) + s->beta * s->source[at + i]) >> 4
		               : START * count;
	for (size_t c = 0; c < m->C;) {
		size_t slots = c % m->head_channels < m->rotary ? 2 : 1;
		for (size_t i = 0; s->n0 && i < LANES; i++)
			o[i] = kvi_linear_token_class(w[i], count);
		for (size_t x = 0; x < slots; x++) {
			classes(j, c + x, x, at, k[x]);
			sum += price_slot(j, c + x, at, n, k[x], o);
		}
		if (s->n0)
			follow(j, c, slots, at, k, w, &count);
		c += slots;
	}
	for (size_t i = 0; i < LANES; i++) {
		uint32_t q = s->n0 ? w[i] / count : START;
		v->scale[at + i] = (uint8_t)(q > 255 ? 255 : q);
	}
	atomic_fetch_add(&j->sum, sum);
}

uint64_t kvi_train_price(kvarc_trainer *trainer, struct kvi_train_view *view,
                         const struct kvi_train_scale *scale, _Atomic uint64_t *slots)
{
	struct price_job j = { trainer, view, scale, slots, 0 };
	size_t groups = (view->n + LANES - 1) / LANES;
	if (scale->every)
		groups = (groups + scale->every - 1) / scale->every;
	kvi_train_parallel(trainer, groups, price_group, &j);
	return atomic_load(&j.sum);
}
