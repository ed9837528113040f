/* SPDX-License-Identifier: BSD-3-Clause */
/* device_encode.c - launches the kernels that encode layers of a plan */
#include "config.h"

#include "output_launch.h"

#include "format/codec_ids.h"
#include "util/error.h"

/* What blocks share: entries of the tables of codecs, each twice, and of a ring beyond channels. */
enum {
	EXPONENT_ENTRIES = KVI_GPU_TABLES * 32,
	GRID_ENTRIES = 192 * 41,
	GRID_TOKENS = 64,
	RING_MORE = 127 + 128,
	GRID_CHUNKS = 2 /* of a block */
};

static kvarc_ret launch(struct kvi_output_launch *l, const char *name, uint32_t grid_x,
                        uint32_t grid_y, uint32_t threads, uint32_t shared, void **arguments)
{
	const struct kvi_launch k = { name, grid_x, grid_y, threads, shared, 1 };
	return kvi_device_launch(l->d, l->d->encoders, &k, arguments, l->stream);
}

/* A kernel that takes a number of warps a chunk. */
static kvarc_ret launch_each(struct kvi_output_launch *l, const char *name, uint32_t warps)
{
	void *arguments[] = { &l->jobs, &l->tables }; /* contexts alone take the second */
	return launch(l, name, kvi_blocks_of(warps), l->n, KVI_SMALL_BLOCK, 0, arguments);
}

/* A kernel that takes a warp a chunk. */
static kvarc_ret launch_one(struct kvi_output_launch *l, const char *name)
{
	void *arguments[] = { &l->jobs, &l->n, &l->answers };
	return launch(l, name, kvi_blocks_of(l->n), 1, KVI_SMALL_BLOCK, 0, arguments);
}

/* A kernel that takes a block a chunk, a warp a stream. */
static kvarc_ret launch_blocks(struct kvi_output_launch *l, const char *name)
{
	void *arguments[] = { &l->jobs };
	return launch(l, name, l->n, 1, KVI_BLOCK, 0, arguments);
}

static bool has(const struct kvi_output_launch *l, uint32_t codec, uint32_t dtype)
{
	for (uint32_t i = 0; i < l->n; i++) {
		const struct kvi_gpu_chunk *j = &l->outputs[i].job.job;
		if (j->dtype == dtype && j->codec == codec)
			return true;
	}
	return false;
}

static bool has_linear(const struct kvi_output_launch *l, uint32_t dtype)
{
	return has(l, KVI_CODEC_LINEAR, dtype) || has(l, KVI_CODEC_MODEL, dtype);
}

/* Collects elements and removes those that are masked. */
static kvarc_ret launch_mask(struct kvi_output_launch *l)
{
	kvarc_ret ret = launch_each(l, "kvi_gpu_collect", KVI_GPU_TOKENS);
	if (!ret)
		ret = launch_each(l, "kvi_gpu_find_channels",
		                  (l->channels + KVI_WARP - 1) / KVI_WARP);
	if (!ret)
		ret = launch_one(l, "kvi_gpu_list_columns");
	if (!ret)
		ret = launch_each(l, "kvi_gpu_find_rows", KVI_GPU_TOKENS);
	if (!ret)
		ret = launch_one(l, "kvi_gpu_write_section");
	return ret ? ret : launch_each(l, "kvi_gpu_gather", KVI_GPU_TOKENS);
}

/* Names of the kernels of a format. Each leaves the chunks of others alone. */
struct output_kernels {
	uint32_t dtype;
	const char *planes, *contexts, *walk, *put;
	const char *choose_exponent, *encode_exponent;
	const char *choose_grid, *encode_grid, *choose_linear, *encode_linear;
};
#define KERNELS(dtype, f)                                                                         \
	{                                                                                         \
		dtype, "kvi_gpu_planes_" f, "kvi_gpu_encode_contexts_" f,                         \
			"kvi_gpu_encode_walk_" f, "kvi_gpu_put_" f, "kvi_gpu_choose_exponent_" f, \
			"kvi_gpu_encode_exponent_" f, "kvi_gpu_choose_grid_" f,                   \
			"kvi_gpu_encode_grid_" f, "kvi_gpu_choose_linear_" f,                     \
			"kvi_gpu_encode_linear_" f                                                \
	}
