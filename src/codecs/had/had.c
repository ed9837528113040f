/* SPDX-License-Identifier: BSD-3-Clause */
/* had.c - transform codecs had and klt: tiles, bodies, means, bases, one step a chunk */
#include "had.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "transform.h"
#include "codecs/lossy/lossy_codec.h"
#include "util/ckd.h"

/* ==== One step for all coefficients of a chunk (spec had 2) ==== */

/* Bytes in front of the stream of a body. */
enum { KVI_BODY_HEAD = 8 };

/* The head of a body: its numbers in front of the stream. */
struct body {
	float step;
	int shift;
	struct kvi_points points;
};

/* Distances of coefficients from their codes towards 0, in steps, in a sample: sums and counts for
 * codes of size 1 and for larger ones. */
struct centroid {
	float sum[2];
	uint32_t n[2];
};

/* Reads the head of a body; false: it is not valid. */
static bool body_get(struct kvi_in *in, struct body *body)
{
	/* Patterns of positive normal numbers below 2^100; those of negative ones are above. */
	const uint32_t least = 0x00800000, end = 0x71800000;
	uint32_t step = kvi_get32(in);
	body->shift = (int16_t)kvi_get16(in);
	body->points.near1 = (int8_t)kvi_get8(in);
	body->points.near2 = (int8_t)kvi_get8(in);
	memcpy(&body->step, &step, sizeof step);
	return !in->bad && step >= least && step < end && body->points.near1 >= -KVI_NEAR_MAX &&
	       body->points.near1 <= KVI_NEAR_MAX && body->points.near2 >= -KVI_NEAR_MAX &&
	       body->points.near2 <= KVI_NEAR_MAX;
}

/* Writes the front of a body. */
static void body_put(uint8_t to[KVI_BODY_HEAD], const struct body *body)
{
	uint32_t step;
	memcpy(&step, &body->step, sizeof step);
	kvi_store32(to, step);
	kvi_store16(to + 4, (uint16_t)body->shift);
	to[6] = (uint8_t)body->points.near1;
	to[7] = (uint8_t)body->points.near2;
}

int kvi_quarter_log(float v)
{
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	int e = (int)(b >> 23) - 127;
	float m = v;
	b = (b & 0x7fffff) | 0x3f800000;
	memcpy(&m, &b, sizeof m);
	/* odd powers of 2^(1/8) */
	return 4 * e + (m >= 1.0905077f) + (m >= 1.2968396f) + (m >= 1.5422108f) +
	       (m >= 1.8340081f);
}

/* The class of each of n coefficients of size k; NULL without memory. */
static const uint8_t *classes(struct kvi_coder *coder, const int16_t *k, size_t n, int shift)
{
	uint8_t *class = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, n);
	for (size_t i = 0; class && i < n; i++) {
		int v = k[i] - shift;
		class[i] = (uint8_t)(v < 0 ? 0 : v >= KVI_CODE_CLASSES ? KVI_CODE_CLASSES - 1 : v);
	}
	return class;
}

/* 2^(i/16) */
static const float sixteenths[16] = { 1.0f,       1.0442737f, 1.0905077f, 1.1387886f,
	                              1.1892071f, 1.2418578f, 1.2968396f, 1.3542556f,
	                              1.4142135f, 1.4768262f, 1.5422108f, 1.6104903f,
	                              1.6817929f, 1.7562522f, 1.8340080f, 1.9152066f };

float kvi_power_of(int e)
{
	enum { UNIT = 16 };
	int whole = e >> 4;
	return sixteenths[e & (UNIT - 1)] *
	       (whole < 0 ? 1.0f / (float)(1u << -whole) : (float)(1u << whole));
}

/* A uniform quantiser of normal data takes log2(sigma / step) + 2.047 bits at high rates. */
float kvi_step_of(const kvarc_lossy *tier, unsigned kind, float rms)
{
	enum { NORMAL = 33 };
	int rate = tier->rate + (kind == KVARC_KEY ? tier->key_rate : 0);
	float step = rms * kvi_power_of(NORMAL - rate);
	return step >= 0x1p-120f ? step : 0x1p-120f;
}

/* The rounding offset for coefficients of that root mean square. */
/* A dead zone wins more in size than it costs in error, below 2 bits. */
static float offset_of(float rms, float step)
{
	return rms >= 2 * step ? 0.5f : rms >= step ? 0.45f : 0.41f;
}

/* v, or 0 */
static float where(bool yes, float v)
{
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	b &= 0u - (uint32_t)yes;
	memcpy(&v, &b, sizeof v);
	return v;
}

/* Adds the first n coefficients, and their codes, of every fourth of `rows` rows of KVI_LANES;
 * inverse: 1 / step. */
static void centroid_watch(struct centroid *centroid, const float *x, const int8_t *codes,
                           size_t rows, float inverse, size_t n)
{
	enum { EVERY = 4 };
	float sum1 = centroid->sum[0], sum2 = centroid->sum[1];
	uint32_t n1 = 0, n2 = 0;
	/* Conditions are arithmetic here: branches on codes cannot be predicted. */
	for (size_t c = 0; c < rows; c += EVERY)
		for (size_t i = 0; i < n; i++) {
			int q = codes[c * KVI_LANES + i];
			int size = q < 0 ? -q : q;
			float v = x[c * KVI_LANES + i] * inverse;
			float d = (float)size - (v < 0 ? -v : v);
			sum1 = sum1 + where(size == 1, d);
			sum2 = sum2 + where(size > 1, d);
			n1 += size == 1;
			n2 += size > 1;
		}
	centroid->sum[0] = sum1;
	centroid->sum[1] = sum2;
	centroid->n[0] += n1;
	centroid->n[1] += n2;
}

