/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layers_encode_body.h - encodes a chunk by codec 4 (spec layers): its tops, the counts of its
 * layers, and then its planes and layers, by warps
 *
 * Elements come in rows of 512 (view_rows_body.h), twice: they are counted, so that the offset of
 * each layer is known, and written. Values that a layer has no code for go to the ring of the next
 * layer, in shared memory, which is written a row at a time.
 */
#ifndef KVI_GPU_LAYERS_ENCODE_BODY_H
#define KVI_GPU_LAYERS_ENCODE_BODY_H

#include "chunk_encode_body.h"

/* ----- shared memory ------------------------------------------------ */

/* Memory of a warp behind the encoding: rings of the values of layers 2 to 4, of two rows each; the
 * last row of a plane; and of lists 0 to 4 (layer 1 is number 0, the bytes are number 4) the offset
 * in the payload, how many values it has, how many came, and how many were written. */
constexpr uint32_t OUT_RING_WORDS = RING_BYTES / 4, OUT_LAST = 3 * OUT_RING_WORDS,
		   OUT_LISTS = OUT_LAST + ROW / 4;
enum out_list { OUT_AT = 0, OUT_N = 5, OUT_MADE = 10, OUT_DONE = 15 };
static_assert(KVI_GPU_OUT_WORDS == KVI_GPU_STREAMS * (OUT_LISTS + 24), "shared memory");

WARP_FN span<uint32_t> out_memory(uint32_t warp, uint32_t first, uint32_t n)
{
	return block_part<uint32_t>(ENCODING_WORDS + warp * (OUT_LISTS + 24) + first, n);
}
WARP_FN uint32_t out_value(uint32_t warp, uint32_t i)
{
	return ld_one(out_memory(warp, OUT_LISTS, 24), i);
}
WARP_FN void out_set(uint32_t warp, uint32_t i, uint32_t v)
{
	st_one(out_memory(warp, OUT_LISTS, 24), i, v);
}
/* The tops of n channels, in bytes, and three more in turn. */
template <typename T> WARP_FN span<T> out_tops(uint32_t n)
{
	return block_part<T>(ENCODING_WORDS + KVI_GPU_OUT_WORDS, n / 4 + 2);
}

/* ----- elements ------------------------------------------------ */

/* Four elements, in bytes: exponents; the low bits of their rest; of f16 the three above them. */
struct four_parts {
	u32v exponent, low, high;
};

template <int D> WARP_FN four_parts parts_of(u64v v)
{
	const u32v one = low_half(v);
	four_parts x = { splat(0), splat(0), splat(0) };
	if (D == 4) {
		const u32v y = (one << 1 & 0xfefefefe) | (one >> 7 & 0x01010101);
		x.exponent = y >> 4 & 0x0f0f0f0f;
		x.low = y & 0x0f0f0f0f;
		return x;
	}
	const u32v two = low_half(v >> (uint64_t)32);
	const u32v upper = bytes_of(one, two, splat(0x7531));
	const u32v lower = bytes_of(one, two, splat(0x6420));
	const u32v y = (upper << 1 & 0xfefefefe) | (lower >> 7 & 0x01010101);
	x.low = (lower << 1 & 0xfefefefe) | (upper >> 7 & 0x01010101);
	x.exponent = D == 2 ? y >> 3 & 0x1f1f1f1f : y;
	x.high = D == 2 ? y & 0x07070707 : splat(0);
	return x;
}

/* The bytes of a word of four that are among the first n of a row; k: its quarter. */
WARP_FN u32v row_bytes(uint32_t k, uint32_t n)
{
	const u32v at = row_place(k), left = select(at < n, n - at, splat(0));
	return select(left < 4, (splat(1) << ((left & 3) << 3)) - 1, splat(~0u));
}

/* Values of four elements: how far they are below the tops of their channels. */
template <int D, bool USUAL>
WARP_FN u32v values_of(span<const uint32_t> tops, const lane_place *place, u32v exponent)
{
	/* channels may be no multiple of 4 */
	const u32v c = USUAL ? place->channel : place->channel & ~3u;
	u32v top = ld_byte_at(tops, c);
	if (!USUAL)
		top = funnel(top, ld_byte_at(tops, c + 4), place->channel << 3);
	return bytes_less(top, exponent) & ((1u << format<D>::e) - 1) * 0x01010101u;
}

