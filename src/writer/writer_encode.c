/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_encode.c - encodes one chunk, in a worker: elements, prediction, codec, verification */
#include "writer_state.h"

static struct kvi_chunk chunk_of(const struct kvi_encode_job *j)
{
	const kvarc_geometry *g = &j->w->geometry;
	const kvarc_tensor *t = &g->tensors[j->group->tensor];
	return (struct kvi_chunk){ .dtype = t->dtype,
		                   .n_tokens = j->segment->s.n,
		                   .heads = j->group->heads,
		                   .head_channels = t->channels,
		                   .positions = j->segment->s.positions,
		                   .rope = kvi_tensor_rope(g, t),
		                   .before = j->before.elements,
		                   .before_sequence = j->before.sequence,
		                   .before_offset = j->before.offset,
		                   .kind = t->kind,
		                   .t0 = j->segment->s.t0,
		                   .end = j->w->tracks[t->track].n_total,
		                   .token_rate = j->segment->taken.per_token
		                                         ? j->segment->taken.rate
		                                         : NULL };
}

int kvi_writer_fetch(const kvarc_writer *w, const struct kvi_fetching *f, uint32_t tensor,
                     uint32_t head, uint32_t heads, uint8_t *dst)
{
	const kvarc_tensor *t = &w->geometry.tensors[tensor];
	const uint32_t *from = f->taken->from;
	size_t row = (size_t)heads * t->channels * kvarc_dtype_bytes(t->dtype);
	uint32_t n;
	if (!f->taken->per_token)
		return f->fetch(f->opaque, tensor, head, heads, f->t0, f->n, dst);
	/* Runs of tokens between those that are left out. */
	for (uint32_t i = 0; i < f->n; i += n) {
		for (n = 1; i + n < f->n && from[i + n] == from[i] + n;)
			n++;
		int ret = f->fetch(f->opaque, tensor, head, heads, from[i], n, dst + i * row);
		if (ret)
			return ret;
	}
	return 0;
}

/* Makes the features that others need of this tensor, and z of them at once:
 * so upper layers wait for the elements only, not for this chunk. */
static kvarc_ret make_features(struct kvi_encode_job *j, struct kvi_coder *coder,
                               struct kvi_chunk *chunk)
{
	uint32_t order_index = j->group->order_index;
	if (!kvi_writer_asks_features(j))
		return KVARC_OK;
	kvarc_ret ret = kvi_feature_table_make(j->features, order_index, chunk->n_tokens,
	                                       &chunk->features);
	if (ret == KVARC_OK && !chunk->features->z)
		return KVARC_OK; /* level 2 */
	if (ret == KVARC_OK)
		ret = kvi_chunk_features(coder, chunk, j->raw, true);
	if (ret)
		return kvi_fail_alloc(&j->error, &j->w->alloc);
	chunk->features->has_z = true;
	kvi_feature_table_publish(j->features, order_index, KVI_FEATURES_Z);
	return KVARC_OK;
}

/* The model continues once it has the elements. */
static void observe(struct kvi_encode_job *j)
{
	struct kvi_prediction *g = j->prediction;
	if (!g || j->observed)
		return;
	j->observed = true;
	kvi_prediction_observe(g, j->group->order_index, j->raw,
	                       kvi_feature_slot(j->features, j->group->order_index)->f, j->exact);
}

/* Upper tensors need not wait for the chunk to be written. */
static void features_made(void *opaque)
{
	struct kvi_encode_job *j = opaque;
	kvi_feature_table_publish(j->features, j->group->order_index, KVI_FEATURES_ALL);
	observe(j);
}

