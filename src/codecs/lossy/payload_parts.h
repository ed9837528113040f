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
	unsigned n_rates;             /* number of rate classes, each with a body */
	uint8_t part[KVI_TOKENS_MAX]; /* part of each token: KVI_EXACT, or the bit of its class */
};
/* Sets up the parts of a chunk: all tokens in class 0. */
void kvi_parts_open(struct kvi_parts *parts, const struct kvi_chunk *chunk);
/* The number of tokens of some parts. */
size_t kvi_parts_count(const struct kvi_parts *parts, unsigned which);
/* A job for the tokens of some parts, with what it points to. */
struct kvi_parts_work {
	struct kvi_coder_job job;
	struct kvi_chunk chunk;
	int32_t positions[KVI_TOKENS_MAX];
	uint8_t tokens[KVI_TOKENS_MAX];
	struct kvi_mask_run run;
};
/* Sets up a job without parameters and elements; *w must stay where it is. */
void kvi_parts_job(struct kvi_parts_work *w, const struct kvi_parts *parts, unsigned which,
                   const struct kvi_coder *coder);
/* Copies the rows of some parts out of all rows. */
void kvi_parts_take(const struct kvi_parts *parts, unsigned which, const uint8_t *all,
                    uint8_t *some);
/* The inverse of kvi_parts_take. */
void kvi_parts_put(const struct kvi_parts *parts, unsigned which, const uint8_t *some,
                   uint8_t *all);

/* Writes bitmap and elements of the exact tokens, of which there are some. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_exact_put(struct kvi_coder *coder, const struct kvi_parts *parts, const uint8_t *raw,
                        struct kvi_out *out);
/* Reads the exact tokens: their parts, and their rows of raw. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS. */
kvarc_ret kvi_exact_get(struct kvi_coder *coder, struct kvi_parts *parts, struct kvi_in *in,
                        uint8_t *raw);

/* Writes the rate classes, of which there are several, and the bytes of all bodies but the last. */
void kvi_rates_put(const struct kvi_parts *parts, const size_t bytes[KVI_RATES_MAX],
                   struct kvi_out *out);
/* Reads the rate classes and bytes; false: they are not valid. */
bool kvi_rates_get(struct kvi_parts *parts, struct kvi_in *in, size_t bytes[KVI_RATES_MAX]);
/* Encoders: classes for request->token_rate, and their rates in 1/16 bit. */
void kvi_rates_choose(struct kvi_parts *parts, const struct kvi_encode_request *request,
                      const kvarc_lossy *tier, int rate[KVI_RATES_MAX]);

#endif
