/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent.c - the exponent codec: coded exponents, all other bits stored (spec exponent) */
#include "exponent.h"

#include "codecs/planes.h"
#include "codecs/symbols.h"

static unsigned plane_bits(unsigned dtype)
{
	return kvi_float_format(dtype)->mant_bits + 1;
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	size_t C = kvi_chunk_channels(shape);
	kvarc_ret ret = kvi_table_params_parse(alloc, KVI_CODEC_EXPONENT, shape, in,
	                                       KVI_EXP_SYMBOLS, out);
	if (ret)
		return ret;
	const uint8_t *top = kvi_get_bytes(in, C);
	if (top)
		memcpy(kvi_table_params_of(*out)->top, top, C);
	return KVARC_OK;
}

static void serialise(const struct kvi_params *p, struct kvi_out *out)
{
	kvi_table_params_serialise(p, out);
	kvi_put_bytes(out, kvi_table_params_of(p)->top, kvi_params_channels(p));
}

/* The streams of a chunk on their way in or out. */
struct exponent_work {
	const struct kvi_kernels *kernels;
	const struct kvi_tables *tables;
	size_t channels, ring;      /* ring: entries of a buffer */
	const uint8_t *table, *top; /* of each remaining channel */
	uint8_t *rings;             /* four */
	uint8_t *fields;            /* of all elements, token-major */
	const uint8_t *rest;        /* decoders of bf16: sign and mantissa */
	uint16_t *elements;         /* decoders whose kernel makes elements; else NULL */
};

static bool open_work(struct kvi_coder *c, const struct kvi_coder_job *job, bool decoding,
                      struct exponent_work *w)
{
	const struct kvi_table_params *p = kvi_table_params_of(job->params);
	const size_t C = job->mask.channels, ring = kvi_ring_capacity(job->mask.rows, C);
	uint8_t *channels = kvi_scratch(c, KVI_SCRATCH_CHANNELS, 2 * C);
	uint8_t *rings = kvi_scratch(c, KVI_SCRATCH_CONTEXT, 4 * ring);
	if (!channels || !rings)
		return false;
	kvi_mask_channels(&job->mask, 1, p->table, channels);
	kvi_mask_channels(&job->mask, 1, p->top, channels + C);
	bool lut = decoding && p->freqs.n > c->kernels->exp_searched;
	*w = (struct exponent_work){
		.kernels = c->kernels,
		.tables = kvi_freqs_tables(c, &p->freqs, KVI_EXP_SYMBOLS, lut),
		.channels = C,
		.ring = ring,
		.table = channels,
		.top = channels + C,
		.rings = rings,
	};
	return w->tables != NULL;
}

/* The kernels' job for a part; which: 0 or 1, of two at once. */
static struct kvi_exp_job job_of(const struct exponent_work *w, const struct kvi_stream_part *p,
                                 unsigned which)
{
	uint8_t *rings = w->rings + 2 * which * w->ring;
	struct kvi_ring tab = kvi_ring_make(p->rows, w->channels, 1, w->table, rings);
	struct kvi_ring top = kvi_ring_make(p->rows, w->channels, 1, w->top, rings + w->ring);
	return (struct kvi_exp_job){
		.steps = kvi_element_steps(p->rows * w->channels),
		.tables = w->tables,
		.tab = tab.full,
		.tab_tail = tab.tail,
		.tab_steps = tab.steps,
		.top = top.full,
		.top_tail = top.tail,
		.rest = w->elements ? w->rest + p->first * w->channels : NULL,
	};
}

