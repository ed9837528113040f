/* SPDX-License-Identifier: BSD-3-Clause */
/* device_encode_lossy.c - launches the kernels that encode chunks of lossy tiers */
#include "config.h"

#include "output_launch.h"

#include "format/codec_ids.h"

/* Kernels of a format. Each leaves the chunks of others alone. */
static const struct lossy_output_kernels {
	uint32_t dtype;
	const char *numbers, *elements;
} lossy_output_kernels[] = {
	{ KVARC_F32, "kvi_gpu_encode_numbers_f32", "kvi_gpu_encode_elements_f32" },
	{ KVARC_F16, "kvi_gpu_encode_numbers_f16", "kvi_gpu_encode_elements_f16" },
	{ KVARC_BF16, "kvi_gpu_encode_numbers_bf16", "kvi_gpu_encode_elements_bf16" },
	{ KVARC_E4M3, "kvi_gpu_encode_numbers_e4m3", "kvi_gpu_encode_elements_e4m3" },
	{ KVARC_E5M2, "kvi_gpu_encode_numbers_e5m2", "kvi_gpu_encode_elements_e5m2" },
};
enum { FORMATS_N = sizeof lossy_output_kernels / sizeof *lossy_output_kernels };

/* The most warps that a chunk has of each step, and 32 tokens of it. */
struct lossy_warps {
	uint32_t turns, heads, sums, tiles, blocks;
	bool lossy, klt;
	bool dtype[FORMATS_N];
};

static void at_least(uint32_t *most, uint32_t n)
{
	*most = n > *most ? n : *most;
}

/* Those of the chunks of a stage. */
static struct lossy_warps find_warps(const struct kvi_output_launch *l, uint32_t stage)
{
	enum { PANEL = KVI_GPU_PANEL };
	struct lossy_warps w = { 0 };
	for (uint32_t i = 0; i < l->n; i++) {
		const struct kvi_gpu_chunk *j = &l->outputs[i].job.job;
		const uint32_t groups = (j->heads * j->head_channels + KVI_WARP - 1) / KVI_WARP;
		const uint32_t blocks = (j->tokens + KVI_WARP - 1) / KVI_WARP;
		const bool klt = j->codec == KVI_CODEC_KLT;
		if (!kvi_output_is_lossy(j->codec) || j->stage != stage)
			continue;
		w.lossy = true;
		w.klt |= klt;
		at_least(&w.turns, !klt && j->positions ? j->head_channels / 2 : 0);
		at_least(&w.heads, j->heads);
		at_least(&w.sums, j->heads * (klt ? (j->head_channels + PANEL - 1) / PANEL : 1));
		at_least(&w.tiles, blocks * groups + j->tokens);
		at_least(&w.blocks, blocks);
		for (size_t k = 0; k < FORMATS_N; k++)
			w.dtype[k] |= lossy_output_kernels[k].dtype == j->dtype;
	}
	return w;
}

/* One launch on its way; arguments are those of the kernel. */
static kvarc_ret launch(const struct kvi_output_launch *l, const char *name, uint32_t warps,
                        uint32_t chunks, uint32_t blocks, void **arguments)
{
	const struct kvi_launch k = {
		name, kvi_blocks_of(warps), chunks, KVI_SMALL_BLOCK, 0, blocks
	};
	return kvi_device_launch(l->d, l->d->encoders, &k, arguments, l->stream);
}

/* A kernel of each format that there is. */
static kvarc_ret launch_formats(const struct kvi_output_launch *l, const struct lossy_warps *w,
                                bool elements, void **arguments)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t k = 0; k < FORMATS_N && !ret; k++) {
		const struct lossy_output_kernels *x = &lossy_output_kernels[k];
		if (w->dtype[k])
			ret = launch(l, elements ? x->elements : x->numbers, w->tiles, l->n, 1,
			             arguments);
	}
	return ret;
}

kvarc_ret kvi_output_launch_tokens(struct kvi_output_launch *l)
{
	void *arguments[] = { &l->jobs, &l->n };
	bool lossy = false;
	for (uint32_t i = 0; i < l->n; i++)
		lossy |= kvi_output_is_lossy(l->outputs[i].job.job.codec);
	if (!lossy)
		return KVARC_OK;
	kvarc_ret ret = launch(l, "kvi_gpu_look_at_tokens", KVI_GPU_TOKENS, l->n, 1, arguments);
	return ret ? ret : launch(l, "kvi_gpu_list_exact", l->n, 1, 1, arguments);
}

/* Elements to codes. */
static kvarc_ret launch_analysis(struct kvi_output_launch *l, const struct lossy_warps *w,
                                 uint32_t stage)
{
	void *of_jobs[] = { &l->jobs, &stage }, *of_tables[] = { &l->jobs, &l->tables, &stage };
	kvarc_ret ret = KVARC_OK;
	if (w->turns)
		ret = launch(l, "kvi_gpu_encode_turns", w->turns, l->n, 1, of_tables);
	if (!ret)
		ret = launch_formats(l, w, false, of_jobs);
	if (!ret && w->klt)
		ret = launch(l, "kvi_gpu_encode_slots", w->heads, l->n, w->blocks, of_jobs);
	return ret ? ret : launch(l, "kvi_gpu_encode_analysis", w->sums, l->n, w->blocks, of_jobs);
}

/* Codes to the elements that a decoder makes. */
static kvarc_ret launch_synthesis(struct kvi_output_launch *l, const struct lossy_warps *w,
                                  uint32_t stage)
{
	void *of_jobs[] = { &l->jobs, &stage };
	kvarc_ret ret = launch(l, "kvi_gpu_encode_points", w->heads, l->n, w->blocks, of_jobs);
	if (!ret)
		ret = launch(l, "kvi_gpu_encode_synthesis", w->sums, l->n, w->blocks, of_jobs);
	return ret ? ret : launch_formats(l, w, true, of_jobs);
}

kvarc_ret kvi_output_launch_lossy(struct kvi_output_launch *l, uint32_t stage)
{
	const struct lossy_warps w = find_warps(l, stage);
	void *of_points[] = { &l->jobs, &l->n, &stage };
	void *of_codes[] = { &l->jobs, &l->n, &l->tables, &stage };
	kvarc_ret ret = KVARC_OK;
	if (w.lossy)
		ret = launch_analysis(l, &w, stage);
	if (!ret && w.lossy)
		ret = launch(l, "kvi_gpu_choose_points", l->n, 1, 1, of_points);
	if (!ret && (w.lossy || l->transforms))
		ret = launch(l, "kvi_gpu_encode_codes", l->n, 1, 1, of_codes);
	return ret || !w.lossy ? ret : launch_synthesis(l, &w, stage);
}
