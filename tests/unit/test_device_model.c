/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_device_model.c - chunks of codec 8 through the kernels of gpu/ on the host, launched as a
 * plan launches them: decoded, encoded, damaged, with other predictions, corrections of the hidden
 * state
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chunk_plan.h"
#include "coders_util.h"
#include "device/device_state.h"
#include "device_util.h"
#include "linear_chunk_plan.h"
#include "model_world.h"
#include "numeric/formats.h"
#include "util/bytes.h"
#include "random.h"

/* T0: the first token of the chunks; MORE: numbers of a row behind those that are used. */
enum { ROUNDS = 120, T0 = 512, MORE = 3, UNTOUCHED = 0xa5, SOME_WARPS = 8 };
/* Shared memory of blocks that decode and encode streams, as device_decode.c and device_encode.c
 * have it. */
enum { DECODER_BYTES = 192 * 41 * 4 + 64 * 4 + 192 * 256, ENCODER_BYTES = (2 * 192 * 41 + 64) * 4 };

static struct kvarc_device *device;
static struct kvi_gpu_tables fixed;

/* A world in the memory of the device: both tensors on their way. */
struct device_world {
	struct model_world w;
	struct kvi_encoded encoded[N_TENSORS];
	uint8_t *payload[N_TENSORS]; /* of CHUNK frames; raw where the library had no codec 8 */
	size_t bytes[N_TENSORS];
	struct kvi_gpu_model model[N_TENSORS];
	struct kvi_gpu_linear linear[N_TENSORS];
	struct kvi_gpu_chunk job[N_TENSORS];
	struct kvi_gpu_encode output[N_TENSORS];
	struct kvi_gpu_encoded answer[N_TENSORS];
	uint8_t *arrays[N_TENSORS], *linear_work[N_TENSORS], *work[N_TENSORS], *view[N_TENSORS];
	float *p[N_TENSORS], *numbers[N_TENSORS], *h, *root, *corrected;
	uint32_t lost, status[N_TENSORS];
};

static uint8_t *memory_of(size_t bytes)
{
	uint8_t *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
	assert_non_null(p);
	memset(p, UNTOUCHED, bytes);
	return p;
}

static size_t channels_of(const struct model_world *w, size_t i)
{
	return kvi_chunk_channels(&w->chunk[i]);
}

static bool is_model(const struct device_world *d, size_t i)
{
	return d->encoded[i].codec == KVI_CODEC_MODEL;
}

/* Whether the value is predicted from the key, in one way or another. */
static bool depends(const struct device_world *d)
{
	const struct kvi_model *m = d->w.in[1].model;
	return m->n_same || m->scale_source;
}

/* ------------------------------------------------------------ the world */

/* A number whose E in units of 2^step is e, not the middle of those. */
static float near_expected(int e, int step)
{
	float x = (float)e + (float)between(-3, 3) / 8;
	for (; step; step += step < 0 ? 1 : -1)
		x *= step < 0 ? 0.5f : 2.0f;
	return x;
}

static void make_rows(struct device_world *d)
{
	const struct model_world *w = &d->w;
	const size_t width = w->width + MORE, n = w->n_tokens * width;
	for (size_t i = 0; i < N_TENSORS; i++) {
		const size_t C = channels_of(w, i), row = C + MORE;
		d->p[i] = (float *)(void *)memory_of(w->n_tokens * row * sizeof(float));
		d->numbers[i] = (float *)(void *)memory_of(w->n_tokens * row * sizeof(float));
		for (size_t k = 0; k < w->n_tokens * C; k++)
			d->p[i][k / C * row + k % C] = near_expected(w->expected[i][k],
			                                             w->in[i].model->step[k % C]);
	}
	d->h = (float *)(void *)memory_of(n * sizeof(float));
	d->corrected = (float *)(void *)memory_of(n * sizeof(float));
	d->root = (float *)(void *)memory_of(w->n_tokens * sizeof(float));
	for (size_t k = 0; k < n; k++)
		d->h[k] = normal();
	for (size_t t = 0; t < w->n_tokens; t++)
		d->root[t] = 1 + normal() / 8;
}

