/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_sums_body.h - what is known of predictions before a stream is decoded (spec linear 2, 3):
 * angles, rows of the token table, bases, sums over sources
 */
#ifndef KVI_GPU_LINEAR_SUMS_BODY_H
#define KVI_GPU_LINEAR_SUMS_BODY_H

#include "linear_products_body.h"

WARP_FN bool source_good(uint64_t kept)
{
	const uint32_t status = ldg_one(span_at<const uint32_t>(kept, 1), 0);
	return status == KVI_GPU_OK || status == KVI_GPU_PAGE;
}

/* Whether all chunks that a chunk is predicted from are good; they have been answered. */
WARP_FN bool sources_good(const kvi_gpu_linear *l)
{
	const kvi_gpu_model *m = model_of(l);
	bool good = true;
	for (uint32_t i = 0; i < m->n_lower; i++)
		good &= source_good(l->lower[i].kept);
	for (uint32_t i = 0; i < m->n_same; i++)
		good &= source_good(l->same[i].kept);
	return good && (!l->scale_w || source_good(l->scale_kept));
}

/* ----- angles, rows of the token table ------------------------------------------------ */

/* Cosine and sine of the angles of 32 tokens, in units of 2^-14, for a frequency of a rope; *angle:
 * in 1/4096 turns. */
WARP_FN u32v turns_at(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, u64v f, uint32_t token,
                      u32v *angle)
{
	span<const int16_t> cosine = span_at<const int16_t>(tables->cosine, 4096);
	span<const int32_t> positions = span_at<const int32_t>(c->positions, c->tokens);
	const u32v at = lanes() + token;
	const u32v position = ldg_if(positions, at, at < c->tokens);
	const u64v below_0 = select64(position >> 31 != 0, f << (uint64_t)32, splat64(0));
	const u64v turn = wide(position) * f - below_0;
	const u32v i = ((low_half(turn >> (uint64_t)51) + 1) >> 1) & 4095;
	const u32v rest = low_half((turn - (wide(i) << (uint64_t)52)) >> (uint64_t)36);
	const u32v d = sar(rest << 4, 4);
	const u32v c0 = ldg(cosine, i), s0 = ldg(cosine, (i + 3072) & 4095);
	const u32v cs = c0 - sar(sar(s0 * d, 15) * 1608 + (1u << 20), 21);
	const u32v sn = s0 + sar(sar(c0 * d, 15) * 1608 + (1u << 20), 21);
	*angle = i;
	return (cs & 0xffff) | sn << 16;
}

/* Cosines, sines and classes of the angles of a rotated pair at all tokens. */
WARP_FN void find_turns(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, uint32_t pair)
{
	const kvi_gpu_linear *l = linear_of(c);
	const uint32_t pairs = model_of(l)->rotary / 2, n = padded_tokens(c);
	if (pair >= pairs)
		return;
	span<uint32_t> turns = span_at<uint32_t>(l->turns, pairs * n);
	span<uint8_t> classes = span_at<uint8_t>(l->classes, pairs * n);
	const u64v f = ld64(span_at<const uint64_t>(l->frequencies, pairs), splat(pair));
	for (uint32_t t = 0; t < n; t += 32) {
		const u32v at = lanes() + (pair * n + t);
		u32v angle;
		st(turns, at, turns_at(c, tables, f, t, &angle));
		st(classes, at, angle >> 5 & 63);
	}
}

/* The rows of the token table of 32 tokens, NO_ROW where there is none. */
WARP_FN void find_rows(const kvi_gpu_chunk *c, uint32_t step)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	if (!(m->flags & KVI_GPU_MODEL_TABLE) || step * 32 >= c->tokens)
		return;
	span<const int32_t> known = span_at<const int32_t>(m->ids, m->n_ids);
	const u32v at = lanes() + step * 32;
	const boolv on = at < (l->ids ? c->tokens : 0);
	const u32v id = ldg_if(span_at<const int32_t>(l->ids, l->ids ? c->tokens : 0), at, on);
	u32v before = splat(0); /* ids that are smaller, or the same */
	for (uint32_t d = 1u << 20; d; d >>= 1) {
		const u32v next = before + d;
		const boolv in = next <= m->n_ids;
		const u32v other = ldg_if(known, next - 1, in);
		before = select(in & !less_signed(id, other), next, before);
	}
	const u32v last = ldg_if(known, before - 1, before != 0);
	st(span_at<uint32_t>(l->rows, padded_tokens(c)), at,
	   select(on & (before != 0) & (last == id), before - 1, splat(NO_ROW)));
}

