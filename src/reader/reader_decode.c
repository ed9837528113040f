/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.c - decodes a chunk: frame, payload, raw_check, features */
#include "reader_decode.h"

static kvarc_ret open_payload(const kvarc_reader *r, const struct kvi_chunk_piece *p,
                              struct kvi_chunk *chunk, struct kvi_chunk_payload *payload,
                              kvarc_error *e)
{
	const kvarc_tensor *t = &r->geometry.tensors[p->h->tensor];
	const struct kvi_params *params = p->use ? p->use->params : NULL;
	*chunk = (struct kvi_chunk){ .dtype = t->dtype,
		                     .n_tokens = p->h->n,
		                     .heads = p->h->heads,
		                     .head_channels = t->channels,
		                     .positions = p->positions,
		                     .rope = kvi_tensor_rope(&r->geometry, t),
		                     .from = p->from,
		                     .to = p->to,
		                     .helpers = p->helpers,
		                     .linear = p->linear,
		                     .before = p->before,
		                     .features = p->features };
	*payload =
		(struct kvi_chunk_payload){ chunk,
		                            p->h->codec,
		                            p->h->cut,
		                            params,
		                            p->frame->payload + KVI_CHUNK_HEADER_BYTES,
		                            p->frame->head.payload_bytes - KVI_CHUNK_HEADER_BYTES };
	if (kvi_codec_lossy(p->h->codec) && !r->allow_lossy)
		return kvi_fail_at(e, KVARC_LOSSY, p->frame->offset, p->frame->head.sequence,
		                   "tokens from %llu on of tensor %u were changed by a lossy tier "
		                   "(\"%s\")",
		                   (unsigned long long)p->h->t0, (unsigned)p->h->tensor,
		                   kvi_codec_name(p->h->codec));
	if (p->use && p->use->header.codec != p->h->codec)
		return kvi_reader_bad(p->frame, e, "its PARAMS are of another codec");
	if (!p->positions && params && kvi_params_rotates(params))
		return kvi_reader_bad(p->frame, e, "the positions of its tokens are lost");
	return KVARC_OK;
}

/* What came of it. */
static kvarc_ret close_payload(const kvarc_reader *r, const struct kvi_chunk_piece *p,
                               kvarc_ret ret, uint64_t raw_check, kvarc_error *e)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(e, &r->alloc);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			e, KVARC_REASON_NEWER,
			kvi_fail_at(e, ret, p->frame->offset, p->frame->head.sequence,
		                    "a newer version of kvarc is needed for the chunk at offset "
		                    "%llu",
		                    (unsigned long long)p->frame->offset));
	if (ret == KVARC_PREDICTOR && kvi_codec_uses_prediction(p->h->codec))
		return kvi_fail_at(e, ret, p->frame->offset, p->frame->head.sequence,
		                   "diverged at layer %u, segment %llu (from token %llu): this "
		                   "machine's predictor is not exact, or that of the machine that "
		                   "wrote the archive was not",
		                   (unsigned)r->geometry.tensors[p->h->tensor].layer,
		                   (unsigned long long)p->h->segment, (unsigned long long)p->h->t0);
	if (ret == KVARC_PREDICTOR)
		return kvi_fail_at(e, ret, p->frame->offset, p->frame->head.sequence,
		                   "the profile is not one for the chunk at offset %llu",
		                   (unsigned long long)p->frame->offset);
	if (ret)
		return kvi_reader_bad(p->frame, e, "its payload does not decode");
	if (raw_check != p->h->raw_check)
		return kvi_reader_bad(p->frame, e, "raw_check does not hold");
	return KVARC_OK;
}

kvarc_ret kvi_piece_decode(kvarc_reader *r, struct kvi_coder *coder,
                           const struct kvi_chunk_piece *p, uint8_t *raw, kvarc_error *e)
{
	struct kvi_chunk chunk;
	struct kvi_chunk_payload in;
	kvarc_ret ret = open_payload(r, p, &chunk, &in, e);
	if (ret)
		return ret;
	uint64_t raw_check = 0;
	ret = kvi_chunk_decode(coder, &in, raw, &raw_check);
	return close_payload(r, p, ret, raw_check, e);
}

