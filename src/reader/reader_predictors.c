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

static struct kvi_predictor_ref *predictor_at(const struct kvi_reader_predictors *predictors,
                                              size_t i)
{
	return *KVI_LIST(struct kvi_predictor_ref *, predictors->list, i);
}

static struct kvi_predictor_ref *last_predictor(const struct kvi_reader_predictors *predictors)
{
	return predictors->list.n ? predictor_at(predictors, predictors->list.n - 1) : NULL;
}

kvarc_ret kvi_reader_add_predictor(kvarc_reader *r, const struct kvi_frame *frame,
                                   const uint8_t *content, size_t bytes, kvarc_error *error)
{
	struct kvi_predictor_ref *last = last_predictor(&r->predictors);
	struct kvi_predictor p;
	/* Passed again: open has read it before. */
	if (last && last->sequence >= frame->head.sequence)
		return KVARC_OK;
	kvarc_ret ret = kvi_predictor_parse(&p, &r->alloc, content, bytes);
	if (ret == KVARC_DATA)
		return kvi_reader_not_valid(frame, error);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, ret, frame->offset, frame->head.sequence,
		                    "the archive needs a predictor that a newer version of kvarc "
		                    "has"));
	if (ret)
		return kvi_fail_alloc(error, &r->alloc);
	struct kvi_predictor_ref *x = kvi_calloc(&r->alloc, 1, sizeof *x);
	struct kvi_predictor_ref **at = x ? kvi_list_add(&r->predictors.list, &r->alloc, sizeof *at)
	                                  : NULL;
	if (!at) {
		kvi_free(&r->alloc, x);
		kvi_predictor_free(&p, &r->alloc);
		return kvi_fail_alloc(error, &r->alloc);
	}
	x->p = p;
	x->sequence = frame->head.sequence;
	*at = x;
	return KVARC_OK;
}

