/* SPDX-License-Identifier: BSD-3-Clause */
/* tables_fit.h - a few tables for the symbols of many channels */
#ifndef KVI_TABLES_FIT_H
#define KVI_TABLES_FIT_H

#include "codecs/coder.h"

/* counts[channel][symbol] to frequencies and the table of each channel. */
struct kvi_tables_fit {
	const struct kvi_kernels *kernels;
	const uint16_t *cost; /* of kvi_coder_tables */
	size_t channels;
	unsigned symbols; /* at least 2, without the escape, which is symbol `symbols` */
	unsigned stride;  /* of counts: symbols, up to a multiple of 32;
	                       * what is between does not matter */
	unsigned n_tables;
	const uint16_t *counts;
	uint16_t *freq;   /* n_tables * (symbols + 1) */
	uint8_t *table;   /* of each channel */
	bool all_symbols; /* none may have frequency 0 */
	uint32_t *work;   /* kvi_tables_fit_work bytes */
};

/* Bytes of scratch memory for a fit. */
size_t kvi_tables_fit_work(size_t channels, unsigned n_tables, unsigned stride);
/* Fits the tables. */
void kvi_tables_fit(struct kvi_tables_fit *fit);

#endif