static size_t encode_part(void *opaque, const struct kvi_stream_part *p, uint16_t *end,
                          uint32_t state[KVI_LANES])
{
	const struct exponent_work *w = opaque;
	const struct kvi_exp_job e = job_of(w, p, 0);
	return w->kernels->exp_encode(&e, w->fields + p->first * w->channels, end, state);
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	size_t n = kvi_mask_elements(&job->mask);
	struct exponent_work w;
	if (!open_work(c, job, false, &w))
		return kvi_alloc_error(c->alloc);
	w.fields = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, n);
	out->end = w.fields ? kvi_exponent_split(c, job->chunk->dtype, job->packed, n, w.fields,
	                                         out->words)
	                    : NULL;
	if (!out->end)
		return kvi_alloc_error(c->alloc);
	const struct kvi_streams_encoder e = {
		.opaque = &w,
		.part = encode_part,
		.trial = kvi_ring_trial(w.channels),
		.plane_bytes = (size_t)(out->end - out->words),
	};
	out->streams.rows = job->mask.rows;
	out->begin = kvi_streams_encode(&out->streams, &e, out->words);
	return KVARC_OK;
}

/* Where the kernel puts a part. */
static void *place_of(const struct exponent_work *w, const struct kvi_stream_part *p)
{
	size_t at = p->first * w->channels;
	return w->elements ? (void *)(w->elements + at) : (void *)(w->fields + at);
}

static bool decode_part(void *opaque, const struct kvi_stream_part *p, const struct kvi_stream *in)
{
	const struct exponent_work *w = opaque;
	const struct kvi_exp_job e = job_of(w, p, 0);
	return w->kernels->exp_decode(&e, in, place_of(w, p));
}

static void decode_two(void *opaque, const struct kvi_stream_part p[2],
                       const struct kvi_stream in[2], bool ok[2])
{
	const struct exponent_work *w = opaque;
	const struct kvi_exp_job e[2] = { job_of(w, &p[0], 0), job_of(w, &p[1], 1) };
	w->kernels->exp_decode2((const struct kvi_exp_job *const[2]){ &e[0], &e[1] },
	                        (const struct kvi_stream *const[2]){ &in[0], &in[1] },
	                        (void *const[2]){ place_of(w, &p[0]), place_of(w, &p[1]) }, ok);
}

/* Where fields or elements go; of bf16 the other bits, which a kernel may merge. */
static kvarc_ret open_decoder(struct kvi_coder *c, const struct kvi_coder_job *job,
                              struct kvi_in *in, struct exponent_work *w)
{
	size_t n = kvi_mask_elements(&job->mask);
	const bool bf16 = job->chunk->dtype == KVARC_BF16;
	if (!open_work(c, job, true, w))
		return kvi_alloc_error(c->alloc);
	if (bf16) {
		uint8_t *buffer = kvi_scratch(c, KVI_SCRATCH_PLANE, n);
		kvarc_ret ret = buffer ? kvi_plane_read(c, in, n, 8, buffer, &w->rest)
		                       : kvi_alloc_error(c->alloc);
		if (ret)
			return ret;
	}
	if (bf16 && kvi_table_params_of(job->params)->freqs.n <= c->kernels->exp_searched)
		w->elements = kvi_elements16_buffer(c, job->decoded, n);
	else
		w->fields = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, n);
	return w->elements || w->fields ? KVARC_OK : kvi_alloc_error(c->alloc);
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	size_t n = kvi_mask_elements(&job->mask);
	struct exponent_work w;
	kvarc_ret ret = open_decoder(c, job, in, &w);
	if (ret)
		return ret;
	const struct kvi_streams_decoder d = {
		.opaque = &w,
		.one = decode_part,
		.two = c->kernels->exp_decode2 ? decode_two : NULL,
	};
	if (!kvi_streams_decode(&job->streams, job->streams_in, &d))
		return KVARC_DATA;
	if (w.elements) {
		kvi_elements16_done(w.elements, job->decoded, n);
		return KVARC_OK;
	}
	return w.rest ? kvi_exponent_merge_bf16(c, w.fields, w.rest, n, job->decoded)
	              : kvi_exponent_merge(c, job->chunk->dtype, w.fields, n, in, job->decoded);
}

const struct kvi_codec kvi_codec_exponent = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = serialise,
	.fit = kvi_exponent_fit,
	.words_each = 2,
	.plane_bits = plane_bits,
	.encode = encode,
	.decode = decode,
};
