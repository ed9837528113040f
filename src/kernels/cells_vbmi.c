/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cells_vbmi.c - the kernels of codec cells (spec cells) in AVX-512 with VBMI2 and BITALG
 *
 * A round is 64 elements, whose codes are bytes of a vector, in two steps of 32 lanes. The last
 * block, which is not full, is coded in copies.
 *
 * What takes the time is the chain of operations from the states of a step to those of the next
 * one, and nearly as much the number of all the others. Hence the order of the parts of a round,
 * and constants that are kept in registers.
 */
#include "config.h"

#include "slots.h"

#if defined(KVI_AVX512VNNI)

#include "cells_parts.h"
#include "feed.h"
#include "lanes_vbmi.h"
#include "ops_avx512.h"
#include "util/unroll.h"

#define SET16(x) _mm512_set1_epi16((short)(x))

#define CELLS __attribute__((target("avx512vbmi,avx512vbmi2,avx512bitalg")))
/* The halves of a round. */
#define EACH_HALF KVI_UNROLL(2) for (unsigned half = 0; half < 2; half++)
#define RARE(condition) __builtin_expect(condition, 0)

enum {
	ROUND = 64,
	STEP = KVI_LANES,
	ROUNDS = BLOCK / ROUND, /* of a block */
	FINE_CODES = KVI_CELLS_FINE * KVI_CELLS_ROW,
	LOOK_UPS = 8 /* second codes of a round, nearly always */
};

/* A table of 128 bytes. */
INLINE void load_table(const void *from, vec table[2])
{
	table[0] = v_load(from);
	table[1] = v_load((const uint8_t *)from + ROUND);
}

/* The bytes of a half, 0 or 1, of a round as words. */
INLINE vec words_of(vec bytes, unsigned half)
{
	return _mm512_cvtepu8_epi16(half ? _mm512_extracti64x4_epi64(bytes, 1)
	                                 : _mm512_castsi512_si256(bytes));
}

/* A vector that is computed here and stays in a register. The compiler makes constants for each use
 * otherwise. */
INLINE vec kept(vec v)
{
	__asm__("" : "+v"(v));
	return v;
}

/* The lowest n bits of each word. */
INLINE vec lowest(vec words, vec n)
{
	return _mm512_andnot_si512(_mm512_sllv_epi16(SET8(-1), n), words);
}

/* The lower bytes of 64 words. */
CELLS INLINE vec low_bytes(vec first, vec second)
{
	const vec ascending = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
	                                        15);
	const vec even = v_add(v_mul(ascending, SET(0x08080808)), SET(0x06040200));
	return _mm512_permutex2var_epi8(first, even, second);
}

/* ----- halves of 32 states, lane i in word i ------------------------------ */

/* 32 numbers of 32 bits as 16 bits. */
INLINE vec narrowed(vec a, vec b)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
	                          _mm512_cvtepi32_epi16(b), 1);
}

/* The halves of 32 states in memory. */
INLINE void halves_of(const uint32_t *st, vec *low, vec *high)
{
	const vec a = v_load(st), b = v_load(st + 16);
	*low = narrowed(a, b);
	*high = narrowed(v_shr(a, 16), v_shr(b, 16));
}

/* The inverse: 32 states to memory. */
INLINE void halves_join(uint32_t *st, vec low, vec high)
{
	const vec a = _mm512_unpacklo_epi16(low, high), b = _mm512_unpackhi_epi16(low, high);
	const vec even = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
	const vec odd = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
	v_store(st, _mm512_permutex2var_epi64(a, even, b));
	v_store(st + 16, _mm512_permutex2var_epi64(a, odd, b));
}

/* ----- intervals of codes --------------------------------------- */

/* First distances and sizes of all codes of fine classes, which are nearly all. */
struct interval_tables {
	vec lo[2], nb[2], fine, coarse;
};
/* Intervals of 64 elements. */
struct intervals {
	vec lo, nb;
};

INLINE struct interval_tables interval_tables_load(void)
{
	struct interval_tables tables = { .fine = kept(SET8(0x60)),
		                          .coarse = kept(SET8(KVI_CELLS_COARSE)) };
	load_table(kvi_cells_lo + FINE_CODES, tables.lo);
	load_table(kvi_cells_nb + FINE_CODES, tables.nb);
	return tables;
}

