/* SPDX-License-Identifier: BSD-3-Clause */
/* batch_launch.c - launches what chunks have of the exact engine (model_job.h) */
#include "config.h"

#include "batch_launch.h"

#include "plan_state.h"

kvarc_ret kvi_batch_kernel(const struct kvi_batch_launch *l, const struct kvi_launch *k,
                           void **arguments)
{
	return kvi_device_launch(l->d, l->d->module, k, arguments, l->stream);
}

/* Steps of predicted chunks: a warp a token, or a warp a chunk. */
static kvarc_ret step_of_tokens(struct kvi_batch_launch *l, const char *name)
{
	void *arguments[] = { &l->jobs };
	const struct kvi_launch k = { name, kvi_blocks_of(KVI_GPU_TOKENS), l->n, KVI_SMALL_BLOCK, 0,
		                      1 };
	return kvi_batch_kernel(l, &k, arguments);
}

static kvarc_ret step_of_chunks(struct kvi_batch_launch *l, const char *name)
{
	void *arguments[] = { &l->jobs, &l->n };
	const struct kvi_launch k = { name, kvi_blocks_of(l->n), 1, KVI_SMALL_BLOCK, 0, 1 };
	return kvi_batch_kernel(l, &k, arguments);
}

kvarc_ret kvi_batch_expect(struct kvi_batch_launch *l)
{
	kvarc_ret ret = step_of_tokens(l, "kvi_gpu_expect");
	if (ret == KVARC_OK)
		ret = step_of_chunks(l, "kvi_gpu_expect_hash");
	return ret ? ret : step_of_chunks(l, "kvi_gpu_expect_check");
}

kvarc_ret kvi_batch_observe(struct kvi_batch_launch *l, uint32_t width)
{
	void *arguments[] = { &l->jobs };
	const struct kvi_launch correct = kvi_correct_launch("kvi_gpu_correct", l->n, width);
	kvarc_ret ret = step_of_tokens(l, "kvi_gpu_numbers");
	return ret ? ret : kvi_batch_kernel(l, &correct, arguments);
}

kvarc_ret kvi_batch_lose_nothing(struct kvi_batch_launch *l, uint64_t lost)
{
	void *arguments[] = { &lost };
	const struct kvi_launch k = { "kvi_gpu_lose_nothing", 1, 1, 1, 0, 1 };
	return kvi_batch_kernel(l, &k, arguments);
}

kvarc_ret kvi_batch_lose(struct kvi_batch_launch *l)
{
	return step_of_chunks(l, "kvi_gpu_lose");
}
