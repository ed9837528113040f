/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.c - decodes a chunk: frame, payload, raw_check, features; repeats and references */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "reader_decode.h"
#include "reader_frames.h"
#include "reader_prediction.h"
#include "reader_segments.h"
#include "reader_state.h"

/* ==== Decodes a chunk: frame, payload, raw_check, features ==== */

/* One chunk frame in memory, ready to be decoded. */
struct chunk_piece {
	const struct kvi_frame *frame;
	const struct kvi_chunk_header *h;
	const int32_t *positions;           /* NULL: not known */
	const struct kvi_params_use *use;   /* NULL: the codec has none */
	const struct kvi_linear_in *linear; /* codec linear */
	struct kvi_features *features;      /* NULL: nobody needs them */
	const uint8_t *before;              /* codec state: elements that it refers to, or NULL */
	uint32_t from, to;                  /* the tokens of the chunk that are needed; to 0: all */
	unsigned helpers;                   /* threads that wait for it */
};

static kvarc_ret open_payload(const kvarc_reader *r, const struct chunk_piece *p,
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
static kvarc_ret close_payload(const kvarc_reader *r, const struct chunk_piece *p, kvarc_ret ret,
                               uint64_t raw_check, kvarc_error *e)
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

/* Decodes a payload and compares raw_check. */
static kvarc_ret piece_decode(kvarc_reader *r, struct kvi_coder *coder, const struct chunk_piece *p,
                              uint8_t *raw, kvarc_error *e)
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

static struct chunk_piece piece_of(const struct kvi_decode_job *j, const struct kvi_chunk_header *h)
{
	struct chunk_piece p = { .frame = &j->frame,
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
static kvarc_ret find_model(struct kvi_decode_job *j, struct chunk_piece *p,
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
	struct chunk_piece p = piece_of(j, h);
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

static kvarc_ret decode_repeat(struct kvi_decode_job *j, struct kvi_coder *coder,
                               const struct kvi_chunk_header *h);
static kvarc_ret find_reference(struct kvi_decode_job *j, struct kvi_coder *coder,
                                const struct kvi_chunk_header *h, const uint8_t **elements);

static kvarc_ret decode_chunk(struct kvi_decode_job *j, struct kvi_coder *coder,
                              const struct kvi_chunk_header *h)
{
	struct chunk_piece p = piece_of(j, h);
	struct kvi_linear_in in;
	if (h->codec == KVI_CODEC_REPEAT)
		return decode_repeat(j, coder, h);
	kvarc_ret ret = KVARC_OK;
	if (kvi_codec_predicts(h->codec))
		ret = find_model(j, &p, &in);
	else if (h->codec == KVI_CODEC_STATE)
		ret = find_reference(j, coder, h, &p.before);
	if (ret == KVARC_OK)
		ret = piece_decode(j->r, coder, &p, j->raw, &j->error);
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

/* A job from its frame to j->raw and its features, for repeated chunks: a REPEAT is
 * DATA, and nothing is delivered. */
static void decode_job(struct kvi_decode_job *j, struct kvi_coder *coder)
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

/* ==== The chunk that a REPEAT names (spec/codecs/repeat.md) ==== */

static struct kvi_repeated *open_repeated(kvarc_reader *r)
{
	pthread_mutex_lock(&r->predictors.lock);
	if (!r->workers.repeated) {
		r->workers.repeated = kvi_calloc(&r->alloc, 1, sizeof *r->workers.repeated);
		if (r->workers.repeated && pthread_mutex_init(&r->workers.repeated->lock, NULL)) {
			kvi_free(&r->alloc, r->workers.repeated);
			r->workers.repeated = NULL;
		}
	}
	struct kvi_repeated *x = r->workers.repeated;
	pthread_mutex_unlock(&r->predictors.lock);
	return x;
}

void kvi_reader_free_repeated(kvarc_reader *r)
{
	struct kvi_repeated *x = r->workers.repeated;
	if (!x)
		return;
	kvi_segment_use_release(r, x->use);
	kvi_free(&r->alloc, x->job.buffer.p);
	kvi_free(&r->alloc, x->job.scratch.p);
	pthread_mutex_destroy(&x->lock);
	kvi_free(&r->alloc, x);
}

/* Begins a segment: any of its chunks may be repeated. */
static kvarc_ret begin(kvarc_reader *r, struct kvi_repeated *x, const struct kvi_segment_ref *s,
                       uint64_t predictor, kvarc_error *e)
{
	struct kvi_predictor_ref *p = kvi_reader_find_predictor(r, predictor);
	struct kvi_packer packer;
	kvi_segment_use_release(r, x->use);
	kvi_packer_init(&packer, &r->alloc); /* a worker has none */
	kvarc_ret ret = kvi_segment_use_load(r, &packer, s, &x->use, e);
	kvi_packer_free(&packer);
	x->segment = s->sequence;
	x->next = s->first;
	x->order_index = r->order.first[s->track];
	if (ret == KVARC_OK)
		ret = p ? kvi_reader_load_predictor(r, p, e)
		        : kvi_fail_at(e, KVARC_DATA, KVARC_UNKNOWN, predictor,
		                      "the PREDICTOR frame of a repeated chunk is missing");
	if (ret == KVARC_OK)
		ret = kvi_reader_open_features(r, s->track, p->plan, &x->use->features, e);
	if (ret == KVARC_OK)
		kvi_reader_plan_features(r, s, NULL, x->use);
	return ret;
}

/* Goes past one chunk: decodes it when it is the target, or when others are
 * predicted from it. */
static kvarc_ret pass(kvarc_reader *r, struct kvi_repeated *x, const struct kvi_segment_ref *s,
                      const struct kvi_chunk_ref *c, bool target, struct kvi_coder *coder,
                      kvarc_error *e)
{
	struct kvi_decode_job *j = &x->job;
	uint32_t order_index;
	if (!kvi_reader_order_index(r, s, c, &x->order_index, &order_index) ||
	    c->heads != r->geometry.tensors[c->tensor].heads)
		return KVARC_OK;
	if (!target && !kvi_feature_slot(x->use->features, order_index)->asked) {
		kvi_feature_table_leave(x->use->features, order_index);
		return KVARC_OK;
	}
	struct kvi_packer packer;
	kvi_packer_init(&packer, &r->alloc);
	kvarc_ret ret = kvi_reader_params(r, &packer, c, &j->params, e);
	kvi_packer_free(&packer);
	if (ret) {
		kvi_feature_table_leave(x->use->features, order_index);
		return target ? ret : KVARC_OK;
	}
	kvi_reader_assign(r, j, s, c, x->use, order_index);
	decode_job(j, coder);
	kvi_params_store_release(&r->workers.store, j->params);
	j->params = NULL;
	if (j->ret)
		*e = j->error;
	return target ? j->ret : KVARC_OK; /* chunks that need its features report it */
}

/* Passes all chunks up to the one with this sequence number. */
static kvarc_ret go_to(kvarc_reader *r, struct kvi_repeated *x, const struct kvi_segment_ref *s,
                       uint64_t sequence, struct kvi_coder *coder, kvarc_error *e)
{
	kvarc_ret ret = KVARC_OK;
	while (x->next < s->end && ret == KVARC_OK) {
		const struct kvi_chunk_ref *c = KVI_LIST(struct kvi_chunk_ref, r->index.chunks,
		                                         x->next++);
		ret = pass(r, x, s, c, c->sequence == sequence, coder, e);
		if (c->sequence == sequence)
			return ret;
	}
	return ret ? ret
	           : kvi_fail_at(e, KVARC_DATA, KVARC_UNKNOWN, sequence,
	                         "a repeated chunk is not in its segment");
}

/* A chunk of codec linear of this or another segment; its features are made on the way. */
static kvarc_ret decode_linear(kvarc_reader *r, struct kvi_coder *coder, const struct kvi_frame *f,
                               const struct kvi_chunk_header *h, uint8_t *raw, kvarc_error *e)
{
	const struct kvi_segment_ref *s = kvi_index_segment(&r->index, h->segment);
	struct kvi_repeated *x = open_repeated(r);
	kvarc_ret ret = KVARC_OK;
	if (!s || s->stored || s->n != h->n)
		return kvi_reader_bad(f, e, "its SEGMENT is missing");
	if (!x)
		return kvi_fail_alloc(e, &r->alloc);
	pthread_mutex_lock(&x->lock);
	if (!x->use || x->segment != s->sequence || x->next >= s->end ||
	    KVI_LIST(struct kvi_chunk_ref, r->index.chunks, x->next)->sequence > f->head.sequence)
		ret = begin(r, x, s, h->params, e);
	if (ret == KVARC_OK)
		ret = go_to(r, x, s, f->head.sequence, coder, e);
	if (ret == KVARC_OK)
		memcpy(raw, x->job.scratch.p, f->head.decoded_bytes);
	else if (x->use) { /* from the first chunk again next time */
		kvi_segment_use_release(r, x->use);
		x->use = NULL;
	}
	pthread_mutex_unlock(&x->lock);
	return ret;
}

/* Whether a chunk refers to another one (spec/codecs/state.md). */
static bool refers(const struct kvi_frame *f, const struct kvi_chunk_header *h)
{
	uint64_t sequence, offset;
	return h->codec == KVI_CODEC_STATE &&
	       kvi_state_reference(f->payload + KVI_CHUNK_HEADER_BYTES,
	                           f->head.payload_bytes - KVI_CHUNK_HEADER_BYTES, &sequence,
	                           &offset);
}

kvarc_ret kvi_reader_decode_target(kvarc_reader *r, struct kvi_coder *coder,
                                   const struct kvi_frame *f, uint8_t *raw, kvarc_error *e)
{
	struct kvi_packer packer;
	struct kvi_params_use *use = NULL;
	struct kvi_segment *segment = NULL;
	struct kvi_chunk_header h;
	struct chunk_piece p = { .frame = f, .h = &h };
	kvarc_ret ret = KVARC_OK;
	kvi_packer_init(&packer, &r->alloc);
	if (!kvi_chunk_header_parse(&h, f->payload, f->head.payload_bytes))
		ret = kvi_reader_bad(f, e, "its header is not valid");
	if (ret == KVARC_OK)
		ret = kvi_chunk_check(&r->geometry, &h, f, e);
	if (ret == KVARC_OK && kvi_codec_uses_prediction(h.codec))
		ret = kvi_reader_bad(f, e, "a chunk that a model predicts cannot be repeated");
	if (ret == KVARC_OK && refers(f, &h))
		ret = kvi_reader_bad(f, e,
		                     "a chunk with a reference cannot be repeated, or be "
		                     "one itself");
	if (ret == KVARC_OK && kvi_codec_predicts(h.codec)) {
		kvi_packer_free(&packer);
		return decode_linear(r, coder, f, &h, raw, e);
	}
	if (ret == KVARC_OK) {
		const struct kvi_chunk_ref c = kvi_chunk_ref(f, &h);
		ret = kvi_reader_params(r, &packer, &c, &use, e);
	}
	if (ret == KVARC_OK && use && kvi_params_rotates(use->params)) {
		const struct kvi_segment_ref *ref = kvi_index_segment(&r->index, h.segment);
		segment = kvi_malloc(&r->alloc, sizeof *segment);
		if (!segment)
			ret = kvi_fail_alloc(e, &r->alloc);
		else if (!ref || !ref->offset || ref->stored || ref->n != h.n)
			ret = kvi_reader_bad(f, e, "its SEGMENT is missing");
		else
			ret = kvi_reader_read_segment(r, &packer, ref, segment, e);
		p.positions = ret ? NULL : segment->positions;
	}
	p.use = use;
	if (ret == KVARC_OK)
		ret = piece_decode(r, coder, &p, raw, e);
	kvi_params_store_release(&r->workers.store, use);
	kvi_free(&r->alloc, segment);
	kvi_packer_free(&packer);
	return ret;
}

/* Reads the earlier frame, a CHUNK, that the chunk of a job names: *f lies in j->other. Returns OK,
 * MEM, MEMLIMIT, DATA, IO, OPTIONS (a source that cannot seek). */
static kvarc_ret read_earlier(struct kvi_decode_job *j, uint64_t sequence, uint64_t offset,
                              struct kvi_frame *f)
{
	kvarc_reader *r = j->r;
	if (!kvi_input_seekable(&r->in))
		return kvi_reason(
			&j->error, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(
				&j->error, KVARC_OPTIONS, j->frame.offset, j->frame.head.sequence,
				"the chunk at offset %llu needs an "
				"earlier one: this file needs a source that can seek, not a pipe",
				(unsigned long long)j->frame.offset));
	if (sequence >= j->frame.head.sequence || offset >= j->frame.offset ||
	    offset % KVI_FRAME_ALIGN)
		return kvi_reader_bad(&j->frame, &j->error, "it names a later frame");
	return kvi_reader_read_frame(r, offset, KVI_FRAME_CHUNK, sequence, &j->other, f, &j->error);
}

/* The bytes that a REPEAT names, into j->raw. */
static kvarc_ret decode_repeat(struct kvi_decode_job *j, struct kvi_coder *coder,
                               const struct kvi_chunk_header *h)
{
	kvarc_reader *r = j->r;
	const uint8_t *p = j->frame.payload + KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header there;
	struct kvi_frame f;
	if (j->frame.head.payload_bytes != KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES)
		return kvi_reader_bad(&j->frame, &j->error, "its size");
	kvarc_ret ret = read_earlier(j, kvi_load64(p), kvi_load64(p + 8), &f);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(&there, f.payload, f.head.payload_bytes) ||
	    there.codec == KVI_CODEC_REPEAT || there.raw_check != h->raw_check ||
	    there.cut.stream_size != h->cut.stream_size || there.n != h->n ||
	    f.head.decoded_bytes != j->frame.head.decoded_bytes)
		return kvi_reader_bad(&j->frame, &j->error, "what it repeats differs");
	return kvi_reader_decode_target(r, coder, &f, j->raw, &j->error);
}

/* ==== The elements of the chunk that a state refers to (spec state 3) ==== */

/* Whether a chunk has the rows, columns and dtype of the one that refers to it. */
static bool fits(const struct kvi_decode_job *j, const struct kvi_chunk_header *h,
                 const struct kvi_frame *f, const struct kvi_chunk_header *there)
{
	const kvarc_tensor *tensors = j->r->geometry.tensors;
	return kvi_state_may_refer(there->codec) && there->n == h->n &&
	       f->head.decoded_bytes == j->frame.head.decoded_bytes &&
	       there->tensor < j->r->geometry.n_tensors &&
	       tensors[there->tensor].dtype == tensors[h->tensor].dtype;
}

/* The elements that a chunk of codec state refers to, in j->expected; NULL: it refers to none. */
static kvarc_ret find_reference(struct kvi_decode_job *j, struct kvi_coder *coder,
                                const struct kvi_chunk_header *h, const uint8_t **elements)
{
	kvarc_reader *r = j->r;
	struct kvi_chunk_header there;
	struct kvi_frame f;
	uint64_t sequence, offset;
	*elements = NULL;
	if (!kvi_state_reference(j->frame.payload + KVI_CHUNK_HEADER_BYTES,
	                         j->frame.head.payload_bytes - KVI_CHUNK_HEADER_BYTES, &sequence,
	                         &offset))
		return KVARC_OK;
	kvarc_ret ret = read_earlier(j, sequence, offset, &f);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(&there, f.payload, f.head.payload_bytes) ||
	    !fits(j, h, &f, &there))
		return kvi_reader_bad(&j->frame, &j->error, "what it refers to differs");
	if (!kvi_buffer_grow(&j->expected, &r->alloc, f.head.decoded_bytes, 0))
		return kvi_fail_alloc(&j->error, &r->alloc);
	*elements = j->expected.p;
	return kvi_reader_decode_target(r, coder, &f, j->expected.p, &j->error);
}
