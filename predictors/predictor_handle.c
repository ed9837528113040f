/* SPDX-License-Identifier: BSD-3-Clause */
/* predictor_handle.c - predictors through the public interface */
#include "predictor_handle.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "token_blind/token_blind.h"
#include "weight_cache/weight_cache.h"
#include "kernels/rans.h"
#include "exact/head.h"
#include "exact/self_test.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/arguments.h"

enum { ENGINES = 5 }; /* the number of arithmetics with names */

/* Engines are converted on demand: callers that share a const predictor add to them. */
struct engine_set {
	pthread_mutex_t lock; /* of all members */
	struct kvi_engine *engines[ENGINES];
	struct kvi_engine *headed[ENGINES]; /* the same with LM heads */
	struct kvi_arithmetic arithmetic[ENGINES];
	uint32_t tested; /* instruction sets */
};

struct kvarc_predictor {
	struct kvi_alloc alloc;
	kvarc_common common;
	struct kvi_model_file *file; /* NULL: external */
	kvarc_external external;
	unsigned blind;
	kvarc_predictor_model model;
	const struct kvi_exact_kernels *kernels; /* NULL: by instruction set */
	struct engine_set *set;
};

static kvarc_ret open_handle(kvarc_predictor **out, const kvarc_common *common)
{
	static const kvarc_common defaults = KVARC_COMMON_INIT;
	const kvarc_common *c = common ? common : &defaults;
	uint64_t limit = c->memlimit ? c->memlimit : UINT64_MAX;
	kvarc_ret ret = kvi_handle_new(out, sizeof **out, offsetof(kvarc_predictor, alloc), c,
	                               limit);
	kvarc_predictor *p = *out;
	if (ret)
		return ret;
	p->common = *c;
	p->set = kvi_calloc(&p->alloc, 1, sizeof *p->set);
	if (!p->set)
		ret = kvi_fail_alloc(c->error, &p->alloc);
	else if (pthread_mutex_init(&p->set->lock, NULL))
		ret = KVARC_MEM;
	if (ret) {
		kvi_free(&p->alloc, p->set);
		kvi_free(&p->alloc, p);
		*out = NULL;
	}
	return ret;
}

static kvarc_ret wrong_call(const kvarc_common *common, const char *what)
{
	return kvi_fail(common ? common->error : NULL, KVARC_PROG, "%s", what);
}

kvarc_ret kvarc_predictor_open_model(kvarc_predictor **out, const char *path,
                                     const kvarc_common *common)
{
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	if (!path)
		return wrong_call(common, "path is NULL");
	kvarc_ret ret = open_handle(out, common);
	if (ret)
		return ret;
	kvarc_predictor *p = *out;
	ret = kvi_model_file_open(&p->file, &p->alloc, path, p->common.error);
	if (ret) {
		kvarc_predictor_close(out);
		return ret;
	}
	const struct kvi_model_file *f = p->file;
	p->model = (kvarc_predictor_model){ .layers = f->n_layers,
		                            .heads = f->kv_heads,
		                            .channels = f->head_channels,
		                            .vocabulary = f->vocabulary };
	memcpy(p->model.arch, f->arch, sizeof p->model.arch);
	memcpy(p->model.name, f->name, sizeof p->model.name);
	return KVARC_OK;
}

kvarc_ret kvarc_predictor_open_blind(kvarc_predictor **out, const char *path, unsigned blind,
                                     const kvarc_common *common)
{
	char name[sizeof(*out)->model.name], what[16];
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	if (!blind || !kvi_token_blind_known(blind))
		return wrong_call(common, "there is no such predictor without the current token");
	kvarc_ret ret = kvarc_predictor_open_model(out, path, common);
	if (ret)
		return ret;
	kvarc_predictor *p = *out;
	p->blind = blind;
	kvi_token_blind_name(blind, what);
	snprintf(name, sizeof name, "%.*s%s%s", (int)sizeof name - 18, p->model.name,
	         p->model.name[0] ? " " : "", what);
	memcpy(p->model.name, name, sizeof name);
	return KVARC_OK;
}