/* The payload of the library's codec 8, or the elements as they are. */
static void make_payload(struct device_world *d, size_t i)
{
	const struct kvi_chunk *c = &d->w.chunk[i];
	struct kvi_encoded *e = &d->encoded[i];
	assert_int_equal(kvi_chunk_encode(coders[0], c, (int)d->w.level, NULL, d->w.raw[i], e),
	                 KVARC_OK);
	const bool model = is_model(d, i);
	const size_t n = model ? e->payload_bytes : kvi_chunk_bytes(c);
	const struct kvi_chunk_header h = {
		.tensor = (uint32_t)i,
		.heads = (uint16_t)c->heads,
		.codec = model ? KVI_CODEC_MODEL : KVI_CODEC_RAW,
		.cut = model ? e->cut : no_streams,
		.n = (uint16_t)c->n_tokens,
		.raw_check = model ? e->raw_check : kvi_h64(d->w.raw[i], n),
	};
	d->bytes[i] = KVI_CHUNK_HEADER_BYTES + n;
	d->payload[i] = memory_of(d->bytes[i]);
	kvi_chunk_header_write(d->payload[i], &h);
	memcpy(d->payload[i] + KVI_CHUNK_HEADER_BYTES, model ? e->payload : d->w.raw[i], n);
	kvi_gpu_chunk_fill(&d->job[i], c, &h, (uint32_t)d->bytes[i]);
	kvi_params_free(e->params);
	kvi_free(&alloc, e->params_content);
}

/* What kernels are given about a tensor's model and the engine. */
static void make_linear(struct device_world *d, size_t i, bool coded)
{
	const struct model_world *w = &d->w;
	const struct kvi_model *m = w->in[i].model;
	struct kvi_gpu_linear *l = &d->linear[i];
	const struct kvi_gpu_linear_shape s = {
		.model = m, .tokens = w->n_tokens, .coded = coded, .features = KVI_GPU_FEATURES_ALL
	};
	const struct kvi_gpu_linear_bytes n = kvi_gpu_linear_place(NULL, &s, 0, 0);
	d->linear_work[i] = memory_of(n.work + n.kept);
	const uint64_t work = address(d->linear_work[i]);
	*l = (struct kvi_gpu_linear){ .model = address(&d->model[i]) };
	kvi_gpu_linear_place(l, &s, work, work + n.work);
	if (m->rope) {
		l->frequencies = address(w->freq);
		l->interleaved = w->rope.pairing == KVARC_ROPE_INTERLEAVED;
	}
	for (unsigned k = 0; k < m->n_same; k++)
		l->same[k] = kvi_gpu_source_of(&m->same[k], &d->linear[0]);
	if (m->scale_source) {
		l->scale_w = d->linear[0].w;
		l->scale_kept = d->linear[0].kept;
		l->scale_hashes = d->linear[0].expects.hashes;
		l->scale_n = kvi_gpu_scale_n(m->scale_source);
	}
	l->expects.p = address(d->p[i]);
	l->expects.numbers = address(d->numbers[i]);
	l->expects.p_stride = l->expects.numbers_stride = (uint32_t)m->C + MORE;
	l->expects.lost = address(&d->lost);
	l->expects.t0 = T0;
	if (m->flags & KVI_MODEL_CORRECTS) {
		l->expects.h = address(d->corrected);
		l->expects.h_stride = w->width + MORE;
		l->expects.root = address(d->root);
	}
}

static void make_model(struct device_world *d, size_t i)
{
	const struct kvi_model *m = d->w.in[i].model;
	assert_true(kvi_gpu_model_taken(m));
	d->arrays[i] = memory_of(kvi_gpu_model_bytes(m));
	kvi_gpu_model_fill(&d->model[i], m, d->arrays[i], address(d->arrays[i]));
}