/* ----- counts ------------------------------------------------ */

/* Bytes that are above n, which is below 128: their highest bits. */
WARP_FN u32v bytes_above(u32v v, uint32_t n)
{
	return (((v & 0x7f7f7f7f) + (127 - n) * 0x01010101u) | v) & 0x80808080;
}

/* How many values each list behind layer 1 has, times 128, of each lane. */
struct value_counts {
	u32v n[LAYERS];
};

WARP_FN void count_values(value_counts *counts, u32v values)
{
	const u32v less = bytes_less(values, splat(0x01010101));
	counts->n[0] += bytes_sum(bytes_above(bytes_less(values, splat(0x02020202)), 2));
	counts->n[1] += bytes_sum(bytes_above(less, 5));
	counts->n[2] += bytes_sum(bytes_above(less, 8));
	counts->n[3] += bytes_sum(bytes_above(values, LAYER_BYTE - 1));
}

/* Keeps the counts of the list with a number: that of a stream, or KVI_GPU_STREAMS. */
WARP_FN void keep_counts(const value_counts *counts, uint32_t number)
{
	UNROLL
	for (uint32_t i = 0; i < LAYERS; i++) {
		const u32v sums = half_sums(counts->n[i] >> 7);
		encoding_of()->counts[number][i] = lane_value(sums, 15) + lane_value(sums, 31);
	}
}

/* Counts of the values of a stream, and the bits of the rest that any element has. */
struct stream_counts {
	value_counts values;
	u32v low, high;
};

template <int D, bool USUAL>
WARP_FN void count_row(stream_rows<format<D>::size> *rows, span<const uint32_t> tops,
                       stream_counts *counts)
{
	for (uint32_t k = 0; k < 4; k++) {
		const lane_place place = row_lane<USUAL>(&rows->row, k);
		const four_parts x = parts_of<D>(rows_get<USUAL>(rows, k, &place));
		const u32v values = values_of<D, USUAL>(tops, &place, x.exponent);
		const u32v own = USUAL ? splat(~0u) : row_bytes(k, rows->left);
		count_values(&counts->values, (values & own) | (~own & 0x02020202));
		counts->low |= x.low & own;
		counts->high |= x.high & own;
	}
}

/* The bits that any byte has. */
WARP_FN uint32_t any_byte(u32v v)
{
	const uint32_t all = any_of(v), both = all | all >> 16;
	return (both | both >> 8) & 255;
}

template <int D> WARP_FN void count_stream(uint32_t number)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t n = uniform(stream_elements(o, number));
	const span<const uint32_t> tops = out_tops<const uint32_t>(uniform(o->columns));
	stream_rows<format<D>::size> rows = rows_open<format<D>::size>(number, n);
	rows.view.wide = uniform(rows.view.wide) != 0;
	stream_counts counts = {};
	for (uint32_t i = 0; i < n; i += ROW) {
		if (rows_usual(&rows))
			count_row<D, true>(&rows, tops, &counts);
		else
			count_row<D, false>(&rows, tops, &counts);
		rows_next(&rows);
	}
	keep_counts(&counts.values, number);
	encoding_of()->used[number] = any_byte(counts.low) | any_byte(counts.high) << 8;
}

/* Four values of the tops of each lane, in quarter k of a row of channels. */
template <int D> WARP_FN u32v top_values(uint32_t first, uint32_t k)
{
	const uint32_t n = block_of()->opened.columns, base = block_of()->opened.base;
	const u32v at = row_place(k) + first;
	const u32v tops = ld_if(out_tops<uint32_t>(n), at >> 2, at < n);
	return bytes_less(splat(base * 0x01010101u), tops) &
	       ((1u << format<D>::e) - 1) * 0x01010101u;
}