static int8_t near_of(const struct centroid *centroid, int i)
{
	float v = centroid->n[i] ? centroid->sum[i] / (float)centroid->n[i] * KVI_POINT_UNITS : 0;
	int r = (int)(v + (v < 0 ? -0.5f : 0.5f));
	return (int8_t)(r > KVI_NEAR_MAX ? KVI_NEAR_MAX : r < -KVI_NEAR_MAX ? -KVI_NEAR_MAX : r);
}

/* The points that reconstruct what was observed best. */
static struct kvi_points centroid_points(const struct centroid *centroid)
{
	return (struct kvi_points){ near_of(centroid, 0), near_of(centroid, 1) };
}

/* ==== Transform codecs had and klt: tiles, bodies, means, bases ==== */

/* Parameters of the codec had: arrays of C entries. common.rotates: RoPE is removed from keys. */
struct had_params {
	struct kvi_params common;
	bool hadamard;
	float rms;   /* root mean square of coefficients; encoders alone */
	float *mean; /* bf16 numbers */
	int16_t *k;  /* size of coefficients, in classes */
};

/* The parameters of the codec had; NULL: they are of another codec. */
static inline struct had_params *had_params_of(const struct kvi_params *params)
{
	return params->codec == KVI_CODEC_HAD ? (struct had_params *)(uintptr_t)params : NULL;
}

/* Numbers of 16 bits of rows, one behind the other, and the value of 1 in each row. */
struct klt_analysis {
	int16_t *rows; /* C rows of m_stride entries, of the coefficients of each head */
	float *unit;   /* C */
	/* memory at work: a head's matrix, its entries m_stride times its channels; its channels
	 * and KVI_LANES more */
	int16_t *turned;
	float *gain;
};

/* ==== Elements as rows of 32 tokens, RoPE removed and applied (spec had 3) ==== */

/* A block of 32 tokens at work: rows of KVI_LANES. */
struct tiles {
	const struct kvi_coder_job *job;
	const struct kvi_kernels *kernels;
	const struct kvi_transform *transform;
	struct kvi_turned turned;
	const struct kvi_rotations *turns; /* NULL: no rotation */
	float *x, *cos, *sin;              /* x: rows of a head; cos, sin: of the block */
	int32_t *points;
	int8_t *codes;         /* codes of a head */
	uint16_t *tile, *rows; /* elements of all heads, by channel and by token */
};

/* Tokens of the block that starts at token `first`. */
static inline size_t tile_tokens(const struct tiles *tiles, size_t first)
{
	size_t left = tiles->job->chunk->n_tokens - first;
	return left < KVI_LANES ? left : KVI_LANES;
}

/* Sets up the tiles of a job. rotates: RoPE is removed from keys. Returns OK, MEM, MEMLIMIT, DATA
 * (positions or rope are missing). */
static kvarc_ret tiles_open(struct tiles *tiles, struct kvi_coder *coder,
                            const struct kvi_coder_job *job, bool rotates)
{
	const struct kvi_chunk *chunk = job->chunk;
	const size_t head = chunk->head_channels * KVI_LANES;
	const size_t all = head * chunk->heads;
	size_t pairs = 0;
	*tiles = (struct tiles){ .job = job,
		                 .kernels = coder->kernels,
		                 .transform = kvi_transform_get(coder->kernels->isa) };
	if (rotates && (!chunk->rope || !chunk->positions))
		return KVARC_DATA;
	if (rotates) {
		tiles->turns = kvi_coder_rotations(coder, chunk->rope, chunk->positions,
		                                   chunk->n_tokens);
		if (!tiles->turns)
			return kvi_alloc_error(coder->alloc);
		pairs = chunk->rope->rotary / 2;
	}
	/* C is at most 2^20: no overflow. */
	size_t bytes = head * (sizeof *tiles->x + sizeof *tiles->points) + head +
	               2 * all * sizeof *tiles->tile + 2 * pairs * KVI_LANES * sizeof *tiles->cos;
	tiles->x = kvi_scratch(coder, KVI_SCRATCH_COEFFICIENTS, bytes);
	if (!tiles->x)
		return kvi_alloc_error(coder->alloc);
	tiles->cos = tiles->x + head;
	tiles->sin = tiles->cos + pairs * KVI_LANES;
	tiles->points = (int32_t *)(void *)(tiles->sin + pairs * KVI_LANES);
	tiles->tile = (uint16_t *)(void *)(tiles->points + head);
	tiles->rows = tiles->tile + all;
	tiles->codes = (int8_t *)(tiles->rows + all);
	tiles->turned = (struct kvi_turned){ pairs,
		                             rotates && chunk->rope->pairing == KVARC_ROPE_HALF,
		                             tiles->cos, tiles->sin };
	return KVARC_OK;
}

/* Computes cosines and sines of the block. */
static void tiles_rotate(struct tiles *tiles, size_t first)
{
	for (size_t p = 0; p < tiles->turned.pairs; p++) {
		const int16_t *turn = tiles->turns->turn +
		                      2 * (p * tiles->turns->tokens_capacity + first);
		tiles->transform->turns(turn, tiles->cos + p * KVI_LANES,
		                        tiles->sin + p * KVI_LANES);
	}
}

/* Rows of n numbers become rows of KVI_LANES, in place. */
static void spread(uint16_t *rows, size_t n, size_t count)
{
	for (size_t r = count; r-- > 0;) {
		memmove(rows + r * KVI_LANES, rows + r * n, n * sizeof *rows);
		memset(rows + r * KVI_LANES + n, 0, (KVI_LANES - n) * sizeof *rows);
	}
}

/* The inverse of spread. */
static void tiles_gather(uint16_t *rows, size_t n, size_t count)
{
	for (size_t r = 0; r < count; r++)
		memmove(rows + r * n, rows + r * KVI_LANES, n * sizeof *rows);
}

