/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels_speed.c - speeds of the kernels of each instruction set, or of one: kernels [SET [CACHE]]
 *
 * On data that fits the tables; GB/s of elements, the best of the runs of 0.4 s each; the clock.
 * Cells, too, on keys and values as the encoder of level 1 has them, with the parameters that it
 * fits and contexts of their positions: of the first layer of a cache file, or made ones, of whose
 * channels each follows from the token before. SET all: every one.
 */
#include "config.h"

#include <time.h>

#include "codecs/grid/grid.h"
#include "format/geometry_check.h"
#include "kernels/cells.h"
#include "kernels/layers.h"
#include "kernels/slots.h"
#include "numeric/rope_search.h"
#include "rans_cases.h"

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of several runs of `run`, as GB/s of `bytes`. */
#define BEST(bytes, run)                                 \
	__extension__({                                  \
		double best_ = 1e9, stop_ = now() + 0.4; \
		do {                                     \
			double t_ = now();               \
			run;                             \
			t_ = now() - t_;                 \
			best_ = t_ < best_ ? t_ : best_; \
		} while (now() < stop_);                 \
		(double)(bytes) / best_ / 1e9;           \
	})

enum { BENCH_TOKENS = 256, BENCH_CHANNELS = 1024 };

static void bench_grid(const struct kvi_kernels *k, const struct kvi_tables *t, const char *what,
                       unsigned format, size_t ring, int per_step)
{
	struct kvi_steps steps = { BENCH_TOKENS * BENCH_CHANNELS / KVI_LANES, 0, 0 };
	struct grid_case c;
	struct coded a;
	grid_case_new(&c, format, GRID_MODEL, steps, ring, per_step, t);
	coded_new(&a, c.n);
	uint16_t *y = must_alloc(c.n, 2);
	size_t n = 0, bytes = c.n * (unsigned)c.job.fmt->elem_bits / 8;
	double enc = BEST(bytes, n = k->coding.grid_encode(&c.job, c.x, a.end, a.stream.state));
	a.stream.words = a.end - n;
	a.stream.n_words = n;
	int ok = 1;
	double dec = BEST(bytes, ok &= k->coding.grid_decode(&c.job, &a.stream, y));
	printf("%-7s grid %-24s encode %6.3f  decode %6.3f GB/s  %.3f bits%s\n", k->name, what, enc,
	       dec, 16.0 * (double)n / (double)c.n,
	       ok && !memcmp(y, c.x, 2 * c.n) ? "" : "  WRONG");
	if (k->coding.grid_decode2) {
		uint16_t *z = must_alloc(c.n, 2);
		bool both[2] = { false, false };
		dec = BEST(2 * bytes,
		           k->coding.grid_decode2(
				   (const struct kvi_grid_job *const[]){ &c.job, &c.job },
				   (const struct kvi_stream *const[]){ &a.stream, &a.stream },
				   (uint16_t *const[]){ y, z }, both));
		printf("%-7s grid %-24s two at once     decode %6.3f GB/s%s\n", k->name, what, dec,
		       both[0] && both[1] && !memcmp(y, c.x, 2 * c.n) && !memcmp(z, c.x, 2 * c.n)
		               ? ""
		               : "  WRONG");
		free(z);
	}
	if (k->coding.grid_encode2) {
		struct coded b;
		size_t both[2] = { 0, 0 };
		coded_new(&b, c.n);
		enc = BEST(2 * bytes,
		           k->coding.grid_encode2(
				   (const struct kvi_grid_job *const[]){ &c.job, &c.job },
				   (const uint16_t *const[]){ c.x, c.x },
				   (uint16_t *const[]){ a.end, b.end }, both,
				   (uint32_t *const[]){ a.stream.state, b.stream.state }));
		printf("%-7s grid %-24s two at once     encode %6.3f GB/s%s\n", k->name, what, enc,
		       both[0] == n && same_words(&a, n, &b, both[1]) ? "" : "  WRONG");
		free(b.buf);
	}
	free(y);
	free(a.buf);
	grid_case_free(&c);
}

