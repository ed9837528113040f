/* SPDX-License-Identifier: BSD-3-Clause */
/* near.c - the codec near: a bound on the error of each element */
#include "near.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codecs/grid/grid.h"
#include "codecs/lossy/lossy_codec.h"
#include "codecs/had/had.h"
#include "codecs/lossy/quantiser_scales.h"

/* ==== Elements to codes of the nearest points of a lattice, and back (spec near 2) ==== */

enum { EXPONENT_MAX = 112, F32_LOW = 9, F32_LOWEST = -140 };

/* Codes are in units of 2^F: the smallest normal number of m bits is 2^m. */
static const struct kvi_grid_format formats[] = {
	[KVARC_F32] = { 14, 14, 16, 1, true }, [KVARC_F16] = { 10, 10, 16, 5, true },
	[KVARC_BF16] = { 7, 7, 16, 7, true },  [KVARC_E4M3] = { 3, 3, 8, 11, true },
	[KVARC_E5M2] = { 2, 2, 8, 11, true },
};

/* Exponent of the smallest number of a dtype that has a code of its own. */
static int lowest(unsigned dtype)
{
	const struct kvi_grid_format *f = &kvi_float_format(dtype)->grid;
	return dtype == KVARC_F32 ? F32_LOWEST : f->emin - f->mant_bits;
}

bool kvi_lattice_make(struct kvi_lattice *lattice, unsigned dtype, int exponent)
{
	const struct kvi_float_format *f = kvi_float_format(dtype);
	const int least = lowest(dtype);
	const bool wide = dtype == KVARC_F32;
	if (exponent < least || exponent > EXPONENT_MAX)
		return false;
	/* A field of all ones is infinite or not a number; e4m3 has a single pattern of these. */
	uint32_t beyond = dtype == KVARC_E4M3
	                          ? 0x7f
	                          : ((1u << f->exp_bits) - 1) << formats[dtype].mant_bits;
	*lattice = (struct kvi_lattice){ .fmt = &formats[dtype],
		                         .dtype = dtype,
		                         .size = (unsigned)kvarc_dtype_bytes(dtype),
		                         .exponent = exponent,
		                         .depth = (unsigned)(exponent - least),
		                         .low_bits = wide ? F32_LOW : 0,
		                         .largest = beyond - 1 };
	return true;
}

int kvi_lattice_exponent(unsigned dtype, double most)
{
	uint64_t b;
	memcpy(&b, &most, sizeof b);
	int e = (int)(b >> 52) - 1023 + 1; /* a point serves half a step to each side */
	int least = lowest(dtype);
	return e < least ? least : e > EXPONENT_MAX ? EXPONENT_MAX : e;
}

/* v / 2^bits, 1 to 30 of them, to nearest, ties to even. */
static inline uint32_t rounded(uint32_t v, unsigned bits)
{
	return (v + ((uint32_t)1 << (bits - 1)) - 1 + (v >> bits & 1)) >> bits;
}

/* Codes of n elements; size is a constant. Returns the greatest point. */
static inline uint32_t to_codes(const struct kvi_lattice *lattice, unsigned size,
                                const uint8_t *elements, size_t n, uint16_t *codes)
{
	const unsigned sign_bit = 8 * size - 1;
	const unsigned m = (unsigned)lattice->fmt->mant_bits + lattice->low_bits;
	const unsigned depth = lattice->depth + lattice->low_bits;
	const uint32_t top = 1u << (lattice->fmt->elem_bits - 1);
	const uint32_t one = 1u << m, offset = (uint32_t)depth << m;
	uint32_t most = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t x = kvi_load_element(elements + i * size, size);
		uint32_t neg = x >> sign_bit, abs = x & ((1u << sign_bit) - 1);
		uint32_t field = abs >> m;
		uint32_t full = field ? (abs & (one - 1)) | one : abs;
		unsigned step = field ? field - 1 : 0;
		unsigned bits = step < depth ? depth - step : 1;
		uint32_t point = rounded(full, bits < 30 ? bits : 30);
		point = step < depth ? point : abs - offset;
		most = point > most ? point : most;
		/* Zero has one code: negative codes count from -1. */
		neg = point ? neg : 0;
		codes[i] = (uint16_t)((point - neg) | (neg ? top : 0));
	}
	return most;
}

