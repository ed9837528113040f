/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exact_job.h - input of the kernels of the exact engine (spec/arithmetic.md): C for callers, C++
 * for kernels
 *
 * Addresses are of device memory (of host memory where kernels run on the host), multiples of 16;
 * all of it is the caller's. Numbers are fp32, rows of them row after row, strides in numbers. No
 * array has 2^32 numbers or bytes.
 *
 * Integers of an operand are bytes. A group begins at a step of 32 columns, two steps are a chunk,
 * a row has whole chunks: `stride` bytes. What no column has is 0 in weights; in activations it may
 * be anything.
 *
 * All lie in pieces of 512 bytes, 16 a lane, which are operands of tensor cores. A piece of
 * weights, keys or values is a chunk of 8 rows: of row r and column c byte
 * 64 * r + 16 * (c % 32 / 8) + 8 * (c / 32) + c % 8. One of activations or queries is a step of
 * 16 rows: byte 64 * (r % 8) + 16 * (c / 8) + 8 * (c % 8 / 4) + 4 * (r / 8) + c % 4. Rows are in
 * tiles, 64 of weights and keys, 32 of activations and queries; a tile has the pieces of all its
 * rows, then those of the next chunk or step.
 *
 * Integers of more bits are two such matrices, the high one first: of W15 its planes, of A12, A15
 * and W12 the limbs x >> 7 and x & 127.
 */
#ifndef KVI_GPU_EXACT_JOB_H
#define KVI_GPU_EXACT_JOB_H

#include <stdint.h>

/* Sizes of operands: rows of both are whole tiles. */
enum {
	KVI_GPU_CHUNK_BYTES = 64,
	KVI_GPU_STEP_COLUMNS = 32,
	KVI_GPU_TILE_ROWS = 32,    /* of activations */
	KVI_GPU_TILE_OUTPUTS = 64, /* of weights */
	KVI_GPU_QUERY_ROWS = 16,   /* a tile of attention */
	KVI_GPU_KEY_BLOCK = 256    /* tokens of a block of attention (spec/arithmetic.md 6) */
};

#if defined(__CUDACC__)
#define KVI_GPU_BOTH static __host__ __device__ inline
#else
#define KVI_GPU_BOTH static inline
#endif

/* Where a tile of activations has the numbers of row r, r below KVI_GPU_TILE_ROWS. */
KVI_GPU_BOTH uint32_t kvi_gpu_row_at(uint32_t r)
{
	return r % 8 * 4 + r / 8;
}
/* Where a tile of weights has those of output n, n below KVI_GPU_TILE_OUTPUTS. */
KVI_GPU_BOTH uint32_t kvi_gpu_output_at(uint32_t n)
{
	return n % 8 / 2 * 16 + n / 8 * 2 + n % 2;
}

/* Makes integers of rows of numbers. A token has `parts` rows of `columns` numbers one after the
 * other; that of a part becomes row part * part_rows + token. */
struct kvi_gpu_quantise {
	uint64_t x;
	uint64_t to[2]; /* the second 0: integers of 8 bits */
	uint64_t scale; /* a number a row; of groups: tile, group, kvi_gpu_row_at */
	uint64_t sum;   /* i32 of groups, as scales of groups; 0: not wanted, as of one group */
	uint32_t tokens, parts, x_stride, columns;
	uint32_t group; /* 16, 32, 64, 128 or 256; where there is one, any multiple of 32 */
	uint32_t stride, part_rows; /* part_rows: whole tiles */
	uint32_t largest;           /* magnitude */
	uint32_t row_scale;         /* a scale a row, not a group */
	uint32_t keys;              /* pieces are those of keys, not of activations */
	uint32_t planes;            /* of W15, not limbs */
	uint32_t finite;            /* what is not finite is taken as 0 */
};

