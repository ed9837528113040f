/* SPDX-License-Identifier: BSD-3-Clause */
/* output_launch.h - outputs of a layer on their way through the kernels that encode */
#ifndef KVI_OUTPUT_LAUNCH_H
#define KVI_OUTPUT_LAUNCH_H

#include "plan_state.h"

/* Outputs of a layer on their way: their jobs lie one behind the other. */
struct kvi_output_launch {
	struct kvarc_device *d;
	void *stream;
	uint64_t jobs, answers; /* addresses of those of the first output */
	uint64_t tables;        /* of struct kvi_gpu_tables */
	const struct kvi_output_chunk *outputs;
	uint32_t n, channels; /* channels: of the largest chunk */
	bool transforms;      /* chunks of codec klt are predicted from outputs of this plan */
};

/* Launches the kernels that find out which tokens of lossy chunks are exact, if there are such
 * chunks, behind those of masks. Returns OK, IO, MEM. */
kvarc_ret kvi_output_launch_tokens(struct kvi_output_launch *l);
/* Launches the kernels that encode lossy chunks of a stage, between those that make sums of models
 * and those that make features. Returns OK, IO, MEM. */
kvarc_ret kvi_output_launch_lossy(struct kvi_output_launch *l, uint32_t stage);

#endif
