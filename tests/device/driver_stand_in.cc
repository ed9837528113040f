/* SPDX-License-Identifier: BSD-3-Clause */
/* driver_stand_in.cc - the kernels of the driver's stand-in (stand_in_calls.cc) but the engine's */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "stand_in_grid.h"

/* ----- kernels ------------------------------------------------ */

static void run_kvi_gpu_open(const grid &g)
{
	const uint32_t n = argument<uint32_t>(g, 1);
	for (uint32_t i = 0; i < g.x * g.warps; i++)
		if (i < n)
			run_open(&chunks_of(g)[i]);
}

template <int D> static void run_kvi_gpu_layers(const grid &g)
{
	for (uint32_t i = 0; i < g.x; i++)
		for (uint32_t w = 0; w < g.warps; w++)
			if (runs(&chunks_of(g)[i], CODEC_LAYERS, D))
				run_layers<D>(&chunks_of(g)[i], w);
}

template <int D> static void run_kvi_gpu_contexts(const grid &g)
{
	const kvi_gpu_tables *tables =
		(const kvi_gpu_tables *)(uintptr_t)argument<uint64_t>(g, 1);
	for (uint32_t i = 0; i < g.y; i++)
		for (uint32_t w = 0; w < g.x * g.warps; w++)
			if (runs(&chunks_of(g)[i], CODEC_GRID, D))
				run_contexts<D>(&chunks_of(g)[i], tables, w);
}

/* The shared memory of a block of codec 5. */
struct shared_codes {
	uint8_t *p;
	grid_shared t;
	shared_codes()
	{
		const size_t n_enc = GRID_TABLES * GRID_SYMBOLS, n_first = GRID_TABLES *
		                                                           GRID_FIRSTS;
		p = (uint8_t *)aligned_alloc(16, n_enc * 4 + 64 * 4 + n_first);
		const uint64_t at = (uint64_t)(uintptr_t)p;
		t = grid_shared{ span_at<uint32_t>(at, n_enc),
			         span_at<uint32_t>(at + 4 * n_enc, 64),
			         span_at<uint8_t>(at + 4 * n_enc + 4 * 64, n_first) };
	}
	~shared_codes()
	{
		free(p);
	}
	shared_codes(const shared_codes &) = delete;
	shared_codes &operator=(const shared_codes &) = delete;
};

template <int D> static void run_kvi_gpu_grid(const grid &g)
{
	const uint32_t n = argument<uint32_t>(g, 1), each = g.warps / KVI_GPU_STREAMS;
	const kvi_gpu_tables *tables =
		(const kvi_gpu_tables *)(uintptr_t)argument<uint64_t>(g, 2);
	const shared_codes shared;
	const grid_shared &t = shared.t;
	for (uint32_t i = 0; i < g.x; i++) {
		for (uint32_t w = 0; w < g.warps; w++)
			grid_tables(&t, tables, w, g.warps);
		for (uint32_t w = 0; w < g.warps; w++) {
			const uint32_t c = i * each + w / KVI_GPU_STREAMS;
			if (c < n && runs(&chunks_of(g)[c], CODEC_GRID, D))
				run_grid<D>(&chunks_of(g)[c], &t, w % KVI_GPU_STREAMS);
		}
	}
}

template <int D> static void run_kvi_gpu_cells(const grid &g)
{
	const kvi_gpu_tables *tables =
		(const kvi_gpu_tables *)(uintptr_t)argument<uint64_t>(g, 1);
	static uint32_t words[CELL_SHARED];
	const cells_shared t = cells_shared_of(
		span_at<uint32_t>((uint64_t)(uintptr_t)words, CELL_SHARED));
	for (uint32_t i = 0; i < g.x; i++) {
		const kvi_gpu_chunk *c = &chunks_of(g)[i];
		if (!runs(c, CODEC_CELLS, D))
			continue;
		for (uint32_t w = 0; w < g.warps; w++)
			run_cells_begin<D>(c, &t, tables, w, g.warps);
		for (uint32_t w = 0; w < g.warps; w++)
			run_cells<D>(c, &t, w);
	}
}

static void run_kvi_gpu_finish(const grid &g)
{
	for (uint32_t i = 0; i < g.x; i++)
		for (uint32_t w = 0; w < g.warps; w++)
			run_finish(&chunks_of(g)[i], w);
}

static void run_kvi_gpu_answer(const grid &g)
{
	const uint32_t n = argument<uint32_t>(g, 1);
	for (uint32_t i = 0; i < g.x * g.warps; i++)
		if (i < n)
			run_answer(&chunks_of(g)[i], span_at<uint32_t>(argument<uint64_t>(g, 2), n),
			           i);
}

static void run_kvi_gpu_scatter(const grid &g)
{
	for (uint32_t i = 0; i < g.y; i++)
		for (uint32_t w = 0; w < g.x * g.warps; w++)
			run_scatter(&chunks_of(g)[i], w);
}

/* ----- kernels that encode ------------------------------------------------ */

static bool is_open(const kvi_gpu_encode *e)
{
	return encoding_of(e)->o.status == KVI_GPU_OPEN;
}

/* Calls a step for each chunk (g.y) and each of the grid's warps below `limit` of it. */
template <typename L, typename F> static void each_warp(const grid &g, L limit, F step)
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
	each_warp(g, tokens_of, [](const kvi_gpu_encode *e, uint32_t w) {
		if (element_bytes(e->job.dtype) == 4)
			collect_token<4>(e, w);
		else
			BY_SIZE(e, collect_token, w);
	});
}
static void run_kvi_gpu_find_channels(const grid &g)
{
	each_warp(g, channel_groups, [](const kvi_gpu_encode *e, uint32_t w) {
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
	each_warp(g, tokens_of, [](const kvi_gpu_encode *e, uint32_t w) {
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
	each_warp(g, open_rows, [](const kvi_gpu_encode *e, uint32_t w) {
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
	{ "kvi_gpu_open", run_kvi_gpu_open },
	{ "kvi_gpu_layers_f16", run_kvi_gpu_layers<2> },
	{ "kvi_gpu_layers_bf16", run_kvi_gpu_layers<3> },
	{ "kvi_gpu_layers_e4m3", run_kvi_gpu_layers<4> },
	{ "kvi_gpu_contexts_f16", run_kvi_gpu_contexts<2> },
	{ "kvi_gpu_grid_f16", run_kvi_gpu_grid<2> },
	{ "kvi_gpu_contexts_bf16", run_kvi_gpu_contexts<3> },
	{ "kvi_gpu_grid_bf16", run_kvi_gpu_grid<3> },
	{ "kvi_gpu_contexts_e4m3", run_kvi_gpu_contexts<4> },
	{ "kvi_gpu_grid_e4m3", run_kvi_gpu_grid<4> },
	{ "kvi_gpu_cells_f16", run_kvi_gpu_cells<2> },
	{ "kvi_gpu_cells_bf16", run_kvi_gpu_cells<3> },
	{ "kvi_gpu_finish", run_kvi_gpu_finish },
	{ "kvi_gpu_answer", run_kvi_gpu_answer },
	{ "kvi_gpu_scatter", run_kvi_gpu_scatter },
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