static void place_job(struct device_world *d, size_t i, struct kvi_gpu_chunk *job)
{
	job->positions = address(d->w.positions);
	job->linear = address(&d->linear[i]);
	job->stage = i && depends(d);
}

/* Jobs of decoders, whose elements go to a packed view. */
static void make_job(struct device_world *d, size_t i)
{
	const struct kvi_chunk *c = &d->w.chunk[i];
	const uint32_t size = (uint32_t)kvarc_dtype_bytes(c->dtype);
	struct kvi_gpu_chunk *job = &d->job[i];
	const struct kvi_gpu_work work = kvi_gpu_work_of(c, job->codec);
	d->work[i] = memory_of(work.bytes);
	d->view[i] = memory_of(kvi_chunk_bytes(c));
	kvi_gpu_chunk_place(job, &work, address(d->work[i]));
	job->payload = address(d->payload[i]);
	place_job(d, i, job);
	job->view = (struct kvi_gpu_view){ .base = address(d->view[i]),
		                           .bytes = kvi_chunk_bytes(c),
		                           .token_stride = channels_of(&d->w, i) * size,
		                           .head_stride = (uint64_t)c->head_channels * size,
		                           .elem_stride = size };
}

/* Jobs of encoders, with elements where they are collected. */
static void make_output(struct device_world *d, size_t i)
{
	const struct kvi_chunk *c = &d->w.chunk[i];
	struct kvi_gpu_encode *e = &d->output[i];
	const struct kvi_gpu_encode_work work = kvi_gpu_encode_work_of(c, KVI_CODEC_MODEL);
	const struct kvi_chunk_header h = { .tensor = (uint32_t)i,
		                            .heads = (uint16_t)c->heads,
		                            .codec = KVI_CODEC_MODEL,
		                            .n = (uint16_t)c->n_tokens };
	*e = (struct kvi_gpu_encode){ .hashed = 0 };
	kvi_gpu_chunk_fill(&e->job, c, &h, (uint32_t)kvi_gpu_encode_bound(c));
	free(d->work[i]);
	free(d->view[i]);
	d->work[i] = memory_of(work.job.bytes);
	d->view[i] = memory_of(e->job.payload_bytes);
	kvi_gpu_encode_place(e, &work, address(d->work[i]));
	place_job(d, i, &e->job);
	e->job.payload = address(d->view[i]);
	memcpy((void *)(uintptr_t)e->job.decoded, d->w.raw[i], kvi_chunk_bytes(c));
}

static void make_world(struct device_world *d, unsigned round)
{
	*d = (struct device_world){ .lost = UINT32_MAX };
	model_world_make(&d->w, round);
	make_rows(d);
	for (size_t i = 0; i < N_TENSORS; i++) {
		make_payload(d, i);
		make_model(d, i);
		make_linear(d, i, is_model(d, i));
		make_job(d, i);
	}
}

static void free_world(struct device_world *d)
{
	for (size_t i = 0; i < N_TENSORS; i++) {
		free(d->payload[i]);
		free(d->arrays[i]);
		free(d->linear_work[i]);
		free(d->work[i]);
		free(d->view[i]);
		free(d->p[i]);
		free(d->numbers[i]);
	}
	free(d->h);
	free(d->root);
	free(d->corrected);
	model_world_free(&d->w);
}

/* -------------------------------------------------------------- launches */

/* Jobs of a batch, and what kernels need beside them. */
struct model_launch {
	void *module;
	uint64_t jobs, tables, answers;
	uint32_t n, stage;
	const char *dtype;
};

static const char *dtype_name(unsigned dtype)
{
	static const char *const names[] = { [KVARC_F32] = "f32",
		                             [KVARC_F16] = "f16",
		                             [KVARC_BF16] = "bf16",
		                             [KVARC_E4M3] = "e4m3",
		                             [KVARC_E5M2] = "e5m2" };
	return names[dtype];
}

