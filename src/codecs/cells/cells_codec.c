/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_codec.c - the cells codec: codes of 4 bits and raw bits about a mean (spec cells) */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codecs/codes_payload.h"
#include "codecs/coder.h"
#include "codecs/grid/grid.h"
#include "codecs/planes.h"
#include "codecs/stream_work.h"
#include "kernels/cells.h"

enum {
	CODE_BITS = 4,
	COUNTS = 3 * 4,
	STATES = 4 * KVI_LANES,
	STREAM_ELEMENTS = 32768 /* a stream has as many, if the chunk does */
};

/* ----- contexts ------------------------------------------------ */

/* Contexts of entries in two arrays (kvi_cells_contexts). */
struct context_rows {
	int16_t *mean;
	uint16_t *grid;
};

/* The contexts of a chunk's elements. */
struct contexts {
	const struct kvi_cell_kernels *kernels;
	const struct kvi_coder_job *job;
	const struct kvi_grid_params *params;
	const struct kvi_grid_format *format;
	const struct kvi_token_turns *turns; /* NULL: no channel rotates */
	const struct kvi_coder_tables *tables;
	struct context_rows all;   /* of all elements, or of the channels where none rotates */
	struct context_rows fixed; /* with turns: of all channels, if some do not rotate */
	struct context_rows spare; /* with turns: all channels of a token, for each stream */
};

/* Two arrays of n entries in scratch memory. */
static bool rows_open(struct kvi_coder *coder, enum kvi_scratch which, size_t n,
                      struct context_rows *rows)
{
	rows->mean = kvi_scratch(coder, which, 2 * n * sizeof *rows->mean);
	if (rows->mean)
		rows->grid = (uint16_t *)rows->mean + n;
	return rows->mean;
}

static struct context_rows rows_at(const struct context_rows *rows, size_t at)
{
	return (struct context_rows){ rows->mean + at, rows->grid + at };
}

/* Contexts of all channels as if none rotated. */
static void fix_channels(const struct contexts *contexts, const struct context_rows *to)
{
	for (size_t c = 0; c < contexts->job->mask.C; c++)
		kvi_cells_fixed_context(contexts->format, contexts->params->mean[c],
		                        contexts->params->k[c], to->mean + c, to->grid + c);
}

/* The remaining ones of all channels. */
static void mask_channels(const struct kvi_mask *mask, const struct context_rows *from,
                          const struct context_rows *to)
{
	kvi_mask_channels(mask, sizeof *from->mean, from->mean, to->mean);
	kvi_mask_channels(mask, sizeof *from->grid, from->grid, to->grid);
}

/* The contexts behind the last one go on from the first. */
static void go_on(const struct context_rows *rows, size_t n)
{
	for (size_t i = 0; i < KVI_CELLS_SLACK; i++) {
		rows->mean[n + i] = rows->mean[i];
		rows->grid[n + i] = rows->grid[i];
	}
}

/* Returns OK, MEM, MEMLIMIT, DATA (rotation without positions). */
static kvarc_ret contexts_open(struct contexts *contexts, struct kvi_coder *coder,
                               const struct kvi_coder_job *job)
{
	const struct kvi_mask *mask = &job->mask;
	const struct kvi_chunk *chunk = job->chunk;
	*contexts = (struct contexts){ .kernels = coder->kernels->cells,
		                       .job = job,
		                       .params = kvi_grid_params_of(job->params),
		                       .format = &kvi_float_format(chunk->dtype)->grid,
		                       .tables = coder->tables };
	const bool rotates = contexts->params->common.rotates;
	const size_t n = rotates ? kvi_mask_elements(mask) : mask->channels;
	const size_t fixed = (rotates ? 1 + KVI_STREAMS_MAX : 1) * mask->C;
	if (rotates && (!chunk->rope || !chunk->positions))
		return KVARC_DATA;
	if (!rows_open(coder, KVI_SCRATCH_CONTEXT, n + KVI_CELLS_SLACK, &contexts->all) ||
	    !rows_open(coder, KVI_SCRATCH_CHANNELS, fixed, &contexts->fixed))
		return kvi_alloc_error(coder->alloc);
	if (!rotates || chunk->rope->rotary < chunk->head_channels)
		fix_channels(contexts, &contexts->fixed);
	if (!rotates) {
		mask_channels(mask, &contexts->fixed, &contexts->all);
		go_on(&contexts->all, n);
		return KVARC_OK;
	}
	contexts->spare = rows_at(&contexts->fixed, mask->C);
	contexts->turns = kvi_coder_token_turns(coder, chunk->rope, chunk->positions,
	                                        chunk->n_tokens);
	return contexts->turns ? KVARC_OK : kvi_alloc_error(coder->alloc);
}

