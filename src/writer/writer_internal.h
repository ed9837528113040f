/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_internal.h - what src/files needs of a writer beyond the public calls */
#ifndef KVI_WRITER_INTERNAL_H
#define KVI_WRITER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/chunk_header.h"
#include "format/segment.h"
#include "kvarc.h"
#include "util/alloc.h"

/*
 * Writes one metadata frame (RESTORE, BLOB, PROFILE, private), after set_geometry; behind the first
 * append none but these three, and tokens that wait are written first. content is packed (spec 1.5)
 * when packed is true. A reader on a pipe wants all RESTORE frames before the first BLOB and
 * the first append. Returns OK, MEM, MEMLIMIT, IO, PROG.
 */
kvarc_ret kvi_writer_frame(kvarc_writer *w, uint16_t type, const void *content, size_t bytes,
                           bool packed);

/*
 * As kvarc_writer_open_append, of an archive that a reader has opened at its last checkpoint. The
 * writer takes the reader, and *archive becomes NULL; on failure the caller may still have it.
 * Where frames behind the last commit are damaged, and no checkpoint follows them, they are the
 * remains of an append whose writes were lost in part, and removed like those of a cut. So it is
 * where what a checkpoint is of was flushed before it.
 */
kvarc_ret kvi_writer_open_behind(kvarc_writer **w, kvarc_reader **archive, const kvarc_sink *sink,
                                 const kvarc_writer_options *options);

/* Says that the tokens of each track come in one append, or more than a few of them in its first
 * one, and that nothing will be appended to the archive: what later tokens would gain by decides
 * nothing. */
void kvi_writer_set_ends(kvarc_writer *w);

/* The level of a writer's options as its number, INT_MIN: none. */
int kvi_writer_level(const kvarc_writer_options *options);

struct kvi_params_header;
/* Writes a PARAMS frame; *sequence: its number. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_put_params(kvarc_writer *w, const struct kvi_params_header *header,
                                const uint8_t *content, size_t bytes, uint64_t *sequence);

struct kvi_predictor;
/* Writes a PREDICTOR frame, which is in force from there on; content_bytes: size of the profile
 * that PROFILE frames behind it hold, 0: none. What predictor points to stays until the writer is
 * closed. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_use_predictor(kvarc_writer *w, const struct kvi_predictor *predictor,
                                   uint64_t content_bytes);

/* The allocator of the writer, which the writer owns. */
const struct kvi_alloc *kvi_writer_alloc(const kvarc_writer *w);

/* ==== Segments of another archive, whose chunks are written as they are ==== */

/* Terms of the options for segments that are copied. */
struct kvi_copy_terms {
	bool copies;   /* elements are stored as they are given, and no model has to see them */
	bool repeats;  /* chunks may repeat earlier ones */
	bool predicts; /* the writer's own profile is in force, and no other comes */
	bool verifies; /* what is copied must be decoded once */
};

/* The terms of a writer that has a geometry. */
struct kvi_copy_terms kvi_writer_copy_terms(const kvarc_writer *w);

/*
 * Begins a segment whose chunks are copied, behind the tokens of its track, none of which may wait:
 * writes SEGMENT. The caller has filled in track, n, has_ids, ids and positions; t0, the chain
 * value and the sequence number are filled in. The track's encoders start with new PARAMS after it,
 * as those of copied chunks replace theirs. Returns what kvarc_writer_append does.
 */
kvarc_ret kvi_writer_begin_copy(kvarc_writer *w, struct kvi_segment *segment);

/* Where a copied chunk was written, and whether later chunks may repeat it. */
struct kvi_copied_at {
	uint64_t sequence, offset;
	bool repeatable;
};

/*
 * Writes a chunk of the segment that was begun: its header, whose params become the PREDICTOR in
 * force for a codec that predicts, and `bytes` bytes of payload behind it; decoded_bytes: size of
 * its elements. Returns OK, MEM, MEMLIMIT, IO.
 */
kvarc_ret kvi_writer_copy_chunk(kvarc_writer *w, const struct kvi_chunk_header *header,
                                const uint8_t *payload, size_t bytes, uint32_t decoded_bytes,
                                struct kvi_copied_at *at);

/* Ends the segment that was begun, behind its last chunk. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_end_copy(kvarc_writer *w, const struct kvi_segment *segment);

#endif
