/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * driver_stand_in.cc - stands for NVIDIA's driver in tests, where there is no GPU: a mock, in whose
 * "device" memory is the host's and kernels are the real ones, run on the host (gpu/warp.h)
 *
 * The environment variable KVARC_STAND_IN has what is to go wrong: "no-gpu", "no-binary",
 * "no-memory" (copies to the device fail), "little-memory" (those of more than 1 MiB do),
 * "other-products" (of the exact engine, by a bit), "no-launch", "no-fetch" (copies from it fail),
 * "one-payload" (only one copy of more than 4 KiB from it does not fail).
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "stand_in_grid.h"

/* Results of the driver (cuda.h). */
enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, NO_BINARY = 209,
       NOT_FOUND = 500, LAUNCH_FAILED = 719 };

static bool wanted(const char *fault)
{
	const char *x = getenv("KVARC_STAND_IN");
	return x && !strcmp(x, fault);
}

/* ----- kernels ------------------------------------------------ */

/* Shared memory of a block, with the bytes that the launch gave it. */
struct shared_words {
	uint32_t *p;
	size_t n;
	explicit shared_words(const grid &g)
		: p((uint32_t *)aligned_alloc(16, (g.shared_bytes + 15) / 16 * 16)),
		  n(g.shared_bytes / 4)
	{
	}
	~shared_words()
	{
		free(p);
	}
	shared_words(const shared_words &) = delete;
	shared_words &operator=(const shared_words &) = delete;
	span<uint32_t> at(size_t from, size_t count) const
	{
		if (from + count > n)
			kvi_gpu_host_fault("shared memory", from, count, n);
		return span_at<uint32_t>((uint64_t)(uintptr_t)(p + from), count);
	}
};

static void run_kvi_gpu_decode(const grid &g)
{
	const kvi_gpu_batch batch = argument<kvi_gpu_batch>(g, 0);
	const shared_words shared(g);
	host_decode(&batch, g.x, shared.at(0, shared.n));
}

/* ----- kernels that encode ------------------------------------------------ */

static bool is_open(const kvi_gpu_encode *e)
{
	return encoding_of(e)->o.status == KVI_GPU_OPEN;
}

/* Calls a step for each chunk (g.y) and each of the grid's warps below `limit` of it. */
template <typename L, typename F> static void each_output(const grid &g, L limit, F step)
{
	for (uint32_t i = 0; i < g.y; i++)
		for (uint32_t w = 0; w < g.x * g.warps; w++)
			if (w < limit(&outputs_of(g)[i]))
				step(&outputs_of(g)[i], w);
}
#define BY_SIZE(e, call, argument)                      \
	do {                                            \
		if (element_bytes((e)->job.dtype) == 1) \
			call<1>(e, argument);           \
		else                                    \
			call<2>(e, argument);           \
	} while (0)

static uint32_t tokens_of(const kvi_gpu_encode *e)
{
	return e->job.tokens;
}
static uint32_t channel_groups(const kvi_gpu_encode *e)
{
	return (channels_of(e) + 31) / 32;
}
static uint32_t open_rows(const kvi_gpu_encode *e)
{
	return is_open(e) ? encoding_of(e)->o.rows : 0;
}
static void run_kvi_gpu_collect(const grid &g)
{
	each_output(g, tokens_of, [](const kvi_gpu_encode *e, uint32_t w) {
		if (element_bytes(e->job.dtype) == 4)
			collect_token<4>(e, w);
		else
			BY_SIZE(e, collect_token, w);
	});
}
static void run_kvi_gpu_find_channels(const grid &g)
{
	each_output(g, channel_groups, [](const kvi_gpu_encode *e, uint32_t w) {
		BY_SIZE(e, find_channels, w);
	});
}
static void run_kvi_gpu_list_columns(const grid &g)
{
	for (uint32_t i = 0; i < argument<uint32_t>(g, 1) && i < g.x * g.warps; i++)
		list_columns(&outputs_of(g)[i]);
}
static void run_kvi_gpu_find_rows(const grid &g)
{
	each_output(g, tokens_of, [](const kvi_gpu_encode *e, uint32_t w) {
		BY_SIZE(e, find_row, w);
	});
}
static void run_kvi_gpu_write_section(const grid &g)
{
	for (uint32_t i = 0; i < argument<uint32_t>(g, 1) && i < g.x * g.warps; i++) {
		const kvi_gpu_encode *e = &outputs_of(g)[i];
		if (element_bytes(e->job.dtype) == 1)
			write_section<1>(e);
		else
			write_section<2>(e);
	}
}
static void run_kvi_gpu_gather(const grid &g)
{
	each_output(g, open_rows, [](const kvi_gpu_encode *e, uint32_t w) {
		BY_SIZE(e, gather_row, w);
	});
}
template <int D> static void run_kvi_gpu_encode_contexts(const grid &g)
{
	const kvi_gpu_tables *tables =
		(const kvi_gpu_tables *)(uintptr_t)argument<uint64_t>(g, 1);
	for (uint32_t i = 0; i < g.y; i++)
		for (uint32_t w = 0; w < g.x * g.warps; w++)
			if (runs(&outputs_of(g)[i].job, CODEC_GRID, D))
				run_contexts<D>(&outputs_of(g)[i].job, tables, w);
}

