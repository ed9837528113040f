/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_scalar.c - the kernels of codec layers in portable C (spec layers) */
#include "layers_codes.h"

#define INLINE static inline __attribute__((always_inline))

enum { RUN = 32 }; /* elements that are put together at once */

/* ----- reading ------------------------------------------------ */

/* Values of `codes` codes of 2 bits, the last block; next: values of the next layer. Returns the
 * end of those that were taken. */
static const uint8_t *get_last(const uint8_t *block, size_t codes, const uint8_t less2[NEXT],
                               const uint8_t *next, uint8_t *values)
{
	const size_t bytes = (codes + 3) / 4;
	for (size_t first = 0, shift = 0; first < codes; first += bytes, shift += 2)
		for (size_t i = 0; i < bytes && first + i < codes; i++) {
			const unsigned code = block[i] >> shift & NEXT;
			values[first + i] = code == NEXT ? *next++ : less2[code];
		}
	return next;
}

/* get_last for a full block. A fourth of the codes are 3: a branch on each code would be
 * mispredicted, one on their number is not. */
static const uint8_t *get_block(const uint8_t *block, const uint8_t less2[NEXT],
                                const uint8_t *next, uint8_t *values)
{
	const uint64_t zero = BYTES(less2[0]), one = less2[0] ^ less2[1], two = less2[0] ^ less2[2];
	for (unsigned shift = 0; shift < 8; shift += 2, values += QUARTER) {
		uint64_t deeper = 0; /* bit i: code i is 3 */
		for (unsigned i = 0; i < QUARTER; i += WORD) {
			const uint64_t codes = kvi_load64(block + i) >> shift;
			const uint64_t low = codes & BYTES(1), high = codes >> 1 & BYTES(1);
			kvi_store64(values + i, zero ^ low * one ^ high * two);
			/* the product has the lowest bit of each byte in its highest byte */
			deeper |= (low & high) * UINT64_C(0x0102040810204080) >> 56 << i;
		}
		for (; deeper; deeper &= deeper - 1)
			values[__builtin_ctzll(deeper)] = *next++;
	}
	return next;
}

/* The values of a layer of n codes, less 2. next, end: values of the next layer. */
static bool get_layer(const uint8_t *plane, size_t n, const uint8_t less2[NEXT],
                      const uint8_t *next, const uint8_t *end, uint8_t *values)
{
	size_t at = 0;
	for (; at + BLOCK <= n && next <= end; at += BLOCK)
		next = get_block(plane + at / 4, less2, next, values + at);
	if (at < n && next <= end)
		next = get_last(plane + at / 4, n - at, less2, next, values + at);
	return next == end;
}

/* The values of layers 2 to 4 as those of layer 2, less 2, in work memory; NULL: damaged. A layer
 * takes no more values than it has codes, and so reads only its part of that memory. */
static const uint8_t *get_deeper(const struct kvi_layers_in *in)
{
	const size_t capacity = in->n[0] + KVI_LAYERS_SLACK;
	uint8_t *next = in->work;
	for (size_t i = 0; i < in->n[LAYERS]; i++)
		next[i] = (uint8_t)(in->bytes[i] - 2);
	for (unsigned layer = LAYERS - 1; layer > 0; layer--) {
		uint8_t *values = in->work + (LAYERS - layer) * capacity;
		if (!get_layer(in->layer[layer], in->n[layer], value_less2[layer], next,
		               next + in->n[layer + 1], values))
			return NULL;
		next = values;
	}
	return next;
}

static bool get(const struct kvi_layers_in *in, uint8_t *values)
{
	const uint8_t *next = get_deeper(in);
	return next &&
	       get_layer(in->layer[0], in->n[0], value_less2[0], next, next + in->n[1], values);
}

/* `count` elements of 16 bits, their tops and values less 2, of their low 8 bits, and of the bits
 * between these and the exponent when there are more than 7 bits of mantissa. */