/* The header that was read against what the index or the segment say. */
static bool as_expected(const struct kvi_decode_job *j, const struct kvi_chunk_header *h)
{
	return h->tensor == j->ref.tensor && h->head == j->ref.head && h->heads == j->ref.heads &&
	       h->params == j->ref.params && h->segment == j->segment_sequence && h->t0 == j->t0 &&
	       h->n == j->n;
}

static kvarc_ret get_frame(struct kvi_decode_job *j, struct kvi_chunk_header *h)
{
	kvarc_reader *r = j->r;
	kvarc_ret ret = j->have_frame ? KVARC_OK
	                              : kvi_reader_read_frame(r, j->ref.offset, KVI_FRAME_CHUNK,
	                                                      j->ref.sequence, &j->buffer,
	                                                      &j->frame, &j->error);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(h, j->frame.payload, j->frame.head.payload_bytes))
		return kvi_reader_bad(&j->frame, &j->error, "its header is not valid");
	ret = kvi_chunk_check(&r->geometry, h, &j->frame, &j->error);
	if (ret)
		return ret;
	if (!as_expected(j, h))
		return kvi_reader_bad(&j->frame, &j->error,
		                      "it is not what the index or its segment say");
	j->raw_bytes = j->frame.head.decoded_bytes;
	if (!j->direct && !kvi_buffer_grow(&j->scratch, &r->alloc, j->raw_bytes, 0))
		return kvi_fail_alloc(&j->error, &r->alloc);
	j->raw = j->direct ? j->direct : j->scratch.p;
	return KVARC_OK;
}

static struct kvi_chunk_piece piece_of(const struct kvi_decode_job *j,
                                       const struct kvi_chunk_header *h)
{
	struct kvi_chunk_piece p = { .frame = &j->frame,
		                     .h = h,
		                     .use = j->params,
		                     .positions = j->segment->known ? j->segment->segment.positions
		                                                    : NULL,
		                     .from = j->need_from,
		                     .to = j->need_to,
		                     .helpers = j->helpers };
	return p;
}

/* The features that a job has to make, if any; in: everything but the sources. */
static kvarc_ret make_features(struct kvi_decode_job *j, struct kvi_linear_in *in,
                               struct kvi_features **f)
{
	const kvarc_reader *r = j->r;
	struct kvi_feature_table *t = j->segment->features;
	const struct kvi_model *m = t->plan->of[j->order_index].model;
	*f = NULL;
	kvi_linear_in_init(in, t->plan, j->order_index, &r->geometry, j->ref.tensor,
	                   &j->segment->segment, j->segment->known);
	if (m->rope && !in->positions)
		return kvi_reader_bad(&j->frame, &j->error, "the positions of its tokens are lost");
	in->n_tokens = j->n; /* also where the segment was lost */
	if (kvi_feature_slot(t, j->order_index)->asked &&
	    kvi_feature_table_make(t, j->order_index, j->n, f))
		return kvi_fail_alloc(&j->error, &r->alloc);
	return KVARC_OK;
}

/* What the model expects; check: what it, or with in->predicted P, should come to, if that is
 * known. DATA: there is no prediction. */
static kvarc_ret request_prediction(struct kvi_decode_job *j, struct kvi_linear_in *in,
                                    const uint64_t *check)
{
	const kvarc_reader *r = j->r;
	struct kvi_segment_use *s = j->segment;
	size_t bytes = (size_t)in->model->C * j->n * sizeof(int16_t);
	if (!kvi_buffer_grow(&j->expected, &r->alloc, bytes, 0))
		return kvi_fail_alloc(&j->error, &r->alloc);
	struct kvi_prediction_request a = { .order_index = j->order_index,
		                            .s = &s->segment,
		                            .check = check,
		                            .in = in,
		                            .expected = (int16_t *)(void *)j->expected.p,
		                            .predicted = in->predicted ? j->raw : NULL };
	in->expected = a.expected;
	kvarc_ret ret = kvi_prediction_get(s->prediction, &a);
	const char *why = ret ? kvi_prediction_failure(s->prediction) : NULL;
	if (ret == KVARC_PREDICTOR)
		return kvi_fail_at(&j->error, ret, j->frame.offset, j->frame.head.sequence, "%s",
		                   why ? why : "the predictor failed");
	if (ret)
		return kvi_reader_bad(&j->frame, &j->error,
		                      why ? why : "tokens before it are damaged, or not read");
	return KVARC_OK;
}