/* Codec layers: two streams of a chunk, whose channels are normally distributed and have scales of
 * their own. */
static void bench_layers(const struct kvi_kernels *k, bool f16)
{
	enum { CHANNELS = 192, STREAMS = 2, N = BENCH_TOKENS / STREAMS * CHANNELS, RING = 1024 };
	enum { PARTS = 3 * N + KVI_LAYERS_SLACK, MANTISSA = 7, F16_MANTISSA = 10, COSTS = 200 };
	enum { SHIFT = 32, MALLOC = 8 }; /* elements behind the begin of a line */
	static uint16_t x[STREAMS][N] __attribute__((aligned(64)));
	static uint16_t y[STREAMS][N + SHIFT] __attribute__((aligned(64)));
	static uint8_t planes[STREAMS][KVI_LAYERS_PLANES][N], values[STREAMS][PARTS];
	static uint8_t top[RING], top_less2[RING], exponents[KVI_TOPS_ROWS * CHANNELS];
	static uint8_t work[4 * (N + KVI_LAYERS_SLACK)];
	const unsigned mantissa = f16 ? F16_MANTISSA : MANTISSA, mask = f16 ? 31 : 255;
	const int one = f16 ? 15 : 127; /* the exponent of 1 */
	const struct kvi_layer_kernels *layers = k->layers;
	const struct kvi_layers_tops tops = { top, CHANNELS }, tops_less2 = { top_less2, CHANNELS };
	struct kvi_layers_out out[STREAMS];
	struct kvi_layers_in in[STREAMS];
	struct kvi_layers_rest rest[STREAMS];
	size_t bytes = 0;
	for (unsigned i = 0; i < RING; i++) {
		top[i] = i < CHANNELS ? (uint8_t)(one + 2 - (int)rng_below(5)) : top[i - CHANNELS];
		top_less2[i] = (uint8_t)(top[i] - 2);
	}
	for (unsigned i = 0; i < STREAMS * N; i++) {
		int exponent;
		const double part = fabs(frexp(rng_gauss(), &exponent));
		const unsigned bits = (unsigned)(part * (2 << mantissa)) & ((1u << mantissa) - 1);
		/* frexp gives 1 for the numbers from 1 to 2, whose distance is 2 */
		const unsigned field = (unsigned)(top_less2[i % CHANNELS] - 1 + exponent) & mask;
		x[i / N][i % N] = (uint16_t)((rng() & 1) << 15 | field << mantissa | bits);
		if (i < KVI_TOPS_ROWS * CHANNELS)
			exponents[i] = (uint8_t)field;
	}
	for (unsigned s = 0; s < STREAMS; s++)
		out[s] = (struct kvi_layers_out){ .to = values[s], .work = work };
#define ENCODE(s)                                                                               \
	(f16 ? layers->put_f16 : layers->put_bf16)(                                             \
		x[s], N, &tops, (uint8_t *const[]){ planes[s][0], planes[s][1], planes[s][2] }, \
		&out[s])
	const double enc = BEST(2 * STREAMS * N, for (unsigned s = 0; s < STREAMS; s++) ENCODE(s));
	for (unsigned s = 0; s < STREAMS; s++) {
		const uint8_t *part = values[s];
		in[s] = (struct kvi_layers_in){ .n = { N }, .work = work };
		for (unsigned l = 0; l < KVI_LAYERS_N; l++) {
			in[s].n[l + 1] = out[s].count[l];
			in[s].layer[l] = part;
			part += kvi_layers_plane(in[s].n[l], 2);
		}
		in[s].bytes = part;
		rest[s] = (struct kvi_layers_rest){ { planes[s][0], planes[s][1], planes[s][2] } };
		bytes += (size_t)(part - values[s]) + in[s].n[KVI_LAYERS_N];
	}
	int ok = 1;
#define DECODE(to) (f16 ? layers->get_f16 : layers->get_bf16)(&in[s], &rest[s], &tops_less2, to)
	const double dec = BEST(2 * STREAMS * N,
	                        for (unsigned s = 0; s < STREAMS; s++) ok &= DECODE(y[s]));
	for (unsigned s = 0; s < STREAMS; s++)
		ok &= !memcmp(x[s], y[s], sizeof x[s]);
	/* as malloc aligns large buffers */
	const double shifted = BEST(2 * STREAMS * N, for (unsigned s = 0; s < STREAMS; s++)
	                                                     ok &= DECODE(y[s] + MALLOC));
	for (unsigned s = 0; s < STREAMS; s++)
		ok &= !memcmp(x[s], y[s] + MALLOC, sizeof x[s]);
	uint16_t cost[KVI_TOPS_TRIED][KVI_TOPS_AT_ONCE];
	const double fit = BEST(COSTS * KVI_TOPS_ROWS * KVI_TOPS_AT_ONCE,
	                        for (int i = 0; i < COSTS; i++)
	                                layers->top_costs(exponents, KVI_TOPS_ROWS, CHANNELS,
	                                                  top_less2, (uint8_t)mask, cost));
	printf("%-7s layers %-22s encode %6.3f  decode %6.3f, unaligned %6.3f GB/s  "
	       "%.3f bits, %2.0f%% escape, "
	       "costs of tops %.2f G elements/s%s\n",
	       k->name, f16 ? "f16" : "bf16", enc, dec, shifted,
	       1 + mantissa + 8.0 * (double)bytes / (STREAMS * N), 100.0 * (double)in[0].n[1] / N,
	       fit, ok ? "" : "  WRONG");
#undef ENCODE
#undef DECODE
}