/* Gets the prediction of the model, for codecs model and predicted. */
static kvarc_ret request_prediction(struct kvi_encode_job *j, struct kvi_linear_in *in)
{
	struct kvi_prediction_request a = { .order_index = j->group->order_index,
		                            .s = &j->segment->s,
		                            .raw = j->raw,
		                            .expected = j->expected,
		                            .predicted = j->predicted };
	if (!j->prediction)
		return KVARC_OK;
	kvarc_ret ret = kvi_prediction_get(j->prediction, &a);
	const char *why = kvi_prediction_failure(j->prediction);
	j->exact = a.exact;
	in->expected = j->expected;
	in->predicted = a.exact ? j->raw : j->predicted;
	return ret ? kvi_fail(&j->error, KVARC_PREDICTOR, "token %llu and those after it: %s",
	                      (unsigned long long)j->segment->s.t0,
	                      why ? why : "the model has stopped")
	           : KVARC_OK;
}

/* Fills in what codec linear needs; in is its memory. */
static kvarc_ret use_model(struct kvi_encode_job *j, struct kvi_coder *coder,
                           struct kvi_chunk *chunk, struct kvi_linear_in *in)
{
	const struct kvi_planned *x = &j->w->plan->of[j->group->order_index];
	kvi_linear_in_init(in, j->w->plan, j->group->order_index, &j->w->geometry, j->group->tensor,
	                   &j->segment->s, true);
	chunk->linear = in;
	chunk->made = features_made;
	chunk->made_opaque = j;
	const bool later = x->model->flags & KVI_MODEL_BASIS;
	kvarc_ret ret = later ? KVARC_OK : make_features(j, coder, chunk);
	if (ret)
		return ret;
	const struct kvi_feature_slot *slot = kvi_feature_slot(j->features, j->group->order_index);
	if (slot->asked != KVI_FEATURES_ALL)
		chunk->features = NULL; /* z was all */
	if (!slot->reads)
		chunk->linear = NULL; /* nothing predicts it here */
	else if (!kvi_feature_table_wait(j->features, j->group->order_index, in))
		return KVARC_END; /* an earlier job failed and has the reason */
	return request_prediction(j, in);
}

/* Decodes what was encoded and compares it: with its elements, or, of what another encoder made,
 * whose elements are not there, with its check. */
static kvarc_ret verify(struct kvi_encode_job *j, struct kvi_coder *coder,
                        const struct kvi_chunk *chunk)
{
	const struct kvi_encoded *c = &j->coded;
	const struct kvi_params *params = !c->uses_params ? NULL
	                                  : c->params     ? c->params
	                                                  : j->group->params;
	const struct kvi_chunk_payload p = { chunk,  c->codec,   c->cut,
		                             params, c->payload, c->payload_bytes };
	uint64_t check;
	kvarc_ret ret = kvi_chunk_decode(coder, &p, j->again, &check);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(&j->error, &j->w->alloc);
	if (ret || check != c->raw_check || (!j->given && memcmp(j->raw, j->again, j->raw_bytes)))
		return kvi_fail(&j->error, KVARC_DATA,
		                "verification failed: a chunk of tensor %u does not decode to its "
		                "input; %s",
		                (unsigned)j->group->tensor,
		                j->given ? "the device that encoded it, or its kernels, may be "
		                           "faulty: encode on the host"
		                         : "check this machine's memory");
	return KVARC_OK;
}

bool kvi_writer_tier(const kvarc_writer *w, uint32_t tensor, kvarc_lossy *tier)
{
	const kvarc_tensor *t = &w->geometry.tensors[tensor];
	const kvarc_lossy *all = w->options.lossy;
	/* Parts of quantised blocks, such as their scales, stay as they are. */
	return all && t->role == KVARC_WHOLE && kvi_lossy_of_layer(all, t->layer, tier);
}

static kvarc_ret code(struct kvi_encode_job *j, struct kvi_coder *coder,
                      const struct kvi_chunk *chunk)
{
	const kvarc_writer_options *o = &j->w->options;
	const struct kvi_params *current = j->group->params;
	kvarc_lossy tier;
	if (kvi_writer_tier(j->w, j->group->tensor, &tier))
		return kvi_chunk_encode_lossy(coder, chunk, o->level, &tier, current, j->raw,
		                              &j->coded);
	return kvi_chunk_encode(coder, chunk, o->level, current, j->raw, &j->coded);
}

