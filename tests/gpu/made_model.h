/* SPDX-License-Identifier: BSD-3-Clause */
/* made_model.h - a model in memory whose matrices and heads are larger than tiles of kernels */
#ifndef KVI_TEST_MADE_MODEL_H
#define KVI_TEST_MADE_MODEL_H

#include "weights/model_file.h"

/* Sizes that are no multiples of those of tiles, chunks and groups. */
enum { MADE_LAYERS = 2, MADE_CHANNELS_MAX = 256 };

/* The file points into the rest. */
struct made_model {
	struct kvi_model_file file;
	struct kvi_model_layer layers[MADE_LAYERS];
	uint64_t freq[MADE_CHANNELS_MAX / 2];
	float *numbers;
	size_t used, capacity;
	uint32_t seed;
};

/* A model of heads of that number of channels, 256 at most, the second layer with a window. Ends
 * the program where memory is short. */
void made_model_open(struct made_model *m, const struct kvi_alloc *alloc, uint32_t head_channels);
void made_model_close(struct made_model *m);

#endif