static const struct output_kernels output_kernels[] = {
	KERNELS(KVARC_F32, "f32"),   KERNELS(KVARC_F16, "f16"),   KERNELS(KVARC_BF16, "bf16"),
	KERNELS(KVARC_E4M3, "e4m3"), KERNELS(KVARC_E5M2, "e5m2"),
};
enum { KERNELS_N = sizeof output_kernels / sizeof *output_kernels };

/* ----- the exact engine ------------------------------------------------ */

/* E of predicted chunks, and its hashes. */
static kvarc_ret launch_expect(struct kvi_output_launch *l)
{
	kvarc_ret ret = launch_each(l, "kvi_gpu_encode_expect", KVI_GPU_TOKENS);
	return ret ? ret : launch_one(l, "kvi_gpu_encode_expect_hash");
}

/* Numbers for attention, and corrections of the hidden state, which has `width` numbers. */
static kvarc_ret launch_observe(struct kvi_output_launch *l, uint32_t width)
{
	void *arguments[] = { &l->jobs };
	const struct kvi_launch correct = kvi_correct_launch("kvi_gpu_encode_correct", l->n, width);
	kvarc_ret ret = launch_each(l, "kvi_gpu_encode_numbers", KVI_GPU_TOKENS);
	return ret ? ret : kvi_device_launch(l->d, l->d->encoders, &correct, arguments, l->stream);
}

/* ----- features ------------------------------------------------ */

/* Angles and sums of the models of a stage. */
static kvarc_ret launch_sums(struct kvi_output_launch *l, uint32_t stage,
                             const struct kvi_model_warps *warps)
{
	void *of_sums[] = { &l->jobs, &stage }, *of_angles[] = { &l->jobs, &l->tables, &stage };
	const struct kvi_launch sums = {
		"kvi_gpu_encode_sums", kvi_blocks_of(warps->sums), l->n, KVI_SMALL_BLOCK, 0,
		KVI_PLAN_STEPS
	};
	kvarc_ret ret = launch(l, "kvi_gpu_encode_angles", kvi_blocks_of(warps->angles), l->n,
	                       KVI_SMALL_BLOCK, 0, of_angles);
	return ret ? ret : kvi_device_launch(l->d, l->d->encoders, &sums, of_sums, l->stream);
}

/* The chunks of lossy tiers and the features of all chunks of a stage. *more: there are chunks of
 * later ones. */
static kvarc_ret launch_stage(struct kvi_output_launch *l, uint32_t stage, bool *more)
{
	struct kvi_model_warps warps = { 0 };
	bool walks[KERNELS_N] = { false };
	void *arguments[] = { &l->jobs, &l->tables, &stage };
	*more = false;
	for (uint32_t i = 0; i < l->n; i++) {
		const struct kvi_gpu_chunk *j = &l->outputs[i].job.job;
		*more |= j->stage > stage;
		if (j->stage != stage || !j->linear)
			continue;
		kvi_model_warps_add(&warps, j);
		for (size_t k = 0; k < KERNELS_N; k++)
			walks[k] |= output_kernels[k].dtype == j->dtype;
	}
	kvarc_ret ret = warps.sums ? launch_sums(l, stage, &warps) : KVARC_OK;
	if (!ret)
		ret = kvi_output_launch_lossy(l, stage);
	for (size_t k = 0; k < KERNELS_N && !ret; k++)
		if (walks[k])
			ret = launch(l, output_kernels[k].walk, l->n, 1, KVI_BLOCK, 0, arguments);
	return ret;
}

static kvarc_ret launch_stages(struct kvi_output_launch *l)
{
	kvarc_ret ret = KVARC_OK;
	bool more = true;
	for (uint32_t stage = 0; more && !ret; stage++)
		ret = launch_stage(l, stage, &more);
	return ret;
}

/* ----- streams ------------------------------------------------ */

