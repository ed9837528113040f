/* SPDX-License-Identifier: BSD-3-Clause */
/* codec.c - the rows of all codecs, and decoding of a chunk (spec 7) */
#include "coder.h"

#include "codecs/lossy/lossy_codec.h"

static const struct kvi_codec *const rows[KVI_N_CODECS] = {
	[KVI_CODEC_RAW] = &kvi_codec_raw,
	[KVI_CODEC_ZSTD] = &kvi_codec_zstd,
	[KVI_CODEC_CONSTANT] = &kvi_codec_constant,
	[KVI_CODEC_EXPONENT] = &kvi_codec_exponent,
	[KVI_CODEC_GRID] = &kvi_codec_grid,
	[KVI_CODEC_BYTES] = &kvi_codec_bytes,
	[KVI_CODEC_LINEAR] = &kvi_codec_linear,
	[KVI_CODEC_MODEL] = &kvi_codec_linear,
	[KVI_CODEC_PREDICTED] = &kvi_codec_predicted,
	[KVI_CODEC_NEAR] = &kvi_codec_near,
	[KVI_CODEC_TSC] = &kvi_codec_tsc,
	[KVI_CODEC_VQ] = &kvi_codec_vq,
	[KVI_CODEC_HAD] = &kvi_codec_had,
	[KVI_CODEC_KLT] = &kvi_codec_klt,
};

const struct kvi_codec *kvi_codec_get(unsigned codec)
{
	static const struct kvi_codec none;
	return codec < KVI_N_CODECS && rows[codec] ? rows[codec] : &none;
}

bool kvi_codec_takes(unsigned codec, unsigned dtype)
{
	return kvi_codec_get(codec)->takes &
	       (kvi_float_format(dtype) ? KVI_TAKES_FLOATS : KVI_TAKES_OTHERS);
}

bool kvi_chunk_valid(const struct kvi_chunk *chunk)
{
	return kvarc_dtype_bytes(chunk->dtype) && chunk->n_tokens >= 1 && chunk->n_tokens <= 256 &&
	       chunk->heads >= 1 && chunk->heads <= 65535 && chunk->head_channels >= 1 &&
	       chunk->head_channels <= 65535 &&
	       (uint64_t)chunk->heads * chunk->head_channels <= (uint64_t)1 << 20;
}

static kvarc_ret decode_raw(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	size_t n = kvi_chunk_bytes(job->chunk);
	const uint8_t *from = kvi_get_bytes(in, n);
	(void)c;
	if (from)
		memcpy(job->decoded, from, n);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_raw = { .takes = KVI_TAKES_ALL, .decode = decode_raw };

static kvarc_ret decode_constant(struct kvi_coder *c, const struct kvi_coder_job *job,
                                 struct kvi_in *in)
{
	size_t size = kvarc_dtype_bytes(job->chunk->dtype), n = kvi_chunk_bytes(job->chunk);
	const uint8_t *element = kvi_get_bytes(in, size);
	(void)c;
	for (size_t i = 0; element && i < n; i += size)
		memcpy(job->decoded + i, element, size);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_constant = { .takes = KVI_TAKES_ALL, .decode = decode_constant };

/* Whether the parameters, or the linear model, are for the chunk. */
static kvarc_ret params_fit(const struct kvi_chunk_payload *p)
{
	if (!kvi_codec_predicts(p->codec))
		return kvi_params_match(p->params, p->chunk, p->codec) ? KVARC_OK : KVARC_DATA;
	if (!kvi_linear_shape(p->chunk))
		return KVARC_PREDICTOR;
	return kvi_linear_codec(p->chunk) == p->codec && kvi_linear_sources(p->chunk) ? KVARC_OK
	                                                                              : KVARC_DATA;
}

/* Whether the predicted means are those that the writer had (spec model 4). */
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

/* A chunk with a mask that is being decoded. */
struct payload_coded {
	struct kvi_coder_job job;
	struct kvi_in in;
	bool observed; /* the codec fills the chunk's features */
};

/* The mask section; what the codec's page describes follows. */
static kvarc_ret coded_begin(struct kvi_coder *c, const struct kvi_chunk_payload *p, uint8_t *raw,
                             struct payload_coded *d)
{
	const bool linear = kvi_codec_predicts(p->codec);
	if (p->lane_order >= KVI_N_LANE_ORDERS || !kvi_codec_takes(p->codec, p->chunk->dtype) ||
	    (linear && p->lane_order != KVI_LANES_TOKENS))
		return KVARC_DATA;
	kvarc_ret ret = params_fit(p);
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
			.decoded = raw,
		},
		.in = kvi_in_make(p->payload, p->payload_bytes),
	};
	if (kvi_codec_uses_prediction(p->codec))
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
		d->job.decoded = kvi_scratch(c, KVI_SCRATCH_PACKED, n * m->size);
		if (!d->job.decoded)
			return kvi_alloc_error(c->alloc);
	}
	d->job.lanes.rows = m->rows;
	d->job.lanes.channels = m->channels;
	return KVARC_OK;
}

