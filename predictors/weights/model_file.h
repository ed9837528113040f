/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_file.h - the weights of a model as they lie in its files: a GGUF, or a folder with
 * config.json and safetensors
 *
 * Files are mapped, not read: matrices point into them. Everything that a file says is
 * checked before it is here: shapes agree with each other, data lie inside the file. The
 * numbers themselves are checked when they are read, because a pass over all of them would
 * read the whole file. Files must not be cut while they are open.
 */
#ifndef KVI_MODEL_FILE_H
#define KVI_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"
#include "util/hash.h"
#include "util/shared.h"

/* Types of numbers: those of ggml have its numbers. */
enum kvi_number_type {
	KVI_NUM_F32 = 0,
	KVI_NUM_F16 = 1,
	KVI_NUM_Q4_0 = 2,
	KVI_NUM_Q4_1 = 3,
	KVI_NUM_Q5_0 = 6,
	KVI_NUM_Q5_1 = 7,
	KVI_NUM_Q8_0 = 8,
	KVI_NUM_Q4_K = 12,
	KVI_NUM_Q5_K = 13,
	KVI_NUM_Q6_K = 14,
	KVI_NUM_IQ4_NL = 20,
	KVI_NUM_BF16 = 30
};

/* A matrix in the file. data NULL: the model has none. A vector has one row, of floats. data need
 * not be aligned. */
struct kvi_matrix {
	uint8_t type;           /* enum kvi_number_type */
	bool transposed;        /* floats only: row r is column r of the file's matrix */
	uint64_t rows, columns; /* outputs, inputs */
	uint64_t stride;        /* transposed: elements of a row of the file's matrix */
	const uint8_t *data;
};

enum kvi_activation { KVI_SILU, KVI_GELU }; /* gelu: the tanh form */

/* The matrices of a layer; a matrix that the architecture does not have has no rows. */
struct kvi_model_layer {
	struct kvi_matrix input_norm, input_norm_bias;
	struct kvi_matrix q, k, v, o, q_bias, k_bias, v_bias, o_bias;
	struct kvi_matrix q_norm, k_norm;       /* norms of a head's channels */
	struct kvi_matrix after_attention_norm; /* norm before the residual is added */
	struct kvi_matrix ffn_norm, ffn_norm_bias;
	struct kvi_matrix gate, up, down, up_bias, down_bias; /* gpt2 has no gate */
	struct kvi_matrix after_ffn_norm;
	uint32_t window; /* sliding: tokens seen, the own one included; 0: all */
	uint8_t rope;    /* index into ropes; unused where n_ropes is 0 */
};

/* Frequencies of a rope as fractions of a full turn a position, times 2^64, multiples of
 * 2^16; the same on every machine (spec/arithmetic.md 10). */
struct kvi_model_rope {
	uint32_t rotary; /* channels of a head that turn, even; 0: none */
	uint64_t *freq;  /* rotary / 2 */
};

/* A model file: its numbers, and where its matrices lie in the mapping. */
struct kvi_model_file {
	const struct kvi_alloc *alloc;
	char arch[32];  /* "llama", "qwen2", "qwen3", "gemma3", "gpt2" */
	char name[128]; /* may be empty */
	uint32_t n_layers, width, heads, kv_heads, head_channels, ffn, vocabulary;
	float norm_epsilon;
	float attention_scale; /* factor of scores: 1 / sqrt(head_channels) unless the file sets
	                        * it */
	float logit_cap;       /* logits are cap * tanh(z / cap); 0: not capped */
	int32_t first_token;   /* id that sequences begin with; -1: the file has none */
	float embedding_scale; /* factor, 1 unless the model has one; a bf16 or f16 number in
	                        * safetensors of that type, as in the model's own code */
	bool layer_norm;       /* mean and bias, as gpt2; else root mean square */
	bool norm_plus_one;    /* norm gains are stored less 1 (gemma in safetensors) */
	bool interleaved;      /* rows of q and k: pairs (2i, 2i + 1); else (i, i + rotary / 2) */
	uint8_t activation;    /* enum kvi_activation */
	struct kvi_matrix embedding, positions; /* vocabulary x width; gpt2's positions */
	struct kvi_matrix output_norm, output_norm_bias;
	struct kvi_matrix output; /* vocabulary x width; the embedding when they are tied. Models
	                           * without an output, or its norm, are good for caches */
	unsigned n_ropes;         /* 0: gpt2. 2: gemma3's, of full and of sliding layers */
	struct kvi_model_rope ropes[2];
	struct kvi_model_layer *layers;
	void *maps; /* mappings of the loader */
};

/*
 * Opens a model. path: a GGUF file, or a folder with config.json and model.safetensors or
 * model.safetensors.index.json with its parts. error->text says in one line what is wrong and, for
 * an architecture or a type that is not known, which are known. Returns OK, MEM, MEMLIMIT, IO,
 * FORMAT (neither of the two), OPTIONS (architecture, type, rope scaling or version that is not
 * known, no JSON library), DATA.
 */
KVI_SHARED kvarc_ret kvi_model_file_open(struct kvi_model_file **file,
                                         const struct kvi_alloc *alloc, const char *path,
                                         kvarc_error *error);
KVI_SHARED void kvi_model_file_close(struct kvi_model_file **file); /* NULL-safe */
/* Names the files and their state: paths, inodes, sizes, times. False: there are none, they have
 * changed since they were opened, or they had just been written then, so that a later change might
 * not show. */
bool kvi_model_file_stamp(const struct kvi_model_file *file, struct kvi_h128 *stamp);

/* Reads row r of a matrix, `columns` floats in fp32: exact for floats, w * s (+ m) for quantised
 * types, each operation rounded. False: a number or scale is not finite. */
KVI_SHARED bool kvi_matrix_row(const struct kvi_matrix *matrix, uint64_t r, float *x);

/* The groups of a quantised type: columns of a group, whether there are minima. group 0: a type of
 * floats, or not known. */
struct kvi_number_groups {
	unsigned group;
	bool minima;
};
/* The groups of a type (enum kvi_number_type). */
KVI_SHARED struct kvi_number_groups kvi_number_groups(unsigned type);
/* Reads row r of a matrix of a quantised type (group is not 0): `columns` integers, and scales and
 * minima by group, exact or rounded once (spec/arithmetic.md 7). minimum is not touched for types
 * without minima. False: a scale or minimum is not finite, and no predictor can be made of the
 * matrix. */
bool kvi_matrix_integers(const struct kvi_matrix *matrix, uint64_t r, int8_t *q, float *scale,
                         float *minimum);

#endif
