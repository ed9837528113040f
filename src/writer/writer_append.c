/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_append.c - cuts appended tokens into segments, keeps the rest */
#include "format/geometry_check.h"
#include "util/arguments.h"
#include "util/view.h"
#include "writer_state.h"
#include "util/ckd.h"

/* Views of an append as a fetch. */
struct view_source {
	const kvarc_geometry *geometry;
	const kvarc_view *views;
	uint64_t t0; /* token of row 0 */
};

static int fetch_views(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                       uint32_t n, void *dst)
{
	const struct view_source *s = opaque;
	const kvarc_tensor *t = &s->geometry->tensors[tensor];
	struct kvi_view_block b = { t0 - s->t0, n, head * t->channels, heads * t->channels,
		                    (uint32_t)kvarc_dtype_bytes(t->dtype) };
	kvi_view_gather(&s->views[tensor], &b, dst);
	return 0;
}

/* Waiting tokens as a fetch: finds the tensor's place in the packed block. */
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
	uint32_t elem = (uint32_t)kvarc_dtype_bytes(t->dtype);
	kvarc_view v = { .data = track->waiting->data + at,
		         .token_stride = kvi_tensor_bytes(t),
		         .block_elems = kvi_tensor_width(t),
		         .elem_stride = elem };
	struct kvi_view_block b = { t0 - track->n_written, n, head * t->channels,
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
	s.t0 = t->n_submitted;
	s.n = wait->n;
	s.has_ids = wait->has_ids;
	s.coded = false;
	memcpy(s.ids, wait->ids, sizeof s.ids);
	memcpy(s.positions, wait->positions, sizeof s.positions);
	for (uint32_t i = 0; i < wait->n; i++)
		wait->taken.from[i] = (uint32_t)t->n_submitted + i;
	wait->taken.per_token = w->options.lossy && w->options.lossy->token_rate;
	kvarc_ret ret = kvi_writer_segment(w, &s, &wait->taken, fetch_waiting, w);
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

/* What one append call brings. */
struct append {
	uint32_t track;
	uint64_t t0, n, done; /* t0: as calls count */
	uint64_t left;        /* tokens from `done` on that are not left out */
	const int32_t *ids, *positions;
	kvarc_fetch fetch;
	void *opaque;
};

static int rate_at(const kvarc_writer *w, const struct append *a, uint64_t i)
{
	return kvi_lossy_rate_at(w->options.lossy, a->t0 + i, a->t0 + a->n);
}

/* The position of the next token of the append, which is done with. */
static int32_t pass_token(struct kvi_writer_track *t, struct append *a)
{
	int32_t at = a->positions ? a->positions[a->done] : (int32_t)t->next_position;
	t->next_position = (int64_t)at + 1;
	a->done++;
	return at;
}

static void pass_dropped(kvarc_writer *w, struct append *a)
{
	while (a->done < a->n && rate_at(w, a, a->done) == KVARC_LOSSY_DROP)
		pass_token(&w->tracks[a->track], a);
}

/* Where tokens that are taken go. */
struct append_taking {
	int32_t *ids, *positions;
	uint32_t *from;
	int16_t *rate;
};

/* The next count tokens of the append that are not left out. */
static void take_tokens(kvarc_writer *w, struct append *a, uint32_t count,
                        const struct append_taking *to)
{
	for (uint32_t i = 0; i < count; i++) {
		pass_dropped(w, a);
		to->ids[i] = a->ids ? a->ids[a->done] : 0;
		to->from[i] = (uint32_t)(a->t0 + a->done);
		to->rate[i] = (int16_t)rate_at(w, a, a->done);
		to->positions[i] = pass_token(&w->tracks[a->track], a);
	}
	a->left -= count;
	pass_dropped(w, a);
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
	const struct kvi_fetching f = { a->fetch, a->opaque, &w->taken, a->t0 + a->done, count };
	const struct append_taking to = { wait->ids + wait->n, wait->positions + wait->n,
		                          w->taken.from, wait->taken.rate + wait->n };
	size_t at = 0;
	take_tokens(w, a, count, &to);
	for (uint32_t i = w->order.first[a->track]; i < w->order.first[a->track + 1]; i++) {
		uint32_t tensor = w->order.tensors[i];
		const kvarc_tensor *x = &w->geometry.tensors[tensor];
		size_t token = kvi_tensor_bytes(x);
		if (kvi_writer_fetch(w, &f, tensor, 0, x->heads, wait->data + at + wait->n * token))
			return kvi_fail(w->error, KVARC_IO, "fetching tokens failed");
		at += token * t->segment_tokens;
	}
	wait->has_ids = a->ids;
	wait->n += count;
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
		uint32_t capacity = t->segment_tokens - t->waiting->n;
		ret = keep(w, a, a->left < capacity ? (uint32_t)a->left : capacity);
		if (ret || t->waiting->n < t->segment_tokens)
			return ret;
	}
	return kvi_writer_flush_track(w, a->track);
}

