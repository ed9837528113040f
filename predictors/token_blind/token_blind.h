/* SPDX-License-Identifier: BSD-3-Clause */
/* token_blind.h - runs of a model that does not see the token, and what stands for it */
#ifndef KVI_TOKEN_BLIND_H
#define KVI_TOKEN_BLIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "exact/engine.h"
#include "util/hash.h"
#include "util/shared.h"

struct kvi_engine;

/* Whether `blind` is a kind of predictor: 0: with the current token; 1 to KVARC_BLIND_TOP_MAX:
 * number of candidates; KVARC_BLIND_EMBEDDING. */
KVI_SHARED bool kvi_token_blind_known(unsigned blind);
/* Writes "top-4" or "embedding". */
void kvi_token_blind_name(unsigned blind, char name[16]);
/* The number of the predictor whose recorded name ends with such a word; 0: none. */
unsigned kvi_token_blind_of(const char *name);
/* The digest that identifies the predictor: with blind 0 that of the weights, else one of weights
 * and kind, of an engine with an lm_head. */
KVI_SHARED struct kvi_h128 kvi_token_blind_digest(const struct kvi_engine *engine, unsigned blind);

struct kvi_token_blind;

/* Opens a predictor without the current token. options: of an engine with a head, no lanes. Returns
 * OK, MEM, MEMLIMIT. */
KVI_SHARED kvarc_ret kvi_token_blind_open(struct kvi_token_blind **b,
                                          const struct kvi_run_options *options, unsigned blind);
KVI_SHARED void kvi_token_blind_close(struct kvi_token_blind **b); /* NULL-safe */
/* Predicts the next 1 to 256 tokens in all layers. Returns OK, MEM, MEMLIMIT, DATA (an id or
 * position that the model lacks). */
KVI_SHARED kvarc_ret kvi_token_blind_segment(struct kvi_token_blind *blind, const int32_t *ids,
                                             const int32_t *positions, size_t n);
/* The predicted rows of any layer of the segment, owned by `blind` until its next segment. */
KVI_SHARED struct kvi_predicted kvi_token_blind_predict(struct kvi_token_blind *blind,
                                                        uint32_t layer);
/* kvi_run_rotate_row for the keys of the layer that was predicted last. */
void kvi_token_blind_rotate_row(const struct kvi_token_blind *blind, size_t t, float *k);
/* Moves before the first token again. */
KVI_SHARED void kvi_token_blind_restart(struct kvi_token_blind *blind);

#endif
