/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cells_vbmi.c - the kernels of codec cells (spec cells) in AVX-512 with VBMI2 and BITALG
 *
 * A round is 64 elements, whose codes are bytes of a vector, in two steps of 32 lanes. The last
 * block, which is not full, is coded in copies.
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

enum { ROUND = 64, STEP = KVI_LANES, FINE_CODES = KVI_CELLS_FINE * KVI_CELLS_ROW };

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
	vec lo[2], nb[2];
};
/* Intervals of 64 elements. */
struct intervals {
	vec lo, nb;
};

INLINE struct interval_tables interval_tables_load(void)
{
	struct interval_tables tables;
	load_table(kvi_cells_lo + FINE_CODES, tables.lo);
	load_table(kvi_cells_nb + FINE_CODES, tables.nb);
	return tables;
}

CELLS static __attribute__((noinline)) struct intervals coarse_intervals(vec code, vec class)
{
	uint8_t codes[ROUND], classes[ROUND], nb[ROUND];
	int8_t lo[ROUND];
	v_store(codes, code);
	v_store(classes, class);
	for (unsigned i = 0; i < ROUND; i++) {
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
	if (RARE(_mm512_test_epi8_mask(class, SET8(KVI_CELLS_COARSE))))
		return coarse_intervals(code, class);
	const vec at = _mm512_ternarylogic_epi64(class, SET8(0x60), code, 0xea); /* a & b | c */
	return (struct intervals){ _mm512_permutex2var_epi8(tables->lo[0], at, tables->lo[1]),
		                   _mm512_permutex2var_epi8(tables->nb[0], at, tables->nb[1]) };
}

/* ----- blocks ---------------------------------------------------- */

/* Contexts and elements of a block: parts of the caller's arrays, or copies. */
struct cells_block {
	size_t n;
	const int16_t *mean;
	const uint16_t *grid;
	uint8_t codes[BLOCK];
	struct {
		int16_t mean[BLOCK];
		uint16_t grid[BLOCK], elements[BLOCK];
	} copy; /* of the last block, zeros behind it */
};

/* The block of elements from `at` on; context: of the first one. True: the last one, not full. */
INLINE bool block_begin(struct cells_block *block, const struct kvi_cells_contexts *contexts,
                        size_t context, size_t n, size_t at)
{
	block->n = block_codes(n, at);
	block->mean = contexts->mean + context;
	block->grid = contexts->grid + context;
	if (block->n == BLOCK)
		return false;
	memset(&block->copy, 0, sizeof block->copy);
	memcpy(block->copy.mean, block->mean, block->n * sizeof *block->mean);
	memcpy(block->copy.grid, block->grid, block->n * sizeof *block->grid);
	block->mean = block->copy.mean;
	block->grid = block->copy.grid;
	return true;
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
	vec rest[2];   /* raw bits inside of cells 0 to 127 */
	vec low, high; /* halves of states */
	vec most;      /* bits of all numbers of raw bits of elements */
	const uint8_t *words, *second;
	size_t escapes; /* that were taken */
};

INLINE struct cells_reader reader_open(const struct kvi_cells_in *in, const unsigned mantissa)
{
	struct cells_reader r = { .intervals = interval_tables_load(),
		                  .most = _mm512_setzero_si512() };
	uint8_t rest[2 * ROUND] = { 0 };
	for (unsigned i = 1; i < sizeof rest; i++)
		rest[i] = (uint8_t)(mantissa - (31 - (unsigned)__builtin_clz(i)));
	load_table(rest, r.rest);
	halves_of(in->state, &r.low, &r.high);
	return r;
}

/* The second codes as numbers from KVI_CELLS_MORE on, in work memory. */
INLINE const uint8_t *unpack_second(const struct kvi_cells_in *in)
{
	size_t at = 0;
	for (; at + BLOCK <= in->n_second; at += BLOCK)
		unpack_block(in->second + at / 2, MORE, in->work + at);
	unpack_codes(in->second + at / 2, in->n_second - at, MORE, in->work + at);
	return in->work;
}

/* Raw bits inside of cells, which are not 0. */
CELLS INLINE vec rest_of_cells(const struct cells_reader *r, vec cell, const unsigned mantissa)
{
	if (mantissa == 7) { /* 0 bits for the lower byte of 128, as for upper ones */
		const vec at = _mm512_min_epu16(cell, SET16(128));
		return _mm512_permutex2var_epi8(r->rest[0], at, r->rest[1]);
	}
	const __mmask32 large = _mm512_cmpgt_epu16_mask(cell, SET16(127));
	const vec at = _mm512_min_epu16(_mm512_mask_srli_epi16(cell, large, cell, 4), SET16(127));
	const vec n = _mm512_permutex2var_epi8(r->rest[0], at, r->rest[1]);
	return _mm512_mask_subs_epu16(n, large, n, SET16(4));
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

/* 32 elements; coded: those that are not escaped. cell: the first ones of their intervals of 2^nb
 * cells. */
CELLS INLINE vec get_step(struct cells_reader *r, vec cell, vec nb, vec grid, __mmask32 coded,
                          const unsigned mantissa)
{
	__asm__("" : "+v"(cell)); /* what waits for the state comes last */
	cell = _mm512_add_epi16(cell, lowest(r->low, nb));
	const vec bits = _mm512_srlv_epi16(r->low, nb);
	const vec magnitude = v_xor(cell, _mm512_srai_epi16(cell, 15));
	const __mmask32 zero = _mm512_testn_epi16_mask(magnitude, magnitude);
	/* zeros and the one behind them; 16 for 16 zeros, which are too many */
	const vec zeros = _mm512_maskz_popcnt_epi16(zero,
	                                            v_xor(bits, _mm512_add_epi16(bits, SET8(-1))));
	const vec leading = _mm512_max_epu16(magnitude, SET16(1));
	const vec n = rest_of_cells(r, leading, mantissa);
	const vec full = v_or(_mm512_sllv_epi16(leading, n),
	                      lowest(_mm512_srlv_epi16(bits, zeros), n));
	const vec base = v_and(grid, SET16(0xff80));
	const vec below = _mm512_slli_epi16(_mm512_add_epi16(n, zeros), mantissa);
	const vec number = _mm512_add_epi16(_mm512_sub_epi16(base, below), full);
	take_bits(r, _mm512_maskz_add_epi16(coded, _mm512_add_epi16(nb, zeros), n));
	/* with the sign of the cell: c ? b : a */
	return _mm512_ternarylogic_epi64(number, cell, SET16(0x8000), 0xd8);
}

/* 64 elements, `lanes` of which there are. */
CELLS INLINE void get_round(struct cells_reader *r, const struct kvi_cells_in *in,
                            const struct cells_block *block, size_t at, uint16_t *elements,
                            __mmask64 lanes, const unsigned mantissa)
{
	const vec grid[2] = { v_load(block->grid + at), v_load(block->grid + at + STEP) };
	vec code = v_load(block->codes + at);
	code = expanded(code, _mm512_cmpeq_epi8_mask(code, SET8(MORE)), &r->second);
	__mmask64 escaped = _mm512_cmpeq_epi8_mask(code, SET8(ESCAPE));
	const struct intervals intervals = intervals_of(&r->intervals, code,
	                                                low_bytes(grid[0], grid[1]));
	EACH_HALF
	{
		const __m256i lo = half ? _mm512_extracti64x4_epi64(intervals.lo, 1)
		                        : _mm512_castsi512_si256(intervals.lo);
		const vec cell = _mm512_add_epi16(v_load(block->mean + at + half * STEP),
		                                  _mm512_cvtepi8_epi16(lo));
		v_store(elements + half * STEP,
		        get_step(r, cell, words_of(intervals.nb, half), grid[half],
		                 (__mmask32) ~(escaped >> half * STEP), mantissa));
	}
	for (escaped &= lanes; RARE(escaped); escaped &= escaped - 1, r->escapes++)
		if (r->escapes < in->n_escapes)
			elements[__builtin_ctzll(escaped)] =
				kvi_load16(in->escapes + 2 * r->escapes);
}

CELLS INLINE bool get_elements(const struct kvi_cells_in *in,
                               const struct kvi_cells_contexts *contexts, uint16_t *elements,
                               const unsigned mantissa)
{
	const struct kvi_stream stream = { .words = in->words, .n_words = in->n_words };
	const size_t step = BLOCK % contexts->period;
	struct cells_reader r = reader_open(in, mantissa);
	r.second = unpack_second(in);
	const uint8_t *second_end = r.second + in->n_second;
	struct kvi_feed feed;
	r.words = kvi_feed_open(&feed, &stream);
	struct cells_block block;
	for (size_t at = 0, context = 0; at < in->n && r.second <= second_end; at += BLOCK) {
		const bool last = block_begin(&block, contexts, context, in->n, at);
		uint16_t *to = last ? block.copy.elements : elements + at;
		if (last) {
			memset(block.codes, ESCAPE, BLOCK); /* no bits behind the end */
			unpack_codes(in->codes + at / 2, block.n, 0, block.codes);
		} else {
			unpack_block(in->codes + at / 2, 0, block.codes);
		}
		for (size_t i = 0; i < block.n; i += ROUND) {
			KVI_FEED_CHECK(&feed, r.words);
			get_round(&r, in, &block, i, to + i, first_bytes(block.n - i), mantissa);
		}
		if (last)
			memcpy(elements + at, to, block.n * sizeof *to);
		context = next_context(context, contexts, step);
	}
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

/* A stream that is written. */
struct cells_writer {
	struct interval_tables intervals;
	vec near[4]; /* first codes of the distances -32 to 31 by fine class */
	uint16_t *raw, *escapes;
	uint8_t *bits, *second; /* second codes as numbers from KVI_CELLS_MORE on */
};

CELLS INLINE struct cells_writer writer_open(const struct cells_draft *draft)
{
	struct cells_writer w = { .intervals = interval_tables_load(),
		                  .raw = draft->raw,
		                  .escapes = draft->escapes,
		                  .bits = draft->bits,
		                  .second = draft->second };
	const uint16_t *code = kvi_cells_code + 2 * KVI_CELLS_REACH * KVI_CELLS_FINE;
	code += KVI_CELLS_REACH - ROUND / 2;
	for (unsigned i = 0; i < 4; i++, code += 2 * KVI_CELLS_REACH) {
		const vec codes = v_and(low_bytes(v_load(code), v_load(code + STEP)),
		                        SET8(KVI_CELLS_ROW - 1));
		w.near[i] = _mm512_min_epu8(codes, SET8(MORE));
	}
	return w;
}

/* Elements of a step as distances of cells, and raw bits inside of these: their number and the bits
 * without those of the interval. */
struct step_cells {
	vec distance, n, bits;
	__mmask32 escaped;
};

INLINE struct step_cells step_cells_of(const uint16_t *elements, const int16_t *mean, vec grid,
                                       const unsigned mantissa)
{
	const vec one = SET16(1), x = v_load(elements), hidden = SET16(1 << mantissa);
	const vec low = v_and(x, SET16((1 << mantissa) - 1)), full = v_or(low, hidden);
	const vec field = v_and(_mm512_srli_epi16(x, mantissa), SET16(0x7fff >> mantissa));
	const vec n = _mm512_sub_epi16(_mm512_add_epi16(_mm512_srli_epi16(grid, mantissa), one),
	                               field);
	const vec cell = _mm512_srlv_epi16(full, n);
	const __mmask32 zero = _mm512_testn_epi16_mask(cell, cell);
	const vec zeros = _mm512_sub_epi16(n, SET16(mantissa + 1));
	struct step_cells step = { .n = n };
	step.bits = _mm512_mask_sllv_epi16(
		lowest(full, n), zero, _mm512_add_epi16(_mm512_add_epi16(low, low), one), zeros);
	step.distance = _mm512_sub_epi16(v_xor(cell, _mm512_srai_epi16(x, 15)), v_load(mean));
	step.escaped =
		_mm512_testn_epi16_mask(field, field) |
		_mm512_cmpgt_epu16_mask(n, SET16(KVI_CELLS_BITS)) |
		_mm512_cmpgt_epu16_mask(_mm512_add_epi16(step.distance, SET16(KVI_CELLS_REACH)),
	                                SET16(2 * KVI_CELLS_REACH - 1));
	return step;
}

/* Where codes stand in kvi_cells_code; 0 for escaped elements. */
INLINE vec code_index(const struct step_cells *step, vec grid, bool coarse)
{
	vec class = _mm512_add_epi16(_mm512_slli_epi16(v_and(grid, SET16(0x60)), 3),
	                             SET16(2 * KVI_CELLS_REACH * KVI_CELLS_FINE));
	if (coarse)
		class = _mm512_mask_slli_epi16(
			class, _mm512_test_epi16_mask(grid, SET16(KVI_CELLS_COARSE)),
			v_and(grid, SET16(15)), 8);
	return _mm512_maskz_add_epi16(~step->escaped, class,
	                              _mm512_add_epi16(step->distance, SET16(KVI_CELLS_REACH)));
}

/* Codes, by one look-up for each, of the elements in the lanes of a mask; code elsewhere. */
CELLS INLINE vec looked_up(vec code, __mmask64 lanes, const struct step_cells step[2],
                           const vec grid[2], bool coarse)
{
	enum { USUAL = 8 }; /* no more in nearly all rounds, without a branch */
	uint16_t index[ROUND + STEP];
	uint8_t codes[ROUND];
	const unsigned n = (unsigned)_mm_popcnt_u64(lanes);
	v_store(index, _mm512_maskz_compress_epi16((__mmask32)lanes,
	                                           code_index(&step[0], grid[0], coarse)));
	v_store(index + _mm_popcnt_u32((uint32_t)lanes),
	        _mm512_maskz_compress_epi16((__mmask32)(lanes >> STEP),
	                                    code_index(&step[1], grid[1], coarse)));
	KVI_UNROLL(8)
	for (unsigned i = 0; i < USUAL; i++)
		codes[i] = kvi_cells_code[index[i]] & (KVI_CELLS_ROW - 1);
	for (unsigned i = USUAL; RARE(i < n); i++)
		codes[i] = kvi_cells_code[index[i]] & (KVI_CELLS_ROW - 1);
	const uint8_t *next = codes;
	return expanded(code, lanes, &next);
}

/* 64 elements to codes, and to raw bits at `at`. */
CELLS INLINE void put_round(struct cells_writer *w, const uint16_t *elements,
                            const struct cells_block *block, size_t i, uint8_t *codes, size_t at,
                            const unsigned mantissa)
{
	const vec grid[2] = { v_load(block->grid + i), v_load(block->grid + i + STEP) };
	const vec class = low_bytes(grid[0], grid[1]), fifteen = SET8(MORE);
	const __mmask64 coarse = _mm512_test_epi8_mask(class, SET8(KVI_CELLS_COARSE));
	struct step_cells step[2];
	EACH_HALF step[half] = step_cells_of(elements + half * STEP, block->mean + i + half * STEP,
	                                     grid[half], mantissa);
	const vec distance = low_bytes(step[0].distance, step[1].distance);
	const vec n = low_bytes(step[0].n, step[1].n), near = _mm512_add_epi8(distance, SET8(32));
	/* 64 class + near */
	const vec entry = _mm512_ternarylogic_epi64(_mm512_add_epi8(class, class), SET8(0xc0), near,
	                                            0xe2); /* b ? a : c */
	const __mmask64 far = _mm512_cmpgt_epu8_mask(near, SET8(63)) | coarse;
	vec code = _mm512_mask_mov_epi8(_mm512_permutex2var_epi8(w->near[0], entry, w->near[1]),
	                                _mm512_movepi8_mask(entry),
	                                _mm512_permutex2var_epi8(w->near[2], entry, w->near[3]));
	code = _mm512_mask_mov_epi8(code, far, fifteen);
	__mmask64 more = _mm512_cmpeq_epi8_mask(code, fifteen);
	code = looked_up(code, more, step, grid, RARE(coarse));
	struct intervals intervals = intervals_of(&w->intervals, code, class);
	__mmask64 escaped = step[0].escaped | (__mmask64)step[1].escaped << STEP |
	                    _mm512_cmpeq_epi8_mask(code, SET8(ESCAPE)) |
	                    _mm512_cmpgt_epu8_mask(_mm512_add_epi8(intervals.nb, n),
	                                           SET8(KVI_CELLS_BITS));
	if (RARE(escaped | coarse)) {
		code = _mm512_mask_mov_epi8(code, escaped, SET8(ESCAPE));
		more = _mm512_cmpge_epu8_mask(code, fifteen);
	}
	v_store(w->second, _mm512_maskz_compress_epi8(more, code));
	w->second += _mm_popcnt_u64(more);
	v_store(codes, _mm512_min_epu8(code, fifteen));
	v_store(w->bits + at, _mm512_maskz_add_epi8(~escaped, intervals.nb, n));
	const vec within = _mm512_sub_epi8(distance, intervals.lo);
	EACH_HALF
	{
		const vec high = _mm512_sllv_epi16(step[half].bits, words_of(intervals.nb, half));
		v_store(w->raw + at + half * STEP,
		        _mm512_maskz_mov_epi16((__mmask32) ~(escaped >> half * STEP),
		                               v_or(high, words_of(within, half))));
	}
	for (; RARE(escaped); escaped &= escaped - 1)
		*w->escapes++ = elements[__builtin_ctzll(escaped)];
}

/* The words of n elements. Returns the first one; sets states. */
CELLS INLINE uint16_t *put_words(const struct cells_draft *draft, size_t n,
                                 uint32_t state[KVI_LANES])
{
	uint16_t *words = draft->words;
	vec low = _mm512_setzero_si512(), high = SET16(1);
	for (size_t at = (n + STEP - 1) / STEP * STEP; at > 0;) {
		at -= STEP;
		const vec bits = _mm512_cvtepu8_epi16(
			_mm256_loadu_si256((const __m256i *)(draft->bits + at)));
		const vec over = _mm512_srlv_epi16(high, _mm512_sub_epi16(SET16(16), bits));
		const __mmask32 full = _mm512_test_epi16_mask(over, over);
		const unsigned put = (unsigned)_mm_popcnt_u32(full);
		words -= put;
		_mm512_mask_storeu_epi16(words, (__mmask32)first_bytes(put),
		                         _mm512_maskz_compress_epi16(full, low));
		low = _mm512_mask_mov_epi16(low, full, high);
		high = _mm512_maskz_mov_epi16(~full, high);
		high = _mm512_shldv_epi16(high, low, bits);
		low = v_or(_mm512_sllv_epi16(low, bits), v_load(draft->raw + at));
	}
	halves_join(state, low, high);
	return words;
}

CELLS INLINE void draft_elements(const uint16_t *elements, size_t n,
                                 const struct kvi_cells_contexts *contexts,
                                 const struct cells_draft *draft, struct kvi_cells_out *out,
                                 const unsigned mantissa)
{
	const size_t step = BLOCK % contexts->period;
	struct cells_writer w = writer_open(draft);
	struct cells_block block;
	for (size_t at = 0, context = 0; at < n; at += BLOCK) {
		const bool last = block_begin(&block, contexts, context, n, at);
		const uint16_t *from = elements + at;
		if (last)
			from = memcpy(block.copy.elements, from, block.n * sizeof *from);
		for (size_t i = 0; i < block.n; i += ROUND)
			put_round(&w, from + i, &block, i, block.codes + i, at + i, mantissa);
		if (last)
			put_codes(block.codes, block.n, CODE_BITS, 0, out->to + at / 2);
		else
			pack_block(block.codes, out->to + at / 2);
		context = next_context(context, contexts, step);
	}
	/* zeros behind the end are escapes, too */
	const size_t behind = -n % ROUND;
	out->n_second = (uint32_t)((size_t)(w.second - draft->second) - behind);
	out->n_escapes = (uint32_t)((size_t)(w.escapes - draft->escapes) - behind);
	for (size_t i = 0; i < out->n_second; i += ROUND)
		v_store(draft->second + i, _mm512_sub_epi8(v_load(draft->second + i), SET8(MORE)));
}

CELLS static uint8_t *put(const uint16_t *elements, size_t n,
                          const struct kvi_cells_contexts *contexts, unsigned mantissa,
                          struct kvi_cells_out *out)
{
	const struct cells_draft draft = cells_draft_of(out->work, n);
	if (mantissa == 7)
		draft_elements(elements, n, contexts, &draft, out, 7);
	else
		draft_elements(elements, n, contexts, &draft, out, 10);
	out->n_words = (uint32_t)(draft.words - put_words(&draft, n, out->state));
	return put_parts(&draft, n, out);
}

const struct kvi_cell_kernels kvi_vbmi_cells = {
	.get = get,
	.put = put,
	.rotated = kvi_avx512_cells_rotate,
};

#endif
