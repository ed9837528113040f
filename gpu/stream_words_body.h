/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_words_body.h - the words and states of a stream on their way in (spec rans 1, 2) */
#ifndef KVI_GPU_STREAM_WORDS_BODY_H
#define KVI_GPU_STREAM_WORDS_BODY_H

#include "device_job.h"
#include "warp.h"

constexpr uint32_t STATE_LOW = 65536, SLOTS = 2048;

/* A format of elements (spec 4.1): mantissa and exponent bits, bytes, planes of codec 4. */
template <int DTYPE> struct format;
template <> struct format<2> {
	static constexpr int m = 10, e = 5, size = 2, planes = 3;
};
template <> struct format<3> {
	static constexpr int m = 7, e = 8, size = 2, planes = 1;
};
template <> struct format<4> {
	static constexpr int m = 3, e = 4, size = 1, planes = 1;
};

/* An unsigned number of as many bytes as an element. */
template <int SIZE> struct element_of;
template <> struct element_of<1> {
	typedef uint8_t type;
};
template <> struct element_of<2> {
	typedef uint16_t type;
};
template <> struct element_of<4> {
	typedef uint32_t type;
};

/* State that all warps of a block share, and the memory behind it. */
WARP_FN kvi_gpu_block *block_of(void)
{
	return (kvi_gpu_block *)block_memory().p;
}
constexpr uint32_t BLOCK_WORDS = (sizeof(kvi_gpu_block) + 15) / 16 * 4;
template <typename T> WARP_FN span<T> block_part(uint32_t first, uint32_t n)
{
	return part<T>(block_memory(), BLOCK_WORDS + first, n);
}

/* n low bits; n below 32. */
WARP_FN u32v low_bits(u32v v, u32v n)
{
	return v & ((splat(1) << n) - 1);
}

/* The elements of a stream. */
WARP_FN uint32_t stream_elements(const kvi_gpu_opened *o, uint32_t number)
{
	const uint32_t rows = o->rows - number * o->stream_tokens;
	return (rows < o->stream_tokens ? rows : o->stream_tokens) * o->columns;
}

/* The next 64 words: word i of them in half i / 32 of lane i % 32; then 32 more, to be there when
 * they are wanted. A word behind the last one is 0 (spec rans 1). */
struct words_in {
	span<const uint16_t> p;
	uint32_t n, at, off; /* at: of `next`; off: used ones of the window, below 32 */
	u32v window, next;
};

WARP_FN u32v words_load(const words_in *w, uint32_t at)
{
	u32v i = lanes() + at;
	return ldg_if(w->p, i, i < w->n);
}

WARP_FN void words_open(words_in *w, uint64_t address, uint32_t n)
{
	w->p = span_at<const uint16_t>(address, n);
	w->n = n;
	w->off = 0;
	w->window = words_load(w, 0) | words_load(w, 32) << 16;
	w->next = words_load(w, 64);
	w->at = 64;
}

/* How many words were consumed. */
WARP_FN uint32_t words_used(const words_in *w)
{
	return w->at - 64 + w->off;
}

/* Lanes below 2^16, of `among`, take a word each, in ascending order. */
WARP_FN u32v renorm(words_in *w, u32v st, boolv need)
{
	uint32_t mask = mask_of(need);
	u32v i = below(mask) + w->off;
	u32v both = shuffle(w->window, i);
	u32v with = bytes_of(both, st, (i >> 5) * 0x22 + 0x5410); /* st << 16 | word */
	w->off += count(mask);
	return select(need, with, st);
}

/* Before a renorm: all words that it may take are in the window. */
WARP_FN void words_refill(words_in *w)
{
	if (w->off >= 32) {
		w->off -= 32;
		w->window = w->window >> 16 | w->next << 16;
		w->at += 32;
		w->next = words_load(w, w->at);
	}
}

/* Whether a stream ended as it must (spec rans 1). */
WARP_FN bool stream_ended(const words_in *w, u32v st)
{
	return words_used(w) == w->n && mask_of(st != STATE_LOW) == 0;
}

/* Channels of the elements of a stream, in order: entries of a ring of R elements repeat, and the
 * memory has 128 entries more. */
WARP_FN uint32_t ring_length(uint32_t columns)
{
	return (127 + columns) / columns * columns;
}

#endif
