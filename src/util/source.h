/* SPDX-License-Identifier: BSD-3-Clause */
/* source.h - reading a caller's source */
#ifndef KVI_SOURCE_H
#define KVI_SOURCE_H

#include "kvarc.h"

/* Reads the bytes at [offset, offset + bytes) into buf, in as many calls of the source as it
 * takes. Returns OK, END (the source is shorter), IO. */
kvarc_ret kvi_source_read(const kvarc_source *src, void *buf, size_t bytes, uint64_t offset);

#endif
