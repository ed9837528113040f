/* SPDX-License-Identifier: BSD-3-Clause */
/* device_stage.c - brings payloads, and what the host has to decode, into staging memory */
#include "config.h"

#include "plan_state.h"

#include <pthread.h>
#include <string.h>

#include "format/chunk_header.h"
#include "util/error.h"
#include "util/hash.h"

/* ----- constants ------------------------------------------------ */

static void move(uint64_t *address, uint64_t by)
{
	if (*address)
		*address += by;
}

/* Turns offsets in the constants into addresses. */
static void relocate(const struct kvarc_device_plan *plan, uint8_t *image, uint64_t staging)
{
	struct kvi_gpu_tables tables = plan->tables;
	move(&tables.grid, staging);
	move(&tables.first, staging);
	move(&tables.cosine, staging);
	move(&tables.scale, staging);
	move(&tables.cells, staging);
	move(&tables.entries, staging);
	memcpy(image + plan->tables_at, &tables, sizeof tables);
	for (size_t i = 0; i < plan->params.n; i++) {
		uint8_t *at = image + KVI_LIST(struct kvi_planned_params, plan->params, i)->at;
		struct kvi_gpu_params x;
		memcpy(&x, at, sizeof x);
		move(&x.k, staging);
		move(&x.mean, staging);
		move(&x.rope, staging);
		memcpy(at, &x, sizeof x);
	}
}

static kvarc_ret stage_constants(struct kvarc_device_plan *plan, uint64_t staging)
{
	uint8_t *image = kvi_malloc(&plan->d->alloc, plan->constants.n);
	if (!image)
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	memcpy(image, plan->constants.p, plan->constants.n);
	relocate(plan, image, staging);
	kvarc_ret ret = kvi_device_copy(plan->d, staging, image, plan->constants.n,
	                                plan->d->stream);
	kvi_free(&plan->d->alloc, image);
	return ret;
}

/* ----- what the host decodes ------------------------------------------------ */

/* Makes a raw chunk of the rows of a chunk, which has no others; tokens that the range does not
 * have are zero. */
static void make_raw(const struct kvi_planned_chunk *chunk, const void *rows, uint8_t *to)
{
	const struct kvi_gpu_chunk *j = &chunk->job;
	const size_t row = (size_t)j->heads * j->head_channels * kvarc_dtype_bytes(j->dtype);
	struct kvi_chunk_header h = kvi_planned_header(chunk, j->heads, j->tokens);
	uint8_t *elements = to + KVI_CHUNK_HEADER_BYTES;
	memset(to, 0, j->payload_bytes);
	memcpy(elements + chunk->from * row, rows, (chunk->to - chunk->from) * row);
	h.raw_check = kvi_h64(elements, j->payload_bytes - KVI_CHUNK_HEADER_BYTES);
	kvi_chunk_header_write(to, &h);
}

/* Whether a block that the reader delivers is a chunk of the plan. */
static bool is_block(const struct kvi_planned_chunk *chunk, uint32_t tensor, uint32_t head,
                     uint32_t heads, uint64_t t0, uint32_t n)
{
	return tensor == chunk->tensor && head == chunk->head && heads == chunk->job.heads &&
	       t0 == chunk->t0 + chunk->from && n == chunk->to - chunk->from;
}

/* Destination of the elements of one chunk. */
struct decoding {
	const struct kvi_planned_chunk *c;
	uint8_t *to;
	bool found;
};

static int keep(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, const void *src)
{
	struct decoding *x = opaque;
	if (!is_block(x->c, tensor, head, heads, t0, n))
		return 0;
	make_raw(x->c, src, x->to);
	x->found = true;
	return 0;
}

static kvarc_ret fail_place(const struct kvarc_device_plan *plan)
{
	return kvi_fail(plan->d->error, KVARC_DATA, "a chunk is not where the plan has it");
}

static kvarc_ret decode_on_host(struct kvarc_device_plan *plan,
                                const struct kvi_planned_chunk *chunk, uint8_t *to)
{
	struct decoding x = { chunk, to, false };
	const kvarc_range range = { .track = plan->range.track,
		                    .layer0 = chunk->layer,
		                    .n_layers = 1,
		                    .t0 = chunk->t0 + chunk->from,
		                    .n = chunk->to - chunk->from };
	kvarc_ret ret = kvarc_reader_read_deliver(plan->r, &range, keep, &x);
	return ret || x.found ? ret : fail_place(plan);
}

/* State of a pass over all chunks of the host that are predicted from others: they are decoded and
 * copied together, as decoding one alone would decode the others again. */
