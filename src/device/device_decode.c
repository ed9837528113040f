/* SPDX-License-Identifier: BSD-3-Clause */
/* device_decode.c - launches the kernels that decode layers of a plan, and reads their answers */
#include "config.h"

#include "batch_launch.h"
#include "plan_state.h"

#include "format/codec_ids.h"
#include "util/error.h"

/* ----- the kernels of a batch ------------------------------------------------ */

static kvarc_ret open_chunks(struct kvi_batch_launch *l)
{
	void *arguments[] = { &l->jobs, &l->n };
	const struct kvi_launch k = {
		"kvi_gpu_open", kvi_blocks_of(l->n), 1, KVI_SMALL_BLOCK, 0, 1
	};
	return kvi_batch_kernel(l, &k, arguments);
}

static kvarc_ret finish_stage(struct kvi_batch_launch *l, uint32_t stage)
{
	void *of_finish[] = { &l->jobs, &stage };
	const struct kvi_launch finish = { "kvi_gpu_finish", l->n, 1, KVI_BLOCK, 0, 1 };
	return kvi_batch_kernel(l, &finish, of_finish);
}

static kvarc_ret answer_stage(struct kvi_batch_launch *l, uint32_t stage)
{
	void *of_answer[] = { &l->jobs, &l->n, &l->status, &stage };
	const struct kvi_launch answer = {
		"kvi_gpu_answer", kvi_blocks_of(l->n), 1, KVI_SMALL_BLOCK, 0, 1
	};
	return kvi_batch_kernel(l, &answer, of_answer);
}

static kvarc_ret scatter_chunks(struct kvi_batch_launch *l)
{
	void *of_jobs[] = { &l->jobs };
	const struct kvi_launch scatter = {
		"kvi_gpu_scatter", kvi_blocks_of(KVI_GPU_TOKENS), l->n, KVI_SMALL_BLOCK, 0, 1
	};
	return kvi_batch_kernel(l, &scatter, of_jobs);
}

/* Kernels of codecs with streams, one for a format. Each leaves the chunks of others alone. */
struct stream_kernel {
	const char *name, *contexts; /* contexts: one that runs before it; NULL: none */
	uint32_t codec, dtype;
};
static const struct stream_kernel stream_kernels[] = {
	{ "kvi_gpu_exponent_f32", NULL, KVI_CODEC_EXPONENT, KVARC_F32 },
	{ "kvi_gpu_exponent_f16", NULL, KVI_CODEC_EXPONENT, KVARC_F16 },
	{ "kvi_gpu_exponent_bf16", NULL, KVI_CODEC_EXPONENT, KVARC_BF16 },
	{ "kvi_gpu_exponent_e4m3", NULL, KVI_CODEC_EXPONENT, KVARC_E4M3 },
	{ "kvi_gpu_exponent_e5m2", NULL, KVI_CODEC_EXPONENT, KVARC_E5M2 },
	{ "kvi_gpu_grid_f32", "kvi_gpu_contexts_f32", KVI_CODEC_GRID, KVARC_F32 },
	{ "kvi_gpu_grid_f16", "kvi_gpu_contexts_f16", KVI_CODEC_GRID, KVARC_F16 },
	{ "kvi_gpu_grid_bf16", "kvi_gpu_contexts_bf16", KVI_CODEC_GRID, KVARC_BF16 },
	{ "kvi_gpu_grid_e4m3", "kvi_gpu_contexts_e4m3", KVI_CODEC_GRID, KVARC_E4M3 },
	{ "kvi_gpu_grid_e5m2", "kvi_gpu_contexts_e5m2", KVI_CODEC_GRID, KVARC_E5M2 },
};

/* Those of chunks with a model: of codec linear, and of the features of others. */
struct model_kernel {
	const char *linear, *features;
	uint32_t dtype;
};
static const struct model_kernel model_kernels[] = {
	{ "kvi_gpu_linear_f32", "kvi_gpu_features_f32", KVARC_F32 },
	{ "kvi_gpu_linear_f16", "kvi_gpu_features_f16", KVARC_F16 },
	{ "kvi_gpu_linear_bf16", "kvi_gpu_features_bf16", KVARC_BF16 },
	{ "kvi_gpu_linear_e4m3", "kvi_gpu_features_e4m3", KVARC_E4M3 },
	{ "kvi_gpu_linear_e5m2", "kvi_gpu_features_e5m2", KVARC_E5M2 },
};
enum { MODEL_KERNELS = sizeof model_kernels / sizeof *model_kernels };

