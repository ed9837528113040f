/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_append.c - cuts appended tokens into segments, keeps the rest */
#include "geometry/geometry.h"
#include "stream/view.h"
#include "stream/writer_state.h"
#include "util/ckd.h"

/* Views of an append as a fetch. */
struct view_source {
	const kvarc_geometry *geometry;
	const kvarc_view *views;
	uint64_t t0; /* token of row 0 */
};

static int fetch_views(void *opaque, uint32_t tensor, uint32_t head,
                       uint32_t heads, uint64_t t0, uint32_t n, void *dst)
{
	const struct view_source *s = opaque;
	const kvarc_tensor *t = &s->geometry->tensors[tensor];
	struct kvi_block b = {
		t0 - s->t0, n, head * t->channels, heads * t->channels,
		(uint32_t)kvarc_dtype_bytes(t->dtype)
	};
	kvi_view_gather(&s->views[tensor], &b, dst);
	return 0;
}

/* Waiting tokens as a fetch: finds the tensor's place in the packed block. */
static int fetch_waiting(void *opaque, uint32_t tensor, uint32_t head,
                         uint32_t heads, uint64_t t0, uint32_t n, void *dst)
{
	const kvarc_writer *w = opaque;
	const kvarc_tensor *t = &w->geometry.tensors[tensor];
	const struct kvi_writer_track *track = &w->tracks[t->track];
	const uint32_t *of = w->order.tensors;
	size_t at = 0;
	for (uint32_t i = w->order.first[t->track]; of[i] != tensor; i++)
		at += (size_t)kvi_tensor_bytes(&w->geometry.tensors[of[i]]) *
		      track->segment_tokens;
	uint32_t elem = (uint32_t)kvarc_dtype_bytes(t->dtype);
	kvarc_view v = {
		.data = track->waiting->data + at,
		.token_stride = kvi_tensor_bytes(t),
		.block_elems = kvi_tensor_width(t), .elem_stride = elem
	};
	struct kvi_block b = { t0 - track->tokens, n, head * t->channels,
	                       heads * t->channels, elem };
	kvi_view_gather(&v, &b, dst);
	return 0;
}

kvarc_ret kvi_writer_flush_track(kvarc_writer *w, uint32_t track)
{
	struct kvi_writer_track *t = &w->tracks[track];
	struct kvi_waiting *wait = t->waiting;
	struct kvi_segment s;
	if (!wait || wait->n == 0)
		return KVARC_OK;
	s.track = track;
	s.t0 = t->handed;
	s.n = wait->n;
	s.has_ids = wait->has_ids;
	s.coded = false;
	memcpy(s.ids, wait->ids, sizeof s.ids);
	memcpy(s.positions, wait->positions, sizeof s.positions);
	kvarc_ret ret = kvi_writer_segment(w, &s, fetch_waiting, w);
	ret = kvi_writer_drain(w, ret);
	t->handed += wait->n;
	wait->n = 0;
	return ret;
}

