/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exact_attention_body.h - attention over blocks of 256 tokens (spec/arithmetic.md 6), a warp 16
 * tokens of a head of queries
 *
 * A lane has the scores of the keys 8 * n + 2 * column and the next one, for all n, of rows g and
 * g + 8, and the outputs of the same channels. They lie in memory of the lane: shared memory on a
 * GPU, which no other lane reads.
 */
#ifndef KVI_GPU_EXACT_ATTENTION_BODY_H
#define KVI_GPU_EXACT_ATTENTION_BODY_H

#include "exact_quantise_body.h"
#include "exact_rows_body.h"

/* Forms of queries and keys, and of probabilities and values. */
enum exact_keys { KEYS_8, KEYS_12, KEYS_15 };
enum exact_values {
	VALUES_8,
	VALUES_WIDE,
	VALUES_15
}; /* A8 W8; A12 or A15 and W8; the same, W15 */

template <int KEYS> struct keys_form {
	static constexpr int limbs = KEYS == KEYS_8 ? 1 : 2; /* of queries; matrices of keys */
	static constexpr int sums = KEYS == KEYS_8 ? 1 : KEYS == KEYS_12 ? 3 : 4;
};
template <int VALUES> struct values_form {
	static constexpr int limbs = VALUES == VALUES_8 ? 1 : 2;
	static constexpr int planes = VALUES == VALUES_15 ? 2 : 1;
};

constexpr int BLOCK_PARTS = KEY_BLOCK / 8, BLOCK_STEPS = KEY_BLOCK / 32;
constexpr int NEAR_PARTS = 2;                 /* parts of 8 keys that queries are loaded for */
constexpr float NO_SCORE = -0x1.fffffep+127f; /* -FLT_MAX */

/* Memory and state of a warp; state is of rows g and g + 8. */
struct attention_tile {
	span<const uint32_t> q[2], k[2], v[2], q_scale, k_scale, v_scale;
	span<uint32_t> own;
	uint32_t head, kv_head, first; /* the first token */
	f32v m[2], l[2];
	boolv begun[2];
};

WARP_FN u32v own_at(uint32_t number)
{
	return lanes() + number * 32;
}

/* Whether the row sees a key: numbers of tokens. */
WARP_FN boolv is_seen(const kvi_gpu_attention *p, u32v row, u32v key)
{
	const boolv behind = key <= row;
	return p->window ? behind & (row - key < p->window) : behind;
}

/* Sums of a step of 16 queries and 8 keys; half: that of the keys' chunk. */
template <int KEYS>
WARP_FN void add_keys(exact_sums c[4], const exact_piece q[2], const exact_piece k[2], int half)
{
	add_step(&c[0], &q[0], &k[0], half);
	if (KEYS == KEYS_12) {
		add_step(&c[1], &q[0], &k[1], half);
		add_step(&c[1], &q[1], &k[0], half);
		add_step(&c[2], &q[1], &k[1], half);
	} else if (KEYS == KEYS_15) {
		add_step(&c[1], &q[1], &k[0], half);
		add_step(&c[2], &q[0], &k[1], half);
		add_step(&c[3], &q[1], &k[1], half);
	}
}

/* y of spec/arithmetic.md 3: number e of the sums; sa, sk: scales of the query and the key. */
template <int KEYS> WARP_FN f32v score_of(const exact_sums c[4], int e, f32v sa, f32v sk)
{
	if (KEYS == KEYS_8)
		return f_mul(float_of_sum<1>(c[0].v[e]), f_mul(sa, sk));
	if (KEYS == KEYS_12) {
		const u32v high = (c[0].v[e] << 7) + c[1].v[e];
		return f_mul(f_mul(f_int((high << 7) + c[2].v[e]), sk), sa);
	}
	const f32v high = f_mul(f_int((c[0].v[e] << 7) + c[1].v[e]), f_mul(f_splat(128), sk));
	return f_mul(f_fma(f_int((c[2].v[e] << 7) + c[3].v[e]), sk, high), sa);
}

