/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/eval.h - what the ways to write a cache do to what its model says next */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc/tools.h> instead of this file.
#endif
#ifndef KVARC_EVAL_H
#define KVARC_EVAL_H

/*
 * The model makes the cache of a text (the prefix), in exact arithmetic, rounded as an engine of
 * the dtype stores it. The cache goes into an archive in memory, and the decoded cache replaces
 * the exact one in the model. The model then reads the rest of the text (the continuation), and its
 * distributions of each next token, over the whole vocabulary, are compared with those after the
 * exact cache.
 * Kernels, tokens and their grouping are the same, so a lossless archive gives differences of
 * exactly 0. Keys and values of the continuation are rounded to the dtype, not coded.
 */
typedef struct kvarc_eval kvarc_eval;

/* Options of an evaluation; set unused members to 0. */
typedef struct kvarc_eval_options {
	kvarc_common common;              /* memlimit 0: none; progress in tokens of a sequence */
	const kvarc_predictor *predictor; /* a model with a head; must outlive the evaluation */
	kvarc_arithmetic arithmetic;      /* KVARC_ARITHMETIC_LEVEL: KVARC_ARITHMETIC_W15A15 */
	unsigned dtype;        /* of the cache: KVARC_F32, KVARC_F16 or KVARC_BF16; 0: KVARC_BF16 */
	uint32_t prefix;       /* tokens, 0: 512 */
	uint32_t continuation; /* tokens, at least 2, 0: 64 */
	/* scores of the prefix's tokens, for tiers with keep, top or spread and without
	 * token_rate; KVARC_SCORE_NONE: writers refuse those tiers */
	kvarc_score scores;
	uint32_t reserved32;  /* zero */
	uint64_t reserved[3]; /* zero */
} kvarc_eval_options;
#define KVARC_EVAL_OPTIONS_INIT KVARC_ZERO

/* On failure *e is NULL. Returns OK, MEM, MEMLIMIT, OPTIONS (no model, or without a head), DATA
 * (its weights), PREDICTOR (self-test of the exact arithmetic), PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_eval_open(kvarc_eval **e,
                                                     const kvarc_eval_options *options);
/* NULL-safe; sets *e to NULL. */
KVARC_API void kvarc_eval_close(kvarc_eval **e);

/*
 * One sequence. KL is that of the exact distribution to the other, in nats per token, at each
 * token of the continuation; the distribution after the last token of the prefix does not depend
 * on the archive and does not count. Percentiles are nearest ranks: of up to 100 tokens the 99th
 * is the largest.
 */
typedef struct kvarc_eval_result {
	double *token_kl;       /* the caller's array of `tokens` numbers, or NULL: not wanted */
	uint64_t tokens;        /* of the continuation */
	uint64_t elements;      /* of the cache, with tokens that the archive dropped */
	uint64_t cache_tokens;  /* of the prefix */
	uint64_t kept_tokens;   /* those in the archive */
	uint64_t archive_bytes; /* all of it */
	double mean_kl, p99_kl, p999_kl, max_kl;
	double agreement; /* part of the tokens whose likeliest next token is the same */
	double delta_nll; /* what the true next token costs more, mean of tokens - 1 */
	/* first token whose likeliest next token is another, the continuation being teacher-forced
	 * all the same; KVARC_UNKNOWN: none */
	uint64_t first_diverging;
	uint64_t reserved[4];
} kvarc_eval_result;

/* Limits that every sequence is checked by. */
typedef enum kvarc_eval_check {
	KVARC_EVAL_FLOOR = 0, /* a lossless archive: everything has to be the same */
	KVARC_EVAL_ZEROED = 1 /* a cache of zeros, no archive: nothing may be */
} kvarc_eval_check;
#define KVARC_EVAL_CHECKS 2

/*
 * ids: prefix + continuation of them, the first at position 0. A tier is a way to write: of its
 * writer's options common is not looked at. results: one a tier; checks: KVARC_EVAL_CHECKS. Only
 * their token_kl is read, all else filled in.
 * Returns OK, MEM, MEMLIMIT, DATA (an id or position that the model lacks), IO (progress stopped
 * it), OPTIONS (a model whose layers have windows, and tokens were dropped), PREDICTOR (the
 * lossless archive made a difference, or the cache of zeros made none: this evaluation is
 * not valid), and what a tier's writer and reader return.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_eval_sequence(kvarc_eval *e, const int32_t *ids,
                                                         size_t n_tiers,
                                                         const kvarc_writer_options *tiers,
                                                         kvarc_eval_result *results,
                                                         kvarc_eval_result *checks);

/* The mean KL of caches of zeros has to be this at least. More than a tenth of a nat is what even
 * previews must not lose: texts whose model hardly needs its cache do not separate tiers. */
#define KVARC_EVAL_ZEROED_KL 0.1
/* After all sequences: whether the cache was read. max_kl: of the gate; then the cache of zeros
 * must be 10 times that, too. 0: none. Returns OK, PREDICTOR, PROG (no sequences). */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_eval_trusted(const kvarc_eval *e, double max_kl);
/* Whether a sequence passes a gate: mean KL up to max_kl, and the 99th percentile up to 30 times
 * that. */
KVARC_API int kvarc_eval_passes(const kvarc_eval_result *result, double max_kl);

/* Results of a tier over sequences, each of which counts once. */
typedef struct kvarc_eval_summary {
	uint64_t sequences;
	double bits_per_element; /* 8 x bytes / elements, of all archives */
	double kept;             /* part of the tokens that is in them */
	double mean_kl;          /* of the sequences' means */
	/* bounds of 95 % of the means of sequences drawn with replacement, 2000 times */
	double low_kl, high_kl;
	double deviation_kl; /* standard, between sequences; 0 of one */
	double p95_kl;       /* mean of the 95th percentile's sequence */
	double worst_kl;     /* the largest mean */
	uint64_t worst;      /* its number */
	/* of all tokens of all sequences; 0 where a sequence has no token_kl */
	double p99_kl, p999_kl, max_kl;
	double agreement, delta_nll; /* means */
	uint64_t diverging;          /* sequences with a first_diverging */
	uint64_t reserved[8];
} kvarc_eval_summary;
/* n > 0 results of a tier. The same seed draws the same sequences for all tiers. Returns OK, MEM,
 * PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_eval_summarise(kvarc_eval_summary *summary,
                                                          const kvarc_eval_result *results,
                                                          size_t n, uint64_t seed);

#endif
