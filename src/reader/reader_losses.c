/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_losses.c - what a damaged archive has lost, place by place and in sum (spec 9.4) */
#include <stdlib.h>

#include "reader_losses.h"
#include "reader_state.h"
#include "util/ckd.h"

static uint64_t product(uint64_t a, uint64_t b)
{
	uint64_t p;
	return kvi_mul(a, b, &p) ? UINT64_MAX : p;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	uint64_t s;
	return kvi_add(a, b, &s) ? UINT64_MAX : s;
}

kvarc_ret kvi_salvage_lose(kvarc_reader *r, const kvarc_damage *place, uint64_t tokens,
                           uint64_t bytes)
{
	struct kvi_loss *to = kvi_list_add(&r->losses.list, &r->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(r->error, &r->alloc);
	*to = (struct kvi_loss){ *place, tokens, bytes };
	to->place.n = tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
	if (r->state == KVARC_STATE_CLOSED || r->state == KVARC_STATE_OPEN)
		r->state = KVARC_STATE_DAMAGED;
	return KVARC_OK;
}

/* Puts offset and size of the first region in [after, before) into a loss. */
static void explain(struct kvi_reader_losses *losses, uint64_t after, uint64_t before,
                    kvarc_damage *damage)
{
	size_t i = kvi_list_search(&losses->regions, sizeof(struct kvi_region),
	                           offsetof(struct kvi_region, offset), after);
	struct kvi_region *g = losses->regions.p;
	if (i == losses->regions.n || g[i].offset >= before)
		return;
	g[i].explained = true;
	damage->offset = g[i].offset;
	damage->bytes = g[i].bytes;
}

/* Goes through the segments in order. */
struct kvi_loss_finder {
	kvarc_reader *r;
	uint64_t *tokens; /* by track: tokens seen so far */
	uint64_t *bytes;  /* by track: bytes of a token in all its tensors */
};

static bool finder_open(struct kvi_loss_finder *finder, kvarc_reader *r)
{
	size_t n = r->geometry.n_tracks;
	*finder = (struct kvi_loss_finder){ .r = r };
	finder->tokens = kvi_calloc(&r->alloc, n, sizeof *finder->tokens);
	finder->bytes = kvi_calloc(&r->alloc, n, sizeof *finder->bytes);
	if (!finder->tokens || !finder->bytes)
		return false;
	for (size_t i = 0; i < r->geometry.n_tensors; i++) {
		const kvarc_tensor *t = &r->geometry.tensors[i];
		finder->bytes[t->track] += kvi_tensor_bytes(t);
	}
	return true;
}

static void finder_close(struct kvi_loss_finder *finder)
{
	kvi_free(&finder->r->alloc, finder->tokens);
	kvi_free(&finder->r->alloc, finder->bytes);
}

/* Bytes of a token in some heads of a tensor. */
static uint64_t head_bytes(const kvarc_tensor *tensor, uint32_t heads)
{
	return kvi_tensor_bytes(tensor) / tensor->heads * (uint64_t)heads;
}

/* Tokens [t0, end) of all tensors of a track, found missing between two offsets. */
static kvarc_ret lose_tokens(const struct kvi_loss_finder *finder, uint32_t track, uint64_t t0,
                             uint64_t end, uint64_t after, uint64_t before)
{
	kvarc_damage d = { .offset = KVARC_UNKNOWN,
		           .track = track,
		           .tensor = UINT32_MAX,
		           .t0 = t0,
		           .what = "chunks are damaged or missing" };
	explain(&finder->r->losses, after, before, &d);
	return kvi_salvage_lose(finder->r, &d, end - t0, product(end - t0, finder->bytes[track]));
}

static kvarc_ret lose_chunk(kvarc_reader *r, const struct kvi_segment_ref *segment, uint32_t tensor,
                            uint32_t heads, uint64_t after, uint64_t before)
{
	kvarc_damage d = { .offset = KVARC_UNKNOWN,
		           .track = segment->track,
		           .tensor = tensor,
		           .t0 = segment->t0,
		           .what = "chunks are damaged or missing" };
	explain(&r->losses, after, before, &d);
	return kvi_salvage_lose(r, &d, segment->left,
	                        segment->left * head_bytes(&r->geometry.tensors[tensor], heads));
}

/* Chunks that should be in a segment and are not; end is where it ends at the latest. */
static kvarc_ret lost_chunks(const struct kvi_loss_finder *finder,
                             const struct kvi_segment_ref *segment, uint64_t end)
{
	const struct kvi_order *order = &finder->r->order;
	const struct kvi_chunk_ref *c = finder->r->index.chunks.p;
	uint64_t i = segment->first, after = segment->offset;
	const uint32_t named = kvi_segment_named(finder->r, segment);
	const uint32_t shift = order->first[named] - order->first[segment->track];
	kvarc_ret ret = KVARC_OK;
	if (segment->first == segment->end &&
	    order->first[segment->track] < order->first[segment->track + 1])
		return lose_tokens(finder, segment->track, segment->t0, segment->t0 + segment->left,
		                   after, end);
	for (uint32_t k = order->first[segment->track];
	     k < order->first[segment->track + 1] && ret == KVARC_OK; k++) {
		uint32_t tensor = order->tensors[k + shift];
		uint32_t heads = finder->r->geometry.tensors[tensor].heads, got = 0;
		/* A REPEAT of heads cannot hide a hole: heads only add up to
		 * all of them when each is there once. */
		for (; i < segment->end && c[i].tensor == tensor && c[i].head == got; i++) {
			got += c[i].heads;
			after = c[i].offset;
		}
		if (got == heads)
			continue;
		uint64_t next = i < segment->end ? c[i].offset : end, from = after;
		for (; i < segment->end && c[i].tensor == tensor; i++) {
			got += c[i].heads;
			after = c[i].offset;
		}
		ret = lose_chunk(finder->r, segment, order->tensors[k],
		                 got < heads ? heads - got : 0, from, next);
	}
	return ret;
}

/* The offset of the first good frame of a segment, of the next one behind those of a FORK; 0: it
 * has none. UINT64_MAX: no such segment. */
static uint64_t begin_of(const struct kvi_reader_index *index, size_t segment)
{
	while (segment < index->segments.n &&
	       KVI_LIST(struct kvi_segment_ref, index->segments, segment)->origin)
		segment++;
	if (segment >= index->segments.n)
		return UINT64_MAX;
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, index->segments,
	                                           segment);
	if (s->offset || s->first == s->end)
		return s->offset;
	return KVI_LIST(struct kvi_chunk_ref, index->chunks, s->first)->offset;
}

