/* SPDX-License-Identifier: BSD-3-Clause */
/* tsc.c - codec tsc: keyframes, differences between tokens, scales of blocks (spec tsc) */
#include "codecs/lossy/codes.h"
#include "codecs/lossy/lossy_codec.h"
#include "codecs/had/had.h"
#include "codecs/lossy/quantiser_scales.h"

enum { KEYFRAME_MAX = 256, BLOCK_DEFAULT = 32, AS_BYTES = 0, AS_STREAM = 1 };

/* The head of a body. */
struct tsc_shape {
	unsigned keyframe; /* tokens from one keyframe to the next */
	unsigned block;
	int most[2]; /* largest code of keyframes, of differences */
};

/* Numbers of a chunk, tokens first. */
struct tsc_work {
	const struct kvi_chunk *chunk;
	struct tsc_shape s;
	size_t C, size, blocks; /* channels of a token, bytes of an element, blocks of a token */
	size_t rows[2];         /* keyframes, differences */
	float *before, *x;      /* the token before as it is decoded; this one */
	uint16_t *scales;
	int8_t *codes[2]; /* codes of keyframes, of differences */
	int8_t *lanes;    /* buffer for either in stream order */
};

static unsigned kind_of(const struct tsc_work *w, size_t t)
{
	return t % w->s.keyframe != 0;
}

/* The row that a token has among those of its kind. */
static int8_t *codes_of(const struct tsc_work *w, size_t t)
{
	size_t keys = t / w->s.keyframe + 1;
	size_t row = kind_of(w, t) ? t - keys : keys - 1;
	return w->codes[kind_of(w, t)] + row * w->C;
}

static kvarc_ret open_work(struct tsc_work *w, struct kvi_coder *coder,
                           const struct kvi_coder_job *job, struct tsc_shape shape)
{
	const struct kvi_chunk *chunk = job->chunk;
	const size_t T = chunk->n_tokens, hc = chunk->head_channels;
	*w = (struct tsc_work){ .chunk = chunk, .s = shape };
	w->C = kvi_chunk_channels(chunk);
	w->size = kvarc_dtype_bytes(chunk->dtype);
	w->blocks = chunk->heads * ((hc + shape.block - 1) / shape.block);
	w->rows[0] = (T + shape.keyframe - 1) / shape.keyframe;
	w->rows[1] = T - w->rows[0];
	/* C is at most 2^20, T 256: no overflow. */
	w->before = kvi_scratch(coder, KVI_SCRATCH_COEFFICIENTS,
	                        2 * w->C * sizeof *w->x + T * w->blocks * sizeof *w->scales);
	w->codes[0] = kvi_scratch(coder, KVI_SCRATCH_CODES, 2 * T * w->C);
	if (!w->before || !w->codes[0])
		return kvi_alloc_error(coder->alloc);
	w->x = w->before + w->C;
	w->scales = (uint16_t *)(void *)(w->x + w->C);
	w->codes[1] = w->codes[0] + w->rows[0] * w->C;
	w->lanes = w->codes[0] + T * w->C;
	memset(w->before, 0, w->C * sizeof *w->before);
	return KVARC_OK;
}

/* First channel of a block, and its number of channels: a head's last block may be shorter. */
struct span {
	size_t at, n;
};
static struct span span_of(const struct tsc_work *w, size_t block)
{
	const size_t hc = w->chunk->head_channels;
	const size_t each = (hc + w->s.block - 1) / w->s.block;
	size_t c = block % each * w->s.block;
	return (struct span){ block / each * hc + c, hc - c < w->s.block ? hc - c : w->s.block };
}

/* A token's elements from its codes; w->before for the next token (spec tsc 3). */
static void restore(struct tsc_work *w, size_t t, uint8_t *decoded)
{
	const int8_t *codes = codes_of(w, t);
	const uint16_t *scales = w->scales + t * w->blocks;
	uint8_t *to = decoded + t * w->C * w->size;
	for (size_t b = 0; b < w->blocks; b++) {
		const struct span s = span_of(w, b);
		const float step = kvi_scale_value(scales[b]);
		for (size_t i = s.at; i < s.at + s.n; i++)
			w->x[i] = (float)codes[i] * step;
	}
	if (kind_of(w, t))
		for (size_t i = 0; i < w->C; i++)
			w->x[i] = w->before[i] + w->x[i];
	kvi_lossy_store(w->chunk->dtype, w->x, w->C, to);
	kvi_floats_exact(w->chunk->dtype, to, w->C, w->before);
}

