/* SPDX-License-Identifier: BSD-3-Clause */
/* state_fit.c - fits scales of rows and columns, and the fraction that is left (spec state 4) */
#include "state.h"

#include "kernels/linear_formulas.h"

enum {
	OCTAVE = 128,           /* logarithms are in 1/128 octave */
	CLASS = OCTAVE / 4,     /* a scale class */
	DEEPEST = 10 * OCTAVE,  /* below the mean; smaller elements count as this small */
	SIGMA = 124,            /* from the mean logarithm of normal numbers to their deviation */
	SMALLEST_GROUP = 32,
	COLUMN_BITS = 5,        /* of a column's scale, about */
	FAR = 8                 /* deviations from zero from which on elements do not count */
};

/* A fit at work. */
struct state_fit {
	struct kvi_state_scales *s;
	const float *x;    /* the elements */
	uint16_t *level;   /* 128 log2 of each, or of its difference from the expected value */
	int64_t *by_column;
	uint32_t *mu;      /* of a row */
};

/* The logarithm, linear between powers of two. */
static inline uint16_t level_of(float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	return (uint16_t)(bits >> 16 & 0x7fff);
}

/* Fills f->level. */
static void take_levels(struct state_fit *f, bool expected)
{
	const size_t C = f->s->channels, n = f->s->rows * C;
	int64_t sum = 0;
	for (size_t i = 0; i < f->s->rows; i++) {
		const float *x = f->x + i * C;
		uint16_t *to = f->level + i * C;
		if (expected)
			kvi_state_expected(f->s, i, f->mu);
		for (size_t j = 0; j < C; j++) {
			float mu = 0;
			if (expected)
				memcpy(&mu, f->mu + j, sizeof mu);
			to[j] = level_of(x[j] - mu);
			sum += to[j];
		}
	}
	int64_t least = sum / (int64_t)n - DEEPEST;
	for (size_t i = 0; i < n; i++)
		if (f->level[i] < least)
			f->level[i] = (uint16_t)least;
}

/* num / den to the nearest, den > 0. */
static int64_t nearest(int64_t num, int64_t den)
{
	return num >= 0 ? (num + den / 2) / den : -((-num + den / 2) / den);
}

/*
 * Row and column scales of the rows first to end - 1, where set; returns the squares of what they
 * do not explain, of all elements.
 */
static int64_t fit_group(struct state_fit *f, size_t first, size_t end, bool set)
{
	struct kvi_state_scales *s = f->s;
	const int64_t C = (int64_t)s->channels, rows = (int64_t)(end - first);
	int64_t all = 0, squares = 0, of_rows = 0, of_columns = 0;
	memset(f->by_column, 0, s->channels * sizeof *f->by_column);
	for (size_t i = first; i < end; i++) {
		const uint16_t *level = f->level + i * s->channels;
		int64_t sum = 0;
		for (size_t j = 0; j < s->channels; j++) {
			sum += level[j];
			squares += (int64_t)level[j] * level[j];
			f->by_column[j] += level[j];
		}
		all += sum;
		of_rows += sum * sum / C;
		if (set)
			s->row[i] = (int16_t)nearest(sum + (SIGMA - 127 * OCTAVE) * C, CLASS * C);
	}
	for (size_t j = 0; j < s->channels; j++) {
		int64_t sum = f->by_column[j];
		of_columns += sum * sum / rows;
		if (set)
			s->column[first / s->group * s->channels + j] = (int8_t)kvi_clamp(
				(int)nearest(sum * C - all, CLASS * C * rows), INT8_MIN, INT8_MAX);
	}
	return squares - of_rows - of_columns + all / C * all / rows;
}

/* All groups of the size in f->s. */
static int64_t fit_groups(struct state_fit *f, bool set)
{
	int64_t squares = 0;
	for (size_t i = 0; i < f->s->rows; i += f->s->group) {
		size_t end = i + f->s->group < f->s->rows ? i + f->s->group : f->s->rows;
		squares += fit_group(f, i, end, set);
	}
	return squares;
}

/* The rows of a group that cost the fewest bits, with the scales of its columns. */
static void choose_group(struct state_fit *f)
{
	static const uint16_t sizes[] = { 256, 192, 160, 128, 96, 80, 64, 48, SMALLEST_GROUP };
	int64_t least = INT64_MAX;
	unsigned best = 256;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (i && sizes[i] >= f->s->rows)
			continue;
		f->s->group = sizes[i];
		/* 0.4 bits for each square octave: scales that are wrong by an octave cost little
		 * with the tails that the tables have */
		int64_t bits = fit_groups(f, false) / (OCTAVE * OCTAVE) * 2 / 5 +
		               (int64_t)(COLUMN_BITS * kvi_state_groups(f->s) * f->s->channels);
		if (bits < least) {
			least = bits;
			best = sizes[i];
		}
	}
	f->s->group = best;
}

/* 2^(-k/4), nearly. */
static float inverse_scale(int k)
{
	static const uint32_t m4[4] = { 0, 0x1837f0, 0x3504f3, 0x5744fd };
	uint32_t bits = (uint32_t)(kvi_quarter(-k) + 127) << 23 | m4[-k & 3];
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* The fraction of the rows of a group that fits best. */
static void fit_fraction(struct state_fit *f, size_t first, size_t end)
{
	struct kvi_state_scales *s = f->s;
	double xy = 0, yy = 0;
	for (size_t i = first; i < end; i++)
		for (size_t j = 0; j < s->channels; j++) {
			float scale = inverse_scale(kvi_state_class(s, i, j));
			float x = f->x[i * s->channels + j] * scale;
			float y = s->before[i * s->channels + j] * scale;
			if (!(x > -FAR && x < FAR && y > -FAR * FAR && y < FAR * FAR))
				continue;
			xy += (double)x * y;
			yy += (double)y * y;
		}
	int a = yy > 0 && xy > 0 ? (int)(xy < yy ? xy / yy * KVI_STATE_ALL + 0.5 : KVI_STATE_ALL)
	                         : 0;
	memset(s->fraction + first, a > 255 ? 255 : a, end - first);
}

kvarc_ret kvi_state_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_state_scales *s)
{
	const size_t n = s->rows * s->channels;
	struct state_fit f = { .s = s };
	f.by_column = kvi_scratch(c, KVI_SCRATCH_FIT,
	                          s->channels * (sizeof *f.by_column + sizeof *f.mu) +
	                                  n * (sizeof *f.x + sizeof *f.level));
	if (!f.by_column)
		return kvi_alloc_error(c->alloc);
	f.mu = (uint32_t *)(void *)(f.by_column + s->channels);
	float *x = (float *)(void *)(f.mu + s->channels);
	f.level = (uint16_t *)(void *)(x + n);
	f.x = x;
	kvi_floats_exact(job->chunk->dtype, job->packed, n, x);
	take_levels(&f, false);
	choose_group(&f);
	fit_groups(&f, true);
	if (!s->before)
		return KVARC_OK;
	for (size_t i = 0; i < s->rows; i += s->group)
		fit_fraction(&f, i, i + s->group < s->rows ? i + s->group : s->rows);
	take_levels(&f, true);
	fit_groups(&f, true);
	return KVARC_OK;
}
