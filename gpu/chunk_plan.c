/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_plan.c - parameters, tables and chunks as kernels take them */
#include "chunk_plan.h"

#include <string.h>

#include "codecs/grid/grid.h"
#include "codecs/grid/grid_sets.h"
#include "codecs/had/had.h"
#include "codecs/symbols.h"
#include "numeric/rope_angles.h"
#include "numeric/rotate.h"
#include "linear_job.h"
#include "util/fpmode.h"

/* Where arrays begin: at multiples of ALIGN. Work memory has SPARE bytes behind what is used. */
enum { ALIGN = 16, SPARE = 16, COSINES = 4096, SCALES = 65 * 64, RING_MORE = 256 };
/* Slots of a table of codec grid whose symbols kernels look up: every EACH-th one. */
enum { EACH = 8, FIRSTS = 2048 / EACH };
/* Entries of all tables of codes, at most: kernels have as much shared memory for them. */
enum { CODES_MOST = 2048 };

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* A memory that is filled from its begin on. */
struct param_arrays {
	uint8_t *memory; /* NULL: sizes alone are wanted */
	uint64_t address;
	size_t n;
};

/* Appends an array; returns its address. */
static uint64_t put(struct param_arrays *to, const void *from, size_t bytes)
{
	const size_t at = to->n;
	if (to->memory)
		memcpy(to->memory + at, from, bytes);
	to->n += aligned(bytes);
	return to->address + at;
}

static void put_tables(struct kvi_gpu_params *out, const struct kvi_table_params *p,
                       struct param_arrays *to)
{
	const size_t C = kvi_params_channels(&p->common);
	out->n_tables = p->freqs.n;
	out->freq = put(to, p->freqs.freq, p->freqs.n * KVI_EXP_SYMBOLS * sizeof *p->freqs.freq);
	out->table = put(to, p->table, C);
	out->top = put(to, p->top, C);
}

static void put_rope(struct kvi_gpu_params *out, const kvarc_rope *rope, struct param_arrays *to)
{
	out->rotary = rope->rotary;
	out->interleaved = rope->pairing == KVARC_ROPE_INTERLEAVED;
	out->rope = put(to, rope->freq, rope->rotary / 2 * sizeof *rope->freq);
}

static void put_grid(struct kvi_gpu_params *out, const struct kvi_grid_params *p,
                     const kvarc_rope *rope, struct param_arrays *to)
{
	const size_t C = kvi_params_channels(&p->common);
	out->k = put(to, p->k, C * sizeof *p->k);
	out->mean = put(to, p->mean, C * sizeof *p->mean);
	if (p->common.rotates)
		put_rope(out, rope, to);
}

static void put_had(struct kvi_gpu_params *out, const struct kvi_had_params *p,
                    const kvarc_rope *rope, struct param_arrays *to)
{
	const size_t C = kvi_params_channels(&p->common);
	out->k = put(to, p->k, C * sizeof *p->k);
	out->mean = put(to, p->mean, C * sizeof *p->mean);
	out->hadamard = p->hadamard;
	if (p->common.rotates)
		put_rope(out, rope, to);
}

static size_t put_params(struct kvi_gpu_params *out, const struct kvi_params *p,
                         const kvarc_rope *rope, struct param_arrays to)
{
	*out = (struct kvi_gpu_params){ .channels = (uint32_t)kvi_params_channels(p),
		                        .head_channels = p->head_channels };
	if (p->codec == KVI_CODEC_EXPONENT)
		put_tables(out, kvi_table_params_of(p), &to);
	else if (p->codec == KVI_CODEC_HAD)
		put_had(out, kvi_had_params_of(p), rope, &to);
	else
		put_grid(out, kvi_grid_params_of(p), rope, &to);
	return to.n;
}

size_t kvi_gpu_params_bytes(const struct kvi_params *p, const kvarc_rope *rope)
{
	struct kvi_gpu_params unused;
	return put_params(&unused, p, rope, (struct param_arrays){ 0 });
}

void kvi_gpu_params_fill(struct kvi_gpu_params *out, const struct kvi_params *p,
                         const kvarc_rope *rope, uint8_t *memory, uint64_t address)
{
	put_params(out, p, rope, (struct param_arrays){ memory, address, 0 });
}

