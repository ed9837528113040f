/* SPDX-License-Identifier: BSD-3-Clause */
/* warp_device_body.h - warp.h on a GPU: a value of a lane is a register */
#ifndef KVI_GPU_WARP_DEVICE_BODY_H
#define KVI_GPU_WARP_DEVICE_BODY_H

#define WARP_FN static __device__ __forceinline__
/* Functions that are called, and not made part of their callers. */
#define WARP_CALL static __device__ __noinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#define UNROLL_TWICE _Pragma("unroll 2")

typedef uint32_t u32v;
typedef uint64_t u64v;
typedef bool boolv;

template <typename T> struct span {
	T *p;
};

template <typename T> WARP_FN span<T> span_at(uint64_t address, size_t)
{
	return span<T>{ (T *)address };
}

WARP_FN u32v lanes(void)
{
	return threadIdx.x & 31;
}
WARP_FN u32v splat(uint32_t x)
{
	return x;
}
WARP_FN u64v splat64(uint64_t x)
{
	return x;
}
WARP_FN uint32_t mask_of(boolv b)
{
	return __ballot_sync(~0u, b);
}
WARP_FN u32v select(boolv b, u32v x, u32v y)
{
	return b ? x : y;
}
WARP_FN u64v select64(boolv b, u64v x, u64v y)
{
	return b ? x : y;
}
WARP_FN u32v shuffle(u32v v, u32v from)
{
	return __shfl_sync(~0u, v, (int)from);
}
WARP_FN u64v shuffle64(u64v v, u32v from)
{
	return __shfl_sync(~0u, v, (int)from);
}
WARP_FN u32v below(uint32_t mask)
{
	uint32_t lt;
	asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
	return __popc(mask & lt);
}
WARP_FN uint32_t count(uint32_t mask)
{
	return __popc(mask);
}
WARP_FN boolv lane_in(uint32_t mask)
{
	return mask >> (threadIdx.x & 31) & 1;
}
WARP_FN u32v bytes_of(u32v lo, u32v hi, u32v sel)
{
	u32v r; /* __byte_perm would clear bits of the selector that are never set */
	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(lo), "r"(hi), "r"(sel));
	return r;
}
WARP_FN uint32_t any_of(u32v v)
{
	return __reduce_or_sync(~0u, v);
}
/* REDUX gives a uniform register: ptxas sees then that a loop does not diverge. */
WARP_FN uint32_t uniform(uint32_t x)
{
	return __reduce_or_sync(~0u, x);
}
WARP_FN uint32_t first_lane(u32v v)
{
	return __shfl_sync(~0u, v, 0);
}
WARP_FN uint64_t first_lane64(u64v v)
{
	return __shfl_sync(~0u, v, 0);
}
WARP_FN u32v low_half(u64v v)
{
	return (uint32_t)v;
}
WARP_FN u64v wide(u32v v)
{
	return v;
}
WARP_FN u64v product(u32v a, u32v b)
{
	return (uint64_t)a * b;
}
WARP_FN u32v product_high32(u32v a, u32v b)
{
	return __umulhi(a, b);
}
WARP_FN uint64_t product_high(uint64_t a, uint64_t b)
{
	return __umul64hi(a, b);
}
WARP_FN u32v high_bit(u32v v)
{
	return 31 - __clz(v);
}
WARP_FN u32v low_zeros(u32v v)
{
	return __ffs(v) - 1;
}
WARP_FN u32v sar(u32v v, uint32_t n)
{
	return (uint32_t)((int32_t)v >> n);
}
WARP_FN u32v max_signed(u32v a, u32v b)
{
	return (uint32_t)max((int32_t)a, (int32_t)b);
}
WARP_FN u32v min_signed(u32v a, u32v b)
{
	return (uint32_t)min((int32_t)a, (int32_t)b);
}
WARP_FN boolv less_signed(u32v a, u32v b)
{
	return (int32_t)a < (int32_t)b;
}
/* 0 from 32 on, as a funnel shift has it. */
WARP_FN u32v shift_right(u32v v, u32v n)
{
	return __funnelshift_rc(v, 0, n);
}
/* By n modulo 32. */
WARP_FN u32v shift_right_modulo(u32v v, u32v n)
{
	return __funnelshift_r(v, 0, n);
}
WARP_FN u32v float_bits(u32v v)
{
	return __float_as_uint(__int2float_rn((int32_t)v));
}

#define PRODUCTS(types)                                                                     \
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." types                         \
	             ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
	             : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                       \
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <bool A, bool B> WARP_FN void add_products(u32v c[4], const u32v a[4], const u32v b[2])
{
	if (A && B)
		PRODUCTS("s8.s8");
	else if (A)
		PRODUCTS("s8.u8");
	else if (B)
		PRODUCTS("u8.s8");
	else
		PRODUCTS("u8.u8");
}
#undef PRODUCTS