static void launch(const struct kvi_launch *k, const struct model_launch *l, void **arguments)
{
	if (kvi_device_launch(device, l->module, k, arguments, NULL))
		fail_msg("%s", error.text);
}

/* A kernel with `warps` warps a chunk in parts, which may take the stage. */
static void each(struct model_launch *l, const char *name, uint32_t warps, uint32_t parts)
{
	const struct kvi_launch k = { name, kvi_blocks_of(warps), l->n, KVI_SMALL_BLOCK, 0, parts };
	void *of_stage[] = { &l->jobs, &l->stage };
	launch(&k, l, of_stage);
}
/* Corrections: two steps of 32 tokens a block, or one. */
static void correct(struct model_launch *l, const char *name, uint32_t width)
{
	const uint32_t steps = 1 + below(2);
	const uint32_t pairs = (width + 2 * KVI_GPU_PANEL - 1) / (2 * KVI_GPU_PANEL);
	const struct kvi_launch k = { name, kvi_blocks_of(pairs), l->n, steps * KVI_SMALL_BLOCK,
		                      0,    SOME_WARPS / steps };
	void *arguments[] = { &l->jobs };
	if (pairs)
		launch(&k, l, arguments);
}
/* A kernel with `warps` warps a chunk that takes the tables, and the stage. */
static void each_of_tables(struct model_launch *l, const char *name, uint32_t warps)
{
	const struct kvi_launch k = { name, kvi_blocks_of(warps), l->n, KVI_SMALL_BLOCK, 0, 1 };
	void *arguments[] = { &l->jobs, &l->tables, &l->stage };
	launch(&k, l, arguments);
}
/* A kernel with a warp a chunk; further: its third argument. */
static void alone(struct model_launch *l, const char *name, uint64_t *further)
{
	const struct kvi_launch k = { name, kvi_blocks_of(l->n), 1, KVI_SMALL_BLOCK, 0, 1 };
	void *arguments[] = { &l->jobs, &l->n, further, &l->stage };
	launch(&k, l, arguments);
}
/* A kernel of the format with a block a chunk. */
static void blocks(struct model_launch *l, const char *name, uint32_t shared, void **arguments)
{
	char all[64];
	const struct kvi_launch k = { all, l->n, 1, KVI_BLOCK, shared, 1 };
	snprintf(all, sizeof all, name, l->dtype);
	launch(&k, l, arguments);
}

static struct model_launch launch_of(const struct device_world *d, bool encodes)
{
	return (struct model_launch){
		.module = encodes ? device->encoders : device->module,
		.jobs = encodes ? address(d->output) : address(d->job),
		.tables = address(&fixed),
		.answers = encodes ? address(d->answer) : address(d->status),
		.n = N_TENSORS,
		.dtype = dtype_name(d->w.dtype),
	};
}

/* Warps for two panels of the widest tensor, and for as much of the hidden state. */
static uint32_t most_warps(const struct device_world *d)
{
	const size_t n = channels_of(&d->w, 0) + channels_of(&d->w, 1);
	return (uint32_t)(n > d->w.width ? n : d->w.width);
}

