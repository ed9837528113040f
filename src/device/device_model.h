/* SPDX-License-Identifier: BSD-3-Clause */
/* device_model.h - the weights of a model in the memory of a device */
#ifndef KVI_DEVICE_MODEL_H
#define KVI_DEVICE_MODEL_H

#include "device_state.h"
#include "exact_model.h"

/* A model; those that are open are chained in their device. */
struct kvarc_device_model {
	struct kvarc_device *d;
	struct kvarc_device_model *next;
	const struct kvi_engine *engine; /* of the predictor */
	struct kvi_h128 digest;
	uint64_t bytes, weights_bytes; /* weights_bytes: without what the check takes */
	bool loaded;
	/* once it is loaded: addresses */
	struct kvi_gpu_exact_model m;
};

/* The loaded model of a device with these weights in an arithmetic; NULL: there is none. */
const struct kvarc_device_model *kvi_device_find_model(const struct kvarc_device *d,
                                                       struct kvi_h128 digest,
                                                       const struct kvi_arithmetic *a);

/* Memory, aligned to 256, that a check of the model takes, which has no layers yet. */
uint64_t kvi_model_check_bytes(struct kvarc_device_model *m);
/* Compares what kernels predict of a few tokens with the library's engine, once the weights are
 * there; waits for the device, whose context is current. Returns OK, IO (the driver, or other
 * predictions), MEM, MEMLIMIT. */
kvarc_ret kvi_model_check(struct kvarc_device_model *m, uint64_t memory, void *stream);

#endif
