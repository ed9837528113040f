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
#include "prediction_engine.h"
#include "profile/linear_plan.h"
#include "util/shared.h"

struct kvi_prediction;
struct kvi_features;

/* What a prediction session is opened with; all pointers must outlive it. */
struct kvi_prediction_options {
	const kvarc_predictor *predictor;
	const struct kvi_predictor *description; /* level, arithmetic, loop */
	const struct kvi_linear_plan *plan;      /* of that level */
	const kvarc_geometry *geometry;
	const struct kvi_order *order;
	uint32_t track;
	unsigned threads;
	uint32_t isa_mask;
	bool decodes; /* a prediction that is wrong is made again */
};

/* Whether the model could have made the track (spec model): an answer in error when not.
 * Returns OK, PREDICTOR. */
kvarc_ret kvi_prediction_fits(const struct kvi_prediction_options *options, kvarc_error *error);
/* The same of its keys' RoPEs alone, whatever the profile; freq: theirs, by those of the model. */
KVI_SHARED kvarc_ret kvi_prediction_ropes(const struct kvi_prediction_options *options,
                                          const uint64_t *freq[2], kvarc_error *error);
/* Of a track that fits. On failure *g is NULL. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_prediction_open(struct kvi_prediction **g,
                              const struct kvi_prediction_options *options, kvarc_error *error);
void kvi_prediction_close(struct kvi_prediction *session); /* NULL-safe; no job uses it any more */

/* The first token of the segment that comes next; no job of a segment is under way. */
uint64_t kvi_prediction_next(const struct kvi_prediction *session);
/* Starts again at the first token, through the first `layers` layers alone. */
void kvi_prediction_restart(struct kvi_prediction *session, size_t layers);
/* Goes back to the first t0 tokens, as if it had seen no others; no more than it has gone through,
 * and no job of a segment is under way. */
void kvi_prediction_rewind(struct kvi_prediction *session, uint64_t t0);
/* How many layers it goes through. */
size_t kvi_prediction_layers(const struct kvi_prediction *session);
/* Whether the session predicts the tensor at this index of the order of chunks. */
bool kvi_prediction_covers(const struct kvi_prediction *session, uint32_t order_index);

/* What a job asks of a tensor in a segment: n tokens of its width. */
struct kvi_prediction_request {
	uint32_t order_index;
	const struct kvi_segment *s;
	const uint64_t *check;          /* of P when that is wanted, else as in; NULL: not known */
	const struct kvi_linear_in *in; /* with a check that is not of P: of `expected`, sources */
	const uint8_t *raw;             /* the elements; NULL: not known */
	/* out */
	int16_t *expected;  /* E; NULL: not wanted */
	uint8_t *predicted; /* P (spec predicted 1); NULL: not wanted */
	bool exact;         /* raw is finite, and P; which is not filled in then */
};
/*
 * In a job. Waits until the model is there. When the check does not hold, and the session decodes,
 * the model goes through the segment again in scalar arithmetic, and stays there.
 * Returns OK, whatever the check says; PREDICTOR when an external predictor failed; DATA when
 * what comes before is lost, or the model cannot go on (kvi_prediction_failure).
 */
kvarc_ret kvi_prediction_get(struct kvi_prediction *session,
                             struct kvi_prediction_request *request);
/* In the same job, once: the elements of the chunk, and the features that were made of them.
 * exact: its payload is nothing but a check (spec predicted 3). */
void kvi_prediction_observe(struct kvi_prediction *session, uint32_t order_index,
                            const uint8_t *raw, const struct kvi_features *features, bool exact);
/* Instead of kvi_prediction_observe, from any thread: the chunk at an index of the segment that
 * begins with token t0 is lost, and with it upper layers and later segments. */
void kvi_prediction_mark_lost(struct kvi_prediction *session, uint32_t order_index, uint64_t t0);
/* Whether scalar arithmetic had to take over. */
bool kvi_prediction_fell_back(struct kvi_prediction *session);
/* Whether a segment before the next one, or that one, cannot be gone through. */
bool kvi_prediction_is_lost(struct kvi_prediction *session);
/* Static text of the failure, NULL: none but losses. */
const char *kvi_prediction_failure(struct kvi_prediction *session);

#endif
