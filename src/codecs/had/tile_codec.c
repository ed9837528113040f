/* SPDX-License-Identifier: BSD-3-Clause */
/* tile_codec.c - bodies of transform codecs: heads of blocks of 32 tokens (spec had, klt) */
#include "codecs/had/had.h"

/* t.codes to or from the stream, whose lanes are tokens. */
static void move_codes(struct kvi_tile_codec *w, size_t first, size_t head, int8_t *stream,
                       bool to_stream)
{
	const struct kvi_chunk *chunk = w->t.job->chunk;
	size_t n = kvi_tile_tokens(&w->t, first), hc = chunk->head_channels;
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
static void decode_head(struct kvi_tile_codec *w, size_t first, size_t head, int8_t *stream,
                        bool decoding)
{
	move_codes(w, first, head, stream, false);
	w->synthesise(w, head, decoding);
	kvi_tiles_put(&w->t, first, head);
}

static void begin_block(struct kvi_tile_codec *w, size_t first)
{
	kvi_tiles_rotate(&w->t, first);
	if (w->block)
		w->block(w, first);
}

kvarc_ret kvi_tile_codec_decode(struct kvi_tile_codec *w, struct kvi_coder *c, struct kvi_in *in)
{
	const struct kvi_chunk *chunk = w->t.job->chunk;
	const struct kvi_lanes *l = &w->t.job->lanes;
	const size_t n = l->rows * l->channels;
	if (!kvi_body_get(in, &w->body))
		return KVARC_DATA;
	const uint8_t *class = kvi_classes(c, w->k, l->channels, w->body.shift);
	int8_t *codes = kvi_scratch(c, KVI_SCRATCH_CODES, n);
	if (!class || !codes)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = kvi_codes_get(c, l, class, in, codes);
	if (ret)
		return ret;
	memset(w->t.codes, 0, chunk->head_channels * KVI_LANES);
	if (w->begin)
		w->begin(w);
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		begin_block(w, first);
		for (size_t h = 0; h < chunk->heads; h++)
			decode_head(w, first, h, codes, true);
		kvi_tiles_store(&w->t, first);
	}
	return KVARC_OK;
}

/* A head to its codes, in w->t and in the stream; *x: its coefficients. Returns a bit for
 * each token that is refused. */
static uint32_t encode_head(struct kvi_tile_codec *w, float offset, size_t first, size_t head,
                            int8_t *stream, const float **x)
{
	kvi_tiles_head(&w->t, first, head);
	*x = w->analyse(w, head);
	uint32_t refused = w->t.transform->quantise(*x, w->t.job->chunk->head_channels,
	                                            1.0f / w->body.step, offset, w->t.codes);
	move_codes(w, first, head, stream, true);
	return refused;
}

/* The first block, whose codes determine the points. */
static uint32_t encode_first(struct kvi_tile_codec *w, float offset, int8_t *codes)
{
	const struct kvi_chunk *chunk = w->t.job->chunk;
	struct kvi_centroid m = { .n = { 0 } };
	uint32_t refused = 0;
	const float *x;
	for (size_t h = 0; h < chunk->heads; h++) {
		refused |= encode_head(w, offset, 0, h, codes, &x);
		kvi_centroid_watch(&m, x, w->t.codes, chunk->head_channels, 1.0f / w->body.step,
		                   kvi_tile_tokens(&w->t, 0));
	}
	w->body.points = kvi_centroid_points(&m);
	for (size_t h = 0; h < chunk->heads; h++)
		decode_head(w, 0, h, codes, false);
	return refused;
}

/* Sets the flags of refused tokens of a block; false: there are none. */
static bool refuse(const struct kvi_tiles *t, size_t first, uint32_t refused)
{
	bool some = false;
	for (size_t i = 0; i < kvi_tile_tokens(t, first); i++) {
		t->job->refused[first + i] = refused >> i & 1;
		some = some || t->job->refused[first + i];
	}
	return some;
}

/* Codes of all tokens in stream order and their elements; whether some tokens are refused. */
static bool encode_all(struct kvi_tile_codec *w, float offset, int8_t *codes)
{
	const struct kvi_chunk *chunk = w->t.job->chunk;
	bool some = false;
	if (w->begin)
		w->begin(w);
	for (size_t first = 0; first < chunk->n_tokens; first += KVI_LANES) {
		uint32_t refused = 0;
		const float *x;
		begin_block(w, first);
		kvi_tiles_load(&w->t, first);
		if (!first)
			refused = encode_first(w, offset, codes);
		for (size_t h = 0; first && h < chunk->heads; h++) {
			refused |= encode_head(w, offset, first, h, codes, &x);
			w->synthesise(w, h, false);
			kvi_tiles_put(&w->t, first, h);
		}
		kvi_tiles_store(&w->t, first);
		some = refuse(&w->t, first, refused) || some;
	}
	return some;
}

kvarc_ret kvi_tile_codec_encode(struct kvi_tile_codec *w, struct kvi_coder *c, float rms,
                                struct kvi_payload *out)
{
	const struct kvi_coder_job *job = w->t.job;
	const size_t n = job->lanes.rows * job->lanes.channels;
	struct kvi_body *b = &w->body;
	int8_t *codes = kvi_scratch(c, KVI_SCRATCH_CODES, n);
	uint8_t *end = kvi_scratch_end(c, KVI_SCRATCH_OUT, KVI_BODY_HEAD + kvi_codes_capacity(n));
	if (!codes || !end)
		return kvi_alloc_error(c->alloc);
	*b = (struct kvi_body){ .step = kvi_step_of(job->tier, job->chunk, rms) };
	b->shift = kvi_quarter_log(b->step) - KVI_CODE_UNIT;
	out->refused = encode_all(w, kvi_offset_of(rms, b->step), codes);
	if (out->refused)
		return KVARC_OK;
	const uint8_t *class = kvi_classes(c, w->k, job->lanes.channels, b->shift);
	uint8_t *begin = class ? kvi_codes_put(c, &job->lanes, class, codes, end) : NULL;
	if (!begin)
		return kvi_alloc_error(c->alloc);
	begin -= KVI_BODY_HEAD;
	kvi_body_put(begin, b);
	kvi_put_bytes(out->body, begin, (size_t)(end - begin));
	return KVARC_OK;
}
