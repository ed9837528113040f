/* SPDX-License-Identifier: BSD-3-Clause */
/* device_decode.c - launches the kernels that decode layers of a plan, and reads their answers */
#include "config.h"

#include "plan_state.h"

#include "format/codec_ids.h"
#include "util/error.h"

/* ----- the kernels of a batch ------------------------------------------------ */

/* Chunks of a layer on their way: their jobs lie one behind the other. */
struct batch_launch {
	struct kvarc_device *d;
	void *stream;
	uint64_t jobs, status; /* addresses of those of the first chunk */
	uint64_t tables;       /* address of struct kvi_gpu_tables */
	uint32_t n;
};

static kvarc_ret launch(const struct batch_launch *batch_launch, const struct kvi_launch *k,
                        void **arguments)
{
	return kvi_device_launch(batch_launch->d, batch_launch->d->module, k, arguments,
	                         batch_launch->stream);
}

static kvarc_ret open_chunks(struct batch_launch *batch_launch)
{
	void *arguments[] = { &batch_launch->jobs, &batch_launch->n };
	const struct kvi_launch k = {
		"kvi_gpu_open", kvi_blocks_of(batch_launch->n), 1, KVI_SMALL_BLOCK, 0, 1
	};
	return launch(batch_launch, &k, arguments);
}

static kvarc_ret finish_chunks(struct batch_launch *batch_launch)
{
	void *of_finish[] = { &batch_launch->jobs };
	const struct kvi_launch finish = { "kvi_gpu_finish", batch_launch->n, 1, KVI_BLOCK, 0, 1 };
	return launch(batch_launch, &finish, of_finish);
}

static kvarc_ret answer_chunks(struct batch_launch *batch_launch)
{
	void *of_answer[] = { &batch_launch->jobs, &batch_launch->n, &batch_launch->status };
	const struct kvi_launch answer = {
		"kvi_gpu_answer", kvi_blocks_of(batch_launch->n), 1, KVI_SMALL_BLOCK, 0, 1
	};
	return launch(batch_launch, &answer, of_answer);
}

static kvarc_ret scatter_chunks(struct batch_launch *batch_launch)
{
	void *of_jobs[] = { &batch_launch->jobs };
	const struct kvi_launch scatter = { "kvi_gpu_scatter",
		                            kvi_blocks_of(KVI_GPU_TOKENS),
		                            batch_launch->n,
		                            KVI_SMALL_BLOCK,
		                            0,
		                            1 };
	return launch(batch_launch, &scatter, of_jobs);
}

/* Kernels of codecs with streams, one for a format: those of kvi_plan_has_kernel. Each leaves the
 * chunks of others alone. */
struct stream_kernel {
	const char *name, *contexts; /* contexts: one that runs before it; NULL: none */
	uint32_t codec, dtype;
};
static const struct stream_kernel stream_kernels[] = {
	{ "kvi_gpu_layers_f16", NULL, KVI_CODEC_LAYERS, KVARC_F16 },
	{ "kvi_gpu_layers_bf16", NULL, KVI_CODEC_LAYERS, KVARC_BF16 },
	{ "kvi_gpu_layers_e4m3", NULL, KVI_CODEC_LAYERS, KVARC_E4M3 },
	{ "kvi_gpu_grid_f16", "kvi_gpu_contexts_f16", KVI_CODEC_GRID, KVARC_F16 },
	{ "kvi_gpu_grid_bf16", "kvi_gpu_contexts_bf16", KVI_CODEC_GRID, KVARC_BF16 },
	{ "kvi_gpu_grid_e4m3", "kvi_gpu_contexts_e4m3", KVI_CODEC_GRID, KVARC_E4M3 },
	{ "kvi_gpu_cells_f16", NULL, KVI_CODEC_CELLS, KVARC_F16 },
	{ "kvi_gpu_cells_bf16", NULL, KVI_CODEC_CELLS, KVARC_BF16 },
};

/* Bytes of shared memory of the tables of codec grid, and its chunks per block; entries of a ring
 * of channels beyond their number. */
enum { GRID_BYTES = 192 * 41 * 4 + 64 * 4 + 192 * 256, GRID_CHUNKS = 2, RING_MORE = 127 + 128 };

/* The channels of the largest chunk of a kernel; 0: it has none. */
static uint32_t most_channels(const struct stream_kernel *kernel,
                              const struct kvi_planned_chunk *chunk, size_t n)
{
	uint32_t most = 0;
	for (size_t i = 0; i < n; i++) {
		const struct kvi_gpu_chunk *j = &chunk[i].job;
		const uint32_t channels = j->heads * j->head_channels;
		if (j->codec == kernel->codec && j->dtype == kernel->dtype && channels > most)
			most = channels;
	}
	return most;
}

