/* SPDX-License-Identifier: BSD-3-Clause */
/* device_stage.c - brings payloads, and what the host has to decode, into staging memory */
#include "config.h"

#include "plan_state.h"

#include <string.h>

#include "format/chunk_header.h"
#include "util/error.h"
#include "util/hash.h"

/* Payloads are copied together, as far as they are together in staging memory. */
enum { BATCH_BYTES = 8 << 20 };

/* ----- constants ------------------------------------------------ */

static void move(uint64_t *address, uint64_t by)
{
	if (*address)
		*address += by;
}

/* Turns offsets in the constants into addresses. */
static void relocate(const struct kvarc_device_plan *p, uint8_t *image, uint64_t staging)
{
	struct kvi_gpu_tables tables = p->tables;
	move(&tables.grid, staging);
	move(&tables.first, staging);
	move(&tables.cosine, staging);
	move(&tables.scale, staging);
	move(&tables.codes, staging);
	move(&tables.code_at, staging);
	move(&tables.code_first, staging);
	memcpy(image + p->tables_at, &tables, sizeof tables);
	for (size_t i = 0; i < p->params.n; i++) {
		uint8_t *at = image + KVI_LIST(struct kvi_planned_params, p->params, i)->at;
		struct kvi_gpu_params x;
		memcpy(&x, at, sizeof x);
		move(&x.freq, staging);
		move(&x.table, staging);
		move(&x.top, staging);
		move(&x.k, staging);
		move(&x.mean, staging);
		move(&x.rope, staging);
		memcpy(at, &x, sizeof x);
	}
	for (size_t i = 0; i < p->models.n; i++) {
		uint8_t *at = image + KVI_LIST(struct kvi_model_constants, p->models, i)->at;
		struct kvi_gpu_model x;
		memcpy(&x, at, sizeof x);
		kvi_gpu_model_move(&x, staging);
		memcpy(at, &x, sizeof x);
	}
}

static kvarc_ret stage_constants(struct kvarc_device_plan *p, uint64_t staging, void *stream)
{
	uint8_t *image = kvi_malloc(&p->d->alloc, p->constants.n);
	if (!image)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	memcpy(image, p->constants.p, p->constants.n);
	relocate(p, image, staging);
	kvarc_ret ret = kvi_device_copy(p->d, staging, image, p->constants.n, stream);
	kvi_free(&p->d->alloc, image);
	return ret;
}

/* ----- payloads ------------------------------------------------ */

/* Where the elements of a chunk go that the host decodes. */
struct decoding {
	const struct kvi_planned_chunk *c;
	uint8_t *to;
	bool found;
};

static int keep(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, const void *src)
{
	struct decoding *x = opaque;
	const struct kvi_gpu_chunk *j = &x->c->job;
	const size_t row = (size_t)j->heads * j->head_channels * kvarc_dtype_bytes(j->dtype);
	if (tensor != x->c->tensor || head != x->c->head || heads != j->heads)
		return 0;
	if (t0 != x->c->t0 + x->c->from || n != x->c->to - x->c->from)
		return 1;
	memcpy(x->to + x->c->from * row, src, n * row);
	x->found = true;
	return 0;
}

/* Makes a raw chunk of what the host decodes; tokens that the range does not have are zero. */
static kvarc_ret decode_on_host(struct kvarc_device_plan *p, const struct kvi_planned_chunk *c,
                                uint8_t *to)
{
	struct decoding x = { c, to + KVI_CHUNK_HEADER_BYTES, false };
	const kvarc_range range = { .track = p->range.track,
		                    .layer0 = c->layer,
		                    .n_layers = 1,
		                    .t0 = c->t0 + c->from,
		                    .n = c->to - c->from };
	const size_t bytes = c->job.payload_bytes - KVI_CHUNK_HEADER_BYTES;
	memset(to, 0, c->job.payload_bytes);
	kvarc_ret ret = kvarc_reader_read_deliver(p->r, &range, keep, &x);
	if (ret)
		return ret;
	if (!x.found)
		return kvi_fail(p->d->error, KVARC_DATA, "a chunk is not where the plan has it");
	struct kvi_chunk_header h = kvi_planned_header(c, c->job.heads, c->job.tokens);
	h.raw_check = kvi_h64(x.to, bytes);
	kvi_chunk_header_write(to, &h);
	return KVARC_OK;
}

static kvarc_ret fetch(struct kvarc_device_plan *p, const struct kvi_planned_chunk *c, uint8_t *to)
{
	return c->host ? decode_on_host(p, c, to)
	               : kvi_reader_payload(p->r, to, c->file_bytes, c->file_offset, &c->packed);
}

/* The bytes of a chunk in staging memory: to where the next one begins. */
static uint64_t slot_bytes(const struct kvarc_device_plan *p, size_t i)
{
	const struct kvi_planned_chunk *c = p->chunks.p;
	return (i + 1 < p->chunks.n ? c[i + 1].job.payload : p->jobs_at) - c[i].job.payload;
}

