/* SPDX-License-Identifier: BSD-3-Clause */
/* references.h - pieces of items that are literal bytes of earlier items (spec 10) */
#ifndef KVI_REFERENCES_H
#define KVI_REFERENCES_H

#include "reader/reader_internal.h"
#include "util/intervals.h"

/* A piece: bytes [from, from + bytes) of the literal bytes of an item of the archive. */
struct kvi_reference {
	uint64_t source, from, bytes;
	size_t item; /* index in the state that is unpacked */
	uint64_t at; /* offset of the piece in its file */
};

/* All references of the items of a reader. */
struct kvi_references {
	size_t n;
	struct kvi_reference *list;     /* sorted by source */
	struct kvi_interval *intervals; /* intervals of the list; sorted within a source */
};

/* Literal bytes as they come. */
struct kvi_literal_bytes {
	uint64_t item, offset;
	const uint8_t *data;
	size_t bytes;
};

/* Takes bytes for byte `at` of the file of an item. Anything but 0 ends the giving. */
typedef int (*kvi_reference_fn)(void *opaque, size_t item, uint64_t at, const uint8_t *data,
                                size_t bytes);

/* Lists the references of the items of a reader, with its allocator. The caller frees them, also on
 * failure. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_references_open(struct kvi_references *references, const kvarc_reader *r);
/* Frees the list. */
void kvi_references_free(struct kvi_references *references, const struct kvi_alloc *alloc);
/* Hands literal bytes to all pieces that refer to them. Returns what fn returned last, 0: none. */
int kvi_references_give(const struct kvi_references *references,
                        const struct kvi_literal_bytes *bytes, kvi_reference_fn fn, void *opaque);

#endif
