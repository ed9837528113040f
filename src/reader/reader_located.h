/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_located.h - the chunks of a range, for a decoder that is not this library's */
#ifndef KVI_READER_LOCATED_H
#define KVI_READER_LOCATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codecs/codec.h"
#include "format/chunk_header.h"
#include "kvarc.h"
#include "profile/linear_plan.h"
#include "reader_exact.h"
#include "util/shared.h"

/*
 * A chunk of a range, where its payload lies and what decoding it needs. Pointers are good until
 * kvi_located_take returns.
 */
struct kvi_located {
	struct kvi_chunk shape; /* from and to: the tokens that the range has; to is not 0 */
	uint32_t tensor, layer;
	uint16_t head;
	uint64_t t0;     /* its first token in the track */
	uint64_t offset; /* of its payload in the file; 0: it lies elsewhere, or is encrypted */
	uint32_t bytes;  /* of the payload */
	struct kvi_packed_exact packed;  /* of a lossy chunk */
	struct kvi_chunk_header header;  /* of a chunk that is not decodable elsewhere: not set */
	const struct kvi_params *params; /* NULL: the codec has none */
	/* The models of the chunks of its segment, of level 2 or 3, if the profile is there; they
	 * live as long as the reader. NULL: none. Its index in the order of chunks; the ids of its
	 * tokens, NULL: not known. */
	const struct kvi_linear_plan *plan;
	uint32_t order_index;
	const int32_t *ids;
	/* Whether it is of the GPU subset (spec 3.6): raw, constant, exponent, grid; linear, where
	 * the plan has its model. Or had, and klt where it has, of a reader that accepts lossy
	 * chunks. Others are for kvarc_reader_read_deliver. */
	bool decodable;
};

/* Takes a chunk. What is not OK ends the walk, which returns it. */
typedef kvarc_ret (*kvi_located_take)(void *opaque, const struct kvi_located *p);

/*
 * All chunks of a range, segment after segment. Of each one that is not encrypted its head and
 * those of its planes are read, in a request each. r must be able to seek, and not salvage.
 * Returns as kvarc_reader_read does, or what take returned; errors are those of r.
 */
KVI_SHARED kvarc_ret kvi_reader_locate(kvarc_reader *r, const kvarc_range *range,
                                       kvi_located_take take, void *opaque);

/* Reads bytes of the file of r. Returns OK, DATA (it is shorter), IO; the error is that of r. */
kvarc_ret kvi_reader_bytes(kvarc_reader *r, void *to, size_t bytes, uint64_t offset);

#endif
