/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_range.h - ranges of layers and tokens, and what they need of a segment */
#ifndef KVI_READER_RANGE_H
#define KVI_READER_RANGE_H

#include "reader_state.h"

/* A checked range of layers and tokens of one track. */
struct kvi_range {
	uint32_t track, layer0;
	uint64_t layer_end, t0, t_end;
	const kvarc_view *views; /* NULL, or: tensors without data are left */
};

struct kvi_cover;
/* A segment whose chunks are being decoded for a range; s is set by the caller. */
struct kvi_part {
	const struct kvi_segment_ref *s;
	struct kvi_segment_use *use;
	uint64_t next, end;          /* chunks (kvi_segment_chunk) */
	uint32_t order_index;        /* where to look for the next chunk */
	uint64_t covered;            /* the end of the last chunk (reader_range.c) */
	uint32_t from, to;           /* tokens of the segment that the range has */
	uint32_t need_from, need_to; /* those that are needed of each chunk; need_to 0: all */
	unsigned helpers;            /* workers that wait while one of its chunks is decoded */
	size_t index;                /* of s */
	struct kvi_cover *cover;     /* NULL, or: to be asked before each chunk */
	unsigned batch;              /* without cover: the first one that has frames of it */
};

/* What every public call with a range begins with: checks it. Returns OK, OPTIONS (a pipe),
 * GEOMETRY, PROG. */
kvarc_ret kvi_range_check(kvarc_reader *r, const kvarc_range *range, struct kvi_range *g);
/* The tokens and layers through which a model goes before it comes to a range; t0 is t_end: none.
 */
struct kvi_range kvi_range_lead(kvarc_reader *r, const struct kvi_range *g);
/* Whether a range has a chunk of a segment. */
bool kvi_range_touches(const kvarc_reader *r, const struct kvi_range *g,
                       const struct kvi_segment_ref *s);
/* Whether a range has a tensor. */
bool kvi_range_wants(const kvarc_reader *r, const struct kvi_range *g, uint32_t tensor);
/* The predictor of a segment if a wanted chunk needs one. NULL: *needed is false, or it is lost. */
struct kvi_predictor_ref *kvi_range_predictor(kvarc_reader *r, const struct kvi_segment_ref *s,
                                              const struct kvi_range *g, bool *needed);
/* The model that goes through a segment although no chunk needs it (needed is false); NULL: there
 * is none. */
struct kvi_predictor_ref *kvi_range_passes_model(kvarc_reader *r, const struct kvi_segment_ref *s,
                                                 bool needed);
/* Who uses whose features among the chunks of a segment; range NULL: all are wanted. */
void kvi_reader_plan_features(const kvarc_reader *r, const struct kvi_segment_ref *s,
                              const struct kvi_range *range, struct kvi_segment_use *use);
/* Fills all of p but `helpers`: reads the segment, loads what predicts it, and finds the tokens
 * that are needed. The caller releases p->use, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, PREDICTOR, IO. */
kvarc_ret kvi_range_prepare(kvarc_reader *r, const struct kvi_range *g, struct kvi_part *p);
/* Decodes the chunks of a segment that a range touches; no job is under way afterwards. */
kvarc_ret kvi_reader_segment_chunks(kvarc_reader *r, const struct kvi_segment_ref *s,
                                    const struct kvi_range *g, kvarc_deliver deliver, void *opaque);

#endif
