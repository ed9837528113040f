/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_neon.c - the kernels of codec cells (spec cells) in NEON */
#include "config.h"

#include "cells_parts.h"
#include "feed.h"
#include "lanes_neon.h"
#include "word_shuffles.h"

#define INLINE static inline __attribute__((always_inline))
#define SET16(x) vdupq_n_u16((uint16_t)(x))
#define BYTES_OF vreinterpretq_u8_u16
#define WORDS_OF_BYTES vreinterpretq_u16_u8
#define RARE(condition) __builtin_expect(condition, 0)

typedef uint16x8_t vec16;

enum { STEP = KVI_LANES, LANES = 8 }; /* of 16 bits in a vector */

/* Shifts of lanes. Those by 16 or more give 0. */
INLINE vec16 shifted_left(vec16 v, vec16 n)
{
	return vshlq_u16(v, vreinterpretq_s16_u16(n));
}

INLINE vec16 shifted_right(vec16 v, vec16 n)
{
	return vshlq_u16(v, vnegq_s16(vreinterpretq_s16_u16(n)));
}

/* The lowest n bits of lanes. */
INLINE vec16 lowest(vec16 v, vec16 n)
{
	return vbicq_u16(v, shifted_left(SET16(-1), n));
}

/* All ones in lanes below 0. */
INLINE vec16 signs_of(vec16 v)
{
	return vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(v), 15));
}

/* ----- states ------------------------------------------------ */

/* The halves of 32 states, lane i in word i. */
struct state_halves {
	vec16 low[4], high[4];
};

INLINE struct state_halves states_load(const uint32_t state[KVI_LANES])
{
	struct state_halves st;
	EACH {
		const vec16 a = vreinterpretq_u16_u32(vld1q_u32(state + LANES * g));
		const vec16 b = vreinterpretq_u16_u32(vld1q_u32(state + LANES * g + 4));
		st.low[g] = vuzp1q_u16(a, b);
		st.high[g] = vuzp2q_u16(a, b);
	}
	return st;
}

INLINE void states_store(const struct state_halves *st, uint32_t state[KVI_LANES])
{
	EACH {
		const vec16 a = vzip1q_u16(st->low[g], st->high[g]);
		const vec16 b = vzip2q_u16(st->low[g], st->high[g]);
		vst1q_u32(state + LANES * g, vreinterpretq_u32_u16(a));
		vst1q_u32(state + LANES * g + 4, vreinterpretq_u32_u16(b));
	}
}

/* Lanes of masks of words, a bit each. In byte i of *ends: the bytes of words in the lanes that
 * vectors 0 to i have. */
INLINE uint32_t word_lanes(const vec16 mask[4], uint32_t *ends)
{
	const vec a = vuzp1q_u8(BYTES_OF(mask[0]), BYTES_OF(mask[1])) & LANE_BITS;
	const vec b = vuzp1q_u8(BYTES_OF(mask[2]), BYTES_OF(mask[3])) & LANE_BITS;
	const vec both = vpaddq_u8(a, b);
	const uint8x8_t fours = vpadd_u8(vget_low_u8(both), vget_high_u8(both));
	const uint8x8_t lanes = vpadd_u8(fours, fours);
	*ends = vget_lane_u32(vreinterpret_u32_u8(vcnt_u8(lanes)), 0) * 0x02020202;
	return vget_lane_u32(vreinterpret_u32_u8(lanes), 0);
}

/* The byte of a number that vector g has. */
INLINE unsigned byte_of(uint32_t number, int g)
{
	return number >> 8 * g & 0xff;
}

/* Words where the numbers of a table for shuffles put them. */
INLINE vec16 shuffled(vec bytes, const uint64_t numbers[2])
{
	return WORDS_OF_BYTES(vqtbl1q_u8(bytes, vreinterpretq_u8_u64(vld1q_u64(numbers))));
}

