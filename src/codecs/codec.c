/* SPDX-License-Identifier: BSD-3-Clause */
/* codec.c - the codecs by number, and decoding of a chunk (spec 7) */
#include "coder.h"

#include "codecs/exponent/exponent.h"
#include "codecs/lossy/lossy_codec.h"

/* Codecs that have a mask and a stream. */
static const struct kvi_codec *const with_stream[KVI_N_CODECS] = {
	[KVI_CODEC_EXPONENT] = &kvi_codec_exponent, [KVI_CODEC_GRID] = &kvi_codec_grid,
	[KVI_CODEC_BYTES] = &kvi_codec_bytes,       [KVI_CODEC_LINEAR] = &kvi_codec_linear,
	[KVI_CODEC_MODEL] = &kvi_codec_linear,
};

const struct kvi_codec *kvi_codec_get(unsigned codec)
{
	return codec < KVI_CODEC_LINEAR ? with_stream[codec] : NULL;
}

bool kvi_codec_takes(unsigned codec, unsigned dtype)
{
	bool floating = kvi_float_format(dtype) != NULL;
	return codec == KVI_CODEC_BYTES ? !floating : floating;
}

bool kvi_chunk_valid(const struct kvi_chunk *chunk)
{
	return kvarc_dtype_bytes(chunk->dtype) && chunk->n_tokens >= 1 && chunk->n_tokens <= 256 &&
	       chunk->heads >= 1 && chunk->heads <= 65535 && chunk->head_channels >= 1 &&
	       chunk->head_channels <= 65535 &&
	       (uint64_t)chunk->heads * chunk->head_channels <= (uint64_t)1 << 20;
}

static kvarc_ret decode_constant(const struct kvi_chunk *chunk, const uint8_t *payload,
                                 size_t bytes, uint8_t *raw)
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
static kvarc_ret decode_plain(struct kvi_coder *c, const struct kvi_chunk *chunk, unsigned codec,
                              const uint8_t *payload, size_t bytes, uint8_t *raw)
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
	case KVI_CODEC_PREDICTED:
		return kvi_predicted_decode(c, chunk, payload, bytes, raw);
	default: /* REPEAT is the reader's */
		return KVARC_OPTIONS;
	}
}

static kvarc_ret params_fit(const struct kvi_params *p, const struct kvi_chunk *chunk,
                            unsigned codec)
{
	if (kvi_codec_predicts(codec)) {
		if (!kvi_linear_shape(chunk))
			return KVARC_PREDICTOR;
		return kvi_linear_codec(chunk) == codec && kvi_linear_sources(chunk) ? KVARC_OK
		                                                                     : KVARC_DATA;
	}
	bool fit = p && p->codec == codec && p->dtype == chunk->dtype && p->heads == chunk->heads &&
	           p->head_channels == chunk->head_channels;
	return fit ? KVARC_OK : KVARC_DATA;
}

/* Whether what is expected here is what the writer expected (spec model 4). */
static kvarc_ret check_expected(const struct kvi_chunk *chunk, struct kvi_in *in)
{
	uint64_t check = kvi_get64(in);
	if (in->bad)
		return KVARC_DATA;
	return check == kvi_expected_check(chunk->linear->expected,
	                                   kvi_chunk_channels(chunk) * chunk->n_tokens)
	               ? KVARC_OK
	               : KVARC_PREDICTOR;
}

/* A chunk of codec 4 to 8 on its way out. */
struct payload_coded {
	struct kvi_coder_job job;
	struct kvi_in in;
	uint8_t *packed; /* what the codec decodes to */
	bool observed;   /* the codec fills the chunk's features */
};

/* The mask section; then follows what the codec's page says. */
static kvarc_ret coded_begin(struct kvi_coder *c, const struct kvi_chunk_payload *p, uint8_t *raw,
                             struct payload_coded *d)
{
	const bool linear = kvi_codec_predicts(p->codec);
	if (p->lane_order >= KVI_N_LANE_ORDERS || !kvi_codec_takes(p->codec, p->chunk->dtype) ||
	    (linear && p->lane_order != KVI_LANES_TOKENS))
		return KVARC_DATA;
	kvarc_ret ret = params_fit(p->params, p->chunk, p->codec);
	if (ret)
		return ret;
	*d = (struct payload_coded){
		.job = {
			.chunk = p->chunk, .params = p->params,
			.mask = { .T = p->chunk->n_tokens,
			          .C = kvi_chunk_channels(p->chunk),
			          .size = (unsigned)kvarc_dtype_bytes(
					  p->chunk->dtype) },
			.lanes = { .kernels = c->kernels,
			           .order = p->lane_order },
		},
		.in = kvi_in_make(p->payload, p->payload_bytes),
		.packed = raw,
	};
	if (p->codec == KVI_CODEC_MODEL)
		ret = check_expected(p->chunk, &d->in);
	if (ret)
		return ret;
	struct kvi_mask *m = &d->job.mask;
	m->runs = kvi_scratch(c, KVI_SCRATCH_RUNS, kvi_mask_runs_max(m->C) * sizeof *m->runs);
	if (!m->runs)
		return kvi_alloc_error(c->alloc);
	if (!kvi_mask_parse(m, &d->in) || (linear && m->row_bits))
		return KVARC_DATA;
	size_t n = kvi_mask_elements(m);
	d->observed = linear && n;
	if (kvi_mask_any(m) && n) {
		d->packed = kvi_scratch(c, KVI_SCRATCH_PACKED, n * m->size);
		if (!d->packed)
			return kvi_alloc_error(c->alloc);
	}
	d->job.lanes.rows = m->rows;
	d->job.lanes.channels = m->channels;
	return KVARC_OK;
}

