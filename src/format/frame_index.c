/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_index.c - parses and writes INDEX content (spec 9.2) */
#include "frame_index.h"

#include "frame.h"
#include "segment.h"

enum { FLAG_CHAIN = 1, CHAIN_BYTES = 16 };

static void put_chain(struct kvi_out *out, const struct kvi_index_entry *e)
{
	uint8_t chain[CHAIN_BYTES];
	kvi_put8(out, e->has_chain ? FLAG_CHAIN : 0);
	kvi_store_h128(chain, e->chain);
	if (e->has_chain)
		kvi_put_bytes(out, chain, sizeof chain);
}

void kvi_index_put(struct kvi_out *out, struct kvi_index_delta *d, const struct kvi_index_entry *e)
{
	kvi_put8(out, e->type);
	kvi_put_varint(out, (e->offset - d->offset) / KVI_FRAME_ALIGN);
	kvi_put_varint(out, e->sequence - d->sequence);
	d->offset = e->offset;
	d->sequence = e->sequence;
	switch (e->type) {
	case KVI_FRAME_CHUNK:
		kvi_put_varint(out, e->tensor);
		kvi_put_varint(out, e->head);
		kvi_put_varint(out, e->heads);
		kvi_put_varint(out, e->sequence - e->segment);
		kvi_put_varint(out, e->params);
		break;
	case KVI_FRAME_SEGMENT:
		kvi_put_varint(out, e->tensor);
		kvi_put_varint(out, e->segment);
		kvi_put_varint(out, e->n);
		put_chain(out, e);
		break;
	case KVI_FRAME_STOREREF:
		kvi_put_varint(out, e->tensor);
		kvi_put_varint(out, e->segment);
		kvi_put_varint(out, e->n);
		break;
	case KVI_FRAME_COMMIT:
		kvi_put_varint(out, e->number);
		break;
	case KVI_FRAME_PARAMS:
		kvi_put_varint(out, e->tensor);
		kvi_put_varint(out, e->head);
		kvi_put_varint(out, e->heads);
		kvi_put8(out, e->codec);
		kvi_put_varint(out, e->params);
		break;
	default:
		break;
	}
}

bool kvi_index_begin(struct kvi_index_reader *r, const uint8_t *content, size_t bytes)
{
	*r = (struct kvi_index_reader){ .in = kvi_in_make(content, bytes) };
	r->previous = kvi_get64(&r->in);
	/* An entry takes at least three bytes. */
	r->left = kvi_get_varint(&r->in, bytes / 3);
	return !r->in.bad && r->previous % KVI_FRAME_ALIGN == 0;
}

static void get_tensor(struct kvi_in *in, struct kvi_index_entry *e)
{
	e->tensor = (uint32_t)kvi_get_varint(in, UINT32_MAX);
	e->head = (uint16_t)kvi_get_varint(in, UINT16_MAX);
	e->heads = (uint16_t)kvi_get_varint(in, UINT16_MAX);
	if (e->heads == 0)
		in->bad = true;
}

static void get_chain(struct kvi_in *in, struct kvi_index_entry *e)
{
	const unsigned flags = kvi_get8(in);
	const uint8_t *chain = flags == FLAG_CHAIN ? kvi_get_bytes(in, CHAIN_BYTES) : NULL;
	if (flags & ~(unsigned)FLAG_CHAIN)
		in->bad = true;
	e->has_chain = chain;
	if (chain)
		e->chain = kvi_load_h128(chain);
}

static void get_fields(struct kvi_in *in, struct kvi_index_entry *e)
{
	switch (e->type) {
	case KVI_FRAME_CHUNK:
		get_tensor(in, e);
		e->segment = e->sequence - kvi_get_varint(in, e->sequence);
		e->params = kvi_get_varint(in, e->sequence);
		break;
	case KVI_FRAME_SEGMENT:
		e->tensor = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		e->segment = kvi_get_varint(in, UINT64_MAX);
		e->n = (uint32_t)kvi_get_varint(in, KVI_SEGMENT_TOKENS);
		if (e->n == 0)
			in->bad = true;
		get_chain(in, e);
		break;
	case KVI_FRAME_STOREREF:
		e->tensor = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		e->segment = kvi_get_varint(in, UINT64_MAX);
		e->n = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		break;
	case KVI_FRAME_COMMIT:
		e->number = kvi_get_varint(in, KVI_NUMBER_MAX);
		break;
	case KVI_FRAME_PARAMS:
		get_tensor(in, e);
		e->codec = kvi_get8(in);
		e->params = kvi_get_varint(in, e->sequence);
		if (e->params && e->params == e->sequence)
			in->bad = true; /* a copy of itself */
		break;
	default:
		break;
	}
}

bool kvi_index_next(struct kvi_index_reader *r, struct kvi_index_entry *e)
{
	if (r->left == 0 || r->in.bad)
		return false;
	bool first = r->d.offset == 0;
	*e = (struct kvi_index_entry){ .type = kvi_get8(&r->in) };
	uint64_t step = kvi_get_varint(&r->in, KVI_NUMBER_MAX / KVI_FRAME_ALIGN);
	uint64_t count = kvi_get_varint(&r->in, KVI_NUMBER_MAX);
	e->offset = r->d.offset + step * KVI_FRAME_ALIGN;
	e->sequence = r->d.sequence + count;
	/* Ascending, never the frames that are not listed. */
	if (step == 0 || (count == 0 && !first) || e->offset > KVI_NUMBER_MAX ||
	    e->sequence > KVI_NUMBER_MAX || e->type == KVI_FRAME_INDEX ||
	    e->type == KVI_FRAME_FOOTER)
		r->in.bad = true;
	get_fields(&r->in, e);
	if (r->in.bad)
		return false;
	r->d.offset = e->offset;
	r->d.sequence = e->sequence;
	r->left--;
	return true;
}

bool kvi_index_end(const struct kvi_index_reader *r)
{
	return !r->in.bad && r->left == 0 && kvi_in_remaining(&r->in) == 0;
}