/* ----- sums ------------------------------------------------ */

/* Two panels of a head that are next to each other, so that features are read once for both; the
 * second one has no slots where the head has no more. */
struct panel_pair {
	linear_panel panel[2];
	uint32_t more; /* 1: there is a second one */
};

WARP_FN panel_pair panels_at(uint32_t head_channels, uint32_t head, uint32_t number)
{
	panel_pair p;
	p.more = number + 1 < panels_of(head_channels);
	p.panel[0] = panel_at(head_channels, head, number);
	p.panel[1] = panel_at(head_channels, head, number + p.more);
	p.panel[1].slots = p.more ? p.panel[1].slots : 0;
	return p;
}

/* Adds what some of the panels of a source give to two panels; returns the coefficients behind. */
WARP_FN span<const uint32_t> add_source(panel_sums *s, uint64_t features, uint32_t all,
                                        uint32_t first, uint32_t seen, uint32_t step,
                                        span<const uint32_t> coefficients, uint32_t stride)
{
	add_panels<2>(s, step_features(features, step, all), first, seen, coefficients, stride);
	return skip(coefficients, blocks_of(seen) * BLOCK_QUADS * 4);
}

/* Adds what n sources give to two panels, of a matrix of `blocks` blocks a panel. */
WARP_FN void add_sources(panel_sums *s, const kvi_gpu_source *from, uint32_t n, uint32_t step,
                         const panel_pair *p, uint64_t matrix, uint32_t blocks)
{
	const uint32_t head = p->panel[0].head, stride = p->more * blocks * BLOCK_QUADS * 4;
	span<const uint32_t> coefficients = coefficients_of(matrix, blocks, p->panel[0].number, 0,
	                                                    p->more);
	for (uint32_t i = 0; i < n; i++) {
		const kvi_gpu_source *x = &from[i];
		const uint32_t all = x->heads * x->panels, seen = x->scope ? x->panels : all;
		const uint32_t first = x->scope ? head % x->heads * x->panels : 0;
		HAPPENS(source, 2 * blocks_of(seen));
		coefficients = add_source(s, x->features, all, first, seen, step, coefficients,
		                          stride);
	}
}

/* What the token table says of slots, from the rows of the tokens. */
WARP_FN u32v table_of(const kvi_gpu_model *m, u32v row, u32v c)
{
	const uint32_t C = m->heads * m->head_channels;
	span<const int8_t> table = span_at<const int8_t>(m->table, m->n_ids * C);
	const boolv on = row != NO_ROW;
	return ldg_if(table, select(on, row * C + c, splat(0)), on) << m->tshift;
}

/* The bases of a panel's slots at 32 tokens. */
WARP_FN void store_bases(const kvi_gpu_chunk *c, const linear_panel *p, uint32_t step,
                         const panel_sums *s)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t C = m->heads * m->head_channels, n = padded_tokens(c);
	span<const uint32_t> numbers = span_at<const uint32_t>(m->slots, C * 4);
	span<const uint32_t> offsets = span_at<const uint32_t>(m->offsets, C * 2);
	span<const uint32_t> rows = span_at<const uint32_t>(l->rows, n);
	span<int16_t> bases = span_at<int16_t>(l->bases, C * n);
	const bool table = (m->flags & KVI_GPU_MODEL_TABLE) != 0;
	UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		const boolv on = own_slot(i) < p->slots;
		const u32v slot = select(on, own_slot(i), splat(0)) + p->c;
		const u32v mean = sar(ldg(numbers, slot * 4 + 1), 16);
		const u32v q = ldg(numbers, slot * 4 + 2) & 255, offset = ldg(offsets, slot * 2);
		UNROLL
		for (uint32_t j = 0; j < 4; j++) {
			const u32v at = own_token(j) + step * STEP_TOKENS;
			u32v base = sar_each(sum_of(s, i, j) + offset, q) + mean;
			if (table)
				base += table_of(m, ld(rows, at), slot);
			st_if(bases, at + slot * n, limited(base, LINEAR_LIMIT), on);
		}
	}
}

