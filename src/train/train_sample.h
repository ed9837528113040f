/* SPDX-License-Identifier: BSD-3-Clause */
/* train_sample.h - models applied to tokens, and what the elements then cost */
#ifndef KVI_TRAIN_SAMPLE_H
#define KVI_TRAIN_SAMPLE_H

#include "kvarc/tools.h"
#include "train_fit.h"

/* Pieces of caches whose tokens lie next to each other in a sample. */
struct kvi_train_piece {
	size_t cache, t0, n, at; /* at: in the sample; n <= KVI_TRAIN_BLOCK */
};

/* The pieces of caches that a sample consists of, n_tokens in all; p is freed by the caller. */
struct kvi_train_pieces {
	size_t n, n_tokens;
	struct kvi_train_piece *p;
};

/*
 * A tensor's elements of a sample of tokens, with the model's predictions: one row per slot, of
 * `capacity` tokens.
 */
struct kvi_train_view {
	const struct kvi_model *model;
	size_t n, capacity;
	uint16_t *element;
	uint32_t *mu;     /* bit patterns */
	int32_t *left;    /* residual U - pred, RoPE removed */
	int32_t *miss;    /* residual X - M, RoPE applied */
	uint8_t *angle;   /* classes, one row a pair of the rope */
	uint8_t *unknown; /* by token: no row in the model's table */
	uint8_t *dtype;   /* by token */
	uint8_t *scale;   /* by token: q of spec linear 4 at the end, once priced */
};

/* Tokens for a sample: fitted ones, evenly, or all that are held out (at most `most`). */
kvarc_ret kvi_train_pieces_choose(kvarc_trainer *trainer, const struct kvi_train_task *task,
                                  bool held, size_t most, struct kvi_train_pieces *pieces);

/* Applies the models of a level to all tensors of the layer; level 1: means alone, of the models
 * of any level. view[i]: kvi_train_view_free in every case. */
kvarc_ret kvi_train_view_make(kvarc_trainer *trainer, const struct kvi_train_task *task,
                              const struct kvi_train_pieces *pieces, unsigned level,
                              struct kvi_train_view view[KVI_TRAIN_TENSORS]);
/* Frees the arrays of all views and zeroes them. */
void kvi_train_view_free(kvarc_trainer *trainer, struct kvi_train_view view[KVI_TRAIN_TENSORS]);

/* Candidate scale parameters of a model. */
struct kvi_train_scale {
	const int16_t *k;  /* by slot */
	int offset;        /* added to all k */
	int reach;         /* slots: also of classes this much smaller and larger */
	unsigned n0, beta; /* n0 0: the model does not follow the token */
	unsigned unknown;
	const uint8_t *source; /* scale of the other tensor, with beta */
	unsigned every;        /* price one group of 32 tokens in `every`; 0: all */
};

/* Code length in 1/256 bit. slots: that of each slot is added to it, 2 * scale->reach + 1 rows,
 * one for each distance from the classes of scale; the scale of a token follows those of scale
 * in all rows. NULL: not wanted, scale->reach is 0. Sets view->scale. */
uint64_t kvi_train_price(kvarc_trainer *trainer, struct kvi_train_view *view,
                         const struct kvi_train_scale *scale, _Atomic uint64_t *slots);

/* price.c: the grid codec's tables and code lengths */
struct kvi_train_prices;
/* Computes the code lengths of the grid codec. Freed by kvi_train_prices_close(). Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_train_prices_open(struct kvi_train_prices **p, const struct kvi_alloc *alloc);
/* Frees *prices; NULL is accepted. */
void kvi_train_prices_close(struct kvi_train_prices *prices);
/* The code length of n elements in 1/256 bit, given mu and scale class of each. Any thread. */
uint64_t kvi_train_prices_sum(const struct kvi_train_prices *prices, unsigned dtype,
                              const uint16_t *element, const uint32_t *mu, const int16_t *k,
                              size_t n);

/* scales.c: k, n0, beta, unknown of a model from a sample of fitted tokens; level1: k alone, into
 * that array. price: of the sample, then, as kvi_train_price has it. */
kvarc_ret kvi_train_fit_scales(kvarc_trainer *trainer, struct kvi_train_view *view,
                               struct kvi_model *model, struct kvi_train_view *source,
                               int16_t *level1, uint64_t *price);

#endif