/* Encoders: loads the elements of the block, by channel. */
static void tiles_load(struct tiles *tiles, size_t first)
{
	const struct kvi_chunk *chunk = tiles->job->chunk;
	size_t C = kvi_chunk_channels(chunk), n = tile_tokens(tiles, first);
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	const uint8_t *from = tiles->job->packed + first * C * size;
	if (size > sizeof(uint16_t))
		return; /* tiles_head loads f32 head by head */
	const uint16_t *rows = tiles->rows;
	if (size == 2 && kvi_elements16_lie(from))
		rows = (const uint16_t *)(const void *)from;
	else
		for (size_t i = 0; i < n * C; i++)
			tiles->rows[i] = size == 1 ? from[i] : kvi_load16(from + 2 * i);
	tiles->kernels->moves.transpose16(tiles->tile, rows, n, C);
	if (n < KVI_LANES)
		spread(tiles->tile, n, C);
}

/* A head of the loaded block to tiles->x, without RoPE. */
static void tiles_head(struct tiles *tiles, size_t first, size_t head)
{
	const struct kvi_chunk *chunk = tiles->job->chunk;
	const size_t hc = chunk->head_channels, C = kvi_chunk_channels(chunk);
	const size_t n = tile_tokens(tiles, first);
	if (chunk->dtype == KVARC_F32) {
		memset(tiles->x, 0, hc * KVI_LANES * sizeof *tiles->x);
		for (size_t i = 0; i < n; i++)
			for (size_t c = 0; c < hc; c++) {
				uint32_t b = kvi_load32(tiles->job->packed +
				                        4 * ((first + i) * C + head * hc + c));
				memcpy(&tiles->x[c * KVI_LANES + i], &b, sizeof b);
			}
	} else {
		tiles->transform->widen(chunk->dtype, tiles->tile + head * hc * KVI_LANES, hc,
		                        tiles->x);
	}
	tiles->transform->turn(tiles->x, &tiles->turned, true);
}

/* The bits of x, NaN as 0 and infinity as the largest number (spec lossy 2). */
static uint32_t finite_pattern(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	if ((b & 0x7fffffff) > 0x7f800000)
		return 0;
	return (b & 0x7fffffff) == 0x7f800000 ? b - 1 : b;
}

/* tiles->x of a head to elements of the block, with RoPE. */
static void tiles_put(struct tiles *tiles, size_t first, size_t head)
{
	const struct kvi_chunk *chunk = tiles->job->chunk;
	const size_t hc = chunk->head_channels, C = kvi_chunk_channels(chunk);
	const size_t n = tile_tokens(tiles, first);
	tiles->transform->turn(tiles->x, &tiles->turned, false);
	if (chunk->dtype != KVARC_F32) {
		tiles->transform->narrow(chunk->dtype, tiles->x, hc,
		                         tiles->tile + head * hc * KVI_LANES);
		return;
	}
	for (size_t i = 0; i < n; i++)
		for (size_t c = 0; c < hc; c++)
			kvi_store32(tiles->job->decoded + 4 * ((first + i) * C + head * hc + c),
			            finite_pattern(tiles->x[c * KVI_LANES + i]));
}

/* Stores the elements of the block in job->decoded. */
static void tiles_store(struct tiles *tiles, size_t first)
{
	const struct kvi_chunk *chunk = tiles->job->chunk;
	size_t C = kvi_chunk_channels(chunk), n = tile_tokens(tiles, first);
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	uint8_t *to = tiles->job->decoded + first * C * size;
	if (size > sizeof(uint16_t))
		return;
	if (n < KVI_LANES)
		tiles_gather(tiles->tile, n, C);
	if (size == 2 && kvi_elements16_lie(to)) {
		tiles->kernels->moves.transpose16((uint16_t *)(void *)to, tiles->tile, C, n);
		return;
	}
	tiles->kernels->moves.transpose16(tiles->rows, tiles->tile, C, n);
	for (size_t i = 0; i < n * C; i++)
		if (size == 1)
			to[i] = (uint8_t)tiles->rows[i];
		else
			kvi_store16(to + 2 * i, tiles->rows[i]);
}

/* ==== Bodies of transform codecs: heads of blocks of 32 tokens (spec had, klt) ==== */

/*
 * A transform codec at work, the first member of its own struct. Functions get this struct; work on
 * the block that starts at token `first`, and leave out what a codec does not need (NULL).
 */
struct tile_codec {
	struct tiles t;
	struct body body;
	const int16_t *k; /* size of each coefficient in classes, C */
	/* Called once the step is known, before all blocks. */
	void (*begin)(struct tile_codec *w);
	/* Called before the heads of a block. */
	void (*block)(struct tile_codec *w, size_t first);
	/* Encoders: t.x of a head to its coefficients, which are returned. */
	const float *(*analyse)(struct tile_codec *w, size_t head);
	/* t.codes of a head to t.x. decoding: `analyse` did not see this head. */
	void (*synthesise)(struct tile_codec *w, size_t head, bool decoding);
};

/* t.codes to or from the stream, whose lanes are tokens. */
static void move_codes(struct tile_codec *w, size_t first, size_t head, int8_t *stream,
                       bool to_stream)
{
	const struct kvi_chunk *chunk = w->t.job->chunk;
	size_t n = tile_tokens(&w->t, first), hc = chunk->head_channels;
	int8_t *at = stream + first * kvi_chunk_channels(chunk) + head * hc * n;
	if (n == KVI_LANES) {
		memcpy(to_stream ? at : w->t.codes, to_stream ? w->t.codes : at, hc * KVI_LANES);
		return;
	}
	for (size_t c = 0; c < hc; c++, at += n) {
		int8_t *row = w->t.codes + c * KVI_LANES;
		memcpy(to_stream ? at : row, to_stream ? row : at, n);
	}
}

