/* SPDX-License-Identifier: BSD-3-Clause */
/* device_test.c - test --device: decodes archives on a GPU, too */
#include "config.h"

#include "device_test.h"

#include <stdlib.h>
#include <string.h>

#include <kvarc/device.h>

#include "library.h"
#include "message.h"

/* Tokens that are decoded at once: what they take in the memory of a GPU is bounded. */
enum { TOKENS = 2048 };

static struct {
	kvarc_device *d;
	kvarc_device_info info;
	kvarc_error error;
} gpu;

bool device_test_open(const struct options *o)
{
	kvarc_device_options d = KVARC_DEVICE_OPTIONS_INIT;
	if (!o->device_given)
		return true;
	library_common(o, &d.common, &gpu.error);
	d.ordinal = o->device;
	d.kernels = getenv("KVARC_KERNELS");
	if (kvarc_device_open(&gpu.d, &d) || kvarc_device_get_info(gpu.d, &gpu.info)) {
		msg_error(NULL, "--device: %s", gpu.error.text);
		device_test_close();
		return false;
	}
	return true;
}

void device_test_close(void)
{
	kvarc_device_close(&gpu.d);
}

/* Memory of the GPU for one plan. */
struct plan_memory {
	uint64_t staging, work, status;
};

static void free_memory(struct plan_memory *m)
{
	kvarc_device_free(gpu.d, m->staging);
	kvarc_device_free(gpu.d, m->work);
	kvarc_device_free(gpu.d, m->status);
}

static kvarc_ret allocate(struct plan_memory *m, const kvarc_device_plan_info *info)
{
	kvarc_ret ret = kvarc_device_alloc(gpu.d, info->staging_bytes, &m->staging);
	if (!ret)
		ret = kvarc_device_alloc(gpu.d, info->work_bytes, &m->work);
	return ret ? ret : kvarc_device_alloc(gpu.d, info->status_bytes, &m->status);
}

/* Brings the chunks of a plan to the GPU and decodes them there; their elements go nowhere. */
static kvarc_ret decode(kvarc_device_plan *p, const struct plan_memory *m, size_t n_tensors,
                        uint32_t *status, uint64_t status_bytes)
{
	kvarc_device_view *views = calloc(n_tensors, sizeof *views);
	if (!views)
		return KVARC_MEM;
	kvarc_ret ret = kvarc_device_stage(p, m->staging, NULL);
	if (!ret)
		ret = kvarc_device_place(p, views, m->work, m->status, NULL);
	free(views);
	kvarc_device_plan_info info;
	if (!ret)
		ret = kvarc_device_plan_get_info(p, &info);
	if (!ret)
		ret = kvarc_device_decode(p, info.layer0, UINT32_MAX, NULL);
	if (!ret)
		ret = kvarc_device_fetch(gpu.d, status, m->status, status_bytes, NULL);
	return ret ? ret : kvarc_device_plan_answer(p, info.layer0, UINT32_MAX, status);
}

static kvarc_ret run_plan(kvarc_device_plan *p, size_t n_tensors, struct device_sum *sum)
{
	struct plan_memory m = { 0 };
	kvarc_device_plan_info info;
	kvarc_ret ret = kvarc_device_plan_get_info(p, &info);
	if (ret || !info.chunks)
		return ret;
	uint32_t *status = malloc(info.status_bytes);
	ret = status ? allocate(&m, &info) : KVARC_MEM;
	if (!ret)
		ret = decode(p, &m, n_tensors, status, info.status_bytes);
	free_memory(&m);
	free(status);
	sum->chunks += info.chunks;
	sum->host_chunks += info.host_chunks;
	return ret;
}

static kvarc_ret run_range(kvarc_reader *r, const kvarc_range *range, struct device_sum *sum)
{
	kvarc_device_plan *p;
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
	memset(&gpu.error, 0, sizeof gpu.error);
	for (uint32_t t = 0; t < kvarc_reader_geometry(r)->n_tracks && !ret; t++) {
		const uint64_t n = kvarc_reader_tokens(r, t);
		for (uint64_t at = 0; at < n && !ret; at += TOKENS) {
			const kvarc_range range = { .track = t,
				                    .n_layers = UINT32_MAX,
				                    .t0 = at,
				                    .n = n - at < TOKENS ? n - at : TOKENS };
			ret = run_range(r, &range, sum);
		}
	}
	if (ret && gpu.error.code)
		*error = gpu.error;
	return ret;
}
