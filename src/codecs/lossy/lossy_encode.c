/* SPDX-License-Identifier: BSD-3-Clause */
/* lossy_encode.c - payloads of lossy chunks from elements: exact tokens, rates, bodies (spec
 * lossy 1) */
#include "lossy_codec.h"

#include <math.h>

#include "payload_parts.h"
#include "quantiser_scales.h"
#include "util/fpmode.h"
#include "util/hash.h"

enum { TRIES = 4 /* most encodings until a codec refuses no token */ };

/* Keeps tokens exact whose norm is far above the mean norm of the tokens that are not exact. */
static void find_outliers(struct kvi_parts *parts, const kvarc_lossy *tier, const uint8_t *raw)
{
	enum { UNIT = 16 };
	const size_t T = parts->chunk->n_tokens;
	const double n = (double)kvi_parts_count(parts, KVI_CODED);
	double length[256] = { 0 }, mean = 0, variance = 0;
	for (size_t t = 0; t < T; t++) {
		if (parts->part[t] == KVI_EXACT)
			continue;
		length[t] = sqrt(kvi_lossy_squares(parts->chunk->dtype, raw + t * parts->row,
		                                   kvi_chunk_channels(parts->chunk)));
		mean += length[t] / n;
	}
	for (size_t t = 0; t < T; t++)
		if (parts->part[t] != KVI_EXACT)
			variance += (length[t] - mean) * (length[t] - mean) / n;
	const double most = mean + sqrt(variance) * tier->outliers / UNIT;
	for (size_t t = 0; t < T; t++)
		if (parts->part[t] != KVI_EXACT && length[t] > most)
			parts->part[t] = KVI_EXACT;
}

/* Tokens that stay exact: the first and last of a track, by their rate, not finite, outliers. */
static void find_exact(struct kvi_parts *parts, const struct kvi_encode_request *request,
                       const kvarc_lossy *tier, const uint8_t *raw)
{
	const struct kvi_chunk *chunk = &request->chunk;
	const uint64_t tail = request->end ? tier->tail_tokens : 0;
	for (size_t t = 0; t < chunk->n_tokens; t++)
		if (request->t0 + t < tier->exact_tokens ||
		    (tail && request->t0 + t + tail >= request->end) ||
		    (request->token_rate && request->token_rate[t] == KVARC_LOSSY_NOTHING) ||
		    !kvi_floats_finite(chunk->dtype, raw + t * parts->row,
		                       kvi_chunk_channels(chunk)))
			parts->part[t] = KVI_EXACT;
	if (tier->outliers)
		find_outliers(parts, tier, raw);
}

/* The bodies of the tokens that are not exact. */
struct lossy_attempt {
	const struct kvi_encode_request *request;
	const struct kvi_codec *row;
	const kvarc_lossy *tier;
	const struct kvi_params *params;
	struct kvi_params *fresh;    /* new parameters, or NULL */
	int rate[KVI_RATES_MAX];     /* rate of each class, in 1/16 bit */
	size_t bytes[KVI_RATES_MAX]; /* size of each class's body */
	struct kvi_out bodies;
	uint8_t *elements; /* buffer for tokens of a class */
	uint8_t *decoded;  /* tokens of all classes, one after another */
	bool refused;
};

/* A job for the tokens of some parts. */
static void job_of(struct kvi_parts_work *w, struct kvi_coder *coder,
                   const struct lossy_attempt *attempt, const struct kvi_parts *parts,
                   unsigned which, const uint8_t *raw, uint8_t *refused)
{
	kvi_parts_job(w, parts, which, coder);
	const bool all = w->chunk.n_tokens == parts->chunk->n_tokens;
	if (!all)
		kvi_parts_take(parts, which, raw, attempt->elements);
	w->job.packed = w->job.raw = all ? raw : attempt->elements;
	w->job.params = attempt->params;
	w->job.linear = attempt->request->linear;
	w->job.request = attempt->request;
	w->job.tier = attempt->tier;
	w->job.refused = refused;
}

/* Marks the refused tokens of these parts as exact. */
static void refuse(struct kvi_parts *parts, unsigned which, const uint8_t *refused,
                   struct lossy_attempt *attempt)
{
	for (size_t t = 0, i = 0; t < parts->chunk->n_tokens; t++)
		if (parts->part[t] & which && refused[i++])
			parts->part[t] = KVI_EXACT;
	attempt->refused = true;
}

