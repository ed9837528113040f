/* SPDX-License-Identifier: BSD-3-Clause */
/* lossy_encode.c - payloads of lossy chunks from elements: exact tokens, rates, bodies (spec
 * lossy 1) */
#include "lossy_codec.h"

#include <math.h>

#include "payload_parts.h"
#include "quantiser_scales.h"
#include "util/fpmode.h"
#include "util/hash.h"

enum { TRIES = 4 /* until a codec refuses no token */ };

/* Keeps tokens exact whose norm is far above the mean norm of the tokens that are not exact. */
static void find_outliers(struct kvi_parts *p, const kvarc_lossy *tier, const uint8_t *raw)
{
	enum { UNIT = 16 };
	const size_t T = p->chunk->n_tokens;
	const double n = (double)kvi_parts_count(p, KVI_CODED);
	double length[256] = { 0 }, mean = 0, variance = 0;
	for (size_t t = 0; t < T; t++) {
		if (p->part[t] == KVI_EXACT)
			continue;
		length[t] = sqrt(kvi_lossy_squares(p->chunk->dtype, raw + t * p->row,
		                                   kvi_chunk_channels(p->chunk)));
		mean += length[t] / n;
	}
	for (size_t t = 0; t < T; t++)
		if (p->part[t] != KVI_EXACT)
			variance += (length[t] - mean) * (length[t] - mean) / n;
	const double most = mean + sqrt(variance) * tier->outliers / UNIT;
	for (size_t t = 0; t < T; t++)
		if (p->part[t] != KVI_EXACT && length[t] > most)
			p->part[t] = KVI_EXACT;
}

/* Tokens that stay exact: the first and last of a track, by their rate, not finite, outliers. */
static void find_exact(struct kvi_parts *p, const kvarc_lossy *tier, const uint8_t *raw)
{
	const struct kvi_chunk *chunk = p->chunk;
	const uint64_t tail = chunk->end ? tier->tail_tokens : 0;
	for (size_t t = 0; t < chunk->n_tokens; t++)
		if (chunk->t0 + t < tier->exact_tokens ||
		    (tail && chunk->t0 + t + tail >= chunk->end) ||
		    (chunk->token_rate && chunk->token_rate[t] == KVARC_LOSSY_NOTHING) ||
		    !kvi_floats_finite(chunk->dtype, raw + t * p->row, kvi_chunk_channels(chunk)))
			p->part[t] = KVI_EXACT;
	if (tier->outliers)
		find_outliers(p, tier, raw);
}

/* The bodies of the tokens that are not exact. */
struct lossy_attempt {
	const struct kvi_codec *row;
	const kvarc_lossy *tier;
	const struct kvi_params *params;
	struct kvi_params *fresh;    /* new parameters, or NULL */
	int rate[KVI_RATES_MAX];     /* of each class */
	size_t bytes[KVI_RATES_MAX]; /* of its body */
	struct kvi_out bodies;
	uint8_t *elements; /* buffer for tokens of a class */
	uint8_t *decoded;  /* tokens of all classes, one after another */
	bool refused;
};

/* A job for the tokens of some parts. */
static void job_of(struct kvi_parts_work *w, struct kvi_coder *c, const struct lossy_attempt *a,
                   const struct kvi_parts *p, unsigned which, const uint8_t *raw, uint8_t *refused)
{
	kvi_parts_job(w, p, which, c);
	const bool all = w->chunk.n_tokens == p->chunk->n_tokens;
	if (!all)
		kvi_parts_take(p, which, raw, a->elements);
	w->job.packed = w->job.raw = all ? raw : a->elements;
	w->job.params = a->params;
	w->job.tier = a->tier;
	w->job.refused = refused;
}

/* Some of the tokens of these parts stay exact. */
static void refuse(struct kvi_parts *p, unsigned which, const uint8_t *refused,
                   struct lossy_attempt *a)
{
	for (size_t t = 0, i = 0; t < p->chunk->n_tokens; t++)
		if (p->part[t] & which && refused[i++])
			p->part[t] = KVI_EXACT;
	a->refused = true;
}