/* Those that make elements of the codecs had and klt. */
struct lossy_kernel {
	const char *name;
	uint32_t dtype;
};
static const struct lossy_kernel lossy_kernels[] = {
	{ "kvi_gpu_elements_f32", KVARC_F32 },   { "kvi_gpu_elements_f16", KVARC_F16 },
	{ "kvi_gpu_elements_bf16", KVARC_BF16 }, { "kvi_gpu_elements_e4m3", KVARC_E4M3 },
	{ "kvi_gpu_elements_e5m2", KVARC_E5M2 },
};
enum { LOSSY_KERNELS = sizeof lossy_kernels / sizeof *lossy_kernels };

static bool is_lossy(uint32_t codec)
{
	return codec == KVI_CODEC_HAD || codec == KVI_CODEC_KLT;
}

bool kvi_plan_has_kernel(uint32_t codec, uint32_t dtype)
{
	bool has = codec == KVI_CODEC_RAW || codec == KVI_CODEC_CONSTANT;
	for (size_t i = 0; i < MODEL_KERNELS && kvi_plan_is_linear(codec) && !has; i++)
		has = model_kernels[i].dtype == dtype;
	for (size_t i = 0; i < LOSSY_KERNELS && is_lossy(codec) && !has; i++)
		has = lossy_kernels[i].dtype == dtype;
	for (size_t i = 0; i < sizeof stream_kernels / sizeof *stream_kernels && !has; i++)
		has = stream_kernels[i].codec == codec && stream_kernels[i].dtype == dtype;
	return has;
}

/*
 * What blocks share and take: bytes of a table of codec exponent; entries of a ring of channels
 * beyond their number; bytes of the tables of codec grid, and chunks of a block of it; and of
 * codes of lossy chunks.
 */
enum {
	TABLE_BYTES = 2048 * 4,
	RING_MORE = 127 + 128,
	GRID_BYTES = 192 * 41 * 4 + 64 * 4 + 192 * 256,
	GRID_CHUNKS = 2,
	LOSSY_CHUNKS = 2
};

/* The most of what the chunks of a kernel have. */
struct most {
	uint32_t tables, channels;
	bool any;
};

static struct most find_most(const struct stream_kernel *s, const struct kvi_planned_chunk *c,
                             size_t n)
{
	struct most most = { 0 };
	for (size_t i = 0; i < n; i++) {
		const struct kvi_gpu_chunk *j = &c[i].job;
		const uint32_t channels = j->heads * j->head_channels;
		if (j->codec != s->codec || j->dtype != s->dtype)
			continue;
		most.any = true;
		most.tables = c[i].tables > most.tables ? c[i].tables : most.tables;
		most.channels = channels > most.channels ? channels : most.channels;
	}
	return most;
}

static kvarc_ret decode_exponent(struct kvi_batch_launch *l, const struct stream_kernel *s,
                                 struct most most)
{
	const uint32_t shared = most.tables * TABLE_BYTES + (most.channels + RING_MORE) * 4;
	const struct kvi_launch k = { s->name, l->n, 1, KVI_BLOCK, shared, 1 };
	void *arguments[] = { &l->jobs, &most.tables };
	return kvi_batch_kernel(l, &k, arguments);
}

static kvarc_ret decode_grid(struct kvi_batch_launch *l, const struct stream_kernel *s,
                             struct most most)
{
	const uint32_t warps = (most.channels + RING_MORE + KVI_WARP - 1) / KVI_WARP;
	const struct kvi_launch contexts = { s->contexts, kvi_blocks_of(warps),
		                             l->n,        KVI_SMALL_BLOCK,
		                             0,           1 };
	const struct kvi_launch k = { s->name,    (l->n + GRID_CHUNKS - 1) / GRID_CHUNKS,
		                      1,          GRID_CHUNKS * KVI_BLOCK,
		                      GRID_BYTES, 1 };
	void *of_contexts[] = { &l->jobs, &l->tables },
	     *of_grid[] = { &l->jobs, &l->n, &l->tables };
	kvarc_ret ret = kvi_batch_kernel(l, &contexts, of_contexts);
	return ret ? ret : kvi_batch_kernel(l, &k, of_grid);
}

