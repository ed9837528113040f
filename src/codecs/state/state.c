/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c - the codec of states: scales of rows and columns */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codecs/grid/grid.h"
#include "codecs/planes.h"
#include "kernels/linear_formulas.h"

/* ==== Fits scales of rows and columns, and the fraction that is left (spec state 4) ==== */

/* Largest scale class, and what the fraction 255 stands for, in 1/256. */
enum { STATE_K_LIMIT = 400, STATE_ALL = 256 };

/* The scales and fractions of the rows x channels elements that a mask leaves. */
struct state_scales {
	size_t rows, channels;
	unsigned group;      /* rows of a group */
	int16_t *row;        /* scale of each row */
	int8_t *column;      /* scale of each group and column */
	uint8_t *fraction;   /* fraction of each row; NULL: without a reference */
	const float *before; /* elements of the reference; NULL: without */
};

/* Number of groups. */
static inline size_t state_groups(const struct state_scales *scales)
{
	return (scales->rows + scales->group - 1) / scales->group;
}
/* Scale class of an element. */
static inline int state_class(const struct state_scales *scales, size_t row, size_t column)
{
	int k = scales->row[row] + scales->column[row / scales->group * scales->channels + column];
	return k < -STATE_K_LIMIT ? -STATE_K_LIMIT : k > STATE_K_LIMIT ? STATE_K_LIMIT : k;
}

enum {
	OCTAVE = 128,          /* logarithms are in 1/128 octave */
	CLASS = OCTAVE / 4,    /* a scale class */
	DEEPEST = 10 * OCTAVE, /* below the mean; smaller elements count as this small */
	SIGMA = 124,           /* from the mean logarithm of normal numbers to the logarithm of
	                        * their deviation */
	SMALLEST_GROUP = 32,
	COLUMN_BITS = 5, /* bits of a column's scale, about */
	FAR = 8          /* deviations from zero beyond which elements do not count */
};

/* A fit at work. */
struct state_fit {
	struct state_scales *s;
	const float *x;  /* the elements */
	uint16_t *level; /* 128 log2 of each, or of its difference from the expected value */
	int64_t *by_column;
	uint32_t *mu; /* predicted values of a row */
};

/* The logarithm, linear between powers of two. */
static inline uint16_t level_of(float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	return (uint16_t)(bits >> 16 & 0x7fff);
}

static void state_expected(const struct state_scales *scales, size_t row, uint32_t *mu);

