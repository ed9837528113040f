/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_vbmi.c - the kernels of codec layers (spec layers) in AVX-512 with VBMI2 */
#include "config.h"

#include "lanes_vbmi.h"
#include "slots.h"

#if defined(KVI_AVX512VNNI)

#define LAYERS_TARGET __attribute__((target("avx512vbmi,avx512vbmi2")))
typedef __m512i vec;
#include "layers_body.h"

#define TABLE(bytes) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(bytes)))
/* Bits of a or those of b that c has. */
#define OR_AND(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0xf8)

/* Writes v's bytes in the lanes of a mask, and others behind them. Returns their end. */
INLINE uint8_t *compressed(vec v, __mmask64 lanes, uint8_t *to)
{
	_mm512_storeu_si512(to, _mm512_maskz_compress_epi8(lanes, v));
	return to + _mm_popcnt_u64(lanes);
}

/* ----- reading ------------------------------------------------ */

LAYERS_TARGET static bool get_layer(const uint8_t *plane, size_t n, unsigned layer,
                                    const uint8_t *next, const uint8_t *end, uint8_t *values)
{
	const vec three = SET8(NEXT), less2 = TABLE(value_less2[layer]);
	for (size_t at = 0; at < n && next <= end; at += BLOCK, plane += QUARTER) {
		const size_t bytes = (block_codes(n, at) + 3) / 4;
		const __mmask64 lanes = first_bytes(bytes);
		const vec block = _mm512_maskz_loadu_epi8(lanes, plane);
		UNROLL for (unsigned k = 0; k < 4; k++)
		{
			const vec code = _mm512_and_si512(_mm512_srli_epi16(block, 2 * k), three);
			const __mmask64 deeper = _mm512_cmpeq_epi8_mask(code, three);
			_mm512_storeu_si512(
				values + at + k * bytes,
				expanded(_mm512_shuffle_epi8(less2, code), deeper, &next));
		}
	}
	return next == end;
}

/* Elements of their high and low bytes, rotated right by one. */
INLINE void merge(vec high, vec low, vec elements[2])
{
	const vec order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
	high = _mm512_permutexvar_epi64(order, high);
	low = _mm512_permutexvar_epi64(order, low);
	const vec a = _mm512_unpacklo_epi8(low, high), b = _mm512_unpackhi_epi8(low, high);
	elements[0] = _mm512_shrdi_epi16(a, a, 1);
	elements[1] = _mm512_shrdi_epi16(b, b, 1);
}

/* Vectors that are written one behind the other, each from the last begin of a cache line on: a
 * store to two lines takes more than twice the time. */
struct line_stores {
	vec last;        /* the vector in front */
	vec order;       /* numbers of a line in that and the next one, of 32 bits */
	__mmask16 lanes; /* what is written of the line */
};

/* to: a multiple of 4. */
INLINE struct line_stores line_stores_begin(const uint16_t *to)
{
	const unsigned lanes = (uintptr_t)to % sizeof(vec) / 4;
	const vec ascending = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
	                                        15);
	return (struct line_stores){
		_mm512_setzero_si512(),
		_mm512_add_epi32(ascending, _mm512_set1_epi32((int)(16 - lanes))),
		(__mmask16)(UINT16_MAX << lanes),
	};
}

INLINE void line_stores_next(struct line_stores *stores, vec v, uint16_t *to)
{
	void *line = (void *)((uintptr_t)to & ~(uintptr_t)(sizeof(vec) - 1));
	_mm512_mask_storeu_epi32(line, stores->lanes,
	                         _mm512_permutex2var_epi32(stores->last, stores->order, v));
	stores->last = v;
	stores->lanes = UINT16_MAX;
}

/* High bytes of f16; bits: 3 a byte. */
INLINE vec high_f16(vec exponents, vec bits)
{
	return OR_AND(bits, _mm512_slli_epi16(exponents, 3), SET8(0xf8));
}

INLINE void join(const uint8_t *less2, const uint8_t *bits, const uint8_t *low, const uint8_t *top,
                 uint16_t *elements, bool f16)
{
	vec high = _mm512_sub_epi8(_mm512_loadu_si512(top), _mm512_loadu_si512(less2));
	if (f16)
		high = high_f16(high, _mm512_loadu_si512(bits));
	vec made[2];
	merge(high, _mm512_loadu_si512(low), made);
	_mm512_storeu_si512(elements, made[0]);
	_mm512_storeu_si512(elements + 32, made[1]);
}

