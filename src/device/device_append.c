/* SPDX-License-Identifier: BSD-3-Clause */
/* device_append.c - brings payloads from a device to a writer, and what the host has to encode */
#include "config.h"

#include "plan_state.h"

#include <stdlib.h>

#include "format/chunk_header.h"
#include "util/error.h"
#include "writer/writer_coded.h"

/* An append on its way. */
struct device_append {
	struct kvarc_device_plan *p;
	void *stream;
	struct kvi_gpu_encoded *answers; /* answers for all chunks */
	uint8_t *payloads;               /* all of them */
};

/* ----- what kernels answered ------------------------------------------------ */

/* Checks the page tables of the plan's rows: kernels read only pages that exist. */
static kvarc_ret check_pages(struct kvarc_device_plan *plan, size_t tensor, int32_t *table,
                             void *stream)
{
	const kvarc_device_view *v = &plan->views[tensor];
	const size_t n = (size_t)((plan->tokens + v->page_tokens - 1) / v->page_tokens);
	kvarc_ret ret = kvarc_device_fetch(plan->d, table, v->page_table, n * sizeof *table,
	                                   stream);
	for (size_t i = 0; i < n && !ret; i++)
		if (table[i] < 0 || (uint32_t)table[i] >= v->n_pages)
			ret = kvi_fail(plan->d->error, KVARC_GEOMETRY,
			               "the tokens from %llu on of tensor %zu have a page that is "
			               "not there",
			               (unsigned long long)(plan->range.t0 + i * v->page_tokens),
			               tensor);
	return ret;
}

static bool same_table(const kvarc_device_view *view, const kvarc_device_view *device_view)
{
	return view->page_table == device_view->page_table &&
	       view->page_tokens == device_view->page_tokens &&
	       view->n_pages == device_view->n_pages;
}

static kvarc_ret check_tables(struct kvarc_device_plan *plan, void *stream)
{
	const kvarc_device_view *last = NULL;
	kvarc_ret ret = KVARC_OK;
	/* a page has a token or more */
	int32_t *table = kvi_array(&plan->d->alloc, (size_t)plan->tokens, sizeof *table);
	if (!table)
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	for (size_t i = 0; i < plan->geometry->n_tensors && !ret; i++) {
		const kvarc_device_view *v = &plan->views[i];
		if (plan->geometry->tensors[i].track != plan->range.track || !v->page_table ||
		    (last && same_table(v, last)))
			continue;
		ret = check_pages(plan, i, table, stream);
		last = v;
	}
	kvi_free(&plan->d->alloc, table);
	return ret;
}

/* Whether an answer is one of kernels. */
static bool is_answer(const struct kvarc_device_plan *plan, const struct kvi_gpu_encoded *answer)
{
	if (answer->status != KVI_GPU_OK)
		return answer->status == KVI_GPU_HOST || answer->status == KVI_GPU_PAGE;
	return answer->payload_bytes > KVI_CHUNK_HEADER_BYTES &&
	       answer->offset <= plan->output_bytes &&
	       answer->payload_bytes <= plan->output_bytes - answer->offset;
}

/* Gets the answers; *bytes: of all payloads. */
static kvarc_ret get_answers(struct device_append *append, uint64_t *bytes)
{
	struct kvarc_device_plan *p = append->p;
	const size_t n = p->chunks.n;
	*bytes = 0;
	append->answers = kvi_array(&p->d->alloc, n ? n : 1, sizeof *append->answers);
	if (!append->answers)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	kvarc_ret ret = n ? kvarc_device_fetch(p->d, append->answers, p->status,
	                                       n * sizeof *append->answers, append->stream)
	                  : KVARC_OK;
	for (size_t i = 0; i < n && !ret; i++) {
		const struct kvi_gpu_encoded *x = &append->answers[i];
		if (!is_answer(p, x))
			ret = kvi_fail(
				p->d->error, KVARC_IO,
				"the kernels that encode layer %u have not run, or failed",
				(unsigned)KVI_LIST(struct kvi_planned_chunk, p->chunks, i)->layer);
		else if (x->status == KVI_GPU_OK && *bytes < x->offset + x->payload_bytes)
			*bytes = x->offset + x->payload_bytes;
	}
	return ret;
}

/* Gets the answers, and all payloads in one copy. */
static kvarc_ret get_payloads(struct device_append *append)
{
	struct kvarc_device_plan *p = append->p;
	uint64_t bytes;
	kvarc_ret ret = get_answers(append, &bytes);
	if (ret || !bytes)
		return ret;
	append->payloads = kvi_malloc(&p->d->alloc, (size_t)bytes);
	if (!append->payloads)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	return kvarc_device_fetch(p->d, append->payloads,
	                          p->staging + p->output_at + sizeof(struct kvi_gpu_output), bytes,
	                          append->stream);
}

/* ----- what the writer asks for ------------------------------------------------ */

