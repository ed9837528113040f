/* SPDX-License-Identifier: BSD-3-Clause */
/* device_plan.c - which chunks a range has, and where they will lie in the memory of a device */
#include "config.h"

#include "plan_state.h"

#include <stdlib.h>
#include <string.h>

#include "util/arguments.h"
#include "util/error.h"

/* ----- constants ------------------------------------------------ */

uint8_t *kvi_plan_reserve(struct kvarc_device_plan *plan, size_t n, uint64_t *at)
{
	struct kvi_out *o = &plan->constants;
	static const uint8_t zeros[KVI_PART_ALIGN];
	*at = o->n;
	for (size_t left = (size_t)kvi_part_aligned(n); left && !o->failed; left -= KVI_PART_ALIGN)
		kvi_put_bytes(o, zeros, KVI_PART_ALIGN);
	return o->failed ? NULL : o->p + *at;
}

/* Offset 0 means none: the first 16 bytes serve nothing. */
kvarc_ret kvi_plan_begin_constants(struct kvarc_device_plan *plan)
{
	uint64_t none, at;
	kvi_out_init(&plan->constants, &plan->d->alloc);
	if (!kvi_plan_reserve(plan, 1, &none) ||
	    !kvi_plan_reserve(plan, sizeof plan->tables, &plan->tables_at))
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	uint8_t *to = kvi_plan_reserve(plan, kvi_gpu_tables_bytes(), &at);
	if (!to)
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	kvi_gpu_tables_fill(&plan->tables, to, at);
	return KVARC_OK;
}

kvarc_ret kvi_plan_add_params(struct kvarc_device_plan *plan, struct kvi_planned_params *of,
                              const struct kvi_params *params, const struct kvi_chunk *shape)
{
	const struct kvi_alloc *alloc = &plan->d->alloc;
	for (size_t i = plan->params.n; i--;) {
		const struct kvi_planned_params *x = KVI_LIST(struct kvi_planned_params,
		                                              plan->params, i);
		if (x->sequence == of->sequence && x->tensor == of->tensor && x->head == of->head) {
			*of = *x;
			return KVARC_OK;
		}
		if (plan->params.n - i > plan->geometry->n_tensors)
			break;
	}
	struct kvi_gpu_params made;
	uint64_t arrays;
	const size_t n = kvi_gpu_params_bytes(params, shape->rope);
	uint8_t *to = kvi_plan_reserve(plan, n, &arrays);
	if (to)
		kvi_gpu_params_fill(&made, params, shape->rope, to, arrays);
	to = to ? kvi_plan_reserve(plan, sizeof made, &of->at) : NULL;
	struct kvi_planned_params *x = to ? kvi_list_add(&plan->params, alloc, sizeof *x) : NULL;
	if (!x)
		return kvi_fail_alloc(plan->d->error, alloc);
	memcpy(to, &made, sizeof made);
	*x = *of;
	return KVARC_OK;
}

/* ----- chunks ------------------------------------------------ */

struct kvi_chunk_header kvi_planned_header(const struct kvi_planned_chunk *chunk, uint32_t heads,
                                           uint32_t n)
{
	return (struct kvi_chunk_header){ .tensor = chunk->tensor,
		                          .head = chunk->head,
		                          .heads = (uint16_t)heads,
		                          .codec = KVI_CODEC_RAW,
		                          .cut = { .stream_size = KVI_ONE_STREAM },
		                          .n = (uint16_t)n,
		                          .t0 = (uint32_t)chunk->t0 };
}

/* A chunk that the host decodes is staged as one of codec 0. */
static void as_raw(struct kvi_planned_chunk *planned_chunk, const struct kvi_located *chunk)
{
	const struct kvi_chunk_header h = kvi_planned_header(planned_chunk, chunk->shape.heads,
	                                                     chunk->shape.n_tokens);
	const size_t bytes = KVI_CHUNK_HEADER_BYTES + kvi_chunk_bytes(&chunk->shape);
	planned_chunk->host = true;
	planned_chunk->predicted = chunk->predicted;
	kvi_gpu_chunk_fill(&planned_chunk->job, &chunk->shape, &h, (uint32_t)bytes);
}

