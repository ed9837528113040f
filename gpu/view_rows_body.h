/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * view_rows_body.h - elements of a stream without a mask on their way from registers to the view,
 * or from there, and their check (H64) on the same way
 *
 * A row is 512 elements in order. Of each quarter k of both of its halves lane l has 4 elements:
 * those from (l / 16) * 256 + k * 64 + (l % 16) * 4 on. With 2 bytes an element a row is a block of
 * XXH3 and 4 elements are a number of it; with 1 byte it is half a block, and lanes exchange.
 */
#ifndef KVI_GPU_VIEW_ROWS_BODY_H
#define KVI_GPU_VIEW_ROWS_BODY_H

#include "hash_body.h"
#include "stream_words_body.h"

constexpr uint32_t ROW = 512, QUARTER = 64;

/* Where a lane's 4 elements of a quarter are in their row. */
WARP_FN u32v row_place(uint32_t k)
{
	return (lanes() >> 4) * 256 + (lanes() & 15) * 4 + k * QUARTER;
}

/* The beginning of a row: its token and its channel; and what it takes to go on. */
struct row_position {
	uint32_t token, channel;
	uint32_t channels, inverse; /* inverse: 2^32 / channels, rounded up */
};

WARP_FN row_position row_begin(uint32_t token, uint32_t channels)
{
	return row_position{ token, 0, channels, 0xffffffff / channels + 1 };
}

/* The first element of a lane in a quarter: its token, from that of the row on, and channel. */
struct lane_place {
	u32v token, channel;
};

template <bool USUAL> WARP_FN lane_place row_lane(const row_position *r, uint32_t k)
{
	const u32v x = row_place(k) + r->channel;
	if (!USUAL && r->channels == 1) /* its inverse is 2^32 */
		return lane_place{ x, splat(0) };
	const u32v token = product_high32(x, splat(r->inverse));
	return lane_place{ token, x - token * r->channels };
}

WARP_FN void row_next(row_position *r)
{
	const uint32_t x = r->channel + ROW;
	const uint32_t over = r->channels == 1 ? x : (uint32_t)((uint64_t)x * r->inverse >> 32);
	r->token += over;
	r->channel = x - over * r->channels;
}

/* ----- checks ------------------------------------------------ */

/* XXH3 of a stream's bytes, a row at a time, of more than 240 and a multiple of 64. */
template <int SIZE> struct row_check {
	u64v acc;
	u64v products, values; /* of the row */
	u64v differs;          /* products of the last stripe, if another one were behind it */
	u32v held;             /* one byte an element: the quarter that has no partner yet */
	uint32_t stripe, last; /* of the row; the last one of the stream */
};

/* The stripe of a lane's number in a row: its quarter k, or of single bytes its pair of them. */
template <int SIZE> WARP_FN u32v row_stripe(uint32_t k)
{
	if (SIZE == 2)
		return (lanes() >> 4) * 8 + (lanes() >> 3 & 1) + k * 2;
	return (lanes() >> 4) * 4 + (lanes() & 1) + k * 2;
}
/* The accumulator of a lane. */
template <int SIZE> WARP_FN u32v row_accumulator(void)
{
	return SIZE == 2 ? lanes() & 7 : lanes() >> 1 & 7;
}

WARP_FN span<const uint64_t> secret_words(void)
{
	return span_at<const uint64_t>((uint64_t)(uintptr_t)hash_secret, 24);
}

template <int SIZE> WARP_FN row_check<SIZE> check_open(uint32_t elements)
{
	row_check<SIZE> h;
	h.acc = shuffle64(hash_start(), row_accumulator<SIZE>());
	h.products = h.values = h.differs = splat64(0);
	h.held = splat(0);
	h.stripe = 0;
	h.last = elements * SIZE / HASH_STRIPE - 1;
	return h;
}

/* Adds a number of each lane, of number k of the row. */
template <int SIZE, bool LAST> WARP_FN void check_number(row_check<SIZE> *h, uint32_t k, u64v v)
{
	u64v key = ld64(secret_words(), row_stripe<SIZE>(0) + row_accumulator<SIZE>() +
	                                        (k * 2 + (SIZE == 2 ? 0 : h->stripe % 16)));
	if (LAST) {
		const u32v at = row_stripe<SIZE>(k) + h->stripe;
		const u32v i = row_accumulator<SIZE>() + 15;
		const u64v last = ld64(secret_words(), i) >> (uint64_t)8 |
		                  ld64(secret_words(), i + 1) << (uint64_t)56;
		const boolv on = at <= h->last, ends = at == h->last;
		const u64v other = key ^ v;
		key = select64(ends, last, key) ^ v;
		const u64v less = product(low_half(key), low_half(key >> (uint64_t)32));
		h->differs += select64(
			ends, product(low_half(other), low_half(other >> (uint64_t)32)) - less,
			splat64(0));
		h->products += select64(on, less, splat64(0));
		h->values += select64(on, v, splat64(0));
		return;
	}
	key ^= v;
	h->products += product(low_half(key), low_half(key >> (uint64_t)32));
	h->values += v;
}

