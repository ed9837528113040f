/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_segment.c - segments: tokens in, chunks encoded by workers, repeats found, written */
#include "writer_segment.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "writer_frames.h"
#include "writer_predictors.h"
#include "writer_state.h"
#include "codecs/coder.h"
#include "format/frame.h"
#include "format/params_header.h"
#include "reader/reader_decode.h"
#include "reader/reader_internal.h"

/* ==== A set-associative table of chunk hashes ==== */

enum { SETS = 4096, WAYS = 4 };

struct kvi_repeat_table {
	struct kvi_repeat order_index[SETS][WAYS]; /* newest first */
};

struct kvi_repeat_table *kvi_repeat_open(const struct kvi_alloc *alloc)
{
	return kvi_calloc(alloc, 1, sizeof(struct kvi_repeat_table));
}

void kvi_repeat_close(struct kvi_repeat_table *table, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, table);
}

const struct kvi_repeat *kvi_repeat_find(const struct kvi_repeat_table *table, struct kvi_h128 hash,
                                         uint64_t bytes, uint32_t n_tokens)
{
	const struct kvi_repeat *set = table->order_index[hash.lo % SETS];
	for (int i = 0; i < WAYS; i++)
		if (set[i].bytes == bytes && set[i].n_tokens == n_tokens &&
		    kvi_h128_equal(set[i].hash, hash))
			return &set[i];
	return NULL;
}

void kvi_repeat_add(struct kvi_repeat_table *table, const struct kvi_repeat *r)
{
	struct kvi_repeat *set = table->order_index[r->hash.lo % SETS];
	for (int i = WAYS - 1; i > 0; i--)
		set[i] = set[i - 1];
	set[0] = *r;
}

/* ==== Segments: tokens in, chunks encoded by workers, written in order ==== */

/* Offset of the payload in a frame of a chunk. */
enum { KVI_CHUNK_PAYLOAD_AT = KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES };
_Static_assert((int)KVI_ENCODED_FRONT >= (int)KVI_CHUNK_PAYLOAD_AT &&
                       (int)KVI_ENCODED_BEHIND >= KVI_FRAME_CHECK_BYTES + KVI_FRAME_ALIGN,
               "a frame fits around a payload");

/* Elements of a state, in a chunk that others may refer to; sequence 0: it is not known. */
struct kvi_earlier_state {
	uint64_t t0, sequence, offset;
	uint32_t n;
	uint8_t *elements;
};

/* A chunk on its way through a worker. */
struct kvi_encode_job {
	struct kvi_job job; /* first: the pool gives this back */
	kvarc_writer *w;
	struct kvi_group *group;
	/* in */
	struct kvi_open_segment *segment;
	struct kvi_feature_table *features; /* NULL: the tensor has no model */
	struct kvi_prediction *prediction;  /* NULL: no model predicts it */
	struct kvi_elements elements;
	struct kvi_earlier_state
		before; /* the state that it may refer to; without elements: none */
	/* out */
	kvarc_ret ret;
	kvarc_error error;
	uint32_t raw_bytes;
	struct kvi_h128 raw_hash;
	struct kvi_encoded coded; /* payload: in frame */
	uint8_t *frame;           /* head, chunk header, payload, padding, check */
	struct kvi_h128 rest;     /* kvi_frame_rest of it */
	/* memory */
	const uint8_t *raw;             /* the elements, in `buffer` or where the caller has them */
	uint8_t *buffer;                /* `own`, or memory of the worker; NULL until needed */
	uint8_t *own, *again;           /* again: to verify; both NULL until needed */
	int16_t *expected;              /* means predicted by the model, if there is one */
	uint8_t *predicted;             /* elements predicted by the model; level 8 */
	bool verifies;                  /* the chunk is decoded again and compared */
	bool fetched;                   /* raw, or the payload, is there before the job starts */
	bool given;                     /* another encoder made the payload */
	bool exact;                     /* the elements are what the model predicts */
	bool observed;                  /* the prediction session has the elements */
	struct kvi_coder_memory memory; /* frame is in it */
};

/* Whether others need features of the chunk, and so its elements. */
static inline bool asks_features(const struct kvi_encode_job *job)
{
	return job->features && kvi_feature_slot(job->features, job->group->order_index)->asked;
}

/* ==== The states that later checkpoints may refer to (spec state 3) ==== */

/* Copies of states use at most 1/SHARE of the memory limit. */
enum { SHARE = 4 };
/* Distance in groups, at most, to the same state on another track. */
enum { REACH = 4096 };

/* Whether chunks of a group may be referred to by later ones, at this level. */
static bool keeps_states(const kvarc_writer *w, const struct kvi_group *group)
{
	const kvarc_tensor *t = &w->geometry.tensors[group->tensor];
	return w->options.level > 0 && !w->options.lossy &&
	       !(w->options.flags & KVARC_WRITE_STREAMABLE) &&
	       (t->kind == KVARC_CONV_STATE || t->kind == KVARC_RECURRENT_STATE);
}

static struct kvi_earlier_state *find(const struct kvi_group *group,
                                      const struct kvi_segment *segment)
{
	for (size_t i = 0; i < group->states.n; i++) {
		struct kvi_earlier_state *k = KVI_LIST(struct kvi_earlier_state, group->states, i);
		if (k->t0 == segment->t0 && k->n == segment->n)
			return k;
	}
	return NULL;
}

/* An entry with memory for elements; NULL in *out where copies may take no more. */
static kvarc_ret add(kvarc_writer *w, struct kvi_group *group, const struct kvi_segment *segment,
                     uint32_t bytes, struct kvi_earlier_state **out)
{
	struct kvi_earlier_state *k = find(group, segment);
	*out = NULL;
	if (!k && bytes > w->alloc.limit / SHARE - w->earlier.state_bytes)
		return KVARC_OK;
	if (!k) {
		uint8_t *elements = kvi_malloc(&w->alloc, bytes);
		k = elements ? kvi_list_add(&group->states, &w->alloc, sizeof *k) : NULL;
		if (!k) {
			kvi_free(&w->alloc, elements);
			return kvi_fail_alloc(w->error, &w->alloc);
		}
		*k = (struct kvi_earlier_state){ .t0 = segment->t0,
			                         .n = segment->n,
			                         .elements = elements };
		w->earlier.state_bytes += bytes;
	}
	*out = k;
	return KVARC_OK;
}