/* The same where an engine predicts the slots (spec model 2): there are no lower sources then. */
WARP_FN void store_expected(const kvi_gpu_chunk *c, const linear_panel *p, uint32_t step)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t C = m->heads * m->head_channels, n = padded_tokens(c);
	span<const uint32_t> numbers = span_at<const uint32_t>(m->slots, C * 4);
	span<const int16_t> expected = span_at<const int16_t>(l->expects.e, C * c->tokens);
	span<int16_t> bases = span_at<int16_t>(l->bases, C * n);
	UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		const boolv on = own_slot(i) < p->slots;
		const u32v slot = select(on, own_slot(i), splat(0)) + p->c;
		const u32v mean = sar(ldg(numbers, slot * 4 + 1), 16);
		UNROLL
		for (uint32_t j = 0; j < 4; j++) {
			const u32v at = own_token(j) + step * STEP_TOKENS;
			const u32v e = ldg_if(expected, at * C + slot, on & (at < c->tokens));
			st_if(bases, at + slot * n, limited(mean + e, LINEAR_LIMIT), on);
		}
	}
}

/* The sums over sources of the same layer of a panel's slots, with offsets. */
WARP_FN void store_sums(const kvi_gpu_chunk *c, const linear_panel *p, uint32_t step,
                        const panel_sums *s)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t C = m->heads * m->head_channels, n = padded_tokens(c);
	span<const uint32_t> offsets = span_at<const uint32_t>(m->offsets, C * 2);
	span<uint32_t> sums = span_at<uint32_t>(l->sums, C * n);
	UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		const boolv on = own_slot(i) < p->slots;
		const u32v slot = select(on, own_slot(i), splat(0)) + p->c;
		const u32v offset = ldg(offsets, slot * 2 + 1);
		UNROLL
		for (uint32_t j = 0; j < 4; j++)
			st_if(sums, own_token(j) + (step * STEP_TOKENS) + slot * n,
			      sum_of(s, i, j) + offset, on);
	}
}

WARP_FN void sums_begin_both(panel_sums *s)
{
	sums_begin(&s[0]);
	sums_begin(&s[1]);
}

/* The bases of two panels, in one way or the other. */
WARP_FN void find_bases(const kvi_gpu_chunk *c, const panel_pair *p, uint32_t step, panel_sums *s)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	sums_begin_both(s);
	if (m->a)
		add_sources(s, l->lower, m->n_lower, step, p, m->a, m->a_blocks);
	UNROLL
	for (uint32_t i = 0; i < 2; i++)
		store_bases(c, &p->panel[i], step, &s[i]);
}
WARP_FN void store_both_expected(const kvi_gpu_chunk *c, const panel_pair *p, uint32_t step)
{
	store_expected(c, &p->panel[0], step);
	store_expected(c, &p->panel[1], step);
}

/* Bases and sums of two panels, by their number in the chunk, at 32 tokens; where there are none,
 * or they are not wanted, nothing. */
WARP_FN void find_panels(const kvi_gpu_chunk *c, uint32_t step, uint32_t number)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t pairs = (panels_of(m->head_channels) + 1) / 2;
	if (!l->predicts || number >= m->heads * pairs || step * 32 >= c->tokens)
		return;
	const panel_pair p = panels_at(m->head_channels, number / pairs, number % pairs * 2);
	panel_sums s[2];
	if (l->expects.e)
		store_both_expected(c, &p, step);
	else
		find_bases(c, &p, step, s);
	if (!m->b)
		return;
	sums_begin_both(s);
	add_sources(s, l->same, m->n_same, step, &p, m->b, m->b_blocks);
	UNROLL
	for (uint32_t i = 0; i < 2; i++)
		store_sums(c, &p.panel[i], step, &s[i]);
}

#endif