bool kvi_lattice_codes(const struct kvi_lattice *lattice, const uint8_t *elements, size_t n,
                       uint16_t *codes)
{
	switch (lattice->size) {
	case 1:
		to_codes(lattice, 1, elements, n, codes);
		return true;
	case 2:
		to_codes(lattice, 2, elements, n, codes);
		return true;
	default:
		return to_codes(lattice, 4, elements, n, codes) < 1u << 15;
	}
}

/* Vectors of a fixed size: the same results on every machine. */
enum { SIDE = 4 };
typedef uint32_t lanes __attribute__((vector_size(SIDE * sizeof(uint32_t))));
typedef int32_t numbers __attribute__((vector_size(SIDE * sizeof(int32_t))));
typedef float floats __attribute__((vector_size(SIDE * sizeof(float))));
typedef uint16_t halves __attribute__((vector_size(SIDE * sizeof(uint16_t))));

static inline lanes either(numbers is, lanes yes, lanes no)
{
	return ((lanes)is & yes) | (~(lanes)is & no);
}

/*
 * Elements of codes. Points below 2^m are normal or subnormal numbers of the dtype; binary32 has
 * the mantissa of the normal ones where it is wanted.
 */
static inline lanes to_elements(const struct kvi_lattice *lattice, lanes codes)
{
	const unsigned m = (unsigned)lattice->fmt->mant_bits;
	const unsigned shift = lattice->depth < 16 ? lattice->depth : 16;
	const unsigned sign = (unsigned)lattice->fmt->elem_bits - 1;
	const uint32_t offset = (uint32_t)lattice->depth << m;
	const uint32_t normal = offset - ((m + 126) << m);
	const lanes largest = (lanes){ 0 } + lattice->largest;
	lanes neg = codes >> sign, point = (codes & ((1u << sign) - 1)) + neg;
	lanes subnormal = point << shift;
	floats f = __builtin_convertvector((numbers)point, floats);
	lanes x = ((lanes)f >> (23 - m)) + normal;
	x = either(subnormal >> m != 0, x, subnormal);
	x = either(point >> m != 0, point + offset, x);
	x = either(x < largest, x, largest) << lattice->low_bits;
	return x | neg << (8 * lattice->size - 1);
}

/* The first n <= SIDE lanes. */
static inline void store(lanes x, unsigned size, size_t n, uint8_t *to)
{
	for (size_t i = 0; i < n; i++)
		kvi_store_element(to + i * size, size, x[i]);
}

void kvi_lattice_elements(const struct kvi_lattice *lattice, const uint16_t *codes, size_t n,
                          uint8_t *elements)
{
	const struct kvi_lattice here = *lattice;
	size_t i = 0;
	for (; i + SIDE <= n; i += SIDE) {
		halves c;
		memcpy(&c, codes + i, sizeof c);
		lanes x = to_elements(&here, __builtin_convertvector(c, lanes));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		if (here.size == 2) {
			c = __builtin_convertvector(x, halves);
			memcpy(elements + 2 * i, &c, sizeof c);
			continue;
		}
#endif
		store(x, here.size, SIDE, elements + i * here.size);
	}
	lanes rest = { 0 };
	for (size_t j = i; j < n; j++)
		rest[j - i] = codes[j];
	store(to_elements(&here, rest), here.size, n - i, elements + i * here.size);
}

/* ==== The codec near: a bound on the error of each element, coded as grid (spec near) ==== */

enum { TOKENS_MIN = 8, K_MAX = 400, SPARE_WORDS = 64 };

/* Parameters in units of 2^F, and the lattice that elements are rounded to. */
struct near_work {
	struct kvi_lattice lattice;
	struct kvi_grid_params scaled;
	struct kvi_grid_job grid;
	size_t n;
};

/* Sets up the lattice of an exponent, and the kernels' job in its units. Returns OK, MEM, MEMLIMIT,
 * DATA. */
