/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_prediction.h - what predicts the chunks of a segment: features of others, a model */
#ifndef KVI_READER_PREDICTION_H
#define KVI_READER_PREDICTION_H

#include "reader_jobs.h"
#include "reader_predictors.h"
#include "reader_range.h"

/* A table of the features of a track for one segment. Returns OK, MEM, MEMLIMIT; the caller
 * closes it. */
kvarc_ret kvi_reader_open_features(kvarc_reader *r, uint32_t track,
                                   const struct kvi_linear_plan *plan,
                                   struct kvi_feature_table **features, kvarc_error *error);
/* The options to open a prediction session of a track, once a PREDICTOR of kind 2 is loaded. */
struct kvi_prediction_options
kvi_reader_prediction_options(const kvarc_reader *r, const struct kvi_predictor_ref *predictor,
                              uint32_t track);
/*
 * Prepares what predicts the chunks of a segment of a track: the profile and, of the first `layers`
 * layers, the model, which comes to the first token of the segment; then use->features, and
 * use->prediction of a model. use->predictor_ret: why there is neither, and what predicted chunks
 * fail with. predictor NULL: its frame is damaged. Returns OK, MEM, MEMLIMIT.
 */
kvarc_ret kvi_reader_predict(kvarc_reader *r, struct kvi_predictor_ref *predictor, uint32_t track,
                             uint64_t layers, struct kvi_segment_use *use);
/*
 * The index in the order of chunks of the next chunk of a segment, at or after *at. False:
 * there is none; only in damaged files, where the index was not checked.
 */
bool kvi_reader_order_index(const kvarc_reader *r, const struct kvi_segment_ref *segment,
                            const struct kvi_chunk_ref *chunk, uint32_t *at, uint32_t *order_index);
/* Prepares prediction and features of a segment whose chunks come later, in order: any of them may
 * be of codec linear. predictor: sequence number of the PREDICTOR in force, 0: none. */
kvarc_ret kvi_reader_foresee(kvarc_reader *r, uint64_t predictor, struct kvi_segment_use *use);
/* Rewinds models that have passed a segment to the tokens that are left of it; NULL: it is not in
 * the index. No job is under way. */
void kvi_reader_cut_models(kvarc_reader *r, const struct kvi_segment_ref *segment);
/* Whether a range has a tensor. */
bool kvi_range_wants(const kvarc_reader *r, const struct kvi_range *range, uint32_t tensor);
/* Plans which chunks of a segment use features of which; range NULL: all chunks are wanted. */
void kvi_reader_plan_features(const kvarc_reader *r, const struct kvi_segment_ref *segment,
                              const struct kvi_range *range, struct kvi_segment_use *use);

#endif
