/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * matmul_body.h - exact products tile by tile, for vectors of any instruction set
 *
 * A tile is a few rows of activations by a few blocks of outputs; its integers stay
 * in registers over a group, and its fp32 sums over the groups of a part of the
 * columns. Between parts the sums are in y. The weights of a part of some blocks stay
 * in the first cache while all rows pass.
 *
 * Included once for each set, after
 *   FUNCTION, KERNEL           attributes of functions, and of those that must be inlined
 *   TILE_ROWS, TILE_BLOCKS     the largest tile
 *   LANES                      numbers of a vector
 *   matmul_tile.h
 *   vint: v_zero
 *   vflt: f_zero, f_load, f_store, f_set, f_add, f_mul, f_fma (a * b + c, rounded once),
 *   f_of (of integers), f_int (of an integer in memory, in all lanes)
 *   dots_wide                  integers += 16-bit activations * weights
 *   widen_weights              weights for it
 * and, with KVI_BYTE_DOTS, dots_bytes (integers += activations * weights, all bytes) and v_start
 * (what these integers begin with, from the sums of the weights in memory); without it,
 * widen_bytes. With KVI_LIMBS, split_words (of 16-bit activations, two bytes for dots_wide) in
 * place of widen_weights.
 */

/* Multiplications of integers: bytes by bytes; 16 bits by bytes; 16 bits by 16 bits, where enough
 * rows follow that widening the weights of a part first pays (not with limbs, which are bytes). */
enum form { BYTES, WIDE, WIDENED };

/* The operands of a part, and of the tiles' blocks. */
struct part {
	const struct kvi_product *p;
	enum form form;
	size_t block, group; /* first block and group */
	size_t quad, quads;
	const void *w[2]; /* weights of the first block, at `quad` */
	size_t w_stride;  /* distance from a block to the next */
	float acc[TILE_ROWS][TILE_VECTORS * LANES] __attribute__((aligned(64)));
};

/* Minima of the blocks, and sums of the activations of the first row. */
struct minima {
	vflt m[TILE_VECTORS];
	const int32_t *sum;
};

/* acc = fma(integers, sa * sw, acc), or fma(integers, sw, acc) where sa is NULL; then, where there
 * are minima, acc = fma(sums of the activations, sa * minima, acc) likewise. */
KERNEL void scale_group(float (*acc)[TILE_VECTORS * LANES],
                        const vint sums[TILE_ROWS][TILE_VECTORS], const vflt sw[TILE_VECTORS],
                        const float *sa, const struct minima *minima, size_t groups, int rows,
                        int vectors)
{
	UNROLL
	for (int r = 0; r < rows; r++) {
		const vflt a = sa ? f_set(sa[(size_t)r * groups]) : f_zero();
		const vflt sum = minima ? f_int(minima->sum + (size_t)r * groups) : f_zero();
		UNROLL
		for (int v = 0; v < vectors; v++) {
			float *to = acc[r] + v * LANES;
			vflt x = f_fma(f_of(sums[r][v]), sa ? f_mul(a, sw[v]) : sw[v], f_load(to));
			if (minima)
				x = f_fma(sum, sa ? f_mul(a, minima->m[v]) : minima->m[v], x);
			f_store(to, x);
		}
	}
}

