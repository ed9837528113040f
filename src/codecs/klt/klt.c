/* SPDX-License-Identifier: BSD-3-Clause */
/* klt.c - codec 14: the basis of a profile in place of the Hadamard transform (spec klt) */
#include "codecs/had/had.h"
#include "klt_predict.h"
#include "util/ckd.h"

enum { MIN_RATE = 4, MAX_RATE = 104 };

/* A head at work, in slots. */
struct work {
	struct kvi_tiles t;
	const struct kvi_model *m;
	struct kvi_klt_below below;
	float *x;           /* rows of slots, t.x where those are channels */
	float *y;           /* of coefficients */
	int16_t *analysis;  /* encoders: rows of coefficients, of each head */
	int16_t *turned;    /* room for a head's M by column */
	float *unit;        /* what one is worth in those rows, C */
	float *gain, *mean; /* C, by slot */
	uint8_t *no_shift;  /* head_channels zeros */
	int16_t *pairs;     /* points as feature rows */
	int32_t *sums;
	size_t pair_rows;
};

static const struct kvi_model *model_of(const struct kvi_chunk *chunk)
{
	const struct kvi_model *m = chunk->linear ? chunk->linear->model : NULL;
	return m && m->flags & KVI_MODEL_BASIS && m->heads == chunk->heads &&
	                       m->head_channels == chunk->head_channels &&
	                       kvi_klt_has_sources(chunk->linear)
	               ? m
	               : NULL;
}

static bool slots_are_channels(const struct kvi_model *m, const struct kvi_chunk *chunk)
{
	return !m->rotary || chunk->rope->pairing != KVARC_ROPE_HALF;
}

static kvarc_ret open_work(struct work *w, struct kvi_coder *c, const struct kvi_lossy_job *job,
                           bool analyses)
{
	const struct kvi_chunk *chunk = &job->chunk;
	const size_t hc = chunk->head_channels, C = kvi_chunk_channels(chunk);
	const size_t rows = hc * KVI_LANES;
	*w = (struct work){ .m = model_of(chunk) };
	if (!w->m)
		return KVARC_PREDICTOR;
	w->pair_rows = kvi_head_stride(w->m) / 2;
	/* C is at most 2^20, a head at most 65535 channels; kvi_array checks the matrices. */
	size_t floats = 2 * rows + 2 * C;
	w->x = kvi_scratch(c, KVI_SCRATCH_LINEAR,
	                   floats * sizeof *w->x + rows * sizeof *w->sums +
	                           w->pair_rows * KVI_PAIR_STEP * sizeof *w->pairs + hc);
	if (!w->x)
		return kvi_alloc_error(c->alloc);
	w->y = w->x + rows;
	w->gain = w->y + rows;
	w->mean = w->gain + C;
	w->sums = (int32_t *)(void *)(w->mean + C);
	w->pairs = (int16_t *)(void *)(w->sums + rows);
	w->no_shift = (uint8_t *)(w->pairs + w->pair_rows * KVI_PAIR_STEP);
	memset(w->no_shift, 0, hc);
	/* What is predicted contains the mean. */
	for (size_t i = 0; i < C; i++)
		w->mean[i] = w->m->n_lower ? 0
		                           : (float)w->m->mean[i] * kvi_klt_power(w->m->step[i]);
	if (analyses) {
		size_t bytes;
		if (kvi_mul(C + hc, w->m->m_stride * sizeof *w->analysis + sizeof *w->unit, &bytes))
			return KVARC_MEMLIMIT;
		w->unit = kvi_scratch(c, KVI_SCRATCH_SLOTS, bytes);
		if (!w->unit)
			return kvi_alloc_error(c->alloc);
		w->analysis = (int16_t *)(void *)(w->unit + C);
		w->turned = w->analysis + C * w->m->m_stride;
	}
	kvarc_ret ret = kvi_klt_below_open(&w->below, c, job);
	if (!ret)
		ret = kvi_tiles_open(&w->t, c, job, w->m->rotary > 0);
	if (!ret && slots_are_channels(w->m, chunk))
		w->x = w->t.x;
	return ret;
}

/* Rows of channels to rows of slots, or back. */
static void permute(const struct work *w, float *channels, float *slots, bool to_slots)
{
	const size_t bytes = KVI_LANES * sizeof *slots;
	if (slots == channels)
		return;
	for (size_t s = 0; s < w->m->head_channels; s++) {
		size_t c = kvi_slot_channel(w->m, w->t.job->chunk.rope, s);
		float *a = channels + c * KVI_LANES, *b = slots + s * KVI_LANES;
		memcpy(to_slots ? b : a, to_slots ? a : b, bytes);
	}
}

