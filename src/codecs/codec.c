/* SPDX-License-Identifier: BSD-3-Clause */
/* codec.c - the rows of all codecs, their parameters, and decoding of a chunk (spec 7, 8) */
#include "coder.h"

#include "codecs/grid/grid_sets.h"
#include "codecs/lossy/lossy_codec.h"
#include "kernels/cells.h"
#include "util/hash.h"

const struct kvi_fixed_tables kvi_fixed_tables = { kvi_grid_set_0, kvi_cells_lo, kvi_cells_nb };

static const struct kvi_codec *const rows[KVI_N_CODECS] = {
	[KVI_CODEC_RAW] = &kvi_codec_raw,
	[KVI_CODEC_ZSTD] = &kvi_codec_zstd,
	[KVI_CODEC_CONSTANT] = &kvi_codec_constant,
	[KVI_CODEC_LAYERS] = &kvi_codec_layers,
	[KVI_CODEC_GRID] = &kvi_codec_grid,
	[KVI_CODEC_BYTES] = &kvi_codec_bytes,
	[KVI_CODEC_LINEAR] = &kvi_codec_linear,
	[KVI_CODEC_MODEL] = &kvi_codec_model,
	[KVI_CODEC_PREDICTED] = &kvi_codec_predicted,
	[KVI_CODEC_NEAR] = &kvi_codec_near,
	[KVI_CODEC_TSC] = &kvi_codec_tsc,
	[KVI_CODEC_VQ] = &kvi_codec_vq,
	[KVI_CODEC_HAD] = &kvi_codec_had,
	[KVI_CODEC_KLT] = &kvi_codec_klt,
	[KVI_CODEC_STATE] = &kvi_codec_state,
	[KVI_CODEC_CELLS] = &kvi_codec_cells,
};

const struct kvi_codec *kvi_codec_get(unsigned codec)
{
	static const struct kvi_codec none;
	return codec < KVI_N_CODECS && rows[codec] ? rows[codec] : &none;
}

/* Whether a codec takes elements of a dtype. */
static bool codec_takes(unsigned codec, unsigned dtype)
{
	const bool wide = kvarc_dtype_bytes(dtype) > 1;
	const unsigned set = !kvi_float_format(dtype) ? wide ? KVI_TAKES_UNKNOWN : KVI_TAKES_BYTES
	                     : wide                   ? KVI_TAKES_WIDE
	                                              : KVI_TAKES_FLOATS & ~KVI_TAKES_WIDE;
	return kvi_codec_get(codec)->takes & set;
}

/* ----- parameters ------------------------------------------------ */

kvarc_ret kvi_params_write(const struct kvi_params *params, const struct kvi_alloc *alloc,
                           struct kvi_out *content)
{
	kvi_out_init(content, alloc);
	kvi_codec_get(params->codec)->serialise(params, content);
	if (!content->failed)
		return KVARC_OK;
	kvi_out_free(content);
	return kvi_alloc_error(alloc);
}

kvarc_ret kvi_params_parse(struct kvi_params **out, const struct kvi_alloc *alloc, uint8_t codec,
                           uint8_t dtype, uint32_t heads, uint32_t head_channels,
                           const kvarc_rope *rope, const uint8_t *content, size_t bytes)
{
	const struct kvi_codec *row = kvi_codec_get(codec);
	struct kvi_chunk shape = { .dtype = dtype,
		                   .n_tokens = 1,
		                   .heads = heads,
		                   .head_channels = head_channels,
		                   .rope = rope };
	struct kvi_in in = kvi_in_make(content, bytes);
	struct kvi_params *p = NULL;
	*out = NULL;
	if (!row->parse)
		return kvi_codec_name(codec) ? KVARC_DATA : KVARC_OPTIONS;
	if (!kvi_chunk_valid(&shape) || !codec_takes(codec, dtype))
		return KVARC_DATA;
	kvarc_ret ret = row->parse(alloc, &shape, &in, &p);
	if (ret)
		return ret;
	if (in.bad || kvi_in_remaining(&in)) {
		kvi_params_free(p);
		return KVARC_DATA;
	}
	*out = p;
	return KVARC_OK;
}

/* ----- codecs without parameters ------------------------------------------------ */