static kvarc_ret make_waiting(kvarc_writer *w, uint32_t track)
{
	struct kvi_writer_track *t = &w->tracks[track];
	size_t bytes = 0;
	for (uint32_t i = w->order.first[track];
	     i < w->order.first[track + 1]; i++) {
		const kvarc_tensor *x =
			&w->geometry.tensors[w->order.tensors[i]];
		size_t add;
		if (kvi_mul((size_t)kvi_tensor_bytes(x), t->segment_tokens,
		            &add) || kvi_add(bytes, add, &bytes))
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

/* What one append call brings. */
struct append {
	uint32_t track;
	uint64_t t0, n, done;
	const int32_t *ids, *positions;
	kvarc_fetch fetch;
	void *opaque;
};

/* Ids and positions of the next count tokens of the append. */
static void take_tokens(struct kvi_writer_track *t, const struct append *a,
                        uint32_t count, int32_t *ids, int32_t *positions)
{
	for (uint32_t i = 0; i < count; i++) {
		ids[i] = a->ids ? a->ids[a->done + i] : 0;
		positions[i] = a->positions ? a->positions[a->done + i]
		                            : (int32_t)t->next_position;
		t->next_position = (int64_t)positions[i] + 1;
	}
}

/* Copies count tokens of the append behind those that wait. */
static kvarc_ret keep(kvarc_writer *w, struct append *a, uint32_t count)
{
	struct kvi_writer_track *t = &w->tracks[a->track];
	if (!t->waiting) {
		kvarc_ret ret = make_waiting(w, a->track);
		if (ret)
			return ret;
	}
	struct kvi_waiting *wait = t->waiting;
	size_t at = 0;
	for (uint32_t i = w->order.first[a->track];
	     i < w->order.first[a->track + 1]; i++) {
		uint32_t tensor = w->order.tensors[i];
		const kvarc_tensor *x = &w->geometry.tensors[tensor];
		size_t token = kvi_tensor_bytes(x);
		if (a->fetch(a->opaque, tensor, 0, x->heads, a->t0 + a->done,
		             count, wait->data + at + wait->n * token))
			return kvi_fail(w->error, KVARC_IO, KVARC_UNKNOWN,
			                KVARC_UNKNOWN, "fetching tokens failed");
		at += token * t->segment_tokens;
	}
	take_tokens(t, a, count, wait->ids + wait->n,
	            wait->positions + wait->n);
	wait->has_ids = a->ids;
	wait->n += count;
	a->done += count;
	return KVARC_OK;
}

/* Tokens that wait come first; a segment has ids for all tokens or for none. */
static kvarc_ret fill_waiting(kvarc_writer *w, struct append *a)
{
	struct kvi_writer_track *t = &w->tracks[a->track];
	kvarc_ret ret = KVARC_OK;
	if (!t->waiting || t->waiting->n == 0)
		return KVARC_OK;
	if (t->waiting->has_ids == (a->ids != NULL)) {
		uint64_t left = a->n - a->done;
		uint32_t room = t->segment_tokens - t->waiting->n;
		ret = keep(w, a, left < room ? (uint32_t)left : room);
		if (ret || t->waiting->n < t->segment_tokens)
			return ret;
	}
	return kvi_writer_flush_track(w, a->track);
}

static kvarc_ret direct(kvarc_writer *w, struct append *a, uint32_t count)
{
	struct kvi_writer_track *t = &w->tracks[a->track];
	struct kvi_segment s;
	s.track = a->track;
	s.t0 = t->handed;
	s.n = count;
	s.has_ids = a->ids;
	s.coded = false;
	take_tokens(t, a, count, s.ids, s.positions);
	kvarc_ret ret = kvi_writer_segment(w, &s, a->fetch, a->opaque);
	t->handed += count;
	a->done += count;
	return ret;
}

static kvarc_ret append(kvarc_writer *w, struct append *a, bool keep_rest)
{
	uint32_t full = w->tracks[a->track].segment_tokens;
	w->tracks[a->track].end = a->t0 + a->n;
	kvarc_ret ret = w->started ? KVARC_OK : kvi_writer_start(w);
	if (ret == KVARC_OK)
		ret = fill_waiting(w, a);
	while (ret == KVARC_OK && a->done < a->n) {
		uint64_t left = a->n - a->done;
		if (left >= full)
			ret = direct(w, a, full);
		else if (keep_rest)
			ret = keep(w, a, (uint32_t)left);
		else
			ret = direct(w, a, (uint32_t)left);
	}
	return kvi_writer_drain(w, ret);
}

/* What both appends ask of their arguments. */
static kvarc_ret check(kvarc_writer *w, const struct append *a)
{
	if (!w->has_geometry)
		return kvi_writer_fail(w, KVARC_PROG,
		                       "append before set_geometry");
	if (a->track >= w->geometry.n_tracks)
		return kvi_writer_fail(w, KVARC_GEOMETRY,
		                       "track %u does not exist",
		                       (unsigned)a->track);
	/* A chunk's t0 is 32 bits (spec 7). */
	if (a->n > UINT32_MAX || a->t0 + a->n > UINT32_MAX)
		return kvi_writer_fail(w, KVARC_GEOMETRY,
		                       "a track holds less than 2^32 tokens");
	if (!a->positions && a->n &&
	    w->tracks[a->track].next_position + (int64_t)a->n - 1 > INT32_MAX)
		return kvi_writer_fail(w, KVARC_GEOMETRY,
		                       "positions would pass 2^31 - 1");
	return KVARC_OK;
}

static uint64_t tokens_so_far(const kvarc_writer *w, uint32_t track)
{
	if (!w->has_geometry || track >= w->geometry.n_tracks)
		return 0;
	const struct kvi_writer_track *t = &w->tracks[track];
	return t->tokens + (t->waiting ? t->waiting->n : 0);
}

static const char *views_wrong(const kvarc_writer *w, uint32_t track,
                               const kvarc_view *views)
{
	for (uint32_t i = w->order.first[track];
	     i < w->order.first[track + 1]; i++) {
		const kvarc_view *v = views ? &views[w->order.tensors[i]]
		                            : NULL;
		if (!v || !v->data || v->block_elems == 0)
			return "a view of the track's tensors is missing or "
			       "has block_elems 0";
	}
	return NULL;
}

kvarc_ret kvarc_writer_append(kvarc_writer *w, uint32_t track, uint64_t n,
                              const int32_t *ids, const int32_t *positions,
                              const kvarc_view *views)
{
	if (!w)
		return KVARC_PROG;
	if (w->sticky)
		return w->sticky;
	struct view_source source = { &w->geometry, views,
	                              tokens_so_far(w, track) };
	struct append a = {
		.track = track, .t0 = source.t0, .n = n, .ids = ids,
		.positions = positions, .fetch = fetch_views, .opaque = &source
	};
	kvarc_ret ret = check(w, &a);
	if (ret || n == 0)
		return ret;
	const char *wrong = views_wrong(w, track, views);
	if (wrong)
		return kvi_writer_fail(w, KVARC_PROG, "%s", wrong);
	return kvi_writer_stick(w, append(w, &a, true));
}

kvarc_ret kvarc_writer_append_fetch(kvarc_writer *w, uint32_t track,
                                    uint64_t n, const int32_t *ids,
                                    const int32_t *positions,
                                    kvarc_fetch fetch, void *opaque)
{
	if (!w)
		return KVARC_PROG;
	if (w->sticky)
		return w->sticky;
	struct append a = {
		.track = track, .t0 = tokens_so_far(w, track), .n = n,
		.ids = ids, .positions = positions, .fetch = fetch,
		.opaque = opaque
	};
	kvarc_ret ret = check(w, &a);
	if (ret)
		return ret;
	if (!fetch)
		return kvi_writer_fail(w, KVARC_PROG, "fetch is NULL");
	if (w->tracks[track].waiting && w->tracks[track].waiting->n)
		return kvi_writer_fail(w, KVARC_PROG, "tokens of an earlier "
		                       "append wait: commit first");
	return kvi_writer_stick(w, append(w, &a, false));
}