/* Shifts that move bit 2k of the lower bytes and bit 2k + 1 of the upper ones to bit 2. */
INLINE vec bit_shifts(unsigned k)
{
	return _mm512_inserti64x4(_mm512_set1_epi16((short)(2 - 2 * k)),
	                          _mm256_set1_epi16((short)(1 - 2 * k)), 1);
}

/* The bits of codes 64 k to 64 k + 63 of a full block in bit 2; block: twice its 32 bytes. */
INLINE vec bit_two(vec block, unsigned k)
{
	const vec zero = _mm512_setzero_si512(), by = bit_shifts(k);
	return k ? _mm512_srlv_epi16(block, _mm512_sub_epi16(zero, by))
	         : _mm512_sllv_epi16(block, by);
}

/* by_lines: the elements are at a multiple of 4. */
INLINE void get_some(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                     const struct kvi_layers_tops *tops, size_t n, const uint8_t *end,
                     struct cursor *to, uint16_t *elements, bool f16, bool by_lines)
{
	const vec three = SET8(NEXT), four = SET8(4);
	const uint8_t *const tops_from = tops->top;
	const size_t channels = tops->channels, step = BLOCK % channels;
	const uint8_t *next = to->next, *low = rest->plane[0];
	struct line_stores stores = line_stores_begin(elements);
	size_t channel = 0;
	for (size_t i = 0; i < n && next <= end; i++) {
		const vec block = _mm512_loadu_si512(in->layer[0] + i * QUARTER);
		vec two = three, one = three;
		if (f16) {
			two = _mm512_loadu_si512(rest->plane[1] + i * QUARTER);
			one = _mm512_broadcast_i64x4(_mm256_loadu_si256(
				(const __m256i *)(rest->plane[2] + i * (BLOCK / 8))));
		}
		UNROLL for (unsigned k = 0; k < 4; k++)
		{
			const vec code = _mm512_and_si512(_mm512_srli_epi16(block, 2 * k), three);
			const vec less2 = expanded(code, _mm512_cmpeq_epi8_mask(code, three),
			                           &next);
			const uint8_t *top = tops_from + channel + k * QUARTER;
			vec high = _mm512_sub_epi8(_mm512_loadu_si512(top), less2);
			if (f16) {
				const vec bits = _mm512_and_si512(_mm512_srli_epi16(two, 2 * k),
				                                  three);
				high = high_f16(high, OR_AND(bits, bit_two(one, k), four));
			}
			vec made[2];
			merge(high, _mm512_loadu_si512(low), made);
			UNROLL for (unsigned part = 0; part < 2; part++)
			{
				if (by_lines)
					line_stores_next(&stores, made[part], elements + 32 * part);
				else
					_mm512_storeu_si512(elements + 32 * part, made[part]);
			}
			low += QUARTER;
			elements += QUARTER;
		}
		channel = next_channel(channel, step, channels);
	}
	if (by_lines && n > 0)
		_mm512_storeu_si512(elements - 32, stores.last);
	*to = (struct cursor){ n * BLOCK, channel, (uint8_t *)next };
}

INLINE void get_blocks(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                       const struct kvi_layers_tops *tops, size_t n, const uint8_t *end,
                       struct cursor *to, uint16_t *elements, bool f16)
{
	const uintptr_t offset = (uintptr_t)elements % sizeof(vec);
	if (offset && offset % 4 == 0)
		get_some(in, rest, tops, n, end, to, elements, f16, true);
	else
		get_some(in, rest, tops, n, end, to, elements, f16, false);
}

/* ----- writing ------------------------------------------------ */

LAYERS_TARGET static uint8_t *put_layer(const uint8_t *values, size_t n, unsigned layer,
                                        uint8_t *plane, uint8_t *next)
{
	const vec three = SET8(NEXT), most = SET8(15), table = TABLE(code_of[layer]);
	for (size_t at = 0; at < n; at += BLOCK, plane += QUARTER) {
		const size_t codes = block_codes(n, at), bytes = (codes + 3) / 4;
		vec block = _mm512_setzero_si512();
		UNROLL for (unsigned k = 0; k < 4; k++)
		{
			const size_t first = k * bytes, left = codes > first ? codes - first : 0;
			const __mmask64 lanes = first_bytes(left < bytes ? left : bytes);
			const vec value = _mm512_loadu_si512(values + at + first);
			const vec code = _mm512_maskz_shuffle_epi8(lanes, table,
			                                           _mm512_min_epu8(value, most));
			next = compressed(value, _mm512_cmpeq_epi8_mask(code, three), next);
			block = _mm512_or_si512(block, _mm512_slli_epi16(code, 2 * k));
		}
		_mm512_storeu_si512(plane, block);
	}
	return next;
}