INLINE void join(uint16_t *restrict elements, const uint8_t *restrict top,
                 const uint8_t *restrict less2, const uint8_t *restrict low,
                 const uint8_t *restrict bits, size_t count, const unsigned mantissa)
{
	for (size_t i = 0; i < count; i++) {
		unsigned high = (unsigned)top[i] - less2[i];
		if (mantissa > 7)
			high = high << 3 | bits[i];
		high &= 0xff;
		elements[i] = (uint16_t)(high << 7 | low[i] >> 1 | low[i] << 15);
	}
}

/* The block of `codes` elements from element `at` on, of their values less 2. */
INLINE void get_rest(const struct kvi_layers_rest *rest, size_t at, size_t codes,
                     const struct kvi_layers_tops *tops, const uint8_t *less2, uint16_t *elements,
                     const unsigned mantissa)
{
	size_t channel = at % tops->channels;
	uint8_t bits[BLOCK] = { 0 };
	const uint8_t *low = rest->plane[0] + at;
	if (mantissa > 7) {
		add_codes(rest->plane[1] + at / 4, codes, 2, 0, bits);
		add_codes(rest->plane[2] + at / 8, codes, 1, 2, bits);
	}
	size_t i = 0;
	for (; i + RUN <= codes; i += RUN) {
		join(elements + i, tops->top + channel, less2 + i, low + i, bits + i, RUN,
		     mantissa);
		channel = (channel + RUN) % tops->channels;
	}
	join(elements + i, tops->top + channel, less2 + i, low + i, bits + i, codes - i, mantissa);
}

/* Elements of 16 bits with `mantissa` bits of mantissa. */
INLINE bool get_elements(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                         const struct kvi_layers_tops *tops, uint16_t *elements,
                         const unsigned mantissa)
{
	const uint8_t *next = get_deeper(in), *end = next ? next + in->n[1] : NULL;
	const size_t n = in->n[0];
	uint8_t less2[BLOCK];
	if (!next)
		return false;
	for (size_t at = 0; at < n && next <= end; at += BLOCK) {
		const uint8_t *block = in->layer[0] + at / 4;
		const size_t codes = block_codes(n, at);
		next = codes < BLOCK ? get_last(block, codes, value_less2[0], next, less2)
		                     : get_block(block, value_less2[0], next, less2);
		get_rest(rest, at, codes, tops, less2, elements + at, mantissa);
	}
	return next == end;
}

static bool get_bf16(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                     const struct kvi_layers_tops *tops, uint16_t *elements)
{
	return get_elements(in, rest, tops, elements, 7);
}

static bool get_f16(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                    const struct kvi_layers_tops *tops, uint16_t *elements)
{
	return get_elements(in, rest, tops, elements, 10);
}

/* ----- writing ------------------------------------------------ */

/* The codes of a block of values; those with code 3 to `next`. Returns their end. */
INLINE uint8_t *put_block(const uint8_t *values, size_t codes, const uint8_t code_of_value[16],
                          uint8_t *block, uint8_t *next)
{
	const size_t bytes = (codes + 3) / 4;
	memset(block, 0, bytes);
	for (size_t first = 0, shift = 0; first < codes; first += bytes, shift += 2) {
		const size_t end = codes - first < bytes ? codes - first : bytes;
		for (size_t i = 0; i < end; i++) {
			const uint8_t value = values[first + i];
			const unsigned code = code_of_value[value < 15 ? value : 15];
			block[i] |= (uint8_t)(code << shift);
			*next = value;
			next += code == NEXT;
		}
	}
	return next;
}

/* Layers 2 to 4 and the bytes, of the values from work memory on up to `end`, at `to`; capacity: of
 * each part of the work memory. Returns the end of the bytes. */