/* Codes of a head, out of the stream, to elements. */
static void decode_head(struct tile_codec *w, size_t first, size_t head, int8_t *stream,
                        bool decoding)
{
	move_codes(w, first, head, stream, false);
	w->synthesise(w, head, decoding);
	tiles_put(&w->t, first, head);
}

static void begin_block(struct tile_codec *w, size_t first)
{
	tiles_rotate(&w->t, first);
	if (w->block)
		w->block(w, first);
}

/* Decodes a body. Returns OK, MEM, MEMLIMIT, DATA. */
static kvarc_ret tile_codec_decode(struct tile_codec *w, struct kvi_coder *coder, struct kvi_in *in)
{
	const struct kvi_chunk *chunk = w->t.job->chunk;
	const struct kvi_lanes *l = &w->t.job->lanes;
	const size_t n = l->rows * l->channels;
	if (!body_get(in, &w->body))
		return KVARC_DATA;
	const uint8_t *class = classes(coder, w->k, l->channels, w->body.shift);
	int8_t *codes = kvi_scratch(coder, KVI_SCRATCH_CODES, n);
	if (!class || !codes)
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = kvi_codes_get(coder, l, class, in, codes);
	if (ret)
		return ret;
	memset(w->t.codes, 0, chunk->head_channels * KVI_LANES);
	if (w->begin)
		w->begin(w);
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		begin_block(w, first);
		for (size_t h = 0; h < chunk->heads; h++)
			decode_head(w, first, h, codes, true);
		tiles_store(&w->t, first);
	}
	return KVARC_OK;
}

/* A head to its codes, in w->t and in the stream; *x: its coefficients. Returns a bit for
 * each token that is refused. */
static uint32_t encode_head(struct tile_codec *w, float offset, size_t first, size_t head,
                            int8_t *stream, const float **x)
{
	tiles_head(&w->t, first, head);
	*x = w->analyse(w, head);
	uint32_t refused = w->t.transform->quantise(*x, w->t.job->chunk->head_channels,
	                                            1.0f / w->body.step, offset, w->t.codes);
	move_codes(w, first, head, stream, true);
	return refused;
}

/* The first block, whose codes determine the points. */
static uint32_t encode_first(struct tile_codec *w, float offset, int8_t *codes)
{
	const struct kvi_chunk *chunk = w->t.job->chunk;
	struct centroid m = { .n = { 0 } };
	uint32_t refused = 0;
	const float *x;
	for (size_t h = 0; h < chunk->heads; h++) {
		refused |= encode_head(w, offset, 0, h, codes, &x);
		centroid_watch(&m, x, w->t.codes, chunk->head_channels, 1.0f / w->body.step,
		               tile_tokens(&w->t, 0));
	}
	w->body.points = centroid_points(&m);
	for (size_t h = 0; h < chunk->heads; h++)
		decode_head(w, 0, h, codes, false);
	return refused;
}

/* Sets the flags of refused tokens of a block; false: there are none. */
static bool refuse(const struct tiles *tiles, size_t first, uint32_t refused)
{
	bool some = false;
	for (size_t i = 0; i < tile_tokens(tiles, first); i++) {
		tiles->job->refused[first + i] = refused >> i & 1;
		some = some || tiles->job->refused[first + i];
	}
	return some;
}

/* Codes of all tokens in stream order and their elements; whether some tokens are refused. */
static bool encode_all(struct tile_codec *w, float offset, int8_t *codes)
{
	const struct kvi_chunk *chunk = w->t.job->chunk;
	bool some = false;
	if (w->begin)
		w->begin(w);
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		uint32_t refused = 0;
		const float *x;
		begin_block(w, first);
		tiles_load(&w->t, first);
		if (!first)
			refused = encode_first(w, offset, codes);
		for (size_t h = 0; first && h < chunk->heads; h++) {
			refused |= encode_head(w, offset, first, h, codes, &x);
			w->synthesise(w, h, false);
			tiles_put(&w->t, first, h);
		}
		tiles_store(&w->t, first);
		some = refuse(&w->t, first, refused) || some;
	}
	return some;
}

/* Encodes the job, with coefficients of this root mean square (kvi_codec.encode). Returns OK, MEM,
 * MEMLIMIT. */
static kvarc_ret tile_codec_encode(struct tile_codec *w, struct kvi_coder *coder, float rms,
                                   struct kvi_payload *out)
{
	const struct kvi_coder_job *job = w->t.job;
	const size_t n = job->lanes.rows * job->lanes.channels;
	struct body *b = &w->body;
	int8_t *codes = kvi_scratch(coder, KVI_SCRATCH_CODES, n);
	uint8_t *end = kvi_scratch_end(coder, KVI_SCRATCH_OUT,
	                               KVI_BODY_HEAD + kvi_codes_capacity(n));
	if (!codes || !end)
		return kvi_alloc_error(coder->alloc);
	*b = (struct body){ .step = kvi_step_of(job->tier, job->request->kind, rms) };
	b->shift = kvi_quarter_log(b->step) - KVI_CODE_UNIT;
	out->refused = encode_all(w, offset_of(rms, b->step), codes);
	if (out->refused)
		return KVARC_OK;
	const uint8_t *class = classes(coder, w->k, job->lanes.channels, b->shift);
	uint8_t *begin = class ? kvi_codes_put(coder, &job->lanes, class, codes, end) : NULL;
	if (!begin)
		return kvi_alloc_error(coder->alloc);
	begin -= KVI_BODY_HEAD;
	body_put(begin, b);
	kvi_put_bytes(out->body, begin, (size_t)(end - begin));
	return KVARC_OK;
}

/* ==== Predicts elements from decoded tensors of the same tokens (spec klt 2) ==== */

