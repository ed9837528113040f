/* SPDX-License-Identifier: BSD-3-Clause */
/* planes.c - bytes that are stored beside a stream (spec rans 5) */
#include "planes.h"

/* A plane whose sample has fewer bits per byte than this, in 1/256, is packed
 * by Zstandard. */
enum { WORTH_ZSTD = 7 * 256 + 128 };

static bool is_constant(const uint8_t *plane, size_t bytes)
{
	return memcmp(plane, plane + 1, bytes - 1) == 0;
}

/* Writes the head of a plane; returns its end. */
static uint8_t *put_head(uint8_t *to, unsigned method, uint8_t value, size_t bytes)
{
	memset(to, 0, KVI_PLANE_HEAD);
	to[0] = (uint8_t)method;
	to[1] = value;
	kvi_store32(to + 4, (uint32_t)bytes);
	return to + KVI_PLANE_HEAD;
}

uint8_t *kvi_plane_write(struct kvi_coder *coder, const uint8_t *plane, size_t bytes, uint8_t *to)
{
	if (is_constant(plane, bytes))
		return put_head(to, KVI_PLANE_CONSTANT, plane[0], 0);
	if (kvi_sample_entropy(coder, plane, bytes) < WORTH_ZSTD && bytes > 64) {
		uint8_t *packed = kvi_scratch(coder, KVI_SCRATCH_PLANE_OUT, bytes);
		size_t n = packed ? kvi_zstd_write(coder, plane, bytes, packed, bytes - 8, 1) : 0;
		if (n) {
			to = put_head(to, KVI_PLANE_ZSTD, 0, n);
			memcpy(to, packed, n);
			return kvi_put_padding(to + n, n);
		}
	}
	if (plane != to + KVI_PLANE_HEAD)
		memcpy(to + KVI_PLANE_HEAD, plane, bytes);
	to = put_head(to, KVI_PLANE_STORED, 0, bytes);
	return kvi_put_padding(to + bytes, bytes);
}

kvarc_ret kvi_plane_read(struct kvi_coder *coder, struct kvi_in *in, size_t n, uint8_t *buffer,
                         const uint8_t **plane)
{
	unsigned method = kvi_get8(in);
	uint8_t value = kvi_get8(in);
	unsigned zero = kvi_get16(in);
	size_t stored = kvi_get32(in);
	bool good = kvi_get64(in) == 0 && zero == 0 && (method == KVI_PLANE_CONSTANT || !value);
	const uint8_t *data = kvi_get_bytes(in, stored);
	if (method > KVI_PLANE_CONSTANT && !in->bad)
		return KVARC_OPTIONS;
	if (!good || !data || !kvi_get_padding(in, stored))
		return KVARC_DATA;
	*plane = buffer;
	if (method == KVI_PLANE_ZSTD) {
		kvarc_ret ret = kvi_zstd_read(coder, data, stored, buffer, n);
		if (ret)
			return ret;
	} else if (stored != (method == KVI_PLANE_STORED ? n : 0)) {
		return KVARC_DATA;
	} else if (method == KVI_PLANE_STORED) {
		*plane = data;
	} else {
		memset(buffer, value, n);
	}
	return KVARC_OK;
}

kvarc_ret kvi_packed_put(struct kvi_coder *coder, const uint8_t *from, size_t bytes,
                         struct kvi_out *out)
{
	uint8_t *packed = kvi_scratch(coder, KVI_SCRATCH_PLANE_OUT, bytes);
	if (!packed)
		return kvi_alloc_error(coder->alloc);
	size_t n = kvi_zstd_write(coder, from, bytes, packed, bytes, KVI_ZSTD_LEVEL);
	kvi_put8(out, n ? KVI_PLANE_ZSTD : KVI_PLANE_STORED);
	if (n)
		kvi_put_varint(out, n);
	kvi_put_bytes(out, n ? packed : from, n ? n : bytes);
	return KVARC_OK;
}

kvarc_ret kvi_packed_get(struct kvi_coder *coder, struct kvi_in *in, size_t bytes,
                         const uint8_t **to)
{
	unsigned method = kvi_get8(in);
	size_t packed = bytes;
	if (method > KVI_PLANE_ZSTD)
		return KVARC_OPTIONS;
	if (method == KVI_PLANE_ZSTD)
		packed = (size_t)kvi_get_varint(in, SIZE_MAX / 2);
	*to = packed ? kvi_get_bytes(in, packed) : NULL;
	if (!*to)
		return KVARC_DATA;
	if (method == KVI_PLANE_STORED)
		return KVARC_OK;
	uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_PLANE, bytes);
	if (!buffer)
		return kvi_alloc_error(coder->alloc);
	const uint8_t *frame = *to;
	*to = buffer;
	return kvi_zstd_read(coder, frame, packed, buffer, bytes);
}
