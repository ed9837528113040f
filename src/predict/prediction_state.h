/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_state.h - the inside of a prediction session, for its own sources */
#ifndef KVI_PREDICTION_STATE_H
#define KVI_PREDICTION_STATE_H

#include <pthread.h>

#include "profile/expect.h"
#include "prediction.h"

/* Indices of a layer's two tensors, and their number. */
enum { KEY, VALUE, BOTH };

/* A layer's first key and value tensor. */
struct layer {
	uint32_t order_index[BOTH];
	const struct kvi_model *model[BOTH];
	struct kvi_features *f[BOTH]; /* shared by all layers unless `keeps` */
	unsigned exact;               /* bits KEY and VALUE: the elements are P (spec predicted) */
};

/* A prediction session. Members below the lock are used with it alone. */
struct kvi_prediction {
	struct kvi_prediction_options o;
	const struct kvi_alloc *alloc;
	const struct kvi_model_file *file; /* NULL: an external predictor */
	const kvarc_predictor_model *shape;
	const struct kvi_kernels *kernels;
	struct kvi_pool *pool;
	const struct kvi_prediction_ops *ops;
	void *run;
	struct kvi_external_layer *external;
	size_t C;
	struct layer *layers;
	/* The current segment, or the next one when n is 0. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool has_lock, has_changed;
	uint64_t t0;
	size_t n, layer, limit; /* limit: layers that the session predicts */
	unsigned observed;      /* bits KEY and VALUE: observed tensors of the layer */
	bool lost;
	/* The first segment with a loss, and its layers that will never be reached. */
	uint64_t lost_t0;
	size_t lost_from;
	const char *why;
	kvarc_ret ret; /* code of the failure */
	struct kvi_predicted p;
	float *true_values[BOTH]; /* keys in slots */
	float *turned, *channels; /* a token's predicted keys, in slots and not */
	uint8_t *elements;        /* elements of a token */
	bool keeps;               /* features of all layers of the current segment stay */
	bool fell_back;           /* scalar arithmetic is used */
	void *scratch;            /* memory of corrections */
};

/* The tensor at an index of the order of chunks. */
static inline const kvarc_tensor *
kvi_prediction_tensor(const struct kvi_prediction_options *options, uint32_t order_index)
{
	return &options->geometry->tensors[options->order->tensors[order_index]];
}

extern const char kvi_prediction_failed_text[]; /* `why` of an external predictor */

/* Computes P of the current layer for all tokens, in exact arithmetic; the lock is held. */
void kvi_prediction_elements(struct kvi_prediction *session, const kvarc_tensor *tensor,
                             uint8_t *to);
/* Whether P of the current layer is equal to the raw elements, in exact arithmetic; the lock is
 * held. */
bool kvi_prediction_is_exact(struct kvi_prediction *session, const kvarc_tensor *tensor,
                             const uint8_t *raw);

#endif