/* A word more in the states that are below 2^16. Returns the end of the words that were taken. */
INLINE const uint8_t *renormalise(struct state_halves *st, const uint8_t *words)
{
	vec16 small[4];
	uint32_t ends;
	EACH
		small[g] = vceqzq_u16(st->high[g]);
	const uint32_t lanes = word_lanes(small, &ends), begins = ends << 8;
	EACH {
		const vec16 more = shuffled(vld1q_u8(words + byte_of(begins, g)),
		                            word_expansions[byte_of(lanes, g)]);
		st->high[g] = vbslq_u16(small[g], st->low[g], st->high[g]);
		st->low[g] = vbslq_u16(small[g], more, st->low[g]);
	}
	return words + byte_of(ends, 3);
}

/* ----- reading ------------------------------------------------ */

/* Elements of a block before their raw bits: codes with second ones added; for whole steps the cell
 * with which the code's interval begins and log2 of its size; which are escaped. */
struct block_known {
	uint8_t codes[BLOCK];
	uint16_t begin[BLOCK], nb[BLOCK];
	uint8_t escaped[BLOCK];
	unsigned n_escaped;
};

/* Codes of a block of n; those behind are escapes. Returns the end of the second codes that were
 * taken. */
INLINE const uint8_t *get_codes(const uint8_t *block, size_t n, const uint8_t *second,
                                uint8_t codes[BLOCK])
{
	if (n < BLOCK) {
		unpack_codes(block, n, 0, codes);
		memset(codes + n, 0, BLOCK - n);
	}
	for (unsigned i = 0; n == BLOCK && i < HALF_BLOCK; i += WIDTH) {
		const vec both = vld1q_u8(block + i);
		vst1q_u8(codes + i, both & SET8(15));
		vst1q_u8(codes + HALF_BLOCK + i, vshrq_n_u8(both, CODE_BITS));
	}
	for (unsigned i = 0; i < BLOCK; i += ROUND) {
		vec code[4], more[4];
		unsigned all;
		EACH {
			code[g] = vld1q_u8(codes + i + WIDTH * g);
			more[g] = vceqq_u8(code[g], SET8(MORE));
		}
		const uint64_t lanes = lanes_of(more), before = lanes_before(lanes, &all);
		EACH
			vst1q_u8(codes + i + WIDTH * g,
			         vbslq_u8(more[g], expanded(lanes, before, second, g), code[g]));
		second += all;
	}
	memset(codes + n, ESCAPE, BLOCK - n);
	return second;
}

/* A table of bytes for the codes of fine classes. */
struct fine_table {
	uint8x16x4_t low, high;
};

INLINE struct fine_table fine_table_load(const void *table)
{
	const uint8_t *row = (const uint8_t *)table + KVI_CELLS_FINE * KVI_CELLS_ROW;
	return (struct fine_table){ vld1q_u8_x4(row), vld1q_u8_x4(row + 64) };
}

INLINE vec looked_up(const struct fine_table *table, vec at)
{
	return vqtbx4q_u8(vqtbl4q_u8(table->low, at), table->high, at - SET8(64));
}

/* Corrects what add_contexts makes of elements of lower classes and of escaped ones. The latter get
 * a cell of which any format knows all bits, so that no state changes. */
static void add_rare(const int16_t *mean, const uint16_t *grid, struct block_known *to, size_t i)
{
	for (size_t end = i + WIDTH; i < end; i++, mean++, grid++) {
		const size_t at = (size_t)kvi_cells_class(*grid) * KVI_CELLS_ROW + to->codes[i];
		to->begin[i] = (uint16_t)(*mean + kvi_cells_lo[at]);
		to->nb[i] = kvi_cells_nb[at];
		if (to->codes[i] == ESCAPE) {
			to->begin[i] = 0x4000;
			to->escaped[to->n_escaped++] = (uint8_t)i;
		}
	}
}

