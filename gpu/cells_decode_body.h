/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cells_decode_body.h - decodes streams of codec 16 (spec cells), a warp a stream
 *
 * What an element's code means depends on its channel and token, but not on the state: it is found
 * a step ahead, while the element before it is on its way.
 */
#ifndef KVI_GPU_CELLS_DECODE_BODY_H
#define KVI_GPU_CELLS_DECODE_BODY_H

#include "grid_contexts_body.h"
#include "layers_decode_body.h"

constexpr uint32_t CELL_CODE_BITS = 4, CELL_MORE = 15, CELL_ROW = 32, CELL_FINE = 12;
constexpr uint32_t CELL_ESCAPE = 1u << 5; /* the entry of cells_shared.code of an escape */
constexpr uint32_t CELL_REACH = 16; /* classes of a rotated channel below the larger of both */

/* ----- tables ------------------------------------------------ */

/*
 * What a block has in shared memory. code: of each class and code LO << 16, 2^NB - 1 in bits 8 to
 * 13, NB in bits 0 to 4, or CELL_ESCAPE. turn: of each angle 2 cosine, and 2 sine << 16, in
 * 1/32768. position: of each remaining token, and zeros for lanes behind the last one.
 */
constexpr uint32_t CELL_POSITIONS = KVI_GPU_TOKENS + 32;
static_assert(KVI_GPU_CELL_SHARED == KVI_GPU_CELL_WORDS + CELL_POSITIONS, "tables of codec 16");
struct cells_shared {
	span<uint32_t> words, code, turn, position;
	span<int8_t> scale;
};

WARP_FN cells_shared cells_shared_of(span<uint32_t> words)
{
	constexpr uint32_t turn = KVI_GPU_CELL_CODES, scale = turn + KVI_GPU_ANGLES;
	return cells_shared{ words, part<uint32_t>(words, 0, KVI_GPU_CELL_CODES),
		             part<uint32_t>(words, turn, KVI_GPU_ANGLES),
		             part<uint32_t>(words, KVI_GPU_CELL_WORDS, CELL_POSITIONS),
		             part<int8_t>(words, scale, KVI_GPU_SCALES) };
}

/* Phase 0, by all warps of a block; codes alone where nothing rotates. */
WARP_FN void cells_tables(const cells_shared *t, const kvi_gpu_chunk *c, const kvi_gpu_opened *o,
                          const kvi_gpu_tables *tables, bool rotates, uint32_t warp, uint32_t warps)
{
	const uint32_t n = rotates ? KVI_GPU_CELL_WORDS : KVI_GPU_CELL_CODES;
	span<const uint32_t> from = span_at<const uint32_t>(tables->cells, KVI_GPU_CELL_WORDS);
	for (uint32_t i = warp * 32; i < n; i += warps * 32)
		st_if(t->words, lanes() + i, ldg_if(from, lanes() + i, lanes() + i < n),
		      lanes() + i < n);
	if (!rotates)
		return;
	span<const uint16_t> token = span_at<const uint16_t>((uint64_t)(uintptr_t)o->token,
	                                                     KVI_GPU_TOKENS);
	span<const int32_t> positions = span_at<const int32_t>(c->positions, c->tokens);
	for (uint32_t i = warp * 32; i < CELL_POSITIONS; i += warps * 32) {
		const boolv on = lanes() + i < o->rows;
		st(t->position, lanes() + i, ldg_if(positions, ld_if(token, lanes() + i, on), on));
	}
}

/* ----- contexts ------------------------------------------------ */

/* The context of elements: M, the exponent of the grid, the class (spec cells 2). */
struct cell_context {
	u32v mean, base, class_;
};

WARP_FN u32v saturated(u32v v)
{
	return max_signed(min_signed(v, splat(32767)), splat(0u - 32768));
}

/* A mean in cells that are 2^n times as wide; n below 16. */
WARP_FN u32v widened(u32v mean, u32v n)
{
	return sar(mean + ((splat(1) << n) >> 1), n);
}