/* Scores of keys 8 * part to 8 * part + 16 of block b, and the maxima so far. ALL: all rows see all
 * keys of the block. */
template <int KEYS, bool ALL>
WARP_FN void score_keys(const kvi_gpu_attention *p, const attention_tile *t, uint32_t b,
                        uint32_t part, const f32v sa[2], f32v most[2])
{
	constexpr int limbs = keys_form<KEYS>::limbs, sums = keys_form<KEYS>::sums;
	const uint32_t query = t->head * p->q_rows + t->first;
	const uint32_t query_tile = query / TILE_ROWS * (p->stride / 32);
	const uint32_t key = t->kv_head * p->k_rows + b * KEY_BLOCK + part * 8;
	const uint32_t key_tile = key / TILE_OUTPUTS * (p->stride / 64);
	exact_sums c[NEAR_PARTS][4];
	UNROLL
	for (int n = 0; n < NEAR_PARTS; n++)
		UNROLL
	for (int i = 0; i < sums; i++)
		begin_products(&c[n][i], KEYS == KEYS_8 ? EXACT_MAGIC_BITS : 0);
	UNROLL_NONE
	for (uint32_t chunk = 0; chunk * CHUNK_BYTES < p->stride; chunk++) {
		exact_piece q[2][2];
		UNROLL
		for (int half = 0; half < 2; half++)
			UNROLL
		for (int i = 0; i < limbs; i++)
			q[half][i] = load_piece(t->q[i],
			                        (query_tile + chunk * 2) * TILE_MS +
			                                query % TILE_ROWS / 16,
			                        half * TILE_MS);
		UNROLL
		for (int n = 0; n < NEAR_PARTS; n++) {
			exact_piece k[2];
			UNROLL
			for (int i = 0; i < limbs; i++)
				k[i] = load_piece(
					t->k[i],
					(key_tile + chunk) * TILE_NS + key % TILE_OUTPUTS / 8, n);
			UNROLL
			for (int half = 0; half < 2; half++)
				add_keys<KEYS>(c[n], q[half], k, half);
		}
	}
	UNROLL
	for (int n = 0; n < NEAR_PARTS; n++)
		UNROLL
	for (int e = 0; e < 4; e++) {
		const u32v at = lane_column() * 2 + n * 8 + e % 2;
		const f32v sk = f_of_bits(ldg(t->k_scale, at + key));
		f32v z = f_mul(score_of<KEYS>(c[n], e, sa[e / 2], sk), f_splat(p->scale));
		if (!ALL)
			z = f_choose(is_seen(p, lane_row() + t->first + e / 2 * 8,
			                     at + b * KEY_BLOCK + part * 8),
			             z, f_splat(NO_SCORE));
		most[e / 2] = f_max(z, most[e / 2]);
		st(t->own, own_at((part + n) * 4 + e), f_bits(z));
	}
}

/* The larger one, or the sum, of the four lanes of a row. */
WARP_FN f32v most_of_row_lanes(f32v v)
{
	for (uint32_t d = 1; d < 4; d *= 2)
		v = f_max(v, f_of_bits(shuffle(f_bits(v), lanes() ^ d)));
	return v;
}

/* Probabilities of a block. */
struct probabilities {
	f32v m[2], l[2]; /* of the rows */
	f32v scale[2];   /* of P */
};

