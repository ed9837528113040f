/* SPDX-License-Identifier: BSD-3-Clause */
/* near.c - codec 10: no element farther off than a bound, as codec 5 (spec near) */
#include <math.h>

#include "codecs/grid/grid.h"
#include "codecs/lossy/lossy_codec.h"
#include "codecs/lossy/quantiser.h"
#include "codecs/lossy/quantiser_scales.h"
#include "codecs/near/near.h"

enum { TOKENS_MIN = 8, K_MAX = 400, HEAD = 2, WORDS_EACH = 3, SPARE_WORDS = 64 };

/* What the grid codec is given: a chunk without a mask, and its parameters in units of 2^F. */
struct near_work {
	struct kvi_lattice lattice;
	struct kvi_coder_job job;
	struct kvi_params scaled;
	struct kvi_mask_run all;
	struct kvi_grid_job grid;
	size_t n;
};

static struct kvi_coder_job job_of(struct kvi_coder *c, const struct kvi_lossy_job *job,
                                   struct kvi_mask_run *all)
{
	const struct kvi_chunk *chunk = &job->chunk;
	const size_t C = kvi_chunk_channels(chunk);
	*all = (struct kvi_mask_run){ 0, (uint32_t)C };
	return (struct kvi_coder_job){ .chunk = chunk,
		                       .raw = job->elements,
		                       .packed = job->elements,
		                       .params = job->params,
		                       .mask = { .T = chunk->n_tokens,
		                                 .C = C,
		                                 .rows = chunk->n_tokens,
		                                 .channels = C,
		                                 .size = (unsigned)kvarc_dtype_bytes(chunk->dtype),
		                                 .runs = all,
		                                 .n_runs = 1 },
		                       .lanes = { c->kernels, chunk->n_tokens, C,
		                                  job->lane_order } };
}

/* Returns OK, MEM, MEMLIMIT, DATA. */
static kvarc_ret open_work(struct near_work *w, struct kvi_coder *c,
                           const struct kvi_lossy_job *job, int exponent)
{
	const struct kvi_params *p = job->params;
	const size_t C = kvi_chunk_channels(&job->chunk);
	if (!kvi_lattice_make(&w->lattice, job->chunk.dtype, exponent))
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
	w->job = job_of(c, job, &w->all);
	w->job.params = &w->scaled;
	w->n = kvi_mask_elements(&w->job.mask);
	return kvi_grid_contexts(c, &w->job, w->lattice.fmt, &w->grid);
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	kvarc_ret ret = kvi_codec_grid.parse(alloc, shape, in, out);
	if (!ret)
		(*out)->codec = KVI_CODEC_NEAR;
	return ret;
}

static void serialise(const struct kvi_params *p, struct kvi_out *out)
{
	kvi_codec_grid.serialise(p, out);
}

static kvarc_ret fit(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_params **out)
{
	struct kvi_mask_run all;
	struct kvi_coder_job exact = job_of(c, job, &all);
	if (job->chunk.n_tokens < TOKENS_MIN)
		return KVARC_END;
	kvarc_ret ret = kvi_grid_fit(c, &exact, out);
	if (!ret)
		(*out)->codec = KVI_CODEC_NEAR;
	return ret;
}

/* The greatest error of a chunk; 0: it is all zeros. */
static double bound_of(const struct kvi_lossy_job *job)
{
	enum { UNITS = 1000000000 };
	const struct kvi_chunk *chunk = &job->chunk;
	const size_t n = kvi_chunk_channels(chunk) * chunk->n_tokens;
	double sum = kvi_lossy_squares(chunk->dtype, job->elements, n);
	int keys = chunk->kind == KVARC_KEY ? job->tier->key_rate : 0;
	return sqrt(sum / (double)n) * (double)job->tier->max_error / UNITS *
	       (double)kvi_power_of(-keys);
}

/* Codes token after token, and job->decoded; whether no token is refused. */
static bool analyse(const struct near_work *w, const struct kvi_lossy_job *job, uint16_t *codes)
{
	const size_t C = w->job.mask.C, row = C * w->lattice.size;
	bool all = true;
	for (size_t t = 0; t < w->job.mask.T; t++) {
		bool ok = kvi_lattice_codes(&w->lattice, job->elements + t * row, C, codes + t * C);
		job->refused[t] = !ok;
		all = all && ok;
	}
	if (all)
		kvi_lattice_elements(&w->lattice, codes, w->n, job->decoded);
	return all;
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_out *body,
                        bool *refused)
{
	struct near_work w;
	const double most = bound_of(job);
	if (!(most > 0))
		return KVARC_END;
	kvarc_ret ret = open_work(&w, c, job, kvi_lattice_exponent(job->chunk.dtype, most));
	if (ret)
		return ret;
	size_t capacity = KVI_STREAM_HEAD + 2 * (WORDS_EACH * w.n + SPARE_WORDS);
	uint16_t *codes = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, 2 * w.n * sizeof *codes);
	uint8_t *end = kvi_scratch(c, KVI_SCRATCH_OUT, capacity);
	if (!codes || !end)
		return kvi_alloc_error(c->alloc);
	end += capacity & ~(size_t)1;
	*refused = !analyse(&w, job, codes);
	if (*refused)
		return KVARC_OK;
	if (w.job.lanes.order == KVI_LANES_TOKENS) {
		kvi_lanes_to16(&w.job.lanes, codes, codes + w.n);
		codes += w.n;
	}
	struct kvi_payload out = { .words = end };
	uint32_t state[KVI_LANES];
	size_t words = c->kernels->grid_encode(&w.grid, codes, (uint16_t *)(void *)end, state);
	kvi_stream_put(&out, words, state);
	kvi_put16(body, (uint16_t)(int16_t)w.lattice.exponent);
	kvi_put_bytes(body, out.begin, (size_t)(end - out.begin));
	return KVARC_OK;
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_in *in)
{
	struct near_work w;
	struct kvi_stream s;
	int exponent = (int16_t)kvi_get16(in);
	if (in->bad || !kvi_stream_get(in, &s))
		return KVARC_DATA;
	kvarc_ret ret = open_work(&w, c, job, exponent);
	if (ret)
		return ret;
	uint16_t *codes = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, 2 * w.n * sizeof *codes);
	if (!codes)
		return kvi_alloc_error(c->alloc);
	if (!c->kernels->grid_decode(&w.grid, &s, codes))
		return KVARC_DATA;
	if (w.job.lanes.order == KVI_LANES_TOKENS) {
		kvi_lanes_from16(&w.job.lanes, codes, codes + w.n);
		codes += w.n;
	}
	kvi_lattice_elements(&w.lattice, codes, w.n, job->decoded);
	return KVARC_OK;
}

static bool takes(const kvarc_lossy *tier, const struct kvi_chunk *chunk)
{
	return tier->max_error &&
	       (chunk->kind == KVARC_KEY || chunk->kind == KVARC_VALUE ||
	        chunk->kind == KVARC_CROSS_KEY || chunk->kind == KVARC_CROSS_VALUE);
}

const struct kvi_lossy_codec kvi_lossy_near = { parse, serialise, fit, takes, encode, decode };