/* Adds what contexts have of n elements of a block to their codes. */
INLINE void add_contexts(const int16_t *mean, const uint16_t *grid, size_t n,
                         struct block_known *to)
{
	const struct fine_table los = fine_table_load(kvi_cells_lo);
	const struct fine_table nbs = fine_table_load(kvi_cells_nb);
	to->n_escaped = 0;
	for (size_t i = 0; i < (n + STEP - 1) / STEP * STEP; i += WIDTH) {
		const vec code = vld1q_u8(to->codes + i);
		const vec class = vuzp1q_u8(BYTES_OF(vld1q_u16(grid + i)),
		                            BYTES_OF(vld1q_u16(grid + i + LANES)));
		const vec at = vbslq_u8(SET8(0x60), class, code), nb = looked_up(&nbs, at);
		const int8x16_t lo = vreinterpretq_s8_u8(looked_up(&los, at));
		const int16x8_t a = vaddw_s8(vld1q_s16(mean + i), vget_low_s8(lo));
		const int16x8_t b = vaddw_high_s8(vld1q_s16(mean + i + LANES), lo);
		vst1q_u16(to->begin + i, vreinterpretq_u16_s16(a));
		vst1q_u16(to->begin + i + LANES, vreinterpretq_u16_s16(b));
		vst1q_u16(to->nb + i, vmovl_u8(vget_low_u8(nb)));
		vst1q_u16(to->nb + i + LANES, vmovl_high_u8(nb));
		const vec rare = vtstq_u8(class, SET8(KVI_CELLS_COARSE)) |
		                 vceqq_u8(code, SET8(ESCAPE));
		if (RARE(vmaxvq_u8(rare)))
			add_rare(mean + i, grid + i, to, i);
	}
}

/* 8 elements of the low halves of states; begin, nb: as in block_known. *taken: numbers of raw
 * bits. More than KVI_CELLS_BITS are those of damaged parts: then the element does not matter. */
INLINE vec16 get_elements_of(vec16 low, vec16 begin, vec16 nb, vec16 grid, vec16 *taken,
                             const unsigned mantissa)
{
	const vec16 within = lowest(low, nb), one = SET16(1), m = SET16(mantissa);
	const vec16 cell = begin + within, j = cell ^ signs_of(cell), leading = vmaxq_u16(j, one);
	/* m less log2 of the cell; where it begins at zero, zeros and a one stand in front */
	const vec16 rest = vqsubq_u16(vclzq_u16(leading), SET16(15 - mantissa));
	const vec16 reversed = WORDS_OF_BYTES(vrev16q_u8(vrbitq_u8(BYTES_OF(low ^ within))));
	const vec16 before = vbslq_u16(vceqzq_u16(j), vclzq_u16(reversed) + one, nb);
	const vec16 n = before + rest;
	const vec16 full = shifted_left(leading, rest) + shifted_right(lowest(low, n), before);
	const vec16 field = shifted_right(grid, m) + nb - n;
	*taken = n;
	return vbslq_u16(SET16(0x7fff), shifted_left(field, m) + full, cell);
}

/* The elements of a step. *most gathers the bits of the numbers of raw bits. Returns the end of the
 * words that were taken. */
INLINE const uint8_t *get_step(struct state_halves *st, const struct block_known *known, size_t i,
                               const uint16_t *grid, const uint8_t *words, uint16_t *elements,
                               vec16 *most, const unsigned mantissa)
{
	EACH {
		const size_t at = i + (size_t)(LANES * g);
		vec16 n;
		vst1q_u16(elements + LANES * g,
		          get_elements_of(st->low[g], vld1q_u16(known->begin + at),
		                          vld1q_u16(known->nb + at), vld1q_u16(grid + at), &n,
		                          mantissa));
		*most |= n;
		st->low[g] = shifted_right(st->low[g], n) |
		             shifted_left(st->high[g], SET16(16) - n);
		st->high[g] = shifted_right(st->high[g], n);
	}
	return renormalise(st, words);
}

