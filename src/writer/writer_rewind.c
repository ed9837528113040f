/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_rewind.c - replaces tokens of a track, and names states (spec 6.2, 9.1) */
#include "reader/reader_resume.h"
#include "util/string_field.h"
#include "writer_state.h"

/* What comes behind the first n tokens of a segment that this writer wrote; s: memory for it. */
static kvarc_ret end_in_segment(kvarc_writer *w, const struct kvi_writer_track *t,
                                const struct kvi_kept_segment *k, uint32_t n, struct kvi_segment *s,
                                struct kvi_track_end *end)
{
	kvarc_ret ret = KVARC_OK;
	if (!kvi_segment_parse(s, t->kept_contents.p + k->at, k->bytes))
		return kvi_fail(w->error, KVARC_DATA,
		                "what was written is not valid: check this machine's memory");
	end->position = (int64_t)s->positions[n - 1] + 1;
	end->chain = (struct kvi_chain){ k->before.known && s->has_ids, { 0, 0 } };
	if (end->chain.known)
		ret = kvi_chain_link(&end->chain.value, &w->content, k->before.value, s, n);
	return ret ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

/* Forgets the segments of this writer from token t0 on, and finds what its next token follows. */
static kvarc_ret cut_kept(kvarc_writer *w, uint32_t track, uint64_t t0, struct kvi_track_end *end)
{
	struct kvi_writer_track *t = &w->tracks[track];
	struct kvi_kept_segment *k = NULL;
	while (t->kept.n &&
	       (k = KVI_LIST(struct kvi_kept_segment, t->kept, t->kept.n - 1))->t0 >= t0) {
		t->kept_contents.n = k->at;
		t->kept.n--;
	}
	*end = (struct kvi_track_end){ 0 };
	if (!t->kept.n)
		return w->archive ? kvi_reader_track_end(w->archive, track, t0, end) : KVARC_OK;
	struct kvi_segment *s = kvi_malloc(&w->alloc, sizeof *s);
	if (!s)
		return kvi_fail_alloc(w->error, &w->alloc);
	k->n = (uint32_t)(t0 - k->t0);
	kvarc_ret ret = end_in_segment(w, t, k, k->n, s, end);
	kvi_free(&w->alloc, s);
	return ret;
}

/* Drops tokens that wait. False: tokens that are written are to be replaced, too. */
static bool cut_waiting(struct kvi_writer_track *t, uint64_t t0)
{
	struct kvi_waiting *wait = t->waiting;
	if (wait && t0 > t->n_written) {
		wait->n = (uint32_t)(t0 - t->n_written);
		t->next_position = (int64_t)wait->positions[wait->n - 1] + 1;
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
	kvarc_ret ret = cut_kept(w, track, t0, &end);
	t->n_written = t->n_submitted = t0;
	t->next_position = end.position;
	t->wants_positions = end.no_position;
	t->chain = end.chain;
	return ret;
}

/* NULL: a rewind is possible. */
static const char *why_not(const kvarc_writer *w)
{
	if (w->options.flags & KVARC_WRITE_STREAMABLE)
		return "a rewind refers back: not with KVARC_WRITE_STREAMABLE";
	if (w->options.lossy && w->options.lossy->token_rate)
		return "tokens cannot be replaced where a tier has token scores";
	if (w->options.level >= KVI_LEVEL_MODEL)
		return "tokens that a model predicts (levels 4 to 8) cannot be replaced";
	return NULL;
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
	const char *why = why_not(w);
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
	const struct kvi_checkpoint c = { w->checkpoint + 1, time, (const uint8_t *)label,
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
		ret = kvi_writer_flush_sink(w);
	if (!ret)
		ret = kvi_writer_emit_commit(w, &c);
	if (!ret)
		ret = kvi_writer_parity_flush(w);
	if (!ret)
		ret = kvi_writer_flush_sink(w);
	if (ret)
		return kvi_writer_set_error(w, ret);
	w->checkpoint = c.number;
	for (size_t i = 0; i < w->geometry.n_tracks; i++)
		w->tracks[i].item_tokens = 0;
	if (number)
		*number = c.number;
	return KVARC_OK;
}
