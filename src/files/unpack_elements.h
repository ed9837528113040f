/* SPDX-License-Identifier: BSD-3-Clause */
/* unpack_elements.h - the elements of a file that a plan describes, without its literal bytes */
#ifndef KVI_UNPACK_ELEMENTS_H
#define KVI_UNPACK_ELEMENTS_H

#include "format/restore.h"
#include "kvarc.h"

/* Tokens [begin, end) of a track; none: begin = end. */
struct kvi_token_span {
	uint64_t begin, end;
};

/*
 * Decodes the tokens in spans, one for each track of the reader, and writes their elements where
 * the areas of the plan have them. The sink takes writes at any offset of the plan's file, from one
 * thread at a time. Other bytes are not written. Returns as kvarc_reader_read_deliver; IO, too,
 * when the sink fails.
 */
kvarc_ret kvi_unpack_elements(kvarc_reader *r, const struct kvi_restore *plan,
                              const kvarc_sink *sink, const struct kvi_token_span *spans);

/* The sink of item i; NULL: the item is not written. */
typedef const kvarc_sink *kvi_item_sink_fn(void *opaque, size_t i);

#endif
