/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/canary.h - whether a cache belongs to what computes now: rows of the same tokens */
/*
 * An engine with other weights, another adapter or another RoPE setting takes a cache that is not
 * its own, and answers nonsense. So it computes a few tokens before it gets one. Their rows are
 * compared with a fingerprint, which was recorded with the cache and is of the same few tokens, or
 * with the first rows of the cache itself. These calls are in libkvarc-store.
 */
#ifndef KVARC_CANARY_H
#define KVARC_CANARY_H

#include <kvarc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of a fingerprint. */
enum {
	KVARC_CANARY_TOKENS = 32, /* tokens of a fingerprint */
	KVARC_CANARY_WORDS = 20   /* words that may follow, with their probabilities */
};

/* Whether a cache belongs to what computes now. */
typedef enum kvarc_belongs {
	KVARC_BELONGS_UNKNOWN = 0, /* nothing could be compared */
	KVARC_BELONGS_EXACT = 1,   /* the same bits: of other weights they would differ */
	KVARC_BELONGS_NEAR = 2,    /* other bits, as of another kernel or machine; small changes
	                             * of weights look alike */
	KVARC_BELONGS_MOVED = 3,   /* what can be compared fits; the cache was shifted, or
	                             * pieced together */
	KVARC_BELONGS_NOT = 4      /* other weights, adapter or RoPE setting */
} kvarc_belongs;

/* An answer, and what it is founded on. */
typedef struct kvarc_canary_verdict {
	kvarc_belongs answer;
	unsigned tokens; /* that were compared */
	char text[200];  /* one clause */
	/* 1: NOT because of the token at position 0 alone, which sees all layers and no other
	 * token: of the engine's same build that is other weights, of another build it may be other
	 * arithmetic, of which kvarc_canary_compare says how much it is */
	uint64_t first_token_alone;
	uint64_t reserved[3];
} kvarc_canary_verdict;

/* The words that are most likely to follow computed tokens, the first one first. */
typedef struct kvarc_next_words {
	unsigned n; /* at most KVARC_CANARY_WORDS; 0: the engine does not say */
	int32_t ids[KVARC_CANARY_WORDS];
	double logprobs[KVARC_CANARY_WORDS]; /* natural logarithms of their probabilities */
} kvarc_next_words;

/* Fills in the tokens of a fingerprint. recorded: one that was recorded, or NULL for a new one, of
 * a vocabulary of that many ids. Returns OK, DATA (it is no fingerprint), PROG (too few ids). */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_canary_ids(int32_t ids[KVARC_CANARY_TOKENS],
                                                      uint64_t vocabulary, const char *recorded);
/* Records a fingerprint in an import, under the key "canary" of its identity. computed: the cache
 * of its tokens and no others; next may be NULL. Returns OK, OPTIONS (it is another cache), IO,
 * MEM, MEMLIMIT, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_canary_record(kvarc_import *to,
                                                         const kvarc_import *computed,
                                                         const kvarc_next_words *next);
/* Compares a fingerprint that was recorded with what is computed now, of kvarc_canary_ids. NEAR may
 * be other arithmetic: kvarc_canary_compare may say more. Returns OK, DATA (it is no fingerprint),
 * OPTIONS (computed is another cache), IO, MEM, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_canary_check(const char *recorded,
                                                        const kvarc_import *computed,
                                                        const kvarc_next_words *next,
                                                        kvarc_canary_verdict *verdict);

/* Rows of tokens 0 .. rows - 1 of a cache that begins as another one. */
typedef struct kvarc_canary_rows {
	const kvarc_import *computed;
	unsigned rows; /* at most 64 */
} kvarc_canary_rows;
/*
 * Compares a cache with what is computed now of its first tokens, one way or several: kernels of an
 * engine differ by the number of tokens at a time, and a cache has the bits of one of them. Caches
 * of other layers or dtypes are UNKNOWN. Returns OK, IO, MEM, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_canary_compare(const kvarc_import *file,
                                                          const kvarc_canary_rows *computed,
                                                          size_t n, kvarc_canary_verdict *verdict);

#ifdef __cplusplus
}
#endif

#endif
