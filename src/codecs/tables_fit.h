/* SPDX-License-Identifier: BSD-3-Clause */
/* tables_fit.h - a few tables for the symbols of many channels */
#ifndef KVI_TABLES_FIT_H
#define KVI_TABLES_FIT_H

#include "codecs/coder.h"

/* counts[channel][symbol] to frequencies and the table of each channel. */
struct kvi_tables_fit {
	const struct kvi_kernels *kernels;
	const uint16_t *cost; /* kvi_coder_tables.cost */
	size_t channels;
	unsigned symbols; /* at least 2, without the escape, which is symbol `symbols` */
	unsigned stride;  /* counts of a channel: symbols rounded up to a multiple of 32; the
	                   * rest does not matter */
	unsigned n_tables;
	const uint16_t *counts;
	uint16_t *freq; /* n_tables * (symbols + 1) */
	uint8_t *table; /* table of each channel */
	uint32_t *work; /* kvi_tables_fit_work bytes */
};

/* Bytes of scratch memory for a fit. */
size_t kvi_tables_fit_work(size_t channels, unsigned n_tables, unsigned stride);
/* Fits the tables. */
void kvi_tables_fit(struct kvi_tables_fit *fit);

#endif
