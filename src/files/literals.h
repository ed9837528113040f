/* SPDX-License-Identifier: BSD-3-Clause */
/* literals.h - literal bytes of the items of an archive, at any offset (spec 10) */
#ifndef KVI_LITERALS_H
#define KVI_LITERALS_H

#include "kvarc.h"
#include "util/bytes.h"
#include "util/list.h"

/* The positions of the literal bytes of items in an archive. */
struct kvi_literals {
	kvarc_reader *r;
	struct kvi_list blobs; /* struct kvi_literal_blob, by item and offset */
	/* The BLOB that was read last. */
	struct kvi_out content;
	uint64_t loaded; /* frame offset of the BLOB in content; 0: none */
	bool lost;       /* a BLOB is damaged; error: the first one */
	kvarc_error error;
};

/* Reads the BLOB frames of a reader that can seek, up to the state that it was opened at; those
 * of items of earlier states are among them. Damaged ones are left out. literals is to be freed,
 * also on failure. Returns OK, MEM, MEMLIMIT, OPTIONS, IO. */
kvarc_ret kvi_literals_open(struct kvi_literals *literals, kvarc_reader *r);
/* Frees the list. */
void kvi_literals_free(struct kvi_literals *literals);
/* Bytes [from, from + bytes) of an item, numbered in the whole archive, to `to`. Returns OK, MEM,
 * MEMLIMIT, DATA (they are not there), OPTIONS, IO. */
kvarc_ret kvi_literals_read(struct kvi_literals *literals, uint64_t item, uint64_t from,
                            size_t bytes, uint8_t *to);

#endif
