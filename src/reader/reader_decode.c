/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.c - decodes a chunk: frame, payload, raw_check, features; repeats and references */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "reader_decode.h"
#include "reader_frames.h"
#include "reader_lists.h"
#include "reader_prediction.h"
#include "reader_segments.h"
#include "reader_state.h"

/* ==== Decodes a chunk: frame, payload, raw_check, features ==== */

/* A chunk frame in memory, ready to be decoded. */
struct chunk_piece {
	const struct kvi_frame *frame;
	const struct kvi_chunk_header *h;
	const struct kvi_params_use *use; /* NULL: the codec has none */
	struct kvi_decode_request request;
};

/* A chunk of which all is wanted. positions NULL: not known; use NULL: the codec has none. */
static struct chunk_piece piece_of(const kvarc_reader *r, const struct kvi_frame *frame,
                                   const struct kvi_chunk_header *header, const int32_t *positions,
                                   const struct kvi_params_use *use)
{
	const kvarc_tensor *t = &r->geometry.tensors[header->tensor];
	return (struct chunk_piece){
		.frame = frame,
		.h = header,
		.use = use,
		.request = { .chunk = { .dtype = t->dtype,
		                        .n_tokens = header->n,
		                        .heads = header->heads,
		                        .head_channels = t->channels,
		                        .positions = positions,
		                        .rope = kvi_tensor_rope(&r->geometry, t) },
		             .codec = header->codec,
		             .cut = header->cut,
		             .params = use ? use->params : NULL,
		             .payload = frame->payload + KVI_CHUNK_HEADER_BYTES,
		             .payload_bytes = frame->head.payload_bytes - KVI_CHUNK_HEADER_BYTES }
	};
}

/* Fails for a chunk that cannot be decoded, whatever its payload says. */
static kvarc_ret check_piece(const kvarc_reader *r, const struct chunk_piece *piece,
                             kvarc_error *error)
{
	const struct kvi_params *params = piece->request.params;
	if (kvi_codec_lossy(piece->h->codec) && !r->allow_lossy)
		return kvi_fail_at(error, KVARC_LOSSY, piece->frame->offset,
		                   piece->frame->head.sequence,
		                   "tokens from %llu on of tensor %u were changed by a lossy tier "
		                   "(\"%s\")",
		                   (unsigned long long)piece->h->t0, (unsigned)piece->h->tensor,
		                   kvi_codec_name(piece->h->codec));
	if (piece->use && piece->use->header.codec != kvi_codec_params(piece->h->codec))
		return kvi_reader_bad(piece->frame, error, "its PARAMS are of another codec");
	if (!piece->request.chunk.positions && params && kvi_params_rotates(params))
		return kvi_reader_bad(piece->frame, error, "the positions of its tokens are lost");
	return KVARC_OK;
}

/* The result of decoding a payload: fills *error by ret, or where raw_check is wrong. */
static kvarc_ret close_payload(const kvarc_reader *r, const struct chunk_piece *piece,
                               kvarc_ret ret, uint64_t raw_check, kvarc_error *error)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(error, &r->alloc);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, ret, piece->frame->offset, piece->frame->head.sequence,
		                    "a newer version of kvarc is needed for the chunk at offset "
		                    "%llu",
		                    (unsigned long long)piece->frame->offset));
	if (ret == KVARC_PREDICTOR && kvi_codec_uses_prediction(piece->h->codec))
		return kvi_fail_at(error, ret, piece->frame->offset, piece->frame->head.sequence,
		                   "diverged at layer %u, segment %llu (from token %llu): this "
		                   "machine's predictor is not exact, or that of the machine that "
		                   "wrote the archive was not",
		                   (unsigned)r->geometry.tensors[piece->h->tensor].layer,
		                   (unsigned long long)piece->h->segment,
		                   (unsigned long long)piece->h->t0);
	if (ret == KVARC_PREDICTOR)
		return kvi_fail_at(error, ret, piece->frame->offset, piece->frame->head.sequence,
		                   "the profile is not one for the chunk at offset %llu",
		                   (unsigned long long)piece->frame->offset);
	if (ret)
		return kvi_reader_bad(piece->frame, error, "its payload does not decode");
	if (raw_check != piece->h->raw_check)
		return kvi_reader_bad(piece->frame, error, "raw_check does not hold");
	return KVARC_OK;
}