struct predicted_pass {
	struct kvarc_device_plan *p;
	uint64_t staging;
	pthread_mutex_t lock;
	size_t left;   /* chunks that were not delivered yet */
	kvarc_ret ret; /* result of the copies to the device */
};

/* The chunk of a block; NULL: it is not one of them. */
static const struct kvi_planned_chunk *find_block(const struct kvarc_device_plan *plan,
                                                  uint32_t tensor, uint32_t head, uint32_t heads,
                                                  uint64_t t0, uint32_t n)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	const uint32_t layer = plan->geometry->tensors[tensor].layer;
	size_t low = 0, high = plan->chunks.n;
	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		if (c[mid].layer < layer || (c[mid].layer == layer && c[mid].t0 + c[mid].from < t0))
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < plan->chunks.n && c[low].layer == layer && c[low].t0 + c[low].from == t0;
	     low++)
		if (c[low].predicted && is_block(&c[low], tensor, head, heads, t0, n))
			return &c[low];
	return NULL;
}

static kvarc_ret send_raw(struct predicted_pass *pass, const struct kvi_planned_chunk *chunk,
                          const void *rows)
{
	struct kvarc_device *d = pass->p->d;
	uint8_t *to = kvi_malloc(&d->alloc, chunk->job.payload_bytes);
	if (!to)
		return kvi_fail_alloc(d->error, &d->alloc);
	make_raw(chunk, rows, to);
	kvarc_ret ret = kvi_device_enter(d);
	if (ret == KVARC_OK) {
		ret = kvi_device_copy(d, pass->staging + chunk->job.payload, to,
		                      chunk->job.payload_bytes, d->stream);
		kvi_device_leave(d);
	}
	kvi_free(&d->alloc, to);
	return ret;
}

static int send_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                      uint32_t n, const void *src)
{
	struct predicted_pass *x = opaque;
	const struct kvi_planned_chunk *c = find_block(x->p, tensor, head, heads, t0, n);
	if (!c)
		return 0;
	pthread_mutex_lock(&x->lock);
	x->left--;
	if (!x->ret)
		x->ret = send_raw(x, c, src);
	const bool failed = x->ret;
	pthread_mutex_unlock(&x->lock);
	return failed;
}

static kvarc_ret stage_predicted(struct kvarc_device_plan *plan, uint64_t staging)
{
	struct predicted_pass x = { .p = plan, .staging = staging };
	const struct kvi_planned_chunk *c = plan->chunks.p;
	kvarc_range range = plan->range;
	for (size_t i = 0; i < plan->chunks.n; i++) {
		if (!c[i].predicted)
			continue;
		range.layer0 = x.left++ ? range.layer0 : c[i].layer;
		range.n_layers = c[i].layer - range.layer0 + 1;
	}
	if (!x.left)
		return KVARC_OK;
	if (pthread_mutex_init(&x.lock, NULL))
		return kvi_fail(plan->d->error, KVARC_MEM, "no lock for the chunks of the host");
	kvarc_ret ret = kvarc_reader_read_deliver(plan->r, &range, send_block, &x);
	pthread_mutex_destroy(&x.lock);
	if (x.ret)
		return x.ret;
	return ret || !x.left ? ret : fail_place(plan);
}

/* ----- payloads ------------------------------------------------ */

static kvarc_ret fetch(struct kvarc_device_plan *plan, const struct kvi_planned_chunk *chunk,
                       uint8_t *to)
{
	return chunk->host ? decode_on_host(plan, chunk, to)
	                   : kvi_reader_bytes(plan->r, to, chunk->file_bytes, chunk->file_offset);
}

/* The bytes of a chunk in staging memory: to where the next one begins. 0: it is given. */
static uint64_t slot_bytes(const struct kvarc_device_plan *plan, size_t i)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	return (i + 1 < plan->chunks.n ? c[i + 1].job.payload : plan->jobs_at) - c[i].job.payload;
}

/* The chunks from number i on, before `end`, that fit into a buffer, one at least; *bytes: what
 * they have. They are together in staging memory, and copied together. */
static size_t batch_end(const struct kvarc_device_plan *plan, size_t i, size_t end, size_t *bytes)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	uint64_t sum = slot_bytes(plan, i++);
	while (i < end && !c[i].predicted && sum + slot_bytes(plan, i) <= KVI_STAGING_BYTES)
		sum += slot_bytes(plan, i++);
	*bytes = (size_t)sum;
	return i;
}

static kvarc_ret fetch_batch(struct kvarc_device_plan *plan, size_t first, size_t end, uint8_t *to)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = first; i < end && !ret; i++)
		if (!c[i].given)
			ret = fetch(plan, &c[i], to + (c[i].job.payload - c[first].job.payload));
	return ret;
}

