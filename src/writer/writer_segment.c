/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * writer_segment.c - lets workers encode the chunks of segments, and writes the chunks in order,
 * so that the bytes do not depend on the number of threads
 *
 * Chunks of a segment are encoded while those of the one before are written. A
 * group's chunk is written before its next one is encoded, which may use its
 * parameters; so no more than two segments are on their way.
 */
#include "codecs/coder.h"
#include "writer_state.h"

/* Frees what the encoder handed over and was not used. */
static void drop_params(struct kvi_encode_job *j)
{
	kvi_params_free(j->coded.params);
	kvi_free(&j->w->alloc, j->coded.params_content);
	j->coded.params = NULL;
	j->coded.params_content = NULL;
}

static kvarc_ret use_params(struct kvi_encode_job *j)
{
	kvarc_writer *w = j->w;
	struct kvi_encoded *c = &j->coded;
	if (!c->params || !c->uses_params) {
		drop_params(j);
		return KVARC_OK;
	}
	kvarc_ret ret = kvi_writer_emit_params(w, j->group, c->params_codec, c->params_content,
	                                       c->params_bytes);
	kvi_params_free(j->group->params);
	j->group->params = c->params;
	c->params = NULL;
	drop_params(j);
	return ret;
}

/* Turns a chunk into a REPEAT when its bytes were written before and that is shorter. */
static bool try_repeat(struct kvi_encode_job *j)
{
	kvarc_writer *w = j->w;
	const struct kvi_repeat *r = w->repeats && j->coded.payload_bytes > KVI_REPEAT_BYTES
	                                     ? kvi_repeat_find(w->repeats, j->raw_hash,
	                                                       j->raw_bytes, j->segment->s.n)
	                                     : NULL;
	if (!r)
		return false;
	drop_params(j);
	j->coded.codec = KVI_CODEC_REPEAT;
	j->coded.cut = (struct kvi_chunk_cut){ .stream_size = r->stream_size };
	j->coded.raw_check = r->raw_check;
	j->coded.uses_params = false;
	j->coded.payload_bytes = KVI_REPEAT_BYTES;
	kvi_store64(j->frame + KVI_CHUNK_PAYLOAD_AT, r->sequence);
	kvi_store64(j->frame + KVI_CHUNK_PAYLOAD_AT + 8, r->offset);
	return true;
}

/*
 * Whether a chain value names all that the elements of a segment depend on: the track holds its
 * text from the first token on, and no id stands for something that it does not say.
 */
static bool may_chain(const struct kvi_segment *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->ids[i] < 0 || s->positions[i] != (int64_t)(s->t0 + i))
			return false;
	return s->has_ids;
}

