/* SPDX-License-Identifier: BSD-3-Clause */
/* train_walk.h - tokens of a stack at the input of a layer, a block at a time (struct
 * kvi_train_walk) */
#ifndef KVI_TRAIN_WALK_H
#define KVI_TRAIN_WALK_H

#include "kvarc/tools.h"
#include "train_predict.h"

/* Allocates the rows of the first n_caches sequences of s and a run of e. Call
 * kvi_train_walk_close() also after a failure. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_train_walk_open(kvarc_trainer *t, const struct kvi_train_stack *s,
                              const struct kvi_engine *e, unsigned round_to, size_t n_caches,
                              struct kvi_train_walk *w);
/* Frees the run and the rows of *w. */
void kvi_train_walk_close(kvarc_trainer *t, struct kvi_train_walk *w);

/* n tokens of a sequence from t0 on; at: of the first one in the rows of the stack. */
struct kvi_train_block {
	size_t cache, t0, n, at;
};
typedef kvarc_ret kvi_train_block_fn(kvarc_trainer *t, const struct kvi_train_stack *s,
                                     struct kvi_train_walk *w, const struct kvi_train_block *b,
                                     void *arg);
/* Calls fn for each block, in order, until one call does not return OK; returns its code. */
kvarc_ret kvi_train_each_block(kvarc_trainer *t, const struct kvi_train_stack *s,
                               struct kvi_train_walk *w, kvi_train_block_fn *fn, void *arg);

/* The hidden state of the run, after it went through a layer, into the rows of the walk. */
void kvi_train_block_save(const struct kvi_train_predictor *p, struct kvi_train_walk *w,
                          const struct kvi_train_block *b);
/* Sets the hidden state of the run from the rows of the walk, at the input of `layer`. */
void kvi_train_block_place(const struct kvi_train_stack *s, const struct kvi_train_predictor *p,
                           struct kvi_train_walk *w, const struct kvi_train_block *b,
                           uint32_t layer);

/* n numbers as the caches have those of a shape. */
void kvi_train_block_round(const struct kvi_train_stack *s, const struct kvi_train_block *b,
                           size_t shape, float *x, size_t n);
/* Keys and values of the caches as they are stored, in slots. */
void kvi_train_block_true(const struct kvi_train_stack *s, const struct kvi_train_block *b,
                          const struct kvi_train_tensor *x, size_t shape, float *to);
/* Copies n rows of `columns` floats; strides in floats. */
void kvi_train_copy_rows(float *to, size_t to_stride, const float *from, size_t stride, size_t n,
                         size_t columns);

#endif