/* The context of elements of class k, whose mean is in 1/16 of 2^top. */
template <int D> WARP_FN cell_context cell_context_of(u32v mean, u32v top, u32v k)
{
	constexpr uint32_t m = grid_format<D>::m, emin = grid_format<D>::least;
	const u32v q = sar(k, 2), grown = saturated(mean + sar(mean, m + 1));
	u32v cell = sar(((grown << (top - q)) + 1) << 16, 17);
	const u32v size = max_signed(cell, 0 - cell) + 64;
	u32v wider = max_signed(high_bit(size) - m, splat(0));
	u32v g = q + 124 + wider;
	cell = widened(cell, wider);
	if (grid_format<D>::subnormals) {
		/* a cell is below 2^(m + 1) now: 2^15 times as wide, it is 0 */
		const u32v least = splat(BIAS + 15 - emin - m);
		const u32v deeper = min_signed(max_signed(least - g, splat(0)), splat(15));
		cell = widened(cell, deeper);
		wider += deeper;
		g = max_signed(g, least);
	}
	const u32v base = min_signed(g - (BIAS - emin - m), splat((1u << (15 - m)) - 1));
	return cell_context{ cell, base, max_signed((k & 3) + CELL_FINE - wider * 4, splat(0)) };
}

/* Where that is: in shared memory behind the rows of warps, or in work memory. */
template <typename T>
WARP_FN span<T> cells_channels_of(const kvi_gpu_chunk *c, const kvi_gpu_opened *o)
{
	const uint32_t n = o->columns * 4;
	return c->contexts ? span_at<T>(c->contexts, n)
	                   : block_part<T>(KVI_GPU_CELL_SHARED + KVI_GPU_CELL_ROWS, n);
}

/*
 * Phase 0, by all warps of a block: of each remaining channel what its contexts are made of, 16
 * bytes. Word 0: its mean and << 16 that of the other one of its pair; words 2 and 3: frequency.
 * Word 1: the larger class << 16, bits 9 to 15: by how much that of b is smaller, from bit 2 on the
 * row of the scales, bit 1: it is b, bit 0: it rotates. Where nothing rotates, 4 bytes: M, class
 * << 16, base << 24.
 */
template <int D>
WARP_FN void cells_channels(const kvi_gpu_chunk *c, const kvi_gpu_opened *o,
                            const kvi_gpu_params *p, uint32_t warp, uint32_t warps)
{
	span<const int16_t> mean = span_at<const int16_t>(p->mean, p->channels);
	span<const int16_t> k = span_at<const int16_t>(p->k, p->channels);
	span<uint32_t> to = cells_channels_of<uint32_t>(c, o);
	for (uint32_t i = warp * 32; i < o->columns; i += warps * 32) {
		const u32v at = lanes() + i;
		const boolv on = at < o->columns;
		const u32v channel = column_channel(c, o, at, on);
		if (!p->rotary) {
			const u32v class_ = ldg_if(k, channel, on);
			const cell_context x = cell_context_of<D>(ldg_if(mean, channel, on),
			                                          sar(class_, 2), class_);
			st_if(to, at, (x.mean & 0xffff) | x.class_ << 16 | x.base << 24, on);
			continue;
		}
		const channel_pair x = channel_pair_of(p, mean, k, channel, on);
		const u32v apart = x.k_a - x.k_b, top = max_signed(x.k_a, x.k_b);
		const u32v row = max_signed(min_signed(apart, splat(32)), splat(0u - 32)) + 32;
		const u32v less = min_signed(max_signed(apart, splat(0)), splat(127));
		const u32v flags = select(x.second, splat(2), splat(0)) |
		                   select(x.rotates, splat(1), splat(0));
		quads q;
		q.v[0] = (x.own & 0xffff) | x.other << 16;
		q.v[1] = top << 16 | less << 9 | row << 2 | flags;
		q.v[2] = low_half(x.frequency);
		q.v[3] = low_half(x.frequency >> (uint64_t)32);
		st_quads_if(to, at, q, on);
	}
}

/* mean * factor, in 1/32768. */
WARP_FN u32v turned(u32v mean, u32v factor)
{
	return sar(mean * factor + (1u << 14), 15);
}