/* Decoding. */

static kvarc_ret get_codes(struct kvi_coder *coder, struct tsc_work *w, unsigned kind,
                           struct kvi_in *in)
{
	const struct kvi_lanes l = { coder->kernels, w->rows[kind], w->C };
	const size_t n = l.rows * l.channels;
	int8_t *codes = w->codes[kind];
	unsigned method;
	if (!n)
		return KVARC_OK;
	method = kvi_get8(in);
	if (method > AS_STREAM)
		return KVARC_OPTIONS;
	const uint8_t *from = kvi_get_bytes(in, method == AS_BYTES ? n : w->C);
	if (!from)
		return KVARC_DATA;
	if (method == AS_BYTES) {
		memcpy(codes, from, n);
	} else {
		for (size_t i = 0; i < w->C; i++)
			if (from[i] >= KVI_CODE_CLASSES)
				return KVARC_DATA;
		kvarc_ret ret = kvi_codes_get(coder, &l, from, in, w->lanes);
		if (ret)
			return ret;
		kvi_lanes_from8(&l, (uint8_t *)w->lanes, (uint8_t *)codes);
	}
	bool good = true;
	for (size_t i = 0; i < n; i++)
		good = good && codes[i] <= w->s.most[kind] && codes[i] >= -w->s.most[kind];
	return good ? KVARC_OK : KVARC_DATA;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct tsc_work w;
	struct tsc_shape s = { kvi_get16(in), kvi_get16(in), { 0, 0 } };
	bool good = !in->bad && s.keyframe >= 1 && s.keyframe <= KEYFRAME_MAX && s.block >= 1;
	for (int i = 0; i < 2; i++) {
		s.most[i] = kvi_get8(in);
		good = good && s.most[i] >= 1 && s.most[i] <= KVI_CODE_MAX;
	}
	if (!good)
		return KVARC_DATA;
	kvarc_ret ret = open_work(&w, coder, job, s);
	if (!ret)
		ret = kvi_scales_get(coder, in, w.chunk->n_tokens * w.blocks, w.scales);
	for (unsigned kind = 0; kind < 2 && !ret; kind++)
		ret = get_codes(coder, &w, kind, in);
	for (size_t t = 0; t < w.chunk->n_tokens && !ret; t++)
		restore(&w, t, job->decoded);
	return ret;
}

/* Encoding. */

static int8_t code_of(float v, float step, int most)
{
	float q = v / step;
	int code = (int)(q < 0 ? q - 0.5f : q + 0.5f);
	return (int8_t)(code > most ? most : code < -most ? -most : code);
}

/* A token's scales and codes; false: there are none for it. */
static bool quantise(struct tsc_work *w, size_t t, const uint8_t *elements)
{
	const int most = w->s.most[kind_of(w, t)];
	int8_t *codes = codes_of(w, t);
	kvi_floats_exact(w->chunk->dtype, elements + t * w->C * w->size, w->C, w->x);
	if (kind_of(w, t))
		for (size_t i = 0; i < w->C; i++)
			w->x[i] = w->x[i] - w->before[i];
	for (size_t b = 0; b < w->blocks; b++) {
		const struct span s = span_of(w, b);
		float largest = 0;
		for (size_t i = s.at; i < s.at + s.n; i++) {
			float size = w->x[i] < 0 ? -w->x[i] : w->x[i];
			largest = size > largest ? size : largest;
		}
		const uint16_t scale = kvi_scale_of(largest / (float)most);
		const float step = kvi_scale_value(scale);
		if (!scale)
			return false;
		w->scales[t * w->blocks + b] = scale;
		for (size_t i = s.at; i < s.at + s.n; i++)
			codes[i] = code_of(w->x[i], step, most);
	}
	return true;
}