/* Sets those of the lanes of coarse classes. */
CELLS static __attribute__((noinline)) struct intervals
coarse_intervals(struct intervals fine, __mmask64 lanes, vec code, vec class)
{
	uint8_t codes[ROUND], classes[ROUND], nb[ROUND];
	int8_t lo[ROUND];
	v_store(codes, code);
	v_store(classes, class);
	v_store(lo, fine.lo);
	v_store(nb, fine.nb);
	for (; lanes; lanes &= lanes - 1) {
		const unsigned i = (unsigned)__builtin_ctzll(lanes);
		const size_t at = kvi_cells_class(classes[i]) * KVI_CELLS_ROW +
		                  codes[i] % KVI_CELLS_ROW;
		lo[i] = kvi_cells_lo[at];
		nb[i] = kvi_cells_nb[at];
	}
	return (struct intervals){ v_load(lo), v_load(nb) };
}

/* class: the lower bytes of kvi_cells_contexts.grid. */
CELLS INLINE struct intervals intervals_of(const struct interval_tables *tables, vec code,
                                           vec class)
{
	const vec at = _mm512_ternarylogic_epi64(class, tables->fine, code, 0xea); /* a & b | c */
	const struct intervals fine = { _mm512_permutex2var_epi8(tables->lo[0], at, tables->lo[1]),
		                        _mm512_permutex2var_epi8(tables->nb[0], at,
		                                                 tables->nb[1]) };
	const __mmask64 coarse = _mm512_test_epi8_mask(class, tables->coarse);
	if (RARE(coarse))
		return coarse_intervals(fine, coarse, code, class);
	return fine;
}

/* ----- blocks ---------------------------------------------------- */

/* Copies of the last block, where that is not full; zeros behind it. */
struct last_block {
	uint8_t codes[BLOCK];
	int16_t mean[BLOCK];
	uint16_t grid[BLOCK], elements[BLOCK];
};

/* The last n contexts of a stream. */
INLINE void copy_contexts(struct last_block *last, const struct kvi_cells_contexts *contexts,
                          size_t context, size_t n)
{
	memset(last, 0, sizeof *last);
	memcpy(last->mean, contexts->mean + context, n * sizeof *last->mean);
	memcpy(last->grid, contexts->grid + context, n * sizeof *last->grid);
}

/* The context of the first element of the next block. */
INLINE size_t next_context(size_t context, const struct kvi_cells_contexts *contexts, size_t step)
{
	context += step;
	return context < contexts->period ? context : context - contexts->period;
}

/* Unpacks a full block, and adds `more` to each code. */
INLINE void unpack_block(const uint8_t *from, uint8_t more, uint8_t *codes)
{
	for (unsigned i = 0; i < HALF_BLOCK; i += ROUND) {
		const vec both = v_load(from + i), four = SET8(15), add = SET8(more);
		const vec high = _mm512_srli_epi16(both, CODE_BITS);
		v_store(codes + i, _mm512_add_epi8(v_and(both, four), add));
		v_store(codes + HALF_BLOCK + i, _mm512_add_epi8(v_and(high, four), add));
	}
}

INLINE void pack_block(const uint8_t *codes, uint8_t *to)
{
	for (unsigned i = 0; i < HALF_BLOCK; i += ROUND) {
		const vec high = _mm512_slli_epi16(v_load(codes + HALF_BLOCK + i), CODE_BITS);
		v_store(to + i, v_or(v_load(codes + i), high));
	}
}

/* ----- reading ------------------------------------------------ */

/* A stream that is read. */
struct cells_reader {
	struct interval_tables intervals;
	vec rest[2];     /* raw bits inside of cells 0 to 127 */
	vec rest_far[2]; /* f16: of 16 times as large ones */
	vec low, high;   /* halves of states */
	vec most;        /* bits of all numbers of raw bits of elements */
	vec one, last_cell, more, escape, base, sign; /* constants */
	const uint8_t *words, *second;
	size_t escapes; /* that were taken */
};

INLINE struct cells_reader reader_open(const struct kvi_cells_in *in, const unsigned mantissa)
{
	struct cells_reader r = { .intervals = interval_tables_load(),
		                  .most = _mm512_setzero_si512(),
		                  .one = kept(SET16(1)),
		                  .last_cell = kept(SET16(mantissa == 7 ? 128 : 127)),
		                  .more = kept(SET8(MORE)),
		                  .escape = kept(SET8(ESCAPE)),
		                  .base = kept(SET16(0xff80)),
		                  .sign = kept(SET16(0x8000)) };
	uint8_t rest[2 * ROUND] = { 0 }, rest_far[2 * ROUND] = { UINT8_MAX };
	for (unsigned i = 1; i < sizeof rest; i++) {
		const unsigned log2 = 31 - (unsigned)__builtin_clz(i), far = log2 + 4;
		rest[i] = (uint8_t)(mantissa - log2);
		rest_far[i] = (uint8_t)(far < mantissa ? mantissa - far : 0);
	}
	load_table(rest, r.rest);
	load_table(rest_far, r.rest_far);
	halves_of(in->state, &r.low, &r.high);
	return r;
}