template <int D> WARP_FN void count_tops(void)
{
	const uint32_t n = block_of()->opened.columns;
	value_counts counts = {};
	for (uint32_t i = 0; i < n; i += ROW)
		for (uint32_t k = 0; k < 4; k++) {
			const u32v own = row_bytes(k, n - i);
			count_values(&counts, (top_values<D>(i, k) & own) | (~own & 0x02020202));
		}
	keep_counts(&counts, KVI_GPU_STREAMS);
}

/* ----- tops ------------------------------------------------ */

/* Rows that the search looks at; of how many one top may be better; from where it begins above the
 * mean; most times that a channel tries others (codecs/layers/layers_tops.c). */
constexpr uint32_t TOPS_ROWS = 64, ONE_TOP_ROWS = 16, ABOVE_MEAN = 2, TOPS_MOVES = 8, TOPS_LAST = 3,
		   TOPS_COUNTS = 64;

/* Half the bits of values i - 3, i - 2, i - 1 and i, in 16 bits each; a value below 0 is a large
 * one. */
#if defined(__CUDACC__)
static __device__
#else
static
#endif
	const uint64_t top_bits[16] = {
		0x0004000800080008, 0x0002000400080008, 0x0001000200040008, 0x0001000100020004,
		0x0001000100010002, 0x0002000100010001, 0x0002000200010001, 0x0003000200020001,
		0x0003000300020002, 0x0003000300030002, 0x0004000300030003, 0x0004000400030003,
		0x0008000400040003, 0x0008000800040004, 0x0008000800080004, 0x0008000800080008,
	};

/* The exponents of 32 columns in a row of those that remain. */
template <int D> WARP_FN u32v column_exponents(uint32_t row, u32v column, boolv on)
{
	return remaining_element<format<D>::size>(row, column, on) >> format<D>::m &
	       ((1u << format<D>::e) - 1);
}

/* The least of four costs, and the first top that has it. */
struct top_cost {
	u32v least, best;
};

template <int D> WARP_FN top_cost top_costs(uint32_t step, u32v first, u32v column, boolv on)
{
	constexpr uint32_t mask = (1u << format<D>::e) - 1;
	span<const uint64_t> bits = span_at<const uint64_t>((uint64_t)(uintptr_t)top_bits, 16);
	u64v sum = splat64(0);
	for (uint32_t row = 0; row < block_of()->opened.rows; row += step) {
		const u32v i = (first + 3 - column_exponents<D>(row, column, on)) & mask;
		sum += ld64(bits, select(i < 15, i, splat(15)));
	}
	const u32v half[2] = { low_half(sum), low_half(sum >> (uint64_t)32) };
	top_cost x = { half[0] & 0xffff, splat(0) };
	for (uint32_t i = 1; i < 4; i++) {
		const u32v cost = half[i / 2] >> i % 2 * 16 & 0xffff;
		const boolv less = cost < x.least;
		x.best = select(less, splat(i), x.best);
		x.least = select(less, cost, x.least);
	}
	return x;
}

/* The tops of 32 columns; adds up what they cost, how often there is each, and of few rows how
 * often there is each exponent. */
template <int D> WARP_FN void find_tops(uint32_t group)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t step = (o->rows + TOPS_ROWS - 1) / TOPS_ROWS;
	const uint32_t rows = (o->rows + step - 1) / step;
	const u32v column = lanes() + group * 32;
	const boolv on = column < o->columns;
	span<uint32_t> all = histogram_of(1), tops = histogram_of(0);
	u32v sum = splat(0);
	for (uint32_t row = 0; row < o->rows; row += step) {
		const u32v x = column_exponents<D>(row, column, on);
		sum += x;
		if (o->rows <= ONE_TOP_ROWS)
			add_if(all, x, splat(1), on);
	}
	u32v first = ((sum + rows / 2) / rows + ABOVE_MEAN) & 255, top = splat(0), least = splat(0);
	boolv open = on;
	for (uint32_t moves = 0; moves < TOPS_MOVES && mask_of(open); moves++) {
		const top_cost now = top_costs<D>(step, first, column, on);
		const boolv better = open & (moves ? now.least < least : on);
		top = select(better, first + now.best, top);
		least = select(better, now.least, least);
		const boolv up = better & (now.best == TOPS_LAST);
		const boolv down = better & (now.best == 0) & (least > 2 * rows);
		first += select(up, splat(TOPS_LAST), splat(0));
		first -= select(down, splat(TOPS_LAST), splat(0));
		open = up | down;
	}
	top = top & ((1u << format<D>::e) - 1);
	st_if(part<uint8_t>(out_tops<uint32_t>(o->columns), 0, o->columns + 3), column, top, on);
	add_if(tops, top, splat(1), on);
	add_if(histogram_of(2), splat(0), least, on);
}

