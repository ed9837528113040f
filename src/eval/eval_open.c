/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_open.c - an evaluation through the public interface */
#include <string.h>

#include "eval_state.h"
#include "format/geometry_check.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/ckd.h"

enum { PREFIX_DEFAULT = 512, CONTINUATION_DEFAULT = 64 };

static kvarc_ret fail(const kvarc_eval *eval, kvarc_ret ret, const char *what)
{
	return kvi_fail(eval->o.common.error, ret, "%s", what);
}

static kvarc_ret no_memory(const kvarc_eval *eval)
{
	return kvi_fail_alloc(eval->o.common.error, &eval->alloc);
}

/* ---- opening ---- */

static bool open_cache(kvarc_eval *eval, struct kvi_eval_cache *cache)
{
	const kvarc_geometry *g = eval->geometry;
	uint64_t bytes = 0, each;
	for (size_t i = 0; i < g->n_tensors; i++)
		if (kvi_mul((uint64_t)kvi_tensor_bytes(&g->tensors[i]), (uint64_t)eval->o.prefix,
		            &each) ||
		    kvi_add(bytes, each, &bytes))
			return false;
	cache->memory = kvi_calloc(&eval->alloc, 1, (size_t)bytes);
	cache->views = kvi_calloc(&eval->alloc, g->n_tensors, sizeof *cache->views);
	if (bytes > SIZE_MAX || !cache->memory || !cache->views)
		return false;
	cache->bytes = (size_t)bytes;
	uint8_t *at = cache->memory;
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		cache->views[i] =
			(kvarc_view){ .data = at,
			              .token_stride = kvi_tensor_bytes(t),
			              .block_elems = kvi_tensor_width(t),
			              .elem_stride = (uint32_t)kvarc_dtype_bytes(t->dtype) };
		at += (size_t)kvi_tensor_bytes(t) * eval->o.prefix;
	}
	return true;
}

/* Allocates the buffers of comparisons. */
static kvarc_ret open_results(kvarc_eval *eval)
{
	const uint32_t n = eval->o.continuation, prefix = eval->o.prefix;
	eval->d = kvi_array(&eval->alloc, n, sizeof *eval->d);
	eval->sorted = kvi_array(&eval->alloc, n, sizeof *eval->sorted);
	eval->score = kvi_array(&eval->alloc, prefix, sizeof *eval->score);
	eval->token_rate = kvi_array(&eval->alloc, prefix, sizeof *eval->token_rate);
	return eval->d && eval->sorted && eval->score && eval->token_rate &&
	                       open_cache(eval, &eval->back)
	               ? KVARC_OK
	               : no_memory(eval);
}

static kvarc_ret open_buffers(kvarc_eval *eval)
{
	size_t n = (size_t)eval->o.prefix + eval->o.continuation;
	eval->positions = kvi_array(&eval->alloc, n, sizeof *eval->positions);
	if (!eval->positions || !open_cache(eval, &eval->exact))
		return no_memory(eval);
	for (size_t i = 0; i < n; i++)
		eval->positions[i] = (int32_t)i;
	eval->exact.n = eval->o.prefix;
	return eval->o.continuation ? open_results(eval) : KVARC_OK;
}

static kvarc_ret open_forced(kvarc_eval *eval, kvi_teacher_forced_put put)
{
	const struct kvi_engine_level best = kvi_engine_level(7);
	const struct kvi_engine_level l = kvi_engine_choice(&best, eval->o.arithmetic,
	                                                    KVARC_LOOP_CLOSED);
	const struct kvi_teacher_forced_options o = { .predictor = eval->o.predictor,
		                                      .arithmetic = l.arithmetic,
		                                      .geometry = eval->geometry,
		                                      .alloc = &eval->alloc,
		                                      .pool = eval->pool,
		                                      .isa_mask = eval->o.common.isa_mask,
		                                      .put = put };
	return kvi_teacher_forced_open(&eval->runs, &o, eval->o.common.error);
}

kvarc_ret kvi_eval_use_put(kvarc_eval *eval, kvi_teacher_forced_put put)
{
	kvi_teacher_forced_close(&eval->runs);
	return open_forced(eval, put);
}

/* Allocates and opens the rest, once the geometry is set. */
kvarc_ret kvi_eval_start(kvarc_eval *eval)
{
	if (kvi_pool_open(&eval->pool, &eval->alloc, eval->o.common.threads))
		return no_memory(eval);
	kvarc_ret ret = open_buffers(eval);
	return ret ? ret : open_forced(eval, NULL);
}

