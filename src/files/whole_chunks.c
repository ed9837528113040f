/* SPDX-License-Identifier: BSD-3-Clause */
/* whole_chunks.c - whether chunks of an archive are whole, by the checks of their frames */
#include "whole_chunks.h"

#include <stdatomic.h>

#include "codecs/codec.h"
#include "reader/reader_frames.h"
#include "reader/reader_state.h"

enum { NOT_KNOWN, WHOLE, NOT_WHOLE };

kvarc_ret kvi_whole_open(struct kvi_whole *whole, kvarc_reader *r)
{
	*whole = (struct kvi_whole){ .r = r };
	whole->params = kvi_calloc(&r->alloc, r->index.params.n + 1, sizeof *whole->params);
	return whole->params ? KVARC_OK : kvi_alloc_error(&r->alloc);
}

void kvi_whole_close(struct kvi_whole *whole)
{
	if (whole->r)
		kvi_free(&whole->r->alloc, whole->params);
	whole->params = NULL;
}

void kvi_whole_free(const struct kvi_whole *whole, struct kvi_whole_memory *memory)
{
	kvi_free(&whole->r->alloc, memory->chunk.p);
	kvi_free(&whole->r->alloc, memory->other.p);
}

static bool params_are_whole(struct kvi_whole *whole, uint64_t sequence,
                             struct kvi_whole_memory *memory)
{
	const struct kvi_params_ref *p = kvi_index_params(&whole->r->index, sequence);
	if (!p)
		return false;
	_Atomic uint8_t *known =
		&whole->params[p - (const struct kvi_params_ref *)whole->r->index.params.p];
	uint8_t is = atomic_load(known);
	struct kvi_frame f;
	if (is == NOT_KNOWN) {
		is = kvi_reader_read_frame(whole->r, p->offset, KVI_FRAME_PARAMS, sequence,
		                           &memory->other, &f, NULL)
		             ? NOT_WHOLE
		             : WHOLE;
		atomic_store(known, is);
	}
	return is == WHOLE;
}

/* What the payload of a chunk is decoded with: its PARAMS or the profile. */
static bool has_parameters(struct kvi_whole *whole, const struct kvi_chunk_ref *chunk,
                           struct kvi_whole_memory *memory)
{
	if (chunk->linear) {
		struct kvi_predictor_ref *p = kvi_reader_find_predictor(whole->r, chunk->params);
		return p && (!p->p.embedded ||
		             kvi_reader_load_predictor(whole->r, p, NULL) != KVARC_DATA);
	}
	return !chunk->params || params_are_whole(whole, chunk->params, memory);
}

/* The chunk that another one repeats or refers to; *needed: there is one. */
static bool has_other(struct kvi_whole *whole, const struct kvi_frame *frame,
                      const struct kvi_chunk_header *header, struct kvi_whole_memory *memory)
{
	const uint8_t *p = frame->payload + KVI_CHUNK_HEADER_BYTES;
	const size_t bytes = frame->head.payload_bytes - KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header there;
	struct kvi_frame other;
	uint64_t sequence, offset;
	if (header->codec == KVI_CODEC_REPEAT) {
		if (bytes != KVI_REPEAT_BYTES)
			return false;
		sequence = kvi_load64(p);
		offset = kvi_load64(p + 8);
	} else if (header->codec != KVI_CODEC_STATE ||
	           !kvi_state_reference(p, bytes, &sequence, &offset)) {
		return true;
	}
	if (kvi_reader_read_frame(whole->r, offset, KVI_FRAME_CHUNK, sequence, &memory->other,
	                          &other, NULL) ||
	    !kvi_chunk_header_parse(&there, other.payload, other.head.payload_bytes))
		return false;
	const struct kvi_chunk_ref c = kvi_chunk_ref(&other, &there);
	/* what one of them is predicted from is in the other chunks of its segment */
	return !c.linear && has_parameters(whole, &c, memory);
}

bool kvi_whole_chunk(struct kvi_whole *whole, const struct kvi_segment_ref *segment,
                     const struct kvi_chunk_ref *ref, struct kvi_whole_memory *memory,
                     struct kvi_chunk_header *header)
{
	struct kvi_frame f;
	return kvi_reader_read_frame(whole->r, ref->offset, KVI_FRAME_CHUNK, ref->sequence,
	                             &memory->chunk, &f, NULL) == KVARC_OK &&
	       kvi_chunk_header_parse(header, f.payload, f.head.payload_bytes) &&
	       header->segment == segment->sequence && header->tensor == ref->tensor &&
	       header->head == ref->head && header->heads == ref->heads &&
	       header->t0 == segment->t0 && header->n == segment->n &&
	       has_other(whole, &f, header, memory) && has_parameters(whole, ref, memory);
}
