/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_lists.c - chunks that LIST frames name, read when a segment of theirs is first needed */
#include "config.h"

#include "reader_lists.h"

#include <pthread.h>

#include "reader_frames.h"
#include "reader_state.h"

/* Follows the chunks of the segments of a LIST. */
struct list_walk {
	kvarc_reader *r;
	const struct kvi_chunk_list *list;
	struct kvi_list chunks; /* struct kvi_chunk_ref */
	size_t segment;         /* index of the segment of the last chunk */
	struct kvi_order_walk order;
};

static struct kvi_segment_ref *segment_at(const kvarc_reader *r, size_t i)
{
	return KVI_LIST(struct kvi_segment_ref, r->index.segments, i);
}

/* A segment, or of one that a FORK took the segment itself. */
static const struct kvi_segment_ref *segment_itself(const kvarc_reader *r,
                                                    const struct kvi_segment_ref *segment)
{
	return segment->origin ? segment_at(r, (size_t)segment->origin - 1) : segment;
}

/* Whether a segment has chunks in the file. */
static bool has_chunks(const kvarc_reader *r, const struct kvi_segment_ref *segment)
{
	return !segment->stored && !segment->origin &&
	       r->order.first[segment->track] < r->order.first[segment->track + 1];
}

/* Moves to the segment with a sequence number, past those without tensors. False: it is not the
 * next one. */
static bool move_to(struct list_walk *w, uint64_t sequence)
{
	const size_t end = w->list->end_segment;
	if (w->segment < end && segment_at(w->r, w->segment)->sequence == sequence)
		return true;
	if (w->segment < end && !kvi_order_done(&w->order))
		return false;
	size_t i = w->segment < end ? w->segment + 1 : w->list->first_segment;
	while (i < end && !has_chunks(w->r, segment_at(w->r, i)))
		i++;
	if (i == end || segment_at(w->r, i)->sequence != sequence)
		return false;
	w->segment = i;
	kvi_order_begin(&w->order, &w->r->order, segment_at(w->r, i)->track);
	return true;
}

/* Adds a chunk. Returns OK, MEM, DATA (it is not the next one). */
static kvarc_ret take(struct list_walk *w, const struct kvi_chunk_ref *chunk, uint64_t segment)
{
	if (!move_to(w, segment) || !kvi_order_next(&w->order, &w->r->order, &w->r->geometry,
	                                            chunk->tensor, chunk->head, chunk->heads))
		return KVARC_DATA;
	struct kvi_chunk_ref *c = kvi_list_add(&w->chunks, &w->r->alloc, sizeof *c);
	if (!c)
		return kvi_fail_alloc(NULL, &w->r->alloc);
	*c = *chunk;
	return KVARC_OK;
}

static void start(struct list_walk *w)
{
	w->chunks.n = 0;
	w->segment = w->list->end_segment;
}

/* Whether all segments have all of their chunks. */
static bool is_whole(const struct list_walk *w)
{
	size_t i = w->segment + 1;
	if (!w->chunks.n || !kvi_order_done(&w->order))
		return false;
	while (i < w->list->end_segment && !has_chunks(w->r, segment_at(w->r, i)))
		i++;
	return i == w->list->end_segment;
}

/* Takes the entries of the LIST frame, up to the last one of its segments. DATA: they are not what
 * they should be. */
