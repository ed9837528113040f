/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_encode.c - chooses codec and parameters of a chunk, and encodes it */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "planes.h"
#include "util/hash.h"

/* ==== Payload and parameters of a chunk, by one of the codecs ==== */

/* A chunk encoded with one codec and its parameters. */
struct attempt {
	unsigned codec;
	struct kvi_payload out; /* out.begin NULL: the codec made no payload */
	size_t section_bytes;
	uint64_t raw_check;        /* check of the elements; several streams alone */
	bool refers;               /* the payload refers to request->before */
	struct kvi_params *params; /* new parameters, or NULL */
	struct kvi_out content;    /* PARAMS content of new parameters */
	size_t params_bytes;       /* bytes of new parameters in the file */
	bool priced;               /* params_bytes is exact, else an upper bound */
};

/* Bytes of the payload. */
static inline size_t attempt_bytes(const struct attempt *attempt)
{
	return (size_t)(attempt->out.end - attempt->out.begin);
}
/* Bytes of the payload and of its new parameters. */
static inline size_t attempt_cost(const struct attempt *attempt)
{
	return attempt_bytes(attempt) + attempt->params_bytes;
}

enum {
	PARAMS_FRAME = 64, /* bytes around the content of a PARAMS frame */
	PARAMS_LEVEL = 1,  /* Zstandard level of PARAMS content, as in kvi_pack */
	ROWS_TO_FIT = 4    /* fewer tokens never pay for new parameters */
};

/* Frees new parameters. */
static void attempt_drop(struct attempt *attempt)
{
	kvi_params_free(attempt->params);
	kvi_out_free(&attempt->content);
	attempt->params = NULL;
}

/* The section in front of the streams. */
static void put_section(const struct kvi_coder_job *job, struct attempt *attempt)
{
	const struct kvi_codec *row = kvi_codec_get(attempt->codec);
	uint8_t *at;
	attempt->section_bytes = row->head_bytes + job->section_bytes;
	attempt->out.begin -= attempt->section_bytes +
	                      (-attempt->section_bytes & (KVI_STREAM_ALIGN - 1));
	at = attempt->out.begin;
	if (row->put_head)
		row->put_head(job, &attempt->out, at);
	at += row->head_bytes;
	memcpy(at, job->section, job->section_bytes);
	kvi_put_padding(at + job->section_bytes, attempt->section_bytes);
}

/* Section, streams and planes by attempt->codec and job->params, in scratch memory `where`.
 * Returns OK, MEM, MEMLIMIT. */
static kvarc_ret attempt_write(struct kvi_coder *coder, struct kvi_coder_job *job,
                               struct attempt *attempt, enum kvi_scratch where)
{
	const struct kvi_codec *row = kvi_codec_get(attempt->codec);
	size_t n = kvi_mask_elements(&job->mask);
	size_t head = KVI_ENCODED_FRONT + job->section_bytes + row->head_bytes + KVI_STREAMS_EXTRA +
	              KVI_STREAM_ALIGN;
	size_t words = row->words_each * n * 2;
	unsigned planes = row->n_planes ? row->n_planes(job->chunk->dtype) : 0;
	uint64_t check[KVI_STREAMS_MAX];
	head += -(head + words) & (KVI_STREAM_ALIGN - 1);
	size_t side = row->side_bytes ? row->side_bytes(&job->mask) : 0;
	size_t tail = side + planes * kvi_plane_capacity(n) + KVI_ENCODED_BEHIND;
	uint8_t *base = kvi_scratch(coder, where, head + words + tail);
	if (!base)
		return kvi_alloc_error(coder->alloc);
	attempt->out.words = base + head + words;
	kvarc_ret ret = row->encode(coder, job, &attempt->out);
	if (ret)
		return ret;
	if (attempt->out.streams.n > 1) {
		attempt->raw_check = kvi_streams_check(&attempt->out.streams, &job->mask, job->raw,
		                                       check);
		(row->put_checks ? row->put_checks : kvi_streams_set_checks)(
			&attempt->out.streams, attempt->out.begin, check);
	}
	put_section(job, attempt);
	return KVARC_OK;
}

