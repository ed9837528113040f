/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * matmul_x86.h - products of 16-bit integers in pairs, for matmul_body.h
 *
 * After v_load, v_pair (two 16-bit integers in all lanes), v_dot (a + sum of products of pairs),
 * v_even, v_odd (the bytes of each 16 bits, widened) and v_store.
 */

/* 16-bit weights of a block's quad: columns 0 and 2 of all rows, then 1 and 3. */
KERNEL void widen_weights(int16_t *to, const int8_t *w)
{
	UNROLL
	for (int v = 0; v < ROWS / LANES; v++) {
		vec x = v_load(w + v * LANES * QUAD);
		v_store(to + v * LANES * 2, v_even(x));
		v_store(to + 2 * ROWS + v * LANES * 2, v_odd(x));
	}
}

/* Sums of products of 15-bit activations; see dots of matmul_body.h. */
KERNEL void dots_wide(vint sums[TILE_ROWS][TILE_VECTORS], const int16_t *a, size_t a_stride,
                      const void *w, size_t w_stride, size_t quads, int rows, int vectors,
                      bool widened)
{
	const size_t quad = STEP * (widened ? sizeof(int16_t) : 1);
	const char *at = w;

	for (size_t q = 0; q < quads; q++, a += QUAD, at += quad) {
		UNROLL
		for (int half = 0; half < 2; half++) { /* columns 0 and 2, then 1 and 3 */
			vec x[TILE_VECTORS];
			UNROLL
			for (int v = 0; v < vectors; v++) {
				size_t block = (size_t)(v * LANES / ROWS) * w_stride;
				size_t row = v * LANES % ROWS;
				if (widened)
					x[v] = v_load((const int16_t *)(const void *)at + block +
					              half * 2 * ROWS + row * 2);
				else
					x[v] = v_load(at + block + row * QUAD);
				if (!widened)
					x[v] = half ? v_odd(x[v]) : v_even(x[v]);
			}
			UNROLL
			for (int r = 0; r < rows; r++) {
				vec pair = v_pair(a + (size_t)r * a_stride + half * 2);
				UNROLL
				for (int v = 0; v < vectors; v++)
					sums[r][v] = v_dot(sums[r][v], pair, x[v]);
			}
		}
	}
}