/* Decodes a payload and compares raw_check. */
static kvarc_ret piece_decode(kvarc_reader *r, struct kvi_coder *coder,
                              const struct chunk_piece *piece, uint8_t *raw, kvarc_error *error)
{
	kvarc_ret ret = check_piece(r, piece, error);
	if (ret)
		return ret;
	uint64_t raw_check = 0;
	ret = kvi_chunk_decode(coder, &piece->request, raw, &raw_check);
	return close_payload(r, piece, ret, raw_check, error);
}

/* The header that was read against what the index or the segment say. */
static bool as_expected(const struct kvi_decode_job *job, const struct kvi_chunk_header *header)
{
	return header->tensor == kvi_chunk_named(job->r, &job->task.ref) &&
	       header->head == job->task.ref.head && header->heads == job->task.ref.heads &&
	       header->params == job->task.ref.params &&
	       header->segment == job->task.segment_sequence && header->t0 == job->task.t0 &&
	       header->n == job->task.n;
}

static kvarc_ret get_frame(struct kvi_decode_job *job, struct kvi_chunk_header *header)
{
	kvarc_reader *r = job->r;
	kvarc_ret ret = job->have_frame
	                        ? KVARC_OK
	                        : kvi_reader_read_frame(r, job->task.ref.offset, KVI_FRAME_CHUNK,
	                                                job->task.ref.sequence, &job->buffer,
	                                                &job->frame, &job->error);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(header, job->frame.payload, job->frame.head.payload_bytes))
		return kvi_reader_bad(&job->frame, &job->error, "its header is not valid");
	ret = kvi_chunk_check(&r->geometry, header, &job->frame, &job->error);
	if (ret)
		return ret;
	if (!as_expected(job, header))
		return kvi_reader_bad(&job->frame, &job->error,
		                      "it is not what the index or its segment say");
	job->raw_bytes = job->frame.head.decoded_bytes;
	if (!job->task.direct && !kvi_buffer_grow(&job->scratch, &r->alloc, job->raw_bytes, 0))
		return kvi_fail_alloc(&job->error, &r->alloc);
	job->raw = job->task.direct ? job->task.direct : job->scratch.p;
	return KVARC_OK;
}

static struct chunk_piece job_piece(const struct kvi_decode_job *job,
                                    const struct kvi_chunk_header *header)
{
	const struct kvi_segment_use *s = job->task.segment;
	struct chunk_piece p = piece_of(job->r, &job->frame, header,
	                                s->known ? s->segment.positions : NULL, job->params);
	p.request.wanted = (struct kvi_tokens){ job->task.need_from, job->task.need_to };
	p.request.helpers = job->task.helpers;
	return p;
}

/* The features that a job has to make, if any; in: everything but the sources. */
static kvarc_ret make_features(struct kvi_decode_job *job, struct kvi_linear_in *in,
                               struct kvi_features **features)
{
	const kvarc_reader *r = job->r;
	struct kvi_feature_table *t = job->task.segment->features;
	const struct kvi_model *m = t->plan->of[job->task.order_index].model;
	*features = NULL;
	kvi_linear_in_init(in, t->plan, job->task.order_index, &r->geometry, job->task.ref.tensor,
	                   &job->task.segment->segment, job->task.segment->known);
	if (m->rope && !in->positions)
		return kvi_reader_bad(&job->frame, &job->error,
		                      "the positions of its tokens are lost");
	in->n_tokens = job->task.n; /* is known also where the segment is lost */
	if (kvi_feature_slot(t, job->task.order_index)->asked &&
	    kvi_feature_table_make(t, job->task.order_index, job->task.n, features))
		return kvi_fail_alloc(&job->error, &r->alloc);
	return KVARC_OK;
}

/* Gets the predicted means, with in->predicted also P, from the model; check: check value of them,
 * with in->predicted of P; NULL: not known. DATA: there is no prediction. */