template <int D, bool CHOOSE> static void run_grid_encode(const grid &g)
{
	const uint32_t entries = GRID_TABLES * GRID_SYMBOLS, n = argument<uint32_t>(g, 1);
	const uint32_t each = CHOOSE ? 1 : KVI_GPU_STREAMS;
	const kvi_gpu_tables *tables =
		(const kvi_gpu_tables *)(uintptr_t)argument<uint64_t>(g, 2);
	const shared_words shared(g);
	const encode_shared t = { shared.at(0, entries),
		                  shared.at(entries, entries),
		                  { shared.at(0, entries), shared.at(2 * entries, 64), {} } };
	for (uint32_t w = 0; w < g.warps; w++)
		grid_codes(&t.grid, tables, w, g.warps);
	for (uint32_t w = 0; w < g.warps; w++)
		inverse_tables(&t, entries, w, g.warps);
	for (uint32_t w = 0; w < g.x * g.warps; w++) {
		const kvi_gpu_encode *e = &outputs_of(g)[w / each];
		if (w / each >= n || !runs(&e->job, CODEC_GRID, D))
			continue;
		if (CHOOSE)
			choose_streams<D>(e, &t);
		else if (w % each < encoding_of(e)->o.n_streams)
			encode_stream<D>(e, &t, w % each);
	}
}
static void run_kvi_gpu_checks(const grid &g)
{
	for (uint32_t i = 0; i < g.x; i++)
		for (uint32_t w = 0; w < g.warps; w++)
			if (is_open(&outputs_of(g)[i]) &&
			    w < encoding_of(&outputs_of(g)[i])->o.n_streams)
				check_stream(&outputs_of(g)[i], w);
}
static void run_kvi_gpu_put(const grid &g)
{
	for (uint32_t i = 0; i < g.x; i++)
		for (uint32_t w = 0; w < g.warps; w++)
			if (is_open(&outputs_of(g)[i]) &&
			    w < encoding_of(&outputs_of(g)[i])->o.n_streams)
				put_stream(&outputs_of(g)[i], w);
}
static void run_kvi_gpu_encoded(const grid &g)
{
	kvi_gpu_encoded *answers = (kvi_gpu_encoded *)(uintptr_t)argument<uint64_t>(g, 2);
	for (uint32_t i = 0; i < argument<uint32_t>(g, 1) && i < g.x * g.warps; i++)
		answer_encoded(&outputs_of(g)[i], &answers[i]);
}

/* ----- all kernels ------------------------------------------------ */

static const kernel kernels[] = {
	{ "kvi_gpu_decode", run_kvi_gpu_decode },
	{ "kvi_gpu_collect", run_kvi_gpu_collect },
	{ "kvi_gpu_find_channels", run_kvi_gpu_find_channels },
	{ "kvi_gpu_list_columns", run_kvi_gpu_list_columns },
	{ "kvi_gpu_find_rows", run_kvi_gpu_find_rows },
	{ "kvi_gpu_write_section", run_kvi_gpu_write_section },
	{ "kvi_gpu_gather", run_kvi_gpu_gather },
	{ "kvi_gpu_checks", run_kvi_gpu_checks },
	{ "kvi_gpu_put", run_kvi_gpu_put },
	{ "kvi_gpu_encoded", run_kvi_gpu_encoded },
#define ENCODERS(f, D)                                                             \
	{ "kvi_gpu_encode_contexts_" f, run_kvi_gpu_encode_contexts<D> },          \
		{ "kvi_gpu_choose_grid_" f, run_grid_encode<D, true> },            \
	{                                                                          \
		"kvi_gpu_encode_grid_" f, run_grid_encode<D, false>                \
	}
	ENCODERS("e4m3", 4),
};

static const kernel *find_kernel(const char *name)
{
	for (const kernel &k : kernels)
		if (!strcmp(k.name, name))
			return &k;
	return exact_kernel(name);
}

