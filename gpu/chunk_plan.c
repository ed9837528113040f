/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_plan.c - parameters, tables and chunks as kernels take them */
#include "chunk_plan.h"

#include <string.h>

#include "codecs/grid/grid.h"
#include "kernels/cells.h"
#include "numeric/rope_angles.h"
#include "numeric/rotate.h"

/* Where arrays begin: at multiples of ALIGN. Work memory has SPARE bytes behind what is used. */
enum { ALIGN = 16, SPARE = 16, COSINES = 4096, SCALES = KVI_GPU_SCALES, RING_MORE = 256 };
/* Bytes that codec cells has of a channel in the memory for contexts. */
enum { CELL_CHANNEL = 16 };
/* Slots of a table of codec grid whose symbols kernels look up: every EACH-th one. */
enum { EACH = 8, FIRSTS = 2048 / EACH };

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* A memory that is filled from its begin on. */
struct param_arrays {
	uint8_t *memory; /* NULL: sizes alone are wanted */
	uint64_t address;
	size_t n;
};

/* Appends an array; returns its address. */
static uint64_t put(struct param_arrays *to, const void *from, size_t bytes)
{
	const size_t at = to->n;
	if (to->memory)
		memcpy(to->memory + at, from, bytes);
	to->n += aligned(bytes);
	return to->address + at;
}

static void put_rope(struct kvi_gpu_params *out, const kvarc_rope *rope, struct param_arrays *to)
{
	out->rotary = rope->rotary;
	out->interleaved = rope->pairing == KVARC_ROPE_INTERLEAVED;
	out->rope = put(to, rope->freq, rope->rotary / 2 * sizeof *rope->freq);
}

static size_t put_params(struct kvi_gpu_params *out, const struct kvi_params *p,
                         const kvarc_rope *rope, struct param_arrays to)
{
	const struct kvi_grid_params *grid = kvi_grid_params_of(p);
	const size_t C = kvi_params_channels(p);
	*out = (struct kvi_gpu_params){ .channels = (uint32_t)C,
		                        .head_channels = p->head_channels };
	out->k = put(&to, grid->k, C * sizeof *grid->k);
	out->mean = put(&to, grid->mean, C * sizeof *grid->mean);
	if (p->rotates)
		put_rope(out, rope, &to);
	return to.n;
}

size_t kvi_gpu_params_bytes(const struct kvi_params *p, const kvarc_rope *rope)
{
	struct kvi_gpu_params unused;
	return put_params(&unused, p, rope, (struct param_arrays){ 0 });
}

void kvi_gpu_params_fill(struct kvi_gpu_params *out, const struct kvi_params *p,
                         const kvarc_rope *rope, uint8_t *memory, uint64_t address)
{
	put_params(out, p, rope, (struct param_arrays){ memory, address, 0 });
}

/* The symbols of every EACH-th slot of a table of n, whose cumulative frequencies it has. */
static uint64_t put_firsts(struct param_arrays *to, const uint32_t *table, uint32_t n)
{
	uint8_t first[FIRSTS];
	for (uint32_t i = 0, symbol = 0; i < FIRSTS; i++) {
		while (symbol + 1 < n && table[symbol + 1] >> 16 <= i * EACH)
			symbol++;
		first[i] = (uint8_t)symbol;
	}
	return put(to, first, sizeof first);
}

/* A cosine or sine in 1/32768, in 16 bits. */
static uint32_t doubled(int16_t turn)
{
	const int both = 2 * turn;
	return (uint16_t)(both > INT16_MAX ? INT16_MAX : both < -INT16_MAX ? -INT16_MAX : both);
}

