/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * attention_avx512vnni.c - attention_rows.h with instructions for sums of products
 *
 * Some rows at a time go from scores to outputs, so that what is between stays in the first
 * cache. Products of fp32 that are exact, those by powers of two and by the short constant of
 * exp, are fused with the sum behind them: the bits are the same.
 */
#include "config.h"

#include "kernels/slots.h"

#if defined(KVI_AVX512VNNI)

#include <float.h>

#define FUNCTION __attribute__((target("avx512vnni")))
#define KERNEL static inline __attribute__((always_inline, target("avx512vnni")))
#include "exact/attention_rows.h"
#include "matmul_avx512.h"
#include "quantise.h"

enum {
	TOKENS = KVI_GROUP_MAX,
	BATCH = 4, /* vectors whose probabilities become bytes together */
	MAGIC_BITS = 0x4b400000
};

#define EACH(i, n) \
	UNROLL     \
	for (int i = 0; i < n; i++)

/* Some rows on their way through a block. */
struct attended_rows {
	int16_t q[TILE_ROWS][KVI_GROUP_MAX];
	float z[TILE_ROWS][TOKENS]; /* scores, then p_j * sv_j */
	/* P = 256 * high + low. Of 64 tokens, bytes 16 l + 4 v to 16 l + 4 v + 3 are those of
	 * tokens 16 v + 4 l to 16 v + 4 l + 3. */
	uint8_t low[TILE_ROWS][TOKENS], high[TILE_ROWS][TOKENS];
	float most[TILE_ROWS][LANES];
	float m[LANES], l[LANES], p_most[LANES], p_scale[LANES], p_inverse[LANES];
	float joined[LANES]; /* exp(M - M') of all rows, then exp(m - M') */
	uint64_t some_high;  /* quads of `high` in which a row is not 0 */
	size_t end;          /* tokens behind it are seen by no row */
	bool all;            /* every row sees every token */
};

/* exp of section 1, of n vectors of x <= 0. They take each step together, because a processor
 * does not look far enough ahead to overlap the steps of one vector with those of the next. */
KERNEL void exp_of(vflt *y, const vflt *x, int n)
{
	static const float by[] = { 0x1.a0d2cep-13f, 0x1.6e879cp-10f, 0x1.11121p-7f,
		                    0x1.555382p-5f,  0x1.555554p-3f,  0.5f };
	const vflt magic = f_set(KVI_RINT_MAGIC);
	vflt t[BATCH], r[BATCH], f[BATCH], p[BATCH];

	EACH (i, n)
		t[i] = f_add(f_mul(x[i], f_set(0x1.715476p+0f)), magic);
	EACH (i, n)
		f[i] = _mm512_sub_ps(t[i], magic);
	/* 9 bits by 8: exact */
	EACH (i, n)
		r[i] = _mm512_fnmadd_ps(f[i], f_set(0x1.63p-1f), x[i]);
	EACH (i, n)
		r[i] = _mm512_sub_ps(r[i], f_mul(f[i], f_set(-0x1.bd0106p-13f)));
	EACH (i, n)
		p[i] = f_set(by[0]);
	UNROLL
	for (int j = 1; j < 6; j++)
		EACH (i, n)
			p[i] = f_add(f_mul(p[i], r[i]), f_set(by[j]));
	EACH (i, n)
		p[i] = f_add(f_mul(p[i], f_mul(r[i], r[i])), r[i]);
	EACH (i, n)
		p[i] = f_add(p[i], f_set(1.0f));
	/* 2^n is added to the exponent of a number that stays normal */
	EACH (i, n) {
		const __mmask16 some = _mm512_cmp_ps_mask(x[i], f_set(-87.0f), _CMP_GT_OQ);
		const vec to = _mm512_slli_epi32(_mm512_castps_si512(t[i]), 23);
		y[i] = _mm512_castsi512_ps(
			_mm512_maskz_add_epi32(some, _mm512_castps_si512(p[i]), to));
	}
}

/* Queries of some rows next to each other. */
KERNEL void copy_queries(const struct kvi_attention_rows *attention_rows,
                         struct attended_rows *attended_rows, size_t row, int rows)
{
	for (int r = 0; r < rows; r++)
		for (size_t i = 0; i < attention_rows->q->columns; i += 2 * LANES)
			v_store(attended_rows->q[r] + i,
			        v_load(attention_rows->q->a15 +
			               (row + (size_t)r) * attention_rows->q->stride + i));
}

/* Scores of two vectors of tokens, from `at` on. */
KERNEL void score(const struct kvi_attention_rows *attention_rows,
                  struct attended_rows *attended_rows, size_t row, size_t at, int rows)
{
	const size_t quads = kvi_quads(attention_rows->k->columns);
	const int16_t *w = attention_rows->k->words + at / ROWS * quads * STEP,
		      *q = attended_rows->q[0];
	vint sums[TILE_ROWS][2];