/* Whether the payload of a chunk is as in the file. */
static bool is_as_filed(const struct kvarc_device_plan *p, size_t i)
{
	const struct kvi_planned_chunk *c = KVI_LIST(struct kvi_planned_chunk, p->chunks, i);
	return !c->host && !c->packed.at;
}

/* The chunks behind number i that fit into `most` bytes, one at least; *bytes: what they have.
 * filed: those too whose payloads are as in the file. */
static size_t batch_end(const struct kvarc_device_plan *p, size_t i, bool filed, size_t *bytes)
{
	uint64_t sum = slot_bytes(p, i++);
	while (i < p->chunks.n && sum + slot_bytes(p, i) <= BATCH_BYTES &&
	       (filed || !is_as_filed(p, i)))
		sum += slot_bytes(p, i++);
	*bytes = (size_t)sum;
	return i;
}

static kvarc_ret stage_batch(struct kvarc_device_plan *p, size_t first, size_t end, uint8_t *buffer,
                             size_t bytes, uint64_t staging, void *stream)
{
	const struct kvi_planned_chunk *c = p->chunks.p;
	const uint64_t at = c[first].job.payload;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = first; i < end && !ret; i++)
		ret = fetch(p, &c[i], buffer + (c[i].job.payload - at));
	return ret ? ret : kvi_device_copy(p->d, staging + at, buffer, bytes, stream);
}

/* Opens the file of the reader for cuFile, which writes to memory now, and not in the order of the
 * stream: what may still use that memory has to be done. */
static kvarc_ret open_direct(struct kvarc_device_plan *p, struct kvi_direct_file *file,
                             void *stream)
{
	const int descriptor = kvi_reader_descriptor(p->r);
	size_t i = 0;
	while (i < p->chunks.n && !is_as_filed(p, i))
		i++;
	if (i == p->chunks.n || descriptor < 0 ||
	    !kvi_cufile_load(&p->d->cufile, p->d->cufile_file) ||
	    !kvi_direct_open(file, &p->d->cufile, descriptor))
		return KVARC_OK;
	return kvi_device_wait(p->d, stream);
}

/* Reads the payload of a chunk without the host, if that is possible. Where it is not, it will not
 * be for others. */
static bool stage_direct(struct kvarc_device_plan *p, struct kvi_direct_file *file, size_t i,
                         uint64_t staging)
{
	const struct kvi_planned_chunk *c = KVI_LIST(struct kvi_planned_chunk, p->chunks, i);
	if (!file->cufile || !is_as_filed(p, i))
		return false;
	if (!kvi_direct_read(file, staging, c->job.payload, c->file_bytes, c->file_offset)) {
		kvi_direct_close(file);
		return false;
	}
	p->info.direct_bytes += c->file_bytes;
	return true;
}

static kvarc_ret stage_payloads(struct kvarc_device_plan *p, uint64_t staging, void *stream)
{
	struct kvi_direct_file file = { 0 };
	uint8_t *buffer = NULL;
	size_t cap = 0, bytes;
	p->info.direct_bytes = 0;
	kvarc_ret ret = p->w ? KVARC_OK : open_direct(p, &file, stream);
	for (size_t i = 0, end; i < p->chunks.n && !ret; i = end) {
		end = i + 1;
		if (stage_direct(p, &file, i, staging))
			continue;
		end = batch_end(p, i, !file.cufile, &bytes);
		if (bytes > cap) {
			kvi_free(&p->d->alloc, buffer);
			buffer = kvi_malloc(&p->d->alloc, bytes);
			cap = buffer ? bytes : 0;
		}
		ret = buffer ? stage_batch(p, i, end, buffer, bytes, staging, stream)
		             : kvi_fail_alloc(p->d->error, &p->d->alloc);
	}
	kvi_free(&p->d->alloc, buffer);
	kvi_direct_close(&file);
	return ret;
}

kvarc_ret kvarc_device_stage(kvarc_device_plan *p, uint64_t staging, void *stream)
{
	if (!p || !staging || staging % KVI_PLACE_ALIGN)
		return kvi_fail(p ? p->d->error : NULL, KVARC_PROG,
		                "kvarc_device_stage: staging is not an address that is aligned to "
		                "%d bytes",
		                (int)KVI_PLACE_ALIGN);
	p->staging = p->work = 0;
	kvarc_ret ret = kvi_device_enter(p->d);
	if (ret)
		return ret;
	ret = kvi_kept_stage(p, stream);
	if (ret == KVARC_OK)
		ret = stage_constants(p, staging, stream);
	if (ret == KVARC_OK)
		ret = stage_payloads(p, staging, stream);
	kvi_device_leave(p->d);
	if (ret == KVARC_OK)
		p->staging = staging;
	return ret;
}