static kvarc_ret make_params(struct kvi_coder *coder, const struct kvi_coder_job *job,
                             struct attempt *attempt)
{
	const struct kvi_codec *row = kvi_codec_get(kvi_codec_params(attempt->codec));
	kvarc_ret ret = row->fit(coder, job, &attempt->params);
	if (!ret)
		ret = kvi_params_write(attempt->params, coder->alloc, &attempt->content);
	attempt->params_bytes = attempt->content.n + PARAMS_FRAME;
	return ret;
}

/* Computes the bytes that new parameters take once they are packed. Packing takes as long as an
 * eighth of a chunk of level 0: only where that decides something. Returns OK, MEM, MEMLIMIT. */
static kvarc_ret attempt_price(struct kvi_coder *coder, struct attempt *attempt)
{
	if (!attempt->params || attempt->priced)
		return KVARC_OK;
	size_t n = attempt->content.n;
	uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_PLANE_OUT, n);
	/* A lack of memory is an error, never a different choice: the same input gives the same
	 * bytes, or none. */
	if (!buffer)
		return kvi_alloc_error(coder->alloc);
	size_t packed = kvi_zstd_write(coder, attempt->content.p, n, buffer, n, PARAMS_LEVEL);
	attempt->params_bytes = (packed ? packed : n) + PARAMS_FRAME;
	attempt->priced = true;
	return KVARC_OK;
}

/*
 * The best of the parameters in force and new ones, if the codec has any. Leaves best->out empty
 * when neither can be used. Returns OK, MEM, MEMLIMIT.
 */
static kvarc_ret attempt_codec(struct kvi_coder *coder, struct kvi_coder_job *job, unsigned codec,
                               struct attempt *best)
{
	const struct kvi_params *current = job->request->params;
	size_t n = kvi_mask_elements(&job->mask);
	struct attempt fresh = { .codec = codec };
	kvarc_ret ret;
	*best = fresh;
	if (!kvi_codec_has_params(codec))
		return attempt_write(coder, job, best, KVI_SCRATCH_OUT);
	if (kvi_params_serve(current, job->chunk, codec)) {
		job->params = current;
		ret = attempt_write(coder, job, best, KVI_SCRATCH_OUT);
		if (ret || !kvi_params_drifted(current, attempt_bytes(best), n))
			return ret;
	}
	if (job->mask.rows < ROWS_TO_FIT)
		return KVARC_OK;
	ret = make_params(coder, job, &fresh);
	job->params = fresh.params;
	if (!ret)
		ret = attempt_write(coder, job, &fresh,
		                    best->out.begin ? KVI_SCRATCH_OUT2 : KVI_SCRATCH_OUT);
	if (!ret && best->out.begin)
		ret = attempt_price(coder, &fresh);
	if (!ret && (!best->out.begin || attempt_cost(&fresh) < attempt_cost(best))) {
		fresh.params->expected = kvi_params_rate(attempt_bytes(&fresh), n);
		*best = fresh;
		return KVARC_OK;
	}
	attempt_drop(&fresh);
	return ret;
}

/*
 * The grid codec in place of cells, with the same parameters, where it makes 1/100 less: of
 * channels whose own steps are wide, as their means are far from zero. Cells is several times as
 * fast.
 */
static kvarc_ret try_grid(struct kvi_coder *coder, struct kvi_coder_job *job, struct attempt *best)
{
	struct attempt grid = *best;
	if (!best->out.begin || !best->out.doubtful)
		return KVARC_OK;
	grid.codec = KVI_CODEC_GRID;
	grid.out = (struct kvi_payload){ .words = NULL };
	job->params = best->params ? best->params : job->request->params;
	kvarc_ret ret = attempt_write(coder, job, &grid, KVI_SCRATCH_GRID_OUT);
	if (!ret && attempt_bytes(&grid) < attempt_bytes(best) - attempt_bytes(best) / 100)
		*best = grid;
	return ret;
}

/* The most tokens of a track for which codec layers, which has no parameters, is compared with new
 * ones: of more tokens it is seldom smaller, and coding twice takes time. */
enum { FEW_TOKENS = 128 };

/* Whether codec layers may be smaller than the attempt, at a level above 0: there are no
 * parameters for so few tokens, or they are new and few tokens have use for them. */