/* Scores become p_j * sv_j; parts: of keys that have scores. */
template <bool ALL>
WARP_FN void weigh_scores(const kvi_gpu_attention *p, const attention_tile *t, uint32_t b,
                          uint32_t parts, probabilities *to)
{
	u32v total[2] = { splat(0), splat(0) }, most[2] = { splat(0), splat(0) };
	const uint32_t values = t->kv_head * p->k_rows + b * KEY_BLOCK;
	for (uint32_t part = 0; part < parts; part++) {
		UNROLL
		for (int e = 0; e < 4; e++) {
			const u32v at = lane_column() * 2 + part * 8 + e % 2;
			const f32v z = ld_float(t->own, own_at(part * 4 + e));
			f32v x = exact_exp(f_sub(z, to->m[e / 2]));
			if (!ALL)
				x = f_choose(is_seen(p, lane_row() + t->first + e / 2 * 8,
				                     at + b * KEY_BLOCK),
				             x, f_splat(0));
			const f32v i = f_add(f_mul(x, f_splat(0x1p20f)), f_splat(EXACT_MAGIC));
			total[e / 2] += f_bits(i) - EXACT_MAGIC_BITS;
			x = f_mul(x, f_of_bits(ldg(t->v_scale, at + values)));
			most[e / 2] = max_signed(most[e / 2], f_bits(x));
			st(t->own, own_at(part * 4 + e), f_bits(x));
		}
	}
	UNROLL
	for (int r = 0; r < 2; r++) {
		to->l[r] = f_mul(f_unsigned(sum_of_lanes(total[r], 4)), f_splat(0x1p-20f));
		to->scale[r] = group_scale(most_of_lanes(most[r], 4), f_int(splat(p->largest)));
	}
}

/* P of a block as operand of products: a step is 32 keys, whose order is that of the values. */
template <int LIMBS> struct exact_weights {
	u32v step[BLOCK_STEPS][LIMBS][4];
};

template <int LIMBS>
WARP_FN void quantise_weights(const kvi_gpu_attention *p, const attention_tile *t, uint32_t parts,
                              const probabilities *from, exact_weights<LIMBS> *to)
{
	f32v inverse[2];
	for (int r = 0; r < 2; r++)
		inverse[r] = f_div(f_splat(1), from->scale[r]);
	UNROLL
	for (int s = 0; s < BLOCK_STEPS; s++)
		UNROLL
	for (int w = 0; w < 4; w++) { /* a word: a row and two parts of 8 keys */
		const uint32_t part = s * 4 + w / 2 * 2;
		u32v v[4], high[4];
		UNROLL
		for (int i = 0; i < 4; i++) {
			const uint32_t at = (part + i / 2) * 4 + w % 2 * 2 + i % 2;
			v[i] = splat(0);
			if (part + i / 2 < parts)
				v[i] = quantised(ld_float(t->own, own_at(at)), inverse[w % 2],
				                 p->largest);
			high[i] = v[i] >> 7;
		}
		if (LIMBS == 2) {
			to->step[s][0][w] = pack_bytes(high[0], high[1], high[2], high[3]);
			for (int i = 0; i < 4; i++)
				v[i] = v[i] & 127;
		}
		to->step[s][LIMBS - 1][w] = pack_bytes(v[0], v[1], v[2], v[3]);
	}
}

/* Integers of a part of 8 channels by one plane of the values. */
template <int LIMBS>
WARP_FN void sum_values(exact_sums *c, const kvi_gpu_attention *p, const attention_tile *t,
                        uint32_t b, uint32_t part, int plane, const exact_weights<LIMBS> *w)
{
	const uint32_t block = t->kv_head * (p->k_rows / KEY_BLOCK) + b;
	const uint32_t piece = (block * (p->v_rows / 8) + part) * (BLOCK_STEPS / 2);
	exact_piece v[BLOCK_STEPS / 2];
	UNROLL
	for (int k = 0; k < BLOCK_STEPS / 2; k++)
		v[k] = load_piece(t->v[plane], piece, k);
	begin_products(c, LIMBS == 1 ? EXACT_MAGIC_BITS : 0);
	UNROLL
	for (int limb = 0; limb < LIMBS; limb++) {
		UNROLL
		for (int s = 0; s < BLOCK_STEPS; s++)
			add_products<true, true>(c->v, w->step[s][limb],
			                         v[s / 2].words + s % 2 * 2);
		if (limb + 1 < LIMBS)
			shift_products(c);
	}
}

/* How M, L and O take up a block: factors of what was there and of what comes, by row. */
struct attention_blend {
	f32v old[2], come[2];
	boolv here[2]; /* the row sees some token of the block */
};

