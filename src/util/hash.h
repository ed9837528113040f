/* SPDX-License-Identifier: BSD-3-Clause */
/* hash.h - H64 and H128 of the specification (spec 1.4), on libxxhash */
#ifndef KVI_HASH_H
#define KVI_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/shared.h"

/* A hash of 128 bits: the low half, then the high half, as they are stored. */
struct kvi_h128 {
	uint64_t lo, hi;
};

/* H64 of the bytes: the low half of H128. */
KVI_SHARED uint64_t kvi_h64(const void *p, size_t bytes);
/* H64 of n numbers as files have them. */
uint64_t kvi_h64_i16(const int16_t *p, size_t n);
/* H64(a || b). */
uint64_t kvi_h64_2(const void *a, size_t na, const void *b, size_t nb);
/* Whether a header's check is that of versions before 1.0, whose H64 was another one. */
bool kvi_h64_pre_release(const void *p, size_t bytes, uint64_t check);
/* H128 of the bytes: XXH3, 128 bits, seed 0. */
KVI_SHARED struct kvi_h128 kvi_h128(const void *p, size_t bytes);
/* H128 of the bytes of a followed by those of b. */
struct kvi_h128 kvi_h128_2(const void *a, size_t na, const void *b, size_t nb);

/* H128 of bytes that come in parts; its fields are of hash.c alone. */
struct kvi_hasher {
	_Alignas(64) uint8_t state[576];
};
/* Begins with no bytes. */
void kvi_hasher_begin(struct kvi_hasher *hasher);
/* Adds bytes behind those that came before. */
void kvi_hasher_add(struct kvi_hasher *hasher, const void *p, size_t bytes);
/* H128 of all bytes that came; more may follow. */
struct kvi_h128 kvi_hasher_end(const struct kvi_hasher *hasher);

/* The 16 bytes that a file has: low, then high, little-endian. */
struct kvi_h128 kvi_load_h128(const uint8_t in[16]);
/* Stores the 16 bytes of a hash as kvi_load_h128 reads them. */
KVI_SHARED void kvi_store_h128(uint8_t out[16], struct kvi_h128 hash);
/* The next number of the generator splitmix64; *state begins as its seed. */
static inline uint64_t kvi_splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}
/* Whether two hashes are the same. */
static inline bool kvi_h128_equal(struct kvi_h128 hash, struct kvi_h128 digest)
{
	return hash.lo == digest.lo && hash.hi == digest.hi;
}

#endif