static bool layers_may_win(const struct kvi_coder_job *job, const struct attempt *best)
{
	const struct kvi_encode_request *request = job->request;
	if (request->level == 0 || !kvi_float_format(job->chunk->dtype))
		return false;
	return !best->out.begin || (best->params && !request->params && request->ends &&
	                            request->end - request->t0 <= FEW_TOKENS);
}

/*
 * Codec layers in place of the level's own, where that makes less of all tokens that are left of
 * the track, this chunk's among them, new parameters included.
 */
static kvarc_ret try_layers(struct kvi_coder *coder, struct kvi_coder_job *job,
                            struct attempt *best)
{
	struct attempt layers = { .codec = KVI_CODEC_LAYERS };
	if (!layers_may_win(job, best))
		return KVARC_OK;
	kvarc_ret ret = attempt_price(coder, best);
	job->params = NULL;
	if (!ret)
		ret = attempt_write(coder, job, &layers, KVI_SCRATCH_LAYERS_OUT);
	if (ret || !best->out.begin) {
		if (!ret)
			*best = layers;
		return ret;
	}
	/* Chunks behind this one have use for the same parameters. */
	const uint64_t left = job->request->end - job->request->t0, now = job->chunk->n_tokens;
	if (attempt_bytes(&layers) * left < attempt_bytes(best) * left + best->params_bytes * now) {
		attempt_drop(best);
		*best = layers;
	}
	return KVARC_OK;
}

/* ==== Chooses codec and parameters of a chunk ==== */

enum { LINEAR_LEVEL = 2, LEVEL_MAX = 8 };

unsigned kvi_level_codec(int level, unsigned dtype)
{
	if (!kvi_float_format(dtype))
		return kvarc_dtype_bytes(dtype) > 1 ? KVI_CODEC_RAW : KVI_CODEC_BYTES;
	if (level == 0)
		return KVI_CODEC_LAYERS;
	return kvarc_dtype_bytes(dtype) > 1 ? KVI_CODEC_CELLS : KVI_CODEC_GRID;
}

static void set_payload(struct kvi_encoded *out, unsigned codec, const uint8_t *payload,
                        size_t bytes)
{
	*out = (struct kvi_encoded){ .codec = (uint8_t)codec,
		                     .cut = { .stream_size = KVI_ONE_STREAM },
		                     .uses_params = kvi_codec_has_params(codec),
		                     .payload = payload,
		                     .payload_bytes = bytes };
}

static kvarc_ret store_raw(struct kvi_coder *coder, const uint8_t *raw, size_t n,
                           struct kvi_encoded *out)
{
	uint8_t *copy = kvi_scratch(coder, KVI_SCRATCH_OUT2, n);
	if (!copy)
		return kvi_alloc_error(coder->alloc);
	memcpy(copy, raw, n);
	set_payload(out, KVI_CODEC_RAW, copy, n);
	return KVARC_OK;
}

static void finish(struct attempt *attempt, struct kvi_encoded *out)
{
	set_payload(out, attempt->codec, attempt->out.begin, attempt_bytes(attempt));
	out->free_around = true;
	out->cut.stream_size = (uint8_t)attempt->out.streams.size;
	out->cut.section_bytes = (uint32_t)attempt->section_bytes;
	out->raw_check = attempt->raw_check;
	out->refers = attempt->refers;
	if (attempt->params) {
		out->params = attempt->params;
		out->params_content = attempt->content.p;
		out->params_bytes = attempt->content.n;
		out->params_codec = (uint8_t)kvi_codec_params(attempt->codec);
	}
}

/* The most bytes of other codecs for which zstd_may_win is false, whatever the elements are. */
static size_t zstd_never_wins(const struct kvi_chunk *chunk)
{
	const size_t n = kvi_chunk_bytes(chunk);
	return kvi_float_format(chunk->dtype) ? n - n / 16 : 0;
}

/* Whether Zstandard, which finds repeated strings, may make less than `bytes` bytes of the elements
 * of a chunk, which is what other codecs make of them: tried where they win little, and on bytes
 * when a sample of them packs well. */