static kvarc_ret open_work(struct near_work *w, struct kvi_coder *coder,
                           const struct kvi_coder_job *job, int exponent)
{
	const struct kvi_grid_params *p = kvi_grid_params_of(job->params);
	const size_t C = kvi_chunk_channels(job->chunk);
	if (!kvi_lattice_make(&w->lattice, job->chunk->dtype, exponent))
		return KVARC_DATA;
	uint32_t *ctx = kvi_scratch(coder, KVI_SCRATCH_COEFFICIENTS,
	                            C * (sizeof *ctx + sizeof *p->k));
	if (!ctx)
		return kvi_alloc_error(coder->alloc);
	w->scaled = *p;
	w->scaled.ctx = ctx;
	w->scaled.k = (int16_t *)(void *)(ctx + C);
	for (size_t i = 0; i < C; i++) {
		int k = p->k[i] - 4 * exponent;
		w->scaled.k[i] = (int16_t)(k > K_MAX ? K_MAX : k < -K_MAX ? -K_MAX : k);
	}
	kvi_grid_fixed_contexts(&w->scaled, w->lattice.fmt, ctx);
	w->n = kvi_mask_elements(&job->mask);
	return kvi_grid_token_job(coder, job, &w->scaled, w->lattice.fmt, &w->grid);
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	return kvi_grid_params_parse(alloc, KVI_CODEC_NEAR, shape, in, out);
}

static kvarc_ret fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                     struct kvi_params **out)
{
	return job->chunk->n_tokens < TOKENS_MIN
	               ? KVARC_END
	               : kvi_grid_params_fit(coder, KVI_CODEC_NEAR, job, out);
}

/* The greatest error of a chunk; 0: it is all zeros. */
static double bound_of(const struct kvi_coder_job *job)
{
	enum { UNITS = 1000000000 };
	const struct kvi_chunk *chunk = job->chunk;
	const size_t n = kvi_chunk_channels(chunk) * chunk->n_tokens;
	double sum = kvi_lossy_squares(chunk->dtype, job->packed, n);
	int keys = job->request->kind == KVARC_KEY ? job->tier->key_rate : 0;
	return sqrt(sum / (double)n) * (double)job->tier->params.bound.max_error / UNITS *
	       (double)kvi_power_of(-keys);
}

/* Codes of all tokens, and job->decoded; true: some tokens are refused instead. */
static bool analyse(const struct near_work *w, const struct kvi_coder_job *job, uint16_t *codes)
{
	const size_t C = job->mask.C, row = C * w->lattice.size;
	bool refused = false;
	for (size_t t = 0; t < job->mask.T; t++) {
		job->refused[t] = !kvi_lattice_codes(&w->lattice, job->packed + t * row, C,
		                                     codes + t * C);
		refused = refused || job->refused[t];
	}
	if (!refused)
		kvi_lattice_elements(&w->lattice, codes, w->n, job->decoded);
	return refused;
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct near_work w;
	const double most = bound_of(job);
	if (!(most > 0))
		return KVARC_END;
	kvarc_ret ret = open_work(&w, coder, job, kvi_lattice_exponent(job->chunk->dtype, most));
	if (ret)
		return ret;
	uint16_t *codes = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, w.n * sizeof *codes);
	uint16_t *lane = kvi_scratch(coder, KVI_SCRATCH_PLANE, w.n * sizeof *lane);
	uint8_t *end = kvi_scratch_end(coder, KVI_SCRATCH_OUT,
	                               KVI_STREAM_HEAD + 2 * (KVI_GRID_WORDS * w.n + SPARE_WORDS));
	uint32_t state[KVI_LANES];
	if (!codes || !lane || !end)
		return kvi_alloc_error(coder->alloc);
	out->refused = analyse(&w, job, codes);
	if (out->refused)
		return KVARC_OK;
	kvi_lanes_to16(&job->lanes, codes, lane);
	size_t words = coder->kernels->coding.grid_encode(&w.grid, lane, (uint16_t *)(void *)end,
	                                                  state);
	uint8_t *begin = kvi_stream_put(end, words, state);
	kvi_put16(out->body, (uint16_t)(int16_t)w.lattice.exponent);
	kvi_put_bytes(out->body, begin, (size_t)(end - begin));
	return KVARC_OK;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct near_work w;
	struct kvi_stream s;
	int exponent = (int16_t)kvi_get16(in);
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	kvarc_ret ret = open_work(&w, coder, job, exponent);
	if (ret)
		return ret;
	uint16_t *codes = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, w.n * sizeof *codes);
	uint16_t *lane = kvi_scratch(coder, KVI_SCRATCH_PLANE, w.n * sizeof *lane);
	if (!codes || !lane)
		return kvi_alloc_error(coder->alloc);
	if (!coder->kernels->coding.grid_decode(&w.grid, &s, lane))
		return KVARC_DATA;
	kvi_lanes_from16(&job->lanes, lane, codes);
	kvi_lattice_elements(&w.lattice, codes, w.n, job->decoded);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_near = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = kvi_grid_params_serialise,
	.fit = fit,
	.encode = encode,
	.decode = decode,
};