bool kvi_plan_has_kernel(unsigned codec, uint32_t dtype)
{
	return codec == KVI_CODEC_RAW || codec == KVI_CODEC_CONSTANT || dtype == KVARC_F16 ||
	       dtype == KVARC_BF16 || (dtype == KVARC_E4M3 && codec != KVI_CODEC_CELLS);
}

static kvarc_ret fill_chunk(struct kvarc_device_plan *plan, const struct kvi_located *chunk,
                            struct kvi_planned_chunk *planned_chunk)
{
	uint64_t at;
	if (!chunk->decodable || kvi_chunk_channels(&chunk->shape) > KVI_GPU_CHANNELS ||
	    !kvi_plan_has_kernel(chunk->header.codec, chunk->shape.dtype)) {
		as_raw(planned_chunk, chunk);
		return KVARC_OK;
	}
	kvi_gpu_chunk_fill(&planned_chunk->job, &chunk->shape, &chunk->header, chunk->bytes);
	planned_chunk->file_offset = chunk->offset;
	planned_chunk->file_bytes = chunk->bytes;
	plan->info.file_bytes += chunk->bytes;
	if (!chunk->params)
		return KVARC_OK;
	struct kvi_planned_params of = { chunk->header.params, chunk->tensor, chunk->head, 0 };
	kvarc_ret ret = kvi_plan_add_params(plan, &of, chunk->params, &chunk->shape);
	planned_chunk->job.params = of.at;
	if (ret || !chunk->shape.rope)
		return ret;
	uint8_t *to = kvi_plan_reserve(plan, chunk->shape.n_tokens * sizeof(int32_t), &at);
	if (!to)
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	memcpy(to, chunk->shape.positions, chunk->shape.n_tokens * sizeof(int32_t));
	planned_chunk->job.positions = at;
	return KVARC_OK;
}

static kvarc_ret take(void *opaque, const struct kvi_located *chunk)
{
	struct kvarc_device_plan *p = opaque;
	struct kvi_planned_chunk *c = kvi_list_add(&p->chunks, &p->d->alloc, sizeof *c);
	if (!c)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	c->tensor = chunk->tensor;
	c->layer = chunk->layer;
	c->head = chunk->head;
	c->t0 = chunk->t0;
	c->from = chunk->from;
	c->to = chunk->to;
	kvarc_ret ret = fill_chunk(p, chunk, c);
	c->job.from = c->from;
	c->job.to = c->to;
	if (p->tokens < c->t0 + c->to - p->range.t0)
		p->tokens = c->t0 + c->to - p->range.t0;
	p->info.raw_bytes += kvi_chunk_bytes(&chunk->shape);
	p->info.host_chunks += c->host;
	return ret;
}

static int compare(const void *a, const void *b)
{
	return kvi_plan_compare(a, b);
}

/* Assigns offsets in staging memory to payloads that are not given, and to the jobs. */
static void lay_out_staging(struct kvarc_device_plan *plan)
{
	struct kvi_planned_chunk *c = plan->chunks.p;
	uint64_t at = plan->constants.n;
	for (size_t i = 0; i < plan->chunks.n; i++) {
		c[i].job.payload = at;
		at += c[i].given ? 0 : kvi_part_aligned(c[i].job.payload_bytes);
	}
	plan->jobs_at = at;
	plan->locks_at = at + plan->chunks.n * sizeof(struct kvi_gpu_chunk);
	plan->info.staging_bytes = plan->locks_at + plan->slots * sizeof(uint32_t);
}

/* Slots of work memory: one a multiprocessor where each chunk takes one, few where that is rare. */
static uint32_t slots_of(const struct kvarc_device_plan *plan)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	const size_t most = plan->d->info.multiprocessors, few = most / 8;
	size_t n[3] = { 0 };
	for (size_t i = 0; i < plan->chunks.n; i++)
		n[kvi_gpu_work_need(&c[i].job)]++;
	const size_t rare = n[KVI_GPU_RARELY] < few ? n[KVI_GPU_RARELY] : few;
	const size_t slots = n[KVI_GPU_ALWAYS] + rare;
	return (uint32_t)(slots > most ? most : slots ? slots : 1);
}