static bool has_prediction(const struct kvi_decode_job *j)
{
	return j->features && j->segment->prediction &&
	       kvi_feature_slot(j->segment->features, j->order_index)->flags & KVI_SLOT_PREDICTION;
}

/* The model continues once it has the elements of the chunk. */
static void observe(struct kvi_decode_job *j, const struct kvi_chunk_header *h)
{
	if (!has_prediction(j))
		return;
	j->observed = true;
	kvi_prediction_observe(j->segment->prediction, j->order_index, j->raw,
	                       kvi_feature_slot(j->segment->features, j->order_index)->f,
	                       h->codec == KVI_CODEC_PREDICTED &&
	                               j->frame.head.payload_bytes ==
	                                       KVI_CHUNK_HEADER_BYTES + KVI_PREDICTED_EXACT);
}

/* Codecs linear, model and predicted: the model, and the sources of its prediction. */
static kvarc_ret find_model(struct kvi_decode_job *j, struct kvi_chunk_piece *p,
                            struct kvi_linear_in *in)
{
	struct kvi_segment_use *s = j->segment;
	if (s->predictor_ret) {
		j->error = s->predictor_error;
		return s->predictor_ret;
	}
	if (!s->features)
		return kvi_reader_bad(&j->frame, &j->error, "its PREDICTOR is missing");
	if (!j->features)
		return kvi_reader_bad(&j->frame, &j->error,
		                      "chunks of its segment are out of order");
	if (!s->features->plan->of[j->order_index].model)
		return kvi_fail_at(&j->error, KVARC_PREDICTOR, j->frame.offset,
		                   j->frame.head.sequence,
		                   "the profile has no model of tensor %u, or one of another shape",
		                   (unsigned)j->ref.tensor);
	if (!!(s->features->plan->of[j->order_index].model->flags & KVI_MODEL_BASIS) !=
	    (p->h->codec == KVI_CODEC_KLT))
		return kvi_reader_bad(&j->frame, &j->error, "its PREDICTOR is of another level");
	if (!s->features->plan->of[j->order_index].complete)
		return kvi_reader_bad(&j->frame, &j->error,
		                      "tensors that it is predicted from are not in the file");
	kvarc_ret ret = make_features(j, in, &p->features);
	if (ret)
		return ret;
	if (!kvi_feature_table_wait(s->features, j->order_index, in))
		return kvi_reader_bad(&j->frame, &j->error, "what it is predicted from is damaged");
	p->linear = in;
	if (!has_prediction(j))
		return KVARC_OK;
	struct kvi_in payload = kvi_in_make(j->frame.payload + KVI_CHUNK_HEADER_BYTES,
	                                    j->frame.head.payload_bytes - KVI_CHUNK_HEADER_BYTES);
	uint64_t check = kvi_get64(&payload); /* spec model 4, predicted 2 */
	bool has = kvi_codec_uses_prediction(p->h->codec) && !payload.bad;
	if (p->h->codec == KVI_CODEC_PREDICTED)
		in->predicted = j->raw;
	return request_prediction(j, in, has ? &check : NULL);
}

/* The features of a tensor whose chunk was coded otherwise. */
static kvarc_ret features_of_raw(struct kvi_decode_job *j, struct kvi_coder *coder,
                                 const struct kvi_chunk_header *h)
{
	struct kvi_feature_table *t = j->segment->features;
	struct kvi_feature_slot *slot = kvi_feature_slot(t, j->order_index);
	struct kvi_chunk_piece p = piece_of(j, h);
	struct kvi_linear_in in;
	struct kvi_chunk chunk;
	struct kvi_chunk_payload payload;
	if (!slot->asked || !t->plan->of[j->order_index].model)
		return KVARC_OK;
	bool all = slot->asked == KVI_FEATURES_ALL;
	kvarc_ret ret = make_features(j, &in, &p.features);
	if (ret == KVARC_DATA)
		return KVARC_OK; /* the loss of those who need them */
	if (ret)
		return ret;
	if (all && !kvi_feature_table_wait(t, j->order_index, &in))
		return KVARC_OK;
	p.linear = &in;
	p.use = NULL;
	if (has_prediction(j) && request_prediction(j, &in, NULL))
		return KVARC_OK;
	ret = open_payload(j->r, &p, &chunk, &payload, &j->error);
	if (ret)
		return ret;
	ret = kvi_chunk_features(coder, &chunk, j->raw, !all);
	if (ret == KVARC_DATA)
		return kvi_reader_bad(&j->frame, &j->error,
		                      "a chunk's features lack their sources");
	if (ret)
		return kvi_fail_memory(&j->error, ret, &j->r->alloc);
	kvi_feature_table_publish(t, j->order_index, slot->asked);
	observe(j, h);
	return KVARC_OK;
}

