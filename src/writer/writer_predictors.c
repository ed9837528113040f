/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_predictors.c - the profile and the model of a writer, and their frames */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "writer_frames.h"
#include "writer_predictors.h"
#include "writer_state.h"
#include "exact/head.h"
#include "format/predictor_frame.h"

/* ==== The writer's profile: its plan, PREDICTOR and PROFILE frames (spec 5.2) ==== */

static bool may_have_model(const kvarc_tensor *tensor)
{
	return tensor->role == KVARC_WHOLE && tensor->dtype >= KVARC_F32 &&
	       tensor->dtype <= KVARC_E5M2 &&
	       (tensor->kind == KVARC_KEY || tensor->kind == KVARC_VALUE ||
	        tensor->kind == KVARC_MLA_LATENT);
}

/* Why the profile predicts no tensor; NULL: no tensor could have a model. */
static const char *why_nothing(const kvarc_writer *w)
{
	const char *why = NULL;
	for (size_t i = 0; i < w->geometry.n_tensors; i++) {
		if (w->plan->of[i].model)
			return "the layers that this level predicts the others "
			       "from are not here: use a lower level";
		if (may_have_model(&w->geometry.tensors[i]))
			why = "the profile fits no tensor of this cache: it is of another model";
	}
	return why;
}

static char *name_of(const char *name)
{
	static char none[1];
	return name ? (char *)(uintptr_t)name : none;
}

/* Chooses the arithmetic and loop that the profile was fitted to: for others its scales would be
 * wrong, and the archive larger without a word. */
static kvarc_ret choose_arithmetic(const kvarc_writer_options *options,
                                   struct kvi_engine_level *level)
{
	const struct kvi_profile *p = kvi_profile_of(options->profile);
	char key[KVI_ARITHMETIC_KEY_BYTES];
	kvi_arithmetic_key(key, kvi_models_level((unsigned)options->level));
	const char *text = kvi_identity_get(&p->identity, key);
	*level = kvi_engine_level((unsigned)options->level);
	if (text && !kvi_engine_of_text(text, level))
		return kvi_fail(options->common.error, KVARC_PREDICTOR,
		                "the profile was trained with an "
		                "arithmetic of a later version: %.40s",
		                text);
	if (kvi_predictor_token_blind(options->predictor)) /* spec model 6 */
		*level = kvi_engine_choice(level, KVARC_ARITHMETIC_LEVEL, KVARC_LOOP_OPEN);
	const struct kvi_engine_level wanted = kvi_engine_choice(level, options->arithmetic,
	                                                         options->loop);
	if (kvi_engine_level_equal(&wanted, level))
		return KVARC_OK;
	return kvi_fail(options->common.error, KVARC_PREDICTOR,
	                "the profile's models of level %d were trained "
	                "for %s, not for %s: train others, or leave the choice to the profile",
	                options->level, kvi_engine_text(level), kvi_engine_text(&wanted));
}

static kvarc_ret describe_head(kvarc_writer *w, const struct kvi_arithmetic *arithmetic)
{
	const kvarc_writer_options *o = &w->options;
	const struct kvi_engine *e;
	if (kvi_predictor_external(o->predictor) || kvi_predictor_token_blind(o->predictor))
		return kvi_fail(w->error, KVARC_OPTIONS,
		                "token ids can be coded by a model only, "
		                "which sees the current token");
	kvarc_ret ret = kvi_predictor_head(o->predictor, arithmetic, o->common.isa_mask, &e,
	                                   w->error);
	if (ret)
		return ret;
	w->predictor.content.codes_ids = true;
	w->predictor.content.head = kvi_engine_head_digest(e);
	return KVARC_OK;
}

/* Fills w->predictor.content for a model, as PREDICTOR frames have it. */
static kvarc_ret describe_model(kvarc_writer *w)
{
	const kvarc_writer_options *o = &w->options;
	struct kvi_predictor *p = &w->predictor.content;
	struct kvi_engine_level l = { .closed = true };
	kvarc_ret ret = KVARC_OK;
	if (!kvi_predictor_external(o->predictor)) /* spec model 5 */
		ret = choose_arithmetic(o, &l);
	if (!ret)
		ret = kvi_predictor_identify(o->predictor, &l.arithmetic, o->common.isa_mask,
		                             &p->weights, w->error);
	if (ret)
		return ret;
	p->kind = KVI_PREDICTOR_MODEL;
	p->closed = l.closed;
	p->wide_weights = l.arithmetic.wide_weights;
	p->wide_activations = l.arithmetic.wide_activations;
	p->fp8 = l.arithmetic.fp8;
	p->model_name = name_of(o->predictor_name);
	return o->token_ids == KVARC_TOKEN_IDS_MODEL ? describe_head(w, &l.arithmetic) : KVARC_OK;
}

/* The level of the profile's models that is used; 0: none. */
static unsigned level_of(const kvarc_writer_options *options)
{
	if (options->lossy && options->lossy->tier == KVARC_TIER_KLT)
		return KVI_LEVEL_BASIS;
	return options->level < KVI_LEVEL_PROFILE ? 0 : (unsigned)options->level;
}

static void describe_profile(kvarc_writer *w)
{
	w->predictor.content =
		(struct kvi_predictor){ .kind = KVI_PREDICTOR_PROFILE,
		                        .level = (uint8_t)level_of(&w->options),
		                        .digest = kvi_profile_of(w->options.profile)->digest,
		                        .name = name_of(w->options.profile_name) };
}