/* A block a chunk. */
static kvarc_ret decode_blocks(struct batch_launch *batch_launch,
                               const struct stream_kernel *kernel)
{
	const struct kvi_launch k = { kernel->name, batch_launch->n, 1, KVI_BLOCK, 0, 1 };
	void *arguments[] = { &batch_launch->jobs,
		              &batch_launch->tables }; /* codec cells alone takes the second */
	return launch(batch_launch, &k, arguments);
}

static kvarc_ret decode_grid(struct batch_launch *batch_launch, const struct stream_kernel *kernel,
                             uint32_t channels)
{
	const uint32_t warps = (channels + RING_MORE + KVI_WARP - 1) / KVI_WARP;
	const struct kvi_launch contexts = {
		kernel->contexts, kvi_blocks_of(warps), batch_launch->n, KVI_SMALL_BLOCK, 0, 1
	};
	const struct kvi_launch k = { kernel->name,
		                      (batch_launch->n + GRID_CHUNKS - 1) / GRID_CHUNKS,
		                      1,
		                      GRID_CHUNKS * KVI_BLOCK,
		                      GRID_BYTES,
		                      1 };
	void *of_contexts[] = { &batch_launch->jobs, &batch_launch->tables },
	     *of_grid[] = { &batch_launch->jobs, &batch_launch->n, &batch_launch->tables };
	kvarc_ret ret = launch(batch_launch, &contexts, of_contexts);
	return ret ? ret : launch(batch_launch, &k, of_grid);
}

static kvarc_ret decode_streams(struct batch_launch *launch, const struct kvi_planned_chunk *chunk,
                                size_t n)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t k = 0; k < sizeof stream_kernels / sizeof *stream_kernels && !ret; k++) {
		const struct stream_kernel *s = &stream_kernels[k];
		const uint32_t channels = most_channels(s, chunk, n);
		if (channels)
			ret = s->contexts ? decode_grid(launch, s, channels)
			                  : decode_blocks(launch, s);
	}
	return ret;
}

/* ----- layers ------------------------------------------------ */

static struct batch_launch launch_of(struct kvarc_device_plan *plan, size_t first, size_t end,
                                     void *stream)
{
	return (struct batch_launch){ .d = plan->d,
		                      .stream = stream,
		                      .jobs = plan->staging + plan->jobs_at +
		                              first * sizeof(struct kvi_gpu_chunk),
		                      .status = plan->status + first * sizeof(uint32_t),
		                      .tables = plan->staging + plan->tables_at,
		                      .n = (uint32_t)(end - first) };
}

/* The chunks number first to end - 1, which are of one layer. */
static kvarc_ret decode_chunks(struct kvarc_device_plan *plan, size_t first, size_t end,
                               void *stream)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	struct batch_launch l = launch_of(plan, first, end, stream);
	kvarc_ret ret = open_chunks(&l);
	if (ret == KVARC_OK)
		ret = decode_streams(&l, c + first, end - first);
	if (ret == KVARC_OK)
		ret = finish_chunks(&l);
	if (ret == KVARC_OK)
		ret = answer_chunks(&l);
	return ret ? ret : scatter_chunks(&l);
}

/* The end of a launch from chunk `first` on: of the layer, or of as many chunks as a launch
 * takes. */
static size_t launch_end(const struct kvi_planned_chunk *chunk, size_t first, size_t end)
{
	size_t next = first + 1;
	while (next < end && chunk[next].layer == chunk[first].layer &&
	       next - first < KVI_CHUNKS_MOST)
		next++;
	return next;
}

/* Whether the chunks before number `end` are staged; PROG: they are not. */
static kvarc_ret check_staged(const struct kvarc_device_plan *plan, const char *call, size_t end)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	if (!end || c[end - 1].layer < plan->staged_to)
		return KVARC_OK;
	return kvi_fail(plan->d->error, KVARC_PROG, "%s: layer %u was not staged", call,
	                (unsigned)c[end - 1].layer);
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
	if (!ret)
		ret = check_staged(p, call, end);
	if (ret == KVARC_OK)
		ret = kvi_device_enter(p->d);
	if (ret)
		return ret;
	const struct kvi_planned_chunk *c = p->chunks.p;
	for (size_t next; first < end && !ret; first = next) {
		next = launch_end(c, first, end);
		ret = decode_chunks(p, first, next, stream);
	}
	kvi_device_leave(p->d);
	return ret;
}
