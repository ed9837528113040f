/* SPDX-License-Identifier: BSD-3-Clause */
/* attention.c - attention over blocks of 256 tokens (spec/arithmetic.md 6) */
#include <float.h>
#include <string.h>

#include "exact/attention_rows.h"
#include "exact/engine_internal.h"

enum { ROWS = 96 };

/* Queries of a tile, token after token, and what becomes of them. */
struct tile {
	size_t rows, channels, capacity; /* capacity: channels, in whole operand blocks */
	struct kvi_activations q, p;
	float *x, *z, *part, *out; /* rows of channels, 256, capacity, channels */
	float *m, *l;              /* so far */
	float *block_m, *block_l;  /* of the block */
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

/* Of the wider form, which serves all. */
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
                         const struct kvi_arithmetic *a, enum kvi_matrix_kind kind)
{
	const bool twelve = kvi_twelve(a, kind);
	kvi_activations_init(to, memory, rows, columns, KVI_GROUP_MAX, twelve || kvi_wide(a, kind));
	if (twelve)
		to->largest = KVI_A12_MAX;
}

static void lay_out(struct tile *t, const struct kvi_arithmetic *a, uint8_t *memory)
{
	size_t q, p;
	tile_bytes(t->rows, t->channels, &q, &p);
	t->capacity = (t->channels + 15) & ~(size_t)15;
	open_operand(&t->q, memory, t->rows, t->channels, a, KVI_MATRIX_KEYS);
	open_operand(&t->p, memory + q, t->rows, KVI_BLOCK, a, KVI_MATRIX_VALUES);
	t->x = (float *)(void *)(memory + q + p);
	t->z = t->x + t->rows * t->channels;
	t->part = t->z + t->rows * KVI_BLOCK;
	t->out = t->part + t->rows * t->capacity;
	t->m = t->out + t->rows * t->channels;
	t->l = t->m + t->rows;
	t->block_m = t->l + t->rows;
	t->block_l = t->block_m + t->rows;
	t->begun = (bool *)(t->block_l + t->rows);
	memset(t->begun, 0, t->rows * sizeof *t->begun);
}

/* The tokens of block b that token `at` sees, counted in the block. */
static bool seen(const struct kvi_attention *a, size_t b, size_t at, size_t *first, size_t *end)
{
	size_t from = a->window && at >= a->window ? at - a->window + 1 : 0;
	size_t start = b * KVI_BLOCK;
	*first = from > start ? from - start : 0;
	*end = at + 1 > start ? at + 1 - start : 0;
	if (*end > KVI_BLOCK)
		*end = KVI_BLOCK;
	return *first < *end;
}

/* M, L and O take up what a block gives. */
static void blend(const struct kvi_attention *a, struct tile *t, size_t row)
{
	float m = t->block_m[row], l = t->block_l[row];
	float *out = t->out + row * t->channels;
	const float *part = t->part + row * t->capacity;
	if (!t->begun[row]) {
		t->begun[row] = true;
		t->m[row] = m;
		t->l[row] = l;
		memcpy(out, part, t->channels * sizeof *out);
		return;
	}
	float most = m > t->m[row] ? m : t->m[row];
	/* one of the two is exp(0), which is 1 */
	float old = m > t->m[row] ? a->elementwise->exp(t->m[row] - most) : 1;
	float new = m > t->m[row] ? 1 : a->elementwise->exp(m - most);
	t->l[row] = t->l[row] * old + l * new;
	a->elementwise->blend(out, old, part, new, t->channels);
	t->m[row] = most;
}

static void block(const struct kvi_attention *a, struct tile *t, size_t b)
{
	const struct kvi_cache_head *head = &a->cache->blocks[b].heads[a->kv_head];
	size_t n = a->queries_per_head, first, end, last = 0;
	for (size_t i = 0; i < a->n; i++)
		if (seen(a, b, a->first + i, &first, &end) && end > last)
			last = end;
	if (!last)
		return;
	const struct kvi_product scores = {
		.a = &t->q,
		.w = &head->k,
		.y = t->z,
		.y_stride = KVI_BLOCK,
		.blocks = (last + KVI_OPERAND_ROWS - 1) / KVI_OPERAND_ROWS,
	};
	a->kernels->product(&scores);
	for (size_t row = 0; row < t->rows; row++) {
		struct kvi_scores s = {
			.z = t->z + row * KVI_BLOCK,
			.sv = head->v_scale,
			.scale = a->scale,
		};
		if (!seen(a, b, a->first + row / n, &s.first, &s.end)) {
			memset(s.z, 0, KVI_BLOCK * sizeof *s.z);
			continue;
		}
		a->elementwise->softmax(&s);
		t->block_m[row] = s.m;
		t->block_l[row] = s.l;
	}
	a->kernels->quantise(&t->p, t->z, KVI_BLOCK, 0, t->rows);
	const struct kvi_product values = {
		.a = &t->p,
		.w = &head->v,
		.y = t->part,
		.y_stride = t->capacity,
		.blocks = t->capacity / KVI_OPERAND_ROWS,
		.positive = true,
	};
	a->kernels->product(&values);
	for (size_t row = 0; row < t->rows; row++)
		if (seen(a, b, a->first + row / n, &first, &end))
			blend(a, t, row);
}

