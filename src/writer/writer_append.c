/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_append.c - what a writer is given: tokens, segments of a store, rewinds */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "writer_append.h"
#include "writer_frames.h"
#include "writer_state.h"
#include "format/fork.h"
#include "format/geometry_check.h"
#include "format/storeref.h"
#include "reader/reader_resume.h"
#include "util/arguments.h"
#include "util/ckd.h"
#include "util/string_field.h"
#include "util/view.h"

/* ==== Cuts appended tokens into segments, keeps the rest ==== */

/* Views of an append as a fetch. */
struct view_source {
	const kvarc_geometry *geometry;
	const kvarc_view *views;
	uint64_t t0; /* index of the token of row 0 */
};

static struct kvi_view_block block_of(const kvarc_tensor *tensor, uint64_t row, uint32_t n,
                                      uint32_t head, uint32_t heads)
{
	return (struct kvi_view_block){ row, n, head * tensor->channels, heads * tensor->channels,
		                        (uint32_t)kvarc_dtype_bytes(tensor->dtype) };
}

/* A kvarc_fetch. */
static int fetch_views(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                       uint32_t n, void *dst)
{
	const struct view_source *s = opaque;
	const struct kvi_view_block b = block_of(&s->geometry->tensors[tensor], t0 - s->t0, n, head,
	                                         heads);
	kvi_view_gather(&s->views[tensor], &b, dst);
	return 0;
}

/* kvi_elements.packed of views. */
static const void *packed_views(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads,
                                uint64_t t0, uint32_t n)
{
	const struct view_source *s = opaque;
	const struct kvi_view_block b = block_of(&s->geometry->tensors[tensor], t0 - s->t0, n, head,
	                                         heads);
	return kvi_view_packed(&s->views[tensor], &b);
}

/* A kvarc_fetch of waiting tokens: finds the tensor in the packed block. */
static int fetch_waiting(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                         uint32_t n, void *dst)
{
	const kvarc_writer *w = opaque;
	const kvarc_tensor *t = &w->geometry.tensors[tensor];
	const struct kvi_writer_track *track = &w->tracks[t->track];
	const uint32_t *of = w->order.tensors;
	size_t at = 0;
	for (uint32_t i = w->order.first[t->track]; of[i] != tensor; i++)
		at += (size_t)kvi_tensor_bytes(&w->geometry.tensors[of[i]]) * track->segment_tokens;
	kvarc_view v = { .data = track->waiting->data + at,
		         .token_stride = kvi_tensor_bytes(t),
		         .block_elems = kvi_tensor_width(t),
		         .elem_stride = (uint32_t)kvarc_dtype_bytes(t->dtype) };
	const struct kvi_view_block b = block_of(t, t0 - track->n_written, n, head, heads);
	kvi_view_gather(&v, &b, dst);
	return 0;
}

/* Writes the tokens of a track that wait. Returns OK, MEM, MEMLIMIT, IO. */
static kvarc_ret flush_track(kvarc_writer *w, uint32_t track)
{
	struct kvi_writer_track *t = &w->tracks[track];
	struct kvi_waiting *wait = t->waiting;
	struct kvi_segment s;
	if (!wait || wait->n == 0)
		return KVARC_OK;
	s.track = track;
	s.t0 = t->n_submitted;
	s.n = wait->n;
	s.has_ids = wait->has_ids;
	s.coded = false;
	memcpy(s.ids, wait->ids, sizeof s.ids);
	memcpy(s.positions, wait->positions, sizeof s.positions);
	for (uint32_t i = 0; i < wait->n; i++)
		wait->chosen.from[i] = (uint32_t)t->n_submitted + i;
	wait->chosen.per_token = w->options.lossy && w->options.lossy->token_rate;
	const struct kvi_elements elements = { .fetch = fetch_waiting, .opaque = w };
	kvarc_ret ret = kvi_writer_segment(w, &s, &wait->chosen, &elements);
	ret = kvi_writer_drain(w, ret);
	t->n_submitted += wait->n;
	wait->n = 0;
	return ret;
}

static kvarc_ret make_waiting(kvarc_writer *w, uint32_t track)
{
	struct kvi_writer_track *t = &w->tracks[track];
	size_t bytes = 0;
	for (uint32_t i = w->order.first[track]; i < w->order.first[track + 1]; i++) {
		const kvarc_tensor *x = &w->geometry.tensors[w->order.tensors[i]];
		size_t add;
		if (kvi_mul((size_t)kvi_tensor_bytes(x), t->segment_tokens, &add) ||
		    kvi_add(bytes, add, &bytes))
			bytes = SIZE_MAX;
	}
	t->waiting = kvi_calloc(&w->alloc, 1, sizeof *t->waiting);
	if (!t->waiting)
		return kvi_fail_alloc(w->error, &w->alloc);
	t->waiting->data = bytes ? kvi_malloc(&w->alloc, bytes) : NULL;
	if (bytes && !t->waiting->data) {
		kvi_free(&w->alloc, t->waiting);
		t->waiting = NULL;
		return kvi_fail_alloc(w->error, &w->alloc);
	}
	return KVARC_OK;
}