static kvarc_ret decode_streams(struct kvi_batch_launch *l, const struct kvi_planned_chunk *c,
                                size_t n)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t k = 0; k < sizeof stream_kernels / sizeof *stream_kernels && !ret; k++) {
		const struct stream_kernel *s = &stream_kernels[k];
		const struct most most = find_most(s, c, n);
		if (most.any)
			ret = s->contexts ? decode_grid(l, s, most) : decode_exponent(l, s, most);
	}
	return ret;
}

/* ----- lossy chunks ------------------------------------------------ */

/* The most warps that a chunk has of each step, and 32 tokens of it. */
struct lossy_needs {
	uint32_t turns, transforms, elements, blocks;
	bool dtype[LOSSY_KERNELS];
};

static void add_most(uint32_t *most, uint32_t n)
{
	*most = n > *most ? n : *most;
}

static struct lossy_needs find_lossy(const struct kvi_planned_chunk *c, size_t n, uint32_t stage)
{
	enum { PANEL = KVI_GPU_PANEL };
	struct lossy_needs needs = { 0 };
	for (size_t i = 0; i < n; i++) {
		const struct kvi_gpu_chunk *j = &c[i].job;
		const uint32_t C = j->heads * j->head_channels;
		const uint32_t blocks = kvi_gpu_lossy_blocks(j->tokens);
		const uint32_t panels = (j->head_channels + PANEL - 1) / PANEL;
		if (!is_lossy(j->codec) || j->stage != stage)
			continue;
		add_most(&needs.turns, j->codec == KVI_CODEC_HAD ? j->head_channels / 2 : 0);
		add_most(&needs.transforms, j->heads * (j->codec == KVI_CODEC_KLT ? panels : 1));
		add_most(&needs.elements, blocks * ((C + KVI_WARP - 1) / KVI_WARP) + j->tokens);
		add_most(&needs.blocks, blocks);
		for (size_t k = 0; k < LOSSY_KERNELS; k++)
			needs.dtype[k] |= lossy_kernels[k].dtype == j->dtype;
	}
	return needs;
}

/* Codes, coefficients, elements; behind the bases and angles of models. */
static kvarc_ret decode_lossy(struct kvi_batch_launch *l, const struct lossy_needs *needs,
                              uint32_t stage)
{
	void *of_jobs[] = { &l->jobs, &stage }, *of_tables[] = { &l->jobs, &l->tables, &stage },
	     *of_codes[] = { &l->jobs, &l->n, &l->tables, &stage };
	const struct kvi_launch turns = {
		"kvi_gpu_lossy_turns", kvi_blocks_of(needs->turns), l->n, KVI_SMALL_BLOCK, 0, 1
	};
	const struct kvi_launch codes = { "kvi_gpu_codes",
		                          (l->n + LOSSY_CHUNKS - 1) / LOSSY_CHUNKS,
		                          1,
		                          LOSSY_CHUNKS * KVI_GPU_BODIES * KVI_WARP,
		                          0,
		                          1 };
	const struct kvi_launch transform = {
		"kvi_gpu_transform", kvi_blocks_of(needs->transforms), l->n, KVI_SMALL_BLOCK, 0,
		needs->blocks
	};
	kvarc_ret ret = needs->turns ? kvi_batch_kernel(l, &turns, of_tables) : KVARC_OK;
	if (ret == KVARC_OK)
		ret = kvi_batch_kernel(l, &codes, of_codes);
	if (ret == KVARC_OK)
		ret = kvi_batch_kernel(l, &transform, of_jobs);
	for (size_t k = 0; k < LOSSY_KERNELS && !ret; k++) {
		const struct kvi_launch elements = { lossy_kernels[k].name,
			                             kvi_blocks_of(needs->elements),
			                             l->n,
			                             KVI_SMALL_BLOCK,
			                             0,
			                             1 };
		if (needs->dtype[k])
			ret = kvi_batch_kernel(l, &elements, of_jobs);
	}
	return ret;
}

/* ----- chunks with a model ------------------------------------------------ */

/* What the chunks of a stage with a model need. */
struct stage_needs {
	struct kvi_model_warps warps;
	bool linear[MODEL_KERNELS], features[MODEL_KERNELS];
};

