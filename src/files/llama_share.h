/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_share.h - one track for a memory and its context checkpoints */
#ifndef KVI_LLAMA_SHARE_H
#define KVI_LLAMA_SHARE_H

#include "llama_parse.h"

/* Tokens of the common track that lie in a section as cells [cell, cell + n). */
struct kvi_llama_run {
	int64_t position; /* of the first, the others follow */
	uint64_t t0;      /* tokens [t0, t0 + n) of the track */
	size_t section;
	uint32_t cell, n;
};

/* Cells [cell, cell + n) of a section: tokens from `skip` on of a run. */
struct kvi_llama_span {
	size_t section, run;
	uint32_t cell, n, skip;
};

/*
 * Checkpoints hold rows of tokens that the slot itself, or another checkpoint, has as
 * well. The common track has each of them once, in order of position; rows of the same
 * position that differ are tokens of their own.
 */
struct kvi_llama_shared {
	size_t like;                  /* the slot's own section */
	struct kvi_llama_run *runs;   /* in order of t0 */
	struct kvi_llama_span *spans; /* in order of section and cell */
	size_t n_runs, cap_runs, n_spans, cap_spans;
	uint64_t n_tokens;
};

/*
 * Finds what section `like` and the checkpoints of its memory have in common by
 * comparing their bytes in the source. OK with n_spans 0: nothing to be shared, for
 * example because values are channel-major. On OK free with kvi_llama_shared_free.
 * Returns OK, IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_llama_share(struct kvi_llama_shared *sh, const struct kvi_alloc *alloc,
                          struct kvi_scan *s, const struct kvi_llama_file *f, size_t like);
/* Frees what kvi_llama_share allocated. */
void kvi_llama_shared_free(struct kvi_llama_shared *sh, const struct kvi_alloc *alloc);
/* Is the section one of the common track's? */
bool kvi_llama_shares(const struct kvi_llama_shared *sh, size_t section);

#endif
