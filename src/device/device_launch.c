/* SPDX-License-Identifier: BSD-3-Clause */
/* device_launch.c - launches the kernels that decode and encode layers of plans */
#include "config.h"

#include "plan_state.h"

#include "util/error.h"

/* Blocks of a launch on each multiprocessor: as many as registers allow. */
enum { DECODED_EACH = 3, ENCODED_EACH = 2 };

/* A launch in the making: all of its plans read, or write. */
struct plan_launch {
	struct kvi_gpu_batch batch;
	bool writes;
	uint32_t n_parts, shared_bytes;
	uint64_t work_bytes; /* of the slots of the plan whose work memory it is */
};

/* Adds the chunks number first to end - 1 of a plan. The largest work memory serves all plans. */
static void add_part(struct plan_launch *launch, const struct kvarc_device_plan *plan, size_t first,
                     size_t end)
{
	struct kvi_gpu_batch *b = &launch->batch;
	b->part[launch->n_parts++] = (struct kvi_gpu_part){
		.chunks = plan->staging + plan->jobs_at + first * sizeof(struct kvi_gpu_chunk),
		.status = plan->status + first * (launch->writes ? sizeof(struct kvi_gpu_encoded)
		                                                 : sizeof(uint32_t)),
		.n = end - first
	};
	b->n += (uint32_t)(end - first);
	b->tables = plan->staging + plan->tables_at;
	if (b->slot_bytes < plan->slot_bytes)
		b->slot_bytes = plan->slot_bytes;
	if (launch->shared_bytes < plan->shared_bytes)
		launch->shared_bytes = plan->shared_bytes;
	if (launch->work_bytes < plan->slots * plan->slot_bytes) {
		launch->work_bytes = plan->slots * plan->slot_bytes;
		b->work = plan->work;
		b->locks = plan->staging + plan->locks_at;
	}
	/* not more than that plan has locks, as its slots are not larger */
	b->slots = (uint32_t)(launch->work_bytes / b->slot_bytes);
}

static kvarc_ret launch_parts(const struct kvarc_device *device, struct plan_launch *launch,
                              void *stream)
{
	const bool writes = launch->writes;
	const uint32_t each = writes ? ENCODED_EACH : DECODED_EACH, n = launch->batch.n;
	const uint32_t most = each * device->info.multiprocessors;
	const struct kvi_launch k = { writes ? "kvi_gpu_encode_chunks" : "kvi_gpu_decode",
		                      n < most ? n : most,
		                      1,
		                      KVI_BLOCK,
		                      launch->shared_bytes,
		                      1 };
	void *arguments[] = { &launch->batch };
	return n ? kvi_device_launch(device, writes ? device->encoders : device->module, &k,
	                             arguments, stream)
	         : KVARC_OK;
}

/* Whether the chunks before number `end` are staged; PROG: they are not. */
static kvarc_ret check_staged(const struct kvarc_device_plan *plan, const char *call, size_t end)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	if (plan->w || !end || c[end - 1].layer < plan->staged_to)
		return KVARC_OK;
	return kvi_fail(plan->d->error, KVARC_PROG, "%s: layer %u was not staged", call,
	                (unsigned)c[end - 1].layer);
}

static kvarc_ret check_plan(const struct kvarc_device_plan *plan, const struct kvarc_device *device,
                            bool writes, const char *call, uint32_t layer0, uint32_t n_layers)
{
	size_t first, end;
	kvarc_ret ret = kvi_plan_check_use(plan, call, writes);
	if (ret)
		return ret;
	if (plan->d != device)
		return kvi_fail(device->error, KVARC_PROG, "%s: plans of several devices", call);
	if (!plan->staging || !plan->work)
		return kvi_fail(device->error, KVARC_PROG,
		                "%s: call kvarc_device_stage and kvarc_device_place before it",
		                call);
	ret = kvi_plan_layers(plan, call, layer0, n_layers, &first, &end);
	return ret ? ret : check_staged(plan, call, end);
}

/* As many plans as a launch takes. */
static kvarc_ret launch_some(kvarc_device_plan *const *plans, size_t n, bool writes,
                             const char *call, uint32_t layer0, uint32_t n_layers, void *stream)
{
	struct plan_launch l = { .writes = writes };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < n && !ret; i++) {
		size_t first, end;
		ret = kvi_plan_layers(plans[i], call, layer0, n_layers, &first, &end);
		if (!ret && first < end)
			add_part(&l, plans[i], first, end);
	}
	return ret ? ret : launch_parts(plans[0]->d, &l, stream);
}

static kvarc_ret launch(kvarc_device_plan *const *plans, size_t n, bool writes, const char *call,
                        uint32_t layer0, uint32_t n_layers, void *stream)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < n && !ret; i++)
		ret = check_plan(plans[i], plans[0] ? plans[0]->d : NULL, writes, call, layer0,
		                 n_layers);
	if (!ret && n)
		ret = kvi_device_enter(plans[0]->d);
	if (ret || !n)
		return ret;
	for (size_t i = 0; i < n && !ret; i += KVI_GPU_PARTS)
		ret = launch_some(plans + i, n - i < KVI_GPU_PARTS ? n - i : KVI_GPU_PARTS, writes,
		                  call, layer0, n_layers, stream);
	kvi_device_leave(plans[0]->d);
	return ret;
}

kvarc_ret kvarc_device_decode(kvarc_device_plan *p, uint32_t layer0, uint32_t n_layers,
                              void *stream)
{
	return launch(&p, 1, false, "kvarc_device_decode", layer0, n_layers, stream);
}

kvarc_ret kvarc_device_decode_plans(kvarc_device_plan *const *plans, size_t n, uint32_t layer0,
                                    uint32_t n_layers, void *stream)
{
	if (!plans && n)
		return KVARC_PROG;
	return launch(plans, n, false, "kvarc_device_decode_plans", layer0, n_layers, stream);
}

/* Encodes layers of n plans in one launch for each KVI_GPU_PARTS of them. */
static kvarc_ret encode(kvarc_device_plan *const *plans, size_t n, const char *call,
                        uint32_t layer0, uint32_t n_layers, void *stream)
{
	kvarc_ret ret = launch(plans, n, true, call, layer0, n_layers, stream);
	for (size_t i = 0; i < n && !ret; i++) {
		size_t first, end;
		ret = kvi_plan_layers(plans[i], call, layer0, n_layers, &first, &end);
		for (; !ret && first < end; first++)
			KVI_LIST(struct kvi_planned_chunk, plans[i]->chunks, first)->launched =
				true;
	}
	return ret;
}

kvarc_ret kvarc_device_encode(kvarc_device_plan *p, uint32_t layer0, uint32_t n_layers,
                              void *stream)
{
	return encode(&p, 1, "kvarc_device_encode", layer0, n_layers, stream);
}

kvarc_ret kvarc_device_encode_plans(kvarc_device_plan *const *plans, size_t n, uint32_t layer0,
                                    uint32_t n_layers, void *stream)
{
	if (!plans && n)
		return KVARC_PROG;
	return encode(plans, n, "kvarc_device_encode_plans", layer0, n_layers, stream);
}