/* Sums of the feature rows in w->pairs with a head's rows of coefficients. */
static void multiply(struct work *w, const int16_t *coef, size_t head)
{
	const size_t hc = w->m->head_channels, stride = w->m->m_stride;
	const struct kvi_rows_part part = { w->pairs, w->pair_rows, w->pair_rows * KVI_PAIR_STEP };
	const struct kvi_rows r = { .sum = w->sums,
		                    .coef = coef + head * hc * stride,
		                    .q = w->no_shift,
		                    .part = &part,
		                    .n_parts = 1,
		                    .rows = hc,
		                    .steps = 1,
		                    .sum_step = hc * KVI_LANES,
		                    .coef_row = stride };
	w->t.kernels->slot_rows(&r);
}

/* A head's codes to elements. */
static void synthesise(struct work *w, struct kvi_points points, size_t first, size_t head)
{
	const size_t hc = w->m->head_channels;
	w->t.transform->pairs(w->t.codes, points, hc, w->pairs);
	multiply(w, w->m->m, head);
	w->t.transform->scale(w->sums, hc, w->gain + head * hc, w->mean + head * hc, w->x);
	kvi_klt_below_add(&w->below, head, false, w->x);
	permute(w, w->t.x, w->x, false);
	kvi_tiles_put(&w->t, first, head);
}

static void make_gain(struct work *w, float step)
{
	for (size_t i = 0; i < w->m->C; i++)
		w->gain[i] = (step * 0x1p-5f) * kvi_klt_power(w->m->qm[i] - 128);
}

static void decode_all(struct work *w, const struct kvi_body *b, int8_t *codes)
{
	const struct kvi_chunk *chunk = &w->t.job->chunk;
	memset(w->t.codes, 0, chunk->head_channels * KVI_LANES);
	make_gain(w, b->step);
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		kvi_tiles_rotate(&w->t, first);
		kvi_klt_below_tile(&w->below, first);
		for (size_t h = 0; h < chunk->heads; h++) {
			kvi_tiles_codes(&w->t, first, h, codes, false);
			kvi_klt_below_head(&w->below, h);
			synthesise(w, b->points, first, h);
		}
		kvi_tiles_store(&w->t, first);
	}
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_in *in)
{
	struct kvi_lanes lanes = kvi_codes_lanes(c, &job->chunk, job->lane_order);
	struct work w;
	struct kvi_body b;
	kvarc_ret ret = open_work(&w, c, job, false);
	if (ret)
		return ret;
	if (lanes.order != KVI_LANES_TOKENS || !kvi_body_get(in, &b))
		return KVARC_DATA;
	const uint8_t *class = kvi_classes(c, w.m->k, lanes.channels, b.shift);
	int8_t *codes = kvi_scratch(c, KVI_SCRATCH_CODES, lanes.rows * lanes.channels);
	if (!class || !codes)
		return kvi_alloc_error(c->alloc);
	ret = kvi_codes_get(c, &lanes, class, in, codes);
	if (!ret)
		decode_all(&w, &b, codes);
	return ret;
}

/* y = M^T G (x - mean), G from the sizes of the rows, which are orthogonal. false: that cannot be
 * computed. */
static bool make_analysis(struct work *w)
{
	const struct kvi_model *m = w->m;
	const size_t hc = m->head_channels, head = hc * m->m_stride;
	bool good = true;
	for (size_t h = 0; h < m->heads && good; h++) {
		const int16_t *from = m->m + h * head;
		for (size_t i = 0; i < hc; i++)
			w->y[i] = kvi_klt_power(128 - m->qm[h * hc + i]);
		w->t.kernels->transpose16((uint16_t *)w->turned, (const uint16_t *)from, hc,
		                          m->m_stride);
		good = w->t.transform->invert(from, w->turned, hc, m->m_stride, w->y,
		                              w->analysis + h * head, w->unit + h * hc);
	}
	return good;
}

/* Coefficients of a head, w->y, from w->x: near enough for an encoder. */
static void to_coefficients(struct work *w, size_t head)
{
	const size_t hc = w->m->head_channels;
	float unit[KVI_LANES];
	kvi_klt_below_head(&w->below, head);
	kvi_klt_below_add(&w->below, head, true, w->x);
	w->t.transform->forward(w->x, w->mean + head * hc, hc, false);
	w->t.transform->lanes_to_pairs(w->x, hc, w->pairs, unit);
	multiply(w, w->analysis, head);
	w->t.transform->scale_lanes(w->sums, hc, w->unit + head * hc, unit, w->y);
}

