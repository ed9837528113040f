/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_index.c - the lists of frames: found by number or offset, what is left after rewinds */
#include "reader_index.h"
#include "reader_state.h"

/* The entry with this key, NULL: there is none. */
static void *find_entry(const struct kvi_list *list, size_t entry_bytes, size_t key, uint64_t value)
{
	size_t i = kvi_list_search(list, entry_bytes, key, value);
	uint8_t *entry = i < list->n ? (uint8_t *)list->p + i * entry_bytes : NULL;
	return entry && memcmp(entry + key, &value, sizeof value) == 0 ? entry : NULL;
}

#define FIND(type, list, member, value) \
	find_entry(list, sizeof(type), offsetof(type, member), value)

const struct kvi_reader_index *kvi_reader_index(const kvarc_reader *r)
{
	return &r->index;
}

struct kvi_params_ref *kvi_index_params(const struct kvi_reader_index *index, uint64_t sequence)
{
	return FIND(struct kvi_params_ref, &index->params, sequence, sequence);
}

struct kvi_segment_ref *kvi_index_segment(const struct kvi_reader_index *index, uint64_t sequence)
{
	return FIND(struct kvi_segment_ref, &index->segments, listed, sequence);
}

struct kvi_segment_ref *kvi_index_segment_of(const struct kvi_reader_index *index,
                                             const struct kvi_segment *segment)
{
	struct kvi_segment_ref *first = kvi_index_segment(index, segment->sequence);
	return first ? first + segment->part : NULL;
}

/* The chunk whose member at byte `key` is `value`; list_key: of a LIST, which is larger than those
 * of its chunks. */
static struct kvi_chunk_ref *find_chunk(const struct kvi_reader_index *index, size_t key,
                                        size_t list_key, uint64_t value)
{
	struct kvi_chunk_ref *c = find_entry(&index->chunks, sizeof *c, key, value);
	const size_t i = kvi_list_search(&index->lists, sizeof(struct kvi_chunk_list), list_key,
	                                 value);
	if (c || i == index->lists.n)
		return c;
	struct kvi_chunk_list *x = KVI_LIST(struct kvi_chunk_list, index->lists, i);
	struct kvi_list list = { .p = atomic_load_explicit(&x->chunks, memory_order_acquire) };
	list.n = (size_t)x->n; /* final with the chunks, not before */
	return list.p ? find_entry(&list, sizeof *c, key, value) : NULL;
}

struct kvi_chunk_ref *kvi_index_chunk(const struct kvi_reader_index *index, uint64_t sequence)
{
	return find_chunk(index, offsetof(struct kvi_chunk_ref, sequence),
	                  offsetof(struct kvi_chunk_list, sequence), sequence);
}

struct kvi_chunk_ref *kvi_index_chunk_at(const struct kvi_reader_index *index, uint64_t offset)
{
	return find_chunk(index, offsetof(struct kvi_chunk_ref, offset),
	                  offsetof(struct kvi_chunk_list, offset), offset);
}

/* Segment i of the list, counted from 1. */
static struct kvi_segment_ref *segment(const struct kvi_reader_index *index, uint64_t i)
{
	return KVI_LIST(struct kvi_segment_ref, index->segments, i - 1);
}

void kvi_index_link(struct kvi_reader_index *index)
{
	struct kvi_segment_ref *s = segment(index, index->segments.n);
	uint64_t p = index->last[s->track];
	while (p && segment(index, p)->t0 >= s->t0)
		p = segment(index, p)->parent;
	s->parent = p;
	s->left = s->most;
	index->last[s->track] = index->segments.n;
	index->tokens[s->track] = s->t0 + s->most;
}

uint32_t kvi_segment_named(const kvarc_reader *r, const struct kvi_segment_ref *ref)
{
	return ref->origin ? segment(&r->index, ref->origin)->track : ref->track;
}

/* Number of segments before token n of a track, in the last state of the list; *last: 1 + the index
 * of the last of them, 0: there is none. */
static size_t count_before(const struct kvi_reader_index *index, uint32_t track, uint64_t n,
                           uint64_t *last)
{
	size_t count = 0;
	uint64_t p = index->last[track];
	while (p && segment(index, p)->t0 >= n)
		p = segment(index, p)->parent;
	for (*last = p; p; p = segment(index, p)->parent)
		count++;
	return count;
}

/* Fills `count` entries at the end of the list, the last one first: segments before token n. */
static void fill_fork(struct kvi_reader_index *index, const struct kvi_fork *fork,
                      uint64_t sequence, size_t count, uint64_t last)
{
	uint64_t n = fork->n < index->tokens[fork->from] ? fork->n : index->tokens[fork->from];
	for (size_t i = count; i-- > 0; last = segment(index, last)->parent) {
		const struct kvi_segment_ref *of = segment(index, last);
		struct kvi_segment_ref *to = segment(index, index->segments.n - count + i + 1);
		*to = *of;
		to->listed = sequence;
		to->origin = of->origin ? of->origin : last;
		to->track = fork->track;
		to->part = (uint32_t)i;
		/* Lost segments leave gaps: n may lie behind this one. */
		to->most = n - of->t0 < of->most ? (uint32_t)(n - of->t0) : of->most;
		to->before.known = false;
		n = of->t0;
	}
}

