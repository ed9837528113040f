/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/scores.h - how much each token of a cache matters to its model */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc/tools.h> instead of this file.
#endif
#ifndef KVARC_SCORES_H
#define KVARC_SCORES_H

/* How the attention that a token gets is scored. */
typedef enum kvarc_score {
	KVARC_SCORE_NONE = 0,
	/* attention that a token gets from itself and later tokens: softmax weights, summed over
	 * their queries, mean of layers and heads. Not divided by the number of queries: early
	 * tokens have more of them */
	KVARC_SCORE_H2O = 1,
	/* -ln of the token's probability given the tokens before it; of the first token ln of the
	 * vocabulary */
	KVARC_SCORE_SURPRISAL = 2
} kvarc_score;

/* Options of the computation of scores; set unused members to 0. */
typedef struct kvarc_scores_options {
	kvarc_common common;              /* memlimit 0: none; progress in tokens */
	const kvarc_predictor *predictor; /* a model with a head */
	kvarc_arithmetic arithmetic;      /* KVARC_ARITHMETIC_LEVEL: KVARC_ARITHMETIC_W15A15 */
	unsigned dtype;       /* of the cache: KVARC_F32, KVARC_F16 or KVARC_BF16; 0: KVARC_BF16 */
	kvarc_score kind;     /* 0: KVARC_SCORE_H2O */
	uint64_t reserved[4]; /* zero */
} kvarc_scores_options;
#define KVARC_SCORES_OPTIONS_INIT KVARC_ZERO

/*
 * Scores of n tokens, the first at position 0, into score (n), for kvarc_lossy_rates. The model
 * goes through them once. Memory: their cache, and 8 bytes a token and head, besides the model.
 * Returns OK, MEM, MEMLIMIT, OPTIONS (no model, or without a head), DATA (an id or position that
 * the model lacks), IO (stopped), PREDICTOR, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_scores_make(const kvarc_scores_options *options,
                                                       const int32_t *ids, uint64_t n,
                                                       float *score);

#endif
