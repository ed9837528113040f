/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_predictors.c - the predictors that a file names, their profiles and models */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "reader_frames.h"
#include "reader_located.h"
#include "reader_predictors.h"
#include "reader_state.h"
#include "token_blind/token_blind.h"

/* ==== The predictors that a file names, their profiles, what a segment needs of them ==== */

static struct kvi_predictor_ref *predictor_at(const struct kvi_reader_predictors *p, size_t i)
{
	return *KVI_LIST(struct kvi_predictor_ref *, p->list, i);
}

static struct kvi_predictor_ref *last_predictor(const struct kvi_reader_predictors *p)
{
	return p->list.n ? predictor_at(p, p->list.n - 1) : NULL;
}

kvarc_ret kvi_reader_add_predictor(kvarc_reader *r, const struct kvi_frame *f,
                                   const uint8_t *content, size_t bytes, kvarc_error *e)
{
	struct kvi_predictor_ref *last = last_predictor(&r->predictors);
	struct kvi_predictor p;
	/* Passed again: open has read it before. */
	if (last && last->sequence >= f->head.sequence)
		return KVARC_OK;
	kvarc_ret ret = kvi_predictor_parse(&p, &r->alloc, content, bytes);
	if (ret == KVARC_DATA)
		return kvi_reader_not_valid(f, e);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			e, KVARC_REASON_NEWER,
			kvi_fail_at(e, ret, f->offset, f->head.sequence,
		                    "the archive needs a predictor that a newer version of kvarc "
		                    "has"));
	if (ret)
		return kvi_fail_alloc(e, &r->alloc);
	struct kvi_predictor_ref *x = kvi_calloc(&r->alloc, 1, sizeof *x);
	struct kvi_predictor_ref **at = x ? kvi_list_add(&r->predictors.list, &r->alloc, sizeof *at)
	                                  : NULL;
	if (!at) {
		kvi_free(&r->alloc, x);
		kvi_predictor_free(&p, &r->alloc);
		return kvi_fail_alloc(e, &r->alloc);
	}
	x->p = p;
	x->sequence = f->head.sequence;
	*at = x;
	return KVARC_OK;
}

kvarc_ret kvi_reader_add_part(kvarc_reader *r, uint64_t offset, uint64_t sequence, kvarc_error *e)
{
	struct kvi_predictor_ref *x = last_predictor(&r->predictors);
	if (!x || x->sequence > sequence ||
	    (x->parts.n &&
	     KVI_LIST(struct kvi_blob_ref, x->parts, x->parts.n - 1)->sequence >= sequence))
		return KVARC_OK;
	struct kvi_blob_ref *part = kvi_list_add(&x->parts, &r->alloc, sizeof *part);
	if (!part)
		return kvi_fail_alloc(e, &r->alloc);
	*part = (struct kvi_blob_ref){ .offset = offset, .sequence = sequence };
	r->index.unended = &part->bytes;
	r->index.unended_offset = offset;
	return KVARC_OK;
}

/* The options' profile with this digest. */
static const struct kvi_profile *given(const kvarc_reader *r, struct kvi_h128 digest)
{
	for (size_t i = 0; i < r->options.n_profiles; i++) {
		const struct kvi_profile *p = kvi_profile_of(r->options.profiles[i]);
		if (kvi_h128_equal(p->digest, digest))
			return p;
	}
	return NULL;
}

/* The same from the options' callback. */
static const struct kvi_profile *asked_for(const kvarc_reader *r, const struct kvi_predictor_ref *x)
{
	const kvarc_reader_options *o = &r->options;
	uint8_t digest[16];
	kvi_store_h128(digest, x->p.digest);
	const kvarc_profile *p = o->find_profile
	                                 ? o->find_profile(o->find_opaque, digest, x->p.name)
	                                 : NULL;
	return p && kvi_h128_equal(kvi_profile_of(p)->digest, x->p.digest) ? kvi_profile_of(p)
	                                                                   : NULL;
}

/* Copies a part behind those before it, if it is the next one. */
static bool take_part(struct kvi_predictor_ref *x, const uint8_t *content, size_t bytes)
{
	struct kvi_profile_part part;
	if (!kvi_profile_part_parse(&part, content, bytes) || part.offset != x->filled ||
	    part.bytes > x->p.content_bytes - x->filled)
		return false;
	memcpy(x->content + x->filled, part.data, part.bytes);
	x->filled += part.bytes;
	return true;
}

kvarc_ret kvi_reader_keep_part(kvarc_reader *r, const uint8_t *content, size_t bytes)
{
	struct kvi_predictor_ref *x = last_predictor(&r->predictors);
	if (!x || !x->p.embedded || x->too_large || given(r, x->p.digest))
		return KVARC_OK;
	if (!x->content)
		x->content = kvi_malloc(&r->alloc, (size_t)x->p.content_bytes);
	/* The error is reported when a chunk needs the profile. */
	x->too_large = !x->content;
	if (x->content)
		(void)take_part(x, content, bytes); /* the walk has checked it */
	return KVARC_OK;
}