/* The context of channels that may rotate, of tokens at a position. */
template <int D>
WARP_FN cell_context rotated_context(const cells_shared *t, const quads *channel, u32v position)
{
	const u32v means = channel->v[0], x = channel->v[1], low = channel->v[2];
	/* of 64 bits of the turn the high ones, and of these 12 */
	const u32v turn = product_high32(low, position) + channel->v[3] * position -
	                  (low & sar(position, 31));
	const u32v angle = (turn + (1u << 19)) >> 20, both = ld(t->turn, angle);
	const u32v own = sar(means << 16, 16), sign = (x & 2) - 1;
	const u32v mean = saturated(turned(own, sar(both << 16, 16)) +
	                            sign * turned(sar(means, 16), sar(both, 16)));
	const u32v top = sar(x, 16);
	const u32v scale = ld(t->scale, (x << 4 & 0x1fe0) ^ (angle >> 5 & 63));
	const u32v below_top = min_signed((x >> 9 & 127) - scale, splat(CELL_REACH));
	return cell_context_of<D>(select((x & 1) != 0, mean, own), sar(top, 2), top - below_top);
}

/* ----- streams ------------------------------------------------ */

/* A stream on its way, and how many of its second codes and escapes were taken; the column and row
 * of the elements whose context is next, and how far it is to those of the next step. */
struct cells_in {
	code_plane codes;
	span<const uint8_t> second; /* a ring of them */
	span<const uint16_t> escapes;
	uint32_t n_second, n_escapes, made, taken, escaped; /* made: second ones in the ring */
	uint32_t warp;
	span<const uint32_t> channels;
	uint32_t columns, step, step_rows;
	u32v column, row;
};

/* Elements a step ahead: their entry of cells_shared.code, M + LO, and the exponent. */
struct cells_ahead {
	u32v code, mean, base;
};

/* Contexts of columns and rows. */
template <int D, bool ROTATES>
WARP_FN cell_context cell_context_at(const cells_shared *t, span<const uint32_t> channels,
                                     u32v column, u32v row)
{
	if (ROTATES) {
		const quads q = ld_quads(channels, column);
		return rotated_context<D>(t, &q, ld(t->position, row));
	}
	const u32v packed = ld(channels, column);
	return cell_context{ sar(packed << 16, 16), packed >> 24, packed >> 16 & 255 };
}

/* Contexts of the next 32 elements. */
template <int D, bool ROTATES>
WARP_FN cell_context cells_context(cells_in *in, const cells_shared *t)
{
	const cell_context x = cell_context_at<D, ROTATES>(t, in->channels, in->column, in->row);
	in->column += in->step;
	const boolv over = in->column >= in->columns;
	in->column = select(over, in->column - in->columns, in->column);
	in->row += select(over, splat(1), splat(0)) + in->step_rows;
	return x;
}

/* Codes `first` to first + 31, a multiple of 32, of a plane that has one at least; 0 where it has
 * none. */
WARP_FN u32v cell_codes(const code_plane *plane, uint32_t first)
{
	const uint32_t begin = first / LAYER_BLOCK * LAYER_BLOCK, left = plane->n - begin;
	const uint32_t last = ((left < LAYER_BLOCK ? left : LAYER_BLOCK) - 1) / 2;
	const u32v i = lanes() + (first - begin);
	const boolv high = i > last;
	const u32v at = min_signed(select(high, i - (last + 1), i), splat(last));
	const u32v byte = ldg(plane->p, at + begin / 2);
	return select(i < left, select(high, byte >> 4, byte) & 15, splat(0));
}

/* Memory of a warp: a row of elements, and a ring of second codes that takes a block at a time. */
constexpr uint32_t CELL_RING = 2 * LAYER_BLOCK, CELL_WARP = (2 * ROW + CELL_RING) / 4;
static_assert(KVI_GPU_CELL_ROWS == KVI_GPU_STREAMS * CELL_WARP, "shared memory");
WARP_FN uint32_t cells_memory(uint32_t warp)
{
	return KVI_GPU_CELL_SHARED + warp * CELL_WARP;
}
template <typename T> WARP_FN span<T> second_ring(uint32_t warp)
{
	return part<T>(block_part<uint32_t>(cells_memory(warp), CELL_WARP), ROW / 2, CELL_RING);
}

