/* SPDX-License-Identifier: BSD-3-Clause */
/* grid.c - the grid codec: distances on a linear grid and raw bits (spec grid) */
#include "grid.h"

#include "grid_sets.h"

#include "tables/grid_sets.inc"

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

struct kvi_grid_params *kvi_grid_params_new(const struct kvi_alloc *alloc, uint8_t codec,
                                            const struct kvi_chunk *shape)
{
	size_t C = kvi_chunk_channels(shape);
	size_t each = sizeof(uint32_t) + 2 * sizeof(int16_t) + 1;
	struct kvi_grid_params *p;
	p = kvi_params_new(alloc, codec, shape, sizeof *p + C * each, 0);
	if (!p)
		return NULL;
	p->ctx = (uint32_t *)(void *)(p + 1);
	p->k = (int16_t *)(void *)(p->ctx + C);
	p->mean = p->k + C;
	p->set = (uint8_t *)(p->mean + C);
	return p;
}

static kvarc_ret check(const struct kvi_grid_params *p)
{
	size_t C = kvi_params_channels(&p->common);
	for (size_t c = 0; c < C; c++)
		if (p->k[c] < -K_LIMIT || p->k[c] > K_LIMIT)
			return KVARC_DATA;
	for (size_t c = 0; c < C; c++)
		if (p->set[c] >= KVI_GRID_SETS)
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

void kvi_grid_params_serialise(const struct kvi_params *p, struct kvi_out *out)
{
	const struct kvi_grid_params *g = kvi_grid_params_of(p);
	size_t C = kvi_params_channels(p);
	kvi_put8(out, p->rotates ? FLAG_ROTATE : 0);
	kvi_put_bytes(out, g->set, C);
	put_planes(out, g->k, C);
	put_planes(out, g->mean, C);
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	return kvi_grid_params_parse(alloc, KVI_CODEC_GRID, shape, in, out);
}

static kvarc_ret fit(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_params **out)
{
	return kvi_grid_params_fit(c, KVI_CODEC_GRID, job, out);
}

/* The streams of a chunk on their way in or out. */
struct grid_work {
	const struct kvi_kernels *kernels;
	struct kvi_grid_contexts x;
	uint16_t *elements; /* token-major; encoders only read them */
};

static kvarc_ret open_work(struct kvi_coder *c, const struct kvi_coder_job *job,
                           struct grid_work *w)
{
	w->kernels = c->kernels;
	return kvi_grid_contexts_open(c, job, kvi_grid_params_of(job->params),
	                              &kvi_float_format(job->chunk->dtype)->grid, &w->x);
}

static size_t encode_part(void *opaque, const struct kvi_stream_part *p, uint16_t *end,
                          uint32_t state[KVI_LANES])
{
	const struct grid_work *w = opaque;
	const struct kvi_grid_job g = kvi_grid_part(&w->x, p, 0);
	return w->kernels->grid_encode(&g, w->elements + p->first * w->x.channels, end, state);
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	const size_t n = kvi_mask_elements(&job->mask);
	const unsigned dtype = job->chunk->dtype;
	struct grid_work w;
	w.elements = (uint16_t *)(uintptr_t)kvi_coded_elements(c, dtype, job->packed, n);
	kvarc_ret ret = w.elements ? open_work(c, job, &w) : kvi_alloc_error(c->alloc);
	if (ret)
		return ret;
	out->end = kvi_coded_planes(c, dtype, job->packed, n, out->words);
	const struct kvi_streams_encoder e = {
		.opaque = &w,
		.part = encode_part,
		.trial = kvi_ring_trial(w.x.channels),
		.plane_bytes = (size_t)(out->end - out->words),
	};
	out->streams.rows = job->mask.rows;
	out->begin = kvi_streams_encode(&out->streams, &e, out->words);
	return KVARC_OK;
}

static bool decode_part(void *opaque, const struct kvi_stream_part *p, const struct kvi_stream *in)
{
	const struct grid_work *w = opaque;
	const struct kvi_grid_job g = kvi_grid_part(&w->x, p, 0);
	return w->kernels->grid_decode(&g, in, w->elements + p->first * w->x.channels);
}

static void decode_two(void *opaque, const struct kvi_stream_part p[2],
                       const struct kvi_stream in[2], bool ok[2])
{
	const struct grid_work *w = opaque;
	const size_t C = w->x.channels;
	const struct kvi_grid_job g[2] = { kvi_grid_part(&w->x, &p[0], 0),
		                           kvi_grid_part(&w->x, &p[1], 1) };
	w->kernels->grid_decode2(
		(const struct kvi_grid_job *const[2]){ &g[0], &g[1] },
		(const struct kvi_stream *const[2]){ &in[0], &in[1] },
		(uint16_t *const[2]){ w->elements + p[0].first * C, w->elements + p[1].first * C },
		ok);
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	const size_t n = kvi_mask_elements(&job->mask);
	const unsigned dtype = job->chunk->dtype;
	struct grid_work w;
	const struct kvi_streams_decoder d = {
		.opaque = &w,
		.one = decode_part,
		.two = c->kernels->grid_decode2 ? decode_two : NULL,
	};
	w.elements = kvi_coded_buffer(c, dtype, job->decoded, n);
	kvarc_ret ret = w.elements ? open_work(c, job, &w) : kvi_alloc_error(c->alloc);
	if (ret)
		return ret;
	if (!kvi_streams_decode(&job->streams, job->streams_in, &d))
		return KVARC_DATA;
	return kvi_coded_place(c, dtype, w.elements, n, in, job->decoded);
}

const struct kvi_codec kvi_codec_grid = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = kvi_grid_params_serialise,
	.fit = fit,
	.words_each = KVI_GRID_WORDS,
	.plane_bits = kvi_coded_plane_bits,
	.encode = encode,
	.decode = decode,
};
