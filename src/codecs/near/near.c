/* SPDX-License-Identifier: BSD-3-Clause */
/* near.c - the codec near: a bound on the error of each element, coded as grid (spec near) */
#include <math.h>

#include "codecs/grid/grid.h"
#include "codecs/lossy/lossy_codec.h"
#include "codecs/lossy/quantiser.h"
#include "codecs/lossy/quantiser_scales.h"
#include "codecs/near/near.h"

enum { TOKENS_MIN = 8, K_MAX = 400, SPARE_WORDS = 64 };

/* Parameters in units of 2^F, and the lattice that elements are rounded to. */
struct near_work {
	struct kvi_lattice lattice;
	struct kvi_grid_params scaled;
	struct kvi_grid_job grid;
	size_t n;
};

/* Returns OK, MEM, MEMLIMIT, DATA. */
static kvarc_ret open_work(struct near_work *w, struct kvi_coder *c,
                           const struct kvi_coder_job *job, int exponent)
{
	const struct kvi_grid_params *p = kvi_grid_params_of(job->params);
	const size_t C = kvi_chunk_channels(job->chunk);
	if (!kvi_lattice_make(&w->lattice, job->chunk->dtype, exponent))
		return KVARC_DATA;
	uint32_t *ctx = kvi_scratch(c, KVI_SCRATCH_COEFFICIENTS, C * (sizeof *ctx + sizeof *p->k));
	if (!ctx)
		return kvi_alloc_error(c->alloc);
	w->scaled = *p;
	w->scaled.ctx = ctx;
	w->scaled.k = (int16_t *)(void *)(ctx + C);
	for (size_t i = 0; i < C; i++) {
		int k = p->k[i] - 4 * exponent;
		w->scaled.k[i] = (int16_t)(k > K_MAX ? K_MAX : k < -K_MAX ? -K_MAX : k);
	}
	kvi_grid_fixed_contexts(&w->scaled, w->lattice.fmt, ctx);
	w->n = kvi_mask_elements(&job->mask);
	return kvi_grid_token_job(c, job, &w->scaled, w->lattice.fmt, &w->grid);
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	return kvi_grid_params_parse(alloc, KVI_CODEC_NEAR, shape, in, out);
}

static kvarc_ret fit(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_params **out)
{
	return job->chunk->n_tokens < TOKENS_MIN ? KVARC_END
	                                         : kvi_grid_params_fit(c, KVI_CODEC_NEAR, job, out);
}

/* The greatest error of a chunk; 0: it is all zeros. */
static double bound_of(const struct kvi_coder_job *job)
{
	enum { UNITS = 1000000000 };
	const struct kvi_chunk *chunk = job->chunk;
	const size_t n = kvi_chunk_channels(chunk) * chunk->n_tokens;
	double sum = kvi_lossy_squares(chunk->dtype, job->packed, n);
	int keys = chunk->kind == KVARC_KEY ? job->tier->key_rate : 0;
	return sqrt(sum / (double)n) * (double)job->tier->params.bound.max_error / UNITS *
	       (double)kvi_power_of(-keys);
}

/* Codes of all tokens, and job->decoded; true: some tokens are refused instead. */
static bool analyse(const struct near_work *w, const struct kvi_coder_job *job, uint16_t *codes)
{
	const size_t C = job->mask.C, row = C * w->lattice.size;
	bool refused = false;
	for (size_t t = 0; t < job->mask.T; t++) {
		job->refused[t] = !kvi_lattice_codes(&w->lattice, job->packed + t * row, C,
		                                     codes + t * C);
		refused = refused || job->refused[t];
	}
	if (!refused)
		kvi_lattice_elements(&w->lattice, codes, w->n, job->decoded);
	return refused;
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct near_work w;
	const double most = bound_of(job);
	if (!(most > 0))
		return KVARC_END;
	kvarc_ret ret = open_work(&w, c, job, kvi_lattice_exponent(job->chunk->dtype, most));
	if (ret)
		return ret;
	uint16_t *codes = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, w.n * sizeof *codes);
	uint16_t *lane = kvi_scratch(c, KVI_SCRATCH_PLANE, w.n * sizeof *lane);
	uint8_t *end = kvi_scratch_end(c, KVI_SCRATCH_OUT,
	                               KVI_STREAM_HEAD + 2 * (KVI_GRID_WORDS * w.n + SPARE_WORDS));
	uint32_t state[KVI_LANES];
	if (!codes || !lane || !end)
		return kvi_alloc_error(c->alloc);
	out->refused = analyse(&w, job, codes);
	if (out->refused)
		return KVARC_OK;
	kvi_lanes_to16(&job->lanes, codes, lane);
	size_t words = c->kernels->grid_encode(&w.grid, lane, (uint16_t *)(void *)end, state);
	uint8_t *begin = kvi_stream_put(end, words, state);
	kvi_put16(out->body, (uint16_t)(int16_t)w.lattice.exponent);
	kvi_put_bytes(out->body, begin, (size_t)(end - begin));
	return KVARC_OK;
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct near_work w;
	struct kvi_stream s;
	int exponent = (int16_t)kvi_get16(in);
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	kvarc_ret ret = open_work(&w, c, job, exponent);
	if (ret)
		return ret;
	uint16_t *codes = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, w.n * sizeof *codes);
	uint16_t *lane = kvi_scratch(c, KVI_SCRATCH_PLANE, w.n * sizeof *lane);
	if (!codes || !lane)
		return kvi_alloc_error(c->alloc);
	if (!c->kernels->grid_decode(&w.grid, &s, lane))
		return KVARC_DATA;
	kvi_lanes_from16(&job->lanes, lane, codes);
	kvi_lattice_elements(&w.lattice, codes, w.n, job->decoded);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_near = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = kvi_grid_params_serialise,
	.fit = fit,
	.encode = encode,
	.decode = decode,
};