/* Makes the contexts of all channels of n tokens from t on. */
static void rotate_tokens(const struct contexts *contexts, size_t t, size_t n,
                          const struct context_rows *to)
{
	const struct kvi_chunk *chunk = contexts->job->chunk;
	const size_t C = contexts->job->mask.C, channels = chunk->head_channels,
		     rotary = chunk->rope->rotary, rest = channels - rotary;
	const struct kvi_rotation rotation = kvi_grid_rotation(contexts->tables, contexts->params,
	                                                       contexts->format, chunk->rope,
	                                                       contexts->turns, t);
	contexts->kernels->rotated(&rotation, n, C, to->mean, to->grid);
	for (size_t i = 0; rest && i < n; i++)
		for (size_t at = rotary; at < C; at += channels) {
			memcpy(to->mean + i * C + at, contexts->fixed.mean + at,
			       rest * sizeof *to->mean);
			memcpy(to->grid + i * C + at, contexts->fixed.grid + at,
			       rest * sizeof *to->grid);
		}
}

/* Makes the contexts of a stream; no two calls for one stream at once. */
static void contexts_fill(const struct contexts *contexts, const struct kvi_stream_part *part,
                          unsigned number)
{
	const struct kvi_mask *mask = &contexts->job->mask;
	if (!contexts->turns)
		return;
	const struct context_rows spare = rows_at(&contexts->spare, number * mask->C);
	size_t t = kvi_mask_token(mask, part->first);
	for (size_t done = 0, n; done < part->rows; done += n, t += n) {
		const struct context_rows to = rows_at(&contexts->all,
		                                       (part->first + done) * mask->channels);
		const size_t left = part->rows - done;
		const size_t most = mask->channel_bits        ? 1
		                    : left < KVI_CELLS_TOKENS ? left
		                                              : KVI_CELLS_TOKENS;
		while (kvi_bit(mask->row_bits, t))
			t++;
		for (n = 1; n < most && !kvi_bit(mask->row_bits, t + n); n++)
			continue;
		rotate_tokens(contexts, t, n, mask->channel_bits ? &spare : &to);
		if (mask->channel_bits)
			mask_channels(mask, &spare, &to);
	}
}

/* The contexts of a stream as kernels take them. */
static struct kvi_cells_contexts contexts_of(const struct contexts *contexts,
                                             const struct kvi_stream_part *part)
{
	const size_t channels = contexts->job->mask.channels;
	const struct context_rows rows = rows_at(&contexts->all,
	                                         contexts->turns ? part->first * channels : 0);
	return (struct kvi_cells_contexts){ rows.mean, rows.grid,
		                            contexts->turns ? part->rows * channels : channels };
}

/* ----- reading ------------------------------------------------ */

struct cells_decoding {
	struct contexts contexts;
	struct kvi_cells_in stream[KVI_STREAMS_MAX]; /* without work memory */
	struct kvi_stream_work work;
	uint16_t *elements;
	struct kvi_coded_planes planes;
};

/* The parts of a stream whose counts are known. */
static bool get_parts(struct kvi_in *in, struct kvi_cells_in *stream)
{
	const uint8_t *from = in->p;
	if (stream->n_second > stream->n || stream->n_escapes > stream->n_second ||
	    stream->n_words > kvi_in_remaining(in) / 2)
		return false;
	stream->codes = kvi_code_plane_get(in, stream->n, CODE_BITS);
	stream->second = stream->codes ? kvi_code_plane_get(in, stream->n_second, CODE_BITS) : NULL;
	if (!stream->second || ((in->p - from) & 1 && kvi_get8(in)))
		return false;
	stream->escapes = kvi_get_bytes(in, 2 * stream->n_escapes);
	stream->words = kvi_get_bytes(in, 2 * stream->n_words);
	return !in->bad;
}