/* The tables of codec cells (gpu/cells_decode_body.h). */
static uint64_t put_cells(struct param_arrays *to)
{
	uint32_t words[KVI_GPU_CELL_WORDS], *turn = words + KVI_GPU_CELL_CODES;
	for (size_t i = 0; i < KVI_GPU_CELL_CODES; i++)
		words[i] = (uint32_t)kvi_fixed_tables.cells_lo[i] << 16 |
		           ((1u << kvi_fixed_tables.cells_nb[i]) - 1) << 8 |
		           (i % KVI_CELLS_ROW == KVI_CELLS_ESCAPE) << 5 |
		           kvi_fixed_tables.cells_nb[i];
	for (size_t i = 0; i < COSINES; i++)
		turn[i] = doubled(kvi_cos4096[i]) |
		          doubled(kvi_cos4096[(i + 3 * COSINES / 4) % COSINES]) << 16;
	memcpy(turn + COSINES, kvi_rot_scale, SCALES);
	return put(to, words, sizeof words);
}

/* The entries of distances (gpu/cells_encode_body.h): those of no code have that of an escape. */
static uint64_t put_entries(struct param_arrays *to)
{
	enum { DISTANCES = 2 * KVI_CELLS_REACH };
	uint16_t entries[KVI_GPU_CELL_ENTRIES];
	for (size_t i = 0; i < KVI_GPU_CELL_ENTRIES; i++)
		entries[i] = KVI_CELLS_ESCAPE;
	for (size_t i = 0; i < KVI_GPU_CELL_CODES; i++) {
		const size_t code = i % KVI_CELLS_ROW, nb = kvi_fixed_tables.cells_nb[i];
		uint16_t *first = entries + i / KVI_CELLS_ROW * DISTANCES + KVI_CELLS_REACH +
		                  kvi_fixed_tables.cells_lo[i];
		for (size_t k = 0; code < KVI_CELLS_ESCAPE && k < (size_t)1 << nb; k++)
			first[k] = (uint16_t)(code | nb << 5 | k << 8);
	}
	return put(to, entries, sizeof entries);
}

static size_t put_fixed(struct kvi_gpu_tables *out, struct param_arrays to)
{
	uint32_t grid[KVI_GRID_TABLES * KVI_GRID_SYMBOLS];
	*out = (struct kvi_gpu_tables){ 0 };
	for (size_t t = 0; t < KVI_GRID_TABLES; t++)
		for (uint32_t s = 0, cum = 0; s < KVI_GRID_SYMBOLS; s++) {
			const size_t at = t * KVI_GRID_SYMBOLS + s;
			grid[at] = kvi_fixed_tables.grid[at] | cum << 16;
			cum += kvi_fixed_tables.grid[at];
		}
	out->grid = put(&to, grid, sizeof grid);
	for (size_t t = 0; t < KVI_GRID_TABLES; t++) {
		const uint64_t at = put_firsts(&to, grid + t * KVI_GRID_SYMBOLS, KVI_GRID_SYMBOLS);
		out->first = t ? out->first : at;
	}
	out->cosine = put(&to, kvi_cos4096, COSINES * sizeof *kvi_cos4096);
	out->scale = put(&to, kvi_rot_scale, SCALES);
	out->cells = put_cells(&to);
	out->entries = put_entries(&to);
	return to.n;
}

size_t kvi_gpu_tables_bytes(void)
{
	struct kvi_gpu_tables unused;
	return put_fixed(&unused, (struct param_arrays){ 0 });
}

void kvi_gpu_tables_fill(struct kvi_gpu_tables *out, uint8_t *memory, uint64_t address)
{
	put_fixed(out, (struct param_arrays){ memory, address, 0 });
}

