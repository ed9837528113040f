/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/lossy.h - tiers: how a writer may change elements (spec/codecs/lossy.md) */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_LOSSY_H
#define KVARC_LOSSY_H

/* What codes keys and values; the numbers of the chunk types (spec 7). */
typedef enum kvarc_tier {
	KVARC_TIER_NEAR =
		10, /* lossless prediction of rounded elements: no error is greater than a bound */
	KVARC_TIER_TSC =
		11, /* keyframes and differences from token to token, a scale for each block of channels */
	KVARC_TIER_VQ =
		12, /* codebooks for vectors of channels, divided by the largest of the head */
	KVARC_TIER_HAD = 13, /* mean, Hadamard transform, uniform quantiser, entropy coder */
	KVARC_TIER_KLT =
		14 /* the same in the basis of a profile (kvarc_trainer_options.levels bit 9), which
	                      * writers and readers have to have; of what it predicts from layers below,
	                      * where it does */
} kvarc_tier;

/* Keys stay as they are stored, they are not turned back by their positions. */
#define KVARC_LOSSY_NO_UNROPE 0x1u
/* No Hadamard transform: channels keep their own variances. */
#define KVARC_LOSSY_IDENTITY 0x2u
/* vq:2 by halves of vectors, each with a codebook, not by a second codebook for what is left. */
#define KVARC_LOSSY_PRODUCT 0x4u

/* Of a layer, or a token, that is not changed. */
#define KVARC_LOSSY_NOTHING INT16_MAX
/* Of a token that is left out: it is not in the archive, and positions have a gap. Tokens that stay
 * exact by exact_tokens or tail_tokens are never left out. */
#define KVARC_LOSSY_DROP INT16_MIN
/* kvarc_lossy.recent: newer tokens are as others. */
#define KVARC_LOSSY_NO_RECENT UINT32_MAX

/* Rates are nominal: had:4 takes 4 bits for each element of normal data. near has a bound instead:
 * rate is 0. */
typedef struct kvarc_lossy {
	kvarc_tier tier;
	int rate;              /* bits an element, in 1/16 */
	int key_rate;          /* keys have so much more, in 1/16 */
	uint32_t exact_tokens; /* so many first tokens of a track stay bit for bit */
	uint32_t generation;   /* how often the input has been through lossy coding; 0: never */
	unsigned flags;        /* KVARC_LOSSY_* */
	uint32_t keyframe;     /* tsc: one token in so many stands alone, 1 to 256; 0: all do */
	uint32_t block;        /* tsc: channels of a scale, 1 to 65535; 0: 32 */
	uint32_t
		fallback; /* vq: tokens with a larger error, in 1/1000 of their size, stay bit for bit;
	                        * 0: none do */
	uint32_t max_error; /* near: of any element, in 1e-9 of the root mean square of the elements
	                        * of its chunk, 1000 to 1e9; other tiers: 0 */
	uint32_t
		tail_tokens; /* so many last tokens of a track, as far as it goes when a call appends,
	                        * stay bit for bit */
	uint32_t
		outliers; /* and tokens whose length (root of the sum of squares) in a chunk is so many
	                        * standard deviations above the mean of all, in 1/16; 0: none do */
	uint32_t n_layers;   /* had, klt: layers that layer_rate tells of */
	uint32_t reserved32; /* zero */
	const int16_t
		*layer_rate; /* how much more each of them has, in 1/16, at most what the tier can;
	                        * KVARC_LOSSY_NOTHING: it stays as it is. NULL: all have the same */
	uint64_t
		n_token_rates; /* tokens of each track that token_rate tells of; those behind have 0 */
	const int16_t *
		token_rate; /* how much more each has, in 1/16, as it is appended, at most what the tier
	                        * can: up to four different numbers, besides KVARC_LOSSY_NOTHING and
	                        * KVARC_LOSSY_DROP. tsc: the nearest whole bits; near and vq: no more or
	                        * less. Few tokens of a chunk may get the next higher number, where that is
	                        * smaller. NULL: all have the same */
	const char *note; /* kvarc_pack records it as the identity "lossy"; NULL: nothing */
	/* What kvarc_lossy_rates makes token_rate of. Writers refuse keep, top and spread without
	 * it. */
	uint32_t keep; /* tokens that stay, in 1/1000 of all, 1 to 1000; 0: all do */
	uint32_t
		top; /* those with the highest scores that stay bit for bit, in 1/1000, up to 1000 */
	int spread; /* how much more the tokens with higher scores have than others, in 1/16 bit, -64
	                        * to 64: tiers with rates between whole bits */
	uint32_t recent; /* so many last tokens are never left out; 0: half of those that stay */
	uint64_t reserved[2]; /* zero */
} kvarc_lossy;

/*
 * Reads a tier from text, "NAME:RATE[,KEY[=VALUE]]...": "had:4", "had:3.5,keys=+0.5,exact=8".
 *
 * near:ERROR  0.000001 to 1: 0.01 is 1 % of the root mean square of the elements of a chunk. Steps
 *             are powers of 2: the greatest error may be half of that
 * tsc:BITS    2 to 8, a whole number
 * vq:RATE     1 to 4, a whole number
 * had:RATE    1 to 6.5
 * klt:RATE    0.25 to 6.5
 * keys=+BITS  how much more keys have than values, -4 to 4; near: an error 2^-BITS times as great
 * exact=N     first tokens of each track that stay as they are (4)
 * tail=N      last tokens of each track that stay as they are (0)
 * outliers=Z  tokens of a tensor that are longer than its others by Z standard deviations stay as
 *             they are (none)
 * keep=SHARE  tokens that stay, 0.001 to 1; others are left out. This and the next two need scores
 *             of the tokens: kvarc_lossy_rates
 * recent=N    last tokens that are never left out (half of those that stay, as H2O has it)
 * top=SHARE   tokens with the highest scores that stay as they are (none)
 * spread=BITS -4 to 4: quarters of the other tokens, by score, have BITS, BITS / 3, -BITS / 3 and
 * -BITS
 *             more, the highest scores first
 * identity    no Hadamard transform
 * no-unrope   keys are coded as they are stored
 * kappa=N     tsc: a keyframe every N tokens, others are differences (1)
 * block=N     tsc: channels with a common scale (32)
 * pq          vq:2: product codebooks
 * fallback=X  vq: tokens whose error is above X of their size stay as they are (none)
 *
 * tsc-8x, tsc-63x, vq-84x, vq-219x, vq-429x and vq-1034x are the quantisers behind numbers that are
 * quoted for such codecs; bench/seeds.py says what is left of the numbers. Options may follow.
 *
 * error may be NULL; its text says what was not understood.
 * Returns OK, OPTIONS (no such tier, key or value), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_lossy_parse(kvarc_lossy *lossy, const char *text,
                                                       kvarc_error *error);

/*
 * What a tier does with each of n tokens whose scores are known, into token_rate (n): by keep, top,
 * spread and recent, and the first and last tokens that stay exact. Higher scores stay; of equal
 * ones the later. keep counts all tokens that stay: exact and recent ones first, and as many others
 * as are left. Pure; the same everywhere. Returns OK, OPTIONS (a score that is not a number), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_lossy_rates(const kvarc_lossy *lossy, const float *score,
                                                       uint64_t n, int16_t *token_rate);

#endif