/* All PROFILE frames, from a source that can seek. */
static kvarc_ret read_parts(kvarc_reader *r, struct kvi_predictor_ref *x, kvarc_error *e)
{
	struct kvi_packer packer;
	struct kvi_loaded part = { 0 };
	kvarc_ret ret = KVARC_OK;
	x->content = kvi_malloc(&r->alloc, (size_t)x->p.content_bytes);
	if (!x->content)
		return kvi_fail_alloc(e, &r->alloc);
	kvi_packer_init(&packer, &r->alloc); /* it may be a worker that reads */
	for (size_t i = 0; i < x->parts.n && ret == KVARC_OK && x->filled < x->p.content_bytes;
	     i++) {
		const struct kvi_blob_ref *ref = KVI_LIST(struct kvi_blob_ref, x->parts, i);
		ret = kvi_reader_load_frame(r, &packer, ref->offset, KVI_FRAME_PROFILE,
		                            ref->sequence, &part, e);
		if (ret == KVARC_OK && !take_part(x, part.content, part.frame.head.decoded_bytes))
			ret = kvi_reader_not_valid(&part.frame, e);
	}
	kvi_loaded_free(&part, &r->alloc);
	kvi_packer_free(&packer);
	return ret;
}

/* The profile in the file. */
static kvarc_ret load_embedded(kvarc_reader *r, struct kvi_predictor_ref *x, kvarc_error *e)
{
	kvarc_ret ret = KVARC_OK;
	if (!x->content && !x->too_large && kvi_input_seekable(&r->in))
		ret = read_parts(r, x, e);
	if (x->too_large)
		ret = kvi_fail_alloc(e, &r->alloc);
	if (ret == KVARC_OK &&
	    (x->filled != x->p.content_bytes ||
	     !kvi_h128_equal(kvi_h128(x->content, (size_t)x->filled), x->p.digest)))
		ret = kvi_reason(
			e, KVARC_REASON_SALVAGE,
			kvi_fail_at(e, KVARC_DATA, KVARC_UNKNOWN, x->sequence,
		                    "the embedded profile is not complete, or not what its digest "
		                    "says; salvage may give the rest"));
	if (ret == KVARC_OK) {
		ret = kvi_profile_parse(&x->own, &r->alloc, x->content, (size_t)x->filled);
		if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
			kvi_fail_alloc(e, &r->alloc);
		else if (ret == KVARC_OPTIONS)
			kvi_reason(e, KVARC_REASON_NEWER,
			           kvi_fail_at(e, ret, KVARC_UNKNOWN, x->sequence,
			                       "a newer version of kvarc is needed for the "
			                       "embedded profile"));
		else if (ret)
			kvi_reason(e, KVARC_REASON_SALVAGE,
			           kvi_fail_at(e, ret, KVARC_UNKNOWN, x->sequence,
			                       "the embedded profile is not valid; salvage "
			                       "may give the rest"));
	}
	kvi_free(&r->alloc, x->content);
	x->content = NULL;
	x->filled = 0;
	return ret;
}

/* A digest in hexadecimal, as files are named. */
static void digest_text(char out[33], struct kvi_h128 digest)
{
	uint8_t b[16];
	kvi_store_h128(b, digest);
	for (int i = 0; i < 16; i++)
		snprintf(out + 2 * i, 3, "%02x", b[i]);
}

