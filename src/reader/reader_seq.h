/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_seq.h - segments in the order of the file */
#ifndef KVI_READER_SEQ_H
#define KVI_READER_SEQ_H

#include "format/frame_walk.h"
#include "reader_jobs.h"

/* The position of a caller that reads segments in the order of the file. */
struct kvi_reader_sequence {
	struct kvi_walk walk;
	bool started, in_segment, ended;
	bool pending; /* a pipe: the walk stands on a frame that open has read */
	kvarc_ret pending_ret;
	kvarc_error pending_error;
	/* A file that is cut, or damaged behind its last commit, is read to this offset. */
	uint64_t stop;
	kvarc_error cut_error;
	size_t salvage_at; /* salvage: index of the next segment */
	/* The current STOREREF: its next segment, and whether the current segment is of it. */
	size_t next_part;
	bool in_part;
	/* The segments of the current FORK: indices in the list from the next one to their end, and
	 * 1 + that of the current segment; 0: it is not of a FORK. */
	size_t fork_next, fork_end, forked;
	struct kvi_segment_use *segment;
};

/* Opens a reader on a pipe: geometry, identity and items, which come first. */
kvarc_ret kvi_reader_pipe_open(kvarc_reader *r);

#endif
