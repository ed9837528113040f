/* SPDX-License-Identifier: BSD-3-Clause */
/* teacher_forced.h - teacher-forced logits of a text after a cache, whose rows it reads */
#ifndef KVI_TEACHER_FORCED_H
#define KVI_TEACHER_FORCED_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "predictor_handle.h"
#include "eval/eval_summary.h"
#include "exact/engine.h"
#include "exact/head.h"
#include "util/alloc.h"

struct kvi_pool;
struct kvi_run;

/* The number of tokens that a run advances at once. */
enum { KVI_TEACHER_FORCED_STEP = 256 };

/* Rows of the first n tokens of a cache, keys after RoPE. Tokens that were dropped are not there.
 * */
struct kvi_teacher_forced_cache {
	const kvarc_view *views; /* one view per tensor of the geometry */
	uint64_t n;
};
/* Tokens that come after the cache, at their own positions. The memory stays the caller's, and
 * valid while the text is the current one. */
struct kvi_teacher_forced_text {
	const int32_t *ids, *positions;
	size_t n;
};

/* kvi_run_put; tests have others. */
typedef kvarc_ret (*kvi_teacher_forced_put)(struct kvi_run *run, size_t layer, size_t at,
                                            const float *k, const float *v, size_t stride,
                                            size_t n);

/* Options of kvi_teacher_forced_open(). */
struct kvi_teacher_forced_options {
	const kvarc_predictor *predictor; /* a model, with a head */
	struct kvi_arithmetic arithmetic;
	const kvarc_geometry *geometry; /* geometry of the caches; must stay */
	uint32_t track;
	const struct kvi_alloc *alloc;
	struct kvi_pool *pool;
	uint32_t isa_mask;
	kvi_teacher_forced_put put; /* NULL: kvi_run_put */
};

struct kvi_teacher_forced;

/* Opens a teacher-forced run. On failure *f is NULL. Returns OK, MEM, MEMLIMIT, PREDICTOR (the
 * cache is not the model's), OPTIONS (no model, or one without a head), and as
 * kvi_predictor_head. */
kvarc_ret kvi_teacher_forced_open(struct kvi_teacher_forced **f,
                                  const struct kvi_teacher_forced_options *options,
                                  kvarc_error *error);
/* Frees *f and sets it to NULL; *f may be NULL. */
void kvi_teacher_forced_close(struct kvi_teacher_forced **f);
/*
 * Computes the cache of a text as an engine in exact arithmetic that stores it so: attention sees
 * the elements. views: one per tensor, are filled. Returns OK, MEM, MEMLIMIT, DATA (an id or
 * position that the model lacks).
 */
kvarc_ret kvi_teacher_forced_prefill(struct kvi_teacher_forced *teacher,
                                     const struct kvi_teacher_forced_text *text,
                                     const kvarc_view *views);
/* Callbacks for tokens [t0, t0 + n), each may be NULL. A code other than OK ends the run. */
struct kvi_teacher_forced_observer {
	void *opaque;
	/* Queries of a layer, whose keys are in the cache. */
	kvarc_ret (*queries)(void *opaque, size_t layer, const struct kvi_queries *q, size_t t0,
	                     size_t n);
	/* Logits of the next token after each of the tokens. */
	kvarc_ret (*logits)(void *opaque, const struct kvi_logits *z, size_t t0, size_t n);
	kvarc_ret (*done)(void *opaque, size_t t0, size_t n);
};
/* Computes a cache as kvi_teacher_forced_prefill() does, and calls the observer; returns also what
 * its calls return. */
kvarc_ret kvi_teacher_forced_observed(struct kvi_teacher_forced *teacher,
                                      const struct kvi_teacher_forced_text *text,
                                      const kvarc_view *views,
                                      const struct kvi_teacher_forced_observer *watch);
/* Keys of up to KVI_TEACHER_FORCED_STEP tokens of a layer as attention sees them: rows of kv heads
 * x head channels, in slots, rotated. */
void kvi_teacher_forced_keys(const struct kvi_teacher_forced *teacher, size_t layer,
                             const kvarc_view *views, uint64_t t0, size_t n, float *k);
/*
 * Computes and stores the logits of all tokens of a text after the exact cache: text->n x
 * vocabulary floats. Keys and values of the text are rounded to the elements of the cache. Returns
 * as kvi_teacher_forced_prefill, and OPTIONS (tokens were dropped, and layers have windows, which
 * count positions).
 */
kvarc_ret kvi_teacher_forced_exact(struct kvi_teacher_forced *teacher,
                                   const struct kvi_teacher_forced_cache *cache,
                                   const struct kvi_teacher_forced_text *text);
/* Runs the text of kvi_teacher_forced_exact after another cache, and compares the logits; text->n
 * of divergence. Returns as kvi_teacher_forced_exact. */
kvarc_ret kvi_teacher_forced_compare(struct kvi_teacher_forced *teacher,
                                     const struct kvi_teacher_forced_cache *cache,
                                     struct kvi_divergence *divergence);

#endif