static kvarc_ret direct(kvarc_writer *w, struct append *a, uint32_t count)
{
	struct kvi_writer_track *t = &w->tracks[a->track];
	struct kvi_segment s;
	const struct append_taking to = { s.ids, s.positions, w->taken.from, w->taken.rate };
	s.track = a->track;
	s.t0 = t->n_submitted;
	s.n = count;
	s.has_ids = a->ids;
	s.coded = false;
	take_tokens(w, a, count, &to);
	kvarc_ret ret = kvi_writer_segment(w, &s, &w->taken, a->fetch, a->opaque);
	t->n_submitted += count;
	return ret;
}

/* Counts the tokens that are not left out, and those that are as if they were written. */
static void count_tokens(kvarc_writer *w, struct append *a)
{
	uint64_t elements = 0, bytes = 0;
	a->left = a->n;
	w->taken.per_token = w->options.lossy && w->options.lossy->token_rate;
	if (!w->taken.per_token)
		return;
	for (uint64_t i = 0; i < a->n; i++)
		a->left -= rate_at(w, a, i) == KVARC_LOSSY_DROP;
	for (uint32_t i = w->order.first[a->track]; i < w->order.first[a->track + 1]; i++) {
		const kvarc_tensor *x = &w->geometry.tensors[w->order.tensors[i]];
		elements += kvi_tensor_width(x);
		bytes += kvi_tensor_bytes(x);
	}
	w->stats.dropped_tokens += a->n - a->left;
	w->stats.elements += elements * (a->n - a->left);
	w->stats.raw_bytes += bytes * (a->n - a->left);
}

static kvarc_ret append(kvarc_writer *w, struct append *a, bool keep_rest)
{
	struct kvi_writer_track *t = &w->tracks[a->track];
	count_tokens(w, a);
	t->n_appended += a->n;
	t->n_total = t->n_written + (t->waiting ? t->waiting->n : 0) + a->left;
	kvarc_ret ret = w->started ? KVARC_OK : kvi_writer_start(w);
	pass_dropped(w, a);
	if (ret == KVARC_OK && a->left)
		ret = fill_waiting(w, a);
	while (ret == KVARC_OK && a->left) {
		if (a->left >= t->segment_tokens)
			ret = direct(w, a, t->segment_tokens);
		else if (keep_rest)
			ret = keep(w, a, (uint32_t)a->left);
		else
			ret = direct(w, a, (uint32_t)a->left);
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

/* What both appends ask of their arguments, and then know of their track. */
static kvarc_ret check(kvarc_writer *w, const struct append *a)
{
	kvarc_ret ret = kvi_writer_may_append(w, a->track, a->t0, a->n, a->positions);
	if (!ret && a->n)
		w->tracks[a->track].wants_positions = false;
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
		            .fetch = fetch_views,
		            .opaque = &source };
	kvarc_ret ret = check(w, &a);
	if (ret || n == 0)
		return ret;
	ret = check_views(w, track, views, n);
	if (ret)
		return ret;
	return kvi_writer_set_error(w, append(w, &a, true));
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
		            .fetch = fetch,
		            .opaque = opaque };
	kvarc_ret ret = check(w, &a);
	if (ret)
		return ret;
	if (!fetch)
		return kvi_fail(w->error, KVARC_PROG, "kvarc_writer_append_fetch: fetch is NULL");
	if (w->tracks[track].waiting && w->tracks[track].waiting->n)
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_append_fetch: tokens of an earlier append wait: "
		                "commit first");
	return kvi_writer_set_error(w, append(w, &a, false));
}

kvarc_ret kvi_writer_flush_tracks(kvarc_writer *w)
{
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < w->geometry.n_tracks && ret == KVARC_OK; i++)
		ret = kvi_writer_flush_track(w, i);
	return ret;
}