/* The tokens of an append call, and how many were passed. */
struct append {
	uint32_t track;
	uint64_t t0, n, done; /* t0: index of the first token as callers count */
	uint64_t left;        /* tokens from `done` on that are not left out */
	const int32_t *ids, *positions;
	struct kvi_elements elements;
};

static int rate_at(const kvarc_lossy *lossy, const struct append *append, uint64_t i)
{
	return kvi_lossy_rate_at(lossy, append->t0 + i, append->t0 + append->n);
}

/* The position of the next token of the append, which is done with. */
static int32_t pass_token(struct kvi_writer_track *track, struct append *append)
{
	int32_t at = append->positions ? append->positions[append->done]
	                               : (int32_t)track->next_position;
	track->next_position = (int64_t)at + 1;
	append->done++;
	return at;
}

static void pass_dropped(kvarc_writer *w, struct append *append)
{
	while (append->done < append->n &&
	       rate_at(w->options.lossy, append, append->done) == KVARC_LOSSY_DROP)
		pass_token(&w->tracks[append->track], append);
}

/* Arrays that the tokens of an append are copied to. */
struct append_taking {
	int32_t *ids, *positions;
	uint32_t *from;
	int16_t *rate;
};

/* Copies the next count tokens of the append that are not left out. */
static void next_tokens(kvarc_writer *w, struct append *append, uint32_t count,
                        const struct append_taking *to)
{
	for (uint32_t i = 0; i < count; i++) {
		pass_dropped(w, append);
		to->ids[i] = append->ids ? append->ids[append->done] : 0;
		to->from[i] = (uint32_t)(append->t0 + append->done);
		to->rate[i] = (int16_t)rate_at(w->options.lossy, append, append->done);
		to->positions[i] = pass_token(&w->tracks[append->track], append);
	}
	append->left -= count;
	pass_dropped(w, append);
}

/* Copies count tokens of the append behind those that wait. */
static kvarc_ret keep(kvarc_writer *w, struct append *append, uint32_t count)
{
	struct kvi_writer_track *t = &w->tracks[append->track];
	if (!t->waiting) {
		kvarc_ret ret = make_waiting(w, append->track);
		if (ret)
			return ret;
	}
	struct kvi_waiting *wait = t->waiting;
	const struct kvi_fetching f = { append->elements, &w->chosen, append->t0 + append->done,
		                        count };
	const struct append_taking to = { wait->ids + wait->n, wait->positions + wait->n,
		                          w->chosen.from, wait->chosen.rate + wait->n };
	size_t at = 0;
	next_tokens(w, append, count, &to);
	for (uint32_t i = w->order.first[append->track]; i < w->order.first[append->track + 1];
	     i++) {
		uint32_t tensor = w->order.tensors[i];
		const kvarc_tensor *x = &w->geometry.tensors[tensor];
		size_t token = kvi_tensor_bytes(x);
		if (kvi_writer_fetch(&w->geometry, &f, tensor, 0, x->heads,
		                     wait->data + at + wait->n * token))
			return kvi_fail(w->error, KVARC_IO, "fetching tokens failed");
		at += token * t->segment_tokens;
	}
	wait->has_ids = append->ids;
	wait->n += count;
	return KVARC_OK;
}

/* Tokens that wait come first; a segment has ids for all tokens or for none. */
static kvarc_ret fill_waiting(kvarc_writer *w, struct append *append)
{
	struct kvi_writer_track *t = &w->tracks[append->track];
	kvarc_ret ret = KVARC_OK;
	if (!t->waiting || t->waiting->n == 0)
		return KVARC_OK;
	if (t->waiting->has_ids == (append->ids != NULL)) {
		uint32_t capacity = t->segment_tokens - t->waiting->n;
		ret = keep(w, append, append->left < capacity ? (uint32_t)append->left : capacity);
		if (ret || t->waiting->n < t->segment_tokens)
			return ret;
	}
	return flush_track(w, append->track);
}