WARP_FN attention_blend blend_of(const kvi_gpu_attention *p, attention_tile *t, uint32_t b,
                                 const probabilities *from)
{
	attention_blend to;
	UNROLL
	for (int r = 0; r < 2; r++) {
		const u32v row = lane_row() + t->first + r * 8, start = splat(b * KEY_BLOCK);
		to.here[r] = start <= row;
		if (p->window) /* the last token of the block that is not behind the row */
			to.here[r] = to.here[r] & is_seen(p, row,
			                                  select(row < start + (KEY_BLOCK - 1), row,
			                                         start + (KEY_BLOCK - 1)));
		const f32v most = f_max(from->m[r], t->m[r]);
		to.old[r] = exact_exp(f_sub(t->m[r], most));
		to.come[r] = exact_exp(f_sub(from->m[r], most));
		const f32v l = f_add(f_mul(t->l[r], to.old[r]), f_mul(from->l[r], to.come[r]));
		const f32v next = f_choose(t->begun[r], l, from->l[r]);
		t->l[r] = f_choose(to.here[r], next, t->l[r]);
		t->m[r] = f_choose(to.here[r], f_choose(t->begun[r], most, from->m[r]), t->m[r]);
	}
	return to;
}

/* Outputs of 8 channels. */
template <int VALUES>
WARP_FN void blend_part(const kvi_gpu_attention *p, const attention_tile *t, uint32_t b,
                        uint32_t part, const exact_weights<values_form<VALUES>::limbs> *w,
                        const probabilities *from, const attention_blend *by)
{
	constexpr int limbs = values_form<VALUES>::limbs;
	exact_sums c[2];
	UNROLL
	for (int i = 0; i < values_form<VALUES>::planes; i++)
		sum_values<limbs>(&c[i], p, t, b, part, i, w);
	UNROLL
	for (int e = 0; e < 4; e++) {
		const int r = e / 2;
		f32v o = float_of_sum<limbs>(c[0].v[e]);
		if (VALUES == VALUES_15)
			o = f_add(f_int(c[1].v[e]), f_mul(o, f_splat(128)));
		o = f_mul(o, from->scale[r]);
		const u32v at = own_at(BLOCK_PARTS * 4 + part * 4 + e);
		const f32v before = ld_float(t->own, at);
		const f32v both = f_add(f_mul(before, by->old[r]), f_mul(o, by->come[r]));
		const f32v next = f_choose(t->begun[r], both, o);
		st(t->own, at, f_bits(f_choose(by->here[r], next, before)));
	}
}

/* Probabilities of `parts` of block b, with their sums, in the lane's memory. */
template <int KEYS, bool ALL>
WARP_FN void score_block(const kvi_gpu_attention *p, const attention_tile *t, uint32_t b,
                         uint32_t parts, const f32v sa[2], probabilities *to)
{
	f32v most[2] = { f_splat(NO_SCORE), f_splat(NO_SCORE) };
	for (uint32_t part = 0; part < parts; part += NEAR_PARTS)
		score_keys<KEYS, ALL>(p, t, b, part, sa, most);
	for (int r = 0; r < 2; r++)
		to->m[r] = most_of_row_lanes(most[r]);
	weigh_scores<ALL>(p, t, b, parts, to);
}

