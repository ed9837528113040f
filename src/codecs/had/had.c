/* SPDX-License-Identifier: BSD-3-Clause */
/* had.c - codec 13: mean, Hadamard transform, one step for all (spec had) */
#include "codecs/had/had.h"

enum { FLAG_TURNED = 1, FLAG_HADAMARD = 2, MIN_RATE = 16, MAX_RATE = 104 };

struct kvi_params *kvi_had_params_new(const struct kvi_alloc *alloc, const struct kvi_chunk *shape)
{
	size_t C = kvi_chunk_channels(shape);
	struct kvi_params *p;
	struct kvi_had_params *h;
	p = kvi_calloc(alloc, 1, sizeof *p + sizeof *h + C * (sizeof *h->mean + sizeof *h->k));
	if (!p)
		return NULL;
	h = (struct kvi_had_params *)(void *)(p + 1);
	p->alloc = alloc;
	p->codec = KVI_CODEC_HAD;
	p->dtype = shape->dtype;
	p->heads = shape->heads;
	p->head_channels = shape->head_channels;
	p->had = h;
	h->mean = (float *)(void *)(h + 1);
	h->k = (int16_t *)(void *)(h->mean + C);
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
			return KVARC_DATA; /* not finite */
	struct kvi_params *p = kvi_had_params_new(alloc, shape);
	if (!p)
		return kvi_alloc_error(alloc);
	p->rotate = p->had->turned = flags & FLAG_TURNED;
	p->had->hadamard = flags & FLAG_HADAMARD;
	for (size_t c = 0; c < C; c++) {
		uint32_t b = (uint32_t)mean[c] << 16 | (uint32_t)mean[C + c] << 24;
		memcpy(&p->had->mean[c], &b, sizeof b);
	}
	for (size_t c = 0; c < C; c++)
		p->had->k[c] = (int8_t)k[c];
	*out = p;
	return KVARC_OK;
}

static void serialise(const struct kvi_params *p, struct kvi_out *out)
{
	size_t C = kvi_params_channels(p);
	kvi_put8(out, (uint8_t)((p->had->turned ? FLAG_TURNED : 0) |
	                        (p->had->hadamard ? FLAG_HADAMARD : 0)));
	for (unsigned shift = 16; shift <= 24; shift += 8)
		for (size_t c = 0; c < C; c++) {
			uint32_t b;
			memcpy(&b, &p->had->mean[c], sizeof b);
			kvi_put8(out, (uint8_t)(b >> shift));
		}
	for (size_t c = 0; c < C; c++)
		kvi_put8(out, (uint8_t)p->had->k[c]);
}

/* A head's codes to elements. */
static void synthesise(struct kvi_tiles *t, const struct kvi_body *b, size_t first, size_t head)
{
	const struct kvi_had_params *p = t->job->params->had;
	const size_t hc = t->job->chunk.head_channels;
	t->transform->back(t->codes, b->points, b->step, p->mean + head * hc, hc, p->hadamard,
	                   t->points, t->x);
	kvi_tiles_put(t, first, head);
}

/* job->decoded from codes in stream order. */
static void decode_all(struct kvi_tiles *t, const struct kvi_body *b, int8_t *codes)
{
	const struct kvi_chunk *chunk = &t->job->chunk;
	memset(t->codes, 0, chunk->head_channels * KVI_LANES);
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		kvi_tiles_rotate(t, first);
		for (size_t h = 0; h < chunk->heads; h++) {
			kvi_tiles_codes(t, first, h, codes, false);
			synthesise(t, b, first, h);
		}
		kvi_tiles_store(t, first);
	}
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_in *in)
{
	const struct kvi_had_params *p = job->params->had;
	struct kvi_lanes lanes = kvi_codes_lanes(c, &job->chunk, job->lane_order);
	size_t n = lanes.rows * lanes.channels;
	struct kvi_tiles t;
	struct kvi_body b;
	if (!kvi_body_get(in, &b))
		return KVARC_DATA;
	const uint8_t *class = kvi_classes(c, p->k, lanes.channels, b.shift);
	int8_t *codes = kvi_scratch(c, KVI_SCRATCH_CODES, 2 * n);
	if (!class || !codes)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = kvi_codes_get(c, &lanes, class, in, codes);
	if (!ret && lanes.order == KVI_LANES_CHANNELS) {
		kvi_lanes_to8(&lanes, (uint8_t *)codes, (uint8_t *)codes + n);
		codes += n;
	}
	if (!ret)
		ret = kvi_tiles_open(&t, c, job, p->turned);
	if (!ret)
		decode_all(&t, &b, codes);
	return ret;
}