/* Adds losses in front of a segment and in it; before: the offset of the segment before it. */
static kvarc_ret lost_around(struct kvi_loss_finder *finder, size_t segment, uint64_t before)
{
	kvarc_reader *r = finder->r;
	const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, r->index.segments,
	                                           segment);
	uint64_t begin = begin_of(&r->index, segment), *tokens = &finder->tokens[s->track];
	kvarc_damage ids = { .offset = KVARC_UNKNOWN,
		             .track = s->track,
		             .tensor = UINT32_MAX,
		             .t0 = s->t0,
		             .what = "token ids and positions are lost" };
	kvarc_ret ret = KVARC_OK;
	size_t at = s->origin ? (size_t)s->origin - 1 : segment; /* index of its frames */
	if (!s->left)
		return KVARC_OK; /* replaced (spec 6.2) */
	if (s->t0 > *tokens)
		ret = lose_tokens(finder, s->track, *tokens, s->t0, before, begin);
	*tokens = s->t0 + s->left;
	if (ret == KVARC_OK && !s->offset) {
		explain(&r->losses, before, begin, &ids);
		ret = kvi_salvage_lose(r, &ids, 0, 0);
	}
	return ret || s->stored ? ret : lost_chunks(finder, s, begin_of(&r->index, at + 1));
}

/* Tokens that the files in the archive are made of. */
static void expect_areas(kvarc_reader *r)
{
	for (size_t i = r->meta.first_item; i < r->meta.items.n; i++) {
		const struct kvi_restore *plan =
			&KVI_LIST(struct kvi_item, r->meta.items, i)->restore;
		for (size_t k = 0; k < plan->n_pieces; k++) {
			const struct kvi_piece *p = &plan->pieces[k];
			uint64_t end = sum(p->t0, p->n_tokens);
			if (p->type != KVI_PIECE_AREA)
				continue;
			r->losses.end_known = true;
			if (end > r->losses.expected[p->track])
				r->losses.expected[p->track] = end;
		}
	}
}

