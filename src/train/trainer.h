/* SPDX-License-Identifier: BSD-3-Clause */
/* trainer.h - a trainer: its options, and the caches that come in */
#ifndef KVI_TRAINER_H
#define KVI_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kvarc.h"
#include "format/geometry_check.h"
#include "format/identity.h"
#include "kvarc/tools.h"
#include "profile/profile_io.h"
#include "train/train_kernels.h"
#include "util/alloc.h"
#include "util/list.h"

struct kvi_train_unit;

/* Sizes and limits of a training run. */
enum {
	KVI_TRAIN_BLOCK = 256,     /* tokens of a fetch, and of applying a model */
	KVI_TRAIN_IN_FILE = 16384, /* tokens of an input that a fit for a file looks at, about; */
	KVI_TRAIN_IN_FILE_MODEL = 2048, /* tokens with a transformer, the first ones */
	KVI_TRAIN_ENOUGH = 4,           /* tokens for each source of a slot */
	KVI_TRAIN_TENSORS = 3,          /* tensors of a layer: key, value, latent */
	KVI_TRAIN_BELOW = 2,            /* layers whose features level 3 sees */
	KVI_TRAIN_WIDE = 512            /* channels of a tensor; wider: head by head */
};

/* A tensor that models are fitted for, in all caches of a stack. */
struct kvi_train_shape {
	uint32_t layer;
	uint8_t kind;
	uint32_t heads, channels;
	uint32_t rope; /* 0, or 1 + index into the trainer's ropes */
};

/* Origins of the keys and values of a cache. */
enum kvi_train_origin {
	KVI_TRAIN_GIVEN,  /* an engine made them */
	KVI_TRAIN_IDS,    /* the teacher makes them from ids (made.c) */
	KVI_TRAIN_WRITTEN /* the teacher makes the ids, too, but for the first (write.c) */
};

/* Track of a cache. */
struct kvi_train_cache {
	kvarc_geometry geometry; /* a copy */
	kvarc_fetch fetch;
	void *opaque;
	kvarc_reader *reader; /* fetches from it, with its errors; NULL: other */
	uint32_t track;
	size_t n, held;           /* tokens; of them fitted, the first ones */
	size_t every;             /* one block of tokens in `every` is read */
	size_t first;             /* index of its first token in the stack */
	int32_t *ids, *positions; /* ids may be NULL */
	uint32_t *tensors;        /* indices in the geometry, by shape */
	enum kvi_train_origin origin;
	uint64_t seed; /* seed of the tokens that the teacher writes */
};

/* Caches with the same layers: they are fitted together. */
struct kvi_train_stack {
	size_t n_shapes, n_caches, cap_caches;
	struct kvi_train_shape *shapes; /* ascending by layer and kind */
	struct kvi_train_cache **caches;
	size_t n_tokens;
	double all_tokens; /* tokens of the stack, with those that are not read */
};

struct kvi_pool;
struct kvi_train_prices;
struct kvi_train_predictor;

/* A trainer: caches by the shape of their tensors, and the models fitted to them. Owned by the
 * caller of kvarc_trainer_open(); one thread at a time. */
struct kvarc_trainer {
	struct kvi_alloc alloc;
	kvarc_trainer_options options;
	kvarc_error *error;
	struct kvi_identity identity;
	size_t n_stacks, cap_stacks;
	struct kvi_train_stack *stacks;
	size_t n_ropes;
	struct kvi_profile_rope ropes[KVI_MAX_ROPES];
	size_t n_notes, cap_notes;
	char **notes;
	unsigned held_out; /* percent, of caches that are added now */
	size_t look_at;    /* tokens of a track at most, 0: all */
	double stands_for; /* tracks: each one that is read represents this number of tracks */
	struct kvi_train_predictor *predictor; /* NULL: none, levels 2 and 3 */
	size_t n_without_ids;                  /* tracks that no model can predict: left out */
	char no_transform[192]; /* why the first tensor without a transform has none */
	size_t n_report, cap_report;
	kvarc_trained *report;
	/* during the run */
	struct kvi_pool *pool;
	const struct kvi_train_kernels *kernels;
	struct kvi_train_prices *prices;
	uint64_t done, total;   /* bytes, for the progress */
	kvarc_profile *profile; /* under construction, then the result */
	bool ran, few;
	bool unprofitable; /* the run was ended early: no profile would pay */
	size_t n_packed;   /* models of the profile whose bits once packed are in packed_bits */
	double packed_bits;
	size_t n_predicted; /* layers that are as predicted, bit for bit */
	/* Bytes of the caches at level 1 (0: not known, with a transformer), and by the profile,
	 * with its own. */
	double plain, cost;
	struct kvi_train_unit *units; /* units of the heads that were weighed */
	size_t n_units;
};

