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

/* Table and top of each remaining channel, laid out for the kernels. */
static bool make_job(struct kvi_coder *c, const struct kvi_coder_job *job, bool decoding,
                     struct kvi_exp_job *e)
{
	const struct kvi_table_params *p = kvi_table_params_of(job->params);
	size_t C = job->lanes.channels, ring = kvi_ring_capacity(&job->lanes);
	uint8_t *channels = kvi_scratch(c, KVI_SCRATCH_CHANNELS, 2 * C);
	uint8_t *buffer = kvi_scratch(c, KVI_SCRATCH_CONTEXT, 2 * ring);
	if (!channels || !buffer)
		return false;
	kvi_mask_channels(&job->mask, 1, p->table, channels);
	kvi_mask_channels(&job->mask, 1, p->top, channels + C);
	bool per_step = job->lanes.order == KVI_LANES_TOKENS;
	bool lut = decoding && (per_step || p->freqs.n > c->kernels->exp_searched);
	struct kvi_ring tab = kvi_ring_make(&job->lanes, 1, channels, buffer);
	struct kvi_ring top = kvi_ring_make(&job->lanes, 1, channels + C, buffer + ring);
	*e = (struct kvi_exp_job){
		.steps = kvi_lane_steps(&job->lanes),
		.tables = kvi_freqs_tables(c, &p->freqs, KVI_EXP_SYMBOLS, lut),
		.tab = tab.full,
		.tab_tail = tab.tail,
		.tab_steps = tab.steps,
		.top = top.full,
		.top_tail = top.tail,
		.per_step = per_step,
	};
	return e->tables != NULL;
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	size_t n = kvi_mask_elements(&job->mask);
	struct kvi_exp_job e;
	uint32_t state[KVI_LANES];
	uint8_t *fields = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, 2 * n);
	if (!fields || !make_job(c, job, false, &e))
		return kvi_alloc_error(c->alloc);
	out->end = kvi_exponent_split(c, job->chunk->dtype, job->packed, n, fields, out->words);
	if (!out->end)
		return kvi_alloc_error(c->alloc);
	if (job->lanes.order == KVI_LANES_TOKENS) {
		kvi_lanes_to8(&job->lanes, fields, fields + n);
		fields += n;
	}
	size_t words = c->kernels->exp_encode(&e, fields, (uint16_t *)(void *)out->words, state);
	kvi_stream_put(out, words, state);
	return KVARC_OK;
}

/* State of a decoder around its kernel. */
struct decoding {
	struct kvi_exp_job e;
	struct kvi_stream s;
	const uint8_t *rest; /* bf16: sign and mantissa */
	void *out;           /* of the kernel: elements when e.rest, else fields */
};

/* Whether the kernel makes elements, which saves a pass over them. */
static bool takes_rest(const struct kvi_coder *c, const struct kvi_coder_job *job)
{
	return job->chunk->dtype == KVARC_BF16 && job->lanes.order == KVI_LANES_CHANNELS &&
	       kvi_table_params_of(job->params)->freqs.n <= c->kernels->exp_searched;
}

static kvarc_ret read_rest(struct kvi_coder *c, size_t n, struct kvi_in *in, struct decoding *d)
{
	uint8_t *buffer = kvi_scratch(c, KVI_SCRATCH_PLANE, n);
	return buffer ? kvi_plane_read(c, in, n, 8, buffer, &d->rest) : kvi_alloc_error(c->alloc);
}

static kvarc_ret decode_begin(struct kvi_coder *c, const struct kvi_coder_job *job,
                              struct kvi_in *in, struct decoding *d)
{
	size_t n = kvi_mask_elements(&job->mask);
	kvarc_ret ret = KVARC_OK;
	if (!kvi_stream_get(in, &d->s))
		return KVARC_DATA;
	if (!make_job(c, job, true, &d->e))
		return kvi_alloc_error(c->alloc);
	d->rest = NULL;
	if (job->chunk->dtype == KVARC_BF16)
		ret = read_rest(c, n, in, d);
	if (ret)
		return ret;
	if (takes_rest(c, job)) {
		d->e.rest = d->rest;
		d->out = kvi_elements16_buffer(c, job->decoded, n);
	} else {
		d->out = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, 2 * n);
	}
	return d->out ? KVARC_OK : kvi_alloc_error(c->alloc);
}

static kvarc_ret decode_end(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in,
                            const struct decoding *d)
{
	size_t n = kvi_mask_elements(&job->mask);
	uint8_t *fields = d->out;
	if (d->e.rest) {
		kvi_elements16_done(d->out, job->decoded, n);
		return KVARC_OK;
	}
	if (job->lanes.order == KVI_LANES_TOKENS) {
		kvi_lanes_from8(&job->lanes, fields, fields + n);
		fields += n;
	}
	return d->rest ? kvi_exponent_merge_bf16(c, fields, d->rest, n, job->decoded)
	               : kvi_exponent_merge(c, job->chunk->dtype, fields, n, in, job->decoded);
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct decoding d;
	kvarc_ret ret = decode_begin(c, job, in, &d);
	if (ret)
		return ret;
	if (!c->kernels->exp_decode(&d.e, &d.s, d.out))
		return KVARC_DATA;
	return decode_end(c, job, in, &d);
}

static void decode2(struct kvi_coder *const c[2], const struct kvi_coder_job *const job[2],
                    struct kvi_in *const in[2], kvarc_ret ret[2])
{
	struct decoding d[2];
	const struct kvi_exp_job *const e[2] = { &d[0].e, &d[1].e };
	const struct kvi_stream *const s[2] = { &d[0].s, &d[1].s };
	bool good[2] = { false, false };
	for (int i = 0; i < 2; i++)
		ret[i] = decode_begin(c[i], job[i], in[i], &d[i]);
	if (!ret[0] && !ret[1])
		c[0]->kernels->exp_decode2(e, s, (void *const[2]){ d[0].out, d[1].out }, good);
	else
		for (int i = 0; i < 2; i++)
			good[i] = !ret[i] && c[i]->kernels->exp_decode(e[i], s[i], d[i].out);
	for (int i = 0; i < 2; i++)
		if (!ret[i])
			ret[i] = good[i] ? decode_end(c[i], job[i], in[i], &d[i]) : KVARC_DATA;
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
	.decode2 = decode2,
};
