/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_index.c - parses and writes content of INDEX and LIST frames (spec 9.2) */
#include "frame_index.h"

#include "frame.h"
#include "segment.h"
#include "superblock.h"

enum { FLAG_CHAIN = 1, CHAIN_BYTES = 16 };

static void put_chain(struct kvi_out *out, const struct kvi_index_entry *entry)
{
	uint8_t chain[CHAIN_BYTES];
	kvi_put8(out, entry->has_chain ? FLAG_CHAIN : 0);
	kvi_store_h128(chain, entry->chain);
	if (entry->has_chain)
		kvi_put_bytes(out, chain, sizeof chain);
}

void kvi_index_put(struct kvi_out *out, struct kvi_index_delta *delta,
                   const struct kvi_index_entry *entry)
{
	kvi_put8(out, entry->type);
	kvi_put_varint(out, (entry->offset - delta->end) / KVI_FRAME_ALIGN);
	kvi_put_varint(out, entry->sequence - delta->sequence);
	kvi_put_varint(out, entry->bytes / KVI_FRAME_ALIGN);
	delta->end = entry->offset + entry->bytes;
	delta->sequence = entry->sequence;
	switch (entry->type) {
	case KVI_FRAME_CHUNK:
		kvi_put_varint(out, entry->tensor);
		kvi_put_varint(out, entry->head);
		kvi_put_varint(out, entry->heads);
		kvi_put_varint(out, entry->sequence - entry->segment);
		kvi_put_varint(out, entry->params);
		break;
	case KVI_FRAME_SEGMENT:
		kvi_put_varint(out, entry->tensor);
		kvi_put_varint(out, entry->segment);
		kvi_put_varint(out, entry->n);
		put_chain(out, entry);
		break;
	case KVI_FRAME_STOREREF:
		kvi_put_varint(out, entry->tensor);
		kvi_put_varint(out, entry->segment);
		kvi_put_varint(out, entry->n);
		break;
	case KVI_FRAME_FORK:
		kvi_put_varint(out, entry->tensor);
		kvi_put_varint(out, entry->params);
		kvi_put_varint(out, entry->segment);
		break;
	case KVI_FRAME_COMMIT:
		kvi_put_varint(out, entry->number);
		break;
	case KVI_FRAME_LIST:
		kvi_put_varint(out, entry->n);
		break;
	case KVI_FRAME_PARAMS:
		kvi_put_varint(out, entry->tensor);
		kvi_put_varint(out, entry->head);
		kvi_put_varint(out, entry->heads);
		kvi_put8(out, entry->codec);
		kvi_put_varint(out, entry->params);
		break;
	default:
		break;
	}
}

void kvi_index_put_head(struct kvi_out *out, const struct kvi_index_head *head, uint64_t n)
{
	kvi_put64(out, head->follows);
	kvi_put32(out, head->follows_bytes);
	kvi_put64(out, head->codecs);
	kvi_put_varint(out, n);
}

/* An entry takes this many bytes at least. */
enum { ENTRY_BYTES = 4 };

bool kvi_index_begin(struct kvi_index_reader *r, const uint8_t *content, size_t bytes)
{
	*r = (struct kvi_index_reader){ .in = kvi_in_make(content, bytes) };
	struct kvi_index_head *head = &r->head;
	head->follows = kvi_get64(&r->in);
	head->follows_bytes = kvi_get32(&r->in);
	head->codecs = kvi_get64(&r->in);
	r->left = kvi_get_varint(&r->in, bytes / ENTRY_BYTES);
	return !r->in.bad && head->follows % KVI_FRAME_ALIGN == 0 &&
	       head->follows_bytes % KVI_FRAME_ALIGN == 0 && !head->follows == !head->follows_bytes;
}

bool kvi_list_begin(struct kvi_index_reader *r, const uint8_t *content, size_t bytes)
{
	*r = (struct kvi_index_reader){ .in = kvi_in_make(content, bytes), .chunks = true };
	r->left = kvi_get_varint(&r->in, bytes / ENTRY_BYTES);
	return !r->in.bad && r->left;
}

static void get_tensor(struct kvi_in *in, struct kvi_index_entry *entry)
{
	entry->tensor = (uint32_t)kvi_get_varint(in, UINT32_MAX);
	entry->head = (uint16_t)kvi_get_varint(in, UINT16_MAX);
	entry->heads = (uint16_t)kvi_get_varint(in, UINT16_MAX);
	if (entry->heads == 0)
		in->bad = true;
}

static void get_chain(struct kvi_in *in, struct kvi_index_entry *entry)
{
	const unsigned flags = kvi_get8(in);
	const uint8_t *chain = flags == FLAG_CHAIN ? kvi_get_bytes(in, CHAIN_BYTES) : NULL;
	if (flags & ~(unsigned)FLAG_CHAIN)
		in->bad = true;
	entry->has_chain = chain;
	if (chain)
		entry->chain = kvi_load_h128(chain);
}