static void add_needs(struct stage_needs *needs, const struct kvi_gpu_chunk *j)
{
	kvi_model_warps_add(&needs->warps, j);
	for (size_t i = 0; i < MODEL_KERNELS; i++)
		if (model_kernels[i].dtype == j->dtype) {
			/* those without streams have known elements, too */
			needs->linear[i] |= kvi_plan_is_linear(j->codec);
			needs->features[i] = true;
		}
}

/* What is known before streams are decoded, then the streams of codec linear. */
static kvarc_ret decode_models(struct kvi_batch_launch *l, const struct stage_needs *needs,
                               uint32_t stage)
{
	void *of_angles[] = { &l->jobs, &l->tables, &stage }, *of_sums[] = { &l->jobs, &stage };
	const struct kvi_launch angles = {
		"kvi_gpu_angles", kvi_blocks_of(needs->warps.angles), l->n, KVI_SMALL_BLOCK, 0, 1
	};
	const struct kvi_launch sums = {
		"kvi_gpu_sums", kvi_blocks_of(needs->warps.sums), l->n, KVI_SMALL_BLOCK, 0,
		KVI_PLAN_STEPS
	};
	kvarc_ret ret = kvi_batch_kernel(l, &angles, of_angles);
	if (ret == KVARC_OK)
		ret = kvi_batch_kernel(l, &sums, of_sums);
	for (size_t i = 0; i < MODEL_KERNELS && !ret; i++) {
		const struct kvi_launch k = {
			model_kernels[i].linear, l->n, 1, KVI_BLOCK, GRID_BYTES, 1
		};
		if (needs->linear[i])
			ret = kvi_batch_kernel(l, &k, of_angles);
	}
	return ret;
}

static kvarc_ret find_features(struct kvi_batch_launch *l, const struct stage_needs *needs,
                               uint32_t stage)
{
	void *arguments[] = { &l->jobs, &l->tables, &stage };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < MODEL_KERNELS && !ret; i++) {
		const struct kvi_launch k = { model_kernels[i].features, l->n, 1, KVI_BLOCK, 0, 1 };
		if (needs->features[i])
			ret = kvi_batch_kernel(l, &k, arguments);
	}
	return ret;
}

/* The chunks of a stage, which is behind those that they are predicted from. *more: there are
 * chunks of later ones. */
static kvarc_ret decode_stage(struct kvi_batch_launch *l, const struct kvi_planned_chunk *c,
                              size_t n, uint32_t stage, bool *more)
{
	struct stage_needs needs = { 0 };
	*more = false;
	for (size_t i = 0; i < n; i++) {
		*more |= c[i].job.stage > stage;
		if (c[i].job.stage == stage && c[i].job.linear)
			add_needs(&needs, &c[i].job);
	}
	const struct lossy_needs lossy = find_lossy(c, n, stage);
	kvarc_ret ret = needs.warps.sums ? decode_models(l, &needs, stage) : KVARC_OK;
	if (ret == KVARC_OK && lossy.blocks)
		ret = decode_lossy(l, &lossy, stage);
	if (ret == KVARC_OK)
		ret = finish_stage(l, stage);
	if (ret == KVARC_OK)
		ret = find_features(l, &needs, stage);
	return ret ? ret : answer_stage(l, stage);
}

/* ----- layers ------------------------------------------------ */

static struct kvi_batch_launch launch_of(struct kvarc_device_plan *p, size_t first, size_t end,
                                         void *stream)
{
	return (struct kvi_batch_launch){ .d = p->d,
		                          .stream = stream,
		                          .jobs = p->staging + p->jobs_at +
		                                  first * sizeof(struct kvi_gpu_chunk),
		                          .status = p->status + first * sizeof(uint32_t),
		                          .tables = p->staging + p->tables_at,
		                          .n = (uint32_t)(end - first) };
}