kvarc_ret kvi_eval_start_caches(kvarc_eval *eval)
{
	if (kvi_pool_open(&eval->pool, &eval->alloc, eval->o.common.threads))
		return no_memory(eval);
	kvarc_ret ret = open_buffers(eval);
	if (ret)
		return ret;
	return open_cache(eval, &eval->back) ? KVARC_OK : no_memory(eval);
}

static kvarc_ret open_model(kvarc_eval *eval)
{
	const struct kvi_model_file *m = kvi_predictor_file(eval->o.predictor);
	if (!m)
		return fail(eval, KVARC_OPTIONS, "an evaluation needs a model that runs here");
	if ((uint64_t)eval->o.prefix + eval->o.continuation > kvi_model_positions(m))
		return fail(eval, KVARC_DATA, "the sequences are longer than the model can see");
	/* Channels lie as in the caches that engines make of such a file. */
	if (kvi_model_geometry_make(&eval->g, &eval->alloc, m, eval->o.dtype,
	                            m->interleaved ? KVARC_ROPE_INTERLEAVED : KVARC_ROPE_HALF))
		return no_memory(eval);
	eval->geometry = &eval->g.geometry;
	return kvi_eval_start(eval);
}

static void set_defaults(kvarc_eval_options *options)
{
	options->dtype = options->dtype ? options->dtype : KVARC_BF16;
	options->prefix = options->prefix ? options->prefix : PREFIX_DEFAULT;
	options->continuation = options->continuation ? options->continuation
	                                              : CONTINUATION_DEFAULT;
}

static bool may_open(const kvarc_eval_options *options)
{
	return options->predictor && options->continuation > 1 &&
	       options->scores <= KVARC_SCORE_SURPRISAL &&
	       (options->dtype == KVARC_F32 || options->dtype == KVARC_F16 ||
	        options->dtype == KVARC_BF16);
}

kvarc_ret kvarc_eval_open(kvarc_eval **out, const kvarc_eval_options *options)
{
	kvarc_eval *e;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	if (!options)
		return KVARC_PROG;
	kvarc_eval_options complete = *options, *o = &complete;
	set_defaults(o);
	if (!may_open(o))
		return kvi_fail(o->common.error, KVARC_PROG,
		                "kvarc_eval_open: a predictor, a dtype of floats and a "
		                "continuation of at least 2 tokens are needed");
	kvarc_ret ret = KVI_CHECK_RESERVED(o->common.error, "kvarc_eval_open", "kvarc_eval_options",
	                                   o);
	if (ret)
		return ret;
	uint64_t limit = o->common.memlimit ? o->common.memlimit : UINT64_MAX;
	ret = kvi_handle_new(&e, sizeof *e, offsetof(kvarc_eval, alloc), &o->common, limit);
	if (ret)
		return ret;
	e->o = *o;
	e->o.common.memlimit = limit;
	ret = open_model(e);
	if (ret)
		kvarc_eval_close(&e);
	*out = e;
	return ret;
}

void kvi_eval_stop(kvarc_eval *eval)
{
	kvi_teacher_forced_close(&eval->runs);
	kvi_pool_close(eval->pool);
	kvi_free(&eval->alloc, eval->positions);
	kvi_free(&eval->alloc, eval->d);
	kvi_free(&eval->alloc, eval->sorted);
	kvi_free(&eval->alloc, eval->score);
	kvi_free(&eval->alloc, eval->token_rate);
	struct kvi_eval_cache *caches[] = { &eval->exact, &eval->back };
	for (size_t i = 0; i < 2; i++) {
		kvi_free(&eval->alloc, caches[i]->memory);
		kvi_free(&eval->alloc, caches[i]->views);
	}
}

void kvarc_eval_close(kvarc_eval **out)
{
	kvarc_eval *e = out ? *out : NULL;
	if (!e)
		return;
	kvi_eval_stop(e);
	kvi_model_geometry_free(&e->g, &e->alloc);
	kvi_free(&e->alloc, e);
	*out = NULL;
}

/* ---- a sequence ---- */

kvarc_ret kvi_eval_progress(kvarc_eval *eval, uint64_t tokens)
{
	const kvarc_common *c = &eval->o.common;
	eval->done += tokens;
	if (c->progress && c->progress(c->progress_opaque, eval->done, eval->total))
		return fail(eval, KVARC_IO, "stopped by the progress callback");
	return KVARC_OK;
}

/* The library's text where there is none yet. */
static kvarc_ret say(const kvarc_eval *eval, kvarc_ret ret)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return no_memory(eval);
	if (ret == KVARC_DATA)
		return fail(eval, ret, "a token id is not one of the model's");
	if (ret == KVARC_OPTIONS)
		return fail(eval, ret,
		            "layers of this model have windows: tokens "
		            "cannot be dropped in an evaluation of it");
	return ret;
}

