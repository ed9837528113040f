/* SPDX-License-Identifier: BSD-3-Clause */
/* token_blind.h - keys and values of a token predicted from the tokens before it (spec model 6) */
#ifndef KVI_TOKEN_BLIND_H
#define KVI_TOKEN_BLIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "exact/engine.h"
#include "util/hash.h"
#include "util/shared.h"

/* Whether `blind` is a kind of predictor: 0: with the current token; 1 to KVARC_BLIND_TOP_MAX:
 * number of candidates; KVARC_BLIND_EMBEDDING. */
KVI_SHARED bool kvi_token_blind_known(unsigned blind);
/* Writes "top-4" or "embedding". */
void kvi_token_blind_name(unsigned blind, char name[16]);
/* The kind whose kvi_token_blind_name is the last word of a predictor's recorded name; 0: none. */
unsigned kvi_token_blind_of(const char *name);
/* The digest that identifies the predictor: with blind 0 that of the weights, else one of weights
 * and kind, of an engine with an lm_head. */
KVI_SHARED struct kvi_h128 kvi_token_blind_digest(const struct kvi_engine *engine, unsigned blind);

struct kvi_token_blind;

/* Opens a predictor without the current token. options: the engine has an LM head, lanes is 0.
 * Returns OK, MEM, MEMLIMIT. */
KVI_SHARED kvarc_ret kvi_token_blind_open(struct kvi_token_blind **b,
                                          const struct kvi_run_options *options, unsigned blind);
KVI_SHARED void kvi_token_blind_close(struct kvi_token_blind **b); /* NULL-safe */
/* Predicts the next n tokens, 1 to 256, in all layers, each from the tokens before it; then adds
 * the tokens themselves to the sequence. Returns OK, MEM, MEMLIMIT, DATA (an id or position that
 * the model lacks); after an error only restart and close are valid. */
KVI_SHARED kvarc_ret kvi_token_blind_segment(struct kvi_token_blind *blind, const int32_t *ids,
                                             const int32_t *positions, size_t n);
/* The predicted rows of any layer of the segment, owned by `blind` until its next segment. */
KVI_SHARED struct kvi_predicted kvi_token_blind_predict(struct kvi_token_blind *blind,
                                                        uint32_t layer);
/* Applies RoPE to k, the keys of token t, by the layer of the last kvi_token_blind_predict. The
 * caller has set exact arithmetic (util/fpmode.h). */
void kvi_token_blind_rotate_row(const struct kvi_token_blind *blind, size_t t, float *k);
/* Moves before the first token again. */
KVI_SHARED void kvi_token_blind_restart(struct kvi_token_blind *blind);

#endif