kvarc_ret kvi_index_fork(kvarc_reader *r, const struct kvi_fork *fork, uint64_t sequence,
                         bool lenient)
{
	struct kvi_reader_index *x = &r->index;
	uint64_t last;
	if (!kvi_fork_fits(&r->geometry, &r->order, fork->track, fork->from) ||
	    (!lenient && fork->n > x->tokens[fork->from]))
		return KVARC_DATA;
	const size_t count = count_before(x, fork->from, fork->n, &last);
	const size_t first = x->segments.n;
	for (size_t i = 0; i < count; i++)
		if (!kvi_list_add(&x->segments, &r->alloc, sizeof(struct kvi_segment_ref))) {
			x->segments.n = first;
			return kvi_fail_alloc(r->error, &r->alloc);
		}
	fill_fork(x, fork, sequence, count, last);
	/* As kvi_index_link, of all of them. */
	for (size_t i = 0; i < count; i++) {
		struct kvi_segment_ref *s = segment(x, first + i + 1);
		s->parent = i ? first + i : 0;
		s->left = s->most;
		x->last[fork->track] = first + i + 1;
		x->tokens[fork->track] = s->t0 + s->most;
	}
	return KVARC_OK;
}

void kvi_index_finish(struct kvi_reader_index *index, size_t n_tracks)
{
	memset(index->last, 0, n_tracks * sizeof *index->last);
	memset(index->tokens, 0, n_tracks * sizeof *index->tokens);
	index->forked = 0;
	for (uint64_t i = 1; i <= index->segments.n; i++) {
		struct kvi_segment_ref *s = segment(index, i);
		s->left = 0;
		index->forked += s->origin != 0;
		index->last[s->track] = i;
		index->tokens[s->track] = s->t0 + s->most;
	}
	for (size_t track = 0; track < n_tracks; track++) {
		uint64_t end = index->tokens[track];
		for (uint64_t p = index->last[track]; p; p = segment(index, p)->parent) {
			struct kvi_segment_ref *s = segment(index, p);
			s->left = end - s->t0 < s->most ? (uint32_t)(end - s->t0) : s->most;
			end = s->t0;
		}
	}
}

void kvi_index_take_all(struct kvi_reader_index *index)
{
	for (uint64_t i = 1; i <= index->segments.n; i++)
		if (segment(index, i)->left || !segment(index, i)->stored)
			segment(index, i)->left = segment(index, i)->most;
}

kvarc_ret kvi_index_checkpoint(kvarc_reader *r, const struct kvi_index_entry *entry)
{
	struct kvi_checkpoint_ref *c = kvi_list_add(&r->index.checkpoints, &r->alloc, sizeof *c);
	if (!c)
		return kvi_fail_alloc(r->error, &r->alloc);
	*c = (struct kvi_checkpoint_ref){ entry->offset, entry->sequence, entry->number };
	r->meta.set_closed = true;
	return KVARC_OK;
}

bool kvi_index_is_there(const kvarc_reader *r)
{
	const struct kvi_list *l = &r->index.checkpoints;
	return r->options.checkpoint && l->n &&
	       KVI_LIST(struct kvi_checkpoint_ref, *l, l->n - 1)->number == r->options.checkpoint;
}

kvarc_ret kvi_reader_no_checkpoint(const kvarc_reader *r, kvarc_error *error)
{
	return kvi_fail(error, KVARC_OPTIONS, "there is no checkpoint %llu in the archive",
	                (unsigned long long)r->options.checkpoint);
}

uint64_t kvi_segment_chunks_end(const kvarc_reader *r, const struct kvi_segment_ref *segment)
{
	return segment->stored ? segment->first + r->order.first[segment->track + 1] -
	                                 r->order.first[segment->track]
	                       : segment->end;
}

/* The tensor of a track that pairs with one of another track. */
static uint32_t paired(const struct kvi_order *order, uint32_t tensor, uint32_t from, uint32_t to)
{
	return order->tensors[order->first[to] + (order->place[tensor] - order->first[from])];
}

struct kvi_chunk_ref kvi_segment_chunk(const kvarc_reader *r, const struct kvi_segment_ref *segment,
                                       uint64_t i)
{
	const uint32_t named = kvi_segment_named(r, segment);
	struct kvi_chunk_ref c;
	if (segment->stored) {
		const uint32_t tensor =
			r->order.tensors[r->order.first[segment->track] + (i - segment->first)];
		c = (struct kvi_chunk_ref){ .offset = segment->offset,
			                    .sequence = segment->sequence,
			                    .tensor = tensor,
			                    .heads = (uint16_t)r->geometry.tensors[tensor].heads };
	} else {
		c = kvi_segment_chunks(&r->index, segment)[i];
		if (segment->origin)
			c.tensor = paired(&r->order, c.tensor, named, segment->track);
	}
	c.named = segment->origin ? (uint16_t)(named + 1) : 0;
	return c;
}

uint32_t kvi_chunk_named(const kvarc_reader *r, const struct kvi_chunk_ref *chunk)
{
	return chunk->named ? paired(&r->order, chunk->tensor,
	                             r->geometry.tensors[chunk->tensor].track, chunk->named - 1u)
	                    : chunk->tensor;
}
