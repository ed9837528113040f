/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layers_body.h - codec layers in vectors: what is the same in all sets of instructions
 *
 * A set defines LAYERS_TARGET, the attributes of its functions, and vec, a vector of bytes;
 * includes this; and defines the functions that are declared first.
 */
#ifndef KVI_LAYERS_BODY_H
#define KVI_LAYERS_BODY_H

#include "layers_codes.h"
#include "util/unroll.h"

#define INLINE LAYERS_TARGET static inline __attribute__((always_inline))
#define UNROLL KVI_UNROLL(8)

/* Where the kernels for elements are: elements in front, the channel of the next one, and the
 * values of layer 2 that are next. */
struct cursor {
	size_t at, channel;
	uint8_t *next;
};

/* As many elements as a vector has bytes: the bytes of each after a rotation left by one, its
 * value. */
struct element_bytes {
	vec low, high, value;
};

/* The values of a layer of n codes, less 2, and at most KVI_LAYERS_SLACK bytes more. next, end:
 * values of the next layer, readable up to n + KVI_LAYERS_SLACK. Reads nothing behind the plane.
 * False: there are not as many of them as codes 3. */
static bool get_layer(const uint8_t *plane, size_t n, unsigned layer, const uint8_t *next,
                      const uint8_t *end, uint8_t *values);
/* The plane of a layer of n values, and at most 64 bytes more; those with code 3 to `next`. Returns
 * their end. Reads and writes at most KVI_LAYERS_SLACK bytes behind values and `next`. */
static uint8_t *put_layer(const uint8_t *values, size_t n, unsigned layer, uint8_t *plane,
                          uint8_t *next);
/* QUARTER elements of values less 2, of the bits between those and the low 8 (f16), of the low
 * ones. */
INLINE void join(const uint8_t *less2, const uint8_t *bits, const uint8_t *low, const uint8_t *top,
                 uint16_t *elements, bool f16);
/* The inverse; high: the high 8 bits, the lowest 3 are those between (f16). */
INLINE void split(const uint16_t *elements, const uint8_t *top, uint8_t *values, uint8_t *low,
                  uint8_t *high, bool f16);
/* The full blocks of kvi_layer_kernels.get_bf16 and get_f16, n of them, from *to on; end: of the
 * values of layer 2. to->next is behind that for some damaged ones. */
INLINE void get_blocks(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                       const struct kvi_layers_tops *tops, size_t n, const uint8_t *end,
                       struct cursor *to, uint16_t *elements, bool f16);
/* The full blocks of kvi_layer_kernels.put_bf16 and put_f16, n of them, from *from on. */
INLINE void put_blocks(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
                       uint8_t *const plane[KVI_LAYERS_PLANES], uint8_t *layer, struct cursor *from,
                       bool f16);

/* The channel of the next block; step: BLOCK % channels. The tops of a block follow one another. */
INLINE size_t next_channel(size_t channel, size_t step, size_t channels)
{
	channel += step;
	return channel < channels ? channel : channel - channels;
}

/* ----- reading ------------------------------------------------ */

/* The values of layers 2 to 4 as those of layer 2, less 2, in work memory; NULL: damaged. A layer
 * takes no more values than it has codes, and so reads only its part of that memory. */
LAYERS_TARGET static uint8_t *get_deeper(const struct kvi_layers_in *in)
{
	const size_t capacity = in->n[0] + KVI_LAYERS_SLACK;
	uint8_t *next = in->work;
	for (size_t i = 0; i < in->n[LAYERS]; i++)
		next[i] = (uint8_t)(in->bytes[i] - 2);
	for (unsigned layer = LAYERS - 1; layer > 0; layer--) {
		uint8_t *values = in->work + (LAYERS - layer) * capacity;
		if (!get_layer(in->layer[layer], in->n[layer], layer, next, next + in->n[layer + 1],
		               values))
			return NULL;
		next = values;
	}
	return next;
}

LAYERS_TARGET static bool get(const struct kvi_layers_in *in, uint8_t *values)
{
	const uint8_t *next = get_deeper(in);
	return next && get_layer(in->layer[0], in->n[0], 0, next, next + in->n[1], values);
}

/* The last block, which is not full. Vectors read and write copies of it. */
LAYERS_TARGET static bool get_last(const struct kvi_layers_in *in,
                                   const struct kvi_layers_rest *rest,
                                   const struct kvi_layers_tops *tops, const uint8_t *end,
                                   struct cursor to, uint16_t *elements, bool f16)
{
	const size_t n = in->n[0] - to.at;
	uint8_t less2[BLOCK + KVI_LAYERS_SLACK], bits[BLOCK] = { 0 }, low[BLOCK] = { 0 };
	uint16_t made[BLOCK];
	if (!get_layer(in->layer[0] + to.at / 4, n, 0, to.next, end, less2))
		return false;
	memcpy(low, rest->plane[0] + to.at, n);
	if (f16) {
		add_codes(rest->plane[1] + to.at / 4, n, 2, 0, bits);
		add_codes(rest->plane[2] + to.at / 8, n, 1, 2, bits);
	}
	for (size_t i = 0; i < n; i += QUARTER) {
		join(less2 + i, bits + i, low + i, tops->top + to.channel, made + i, f16);
		to.channel = (to.channel + QUARTER) % tops->channels;
	}
	memcpy(elements + to.at, made, n * sizeof *made);
	return true;
}

