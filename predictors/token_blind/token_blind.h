/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * token_blind.h - what keys and values of a token are expected to be by the tokens before it
 * (spec/codecs/model.md 6)
 *
 * The model goes through the tokens on its own. From what its head says of the next one, either
 * the likeliest candidates are run in its place and mixed, or one row in place of an embedding.
 */
#ifndef KVI_TOKEN_BLIND_H
#define KVI_TOKEN_BLIND_H

#include "exact/engine.h"

/* What a predictor is: 0: it sees the token; 1 to KVARC_BLIND_TOP_MAX candidates;
 * KVARC_BLIND_EMBEDDING. */
bool kvi_token_blind_known(unsigned blind);
/* "top-4", "embedding". */
void kvi_token_blind_name(unsigned blind, char name[16]);
/* The digest of the weights, or what takes its place: then the engine has a head. */
struct kvi_h128 kvi_token_blind_digest(const struct kvi_engine *e, unsigned blind);

struct kvi_token_blind;

/* o: of an engine with a head, no lanes. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_token_blind_open(struct kvi_token_blind **b, const struct kvi_run_options *o,
                               unsigned blind);
void kvi_token_blind_close(struct kvi_token_blind **b); /* NULL-safe */
/* The next 1 to 256 tokens. Returns OK, MEM, MEMLIMIT, DATA (an id or position that the model
 * lacks). */
kvarc_ret kvi_token_blind_segment(struct kvi_token_blind *b, const int32_t *ids,
                                  const int32_t *positions, size_t n);
/* As kvi_run_predict, of any layer of the segment. */
struct kvi_predicted kvi_token_blind_predict(struct kvi_token_blind *b, uint32_t layer);
/* As kvi_run_rotate_row, keys of the layer that was predicted last. */
void kvi_token_blind_rotate_row(const struct kvi_token_blind *b, size_t t, float *k);
/* Before the first token again. */
void kvi_token_blind_restart(struct kvi_token_blind *b);

#endif
