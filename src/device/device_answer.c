/* SPDX-License-Identifier: BSD-3-Clause */
/* device_answer.c - what the status words of a plan that reads say */
#include "config.h"

#include "plan_state.h"

#include "util/error.h"

static kvarc_ret fail_chunk(const struct kvarc_device_plan *plan,
                            const struct kvi_planned_chunk *chunk, uint32_t status)
{
	const kvarc_ret ret = status == KVI_GPU_PAGE ? KVARC_GEOMETRY : KVARC_DATA;
	const char *what = status == KVI_GPU_PAGE   ? "have a page that is not there"
	                   : status == KVI_GPU_DATA ? "are damaged"
	                                            : "were not decoded";
	kvarc_error *e = plan->d->error;
	kvi_fail(e, ret, "the tokens from %llu on of tensor %u %s", (unsigned long long)chunk->t0,
	         (unsigned)chunk->tensor, what);
	if (e) {
		e->layer = chunk->layer;
		e->track = plan->range.track;
		e->offset = chunk->host ? KVARC_UNKNOWN : chunk->file_offset;
	}
	return ret;
}

kvarc_ret kvarc_device_plan_answer(kvarc_device_plan *p, uint32_t layer0, uint32_t n_layers,
                                   const uint32_t *status)
{
	static const char call[] = "kvarc_device_plan_answer";
	size_t first, end;
	if (!p || !status)
		return kvi_fail(p ? p->d->error : NULL, KVARC_PROG, "%s: an argument is NULL",
		                call);
	kvarc_ret ret = kvi_plan_check_use(p, call, false);
	if (!ret)
		ret = kvi_plan_layers(p, call, layer0, n_layers, &first, &end);
	if (ret)
		return ret;
	for (; first < end && !ret; first++)
		if (status[first] != KVI_GPU_OK)
			ret = fail_chunk(p, KVI_LIST(struct kvi_planned_chunk, p->chunks, first),
			                 status[first]);
	return ret;
}
