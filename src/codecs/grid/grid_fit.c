/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_fit.c - mean and scale of each channel, from the chunk itself
 *
 * Floating point, but only + - * / and comparisons in a fixed order: every
 * machine fits the same parameters. Decoders use integers alone.
 */
#include "grid.h"

#include "kernels/fits.h"
#include "numeric/rotate.h"

enum { SAMPLE = KVI_FIT_SAMPLE, K_MIN = -400, K_MAX = 400, PASSES = 2, BLOCK = KVI_FIT_FLOATS };
/* Values farther from the mean than this many sigma do not count; the second
 * pass knows sigma better. */
static const float clip[PASSES] = { 8, 6 };

/*
 * Few tokens say little of their channels' means and scales: rounded to multiples of these, they
 * cost elements less than their last digits take as parameters.
 */
struct digits {
	int mean, scale;
};

static struct digits digits_of(size_t tokens)
{
	enum { FEWEST = 24, FEW = 128 };
	return tokens <= FEWEST ? (struct digits){ 8, 2 }
	       : tokens <= FEW  ? (struct digits){ 4, 1 }
	                        : (struct digits){ 1, 1 };
}

/*
 * Some heads of every step-th token of a chunk, rows x C floats, and the mean
 * and variance of their channels.
 */
struct fit {
	const struct kvi_kernels *kernels;
	size_t first_head, heads;
	size_t rows, C, step;
	struct digits digits;
	float *v;
	double *mean, *var;
	/* cosines and sines of the pairs of a rope at one position, converted from those of the
	 * tokens */
	float *turn;
	const struct kvi_token_turns *turns;
};

/*
 * Floats side by side: element-wise operations of one rounding each, the same
 * on every machine, which compilers turn into whatever vectors it has.
 */
typedef float lanes __attribute__((vector_size(BLOCK * sizeof(float))));

/* Removes RoPE from n pairs (a[i], b[i]), BLOCK at a time. */
static void unrotate_halves(size_t n, const float *cosine, const float *sine, float *a, float *b)
{
	for (size_t i = 0; i < n; i += BLOCK) {
		lanes x, y, c, s, u, v;
		memcpy(&x, a + i, sizeof x);
		memcpy(&y, b + i, sizeof y);
		memcpy(&c, cosine + i, sizeof c);
		memcpy(&s, sine + i, sizeof s);
		u = x * c + y * s;
		v = y * c - x * s;
		memcpy(a + i, &u, sizeof u);
		memcpy(b + i, &v, sizeof v);
	}
}

typedef float four __attribute__((vector_size(16)));
typedef int32_t four_masks __attribute__((vector_size(16)));

/* Removes RoPE from pairs of neighbours, two at a time. twice: cosines, each twice. sines: the
 * same, the second one less than 0. */
static void unrotate_neighbours(size_t pairs, const float *twice, const float *sines, float *v)
{
	for (size_t i = 0; i < 2 * pairs; i += 4) {
		four x, c, s;
		memcpy(&x, v + i, sizeof x);
		memcpy(&c, twice + i, sizeof c);
		memcpy(&s, sines + i, sizeof s);
		x = x * c + (four){ x[1], x[0], x[3], x[2] } * s;
		memcpy(v + i, &x, sizeof x);
	}
}

/* Removes RoPE from the pairs of token t. */
static void unrotate_row(const struct fit *fit, const kvarc_rope *rope, size_t t,
                         size_t head_channels, float *v)
{
	const size_t pairs = rope->rotary / 2;
	const uint32_t *turn = fit->turns->turn + t * pairs;
	const bool half = rope->pairing == KVARC_ROPE_HALF;
	const size_t done = half ? pairs / BLOCK * BLOCK : pairs / 2 * 2;
	float *cosine = fit->turn, *sine = fit->turn + 2 * pairs;
	for (size_t i = 0; i < pairs; i++) {
		const float c = (float)(int16_t)turn[i] * (1 / 16384.0f);
		const float s = (float)(int16_t)(turn[i] >> 16) * (1 / 16384.0f);
		if (half) {
			cosine[i] = c;
			sine[i] = s;
		} else {
			cosine[2 * i] = cosine[2 * i + 1] = c;
			sine[2 * i] = s;
			sine[2 * i + 1] = -s;
		}
	}
	const size_t step = half ? 1 : 2, other = half ? pairs : 1;
	for (size_t h = 0; h < fit->heads; h++, v += head_channels) {
		if (half)
			unrotate_halves(done, cosine, sine, v, v + pairs);
		else
			unrotate_neighbours(done, cosine, sine, v);
		float *a = v + done * step;
		for (size_t i = done; i < pairs; i++, a += step) {
			const float x = a[0], y = a[other], c = cosine[i * step];
			const float s = sine[i * step];
			a[0] = x * c + y * s;
			a[other] = y * c - x * s;
		}
	}
}