/* The chain value of a segment (spec 5.3), where it may have one; *before: of what precedes it. */
static kvarc_ret link_chain(kvarc_writer *w, struct kvi_segment *s, struct kvi_chain *before)
{
	struct kvi_chain *chain = &w->tracks[s->track].chain;
	kvarc_ret ret = KVARC_OK;
	bool changed = w->options.lossy && !kvi_identity_get(&w->identity, "lossy");
	s->has_chain = !changed && may_chain(s) && (chain->known || s->t0 == 0);
	s->chain = (struct kvi_h128){ 0, 0 };
	if (s->has_chain && s->t0 == 0)
		ret = kvi_chain_root(&chain->value, &w->content, w->geometry_hash, &w->identity);
	*before = (struct kvi_chain){ s->has_chain, chain->value };
	if (s->has_chain && !ret)
		ret = kvi_chain_link(&s->chain, &w->content, chain->value, s, s->n);
	*chain = (struct kvi_chain){ s->has_chain, s->chain };
	return ret ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

/* The SEGMENT frame. */
kvarc_ret kvi_writer_begin_segment(kvarc_writer *w, struct kvi_open_segment *s)
{
	struct kvi_out *out = &w->content;
	struct kvi_chain before;
	kvarc_ret ret = link_chain(w, &s->s, &before);
	if (ret)
		return ret;
	struct kvi_index_entry entry = { .tensor = s->s.track,
		                         .segment = s->s.t0,
		                         .n = s->s.n,
		                         .has_chain = s->s.has_chain,
		                         .chain = s->s.chain };
	s->begun = true;
	s->sequence = w->sequence;
	w->segment_repeats = false;
	out->n = 0;
	kvi_segment_put(out, &s->s);
	if (out->failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	ret = kvi_writer_keep_segment(w, &s->s, before);
	return ret ? ret
	           : kvi_writer_emit_content(w, KVI_FRAME_SEGMENT, out->p, out->n, true, &entry);
}

kvarc_ret kvi_writer_end_segment(kvarc_writer *w, const struct kvi_open_segment *s)
{
	struct kvi_writer_track *t = &w->tracks[s->s.track];
	t->n_written += s->s.n;
	t->n_committed = t->n_written;
	return kvi_writer_emit_commit(w, NULL);
}

kvarc_ret kvi_writer_count(kvarc_writer *w, uint32_t tensor, uint32_t raw_bytes)
{
	w->stats.chunks++;
	w->stats.raw_bytes += raw_bytes;
	w->stats.elements += raw_bytes / kvarc_dtype_bytes(w->geometry.tensors[tensor].dtype);
	const kvarc_common *c = &w->options.common;
	if (c->progress && c->progress(c->progress_opaque, w->stats.raw_bytes, KVARC_UNKNOWN))
		return kvi_fail(w->error, KVARC_IO, "stopped on request");
	return KVARC_OK;
}

/* What of another encoder is written. */
static void count_given(const struct kvi_encode_job *j)
{
	if (!j->given)
		return;
	j->w->coder_verified |= j->verifies;
	j->w->coder_taken.chunks++;
	j->w->coder_taken.bytes += KVI_CHUNK_HEADER_BYTES + j->coded.payload_bytes;
}

static kvarc_ret write_chunk(struct kvi_encode_job *j)
{
	kvarc_writer *w = j->w;
	const struct kvi_group *g = j->group;
	const struct kvi_segment *s = &j->segment->s;
	count_given(j);
	bool repeat = try_repeat(j);
	const bool model = kvi_codec_uses_prediction(j->coded.codec);
	const bool linear = kvi_codec_predicts(j->coded.codec);
	kvarc_ret ret = j->segment->begun ? KVARC_OK : kvi_writer_begin_segment(w, j->segment);
	if (!ret)
		ret = use_params(j);
	if (ret)
		return ret;
	struct kvi_chunk_header h = { .tensor = g->tensor,
		                      .head = g->head,
		                      .heads = g->heads,
		                      .segment = j->segment->sequence,
		                      .params = linear                 ? w->predictor_sequence
		                                : j->coded.uses_params ? g->params_sequence
		                                                       : 0,
		                      .codec = j->coded.codec,
		                      .cut = j->coded.cut,
		                      .n = (uint16_t)s->n,
		                      .t0 = (uint32_t)s->t0,
		                      .raw_check = j->coded.raw_check };
	struct kvi_index_entry entry = { .tensor = h.tensor,
		                         .head = h.head,
		                         .heads = h.heads,
		                         .segment = h.segment,
		                         .params = h.params };
	struct kvi_repeat seen = { .hash = j->raw_hash,
		                   .bytes = j->raw_bytes,
		                   .sequence = w->sequence,
		                   .offset = w->offset,
		                   .raw_check = h.raw_check,
		                   .n_tokens = s->n,
		                   .stream_size = h.cut.stream_size };
	kvi_chunk_header_write(j->frame + KVI_FRAME_HEAD_BYTES, &h);
	ret = kvi_writer_emit(w, KVI_FRAME_CHUNK, j->frame,
	                      (uint32_t)(KVI_CHUNK_HEADER_BYTES + j->coded.payload_bytes),
	                      j->raw_bytes, &entry);
	if (ret)
		return ret;
	/* Readers want what a repeated chunk is predicted from in place (spec
	 * repeat). */
	w->segment_repeats = w->segment_repeats || repeat;
	if (w->repeats && !repeat && !model && !j->coded.refers && !(linear && w->segment_repeats))
		kvi_repeat_add(w->repeats, &seen);
	ret = repeat ? KVARC_OK : kvi_writer_keep_state(j, seen.sequence, seen.offset);
	if (ret)
		return ret;
	return kvi_writer_count(w, g->tensor, j->raw_bytes);
}

/* Waits for the oldest job and, while nothing failed before, writes its chunk. */
static kvarc_ret finish_job(kvarc_writer *w, kvarc_ret before)
{
	struct kvi_encode_job *j = &w->jobs[w->first_job];
	struct kvi_open_segment *s = j->segment;
	kvarc_ret ret = before;
	w->first_job = (w->first_job + 1) % w->n_jobs;
	w->n_busy--;
	kvi_pool_wait(w->pool, &j->job);
	j->group->busy = false;
	if (ret == KVARC_OK && j->ret) {
		ret = j->ret;
		if (w->error)
			*w->error = j->error;
	} else if (ret == KVARC_OK) {
		ret = write_chunk(j);
	}
	drop_params(j);
	if (--s->left)
		return ret;
	kvi_feature_table_close(s->features);
	s->features = NULL;
	return ret ? ret : kvi_writer_end_segment(w, s);
}

/* What a tensor with a model does in a segment. */
static uint8_t slot_flags(const kvarc_writer *w, const struct kvi_group *g,
                          const struct kvi_open_segment *s)
{
	const struct kvi_prediction *p = w->tracks[s->s.track].prediction;
	return KVI_SLOT_WANTED | KVI_SLOT_LINEAR | KVI_SLOT_WHOLE |
	       (p && kvi_prediction_covers(p, g->order_index) ? KVI_SLOT_PREDICTION : 0);
}

/* The features of a segment's tensors; NULL when no tensor of the track has a model. */
static kvarc_ret open_features(kvarc_writer *w, struct kvi_open_segment *s)
{
	const uint32_t track = s->s.track;
	const struct kvi_writer_track *t = &w->tracks[track];
	uint32_t first = w->order.first[track], end = w->order.first[track + 1];
	bool any = false;
	s->features = NULL;
	for (uint32_t i = first; w->plan && i < end; i++)
		any = any || w->plan->of[i].complete;
	if (!any)
		return KVARC_OK;
	kvarc_ret ret = kvi_feature_table_open(&s->features, &w->alloc, w->plan, &w->order, track);
	if (ret)
		return kvi_fail_alloc(w->error, &w->alloc);
	s->features->pool = w->pool;
	for (uint32_t i = t->first_group; i < t->end_group; i++) {
		const struct kvi_group *g = &w->groups[i];
		if (w->plan->of[g->order_index].model)
			kvi_feature_slot(s->features, g->order_index)->flags = slot_flags(w, g, s);
	}
	kvi_feature_table_plan(s->features);
	return KVARC_OK;
}

/* Whether elements are wanted before the job runs, or longer than that: by a device's encoder, a
 * model, or later chunks. */
static bool outlive_job(const kvarc_writer *w, const struct kvi_group *g)
{
	return w->options.common.overlap || w->coder || w->options.level >= KVI_LEVEL_MODEL ||
	       kvi_writer_keeps_states(w, g);
}

/* Memory that a job does not have, but needs for a segment. Returns OK, MEM, MEMLIMIT. */
static kvarc_ret reserve(kvarc_writer *w, struct kvi_encode_job *j, bool own, bool again)
{
	if (own && !j->own)
		j->own = kvi_malloc(&w->alloc, w->chunk_max);
	if (again && !j->again)
		j->again = kvi_malloc(&w->alloc, w->chunk_max);
	return (own && !j->own) || (again && !j->again) ? kvi_fail_alloc(w->error, &w->alloc)
	                                                : KVARC_OK;
}

/* Whether the library's encoder tries no other codec for want of space. */
static bool is_small(size_t bytes, size_t raw_bytes)
{
	return bytes <= raw_bytes - raw_bytes / 16;
}

/* Whether it would keep a payload with these parameters, and neither fit new ones nor try Zstandard
 * (chunk_encode.c). */
static bool fits(const struct kvi_group *g, const struct kvi_coded_chunk *c, size_t raw_bytes)
{
	const struct kvi_params *p = g->params;
	const size_t bytes = c->payload_bytes - KVI_CHUNK_HEADER_BYTES;
	return c->payload_bytes > KVI_CHUNK_HEADER_BYTES && c->elements &&
	       is_small(bytes, raw_bytes) && p && p->codec == c->codec &&
	       g->params_sequence == c->params_sequence &&
	       !kvi_params_drifted(p, bytes, c->elements);
}

/* The payload's own header says how it is cut, and its check. */
static kvarc_ret take_header(struct kvi_encode_job *j, const struct kvi_coded_chunk *c)
{
	const size_t bytes = c->payload_bytes;
	const struct kvi_group *g = j->group;
	struct kvi_chunk_header h;
	if (!kvi_chunk_header_parse(&h, j->frame + KVI_FRAME_HEAD_BYTES, bytes) ||
	    h.tensor != g->tensor || h.head != g->head || h.heads != g->heads ||
	    h.n != j->segment->s.n || h.codec != c->codec)
		return kvi_fail(&j->error, KVARC_DATA,
		                "the encoder of tensor %u gave a chunk that is not the one that "
		                "was asked for",
		                (unsigned)g->tensor);
	j->coded = (struct kvi_encoded){ .codec = h.codec,
		                         .cut = h.cut,
		                         .raw_check = h.raw_check,
		                         .uses_params = kvi_codec_has_params(h.codec),
		                         .payload = j->frame + KVI_CHUNK_PAYLOAD_AT,
		                         .payload_bytes = bytes - KVI_CHUNK_HEADER_BYTES };
	return KVARC_OK;
}

/* Takes what w->coder has of the chunk of a job, if the library's encoder would write the same:
 * fills given, raw_bytes, raw_hash, coded. Returns OK, IO, DATA; then error is filled. */
static kvarc_ret take_coded(struct kvi_encode_job *j)
{
	kvarc_writer *w = j->w;
	const struct kvi_append_coder *x = w->coder;
	const struct kvi_group *g = j->group;
	struct kvi_coded_chunk c;
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	const struct kvi_segment *s = &j->segment->s;
	j->raw_bytes = s->n * g->heads * t->channels * (uint32_t)kvarc_dtype_bytes(t->dtype);
	if (!x->find(x->opaque, g->tensor, g->head, (uint32_t)(s->t0 - w->coder_t0), &c) ||
	    !fits(g, &c, j->raw_bytes))
		return KVARC_OK;
	if (x->copy(x->opaque, j->frame + KVI_FRAME_HEAD_BYTES))
		return kvi_fail(&j->error, KVARC_IO,
		                "copying a chunk of tensor %u from its encoder failed",
		                (unsigned)g->tensor);
	j->raw_hash = c.hash;
	j->given = true;
	return take_header(j, &c);
}

static kvarc_ret submit(kvarc_writer *w, struct kvi_open_segment *s, struct kvi_group *group,
                        kvarc_fetch fetch, void *opaque)
{
	while (w->n_busy == w->n_jobs || group->busy) {
		kvarc_ret ret = finish_job(w, KVARC_OK);
		if (ret)
			return ret;
	}
	struct kvi_kept_state before;
	kvarc_ret ret = kvi_writer_reference(w, group, &s->s, &before);
	if (ret)
		return ret;
	if (w->n_busy == 0)
		w->first_job = 0; /* whose memory is still in caches */
	struct kvi_encode_job *j = &w->jobs[(w->first_job + w->n_busy) % w->n_jobs];
	const bool own = outlive_job(w, group);
	ret = reserve(w, j, own, s->verifies);
	if (ret)
		return ret;
	w->n_busy++;
	j->job.run = kvi_writer_encode;
	j->w = w;
	j->group = group;
	j->segment = s;
	j->raw = own ? j->own : NULL;
	j->features = s->features && w->plan->of[group->order_index].model ? s->features : NULL;
	j->prediction = j->features && kvi_feature_slot(s->features, group->order_index)->flags &
	                                        KVI_SLOT_PREDICTION
	                        ? w->tracks[s->s.track].prediction
	                        : NULL;
	j->observed = j->exact = j->given = false;
	j->fetched = w->options.common.overlap || w->coder;
	j->fetch = fetch;
	j->fetch_opaque = opaque;
	j->before = before;
	j->coded = (struct kvi_encoded){ 0 };
	j->frame = j->memory;
	group->busy = true;
	j->ret = w->coder ? take_coded(j) : KVARC_OK;
	j->verifies = s->verifies && (j->given || w->options.flags & KVARC_WRITE_VERIFY);
	if (j->fetched && !j->ret && !j->given)
		kvi_writer_get_elements(j);
	kvi_pool_submit(w->pool, &j->job);
	return KVARC_OK;
}

kvarc_ret kvi_writer_drain(kvarc_writer *w, kvarc_ret ret)
{
	while (w->n_busy)
		ret = finish_job(w, ret);
	for (unsigned i = 0; i < 2; i++) {
		struct kvi_open_segment *s = &w->segments[i];
		kvi_feature_table_close(s->features);
		s->features = NULL;
		s->left = 0;
	}
	return ret;
}

/* Ids that the model does not have are stored, and so are those behind them. */
static kvarc_ret code_ids(kvarc_writer *w, struct kvi_segment *s)
{
	struct kvi_writer_track *t = &w->tracks[s->track];
	if (!t->ids)
		return KVARC_OK;
	kvarc_ret ret = kvi_token_coder_pass(t->ids, s, true, w->error);
	if (ret) {
		kvi_token_coder_close(t->ids);
		t->ids = NULL;
	}
	return ret == KVARC_DATA ? KVARC_OK : ret;
}

kvarc_ret kvi_writer_segment(kvarc_writer *w, const struct kvi_segment *segment,
                             const struct kvi_taken *taken, kvarc_fetch fetch, void *opaque)
{
	const struct kvi_writer_track *t = &w->tracks[segment->track];
	struct kvi_open_segment *s = &w->segments[w->next_segment];
	kvarc_ret ret = KVARC_OK;
	w->next_segment ^= 1;
	while (s->left && ret == KVARC_OK)
		ret = finish_job(w, ret);
	if (ret)
		return ret;
	s->s = *segment;
	s->taken = *taken;
	s->begun = false;
	s->verifies = w->options.flags & KVARC_WRITE_VERIFY || (w->coder && !w->coder_verified);
	if (t->first_group == t->end_group) {
		ret = kvi_writer_drain(w, ret);
		ret = ret ? ret : kvi_writer_begin_segment(w, s);
		return ret ? ret : kvi_writer_end_segment(w, s);
	}
	ret = code_ids(w, &s->s);
	if (!ret)
		ret = open_features(w, s);
	if (ret)
		return ret;
	s->left = t->end_group - t->first_group;
	for (uint32_t g = t->first_group; g < t->end_group && !ret; g++)
		ret = submit(w, s, &w->groups[g], fetch, opaque);
	return ret;
}

static kvarc_ret start_jobs(kvarc_writer *w)
{
	size_t capacity =
		(size_t)kvi_frame_bytes(w->chunk_max + KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES);
	/* Enough jobs to keep every worker busy while the caller reads and writes. */
	w->n_jobs = kvi_pool_jobs(w->pool);
	w->jobs = kvi_calloc(&w->alloc, w->n_jobs, sizeof *w->jobs);
	if (!w->jobs)
		return kvi_fail_alloc(w->error, &w->alloc);
	for (unsigned i = 0; i < w->n_jobs; i++) {
		struct kvi_encode_job *j = &w->jobs[i];
		j->w = w;
		j->memory = kvi_malloc(&w->alloc, capacity);
		if (w->options.level >= KVI_LEVEL_MODEL)
			j->expected = kvi_array(&w->alloc, w->chunk_max, sizeof *j->expected);
		if (w->options.level >= KVI_LEVEL_PREDICTED)
			j->predicted = kvi_malloc(&w->alloc, w->chunk_max);
		if (!j->memory || (!j->predicted && w->options.level >= KVI_LEVEL_PREDICTED) ||
		    (!j->expected && w->options.level >= KVI_LEVEL_MODEL))
			return kvi_fail_alloc(w->error, &w->alloc);
	}
	return KVARC_OK;
}

kvarc_ret kvi_writer_start(kvarc_writer *w)
{
	w->started = true;
	if (w->n_groups == 0)
		return KVARC_OK;
	if (w->plan && !w->predictor_sequence) {
		kvarc_ret done = kvi_writer_emit_profile(w);
		if (done)
			return done;
	}
	const kvarc_common *c = &w->options.common;
	kvarc_ret ret = (c->overlap ? kvi_pool_open_beside : kvi_pool_open)(&w->pool, &w->alloc,
	                                                                    c->threads);
	if (ret == KVARC_OK)
		ret = kvi_coder_tables_open(&w->tables, &w->alloc);
	if (ret == KVARC_OK && w->options.lossy)
		ret = kvi_coder_tables_lossy(w->tables);
	if (ret)
		return kvi_fail_alloc(w->error, &w->alloc);
	w->n_coders = kvi_pool_workers(w->pool);
	w->coders = kvi_calloc(&w->alloc, w->n_coders, sizeof(void *));
	if (!w->coders)
		return kvi_fail_alloc(w->error, &w->alloc);
	for (unsigned i = 0; i < w->n_coders; i++) {
		if (kvi_coder_open(&w->coders[i], &w->alloc, w->tables, w->options.common.isa_mask))
			return kvi_fail_alloc(w->error, &w->alloc);
		kvi_coder_share(w->coders[i], w->pool);
	}
	if (!(w->options.flags & KVARC_WRITE_STREAMABLE)) {
		w->repeats = kvi_repeat_open(&w->alloc);
		if (!w->repeats)
			return kvi_fail_alloc(w->error, &w->alloc);
	}
	return start_jobs(w);
}

kvarc_ret kvi_writer_keep_segment(kvarc_writer *w, const struct kvi_segment *s,
                                  struct kvi_chain before)
{
	struct kvi_writer_track *t = &w->tracks[s->track];
	if (w->options.flags & KVARC_WRITE_STREAMABLE)
		return KVARC_OK;
	struct kvi_kept_segment *k = kvi_list_add(&t->kept, &w->alloc, sizeof *k);
	if (!k)
		return kvi_fail_alloc(w->error, &w->alloc);
	*k = (struct kvi_kept_segment){ s->t0, s->n, before, t->kept_contents.n, w->content.n };
	kvi_put_bytes(&t->kept_contents, w->content.p, w->content.n);
	return t->kept_contents.failed ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}
