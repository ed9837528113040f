/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_exact.h - payloads of lossy chunks whose exact tokens are unpacked (spec lossy 1) */
#ifndef KVI_READER_EXACT_H
#define KVI_READER_EXACT_H

#include <stdint.h>

#include "codecs/codec.h"
#include "kvarc.h"
#include "util/shared.h"

/* The exact tokens of a payload, packed by Zstandard: the offset of their method, 0: there are none
 * that are; bytes of the method and of the length behind it; of the frame; once it is unpacked. */
struct kvi_packed_exact {
	uint32_t at, head, frame, raw_bytes;
};

/* Looks for them in a payload of a lossy codec: of n bytes, CHUNK header included, at an offset of
 * the file. What is not valid has none: whoever decodes it says so. Returns OK, DATA (the file is
 * shorter), IO; the error is that of r. */
kvarc_ret kvi_reader_find_exact(kvarc_reader *r, const struct kvi_chunk *shape, uint64_t offset,
                                uint32_t n, struct kvi_packed_exact *packed);

/* Bytes of such a payload once they are unpacked. */
static inline uint32_t kvi_unpacked_bytes(const struct kvi_packed_exact *x, uint32_t n)
{
	return x->at ? n - x->head - x->frame + 1 + x->raw_bytes : n;
}

/*
 * Reads a payload of n bytes to kvi_unpacked_bytes: its exact tokens are stored as they are. Where
 * they do not unpack, its generation is 0, which is not valid. Returns OK, DATA (the file is
 * shorter), IO, MEM, MEMLIMIT; the error is that of r.
 */
KVI_SHARED kvarc_ret kvi_reader_payload(kvarc_reader *r, uint8_t *to, uint32_t n, uint64_t offset,
                                        const struct kvi_packed_exact *packed);

#endif
