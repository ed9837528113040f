/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.c - the GPU of --device, and memory of it */
#include "config.h"

#include "gpu.h"

#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "message.h"

bool gpu_open(struct gpu *g, const struct options *o)
{
	kvarc_device_options d = KVARC_DEVICE_OPTIONS_INIT;

	*g = (struct gpu){ 0 };
	if (!o->device_given)
		return true;
	library_common(o, &d.common, &g->error);
	d.ordinal = o->device;
	d.kernels = getenv("KVARC_KERNELS");
	d.encoders = getenv("KVARC_ENCODERS");
	d.exact = getenv("KVARC_EXACT");
	if (kvarc_device_open(&g->d, &d) || kvarc_device_get_info(g->d, &g->info)) {
		msg_error(NULL, "--device: %s", g->error.text);
		gpu_close(g);
		return false;
	}
	return true;
}

static void drop(struct gpu *g, struct gpu_memory *m)
{
	kvarc_device_free(g->d, m->at);
	*m = (struct gpu_memory){ 0 };
}

void gpu_close(struct gpu *g)
{
	drop(g, &g->staging);
	drop(g, &g->work);
	drop(g, &g->status);
	free(g->words);
	g->words = NULL;
	kvarc_device_close(&g->d);
}

kvarc_ret gpu_reserve(struct gpu *g, struct gpu_memory *m, uint64_t bytes)
{
	if (bytes <= m->bytes)
		return KVARC_OK;
	drop(g, m);
	kvarc_ret ret = kvarc_device_alloc(g->d, bytes, &m->at);
	m->bytes = ret ? 0 : bytes;
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

kvarc_ret gpu_place(struct gpu *g, kvarc_device_plan *p, const kvarc_device_view *views,
                    kvarc_device_plan_info *info)
{
	kvarc_ret ret = kvarc_device_plan_get_info(p, info);
	if (!ret)
		ret = gpu_reserve(g, &g->staging, info->staging_bytes);
	if (!ret)
		ret = gpu_reserve(g, &g->work, info->work_bytes);
	if (!ret)
		ret = gpu_reserve(g, &g->status, info->status_bytes);
	if (!ret)
		ret = kvarc_device_stage(p, g->staging.at, NULL);
	return ret ? ret : kvarc_device_place(p, views, g->work.at, g->status.at, NULL);
}

kvarc_ret gpu_decode(struct gpu *g, kvarc_device_plan *p, const kvarc_device_plan_info *info)
{
	/* one more: a plan may have no chunks, and realloc to nothing frees */
	void *words = realloc(g->words, info->status_bytes + 1);

	if (!words)
		return KVARC_MEM;
	g->words = words;
	kvarc_ret ret = kvarc_device_decode(p, info->layer0, UINT32_MAX, NULL);
	if (!ret)
		ret = kvarc_device_fetch(g->d, words, g->status.at, info->status_bytes, NULL);
	return ret ? ret : kvarc_device_plan_answer(p, info->layer0, UINT32_MAX, words);
}
