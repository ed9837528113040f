/* SPDX-License-Identifier: BSD-3-Clause */
/* hash_body.h - H64 and H128 of the specification (spec 1.4), which are of XXH3-128, by a warp */
#ifndef KVI_GPU_HASH_BODY_H
#define KVI_GPU_HASH_BODY_H

#include "warp.h"

#if defined(__CUDACC__)
static __device__
#else
static
#endif
	const uint64_t hash_secret[24] = {
		0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de,
		0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82,
		0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c,
		0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
		0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a,
		0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5,
		0x49daf0b751dd0d17, 0x9e68d429265516d3, 0xfca1477d58be162b,
		0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
};

constexpr uint64_t PRIME32_1 = 0x9e3779b1, PRIME32_2 = 0x85ebca77, PRIME32_3 = 0xc2b2ae3d;
constexpr uint64_t PRIME64_1 = 0x9e3779b185ebca87, PRIME64_2 = 0xc2b2ae3d27d4eb4f,
		   PRIME64_3 = 0x165667b19e3779f9, PRIME64_4 = 0x85ebca77c2b2ae63,
		   PRIME64_5 = 0x27d4eb2f165667c5;
constexpr uint32_t HASH_STRIPE = 64, HASH_BLOCK = 1024, HASH_SHORT = 240;

/* 8 bytes of the secret, from any of them on. */
WARP_FN uint64_t secret_at(uint32_t at)
{
	const uint32_t shift = at % 8 * 8;
	const uint64_t low = hash_secret[at / 8];
	return shift ? low >> shift | hash_secret[at / 8 + 1] << (64 - shift) : low;
}

/* Little-endian numbers of a short input. */
WARP_FN uint64_t hash_read(span<const uint8_t> in, uint32_t at, uint32_t bytes)
{
	uint64_t v = 0;
	for (uint32_t i = 0; i < bytes; i++)
		v |= (uint64_t)first_lane(ld(in, splat(at + i))) << 8 * i;
	return v;
}

WARP_FN uint64_t hash_fold(uint64_t a, uint64_t b)
{
	return a * b ^ product_high(a, b);
}

WARP_FN uint64_t hash_avalanche(uint64_t h)
{
	h = (h ^ h >> 37) * 0x165667919e3779f9;
	return h ^ h >> 32;
}

WARP_FN uint64_t swap_bytes(uint64_t v)
{
	v = (v & 0x00ff00ff00ff00ff) << 8 | (v >> 8 & 0x00ff00ff00ff00ff);
	v = (v & 0x0000ffff0000ffff) << 16 | (v >> 16 & 0x0000ffff0000ffff);
	return v << 32 | v >> 32;
}

/* 1 to 16 bytes. */
WARP_FN uint64_t hash_to_16(span<const uint8_t> in, uint32_t n)
{
	if (n < 4) {
		uint32_t v = (uint32_t)hash_read(in, 0, 1) << 16 |
			     (uint32_t)hash_read(in, n / 2, 1) << 24 |
			     (uint32_t)hash_read(in, n - 1, 1) | n << 8;
		uint64_t h = v ^ ((uint32_t)hash_secret[0] ^ (uint32_t)(hash_secret[0] >> 32));
		h = (h ^ h >> 33) * PRIME64_2;
		h = (h ^ h >> 29) * PRIME64_3;
		return h ^ h >> 32;
	}
	if (n < 9) {
		uint64_t v = hash_read(in, 0, 4) | hash_read(in, n - 4, 4) << 32;
		v ^= hash_secret[2] ^ hash_secret[3];
		const uint64_t by = PRIME64_1 + ((uint64_t)n << 2);
		uint64_t low = v * by, high = product_high(v, by) + (low << 1);
		low ^= high >> 3;
		low = (low ^ low >> 35) * 0x9fb21c651e98df25;
		return low ^ low >> 28;
	}
	uint64_t a = hash_read(in, 0, 8), b = hash_read(in, n - 8, 8);
	uint64_t v = a ^ b ^ hash_secret[4] ^ hash_secret[5];
	uint64_t low = v * PRIME64_1 + ((uint64_t)(n - 1) << 54);
	b ^= hash_secret[6] ^ hash_secret[7];
	uint64_t high = product_high(v, PRIME64_1) + b + (b & 0xffffffff) * (PRIME32_2 - 1);
	return hash_avalanche((low ^ swap_bytes(high)) * PRIME64_2);
}

