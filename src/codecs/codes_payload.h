/* SPDX-License-Identifier: BSD-3-Clause */
/* codes_payload.h - payloads of codes: planes, checks and streams (spec layers 2, 4) */
#ifndef KVI_CODES_PAYLOAD_H
#define KVI_CODES_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codecs/streams.h"
#include "util/bytes.h"

/* Parts of a payload that are aligned begin at a multiple of it. */
enum { KVI_CODES_ALIGN = 4 };

/* Reads a plane of n codes of `bits` bits; NULL: it is not there, or its padding is not zero. */
const uint8_t *kvi_code_plane_get(struct kvi_in *in, size_t n, unsigned bits);
/* Reads the zeros in front of a multiple of KVI_CODES_ALIGN, counted from `from`. False: they are
 * not there, or not zero. */
bool kvi_aligned_get(struct kvi_in *in, const uint8_t *from);
/* Writes these zeros; returns their end. */
static inline uint8_t *kvi_aligned_put(uint8_t *to, const uint8_t *from)
{
	while ((size_t)(to - from) % KVI_CODES_ALIGN)
		*to++ = 0;
	return to;
}

/* Reads the zeros behind the section and the checks of two streams or more (kvi_codec.get_table).
 */
bool kvi_checks_get(struct kvi_streams_in *streams_in, const struct kvi_streams *streams,
                    size_t section_bytes, struct kvi_in *in);
/* Writes the checks to where kvi_checks_get finds them (kvi_codec.put_checks). */
void kvi_checks_put(const struct kvi_streams *streams, uint8_t *begin,
                    const uint64_t check[KVI_STREAMS_MAX]);
/* Bytes of the checks. */
static inline size_t kvi_checks_bytes(const struct kvi_streams *streams)
{
	return streams->n > 1 ? 8 * streams->n : 0;
}

/* Cuts a chunk into the smallest streams that have as many elements, or one. */
void kvi_streams_cut_by(struct kvi_streams *streams, size_t rows, size_t channels, size_t elements);
/* The encoder of a chunk's streams, which are written upwards. */
struct kvi_streams_writer {
	void *opaque;
	/* Writes a stream from `to` on; returns its end. Several threads call it at once, for
	 * different streams. */
	uint8_t *(*one)(void *opaque, unsigned number, uint8_t *to);
	/* The bytes that a stream of this many tokens may take and overwrite, a multiple of
	 * KVI_CODES_ALIGN. */
	size_t (*space)(const void *opaque, size_t rows);
	size_t work; /* of all streams (kvi_job.work) */
};
/* Encodes the streams of a chunk from `to` on, each at a multiple of KVI_CODES_ALIGN from there,
 * with the help of workers of the pool that have nothing to do. Behind `to` there are the bytes
 * that `space` says of all streams. Returns their end. */
uint8_t *kvi_streams_put(struct kvi_pool *pool, const struct kvi_streams *streams,
                         const struct kvi_streams_writer *writer, uint8_t *to);

#endif