static void decode(struct device_world *d)
{
	struct model_launch l = launch_of(d, false);
	void *of_tables[] = { &l.jobs, &l.tables, &l.stage }, *of_stage[] = { &l.jobs, &l.stage };
	const uint32_t warps = most_warps(d);
	memset(d->status, UNTOUCHED, sizeof d->status);
	if (d->w.width)
		memcpy(d->corrected, d->h, d->w.n_tokens * (d->w.width + MORE) * sizeof *d->h);
	for (size_t i = 0; i < N_TENSORS; i++)
		memset(d->view[i], UNTOUCHED, kvi_chunk_bytes(&d->w.chunk[i]));
	alone(&l, "kvi_gpu_open", NULL);
	each(&l, "kvi_gpu_expect", KVI_GPU_TOKENS, 1);
	alone(&l, "kvi_gpu_expect_hash", NULL);
	alone(&l, "kvi_gpu_expect_check", NULL);
	for (l.stage = 0; l.stage < N_TENSORS; l.stage++) {
		each_of_tables(&l, "kvi_gpu_angles", warps);
		each(&l, "kvi_gpu_sums", warps, SOME_WARPS);
		blocks(&l, "kvi_gpu_linear_%s", DECODER_BYTES, of_tables);
		blocks(&l, "kvi_gpu_finish", 0, of_stage);
		blocks(&l, "kvi_gpu_features_%s", 0, of_tables);
		alone(&l, "kvi_gpu_answer", &l.answers);
	}
	each(&l, "kvi_gpu_scatter", KVI_GPU_TOKENS, 1);
	each(&l, "kvi_gpu_numbers", KVI_GPU_TOKENS, 1);
	correct(&l, "kvi_gpu_correct", d->w.width);
	alone(&l, "kvi_gpu_lose", NULL);
}

static void encode(struct device_world *d)
{
	struct model_launch l = launch_of(d, true);
	void *of_tables[] = { &l.jobs, &l.tables, &l.stage };
	void *of_number[] = { &l.jobs, &l.n, &l.tables };
	const uint32_t warps = most_warps(d);
	if (d->w.width)
		memcpy(d->corrected, d->h, d->w.n_tokens * (d->w.width + MORE) * sizeof *d->h);
	each(&l, "kvi_gpu_collect", KVI_GPU_TOKENS, 1);
	each(&l, "kvi_gpu_find_channels", warps, 1);
	alone(&l, "kvi_gpu_list_columns", NULL);
	each(&l, "kvi_gpu_find_rows", KVI_GPU_TOKENS, 1);
	alone(&l, "kvi_gpu_write_section", NULL);
	each(&l, "kvi_gpu_gather", KVI_GPU_TOKENS, 1);
	each(&l, "kvi_gpu_encode_expect", KVI_GPU_TOKENS, 1);
	alone(&l, "kvi_gpu_encode_expect_hash", NULL);
	for (l.stage = 0; l.stage < N_TENSORS; l.stage++) {
		each_of_tables(&l, "kvi_gpu_encode_angles", warps);
		each(&l, "kvi_gpu_encode_sums", warps, SOME_WARPS);
		blocks(&l, "kvi_gpu_encode_walk_%s", 0, of_tables);
	}
	each(&l, "kvi_gpu_encode_numbers", KVI_GPU_TOKENS, 1);
	correct(&l, "kvi_gpu_encode_correct", d->w.width);
	char planes[32];
	snprintf(planes, sizeof planes, "kvi_gpu_planes_%s", l.dtype);
	each(&l, planes, SOME_WARPS, 1);
	blocks(&l, "kvi_gpu_choose_linear_%s", ENCODER_BYTES, of_number);
	blocks(&l, "kvi_gpu_encode_linear_%s", ENCODER_BYTES, of_number);
	blocks(&l, "kvi_gpu_checks", 0, of_number);
	blocks(&l, "kvi_gpu_put_%s", 0, of_number);
	alone(&l, "kvi_gpu_encoded", &l.answers);
}

/* ------------------------------------------------------------ what is right */

/* Elements as attention of the library has them. */
static void numbers_are(const struct device_world *d, size_t i)
{
	const struct model_world *w = &d->w;
	const struct kvi_model *m = w->in[i].model;
	const size_t C = m->C, hd = m->head_channels;
	float x[256];
	assert_true(C <= 256);
	for (size_t t = 0; t < w->n_tokens; t++) {
		kvi_floats_exact(w->dtype, w->raw[i] + t * C * kvarc_dtype_bytes(w->dtype), C, x);
		for (size_t c = 0; c < C; c++) {
			const size_t channel = c / hd * hd + kvi_slot_channel(m, &w->rope, c % hd);
			assert_memory_equal(&d->numbers[i][t * (C + MORE) + c], &x[channel], 4);
		}
	}
}

