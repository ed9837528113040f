/* SPDX-License-Identifier: BSD-3-Clause */
/* trainer.c - opening, closing and reporting of a trainer */
#include "train_predict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "token_blind/token_blind.h"
#include "util/arguments.h"
#include "util/error.h"

enum {
	HELD_OUT_MAX = 50,
	HELD_OUT_DEFAULT = 10,
	GROUP = 8,
	NOTE_BYTES = 200,
	KNOWN = KVARC_TRAIN_HEAD_BLOCK | KVARC_TRAIN_WHOLE_LAYER | KVARC_TRAIN_NO_TABLE |
	        KVARC_TRAIN_IN_FILE | KVARC_TRAIN_NO_STAGES
};

static kvarc_ret check(const kvarc_trainer_options *o)
{
	unsigned both = KVARC_TRAIN_HEAD_BLOCK | KVARC_TRAIN_WHOLE_LAYER;
	unsigned linear = 1u << KVI_LEVEL_PROFILE | 1u << KVI_LEVEL_LOWER,
		 model = o->levels & ~linear;
	if (o->levels == 1u << KVI_LEVEL_BASIS && !o->model)
		model = 0;
	if (!o->model && model)
		return kvi_fail(o->common.error, KVARC_PROG,
		                "without a transformer, levels are 2 "
		                "and 3, or 9 (klt transforms) alone");
	if (o->model && (o->levels & linear || !model || model & (model - 1) ||
	                 model & ~(15u << KVI_LEVEL_MODEL)))
		return kvi_fail(o->common.error, KVARC_PROG,
		                "with a transformer, give one level from 4 to 7");
	if (!o->model && (o->arithmetic || o->loop || o->flags & KVARC_TRAIN_NO_STAGES))
		return kvi_fail(o->common.error, KVARC_PROG,
		                "arithmetic, loop and no stages are for models");
	if (o->blind &&
	    (!o->model || !kvi_token_blind_known(o->blind) || o->loop == KVARC_LOOP_CLOSED))
		return kvi_fail(o->common.error, KVARC_PROG,
		                "prediction without the current token "
		                "needs a model and an open loop");
	if (o->arithmetic > KVARC_ARITHMETIC_FP8 || o->loop > KVARC_LOOP_CLOSED)
		return kvi_fail(o->common.error, KVARC_PROG,
		                "an arithmetic or loop that is not known");
	if ((o->flags & both) == both || o->flags & ~KNOWN)
		return kvi_fail(o->common.error, KVARC_PROG, "flags that exclude each other");
	if (o->predictor && o->levels != 1u << KVI_LEVEL_BASIS)
		return kvi_fail(o->common.error, KVARC_PROG,
		                "head sensitivity is for klt transforms (level 9)");
	if (o->group && o->levels != 1u << KVI_LEVEL_BASIS)
		return kvi_fail(o->common.error, KVARC_PROG,
		                "groups of layers are for klt transforms (level 9)");
	if (o->held_out > HELD_OUT_MAX && o->held_out != KVARC_TRAIN_NONE_HELD_OUT)
		return kvi_fail(o->common.error, KVARC_PROG,
		                "at most half of the tokens can be held out");
	return KVI_CHECK_RESERVED(o->common.error, "kvarc_trainer_open", "kvarc_trainer_options",
	                          o);
}

/* Models of levels 4 to 7 are fitted like those of level 2. */
static kvarc_ret open_model(kvarc_trainer *t, const kvarc_trainer_options *o)
{
	unsigned level = KVI_LEVEL_MODEL;
	while (!(o->levels >> level & 1))
		level++;
	t->options.levels = 1u << 2;
	t->options.model = NULL; /* the caller's */
	return kvi_train_predictor_open(t, o->model, level);
}