/* A normally distributed number of a 16-bit format, towards zero. */
static uint16_t bench_element(double mean, double scale, const struct kvi_grid_format *format)
{
	const double value = mean + scale * rng_gauss();
	int exponent;
	const double part = 2 * frexp(fabs(value), &exponent) - 1;
	const int field = exponent - format->emin;
	const uint16_t sign = value < 0 ? 0x8000 : 0;
	return field < 1 ? sign
	                 : (uint16_t)(sign | field << format->mant_bits |
	                              (int)(part * (1 << format->mant_bits)));
}

/* Codec cells: n elements as one stream; the row continues. */
static void measure_cells(const struct kvi_kernels *k, const char *what, const uint16_t *x,
                          size_t n, const struct kvi_cells_contexts *contexts, unsigned mantissa)
{
	uint8_t *stream = must_alloc(kvi_cells_space(n) + KVI_CELLS_SLACK, 1);
	uint8_t *work = must_alloc(kvi_cells_out_work(n), 1);
	uint16_t *y = must_alloc(n, sizeof *y);
	const struct kvi_cell_kernels *cells = k->cells;
	struct kvi_cells_out out = { .to = stream, .work = work };
	const uint8_t *end = stream;
	const double enc = BEST(2 * n, end = cells->put(x, n, contexts, mantissa, &out));
	struct kvi_cells_in in = { .n = n,
		                   .n_second = out.n_second,
		                   .n_escapes = out.n_escapes,
		                   .n_words = out.n_words,
		                   .codes = stream,
		                   .second = stream + kvi_layers_plane(n, 4),
		                   .words = end - 2 * (size_t)out.n_words,
		                   .work = work };
	in.escapes = in.words - 2 * in.n_escapes;
	memcpy(in.state, out.state, sizeof in.state);
	int ok = 1;
	const double dec = BEST(2 * n, ok &= cells->get(&in, contexts, mantissa, y));
	printf("%-7s cells %-23s encode %6.3f  decode %6.3f GB/s  %.3f bits, %.1f%% second, "
	       "%.2f%% escape%s",
	       k->name, what, enc, dec, 8.0 * (double)(end - stream) / (double)n,
	       100.0 * out.n_second / (double)n, 100.0 * out.n_escapes / (double)n,
	       ok && !memcmp(x, y, n * sizeof *y) ? "" : "  WRONG");
	free(stream);
	free(work);
	free(y);
}