static kvarc_ret request_prediction(struct kvi_decode_job *job, struct kvi_linear_in *in,
                                    const uint64_t *check)
{
	const kvarc_reader *r = job->r;
	struct kvi_segment_use *s = job->task.segment;
	size_t bytes = (size_t)in->model->C * job->task.n * sizeof(int16_t);
	if (!kvi_buffer_grow(&job->expected, &r->alloc, bytes, 0))
		return kvi_fail_alloc(&job->error, &r->alloc);
	struct kvi_prediction_request a = { .order_index = job->task.order_index,
		                            .s = &s->segment,
		                            .check = check,
		                            .in = in,
		                            .expected = (int16_t *)(void *)job->expected.p,
		                            .predicted = in->predicted ? job->raw : NULL };
	in->expected = a.expected;
	kvarc_ret ret = kvi_prediction_get(s->prediction, &a);
	const char *why = ret ? kvi_prediction_failure(s->prediction) : NULL;
	if (ret == KVARC_PREDICTOR)
		return kvi_fail_at(&job->error, ret, job->frame.offset, job->frame.head.sequence,
		                   "%s", why ? why : "the predictor failed");
	if (ret)
		return kvi_reader_bad(&job->frame, &job->error,
		                      why ? why : "tokens before it are damaged, or not read");
	return KVARC_OK;
}

/* Whether a chunk makes or needs features of its segment. */
static bool has_place(const struct kvi_decode_job *job)
{
	return job->task.order_index != KVI_NO_ORDER_INDEX;
}

static bool has_prediction(const struct kvi_decode_job *job)
{
	return has_place(job) && job->task.segment->prediction &&
	       kvi_feature_slot(job->task.segment->features, job->task.order_index)->flags &
	               KVI_SLOT_PREDICTION;
}

/* The model continues once it has the elements of the chunk. */
static void observe(struct kvi_decode_job *job, const struct kvi_chunk_header *header)
{
	if (!has_prediction(job))
		return;
	job->observed = true;
	kvi_prediction_observe(
		job->task.segment->prediction, job->task.order_index, job->raw,
		kvi_feature_slot(job->task.segment->features, job->task.order_index)->f,
		kvi_chunk_predicted_exactly(header, job->frame.head.payload_bytes));
}

/* Codecs linear, model and predicted: the model, and the sources of its prediction. */
static kvarc_ret find_model(struct kvi_decode_job *job, struct chunk_piece *piece,
                            struct kvi_linear_in *in)
{
	struct kvi_segment_use *s = job->task.segment;
	if (s->predictor_ret) {
		job->error = s->predictor_error;
		return s->predictor_ret;
	}
	if (!s->features)
		return kvi_reader_bad(&job->frame, &job->error, "its PREDICTOR is missing");
	if (!has_place(job))
		return kvi_reader_bad(&job->frame, &job->error,
		                      "chunks of its segment are out of order");
	if (!s->features->plan->of[job->task.order_index].model)
		return kvi_fail_at(&job->error, KVARC_PREDICTOR, job->frame.offset,
		                   job->frame.head.sequence,
		                   "the profile has no model of tensor %u, or one of another shape",
		                   (unsigned)job->task.ref.tensor);
	if (!!(s->features->plan->of[job->task.order_index].model->flags & KVI_MODEL_BASIS) !=
	    (piece->h->codec == KVI_CODEC_KLT))
		return kvi_reader_bad(&job->frame, &job->error,
		                      "its PREDICTOR is of another level");
	if (!s->features->plan->of[job->task.order_index].complete)
		return kvi_reader_bad(&job->frame, &job->error,
		                      "tensors that it is predicted from are not in the file");
	kvarc_ret ret = make_features(job, in, &piece->request.linear.features);
	if (ret)
		return ret;
	if (!kvi_feature_table_wait(s->features, job->task.order_index, in))
		return kvi_reader_bad(&job->frame, &job->error,
		                      "what it is predicted from is damaged");
	piece->request.linear.in = in;
	if (!has_prediction(job))
		return KVARC_OK;
	struct kvi_in payload = kvi_in_make(piece->request.payload, piece->request.payload_bytes);
	uint64_t check = kvi_get64(&payload); /* spec model 4, predicted 2 */
	bool has = kvi_codec_uses_prediction(piece->h->codec) && !payload.bad;
	if (piece->h->codec == KVI_CODEC_PREDICTED)
		in->predicted = job->raw;
	return request_prediction(job, in, has ? &check : NULL);
}