static kvarc_ret direct(kvarc_writer *w, struct append *append, uint32_t count)
{
	struct kvi_writer_track *t = &w->tracks[append->track];
	struct kvi_segment s;
	const struct append_taking to = { s.ids, s.positions, w->chosen.from, w->chosen.rate };
	s.track = append->track;
	s.t0 = t->n_submitted;
	s.n = count;
	s.has_ids = append->ids;
	s.coded = false;
	next_tokens(w, append, count, &to);
	kvarc_ret ret = kvi_writer_segment(w, &s, &w->chosen, &append->elements);
	t->n_submitted += count;
	return ret;
}

/* Counts the tokens that are not left out, and those that are as if they were written. */
static void count_tokens(kvarc_writer *w, struct append *append)
{
	uint64_t elements = 0, bytes = 0;
	append->left = append->n;
	w->chosen.per_token = w->options.lossy && w->options.lossy->token_rate;
	if (!w->chosen.per_token)
		return;
	for (uint64_t i = 0; i < append->n; i++)
		append->left -= rate_at(w->options.lossy, append, i) == KVARC_LOSSY_DROP;
	for (uint32_t i = w->order.first[append->track]; i < w->order.first[append->track + 1];
	     i++) {
		const kvarc_tensor *x = &w->geometry.tensors[w->order.tensors[i]];
		elements += kvi_tensor_width(x);
		bytes += kvi_tensor_bytes(x);
	}
	w->out.stats.dropped_tokens += append->n - append->left;
	w->out.stats.elements += elements * (append->n - append->left);
	w->out.stats.raw_bytes += bytes * (append->n - append->left);
}

static kvarc_ret writer_append_append_tokens(kvarc_writer *w, struct append *append, bool keep_rest)
{
	struct kvi_writer_track *t = &w->tracks[append->track];
	count_tokens(w, append);
	t->n_appended += append->n;
	t->n_total = t->n_written + (t->waiting ? t->waiting->n : 0) + append->left;
	kvarc_ret ret = w->started ? KVARC_OK : kvi_writer_start(w);
	pass_dropped(w, append);
	if (ret == KVARC_OK && append->left)
		ret = fill_waiting(w, append);
	while (ret == KVARC_OK && append->left) {
		if (append->left >= t->segment_tokens)
			ret = direct(w, append, t->segment_tokens);
		else if (keep_rest)
			ret = keep(w, append, (uint32_t)append->left);
		else
			ret = direct(w, append, (uint32_t)append->left);
	}
	return kvi_writer_drain(w, ret);
}

kvarc_ret kvi_writer_may_append(const kvarc_writer *w, uint32_t track, uint64_t t0, uint64_t n,
                                const int32_t *positions)
{
	if (!w->has_geometry)
		return kvi_fail(w->error, KVARC_PROG,
		                "append: call kvarc_writer_set_geometry first");
	if (track >= w->geometry.n_tracks)
		return kvi_fail_track(w->error, track, w->geometry.n_tracks);
	/* A chunk's t0 is 32 bits (spec 7). */
	if (n > UINT32_MAX || t0 + n > UINT32_MAX)
		return kvi_fail(w->error, KVARC_GEOMETRY, "a track holds less than 2^32 tokens");
	if (!positions && n && w->tracks[track].next_position + (int64_t)n - 1 > INT32_MAX)
		return kvi_fail(w->error, KVARC_GEOMETRY, "positions would pass 2^31 - 1");
	if (!positions && n && w->tracks[track].wants_positions)
		return kvi_fail(w->error, KVARC_PROG,
		                "positions is NULL, and the archive does not say where they "
		                "continue: a tier left tokens out");
	return KVARC_OK;
}

/* Checks the arguments of both append calls; after that the position of the track is known. */
static kvarc_ret check_append(kvarc_writer *w, const struct append *append)
{
	kvarc_ret ret = kvi_writer_may_append(w, append->track, append->t0, append->n,
	                                      append->positions);
	if (!ret && append->n)
		w->tracks[append->track].wants_positions = false;
	return ret;
}

uint32_t kvarc_writer_segment_tokens(const kvarc_writer *w, uint32_t track)
{
	return w && w->has_geometry && track < w->geometry.n_tracks
	               ? w->tracks[track].segment_tokens
	               : 0;
}

static uint64_t tokens_so_far(const kvarc_writer *w, uint32_t track)
{
	return w->has_geometry && track < w->geometry.n_tracks ? w->tracks[track].n_appended : 0;
}

