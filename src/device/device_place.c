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
static bool rows_extent(const kvarc_device_view *v, const kvarc_tensor *t, uint64_t n,
                        uint64_t *bytes)
{
	uint64_t rows, heads, channels;
	return !kvi_mul(n - 1, v->token_stride, &rows) &&
	       !kvi_mul((uint64_t)t->heads - 1, v->head_stride, &heads) &&
	       !kvi_mul((uint64_t)t->channels - 1, (uint64_t)v->elem_stride, &channels) &&
	       !kvi_add(rows, heads, bytes) && !kvi_add(*bytes, channels, bytes) &&
	       !kvi_add(*bytes, (uint64_t)kvarc_dtype_bytes(t->dtype), bytes);
}

/* Whether all elements that a view can name lie in its memory, and its entries in its table. */
static bool view_holds(const kvarc_device_view *v, const kvarc_tensor *t, uint64_t tokens)
{
	uint64_t bytes, pages;
	if (!v->page_table)
		return rows_extent(v, t, tokens, &bytes) && bytes <= v->bytes;
	if (!v->page_tokens || !v->n_pages ||
	    (tokens + v->page_tokens - 1) / v->page_tokens > v->n_table)
		return false;
	return rows_extent(v, t, v->page_tokens, &bytes) &&
	       !kvi_mul((uint64_t)v->n_pages - 1, v->page_stride, &pages) &&
	       !kvi_add(bytes, pages, &bytes) && bytes <= v->bytes;
}

static bool view_aligned(const kvarc_device_view *v, size_t size)
{
	return (v->base | v->page_stride | v->token_stride | v->head_stride | v->elem_stride) %
	                       size ==
	               0 &&
	       v->page_table % sizeof(int32_t) == 0;
}

static kvarc_ret check_views(const struct kvarc_device_plan *p, const kvarc_device_view *views)
{
	kvarc_error *e = p->d->error;
	for (size_t i = 0; i < p->geometry->n_tensors; i++) {
		const kvarc_device_view *v = &views[i];
		const kvarc_tensor *t = &p->geometry->tensors[i];
		kvarc_ret ret = KVI_CHECK_RESERVED(e, "kvarc_device_place", "kvarc_device_view", v);
		if (ret)
			return ret;
		if (!p->tokens || (p->w ? t->track != p->range.track : !v->base))
			continue;
		if (!v->base)
			return kvi_fail(e, KVARC_GEOMETRY, "there is no view of tensor %zu", i);
		if (!view_aligned(v, kvarc_dtype_bytes(t->dtype)))
			return kvi_fail(e, KVARC_GEOMETRY,
			                "the view of tensor %zu is not aligned to its elements", i);
		if (!view_holds(v, t, p->tokens))
			return kvi_fail(e, KVARC_GEOMETRY,
			                "the view of tensor %zu does not hold the %llu tokens of "
			                "the range",
			                i, (unsigned long long)p->tokens);
	}
	return KVARC_OK;
}

/* ----- jobs ------------------------------------------------ */

struct kvi_gpu_view kvi_plan_view(const kvarc_device_view *v, uint16_t head, uint32_t row)
{
	if (!v->base)
		return (struct kvi_gpu_view){ 0 };
	return (struct kvi_gpu_view){ .base = v->base + head * v->head_stride,
		                      .bytes = v->bytes - head * v->head_stride,
		                      .page_table = v->page_table,
		                      .page_stride = v->page_stride,
		                      .token_stride = v->token_stride,
		                      .head_stride = v->head_stride,
		                      .elem_stride = v->elem_stride,
		                      .n_table = v->n_table,
		                      .page_tokens = v->page_tokens,
		                      .n_pages = v->n_pages,
		                      .first_token = row };
}

static void move_work(struct kvi_gpu_chunk *j, uint64_t work)
{
	j->opened += work;
	j->packed += work;
	j->decoded += work;
	j->contexts += work;
	j->columns += work;
}

static void move_staged(struct kvi_gpu_chunk *j, uint64_t staging)
{
	j->payload += staging;
	if (j->params)
		j->params += staging;
	if (j->positions)
		j->positions += staging;
}

static struct kvi_gpu_chunk job_of(const struct kvarc_device_plan *p,
                                   const struct kvi_planned_chunk *c,
                                   const kvarc_device_view *views, uint64_t work)
{
	struct kvi_gpu_chunk j = c->job;
	move_staged(&j, p->staging);
	move_work(&j, work);
	/* the rows of tokens before the range are not written: their numbers may wrap */
	j.view = kvi_plan_view(&views[c->tensor], c->head, (uint32_t)(c->t0 - p->range.t0));
	return j;
}

static struct kvi_gpu_encode output_of(const struct kvarc_device_plan *p,
                                       const struct kvi_output_chunk *c,
                                       const kvarc_device_view *views, uint64_t work)
{
	struct kvi_gpu_encode j = c->job;
	move_staged(&j.job, p->staging);
	move_work(&j.job, work);
	j.words += work;
	j.planes += work;
	j.channel_bits += work;
	j.job.view = kvi_plan_view(&views[c->tensor], c->head, c->row);
	return j;
}

static void fill_jobs(const struct kvarc_device_plan *p, const kvarc_device_view *views,
                      uint64_t work, struct kvi_gpu_chunk *to)
{
	for (size_t i = 0; i < p->chunks.n; i++) {
		const struct kvi_planned_chunk *c = KVI_LIST(struct kvi_planned_chunk, p->chunks,
		                                             i);
		to[i] = job_of(p, c, views, work);
	}
}

static void fill_outputs(const struct kvarc_device_plan *p, const kvarc_device_view *views,
                         uint64_t work, struct kvi_gpu_encode *to)
{
	for (size_t i = 0; i < p->outputs.n; i++) {
		const struct kvi_output_chunk *c = KVI_LIST(struct kvi_output_chunk, p->outputs, i);
		to[i] = output_of(p, c, views, work);
	}
}

static kvarc_ret place(struct kvarc_device_plan *p, const kvarc_device_view *views, uint64_t work,
                       void *stream)
{
	const size_t bytes = (size_t)(p->info.staging_bytes - p->jobs_at);
	void *jobs = kvi_calloc(&p->d->alloc, 1, bytes);
	if (!jobs)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	if (p->w)
		fill_outputs(p, views, work, jobs);
	else
		fill_jobs(p, views, work, jobs);
	kvarc_ret ret = kvi_device_enter(p->d);
	if (ret == KVARC_OK) {
		ret = kvi_device_copy(p->d, p->staging + p->jobs_at, jobs, bytes, stream);
		kvi_device_leave(p->d);
	}
	kvi_free(&p->d->alloc, jobs);
	return ret;
}

/* A plan that writes needs the views again, for what the host encodes. */
static kvarc_ret keep_views(struct kvarc_device_plan *p, const kvarc_device_view *views)
{
	const size_t n = p->geometry->n_tensors;
	if (!p->views)
		p->views = kvi_array(&p->d->alloc, n, sizeof *p->views);
	if (!p->views)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	memcpy(p->views, views, n * sizeof *p->views);
	for (size_t i = 0; i < p->outputs.n; i++)
		KVI_LIST(struct kvi_output_chunk, p->outputs, i)->launched = false;
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
	if (!ret && (p->chunks.n || p->outputs.n))
		ret = place(p, views, work, stream);
	if (ret == KVARC_OK) {
		p->work = work;
		p->status = status;
	}
	return ret;
}
