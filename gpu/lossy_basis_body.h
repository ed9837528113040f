/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lossy_basis_body.h - numbers to codes of codec 14 (spec klt 2): slots less their predictions, and
 * their products with the inverse of the basis
 *
 * The product is one of whole numbers, as that of decoders: of each token the slots of a head are
 * numbers of 16 bits, in units of 1/32767 of the largest one.
 */
#ifndef KVI_GPU_LOSSY_BASIS_BODY_H
#define KVI_GPU_LOSSY_BASIS_BODY_H

#include "lossy_analysis_body.h"

/* The units of a head's slots in a block, fp32: behind what refused_of has. */
WARP_FN span<uint32_t> slot_units(const kvi_gpu_encode *e, uint32_t block, uint32_t head)
{
	const uint32_t blocks = lossy_blocks(&encoding_of(e)->o);
	const uint64_t at = (uint64_t)blocks * transform_warps(&e->job) +
	                    (block * e->job.heads + head) * 32;
	return span_at<uint32_t>(e->channel_bits + 4 * at, 32);
}

/* Stores v, the number of a channel, less what is predicted of its slot. Returns its size. */
WARP_FN u32v store_residual(const lossy_tile *x, span<uint32_t> z, uint32_t head, uint32_t channel,
                            uint32_t slot, u32v v)
{
	const u32v unit = splat(power_of((int32_t)ldg_one(x->numbers, (head + slot) * 4)));
	const u32v base = ld(x->bases, x->token + (head + slot) * x->padded);
	v = float_difference(v, float_product(float_bits(base), unit));
	st(z, lanes() + channel * 32, v);
	return v & 0x7fffffff;
}

/* All numbers of a head, whose rows are z: without RoPE, less what is predicted. Returns the
 * pattern of the largest size of each lane. */
WARP_FN u32v find_residuals(const lossy_tile *x, span<uint32_t> z, uint32_t head)
{
	const uint32_t half = x->rotary / 2;
	u32v most = splat(0);
	for (uint32_t p = 0; p < half; p++) {
		const uint32_t n = slot_channel(x->rotary, x->interleaved, 2 * p);
		const uint32_t other = slot_channel(x->rotary, x->interleaved, 2 * p + 1);
		const number_pair v = unrotated(x, z, p, n, other);
		const u32v one = store_residual(x, z, head, n, 2 * p, v.n);
		const u32v two = store_residual(x, z, head, other, 2 * p + 1, v.other);
		most = select(one > most, one, most);
		most = select(two > most, two, most);
	}
	for (uint32_t n = x->rotary; n < x->channels; n++) {
		const u32v size = store_residual(x, z, head, n, n, ld(z, lanes() + n * 32));
		most = select(size > most, size, most);
	}
	return most;
}

/* A number in units of a lane, to nearest, halves away from 0. */
WARP_FN u32v in_units(u32v v, u32v factor)
{
	const u32v b = float_product(v, factor);
	return f_whole(f_of_bits(float_sum(b, (b & 0x80000000) | 0x3f000000)));
}

/* The slots of a head of a block as rows of pairs, in the memory of points. */
WARP_FN void put_slots(const kvi_gpu_encode *e, uint32_t block, uint32_t head)
{
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	lossy_tile x;
	tile_open(&x, &e->job, o, block);
	tile_model(&x, &e->job);
	const uint32_t hc = x.channels, first = head * hc, pairs = (hc + 1) / 2;
	span<uint32_t> z = skip(coefficients_at<uint32_t>(&e->job, o, block), first * 32);
	span<uint32_t> to = skip(points_at(&e->job, o),
	                         (block * lossy_pairs(&e->job) + head * pairs) * 32);
	const u32v most = find_residuals(&x, z, first);
	/* lanes that are 0, too small or too large become zeros */
	const boolv sound = (most > 0x08000000) & (most < 0x77000000);
	const f32v size = f_of_bits(select(sound, most, splat(power_of(0))));
	const u32v factor = select(sound, f_bits(f_div(f_splat(32767.0f), size)), splat(0));
	st(slot_units(e, block, head), lanes(), f_bits(f_mul(size, f_splat(1.0f / 32767.0f))));
	for (uint32_t n = 0; n < hc; n += 2) {
		const uint32_t channel = slot_channel(x.rotary, x.interleaved, n);
		u32v pair = in_units(ld(z, lanes() + channel * 32), factor) & 0xffff;
		if (n + 1 < hc) {
			const uint32_t other = slot_channel(x.rotary, x.interleaved, n + 1);
			pair |= in_units(ld(z, lanes() + other * 32), factor) << 16;
		}
		st(to, lanes() + n / 2 * 32, pair);
	}
}

/* Coefficients and codes of a panel of a block, by its number in the chunk. */
WARP_FN void analyse_panel(const kvi_gpu_encode *e, uint32_t block, uint32_t number)
{
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	const uint32_t hc = e->job.head_channels, panels = panels_of(hc);
	const linear_panel p = panel_at(hc, number / panels, number % panels);
	span<const uint32_t> gain = span_at<const uint32_t>(e->lossy.gains, channels_of(e));
	span<uint32_t> z = skip(coefficients_at<uint32_t>(&e->job, o, block), p.c * 32);
	span<int8_t> to = skip(codes_of(e, block), p.c * 32);
	const u32v unit = ld(slot_units(e, block, p.head), lanes());
	lossy_tile x;
	tile_open(&x, &e->job, o, block);
	basis_sums s;
	panel_sums_of(&s, &e->job, block, &p, e->lossy.analysis);
	u32v all = splat(0);
	UNROLL
	for (uint32_t i = 0; i < PANEL; i++)
		if (i < p.slots) {
			const u32v sum = float_bits(s.low[i] + (s.high[i] << 8));
			const u32v v = float_product(sum, splat(ldg_one(gain, p.c + i)));
			all |= codes_of_row(&e->lossy, float_product(v, unit), i, z, to);
		}
	put_refused(e, &x, block, number, all);
}

/* The slots of codec 14, a warp a head of a block. */
WARP_FN void encode_slots(const kvi_gpu_encode *e, uint32_t stage, uint32_t block, uint32_t head)
{
	if (e->job.codec == CODEC_KLT && encodes_lossy(e, stage) &&
	    block < lossy_blocks(&encoding_of(e)->o) && head < e->job.heads)
		put_slots(e, block, head);
}

/* Coefficients and codes, a warp a head of a block of codec 13, or a panel of codec 14. */
WARP_FN void encode_analysis(const kvi_gpu_encode *e, uint32_t stage, uint32_t block, uint32_t warp)
{
	if (!encodes_lossy(e, stage) || block >= lossy_blocks(&encoding_of(e)->o) ||
	    warp >= transform_warps(&e->job))
		return;
	if (e->job.codec == CODEC_HAD)
		analyse_head(e, block, warp);
	else
		analyse_panel(e, block, warp);
}

#endif
