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

struct kvi_resume;
struct kvi_writer_output;

/* Opens an output whose alloc and error are set, and all else zero; parity NULL: none. The caller
 * closes it, also on failure. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_writer_open_output(struct kvi_writer_output *output, const kvarc_sink *sink,
                                 const kvarc_parity *parity);
/* Frees all that an output has. */
void kvi_writer_close_output(struct kvi_writer_output *output);
/* Begins a new archive: writes the superblock, and KEY frames of a new file key where the options
 * have keys. Returns OK, MEM, MEMLIMIT, IO, OPTIONS. */
kvarc_ret kvi_writer_begin_file(struct kvi_writer_output *output,
                                const kvarc_writer_options *options);
/* Continues an archive at its end, with its file key, and cuts off what is behind the end. Returns
 * OK, MEM, MEMLIMIT, IO, OPTIONS (keys for an archive without; a sink that cannot truncate). */
kvarc_ret kvi_writer_continue_file(struct kvi_writer_output *output, const struct kvi_resume *end,
                                   const kvarc_keys *keys);
/* Calls the sink's flush; parity: the rows of all groups that have pieces are written before.
 * Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_flush(struct kvi_writer_output *output, bool parity);
/* Checks the parity that options ask for; NULL: none. Returns OK, PROG. */
kvarc_ret kvi_writer_parity_check(const kvarc_parity *parity, kvarc_error *error);
/*
 * Writes a frame whose payload is at frame + KVI_FRAME_HEAD_BYTES; space for
 * padding and check behind it is the caller's. rest: of kvi_frame_rest, NULL: not known. entry:
 * what the index says, type, offset and sequence are filled in; NULL for INDEX and FOOTER.
 */
kvarc_ret kvi_writer_emit(struct kvi_writer_output *output, uint16_t type, uint8_t *frame,
                          uint32_t payload_bytes, uint32_t decoded_bytes,
                          const struct kvi_h128 *rest, struct kvi_index_entry *entry);
/* As kvi_writer_emit, for content in memory; packed: compressed where that is smaller. */
kvarc_ret kvi_writer_emit_content(struct kvi_writer_output *output, uint16_t type,
                                  const void *content, size_t bytes, bool packed,
                                  struct kvi_index_entry *entry);
/* Writes a COMMIT frame for everything written so far; checkpoint: NULL: it is none. Returns OK,
 * MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_emit_commit(kvarc_writer *w, const struct kvi_checkpoint *checkpoint);
/* Writes copies of parameters, commit, index and footer. */
kvarc_ret kvi_writer_finish(kvarc_writer *w);

#endif
