/* SPDX-License-Identifier: BSD-3-Clause */
/* predicted.c - codec predicted: elements as predicted, or differences (spec predicted) */
#include "codecs/coder.h"
#include "util/hash.h"

enum { EXACT, PATCH };

static void put_head(uint8_t *to, const uint8_t *predicted, size_t n, unsigned method)
{
	kvi_store64(to, kvi_h64(predicted, n));
	to[8] = (uint8_t)method;
}

const uint8_t *kvi_predicted_put(struct kvi_coder *coder, const struct kvi_chunk *chunk,
                                 const uint8_t *raw)
{
	uint8_t *to = kvi_scratch(coder, KVI_SCRATCH_OUT, KVI_PREDICTED_EXACT);
	if (to)
		put_head(to, raw, kvi_chunk_bytes(chunk), EXACT);
	return to;
}

/* Elements of p XOR those of q, as planes. */
static void differ(unsigned dtype, const uint8_t *p, const uint8_t *q, size_t n, uint8_t *to)
{
	size_t size = kvarc_dtype_bytes(dtype);
	for (size_t b = 0; b < size; b++)
		for (size_t i = b; i < n; i += size)
			*to++ = p[i] ^ q[i];
}

const uint8_t *kvi_predicted_patch(struct kvi_coder *coder, const struct kvi_chunk *chunk,
                                   const uint8_t *predicted, const uint8_t *raw, size_t capacity,
                                   size_t *bytes)
{
	size_t n = kvi_chunk_bytes(chunk);
	uint8_t *planes = kvi_scratch(coder, KVI_SCRATCH_PLANE, n);
	uint8_t *to = kvi_scratch(coder, KVI_SCRATCH_PLANE_OUT, KVI_PREDICTED_EXACT + n);
	*bytes = 0;
	if (!planes || !to)
		return NULL;
	if (capacity <= KVI_PREDICTED_EXACT + 1)
		return to;
	differ(chunk->dtype, raw, predicted, n, planes);
	size_t most = capacity - KVI_PREDICTED_EXACT - 1;
	size_t got = kvi_zstd_write(coder, planes, n, to + KVI_PREDICTED_EXACT, most < n ? most : n,
	                            KVI_ZSTD_LEVEL);
	if (got) {
		put_head(to, predicted, n, PATCH);
		*bytes = KVI_PREDICTED_EXACT + got;
	}
	return to;
}

/* job->decoded may be the predicted elements themselves. */
static kvarc_ret apply_patch(struct kvi_coder *coder, const struct kvi_coder_job *job,
                             struct kvi_in *in)
{
	const uint8_t *p = job->linear.in->predicted;
	size_t n = kvi_chunk_bytes(job->chunk), size = kvarc_dtype_bytes(job->chunk->dtype);
	size_t bytes = kvi_in_remaining(in);
	uint8_t *planes = kvi_scratch(coder, KVI_SCRATCH_PLANE, n);
	if (!planes)
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = kvi_zstd_read(coder, kvi_get_bytes(in, bytes), bytes, planes, n);
	for (size_t b = 0; b < size && ret == KVARC_OK; b++)
		for (size_t i = b; i < n; i += size)
			job->decoded[i] = p[i] ^ *planes++;
	return ret;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	const struct kvi_linear_in *linear = job->linear.in;
	const uint8_t *p = linear ? linear->predicted : NULL;
	size_t n = kvi_chunk_bytes(job->chunk);
	uint64_t check = kvi_get64(in);
	uint8_t method = kvi_get8(in);
	if (!linear)
		return KVARC_PREDICTOR;
	if (in->bad || !p || !kvi_float_format(job->chunk->dtype))
		return KVARC_DATA;
	if (check != kvi_h64(p, n))
		return KVARC_PREDICTOR;
	if (method == PATCH)
		return apply_patch(coder, job, in);
	if (method != EXACT)
		return KVARC_OPTIONS;
	if (job->decoded != p)
		memcpy(job->decoded, p, n);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_predicted = { .takes = KVI_TAKES_FLOATS, .decode = decode };