INLINE bool get_elements(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
                         const struct kvi_layers_tops *tops, uint16_t *elements, bool f16)
{
	struct cursor to = { 0, 0, get_deeper(in) };
	const uint8_t *end = to.next ? to.next + in->n[1] : NULL;
	if (!to.next)
		return false;
	get_blocks(in, rest, tops, in->n[0] / BLOCK, end, &to, elements, f16);
	return to.at < in->n[0] ? get_last(in, rest, tops, end, to, elements, f16) : to.next == end;
}

LAYERS_TARGET static bool get_bf16(const struct kvi_layers_in *in,
                                   const struct kvi_layers_rest *rest,
                                   const struct kvi_layers_tops *tops, uint16_t *elements)
{
	return get_elements(in, rest, tops, elements, false);
}

LAYERS_TARGET static bool get_f16(const struct kvi_layers_in *in,
                                  const struct kvi_layers_rest *rest,
                                  const struct kvi_layers_tops *tops, uint16_t *elements)
{
	return get_elements(in, rest, tops, elements, true);
}

/* ----- writing ------------------------------------------------ */

/* Layers 2 to 4 and the bytes, of the values from work memory on up to `end`, at `to`; capacity: of
 * each part of the work memory. Returns the end of the bytes. */
LAYERS_TARGET static uint8_t *put_deeper(struct kvi_layers_out *out, uint8_t *to, size_t capacity,
                                         const uint8_t *end)
{
	const uint8_t *values = out->work;
	for (unsigned layer = 1; layer < LAYERS; layer++) {
		const size_t n = (size_t)(end - values);
		uint8_t *left = out->work + layer * capacity;
		out->count[layer - 1] = (uint32_t)n;
		end = put_layer(values, n, layer, to, left);
		to += kvi_layers_plane(n, 2);
		values = left;
	}
	const size_t bytes = (size_t)(end - values);
	out->count[LAYERS - 1] = (uint32_t)bytes;
	memcpy(to, values, bytes);
	return to + bytes;
}

LAYERS_TARGET static uint8_t *put(const uint8_t *values, size_t n, struct kvi_layers_out *out)
{
	const uint8_t *end = put_layer(values, n, 0, out->to, out->work);
	return put_deeper(out, out->to + kvi_layers_plane(n, 2), n + KVI_LAYERS_SLACK, end);
}

/* The last block, of n elements, which is not full. Vectors read and write copies of it. */
LAYERS_TARGET static uint8_t *put_last(const uint16_t *elements, size_t n,
                                       const struct kvi_layers_tops *tops,
                                       uint8_t *const plane[KVI_LAYERS_PLANES], uint8_t *layer,
                                       struct cursor from, bool f16)
{
	uint8_t values[BLOCK + KVI_LAYERS_SLACK], low[BLOCK], high[BLOCK];
	uint16_t copy[BLOCK] = { 0 };
	memcpy(copy, elements + from.at, n * sizeof *copy);
	for (size_t i = 0; i < n; i += QUARTER) {
		split(copy + i, tops->top + from.channel, values + i, low + i, high + i, f16);
		from.channel = (from.channel + QUARTER) % tops->channels;
	}
	memcpy(plane[0] + from.at, low, n);
	if (f16) {
		put_codes(high, n, 2, 0, plane[1] + from.at / 4);
		put_codes(high, n, 1, 2, plane[2] + from.at / 8);
	}
	return put_layer(values, n, 0, layer + from.at / 4, from.next);
}

INLINE uint8_t *put_elements(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
                             uint8_t *const plane[KVI_LAYERS_PLANES], struct kvi_layers_out *out,
                             bool f16)
{
	struct cursor from = { 0, 0, out->work };
	put_blocks(elements, n / BLOCK, tops, plane, out->to, &from, f16);
	if (from.at < n)
		from.next = put_last(elements, n - from.at, tops, plane, out->to, from, f16);
	return put_deeper(out, out->to + kvi_layers_plane(n, 2), n + KVI_LAYERS_SLACK, from.next);
}

LAYERS_TARGET static uint8_t *put_bf16(const uint16_t *elements, size_t n,
                                       const struct kvi_layers_tops *tops,
                                       uint8_t *const plane[KVI_LAYERS_PLANES],
                                       struct kvi_layers_out *out)
{
	return put_elements(elements, n, tops, plane, out, false);
}

LAYERS_TARGET static uint8_t *put_f16(const uint16_t *elements, size_t n,
                                      const struct kvi_layers_tops *tops,
                                      uint8_t *const plane[KVI_LAYERS_PLANES],
                                      struct kvi_layers_out *out)
{
	return put_elements(elements, n, tops, plane, out, true);
}

/* The members of a set's struct kvi_layer_kernels but top_costs. */
#define LAYERS_KERNELS                                                                          \
	.get = get, .get_bf16 = get_bf16, .get_f16 = get_f16, .put = put, .put_bf16 = put_bf16, \
	.put_f16 = put_f16

#endif