/* The body of a class, and its decoded elements. */
static kvarc_ret try_class(struct kvi_coder *c, struct kvi_parts *p, unsigned class,
                           const uint8_t *raw, uint8_t *decoded, struct lossy_attempt *a)
{
	uint8_t refused[KVI_TOKENS_MAX] = { 0 };
	struct kvi_payload out = { .body = &a->bodies };
	kvarc_lossy tier = *a->tier;
	struct kvi_parts_work w;
	const size_t before = a->bodies.n;
	job_of(&w, c, a, p, 1u << class, raw, refused);
	tier.rate = a->rate[class];
	w.job.tier = &tier;
	w.job.decoded = decoded;
	kvarc_ret ret = a->row->encode(c, &w.job, &out);
	if (!ret && a->bodies.failed)
		ret = kvi_alloc_error(c->alloc);
	a->bytes[class] = a->bodies.n - before;
	if (out.refused)
		refuse(p, 1u << class, refused, a);
	return ret;
}

static kvarc_ret fit(struct kvi_coder *c, struct kvi_parts *p, const uint8_t *raw,
                     struct lossy_attempt *a)
{
	uint8_t refused[KVI_TOKENS_MAX] = { 0 };
	struct kvi_parts_work w;
	job_of(&w, c, a, p, KVI_CODED, raw, refused);
	kvarc_ret ret = a->row->fit(c, &w.job, &a->fresh);
	if (!ret && !a->fresh)
		refuse(p, KVI_CODED, refused, a);
	return ret;
}

static kvarc_ret try_once(struct kvi_coder *c, struct kvi_parts *p,
                          const struct kvi_params *current, const uint8_t *raw,
                          struct lossy_attempt *a)
{
	kvarc_ret ret = KVARC_OK;
	size_t bytes = kvi_parts_count(p, KVI_CODED) * p->row;
	a->refused = false;
	a->bodies.n = 0;
	if (!bytes)
		return KVARC_END;
	a->elements = kvi_scratch(c, KVI_SCRATCH_LOSSY, 2 * bytes);
	if (!a->elements)
		return kvi_alloc_error(c->alloc);
	a->decoded = a->elements + bytes;
	if (a->row->fit && !current && !a->fresh)
		ret = fit(c, p, raw, a);
	if (ret || a->refused)
		return ret;
	a->params = current ? current : a->fresh;
	kvi_rates_choose(p, a->tier, a->rate);
	uint8_t *decoded = a->decoded;
	for (unsigned i = 0; i < p->n_rates && !ret; i++) {
		size_t n = kvi_parts_count(p, 1u << i) * p->row;
		ret = try_class(c, p, i, raw, decoded, a);
		decoded += n;
	}
	return ret;
}

/* Bytes of the bodies as if all tokens had the tier's rate. */
static size_t bytes_alike(const struct lossy_attempt *a, const struct kvi_parts *p)
{
	enum { PARTS_OF_BYTE = 16 * 8 };
	int64_t more = 0;
	for (unsigned i = 0; i < p->n_rates; i++)
		more += (int64_t)kvi_parts_count(p, 1u << i) * (a->rate[i] - a->tier->rate);
	more = more * (int64_t)kvi_chunk_channels(p->chunk) / PARTS_OF_BYTE;
	int64_t bytes = (int64_t)a->bodies.n - more;
	return bytes > 0 ? (size_t)bytes : 1;
}

static size_t elements_of(const struct kvi_parts *p)
{
	return kvi_chunk_channels(p->chunk) * kvi_parts_count(p, KVI_CODED);
}

static kvarc_ret put_payload(struct kvi_coder *c, const struct kvi_parts *p,
                             const struct lossy_attempt *a, const uint8_t *raw, struct kvi_out *out)
{
	const bool exact = kvi_parts_count(p, KVI_EXACT) > 0;
	kvarc_ret ret = KVARC_OK;
	kvi_put8(out, kvi_lossy_next_generation(a->tier));
	kvi_put8(out,
	         (uint8_t)((exact ? KVI_FLAG_EXACT : 0) | (p->n_rates > 1 ? KVI_FLAG_RATES : 0)));
	if (exact)
		ret = kvi_exact_put(c, p, raw, out);
	if (p->n_rates > 1)
		kvi_rates_put(p, a->bytes, out);
	kvi_put_bytes(out, a->bodies.p, a->bodies.n);
	return ret;
}

static kvarc_ret put_params(struct kvi_coder *c, const struct kvi_parts *p, struct lossy_attempt *a,
                            struct kvi_encoded *out)
{
	struct kvi_out content;
	kvarc_ret ret = kvi_params_write(a->fresh, c->alloc, &content);
	if (ret)
		return ret;
	a->fresh->expected = kvi_params_rate(bytes_alike(a, p), elements_of(p));
	out->params = a->fresh;
	out->params_codec = out->codec;
	out->params_content = content.p;
	out->params_bytes = content.n;
	a->fresh = NULL;
	return KVARC_OK;
}

