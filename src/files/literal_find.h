/* SPDX-License-Identifier: BSD-3-Clause */
/* literal_find.h - finds bytes that the items of an archive's last state have as literals */
#ifndef KVI_LITERAL_FIND_H
#define KVI_LITERAL_FIND_H

#include "reader/reader_state.h"

/* Literal bytes are looked at while they take this share of the memory limit, or less. */
enum { KVI_LITERAL_SHARE = 8 };

/* Literal bytes of an item, by its number in the archive. */
struct kvi_literal_span {
	uint64_t item, from, bytes;
};

/* The literal bytes of all items of a state, one after another, and where the archive has them. */
struct kvi_literal_find {
	const struct kvi_alloc *alloc;
	uint8_t *p;
	size_t n;
	uint64_t wanted;       /* bytes that the items have; n where they could be read */
	struct kvi_list spans; /* struct kvi_literal_span: of p, in order */
	size_t *ends;          /* of the spans in p */
	uint32_t *table;       /* by hash of a block of p: 1 + its number, 0: none */
	size_t mask;           /* entries of the table - 1 */
};

/*
 * Reads them. Of a state that has more than its share of the reader's memory limit none are
 * read, and nothing will be found. To be freed, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO.
 */
kvarc_ret kvi_literal_find_open(struct kvi_literal_find *x, kvarc_reader *r);
/* Frees what it has. */
void kvi_literal_find_close(struct kvi_literal_find *x);

/* Bytes that were found: n of them at `at` of those that were searched are those at `from` of p. */
struct kvi_literal_match {
	size_t at, from, n;
};
/* The first match in p[at .. n - 1] of some bytes; .n 0: there is none. */
struct kvi_literal_match kvi_literal_find_next(const struct kvi_literal_find *x, const uint8_t *p,
                                               size_t n, size_t at);
/* The first part of a match that lies in one item, at most `n` bytes from `from` on. */
struct kvi_literal_span kvi_literal_find_span(const struct kvi_literal_find *x, size_t from,
                                              size_t n);

#endif
