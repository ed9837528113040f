/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_internal.h - what src/files needs of a writer beyond the public calls */
#ifndef KVI_WRITER_INTERNAL_H
#define KVI_WRITER_INTERNAL_H

#include <stdbool.h>

#include "kvarc.h"
#include "util/alloc.h"

/*
 * Writes one metadata frame (RESTORE, BLOB, private), after set_geometry and
 * before the first append. content is packed (spec 1.5) when packed is true.
 * All RESTORE frames come before the first BLOB frame, so that a reader on a
 * pipe knows every item before the first byte of one.
 * Returns OK, MEM, MEMLIMIT, IO, PROG.
 */
kvarc_ret kvi_writer_frame(kvarc_writer *w, uint16_t type, const void *content, size_t bytes,
                           bool packed);

/* The allocator of the writer, which the writer owns. */
const struct kvi_alloc *kvi_writer_alloc(const kvarc_writer *w);

/* Fills the caller's kvarc_error, makes code stick to the writer, returns it. */
kvarc_ret kvi_writer_fail(kvarc_writer *w, kvarc_ret code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
