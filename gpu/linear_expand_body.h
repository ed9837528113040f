/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_expand_body.h - puts decoded slots of codec 7, row after row, where their channels are */
#ifndef KVI_GPU_LINEAR_EXPAND_BODY_H
#define KVI_GPU_LINEAR_EXPAND_BODY_H

#include "chunk_open_body.h"
#include "grid_decode_body.h"
#include "linear_sums_body.h"

/* The slots of channels (spec linear 1). */
WARP_FN u32v channel_slot(const kvi_gpu_model *m, bool interleaved, u32v channel)
{
	const u32v n = channel % m->head_channels;
	const uint32_t half = m->rotary / 2;
	if (interleaved || !half)
		return channel;
	const u32v slot = select(n < half, n * 2, (n - half) * 2 + 1);
	return select(n < m->rotary, channel - n + slot, channel);
}

/* Tokens that are put together, so that slots are found once for all of them. */
constexpr uint32_t EXPANDED = 8;

/* Tokens `first` to end - 1 of a chunk of codec 7, EXPANDED at most; first is a multiple of it. */
template <int SIZE>
WARP_FN void expand_slots(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t first,
                          uint32_t end)
{
	typedef typename element_of<SIZE>::type element;
	const uint32_t C = c->heads * c->head_channels, padded = padded_tokens(c), n = end - first;
	const kvi_gpu_linear *l = linear_of(c);
	span<const uint8_t> p = span_at<const uint8_t>(c->payload, c->payload_bytes);
	span<element> to = span_at<element>(c->decoded + (uint64_t)first * C * SIZE, n * C);
	span<const uint32_t> from = span_at<const uint32_t>(l->elements, C * padded / 2);
	low_planes low = {};
	if (SIZE == 4 && o->n_streams)
		low_open(&low, c, o);
	for (uint32_t i = 0, left = 0; i < C; i += 32) {
		const uint32_t set = bitmap_word(p, o->channel_bits, i, C);
		const u32v at = lanes() + i, rank = below(~set) + left;
		const boolv on = at < C, fixed = lane_in(set), coded = on & !fixed;
		const u32v slot = channel_slot(model_of(l), l->interleaved != 0, at);
		const quads x = ld_quads_if(from, (slot * padded + first) / EXPANDED, coded);
		const u32v value = payload_element<SIZE>(p, (at - rank) * SIZE + o->channel_values,
		                                         fixed & on);
		UNROLL
		for (uint32_t t = 0; t < EXPANDED; t++) {
			u32v v = x.v[t / 2] >> 16 * (t % 2) & 0xffff;
			if (t >= n)
				break;
			if (SIZE == 4)
				v = v << 16 |
				    low_load(&low, rank + (first + t) * o->columns, coded);
			st_if(to, at + t * C, select(fixed, value, v), on);
		}
		left += count(~set);
	}
}

#endif