static bool zstd_may_win(struct kvi_coder *coder, const struct kvi_chunk *chunk, const uint8_t *raw,
                         size_t bytes)
{
	enum { STRETCH = 16384 };
	const size_t n = kvi_chunk_bytes(chunk);
	if (bytes <= zstd_never_wins(chunk))
		return false;
	if (bytes > n - n / 16 || n < 2 * STRETCH)
		return true;
	uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_PLANE_OUT, STRETCH);
	size_t got = buffer ? kvi_zstd_write(coder, raw, STRETCH, buffer, STRETCH, 1) : 0;
	return got && (uint64_t)got * n < (uint64_t)bytes * STRETCH;
}

/* Whether rows of a chunk repeat earlier ones, an eighth of them or more, as values of the lowest
 * layer do where tokens occur again: Zstandard has them once. Level 0 does not look. */
static bool rows_repeat(const struct kvi_coder_job *job)
{
	enum { SLOTS = 512, HEAD = 16, SHARE = 8 };
	uint16_t slots[SLOTS] = { 0 }; /* row + 1; 0: free */
	const uint8_t *rows = job->packed;
	const size_t n = job->mask.rows, bytes = job->mask.channels * job->mask.size;
	size_t repeats = 0;
	if (job->request->level == 0 || !bytes)
		return false;
	for (size_t i = 0; i < n && i < SLOTS / 2; i++) {
		const uint8_t *row = rows + i * bytes;
		size_t at = kvi_h64(row, bytes < HEAD ? bytes : HEAD) % SLOTS;
		while (slots[at] && memcmp(rows + (slots[at] - 1) * bytes, row, bytes) != 0)
			at = (at + 1) % SLOTS;
		repeats += slots[at] != 0;
		slots[at] = (uint16_t)(i + 1);
	}
	return repeats && repeats >= n / SHARE;
}

/* Chooses the smallest payload: coded, as Zstandard or raw. */
static kvarc_ret choose(struct kvi_coder *coder, struct kvi_coder_job *job, struct attempt *best,
                        struct kvi_encoded *out)
{
	const bool repeats = rows_repeat(job);
	size_t n = kvi_chunk_bytes(job->chunk);
	size_t bytes = best->out.begin ? attempt_cost(best) : n;
	if (repeats || bytes > zstd_never_wins(job->chunk)) {
		kvarc_ret ret = attempt_price(coder, best);
		if (ret) {
			attempt_drop(best);
			return ret;
		}
		bytes = best->out.begin ? attempt_cost(best) : n;
	}
	bytes = bytes < n ? bytes : n;
	if (repeats || zstd_may_win(coder, job->chunk, job->raw, bytes)) {
		const int level = repeats ? KVI_ZSTD_ROWS_LEVEL : KVI_ZSTD_LEVEL;
		uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_OUT3, n);
		size_t got = buffer ? kvi_zstd_write(coder, job->raw, n, buffer, bytes - 1, level)
		                    : 0;
		if (got) {
			attempt_drop(best);
			set_payload(out, KVI_CODEC_ZSTD, buffer, got);
			return KVARC_OK;
		}
	}
	if (best->out.begin && attempt_cost(best) < n) {
		finish(best, out);
		return KVARC_OK;
	}
	attempt_drop(best);
	return store_raw(coder, job->raw, n, out);
}

/* Removes constant channels and rows. */
static kvarc_ret mask_chunk(struct kvi_coder *coder, struct kvi_coder_job *job)
{
	struct kvi_mask *m = &job->mask;
	size_t runs = kvi_mask_runs_max(m->C) * sizeof *m->runs;
	uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_RUNS,
	                              runs + kvi_mask_bytes_max(m->T, m->C, m->size));
	if (!buffer)
		return kvi_alloc_error(coder->alloc);
	m->runs = (struct kvi_mask_run *)(void *)buffer;
	job->section = buffer + runs;
	job->section_bytes = kvi_mask_find(m, job->raw, buffer + runs);
	job->packed = job->raw;
	job->lanes = (struct kvi_lanes){ coder->kernels, m->rows, m->channels };
	if (!kvi_mask_any(m) || !kvi_mask_elements(m))
		return KVARC_OK;
	uint8_t *rest = kvi_scratch(coder, KVI_SCRATCH_PACKED, kvi_mask_elements(m) * m->size);
	if (!rest)
		return kvi_alloc_error(coder->alloc);
	kvi_mask_gather(m, job->raw, rest);
	job->packed = rest;
	return KVARC_OK;
}

