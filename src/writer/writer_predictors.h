/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_predictors.h - the profile and the model of a writer, and their frames */
#ifndef KVI_WRITER_PREDICTORS_H
#define KVI_WRITER_PREDICTORS_H

#include "kvarc.h"

/* Makes the plan of the tensors that the profile of the options models; before groups are made. */
kvarc_ret kvi_writer_plan(kvarc_writer *w);
/* Opens the prediction sessions of tracks, at levels 4 to 8; after groups are made. */
kvarc_ret kvi_writer_predictions(kvarc_writer *w);
/* Writes PREDICTOR, and PROFILE frames when the profile is embedded. */
kvarc_ret kvi_writer_emit_profile(kvarc_writer *w);

#endif
