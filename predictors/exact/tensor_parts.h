/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tensor_parts.h - what an engine has of each layer of a model, and how it lies in memory
 *
 * The same parts are made of a model's file (engine.c) and found in a file of converted weights
 * (weight_cache.c); model and arithmetic alone decide which there are and how large.
 */
#ifndef KVI_TENSOR_PARTS_H
#define KVI_TENSOR_PARTS_H

#include "engine_internal.h"

/* Order of the rows of a matrix of queries or keys: by slots of heads. */
struct kvi_row_order {
	uint32_t head_channels; /* 0: order of the file */
	uint32_t rotary;
	bool interleaved;
};

/* A matrix of a layer and its destination in the engine. */
struct kvi_engine_part {
	const char *name; /* name for messages */
	uint32_t number;  /* number in the digest */
	const struct kvi_matrix *from;
	struct kvi_row_order order;
	enum kvi_matrix_kind kind;   /* kind of operands */
	struct kvi_operand *operand; /* operand or vector is set */
	float **vector;
	float plus; /* added to all numbers of a vector */
};

/* Most parts of a layer. */
enum { KVI_LAYER_PARTS = 21 };
/* Matrices in front of the first layer: the embedding and the positions. */
enum { KVI_EMBEDDINGS = 2 };
/* Number of part `index` of a layer in the digest; behind the last layer those of the head. */
static inline uint32_t kvi_engine_part_number(uint32_t layer, uint32_t index)
{
	return KVI_EMBEDDINGS + KVI_LAYER_PARTS * layer + index;
}
/* Lists the parts of a layer that the model has, in the order of the digest; returns their
 * number. */
size_t kvi_engine_parts(struct kvi_engine *engine, uint32_t layer,
                        struct kvi_engine_part parts[KVI_LAYER_PARTS]);

/* The layout of a part in memory. */
struct kvi_part_form {
	size_t bytes;           /* a multiple of 64 */
	unsigned group, planes; /* 0: a vector, or E4M3 */
	bool minima, e4m3;
};
/* Computes the layout of a part. False: overflow. */
bool kvi_engine_part_form(const struct kvi_engine *engine, const struct kvi_engine_part *part,
                          struct kvi_part_form *form);
/* Points the part's operand or vector to memory, 64-byte aligned, that holds it. */
void kvi_engine_part_at(const struct kvi_engine_part *part, const struct kvi_part_form *form,
                        const void *memory);

#endif
