/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_meta.c - identity, items and their literal bytes (spec 5.1, 10) */
#include "reader_frames.h"
#include "reader_meta.h"
#include "reader_state.h"

void kvi_reader_begin_set(kvarc_reader *r)
{
	if (r->meta.set_closed)
		r->meta.first_item = r->meta.items.n;
	r->meta.set_closed = false;
}

/* Checks that references name literal bytes of items before this one (spec R10.11). */
static kvarc_ret check_references(const kvarc_reader *r, const struct kvi_frame *frame,
                                  const struct kvi_restore *restore, kvarc_error *error)
{
	for (size_t i = 0; i < restore->n_pieces; i++) {
		const struct kvi_piece *p = &restore->pieces[i];
		if (p->type != KVI_PIECE_REFERENCE)
			continue;
		if (!kvi_input_seekable(&r->in))
			return kvi_reason(
				error, KVARC_REASON_NEEDS_SEEK,
				kvi_fail_at(error, KVARC_OPTIONS, frame->offset,
			                    frame->head.sequence,
			                    "frame %llu repeats bytes of another file: the archive "
			                    "needs a source that can seek",
			                    (unsigned long long)frame->head.sequence));
		const struct kvi_item *item = p->item < r->meta.items.n
		                                      ? KVI_LIST(struct kvi_item, r->meta.items,
		                                                 p->item)
		                                      : NULL;
		bool lost = item && r->salvage && item->restore.kind == KVI_ITEM_LOST;
		if (!item || (!lost && (p->from > item->literal_bytes ||
		                        p->bytes > item->literal_bytes - p->from)))
			return kvi_reader_not_valid(frame, error);
	}
	return KVARC_OK;
}

static kvarc_ret add_item(kvarc_reader *r, const struct kvi_frame *frame, const uint8_t *content,
                          size_t bytes, kvarc_error *error)
{
	struct kvi_restore restore;
	size_t n = r->meta.items.n;
	/* Passed again: open has read it before. */
	if (n && KVI_LIST(struct kvi_item, r->meta.items, n - 1)->sequence >= frame->head.sequence)
		return KVARC_OK;
	kvi_reader_begin_set(r);
	n = r->meta.items.n;
	kvarc_ret ret = kvi_restore_parse(&restore, &r->alloc, &r->geometry, content, bytes);
	if (ret == KVARC_DATA)
		return kvi_reader_not_valid(frame, error);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, ret, frame->offset, frame->head.sequence,
		                    "frame %llu at offset %llu has an item of a kind that needs a "
		                    "newer version of kvarc",
		                    (unsigned long long)frame->head.sequence,
		                    (unsigned long long)frame->offset));
	if (ret)
		return kvi_fail_alloc(error, &r->alloc);
	ret = check_references(r, frame, &restore, error);
	if (ret) {
		kvi_restore_free(&restore, &r->alloc);
		return ret;
	}
	struct kvi_item *item = kvi_list_add(&r->meta.items, &r->alloc, sizeof *item);
	if (!item) {
		kvi_restore_free(&restore, &r->alloc);
		return kvi_fail_alloc(error, &r->alloc);
	}
	item->restore = restore;
	item->sequence = frame->head.sequence;
	item->literal_bytes = kvi_restore_literal_bytes(&restore);
	return KVARC_OK;
}

kvarc_ret kvi_reader_meta(kvarc_reader *r, const struct kvi_frame *frame, const uint8_t *content,
                          size_t bytes, kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	switch (frame->head.type) {
	case KVI_FRAME_IDENTITY:
		ret = kvi_identity_parse(&r->meta.identity, &r->alloc, content, bytes);
		break;
	case KVI_FRAME_PREDICTOR:
		return kvi_reader_add_predictor(r, frame, content, bytes, error);
	case KVI_FRAME_PROFILE:
		return kvi_input_seekable(&r->in)
		               ? kvi_reader_add_part(r, frame->offset, frame->head.sequence,
		                                     (uint32_t)frame->bytes, error)
		               : kvi_reader_keep_part(r, content, bytes);
	case KVI_FRAME_RESTORE:
		return add_item(r, frame, content, bytes, error);
	default:
		return KVARC_OK;
	}
	if (ret == KVARC_DATA)
		return kvi_reader_not_valid(frame, error);
	return ret ? kvi_fail_alloc(error, &r->alloc) : KVARC_OK;
}

kvarc_ret kvi_reader_blob(kvarc_reader *r, const struct kvi_frame *frame, const uint8_t *content,
                          size_t bytes, bool deliver, kvarc_error *error)
{
	struct kvi_blob b;
	if (!kvi_blob_parse(&b, content, bytes) || b.item >= r->meta.items.n)
		return kvi_reader_not_valid(frame, error);
	struct kvi_item *item = KVI_LIST(struct kvi_item, r->meta.items, b.item);
	if (b.offset > item->literal_bytes || b.bytes > item->literal_bytes - b.offset ||
	    (b.offset != item->next && !r->salvage))
		return kvi_reader_not_valid(frame, error);
	item->next = b.offset + b.bytes;
	item->received += b.bytes;
	if (deliver && r->meta.blob &&
	    r->meta.blob(r->meta.blob_opaque, b.item, b.offset, b.data, b.bytes))
		return kvi_fail_at(error, KVARC_IO, frame->offset, frame->head.sequence,
		                   "taking %zu bytes of item %llu failed", b.bytes,
		                   (unsigned long long)b.item);
	return KVARC_OK;
}

