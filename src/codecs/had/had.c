/* SPDX-License-Identifier: BSD-3-Clause */
/* had.c - the codec had: mean, Hadamard transform, one step for all coefficients (spec had) */
#include "codecs/had/had.h"

enum { FLAG_TURNED = 1, FLAG_HADAMARD = 2 };

struct kvi_had_params *kvi_had_params_new(const struct kvi_alloc *alloc,
                                          const struct kvi_chunk *shape)
{
	size_t C = kvi_chunk_channels(shape);
	struct kvi_had_params *p;
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
			return KVARC_DATA; /* not finite */
	struct kvi_had_params *p = kvi_had_params_new(alloc, shape);
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

static void serialise(const struct kvi_params *p, struct kvi_out *out)
{
	const struct kvi_had_params *h = kvi_had_params_of(p);
	size_t C = kvi_params_channels(p);
	kvi_put8(out,
	         (uint8_t)((p->rotates ? FLAG_TURNED : 0) | (h->hadamard ? FLAG_HADAMARD : 0)));
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
	struct kvi_tile_codec codec;
	const struct kvi_had_params *p;
};

static const float *analyse(struct kvi_tile_codec *codec, size_t head)
{
	const struct had_work *w = (struct had_work *)(void *)codec;
	const size_t hc = codec->t.job->chunk->head_channels;
	codec->t.transform->forward(codec->t.x, w->p->mean + head * hc, hc, w->p->hadamard);
	return codec->t.x;
}

static void synthesise(struct kvi_tile_codec *codec, size_t head, bool decoding)
{
	const struct had_work *w = (struct had_work *)(void *)codec;
	const size_t hc = codec->t.job->chunk->head_channels;
	(void)decoding;
	codec->t.transform->back(codec->t.codes, codec->body.points, codec->body.step,
	                         w->p->mean + head * hc, hc, w->p->hadamard, codec->t.points,
	                         codec->t.x);
}

static kvarc_ret open_work(struct had_work *w, struct kvi_coder *c, const struct kvi_coder_job *job)
{
	const struct kvi_had_params *p = kvi_had_params_of(job->params);
	*w = (struct had_work){
		.codec = { .k = p->k, .analyse = analyse, .synthesise = synthesise },
		.p = p,
	};
	return kvi_tiles_open(&w->codec.t, c, job, p->common.rotates);
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct had_work w;
	kvarc_ret ret = open_work(&w, c, job);
	return ret ? ret : kvi_tile_codec_encode(&w.codec, c, w.p->rms, out);
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct had_work w;
	kvarc_ret ret = open_work(&w, c, job);
	return ret ? ret : kvi_tile_codec_decode(&w.codec, c, in);
}

const struct kvi_codec kvi_codec_had = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = serialise,
	.fit = kvi_had_fit,
	.encode = encode,
	.decode = decode,
};