	UNROLL
	for (int r = 0; r < rows; r++)
		sums[r][0] = sums[r][1] = v_zero();
	for (size_t i = 0; i < 2 * quads; i++, q += 2, w += 2 * ROWS) {
		const vec x = v_load(w), y = v_load(w + quads * STEP);
		UNROLL
		for (int r = 0; r < rows; r++) {
			const vec pair = v_pair(q + r * KVI_GROUP_MAX);
			sums[r][0] = (vint)_mm512_dpwssd_epi32((vec)sums[r][0], pair, x);
			sums[r][1] = (vint)_mm512_dpwssd_epi32((vec)sums[r][1], pair, y);
		}
	}
	const vflt sx = f_load(attention_rows->k->scale + at),
		   sy = f_load(attention_rows->k->scale + at + LANES);
	UNROLL
	for (int r = 0; r < rows; r++) {
		const vflt sa = f_set(attention_rows->q->scale[row + (size_t)r]),
			   by = f_set(attention_rows->scale);
		vflt x = f_mul(f_mul(f_mul(f_of(sums[r][0]), sx), sa), by);
		vflt y = f_mul(f_mul(f_mul(f_of(sums[r][1]), sy), sa), by);
		f_store(attended_rows->z[r] + at, x);
		f_store(attended_rows->z[r] + at + LANES, y);
		x = _mm512_max_ps(x, y);
		f_store(attended_rows->most[r], _mm512_max_ps(x, f_load(attended_rows->most[r])));
	}
}

/* Scores of tokens that row r does not see cannot be a maximum, and become p = 0. Where it sees
 * no token what comes of the block is not used: m is -FLT_MAX, so M and L stay or are 0 later. */
static FUNCTION void hide(struct attended_rows *rows, int r, struct kvi_seen seen)
{
	const vec step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const vflt least = f_set(-FLT_MAX);
	vflt most = least;

	for (int at = 0; at < (int)rows->end; at += LANES) {
		const vec i = _mm512_add_epi32(step, _mm512_set1_epi32(at));
		const __mmask16 is =
			_mm512_cmp_epi32_mask(i, _mm512_set1_epi32(seen.first), _MM_CMPINT_NLT) &
			_mm512_cmp_epi32_mask(i, _mm512_set1_epi32(seen.end), _MM_CMPINT_LT);
		const vflt z = _mm512_mask_mov_ps(least, is, f_load(rows->z[r] + at));
		f_store(rows->z[r] + at, z);
		most = _mm512_max_ps(z, most);
	}
	f_store(rows->most[r], most);
}

/* Turns scores into p_j * sv_j; sets the largest of them, m and l. */
KERNEL void soften(const struct kvi_attention_rows *rows, struct attended_rows *attended_rows,
                   int r)
{
	const vflt magic = f_set(KVI_RINT_MAGIC), up = f_set(0x1p20f);
	const float m = _mm512_reduce_max_ps(f_load(attended_rows->most[r]));
	float *z = attended_rows->z[r];
	vec total = _mm512_setzero_si512();
	vflt most = f_zero();

	for (size_t at = 0; at < attended_rows->end; at += BATCH * LANES) {
		vflt p[BATCH];
		EACH (i, BATCH)
			p[i] = _mm512_sub_ps(f_load(z + at + i * LANES), f_set(m));
		exp_of(p, p, BATCH);
		EACH (i, BATCH) {
			const vflt t = f_fma(p[i], up, magic);
			total = _mm512_add_epi32(total, _mm512_castps_si512(t));
		}
		EACH (i, BATCH) {
			p[i] = f_mul(p[i], f_load(rows->v_scale + at + i * LANES));
			f_store(z + at + i * LANES, p[i]);
			most = _mm512_max_ps(p[i], most);
		}
	}
	const uint32_t sum = (uint32_t)_mm512_reduce_add_epi32(total) -
	                     (uint32_t)attended_rows->end * MAGIC_BITS;
	attended_rows->m[r] = m;
	attended_rows->l[r] = (float)sum * 0x1p-20f;
	attended_rows->p_most[r] = _mm512_reduce_max_ps(most);
}

