/* SPDX-License-Identifier: BSD-3-Clause */
/* grid.c - the grid codec: distances on a linear grid and raw bits (spec grid) */
#include "grid.h"

#include "grid_sets.h"

enum { FLAG_ROTATE = 1, K_LIMIT = 400 };

/* Planes of low and high bytes of 16-bit numbers (spec grid 1). */
static void get_planes(int16_t *v, size_t n, const uint8_t *low)
{
	for (size_t i = 0; i < n; i++)
		v[i] = (int16_t)(low[i] | low[n + i] << 8);
}

static void put_planes(struct kvi_out *out, const int16_t *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		kvi_put8(out, (uint8_t)v[i]);
	for (size_t i = 0; i < n; i++)
		kvi_put8(out, (uint8_t)((uint16_t)v[i] >> 8));
}

static kvarc_ret check(const struct kvi_grid_params *params)
{
	size_t C = kvi_params_channels(&params->common);
	for (size_t c = 0; c < C; c++)
		if (params->k[c] < -K_LIMIT || params->k[c] > K_LIMIT)
			return KVARC_DATA;
	for (size_t c = 0; c < C; c++)
		if (params->set[c] >= KVI_GRID_SETS)
			return KVARC_OPTIONS;
	return KVARC_OK;
}

kvarc_ret kvi_grid_params_parse(const struct kvi_alloc *alloc, uint8_t codec,
                                const struct kvi_chunk *shape, struct kvi_in *in,
                                struct kvi_params **out)
{
	size_t C = kvi_chunk_channels(shape);
	unsigned flags = kvi_get8(in);
	const uint8_t *set = kvi_get_bytes(in, C);
	const uint8_t *k = kvi_get_bytes(in, 2 * C);
	const uint8_t *mean = kvi_get_bytes(in, 2 * C);
	if (in->bad || flags & ~(unsigned)FLAG_ROTATE ||
	    (flags & FLAG_ROTATE && (!shape->rope || shape->rope->rotary > shape->head_channels)))
		return KVARC_DATA;
	struct kvi_grid_params *p = kvi_grid_params_new(alloc, codec, shape);
	if (!p)
		return kvi_alloc_error(alloc);
	p->common.rotates = flags & FLAG_ROTATE;
	memcpy(p->set, set, C);
	get_planes(p->k, C, k);
	get_planes(p->mean, C, mean);
	kvarc_ret ret = check(p);
	if (ret) {
		kvi_params_free(&p->common);
		return ret;
	}
	kvi_grid_params_finish(p);
	*out = &p->common;
	return KVARC_OK;
}

void kvi_grid_params_serialise(const struct kvi_params *params, struct kvi_out *out)
{
	const struct kvi_grid_params *g = kvi_grid_params_of(params);
	size_t C = kvi_params_channels(params);
	kvi_put8(out, params->rotates ? FLAG_ROTATE : 0);
	kvi_put_bytes(out, g->set, C);
	put_planes(out, g->k, C);
	put_planes(out, g->mean, C);
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	return kvi_grid_params_parse(alloc, KVI_CODEC_GRID, shape, in, out);
}

static kvarc_ret fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                     struct kvi_params **out)
{
	return kvi_grid_params_fit(coder, KVI_CODEC_GRID, job, out);
}

/* The streams of a chunk on their way in or out. */
struct grid_work {
	const struct kvi_kernels *kernels;
	const struct kvi_coder_job *job;
	struct kvi_grid_contexts x;
	uint16_t *elements;             /* token-major; encoders only read them */
	struct kvi_coded_planes planes; /* decoders */
};

static void begin_parts(void *opaque, size_t rows, size_t last)
{
	struct grid_work *w = opaque;
	kvi_grid_contexts_cut(&w->x, rows, last);
}

/* Contexts of some tokens; a chunk has as many steps as it can have streams. */
static void fill_step(void *opaque, size_t i)
{
	const struct grid_work *w = opaque;
	const size_t first = i * KVI_LANES, left = w->job->mask.rows - first;
	const struct kvi_stream_part p = { first, left < KVI_LANES ? left : KVI_LANES };
	kvi_grid_contexts_fill(&w->x, &p, (unsigned)i);
}

static size_t encode_part(void *opaque, const struct kvi_stream_part *part, uint16_t *end,
                          uint32_t state[KVI_LANES])
{
	const struct grid_work *w = opaque;
	const struct kvi_grid_job g = kvi_grid_part(&w->x, part);
	return w->kernels->coding.grid_encode(&g, w->elements + part->first * w->x.channels, end,
	                                      state);
}

static void encode_two(void *opaque, const struct kvi_stream_part part[2], uint16_t *const end[2],
                       size_t n[2], uint32_t *const state[2])
{
	const struct grid_work *w = opaque;
	const size_t C = w->x.channels;
	const struct kvi_grid_job g[2] = { kvi_grid_part(&w->x, &part[0]),
		                           kvi_grid_part(&w->x, &part[1]) };
	w->kernels->coding.grid_encode2(
		(const struct kvi_grid_job *const[2]){ &g[0], &g[1] },
		(const uint16_t *const[2]){ w->elements + part[0].first * C,
	                                    w->elements + part[1].first * C },
		end, n, state);
}