/* ----- the driver ------------------------------------------------ */

/* Contexts: one of the caller, one that is primary. How many are on the stack, and retained. */
static int a_context, primary_context, modules;
static int pushed, retained;
static uint64_t copied, waits; /* bytes to the device; for streams */
static uint64_t launches;

extern "C" {

int cuInit(unsigned)
{
	return wanted("no-gpu") ? NO_DEVICE : SUCCESS;
}
int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return SUCCESS;
}
int cuGetErrorName(int result, const char **name)
{
	*name = result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_STAND_IN";
	return SUCCESS;
}
int cuGetErrorString(int, const char **text)
{
	*text = "as the test wanted";
	return SUCCESS;
}
int cuDeviceGetCount(int *n)
{
	*n = 1;
	return SUCCESS;
}
int cuDeviceGet(int *device, int ordinal)
{
	*device = 7;
	return ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int bytes, int)
{
	snprintf(name, (size_t)bytes, "stand-in of a GPU");
	return SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *bytes, int)
{
	*bytes = (size_t)1 << 30;
	return SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int)
{
	*value = attribute == 75 ? 9 : attribute == 76 ? 0 : 132;
	return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int)
{
	*context = &primary_context;
	retained++;
	return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int)
{
	retained--;
	return SUCCESS;
}
int cuCtxPushCurrent_v2(void *context)
{
	if (context != &primary_context && context != &a_context)
		return INVALID_DEVICE;
	pushed++;
	return SUCCESS;
}
int cuCtxPopCurrent_v2(void **context)
{
	*context = &primary_context;
	pushed--;
	return SUCCESS;
}
int cuCtxGetDevice(int *device)
{
	*device = 7;
	return pushed ? SUCCESS : INVALID_DEVICE;
}
int cuModuleLoadData(void **module, const void *)
{
	*module = &modules;
	modules += !wanted("no-binary");
	return !pushed ? INVALID_DEVICE : wanted("no-binary") ? NO_BINARY : SUCCESS;
}
int cuModuleUnload(void *)
{
	modules--;
	return pushed ? SUCCESS : INVALID_DEVICE;
}
int cuModuleGetFunction(void **function, void *, const char *name)
{
	const kernel *found = find_kernel(name);
	*function = (void *)(uintptr_t)found;
	return found ? SUCCESS : NOT_FOUND;
}
int cuFuncSetAttribute(void *, int, int)
{
	return SUCCESS;
}
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned, unsigned, unsigned shared_bytes, void *,
                   void **arguments, void **)
{
	if (!pushed || wanted("no-launch"))
		return LAUNCH_FAILED;
	launches++;
	const grid g = { grid_x, grid_y, grid_z, block_x / 32, shared_bytes, arguments };
	((const kernel *)function)->run(g);
	return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *)
{
	if (!pushed || wanted("no-memory"))
		return OUT_OF_MEMORY;
	memcpy((void *)(uintptr_t)to, from, bytes);
	copied += bytes;
	return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *)
{
	static int payloads;
	payloads = wanted("one-payload") ? payloads + (bytes > 4096) : 0;
	if (!pushed || wanted("no-fetch") || payloads > 1)
		return INVALID_DEVICE;
	memcpy(to, (const void *)(uintptr_t)from, bytes);
	return SUCCESS;
}
int cuStreamSynchronize(void *)
{
	waits++;
	return SUCCESS;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
	const bool none = wanted("no-memory") || (wanted("little-memory") && bytes > 1 << 20);
	void *p = none ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
	if (!p)
		return OUT_OF_MEMORY;
	memset(p, 0xa5, bytes);
	*address = (uint64_t)(uintptr_t)p;
	retained++;
	return SUCCESS;
}
int cuMemFree_v2(uint64_t address)
{
	free((void *)(uintptr_t)address);
	retained--;
	return SUCCESS;
}

/* For tests: a context of the caller; how much is still held; bytes that were copied to the device,
 * waits for streams, and launches since the last call. */
void *stand_in_context(void)
{
	return &a_context;
}
void *stand_in_left(void)
{
	return (void *)(intptr_t)(pushed + retained + modules);
}
void *stand_in_copied(void)
{
	const uint64_t n = copied;
	copied = 0;
	return (void *)(uintptr_t)n;
}
void *stand_in_waits(void)
{
	const uint64_t n = waits;
	waits = 0;
	return (void *)(uintptr_t)n;
}
void *stand_in_launches(void)
{
	const uint64_t n = launches;
	launches = 0;
	return (void *)(uintptr_t)n;
}
}