/* The second codes as numbers from KVI_CELLS_MORE on, in work memory; behind them enough for a
 * round. */
INLINE const uint8_t *unpack_second(const struct kvi_cells_in *in)
{
	size_t at = 0;
	for (; at + BLOCK <= in->n_second; at += BLOCK)
		unpack_block(in->second + at / 2, MORE, in->work + at);
	unpack_codes(in->second + at / 2, in->n_second - at, MORE, in->work + at);
	memset(in->work + in->n_second, ESCAPE, ROUND);
	return in->work;
}

/* A block that is read. */
struct read_block {
	const uint8_t *codes; /* a full block of a plane */
	const int16_t *mean;
	const uint16_t *grid;
	uint16_t *elements;
};

/* The block of elements from `at` on; context: of the first one. */
INLINE struct read_block read_block_at(const struct kvi_cells_in *in,
                                       const struct kvi_cells_contexts *contexts,
                                       uint16_t *elements, struct last_block *last, size_t at,
                                       size_t context)
{
	const struct read_block full = { in->codes + at / 2, contexts->mean + context,
		                         contexts->grid + context, elements + at };
	if (in->n - at >= BLOCK)
		return full;
	return (struct read_block){ last->codes, last->mean, last->grid, last->elements };
}

/* Copies of the last n elements of a stream. Behind them are codes of escapes, which take no
 * bits. */
CELLS INLINE void read_last_block(const struct kvi_cells_in *in,
                                  const struct kvi_cells_contexts *contexts,
                                  struct last_block *last, size_t n)
{
	uint8_t codes[BLOCK];
	copy_contexts(last, contexts, (in->n - n) % contexts->period, n);
	memset(codes, MORE, sizeof codes);
	unpack_codes(in->codes + (in->n - n) / 2, n, 0, codes);
	pack_block(codes, last->codes);
}

/* Intervals of a round, which are known without the states. */
struct read_round {
	vec cell[2], nb[2]; /* intervals of 2^nb cells from that one on */
	__mmask64 escaped;
};

CELLS INLINE struct read_round round_of(struct cells_reader *r, const struct read_block *block,
                                        size_t at)
{
	struct read_round round;
	const vec grid[2] = { v_load(block->grid + at), v_load(block->grid + at + STEP) };
	const __m128i shift = _mm_cvtsi32_si128((int)(at / HALF_BLOCK * CODE_BITS));
	vec code = _mm512_srl_epi16(v_load(block->codes + at % HALF_BLOCK), shift);
	code = v_and(code, r->more);
	code = expanded(code, _mm512_cmpeq_epi8_mask(code, r->more), &r->second);
	round.escaped = _mm512_cmpeq_epi8_mask(code, r->escape);
	const struct intervals intervals = intervals_of(&r->intervals, code,
	                                                low_bytes(grid[0], grid[1]));
	EACH_HALF
	{
		const __m256i lo = half ? _mm512_extracti64x4_epi64(intervals.lo, 1)
		                        : _mm512_castsi512_si256(intervals.lo);
		round.cell[half] = _mm512_add_epi16(v_load(block->mean + at + half * STEP),
		                                    _mm512_cvtepi8_epi16(lo));
		round.nb[half] = words_of(intervals.nb, half);
	}
	return round;
}

/* Raw bits inside of cells, which are not 0. */
CELLS INLINE vec rest_of_cells(const struct cells_reader *r, vec cell, const unsigned mantissa)
{
	/* bf16: 0 bits for the lower byte of 128, as for upper ones */
	const vec near = _mm512_permutex2var_epi8(r->rest[0], _mm512_min_epu16(cell, r->last_cell),
	                                          r->rest[1]);
	if (mantissa == 7)
		return near;
	const vec far = _mm512_min_epu16(_mm512_srli_epi16(cell, 4), r->last_cell);
	return _mm512_min_epu8(near, _mm512_permutex2var_epi8(r->rest_far[0], far, r->rest_far[1]));
}