template <int KEYS, int VALUES>
WARP_FN void attend_block(const kvi_gpu_attention *p, attention_tile *t, uint32_t b,
                          const f32v sa[2])
{
	constexpr int limbs = values_form<VALUES>::limbs;
	/* behind the last row nothing is seen */
	const uint32_t start = b * KEY_BLOCK, last = t->first + KVI_GPU_QUERY_ROWS - 1;
	const uint32_t keys = last - start < KEY_BLOCK ? last - start + 1 : KEY_BLOCK;
	const uint32_t parts = (keys + 15) / 16 * NEAR_PARTS;
	probabilities from;
	exact_weights<limbs> w;
	if (start + KEY_BLOCK <= t->first + 1 && (!p->window || last - start < p->window))
		score_block<KEYS, true>(p, t, b, parts, sa, &from);
	else
		score_block<KEYS, false>(p, t, b, parts, sa, &from);
	quantise_weights<limbs>(p, t, parts, &from, &w);
	const attention_blend by = blend_of(p, t, b, &from);
	for (uint32_t part = 0; part < p->v_rows / 8; part++)
		blend_part<VALUES>(p, t, b, part, &w, &from, &by);
	for (int r = 0; r < 2; r++)
		t->begun[r] = t->begun[r] | by.here[r];
}

/* O / L. */
WARP_FN void store_attended(const kvi_gpu_attention *p, const attention_tile *t)
{
	span<uint32_t> o = span_at<uint32_t>(p->o, (size_t)p->tokens * p->o_stride);
	for (uint32_t part = 0; part < p->v_rows / 8; part++)
		UNROLL
	for (int e = 0; e < 4; e++) {
		const u32v channel = lane_column() * 2 + part * 8 + e % 2;
		const u32v row = lane_row() + t->first + e / 2 * 8;
		const boolv ok = (row < p->tokens) & (channel < p->channels);
		const f32v v = ld_float(t->own, own_at(BLOCK_PARTS * 4 + part * 4 + e));
		st_float_if(o, row * p->o_stride + t->head * p->channels + channel,
		            f_div(v, t->l[e / 2]), ok);
	}
}

/* Tokens KVI_GPU_QUERY_ROWS * tile and on of a head of queries. own: kvi_gpu_attention_numbers for
 * each of 32 lanes. */
template <int KEYS, int VALUES>
WARP_FN void run_attention(const kvi_gpu_attention *p, uint32_t head, uint32_t tile,
                           span<uint32_t> own)
{
	attention_tile t;
	t.first = tile * KVI_GPU_QUERY_ROWS;
	if (head >= p->heads || t.first >= p->tokens)
		return;
	t.head = head;
	t.kv_head = head / (p->heads / p->kv_heads);
	t.own = own;
	const size_t k_rows = (size_t)p->kv_heads * p->k_rows;
	const size_t q_rows = (size_t)p->heads * p->q_rows;
	const size_t v_words = k_rows / KEY_BLOCK * p->v_rows * (KEY_BLOCK / 4);
	for (int i = 0; i < 2; i++) {
		t.q[i] = span_at<const uint32_t>(p->q[i], p->q[i] ? q_rows * (p->stride / 4) : 0);
		t.k[i] = span_at<const uint32_t>(p->k[i], p->k[i] ? k_rows * (p->stride / 4) : 0);
		t.v[i] = span_at<const uint32_t>(p->v[i], p->v[i] ? v_words : 0);
		t.m[i] = f_splat(NO_SCORE);
		t.l[i] = f_splat(0);
		t.begun[i] = lanes() >= 32u;
	}
	t.q_scale = span_at<const uint32_t>(p->q_scale, q_rows);
	t.k_scale = span_at<const uint32_t>(p->k_scale, k_rows);
	t.v_scale = span_at<const uint32_t>(p->v_scale, k_rows);
	for (uint32_t i = 0; i < p->v_rows / 8 * 4; i++)
		st(own, own_at(BLOCK_PARTS * 4 + i), splat(0));
	f32v sa[2];
	for (int r = 0; r < 2; r++)
		sa[r] = f_of_bits(ldg(t.q_scale, lane_row() + head * p->q_rows + t.first + r * 8));
	const uint32_t end = t.first + KVI_GPU_QUERY_ROWS;
	const uint32_t from = p->window && t.first >= p->window ? t.first - p->window + 1 : 0;
	for (uint32_t b = from / KEY_BLOCK; b * KEY_BLOCK < end; b++)
		attend_block<KEYS, VALUES>(p, &t, b, sa);
	store_attended(p, &t);
}

#endif
