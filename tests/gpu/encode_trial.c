/* SPDX-License-Identifier: BSD-3-Clause */
/* encode_trial.c - encodes a chunk with the kernels of gpu/ on the host */
#include "encode_trial.h"

#include <stdlib.h>
#include <string.h>

#include "host_run.h"
#include "util/hash.h"

/* Memory of this size alone, so that sanitizers see what is written behind it. */
static uint8_t *memory(size_t bytes)
{
	uint8_t *p = aligned_alloc(16, (bytes + 15) / 16 * 16);
	if (!p)
		abort();
	memset(p, 0x5a, bytes);
	return p;
}

static uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* Puts the elements into pages in descending order, with gaps or without; returns them. */
static uint8_t *make_pages(const struct kvi_chunk *shape, const uint8_t *raw, uint32_t gap,
                           struct kvi_gpu_view *v, int32_t *table)
{
	enum { PAGE = 16 };
	const size_t size = kvarc_dtype_bytes(shape->dtype), row = shape->head_channels * size;
	const uint32_t pages = (shape->n_tokens + PAGE - 1) / PAGE;
	*v = (struct kvi_gpu_view){ .page_table = address(table),
		                    .token_stride = row + gap * size,
		                    .elem_stride = size,
		                    .n_table = pages,
		                    .page_tokens = PAGE,
		                    .n_pages = pages };
	v->head_stride = PAGE * v->token_stride + gap * size;
	v->page_stride = shape->heads * v->head_stride;
	v->bytes = pages * v->page_stride;
	uint8_t *memory_of_view = memory(v->bytes);
	v->base = address(memory_of_view);
	for (uint32_t i = 0; i < pages; i++)
		table[i] = (int32_t)(pages - 1 - i);
	for (uint32_t t = 0; t < shape->n_tokens; t++)
		for (uint32_t h = 0; h < shape->heads; h++, raw += row)
			memcpy(memory_of_view + (uint32_t)table[t / PAGE] * v->page_stride +
			               t % PAGE * v->token_stride + h * v->head_stride,
			       raw, row);
	return memory_of_view;
}

/* Whether an answer is the payload of the chunk, and its hash that of the elements. */
static enum encode_result result_of(const struct kvi_gpu_encoded *x,
                                    const struct kvi_gpu_output *output, bool hashed,
                                    const struct archive_chunk *chunk, const uint8_t *raw)
{
	const struct kvi_h128 hash = kvi_h128(raw, kvi_chunk_bytes(&chunk->shape));
	if (x->status != KVI_GPU_OK)
		return ENCODED_NOT;
	if (x->payload_bytes != chunk->bytes ||
	    memcmp((const uint8_t *)(output + 1) + x->offset, chunk->payload, chunk->bytes) != 0 ||
	    (hashed && (x->hash[0] != hash.lo || x->hash[1] != hash.hi)))
		return ENCODED_OTHER;
	return ENCODED_SAME;
}

enum encode_result encode_trial(const struct archive_chunk *chunk, const uint8_t *raw, uint32_t gap,
                                const struct kvi_gpu_params *params,
                                const struct kvi_gpu_tables *tables)
{
	const struct kvi_chunk *s = &chunk->shape;
	const size_t bound = kvi_gpu_encode_bound(s);
	uint8_t *sums = memory(kvi_gpu_sums_bytes(s));
	struct kvi_gpu_output *output = (void *)memory(sizeof *output + bound);
	struct kvi_gpu_encoded x = { .status = ~0u };
	int32_t table[KVI_SEGMENT_TOKENS];
	struct kvi_gpu_chunk job;
	uint32_t lock = 0;
	*output = (struct kvi_gpu_output){ 0, bound };
	kvi_gpu_chunk_fill(&job, s, chunk->header, 0);
	const size_t slot_bytes = kvi_gpu_chunk_place(&job, true);
	uint8_t *slot = memory(slot_bytes);
	uint8_t *pages = make_pages(s, raw, gap, &job.view, table);
	job.params = address(params);
	job.positions = address(s->positions);
	job.output = address(output);
	job.sums = address(sums);
	job.hashed = kvi_chunk_bytes(s) > 240;
	const struct kvi_gpu_batch batch = { .part = { { address(&job), address(&x), 1 } },
		                             .tables = address(tables),
		                             .work = address(slot),
		                             .locks = address(&lock),
		                             .slot_bytes = slot_bytes,
		                             .n = 1,
		                             .slots = 1 };
	kvi_gpu_host_encode(&batch, 1, kvi_gpu_shared_bytes(&job, true));
	const enum encode_result result = lock ? ENCODED_OTHER
	                                       : result_of(&x, output, job.hashed, chunk, raw);
	free(slot);
	free(sums);
	free(output);
	free(pages);
	return result;
}