/* Takes bits from the states, and words where these are too small then. */
CELLS INLINE void take_bits(struct cells_reader *r, vec n)
{
	const vec low = _mm512_shrdv_epi16(r->low, r->high, n);
	const vec high = _mm512_srlv_epi16(r->high, n);
	const __mmask32 small = _mm512_testn_epi16_mask(high, high);
	vec words = v_load(r->words);
	__asm__("" : "+v"(words)); /* an expansion from memory is slow */
	r->low = _mm512_mask_expand_epi16(low, small, words);
	r->high = _mm512_mask_mov_epi16(high, small, low);
	r->words += 2 * _mm_popcnt_u32(small);
	r->most = v_or(r->most, n);
}

/* Elements of a step as parts of the states. */
struct step_parts {
	vec cell, leading; /* the cell; and the first bits of the element's number that it gives */
	vec bits;          /* of the state; on zeros there follow those inside of the cell */
	vec zeros;         /* in front of these, and the one behind them */
	__mmask32 zero;    /* which elements have these */
	vec n, all;        /* how many bits are inside, and with those in front of them */
};

/* 32 elements; coded: those that are not escaped. cell: the first ones of their intervals of 2^nb
 * cells. */
CELLS INLINE struct step_parts take_step(struct cells_reader *r, vec cell, vec nb, __mmask32 coded,
                                         const unsigned mantissa)
{
	const vec opposite = kept(v_xor(cell, SET8(-1))); /* before the states are known */
	const vec within = lowest(r->low, nb);
	struct step_parts parts = { .cell = _mm512_add_epi16(cell, within),
		                    .bits = _mm512_srlv_epi16(r->low, nb) };
	/* the smaller one of a cell and its complement is not negative */
	const vec magnitude = _mm512_min_epu16(parts.cell, _mm512_sub_epi16(opposite, within));
	parts.zero = _mm512_testn_epi16_mask(magnitude, magnitude);
	parts.leading = _mm512_max_epu16(magnitude, r->one);
	/* 16 for 16 zeros, which are too many */
	parts.zeros = kept(
		_mm512_popcnt_epi16(v_xor(parts.bits, _mm512_add_epi16(parts.bits, SET8(-1)))));
	parts.n = rest_of_cells(r, parts.leading, mantissa);
	const vec in_front = _mm512_mask_add_epi16(nb, parts.zero, nb, parts.zeros);
	const vec taken = _mm512_maskz_add_epi16(coded, in_front, parts.n);
	take_bits(r, taken);
	parts.all = _mm512_sub_epi16(taken, nb);
	return parts;
}

/* The elements of a step, anything for those that are escaped. */
CELLS INLINE vec step_elements(const struct cells_reader *r, const struct step_parts *parts,
                               vec grid, const unsigned mantissa)
{
	const vec inside = _mm512_mask_srlv_epi16(parts->bits, parts->zero, parts->bits,
	                                          parts->zeros);
	const vec full = v_or(_mm512_sllv_epi16(parts->leading, parts->n),
	                      lowest(inside, parts->n));
	const vec base = v_and(grid, r->base);
	const vec below = _mm512_slli_epi16(parts->all, mantissa);
	const vec number = _mm512_add_epi16(_mm512_sub_epi16(base, below), full);
	/* with the sign of the cell: c ? b : a */
	return _mm512_ternarylogic_epi64(number, parts->cell, r->sign, 0xd8);
}

/* The elements of lanes are escapes. */
INLINE void get_escapes(struct cells_reader *r, const struct kvi_cells_in *in, __mmask64 lanes,
                        uint16_t *elements)
{
	for (; RARE(lanes); lanes &= lanes - 1, r->escapes++)
		if (r->escapes < in->n_escapes)
			elements[__builtin_ctzll(lanes)] = kvi_load16(in->escapes + 2 * r->escapes);
}

