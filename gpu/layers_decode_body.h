/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layers_decode_body.h - decodes tops and streams of codec 4 (spec layers), by warps
 *
 * A step is a row of 512 codes of layer 1 (view_rows_body.h). The values that its codes take from
 * layer 2 come from a ring in shared memory, which is filled a row of layer 2 at a time, and so on
 * down to the bytes. A value u is kept as u - 2, modulo 256.
 */
#ifndef KVI_GPU_LAYERS_DECODE_BODY_H
#define KVI_GPU_LAYERS_DECODE_BODY_H

#include "view_rows_body.h"

constexpr uint32_t LAYERS = 4, LAYER_BLOCK = 256, LAYER_BITS = 2, LAYER_BYTE = 12;

/* ----- planes ------------------------------------------------ */

/* Bits of an element in a plane of the rest. */
template <int D> WARP_FN uint32_t plane_bits(int i)
{
	if (D == 4)
		return 4;
	return i == 0 ? 8 : i == 1 ? 2 : 1;
}

/* Bytes of a plane of n codes of k bits. */
WARP_FN uint32_t plane_bytes(uint32_t n, uint32_t k)
{
	return n / LAYER_BLOCK * (LAYER_BLOCK / 8 * k) + (n % LAYER_BLOCK * k + 7) / 8;
}

/* n codes of k bits. */
struct code_plane {
	span<const uint8_t> p;
	uint32_t n, k;
};

WARP_FN code_plane plane_at(uint64_t address, uint32_t n, uint32_t k)
{
	return code_plane{ span_at<const uint8_t>(address, plane_bytes(n, k)), n, k };
}

/* The codes of lanes, number i of a block of `codes` at byte `block`; 0 where on is false. */
WARP_FN u32v block_codes(const code_plane *plane, uint32_t block, uint32_t codes, u32v i, boolv on)
{
	const uint32_t k = plane->k, bytes = (codes * k + 7) / 8;
	const u32v row = codes == LAYER_BLOCK ? i / (LAYER_BLOCK / 8 * k) : i / bytes;
	const u32v byte = ldg_if(plane->p, i - row * bytes + block, on);
	return shift_right_modulo(byte, row * k) & ((1u << k) - 1);
}

/* Whether bits that no code uses are 0. */
WARP_FN bool plane_ends(const code_plane *plane)
{
	const uint32_t codes = plane->n % LAYER_BLOCK, k = plane->k;
	const u32v i = lanes() + codes;
	if (!codes)
		return true;
	return any_of(block_codes(plane, plane->n / LAYER_BLOCK * (LAYER_BLOCK / 8 * k), codes, i,
	                          i * k < (codes * k + 7) / 8 * 8)) == 0;
}

/* Codes i to i + 3 of each lane, a multiple of 4, in the bytes of a word: those that the plane
 * has. */
template <uint32_t K> WARP_FN u32v codes_at(const code_plane *plane, u32v i)
{
	const u32v block = i & ~(LAYER_BLOCK - 1), left = plane->n - block;
	const boolv on = block < plane->n;
	const u32v codes = select(left < LAYER_BLOCK, left, splat(LAYER_BLOCK));
	const u32v bytes = (codes * K + 7) >> 3;
	u32v v = splat(0);
	ROLLED
	for (uint32_t q = 0; q < 4; q++) {
		const u32v x = (i & (LAYER_BLOCK - 1)) + q;
		u32v row = splat(0);
		for (uint32_t k = 1; k < 8 / K; k++)
			row += select(x >= bytes * k, splat(1), splat(0));
		const u32v byte = ldg_if(plane->p, (block >> 3) * K + x - row * bytes,
		                         on & (x < codes));
		v |= (shift_right_modulo(byte, row * K) & ((1u << K) - 1)) << 8 * q;
	}
	return v;
}

/* ----- values ------------------------------------------------ */

/* Lists of values: layer 1 is number 0, the bytes are number 4. A warp has in shared memory a ring
 * of each list behind layer 1: two rows of bytes, and its first word again behind them; and four
 * numbers of each: how many codes it has, their offset in the payload, how many were put into its
 * ring, and how many were taken from there. */
