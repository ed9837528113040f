/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_coded.h - appends of whose chunks some were encoded elsewhere */
#ifndef KVI_WRITER_CODED_H
#define KVI_WRITER_CODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codecs/codec.h"
#include "kvarc.h"
#include "reader/reader_located.h"
#include "util/hash.h"
#include "util/shared.h"

/* The geometry of a writer; NULL: it has none yet. */
KVI_SHARED const kvarc_geometry *kvi_writer_geometry(const kvarc_writer *w);

/* A chunk of an append to come. Pointers are good until kvi_append_chunk_take returns. */
struct kvi_append_chunk {
	struct kvi_chunk shape;
	uint32_t tensor, layer;
	uint16_t head;
	uint32_t row; /* row of its first token in the append */
	/* Codec and parameters for another encoder, so that its payload is equal to this
	 * library's. */
	bool elsewhere; /* another encoder may encode the chunk; false: this library alone */
	uint8_t codec;  /* of the level; elsewhere: layers, cells or grid */
	const struct kvi_params *params; /* NULL: there are none; layers needs none */
	uint64_t params_sequence;        /* number of the PARAMS frame */
	bool hashed; /* the writer wants H128 of the elements; they have 241 bytes or more */
};

/* The model of the writer's options and its arithmetic, once there is a geometry. Returns OK, END:
 * the level has no model, or that is no transformer that sees the token. */
KVI_SHARED kvarc_ret kvi_writer_model(const kvarc_writer *w, struct kvi_located_model *model);

/* Takes a chunk. What is not OK ends the walk, which returns it. */
typedef kvarc_ret (*kvi_append_chunk_take)(void *opaque, const struct kvi_append_chunk *c);

/*
 * All chunks that the next append of n tokens, without tokens that wait, will have, segment after
 * segment. positions: as of the append. Nothing is written. Returns OK, GEOMETRY, PROG (as the
 * append would), or what take returned; the error is that of w.
 */
KVI_SHARED kvarc_ret kvi_writer_plan_append(kvarc_writer *w, uint32_t track, uint64_t n,
                                            const int32_t *positions, kvi_append_chunk_take take,
                                            void *opaque);

/* A chunk that another encoder has encoded. */
struct kvi_coded_chunk {
	uint8_t codec;
	const uint8_t *payload; /* is copied */
	uint32_t payload_bytes; /* CHUNK frame payload; its header has sequence numbers of 0 */
	uint32_t elements;      /* elements that the mask left */
	uint64_t params_sequence;
	struct kvi_h128 hash; /* hash of the elements that a decoder makes, if it was wanted */
};

/* Another encoder, called in the thread of the append. */
struct kvi_append_coder {
	/* gets elements of chunks that it did not encode, or that parameters no longer serve */
	kvarc_fetch fetch;
	/* Finds the encoded chunk; false: there is none. row: as in struct kvi_append_chunk. */
	bool (*find)(void *opaque, uint32_t tensor, uint32_t head, uint32_t row,
	             struct kvi_coded_chunk *c);
	void *opaque;
};

/* Number of chunks whose payloads were accepted, and their bytes, headers included. */
struct kvi_accepted {
	uint64_t chunks, bytes;
};
/*
 * As kvarc_writer_append_fetch, with payloads of another encoder. A payload is accepted where its
 * parameters, if it has any, are in force and still fit, and it is small enough; the archive is
 * then equal to that of kvarc_writer_append_fetch. *accepted: the accepted chunks.
 */
KVI_SHARED kvarc_ret kvi_writer_append_coded(kvarc_writer *w, uint32_t track, uint64_t n,
                                             const int32_t *ids, const int32_t *positions,
                                             const struct kvi_append_coder *coder,
                                             struct kvi_accepted *accepted);

#endif