/* The features of a tensor whose chunk was coded otherwise. */
static kvarc_ret features_of_raw(struct kvi_decode_job *job, struct kvi_coder *coder,
                                 const struct kvi_chunk_header *header)
{
	struct kvi_feature_table *t = job->task.segment->features;
	struct kvi_feature_slot *slot = kvi_feature_slot(t, job->task.order_index);
	struct chunk_piece p = job_piece(job, header);
	struct kvi_linear_in in;
	if (!slot->asked || !t->plan->of[job->task.order_index].model)
		return KVARC_OK;
	bool all = slot->asked == KVI_FEATURES_ALL;
	kvarc_ret ret = make_features(job, &in, &p.request.linear.features);
	if (ret == KVARC_DATA)
		return KVARC_OK; /* chunks that need the features report it */
	if (ret)
		return ret;
	if (all && !kvi_feature_table_wait(t, job->task.order_index, &in))
		return KVARC_OK;
	p.request.linear.in = &in;
	if (has_prediction(job) && request_prediction(job, &in, NULL))
		return KVARC_OK;
	ret = kvi_chunk_features(coder, &p.request.chunk, &p.request.linear, p.request.wanted,
	                         job->raw, !all);
	if (ret == KVARC_DATA)
		return kvi_reader_bad(&job->frame, &job->error,
		                      "a chunk's features lack their sources");
	if (ret)
		return kvi_fail_memory(&job->error, ret, &job->r->alloc);
	kvi_feature_table_publish(t, job->task.order_index, slot->asked);
	observe(job, header);
	return KVARC_OK;
}

static kvarc_ret decode_repeat(struct kvi_decode_job *job, struct kvi_coder *coder,
                               const struct kvi_chunk_header *header);
static kvarc_ret find_reference(struct kvi_decode_job *job, struct kvi_coder *coder,
                                const struct kvi_chunk_header *header, const uint8_t **elements);

static kvarc_ret decode_chunk(struct kvi_decode_job *job, struct kvi_coder *coder,
                              const struct kvi_chunk_header *header)
{
	struct chunk_piece p = job_piece(job, header);
	struct kvi_linear_in in;
	if (header->codec == KVI_CODEC_REPEAT)
		return decode_repeat(job, coder, header);
	kvarc_ret ret = KVARC_OK;
	if (kvi_codec_predicts(header->codec))
		ret = find_model(job, &p, &in);
	else if (header->codec == KVI_CODEC_STATE)
		ret = find_reference(job, coder, header, &p.request.before);
	if (ret == KVARC_OK)
		ret = piece_decode(job->r, coder, &p, job->raw, &job->error);
	if (ret == KVARC_OK && p.request.linear.features) {
		kvi_feature_table_publish(job->task.segment->features, job->task.order_index,
		                          KVI_FEATURES_ALL);
		observe(job, header);
	}
	return ret;
}

/* Gives other chunks the features that they need of this one, also after a failure. */
static void give_features(struct kvi_decode_job *job, struct kvi_coder *coder,
                          const struct kvi_chunk_header *header)
{
	if (!has_place(job))
		return;
	if (!job->ret && !kvi_codec_predicts(header->codec))
		job->ret = features_of_raw(job, coder, header);
	if (has_prediction(job) && !job->observed)
		kvi_prediction_mark_lost(job->task.segment->prediction, job->task.order_index,
		                         job->task.t0);
	kvi_feature_table_leave(job->task.segment->features, job->task.order_index);
}

/* A job from its frame to job->raw and its features, for repeated chunks: a REPEAT is
 * DATA, and nothing is delivered. */