static uint8_t *put_deeper(struct kvi_layers_out *out, uint8_t *to, size_t capacity, uint8_t *end)
{
	const uint8_t *values = out->work;
	for (unsigned layer = 1; layer < LAYERS; layer++) {
		const size_t n = (size_t)(end - values);
		uint8_t *left = out->work + layer * capacity;
		out->count[layer - 1] = (uint32_t)n;
		end = left;
		for (size_t at = 0; at < n; at += BLOCK)
			end = put_block(values + at, block_codes(n, at), code_of[layer],
			                to + at / 4, end);
		to += kvi_layers_plane(n, 2);
		values = left;
	}
	const size_t bytes = (size_t)(end - values);
	out->count[LAYERS - 1] = (uint32_t)bytes;
	memcpy(to, values, bytes);
	return to + bytes;
}

static uint8_t *put(const uint8_t *values, size_t n, struct kvi_layers_out *out)
{
	uint8_t *next = out->work;
	for (size_t at = 0; at < n; at += BLOCK)
		next = put_block(values + at, block_codes(n, at), code_of[0], out->to + at / 4,
		                 next);
	return put_deeper(out, out->to + kvi_layers_plane(n, 2), n + KVI_LAYERS_SLACK, next);
}

INLINE uint8_t *put_elements(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
                             uint8_t *const plane[KVI_LAYERS_PLANES], struct kvi_layers_out *out,
                             const unsigned mantissa)
{
	uint8_t *next = out->work;
	uint8_t values[BLOCK], high[BLOCK];
	for (size_t at = 0; at < n; at += BLOCK) {
		const size_t codes = block_codes(n, at);
		size_t channel = at % tops->channels;
		for (size_t i = 0; i < codes; i++) {
			const unsigned x = elements[at + i], y = x << 1 | x >> 15;
			plane[0][at + i] = (uint8_t)y;
			high[i] = (uint8_t)(y >> 8);
			values[i] = mantissa > 7 ? (tops->top[channel] - (high[i] >> 3)) & 31
			                         : (uint8_t)(tops->top[channel] - high[i]);
			channel = channel + 1 < tops->channels ? channel + 1 : 0;
		}
		if (mantissa > 7) {
			put_codes(high, codes, 2, 0, plane[1] + at / 4);
			put_codes(high, codes, 1, 2, plane[2] + at / 8);
		}
		next = put_block(values, codes, code_of[0], out->to + at / 4, next);
	}
	return put_deeper(out, out->to + kvi_layers_plane(n, 2), n + KVI_LAYERS_SLACK, next);
}

static uint8_t *put_bf16(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
                         uint8_t *const plane[KVI_LAYERS_PLANES], struct kvi_layers_out *out)
{
	return put_elements(elements, n, tops, plane, out, 7);
}

static uint8_t *put_f16(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
                        uint8_t *const plane[KVI_LAYERS_PLANES], struct kvi_layers_out *out)
{
	return put_elements(elements, n, tops, plane, out, 10);
}

/* ----- tops ------------------------------------------------ */

static void top_costs(const uint8_t *exponents, size_t rows, size_t row,
                      const uint8_t first[KVI_TOPS_AT_ONCE], uint8_t mask,
                      uint16_t cost[KVI_TOPS_TRIED][KVI_TOPS_AT_ONCE])
{
	for (unsigned tried = 0; tried < KVI_TOPS_TRIED; tried++)
		for (size_t c = 0; c < KVI_TOPS_AT_ONCE; c++) {
			unsigned sum = 0;
			for (size_t i = 0; i < rows; i++) {
				const unsigned value = (first[c] + tried - exponents[i * row + c]) &
				                       mask;
				sum += half_bits[value < 15 ? value : 15];
			}
			cost[tried][c] = (uint16_t)sum;
		}
}

const struct kvi_layer_kernels kvi_scalar_layers = {
	.get = get,
	.get_bf16 = get_bf16,
	.get_f16 = get_f16,
	.put = put,
	.put_bf16 = put_bf16,
	.put_f16 = put_f16,
	.top_costs = top_costs,
};