/* The prediction of a chunk's coefficients from decoded tensors of lower layers. */
struct klt_below {
	const struct kvi_coder_job *job;
	const struct kvi_linear_in *in;
	const struct kvi_kernels *kernels;
	const struct kvi_transform *transform;
	struct kvi_rows_part all[KVI_LOWER_MAX]; /* feature rows of a block: all heads of the
	                                          * sources */
	int16_t *rows[KVI_LOWER_MAX];            /* buffers for blocks that are gathered */
	int32_t *sums;                           /* sums of a head */
	float *unit;                             /* unit of each slot, C */
	int16_t *expected; /* predicted rows of a block in `unit`: C rows of KVI_LANES */
};

/* 2^e, -149..127; 0 for others */
static float klt_power(int e)
{
	uint32_t b = e < -149 || e > 127 ? 0
	             : e < -126          ? 1u << (149 + e)
	                                 : (uint32_t)(127 + e) << 23;
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

/* Whether all sources of the linear model of a KLT profile are there. */
static bool klt_has_sources(const struct kvi_linear_in *in)
{
	for (unsigned i = 0; i < in->model->n_lower; i++)
		if (!in->lower[i] || !in->lower[i]->z || in->lower[i]->n_tokens != in->n_tokens)
			return false;
	return true;
}

/* int16 of a block of a source's features. */
static size_t block_entries(const struct kvi_model *model)
{
	return model->heads * kvi_head_stride(model) * KVI_LANES;
}

/* Sets up the prediction of a chunk. Returns OK, MEM, MEMLIMIT. With a model without sources the
 * other functions do nothing. */
static kvarc_ret klt_below_open(struct klt_below *below, struct kvi_coder *coder,
                                const struct kvi_coder_job *job)
{
	const struct kvi_linear_in *in = job->linear.in;
	const struct kvi_model *m = in->model;
	const size_t sums = m->head_channels * KVI_LANES;
	/* Models are 2^20 slots at most: no overflow. */
	size_t bytes = sums * sizeof *below->sums +
	               m->C * (sizeof *below->unit + KVI_LANES * sizeof *below->expected);
	*below = (struct klt_below){ .job = job,
		                     .in = in,
		                     .kernels = coder->kernels,
		                     .transform = kvi_transform_get(coder->kernels->isa) };
	if (!m->n_lower)
		return KVARC_OK;
	for (unsigned i = 0; i < m->n_lower; i++)
		bytes += block_entries(m->lower[i].model) * sizeof **below->rows;
	below->sums = kvi_scratch(coder, KVI_SCRATCH_PREDICTION, bytes);
	if (!below->sums)
		return kvi_alloc_error(coder->alloc);
	below->unit = (float *)(void *)(below->sums + sums);
	for (size_t i = 0; i < m->C; i++)
		below->unit[i] = klt_power(m->step[i]);
	below->expected = (int16_t *)(void *)(below->unit + m->C);
	int16_t *at = below->expected + m->C * KVI_LANES;
	for (unsigned i = 0; i < m->n_lower; i++) {
		below->rows[i] = at;
		at += block_entries(m->lower[i].model);
	}
	return KVARC_OK;
}

/* Features of tokens that are not a block of the segment. */
static void klt_predict_gather(const struct klt_below *below, unsigned source, size_t first,
                               size_t n)
{
	const size_t entries = block_entries(below->in->model->lower[source].model);
	const int16_t *z = below->in->lower[source]->z;
	const uint8_t *token = below->job->token + first;
	for (size_t at = 0; at < entries; at += KVI_PAIR_STEP) {
		int16_t *to = below->rows[source] + at;
		for (size_t i = 0; i < n; i++)
			memcpy(to + 2 * i,
			       z + token[i] / KVI_LANES * entries + at + token[i] % KVI_LANES * 2,
			       2 * sizeof *to);
		memset(to + 2 * n, 0, (KVI_LANES - n) * 2 * sizeof *to);
	}
}

/* The 32 tokens of the job from `first` on. */
static void klt_below_tile(struct klt_below *below, size_t first)
{
	const struct kvi_model *m = below->in->model;
	const uint8_t *token = below->job->token + first;
	size_t left = below->job->chunk->n_tokens - first;
	size_t n = left < KVI_LANES ? left : KVI_LANES;
	bool block = token[0] % KVI_LANES == 0 && n == KVI_LANES &&
	             token[n - 1] - token[0] == (int)n - 1;
	for (unsigned i = 0; i < m->n_lower; i++) {
		const struct kvi_model *from = m->lower[i].model;
		size_t entries = block_entries(from);
		if (!block)
			klt_predict_gather(below, i, first, n);
		below->all[i] = (struct kvi_rows_part){
			block ? below->in->lower[i]->z + token[0] / KVI_LANES * entries
			      : below->rows[i],
			from->heads * kvi_head_stride(from) / 2, entries
		};
	}
}

/* Predicts the slots of a head of these tokens. */
static void klt_below_head(struct klt_below *below, size_t head)
{
	const struct kvi_model *m = below->in->model;
	if (!m->n_lower)
		return;
	const size_t first = head * m->head_channels;
	struct kvi_rows_part part[KVI_LOWER_MAX];
	for (unsigned i = 0; i < m->n_lower; i++) {
		const struct kvi_model *from = m->lower[i].model;
		const size_t pairs = kvi_head_stride(from) / 2;
		part[i] = below->all[i];
		if (!m->lower[i].scope)
			continue;
		part[i].features += head % from->heads * pairs * KVI_PAIR_STEP;
		part[i].n_pairs = pairs;
	}
	const struct kvi_rows r = { .sum = below->sums,
		                    .coef = m->a + first * m->a_stride,
		                    .q = m->qa + first,
		                    .part = part,
		                    .n_parts = m->n_lower,
		                    .rows = m->head_channels,
		                    .steps = 1,
		                    .sum_step = m->head_channels * KVI_LANES,
		                    .coef_row = m->a_stride };
	below->kernels->slots.slot_rows(&r);
	below->transform->expect(below->sums, m->head_channels, m->mean + first, m->qa + first,
	                         below->expected + first * KVI_LANES);
}

/* Adds the predicted slots of a head to x, rows of KVI_LANES, or subtracts them. */
static void klt_below_add(const struct klt_below *below, size_t head, bool minus, float *x)
{
	const size_t first = head * below->in->model->head_channels;
	if (below->in->model->n_lower)
		below->transform->add_expected(below->expected + first * KVI_LANES,
		                               below->in->model->head_channels, below->unit + first,
		                               minus, x);
}

/* ==== The inverse of the basis of a KLT profile (spec klt 2) ==== */

/*
 * y = M^T G (x - mean), G from the sizes of the rows, which are orthogonal: rows and unit are
 * filled. The caller has set rounding to nearest with subnormals (util/fpmode.h); the same bits
 * whatever the set of instructions. false: it cannot be computed.
 */
static bool klt_analysis_make(const struct klt_analysis *analysis, const struct kvi_model *model,
                              uint32_t isa_mask)
{
	const struct kvi_kernels *kernels = kvi_kernels_get(isa_mask);
	const struct kvi_transform *transform = kvi_transform_get(isa_mask);
	const size_t hc = model->head_channels, head = hc * model->m_stride;
	bool good = true;
	for (size_t h = 0; h < model->heads && good; h++) {
		const int16_t *from = model->m + h * head;
		for (size_t i = 0; i < hc; i++)
			analysis->gain[i] = klt_power(128 - model->qm[h * hc + i]);
		kernels->moves.transpose16((uint16_t *)analysis->turned, (const uint16_t *)from, hc,
		                           model->m_stride);
		good = transform->invert(from, analysis->turned, hc, model->m_stride,
		                         analysis->gain, analysis->rows + h * head,
		                         analysis->unit + h * hc);
	}
	return good;
}

/* ==== The codec klt: the basis of a profile in place of the Hadamard transform (spec klt) ==== */

/* A head at work, in slots. */
struct klt_work {
	struct tile_codec codec;
	const struct kvi_model *m;
	struct klt_below below;
	float *x;           /* rows of slots, codec.t.x where slots are channels */
	float *y;           /* rows of coefficients */
	int16_t *analysis;  /* encoders: rows of coefficients, of each head */
	int16_t *turned;    /* buffer for M of a head by column */
	float *unit;        /* value of 1 in those rows, C */
	float *gain, *mean; /* C, by slot */
	uint8_t *no_shift;  /* head_channels zeros */
	int16_t *pairs;     /* points as feature rows */
	int32_t *sums;
	size_t pair_rows;
};

static const struct kvi_model *model_of(const struct kvi_linear_in *in,
                                        const struct kvi_chunk *chunk)
{
	const struct kvi_model *m = in ? in->model : NULL;
	return m && m->flags & KVI_MODEL_BASIS && m->heads == chunk->heads &&
	                       m->head_channels == chunk->head_channels && klt_has_sources(in)
	               ? m
	               : NULL;
}

static bool slots_are_channels(const struct kvi_model *model, const struct kvi_chunk *chunk)
{
	return !model->rotary || chunk->rope->pairing != KVARC_ROPE_HALF;
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
	w->codec.t.kernels->slots.slot_rows(&r);
}

static void klt_synthesise(struct tile_codec *codec, size_t head, bool decoding)
{
	struct klt_work *w = (struct klt_work *)(void *)codec;
	const size_t hc = w->m->head_channels;
	if (decoding)
		klt_below_head(&w->below, head);
	codec->t.transform->pairs(codec->t.codes, codec->body.points, hc, w->pairs);
	multiply(w, w->m->m, head);
	codec->t.transform->scale(w->sums, hc, w->gain + head * hc, w->mean + head * hc, w->x);
	klt_below_add(&w->below, head, false, w->x);
	permute(w, codec->t.x, w->x, false);
}

static void make_gain(struct tile_codec *codec)
{
	struct klt_work *w = (struct klt_work *)(void *)codec;
	for (size_t i = 0; i < w->m->C; i++)
		w->gain[i] = (codec->body.step * 0x1p-5f) * klt_power(w->m->qm[i] - 128);
}

static void predict_block(struct tile_codec *codec, size_t first)
{
	klt_below_tile(&((struct klt_work *)(void *)codec)->below, first);
}

/* Coefficients of a head, w->y, from its channels: near enough for an encoder. */
static const float *klt_analyse(struct tile_codec *codec, size_t head)
{
	struct klt_work *w = (struct klt_work *)(void *)codec;
	const struct kvi_transform *f = codec->t.transform;
	const size_t hc = w->m->head_channels;
	float unit[KVI_LANES];
	permute(w, codec->t.x, w->x, true);
	klt_below_head(&w->below, head);
	klt_below_add(&w->below, head, true, w->x);
	f->forward(w->x, w->mean + head * hc, hc, false);
	f->lanes_to_pairs(w->x, hc, w->pairs, unit);
	multiply(w, w->analysis, head);
	f->scale_lanes(w->sums, hc, w->unit + head * hc, unit, w->y);
	return w->y;
}

static kvarc_ret klt_open_work(struct klt_work *w, struct kvi_coder *coder,
                               const struct kvi_coder_job *job, bool analyses)
{
	const struct kvi_chunk *chunk = job->chunk;
	const size_t hc = chunk->head_channels, C = kvi_chunk_channels(chunk);
	const size_t rows = hc * KVI_LANES;
	*w = (struct klt_work){ .m = model_of(job->linear.in, chunk) };
	if (!w->m)
		return KVARC_PREDICTOR;
	w->codec = (struct tile_codec){ .k = w->m->k,
		                        .begin = make_gain,
		                        .block = predict_block,
		                        .analyse = klt_analyse,
		                        .synthesise = klt_synthesise };
	w->pair_rows = kvi_head_stride(w->m) / 2;
	/* C is at most 2^20, a head at most 65535 channels; kvi_array checks the matrices. */
	size_t floats = 2 * rows + 2 * C;
	w->x = kvi_scratch(coder, KVI_SCRATCH_LINEAR,
	                   floats * sizeof *w->x + rows * sizeof *w->sums +
	                           w->pair_rows * KVI_PAIR_STEP * sizeof *w->pairs + hc);
	if (!w->x)
		return kvi_alloc_error(coder->alloc);
	w->y = w->x + rows;
	w->gain = w->y + rows;
	w->mean = w->gain + C;
	w->sums = (int32_t *)(void *)(w->mean + C);
	w->pairs = (int16_t *)(void *)(w->sums + rows);
	w->no_shift = (uint8_t *)(w->pairs + w->pair_rows * KVI_PAIR_STEP);
	memset(w->no_shift, 0, hc);
	/* A prediction from other tensors contains the mean. */
	for (size_t i = 0; i < C; i++)
		w->mean[i] = w->m->n_lower ? 0 : (float)w->m->mean[i] * klt_power(w->m->step[i]);
	if (analyses) {
		size_t bytes;
		if (kvi_mul(C + hc, w->m->m_stride * sizeof *w->analysis + sizeof *w->unit, &bytes))
			return KVARC_MEMLIMIT;
		w->unit = kvi_scratch(coder, KVI_SCRATCH_SLOTS, bytes);
		if (!w->unit)
			return kvi_alloc_error(coder->alloc);
		w->analysis = (int16_t *)(void *)(w->unit + C);
		w->turned = w->analysis + C * w->m->m_stride;
	}
	kvarc_ret ret = klt_below_open(&w->below, coder, job);
	if (!ret)
		ret = tiles_open(&w->codec.t, coder, job, w->m->rotary > 0);
	if (!ret && slots_are_channels(w->m, chunk))
		w->x = w->codec.t.x;
	return ret;
}

static bool make_analysis(struct klt_work *w)
{
	const struct klt_analysis a = { w->analysis, w->unit, w->turned, w->y };
	return klt_analysis_make(&a, w->m, w->codec.t.kernels->isa);
}

static kvarc_ret klt_encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                            struct kvi_payload *out)
{
	struct klt_work w;
	kvarc_ret ret = klt_open_work(&w, coder, job, true);
	if (ret)
		return ret == KVARC_PREDICTOR ? KVARC_END : ret;
	/* Coefficients of a profile have a standard deviation of about 1. */
	return make_analysis(&w) ? tile_codec_encode(&w.codec, coder, 1, out) : KVARC_END;
}