static kvarc_ret check_views(const kvarc_writer *w, uint32_t track, const kvarc_view *views,
                             uint64_t n)
{
	const char *call = "kvarc_writer_append";
	kvarc_ret ret = KVARC_OK;
	if (!views)
		return kvi_fail(w->error, KVARC_PROG, "%s: views is NULL", call);
	for (uint32_t i = w->order.first[track]; i < w->order.first[track + 1] && !ret; i++) {
		size_t tensor = w->order.tensors[i];
		if (!views[tensor].data)
			return kvi_fail(w->error, KVARC_PROG, "%s: views[%zu].data is NULL", call,
			                tensor);
		ret = kvi_check_view(w->error, call, &views[tensor], tensor,
		                     &w->geometry.tensors[tensor], n);
	}
	return ret;
}

kvarc_ret kvarc_writer_append(kvarc_writer *w, uint32_t track, uint64_t n, const int32_t *ids,
                              const int32_t *positions, const kvarc_view *views)
{
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	struct view_source source = { &w->geometry, views, tokens_so_far(w, track) };
	struct append a = { .track = track,
		            .t0 = source.t0,
		            .n = n,
		            .ids = ids,
		            .positions = positions,
		            .elements = { fetch_views, packed_views, &source } };
	kvarc_ret ret = check_append(w, &a);
	if (ret || n == 0)
		return ret;
	ret = check_views(w, track, views, n);
	if (ret)
		return ret;
	return kvi_writer_set_error(w, writer_append_append_tokens(w, &a, true));
}

kvarc_ret kvarc_writer_append_fetch(kvarc_writer *w, uint32_t track, uint64_t n, const int32_t *ids,
                                    const int32_t *positions, kvarc_fetch fetch, void *opaque)
{
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	struct append a = { .track = track,
		            .t0 = tokens_so_far(w, track),
		            .n = n,
		            .ids = ids,
		            .positions = positions,
		            .elements = { .fetch = fetch, .opaque = opaque } };
	kvarc_ret ret = check_append(w, &a);
	if (ret)
		return ret;
	if (!fetch)
		return kvi_fail(w->error, KVARC_PROG, "kvarc_writer_append_fetch: fetch is NULL");
	if (w->tracks[track].waiting && w->tracks[track].waiting->n)
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_append_fetch: tokens of an earlier append wait: "
		                "commit first");
	return kvi_writer_set_error(w, writer_append_append_tokens(w, &a, false));
}

kvarc_ret kvi_writer_flush_tracks(kvarc_writer *w)
{
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < w->geometry.n_tracks && ret == KVARC_OK; i++)
		ret = flush_track(w, i);
	return ret;
}

/* ==== Segments that lie in a store, in place of their chunks (spec frames 12.3) ==== */

/* Tokens of segments that lie in a store. */
struct stored_tokens {
	const int32_t *ids, *positions; /* first of the next segment; either may be NULL */
	struct kvi_segment s;
};

static const char stored_call[] = "kvarc_writer_append_stored";

/* Why the archive can have no STOREREF; NULL: it can. */
static const char *why_not_stored(const kvarc_writer *w)
{
	if (!w->has_geometry)
		return "call kvarc_writer_set_geometry first";
	if (w->archive && !(w->resumed.superblock->incompat & KVI_INCOMPAT_STORE))
		return "the archive that is appended to has no parts in a store: write a new one "
		       "with KVARC_WRITE_STORED";
	if (!w->archive && !(w->options.flags & KVARC_WRITE_STORED))
		return "open the writer with KVARC_WRITE_STORED";
	if (w->options.lossy && w->options.lossy->token_rate)
		return "not with token scores of a lossy tier";
	if (w->options.level >= KVI_LEVEL_MODEL)
		return "levels 4 to 8 need the elements of all tokens";
	return NULL;
}

static kvarc_ret check_stored(kvarc_writer *w, size_t n, const kvarc_stored *segments)
{
	const char *why = why_not_stored(w);
	if (!why && n && !segments)
		why = "segments is NULL";
	if (why)
		return kvi_fail(w->error, KVARC_PROG, "%s: %s", stored_call, why);
	for (size_t i = 0; i < n; i++) {
		kvarc_ret ret = KVI_CHECK_RESERVED(w->error, stored_call, "kvarc_stored",
		                                   &segments[i]);
		if (ret)
			return ret;
	}
	if (n && segments->track >= w->geometry.n_tracks)
		return kvi_fail_track(w->error, segments->track, w->geometry.n_tracks);
	uint64_t t0 = n ? w->tracks[segments->track].n_appended : 0;
	for (size_t i = 0; i < n; i++) {
		const kvarc_stored *s = &segments[i];
		if (s->track != segments->track || s->t0 != t0 || s->n < 1 ||
		    s->n > KVI_SEGMENT_TOKENS || t0 + s->n > UINT32_MAX ||
		    s->bytes != s->n * kvi_track_bytes(&w->geometry, &w->order, s->track))
			return kvi_fail(w->error, KVARC_GEOMETRY,
			                "%s: the tokens or bytes of segment %zu do not fit",
			                stored_call, i);
		t0 += s->n;
	}
	return KVARC_OK;
}