kvarc_ret kvi_grid_encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                          const struct kvi_grid_contexts *contexts, uint8_t *planes,
                          struct kvi_payload *out)
{
	const size_t n = kvi_mask_elements(&job->mask);
	const unsigned dtype = job->chunk->dtype;
	struct grid_work w = { .kernels = coder->kernels, .job = job, .x = *contexts };
	w.elements = (uint16_t *)(uintptr_t)kvi_coded_elements(coder, dtype, job->packed, n);
	if (!w.elements)
		return kvi_alloc_error(coder->alloc);
	kvi_pool_loop(coder->pool, (job->mask.rows + KVI_LANES - 1) / KVI_LANES, fill_step, &w);
	out->end = kvi_coded_planes(coder, dtype, job->packed, n, planes);
	const struct kvi_streams_encoder e = {
		.opaque = &w,
		.part = encode_part,
		.two = coder->kernels->coding.grid_encode2 ? encode_two : NULL,
		.begin = begin_parts,
		.trial = kvi_ring_trial(w.x.channels),
		.token_words = KVI_GRID_WORDS * w.x.channels,
		.plane_bytes = (size_t)(out->end - out->words),
	};
	out->streams.rows = job->mask.rows;
	out->begin = kvi_streams_encode(coder->pool, &out->streams, &e, out->words);
	return KVARC_OK;
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct kvi_grid_contexts x;
	kvarc_ret ret = kvi_grid_contexts_open(coder, job, kvi_grid_params_of(job->params),
	                                       &kvi_float_format(job->chunk->dtype)->grid, &x);
	return ret ? ret : kvi_grid_encode(coder, job, &x, out->words, out);
}

static bool decode_two(const struct grid_work *w, const struct kvi_stream_part part[2],
                       const struct kvi_stream in[2])
{
	const size_t C = w->x.channels;
	const struct kvi_grid_job g[2] = { kvi_grid_part(&w->x, &part[0]),
		                           kvi_grid_part(&w->x, &part[1]) };
	bool ok[2];
	w->kernels->coding.grid_decode2((const struct kvi_grid_job *const[2]){ &g[0], &g[1] },
	                                (const struct kvi_stream *const[2]){ &in[0], &in[1] },
	                                (uint16_t *const[2]){ w->elements + part[0].first * C,
	                                                      w->elements + part[1].first * C },
	                                ok);
	return ok[0] && ok[1];
}

static bool decode_one(const struct grid_work *w, const struct kvi_stream_part *part,
                       const struct kvi_stream *in)
{
	const struct kvi_grid_job g = kvi_grid_part(&w->x, part);
	return w->kernels->coding.grid_decode(&g, in, w->elements + part->first * w->x.channels);
}

/* Decodes one stream or two (kvi_streams_decoder.some). */
static bool decode_some(void *opaque, unsigned first, unsigned n)
{
	const struct grid_work *w = opaque;
	const struct kvi_coder_job *job = w->job;
	const struct kvi_stream *in = job->streams_in->stream + first;
	const struct kvi_stream_part p[2] = { kvi_stream_part_of(&job->streams, first),
		                              kvi_stream_part_of(&job->streams, first + 1) };
	for (unsigned i = 0; i < n; i++)
		kvi_grid_contexts_fill(&w->x, &p[i], first + i);
	if (!(n == 2 ? decode_two(w, p, in) : decode_one(w, p, in)))
		return false;
	for (unsigned i = 0; i < n; i++)
		kvi_coded_place(job->chunk->dtype, w->elements, &w->planes,
		                p[i].first * w->x.channels, p[i].rows * w->x.channels,
		                job->decoded);
	return true;
}

kvarc_ret kvi_grid_decode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                          const struct kvi_grid_contexts *contexts, struct kvi_in *in)
{
	const size_t n = kvi_mask_elements(&job->mask);
	const unsigned dtype = job->chunk->dtype;
	struct grid_work w = { .kernels = coder->kernels, .job = job, .x = *contexts };
	if (!kvi_grid_decodes(coder))
		return kvi_alloc_error(coder->alloc);
	const struct kvi_streams_decoder d = {
		.opaque = &w,
		.some = decode_some,
		.most = coder->kernels->coding.grid_decode2 ? 2 : 1,
	};
	w.elements = kvi_coded_buffer(coder, dtype, job->decoded, n);
	if (!w.elements)
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = kvi_coded_planes_get(coder, dtype, n, in, &w.planes);
	if (ret)
		return ret;
	begin_parts(&w, kvi_stream_part_of(&job->streams, 0).rows,
	            kvi_stream_part_of(&job->streams, job->streams.n - 1).rows);
	return kvi_streams_decode(coder, job, &d);
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct kvi_grid_contexts x;
	kvarc_ret ret = kvi_grid_contexts_open(coder, job, kvi_grid_params_of(job->params),
	                                       &kvi_float_format(job->chunk->dtype)->grid, &x);
	return ret ? ret : kvi_grid_decode(coder, job, &x, in);
}

const struct kvi_codec kvi_codec_grid = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = kvi_grid_params_serialise,
	.fit = fit,
	.words_each = KVI_GRID_WORDS,
	.n_planes = kvi_coded_n_planes,
	.encode = encode,
	.decode = decode,
};