/* The class of each channel by the size of its codes. */
static uint8_t *make_classes(struct kvi_coder *coder, const struct tsc_work *w, unsigned kind)
{
	uint8_t *class = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, w->C);
	for (size_t i = 0; class && i < w->C; i++) {
		uint32_t sum = 0;
		for (size_t r = 0; r < w->rows[kind]; r++) {
			int q = w->codes[kind][r * w->C + i];
			sum += (uint32_t)(q * q);
		}
		float square = (float)sum / (float)w->rows[kind];
		int k = sum ? KVI_CODE_UNIT + ((kvi_quarter_log(square) + 1) >> 1) : 0;
		class[i] = (uint8_t)(k < 0 ? 0 : k >= KVI_CODE_CLASSES ? KVI_CODE_CLASSES - 1 : k);
	}
	return class;
}

static kvarc_ret put_codes(struct kvi_coder *coder, struct tsc_work *w, unsigned kind,
                           struct kvi_out *out)
{
	const struct kvi_lanes l = { coder->kernels, w->rows[kind], w->C };
	const size_t n = l.rows * l.channels;
	if (!n)
		return KVARC_OK;
	const uint8_t *class = make_classes(coder, w, kind);
	uint8_t *end = kvi_scratch_end(coder, KVI_SCRATCH_OUT, kvi_codes_capacity(n));
	if (!class || !end)
		return kvi_alloc_error(coder->alloc);
	kvi_lanes_to8(&l, (uint8_t *)w->codes[kind], (uint8_t *)w->lanes);
	uint8_t *begin = kvi_codes_put(coder, &l, class, w->lanes, end);
	if (!begin)
		return kvi_alloc_error(coder->alloc);
	size_t bytes = (size_t)(end - begin);
	bool stream = bytes + w->C < n;
	kvi_put8(out, stream ? AS_STREAM : AS_BYTES);
	if (stream)
		kvi_put_bytes(out, class, w->C);
	kvi_put_bytes(out, stream ? begin : (uint8_t *)w->codes[kind], stream ? bytes : n);
	return KVARC_OK;
}

/* Shape of a tier's bodies for a kind. Keyframes have the highest rate because all differences
 * depend on the one in front of them. */
static struct tsc_shape shape_of(const kvarc_lossy *tier, unsigned kind)
{
	const int most = (1 << (kvi_lossy_bits(tier, kind) - 1)) - 1;
	struct tsc_shape s = { tier->params.tsc.keyframe ? tier->params.tsc.keyframe : 1,
		               tier->params.tsc.block ? tier->params.tsc.block : BLOCK_DEFAULT,
		               { most, most } };
	if (s.keyframe > 1)
		s.most[0] = KVI_CODE_MAX;
	return s;
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	const struct kvi_chunk *chunk = job->chunk;
	struct kvi_out *body = out->body;
	struct tsc_work w;
	kvarc_ret ret = open_work(&w, coder, job, shape_of(job->tier, job->request->kind));
	if (ret)
		return ret;
	for (size_t t = 0; t < chunk->n_tokens; t++) {
		job->refused[t] = !quantise(&w, t, job->packed);
		out->refused = out->refused || job->refused[t];
		if (!job->refused[t])
			restore(&w, t, job->decoded);
	}
	if (out->refused)
		return KVARC_OK;
	kvi_put16(body, (uint16_t)w.s.keyframe);
	kvi_put16(body, (uint16_t)w.s.block);
	kvi_put8(body, (uint8_t)w.s.most[0]);
	kvi_put8(body, (uint8_t)w.s.most[1]);
	ret = kvi_scales_put(coder, w.scales, chunk->n_tokens * w.blocks, body);
	for (unsigned kind = 0; kind < 2 && !ret; kind++)
		ret = put_codes(coder, &w, kind, body);
	return ret;
}

const struct kvi_codec kvi_codec_tsc = {
	.takes = KVI_TAKES_FLOATS,
	.encode = encode,
	.decode = decode,
};
