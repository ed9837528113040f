/* SPDX-License-Identifier: BSD-3-Clause */
/* hash.c - XXH3 through libxxhash */
#include <config.h>

#include "hash.h"

#include "util/bytes.h"

#define XXH_STATIC_LINKING_ONLY /* declares the state, for one on the stack */
#include <xxhash.h>
#ifdef KVI_XXH_DISPATCH
/* Chooses SSE2, AVX2 or AVX-512 at run time: 20, 64 and 84 GB/s on a Zen 5,
 * where every decoded byte is hashed and every stored byte as well. Weak: static
 * libraries of xxHash may lack it. */
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#pragma weak XXH3_128bits_dispatch
#pragma weak XXH3_128bits_update_dispatch
#endif

/* XXH3-128 of the bytes. */
static XXH128_hash_t hash(const void *p, size_t bytes)
{
#ifdef KVI_XXH_DISPATCH
	if (XXH3_128bits_dispatch)
		return XXH3_128bits_dispatch(p, bytes);
#endif
	return XXH3_128bits(p, bytes);
}

/* Adds bytes to a state. */
static void update(XXH3_state_t *st, const void *p, size_t bytes)
{
#ifdef KVI_XXH_DISPATCH
	if (XXH3_128bits_update_dispatch) {
		XXH3_128bits_update_dispatch(st, p, bytes);
		return;
	}
#endif
	XXH3_128bits_update(st, p, bytes);
}

uint64_t kvi_h64(const void *p, size_t bytes)
{
	return hash(p, bytes).low64;
}

uint64_t kvi_h64_i16(const int16_t *p, size_t n)
{
	enum { PART = 256 };
	const uint16_t one = 1;
	uint8_t part[2 * PART];
	XXH3_state_t st;
	if (*(const uint8_t *)&one) /* little-endian: they are there already */
		return kvi_h64(p, 2 * n);
	XXH3_128bits_reset(&st);
	for (size_t k; n; n -= k, p += k) {
		k = n < PART ? n : PART;
		for (size_t i = 0; i < k; i++)
			kvi_store16(part + 2 * i, (uint16_t)p[i]);
		update(&st, part, 2 * k);
	}
	return XXH3_128bits_digest(&st).low64;
}

uint64_t kvi_h64_2(const void *a, size_t na, const void *b, size_t nb)
{
	return kvi_h128_2(a, na, b, nb).lo;
}

bool kvi_h64_pre_release(const void *p, size_t bytes, uint64_t check)
{
	return XXH3_64bits(p, bytes) == check;
}

static struct kvi_h128 from(XXH128_hash_t h)
{
	return (struct kvi_h128){ h.low64, h.high64 };
}

struct kvi_h128 kvi_h128(const void *p, size_t bytes)
{
	return from(hash(p, bytes));
}

struct kvi_h128 kvi_h128_2(const void *a, size_t na, const void *b, size_t nb)
{
	XXH3_state_t st;
	XXH3_128bits_reset(&st);
	update(&st, a, na);
	update(&st, b, nb);
	return from(XXH3_128bits_digest(&st));
}

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct kvi_hasher), "a state fits");

void kvi_hasher_begin(struct kvi_hasher *hasher)
{
	XXH3_128bits_reset((XXH3_state_t *)(void *)hasher->state);
}

void kvi_hasher_add(struct kvi_hasher *hasher, const void *p, size_t bytes)
{
	update((XXH3_state_t *)(void *)hasher->state, p, bytes);
}

struct kvi_h128 kvi_hasher_end(const struct kvi_hasher *hasher)
{
	return from(XXH3_128bits_digest((const XXH3_state_t *)(const void *)hasher->state));
}

struct kvi_h128 kvi_load_h128(const uint8_t in[16])
{
	return (struct kvi_h128){ kvi_load64(in), kvi_load64(in + 8) };
}

void kvi_store_h128(uint8_t out[16], struct kvi_h128 hash)
{
	kvi_store64(out, hash.lo);
	kvi_store64(out + 8, hash.hi);
}
