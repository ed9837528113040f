/* SPDX-License-Identifier: BSD-3-Clause */
/* content_digest.h - what names the content of a segment wherever it is (spec frames 12.3) */
#ifndef KVI_CONTENT_DIGEST_H
#define KVI_CONTENT_DIGEST_H

#include "chunk_order.h"
#include "util/hash.h"

/* Tokens of a track, with all of their elements. */
struct kvi_content {
	uint32_t track, n;
	const int32_t *ids; /* NULL: there are none */
	const int32_t *positions;
	const kvarc_view *views; /* a tensor of the geometry; row 0 is the first token */
};

/* Computes both digests in one pass over the elements. *with: includes the ids; *without: excludes
 * them. Content without ids has two equal digests. */
void kvi_content_digest(const kvarc_geometry *geometry, const struct kvi_order *order,
                        const struct kvi_content *content, struct kvi_h128 *with,
                        struct kvi_h128 *without);

#endif