/* Takes the state of the archive that is appended to; one that cannot be used is left out. */
static kvarc_ret take(kvarc_writer *w, struct kvi_group *group, const struct kvi_segment *segment)
{
	kvarc_reader *r = w->archive;
	const kvarc_tensor *t = &w->geometry.tensors[group->tensor];
	const uint32_t bytes = segment->n * group->heads * t->channels *
	                       (uint32_t)kvarc_dtype_bytes(t->dtype);
	struct kvi_buffer buffer = { NULL, 0 };
	struct kvi_coder *coder = NULL;
	struct kvi_earlier_state *k = NULL;
	struct kvi_frame f;
	kvarc_error e;
	if (!r)
		return KVARC_OK;
	const struct kvi_alloc *alloc = kvi_reader_alloc(r);
	kvarc_ret ret = kvi_reader_find_state(r, segment, group->tensor, group->head, group->heads,
	                                      &buffer, &f, &e);
	if (!ret && f.head.decoded_bytes != bytes)
		ret = KVARC_DATA;
	if (!ret)
		ret = add(w, group, segment, bytes, &k);
	if (!ret && k &&
	    kvi_coder_open(&coder, alloc, w->workers.tables, w->options.common.isa_mask))
		ret = kvi_fail_alloc(w->error, alloc);
	if (!ret && k)
		ret = kvi_reader_decode_target(r, coder, &f, k->elements, &e);
	if (!ret && k) {
		k->sequence = f.head.sequence;
		k->offset = f.offset;
	}
	kvi_coder_close(coder);
	kvi_free(alloc, buffer.p);
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO ? ret : KVARC_OK;
}

static bool is_like(const kvarc_geometry *geometry, const struct kvi_group *group,
                    const struct kvi_group *b)
{
	const kvarc_tensor *x = &geometry->tensors[group->tensor],
			   *y = &geometry->tensors[b->tensor];
	return x->track != y->track && x->layer == y->layer && x->kind == y->kind &&
	       x->dtype == y->dtype && x->channels == y->channels && group->head == b->head &&
	       group->heads == b->heads;
}

/* Sets `like` of all groups: files hold states of several checkpoints on tracks of their own. */
static void link_states(kvarc_writer *w)
{
	for (size_t i = 0; i < w->n_groups; i++) {
		struct kvi_group *g = &w->groups[i];
		const size_t end = i < REACH ? 0 : i - REACH;
		for (size_t k = i; keeps_states(w, g) && !g->like && k-- > end;)
			if (is_like(&w->geometry, g, &w->groups[k]))
				g->like = &w->groups[k];
	}
}

/* Finds the state that a chunk of a group and segment may refer to; without elements: none. Looks
 * in the archive that is appended to, where this writer has written none; else on earlier tracks.
 * No job has the group; jobs of other tracks have ended, as an append is for one. Returns OK, MEM,
 * MEMLIMIT, IO. */
static kvarc_ret reference(kvarc_writer *w, struct kvi_group *group,
                           const struct kvi_segment *segment, struct kvi_earlier_state *state)
{
	*state = (struct kvi_earlier_state){ 0 };
	if (!keeps_states(w, group))
		return KVARC_OK;
	kvarc_ret ret = find(group, segment) ? KVARC_OK : take(w, group, segment);
	for (; group && !state->elements; group = group->like) {
		const struct kvi_earlier_state *k = find(group, segment);
		if (k && k->sequence)
			*state = *k;
	}
	return ret;
}

/* Keeps the elements of a job whose chunk was written, where others may refer to it. Returns OK,
 * MEM, MEMLIMIT. */
static kvarc_ret keep_state(struct kvi_encode_job *job, uint64_t sequence, uint64_t offset)
{
	kvarc_writer *w = job->w;
	struct kvi_earlier_state *k = NULL;
	if (!keeps_states(w, job->group) || job->coded.refers ||
	    !kvi_state_may_refer(job->coded.codec))
		return KVARC_OK;
	kvarc_ret ret = add(w, job->group, &job->segment->s, job->raw_bytes, &k);
	if (ret || !k)
		return ret;
	memcpy(k->elements, job->raw, job->raw_bytes);
	k->sequence = sequence;
	k->offset = offset;
	return KVARC_OK;
}

/* Frees the stored states of all groups. */
static void free_states(kvarc_writer *w)
{
	for (size_t i = 0; w->groups && i < w->n_groups; i++) {
		struct kvi_list *l = &w->groups[i].states;
		for (size_t k = 0; k < l->n; k++)
			kvi_free(&w->alloc, KVI_LIST(struct kvi_earlier_state, *l, k)->elements);
		kvi_free(&w->alloc, l->p);
	}
}

/* ==== Encodes one chunk, in a worker: elements, prediction, codec, verification ==== */

static struct kvi_chunk chunk_of(const struct kvi_encode_job *job)
{
	const kvarc_geometry *g = &job->w->geometry;
	const kvarc_tensor *t = &g->tensors[job->group->tensor];
	return (struct kvi_chunk){ .dtype = t->dtype,
		                   .n_tokens = job->segment->s.n,
		                   .heads = job->group->heads,
		                   .head_channels = t->channels,
		                   .positions = job->segment->s.positions,
		                   .rope = kvi_tensor_rope(g, t) };
}

/* The request without a linear model. */
static struct kvi_encode_request request_of(const struct kvi_encode_job *job)
{
	const kvarc_writer *w = job->w;
	const kvarc_tensor *t = &w->geometry.tensors[job->group->tensor];
	const struct kvi_chosen_tokens *chosen = &job->segment->chosen;
	return (struct kvi_encode_request){ .chunk = chunk_of(job),
		                            .kind = t->kind,
		                            .level = w->options.level,
		                            .params = job->group->params,
		                            .before = job->before.elements,
		                            .before_sequence = job->before.sequence,
		                            .before_offset = job->before.offset,
		                            .t0 = job->segment->s.t0,
		                            .end = w->tracks[t->track].n_total,
		                            .ends = w->ends,
		                            .token_rate = chosen->per_token ? chosen->rate : NULL };
}

int kvi_writer_fetch(const kvarc_geometry *geometry, const struct kvi_fetching *fetching,
                     uint32_t tensor, uint32_t head, uint32_t heads, uint8_t *dst)
{
	const kvarc_tensor *t = &geometry->tensors[tensor];
	const uint32_t *from = fetching->chosen->from;
	size_t row = (size_t)heads * t->channels * kvarc_dtype_bytes(t->dtype);
	uint32_t n;
	if (!fetching->chosen->per_token)
		return fetching->elements.fetch(fetching->elements.opaque, tensor, head, heads,
		                                fetching->t0, fetching->n, dst);
	/* Runs of tokens between those that are left out. */
	for (uint32_t i = 0; i < fetching->n; i += n) {
		for (n = 1; i + n < fetching->n && from[i + n] == from[i] + n;)
			n++;
		int ret = fetching->elements.fetch(fetching->elements.opaque, tensor, head, heads,
		                                   from[i], n, dst + i * row);
		if (ret)
			return ret;
	}
	return 0;
}

/* Makes the features that others need of this tensor, and z of them at once:
 * so upper layers wait for the elements only, not for this chunk. */