/* A chunk that is larger than a buffer. */
static kvarc_ret stage_large(struct kvarc_device_plan *plan, size_t i, size_t bytes, uint64_t to)
{
	uint8_t *memory = kvi_malloc(&plan->d->alloc, bytes);
	if (!memory)
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	kvarc_ret ret = fetch_batch(plan, i, i + 1, memory);
	if (!ret)
		ret = kvi_device_copy(plan->d, to, memory, bytes, plan->d->stream);
	kvi_free(&plan->d->alloc, memory);
	return ret;
}

static kvarc_ret stage_batch(struct kvarc_device_plan *plan, size_t first, size_t end, size_t bytes,
                             uint64_t to)
{
	uint8_t *buffer;
	if (bytes > KVI_STAGING_BYTES)
		return stage_large(plan, first, bytes, to);
	kvarc_ret ret = kvi_staging_take(plan->d, &buffer);
	if (!ret)
		ret = fetch_batch(plan, first, end, buffer);
	return ret ? ret : kvi_staging_send(plan->d, to, bytes);
}

/* The payloads of the chunks number first to end - 1. */
static kvarc_ret stage_payloads(struct kvarc_device_plan *plan, size_t first, size_t end,
                                uint64_t staging)
{
	const struct kvi_planned_chunk *c = plan->chunks.p;
	size_t bytes;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = first, next; i < end && !ret; i = next) {
		next = i + 1;
		if (c[i].predicted || c[i].given)
			continue;
		next = batch_end(plan, i, end, &bytes);
		ret = stage_batch(plan, i, next, bytes, staging + c[i].job.payload);
	}
	return ret;
}

/* ----- layers ------------------------------------------------ */

/* Begins with the first layer: what all of them need, and what comes in one pass over all. */
static kvarc_ret stage_common(struct kvarc_device_plan *plan, uint64_t staging)
{
	kvarc_ret ret = stage_constants(plan, staging);
	return ret ? ret : stage_predicted(plan, staging);
}

/* Makes a stream wait for what was copied so far. */
static kvarc_ret end_staging(const struct kvarc_device *device, void *stream)
{
	const struct kvi_driver *v = &device->driver;
	int result = v->event_record(device->staged, device->stream);
	if (!result)
		result = v->stream_wait_event(stream, device->staged, 0);
	return result ? kvi_driver_fail(v, device->error, KVARC_IO, result, "staging") : KVARC_OK;
}

static kvarc_ret stage(struct kvarc_device_plan *plan, bool begins, size_t first, size_t end,
                       uint64_t staging, void *stream)
{
	kvarc_ret ret = kvi_device_enter(plan->d);
	if (ret)
		return ret;
	if (begins)
		ret = stage_common(plan, staging);
	if (ret == KVARC_OK && !plan->w)
		ret = stage_payloads(plan, first, end, staging);
	/* a caller may give memory back whose copies are on their way */
	const kvarc_ret ended = end_staging(plan->d, stream);
	kvi_device_leave(plan->d);
	return ret ? ret : ended;
}

kvarc_ret kvarc_device_stage_layers(kvarc_device_plan *p, uint64_t staging, uint32_t layer0,
                                    uint32_t n_layers, void *stream)
{
	static const char call[] = "kvarc_device_stage_layers";
	size_t first, end;
	uint64_t stop;
	if (!p || !staging || staging % KVI_PLACE_ALIGN)
		return kvi_fail(p ? p->d->error : NULL, KVARC_PROG,
		                "%s: staging is not an address that is aligned to %d bytes", call,
		                (int)KVI_PLACE_ALIGN);
	kvarc_ret ret = kvi_plan_has_layers(p, call, layer0, n_layers, &stop);
	if (!ret)
		ret = kvi_plan_layers(p, call, layer0, n_layers, &first, &end);
	if (ret)
		return ret;
	const bool begins = layer0 == p->info.layer0;
	if (!begins && (p->staging != staging || p->staged_to != layer0))
		return kvi_fail(p->d->error, KVARC_PROG,
		                "%s: layers come in their order, to the same staging memory", call);
	if (begins)
		p->work = 0;
	p->staging = 0;
	ret = stage(p, begins, first, end, staging, stream);
	if (ret == KVARC_OK) {
		p->staging = staging;
		p->staged_to = stop;
	}
	return ret;
}

kvarc_ret kvarc_device_stage(kvarc_device_plan *p, uint64_t staging, void *stream)
{
	return kvarc_device_stage_layers(p, staging, p ? p->info.layer0 : 0, UINT32_MAX, stream);
}
