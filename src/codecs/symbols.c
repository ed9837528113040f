/* SPDX-License-Identifier: BSD-3-Clause */
/* symbols.c - frequency tables in parameters, streams of symbols that are coded with them */
#include "symbols.h"

enum { TABLE_COST = 32 };

struct kvi_table_params *kvi_table_params_new(const struct kvi_alloc *alloc, uint8_t codec,
                                              const struct kvi_chunk *shape, unsigned n,
                                              unsigned symbols)
{
	/* C is at most 2^20 and a table at most 257 entries: no overflow. */
	size_t C = kvi_chunk_channels(shape), freq = (size_t)n * symbols;
	struct kvi_table_params *p;
	p = kvi_params_new(alloc, codec, shape, sizeof *p + freq * sizeof *p->freqs.freq + C,
	                   (size_t)n * TABLE_COST);
	if (!p)
		return NULL;
	p->freqs = (struct kvi_freqs){ n, symbols, (uint16_t *)(void *)(p + 1) };
	p->table = (uint8_t *)(p->freqs.freq + freq);
	return p;
}

bool kvi_freq_get(struct kvi_in *in, unsigned symbols, uint16_t *freq)
{
	uint32_t sum = 0;
	for (unsigned s = 0; s < symbols; s++) {
		freq[s] = (uint16_t)kvi_get_varint(in, KVI_PROB_TOTAL - 1);
		sum += freq[s];
	}
	return !in->bad && sum == KVI_PROB_TOTAL && freq[symbols - 1];
}

void kvi_freq_put(const uint16_t *freq, size_t n, struct kvi_out *out)
{
	for (size_t i = 0; i < n; i++)
		kvi_put_varint(out, freq[i]);
}

kvarc_ret kvi_table_params_parse(const struct kvi_alloc *alloc, uint8_t codec,
                                 const struct kvi_chunk *shape, struct kvi_in *in, unsigned symbols,
                                 struct kvi_params **out)
{
	size_t C = kvi_chunk_channels(shape);
	unsigned n = kvi_get8(in);
	if (n < 1 || n > KVI_TABLES_MAX || kvi_in_remaining(in) < (size_t)n * symbols + C)
		return KVARC_DATA;
	struct kvi_table_params *p = kvi_table_params_new(alloc, codec, shape, n, symbols);
	if (!p)
		return kvi_alloc_error(alloc);
	bool good = true;
	for (unsigned i = 0; i < n && good; i++)
		good = kvi_freq_get(in, symbols, p->freqs.freq + i * symbols);
	const uint8_t *table = good ? kvi_get_bytes(in, C) : NULL;
	if (table)
		memcpy(p->table, table, C);
	for (size_t c = 0; c < C && table && good; c++)
		good = table[c] < n;
	if (!good || !table) {
		kvi_params_free(&p->common);
		return KVARC_DATA;
	}
	*out = &p->common;
	return KVARC_OK;
}

void kvi_table_params_serialise(const struct kvi_params *params, struct kvi_out *out)
{
	const struct kvi_table_params *t = kvi_table_params_of(params);
	kvi_put8(out, (uint8_t)t->freqs.n);
	kvi_freq_put(t->freqs.freq, (size_t)t->freqs.n * t->freqs.symbols, out);
	kvi_put_bytes(out, t->table, kvi_params_channels(params));
}

bool kvi_params_may_encode(const struct kvi_params *params)
{
	/* Bytes without a frequency are escaped; the tables of grid are the specification's. */
	return !kvi_codec_lossy(params->codec);
}