static kvarc_ret make_features(struct kvi_encode_job *job, struct kvi_coder *coder,
                               struct kvi_encode_request *request)
{
	const struct kvi_tokens all = { 0, 0 };
	struct kvi_linear_io *linear = &request->linear;
	uint32_t order_index = job->group->order_index;
	if (!asks_features(job))
		return KVARC_OK;
	kvarc_ret ret = kvi_feature_table_make(job->features, order_index, request->chunk.n_tokens,
	                                       &linear->features);
	if (ret == KVARC_OK && !linear->features->z)
		return KVARC_OK; /* level 2 has no z */
	if (ret == KVARC_OK)
		ret = kvi_chunk_features(coder, &request->chunk, linear, all, job->raw, true);
	if (ret)
		return kvi_fail_alloc(&job->error, &job->w->alloc);
	linear->features->has_z = true;
	kvi_feature_table_publish(job->features, order_index, KVI_FEATURES_Z);
	return KVARC_OK;
}

/* The model continues once it has the elements. */
static void observe(struct kvi_encode_job *job)
{
	struct kvi_prediction *g = job->prediction;
	if (!g || job->observed)
		return;
	job->observed = true;
	kvi_prediction_observe(g, job->group->order_index, job->raw,
	                       kvi_feature_slot(job->features, job->group->order_index)->f,
	                       job->exact);
}

/* Publishes features early: upper tensors need not wait for the chunk to be written. */
static void features_made(void *opaque)
{
	struct kvi_encode_job *j = opaque;
	kvi_feature_table_publish(j->features, j->group->order_index, KVI_FEATURES_ALL);
	observe(j);
}

/* Gets the prediction of the model, for codecs model and predicted. */
static kvarc_ret request_prediction(struct kvi_encode_job *job, struct kvi_linear_in *in)
{
	struct kvi_prediction_request a = { .order_index = job->group->order_index,
		                            .s = &job->segment->s,
		                            .raw = job->raw,
		                            .expected = job->expected,
		                            .predicted = job->predicted };
	if (!job->prediction)
		return KVARC_OK;
	kvarc_ret ret = kvi_prediction_get(job->prediction, &a);
	const char *why = kvi_prediction_failure(job->prediction);
	job->exact = a.exact;
	in->expected = job->expected;
	in->predicted = a.exact ? job->raw : job->predicted;
	return ret ? kvi_fail(&job->error, KVARC_PREDICTOR, "token %llu and those after it: %s",
	                      (unsigned long long)job->segment->s.t0,
	                      why ? why : "the model has stopped")
	           : KVARC_OK;
}

/* Fills in what codec linear needs; in is its memory. */
static kvarc_ret use_model(struct kvi_encode_job *job, struct kvi_coder *coder,
                           struct kvi_encode_request *request, struct kvi_linear_in *in)
{
	const struct kvi_planned *x = &job->w->plan->of[job->group->order_index];
	kvi_linear_in_init(in, job->w->plan, job->group->order_index, &job->w->geometry,
	                   job->group->tensor, &job->segment->s, true);
	request->linear.in = in;
	request->made = features_made;
	request->made_opaque = job;
	const bool later = x->model->flags & KVI_MODEL_BASIS;
	kvarc_ret ret = later ? KVARC_OK : make_features(job, coder, request);
	if (ret)
		return ret;
	const struct kvi_feature_slot *slot = kvi_feature_slot(job->features,
	                                                       job->group->order_index);
	if (slot->asked != KVI_FEATURES_ALL)
		request->linear.features = NULL; /* only z was needed, and it is made */
	if (!slot->reads)
		request->linear.in = NULL; /* no features predict it here */
	else if (!kvi_feature_table_wait(job->features, job->group->order_index, in))
		return KVARC_END; /* an earlier job failed and has the reason */
	return request_prediction(job, in);
}

/* Decodes the encoded chunk and compares it with its elements; a chunk of another encoder, whose
 * elements are not there, with its check. */
static kvarc_ret verify(struct kvi_encode_job *job, struct kvi_coder *coder,
                        const struct kvi_encode_request *encoded)
{
	const struct kvi_encoded *c = &job->coded;
	const struct kvi_params *params = !c->uses_params ? NULL
	                                  : c->params     ? c->params
	                                                  : job->group->params;
	const struct kvi_decode_request request = { .chunk = encoded->chunk,
		                                    .codec = c->codec,
		                                    .cut = c->cut,
		                                    .params = params,
		                                    .payload = c->payload,
		                                    .payload_bytes = c->payload_bytes,
		                                    .linear.in = encoded->linear.in,
		                                    .before = encoded->before };
	uint64_t check;
	kvarc_ret ret = kvi_chunk_decode(coder, &request, job->again, &check);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(&job->error, &job->w->alloc);
	if (ret || check != c->raw_check ||
	    (!job->given && memcmp(job->raw, job->again, job->raw_bytes)))
		return kvi_fail(&job->error, KVARC_DATA,
		                "verification failed: a chunk of tensor %u does not decode to its "
		                "input; %s",
		                (unsigned)job->group->tensor,
		                job->given ? "the device that encoded it, or its kernels, may be "
		                             "faulty: encode on the host"
		                           : "check this machine's memory");
	return KVARC_OK;
}

/* The tier of a tensor's layer; false: the tensor stays lossless. */
static bool writer_tier(const kvarc_writer *w, uint32_t tensor, kvarc_lossy *tier)
{
	const kvarc_tensor *t = &w->geometry.tensors[tensor];
	const kvarc_lossy *all = w->options.lossy;
	/* Parts of quantised blocks, such as their scales, stay as they are. */
	return all && t->role == KVARC_WHOLE && kvi_lossy_of_layer(all, t->layer, tier);
}

static kvarc_ret code(struct kvi_encode_job *job, struct kvi_coder *coder,
                      const struct kvi_encode_request *request)
{
	kvarc_lossy tier;
	if (writer_tier(job->w, job->group->tensor, &tier))
		return kvi_chunk_encode_lossy(coder, request, &tier, job->buffer, &job->coded);
	return kvi_chunk_encode(coder, request, job->raw, &job->coded);
}

/* The elements of a chunk where the caller has them; NULL: they are to be fetched. The hash that
 * finds repeats reads all of them once, in order: what a copy would take of the time, too, is that
 * memory is slow. */
static const uint8_t *packed_elements(const struct kvi_encode_job *job)
{
	const kvarc_writer *w = job->w;
	const struct kvi_elements *from = &job->elements;
	const struct kvi_group *g = job->group;
	const struct kvi_segment *s = &job->segment->s;
	if (!from->packed || job->buffer == job->own || w->options.lossy || !w->earlier.repeats)
		return NULL;
	const uint8_t *at = from->packed(from->opaque, g->tensor, g->head, g->heads, s->t0, s->n);
	const size_t size = kvarc_dtype_bytes(w->geometry.tensors[g->tensor].dtype);
	return (uintptr_t)at % size ? NULL : at;
}

/* Gets the elements of a chunk, before its job starts where the caller overlaps with workers, else
 * as part of it: fills raw, raw_bytes; ret and error when that failed. */
