/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_internal.h - what src/files needs of a writer beyond the public calls */
#ifndef KVI_WRITER_INTERNAL_H
#define KVI_WRITER_INTERNAL_H

#include <stdbool.h>

#include "kvarc.h"
#include "util/alloc.h"

/*
 * Writes one metadata frame (RESTORE, BLOB, private), after set_geometry; behind the first append
 * RESTORE and BLOB alone, and tokens that wait are written first. content is packed (spec 1.5)
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

/* The level of a writer's options as its number, INT_MIN: none. */
int kvi_writer_level(const kvarc_writer_options *options);

/* The allocator of the writer, which the writer owns. */
const struct kvi_alloc *kvi_writer_alloc(const kvarc_writer *w);

#endif
