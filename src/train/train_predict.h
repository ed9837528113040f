/* SPDX-License-Identifier: BSD-3-Clause */
/* train_predict.h - the sequences of a stack through a model */
#ifndef KVI_TRAIN_PREDICT_H
#define KVI_TRAIN_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "exact/engine.h"
#include "kvarc/tools.h"
#include "profile/profile_io.h"
#include "train/train_fit.h"
#include "train/trainer.h"
#include "weights/model_file.h"

struct kvi_engine;

/*
 * Tokens at the input of a layer. Rows of all tokens of the stack; only the first n_caches of its
 * sequences are on their way. k, v: what the layer predicts, in slots, k before RoPE; of the
 * teacher: as an engine of the caches' dtype would store it, rotated.
 */
struct kvi_train_walk {
	struct kvi_run *run;
	size_t n_caches;
	float *h, *root; /* width; 1 */
	float *k, *v;    /* kv */
};

/*
 * Corrections predict the difference between the hidden state of the engine that made the caches
 * and ours, from our residual of the keys and values. Nobody knows that engine's state. So a
 * teacher stands for it, which is more exact and rounds where it does, and makes keys and values of
 * its own, which a student predicts: the teacher's state minus the student's is the target.
 */
struct kvi_train_predictor {
	struct kvi_model_file *file;
	unsigned level;
	struct kvi_arithmetic arithmetic;
	bool closed, corrects;    /* D would not pay in the file that it was fitted to */
	float *blind_k, *blind_v; /* per layer, rows of all tokens, in one piece of memory;
	                            * NULL: it sees the token */
	size_t width, kv;
	struct kvi_engine *engine, *exact;            /* exact: the teacher's, maybe the same */
	struct kvi_train_walk real, student, teacher; /* n_caches 0: there is no such walk */
	uint64_t layer_work;                          /* work of a token, for the progress */
};

/* Opens the model as trainer->predictor, which is NULL on failure. Returns OK, MEM, MEMLIMIT,
 * IO, FORMAT, OPTIONS, DATA. */
kvarc_ret kvi_train_predictor_open(kvarc_trainer *trainer, const char *path, unsigned level);
/* Frees the predictor of trainer, if it has one, with its model and all walks. */
void kvi_train_predictor_close(kvarc_trainer *trainer);
/* Checks that the stack is this model's, makes the engines, and takes all tokens to layer 0.
 * Returns OK, MEM, MEMLIMIT, GEOMETRY, DATA. */
kvarc_ret kvi_train_predictor_start(kvarc_trainer *trainer, const struct kvi_train_stack *stack);
/* Work of all layers, as bytes of the progress. */
uint64_t kvi_train_predictor_work(const kvarc_trainer *trainer,
                                  const struct kvi_train_stack *stack);
/* Predicts keys and values of a layer for all tokens: k and v of the walks. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_train_predict_layer(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                                  uint32_t layer);
/* walk.c: whether the elements of the layer at hand are what is predicted, bit for bit. */
kvarc_ret kvi_train_compare_layer(kvarc_trainer *trainer, const struct kvi_train_task *task,
                                  bool *same);
/* Fits the correction of a layer whose models are fitted, and takes all tokens to the input of the
 * next layer. */
kvarc_ret kvi_train_advance_layer(kvarc_trainer *trainer, struct kvi_train_task *task);

/* The predictions of a kind of tensor. */
static inline const float *kvi_train_walk_rows(const struct kvi_train_walk *w, unsigned kind)
{
	return kind == KVARC_KEY ? w->k : w->v;
}

/* correct.c: fits D of the layer's model to the teacher's tokens, with features z of `taught`.
 * Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_train_correct_fit(kvarc_trainer *trainer, struct kvi_train_task *task,
                                const struct kvi_train_layer *taught, const float *weights);
/* Adds D times the residuals z of layer to the hidden states of a walk, with the layer's model. */
void kvi_train_correct(kvarc_trainer *trainer, const struct kvi_train_task *task,
                       const struct kvi_train_layer *layer, const struct kvi_train_walk *w);

#endif
