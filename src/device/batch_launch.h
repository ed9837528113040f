/* SPDX-License-Identifier: BSD-3-Clause */
/* batch_launch.h - launches kernels for a batch of chunks */
#ifndef KVI_BATCH_LAUNCH_H
#define KVI_BATCH_LAUNCH_H

#include "device_state.h"

/* Chunks of a layer on their way: their jobs lie one behind the other. The context of the device is
 * current. */
struct kvi_batch_launch {
	struct kvarc_device *d;
	void *stream;
	uint64_t jobs, status; /* addresses of those of the first chunk */
	uint64_t tables;       /* of struct kvi_gpu_tables */
	uint32_t n;
};

/* Launches a kernel that decodes. Returns OK, IO, MEM, as the next ones do. */
kvarc_ret kvi_batch_kernel(const struct kvi_batch_launch *l, const struct kvi_launch *k,
                           void **arguments);
/* E of the predictions of a layer, and the checks of it. */
kvarc_ret kvi_batch_expect(struct kvi_batch_launch *l);
/* What a closed loop takes of the elements; width: of the hidden state. */
kvarc_ret kvi_batch_observe(struct kvi_batch_launch *l, uint32_t width);
/* Behind all chunks of a layer: finds the first token from which upper layers cannot be
 * predicted. */
kvarc_ret kvi_batch_lose(struct kvi_batch_launch *l);
/* Before the first layer: there is no such token. */
kvarc_ret kvi_batch_lose_nothing(struct kvi_batch_launch *l, uint64_t lost);

#endif