static void get_elements(struct kvi_encode_job *job)
{
	const struct kvi_segment *s = &job->segment->s;
	const struct kvi_fetching f = { job->elements, &job->segment->chosen, s->t0, s->n };
	const struct kvi_chunk chunk = chunk_of(job);
	job->ret = KVARC_OK;
	job->raw_bytes = (uint32_t)kvi_chunk_bytes(&chunk);
	job->raw = packed_elements(job);
	if (job->raw)
		return;
	job->raw = job->buffer;
	if (kvi_writer_fetch(&job->w->geometry, &f, job->group->tensor, job->group->head,
	                     job->group->heads, job->buffer))
		job->ret = kvi_fail(&job->error, KVARC_IO,
		                    "fetching %u tokens from token %llu of tensor %u failed",
		                    (unsigned)s->n, (unsigned long long)s->t0,
		                    (unsigned)job->group->tensor);
}

/* Makes job->frame fit for payloads of that many bytes, chunk header included. */
static kvarc_ret reserve_frame(struct kvi_encode_job *job, size_t payload_bytes)
{
	const struct kvi_alloc *alloc = &job->w->alloc;
	const size_t bytes = (size_t)kvi_frame_bytes((uint32_t)payload_bytes);
	if (job->memory.bytes < bytes) {
		kvi_free(alloc, job->memory.p);
		job->memory.p = kvi_malloc(alloc, bytes);
		job->memory.bytes = job->memory.p ? bytes : 0;
	}
	job->frame = job->memory.p;
	return job->frame ? KVARC_OK : kvi_fail_alloc(&job->error, alloc);
}

/* Makes the frame around the payload, where the coder has left space, or else of a copy: what the
 * coder has lives until its next call only. */
static kvarc_ret frame_payload(struct kvi_encode_job *job, struct kvi_coder *coder)
{
	struct kvi_encoded *c = &job->coded;
	if (c->free_around) {
		kvi_coder_exchange(coder, c->payload, &job->memory);
		job->frame = (uint8_t *)(uintptr_t)c->payload - KVI_CHUNK_PAYLOAD_AT;
	} else {
		kvarc_ret ret = reserve_frame(job, KVI_CHUNK_HEADER_BYTES + c->payload_bytes);
		if (ret)
			return ret;
		memcpy(job->frame + KVI_CHUNK_PAYLOAD_AT, c->payload, c->payload_bytes);
		c->payload = job->frame + KVI_CHUNK_PAYLOAD_AT;
	}
	return KVARC_OK;
}

/* Hashes the frame in the job's thread; an encrypted one is hashed when it is sealed. */
static void hash_frame(struct kvi_encode_job *job)
{
	if (!job->w->out.crypt)
		job->rest = kvi_frame_rest(
			job->frame, (uint32_t)(KVI_CHUNK_HEADER_BYTES + job->coded.payload_bytes));
}