/* What the rows of tokens see of block b. */
static void look(const struct kvi_attention *a, size_t b, struct kvi_seen *by_row)
{
	for (size_t i = 0; i < a->n; i++) {
		size_t from, to;
		struct kvi_seen is = { 0 };
		if (seen(a, b, a->first + i, &from, &to))
			is = (struct kvi_seen){ (uint16_t)from, (uint16_t)to };
		for (size_t j = 0; j < a->queries_per_head; j++)
			*by_row++ = is;
	}
}

/* The same by one kernel, which takes rows from scores to outputs. Needs less memory. */
static void run_rows(const struct kvi_attention *a, uint8_t *memory)
{
	const size_t n = a->queries_per_head, hd = a->channels, rows = a->n * n;
	const size_t capacity = (hd + 15) & ~(size_t)15, end = a->first + a->n;
	struct kvi_activations q;
	size_t bytes;

	kvi_activations_bytes(rows, hd, KVI_GROUP_MAX, true, &bytes);
	open_operand(&q, memory, rows, hd, a->cache->arithmetic, KVI_MATRIX_KEYS);
	float *out = (float *)(void *)(memory + bytes);
	struct kvi_attended *so_far = (void *)(out + rows * capacity);
	struct kvi_seen *seen_by = (void *)(so_far + rows);

	for (size_t i = 0; i < a->n; i++)
		memcpy(out + i * n * hd, a->q + i * a->stride, n * hd * sizeof *out);
	a->kernels->quantise(&q, out, hd, 0, rows);
	memset(out, 0, rows * capacity * sizeof *out);
	for (size_t row = 0; row < rows; row++)
		so_far[row] = (struct kvi_attended){ .m = -FLT_MAX };
	for (size_t b = 0; b * KVI_BLOCK < end; b++) {
		const struct kvi_cache_head *head = &a->cache->blocks[b].heads[a->kv_head];
		const struct kvi_attention_rows to_block = {
			.q = &q,
			.k = &head->k,
			.v = &head->v,
			.v_scale = head->v_scale,
			.scale = a->scale,
			.seen = seen_by,
			.so_far = so_far,
			.out = out,
		};
		look(a, b, seen_by);
		a->kernels->attend(&to_block);
	}
	for (size_t row = 0; row < rows; row++) {
		float *o = a->o + row / n * a->stride + row % n * hd;
		for (size_t c = 0; c < hd; c++)
			o[c] = out[row * capacity + c] / so_far[row].l;
	}
}

static void run_tile(const struct kvi_attention *a, uint8_t *memory)
{
	size_t n = a->queries_per_head, hd = a->channels;
	struct tile t = { .rows = a->n * n, .channels = hd };
	lay_out(&t, a->cache->arithmetic, memory);
	for (size_t i = 0; i < a->n; i++)
		memcpy(t.x + i * n * hd, a->q + i * a->stride, n * hd * sizeof *t.x);
	a->kernels->quantise(&t.q, t.x, hd, 0, t.rows);
	size_t end = a->first + a->n;
	for (size_t b = 0; b * KVI_BLOCK < end; b++)
		block(a, &t, b);
	for (size_t i = 0; i < a->n; i++)
		for (size_t j = 0; j < n; j++) {
			size_t row = i * n + j;
			float *o = a->o + i * a->stride + j * hd;
			for (size_t c = 0; c < hd; c++)
				o[c] = t.out[row * hd + c] / t.l[row];
		}
}

void kvi_attention_run(const struct kvi_attention *a, void *memory)
{
	const struct kvi_arithmetic *arithmetic = a->cache->arithmetic;
	if (a->kernels->attend && kvi_twelve(arithmetic, KVI_MATRIX_KEYS) &&
	    kvi_twelve(arithmetic, KVI_MATRIX_VALUES))
		run_rows(a, memory);
	else
		run_tile(a, memory);
}
