/* SPDX-License-Identifier: BSD-3-Clause */
/* device_model.h - the weights of a model in the memory of a device */
#ifndef KVI_DEVICE_MODEL_H
#define KVI_DEVICE_MODEL_H

#include "device_state.h"
#include "exact_model.h"

/* A model. */
struct kvarc_device_model {
	struct kvarc_device *d;
	const struct kvi_engine *engine; /* engine of the predictor */
	uint64_t bytes, weights_bytes;   /* weights_bytes: without the memory of the check */
	bool loaded;
	/* addresses, once it is loaded */
	struct kvi_gpu_exact_model m;
};

/* Memory, aligned to 256, that a check of the model takes, which has no layers yet. */
uint64_t kvi_model_check_bytes(struct kvarc_device_model *model);
/* Compares what kernels predict of a few tokens with the library's engine, once the weights are
 * there; waits for the device, whose context is current. Returns OK, IO (the driver, or other
 * predictions), MEM, MEMLIMIT. */
kvarc_ret kvi_model_check(struct kvarc_device_model *model, uint64_t memory, void *stream);

#endif
