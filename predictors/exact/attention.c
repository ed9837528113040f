/* SPDX-License-Identifier: BSD-3-Clause */
/* attention.c - attention over blocks of 256 tokens (spec/arithmetic.md 6) */
#include <float.h>
#include <string.h>

#include "exact/attention_rows.h"
#include "exact/engine_internal.h"

enum { ROWS = 96 };

/* Queries of a tile, token after token, with their scores and outputs. */
struct tile {
	size_t rows, channels, capacity; /* capacity: channels, in whole operand blocks */
	struct kvi_activations q, p;
	float *x, *z, *part, *out; /* rows of channels, 256, capacity, channels */
	float *m, *l;              /* M and L of the blocks so far */
	float *block_m, *block_l;  /* M and L of the block */
	bool *begun;
};

size_t kvi_attention_tokens(size_t queries_per_head)
{
	size_t n = ROWS / queries_per_head;
	return n ? n : 1;
}

static size_t aligned(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

/* Bytes of a tile in the wider form, which suffices for all. */
static size_t tile_bytes(size_t rows, size_t channels, size_t *q, size_t *p)
{
	size_t capacity = (channels + 15) & ~(size_t)15;
	/* Bounded by the model file's limits: no overflow. */
	kvi_activations_bytes(rows, channels, KVI_GROUP_MAX, true, q);
	kvi_activations_bytes(rows, KVI_BLOCK, KVI_GROUP_MAX, true, p);
	*q = aligned(*q);
	*p = aligned(*p);
	return *q + *p + aligned(rows * (2 * channels + KVI_BLOCK + capacity + 4) * sizeof(float)) +
	       aligned(rows * sizeof(bool));
}

size_t kvi_attention_bytes(size_t queries_per_head, size_t channels)
{
	size_t q, p;
	return tile_bytes(kvi_attention_tokens(queries_per_head) * queries_per_head, channels, &q,
	                  &p);
}

/* Activations of one group. */
static void open_operand(struct kvi_activations *to, void *memory, size_t rows, size_t columns,
                         const struct kvi_arithmetic *arithmetic, enum kvi_matrix_kind kind)
{
	const bool twelve = kvi_twelve(arithmetic, kind);
	kvi_activations_init(to, memory, rows, columns, KVI_GROUP_MAX,
	                     twelve || kvi_wide(arithmetic, kind));
	if (twelve)
		to->largest = KVI_A12_MAX;
}

static void lay_out(struct tile *tile, const struct kvi_arithmetic *arithmetic, uint8_t *memory)
{
	size_t q, p;
	tile_bytes(tile->rows, tile->channels, &q, &p);
	tile->capacity = (tile->channels + 15) & ~(size_t)15;
	open_operand(&tile->q, memory, tile->rows, tile->channels, arithmetic, KVI_MATRIX_KEYS);
	open_operand(&tile->p, memory + q, tile->rows, KVI_BLOCK, arithmetic, KVI_MATRIX_VALUES);
	tile->x = (float *)(void *)(memory + q + p);
	tile->z = tile->x + tile->rows * tile->channels;
	tile->part = tile->z + tile->rows * KVI_BLOCK;
	tile->out = tile->part + tile->rows * tile->capacity;
	tile->m = tile->out + tile->rows * tile->channels;
	tile->l = tile->m + tile->rows;
	tile->block_m = tile->l + tile->rows;
	tile->block_l = tile->block_m + tile->rows;
	tile->begun = (bool *)(tile->block_l + tile->rows);
	memset(tile->begun, 0, tile->rows * sizeof *tile->begun);
}

/* The tokens of block b that token `at` sees, counted in the block. */
static bool seen(const struct kvi_attention *attention, size_t b, size_t at, size_t *first,
                 size_t *end)
{
	size_t from = attention->window && at >= attention->window ? at - attention->window + 1 : 0;
	size_t start = b * KVI_BLOCK;
	*first = from > start ? from - start : 0;
	*end = at + 1 > start ? at + 1 - start : 0;
	if (*end > KVI_BLOCK)
		*end = KVI_BLOCK;
	return *first < *end;
}

/* Adds the result of a block to M, L and O. */
static void blend(const struct kvi_attention *attention, struct tile *tile, size_t row)
{
	float m = tile->block_m[row], l = tile->block_l[row];
	float *out = tile->out + row * tile->channels;
	const float *part = tile->part + row * tile->capacity;
	if (!tile->begun[row]) {
		tile->begun[row] = true;
		tile->m[row] = m;
		tile->l[row] = l;
		memcpy(out, part, tile->channels * sizeof *out);
		return;
	}
	float most = m > tile->m[row] ? m : tile->m[row];
	/* exp(0) is 1: one of the two needs no call */
	float old = m > tile->m[row] ? attention->elementwise->exp(tile->m[row] - most) : 1;
	float new = m > tile->m[row] ? 1 : attention->elementwise->exp(m - most);
	tile->l[row] = tile->l[row] * old + l * new;
	attention->elementwise->blend(out, old, part, new, tile->channels);
	tile->m[row] = most;
}

static void block(const struct kvi_attention *attention, struct tile *tile, size_t b)
{
	const struct kvi_cache_head *head = &attention->cache->blocks[b].heads[attention->kv_head];
	size_t n = attention->queries_per_head, first, end, last = 0;
	for (size_t i = 0; i < attention->n; i++)
		if (seen(attention, b, attention->first + i, &first, &end) && end > last)
			last = end;
	if (!last)
		return;
	const struct kvi_product scores = {
		.a = &tile->q,
		.w = &head->k,
		.y = tile->z,
		.y_stride = KVI_BLOCK,
		.blocks = (last + KVI_OPERAND_ROWS - 1) / KVI_OPERAND_ROWS,
	};
	attention->kernels->product(&scores);
	for (size_t row = 0; row < tile->rows; row++) {
		struct kvi_scores s = {
			.z = tile->z + row * KVI_BLOCK,
			.sv = head->v_scale,
			.scale = attention->scale,
		};
		if (!seen(attention, b, attention->first + row / n, &s.first, &s.end)) {
			memset(s.z, 0, KVI_BLOCK * sizeof *s.z);
			continue;
		}
		attention->elementwise->softmax(&s);
		tile->block_m[row] = s.m;
		tile->block_l[row] = s.l;
	}
	attention->kernels->quantise(&tile->p, tile->z, KVI_BLOCK, 0, tile->rows);
	const struct kvi_product values = {
		.a = &tile->p,
		.w = &head->v,
		.y = tile->part,
		.y_stride = tile->capacity,
		.blocks = tile->capacity / KVI_OPERAND_ROWS,
		.positive = true,
	};
	attention->kernels->product(&values);
	for (size_t row = 0; row < tile->rows; row++)
		if (seen(attention, b, attention->first + row / n, &first, &end))
			blend(attention, tile, row);
}

/* Sets, for each row, the tokens of block b that it sees. */
static void look(const struct kvi_attention *attention, size_t b, struct kvi_seen *by_row)
{
	for (size_t i = 0; i < attention->n; i++) {
		size_t from, to;
		struct kvi_seen is = { 0 };
		if (seen(attention, b, attention->first + i, &from, &to))
			is = (struct kvi_seen){ (uint16_t)from, (uint16_t)to };
		for (size_t j = 0; j < attention->queries_per_head; j++)
			*by_row++ = is;
	}
}

/* Computes the attention with the kernel `attend`, which takes rows from queries to outputs. Needs
 * less memory than tiles. */
static void run_rows(const struct kvi_attention *attention, uint8_t *memory)
{
	const size_t n = attention->queries_per_head, hd = attention->channels,
		     rows = attention->n * n;
	const size_t capacity = (hd + 15) & ~(size_t)15, end = attention->first + attention->n;
	struct kvi_activations q;
	size_t bytes;

	kvi_activations_bytes(rows, hd, KVI_GROUP_MAX, true, &bytes);
	open_operand(&q, memory, rows, hd, attention->cache->arithmetic, KVI_MATRIX_KEYS);
	float *out = (float *)(void *)(memory + bytes);
	struct kvi_attended *so_far = (void *)(out + rows * capacity);
	struct kvi_seen *seen_by = (void *)(so_far + rows);

	for (size_t i = 0; i < attention->n; i++)
		memcpy(out + i * n * hd, attention->q + i * attention->stride,
		       n * hd * sizeof *out);
	attention->kernels->quantise(&q, out, hd, 0, rows);
	memset(out, 0, rows * capacity * sizeof *out);
	for (size_t row = 0; row < rows; row++)
		so_far[row] = (struct kvi_attended){ .m = -FLT_MAX };
	for (size_t b = 0; b * KVI_BLOCK < end; b++) {
		const struct kvi_cache_head *head =
			&attention->cache->blocks[b].heads[attention->kv_head];
		const struct kvi_attention_rows to_block = {
			.q = &q,
			.k = &head->k,
			.v = &head->v,
			.v_scale = head->v_scale,
			.scale = attention->scale,
			.seen = seen_by,
			.so_far = so_far,
			.out = out,
		};
		look(attention, b, seen_by);
		attention->kernels->attend(&to_block);
	}
	for (size_t row = 0; row < rows; row++) {
		float *o = attention->o + row / n * attention->stride + row % n * hd;
		for (size_t c = 0; c < hd; c++)
			o[c] = out[row * capacity + c] / so_far[row].l;
	}
}

static void run_tile(const struct kvi_attention *attention, uint8_t *memory)
{
	size_t n = attention->queries_per_head, hd = attention->channels;
	struct tile t = { .rows = attention->n * n, .channels = hd };
	lay_out(&t, attention->cache->arithmetic, memory);
	for (size_t i = 0; i < attention->n; i++)
		memcpy(t.x + i * n * hd, attention->q + i * attention->stride,
		       n * hd * sizeof *t.x);
	attention->kernels->quantise(&t.q, t.x, hd, 0, t.rows);
	size_t end = attention->first + attention->n;
	for (size_t b = 0; b * KVI_BLOCK < end; b++)
		block(attention, &t, b);
	for (size_t i = 0; i < attention->n; i++)
		for (size_t j = 0; j < n; j++) {
			size_t row = i * n + j;
			float *o = attention->o + i * attention->stride + j * hd;
			for (size_t c = 0; c < hd; c++)
				o[c] = t.out[row * hd + c] / t.l[row];
		}
}

void kvi_attention_run(const struct kvi_attention *attention, void *memory)
{
	const struct kvi_arithmetic *arithmetic = attention->cache->arithmetic;
	if (attention->kernels->attend && kvi_twelve(arithmetic, KVI_MATRIX_KEYS) &&
	    kvi_twelve(arithmetic, KVI_MATRIX_VALUES))
		run_rows(attention, memory);
	else
		run_tile(attention, memory);
}