/* Sets tokens->s to the next segment, with its ids and positions; position: that of its first token
 * where none are given. */
static void next_stored(const kvarc_stored *from, struct stored_tokens *tokens, int64_t position)
{
	struct kvi_segment *s = &tokens->s;
	s->track = from->track;
	s->t0 = from->t0;
	s->n = from->n;
	s->has_ids = tokens->ids;
	s->has_chain = from->has_chain;
	s->chain = from->has_chain ? kvi_load_h128(from->chain) : (struct kvi_h128){ 0, 0 };
	for (uint32_t i = 0; i < s->n; i++) {
		s->ids[i] = tokens->ids ? *tokens->ids++ : 0;
		s->positions[i] = tokens->positions ? *tokens->positions++
		                                    : (int32_t)(position + i);
	}
}

/* The chain value of what precedes a segment that has one itself. */
static kvarc_ret chain_before(kvarc_writer *w, const struct kvi_segment *segment,
                              struct kvi_chain *chain)
{
	chain->known = segment->has_chain && (chain->known || segment->t0 == 0);
	return segment->has_chain && segment->t0 == 0
	               ? kvi_chain_root(&chain->value, &w->out.content, w->geometry_hash,
	                                &w->identity)
	               : KVARC_OK;
}

/* Checks all chain values against the ids; advances its own copy of tokens alone. */
static kvarc_ret check_chains(kvarc_writer *w, size_t n, const kvarc_stored *segments,
                              struct stored_tokens tokens)
{
	const struct kvi_writer_track *track = &w->tracks[segments->track];
	struct kvi_chain chain = track->chain;
	int64_t position = track->next_position;
	for (size_t i = 0; i < n; i++) {
		struct kvi_h128 value = { 0, 0 };
		next_stored(&segments[i], &tokens, position);
		position = (int64_t)tokens.s.positions[tokens.s.n - 1] + 1;
		kvarc_ret ret = chain_before(w, &tokens.s, &chain);
		if (!ret && chain.known && tokens.s.has_ids)
			ret = kvi_chain_link(&value, &w->out.content, chain.value, &tokens.s,
			                     tokens.s.n);
		if (ret)
			return kvi_fail_alloc(w->error, &w->alloc);
		if (tokens.s.has_chain &&
		    !(chain.known && tokens.s.has_ids && kvi_h128_equal(value, tokens.s.chain)))
			return kvi_fail(w->error, KVARC_GEOMETRY,
			                "%s: the chain value of segment %zu is not that of these "
			                "ids behind those before",
			                stored_call, i);
		chain = (struct kvi_chain){ tokens.s.has_chain, tokens.s.chain };
	}
	return KVARC_OK;
}

/* Moves the state of the track behind a segment, and stores the segment for rewinds. */
static kvarc_ret pass_segment(kvarc_writer *w, const struct kvi_segment *segment)
{
	struct kvi_writer_track *t = &w->tracks[segment->track];
	struct kvi_chain before = t->chain;
	if (chain_before(w, segment, &before))
		return kvi_fail_alloc(w->error, &w->alloc);
	t->n_written += segment->n;
	t->n_committed = t->n_submitted = t->n_appended = t->n_total = t->n_written;
	t->next_position = (int64_t)segment->positions[segment->n - 1] + 1;
	t->wants_positions = false;
	t->chain = (struct kvi_chain){ segment->has_chain, segment->chain };
	w->out.content.n = 0;
	kvi_segment_put(&w->out.content, segment);
	return w->out.content.failed ? kvi_fail_alloc(w->error, &w->alloc)
	                             : kvi_writer_keep_segment(w, segment, before);
}