/* Activations of rows from `row`; a is at the part's first quad, stride its rows' distance. */
KERNEL void tile(struct part *part, const void *a, size_t a_stride, size_t row, int rows,
                 int blocks, enum form form)
{
	const struct kvi_product *p = part->p;
	const struct kvi_operand *w = p->w;
	const int vectors = blocks * ROWS / LANES;
	const size_t all = kvi_operand_groups(w), stride = all * ROWS;
	const size_t group_quads = w->group / QUAD;
	/* whether the scales of the activations are of groups, else of rows */
#if defined(KVI_BYTE_DOTS)
	const bool grouped = form == BYTES;
#else
	const bool grouped = !p->a->wide;
#endif
	const bool last = part->quad + part->quads == kvi_quads(w->columns);
	const float *scale = p->a->scale + (grouped ? row * all + part->group : row);
	const int32_t *a_sum = p->a->sum + row * all + part->group;
	float *y = p->y + row * p->y_stride + part->block * ROWS;
	size_t at = (part->block * all + part->group) * ROWS;
	float(*acc)[TILE_VECTORS * LANES] = part->acc;

	/* the next tile's rows are fetched: nothing else would, where they are far apart */
	const size_t ahead = row + 2 * (size_t)rows <= p->a->rows ? (size_t)rows : 0;

	UNROLL
	for (int r = 0; r < rows; r++)
		UNROLL
	for (int v = 0; v < vectors; v++) {
		f_store(acc[r] + v * LANES,
		        part->group ? f_load(y + (size_t)r * p->y_stride + v * LANES) : f_zero());
		if (v * LANES % ROWS == 0)
			__builtin_prefetch(y + ((size_t)r + ahead) * p->y_stride + v * LANES, 1);
	}
	for (size_t q = 0; q < part->quads; q += group_quads, at += ROWS, a_sum++) {
		const float *sa = grouped ? scale + q / group_quads : NULL;
		size_t n = part->quads - q < group_quads ? part->quads - q : group_quads;
		if (form == BYTES) {
			UNROLL
			for (int r = 0; r < rows; r++)
				__builtin_prefetch((const uint8_t *)a + q * QUAD +
				                   ((size_t)r + ahead) * a_stride);
		}
		for (unsigned i = 0; i < w->planes; i++) {
			const float up = i + 1 < w->planes ? 128.0f : 1.0f;
			vint sums[TILE_ROWS][TILE_VECTORS];
			vflt sw[TILE_VECTORS];
			UNROLL
			for (int v = 0; v < vectors; v++) {
				size_t place = at + (size_t)(v * LANES / ROWS) * stride +
				               v * LANES % ROWS;
#if defined(KVI_BYTE_DOTS)
				vint start = form == BYTES ? v_start(w->sum[i] + place) : v_zero();
#else
				vint start = v_zero();
#endif
				sw[v] = f_mul(f_set(up), f_load(w->scale + place));
				UNROLL
				for (int r = 0; r < rows; r++)
					sums[r][v] = start;
			}
#if defined(KVI_BYTE_DOTS)
			if (form == BYTES)
				dots_bytes(sums, (const uint8_t *)a + q * QUAD, a_stride,
				           (const int8_t *)part->w[i] + q * STEP, part->w_stride, n,
				           rows, vectors);
			else
#endif
				dots_wide(sums, (const int16_t *)a + q * QUAD, a_stride,
				          (const char *)part->w[i] +
				                  q * STEP * (form == WIDENED ? 2 : 1),
				          part->w_stride, n, rows, vectors, form == WIDENED);
			if (!w->minimum || i + 1 < w->planes) {
				scale_group(acc, sums, sw, sa, NULL, all, rows, vectors);
				continue;
			}
			struct minima minima = { .sum = a_sum };
			UNROLL
			for (int v = 0; v < vectors; v++)
				minima.m[v] = f_load(w->minimum + at +
				                     (size_t)(v * LANES / ROWS) * stride +
				                     v * LANES % ROWS);
			scale_group(acc, sums, sw, sa, &minima, all, rows, vectors);
		}
	}
	UNROLL
	for (int r = 0; r < rows; r++) {
		vflt by = f_set(grouped || !last ? 1.0f : scale[r]);
		UNROLL
		for (int v = 0; v < vectors; v++)
			f_store(y + (size_t)r * p->y_stride + v * LANES,
			        f_mul(by, f_load(acc[r] + v * LANES)));
	}
}

/* Runs a tile on the rows from `row`, whose integers are brought into the form first. */
KERNEL void some_rows(struct part *part, size_t row, int rows, int blocks, enum form form)
{
	const struct kvi_activations *a = part->p->a;
	const size_t at = row * a->stride + part->quad * QUAD;

	if (form == BYTES) {
		tile(part, a->a8 + at, a->stride, row, rows, blocks, form);
	} else if (a->wide) {
#if defined(KVI_LIMBS)
		int16_t limbs[TILE_ROWS][PART_WIDE];
		for (int r = 0; r < rows; r++)
			split_words(limbs[r], a->a15 + at + (size_t)r * a->stride, part->quads);
		tile(part, limbs, PART_WIDE, row, rows, blocks, form);
#else
		tile(part, a->a15 + at, a->stride, row, rows, blocks, form);
#endif
	} else {
#if !defined(KVI_BYTE_DOTS)
		int16_t wide[TILE_ROWS][PART_WIDE];
		for (int r = 0; r < rows; r++)
			widen_bytes(wide[r], a->a8 + at + (size_t)r * a->stride, part->quads);
		tile(part, wide, PART_WIDE, row, rows, blocks, form);
#endif
	}
}

/* Functions that multiply all rows of a by some blocks of a part. */
#define TILES(BLOCKS, FORM) TILES_OF(BLOCKS, FORM)
#define TILES_OF(BLOCKS, FORM)                                       \
	static FUNCTION void tiles_##BLOCKS##_##FORM(struct part *t) \
	{                                                            \
		size_t rows = t->p->a->rows, r = 0;                  \
		for (; rows - r >= TILE_ROWS; r += TILE_ROWS)        \
			some_rows(t, r, TILE_ROWS, BLOCKS, FORM);    \
		if (TILE_ROWS > 4 && rows - r >= 4) {                \
			some_rows(t, r, 4, BLOCKS, FORM);            \
			r += 4;                                      \
		}                                                    \
		if (rows - r >= 2) {                                 \
			some_rows(t, r, 2, BLOCKS, FORM);            \
			r += 2;                                      \
		}                                                    \
		if (rows - r >= 1)                                   \
			some_rows(t, r, 1, BLOCKS, FORM);            \
	}

