/* SPDX-License-Identifier: BSD-3-Clause */
/* fit.c - tables of exponents for a tensor, from one of its chunks */
#include "exponent.h"

#include "codecs/tables_fit.h"

/* Larger values may come in later chunks: HEADROOM. */
#define HEADROOM 1u
enum { DISTANCES = 31, TABLES = 8 };

/* Top of each channel: its largest exponent and some headroom. Fields above
 * `last` (infinity, NaN) are rare and escape. */
static void find_tops(const uint8_t *fields, size_t rows, size_t channels,
                      unsigned last, uint8_t *top)
{
	memset(top, 0, channels);
	for (size_t t = 0; t < rows; t++, fields += channels)
		for (size_t c = 0; c < channels; c++) {
			uint8_t f = fields[c] > last ? 0 : fields[c];
			top[c] = f > top[c] ? f : top[c];
		}
	for (size_t c = 0; c < channels; c++)
		top[c] = (uint8_t)(last - top[c] < HEADROOM
		                           ? last : top[c] + HEADROOM);
}

/* counts[channel][distance from top] */
static void count(const uint8_t *fields, size_t rows, size_t channels,
                  const uint8_t *top, uint16_t *counts)
{
	memset(counts, 0, channels * DISTANCES * sizeof *counts);
	for (size_t t = 0; t < rows; t++)
		for (size_t c = 0; c < channels; c++) {
			unsigned d = (unsigned)top[c] - *fields++;
			if (d < DISTANCES)
				counts[c * DISTANCES + d]++;
		}
}

/* Fills the parameters of the channels that remain, then spreads them. */
static void spread(const struct kvi_job *job, const uint8_t *table,
                   const uint8_t *top, struct kvi_params *p)
{
	for (size_t r = 0; r < job->mask.n_runs; r++) {
		const struct kvi_run *run = &job->mask.runs[r];
		memcpy(p->table + run->first, table, run->count);
		memcpy(p->top + run->first, top, run->count);
		table += run->count;
		top += run->count;
	}
}

kvarc_ret kvi_exponent_fit(struct kvi_coder *c, const struct kvi_job *job,
                           struct kvi_params **out)
{
	size_t C = job->lanes.channels, n = job->lanes.rows * C;
	const struct kvi_float_format *format =
		kvi_float_format(job->chunk->dtype);
	unsigned ones = (1u << format->exp_bits) - 1;
	size_t work = kvi_tables_fit_work(C, TABLES, DISTANCES);
	size_t counts = C * DISTANCES * sizeof(uint16_t);
	uint8_t *fields = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, 2 * n);
	uint32_t *room = kvi_scratch(c, KVI_SCRATCH_FIT, work + counts + 2 * C);
	struct kvi_params *p = kvi_params_new(c->alloc, KVI_CODEC_EXPONENT,
	                                      job->chunk, TABLES,
	                                      KVI_EXP_SYMBOLS);
	*out = p;
	if (!fields || !room || !p) {
		kvi_params_free(p);
		*out = NULL;
		return kvi_alloc_error(c->alloc);
	}
	uint16_t *by_distance = (uint16_t *)(void *)((uint8_t *)room + work);
	uint8_t *table = (uint8_t *)(by_distance + C * DISTANCES);
	uint8_t *top = table + C;

	kvi_exponent_fields(job->chunk->dtype, job->packed, n, fields);
	/* e4m3 has finite numbers with an exponent field of ones. */
	find_tops(fields, job->lanes.rows, C,
	          job->chunk->dtype == KVARC_E4M3 ? ones : ones - 1, top);
	count(fields, job->lanes.rows, C, top, by_distance);
	struct kvi_tables_fit f = {
		.cost = c->tables->cost, .channels = C, .symbols = DISTANCES,
		.n_tables = TABLES, .counts = by_distance, .freq = p->freq,
		.table = table, .all_symbols = true, .work = room,
	};
	kvi_tables_fit(&f);
	spread(job, table, top, p);
	return KVARC_OK;
}
