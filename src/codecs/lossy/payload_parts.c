/* SPDX-License-Identifier: BSD-3-Clause */
/* payload_parts.c - tokens of a lossy chunk by parts, and the exact ones (spec lossy 1) */
#include "payload_parts.h"

enum { STORED = 0, PACKED = 1 };

void kvi_parts_open(struct kvi_parts *p, const struct kvi_chunk *chunk)
{
	*p = (struct kvi_parts){ .chunk = chunk,
		                 .n_rates = 1,
		                 .row = kvi_chunk_bytes(chunk) / chunk->n_tokens };
	memset(p->part, 1, sizeof p->part);
}

size_t kvi_parts_count(const struct kvi_parts *p, unsigned which)
{
	size_t n = 0;
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		n += (p->part[t] & which) != 0;
	return n;
}

struct kvi_chunk kvi_parts_chunk(const struct kvi_parts *p, unsigned which,
                                 int32_t positions[KVI_TOKENS_MAX])
{
	struct kvi_chunk some = *p->chunk;
	size_t n = 0;
	some.n_tokens = (uint32_t)kvi_parts_count(p, which);
	if (!p->chunk->positions)
		return some;
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		if (p->part[t] & which)
			positions[n++] = p->chunk->positions[t];
	some.positions = positions;
	return some;
}

void kvi_parts_tokens(const struct kvi_parts *p, unsigned which, uint8_t tokens[KVI_TOKENS_MAX])
{
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		if (p->part[t] & which)
			*tokens++ = (uint8_t)t;
}

void kvi_parts_take(const struct kvi_parts *p, unsigned which, const uint8_t *all, uint8_t *some)
{
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		if (p->part[t] & which) {
			memcpy(some, all + t * p->row, p->row);
			some += p->row;
		}
}

void kvi_parts_put(const struct kvi_parts *p, unsigned which, const uint8_t *some, uint8_t *all)
{
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		if (p->part[t] & which) {
			memcpy(all + t * p->row, some, p->row);
			some += p->row;
		}
}

/* Bytes of elements as planes, lowest bytes first, and back. */
static void to_planes(const uint8_t *from, size_t n, size_t size, uint8_t *to)
{
	for (size_t b = 0; b < size; b++)
		for (size_t i = 0; i < n; i++)
			*to++ = from[i * size + b];
}

static void from_planes(const uint8_t *from, size_t n, size_t size, uint8_t *to)
{
	for (size_t b = 0; b < size; b++)
		for (size_t i = 0; i < n; i++)
			to[i * size + b] = *from++;
}

kvarc_ret kvi_exact_put(struct kvi_coder *c, const struct kvi_parts *p, const uint8_t *raw,
                        struct kvi_out *out)
{
	size_t size = kvarc_dtype_bytes(p->chunk->dtype);
	size_t bytes = kvi_parts_count(p, KVI_EXACT) * p->row;
	uint8_t bits[KVI_TOKENS_MAX / 8] = { 0 };
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		bits[t / 8] |= (uint8_t)((p->part[t] == KVI_EXACT) << t % 8);
	kvi_put_bytes(out, bits, (p->chunk->n_tokens + 7) / 8);
	uint8_t *rows = kvi_scratch(c, KVI_SCRATCH_PLANE, 2 * bytes);
	uint8_t *packed = kvi_scratch(c, KVI_SCRATCH_PLANE_OUT, bytes);
	if (!rows || !packed)
		return kvi_alloc_error(c->alloc);
	kvi_parts_take(p, KVI_EXACT, raw, rows);
	to_planes(rows, bytes / size, size, rows + bytes);
	size_t n = kvi_zstd_write(c, rows + bytes, bytes, packed, bytes, KVI_ZSTD_LEVEL);
	kvi_put8(out, n ? PACKED : STORED);
	if (n)
		kvi_put_varint(out, n);
	kvi_put_bytes(out, n ? packed : rows + bytes, n ? n : bytes);
	return KVARC_OK;
}

/* Whether some tokens are exact, and some are not. */
static bool get_bitmap(struct kvi_parts *p, struct kvi_in *in)
{
	const size_t T = p->chunk->n_tokens;
	const uint8_t *bits = kvi_get_bytes(in, (T + 7) / 8);
	if (!bits || (T % 8 && bits[T / 8] >> T % 8))
		return false;
	for (size_t t = 0; t < T; t++)
		if (bits[t / 8] >> t % 8 & 1)
			p->part[t] = KVI_EXACT;
	size_t n = kvi_parts_count(p, KVI_EXACT);
	return n && n < T;
}

kvarc_ret kvi_exact_get(struct kvi_coder *c, struct kvi_parts *p, struct kvi_in *in, uint8_t *raw)
{
	if (!get_bitmap(p, in))
		return KVARC_DATA;
	size_t size = kvarc_dtype_bytes(p->chunk->dtype);
	size_t bytes = kvi_parts_count(p, KVI_EXACT) * p->row, packed = bytes;
	unsigned method = kvi_get8(in);
	if (method > PACKED)
		return KVARC_OPTIONS;
	if (method == PACKED)
		packed = (size_t)kvi_get_varint(in, SIZE_MAX / 2);
	const uint8_t *from = packed ? kvi_get_bytes(in, packed) : NULL;
	uint8_t *rows = kvi_scratch(c, KVI_SCRATCH_LOSSY, 2 * bytes);
	if (!from)
		return KVARC_DATA;
	if (!rows)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = KVARC_OK;
	if (method == PACKED) {
		ret = kvi_zstd_read(c, from, packed, rows + bytes, bytes);
		from = rows + bytes;
	}
	if (!ret)
		from_planes(from, bytes / size, size, rows);
	if (!ret)
		kvi_parts_put(p, KVI_EXACT, rows, raw);
	return ret;
}