/* A head's elements to coefficients and codes. Returns what `quantise` does. */
static uint32_t analyse(struct kvi_tiles *t, float inverse, float offset, size_t first, size_t head)
{
	const struct kvi_had_params *p = t->job->params->had;
	const size_t hc = t->job->chunk.head_channels;
	kvi_tiles_head(t, first, head);
	t->transform->forward(t->x, p->mean + head * hc, hc, p->hadamard);
	return t->transform->quantise(t->x, hc, inverse, offset, t->codes);
}

/* The first tokens, whose codes say what the points are. */
static uint32_t encode_first(struct kvi_tiles *t, struct kvi_body *b, float offset, int8_t *codes)
{
	const struct kvi_chunk *chunk = &t->job->chunk;
	const float inverse = 1.0f / b->step;
	struct kvi_centroid m = { .n = { 0 } };
	uint32_t refused = 0;
	for (size_t h = 0; h < chunk->heads; h++) {
		refused |= analyse(t, inverse, offset, 0, h);
		kvi_tiles_codes(t, 0, h, codes, true);
		kvi_centroid_watch(&m, t->x, t->codes, chunk->head_channels, inverse,
		                   kvi_tile_tokens(t, 0));
	}
	b->points = kvi_centroid_points(&m);
	for (size_t h = 0; h < chunk->heads; h++) {
		kvi_tiles_codes(t, 0, h, codes, false);
		synthesise(t, b, 0, h);
	}
	return refused;
}

/* Codes of all tokens in stream order and what they decode to; whether all could be coded. */
static bool encode_all(struct kvi_tiles *t, struct kvi_body *b, float offset, int8_t *codes)
{
	const struct kvi_chunk *chunk = &t->job->chunk;
	const float inverse = 1.0f / b->step;
	bool all = true;
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		uint32_t refused = 0;
		kvi_tiles_rotate(t, first);
		kvi_tiles_load(t, first);
		if (!first)
			refused = encode_first(t, b, offset, codes);
		for (size_t h = 0; first && h < chunk->heads; h++) {
			refused |= analyse(t, inverse, offset, first, h);
			kvi_tiles_codes(t, first, h, codes, true);
			synthesise(t, b, first, h);
		}
		kvi_tiles_store(t, first);
		all = kvi_tiles_refuse(t, first, refused) && all;
	}
	return all;
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_out *body,
                        bool *refused)
{
	const struct kvi_had_params *p = job->params->had;
	struct kvi_lanes lanes = kvi_codes_lanes(c, &job->chunk, job->lane_order);
	size_t n = lanes.rows * lanes.channels, room = kvi_codes_capacity(n);
	struct kvi_body b = { .step = kvi_step_of(job->tier, &job->chunk, p->rms) };
	struct kvi_tiles t;
	int8_t *codes = kvi_scratch(c, KVI_SCRATCH_CODES, n);
	uint8_t *end = kvi_scratch(c, KVI_SCRATCH_OUT, KVI_BODY_HEAD + room + 1);
	if (!codes || !end)
		return kvi_alloc_error(c->alloc);
	end += (KVI_BODY_HEAD + room) & ~(size_t)1;
	b.shift = kvi_quarter_log(b.step) - KVI_CODE_UNIT;
	kvarc_ret ret = kvi_tiles_open(&t, c, job, p->turned);
	if (ret)
		return ret;
	*refused = !encode_all(&t, &b, kvi_offset_of(p->rms, b.step), codes);
	if (*refused)
		return KVARC_OK;
	const uint8_t *class = kvi_classes(c, p->k, lanes.channels, b.shift);
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
	return tier->rate >= MIN_RATE && tier->rate <= MAX_RATE &&
	       (chunk->kind == KVARC_KEY || chunk->kind == KVARC_VALUE ||
	        chunk->kind == KVARC_CROSS_KEY || chunk->kind == KVARC_CROSS_VALUE);
}

const struct kvi_lossy_codec kvi_lossy_had = {
	parse, serialise, kvi_had_fit, takes, encode, decode
};
