/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_stored.c - segments that lie in a store, in place of their chunks (spec frames 12.3) */
#include "format/storeref.h"
#include "reader/reader_state.h"
#include "util/arguments.h"
#include "writer_state.h"

/* Tokens of segments that lie in a store. */
struct stored_tokens {
	const int32_t *ids, *positions; /* of the next segment; either may be NULL */
	struct kvi_segment s;
};

static const char call[] = "kvarc_writer_append_stored";

/* Why the archive can have no STOREREF; NULL: it can. */
static const char *why_not(const kvarc_writer *w)
{
	if (!w->has_geometry)
		return "call kvarc_writer_set_geometry first";
	if (w->archive && !(w->archive->sb.incompat & KVI_INCOMPAT_STORE))
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

static kvarc_ret check(kvarc_writer *w, size_t n, const kvarc_stored *segments)
{
	const char *why = why_not(w);
	if (!why && n && !segments)
		why = "segments is NULL";
	if (why)
		return kvi_fail(w->error, KVARC_PROG, "%s: %s", call, why);
	for (size_t i = 0; i < n; i++) {
		kvarc_ret ret = KVI_CHECK_RESERVED(w->error, call, "kvarc_stored", &segments[i]);
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
			                "%s: the tokens or bytes of segment %zu do not fit", call,
			                i);
		t0 += s->n;
	}
	return KVARC_OK;
}

/* Ids and positions of one segment behind those that were taken; position: of its first token where
 * none are given. */
static void take_tokens(const kvarc_stored *from, struct stored_tokens *t, int64_t position)
{
	struct kvi_segment *s = &t->s;
	s->track = from->track;
	s->t0 = from->t0;
	s->n = from->n;
	s->has_ids = t->ids;
	s->has_chain = from->has_chain;
	s->chain = from->has_chain ? kvi_load_h128(from->chain) : (struct kvi_h128){ 0, 0 };
	for (uint32_t i = 0; i < s->n; i++) {
		s->ids[i] = t->ids ? *t->ids++ : 0;
		s->positions[i] = t->positions ? *t->positions++ : (int32_t)(position + i);
	}
}

/* The chain value of what precedes a segment that has one itself. */
static kvarc_ret chain_before(kvarc_writer *w, const struct kvi_segment *s, struct kvi_chain *chain)
{
	chain->known = s->has_chain && (chain->known || s->t0 == 0);
	return s->has_chain && s->t0 == 0
	               ? kvi_chain_root(&chain->value, &w->content, w->geometry_hash, &w->identity)
	               : KVARC_OK;
}

/* That all chain values are what they must be; t: its own. */
static kvarc_ret check_chains(kvarc_writer *w, size_t n, const kvarc_stored *segments,
                              struct stored_tokens t)
{
	const struct kvi_writer_track *track = &w->tracks[segments->track];
	struct kvi_chain chain = track->chain;
	int64_t position = track->next_position;
	for (size_t i = 0; i < n; i++) {
		struct kvi_h128 value = { 0, 0 };
		take_tokens(&segments[i], &t, position);
		position = (int64_t)t.s.positions[t.s.n - 1] + 1;
		kvarc_ret ret = chain_before(w, &t.s, &chain);
		if (!ret && chain.known && t.s.has_ids)
			ret = kvi_chain_link(&value, &w->content, chain.value, &t.s, t.s.n);
		if (ret)
			return kvi_fail_alloc(w->error, &w->alloc);
		if (t.s.has_chain &&
		    !(chain.known && t.s.has_ids && kvi_h128_equal(value, t.s.chain)))
			return kvi_fail(w->error, KVARC_GEOMETRY,
			                "%s: the chain value of segment %zu is not that of these "
			                "ids behind those before",
			                call, i);
		chain = (struct kvi_chain){ t.s.has_chain, t.s.chain };
	}
	return KVARC_OK;
}