size_t kvi_gpu_chunk_place(struct kvi_gpu_chunk *chunk, bool encoded)
{
	const size_t C = (size_t)chunk->heads * chunk->head_channels, n = C * chunk->tokens;
	const size_t elements = aligned(n * kvarc_dtype_bytes(chunk->dtype) + SPARE);
	const size_t ring = 2 * C + RING_MORE;
	const bool grid = chunk->codec == KVI_CODEC_GRID;
	chunk->packed = 0;
	chunk->decoded = elements;
	chunk->contexts = chunk->columns = 2 * elements;
	if (grid)
		chunk->columns += aligned((n > ring ? n : ring) * sizeof(uint32_t) + SPARE);
	else if (chunk->codec == KVI_CODEC_CELLS)
		chunk->columns += C * CELL_CHANNEL;
	chunk->words = chunk->columns + aligned(C * sizeof(uint32_t) + SPARE);
	if (!encoded || chunk->codec == KVI_CODEC_LAYERS)
		return chunk->words;
	/* of codec cells a word for the word of an element, and one for its two codes */
	return chunk->words + aligned(sizeof(uint16_t) * ((grid ? KVI_GPU_WORDS_EACH : 2) * n +
	                                                  KVI_GPU_STREAMS * KVI_GPU_SPARE_WORDS));
}

/* Rows that are not made of such parts have no check in registers (view_rows_body.h). */
enum { ROW_PART = 64 };

enum kvi_gpu_need kvi_gpu_work_need(const struct kvi_gpu_chunk *chunk)
{
	const uint32_t channels = chunk->heads * chunk->head_channels;
	const size_t row = channels * kvarc_dtype_bytes(chunk->dtype);
	switch (chunk->codec) {
	case KVI_CODEC_RAW:
		return KVI_GPU_NEVER;
	case KVI_CODEC_LAYERS:
		return row % ROW_PART ? KVI_GPU_ALWAYS : KVI_GPU_RARELY;
	case KVI_CODEC_CELLS:
		return row % ROW_PART || channels > KVI_GPU_CELL_CHANNELS ? KVI_GPU_ALWAYS
		                                                          : KVI_GPU_RARELY;
	default:
		return KVI_GPU_ALWAYS;
	}
}

/* Words behind struct kvi_gpu_block. */
static size_t shared_words(const struct kvi_gpu_chunk *chunk, bool encoded)
{
	const uint32_t channels = chunk->heads * chunk->head_channels;
	switch (chunk->codec) {
	case KVI_CODEC_LAYERS:
		return (encoded ? KVI_GPU_OUT_WORDS : KVI_GPU_RING_WORDS) + channels / 4 + 2;
	case KVI_CODEC_GRID:
		return encoded ? KVI_GPU_GRID_OUT_WORDS : KVI_GPU_GRID_WORDS;
	case KVI_CODEC_CELLS:
		if (encoded)
			return KVI_GPU_CELL_OUT_WORDS;
		return KVI_GPU_CELL_SHARED + KVI_GPU_CELL_ROWS +
		       (channels > KVI_GPU_CELL_CHANNELS ? 0 : 4 * channels);
	default:
		return 0;
	}
}

uint32_t kvi_gpu_shared_bytes(const struct kvi_gpu_chunk *chunk, bool encoded)
{
	return (uint32_t)(aligned(sizeof(struct kvi_gpu_block)) +
	                  (encoded ? aligned(sizeof(struct kvi_gpu_encoding)) : 0) +
	                  4 * shared_words(chunk, encoded));
}

void kvi_gpu_chunk_fill(struct kvi_gpu_chunk *out, const struct kvi_chunk *shape,
                        const struct kvi_chunk_header *header, uint32_t n)
{
	uint8_t head[KVI_CHUNK_HEADER_BYTES];
	*out = (struct kvi_gpu_chunk){ .payload_bytes = n,
		                       .dtype = shape->dtype,
		                       .tokens = shape->n_tokens,
		                       .heads = shape->heads,
		                       .head_channels = shape->head_channels,
		                       .codec = header->codec,
		                       .to = shape->n_tokens };
	kvi_chunk_header_write(head, header);
	head[25] = 0;
	for (size_t i = 0; i < 8; i++)
		out->head[i] = kvi_load32(head + 4 * i);
}

size_t kvi_gpu_encode_bound(const struct kvi_chunk *shape)
{
	const size_t n = kvi_chunk_bytes(shape);
	return aligned(KVI_CHUNK_HEADER_BYTES + n - n / 16);
}
