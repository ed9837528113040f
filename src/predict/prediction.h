/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prediction.h - a model that goes through one track next to the coder of its chunks (spec model)
 *
 * Jobs that encode or decode chunks request its predictions and give it the elements, in the
 * order of the chunks; the job that completes a layer takes the model through it. Jobs wait for
 * earlier ones only, as with feature_table.h.
 */
#ifndef KVI_PREDICTION_H
#define KVI_PREDICTION_H

#include "format/predictor_frame.h"
#include "format/segment.h"
#include "predictor_handle.h"
#include "format/chunk_order.h"
#include "prediction_open.h"
#include "profile/linear_plan.h"
#include "util/shared.h"

struct kvi_prediction;
struct kvi_features;

/* Options of a prediction session; all pointers must outlive it. */
struct kvi_prediction_options {
	const kvarc_predictor *predictor;
	const struct kvi_predictor *description; /* level, arithmetic, loop */
	const struct kvi_linear_plan *plan;      /* plan of that level */
	const kvarc_geometry *geometry;
	const struct kvi_order *order;
	uint32_t track;
	unsigned threads;
	uint32_t isa_mask;
	bool decodes; /* a prediction without its check is repeated */
};

/* Checks that the model could have made the track (spec model); sets *error when not. Returns OK,
 * PREDICTOR. */
kvarc_ret kvi_prediction_fits(const struct kvi_prediction_options *options, kvarc_error *error);
/* Checks the RoPEs of the track's keys alone, whatever the profile, and fills freq: the keys'
 * frequencies, by the ropes of the model. Returns OK, PREDICTOR. */
KVI_SHARED kvarc_ret kvi_prediction_ropes(const struct kvi_prediction_options *options,
                                          const uint64_t *freq[2], kvarc_error *error);
/* Opens a session of a track that fits. On failure *g is NULL. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_prediction_open(struct kvi_prediction **g,
                              const struct kvi_prediction_options *options, kvarc_error *error);
void kvi_prediction_close(struct kvi_prediction *session); /* NULL-safe; no job uses it any more */

/* The first token of the next segment; no job of a segment is under way. */
uint64_t kvi_prediction_next(const struct kvi_prediction *session);
/* Restarts the session at the first token, for the first `layers` layers alone. */
void kvi_prediction_restart(struct kvi_prediction *session, size_t layers);
/* Rewinds the session to the first t0 tokens, as if it had seen no others; no more than it has
 * passed, and no job of a segment is under way. */
void kvi_prediction_rewind(struct kvi_prediction *session, uint64_t t0);
/* Number of layers that the session predicts. */
size_t kvi_prediction_layers(const struct kvi_prediction *session);
/* Whether the session predicts the tensor at this index of the order of chunks. */
bool kvi_prediction_covers(const struct kvi_prediction *session, uint32_t order_index);

/* The request of a job for the prediction of a tensor in a segment: n tokens of its width. */
struct kvi_prediction_request {
	uint32_t order_index;
	const struct kvi_segment *s;
	const uint64_t *check;          /* H64 of P when that is wanted, else kvi_expected_check;
	                                 * NULL: not known */
	const struct kvi_linear_in *in; /* for kvi_expected_check: `expected` and sources */
	const uint8_t *raw;             /* elements of the chunk; NULL: not known */
	/* results */
	int16_t *expected;  /* E; NULL: not wanted */
	uint8_t *predicted; /* P (spec predicted 1); NULL: not wanted */
	bool exact;         /* raw is finite, and equal to P, which is not filled in then */
};
/*
 * Gets the prediction of a tensor, inside a job: waits until the model has reached its layer. When
 * the check does not hold, and the session decodes, the model runs over the segment again in scalar
 * arithmetic, and stays there. Returns OK, whatever the check says; PREDICTOR when an external
 * predictor failed; DATA when an earlier chunk is lost, or the model cannot go on
 * (kvi_prediction_failure).
 */
kvarc_ret kvi_prediction_get(struct kvi_prediction *session,
                             struct kvi_prediction_request *request);
/* Gives the session the elements of a chunk and the features that were made of them, once, in the
 * job of kvi_prediction_get. exact: the payload is only a check (spec predicted 3). */
void kvi_prediction_observe(struct kvi_prediction *session, uint32_t order_index,
                            const uint8_t *raw, const struct kvi_features *features, bool exact);
/* Marks the chunk at an index of the segment that begins with token t0 as lost, and with it upper
 * layers and later segments. Replaces kvi_prediction_observe; any thread. */
void kvi_prediction_mark_lost(struct kvi_prediction *session, uint32_t order_index, uint64_t t0);
/* Whether scalar arithmetic had to take over. */
bool kvi_prediction_fell_back(struct kvi_prediction *session);
/* Whether the next segment, or one before it, cannot be predicted. */
bool kvi_prediction_is_lost(struct kvi_prediction *session);
/* Static text of the failure; NULL: there is none, or only losses. */
const char *kvi_prediction_failure(struct kvi_prediction *session);

#endif
