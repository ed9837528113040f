/* SPDX-License-Identifier: BSD-3-Clause */
/* payload_parts.h - which tokens of a lossy chunk are exact, and rates of the others (spec lossy
 * 1) */
#ifndef KVI_PAYLOAD_PARTS_H
#define KVI_PAYLOAD_PARTS_H

#include "codecs/coder.h"

/* Flags of a payload. */
enum { KVI_FLAG_EXACT = 1, KVI_FLAG_RATES = 2 };

/* Limits of parts, and sets of them. */
enum {
	KVI_RATES_MAX = 4,
	KVI_TOKENS_MAX = 256,
	/* Sets of parts: a bit for each rate class, and one for exact tokens. */
	KVI_EXACT = 1 << KVI_RATES_MAX,
	KVI_CODED = KVI_EXACT - 1
};

/* A lossy chunk split by tokens: exact tokens, and one body for each rate. */
struct kvi_parts {
	const struct kvi_chunk *chunk;
	size_t row;                   /* bytes of a token */
	unsigned n_rates;             /* as many bodies */
	uint8_t part[KVI_TOKENS_MAX]; /* of each token: KVI_EXACT, or the bit of its class */
};
/* All tokens in class 0. */
void kvi_parts_open(struct kvi_parts *p, const struct kvi_chunk *chunk);
/* Tokens of the parts; the chunk that they are, `positions` holds theirs. */
size_t kvi_parts_count(const struct kvi_parts *p, unsigned which);
/* The chunk that some parts make up alone; positions: of its tokens. */
struct kvi_chunk kvi_parts_chunk(const struct kvi_parts *p, unsigned which,
                                 int32_t positions[KVI_TOKENS_MAX]);
/* Which tokens some parts have, in ascending order. */
void kvi_parts_tokens(const struct kvi_parts *p, unsigned which, uint8_t tokens[KVI_TOKENS_MAX]);
/* Their rows out of all rows, and back. */
void kvi_parts_take(const struct kvi_parts *p, unsigned which, const uint8_t *all, uint8_t *some);
/* Copies the rows of some parts to their place among all rows. */
void kvi_parts_put(const struct kvi_parts *p, unsigned which, const uint8_t *some, uint8_t *all);

/* Bitmap and elements of exact tokens, which are there. get: p, and rows of raw. Return OK, MEM,
 * MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_exact_put(struct kvi_coder *c, const struct kvi_parts *p, const uint8_t *raw,
                        struct kvi_out *out);
/* Reads them. */
kvarc_ret kvi_exact_get(struct kvi_coder *c, struct kvi_parts *p, struct kvi_in *in, uint8_t *raw);

/* Rate classes, of which there are several, and bytes of bodies but the last. get: false: they are
 * not valid. */
void kvi_rates_put(const struct kvi_parts *p, const size_t bytes[KVI_RATES_MAX],
                   struct kvi_out *out);
/* Reads them. */
bool kvi_rates_get(struct kvi_parts *p, struct kvi_in *in, size_t bytes[KVI_RATES_MAX]);
/* Encoders: classes for the chunk's token_rate, and the rates that they have, in 1/16 bit. */
void kvi_rates_choose(struct kvi_parts *p, const kvarc_lossy *tier, int rate[KVI_RATES_MAX]);

#endif