/* P of p_j * sv_j. */
KERNEL void quantise(struct attended_rows *rows, int r)
{
	const vflt inverse = f_set(rows->p_inverse[r]);
	const vec byte = _mm512_set1_epi16(255);
	const float *z = rows->z[r];

	for (size_t at = 0; at < rows->end; at += BATCH * LANES) {
		vec x[BATCH];
		EACH (i, BATCH) {
			x[i] = _mm512_cvtps_epi32(f_mul(f_load(z + at + i * LANES), inverse));
		}
		x[0] = _mm512_packus_epi32(x[0], x[1]);
		x[2] = _mm512_packus_epi32(x[2], x[3]);
		v_store(rows->low[r] + at, _mm512_packus_epi16(_mm512_and_si512(x[0], byte),
		                                               _mm512_and_si512(x[2], byte)));
		x[1] = _mm512_packus_epi16(_mm512_srli_epi16(x[0], 8), _mm512_srli_epi16(x[2], 8));
		v_store(rows->high[r] + at, x[1]);
		rows->some_high |= (uint64_t)_mm512_test_epi32_mask(x[1], x[1]) << at / QUAD;
	}
}

/* Turns the scores of all rows into P. */
KERNEL void share(const struct kvi_attention_rows *attention_rows,
                  struct attended_rows *attended_rows, int rows)
{
	for (int r = 0; r < rows; r++)
		soften(attention_rows, attended_rows, r);
	const vflt scale = _mm512_max_ps(
		_mm512_div_ps(f_load(attended_rows->p_most), f_set((float)KVI_A12_MAX)),
		f_set(KVI_SCALE_MIN));
	f_store(attended_rows->p_scale, scale);
	f_store(attended_rows->p_inverse, _mm512_div_ps(f_set(1.0f), scale));
	for (int r = 0; r < rows; r++)
		quantise(attended_rows, r);
}

/* M and L of some rows take up the block's. */
KERNEL void join(const struct kvi_attention_rows *attention_rows,
                 struct attended_rows *attended_rows, size_t row, int rows)
{
	struct kvi_attended *to = attention_rows->so_far + row;
	float *old = attended_rows->joined, *new = attended_rows->joined + TILE_ROWS;
	vflt x;

	memset(attended_rows->joined, 0, sizeof attended_rows->joined);
	for (int r = 0; r < rows; r++) {
		const float most = attended_rows->m[r] > to[r].m ? attended_rows->m[r] : to[r].m;
		old[r] = to[r].m - most;
		new[r] = attended_rows->m[r] - most;
		to[r].m = most;
	}
	x = f_load(attended_rows->joined);
	exp_of(&x, &x, 1);
	f_store(attended_rows->joined, x);
	for (int r = 0; r < rows; r++)
		to[r].l = to[r].l * old[r] + attended_rows->l[r] * new[r];
}

/* Quads of 64 tokens of one plane: bytes of `from` by w. */
KERNEL void add_quads(vint sums[TILE_ROWS][2], const uint8_t *from, const int8_t *w, int rows,
                      int vectors)
{
	for (size_t l = 0; l < LANES / BATCH; l++) {
		UNROLL
		for (size_t v = 0; v < BATCH; v++) {
			const int8_t *at = w + (v * BATCH + l) * STEP;
			vec x[2];
			UNROLL
			for (int i = 0; i < vectors; i++)
				x[i] = v_load(at + (size_t)i * TOKENS / QUAD * STEP);
			UNROLL
			for (int r = 0; r < rows; r++) {
				const vec four =
					v_pair(from + (size_t)r * TOKENS + (l * BATCH + v) * QUAD);
				UNROLL
				for (int i = 0; i < vectors; i++)
					sums[r][i] = (vint)_mm512_dpbusd_epi32((vec)sums[r][i],
					                                       four, x[i]);
			}
		}
	}
}

/* Adds the products of the quads with high bytes, of 64 tokens each. */
KERNEL void add_high(vint sums[TILE_ROWS][2], const struct attended_rows *attended_rows,
                     const int8_t *w, int rows, int vectors)
{
	for (uint64_t left = attended_rows->some_high; left; left &= left - 1) {
		const size_t at = (size_t)__builtin_ctzll(left);
		const size_t quad = (at & ~(size_t)15) + at % BATCH * BATCH + at / BATCH % BATCH;
		vec x[2];
		UNROLL
		for (int i = 0; i < vectors; i++)
			x[i] = v_load(w + quad * STEP + (size_t)i * TOKENS / QUAD * STEP);
		UNROLL
		for (int r = 0; r < rows; r++) {
			const vec four = v_pair(attended_rows->high[r] + at * QUAD);
			UNROLL
			for (int i = 0; i < vectors; i++)
				sums[r][i] = (vint)_mm512_dpbusd_epi32((vec)sums[r][i], four, x[i]);
		}
	}
	UNROLL
	for (int r = 0; r < rows; r++)
		UNROLL
	for (int i = 0; i < vectors; i++)
		sums[r][i] = (vint)_mm512_slli_epi32((vec)sums[r][i], 8);
}