/* The two sums of 17 to 240 bytes. */
struct hash_sums {
	uint64_t low, high;
};

WARP_FN void hash_mix(hash_sums *s, span<const uint8_t> in, uint32_t x, uint32_t y, uint32_t secret)
{
	const uint64_t a = hash_read(in, x, 8), b = hash_read(in, x + 8, 8);
	const uint64_t c = hash_read(in, y, 8), d = hash_read(in, y + 8, 8);
	s->low += hash_fold(a ^ secret_at(secret), b ^ secret_at(secret + 8));
	s->low ^= c + d;
	s->high += hash_fold(c ^ secret_at(secret + 16), d ^ secret_at(secret + 24));
	s->high ^= a + b;
}

/* 17 to 240 bytes. */
WARP_FN uint64_t hash_to_240(span<const uint8_t> in, uint32_t n)
{
	hash_sums s = { n * PRIME64_1, 0 };
	if (n <= 128) {
		for (uint32_t i = (n - 1) / 32 + 1; i-- > 0;)
			hash_mix(&s, in, 16 * i, n - 16 * i - 16, 32 * i);
		return hash_avalanche(s.low + s.high);
	}
	for (uint32_t i = 0; i < 4; i++)
		hash_mix(&s, in, 32 * i, 32 * i + 16, 32 * i);
	s.low = hash_avalanche(s.low);
	s.high = hash_avalanche(s.high);
	for (uint32_t i = 4; 32 * i + 32 <= n; i++)
		hash_mix(&s, in, 32 * i, 32 * i + 16, 32 * i - 125);
	hash_mix(&s, in, n - 16, n - 32, 103);
	return hash_avalanche(s.low + s.high);
}

/* Numbers of 8 bytes at byte positions of a memory. */
template <bool ALIGNED> WARP_FN u64v hash_load(span<const uint8_t> in, u32v at, boolv on)
{
	if (ALIGNED)
		return ld64_if(in, at, on);
	u64v v = splat64(0);
	for (uint32_t i = 0; i < 8; i++)
		v |= wide(ld_if(in, at + i, on)) << (uint64_t)(8 * i);
	return v;
}

/* The sum that the four stripes of a warp add to the accumulators. */
WARP_FN u64v hash_stripes(u64v v, u64v secret, boolv on)
{
	const u64v k = v ^ secret;
	u64v sum = shuffle64(v, lanes() ^ 1) + product(low_half(k), low_half(k >> (uint64_t)32));
	sum = select64(on, sum, splat64(0));
	sum += shuffle64(sum, lanes() ^ 8);
	return sum + shuffle64(sum, lanes() ^ 16);
}

/* The start of the accumulators: lane = stripe * 8 + number. */
WARP_FN u64v hash_start(void)
{
	const u32v word = lanes() & 7;
	u64v acc = splat64(PRIME32_3);
	acc = select64(word == 1, splat64(PRIME64_1), acc);
	acc = select64(word == 2, splat64(PRIME64_2), acc);
	acc = select64(word == 3, splat64(PRIME64_3), acc);
	acc = select64(word == 4, splat64(PRIME64_4), acc);
	acc = select64(word == 5, splat64(PRIME32_2), acc);
	acc = select64(word == 6, splat64(PRIME64_5), acc);
	return select64(word == 7, splat64(PRIME32_1), acc);
}