/* Fills fit->level. expected: from the differences from the predicted values. */
static void take_levels(struct state_fit *fit, bool expected)
{
	const size_t C = fit->s->channels, n = fit->s->rows * C;
	int64_t sum = 0;
	for (size_t i = 0; i < fit->s->rows; i++) {
		const float *x = fit->x + i * C;
		uint16_t *to = fit->level + i * C;
		if (expected)
			state_expected(fit->s, i, fit->mu);
		for (size_t j = 0; j < C; j++) {
			float mu = 0;
			if (expected)
				memcpy(&mu, fit->mu + j, sizeof mu);
			to[j] = level_of(x[j] - mu);
			sum += to[j];
		}
	}
	int64_t least = sum / (int64_t)n - DEEPEST;
	for (size_t i = 0; i < n; i++)
		if (fit->level[i] < least)
			fit->level[i] = (uint16_t)least;
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
static int64_t fit_group(struct state_fit *fit, size_t first, size_t end, bool set)
{
	struct state_scales *s = fit->s;
	const int64_t C = (int64_t)s->channels, rows = (int64_t)(end - first);
	int64_t all = 0, squares = 0, of_rows = 0, of_columns = 0;
	memset(fit->by_column, 0, s->channels * sizeof *fit->by_column);
	for (size_t i = first; i < end; i++) {
		const uint16_t *level = fit->level + i * s->channels;
		int64_t sum = 0;
		for (size_t j = 0; j < s->channels; j++) {
			sum += level[j];
			squares += (int64_t)level[j] * level[j];
			fit->by_column[j] += level[j];
		}
		all += sum;
		of_rows += sum * sum / C;
		if (set)
			s->row[i] = (int16_t)nearest(sum + (SIGMA - 127 * OCTAVE) * C, CLASS * C);
	}
	for (size_t j = 0; j < s->channels; j++) {
		int64_t sum = fit->by_column[j];
		of_columns += sum * sum / rows;
		if (set)
			s->column[first / s->group * s->channels + j] = (int8_t)kvi_clamp(
				(int)nearest(sum * C - all, CLASS * C * rows), INT8_MIN, INT8_MAX);
	}
	return squares - of_rows - of_columns + all / C * all / rows;
}

/* Fits all groups with the group size in fit->s; returns the sum of fit_group. */
static int64_t fit_groups(struct state_fit *fit, bool set)
{
	int64_t squares = 0;
	for (size_t i = 0; i < fit->s->rows; i += fit->s->group) {
		size_t end = i + fit->s->group < fit->s->rows ? i + fit->s->group : fit->s->rows;
		squares += fit_group(fit, i, end, set);
	}
	return squares;
}

/* The rows of a group that cost the fewest bits, with the scales of its columns. */
static void choose_group(struct state_fit *fit)
{
	static const uint16_t sizes[] = { 256, 192, 160, 128, 96, 80, 64, 48, SMALLEST_GROUP };
	int64_t least = INT64_MAX;
	unsigned best = 256;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (i && sizes[i] >= fit->s->rows)
			continue;
		fit->s->group = sizes[i];
		/* 0.4 bits for each square octave: scales that are wrong by an octave cost little
		 * with the tails that the tables have */
		int64_t bits = fit_groups(fit, false) / (OCTAVE * OCTAVE) * 2 / 5 +
		               (int64_t)(COLUMN_BITS * state_groups(fit->s) * fit->s->channels);
		if (bits < least) {
			least = bits;
			best = sizes[i];
		}
	}
	fit->s->group = best;
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
static void fit_fraction(struct state_fit *fit, size_t first, size_t end)
{
	struct state_scales *s = fit->s;
	double xy = 0, yy = 0;
	for (size_t i = first; i < end; i++)
		for (size_t j = 0; j < s->channels; j++) {
			float scale = inverse_scale(state_class(s, i, j));
			float x = fit->x[i * s->channels + j] * scale;
			float y = s->before[i * s->channels + j] * scale;
			if (!(x > -FAR && x < FAR && y > -FAR * FAR && y < FAR * FAR))
				continue;
			xy += (double)x * y;
			yy += (double)y * y;
		}
	int a = yy > 0 && xy > 0 ? (int)(xy < yy ? xy / yy * STATE_ALL + 0.5 : STATE_ALL) : 0;
	memset(s->fraction + first, a > 255 ? 255 : a, end - first);
}

/*
 * Fits group, row and column, and with scales->before fraction, to the elements of a job; the
 * arrays have memory for groups of one row. Integers, and floating point with one rounding an
 * operation: the same on every machine. Returns OK, MEM, MEMLIMIT.
 */
static kvarc_ret fit_scales(struct kvi_coder *coder, const struct kvi_coder_job *job,
                            struct state_scales *scales)
{
	const size_t n = scales->rows * scales->channels;
	struct state_fit f = { .s = scales };
	f.by_column = kvi_scratch(coder, KVI_SCRATCH_FIT,
	                          scales->channels * (sizeof *f.by_column + sizeof *f.mu) +
	                                  n * (sizeof *f.x + sizeof *f.level));
	if (!f.by_column)
		return kvi_alloc_error(coder->alloc);
	f.mu = (uint32_t *)(void *)(f.by_column + scales->channels);
	float *x = (float *)(void *)(f.mu + scales->channels);
	f.level = (uint16_t *)(void *)(x + n);
	f.x = x;
	kvi_floats_exact(job->chunk->dtype, job->packed, n, x);
	take_levels(&f, false);
	choose_group(&f);
	fit_groups(&f, true);
	if (!scales->before)
		return KVARC_OK;
	for (size_t i = 0; i < scales->rows; i += scales->group)
		fit_fraction(&f, i,
		             i + scales->group < scales->rows ? i + scales->group : scales->rows);
	take_levels(&f, true);
	fit_groups(&f, true);
	return KVARC_OK;
}

/* ==== The codec of states: scales of rows and columns, expected values (spec state) ==== */

enum { SIDE_PLANES = 4, NUMBER = 15, LOW_BITS = 24 - NUMBER };
#define LEAST UINT32_C(0x0d800000)  /* 2^-100 */
#define BEYOND UINT32_C(0x71800000) /* 2^100 */

bool kvi_state_reference(const uint8_t *payload, size_t bytes, uint64_t *sequence, uint64_t *offset)
{
	if (bytes < KVI_STATE_HEAD)
		return false;
	*sequence = kvi_load64(payload);
	*offset = kvi_load64(payload + 8);
	return *sequence || *offset;
}

/* Binary32 patterns of the expected values of a row, `channels` of them. */
static void state_expected(const struct state_scales *scales, size_t row, uint32_t *mu)
{
	const float *y = scales->before ? scales->before + row * scales->channels : NULL;
	const int a = !y ? 0 : scales->fraction[row] == 255 ? STATE_ALL : scales->fraction[row];
	if (!a) {
		memset(mu, 0, scales->channels * sizeof *mu);
		return;
	}
	for (size_t j = 0; j < scales->channels; j++) {
		uint32_t bits, size;
		memcpy(&bits, y + j, sizeof bits);
		size = bits & 0x7fffffff;
		int32_t number = (int32_t)((size & 0x7fffff) | 0x800000) >> LOW_BITS;
		int e = (int)(size >> 23) - 127 - (NUMBER - 1) - 8;
		mu[j] = size < LEAST || size >= BEYOND
		                ? 0
		                : kvi_scaled_bits(bits >> 31 ? -number * a : number * a, e);
	}
}

static size_t side_bytes(const struct kvi_mask *mask)
{
	return SIDE_PLANES * (KVI_PLANE_HEAD + KVI_STREAM_ALIGN) + 3 * mask->rows +
	       kvi_mask_elements(mask);
}

/* The elements of the reference that the mask leaves, as numbers. */
static kvarc_ret take_before(struct kvi_coder *coder, const struct kvi_coder_job *job,
                             struct state_scales *scales)
{
	const struct kvi_mask *m = &job->mask;
	const size_t n = kvi_mask_elements(m);
	const uint8_t *from = job->before;
	if (!from)
		return KVARC_OK;
	float *to = kvi_scratch(coder, KVI_SCRATCH_PREDICTION, n * (sizeof *to + m->size));
	if (!to)
		return kvi_alloc_error(coder->alloc);
	if (kvi_mask_any(m)) {
		uint8_t *rest = (uint8_t *)(to + n);
		kvi_mask_gather(m, from, rest);
		from = rest;
	}
	kvi_floats_exact(job->chunk->dtype, from, n, to);
	scales->before = to;
	return KVARC_OK;
}

/* Memory for the scales, and as many bytes again; *bytes: the latter. */
static kvarc_ret open_scales(struct kvi_coder *coder, const struct kvi_coder_job *job,
                             struct state_scales *scales, uint8_t **bytes)
{
	const struct kvi_mask *m = &job->mask;
	const size_t n = kvi_mask_elements(m), all = 3 * m->rows + n;
	uint8_t *p = kvi_scratch(coder, KVI_SCRATCH_SLOTS, 2 * all);
	*scales = (struct state_scales){ .rows = m->rows,
		                         .channels = m->channels,
		                         .group = job->group };
	if (!p)
		return kvi_alloc_error(coder->alloc);
	scales->row = (int16_t *)(void *)p;
	scales->column = (int8_t *)(p + 2 * m->rows);
	scales->fraction = job->before ? p + 2 * m->rows + n : NULL;
	*bytes = p + all;
	return take_before(coder, job, scales);
}

/* Contexts of all elements. */
static kvarc_ret make_contexts(struct kvi_coder *coder, const struct kvi_coder_job *job,
                               const struct state_scales *scales,
                               struct kvi_grid_contexts *contexts)
{
	const size_t n = scales->rows * scales->channels;
	uint32_t *mu = kvi_scratch(coder, KVI_SCRATCH_CHANNELS,
	                           scales->channels * (sizeof *mu + sizeof(int16_t)));
	int16_t *k = mu ? (int16_t *)(void *)(mu + scales->channels) : NULL;
	*contexts = (struct kvi_grid_contexts){
		.fmt = &kvi_float_format(job->chunk->dtype)->grid,
		.tables = &coder->grid,
		.channels = scales->channels,
		.ctx = kvi_scratch(coder, KVI_SCRATCH_CONTEXT, n * sizeof *contexts->ctx),
		.coder = coder,
		.job = job,
	};
	if (!mu || !contexts->ctx)
		return kvi_alloc_error(coder->alloc);
	for (size_t i = 0; i < scales->rows; i++) {
		state_expected(scales, i, mu);
		for (size_t j = 0; j < scales->channels; j++)
			k[j] = (int16_t)state_class(scales, i, j);
		coder->kernels->coding.grid_contexts(contexts->ctx + i * scales->channels, mu, k,
		                                     scales->channels, contexts->fmt);
	}
	return KVARC_OK;
}

static uint8_t *put_side(struct kvi_coder *coder, const struct state_scales *scales, uint8_t *bytes,
                         uint8_t *to)
{
	for (int shift = 0; shift < 16; shift += 8) {
		for (size_t i = 0; i < scales->rows; i++)
			bytes[i] = (uint8_t)((uint16_t)scales->row[i] >> shift);
		to = kvi_plane_write(coder, bytes, scales->rows, to);
	}
	to = kvi_plane_write(coder, (const uint8_t *)scales->column,
	                     state_groups(scales) * scales->channels, to);
	return scales->fraction ? kvi_plane_write(coder, scales->fraction, scales->rows, to) : to;
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct state_scales s;
	struct kvi_grid_contexts x;
	uint8_t *bytes;
	kvarc_ret ret = open_scales(coder, job, &s, &bytes);
	if (!ret)
		ret = fit_scales(coder, job, &s);
	if (!ret)
		ret = make_contexts(coder, job, &s, &x);
	if (ret)
		return ret;
	out->group = s.group;
	return kvi_grid_encode(coder, job, &x, put_side(coder, &s, bytes, out->words), out);
}

/* Reads n bytes of a plane. */
static kvarc_ret get_plane(struct kvi_coder *coder, struct kvi_in *in, size_t n, uint8_t *to)
{
	const uint8_t *plane;
	kvarc_ret ret = kvi_plane_read(coder, in, n, to, &plane);
	if (!ret && plane != to)
		memcpy(to, plane, n);
	return ret;
}

static kvarc_ret get_side(struct kvi_coder *coder, struct kvi_in *in, struct state_scales *scales,
                          uint8_t *bytes)
{
	kvarc_ret ret = get_plane(coder, in, scales->rows, bytes);
	if (!ret)
		ret = get_plane(coder, in, scales->rows, bytes + scales->rows);
	if (ret)
		return ret;
	for (size_t i = 0; i < scales->rows; i++)
		scales->row[i] = (int16_t)(bytes[i] | bytes[scales->rows + i] << 8);
	ret = get_plane(coder, in, state_groups(scales) * scales->channels,
	                (uint8_t *)scales->column);
	return ret || !scales->fraction ? ret
	                                : get_plane(coder, in, scales->rows, scales->fraction);
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct state_scales s;
	struct kvi_grid_contexts x;
	uint8_t *bytes;
	kvarc_ret ret = open_scales(coder, job, &s, &bytes);
	if (!ret)
		ret = get_side(coder, in, &s, bytes);
	if (!ret)
		ret = make_contexts(coder, job, &s, &x);
	return ret ? ret : kvi_grid_decode(coder, job, &x, in);
}

/* The reference and the rows of a group. */
static void put_head(const struct kvi_coder_job *job, const struct kvi_payload *out, uint8_t *to)
{
	kvi_store64(to, job->before ? job->request->before_sequence : 0);
	kvi_store64(to + 8, job->before ? job->request->before_offset : 0);
	to[16] = (uint8_t)(out->group - 1);
}

/* The inverse of put_head: job->before stays where the chunk has a reference. */
static kvarc_ret get_head(struct kvi_coder_job *job, struct kvi_in *in)
{
	uint64_t sequence, offset;
	const uint8_t *head = kvi_get_bytes(in, KVI_STATE_HEAD);
	if (!head)
		return KVARC_DATA;
	job->group = head[16] + 1u;
	if (kvi_state_reference(head, KVI_STATE_HEAD, &sequence, &offset))
		return job->before ? KVARC_OK : KVARC_DATA;
	job->before = NULL;
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_state = {
	.takes = KVI_TAKES_FLOATS,
	.head_bytes = KVI_STATE_HEAD,
	.put_head = put_head,
	.get_head = get_head,
	.words_each = KVI_GRID_WORDS,
	.n_planes = kvi_coded_n_planes,
	.side_bytes = side_bytes,
	.encode = encode,
	.decode = decode,
};