/* The body of a class, and its decoded elements. */
static kvarc_ret try_class(struct kvi_coder *coder, struct kvi_parts *parts, unsigned class,
                           const uint8_t *raw, uint8_t *decoded, struct lossy_attempt *attempt)
{
	uint8_t refused[KVI_TOKENS_MAX] = { 0 };
	struct kvi_payload out = { .body = &attempt->bodies };
	kvarc_lossy tier = *attempt->tier;
	struct kvi_parts_work w;
	const size_t before = attempt->bodies.n;
	job_of(&w, coder, attempt, parts, 1u << class, raw, refused);
	tier.rate = attempt->rate[class];
	w.job.tier = &tier;
	w.job.decoded = decoded;
	kvarc_ret ret = attempt->row->encode(coder, &w.job, &out);
	if (!ret && attempt->bodies.failed)
		ret = kvi_alloc_error(coder->alloc);
	attempt->bytes[class] = attempt->bodies.n - before;
	if (out.refused)
		refuse(parts, 1u << class, refused, attempt);
	return ret;
}

static kvarc_ret fit(struct kvi_coder *coder, struct kvi_parts *parts, const uint8_t *raw,
                     struct lossy_attempt *attempt)
{
	uint8_t refused[KVI_TOKENS_MAX] = { 0 };
	struct kvi_parts_work w;
	job_of(&w, coder, attempt, parts, KVI_CODED, raw, refused);
	kvarc_ret ret = attempt->row->fit(coder, &w.job, &attempt->fresh);
	if (!ret && !attempt->fresh)
		refuse(parts, KVI_CODED, refused, attempt);
	return ret;
}

static kvarc_ret try_once(struct kvi_coder *coder, struct kvi_parts *parts,
                          const struct kvi_params *current, const uint8_t *raw,
                          struct lossy_attempt *attempt)
{
	kvarc_ret ret = KVARC_OK;
	size_t bytes = kvi_parts_count(parts, KVI_CODED) * parts->row;
	attempt->refused = false;
	attempt->bodies.n = 0;
	if (!bytes)
		return KVARC_END;
	attempt->elements = kvi_scratch(coder, KVI_SCRATCH_LOSSY, 2 * bytes);
	if (!attempt->elements)
		return kvi_alloc_error(coder->alloc);
	attempt->decoded = attempt->elements + bytes;
	if (attempt->row->fit && !current && !attempt->fresh)
		ret = fit(coder, parts, raw, attempt);
	if (ret || attempt->refused)
		return ret;
	attempt->params = current ? current : attempt->fresh;
	kvi_rates_choose(parts, attempt->request, attempt->tier, attempt->rate);
	uint8_t *decoded = attempt->decoded;
	for (unsigned i = 0; i < parts->n_rates && !ret; i++) {
		size_t n = kvi_parts_count(parts, 1u << i) * parts->row;
		ret = try_class(coder, parts, i, raw, decoded, attempt);
		decoded += n;
	}
	return ret;
}

/* Bytes of the bodies as if all tokens had the tier's rate. */
static size_t bytes_alike(const struct lossy_attempt *attempt, const struct kvi_parts *parts)
{
	enum { PARTS_OF_BYTE = 16 * 8 };
	int64_t more = 0;
	for (unsigned i = 0; i < parts->n_rates; i++)
		more += (int64_t)kvi_parts_count(parts, 1u << i) *
		        (attempt->rate[i] - attempt->tier->rate);
	more = more * (int64_t)kvi_chunk_channels(parts->chunk) / PARTS_OF_BYTE;
	int64_t bytes = (int64_t)attempt->bodies.n - more;
	return bytes > 0 ? (size_t)bytes : 1;
}

static size_t elements_of(const struct kvi_parts *parts)
{
	return kvi_chunk_channels(parts->chunk) * kvi_parts_count(parts, KVI_CODED);
}

static kvarc_ret put_payload(struct kvi_coder *coder, const struct kvi_parts *parts,
                             const struct lossy_attempt *attempt, const uint8_t *raw,
                             struct kvi_out *out)
{
	const bool exact = kvi_parts_count(parts, KVI_EXACT) > 0;
	kvarc_ret ret = KVARC_OK;
	kvi_put8(out, kvi_lossy_next_generation(attempt->tier));
	kvi_put8(out, (uint8_t)((exact ? KVI_FLAG_EXACT : 0) |
	                        (parts->n_rates > 1 ? KVI_FLAG_RATES : 0)));
	if (exact)
		ret = kvi_exact_put(coder, parts, raw, out);
	if (parts->n_rates > 1)
		kvi_rates_put(parts, attempt->bytes, out);
	kvi_put_bytes(out, attempt->bodies.p, attempt->bodies.n);
	return ret;
}

