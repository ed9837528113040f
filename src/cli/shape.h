/* SPDX-License-Identifier: BSD-3-Clause */
/* shape.h - what an archive holds, layer by layer, and what that costs */
#ifndef KVARC_CLI_SHAPE_H
#define KVARC_CLI_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

/* Kinds of tensors: index of shape_layer.cells. */
enum { SHAPE_KEY, SHAPE_VALUE, SHAPE_OTHER, SHAPE_KINDS };
enum { SHAPE_CODECS = 32 }; /* the last one counts those not known */

/* The tensors of one kind in one layer. */
struct shape_cell {
	const kvarc_tensor *tensor; /* the first one, NULL: there is none */
	bool mixed;                 /* tensors differ in type or shape */
	uint64_t elements, raw_bytes, frame_bytes;
	uint64_t codecs[SHAPE_CODECS];         /* chunks by codec */
	uint64_t exact_chunks, exact_elements; /* predicted bit for bit */
	uint64_t lossy_chunks, lossy_elements; /* changed by a tier */
	unsigned generation;                   /* highest generation of these */
};

/* The cells of one layer. */
struct shape_layer {
	uint32_t layer;
	struct shape_cell cells[SHAPE_KINDS];
};

/* Contents and sizes of an archive. geometry and tensors live in the reader. */
struct shape {
	kvarc_info info;
	const kvarc_geometry *geometry;
	struct shape_layer *layers; /* ascending */
	size_t n_layers;
	uint64_t tokens;         /* tokens of the longest track */
	uint64_t track_tokens;   /* sum of all tracks */
	uint64_t dropped;        /* tokens; elements and raw bytes count them, too */
	uint64_t chunk_bytes;    /* frames of all chunks */
	struct shape_cell total; /* sums over all layers and kinds */
};

/* Fills shape from all chunks of an archive whose source can seek. Returns OK, the code of the
 * reader, or MEM; on failure nothing is left to free. */
kvarc_ret shape_make(struct shape *shape, kvarc_reader *r);
/* Releases the layers. */
void shape_free(struct shape *shape);

/* Whether a predictor is needed for some chunks of a cell. */
bool shape_is_predicted(const struct shape_cell *cell);
/* Bits per element; -1 when there are no elements. */
double shape_bits(uint64_t bytes, uint64_t elements);
/* Bytes of all inputs: tensors and the bytes around them. */
uint64_t shape_raw_bytes(const struct shape *shape);
/* "grid", "grid+raw": the codecs of a cell, most chunks first. */
void shape_codecs(char *out, size_t size, const struct shape_cell *cell);
/* Writes the lossy codecs of a cell, as shape_codecs does. */
void shape_tiers(char *out, size_t size, const struct shape_cell *cell);
/* "bf16", "q8_0": the element type as its source called it. */
const char *shape_dtype(const kvarc_tensor *tensor);
/* The kind of a tensor: SHAPE_KEY, SHAPE_VALUE or SHAPE_OTHER. */
unsigned shape_kind(const kvarc_tensor *tensor);
/* "key", "value" or the like, for SHAPE_KEY ... */
const char *shape_kind_name(unsigned kind);

#endif
