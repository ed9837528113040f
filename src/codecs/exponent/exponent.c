/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent.c - the exponent codec: coded exponents, all other bits stored (spec exponent) */
#include "exponent.h"

#include "codecs/planes.h"
#include "codecs/symbols.h"

/* Most words that an element takes in a stream; streams that are decoded at once. */
enum { EXPONENT_WORDS = 2, AT_ONCE = 4 };

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

static void serialise(const struct kvi_params *params, struct kvi_out *out)
{
	kvi_table_params_serialise(params, out);
	kvi_put_bytes(out, kvi_table_params_of(params)->top, kvi_params_channels(params));
}

/* The streams of a chunk on their way in or out. */
struct exponent_work {
	const struct kvi_kernels *kernels;
	const struct kvi_coder_job *job;
	const struct kvi_tables *tables;
	size_t channels, ring;                 /* ring: entries of a buffer */
	const uint8_t *table, *top;            /* table and top of each remaining channel */
	const uint16_t *lane;                  /* table and top in one, for kernels that gather;
	                                        * else NULL */
	uint8_t *buffers;                      /* four rings, or two rings of lane */
	struct kvi_rings tab_rings, top_rings; /* tab_rings: rings of lane where lane is set */
	uint8_t *fields;                       /* exponent fields of all elements, token-major */
	/* Decoders alone. */
	struct kvi_exponent_planes planes;
	void *elements; /* kvi_exponent_buffer */
	bool merges;    /* the kernel makes elements, not fields */
};

static bool open_work(struct kvi_coder *coder, const struct kvi_coder_job *job, bool decoding,
                      struct exponent_work *w)
{
	const struct kvi_table_params *p = kvi_table_params_of(job->params);
	const size_t C = job->mask.channels, ring = kvi_ring_capacity(job->mask.rows, C);
	uint16_t *lane = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, C * (sizeof *lane + 2));
	uint8_t *buffers = kvi_scratch(coder, KVI_SCRATCH_CONTEXT, 4 * ring);
	if (!lane || !buffers)
		return false;
	uint8_t *channels = (uint8_t *)(lane + C);
	kvi_mask_channels(&job->mask, 1, p->table, channels);
	kvi_mask_channels(&job->mask, 1, p->top, channels + C);
	const bool gathers = coder->kernels->coding.exp_gathers;
	enum kvi_lut lut = KVI_LUT_NONE;
	if (decoding && p->freqs.n > coder->kernels->coding.exp_searched)
		lut = gathers ? KVI_LUT_HALVES : KVI_LUT_FIELDS;
	for (size_t i = 0; gathers && i < C; i++)
		lane[i] = (uint16_t)(channels[i] << KVI_PROB_BITS | channels[C + i]);
	*w = (struct exponent_work){
		.kernels = coder->kernels,
		.job = job,
		.tables = kvi_freqs_tables(coder, &p->freqs, KVI_EXP_SYMBOLS, lut),
		.channels = C,
		.ring = ring,
		.table = channels,
		.top = channels + C,
		.lane = gathers ? lane : NULL,
		.buffers = buffers,
	};
	return w->tables != NULL;
}

static void begin_parts(void *opaque, size_t rows, size_t last)
{
	struct exponent_work *w = opaque;
	if (w->lane) {
		w->tab_rings = kvi_rings_make(rows, last, w->channels, sizeof *w->lane, w->lane,
		                              w->buffers, w->ring);
		return;
	}
	w->tab_rings = kvi_rings_make(rows, last, w->channels, 1, w->table, w->buffers, w->ring);
	w->top_rings = kvi_rings_make(rows, last, w->channels, 1, w->top, w->buffers + 2 * w->ring,
	                              w->ring);
}

/* The kernels' job for a part. */
static struct kvi_exp_job job_of(const struct exponent_work *w, const struct kvi_stream_part *part)
{
	const struct kvi_ring *tab = kvi_rings_of(&w->tab_rings, part->rows);
	struct kvi_exp_job job = {
		.steps = kvi_element_steps(part->rows * w->channels),
		.tables = w->tables,
		.tab_steps = tab->steps,
		.rest = w->merges ? w->planes.values[0] + part->first * w->channels : NULL,
	};
	if (w->lane) {
		job.lane = tab->full;
		job.lane_tail = tab->tail;
		return job;
	}
	const struct kvi_ring *top = kvi_rings_of(&w->top_rings, part->rows);
	job.tab = tab->full;
	job.tab_tail = tab->tail;
	job.top = top->full;
	job.top_tail = top->tail;
	return job;
}

static size_t encode_part(void *opaque, const struct kvi_stream_part *part, uint16_t *end,
                          uint32_t state[KVI_LANES])
{
	const struct exponent_work *w = opaque;
	const struct kvi_exp_job e = job_of(w, part);
	return w->kernels->coding.exp_encode(&e, w->fields + part->first * w->channels, end, state);
}

