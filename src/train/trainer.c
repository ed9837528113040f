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

/* NULL, or what is wrong with the options that belong to a mode. */
static const char *mode_wrong(const kvarc_trainer_options *o)
{
	const kvarc_train_model *m = &o->model;
	const unsigned linear = 1u << KVI_LEVEL_PROFILE | 1u << KVI_LEVEL_LOWER;
	if (o->mode > KVARC_TRAIN_KLT)
		return "the mode is not known";
	if (o->levels && (o->mode != KVARC_TRAIN_LINEAR || o->levels & ~linear))
		return "levels are bits 2 and 3, of KVARC_TRAIN_LINEAR";
	if (o->mode != KVARC_TRAIN_KLT && !kvi_all_zero(&o->klt, sizeof o->klt))
		return "klt is for KVARC_TRAIN_KLT";
	if (o->mode != KVARC_TRAIN_MODEL)
		return !kvi_all_zero(m, sizeof *m)        ? "model is for KVARC_TRAIN_MODEL"
		       : o->flags & KVARC_TRAIN_NO_STAGES ? "KVARC_TRAIN_NO_STAGES is for "
		                                            "KVARC_TRAIN_MODEL"
		                                          : NULL;
	if (!m->path || m->level < KVI_LEVEL_MODEL || m->level > KVI_LEVEL_PREDICTED - 1)
		return "model needs a path, and a level from 4 to 7";
	if (m->blind && (!kvi_token_blind_known(m->blind) || m->loop == KVARC_LOOP_CLOSED))
		return "prediction without the current token needs an open loop";
	if (m->arithmetic > KVARC_ARITHMETIC_FP8 || m->loop > KVARC_LOOP_CLOSED)
		return "an arithmetic or loop that is not known";
	return NULL;
}

static kvarc_ret check(const kvarc_trainer_options *o)
{
	const char *call = "kvarc_trainer_open", *wrong = mode_wrong(o);
	const unsigned both = KVARC_TRAIN_HEAD_BLOCK | KVARC_TRAIN_WHOLE_LAYER;
	kvarc_error *e = o->common.error;
	if (!wrong && ((o->flags & both) == both || o->flags & ~KNOWN))
		wrong = "flags that exclude each other, or are not known";
	if (!wrong && o->held_out > HELD_OUT_MAX && o->held_out != KVARC_TRAIN_NONE_HELD_OUT)
		wrong = "held_out is at most half of the tokens";
	if (wrong)
		return kvi_fail(e, KVARC_PROG, "%s: %s", call, wrong);
	kvarc_ret ret = KVI_CHECK_RESERVED(e, call, "kvarc_trainer_options", o);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_train_model", &o->model);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_train_klt", &o->klt);
	return ret;
}

/* The levels that are fitted, as bits; models of levels 4 to 7 are fitted like those of level 2. */
static unsigned levels_of(const kvarc_trainer_options *o)
{
	const unsigned linear = 1u << KVI_LEVEL_PROFILE | 1u << KVI_LEVEL_LOWER;
	if (o->mode == KVARC_TRAIN_KLT)
		return 1u << KVI_LEVEL_BASIS;
	if (o->flags & KVARC_TRAIN_IN_FILE)
		return o->levels >> KVI_LEVEL_LOWER & 1 ? 1u << KVI_LEVEL_LOWER
		                                        : 1u << KVI_LEVEL_PROFILE;
	if (o->mode == KVARC_TRAIN_MODEL)
		return 1u << KVI_LEVEL_PROFILE;
	return o->levels ? o->levels : linear;
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
	t->options.levels = levels_of(o);
	t->options.klt.group = o->klt.group ? o->klt.group : GROUP;
	t->stands_for = 1;
	t->held_out = o->held_out ? o->held_out : HELD_OUT_DEFAULT;
	if (o->held_out == KVARC_TRAIN_NONE_HELD_OUT || o->flags & KVARC_TRAIN_IN_FILE)
		t->held_out = 0;
	if (o->flags & KVARC_TRAIN_IN_FILE)
		t->look_at = o->mode == KVARC_TRAIN_MODEL ? KVI_TRAIN_IN_FILE_MODEL
		                                          : KVI_TRAIN_IN_FILE;
	t->error = o->common.error;
	t->options.model.path = NULL; /* the caller's */
	if (o->mode == KVARC_TRAIN_MODEL)
		ret = kvi_train_predictor_open(t, o->model.path, (unsigned)o->model.level);
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