CELLS INLINE bool get_elements(const struct kvi_cells_in *in,
                               const struct kvi_cells_contexts *contexts, uint16_t *elements,
                               const unsigned mantissa)
{
	const struct kvi_stream stream = { .words = in->words, .n_words = in->n_words };
	const size_t step = BLOCK % contexts->period, rest = in->n % BLOCK;
	struct cells_reader r = reader_open(in, mantissa);
	r.second = unpack_second(in);
	const uint8_t *second_end = r.second + in->n_second + -rest % ROUND;
	struct kvi_feed feed;
	r.words = kvi_feed_open(&feed, &stream);
	struct last_block last;
	if (rest)
		read_last_block(in, contexts, &last, rest);
	size_t context = 0;
	struct read_block block = read_block_at(in, contexts, elements, &last, 0, 0);
	struct read_round next = round_of(&r, &block, 0);
	for (size_t at = 0, n; at < in->n && r.second <= second_end; at += n) {
		const struct read_block now = block;
		n = block_codes(in->n, at);
		context = next_context(context, contexts, step);
		block = read_block_at(in, contexts, elements, &last, at + n, context);
		for (size_t i = 0; i < n; i += ROUND) {
			KVI_FEED_CHECK(&feed, r.words);
			const struct read_round round = next;
			struct step_parts parts[2];
			EACH_HALF parts[half] =
				take_step(&r, round.cell[half], round.nb[half],
			                  (__mmask32) ~(round.escaped >> half * STEP), mantissa);
			if (i + ROUND < n)
				next = round_of(&r, &now, i + ROUND);
			else if (at + n < in->n)
				next = round_of(&r, &block, 0);
			EACH_HALF v_store(now.elements + i + half * STEP,
			                  step_elements(&r, &parts[half],
			                                v_load(now.grid + i + half * STEP),
			                                mantissa));
			get_escapes(&r, in, round.escaped & first_bytes(n - i), now.elements + i);
		}
	}
	if (rest)
		memcpy(elements + in->n - rest, last.elements, rest * sizeof *elements);
	uint32_t state[KVI_LANES];
	halves_join(state, r.low, r.high);
	return kvi_feed_done(&feed, r.words, state) && r.second == second_end &&
	       r.escapes == in->n_escapes &&
	       !_mm512_test_epi16_mask(r.most, SET16(~KVI_CELLS_BITS));
}

CELLS static bool get(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                      unsigned mantissa, uint16_t *elements)
{
	return mantissa == 7 ? get_elements(in, contexts, elements, 7)
	                     : get_elements(in, contexts, elements, 10);
}

/* ----- writing ------------------------------------------------ */

/* A stream that is written, from its end to its begin: nothing is read a second time. */
struct cells_writer {
	struct interval_tables intervals;
	vec near[4];   /* first codes of the distances -32 to 31 by fine class */
	vec low, high; /* halves of states */
	vec one, sixteen, hidden, mantissa, field; /* constants of words */
	vec fifteen, middle, last_near;            /* and bytes; fifteen: MORE and KVI_CELLS_BITS */
	uint8_t *second; /* the first ones of those that are there; so the next two */
	uint16_t *escapes, *words;
};

CELLS INLINE struct cells_writer writer_open(const struct cells_draft *draft, size_t n,
                                             const unsigned mantissa)
{
	struct cells_writer w = { .intervals = interval_tables_load(),
		                  .low = _mm512_setzero_si512(),
		                  .high = SET16(1),
		                  .one = kept(SET16(1)),
		                  .sixteen = kept(SET16(16)),
		                  .hidden = kept(SET16(1 << mantissa)),
		                  .mantissa = kept(SET16((1 << mantissa) - 1)),
		                  .field = kept(SET16(0x7fff >> mantissa << mantissa)),
		                  .fifteen = kept(SET8(MORE)),
		                  .middle = kept(SET8(ROUND / 2)),
		                  .last_near = kept(SET8(ROUND - 1)),
		                  .second = draft->second + n + KVI_CELLS_SLACK,
		                  .escapes = draft->escapes, /* the raw bits' memory is not used */
		                  .words = draft->words };
	const uint16_t *code = kvi_cells_code + 2 * KVI_CELLS_REACH * KVI_CELLS_FINE;
	code += KVI_CELLS_REACH - ROUND / 2;
	for (unsigned i = 0; i < 4; i++, code += 2 * KVI_CELLS_REACH) {
		const vec codes = v_and(low_bytes(v_load(code), v_load(code + STEP)),
		                        SET8(KVI_CELLS_ROW - 1));
		w.near[i] = _mm512_min_epu8(codes, SET8(MORE));
	}
	return w;
}

/* The words of a half, 0 or 1, of a round, whose bytes are packed: in the order that
 * _mm512_packs_epi16 makes. */
INLINE vec packed_half(vec bytes, unsigned half)
{
	const vec zero = _mm512_setzero_si512();
	return half ? _mm512_unpackhi_epi8(bytes, zero) : _mm512_unpacklo_epi8(bytes, zero);
}

/* Packed bytes in the order of elements. */
INLINE vec in_order(vec packed)
{
	return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
}

