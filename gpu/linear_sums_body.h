/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_sums_body.h - what is known of predictions before a stream is decoded (spec linear 2, 3):
 * angles, rows of the token table, bases, sums over sources
 *
 * A lane is a token. Sums are exact, so that their order does not matter: coefficients are split
 * into bytes, whose products with the halves of feature rows are added up apart.
 */
#ifndef KVI_GPU_LINEAR_SUMS_BODY_H
#define KVI_GPU_LINEAR_SUMS_BODY_H

#include "device_job.h"
#include "linear_job.h"
#include "warp.h"

constexpr uint32_t PANEL = KVI_GPU_PANEL, LINEAR_LIMIT = 32767, NO_ROW = ~0u;

WARP_FN const kvi_gpu_linear *linear_of(const kvi_gpu_chunk *c)
{
	return (const kvi_gpu_linear *)(uintptr_t)c->linear;
}
WARP_FN const kvi_gpu_model *model_of(const kvi_gpu_linear *l)
{
	return (const kvi_gpu_model *)(uintptr_t)l->model;
}

WARP_FN uint32_t padded_tokens(const kvi_gpu_chunk *c)
{
	return (c->tokens + 31) & ~31u;
}

/* Feature rows of a head, and panels. */
WARP_FN uint32_t head_pairs(const kvi_gpu_model *m)
{
	return (m->head_channels + 1) / 2;
}
WARP_FN uint32_t head_panels(const kvi_gpu_model *m)
{
	return (m->head_channels + PANEL - 1) / PANEL;
}

/* v limited to -n .. n. */
WARP_FN u32v limited(u32v v, uint32_t n)
{
	return max_signed(min_signed(v, splat(n)), splat(0 - n));
}

/* Half of a unit of a sum with q fraction bits, q at most 16. */
WARP_FN uint32_t half_of(uint32_t q)
{
	return 1u << q >> 1;
}

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

