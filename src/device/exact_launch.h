/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_launch.h - launches kernels of the exact engine */
#ifndef KVI_EXACT_LAUNCH_H
#define KVI_EXACT_LAUNCH_H

#include "device_state.h"
#include "exact_run.h"

/* Stream for the kernels of a run; the context of d is current. */
struct kvi_exact_stream {
	struct kvarc_device *d;
	void *stream;
};
/* kvi_gpu_exact_do, with opaque a struct kvi_exact_stream. Returns OK, IO, MEM. */
kvarc_ret kvi_exact_launch(void *opaque, const struct kvi_gpu_exact_step *step);

#endif
