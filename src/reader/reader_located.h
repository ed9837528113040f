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
	/* The models of the chunks of its segment, of level 2, 3 or 9, or of those of the walk's
	 * model, if the profile is there; they live as long as the reader. NULL: none. Its index in
	 * the order of chunks; the ids of its tokens, NULL: not known. */
	const struct kvi_linear_plan *plan;
	uint32_t order_index;
	const int32_t *ids;
	/* Whether the walk's model predicts it, whatever its codec: it is of the first tensor of
	 * its kind in a layer of the model. Whether its payload is nothing but a check (spec
	 * predicted 3). */
	bool predicted, exact;
	/* Whether it is of the GPU subset (spec 3.6): raw, constant, exponent, grid; linear, where
	 * the plan has its model; model, in a walk that has one. Or had, and klt where the plan has
	 * its model, of a reader that accepts lossy chunks. Others are for
	 * kvarc_reader_read_deliver. */
	bool decodable;
};

/* What the model of a reader or a writer computes (levels 4 to 8); all of it lives as long as
 * that. */
struct kvi_located_model {
	const kvarc_predictor *predictor;
	struct kvi_arithmetic arithmetic;
	bool closed;
	struct kvi_h128 weights;
	/* Of a range, or an append: frequencies of the ropes of the cache, by those of the model;
	 * the PREDICTOR frame of a range. */
	const uint64_t *freq[2];
	struct kvi_predictor_ref *frame;
};

/*
 * The model of the first PREDICTOR frame of kind 2 of r, whatever a range needs of it.
 * Returns OK, END (there is no such frame, or none of a transformer that sees the token);
 * PREDICTOR (the reader does not have the model, or its profile) and what loading them returns:
 * *e says why.
 */
KVI_SHARED kvarc_ret kvi_reader_model(kvarc_reader *r, struct kvi_located_model *m, kvarc_error *e);
/*
 * Whether all chunks of a range that need a model need one and the same, which can go through the
 * range layer after layer: the range begins at token 0 and at layer 0, its segments follow each
 * other as they are, and are in the file.
 */
KVI_SHARED bool kvi_reader_model_of_range(kvarc_reader *r, const kvarc_range *range,
                                          struct kvi_located_model *m);

/* Takes a chunk. What is not OK ends the walk, which returns it. */
typedef kvarc_ret (*kvi_located_take)(void *opaque, const struct kvi_located *p);

/*
 * All chunks of a range, segment after segment. Of each one that is not encrypted its head and
 * those of its planes are read, in a request each. r must be able to seek, and not salvage. model:
 * of kvi_reader_model_of_range, whose token ids are then decoded; NULL: chunks that need one are
 * not decodable.
 * Returns as kvarc_reader_read does, or what take returned; errors are those of r.
 */
KVI_SHARED kvarc_ret kvi_reader_locate(kvarc_reader *r, const kvarc_range *range,
                                       const struct kvi_located_model *model, kvi_located_take take,
                                       void *opaque);

/* The descriptor that r reads its file by at any offset, which stays its source's; -1: there is
 * none. Any thread. */
KVI_SHARED int kvi_reader_descriptor(const kvarc_reader *r);

/* Reads bytes of the file of r. Returns OK, DATA (it is shorter), IO; the error is that of r. */
kvarc_ret kvi_reader_bytes(kvarc_reader *r, void *to, size_t bytes, uint64_t offset);

#endif