/* The state of the track behind a segment, which is kept for rewinds. */
static kvarc_ret pass_segment(kvarc_writer *w, const struct kvi_segment *s)
{
	struct kvi_writer_track *t = &w->tracks[s->track];
	struct kvi_chain before = t->chain;
	if (chain_before(w, s, &before))
		return kvi_fail_alloc(w->error, &w->alloc);
	t->n_written += s->n;
	t->n_committed = t->n_submitted = t->n_appended = t->n_total = t->n_written;
	t->next_position = (int64_t)s->positions[s->n - 1] + 1;
	t->wants_positions = false;
	t->chain = (struct kvi_chain){ s->has_chain, s->chain };
	w->content.n = 0;
	kvi_segment_put(&w->content, s);
	return w->content.failed ? kvi_fail_alloc(w->error, &w->alloc)
	                         : kvi_writer_keep_segment(w, s, before);
}

/* One frame of n segments, and its commit. */
static kvarc_ret put_frame(kvarc_writer *w, const kvarc_stored *segments, size_t n)
{
	const kvarc_stored *last = &segments[n - 1];
	struct kvi_index_entry entry = { .tensor = segments->track,
		                         .segment = segments->t0,
		                         .n = (uint32_t)(last->t0 + last->n - segments->t0) };
	w->content.n = 0;
	kvi_storeref_put(&w->content, segments, n);
	if (w->content.failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	kvarc_ret ret = kvi_writer_emit_content(w, KVI_FRAME_STOREREF, w->content.p, w->content.n,
	                                        true, &entry);
	return ret ? ret : kvi_writer_emit_commit(w, NULL);
}

static kvarc_ret append(kvarc_writer *w, size_t n, const kvarc_stored *segments,
                        struct stored_tokens *t)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t done = 0, part; done < n && !ret; done += part) {
		part = n - done < KVI_STOREREF_SEGMENTS ? n - done : KVI_STOREREF_SEGMENTS;
		for (size_t i = done; i < done + part && !ret; i++) {
			take_tokens(&segments[i], t, w->tracks[segments->track].next_position);
			ret = pass_segment(w, &t->s);
		}
		if (!ret)
			ret = put_frame(w, segments + done, part);
	}
	return ret ? ret : kvi_writer_flush_sink(w);
}

kvarc_ret kvarc_writer_append_stored(kvarc_writer *w, size_t n, const kvarc_stored *segments,
                                     const int32_t *ids, const int32_t *positions)
{
	if (!w)
		return KVARC_PROG;
	if (kvi_writer_refuses(w))
		return w->sticky;
	kvarc_ret ret = check(w, n, segments);
	if (ret || n == 0)
		return ret;
	const struct kvi_writer_track *track = &w->tracks[segments->track];
	const uint64_t all = segments[n - 1].t0 + segments[n - 1].n - segments->t0;
	if (!positions && track->wants_positions)
		return kvi_fail(w->error, KVARC_PROG,
		                "%s: positions is NULL, and it is not known where they continue",
		                call);
	if (!positions && track->next_position + (int64_t)all - 1 > INT32_MAX)
		return kvi_fail(w->error, KVARC_GEOMETRY, "positions would pass 2^31 - 1");
	struct stored_tokens *t = kvi_calloc(&w->alloc, 1, sizeof *t);
	if (!t)
		return kvi_writer_set_error(w, kvi_fail_alloc(w->error, &w->alloc));
	t->ids = ids;
	t->positions = positions;
	ret = w->started ? KVARC_OK : kvi_writer_start(w);
	if (!ret)
		ret = kvi_writer_flush_track(w, segments->track);
	if (!ret)
		ret = check_chains(w, n, segments, *t);
	if (!ret)
		ret = append(w, n, segments, t);
	kvi_free(&w->alloc, t);
	return ret == KVARC_GEOMETRY ? ret : kvi_writer_set_error(w, ret);
}