kvarc_ret kvi_writer_plan(kvarc_writer *w)
{
	const kvarc_writer_options *o = &w->options;
	if (!level_of(o))
		return KVARC_OK;
	kvarc_ret ret = kvi_linear_plan_make(&w->plan, &w->alloc, kvi_profile_of(o->profile),
	                                     level_of(o), &w->geometry, &w->order,
	                                     KVI_LINEAR_CHUNK_MAX);
	if (ret)
		return kvi_fail_alloc(w->error, &w->alloc);
	describe_profile(w);
	if (w->plan->n_complete)
		return o->level < KVI_LEVEL_MODEL ? KVARC_OK : describe_model(w);
	const char *wrong = why_nothing(w);
	if (wrong)
		return kvi_fail(w->error, KVARC_PREDICTOR, "%s", wrong);
	/* Nothing to predict: as level 1. */
	kvi_free(&w->alloc, w->plan);
	w->plan = NULL;
	return KVARC_OK;
}

static bool stopped(void *opaque)
{
	const kvarc_writer *w = opaque;
	const kvarc_common *c = &w->options.common;
	return c->progress &&
	       c->progress(c->progress_opaque, w->out.stats.raw_bytes, KVARC_UNKNOWN);
}

static kvarc_ret open_ids(kvarc_writer *w, struct kvi_writer_track *track,
                          const struct kvi_prediction_options *options)
{
	kvarc_ret ret = kvi_token_coder_open(&track->ids, options, w->error);
	if (track->ids)
		kvi_token_coder_stopped_by(track->ids, stopped, w);
	return ret;
}

/* The options to open the prediction session of a track, once there is a plan. */
static struct kvi_prediction_options prediction_options(const kvarc_writer *w, uint32_t track)
{
	return (struct kvi_prediction_options){
		.predictor = w->options.predictor,
		.description = &w->predictor.content,
		.plan = w->plan,
		.geometry = &w->geometry,
		.order = &w->order,
		.track = track,
		.threads = w->options.common.threads,
		.isa_mask = w->options.common.isa_mask,
	};
}

/* A prediction session for each track that the model could have made. */
kvarc_ret kvi_writer_predictions(kvarc_writer *w)
{
	kvarc_ret ret = KVARC_OK, why = KVARC_OK;
	size_t n = 0;
	if (w->options.level < KVI_LEVEL_MODEL)
		return KVARC_OK;
	for (uint32_t i = 0; i < w->geometry.n_tracks && !ret; i++) {
		const struct kvi_prediction_options o = prediction_options(w, i);
		kvarc_ret fits = kvi_prediction_fits(&o, w->error);
		if (fits) {
			why = fits;
			continue;
		}
		ret = kvi_prediction_open(&w->tracks[i].prediction, &o, w->error);
		if (!ret && w->predictor.content.codes_ids)
			ret = open_ids(w, &w->tracks[i], &o);
		n++;
	}
	return ret || n ? ret : why;
}

static kvarc_ret emit_parts(struct kvi_writer_output *output, const uint8_t *content, size_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t at = 0; at < bytes && ret == KVARC_OK;) {
		struct kvi_index_entry entry = { 0 };
		size_t n = bytes - at;
		output->content.n = 0;
		kvi_profile_part_put_head(&output->content, at);
		if (n > KVI_PROFILE_FRAME_BYTES - output->content.n)
			n = KVI_PROFILE_FRAME_BYTES - output->content.n;
		kvi_put_bytes(&output->content, content + at, n);
		if (output->content.failed)
			return kvi_fail_alloc(output->error, output->alloc);
		ret = kvi_writer_emit_content(output, KVI_FRAME_PROFILE, output->content.p,
		                              output->content.n, true, &entry);
		at += n;
	}
	return ret;
}

kvarc_ret kvi_writer_emit_profile(kvarc_writer *w)
{
	struct kvi_out out;
	if (!(w->options.flags & KVARC_WRITE_EMBED_PROFILE))
		return kvi_writer_use_predictor(w, &w->predictor.content, 0);
	kvi_out_init(&out, &w->alloc);
	kvi_profile_put(kvi_profile_of(w->options.profile), &out);
	kvarc_ret ret = KVARC_OK;
	if (out.failed)
		ret = kvi_fail_alloc(w->error, &w->alloc);
	else if (out.n > KVI_PROFILE_EMBED_MAX)
		ret = kvi_fail(w->error, KVARC_PROG,
		               "the profile is too large to be embedded: 1 GiB is the limit");
	if (ret == KVARC_OK)
		ret = kvi_writer_use_predictor(w, &w->predictor.content, out.n);
	if (ret == KVARC_OK)
		ret = emit_parts(&w->out, out.p, out.n);
	kvi_out_free(&out);
	return ret;
}

/* ==== The model of levels 4 to 8, for a device that computes its layers ==== */

kvarc_ret kvi_writer_model(const kvarc_writer *w, struct kvi_located_model *model)
{
	const kvarc_writer_options *o = &w->options;
	const struct kvi_predictor *p = &w->predictor.content;
	if (o->level < KVI_LEVEL_MODEL || !w->has_geometry || !w->plan ||
	    p->kind != KVI_PREDICTOR_MODEL || !kvi_predictor_file(o->predictor) ||
	    kvi_predictor_token_blind(o->predictor))
		return KVARC_END;
	*model = (struct kvi_located_model){
		.predictor = o->predictor,
		.arithmetic = { p->wide_weights, p->wide_activations, p->fp8 },
	};
	return KVARC_OK;
}