/* Four elements of each lane, of quarter k. */
template <bool LAST> WARP_FN void check_add(row_check<2> *h, uint32_t k, u64v v)
{
	check_number<2, LAST>(h, k, v);
}
template <bool LAST> WARP_FN void check_add(row_check<1> *h, uint32_t k, u64v v)
{
	const boolv odd = (lanes() & 1) != 0;
	if (k % 2 == 0) {
		h->held = low_half(v);
		return;
	}
	/* even lanes take a stripe of the quarter before, odd ones one of this */
	const u32v mine = select(odd, low_half(v), h->held);
	const u32v other = shuffle(select(odd, h->held, low_half(v)), lanes() ^ 1);
	check_number<1, LAST>(h, k / 2,
	                      wide(select(odd, other, mine)) | wide(select(odd, mine, other))
	                                                               << (uint64_t)32);
}

/* The sum of the lanes of each accumulator. */
template <int SIZE> WARP_FN u64v row_total(u64v v)
{
	v += shuffle64_xor(v, SIZE == 2 ? 8 : 1);
	return v + shuffle64_xor(v, 16);
}

/* Ends a row; blocks that have another one behind them are scrambled. Returns what the row adds to
 * the accumulators. */
template <int SIZE> WARP_FN u64v check_row(row_check<SIZE> *h, bool last)
{
	const u64v sum = row_total<SIZE>(h->products + shuffle64_xor(h->values, SIZE == 2 ? 1 : 2));
	h->acc += sum;
	h->products = h->values = splat64(0);
	h->stripe += SIZE * ROW / HASH_STRIPE;
	if (!last && (SIZE == 2 || h->stripe % 16 == 0)) {
		const u64v scramble = ld64(secret_words(), row_accumulator<SIZE>() + 16);
		h->acc = (h->acc ^ h->acc >> (uint64_t)47 ^ scramble) * PRIME32_1;
	}
	return sum;
}

template <int SIZE> WARP_FN uint64_t check_end(const row_check<SIZE> *h)
{
	return hash_low(SIZE == 2 ? h->acc : shuffle64(h->acc, (lanes() & 7) * 2),
	                (h->last + 1) * HASH_STRIPE);
}

/* ----- views ------------------------------------------------ */

/* How 4 elements lie in a view. */
struct view_shape {
	uint32_t inverse; /* 2^32 / channels of a head, rounded up, for numbers below 2^16 */
	uint32_t more;    /* bytes between heads; of views with `wide` */
	bool wide;        /* together, at multiples of what they take */
};

template <int SIZE> WARP_FN view_shape view_shape_of(const kvi_gpu_chunk *c)
{
	const kvi_gpu_view *v = &c->view;
	const uint32_t hc = c->head_channels;
	view_shape s = { 0xffffffff / hc + 1, (uint32_t)v->head_stride - hc * SIZE, false };
	s.wide = v->elem_stride == SIZE && hc % 4 == 0 && v->head_stride < 1u << 18 &&
	         (v->base | v->page_stride | v->token_stride | v->head_stride) % (4 * SIZE) == 0;
	return s;
}

/* The address of a token in the view; 0: it has none. */
WARP_FN u64v token_address(u32v token)
{
	return ld64(span_at<const uint64_t>((uint64_t)(uintptr_t)block_of()->token, KVI_GPU_TOKENS),
	            token);
}
WARP_FN span<uint8_t> view_memory(void)
{
	return span_at<uint8_t>(block_of()->job.view.base, block_of()->job.view.bytes);
}

/* Where 4 elements from a channel on are in a token of a wide view. */
template <int SIZE> WARP_FN u64v view_group(const view_shape *s, u64v token, u32v channel)
{
	u32v at = channel * SIZE;
	if (s->more)
		at += product_high32(channel, splat(s->inverse)) * s->more;
	return token + wide(at);
}
/* Where an element is in a token of any view. */
WARP_FN u64v view_element(const view_shape *s, u64v token, u32v channel)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	const u32v head = c->head_channels == 1 ? channel
	                                        : product_high32(channel, splat(s->inverse));
	return token + wide(head) * c->view.head_stride +
	       wide(channel - head * c->head_channels) * c->view.elem_stride;
}

/* Writes 4 elements of each lane from a channel on to the token at an address; 0: to none. The view
 * is wide. */
template <int SIZE>
WARP_FN void view_put_wide(const view_shape *s, u64v token, u32v channel, u64v v, boolv on)
{
	st_group<SIZE>(view_memory(), view_group<SIZE>(s, token, channel), v,
	               on & nonzero64(token));
}

