/* SPDX-License-Identifier: BSD-3-Clause */
/* sensitivity.c - a cache with one head after another from an archive */
#include <string.h>

#include "eval_state.h"
#include "sensitivity.h"
#include "format/geometry_check.h"
#include "util/error.h"

const kvarc_geometry *kvi_sensitivity_geometry(const kvarc_eval *eval)
{
	return eval->geometry;
}

size_t kvi_sensitivity_tokens(const kvarc_eval *eval)
{
	return (size_t)eval->o.prefix + eval->o.continuation;
}

size_t kvi_sensitivity_heads(const kvarc_eval *eval)
{
	size_t n = 0;
	for (size_t i = 0; i < eval->geometry->n_tensors; i++)
		n += eval->geometry->tensors[i].heads;
	return n;
}

/* Rows of a head, or of all of them, from one cache to another. */
static void copy_head(const kvarc_eval *eval, size_t tensor, size_t head,
                      const struct kvi_eval_cache *from, uint8_t *to)
{
	const kvarc_view *v = &from->views[tensor];
	const size_t row = (size_t)v->token_stride;
	const size_t bytes = row / eval->geometry->tensors[tensor].heads;
	for (size_t t = 0; t < from->n; t++)
		memcpy(to + t * row + head * bytes,
		       (const uint8_t *)v->data + t * row + head * bytes, bytes);
}

/* views: of the exact cache; the tensor's view is restored at the end. */
static kvarc_ret try_tensor(kvarc_eval *eval, size_t tensor, kvarc_view *views, uint8_t *buffer,
                            double *sensitivity)
{
	const kvarc_view exact = views[tensor];
	kvarc_ret ret = KVARC_OK;
	memcpy(buffer, exact.data, (size_t)(exact.token_stride * eval->exact.n));
	views[tensor].data = buffer;
	for (size_t h = 0; h < eval->geometry->tensors[tensor].heads && !ret; h++) {
		kvarc_eval_result r = { 0 };
		copy_head(eval, tensor, h, &eval->back, buffer);
		ret = kvi_eval_compare(eval, views, eval->exact.n, &r);
		copy_head(eval, tensor, h, &eval->exact, buffer);
		sensitivity[h] += r.mean_kl;
	}
	views[tensor] = exact;
	return ret;
}

static kvarc_ret try_heads(kvarc_eval *eval, kvarc_view *views, uint8_t *buffer,
                           double *sensitivity)
{
	const kvarc_geometry *g = eval->geometry;
	kvarc_ret ret = KVARC_OK;
	memcpy(views, eval->exact.views, g->n_tensors * sizeof *views);
	for (size_t i = 0; i < g->n_tensors && !ret; i++) {
		ret = try_tensor(eval, i, views, buffer, sensitivity);
		sensitivity += g->tensors[i].heads;
	}
	return ret;
}

static kvarc_ret make_caches(kvarc_eval *eval, const int32_t *ids)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_eval_result r = { 0 };
	kvarc_lossy had;
	kvarc_ret ret = kvarc_lossy_parse(&had, "had:3", NULL);
	o.lossy = &had;
	if (!ret)
		ret = kvi_eval_make_cache(eval, ids, NULL);
	if (!ret)
		ret = kvi_eval_make_exact(eval, ids);
	return ret ? ret : kvi_eval_through_archive(eval, ids, &o, &r);
}

kvarc_ret kvi_sensitivity_add(kvarc_eval *eval, const int32_t *ids, double *sensitivity)
{
	const kvarc_geometry *g = eval->geometry;
	size_t most = 0;
	for (size_t i = 0; i < g->n_tensors; i++)
		if (kvi_tensor_bytes(&g->tensors[i]) > most)
			most = kvi_tensor_bytes(&g->tensors[i]);
	uint8_t *buffer = kvi_array(&eval->alloc, eval->o.prefix, most);
	kvarc_view *views = kvi_array(&eval->alloc, g->n_tensors, sizeof *views);
	kvarc_ret ret = buffer && views ? make_caches(eval, ids)
	                                : kvi_fail_alloc(eval->o.common.error, &eval->alloc);
	if (!ret)
		ret = try_heads(eval, views, buffer, sensitivity);
	kvi_free(&eval->alloc, buffer);
	kvi_free(&eval->alloc, views);
	return ret;
}