/* The accumulators of more than 240 bytes. */
template <bool ALIGNED> WARP_FN u64v hash_accumulate(span<const uint8_t> in, uint32_t n)
{
	const u32v word = lanes() & 7, stripe = lanes() >> 3;
	span<const uint64_t> secret = span_at<const uint64_t>((uint64_t)(uintptr_t)hash_secret, 24);
	const u64v scramble = ld64(secret, word + 16);
	const uint32_t blocks = (n - 1) / HASH_BLOCK;
	const uint32_t stripes = (n - 1 - blocks * HASH_BLOCK) / HASH_STRIPE;
	const boolv all = lanes() < 32;
	u64v acc = hash_start(), key[4];
	UNROLL
	for (uint32_t i = 0; i < 4; i++)
		key[i] = ld64(secret, word + stripe + 4 * i);
	for (uint32_t b = 0; b < blocks; b++) {
		UNROLL
		for (uint32_t i = 0; i < 4; i++)
			acc += hash_stripes(hash_load<ALIGNED>(in, lanes() * 8 + b * HASH_BLOCK +
			                                               i * 4 * HASH_STRIPE, all),
			                    key[i], all);
		acc = (acc ^ acc >> (uint64_t)47 ^ scramble) * PRIME32_1;
	}
	for (uint32_t i = 0; i < 4; i++) {
		const boolv on = stripe + 4 * i < stripes;
		const u32v at = lanes() * 8 + blocks * HASH_BLOCK + i * 4 * HASH_STRIPE;
		acc += hash_stripes(hash_load<ALIGNED>(in, at, on), key[i], on);
	}
	/* the last 64 bytes, at any position, with the secret from byte 121 on */
	const boolv once = lanes() < 8;
	const u64v last = ld64(secret, word + 15) >> (uint64_t)8 |
			  ld64(secret, word + 16) << (uint64_t)56;
	return acc +
	       hash_stripes(hash_load<false>(in, word * 8 + (n - HASH_STRIPE), once), last, once);
}

/* A half of the hash, from the accumulators. */
WARP_FN uint64_t hash_merge(u64v acc, uint32_t secret, uint64_t h)
{
	for (uint32_t i = 0; i < 4; i++)
		h += hash_fold(first_lane64(shuffle64(acc, splat(2 * i))) ^
				       secret_at(secret + 16 * i),
			       first_lane64(shuffle64(acc, splat(2 * i + 1))) ^
				       secret_at(secret + 8 + 16 * i));
	return hash_avalanche(h);
}

WARP_FN uint64_t hash_low(u64v acc, uint32_t n)
{
	return hash_merge(acc, 11, n * PRIME64_1);
}

/* H64 of n bytes, 1 at least, that this kernel may have written. */
WARP_CALL uint64_t hash_bytes(uint64_t address, uint32_t n)
{
	span<const uint8_t> in = span_at<const uint8_t>(address, n);
	if (n <= 16)
		return hash_to_16(in, n);
	if (n <= HASH_SHORT)
		return hash_to_240(in, n);
	return hash_low(address % 8 ? hash_accumulate<false>(in, n) : hash_accumulate<true>(in, n),
			n);
}

WARP_FN uint64_t hash_high(u64v acc, uint32_t n)
{
	return hash_merge(acc, 117, ~(n * PRIME64_2));
}

/* The accumulators of n bytes, more than 240, of what each of their blocks adds to them. */
WARP_FN u64v hash_blocks(uint64_t sums, uint32_t n)
{
	const u32v number = lanes() & 7;
	const uint32_t blocks = (n + HASH_BLOCK - 1) / HASH_BLOCK;
	span<const uint64_t> from = span_at<const uint64_t>(sums, 8 * blocks);
	const u64v scramble = ld64(span_at<const uint64_t>((uint64_t)(uintptr_t)hash_secret, 24),
	                           number + 16);
	u64v acc = hash_start() + ld64(from, number);
	for (uint32_t i = 1; i < blocks; i++)
		acc = (acc ^ acc >> (uint64_t)47 ^ scramble) * PRIME32_1 +
		      ld64(from, number + 8 * i);
	return acc;
}

#endif