/* O of one or two vectors of channels takes up the block's. */
KERNEL void output(const struct kvi_attention_rows *attention_rows,
                   const struct attended_rows *attended_rows, size_t row, size_t block, int rows,
                   int vectors)
{
	const struct kvi_operand *v = attention_rows->v;
	const size_t stride = kvi_operand_blocks(v) * ROWS;
	vflt o[TILE_ROWS][2];

	UNROLL
	for (int r = 0; r < rows; r++)
		o[r][0] = o[r][1] = f_zero();
	for (unsigned plane = 0; plane < v->planes; plane++) {
		const int8_t *w = v->w[plane] + block * TOKENS / QUAD * STEP;
		vint sums[TILE_ROWS][2];
		UNROLL
		for (int r = 0; r < rows; r++)
			UNROLL
		for (int i = 0; i < vectors; i++)
			sums[r][i] = v_zero();
		if (attended_rows->some_high)
			add_high(sums, attended_rows, w, rows, vectors);
		for (size_t at = 0; at < attended_rows->end; at += BATCH * LANES)
			add_quads(sums, attended_rows->low[0] + at, w + at / QUAD * STEP, rows,
			          vectors);
		/* fma(f(I), 128 or 1, acc): the product is exact */
		UNROLL
		for (int r = 0; r < rows; r++)
			UNROLL
		for (int i = 0; i < vectors; i++) {
			vflt x = f_of(sums[r][i]);
			if (plane + 1 < v->planes)
				x = f_mul(x, f_set(128.0f));
			o[r][i] = f_add(x, o[r][i]);
		}
	}
	UNROLL
	for (int r = 0; r < rows; r++) {
		float *to = attention_rows->out + (row + (size_t)r) * stride + block * ROWS;
		if (!attention_rows->seen[row + (size_t)r].end) /* a sum would turn -0 into 0 */
			continue;
		UNROLL
		for (int i = 0; i < vectors; i++) {
			const vflt x = f_mul(f_set(attended_rows->p_scale[r]), o[r][i]);
			f_store(to + i * LANES,
			        f_add(f_mul(f_load(to + i * LANES),
			                    f_set(attended_rows->joined[r])),
			              f_mul(x, f_set(attended_rows->joined[TILE_ROWS + r]))));
		}
	}
}

/* Tokens behind attended_rows->end are seen by no row; whole batches. */
static FUNCTION void look(const struct kvi_attention_rows *attention_rows,
                          struct attended_rows *attended_rows, size_t row, int rows)
{
	size_t end = 0;

	attended_rows->all = true;
	for (int r = 0; r < rows; r++) {
		const struct kvi_seen seen = attention_rows->seen[row + (size_t)r];
		end = seen.end > end ? seen.end : end;
		attended_rows->all = attended_rows->all && !seen.first && seen.end == TOKENS;
		f_store(attended_rows->most[r], f_set(-FLT_MAX));
	}
	f_store(attended_rows->p_most, f_zero());
	attended_rows->end = (end + BATCH * LANES - 1) & ~(size_t)(BATCH * LANES - 1);
	attended_rows->some_high = 0;
}

KERNEL void some_rows(const struct kvi_attention_rows *attention_rows, size_t row, int rows)
{
	const size_t blocks = kvi_operand_blocks(attention_rows->v);
	struct attended_rows s __attribute__((aligned(64)));
	size_t b = 0;

	look(attention_rows, &s, row, rows);
	if (!s.end)
		return;
	copy_queries(attention_rows, &s, row, rows);
	for (size_t at = 0; at < s.end; at += 2 * LANES)
		score(attention_rows, &s, row, at, rows);
	for (int r = 0; r < rows && !s.all; r++)
		hide(&s, r, attention_rows->seen[row + (size_t)r]);
	share(attention_rows, &s, rows);
	join(attention_rows, &s, row, rows);
	for (; b + 2 <= blocks; b += 2)
		output(attention_rows, &s, row, b, rows, 2);
	if (b < blocks)
		output(attention_rows, &s, row, b, rows, 1);
}

#define ROWS_OF(N)                                                                    \
	static FUNCTION void rows_##N(const struct kvi_attention_rows *a, size_t row) \
	{                                                                             \
		some_rows(a, row, N);                                                 \
	}
ROWS_OF(8)
ROWS_OF(4)
ROWS_OF(2)
ROWS_OF(1)

void kvi_avx512vnni_attend(const struct kvi_attention_rows *rows)
{
	const size_t n = rows->q->rows;
	size_t row = 0;

	for (; row + 8 <= n; row += 8)
		rows_8(rows, row);
	if (n & 4) {
		rows_4(rows, row);
		row += 4;
	}
	if (n & 2) {
		rows_2(rows, row);
		row += 2;
	}
	if (n & 1)
		rows_1(rows, row);
}
#endif
