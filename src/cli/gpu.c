/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.c - the GPU of --device: its memory, and tokens of files on their way through it */
#include "config.h"

#include "gpu.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "message.h"

/* ==== The GPU of --device, and memory of it ==== */

bool gpu_open(struct gpu *gpu, const struct device_options *device, const struct work_options *work)
{
	kvarc_device_options d = KVARC_DEVICE_OPTIONS_INIT;

	*gpu = (struct gpu){ 0 };
	if (!device->given)
		return true;
	library_common(work, &d.common, &gpu->error);
	d.ordinal = device->number;
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

/* Brings a plan's chunks, or parameters, to the GPU; info is that of the plan. */
static kvarc_ret place(struct gpu *gpu, kvarc_device_plan *plan, const kvarc_device_view *views,
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

/* Decodes a plan that is placed, and waits for its answers. */
static kvarc_ret decode_plan(struct gpu *gpu, kvarc_device_plan *plan,
                             const kvarc_device_plan_info *info)
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

kvarc_ret gpu_write(struct gpu *gpu, kvarc_writer *w, uint32_t track, uint64_t n,
                    const int32_t *ids, const int32_t *positions, const kvarc_device_view *views,
                    kvarc_device_plan_info *info)
{
	kvarc_device_plan *p;
	kvarc_ret ret = kvarc_device_plan_write(&p, gpu->d, w, track, n, ids, positions);

	*info = (kvarc_device_plan_info){ 0 };
	if (ret)
		return ret;
	ret = place(gpu, p, views, info);
	if (!ret)
		ret = kvarc_device_encode(p, info->layer0, UINT32_MAX, NULL);
	if (!ret)
		ret = kvarc_device_append(p, NULL);
	if (!ret)
		ret = kvarc_device_plan_get_info(p, info);
	kvarc_device_plan_close(&p);
	return ret;
}

kvarc_ret gpu_read(struct gpu *gpu, kvarc_reader *r, const kvarc_range *range,
                   const kvarc_device_view *views, kvarc_device_plan_info *info)
{
	kvarc_device_plan *p;
	kvarc_ret ret = kvarc_device_plan_read(&p, gpu->d, r, range);

	*info = (kvarc_device_plan_info){ 0 };
	if (ret)
		return ret;
	ret = kvarc_device_plan_get_info(p, info);
	if (!ret && info->chunks)
		ret = place(gpu, p, views, info);
	if (!ret && info->chunks)
		ret = decode_plan(gpu, p, info);
	kvarc_device_plan_close(&p);
	return ret;
}

/* ==== Pack --device and unpack --device: tokens of files on their way through a GPU ==== */

/* Tokens that are fetched and delivered at once, as the library does. */
enum { PIECE = 256 };

static uint64_t row_bytes(const kvarc_tensor *tensor)
{
	return (uint64_t)tensor->heads * tensor->channels * kvarc_dtype_bytes(tensor->dtype);
}

/* Views of n tokens of a track, and memory for them, on the GPU and here. */
static kvarc_ret make_views(struct gpu_files *files, uint32_t track, uint64_t n)
{
	const kvarc_geometry *g = files->geometry;
	uint64_t bytes = 0, most = 0;
	kvarc_ret ret;

	for (size_t i = 0; i < g->n_tensors; i++) {
		const uint64_t all = g->tensors[i].track == track ? n * row_bytes(&g->tensors[i])
		                                                  : 0;
		bytes += (all + 255) / 256 * 256;
		most = all > most ? all : most;
	}
	ret = gpu_reserve(files->gpu, &files->elements, bytes + 1);
	if (!ret && most > files->host_bytes) {
		free(files->host);
		files->host = malloc(most);
		files->host_bytes = files->host ? most : 0;
	}
	if (!files->views)
		files->views = malloc(g->n_tensors * sizeof(*files->views));
	if (ret || !files->views || (most && !files->host))
		return ret ? ret : KVARC_MEM;
	for (size_t i = 0, at = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		const uint32_t size = (uint32_t)kvarc_dtype_bytes(t->dtype);

		files->views[i] = (kvarc_device_view)KVARC_DEVICE_VIEW_INIT;
		if (t->track != track)
			continue;
		files->views[i].base = files->elements.at + at;
		files->views[i].bytes = n * row_bytes(t);
		files->views[i].token_stride = row_bytes(t);
		files->views[i].head_stride = (uint64_t)t->channels * size;
		files->views[i].elem_stride = size;
		at += (files->views[i].bytes + 255) / 256 * 256;
	}
	return KVARC_OK;
}

/* ----- pack ------------------------------------------------ */

/* Brings the elements of n tokens to the GPU. */
static kvarc_ret gpu_files_send(struct gpu_files *files, uint32_t track, uint64_t t0, uint64_t n,
                                kvarc_fetch fetch, void *opaque)
{
	kvarc_ret ret = make_views(files, track, n);

	for (uint32_t i = 0; i < files->geometry->n_tensors && !ret; i++) {
		const kvarc_tensor *t = &files->geometry->tensors[i];
		const uint64_t row = row_bytes(t);

		if (t->track != track)
			continue;
		for (uint64_t at = 0; at < n && !ret; at += PIECE) {
			const uint32_t some = n - at < PIECE ? (uint32_t)(n - at) : PIECE;

			if (fetch(opaque, i, 0, t->heads, t0 + at, some, files->host + at * row))
				ret = KVARC_IO;
		}
		if (!ret)
			ret = kvarc_device_send(files->gpu->d, files->views[i].base, files->host,
			                        n * row, NULL);
	}
	return ret;
}

static kvarc_ret append(struct gpu_files *files, kvarc_writer *w, uint32_t track, uint64_t n,
                        const int32_t *ids, const int32_t *positions)
{
	kvarc_device_plan_info info;
	kvarc_ret ret = gpu_write(files->gpu, w, track, n, ids, positions, files->views, &info);

	files->chunks += ret ? 0 : info.chunks;
	files->host_chunks += ret ? 0 : info.host_chunks;
	return ret;
}

kvarc_ret gpu_files_append(void *opaque, kvarc_writer *w, uint32_t track, uint64_t n,
                           const int32_t *ids, const int32_t *positions, kvarc_fetch fetch,
                           void *fetch_opaque)
{
	struct gpu_files *f = opaque;
	kvarc_ret ret = KVARC_OK;

	memset(&f->gpu->error, 0, sizeof(f->gpu->error));
	for (uint64_t at = 0, some; at < n && !ret; at += some) {
		const uint64_t t0 = kvarc_writer_tokens(w, track);

		some = gpu_batch(w, track, t0, n - at);
		ret = gpu_files_send(f, track, t0, some, fetch, fetch_opaque);
		if (!ret)
			ret = append(f, w, track, some, ids ? ids + at : NULL, positions + at);
	}
	return ret;
}

/* ----- unpack ------------------------------------------------ */

/* Brings the elements of a range from the GPU to where they are wanted. */
static kvarc_ret fetch(struct gpu_files *files, const kvarc_range *range, kvarc_deliver deliver,
                       void *opaque)
{
	kvarc_ret ret = KVARC_OK;

	for (uint32_t i = 0; i < files->geometry->n_tensors && !ret; i++) {
		const kvarc_tensor *t = &files->geometry->tensors[i];
		const uint64_t row = row_bytes(t);

		if (t->track != range->track)
			continue;
		ret = kvarc_device_fetch(files->gpu->d, files->host, files->views[i].base,
		                         range->n * row, NULL);
		for (uint64_t at = 0; at < range->n && !ret; at += PIECE) {
			const uint32_t some = range->n - at < PIECE ? (uint32_t)(range->n - at)
			                                            : PIECE;

			if (deliver(opaque, i, 0, t->heads, range->t0 + at, some,
			            files->host + at * row))
				ret = KVARC_IO;
		}
	}
	return ret;
}

/* Decodes a range into the memory of the GPU. *any: it has chunks. */
static kvarc_ret decode(struct gpu_files *files, kvarc_reader *r, const kvarc_range *range,
                        bool *any)
{
	kvarc_device_plan_info info = { 0 };
	kvarc_ret ret = make_views(files, range->track, range->n);

	if (!ret)
		ret = gpu_read(files->gpu, r, range, files->views, &info);
	files->chunks += info.chunks;
	files->host_chunks += info.host_chunks;
	*any = info.chunks != 0;
	return ret;
}

kvarc_ret gpu_files_read(void *opaque, kvarc_reader *r, const kvarc_range *range,
                         kvarc_deliver deliver, void *deliver_opaque)
{
	struct gpu_files *f = opaque;
	bool any = false;
	kvarc_ret ret;

	memset(&f->gpu->error, 0, sizeof(f->gpu->error));
	ret = decode(f, r, range, &any);
	return ret || !any ? ret : fetch(f, range, deliver, deliver_opaque);
}

/* ----- both ------------------------------------------------ */

void gpu_files_note(const struct gpu_files *files, const char *file)
{
	msg_result(file, "%s: of %" PRIu64 " chunks the host coded %" PRIu64, files->gpu->info.name,
	           files->chunks, files->host_chunks);
}

void gpu_files_error(const struct gpu_files *files, kvarc_error *error)
{
	if (files->gpu && files->gpu->error.code)
		*error = files->gpu->error;
}

void gpu_files_free(struct gpu_files *files)
{
	if (files->gpu)
		kvarc_device_free(files->gpu->d, files->elements.at);
	free(files->host);
	free(files->views);
	*files = (struct gpu_files){ 0 };
}
