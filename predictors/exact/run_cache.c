/* SPDX-License-Identifier: BSD-3-Clause */
/* run_cache.c - keys and values of a layer as operands of attention (spec/arithmetic.md 6) */
#include <string.h>

#include "engine_internal.h"
#include "quantise.h"
#include "words.h"
#include "util/ckd.h"
#include "util/list.h"

static size_t aligned(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

/* A row of integers: activations of one group, whatever their largest magnitude is. */
struct one_row {
	struct kvi_activations a;
	uint8_t memory[1024] __attribute__((aligned(64)));
};

/* Copies n numbers, and zeros up to a whole 16; infinities and NaN count as 0. */
static void clean(float to[KVI_GROUP_MAX], const float *x, size_t n)
{
	enum { STEP = 16 };
	float all[KVI_GROUP_MAX];
	memcpy(all, x, n * sizeof *x);
	memset(all + n, 0, (STEP - n % STEP) % STEP * sizeof *x);
	for (size_t i = 0; i < n; i += STEP)
		for (size_t j = i; j < i + STEP; j++)
			to[j] = all[j] - all[j] == 0 ? all[j] : 0;
}

/* Integers of n numbers and zeros up to a whole 16, which follow. */
static void make_integers(struct one_row *to, const struct kvi_exact_kernels *kernels,
                          const float *x, size_t n, int largest)
{
	const size_t all = (n + 15) & ~(size_t)15;
	kvi_activations_init(&to->a, to->memory, 1, all, KVI_GROUP_MAX, true);
	to->a.largest = largest;
	kernels->quantise(&to->a, x, all, 0, 1);
}

/* A token is a column of the operand of the values; one that was there is replaced. */
static void put_column(struct kvi_operand *w, size_t column, unsigned plane, const int8_t *q)
{
	size_t block = kvi_quads(w->columns) * 64;
	int8_t *to = (int8_t *)w->w[plane] + column / 4 * 64 + column % 4;
	int32_t *sum = (int32_t *)w->sum[plane];
	for (size_t c = 0; c < w->rows; c++) {
		int8_t *at = to + c / 16 * block + c % 16 * 4;
		sum[c] += q[c] - *at;
		*at = q[c];
	}
}

/* W8, or W15 in two planes, of a token's values. */
static void put_values(struct kvi_cache_head *head, const struct one_row *row, size_t at)
{
	const struct kvi_operand *w = &head->v;
	int8_t q[2][KVI_GROUP_MAX];
	for (size_t c = 0; c < w->rows; c++) {
		/* columns of a quad are 0, 2, 1, 3 */
		int32_t v = row->a.a15[c - c % 4 + (c % 2 * 2 + c % 4 / 2)];
		int32_t high = w->planes == 2 ? kvi_high_plane(v) : v;
		q[0][c] = (int8_t)high;
		q[1][c] = (int8_t)(v - 128 * high);
	}
	for (unsigned i = 0; i < w->planes; i++)
		put_column(&head->v, at, i, q[i]);
	head->v_scale[at] = row->a.scale[0];
}

static kvarc_ret add_block(struct kvi_cache *cache, const struct kvi_alloc *alloc)
{
	const struct kvi_model_file *m = cache->model;
	const bool words = kvi_twelve(cache->arithmetic, KVI_MATRIX_KEYS);
	unsigned k_planes = kvi_planes(cache->arithmetic, KVI_MATRIX_KEYS);
	unsigned v_planes = kvi_planes(cache->arithmetic, KVI_MATRIX_VALUES);
	size_t hd = m->head_channels, k, v;
	if (!(words ? kvi_words_bytes(KVI_BLOCK, hd, &k)
	            : kvi_operand_bytes(KVI_BLOCK, hd, KVI_GROUP_MAX, k_planes, false, &k)) ||
	    !kvi_operand_bytes(hd, KVI_BLOCK, KVI_GROUP_MAX, v_planes, false, &v))
		return KVARC_MEM;
	k = aligned(k);
	v = aligned(v);
	size_t scales = aligned(KVI_BLOCK * sizeof(float));
	size_t table = aligned(m->kv_heads * sizeof(struct kvi_cache_head));
	size_t each = k + v + scales, bytes;
	if (kvi_mul(each, m->kv_heads, &bytes) || kvi_add(bytes, table, &bytes))
		return KVARC_MEM;
	uint8_t *p = kvi_calloc(alloc, bytes, 1);
	if (!p)
		return kvi_alloc_error(alloc);
	struct kvi_cache_head *heads = (void *)p;
	cache->blocks[cache->n++].heads = heads;
	p += table;
	for (size_t h = 0; h < m->kv_heads; h++, p += each) {
		if (words)
			kvi_words_init(&heads[h].k, p, KVI_BLOCK, hd);
		else
			kvi_operand_init(&heads[h].k, p, KVI_BLOCK, hd, KVI_GROUP_MAX, k_planes,
			                 false);
		kvi_operand_init(&heads[h].v, p + k, hd, KVI_BLOCK, KVI_GROUP_MAX, v_planes, false);
		heads[h].v_scale = (float *)(void *)(p + k + v);
		float *one = (float *)heads[h].v.scale;
		for (size_t i = 0; i < (hd + 15) / 16 * 16; i++)
			one[i] = 1;
	}
	return KVARC_OK;
}

/* A token's key and value of a head. */
static void put_token(const struct kvi_exact_kernels *kernels, struct kvi_cache_head *head,
                      size_t at, const float *k, const float *v)
{
	const size_t hd = head->k.columns;
	float x[KVI_GROUP_MAX];
	struct one_row row;
	clean(x, k, hd);
	if (head->k.words) {
		make_integers(&row, kernels, x, hd, KVI_W12_MAX);
		kvi_words_put(&head->k, at, row.a.a15, row.a.scale[0]);
	} else {
		kvi_operand_put_floats(&head->k, at, x);
	}
	clean(x, v, hd);
	make_integers(&row, kernels, x, hd, head->v.planes == 2 ? KVI_W15_MAX : KVI_W8_MAX);
	put_values(head, &row, at);
}

kvarc_ret kvi_cache_add(struct kvi_cache *cache, const struct kvi_alloc *alloc, size_t before,
                        size_t n, const float *k, const float *v, size_t stride)
{
	const struct kvi_model_file *m = cache->model;
	size_t hd = m->head_channels;
	size_t blocks = (before + n + KVI_BLOCK - 1) / KVI_BLOCK;
	if (!kvi_array_reserve(alloc, &cache->blocks, &cache->capacity, cache->n, blocks,
	                       sizeof *cache->blocks))
		return kvi_alloc_error(alloc);
	while (cache->n < blocks) {
		kvarc_ret ret = add_block(cache, alloc);
		if (ret)
			return ret;
	}
	for (size_t t = 0; t < n; t++, k += stride, v += stride) {
		size_t at = (before + t) % KVI_BLOCK;
		struct kvi_cache_head *heads = cache->blocks[(before + t) / KVI_BLOCK].heads;
		for (size_t h = 0; h < m->kv_heads; h++)
			put_token(cache->kernels, &heads[h], at, k + h * hd, v + h * hd);
	}
	return KVARC_OK;
}

void kvi_cache_free(struct kvi_cache *cache, const struct kvi_alloc *alloc)
{
	for (size_t i = 0; i < cache->n; i++)
		kvi_free(alloc, cache->blocks[i].heads);
	kvi_free(alloc, cache->blocks);
	cache->blocks = NULL;
	cache->n = cache->capacity = 0;
}