/* The features of a chunk whose decoder does not observe them. */
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
		kvi_mask_scatter(&d->job.mask, d->job.decoded, raw);
	return d->observed ? KVARC_OK : add_features(c, d->job.chunk, raw);
}

static kvarc_ret decode_coded(struct kvi_coder *c, const struct kvi_chunk_payload *p, uint8_t *raw)
{
	struct payload_coded d;
	kvarc_ret ret = coded_begin(c, p, raw, &d);
	if (!ret && kvi_mask_elements(&d.job.mask))
		ret = kvi_codec_get(p->codec)->decode(c, &d.job, &d.in);
	return ret ? ret : coded_end(c, &d, raw);
}

/* Codecs without mask and streams. */
static kvarc_ret decode_plain(struct kvi_coder *c, const struct kvi_chunk_payload *p, uint8_t *raw)
{
	const struct kvi_codec *row = kvi_codec_get(p->codec);
	const struct kvi_coder_job job = { .chunk = p->chunk, .decoded = raw };
	struct kvi_in in = kvi_in_make(p->payload, p->payload_bytes);
	if (p->lane_order)
		return kvi_codec_name(p->codec) ? KVARC_DATA : KVARC_OPTIONS;
	if (!row->decode)
		return KVARC_OPTIONS;
	kvarc_ret ret = row->decode(c, &job, &in);
	return !ret && (in.bad || kvi_in_remaining(&in)) ? KVARC_DATA : ret;
}

static kvarc_ret decode_one(struct kvi_coder *c, const struct kvi_chunk_payload *p, uint8_t *raw)
{
	if (!kvi_chunk_valid(p->chunk))
		return KVARC_PROG;
	if (!kvi_codec_lossy(p->codec) && kvi_codec_has_lanes(p->codec))
		return decode_coded(c, p, raw);
	kvarc_ret ret = kvi_codec_lossy(p->codec) ? kvi_lossy_decode(c, p, raw)
	                                          : decode_plain(c, p, raw);
	return ret ? ret : add_features(c, p->chunk, raw);
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
	return kvi_codec_get(codec)->decode2 && kvi_kernels_get(isa_mask)->exp_decode2;
}

void kvi_chunk_decode2(struct kvi_coder *const c[2], const struct kvi_chunk_payload p[2],
                       uint8_t *const raw[2], kvarc_ret ret[2])
{
	struct payload_coded d[2];
	bool pair = c[0]->kernels->exp_decode2 != NULL;
	for (int i = 0; i < 2 && pair; i++)
		pair = kvi_codec_get(p[i].codec)->decode2 && kvi_chunk_valid(p[i].chunk) &&
		       !coded_begin(c[i], &p[i], raw[i], &d[i]) &&
		       kvi_mask_elements(&d[i].job.mask);
	if (!pair) {
		for (int i = 0; i < 2; i++)
			ret[i] = decode_one(c[i], &p[i], raw[i]);
		return;
	}
	kvi_codec_get(p[0].codec)
		->decode2(c, (const struct kvi_coder_job *const[2]){ &d[0].job, &d[1].job },
	                  (struct kvi_in *const[2]){ &d[0].in, &d[1].in }, ret);
	for (int i = 0; i < 2; i++)
		if (!ret[i])
			ret[i] = coded_end(c[i], &d[i], raw[i]);
}
