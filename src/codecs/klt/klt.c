/* SPDX-License-Identifier: BSD-3-Clause */
/* klt.c - the codec klt: the basis of a profile in place of the Hadamard transform (spec klt) */
#include "codecs/had/had.h"
#include "klt_analysis.h"
#include "klt_predict.h"
#include "util/ckd.h"

/* A head at work, in slots. */
struct klt_work {
	struct kvi_tile_codec codec;
	const struct kvi_model *m;
	struct kvi_klt_below below;
	float *x;           /* rows of slots, codec.t.x where slots are channels */
	float *y;           /* of coefficients */
	int16_t *analysis;  /* encoders: rows of coefficients, of each head */
	int16_t *turned;    /* buffer for M of a head by column */
	float *unit;        /* value of 1 in those rows, C */
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

/* Rows of channels to rows of slots, or the inverse. */
static void permute(const struct klt_work *w, float *channels, float *slots, bool to_slots)
{
	const size_t bytes = KVI_LANES * sizeof *slots;
	if (slots == channels)
		return;
	for (size_t s = 0; s < w->m->head_channels; s++) {
		size_t c = kvi_slot_channel(w->m, w->codec.t.job->chunk->rope, s);
		float *a = channels + c * KVI_LANES, *b = slots + s * KVI_LANES;
		memcpy(to_slots ? b : a, to_slots ? a : b, bytes);
	}
}

/* Sums of the feature rows in w->pairs with a head's rows of coefficients. */
static void multiply(struct klt_work *w, const int16_t *coef, size_t head)
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
	w->codec.t.kernels->slot_rows(&r);
}

static void synthesise(struct kvi_tile_codec *codec, size_t head, bool decoding)
{
	struct klt_work *w = (struct klt_work *)(void *)codec;
	const size_t hc = w->m->head_channels;
	if (decoding)
		kvi_klt_below_head(&w->below, head);
	codec->t.transform->pairs(codec->t.codes, codec->body.points, hc, w->pairs);
	multiply(w, w->m->m, head);
	codec->t.transform->scale(w->sums, hc, w->gain + head * hc, w->mean + head * hc, w->x);
	kvi_klt_below_add(&w->below, head, false, w->x);
	permute(w, codec->t.x, w->x, false);
}

static void make_gain(struct kvi_tile_codec *codec)
{
	struct klt_work *w = (struct klt_work *)(void *)codec;
	for (size_t i = 0; i < w->m->C; i++)
		w->gain[i] = (codec->body.step * 0x1p-5f) * kvi_klt_power(w->m->qm[i] - 128);
}

static void predict_block(struct kvi_tile_codec *codec, size_t first)
{
	kvi_klt_below_tile(&((struct klt_work *)(void *)codec)->below, first);
}

/* Coefficients of a head, w->y, from its channels: near enough for an encoder. */
static const float *analyse(struct kvi_tile_codec *codec, size_t head)
{
	struct klt_work *w = (struct klt_work *)(void *)codec;
	const struct kvi_transform *f = codec->t.transform;
	const size_t hc = w->m->head_channels;
	float unit[KVI_LANES];
	permute(w, codec->t.x, w->x, true);
	kvi_klt_below_head(&w->below, head);
	kvi_klt_below_add(&w->below, head, true, w->x);
	f->forward(w->x, w->mean + head * hc, hc, false);
	f->lanes_to_pairs(w->x, hc, w->pairs, unit);
	multiply(w, w->analysis, head);
	f->scale_lanes(w->sums, hc, w->unit + head * hc, unit, w->y);
	return w->y;
}

static kvarc_ret open_work(struct klt_work *w, struct kvi_coder *c, const struct kvi_coder_job *job,
                           bool analyses)
{
	const struct kvi_chunk *chunk = job->chunk;
	const size_t hc = chunk->head_channels, C = kvi_chunk_channels(chunk);
	const size_t rows = hc * KVI_LANES;
	*w = (struct klt_work){ .m = model_of(chunk) };
	if (!w->m)
		return KVARC_PREDICTOR;
	w->codec = (struct kvi_tile_codec){ .k = w->m->k,
		                            .begin = make_gain,
		                            .block = predict_block,
		                            .analyse = analyse,
		                            .synthesise = synthesise };
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
		ret = kvi_tiles_open(&w->codec.t, c, job, w->m->rotary > 0);
	if (!ret && slots_are_channels(w->m, chunk))
		w->x = w->codec.t.x;
	return ret;
}

static bool make_analysis(struct klt_work *w)
{
	const struct kvi_klt_analysis a = { w->analysis, w->unit, w->turned, w->y };
	return kvi_klt_analysis_make(&a, w->m, w->codec.t.kernels->isa);
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct klt_work w;
	kvarc_ret ret = open_work(&w, c, job, true);
	if (ret)
		return ret == KVARC_PREDICTOR ? KVARC_END : ret;
	/* Coefficients of a profile have a standard deviation of about 1. */
	return make_analysis(&w) ? kvi_tile_codec_encode(&w.codec, c, 1, out) : KVARC_END;
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct klt_work w;
	kvarc_ret ret = open_work(&w, c, job, false);
	return ret ? ret : kvi_tile_codec_decode(&w.codec, c, in);
}

const struct kvi_codec kvi_codec_klt = {
	.takes = KVI_TAKES_FLOATS,
	.encode = encode,
	.decode = decode,
};
