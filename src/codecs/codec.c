/* SPDX-License-Identifier: BSD-3-Clause */
/* codec.c - the codecs by number, and decoding of a chunk (spec 7) */
#include "coder.h"

static const struct {
	const char *name;
	const struct kvi_codec *coded; /* has mask, stream and parameters */
} codecs[KVI_N_CODECS] = {
	[KVI_CODEC_RAW] = { "raw", NULL },
	[KVI_CODEC_ZSTD] = { "zstd", NULL },
	[KVI_CODEC_CONSTANT] = { "constant", NULL },
	[KVI_CODEC_REPEAT] = { "repeat", NULL },
	[KVI_CODEC_EXPONENT] = { "exponent", &kvi_codec_exponent },
	[KVI_CODEC_GRID] = { "grid", &kvi_codec_grid },
	[KVI_CODEC_BYTES] = { "bytes", &kvi_codec_bytes },
};

const char *kvi_codec_name(unsigned codec)
{
	return codec < KVI_N_CODECS ? codecs[codec].name : NULL;
}

const struct kvi_codec *kvi_codec_get(unsigned codec)
{
	return codec < KVI_N_CODECS ? codecs[codec].coded : NULL;
}

bool kvi_codec_takes(unsigned codec, unsigned dtype)
{
	bool floating = kvi_float_format(dtype) != NULL;
	return codec == KVI_CODEC_BYTES ? !floating : floating;
}

bool kvi_chunk_valid(const struct kvi_chunk *chunk)
{
	return kvarc_dtype_bytes(chunk->dtype) && chunk->n_tokens >= 1 &&
	       chunk->n_tokens <= 256 && chunk->heads >= 1 &&
	       chunk->heads <= 65535 && chunk->head_channels >= 1 &&
	       chunk->head_channels <= 65535 &&
	       (uint64_t)chunk->heads * chunk->head_channels <=
	               (uint64_t)1 << 20;
}

static kvarc_ret decode_constant(const struct kvi_chunk *chunk,
                                 const uint8_t *payload, size_t bytes,
                                 uint8_t *raw)
{
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	size_t n = kvi_chunk_bytes(chunk);
	if (bytes != size)
		return KVARC_DATA;
	for (size_t i = 0; i < n; i += size)
		memcpy(raw + i, payload, size);
	return KVARC_OK;
}

/* Codecs without parameters. */
static kvarc_ret decode_plain(struct kvi_coder *c,
                              const struct kvi_chunk *chunk, unsigned codec,
                              const uint8_t *payload, size_t bytes,
                              uint8_t *raw)
{
	size_t n = kvi_chunk_bytes(chunk);
	switch (codec) {
	case KVI_CODEC_RAW:
		if (bytes != n)
			return KVARC_DATA;
		memcpy(raw, payload, n);
		return KVARC_OK;
	case KVI_CODEC_ZSTD:
		return kvi_zstd_read(c, payload, bytes, raw, n);
	case KVI_CODEC_CONSTANT:
		return decode_constant(chunk, payload, bytes, raw);
	default: /* REPEAT is the reader's */
		return KVARC_OPTIONS;
	}
}

static bool params_fit(const struct kvi_params *p, const struct kvi_chunk *chunk,
                       unsigned codec)
{
	return p && p->codec == codec && p->dtype == chunk->dtype &&
	       p->heads == chunk->heads &&
	       p->head_channels == chunk->head_channels;
}

/* Codecs 4, 5 and 6: mask section, then what the codec's page says. */
static kvarc_ret decode_coded(struct kvi_coder *c, struct kvi_job *job,
                              const struct kvi_codec *vt, struct kvi_in *in,
                              uint8_t *raw)
{
	struct kvi_mask *m = &job->mask;
	m->runs = kvi_scratch(c, KVI_SCRATCH_RUNS,
	                      kvi_mask_runs_max(m->C) * sizeof *m->runs);
	if (!m->runs)
		return kvi_alloc_error(c->alloc);
	if (!kvi_mask_parse(m, in))
		return KVARC_DATA;
	size_t n = kvi_mask_elements(m);
	uint8_t *packed = raw;
	if (kvi_mask_any(m) && n) {
		packed = kvi_scratch(c, KVI_SCRATCH_PACKED, n * m->size);
		if (!packed)
			return kvi_alloc_error(c->alloc);
	}
	job->lanes.kernels = c->kernels;
	job->lanes.rows = m->rows;
	job->lanes.channels = m->channels;
	if (n) {
		kvarc_ret ret = vt->decode(c, job, in, packed);
		if (ret)
			return ret;
	}
	if (in->bad || kvi_in_left(in))
		return KVARC_DATA;
	if (kvi_mask_any(m))
		kvi_mask_scatter(m, packed, raw);
	return KVARC_OK;
}

kvarc_ret kvi_chunk_decode(struct kvi_coder *c, const struct kvi_chunk *chunk,
                           uint8_t codec, uint8_t lane_order,
                           const struct kvi_params *params,
                           const uint8_t *payload, size_t payload_bytes,
                           uint8_t *raw)
{
	const struct kvi_codec *vt = kvi_codec_get(codec);
	struct kvi_in in = kvi_in_make(payload, payload_bytes);
	if (!kvi_chunk_valid(chunk))
		return KVARC_PROG;
	if (!vt && lane_order)
		return codec < KVI_N_CODECS ? KVARC_DATA : KVARC_OPTIONS;
	if (!vt)
		return decode_plain(c, chunk, codec, payload, payload_bytes,
		                    raw);
	if (lane_order >= KVI_N_LANE_ORDERS ||
	    !kvi_codec_takes(codec, chunk->dtype) ||
	    !params_fit(params, chunk, codec))
		return KVARC_DATA;
	struct kvi_job job = {
		.chunk = chunk, .params = params,
		.mask = { .T = chunk->n_tokens, .C = kvi_chunk_channels(chunk),
		          .size = (unsigned)kvarc_dtype_bytes(chunk->dtype) },
		.lanes = { .order = lane_order },
	};
	return decode_coded(c, &job, vt, &in, raw);
}