/* Codec cells: a stream whose channels have means and scales of their own; rotating contexts. */
static void bench_cells(const struct kvi_kernels *k, bool f16)
{
	enum { HEADS = 3, PAIRS = 32, CHANNELS = HEADS * 2 * PAIRS, TOKENS = KVI_CELLS_TOKENS };
	enum { N = 192 * CHANNELS, RING = CHANNELS + KVI_CELLS_SLACK, TIMES = 20 };
	static uint16_t x[N], grid[RING], to_grid[TOKENS * CHANNELS];
	static int16_t mean[RING], to_mean[TOKENS * CHANNELS], params_mean[CHANNELS];
	static int16_t params_k[CHANNELS];
	static uint16_t scales[KVI_SCALE_PAIRS], angle_class[TOKENS * PAIRS];
	static uint32_t turn[TOKENS * PAIRS];
	const struct kvi_grid_format *format = &case_formats[f16 ? CASE_F16 : CASE_BF16];
	const unsigned mantissa = (unsigned)format->mant_bits;
	const struct kvi_cell_kernels *cells = k->cells;
	const struct kvi_cells_contexts contexts = { mean, grid, CHANNELS };
	const struct kvi_rotation rotation = {
		format,      PAIRS,    false,  turn,  angle_class,
		params_mean, params_k, scales, HEADS, 2 * PAIRS,
	};
	for (unsigned i = 0; i < RING; i++) {
		const unsigned channel = i % CHANNELS;
		if (i < CHANNELS) {
			params_mean[i] = (int16_t)(rng_gauss() * 24);
			params_k[i] = (int16_t)(rng_below(12) - 6);
		}
		kvi_cells_fixed_context(format, params_mean[channel], params_k[channel], mean + i,
		                        grid + i);
	}
	for (unsigned i = 0; i < N; i++) {
		const int class = params_k[i % CHANNELS];
		x[i] = bench_element(ldexp(params_mean[i % CHANNELS], (class >> 2) - 4),
		                     exp2(class / 4.0), format);
	}
	for (unsigned i = 0; i < TOKENS * PAIRS; i++) {
		const unsigned angle = rng_below(64);
		const double radians = 0.09817477042468103 * angle;
		angle_class[i] = (uint16_t)angle;
		turn[i] = (uint16_t)lrint(16384 * cos(radians)) |
		          (uint32_t)(uint16_t)lrint(16384 * sin(radians)) << 16;
	}
	measure_cells(k, f16 ? "f16" : "bf16", x, N, &contexts, mantissa);
	printf("  rotated contexts %6.3f GB/s\n",
	       BEST(2 * TOKENS * CHANNELS * TIMES,
	            for (int i = 0; i < TIMES; i++)
	                    cells->rotated(&rotation, TOKENS, CHANNELS, to_mean, to_grid)));
}

/* ----- a chunk as the encoder of level 1 has it ----------------------------------------------- */

/* Keys or values of 16 bits, of BENCH_TOKENS tokens at most. */
struct real_chunk {
	struct kvi_chunk chunk;
	uint8_t kind;
	uint16_t *x;
	int32_t positions[BENCH_TOKENS];
};

static void must(kvarc_ret ret, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "kernels: %s: %s\n", what, kvarc_strerror(ret));
	exit(1);
}