kvarc_ret kvi_reader_add_part(kvarc_reader *r, uint64_t offset, uint64_t sequence, uint32_t bytes,
                              kvarc_error *error)
{
	struct kvi_predictor_ref *x = last_predictor(&r->predictors);
	if (!x || x->sequence > sequence ||
	    (x->parts.n &&
	     KVI_LIST(struct kvi_blob_ref, x->parts, x->parts.n - 1)->sequence >= sequence))
		return KVARC_OK;
	struct kvi_blob_ref *part = kvi_list_add(&x->parts, &r->alloc, sizeof *part);
	if (!part)
		return kvi_fail_alloc(error, &r->alloc);
	*part = (struct kvi_blob_ref){ offset, sequence, bytes };
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

/* The profile that the options' callback finds for a PREDICTOR; NULL: none. */
static const struct kvi_profile *asked_for(const kvarc_reader *r,
                                           const struct kvi_predictor_ref *predictor)
{
	const kvarc_reader_options *o = &r->options;
	uint8_t digest[16];
	kvi_store_h128(digest, predictor->p.digest);
	const kvarc_profile *p =
		o->find_profile ? o->find_profile(o->find_opaque, digest, predictor->p.name) : NULL;
	return p && kvi_h128_equal(kvi_profile_of(p)->digest, predictor->p.digest)
	               ? kvi_profile_of(p)
	               : NULL;
}

/* Copies the next part of the profile to the end of content. False: it is another part. */
static bool take_part(struct kvi_predictor_ref *predictor, const uint8_t *content, size_t bytes)
{
	struct kvi_profile_part part;
	if (!kvi_profile_part_parse(&part, content, bytes) || part.offset != predictor->filled ||
	    part.bytes > predictor->p.content_bytes - predictor->filled)
		return false;
	memcpy(predictor->content + predictor->filled, part.data, part.bytes);
	predictor->filled += part.bytes;
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

/* Reads all PROFILE frames of a PREDICTOR from a source that can seek. */
static kvarc_ret read_parts(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                            kvarc_error *error)
{
	struct kvi_packer packer;
	struct kvi_loaded part = { 0 };
	kvarc_ret ret = KVARC_OK;
	predictor->content = kvi_malloc(&r->alloc, (size_t)predictor->p.content_bytes);
	if (!predictor->content)
		return kvi_fail_alloc(error, &r->alloc);
	kvi_packer_init(&packer, &r->alloc); /* a worker may be reading */
	for (size_t i = 0; i < predictor->parts.n && ret == KVARC_OK &&
	                   predictor->filled < predictor->p.content_bytes;
	     i++) {
		const struct kvi_blob_ref *ref = KVI_LIST(struct kvi_blob_ref, predictor->parts, i);
		ret = kvi_reader_load_frame(r, &packer, ref->offset, KVI_FRAME_PROFILE,
		                            ref->sequence, &part, error);
		if (ret == KVARC_OK &&
		    !take_part(predictor, part.content, part.frame.head.decoded_bytes))
			ret = kvi_reader_not_valid(&part.frame, error);
	}
	kvi_loaded_free(&part, &r->alloc);
	kvi_packer_free(&packer);
	return ret;
}

/* The profile in the file. */
static kvarc_ret load_embedded(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                               kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	if (!predictor->content && !predictor->too_large && kvi_input_seekable(&r->in))
		ret = read_parts(r, predictor, error);
	if (predictor->too_large)
		ret = kvi_fail_alloc(error, &r->alloc);
	if (ret == KVARC_OK &&
	    (predictor->filled != predictor->p.content_bytes ||
	     !kvi_h128_equal(kvi_h128(predictor->content, (size_t)predictor->filled),
	                     predictor->p.digest)))
		ret = kvi_reason(
			error, KVARC_REASON_SALVAGE,
			kvi_fail_at(error, KVARC_DATA, KVARC_UNKNOWN, predictor->sequence,
		                    "the embedded profile is not complete, or not what its digest "
		                    "says; salvage may give the rest"));
	if (ret == KVARC_OK) {
		ret = kvi_profile_parse(&predictor->own, &r->alloc, predictor->content,
		                        (size_t)predictor->filled);
		if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
			kvi_fail_alloc(error, &r->alloc);
		else if (ret == KVARC_OPTIONS)
			kvi_reason(error, KVARC_REASON_NEWER,
			           kvi_fail_at(error, ret, KVARC_UNKNOWN, predictor->sequence,
			                       "a newer version of kvarc is needed for the "
			                       "embedded profile"));
		else if (ret)
			kvi_reason(error, KVARC_REASON_SALVAGE,
			           kvi_fail_at(error, ret, KVARC_UNKNOWN, predictor->sequence,
			                       "the embedded profile is not valid; salvage "
			                       "may give the rest"));
	}
	kvi_free(&r->alloc, predictor->content);
	predictor->content = NULL;
	predictor->filled = 0;
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
static kvarc_ret missing(const struct kvi_predictor_ref *predictor, bool model, const char *but,
                         kvarc_error *error)
{
	char digest[33], name[64];
	snprintf(name, sizeof name, "%s", model ? predictor->p.model_name : predictor->p.name);
	for (char *c = name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	digest_text(digest, model ? predictor->p.weights : predictor->p.digest);
	kvi_fail_at(error, KVARC_PREDICTOR, KVARC_UNKNOWN, predictor->sequence,
	            "the %s that the archive was made with is needed%s: %s%s%s%s",
	            model ? "model" : "profile", but, model ? "weights " : "", digest,
	            name[0] ? ", " : "", name);
	if (!error)
		return KVARC_PREDICTOR;
	kvi_store_h128(error->digest, model ? predictor->p.weights : predictor->p.digest);
	snprintf(error->name, sizeof error->name, "%s", name);
	error->blind = model ? kvi_token_blind_of(predictor->p.model_name) : 0;
	error->reason = !model ? KVARC_REASON_PROFILE_NEEDED
	                : *but ? KVARC_REASON_MODEL_DIFFERS
	                       : KVARC_REASON_MODEL_NEEDED;
	return KVARC_PREDICTOR;
}

kvarc_ret kvi_reader_missing_model(const struct kvi_predictor_ref *predictor, const char *but,
                                   kvarc_error *error)
{
	return missing(predictor, true, but, error);
}

static struct kvi_engine_level arithmetic_of(const struct kvi_predictor *predictor)
{
	return (struct kvi_engine_level){ { predictor->wide_weights, predictor->wide_activations,
		                            predictor->fp8 },
		                          predictor->closed };
}

/* Whether the reader's model is the one, with the arithmetic that is asked for. */
static kvarc_ret look_for_model(kvarc_reader *r, struct kvi_predictor_ref *predictor)
{
	const struct kvi_arithmetic a = arithmetic_of(&predictor->p).arithmetic;
	struct kvi_h128 digest;
	if (predictor->p.kind != KVI_PREDICTOR_MODEL)
		return KVARC_OK;
	if (!r->options.predictor)
		return missing(predictor, true, "", &predictor->error);
	kvarc_ret ret = kvi_predictor_identify(r->options.predictor, &a, r->options.common.isa_mask,
	                                       &digest, &predictor->error);
	if (ret == KVARC_OK && !kvi_h128_equal(digest, predictor->p.weights))
		ret = missing(predictor, true, ", not one with other weights", &predictor->error);
	if (ret)
		return ret;
	predictor->sessions = kvi_calloc(&r->alloc, r->geometry.n_tracks,
	                                 sizeof *predictor->sessions);
	return predictor->sessions ? KVARC_OK : kvi_fail_alloc(&predictor->error, &r->alloc);
}

struct kvi_predictor_ref *kvi_reader_embedding(const kvarc_reader *r,
                                               struct kvi_predictor_ref *predictor)
{
	if (predictor->p.embedded)
		return predictor;
	for (size_t i = 0; i < r->predictors.list.n; i++) {
		struct kvi_predictor_ref *y = predictor_at(&r->predictors, i);
		if (y->p.kind != KVI_PREDICTOR_NONE && y->p.embedded &&
		    kvi_h128_equal(y->p.digest, predictor->p.digest))
			return y;
	}
	return NULL;
}

/* Finds the profile and makes the plan, once. */
static kvarc_ret look_for(kvarc_reader *r, struct kvi_predictor_ref *predictor)
{
	kvarc_ret ret = KVARC_OK;
	if (predictor->p.unknown)
		return kvi_reason(&predictor->error, KVARC_REASON_NEWER,
		                  kvi_fail_at(&predictor->error, KVARC_OPTIONS, KVARC_UNKNOWN,
		                              predictor->sequence,
		                              "these tokens need a predictor that a newer version "
		                              "of kvarc has"));
	predictor->profile = given(r, predictor->p.digest);
	struct kvi_predictor_ref *y = predictor->profile ? NULL
	                                                 : kvi_reader_embedding(r, predictor);
	if (!predictor->profile && !y)
		predictor->profile = asked_for(r, predictor);
	if (y && !y->own) {
		ret = load_embedded(r, y, &predictor->error);
		if (ret == KVARC_DATA) /* damaged; there may be a file of it */
			predictor->profile = asked_for(r, predictor);
		if (predictor->profile)
			ret = KVARC_OK;
	} else if (!predictor->profile && !y)
		ret = missing(predictor, false, "", &predictor->error);
	if (!predictor->profile && ret == KVARC_OK)
		predictor->profile = y->own;
	if (ret == KVARC_OK)
		ret = look_for_model(r, predictor);
	if (ret == KVARC_OK &&
	    kvi_linear_plan_make(&predictor->plan, &r->alloc, predictor->profile,
	                         predictor->p.level, &r->geometry, &r->order, UINT64_MAX))
		ret = kvi_fail_alloc(&predictor->error, &r->alloc);
	return ret;
}

kvarc_ret kvi_reader_load_predictor(kvarc_reader *r, struct kvi_predictor_ref *predictor,
                                    kvarc_error *error)
{
	pthread_mutex_lock(&r->predictors.lock);
	if (!predictor->looked)
		predictor->ret = look_for(r, predictor);
	predictor->looked = true;
	pthread_mutex_unlock(&r->predictors.lock);
	if (predictor->ret && error)
		*error = predictor->error;
	return predictor->ret;
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
		any = x->p.unknown ? any : x;
	}
	return r->salvage ? any : NULL;
}

struct kvi_predictor_ref *
kvi_reader_predictor_before(const struct kvi_reader_predictors *predictors, uint64_t sequence)
{
	for (size_t i = predictors->list.n; i-- > 0;) {
		struct kvi_predictor_ref *x = predictor_at(predictors, i);
		if (x->sequence < sequence)
			return x->p.kind != KVI_PREDICTOR_NONE ? x : NULL;
	}
	return NULL;
}

static void free_predictor(kvarc_reader *r, struct kvi_predictor_ref *predictor)
{
	kvi_predictor_free(&predictor->p, &r->alloc);
	kvi_free(&r->alloc, predictor->parts.p);
	kvi_free(&r->alloc, predictor->content);
	for (size_t i = 0; predictor->sessions && i < r->geometry.n_tracks; i++)
		kvi_prediction_close(predictor->sessions[i]);
	kvi_free(&r->alloc, predictor->sessions);
	for (size_t i = 0; predictor->coders && i < r->geometry.n_tracks; i++)
		kvi_token_coder_close(predictor->coders[i]);
	kvi_free(&r->alloc, predictor->coders);
	kvi_free(&r->alloc, predictor->plan);
	kvi_profile_free(predictor->own);
	kvi_free(&r->alloc, predictor);
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
			.present = kvi_reader_embedding(r, x) || given(r, x->p.digest),
			.model = x->p.kind == KVI_PREDICTOR_MODEL && !x->p.unknown,
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

kvarc_ret kvi_reader_model(kvarc_reader *r, struct kvi_located_model *model, kvarc_error *error)
{
	for (size_t i = 0; i < r->predictors.list.n; i++) {
		struct kvi_predictor_ref *x = *KVI_LIST(struct kvi_predictor_ref *,
		                                        r->predictors.list, i);
		if (x->p.kind != KVI_PREDICTOR_MODEL)
			continue;
		kvarc_ret ret = kvi_reader_load_predictor(r, x, error);
		*model = (struct kvi_located_model){
			.predictor = r->options.predictor,
			.arithmetic = { x->p.wide_weights, x->p.wide_activations, x->p.fp8 },
		};
		return ret ? ret : is_transformer(r) ? KVARC_OK : KVARC_END;
	}
	return KVARC_END;
}
