/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_resume.h - where and how a writer continues an archive (spec 9.3) */
#ifndef KVI_READER_RESUME_H
#define KVI_READER_RESUME_H

#include "format/chain_value.h"
#include "format/crypt.h"
#include "format/frame_index.h"
#include "format/frame_input.h"
#include "format/identity.h"
#include "format/predictor_frame.h"
#include "format/segment.h"
#include "format/superblock.h"
#include "kvarc.h"
#include "reader_index.h"
#include "util/bytes.h"

/* The end of an archive: behind its FOOTER, or else behind its last COMMIT. */
struct kvi_resume {
	uint64_t offset, sequence; /* offset and number of the next frame */
	uint64_t last_index, last_commit;
	uint32_t last_index_bytes, last_commit_bytes; /* sizes of these frames */
	struct kvi_pending_entries pending;           /* for the next INDEX */
	uint64_t codecs;                              /* kvi_codec_bit of its chunks */
	/* The archive up to there; what is pointed to belongs to the reader, until it is closed. */
	const struct kvi_superblock *superblock;
	const struct kvi_identity *identity;
	const struct kvi_list *params; /* struct kvi_params_ref */
	const struct kvi_crypt *crypt; /* NULL: the archive is not encrypted */
	struct kvi_h128 geometry_hash; /* B128 of the content of GEOMETRY */
	uint64_t sync, file_bytes; /* file_bytes: size of the file, with what is behind the end */
	uint64_t checkpoint, n_segments; /* checkpoint: number of the last one, 0: none */
	bool closed;                     /* a FOOTER ends the file */
};

/*
 * Finds the end for a reader that was just opened, at no checkpoint, on a source that can seek. An
 * archive without a COMMIT ends behind its GEOMETRY. The reader forgets the
 * identity that frames behind the end give. lenient: a damaged file ends behind its last COMMIT,
 * too, where no checkpoint follows the damage. to->pending is the caller's to free, also on
 * failure.
 * Returns OK, MEM, MEMLIMIT, DATA (a damaged file, or one that was cut while files were packed),
 * OPTIONS (features of a newer version forbid an append, or are needed), IO.
 */
kvarc_ret kvi_reader_resume(kvarc_reader *r, bool lenient, struct kvi_resume *to);

/* The end of a track, which its next token follows. */
struct kvi_track_end {
	int64_t position;       /* position of the last token, plus 1; 0: there is none */
	bool no_position;       /* the last token lies in a store, which is not here */
	struct kvi_chain chain; /* chain value of all tokens (spec 5.3) */
};
/* Finds the end of the first t0 tokens of a track, which are there. Returns OK, MEM, MEMLIMIT,
 * DATA, OPTIONS, IO, STORE. */
kvarc_ret kvi_reader_track_end(kvarc_reader *r, uint32_t track, uint64_t t0,
                               struct kvi_track_end *to);
/* Number of tokens of a track that the packed files of the last state need, until a checkpoint
 * closes it; then 0. */
uint64_t kvi_reader_item_tokens(const kvarc_reader *r, uint32_t track);
/* The sequence number of the PREDICTOR in force at a frame, where it is of the kind, level and
 * profile of `like`; 0: it is not. embedded: its profile has to be in the archive, too. */
uint64_t kvi_reader_predictor_like(const kvarc_reader *r, uint64_t sequence,
                                   const struct kvi_predictor *like, bool embedded);
/*
 * The last chunk of a tensor's heads over a segment's tokens, or the one that it refers to, as a
 * frame in `buffer`, which is the caller's to free with the reader's allocator. Returns OK, END
 * (there is none), DATA (damaged, or its elements cannot be referred to), MEM, MEMLIMIT, IO.
 */
kvarc_ret kvi_reader_find_state(kvarc_reader *r, const struct kvi_segment *segment, uint32_t tensor,
                                uint16_t head, uint16_t heads, struct kvi_buffer *buffer,
                                struct kvi_frame *frame, kvarc_error *error);

#endif