/* The symbols of every EACH-th slot of a table of n, whose cumulative frequencies it has. */
static uint64_t put_firsts(struct param_arrays *to, const uint32_t *table, uint32_t n)
{
	uint8_t first[FIRSTS];
	for (uint32_t i = 0, symbol = 0; i < FIRSTS; i++) {
		while (symbol + 1 < n && table[symbol + 1] >> 16 <= i * EACH)
			symbol++;
		first[i] = (uint8_t)symbol;
	}
	return put(to, first, sizeof first);
}

/* A table of codes: of its symbols, then of the escape. Returns how many these are. */
static uint32_t code_table(const uint16_t *freq, uint32_t count, uint32_t *to)
{
	uint32_t cum = 0, n = 0;
	for (uint32_t q = 0; q < count; q++)
		for (uint32_t sign = 0; sign < (q ? 2 : 1); sign++) {
			to[n++] = freq[q] | cum << 16;
			cum += freq[q];
		}
	to[n++] = (KVI_PROB_TOTAL - cum) | cum << 16;
	return n;
}

/* The tables of codes (spec lossy 4). */
static void put_codes(struct kvi_gpu_tables *out, struct param_arrays *to)
{
	uint32_t codes[CODES_MOST], at[KVI_GPU_CLASSES + 1] = { 0 };
	const uint16_t *freq = kvi_code_freq;
	for (size_t k = 0; k < KVI_GPU_CLASSES; freq += kvi_code_counts[k++])
		at[k + 1] = at[k] + code_table(freq, kvi_code_counts[k], codes + at[k]);
	out->n_codes = at[KVI_GPU_CLASSES];
	out->codes = put(to, codes, out->n_codes * sizeof *codes);
	out->code_at = put(to, at, sizeof at);
	for (size_t k = 0; k < KVI_GPU_CLASSES; k++) {
		const uint64_t first = put_firsts(to, codes + at[k], at[k + 1] - at[k]);
		out->code_first = k ? out->code_first : first;
	}
}

static size_t put_fixed(struct kvi_gpu_tables *out, struct param_arrays to)
{
	uint32_t grid[KVI_GRID_TABLES * KVI_GRID_SYMBOLS];
	*out = (struct kvi_gpu_tables){ 0 };
	for (size_t t = 0; t < KVI_GRID_TABLES; t++)
		for (uint32_t s = 0, cum = 0; s < KVI_GRID_SYMBOLS; s++) {
			const size_t at = t * KVI_GRID_SYMBOLS + s;
			grid[at] = kvi_grid_set_0[at] | cum << 16;
			cum += kvi_grid_set_0[at];
		}
	out->grid = put(&to, grid, sizeof grid);
	for (size_t t = 0; t < KVI_GRID_TABLES; t++) {
		const uint64_t at = put_firsts(&to, grid + t * KVI_GRID_SYMBOLS, KVI_GRID_SYMBOLS);
		out->first = t ? out->first : at;
	}
	out->cosine = put(&to, kvi_cos4096, COSINES * sizeof *kvi_cos4096);
	out->scale = put(&to, kvi_rot_scale, SCALES);
	put_codes(out, &to);
	return to.n;
}

size_t kvi_gpu_tables_bytes(void)
{
	struct kvi_gpu_tables unused;
	return put_fixed(&unused, (struct param_arrays){ 0 });
}

void kvi_gpu_tables_fill(struct kvi_gpu_tables *out, uint8_t *memory, uint64_t address)
{
	put_fixed(out, (struct param_arrays){ memory, address, 0 });
}

uint32_t kvi_gpu_lossy_blocks(uint32_t tokens)
{
	const uint32_t most = (tokens + KVI_GPU_BODIES * (KVI_GPU_LANES - 1)) / KVI_GPU_LANES;
	return most < tokens ? most : tokens;
}

/* Of the codecs had and klt: elements, points, coefficients, angles. An encoder has the elements
 * that it is given where points will be. */