static void decode_job(struct kvi_decode_job *job, struct kvi_coder *coder)
{
	struct kvi_chunk_header h;
	job->ret = get_frame(job, &h);
	if (!job->ret && h.codec == KVI_CODEC_REPEAT)
		job->ret = kvi_reader_bad(&job->frame, &job->error,
		                          "a chunk behind it in its segment is repeated");
	if (!job->ret)
		job->ret = decode_chunk(job, coder, &h);
	give_features(job, coder, &h);
}

/* Elements of a store stand for a raw chunk (spec frames 12.3). */
static void take_stored(struct kvi_decode_job *job, struct kvi_chunk_header *header)
{
	static const uint8_t no_payload[KVI_CHUNK_HEADER_BYTES];
	const kvarc_tensor *t = &job->r->geometry.tensors[job->task.ref.tensor];
	*header = (struct kvi_chunk_header){ .tensor = job->task.ref.tensor,
		                             .heads = job->task.ref.heads,
		                             .codec = KVI_CODEC_RAW,
		                             .n = (uint16_t)job->task.n,
		                             .t0 = (uint32_t)job->task.t0 };
	job->frame = (struct kvi_frame){ .offset = job->task.ref.offset,
		                         .head = { .type = KVI_FRAME_STOREREF,
		                                   .payload_bytes = KVI_CHUNK_HEADER_BYTES,
		                                   .sequence = job->task.ref.sequence },
		                         .payload = no_payload };
	job->raw_bytes = job->task.n * kvi_tensor_bytes(t);
	job->raw = (uint8_t *)(uintptr_t)job->task.stored;
	job->ret = KVARC_OK;
	if (job->task.direct)
		job->raw = memcpy(job->task.direct, job->task.stored, job->raw_bytes);
}

static void run_job(struct kvi_job *job, unsigned worker)
{
	struct kvi_decode_job *j = (struct kvi_decode_job *)job;
	struct kvi_coder *coder = j->r->workers.coders[worker];
	struct kvi_chunk_header h;
	j->raw = NULL;
	if (j->task.stored) {
		take_stored(j, &h);
	} else {
		j->ret = get_frame(j, &h);
		if (!j->ret)
			j->ret = decode_chunk(j, coder, &h);
	}
	give_features(j, coder, &h);
	/* Elements that failed a check do not stay in the caller's memory. */
	if (j->ret && j->task.direct && j->raw)
		memset(j->task.direct, 0, j->raw_bytes);
	if (!j->ret && !j->r->options.common.overlap)
		j->ret = kvi_reader_hand_over(j);
}

/* A chunk that salvage cannot decode, before it has a job. */
static kvarc_ret lose(kvarc_reader *r, const struct kvi_decode_task *task)
{
	struct kvi_segment_use *use = task->segment;
	/* A chunk without order_index was marked as lost by the plan. */
	if (task->order_index != KVI_NO_ORDER_INDEX) {
		kvi_feature_table_leave(use->features, task->order_index);
		if (use->prediction)
			kvi_prediction_mark_lost(use->prediction, task->order_index, task->t0);
	}
	return kvi_salvage_chunk(r, task);
}