/* The chunks number first to end - 1, which are of one layer. */
static kvarc_ret decode_chunks(struct kvarc_device_plan *p, size_t first, size_t end, void *stream)
{
	const struct kvi_planned_chunk *c = p->chunks.p;
	const bool predicted = kvi_plan_engine_predicts(p, c[first].layer);
	struct kvi_batch_launch l = launch_of(p, first, end, stream);
	kvarc_ret ret = open_chunks(&l);
	if (ret == KVARC_OK && predicted)
		ret = kvi_batch_expect(&l);
	if (ret == KVARC_OK)
		ret = decode_streams(&l, c + first, end - first);
	bool more = true;
	for (uint32_t stage = 0; more && !ret; stage++)
		ret = decode_stage(&l, c + first, end - first, stage, &more);
	if (ret == KVARC_OK)
		ret = scatter_chunks(&l);
	if (ret || !predicted || !p->engine.of.closed)
		return ret;
	return kvi_batch_observe(&l, p->engine.model->m.width);
}

/* The end of a launch from chunk `first` on: of the layer, or, of very many chunks, of a segment,
 * as chunks of one segment are predicted from each other. */
static size_t launch_end(const struct kvi_planned_chunk *c, size_t first, size_t end)
{
	size_t next = first + 1;
	while (next < end && c[next].layer == c[first].layer && next - first < KVI_CHUNKS_MOST &&
	       (next - first < KVI_CHUNKS_MOST / 2 || c[next].t0 == c[next - 1].t0))
		next++;
	return next;
}

/* What is lost of a layer that is done. */
static kvarc_ret lose_chunks(struct kvarc_device_plan *p, size_t first, size_t end, void *stream)
{
	const struct kvi_planned_chunk *c = p->chunks.p;
	kvarc_ret ret = KVARC_OK;
	for (size_t next; first < end && !ret; first = next) {
		next = launch_end(c, first, end);
		struct kvi_batch_launch l = launch_of(p, first, next, stream);
		ret = kvi_batch_lose(&l);
	}
	return ret;
}

/* Chunks number first to end - 1 are those of a layer; `more` layers follow in the plan. */
static kvarc_ret decode_layer(struct kvarc_device_plan *p, size_t first, size_t end, bool more,
                              void *stream)
{
	const struct kvi_planned_chunk *c = p->chunks.p;
	const uint32_t layer = c[first].layer;
	const bool predicted = kvi_plan_engine_predicts(p, layer);
	struct kvi_batch_launch none = launch_of(p, first, first, stream);
	kvarc_ret ret = predicted && !layer
	                        ? kvi_batch_lose_nothing(&none, p->work + p->engine.lost)
	                        : KVARC_OK;
	if (ret == KVARC_OK && predicted)
		ret = kvi_plan_engine_enter(p, layer, stream);
	for (size_t at = first, next; at < end && !ret; at = next) {
		next = launch_end(c, at, end);
		ret = decode_chunks(p, at, next, stream);
	}
	if (ret || !predicted || !more)
		return ret;
	ret = p->engine.of.closed ? lose_chunks(p, first, end, stream)
	                          : kvi_plan_engine_turn(p, layer, stream);
	return ret ? ret : kvi_plan_engine_leave(p, layer, stream);
}

static size_t layer_end(const struct kvi_planned_chunk *c, size_t first, size_t end)
{
	size_t next = first + 1;
	while (next < end && c[next].layer == c[first].layer)
		next++;
	return next;
}

kvarc_ret kvarc_device_decode(kvarc_device_plan *p, uint32_t layer0, uint32_t n_layers,
                              void *stream)
{
	static const char call[] = "kvarc_device_decode";
	size_t first, end;
	kvarc_ret ret = kvi_plan_check_use(p, call, false);
	if (ret)
		return ret;
	if (!p->staging || !p->work)
		return kvi_fail(p->d->error, KVARC_PROG,
		                "%s: call kvarc_device_stage and kvarc_device_place before it",
		                call);
	ret = kvi_plan_layers(p, call, layer0, n_layers, &first, &end);
	if (ret == KVARC_OK)
		ret = kvi_plan_check_order(p, layer0, call);
	if (ret == KVARC_OK)
		ret = kvi_device_enter(p->d);
	if (ret)
		return ret;
	const struct kvi_planned_chunk *c = p->chunks.p;
	for (size_t next; first < end && !ret; first = next) {
		next = layer_end(c, first, end);
		ret = decode_layer(p, first, next, next < p->chunks.n, stream);
	}
	kvi_device_leave(p->d);
	if (ret == KVARC_OK)
		kvi_plan_next_layer(p, layer0, n_layers);
	return ret;
}
