/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent_fit.c - tables of exponents for a tensor, from one of its chunks */
#include "exponent.h"

#include "codecs/symbols.h"
#include "codecs/tables_fit.h"

/* HEADROOM: larger values may come in later chunks. */
enum { HEADROOM = 1, DISTANCES = 31, STRIDE = 32, TABLES = 5, BLOCK = 16 };

/* Exponents of BLOCK channels side by side, in whatever vectors there are. */
typedef uint8_t lanes __attribute__((vector_size(BLOCK)));

/* The n <= BLOCK first lanes of memory, the others 0. */
static inline lanes load(const uint8_t *p, size_t n)
{
	lanes v = { 0 };
	if (n == BLOCK)
		memcpy(&v, p, BLOCK);
	else
		memcpy(&v, p, n);
	return v;
}

/* Top of each channel: its largest exponent and some headroom. Fields above
 * `last` (infinity, NaN) are rare and escape. */
static void find_tops(const uint8_t *fields, size_t rows, size_t channels, uint8_t last,
                      uint8_t *top)
{
	const lanes zero = { 0 };
	for (size_t c = 0; c < channels; c += BLOCK) {
		size_t n = channels - c < BLOCK ? channels - c : BLOCK;
		lanes most = zero;
		for (size_t t = 0; t < rows; t++) {
			lanes x = load(fields + t * channels + c, n);
			x &= (lanes)(x <= zero + last);
			lanes more = (lanes)(x > most);
			most = (x & more) | (most & ~more);
		}
		memcpy(top + c, &most, n);
	}
	for (size_t c = 0; c < channels; c++)
		top[c] = (uint8_t)(last - top[c] < HEADROOM ? last : top[c] + HEADROOM);
}

/*
 * counts[channel][distance from top], of every other token of long chunks. What
 * escapes counts at DISTANCES, which no table reads: cheaper than a branch.
 */
static void count(const uint8_t *fields, size_t rows, size_t channels, const uint8_t *top,
                  uint16_t *counts)
{
	const lanes zero = { 0 };
	memset(counts, 0, channels * STRIDE * sizeof *counts);
	size_t step = rows >= 128 ? 2 : 1;
	for (size_t c = 0; c < channels; c += BLOCK, counts += BLOCK * STRIDE) {
		size_t n = channels - c < BLOCK ? channels - c : BLOCK;
		lanes from = load(top + c, n);
		for (size_t t = 0; t < rows; t += step) {
			lanes x = load(fields + t * channels + c, n);
			lanes d = from - x;
			lanes near = (lanes)(x <= from) & (lanes)(d < zero + DISTANCES);
			uint8_t at[BLOCK];
			d = (d & near) | ((zero + DISTANCES) & ~near);
			memcpy(at, &d, BLOCK);
			for (size_t i = 0; i < n; i++)
				counts[i * STRIDE + at[i]]++;
		}
	}
}

kvarc_ret kvi_exponent_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                           struct kvi_params **out)
{
	size_t C = job->lanes.channels, n = job->lanes.rows * C;
	const struct kvi_float_format *format = kvi_float_format(job->chunk->dtype);
	uint8_t ones = (uint8_t)((1u << format->exp_bits) - 1);
	size_t work = kvi_tables_fit_work(C, TABLES, STRIDE);
	size_t counts = C * STRIDE * sizeof(uint16_t);
	uint8_t *fields = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, 2 * n);
	uint32_t *buffer = kvi_scratch(c, KVI_SCRATCH_FIT, work + counts + 2 * C);
	struct kvi_table_params *p = NULL;
	if (fields && buffer && kvi_exponent_fields(c, job->chunk->dtype, job->packed, n, fields))
		p = kvi_table_params_new(c->alloc, KVI_CODEC_EXPONENT, job->chunk, TABLES,
		                         KVI_EXP_SYMBOLS);
	if (!p)
		return kvi_alloc_error(c->alloc);
	*out = &p->common;
	uint16_t *by_distance = (uint16_t *)(void *)((uint8_t *)buffer + work);
	uint8_t *table = (uint8_t *)(by_distance + C * STRIDE);
	uint8_t *top = table + C;

	/* e4m3 has finite numbers with an exponent field of ones. */
	find_tops(fields, job->lanes.rows, C,
	          job->chunk->dtype == KVARC_E4M3 ? ones : (uint8_t)(ones - 1), top);
	count(fields, job->lanes.rows, C, top, by_distance);
	struct kvi_tables_fit f = {
		.cost = c->tables->cost,
		.channels = C,
		.symbols = DISTANCES,
		.stride = STRIDE,
		.n_tables = TABLES,
		.counts = by_distance,
		.freq = p->freqs.freq,
		.table = table,
		.all_symbols = true,
		.work = buffer,
	};
	kvi_tables_fit(&f);
	kvi_mask_spread(&job->mask, table, p->table);
	kvi_mask_spread(&job->mask, top, p->top);
	return KVARC_OK;
}