static kvarc_ret klt_decode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                            struct kvi_in *in)
{
	struct klt_work w;
	kvarc_ret ret = klt_open_work(&w, coder, job, false);
	return ret ? ret : tile_codec_decode(&w.codec, coder, in);
}

const struct kvi_codec kvi_codec_klt = {
	.takes = KVI_TAKES_FLOATS,
	.encode = klt_encode,
	.decode = klt_decode,
};

/* ==== The codec had: mean, Hadamard transform, one step for all coefficients (spec had) ==== */

enum { FLAG_TURNED = 1, FLAG_HADAMARD = 2 };

/* Parameters of zeros; NULL: no memory. */
static struct had_params *had_params_new(const struct kvi_alloc *alloc,
                                         const struct kvi_chunk *shape)
{
	size_t C = kvi_chunk_channels(shape);
	struct had_params *p;
	p = kvi_params_new(alloc, KVI_CODEC_HAD, shape,
	                   sizeof *p + C * (sizeof *p->mean + sizeof *p->k), 0);
	if (!p)
		return NULL;
	p->mean = (float *)(void *)(p + 1);
	p->k = (int16_t *)(void *)(p->mean + C);
	return p;
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	size_t C = kvi_chunk_channels(shape);
	unsigned flags = kvi_get8(in);
	const uint8_t *mean = kvi_get_bytes(in, 2 * C);
	const uint8_t *k = kvi_get_bytes(in, C);
	if (in->bad || flags & ~(unsigned)(FLAG_TURNED | FLAG_HADAMARD) ||
	    (flags & FLAG_TURNED && (!shape->rope || shape->rope->rotary > shape->head_channels)))
		return KVARC_DATA;
	for (size_t c = 0; c < C; c++)
		if ((mean[C + c] & 0x7f) == 0x7f && mean[c] & 0x80)
			return KVARC_DATA; /* the mean is not finite */
	struct had_params *p = had_params_new(alloc, shape);
	if (!p)
		return kvi_alloc_error(alloc);
	p->common.rotates = flags & FLAG_TURNED;
	p->hadamard = flags & FLAG_HADAMARD;
	for (size_t c = 0; c < C; c++) {
		uint32_t b = (uint32_t)mean[c] << 16 | (uint32_t)mean[C + c] << 24;
		memcpy(&p->mean[c], &b, sizeof b);
		p->k[c] = (int8_t)k[c];
	}
	*out = &p->common;
	return KVARC_OK;
}

