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
static kvarc_ret fit(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_params **out)
{
	size_t C = job->lanes.channels;
	const uint8_t *packed = job->packed;
	/* A table costs some 250 bytes: few of them for few elements. */
	unsigned tables = (unsigned)(job->lanes.rows * C / 8192);
	tables = tables < 1 ? 1 : tables > TABLES ? TABLES : tables;
	size_t work = kvi_tables_fit_work(C, tables, VALUES);
	uint32_t *buffer = kvi_scratch(c, KVI_SCRATCH_FIT, work + C * VALUES * 2 + C);
	struct kvi_table_params *p = NULL;
	if (buffer)
		p = kvi_table_params_new(c->alloc, KVI_CODEC_BYTES, job->chunk, tables,
		                         KVI_BYTE_SYMBOLS);
	if (!p)
		return kvi_alloc_error(c->alloc);
	*out = &p->common;
	uint16_t *counts = (uint16_t *)(void *)((uint8_t *)buffer + work);
	uint8_t *table = (uint8_t *)(counts + C * VALUES);
	memset(counts, 0, C * VALUES * sizeof *counts);
	for (size_t t = 0; t < job->lanes.rows; t++)
		for (size_t i = 0; i < C; i++)
			counts[i * VALUES + *packed++]++;
	struct kvi_tables_fit f = {
		.cost = c->tables->cost,
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

/* Tables of the remaining channels, in scratch memory; NULL: no memory. */
static const uint8_t *tables_of(struct kvi_coder *c, const struct kvi_coder_job *job)
{
	uint8_t *table = kvi_scratch(c, KVI_SCRATCH_CHANNELS, job->lanes.channels);
	if (table)
		kvi_mask_channels(&job->mask, 1, kvi_table_params_of(job->params)->table, table);
	return table;
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	const struct kvi_freqs *f = &kvi_table_params_of(job->params)->freqs;
	const uint8_t *table = tables_of(c, job);
	return table ? kvi_byte_stream_put(c, &job->lanes, f, table, job->packed, out)
	             : kvi_alloc_error(c->alloc);
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	const struct kvi_freqs *f = &kvi_table_params_of(job->params)->freqs;
	const uint8_t *table = tables_of(c, job);
	return table ? kvi_byte_stream_get(c, &job->lanes, f, table, in, job->decoded)
	             : kvi_alloc_error(c->alloc);
}

const struct kvi_codec kvi_codec_bytes = {
	.takes = KVI_TAKES_OTHERS,
	.parse = parse,
	.serialise = kvi_table_params_serialise,
	.fit = fit,
	.words_each = KVI_BYTE_WORDS,
	.encode = encode,
	.decode = decode,
};