static kvarc_ret finish(struct kvi_coder *c, const struct kvi_parts *p, struct lossy_attempt *a,
                        uint8_t *raw, struct kvi_encoded *out)
{
	struct kvi_out o;
	kvi_out_init(&o, c->alloc);
	kvarc_ret ret = put_payload(c, p, a, raw, &o);
	uint8_t *payload = kvi_scratch(c, KVI_SCRATCH_LOSSY_OUT, o.n);
	if (!ret && (o.failed || !payload))
		ret = kvi_alloc_error(c->alloc);
	*out = (struct kvi_encoded){ .codec = (uint8_t)a->tier->tier,
		                     .cut = { .stream_size = KVI_ONE_STREAM },
		                     .uses_params = kvi_codec_has_params(a->tier->tier),
		                     .payload = payload,
		                     .payload_bytes = o.n };
	if (!ret)
		memcpy(payload, o.p, o.n);
	kvi_out_free(&o);
	return ret || !a->fresh ? ret : put_params(c, p, a, out);
}

static bool drifted(const struct lossy_attempt *a, const struct kvi_parts *p)
{
	return a->row->fit && kvi_params_drifted(a->params, bytes_alike(a, p), elements_of(p));
}

/* The decoded elements of coded tokens in place of those of the input. */
static void put_decoded(const struct lossy_attempt *a, const struct kvi_parts *p, uint8_t *raw)
{
	const uint8_t *from = a->decoded;
	for (unsigned i = 0; i < p->n_rates; i++) {
		kvi_parts_put(p, 1u << i, from, raw);
		from += kvi_parts_count(p, 1u << i) * p->row;
	}
}

/* out->payload stays NULL where the codec does not take the chunk. */
static kvarc_ret encode(struct kvi_coder *c, const struct kvi_chunk *chunk, const kvarc_lossy *tier,
                        const struct kvi_params *current, uint8_t *raw, struct kvi_encoded *out)
{
	struct kvi_parts p;
	struct lossy_attempt a = { .row = kvi_codec_get(tier->tier),
		                   .tier = tier,
		                   .refused = true };
	kvarc_ret ret = KVARC_OK;
	kvi_parts_open(&p, chunk);
	find_exact(&p, tier, raw);
	kvi_out_init(&a.bodies, c->alloc);
	if (!kvi_params_serve(current, chunk, tier->tier))
		current = NULL;
	/* With a fallback, tokens are refused whatever the parameters are. */
	for (int i = 0; i < TRIES && a.refused && !ret; i++) {
		ret = try_once(c, &p, current, raw, &a);
		if (!ret && current && (a.refused ? !tier->params.vq.fallback : drifted(&a, &p))) {
			current = NULL; /* they no longer serve */
			a.refused = true;
		}
	}
	if (!ret && !a.refused)
		ret = finish(c, &p, &a, raw, out);
	if (!ret && out->payload_bytes >= kvi_chunk_bytes(chunk)) {
		kvi_params_free(out->params);
		kvi_free(c->alloc, out->params_content);
		*out = (struct kvi_encoded){ .codec = KVI_CODEC_RAW };
	}
	if (!ret && out->payload) {
		put_decoded(&a, &p, raw);
		out->raw_check = kvi_h64(raw, kvi_chunk_bytes(chunk));
	}
	kvi_out_free(&a.bodies);
	kvi_params_free(a.fresh);
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvi_chunk_encode_lossy(struct kvi_coder *c, const struct kvi_chunk *chunk, int level,
                                 const kvarc_lossy *tier, const struct kvi_params *current,
                                 uint8_t *raw, struct kvi_encoded *out)
{
	size_t n = kvi_chunk_bytes(chunk);
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	*out = (struct kvi_encoded){ .codec = KVI_CODEC_RAW };
	bool constant = n > size && !memcmp(raw, raw + size, n - size);
	if (!constant && kvi_chunk_valid(chunk) && kvi_float_format(chunk->dtype) &&
	    kvi_lossy_takes(tier, chunk)) {
		uint64_t mode = kvi_fp_exact();
		kvarc_ret ret = encode(c, chunk, tier, current, raw, out);
		kvi_fp_restore(mode);
		if (ret || out->payload)
			return ret;
	}
	return kvi_chunk_encode(c, chunk, level, current, raw, out);
}
