/* SPDX-License-Identifier: BSD-3-Clause */
/* ggml_types.h - element and block types of llama.cpp caches, split into planes */
#ifndef KVI_GGML_TYPES_H
#define KVI_GGML_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/restore.h"
#include "kvarc.h"

/* Most fields of a block type. */
enum { KVI_GGML_PLANES_MAX = 4 };

/* A field of a block: `elems` elements of `dtype`, `offset` bytes into it. */
struct kvi_ggml_plane {
	uint8_t role;  /* kvarc_role */
	uint8_t dtype; /* kvarc_dtype */
	uint8_t offset;
	uint8_t elems;
};

/* A block type of ggml: its size and its fields. */
struct kvi_ggml_type {
	int32_t type; /* number in a llama.cpp file */
	const char *name;
	uint8_t block_elems; /* tensor elements of one block */
	uint8_t block_bytes;
	uint8_t n_planes;
	struct kvi_ggml_plane planes[KVI_GGML_PLANES_MAX];
};

/* NULL for a type that no cache uses. */
const struct kvi_ggml_type *kvi_ggml_type(int32_t type);
/* The plane of the elements themselves: their payload, or the only one. */
uint8_t kvi_ggml_payload(const struct kvi_ggml_type *type);

/* A run of rows of `width` elements of one type; trans: of channels of n_cells elements. */
struct kvi_ggml_rows {
	uint32_t width, n_cells;
	uint64_t row_bytes; /* trans: of one element */
	bool trans;
};
/* The view of a plane of the rows; its tensor is not set. */
struct kvi_area_view kvi_ggml_view(const struct kvi_ggml_type *type,
                                   const struct kvi_ggml_plane *plane,
                                   const struct kvi_ggml_rows *rows);

#endif