static kvarc_ret from_frame(struct list_walk *w, kvarc_error *error)
{
	kvarc_reader *r = w->r;
	const struct kvi_chunk_list *l = w->list;
	size_t last = l->end_segment - 1;
	struct kvi_index_reader ir;
	struct kvi_index_entry e;
	struct kvi_loaded x = { 0 };
	struct kvi_packer packer;
	kvi_packer_init(&packer, &r->alloc);
	kvarc_ret ret = kvi_reader_load_frame(r, &packer, l->offset, KVI_FRAME_LIST, l->sequence,
	                                      &x, error);
	if (!ret)
		ret = kvi_frame_spend_entries(&x.frame, segment_at(r, l->first_segment)->offset,
		                              &r->meta.decode_left, error);
	if (!ret && !kvi_list_begin(&ir, x.content, x.frame.head.decoded_bytes))
		ret = KVARC_DATA;
	while (last > l->first_segment && !has_chunks(r, segment_at(r, last)))
		last--;
	start(w);
	while (!ret && kvi_index_next(&ir, &e) && e.segment <= segment_at(r, last)->sequence) {
		const struct kvi_predictor_ref *p = kvi_reader_predictor_before(&r->predictors,
		                                                                e.segment);
		const struct kvi_chunk_ref c = { .offset = e.offset,
			                         .sequence = e.sequence,
			                         .params = e.params,
			                         .tensor = e.tensor,
			                         .head = e.head,
			                         .heads = e.heads,
			                         .bytes = e.bytes,
			                         .linear = p && p->sequence == e.params };
		ret = take(w, &c, e.segment);
	}
	kvi_loaded_free(&x, &r->alloc);
	kvi_packer_free(&packer);
	return !ret && !is_whole(w) ? KVARC_DATA : ret;
}

/* Takes the chunks of a segment from the headers of their frames. */
static kvarc_ret from_headers(struct list_walk *w, const struct kvi_segment_ref *segment,
                              kvarc_error *error)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES];
	struct kvi_chunk_header h;
	struct kvi_frame f;
	uint64_t at = segment->offset + segment->bytes;
	do {
		kvarc_ret ret = kvi_frame_peek(&w->r->in, at, head, KVI_CHUNK_HEADER_BYTES, &f,
		                               error);
		if (ret || f.head.type == KVI_FRAME_COMMIT)
			return ret && ret != KVARC_END ? ret : KVARC_DATA;
		at += f.bytes;
		if (f.head.type != KVI_FRAME_CHUNK)
			continue;
		if (!kvi_chunk_header_parse(&h, f.payload, f.head.payload_bytes) ||
		    h.segment != segment->sequence)
			return KVARC_DATA;
		const struct kvi_chunk_ref c = kvi_chunk_ref(&f, &h);
		ret = take(w, &c, h.segment);
		if (ret)
			return ret;
	} while (w->segment == w->list->end_segment || segment_at(w->r, w->segment) != segment ||
	         !kvi_order_done(&w->order));
	return KVARC_OK;
}

static kvarc_ret from_chunks(struct list_walk *w, kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	start(w);
	for (size_t i = w->list->first_segment; i < w->list->end_segment && !ret; i++)
		if (has_chunks(w->r, segment_at(w->r, i)))
			ret = from_headers(w, segment_at(w->r, i), error);
	return !ret && !is_whole(w) ? KVARC_DATA : ret;
}

/* Gives the segments their chunks, and the chunks to all threads. */
static void publish(const struct list_walk *w, struct kvi_chunk_list *list)
{
	const struct kvi_chunk_ref *c = w->chunks.p;
	uint64_t at = 0;
	for (size_t i = list->first_segment; i < list->end_segment; i++) {
		struct kvi_segment_ref *s = segment_at(w->r, i);
		struct kvi_order_walk order;
		if (!has_chunks(w->r, s))
			continue;
		s->first = at;
		kvi_order_begin(&order, &w->r->order, s->track);
		for (; !kvi_order_done(&order); at++)
			kvi_order_next(&order, &w->r->order, &w->r->geometry, c[at].tensor,
			               c[at].head, c[at].heads);
		s->end = at;
	}
	list->n = w->chunks.n;
	atomic_store_explicit(&list->chunks, w->chunks.p, memory_order_release);
}

static bool is_read(const struct kvi_chunk_list *list)
{
	return atomic_load_explicit(&list->chunks, memory_order_acquire) != NULL;
}

