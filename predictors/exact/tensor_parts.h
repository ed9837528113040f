/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tensor_parts.h - what an engine has of each layer of a model, and how it lies in memory
 *
 * The same parts are made of a model's file (engine.c) and found in a file of converted weights
 * (kept_file.c); model and arithmetic alone decide which there are and how large.
 */
#ifndef KVI_TENSOR_PARTS_H
#define KVI_TENSOR_PARTS_H

#include "engine_internal.h"

/* How the rows of a matrix of queries or keys are found: by slots of heads. */
struct kvi_row_order {
	uint32_t head_channels; /* 0: as they are */
	uint32_t rotary;
	bool interleaved;
};

/* A matrix of a layer and where the engine keeps it. */
struct kvi_engine_part {
	const char *name; /* for messages */
	const struct kvi_matrix *from;
	struct kvi_row_order order;
	enum kvi_matrix_kind kind;   /* of operands */
	struct kvi_operand *operand; /* one of the two */
	float **vector;
	float plus; /* is added to all of a vector */
};

/* Parts of a layer that the model has, in the order of the digest; how many. */
enum { KVI_LAYER_PARTS = 21 };
/* Lists the matrices of a layer; returns their number. */
size_t kvi_engine_parts(struct kvi_engine *engine, uint32_t layer,
                        struct kvi_engine_part parts[KVI_LAYER_PARTS]);

/* How a matrix is laid out in memory. */
struct kvi_part_form {
	size_t bytes;           /* a multiple of 64 */
	unsigned group, planes; /* 0: a vector, or E4M3 */
	bool minima, e4m3;
};
/* False: overflow. */
bool kvi_engine_part_form(const struct kvi_engine *engine, const struct kvi_engine_part *part,
                          struct kvi_part_form *form);
/* The part is what lies there, 64-byte aligned. */
void kvi_engine_part_at(const struct kvi_engine_part *part, const struct kvi_part_form *form,
                        const void *memory);

#endif
