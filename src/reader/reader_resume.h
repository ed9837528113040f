/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_resume.h - where and how a writer continues an archive (spec 9.3) */
#ifndef KVI_READER_RESUME_H
#define KVI_READER_RESUME_H

#include "format/frame_index.h"
#include "reader_state.h"

/* The end of an archive: behind its FOOTER, or else behind its last COMMIT. */
struct kvi_resume {
	uint64_t offset, sequence; /* of the next frame */
	uint64_t last_index, last_commit;
	/* Entries of the frames that no INDEX lists. */
	struct kvi_out index;
	struct kvi_index_delta delta;
	uint64_t index_entries;
};

/*
 * Of a reader that was just opened, at no checkpoint, on a source that can seek. An archive without
 * a COMMIT ends behind its GEOMETRY. The reader forgets the identity that frames behind the end
 * give. lenient: a damaged file ends behind its last COMMIT, too, where no checkpoint follows the
 * damage. to->index is the caller's to free, also on failure. Returns OK, MEM, MEMLIMIT, DATA (a
 * damaged file, or one that was cut while files were packed), OPTIONS, IO.
 */
kvarc_ret kvi_reader_resume(kvarc_reader *r, bool lenient, struct kvi_resume *to);

/* What the next token of a track follows. */
struct kvi_track_end {
	int64_t position;       /* of the token before it, plus 1; 0: there is none */
	bool no_position;       /* it lies in a store, which is not here */
	struct kvi_chain chain; /* of the tokens before it (spec 5.3) */
};
/* Behind the first t0 tokens of a track, which are there. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS,
 * IO, STORE. */
kvarc_ret kvi_reader_track_end(kvarc_reader *r, uint32_t track, uint64_t t0,
                               struct kvi_track_end *to);
/* How many tokens of a track the packed files of the last state need. */
uint64_t kvi_reader_item_tokens(const kvarc_reader *r, uint32_t track);

#endif
