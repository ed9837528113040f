/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/lossy.h - tiers: how a writer may change elements (spec/codecs/lossy.md) */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_LOSSY_H
#define KVARC_LOSSY_H

/* How keys and values are coded; the numbers are those of the chunk types (spec 7). */
typedef enum kvarc_tier {
	/* Lossless prediction of rounded elements: no element error exceeds a bound. */
	KVARC_TIER_NEAR = 10,
	/* Keyframes and differences from token to token, one scale for each block of channels. */
	KVARC_TIER_TSC = 11,
	/* Codebooks of vectors of channels, divided by the largest channel of the head. */
	KVARC_TIER_VQ = 12,
	/* Mean, Hadamard transform, uniform quantiser, entropy coder. */
	KVARC_TIER_HAD = 13,
	/* Tier had in the basis of a profile (kvarc_trainer_options.levels bit 9), which writers
	 * and readers need; where the profile predicts from lower layers, the transform is applied
	 * to the prediction residual. */
	KVARC_TIER_KLT = 14
} kvarc_tier;

/* Keys are coded as they are stored: RoPE is not removed. */
#define KVARC_LOSSY_NO_UNROPE 0x1u
/* No Hadamard transform: channels keep their own variances. */
#define KVARC_LOSSY_IDENTITY 0x2u
/* vq:2 with one codebook for each half of a vector, not with a second one for the residual. */
#define KVARC_LOSSY_PRODUCT 0x4u

/* The rate of a layer or a token that is not changed. */
#define KVARC_LOSSY_NOTHING INT16_MAX
/* The rate of a token that is dropped: it is not in the archive, and positions have a gap. Tokens
 * that exact_tokens or tail_tokens keep lossless are never dropped. */
#define KVARC_LOSSY_DROP INT16_MIN
/* kvarc_selection.recent: no protection for recent tokens. */
#define KVARC_LOSSY_NO_RECENT UINT32_MAX

/* Numbers of single tiers; those of other tiers are zero. */
typedef struct kvarc_tier_params {
	struct {
		/* bound of the error of any element, in 1e-9 of the root mean square of the
		 * elements of its chunk, 1000 to 1e9 */
		uint32_t max_error;
	} bound; /* KVARC_TIER_NEAR */
	struct {
		uint32_t keyframe; /* distance of keyframes in tokens, 1 to 256; 0: 1 */
		uint32_t block;    /* channels of a scale, 1 to 65535; 0: 32 */
	} tsc;                     /* KVARC_TIER_TSC */
	struct {
		/* tokens with a larger relative error, in 1/1000, are kept lossless; 0: none */
		uint32_t fallback;
	} vq;                 /* KVARC_TIER_VQ */
	uint64_t reserved[2]; /* zero */
} kvarc_tier_params;

/* How kvarc_lossy_rates derives token_rate from scores. */
typedef struct kvarc_selection {
	uint32_t keep; /* tokens that are not dropped, in 1/1000 of all, 1 to 1000; 0: all */
	uint32_t top;  /* tokens with the highest scores kept lossless, in 1/1000, up to 1000 */
	/* what the quarter of the tokens with the highest scores gets on top of the rate, in 1/16
	 * bit, -64 to 64: tiers with rates between whole bits */
	int spread;
	uint32_t recent; /* trailing tokens that are never dropped; 0: half of those that stay */
	uint64_t reserved[2]; /* zero */
} kvarc_selection;

/*
 * A tier with its rate and its choice of tokens. Rates are in 1/16 bit per element, and nominal:
 * had:4 takes 4 bits for each element of normal data. near has a bound instead: rate is 0.
 */
typedef struct kvarc_lossy {
	kvarc_tier tier;
	int rate;       /* of values */
	int key_rate;   /* what keys get on top of rate */
	unsigned flags; /* KVARC_LOSSY_* */
	kvarc_tier_params params;
	uint32_t generation; /* how often the input has been through lossy coding; 0: never */

	/* which tokens stay lossless: */
	uint32_t exact_tokens; /* number of leading tokens of each track */
	uint32_t tail_tokens;  /* of trailing tokens, counted from the track end at each append */
	/* those whose norm in a chunk is this many standard deviations above the mean norm, in
	 * 1/16; 0: none */
	uint32_t outliers;

	uint32_t n_layers; /* had, klt: entries of layer_rate */
	/* what each layer gets on top of the rate, at most what the tier allows;
	 * KVARC_LOSSY_NOTHING: the layer is lossless. NULL: all layers have the same rate */
	const int16_t *layer_rate;
	uint64_t n_token_rates; /* entries of token_rate for each track; later tokens have 0 */
	/* what each token gets on top of the rate as it is appended, at most what the
	 * tier allows: up to four different numbers besides KVARC_LOSSY_NOTHING and
	 * KVARC_LOSSY_DROP. tsc: rounded to whole bits; near and vq: 0 alone. If few tokens of a
	 * chunk have a rate they may get the next higher one, where that is smaller. NULL: all
	 * tokens have the same rate */
	const int16_t *token_rate;
	/* as kvarc_lossy_rates makes token_rate of scores; writers refuse it without token_rate */
	kvarc_selection select;
	const char *note;     /* kvarc_pack records it as the identity "lossy"; NULL: nothing */
	uint64_t reserved[4]; /* zero */
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
 * spread=BITS -4 to 4: quarters of the other tokens, by score, have BITS, BITS / 3, -BITS / 3
 *             and -BITS more, the highest scores first
 * identity    no Hadamard transform
 * no-unrope   keys are coded as they are stored
 * kappa=N     tsc: a keyframe every N tokens, others are differences (1)
 * block=N     tsc: channels with a common scale (32)
 * pq          vq:2: product codebooks
 * fallback=X  vq: tokens whose error is above X of their size stay as they are (none)
 *
 * tsc-8x, tsc-63x, vq-84x, vq-219x, vq-429x and vq-1034x are the quantisers behind numbers that are
 * quoted for such codecs; bench/seeds.py measures them again. Options may follow.
 *
 * error may be NULL; its text says what was not understood.
 * Returns OK, OPTIONS (no such tier, key or value), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_lossy_parse(kvarc_lossy *lossy, const char *text,
                                                       kvarc_error *error);

/*
 * Rates that a tier gives to each of n tokens whose scores are known, into token_rate (n): by keep,
 * top, spread and recent, and the first and last tokens that stay exact. Higher scores stay; of
 * equal ones the later. keep counts all tokens that stay: exact and recent ones first, and as many
 * others as are left. Pure; the same everywhere. Returns OK, OPTIONS (a score that is not a
 * number), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_lossy_rates(const kvarc_lossy *lossy, const float *score,
                                                       uint64_t n, int16_t *token_rate);

#endif