/* Elements of a step as distances of cells, and raw bits inside of these: their number, of which
 * more than KVI_CELLS_BITS mean an escape, and the bits. */
struct step_cells {
	vec distance, n, bits;
};

INLINE struct step_cells step_cells_of(const struct cells_writer *w, const uint16_t *elements,
                                       const int16_t *mean, vec grid, const unsigned mantissa)
{
	const vec x = v_load(elements);
	/* x & w->mantissa | w->hidden */
	const vec full = _mm512_ternarylogic_epi64(x, w->mantissa, w->hidden, 0xea);
	/* fields of zeros and subnormal numbers are 16 and more below those of all grids */
	const vec below = _mm512_sub_epi16(_mm512_add_epi16(grid, w->hidden), v_and(x, w->field));
	struct step_cells step = { .n = _mm512_srli_epi16(below, mantissa) };
	const vec cell = _mm512_srlv_epi16(full, step.n);
	const __mmask32 zero = _mm512_testn_epi16_mask(cell, cell);
	const vec odd = v_or(_mm512_add_epi16(full, full), w->one);
	const vec zeros = _mm512_sub_epi16(step.n, SET16(mantissa + 1));
	step.bits = lowest(_mm512_mask_sllv_epi16(full, zero, odd, zeros), step.n);
	step.distance = _mm512_sub_epi16(v_xor(cell, _mm512_srai_epi16(x, 15)), v_load(mean));
	return step;
}

/* Codes, looked up one by one, of elements whose distances, from -KVI_CELLS_REACH on, and classes
 * are given. */
CELLS static __attribute__((noinline)) vec looked_up_each(vec code, __mmask64 lanes, vec distance,
                                                          vec class)
{
	uint8_t codes[ROUND], classes[ROUND], distances[ROUND];
	v_store(codes, code);
	v_store(classes, class);
	v_store(distances, distance);
	for (; lanes; lanes &= lanes - 1) {
		const unsigned i = (unsigned)__builtin_ctzll(lanes);
		codes[i] = kvi_cells_code[2 * KVI_CELLS_REACH * kvi_cells_class(classes[i]) +
		                          distances[i]] &
		           (KVI_CELLS_ROW - 1);
	}
	return v_load(codes);
}

/* Codes of at most LOOK_UPS elements of fine classes, looked up at once. */
CELLS INLINE vec looked_up(vec code, __mmask64 lanes, vec distance, vec class)
{
	const uint8_t *table =
		(const uint8_t *)(kvi_cells_code + 2 * KVI_CELLS_REACH * KVI_CELLS_FINE);
	const __m128i of_class = _mm_srli_epi16(
		_mm_and_si128(_mm512_castsi512_si128(_mm512_maskz_compress_epi8(lanes, class)),
	                      _mm_set1_epi8(0x60)),
		5);
	uint16_t index[LOOK_UPS];
	_mm_storeu_si128((__m128i *)(void *)index,
	                 _mm_unpacklo_epi8(_mm512_castsi512_si128(
						   _mm512_maskz_compress_epi8(lanes, distance)),
	                                   of_class));
	__asm__("" : "+m"(index)); /* from memory, not word by word from the register */
	uint64_t codes = 0;
	KVI_UNROLL(8)
	for (unsigned i = 0; i < LOOK_UPS; i++)
		codes |= (uint64_t)table[2 * index[i]] << 8 * i;
	const __m128i all = _mm_cvtsi64_si128((int64_t)(codes & BYTES(KVI_CELLS_ROW - 1)));
	return _mm512_mask_expand_epi8(code, lanes, _mm512_castsi128_si512(all));
}

/*
 * A block that is written, in stages: one round needs nearly all that a processor can hold of
 * instructions that wait for others, a stage of it does not. Bytes of a round are `packed`, but for
 * the codes that are written.
 */
struct write_block {
	vec code[ROUNDS], distance[ROUNDS], class[ROUNDS], n[ROUNDS];
	__mmask64 unknown[ROUNDS];               /* which codes are not known yet */
	vec bits[ROUNDS * 2], taken[ROUNDS * 2]; /* raw bits, and their number */
};

