/* SPDX-License-Identifier: BSD-3-Clause */
/* warp_host_body.h - warp.h on a host: a value of a warp is a vector of 32, memory is checked */
#ifndef KVI_GPU_WARP_HOST_BODY_H
#define KVI_GPU_WARP_HOST_BODY_H

#include <string.h>

#include "host_fault.h"
#include "host_race.h"

#define WARP_METHOD __attribute__((always_inline))
#define WARP_OP static inline WARP_METHOD
#define WARP_FN static inline
#define WARP_CALL static
#define UNROLL
#define ROLLED
#define UNROLL_TWICE

typedef uint32_t u32v __attribute__((vector_size(128)));
typedef uint64_t u64v __attribute__((vector_size(256)));
typedef int32_t boolv __attribute__((vector_size(128)));

#define EACH_LANE for (int l = 0; race_lane(l) < 32; l++)

template <typename T> struct span {
	T *p;
	size_t n;
};

template <typename T> WARP_OP span<T> span_at(uint64_t address, size_t n)
{
	if (address % sizeof(T))
		kvi_gpu_host_fault("misaligned", address, sizeof(T), n);
	return span<T>{ (T *)(uintptr_t)address, n };
}

/* An access outside of a span ends the program: it is a fault of the kernel. */
WARP_OP void bounds(size_t i, size_t n)
{
	if (__builtin_expect(i >= n, 0))
		kvi_gpu_host_fault("out of bounds", i, 1, n);
}

