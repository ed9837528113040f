/* SPDX-License-Identifier: BSD-3-Clause */
/* device_place.c - where elements go: checks the views, writes the jobs of kernels */
#include "config.h"

#include "plan_state.h"

#include <string.h>

#include "util/arguments.h"
#include "util/ckd.h"
#include "util/error.h"

/* ----- views ------------------------------------------------ */

/* Bytes that n rows of a tensor take under a view without pages; false: too many for 64 bits. */
static bool rows_extent(const kvarc_device_view *view, const kvarc_tensor *tensor, uint64_t n,
                        uint64_t *bytes)
{
	uint64_t rows, heads, channels;
	return !kvi_mul(n - 1, view->token_stride, &rows) &&
	       !kvi_mul((uint64_t)tensor->heads - 1, view->head_stride, &heads) &&
	       !kvi_mul((uint64_t)tensor->channels - 1, (uint64_t)view->elem_stride, &channels) &&
	       !kvi_add(rows, heads, bytes) && !kvi_add(*bytes, channels, bytes) &&
	       !kvi_add(*bytes, (uint64_t)kvarc_dtype_bytes(tensor->dtype), bytes);
}

/* Whether all elements that a view can name lie in its memory, and its entries in its table. */
static bool view_holds(const kvarc_device_view *view, const kvarc_tensor *tensor, uint64_t tokens)
{
	uint64_t bytes, pages;
	if (!view->page_table)
		return rows_extent(view, tensor, tokens, &bytes) && bytes <= view->bytes;
	if (!view->page_tokens || !view->n_pages ||
	    (tokens + view->page_tokens - 1) / view->page_tokens > view->n_table)
		return false;
	return rows_extent(view, tensor, view->page_tokens, &bytes) &&
	       !kvi_mul((uint64_t)view->n_pages - 1, view->page_stride, &pages) &&
	       !kvi_add(bytes, pages, &bytes) && bytes <= view->bytes;
}

static bool view_aligned(const kvarc_device_view *view, size_t size)
{
	return (view->base | view->page_stride | view->token_stride | view->head_stride |
	        view->elem_stride) %
	                       size ==
	               0 &&
	       view->page_table % sizeof(int32_t) == 0;
}

static kvarc_ret check_views(const struct kvarc_device_plan *plan, const kvarc_device_view *views)
{
	kvarc_error *e = plan->d->error;
	for (size_t i = 0; i < plan->geometry->n_tensors; i++) {
		const kvarc_device_view *v = &views[i];
		const kvarc_tensor *t = &plan->geometry->tensors[i];
		kvarc_ret ret = KVI_CHECK_RESERVED(e, "kvarc_device_place", "kvarc_device_view", v);
		if (ret)
			return ret;
		if (!plan->tokens || (plan->w ? t->track != plan->range.track : !v->base))
			continue;
		if (!v->base)
			return kvi_fail(e, KVARC_GEOMETRY, "there is no view of tensor %zu", i);
		if (!view_aligned(v, kvarc_dtype_bytes(t->dtype)))
			return kvi_fail(e, KVARC_GEOMETRY,
			                "the view of tensor %zu is not aligned to its elements", i);
		if (!view_holds(v, t, plan->tokens))
			return kvi_fail(e, KVARC_GEOMETRY,
			                "the view of tensor %zu does not hold the %llu tokens of "
			                "the range",
			                i, (unsigned long long)plan->tokens);
	}
	return KVARC_OK;
}

/* ----- jobs ------------------------------------------------ */

struct kvi_gpu_view kvi_plan_view(const kvarc_device_view *view, uint16_t head, uint32_t row)
{
	if (!view->base)
		return (struct kvi_gpu_view){ 0 };
	return (struct kvi_gpu_view){ .base = view->base + head * view->head_stride,
		                      .bytes = view->bytes - head * view->head_stride,
		                      .page_table = view->page_table,
		                      .page_stride = view->page_stride,
		                      .token_stride = view->token_stride,
		                      .head_stride = view->head_stride,
		                      .elem_stride = view->elem_stride,
		                      .n_table = view->n_table,
		                      .page_tokens = view->page_tokens,
		                      .n_pages = view->n_pages,
		                      .first_token = row };
}