kvarc_ret kvi_salvage_losses(kvarc_reader *r)
{
	struct kvi_loss_finder f;
	uint64_t before = 0;
	kvarc_ret ret = finder_open(&f, r) ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
	if (ret == KVARC_OK)
		expect_areas(r);
	for (size_t i = 0; i < r->index.segments.n && ret == KVARC_OK; i++) {
		ret = lost_around(&f, i, before);
		if (!KVI_LIST(struct kvi_segment_ref, r->index.segments, i)->origin)
			before = begin_of(&r->index, i);
	}
	for (uint32_t i = 0; i < r->geometry.n_tracks && ret == KVARC_OK; i++) {
		if (r->losses.expected[i] > f.tokens[i])
			ret = lose_tokens(&f, i, f.tokens[i], r->losses.expected[i], before,
			                  UINT64_MAX);
		else
			r->losses.expected[i] = f.tokens[i];
	}
	finder_close(&f);
	return ret;
}

kvarc_ret kvi_salvage_literals(kvarc_reader *r)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < r->meta.items.n && ret == KVARC_OK; i++) {
		const struct kvi_item *item = KVI_LIST(struct kvi_item, r->meta.items, i);
		kvarc_damage d = { .offset = KVARC_UNKNOWN,
			           .track = UINT32_MAX,
			           .tensor = UINT32_MAX,
			           .what = "bytes of a file outside of its tensors are lost" };
		if (item->received < item->literal_bytes)
			ret = kvi_salvage_lose(r, &d, 0, item->literal_bytes - item->received);
	}
	return ret;
}

/* Whether the list has the chunk of a loss, as one of its track: a FORK has others lose it, too. */
static bool is_listed(const kvarc_reader *r, const kvarc_damage *damage)
{
	for (size_t i = 0; i < r->losses.list.n; i++) {
		const kvarc_damage *d = &KVI_LIST(struct kvi_loss, r->losses.list, i)->place;
		if (d->offset == damage->offset && d->tensor == damage->tensor)
			return true;
	}
	return false;
}

kvarc_ret kvi_salvage_chunk(kvarc_reader *r, const struct kvi_decode_task *task)
{
	const kvarc_tensor *t = &r->geometry.tensors[task->ref.tensor];
	struct kvi_chunk_ref *c = kvi_index_chunk_at(&r->index, task->ref.offset);
	kvarc_damage d = { .offset = task->ref.offset,
		           .track = t->track,
		           .tensor = task->ref.tensor,
		           .t0 = task->t0,
		           .what = "a chunk cannot be decoded: it, its parameters or its "
		                   "positions are lost" };
	if (task->ref.linear)
		d.what = task->segment && task->segment->predictor_ret
		                 ? "the profile that is needed is damaged in the archive "
		                   "(its file would do)"
		                 : "a chunk cannot be decoded: what it is predicted from, or "
		                   "its positions, are lost";
	if (!c || (task->ref.named ? is_listed(r, &d) : c->lost))
		return KVARC_OK; /* the list has the chunk from an earlier read */
	c->lost = c->lost || !task->ref.named;
	return kvi_salvage_lose(r, &d, task->n, task->n * head_bytes(t, task->ref.heads));
}

/* Tokens [t0, end) of a track of which something is lost. */
struct kvi_lost_span {
	uint64_t t0, end;
	uint32_t track;
};

static int by_token(const void *a, const void *b)
{
	const struct kvi_lost_span *x = a, *y = b;
	if (x->track != y->track)
		return x->track < y->track ? -1 : 1;
	return (x->t0 > y->t0) - (x->t0 < y->t0);
}

/* Adds the tokens of spans, each counted once, to the sums of their tracks. */
static void count_tokens(struct kvi_lost_span *span, size_t n, kvarc_loss *sums)
{
	uint64_t end = 0;
	if (n)
		qsort(span, n, sizeof *span, by_token);
	for (size_t i = 0; i < n; i++) {
		kvarc_loss *l = &sums[span[i].track];
		if (i == 0 || span[i].track != span[i - 1].track) {
			end = 0;
			l->whole_tokens = span[i].t0 < l->tokens ? span[i].t0 : l->tokens;
		}
		uint64_t t0 = span[i].t0 > end ? span[i].t0 : end;
		if (span[i].end <= t0)
			continue;
		l->lost_tokens += span[i].end - t0;
		end = span[i].end;
	}
}

/* Adds what is lost of a track to what is lost of all. */
static void add_track(kvarc_loss *all, const kvarc_loss *loss)
{
	if (loss->lost_tokens && (!all->lost_tokens || loss->whole_tokens < all->whole_tokens))
		all->whole_tokens = loss->whole_tokens;
	if (loss->lost_tokens > all->lost_tokens)
		all->lost_tokens = loss->lost_tokens;
	if (loss->tokens > all->tokens)
		all->tokens = loss->tokens;
	all->lost_bytes = sum(all->lost_bytes, loss->lost_bytes);
}

