/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_avx2.c - the kernels of codec layers (spec layers) in AVX2 */
#include "config.h"

#include <immintrin.h>

#define LAYERS_TARGET
typedef __m256i vec;
#include "layers_body.h"
#include "shuffles_avx2.h"

/* ----- reading ------------------------------------------------ */

static bool get_layer(const uint8_t *plane, size_t n, unsigned layer, const uint8_t *next,
                      const uint8_t *end, uint8_t *values)
{
	const vec three = SET8(NEXT), less2 = TABLE(value_less2[layer]);
	uint8_t last[QUARTER] = { 0 };
	for (size_t at = 0; at < n && next <= end; at += BLOCK, plane += QUARTER) {
		const size_t bytes = (block_codes(n, at) + 3) / 4;
		if (bytes < QUARTER)
			plane = memcpy(last, plane, bytes);
		UNROLL for (unsigned j = 0; j < 8; j++)
		{
			const unsigned shift = j / 2 * 2, first = j % 2 * WIDTH;
			if (first >= bytes)
				continue;
			const vec code = _mm256_and_si256(
				_mm256_srli_epi16(load(plane + first), (int)shift), three);
			const vec deeper = _mm256_cmpeq_epi8(code, three);
			const uint32_t lanes = lanes_of(deeper) & first_lanes(bytes - first);
			store(values + at + j / 2 * bytes + first,
			      _mm256_blendv_epi8(_mm256_shuffle_epi8(less2, code),
			                         expanded(lanes, &next), deeper));
		}
	}
	return next == end;
}

INLINE vec rotated_right(vec v)
{
	return _mm256_or_si256(_mm256_srli_epi16(v, 1), _mm256_slli_epi16(v, 15));
}

/* Writes elements of their high and low bytes, rotated right by one. */
INLINE void store_merged(vec high, vec low, uint16_t *elements)
{
	high = _mm256_permute4x64_epi64(high, 0xd8);
	low = _mm256_permute4x64_epi64(low, 0xd8);
	store(elements, rotated_right(_mm256_unpacklo_epi8(low, high)));
	store(elements + 16, rotated_right(_mm256_unpackhi_epi8(low, high)));
}

/* High bytes of f16; bits: 3 a byte. */
INLINE vec high_f16(vec exponents, vec bits)
{
	return _mm256_or_si256(_mm256_and_si256(_mm256_slli_epi16(exponents, 3), SET8(0xf8)), bits);
}

INLINE void join(const uint8_t *less2, const uint8_t *bits, const uint8_t *low, const uint8_t *top,
                 uint16_t *elements, bool f16)
{
	for (unsigned i = 0; i < QUARTER; i += WIDTH) {
		vec high = _mm256_sub_epi8(load(top + i), load(less2 + i));
		if (f16)
			high = high_f16(high, load(bits + i));
		store_merged(high, load(low + i), elements + i);
	}
}

INLINE void get_blocks(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                       const struct kvi_layers_tops *tops, size_t n, const uint8_t *end,
                       struct cursor *to, uint16_t *elements, bool f16)
{
	const vec three = SET8(NEXT), four = SET8(4);
	const uint8_t *const tops_from = tops->top;
	const size_t channels = tops->channels, step = BLOCK % channels;
	const uint8_t *next = to->next, *low = rest->plane[0];
	size_t channel = 0;
	for (size_t i = 0; i < n && next <= end; i++) {
		const uint8_t *block = in->layer[0] + i * QUARTER;
		const uint8_t *two = f16 ? rest->plane[1] + i * QUARTER : NULL;
		const vec one = f16 ? load(rest->plane[2] + i * WIDTH) : three;
		UNROLL for (unsigned j = 0; j < 8; j++)
		{
			const int shift = (int)(j / 2 * 2), first = j % 2 * WIDTH;
			const vec code = _mm256_and_si256(
				_mm256_srli_epi16(load(block + first), shift), three);
			const vec deeper = _mm256_cmpeq_epi8(code, three);
			const vec less2 =
				_mm256_blendv_epi8(code, expanded(lanes_of(deeper), &next), deeper);
			vec high = _mm256_sub_epi8(load(tops_from + channel + j * WIDTH), less2);
			if (f16) {
				const vec bits = _mm256_and_si256(
					_mm256_srli_epi16(load(two + first), shift), three);
				const vec bit = j < 2 ? _mm256_slli_epi16(one, 2 - (int)j)
				                      : _mm256_srli_epi16(one, (int)j - 2);
				high = high_f16(high,
				                _mm256_or_si256(bits, _mm256_and_si256(bit, four)));
			}
			store_merged(high, load(low), elements);
			low += WIDTH;
			elements += WIDTH;
		}
		channel = next_channel(channel, step, channels);
	}
	*to = (struct cursor){ n * BLOCK, channel, (uint8_t *)next };
}