static void encode_two(void *opaque, const struct kvi_stream_part part[2], uint16_t *const end[2],
                       size_t n[2], uint32_t *const state[2])
{
	const struct exponent_work *w = opaque;
	const struct kvi_exp_job e[2] = { job_of(w, &part[0]), job_of(w, &part[1]) };
	w->kernels->coding.exp_encode2(
		(const struct kvi_exp_job *const[2]){ &e[0], &e[1] },
		(const uint8_t *const[2]){ w->fields + part[0].first * w->channels,
	                                   w->fields + part[1].first * w->channels },
		end, n, state);
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	size_t n = kvi_mask_elements(&job->mask);
	struct exponent_work w;
	if (!open_work(coder, job, false, &w))
		return kvi_alloc_error(coder->alloc);
	w.fields = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, n);
	out->end = w.fields ? kvi_exponent_split(coder, job->chunk->dtype, job->packed, n, w.fields,
	                                         out->words)
	                    : NULL;
	if (!out->end)
		return kvi_alloc_error(coder->alloc);
	const struct kvi_streams_encoder e = {
		.opaque = &w,
		.part = encode_part,
		.two = coder->kernels->coding.exp_encode2 ? encode_two : NULL,
		.begin = begin_parts,
		.trial = kvi_ring_trial(w.channels),
		.token_words = EXPONENT_WORDS * w.channels,
		.plane_bytes = (size_t)(out->end - out->words),
	};
	out->streams.rows = job->mask.rows;
	out->begin = kvi_streams_encode(coder->pool, &out->streams, &e, out->words);
	return KVARC_OK;
}

/* The position at which the kernel writes a part. */
static void *place_of(const struct exponent_work *w, const struct kvi_stream_part *part)
{
	size_t at = part->first * w->channels;
	return w->merges ? (void *)((uint16_t *)w->elements + at) : (void *)(w->fields + at);
}

static bool decode_one(const struct exponent_work *w, const struct kvi_stream_part *part,
                       const struct kvi_stream *in)
{
	const struct kvi_exp_job e = job_of(w, part);
	return w->kernels->coding.exp_decode(&e, in, place_of(w, part));
}

/* Two streams, or four. */
static bool decode_many(const struct exponent_work *w, const struct kvi_stream_part *part,
                        const struct kvi_stream *in, unsigned n)
{
	struct kvi_exp_job e[AT_ONCE];
	const struct kvi_exp_job *job[AT_ONCE];
	const struct kvi_stream *stream[AT_ONCE];
	void *out[AT_ONCE];
	bool ok[AT_ONCE], all = true;
	for (unsigned i = 0; i < n; i++) {
		e[i] = job_of(w, &part[i]);
		job[i] = &e[i];
		stream[i] = &in[i];
		out[i] = place_of(w, &part[i]);
	}
	(n == 2 ? w->kernels->coding.exp_decode2 : w->kernels->coding.exp_decode4)(job, stream, out,
	                                                                           ok);
	for (unsigned i = 0; i < n; i++)
		all = all && ok[i];
	return all;
}

/* The elements of a part to the job's `decoded`. */
static bool place(const struct exponent_work *w, const struct kvi_stream_part *part)
{
	const unsigned dtype = w->job->chunk->dtype;
	const size_t at = part->first * w->channels, n = part->rows * w->channels;
	if (!w->merges &&
	    !kvi_exponent_merge(w->kernels, dtype, w->fields, &w->planes, at, n, w->elements))
		return false;
	if (kvarc_dtype_bytes(dtype) == 2)
		kvi_elements16_done((const uint16_t *)w->elements + at, w->job->decoded + 2 * at,
		                    n);
	return true;
}

/* Decodes up to four streams (kvi_streams_decoder.some). */
static bool decode_some(void *opaque, unsigned first, unsigned n)
{
	const struct exponent_work *w = opaque;
	const struct kvi_stream *in = w->job->streams_in->stream + first;
	struct kvi_stream_part p[AT_ONCE];
	bool ok = true;
	for (unsigned i = 0; i < n; i++)
		p[i] = kvi_stream_part_of(&w->job->streams, first + i);
	for (unsigned i = 0, some; i < n && ok; i += some) {
		some = n - i == AT_ONCE ? AT_ONCE : n - i > 1 ? 2 : 1;
		ok = some == 1 ? decode_one(w, p + i, in + i) : decode_many(w, p + i, in + i, some);
	}
	for (unsigned i = 0; i < n && ok; i++)
		ok = place(w, &p[i]);
	return ok;
}

/* Two where others help: a woken thread comes too late for the second of two large pieces. */
static unsigned streams_at_once(const struct kvi_coder *coder)
{
	if (coder->kernels->coding.exp_decode4 && !kvi_pool_idle(coder->pool))
		return AT_ONCE;
	return coder->kernels->coding.exp_decode2 ? 2 : 1;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	const size_t n = kvi_mask_elements(&job->mask);
	const unsigned dtype = job->chunk->dtype;
	struct exponent_work w;
	if (!open_work(coder, job, true, &w))
		return kvi_alloc_error(coder->alloc);
	w.merges = dtype == KVARC_BF16 && kvi_exp_merges(coder->kernels, w.tables->n_tables);
	w.elements = kvi_exponent_buffer(coder, dtype, job->decoded, n);
	w.fields = w.merges ? NULL : kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, n);
	if (!w.elements || (!w.merges && !w.fields))
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = kvi_exponent_planes_get(coder, dtype, n, in, &w.planes);
	if (ret)
		return ret;
	const struct kvi_streams_decoder d = {
		.opaque = &w,
		.some = decode_some,
		.most = streams_at_once(coder),
	};
	begin_parts(&w, kvi_stream_part_of(&job->streams, 0).rows,
	            kvi_stream_part_of(&job->streams, job->streams.n - 1).rows);
	return kvi_streams_decode(coder, job, &d);
}

const struct kvi_codec kvi_codec_exponent = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = serialise,
	.fit = kvi_exponent_fit,
	.words_each = EXPONENT_WORDS,
	.plane_bits = plane_bits,
	.encode = encode,
	.decode = decode,
};