#if defined(KVI_BYTE_DOTS)
TILES(1, BYTES)
#endif
TILES(1, WIDE)
#if !defined(KVI_LIMBS)
TILES(1, WIDENED)
#endif
#if TILE_BLOCKS > 1
#if defined(KVI_BYTE_DOTS)
TILES(TILE_BLOCKS, BYTES)
#endif
TILES(TILE_BLOCKS, WIDE)
#if !defined(KVI_LIMBS)
TILES(TILE_BLOCKS, WIDENED)
#endif
#endif

#define NAME(BLOCKS, FORM) NAME_OF(BLOCKS, FORM)
#define NAME_OF(BLOCKS, FORM) tiles_##BLOCKS##_##FORM
static FUNCTION void all_rows(struct part *part, size_t blocks)
{
#if TILE_BLOCKS > 1
	if (blocks == TILE_BLOCKS) {
		switch (part->form) {
#if defined(KVI_BYTE_DOTS)
		case BYTES:
			NAME(TILE_BLOCKS, BYTES)(part);
			return;
#endif
#if !defined(KVI_LIMBS)
		case WIDENED:
			NAME(TILE_BLOCKS, WIDENED)(part);
			return;
#endif
		default:
			NAME(TILE_BLOCKS, WIDE)(part);
			return;
		}
	}
#endif
	(void)blocks;
	switch (part->form) {
#if defined(KVI_BYTE_DOTS)
	case BYTES:
		tiles_1_BYTES(part);
		return;
#endif
#if !defined(KVI_LIMBS)
	case WIDENED:
		tiles_1_WIDENED(part);
		return;
#endif
	default:
		tiles_1_WIDE(part);
		return;
	}
}

static FUNCTION void some_blocks(struct part *part, size_t blocks)
{
	const struct kvi_operand *w = part->p->w;
	const size_t quads = kvi_quads(w->columns);
#if !defined(KVI_LIMBS)
	int16_t widened[2][TILE_BLOCKS * PART_WIDE * ROWS] __attribute__((aligned(64)));
#endif

#if !defined(KVI_LIMBS)
	if (w->words) {
		part->w[0] = w->words + part->block * quads * STEP;
		part->w_stride = quads * STEP;
		all_rows(part, blocks);
		return;
	}
#endif
	for (unsigned i = 0; i < w->planes; i++) {
		const int8_t *from = w->w[i] + (part->block * quads + part->quad) * STEP;
		part->w[i] = from;
		part->w_stride = quads * STEP;
#if !defined(KVI_LIMBS)
		if (part->form != WIDENED)
			continue;
		for (size_t b = 0; b < blocks; b++)
			for (size_t q = 0; q < part->quads; q++)
				widen_weights(widened[i] + (b * PART_WIDE / QUAD + q) * STEP,
				              from + (b * quads + q) * STEP);
		part->w[i] = widened[i];
		part->w_stride = PART_WIDE * ROWS;
#endif
	}
	all_rows(part, blocks);
}

/* Groups of a part of at most `columns` columns; parts are about equal. */
static size_t part_groups(const struct kvi_operand *w, size_t columns)
{
	size_t groups = kvi_operand_groups(w), most = columns / w->group;
	size_t parts = (groups + most - 1) / most;

	return parts ? (groups + parts - 1) / parts : 1;
}

static FUNCTION void product(const struct kvi_product *p)
{
	const struct kvi_operand *w = p->w;
	const size_t quads = kvi_quads(w->columns), group_quads = w->group / QUAD;
	const size_t end = p->first + p->blocks;
#if defined(KVI_BYTE_DOTS)
	const bool bytes = !p->a->wide;
#else
	const bool bytes = false;
#endif
#if defined(KVI_LIMBS)
	const bool widened = false;
#else
	const bool widened = p->a->rows > TILE_ROWS || w->words;
#endif
	const size_t step = part_groups(w, bytes ? PART_BYTES : PART_WIDE);
	struct part t = { .p = p };

	t.form = bytes ? BYTES : widened ? WIDENED : WIDE;
	for (t.block = p->first; t.block < end;) {
		size_t blocks = end - t.block < TILE_BLOCKS ? 1 : TILE_BLOCKS;
		for (t.group = 0, t.quad = 0; t.quad < quads; t.group += step) {
			t.quad = t.group * group_quads;
			t.quads = quads - t.quad < step * group_quads ? quads - t.quad
			                                              : step * group_quads;
			some_blocks(&t, blocks);
			t.quad += t.quads;
		}
		t.block += blocks;
	}
}