/* Integers of values for attention, W8 or W15, a token a column: block after block of a head of
 * keys 8 of v_rows rows (channels), then of these the chunks of KVI_GPU_KEY_BLOCK tokens. Tokens of
 * a step are ordered as tensor cores return scores (value_token of exact_quantise_body.h). */
struct kvi_gpu_values {
	uint64_t x;
	uint64_t to[2]; /* the second 0: W8 */
	uint64_t scale; /* by head and token, in whole blocks */
	uint32_t tokens, heads, channels, x_stride;
	uint32_t v_rows, blocks;
};

/* y = W a (+ bias) (spec/arithmetic.md 3). */
struct kvi_gpu_product {
	uint64_t a[2], a_scale, a_sum; /* of kvi_gpu_quantise; row_scale where there are limbs */
	uint64_t w[2];
	uint64_t w_scale;   /* tile, group, kvi_gpu_output_at */
	uint64_t w_minimum; /* the same; 0: none */
	uint64_t bias;      /* 0: none */
	uint64_t y;
	uint32_t rows, outputs;
	uint32_t group, groups, stride; /* of rows of both; stride in bytes */
	uint32_t y_stride;
};

/* Rows of tables: y = row of the token's id * scale, plus the row of its position where the model
 * has such rows (spec/arithmetic.md 8). */
struct kvi_gpu_embed {
	uint64_t table, ids;              /* rows of `columns` numbers; i32 below `rows` */
	uint64_t positions, position_ids; /* the same of positions; 0: none */
	uint64_t y;
	uint32_t tokens, columns, y_stride;
	uint32_t rows, position_rows; /* of the tables */
	float scale;
};

/* Norms of rows, `parts` of a token (spec/arithmetic.md 4); y may be x. */
struct kvi_gpu_norm {
	uint64_t x, y;
	uint64_t gain, bias; /* bias 0: root mean square */
	uint64_t root;       /* a number a row; 0: not wanted */
	uint32_t tokens, parts, columns;
	uint32_t x_stride, y_stride; /* from token to token */
	float epsilon;
};

/* RoPE on heads of channels in slots, in place (spec/arithmetic.md 5). */
struct kvi_gpu_rotate {
	uint64_t x;
	uint64_t turn; /* i16 cosine and sine: by pair and token, `capacity` tokens a pair */
	uint32_t tokens, heads, channels, pairs;
	uint32_t x_stride, capacity;
};

/* Operations on the numbers of rows, one by one. */
enum kvi_gpu_elementwise {
	KVI_GPU_SILU, /* x = silu(x) * y, or silu(x) */
	KVI_GPU_GELU,
	KVI_GPU_ADD /* x = x + y */
};
/* See kvi_gpu_elementwise. */
struct kvi_gpu_rows {
	uint64_t x, y; /* y 0: there is none */
	uint32_t operation;
	uint32_t tokens, columns, x_stride, y_stride;
};

/* Attention of all tokens (spec/arithmetic.md 6): rows of q are those of a head of queries, those
 * of k those of a head of keys. */
struct kvi_gpu_attention {
	uint64_t q[2], q_scale;
	uint64_t k[2], k_scale;
	uint64_t v[2], v_scale; /* of kvi_gpu_values */
	uint64_t o;             /* heads of a token one after the other */
	uint32_t tokens, heads, kv_heads, channels;
	uint32_t stride;         /* bytes of a row of q and k */
	uint32_t q_rows, k_rows; /* of a head: whole tiles, whole blocks */
	uint32_t v_rows, o_stride;
	uint32_t window;  /* 0: none */
	uint32_t twelve;  /* queries and keys are A12 and W12 */
	uint32_t largest; /* of probabilities */
	float scale;
};

/* Numbers of memory of 4 bytes that a lane of attention needs: shared memory on a GPU. */
KVI_GPU_BOTH uint32_t kvi_gpu_attention_numbers(uint32_t v_rows)
{
	return KVI_GPU_KEY_BLOCK / 2 + v_rows / 2;
}

#endif