/* Sums up the losses. Capacity of spans: all losses; of sums: all tracks and one more. */
static void sum_losses(kvarc_reader *r, struct kvi_lost_span *spans, kvarc_loss *sums)
{
	const size_t n = r->geometry.n_tracks;
	const uint64_t n_damaged = kvarc_reader_damage(r, NULL, NULL);
	size_t n_spans = 0;
	for (size_t i = 0; i <= n; i++) {
		uint64_t tokens = i < n ? r->losses.expected[i] : 0;
		sums[i] = (kvarc_loss){ .n_damages = n_damaged,
			                .tokens = tokens,
			                .whole_tokens = tokens,
			                .end_unknown = !r->losses.end_known };
	}
	for (size_t i = 0; i < r->losses.list.n; i++) {
		const struct kvi_loss *l = KVI_LIST(struct kvi_loss, r->losses.list, i);
		const uint32_t track = l->place.track;
		kvarc_loss *to = &sums[track < n ? track : n];
		to->lost_bytes = sum(to->lost_bytes, l->bytes);
		if (track >= n || !l->tokens)
			continue;
		const uint64_t end = sum(l->place.t0, l->tokens);
		spans[n_spans++] = (struct kvi_lost_span){ l->place.t0, end, track };
		/* tokens behind a rewind were there, too */
		if (end > to->tokens)
			to->tokens = to->whole_tokens = end;
	}
	count_tokens(spans, n_spans, sums);
	for (size_t i = 0; i < n; i++)
		add_track(&sums[n], &sums[i]);
	if (!sums[n].lost_tokens)
		sums[n].whole_tokens = sums[n].tokens;
}

kvarc_ret kvi_salvage_sums(kvarc_reader *r, const struct kvi_alloc *alloc, kvarc_loss **sums)
{
	struct kvi_lost_span *spans = kvi_array(alloc, r->losses.list.n + 1, sizeof *spans);
	*sums = spans ? kvi_array(alloc, r->geometry.n_tracks + 1, sizeof **sums) : NULL;
	kvarc_ret ret = *sums ? KVARC_OK : kvi_alloc_error(alloc);
	if (*sums)
		sum_losses(r, spans, *sums);
	kvi_free(alloc, spans);
	return ret;
}

kvarc_ret kvarc_reader_loss(kvarc_reader *r, uint32_t track, kvarc_loss *loss)
{
	kvarc_ret ret = KVARC_OK;
	if (!r || !loss || (!r->salvage && !r->losses.sums))
		return KVARC_PROG;
	size_t i = track == UINT32_MAX ? r->geometry.n_tracks : track;
	if (i > r->geometry.n_tracks)
		return KVARC_GEOMETRY;
	if (!r->losses.final) { /* more may have been found since the last call */
		kvi_free(&r->alloc, r->losses.sums);
		ret = kvi_salvage_sums(r, &r->alloc, &r->losses.sums);
	}
	if (ret == KVARC_OK)
		*loss = r->losses.sums[i];
	return ret;
}

/* Bytes in which no good frame was found. */
static kvarc_damage region_damage(const kvarc_reader *r, const struct kvi_region *region)
{
	bool end = region->offset + region->bytes == r->in.source.size;
	return (kvarc_damage){ .offset = region->offset,
		               .bytes = region->bytes,
		               .track = UINT32_MAX,
		               .tensor = UINT32_MAX,
		               .what = end ? "the end of the archive is missing or damaged"
		                           : "no valid frame here" };
}

uint64_t kvarc_reader_damage(kvarc_reader *r, kvarc_damage_fn damage, void *opaque)
{
	uint64_t n = 0;
	if (!r)
		return 0;
	for (size_t i = 0; i < r->losses.regions.n; i++) {
		const struct kvi_region *g = KVI_LIST(struct kvi_region, r->losses.regions, i);
		kvarc_damage d = region_damage(r, g);
		if (g->explained)
			continue;
		n++;
		if (damage)
			damage(opaque, &d);
	}
	for (size_t i = 0; i < r->losses.list.n; i++, n++)
		if (damage)
			damage(opaque, &KVI_LIST(struct kvi_loss, r->losses.list, i)->place);
	return n;
}
