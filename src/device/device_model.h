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
	uint64_t bytes;
	bool loaded;
	/* once it is loaded: addresses */
	struct kvi_gpu_exact_model m;
};

/* The loaded model of a device with these weights in an arithmetic; NULL: there is none. */
const struct kvarc_device_model *kvi_device_find_model(const struct kvarc_device *d,
                                                       struct kvi_h128 digest,
                                                       const struct kvi_arithmetic *a);

#endif
