/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_segment.h - segments: tokens in, chunks encoded by workers, repeats found, written */
#ifndef KVI_WRITER_SEGMENT_H
#define KVI_WRITER_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "codecs/codec.h"
#include "format/chain_value.h"
#include "format/segment.h"
#include "predict/feature_table.h"
#include "util/alloc.h"
#include "util/hash.h"

/* ==== Finds chunks whose bytes were written before, in bounded memory ==== */

/* A chunk that later chunks may repeat. */
struct kvi_repeat {
	struct kvi_h128 hash;
	uint64_t bytes; /* 0: an empty place */
	uint64_t sequence, offset;
	uint64_t raw_check; /* this and the next two: from its chunk header */
	uint32_t n_tokens;
	uint8_t stream_size;
};

struct kvi_repeat_table;

/* An empty table; NULL when memory ran out. */
struct kvi_repeat_table *kvi_repeat_open(const struct kvi_alloc *alloc);
/* Frees the table; NULL-safe. */
void kvi_repeat_close(struct kvi_repeat_table *table, const struct kvi_alloc *alloc);
/* NULL: not seen, or forgotten. */
const struct kvi_repeat *kvi_repeat_find(const struct kvi_repeat_table *table, struct kvi_h128 hash,
                                         uint64_t bytes, uint32_t n_tokens);
/* Adds a chunk; an older one with the same slot of the table is dropped. */
void kvi_repeat_add(struct kvi_repeat_table *table, const struct kvi_repeat *r);

/* ==== Segments: chunks encoded by workers, and written in order ==== */

/* The tokens of a segment as a tier has left them. */
struct kvi_chosen_tokens {
	bool per_token;                    /* rates differ by token or tokens are dropped */
	uint32_t from[KVI_SEGMENT_TOKENS]; /* index of each token for fetch */
	int16_t rate[KVI_SEGMENT_TOKENS];
};

/* A segment whose chunks are encoded, or written. */
struct kvi_open_segment {
	struct kvi_segment s;
	struct kvi_chosen_tokens chosen;
	struct kvi_feature_table *features; /* NULL: no tensor has a model */
	uint32_t left;                      /* number of chunks that are not written yet */
	bool begun;                         /* the SEGMENT frame is written, as s.sequence */
	bool verifies;                      /* chunks are decoded again and compared */
};

/* Where elements come from. */
struct kvi_elements {
	kvarc_fetch fetch;
	/* Where those of a fetch already lie, packed, as long as this may be called; NULL, as the
	 * function may be: they do not. */
	const void *(*packed)(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads,
	                      uint64_t t0, uint32_t n);
	void *opaque;
};

/* Elements of tokens. */
struct kvi_fetching {
	struct kvi_elements elements;
	const struct kvi_chosen_tokens *chosen; /* per_token, or tokens are t0 and those after it */
	uint64_t t0;
	uint32_t n;
};

/* Stores what a rewind into a segment needs: w->out.content is the segment's content. before: chain
 * value of the tokens before it. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_writer_keep_segment(kvarc_writer *w, const struct kvi_segment *segment,
                                  struct kvi_chain before);
/* Gets heads of a tensor, packed. Returns what fetch does. */
int kvi_writer_fetch(const kvarc_geometry *geometry, const struct kvi_fetching *fetching,
                     uint32_t tensor, uint32_t head, uint32_t heads, uint8_t *dst);
/* Makes pool, coders and buffers; at the first append. */
kvarc_ret kvi_writer_start(kvarc_writer *w);
/* Ends the pool, and frees coders, jobs and states; no job runs any more. */
void kvi_writer_free_workers(kvarc_writer *w);
/* Begins to encode a segment; it and its commit are written by later calls,
 * kvi_writer_drain at the latest, until when elements are got. segment and chosen are copied. */
kvarc_ret kvi_writer_segment(kvarc_writer *w, const struct kvi_segment *segment,
                             const struct kvi_chosen_tokens *chosen,
                             const struct kvi_elements *elements);
/* Writes the chunks of all jobs, or drops them after a failure ret. */
kvarc_ret kvi_writer_drain(kvarc_writer *w, kvarc_ret ret);

#endif