/* Whether all tokens of an item's areas are there; tokens: by track. */
static bool areas_fit(const struct kvi_restore *restore, const uint64_t *tokens)
{
	for (size_t i = 0; i < restore->n_pieces; i++) {
		const struct kvi_piece *p = &restore->pieces[i];
		if (p->type == KVI_PIECE_AREA &&
		    (p->t0 > tokens[p->track] || p->n_tokens > tokens[p->track] - p->t0))
			return false;
	}
	return true;
}

/* Items i .. end - 1 in a state with these tokens. */
static kvarc_ret check_items(kvarc_reader *r, size_t i, size_t end, const uint64_t *tokens,
                             kvarc_error *error)
{
	for (; i < end; i++) {
		struct kvi_item *item = KVI_LIST(struct kvi_item, r->meta.items, i);
		if (!areas_fit(&item->restore, tokens))
			return kvi_fail_at(error, KVARC_DATA, KVARC_UNKNOWN, item->sequence,
			                   "tokens of item %zu are missing", i);
		if (item->next != item->literal_bytes)
			return kvi_fail_at(error, KVARC_DATA, KVARC_UNKNOWN, item->sequence,
			                   "BLOB frames of item %zu are missing", i);
	}
	return KVARC_OK;
}

/* The first item from the current set on whose sequence number is not below `sequence`. */
static size_t items_before(const kvarc_reader *r, uint64_t sequence)
{
	size_t i = r->meta.passed_first;
	while (i < r->meta.items.n &&
	       KVI_LIST(struct kvi_item, r->meta.items, i)->sequence < sequence)
		i++;
	return i;
}

kvarc_ret kvi_reader_pass_items(kvarc_reader *r, kvarc_error *error)
{
	const struct kvi_walk_frame *w = &r->seq.walk.current;
	const uint64_t sequence = w->frame.head.sequence;
	const uint16_t type = w->frame.head.type;
	struct kvi_reader_meta *m = &r->meta;
	const bool begins = type == KVI_FRAME_SEGMENT || type == KVI_FRAME_RESTORE ||
	                    type == KVI_FRAME_STOREREF || type == KVI_FRAME_FORK;
	if (begins && m->passed_closed) {
		size_t end = items_before(r, sequence);
		if (end > m->passed_first && !kvi_input_seekable(&r->in))
			return kvi_reason(
				error, KVARC_REASON_NEEDS_SEEK,
				kvi_fail_at(error, KVARC_OPTIONS, w->frame.offset, sequence,
			                    "tokens follow the checkpoint of packed files: the "
			                    "archive needs a source that can seek"));
		m->passed_first = end;
		m->passed_closed = false;
	}
	if (type != KVI_FRAME_COMMIT || w->entry.number == 0 || m->passed_closed)
		return KVARC_OK;
	m->passed_closed = true;
	return check_items(r, m->passed_first, items_before(r, sequence), r->seq.walk.commit.tokens,
	                   error);
}

kvarc_ret kvi_reader_blobs_end(kvarc_reader *r, kvarc_error *error)
{
	return check_items(r, r->meta.first_item, r->meta.items.n, r->index.tokens, error);
}

void kvi_reader_set_blob_handler(kvarc_reader *r, kvi_blob_fn fn, void *opaque)
{
	r->meta.blob = fn;
	r->meta.blob_opaque = opaque;
}

size_t kvi_reader_n_items(const kvarc_reader *r)
{
	return r->meta.items.n - r->meta.first_item;
}

bool kvi_reader_at_checkpoint(const kvarc_reader *r)
{
	return r->meta.set_closed;
}

size_t kvi_reader_earlier_items(const kvarc_reader *r)
{
	return r->meta.first_item;
}

const struct kvi_restore *kvi_reader_restore(const kvarc_reader *r, size_t i)
{
	return &KVI_LIST(struct kvi_item, r->meta.items, r->meta.first_item + i)->restore;
}

const char *kvarc_reader_identity(const kvarc_reader *r, const char *key)
{
	return r && key ? kvi_identity_get(&r->meta.identity, key) : NULL;
}

kvarc_ret kvarc_reader_identity_at(const kvarc_reader *r, size_t i, const char **key,
                                   const char **value)
{
	if (!r || !key || !value)
		return KVARC_PROG;
	if (i >= r->meta.identity.n)
		return KVARC_END;
	*key = r->meta.identity.pairs[i].key;
	*value = r->meta.identity.pairs[i].value;
	return KVARC_OK;
}
