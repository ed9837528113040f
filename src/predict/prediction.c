/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction.c - a model at work next to the coder (spec model 2, 3) */
#include <string.h>

#include "util/fpmode.h"
#include "numeric/formats.h"
#include "prediction_state.h"

/* Marks the session as lost, with the reason; the lock is held. */
static void fail(struct kvi_prediction *session, kvarc_ret ret, const char *why)
{
	session->lost = true;
	session->ret = ret;
	session->why = why;
	pthread_cond_broadcast(&session->changed);
}

/* Predicts the current layer; the lock is held. */
static void predict(struct kvi_prediction *session)
{
	kvarc_ret ret = session->ops->predict(session->run, &session->p);
	if (ret)
		fail(session, ret, kvi_prediction_failed_text);
}

uint64_t kvi_prediction_next(const struct kvi_prediction *session)
{
	return session->t0;
}

size_t kvi_prediction_layers(const struct kvi_prediction *session)
{
	return session->limit;
}

/* Resets the session to no current segment and no losses. */
static void forget_segment(struct kvi_prediction *session)
{
	session->n = session->layer = session->observed = 0;
	session->lost = false;
	session->lost_t0 = UINT64_MAX;
	session->lost_from = SIZE_MAX;
	session->why = NULL;
	session->ret = KVARC_DATA;
}

void kvi_prediction_restart(struct kvi_prediction *session, size_t layers)
{
	kvarc_ret ret = session->ops->restart(session->run);
	session->limit = layers < session->shape->layers ? layers : session->shape->layers;
	session->t0 = 0;
	forget_segment(session);
	if (ret)
		fail(session, ret, kvi_prediction_failed_text);
}

void kvi_prediction_rewind(struct kvi_prediction *session, uint64_t t0)
{
	kvarc_ret ret = session->ops->rewind ? session->ops->rewind(session->run, t0)
	                                     : KVARC_OPTIONS;
	session->t0 = t0;
	forget_segment(session);
	if (ret)
		fail(session, ret, "this predictor cannot go back to earlier tokens");
}

bool kvi_prediction_is_lost(struct kvi_prediction *session)
{
	pthread_mutex_lock(&session->lock);
	bool lost = session->lost || session->lost_t0 != UINT64_MAX;
	pthread_mutex_unlock(&session->lock);
	return lost;
}

const char *kvi_prediction_failure(struct kvi_prediction *session)
{
	pthread_mutex_lock(&session->lock);
	const char *why = session->why;
	pthread_mutex_unlock(&session->lock);
	return why;
}

/* The layer and kind of the tensor at an index of the order of chunks. */
static bool find(const struct kvi_prediction *session, uint32_t order_index, size_t *layer,
                 unsigned *kind)
{
	const kvarc_tensor *t = kvi_prediction_tensor(&session->o, order_index);
	*layer = t->layer;
	*kind = t->kind == KVARC_KEY ? KEY : VALUE;
	return (t->kind == KVARC_KEY || t->kind == KVARC_VALUE) && t->layer < session->limit &&
	       session->layers[t->layer].order_index[*kind] == order_index;
}

bool kvi_prediction_covers(const struct kvi_prediction *session, uint32_t order_index)
{
	size_t layer;
	unsigned kind;
	return find(session, order_index, &layer, &kind);
}

/* Begins a segment at the first layer. The lock is held: no other job can go on meanwhile. */
static void begin(struct kvi_prediction *session, const struct kvi_segment *segment)
{
	if (!segment->has_ids) {
		fail(session, KVARC_DATA, "tokens without ids cannot be predicted by a model");
		return;
	}
	kvarc_ret ret = session->ops->segment(session->run, segment);
	if (ret) {
		fail(session, ret,
		     session->file ? "a token id or position is not one of the model"
		                   : kvi_prediction_failed_text);
		return;
	}
	session->n = segment->n;
	session->layer = session->observed = 0;
	predict(session);
}