static void move(uint64_t *address, uint64_t by)
{
	if (*address)
		*address += by;
}

static struct kvi_gpu_chunk job_of(const struct kvarc_device_plan *plan,
                                   const struct kvi_planned_chunk *chunk,
                                   const kvarc_device_view *views)
{
	struct kvi_gpu_chunk j = chunk->job;
	move(&j.payload, plan->staging);
	move(&j.params, plan->staging);
	move(&j.positions, plan->staging);
	move(&j.output, plan->staging);
	move(&j.sums, plan->staging);
	j.payload = chunk->given ? chunk->given : j.payload;
	/* the rows of tokens before the range are not written: their numbers may wrap */
	j.view = kvi_plan_view(&views[chunk->tensor], chunk->head,
	                       (uint32_t)(chunk->t0 - plan->range.t0));
	return j;
}

/* The jobs, locks that are free, and where a plan that writes has nothing yet. */
static void fill_jobs(const struct kvarc_device_plan *plan, const kvarc_device_view *views,
                      uint8_t *to)
{
	const struct kvi_gpu_output output = { 0, plan->output_bytes };
	for (size_t i = 0; i < plan->chunks.n; i++) {
		const struct kvi_gpu_chunk j =
			job_of(plan, KVI_LIST(struct kvi_planned_chunk, plan->chunks, i), views);
		memcpy(to + i * sizeof j, &j, sizeof j);
	}
	if (plan->w)
		memcpy(to + (plan->output_at - plan->jobs_at), &output, sizeof output);
}

static kvarc_ret place(struct kvarc_device_plan *plan, const kvarc_device_view *views, void *stream)
{
	const uint64_t end = plan->w ? plan->output_at + sizeof(struct kvi_gpu_output)
	                             : plan->info.staging_bytes;
	const size_t bytes = (size_t)(end - plan->jobs_at);
	uint8_t *jobs = kvi_calloc(&plan->d->alloc, 1, bytes);
	if (!jobs)
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	fill_jobs(plan, views, jobs);
	kvarc_ret ret = kvi_device_enter(plan->d);
	if (ret == KVARC_OK) {
		ret = kvi_device_copy(plan->d, plan->staging + plan->jobs_at, jobs, bytes, stream);
		kvi_device_leave(plan->d);
	}
	kvi_free(&plan->d->alloc, jobs);
	return ret;
}

/* A plan that writes needs the views again, for what the host encodes. */
static kvarc_ret keep_views(struct kvarc_device_plan *plan, const kvarc_device_view *views)
{
	const size_t n = plan->geometry->n_tensors;
	if (!plan->views)
		plan->views = kvi_array(&plan->d->alloc, n, sizeof *plan->views);
	if (!plan->views)
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	memcpy(plan->views, views, n * sizeof *plan->views);
	for (size_t i = 0; i < plan->chunks.n; i++)
		KVI_LIST(struct kvi_planned_chunk, plan->chunks, i)->launched = false;
	return KVARC_OK;
}

kvarc_ret kvarc_device_place(kvarc_device_plan *p, const kvarc_device_view *views, uint64_t work,
                             uint64_t status, void *stream)
{
	if (!p || !views || !work || !status || work % KVI_PLACE_ALIGN || status % KVI_PLACE_ALIGN)
		return kvi_fail(p ? p->d->error : NULL, KVARC_PROG,
		                "kvarc_device_place: work and status are not addresses that are "
		                "aligned to %d bytes, or views is NULL",
		                (int)KVI_PLACE_ALIGN);
	if (!p->staging)
		return kvi_fail(p->d->error, KVARC_PROG,
		                "kvarc_device_place: call kvarc_device_stage before it");
	kvarc_ret ret = check_views(p, views);
	if (ret)
		return ret;
	p->work = 0;
	if (p->w)
		ret = keep_views(p, views);
	if (!ret && p->chunks.n)
		ret = place(p, views, stream);
	if (ret == KVARC_OK) {
		p->work = work;
		p->status = status;
	}
	return ret;
}