static struct kvi_gpu_work lossy_work(const struct kvi_chunk *shape, bool encodes)
{
	const size_t elements = aligned(kvi_chunk_bytes(shape) + SPARE);
	const size_t C = kvi_chunk_channels(shape), head = (shape->head_channels + 1) / 2;
	const size_t block = kvi_gpu_lossy_blocks(shape->n_tokens) * KVI_GPU_LANES;
	const size_t pairs = shape->rope ? shape->rope->rotary / 2 : 0;
	const size_t points = block * shape->heads * head * sizeof(uint32_t);
	struct kvi_gpu_work w = { .packed = aligned(encodes ? sizeof(struct kvi_gpu_encoding)
		                                            : sizeof(struct kvi_gpu_opened)) };
	w.decoded = w.packed + elements;
	w.contexts = w.decoded + (encodes && elements > points ? elements : points);
	w.columns = w.contexts + block * C * sizeof(int32_t);
	w.bytes = w.columns + pairs * kvi_padded_tokens(shape->n_tokens) * sizeof(uint32_t);
	return w;
}

static bool is_linear(unsigned codec)
{
	return codec == KVI_CODEC_LINEAR || codec == KVI_CODEC_MODEL;
}

struct kvi_gpu_work kvi_gpu_work_of(const struct kvi_chunk *shape, unsigned codec)
{
	if (codec == KVI_CODEC_HAD || codec == KVI_CODEC_KLT)
		return lossy_work(shape, false);
	const size_t C = kvi_chunk_channels(shape), n = C * shape->n_tokens;
	const size_t elements = aligned(kvi_chunk_bytes(shape) + SPARE);
	const size_t ring = 2 * C + RING_MORE;
	struct kvi_gpu_work w = { 0 };
	w.packed = aligned(sizeof(struct kvi_gpu_encoding)); /* the larger one */
	/* slots of the codecs linear and model are elsewhere (linear_job.h) */
	w.decoded = w.packed + (is_linear(codec) ? 0 : elements);
	w.contexts = w.decoded + elements;
	w.columns = w.contexts;
	if (codec == KVI_CODEC_GRID)
		w.columns += aligned((n > ring ? n : ring) * sizeof(uint32_t) + SPARE);
	w.bytes = w.columns + aligned(C * sizeof(uint32_t) + SPARE);
	return w;
}

void kvi_gpu_chunk_fill(struct kvi_gpu_chunk *out, const struct kvi_chunk *shape,
                        const struct kvi_chunk_header *header, uint32_t n)
{
	uint8_t head[KVI_CHUNK_HEADER_BYTES];
	*out = (struct kvi_gpu_chunk){ .payload_bytes = n,
		                       .dtype = shape->dtype,
		                       .tokens = shape->n_tokens,
		                       .heads = shape->heads,
		                       .head_channels = shape->head_channels,
		                       .codec = header->codec,
		                       .from = shape->from,
		                       .to = shape->to ? shape->to : shape->n_tokens };
	kvi_chunk_header_write(head, header);
	head[25] = 0;
	for (size_t i = 0; i < 8; i++)
		out->head[i] = kvi_load32(head + 4 * i);
}

void kvi_gpu_chunk_place(struct kvi_gpu_chunk *out, const struct kvi_gpu_work *work,
                         uint64_t address)
{
	out->opened = address + work->opened;
	out->packed = address + work->packed;
	out->decoded = address + work->decoded;
	out->contexts = address + work->contexts;
	out->columns = address + work->columns;
}

/* Most words of an element, as kernels reserve them. */
enum { MOST_WORDS = 3, CODE_WORDS = 2 };

size_t kvi_gpu_encode_bound(const struct kvi_chunk *shape)
{
	const size_t C = kvi_chunk_channels(shape), T = shape->n_tokens, n = C * T;
	const size_t elem = kvarc_dtype_bytes(shape->dtype);
	const size_t section = 8 + 1 + (C + 7) / 8 + (T + 7) / 8 + (C + T) * elem;
	return KVI_CHUNK_HEADER_BYTES + aligned(section > n * elem ? section : n * elem);
}