/* Converts elements to numbers, those of keys in slots. */
static void take(struct kvi_prediction *session, const struct kvi_model *model,
                 const kvarc_tensor *tensor, const uint8_t *raw, float *to)
{
	const kvarc_rope *rope = kvi_tensor_rope(session->o.geometry, tensor);
	size_t size = kvarc_dtype_bytes(tensor->dtype), hd = tensor->channels;
	float x[KVI_GROUP_MAX];
	for (size_t i = 0; i < session->n * tensor->heads; i++, raw += hd * size) {
		kvi_floats_exact(tensor->dtype, raw, hd, x);
		for (size_t c = 0; c < hd; c++)
			*to++ = x[session->file ? kvi_slot_channel(model, rope, c) : c];
	}
}

/* The tensor whose model corrects the hidden state; BOTH: none does. */
static unsigned corrector(const struct kvi_prediction *session)
{
	const struct layer *l = &session->layers[session->layer];
	unsigned k = KEY;
	if (l->exact == (1u << KEY | 1u << VALUE))
		return BOTH; /* spec predicted 3 */
	while (k < BOTH && !(l->model[k]->flags & KVI_MODEL_CORRECTS))
		k++;
	/* An external predictor has no such state. */
	return session->file && session->o.description->closed ? k : BOTH;
}

static void correct(struct kvi_prediction *session, unsigned kind)
{
	const struct kvi_model *m = session->layers[session->layer].model[kind];
	struct kvi_features *const *f = session->layers[session->layer].f;
	const struct kvi_features *same[KVI_SAME_MAX];
	struct kvi_hidden h = kvi_run_hidden(session->run);
	for (unsigned i = 0; i < m->n_same; i++)
		same[i] = f[m->same[i].kind == KVARC_KEY ? KEY : VALUE];
	kvi_model_correct(m, same, f[kind], session->kernels, h.h, h.width, h.root, 0, session->n,
	                  session->scratch);
}

/* Advances the model through the layer, whose two tensors are known; the lock is held. there:
 * attention has their elements from an earlier pass. */
static kvarc_ret go_through(struct kvi_prediction *session, bool there)
{
	bool closed = session->o.description->closed;
	unsigned kind = corrector(session);
	bool corrects = kind < BOTH;
	size_t stride = session->C;
	const float *k = there ? NULL : session->true_values[KEY];
	const float *v = session->true_values[VALUE];
	uint64_t mode = kvi_fp_exact();
	if (corrects)
		correct(session, kind);
	if (!closed) {
		stride = session->p.stride;
		k = session->p.k;
		v = session->p.v;
		if (session->ops->rotate)
			session->ops->rotate(session->run, &session->p);
	}
	kvi_fp_restore(mode);
	return session->ops->advance(session->run, k, v, stride, corrects);
}

/* Moves to the next layer, or segment; the lock is held. */
static void advance(struct kvi_prediction *session)
{
	kvarc_ret ret = go_through(session, false);
	if (ret) {
		fail(session, session->file ? KVARC_DATA : ret,
		     session->file ? "no memory for the model's keys and values"
		                   : kvi_prediction_failed_text);
		return;
	}
	session->observed = 0;
	if (++session->layer < session->limit) {
		predict(session);
	} else {
		session->t0 += session->n;
		session->n = 0;
	}
	pthread_cond_broadcast(&session->changed);
}

/* Predicts the layer once more, by scalar arithmetic from the first layer on; the lock is held. In
 * an open loop attention keeps the predictions of earlier segments: their checks held. */
static void predict_again(struct kvi_prediction *session, const struct kvi_segment *segment)
{
	size_t layer = session->layer;
	if (session->ops->again(session->run, segment))
		return;
	session->fell_back = true;
	session->kernels = kvi_kernels_get(KVARC_ISA_SCALAR);
	for (session->layer = 0; session->layer < layer; session->layer++) {
		predict(session);
		if (go_through(session, true))
			break; /* cannot fail: the layer was passed before */
	}
	session->layer = layer;
	predict(session);
}

/* Fills in the results of a request; the lock is held. */
static void answer(struct kvi_prediction *session, unsigned kind,
                   struct kvi_prediction_request *request)
{
	const kvarc_tensor *t = kvi_prediction_tensor(&session->o, request->order_index);
	uint64_t mode = kvi_fp_exact();
	if (request->expected)
		kvi_model_expect(session->layers[session->layer].model[kind],
		                 kind == KEY ? session->p.k : session->p.v, session->p.stride,
		                 session->n, request->expected);
	request->exact = request->raw && kvi_prediction_is_exact(session, t, request->raw);
	if (request->predicted && !request->exact)
		kvi_prediction_elements(session, t, request->predicted);
	kvi_fp_restore(mode);
}