INLINE bool get_elements(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                         uint16_t *elements, const unsigned mantissa)
{
	const struct kvi_stream stream = { .words = in->words, .n_words = in->n_words };
	const uint8_t *second = second_codes(in), *second_end = second + in->n_second;
	size_t context = 0, escapes = 0;
	struct kvi_feed feed;
	const uint8_t *words = kvi_feed_open(&feed, &stream);
	struct state_halves st = states_load(in->state);
	struct block_known known;
	uint16_t last[STEP];
	uint32_t state[KVI_LANES];
	vec16 most = SET16(0);
	for (size_t at = 0; at < in->n; at += BLOCK, elements += BLOCK) {
		const size_t n = block_codes(in->n, at);
		const uint16_t *grid = contexts->grid + context;
		second = get_codes(in->codes + at / 2, n, second, known.codes);
		if (second > second_end)
			return false;
		add_contexts(contexts->mean + context, grid, n, &known);
		for (size_t i = 0; i < n; i += STEP) {
			const bool full = n - i >= STEP;
			KVI_FEED_CHECK(&feed, words);
			words = get_step(&st, &known, i, grid, words, full ? elements + i : last,
			                 &most, mantissa);
			if (!full)
				memcpy(elements + i, last, (n - i) * sizeof *last);
		}
		for (size_t i = 0; i < known.n_escaped && known.escaped[i] < n; i++, escapes++) {
			if (escapes == in->n_escapes)
				return false;
			elements[known.escaped[i]] = kvi_load16(in->escapes + 2 * escapes);
		}
		context = (context + BLOCK) % contexts->period;
	}
	states_store(&st, state);
	return kvi_feed_done(&feed, words, state) && second == second_end &&
	       escapes == in->n_escapes && vmaxvq_u16(most) <= KVI_CELLS_BITS;
}

static bool get(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                unsigned mantissa, uint16_t *elements)
{
	return mantissa == 7 ? get_elements(in, contexts, elements, 7)
	                     : get_elements(in, contexts, elements, 10);
}

/* ----- writing ------------------------------------------------ */

/* Elements of a block, for whole rounds: the numbers of their entries of kvi_cells_code, and then
 * these; the raw bits behind a cell, and how many (too many: the element has no cell). */
struct block_stage {
	uint16_t entry[BLOCK], rest[BLOCK];
	uint8_t bits[BLOCK];
};

/* Distances of the cells of 8 elements, limited; what is behind these to rest, and in *shift the
 * number of its bits. */
INLINE int8x8_t draft_distances(vec16 element, vec16 mean, vec16 grid, uint16_t *rest, vec16 *shift,
                                const unsigned mantissa)
{
	const unsigned hidden = 1u << mantissa;
	const vec16 one = SET16(1), more = SET16(mantissa + 1);
	const vec16 field = shifted_right(element + element, more);
	const vec16 full = vbslq_u16(SET16(hidden - 1), element, SET16(hidden));
	/* The cell is 2^shift steps of the element wide; too large where there is none. */
	*shift = (shifted_right(grid, SET16(mantissa)) + one - field) | vceqzq_u16(field);
	const vec16 j = shifted_right(full, *shift);
	const vec16 distance = (j ^ signs_of(element)) - mean;
	/* Below the cell's number: its rest, or where that is 0, zeros, a one and the mantissa. */
	const vec16 behind = shifted_left(vsliq_n_u16(one, full, 1), *shift - more);
	vst1q_u16(rest, lowest(vbslq_u16(vceqzq_u16(j), behind, full), *shift));
	return vqmovn_s16(vreinterpretq_s16_u16(distance));
}