/* The hidden state as the library corrects it; numbers behind it are as they were. */
static void state_is_corrected(const struct device_world *d)
{
	const struct model_world *w = &d->w;
	const struct kvi_features *const same[] = { w->features[0] };
	const size_t stride = w->width + MORE, n = w->n_tokens * stride;
	float *h = (float *)(void *)memory_of(n * sizeof *h);
	uint8_t *scratch = memory_of(kvi_model_correct_bytes(w->n_tokens));
	memcpy(h, d->h, n * sizeof *h);
	if (w->width)
		kvi_model_correct(w->in[1].model, same, w->features[1], kvi_kernels_get(0), h,
		                  stride, d->root, 0, w->n_tokens, scratch);
	if (w->width)
		assert_memory_equal(d->corrected, h, n * sizeof *h);
	free(scratch);
	free(h);
}

static void view_is(const struct device_world *d, size_t i, bool good)
{
	const size_t n = kvi_chunk_bytes(&d->w.chunk[i]);
	uint8_t *untouched = memory_of(n);
	assert_memory_equal(d->view[i], good ? d->w.raw[i] : untouched, n);
	free(untouched);
}

/* The library's answer to a chunk as it lies in the payload. */
static uint32_t library_answer(const struct device_world *d, size_t i)
{
	uint8_t *raw = memory_of(kvi_chunk_bytes(&d->w.chunk[i]));
	struct kvi_chunk chunk = d->w.chunk[i];
	struct kvi_chunk_header h;
	uint64_t check = 0;
	chunk.features = NULL;
	if (!kvi_chunk_header_parse(&h, d->payload[i], d->bytes[i])) {
		free(raw);
		return KVI_GPU_DATA;
	}
	const struct kvi_chunk_payload in = {
		.chunk = &chunk,
		.codec = h.codec,
		.cut = h.cut,
		.payload = d->payload[i] + KVI_CHUNK_HEADER_BYTES,
		.payload_bytes = d->bytes[i] - KVI_CHUNK_HEADER_BYTES,
	};
	const kvarc_ret ret = kvi_chunk_decode(coders[0], &in, raw, &check);
	free(raw);
	if (ret == KVARC_PREDICTOR)
		return KVI_GPU_PREDICTOR;
	return ret == KVARC_OK && check == h.raw_check ? KVI_GPU_OK : KVI_GPU_DATA;
}

/* ------------------------------------------------------------------ tests */

static unsigned decoded, by_host, spoiled, encoded, refused;

/* Whether kernels decode all of it: Zstandard packs planes of some f32. */
static bool takes(struct device_world *d)
{
	decode(d);
	for (size_t i = 0; i < N_TENSORS; i++)
		if (d->status[i] == KVI_GPU_HOST) {
			assert_int_equal(d->w.dtype, KVARC_F32);
			by_host++;
			return false;
		}
	return true;
}

static void decodes(struct device_world *d)
{
	for (size_t i = 0; i < N_TENSORS; i++) {
		assert_int_equal(d->status[i], KVI_GPU_OK);
		view_is(d, i, true);
		numbers_are(d, i);
		decoded += is_model(d, i);
	}
	state_is_corrected(d);
	assert_int_equal(d->lost, UINT32_MAX);
}

