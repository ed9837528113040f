/* SPDX-License-Identifier: BSD-3-Clause */
/* warp_device_body.h - warp.h on a GPU: a value of a lane is a register */
#ifndef KVI_GPU_WARP_DEVICE_BODY_H
#define KVI_GPU_WARP_DEVICE_BODY_H

#define WARP_FN static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
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

#define PRODUCTS(types)                                                            \
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." types                         \
	    ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
	    : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                       \
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <bool A, bool B>
WARP_FN void add_products(u32v c[4], const u32v a[4], const u32v b[2])
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
template <typename T> WARP_FN void st_one(span<T> s, uint32_t i, uint64_t v)
{
	s.p[i] = (T)v;
}
/* Orders memory within the warp: lanes read behind it what others wrote before it. */
WARP_FN void warp_barrier(void)
{
	__syncwarp();
}

#endif
