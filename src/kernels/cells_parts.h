/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_parts.h - codes, and the parts of a stream, as all kernels of codec cells take them */
#ifndef KVI_CELLS_PARTS_H
#define KVI_CELLS_PARTS_H

#include <string.h>

#include "cells.h"
#include "layers_codes.h"
#include "util/bytes.h"

/* Sizes in short. */
enum {
	MORE = KVI_CELLS_MORE,
	ESCAPE = KVI_CELLS_ESCAPE,
	CODE_BITS = 4,
	HALF_BLOCK = BLOCK / 2 /* codes of 4 bits in the low halves of a full block */
};

/* Unpacks a block of n codes of 4 bits, and adds `more`, at most 15, to each. */
static inline void unpack_codes(const uint8_t *block, size_t n, unsigned more, uint8_t *codes)
{
	const size_t low = (n + 1) / 2; /* codes in low halves of bytes */
	for (unsigned shift = 0; shift < 2 * CODE_BITS; shift += CODE_BITS) {
		const size_t end = shift ? n - low : low;
		size_t i = 0;
		for (; i + WORD <= end; i += WORD)
			kvi_store64(codes + i,
			            (kvi_load64(block + i) >> shift & BYTES(15)) + BYTES(more));
		for (; i < end; i++)
			codes[i] = (uint8_t)((block[i] >> shift & 15) + more);
		codes += low;
	}
}

/* The second codes of a stream as numbers from KVI_CELLS_MORE on, in its work memory. Returns their
 * begin. */
static inline const uint8_t *second_codes(const struct kvi_cells_in *in)
{
	for (size_t at = 0; at < in->n_second; at += BLOCK)
		unpack_codes(in->second + at / 2, block_codes(in->n_second, at), MORE,
		             in->work + at);
	return in->work;
}

/* Draft of a stream before its parts are put together, in work memory for n
 * elements. */
struct cells_draft {
	uint16_t *raw;     /* raw bits of each element, for whole steps */
	uint16_t *escapes; /* elements that are escaped */
	uint16_t *words;   /* the end of the words, which are written downwards */
	uint8_t *bits;     /* how many raw bits */
	uint8_t *second;   /* second codes, from 0 on */
};

/* The arrays of a draft in work memory for n elements. */
static inline struct cells_draft cells_draft_of(uint8_t *work, size_t n)
{
	const size_t each = n + KVI_CELLS_SLACK;
	struct cells_draft draft = { .raw = (uint16_t *)(void *)work };
	draft.escapes = draft.raw + each;
	draft.words = draft.escapes + 2 * each;
	draft.bits = (uint8_t *)draft.words;
	draft.second = draft.bits + each;
	return draft;
}

/* Puts second codes, escapes and words behind the codes of n elements; out: its counts are set.
 * words: the first one. Returns the end. */
static inline uint8_t *put_parts(const struct cells_draft *draft, size_t n,
                                 const struct kvi_cells_out *out)
{
	uint8_t *to = out->to + kvi_layers_plane(n, CODE_BITS);
	for (size_t at = 0; at < out->n_second; at += BLOCK)
		put_codes(draft->second + at, block_codes(out->n_second, at), CODE_BITS, 0,
		          to + at / 2);
	to += kvi_layers_plane(out->n_second, CODE_BITS);
	if ((to - out->to) & 1)
		*to++ = 0;
	for (size_t i = 0; i < out->n_escapes; i++)
		kvi_store16(to + 2 * i, draft->escapes[i]);
	to += 2 * (size_t)out->n_escapes;
	memcpy(to, draft->words - out->n_words, 2 * (size_t)out->n_words);
	return to + 2 * (size_t)out->n_words;
}

#endif
