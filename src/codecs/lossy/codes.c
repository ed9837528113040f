/* SPDX-License-Identifier: BSD-3-Clause */
/* codes.c - streams of small whole numbers (spec lossy 4) */
#include "codecs/had/transform.h"
#include "codecs/symbols.h"

#include "tables/code_freq.inc"

enum { WORDS_EACH = 2, SPARE_WORDS = 64 };

/* The frequencies of one class by symbol; counts of all before it are `from`. */
static void by_symbol(const uint16_t *from, unsigned n, uint16_t *freq)
{
	unsigned sum = 0;
	memset(freq, 0, KVI_BYTE_SYMBOLS * sizeof *freq);
	for (unsigned q = 0; q < n; q++) {
		freq[2 * q] = from[q];
		if (q)
			freq[2 * q - 1] = from[q];
		sum += from[q] * (q ? 2u : 1u);
	}
	freq[KVI_CODE_ESCAPE] = (uint16_t)(KVI_PROB_TOTAL - sum);
}

kvarc_ret kvi_coder_tables_lossy(struct kvi_coder_tables *tables)
{
	const uint16_t *from = kvi_code_freq;
	if (tables->codes.lut)
		return KVARC_OK;
	uint16_t *freq = kvi_array(tables->alloc, KVI_CODE_CLASSES * KVI_BYTE_SYMBOLS,
	                           sizeof *freq);
	if (!freq)
		return kvi_alloc_error(tables->alloc);
	for (unsigned k = 0; k < KVI_CODE_CLASSES; k++) {
		by_symbol(from, kvi_code_counts[k], freq + k * KVI_BYTE_SYMBOLS);
		from += kvi_code_counts[k];
	}
	kvarc_ret ret = kvi_coder_table_make(&tables->codes, tables->alloc, KVI_CODE_CLASSES,
	                                     KVI_BYTE_SYMBOLS, KVI_CODE_STRIDE, freq);
	kvi_free(tables->alloc, freq);
	return ret;
}

size_t kvi_codes_capacity(size_t n)
{
	return KVI_STREAM_HEAD + 2 * (WORDS_EACH * n + SPARE_WORDS);
}

/* Symbols and escapes share one block of memory. NULL: no memory. */
static uint16_t *symbols(struct kvi_coder *coder, size_t n, uint8_t **esc)
{
	uint16_t *sym = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, 3 * n);
	if (sym)
		*esc = (uint8_t *)(sym + n);
	return sym;
}

static unsigned zigzag(int q)
{
	return q < 0 ? (unsigned)(-2 * q - 1) : (unsigned)(2 * q);
}

/* The symbols of consecutive elements of one class. */
static void to_symbols(const int8_t *codes, size_t n, unsigned count, uint16_t *sym, uint8_t *esc)
{
	for (size_t i = 0; i < n; i++) {
		int q = codes[i];
		unsigned z = zigzag(q), size = (unsigned)(q < 0 ? -q : q);
		esc[i] = (uint8_t)z;
		sym[i] = (uint16_t)(size < count ? z : KVI_CODE_ESCAPE);
	}
}

uint8_t *kvi_codes_put(struct kvi_coder *coder, const struct kvi_lanes *l, const uint8_t *class,
                       const int8_t *codes, uint8_t *end)
{
	const struct kvi_sym_job job = kvi_sym_job_of(l, &coder->tables->codes, class,
	                                              KVI_CODE_ESCAPE);
	const struct kvi_transform *f = kvi_transform_get(coder->kernels->isa);
	size_t at = 0, n = l->rows * l->channels;
	uint32_t state[KVI_LANES];
	uint8_t *esc;
	uint16_t *sym = symbols(coder, n, &esc);
	if (!sym)
		return NULL;
	for (size_t t = 0; at < n; t += KVI_LANES) {
		size_t lanes = l->rows - t < KVI_LANES ? l->rows - t : KVI_LANES;
		for (size_t i = 0; i < l->channels; i++, at += lanes)
			if (lanes == KVI_LANES)
				f->to_symbols(codes + at, kvi_code_counts[class[i]], sym + at,
				              esc + at);
			else
				to_symbols(codes + at, lanes, kvi_code_counts[class[i]], sym + at,
				           esc + at);
	}
	size_t words = coder->kernels->coding.sym_encode(&job, sym, esc, (uint16_t *)(void *)end,
	                                                 state);
	return kvi_stream_put(end, words, state);
}

kvarc_ret kvi_codes_get(struct kvi_coder *coder, const struct kvi_lanes *lanes,
                        const uint8_t *class, struct kvi_in *in, int8_t *codes)
{
	const struct kvi_sym_job job = kvi_sym_job_of(lanes, &coder->tables->codes, class,
	                                              KVI_CODE_ESCAPE);
	const size_t n = lanes->rows * lanes->channels;
	struct kvi_stream s;
	uint8_t *esc;
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	uint16_t *sym = symbols(coder, n, &esc);
	if (!sym)
		return kvi_alloc_error(coder->alloc);
	if (!coder->kernels->coding.sym_decode(&job, &s, sym, esc))
		return KVARC_DATA;
	kvi_transform_get(coder->kernels->isa)->to_codes(sym, esc, n, codes);
	return KVARC_OK;
}
