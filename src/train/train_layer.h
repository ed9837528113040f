/* SPDX-License-Identifier: BSD-3-Clause */
/* train_layer.h - the features of a layer, and the numbers of spec linear 2 */
#ifndef KVI_TRAIN_LAYER_H
#define KVI_TRAIN_LAYER_H

#include "kvarc/tools.h"
#include "trainer.h"

/* Weights of the tokens of a stack in the fit of a layer. */
struct kvi_train_weights {
	uint8_t *bad; /* by token: has a value that is not finite, in a layer up to now */
	float *w;     /* by token, for the current layer; 0: not fitted */
	size_t n_bad;
	size_t fitted; /* tokens */
};

/* Loads the layer whose n shapes start at first: elements, means, steps, z, weights.
 * kvi_train_layer_free in every case. */
kvarc_ret kvi_train_layer_load(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                               size_t first, size_t n, struct kvi_train_weights *w,
                               struct kvi_train_layer *layer);
/* steps.c: mean, step and sigma of a tensor's rows. */
kvarc_ret kvi_train_fit_steps(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                              size_t shape, struct kvi_train_tensor *tensor,
                              const struct kvi_train_weights *w);
/* Sums |z| / sigma of each of n tokens over the rows of a layer that vary. Returns their number. */
double kvi_train_sum_sizes(const struct kvi_train_kernels *kernels,
                           const struct kvi_train_layer *layer, size_t n, float *sum);
/* Weights of the tokens from z; in the lowest layer all count the same. */
void kvi_train_weigh_tokens(const struct kvi_train_kernels *kernels,
                            const struct kvi_train_layer *layer,
                            const struct kvi_train_stack *stack, bool lowest,
                            struct kvi_train_weights *w);
/* Loads a layer as kvi_train_layer_load() does, with step and mean of tensor i from model[i], and
 * no weights. */
kvarc_ret kvi_train_layer_take(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                               size_t first, size_t n, const struct kvi_model *const model[],
                               struct kvi_train_layer *layer);
/* Frees the elements of *layer, which upper layers do not read. */
void kvi_train_layer_rest(kvarc_trainer *trainer, struct kvi_train_layer *layer);
/* Frees the memory of *layer; a zeroed struct is accepted. */
void kvi_train_layer_free(kvarc_trainer *trainer, struct kvi_train_layer *layer);

/* mean + by, rounded and clamped to the range of a model's mean. */
int32_t kvi_train_shifted(int32_t mean, double by);
/* Computes z of a row about another mean than its tensor's. */
void kvi_train_centre_row(const struct kvi_train_kernels *kernels, struct kvi_train_tensor *tensor,
                          size_t r, int32_t mean, size_t n_tokens);

/* X and U (spec linear 2) of tokens [t0, t0 + n) of cache k of a stack, shape `shape`: rows of
 * KVI_TRAIN_BLOCK entries, n at most that. */
void kvi_train_integers(const kvarc_trainer *trainer, const struct kvi_train_stack *stack, size_t k,
                        size_t shape, const struct kvi_train_tensor *tensor, size_t t0, size_t n,
                        int32_t *X, int32_t *U);
/* U from X (spec linear 2). */
void kvi_train_remove_rope(const struct kvi_train_stack *stack, size_t k, size_t shape,
                           const struct kvi_train_tensor *tensor, size_t t0, size_t n,
                           const int32_t *X, int32_t *U);
/* z of n tokens, whose first is token `at` of the stack. */
void kvi_train_fill_z(const struct kvi_train_kernels *kernels, struct kvi_train_tensor *tensor,
                      size_t at, size_t n, const int32_t *U);
/* expected.c: computes `expected` from `predicted`, if tensor has the latter. */
kvarc_ret kvi_train_expect(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                           struct kvi_train_tensor *tensor);
/* X of n tokens from rows of floats in slots, `stride` apart. */
void kvi_train_units(const struct kvi_train_tensor *tensor, const float *rows, size_t stride,
                     size_t n, int32_t *X);

/* Slot c of a model has this row of features. */
static inline size_t kvi_train_row_of(const struct kvi_model *model, size_t c)
{
	return c / model->head_channels * kvi_head_stride(model) + c % model->head_channels;
}
/* The elements, as the grid codec codes them, of n tokens with `width` each that lie at raw: rows
 * of n, channel after channel. raw: aligned for elements of dtype. */
void kvi_train_channels(const kvarc_trainer *trainer, unsigned dtype, const uint8_t *raw, size_t n,
                        size_t width, uint16_t *to);

/* 2^e, |e| < 1000 */
double kvi_train_power(int e);

/* v limited to [-n, n]; n >= 0. */
static inline int32_t kvi_train_clamp(int32_t v, int32_t n)
{
	return v < -n ? -n : v > n ? n : v;
}

#endif
