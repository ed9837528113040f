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
	struct kvi_features *f[BOTH]; /* shared by all layers unless they are kept */
	unsigned exact;               /* bits KEY and VALUE: nothing but P (spec predicted) */
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
	/* The segment in hand, or the next one when n is 0. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool has_lock, has_changed;
	uint64_t t0;
	size_t n, layer, limit; /* limit: layers that it goes through */
	unsigned observed;      /* bits KEY and VALUE of the layer */
	bool lost;
	/* The first segment with a loss, and its layers that will never be reached. */
	uint64_t lost_t0;
	size_t lost_from;
	const char *why;
	kvarc_ret ret; /* why, as a code */
	struct kvi_predicted p;
	float *true_values[BOTH]; /* keys in slots */
	float *turned, *channels; /* a token's predicted keys, in slots and not */
	uint8_t *elements;        /* of a token */
	bool keeps;               /* the features of all layers, of the segment in hand */
	bool fell_back;           /* to scalar arithmetic */
	void *scratch;            /* of corrections */
};

/* The tensor at an index of the order of chunks. */
static inline const kvarc_tensor *
kvi_prediction_tensor(const struct kvi_prediction_options *options, uint32_t order_index)
{
	return &options->geometry->tensors[options->order->tensors[order_index]];
}

extern const char kvi_prediction_failed_text[]; /* why of an external predictor */

/* With the lock, in exact arithmetic: P of the layer in hand, of all tokens; whether it is raw. */
void kvi_prediction_elements(struct kvi_prediction *session, const kvarc_tensor *tensor,
                             uint8_t *to);
/* Whether the predicted elements of the current layer are the raw elements. As above. */
bool kvi_prediction_is_exact(struct kvi_prediction *session, const kvarc_tensor *tensor,
                             const uint8_t *raw);

#endif
