/* SPDX-License-Identifier: BSD-3-Clause */
/* payload_parts.c - tokens of a lossy chunk by parts, and the exact ones (spec lossy 1) */
#include "payload_parts.h"

#include "codecs/planes.h"

void kvi_parts_open(struct kvi_parts *parts, const struct kvi_chunk *chunk)
{
	*parts = (struct kvi_parts){ .chunk = chunk,
		                     .n_rates = 1,
		                     .row = kvi_chunk_bytes(chunk) / chunk->n_tokens };
	memset(parts->part, 1, sizeof parts->part);
}

size_t kvi_parts_count(const struct kvi_parts *parts, unsigned which)
{
	size_t n = 0;
	for (size_t t = 0; t < parts->chunk->n_tokens; t++)
		n += (parts->part[t] & which) != 0;
	return n;
}

void kvi_parts_job(struct kvi_parts_work *w, const struct kvi_parts *parts, unsigned which,
                   const struct kvi_coder *coder)
{
	const size_t C = kvi_chunk_channels(parts->chunk);
	const int32_t *positions = parts->chunk->positions;
	size_t n = 0;
	for (size_t t = 0; t < parts->chunk->n_tokens; t++)
		if (parts->part[t] & which) {
			w->positions[n] = positions ? positions[t] : 0;
			w->tokens[n++] = (uint8_t)t;
		}
	w->chunk = *parts->chunk;
	w->chunk.n_tokens = (uint32_t)n;
	w->chunk.positions = positions ? w->positions : NULL;
	w->run = (struct kvi_mask_run){ 0, (uint32_t)C };
	w->job = (struct kvi_coder_job){ .chunk = &w->chunk,
		                         .token = w->tokens,
		                         .mask = { .T = n,
		                                   .C = C,
		                                   .rows = n,
		                                   .channels = C,
		                                   .size = (unsigned)kvarc_dtype_bytes(
							   parts->chunk->dtype),
		                                   .runs = &w->run,
		                                   .n_runs = 1 },
		                         .lanes = { coder->kernels, n, C } };
}

void kvi_parts_take(const struct kvi_parts *parts, unsigned which, const uint8_t *all,
                    uint8_t *some)
{
	for (size_t t = 0; t < parts->chunk->n_tokens; t++)
		if (parts->part[t] & which) {
			memcpy(some, all + t * parts->row, parts->row);
			some += parts->row;
		}
}

void kvi_parts_put(const struct kvi_parts *parts, unsigned which, const uint8_t *some, uint8_t *all)
{
	for (size_t t = 0; t < parts->chunk->n_tokens; t++)
		if (parts->part[t] & which) {
			memcpy(all + t * parts->row, some, parts->row);
			some += parts->row;
		}
}

/* Bytes of elements as planes, lowest bytes first. */
static void to_planes(const uint8_t *from, size_t n, size_t size, uint8_t *to)
{
	for (size_t b = 0; b < size; b++)
		for (size_t i = 0; i < n; i++)
			*to++ = from[i * size + b];
}

/* The inverse of to_planes. */
static void from_planes(const uint8_t *from, size_t n, size_t size, uint8_t *to)
{
	for (size_t b = 0; b < size; b++)
		for (size_t i = 0; i < n; i++)
			to[i * size + b] = *from++;
}

kvarc_ret kvi_exact_put(struct kvi_coder *coder, const struct kvi_parts *parts, const uint8_t *raw,
                        struct kvi_out *out)
{
	size_t size = kvarc_dtype_bytes(parts->chunk->dtype);
	size_t bytes = kvi_parts_count(parts, KVI_EXACT) * parts->row;
	uint8_t bits[KVI_TOKENS_MAX / 8] = { 0 };
	for (size_t t = 0; t < parts->chunk->n_tokens; t++)
		bits[t / 8] |= (uint8_t)((parts->part[t] == KVI_EXACT) << t % 8);
	kvi_put_bytes(out, bits, (parts->chunk->n_tokens + 7) / 8);
	uint8_t *rows = kvi_scratch(coder, KVI_SCRATCH_PLANE, 2 * bytes);
	if (!rows)
		return kvi_alloc_error(coder->alloc);
	kvi_parts_take(parts, KVI_EXACT, raw, rows);
	to_planes(rows, bytes / size, size, rows + bytes);
	return kvi_packed_put(coder, rows + bytes, bytes, out);
}

/* Whether some tokens are exact, and some are not. */
static bool get_bitmap(struct kvi_parts *parts, struct kvi_in *in)
{
	const size_t T = parts->chunk->n_tokens;
	const uint8_t *bits = kvi_get_bytes(in, (T + 7) / 8);
	if (!bits || (T % 8 && bits[T / 8] >> T % 8))
		return false;
	for (size_t t = 0; t < T; t++)
		if (bits[t / 8] >> t % 8 & 1)
			parts->part[t] = KVI_EXACT;
	size_t n = kvi_parts_count(parts, KVI_EXACT);
	return n && n < T;
}

kvarc_ret kvi_exact_get(struct kvi_coder *coder, struct kvi_parts *parts, struct kvi_in *in,
                        uint8_t *raw)
{
	if (!get_bitmap(parts, in))
		return KVARC_DATA;
	size_t size = kvarc_dtype_bytes(parts->chunk->dtype);
	size_t bytes = kvi_parts_count(parts, KVI_EXACT) * parts->row;
	const uint8_t *planes;
	kvarc_ret ret = kvi_packed_get(coder, in, bytes, &planes);
	if (ret)
		return ret;
	uint8_t *rows = kvi_scratch(coder, KVI_SCRATCH_LOSSY, bytes);
	if (!rows)
		return kvi_alloc_error(coder->alloc);
	from_planes(planes, bytes / size, size, rows);
	kvi_parts_put(parts, KVI_EXACT, rows, raw);
	return KVARC_OK;
}