kvarc_ret kvi_eval_compare(kvarc_eval *eval, const kvarc_view *views, uint64_t n,
                           kvarc_eval_result *r)
{
	const struct kvi_teacher_forced_cache other = { views, n };
	kvarc_ret ret = kvi_teacher_forced_compare(eval->runs, &other, eval->d);
	if (ret)
		return say(eval, ret);
	r->cache_tokens = eval->o.prefix;
	r->elements = (uint64_t)eval->exact.bytes / kvarc_dtype_bytes(eval->o.dtype);
	kvi_eval_take(r, eval->d, eval->o.continuation, eval->sorted);
	return kvi_eval_progress(eval, eval->o.continuation);
}

/* Sets in `to` the rate of each token of the sequence, where a tier selects by scores. */
static kvarc_ret rate_tokens(kvarc_eval *eval, const kvarc_lossy *from, kvarc_lossy *to)
{
	*to = *from;
	if (!eval->o.scores || from->token_rate ||
	    !(from->select.keep || from->select.top || from->select.spread))
		return KVARC_OK;
	to->token_rate = eval->token_rate;
	to->n_token_rates = eval->o.prefix;
	kvarc_ret ret = kvarc_lossy_rates(from, eval->score, eval->o.prefix, eval->token_rate);
	return ret ? fail(eval, ret,
	                  "the scores of a sequence are no numbers, or a tier's are out of range")
	           : KVARC_OK;
}

static kvarc_ret run_tier(kvarc_eval *eval, const int32_t *ids, const kvarc_writer_options *tier,
                          kvarc_eval_result *r)
{
	kvarc_writer_options o = *tier;
	kvarc_lossy lossy;
	kvarc_ret ret = o.lossy ? rate_tokens(eval, o.lossy, &lossy) : KVARC_OK;
	o.lossy = o.lossy ? &lossy : NULL;
	if (!ret)
		ret = kvi_eval_through_archive(eval, ids, &o, r);
	return ret ? ret : kvi_eval_compare(eval, eval->back.views, eval->back.n, r);
}

static kvarc_ret run_zeroed(kvarc_eval *eval, kvarc_eval_result *r)
{
	memset(eval->back.memory, 0, eval->back.bytes);
	eval->back.n = eval->exact.n;
	r->archive_bytes = 0;
	r->kept_tokens = eval->back.n;
	return kvi_eval_compare(eval, eval->back.views, eval->back.n, r);
}

/* Checks the evaluation with a lossless cache and a zeroed one: no result is valid when one of
 * these is wrong. */
static kvarc_ret check(kvarc_eval *eval, const int32_t *ids, kvarc_eval_result *checks)
{
	kvarc_writer_options lossless = KVARC_WRITER_OPTIONS_INIT;
	kvarc_eval_result *floor = &checks[KVARC_EVAL_FLOOR];
	kvarc_eval_result *zeroed = &checks[KVARC_EVAL_ZEROED];
	kvarc_ret ret = run_tier(eval, ids, &lossless, floor);
	if (!ret)
		ret = run_zeroed(eval, zeroed);
	if (ret)
		return ret;
	if (floor->max_kl != 0 || floor->agreement != 1)
		return kvi_fail(eval->o.common.error, KVARC_PREDICTOR,
		                "this evaluation is broken: a lossless archive has a KL of %g",
		                floor->max_kl);
	if (zeroed->max_kl == 0)
		return fail(eval, KVARC_PREDICTOR,
		            "this evaluation does not read the "
		            "cache: one of zeros makes no difference");
	eval->zeroed_kl += zeroed->mean_kl;
	return KVARC_OK;
}

kvarc_ret kvi_eval_make_exact(kvarc_eval *eval, const int32_t *ids)
{
	const uint32_t prefix = eval->o.prefix;
	const struct kvi_teacher_forced_text after = { ids + prefix, eval->positions + prefix,
		                                       eval->o.continuation };
	const struct kvi_teacher_forced_cache exact = { eval->exact.views, prefix };
	eval->exact.n = prefix;
	kvarc_ret ret = kvi_teacher_forced_exact(eval->runs, &exact, &after);
	return ret ? say(eval, ret) : kvi_eval_progress(eval, eval->o.continuation);
}

static kvarc_ret tokens_done(void *opaque, size_t t0, size_t n)
{
	(void)t0;
	return kvi_eval_progress(opaque, n);
}