static kvarc_ret put_params(struct kvi_coder *coder, const struct kvi_parts *parts,
                            struct lossy_attempt *attempt, struct kvi_encoded *out)
{
	struct kvi_out content;
	kvarc_ret ret = kvi_params_write(attempt->fresh, coder->alloc, &content);
	if (ret)
		return ret;
	attempt->fresh->expected = kvi_params_rate(bytes_alike(attempt, parts), elements_of(parts));
	out->params = attempt->fresh;
	out->params_codec = out->codec;
	out->params_content = content.p;
	out->params_bytes = content.n;
	attempt->fresh = NULL;
	return KVARC_OK;
}

static kvarc_ret finish(struct kvi_coder *coder, const struct kvi_parts *parts,
                        struct lossy_attempt *attempt, uint8_t *raw, struct kvi_encoded *out)
{
	struct kvi_out o;
	kvi_out_init(&o, coder->alloc);
	kvarc_ret ret = put_payload(coder, parts, attempt, raw, &o);
	uint8_t *payload = kvi_scratch(coder, KVI_SCRATCH_LOSSY_OUT, o.n);
	if (!ret && (o.failed || !payload))
		ret = kvi_alloc_error(coder->alloc);
	*out = (struct kvi_encoded){ .codec = (uint8_t)attempt->tier->tier,
		                     .cut = { .stream_size = KVI_ONE_STREAM },
		                     .uses_params = kvi_codec_has_params(attempt->tier->tier),
		                     .payload = payload,
		                     .payload_bytes = o.n };
	if (!ret)
		memcpy(payload, o.p, o.n);
	kvi_out_free(&o);
	return ret || !attempt->fresh ? ret : put_params(coder, parts, attempt, out);
}

static bool drifted(const struct lossy_attempt *attempt, const struct kvi_parts *parts)
{
	return attempt->row->fit &&
	       kvi_params_drifted(attempt->params, bytes_alike(attempt, parts), elements_of(parts));
}

/* The decoded elements of coded tokens in place of those of the input. */
static void put_decoded(const struct lossy_attempt *attempt, const struct kvi_parts *parts,
                        uint8_t *raw)
{
	const uint8_t *from = attempt->decoded;
	for (unsigned i = 0; i < parts->n_rates; i++) {
		kvi_parts_put(parts, 1u << i, from, raw);
		from += kvi_parts_count(parts, 1u << i) * parts->row;
	}
}

/* Encodes with the tier's codec; out->payload stays NULL where the codec does not take the
 * chunk. */
static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_encode_request *request,
                        const kvarc_lossy *tier, uint8_t *raw, struct kvi_encoded *out)
{
	const struct kvi_chunk *chunk = &request->chunk;
	const struct kvi_params *current = request->params;
	struct kvi_parts p;
	struct lossy_attempt a = {
		.request = request, .row = kvi_codec_get(tier->tier), .tier = tier, .refused = true
	};
	kvarc_ret ret = KVARC_OK;
	kvi_parts_open(&p, chunk);
	find_exact(&p, request, tier, raw);
	kvi_out_init(&a.bodies, coder->alloc);
	if (!kvi_params_serve(current, chunk, tier->tier))
		current = NULL;
	/* A fallback refuses tokens whatever the parameters are, so that these stay in force. */
	for (int i = 0; i < TRIES && a.refused && !ret; i++) {
		ret = try_once(coder, &p, current, raw, &a);
		if (!ret && current && (a.refused ? !tier->params.vq.fallback : drifted(&a, &p))) {
			current = NULL; /* new parameters are fitted */
			a.refused = true;
		}
	}
	if (!ret && !a.refused)
		ret = finish(coder, &p, &a, raw, out);
	if (!ret && out->payload_bytes >= kvi_chunk_bytes(chunk)) {
		kvi_params_free(out->params);
		kvi_free(coder->alloc, out->params_content);
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

kvarc_ret kvi_chunk_encode_lossy(struct kvi_coder *coder, const struct kvi_encode_request *request,
                                 const kvarc_lossy *tier, uint8_t *raw, struct kvi_encoded *out)
{
	const struct kvi_chunk *chunk = &request->chunk;
	size_t n = kvi_chunk_bytes(chunk);
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	*out = (struct kvi_encoded){ .codec = KVI_CODEC_RAW };
	bool constant = n > size && !memcmp(raw, raw + size, n - size);
	if (!constant && kvi_chunk_valid(chunk) && kvi_float_format(chunk->dtype) &&
	    kvi_lossy_takes(tier, request->kind)) {
		uint64_t mode = kvi_fp_exact();
		kvarc_ret ret = encode(coder, request, tier, raw, out);
		kvi_fp_restore(mode);
		if (ret || out->payload)
			return ret;
	}
	return kvi_chunk_encode(coder, request, raw, out);
}
