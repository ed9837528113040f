/* SPDX-License-Identifier: BSD-3-Clause */
/* device_test.c - test --device: decodes archives on a GPU, too */
#include "config.h"

#include "device_test.h"

#include <stdlib.h>
#include <string.h>

#include "gpu.h"

static struct gpu gpu;

bool device_test_open(const struct options *options)
{
	return gpu_open(&gpu, options);
}

void device_test_close(void)
{
	gpu_close(&gpu);
}

/* Brings the chunks of a plan to the GPU and decodes them there; their elements go nowhere. */
static kvarc_ret run_plan(kvarc_device_plan *plan, size_t n_tensors, struct device_sum *sum)
{
	kvarc_device_plan_info info;
	kvarc_ret ret = kvarc_device_plan_get_info(plan, &info);
	if (ret || !info.chunks)
		return ret;
	kvarc_device_view *views = calloc(n_tensors, sizeof *views);
	ret = views ? gpu_place(&gpu, plan, views, &info) : KVARC_MEM;
	free(views);
	if (!ret)
		ret = gpu_decode(&gpu, plan, &info);
	sum->chunks += info.chunks;
	sum->host_chunks += info.host_chunks;
	return ret;
}

static kvarc_ret run_range(kvarc_reader *r, const kvarc_range *range, struct device_sum *sum)
{
	kvarc_device_plan *p = NULL;
	kvarc_ret ret = kvarc_device_plan_read(&p, gpu.d, r, range);
	if (!ret)
		ret = run_plan(p, kvarc_reader_geometry(r)->n_tensors, sum);
	kvarc_device_plan_close(&p);
	return ret;
}

kvarc_ret device_test_run(kvarc_reader *r, kvarc_error *error, struct device_sum *sum)
{
	kvarc_ret ret = KVARC_OK;
	*sum = (struct device_sum){ 0 };
	if (!gpu.d)
		return KVARC_OK;
	sum->name = gpu.info.name;
	memset(error, 0, sizeof *error);
	for (uint32_t t = 0; t < kvarc_reader_geometry(r)->n_tracks && !ret; t++) {
		const uint64_t n = kvarc_reader_tokens(r, t);
		for (uint64_t at = 0, some; at < n && !ret; at += some) {
			some = n - at < GPU_TOKENS ? n - at : GPU_TOKENS;
			const kvarc_range range = {
				.track = t, .n_layers = UINT32_MAX, .t0 = at, .n = some
			};
			ret = run_range(r, &range, sum);
		}
	}
	if (ret && gpu.error.code)
		*error = gpu.error;
	return ret;
}
