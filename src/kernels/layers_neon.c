/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_neon.c - the kernels of codec layers (spec layers) in NEON */
#include "config.h"

#include "lanes_neon.h"

#define LAYERS_TARGET
#include "layers_body.h"

/* Shifts by a number that may be negative and is a constant where loops are unrolled. */
INLINE vec shifted_left(vec v, int by)
{
	return by ? vshlq_u8(v, vdupq_n_s8((int8_t)by)) : v;
}

/* ----- reading ------------------------------------------------ */

/* The codes of a shift of a block, and in *deeper which of them are 3. */
INLINE void codes_of(const uint8_t *block, int shift, vec code[4], vec deeper[4])
{
	EACH {
		code[g] = vandq_u8(shifted_left(vld1q_u8(block + WIDTH * g), -shift), SET8(NEXT));
		deeper[g] = vceqq_u8(code[g], SET8(NEXT));
	}
}

static bool get_layer(const uint8_t *plane, size_t n, unsigned layer, const uint8_t *next,
                      const uint8_t *end, uint8_t *values)
{
	const vec less2 = vld1q_u8(value_less2[layer]);
	uint8_t last[QUARTER] = { 0 };
	for (size_t at = 0; at < n && next <= end; at += BLOCK, plane += QUARTER) {
		const size_t bytes = (block_codes(n, at) + 3) / 4;
		if (bytes < QUARTER)
			plane = memcpy(last, plane, bytes);
		UNROLL for (int k = 0; k < 4; k++)
		{
			vec code[4], deeper[4];
			unsigned all;
			codes_of(plane, 2 * k, code, deeper);
			const uint64_t lanes = lanes_of(deeper) & first_lanes(bytes);
			const uint64_t before = lanes_before(lanes, &all);
			EACH {
				const vec here = vqtbl1q_u8(less2, code[g]);
				vst1q_u8(values + at + (size_t)k * bytes + WIDTH * g,
				         vbslq_u8(deeper[g], expanded(lanes, before, next, g),
				                  here));
			}
			next += all;
		}
	}
	return next == end;
}

INLINE uint16x8_t rotated_right(vec v)
{
	const uint16x8_t x = vreinterpretq_u16_u8(v);
	return vsliq_n_u16(vshrq_n_u16(x, 1), x, 15);
}

/* Writes elements of their high and low bytes, rotated right by one. */
INLINE void store_merged(vec high, vec low, uint16_t *elements)
{
	vst1q_u16(elements, rotated_right(vzip1q_u8(low, high)));
	vst1q_u16(elements + 8, rotated_right(vzip2q_u8(low, high)));
}

/* High bytes of f16; bits: 3 a byte. */
INLINE vec high_f16(vec exponents, vec bits)
{
	return vorrq_u8(vshlq_n_u8(exponents, 3), bits);
}

INLINE void join(const uint8_t *less2, const uint8_t *bits, const uint8_t *low, const uint8_t *top,
                 uint16_t *elements, bool f16)
{
	for (unsigned i = 0; i < QUARTER; i += WIDTH) {
		vec high = vsubq_u8(vld1q_u8(top + i), vld1q_u8(less2 + i));
		if (f16)
			high = high_f16(high, vld1q_u8(bits + i));
		store_merged(high, vld1q_u8(low + i), elements + i);
	}
}

