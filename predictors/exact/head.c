/* SPDX-License-Identifier: BSD-3-Clause */
/* head.c - the last norm and the output matrix of a model (spec/arithmetic.md 11) */
#include "exact/head.h"

#include "exact/engine_internal.h"
#include "util/fpmode.h"

struct kvi_head {
	struct kvi_run_options o;
	const struct kvi_exact_kernels *kernels;
	const struct kvi_elementwise *elementwise;
	size_t width, stride; /* floats of a row of x, of z */
	float *x, *z;
	void *activations;
};

static size_t round_to_rows(size_t n)
{
	return (n + KVI_OPERAND_ROWS - 1) / KVI_OPERAND_ROWS * KVI_OPERAND_ROWS;
}

static kvarc_ret open_rows(struct kvi_head *head)
{
	const struct kvi_operand *w = &head->o.engine->output;
	const struct kvi_alloc *alloc = head->o.alloc;
	size_t bytes;
	head->width = round_to_rows(w->columns);
	head->stride = round_to_rows(w->rows);
	if (!kvi_activations_bytes(KVI_HEAD_TOKENS, w->columns, w->group, true, &bytes))
		return KVARC_MEM;
	head->x = kvi_array(alloc, head->width, KVI_HEAD_TOKENS * sizeof(float));
	head->z = kvi_array(alloc, head->stride, KVI_HEAD_TOKENS * sizeof(float));
	head->activations = kvi_malloc(alloc, bytes);
	return head->x && head->z && head->activations ? KVARC_OK : kvi_alloc_error(alloc);
}

kvarc_ret kvi_head_open(struct kvi_head **out, const struct kvi_run_options *options)
{
	struct kvi_head *head = kvi_calloc(options->alloc, 1, sizeof *head);
	*out = head;
	if (!head)
		return kvi_alloc_error(options->alloc);
	head->o = *options;
	head->kernels = options->kernels ? options->kernels
	                                 : kvi_exact_kernels_get(options->isa_mask);
	head->elementwise = kvi_elementwise_get(options->isa_mask);
	kvarc_ret ret = open_rows(head);
	if (ret)
		kvi_head_close(out);
	return ret;
}

void kvi_head_close(struct kvi_head **out)
{
	struct kvi_head *head = *out;
	if (!head)
		return;
	const struct kvi_alloc *alloc = head->o.alloc;
	kvi_free(alloc, head->x);
	kvi_free(alloc, head->z);
	kvi_free(alloc, head->activations);
	kvi_free(alloc, head);
	*out = NULL;
}

/* Caps n logits: cap * tanh(z / cap) by the exact exp; cap 0: nothing is done. */
static void cap_logits(const struct kvi_head *head, float *z, size_t n)
{
	float cap = head->o.engine->file->logit_cap;
	for (size_t i = 0; cap > 0 && i < n; i++) {
		float x = z[i] / cap, size = x < 0 ? -x : x;
		float e = head->elementwise->exp(-(2 * size));
		float tanh = (1 - e) / (1 + e);
		z[i] = cap * (x >= 0 ? tanh : -tanh);
	}
}

struct kvi_logits kvi_head_logits(struct kvi_head *head, const float *h, size_t stride, size_t n)
{
	const struct kvi_engine *e = head->o.engine;
	const struct kvi_operand *w = &e->output;
	struct kvi_activations a;
	uint64_t mode = kvi_fp_exact();
	for (size_t t = 0; t < n; t++)
		head->elementwise->norm(head->x + t * head->width, h + t * stride, e->output_norm,
		                        e->output_norm_bias, w->columns, e->file->norm_epsilon);
	kvi_activations_init(&a, head->activations, n, w->columns, w->group,
	                     kvi_wide(&e->arithmetic, KVI_MATRIX_HEAD));
	head->kernels->quantise(&a, head->x, head->width, 0, n);
	const struct kvi_product p = { .a = &a,
		                       .w = w,
		                       .blocks = kvi_operand_blocks(w),
		                       .y = head->z,
		                       .y_stride = head->stride };
	kvi_product_all(head->kernels, head->o.pool, &p);
	for (size_t t = 0; t < n; t++)
		cap_logits(head, head->z + t * head->stride, w->rows);
	kvi_fp_restore(mode);
	return (struct kvi_logits){ head->z, head->stride };
}

static uint32_t weight_of(float z, float most)
{
	/* NaN; or exp(-15) * 2^20 < 1/2, as for most of the vocabulary */
	if (!(z - most > -15))
		return 0;
	float x = kvi_elementwise_scalar.exp(z - most) * 0x1p20f;
	return (uint32_t)((x + 12582912.0f) - 12582912.0f); /* rint */
}

static float most_of(const float *z, size_t n)
{
	float most = z[0];
	for (size_t k = 1; k < n; k++)
		most = z[k] > most ? z[k] : most;
	return most;
}

uint64_t kvi_head_pick_weights(const float *z, size_t n, uint32_t *w)
{
	uint64_t mode = kvi_fp_exact(), sum = 0;
	float most = most_of(z, n);
	for (size_t k = 0; k < n; k++)
		sum += w[k] = weight_of(z[k], most);
	kvi_fp_restore(mode);
	return sum;
}

size_t kvi_head_pick(const float *z, size_t n, uint64_t random)
{
	uint64_t mode = kvi_fp_exact(), sum = 0, below = 0, at;
	float most = most_of(z, n);
	size_t i = 0;
	for (size_t k = 0; k < n; k++)
		sum += weight_of(z[k], most);
	/* floor((random >> 24) * sum / 2^40) in 64 bits: sum <= 2^44, so 20 bits times it fit */
	at = ((random >> 44) * sum + ((random >> 24 & 0xfffff) * sum >> 20)) >> 20;
	while (i + 1 < n && (below += weight_of(z[i], most)) <= at)
		i++;
	kvi_fp_restore(mode);
	return i;
}

/* Parts of the vocabulary: one step of a worker, with a sum of its own. */
enum { PART_TOKENS = 2048, PARTS_MAX = KVI_HEAD_VOCAB_MAX / PART_TOKENS };

struct weighing {
	const float *z;
	size_t n;
	float most;
	uint32_t *weights;
	uint64_t sums[PARTS_MAX];
};

static void weigh_part(void *opaque, size_t step, unsigned worker)
{
	struct weighing *w = opaque;
	size_t i = step * PART_TOKENS;
	size_t end = w->n - i < PART_TOKENS ? w->n : i + PART_TOKENS;
	uint64_t sum = 0;
	(void)worker;
	for (; i < end; i++) {
		float x = w->z[i] - w->most;
		w->weights[i] = 1;
		if (x > -17) /* false for NaN; exp(-17) * 2^24 < 1 */
			w->weights[i] += (uint32_t)(kvi_elementwise_scalar.exp(x) * 0x1p24f);
		sum += w->weights[i];
	}
	w->sums[step] = sum;
}

uint64_t kvi_head_coder_weights(struct kvi_pool *pool, const float *z, size_t n, uint32_t *weights)
{
	struct weighing w = { .z = z, .n = n, .most = most_of(z, n), .weights = weights };
	size_t steps = (n + PART_TOKENS - 1) / PART_TOKENS;
	uint64_t sum = 0;
	kvi_parallel(pool, steps, weigh_part, &w);
	for (size_t i = 0; i < steps; i++)
		sum += w.sums[i];
	return sum;
}