constexpr uint32_t RING_BYTES = 2 * ROW, RING_WORDS = RING_BYTES / 4 + 2;
enum list_number { LIST_N = 0, LIST_AT = 5, LIST_MADE = 10, LIST_USED = 15, LIST_BAD = 20 };
constexpr uint32_t LISTS_AT = LAYERS * RING_WORDS, WARP_LISTS = LISTS_AT + 24;
static_assert(KVI_GPU_RING_WORDS == KVI_GPU_STREAMS * WARP_LISTS, "shared memory");

WARP_FN uint32_t list_value(uint32_t warp, uint32_t i)
{
	return ld_one(block_part<uint32_t>(warp * WARP_LISTS + LISTS_AT, 24), i);
}
WARP_FN void list_set(uint32_t warp, uint32_t i, uint32_t v)
{
	st_one(block_part<uint32_t>(warp * WARP_LISTS + LISTS_AT, 24), i, v);
}
template <typename T> WARP_FN span<T> ring_of(uint32_t warp, uint32_t list)
{
	return part<T>(block_part<uint32_t>(warp * WARP_LISTS, LAYERS * RING_WORDS),
	               (list - 1) * RING_WORDS, RING_WORDS);
}

/* A payload, as words and bytes. */
struct payload_memory {
	span<const uint8_t> p;
	span<const uint32_t> words;
};
WARP_FN payload_memory payload_memory_of(void)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	return payload_memory{ span_at<const uint8_t>(c->payload, c->payload_bytes),
		               span_at<const uint32_t>(c->payload, (c->payload_bytes + 3) / 4) };
}

/* Opens n values at offset `at`; counts: that of the four behind n. */
WARP_FN void lists_open(uint32_t warp, uint32_t at, uint32_t n, uint32_t counts)
{
	const payload_memory m = payload_memory_of();
	warp_barrier();
	for (uint32_t i = 0; i <= LAYERS; i++) {
		list_set(warp, LIST_N + i, n);
		list_set(warp, LIST_AT + i, at);
		list_set(warp, LIST_MADE + i, 0);
		list_set(warp, LIST_USED + i, 0);
		at += plane_bytes(n, LAYER_BITS);
		n = i < LAYERS ? ldg_one(m.words, counts / 4 + i) : 0;
	}
	list_set(warp, LIST_BAD, 0);
	warp_barrier();
}

/* The codes of a row in each lane, code j of quarter k in bits 2k of byte j, of a list of n codes
 * at offset `at`. */
WARP_FN u32v row_codes(const payload_memory *m, uint32_t n, uint32_t at, uint32_t first)
{
	if (first + ROW <= n) {
		const uint32_t from = at + first / 4;
		const u32v i = lanes() + from / 4;
		return funnel(ldg(m->words, i), ldg_if(m->words, i + 1, lanes() < from % 4 * 32),
		              splat(from % 4 * 8));
	}
	const code_plane plane{ skip(m->p, at), n, LAYER_BITS };
	u32v word = splat(0);
	ROLLED
	for (uint32_t k = 0; k < 4; k++)
		word |= codes_at<LAYER_BITS>(&plane, row_place(k) + first) << 2 * k;
	return word;
}

/* Lane i: the selectors of bytes_of that take bytes from a ring in turn where i has a bit, and the
 * byte of a code elsewhere. */
WARP_FN u32v ring_selectors(void)
{
	u32v selectors = splat(0), taken = splat(0);
	for (uint32_t b = 0; b < 4; b++) {
		const u32v set = lanes() >> b & 1;
		selectors |= select(set != 0, taken, splat(b + 4)) << 4 * b;
		taken += set;
	}
	return selectors;
}

/* Values of four codes: those that byte i of values has for code i; FIRST: of layer 1, u - 2 is the
 * code. */
