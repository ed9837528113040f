/* SPDX-License-Identifier: BSD-3-Clause */
/* packed.h - packed fields: stored or one Zstandard frame (spec 1.5) */
#ifndef KVI_PACKED_H
#define KVI_PACKED_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"
#include "util/bytes.h"

/* Compression state that is made on first use. One a thread. */
struct kvi_packer {
	const struct kvi_alloc *alloc;
	void *compress, *decompress;
};

/* Starts a packer; nothing is allocated before its first use. */
void kvi_packer_init(struct kvi_packer *packer, const struct kvi_alloc *alloc);
/* Frees the compression state. */
void kvi_packer_free(struct kvi_packer *packer);

/* Appends the method byte and the data of a content to out. arrays: the number of arrays of one
 * size that the content is, with little else; where that is smaller, each is a block of its own.
 * Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_pack(struct kvi_packer *packer, struct kvi_out *out, const void *content,
                   size_t bytes, unsigned arrays);

/*
 * Gives the decoded_bytes bytes of content: inside payload, or in *owned,
 * which the caller frees with kvi_free (NULL when nothing was allocated).
 * Returns OK, MEM, MEMLIMIT, DATA, OPTIONS (unknown method).
 */
kvarc_ret kvi_unpack(struct kvi_packer *packer, const uint8_t *payload, size_t bytes,
                     size_t decoded_bytes, const uint8_t **content, uint8_t **owned);

/*
 * Gives the first head_bytes of a content that has at least that many; of method 1 no more is
 * decoded than that takes, and whether the rest unpacks stays open. Memory: the window of the
 * frame, at most 8 MiB. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS (unknown method).
 */
kvarc_ret kvi_unpack_head(struct kvi_packer *packer, const uint8_t *payload, size_t bytes,
                          size_t decoded_bytes, uint8_t *head, size_t head_bytes);

#endif