/* Cells, and the codes of those near the means, of a round. */
CELLS INLINE void find_cells(const struct cells_writer *w, const uint16_t *elements,
                             const int16_t *mean, const uint16_t *grid, struct write_block *block,
                             size_t round, const unsigned mantissa)
{
	const vec even = _mm512_set_epi64(
		0x7e7c7a7876747270, 0x3e3c3a3836343230, 0x6e6c6a6866646260, 0x2e2c2a2826242220,
		0x5e5c5a5856545250, 0x1e1c1a1816141210, 0x4e4c4a4846444240, 0x0e0c0a0806040200);
	const vec of_grid[2] = { v_load(grid), v_load(grid + STEP) };
	const vec class = _mm512_permutex2var_epi8(of_grid[0], even, of_grid[1]);
	struct step_cells step[2];
	EACH_HALF step[half] = step_cells_of(w, elements + half * STEP, mean + half * STEP,
	                                     of_grid[half], mantissa);
	EACH_HALF block->bits[2 * round + half] = step[half].bits;
	/* the smallest and the largest distance have no code */
	const vec distance = _mm512_packs_epi16(step[0].distance, step[1].distance);
	const vec near = _mm512_add_epi8(distance, w->middle);
	/* 64 class + near */
	const vec entry = _mm512_ternarylogic_epi64(_mm512_add_epi8(class, class), SET8(0xc0), near,
	                                            0xe2); /* b ? a : c */
	vec code = _mm512_mask_mov_epi8(_mm512_permutex2var_epi8(w->near[0], entry, w->near[1]),
	                                _mm512_movepi8_mask(entry),
	                                _mm512_permutex2var_epi8(w->near[2], entry, w->near[3]));
	const __mmask64 far = _mm512_cmpgt_epu8_mask(near, w->last_near) |
	                      _mm512_test_epi8_mask(class, w->intervals.coarse);
	block->unknown[round] = far | _mm512_cmpeq_epi8_mask(code, w->fifteen);
	block->code[round] = code;
	block->distance[round] = distance;
	block->class[round] = class;
	block->n[round] = _mm512_packus_epi16(step[0].n, step[1].n);
}

/* The codes of a round that are not known. */
CELLS INLINE void find_codes(const struct cells_writer *w, struct write_block *block, size_t round)
{
	const vec code = block->code[round], class = block->class[round];
	const vec distance = _mm512_add_epi8(block->distance[round], SET8(KVI_CELLS_REACH));
	const __mmask64 unknown = block->unknown[round];
	const __mmask64 coarse = _mm512_test_epi8_mask(class, w->intervals.coarse);
	if (RARE(coarse || _mm_popcnt_u64(unknown) > LOOK_UPS))
		block->code[round] = looked_up_each(code, unknown, distance, class);
	else
		block->code[round] = looked_up(code, unknown, distance, class);
}

/* Writes the codes of a round: the first ones to `codes`. */
CELLS INLINE void put_round(struct cells_writer *w, const uint16_t *elements,
                            struct write_block *block, size_t round, uint8_t *codes)
{
	vec code = block->code[round];
	const vec class = block->class[round], distance = block->distance[round];
	const struct intervals intervals = intervals_of(&w->intervals, code, class);
	const vec n = _mm512_adds_epu8(intervals.nb, block->n[round]);
	const vec within = _mm512_sub_epi8(distance, intervals.lo);
	code = in_order(
		_mm512_mask_mov_epi8(code, _mm512_cmpgt_epu8_mask(n, w->fifteen), SET8(ESCAPE)));
	const __mmask64 more = _mm512_cmpge_epu8_mask(code, w->fifteen);
	__mmask64 escaped = _mm512_cmpeq_epi8_mask(code, SET8(ESCAPE));
	const unsigned n_more = (unsigned)_mm_popcnt_u64(more);
	w->second -= n_more;
	_mm512_mask_storeu_epi8(
		w->second, first_bytes(n_more),
		_mm512_maskz_compress_epi8(more, _mm512_sub_epi8(code, w->fifteen)));
	v_store(codes, _mm512_min_epu8(code, w->fifteen));
	EACH_HALF
	{
		const __mmask32 coded = (__mmask32) ~(escaped >> half * STEP);
		const size_t step = 2 * round + half;
		const vec bits =
			v_or(_mm512_sllv_epi16(block->bits[step], packed_half(intervals.nb, half)),
		             packed_half(within, half));
		block->bits[step] = _mm512_maskz_mov_epi16(coded, bits);
		block->taken[step] = _mm512_maskz_mov_epi16(coded, packed_half(n, half));
	}
	for (; RARE(escaped); escaped ^= (uint64_t)1 << 63 >> __builtin_clzll(escaped))
		*--w->escapes = elements[63 - __builtin_clzll(escaped)];
}