/* Elements that are not finite are never predicted by a transformer (spec model 4). */
static bool may_expect(const struct kvi_coder_job *job)
{
	return !job->linear.in->expected ||
	       kvi_floats_finite(job->chunk->dtype, job->raw, job->mask.C * job->mask.T);
}

/* Encodes with the chunk's linear model; attempt->out stays empty where that is not possible. */
static kvarc_ret try_linear(struct kvi_coder *coder, struct kvi_coder_job *job,
                            struct attempt *attempt)
{
	const struct kvi_linear_in *in = job->linear.in;
	*attempt = (struct attempt){ .codec = KVI_CODEC_LINEAR };
	if (job->request->level < LINEAR_LEVEL || !in || !kvi_mask_elements(&job->mask) ||
	    job->mask.row_bits || !kvi_linear_shape(in, job->chunk) || !kvi_linear_sources(in) ||
	    !may_expect(job))
		return KVARC_OK;
	attempt->codec = kvi_linear_codec(in);
	return attempt_write(coder, job, attempt, KVI_SCRATCH_LINEAR_OUT);
}

/* chunk: that of the request, or some of its tokens. */
static struct kvi_coder_job job_of(const struct kvi_encode_request *request,
                                   const struct kvi_chunk *chunk, const uint8_t *raw)
{
	return (struct kvi_coder_job){
		.chunk = chunk,
		.linear = request->linear,
		.request = request,
		.raw = raw,
		.mask = { .T = chunk->n_tokens,
		          .C = kvi_chunk_channels(chunk),
		          .size = (unsigned)kvarc_dtype_bytes(chunk->dtype) },
	};
}

/* A payload of codec linear. */
struct linear_payload {
	size_t bytes;
	bool fits; /* the model does, by the scale that adapts to the tokens */
};

/*
 * Whether level 1 may be smaller than `linear`. Where the model fits, it is not; else judged by a
 * sample of the tokens: parameters that are fitted to few tokens look a little better than they
 * are, so that the answer is seldom wrong when it is no.
 */
static kvarc_ret plain_may_win(struct kvi_coder *coder, const struct kvi_encode_request *request,
                               const uint8_t *raw, const struct linear_payload *linear, bool *may)
{
	enum { SAMPLE = 32 };
	const struct kvi_chunk *chunk = &request->chunk;
	size_t n = kvi_chunk_bytes(chunk), row = n / chunk->n_tokens;
	size_t step = chunk->n_tokens / SAMPLE;
	int32_t positions[SAMPLE];
	struct kvi_chunk some = *chunk;
	struct attempt a = { .codec = KVI_CODEC_RAW };
	*may = linear->bytes > n - n / 16 || !linear->fits;
	if (!*may || step < 2 || linear->bytes > n - n / 16)
		return KVARC_OK;
	uint8_t *rows = kvi_scratch(coder, KVI_SCRATCH_SAMPLE, SAMPLE * row);
	if (!rows)
		return kvi_alloc_error(coder->alloc);
	for (size_t i = 0; i < SAMPLE; i++) {
		memcpy(rows + i * row, raw + i * step * row, row);
		if (chunk->positions)
			positions[i] = chunk->positions[i * step];
	}
	some.n_tokens = SAMPLE;
	some.positions = chunk->positions ? positions : NULL;
	struct kvi_coder_job job = job_of(request, &some, rows);
	kvarc_ret ret = mask_chunk(coder, &job);
	if (!ret && kvi_mask_elements(&job.mask))
		ret = attempt_codec(coder, &job, kvi_level_codec(1, chunk->dtype), &a);
	if (!ret)
		ret = attempt_price(coder, &a);
	if (!ret && a.out.begin)
		*may = (attempt_bytes(&a) - KVI_STREAM_ENTRY) * step + a.params_bytes <
		       linear->bytes;
	attempt_drop(&a);
	return ret;
}