static kvarc_ret encode_exponent(struct kvi_output_launch *l, const struct output_kernels *k)
{
	const uint32_t shared = (2 * EXPONENT_ENTRIES + l->channels + RING_MORE) * 4;
	void *arguments[] = { &l->jobs };
	kvarc_ret ret = launch(l, k->choose_exponent, l->n, 1, KVI_WARP, shared, arguments);
	return ret ? ret : launch(l, k->encode_exponent, l->n, 1, KVI_BLOCK, shared, arguments);
}

/* Streams of codecs grid, linear and model, whose contexts are there. */
static kvarc_ret encode_grid(struct kvi_output_launch *l, const char *choose, const char *encode)
{
	enum { THREADS = GRID_CHUNKS * KVI_BLOCK, CHOSEN = THREADS / KVI_WARP };
	const uint32_t shared = (2 * GRID_ENTRIES + GRID_TOKENS) * 4;
	void *arguments[] = { &l->jobs, &l->n, &l->tables };
	kvarc_ret ret = launch(l, choose, (l->n + CHOSEN - 1) / CHOSEN, 1, THREADS, shared,
	                       arguments);
	return ret ? ret
	           : launch(l, encode, (l->n + GRID_CHUNKS - 1) / GRID_CHUNKS, 1, THREADS, shared,
	                    arguments);
}

/* Planes and streams of a format. */
static kvarc_ret encode_format(struct kvi_output_launch *l, const struct output_kernels *k)
{
	const bool exponent = has(l, KVI_CODEC_EXPONENT, k->dtype);
	const bool grid = has(l, KVI_CODEC_GRID, k->dtype);
	const bool linear = has_linear(l, k->dtype);
	kvarc_ret ret = KVARC_OK;
	if (exponent || grid || linear)
		ret = launch_each(l, k->planes, KVI_GPU_STREAMS);
	if (!ret && exponent)
		ret = encode_exponent(l, k);
	if (!ret && grid)
		ret = launch_each(l, k->contexts,
		                  (l->channels + RING_MORE + KVI_WARP - 1) / KVI_WARP);
	if (!ret && grid)
		ret = encode_grid(l, k->choose_grid, k->encode_grid);
	if (!ret && linear)
		ret = encode_grid(l, k->choose_linear, k->encode_linear);
	return ret;
}

static kvarc_ret launch_streams(struct kvi_output_launch *l)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < KERNELS_N && !ret; i++)
		ret = encode_format(l, &output_kernels[i]);
	return ret;
}

/* Payloads and answers. */
static kvarc_ret launch_payloads(struct kvi_output_launch *l)
{
	kvarc_ret ret = launch_blocks(l, "kvi_gpu_checks");
	for (size_t i = 0; i < KERNELS_N && !ret; i++) {
		const struct output_kernels *k = &output_kernels[i];
		if (has(l, KVI_CODEC_EXPONENT, k->dtype) || has(l, KVI_CODEC_GRID, k->dtype) ||
		    has_linear(l, k->dtype))
			ret = launch_blocks(l, k->put);
	}
	return ret ? ret : launch_one(l, "kvi_gpu_encoded");
}

/* ----- layers ------------------------------------------------ */

/* The outputs number first to end - 1, which are of one layer. */
static struct kvi_output_launch launch_of(const struct kvarc_device_plan *p, size_t first,
                                          size_t end, void *stream)
{
	const struct kvi_output_chunk *c = p->outputs.p;
	return (struct kvi_output_launch){
		.d = p->d,
		.stream = stream,
		.jobs = p->staging + p->jobs_at + first * sizeof(struct kvi_gpu_encode),
		.answers = p->status + first * sizeof(struct kvi_gpu_encoded),
		.tables = p->staging + p->tables_at,
		.outputs = c + first,
		.n = (uint32_t)(end - first)
	};
}