/* The contexts of a chunk, as codec cells makes them, with what kernels may touch behind them. */
static struct kvi_cells_contexts real_contexts(struct kvi_coder *coder,
                                               const struct kvi_chunk *chunk,
                                               const struct kvi_grid_params *params)
{
	const struct kvi_grid_format *format = &kvi_float_format(chunk->dtype)->grid;
	const size_t row = (size_t)chunk->heads * chunk->head_channels;
	const size_t rows = params->common.rotates ? chunk->n_tokens : 1, n = rows * row;
	int16_t *mean = must_alloc(n + KVI_CELLS_SLACK, sizeof *mean);
	uint16_t *grid = must_alloc(n + KVI_CELLS_SLACK, sizeof *grid);
	for (size_t i = 0; i < n; i++)
		kvi_cells_fixed_context(format, params->mean[i % row], params->k[i % row], mean + i,
		                        grid + i);
	for (size_t t = 0; params->common.rotates && t < rows; t += KVI_CELLS_TOKENS) {
		const size_t left = rows - t;
		const struct kvi_token_turns *turns = kvi_coder_token_turns(
			coder, chunk->rope, chunk->positions, chunk->n_tokens);
		must(turns ? KVARC_OK : KVARC_MEM, "turns");
		const struct kvi_rotation rotation =
			kvi_grid_rotation(coder->tables, params, format, chunk->rope, turns, t);
		coder->kernels->cells->rotated(&rotation,
		                               left < KVI_CELLS_TOKENS ? left : KVI_CELLS_TOKENS,
		                               row, mean + t * row, grid + t * row);
	}
	for (size_t i = 0; i < KVI_CELLS_SLACK; i++) {
		mean[n + i] = mean[i % n];
		grid[n + i] = grid[i % n];
	}
	return (struct kvi_cells_contexts){ mean, grid, n };
}

static void bench_real(const struct kvi_kernels *k, uint32_t isa, const struct real_chunk *real)
{
	const struct kvi_chunk *c = &real->chunk;
	const struct kvi_encode_request request = {
		.chunk = *c, .kind = real->kind, .level = 1, .end = c->n_tokens
	};
	const unsigned mantissa = (unsigned)kvi_float_format(c->dtype)->mant_bits;
	const char *what = real->kind == KVARC_KEY ? "keys" : "values";
	struct kvi_coder_tables *tables;
	struct kvi_coder *coder;
	struct kvi_encoded coded;
	struct kvi_alloc alloc;
	kvi_alloc_init(&alloc, NULL, 0);
	must(kvi_coder_tables_open(&tables, &alloc), "tables");
	must(kvi_coder_open(&coder, &alloc, tables, isa), "coder");
	must(kvi_chunk_encode(coder, &request, (const uint8_t *)real->x, &coded), "encode");
	if (coded.codec == KVI_CODEC_CELLS) {
		const struct kvi_grid_params *params = kvi_grid_params_of(coded.params);
		const struct kvi_cells_contexts contexts = real_contexts(coder, c, params);
		const size_t n = (size_t)c->n_tokens * c->heads * c->head_channels;
		measure_cells(k, what, real->x, n, &contexts, mantissa);
		printf(", contexts of each %s\n", params->common.rotates ? "element" : "channel");
		free((void *)(uintptr_t)contexts.mean);
		free((void *)(uintptr_t)contexts.grid);
	} else {
		printf("%-7s cells %-23s codec %u is smaller\n", k->name, what, coded.codec);
	}
	kvi_params_free(coded.params);
	kvi_free(&alloc, coded.params_content);
	kvi_coder_close(coder);
	kvi_coder_tables_close(tables);
}

/* The first keys and values of a cache that have 16 bits. */
static void load_chunks(const char *path, struct real_chunk of[2])
{
	static kvarc_import *im; /* has the ropes of the chunks until the end */
	kvarc_source source;
	kvarc_import_options options = KVARC_IMPORT_OPTIONS_INIT;
	must(kvarc_source_open_path(&source, path, NULL), path);
	must(kvarc_import_open(&im, &source, path, &options), path);
	const kvarc_geometry *g = kvarc_import_geometry(im);
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		struct real_chunk *to = &of[t->kind == KVARC_VALUE];
		const uint64_t tokens = kvarc_import_tokens(im, t->track);
		const uint32_t n = tokens < BENCH_TOKENS ? (uint32_t)tokens : BENCH_TOKENS;
		if (to->x || (t->kind != KVARC_KEY && t->kind != KVARC_VALUE) || !n ||
		    kvarc_dtype_bytes(t->dtype) != 2)
			continue;
		to->x = must_alloc((size_t)n * t->heads * t->channels, 2);
		must(kvarc_import_read_tokens(im, t->track, 0, n, NULL, to->positions), path);
		must(kvarc_import_fetch(im, i, 0, t->heads, 0, n, to->x) ? KVARC_IO : KVARC_OK,
		     path);
		to->kind = t->kind;
		to->chunk = (struct kvi_chunk){ .dtype = t->dtype,
			                        .n_tokens = n,
			                        .heads = t->heads,
			                        .head_channels = t->channels,
			                        .positions = to->positions,
			                        .rope = kvi_tensor_rope(g, t) };
	}
	if (!of[0].x || !of[1].x) {
		fprintf(stderr, "kernels: %s: no keys and values of 16 bits\n", path);
		exit(1);
	}
}

