/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes_codec.c - the bytes codec: whole bytes with tables per channel class (spec bytes) */
#include "codecs/symbols.h"
#include "codecs/tables_fit.h"

enum { VALUES = 256, TABLES = 8 };

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	return kvi_table_params_parse(alloc, KVI_CODEC_BYTES, shape, in, KVI_BYTE_SYMBOLS, out);
}

/* Tables of bytes from the elements of the job. */
static kvarc_ret fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                     struct kvi_params **out)
{
	size_t C = job->lanes.channels;
	const uint8_t *packed = job->packed;
	/* A table costs some 250 bytes: few of them for few elements. */
	unsigned tables = (unsigned)(job->lanes.rows * C / 8192);
	tables = tables < 1 ? 1 : tables > TABLES ? TABLES : tables;
	size_t work = kvi_tables_fit_work(C, tables, VALUES);
	uint32_t *buffer = kvi_scratch(coder, KVI_SCRATCH_FIT, work + C * VALUES * 2 + C);
	struct kvi_table_params *p = NULL;
	if (buffer)
		p = kvi_table_params_new(coder->alloc, KVI_CODEC_BYTES, job->chunk, tables,
		                         KVI_BYTE_SYMBOLS);
	if (!p)
		return kvi_alloc_error(coder->alloc);
	*out = &p->common;
	uint16_t *counts = (uint16_t *)(void *)((uint8_t *)buffer + work);
	uint8_t *table = (uint8_t *)(counts + C * VALUES);
	memset(counts, 0, C * VALUES * sizeof *counts);
	for (size_t t = 0; t < job->lanes.rows; t++)
		for (size_t i = 0; i < C; i++)
			counts[i * VALUES + *packed++]++;
	struct kvi_tables_fit f = {
		.kernels = coder->kernels,
		.cost = coder->tables->cost,
		.channels = C,
		.symbols = VALUES,
		.stride = VALUES,
		.n_tables = tables,
		.counts = counts,
		.freq = p->freqs.freq,
		.table = table,
		.work = buffer,
	};
	kvi_tables_fit(&f);
	kvi_mask_spread(&job->mask, table, p->table);
	return KVARC_OK;
}

/* The streams of a chunk on their way in or out. */
struct bytes_work {
	const struct kvi_kernels *kernels;
	const struct kvi_coder_job *job;
	const struct kvi_freqs *freqs;
	const struct kvi_tables *tables;
	size_t channels, n;
	const uint8_t *table; /* table of each remaining channel */
	uint8_t *buffer;      /* entries of two rings */
	size_t ring;          /* entries of a ring */
	struct kvi_rings rings;
	uint16_t *sym;
	uint8_t *esc;
};

static bool open_work(struct kvi_coder *coder, const struct kvi_coder_job *job, bool decoding,
                      struct bytes_work *w)
{
	const struct kvi_table_params *p = kvi_table_params_of(job->params);
	const size_t C = job->mask.channels, n = kvi_mask_elements(&job->mask);
	const size_t ring = kvi_ring_capacity(job->mask.rows, C);
	uint8_t *table = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, C);
	if (table)
		kvi_mask_channels(&job->mask, 1, p->table, table);
	*w = (struct bytes_work){
		.kernels = coder->kernels,
		.job = job,
		.freqs = &p->freqs,
		.tables = kvi_freqs_tables(coder, &p->freqs, KVI_BYTE_STRIDE, decoding),
		.channels = C,
		.n = n,
		.table = table,
		.buffer = kvi_scratch(coder, KVI_SCRATCH_CONTEXT, 2 * ring),
		.ring = ring,
		.sym = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, n * sizeof *w->sym),
	};
	return table && w->tables && w->buffer && w->sym;
}

static void begin_parts(void *opaque, size_t rows, size_t last)
{
	struct bytes_work *w = opaque;
	w->rings = kvi_rings_make(rows, last, w->channels, 1, w->table, w->buffer, w->ring);
}

static struct kvi_sym_job job_of(const struct bytes_work *w, const struct kvi_stream_part *part)
{
	const struct kvi_ring *tab = kvi_rings_of(&w->rings, part->rows);
	return (struct kvi_sym_job){
		.steps = kvi_element_steps(part->rows * w->channels),
		.tables = w->tables,
		.tab = tab->full,
		.tab_tail = tab->tail,
		.tab_steps = tab->steps,
		.escape = KVI_BYTE_ESCAPE,
	};
}

static size_t encode_part(void *opaque, const struct kvi_stream_part *part, uint16_t *end,
                          uint32_t state[KVI_LANES])
{
	const struct bytes_work *w = opaque;
	const struct kvi_sym_job job = job_of(w, part);
	const size_t at = part->first * w->channels;
	return w->kernels->coding.sym_encode(&job, w->sym + at, w->esc + at, end, state);
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct bytes_work w;
	if (!open_work(coder, job, false, &w))
		return kvi_alloc_error(coder->alloc);
	w.esc = (uint8_t *)(uintptr_t)job->packed; /* encoders only read it */
	kvi_byte_symbols(w.freqs, w.table, w.channels, job->packed, w.n, w.sym);
	const struct kvi_streams_encoder e = { .opaque = &w,
		                               .part = encode_part,
		                               .begin = begin_parts,
		                               .trial = kvi_ring_trial(w.channels),
		                               .token_words = KVI_BYTE_WORDS * w.channels };
	out->end = out->words;
	out->streams.rows = job->mask.rows;
	out->begin = kvi_streams_encode(coder->pool, &out->streams, &e, out->words);
	return KVARC_OK;
}

/* Decodes one stream (kvi_streams_decoder.some). */
static bool decode_some(void *opaque, unsigned first, unsigned n)
{
	const struct bytes_work *w = opaque;
	const struct kvi_stream_part p = kvi_stream_part_of(&w->job->streams, first);
	const struct kvi_sym_job job = job_of(w, &p);
	const size_t at = p.first * w->channels;
	(void)n;
	if (!w->kernels->coding.sym_decode(&job, &w->job->streams_in->stream[first], w->sym + at,
	                                   w->esc + at))
		return false;
	kvi_symbol_bytes(w->sym + at, w->esc + at, p.rows * w->channels, w->job->decoded + at);
	return true;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct bytes_work w;
	const struct kvi_streams_decoder d = { .opaque = &w, .some = decode_some, .most = 1 };
	(void)in;
	if (!open_work(coder, job, true, &w))
		return kvi_alloc_error(coder->alloc);
	w.esc = kvi_scratch(coder, KVI_SCRATCH_OTHER, w.n);
	if (!w.esc)
		return kvi_alloc_error(coder->alloc);
	begin_parts(&w, kvi_stream_part_of(&job->streams, 0).rows,
	            kvi_stream_part_of(&job->streams, job->streams.n - 1).rows);
	return kvi_streams_decode(coder, job, &d);
}

const struct kvi_codec kvi_codec_bytes = {
	.takes = KVI_TAKES_BYTES,
	.parse = parse,
	.serialise = kvi_table_params_serialise,
	.fit = fit,
	.words_each = KVI_BYTE_WORDS,
	.encode = encode,
	.decode = decode,
};