static void serialise(const struct kvi_params *params, struct kvi_out *out)
{
	const struct had_params *h = had_params_of(params);
	size_t C = kvi_params_channels(params);
	kvi_put8(out, (uint8_t)((params->rotates ? FLAG_TURNED : 0) |
	                        (h->hadamard ? FLAG_HADAMARD : 0)));
	for (unsigned shift = 16; shift <= 24; shift += 8)
		for (size_t c = 0; c < C; c++) {
			uint32_t b;
			memcpy(&b, &h->mean[c], sizeof b);
			kvi_put8(out, (uint8_t)(b >> shift));
		}
	for (size_t c = 0; c < C; c++)
		kvi_put8(out, (uint8_t)h->k[c]);
}

/* The parameters beside the state of a chunk at work. */
struct had_work {
	struct tile_codec codec;
	const struct had_params *p;
};

static const float *had_analyse(struct tile_codec *codec, size_t head)
{
	const struct had_work *w = (struct had_work *)(void *)codec;
	const size_t hc = codec->t.job->chunk->head_channels;
	codec->t.transform->forward(codec->t.x, w->p->mean + head * hc, hc, w->p->hadamard);
	return codec->t.x;
}

static void had_synthesise(struct tile_codec *codec, size_t head, bool decoding)
{
	const struct had_work *w = (struct had_work *)(void *)codec;
	const size_t hc = codec->t.job->chunk->head_channels;
	(void)decoding;
	codec->t.transform->back(codec->t.codes, codec->body.points, codec->body.step,
	                         w->p->mean + head * hc, hc, w->p->hadamard, codec->t.points,
	                         codec->t.x);
}

