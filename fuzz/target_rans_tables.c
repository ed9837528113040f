/* SPDX-License-Identifier: BSD-3-Clause */
/* target_rans_tables.c - fuzz target: raw frequencies, hostile streams, every kernel
 *
 * Data: symbols (0..2), tables, steps, tail lanes, then u16 frequencies, then
 * 32 u32 states and u16 words. With mode bit 0 the words are symbols to encode,
 * and what is decoded is the encoder's stream.
 */
#include "kernels/rans.h"
#include "fuzz_common.h"
#include "util/bytes.h"

const size_t fuzz_parameters = 0;

enum { MAX_TABLES = 4, MAX_STEPS = 8, MAX_SYMBOLS = 257 };

struct tables_job {
	uint16_t freq[MAX_TABLES * MAX_SYMBOLS];
	uint32_t lut[MAX_TABLES * KVI_PROB_TOTAL];
	uint32_t enc[MAX_TABLES * 512];
	uint8_t tab[(MAX_STEPS + 1) * KVI_LANES];
	uint16_t words[4096];
	struct kvi_tables tables;
	struct kvi_sym_job sym;
	struct kvi_stream stream;
};

static uint16_t take16(struct fuzz_bytes *b)
{
	uint16_t lo = fuzz_take(b);
	return (uint16_t)(lo | fuzz_take(b) << 8);
}

static void job_init(struct tables_job *j, struct fuzz_bytes *b)
{
	static const unsigned symbols[3] = { 32, KVI_GRID_SYMBOLS, KVI_BYTE_SYMBOLS };
	static const unsigned strides[3] = { 32, 64, 512 };
	unsigned which = fuzz_take(b) % 3;
	j->tables.symbols = symbols[which];
	j->tables.stride = strides[which];
	j->tables.n_tables = fuzz_take(b) % MAX_TABLES + 1;
	j->tables.lut = j->lut;
	j->tables.enc = j->enc;
	j->sym.steps.full_steps = fuzz_take(b) % MAX_STEPS;
	j->sym.steps.tail_lanes = fuzz_take(b) % KVI_LANES;
	j->sym.steps.tail_steps = j->sym.steps.tail_lanes > 0;
	j->sym.tables = &j->tables;
	j->sym.tab = j->tab;
	j->sym.tab_steps = MAX_STEPS;
	j->sym.tab_tail = j->tab + MAX_STEPS * KVI_LANES;
	j->sym.escape = j->tables.symbols - 1;
	for (size_t i = 0; i < sizeof j->tab; i++)
		j->tab[i] = (uint8_t)(i % j->tables.n_tables);
	for (size_t t = 0; t < j->tables.n_tables; t++) {
		/* repaired to the right sum when the first byte says so */
		bool repair = fuzz_take(b) & 1;
		uint16_t *f = j->freq + t * j->tables.symbols;
		unsigned sum = 0, last = j->tables.symbols - 1;
		for (unsigned s = 0; s <= last; s++) {
			f[s] = take16(b);
			if (repair && s < last) {
				f[s] = (uint16_t)(f[s] % (2047 - sum + 1));
				f[s] = f[s] > 2046 ? 2046 : f[s];
			}
			sum += f[s];
		}
		if (repair)
			f[last] = (uint16_t)(2048 - (sum - f[last]));
	}
	for (int l = 0; l < KVI_LANES; l++)
		j->stream.state[l] = fuzz_take32(b);
	while (b->n && j->stream.n_words < 2048)
		j->words[j->stream.n_words++] = take16(b);
	j->stream.words = j->words;
}

/* The encoder of what was decoded gives the stream back on every set. */
static void encode_again(const struct tables_job *j, const struct kvi_kernels *k,
                         const uint16_t *sym, const uint8_t *esc)
{
	static uint16_t words[(MAX_STEPS + 1) * KVI_LANES * 2 + 64];
	uint16_t *end = words + sizeof words / sizeof words[0];
	uint32_t state[KVI_LANES];
	size_t n = k->coding.sym_encode(&j->sym, sym, esc, end, state);
	FUZZ_CHECK(n == j->stream.n_words);
	FUZZ_CHECK(memcmp(end - n, j->words, n * 2) == 0);
	FUZZ_CHECK(memcmp(state, j->stream.state, sizeof state) == 0);
}

/* Makes the stream of job from symbols: its words as they were. */
static void encode_first(struct tables_job *j)
{
	static uint16_t words[(MAX_STEPS + 1) * KVI_LANES * 2 + 64];
	uint16_t sym[(MAX_STEPS + 1) * KVI_LANES];
	uint8_t esc[(MAX_STEPS + 1) * KVI_LANES];
	size_t n = kvi_steps_elements(&j->sym.steps);
	for (size_t i = 0; i < n; i++) {
		unsigned tab = i < j->sym.steps.full_steps * KVI_LANES
		                       ? j->sym.tab[i]
		                       : j->sym.tab_tail[i % KVI_LANES];
		unsigned s = j->words[i] % j->tables.symbols;
		if (j->freq[tab * j->tables.symbols + s] == 0)
			s = j->sym.escape;
		sym[i] = (uint16_t)s;
		esc[i] = (uint8_t)(j->words[i] >> 8);
	}
	uint16_t *end = words + sizeof words / sizeof words[0];
	j->stream.n_words = kvi_kernels_get(KVARC_ISA_SCALAR)
	                            ->coding.sym_encode(&j->sym, sym, esc, end, j->stream.state);
	memcpy(j->words, end - j->stream.n_words, j->stream.n_words * 2);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_bytes b = { data, n };
	enum { ELEMENTS = (MAX_STEPS + 1) * KVI_LANES };
	uint16_t sym[2][ELEMENTS] = { { 0 } };
	uint8_t esc[2][ELEMENTS] = { { 0 } };
	struct tables_job *j = calloc(1, sizeof *j);
	FUZZ_CHECK(j);
	job_init(j, &b);
	bool ok = kvi_tables_build(&j->tables, j->freq);
	const struct kvi_kernels *k = kvi_kernels_get(KVARC_ISA_SCALAR);
	if (ok && env->mode & 1)
		encode_first(j);
	bool low = false;
	for (int l = 0; l < KVI_LANES; l++)
		low |= j->stream.state[l] < KVI_RANS_LOW;
	if (ok && !low) {
		ok = k->coding.sym_decode(&j->sym, &j->stream, sym[0], esc[0]);
		FUZZ_CHECK(ok || !(env->mode & 1));
		if (ok)
			encode_again(j, k, sym[0], esc[0]);
		for (uint32_t m = KVARC_ISA_AVX2; m <= KVARC_ISA_NEON; m <<= 1) {
			if (!(m & kvarc_isa_available()))
				continue;
			k = kvi_kernels_get(m);
			FUZZ_CHECK(k->coding.sym_decode(&j->sym, &j->stream, sym[1], esc[1]) == ok);
			if (!ok)
				continue;
			size_t count = kvi_steps_elements(&j->sym.steps);
			FUZZ_CHECK(memcmp(sym[0], sym[1], count * 2) == 0);
			encode_again(j, k, sym[1], esc[1]);
		}
	}
	free(j);
}
