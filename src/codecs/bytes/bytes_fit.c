/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes_fit.c - tables of bytes for a tensor, from one of its chunks */
#include "bytes_codec.h"

#include "codecs/tables_fit.h"

enum { VALUES = 256, TABLES = 8 };

kvarc_ret kvi_bytes_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_params **out)
{
	size_t C = job->lanes.channels;
	const uint8_t *packed = job->packed;
	/* A table costs some 250 bytes: few of them for few elements. */
	unsigned tables = (unsigned)(job->lanes.rows * C / 8192);
	tables = tables < 1 ? 1 : tables > TABLES ? TABLES : tables;
	size_t work = kvi_tables_fit_work(C, tables, VALUES);
	uint32_t *buffer = kvi_scratch(c, KVI_SCRATCH_FIT, work + C * VALUES * 2 + C);
	struct kvi_params *p = kvi_params_new(c->alloc, KVI_CODEC_BYTES, job->chunk, tables,
	                                      KVI_BYTE_SYMBOLS);
	*out = p;
	if (!buffer || !p) {
		kvi_params_free(p);
		*out = NULL;
		return kvi_alloc_error(c->alloc);
	}
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
		.freq = p->freq,
		.table = table,
		.work = buffer,
	};
	kvi_tables_fit(&f);
	for (size_t r = 0; r < job->mask.n_runs; r++) {
		const struct kvi_mask_run *run = &job->mask.runs[r];
		memcpy(p->table + run->first, table, run->count);
		table += run->count;
	}
	return KVARC_OK;
}
