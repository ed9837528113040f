/* SPDX-License-Identifier: BSD-3-Clause */
/* device_encode.c - launches the kernels that encode layers of a plan */
#include "config.h"

#include "plan_state.h"

#include "util/error.h"

/* Sizes of shared memory: entries of the tables, twice, and of tokens; of a ring beyond the
 * channels. Chunks per block. */
enum { GRID_ENTRIES = 192 * 41, GRID_TOKENS = 64, RING_MORE = 127 + 128, GRID_CHUNKS = 2 };

/* Outputs of a layer on their way: their jobs lie one behind the other. */
struct output_launch {
	struct kvarc_device *d;
	void *stream;
	uint64_t jobs, answers; /* addresses of those of the first output */
	uint64_t tables;        /* address of struct kvi_gpu_tables */
	const struct kvi_output_chunk *outputs;
	uint32_t n, channels; /* channels: of the largest chunk */
};

static kvarc_ret launch(struct output_launch *output_launch, const char *name, uint32_t grid_x,
                        uint32_t grid_y, uint32_t threads, uint32_t shared, void **arguments)
{
	const struct kvi_launch k = { name, grid_x, grid_y, threads, shared, 1 };
	return kvi_device_launch(output_launch->d, output_launch->d->encoders, &k, arguments,
	                         output_launch->stream);
}

/* A kernel that takes a number of warps a chunk. */
static kvarc_ret launch_each(struct output_launch *output_launch, const char *name, uint32_t warps)
{
	void *arguments[] = { &output_launch->jobs,
		              &output_launch->tables }; /* contexts alone take the second */
	return launch(output_launch, name, kvi_blocks_of(warps), output_launch->n, KVI_SMALL_BLOCK,
	              0, arguments);
}

/* A kernel that takes a warp a chunk. */
static kvarc_ret launch_one(struct output_launch *output_launch, const char *name)
{
	void *arguments[] = { &output_launch->jobs, &output_launch->n, &output_launch->answers };
	return launch(output_launch, name, kvi_blocks_of(output_launch->n), 1, KVI_SMALL_BLOCK, 0,
	              arguments);
}

/* A kernel that takes a block a chunk, a warp a stream. */
static kvarc_ret launch_blocks(struct output_launch *output_launch, const char *name)
{
	void *arguments[] = { &output_launch->jobs };
	return launch(output_launch, name, output_launch->n, 1, KVI_BLOCK, 0, arguments);
}

static bool has(const struct output_launch *launch, uint32_t dtype)
{
	for (uint32_t i = 0; i < launch->n; i++)
		if (launch->outputs[i].job.job.dtype == dtype)
			return true;
	return false;
}

/* Collects elements and removes those that are masked. */
static kvarc_ret launch_mask(struct output_launch *launch)
{
	kvarc_ret ret = launch_each(launch, "kvi_gpu_collect", KVI_GPU_TOKENS);
	if (!ret)
		ret = launch_each(launch, "kvi_gpu_find_channels",
		                  (launch->channels + KVI_WARP - 1) / KVI_WARP);
	if (!ret)
		ret = launch_one(launch, "kvi_gpu_list_columns");
	if (!ret)
		ret = launch_each(launch, "kvi_gpu_find_rows", KVI_GPU_TOKENS);
	if (!ret)
		ret = launch_one(launch, "kvi_gpu_write_section");
	return ret ? ret : launch_each(launch, "kvi_gpu_gather", KVI_GPU_TOKENS);
}

/* Names of the kernels of a format. Each leaves the chunks of others alone. */
struct output_kernels {
	uint32_t dtype;
	const char *contexts, *choose, *encode;
};
#define KERNELS(dtype, f)                                                      \
	{                                                                      \
		dtype, "kvi_gpu_encode_contexts_" f, "kvi_gpu_choose_grid_" f, \
			"kvi_gpu_encode_grid_" f                               \
	}
static const struct output_kernels output_kernels[] = {
	KERNELS(KVARC_E4M3, "e4m3"),
};
enum { KERNELS_N = sizeof output_kernels / sizeof *output_kernels };

