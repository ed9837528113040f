/* SPDX-License-Identifier: BSD-3-Clause */
/* kept_models.c - models of profiles in memory of a device that stays between plans */
#include "config.h"

#include "plan_state.h"

#include <string.h>

#include "util/error.h"
#include "util/hash.h"

/* What lies in front of the arrays of a model. */
enum {
	HEAD_BYTES = (sizeof(struct kvi_gpu_model) + KVI_PART_ALIGN - 1) / KVI_PART_ALIGN *
	             KVI_PART_ALIGN
};

/* A model, which the digest of its profile and its number there name. */
struct kept_model {
	struct kvi_h128 digest;
	size_t number;
	uint64_t at;                /* its address: that of a struct kvi_gpu_model */
	struct kvi_gpu_model shape; /* what lies there */
	enum {
		ABSENT,
		SENT, /* on its way, while it is staged */
		READY
	} state;
};

static struct kept_model *kept_at(const struct kvarc_device *d, size_t i)
{
	return KVI_LIST(struct kept_model, d->kept.models, i);
}

/* What kernels find at an address, and, where memory is not NULL, its arrays. */
static struct kvi_gpu_model make(const struct kvi_model *m, uint8_t *memory, uint64_t at)
{
	struct kvi_gpu_model made;
	kvi_gpu_model_fill(&made, m, memory, at + HEAD_BYTES);
	return made;
}

/* Whether the shapes are the same too: kernels take sizes from what lies in memory. */
static bool is_same(const struct kept_model *k, const struct kvi_planned_model *x)
{
	const struct kvi_gpu_model made = make(x->model, NULL, k->at);
	return !memcmp(&made, &k->shape, sizeof made);
}

static bool reserve(struct kvarc_device *d, const struct kvi_planned_model *x)
{
	const uint64_t bytes = kvi_part_aligned(HEAD_BYTES + kvi_gpu_model_bytes(x->model));
	if (bytes > d->kept.end - d->kept.next)
		return false;
	struct kept_model *k = kvi_list_add(&d->kept.models, &d->alloc, sizeof *k);
	if (!k)
		return false;
	k->digest = x->profile->digest;
	k->number = (size_t)(x->model - x->profile->models);
	k->at = d->kept.next;
	k->shape = make(x->model, NULL, k->at);
	d->kept.next += bytes;
	return true;
}

/* The number of a model in the list; that of all: it is not there. */
static size_t find(const struct kvarc_device *d, const struct kvi_planned_model *x)
{
	const size_t number = (size_t)(x->model - x->profile->models);
	size_t i = 0;
	while (i < d->kept.models.n && (kept_at(d, i)->number != number ||
	                                !kvi_h128_equal(kept_at(d, i)->digest, x->profile->digest)))
		i++;
	return i;
}

bool kvi_kept_take(struct kvarc_device_plan *p, struct kvi_planned_model *x)
{
	struct kvarc_device *d = p->d;
	const size_t i = find(d, x);
	if (i == d->kept.models.n ? !reserve(d, x) : !is_same(kept_at(d, i), x))
		return false;
	x->kept = (uint32_t)i + 1;
	d->kept.plans += !p->keeps;
	p->keeps = true;
	return true;
}

uint64_t kvi_kept_address(const struct kvarc_device_plan *p, const struct kvi_planned_model *x)
{
	return kept_at(p->d, x->kept - 1)->at;
}

/* Copies a model to where it stays. */
static kvarc_ret send(struct kvarc_device *d, struct kept_model *k, const struct kvi_model *m,
                      void *stream)
{
	const size_t bytes = HEAD_BYTES + kvi_gpu_model_bytes(m);
	uint8_t *image = kvi_calloc(&d->alloc, 1, bytes);
	if (!image)
		return kvi_fail_alloc(d->error, &d->alloc);
	const struct kvi_gpu_model made = make(m, image + HEAD_BYTES, k->at);
	memcpy(image, &made, sizeof made);
	kvarc_ret ret = kvi_device_copy(d, k->at, image, bytes, stream);
	kvi_free(&d->alloc, image);
	return ret;
}

kvarc_ret kvi_kept_stage(struct kvarc_device_plan *p, void *stream)
{
	struct kvarc_device *d = p->d;
	kvarc_ret ret = KVARC_OK;
	bool sent = false;
	for (size_t i = 0; i < p->modelled.n && !ret; i++) {
		const struct kvi_planned_model *x = KVI_LIST(struct kvi_planned_model, p->modelled,
		                                             i);
		struct kept_model *k = x->kept ? kept_at(d, x->kept - 1) : NULL;
		if (!k || k->state != ABSENT)
			continue;
		ret = send(d, k, x->model, stream);
		k->state = SENT;
		sent = true;
	}
	/* plans of other streams find them once they have arrived */
	if (sent && !ret)
		ret = kvi_device_wait(d, stream);
	for (size_t i = 0; sent && i < d->kept.models.n; i++)
		if (kept_at(d, i)->state == SENT)
			kept_at(d, i)->state = ret ? ABSENT : READY;
	return ret;
}

void kvi_kept_release(struct kvarc_device_plan *p)
{
	p->d->kept.plans -= p->keeps;
	p->keeps = false;
}

kvarc_ret kvarc_device_keep_models(kvarc_device *d, uint64_t address, uint64_t bytes)
{
	static const char call[] = "kvarc_device_keep_models";
	if (!d || (bytes && !address) || address % KVI_PLACE_ALIGN || bytes > UINT64_MAX - address)
		return kvi_fail(d ? d->error : NULL, KVARC_PROG,
		                "%s: not memory at an address that is aligned to %d bytes", call,
		                (int)KVI_PLACE_ALIGN);
	if (d->kept.plans)
		return kvi_fail(d->error, KVARC_PROG,
		                "%s: a plan that uses the memory of before is open", call);
	d->kept.models.n = 0;
	d->kept.next = address;
	d->kept.end = address + bytes;
	return KVARC_OK;
}