/* The top with the least cost for n exponents, in the low 8 bits below that cost. */
template <int D> WARP_FN uint32_t best_top(uint32_t histogram, uint32_t n)
{
	constexpr uint32_t mask = (1u << format<D>::e) - 1;
	const span<uint32_t> counts = histogram_of(histogram);
	span<const uint64_t> bits = span_at<const uint64_t>((uint64_t)(uintptr_t)top_bits, 16);
	u32v best = splat(~0u);
	for (uint32_t i = 0; i <= mask; i += 32) {
		const u32v top = lanes() + i;
		u32v cost = splat(8 * n);
		for (uint32_t value = 0; value < LAYER_BYTE; value++)
			cost -= ld(counts, (top - value) & mask) *
			        (8 - low_half(ld64(bits, splat(value + 3)) & (uint64_t)0xffff));
		const u32v both = cost << 8 | top;
		best = select((top <= mask) & (both < best), both, best);
	}
	return least_of(best);
}

/* Chooses base, and whether it is the top of all channels; one warp. */
template <int D> WARP_FN void choose_base(void)
{
	kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t n = o->columns, own = best_top<D>(0, n);
	span<uint32_t> words = out_tops<uint32_t>(n);
	uint32_t one = ~0u;
	if (o->rows <= ONE_TOP_ROWS)
		one = best_top<D>(1, o->rows * n);
	encoding_of()->one_top = one != ~0u &&
	                         one >> 8 <= ld_one(histogram_of(2), 0) + (own >> 8) + TOPS_COUNTS;
	o->base = (encoding_of()->one_top ? one : own) & 255;
	for (uint32_t i = 0; i < n / 4 + 2 && encoding_of()->one_top; i += 32)
		st_if(words, lanes() + i, splat(o->base * 0x01010101u), lanes() + i < n / 4 + 2);
	warp_barrier();
	span<uint8_t> tops = part<uint8_t>(words, 0, n + 3);
	for (uint32_t i = 0; i < 3; i++) {
		st_one(tops, n + i, ld_one(tops, i % n));
		warp_barrier();
	}
}

/* ----- payload ------------------------------------------------ */

/* Bytes of n values whose counts are those with a number. */
WARP_FN uint32_t layers_bytes(uint32_t n, uint32_t number)
{
	uint32_t bytes = 0;
	for (uint32_t i = 0; i < LAYERS; i++) {
		bytes += plane_bytes(n, LAYER_BITS);
		n = encoding_of()->counts[number][i];
	}
	return bytes + n;
}

/* The planes of the rest that no stream has. */
template <int D> WARP_FN uint32_t absent_planes(void)
{
	const kvi_gpu_encoding *x = encoding_of();
	uint32_t used = 0;
	for (uint32_t i = 0; i < block_of()->opened.n_streams; i++)
		used |= x->used[i];
	uint32_t absent = (used & 255) == 0;
	if (D == 2)
		absent |= (used >> 8 & 3 ? 0 : 2) | (used >> 8 & 4 ? 0 : 4);
	return absent;
}

/* Where everything is in the payload; returns its bytes. One warp. */
template <int D> WARP_FN uint32_t layers_layout(void)
{
	kvi_gpu_opened *o = &block_of()->opened;
	kvi_gpu_encoding *x = encoding_of();
	uint32_t at = streams_at() + (o->n_streams > 1 ? 8 * o->n_streams : 0) + 4;
	o->absent = absent_planes<D>();
	o->tops_counts = at;
	at += x->one_top ? 0 : 4 * LAYERS;
	for (uint32_t i = 0; i < o->n_streams; i++, at += 4 * LAYERS)
		o->stream[i].counts = at;
	o->tops = at;
	at += x->one_top ? 0 : layers_bytes(o->columns, KVI_GPU_STREAMS);
	for (uint32_t i = 0; i < o->n_streams; i++) {
		const uint32_t n = stream_elements(o, i);
		x->end[i] = at;
		at = o->stream[i].planes = (at + 3) & ~3u;
		rest_open<D>(&at, n, o->absent);
		at += layers_bytes(n, i);
	}
	x->end[o->n_streams] = at;
	return at;
}

