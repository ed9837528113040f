/* SPDX-License-Identifier: BSD-3-Clause */
/* predicted.c - codec 9: elements as they are predicted, or what they differ in (spec predicted) */
#include "codecs/coder.h"
#include "util/hash.h"

enum { EXACT, PATCH };

bool kvi_predicted_exact(const struct kvi_chunk *chunk, const uint8_t *raw)
{
	return chunk->linear && chunk->linear->predicted == raw;
}

static void put_head(uint8_t *to, const uint8_t *predicted, size_t n, unsigned method)
{
	kvi_store64(to, kvi_h64(predicted, n));
	to[8] = (uint8_t)method;
}

const uint8_t *kvi_predicted_put(struct kvi_coder *c, const struct kvi_chunk *chunk,
                                 const uint8_t *raw)
{
	uint8_t *to = kvi_scratch(c, KVI_SCRATCH_OUT, KVI_PREDICTED_EXACT);
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

const uint8_t *kvi_predicted_patch(struct kvi_coder *c, const struct kvi_chunk *chunk,
                                   const uint8_t *raw, size_t capacity, size_t *bytes)
{
	const uint8_t *p = chunk->linear->predicted;
	size_t n = kvi_chunk_bytes(chunk);
	uint8_t *planes = kvi_scratch(c, KVI_SCRATCH_PLANE, n);
	uint8_t *to = kvi_scratch(c, KVI_SCRATCH_PLANE_OUT, KVI_PREDICTED_EXACT + n);
	*bytes = 0;
	if (!planes || !to)
		return NULL;
	if (capacity <= KVI_PREDICTED_EXACT + 1)
		return to;
	differ(chunk->dtype, raw, p, n, planes);
	size_t most = capacity - KVI_PREDICTED_EXACT - 1;
	size_t got = kvi_zstd_write(c, planes, n, to + KVI_PREDICTED_EXACT, most < n ? most : n,
	                            KVI_ZSTD_LEVEL);
	if (got) {
		put_head(to, p, n, PATCH);
		*bytes = KVI_PREDICTED_EXACT + got;
	}
	return to;
}

/* raw may be what is predicted. */
static kvarc_ret apply_patch(struct kvi_coder *c, const struct kvi_chunk *chunk, struct kvi_in *in,
                             uint8_t *raw)
{
	const uint8_t *p = chunk->linear->predicted;
	size_t n = kvi_chunk_bytes(chunk), size = kvarc_dtype_bytes(chunk->dtype);
	uint8_t *planes = kvi_scratch(c, KVI_SCRATCH_PLANE, n);
	if (!planes)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = kvi_zstd_read(c, in->p, kvi_in_remaining(in), planes, n);
	for (size_t b = 0; b < size && ret == KVARC_OK; b++)
		for (size_t i = b; i < n; i += size)
			raw[i] = p[i] ^ *planes++;
	return ret;
}

kvarc_ret kvi_predicted_decode(struct kvi_coder *c, const struct kvi_chunk *chunk,
                               const uint8_t *payload, size_t bytes, uint8_t *raw)
{
	const uint8_t *p = chunk->linear ? chunk->linear->predicted : NULL;
	size_t n = kvi_chunk_bytes(chunk);
	struct kvi_in in = kvi_in_make(payload, bytes);
	uint64_t check = kvi_get64(&in);
	uint8_t method = kvi_get8(&in);
	if (!chunk->linear)
		return KVARC_PREDICTOR;
	if (in.bad || !p || !kvi_codec_takes(KVI_CODEC_PREDICTED, chunk->dtype))
		return KVARC_DATA;
	if (check != kvi_h64(p, n))
		return KVARC_PREDICTOR;
	if (method == PATCH)
		return apply_patch(c, chunk, &in, raw);
	if (method != EXACT)
		return KVARC_OPTIONS;
	if (raw != p)
		memcpy(raw, p, n);
	return kvi_in_remaining(&in) ? KVARC_DATA : KVARC_OK;
}
