/* SPDX-License-Identifier: BSD-3-Clause */
/* feature_table.c - hands features from job to job, counts their users */
#include "feature_table.h"

kvarc_ret kvi_feature_table_open(struct kvi_feature_table **out, const struct kvi_alloc *alloc,
                                 const struct kvi_linear_plan *plan, const struct kvi_order *order,
                                 uint32_t track)
{
	uint32_t first = order->first[track];
	uint32_t n = order->first[track + 1] - first;
	struct kvi_feature_table *t = kvi_calloc(alloc, 1, sizeof *t + n * sizeof *t->slots);
	*out = NULL;
	if (!t)
		return kvi_alloc_error(alloc);
	t->alloc = alloc;
	t->plan = plan;
	t->first = first;
	t->n = n;
	if (pthread_mutex_init(&t->lock, NULL)) {
		kvi_free(alloc, t);
		return KVARC_MEM;
	}
	if (pthread_cond_init(&t->changed, NULL)) {
		pthread_mutex_destroy(&t->lock);
		kvi_free(alloc, t);
		return KVARC_MEM;
	}
	*out = t;
	return KVARC_OK;
}

void kvi_feature_table_close(struct kvi_feature_table *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->n; i++)
		if (t->slots[i].f)
			kvi_features_close(t->slots[i].f, t->alloc);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	kvi_free(t->alloc, t);
}

/* Calls fn for every source of a tensor: what it needs of which slot. */
typedef bool (*source_fn)(struct kvi_feature_table *t, struct kvi_feature_slot *s, unsigned needs);

static bool each_source(struct kvi_feature_table *t, uint32_t order_index, source_fn fn)
{
	const struct kvi_planned *x = &t->plan->of[order_index];
	const struct kvi_model *m = x->model;
	bool good = true;
	for (unsigned i = 0; i < m->n_lower && good; i++)
		good = fn(t, kvi_feature_slot(t, x->lower[i]), KVI_FEATURES_Z);
	for (unsigned i = 0; i < m->n_same && good; i++)
		good = fn(t, kvi_feature_slot(t, x->same[i]), KVI_FEATURES_ALL);
	if (m->scale_source && good)
		good = fn(t, kvi_feature_slot(t, x->scale), KVI_FEATURES_ALL);
	return good;
}

static bool ask(struct kvi_feature_table *t, struct kvi_feature_slot *s, unsigned needs)
{
	(void)t;
	s->users++;
	if (s->asked < needs)
		s->asked = (uint8_t)needs;
	if (!(s->flags & KVI_SLOT_WHOLE))
		s->lost = true;
	return true;
}

void kvi_feature_table_plan(struct kvi_feature_table *t)
{
	for (uint32_t i = t->n; i-- > 0;) {
		struct kvi_feature_slot *s = &t->slots[i];
		if (s->flags & KVI_SLOT_PREDICTION)
			s->asked = KVI_FEATURES_ALL;
		if (!kvi_feature_slot_needed(s) || !(s->flags & KVI_SLOT_WHOLE))
			continue;
		s->users += s->asked != KVI_FEATURES_NONE;
		s->reads = t->plan->of[t->first + i].complete &&
		           ((s->flags & KVI_SLOT_LINEAR) || s->asked == KVI_FEATURES_ALL);
		if (s->reads)
			each_source(t, t->first + i, ask);
	}
}

void kvi_linear_in_init(struct kvi_linear_in *in, const struct kvi_linear_plan *plan,
                        uint32_t order_index, const kvarc_geometry *g, uint32_t tensor,
                        const struct kvi_segment *s, bool known)
{
	const struct kvi_model *m = plan->of[order_index].model;
	const kvarc_tensor *t = &g->tensors[tensor];
	*in = (struct kvi_linear_in){ .model = m,
		                      .dtype = t->dtype,
		                      .n_tokens = s->n,
		                      .positions = known ? s->positions : NULL,
		                      .ids = known && s->has_ids ? s->ids : NULL,
		                      .rope = kvi_tensor_rope(g, t) };
}

/* A tensor that waits for its sources. */
struct feature_wait {
	struct kvi_feature_table *t;
	uint32_t order_index;
};

static bool is_settled(struct kvi_feature_table *t, struct kvi_feature_slot *s, unsigned needs)
{
	(void)t;
	return s->have >= needs || s->lost;
}

static bool is_there(struct kvi_feature_table *t, struct kvi_feature_slot *s, unsigned needs)
{
	(void)t;
	return s->have >= needs;
}

/* Whether there is nothing to wait for any more; the table is locked. */
static bool settled(struct kvi_feature_table *t, uint32_t order_index)
{
	return each_source(t, order_index, is_settled);
}

/* The same for the pool. */
static bool ready(void *opaque)
{
	const struct feature_wait *w = opaque;
	pthread_mutex_lock(&w->t->lock);
	bool yes = settled(w->t, w->order_index);
	pthread_mutex_unlock(&w->t->lock);
	return yes;
}

/* Those who wait look again; the table is not locked. */
static void wake(struct kvi_feature_table *t)
{
	if (t->pool)
		kvi_pool_wake(t->pool);
}

bool kvi_feature_table_wait(struct kvi_feature_table *t, uint32_t order_index,
                            struct kvi_linear_in *in)
{
	const struct kvi_planned *x = &t->plan->of[order_index];
	const struct kvi_model *m = x->model;
	struct feature_wait w = { t, order_index };
	if (t->pool)
		kvi_pool_until(t->pool, ready, &w);
	pthread_mutex_lock(&t->lock);
	while (!settled(t, order_index))
		pthread_cond_wait(&t->changed, &t->lock);
	bool good = each_source(t, order_index, is_there);
	for (unsigned i = 0; i < m->n_lower && good; i++)
		in->lower[i] = kvi_feature_slot(t, x->lower[i])->f;
	for (unsigned i = 0; i < m->n_same && good; i++)
		in->same[i] = kvi_feature_slot(t, x->same[i])->f;
	if (m->scale_source && good)
		in->scale = kvi_feature_slot(t, x->scale)->f;
	pthread_mutex_unlock(&t->lock);
	return good;
}

kvarc_ret kvi_feature_table_make(struct kvi_feature_table *t, uint32_t order_index, size_t n_tokens,
                                 struct kvi_features **f)
{
	struct kvi_feature_slot *s = kvi_feature_slot(t, order_index);
	kvarc_ret ret = kvi_features_open(f, t->alloc, t->plan->of[order_index].model, n_tokens);
	if (ret == KVARC_OK)
		s->f = *f; /* others look at it after it was published */
	return ret;
}

void kvi_feature_table_publish(struct kvi_feature_table *t, uint32_t order_index, unsigned have)
{
	pthread_mutex_lock(&t->lock);
	kvi_feature_slot(t, order_index)->have = (uint8_t)have;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	wake(t);
}

static bool drop(struct kvi_feature_table *t, struct kvi_feature_slot *s, unsigned needs)
{
	(void)needs;
	if (--s->users == 0 && s->f) {
		kvi_features_close(s->f, t->alloc);
		s->f = NULL;
	}
	return true;
}

void kvi_feature_table_leave(struct kvi_feature_table *t, uint32_t order_index)
{
	struct kvi_feature_slot *s = kvi_feature_slot(t, order_index);
	pthread_mutex_lock(&t->lock);
	if (s->reads)
		each_source(t, order_index, drop);
	if (s->asked) {
		if (s->have < s->asked)
			s->lost = true;
		drop(t, s, s->asked);
	}
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	wake(t);
}