/* Takes an attempt without parameters in place of the best one, where it is smaller. A reference
 * has to save 1/40: a chunk without one is nearer to the next checkpoint. */
static void replace(struct attempt *best, const struct attempt *attempt)
{
	size_t more = attempt->refers ? attempt_cost(attempt) / 40 : 0;
	if (best->out.begin && attempt_cost(best) <= attempt_cost(attempt) + more)
		return;
	attempt_drop(best);
	*best = *attempt;
}

/* Codec state, with and without the reference. Later states refer to chunks of codec state, not to
 * those of codec layers, which is compared where no state will follow. */
static kvarc_ret try_state(struct kvi_coder *coder, struct kvi_coder_job *job, struct attempt *best)
{
	struct attempt plain = { .codec = KVI_CODEC_STATE };
	struct attempt refers = { .codec = KVI_CODEC_STATE, .refers = true };
	struct attempt layers = { .codec = KVI_CODEC_LAYERS };
	kvarc_ret ret = attempt_price(coder, best);
	if (!ret)
		ret = attempt_write(coder, job, &plain, KVI_SCRATCH_LINEAR_OUT);
	if (ret)
		return ret;
	replace(best, &plain);
	if (job->request->ends) {
		job->params = NULL;
		ret = attempt_write(coder, job, &layers, KVI_SCRATCH_LAYERS_OUT);
		if (ret)
			return ret;
		replace(best, &layers);
	}
	if (!job->request->before)
		return KVARC_OK;
	job->before = job->request->before;
	ret = attempt_write(coder, job, &refers, KVI_SCRATCH_STATE_OUT);
	job->before = NULL;
	if (!ret)
		replace(best, &refers);
	return ret;
}

/* Whether a chunk is one of a state whose rows and columns have scales. */
static bool is_state(const struct kvi_encode_request *request)
{
	return request->level > 0 && !request->linear.in &&
	       kvi_float_format(request->chunk.dtype) &&
	       (request->kind == KVARC_CONV_STATE || request->kind == KVARC_RECURRENT_STATE);
}

/* Encodes a masked job at level 0 or 1. *bytes: size of the payload with new parameters; NULL: not
 * wanted. */
static kvarc_ret encode_plain(struct kvi_coder *coder, struct kvi_coder_job *job,
                              struct kvi_encoded *out, size_t *bytes)
{
	const unsigned codec = kvi_level_codec(job->request->level, job->chunk->dtype);
	struct attempt best = { .codec = KVI_CODEC_RAW };
	kvarc_ret ret = KVARC_OK;
	if (kvi_mask_elements(&job->mask) && codec != KVI_CODEC_RAW)
		ret = attempt_codec(coder, job, codec, &best);
	if (!ret && codec == KVI_CODEC_CELLS)
		ret = try_grid(coder, job, &best);
	if (!ret && kvi_mask_elements(&job->mask))
		ret = (is_state(job->request) ? try_state : try_layers)(coder, job, &best);
	if (!ret && bytes)
		ret = attempt_price(coder, &best);
	if (!ret)
		ret = choose(coder, job, &best, out);
	else
		attempt_drop(&best);
	if (bytes)
		*bytes = out->payload_bytes + (out->params ? best.params_bytes : 0);
	return ret;
}

static void drop_params(const struct kvi_coder *coder, struct kvi_encoded *out)
{
	kvi_params_free(out->params);
	kvi_free(coder->alloc, out->params_content);
}

/* Encodes a masked job at level 0 or 1 where that is smaller than `linear`, or where linear is
 * NULL; else out->payload stays NULL. */
static kvarc_ret encode_beside(struct kvi_coder *coder, struct kvi_coder_job *job,
                               const struct linear_payload *linear, struct kvi_encoded *out)
{
	size_t bytes;
	bool may = true;
	kvarc_ret ret = KVARC_OK;
	if (linear && !rows_repeat(job))
		ret = plain_may_win(coder, job->request, job->raw, linear, &may);
	if (!ret && may && linear)
		ret = mask_chunk(coder, job); /* plain_may_win used the mask's memory */
	if (ret || !may)
		return ret;
	ret = encode_plain(coder, job, out, linear ? &bytes : NULL);
	if (ret || !linear || bytes <= linear->bytes)
		return ret;
	drop_params(coder, out);
	set_payload(out, KVI_CODEC_RAW, NULL, 0);
	return KVARC_OK;
}