/* Writes a STOREREF frame of n segments, and its commit. */
static kvarc_ret put_frame(kvarc_writer *w, const kvarc_stored *segments, size_t n)
{
	const kvarc_stored *last = &segments[n - 1];
	struct kvi_index_entry entry = { .tensor = segments->track,
		                         .segment = segments->t0,
		                         .n = (uint32_t)(last->t0 + last->n - segments->t0) };
	w->out.content.n = 0;
	kvi_storeref_put(&w->out.content, segments, n);
	if (w->out.content.failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	kvarc_ret ret = kvi_writer_emit_content(&w->out, KVI_FRAME_STOREREF, w->out.content.p,
	                                        w->out.content.n, true, &entry);
	return ret ? ret : kvi_writer_emit_commit(w, NULL);
}

static kvarc_ret append_segments(kvarc_writer *w, size_t n, const kvarc_stored *segments,
                                 struct stored_tokens *tokens)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t done = 0, part; done < n && !ret; done += part) {
		part = n - done < KVI_STOREREF_SEGMENTS ? n - done : KVI_STOREREF_SEGMENTS;
		for (size_t i = done; i < done + part && !ret; i++) {
			next_stored(&segments[i], tokens, w->tracks[segments->track].next_position);
			ret = pass_segment(w, &tokens->s);
		}
		if (!ret)
			ret = put_frame(w, segments + done, part);
	}
	return ret ? ret : kvi_writer_flush(&w->out, false);
}

kvarc_ret kvarc_writer_append_stored(kvarc_writer *w, size_t n, const kvarc_stored *segments,
                                     const int32_t *ids, const int32_t *positions)
{
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	kvarc_ret ret = check_stored(w, n, segments);
	if (ret || n == 0)
		return ret;
	const struct kvi_writer_track *track = &w->tracks[segments->track];
	const uint64_t all = segments[n - 1].t0 + segments[n - 1].n - segments->t0;
	if (!positions && track->wants_positions)
		return kvi_fail(w->error, KVARC_PROG,
		                "%s: positions is NULL, and it is not known where they continue",
		                stored_call);
	if (!positions && track->next_position + (int64_t)all - 1 > INT32_MAX)
		return kvi_fail(w->error, KVARC_GEOMETRY, "positions would pass 2^31 - 1");
	struct stored_tokens *t = kvi_calloc(&w->alloc, 1, sizeof *t);
	if (!t)
		return kvi_writer_set_error(w, kvi_fail_alloc(w->error, &w->alloc));
	t->ids = ids;
	t->positions = positions;
	ret = w->started ? KVARC_OK : kvi_writer_start(w);
	if (!ret)
		ret = flush_track(w, segments->track);
	if (!ret)
		ret = check_chains(w, n, segments, *t);
	if (!ret)
		ret = append_segments(w, n, segments, t);
	kvi_free(&w->alloc, t);
	return ret == KVARC_GEOMETRY ? ret : kvi_writer_set_error(w, ret);
}

/* ==== Replaces tokens of a track, and names states (spec 6.2, 9.1) ==== */

/* Finds the end behind the first n tokens of a segment that this writer wrote; s: memory for it. */
static kvarc_ret end_in_segment(struct kvi_writer_output *output,
                                const struct kvi_writer_track *track,
                                const struct kvi_written_segment *segment, uint32_t n,
                                struct kvi_segment *s, struct kvi_track_end *end)
{
	kvarc_ret ret = KVARC_OK;
	if (!kvi_segment_parse(s, track->written_contents.p + segment->at, segment->bytes))
		return kvi_fail(output->error, KVARC_DATA,
		                "what was written is not valid: check this machine's memory");
	end->position = (int64_t)s->positions[n - 1] + 1;
	end->chain = (struct kvi_chain){ segment->before.known && s->has_ids, { 0, 0 } };
	if (end->chain.known)
		ret = kvi_chain_link(&end->chain.value, &output->content, segment->before.value, s,
		                     n);
	return ret ? kvi_fail_alloc(output->error, output->alloc) : KVARC_OK;
}

/* Forgets the segments of this writer from token t0 on, and finds what its next token follows. */
static kvarc_ret cut_written(kvarc_writer *w, uint32_t track, uint64_t t0,
                             struct kvi_track_end *end)
{
	struct kvi_writer_track *t = &w->tracks[track];
	struct kvi_written_segment *k = NULL;
	while (t->written.n &&
	       (k = KVI_LIST(struct kvi_written_segment, t->written, t->written.n - 1))->t0 >= t0) {
		t->written_contents.n = k->at;
		t->written.n--;
	}
	*end = (struct kvi_track_end){ 0 };
	if (!t->written.n)
		return w->archive ? kvi_reader_track_end(w->archive, t->archived, t0, end)
		                  : KVARC_OK;
	struct kvi_segment *s = kvi_malloc(&w->alloc, sizeof *s);
	if (!s)
		return kvi_fail_alloc(w->error, &w->alloc);
	k->n = (uint32_t)(t0 - k->t0);
	kvarc_ret ret = end_in_segment(&w->out, t, k, k->n, s, end);
	kvi_free(&w->alloc, s);
	return ret;
}