static void get_fields(struct kvi_in *in, struct kvi_index_entry *entry)
{
	switch (entry->type) {
	case KVI_FRAME_CHUNK:
		get_tensor(in, entry);
		entry->segment = entry->sequence - kvi_get_varint(in, entry->sequence);
		entry->params = kvi_get_varint(in, entry->sequence);
		break;
	case KVI_FRAME_SEGMENT:
		entry->tensor = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		entry->segment = kvi_get_varint(in, UINT64_MAX);
		entry->n = (uint32_t)kvi_get_varint(in, KVI_SEGMENT_TOKENS);
		if (entry->n == 0)
			in->bad = true;
		get_chain(in, entry);
		break;
	case KVI_FRAME_STOREREF:
		entry->tensor = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		entry->segment = kvi_get_varint(in, UINT64_MAX);
		entry->n = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		break;
	case KVI_FRAME_FORK:
		entry->tensor = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		entry->params = kvi_get_varint(in, UINT32_MAX);
		entry->segment = kvi_get_varint(in, UINT64_MAX);
		break;
	case KVI_FRAME_COMMIT:
		entry->number = kvi_get_varint(in, KVI_NUMBER_MAX);
		break;
	case KVI_FRAME_LIST:
		entry->n = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		if (entry->n == 0)
			in->bad = true;
		break;
	case KVI_FRAME_PARAMS:
		get_tensor(in, entry);
		entry->codec = kvi_get8(in);
		entry->params = kvi_get_varint(in, entry->sequence);
		if (entry->params && entry->params == entry->sequence)
			in->bad = true; /* a copy of itself */
		break;
	default:
		break;
	}
}

bool kvi_index_next(struct kvi_index_reader *r, struct kvi_index_entry *entry)
{
	if (r->left == 0 || r->in.bad)
		return false;
	bool first = r->d.end == 0;
	*entry = (struct kvi_index_entry){ .type = kvi_get8(&r->in) };
	uint64_t step = kvi_get_varint(&r->in, KVI_NUMBER_MAX / KVI_FRAME_ALIGN);
	uint64_t count = kvi_get_varint(&r->in, KVI_NUMBER_MAX);
	uint64_t size = kvi_get_varint(&r->in, kvi_frame_bytes(KVI_FRAME_MAX) / KVI_FRAME_ALIGN);
	entry->offset = r->d.end + step * KVI_FRAME_ALIGN;
	entry->sequence = r->d.sequence + count;
	entry->bytes = (uint32_t)(size * KVI_FRAME_ALIGN);
	/* Ascending, never the frames that are not listed. */
	if (entry->bytes < kvi_frame_bytes(0) || entry->offset < KVI_SUPERBLOCK_BYTES ||
	    (count == 0 && !first) || entry->offset > KVI_NUMBER_MAX - entry->bytes ||
	    entry->sequence > KVI_NUMBER_MAX || entry->type == KVI_FRAME_INDEX ||
	    entry->type == KVI_FRAME_FOOTER || (r->chunks && entry->type != KVI_FRAME_CHUNK))
		r->in.bad = true;
	get_fields(&r->in, entry);
	if (r->in.bad)
		return false;
	r->d.end = entry->offset + entry->bytes;
	r->d.sequence = entry->sequence;
	r->left--;
	return true;
}

bool kvi_index_end(const struct kvi_index_reader *r)
{
	struct kvi_in extensions = r->in;
	return r->left == 0 && kvi_get_extensions(&extensions);
}

/* ==== Entries that no INDEX has yet ==== */

void kvi_pending_init(struct kvi_pending_entries *to, const struct kvi_alloc *alloc)
{
	*to = (struct kvi_pending_entries){ .n = 0 };
	kvi_out_init(&to->entries, alloc);
}

bool kvi_pending_add(struct kvi_pending_entries *to, const struct kvi_index_entry *entry)
{
	kvi_index_put(&to->entries, &to->delta, entry);
	to->n++;
	to->chunks += entry->type == KVI_FRAME_CHUNK;
	return !to->entries.failed;
}

bool kvi_pending_copy(struct kvi_pending_entries *to, const struct kvi_pending_entries *from)
{
	const struct kvi_out entries = to->entries;
	*to = *from;
	to->entries = entries;
	to->entries.n = 0;
	kvi_put_bytes(&to->entries, from->entries.p, from->entries.n);
	return !to->entries.failed;
}

/* Moves the entries that a LIST may take to `list`; NULL: drops the restated ones. */
static bool divide(struct kvi_pending_entries *from, struct kvi_out *list)
{
	struct kvi_index_reader r = { .in = kvi_in_make(from->entries.p, from->entries.n),
		                      .left = from->n };
	struct kvi_index_delta delta = { 0, 0 };
	struct kvi_index_entry e;
	struct kvi_pending_entries rest;
	kvi_pending_init(&rest, from->entries.alloc);
	for (uint64_t i = 0; kvi_index_next(&r, &e); i++) {
		if (list && e.type == KVI_FRAME_CHUNK && i >= from->restated)
			kvi_index_put(list, &delta, &e);
		else if (list || i >= from->restated)
			kvi_pending_add(&rest, &e);
	}
	kvi_out_free(&from->entries);
	from->entries = rest.entries;
	from->delta = rest.delta;
	from->n = rest.n;
	return !rest.entries.failed;
}

bool kvi_pending_take_chunks(struct kvi_pending_entries *from, struct kvi_out *list)
{
	kvi_put_varint(list, from->chunks);
	from->chunks = 0;
	return divide(from, list) && !list->failed;
}

bool kvi_pending_drop_restated(struct kvi_pending_entries *entries)
{
	const bool good = divide(entries, NULL);
	entries->restated = 0;
	return good;
}

void kvi_pending_clear(struct kvi_pending_entries *entries)
{
	const struct kvi_out out = entries->entries;
	*entries = (struct kvi_pending_entries){ .entries = out };
	entries->entries.n = 0;
}
