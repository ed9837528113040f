/* SPDX-License-Identifier: BSD-3-Clause */
/* driver_stand_in.cc - the kernels of the driver's stand-in (stand_in_calls.cc) but the engine's */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "stand_in_grid.h"

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

const kernel *find_kernel(const char *name)
{
	for (const kernel &k : kernels)
		if (!strcmp(k.name, name))
			return &k;
	return exact_kernel(name);
}
