/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * range_coder.h - a range coder of symbols whose weights both sides know (spec tokens 3)
 *
 * Pure: allocates nothing and cannot fail. Encoder and decoder belong to one thread each.
 */
#ifndef KVI_RANGE_CODER_H
#define KVI_RANGE_CODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An encoder writes at most n * KVI_RANGE_SYMBOL_BYTES + KVI_RANGE_END_BYTES bytes for n symbols
 * whose totals are below 2^45. */
enum { KVI_RANGE_SYMBOL_BYTES = 6, KVI_RANGE_END_BYTES = 8 };

/* A symbol's part of the total: [below, below + weight). weight is not 0, and the total
 * below 2^45. */
struct kvi_range_part {
	uint64_t below, weight, total;
};

/* An encoder; the caller owns the buffer at p. */
struct kvi_range_encoder {
	uint8_t *p;
	size_t n; /* bytes written */
	uint64_t low, range;
};

/* Begins a stream at p, which has the capacity for all of its symbols. */
void kvi_range_begin(struct kvi_range_encoder *encoder, uint8_t *p);
/* Encodes one symbol. */
void kvi_range_put(struct kvi_range_encoder *encoder, const struct kvi_range_part *part);
/* Ends the stream; returns the number of its bytes, without zeros at the end. */
size_t kvi_range_end(struct kvi_range_encoder *encoder);

/* A decoder; the caller owns the n bytes at p. */
struct kvi_range_decoder {
	const uint8_t *p;
	size_t n, at; /* at may pass n: bytes behind n count as 0 */
	uint64_t value, range;
};

/* Begins with n bytes at p, which may be anything. */
void kvi_range_open(struct kvi_range_decoder *decoder, const uint8_t *p, size_t n);
/* A number below `total` that lies in the part of the next symbol. total: not 0, below 2^45. */
uint64_t kvi_range_get(const struct kvi_range_decoder *decoder, uint64_t total);
/* Consumes the symbol of that part, the one in which the number of kvi_range_get() lies. */
void kvi_range_take(struct kvi_range_decoder *decoder, const struct kvi_range_part *part);
/* Whether all bytes were consumed and the last one is not 0, which no encoder writes. */
bool kvi_range_done(const struct kvi_range_decoder *decoder);

#endif