INLINE void get_blocks(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                       const struct kvi_layers_tops *tops, size_t n, const uint8_t *end,
                       struct cursor *to, uint16_t *elements, bool f16)
{
	const uint8_t *const tops_from = tops->top;
	const size_t channels = tops->channels, step = BLOCK % channels;
	const uint8_t *next = to->next, *low = rest->plane[0];
	size_t channel = 0;
	for (size_t i = 0; i < n && next <= end; i++) {
		const uint8_t *two = f16 ? rest->plane[1] + i * QUARTER : NULL;
		const uint8_t *one = f16 ? rest->plane[2] + i * (BLOCK / 8) : NULL;
		UNROLL for (int k = 0; k < 4; k++)
		{
			vec code[4], deeper[4];
			unsigned all;
			codes_of(in->layer[0] + i * QUARTER, 2 * k, code, deeper);
			const uint64_t lanes = lanes_of(deeper);
			const uint64_t before = lanes_before(lanes, &all);
			const uint8_t *top = tops_from + channel + k * QUARTER;
			EACH {
				const vec less2 = vbslq_u8(
					deeper[g], expanded(lanes, before, next, g), code[g]);
				vec high = vsubq_u8(vld1q_u8(top + WIDTH * g), less2);
				if (f16) {
					const vec bits = shifted_left(vld1q_u8(two + WIDTH * g),
					                              -2 * k);
					const vec bit = shifted_left(vld1q_u8(one + g % 2 * WIDTH),
					                             2 - 2 * k - g / 2);
					high = high_f16(high, vorrq_u8(vandq_u8(bits, SET8(3)),
					                               vandq_u8(bit, SET8(4))));
				}
				store_merged(high, vld1q_u8(low + WIDTH * g), elements + WIDTH * g);
			}
			next += all;
			low += QUARTER;
			elements += QUARTER;
		}
		channel = next_channel(channel, step, channels);
	}
	*to = (struct cursor){ n * BLOCK, channel, (uint8_t *)next };
}

/* ----- writing ------------------------------------------------ */

static uint8_t *put_layer(const uint8_t *values, size_t n, unsigned layer, uint8_t *plane,
                          uint8_t *next)
{
	static const uint8_t ascending[WIDTH] = { 0, 1, 2,  3,  4,  5,  6,  7,
		                                  8, 9, 10, 11, 12, 13, 14, 15 };
	const vec table = vld1q_u8(code_of[layer]), number = vld1q_u8(ascending);
	for (size_t at = 0; at < n; at += BLOCK, plane += QUARTER) {
		const size_t codes = block_codes(n, at), bytes = (codes + 3) / 4;
		vec block[4];
		EACH
			block[g] = SET8(0);
		UNROLL for (int k = 0; k < 4; k++)
		{
			const size_t first = (size_t)k * bytes;
			const size_t left = codes > first ? codes - first : 0;
			const vec count = SET8(left < bytes ? left : bytes);
			vec value[4], deeper[4];
			EACH {
				value[g] = vld1q_u8(values + at + first + WIDTH * g);
				const vec here = vcltq_u8(vaddq_u8(number, SET8(WIDTH * g)), count);
				const vec code = vandq_u8(
					vqtbl1q_u8(table, vminq_u8(value[g], SET8(15))), here);
				deeper[g] = vceqq_u8(code, SET8(NEXT));
				block[g] = vorrq_u8(block[g], shifted_left(code, 2 * k));
			}
			next = compressed(value, lanes_of(deeper), next);
		}
		EACH
			vst1q_u8(plane + WIDTH * g, block[g]);
	}
	return next;
}

INLINE vec rotated_left(const uint16_t *elements)
{
	const uint16x8_t x = vld1q_u16(elements);
	return vreinterpretq_u8_u16(vsliq_n_u16(vshrq_n_u16(x, 15), x, 1));
}

INLINE struct element_bytes load_bytes(const uint16_t *elements, const uint8_t *top, bool f16)
{
	const vec a = rotated_left(elements), b = rotated_left(elements + 8);
	struct element_bytes p = { .low = vuzp1q_u8(a, b), .high = vuzp2q_u8(a, b) };
	p.value = vsubq_u8(vld1q_u8(top), f16 ? vshrq_n_u8(p.high, 3) : p.high);
	if (f16)
		p.value = vandq_u8(p.value, SET8(31));
	return p;
}

INLINE void split(const uint16_t *elements, const uint8_t *top, uint8_t *values, uint8_t *low,
                  uint8_t *high, bool f16)
{
	for (unsigned i = 0; i < QUARTER; i += WIDTH) {
		const struct element_bytes p = load_bytes(elements + i, top + i, f16);
		vst1q_u8(values + i, p.value);
		vst1q_u8(low + i, p.low);
		vst1q_u8(high + i, p.high);
	}
}

