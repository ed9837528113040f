/* SPDX-License-Identifier: BSD-3-Clause */
/* symbols.h - frequency tables in parameters, streams of symbols that are coded with them */
#ifndef KVI_SYMBOLS_H
#define KVI_SYMBOLS_H

#include "codecs/coder.h"

/* Frequencies of n tables, one after another; the last symbol of each is the escape. */
struct kvi_freqs {
	unsigned n, symbols;
	uint16_t *freq;
};

/* Parameters of the codec bytes. */
struct kvi_table_params {
	struct kvi_params common;
	struct kvi_freqs freqs;
	uint8_t *table; /* table of each channel */
};

/* The parameters of the codec bytes; NULL: they are of another codec. */
static inline struct kvi_table_params *kvi_table_params_of(const struct kvi_params *params)
{
	return params->codec == KVI_CODEC_BYTES ? (struct kvi_table_params *)(uintptr_t)params
	                                        : NULL;
}
/* Parameters with n tables of zeros; NULL: no memory. */
struct kvi_table_params *kvi_table_params_new(const struct kvi_alloc *alloc, uint8_t codec,
                                              const struct kvi_chunk *shape, unsigned n,
                                              unsigned symbols);
/* Reads the number of tables, their frequencies and the table of each channel. Returns OK, MEM,
 * MEMLIMIT, DATA. */
kvarc_ret kvi_table_params_parse(const struct kvi_alloc *alloc, uint8_t codec,
                                 const struct kvi_chunk *shape, struct kvi_in *in, unsigned symbols,
                                 struct kvi_params **out);
/* Writes what kvi_table_params_parse reads. */
void kvi_table_params_serialise(const struct kvi_params *params, struct kvi_out *out);

/* Reads one table: frequencies sum to KVI_PROB_TOTAL, none is as large as that, and the escape has
 * one. false: it is not valid. */
bool kvi_freq_get(struct kvi_in *in, unsigned symbols, uint16_t *freq);
/* Writes n frequencies. */
void kvi_freq_put(const uint16_t *freq, size_t n, struct kvi_out *out);
/* The tables as kernels take them, in the coder until the next call; stride: a power of two.
 * lut: with the large half, which encoders do without. NULL: no memory. */
const struct kvi_tables *kvi_freqs_tables(struct kvi_coder *coder, const struct kvi_freqs *freqs,
                                          unsigned stride, bool lut);

/* The job of a kernel for a stream of symbols in the order of tokens; table: of each channel of the
 * lanes. */
struct kvi_sym_job kvi_sym_job_of(const struct kvi_lanes *lanes, const struct kvi_tables *tables,
                                  const uint8_t *table, unsigned escape);

/* Entries of a table of bytes in its encoder's form; the symbol of an escape. */
enum { KVI_BYTE_STRIDE = 512, KVI_BYTE_ESCAPE = KVI_BYTE_SYMBOLS - 1 };
/* The symbols of n bytes, token-major; table: of each channel. A byte that its table lacks is
 * escaped. */
void kvi_byte_symbols(const struct kvi_freqs *freqs, const uint8_t *table, size_t channels,
                      const uint8_t *bytes, size_t n, uint16_t *sym);
/* The inverse of kvi_byte_symbols; esc: the byte of each escaped symbol. */
static inline void kvi_symbol_bytes(const uint16_t *sym, const uint8_t *esc, size_t n,
                                    uint8_t *bytes)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(sym[i] == KVI_BYTE_ESCAPE ? esc[i] : sym[i]);
}

/* Most words that a byte takes in a stream of bytes. */
enum { KVI_BYTE_WORDS = 2 };
/* Encodes rows x channels bytes, token-major, as the stream of a lossy body in the order of
 * tokens; table: of each channel. Writes in front of out->words, sets begin and end. Returns OK,
 * MEM, MEMLIMIT. */
kvarc_ret kvi_byte_stream_put(struct kvi_coder *coder, const struct kvi_lanes *lanes,
                              const struct kvi_freqs *freqs, const uint8_t *table,
                              const uint8_t *from, struct kvi_payload *out);
/* Decodes the stream. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_byte_stream_get(struct kvi_coder *coder, const struct kvi_lanes *lanes,
                              const struct kvi_freqs *freqs, const uint8_t *table,
                              struct kvi_in *in, uint8_t *to);

#endif