/* Drops tokens that wait. False: tokens that are written are to be replaced, too. */
static bool cut_waiting(struct kvi_writer_track *track, uint64_t t0)
{
	struct kvi_waiting *wait = track->waiting;
	if (wait && t0 > track->n_written) {
		wait->n = (uint32_t)(t0 - track->n_written);
		track->next_position = (int64_t)wait->positions[wait->n - 1] + 1;
		return true;
	}
	if (wait)
		wait->n = 0;
	return false;
}

static kvarc_ret rewind_track(kvarc_writer *w, uint32_t track, uint64_t t0)
{
	struct kvi_writer_track *t = &w->tracks[track];
	struct kvi_track_end end;
	t->n_appended = t->n_total = t0;
	if (cut_waiting(t, t0))
		return KVARC_OK;
	kvarc_ret ret = cut_written(w, track, t0, &end);
	t->n_written = t->n_submitted = t0;
	t->next_position = end.position;
	t->wants_positions = end.no_position;
	t->chain = end.chain;
	return ret;
}

/* Why a rewind is not possible; NULL: it is. */
static const char *why_not_rewind(const kvarc_writer_options *options)
{
	if (options->flags & KVARC_WRITE_STREAMABLE)
		return "a rewind refers back: not with KVARC_WRITE_STREAMABLE";
	if (options->lossy && options->lossy->token_rate)
		return "tokens cannot be replaced where a tier has token scores";
	if (options->level >= KVI_LEVEL_MODEL)
		return "tokens that a model predicts (levels 4 to 8) cannot be replaced";
	return NULL;
}

/* ==== A track that begins as another one (spec 6.3) ==== */

static const char fork_call[] = "kvarc_writer_fork";

/* Puts the segments of a track in place of those of another one. */
static kvarc_ret copy_written(kvarc_writer *w, struct kvi_writer_track *to,
                              const struct kvi_writer_track *from)
{
	to->archived = from->archived;
	to->written.n = 0;
	to->written_contents.n = 0;
	kvi_put_bytes(&to->written_contents, from->written_contents.p, from->written_contents.n);
	bool ok = !to->written_contents.failed;
	for (size_t i = 0; i < from->written.n && ok; i++) {
		struct kvi_written_segment *x = kvi_list_add(&to->written, &w->alloc, sizeof *x);
		ok = x;
		if (x)
			*x = *KVI_LIST(struct kvi_written_segment, from->written, i);
	}
	return ok ? KVARC_OK : kvi_fail_alloc(w->error, &w->alloc);
}

static kvarc_ret put_fork(kvarc_writer *w, const struct kvi_fork *fork)
{
	struct kvi_index_entry entry = { .tensor = fork->track,
		                         .params = fork->from,
		                         .segment = fork->n };
	struct kvi_out *out = &w->out.content;
	out->n = 0;
	kvi_fork_put(out, fork);
	return out->failed ? kvi_fail_alloc(w->error, &w->alloc)
	                   : kvi_writer_emit_content(&w->out, KVI_FRAME_FORK, out->p, out->n, false,
	                                             &entry);
}

static kvarc_ret fork_track(kvarc_writer *w, const struct kvi_fork *fork)
{
	struct kvi_writer_track *t = &w->tracks[fork->track], *from = &w->tracks[fork->from];
	struct kvi_track_end end;
	kvarc_ret ret = w->started ? KVARC_OK : kvi_writer_start(w);
	if (!ret && fork->n > from->n_written)
		ret = flush_track(w, fork->from);
	if (!ret)
		ret = put_fork(w, fork);
	if (!ret)
		ret = copy_written(w, t, from);
	if (!ret)
		ret = cut_written(w, fork->track, fork->n, &end);
	if (ret)
		return ret;
	if (t->waiting)
		t->waiting->n = 0;
	t->n_written = t->n_committed = t->n_submitted = fork->n;
	t->n_appended = t->n_total = fork->n;
	t->next_position = end.position;
	t->wants_positions = end.no_position;
	t->chain = end.chain;
	return KVARC_OK;
}

/* Checks that the options allow a fork. Returns OK, OPTIONS, PROG. */
static kvarc_ret may_fork(const kvarc_writer *w)
{
	const kvarc_writer_options *o = &w->options;
	if (o->level >= KVI_LEVEL_MODEL)
		return kvi_fail(w->error, KVARC_OPTIONS,
		                "%s: level %d needs a model to go through all tokens of the track; "
		                "take levels 0 to 3",
		                fork_call, o->level);
	if (o->flags & KVARC_WRITE_STREAMABLE)
		return kvi_fail(w->error, KVARC_PROG,
		                "%s: a fork refers back: not with KVARC_WRITE_STREAMABLE",
		                fork_call);
	return o->lossy && o->lossy->token_rate
	               ? kvi_fail(w->error, KVARC_PROG,
	                          "%s: tokens cannot be replaced where a tier has token scores",
	                          fork_call)
	               : KVARC_OK;
}