/* Counts, states and parts of all streams. */
static bool get_streams(const struct kvi_coder_job *job, struct kvi_in *in,
                        struct kvi_cells_in stream[KVI_STREAMS_MAX])
{
	const unsigned n = job->streams.n;
	const uint8_t *from = in->p;
	for (unsigned i = 0; i < n; i++) {
		stream[i].n = kvi_stream_part_of(&job->streams, i).rows * job->mask.channels;
		stream[i].n_second = kvi_get32(in);
		stream[i].n_escapes = kvi_get32(in);
		stream[i].n_words = kvi_get32(in);
	}
	for (unsigned i = 0; i < n; i++)
		if (!kvi_states_get(in, stream[i].state))
			return false;
	for (unsigned i = 0; i < n; i++)
		if (!kvi_aligned_get(in, from) || !get_parts(in, &stream[i]))
			return false;
	return true;
}

/* Decodes streams (kvi_streams_decoder.some). */
static bool decode_some(void *opaque, unsigned first, unsigned n)
{
	struct cells_decoding *decoding = opaque;
	const struct kvi_coder_job *job = decoding->contexts.job;
	const unsigned mantissa = (unsigned)decoding->contexts.format->mant_bits;
	bool ok = true;
	for (unsigned i = first; i < first + n && ok; i++) {
		const struct kvi_stream_part part = kvi_stream_part_of(&job->streams, i);
		const size_t at = part.first * job->mask.channels;
		const struct kvi_cells_contexts contexts = contexts_of(&decoding->contexts, &part);
		struct kvi_cells_in in = decoding->stream[i];
		const unsigned number = kvi_stream_work_take(&decoding->work, &in.work);
		contexts_fill(&decoding->contexts, &part, i);
		ok = decoding->contexts.kernels->get(&in, &contexts, mantissa,
		                                     decoding->elements + at);
		kvi_stream_work_give_back(&decoding->work, number);
		if (ok)
			kvi_coded_place(job->chunk->dtype, decoding->elements, &decoding->planes,
			                at, in.n, job->decoded);
	}
	return ok;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	const size_t n = kvi_mask_elements(&job->mask);
	const unsigned dtype = job->chunk->dtype;
	struct cells_decoding decoding = { .elements = kvi_coded_buffer(coder, dtype, job->decoded,
		                                                        n) };
	if (!decoding.elements)
		return kvi_alloc_error(coder->alloc);
	const uint8_t *from = in->p;
	kvarc_ret ret = contexts_open(&decoding.contexts, coder, job);
	if (ret)
		return ret;
	if (!get_streams(job, in, decoding.stream))
		return KVARC_DATA;
	if (dtype == KVARC_F32 &&
	    !kvi_get_padding(in, (size_t)(in->p - from) + kvi_checks_bytes(&job->streams)))
		return KVARC_DATA;
	ret = kvi_coded_planes_get(coder, dtype, n, in, &decoding.planes);
	if (ret)
		return ret;
	if (!kvi_stream_work_open(&decoding.work, coder, job->streams.n,
	                          kvi_cells_in_work(decoding.stream[0].n)))
		return kvi_alloc_error(coder->alloc);
	const struct kvi_streams_decoder decoder = {
		.opaque = &decoding,
		.some = decode_some,
		.most = 1,
		.work = n * job->mask.size,
	};
	return kvi_streams_decode(coder, job, &decoder);
}

/* ----- writing ------------------------------------------------ */

struct cells_encoding {
	struct contexts contexts;
	const struct kvi_streams *streams;
	const uint16_t *elements;
	struct kvi_stream_work work;
	struct kvi_cells_out out[KVI_STREAMS_MAX]; /* counts and states that kernels set */
};

/* The bytes of a stream of this many tokens (kvi_streams_writer.space). */
static size_t space_of(const void *opaque, size_t rows)
{
	const struct cells_encoding *encoding = opaque;
	const size_t bytes = kvi_cells_space(rows * encoding->contexts.job->mask.channels) +
	                     KVI_CELLS_SLACK;
	return bytes + (-bytes & (KVI_CODES_ALIGN - 1));
}

static size_t side_bytes(const struct kvi_mask *mask)
{
	return kvi_cells_space(kvi_mask_elements(mask)) +
	       KVI_STREAMS_MAX * (8 + COUNTS + STATES + kvi_cells_space(0) + KVI_CELLS_SLACK +
	                          KVI_CODES_ALIGN) +
	       KVI_STREAM_ALIGN;
}

