/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.h - what decoding a chunk and decoding a repeated one share */
#ifndef KVI_READER_DECODE_H
#define KVI_READER_DECODE_H

#include "reader_state.h"

/* One chunk frame in memory, ready to be decoded. */
struct kvi_chunk_piece {
	const struct kvi_frame *frame;
	const struct kvi_chunk_header *h;
	const int32_t *positions;           /* NULL: not known */
	const struct kvi_params_use *use;   /* NULL: the codec has none */
	const struct kvi_linear_in *linear; /* codec linear */
	struct kvi_features *features;      /* NULL: nobody needs them */
	const uint8_t *before;              /* codec state: elements that it refers to, or NULL */
	uint32_t from, to;                  /* the tokens of the chunk that are needed; to 0: all */
	unsigned helpers;                   /* threads that wait for it */
};

/* Decodes a payload and compares raw_check. */
kvarc_ret kvi_piece_decode(kvarc_reader *r, struct kvi_coder *coder,
                           const struct kvi_chunk_piece *p, uint8_t *raw, kvarc_error *e);
/* A job from its frame to j->raw and its features, for repeated chunks: a REPEAT is
 * DATA, and nothing is delivered. */
void kvi_reader_decode_job(struct kvi_decode_job *j, struct kvi_coder *coder);
/* Reads the earlier frame, a CHUNK, that the chunk of a job names: *f lies in j->other. Returns OK,
 * MEM, MEMLIMIT, DATA, IO, OPTIONS (a source that cannot seek). */
kvarc_ret kvi_reader_read_earlier(struct kvi_decode_job *j, uint64_t sequence, uint64_t offset,
                                  struct kvi_frame *f);
/* Decodes a chunk that others name, which names none itself, to raw. */
kvarc_ret kvi_reader_decode_target(kvarc_reader *r, struct kvi_coder *coder,
                                   const struct kvi_frame *f, uint8_t *raw, kvarc_error *e);
/* The elements that a chunk of codec state refers to, in j->expected; NULL: it refers to none. */
kvarc_ret kvi_reader_reference(struct kvi_decode_job *j, struct kvi_coder *coder,
                               const struct kvi_chunk_header *h, const uint8_t **elements);
/* The bytes that a REPEAT names, into j->raw. */
kvarc_ret kvi_reader_decode_repeat(struct kvi_decode_job *j, struct kvi_coder *coder,
                                   const struct kvi_chunk_header *h);

#endif