/* Codes of K bits of the last row of a plane, n below 512, at an offset of the payload: those from
 * bit `shift` on of the bytes that a warp has. */
template <uint32_t K> WARP_FN void put_last(uint32_t warp, uint32_t at, uint32_t n, uint32_t shift)
{
	const span<uint8_t> to = payload_of_block();
	const span<const uint8_t> codes = part<const uint8_t>(out_memory(warp, OUT_LAST, ROW / 4),
	                                                      0, ROW);
	ROLLED
	for (uint32_t first = 0; first < n; first += LAYER_BLOCK) {
		const uint32_t left = n - first < LAYER_BLOCK ? n - first : LAYER_BLOCK;
		const uint32_t bytes = (left * K + 7) / 8;
		ROLLED
		for (uint32_t i = 0; i < bytes; i += 32) {
			const u32v x = lanes() + i;
			u32v v = splat(0);
			ROLLED
			for (uint32_t q = 0; q < 8 / K; q++) {
				const u32v code = x + q * bytes;
				const boolv on = (x < bytes) & (code < left);
				v |= (ld_if(codes, code + first, on) >> shift & ((1u << K) - 1))
				     << K * q;
			}
			st_if(to, x + (at + first / 8 * K), v, x < bytes);
		}
	}
}

/* The bytes of a last row: four of each lane and quarter. */
WARP_FN void keep_last(uint32_t warp, const u32v word[4])
{
	warp_barrier();
	for (uint32_t k = 0; k < 4; k++)
		st(out_memory(warp, OUT_LAST, ROW / 4), row_place(k) >> 2, word[k]);
	warp_barrier();
}

/* ----- layers ------------------------------------------------ */

/* Lane i: the selector of bytes_of that puts the bytes where i has a bit side by side. */
WARP_FN u32v pass_selectors(void)
{
	u32v selectors = splat(0), taken = splat(0);
	for (uint32_t b = 0; b < 4; b++) {
		const u32v set = lanes() >> b & 1;
		selectors |= (set * b) << taken;
		taken += set << 2;
	}
	return selectors;
}

/* Opens the lists of n values, whose counts have a number, at an offset of the payload. */
WARP_FN void out_open(uint32_t warp, uint32_t at, uint32_t n, uint32_t number)
{
	warp_barrier();
	for (uint32_t i = 0; i <= LAYERS; i++) {
		out_set(warp, OUT_AT + i, at);
		out_set(warp, OUT_N + i, n);
		out_set(warp, OUT_MADE + i, 0);
		out_set(warp, OUT_DONE + i, 0);
		at += plane_bytes(n, LAYER_BITS);
		n = i < LAYERS ? encoding_of()->counts[number][i] : 0;
	}
	warp_barrier();
}

/* Codes of four values: byte i of `values` has code i, others have 3. */
WARP_FN u32v codes_of(u32v v, uint32_t values)
{
	u32v codes = splat(0x03030303);
	UNROLL
	for (uint32_t i = 0; i < 3; i++) {
		const u32v other = bytes_above(v ^ (values >> 8 * i & 255) * 0x01010101u, 0);
		codes -= (~other >> 7 & 0x01010101) * (3 - i);
	}
	return codes;
}
/* Codes of layer 1. */
WARP_FN u32v first_codes(u32v v)
{
	const u32v less2 = bytes_less(v, splat(0x02020202)), more = bytes_above(less2, 2);
	return (less2 & 0x03030303) | more >> 7 | more >> 6;
}

/* Passes values whose code is 3 on, to `made` and up: put gets a byte of each lane, its number, and
 * whether there is one. Returns how many there are then. */
