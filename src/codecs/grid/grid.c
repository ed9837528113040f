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

kvarc_ret kvi_grid_stream_put(struct kvi_coder *c, const struct kvi_lanes *l,
                              const struct kvi_grid_job *g, const uint16_t *elements,
                              struct kvi_payload *out)
{
	uint32_t state[KVI_LANES];
	if (l->order == KVI_LANES_TOKENS) {
		uint16_t *lane = kvi_scratch(c, KVI_SCRATCH_PLANE,
		                             l->rows * l->channels * sizeof *lane);
		if (!lane)
			return kvi_alloc_error(c->alloc);
		kvi_lanes_to16(l, elements, lane);
		elements = lane;
	}
	size_t words = c->kernels->grid_encode(g, elements, (uint16_t *)(void *)out->words, state);
	kvi_stream_put(out, words, state);
	return KVARC_OK;
}

kvarc_ret kvi_grid_stream_get(struct kvi_coder *c, const struct kvi_lanes *l,
                              const struct kvi_grid_job *g, struct kvi_in *in, uint16_t *elements)
{
	struct kvi_stream s;
	uint16_t *lane = elements;
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	if (l->order == KVI_LANES_TOKENS)
		lane = kvi_scratch(c, KVI_SCRATCH_PLANE, l->rows * l->channels * sizeof *lane);
	if (!lane)
		return kvi_alloc_error(c->alloc);
	if (!c->kernels->grid_decode(g, &s, lane))
		return KVARC_DATA;
	if (lane != elements)
		kvi_lanes_from16(l, lane, elements);
	return KVARC_OK;
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

static kvarc_ret contexts(struct kvi_coder *c, const struct kvi_coder_job *job,
                          struct kvi_grid_job *g)
{
	return kvi_grid_contexts(c, job, kvi_grid_params_of(job->params),
	                         &kvi_float_format(job->chunk->dtype)->grid, g);
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	size_t n = kvi_mask_elements(&job->mask);
	unsigned dtype = job->chunk->dtype;
	struct kvi_grid_job g;
	const uint16_t *e = kvi_coded_elements(c, dtype, job->packed, n);
	kvarc_ret ret = e ? contexts(c, job, &g) : kvi_alloc_error(c->alloc);
	if (!ret)
		ret = kvi_grid_stream_put(c, &job->lanes, &g, e, out);
	if (!ret)
		out->end = kvi_coded_planes(c, dtype, job->packed, n, out->words);
	return ret;
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	size_t n = kvi_mask_elements(&job->mask);
	unsigned dtype = job->chunk->dtype;
	struct kvi_grid_job g;
	uint16_t *e = kvi_coded_buffer(c, dtype, job->decoded, n);
	kvarc_ret ret = e ? contexts(c, job, &g) : kvi_alloc_error(c->alloc);
	if (!ret)
		ret = kvi_grid_stream_get(c, &job->lanes, &g, in, e);
	return ret ? ret : kvi_coded_place(c, dtype, e, n, in, job->decoded);
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