static kvarc_ret had_open_work(struct had_work *w, struct kvi_coder *coder,
                               const struct kvi_coder_job *job)
{
	const struct had_params *p = had_params_of(job->params);
	*w = (struct had_work){
		.codec = { .k = p->k, .analyse = had_analyse, .synthesise = had_synthesise },
		.p = p,
	};
	return tiles_open(&w->codec.t, coder, job, p->common.rotates);
}

static kvarc_ret had_encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                            struct kvi_payload *out)
{
	struct had_work w;
	kvarc_ret ret = had_open_work(&w, coder, job);
	return ret ? ret : tile_codec_encode(&w.codec, coder, w.p->rms, out);
}

static kvarc_ret had_decode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                            struct kvi_in *in)
{
	struct had_work w;
	kvarc_ret ret = had_open_work(&w, coder, job);
	return ret ? ret : tile_codec_decode(&w.codec, coder, in);
}

static kvarc_ret had_fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                         struct kvi_params **out);

const struct kvi_codec kvi_codec_had = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = serialise,
	.fit = had_fit,
	.encode = had_encode,
	.decode = had_decode,
};

/* ==== Means and classes of the coefficients of the codec had ==== */

enum { TOKENS_MIN = 8, TOKENS_MAX = 256 };

/* Rounds to bf16, to nearest, ties to even. */
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
static void pass(struct tiles *tiles, const struct had_params *params, bool squares, float *sums,
                 float *of_token)
{
	const struct kvi_chunk *chunk = tiles->job->chunk;
	const size_t hc = chunk->head_channels;
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		tiles_rotate(tiles, first);
		tiles_load(tiles, first);
		for (size_t h = 0; h < chunk->heads; h++) {
			tiles_head(tiles, first, h);
			if (squares)
				tiles->transform->forward(tiles->x, params->mean + h * hc, hc,
				                          params->hadamard);
			else
				tiles->transform->add_squares(tiles->x, hc, of_token + first);
			tiles->transform->add(tiles->x, hc, tile_tokens(tiles, first), squares,
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

/* Fits means and classes. *far: some tokens were refused, and nothing was fitted. Returns OK, END
 * (numbers that the codec does not work with). */
static kvarc_ret fit(struct tiles *tiles, struct had_params *params, float *sums, bool *far)
{
	const struct kvi_chunk *chunk = tiles->job->chunk;
	const size_t C = kvi_chunk_channels(chunk);
	const float tokens = (float)chunk->n_tokens;
	float total = 0, square[TOKENS_MAX] = { 0 };
	memset(sums, 0, C * KVI_LANES * sizeof *sums);
	pass(tiles, params, false, sums, square);
	*far = refuse_far(tiles->job, square);
	if (*far)
		return KVARC_OK;
	for (size_t c = 0; c < C; c++) {
		if (!sound(sums[c * KVI_LANES]))
			return KVARC_END;
		params->mean[c] = coarse(sums[c * KVI_LANES] / tokens);
	}
	memset(sums, 0, C * KVI_LANES * sizeof *sums);
	pass(tiles, params, true, sums, NULL);
	for (size_t c = 0; c < C; c++) {
		float variance = sums[c * KVI_LANES] / tokens;
		if (!sound(variance))
			return KVARC_END;
		total = total + variance;
		int k = variance > 0 ? (kvi_quarter_log(variance) + 1) >> 1 : INT8_MIN;
		params->k[c] = (int16_t)(k < INT8_MIN ? INT8_MIN : k > INT8_MAX ? INT8_MAX : k);
	}
	params->rms = sqrtf(total / (float)C);
	return params->rms > 0x1p-60f ? KVARC_OK : KVARC_END;
}

/* Fits means and classes to the elements of a job (kvi_codec.fit). */
static kvarc_ret had_fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                         struct kvi_params **out)
{
	const struct kvi_chunk *chunk = job->chunk;
	struct tiles t;
	if (chunk->n_tokens < TOKENS_MIN)
		return KVARC_END;
	float *sums = kvi_scratch(coder, KVI_SCRATCH_FIT,
	                          kvi_chunk_channels(chunk) * KVI_LANES * sizeof *sums);
	struct had_params *p = sums ? had_params_new(coder->alloc, chunk) : NULL;
	if (!p)
		return kvi_alloc_error(coder->alloc);
	p->common.rotates = kvi_lossy_rotations(job);
	p->hadamard = !(job->tier->flags & KVARC_LOSSY_IDENTITY);
	bool far = false;
	kvarc_ret ret = tiles_open(&t, coder, job, p->common.rotates);
	if (!ret)
		ret = fit(&t, p, sums, &far);
	if (ret || far)
		kvi_params_free(&p->common);
	else
		*out = &p->common;
	return ret;
}
