/* SPDX-License-Identifier: BSD-3-Clause */
/* tiles.c - elements as rows of 32 tokens, RoPE removed and applied (spec had 3) */
#include "codecs/had/had.h"

kvarc_ret kvi_tiles_open(struct kvi_tiles *t, struct kvi_coder *c, const struct kvi_coder_job *job,
                         bool rotates)
{
	const struct kvi_chunk *chunk = job->chunk;
	const size_t head = chunk->head_channels * KVI_LANES;
	const size_t all = head * chunk->heads;
	size_t pairs = 0;
	*t = (struct kvi_tiles){ .job = job,
		                 .kernels = c->kernels,
		                 .transform = kvi_transform_get(c->kernels->isa) };
	if (rotates && (!chunk->rope || !chunk->positions))
		return KVARC_DATA;
	if (rotates) {
		t->turns = kvi_coder_rotations(c, chunk->rope, chunk->positions, chunk->n_tokens);
		if (!t->turns)
			return kvi_alloc_error(c->alloc);
		pairs = chunk->rope->rotary / 2;
	}
	/* C is at most 2^20: no overflow. */
	size_t bytes = head * (sizeof *t->x + sizeof *t->points) + head +
	               2 * all * sizeof *t->tile + 2 * pairs * KVI_LANES * sizeof *t->cos;
	t->x = kvi_scratch(c, KVI_SCRATCH_COEFFICIENTS, bytes);
	if (!t->x)
		return kvi_alloc_error(c->alloc);
	t->cos = t->x + head;
	t->sin = t->cos + pairs * KVI_LANES;
	t->points = (int32_t *)(void *)(t->sin + pairs * KVI_LANES);
	t->tile = (uint16_t *)(void *)(t->points + head);
	t->rows = t->tile + all;
	t->codes = (int8_t *)(t->rows + all);
	t->turned = (struct kvi_turned){ pairs, rotates && chunk->rope->pairing == KVARC_ROPE_HALF,
		                         t->cos, t->sin };
	return KVARC_OK;
}

void kvi_tiles_rotate(struct kvi_tiles *t, size_t first)
{
	for (size_t p = 0; p < t->turned.pairs; p++) {
		const int16_t *turn = t->turns->turn + 2 * (p * t->turns->tokens_capacity + first);
		t->transform->turns(turn, t->cos + p * KVI_LANES, t->sin + p * KVI_LANES);
	}
}

/* Rows of n numbers become rows of KVI_LANES, in place. */
static void spread(uint16_t *rows, size_t n, size_t count)
{
	for (size_t r = count; r-- > 0;) {
		memmove(rows + r * KVI_LANES, rows + r * n, n * sizeof *rows);
		memset(rows + r * KVI_LANES + n, 0, (KVI_LANES - n) * sizeof *rows);
	}
}

/* The inverse of spread. */
static void gather(uint16_t *rows, size_t n, size_t count)
{
	for (size_t r = 0; r < count; r++)
		memmove(rows + r * n, rows + r * KVI_LANES, n * sizeof *rows);
}

void kvi_tiles_load(struct kvi_tiles *t, size_t first)
{
	const struct kvi_chunk *chunk = t->job->chunk;
	size_t C = kvi_chunk_channels(chunk), n = kvi_tile_tokens(t, first);
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	const uint8_t *from = t->job->packed + first * C * size;
	if (size > sizeof(uint16_t))
		return; /* heads are taken one by one */
	const uint16_t *rows = t->rows;
	if (size == 2 && kvi_elements16_lie(from))
		rows = (const uint16_t *)(const void *)from;
	else
		for (size_t i = 0; i < n * C; i++)
			t->rows[i] = size == 1 ? from[i] : kvi_load16(from + 2 * i);
	t->kernels->transpose16(t->tile, rows, n, C);
	if (n < KVI_LANES)
		spread(t->tile, n, C);
}

void kvi_tiles_head(struct kvi_tiles *t, size_t first, size_t head)
{
	const struct kvi_chunk *chunk = t->job->chunk;
	const size_t hc = chunk->head_channels, C = kvi_chunk_channels(chunk);
	const size_t n = kvi_tile_tokens(t, first);
	if (chunk->dtype == KVARC_F32) {
		memset(t->x, 0, hc * KVI_LANES * sizeof *t->x);
		for (size_t i = 0; i < n; i++)
			for (size_t c = 0; c < hc; c++) {
				uint32_t b = kvi_load32(t->job->packed +
				                        4 * ((first + i) * C + head * hc + c));
				memcpy(&t->x[c * KVI_LANES + i], &b, sizeof b);
			}
	} else {
		t->transform->widen(chunk->dtype, t->tile + head * hc * KVI_LANES, hc, t->x);
	}
	t->transform->turn(t->x, &t->turned, true);
}

/* spec lossy 2 */
static uint32_t finite_pattern(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	if ((b & 0x7fffffff) > 0x7f800000)
		return 0;
	return (b & 0x7fffffff) == 0x7f800000 ? b - 1 : b;
}

void kvi_tiles_put(struct kvi_tiles *t, size_t first, size_t head)
{
	const struct kvi_chunk *chunk = t->job->chunk;
	const size_t hc = chunk->head_channels, C = kvi_chunk_channels(chunk);
	const size_t n = kvi_tile_tokens(t, first);
	t->transform->turn(t->x, &t->turned, false);
	if (chunk->dtype != KVARC_F32) {
		t->transform->narrow(chunk->dtype, t->x, hc, t->tile + head * hc * KVI_LANES);
		return;
	}
	for (size_t i = 0; i < n; i++)
		for (size_t c = 0; c < hc; c++)
			kvi_store32(t->job->decoded + 4 * ((first + i) * C + head * hc + c),
			            finite_pattern(t->x[c * KVI_LANES + i]));
}

void kvi_tiles_store(struct kvi_tiles *t, size_t first)
{
	const struct kvi_chunk *chunk = t->job->chunk;
	size_t C = kvi_chunk_channels(chunk), n = kvi_tile_tokens(t, first);
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	uint8_t *to = t->job->decoded + first * C * size;
	if (size > sizeof(uint16_t))
		return;
	if (n < KVI_LANES)
		gather(t->tile, n, C);
	if (size == 2 && kvi_elements16_lie(to)) {
		t->kernels->transpose16((uint16_t *)(void *)to, t->tile, C, n);
		return;
	}
	t->kernels->transpose16(t->rows, t->tile, C, n);
	for (size_t i = 0; i < n * C; i++)
		if (size == 1)
			to[i] = (uint8_t)t->rows[i];
		else
			kvi_store16(to + 2 * i, t->rows[i]);
}