static kvarc_ret encode_chunks(struct kvarc_device_plan *p, size_t first, size_t end, void *stream)
{
	const struct kvi_planned_engine *e = &p->engine;
	struct kvi_output_chunk *c = p->outputs.p;
	struct kvi_output_launch l = launch_of(p, first, end, stream);
	for (size_t i = 0; i < p->outputs.n; i++)
		l.transforms |= c[i].job.job.codec == KVI_CODEC_KLT;
	for (size_t i = first; i < end; i++) {
		const uint32_t channels = c[i].job.job.heads * c[i].job.job.head_channels;
		l.channels = channels > l.channels ? channels : l.channels;
	}
	const bool predicted = kvi_plan_engine_predicts(p, c[first].layer);
	kvarc_ret ret = launch_mask(&l);
	if (!ret && predicted)
		ret = launch_expect(&l);
	if (!ret)
		ret = kvi_output_launch_tokens(&l);
	if (!ret)
		ret = launch_stages(&l);
	if (!ret && predicted && e->of.closed)
		ret = launch_observe(&l, e->model->m.width);
	if (!ret)
		ret = launch_streams(&l);
	if (!ret)
		ret = launch_payloads(&l);
	for (size_t i = first; i < end && !ret; i++)
		c[i].launched = true;
	return ret;
}

/* The end of a launch, as of a plan that reads (device_decode.c). */
static size_t launch_end(const struct kvarc_device_plan *p, size_t first)
{
	const struct kvi_output_chunk *c = p->outputs.p;
	size_t next = first + 1;
	while (next < p->outputs.n && c[next].layer == c[first].layer &&
	       next - first < KVI_CHUNKS_MOST &&
	       (next - first < KVI_CHUNKS_MOST / 2 || c[next].row == c[next - 1].row))
		next++;
	return next;
}

/* Leaves chunks of a layer to the host that are what was predicted: they have another codec. */
static kvarc_ret leave_exact(struct kvarc_device_plan *p, size_t first, size_t end, void *stream)
{
	const struct kvi_output_chunk *c = p->outputs.p;
	kvarc_ret ret = kvi_plan_engine_turn(p, c[first].layer, stream);
	for (size_t next; first < end && !ret; first = next) {
		next = launch_end(p, first);
		struct kvi_output_launch l = launch_of(p, first, next, stream);
		ret = launch_one(&l, "kvi_gpu_leave_exact");
	}
	return ret;
}

/* The outputs number first to end - 1 are those of a layer. */
static kvarc_ret encode_layer(struct kvarc_device_plan *p, size_t first, size_t end, void *stream)
{
	const struct kvi_output_chunk *c = p->outputs.p;
	const uint32_t layer = c[first].layer;
	const bool predicted = kvi_plan_engine_predicts(p, layer);
	kvarc_ret ret = predicted ? kvi_plan_engine_enter(p, layer, stream) : KVARC_OK;
	for (size_t at = first, next; at < end && !ret; at = next) {
		next = launch_end(p, at);
		ret = encode_chunks(p, at, next, stream);
	}
	if (!ret && predicted)
		ret = leave_exact(p, first, end, stream);
	if (ret || !predicted || end == p->outputs.n)
		return ret;
	return kvi_plan_engine_leave(p, layer, stream);
}

kvarc_ret kvarc_device_encode(kvarc_device_plan *p, uint32_t layer0, uint32_t n_layers,
                              void *stream)
{
	static const char call[] = "kvarc_device_encode";
	uint64_t stop;
	kvarc_ret ret = kvi_plan_check_use(p, call, true);
	if (ret)
		return ret;
	if (!p->staging || !p->work)
		return kvi_fail(p->d->error, KVARC_PROG,
		                "%s: call kvarc_device_stage and kvarc_device_place before it",
		                call);
	ret = kvi_plan_has_layers(p, call, layer0, n_layers, &stop);
	if (ret == KVARC_OK)
		ret = kvi_plan_check_order(p, layer0, call);
	if (ret == KVARC_OK)
		ret = kvi_device_enter(p->d);
	if (ret)
		return ret;
	const struct kvi_output_chunk *c = p->outputs.p;
	for (size_t first = 0, next; first < p->outputs.n && !ret; first = next) {
		next = first + 1;
		while (next < p->outputs.n && c[next].layer == c[first].layer)
			next++;
		if (c[first].layer >= layer0 && c[first].layer < stop)
			ret = encode_layer(p, first, next, stream);
	}
	kvi_device_leave(p->d);
	if (!ret)
		kvi_plan_next_layer(p, layer0, n_layers);
	return ret;
}