kvarc_ret kvarc_predictor_open_external(kvarc_predictor **out, const kvarc_external *x,
                                        const kvarc_common *common)
{
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	if (!x || !x->open || !x->close || !x->segment || !x->predict || !x->advance || !x->restart)
		return wrong_call(common, "a function of the external predictor is missing");
	if (!x->layers || !x->heads || x->heads > 65535 || !x->channels ||
	    x->channels > KVI_GROUP_MAX)
		return wrong_call(common, "the external predictor has no shape that can be");
	kvarc_ret ret = open_handle(out, common);
	if (ret)
		return ret;
	kvarc_predictor *p = *out;
	p->external = *x;
	p->external.name = NULL;
	p->model = (kvarc_predictor_model){
		.arch = "external", .layers = x->layers, .heads = x->heads, .channels = x->channels
	};
	if (x->name)
		strncpy(p->model.name, x->name, sizeof p->model.name - 1);
	return KVARC_OK;
}

void kvarc_predictor_close(kvarc_predictor **out)
{
	kvarc_predictor *p = out ? *out : NULL;
	if (!p)
		return;
	for (int i = 0; i < ENGINES; i++) {
		kvi_engine_close(&p->set->headed[i]);
		kvi_engine_close(&p->set->engines[i]);
	}
	kvi_model_file_close(&p->file);
	pthread_mutex_destroy(&p->set->lock);
	kvi_free(&p->alloc, p->set);
	kvi_free(&p->alloc, p);
	*out = NULL;
}

static kvarc_ret make(const kvarc_predictor *p, int i, const struct kvi_arithmetic *a,
                      kvarc_error *error)
{
	struct kvi_pool *pool;
	if (kvi_pool_open(&pool, &p->alloc, p->common.threads))
		return kvi_fail_alloc(error, &p->alloc);
	const struct kvi_engine_options o = { .alloc = &p->alloc,
		                              .file = p->file,
		                              .arithmetic = *a,
		                              .pool = pool,
		                              .error = error,
		                              .cache = p->common.weight_cache,
		                              .progress = p->common.progress,
		                              .progress_opaque = p->common.progress_opaque };
	kvarc_ret ret = kvi_kept_engine(&p->set->engines[i], &o);
	p->set->arithmetic[i] = *a;
	kvi_pool_close(pool);
	return ret;
}

/* The caller holds the lock of p->set. *index: of the engine in p->set->engines, which is
 * converted if need be. */
static kvarc_ret find_engine(const kvarc_predictor *p, const struct kvi_arithmetic *a, int *index,
                             kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	int i = 0;
	while (i < ENGINES && p->set->engines[i] &&
	       !kvi_arithmetic_equal(&p->set->arithmetic[i], a))
		i++;
	if (i == ENGINES)
		ret = kvi_fail(error, KVARC_OPTIONS, "a predictor serves at most %d arithmetics",
		               ENGINES);
	else if (!p->set->engines[i])
		ret = make(p, i, a, error);
	*index = i;
	return ret;
}

/* The caller holds the lock of p->set. */
static kvarc_ret find_head(const kvarc_predictor *p, int i, kvarc_error *error)
{
	struct kvi_pool *pool;
	if (p->set->headed[i])
		return KVARC_OK;
	if (kvi_pool_open(&pool, &p->alloc, p->common.threads))
		return kvi_fail_alloc(error, &p->alloc);
	kvarc_ret ret = kvi_engine_with_head(&p->set->headed[i], p->set->engines[i], pool, error);
	kvi_pool_close(pool);
	return ret;
}

/* The caller holds the lock of p->set. */
static kvarc_ret test_kernels(const kvarc_predictor *p, uint32_t isa_mask, kvarc_error *error)
{
	uint32_t isa = kvi_kernels_get(isa_mask)->isa;
	kvarc_ret ret = p->set->tested & isa
	                        ? KVARC_OK
	                        : kvi_exact_test(&p->alloc, kvi_predictor_kernels(p, isa_mask),
	                                         kvi_elementwise_get(isa_mask), error);
	if (ret == KVARC_OK)
		p->set->tested |= isa;
	return ret;
}