/* The profile, or the model, that chunks need; but: what there is instead. */
static kvarc_ret missing(const struct kvi_predictor_ref *x, bool model, const char *but,
                         kvarc_error *e)
{
	char digest[33], name[64];
	snprintf(name, sizeof name, "%s", model ? x->p.model_name : x->p.name);
	for (char *c = name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	digest_text(digest, model ? x->p.weights : x->p.digest);
	kvi_fail_at(e, KVARC_PREDICTOR, KVARC_UNKNOWN, x->sequence,
	            "the %s that the archive was made with is needed%s: %s%s%s%s",
	            model ? "model" : "profile", but, model ? "weights " : "", digest,
	            name[0] ? ", " : "", name);
	if (!e)
		return KVARC_PREDICTOR;
	kvi_store_h128(e->digest, model ? x->p.weights : x->p.digest);
	snprintf(e->name, sizeof e->name, "%s", name);
	e->blind = model ? kvi_token_blind_of(x->p.model_name) : 0;
	e->reason = !model ? KVARC_REASON_PROFILE_NEEDED
	            : *but ? KVARC_REASON_MODEL_DIFFERS
	                   : KVARC_REASON_MODEL_NEEDED;
	return KVARC_PREDICTOR;
}

kvarc_ret kvi_reader_missing_model(const struct kvi_predictor_ref *x, const char *but,
                                   kvarc_error *e)
{
	return missing(x, true, but, e);
}

static struct kvi_engine_level arithmetic_of(const struct kvi_predictor *p)
{
	return (struct kvi_engine_level){ { p->wide_weights, p->wide_activations, p->fp8 },
		                          p->closed };
}

/* Whether the reader's model is the one, with the arithmetic that is asked for. */
static kvarc_ret look_for_model(kvarc_reader *r, struct kvi_predictor_ref *x)
{
	const struct kvi_arithmetic a = arithmetic_of(&x->p).arithmetic;
	struct kvi_h128 digest;
	if (x->p.kind != KVI_PREDICTOR_MODEL)
		return KVARC_OK;
	if (!r->options.predictor)
		return missing(x, true, "", &x->error);
	kvarc_ret ret = kvi_predictor_identify(r->options.predictor, &a, r->options.common.isa_mask,
	                                       &digest, &x->error);
	if (ret == KVARC_OK && !kvi_h128_equal(digest, x->p.weights))
		ret = missing(x, true, ", not one with other weights", &x->error);
	if (ret)
		return ret;
	x->sessions = kvi_calloc(&r->alloc, r->geometry.n_tracks, sizeof *x->sessions);
	return x->sessions ? KVARC_OK : kvi_fail_alloc(&x->error, &r->alloc);
}

struct kvi_predictor_ref *kvi_reader_embedding(const struct kvi_reader_predictors *p,
                                               struct kvi_predictor_ref *x)
{
	if (x->p.embedded)
		return x;
	for (size_t i = 0; i < p->list.n; i++) {
		struct kvi_predictor_ref *y = predictor_at(p, i);
		if (y->p.kind != KVI_PREDICTOR_NONE && y->p.embedded &&
		    kvi_h128_equal(y->p.digest, x->p.digest))
			return y;
	}
	return NULL;
}

/* Finds the profile and makes the plan, once. */
static kvarc_ret look_for(kvarc_reader *r, struct kvi_predictor_ref *x)
{
	kvarc_ret ret = KVARC_OK;
	x->profile = given(r, x->p.digest);
	struct kvi_predictor_ref *y = x->profile ? NULL : kvi_reader_embedding(&r->predictors, x);
	if (!x->profile && !y)
		x->profile = asked_for(r, x);
	if (y && !y->own) {
		ret = load_embedded(r, y, &x->error);
		if (ret == KVARC_DATA) /* damaged; there may be a file of it */
			x->profile = asked_for(r, x);
		if (x->profile)
			ret = KVARC_OK;
	} else if (!x->profile && !y)
		ret = missing(x, false, "", &x->error);
	if (!x->profile && ret == KVARC_OK)
		x->profile = y->own;
	if (ret == KVARC_OK)
		ret = look_for_model(r, x);
	if (ret == KVARC_OK && kvi_linear_plan_make(&x->plan, &r->alloc, x->profile, x->p.level,
	                                            &r->geometry, &r->order, UINT64_MAX))
		ret = kvi_fail_alloc(&x->error, &r->alloc);
	return ret;
}

kvarc_ret kvi_reader_load_predictor(kvarc_reader *r, struct kvi_predictor_ref *x, kvarc_error *e)
{
	pthread_mutex_lock(&r->predictors.lock);
	if (!x->looked)
		x->ret = look_for(r, x);
	x->looked = true;
	pthread_mutex_unlock(&r->predictors.lock);
	if (x->ret && e)
		*e = x->error;
	return x->ret;
}

kvarc_ret kvi_reader_first_profile(kvarc_reader *r, unsigned highest, unsigned *level,
                                   const struct kvi_profile **profile)
{
	struct kvi_predictor_ref *x = r->predictors.list.n ? predictor_at(&r->predictors, 0) : NULL;
	if (!x || x->p.level > highest)
		return KVARC_END;
	kvarc_ret ret = kvi_reader_load_predictor(r, x, r->error);
	*level = x->p.level;
	*profile = x->profile;
	return ret;
}

struct kvi_predictor_ref *kvi_reader_find_predictor(const kvarc_reader *r, uint64_t sequence)
{
	struct kvi_predictor_ref *any = NULL;
	for (size_t i = r->predictors.list.n; i-- > 0;) {
		struct kvi_predictor_ref *x = predictor_at(&r->predictors, i);
		if (x->p.kind == KVI_PREDICTOR_NONE)
			continue;
		if (x->sequence == sequence)
			return x;
		any = x;
	}
	return r->salvage ? any : NULL;
}

struct kvi_predictor_ref *kvi_reader_predictor_before(const struct kvi_reader_predictors *p,
                                                      uint64_t sequence)
{
	for (size_t i = p->list.n; i-- > 0;) {
		struct kvi_predictor_ref *x = predictor_at(p, i);
		if (x->sequence < sequence)
			return x->p.kind != KVI_PREDICTOR_NONE ? x : NULL;
	}
	return NULL;
}

static void free_predictor(kvarc_reader *r, struct kvi_predictor_ref *x)
{
	kvi_predictor_free(&x->p, &r->alloc);
	kvi_free(&r->alloc, x->parts.p);
	kvi_free(&r->alloc, x->content);
	for (size_t i = 0; x->sessions && i < r->geometry.n_tracks; i++)
		kvi_prediction_close(x->sessions[i]);
	kvi_free(&r->alloc, x->sessions);
	for (size_t i = 0; x->coders && i < r->geometry.n_tracks; i++)
		kvi_token_coder_close(x->coders[i]);
	kvi_free(&r->alloc, x->coders);
	kvi_free(&r->alloc, x->plan);
	kvi_profile_free(x->own);
	kvi_free(&r->alloc, x);
}

void kvi_reader_forget_predictors(kvarc_reader *r)
{
	for (size_t i = 0; i < r->predictors.list.n; i++)
		free_predictor(r, predictor_at(&r->predictors, i));
	r->predictors.list.n = 0;
}

uint64_t kvi_reader_fallbacks(const kvarc_reader *r)
{
	uint64_t n = 0;
	for (size_t i = 0; i < r->predictors.list.n; i++) {
		const struct kvi_predictor_ref *x = predictor_at(&r->predictors, i);
		n += x->ids_fell_back;
		for (size_t t = 0; x->sessions && t < r->geometry.n_tracks; t++)
			n += x->sessions[t] && kvi_prediction_fell_back(x->sessions[t]);
	}
	return n;
}

kvarc_ret kvarc_reader_predictor(const kvarc_reader *r, size_t i, kvarc_predictor_info *info)
{
	if (!r || !info)
		return KVARC_PROG;
	for (size_t k = 0; k < r->predictors.list.n; k++) {
		struct kvi_predictor_ref *x = predictor_at(&r->predictors, k);
		const struct kvi_engine_level l = arithmetic_of(&x->p);
		const char *text = kvi_engine_text(&l);
		bool again = x->p.kind == KVI_PREDICTOR_NONE;
		for (size_t before = 0; before < k && !again; before++) {
			const struct kvi_predictor *p = &predictor_at(&r->predictors, before)->p;
			const struct kvi_engine_level a = arithmetic_of(p);
			again = p->level == x->p.level && kvi_engine_level_equal(&a, &l) &&
			        kvi_h128_equal(p->digest, x->p.digest) &&
			        kvi_h128_equal(p->weights, x->p.weights);
		}
		if (again || i-- > 0)
			continue;
		*info = (kvarc_predictor_info){
			.level = x->p.level,
			.name = x->p.name,
			.embedded = x->p.embedded,
			.present = kvi_reader_embedding(&r->predictors, x) || given(r, x->p.digest),
			.model = x->p.kind == KVI_PREDICTOR_MODEL,
			.model_name = x->p.model_name ? x->p.model_name : "",
			.arithmetic = x->p.kind != KVI_PREDICTOR_MODEL ? ""
			              : text                           ? text
			                                               : "other",
			.token_ids = x->p.codes_ids
		};
		kvi_store_h128(info->digest, x->p.digest);
		kvi_store_h128(info->weights, x->p.weights);
		return KVARC_OK;
	}
	return KVARC_END;
}

/* ==== The model of levels 4 to 8, for a decoder that is not this library's ==== */

/* Whether a loaded PREDICTOR is of a transformer that sees the token. */
static bool is_transformer(const kvarc_reader *r)
{
	const kvarc_predictor *p = r->options.predictor;
	return kvi_predictor_file(p) && !kvi_predictor_token_blind(p);
}

kvarc_ret kvi_reader_model(kvarc_reader *r, struct kvi_located_model *m, kvarc_error *e)
{
	for (size_t i = 0; i < r->predictors.list.n; i++) {
		struct kvi_predictor_ref *x = *KVI_LIST(struct kvi_predictor_ref *,
		                                        r->predictors.list, i);
		if (x->p.kind != KVI_PREDICTOR_MODEL)
			continue;
		kvarc_ret ret = kvi_reader_load_predictor(r, x, e);
		*m = (struct kvi_located_model){
			.predictor = r->options.predictor,
			.arithmetic = { x->p.wide_weights, x->p.wide_activations, x->p.fp8 },
		};
		return ret ? ret : is_transformer(r) ? KVARC_OK : KVARC_END;
	}
	return KVARC_END;
}
