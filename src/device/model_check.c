/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_check.c - whether the kernels of a device predict what the library's engine predicts: a few
 * tokens through all layers of a model, in an open loop
 */
#include "config.h"

#include "device_model.h"

#include <string.h>

#include "exact_launch.h"
#include "numeric/rope_angles.h"
#include "util/error.h"

/* Tokens; parts of memory are multiples of PART. Attention looks at a block of keys that is not
 * full, products have one tile of rows. */
enum { TOKENS = 16, PART = 256 };

/* A check on its way. */
struct model_check {
	struct kvarc_device_model *m;
	struct kvi_exact_stream to;
	struct kvi_gpu_exact_run run;
	float *rows; /* rows copied from the device */
	int32_t ids[TOKENS], positions[TOKENS];
	uint32_t n;
};

static uint64_t part_bytes(uint64_t n)
{
	return (n + PART - 1) / PART * PART;
}

/* Tokens from all over the vocabulary, at the first positions. */
static void make_tokens(struct model_check *check)
{
	const struct kvi_gpu_exact_model *m = &check->m->m;
	const uint32_t rows = m->position_rows;
	check->n = rows && rows < TOKENS ? rows : TOKENS;
	for (uint32_t i = 0; i < check->n; i++) {
		check->ids[i] = (int32_t)((uint64_t)m->vocabulary * (2 * i + 1) / (2 * check->n));
		check->positions[i] = (int32_t)i;
	}
	check->run = (struct kvi_gpu_exact_run){ .m = m, .tokens = check->n };
}

/* Bytes of the turns of a rope, and of memory to make them. */
static size_t turns_bytes(const struct model_check *check, unsigned rope)
{
	return kvi_rotations_bytes(check->m->m.pairs[rope], check->n);
}

uint64_t kvi_model_check_bytes(struct kvarc_device_model *model)
{
	struct model_check c = { .m = model };
	make_tokens(&c);
	uint64_t n = 2 * part_bytes(sizeof c.ids);
	for (unsigned i = 0; i < model->m.n_ropes; i++)
		n += part_bytes(turns_bytes(&c, i));
	return n + part_bytes(kvi_gpu_exact_place(&c.run, 0));
}

/* ----- what the run needs ------------------------------------------------ */

/* Copies bytes to *at, which then is behind them; *to: where they are. */
static kvarc_ret send(struct model_check *check, const void *from, size_t bytes, uint64_t *at,
                      uint64_t *to)
{
	*to = *at;
	*at += part_bytes(bytes);
	return kvi_device_copy(check->to.d, *to, from, bytes, check->to.stream);
}

static kvarc_ret send_turns(struct model_check *check, unsigned rope, uint64_t *at)
{
	const struct kvi_model_rope *r = &kvi_engine_model(check->m->engine)->ropes[rope];
	const kvarc_rope of = { .rotary = r->rotary, .freq = r->freq };
	struct kvi_rotations turns;
	void *buffer = kvi_malloc(&check->to.d->alloc, turns_bytes(check, rope));
	if (!buffer)
		return kvi_fail_alloc(check->to.d->error, &check->to.d->alloc);
	kvi_rotations_make(&turns, buffer, &of, check->positions, check->n);
	check->run.capacity = (uint32_t)turns.tokens_capacity;
	kvarc_ret ret = send(check, turns.turn,
	                     r->rotary / 2 * turns.tokens_capacity * 2 * sizeof *turns.turn, at,
	                     &check->run.turns[rope]);
	kvi_free(&check->to.d->alloc, buffer);
	return ret;
}

/* The tokens come to the first layer; the context is current. */
static kvarc_ret begin(struct model_check *check, uint64_t at)
{
	kvarc_ret ret = send(check, check->ids, sizeof check->ids, &at, &check->run.ids);
	if (!ret)
		ret = send(check, check->positions, sizeof check->positions, &at,
		           &check->run.positions);
	for (unsigned i = 0; i < check->m->m.n_ropes && !ret; i++)
		ret = send_turns(check, i, &at);
	if (ret)
		return ret;
	kvi_gpu_exact_place(&check->run, at);
	return kvi_gpu_exact_begin(&check->run);
}