/* Puts bits of 32 elements into the states, and words from these where there is no space. */
CELLS INLINE void put_bits(struct cells_writer *w, vec bits, vec n)
{
	const vec over = _mm512_srlv_epi16(w->high, _mm512_sub_epi16(w->sixteen, n));
	const __mmask32 full = _mm512_test_epi16_mask(over, over);
	const unsigned put = (unsigned)_mm_popcnt_u32(full);
	w->words -= put;
	_mm512_mask_storeu_epi16(w->words, (__mmask32)first_bytes(put),
	                         _mm512_maskz_compress_epi16(full, w->low));
	const vec low = _mm512_mask_mov_epi16(w->low, full, w->high);
	const vec high = _mm512_maskz_mov_epi16(~full, w->high);
	w->high = _mm512_shldv_epi16(high, low, n);
	w->low = v_or(_mm512_sllv_epi16(low, n), bits);
}

/* A block of n elements, a multiple of ROUND; first codes to `codes`. */
CELLS INLINE void put_block(struct cells_writer *w, const uint16_t *elements, const int16_t *mean,
                            const uint16_t *grid, size_t n, uint8_t codes[BLOCK],
                            const unsigned mantissa)
{
	struct write_block block;
	for (size_t i = 0; i < n; i += ROUND)
		find_cells(w, elements + i, mean + i, grid + i, &block, i / ROUND, mantissa);
	for (size_t i = 0; i < n / ROUND; i++)
		find_codes(w, &block, i);
	for (size_t i = n; i > 0;) {
		i -= ROUND;
		put_round(w, elements + i, &block, i / ROUND, codes + i);
	}
	for (size_t i = n / STEP; i-- > 0;)
		put_bits(w, block.bits[i], block.taken[i]);
}

/* Copies of the last n elements of a stream. Behind them are ones that are escaped: 0 in a grid
 * that begins far above. */
INLINE void write_last_block(const uint16_t *elements, const struct kvi_cells_contexts *contexts,
                             struct last_block *last, size_t context, size_t n)
{
	copy_contexts(last, contexts, context, n);
	memcpy(last->elements, elements, n * sizeof *elements);
	for (size_t i = n; i < BLOCK; i++)
		last->grid[i] = 0x7f80;
}

CELLS INLINE uint8_t *put_elements(const uint16_t *elements, size_t n,
                                   const struct kvi_cells_contexts *contexts,
                                   struct kvi_cells_out *out, const unsigned mantissa)
{
	struct cells_draft draft = cells_draft_of(out->work, n);
	struct cells_writer w = writer_open(&draft, n, mantissa);
	const size_t rest = n % BLOCK, step = BLOCK % contexts->period;
	size_t context = (n - rest) % contexts->period;
	uint8_t codes[BLOCK];
	if (rest) {
		struct last_block last;
		write_last_block(elements + n - rest, contexts, &last, context, rest);
		put_block(&w, last.elements, last.mean, last.grid, rest + -rest % ROUND, codes,
		          mantissa);
		put_codes(codes, rest, CODE_BITS, 0, out->to + (n - rest) / 2);
	}
	const uint8_t *second_end = draft.second + n + KVI_CELLS_SLACK - -rest % ROUND;
	const uint16_t *escapes_end = draft.escapes - -rest % ROUND;
	for (size_t at = n - rest; at > 0;) {
		at -= BLOCK;
		context = (context < step ? context + contexts->period : context) - step;
		put_block(&w, elements + at, contexts->mean + context, contexts->grid + context,
		          BLOCK, codes, mantissa);
		pack_block(codes, out->to + at / 2);
	}
	out->n_second = (uint32_t)(second_end - w.second);
	out->n_escapes = (uint32_t)(escapes_end - w.escapes);
	out->n_words = (uint32_t)(draft.words - w.words);
	halves_join(out->state, w.low, w.high);
	draft.second = w.second;
	draft.escapes = w.escapes;
	return put_parts(&draft, n, out);
}

CELLS static uint8_t *put(const uint16_t *elements, size_t n,
                          const struct kvi_cells_contexts *contexts, unsigned mantissa,
                          struct kvi_cells_out *out)
{
	return mantissa == 7 ? put_elements(elements, n, contexts, out, 7)
	                     : put_elements(elements, n, contexts, out, 10);
}

const struct kvi_cell_kernels kvi_vbmi_cells = {
	.get = get,
	.put = put,
	.rotated = kvi_avx512_cells_rotate,
};

#endif