static kvarc_ret read_list(kvarc_reader *r, struct kvi_chunk_list *list, kvarc_error *error)
{
	struct list_walk w = { .r = r, .list = list };
	kvarc_error why = { .code = KVARC_OK };
	if (is_read(list))
		return KVARC_OK; /* by another thread */
	kvarc_ret ret = from_frame(&w, &why);
	if (ret == KVARC_DATA)
		ret = from_chunks(&w, &why);
	if (!ret) {
		publish(&w, list);
		return KVARC_OK;
	}
	kvi_free(&r->alloc, w.chunks.p);
	if ((ret == KVARC_MEM || ret == KVARC_MEMLIMIT) && why.code != ret)
		return kvi_fail_alloc(error, &r->alloc);
	if (ret != KVARC_DATA) {
		if (error)
			*error = why;
		return ret;
	}
	return kvi_reason(error, KVARC_REASON_SALVAGE,
	                  kvi_fail_at(error, ret, list->offset, list->sequence,
	                              "LIST frame %llu at offset %llu does not have the chunks of "
	                              "its segments; salvage may give them",
	                              (unsigned long long)list->sequence,
	                              (unsigned long long)list->offset));
}

/* Reads a LIST unless that was done. Any thread. */
static kvarc_ret need_list(kvarc_reader *r, struct kvi_chunk_list *list, kvarc_error *error)
{
	if (is_read(list))
		return KVARC_OK;
	pthread_mutex_lock(&r->predictors.lock);
	kvarc_ret ret = read_list(r, list, error);
	pthread_mutex_unlock(&r->predictors.lock);
	return ret;
}

/* Where the chunks of a segment that a FORK took are, once that is known of the segment itself. */
static void follow(const kvarc_reader *r, struct kvi_segment_ref *segment)
{
	const struct kvi_segment_ref *of = segment_at(r, (size_t)segment->origin - 1);
	segment->first = of->first;
	segment->end = of->end;
	segment->list = of->list;
}

kvarc_ret kvi_reader_list_segment(kvarc_reader *r, const struct kvi_segment_ref *segment,
                                  kvarc_error *error)
{
	const struct kvi_segment_ref *of = segment_itself(r, segment);
	const uint64_t list = of->list;
	kvarc_ret ret = list ? need_list(r,
	                                 KVI_LIST(struct kvi_chunk_list, r->index.lists, list - 1),
	                                 error)
	                     : KVARC_OK;
	if (!ret && of != segment)
		follow(r, segment_at(r, (size_t)(segment - segment_at(r, 0))));
	return ret;
}

/* Reads LIST frames of the index in one request, as far as memory allows, and takes their entries.
 * wanted: by LIST; NULL: all. */
static kvarc_ret need_lists(kvarc_reader *r, const bool *wanted)
{
	struct kvi_chunk_list *l = r->index.lists.p;
	struct kvi_list ranges = { 0 };
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < r->index.lists.n && !ret; i++) {
		if ((wanted && !wanted[i]) || is_read(&l[i]) || !r->in.ahead)
			continue;
		kvarc_byte_range *x = kvi_list_add(&ranges, &r->alloc, sizeof *x);
		if (x)
			*x = (kvarc_byte_range){ .offset = l[i].offset, .bytes = l[i].bytes };
		else
			ret = kvi_fail_alloc(r->error, &r->alloc);
	}
	if (!ret)
		ret = kvi_ahead_read(&r->ahead, &r->in.source, &ranges, KVI_AHEAD_OPENING,
		                     r->error);
	for (size_t i = 0; i < r->index.lists.n && !ret; i++)
		if (!wanted || wanted[i])
			ret = need_list(r, &l[i], r->error);
	kvi_ahead_drop(&r->ahead, KVI_AHEAD_OPENING);
	kvi_free(&r->alloc, ranges.p);
	return ret;
}