template <bool FIRST> WARP_FN u32v code_values(u32v codes, uint32_t values)
{
	if (FIRST)
		return codes;
	const u32v selector = (codes & 3) | (codes >> 4 & 0x30) | (codes >> 8 & 0x300) |
	                      (codes >> 12 & 0x3000);
	return bytes_of(splat(values), splat(0), selector);
}

/* The codes 3 of a row, in the order of its values: those of quarters in each half. */
struct row_ranks {
	u32v next;         /* in the lower bit of each code: it is 3 */
	u32v before, from; /* of each quarter, in bytes: numbers of a lane's first; plus `from` */
	uint32_t n;
};

WARP_FN row_ranks ranks_of(u32v word, uint32_t first)
{
	row_ranks r;
	r.next = word & (word >> 1) & 0x55555555;
	/* how many of a lane's codes are 3 in each quarter, in bytes, and in the lanes up to it */
	const u32v even = (r.next & 0x11111111) * 0x01010101 >> 24;
	const u32v odd = (r.next >> 2 & 0x11111111) * 0x01010101 >> 24, both = even | odd << 8;
	const u32v own = (both & 0x0f0f) | (both & 0xf0f0) << 12;
	const u32v sum = half_sums(own), half = half_last(sum), all = bytes_sum(sum);
	const uint32_t one = lane_value(all, 15), two = lane_value(all, 31);
	r.before = sum - own + (half << 8) + (half << 16) + (half << 24);
	r.from = select(lanes() < 16, splat(0), splat(one)) + first;
	r.n = one + two;
	return r;
}
/* The number of a lane's first code 3 in quarter k; which of its codes are, in four bits. */
WARP_FN u32v rank_first(const row_ranks *r, uint32_t k)
{
	return (r->before >> 8 * k & 255) + r->from;
}
WARP_FN u32v rank_lanes(const row_ranks *r, uint32_t k)
{
	return (r->next >> 2 * k & 0x01010101) * 0x01020408 >> 24;
}

/* A row of codes whose values 3 are taken from a ring, from its value *used on: `put` gets the four
 * values of each lane of each quarter. USUAL: for speed, not for size. */
template <bool FIRST, bool USUAL, typename F>
WARP_FN void row_values(u32v word, uint32_t values, span<const uint32_t> ring, uint32_t *used,
                        u32v selectors, F put)
{
	const row_ranks ranks = ranks_of(word, *used);
	auto quarter = [&](uint32_t k) {
		const u32v at = rank_first(&ranks, k);
		const u32v word_at = at & (RING_BYTES - 4);
		const u32v taken = funnel(ld_byte_at(ring, word_at), ld_byte_at(ring, word_at + 4),
		                          at << 3);
		put(k, bytes_of(taken, code_values<FIRST>(word >> 2 * k & 0x03030303, values),
		                shuffle(selectors, rank_lanes(&ranks, k))));
	};
	if constexpr (USUAL) {
		UNROLL
		for (uint32_t k = 0; k < 4; k++)
			quarter(k);
	} else {
		ROLLED
		for (uint32_t k = 0; k < 4; k++)
			quarter(k);
	}
	*used += ranks.n;
}

/* Whether a ring has neither a row of values that were not taken nor all that are left. */
WARP_FN bool ring_wants(uint32_t warp, uint32_t list)
{
	const uint32_t made = list_value(warp, LIST_MADE + list);
	return made < list_value(warp, LIST_N + list) &&
	       made - list_value(warp, LIST_USED + list) < ROW;
}

