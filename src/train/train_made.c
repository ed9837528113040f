/* SPDX-License-Identifier: BSD-3-Clause */
/* train_made.c - caches that the transformer makes itself, from token ids or from nothing */
#include <string.h>

#include "exact/head.h"
#include "numeric/formats.h"
#include "train_predict.h"
#include "util/error.h"
#include "weights/model_geometry.h"

enum { WRITTEN = 1024 }; /* tokens of a sequence */

static kvarc_ret fail(kvarc_trainer *t, kvarc_ret ret, const char *what)
{
	return kvi_fail(t->error, ret, "%s", what);
}

/* Channels lie in slots. */
static kvarc_ret add(kvarc_trainer *t, uint64_t n, const int32_t *ids, unsigned dtype,
                     enum kvi_train_origin origin, uint64_t seed)
{
	struct kvi_model_geometry g;
	if (kvi_model_geometry_make(&g, &t->alloc, t->predictor->file, dtype,
	                            KVARC_ROPE_INTERLEAVED))
		return kvi_train_no_memory(t);
	kvarc_ret ret = kvi_train_add_own(t, &g.geometry, n, ids, origin, seed);
	kvi_model_geometry_free(&g, &t->alloc);
	return ret;
}

static bool may_add(const kvarc_trainer *t, uint64_t n, unsigned dtype)
{
	return t && t->predictor && n &&
	       (dtype == KVARC_F32 || dtype == KVARC_F16 || dtype == KVARC_BF16);
}

kvarc_ret kvarc_trainer_add_ids(kvarc_trainer *t, uint64_t n, const int32_t *ids, unsigned dtype)
{
	if (!may_add(t, n, dtype) || !ids)
		return KVARC_PROG;
	const struct kvi_model_file *m = t->predictor->file;
	for (uint64_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= m->vocabulary)
			return kvi_fail(t->error, KVARC_GEOMETRY,
			                "token id %ld is not one of the "
			                "model's, which are below %lu",
			                (long)ids[i], (unsigned long)m->vocabulary);
	if (n > kvi_model_positions(m))
		return fail(t, KVARC_GEOMETRY,
		            "a sequence of ids is longer than the model can see");
	return add(t, n, ids, dtype, KVI_TRAIN_IDS, 0);
}

kvarc_ret kvarc_trainer_write(kvarc_trainer *t, uint64_t n, int32_t first, uint64_t seed,
                              unsigned dtype)
{
	if (!may_add(t, n, dtype) || n > UINT32_MAX)
		return KVARC_PROG;
	const struct kvi_model_file *m = t->predictor->file;
	uint64_t most = kvi_model_positions(m) < WRITTEN ? kvi_model_positions(m) : WRITTEN;
	uint64_t sequences = (n + most - 1) / most;
	int32_t ids[WRITTEN] = { first < 0 ? m->first_token : first };
	kvarc_ret ret = kvi_engine_check_head(m, t->error);
	if (ret)
		return ret;
	if (ids[0] < 0)
		return fail(t, KVARC_OPTIONS,
		            "the model does not say what text begins with: give a first token");
	if ((uint32_t)ids[0] >= m->vocabulary)
		return fail(t, KVARC_OPTIONS, "the first token is not one of the model's");
	for (uint64_t i = 0; i < sequences && !ret; i++)
		ret = add(t, (n + sequences - 1 - i) / sequences, ids, dtype, KVI_TRAIN_WRITTEN,
		          seed + i);
	return ret;
}

void kvi_train_made(const kvarc_trainer *t, const struct kvi_train_cache *c, uint32_t tensor,
                    size_t t0, uint32_t n, uint8_t *to)
{
	const struct kvi_train_predictor *p = t->predictor;
	const kvarc_tensor *x = &c->geometry.tensors[tensor];
	kvi_floats_store(x->dtype,
	                 kvi_train_walk_rows(&p->teacher, x->kind) + (c->first + t0) * p->kv,
	                 n * p->kv, to);
}