/* Cosines, sines and classes of the angles of a rotated pair at all tokens. */
WARP_FN void find_turns(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, uint32_t pair)
{
	const kvi_gpu_linear *l = linear_of(c);
	const uint32_t pairs = model_of(l)->rotary / 2, n = padded_tokens(c);
	if (pair >= pairs)
		return;
	span<const int16_t> cosine = span_at<const int16_t>(tables->cosine, 4096);
	span<const int32_t> positions = span_at<const int32_t>(c->positions, c->tokens);
	span<uint32_t> turns = span_at<uint32_t>(l->turns, pairs * n);
	span<uint8_t> classes = span_at<uint8_t>(l->classes, pairs * n);
	const u64v f = ld64(span_at<const uint64_t>(l->frequencies, pairs), splat(pair));
	for (uint32_t t = 0; t < n; t += 32) {
		const u32v at = lanes() + t;
		const u32v position = ldg_if(positions, at, at < c->tokens);
		const u64v below_0 = select64(position >> 31 != 0, f << (uint64_t)32, splat64(0));
		const u64v turn = wide(position) * f - below_0;
		const u32v i = ((low_half(turn >> (uint64_t)51) + 1) >> 1) & 4095;
		const u32v rest = low_half((turn - (wide(i) << (uint64_t)52)) >> (uint64_t)36);
		const u32v d = sar(rest << 4, 4);
		const u32v c0 = ldg(cosine, i), s0 = ldg(cosine, (i + 3072) & 4095);
		const u32v cs = c0 - sar(sar(s0 * d, 15) * 1608 + (1u << 20), 21);
		const u32v sn = s0 + sar(sar(c0 * d, 15) * 1608 + (1u << 20), 21);
		st(turns, at + pair * n, (cs & 0xffff) | sn << 16);
		st(classes, at + pair * n, i >> 5 & 63);
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

/* Slots of a head: `first` is in it, c among those of all heads. */
struct linear_panel {
	uint32_t number, head, first, c, slots;
};

WARP_FN linear_panel panel_at(const kvi_gpu_model *m, uint32_t head, uint32_t number)
{
	linear_panel p;
	p.number = head * head_panels(m) + number;
	p.head = head;
	p.first = number * PANEL;
	p.c = head * m->head_channels + p.first;
	p.slots = m->head_channels - p.first < PANEL ? m->head_channels - p.first : PANEL;
	return p;
}

/* Sums of the slots of a panel: of low bytes, of high bytes. */
struct panel_sums {
	u32v low[PANEL], high[PANEL];
};

WARP_FN void sums_begin(panel_sums *s)
{
	UNROLL
	for (uint32_t i = 0; i < PANEL; i++)
		s->low[i] = s->high[i] = splat(0);
}

WARP_FN u32v sum_of(const panel_sums *s, uint32_t i)
{
	return s->low[i] + (s->high[i] << 8);
}

/* Adds n feature rows, whose coefficients are the next n * PANEL words. */
WARP_FN void add_rows(panel_sums *s, span<const uint32_t> rows, span<const uint32_t> coefficients,
                      uint32_t n)
{
	const u32v l = lanes();
	HAPPENS(row, n);
	for (uint32_t p = 0; p < n; p++) {
		const u32v f = ld(rows, l);
		const quad x = ldg_quad(coefficients, 0), y = ldg_quad(coefficients, 4);
		rows = skip(rows, 32);
		coefficients = skip(coefficients, PANEL);
		UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			s->low[i] = dot_low(f, x.v[i], s->low[i]);
			s->high[i] = dot_high(f, x.v[i], s->high[i]);
			s->low[i + 4] = dot_low(f, y.v[i], s->low[i + 4]);
			s->high[i + 4] = dot_high(f, y.v[i], s->high[i + 4]);
		}
	}
}

/* Feature rows `first` to first + n - 1 of a step of a tensor that has `all` of them a step. */
WARP_FN span<const uint32_t> rows_at(uint64_t features, uint32_t step, uint32_t all, uint32_t first,
                                     uint32_t n)
{
	return span_at<const uint32_t>(
		features + ((uint64_t)step * all + first) * (32 * sizeof(uint32_t)), n * 32);
}

/* Adds what n sources give to a panel; returns how many rows they have. */
WARP_FN uint32_t add_sources(panel_sums *s, const kvi_gpu_source *from, uint32_t n, uint32_t head,
                             uint32_t step, span<const uint32_t> coefficients)
{
	uint32_t sum = 0;
	for (uint32_t i = 0; i < n; i++) {
		const kvi_gpu_source *x = &from[i];
		const uint32_t pairs = x->scope ? x->pairs : x->heads * x->pairs;
		const uint32_t first = x->scope ? head % x->heads * x->pairs : 0;
		add_rows(s, rows_at(x->features, step, x->heads * x->pairs, first, pairs),
		         skip(coefficients, sum * PANEL), pairs);
		sum += pairs;
	}
	return sum;
}

/* The coefficients of a panel. */
WARP_FN span<const uint32_t> coefficients_of(uint64_t matrix, uint32_t pairs, uint32_t panel)
{
	return span_at<const uint32_t>(matrix + (uint64_t)panel * pairs * PANEL * sizeof(uint32_t),
	                               pairs * PANEL);
}

/* What the token table says of slot c, from the rows of the tokens. */
WARP_FN u32v table_of(const kvi_gpu_model *m, u32v row, uint32_t c)
{
	const uint32_t C = m->heads * m->head_channels;
	span<const int8_t> table = span_at<const int8_t>(m->table, m->n_ids * C);
	const boolv on = row != NO_ROW;
	return ldg_if(table, select(on, row * C + c, splat(0)), on) << m->tshift;
}

/* The bases of a panel's slots at 32 tokens. */
WARP_FN void find_bases(const kvi_gpu_chunk *c, const linear_panel *p, uint32_t step)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t C = m->heads * m->head_channels, n = padded_tokens(c);
	const u32v at = lanes() + step * 32;
	panel_sums s;
	sums_begin(&s);
	if (m->a)
		add_sources(&s, l->lower, m->n_lower, p->head, step,
		            coefficients_of(m->a, m->a_pairs, p->number));
	u32v row = splat(NO_ROW);
	if (m->flags & KVI_GPU_MODEL_TABLE)
		row = ld(span_at<const uint32_t>(l->rows, n), at);
	span<const uint8_t> qa = span_at<const uint8_t>(m->qa, m->a ? C : 0);
	span<const int16_t> mean = span_at<const int16_t>(m->mean, C);
	span<int16_t> bases = span_at<int16_t>(l->bases, C * n);
	UNROLL
	for (uint32_t i = 0; i < PANEL; i++) {
		const boolv on = splat(i) < p->slots;
		const uint32_t slot = p->c + (i < p->slots ? i : 0);
		const uint32_t q = m->a ? ldg_one(qa, slot) : 0;
		const u32v a = sar(sum_of(&s, i) + half_of(q), q);
		const u32v base = a + table_of(m, row, slot) + ldg_one(mean, slot);
		st_if(bases, at + slot * n, limited(base, LINEAR_LIMIT), on);
	}
}

/* The sums over sources of the same layer, with what rounds them. */
WARP_FN void find_sums(const kvi_gpu_chunk *c, const linear_panel *p, uint32_t step)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t C = m->heads * m->head_channels, n = padded_tokens(c);
	const u32v at = lanes() + step * 32;
	panel_sums s;
	sums_begin(&s);
	add_sources(&s, l->same, m->n_same, p->head, step,
	            coefficients_of(m->b, m->b_pairs, p->number));
	span<const uint8_t> qb = span_at<const uint8_t>(m->qb, C);
	span<uint32_t> sums = span_at<uint32_t>(l->sums, C * n);
	UNROLL
	for (uint32_t i = 0; i < PANEL; i++) {
		const uint32_t slot = p->c + (i < p->slots ? i : 0);
		st_if(sums, at + slot * n, sum_of(&s, i) + half_of(ldg_one(qb, slot)),
		      splat(i) < p->slots);
	}
}

/* Bases and sums of a panel, by its number in the chunk, at 32 tokens; where there is none, or
 * they are not wanted, nothing. */
WARP_FN void find_panel(const kvi_gpu_chunk *c, uint32_t step, uint32_t number)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t panels = head_panels(m);
	if (l->features != KVI_GPU_FEATURES_ALL || number >= m->heads * panels ||
	    step * 32 >= c->tokens)
		return;
	const linear_panel p = panel_at(m, number / panels, number % panels);
	find_bases(c, &p, step);
	if (m->b)
		find_sums(c, &p, step);
}

#endif
