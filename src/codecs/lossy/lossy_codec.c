/* SPDX-License-Identifier: BSD-3-Clause */
/* lossy_codec.c - decodes payloads of lossy codecs: generation, exact tokens, bodies (lossy 1) */
#include "lossy_codec.h"

#include "payload_parts.h"
#include "util/fpmode.h"

/* Decodes the body of a rate class; its elements go to the rows of raw of the class's tokens. */
static kvarc_ret decode_class(struct kvi_coder *coder, const struct kvi_codec *codec,
                              const struct kvi_decode_request *request,
                              const struct kvi_parts *parts, unsigned class, struct kvi_in body,
                              uint8_t *raw)
{
	const unsigned part = 1u << class;
	struct kvi_parts_work w;
	kvi_parts_job(&w, parts, part, coder);
	bool all = w.chunk.n_tokens == request->chunk.n_tokens;
	w.job.params = request->params;
	w.job.linear = request->linear;
	w.job.decoded = raw;
	if (!all)
		w.job.decoded = kvi_scratch(coder, KVI_SCRATCH_LOSSY,
		                            w.chunk.n_tokens * parts->row);
	if (!w.job.decoded)
		return kvi_alloc_error(coder->alloc);
	uint64_t mode = kvi_fp_exact();
	kvarc_ret ret = codec->decode(coder, &w.job, &body);
	kvi_fp_restore(mode);
	if (!ret && (body.bad || kvi_in_remaining(&body)))
		return KVARC_DATA;
	if (!ret && !all)
		kvi_parts_put(parts, part, w.job.decoded, raw);
	return ret;
}

/* Reads the rate classes, if there are some, and decodes the body of each; the last takes the
 * rest. */
static kvarc_ret decode_bodies(struct kvi_coder *coder, const struct kvi_codec *codec,
                               const struct kvi_decode_request *request, struct kvi_parts *parts,
                               unsigned flags, struct kvi_in *in, uint8_t *raw)
{
	size_t bytes[KVI_RATES_MAX];
	kvarc_ret ret = KVARC_OK;
	if (kvi_codec_has_params(request->codec) &&
	    !kvi_params_match(request->params, &request->chunk, request->codec))
		return KVARC_DATA;
	if (flags & KVI_FLAG_RATES && !kvi_rates_get(parts, in, bytes))
		return KVARC_DATA;
	for (unsigned i = 0; i < parts->n_rates && !ret; i++) {
		size_t n = i + 1 < parts->n_rates ? bytes[i] : kvi_in_remaining(in);
		const uint8_t *body = kvi_get_bytes(in, n);
		if (!body)
			return KVARC_DATA;
		ret = decode_class(coder, codec, request, parts, i, kvi_in_make(body, n), raw);
	}
	return ret;
}

kvarc_ret kvi_lossy_decode(struct kvi_coder *coder, const struct kvi_codec *codec,
                           const struct kvi_decode_request *request, uint8_t *raw)
{
	struct kvi_in in = kvi_in_make(request->payload, request->payload_bytes);
	struct kvi_parts parts;
	unsigned generation = kvi_get8(&in), flags = kvi_get8(&in);
	/* no kvi_coder_tables_lossy: the caller has not accepted lossy chunks */
	if (!coder->tables->codes.lut)
		return KVARC_LOSSY;
	if (in.bad || !generation || flags & ~(unsigned)(KVI_FLAG_EXACT | KVI_FLAG_RATES) ||
	    !kvi_float_format(request->chunk.dtype) || request->cut.stream_size != KVI_ONE_STREAM ||
	    request->cut.section_bytes)
		return KVARC_DATA;
	kvi_parts_open(&parts, &request->chunk);
	kvarc_ret ret = KVARC_OK;
	if (flags & KVI_FLAG_EXACT)
		ret = kvi_exact_get(coder, &parts, &in, raw);
	if (!ret)
		ret = decode_bodies(coder, codec, request, &parts, flags, &in, raw);
	return ret;
}