/* ----- writing ------------------------------------------------ */

static uint8_t *put_layer(const uint8_t *values, size_t n, unsigned layer, uint8_t *plane,
                          uint8_t *next)
{
	static const uint8_t ones_zeros[2 * WIDTH] = {
		255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
		255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
	};
	const vec three = SET8(NEXT), most = SET8(15), table = TABLE(code_of[layer]);
	for (size_t at = 0; at < n; at += BLOCK, plane += QUARTER) {
		const size_t codes = block_codes(n, at), bytes = (codes + 3) / 4;
		vec block[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
		UNROLL for (unsigned j = 0; j < 8; j++)
		{
			const size_t first = j / 2 * bytes + j % 2 * WIDTH;
			const size_t end = (j / 2 + 1) * bytes < codes ? (j / 2 + 1) * bytes
			                                               : codes;
			if (first >= end)
				continue;
			const size_t lanes = end - first < WIDTH ? end - first : WIDTH;
			const vec value = load(values + at + first);
			const vec code = _mm256_and_si256(
				_mm256_shuffle_epi8(table, _mm256_min_epu8(value, most)),
				load(ones_zeros + WIDTH - lanes));
			next = compressed(value, lanes_of(_mm256_cmpeq_epi8(code, three)), next);
			block[j % 2] = _mm256_or_si256(block[j % 2],
			                               _mm256_slli_epi16(code, (int)(j / 2 * 2)));
		}
		store(plane, block[0]);
		store(plane + WIDTH, block[1]);
	}
	return next;
}

INLINE vec rotated_left(vec v)
{
	return _mm256_or_si256(_mm256_add_epi16(v, v), _mm256_srli_epi16(v, 15));
}

INLINE struct element_bytes load_bytes(const uint16_t *elements, const uint8_t *top, bool f16)
{
	const vec byte = _mm256_set1_epi16(255), five = SET8(31), tops = load(top);
	const vec a = rotated_left(load(elements)), b = rotated_left(load(elements + 16));
	const vec low = _mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
	const vec high = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
	struct element_bytes p = { .low = _mm256_permute4x64_epi64(low, 0xd8),
		                   .high = _mm256_permute4x64_epi64(high, 0xd8) };
	if (f16)
		p.value = _mm256_and_si256(
			_mm256_sub_epi8(tops, _mm256_and_si256(_mm256_srli_epi16(p.high, 3), five)),
			five);
	else
		p.value = _mm256_sub_epi8(tops, p.high);
	return p;
}

INLINE void split(const uint16_t *elements, const uint8_t *top, uint8_t *values, uint8_t *low,
                  uint8_t *high, bool f16)
{
	for (unsigned i = 0; i < QUARTER; i += WIDTH) {
		const struct element_bytes p = load_bytes(elements + i, top + i, f16);
		store(values + i, p.value);
		store(low + i, p.low);
		store(high + i, p.high);
	}
}

INLINE void put_blocks(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
                       uint8_t *const plane[KVI_LAYERS_PLANES], uint8_t *layer, struct cursor *from,
                       bool f16)
{
	const vec zero = _mm256_setzero_si256(), three = SET8(NEXT);
	const uint8_t *const tops_from = tops->top;
	const size_t channels = tops->channels, step = BLOCK % channels;
	uint8_t *next = from->next, *low = plane[0];
	size_t channel = 0;
	for (size_t i = 0; i < n; i++) {
		vec block[2] = { zero, zero }, twos[2] = { zero, zero }, ones = zero;
		UNROLL for (unsigned j = 0; j < 8; j++)
		{
			const int shift = (int)(j / 2 * 2);
			const struct element_bytes p =
				load_bytes(elements, tops_from + channel + j * WIDTH, f16);
			const vec code = _mm256_min_epu8(_mm256_sub_epi8(p.value, SET8(2)), three);
			store(low, p.low);
			next = compressed(p.value, lanes_of(_mm256_cmpeq_epi8(code, three)), next);
			block[j % 2] = _mm256_or_si256(block[j % 2],
			                               _mm256_slli_epi16(code, shift));
			if (f16) {
				const vec bits = _mm256_and_si256(p.high, three);
				const vec bit = _mm256_and_si256(p.high, SET8(4));
				twos[j % 2] = _mm256_or_si256(twos[j % 2],
				                              _mm256_slli_epi16(bits, shift));
				ones = _mm256_or_si256(ones,
				                       j < 2 ? _mm256_srli_epi16(bit, 2 - (int)j)
				                             : _mm256_slli_epi16(bit, (int)j - 2));
			}
			low += WIDTH;
			elements += WIDTH;
		}
		channel = next_channel(channel, step, channels);
		store(layer + i * QUARTER, block[0]);
		store(layer + i * QUARTER + WIDTH, block[1]);
		if (f16) {
			store(plane[1] + i * QUARTER, twos[0]);
			store(plane[1] + i * QUARTER + WIDTH, twos[1]);
			store(plane[2] + i * WIDTH, ones);
		}
	}
	*from = (struct cursor){ n * BLOCK, channel, next };
}

/* ----- tops ------------------------------------------------ */

void kvi_avx2_top_costs(const uint8_t *exponents, size_t rows, size_t row,
                        const uint8_t first[KVI_TOPS_AT_ONCE], uint8_t mask,
                        uint16_t cost[KVI_TOPS_TRIED][KVI_TOPS_AT_ONCE])
{
	enum { SUMMED = 16 }; /* rows whose sum is below 256 */
	const vec table = TABLE(half_bits), most = SET8(15), masks = SET8(mask);
	vec top[KVI_TOPS_TRIED], low[KVI_TOPS_TRIED], high[KVI_TOPS_TRIED];
	UNROLL for (int k = 0; k < KVI_TOPS_TRIED; k++)
	{
		top[k] = _mm256_add_epi8(load(first), SET8(k));
		low[k] = high[k] = _mm256_setzero_si256();
	}
	for (size_t i = 0; i < rows; i += SUMMED) {
		const size_t end = rows - i < SUMMED ? rows : i + SUMMED;
		vec sum[KVI_TOPS_TRIED];
		UNROLL for (int k = 0; k < KVI_TOPS_TRIED; k++) sum[k] = _mm256_setzero_si256();
		for (size_t r = i; r < end; r++) {
			const vec exponent = load(exponents + r * row);
			UNROLL for (int k = 0; k < KVI_TOPS_TRIED; k++)
			{
				const vec value =
					_mm256_and_si256(_mm256_sub_epi8(top[k], exponent), masks);
				sum[k] = _mm256_add_epi8(
					sum[k],
					_mm256_shuffle_epi8(table, _mm256_min_epu8(value, most)));
			}
		}
		UNROLL for (int k = 0; k < KVI_TOPS_TRIED; k++)
		{
			low[k] = _mm256_add_epi16(
				low[k], _mm256_cvtepu8_epi16(_mm256_castsi256_si128(sum[k])));
			high[k] = _mm256_add_epi16(
				high[k], _mm256_cvtepu8_epi16(_mm256_extracti128_si256(sum[k], 1)));
		}
	}
	UNROLL for (int k = 0; k < KVI_TOPS_TRIED; k++)
	{
		store(cost[k], low[k]);
		store(cost[k] + 16, high[k]);
	}
}

const struct kvi_layer_kernels kvi_avx2_layers = {
	LAYERS_KERNELS,
	.top_costs = kvi_avx2_top_costs,
};