INLINE struct element_bytes load_bytes(const uint16_t *elements, const uint8_t *top, bool f16)
{
	const vec byte = _mm512_set1_epi16(255), order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	vec a = _mm512_loadu_si512(elements), b = _mm512_loadu_si512(elements + 32);
	a = _mm512_shldi_epi16(a, a, 1);
	b = _mm512_shldi_epi16(b, b, 1);
	const vec low = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
	const vec high = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
	struct element_bytes p = { .low = _mm512_permutexvar_epi64(order, low),
		                   .high = _mm512_permutexvar_epi64(order, high) };
	const vec tops = _mm512_loadu_si512(top), five = SET8(31);
	if (f16)
		p.value = _mm512_and_si512(
			_mm512_sub_epi8(tops, _mm512_and_si512(_mm512_srli_epi16(p.high, 3), five)),
			five);
	else
		p.value = _mm512_sub_epi8(tops, p.high);
	return p;
}

INLINE void split(const uint16_t *elements, const uint8_t *top, uint8_t *values, uint8_t *low,
                  uint8_t *high, bool f16)
{
	const struct element_bytes p = load_bytes(elements, top, f16);
	_mm512_storeu_si512(values, p.value);
	_mm512_storeu_si512(low, p.low);
	_mm512_storeu_si512(high, p.high);
}

/* The inverse of bit_two, two halves of which belong together. */
INLINE vec from_bit_two(vec high, unsigned k)
{
	const vec bits = _mm512_and_si512(high, SET8(4)), by = bit_shifts(k);
	return k ? _mm512_sllv_epi16(bits, _mm512_sub_epi16(_mm512_setzero_si512(), by))
	         : _mm512_srlv_epi16(bits, by);
}

INLINE void put_blocks(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
                       uint8_t *const plane[KVI_LAYERS_PLANES], uint8_t *layer, struct cursor *from,
                       bool f16)
{
	const vec two = SET8(2), three = SET8(NEXT);
	const uint8_t *const tops_from = tops->top;
	const size_t channels = tops->channels, step = BLOCK % channels;
	uint8_t *next = from->next, *low = plane[0];
	size_t channel = 0;
	for (size_t i = 0; i < n; i++) {
		vec block = _mm512_setzero_si512(), twos = block, ones = block;
		UNROLL for (unsigned k = 0; k < 4; k++)
		{
			const struct element_bytes p =
				load_bytes(elements, tops_from + channel + k * QUARTER, f16);
			const vec code = _mm512_min_epu8(_mm512_sub_epi8(p.value, two), three);
			_mm512_storeu_si512(low, p.low);
			next = compressed(p.value, _mm512_cmpeq_epi8_mask(code, three), next);
			block = _mm512_or_si512(block, _mm512_slli_epi16(code, 2 * k));
			if (f16) {
				const vec bits = _mm512_and_si512(p.high, three);
				twos = _mm512_or_si512(twos, _mm512_slli_epi16(bits, 2 * k));
				ones = _mm512_or_si512(ones, from_bit_two(p.high, k));
			}
			low += QUARTER;
			elements += QUARTER;
		}
		channel = next_channel(channel, step, channels);
		_mm512_storeu_si512(layer + i * QUARTER, block);
		if (f16) {
			_mm512_storeu_si512(plane[1] + i * QUARTER, twos);
			_mm256_storeu_si256((__m256i *)(plane[2] + i * (BLOCK / 8)),
			                    _mm256_or_si256(_mm512_castsi512_si256(ones),
			                                    _mm512_extracti64x4_epi64(ones, 1)));
		}
	}
	*from = (struct cursor){ n * BLOCK, channel, next };
}

const struct kvi_layer_kernels kvi_vbmi_layers = {
	LAYERS_KERNELS,
	.top_costs = kvi_avx2_top_costs,
};

#endif