/* The features that a decoder did not meet on its way. */
static kvarc_ret add_features(struct kvi_coder *c, const struct kvi_chunk *chunk,
                              const uint8_t *raw)
{
	if (!chunk->features || !chunk->linear)
		return KVARC_OK;
	return kvi_chunk_features(c, chunk, raw, chunk->linear->model->flags & KVI_MODEL_BASIS);
}

static kvarc_ret coded_end(struct kvi_coder *c, const struct payload_coded *d, uint8_t *raw)
{
	if (d->in.bad || kvi_in_remaining(&d->in))
		return KVARC_DATA;
	if (kvi_mask_any(&d->job.mask))
		kvi_mask_scatter(&d->job.mask, d->packed, raw);
	return d->observed ? KVARC_OK : add_features(c, d->job.chunk, raw);
}

static kvarc_ret decode_one(struct kvi_coder *c, const struct kvi_chunk_payload *p, uint8_t *raw)
{
	const struct kvi_codec *vt = p->codec < KVI_N_CODECS ? with_stream[p->codec] : NULL;
	struct payload_coded d;
	if (!kvi_chunk_valid(p->chunk))
		return KVARC_PROG;
	if (kvi_lossy_codec_get(p->codec)) {
		kvarc_ret lossy = kvi_lossy_decode(c, p, raw);
		return lossy ? lossy : add_features(c, p->chunk, raw);
	}
	if (!vt && p->lane_order)
		return kvi_codec_name(p->codec) ? KVARC_DATA : KVARC_OPTIONS;
	kvarc_ret ret;
	if (!vt) {
		ret = decode_plain(c, p->chunk, p->codec, p->payload, p->payload_bytes, raw);
		return ret ? ret : add_features(c, p->chunk, raw);
	}
	ret = coded_begin(c, p, raw, &d);
	if (ret == KVARC_OK && kvi_mask_elements(&d.job.mask))
		ret = vt->decode(c, &d.job, &d.in, d.packed);
	return ret ? ret : coded_end(c, &d, raw);
}

kvarc_ret kvi_chunk_decode(struct kvi_coder *c, const struct kvi_chunk *chunk, uint8_t codec,
                           uint8_t lane_order, const struct kvi_params *params,
                           const uint8_t *payload, size_t payload_bytes, uint8_t *raw)
{
	const struct kvi_chunk_payload p = { chunk,  codec,   lane_order,
		                             params, payload, payload_bytes };
	return decode_one(c, &p, raw);
}

bool kvi_codec_pairs(unsigned codec, uint32_t isa_mask)
{
	return codec == KVI_CODEC_EXPONENT && kvi_kernels_get(isa_mask)->exp_decode2;
}

void kvi_chunk_decode2(struct kvi_coder *const c[2], const struct kvi_chunk_payload p[2],
                       uint8_t *const raw[2], kvarc_ret ret[2])
{
	struct payload_coded d[2];
	bool pair = c[0]->kernels->exp_decode2 != NULL;
	for (int i = 0; i < 2 && pair; i++)
		pair = p[i].codec == KVI_CODEC_EXPONENT && kvi_chunk_valid(p[i].chunk) &&
		       !coded_begin(c[i], &p[i], raw[i], &d[i]) &&
		       kvi_mask_elements(&d[i].job.mask);
	if (!pair) {
		for (int i = 0; i < 2; i++)
			ret[i] = decode_one(c[i], &p[i], raw[i]);
		return;
	}
	kvi_exponent_decode2(c, (const struct kvi_coder_job *const[2]){ &d[0].job, &d[1].job },
	                     (struct kvi_in *const[2]){ &d[0].in, &d[1].in },
	                     (uint8_t *const[2]){ d[0].packed, d[1].packed }, ret);
	for (int i = 0; i < 2; i++)
		if (!ret[i])
			ret[i] = coded_end(c[i], &d[i], raw[i]);
}
