/* SPDX-License-Identifier: BSD-3-Clause */
/* seal_content.h - give mutated SEGMENT, INDEX and LIST frames right chain values and offsets */
#ifndef FUZZ_SEAL_CONTENT_H
#define FUZZ_SEAL_CONTENT_H

#include <stdint.h>

#include "util/bytes.h"

/* What the frames so far say: GEOMETRY, IDENTITY, segments, and where they are. */
struct fuzz_contents;

/* Of no frames; the caller frees it. */
struct fuzz_contents *fuzz_contents_new(void);
/* NULL: nothing. */
void fuzz_contents_free(struct fuzz_contents *c);

/*
 * Takes the next frame: its type, where it will stand, its payload and decoded_bytes. True: *out
 * has another payload for it, stored, and *decoded its size: a SEGMENT with the chain value of its
 * ids (spec 5.3), an INDEX or LIST with the offsets, sizes and chain values of the frames that it
 * lists. False: the payload stays, as it is right, or no valid content.
 */
bool fuzz_contents_repair(struct fuzz_contents *c, unsigned type, uint64_t offset,
                          uint64_t sequence, const uint8_t *payload, size_t bytes,
                          uint32_t *decoded, struct kvi_out *out);
/* The frame that was taken last has this size. */
void fuzz_contents_placed(struct fuzz_contents *c, uint64_t bytes);

#endif
