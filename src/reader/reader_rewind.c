/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_rewind.c - which tokens of segments are left behind rewinds, and checkpoints (spec 6.2,
 * 9.5) */
#include "format/commit.h"
#include "reader_state.h"

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

void kvi_reader_cut_models(kvarc_reader *r, const struct kvi_segment_ref *s)
{
	if (!s || s->left == s->n)
		return;
	for (size_t i = 0; i < r->predictors.list.n; i++) {
		struct kvi_predictor_ref *x = *KVI_LIST(struct kvi_predictor_ref *,
		                                        r->predictors.list, i);
		struct kvi_prediction *g = x->sessions ? x->sessions[s->track] : NULL;
		if (g && kvi_prediction_next(g) == s->t0 + s->n)
			kvi_prediction_rewind(g, s->t0 + s->left);
	}
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

/* The longest track of a state. */
static uint32_t longest(const kvarc_reader *r, const uint64_t *tokens)
{
	uint32_t track = 0;
	for (uint32_t i = 1; i < r->geometry.n_tracks; i++)
		track = tokens[i] > tokens[track] ? i : track;
	return track;
}

/* The first token of a track that was written between two frames; `none` where none was. */
static uint64_t first_written(const kvarc_reader *r, uint32_t track, uint64_t after,
                              uint64_t before, uint64_t none)
{
	uint64_t first = none;
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (s->track == track && s->sequence > after && s->sequence < before)
			first = s->t0 < first ? s->t0 : first;
	}
	return first;
}

kvarc_ret kvarc_reader_checkpoint(kvarc_reader *r, size_t i, kvarc_checkpoint *checkpoint)
{
	struct kvi_commit c;
	if (!r || !checkpoint)
		return KVARC_PROG;
	if (i >= r->index.checkpoints.n)
		return KVARC_END;
	const struct kvi_checkpoint_ref *ref = KVI_LIST(struct kvi_checkpoint_ref,
	                                                r->index.checkpoints, i);
	struct kvi_frame f;
	size_t n = r->geometry.n_tracks;
	uint64_t *tokens = kvi_calloc(&r->alloc, n, sizeof *tokens), most, first;
	kvarc_ret ret = tokens ? kvi_reader_read_frame(r, ref->offset, KVI_FRAME_COMMIT,
	                                               ref->sequence, &r->meta.commit, &f, r->error)
	                       : kvi_fail_alloc(r->error, &r->alloc);
	if (!ret && (!kvi_commit_parse(&c, tokens, n, f.payload, f.head.payload_bytes) ||
	             c.checkpoint.number != ref->number))
		ret = kvi_reader_not_valid(&f, r->error);
	uint32_t track = ret ? 0 : longest(r, tokens);
	most = ret ? 0 : tokens[track];
	kvi_free(&r->alloc, tokens);
	if (ret)
		return kvi_reader_set_error(r, ret);
	first = first_written(r, track, i ? ref[-1].sequence : 0, ref->sequence, most);
	*checkpoint = (kvarc_checkpoint){ .number = c.checkpoint.number,
		                          .time = c.checkpoint.time,
		                          .label = (const char *)c.checkpoint.label,
		                          .label_bytes = c.checkpoint.label_bytes,
		                          .tokens = most,
		                          .new_tokens = most - first,
		                          .end = ref->offset +
		                                 kvi_frame_bytes(f.head.payload_bytes) };
	return KVARC_OK;
}
