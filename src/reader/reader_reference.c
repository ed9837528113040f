/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_reference.c - the elements of the chunk that a state refers to (spec state 3) */
#include "reader_decode.h"

/* Whether a chunk has the rows, columns and dtype of the one that refers to it. */
static bool fits(const struct kvi_decode_job *j, const struct kvi_chunk_header *h,
                 const struct kvi_frame *f, const struct kvi_chunk_header *there)
{
	const kvarc_tensor *tensors = j->r->geometry.tensors;
	return kvi_state_may_refer(there->codec) && there->n == h->n &&
	       f->head.decoded_bytes == j->frame.head.decoded_bytes &&
	       there->tensor < j->r->geometry.n_tensors &&
	       tensors[there->tensor].dtype == tensors[h->tensor].dtype;
}

kvarc_ret kvi_reader_reference(struct kvi_decode_job *j, struct kvi_coder *coder,
                               const struct kvi_chunk_header *h, const uint8_t **elements)
{
	kvarc_reader *r = j->r;
	struct kvi_chunk_header there;
	struct kvi_frame f;
	uint64_t sequence, offset;
	*elements = NULL;
	if (!kvi_state_reference(j->frame.payload + KVI_CHUNK_HEADER_BYTES,
	                         j->frame.head.payload_bytes - KVI_CHUNK_HEADER_BYTES, &sequence,
	                         &offset))
		return KVARC_OK;
	kvarc_ret ret = kvi_reader_read_earlier(j, sequence, offset, &f);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(&there, f.payload, f.head.payload_bytes) ||
	    !fits(j, h, &f, &there))
		return kvi_reader_bad(&j->frame, &j->error, "what it refers to differs");
	if (!kvi_buffer_grow(&j->expected, &r->alloc, f.head.decoded_bytes, 0))
		return kvi_fail_alloc(&j->error, &r->alloc);
	*elements = j->expected.p;
	return kvi_reader_decode_target(r, coder, &f, j->expected.p, &j->error);
}
