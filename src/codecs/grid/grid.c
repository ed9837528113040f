/* SPDX-License-Identifier: BSD-3-Clause */
/* grid.c - codec 5: distances on a linear grid and raw bits (spec grid) */
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

static kvarc_ret check(const struct kvi_params *p)
{
	size_t C = kvi_params_channels(p);
	for (size_t c = 0; c < C; c++)
		if (p->k[c] < -K_LIMIT || p->k[c] > K_LIMIT)
			return KVARC_DATA;
	for (size_t c = 0; c < C; c++)
		if (p->set[c] >= KVI_GRID_SETS)
			return KVARC_OPTIONS;
	return KVARC_OK;
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	size_t C = kvi_chunk_channels(shape);
	unsigned flags = kvi_get8(in);
	const uint8_t *set = kvi_get_bytes(in, C);
	const uint8_t *k = kvi_get_bytes(in, 2 * C);
	const uint8_t *mean = kvi_get_bytes(in, 2 * C);
	if (in->bad || flags & ~(unsigned)FLAG_ROTATE ||
	    (flags & FLAG_ROTATE && (!shape->rope || shape->rope->rotary > shape->head_channels)))
		return KVARC_DATA;
	struct kvi_params *p = kvi_params_new(alloc, KVI_CODEC_GRID, shape, 0, 0);
	if (!p)
		return kvi_alloc_error(alloc);
	p->rotate = flags & FLAG_ROTATE;
	memcpy(p->set, set, C);
	get_planes(p->k, C, k);
	get_planes(p->mean, C, mean);
	kvarc_ret ret = check(p);
	if (ret) {
		kvi_params_free(p);
		return ret;
	}
	kvi_grid_params_finish(p);
	*out = p;
	return KVARC_OK;
}

static void serialise(const struct kvi_params *p, struct kvi_out *out)
{
	size_t C = kvi_params_channels(p);
	kvi_put8(out, p->rotate ? FLAG_ROTATE : 0);
	kvi_put_bytes(out, p->set, C);
	put_planes(out, p->k, C);
	put_planes(out, p->mean, C);
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	size_t n = kvi_mask_elements(&job->mask);
	unsigned dtype = job->chunk->dtype;
	struct kvi_grid_job g;
	uint32_t state[KVI_LANES];
	const uint16_t *e = kvi_coded_elements(c, dtype, job->packed, n);
	if (!e)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = kvi_grid_contexts(c, job, &kvi_float_format(dtype)->grid, &g);
	if (ret)
		return ret;
	if (job->lanes.order == KVI_LANES_TOKENS) {
		uint16_t *lane = kvi_scratch(c, KVI_SCRATCH_PLANE, n * sizeof *lane);
		if (!lane)
			return kvi_alloc_error(c->alloc);
		kvi_lanes_to16(&job->lanes, e, lane);
		e = lane;
	}
	size_t words = c->kernels->grid_encode(&g, e, (uint16_t *)(void *)out->words, state);
	out->end = kvi_coded_planes(c, dtype, job->packed, n, out->words);
	kvi_stream_put(out, words, state);
	return KVARC_OK;
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in,
                        uint8_t *packed)
{
	size_t n = kvi_mask_elements(&job->mask);
	unsigned dtype = job->chunk->dtype;
	struct kvi_grid_job g;
	struct kvi_stream s;
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	kvarc_ret ret = kvi_grid_contexts(c, job, &kvi_float_format(dtype)->grid, &g);
	if (ret)
		return ret;
	uint16_t *e = kvi_coded_buffer(c, dtype, packed, n);
	uint16_t *lane = e;
	if (job->lanes.order == KVI_LANES_TOKENS)
		lane = kvi_scratch(c, KVI_SCRATCH_PLANE, n * sizeof *lane);
	if (!e || !lane)
		return kvi_alloc_error(c->alloc);
	if (!c->kernels->grid_decode(&g, &s, lane))
		return KVARC_DATA;
	if (lane != e)
		kvi_lanes_from16(&job->lanes, lane, e);
	return kvi_coded_place(c, dtype, e, n, in, packed);
}

const struct kvi_codec kvi_codec_grid = {
	"grid", kvi_coded_planes_capacity, parse, serialise, kvi_grid_fit, encode, decode
};