/* The cells of 16 elements from `element` on, those from i on of a block. */
INLINE void draft_cells(const uint16_t *element, const int16_t *mean, const uint16_t *grid,
                        struct block_stage *to, size_t i, const unsigned mantissa)
{
	vec16 shift[2], grids[2];
	int8x8_t distance[2];
	KVI_UNROLL(2)
	for (unsigned h = 0; h < 2; h++) {
		const size_t at = i + h * LANES;
		grids[h] = vld1q_u16(grid + at);
		distance[h] = draft_distances(vld1q_u16(element + at),
		                              vreinterpretq_u16_s16(vld1q_s16(mean + at)), grids[h],
		                              to->rest + at, &shift[h], mantissa);
	}
	/* The smallest and the largest distance have no codes. */
	const vec column = vreinterpretq_u8_s8(vcombine_s8(distance[0], distance[1])) ^
	                   SET8(KVI_CELLS_REACH);
	const vec class = vuzp1q_u8(BYTES_OF(grids[0]), BYTES_OF(grids[1]));
	const vec fine = vshrq_n_u8(class + class, 6) + SET8(KVI_CELLS_FINE);
	const vec row = vbslq_u8(vtstq_u8(class, SET8(KVI_CELLS_COARSE)), class & SET8(15), fine);
	vst1q_u16(to->entry + i, WORDS_OF_BYTES(vzip1q_u8(column, row)));
	vst1q_u16(to->entry + i + LANES, WORDS_OF_BYTES(vzip2q_u8(column, row)));
	vst1q_u8(to->bits + i, vqmovn_high_u16(vqmovn_u16(shift[0]), shift[1]));
}

/* Raw bits of 8 elements; escaped: all ones in bytes of those that have none. */
INLINE void draft_raw(vec16 rest, vec16 entry, uint8x8_t nb, uint8x8_t escaped, uint16_t *raw)
{
	const vec16 both = vsraq_n_u16(shifted_left(rest, vmovl_u8(nb)), entry, 8);
	const int16x8_t none = vmovl_s8(vreinterpret_s8_u8(escaped));
	vst1q_u16(raw, vbicq_u16(both, vreinterpretq_u16_s16(none)));
}

/* The round from element i on of a block of n at `from`. */
INLINE void draft_round(const struct block_stage *stage, size_t i, size_t n, const uint16_t *from,
                        struct cells_draft *draft, uint8_t codes[BLOCK])
{
	const vec escape = SET8(ESCAPE), most = SET8(MORE);
	const uint64_t all = first_lanes(n - i);
	vec second[4], more[4], escaped[4];
	EACH {
		const size_t at = i + (size_t)(WIDTH * g);
		const vec16 a = vld1q_u16(stage->entry + at);
		const vec16 b = vld1q_u16(stage->entry + at + LANES);
		const vec low = vuzp1q_u8(BYTES_OF(a), BYTES_OF(b)), nb = vshrq_n_u8(low, 5);
		const vec bits = vqaddq_u8(nb, vld1q_u8(stage->bits + at));
		vec code = low & SET8(31);
		escaped[g] = vceqq_u8(code, escape) | vcgtq_u8(bits, SET8(KVI_CELLS_BITS));
		code = vbslq_u8(escaped[g], escape, code);
		more[g] = vcgeq_u8(code, most);
		second[g] = code - most;
		vst1q_u8(codes + at, vminq_u8(code, most));
		vst1q_u8(draft->bits + at, vbicq_u8(bits, escaped[g]));
		draft_raw(vld1q_u16(stage->rest + at), a, vget_low_u8(nb), vget_low_u8(escaped[g]),
		          draft->raw + at);
		draft_raw(vld1q_u16(stage->rest + at + LANES), b, vget_high_u8(nb),
		          vget_high_u8(escaped[g]), draft->raw + at + LANES);
	}
	draft->second = compressed(second, lanes_of(more) & all, draft->second);
	for (uint64_t lanes = lanes_of(escaped) & all; lanes; lanes &= lanes - 1)
		*draft->escapes++ = from[i + (unsigned)__builtin_ctzll(lanes)];
}

/* A block of n codes of 4 bits. */
INLINE void put_block(const uint8_t codes[BLOCK], size_t n, uint8_t *block)
{
	if (n < BLOCK) {
		put_codes(codes, n, CODE_BITS, 0, block);
		return;
	}
	for (unsigned i = 0; i < HALF_BLOCK; i += WIDTH)
		vst1q_u8(block + i, vsliq_n_u8(vld1q_u8(codes + i),
		                               vld1q_u8(codes + HALF_BLOCK + i), CODE_BITS));
}

/* Codes and raw bits of all elements, and none of others in the last step; sets the counts of
 * second codes and escapes. */