INLINE void put_blocks(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
                       uint8_t *const plane[KVI_LAYERS_PLANES], uint8_t *layer, struct cursor *from,
                       bool f16)
{
	const uint8_t *const tops_from = tops->top;
	const size_t channels = tops->channels, step = BLOCK % channels;
	uint8_t *next = from->next, *low = plane[0];
	size_t channel = 0;
	for (size_t i = 0; i < n; i++) {
		vec block[4], twos[4], ones[2] = { SET8(0), SET8(0) };
		EACH
			block[g] = twos[g] = SET8(0);
		UNROLL for (int k = 0; k < 4; k++)
		{
			const uint8_t *top = tops_from + channel + k * QUARTER;
			vec value[4], deeper[4];
			EACH {
				const struct element_bytes p = load_bytes(elements + WIDTH * g,
				                                          top + WIDTH * g, f16);
				const vec code = vminq_u8(vsubq_u8(p.value, SET8(2)), SET8(NEXT));
				vst1q_u8(low + WIDTH * g, p.low);
				value[g] = p.value;
				deeper[g] = vceqq_u8(code, SET8(NEXT));
				block[g] = vorrq_u8(block[g], shifted_left(code, 2 * k));
				if (f16) {
					const vec bits = vandq_u8(p.high, SET8(3));
					const vec bit = vandq_u8(p.high, SET8(4));
					twos[g] = vorrq_u8(twos[g], shifted_left(bits, 2 * k));
					ones[g % 2] = vorrq_u8(
						ones[g % 2], shifted_left(bit, 2 * k + g / 2 - 2));
				}
			}
			next = compressed(value, lanes_of(deeper), next);
			low += QUARTER;
			elements += QUARTER;
		}
		channel = next_channel(channel, step, channels);
		EACH
			vst1q_u8(layer + i * QUARTER + WIDTH * g, block[g]);
		if (f16) {
			EACH
				vst1q_u8(plane[1] + i * QUARTER + WIDTH * g, twos[g]);
			vst1q_u8(plane[2] + i * (BLOCK / 8), ones[0]);
			vst1q_u8(plane[2] + i * (BLOCK / 8) + WIDTH, ones[1]);
		}
	}
	*from = (struct cursor){ n * BLOCK, channel, next };
}

/* ----- tops ------------------------------------------------ */

static void top_costs(const uint8_t *exponents, size_t rows, size_t row,
                      const uint8_t first[KVI_TOPS_AT_ONCE], uint8_t mask,
                      uint16_t cost[KVI_TOPS_TRIED][KVI_TOPS_AT_ONCE])
{
	const vec table = vld1q_u8(half_bits);
	for (size_t c = 0; c < KVI_TOPS_AT_ONCE; c += WIDTH) {
		uint16x8_t low[KVI_TOPS_TRIED], high[KVI_TOPS_TRIED];
		vec top[KVI_TOPS_TRIED];
		UNROLL for (int k = 0; k < KVI_TOPS_TRIED; k++)
		{
			top[k] = vaddq_u8(vld1q_u8(first + c), SET8(k));
			low[k] = high[k] = vdupq_n_u16(0);
		}
		for (size_t i = 0; i < rows; i++) {
			const vec exponent = vld1q_u8(exponents + i * row + c);
			UNROLL for (int k = 0; k < KVI_TOPS_TRIED; k++)
			{
				const vec value = vandq_u8(vsubq_u8(top[k], exponent), SET8(mask));
				const vec bits = vqtbl1q_u8(table, vminq_u8(value, SET8(15)));
				low[k] = vaddw_u8(low[k], vget_low_u8(bits));
				high[k] = vaddw_high_u8(high[k], bits);
			}
		}
		UNROLL for (int k = 0; k < KVI_TOPS_TRIED; k++)
		{
			vst1q_u16(cost[k] + c, low[k]);
			vst1q_u16(cost[k] + c + 8, high[k]);
		}
	}
}

const struct kvi_layer_kernels kvi_neon_layers = {
	LAYERS_KERNELS,
	.top_costs = top_costs,
};
