/* SPDX-License-Identifier: BSD-3-Clause */
/* whole_chunks.c - whether chunks of an archive are whole, by the checks of their frames */
#include "whole_chunks.h"

#include <stdatomic.h>

#include "codecs/codec.h"
#include "reader/reader_frames.h"
#include "reader/reader_state.h"

enum { NOT_KNOWN, WHOLE, NOT_WHOLE };

kvarc_ret kvi_whole_open(struct kvi_whole *x, kvarc_reader *r)
{
	*x = (struct kvi_whole){ .r = r };
	x->params = kvi_calloc(&r->alloc, r->index.params.n + 1, sizeof *x->params);
	return x->params ? KVARC_OK : kvi_alloc_error(&r->alloc);
}

void kvi_whole_close(struct kvi_whole *x)
{
	if (x->r)
		kvi_free(&x->r->alloc, x->params);
	x->params = NULL;
}

void kvi_whole_free(const struct kvi_whole *x, struct kvi_whole_memory *m)
{
	kvi_free(&x->r->alloc, m->chunk.p);
	kvi_free(&x->r->alloc, m->other.p);
}

static bool params_are_whole(struct kvi_whole *x, uint64_t sequence, struct kvi_whole_memory *m)
{
	const struct kvi_params_ref *p = kvi_index_params(&x->r->index, sequence);
	if (!p)
		return false;
	_Atomic uint8_t *known = &x->params[p - (const struct kvi_params_ref *)
	                                                x->r->index.params.p];
	uint8_t is = atomic_load(known);
	struct kvi_frame f;
	if (is == NOT_KNOWN) {
		is = kvi_reader_read_frame(x->r, p->offset, KVI_FRAME_PARAMS, sequence, &m->other,
		                           &f, NULL)
		             ? NOT_WHOLE
		             : WHOLE;
		atomic_store(known, is);
	}
	return is == WHOLE;
}

/* What the payload of a chunk is decoded with: its PARAMS or the profile. */
static bool has_parameters(struct kvi_whole *x, const struct kvi_chunk_ref *c,
                           struct kvi_whole_memory *m)
{
	if (c->linear) {
		struct kvi_predictor_ref *p = kvi_reader_find_predictor(x->r, c->params);
		return p && (!p->p.embedded ||
		             kvi_reader_load_predictor(x->r, p, NULL) != KVARC_DATA);
	}
	return !c->params || params_are_whole(x, c->params, m);
}

/* The chunk that another one repeats or refers to; *needed: there is one. */
static bool has_other(struct kvi_whole *x, const struct kvi_frame *f,
                      const struct kvi_chunk_header *h, struct kvi_whole_memory *m)
{
	const uint8_t *p = f->payload + KVI_CHUNK_HEADER_BYTES;
	const size_t bytes = f->head.payload_bytes - KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header there;
	struct kvi_frame other;
	uint64_t sequence, offset;
	if (h->codec == KVI_CODEC_REPEAT) {
		if (bytes != KVI_REPEAT_BYTES)
			return false;
		sequence = kvi_load64(p);
		offset = kvi_load64(p + 8);
	} else if (h->codec != KVI_CODEC_STATE ||
	           !kvi_state_reference(p, bytes, &sequence, &offset)) {
		return true;
	}
	if (kvi_reader_read_frame(x->r, offset, KVI_FRAME_CHUNK, sequence, &m->other, &other,
	                          NULL) ||
	    !kvi_chunk_header_parse(&there, other.payload, other.head.payload_bytes))
		return false;
	const struct kvi_chunk_ref c = kvi_chunk_ref(&other, &there);
	/* what one of them is predicted from is in the other chunks of its segment */
	return !c.linear && has_parameters(x, &c, m);
}

bool kvi_whole_chunk(struct kvi_whole *x, const struct kvi_segment_ref *s,
                     const struct kvi_chunk_ref *ref, struct kvi_whole_memory *m,
                     struct kvi_chunk_header *h)
{
	struct kvi_frame f;
	return kvi_reader_read_frame(x->r, ref->offset, KVI_FRAME_CHUNK, ref->sequence, &m->chunk,
	                             &f, NULL) == KVARC_OK &&
	       kvi_chunk_header_parse(h, f.payload, f.head.payload_bytes) &&
	       h->segment == s->sequence && h->tensor == ref->tensor && h->head == ref->head &&
	       h->heads == ref->heads && h->t0 == s->t0 && h->n == s->n &&
	       has_other(x, &f, h, m) && has_parameters(x, ref, m);
}