WARP_OP u32v lanes(void)
{
	u32v r;
	EACH_LANE
	r[l] = (uint32_t)l;
	return r;
}
WARP_OP u32v splat(uint32_t x)
{
	return u32v{} + x;
}
WARP_OP u64v splat64(uint64_t x)
{
	return u64v{} + x;
}
WARP_OP uint32_t mask_of(boolv b)
{
	uint32_t m = 0;
	EACH_LANE
	m |= (uint32_t)(b[l] != 0) << l;
	return m;
}
WARP_OP u32v select(boolv b, u32v x, u32v y)
{
	return (x & (u32v)b) | (y & ~(u32v)b);
}
WARP_OP u64v select64(boolv b, u64v x, u64v y)
{
	u64v r;
	EACH_LANE
	r[l] = b[l] ? x[l] : y[l];
	return r;
}
WARP_OP u32v shuffle(u32v v, u32v from)
{
	u32v r;
	EACH_LANE
	r[l] = v[from[l] & 31];
	return r;
}
WARP_OP u64v shuffle64(u64v v, u32v from)
{
	u64v r;
	EACH_LANE
	r[l] = v[from[l] & 31];
	return r;
}
WARP_OP u32v below(uint32_t mask)
{
	u32v r;
	uint32_t n = 0;
	EACH_LANE
	{
		r[l] = n;
		n += mask >> l & 1;
	}
	return r;
}
WARP_OP uint32_t count(uint32_t mask)
{
	return (uint32_t)__builtin_popcount(mask);
}
WARP_OP boolv lane_in(uint32_t mask)
{
	return (boolv)((splat(mask) >> lanes() & 1) != 0);
}
WARP_OP u32v bytes_of(u32v lo, u32v hi, u32v sel)
{
	u32v r;
	EACH_LANE
	{
		uint64_t both = (uint64_t)hi[l] << 32 | lo[l];
		uint32_t v = 0;
		for (int b = 0; b < 4; b++)
			v |= (uint32_t)(both >> (sel[l] >> 4 * b & 7) * 8 & 255) << 8 * b;
		r[l] = v;
	}
	return r;
}
WARP_OP uint32_t any_of(u32v v)
{
	uint32_t m = 0;
	EACH_LANE
	m |= v[l];
	return m;
}
WARP_OP uint32_t uniform(uint32_t x)
{
	return x;
}
WARP_OP uint32_t first_lane(u32v v)
{
	return v[0];
}
WARP_OP uint64_t first_lane64(u64v v)
{
	return v[0];
}
WARP_OP u32v low_half(u64v v)
{
	u32v r;
	EACH_LANE
	r[l] = (uint32_t)v[l];
	return r;
}
WARP_OP u64v wide(u32v v)
{
	u64v r;
	EACH_LANE
	r[l] = v[l];
	return r;
}
WARP_OP u64v product(u32v a, u32v b)
{
	return wide(a) * wide(b);
}
WARP_OP u32v product_high32(u32v a, u32v b)
{
	return low_half(product(a, b) >> (uint64_t)32);
}
WARP_OP uint64_t product_high(uint64_t a, uint64_t b)
{
	const uint64_t low = 0xffffffff;
	const uint64_t middle = (a >> 32) * (b & low) + ((a & low) * (b & low) >> 32);
	const uint64_t other = (a & low) * (b >> 32) + (middle & low);
	return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32);
}
WARP_OP u32v high_bit(u32v v)
{
	u32v r;
	EACH_LANE
	r[l] = v[l] ? 31 - (uint32_t)__builtin_clz(v[l]) : ~0u;
	return r;
}
WARP_OP u32v low_zeros(u32v v)
{
	u32v r;
	EACH_LANE
	r[l] = v[l] ? (uint32_t)__builtin_ctz(v[l]) : ~0u;
	return r;
}
WARP_OP u32v sar(u32v v, uint32_t n)
{
	return (u32v)((boolv)v >> (int32_t)n);
}
WARP_OP u32v sar(u32v v, u32v n)
{
	return (u32v)((boolv)v >> (boolv)n);
}
WARP_OP boolv less_signed(u32v a, u32v b)
{
	return (boolv)((boolv)a < (boolv)b);
}
WARP_OP u32v max_signed(u32v a, u32v b)
{
	return select(less_signed(a, b), b, a);
}
WARP_OP u32v min_signed(u32v a, u32v b)
{
	return select(less_signed(a, b), a, b);
}
WARP_OP u32v shift_right(u32v v, u32v n)
{
	u32v r;
	EACH_LANE
	r[l] = n[l] > 31 ? 0 : v[l] >> n[l];
	return r;
}
WARP_OP u32v shift_right_modulo(u32v v, u32v n)
{
	return v >> (n & 31);
}
WARP_OP u32v float_bits(u32v v)
{
	u32v r;
	EACH_LANE
	{
		float f = (float)(int32_t)v[l];
		uint32_t bits;
		memcpy(&bits, &f, sizeof bits);
		r[l] = bits;
	}
	return r;
}

/* The four bytes of a word, with signs or without. */
template <bool SIGNED> WARP_OP void unpack_bytes(int32_t *to, uint32_t word)
{
	for (int b = 0; b < 4; b++)
		to[b] = SIGNED ? (int8_t)(word >> 8 * b) : (int32_t)(word >> 8 * b & 255);
}
template <bool A, bool B> WARP_FN void add_products(u32v c[4], const u32v a[4], const u32v b[2])
{
	int32_t row[16][32], column[8][32];
	EACH_LANE
	{
		const int g = l / 4, first = l % 4 * 4;
		for (int i = 0; i < 4; i++)
			unpack_bytes<A>(&row[g + i % 2 * 8][first + i / 2 * 16], a[i][l]);
		for (int i = 0; i < 2; i++)
			unpack_bytes<B>(&column[g][first + i * 16], b[i][l]);
	}
	EACH_LANE
	for (int i = 0; i < 4; i++) {
		const int32_t *x = row[l / 4 + i / 2 * 8], *y = column[l % 4 * 2 + i % 2];
		int32_t sum = 0; /* below 2^22 */
		for (int k = 0; k < 32; k++)
			sum += x[k] * y[k];
		c[i][l] += (uint32_t)sum;
	}
}

