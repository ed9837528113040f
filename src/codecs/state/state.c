/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c - the codec of states: scales of rows and columns, expected values (spec state) */
#include "state.h"

#include "codecs/grid/grid.h"
#include "codecs/planes.h"
#include "kernels/linear_formulas.h"

enum { SIDE_PLANES = 4, NUMBER = 15, LOW_BITS = 24 - NUMBER };
#define LEAST UINT32_C(0x0d800000)   /* 2^-100 */
#define BEYOND UINT32_C(0x71800000)  /* 2^100 */

bool kvi_state_reference(const uint8_t *payload, size_t bytes, uint64_t *sequence,
                         uint64_t *offset)
{
	if (bytes < KVI_STATE_HEAD)
		return false;
	*sequence = kvi_load64(payload);
	*offset = kvi_load64(payload + 8);
	return *sequence || *offset;
}

void kvi_state_expected(const struct kvi_state_scales *s, size_t row, uint32_t *mu)
{
	const float *y = s->before ? s->before + row * s->channels : NULL;
	const int a = !y ? 0 : s->fraction[row] == 255 ? KVI_STATE_ALL : s->fraction[row];
	if (!a) {
		memset(mu, 0, s->channels * sizeof *mu);
		return;
	}
	for (size_t j = 0; j < s->channels; j++) {
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

static size_t side_bytes(const struct kvi_mask *m)
{
	return SIDE_PLANES * (KVI_PLANE_HEAD + KVI_STREAM_ALIGN) + 3 * m->rows +
	       kvi_mask_elements(m);
}

/* The elements of the reference that the mask leaves, as numbers. */
static kvarc_ret take_before(struct kvi_coder *c, const struct kvi_coder_job *job,
                             struct kvi_state_scales *s)
{
	const struct kvi_mask *m = &job->mask;
	const size_t n = kvi_mask_elements(m);
	const uint8_t *from = job->before;
	if (!from)
		return KVARC_OK;
	float *to = kvi_scratch(c, KVI_SCRATCH_PREDICTION, n * (sizeof *to + m->size));
	if (!to)
		return kvi_alloc_error(c->alloc);
	if (kvi_mask_any(m)) {
		uint8_t *rest = (uint8_t *)(to + n);
		kvi_mask_gather(m, from, rest);
		from = rest;
	}
	kvi_floats_exact(job->chunk->dtype, from, n, to);
	s->before = to;
	return KVARC_OK;
}

/* Memory for the scales, and as many bytes again; *bytes: the latter. */
static kvarc_ret open_scales(struct kvi_coder *c, const struct kvi_coder_job *job,
                             struct kvi_state_scales *s, uint8_t **bytes)
{
	const struct kvi_mask *m = &job->mask;
	const size_t n = kvi_mask_elements(m), all = 3 * m->rows + n;
	uint8_t *p = kvi_scratch(c, KVI_SCRATCH_SLOTS, 2 * all);
	*s = (struct kvi_state_scales){ .rows = m->rows, .channels = m->channels,
		                        .group = job->group };
	if (!p)
		return kvi_alloc_error(c->alloc);
	s->row = (int16_t *)(void *)p;
	s->column = (int8_t *)(p + 2 * m->rows);
	s->fraction = job->before ? p + 2 * m->rows + n : NULL;
	*bytes = p + all;
	return take_before(c, job, s);
}

/* Contexts of all elements. */
static kvarc_ret make_contexts(struct kvi_coder *c, const struct kvi_coder_job *job,
                               const struct kvi_state_scales *s, struct kvi_grid_contexts *x)
{
	const size_t n = s->rows * s->channels;
	uint32_t *mu = kvi_scratch(c, KVI_SCRATCH_CHANNELS,
	                           s->channels * (sizeof *mu + sizeof(int16_t)));
	int16_t *k = mu ? (int16_t *)(void *)(mu + s->channels) : NULL;
	*x = (struct kvi_grid_contexts){
		.fmt = &kvi_float_format(job->chunk->dtype)->grid,
		.tables = &c->grid,
		.channels = s->channels,
		.ctx = kvi_scratch(c, KVI_SCRATCH_CONTEXT, n * sizeof *x->ctx),
		.coder = c,
		.job = job,
	};
	if (!mu || !x->ctx)
		return kvi_alloc_error(c->alloc);
	for (size_t i = 0; i < s->rows; i++) {
		kvi_state_expected(s, i, mu);
		for (size_t j = 0; j < s->channels; j++)
			k[j] = (int16_t)kvi_state_class(s, i, j);
		c->kernels->grid_contexts(x->ctx + i * s->channels, mu, k, s->channels, x->fmt);
	}
	return KVARC_OK;
}

static uint8_t *put_side(struct kvi_coder *c, const struct kvi_state_scales *s, uint8_t *bytes,
                         uint8_t *to)
{
	for (int shift = 0; shift < 16; shift += 8) {
		for (size_t i = 0; i < s->rows; i++)
			bytes[i] = (uint8_t)((uint16_t)s->row[i] >> shift);
		to = kvi_plane_write(c, bytes, s->rows, to);
	}
	to = kvi_plane_write(c, (const uint8_t *)s->column, kvi_state_groups(s) * s->channels, to);
	return s->fraction ? kvi_plane_write(c, s->fraction, s->rows, to) : to;
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct kvi_state_scales s;
	struct kvi_grid_contexts x;
	uint8_t *bytes;
	kvarc_ret ret = open_scales(c, job, &s, &bytes);
	if (!ret)
		ret = kvi_state_fit(c, job, &s);
	if (!ret)
		ret = make_contexts(c, job, &s, &x);
	if (ret)
		return ret;
	out->group = s.group;
	return kvi_grid_encode(c, job, &x, put_side(c, &s, bytes, out->words), out);
}

/* Reads n bytes of a plane. */
static kvarc_ret get_plane(struct kvi_coder *c, struct kvi_in *in, size_t n, uint8_t *to)
{
	const uint8_t *plane;
	kvarc_ret ret = kvi_plane_read(c, in, n, 8, to, &plane);
	if (!ret && plane != to)
		memcpy(to, plane, n);
	return ret;
}

static kvarc_ret get_side(struct kvi_coder *c, struct kvi_in *in, struct kvi_state_scales *s,
                          uint8_t *bytes)
{
	kvarc_ret ret = get_plane(c, in, s->rows, bytes);
	if (!ret)
		ret = get_plane(c, in, s->rows, bytes + s->rows);
	if (ret)
		return ret;
	for (size_t i = 0; i < s->rows; i++)
		s->row[i] = (int16_t)(bytes[i] | bytes[s->rows + i] << 8);
	ret = get_plane(c, in, kvi_state_groups(s) * s->channels, (uint8_t *)s->column);
	return ret || !s->fraction ? ret : get_plane(c, in, s->rows, s->fraction);
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct kvi_state_scales s;
	struct kvi_grid_contexts x;
	uint8_t *bytes;
	kvarc_ret ret = open_scales(c, job, &s, &bytes);
	if (!ret)
		ret = get_side(c, in, &s, bytes);
	if (!ret)
		ret = make_contexts(c, job, &s, &x);
	return ret ? ret : kvi_grid_decode(c, job, &x, in);
}

const struct kvi_codec kvi_codec_state = {
	.takes = KVI_TAKES_FLOATS,
	.words_each = KVI_GRID_WORDS,
	.plane_bits = kvi_coded_plane_bits,
	.side_bytes = side_bytes,
	.encode = encode,
	.decode = decode,
};