void kvi_plan_arrange(struct kvarc_device_plan *plan)
{
	struct kvi_planned_chunk *c = plan->chunks.p;
	if (!plan->chunks.n)
		return;
	qsort(c, plan->chunks.n, sizeof *c, compare);
	for (size_t i = 0; i < plan->chunks.n; i++) {
		const uint32_t shared = kvi_gpu_shared_bytes(&c[i].job, plan->w);
		const uint64_t most = kvi_gpu_chunk_place(&c[i].job, plan->w);
		/* without any there is a small slot, so that there is an address */
		const uint64_t bytes = kvi_gpu_work_need(&c[i].job) ? most : KVI_PLACE_ALIGN;
		plan->slot_bytes = plan->slot_bytes < bytes ? bytes : plan->slot_bytes;
		plan->shared_bytes = plan->shared_bytes < shared ? shared : plan->shared_bytes;
	}
	plan->slots = slots_of(plan);
}

static void lay_out(struct kvarc_device_plan *plan)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	lay_out_staging(plan);
	plan->info.work_bytes = plan->slots * plan->slot_bytes;
	plan->info.status_bytes = plan->chunks.n * sizeof(uint32_t);
	plan->info.chunks = (uint32_t)plan->chunks.n;
	if (plan->chunks.n) {
		plan->info.layer0 = c[0].layer;
		plan->info.n_layers = c[plan->chunks.n - 1].layer - c[0].layer + 1;
	}
}

kvarc_ret kvi_plan_has_layers(const struct kvarc_device_plan *plan, const char *call,
                              uint32_t layer0, uint32_t n, uint64_t *stop)
{
	const uint64_t last = (uint64_t)plan->info.layer0 + plan->info.n_layers;
	*stop = n == UINT32_MAX ? last : (uint64_t)layer0 + n;
	if (layer0 < plan->info.layer0 || layer0 > last || *stop > last)
		return kvi_fail(plan->d->error, KVARC_GEOMETRY,
		                "%s: the plan has the layers %u to %u", call, plan->info.layer0,
		                (unsigned)last - 1);
	return KVARC_OK;
}

kvarc_ret kvi_plan_layers(const struct kvarc_device_plan *plan, const char *call, uint32_t layer0,
                          uint32_t n, size_t *first, size_t *end)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	uint64_t stop;
	kvarc_ret ret = kvi_plan_has_layers(plan, call, layer0, n, &stop);
	if (ret)
		return ret;
	for (*first = 0; *first < plan->chunks.n && c[*first].layer < layer0;)
		++*first;
	for (*end = *first; *end < plan->chunks.n && c[*end].layer < stop;)
		++*end;
	return KVARC_OK;
}

/* ----- open and close ------------------------------------------------ */

static kvarc_ret fill(struct kvarc_device_plan *plan)
{
	kvarc_ret ret = kvi_plan_begin_constants(plan);
	if (ret == KVARC_OK)
		ret = kvi_reader_locate(plan->r, &plan->range, take, plan);
	if (ret == KVARC_OK && plan->chunks.n > UINT32_MAX / sizeof(struct kvi_gpu_chunk))
		ret = kvi_fail(plan->d->error, KVARC_GEOMETRY,
		               "the range has too many chunks for one plan");
	if (ret)
		return ret;
	kvi_plan_arrange(plan);
	lay_out(plan);
	return KVARC_OK;
}

kvarc_ret kvarc_device_plan_read(kvarc_device_plan **out, kvarc_device *device, kvarc_reader *r,
                                 const kvarc_range *range)
{
	if (!out || !device || !r || !range)
		return kvi_fail(device ? device->error : NULL, KVARC_PROG,
		                "kvarc_device_plan_read: an argument is NULL");
	*out = NULL;
	struct kvarc_device_plan *p = kvi_calloc(&device->alloc, 1, sizeof *p);
	if (!p)
		return kvi_fail_alloc(device->error, &device->alloc);
	p->d = device;
	p->r = r;
	p->range = *range;
	p->geometry = kvarc_reader_geometry(r);
	kvarc_ret ret = fill(p);
	*out = p;
	if (ret)
		kvarc_device_plan_close(out);
	return ret;
}