template <typename T> WARP_OP u32v ld(span<T> s, u32v i)
{
	u32v r;
	EACH_LANE
	{
		bounds(i[l], s.n);
		r[l] = (uint32_t)s.p[i[l]];
	}
	return r;
}
template <typename T> WARP_OP u32v ld_if(span<T> s, u32v i, boolv ok)
{
	u32v r = {};
	EACH_LANE
	if (ok[l]) {
		bounds(i[l], s.n);
		r[l] = (uint32_t)s.p[i[l]];
	}
	return r;
}
template <typename T> WARP_OP void st(span<T> s, u32v i, u32v v)
{
	EACH_LANE
	{
		bounds(i[l], s.n);
		s.p[i[l]] = (T)v[l];
	}
}
template <typename T> WARP_OP void st_if(span<T> s, u32v i, u32v v, boolv ok)
{
	EACH_LANE
	if (ok[l]) {
		bounds(i[l], s.n);
		s.p[i[l]] = (T)v[l];
	}
}
template <typename T> WARP_OP void st_once(span<T> s, u32v i, u32v v)
{
	st(s, i, v);
}
/* Memory that the kernel in hand writes to: ldg must not read it. */
struct host_range {
	uint64_t address;
	size_t n;
};
static host_range written[2];
struct constant_load {
	WARP_METHOD constant_load(const void *p)
	{
		for (const host_range &r : written)
			if (__builtin_expect((uint64_t)(uintptr_t)p - r.address < r.n, 0))
				kvi_gpu_host_fault("constant load", (uint64_t)(uintptr_t)p, 1, r.n);
		race_constant(true);
	}
	WARP_METHOD ~constant_load()
	{
		race_constant(false);
	}
};
template <typename T> WARP_OP u32v ldg(span<T> s, u32v i)
{
	const constant_load constant(s.p);
	return ld(s, i);
}
template <typename T> WARP_OP u32v ldg_if(span<T> s, u32v i, boolv ok)
{
	const constant_load constant(s.p);
	return ld_if(s, i, ok);
}
WARP_OP u32v ld_byte_at(span<const uint32_t> s, u32v at)
{
	if (mask_of((at & 3) != 0))
		kvi_gpu_host_fault("misaligned", at[0], 4, s.n);
	return ld(s, at >> 2);
}
template <typename T> WARP_OP span<T> skip(span<T> s, uint32_t n)
{
	if (n > s.n)
		kvi_gpu_host_fault("out of bounds", n, 0, s.n);
	return span<T>{ s.p + n, s.n - n };
}
template <typename T> WARP_OP span<T> part(span<uint32_t> s, uint32_t first, uint32_t n)
{
	if (first > s.n || n > (s.n - first) * 4 / sizeof(T))
		kvi_gpu_host_fault("out of bounds", first, n, s.n);
	return span<T>{ (T *)(void *)(s.p + first), n };
}
template <typename T> WARP_OP uint32_t ldg_one(span<T> s, uint32_t i)
{
	bounds(i, s.n);
	const constant_load constant(s.p);
	return (uint32_t)s.p[i];
}
struct quads {
	u32v v[4];
};
template <typename T> WARP_OP void bounds_quad(span<T> s, uint32_t i)
{
	bounds((size_t)i * 4 + 3, s.n);
	if ((uintptr_t)s.p % 16)
		kvi_gpu_host_fault("misaligned", i, 16, s.n);
}
WARP_OP quads ld_quads_if(span<const uint32_t> s, u32v i, boolv ok)
{
	quads q = {};
	EACH_LANE
	if (ok[l]) {
		bounds_quad(s, i[l]);
		for (int k = 0; k < 4; k++)
			q.v[k][l] = s.p[(size_t)i[l] * 4 + k];
	}
	return q;
}
WARP_OP quads ld_quads(span<const uint32_t> s, u32v i)
{
	return ld_quads_if(s, i, lane_in(~0u));
}
WARP_OP quads ldg_quads_if(span<const uint32_t> s, u32v i, boolv ok)
{
	const constant_load constant(s.p);
	return ld_quads_if(s, i, ok);
}
WARP_OP void st_quads_if(span<uint32_t> s, u32v i, quads q, boolv ok)
{
	EACH_LANE
	if (ok[l]) {
		bounds_quad(s, i[l]);
		for (int k = 0; k < 4; k++)
			s.p[(size_t)i[l] * 4 + k] = q.v[k][l];
	}
}
WARP_OP u64v ld64(span<const uint64_t> s, u32v i)
{
	u64v r;
	EACH_LANE
	{
		bounds(i[l], s.n);
		r[l] = s.p[i[l]];
	}
	return r;
}
WARP_OP u64v ld64_if(span<const uint8_t> s, u32v at, boolv ok)
{
	u64v r = {};
	EACH_LANE
	if (ok[l]) {
		uint64_t v;
		bounds((size_t)at[l] + 7, s.n);
		if ((uintptr_t)(s.p + at[l]) % 8)
			kvi_gpu_host_fault("misaligned", at[l], 8, s.n);
		memcpy(&v, s.p + at[l], 8);
		r[l] = v;
	}
	return r;
}
WARP_OP u64v joined(u32v low, u32v high)
{
	return wide(low) | wide(high) << (uint64_t)32;
}
WARP_OP u32v funnel(u32v low, u32v high, u32v n)
{
	return low_half(joined(low, high) >> wide(n & 31));
}
WARP_OP boolv nonzero64(u64v v)
{
	boolv r;
	EACH_LANE
	r[l] = v[l] ? -1 : 0;
	return r;
}
WARP_OP u64v shuffle64_xor(u64v v, uint32_t n)
{
	return shuffle64(v, lanes() ^ n);
}
WARP_OP u32v half_sums(u32v v)
{
	for (int l = 0; l < 32; l++)
		v[l] += l & 15 ? v[l - 1] : 0;
	return v;
}
WARP_OP u32v half_last(u32v v)
{
	return shuffle(v, lanes() | 15);
}
WARP_OP u32v bytes_sum(u32v v)
{
	v = (v & 0xff00ff) + (v >> 8 & 0xff00ff);
	return (v + (v >> 16)) & 0xffff;
}
WARP_OP u32v bytes_less(u32v x, u32v y)
{
	return ((x | 0x80808080) - (y & 0x7f7f7f7f)) ^ ((x ^ ~y) & 0x80808080);
}
WARP_OP uint32_t lane_value(u32v v, uint32_t i)
{
	return v[i];
}
template <typename T> WARP_OP uint32_t ld_one(span<T> s, uint32_t i)
{
	bounds(i, s.n);
	return (uint32_t)s.p[i];
}
WARP_OP void st_bytes(span<uint8_t> s, uint64_t at, uint64_t v, size_t bytes)
{
	const uint64_t i = at - (uint64_t)(uintptr_t)s.p;
	bounds((size_t)i, s.n);
	bounds((size_t)i + bytes - 1, s.n);
	if (at % bytes)
		kvi_gpu_host_fault("misaligned", at, bytes, s.n);
	memcpy(s.p + i, &v, bytes);
}
template <int SIZE> WARP_OP void st_element(span<uint8_t> s, u64v at, u64v v, boolv ok)
{
	EACH_LANE
	if (ok[l])
		st_bytes(s, at[l], v[l], SIZE);
}
template <int SIZE> WARP_OP void st_group(span<uint8_t> s, u64v at, u64v v, boolv ok)
{
	EACH_LANE
	if (ok[l])
		st_bytes(s, at[l], v[l], 4 * SIZE);
}
WARP_OP uint64_t ld_bytes(span<uint8_t> s, uint64_t at, size_t bytes)
{
	const uint64_t i = at - (uint64_t)(uintptr_t)s.p;
	uint64_t v = 0;
	bounds((size_t)i, s.n);
	bounds((size_t)i + bytes - 1, s.n);
	if (at % bytes)
		kvi_gpu_host_fault("misaligned", at, bytes, s.n);
	memcpy(&v, s.p + i, bytes);
	return v;
}
template <int SIZE> WARP_OP u32v ld_element(span<uint8_t> s, u64v at, boolv ok)
{
	u32v r = {};
	EACH_LANE
	if (ok[l])
		r[l] = (uint32_t)ld_bytes(s, at[l], SIZE);
	return r;
}
template <int SIZE> WARP_OP u64v ld_group(span<uint8_t> s, u64v at, boolv ok)
{
	u64v r = {};
	EACH_LANE
	if (ok[l])
		r[l] = ld_bytes(s, at[l], 4 * SIZE);
	return r;
}
WARP_OP void st64_if(span<uint64_t> s, u32v i, u64v v, boolv ok)
{
	EACH_LANE
	if (ok[l]) {
		bounds(i[l], s.n);
		s.p[i[l]] = v[l];
	}
}
template <typename T> WARP_OP void st_one(span<T> s, uint32_t i, uint64_t v)
{
	bounds(i, s.n);
	s.p[i] = (T)v;
}
WARP_OP void add_if(span<uint32_t> s, u32v i, u32v v, boolv ok)
{
	(void)race_lane(RACE_NO_LANE);
	for (int l = 0; l < 32; l++)
		if (ok[l]) {
			bounds(i[l], s.n);
			s.p[i[l]] += v[l];
		}
	(void)race_lane(RACE_ALL_LANES);
}
WARP_OP uint64_t add_shared(span<uint64_t> s, uint64_t v)
{
	(void)race_lane(RACE_NO_LANE);
	const uint64_t was = *s.p;
	*s.p += v;
	(void)race_lane(RACE_ALL_LANES);
	return was;
}
WARP_OP uint32_t least_of(u32v v)
{
	uint32_t least = ~0u;
	EACH_LANE
	least = v[l] < least ? v[l] : least;
	return least;
}
WARP_OP void warp_barrier(void)
{
	race_warp_barrier();
}
static span<uint32_t> shared_by_block; /* the memory of the block in hand */
WARP_OP span<uint32_t> block_memory(void)
{
	return shared_by_block;
}
template <typename F> WARP_OP void each_warp(F f)
{
	for (uint32_t w = 0; w < RACE_ALL_WARPS; w++) {
		race_warp(w);
		f(w);
	}
	race_block_barrier();
}
/* A launch of n warps that share no block, one after the other; own: memory of the one in hand. */
template <typename F> WARP_FN void launch_warps(uint32_t n, span<uint32_t> own, F f)
{
	race_launch(__builtin_frame_address(0));
	for (uint32_t i = 0; i < n; i++) {
		race_block(i, own.p, 4 * own.n);
		race_warp(0);
		f(i);
	}
	race_ended();
}
/* Takes a lock or releases it; they are taken in turn. */
WARP_OP void set_lock(span<uint32_t> s, uint32_t i, uint32_t taken)
{
	bounds(i, s.n);
	(void)race_lane(RACE_NO_LANE);
	if (s.p[i] == taken)
		kvi_gpu_host_fault("lock", i, s.p[i], s.n);
	s.p[i] = taken;
	(void)race_lane(RACE_ALL_LANES);
}
WARP_OP uint32_t take_lock(span<uint32_t> s, uint32_t first, uint32_t n)
{
	const uint32_t i = first % n;
	set_lock(s, i, 1);
	race_take(s.p + i);
	return i;
}
WARP_OP void give_lock(span<uint32_t> s, uint32_t i)
{
	race_give(s.p + i);
	set_lock(s, i, 0);
}

#endif