kvarc_ret kvi_reader_decode(kvarc_reader *r, const struct kvi_decode_task *task,
                            const struct kvi_frame *frame, struct kvi_buffer *buffer)
{
	struct kvi_params_use *params = NULL;
	struct kvi_decode_job *job;
	kvarc_ret ret = kvi_reader_job(r, &job);
	if (ret)
		return ret;
	if (!task->stored)
		ret = kvi_reader_params(r, &r->packer, &task->ref, &params, r->error);
	if (ret == KVARC_DATA && r->salvage)
		return lose(r, task);
	if (ret)
		return ret;
	job->r = r;
	job->task = *task;
	job->params = params;
	job->have_frame = frame;
	if (frame) {
		const struct kvi_buffer mine = job->buffer;
		job->buffer = *buffer;
		*buffer = mine;
		job->frame = *frame;
	}
	job->job.run = run_job;
	kvi_reader_submit(r, job);
	return KVARC_OK;
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
static kvarc_ret begin(kvarc_reader *r, struct kvi_repeated *repeated,
                       const struct kvi_segment_ref *segment, uint64_t predictor,
                       kvarc_error *error)
{
	struct kvi_predictor_ref *p = kvi_reader_find_predictor(r, predictor);
	struct kvi_packer packer;
	kvi_segment_use_release(r, repeated->use);
	kvi_packer_init(&packer, &r->alloc); /* a worker has none */
	kvarc_ret ret = kvi_segment_use_load(r, &packer, segment, &repeated->use, error);
	kvi_packer_free(&packer);
	repeated->segment = segment->sequence;
	repeated->next = segment->first;
	repeated->order_index = r->order.first[segment->track];
	if (ret == KVARC_OK)
		ret = p ? kvi_reader_load_predictor(r, p, error)
		        : kvi_fail_at(error, KVARC_DATA, KVARC_UNKNOWN, predictor,
		                      "the PREDICTOR frame of a repeated chunk is missing");
	if (ret == KVARC_OK)
		ret = kvi_reader_open_features(r, segment->track, p->plan, &repeated->use->features,
		                               error);
	if (ret == KVARC_OK)
		kvi_reader_plan_features(r, segment, NULL, repeated->use);
	return ret;
}

/* Goes past one chunk: decodes it when it is the target, or when others are
 * predicted from it. */
static kvarc_ret pass(kvarc_reader *r, struct kvi_repeated *repeated,
                      const struct kvi_segment_ref *segment, const struct kvi_chunk_ref *chunk,
                      bool target, struct kvi_coder *coder, kvarc_error *error)
{
	struct kvi_decode_job *j = &repeated->job;
	uint32_t order_index;
	if (!kvi_reader_order_index(r, segment, chunk, &repeated->order_index, &order_index) ||
	    chunk->heads != r->geometry.tensors[chunk->tensor].heads)
		return KVARC_OK;
	if (!target && !kvi_feature_slot(repeated->use->features, order_index)->asked) {
		kvi_feature_table_leave(repeated->use->features, order_index);
		return KVARC_OK;
	}
	struct kvi_packer packer;
	kvi_packer_init(&packer, &r->alloc);
	kvarc_ret ret = kvi_reader_params(r, &packer, chunk, &j->params, error);
	kvi_packer_free(&packer);
	if (ret) {
		kvi_feature_table_leave(repeated->use->features, order_index);
		return target ? ret : KVARC_OK;
	}
	j->r = r;
	j->task = kvi_decode_task(segment, chunk, repeated->use, order_index);
	decode_job(j, coder);
	kvi_params_store_release(&r->workers.store, j->params);
	j->params = NULL;
	if (j->ret)
		*error = j->error;
	return target ? j->ret : KVARC_OK; /* chunks that need its features report it */
}

/* Passes all chunks up to the one with this sequence number. */
static kvarc_ret go_to(kvarc_reader *r, struct kvi_repeated *repeated,
                       const struct kvi_segment_ref *segment, uint64_t sequence,
                       struct kvi_coder *coder, kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	while (repeated->next < segment->end && ret == KVARC_OK) {
		const struct kvi_chunk_ref *c = &kvi_segment_chunks(&r->index,
		                                                    segment)[repeated->next++];
		ret = pass(r, repeated, segment, c, c->sequence == sequence, coder, error);
		if (c->sequence == sequence)
			return ret;
	}
	return ret ? ret
	           : kvi_fail_at(error, KVARC_DATA, KVARC_UNKNOWN, sequence,
	                         "a repeated chunk is not in its segment");
}

/* A chunk of codec linear of this or another segment; its features are made on the way. */
static kvarc_ret decode_linear(kvarc_reader *r, struct kvi_coder *coder,
                               const struct kvi_frame *frame, const struct kvi_chunk_header *header,
                               uint8_t *raw, kvarc_error *error)
{
	const struct kvi_segment_ref *s = kvi_index_segment(&r->index, header->segment);
	struct kvi_repeated *x = open_repeated(r);
	kvarc_ret ret = KVARC_OK;
	if (!s || s->stored || s->n != header->n)
		return kvi_reader_bad(frame, error, "its SEGMENT is missing");
	if (!x)
		return kvi_fail_alloc(error, &r->alloc);
	ret = kvi_reader_list_segment(r, s, error);
	if (ret)
		return ret;
	pthread_mutex_lock(&x->lock);
	if (!x->use || x->segment != s->sequence || x->next >= s->end ||
	    kvi_segment_chunks(&r->index, s)[x->next].sequence > frame->head.sequence)
		ret = begin(r, x, s, header->params, error);
	if (ret == KVARC_OK)
		ret = go_to(r, x, s, frame->head.sequence, coder, error);
	if (ret == KVARC_OK)
		memcpy(raw, x->job.scratch.p, frame->head.decoded_bytes);
	else if (x->use) { /* the next call begins at the first chunk */
		kvi_segment_use_release(r, x->use);
		x->use = NULL;
	}
	pthread_mutex_unlock(&x->lock);
	return ret;
}

/* Whether a chunk refers to another one (spec/codecs/state.md). */
static bool refers(const struct kvi_frame *frame, const struct kvi_chunk_header *header)
{
	uint64_t sequence, offset;
	return header->codec == KVI_CODEC_STATE &&
	       kvi_state_reference(frame->payload + KVI_CHUNK_HEADER_BYTES,
	                           frame->head.payload_bytes - KVI_CHUNK_HEADER_BYTES, &sequence,
	                           &offset);
}

kvarc_ret kvi_reader_decode_target(kvarc_reader *r, struct kvi_coder *coder,
                                   const struct kvi_frame *frame, uint8_t *raw, kvarc_error *error)
{
	struct kvi_packer packer;
	struct kvi_params_use *use = NULL;
	struct kvi_segment *segment = NULL;
	struct kvi_chunk_header h;
	kvarc_ret ret = KVARC_OK;
	kvi_packer_init(&packer, &r->alloc);
	if (!kvi_chunk_header_parse(&h, frame->payload, frame->head.payload_bytes))
		ret = kvi_reader_bad(frame, error, "its header is not valid");
	if (ret == KVARC_OK)
		ret = kvi_chunk_check(&r->geometry, &h, frame, error);
	if (ret == KVARC_OK && kvi_codec_uses_prediction(h.codec))
		ret = kvi_reader_bad(frame, error,
		                     "a chunk that a model predicts cannot be repeated");
	if (ret == KVARC_OK && refers(frame, &h))
		ret = kvi_reader_bad(frame, error,
		                     "a chunk with a reference cannot be repeated, or be "
		                     "one itself");
	if (ret == KVARC_OK && kvi_codec_predicts(h.codec)) {
		kvi_packer_free(&packer);
		return decode_linear(r, coder, frame, &h, raw, error);
	}
	if (ret == KVARC_OK) {
		const struct kvi_chunk_ref c = kvi_chunk_ref(frame, &h);
		ret = kvi_reader_params(r, &packer, &c, &use, error);
	}
	if (ret == KVARC_OK && use && kvi_params_rotates(use->params)) {
		const struct kvi_segment_ref *ref = kvi_index_segment(&r->index, h.segment);
		segment = kvi_malloc(&r->alloc, sizeof *segment);
		if (!segment)
			ret = kvi_fail_alloc(error, &r->alloc);
		else if (!ref || !ref->offset || ref->stored || ref->n != h.n)
			ret = kvi_reader_bad(frame, error, "its SEGMENT is missing");
		else
			ret = kvi_reader_read_segment(r, &packer, ref, segment, error);
	}
	if (ret == KVARC_OK) {
		const struct chunk_piece p = piece_of(r, frame, &h,
		                                      segment ? segment->positions : NULL, use);
		ret = piece_decode(r, coder, &p, raw, error);
	}
	kvi_params_store_release(&r->workers.store, use);
	kvi_free(&r->alloc, segment);
	kvi_packer_free(&packer);
	return ret;
}

/* Reads the earlier frame, a CHUNK, that the chunk of a job names: *frame lies in job->other.
 * Returns OK, MEM, MEMLIMIT, DATA, IO, OPTIONS (a source that cannot seek). */
static kvarc_ret read_earlier(struct kvi_decode_job *job, uint64_t sequence, uint64_t offset,
                              struct kvi_frame *frame)
{
	kvarc_reader *r = job->r;
	if (!kvi_input_seekable(&r->in))
		return kvi_reason(
			&job->error, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(
				&job->error, KVARC_OPTIONS, job->frame.offset,
				job->frame.head.sequence,
				"the chunk at offset %llu needs an "
				"earlier one: this file needs a source that can seek, not a pipe",
				(unsigned long long)job->frame.offset));
	if (sequence >= job->frame.head.sequence || offset >= job->frame.offset ||
	    offset % KVI_FRAME_ALIGN)
		return kvi_reader_bad(&job->frame, &job->error, "it names a later frame");
	return kvi_reader_read_frame(r, offset, KVI_FRAME_CHUNK, sequence, &job->other, frame,
	                             &job->error);
}

/* The bytes that a REPEAT names, into job->raw. */
static kvarc_ret decode_repeat(struct kvi_decode_job *job, struct kvi_coder *coder,
                               const struct kvi_chunk_header *header)
{
	kvarc_reader *r = job->r;
	const uint8_t *p = job->frame.payload + KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header there;
	struct kvi_frame f;
	if (job->frame.head.payload_bytes != KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES)
		return kvi_reader_bad(&job->frame, &job->error, "its size");
	kvarc_ret ret = read_earlier(job, kvi_load64(p), kvi_load64(p + 8), &f);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(&there, f.payload, f.head.payload_bytes) ||
	    there.codec == KVI_CODEC_REPEAT || there.raw_check != header->raw_check ||
	    there.cut.stream_size != header->cut.stream_size || there.n != header->n ||
	    f.head.decoded_bytes != job->frame.head.decoded_bytes)
		return kvi_reader_bad(&job->frame, &job->error, "what it repeats differs");
	return kvi_reader_decode_target(r, coder, &f, job->raw, &job->error);
}