template <typename F>
WARP_FN uint32_t pass_values(u32v word, const u32v values[4], uint32_t made, u32v selectors, F put)
{
	const row_ranks ranks = ranks_of(word, made);
	UNROLL
	for (uint32_t k = 0; k < 4; k++) {
		const u32v which = rank_lanes(&ranks, k), at = rank_first(&ranks, k);
		const u32v n = bytes_sum(ranks.next >> 2 * k & 0x01010101);
		const u32v bytes = bytes_of(values[k], splat(0), shuffle(selectors, which));
		UNROLL
		for (uint32_t q = 0; q < 4; q++)
			put(at + q, bytes >> 8 * q, q < n);
	}
	return made + ranks.n;
}

/* Passes values on to a list, 1 to 4. */
WARP_FN uint32_t pass_to(uint32_t warp, uint32_t list, u32v word, const u32v values[4],
                         uint32_t made, u32v selectors)
{
	if (list == LAYERS) {
		const span<uint8_t> to = skip(payload_of_block(), out_value(warp, OUT_AT + list));
		const uint32_t n = out_value(warp, OUT_N + list);
		return pass_values(word, values, made, selectors, [&](u32v at, u32v v, boolv on) {
			st_if(to, at, v, on & (at < n));
		});
	}
	const span<uint8_t> ring = part<uint8_t>(
		out_memory(warp, (list - 1) * OUT_RING_WORDS, OUT_RING_WORDS), 0, RING_BYTES);
	return pass_values(word, values, made, selectors, [&](u32v at, u32v v, boolv on) {
		st_if(ring, at & (RING_BYTES - 1), v, on);
	});
}

/* Writes a row of n codes at an offset of the payload. */
WARP_FN void put_codes(uint32_t warp, uint32_t at, uint32_t n, u32v word)
{
	if (n < ROW) {
		u32v codes[4];
		for (uint32_t k = 0; k < 4; k++)
			codes[k] = word >> 2 * k & 0x03030303;
		keep_last(warp, codes);
		put_last<LAYER_BITS>(warp, at, n, 0);
	} else if (at % 4) {
		for (uint32_t i = 0; i < 4; i++)
			st(payload_of_block(), (lanes() << 2) + (at + i), word >> 8 * i);
	} else {
		st(payload_words(), lanes() + at / 4, word);
	}
}

/* Writes a row of list 1, 2 or 3: n values of its ring, 512 or the last ones. */
WARP_FN void ring_put(uint32_t warp, uint32_t list, uint32_t n)
{
	const uint32_t done = out_value(warp, OUT_DONE + list);
	const uint32_t made = out_value(warp, OUT_MADE + list + 1);
	const uint32_t values = list == 1 ? 0x060105 : list == 2 ? 0x090807 : 0x0b0a00;
	const span<uint32_t> ring = out_memory(warp, (list - 1) * OUT_RING_WORDS, OUT_RING_WORDS);
	u32v v[4], word = splat(0);
	for (uint32_t k = 0; k < 4; k++) {
		v[k] = ld(ring, (row_place(k) + done % RING_BYTES) >> 2);
		word |= (codes_of(v[k], values) & row_bytes(k, n)) << 2 * k;
	}
	warp_barrier();
	const uint32_t next = pass_to(warp, list + 1, word, v, made, pass_selectors());
	out_set(warp, OUT_MADE + list + 1, next);
	out_set(warp, OUT_DONE + list, done + n);
	/* what was counted does not change while it is written, or there is no place for it */
	if (done + n <= out_value(warp, OUT_N + list))
		put_codes(warp, out_value(warp, OUT_AT + list) + done / 4, n, word);
	warp_barrier();
}

/* Values of a ring that were not written. */
WARP_FN uint32_t out_left(uint32_t warp, uint32_t list)
{
	return out_value(warp, OUT_MADE + list) - out_value(warp, OUT_DONE + list);
}

/* Writes the rows of rings that are full, when `made` values came to the first one; last: all that
 * they have. */
