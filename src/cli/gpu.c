/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.c - the GPU of --device, and memory of it */
#include "config.h"

#include "gpu.h"

#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "message.h"

bool gpu_open(struct gpu *gpu, const struct options *options)
{
	kvarc_device_options d = KVARC_DEVICE_OPTIONS_INIT;

	*gpu = (struct gpu){ 0 };
	if (!options->device_given)
		return true;
	library_common(options, &d.common, &gpu->error);
	d.ordinal = options->device;
	d.kernels = getenv("KVARC_KERNELS");
	d.encoders = getenv("KVARC_ENCODERS");
	d.exact = getenv("KVARC_EXACT");
	if (kvarc_device_open(&gpu->d, &d) || kvarc_device_get_info(gpu->d, &gpu->info)) {
		msg_error(NULL, "--device: %s", gpu->error.text);
		gpu_close(gpu);
		return false;
	}
	return true;
}

static void drop(struct gpu *gpu, struct gpu_memory *memory)
{
	kvarc_device_free(gpu->d, memory->at);
	*memory = (struct gpu_memory){ 0 };
}

void gpu_close(struct gpu *gpu)
{
	drop(gpu, &gpu->staging);
	drop(gpu, &gpu->work);
	drop(gpu, &gpu->status);
	free(gpu->words);
	gpu->words = NULL;
	kvarc_device_close(&gpu->d);
}

kvarc_ret gpu_reserve(struct gpu *gpu, struct gpu_memory *memory, uint64_t bytes)
{
	if (bytes <= memory->bytes)
		return KVARC_OK;
	drop(gpu, memory);
	kvarc_ret ret = kvarc_device_alloc(gpu->d, bytes, &memory->at);
	memory->bytes = ret ? 0 : bytes;
	return ret;
}

uint64_t gpu_batch(const kvarc_writer *w, uint32_t track, uint64_t t0, uint64_t n)
{
	const uint32_t segment = kvarc_writer_segment_tokens(w, track);
	const uint64_t many = segment < GPU_TOKENS ? GPU_TOKENS / segment * segment : segment;
	/* the host encodes the first segment, whose parameters kernels use */
	const uint64_t most = t0 ? many : segment;

	return n < most ? n : most;
}

kvarc_ret gpu_place(struct gpu *gpu, kvarc_device_plan *plan, const kvarc_device_view *views,
                    kvarc_device_plan_info *info)
{
	kvarc_ret ret = kvarc_device_plan_get_info(plan, info);
	if (!ret)
		ret = gpu_reserve(gpu, &gpu->staging, info->staging_bytes);
	if (!ret)
		ret = gpu_reserve(gpu, &gpu->work, info->work_bytes);
	if (!ret)
		ret = gpu_reserve(gpu, &gpu->status, info->status_bytes);
	if (!ret)
		ret = kvarc_device_stage(plan, gpu->staging.at, NULL);
	return ret ? ret : kvarc_device_place(plan, views, gpu->work.at, gpu->status.at, NULL);
}

kvarc_ret gpu_decode(struct gpu *gpu, kvarc_device_plan *plan, const kvarc_device_plan_info *info)
{
	/* one byte more: a plan may have no chunks, and realloc to 0 bytes frees */
	void *words = realloc(gpu->words, info->status_bytes + 1);

	if (!words)
		return KVARC_MEM;
	gpu->words = words;
	kvarc_ret ret = kvarc_device_decode(plan, info->layer0, UINT32_MAX, NULL);
	if (!ret)
		ret = kvarc_device_fetch(gpu->d, words, gpu->status.at, info->status_bytes, NULL);
	return ret ? ret : kvarc_device_plan_answer(plan, info->layer0, UINT32_MAX, words);
}
