/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_index.c - the lists of frames: found by number or offset, what is left after rewinds */
#include "reader_index.h"
#include "reader_state.h"

/* The entry with this key, NULL: there is none. */
static void *find_entry(const struct kvi_list *l, size_t entry_bytes, size_t key, uint64_t value)
{
	size_t i = kvi_list_search(l, entry_bytes, key, value);
	uint8_t *entry = i < l->n ? (uint8_t *)l->p + i * entry_bytes : NULL;
	return entry && memcmp(entry + key, &value, sizeof value) == 0 ? entry : NULL;
}

#define FIND(type, list, member, value) \
	find_entry(list, sizeof(type), offsetof(type, member), value)

struct kvi_params_ref *kvi_index_params(const struct kvi_reader_index *x, uint64_t sequence)
{
	return FIND(struct kvi_params_ref, &x->params, sequence, sequence);
}

struct kvi_segment_ref *kvi_index_segment(const struct kvi_reader_index *x, uint64_t sequence)
{
	return FIND(struct kvi_segment_ref, &x->segments, sequence, sequence);
}

struct kvi_segment_ref *kvi_index_segment_of(const struct kvi_reader_index *x,
                                             const struct kvi_segment *s)
{
	struct kvi_segment_ref *first = kvi_index_segment(x, s->sequence);
	return first ? first + s->part : NULL;
}

struct kvi_chunk_ref *kvi_index_chunk(const struct kvi_reader_index *x, uint64_t sequence)
{
	return FIND(struct kvi_chunk_ref, &x->chunks, sequence, sequence);
}

struct kvi_chunk_ref *kvi_index_chunk_at(const struct kvi_reader_index *x, uint64_t offset)
{
	return FIND(struct kvi_chunk_ref, &x->chunks, offset, offset);
}

/* Segment i of the list, counted from 1. */
static struct kvi_segment_ref *segment(const struct kvi_reader_index *x, uint64_t i)
{
	return KVI_LIST(struct kvi_segment_ref, x->segments, i - 1);
}

void kvi_index_link(struct kvi_reader_index *x)
{
	struct kvi_segment_ref *s = segment(x, x->segments.n);
	uint64_t p = x->last[s->track];
	while (p && segment(x, p)->t0 >= s->t0)
		p = segment(x, p)->parent;
	s->parent = p;
	s->left = s->n;
	x->last[s->track] = x->segments.n;
	x->tokens[s->track] = s->t0 + s->n;
}

void kvi_index_settle(struct kvi_reader_index *x, size_t n_tracks)
{
	memset(x->last, 0, n_tracks * sizeof *x->last);
	memset(x->tokens, 0, n_tracks * sizeof *x->tokens);
	for (uint64_t i = 1; i <= x->segments.n; i++) {
		struct kvi_segment_ref *s = segment(x, i);
		s->left = 0;
		x->last[s->track] = i;
		x->tokens[s->track] = s->t0 + s->n;
	}
	for (size_t track = 0; track < n_tracks; track++) {
		uint64_t end = x->tokens[track];
		for (uint64_t p = x->last[track]; p; p = segment(x, p)->parent) {
			struct kvi_segment_ref *s = segment(x, p);
			s->left = end - s->t0 < s->n ? (uint32_t)(end - s->t0) : s->n;
			end = s->t0;
		}
	}
}

void kvi_index_take_all(struct kvi_reader_index *x)
{
	for (uint64_t i = 1; i <= x->segments.n; i++)
		if (segment(x, i)->left || !segment(x, i)->stored)
			segment(x, i)->left = segment(x, i)->n;
}

const struct kvi_segment_ref *kvi_index_before(const struct kvi_reader_index *x,
                                               const struct kvi_segment_ref *s)
{
	return s->parent ? segment(x, s->parent) : NULL;
}

kvarc_ret kvi_index_checkpoint(kvarc_reader *r, const struct kvi_index_entry *e)
{
	struct kvi_checkpoint_ref *c = kvi_list_add(&r->index.checkpoints, &r->alloc, sizeof *c);
	if (!c)
		return kvi_fail_alloc(r->error, &r->alloc);
	*c = (struct kvi_checkpoint_ref){ e->offset, e->sequence, e->number };
	r->meta.set_closed = true;
	return KVARC_OK;
}

bool kvi_index_is_there(const kvarc_reader *r)
{
	const struct kvi_list *l = &r->index.checkpoints;
	return r->options.checkpoint && l->n &&
	       KVI_LIST(struct kvi_checkpoint_ref, *l, l->n - 1)->number == r->options.checkpoint;
}

kvarc_ret kvi_reader_no_checkpoint(const kvarc_reader *r, kvarc_error *e)
{
	return kvi_fail(e, KVARC_OPTIONS, "there is no checkpoint %llu in the archive",
	                (unsigned long long)r->options.checkpoint);
}

uint64_t kvi_segment_chunks_end(const kvarc_reader *r, const struct kvi_segment_ref *s)
{
	return s->stored ? s->first + r->order.first[s->track + 1] - r->order.first[s->track]
	                 : s->end;
}

struct kvi_chunk_ref kvi_segment_chunk(const kvarc_reader *r, const struct kvi_segment_ref *s,
                                       uint64_t i)
{
	if (!s->stored)
		return *KVI_LIST(struct kvi_chunk_ref, r->index.chunks, i);
	const uint32_t tensor = r->order.tensors[r->order.first[s->track] + (i - s->first)];
	return (struct kvi_chunk_ref){ .offset = s->offset,
		                       .sequence = s->sequence,
		                       .tensor = tensor,
		                       .heads = (uint16_t)r->geometry.tensors[tensor].heads };
}