WARP_CALL void rings_put(uint32_t warp, uint32_t made, bool last)
{
	warp_barrier();
	out_set(warp, OUT_MADE + 1, made);
	warp_barrier();
	ROLLED
	for (uint32_t ended = 0; ended < (last ? LAYERS : 1); ended++) {
		if (ended && out_left(warp, ended))
			ring_put(warp, ended, out_left(warp, ended));
		ROLLED
		for (uint32_t list = ended + 1; list < LAYERS; list++)
			if (out_left(warp, list) >= ROW)
				ring_put(warp, list, ROW);
	}
}

/* Whether lists were written with as many values as were counted. */
WARP_FN bool lists_good(uint32_t warp)
{
	bool good = true;
	for (uint32_t i = 1; i <= LAYERS; i++)
		good = good && out_value(warp, OUT_MADE + i) == out_value(warp, OUT_N + i);
	return good;
}

/* A row of layer 1: n values, with their codes at an offset. Returns how many were passed on. */
WARP_FN uint32_t first_row(uint32_t warp, uint32_t at, uint32_t n, const u32v values[4],
                           uint32_t made, u32v selectors)
{
	u32v word = splat(0);
	UNROLL
	for (uint32_t k = 0; k < 4; k++) {
		const u32v codes = first_codes(values[k]);
		word |= (n < ROW ? codes & row_bytes(k, n) : codes) << 2 * k;
	}
	const uint32_t next = pass_to(warp, 1, word, values, made, selectors);
	put_codes(warp, at, n, word);
	if (uniform((next ^ made) & ~(ROW - 1)))
		rings_put(warp, next, false);
	return next;
}

/* The tops; one warp. */
template <int D> WARP_FN bool put_tops(uint32_t warp)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t n = o->columns;
	const u32v selectors = pass_selectors();
	uint32_t made = 0;
	out_open(warp, o->tops, n, KVI_GPU_STREAMS);
	for (uint32_t i = 0; i < n; i += ROW) {
		u32v values[4];
		for (uint32_t k = 0; k < 4; k++)
			values[k] = top_values<D>(i, k);
		made = first_row(warp, o->tops + i / 4, n - i < ROW ? n - i : ROW, values, made,
		                 selectors);
	}
	rings_put(warp, made, true);
	return lists_good(warp);
}

/* ----- streams ------------------------------------------------ */

/* The rest of a row, in planes. */
template <int D> struct row_rest {
	u32v low[4], high[4];
};

/* A full row of the rest, element `first` of the stream the first one. */
template <int D>
WARP_FN void put_rest(const rest_planes<D> *planes, uint32_t first, const row_rest<D> *r)
{
	const span<uint32_t> to = payload_words();
	const u32v half = lanes() >> 4, w = lanes() & 15;
	if (!(planes->absent & 1)) {
		UNROLL
		for (uint32_t k = 0; k < (D == 4 ? 2 : 4); k++) {
			const uint32_t at = planes->at[0] / 4 + k * 16;
			if (D == 4)
				st(to, (half * 32 + w) + (at + first / 8),
				   r->low[k] | r->low[k + 2] << 4);
			else
				st(to, (half * 64 + w) + (at + first / 4), r->low[k]);
		}
	}
	if constexpr (D == 2) {
		u32v two = splat(0), one = splat(0);
		UNROLL
		for (uint32_t k = 0; k < 4; k++) {
			two |= (r->high[k] & 0x03030303) << 2 * k;
			one |= (r->high[k] >> 2 & 0x01010101) << 2 * k;
		}
		one = one << (w >> 3);
		one |= shuffle(one, lanes() ^ 8);
		if (!(planes->absent >> 1 & 1))
			st(to, lanes() + (planes->at[1] + first / 4) / 4, two);
		if (!(planes->absent >> 2 & 1))
			st_if(to, (half * 8 + w) + (planes->at[2] + first / 8) / 4, one, w < 8);
	}
}

/* The last row of the rest, n elements below 512. */
template <int D>
WARP_FN void put_last_rest(uint32_t warp, const rest_planes<D> *planes, uint32_t first, uint32_t n,
                           const row_rest<D> *r)
{
	constexpr uint32_t low = D == 4 ? 4 : 8;
	if (!(planes->absent & 1)) {
		keep_last(warp, r->low);
		put_last<low>(warp, planes->at[0] + first / 8 * low, n, 0);
	}
	if constexpr (D == 2) {
		keep_last(warp, r->high);
		if (!(planes->absent >> 1 & 1))
			put_last<2>(warp, planes->at[1] + first / 4, n, 0);
		if (!(planes->absent >> 2 & 1))
			put_last<1>(warp, planes->at[2] + first / 8, n, 2);
	}
}