kvarc_ret kvi_eval_make_cache(kvarc_eval *eval, const int32_t *ids, float *score)
{
	const struct kvi_teacher_forced_text before = { ids, eval->positions, eval->o.prefix };
	const struct kvi_scores_options o = { .alloc = &eval->alloc,
		                              .pool = eval->pool,
		                              .isa_mask = eval->o.common.isa_mask,
		                              .model = kvi_predictor_file(eval->o.predictor),
		                              .kind = eval->o.scores,
		                              .opaque = eval,
		                              .done = tokens_done };
	const struct kvi_teacher_forced_observer count = { .opaque = eval, .done = tokens_done };
	kvarc_ret ret = score ? kvi_scores_make(eval->runs, &o, &before, eval->exact.views, score)
	                      : kvi_teacher_forced_observed(eval->runs, &before, eval->exact.views,
	                                                    &count);
	return ret ? say(eval, ret) : KVARC_OK;
}

static kvarc_ret run_sequence(kvarc_eval *eval, const int32_t *ids, size_t n,
                              const kvarc_writer_options *tiers, kvarc_eval_result *results,
                              kvarc_eval_result *checks)
{
	eval->done = 0;
	eval->total = eval->o.prefix + (n + 1 + KVARC_EVAL_CHECKS) * (uint64_t)eval->o.continuation;
	kvarc_ret ret = kvi_eval_make_cache(eval, ids, eval->o.scores ? eval->score : NULL);
	if (!ret)
		ret = kvi_eval_make_exact(eval, ids);
	if (!ret)
		ret = check(eval, ids, checks);
	for (size_t i = 0; i < n && !ret; i++)
		ret = run_tier(eval, ids, &tiers[i], &results[i]);
	return ret;
}

kvarc_ret kvarc_eval_sequence(kvarc_eval *e, const int32_t *ids, size_t n_tiers,
                              const kvarc_writer_options *tiers, kvarc_eval_result *results,
                              kvarc_eval_result *checks)
{
	if (!e)
		return KVARC_PROG;
	if (e->failed)
		return e->failed;
	if (!ids || !checks || (n_tiers && (!tiers || !results)))
		return fail(e, KVARC_PROG, "ids, tiers, results or checks are missing");
	e->failed = run_sequence(e, ids, n_tiers, tiers, results, checks);
	e->sequences += !e->failed;
	return e->failed;
}

kvarc_ret kvarc_eval_trusted(const kvarc_eval *e, double max_kl)
{
	if (!e || !e->sequences)
		return KVARC_PROG;
	double least = KVARC_EVAL_ZEROED_KL, kl = e->zeroed_kl / (double)e->sequences;
	if (10 * max_kl > least)
		least = 10 * max_kl;
	if (!(kl < least))
		return KVARC_OK;
	return kvi_fail(e->o.common.error, KVARC_PREDICTOR,
	                "this evaluation hardly depends on the "
	                "cache: a cache of zeros has a mean KL of %g, and %g is needed to "
	                "distinguish tiers",
	                kl, least);
}

/* ---- scores ---- */

static bool may_make(const kvarc_scores_options *options, const int32_t *ids, uint64_t n,
                     const float *score)
{
	return options->predictor && ids && score && n && n < UINT32_MAX &&
	       (options->dtype == KVARC_F32 || options->dtype == KVARC_F16 ||
	        options->dtype == KVARC_BF16) &&
	       (options->kind == KVARC_SCORE_H2O || options->kind == KVARC_SCORE_SURPRISAL);
}

kvarc_ret kvarc_scores_make(const kvarc_scores_options *options, const int32_t *ids, uint64_t n,
                            float *score)
{
	const char *call = "kvarc_scores_make";
	if (!options)
		return KVARC_PROG;
	kvarc_scores_options complete = *options, *o = &complete;
	o->dtype = o->dtype ? o->dtype : KVARC_BF16;
	o->kind = o->kind ? o->kind : KVARC_SCORE_H2O;
	if (!may_make(o, ids, n, score))
		return kvi_fail(o->common.error, KVARC_PROG,
		                "%s: a predictor, a dtype of floats, a kind and tokens are needed",
		                call);
	kvarc_ret ret = KVI_CHECK_RESERVED(o->common.error, call, "kvarc_scores_options", o);
	if (!ret)
		ret = kvi_check_common(&o->common);
	if (ret)
		return ret;
	struct kvarc_eval e = { .o = { .common = o->common,
		                       .predictor = o->predictor,
		                       .arithmetic = o->arithmetic,
		                       .dtype = o->dtype,
		                       .prefix = (uint32_t)n,
		                       .scores = o->kind },
		                .total = n };
	if (!e.o.common.memlimit)
		e.o.common.memlimit = UINT64_MAX;
	kvi_alloc_init(&e.alloc, o->common.allocator, e.o.common.memlimit);
	ret = open_model(&e);
	if (!ret)
		ret = kvi_eval_make_cache(&e, ids, score);
	kvi_eval_stop(&e);
	kvi_model_geometry_free(&e.g, &e.alloc);
	return ret;
}
