/* SPDX-License-Identifier: BSD-3-Clause */
/* train_write.c - token ids that a model writes itself, some sequences side by side */
#include "exact/head.h"
#include "train_predict.h"
#include "util/error.h"
#include "util/bytes.h"
#include "util/hash.h"

enum {
	LANES = 8, /* each keeps all layers of its keys and values */
	COST = 4   /* of a token, in tokens that go in blocks */
};

struct lane {
	struct kvi_train_cache *cache;
	uint64_t random;
};

struct write_writing {
	kvarc_trainer *t;
	struct kvi_run *run;
	struct kvi_head *head;
	struct lane lanes[LANES];
	size_t n, longest;
};

/* One more token of each sequence. What is behind the end of a shorter one is not kept. */
static kvarc_ret step(struct write_writing *w, size_t at)
{
	const struct kvi_train_predictor *p = w->t->predictor;
	int32_t ids[LANES], positions[LANES];
	for (size_t i = 0; i < w->n; i++) {
		const struct kvi_train_cache *c = w->lanes[i].cache;
		ids[i] = c->ids[at < c->n ? at : 0];
		positions[i] = (int32_t)at;
	}
	kvarc_ret ret = kvi_run_through(w->run, ids, positions, w->n, NULL);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_train_no_memory(w->t);
	if (ret)
		return kvi_fail(w->t->error, ret,
		                "the model cannot generate: its embeddings are damaged");
	const struct kvi_hidden h = kvi_run_hidden(w->run);
	const struct kvi_logits z = kvi_head_logits(w->head, h.h, h.width, w->n);
	for (size_t i = 0; i < w->n; i++) {
		struct lane *lane = &w->lanes[i];
		size_t id = kvi_head_pick(z.z + i * z.stride, p->file->vocabulary,
		                          kvi_splitmix64(&lane->random));
		if (at + 1 < lane->cache->n)
			lane->cache->ids[at + 1] = (int32_t)id;
	}
	return kvi_train_progress(w->t, COST * w->n * p->file->n_layers * p->layer_work);
}

static kvarc_ret write_all(struct write_writing *w)
{
	kvarc_trainer *t = w->t;
	const struct kvi_train_predictor *p = t->predictor;
	const struct kvi_run_options o = {
		.engine = p->exact,
		.alloc = &t->alloc,
		.pool = t->pool,
		.isa_mask = t->options.common.isa_mask,
		.lanes = w->n,
		.whole = true,
	};
	kvarc_ret ret = kvi_run_open(&w->run, &o);
	if (!ret)
		ret = kvi_head_open(&w->head, &o);
	ret = kvi_fail_memory(t->error, ret, &t->alloc);
	for (size_t at = 0; at + 1 < w->longest && !ret; at++)
		ret = step(w, at);
	return ret;
}

static void close_writing(struct write_writing *w)
{
	kvi_head_close(&w->head);
	kvi_run_close(&w->run);
	w->n = w->longest = 0;
}

static void add_lane(struct write_writing *w, struct kvi_train_cache *c)
{
	uint8_t seed[8];
	kvi_store64(seed, c->seed);
	w->lanes[w->n++] = (struct lane){ c, kvi_h64(seed, sizeof seed) };
	w->longest = c->n > w->longest ? c->n : w->longest;
}

static bool is_written(const struct kvi_train_stack *s, size_t i)
{
	return s->caches[i]->origin == KVI_TRAIN_WRITTEN;
}

uint64_t kvi_train_write_work(const struct kvi_train_stack *s)
{
	uint64_t tokens = 0;
	for (size_t i = 0; i < s->n_caches; i++)
		if (is_written(s, i))
			tokens += s->caches[i]->n;
	return COST * tokens;
}

kvarc_ret kvi_train_write(kvarc_trainer *t, const struct kvi_train_stack *s)
{
	struct write_writing w = { .t = t };
	kvarc_ret ret = KVARC_OK;
	if (kvi_train_write_work(s) &&
	    !(t->options.model.blind && t->predictor->exact == t->predictor->engine))
		ret = kvi_engine_add_head(t->predictor->exact, t->pool, t->error);
	for (size_t i = 0; i < s->n_caches && !ret; i++) {
		if (is_written(s, i))
			add_lane(&w, s->caches[i]);
		if (w.n && (w.n == LANES || i + 1 == s->n_caches)) {
			ret = write_all(&w);
			close_writing(&w);
		}
	}
	return ret;
}
