/* SPDX-License-Identifier: BSD-3-Clause */
/* frame.h - frame headers, their checks, the table of types (spec 3) */
#ifndef KVI_FRAME_H
#define KVI_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/hash.h"

/* Frame types (spec 3.3). */
enum {
	KVI_FRAME_GEOMETRY = 1,
	KVI_FRAME_IDENTITY = 2,
	KVI_FRAME_RESTORE = 3,
	KVI_FRAME_BLOB = 4,
	KVI_FRAME_PARAMS = 5,
	KVI_FRAME_SEGMENT = 6,
	KVI_FRAME_CHUNK = 7,
	KVI_FRAME_COMMIT = 8,
	KVI_FRAME_INDEX = 9,
	KVI_FRAME_FOOTER = 10,
	KVI_FRAME_PREDICTOR = 11,
	KVI_FRAME_PROFILE = 12,
	/* spec/frames.md; they do not count for the order but for STOREREF */
	KVI_FRAME_PARITY = 13,
	KVI_FRAME_ENCRYPTED = 14,
	KVI_FRAME_STOREREF = 15,
	KVI_FRAME_KEY = 16,
	KVI_FRAME_PAD = 17,  /* skipped; does not count */
	KVI_FRAME_LIST = 18, /* entries of CHUNK frames; does not count */
	KVI_FRAME_FORK = 19
};
/* Sizes of a frame header, of the front of a payload, which is hashed with the header, and of the
 * check behind a payload; the critical flag, alignment. */
enum {
	KVI_FRAME_HEAD_BYTES = 32,
	KVI_FRAME_FRONT_BYTES = 48,
	KVI_FRAME_CHECK_BYTES = 16,
	KVI_FRAME_CRITICAL = 1,
	KVI_FRAME_ALIGN = 16
};
#define KVI_FRAME_MAX ((uint32_t)1 << 28)

/* The fields of a frame header. */
struct kvi_frame_head {
	uint16_t type, flags;
	uint32_t payload_bytes, decoded_bytes;
	uint64_t sequence;
};

/* The sync value of a file's frame headers, from its file id (spec 3.1). */
uint64_t kvi_frame_sync(const uint8_t file_id[16]);

/* Payload and padding. */
static inline size_t kvi_frame_padded(uint32_t payload_bytes)
{
	return ((size_t)payload_bytes + KVI_FRAME_ALIGN - 1) & ~(size_t)(KVI_FRAME_ALIGN - 1);
}

/* The whole frame, header and check included. */
static inline uint64_t kvi_frame_bytes(uint32_t payload_bytes)
{
	return (uint64_t)kvi_frame_padded(payload_bytes) + KVI_FRAME_HEAD_BYTES +
	       KVI_FRAME_CHECK_BYTES;
}

/* The flags that a writer gives to a frame type. */
uint16_t kvi_frame_flags(uint16_t type);
/* Writes a header for a frame at that byte offset of the file. */
void kvi_frame_head_write(uint8_t out[KVI_FRAME_HEAD_BYTES], const struct kvi_frame_head *head,
                          uint64_t sync, uint64_t offset);
/* False: sync or header_check do not hold here; *head is then unspecified. */
bool kvi_frame_head_parse(struct kvi_frame_head *head, const uint8_t in[KVI_FRAME_HEAD_BYTES],
                          uint64_t sync, uint64_t offset);
/* Meaning of a header that parsed: OK, DATA, OPTIONS (spec 3.3). */
kvarc_ret kvi_frame_head_check(const struct kvi_frame_head *head);
/* True for types that version 1.0 gives a meaning. */
bool kvi_frame_known(uint16_t type);
/* True for types that count for the order of frames (spec 3.4): not for INDEX, LIST and unknown
 * ones. */
bool kvi_frame_counts(uint16_t type);
/* "CHUNK"; "unknown" for others. */
const char *kvi_frame_name(uint16_t type);

/* The check behind a frame: head 32 bytes, padded: payload and padding. */
struct kvi_h128 kvi_frame_check(const uint8_t head[KVI_FRAME_HEAD_BYTES], uint64_t offset,
                                const uint8_t *padded, size_t padded_bytes);
/* Zeroes the padding behind a frame's payload. Returns the H128 of both without their front, which
 * is the same at any offset. */
struct kvi_h128 kvi_frame_rest(uint8_t *frame, uint32_t payload_bytes);
/* Writes the check behind header, payload and padding of a whole frame at an offset; rest: of
 * kvi_frame_rest. */
void kvi_frame_close(uint8_t *frame, uint64_t offset, uint32_t payload_bytes, struct kvi_h128 rest);

#endif
