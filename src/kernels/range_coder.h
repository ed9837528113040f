/* SPDX-License-Identifier: BSD-3-Clause */
/* range_coder.h - an arithmetic coder of symbols whose weights are known to both sides (spec tokens 3) */
#ifndef KVI_RANGE_CODER_H
#define KVI_RANGE_CODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of n symbols of a total below 2^45, at most. */
enum { KVI_RANGE_SYMBOL_BYTES = 6, KVI_RANGE_END_BYTES = 8 };

/* A symbol's part of the total: [below, below + weight). */
struct kvi_range_part {
	uint64_t below, weight, total;
};

struct kvi_range_encoder {
	uint8_t *p;             /* room for all symbols */
	size_t n;
	uint64_t low, range;
};

void kvi_range_begin(struct kvi_range_encoder *e, uint8_t *p);
void kvi_range_put(struct kvi_range_encoder *e,
                   const struct kvi_range_part *part);
/* How many bytes it took in all. */
size_t kvi_range_end(struct kvi_range_encoder *e);

struct kvi_range_decoder {
	const uint8_t *p;
	size_t n, at;           /* at: also past n, where all bytes are 0 */
	uint64_t value, range;
};

void kvi_range_open(struct kvi_range_decoder *d, const uint8_t *p, size_t n);
/* A number below the total, which is in the part of the next symbol. */
uint64_t kvi_range_get(const struct kvi_range_decoder *d, uint64_t total);
/* That part. */
void kvi_range_take(struct kvi_range_decoder *d,
                    const struct kvi_range_part *part);
/* Whether all bytes were taken, and none is one that an encoder leaves away. */
bool kvi_range_done(const struct kvi_range_decoder *d);

#endif