void kvarc_device_plan_close(kvarc_device_plan **p)
{
	if (!p || !*p)
		return;
	const struct kvi_alloc *alloc = &(*p)->d->alloc;
	kvi_free(alloc, (*p)->chunks.p);
	kvi_free(alloc, (*p)->params.p);
	kvi_out_free(&(*p)->constants);
	kvi_free(alloc, (*p)->positions);
	kvi_free(alloc, (*p)->ids);
	kvi_free(alloc, (*p)->views);
	kvi_free(alloc, *p);
	*p = NULL;
}

kvarc_ret kvi_plan_check_use(const struct kvarc_device_plan *plan, const char *call, bool writes)
{
	if (!plan)
		return KVARC_PROG;
	if ((plan->w != NULL) != writes)
		return kvi_fail(plan->d->error, KVARC_PROG, "%s: the plan %s", call,
		                writes ? "reads" : "writes");
	return KVARC_OK;
}

kvarc_ret kvarc_device_plan_get_info(const kvarc_device_plan *p, kvarc_device_plan_info *info)
{
	if (!p || !info)
		return kvi_fail(p ? p->d->error : NULL, KVARC_PROG,
		                "kvarc_device_plan_get_info: an argument is NULL");
	*info = p->info;
	return KVARC_OK;
}

/* ----- payloads that the caller has ------------------------------------------------ */

kvarc_ret kvarc_device_plan_payloads(const kvarc_device_plan *p, kvarc_device_payload *payloads,
                                     size_t n)
{
	static const char call[] = "kvarc_device_plan_payloads";
	kvarc_ret ret = kvi_plan_check_use(p, call, false);
	if (ret)
		return ret;
	if (n != p->chunks.n || (n && !payloads))
		return kvi_fail(p->d->error, KVARC_PROG, "%s: payloads are not those of %zu chunks",
		                call, p->chunks.n);
	for (size_t i = 0; i < n; i++) {
		const struct kvi_planned_chunk *c = KVI_LIST(struct kvi_planned_chunk, p->chunks,
		                                             i);
		payloads[i] = (kvarc_device_payload){ c->file_offset, c->file_bytes, c->layer };
	}
	return KVARC_OK;
}

/* Whether kernels can read a chunk where it is among `bytes` bytes from an offset on: as in staging
 * memory, a part that is aligned belongs to it alone. */
static bool is_in(const struct kvi_planned_chunk *chunk, uint64_t offset, uint64_t bytes)
{
	return !chunk->host && !chunk->given && chunk->file_offset >= offset &&
	       chunk->file_offset % KVI_PART_ALIGN == 0 && chunk->file_offset - offset <= bytes &&
	       kvi_part_aligned(chunk->file_bytes) <= bytes - (chunk->file_offset - offset);
}

kvarc_ret kvarc_device_plan_use(kvarc_device_plan *p, uint64_t offset, uint64_t bytes,
                                uint64_t address)
{
	static const char call[] = "kvarc_device_plan_use";
	kvarc_ret ret = kvi_plan_check_use(p, call, false);
	if (ret)
		return ret;
	if (!address || (address - offset) % KVI_PART_ALIGN)
		return kvi_fail(p->d->error, KVARC_PROG,
		                "%s: offset and address are not at the same place of %d bytes",
		                call, (int)KVI_PART_ALIGN);
	struct kvi_planned_chunk *c = p->chunks.p;
	for (size_t i = 0; i < p->chunks.n; i++)
		if (is_in(&c[i], offset, bytes)) {
			c[i].given = address + (c[i].file_offset - offset);
			p->info.file_bytes -= c[i].file_bytes;
		}
	p->staging = p->work = 0;
	lay_out_staging(p);
	return KVARC_OK;
}