static void encode_chunk(struct kvi_encode_job *job, struct kvi_coder *coder)
{
	kvarc_writer *w = job->w;
	struct kvi_encode_request request = request_of(job);
	struct kvi_linear_in in;
	if (!job->fetched)
		get_elements(job);
	if (!job->ret && job->given && job->verifies)
		job->ret = verify(job, coder, &request);
	else if (!job->ret && job->features)
		job->ret = use_model(job, coder, &request, &in);
	if (!job->ret && job->given)
		hash_frame(job);
	if (job->ret || job->given)
		return;
	if (w->earlier.repeats && !w->options.lossy)
		job->raw_hash = kvi_h128(job->raw, job->raw_bytes);
	job->ret = code(job, coder, &request);
	if (job->ret == KVARC_MEM || job->ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(&job->error, &w->alloc);
	else if (job->ret)
		kvi_fail(&job->error, job->ret, "a chunk of tensor %u cannot be encoded",
		         (unsigned)job->group->tensor);
	if (job->ret)
		return;
	/* Transforms are predicted from what readers get. */
	if (request.linear.in && request.linear.in->model->flags & KVI_MODEL_BASIS) {
		job->ret = make_features(job, coder, &request);
		request.linear.features = NULL; /* only z was needed, and it is made */
		if (job->ret)
			return;
	}
	if (w->earlier.repeats && w->options.lossy) /* as they are then */
		job->raw_hash = kvi_h128(job->raw, job->raw_bytes);
	job->ret = frame_payload(job, coder);
	if (job->ret)
		return;
	hash_frame(job);
	if (job->verifies)
		job->ret = verify(job, coder, &request);
	if (request.linear.features && job->ret == KVARC_OK) {
		kvi_feature_table_publish(job->features, job->group->order_index, KVI_FEATURES_ALL);
		observe(job);
	}
}

/* Encodes the chunk of a struct kvi_encode_job: fills its out members. */
static void writer_encode(struct kvi_job *job, unsigned worker)
{
	struct kvi_encode_job *j = (struct kvi_encode_job *)job;
	struct kvi_coder *coder = j->w->workers.coders[worker];
	uint8_t **elements = &j->w->workers.elements[worker];
	if (!j->buffer && !*elements)
		*elements = kvi_malloc(&j->w->alloc, j->w->chunk_max);
	if (!j->buffer)
		j->buffer = *elements;
	if (j->buffer)
		encode_chunk(j, coder);
	else
		j->ret = kvi_fail_alloc(&j->error, &j->w->alloc);
	if (j->prediction && !j->observed)
		kvi_prediction_mark_lost(j->prediction, j->group->order_index, j->segment->s.t0);
	if (j->features)
		kvi_feature_table_leave(j->features, j->group->order_index);
}

/*
 * ==== Lets workers encode the chunks of segments, and writes the chunks in order, so that the
 * bytes do not depend on the number of threads * Chunks of a segment are encoded while those of
 * the one before are written. A group's chunk is written before its next one is encoded, which
 * may use its parameters; so no more than two segments are on their way.
 */

/* Frees what the encoder handed over and was not used. */
static void drop_params(struct kvi_encode_job *job)
{
	kvi_params_free(job->coded.params);
	kvi_free(&job->w->alloc, job->coded.params_content);
	job->coded.params = NULL;
	job->coded.params_content = NULL;
}

static kvarc_ret use_params(struct kvi_encode_job *job)
{
	kvarc_writer *w = job->w;
	struct kvi_encoded *c = &job->coded;
	if (!c->params || !c->uses_params) {
		drop_params(job);
		return KVARC_OK;
	}
	struct kvi_group *g = job->group;
	const struct kvi_params_header header = { g->tensor, g->head, g->heads, c->params_codec };
	kvarc_ret ret = kvi_writer_put_params(w, &header, c->params_content, c->params_bytes,
	                                      &g->params_sequence);
	kvi_params_free(g->params);
	g->params = c->params;
	c->params = NULL;
	drop_params(job);
	return ret;
}

/* Turns a chunk into a REPEAT when its bytes were written before and that is shorter. */
static bool try_repeat(struct kvi_encode_job *job)
{
	kvarc_writer *w = job->w;
	const struct kvi_repeat *r = w->earlier.repeats &&
	                                             job->coded.payload_bytes > KVI_REPEAT_BYTES
	                                     ? kvi_repeat_find(w->earlier.repeats, job->raw_hash,
	                                                       job->raw_bytes, job->segment->s.n)
	                                     : NULL;
	if (!r)
		return false;
	drop_params(job);
	job->coded.codec = KVI_CODEC_REPEAT;
	job->coded.cut = (struct kvi_chunk_cut){ .stream_size = r->stream_size };
	job->coded.raw_check = r->raw_check;
	job->coded.uses_params = false;
	job->coded.payload_bytes = KVI_REPEAT_BYTES;
	kvi_store64(job->frame + KVI_CHUNK_PAYLOAD_AT, r->sequence);
	kvi_store64(job->frame + KVI_CHUNK_PAYLOAD_AT + 8, r->offset);
	return true;
}

/*
 * Whether a chain value names all that the elements of a segment depend on: the track holds its
 * text from the first token on, and no id stands for something that it does not say.
 */
static bool may_chain(const struct kvi_segment *segment)
{
	for (uint32_t i = 0; i < segment->n; i++)
		if (segment->ids[i] < 0 || segment->positions[i] != (int64_t)(segment->t0 + i))
			return false;
	return segment->has_ids;
}

/* The chain value of a segment (spec 5.3), where it may have one; *before: of what precedes it. */
static kvarc_ret link_chain(kvarc_writer *w, struct kvi_segment *segment, struct kvi_chain *before)
{
	struct kvi_chain *chain = &w->tracks[segment->track].chain;
	kvarc_ret ret = KVARC_OK;
	bool changed = w->options.lossy && !kvi_identity_get(&w->identity, "lossy");
	segment->has_chain = !changed && may_chain(segment) && (chain->known || segment->t0 == 0);
	segment->chain = (struct kvi_h128){ 0, 0 };
	if (segment->has_chain && segment->t0 == 0)
		ret = kvi_chain_root(&chain->value, &w->out.content, w->geometry_hash,
		                     &w->identity);
	*before = (struct kvi_chain){ segment->has_chain, chain->value };
	if (segment->has_chain && !ret)
		ret = kvi_chain_link(&segment->chain, &w->out.content, chain->value, segment,
		                     segment->n);
	*chain = (struct kvi_chain){ segment->has_chain, segment->chain };
	return ret ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

/* Writes the SEGMENT frame. */
static kvarc_ret begin_segment(kvarc_writer *w, struct kvi_segment *segment)
{
	struct kvi_out *out = &w->out.content;
	struct kvi_chain before;
	kvarc_ret ret = link_chain(w, segment, &before);
	if (ret)
		return ret;
	struct kvi_index_entry entry = { .tensor = segment->track,
		                         .segment = segment->t0,
		                         .n = segment->n,
		                         .has_chain = segment->has_chain,
		                         .chain = segment->chain };
	segment->sequence = w->out.sequence;
	w->earlier.segment_repeats = false;
	out->n = 0;
	kvi_segment_put(out, segment);
	if (out->failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	ret = kvi_writer_keep_segment(w, segment, before);
	return ret ? ret
	           : kvi_writer_emit_content(&w->out, KVI_FRAME_SEGMENT, out->p, out->n, true,
	                                     &entry);
}

/* Closes a segment behind its last chunk. */
static kvarc_ret end_segment(kvarc_writer *w, const struct kvi_segment *segment)
{
	struct kvi_writer_track *t = &w->tracks[segment->track];
	t->n_written += segment->n;
	t->n_committed = t->n_written;
	return kvi_writer_emit_commit(w, NULL);
}

/* Counts a chunk that was written. Returns OK, IO (stopped on request). */
static kvarc_ret count_chunk(kvarc_writer *w, uint32_t tensor, uint32_t raw_bytes)
{
	w->out.stats.chunks++;
	w->out.stats.raw_bytes += raw_bytes;
	w->out.stats.elements += raw_bytes / kvarc_dtype_bytes(w->geometry.tensors[tensor].dtype);
	const kvarc_common *c = &w->options.common;
	if (c->progress && c->progress(c->progress_opaque, w->out.stats.raw_bytes, KVARC_UNKNOWN))
		return kvi_fail(w->error, KVARC_IO, "stopped on request");
	return KVARC_OK;
}

/* Counts a written chunk, if another encoder has encoded it. */
static void count_given(const struct kvi_encode_job *job)
{
	if (!job->given)
		return;
	job->w->other.verified |= job->verifies;
	job->w->other.accepted.chunks++;
	job->w->other.accepted.bytes += KVI_CHUNK_HEADER_BYTES + job->coded.payload_bytes;
}

static kvarc_ret write_chunk(struct kvi_encode_job *job)
{
	kvarc_writer *w = job->w;
	const struct kvi_group *g = job->group;
	const struct kvi_segment *s = &job->segment->s;
	count_given(job);
	bool repeat = try_repeat(job);
	const bool model = kvi_codec_uses_prediction(job->coded.codec);
	const bool linear = kvi_codec_predicts(job->coded.codec);
	kvarc_ret ret = job->segment->begun ? KVARC_OK : begin_segment(w, &job->segment->s);
	job->segment->begun = true;
	if (!ret)
		ret = use_params(job);
	if (ret)
		return ret;
	struct kvi_chunk_header h = { .tensor = g->tensor,
		                      .head = g->head,
		                      .heads = g->heads,
		                      .segment = s->sequence,
		                      .params = linear                   ? w->predictor.sequence
		                                : job->coded.uses_params ? g->params_sequence
		                                                         : 0,
		                      .codec = job->coded.codec,
		                      .cut = job->coded.cut,
		                      .n = (uint16_t)s->n,
		                      .t0 = (uint32_t)s->t0,
		                      .raw_check = job->coded.raw_check };
	struct kvi_index_entry entry = { .tensor = h.tensor,
		                         .head = h.head,
		                         .heads = h.heads,
		                         .segment = h.segment,
		                         .params = h.params,
		                         .codec = h.codec };
	struct kvi_repeat seen = { .hash = job->raw_hash,
		                   .bytes = job->raw_bytes,
		                   .sequence = w->out.sequence,
		                   .offset = w->out.offset,
		                   .raw_check = h.raw_check,
		                   .n_tokens = s->n,
		                   .stream_size = h.cut.stream_size };
	kvi_chunk_header_write(job->frame + KVI_FRAME_HEAD_BYTES, &h);
	ret = kvi_writer_emit(&w->out, KVI_FRAME_CHUNK, job->frame,
	                      (uint32_t)(KVI_CHUNK_HEADER_BYTES + job->coded.payload_bytes),
	                      job->raw_bytes, repeat ? NULL : &job->rest, &entry);
	if (ret)
		return ret;
	/* A chunk that is predicted from a repeat in its segment cannot be repeated (spec
	 * repeat). */
	w->earlier.segment_repeats = w->earlier.segment_repeats || repeat;
	if (w->earlier.repeats && !repeat && !model && !job->coded.refers &&
	    !(linear && w->earlier.segment_repeats))
		kvi_repeat_add(w->earlier.repeats, &seen);
	ret = repeat ? KVARC_OK : keep_state(job, seen.sequence, seen.offset);
	if (ret)
		return ret;
	return count_chunk(w, g->tensor, job->raw_bytes);
}

/* Waits for the oldest job and, while nothing failed before, writes its chunk. */
static kvarc_ret finish_job(kvarc_writer *w, kvarc_ret before)
{
	struct kvi_writer_workers *workers = &w->workers;
	struct kvi_encode_job *j = &workers->jobs[workers->first_job];
	struct kvi_open_segment *s = j->segment;
	kvarc_ret ret = before;
	workers->first_job = (workers->first_job + 1) % workers->n_jobs;
	workers->n_busy--;
	kvi_pool_wait(workers->pool, &j->job);
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
	return ret ? ret : end_segment(w, &s->s);
}

/* The flags of a feature slot for a tensor with a model. */
static uint8_t slot_flags(const kvarc_writer *w, const struct kvi_group *group,
                          const struct kvi_open_segment *segment)
{
	const struct kvi_prediction *p = w->tracks[segment->s.track].prediction;
	return KVI_SLOT_WANTED | KVI_SLOT_LINEAR | KVI_SLOT_WHOLE |
	       (p && kvi_prediction_covers(p, group->order_index) ? KVI_SLOT_PREDICTION : 0);
}

/* The features of a segment's tensors; NULL when no tensor of the track has a model. */
static kvarc_ret open_features(kvarc_writer *w, struct kvi_open_segment *segment)
{
	const uint32_t track = segment->s.track;
	const struct kvi_writer_track *t = &w->tracks[track];
	uint32_t first = w->order.first[track], end = w->order.first[track + 1];
	bool any = false;
	segment->features = NULL;
	for (uint32_t i = first; w->plan && i < end; i++)
		any = any || w->plan->of[i].complete;
	if (!any)
		return KVARC_OK;
	kvarc_ret ret = kvi_feature_table_open(&segment->features, &w->alloc, w->plan, &w->order,
	                                       track);
	if (ret)
		return kvi_fail_alloc(w->error, &w->alloc);
	segment->features->pool = w->workers.pool;
	for (uint32_t i = t->first_group; i < t->end_group; i++) {
		const struct kvi_group *g = &w->groups[i];
		if (w->plan->of[g->order_index].model)
			kvi_feature_slot(segment->features, g->order_index)->flags =
				slot_flags(w, g, segment);
	}
	kvi_feature_table_plan(segment->features);
	return KVARC_OK;
}

/* Whether elements are wanted before the job runs, or longer than that: by a device's encoder, a
 * model, or later chunks. */
static bool outlive_job(const kvarc_writer *w, const struct kvi_group *group)
{
	return w->options.common.overlap || w->other.coder || w->options.level >= KVI_LEVEL_MODEL ||
	       keeps_states(w, group);
}

/* Allocates what a job needs for a segment and does not have. Returns OK, MEM, MEMLIMIT. */
static kvarc_ret reserve(kvarc_writer *w, struct kvi_encode_job *job, bool own, bool again)
{
	if (own && !job->own)
		job->own = kvi_malloc(&w->alloc, w->chunk_max);
	if (again && !job->again)
		job->again = kvi_malloc(&w->alloc, w->chunk_max);
	return (own && !job->own) || (again && !job->again) ? kvi_fail_alloc(w->error, &w->alloc)
	                                                    : KVARC_OK;
}

/* Whether the library's encoder tries no other codec for want of space. */
static bool is_small(size_t bytes, size_t raw_bytes)
{
	return bytes <= raw_bytes - raw_bytes / 16;
}

/* Whether it would keep a payload, with parameters or without, and neither fit new ones nor try
 * Zstandard (chunk_encode.c). */
static bool fits(const struct kvi_group *group, const struct kvi_coded_chunk *chunk,
                 size_t raw_bytes)
{
	const struct kvi_params *p = group->params;
	const size_t bytes = chunk->payload_bytes - KVI_CHUNK_HEADER_BYTES;
	if (chunk->payload_bytes <= KVI_CHUNK_HEADER_BYTES || !chunk->elements ||
	    !is_small(bytes, raw_bytes))
		return false;
	if (!kvi_codec_has_params(chunk->codec))
		return true;
	return p && p->codec == kvi_codec_params(chunk->codec) &&
	       group->params_sequence == chunk->params_sequence &&
	       !kvi_params_drifted(p, bytes, chunk->elements);
}

/* The payload's own header says how it is cut, and its check. */
static kvarc_ret take_header(struct kvi_encode_job *job, const struct kvi_coded_chunk *chunk)
{
	const size_t bytes = chunk->payload_bytes;
	const struct kvi_group *g = job->group;
	struct kvi_chunk_header h;
	if (!kvi_chunk_header_parse(&h, job->frame + KVI_FRAME_HEAD_BYTES, bytes) ||
	    h.tensor != g->tensor || h.head != g->head || h.heads != g->heads ||
	    h.n != job->segment->s.n || h.codec != chunk->codec)
		return kvi_fail(&job->error, KVARC_DATA,
		                "the encoder of tensor %u gave a chunk that is not the one that "
		                "was asked for",
		                (unsigned)g->tensor);
	job->coded = (struct kvi_encoded){ .codec = h.codec,
		                           .cut = h.cut,
		                           .raw_check = h.raw_check,
		                           .uses_params = kvi_codec_has_params(h.codec),
		                           .payload = job->frame + KVI_CHUNK_PAYLOAD_AT,
		                           .payload_bytes = bytes - KVI_CHUNK_HEADER_BYTES };
	return KVARC_OK;
}

/* Accepts the payload of the other encoder for the chunk of a job, if the library's would write the
 * same: fills given, raw_bytes, raw_hash, coded. Returns OK, DATA; then error is filled. */
static kvarc_ret take_coded(struct kvi_encode_job *job)
{
	kvarc_writer *w = job->w;
	const struct kvi_append_coder *x = w->other.coder;
	const struct kvi_group *g = job->group;
	struct kvi_coded_chunk c;
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	const struct kvi_segment *s = &job->segment->s;
	job->raw_bytes = s->n * g->heads * t->channels * (uint32_t)kvarc_dtype_bytes(t->dtype);
	if (!x->find(x->opaque, g->tensor, g->head, (uint32_t)(s->t0 - w->other.t0), &c) ||
	    !fits(g, &c, job->raw_bytes))
		return KVARC_OK;
	kvarc_ret ret = reserve_frame(job, c.payload_bytes);
	if (ret)
		return ret;
	memcpy(job->frame + KVI_FRAME_HEAD_BYTES, c.payload, c.payload_bytes);
	job->raw_hash = c.hash;
	job->given = true;
	return take_header(job, &c);
}

/* The kvi_job.work of a group's job: predictions take far longer than the rest. */
static size_t work_of(const kvarc_writer *w, const struct kvi_group *group,
                      const struct kvi_segment *segment)
{
	const kvarc_tensor *t = &w->geometry.tensors[group->tensor];
	return w->plan || w->options.lossy ? 0
	                                   : (size_t)segment->n * group->heads * t->channels *
	                                             kvarc_dtype_bytes(t->dtype);
}

static kvarc_ret submit(kvarc_writer *w, struct kvi_open_segment *segment, struct kvi_group *group,
                        const struct kvi_elements *elements)
{
	struct kvi_writer_workers *workers = &w->workers;
	while (workers->n_busy == workers->n_jobs || group->busy) {
		kvarc_ret ret = finish_job(w, KVARC_OK);
		if (ret)
			return ret;
	}
	struct kvi_earlier_state before;
	kvarc_ret ret = reference(w, group, &segment->s, &before);
	if (ret)
		return ret;
	if (workers->n_busy == 0)
		workers->first_job = 0; /* reuses memory that is still in the caches */
	struct kvi_encode_job *j =
		&workers->jobs[(workers->first_job + workers->n_busy) % workers->n_jobs];
	const bool own = outlive_job(w, group);
	ret = reserve(w, j, own, segment->verifies);
	if (ret)
		return ret;
	workers->n_busy++;
	j->job.run = writer_encode;
	j->job.work = work_of(w, group, &segment->s);
	j->w = w;
	j->group = group;
	j->segment = segment;
	j->buffer = own ? j->own : NULL;
	j->raw = j->buffer;
	j->features = segment->features && w->plan->of[group->order_index].model ? segment->features
	                                                                         : NULL;
	j->prediction =
		j->features && kvi_feature_slot(segment->features, group->order_index)->flags &
					KVI_SLOT_PREDICTION
			? w->tracks[segment->s.track].prediction
			: NULL;
	j->observed = j->exact = j->given = false;
	j->fetched = w->options.common.overlap || w->other.coder;
	j->elements = *elements;
	j->before = before;
	j->coded = (struct kvi_encoded){ 0 };
	group->busy = true;
	j->ret = w->other.coder ? take_coded(j) : KVARC_OK;
	j->verifies = segment->verifies && (j->given || w->options.flags & KVARC_WRITE_VERIFY);
	if (j->fetched && !j->ret && !j->given)
		get_elements(j);
	kvi_pool_submit(workers->pool, &j->job);
	return KVARC_OK;
}

kvarc_ret kvi_writer_drain(kvarc_writer *w, kvarc_ret ret)
{
	while (w->workers.n_busy)
		ret = finish_job(w, ret);
	for (unsigned i = 0; i < 2; i++) {
		struct kvi_open_segment *s = &w->workers.segments[i];
		kvi_feature_table_close(s->features);
		s->features = NULL;
		s->left = 0;
	}
	return ret;
}

/* Ids that the model does not have are stored, and so are those behind them. */
static kvarc_ret code_ids(kvarc_writer *w, struct kvi_segment *segment)
{
	struct kvi_writer_track *t = &w->tracks[segment->track];
	if (!t->ids)
		return KVARC_OK;
	kvarc_ret ret = kvi_token_coder_pass(t->ids, segment, true, w->error);
	if (ret) {
		kvi_token_coder_close(t->ids);
		t->ids = NULL;
	}
	return ret == KVARC_DATA ? KVARC_OK : ret;
}

kvarc_ret kvi_writer_segment(kvarc_writer *w, const struct kvi_segment *segment,
                             const struct kvi_chosen_tokens *chosen,
                             const struct kvi_elements *elements)
{
	const struct kvi_writer_track *t = &w->tracks[segment->track];
	struct kvi_open_segment *s = &w->workers.segments[w->workers.next_segment];
	kvarc_ret ret = KVARC_OK;
	w->workers.next_segment ^= 1;
	while (s->left && ret == KVARC_OK)
		ret = finish_job(w, ret);
	if (ret)
		return ret;
	s->s = *segment;
	s->chosen = *chosen;
	s->begun = false;
	s->verifies = w->options.flags & KVARC_WRITE_VERIFY ||
	              (w->other.coder && !w->other.verified);
	if (t->first_group == t->end_group) {
		ret = kvi_writer_drain(w, ret);
		ret = ret ? ret : begin_segment(w, &s->s);
		return ret ? ret : end_segment(w, &s->s);
	}
	ret = code_ids(w, &s->s);
	if (!ret)
		ret = open_features(w, s);
	if (ret)
		return ret;
	s->left = t->end_group - t->first_group;
	for (uint32_t g = t->first_group; g < t->end_group && !ret; g++)
		ret = submit(w, s, &w->groups[g], elements);
	return ret;
}

/* Opens the pool, and a coder for each of its workers; the caller closes, also on failure. */
static kvarc_ret open_workers(struct kvi_writer_workers *workers, const struct kvi_alloc *alloc,
                              const kvarc_writer_options *options)
{
	const kvarc_common *c = &options->common;
	kvarc_ret ret = (c->overlap ? kvi_pool_open_beside : kvi_pool_open)(&workers->pool, alloc,
	                                                                    c->threads);
	if (ret == KVARC_OK)
		ret = kvi_coder_tables_open(&workers->tables, alloc);
	if (ret == KVARC_OK && options->lossy)
		ret = kvi_coder_tables_lossy(workers->tables);
	if (ret)
		return ret;
	workers->n_coders = kvi_pool_workers(workers->pool);
	workers->coders = kvi_calloc(alloc, workers->n_coders, sizeof(void *));
	workers->elements = kvi_calloc(alloc, workers->n_coders, sizeof(void *));
	if (!workers->coders || !workers->elements)
		return kvi_alloc_error(alloc);
	for (unsigned i = 0; i < workers->n_coders && !ret; i++) {
		ret = kvi_coder_open(&workers->coders[i], alloc, workers->tables, c->isa_mask);
		if (!ret)
			kvi_coder_share(workers->coders[i], workers->pool);
	}
	return ret;
}

/* Ends the pool, and frees coders and jobs. */
static void close_workers(struct kvi_writer_workers *workers, const struct kvi_alloc *alloc)
{
	kvi_pool_close(workers->pool);
	for (unsigned i = 0; workers->jobs && i < workers->n_jobs; i++) {
		kvi_free(alloc, workers->jobs[i].own);
		kvi_free(alloc, workers->jobs[i].again);
		kvi_free(alloc, workers->jobs[i].memory.p);
		kvi_free(alloc, workers->jobs[i].expected);
		kvi_free(alloc, workers->jobs[i].predicted);
	}
	kvi_free(alloc, workers->jobs);
	for (unsigned i = 0; workers->coders && i < workers->n_coders; i++)
		kvi_coder_close(workers->coders[i]);
	for (unsigned i = 0; workers->elements && i < workers->n_coders; i++)
		kvi_free(alloc, workers->elements[i]);
	kvi_free(alloc, workers->coders);
	kvi_free(alloc, workers->elements);
	kvi_coder_tables_close(workers->tables);
}

static kvarc_ret make_jobs(kvarc_writer *w)
{
	struct kvi_writer_workers *workers = &w->workers;
	/* Enough jobs to keep every worker busy while the caller reads and writes. */
	workers->n_jobs = kvi_pool_jobs(workers->pool,
	                                w->plan || w->options.lossy ? 0 : w->chunk_max);
	workers->jobs = kvi_calloc(&w->alloc, workers->n_jobs, sizeof *workers->jobs);
	if (!workers->jobs)
		return kvi_alloc_error(&w->alloc);
	for (unsigned i = 0; i < workers->n_jobs; i++) {
		struct kvi_encode_job *j = &workers->jobs[i];
		j->w = w;
		if (w->options.level >= KVI_LEVEL_MODEL)
			j->expected = kvi_array(&w->alloc, w->chunk_max, sizeof *j->expected);
		if (w->options.level >= KVI_LEVEL_PREDICTED)
			j->predicted = kvi_malloc(&w->alloc, w->chunk_max);
		if ((!j->predicted && w->options.level >= KVI_LEVEL_PREDICTED) ||
		    (!j->expected && w->options.level >= KVI_LEVEL_MODEL))
			return kvi_alloc_error(&w->alloc);
	}
	return KVARC_OK;
}

void kvi_writer_free_workers(kvarc_writer *w)
{
	close_workers(&w->workers, &w->alloc);
	kvi_repeat_close(w->earlier.repeats, &w->alloc);
	free_states(w);
}

kvarc_ret kvi_writer_start(kvarc_writer *w)
{
	kvarc_ret ret = KVARC_OK;
	w->started = true;
	if (w->n_groups == 0)
		return KVARC_OK;
	link_states(w);
	if (w->plan && !w->predictor.sequence)
		ret = kvi_writer_emit_profile(w);
	if (ret)
		return ret;
	ret = open_workers(&w->workers, &w->alloc, &w->options);
	if (!ret && !(w->options.flags & KVARC_WRITE_STREAMABLE)) {
		w->earlier.repeats = kvi_repeat_open(&w->alloc);
		ret = w->earlier.repeats ? KVARC_OK : kvi_alloc_error(&w->alloc);
	}
	if (!ret)
		ret = make_jobs(w);
	return ret ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

kvarc_ret kvi_writer_keep_segment(kvarc_writer *w, const struct kvi_segment *segment,
                                  struct kvi_chain before)
{
	struct kvi_writer_track *t = &w->tracks[segment->track];
	if (w->options.flags & KVARC_WRITE_STREAMABLE)
		return KVARC_OK;
	struct kvi_written_segment *k = kvi_list_add(&t->written, &w->alloc, sizeof *k);
	if (!k)
		return kvi_fail_alloc(w->error, &w->alloc);
	*k = (struct kvi_written_segment){ segment->t0, segment->n, before, t->written_contents.n,
		                           w->out.content.n };
	kvi_put_bytes(&t->written_contents, w->out.content.p, w->out.content.n);
	return t->written_contents.failed ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

/* ==== Segments of another archive, whose chunks are written as they are ==== */

struct kvi_copy_terms kvi_writer_copy_terms(const kvarc_writer *w)
{
	const kvarc_writer_options *o = &w->options;
	return (struct kvi_copy_terms){ .copies = !o->lossy && o->level < KVI_LEVEL_MODEL,
		                        .repeats = !(o->flags & KVARC_WRITE_STREAMABLE),
		                        .predicts = w->plan,
		                        .verifies = o->flags & KVARC_WRITE_VERIFY };
}

kvarc_ret kvi_writer_begin_copy(kvarc_writer *w, struct kvi_segment *segment)
{
	const struct kvi_writer_track *t = &w->tracks[segment->track];
	kvarc_ret ret = w->started ? KVARC_OK : kvi_writer_start(w);
	for (uint32_t g = t->first_group; g < t->end_group; g++) {
		kvi_params_free(w->groups[g].params);
		w->groups[g].params = NULL;
	}
	segment->t0 = t->n_written;
	return ret ? ret : begin_segment(w, segment);
}

kvarc_ret kvi_writer_copy_chunk(kvarc_writer *w, const struct kvi_chunk_header *header,
                                const uint8_t *payload, size_t bytes, uint32_t decoded_bytes,
                                struct kvi_copied_at *at)
{
	const size_t all = KVI_CHUNK_HEADER_BYTES + bytes;
	const bool linear = kvi_codec_predicts(header->codec);
	struct kvi_chunk_header h = *header;
	struct kvi_out *out = &w->out.scratch;
	h.params = linear ? w->predictor.sequence : header->params;
	struct kvi_index_entry entry = { .tensor = h.tensor,
		                         .head = h.head,
		                         .heads = h.heads,
		                         .segment = h.segment,
		                         .params = h.params,
		                         .codec = h.codec };
	out->n = 0;
	if (!kvi_out_reserve(out, (size_t)kvi_frame_bytes((uint32_t)all)))
		return kvi_fail_alloc(w->error, &w->alloc);
	kvi_chunk_header_write(out->p + KVI_FRAME_HEAD_BYTES, &h);
	memcpy(out->p + KVI_CHUNK_PAYLOAD_AT, payload, bytes);
	/* A chunk that is predicted from a repeat in its segment cannot be repeated (spec
	 * repeat). */
	w->earlier.segment_repeats = w->earlier.segment_repeats || h.codec == KVI_CODEC_REPEAT;
	*at = (struct kvi_copied_at){ w->out.sequence, w->out.offset,
		                      !(linear && w->earlier.segment_repeats) };
	kvarc_ret ret = kvi_writer_emit(&w->out, KVI_FRAME_CHUNK, out->p, (uint32_t)all,
	                                decoded_bytes, NULL, &entry);
	return ret ? ret : count_chunk(w, h.tensor, decoded_bytes);
}

kvarc_ret kvi_writer_end_copy(kvarc_writer *w, const struct kvi_segment *segment)
{
	struct kvi_writer_track *t = &w->tracks[segment->track];
	t->n_submitted += segment->n;
	t->n_appended += segment->n;
	t->next_position = (int64_t)segment->positions[segment->n - 1] + 1;
	return end_segment(w, segment);
}