static double absolute(double v)
{
	return v < 0 ? -v : v;
}

/* floor(log2 v) and the mantissa in [1, 2) of a positive normal v. */
static int split_double(double v, double *mantissa)
{
	uint64_t b;
	memcpy(&b, &v, 8);
	int e = (int)(b >> 52 & 2047) - 1023;
	b = (b & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52;
	memcpy(mantissa, &b, 8);
	return e;
}

/* 2^e, |e| < 1000 */
static double power(int e)
{
	uint64_t b = (uint64_t)(e + 1023) << 52;
	double v;
	memcpy(&v, &b, 8);
	return v;
}

/* A first mean and variance that outliers do not move: median and quartiles
 * of a sample. */
static void start_block(struct fit *fit, size_t at)
{
	float s[SAMPLE][BLOCK];
	for (size_t i = 0; i < SAMPLE; i++) {
		const float *v = fit->v + i * fit->rows / SAMPLE * fit->C + at;
		for (size_t k = 0; k < BLOCK; k += 4) {
			four x;
			memcpy(&x, v + k, sizeof x);
			/* elements that are not finite count as 0 */
			x = (four)((four_masks)x & (x - x == 0));
			memcpy(s[i] + k, &x, sizeof x);
		}
	}
	fit->kernels->fits.sort_floats(s[0]);
	for (size_t i = 0; i < BLOCK; i++) {
		double lo = s[SAMPLE / 4][i], hi = s[SAMPLE * 3 / 4][i];
		double scale = (hi - lo) * 0.7413;
		if (!(scale > 0))
			scale = (double)s[SAMPLE - 1][i] - s[0][i];
		fit->mean[at + i] = s[SAMPLE / 2][i];
		fit->var[at + i] = scale * scale;
	}
}

/* The logarithm of a power of two near sigma, with which squares stay in range. */
static int unit(double var)
{
	double m;
	int e = var > 0 ? split_double(var, &m) / 2 : 0;
	return e > 120 ? 120 : e < -120 ? -120 : e;
}

/* Mean and variance of BLOCK channels from the values near the mean. */
static void refine_block(struct fit *fit, size_t at, float clip_at)
{
	struct kvi_near x;
	struct kvi_near_sums sum;
	double units[BLOCK];
	for (size_t i = 0; i < BLOCK; i++) {
		const int e = unit(fit->var[at + i]);
		const float scale = (float)power(-e);
		units[i] = power(e);
		x.mean[i] = (float)fit->mean[at + i];
		x.scale[i] = scale;
		x.limit[i] = (float)(fit->var[at + i] * scale * scale) * clip_at * clip_at;
	}
	fit->kernels->fits.near_sums(fit->v + at, fit->rows, fit->C, &x, &sum);
	for (size_t i = 0; i < BLOCK; i++) {
		if (sum.n[i] < 1)
			continue;
		double m = (double)sum.s1[i] / sum.n[i];
		const double var = (sum.s2[i] - m * sum.s1[i]) /
		                   (sum.n[i] > 1 ? sum.n[i] - 1 : sum.n[i]);
		fit->mean[at + i] = x.mean[i] + m * units[i];
		fit->var[at + i] = var > 0 ? var * units[i] * units[i] : 0;
	}
}

static int clamp_int(int v, int lo, int hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

/* round(4 log2 sigma), but never far below the steps of elements around mean */
static int scale_class(double var, double mean, const struct kvi_grid_format *fmt)
{
	double m;
	int k = K_MIN, least = 4 * (fmt->emin - fmt->mant_bits) - 4;
	if (var > 0) {
		int e = split_double(var, &m);
		k = 2 * e + (m >= 1.189207115002721) + (m >= 1.681792830507429);
	}
	mean = absolute(mean);
	if (mean > 0) {
		int at = 4 * (split_double(mean, &m) - fmt->mant_bits) - 4;
		least = at > least ? at : least;
	}
	return clamp_int(k < least ? least : k, K_MIN, K_MAX);
}

/* The multiple of a step that is nearest to v. */
static int nearest(int v, int step)
{
	return (v + (v < 0 ? -step / 2 : step / 2)) / step * step;
}

/* Scale classes of two channels that share a unit for their means, raised
 * until both means fit 16 bits. a == b: one channel. */
static void set_pair(struct kvi_grid_params *params, const struct fit *fit, size_t a, size_t b)
{
	const struct kvi_grid_format *fmt = &kvi_float_format(params->common.dtype)->grid;
	size_t first = fit->first_head * params->common.head_channels;
	int ka = nearest(scale_class(fit->var[a], fit->mean[a], fmt), fit->digits.scale);
	int kb = nearest(scale_class(fit->var[b], fit->mean[b], fmt), fit->digits.scale);
	double most = absolute(fit->mean[a]);
	if (absolute(fit->mean[b]) > most)
		most = absolute(fit->mean[b]);
	int top = ka > kb ? ka : kb;
	while (top <= K_MAX - 4 && most > power((top >> 2) - 4) * 32767)
		top += 4;
	if (ka >= kb)
		ka = top;
	if (kb >= ka)
		kb = top;
	size_t at[2] = { a, b };
	params->k[first + a] = (int16_t)ka;
	params->k[first + b] = (int16_t)kb;
	for (int i = 0; i < 2; i++) {
		double q = fit->mean[at[i]] / power((top >> 2) - 4);
		q = q > 32767 ? 32767 : q < -32767 ? -32767 : q;
		const int mean = nearest((int)(q < 0 ? q - 0.5 : q + 0.5), fit->digits.mean);
		params->mean[first + at[i]] = (int16_t)clamp_int(mean, -32767, 32767);
	}
}

static void set_params(struct kvi_grid_params *params, const struct fit *fit,
                       const kvarc_rope *rope)
{
	size_t n = params->common.head_channels, pairs = rope ? rope->rotary / 2 : 0;
	for (size_t h = 0; h < fit->heads; h++) {
		for (uint32_t i = 0; i < pairs; i++) {
			uint32_t a, b;
			kvi_rope_pair(rope, i, &a, &b);
			set_pair(params, fit, h * n + a, h * n + b);
		}
		for (size_t c = 2 * pairs; c < n; c++)
			set_pair(params, fit, h * n + c, h * n + c);
	}
}

/* Loads the heads of the remaining rows; with a rope, removes it. */
static void load(struct fit *fit, const struct kvi_coder_job *job, const kvarc_rope *rope)
{
	const struct kvi_chunk *chunk = job->chunk;
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	size_t width = fit->heads * chunk->head_channels;
	const uint8_t *raw = job->raw + fit->first_head * chunk->head_channels * size;
	fit->rows = 0;
	for (size_t t = 0; t < job->mask.T; t += fit->step) {
		if (kvi_bit(job->mask.row_bits, t))
			continue;
		float *v = fit->v + fit->rows++ * fit->C;
		kvi_floats_widen(chunk->dtype, raw + t * job->mask.C * size, width, v);
		for (size_t i = width; i < fit->C; i++)
			v[i] = 0;
		if (rope)
			unrotate_row(fit, rope, t, chunk->head_channels, v);
	}
}

static void fit_heads(struct fit *fit, const struct kvi_coder_job *job, const kvarc_rope *rope,
                      struct kvi_grid_params *params)
{
	load(fit, job, rope);
	for (size_t at = 0; at < fit->C; at += BLOCK) {
		for (size_t i = at; i < at + BLOCK; i++)
			fit->mean[i] = fit->var[i] = 0;
		if (fit->rows)
			start_block(fit, at);
		for (int i = 0; i < PASSES; i++)
			refine_block(fit, at, clip[i]);
	}
	set_params(params, fit, rope);
}

/* Parameters with or without rotation, from every step-th token; some heads at
 * a time, so that what is read twice stays in the cache. */
static kvarc_ret fit_params(struct kvi_coder *coder, uint8_t codec, const struct kvi_coder_job *job,
                            const kvarc_rope *rope, size_t step, struct kvi_grid_params **out)
{
	enum { FLOATS = 1 << 16 };
	const struct kvi_chunk *chunk = job->chunk;
	size_t rows = (chunk->n_tokens - 1) / step + 1;
	size_t n = chunk->head_channels, heads = FLOATS / (rows * n);
	heads = heads < 1 ? 1 : heads > chunk->heads ? chunk->heads : heads;
	size_t C = (heads * n + BLOCK - 1) / BLOCK * BLOCK;
	struct fit f = { .kernels = coder->kernels,
		         .C = C,
		         .step = step,
		         .digits = digits_of(chunk->n_tokens) };
	if (rope &&
	    !(f.turns = kvi_coder_token_turns(coder, rope, chunk->positions, chunk->n_tokens)))
		return kvi_alloc_error(coder->alloc);
	double *d = kvi_scratch(coder, KVI_SCRATCH_FIT,
	                        2 * C * sizeof *d + (rows + 2) * C * sizeof(float));
	struct kvi_grid_params *p = d ? kvi_grid_params_new(coder->alloc, codec, chunk) : NULL;
	*out = p;
	if (!p)
		return kvi_alloc_error(coder->alloc);
	f.mean = d;
	f.var = d + C;
	f.turn = (float *)(void *)(d + 2 * C);
	f.v = f.turn + 2 * C;
	for (size_t h = 0; h < chunk->heads; h += heads) {
		f.first_head = h;
		f.heads = chunk->heads - h < heads ? chunk->heads - h : heads;
		fit_heads(&f, job, rope, p);
	}
	p->common.rotates = rope != NULL;
	kvi_grid_params_finish(p);
	return KVARC_OK;
}

/*
 * The size as estimated from scales alone: the sum of 4 log2 sigma over the elements, as their
 * contexts have it (spec grid 3).
 */
static kvarc_ret rate(struct kvi_coder *coder, const struct kvi_coder_job *job,
                      const struct kvi_grid_params *params, size_t step, int64_t *sum)
{
	const struct kvi_chunk *chunk = job->chunk;
	size_t C = job->mask.C;
	uint32_t *row = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, C * sizeof *row);
	const struct kvi_token_turns *turns = NULL;
	if (params->common.rotates)
		turns = kvi_coder_token_turns(coder, chunk->rope, chunk->positions,
		                              chunk->n_tokens);
	if (!row || (params->common.rotates && !turns))
		return kvi_alloc_error(coder->alloc);
	*sum = 0;
	for (size_t t = 0; t < job->mask.T; t += step) {
		const uint32_t *ctx = params->ctx;
		if (turns) {
			kvi_grid_rotate_row(coder, params,
			                    &kvi_float_format(params->common.dtype)->grid,
			                    chunk->rope, turns, t, row);
			ctx = row;
		}
		for (size_t i = 0; i < C; i++)
			*sum += 4 * (ctx[i] >> 8 & 255) + (ctx[i] >> 3 & 31);
	}
	return KVARC_OK;
}

/* The step between tokens that leaves about `tokens` of them; 1 for short chunks. */
static size_t sample_step(const struct kvi_coder_job *job, size_t tokens)
{
	return job->mask.T >= 2 * tokens ? job->mask.T / tokens : 1;
}

/* The better one of parameters with and without rotation, judged by a part of the tokens. */
static kvarc_ret rotation_pays(struct kvi_coder *coder, const struct kvi_coder_job *job, bool *pays)
{
	size_t step = sample_step(job, 16);
	int64_t sum[2] = { 0, 0 };
	kvarc_ret ret = KVARC_OK;
	for (int i = 0; i < 2 && !ret; i++) {
		struct kvi_grid_params *p;
		ret = fit_params(coder, KVI_CODEC_GRID, job, i ? job->chunk->rope : NULL, step, &p);
		if (ret)
			return ret;
		ret = rate(coder, job, p, step, &sum[i]);
		kvi_params_free(&p->common);
	}
	*pays = sum[1] < sum[0];
	return ret;
}

kvarc_ret kvi_grid_params_fit(struct kvi_coder *coder, uint8_t codec,
                              const struct kvi_coder_job *job, struct kvi_params **out)
{
	const kvarc_rope *rope = job->chunk->rope;
	bool rotates = rope && job->chunk->positions;
	struct kvi_grid_params *p = NULL;
	kvarc_ret ret = rotates ? rotation_pays(coder, job, &rotates) : KVARC_OK;
	if (!ret)
		ret = fit_params(coder, codec, job, rotates ? rope : NULL, sample_step(job, 64),
		                 &p);
	*out = p ? &p->common : NULL;
	return ret;
}
