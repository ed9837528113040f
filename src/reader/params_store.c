/* SPDX-License-Identifier: BSD-3-Clause */
/* params_store.c - a hash table of counted, parsed PARAMS */
#include "params_store.h"

bool kvi_params_store_init(struct kvi_params_store *s, const struct kvi_alloc *alloc)
{
	*s = (struct kvi_params_store){ .alloc = alloc };
	if (pthread_mutex_init(&s->lock, NULL)) {
		s->alloc = NULL;
		return false;
	}
	return true;
}

/* With the lock held, or alone. */
static void release(struct kvi_params_store *s, struct kvi_params_use *use)
{
	if (!use || --use->users)
		return;
	kvi_params_free(use->params);
	kvi_free(s->alloc, use);
}

void kvi_params_store_free(struct kvi_params_store *s)
{
	if (!s->alloc)
		return;
	for (size_t i = 0; i < s->n_slots; i++)
		release(s, s->slots[i]);
	kvi_free(s->alloc, s->slots);
	pthread_mutex_destroy(&s->lock);
	s->alloc = NULL;
}

/* The slot of a tensor and head, or the empty one where it would go. */
static struct kvi_params_use **find_slot(struct kvi_params_use **slots, size_t n_slots,
                                         uint32_t tensor, uint16_t head)
{
	uint64_t h = ((uint64_t)tensor << 16 | head) * 0x9e3779b97f4a7c15u;
	size_t i = (size_t)(h >> 32) & (n_slots - 1);
	while (slots[i] && (slots[i]->header.tensor != tensor || slots[i]->header.head != head))
		i = (i + 1) & (n_slots - 1);
	return &slots[i];
}

static bool grow(struct kvi_params_store *s)
{
	size_t n = s->n_slots ? 2 * s->n_slots : 64;
	if (s->n_used < s->n_slots / 2)
		return true;
	struct kvi_params_use **slots = kvi_calloc(s->alloc, n, sizeof *slots);
	if (!slots)
		return false;
	for (size_t i = 0; i < s->n_slots; i++)
		if (s->slots[i])
			*find_slot(slots, n, s->slots[i]->header.tensor,
			           s->slots[i]->header.head) = s->slots[i];
	kvi_free(s->alloc, s->slots);
	s->slots = slots;
	s->n_slots = n;
	return true;
}

kvarc_ret kvi_params_store_add(struct kvi_params_store *s, struct kvi_params *params,
                               const struct kvi_params_header *h, uint64_t sequence,
                               struct kvi_params_use **out)
{
	struct kvi_params_use *use = kvi_calloc(s->alloc, 1, sizeof *use);
	pthread_mutex_lock(&s->lock);
	if (!use || !grow(s)) {
		pthread_mutex_unlock(&s->lock);
		kvi_free(s->alloc, use);
		kvi_params_free(params);
		return kvi_alloc_error(s->alloc);
	}
	*use = (struct kvi_params_use){ params, *h, sequence, 1 };
	struct kvi_params_use **slot = find_slot(s->slots, s->n_slots, h->tensor, h->head);
	if (*slot)
		release(s, *slot);
	else
		s->n_used++;
	*slot = use;
	if (out) {
		use->users++;
		*out = use;
	}
	pthread_mutex_unlock(&s->lock);
	return KVARC_OK;
}

struct kvi_params_use *kvi_params_store_find(struct kvi_params_store *s, uint32_t tensor,
                                             uint16_t head, uint64_t sequence)
{
	struct kvi_params_use *use = NULL;
	pthread_mutex_lock(&s->lock);
	if (s->n_slots)
		use = *find_slot(s->slots, s->n_slots, tensor, head);
	if (use && use->sequence == sequence)
		use->users++;
	else
		use = NULL;
	pthread_mutex_unlock(&s->lock);
	return use;
}

void kvi_params_store_release(struct kvi_params_store *s, struct kvi_params_use *use)
{
	if (!use)
		return;
	pthread_mutex_lock(&s->lock);
	release(s, use);
	pthread_mutex_unlock(&s->lock);
}
