/* SPDX-License-Identifier: BSD-3-Clause */
/* made.c - caches that the transformer makes itself, from token ids or from nothing */
#include <string.h>

#include "exact/head.h"
#include "model/formats.h"
#include "predict.h"
#include "stream/error.h"

enum { WRITTEN = 1024 }; /* tokens of a sequence */

static kvarc_ret fail(kvarc_trainer *t, kvarc_ret ret, const char *what)
{
	return kvi_fail(t->error, ret, KVARC_UNKNOWN, KVARC_UNKNOWN, "%s", what);
}

/* Channels lie in slots. */
static void set_tensors(const struct kvi_model_file *m, unsigned dtype,
                        const uint32_t ropes[2], kvarc_tensor *x)
{
	for (uint32_t l = 0; l < m->n_layers; l++, x += 2) {
		uint32_t rope = m->n_ropes ? ropes[m->layers[l].rope] : 0;
		x[0] = (kvarc_tensor){
			.layer = l, .kind = KVARC_KEY, .dtype = (uint8_t)dtype,
			.heads = m->kv_heads, .channels = m->head_channels,
			.flags = rope ? KVARC_TENSOR_POST_ROPE : 0, .rope = rope
		};
		x[1] = x[0];
		x[1].kind = KVARC_VALUE;
		x[1].flags = 0;
		x[1].rope = 0;
	}
}

static kvarc_ret add(kvarc_trainer *t, uint64_t n, const int32_t *ids,
                     unsigned dtype, enum kvi_train_origin origin, uint64_t seed)
{
	const struct kvi_model_file *m = t->predictor->file;
	const kvarc_track track = { .kind = KVARC_TRACK_SELF };
	kvarc_rope ropes[2];
	uint32_t at[2] = { 0 };
	kvarc_geometry g = { .ropes = ropes, .n_tracks = 1, .tracks = &track };
	for (unsigned i = 0; i < m->n_ropes; i++) {
		if (!m->ropes[i].rotary)
			continue;
		ropes[g.n_ropes++] = (kvarc_rope){
			KVARC_ROPE_INTERLEAVED, m->ropes[i].rotary,
			m->ropes[i].freq
		};
		at[i] = (uint32_t)g.n_ropes;
	}
	kvarc_tensor *tensors = kvi_calloc(&t->alloc, m->n_layers,
	                                   2 * sizeof *tensors);
	if (!tensors)
		return kvi_train_no_memory(t);
	set_tensors(m, dtype, at, tensors);
	g.n_tensors = 2 * (size_t)m->n_layers;
	g.tensors = tensors;
	kvarc_ret ret = kvi_train_add_own(t, &g, n, ids, origin, seed);
	kvi_free(&t->alloc, tensors);
	return ret;
}

/* Positions that the model has, at least. */
static uint64_t positions_of(const struct kvi_model_file *m)
{
	return m->positions.data ? m->positions.rows : INT32_MAX;
}

static bool may_add(const kvarc_trainer *t, uint64_t n, unsigned dtype)
{
	return t && t->predictor && n &&
	       (dtype == KVARC_F32 || dtype == KVARC_F16 || dtype == KVARC_BF16);
}

kvarc_ret kvarc_trainer_add_ids(kvarc_trainer *t, uint64_t n,
                                const int32_t *ids, unsigned dtype)
{
	if (!may_add(t, n, dtype) || !ids)
		return KVARC_PROG;
	const struct kvi_model_file *m = t->predictor->file;
	for (uint64_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= m->vocabulary)
			return kvi_fail(t->error, KVARC_GEOMETRY, KVARC_UNKNOWN,
			                KVARC_UNKNOWN, "token id %ld is not one of "
			                "the model's, which are below %lu",
			                (long)ids[i], (unsigned long)m->vocabulary);
	if (n > positions_of(m))
		return fail(t, KVARC_GEOMETRY, "a sequence of ids is longer than "
		            "the model can see");
	return add(t, n, ids, dtype, KVI_TRAIN_IDS, 0);
}

kvarc_ret kvarc_trainer_write(kvarc_trainer *t, uint64_t n, int32_t first,
                              uint64_t seed, unsigned dtype)
{
	if (!may_add(t, n, dtype) || n > UINT32_MAX)
		return KVARC_PROG;
	const struct kvi_model_file *m = t->predictor->file;
	uint64_t most = positions_of(m) < WRITTEN ? positions_of(m) : WRITTEN;
	uint64_t sequences = (n + most - 1) / most;
	int32_t ids[WRITTEN] = { first < 0 ? m->first_token : first };
	kvarc_ret ret = kvi_engine_check_head(m, t->error);
	if (ret)
		return ret;
	if (ids[0] < 0)
		return fail(t, KVARC_OPTIONS, "the model does not say what text "
		            "begins with: give a first token");
	if ((uint32_t)ids[0] >= m->vocabulary)
		return fail(t, KVARC_OPTIONS, "the first token is not one of the "
		            "model's");
	for (uint64_t i = 0; i < sequences && !ret; i++)
		ret = add(t, (n + sequences - 1 - i) / sequences, ids, dtype,
		          KVI_TRAIN_WRITTEN, seed + i);
	return ret;
}

void kvi_train_made(const kvarc_trainer *t, const struct kvi_train_cache *c,
                    uint32_t tensor, size_t t0, uint32_t n, uint8_t *to)
{
	const struct kvi_train_predictor *p = t->predictor;
	const kvarc_tensor *x = &c->geometry.tensors[tensor];
	kvi_floats_store(x->dtype, kvi_train_walk_rows(&p->teacher, x->kind) +
	                 (c->first + t0) * p->kv, n * p->kv, to);
}
