/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_located.h - the chunks of a range, for a decoder that is not this library's */
#ifndef KVI_READER_LOCATED_H
#define KVI_READER_LOCATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codecs/codec.h"
#include "exact/engine.h"
#include "format/chunk_header.h"
#include "kvarc.h"
#include "util/shared.h"

/*
 * A chunk of a range, where its payload lies and what decoding it needs. Pointers are good until
 * kvi_located_take returns.
 */
struct kvi_located {
	struct kvi_chunk shape;
	uint32_t from, to; /* the tokens of the chunk that the range has */
	uint32_t tensor, layer;
	uint16_t head;
	uint64_t t0;     /* index of its first token in the track */
	uint64_t offset; /* payload in the file; 0: predicted, encrypted or in a store */
	uint32_t bytes;  /* size of the payload */
	struct kvi_chunk_header header;  /* not set where offset is 0 */
	const struct kvi_params *params; /* NULL: the codec has none */
	bool predicted;                  /* predicted from other chunks, or by a model */
	/* Whether it is predicted by nothing, and of a codec that kernels have: raw, constant,
	 * layers, grid. Others are for kvarc_reader_read_deliver. */
	bool decodable;
};

/* The model of a reader or a writer (levels 4 to 8) and its arithmetic; what it points to lives as
 * long as the reader or the writer. */
struct kvi_located_model {
	const kvarc_predictor *predictor;
	struct kvi_arithmetic arithmetic;
};

/*
 * The model of the first PREDICTOR frame of kind 2 of r.
 * Returns OK, END (there is no such frame, or none of a transformer that sees the token);
 * PREDICTOR (the reader does not have the model, or its profile) and what loading them returns:
 * *error says why.
 */
KVI_SHARED kvarc_ret kvi_reader_model(kvarc_reader *r, struct kvi_located_model *model,
                                      kvarc_error *error);

/* Takes a chunk. What is not OK ends the walk, which returns it. */
typedef kvarc_ret (*kvi_located_take)(void *opaque, const struct kvi_located *p);

/*
 * All chunks of a range, segment after segment. Of each one that is not encrypted its head is
 * read. r must be able to seek, and not salvage.
 * Returns as kvarc_reader_read does, or what take returned; errors are those of r.
 */
KVI_SHARED kvarc_ret kvi_reader_locate(kvarc_reader *r, const kvarc_range *range,
                                       kvi_located_take take, void *opaque);

/* Reads bytes of the file of r. Returns OK, DATA (it is shorter), IO; the error is that of r. */
KVI_SHARED kvarc_ret kvi_reader_bytes(kvarc_reader *r, void *to, size_t bytes, uint64_t offset);

#endif