const struct kvi_tables *kvi_freqs_tables(struct kvi_coder *coder, const struct kvi_freqs *freqs,
                                          unsigned stride, bool lut)
{
	size_t entries = lut ? (size_t)freqs->n * KVI_PROB_TOTAL : 0;
	uint32_t *buffer = kvi_scratch(coder, KVI_SCRATCH_TABLES,
	                               (entries + freqs->n * stride) * sizeof *buffer);
	if (!buffer)
		return NULL;
	coder->lut = (struct kvi_tables){ .n_tables = freqs->n,
		                          .symbols = freqs->symbols,
		                          .stride = stride,
		                          .lut = lut ? buffer : NULL,
		                          .enc = buffer + entries };
	/* Frequencies were checked when they were parsed or made. */
	return kvi_tables_build(&coder->lut, freqs->freq) ? &coder->lut : NULL;
}

struct kvi_sym_job kvi_sym_job_of(const struct kvi_lanes *lanes, const struct kvi_tables *tables,
                                  const uint8_t *table, unsigned escape)
{
	return (struct kvi_sym_job){
		.steps = kvi_token_steps(lanes),
		.tables = tables,
		.tab = table,
		.tab_tail = table,
		.tab_steps = lanes->channels,
		.escape = escape,
		.per_step = true,
	};
}

void kvi_byte_symbols(const struct kvi_freqs *freqs, const uint8_t *table, size_t channels,
                      const uint8_t *bytes, size_t n, uint16_t *sym)
{
	for (size_t at = 0; at < n;)
		for (size_t i = 0; i < channels; i++, at++) {
			const uint16_t *freq = freqs->freq + (size_t)table[i] * KVI_BYTE_SYMBOLS;
			sym[at] = freq[bytes[at]] ? bytes[at] : KVI_BYTE_ESCAPE;
		}
}

kvarc_ret kvi_byte_stream_put(struct kvi_coder *coder, const struct kvi_lanes *lanes,
                              const struct kvi_freqs *freqs, const uint8_t *table,
                              const uint8_t *from, struct kvi_payload *out)
{
	const size_t n = lanes->rows * lanes->channels;
	uint32_t state[KVI_LANES];
	uint16_t *sym = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, n * sizeof *sym);
	uint16_t *lane = kvi_scratch(coder, KVI_SCRATCH_OTHER, 3 * n);
	const struct kvi_tables *tables = kvi_freqs_tables(coder, freqs, KVI_BYTE_STRIDE, false);
	if (!sym || !lane || !tables)
		return kvi_alloc_error(coder->alloc);
	const struct kvi_sym_job job = kvi_sym_job_of(lanes, tables, table, KVI_BYTE_ESCAPE);
	uint8_t *esc = (uint8_t *)(lane + n);
	kvi_byte_symbols(freqs, table, lanes->channels, from, n, sym);
	kvi_lanes_to16(lanes, sym, lane);
	kvi_lanes_to8(lanes, from, esc);
	size_t words = coder->kernels->coding.sym_encode(&job, lane, esc,
	                                                 (uint16_t *)(void *)out->words, state);
	out->end = out->words;
	out->begin = kvi_stream_put(out->words, words, state);
	return KVARC_OK;
}

kvarc_ret kvi_byte_stream_get(struct kvi_coder *coder, const struct kvi_lanes *lanes,
                              const struct kvi_freqs *freqs, const uint8_t *table,
                              struct kvi_in *in, uint8_t *to)
{
	const size_t n = lanes->rows * lanes->channels;
	struct kvi_stream s;
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	uint16_t *sym = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, n * sizeof *sym);
	uint8_t *esc = kvi_scratch(coder, KVI_SCRATCH_OTHER, 2 * n);
	const struct kvi_tables *tables = kvi_freqs_tables(coder, freqs, KVI_BYTE_STRIDE, true);
	if (!sym || !esc || !tables)
		return kvi_alloc_error(coder->alloc);
	const struct kvi_sym_job job = kvi_sym_job_of(lanes, tables, table, KVI_BYTE_ESCAPE);
	if (!coder->kernels->coding.sym_decode(&job, &s, sym, esc))
		return KVARC_DATA;
	kvi_symbol_bytes(sym, esc, n, esc + n);
	kvi_lanes_from8(lanes, esc + n, to);
	return KVARC_OK;
}