kvarc_ret kvarc_trainer_open(kvarc_trainer **out, const kvarc_trainer_options *options)
{
	static const kvarc_trainer_options defaults = KVARC_TRAINER_OPTIONS_INIT;
	const kvarc_trainer_options *o = options ? options : &defaults;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	kvarc_ret ret = check(o);
	if (!ret)
		ret = kvi_handle_new(out, sizeof **out, offsetof(kvarc_trainer, alloc), &o->common,
		                     o->common.memlimit);
	if (ret)
		return ret;
	kvarc_trainer *t = *out;
	t->options = *o;
	t->options.group = o->group ? o->group : GROUP;
	t->stands_for = 1;
	if (o->flags & KVARC_TRAIN_IN_FILE) {
		t->options.levels = 1u << (o->levels >> 3 & 1 ? 3 : 2);
		t->options.held_out = KVARC_TRAIN_NONE_HELD_OUT;
		t->look_at = o->model ? KVI_TRAIN_IN_FILE_MODEL : KVI_TRAIN_IN_FILE;
	} else if (!o->levels) {
		t->options.levels = 1u << KVI_LEVEL_PROFILE | 1u << KVI_LEVEL_LOWER;
	}
	t->held_out = t->options.held_out == KVARC_TRAIN_NONE_HELD_OUT ? 0
	              : t->options.held_out                            ? t->options.held_out
	                                                               : HELD_OUT_DEFAULT;
	t->error = o->common.error;
	if (o->model)
		ret = open_model(t, o);
	if (ret)
		kvarc_trainer_close(out);
	return ret;
}

void kvi_train_cache_free(kvarc_trainer *t, struct kvi_train_cache *c)
{
	if (!c)
		return;
	kvi_geometry_free(&c->geometry, &t->alloc);
	kvi_free(&t->alloc, c->ids);
	kvi_free(&t->alloc, c->positions);
	kvi_free(&t->alloc, c->tensors);
	kvi_free(&t->alloc, c);
}

void kvarc_trainer_close(kvarc_trainer **pt)
{
	kvarc_trainer *t = pt ? *pt : NULL;
	if (!t)
		return;
	*pt = NULL;
	for (size_t i = 0; i < t->n_stacks; i++) {
		struct kvi_train_stack *s = &t->stacks[i];
		for (size_t k = 0; k < s->n_caches; k++)
			kvi_train_cache_free(t, s->caches[k]);
		kvi_free(&t->alloc, s->caches);
		kvi_free(&t->alloc, s->shapes);
	}
	kvi_free(&t->alloc, t->stacks);
	kvi_train_predictor_close(t);
	for (size_t i = 0; i < t->n_ropes; i++)
		kvi_free(&t->alloc, t->ropes[i].freq);
	for (size_t i = 0; i < t->n_notes; i++)
		kvi_free(&t->alloc, t->notes[i]);
	kvi_free(&t->alloc, t->notes);
	kvi_free(&t->alloc, t->report);
	kvi_free(&t->alloc, t->units);
	kvi_identity_free(&t->identity, &t->alloc);
	kvarc_profile_close(&t->profile);
	kvi_free(&t->alloc, t);
}

kvarc_ret kvarc_trainer_held_out(kvarc_trainer *t, unsigned percent)
{
	if (!t || (percent > HELD_OUT_MAX && percent != 100) ||
	    t->options.flags & KVARC_TRAIN_IN_FILE)
		return KVARC_PROG;
	t->held_out = percent;
	return KVARC_OK;
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

kvarc_ret kvi_train_no_memory(kvarc_trainer *t)
{
	return kvi_fail_alloc(t->error, &t->alloc);
}

/* Without memory for the note it is dropped: notes never fail a run. */
void kvi_train_note(kvarc_trainer *t, const char *format, ...)
{
	char *text = kvi_malloc(&t->alloc, NOTE_BYTES);
	va_list args;
	if (!text ||
	    !kvi_array_grow(&t->alloc, &t->notes, &t->cap_notes, t->n_notes, sizeof *t->notes)) {
		kvi_free(&t->alloc, text);
		return;
	}
	va_start(args, format);
	vsnprintf(text, NOTE_BYTES, format, args);
	va_end(args);
	t->notes[t->n_notes++] = text;
}

uint64_t kvarc_trainer_tokens(const kvarc_trainer *t)
{
	uint64_t sum = 0;
	for (size_t i = 0; t && i < t->n_stacks; i++)
		for (size_t k = 0; k < t->stacks[i].n_caches; k++) {
			const struct kvi_train_cache *c = t->stacks[i].caches[k];
			sum += c->held ? c->n : 0;
		}
	return sum;
}

const char *kvarc_trainer_note(const kvarc_trainer *t, size_t i)
{
	return t && i < t->n_notes ? t->notes[i] : NULL;
}

kvarc_ret kvarc_trainer_report(const kvarc_trainer *t, size_t i, kvarc_trained *trained)
{
	if (!t || !trained)
		return KVARC_PROG;
	if (i >= t->n_report)
		return KVARC_END;
	*trained = t->report[i];
	return KVARC_OK;
}