/* ----- streams ------------------------------------------------ */

/* Contexts and streams of a format. */
static kvarc_ret encode_format(struct output_launch *output_launch,
                               const struct output_kernels *kernels)
{
	enum { THREADS = GRID_CHUNKS * KVI_BLOCK, CHOSEN = THREADS / KVI_WARP };
	const uint32_t shared = (2 * GRID_ENTRIES + GRID_TOKENS) * 4;
	void *arguments[] = { &output_launch->jobs, &output_launch->n, &output_launch->tables };
	kvarc_ret ret =
		launch_each(output_launch, kernels->contexts,
	                    (output_launch->channels + RING_MORE + KVI_WARP - 1) / KVI_WARP);
	if (!ret)
		ret = launch(output_launch, kernels->choose,
		             (output_launch->n + CHOSEN - 1) / CHOSEN, 1, THREADS, shared,
		             arguments);
	return ret ? ret
	           : launch(output_launch, kernels->encode,
	                    (output_launch->n + GRID_CHUNKS - 1) / GRID_CHUNKS, 1, THREADS, shared,
	                    arguments);
}

static kvarc_ret launch_streams(struct output_launch *launch)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < KERNELS_N && !ret; i++)
		if (has(launch, output_kernels[i].dtype))
			ret = encode_format(launch, &output_kernels[i]);
	return ret;
}

/* Payloads and answers. */
static kvarc_ret launch_payloads(struct output_launch *launch)
{
	kvarc_ret ret = launch_blocks(launch, "kvi_gpu_checks");
	if (!ret)
		ret = launch_blocks(launch, "kvi_gpu_put");
	return ret ? ret : launch_one(launch, "kvi_gpu_encoded");
}

/* ----- layers ------------------------------------------------ */

/* The outputs number first to end - 1, which are of one layer. */
static struct output_launch launch_of(const struct kvarc_device_plan *plan, size_t first,
                                      size_t end, void *stream)
{
	const struct kvi_output_chunk *c = plan->outputs.p;
	return (struct output_launch){
		.d = plan->d,
		.stream = stream,
		.jobs = plan->staging + plan->jobs_at + first * sizeof(struct kvi_gpu_encode),
		.answers = plan->status + first * sizeof(struct kvi_gpu_encoded),
		.tables = plan->staging + plan->tables_at,
		.outputs = c + first,
		.n = (uint32_t)(end - first)
	};
}

static kvarc_ret encode_chunks(struct kvarc_device_plan *plan, size_t first, size_t end,
                               void *stream)
{
	struct kvi_output_chunk *c = plan->outputs.p;
	struct output_launch l = launch_of(plan, first, end, stream);
	for (size_t i = first; i < end; i++) {
		const uint32_t channels = c[i].job.job.heads * c[i].job.job.head_channels;
		l.channels = channels > l.channels ? channels : l.channels;
	}
	kvarc_ret ret = launch_mask(&l);
	if (!ret)
		ret = launch_streams(&l);
	if (!ret)
		ret = launch_payloads(&l);
	for (size_t i = first; i < end && !ret; i++)
		c[i].launched = true;
	return ret;
}

/* The end of a launch: of the layer, or of as many chunks as a launch takes. */
static size_t launch_end(const struct kvarc_device_plan *plan, size_t first)
{
	const struct kvi_output_chunk *c = plan->outputs.p;
	size_t next = first + 1;
	while (next < plan->outputs.n && c[next].layer == c[first].layer &&
	       next - first < KVI_CHUNKS_MOST)
		next++;
	return next;
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
		ret = kvi_device_enter(p->d);
	if (ret)
		return ret;
	const struct kvi_output_chunk *c = p->outputs.p;
	for (size_t first = 0, next; first < p->outputs.n && !ret; first = next) {
		next = launch_end(p, first);
		if (c[first].layer >= layer0 && c[first].layer < stop)
			ret = encode_chunks(p, first, next, stream);
	}
	kvi_device_leave(p->d);
	return ret;
}