/* Number of the stack's shapes in the layer that begins at `first`. */
static inline size_t kvi_train_layer_shapes(const struct kvi_train_stack *stack, size_t first)
{
	size_t n = 1;
	while (first + n < stack->n_shapes &&
	       stack->shapes[first + n].layer == stack->shapes[first].layer)
		n++;
	return n;
}

/* Shape i of its stack. */
static inline const kvarc_tensor *kvi_train_tensor_of(const struct kvi_train_cache *cache, size_t i)
{
	return &cache->geometry.tensors[cache->tensors[i]];
}

/* Token of the track that token i of what is looked at is. */
static inline size_t kvi_train_token(const struct kvi_train_cache *cache, size_t i)
{
	return i / KVI_TRAIN_BLOCK * cache->every * KVI_TRAIN_BLOCK + i % KVI_TRAIN_BLOCK;
}

/* A row of features holds all tokens of a stack; rows of a head are rounded up to
 * an even number, as in struct kvi_model. */
static inline size_t kvi_train_head_stride(const struct kvi_train_shape *shape)
{
	return (shape->channels + 1) & ~(size_t)1;
}
/* The number of feature rows of a shape: all heads. */
static inline size_t kvi_train_rows(const struct kvi_train_shape *shape)
{
	return shape->heads * kvi_train_head_stride(shape);
}

/* A tensor of the layer at hand, or of one below: then only what upper layers need. */
struct kvi_train_tensor {
	const struct kvi_train_shape *shape;
	uint32_t rotary;
	size_t rows;     /* features: kvi_train_rows */
	size_t capacity; /* entries of a row of z */
	int16_t *z;
	/* predictions of a transformer, tokens x channels in slots, keys before RoPE; NULL: none is
	 * given */
	const float *predicted;
	/* `predicted` in units of the step, laid out as z; z is then the residual */
	int16_t *expected;
	uint8_t *raw;   /* elements of all caches, token-major */
	size_t *raw_at; /* offset of each cache in raw */
	/* arrays by row */
	int32_t *mean;
	int16_t *step;
	double *sigma; /* sigma of the values, or of the residual, in units of the step */
};

/* The tensors of a layer. */
struct kvi_train_layer {
	size_t n;
	struct kvi_train_tensor tensors[KVI_TRAIN_TENSORS];
};

/* Runs fn for 0..n-1, in any order and in several threads. */
typedef void (*kvi_train_fn)(void *arg, size_t i);

/* Adds a note for the report, as printf; one that finds no memory is dropped. */
void kvi_train_note(kvarc_trainer *trainer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Fills the error for a failed allocation. Returns MEM or MEMLIMIT. */
kvarc_ret kvi_train_no_memory(kvarc_trainer *trainer);
/* Adds bytes to the progress and calls the caller's callback. Returns OK, IO (the callback stops
 * the run). */
kvarc_ret kvi_train_progress(kvarc_trainer *trainer, uint64_t bytes);
/* Elements of tokens [t0, t0 + n) of those looked at, packed; within a block when it is one of
 * several. OK, or the run's failure. */
kvarc_ret kvi_train_fetch(kvarc_trainer *trainer, const struct kvi_train_cache *cache,
                          uint32_t tensor, size_t t0, uint32_t n, void *to);

/* Calls fn(arg, i) for i in 0..n-1 on the trainer's threads; returns after the last call. */
void kvi_train_parallel(kvarc_trainer *trainer, size_t n, kvi_train_fn fn, void *arg);

/* The profile that the run fills; owned by the trainer. */
struct kvi_profile *kvi_train_profile(kvarc_trainer *trainer);

#endif