static kvarc_ret get_engine(const kvarc_predictor *p, const struct kvi_arithmetic *a,
                            uint32_t isa_mask, bool head, const struct kvi_engine **e,
                            kvarc_error *error)
{
	int i = 0;
	pthread_mutex_lock(&p->set->lock);
	kvarc_ret ret = test_kernels(p, isa_mask, error);
	if (ret == KVARC_OK)
		ret = find_engine(p, a, &i, error);
	if (ret == KVARC_OK && head)
		ret = find_head(p, i, error);
	if (ret == KVARC_OK)
		*e = head ? p->set->headed[i] : p->set->engines[i];
	pthread_mutex_unlock(&p->set->lock);
	return ret;
}

kvarc_ret kvi_predictor_engine(const kvarc_predictor *p, const struct kvi_arithmetic *a,
                               uint32_t isa_mask, const struct kvi_engine **e, kvarc_error *error)
{
	return get_engine(p, a, isa_mask, p->blind != 0, e, error);
}

kvarc_ret kvi_predictor_head(const kvarc_predictor *p, const struct kvi_arithmetic *a,
                             uint32_t isa_mask, const struct kvi_engine **e, kvarc_error *error)
{
	return get_engine(p, a, isa_mask, true, e, error);
}

void kvi_predictor_use_kernels(kvarc_predictor *p, const struct kvi_exact_kernels *kernels)
{
	p->kernels = kernels;
}

const struct kvi_exact_kernels *kvi_predictor_kernels(const kvarc_predictor *p, uint32_t isa_mask)
{
	return p->kernels ? p->kernels : kvi_exact_kernels_get(isa_mask);
}

const struct kvi_alloc *kvi_predictor_alloc(const kvarc_predictor *p)
{
	return &p->alloc;
}

const struct kvi_model_file *kvi_predictor_file(const kvarc_predictor *p)
{
	return p->file;
}

const kvarc_external *kvi_predictor_external(const kvarc_predictor *p)
{
	return p->file ? NULL : &p->external;
}

const kvarc_predictor_model *kvi_predictor_shape(const kvarc_predictor *p)
{
	return &p->model;
}

unsigned kvi_predictor_token_blind(const kvarc_predictor *p)
{
	return p->blind;
}

kvarc_ret kvi_predictor_identify(const kvarc_predictor *p, const struct kvi_arithmetic *a,
                                 uint32_t isa_mask, struct kvi_h128 *digest, kvarc_error *error)
{
	const struct kvi_engine *e;
	*digest = kvi_load_h128(p->external.identity);
	if (!p->file)
		return KVARC_OK;
	kvarc_ret ret = kvi_predictor_engine(p, a, isa_mask, &e, error);
	if (ret == KVARC_OK)
		*digest = kvi_token_blind_digest(e, p->blind);
	return ret;
}

const kvarc_common *kvi_predictor_common(const kvarc_predictor *p)
{
	return &p->common;
}

kvarc_ret kvarc_predictor_get_model(const kvarc_predictor *p, kvarc_predictor_model *model)
{
	if (!p || !model)
		return KVARC_PROG;
	*model = p->model;
	return KVARC_OK;
}

kvarc_ret kvarc_predictor_digest(const kvarc_predictor *p, uint8_t digest[16])
{
	const struct kvi_engine_level any = kvi_engine_level(5);
	if (!p || !digest)
		return KVARC_PROG;
	if (!p->file) {
		memcpy(digest, p->external.identity, 16);
		return KVARC_OK;
	}
	pthread_mutex_lock(&p->set->lock);
	kvarc_ret ret = KVARC_OK;
	int i = 0;
	if (!p->set->engines[0]) /* all have the same */
		ret = find_engine(p, &any.arithmetic, &i, p->common.error);
	if (ret == KVARC_OK && p->blind)
		ret = find_head(p, i, p->common.error);
	if (ret == KVARC_OK)
		kvi_store_h128(digest, kvi_token_blind_digest(p->blind ? p->set->headed[i]
		                                                       : p->set->engines[i],
		                                              p->blind));
	pthread_mutex_unlock(&p->set->lock);
	return ret;
}
