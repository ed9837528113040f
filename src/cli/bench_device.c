/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_device.c - bench --device: a cache in the memory of a GPU, coded there */
#include "config.h"

#include "bench_device.h"

#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "message.h"
#include "models.h"
#include "profiles.h"
#include "units.h"

/* A cache and its copies in the memory of the GPU. */
struct device_cache {
	struct bench_cache *c;
	struct gpu *gpu;
	struct gpu_memory from, to;
	kvarc_device_view *views; /* one per tensor */
	uint64_t chunks, host_chunks;
};

/* Sets the views to the tokens of a track from t0 on, in one of the copies. */
static void set_views(struct device_cache *cache, const struct gpu_memory *memory, uint32_t track,
                      uint64_t t0)
{
	const struct bench_cache *c = cache->c;
	const kvarc_geometry *g = c->geometry;

	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		const kvarc_view *v = &c->views[i];
		const uint64_t at = (uint64_t)((const uint8_t *)v->data - c->data);
		const uint64_t row = t->track == track ? t0 * v->token_stride : 0;

		cache->views[i] = (kvarc_device_view){
			.base = memory->at + at + row,
			.bytes = c->tokens[t->track] * v->token_stride - row,
			.token_stride = v->token_stride,
			.head_stride = (uint64_t)t->channels * v->elem_stride,
			.elem_stride = v->elem_stride,
		};
	}
}

/* Encodes tokens t0 to t0 + n - 1 of a track from the GPU and appends them. */
static kvarc_ret append(struct device_cache *cache, kvarc_writer *w, uint32_t track, uint64_t t0,
                        uint64_t n)
{
	const struct bench_tokens *t = &cache->c->of[track];
	kvarc_device_plan_info info;
	kvarc_device_plan *p;
	kvarc_ret ret;

	ret = kvarc_device_plan_write(&p, cache->gpu->d, w, track, n, t->ids ? t->ids + t0 : NULL,
	                              t->positions + t0);
	if (ret)
		return ret;
	set_views(cache, &cache->from, track, t0);
	ret = gpu_place(cache->gpu, p, cache->views, &info);
	if (!ret)
		ret = kvarc_device_encode(p, info.layer0, UINT32_MAX, NULL);
	if (!ret)
		ret = kvarc_device_append(p, NULL);
	if (!ret)
		ret = kvarc_device_plan_get_info(p, &info);
	cache->chunks += ret ? 0 : info.chunks;
	cache->host_chunks += ret ? 0 : info.host_chunks;
	kvarc_device_plan_close(&p);
	return ret;
}

static void keep_fastest(double *best, double seconds)
{
	if (*best == 0 || seconds < *best)
		*best = seconds;
}

/* Appends all tokens of a track. */
static kvarc_ret encode_track(struct device_cache *cache, kvarc_writer *w, uint32_t track)
{
	const uint64_t all = cache->c->tokens[track];
	kvarc_ret ret = KVARC_OK;

	for (uint64_t t = 0, n; t < all && !ret; t += n) {
		n = gpu_batch(w, track, t, all - t);
		ret = append(cache, w, track, t, n);
	}
	return ret;
}

/* Encodes the cache into its archive and times it, without opening the writer. */
static kvarc_ret encode(struct device_cache *cache, const kvarc_common *common,
                        struct bench_run *run)
{
	struct bench_cache *c = cache->c;
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	const kvarc_sink sink = bench_cache_sink(c);
	kvarc_writer *w;
	double start;
	kvarc_ret ret;

	wo.common = *common;
	wo.level = KVARC_LEVEL(run->level);
	wo.profile = run->profile;
	wo.predictor = models_given();
	wo.predictor_name = models_name();
	cache->chunks = cache->host_chunks = 0;
	ret = kvarc_writer_open(&w, &sink, &wo);
	if (!ret)
		ret = kvarc_writer_set_geometry(w, c->geometry);
	start = units_now();
	for (uint32_t i = 0; i < c->geometry->n_tracks && !ret; i++)
		ret = encode_track(cache, w, i);
	if (!ret)
		ret = kvarc_writer_close(&w);
	else
		kvarc_writer_abort(&w);
	keep_fastest(&run->encode_seconds, units_now() - start);
	return ret;
}