template <typename T> WARP_FN u32v ld(span<T> s, u32v i)
{
	return (uint32_t)s.p[i];
}
template <typename T> WARP_FN u32v ld_if(span<T> s, u32v i, boolv ok)
{
	return ok ? (uint32_t)s.p[i] : 0;
}
template <typename T> WARP_FN void st(span<T> s, u32v i, u32v v)
{
	s.p[i] = (T)v;
}
template <typename T> WARP_FN void st_if(span<T> s, u32v i, u32v v, boolv ok)
{
	if (ok)
		s.p[i] = (T)v;
}
/* Streaming: decoded elements are not read again soon. */
template <typename T> WARP_FN void st_once(span<T> s, u32v i, u32v v)
{
	__stcs(s.p + i, (T)v);
}
/* Loads of few bits to a whole register: __ldg would mask what the load has cleared. */
template <typename T> WARP_FN u32v ldg_value(const T *p)
{
	return (uint32_t)__ldg(p);
}
WARP_FN u32v ldg_value(const uint8_t *p)
{
	u32v r;
	asm("ld.global.nc.u8 %0, [%1];" : "=r"(r) : "l"(p));
	return r;
}
WARP_FN u32v ldg_value(const uint16_t *p)
{
	u32v r;
	asm("ld.global.nc.u16 %0, [%1];" : "=r"(r) : "l"(p));
	return r;
}
template <typename T> WARP_FN u32v ldg(span<T> s, u32v i)
{
	return ldg_value(s.p + i);
}
template <typename T> WARP_FN u32v ldg_if(span<T> s, u32v i, boolv ok)
{
	return ok ? ldg_value(s.p + i) : 0;
}
/* Loads a word for each lane, at a position in bytes. */
WARP_FN u32v ld_byte_at(span<const uint32_t> s, u32v at)
{
	return *(const uint32_t *)((const char *)s.p + at);
}
template <typename T> WARP_FN span<T> skip(span<T> s, uint32_t n)
{
	return span<T>{ s.p + n };
}
template <typename T> WARP_FN span<T> part(span<uint32_t> s, uint32_t first, uint32_t)
{
	return span<T>{ (T *)(s.p + first) };
}
template <typename T> WARP_FN uint32_t ldg_one(span<T> s, uint32_t i)
{
	return ldg_value(s.p + i);
}
/* 16 bytes of each lane; i is in units of 16 bytes. */
typedef struct {
	u32v v[4];
} quads;
WARP_FN quads quads_of(uint4 v)
{
	return quads{ { v.x, v.y, v.z, v.w } };
}
WARP_FN quads ldg_quads_if(span<const uint32_t> s, u32v i, boolv ok)
{
	return quads_of(ok ? __ldg((const uint4 *)s.p + i) : make_uint4(0, 0, 0, 0));
}
WARP_FN quads ld_quads(span<const uint32_t> s, u32v i)
{
	return quads_of(((const uint4 *)s.p)[i]);
}
WARP_FN quads ld_quads_if(span<const uint32_t> s, u32v i, boolv ok)
{
	return quads_of(ok ? ((const uint4 *)s.p)[i] : make_uint4(0, 0, 0, 0));
}
WARP_FN void st_quads_if(span<uint32_t> s, u32v i, quads q, boolv ok)
{
	if (ok)
		((uint4 *)s.p)[i] = make_uint4(q.v[0], q.v[1], q.v[2], q.v[3]);
}
WARP_FN u64v ld64(span<const uint64_t> s, u32v i)
{
	return s.p[i];
}
/* 8 bytes at a byte position, which is a multiple of 8. */
WARP_FN u64v ld64_if(span<const uint8_t> s, u32v at, boolv ok)
{
	return ok ? *(const uint64_t *)(s.p + at) : 0;
}
WARP_FN u64v joined(u32v low, u32v high)
{
	return (uint64_t)high << 32 | low;
}
/* The low half of high:low, shifted right by n modulo 32. */
WARP_FN u32v funnel(u32v low, u32v high, u32v n)
{
	return __funnelshift_r(low, high, n);
}
WARP_FN boolv nonzero64(u64v v)
{
	return v != 0;
}
/* v of lane i ^ n. */
WARP_FN u64v shuffle64_xor(u64v v, uint32_t n)
{
	return __shfl_xor_sync(~0u, v, (int)n);
}
/* The sums of v up to each lane, in both halves of a warp. */
WARP_FN u32v half_sums(u32v v)
{
	UNROLL
	for (int d = 1; d < 16; d *= 2)
		asm volatile("{ .reg .pred p; .reg .u32 x;"
		             " shfl.sync.up.b32 x|p, %0, %1, 0x1000, 0xffffffff;"
		             " @p add.u32 %0, %0, x; }"
		             : "+r"(v)
		             : "r"(d));
	return v;
}
/* v of the last lane of a half. */
WARP_FN u32v half_last(u32v v)
{
	return __shfl_sync(~0u, v, 15, 16);
}
/* The sum of four bytes. */
WARP_FN u32v bytes_sum(u32v v)
{
	return __dp4a(v, 0x01010101u, 0u);
}
/* The differences of bytes, x - y. */
WARP_FN u32v bytes_less(u32v x, u32v y)
{
	return ((x | 0x80808080) - (y & 0x7f7f7f7f)) ^ ((x ^ ~y) & 0x80808080);
}
WARP_FN uint32_t lane_value(u32v v, uint32_t i)
{
	return __shfl_sync(~0u, v, (int)i);
}
template <typename T> WARP_FN uint32_t ld_one(span<T> s, uint32_t i)
{
	return (uint32_t)s.p[i];
}
/* Elements of each lane at an address, which is in a memory: one, or 4 at a multiple of their
 * size. */
