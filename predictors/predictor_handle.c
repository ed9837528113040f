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
	pthread_mutex_t lock; /* protects all members */
	struct kvi_engine *engines[ENGINES];
	struct kvi_engine *headed[ENGINES]; /* engines with LM heads, by the index of their base */
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
	const struct kvi_exact_kernels *kernels; /* NULL: kernels by instruction set */
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

kvarc_ret kvarc_predictor_open_external(kvarc_predictor **out, const kvarc_external *external,
                                        const kvarc_common *common)
{
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	if (!external || !external->open || !external->close || !external->segment ||
	    !external->predict || !external->advance || !external->restart)
		return wrong_call(common, "a function of the external predictor is missing");
	if (!external->layers || !external->heads || external->heads > 65535 ||
	    !external->channels || external->channels > KVI_GROUP_MAX)
		return wrong_call(common, "the external predictor has no shape that can be");
	kvarc_ret ret = open_handle(out, common);
	if (ret)
		return ret;
	kvarc_predictor *p = *out;
	p->external = *external;
	p->external.name = NULL;
	p->model = (kvarc_predictor_model){ .arch = "external",
		                            .layers = external->layers,
		                            .heads = external->heads,
		                            .channels = external->channels };
	if (external->name)
		strncpy(p->model.name, external->name, sizeof p->model.name - 1);
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

static kvarc_ret make(const kvarc_predictor *predictor, int i,
                      const struct kvi_arithmetic *arithmetic, kvarc_error *error)
{
	struct kvi_pool *pool;
	if (kvi_pool_open(&pool, &predictor->alloc, predictor->common.threads))
		return kvi_fail_alloc(error, &predictor->alloc);
	const struct kvi_engine_options o = { .alloc = &predictor->alloc,
		                              .file = predictor->file,
		                              .arithmetic = *arithmetic,
		                              .pool = pool,
		                              .error = error,
		                              .cache = predictor->common.weight_cache,
		                              .progress = predictor->common.progress,
		                              .progress_opaque =
		                                      predictor->common.progress_opaque };
	kvarc_ret ret = kvi_cached_engine(&predictor->set->engines[i], &o);
	predictor->set->arithmetic[i] = *arithmetic;
	kvi_pool_close(pool);
	return ret;
}

/* The caller holds the lock of predictor->set. *index: of the engine in predictor->set->engines,
 * which is converted if need be. */
static kvarc_ret find_engine(const kvarc_predictor *predictor,
                             const struct kvi_arithmetic *arithmetic, int *index,
                             kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	int i = 0;
	while (i < ENGINES && predictor->set->engines[i] &&
	       !kvi_arithmetic_equal(&predictor->set->arithmetic[i], arithmetic))
		i++;
	if (i == ENGINES)
		ret = kvi_fail(error, KVARC_OPTIONS, "a predictor serves at most %d arithmetics",
		               ENGINES);
	else if (!predictor->set->engines[i])
		ret = make(predictor, i, arithmetic, error);
	*index = i;
	return ret;
}

/* The caller holds the lock of predictor->set. */
static kvarc_ret find_head(const kvarc_predictor *predictor, int i, kvarc_error *error)
{
	struct kvi_pool *pool;
	if (predictor->set->headed[i])
		return KVARC_OK;
	if (kvi_pool_open(&pool, &predictor->alloc, predictor->common.threads))
		return kvi_fail_alloc(error, &predictor->alloc);
	kvarc_ret ret = kvi_engine_with_head(&predictor->set->headed[i], predictor->set->engines[i],
	                                     pool, error);
	kvi_pool_close(pool);
	return ret;
}

/* The caller holds the lock of predictor->set. */
static kvarc_ret test_kernels(const kvarc_predictor *predictor, uint32_t isa_mask,
                              kvarc_error *error)
{
	uint32_t isa = kvi_kernels_get(isa_mask)->isa;
	kvarc_ret ret = predictor->set->tested & isa
	                        ? KVARC_OK
	                        : kvi_exact_test(&predictor->alloc,
	                                         kvi_predictor_kernels(predictor, isa_mask),
	                                         kvi_elementwise_get(isa_mask), error);
	if (ret == KVARC_OK)
		predictor->set->tested |= isa;
	return ret;
}

static kvarc_ret get_engine(const kvarc_predictor *predictor,
                            const struct kvi_arithmetic *arithmetic, uint32_t isa_mask, bool head,
                            const struct kvi_engine **engine, kvarc_error *error)
{
	int i = 0;
	pthread_mutex_lock(&predictor->set->lock);
	kvarc_ret ret = test_kernels(predictor, isa_mask, error);
	if (ret == KVARC_OK)
		ret = find_engine(predictor, arithmetic, &i, error);
	if (ret == KVARC_OK && head)
		ret = find_head(predictor, i, error);
	if (ret == KVARC_OK)
		*engine = head ? predictor->set->headed[i] : predictor->set->engines[i];
	pthread_mutex_unlock(&predictor->set->lock);
	return ret;
}

kvarc_ret kvi_predictor_engine(const kvarc_predictor *predictor,
                               const struct kvi_arithmetic *arithmetic, uint32_t isa_mask,
                               const struct kvi_engine **engine, kvarc_error *error)
{
	return get_engine(predictor, arithmetic, isa_mask, predictor->blind != 0, engine, error);
}

kvarc_ret kvi_predictor_head(const kvarc_predictor *predictor,
                             const struct kvi_arithmetic *arithmetic, uint32_t isa_mask,
                             const struct kvi_engine **engine, kvarc_error *error)
{
	return get_engine(predictor, arithmetic, isa_mask, true, engine, error);
}

void kvi_predictor_use_kernels(kvarc_predictor *predictor, const struct kvi_exact_kernels *kernels)
{
	predictor->kernels = kernels;
}

const struct kvi_exact_kernels *kvi_predictor_kernels(const kvarc_predictor *predictor,
                                                      uint32_t isa_mask)
{
	return predictor->kernels ? predictor->kernels : kvi_exact_kernels_get(isa_mask);
}

const struct kvi_alloc *kvi_predictor_alloc(const kvarc_predictor *predictor)
{
	return &predictor->alloc;
}

const struct kvi_model_file *kvi_predictor_file(const kvarc_predictor *predictor)
{
	return predictor->file;
}

const kvarc_external *kvi_predictor_external(const kvarc_predictor *predictor)
{
	return predictor->file ? NULL : &predictor->external;
}

const kvarc_predictor_model *kvi_predictor_shape(const kvarc_predictor *predictor)
{
	return &predictor->model;
}

unsigned kvi_predictor_token_blind(const kvarc_predictor *predictor)
{
	return predictor->blind;
}

kvarc_ret kvi_predictor_identify(const kvarc_predictor *predictor,
                                 const struct kvi_arithmetic *arithmetic, uint32_t isa_mask,
                                 struct kvi_h128 *digest, kvarc_error *error)
{
	const struct kvi_engine *e;
	*digest = kvi_load_h128(predictor->external.identity);
	if (!predictor->file)
		return KVARC_OK;
	kvarc_ret ret = kvi_predictor_engine(predictor, arithmetic, isa_mask, &e, error);
	if (ret == KVARC_OK)
		*digest = kvi_token_blind_digest(e, predictor->blind);
	return ret;
}

const kvarc_common *kvi_predictor_common(const kvarc_predictor *predictor)
{
	return &predictor->common;
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
	if (!p->set->engines[0]) /* all engines of a model have one digest */
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