/* Decodes a range into cache->to. */
static kvarc_ret decode_range(struct device_cache *cache, kvarc_reader *r, const kvarc_range *range)
{
	kvarc_device_plan_info info;
	kvarc_device_plan *p;
	kvarc_ret ret = kvarc_device_plan_read(&p, cache->gpu->d, r, range);

	if (ret)
		return ret;
	set_views(cache, &cache->to, range->track, range->t0);
	ret = gpu_place(cache->gpu, p, cache->views, &info);
	if (!ret)
		ret = gpu_decode(cache->gpu, p, &info);
	kvarc_device_plan_close(&p);
	return ret;
}

/* Opens the archive. */
static kvarc_ret open_archive(const struct bench_cache *cache, const kvarc_common *common,
                              kvarc_reader **r)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = { .size = cache->archive_bytes, .memory = cache->archive };

	ro.common = *common;
	ro.predictor = models_given();
	profiles_reader(&ro);
	return kvarc_reader_open(r, &source, &ro);
}

static kvarc_ret decode(struct device_cache *cache, const kvarc_common *common)
{
	struct bench_cache *c = cache->c;
	kvarc_reader *r;
	kvarc_ret ret = open_archive(c, common, &r);

	for (uint32_t i = 0; i < c->geometry->n_tracks && !ret; i++) {
		for (uint64_t t = 0, n; t < c->tokens[i] && !ret; t += n) {
			/* GPU_TOKENS bounds the memory of the GPU */
			n = c->tokens[i] - t < GPU_TOKENS ? c->tokens[i] - t : GPU_TOKENS;
			const kvarc_range range = {
				.track = i, .n_layers = UINT32_MAX, .t0 = t, .n = n
			};
			ret = decode_range(cache, r, &range);
		}
	}
	kvarc_reader_close(&r);
	return ret;
}

/* Uploads, encodes, decodes and fetches once. */
static kvarc_ret measure(struct device_cache *cache, const kvarc_common *common,
                         struct bench_run *run)
{
	struct bench_cache *c = cache->c;
	struct gpu *g = cache->gpu;
	double start;
	kvarc_ret ret;

	memset(c->decoded_data, 0, c->raw_bytes); /* elements that are not decoded differ */
	ret = gpu_reserve(g, &cache->from, c->raw_bytes);
	if (!ret)
		ret = gpu_reserve(g, &cache->to, c->raw_bytes);
	if (!ret)
		ret = kvarc_device_send(g->d, cache->from.at, c->data, c->raw_bytes, NULL);
	if (!ret)
		ret = kvarc_device_send(g->d, cache->to.at, c->decoded_data, c->raw_bytes, NULL);
	if (ret)
		return ret;
	ret = encode(cache, common, run);
	if (ret)
		return ret;
	start = units_now();
	ret = decode(cache, common);
	keep_fastest(&run->decode_seconds, units_now() - start);
	run->memory_bytes = cache->from.bytes + cache->to.bytes + g->staging.bytes + g->work.bytes +
	                    g->status.bytes;
	run->host_chunks = cache->host_chunks;
	run->chunks = cache->chunks;
	return ret ? ret
	           : kvarc_device_fetch(g->d, c->decoded_data, cache->to.at, c->raw_bytes, NULL);
}

bool bench_device_run(struct bench_cache *cache, const struct work_options *work, const char *file,
                      struct gpu *gpu, struct bench_run *run)
{
	struct device_cache x = { .c = cache, .gpu = gpu };
	kvarc_common common;
	kvarc_error error;
	kvarc_ret ret;

	library_common(work, &common, &error);
	memset(&gpu->error, 0, sizeof gpu->error); /* an error of an earlier call */
	common.progress = NULL;
	common.threads = run->threads;
	x.views = calloc(cache->geometry->n_tensors, sizeof *x.views);
	ret = x.views ? measure(&x, &common, run) : KVARC_MEM;
	free(x.views);
	kvarc_device_free(gpu->d, x.from.at);
	kvarc_device_free(gpu->d, x.to.at);
	if (ret) {
		library_error(file, ret, gpu->error.code ? &gpu->error : &error, NULL, NULL);
		return false;
	}
	if (memcmp(cache->data, cache->decoded_data, cache->raw_bytes) != 0) {
		msg_error(file, "what the GPU decoded differs from the input; "
		                "this is a bug in kvarc, please report it");
		return false;
	}
	return true;
}