/* Puts a row of a list into its ring. limit: bytes are below it. */
WARP_FN void ring_row(const payload_memory *m, uint32_t warp, uint32_t list, uint32_t limit)
{
	const uint32_t first = list_value(warp, LIST_MADE + list);
	const uint32_t n = list_value(warp, LIST_N + list), at = list_value(warp, LIST_AT + list);
	span<uint32_t> ring = ring_of<uint32_t>(warp, list);
	auto put = [&](uint32_t k, u32v values) {
		const u32v i = (row_place(k) >> 2) + first / 4 % (RING_BYTES / 4);
		st(ring, i, values);
		st_if(ring, i + RING_BYTES / 4, values, i == 0);
	};
	uint32_t bad = list_value(warp, LIST_BAD);
	uint32_t used = list < LAYERS ? list_value(warp, LIST_USED + list + 1) : 0;
	warp_barrier();
	if (list < LAYERS) {
		const uint32_t values = list == 1   ? 0x0004ff03
		                        : list == 2 ? 0x00070605
		                                    : 0x000908fe;
		row_values<false, false>(row_codes(m, n, at, first), values,
		                         ring_of<const uint32_t>(warp, list + 1), &used,
		                         ring_selectors(), put);
		list_set(warp, LIST_USED + list + 1, used);
	} else {
		ROLLED
		for (uint32_t k = 0; k < 4; k++) {
			u32v values = splat(0);
			ROLLED
			for (uint32_t q = 0; q < 4; q++) {
				const u32v i = row_place(k) + (first + q);
				const boolv on = i < n;
				const u32v v = ldg_if(m->p, i + at, on);
				bad |= mask_of(on & ((v < LAYER_BYTE) | (v >= limit)));
				values |= ((v - 2) & 255) << 8 * q;
			}
			put(k, values);
		}
		list_set(warp, LIST_BAD, bad);
	}
	list_set(warp, LIST_MADE + list, first + ROW);
	warp_barrier();
}

/* Fills the ring of list 1, of which `used` were taken: 512 values are there then that were not, or
 * all that are left. Deeper ones are filled before those that take from them. Returns how many were
 * put there. */
WARP_FN uint32_t rings_fill(uint32_t warp, uint32_t used, uint32_t limit)
{
	const payload_memory m = payload_memory_of();
	warp_barrier();
	list_set(warp, LIST_USED + 1, used);
	warp_barrier();
	while (ring_wants(warp, 1)) {
		uint32_t list = 1;
		while (list < LAYERS && ring_wants(warp, list + 1))
			list++;
		ring_row(&m, warp, list, limit);
	}
	return list_value(warp, LIST_MADE + 1);
}

/* Layer 1 on its way. */
struct layer_in {
	payload_memory m;
	uint32_t warp, limit, n, at, made, used, next; /* next: codes of layer 2 */
	u32v selectors;
};

WARP_FN layer_in layer_open(uint32_t warp, uint32_t at, uint32_t n, uint32_t counts, uint32_t limit)
{
	lists_open(warp, at, n, counts);
	return layer_in{ payload_memory_of(),
		         warp,
		         limit,
		         n,
		         at,
		         0,
		         0,
		         uniform(list_value(warp, LIST_N + 1)),
		         ring_selectors() };
}

/* The codes of a row of layer 1, when the values that they take are in the ring. */
WARP_FN u32v layer_codes(layer_in *in, uint32_t first)
{
	if (in->made < in->next && in->made - in->used < ROW)
		in->made = uniform(rings_fill(in->warp, in->used, in->limit));
	return row_codes(&in->m, in->n, in->at, first);
}

/* A row of layer 1, as row_values. */
template <bool USUAL, typename F> WARP_FN void layer_row(layer_in *in, u32v codes, F put)
{
	row_values<true, USUAL>(codes, 0, ring_of<const uint32_t>(in->warp, 1), &in->used,
	                        in->selectors, put);
}

/* Whether lists whose layer 1 was read to its end are good. */
WARP_CALL bool layer_ended(uint32_t warp, uint32_t used)
{
	const payload_memory m = payload_memory_of();
	bool good = list_value(warp, LIST_BAD) == 0 && used == list_value(warp, LIST_N + 1);
	ROLLED
	for (uint32_t i = 0; i < LAYERS; i++) {
		const uint32_t n = list_value(warp, LIST_N + i);
		const code_plane plane{ skip(m.p, list_value(warp, LIST_AT + i)), n, LAYER_BITS };
		good = plane_ends(&plane) && good;
		if (i)
			good = good && list_value(warp, LIST_USED + i + 1) ==
			                       list_value(warp, LIST_N + i + 1);
	}
	return good;
}

