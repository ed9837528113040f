/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * token_coder.h - token ids by what a model says of each next one (spec tokens)
 *
 * One track, segment after segment from its first token on. It is no part of the pool's jobs:
 * one thread uses it at a time.
 */
#ifndef KVI_TOKEN_CODER_H
#define KVI_TOKEN_CODER_H

#include "prediction.h"

struct kvi_token_coder;

/*
 * Opens a coder for a track; options: of a prediction session, whose plan and level do not matter.
 * Needs a model that has a head, and that could have made the track. On failure *c is NULL. Returns
 * OK, MEM, MEMLIMIT, PREDICTOR (the track is not one of the model), as kvi_predictor_head.
 */
kvarc_ret kvi_token_coder_open(struct kvi_token_coder **c,
                               const struct kvi_prediction_options *options, kvarc_error *error);
void kvi_token_coder_close(struct kvi_token_coder *coder); /* NULL-safe */

/* Called between tokens; true stops the coder. */
typedef bool (*kvi_token_stop)(void *opaque);
/* Sets the callback that may stop the coder; NULL: none. */
void kvi_token_coder_stopped_by(struct kvi_token_coder *coder, kvi_token_stop stop, void *opaque);

/* Number of tokens that the coder has passed: the first token of the next segment. */
uint64_t kvi_token_coder_next(const struct kvi_token_coder *coder);
/* Rewinds the coder to the first t0 tokens, no more than it has passed. Returns OK, MEM, MEMLIMIT,
 * IO (stopped); after a failure the coder is good for closing only. */
kvarc_ret kvi_token_coder_rewind(struct kvi_token_coder *coder, uint64_t t0, kvarc_error *error);
/* Whether scalar arithmetic had to take over. */
bool kvi_token_coder_fell_back(const struct kvi_token_coder *coder);
/* Copies ids of tokens that the coder has passed. */
void kvi_token_coder_ids(const struct kvi_token_coder *coder, uint64_t t0, size_t n, int32_t *ids);

/*
 * Passes the next segment, whose ids are known. encode: fills in its code. Returns OK; DATA (the
 * model has no such token or position, or there are no ids: this segment cannot be coded, and none
 * after it); MEM, MEMLIMIT, IO (stopped). After a failure the coder is good for closing only.
 */
kvarc_ret kvi_token_coder_pass(struct kvi_token_coder *coder, struct kvi_segment *segment,
                               bool encode, kvarc_error *error);
/*
 * Decodes the ids of the next segment. When the check does not hold, the model runs over the track
 * again in scalar arithmetic, which stays. Returns as kvi_token_coder_pass; DATA: not a code;
 * PREDICTOR: the check does not hold.
 */
kvarc_ret kvi_token_coder_decode(struct kvi_token_coder *coder, struct kvi_segment *segment,
                                 kvarc_error *error);

#endif