kvarc_ret kvarc_writer_fork(kvarc_writer *w, uint32_t track, uint32_t from, uint64_t tokens)
{
	const struct kvi_fork fork = { track, from, tokens };
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	if (!w->has_geometry)
		return kvi_fail(w->error, KVARC_PROG, "%s: call kvarc_writer_set_geometry first",
		                fork_call);
	kvarc_ret ret = may_fork(w);
	if (ret)
		return ret;
	if (track >= w->geometry.n_tracks || from >= w->geometry.n_tracks)
		return kvi_fail_track(w->error, track >= w->geometry.n_tracks ? track : from,
		                      w->geometry.n_tracks);
	if (!kvi_fork_fits(&w->geometry, &w->order, track, from))
		return kvi_fail(w->error, KVARC_GEOMETRY,
		                "%s: track %u has other tensors than track %u, or is the same",
		                fork_call, (unsigned)track, (unsigned)from);
	if (!tokens || tokens > w->tracks[from].n_appended)
		return kvi_fail(w->error, KVARC_GEOMETRY,
		                "%s of %llu tokens: track %u has %llu, and one is the least",
		                fork_call, (unsigned long long)tokens, (unsigned)from,
		                (unsigned long long)w->tracks[from].n_appended);
	if (w->tracks[track].item_tokens)
		return kvi_fail(w->error, KVARC_PROG,
		                "%s: files in the archive need tokens of track %u; call "
		                "kvarc_writer_checkpoint before it",
		                fork_call, (unsigned)track);
	return kvi_writer_set_error(w, fork_track(w, &fork));
}

uint64_t kvarc_writer_tokens(const kvarc_writer *w, uint32_t track)
{
	return w && w->has_geometry && track < w->geometry.n_tracks ? w->tracks[track].n_appended
	                                                            : 0;
}

kvarc_ret kvarc_writer_rewind(kvarc_writer *w, uint32_t track, uint64_t tokens)
{
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	if (!w->has_geometry)
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_rewind: call kvarc_writer_set_geometry first");
	const char *why = why_not_rewind(&w->options);
	if (why)
		return kvi_fail(w->error, KVARC_PROG, "kvarc_writer_rewind: %s", why);
	if (track >= w->geometry.n_tracks)
		return kvi_fail_track(w->error, track, w->geometry.n_tracks);
	const struct kvi_writer_track *t = &w->tracks[track];
	if (tokens > t->n_appended)
		return kvi_fail(w->error, KVARC_GEOMETRY,
		                "kvarc_writer_rewind to token %llu: track %u has %llu",
		                (unsigned long long)tokens, (unsigned)track,
		                (unsigned long long)t->n_appended);
	if (tokens < t->item_tokens)
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_rewind to token %llu: files in the archive need "
		                "%llu; call kvarc_writer_checkpoint before it",
		                (unsigned long long)tokens, (unsigned long long)t->item_tokens);
	return tokens == t->n_appended ? KVARC_OK
	                               : kvi_writer_set_error(w, rewind_track(w, track, tokens));
}

kvarc_ret kvarc_writer_checkpoint(kvarc_writer *w, const char *label, uint64_t time,
                                  uint64_t *number)
{
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	label = label ? label : "";
	const struct kvi_checkpoint c = { w->out.checkpoint + 1, time, (const uint8_t *)label,
		                          strlen(label) };
	if (!w->has_geometry)
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_checkpoint: call kvarc_writer_set_geometry first");
	if (time > KVI_NUMBER_MAX || c.number > KVI_NUMBER_MAX || !kvi_string_fits(label))
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_checkpoint: the label is longer than 65535 bytes, or "
		                "time is 2^53 or more");
	kvarc_ret ret = kvi_writer_flush_tracks(w);
	/* A checkpoint shows that all before it was on the disk. */
	if (!ret)
		ret = kvi_writer_flush(&w->out, false);
	if (!ret)
		ret = kvi_writer_emit_commit(w, &c);
	if (!ret)
		ret = kvi_writer_flush(&w->out, true);
	if (ret)
		return kvi_writer_set_error(w, ret);
	w->out.checkpoint = c.number;
	for (size_t i = 0; i < w->geometry.n_tracks; i++)
		w->tracks[i].item_tokens = 0;
	if (number)
		*number = c.number;
	return KVARC_OK;
}