/* Whether the results of a request have its check, or it has none. */
static bool holds(const struct kvi_prediction *session,
                  const struct kvi_prediction_request *request)
{
	const kvarc_tensor *t = kvi_prediction_tensor(&session->o, request->order_index);
	size_t n = session->n * session->C;
	return !request->check ||
	       *request->check == (request->predicted ? kvi_h64(request->predicted,
	                                                        n * kvarc_dtype_bytes(t->dtype))
	                                              : kvi_expected_check(request->in));
}

/* Waits for the layer of a segment; the lock is held. False: the model will never reach it. */
static bool wait_for(struct kvi_prediction *session, const struct kvi_segment *segment,
                     size_t layer, unsigned kind)
{
	for (;;) {
		bool here = session->n && session->t0 == segment->t0 && session->layer == layer;
		bool past = session->t0 > segment->t0 || (here && session->observed >> kind & 1) ||
		            (session->n && session->t0 == segment->t0 && session->layer > layer);
		bool never = segment->t0 > session->lost_t0 ||
		             (segment->t0 == session->lost_t0 && layer >= session->lost_from);
		if (session->lost || past || never)
			break;
		if (!session->n && session->t0 == segment->t0)
			begin(session, segment);
		else if (here)
			break;
		else
			pthread_cond_wait(&session->changed, &session->lock);
	}
	return !session->lost && session->n && session->t0 == segment->t0 &&
	       session->layer == layer;
}

kvarc_ret kvi_prediction_get(struct kvi_prediction *session, struct kvi_prediction_request *request)
{
	size_t layer;
	unsigned kind;
	if (!find(session, request->order_index, &layer, &kind))
		return KVARC_DATA;
	pthread_mutex_lock(&session->lock);
	bool there = wait_for(session, request->s, layer, kind);
	if (there)
		answer(session, kind, request);
	if (there && session->o.decodes && !session->fell_back && !holds(session, request)) {
		predict_again(session, request->s);
		answer(session, kind, request);
	}
	kvarc_ret ret = there ? KVARC_OK : session->lost ? session->ret : KVARC_DATA;
	pthread_mutex_unlock(&session->lock);
	return ret;
}

bool kvi_prediction_fell_back(struct kvi_prediction *session)
{
	pthread_mutex_lock(&session->lock);
	bool fell_back = session->fell_back;
	pthread_mutex_unlock(&session->lock);
	return fell_back;
}

void kvi_prediction_observe(struct kvi_prediction *session, uint32_t order_index,
                            const uint8_t *raw, const struct kvi_features *features, bool exact)
{
	size_t layer;
	unsigned kind;
	if (!find(session, order_index, &layer, &kind))
		return;
	const struct kvi_model *m = session->layers[layer].model[kind];
	const kvarc_tensor *t = kvi_prediction_tensor(&session->o, order_index);
	if (session->o.description->closed) {
		uint64_t mode = kvi_fp_exact();
		take(session, m, t, raw, session->true_values[kind]);
		kvi_fp_restore(mode);
		memcpy(session->layers[layer].f[kind]->r, features->r,
		       m->heads * kvi_head_stride(m) * features->tokens_capacity *
		               sizeof *features->r);
	}
	pthread_mutex_lock(&session->lock);
	unsigned *all = &session->layers[layer].exact, bit = 1u << kind;
	*all = exact ? *all | bit : *all & ~bit;
	session->observed |= bit;
	if (session->observed == 3 && !session->lost)
		advance(session);
	pthread_mutex_unlock(&session->lock);
}

void kvi_prediction_mark_lost(struct kvi_prediction *session, uint32_t order_index, uint64_t t0)
{
	size_t layer;
	unsigned kind;
	if (!find(session, order_index, &layer, &kind))
		return;
	pthread_mutex_lock(&session->lock);
	if (t0 < session->lost_t0 || (t0 == session->lost_t0 && layer < session->lost_from)) {
		session->lost_t0 = t0;
		session->lost_from = layer + 1;
	}
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
}
