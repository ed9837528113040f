/* SPDX-License-Identifier: BSD-3-Clause */
/* train_context.c - what all steps of a training use: threads, notes, progress, elements */
#include "trainer.h"

#include <stdarg.h>
#include <stdio.h>

#include "numeric/formats.h"
#include "train_predict.h"
#include "profile/profile_handle.h"
#include "util/error.h"
#include "util/parallel.h"

enum { NOTE_BYTES = 200 };

kvarc_ret kvi_train_no_memory(kvarc_trainer *trainer)
{
	return kvi_fail_alloc(trainer->error, &trainer->alloc);
}

/* A note that finds no memory is dropped: notes never fail a run. */
void kvi_train_note(kvarc_trainer *trainer, const char *format, ...)
{
	char *text = kvi_malloc(&trainer->alloc, NOTE_BYTES);
	va_list args;
	if (!text || !kvi_array_grow(&trainer->alloc, &trainer->notes, &trainer->cap_notes,
	                             trainer->n_notes, sizeof *trainer->notes)) {
		kvi_free(&trainer->alloc, text);
		return;
	}
	va_start(args, format);
	vsnprintf(text, NOTE_BYTES, format, args);
	va_end(args);
	trainer->notes[trainer->n_notes++] = text;
}

kvarc_ret kvi_train_progress(kvarc_trainer *trainer, uint64_t bytes)
{
	const kvarc_common *common = &trainer->options.common;
	trainer->done += bytes;
	if (common->progress &&
	    common->progress(common->progress_opaque, trainer->done, trainer->total))
		return kvi_fail(trainer->error, KVARC_IO, "stopped by the caller");
	return KVARC_OK;
}

/* Elements of the layer that the teacher is at, as kvi_train_fetch. */
static void train_made(const kvarc_trainer *trainer, const struct kvi_train_cache *cache,
                       uint32_t tensor, size_t t0, uint32_t n, uint8_t *to)
{
	const struct kvi_train_predictor *p = trainer->predictor;
	const kvarc_tensor *x = &cache->geometry.tensors[tensor];
	kvi_floats_store(x->dtype,
	                 kvi_train_walk_rows(&p->teacher, x->kind) + (cache->first + t0) * p->kv,
	                 n * p->kv, to);
}

/* The reader of an archive has already set the error. */
static kvarc_ret fetch_archive(const struct kvi_train_cache *cache, kvarc_view *views,
                               uint32_t tensor, size_t t0, uint32_t n, void *to)
{
	const kvarc_tensor *x = &cache->geometry.tensors[tensor];
	uint32_t size = (uint32_t)kvarc_dtype_bytes(x->dtype);
	kvarc_range range = {
		.track = cache->track, .layer0 = x->layer, .n_layers = 1, .t0 = t0, .n = n
	};
	views[tensor] = (kvarc_view){ .data = to,
		                      .token_stride = kvi_tensor_bytes(x),
		                      .block_elems = kvi_tensor_width(x),
		                      .elem_stride = size };
	return kvarc_reader_read(cache->reader, &range, views);
}

kvarc_ret kvi_train_fetch(kvarc_trainer *trainer, const struct kvi_train_cache *cache,
                          uint32_t tensor, size_t t0, uint32_t n, void *to)
{
	const kvarc_tensor *x = &cache->geometry.tensors[tensor];
	uint64_t bytes = (uint64_t)n * kvi_tensor_bytes(x);
	kvarc_ret ret = KVARC_OK;
	t0 = kvi_train_token(cache, t0);
	if (cache->origin) {
		train_made(trainer, cache, tensor, t0, n, to);
	} else if (cache->reader) {
		kvarc_view *views = kvi_calloc(&trainer->alloc, cache->geometry.n_tensors,
		                               sizeof *views);
		if (!views)
			return kvi_train_no_memory(trainer);
		ret = fetch_archive(cache, views, tensor, t0, n, to);
		kvi_free(&trainer->alloc, views);
	} else {
		ret = cache->fetch(cache->opaque, tensor, 0, x->heads, t0, n, to) ? KVARC_IO
		                                                                  : KVARC_OK;
		if (ret)
			ret = kvi_fail(trainer->error, ret, "reading the input failed");
	}
	return ret ? ret : kvi_train_progress(trainer, bytes);
}

struct loop {
	kvi_train_fn fn;
	void *arg;
};

static void run_step(void *opaque, size_t i, unsigned worker)
{
	const struct loop *l = opaque;
	(void)worker;
	l->fn(l->arg, i);
}

void kvi_train_parallel(kvarc_trainer *trainer, size_t n, kvi_train_fn fn, void *arg)
{
	struct loop l = { fn, arg };
	kvi_parallel(trainer->pool, n, run_step, &l);
}

struct kvi_profile *kvi_train_profile(kvarc_trainer *trainer)
{
	return trainer->profile->profile;
}

double kvi_train_power(int e)
{
	uint64_t b = (uint64_t)(e + 1023) << 52;
	double v;
	memcpy(&v, &b, sizeof v);
	return v;
}

kvarc_ret kvarc_trainer_identity(kvarc_trainer *t, const char *key, const char *value)
{
	if (!t || !key || !value)
		return KVARC_PROG;
	kvarc_ret ret = kvi_identity_set(&t->identity, &t->alloc, key, value);
	if (ret == KVARC_PROG)
		return kvi_fail(t->error, ret, "too many identity pairs, or too long");
	return ret ? kvi_train_no_memory(t) : KVARC_OK;
}