/* A number of bf16, to the nearest. */
static uint16_t to_bf16(double value)
{
	const float number = (float)value;
	uint32_t bits;
	memcpy(&bits, &number, sizeof bits);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Keys and values of 3 heads of 64 channels, each channel with a mean and a scale of its own; keys
 * are rotated. */
static void make_chunks(struct real_chunk of[2])
{
	enum { HEADS = 3, CHANNELS = 64, ROW = HEADS * CHANNELS, PAIRS = CHANNELS / 2 };
	const double follows = 0.6, rest = 0.8, theta = 100000;
	static struct kvi_rope made;
	static kvarc_rope rope = { .rotary = CHANNELS, .freq = made.freq };
	rope.pairing = KVARC_ROPE_HALF;
	must(kvi_rope_make(&made, theta, CHANNELS, rope.pairing) ? KVARC_OK : KVARC_PROG, "RoPE");
	for (int value = 0; value < 2; value++) {
		struct real_chunk *to = &of[value];
		double mean[ROW], scale[ROW], now[ROW];
		to->kind = value ? KVARC_VALUE : KVARC_KEY;
		to->x = must_alloc(BENCH_TOKENS * ROW, 2);
		to->chunk = (struct kvi_chunk){ .dtype = KVARC_BF16,
			                        .n_tokens = BENCH_TOKENS,
			                        .heads = HEADS,
			                        .head_channels = CHANNELS,
			                        .positions = to->positions,
			                        .rope = value ? NULL : &rope };
		for (int c = 0; c < ROW; c++) {
			scale[c] = exp(0.5 * rng_gauss());
			mean[c] = 2 * scale[c] * rng_gauss();
			now[c] = mean[c] + scale[c] * rng_gauss();
		}
		for (int t = 0; t < BENCH_TOKENS; t++) {
			to->positions[t] = t;
			for (int c = 0; c < ROW; c++)
				now[c] = mean[c] + follows * (now[c] - mean[c]) +
				         rest * scale[c] * rng_gauss();
			for (int c = 0; c < ROW; c++) {
				const bool first = c % CHANNELS < PAIRS;
				const double angle =
					value ? 0 : t * pow(theta, -(c % PAIRS) / (double)PAIRS);
				const double other = first ? -now[c + PAIRS] : now[c - PAIRS];
				to->x[t * ROW + c] =
					to_bf16(now[c] * cos(angle) + other * sin(angle));
			}
		}
	}
}

static void bench_sym(const struct kvi_kernels *k)
{
	struct kvi_steps steps = { BENCH_TOKENS * BENCH_CHANNELS / KVI_LANES, 0, 0 };
	struct kvi_tables t = tables_random(16, KVI_BYTE_SYMBOLS, 1);
	struct byte_case c;
	struct coded a;
	byte_case_new(&c, steps, BENCH_CHANNELS / 32, 0, 30, &t);
	struct kvi_sym_job job = sym_job(&c, &t);
	coded_new(&a, c.n);
	uint16_t *y = must_alloc(c.n, 2);
	uint8_t *esc = must_alloc(c.n, 1);
	size_t n = 0;
	double enc = BEST(c.n, n = k->coding.sym_encode(&job, c.sym, c.esc, a.end, a.stream.state));
	a.stream.words = a.end - n;
	a.stream.n_words = n;
	int ok = 1;
	double dec = BEST(c.n, ok &= k->coding.sym_decode(&job, &a.stream, y, esc));
	printf("%-7s sym  %-24s encode %6.3f  decode %6.3f GB/s%s\n", k->name, "bytes, 16 tables",
	       enc, dec, ok && !memcmp(y, c.sym, 2 * c.n) ? "" : "  WRONG");
	free(y);
	free(esc);
	free(a.buf);
	byte_case_free(&c);
	tables_free(&t);
}

static void bench_moves(const struct kvi_kernels *k)
{
	size_t rows = 32, cols = BENCH_CHANNELS, n = rows * cols;
	uint16_t *x = must_alloc(n, 2), *y = must_alloc(n, 2);
	uint8_t *from = must_alloc(n, 1), *to = must_alloc(n, 1);
	struct grid_case c;
	struct kvi_steps steps = { cols, 0, 0 };
	grid_case_new(&c, CASE_BF16, GRID_MODEL, steps, cols, 0, NULL);
	printf("%-7s transpose8 %.2f %.2f  transpose16 %.2f %.2f  contexts %.2f GB/s\n", k->name,
	       BEST(2 * n, k->moves.transpose8(to, from, rows, cols)),
	       BEST(2 * n, k->moves.transpose8(to, from, cols, rows)),
	       BEST(2 * n, k->moves.transpose16(y, x, rows, cols)),
	       BEST(2 * n, k->moves.transpose16(y, x, cols, rows)),
	       BEST(2 * n, k->coding.grid_contexts(c.ctx, c.mu, c.k, n, c.job.fmt)));
	grid_case_free(&c);
	free(x);
	free(y);
	free(from);
	free(to);
}

/* The same of many tokens at once; r: of one. */
static void bench_tokens(const struct kvi_kernels *k, const struct kvi_rotation *r)
{
	enum { TOKENS = 32, MOST = 1024 };
	static uint32_t ctx[TOKENS * MOST], turn[TOKENS * MOST / 2];
	static uint16_t classes[2 * TOKENS * MOST / 2];
	const size_t row = r->heads * r->head_channels;
	const struct kvi_rotated all = { TOKENS, row, 2 * TOKENS, classes };
	struct kvi_rotation many = *r;
	many.turn = turn;
	for (size_t i = 0; i < TOKENS * r->pairs; i++) {
		turn[i] = (uint32_t)rng();
		classes[i] = (uint16_t)rng_below(64);
	}
	printf("%-7s rotated contexts, 32 tokens %.2f GB/s of 2-byte elements\n", k->name,
	       BEST(2 * TOKENS * row * 4,
	            for (int i = 0; i < 4; i++) k->coding.rotated_tokens(ctx, &many, &all)));
}

static void bench_rotation(const struct kvi_kernels *k)
{
	enum { HEADS = 8, PAIRS = 64, N = HEADS * 2 * PAIRS };
	static int16_t mean[N], scale_class[N];
	static uint16_t scales[KVI_SCALE_PAIRS], angle_class[PAIRS];
	static uint32_t ctx[N], turn[PAIRS];
	struct kvi_rotation r = { &case_formats[CASE_BF16],
		                  PAIRS,
		                  false,
		                  turn,
		                  angle_class,
		                  mean,
		                  scale_class,
		                  scales,
		                  HEADS,
		                  2 * PAIRS };
	for (int i = 0; i < N; i++) {
		mean[i] = (int16_t)rng();
		scale_class[i] = (int16_t)rng_below(16);
	}
	for (int i = 0; i < PAIRS; i++) {
		turn[i] = (uint32_t)rng();
		angle_class[i] = (uint16_t)rng_below(64);
	}
	printf("%-7s rotated contexts %.2f GB/s of 2-byte elements\n", k->name,
	       BEST(2 * N * 100,
	            for (int i = 0; i < 100; i++) k->coding.rotated_contexts(ctx, &r)));
	if (k->coding.rotated_tokens)
		bench_tokens(k, &r);
}

/* The sums of a panel of the linear codec over half the slots of a layer of 384. */
static void bench_rows(const struct kvi_kernels *k)
{
	enum { PAIRS = 96, STEPS = KVI_BLOCK_TOKENS / KVI_LANES };
	static int16_t features[STEPS * PAIRS * KVI_PAIR_STEP] __attribute__((aligned(64)));
	static int16_t coef[KVI_PANEL * 2 * PAIRS];
	static int32_t sum[STEPS * KVI_PANEL * KVI_LANES] __attribute__((aligned(64)));
	const uint8_t q[KVI_PANEL] = { 0 };
	const struct kvi_rows_part part = { features, PAIRS, PAIRS * KVI_PAIR_STEP };
	const struct kvi_rows r = {
		.sum = sum,
		.coef = coef,
		.q = q,
		.part = &part,
		.n_parts = 1,
		.rows = KVI_PANEL,
		.steps = STEPS,
		.sum_step = KVI_PANEL * KVI_LANES,
		.coef_row = 2 * PAIRS,
	};
	for (size_t i = 0; i < STEPS * PAIRS * KVI_PAIR_STEP; i++)
		features[i] = (int16_t)(rng() & 1023);
	for (size_t i = 0; i < KVI_PANEL * 2 * PAIRS; i++)
		coef[i] = (int16_t)(rng() & 31);
	printf("%-7s sums over slots %.1f G products/s\n", k->name,
	       BEST(2.0 * PAIRS * KVI_PANEL * KVI_BLOCK_TOKENS, k->slots.slot_rows(&r)));
}

static void bench_set(const struct kvi_kernels *k, uint32_t isa, const struct real_chunk real[2])
{
	struct kvi_tables model = tables_model();
	size_t all = BENCH_TOKENS * BENCH_CHANNELS / KVI_LANES;
	bench_grid(k, &model, "bf16 order 1 per step", CASE_BF16, BENCH_CHANNELS, 1);
	bench_grid(k, &model, "bf16 order 0 per channel", CASE_BF16, BENCH_CHANNELS / 32, 0);
	bench_grid(k, &model, "bf16 per element", CASE_BF16, all, 0);
	bench_grid(k, &model, "f16 per element", CASE_F16, all, 0);
	bench_grid(k, &model, "e4m3 per element", CASE_E4M3, all, 0);
	tables_free(&model);
	bench_layers(k, false);
	bench_layers(k, true);
	bench_cells(k, false);
	bench_cells(k, true);
	bench_real(k, isa, &real[0]);
	bench_real(k, isa, &real[1]);
	bench_sym(k);
	bench_moves(k);
	bench_rotation(k);
	bench_rows(k);
}

/* The clock, by additions that each wait for the one before. */
static void print_clock(void)
{
#if defined(__x86_64__)
	enum { MANY = 1000000 };
	uint64_t x = 0;
	printf("clock %.2f GHz\n",
	       BEST(8 * MANY, for (int i = 0; i < MANY; i++) __asm__ volatile(
				      "add $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\t"
				      "add $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0"
				      : "+r"(x))));
#endif
}

int main(int argc, char **argv)
{
	const bool all = argc < 2 || !strcmp(argv[1], "all");
	const uint32_t available = kvarc_isa_available();
	struct real_chunk real[2] = { { .x = NULL } };
	if (argc > 2)
		load_chunks(argv[2], real);
	else
		make_chunks(real);
	for (int i = 0; i < CASE_ISAS; i++) {
		const struct kvi_kernels *k = kvi_kernels_get(case_isas[i]);
		if (available & case_isas[i] && (all || !strcmp(argv[1], k->name)))
			bench_set(k, case_isas[i], real);
	}
	print_clock();
	free(real[0].x);
	free(real[1].x);
	return 0;
}