/* Sets the ring to zeros: a damaged stream takes codes that it does not have, and what another
 * chunk has left there is no code. */
WARP_FN void second_clear(uint32_t number)
{
	span<uint32_t> words = part<uint32_t>(block_part<uint32_t>(cells_memory(number), CELL_WARP),
	                                      ROW / 2, CELL_RING / 4);
	warp_barrier();
	for (uint32_t i = 0; i < CELL_RING / 4; i += 32)
		st(words, lanes() + i, splat(0));
	warp_barrier();
}

/* The second codes of a stream. */
WARP_FN code_plane second_plane(uint32_t number)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const kvi_gpu_stream *s = &o->stream[number];
	return plane_at(block_of()->job.payload + s->planes +
	                        plane_bytes(stream_elements(o, number), CELL_CODE_BITS),
	                s->n_second, CELL_CODE_BITS);
}

/* Unpacks the block of second codes from number `made` on. */
WARP_CALL void second_fill(uint32_t number, uint32_t made)
{
	const code_plane plane = second_plane(number);
	span<uint8_t> ring = second_ring<uint8_t>(number);
	warp_barrier();
	for (uint32_t i = made; i < plane.n && i < made + LAYER_BLOCK; i += 32)
		st(ring, (lanes() + i) & (CELL_RING - 1), cell_codes(&plane, i));
	warp_barrier();
}

/* Elements `first` to first + 31, of which there is one at least. */
template <int D, bool ROTATES>
WARP_FN cells_ahead cells_look(cells_in *in, const cells_shared *t, uint32_t first)
{
	const cell_context x = cells_context<D, ROTATES>(in, t);
	u32v code = cell_codes(&in->codes, first);
	const boolv more = code == CELL_MORE;
	const uint32_t mask = mask_of(more);
	if (in->made < in->n_second && in->made - in->taken < 32) {
		second_fill(in->warp, in->made);
		in->made += LAYER_BLOCK;
	}
	const u32v at = below(mask) + in->taken;
	code += ld_if(in->second, at & (CELL_RING - 1), more);
	in->taken += count(mask);
	const u32v entry = ld(t->code, x.class_ * CELL_ROW + code);
	return cells_ahead{ entry, x.mean + sar(entry, 16), x.base };
}

/* One step. Returns the elements; *used: with bit 4, 5 or 6, an element has too many raw bits. */
template <int D, bool ALL>
WARP_FN u32v cells_step(words_in *w, u32v *state, cells_in *in, const cells_ahead *x, boolv active,
                        u32v *used)
{
	constexpr uint32_t m = grid_format<D>::m;
	u32v s = shift_right_modulo(*state, x->code);
	const u32v cell = x->mean + (*state & x->code >> 8 & 63);
	const u32v minus = sar(cell, 31), zero_or_more = cell ^ minus;
	/* zeros and the one behind them, where the cell begins at zero */
	const u32v zeros = select(zero_or_more == 0, low_zeros(s | 0x10000) + 1, splat(0));
	s >>= zeros;
	const u32v j = max_signed(zero_or_more, splat(1));
	const u32v n = max_signed(m - high_bit(j), splat(0)), skipped = zeros + n;
	const u32v full = (j << n) | low_bits(s, n);
	u32v out = ((((x->base - skipped) << m) + full) & 0x7fff) | (minus & 0x8000);
	u32v bits = x->code + skipped;
	s >>= n;
	const boolv escape = x->code == CELL_ESCAPE;
	const uint32_t mask = mask_of(escape);
	if (mask || !ALL) { /* rare */
		const u32v at = below(mask) + in->escaped;
		out = select(escape, ldg_if(in->escapes, at, escape & (at < in->n_escapes)), out);
		in->escaped += count(mask);
		const boolv idle = ALL ? escape : escape | !active;
		s = select(idle, *state, s);
		bits = select(idle, splat(0), bits);
	}
	*used |= bits;
	*state = renorm(w, s, s < STATE_LOW);
	words_refill(w);
	return out;
}