static kvarc_ret decode_chunk(struct kvi_decode_job *j, struct kvi_coder *coder,
                              const struct kvi_chunk_header *h)
{
	struct kvi_chunk_piece p = piece_of(j, h);
	struct kvi_linear_in in;
	if (h->codec == KVI_CODEC_REPEAT)
		return kvi_reader_decode_repeat(j, coder, h);
	kvarc_ret ret = KVARC_OK;
	if (kvi_codec_predicts(h->codec))
		ret = find_model(j, &p, &in);
	else if (h->codec == KVI_CODEC_STATE)
		ret = kvi_reader_reference(j, coder, h, &p.before);
	if (ret == KVARC_OK)
		ret = kvi_piece_decode(j->r, coder, &p, j->raw, &j->error);
	if (ret == KVARC_OK && p.features) {
		kvi_feature_table_publish(j->segment->features, j->order_index, KVI_FEATURES_ALL);
		observe(j, h);
	}
	return ret;
}

/* What others need of the chunk, whatever came of it. */
static void give_features(struct kvi_decode_job *j, struct kvi_coder *coder,
                          const struct kvi_chunk_header *h)
{
	if (!j->features)
		return;
	if (!j->ret && !kvi_codec_predicts(h->codec))
		j->ret = features_of_raw(j, coder, h);
	if (has_prediction(j) && !j->observed)
		kvi_prediction_mark_lost(j->segment->prediction, j->order_index, j->t0);
	kvi_feature_table_leave(j->segment->features, j->order_index);
}

void kvi_reader_decode_job(struct kvi_decode_job *j, struct kvi_coder *coder)
{
	struct kvi_chunk_header h;
	j->ret = get_frame(j, &h);
	if (!j->ret && h.codec == KVI_CODEC_REPEAT)
		j->ret = kvi_reader_bad(&j->frame, &j->error,
		                        "a chunk behind it in its segment is repeated");
	if (!j->ret)
		j->ret = decode_chunk(j, coder, &h);
	give_features(j, coder, &h);
}

/* Elements of a store stand for a raw chunk (spec frames 12.3). */
static void take_stored(struct kvi_decode_job *j, struct kvi_chunk_header *h)
{
	static const uint8_t no_payload[KVI_CHUNK_HEADER_BYTES];
	const kvarc_tensor *t = &j->r->geometry.tensors[j->ref.tensor];
	*h = (struct kvi_chunk_header){ .tensor = j->ref.tensor,
		                        .heads = j->ref.heads,
		                        .codec = KVI_CODEC_RAW,
		                        .n = (uint16_t)j->n,
		                        .t0 = (uint32_t)j->t0 };
	j->frame = (struct kvi_frame){ .offset = j->ref.offset,
		                       .head = { .type = KVI_FRAME_STOREREF,
		                                 .payload_bytes = KVI_CHUNK_HEADER_BYTES,
		                                 .sequence = j->ref.sequence },
		                       .payload = no_payload };
	j->raw_bytes = j->n * kvi_tensor_bytes(t);
	j->raw = (uint8_t *)(uintptr_t)j->stored;
	j->ret = KVARC_OK;
	if (j->direct)
		j->raw = memcpy(j->direct, j->stored, j->raw_bytes);
}

void kvi_reader_run_job(struct kvi_job *job, unsigned worker)
{
	struct kvi_decode_job *j = (struct kvi_decode_job *)job;
	struct kvi_coder *coder = j->r->workers.coders[worker];
	struct kvi_chunk_header h;
	j->raw = NULL;
	if (j->stored) {
		take_stored(j, &h);
	} else {
		j->ret = get_frame(j, &h);
		if (!j->ret)
			j->ret = decode_chunk(j, coder, &h);
	}
	give_features(j, coder, &h);
	/* What was not checked does not stay in the caller's memory. */
	if (j->ret && j->direct && j->raw)
		memset(j->direct, 0, j->raw_bytes);
	if (!j->ret && !j->r->options.common.overlap)
		j->ret = kvi_reader_hand_over(j);
}
