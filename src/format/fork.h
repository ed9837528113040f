/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.h - FORK content: a track begins as the first tokens of another one (spec 6.3) */
#ifndef KVI_FORK_H
#define KVI_FORK_H

#include "chunk_order.h"
#include "util/bytes.h"

/* The content of a FORK frame. */
struct kvi_fork {
	uint32_t track, from; /* `track` gets the tokens of `from` */
	uint64_t n;           /* that many of its first tokens */
};

/* Appends a FORK content. Test out->failed afterwards. */
void kvi_fork_put(struct kvi_out *out, const struct kvi_fork *fork);
/* Parses a FORK content. The caller checks the tracks and whether `from` has n tokens. False: it is
 * not valid. */
bool kvi_fork_parse(struct kvi_fork *fork, const uint8_t *content, size_t bytes);
/* Whether a track can have the tokens of another one: both exist, and their tensors pair. */
bool kvi_fork_fits(const kvarc_geometry *geometry, const struct kvi_order *order, uint32_t track,
                   uint32_t from);

#endif
