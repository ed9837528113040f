/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_ids.c - token ids that a model has coded (spec tokens) */
#include "reader_ids.h"
#include "reader_segments.h"
#include "reader_state.h"
#include "exact/head.h"

static bool stopped(void *opaque)
{
	const kvarc_reader *r = opaque;
	const kvarc_common *c = &r->options.common;
	return c->progress &&
	       c->progress(c->progress_opaque, r->totals.progress_done, r->totals.progress_total);
}

/* Whether the reader's model is the one, with the head. */
static kvarc_ret look_for_head(kvarc_reader *r, struct kvi_predictor_ref *predictor)
{
	const struct kvi_arithmetic a = { predictor->p.wide_weights, predictor->p.wide_activations,
		                          predictor->p.fp8 };
	const struct kvi_engine *engine;
	kvarc_error *e = &predictor->ids_error;
	if (!r->options.predictor || !kvi_predictor_file(r->options.predictor))
		return kvi_reader_missing_model(predictor, "", e);
	kvarc_ret ret = kvi_predictor_head(r->options.predictor, &a, r->options.common.isa_mask,
	                                   &engine, e);
	if (ret)
		return ret == KVARC_OPTIONS || ret == KVARC_DATA ? KVARC_PREDICTOR : ret;
	if (!kvi_h128_equal(kvi_engine_digest(engine), predictor->p.weights))
		return kvi_reader_missing_model(predictor, ", not one with other weights", e);
	if (!kvi_h128_equal(kvi_engine_head_digest(engine), predictor->p.head))
		return kvi_reader_missing_model(predictor, ", not one with another output matrix",
		                                e);
	predictor->coders = kvi_calloc(&r->alloc, r->geometry.n_tracks, sizeof *predictor->coders);
	return predictor->coders ? KVARC_OK : kvi_fail_alloc(e, &r->alloc);
}

static kvarc_ret open_coder(kvarc_reader *r, struct kvi_predictor_ref *predictor, uint32_t track,
                            kvarc_error *error)
{
	const struct kvi_prediction_options o = { .predictor = r->options.predictor,
		                                  .description = &predictor->p,
		                                  .geometry = &r->geometry,
		                                  .order = &r->order,
		                                  .track = track,
		                                  .threads = r->options.common.threads,
		                                  .isa_mask = r->options.common.isa_mask,
		                                  .decodes = true };
	if (!predictor->ids_looked)
		predictor->ids_ret = look_for_head(r, predictor);
	predictor->ids_looked = true;
	if (predictor->ids_ret) {
		if (error)
			*error = predictor->ids_error;
		return KVARC_END;
	}
	if (predictor->coders[track])
		return KVARC_OK;
	kvarc_ret ret = kvi_token_coder_open(&predictor->coders[track], &o, error);
	if (!ret)
		kvi_token_coder_stopped_by(predictor->coders[track], stopped, r);
	return ret;
}

static kvarc_ret out_of_order(kvarc_reader *r, kvarc_error *error)
{
	return kvi_fail(error, r->salvage ? KVARC_DATA : KVARC_OPTIONS,
	                r->salvage ? "token ids that depend on earlier ones, which are lost"
	                           : "token ids that a model has coded are decoded "
	                             "one after the other, from the first of a track on, "
	                             "and its PREDICTOR comes before that");
}

/* Passes the coder through a segment that begins where the coder is, or before that. */
static kvarc_ret go(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                    struct kvi_segment *segment, kvarc_error *error)
{
	struct kvi_token_coder **c = &predictor->coders[segment->track];
	if (kvi_token_coder_next(*c) < segment->t0)
		return out_of_order(r, error);
	kvarc_ret ret = kvi_token_coder_rewind(*c, segment->t0, error);
	if (!ret)
		ret = segment->coded ? kvi_token_coder_decode(*c, segment, error)
		                     : kvi_token_coder_pass(*c, segment, false, error);
	if (!ret) /* back to the tokens that a rewind has left (spec 6.2) */
		ret = kvi_token_coder_rewind(*c, segment->t0 + segment->left, error);
	predictor->ids_fell_back = predictor->ids_fell_back || kvi_token_coder_fell_back(*c);
	if (ret) { /* the next call begins at the first token */
		kvi_token_coder_close(*c);
		*c = NULL;
	}
	return ret;
}

/* The segments before `to` in its track that the coder has not passed, the last one first, as
 * const struct kvi_segment_ref *. */
static kvarc_ret path_to(kvarc_reader *r, const struct kvi_segment *to, uint64_t from,
                         struct kvi_list *path, kvarc_error *error)
{
	const struct kvi_segment_ref *ref = kvi_index_segment_of(&r->index, to);
	while (ref && (ref = kvi_index_before(&r->index, ref)) && ref->t0 >= from) {
		const struct kvi_segment_ref **p = kvi_list_add(path, &r->alloc, sizeof *p);
		if (!p)
			return kvi_fail_alloc(error, &r->alloc);
		*p = ref;
	}
	return KVARC_OK;
}

