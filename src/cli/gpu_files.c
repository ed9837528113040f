/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_files.c - pack --device and unpack --device: tokens of files on their way through a GPU */
#include "config.h"

#include "gpu_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

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
static kvarc_ret send(struct gpu_files *files, uint32_t track, uint64_t t0, uint64_t n,
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
	kvarc_device_plan_info info = { 0 };
	kvarc_device_plan *p;
	kvarc_ret ret = kvarc_device_plan_write(&p, files->gpu->d, w, track, n, ids, positions);

	if (ret)
		return ret;
	ret = gpu_place(files->gpu, p, files->views, &info);
	if (!ret)
		ret = kvarc_device_encode(p, info.layer0, UINT32_MAX, NULL);
	if (!ret)
		ret = kvarc_device_append(p, NULL);
	if (!ret)
		ret = kvarc_device_plan_get_info(p, &info);
	files->chunks += ret ? 0 : info.chunks;
	files->host_chunks += ret ? 0 : info.host_chunks;
	kvarc_device_plan_close(&p);
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
		ret = send(f, track, t0, some, fetch, fetch_opaque);
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
	kvarc_device_plan *p;
	kvarc_ret ret = make_views(files, range->track, range->n);

	if (!ret)
		ret = kvarc_device_plan_read(&p, files->gpu->d, r, range);
	if (ret)
		return ret;
	ret = kvarc_device_plan_get_info(p, &info);
	if (!ret && info.chunks)
		ret = gpu_place(files->gpu, p, files->views, &info);
	if (!ret && info.chunks)
		ret = gpu_decode(files->gpu, p, &info);
	kvarc_device_plan_close(&p);
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