/* Of the codecs had and klt: words, codes, which tokens are refused, units of slots. */
static struct kvi_gpu_encode_work lossy_encode_work(const struct kvi_chunk *shape, unsigned codec)
{
	const size_t panels = (shape->head_channels + KVI_GPU_PANEL - 1) / KVI_GPU_PANEL;
	const size_t each = codec == KVI_CODEC_HAD ? 1 : panels + KVI_GPU_LANES;
	const size_t n = kvi_chunk_channels(shape) * kvi_padded_tokens(shape->n_tokens);
	const size_t blocks = kvi_padded_tokens(shape->n_tokens) / KVI_GPU_LANES;
	struct kvi_gpu_encode_work w = { .job = lossy_work(shape, true) };
	w.words = aligned(w.job.bytes);
	w.planes = w.words + aligned(2 * (CODE_WORDS * n + KVI_GPU_SPARE_WORDS));
	w.channel_bits = w.planes + aligned(n);
	w.job.bytes = w.channel_bits + aligned(blocks * shape->heads * each * sizeof(uint32_t));
	return w;
}

struct kvi_gpu_encode_work kvi_gpu_encode_work_of(const struct kvi_chunk *shape, unsigned codec)
{
	const size_t C = kvi_chunk_channels(shape), n = C * shape->n_tokens;
	struct kvi_gpu_encode_work w = { .job = kvi_gpu_work_of(shape, codec) };
	if (codec == KVI_CODEC_HAD || codec == KVI_CODEC_KLT)
		return lossy_encode_work(shape, codec);
	if (is_linear(codec)) { /* whose decoders need neither */
		w.job.packed = w.job.bytes;
		if (shape->dtype == KVARC_F32)
			w.job.bytes += aligned(kvi_chunk_bytes(shape) + SPARE);
		w.job.contexts = w.job.bytes;
		w.job.bytes += aligned(C * kvi_padded_tokens(shape->n_tokens) * sizeof(uint32_t));
	}
	w.words = w.job.bytes;
	w.planes = w.words +
	           aligned(2 * (MOST_WORDS * n + (KVI_GPU_STREAMS + 1) * KVI_GPU_SPARE_WORDS));
	w.channel_bits = w.planes + aligned(kvi_chunk_bytes(shape) + KVI_GPU_PLANES * 3 * ALIGN);
	w.job.bytes = w.channel_bits + aligned((C + 31) / 32 * sizeof(uint32_t));
	return w;
}

static uint32_t pattern_of(float v)
{
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	return b;
}

void kvi_gpu_quantiser_fill(struct kvi_gpu_quantiser *out, const struct kvi_chunk *shape,
                            const kvarc_lossy *tier, const struct kvi_params *params)
{
	const uint32_t T = shape->n_tokens;
	const uint64_t first = shape->t0 < tier->exact_tokens ? tier->exact_tokens - shape->t0 : 0;
	const uint64_t behind = shape->end - (shape->t0 + T);
	const uint64_t last = behind < tier->tail_tokens ? tier->tail_tokens - behind : 0;
	/* coefficients of a profile have a standard deviation of about 1 */
	const float rms = tier->tier == KVARC_TIER_HAD ? kvi_had_params_of(params)->rms : 1;
	const uint64_t mode = kvi_fp_exact();
	const float step = kvi_step_of(tier, shape, rms);
	*out = (struct kvi_gpu_quantiser){
		.step = pattern_of(step),
		.inverse = pattern_of(1.0f / step),
		.offset = pattern_of(kvi_offset_of(rms, step)),
		.shift = kvi_quarter_log(step) - KVI_CODE_UNIT,
		.generation = kvi_lossy_next_generation(tier),
		.exact_first = (uint32_t)(first < T ? first : T),
		.exact_last = (uint32_t)(last < T ? last : T),
	};
	kvi_fp_restore(mode);
}

void kvi_gpu_encode_place(struct kvi_gpu_encode *out, const struct kvi_gpu_encode_work *work,
                          uint64_t address)
{
	kvi_gpu_chunk_place(&out->job, &work->job, address);
	out->words = address + work->words;
	out->planes = address + work->planes;
	out->channel_bits = address + work->channel_bits;
}
