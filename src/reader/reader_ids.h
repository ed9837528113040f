/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_ids.h - token ids that a model has coded (spec tokens); by the calling thread alone */
#ifndef KVI_READER_IDS_H
#define KVI_READER_IDS_H

#include "reader_predictors.h"

/* The PREDICTOR of a segment's ids, if they may be coded. */
struct kvi_predictor_ref *kvi_reader_codes_ids(const kvarc_reader *r, uint64_t sequence);
/*
 * Ids that are coded become known; predictor: of the segment. Returns OK; END: the model is not
 * here, why is in error; PREDICTOR (the check does not hold), DATA, OPTIONS, MEM, MEMLIMIT, IO.
 */
kvarc_ret kvi_reader_ids(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                         struct kvi_segment *segment, kvarc_error *error);
/* As kvi_reader_ids for the first n ids alone: those that a later segment, which has been passed
 * since, has left of the segment. */
kvarc_ret kvi_reader_first_ids(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                               struct kvi_segment *segment, uint32_t n, kvarc_error *error);
/* Passes each segment in order, also on a pipe: coded ids of later segments may need its ids. As
 * kvi_reader_ids for a segment whose ids are coded; else OK or IO. */
kvarc_ret kvi_reader_pass_ids(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                              struct kvi_segment *segment, kvarc_error *error);

#endif
