/* SPDX-License-Identifier: BSD-3-Clause */
/* fit.c - tables of exponents for a tensor, from one of its chunks */
#include "exponent.h"

#include "codecs/tables_fit.h"

/* HEADROOM: larger values may come in later chunks. */
enum { HEADROOM = 1, DISTANCES = 31, STRIDE = 32, TABLES = 5, BLOCK = 32 };

static inline uint8_t larger(uint8_t a, uint8_t b, uint8_t last)
{
	b = b > last ? 0 : b;
	return a > b ? a : b;
}

/* Top of each channel: its largest exponent and some headroom. Fields above
 * `last` (infinity, NaN) are rare and escape. */
static void find_tops(const uint8_t *fields, size_t rows, size_t channels,
                      uint8_t last, uint8_t *top)
{
	memset(top, 0, channels);
	for (size_t t = 0; t < rows; t++, fields += channels) {
		size_t c = 0;
		for (; c + BLOCK <= channels; c += BLOCK)
			for (size_t i = 0; i < BLOCK; i++)
				top[c + i] = larger(top[c + i], fields[c + i],
				                    last);
		for (; c < channels; c++)
			top[c] = larger(top[c], fields[c], last);
	}
	for (size_t c = 0; c < channels; c++)
		top[c] = (uint8_t)(last - top[c] < HEADROOM
		                           ? last : top[c] + HEADROOM);
}

/* counts[channel][distance from top], of every other token of long chunks */
static void count(const uint8_t *fields, size_t rows, size_t channels,
                  const uint8_t *top, uint16_t *counts)
{
	memset(counts, 0, channels * STRIDE * sizeof *counts);
	size_t step = rows >= 128 ? 2 : 1;
	for (size_t t = 0; t < rows; t += step)
		for (size_t c = 0; c < channels; c++) {
			unsigned d = (unsigned)top[c] - fields[t * channels + c];
			if (d < DISTANCES)
				counts[c * STRIDE + d]++;
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
	uint8_t ones = (uint8_t)((1u << format->exp_bits) - 1);
	size_t work = kvi_tables_fit_work(C, TABLES, STRIDE);
	size_t counts = C * STRIDE * sizeof(uint16_t);
	uint8_t *fields = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, 2 * n);
	uint32_t *room = kvi_scratch(c, KVI_SCRATCH_FIT, work + counts + 2 * C);
	struct kvi_params *p = kvi_params_new(c->alloc, KVI_CODEC_EXPONENT,
	                                      job->chunk, TABLES,
	                                      KVI_EXP_SYMBOLS);
	*out = p;
	if (!fields || !room || !p ||
	    !kvi_exponent_fields(c, job->chunk->dtype, job->packed, n,
	                         fields)) {
		kvi_params_free(p);
		*out = NULL;
		return kvi_alloc_error(c->alloc);
	}
	uint16_t *by_distance = (uint16_t *)(void *)((uint8_t *)room + work);
	uint8_t *table = (uint8_t *)(by_distance + C * STRIDE);
	uint8_t *top = table + C;

	/* e4m3 has finite numbers with an exponent field of ones. */
	find_tops(fields, job->lanes.rows, C,
	          job->chunk->dtype == KVARC_E4M3 ? ones
	                                            : (uint8_t)(ones - 1), top);
	count(fields, job->lanes.rows, C, top, by_distance);
	struct kvi_tables_fit f = {
		.cost = c->tables->cost, .channels = C, .symbols = DISTANCES,
		.stride = STRIDE,
		.n_tables = TABLES, .counts = by_distance, .freq = p->freq,
		.table = table, .all_symbols = true, .work = room,
	};
	kvi_tables_fit(&f);
	spread(job, table, top, p);
	return KVARC_OK;
}
