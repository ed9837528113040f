/* SPDX-License-Identifier: BSD-3-Clause */
/* scores_file.h - scores of the tokens of a text, computed during prefill */
#ifndef KVI_SCORES_FILE_H
#define KVI_SCORES_FILE_H

#include "kvarc/tools.h"
#include "teacher_forced.h"

/* Options of kvi_scores_make(). */
struct kvi_scores_options {
	const struct kvi_alloc *alloc;
	struct kvi_pool *pool;
	uint32_t isa_mask;
	const struct kvi_model_file *model;
	kvarc_score kind;
	void *opaque;
	kvarc_ret (*done)(void *opaque, size_t t0, size_t n); /* progress; NULL: none */
};

/* Computes a cache as kvi_teacher_forced_prefill does, and scores of the text's tokens. The numbers
 * are those of float attention over the stored cache, not of the engine's, and equal on all
 * machines. Returns as kvi_teacher_forced_prefill, and what done returns. */
kvarc_ret kvi_scores_make(struct kvi_teacher_forced *teacher,
                          const struct kvi_scores_options *options,
                          const struct kvi_teacher_forced_text *text, const kvarc_view *views,
                          float *score);

#endif
