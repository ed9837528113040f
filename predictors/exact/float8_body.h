/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * float8_body.h - products of floats and e4m3 weights, for vectors of any instruction set
 *
 * A lane is a row of the weights and keeps one sum, whose terms come column by column: any number
 * of lanes gives the same bits. The weights of some columns of a tile's blocks are made floats
 * once, in the first cache, while all rows of the activations pass.
 *
 * After matmul_body.h's vectors and v_bytes (LANES bytes as 32-bit integers).
 */

enum { FLOAT_COLUMNS = 4096 / (TILE_VECTORS * LANES) };

/* Converts E4M3 to floats without subnormals of fp32, which are slow. */
KERNEL vflt f_e4m3(const uint8_t *p)
{
	const vint b = v_bytes(p), m = b & 0x7f;
	const vint large = (m << 20) + (120 << 23);
	const vint small = (vint)f_mul(f_of(m), f_set(0x1p-9f));
	const vint is_small = (vint)(m < 8);

	return (vflt)((small & is_small) | (large & ~is_small) | (b & 0x80) << 24);
}

/* A part of the columns, with its weights as floats. */
struct float_part {
	const struct kvi_product *p;
	size_t block, column, columns;
	float w[FLOAT_COLUMNS * TILE_VECTORS * LANES] __attribute__((aligned(64)));
};

KERNEL void float_tile(const struct float_part *part, size_t row, int rows, int vectors)
{
	const struct kvi_product *p = part->p;
	const bool last = part->column + part->columns == p->w->columns;
	const float *scale = p->w->scale + part->block * ROWS;
	const float *x = p->x + row * p->x_stride + part->column, *w = part->w;
	float *y = p->y + row * p->y_stride + part->block * ROWS;
	vflt acc[TILE_ROWS][TILE_VECTORS];

	UNROLL
	for (int r = 0; r < rows; r++)
		UNROLL
	for (int v = 0; v < vectors; v++)
		acc[r][v] = part->column ? f_load(y + (size_t)r * p->y_stride + v * LANES)
		                         : f_zero();
	for (size_t c = 0; c < part->columns; c++, w += vectors * LANES) {
		vflt of[TILE_VECTORS];
		UNROLL
		for (int v = 0; v < vectors; v++)
			of[v] = f_load(w + v * LANES);
		UNROLL
		for (int r = 0; r < rows; r++) {
			const vflt a = f_set(x[(size_t)r * p->x_stride + c]);
			UNROLL
			for (int v = 0; v < vectors; v++)
				acc[r][v] = f_add(acc[r][v], f_mul(a, of[v]));
		}
	}
	UNROLL
	for (int r = 0; r < rows; r++)
		UNROLL
	for (int v = 0; v < vectors; v++)
		f_store(y + (size_t)r * p->y_stride + v * LANES,
		        last ? f_mul(acc[r][v], f_load(scale + v * LANES)) : acc[r][v]);
}

KERNEL void float_rows(const struct float_part *part, int vectors)
{
	size_t rows = part->p->rows, r = 0;

	for (; rows - r >= TILE_ROWS; r += TILE_ROWS)
		float_tile(part, r, TILE_ROWS, vectors);
	if (TILE_ROWS > 4 && rows - r >= 4) {
		float_tile(part, r, 4, vectors);
		r += 4;
	}
	for (; r < rows; r++)
		float_tile(part, r, 1, vectors);
}

static FUNCTION void float_block(const struct float_part *part)
{
	float_rows(part, ROWS / LANES);
}

#if TILE_BLOCKS > 1
static FUNCTION void float_blocks(const struct float_part *part)
{
	float_rows(part, TILE_VECTORS);
}
#endif

/* The part's weights, column by column through all its blocks. */
static FUNCTION void make_floats(struct float_part *part, size_t blocks)
{
	const struct kvi_operand *w = part->p->w;

	for (size_t b = 0; b < blocks; b++) {
		const uint8_t *from = w->e4m3 +
		                      ((part->block + b) * w->columns + part->column) * ROWS;
		float *to = part->w + b * ROWS;
		for (size_t c = 0; c < part->columns; c++, to += blocks * ROWS, from += ROWS) {
			UNROLL
			for (int i = 0; i < ROWS; i += LANES)
				f_store(to + i, f_e4m3(from + i));
		}
	}
}

static FUNCTION void product_floats(const struct kvi_product *product)
{
	const size_t end = product->first + product->blocks;
	struct float_part t;

	t.p = product;
	for (t.block = product->first; t.block < end;) {
		const size_t blocks = end - t.block < TILE_BLOCKS ? 1 : TILE_BLOCKS;
		for (t.column = 0; t.column < product->w->columns; t.column += t.columns) {
			t.columns = product->w->columns - t.column;
			if (t.columns > FLOAT_COLUMNS)
				t.columns = FLOAT_COLUMNS;
			make_floats(&t, blocks);
#if TILE_BLOCKS > 1
			if (blocks > 1) {
				float_blocks(&t);
				continue;
			}
#endif
			float_block(&t);
		}
		t.block += blocks;
	}
}
