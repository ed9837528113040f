/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_frames.h - frames into the sink: sealed, listed, covered by parity; failures that stay */
#ifndef KVI_WRITER_FRAMES_H
#define KVI_WRITER_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "format/commit.h"
#include "format/frame_index.h"

/* ==== Failures of a writer that stay, and what it refuses ==== */

/* Whether no call can use the writer any more: w->sticky then says why, an earlier failure or a
 * fork. */
bool kvi_writer_refuses(kvarc_writer *w);
/* Makes ret stick and returns it. */
kvarc_ret kvi_writer_set_error(kvarc_writer *w, kvarc_ret ret);

/* ==== Frames into the sink: sealed, listed in the index, covered by parity ==== */

struct kvi_group;

/* Calls the sink's flush. Returns OK, IO. */
kvarc_ret kvi_writer_flush_sink(kvarc_writer *w);
/* Writes the KEY frames of an encrypted archive, or copies of them. */
kvarc_ret kvi_writer_emit_keys(kvarc_writer *w);
/* Adopts the file key of the archive that is appended to. Returns OK, MEM, MEMLIMIT, OPTIONS. */
kvarc_ret kvi_writer_resume_crypt(kvarc_writer *w);
/* Writes a frame of a private type and random size where an encrypted archive was cut, so that
 * later frames have other offsets than the lost ones. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_part_from_lost(kvarc_writer *w);
/* Checks the parity that options ask for; NULL: none. Returns OK, PROG. */
kvarc_ret kvi_writer_parity_check(const kvarc_parity *parity, kvarc_error *error);
/* Begins parity if the options ask for it. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_writer_parity_open(kvarc_writer *w);
/* Frees the parity groups; a writer without parity has none. */
void kvi_writer_parity_close(kvarc_writer *w);
/* Adds written bytes of the superblock (type 0) or of a frame to parity. Rows may follow. Returns
 * OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_cover(kvarc_writer *w, uint16_t type, const uint8_t *bytes, uint64_t n,
                           uint64_t offset);
/* Writes the rows of all groups that have pieces. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_parity_flush(kvarc_writer *w);
/*
 * Writes a frame whose payload is at frame + KVI_FRAME_HEAD_BYTES; space for
 * padding and check behind it is the caller's. entry: what the index says,
 * type, offset and sequence are filled in; NULL for INDEX and FOOTER.
 */
kvarc_ret kvi_writer_emit(kvarc_writer *w, uint16_t type, uint8_t *frame, uint32_t payload_bytes,
                          uint32_t decoded_bytes, struct kvi_index_entry *entry);
/* As kvi_writer_emit, for content in memory; packed: compressed where that is smaller. */
kvarc_ret kvi_writer_emit_content(kvarc_writer *w, uint16_t type, const void *content, size_t bytes,
                                  bool packed, struct kvi_index_entry *entry);
/* Writes a PARAMS frame for the tensors of a group. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_emit_params(kvarc_writer *w, struct kvi_group *group, uint8_t codec,
                                 const uint8_t *content, size_t bytes);
/* Writes a COMMIT frame for everything written so far; checkpoint: NULL: it is none. Returns OK,
 * MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_emit_commit(kvarc_writer *w, const struct kvi_checkpoint *checkpoint);
/* Writes copies of parameters, commit, index and footer. */
kvarc_ret kvi_writer_finish(kvarc_writer *w);
/* Writes PREDICTOR from w->predictor; content_bytes: size of the profile that follows, 0: none. */
kvarc_ret kvi_writer_emit_predictor(kvarc_writer *w, uint64_t content_bytes);

#endif
