/* SPDX-License-Identifier: BSD-3-Clause */
/* track_labels.h - which tracks of a slot are of context checkpoints, by their labels */
#ifndef KVI_TRACK_LABELS_H
#define KVI_TRACK_LABELS_H

#include <stdbool.h>
#include <string.h>

#include "kvarc.h"

/* Stands behind the label of the memory and before the number of the checkpoint. */
#define KVI_CHECKPOINT_LABEL " checkpoint "

/* Whether a track is of a context checkpoint; how many of them a slot has depends on its prompts,
 * and not on the model or the server. */
static inline bool kvi_is_checkpoint_track(const kvarc_track *track)
{
	return track->label && strstr(track->label, KVI_CHECKPOINT_LABEL);
}

#endif