/* ==== The elements of the chunk that a state refers to (spec state 3) ==== */

/* Whether a chunk has the rows, columns and dtype of the one that refers to it. */
static bool fits(const struct kvi_decode_job *job, const struct kvi_chunk_header *header,
                 const struct kvi_frame *frame, const struct kvi_chunk_header *there)
{
	const kvarc_tensor *tensors = job->r->geometry.tensors;
	return kvi_state_may_refer(there->codec) && there->n == header->n &&
	       frame->head.decoded_bytes == job->frame.head.decoded_bytes &&
	       there->tensor < job->r->geometry.n_tensors &&
	       tensors[there->tensor].dtype == tensors[header->tensor].dtype;
}

/* The elements that a chunk of codec state refers to, in job->expected; NULL: it refers to none. */
static kvarc_ret find_reference(struct kvi_decode_job *job, struct kvi_coder *coder,
                                const struct kvi_chunk_header *header, const uint8_t **elements)
{
	kvarc_reader *r = job->r;
	struct kvi_chunk_header there;
	struct kvi_frame f;
	uint64_t sequence, offset;
	*elements = NULL;
	if (!kvi_state_reference(job->frame.payload + KVI_CHUNK_HEADER_BYTES,
	                         job->frame.head.payload_bytes - KVI_CHUNK_HEADER_BYTES, &sequence,
	                         &offset))
		return KVARC_OK;
	kvarc_ret ret = read_earlier(job, sequence, offset, &f);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(&there, f.payload, f.head.payload_bytes) ||
	    !fits(job, header, &f, &there))
		return kvi_reader_bad(&job->frame, &job->error, "what it refers to differs");
	if (!kvi_buffer_grow(&job->expected, &r->alloc, f.head.decoded_bytes, 0))
		return kvi_fail_alloc(&job->error, &r->alloc);
	*elements = job->expected.p;
	return kvi_reader_decode_target(r, coder, &f, job->expected.p, &job->error);
}
