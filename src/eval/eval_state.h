/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_state.h - an evaluation's insides, shared by its own sources and its tests */
#ifndef KVI_EVAL_STATE_H
#define KVI_EVAL_STATE_H

#include "kvarc/tools.h"
#include "teacher_forced.h"
#include "scores_file.h"
#include "weights/model_geometry.h"

/* The tensors of a cache, packed. */
struct kvi_eval_cache {
	uint8_t *memory;
	size_t bytes;
	kvarc_view *views; /* one view per tensor, into memory */
	uint64_t n;        /* tokens, without dropped ones */
};

/* An evaluation. One thread at a time. */
struct kvarc_eval {
	kvarc_eval_options o;
	struct kvi_alloc alloc;
	struct kvi_pool *pool;
	struct kvi_model_geometry g; /* geometry of the model's own caches */
	const kvarc_geometry *geometry;
	struct kvi_teacher_forced *runs;
	struct kvi_eval_cache exact,
		back; /* caches of the prefix: exact, and decoded from an archive */
	int32_t *positions;
	struct kvi_divergence *d;
	double *sorted;
	float *score;         /* scores of the prefix, with o.scores */
	int16_t *token_rate;  /* rates that a tier derives from the scores */
	uint64_t done, total; /* tokens of the sequence, for the progress */
	uint64_t sequences;
	double zeroed_kl; /* sum over all sequences */
	kvarc_ret failed;
};

/* Allocates buffers, starts threads and opens the model; o, alloc and geometry are set. Without a
 * continuation there is a buffer for the exact cache alone. Returns as kvarc_eval_open. */
kvarc_ret kvi_eval_start(kvarc_eval *eval);
/* Computes the cache of the prefix into `exact`, and its tokens' scores by o.scores; NULL: not
 * wanted. */
kvarc_ret kvi_eval_make_cache(kvarc_eval *eval, const int32_t *ids, float *score);
/* Allocates both caches and starts threads, for use without a model and a continuation. Returns OK,
 * MEM, MEMLIMIT. */
kvarc_ret kvi_eval_start_caches(kvarc_eval *eval);
/* Stops the threads and frees all members of *eval, not *eval itself. */
void kvi_eval_stop(kvarc_eval *eval);
/* Adds a number of tokens to the progress. Returns OK, IO (the callback stops the run). */
kvarc_ret kvi_eval_progress(kvarc_eval *eval, uint64_t tokens);
/* Logits of ids from o.prefix on, after the cache in `exact`. */
kvarc_ret kvi_eval_make_exact(kvarc_eval *eval, const int32_t *ids);
/* Compares another cache of the same tensors with the exact one, whose logits
 * kvi_teacher_forced_exact made. */
kvarc_ret kvi_eval_compare(kvarc_eval *eval, const kvarc_view *views, uint64_t n,
                           kvarc_eval_result *r);

/* Tests have another put, after open. Returns OK, MEM, MEMLIMIT, and as kvi_teacher_forced_open. */
kvarc_ret kvi_eval_use_put(kvarc_eval *eval, kvi_teacher_forced_put put);

/* archive.c: the exact cache through an archive into eval->back; bytes and tokens of r. Returns as
 * writer and reader. */
kvarc_ret kvi_eval_through_archive(kvarc_eval *eval, const int32_t *ids,
                                   const kvarc_writer_options *tier, kvarc_eval_result *r);

/* summary.c: sets the results of r from n divergences. buffer: n numbers of work memory. */
void kvi_eval_take(kvarc_eval_result *r, const struct kvi_divergence *divergence, size_t n,
                   double *buffer);

#endif
