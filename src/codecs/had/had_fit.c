/* SPDX-License-Identifier: BSD-3-Clause */
/* had_fit.c - means and classes of the coefficients of the codec had */
#include <math.h>

#include "had.h"

enum { TOKENS_MIN = 8, TOKENS_MAX = 256 };

/* To bf16, to nearest, ties to even. */
static float coarse(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	b += 0x7fff + (b >> 16 & 1);
	b &= 0xffff0000;
	memcpy(&x, &b, sizeof x);
	return x;
}

/* Sums of rows of KVI_LANES, in the first lane of each. Several rows at once: the additions of one
 * depend on each other. */
static void add_up(float *sums, size_t rows)
{
	enum { ROWS = 8 };
	size_t r = 0;
	for (; r + ROWS <= rows; r += ROWS) {
		float v[ROWS];
		for (size_t k = 0; k < ROWS; k++)
			v[k] = sums[(r + k) * KVI_LANES];
		for (size_t i = 1; i < KVI_LANES; i++)
			for (size_t k = 0; k < ROWS; k++)
				v[k] = v[k] + sums[(r + k) * KVI_LANES + i];
		for (size_t k = 0; k < ROWS; k++)
			sums[(r + k) * KVI_LANES] = v[k];
	}
	for (; r < rows; r++)
		for (size_t i = 1; i < KVI_LANES; i++)
			sums[r * KVI_LANES] += sums[r * KVI_LANES + i];
}

/* Sums over all tokens: of channels, with the squares of each token, or of squares of coefficients
 * once there are means. Rows of KVI_LANES, the sum of each in its first lane. */
static void pass(struct kvi_tiles *t, const struct kvi_had_params *p, bool squares, float *sums,
                 float *of_token)
{
	const struct kvi_chunk *chunk = t->job->chunk;
	const size_t hc = chunk->head_channels;
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		kvi_tiles_rotate(t, first);
		kvi_tiles_load(t, first);
		for (size_t h = 0; h < chunk->heads; h++) {
			kvi_tiles_head(t, first, h);
			if (squares)
				t->transform->forward(t->x, p->mean + h * hc, hc, p->hadamard);
			else
				t->transform->add_squares(t->x, hc, of_token + first);
			t->transform->add(t->x, hc, kvi_tile_tokens(t, first), squares,
			                  sums + h * hc * KVI_LANES);
		}
	}
	add_up(sums, hc * chunk->heads);
}

/* Whether a sum of elements or squares is in the range that bodies can have. */
static bool sound(float v)
{
	return v > -0x1p96f && v < 0x1p96f;
}

/* Refuses tokens whose squared norm is far above the median, so that they do not spoil the fit to
 * the others. None where there are many of them. */
static bool refuse_far(const struct kvi_coder_job *job, const float *square)
{
	enum { FAR = 16 * 16, MOST = 8 };
	const size_t T = job->chunk->n_tokens;
	float sorted[TOKENS_MAX];
	size_t far = 0;
	for (size_t t = 0; t < T; t++) {
		size_t i = t;
		for (; i && sorted[i - 1] > square[t]; i--)
			sorted[i] = sorted[i - 1];
		sorted[i] = square[t];
	}
	const float most = sorted[T / 2] * FAR;
	for (size_t t = 0; t < T; t++)
		far += square[t] > most;
	if (!(most > 0) || !far || far > T / MOST)
		return false;
	for (size_t t = 0; t < T; t++)
		job->refused[t] = square[t] > most;
	return true;
}

/* *far: tokens were refused instead. */
static kvarc_ret fit(struct kvi_tiles *t, struct kvi_had_params *p, float *sums, bool *far)
{
	const struct kvi_chunk *chunk = t->job->chunk;
	const size_t C = kvi_chunk_channels(chunk);
	const float tokens = (float)chunk->n_tokens;
	float total = 0, square[TOKENS_MAX] = { 0 };
	memset(sums, 0, C * KVI_LANES * sizeof *sums);
	pass(t, p, false, sums, square);
	*far = refuse_far(t->job, square);
	if (*far)
		return KVARC_OK;
	for (size_t c = 0; c < C; c++) {
		if (!sound(sums[c * KVI_LANES]))
			return KVARC_END;
		p->mean[c] = coarse(sums[c * KVI_LANES] / tokens);
	}
	memset(sums, 0, C * KVI_LANES * sizeof *sums);
	pass(t, p, true, sums, NULL);
	for (size_t c = 0; c < C; c++) {
		float variance = sums[c * KVI_LANES] / tokens;
		if (!sound(variance))
			return KVARC_END;
		total = total + variance;
		int k = variance > 0 ? (kvi_quarter_log(variance) + 1) >> 1 : INT8_MIN;
		p->k[c] = (int16_t)(k < INT8_MIN ? INT8_MIN : k > INT8_MAX ? INT8_MAX : k);
	}
	p->rms = sqrtf(total / (float)C);
	return p->rms > 0x1p-60f ? KVARC_OK : KVARC_END;
}

kvarc_ret kvi_had_fit(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_params **out)
{
	const struct kvi_chunk *chunk = job->chunk;
	struct kvi_tiles t;
	if (chunk->n_tokens < TOKENS_MIN)
		return KVARC_END;
	float *sums = kvi_scratch(c, KVI_SCRATCH_FIT,
	                          kvi_chunk_channels(chunk) * KVI_LANES * sizeof *sums);
	struct kvi_had_params *p = sums ? kvi_had_params_new(c->alloc, chunk) : NULL;
	if (!p)
		return kvi_alloc_error(c->alloc);
	p->common.rotates = kvi_lossy_rotations(job->tier, chunk);
	p->hadamard = !(job->tier->flags & KVARC_LOSSY_IDENTITY);
	bool far = false;
	kvarc_ret ret = kvi_tiles_open(&t, c, job, p->common.rotates);
	if (!ret)
		ret = fit(&t, p, sums, &far);
	if (ret || far)
		kvi_params_free(&p->common);
	else
		*out = &p->common;
	return ret;
}
