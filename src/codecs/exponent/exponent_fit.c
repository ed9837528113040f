/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent_fit.c - tables of exponents for a tensor, from one of its chunks */
#include "exponent.h"

#include "codecs/symbols.h"
#include "codecs/tables_fit.h"
#include "util/unroll.h"

/* HEADROOM: larger values may come in later chunks. */
enum { HEADROOM = 1, DISTANCES = 31, STRIDE = 32, TABLES = 5, BLOCK = 16 };
/* COUNTED: rows from which every other one is counted; GROUP: distances at once. */
enum { COUNTED = 128, GROUP = 8 };

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
 * counts[i][s] = how many of n rows have s in lane i, for s from `first` on to first + GROUP - 1.
 * n <= 255. Comparisons with all: counters in memory, one after the other, took 11 cycles an
 * element, as most rows count where the row before did.
 */
static void count_some(const lanes *rows, size_t n, unsigned first, size_t used, uint16_t *counts)
{
	const lanes zero = { 0 };
	lanes sum[GROUP] = { { 0 } };
	for (size_t t = 0; t < n; t++) {
		KVI_UNROLL(8)
		for (unsigned k = 0; k < GROUP; k++)
			sum[k] -= (lanes)(rows[t] == zero + (uint8_t)(first + k));
	}
	for (size_t i = 0; i < used; i++)
		for (unsigned k = 0; k < GROUP; k++)
			counts[i * STRIDE + first + k] = sum[k][i];
}

/* counts[channel][distance from top], of every other token of long chunks. What escapes counts
 * as DISTANCES or not at all: no table reads it. */
static void count(const uint8_t *fields, size_t rows, size_t channels, const uint8_t *top,
                  uint16_t *counts)
{
	const lanes zero = { 0 };
	const size_t step = rows >= COUNTED ? 2 : 1;
	lanes distance[COUNTED];
	memset(counts, 0, channels * STRIDE * sizeof *counts);
	for (size_t c = 0; c < channels; c += BLOCK, counts += BLOCK * STRIDE) {
		size_t used = channels - c < BLOCK ? channels - c : BLOCK, n = 0;
		lanes from = load(top + c, used), most = zero;
		for (size_t t = 0; t < rows; t += step) {
			lanes x = load(fields + t * channels + c, used), d = from - x;
			lanes near = (lanes)(x <= from) & (lanes)(d < zero + DISTANCES);
			lanes more = (lanes)(d > most) & near;
			most = (d & more) | (most & ~more);
			distance[n++] = (d & near) | ((zero + DISTANCES) & ~near);
		}
		unsigned last = 0;
		for (size_t i = 0; i < BLOCK; i++)
			last = most[i] > last ? most[i] : last;
		for (unsigned s = 0; s <= last; s += GROUP)
			count_some(distance, n, s, used, counts);
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
