/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fit.c - mean and scale of each channel, from the chunk itself
 *
 * Doubles, but only + - * / and comparisons in a fixed order: every machine
 * fits the same parameters. What a chunk means is decided by integers alone.
 */
#include "grid.h"

#include "model/rotate.h"

enum { SAMPLE = 32, K_MIN = -400, K_MAX = 400, PASSES = 2 };
/* Values farther from the mean than this many sigma do not count; the second
 * pass knows sigma better. */
static const double clip[PASSES] = { 8, 6 };

/* A matrix of rows x C floats and the statistics of its channels. */
struct fit {
	size_t rows, C;
	float *v;
	double *mean, *var;             /* results */
	double *n, *s1, *s2, *limit;    /* work */
};

/* Turns the pairs of one token back by its position. */
static void unrotate_row(const kvarc_rope *rope, int32_t position,
                         size_t heads, size_t head_channels, float *v)
{
	for (uint32_t i = 0; i < rope->rotary / 2; i++) {
		uint32_t a, b, angle;
		kvi_rope_pair(rope, i, &a, &b);
		angle = kvi_rotate_angle(rope->freq[i], position);
		float c = (float)kvi_cos4096[angle] / 16384.0f;
		float s = (float)kvi_cos4096[(angle + 3072) & 4095] / 16384.0f;
		float *h = v;
		for (size_t n = 0; n < heads; n++, h += head_channels) {
			float va = h[a], vb = h[b];
			h[a] = va * c + vb * s;
			h[b] = vb * c - va * s;
		}
	}
}

static void sort(float *v, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		float x = v[i];
		size_t j = i;
		for (; j > 0 && v[j - 1] > x; j--)
			v[j] = v[j - 1];
		v[j] = x;
	}
}

static double absolute(double v)
{
	return v < 0 ? -v : v;
}

/* A first mean and variance that outliers do not move: median and quartiles
 * of a sample. */
static void start_channel(struct fit *f, size_t c)
{
	float s[SAMPLE];
	size_t n = 0, want = f->rows < SAMPLE ? f->rows : SAMPLE;
	for (size_t i = 0; i < want; i++) {
		float x = f->v[i * f->rows / want * f->C + c];
		if (x == x)
			s[n++] = x;
	}
	f->mean[c] = f->var[c] = 0;
	if (n == 0)
		return;
	sort(s, n);
	double mean = s[n / 2];
	double scale = ((double)s[n * 3 / 4] - s[n / 4]) * 0.7413;
	if (!(scale > 0))
		scale = absolute((double)s[n - 1] - s[0]);
	f->mean[c] = mean;
	f->var[c] = scale * scale;
}