/* The state of the layers above is lost, and this chunk; the value, too, if it depends on it. */
static void is_lost(struct device_world *d, size_t i, uint32_t status)
{
	assert_int_equal(d->status[i], status);
	view_is(d, i, false);
	if (i == 0 && is_model(d, 1) && depends(d)) {
		assert_int_equal(d->status[1],
		                 status == KVI_GPU_PREDICTOR ? KVI_GPU_PREDICTOR : KVI_GPU_SOURCE);
		view_is(d, 1, false);
	} else {
		assert_int_equal(d->status[1 - i], KVI_GPU_OK);
		view_is(d, 1 - i, true);
	}
	assert_int_equal(d->lost, T0);
	if (i == 0 && !depends(d))
		state_is_corrected(d);
	else if (d->w.width)
		assert_memory_equal(d->corrected, d->h,
		                    d->w.n_tokens * (d->w.width + MORE) * sizeof *d->h);
	d->lost = UINT32_MAX;
	spoiled++;
}

/* Other predictions of one number; a chunk whose state was lost before. */
static void notices_predictor(struct device_world *d, size_t i)
{
	const size_t C = channels_of(&d->w, i), at = below((uint32_t)(d->w.n_tokens * C));
	const struct kvi_model *m = d->w.in[i].model;
	float *p = &d->p[i][at / C * (C + MORE) + at % C];
	const float was = *p;
	const int e = d->w.expected[i][at];
	*p = near_expected(e > 0 ? e - 1 : e + 1, m->step[at % C]);
	decode(d);
	is_lost(d, i, KVI_GPU_PREDICTOR);
	*p = was;
	d->lost = T0;
	decode(d);
	for (size_t k = 0; k < N_TENSORS; k++)
		assert_int_equal(d->status[k], is_model(d, k) ? KVI_GPU_SOURCE : KVI_GPU_OK);
	d->lost = T0 + 1;
	decode(d);
	for (size_t k = 0; k < N_TENSORS; k++)
		assert_int_equal(d->status[k], KVI_GPU_OK);
	d->lost = UINT32_MAX;
}

/* A byte of a payload: how streams are cut; the check of the chunk, how long the section is; the
 * check of predictions; the mask or the states; any one. */
static uint32_t damaged_byte(const struct device_world *d, size_t i, unsigned k)
{
	enum { CUT = 25, CHECK = 32, SECTION = 40 };
	const uint32_t n = (uint32_t)d->bytes[i], first = KVI_CHUNK_HEADER_BYTES;
	const uint32_t near = n - first < 300 ? n - first : 300;
	switch (k % 6) {
	case 0:
		return CUT;
	case 1:
		return CHECK + below(first - CHECK);
	case 2:
		return SECTION;
	case 3:
		return first + below(8);
	case 4:
		return first + below(near);
	default:
		return first + below(n - first);
	}
}

/* Bits of a payload. */
static void notices_damage(struct device_world *d, size_t i)
{
	for (unsigned k = 0; k < 12; k++) {
		uint8_t *bytes = d->payload[i];
		const uint32_t at = damaged_byte(d, i, k);
		const uint8_t bit = (uint8_t)(1 << below(8));
		bytes[at] ^= bit;
		const uint32_t status = library_answer(d, i);
		decode(d);
		/* methods of planes that kernels leave to the host are damage to the library */
		if (d->status[i] == KVI_GPU_HOST)
			assert_int_not_equal(status, KVI_GPU_OK);
		else if (status == KVI_GPU_PREDICTOR && i == 0 && is_model(d, 1) && depends(d))
			assert_int_equal(d->status[i], status); /* the check of the value holds */
		else if (status != KVI_GPU_OK)
			is_lost(d, i, status);
		else
			assert_int_equal(d->status[i], status);
		d->lost = UINT32_MAX;
		bytes[at] ^= bit;
	}
}

/* The payload of kernels, which the library has not made: it must decode. */
static void library_decodes(struct device_world *d, size_t i)
{
	free(d->payload[i]);
	d->bytes[i] = d->answer[i].payload_bytes;
	d->payload[i] = memory_of(d->bytes[i]);
	memcpy(d->payload[i], d->view[i], d->bytes[i]);
	assert_int_equal(library_answer(d, i), KVI_GPU_OK);
}