/* ----- layers ------------------------------------------------ */

/* Rows of the device at `at` are those of the host; the context is current. */
static kvarc_ret compare(struct model_check *check, size_t layer, uint64_t at, const float *host,
                         size_t stride)
{
	const struct kvi_gpu_exact_model *m = &check->m->m;
	const size_t numbers = (size_t)m->kv_heads * m->channels, row = check->run.kv;
	kvarc_ret ret = kvarc_device_fetch(check->to.d, check->rows, at,
	                                   check->n * row * sizeof *check->rows, check->to.stream);
	for (uint32_t i = 0; i < check->n && !ret; i++)
		if (memcmp(check->rows + i * row, host + i * stride, numbers * sizeof *host))
			ret = kvi_fail(check->to.d->error, KVARC_IO,
			               "the kernels do not predict what the host predicts (layer "
			               "%zu): this GPU, its memory or the kernels are faulty; code "
			               "on the host",
			               layer);
	return ret;
}

static kvarc_ret predicted(void *opaque, size_t layer, const struct kvi_predicted *p)
{
	struct model_check *c = opaque;
	kvarc_ret ret = kvi_gpu_exact_predict(&c->run, &c->m->m.layers[layer]);
	if (!ret)
		ret = compare(c, layer, c->run.k, p->k, p->stride);
	return ret ? ret : compare(c, layer, c->run.v, p->v, p->stride);
}

static kvarc_ret turned(void *opaque, size_t layer, struct kvi_predicted *predicted)
{
	struct model_check *c = opaque;
	kvarc_ret ret = kvi_gpu_exact_turn(&c->run, &c->m->m.layers[layer], c->run.k, c->run.kv);
	return ret ? ret : compare(c, layer, c->run.k, predicted->k, predicted->stride);
}

static kvarc_ret advanced(void *opaque, size_t layer)
{
	struct model_check *c = opaque;
	return kvi_gpu_exact_advance(&c->run, &c->m->m.layers[layer], c->run.k, c->run.v, c->run.kv,
	                             false);
}

/* Runs the tokens through all layers, beside the library's engine. */
static kvarc_ret go_through(struct model_check *check, struct kvi_pool *pool)
{
	struct kvarc_device *d = check->to.d;
	const struct kvi_run_options o = { .engine = check->m->engine,
		                           .alloc = &d->alloc,
		                           .pool = pool,
		                           .isa_mask = d->common.isa_mask };
	const struct kvi_run_pass pass = { check, predicted, turned, advanced };
	struct kvi_run *run;
	if (kvi_run_open(&run, &o))
		return kvi_fail_alloc(d->error, &d->alloc);
	kvarc_ret ret = kvi_run_through(run, check->ids, check->positions, check->n, &pass);
	kvi_run_close(&run);
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT ? kvi_fail_alloc(d->error, &d->alloc)
	                                                 : ret;
}

kvarc_ret kvi_model_check(struct kvarc_device_model *model, uint64_t memory, void *stream)
{
	struct kvarc_device *d = model->d;
	struct model_check c = { .m = model, .to = { d, stream } };
	struct kvi_pool *pool;
	make_tokens(&c);
	kvi_gpu_exact_place(&c.run, 0); /* sets the lengths of rows */
	c.rows = kvi_array(&d->alloc, (size_t)c.n * c.run.kv, sizeof *c.rows);
	if (!c.rows || kvi_pool_open(&pool, &d->alloc, d->common.threads)) {
		kvi_free(&d->alloc, c.rows);
		return kvi_fail_alloc(d->error, &d->alloc);
	}
	c.run.run_step = kvi_exact_launch;
	c.run.opaque = &c.to;
	kvarc_ret ret = begin(&c, memory);
	if (!ret)
		ret = go_through(&c, pool);
	kvi_pool_close(pool);
	kvi_free(&d->alloc, c.rows);
	return ret;
}
