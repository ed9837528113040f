/* SPDX-License-Identifier: BSD-3-Clause */
/* planes.h - bytes that are stored beside a stream (spec rans 5) */
#ifndef KVI_PLANES_H
#define KVI_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codecs/coder.h"
#include "util/bytes.h"

/* Bytes in front of the bytes of a plane, and its methods (spec rans 5). */
enum { KVI_PLANE_HEAD = 16, KVI_PLANE_STORED = 0, KVI_PLANE_ZSTD = 1, KVI_PLANE_CONSTANT = 2 };

/* Bytes that a plane of n bytes takes at most once written. */
static inline size_t kvi_plane_capacity(size_t n)
{
	return KVI_PLANE_HEAD + n + KVI_STREAM_ALIGN;
}

/* Writes one plane to `to`, which is aligned to KVI_STREAM_ALIGN in the payload; plane may be
 * to + KVI_PLANE_HEAD. Returns the end, aligned likewise. */
uint8_t *kvi_plane_write(struct kvi_coder *coder, const uint8_t *plane, size_t bytes, uint8_t *to);

/* Reads one plane of n bytes; *plane points into the input where it is stored as it is, else to
 * buffer, which has n bytes. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_plane_read(struct kvi_coder *coder, struct kvi_in *in, size_t n, uint8_t *buffer,
                         const uint8_t **plane);

/* Writes bytes as one Zstandard frame with its size, where that is smaller, else as they are. Uses
 * KVI_SCRATCH_PLANE_OUT. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_packed_put(struct kvi_coder *coder, const uint8_t *from, size_t bytes,
                         struct kvi_out *out);
/* Reads bytes that kvi_packed_put wrote; *to: in the input or in KVI_SCRATCH_PLANE. Returns OK,
 * MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_packed_get(struct kvi_coder *coder, struct kvi_in *in, size_t bytes,
                         const uint8_t **to);

#endif