kvarc_ret kvi_reader_list_range(kvarc_reader *r, uint32_t track, uint64_t t0, uint64_t end)
{
	if (!r->index.lists.n)
		return KVARC_OK;
	bool *wanted = kvi_calloc(&r->alloc, r->index.lists.n, sizeof *wanted);
	if (!wanted)
		return kvi_fail_alloc(r->error, &r->alloc);
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const uint64_t list = segment_itself(r, segment_at(r, i))->list;
		if (list && kvi_segment_has(segment_at(r, i), track, t0, end))
			wanted[list - 1] = true;
	}
	kvarc_ret ret = need_lists(r, wanted);
	for (size_t i = 0; i < r->index.segments.n && !ret; i++)
		if (segment_at(r, i)->origin && kvi_segment_has(segment_at(r, i), track, t0, end))
			follow(r, segment_at(r, i));
	kvi_free(&r->alloc, wanted);
	return ret;
}

/* Puts the chunks of all segments into one array. */
static kvarc_ret join(kvarc_reader *r)
{
	struct kvi_list all = { 0 };
	size_t n = r->index.chunks.n;
	for (size_t i = 0; i < r->index.lists.n; i++)
		n += (size_t)KVI_LIST(struct kvi_chunk_list, r->index.lists, i)->n;
	if (!kvi_array_reserve(&r->alloc, &all.p, &all.cap, 0, n, sizeof(struct kvi_chunk_ref)))
		return kvi_fail_alloc(r->error, &r->alloc);
	for (size_t i = 0; i < r->index.segments.n; i++) {
		struct kvi_segment_ref *s = segment_at(r, i);
		const struct kvi_chunk_ref *from = kvi_segment_chunks(&r->index, s);
		const size_t count = (size_t)(s->end - s->first);
		if (s->origin) {
			follow(r, s); /* its origin stands before it */
			continue;
		}
		if (count)
			memcpy(KVI_LIST(struct kvi_chunk_ref, all, all.n), from + s->first,
			       count * sizeof *from);
		s->first = all.n;
		s->end = all.n += count;
		s->list = 0;
	}
	kvi_free(&r->alloc, r->index.chunks.p);
	r->index.chunks = all;
	kvi_reader_free_lists(r);
	return KVARC_OK;
}

kvarc_ret kvi_reader_list_all(kvarc_reader *r)
{
	if (!r->index.lists.n)
		return KVARC_OK;
	kvarc_ret ret = kvi_reader_drain(r, KVARC_OK);
	if (r->workers.repeated) /* counts chunks as they were */
		r->workers.repeated->segment = KVARC_UNKNOWN;
	if (!ret)
		ret = need_lists(r, NULL);
	return ret ? ret : join(r);
}

void kvi_reader_free_lists(kvarc_reader *r)
{
	for (size_t i = 0; i < r->index.lists.n; i++)
		kvi_free(&r->alloc, KVI_LIST(struct kvi_chunk_list, r->index.lists, i)->chunks);
	kvi_free(&r->alloc, r->index.lists.p);
	r->index.lists = (struct kvi_list){ 0 };
}

bool kvi_reader_all_listed(const kvarc_reader *r, size_t segment)
{
	for (size_t i = r->index.unlisted; i < segment; i++)
		if (has_chunks(r, segment_at(r, i)))
			return false;
	return true;
}

kvarc_ret kvi_reader_add_list(kvarc_reader *r, const struct kvi_index_entry *entry, bool beyond)
{
	struct kvi_reader_index *x = &r->index;
	if (kvi_reader_all_listed(r, x->segments.n))
		return KVARC_DATA;
	struct kvi_chunk_list *l = kvi_list_add(&x->lists, &r->alloc, sizeof *l);
	if (!l)
		return kvi_fail_alloc(r->error, &r->alloc);
	*l = (struct kvi_chunk_list){ .offset = entry->offset,
		                      .sequence = entry->sequence,
		                      .bytes = entry->bytes,
		                      .n = entry->n,
		                      .first_segment = x->unlisted,
		                      .end_segment = x->segments.n };
	for (; x->unlisted < x->segments.n; x->unlisted++)
		segment_at(r, x->unlisted)->list = segment_at(r, x->unlisted)->origin ? 0
		                                                                      : x->lists.n;
	return beyond ? read_list(r, l, r->error) : KVARC_OK;
}
