/* SPDX-License-Identifier: BSD-3-Clause */
/* device_decode.c - launches the kernel that decodes layers of a plan */
#include "config.h"

#include "plan_state.h"

#include "util/error.h"

/* Blocks of a launch on each multiprocessor: as many as registers allow. */
enum { BLOCKS_EACH = 3 };

/* The chunks number first to end - 1 in one launch. */
static kvarc_ret decode_chunks(struct kvarc_device_plan *plan, size_t first, size_t end,
                               void *stream)
{
	struct kvi_gpu_batch batch = { .chunks = plan->staging + plan->jobs_at +
		                                 first * sizeof(struct kvi_gpu_chunk),
		                       .tables = plan->staging + plan->tables_at,
		                       .status = plan->status + first * sizeof(uint32_t),
		                       .work = plan->work,
		                       .locks = plan->staging + plan->locks_at,
		                       .slot_bytes = plan->slot_bytes,
		                       .n = (uint32_t)(end - first),
		                       .slots = plan->slots };
	const uint32_t most = BLOCKS_EACH * plan->d->info.multiprocessors;
	const struct kvi_launch k = { "kvi_gpu_decode",
		                      batch.n < most ? batch.n : most,
		                      1,
		                      KVI_BLOCK,
		                      plan->shared_bytes,
		                      1 };
	void *arguments[] = { &batch };
	return kvi_device_launch(plan->d, plan->d->module, &k, arguments, stream);
}

kvarc_ret kvarc_device_decode(kvarc_device_plan *p, uint32_t layer0, uint32_t n_layers,
                              void *stream)
{
	static const char call[] = "kvarc_device_decode";
	size_t first, end;
	kvarc_ret ret = kvi_plan_check_use(p, call, false);
	if (ret)
		return ret;
	if (!p->staging || !p->work)
		return kvi_fail(p->d->error, KVARC_PROG,
		                "%s: call kvarc_device_stage and kvarc_device_place before it",
		                call);
	ret = kvi_plan_layers(p, call, layer0, n_layers, &first, &end);
	if (ret == KVARC_OK)
		ret = kvi_device_enter(p->d);
	if (ret)
		return ret;
	if (first < end)
		ret = decode_chunks(p, first, end, stream);
	kvi_device_leave(p->d);
	return ret;
}
