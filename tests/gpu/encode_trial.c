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

enum encode_result encode_trial(const struct archive_chunk *chunk, const uint8_t *raw,
                                const struct kvi_gpu_params *params,
                                const struct kvi_gpu_tables *tables)
{
	const unsigned codec = chunk->header->codec;
	const size_t bound = kvi_gpu_encode_bound(&chunk->shape);
	const struct kvi_gpu_encode_work work = kvi_gpu_encode_work_of(&chunk->shape, codec);
	const size_t n = kvi_chunk_bytes(&chunk->shape);
	uint8_t *place = memory(work.job.bytes), *payload = memory(bound), *elements = memory(n);
	struct kvi_gpu_encode e = { .hashed = n > 240 };
	struct kvi_gpu_encoded x = { .status = ~0u };
	memcpy(elements, raw, n);
	kvi_gpu_chunk_fill(&e.job, &chunk->shape, chunk->header, (uint32_t)bound);
	e.job.payload = address(payload);
	e.job.params = address(params);
	e.job.positions = address(chunk->shape.positions);
	kvi_gpu_encode_place(&e, &work, address(place));
	e.job.decoded = address(elements);
	kvi_gpu_host_encode(&e, 1, tables, &x);
	const struct kvi_h128 hash = kvi_h128(raw, n);
	enum encode_result result = ENCODED_OTHER;
	if (x.status != KVI_GPU_OK)
		result = ENCODED_NOT;
	else if (x.payload_bytes == chunk->bytes &&
	         !memcmp(payload, chunk->payload, chunk->bytes) &&
	         (!e.hashed || (x.hash[0] == hash.lo && x.hash[1] == hash.hi)))
		result = ENCODED_SAME;
	free(place);
	free(payload);
	free(elements);
	return result;
}