static void encodes(struct device_world *d)
{
	for (size_t i = 0; i < N_TENSORS; i++) {
		free(d->linear_work[i]);
		make_linear(d, i, true);
		make_output(d, i);
	}
	encode(d);
	for (size_t i = 0; i < N_TENSORS; i++) {
		const struct kvi_chunk *c = &d->w.chunk[i];
		const size_t all = channels_of(&d->w, i) * c->n_tokens;
		const struct kvi_gpu_encoded *x = &d->answer[i];
		numbers_are(d, i);
		if (!kvi_floats_finite(c->dtype, d->w.raw[i], all))
			assert_int_equal(x->status, KVI_GPU_HOST);
		refused += x->status == KVI_GPU_HOST;
		if (x->status == KVI_GPU_HOST) {
			assert_false(is_model(d, i) && c->dtype != KVARC_F32);
			continue;
		}
		assert_int_equal(x->status, KVI_GPU_OK);
		if (is_model(d, i) && c->dtype != KVARC_F32) {
			assert_int_equal(x->payload_bytes, d->bytes[i]);
			assert_memory_equal(d->view[i], d->payload[i], d->bytes[i]);
			encoded++;
		}
		library_decodes(d, i);
	}
	state_is_corrected(d);
}

static void test_chunks(void **state)
{
	(void)state;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct device_world d;
		make_world(&d, round);
		if (takes(&d)) {
			decodes(&d);
			for (size_t i = 0; i < N_TENSORS; i++)
				if (is_model(&d, i)) {
					notices_predictor(&d, i);
					notices_damage(&d, i);
				}
		}
		encodes(&d);
		free_world(&d);
	}
	print_message("%u chunks of codec 8 decoded, %u left to the host, %u spoiled; %u encoded "
	              "like the library, %u refused\n",
	              decoded, by_host, spoiled, encoded, refused);
	assert_true(decoded > ROUNDS / 2 && spoiled > decoded && encoded > decoded / 2);
	assert_true(refused && by_host < decoded);
}

/* E of numbers that are none, or far away, or between two. */
static void test_limits(void **state)
{
	static const uint32_t infinite = 0x7f800000, negative = 0xff800000, none = 0x7fc01235;
	struct device_world d;
	(void)state;
	for (unsigned round = 0; round < 8; round++) {
		make_world(&d, 5 * round);
		const size_t C = channels_of(&d.w, 0), n = d.w.n_tokens * C;
		int16_t *wanted = malloc(n * sizeof *wanted);
		assert_non_null(wanted);
		for (size_t k = 0; k < n; k++) {
			float *p = &d.p[0][k / C * (C + MORE) + k % C];
			*p = near_expected(between(-40000, 40000), d.w.in[0].model->step[k % C]);
			if (below(9) == 0)
				memcpy(p, below(3) ? below(2) ? &infinite : &negative : &none, 4);
		}
		decode(&d);
		kvi_model_expect(d.w.in[0].model, d.p[0], C + MORE, d.w.n_tokens, wanted);
		assert_memory_equal((void *)(uintptr_t)d.linear[0].expects.e, wanted,
		                    n * sizeof *wanted);
		free(wanted);
		free_world(&d);
	}
}

static int open_all(void **state)
{
	uint8_t *tables_memory = memory_of(kvi_gpu_tables_bytes());
	kvi_gpu_tables_fill(&fixed, tables_memory, address(tables_memory));
	device = open_device();
	*state = tables_memory;
	assert_int_equal(kvi_device_enter(device), KVARC_OK);
	assert_int_equal(kvi_device_load_encoders(device), KVARC_OK);
	return open_coders(NULL);
}

static int close_all(void **state)
{
	kvi_device_leave(device);
	kvarc_device_close(&device);
	free(*state);
	return close_coders(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_limits),
	};
	return cmocka_run_group_tests(tests, open_all, close_all);
}
