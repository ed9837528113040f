/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_segment.h - segments: chunks encoded by workers, and written in order */
#ifndef KVI_WRITER_SEGMENT_H
#define KVI_WRITER_SEGMENT_H

#include "codecs/codec.h"
#include "format/chain_value.h"
#include "format/segment.h"
#include "predict/feature_table.h"

/* The tokens of a segment as a tier has left them. */
struct kvi_taken {
	bool per_token;                    /* rates differ by token or tokens are dropped */
	uint32_t from[KVI_SEGMENT_TOKENS]; /* index of each token for fetch */
	int16_t rate[KVI_SEGMENT_TOKENS];
};

/* A segment whose chunks are encoded, or written. */
struct kvi_open_segment {
	struct kvi_segment s;
	struct kvi_taken taken;
	struct kvi_feature_table *features; /* NULL: no tensor has a model */
	uint32_t left;                      /* number of chunks that are not written yet */
	bool begun;                         /* the SEGMENT frame is written, as `sequence` */
	bool verifies;                      /* chunks are decoded again and compared */
	uint64_t sequence;
};

/* Elements of tokens, and the call that gets them. */
struct kvi_fetching {
	kvarc_fetch fetch;
	void *opaque;
	const struct kvi_taken *taken; /* per_token, or tokens are t0 and those after it */
	uint64_t t0;
	uint32_t n;
};

/* Sets `like` of all groups: files hold states of several checkpoints on tracks of their own. */
void kvi_writer_link_states(kvarc_writer *w);
/* Stores what a rewind into a segment needs: w->content is the segment's content. before: chain
 * value of the tokens before it. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_writer_keep_segment(kvarc_writer *w, const struct kvi_segment *segment,
                                  struct kvi_chain before);
/* Gets heads of a tensor, packed. Returns what fetch does. */
int kvi_writer_fetch(const kvarc_writer *w, const struct kvi_fetching *fetching, uint32_t tensor,
                     uint32_t head, uint32_t heads, uint8_t *dst);
/* Makes pool, coders and buffers; at the first append. */
kvarc_ret kvi_writer_start(kvarc_writer *w);
/* Ends the pool, and frees coders, jobs and states; no job runs any more. */
void kvi_writer_free_workers(kvarc_writer *w);
/* Begins to encode a segment; it and its commit are written by later calls,
 * kvi_writer_drain at the latest, until when fetch is called. segment and taken are copied. */
kvarc_ret kvi_writer_segment(kvarc_writer *w, const struct kvi_segment *segment,
                             const struct kvi_taken *taken, kvarc_fetch fetch, void *opaque);
/* Writes the SEGMENT frame. */
kvarc_ret kvi_writer_begin_segment(kvarc_writer *w, struct kvi_open_segment *segment);
/* Closes a segment behind its last chunk. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_end_segment(kvarc_writer *w, const struct kvi_open_segment *segment);
/* Counts a chunk that was written. Returns OK, IO (stopped on request). */
kvarc_ret kvi_writer_count(kvarc_writer *w, uint32_t tensor, uint32_t raw_bytes);
/* Writes the chunks of all jobs, or drops them after a failure ret. */
kvarc_ret kvi_writer_drain(kvarc_writer *w, kvarc_ret ret);

#endif