static void refine(struct fit *f, double clip_at)
{
	size_t C = f->C;
	for (size_t c = 0; c < C; c++) {
		f->n[c] = f->s1[c] = f->s2[c] = 0;
		f->limit[c] = f->var[c] * clip_at * clip_at;
	}
	for (size_t t = 0; t < f->rows; t++) {
		const float *v = f->v + t * C;
		for (size_t c = 0; c < C; c++) {
			double d = (double)v[c] - f->mean[c], d2 = d * d;
			/* false for NaN too */
			double in = d2 <= f->limit[c] ? 1.0 : 0.0;
			d = d2 <= f->limit[c] ? d : 0.0;
			f->n[c] += in;
			f->s1[c] += d;
			f->s2[c] += d * d;
		}
	}
	for (size_t c = 0; c < C; c++) {
		double n = f->n[c];
		if (n < 1)
			continue;
		double m = f->s1[c] / n;
		f->mean[c] += m;
		f->var[c] = (f->s2[c] - m * f->s1[c]) / (n > 1 ? n - 1 : n);
		if (!(f->var[c] > 0))
			f->var[c] = 0;
	}
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

static int clamp_int(int v, int lo, int hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

/* round(4 log2 sigma), but never far below the steps of elements around mean */
static int scale_class(double var, double mean,
                       const struct kvi_grid_format *fmt)
{
	double m;
	int k = K_MIN, least = 4 * (fmt->emin - fmt->mant_bits) - 4;
	if (var > 0) {
		int e = split_double(var, &m);
		k = 2 * e + (m >= 1.189207115002721) +
		    (m >= 1.681792830507429);
	}
	mean = absolute(mean);
	if (mean > 0) {
		int at = 4 * (split_double(mean, &m) - fmt->mant_bits) - 4;
		least = at > least ? at : least;
	}
	return clamp_int(k < least ? least : k, K_MIN, K_MAX);
}

/* 2^e, |e| < 1000 */
static double power(int e)
{
	uint64_t b = (uint64_t)(e + 1023) << 52;
	double v;
	memcpy(&v, &b, 8);
	return v;
}

/* Scale classes of two channels that share a unit for their means, raised
 * until both means fit 16 bits. a == b: one channel. */
static void set_pair(struct kvi_params *p, const struct fit *f, size_t a,
                     size_t b, const struct kvi_grid_format *fmt)
{
	int ka = scale_class(f->var[a], f->mean[a], fmt);
	int kb = scale_class(f->var[b], f->mean[b], fmt);
	double most = absolute(f->mean[a]);
	if (absolute(f->mean[b]) > most)
		most = absolute(f->mean[b]);
	int top = ka > kb ? ka : kb;
	while (top <= K_MAX - 4 && most > power((top >> 2) - 4) * 32767)
		top += 4;
	if (ka >= kb)
		ka = top;
	if (kb >= ka)
		kb = top;
	size_t at[2] = { a, b };
	p->k[a] = (int16_t)ka;
	p->k[b] = (int16_t)kb;
	for (int i = 0; i < 2; i++) {
		double q = f->mean[at[i]] / power((top >> 2) - 4);
		q = q > 32767 ? 32767 : q < -32767 ? -32767 : q;
		p->mean[at[i]] = (int16_t)(q < 0 ? q - 0.5 : q + 0.5);
	}
}

static void set_params(struct kvi_params *p, const struct fit *f,
                       const kvarc_rope *rope)
{
	const struct kvi_grid_format *fmt = &kvi_float_format(p->dtype)->grid;
	size_t n = p->head_channels, turned = 0;
	p->rotate = rope != NULL;
	for (size_t h = 0; h < p->heads; h++) {
		for (uint32_t i = 0; rope && i < rope->rotary / 2; i++) {
			uint32_t a, b;
			kvi_rope_pair(rope, i, &a, &b);
			set_pair(p, f, h * n + a, h * n + b, fmt);
		}
		turned = rope ? rope->rotary : 0;
		for (size_t c = turned; c < n; c++)
			set_pair(p, f, h * n + c, h * n + c, fmt);
	}
	kvi_grid_params_finish(p);
}

/* Loads the rows that remain, turned back when a rope is given. */
static void load(struct fit *f, const struct kvi_job *job,
                 const kvarc_rope *rope)
{
	const struct kvi_chunk *chunk = job->chunk;
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	f->rows = 0;
	for (size_t t = 0; t < job->mask.T; t++) {
		if (kvi_bit(job->mask.row_bits, t))
			continue;
		float *v = f->v + f->rows++ * f->C;
		kvi_floats_widen(chunk->dtype, job->raw + t * f->C * size,
		                 f->C, v);
		if (rope)
			unrotate_row(rope, chunk->positions[t], chunk->heads,
			             chunk->head_channels, v);
	}
}

static kvarc_ret fit_params(struct kvi_coder *c, const struct kvi_job *job,
                            const kvarc_rope *rope, struct kvi_params **out)
{
	size_t C = job->mask.C, T = job->mask.T;
	struct fit f = { .C = C };
	double *d = kvi_scratch(c, KVI_SCRATCH_FIT,
	                        6 * C * sizeof *d + T * C * sizeof(float));
	*out = kvi_params_new(c->alloc, KVI_CODEC_GRID, job->chunk, 0, 0);
	if (!d || !*out) {
		kvi_params_free(*out);
		*out = NULL;
		return kvi_alloc_error(c->alloc);
	}
	f.mean = d;
	f.var = d + C;
	f.n = d + 2 * C;
	f.s1 = d + 3 * C;
	f.s2 = d + 4 * C;
	f.limit = d + 5 * C;
	f.v = (float *)(void *)(d + 6 * C);
	load(&f, job, rope);
	for (size_t i = 0; i < C; i++)
		start_channel(&f, i);
	for (int i = 0; i < PASSES; i++)
		refine(&f, clip[i]);
	set_params(*out, &f, rope);
	return KVARC_OK;
}

/*
 * What the scales alone say of the size: the sum of 4 log2 sigma over the
 * elements, where sigma counts from a quarter of the elements' own steps.
 */
static int64_t rate_row(const uint32_t *mu_bits, const int16_t *k, size_t n,
                        const struct kvi_grid_format *fmt)
{
	int64_t sum = 0;
	for (size_t i = 0; i < n; i++) {
		int e = (int)(mu_bits[i] >> 23 & 255) - 127;
		int least = 4 * (e - fmt->mant_bits) - 8;
		sum += k[i] > least ? k[i] : least;
	}
	return sum;
}

static kvarc_ret rate(struct kvi_coder *c, const struct kvi_job *job,
                      const struct kvi_params *p, int64_t *sum)
{
	const struct kvi_chunk *chunk = job->chunk;
	const struct kvi_grid_format *fmt =
		&kvi_float_format(chunk->dtype)->grid;
	uint32_t n = p->head_channels;
	uint32_t *mu = kvi_scratch(c, KVI_SCRATCH_CHANNELS, n * 6);
	if (!mu)
		return kvi_alloc_error(c->alloc);
	int16_t *k = (int16_t *)(void *)(mu + n);
	kvarc_rope none = { .rotary = 0 };
	*sum = 0;
	for (size_t t = 0; t < chunk->n_tokens; t++)
		for (uint32_t h = 0; h < p->heads; h++) {
			struct kvi_head_params head = { p->k + h * n,
				                        p->mean + h * n, n };
			kvi_rotate_head(&head, p->rotate ? chunk->rope : &none,
			                chunk->positions[t], mu, k);
			*sum += rate_row(mu, k, n, fmt);
		}
	return KVARC_OK;
}

kvarc_ret kvi_grid_fit(struct kvi_coder *c, const struct kvi_job *job,
                       struct kvi_params **out)
{
	const struct kvi_chunk *chunk = job->chunk;
	struct kvi_params *fixed, *turning = NULL;
	int64_t rate_fixed, rate_turning;
	kvarc_ret ret = fit_params(c, job, NULL, &fixed);
	*out = fixed;
	if (ret || !chunk->rope || !chunk->positions)
		return ret;
	ret = fit_params(c, job, chunk->rope, &turning);
	if (!ret)
		ret = rate(c, job, fixed, &rate_fixed);
	if (!ret)
		ret = rate(c, job, turning, &rate_turning);
	if (!ret && rate_turning < rate_fixed) {
		*out = turning;
		turning = fixed;
	}
	kvi_params_free(turning);
	if (ret) {
		kvi_params_free(*out);
		*out = NULL;
	}
	return ret;
}
