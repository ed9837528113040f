/* SPDX-License-Identifier: BSD-3-Clause */
/* token_guess.h - what a head says of the next token, as candidates or as an expected embedding */
#ifndef KVI_TOKEN_GUESS_H
#define KVI_TOKEN_GUESS_H

#include "token_blind.h"
#include "exact/head.h"

/* Most candidates for one token. */
enum { KVI_CANDIDATES_MAX = 16 };

/* The guess for a token: n candidates, or one expected embedding with its row. */
struct kvi_guess {
	size_t n; /* 0: nothing is known */
	int32_t ids[KVI_CANDIDATES_MAX];
	float p[KVI_CANDIDATES_MAX];
	float *row; /* width of the model; NULL: candidates */
};

struct kvi_guesses;
/* Opens the memory for guesses of a kind. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_guesses_open(struct kvi_guesses **g, const struct kvi_run_options *options,
                           unsigned blind);
void kvi_guesses_close(struct kvi_guesses **g); /* NULL-safe */
/* Guesses the token after each of n tokens, from their hidden states after the last layer. */
void kvi_guesses_make(struct kvi_guesses *guesses, const float *h, size_t stride, size_t n,
                      struct kvi_guess *to);

#endif
