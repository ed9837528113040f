/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_predictors.h - the predictors that a file names, their profiles and models */
#ifndef KVI_READER_PREDICTORS_H
#define KVI_READER_PREDICTORS_H

#include <pthread.h>
#include "format/predictor_frame.h"
#include "predict/prediction.h"
#include "predict/token_coder.h"
#include "reader_index.h"

/* A PREDICTOR frame and, once a chunk needed it, its profile. */
struct kvi_predictor_ref {
	struct kvi_predictor p;
	uint64_t sequence;
	struct kvi_list parts; /* struct kvi_blob_ref: its PROFILE frames */
	uint8_t *content;      /* a pipe: the content of those frames */
	uint64_t filled;
	bool too_large; /* content does not fit the memory limit */
	bool looked;    /* loading was tried: the members from ret on have the result */
	kvarc_ret ret;
	kvarc_error error;
	const struct kvi_profile *profile;
	struct kvi_profile *own;
	struct kvi_linear_plan *plan;
	struct kvi_prediction **sessions; /* by track, made at their first use; kind 2 */
	bool ids_looked, ids_fell_back;   /* ids_looked: the lm_head was looked for */
	kvarc_ret ids_ret;
	kvarc_error ids_error;
	struct kvi_token_coder **coders; /* by track */
};

/* The PREDICTOR frames. */
struct kvi_reader_predictors {
	struct kvi_list list; /* struct kvi_predictor_ref * */
	pthread_mutex_t lock; /* guards what is loaded of them, and workers.repeated */
	bool has_lock;
};

/* Adds the content of a PREDICTOR frame to the list. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_reader_add_predictor(kvarc_reader *r, const struct kvi_frame *frame,
                                   const uint8_t *content, size_t bytes, kvarc_error *error);
/* Adds the position of a PROFILE frame to the last PREDICTOR. */
kvarc_ret kvi_reader_add_part(kvarc_reader *r, uint64_t offset, uint64_t sequence, uint32_t bytes,
                              kvarc_error *error);
/* Adds the content of a PROFILE frame to the last PREDICTOR; on a pipe, where it passes once. */
kvarc_ret kvi_reader_keep_part(kvarc_reader *r, const uint8_t *content, size_t bytes);
/* Loads profile and plan of a PREDICTOR at the first call. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, PREDICTOR, IO; the same each time. Safe in workers. */
kvarc_ret kvi_reader_load_predictor(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                                    kvarc_error *error);
/* The PREDICTOR of kind 1 or 2 with this sequence number; in salvage another one when
 * that is lost. NULL: there is none. */
struct kvi_predictor_ref *kvi_reader_find_predictor(const kvarc_reader *r, uint64_t sequence);
/* The PREDICTOR in force at a frame; NULL: none. */
struct kvi_predictor_ref *
kvi_reader_predictor_before(const struct kvi_reader_predictors *predictors, uint64_t sequence);
/* A PREDICTOR frame, the given one or another, that embeds its profile; NULL: none does. */
struct kvi_predictor_ref *kvi_reader_embedding(const kvarc_reader *r,
                                               struct kvi_predictor_ref *predictor);
/* Reports that the model of predictor is needed; but: what there is instead. Returns PREDICTOR. */
kvarc_ret kvi_reader_missing_model(const struct kvi_predictor_ref *predictor, const char *but,
                                   kvarc_error *error);
/* Frees all predictors with their profiles and prediction sessions. */
void kvi_reader_forget_predictors(kvarc_reader *r);
/* Number of prediction sessions that fell back to scalar arithmetic; no job is under way. */
uint64_t kvi_reader_fallbacks(const kvarc_reader *r);

#endif