INLINE void draft_elements(const uint16_t *elements, size_t n,
                           const struct kvi_cells_contexts *contexts,
                           const struct cells_draft *draft, struct kvi_cells_out *out,
                           const unsigned mantissa)
{
	struct cells_draft to = *draft;
	struct block_stage stage;
	uint8_t codes[BLOCK];
	/* Zeros behind the end are escaped: they have no raw bits. */
	uint16_t last[BLOCK] = { 0 };
	size_t context = 0;
	for (size_t at = 0; at < n; at += BLOCK) {
		const size_t count = block_codes(n, at);
		const size_t whole = (count + ROUND - 1) / ROUND * ROUND;
		const uint16_t *from = elements + at;
		if (count < BLOCK)
			from = memcpy(last, from, count * sizeof *from);
		for (size_t i = 0; i < whole; i += WIDTH)
			draft_cells(from, contexts->mean + context, contexts->grid + context,
			            &stage, i, mantissa);
		/* apart, so that a processor overlaps these loads */
		KVI_UNROLL(8)
		for (size_t i = 0; i < whole; i++)
			stage.entry[i] = kvi_cells_code[stage.entry[i]];
		for (size_t i = 0; i < whole; i += ROUND)
			draft_round(&stage, i, count, from, &to, codes);
		put_block(codes, count, out->to + at / 2);
		to.raw += count;
		to.bits += count;
		context = (context + BLOCK) % contexts->period;
	}
	out->n_second = (uint32_t)(to.second - draft->second);
	out->n_escapes = (uint32_t)(to.escapes - draft->escapes);
}

/* Puts raw bits of a step into states, and words that have no place there below `words`. Returns
 * their begin. */
INLINE uint8_t *put_step(struct state_halves *st, const uint8_t *bits, const uint16_t *raw,
                         uint8_t *words)
{
	vec16 n[4], over[4];
	uint32_t ends;
	EACH {
		n[g] = vmovl_u8(vld1_u8(bits + LANES * g));
		const vec16 lost = shifted_left(st->high[g], n[g] - SET16(16));
		over[g] = vtstq_u16(lost, lost);
	}
	const uint32_t lanes = word_lanes(over, &ends);
	words -= byte_of(ends, 3);
	KVI_UNROLL(4)
	for (int g = 3; g >= 0; g--) { /* downwards: a store writes in front of its words, too */
		const vec16 packed = shuffled(BYTES_OF(st->low[g]),
		                              word_packings[byte_of(lanes, g)]);
		vst1q_u8(words + byte_of(ends, g) - WIDTH, BYTES_OF(packed));
	}
	EACH {
		const vec16 low = vbslq_u16(over[g], st->high[g], st->low[g]);
		st->high[g] = shifted_left(vbicq_u16(st->high[g], over[g]), n[g]) |
		              shifted_left(low, n[g] - SET16(16));
		st->low[g] = shifted_left(low, n[g]) | vld1q_u16(raw + LANES * g);
	}
	return words;
}

static uint8_t *put(const uint16_t *elements, size_t n, const struct kvi_cells_contexts *contexts,
                    unsigned mantissa, struct kvi_cells_out *out)
{
	const struct cells_draft draft = cells_draft_of(out->work, n);
	uint8_t *const end = (uint8_t *)draft.words, *words = end;
	struct state_halves st;
	EACH {
		st.low[g] = SET16(KVI_RANS_LOW);
		st.high[g] = SET16(KVI_RANS_LOW >> 16);
	}
	if (mantissa == 7)
		draft_elements(elements, n, contexts, &draft, out, 7);
	else
		draft_elements(elements, n, contexts, &draft, out, 10);
	for (size_t at = (n + STEP - 1) / STEP * STEP; at > 0; at -= STEP)
		words = put_step(&st, draft.bits + at - STEP, draft.raw + at - STEP, words);
	states_store(&st, out->state);
	out->n_words = (uint32_t)((size_t)(end - words) / 2);
	return put_parts(&draft, n, out);
}

const struct kvi_cell_kernels kvi_neon_cells = {
	.get = get,
	.put = put,
	.rotated = kvi_neon_cells_rotate,
};
