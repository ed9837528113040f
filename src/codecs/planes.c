/* SPDX-License-Identifier: BSD-3-Clause */
/* planes.c - bits that are stored beside a stream (spec exponent 3) */
#include "planes.h"

enum { STORED = 0, ZSTD = 1, CONSTANT = 2 };
/* A plane whose sample has less than this many bits a byte, in 1/256, is given
 * to zstd. */
enum { WORTH_ZSTD = 7 * 256 + 128 };

size_t kvi_planes_room(size_t n, unsigned r)
{
	size_t room = 0;
	for (; r; r -= kvi_plane_next(r))
		room += 1 + kvi_plane_bytes(n, kvi_plane_next(r)) + 8;
	return room;
}

static bool is_constant(const uint8_t *plane, size_t bytes)
{
	return memcmp(plane, plane + 1, bytes - 1) == 0;
}

uint8_t *kvi_plane_write(struct kvi_coder *c, const uint8_t *plane,
                         size_t bytes, uint8_t *to)
{
	if (is_constant(plane, bytes)) {
		uint8_t value = plane[0];
		*to++ = CONSTANT;
		*to++ = value;
		return to;
	}
	if (kvi_sample_entropy(c, plane, bytes) < WORTH_ZSTD && bytes > 64) {
		uint8_t *packed = kvi_scratch(c, KVI_SCRATCH_PLANE_OUT, bytes);
		size_t n = packed ? kvi_zstd_write(c, plane, bytes, packed,
		                                   bytes - 8, 1) : 0;
		if (n) {
			*to++ = ZSTD;
			kvi_store32(to, (uint32_t)n);
			memcpy(to + 4, packed, n);
			return to + 4 + n;
		}
	}
	*to = STORED;
	if (plane != to + 1)
		memcpy(to + 1, plane, bytes);
	return to + 1 + bytes;
}

/* Padding bits of the last byte are zero (spec 1.7). */
static bool padding_is_zero(const uint8_t *plane, size_t n, unsigned bits)
{
	size_t used = n * bits % 8;
	return !used || plane[kvi_plane_bytes(n, bits) - 1] >> used == 0;
}

kvarc_ret kvi_plane_read(struct kvi_coder *c, struct kvi_in *in, size_t n,
                         unsigned bits, uint8_t *room, const uint8_t **plane)
{
	size_t bytes = kvi_plane_bytes(n, bits);
	unsigned method = kvi_get8(in);
	kvarc_ret ret;
	*plane = room;
	if (method == STORED) {
		*plane = kvi_get_bytes(in, bytes);
	} else if (method == ZSTD) {
		size_t packed = kvi_get32(in);
		const uint8_t *frame = kvi_get_bytes(in, packed);
		if (!frame)
			return KVARC_DATA;
		ret = kvi_zstd_read(c, frame, packed, room, bytes);
		if (ret)
			return ret;
	} else if (method == CONSTANT) {
		memset(room, kvi_get8(in), bytes);
	} else {
		return KVARC_OPTIONS;
	}
	if (in->bad || !padding_is_zero(*plane, n, bits))
		return KVARC_DATA;
	return KVARC_OK;
}

void kvi_plane_pack(const uint8_t *values, size_t n, unsigned bits,
                    uint8_t *plane)
{
	unsigned per_byte = 8 / bits;
	size_t whole = n / per_byte;
	for (size_t i = 0; i < whole; i++) {
		unsigned v = 0;
		for (unsigned j = 0; j < per_byte; j++)
			v |= (unsigned)values[i * per_byte + j] << j * bits;
		plane[i] = (uint8_t)v;
	}
	if (n % per_byte) {
		unsigned v = 0;
		for (size_t i = whole * per_byte; i < n; i++)
			v |= (unsigned)values[i] << i % per_byte * bits;
		plane[whole] = (uint8_t)v;
	}
}

void kvi_plane_unpack(const uint8_t *plane, size_t n, unsigned bits,
                      uint8_t *values)
{
	unsigned per_byte = 8 / bits, mask = (1u << bits) - 1;
	size_t whole = n / per_byte;
	for (size_t i = 0; i < whole; i++)
		for (unsigned j = 0; j < per_byte; j++)
			values[i * per_byte + j] =
				(uint8_t)(plane[i] >> j * bits & mask);
	for (size_t i = whole * per_byte; i < n; i++)
		values[i] = (uint8_t)(plane[whole] >> i % per_byte * bits &
		                      mask);
}
