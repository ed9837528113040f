/* SPDX-License-Identifier: BSD-3-Clause */
/* lossy_codec.c - payloads of lossy chunks to elements: generation, exact tokens, bodies (lossy
 * 1) */
#include "lossy_codec.h"

#include "payload_parts.h"
#include "util/fpmode.h"

const struct kvi_lossy_codec *kvi_lossy_codec_get(unsigned codec)
{
	static const struct kvi_lossy_codec *const codecs[KVI_N_CODECS] = {
		[KVI_CODEC_NEAR] = &kvi_lossy_near, [KVI_CODEC_TSC] = &kvi_lossy_tsc,
		[KVI_CODEC_VQ] = &kvi_lossy_vq,     [KVI_CODEC_HAD] = &kvi_lossy_had,
		[KVI_CODEC_KLT] = &kvi_lossy_klt,
	};
	return codec < KVI_N_CODECS ? codecs[codec] : NULL;
}

unsigned kvi_lossy_generation(const uint8_t *payload, size_t bytes)
{
	return bytes ? payload[0] : 0;
}

static kvarc_ret check_params(const struct kvi_chunk_payload *p, const struct kvi_lossy_codec *vt)
{
	const struct kvi_params *x = p->params;
	if (!vt->parse)
		return KVARC_OK;
	return x && x->codec == p->codec && x->dtype == p->chunk->dtype &&
	                       x->heads == p->chunk->heads &&
	                       x->head_channels == p->chunk->head_channels
	               ? KVARC_OK
	               : KVARC_DATA;
}

/* Tokens of a class to the rows of raw, from a body of so many bytes. */
static kvarc_ret decode_class(struct kvi_coder *c, const struct kvi_chunk_payload *p,
                              const struct kvi_parts *parts, unsigned class, struct kvi_in body,
                              uint8_t *raw)
{
	const unsigned which = 1u << class;
	int32_t positions[KVI_TOKENS_MAX];
	uint8_t tokens[KVI_TOKENS_MAX];
	struct kvi_lossy_job job = { .chunk = kvi_parts_chunk(parts, which, positions),
		                     .token = tokens,
		                     .params = p->params,
		                     .lane_order = p->lane_order,
		                     .decoded = raw };
	bool all = job.chunk.n_tokens == p->chunk->n_tokens;
	kvi_parts_tokens(parts, which, tokens);
	if (!all)
		job.decoded = kvi_scratch(c, KVI_SCRATCH_LOSSY, job.chunk.n_tokens * parts->row);
	if (!job.decoded)
		return kvi_alloc_error(c->alloc);
	uint64_t mode = kvi_fp_exact();
	kvarc_ret ret = kvi_lossy_codec_get(p->codec)->decode(c, &job, &body);
	kvi_fp_restore(mode);
	if (!ret && (body.bad || kvi_in_remaining(&body)))
		return KVARC_DATA;
	if (!ret && !all)
		kvi_parts_put(parts, which, job.decoded, raw);
	return ret;
}

static kvarc_ret decode_bodies(struct kvi_coder *c, const struct kvi_chunk_payload *p,
                               struct kvi_parts *parts, unsigned flags, struct kvi_in *in,
                               uint8_t *raw)
{
	size_t bytes[KVI_RATES_MAX];
	kvarc_ret ret = check_params(p, kvi_lossy_codec_get(p->codec));
	if (!ret && flags & KVI_FLAG_RATES && !kvi_rates_get(parts, in, bytes))
		return KVARC_DATA;
	for (unsigned i = 0; i < parts->n_rates && !ret; i++) {
		size_t n = i + 1 < parts->n_rates ? bytes[i] : kvi_in_remaining(in);
		const uint8_t *body = kvi_get_bytes(in, n);
		if (!body)
			return KVARC_DATA;
		ret = decode_class(c, p, parts, i, kvi_in_make(body, n), raw);
	}
	return ret;
}

kvarc_ret kvi_lossy_decode(struct kvi_coder *c, const struct kvi_chunk_payload *p, uint8_t *raw)
{
	struct kvi_in in = kvi_in_make(p->payload, p->payload_bytes);
	struct kvi_parts parts;
	unsigned generation = kvi_get8(&in), flags = kvi_get8(&in);
	if (!c->tables->codes.lut)
		return KVARC_LOSSY;
	if (in.bad || !generation || flags & ~(unsigned)(KVI_FLAG_EXACT | KVI_FLAG_RATES) ||
	    !kvi_float_format(p->chunk->dtype) || p->lane_order >= KVI_N_LANE_ORDERS)
		return KVARC_DATA;
	kvi_parts_open(&parts, p->chunk);
	kvarc_ret ret = KVARC_OK;
	if (flags & KVI_FLAG_EXACT)
		ret = kvi_exact_get(c, &parts, &in, raw);
	if (!ret)
		ret = decode_bodies(c, p, &parts, flags, &in, raw);
	return ret;
}