void kvi_writer_get_elements(struct kvi_encode_job *j)
{
	const struct kvi_segment *s = &j->segment->s;
	const struct kvi_fetching f = { j->fetch, j->fetch_opaque, &j->segment->taken, s->t0,
		                        s->n };
	const struct kvi_chunk chunk = chunk_of(j);
	j->ret = KVARC_OK;
	j->raw_bytes = (uint32_t)kvi_chunk_bytes(&chunk);
	if (kvi_writer_fetch(j->w, &f, j->group->tensor, j->group->head, j->group->heads, j->raw))
		j->ret = kvi_fail(&j->error, KVARC_IO,
		                  "fetching %u tokens from token %llu of tensor %u failed",
		                  (unsigned)s->n, (unsigned long long)s->t0,
		                  (unsigned)j->group->tensor);
}

/* The coder's buffer lives until its next call only. */
static void keep_payload(struct kvi_encode_job *j)
{
	memcpy(j->memory + KVI_CHUNK_PAYLOAD_AT, j->coded.payload, j->coded.payload_bytes);
	j->coded.payload = j->memory + KVI_CHUNK_PAYLOAD_AT;
}

/* Makes the frame where the payload is, when that is written before another job begins. */
static void frame_payload(struct kvi_encode_job *j)
{
	if (j->w->n_jobs == 1 && j->coded.free_around && !j->verifies)
		j->frame = (uint8_t *)(uintptr_t)j->coded.payload - KVI_CHUNK_PAYLOAD_AT;
	else
		keep_payload(j);
}

static void encode_chunk(struct kvi_encode_job *j, struct kvi_coder *coder)
{
	kvarc_writer *w = j->w;
	struct kvi_chunk chunk = chunk_of(j);
	struct kvi_linear_in in;
	if (!j->fetched)
		kvi_writer_get_elements(j);
	if (!j->ret && j->given && j->verifies)
		j->ret = verify(j, coder, &chunk);
	else if (!j->ret && j->features)
		j->ret = use_model(j, coder, &chunk, &in);
	if (j->ret || j->given)
		return;
	j->ret = code(j, coder, &chunk);
	if (j->ret == KVARC_MEM || j->ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(&j->error, &w->alloc);
	else if (j->ret)
		kvi_fail(&j->error, j->ret, "a chunk of tensor %u cannot be encoded",
		         (unsigned)j->group->tensor);
	if (j->ret)
		return;
	/* Transforms are predicted from what readers get. */
	if (chunk.linear && chunk.linear->model->flags & KVI_MODEL_BASIS) {
		j->ret = make_features(j, coder, &chunk);
		chunk.features = NULL; /* z was all */
		if (j->ret)
			return;
	}
	if (w->repeats)
		j->raw_hash = kvi_h128(j->raw, j->raw_bytes);
	frame_payload(j);
	struct kvi_features *made = chunk.features;
	chunk.features = NULL;
	if (j->verifies)
		j->ret = verify(j, coder, &chunk);
	if (made && j->ret == KVARC_OK) {
		kvi_feature_table_publish(j->features, j->group->order_index, KVI_FEATURES_ALL);
		observe(j);
	}
}

void kvi_writer_encode(struct kvi_job *job, unsigned worker)
{
	struct kvi_encode_job *j = (struct kvi_encode_job *)job;
	struct kvi_coder *coder = j->w->coders[worker];
	if (!j->raw)
		j->raw = kvi_coder_elements(coder, j->w->chunk_max);
	if (j->raw)
		encode_chunk(j, coder);
	else
		j->ret = kvi_fail_alloc(&j->error, &j->w->alloc);
	if (j->prediction && !j->observed)
		kvi_prediction_mark_lost(j->prediction, j->group->order_index, j->segment->s.t0);
	if (j->features)
		kvi_feature_table_leave(j->features, j->group->order_index);
}