/* Passes the coder through the segments before `to` in its track that it has not passed yet. */
static kvarc_ret lead(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                      const struct kvi_segment *to, kvarc_error *error)
{
	struct kvi_segment *s = kvi_malloc(&r->alloc, sizeof *s);
	struct kvi_list path = { 0 };
	kvarc_ret ret = s ? path_to(r, to, kvi_token_coder_next(predictor->coders[to->track]),
	                            &path, error)
	                  : kvi_fail_alloc(error, &r->alloc);
	for (size_t i = path.n; i-- > 0 && !ret;) {
		const struct kvi_segment_ref *ref = *KVI_LIST(const struct kvi_segment_ref *, path,
		                                              i);
		if (!ref->offset || (ref->sequence < predictor->sequence && !r->salvage))
			ret = out_of_order(r, error);
		else
			ret = kvi_reader_read_segment(r, &r->packer, ref, s, error);
		if (!ret)
			ret = go(r, predictor, s, error);
	}
	kvi_free(&r->alloc, path.p);
	kvi_free(&r->alloc, s);
	return ret;
}

struct kvi_predictor_ref *kvi_reader_codes_ids(const kvarc_reader *r, uint64_t sequence)
{
	struct kvi_predictor_ref *x = kvi_reader_predictor_before(&r->predictors, sequence);
	for (size_t i = 0; !x && r->salvage && i < r->predictors.list.n; i++) {
		x = *KVI_LIST(struct kvi_predictor_ref *, r->predictors.list, i);
		x = x->p.codes_ids ? x : NULL;
	}
	return x && x->p.codes_ids ? x : NULL;
}

kvarc_ret kvi_reader_ids(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                         struct kvi_segment *segment, kvarc_error *error)
{
	if (!segment->coded || segment->has_ids)
		return KVARC_OK;
	if (!predictor)
		return kvi_fail(error, KVARC_DATA,
		                "token ids are coded, but there is no PREDICTOR frame for them");
	kvarc_ret ret = open_coder(r, predictor, segment->track, error);
	if (ret)
		return ret;
	struct kvi_token_coder *const *c = &predictor->coders[segment->track];
	if (segment->t0 + segment->n <= kvi_token_coder_next(*c)) {
		kvi_token_coder_ids(*c, segment->t0, segment->n, segment->ids);
		segment->has_ids = kvi_segment_ids_check(segment) == segment->check;
		if (segment->has_ids) /* else those of a segment that this one replaces */
			return KVARC_OK;
	}
	if (kvi_input_seekable(&r->in))
		ret = lead(r, predictor, segment, error);
	return ret ? ret : go(r, predictor, segment, error);
}

kvarc_ret kvi_reader_first_ids(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                               struct kvi_segment *segment, uint32_t n, kvarc_error *error)
{
	struct kvi_token_coder *const *c = predictor && predictor->coders
	                                           ? &predictor->coders[segment->track]
	                                           : NULL;
	if (!segment->coded || segment->has_ids)
		return KVARC_OK;
	if (c && *c && kvi_token_coder_next(*c) >= segment->t0 + n) {
		kvi_token_coder_ids(*c, segment->t0, n, segment->ids);
		segment->has_ids = true;
		return KVARC_OK;
	}
	kvarc_ret ret = kvi_reader_ids(r, predictor, segment, error);
	c = predictor && predictor->coders ? &predictor->coders[segment->track] : NULL;
	return !ret && c && *c ? kvi_token_coder_rewind(*c, segment->t0 + n, error) : ret;
}

kvarc_ret kvi_reader_pass_ids(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                              struct kvi_segment *segment, kvarc_error *error)
{
	struct kvi_token_coder *c = predictor && predictor->coders
	                                    ? predictor->coders[segment->track]
	                                    : NULL;
	kvarc_ret ret = KVARC_OK;
	if (segment->coded)
		return kvi_reader_ids(r, predictor, segment, error);
	if (c && kvi_token_coder_next(c) > segment->t0)
		return kvi_token_coder_rewind(c, segment->t0, error);
	if (!predictor || kvi_input_seekable(&r->in) || !r->options.predictor)
		return KVARC_OK; /* a seekable source is read again when the ids are needed */
	ret = open_coder(r, predictor, segment->track, NULL);
	if (!ret && kvi_token_coder_next(predictor->coders[segment->track]) == segment->t0)
		ret = go(r, predictor, segment, error);
	/* A failure to pass ids that are stored counts only once coded ids need them. */
	return ret == KVARC_IO ? ret : KVARC_OK;
}

kvarc_ret kvarc_reader_coded_ids(kvarc_reader *r, uint64_t *tokens, uint64_t *bytes)
{
	if (!r || !tokens || !bytes)
		return KVARC_PROG;
	*tokens = *bytes = 0;
	if (r->sticky)
		return r->sticky;
	struct kvi_segment *s = kvi_malloc(&r->alloc, sizeof *s);
	kvarc_ret ret = s ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
	for (size_t i = 0; i < r->index.segments.n && !ret; i++) {
		const struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref,
		                                             r->index.segments, i);
		if (!ref->offset || ref->stored || ref->origin ||
		    !kvi_reader_codes_ids(r, ref->sequence))
			continue;
		ret = kvi_reader_segment(r, ref, s);
		if (ret || !s->coded)
			continue;
		*tokens += s->n;
		*bytes += s->code_bytes + 8; /* 8: the check */
	}
	kvi_free(&r->alloc, s);
	return kvi_reader_set_error(r, ret);
}