static kvarc_ret decode_raw(struct kvi_coder *coder, const struct kvi_coder_job *job,
                            struct kvi_in *in)
{
	size_t n = kvi_chunk_bytes(job->chunk);
	const uint8_t *from = kvi_get_bytes(in, n);
	(void)coder;
	if (from)
		memcpy(job->decoded, from, n);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_raw = { .takes = KVI_TAKES_ALL, .decode = decode_raw };

static kvarc_ret decode_constant(struct kvi_coder *coder, const struct kvi_coder_job *job,
                                 struct kvi_in *in)
{
	size_t size = kvarc_dtype_bytes(job->chunk->dtype), n = kvi_chunk_bytes(job->chunk);
	const uint8_t *element = kvi_get_bytes(in, size);
	(void)coder;
	for (size_t i = 0; element && i < n; i += size)
		memcpy(job->decoded + i, element, size);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_constant = { .takes = KVI_TAKES_ALL, .decode = decode_constant };

/* ----- decoding ------------------------------------------------ */

/* Whether the parameters, or the linear model, are for the chunk. */
static kvarc_ret params_fit(const struct kvi_decode_request *request)
{
	if (kvi_codec_has_params(request->codec))
		return kvi_params_match(request->params, &request->chunk, request->codec)
		               ? KVARC_OK
		               : KVARC_DATA;
	if (!kvi_codec_predicts(request->codec))
		return KVARC_OK;
	if (!kvi_linear_shape(request->linear.in, &request->chunk))
		return KVARC_PREDICTOR;
	return kvi_linear_codec(request->linear.in) == request->codec &&
	                       kvi_linear_sources(request->linear.in)
	               ? KVARC_OK
	               : KVARC_DATA;
}

/* A chunk with a mask that is being decoded. */
struct payload_coded {
	struct kvi_coder_job job;
	struct kvi_streams_in streams;
	struct kvi_in in;
	bool observed; /* the codec fills the chunk's features */
};

/* The section in front of the streams. */
static kvarc_ret get_section(struct kvi_coder *coder, const struct kvi_decode_request *request,
                             struct payload_coded *coded)
{
	const struct kvi_codec *row = kvi_codec_get(request->codec);
	struct kvi_mask *m = &coded->job.mask;
	kvarc_ret ret = row->get_head ? row->get_head(&coded->job, &coded->in) : KVARC_OK;
	if (ret)
		return ret;
	m->runs = kvi_scratch(coder, KVI_SCRATCH_RUNS, kvi_mask_runs_max(m->C) * sizeof *m->runs);
	if (!m->runs)
		return kvi_alloc_error(coder->alloc);
	if (!kvi_mask_parse(m, &coded->in) || (m->row_bits && kvi_codec_predicts(request->codec)))
		return KVARC_DATA;
	return request->payload_bytes - kvi_in_remaining(&coded->in) == request->cut.section_bytes
	               ? KVARC_OK
	               : KVARC_DATA;
}

/* The streams that are wanted. false: predicted streams need sources that others do not have. */
static bool choose_streams(const struct kvi_decode_request *request, struct payload_coded *coded)
{
	struct kvi_tokens wanted = request->wanted;
	if (!wanted.end)
		wanted.end = request->chunk.n_tokens;
	const struct kvi_tokens have = kvi_streams_choose(&coded->streams, &coded->job.streams,
	                                                  &coded->job.mask, wanted);
	return !kvi_codec_predicts(request->codec) ||
	       (have.first >= wanted.first && have.end <= wanted.end);
}

/* Section and streams; what the codec's page describes follows. */
static kvarc_ret coded_begin(struct kvi_coder *coder, const struct kvi_decode_request *request,
                             uint8_t *raw, struct payload_coded *coded)
{
	if (!codec_takes(request->codec, request->chunk.dtype))
		return KVARC_DATA;
	kvarc_ret ret = params_fit(request);
	if (ret)
		return ret;
	coded->job = (struct kvi_coder_job){
		.chunk = &request->chunk,
		.params = request->params,
		.linear = request->linear,
		.before = request->before,
		.helpers = request->helpers,
		.mask = { .T = request->chunk.n_tokens,
		          .C = kvi_chunk_channels(&request->chunk),
		          .size = (unsigned)kvarc_dtype_bytes(request->chunk.dtype) },
		.streams_in = &coded->streams,
		.decoded = raw,
		.whole = raw,
	};
	coded->in = kvi_in_make(request->payload, request->payload_bytes);
	ret = get_section(coder, request, coded);
	if (ret)
		return ret;
	const struct kvi_mask *m = &coded->job.mask;
	size_t n = kvi_mask_elements(m);
	const struct kvi_codec *row = kvi_codec_get(request->codec);
	if (!kvi_streams_cut(&coded->job.streams, request->cut.stream_size, n ? m->rows : 0) ||
	    (n && !(row->get_table ? row->get_table
	                           : kvi_streams_get)(&coded->streams, &coded->job.streams,
	                                              request->cut.section_bytes, &coded->in)))
		return KVARC_DATA;
	if (n && !choose_streams(request, coded))
		return KVARC_DATA;
	coded->observed = n && kvi_codec_predicts(request->codec);
	if (kvi_mask_any(m) && n) {
		coded->job.decoded = kvi_scratch(coder, KVI_SCRATCH_PACKED, n * m->size);
		if (!coded->job.decoded)
			return kvi_alloc_error(coder->alloc);
	}
	return KVARC_OK;
}

/* The features of a chunk whose decoder does not observe them. */
static kvarc_ret add_features(struct kvi_coder *coder, const struct kvi_decode_request *request,
                              const uint8_t *raw)
{
	const struct kvi_linear_io *linear = &request->linear;
	if (!linear->features || !linear->in)
		return KVARC_OK;
	return kvi_chunk_features(coder, &request->chunk, linear, request->wanted, raw,
	                          linear->in->model->flags & KVI_MODEL_BASIS);
}

/* Decodes a payload of a codec with streams. */
static kvarc_ret decode_coded(struct kvi_coder *coder, const struct kvi_decode_request *request,
                              uint8_t *raw, uint64_t *raw_check)
{
	struct payload_coded d;
	kvarc_ret ret = coded_begin(coder, request, raw, &d);
	const struct kvi_streams *s = &d.job.streams;
	d.job.checked = raw_check;
	if (!ret && s->n)
		ret = kvi_codec_get(request->codec)->decode(coder, &d.job, &d.in);
	else if (!ret)
		kvi_mask_scatter(&d.job.mask, raw, 0, request->chunk.n_tokens, raw);
	if (ret)
		return ret;
	if (d.in.bad || kvi_in_remaining(&d.in))
		return KVARC_DATA;
	if (raw_check)
		*raw_check = s->n < 2 ? kvi_h64(raw, kvi_chunk_bytes(&request->chunk))
		                      : kvi_streams_check_of(s, d.streams.check);
	return d.observed ? KVARC_OK : add_features(coder, request, raw);
}

/* Decodes a payload of a codec without streams. */
static kvarc_ret decode_plain(struct kvi_coder *coder, const struct kvi_decode_request *request,
                              uint8_t *raw)
{
	const struct kvi_codec *row = kvi_codec_get(request->codec);
	const struct kvi_coder_job job = { .chunk = &request->chunk,
		                           .linear = request->linear,
		                           .decoded = raw };
	struct kvi_in in = kvi_in_make(request->payload, request->payload_bytes);
	if (!row->decode)
		return KVARC_OPTIONS;
	if (request->cut.stream_size != KVI_ONE_STREAM || request->cut.section_bytes)
		return KVARC_DATA;
	kvarc_ret ret = row->decode(coder, &job, &in);
	return !ret && (in.bad || kvi_in_remaining(&in)) ? KVARC_DATA : ret;
}

kvarc_ret kvi_chunk_decode(struct kvi_coder *coder, const struct kvi_decode_request *request,
                           uint8_t *raw, uint64_t *raw_check)
{
	if (!kvi_chunk_valid(&request->chunk))
		return KVARC_PROG;
	if (kvi_codec_has_streams(request->codec))
		return decode_coded(coder, request, raw, raw_check);
	kvarc_ret ret = kvi_codec_lossy(request->codec)
	                        ? kvi_lossy_decode(coder, kvi_codec_get(request->codec), request,
	                                           raw)
	                        : decode_plain(coder, request, raw);
	if (ret)
		return ret;
	if (raw_check)
		*raw_check = kvi_h64(raw, kvi_chunk_bytes(&request->chunk));
	return add_features(coder, request, raw);
}