/* Opens a stream of n elements. */
WARP_FN cells_in cells_open(uint32_t number, uint32_t n)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	const kvi_gpu_opened *o = &block_of()->opened;
	const kvi_gpu_stream *s = &o->stream[number];
	cells_in in;
	in.codes = plane_at(c->payload + s->planes, n, CELL_CODE_BITS);
	second_clear(number);
	in.second = second_ring<const uint8_t>(number);
	in.escapes = span_at<const uint16_t>(c->payload + s->escapes, s->n_escapes);
	in.n_second = uniform(s->n_second);
	in.n_escapes = s->n_escapes;
	in.made = in.taken = in.escaped = 0;
	in.warp = number;
	in.channels = cells_channels_of<const uint32_t>(c, o);
	in.columns = uniform(o->columns);
	in.step = uniform(32 % o->columns);
	in.step_rows = uniform(32 / o->columns);
	in.column = lanes() % o->columns;
	in.row = lanes() / o->columns + number * o->stream_tokens;
	return in;
}

/* Gives a row of elements, which lanes have put into shared memory, to the view. */
WARP_FN void cells_row(stream_rows<2> *out, uint32_t number)
{
	span<const uint64_t> from = part<const uint64_t>(
		block_part<uint32_t>(cells_memory(number), CELL_WARP), 0, ROW / 4);
	warp_barrier();
	if (rows_usual(out)) {
		UNROLL
		for (uint32_t k = 0; k < 4; k++) {
			const lane_place place = row_lane<true>(&out->row, k);
			rows_put<true>(out, k, &place, ld64(from, row_place(k) >> 2));
		}
	} else {
		ROLLED
		for (uint32_t k = 0; k < 4; k++) {
			const lane_place place = row_lane<false>(&out->row, k);
			rows_put<false>(out, k, &place, ld64(from, row_place(k) >> 2));
		}
	}
	rows_next(out);
	warp_barrier();
}

/* The elements of a stream, by a warp. Whether the stream was good. */
template <int D, bool ROTATES> WARP_FN bool cells_decode(uint32_t number)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const kvi_gpu_stream *stream = &o->stream[number];
	const uint64_t payload = block_of()->job.payload;
	const cells_shared t = cells_shared_of(block_part<uint32_t>(0, KVI_GPU_CELL_SHARED));
	const uint32_t n = uniform(stream_elements(o, number)), last = (n - 1) / 32 * 32;
	span<uint16_t> row = part<uint16_t>(block_part<uint32_t>(cells_memory(number), CELL_WARP),
	                                    0, ROW);
	stream_rows<2> out = rows_open<2>(number, n);
	cells_in in = cells_open(number, n);
	words_in w;
	words_open(&w, payload + stream->words, uniform(stream->n_words));
	u32v s = ldg(span_at<const uint32_t>(payload + stream->states, 32), lanes());
	u32v used = splat(0);
	cells_ahead next = cells_look<D, ROTATES>(&in, &t, 0);
	for (uint32_t first = 0; first < n; first += ROW) {
		const bool ends = first + ROW >= n;
		const uint32_t end = ends ? last : first + ROW;
		UNROLL_TWICE
		for (uint32_t i = first; i < end; i += 32) {
			const cells_ahead x = next;
			next = cells_look<D, ROTATES>(&in, &t, i + 32);
			st(row, lanes() + (i - first),
			   cells_step<D, true>(&w, &s, &in, &x, lanes() < 32, &used));
		}
		if (ends)
			st(row, lanes() + (last - first),
			   cells_step<D, false>(&w, &s, &in, &next, lanes() + last < n, &used));
		cells_row(&out, number);
	}
	const code_plane second = second_plane(number);
	return stream_ended(&w, s) && !any_of(used & 0x70) && in.taken == in.n_second &&
	       in.escaped == in.n_escapes && plane_ends(&in.codes) && plane_ends(&second) &&
	       rows_good(&out, number);
}

#endif