template <int SIZE> WARP_FN void st_element(span<uint8_t>, u64v at, u64v v, boolv ok)
{
	if (!ok)
		return;
	if (SIZE == 2)
		__stcs((uint16_t *)at, (uint16_t)v);
	else
		__stcs((uint8_t *)at, (uint8_t)v);
}
template <int SIZE> WARP_FN void st_group(span<uint8_t>, u64v at, u64v v, boolv ok)
{
	if (SIZE == 2)
		asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;"
		             " @p st.global.cs.u64 [%0], %1; }" ::"l"(at),
		             "l"(v), "r"((uint32_t)ok)
		             : "memory");
	else
		asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;"
		             " @p st.global.cs.u32 [%0], %1; }" ::"l"(at),
		             "r"((uint32_t)v), "r"((uint32_t)ok)
		             : "memory");
}
/* Elements of each lane, as above. */
template <int SIZE> WARP_FN u32v ld_element(span<uint8_t>, u64v at, boolv ok)
{
	if (SIZE == 4)
		return ok ? *(const uint32_t *)at : 0;
	if (SIZE == 2)
		return ok ? *(const uint16_t *)at : 0;
	return ok ? *(const uint8_t *)at : 0;
}
template <int SIZE> WARP_FN u64v ld_group(span<uint8_t>, u64v at, boolv ok)
{
	if (SIZE == 2)
		return ok ? *(const uint64_t *)at : 0;
	return ok ? *(const uint32_t *)at : 0;
}
WARP_FN void st64_if(span<uint64_t> s, u32v i, u64v v, boolv ok)
{
	if (ok)
		s.p[i] = v;
}
template <typename T> WARP_FN void st_one(span<T> s, uint32_t i, uint64_t v)
{
	s.p[i] = (T)v;
}
/* The memory that the warps of a block share, aligned. */
WARP_FN span<uint32_t> block_memory(void)
{
	extern __shared__ __align__(16) uint32_t shared[];
	return span<uint32_t>{ shared };
}
/* A phase of a block. */
template <typename F> WARP_FN void each_warp(F f)
{
	f(threadIdx.x / 32);
	__syncthreads();
}
WARP_FN uint32_t take_lock(span<uint32_t> s, uint32_t first, uint32_t n)
{
	uint32_t i = first % n;
	if (!(threadIdx.x & 31))
		while (atomicCAS(s.p + i, 0, 1))
			i = i + 1 < n ? i + 1 : 0;
	i = __shfl_sync(~0u, i, 0);
	__threadfence();
	return i;
}
/* One lane gives it: a slower one could give it again when another block has it. */
WARP_FN void give_lock(span<uint32_t> s, uint32_t i)
{
	__threadfence();
	__syncwarp();
	if (!(threadIdx.x & 31))
		atomicExch(s.p + i, 0);
}
/* Adds to numbers that several lanes and warps of a block may add to at once. */
WARP_FN void add_if(span<uint32_t> s, u32v i, u32v v, boolv ok)
{
	if (ok)
		atomicAdd(s.p + i, v);
}
/* Adds to a number that blocks share; what it was before. */
WARP_FN uint64_t add_shared(span<uint64_t> s, uint64_t v)
{
	unsigned long long was = 0;
	if (!(threadIdx.x & 31))
		was = atomicAdd((unsigned long long *)s.p, (unsigned long long)v);
	return __shfl_sync(~0u, was, 0);
}
WARP_FN uint32_t least_of(u32v v)
{
	return __reduce_min_sync(~0u, v);
}
/* Orders memory within the warp: lanes read behind it what others wrote before it. */
WARP_FN void warp_barrier(void)
{
	__syncwarp();
}

#endif
