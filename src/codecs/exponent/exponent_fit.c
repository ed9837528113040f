/* SPDX-License-Identifier: BSD-3-Clause */
/* exponent_fit.c - tables of exponents for a tensor, from one of its chunks */
#include "exponent.h"

#include "codecs/symbols.h"
#include "codecs/tables_fit.h"
#include "kernels/fits.h"

/* HEADROOM: larger values may come in later chunks. */
enum { HEADROOM = 1, TABLES = 5 };

/* Top of each channel: its largest exponent and some headroom. Fields above
 * `last` (infinity, NaN) are rare and escape. */
static void find_tops(const struct kvi_kernels *kernels, const uint8_t *fields, size_t rows,
                      size_t channels, uint8_t last, uint8_t *top)
{
	kernels->fits.exp_tops(fields, rows, channels, last, top);
	for (size_t c = 0; c < channels; c++)
		top[c] = (uint8_t)(last - top[c] < HEADROOM ? last : top[c] + HEADROOM);
}

kvarc_ret kvi_exponent_fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                           struct kvi_params **out)
{
	size_t C = job->lanes.channels, n = job->lanes.rows * C;
	const struct kvi_float_format *format = kvi_float_format(job->chunk->dtype);
	uint8_t ones = (uint8_t)((1u << format->exp_bits) - 1);
	size_t work = kvi_tables_fit_work(C, TABLES, KVI_FIT_STRIDE);
	size_t counts = C * KVI_FIT_STRIDE * sizeof(uint16_t);
	uint8_t *fields = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, 2 * n);
	uint32_t *buffer = kvi_scratch(coder, KVI_SCRATCH_FIT, work + counts + 2 * C);
	struct kvi_table_params *p = NULL;
	if (fields && buffer &&
	    kvi_exponent_fields(coder, job->chunk->dtype, job->packed, n, fields))
		p = kvi_table_params_new(coder->alloc, KVI_CODEC_EXPONENT, job->chunk, TABLES,
		                         KVI_EXP_SYMBOLS);
	if (!p)
		return kvi_alloc_error(coder->alloc);
	*out = &p->common;
	uint16_t *by_distance = (uint16_t *)(void *)((uint8_t *)buffer + work);
	uint8_t *table = (uint8_t *)(by_distance + C * KVI_FIT_STRIDE);
	uint8_t *top = table + C;

	/* e4m3 has finite numbers with an exponent field of ones. */
	find_tops(coder->kernels, fields, job->lanes.rows, C,
	          job->chunk->dtype == KVARC_E4M3 ? ones : (uint8_t)(ones - 1), top);
	coder->kernels->fits.exp_counts(fields, job->lanes.rows, C, top, by_distance);
	struct kvi_tables_fit f = {
		.kernels = coder->kernels,
		.cost = coder->tables->cost,
		.channels = C,
		.symbols = KVI_FIT_DISTANCES,
		.stride = KVI_FIT_STRIDE,
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