/* A stream on its way out. */
template <int D> struct layers_out {
	rest_planes<D> planes;
	uint32_t warp, at, made; /* at: of layer 1; made: values that were passed on */
	u32v selectors;
};

/* A row from element `first` on. */
template <int D, bool USUAL>
WARP_FN void encode_row(stream_rows<format<D>::size> *rows, span<const uint32_t> tops,
                        layers_out<D> *out, uint32_t first)
{
	const uint32_t n = USUAL || rows->left > ROW ? ROW : rows->left;
	row_rest<D> rest;
	u32v values[4];
	UNROLL
	for (uint32_t k = 0; k < 4; k++) {
		const lane_place place = row_lane<USUAL>(&rows->row, k);
		const u64v v = rows_get<USUAL>(rows, k, &place);
		const four_parts x = parts_of<D>(v);
		if (USUAL || rows->direct)
			check_add<!USUAL>(&rows->check, k, v);
		values[k] = values_of<D, USUAL>(tops, &place, x.exponent);
		rest.low[k] = x.low;
		rest.high[k] = x.high;
	}
	if (n == ROW)
		put_rest<D>(&out->planes, first, &rest);
	else
		put_last_rest<D>(out->warp, &out->planes, first, n, &rest);
	out->made = first_row(out->warp, out->at + first / 4, n, values, out->made, out->selectors);
}

/* Zeros in front of the parts of a stream, and behind its planes. */
template <int D> WARP_FN void put_stream_zeros(const rest_planes<D> *planes, uint32_t number)
{
	put_zeros(encoding_of()->end[number], 4);
	UNROLL
	for (int i = 0; i < format<D>::planes; i++)
		if (!(planes->absent >> i & 1))
			put_zeros(planes->at[i] + plane_bytes(planes->n, plane_bits<D>(i)), 4);
}

/* A stream, and its check, by a warp. Whether it has what was counted. */
template <int D> WARP_FN bool encode_layers(uint32_t number)
{
	kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t n = uniform(stream_elements(o, number));
	const span<const uint32_t> tops = out_tops<const uint32_t>(uniform(o->columns));
	stream_rows<format<D>::size> rows = rows_open<format<D>::size>(number, n);
	rows.view.wide = uniform(rows.view.wide) != 0;
	chunk_sums<format<D>::size> sums = sums_open<format<D>::size>(number);
	uint32_t at = o->stream[number].planes;
	layers_out<D> out;
	out.planes = rest_open<D>(&at, n, uniform(o->absent));
	out.warp = number;
	out.at = uniform(at);
	out.made = 0;
	out.selectors = pass_selectors();
	put_stream_zeros<D>(&out.planes, number);
	out_open(number, at, n, number);
	for (uint32_t i = 0; i < n; i += ROW) {
		if (rows_usual(&rows))
			encode_row<D, true>(&rows, tops, &out, i);
		else
			encode_row<D, false>(&rows, tops, &out, i);
		sums_add(&sums, &rows.check, rows_next(&rows));
	}
	rings_put(number, out.made, true);
	if (rows.direct)
		o->check[number] = check_end(&rows.check);
	return lists_good(number);
}

/* Writes base, flags and counts; one warp. */
WARP_FN void put_layers_head(void)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const kvi_gpu_encoding *x = encoding_of();
	const span<uint32_t> to = payload_words();
	st_one(to, o->tops_counts / 4 - 1, o->base | x->one_top << 8 | o->absent << 16);
	for (uint32_t i = 0; i < LAYERS; i++) {
		if (!x->one_top)
			st_one(to, o->tops_counts / 4 + i, x->counts[KVI_GPU_STREAMS][i]);
		for (uint32_t s = 0; s < o->n_streams; s++)
			st_one(to, o->stream[s].counts / 4 + i, x->counts[s][i]);
	}
}

#endif