/* ----- tops ------------------------------------------------ */

/* The tops of channels, in bytes of shared memory behind the rings: those of the n that remain, and
 * three more in turn. */
WARP_FN span<uint32_t> tops_of(uint32_t n)
{
	return block_part<uint32_t>(KVI_GPU_RING_WORDS, n / 4 + 2);
}

/* Tops as elements are made of: less 2, in the high e bits of a byte. By one warp, with the rings
 * of warp 0. Whether they are good. */
WARP_CALL bool layers_tops(uint32_t e)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t n = o->columns, high = (0xff << (8 - e) & 255) * 0x01010101u;
	const uint32_t less = o->tops ? 4 : 2, base = ((o->base - less) & 255) * 0x01010101;
	span<uint32_t> words = tops_of(n);
	bool good = true;
	if (!o->tops) {
		for (uint32_t i = 0; i < n / 4 + 2; i += 32)
			st_if(words, lanes() + i, splat(base << (8 - e) & high),
			      lanes() + i < n / 4 + 2);
	} else {
		layer_in in = layer_open(0, o->tops, n, o->tops_counts, 1u << e);
		for (uint32_t i = 0; i < n; i += ROW)
			layer_row<false>(&in, layer_codes(&in, i), [&](uint32_t k, u32v values) {
				const u32v at = row_place(k) + i;
				st_if(words, at >> 2,
				      bytes_less(splat(base), values) << (8 - e) & high, at < n);
			});
		good = layer_ended(0, in.used);
	}
	warp_barrier();
	span<uint8_t> tops = part<uint8_t>(words, 0, n + 3);
	for (uint32_t i = 0; i < 3; i++) {
		st_one(tops, n + i, ld_one(tops, i % n));
		warp_barrier();
	}
	return good;
}

/* ----- elements ------------------------------------------------ */

/* The planes of the rest of a stream; those that are absent have no codes. */
template <int D> struct rest_planes {
	uint32_t at[format<D>::planes]; /* offsets in the payload */
	uint32_t n, absent;
};

/* Opens the planes of n elements; *at: where they begin, and then where layer 1 does. */
template <int D> WARP_FN rest_planes<D> rest_open(uint32_t *at, uint32_t n, uint32_t absent)
{
	rest_planes<D> r;
	r.n = n;
	r.absent = absent;
	UNROLL
	for (int i = 0; i < format<D>::planes; i++) {
		r.at[i] = *at;
		*at += absent >> i & 1 ? 0 : (plane_bytes(n, plane_bits<D>(i)) + 3) & ~3u;
	}
	return r;
}

template <int D>
WARP_FN code_plane rest_plane(const rest_planes<D> *r, const payload_memory *m, int i)
{
	return code_plane{ skip(m->p, r->at[i]), r->absent >> i & 1 ? 0 : r->n, plane_bits<D>(i) };
}

template <int D> WARP_FN bool rest_ended(const rest_planes<D> *r, const payload_memory *m)
{
	bool good = true;
	for (int i = 0; i < format<D>::planes; i++) {
		const code_plane plane = rest_plane<D>(r, m, i);
		good = plane_ends(&plane) && good;
	}
	return good;
}

/* The rest of four elements, in bytes: its low bits, and of f16 the three above them. */
struct four_rests {
	u32v low, high;
};

/* The rest of a lane's elements in quarter k of a row, of which the stream has all, and of whose
 * planes none is absent. */
template <int D>
WARP_FN four_rests rest_of(const rest_planes<D> *r, const payload_memory *m, uint32_t first,
                           uint32_t k)
{
	const u32v half = lanes() >> 4, w = lanes() & 15;
	four_rests x = { splat(0), splat(0) };
	if (D == 4)
		x.low = ldg(skip(m->words, r->at[0] / 4 + k % 2 * 16),
		            (half * 32 + w) + first / 8) >>
		                4 * (k / 2) &
		        0x0f0f0f0f;
	else
		x.low = ldg(skip(m->words, r->at[0] / 4 + k * 16), (half * 64 + w) + first / 4);
	if constexpr (D == 2) {
		const u32v two = ldg(skip(m->words, r->at[1] / 4), lanes() + first / 16);
		const u32v one = ldg(skip(m->words, r->at[2] / 4),
		                     (half * 8 + (w & 7)) + first / 32);
		x.high = (two >> 2 * k & 0x03030303) | (one >> (w >> 3) >> 2 * k & 0x01010101) << 2;
	}
	return x;
}