/* A head's elements to codes. Returns what `quantise` does. */
static uint32_t analyse(struct work *w, float inverse, float offset, size_t first, size_t head)
{
	kvi_tiles_head(&w->t, first, head);
	permute(w, w->t.x, w->x, true);
	to_coefficients(w, head);
	return w->t.transform->quantise(w->y, w->m->head_channels, inverse, offset, w->t.codes);
}

/* The first tokens, whose codes say what the points are. */
static uint32_t encode_first(struct work *w, struct kvi_body *b, float offset, int8_t *codes)
{
	const float inverse = 1.0f / b->step;
	const size_t n = kvi_tile_tokens(&w->t, 0);
	struct kvi_centroid m = { .n = { 0 } };
	uint32_t refused = 0;
	for (size_t h = 0; h < w->m->heads; h++) {
		refused |= analyse(w, inverse, offset, 0, h);
		kvi_tiles_codes(&w->t, 0, h, codes, true);
		kvi_centroid_watch(&m, w->y, w->t.codes, w->m->head_channels, inverse, n);
	}
	b->points = kvi_centroid_points(&m);
	for (size_t h = 0; h < w->m->heads; h++) {
		kvi_tiles_codes(&w->t, 0, h, codes, false);
		synthesise(w, b->points, 0, h);
	}
	return refused;
}

/* Codes of all tokens and what they decode to; whether all could be coded. */
static bool encode_all(struct work *w, struct kvi_body *b, float offset, int8_t *codes)
{
	const struct kvi_chunk *chunk = &w->t.job->chunk;
	const float inverse = 1.0f / b->step;
	bool all = true;
	make_gain(w, b->step);
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		uint32_t refused = 0;
		kvi_tiles_rotate(&w->t, first);
		kvi_tiles_load(&w->t, first);
		kvi_klt_below_tile(&w->below, first);
		if (!first)
			refused = encode_first(w, b, offset, codes);
		for (size_t h = 0; first && h < chunk->heads; h++) {
			refused |= analyse(w, inverse, offset, first, h);
			kvi_tiles_codes(&w->t, first, h, codes, true);
			synthesise(w, b->points, first, h);
		}
		kvi_tiles_store(&w->t, first);
		all = kvi_tiles_refuse(&w->t, first, refused) && all;
	}
	return all;
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_out *body,
                        bool *refused)
{
	struct kvi_lanes lanes = kvi_codes_lanes(c, &job->chunk, job->lane_order);
	size_t n = lanes.rows * lanes.channels, room = kvi_codes_capacity(n);
	/* Coefficients of a profile have a standard deviation of about 1. */
	struct kvi_body b = { .step = kvi_step_of(job->tier, &job->chunk, 1) };
	struct work w;
	kvarc_ret ret = open_work(&w, c, job, true);
	if (ret)
		return ret;
	if (!make_analysis(&w))
		return KVARC_END;
	int8_t *codes = kvi_scratch(c, KVI_SCRATCH_CODES, n);
	uint8_t *end = kvi_scratch(c, KVI_SCRATCH_OUT, KVI_BODY_HEAD + room + 1);
	if (!codes || !end)
		return kvi_alloc_error(c->alloc);
	end += (KVI_BODY_HEAD + room) & ~(size_t)1;
	b.shift = kvi_quarter_log(b.step) - KVI_CODE_UNIT;
	*refused = !encode_all(&w, &b, kvi_offset_of(1, b.step), codes);
	if (*refused)
		return KVARC_OK;
	const uint8_t *class = kvi_classes(c, w.m->k, lanes.channels, b.shift);
	uint8_t *begin = class ? kvi_codes_put(c, &lanes, class, codes, end) : NULL;
	if (!begin)
		return kvi_alloc_error(c->alloc);
	begin -= KVI_BODY_HEAD;
	kvi_body_put(begin, &b);
	kvi_put_bytes(body, begin, (size_t)(end - begin));
	return KVARC_OK;
}

static bool takes(const kvarc_lossy *tier, const struct kvi_chunk *chunk)
{
	return tier->rate >= MIN_RATE && tier->rate <= MAX_RATE && model_of(chunk);
}

const struct kvi_lossy_codec kvi_lossy_klt = { NULL, NULL, NULL, takes, encode, decode };
