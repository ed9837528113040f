/* SPDX-License-Identifier: BSD-3-Clause */
/* matmul_tile.h - numbers of matmul_body.h's tiles; after LANES, TILE_ROWS and TILE_BLOCKS */
#ifndef KVI_MATMUL_TILE_H
#define KVI_MATMUL_TILE_H

#include <string.h>

#include "matmul.h"
#include "util/unroll.h"

/* Sizes of a tile; LANES, TILE_ROWS and TILE_BLOCKS are the includer's. */
enum {
	ROWS = KVI_OPERAND_ROWS,
	QUAD = KVI_OPERAND_QUAD,
	STEP = ROWS * QUAD, /* weights of a quad of a block */
	TILE_VECTORS = TILE_BLOCKS * ROWS / LANES,
	PART_BYTES = 768,
	PART_WIDE = 256 /* columns; at least KVI_GROUP_MAX */
};

/* Pragmas for loops over vectors that are to stay in registers. */
#if defined(KVI_SANITIZED)
#define UNROLL
#define UNROLL_QUADS
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_QUADS _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_QUADS _Pragma("GCC unroll 4")
#endif

#endif