/* The rest of a lane's elements in quarter k of any row. */
template <int D>
WARP_FN four_rests last_rest_of(const rest_planes<D> *r, uint32_t first, uint32_t k)
{
	const payload_memory m = payload_memory_of();
	const u32v i = row_place(k) + first;
	const code_plane low = rest_plane<D>(r, &m, 0);
	four_rests x = { codes_at < D == 4 ? 4 : 8 > (&low, i), splat(0) };
	if constexpr (D == 2) {
		const code_plane two = rest_plane<D>(r, &m, 1), one = rest_plane<D>(r, &m, 2);
		x.high = codes_at<2>(&two, i) | codes_at<1>(&one, i) << 2;
	}
	return x;
}

/* Four elements, of their values, tops and rest. */
template <int D> WARP_FN u64v elements_of(u32v top, u32v values, const four_rests *r)
{
	constexpr uint32_t up = 8 - format<D>::e, mask = (0xff << up & 255) * 0x01010101u;
	const u32v high = bytes_less(top, up ? values << up & mask : values);
	if (D == 4) {
		const u32v y = high | r->low;
		return wide((y >> 1 & 0x7f7f7f7f) | (y << 7 & 0x80808080));
	}
	const u32v y = D == 2 ? high | r->high : high;
	const u32v upper = (y >> 1 & 0x7f7f7f7f) | (r->low << 7 & 0x80808080);
	const u32v lower = (r->low >> 1 & 0x7f7f7f7f) | (y << 7 & 0x80808080);
	return joined(bytes_of(lower, upper, splat(0x5140)), bytes_of(lower, upper, splat(0x7362)));
}

/* The elements of a stream, by a warp. Whether the stream was good. */
template <int D> WARP_FN bool layers_decode(uint32_t number)
{
	constexpr int size = format<D>::size;
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t n = uniform(stream_elements(o, number)), columns = uniform(o->columns);
	span<const uint32_t> tops = block_part<const uint32_t>(KVI_GPU_RING_WORDS, columns / 4 + 2);
	stream_rows<size> out = rows_open<size>(number, n);
	uint32_t at = o->stream[number].planes;
	const rest_planes<D> rest = rest_open<D>(&at, n, o->absent);
	layer_in in = layer_open(number, at, n, o->stream[number].counts, 1u << format<D>::e);
	for (uint32_t i = 0; i < n; i += ROW) {
		const u32v codes = layer_codes(&in, i);
		if (!rest.absent && rows_usual(&out))
			layer_row<true>(&in, codes, [&](uint32_t k, u32v values) {
				const lane_place place = row_lane<true>(&out.row, k);
				const four_rests r = rest_of<D>(&rest, &in.m, i, k);
				const u32v top = ld_byte_at(tops, place.channel);
				rows_put<true>(&out, k, &place, elements_of<D>(top, values, &r));
			});
		else
			layer_row<false>(&in, codes, [&](uint32_t k, u32v values) {
				const lane_place place = row_lane<false>(&out.row, k);
				const four_rests r = last_rest_of<D>(&rest, i, k);
				/* channels may be no multiple of 4 */
				const u32v c = place.channel & ~3u;
				const u32v top = funnel(ld_byte_at(tops, c),
				                        ld_byte_at(tops, c + 4),
				                        place.channel << 3);
				rows_put<false>(&out, k, &place, elements_of<D>(top, values, &r));
			});
		rows_next(&out);
	}
	return layer_ended(number, in.used) && rest_ended<D>(&rest, &in.m) &&
	       rows_good(&out, number);
}

#endif
