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

void kvi_feature_table_close(struct kvi_feature_table *table)
{
	if (!table)
		return;
	for (uint32_t i = 0; i < table->n; i++)
		if (table->slots[i].f)
			kvi_features_close(table->slots[i].f, table->alloc);
	pthread_cond_destroy(&table->changed);
	pthread_mutex_destroy(&table->lock);
	kvi_free(table->alloc, table);
}

/* Calls fn for every source of a tensor: what it needs of which slot. */
typedef bool (*source_fn)(struct kvi_feature_table *t, struct kvi_feature_slot *s, unsigned needs);

static bool each_source(struct kvi_feature_table *table, uint32_t order_index, source_fn fn)
{
	const struct kvi_planned *x = &table->plan->of[order_index];
	const struct kvi_model *m = x->model;
	bool good = true;
	for (unsigned i = 0; i < m->n_lower && good; i++)
		good = fn(table, kvi_feature_slot(table, x->lower[i]), KVI_FEATURES_Z);
	for (unsigned i = 0; i < m->n_same && good; i++)
		good = fn(table, kvi_feature_slot(table, x->same[i]), KVI_FEATURES_ALL);
	if (m->scale_source && good)
		good = fn(table, kvi_feature_slot(table, x->scale), KVI_FEATURES_ALL);
	return good;
}

static bool ask(struct kvi_feature_table *table, struct kvi_feature_slot *slot, unsigned needs)
{
	(void)table;
	slot->users++;
	if (slot->asked < needs)
		slot->asked = (uint8_t)needs;
	if (!(slot->flags & KVI_SLOT_WHOLE))
		slot->lost = true;
	return true;
}

void kvi_feature_table_plan(struct kvi_feature_table *table)
{
	for (uint32_t i = table->n; i-- > 0;) {
		struct kvi_feature_slot *s = &table->slots[i];
		if (s->flags & KVI_SLOT_PREDICTION)
			s->asked = KVI_FEATURES_ALL;
		if (!kvi_feature_slot_needed(s) || !(s->flags & KVI_SLOT_WHOLE))
			continue;
		s->users += s->asked != KVI_FEATURES_NONE;
		s->reads = table->plan->of[table->first + i].complete &&
		           ((s->flags & KVI_SLOT_LINEAR) || s->asked == KVI_FEATURES_ALL);
		if (s->reads)
			each_source(table, table->first + i, ask);
	}
}

void kvi_linear_in_init(struct kvi_linear_in *in, const struct kvi_linear_plan *plan,
                        uint32_t order_index, const kvarc_geometry *geometry, uint32_t tensor,
                        const struct kvi_segment *segment, bool known)
{
	const struct kvi_model *m = plan->of[order_index].model;
	const kvarc_tensor *t = &geometry->tensors[tensor];
	*in = (struct kvi_linear_in){ .model = m,
		                      .dtype = t->dtype,
		                      .n_tokens = segment->n,
		                      .positions = known ? segment->positions : NULL,
		                      .ids = known && segment->has_ids ? segment->ids : NULL,
		                      .rope = kvi_tensor_rope(geometry, t) };
}

/* A tensor that waits for its sources. */
struct feature_wait {
	struct kvi_feature_table *t;
	uint32_t order_index;
};

static bool is_resolved(struct kvi_feature_table *table, struct kvi_feature_slot *slot,
                        unsigned needs)
{
	(void)table;
	return slot->have >= needs || slot->lost;
}

static bool is_there(struct kvi_feature_table *table, struct kvi_feature_slot *slot, unsigned needs)
{
	(void)table;
	return slot->have >= needs;
}

/* Whether there is nothing to wait for any more; the table is locked. */
static bool resolved(struct kvi_feature_table *table, uint32_t order_index)
{
	return each_source(table, order_index, is_resolved);
}

/* `resolved` for kvi_pool_until: the table is not locked. */
static bool ready(void *opaque)
{
	const struct feature_wait *w = opaque;
	pthread_mutex_lock(&w->t->lock);
	bool yes = resolved(w->t, w->order_index);
	pthread_mutex_unlock(&w->t->lock);
	return yes;
}

/* Makes waiting jobs of the pool look again; the table is not locked. */
static void wake(struct kvi_feature_table *table)
{
	if (table->pool)
		kvi_pool_wake(table->pool);
}

bool kvi_feature_table_wait(struct kvi_feature_table *table, uint32_t order_index,
                            struct kvi_linear_in *in)
{
	const struct kvi_planned *x = &table->plan->of[order_index];
	const struct kvi_model *m = x->model;
	struct feature_wait w = { table, order_index };
	if (table->pool)
		kvi_pool_until(table->pool, ready, &w);
	pthread_mutex_lock(&table->lock);
	while (!resolved(table, order_index))
		pthread_cond_wait(&table->changed, &table->lock);
	bool good = each_source(table, order_index, is_there);
	for (unsigned i = 0; i < m->n_lower && good; i++)
		in->lower[i] = kvi_feature_slot(table, x->lower[i])->f;
	for (unsigned i = 0; i < m->n_same && good; i++)
		in->same[i] = kvi_feature_slot(table, x->same[i])->f;
	if (m->scale_source && good)
		in->scale = kvi_feature_slot(table, x->scale)->f;
	pthread_mutex_unlock(&table->lock);
	return good;
}

kvarc_ret kvi_feature_table_make(struct kvi_feature_table *table, uint32_t order_index,
                                 size_t n_tokens, struct kvi_features **features)
{
	struct kvi_feature_slot *s = kvi_feature_slot(table, order_index);
	kvarc_ret ret = kvi_features_open(features, table->alloc,
	                                  table->plan->of[order_index].model, n_tokens);
	if (ret == KVARC_OK)
		s->f = *features; /* other jobs read f once it is published */
	return ret;
}

void kvi_feature_table_publish(struct kvi_feature_table *table, uint32_t order_index, unsigned have)
{
	pthread_mutex_lock(&table->lock);
	kvi_feature_slot(table, order_index)->have = (uint8_t)have;
	pthread_cond_broadcast(&table->changed);
	pthread_mutex_unlock(&table->lock);
	wake(table);
}

static bool drop(struct kvi_feature_table *table, struct kvi_feature_slot *slot, unsigned needs)
{
	(void)needs;
	if (--slot->users == 0 && slot->f) {
		kvi_features_close(slot->f, table->alloc);
		slot->f = NULL;
	}
	return true;
}

void kvi_feature_table_leave(struct kvi_feature_table *table, uint32_t order_index)
{
	struct kvi_feature_slot *s = kvi_feature_slot(table, order_index);
	pthread_mutex_lock(&table->lock);
	if (s->reads)
		each_source(table, order_index, drop);
	if (s->asked) {
		if (s->have < s->asked)
			s->lost = true;
		drop(table, s, s->asked);
	}
	pthread_cond_broadcast(&table->changed);
	pthread_mutex_unlock(&table->lock);
	wake(table);
}
