/* SPDX-License-Identifier: BSD-3-Clause */
/* lossy.c - payloads of lossy chunks: generation, exact tokens, body (spec lossy 1) */
#include "codecs/lossy/lossy.h"

#include <math.h>

#include "util/fpmode.h"

enum {
	FLAG_EXACT = 1, HEAD = 2, GENERATION_MAX = 255,
	STORED = 0, PACKED = 1,
	TRIES = 4 /* to find what a codec refuses */
};

const struct kvi_lossy_codec *kvi_lossy_codec_get(unsigned codec)
{
	static const struct kvi_lossy_codec *const codecs[KVI_N_CODECS] = {
		[KVI_CODEC_NEAR] = &kvi_lossy_near,
		[KVI_CODEC_TSC] = &kvi_lossy_tsc,
		[KVI_CODEC_VQ] = &kvi_lossy_vq,
		[KVI_CODEC_HAD] = &kvi_lossy_had,
		[KVI_CODEC_KLT] = &kvi_lossy_klt,
	};
	return codec < KVI_N_CODECS ? codecs[codec] : NULL;
}

unsigned kvi_lossy_generation(const uint8_t *payload, size_t bytes)
{
	return bytes ? payload[0] : 0;
}

static bool bit(const uint8_t *bits, size_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

/* Bytes of elements as planes, lowest bytes first, and back. */
static void to_planes(const uint8_t *from, size_t n, size_t size, uint8_t *to)
{
	for (size_t b = 0; b < size; b++)
		for (size_t i = 0; i < n; i++)
			*to++ = from[i * size + b];
}

static void from_planes(const uint8_t *from, size_t n, size_t size, uint8_t *to)
{
	for (size_t b = 0; b < size; b++)
		for (size_t i = 0; i < n; i++)
			to[i * size + b] = *from++;
}

/* Tokens of a chunk, parted into exact ones and the others. */
struct parted {
	const struct kvi_chunk *chunk;
	size_t row;              /* bytes of a token */
	size_t n_exact;
	uint8_t exact[256];      /* of each token */
	uint8_t bits[32];
	int32_t positions[256];  /* of the others */
};

static struct kvi_chunk others_of(const struct parted *p)
{
	struct kvi_chunk some = *p->chunk;
	some.n_tokens -= (uint32_t)p->n_exact;
	if (p->chunk->positions)
		some.positions = p->positions;
	return some;
}

static void set_exact(struct parted *p, size_t t)
{
	p->n_exact += !p->exact[t];
	p->exact[t] = 1;
	p->bits[t / 8] |= (uint8_t)(1u << t % 8);
}

static void place_positions(struct parted *p)
{
	size_t n = 0;
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		if (!p->exact[t] && p->chunk->positions)
			p->positions[n++] = p->chunk->positions[t];
}

/* Rows of the exact tokens, or the others, out of all rows or back. */
static void part_rows(const struct parted *p, bool exact, const uint8_t *all,
                      uint8_t *some)
{
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		if (p->exact[t] == exact) {
			memcpy(some, all + t * p->row, p->row);
			some += p->row;
		}
}

static void join_rows(const struct parted *p, bool exact, const uint8_t *some,
                      uint8_t *all)
{
	for (size_t t = 0; t < p->chunk->n_tokens; t++)
		if (p->exact[t] == exact) {
			memcpy(all + t * p->row, some, p->row);
			some += p->row;
		}
}

static void part(struct parted *p, const struct kvi_chunk *chunk)
{
	*p = (struct parted){ .chunk = chunk,
		              .row = kvi_chunk_bytes(chunk) / chunk->n_tokens };
}

/* Decoding. */

static kvarc_ret get_exact(struct kvi_coder *c, struct parted *p,
                           struct kvi_in *in, uint8_t *raw)
{
	size_t T = p->chunk->n_tokens, size = kvarc_dtype_bytes(p->chunk->dtype);
	const uint8_t *bits = kvi_get_bytes(in, (T + 7) / 8);
	if (!bits || (T % 8 && bits[T / 8] >> T % 8))
		return KVARC_DATA;
	for (size_t t = 0; t < T; t++)
		if (bit(bits, t))
			set_exact(p, t);
	if (!p->n_exact || p->n_exact == T)
		return KVARC_DATA;
	size_t bytes = p->n_exact * p->row, packed = bytes;
	unsigned method = kvi_get8(in);
	if (method > PACKED)
		return KVARC_OPTIONS;
	if (method == PACKED)
		packed = (size_t)kvi_get_varint(in, SIZE_MAX / 2);
	const uint8_t *from = packed ? kvi_get_bytes(in, packed) : NULL;
	uint8_t *rows = kvi_scratch(c, KVI_SCRATCH_LOSSY, 2 * bytes);
	if (!from)
		return KVARC_DATA;
	if (!rows)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = KVARC_OK;
	if (method == PACKED) {
		ret = kvi_zstd_read(c, from, packed, rows + bytes, bytes);
		from = rows + bytes;
	}
	if (!ret)
		from_planes(from, bytes / size, size, rows);
	if (!ret)
		join_rows(p, true, rows, raw);
	return ret;
}

static kvarc_ret check_params(const struct kvi_chunk_payload *p,
                              const struct kvi_lossy_codec *vt)
{
	const struct kvi_params *x = p->params;
	if (!vt->parse)
		return KVARC_OK;
	return x && x->codec == p->codec && x->dtype == p->chunk->dtype &&
	       x->heads == p->chunk->heads &&
	       x->head_channels == p->chunk->head_channels
	               ? KVARC_OK : KVARC_DATA;
}

static kvarc_ret decode_body(struct kvi_coder *c,
                             const struct kvi_chunk_payload *p,
                             struct parted *parts, struct kvi_in *in,
                             uint8_t *raw)
{
	const struct kvi_lossy_codec *vt = kvi_lossy_codec_get(p->codec);
	struct kvi_lossy_job job = {
		.chunk = others_of(parts), .params = p->params,
		.lane_order = p->lane_order, .decoded = raw
	};
	kvarc_ret ret = check_params(p, vt);
	if (ret)
		return ret;
	if (parts->n_exact)
		job.decoded = kvi_scratch(c, KVI_SCRATCH_LOSSY,
		                          job.chunk.n_tokens * parts->row);
	if (!job.decoded)
		return kvi_alloc_error(c->alloc);
	uint64_t mode = kvi_fp_exact();
	ret = vt->decode(c, &job, in);
	kvi_fp_restore(mode);
	if (!ret && parts->n_exact)
		join_rows(parts, false, job.decoded, raw);
	return ret;
}

kvarc_ret kvi_lossy_decode(struct kvi_coder *c,
                           const struct kvi_chunk_payload *p, uint8_t *raw)
{
	struct kvi_in in = kvi_in_make(p->payload, p->payload_bytes);
	struct parted parts;
	unsigned generation = kvi_get8(&in), flags = kvi_get8(&in);
	if (!c->tables->codes.lut)
		return KVARC_LOSSY;
	if (in.bad || !generation || flags & ~(unsigned)FLAG_EXACT ||
	    !kvi_float_format(p->chunk->dtype) ||
	    p->lane_order >= KVI_N_LANE_ORDERS)
		return KVARC_DATA;
	part(&parts, p->chunk);
	kvarc_ret ret = flags & FLAG_EXACT ? get_exact(c, &parts, &in, raw)
	                                   : KVARC_OK;
	place_positions(&parts);
	if (!ret)
		ret = decode_body(c, p, &parts, &in, raw);
	if (!ret && (in.bad || kvi_in_left(&in)))
		ret = KVARC_DATA;
	return ret;
}

/* Encoding. */

/* The length of a row of finite elements. */
static double length_of(const struct kvi_chunk *chunk, const uint8_t *row)
{
	enum { BLOCK = 256 };
	const size_t C = kvi_chunk_channels(chunk);
	const size_t size = kvarc_dtype_bytes(chunk->dtype);
	double sum = 0;
	float x[BLOCK];
	for (size_t at = 0; at < C; at += BLOCK) {
		size_t n = C - at < BLOCK ? C - at : BLOCK;
		kvi_floats_exact(chunk->dtype, row + at * size, n, x);
		for (size_t i = 0; i < n; i++)
			sum += (double)x[i] * (double)x[i];
	}
	return sqrt(sum);
}

/* Among the tokens that are not exact, those that are much longer than the mean of them all. */
static void find_outliers(struct parted *p, const kvarc_lossy *how,
                          const uint8_t *raw)
{
	enum { UNIT = 16 };
	const size_t T = p->chunk->n_tokens;
	const double n = (double)(T - p->n_exact);
	double length[256] = { 0 }, mean = 0, variance = 0;
	for (size_t t = 0; t < T; t++) {
		if (p->exact[t])
			continue;
		length[t] = length_of(p->chunk, raw + t * p->row);
		mean += length[t] / n;
	}
	for (size_t t = 0; t < T; t++)
		if (!p->exact[t])
			variance += (length[t] - mean) * (length[t] - mean) / n;
	const double most = mean + sqrt(variance) * how->outliers / UNIT;
	for (size_t t = 0; t < T; t++)
		if (!p->exact[t] && length[t] > most)
			set_exact(p, t);
}

/* The first and last tokens of a track, outliers, and those that are not finite. */
static void find_exact(struct parted *p, const kvarc_lossy *how,
                       const uint8_t *raw)
{
	const struct kvi_chunk *chunk = p->chunk;
	const uint64_t tail = chunk->end ? how->tail_tokens : 0;
	for (size_t t = 0; t < chunk->n_tokens; t++)
		if (chunk->t0 + t < how->exact_tokens ||
		    (tail && chunk->t0 + t + tail >= chunk->end) ||
		    !kvi_floats_finite(chunk->dtype, raw + t * p->row,
		                       kvi_chunk_channels(chunk)))
			set_exact(p, t);
	if (how->outliers)
		find_outliers(p, how, raw);
}

static kvarc_ret put_exact(struct kvi_coder *c, const struct parted *p,
                           const uint8_t *raw, struct kvi_out *out)
{
	size_t size = kvarc_dtype_bytes(p->chunk->dtype);
	size_t bytes = p->n_exact * p->row;
	if (!p->n_exact)
		return KVARC_OK;
	kvi_put_bytes(out, p->bits, (p->chunk->n_tokens + 7) / 8);
	uint8_t *rows = kvi_scratch(c, KVI_SCRATCH_PLANE, 2 * bytes);
	uint8_t *packed = kvi_scratch(c, KVI_SCRATCH_PLANE_OUT, bytes);
	if (!rows || !packed)
		return kvi_alloc_error(c->alloc);
	part_rows(p, true, raw, rows);
	to_planes(rows, bytes / size, size, rows + bytes);
	size_t n = kvi_zstd_write(c, rows + bytes, bytes, packed, bytes,
	                          KVI_ZSTD_LEVEL);
	kvi_put8(out, n ? PACKED : STORED);
	if (n)
		kvi_put_varint(out, n);
	kvi_put_bytes(out, n ? packed : rows + bytes, n ? n : bytes);
	return KVARC_OK;
}

/* What a codec makes of the tokens that are not exact. */
struct attempt {
	const struct kvi_lossy_codec *vt;
	struct kvi_lossy_job job;
	struct kvi_params *fresh; /* new parameters, or NULL */
	struct kvi_out body;
	bool refused;
};

static kvarc_ret try_once(struct kvi_coder *c, struct parted *p,
                          const struct kvi_params *current, const uint8_t *raw,
                          struct attempt *a)
{
	uint8_t refused[256] = { 0 };
	kvarc_ret ret = KVARC_OK;
	place_positions(p);
	a->job.chunk = others_of(p);
	size_t bytes = a->job.chunk.n_tokens * p->row;
	a->refused = false;
	a->body.n = 0;
	if (!bytes)
		return KVARC_END;
	uint8_t *rows = kvi_scratch(c, KVI_SCRATCH_LOSSY, 2 * bytes);
	if (!rows)
		return kvi_alloc_error(c->alloc);
	part_rows(p, false, raw, rows);
	a->job.elements = rows;
	a->job.decoded = rows + bytes;
	a->job.refused = refused;
	if (a->vt->fit && !current && !a->fresh)
		ret = a->vt->fit(c, &a->job, &a->fresh);
	a->job.params = current ? current : a->fresh;
	if (!ret)
		ret = a->vt->encode(c, &a->job, &a->body, &a->refused);
	if (!ret && a->body.failed)
		ret = kvi_alloc_error(c->alloc);
	for (size_t t = 0, i = 0; a->refused && t < p->chunk->n_tokens; t++)
		if (!p->exact[t] && refused[i++])
			set_exact(p, t);
	return ret;
}

static size_t elements_of(const struct attempt *a)
{
	return kvi_chunk_channels(&a->job.chunk) * a->job.chunk.n_tokens;
}

static kvarc_ret finish(struct kvi_coder *c, const struct parted *p,
                        struct attempt *a, uint8_t *raw, struct kvi_encoded *out)
{
	const unsigned before = a->job.how->generation;
	struct kvi_out o, content;
	kvi_out_init(&o, c->alloc);
	kvi_put8(&o, before < GENERATION_MAX ? (uint8_t)(before + 1) : GENERATION_MAX);
	kvi_put8(&o, p->n_exact ? FLAG_EXACT : 0);
	kvarc_ret ret = put_exact(c, p, raw, &o);
	kvi_put_bytes(&o, a->body.p, a->body.n);
	uint8_t *payload = kvi_scratch(c, KVI_SCRATCH_LOSSY_OUT, o.n);
	if (!ret && (o.failed || !payload))
		ret = kvi_alloc_error(c->alloc);
	*out = (struct kvi_encoded){
		.codec = (uint8_t)a->job.how->tier,
		.lane_order = a->job.lane_order,
		.uses_params = a->vt->parse,
		.payload = payload, .payload_bytes = o.n
	};
	if (!ret)
		memcpy(payload, o.p, o.n);
	kvi_out_free(&o);
	if (ret || !a->fresh)
		return ret;
	a->fresh->expected = kvi_params_rate(a->body.n, elements_of(a));
	kvi_out_init(&content, c->alloc);
	a->vt->serialise(a->fresh, &content);
	if (content.failed) {
		kvi_out_free(&content);
		return kvi_alloc_error(c->alloc);
	}
	out->params = a->fresh;
	out->params_codec = out->codec;
	out->params_content = content.p;
	out->params_bytes = content.n;
	a->fresh = NULL;
	return KVARC_OK;
}

static bool drifted(const struct attempt *a)
{
	return a->vt->fit &&
	       kvi_params_drifted(a->job.params, a->body.n, elements_of(a));
}

/* out->payload stays NULL where the tier is not for the chunk. */
static kvarc_ret encode(struct kvi_coder *c, const struct kvi_chunk *chunk,
                        const kvarc_lossy *how,
                        const struct kvi_params *current, uint8_t *raw,
                        struct kvi_encoded *out)
{
	struct parted p;
	struct attempt a = {
		.vt = kvi_lossy_codec_get(how->tier),
		.job = { .how = how, .lane_order = KVI_LANES_TOKENS },
		.refused = true
	};
	kvarc_ret ret = KVARC_OK;
	part(&p, chunk);
	find_exact(&p, how, raw);
	kvi_out_init(&a.body, c->alloc);
	if (!kvi_params_serve(current, chunk, how->tier))
		current = NULL;
	/* With a fallback tokens are refused for their own sake. */
	for (int i = 0; i < TRIES && a.refused && !ret; i++) {
		ret = try_once(c, &p, current, raw, &a);
		if (!ret && current &&
		    (a.refused ? !how->fallback : drifted(&a))) {
			current = NULL; /* they are no longer good */
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
	if (!ret && out->payload)
		join_rows(&p, false, a.job.decoded, raw);
	kvi_out_free(&a.body);
	kvi_params_free(a.fresh);
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvi_chunk_encode_lossy(struct kvi_coder *c,
                                 const struct kvi_chunk *chunk, int level,
                                 const kvarc_lossy *how,
                                 const struct kvi_params *current,
                                 uint8_t *raw, struct kvi_encoded *out)
{
	const struct kvi_lossy_codec *vt = kvi_lossy_codec_get(how->tier);
	size_t n = kvi_chunk_bytes(chunk);
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	*out = (struct kvi_encoded){ .codec = KVI_CODEC_RAW };
	bool constant = n > size && !memcmp(raw, raw + size, n - size);
	if (vt && !constant && kvi_chunk_valid(chunk) &&
	    kvi_float_format(chunk->dtype) && vt->takes(how, chunk)) {
		uint64_t mode = kvi_fp_exact();
		kvarc_ret ret = encode(c, chunk, how, current, raw, out);
		kvi_fp_restore(mode);
		if (ret || out->payload)
			return ret;
	}
	return kvi_chunk_encode(c, chunk, level, current, raw, out);
}
