/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layers.h - kernels of codec layers: values in codes of 2 bits, planes of the rest (spec layers)
 *
 * Kernels are pure, for any thread, and all memory is the caller's. Scalar C is the definition;
 * every set of instructions gives the same bytes, and the same answer for damaged input.
 */
#ifndef KVI_LAYERS_H
#define KVI_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes that the format fixes (spec layers 2, 3), and what kernels need. */
enum {
	KVI_LAYERS_N = 4,       /* layers */
	KVI_LAYERS_BLOCK = 256, /* codes of a block */
	KVI_LAYERS_BYTE = 12,   /* the first value that no layer has */
	KVI_LAYERS_PLANES = 3,  /* most planes of the rest */
	KVI_LAYERS_SLACK = 384, /* bytes that kernels may write behind the end of values that they
	                         * make, and read behind values and tops that they take */
	KVI_TOPS_AT_ONCE = 32,  /* channels of kvi_layer_kernels.top_costs */
	KVI_TOPS_TRIED = 4,     /* tops that it compares */
	KVI_TOPS_ROWS = 64      /* most rows that it takes */
};

/* Bytes of a plane of n codes of `bits` bits. */
static inline size_t kvi_layers_plane(size_t n, unsigned bits)
{
	return n / KVI_LAYERS_BLOCK * (KVI_LAYERS_BLOCK / 8 * bits) +
	       (n % KVI_LAYERS_BLOCK * bits + 7) / 8;
}

/* Bytes of work memory for kernels that take or make n values. */
static inline size_t kvi_layers_work(size_t n)
{
	return 4 * (n + KVI_LAYERS_SLACK);
}

/* Values in layers that are read. The caller has checked that no n is larger than the one in front
 * of it, that padding is zero, and the bytes. */
struct kvi_layers_in {
	size_t n[KVI_LAYERS_N + 1];         /* codes of each layer; bytes */
	const uint8_t *layer[KVI_LAYERS_N]; /* kernels read no byte behind a plane */
	const uint8_t *bytes;
	uint8_t *work; /* kvi_layers_work(n[0]) */
};
/* Planes of the rest of n[0] elements, from low bits to high; kernels read no byte behind them. */
struct kvi_layers_rest {
	const uint8_t *plane[KVI_LAYERS_PLANES];
};
/* Tops of the channels of token-major elements: `channels` of them, then KVI_LAYERS_SLACK more, in
 * which the channels go on from the first one. Decoders take tops less 2, modulo 256. */
struct kvi_layers_tops {
	const uint8_t *top;
	size_t channels;
};
/* Values in layers that are written: the five parts from `to` on, which may be overwritten up to
 * KVI_LAYERS_SLACK behind their end. */
struct kvi_layers_out {
	uint8_t *to;
	uint32_t count[KVI_LAYERS_N]; /* set: codes of layers 2, 3 and 4, and bytes */
	uint8_t *work;                /* kvi_layers_work of the number of values */
};

/* Kernels of codec layers. */
struct kvi_layer_kernels {
	/* Values less 2, modulo 256, to `values`, n[0] bytes and KVI_LAYERS_SLACK more. This call
	 * and the next two: false where a layer does not have as many codes 3 as the next one has
	 * codes; what was written is undefined then. */
	bool (*get)(const struct kvi_layers_in *in, uint8_t *values);
	/* n[0] elements of bf16; nothing is written behind them. */
	bool (*get_bf16)(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
	                 const struct kvi_layers_tops *tops, uint16_t *elements);
	/* n[0] elements of f16; nothing is written behind them. */
	bool (*get_f16)(const struct kvi_layers_in *in, const struct kvi_layers_rest *rest,
	                const struct kvi_layers_tops *tops, uint16_t *elements);
	/* n values, readable for KVI_LAYERS_SLACK behind them. Returns the end of what was
	 * written. */
	uint8_t *(*put)(const uint8_t *values, size_t n, struct kvi_layers_out *out);
	/* n elements of bf16: the plane of their rest to plane[0], their values. Nothing is written
	 * behind the plane. Returns the end of the values. */
	uint8_t *(*put_bf16)(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
	                     uint8_t *const plane[KVI_LAYERS_PLANES], struct kvi_layers_out *out);
	/* n elements of f16: three planes, their values. Nothing is written behind a plane. Returns
	 * the end of the values. */
	uint8_t *(*put_f16)(const uint16_t *elements, size_t n, const struct kvi_layers_tops *tops,
	                    uint8_t *const plane[KVI_LAYERS_PLANES], struct kvi_layers_out *out);
	/*
	 * Bits, divided by two, of `rows` exponents of each of KVI_TOPS_AT_ONCE channels with the
	 * tops first[channel] + 0 to KVI_TOPS_TRIED - 1, modulo mask + 1 (spec layers 5). Rows are
	 * `row` bytes apart.
	 */
	void (*top_costs)(const uint8_t *exponents, size_t rows, size_t row,
	                  const uint8_t first[KVI_TOPS_AT_ONCE], uint8_t mask,
	                  uint16_t cost[KVI_TOPS_TRIED][KVI_TOPS_AT_ONCE]);
};

/* The kernels of portable C. */
extern const struct kvi_layer_kernels kvi_scalar_layers;
#if defined(KVI_AVX2)
extern const struct kvi_layer_kernels kvi_avx2_layers;
/* kvi_layer_kernels.top_costs; serves AVX-512, too. */
void kvi_avx2_top_costs(const uint8_t *exponents, size_t rows, size_t row,
                        const uint8_t first[KVI_TOPS_AT_ONCE], uint8_t mask,
                        uint16_t cost[KVI_TOPS_TRIED][KVI_TOPS_AT_ONCE]);
#endif
#if defined(KVI_AVX512)
/* AVX-512 with VBMI2. */
extern const struct kvi_layer_kernels kvi_vbmi_layers;
#endif
#if defined(KVI_NEON)
extern const struct kvi_layer_kernels kvi_neon_layers;
#endif

#endif