/* Encodes with the chunk's linear model where it has one and that is smaller, else at level 0 or 1.
 * *observed: the linear model coded the chunk, so that its features are filled. */
static kvarc_ret encode_chunk(struct kvi_coder *coder, const struct kvi_encode_request *request,
                              const uint8_t *raw, struct kvi_encoded *out, bool *observed)
{
	struct kvi_coder_job job = job_of(request, &request->chunk, raw);
	struct attempt linear;
	kvarc_ret ret = mask_chunk(coder, &job);
	if (!ret)
		ret = try_linear(coder, &job, &linear);
	if (ret)
		return ret;
	*observed = linear.out.begin;
	const struct linear_payload made = { *observed ? attempt_bytes(&linear) : 0,
		                             linear.out.expected };
	ret = encode_beside(coder, &job, *observed ? &made : NULL, out);
	if (!ret && !out->payload)
		finish(&linear, out);
	return ret;
}

/* The predicted codec in place of `out`, where that is smaller and P, predicted, is known. */
static kvarc_ret try_patch(struct kvi_coder *coder, const struct kvi_chunk *chunk,
                           const uint8_t *predicted, const uint8_t *raw, struct kvi_encoded *out)
{
	size_t bytes, n = kvi_chunk_bytes(chunk);
	if (!predicted ||
	    !kvi_floats_finite(chunk->dtype, raw, n / kvarc_dtype_bytes(chunk->dtype)))
		return KVARC_OK;
	const uint8_t *patch = kvi_predicted_patch(coder, chunk, predicted, raw, out->payload_bytes,
	                                           &bytes);
	if (!patch)
		return kvi_alloc_error(coder->alloc);
	if (bytes) {
		drop_params(coder, out);
		set_payload(out, KVI_CODEC_PREDICTED, patch, bytes);
	}
	return KVARC_OK;
}

static kvarc_ret store_exact(struct kvi_coder *coder, const struct kvi_chunk *chunk,
                             const uint8_t *raw, struct kvi_encoded *out)
{
	const uint8_t *payload = kvi_predicted_put(coder, chunk, raw);
	if (!payload)
		return kvi_alloc_error(coder->alloc);
	set_payload(out, KVI_CODEC_PREDICTED, payload, KVI_PREDICTED_EXACT);
	return KVARC_OK;
}

kvarc_ret kvi_chunk_encode(struct kvi_coder *coder, const struct kvi_encode_request *request,
                           const uint8_t *raw, struct kvi_encoded *out)
{
	const struct kvi_chunk *chunk = &request->chunk;
	const struct kvi_linear_io *linear = &request->linear;
	const uint8_t *predicted = linear->in ? linear->in->predicted : NULL;
	set_payload(out, KVI_CODEC_RAW, NULL, 0);
	if (!kvi_chunk_valid(chunk) || request->level < 0 || request->level > LEVEL_MAX)
		return KVARC_PROG;
	size_t size = kvarc_dtype_bytes(chunk->dtype);
	size_t n = kvi_chunk_bytes(chunk);
	bool observed = false;
	kvarc_ret ret;

	/* n == size: nothing can be smaller than the element itself. */
	bool constant = n > size && memcmp(raw, raw + size, n - size) == 0;
	if (predicted == raw) { /* the caller has compared them, and they are finite */
		ret = store_exact(coder, chunk, raw, out);
	} else if (constant) {
		ret = store_raw(coder, raw, size, out);
		out->codec = KVI_CODEC_CONSTANT;
	} else {
		ret = encode_chunk(coder, request, raw, out, &observed);
		if (!ret)
			ret = try_patch(coder, chunk, predicted, raw, out);
	}
	if (!ret && out->cut.stream_size == KVI_ONE_STREAM)
		out->raw_check = kvi_h64(raw, n);
	if (!ret && linear->features && linear->in && !observed)
		ret = kvi_chunk_features(coder, chunk, linear, (struct kvi_tokens){ 0, 0 }, raw,
		                         false);
	return ret;
}