static bool find(void *opaque, uint32_t tensor, uint32_t head, uint32_t row,
                 struct kvi_coded_chunk *chunk)
{
	const struct device_append *a = opaque;
	const struct kvarc_device_plan *p = a->p;
	const struct kvi_planned_chunk wanted = { .tensor = tensor,
		                                  .layer = p->geometry->tensors[tensor].layer,
		                                  .t0 = p->range.t0 + row,
		                                  .head = (uint16_t)head };
	size_t low = 0, high = p->chunks.n;
	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		if (kvi_plan_compare(KVI_LIST(struct kvi_planned_chunk, p->chunks, mid), &wanted) <
		    0)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == p->chunks.n)
		return false;
	const struct kvi_planned_chunk *c = KVI_LIST(struct kvi_planned_chunk, p->chunks, low);
	const struct kvi_gpu_encoded *x = &a->answers[low];
	if (kvi_plan_compare(c, &wanted) || x->status != KVI_GPU_OK)
		return false;
	*chunk = (struct kvi_coded_chunk){ .codec = (uint8_t)c->job.codec,
		                           .payload = a->payloads + x->offset,
		                           .payload_bytes = x->payload_bytes,
		                           .elements = x->elements,
		                           .params_sequence = c->params_sequence,
		                           .hash = { x->hash[0], x->hash[1] } };
	return true;
}

/* A format of elements of the same size, which kernels know (element_bytes). */
static uint32_t kernel_dtype(unsigned dtype)
{
	const size_t size = kvarc_dtype_bytes(dtype);
	return size == 4 ? KVARC_F32 : size == 2 ? KVARC_BF16 : KVARC_E4M3;
}

/* Elements that the host encodes: the kernel that collects them, and a copy. */
static int fetch(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                 uint32_t n, void *dst)
{
	struct device_append *a = opaque;
	struct kvarc_device_plan *p = a->p;
	const kvarc_tensor *t = &p->geometry->tensors[tensor];
	const uint64_t bytes = (uint64_t)n * heads * t->channels * kvarc_dtype_bytes(t->dtype);
	struct kvi_gpu_chunk job = { .dtype = kernel_dtype(t->dtype),
		                     .tokens = n,
		                     .heads = heads,
		                     .head_channels = t->channels,
		                     .decoded = p->work,
		                     .view = kvi_plan_view(&p->views[tensor], (uint16_t)head,
		                                           (uint32_t)(t0 - p->range.t0)) };
	const struct kvi_launch k = {
		"kvi_gpu_collect", kvi_blocks_of(n), 1, KVI_SMALL_BLOCK, 0, 1
	};
	void *arguments[] = { &job };
	if (kvi_device_enter(p->d))
		return 1;
	kvarc_ret ret = kvi_device_launch(p->d, p->d->encoders, &k, arguments, a->stream);
	kvi_device_leave(p->d);
	return ret ? ret : kvarc_device_fetch(p->d, dst, p->work, bytes, a->stream);
}

static kvarc_ret append(struct device_append *device_append)
{
	struct kvarc_device_plan *p = device_append->p;
	const struct kvi_append_coder coder = { fetch, find, device_append };
	struct kvi_accepted accepted;
	p->appended = true;
	kvarc_ret ret = kvi_writer_append_coded(p->w, p->range.track, p->tokens, p->ids,
	                                        p->positions, &coder, &accepted);
	p->info.host_chunks = p->info.chunks - (uint32_t)accepted.chunks;
	p->info.file_bytes = accepted.bytes;
	return ret;
}

static kvarc_ret check_use(const struct kvarc_device_plan *plan)
{
	static const char call[] = "kvarc_device_append";
	kvarc_ret ret = kvi_plan_check_use(plan, call, true);
	if (ret)
		return ret;
	if (plan->appended)
		return kvi_fail(plan->d->error, KVARC_PROG, "%s: the tokens were appended already",
		                call);
	if (kvarc_writer_tokens(plan->w, plan->range.track) != plan->range.t0)
		return kvi_fail(plan->d->error, KVARC_PROG,
		                "%s: the track has other tokens than when the plan was made", call);
	if (!plan->work)
		return kvi_fail(plan->d->error, KVARC_PROG,
		                "%s: call kvarc_device_stage and kvarc_device_place before it",
		                call);
	for (size_t i = 0; i < plan->chunks.n; i++)
		if (!KVI_LIST(struct kvi_planned_chunk, plan->chunks, i)->launched)
			return kvi_fail(plan->d->error, KVARC_PROG,
			                "%s: call kvarc_device_encode for all layers before it",
			                call);
	return KVARC_OK;
}

kvarc_ret kvarc_device_append(kvarc_device_plan *p, void *stream)
{
	struct device_append a = { .p = p, .stream = stream };
	kvarc_ret ret = check_use(p);
	if (ret)
		return ret;
	ret = check_tables(p, stream);
	if (!ret)
		ret = get_payloads(&a);
	if (!ret)
		ret = append(&a);
	kvi_free(&p->d->alloc, a.payloads);
	kvi_free(&p->d->alloc, a.answers);
	return ret;
}