/* Rows of any view, likewise. */
template <int SIZE>
WARP_FN void view_put(const view_shape *s, u64v token, u32v channel, u64v v, boolv on)
{
	if (s->wide)
		return view_put_wide<SIZE>(s, token, channel, v, on);
	ROLLED
	for (uint32_t q = 0; q < 4; q++) {
		st_element<SIZE>(view_memory(), view_element(s, token, channel + q), v,
		                 on & nonzero64(token));
		v >>= (uint64_t)(8 * SIZE);
	}
}

/* Reads 4 elements of each lane, likewise. */
template <int SIZE> WARP_FN u64v view_get(const view_shape *s, u64v token, u32v channel, boolv on)
{
	if (s->wide)
		return ld_group<SIZE>(view_memory(), view_group<SIZE>(s, token, channel), on);
	u64v v = splat64(0);
	ROLLED
	for (uint32_t q = 0; q < 4; q++)
		v |= wide(ld_element<SIZE>(view_memory(), view_element(s, token, channel + q), on))
		     << (uint64_t)(8 * SIZE * q);
	return v;
}

/* ----- streams ------------------------------------------------ */

/* Where the rows of a stream go, or are: in the view, with their check, or (direct false) in
 * `packed`. */
template <int SIZE> struct stream_rows {
	row_position row;
	row_check<SIZE> check;
	view_shape view;
	uint64_t packed;
	uint32_t left; /* elements from the row on */
	bool direct;
};

/* Stream `number` of the chunk in hand, of n elements. */
template <int SIZE> WARP_FN stream_rows<SIZE> rows_open(uint32_t number, uint32_t n)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t token = number * o->stream_tokens;
	return stream_rows<SIZE>{ row_begin(token, uniform(o->columns)),
		                  check_open<SIZE>(n),
		                  view_shape_of<SIZE>(c),
		                  c->packed + (uint64_t)token * o->columns * SIZE,
		                  n,
		                  uniform(block_of()->direct) != 0 };
}

/* Whether the row is a usual one: to a wide view, and others are behind it. */
template <int SIZE> WARP_FN bool rows_usual(const stream_rows<SIZE> *out)
{
	return out->direct && out->view.wide && out->left > ROW;
}

/* The address of the token of a lane of a row. */
template <bool USUAL, int SIZE>
WARP_FN u64v row_token(const stream_rows<SIZE> *rows, const lane_place *place, boolv on)
{
	const u32v token = USUAL ? place->token : select(on, place->token, splat(0));
	return token_address(token + rows->row.token);
}

/* Gets the 4 elements of each lane of quarter k; behind the last one there is anything. */
template <bool USUAL, int SIZE>
WARP_FN u64v rows_get(const stream_rows<SIZE> *rows, uint32_t k, const lane_place *place)
{
	const boolv on = USUAL ? lanes() < 32 : row_place(k) < rows->left;
	if (!USUAL && !rows->direct)
		return ld_group<SIZE>(span_at<uint8_t>(rows->packed, (rows->left + 3) * SIZE),
		                      wide(row_place(k) * SIZE) + rows->packed, on);
	const u64v token = row_token<USUAL>(rows, place, on);
	if (USUAL)
		return ld_group<SIZE>(view_memory(),
		                      view_group<SIZE>(&rows->view, token, place->channel), on);
	return view_get<SIZE>(&rows->view, token, place->channel, on);
}

/* Puts the 4 elements of each lane of quarter k. */
template <bool USUAL, int SIZE>
WARP_FN void rows_put(stream_rows<SIZE> *out, uint32_t k, const lane_place *place, u64v v)
{
	const boolv on = USUAL ? lanes() < 32 : row_place(k) < out->left;
	if (!USUAL && !out->direct) {
		/* up to 3 elements more than there are: work memory has 16 bytes more */
		st_group<SIZE>(span_at<uint8_t>(out->packed, (out->left + 3) * SIZE),
		               wide(row_place(k) * SIZE) + out->packed, v, on);
		return;
	}
	check_add<!USUAL>(&out->check, k, v);
	const u64v to = row_token<USUAL>(out, place, on);
	if (USUAL)
		view_put_wide<SIZE>(&out->view, to, place->channel, v, on);
	else
		view_put<SIZE>(&out->view, to, place->channel, v, on);
}

/* Goes to the next row. Returns what this one adds to the accumulators of a check. */
template <int SIZE> WARP_FN u64v rows_next(stream_rows<SIZE> *out)
{
	const bool last = out->left <= ROW;
	u64v sum = splat64(0);
	if (out->direct)
		sum = check_row<SIZE>(&out->check, last);
	else
		out->packed += ROW * SIZE;
	out->left -= last ? 0 : ROW;
	row_next(&out->row);
	return sum;
}

/* Behind the last row: whether what was written has its check; of `packed` that is not known. */
template <int SIZE> WARP_FN bool rows_good(const stream_rows<SIZE> *out, uint32_t number)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	return !out->direct ||
	       check_end(&out->check) == (o->n_streams > 1 ? o->check[number] : o->raw_check);
}

#endif