/* Encodes a stream (kvi_streams_writer.one). */
static uint8_t *encode_stream(void *opaque, unsigned number, uint8_t *to)
{
	struct cells_encoding *encoding = opaque;
	const struct contexts *all = &encoding->contexts;
	const struct kvi_stream_part part = kvi_stream_part_of(encoding->streams, number);
	const size_t channels = all->job->mask.channels;
	const struct kvi_cells_contexts contexts = contexts_of(all, &part);
	struct kvi_cells_out *out = &encoding->out[number];
	const unsigned taken = kvi_stream_work_take(&encoding->work, &out->work);
	contexts_fill(all, &part, number);
	out->to = to;
	to = all->kernels->put(encoding->elements + part.first * channels, part.rows * channels,
	                       &contexts, (unsigned)all->format->mant_bits, out);
	kvi_stream_work_give_back(&encoding->work, taken);
	return to;
}

/* Counts and states of all streams; returns their end. */
static uint8_t *put_head(const struct cells_encoding *encoding, uint8_t *to)
{
	for (unsigned i = 0; i < encoding->streams->n; i++, to += COUNTS) {
		kvi_store32(to, encoding->out[i].n_second);
		kvi_store32(to + 4, encoding->out[i].n_escapes);
		kvi_store32(to + 8, encoding->out[i].n_words);
	}
	for (unsigned i = 0; i < encoding->streams->n; i++, to += STATES)
		for (unsigned l = 0; l < KVI_LANES; l++)
			kvi_store32(to + 4 * l, encoding->out[i].state[l]);
	return to;
}

/* How many contexts of n are of coarse classes. */
static size_t count_coarse(const uint16_t *grid, size_t n)
{
	size_t marks = 0;
	for (size_t i = 0; i < n; i++)
		marks += grid[i] & KVI_CELLS_COARSE;
	return marks / KVI_CELLS_COARSE;
}

/* Whether the grid codec may make less: as many elements that are escaped, that take a second code
 * or whose own steps are wide cost about 1/100. One token in TOKENS shows the last ones. */
static bool doubtful(const struct cells_encoding *encoding)
{
	enum { TOKENS = 16 };
	const struct kvi_mask *mask = &encoding->contexts.job->mask;
	const size_t n = kvi_mask_elements(mask), channels = mask->channels;
	const size_t tokens = encoding->contexts.turns ? mask->rows : 1;
	size_t second = 0, escapes = 0, coarse = 0, seen = 0;
	for (unsigned i = 0; i < encoding->streams->n; i++) {
		second += encoding->out[i].n_second;
		escapes += encoding->out[i].n_escapes;
	}
	for (size_t t = 0; t < tokens; t += TOKENS, seen += channels)
		coarse += count_coarse(encoding->contexts.all.grid + t * channels, channels);
	return escapes > n / 128 || second > n / 8 || coarse > seen / 64;
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	const size_t n = kvi_mask_elements(&job->mask), channels = job->mask.channels;
	const unsigned dtype = job->chunk->dtype;
	struct cells_encoding encoding = { .streams = &out->streams };
	kvarc_ret ret = contexts_open(&encoding.contexts, coder, job);
	if (ret)
		return ret;
	kvi_streams_cut_by(&out->streams, job->mask.rows, channels, STREAM_ELEMENTS);
	encoding.elements = kvi_coded_elements(coder, dtype, job->packed, n);
	const size_t most = kvi_stream_part_of(&out->streams, 0).rows * channels;
	if (!encoding.elements ||
	    !kvi_stream_work_open(&encoding.work, coder, out->streams.n, kvi_cells_out_work(most)))
		return kvi_alloc_error(coder->alloc);
	const struct kvi_streams_writer writer = { &encoding, encode_stream, space_of,
		                                   n * job->mask.size };
	out->begin = out->words;
	uint8_t *head = out->begin + kvi_checks_bytes(&out->streams);
	out->end = kvi_streams_put(coder->pool, &out->streams, &writer,
	                           head + out->streams.n * (COUNTS + STATES));
	put_head(&encoding, head);
	out->doubtful = doubtful(&encoding);
	if (dtype == KVARC_F32) {
		uint8_t *planes = kvi_put_padding(out->end, (size_t)(out->end - out->begin));
		out->end = kvi_coded_planes(coder, dtype, job->packed, n, planes);
	}
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_cells = {
	.takes = KVI_TAKES_WIDE,
	.n_planes = kvi_coded_n_planes,
	.get_table = kvi_checks_get,
	.put_checks = kvi_checks_put,
	.side_bytes = side_bytes,
	.encode = encode,
	.decode = decode,
};
