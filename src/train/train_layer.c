/* SPDX-License-Identifier: BSD-3-Clause */
/* train_layer.c - a layer comes in: elements, features, weights of tokens */
#include "train_layer.h"
#include "train_predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numeric/formats.h"
#include "kernels/linear_formulas.h"
#include "numeric/rope_angles.h"
#include "numeric/rotate.h"
#include "train_run.h"

enum { LIMIT = 32767 };

void kvi_train_layer_free(kvarc_trainer *trainer, struct kvi_train_layer *layer)
{
	for (size_t i = 0; i < layer->n; i++) {
		struct kvi_train_tensor *x = &layer->tensors[i];
		kvi_free(&trainer->alloc, x->z);
		kvi_free(&trainer->alloc, x->expected);
		kvi_free(&trainer->alloc, x->raw);
		kvi_free(&trainer->alloc, x->raw_at);
		kvi_free(&trainer->alloc, x->mean);
		kvi_free(&trainer->alloc, x->step);
		kvi_free(&trainer->alloc, x->sigma);
	}
	memset(layer, 0, sizeof *layer);
}

void kvi_train_layer_rest(kvarc_trainer *trainer, struct kvi_train_layer *layer)
{
	for (size_t i = 0; i < layer->n; i++) {
		kvi_free(&trainer->alloc, layer->tensors[i].raw);
		layer->tensors[i].raw = NULL;
	}
}

/* The elements of shape i of a stack in all its caches. */
static kvarc_ret load(kvarc_trainer *trainer, const struct kvi_train_stack *stack, size_t i,
                      struct kvi_train_tensor *tensor)
{
	size_t bytes = 0;
	kvarc_ret ret = KVARC_OK;
	for (size_t k = 0; k < stack->n_caches; k++) {
		const struct kvi_train_cache *c = stack->caches[k];
		tensor->raw_at[k] = bytes;
		bytes += c->n * kvi_tensor_bytes(kvi_train_tensor_of(c, i));
	}
	tensor->raw = kvi_malloc(&trainer->alloc, bytes);
	if (!tensor->raw)
		return kvi_train_no_memory(trainer);
	for (size_t k = 0; k < stack->n_caches && !ret; k++) {
		const struct kvi_train_cache *c = stack->caches[k];
		uint32_t most = c->reader && c->every == 1 ? (uint32_t)c->n : KVI_TRAIN_BLOCK;
		uint8_t *to = tensor->raw + tensor->raw_at[k];
		for (size_t t0 = 0; t0 < c->n && !ret; t0 += most) {
			uint32_t n = c->n - t0 < most ? (uint32_t)(c->n - t0) : most;
			ret = kvi_train_fetch(trainer, c, c->tensors[i], t0, n, to);
			to += (size_t)n * kvi_tensor_bytes(kvi_train_tensor_of(c, i));
		}
	}
	return ret;
}

/* Element i as the grid codec codes it. */
static uint32_t element(unsigned dtype, const uint8_t *raw, size_t i)
{
	switch (dtype) {
	case KVARC_F32:
		return kvi_load16(raw + 4 * i + 2);
	case KVARC_E4M3:
	case KVARC_E5M2:
		return raw[i];
	default:
		return kvi_load16(raw + 2 * i);
	}
}

void kvi_train_channels(const kvarc_trainer *trainer, unsigned dtype, const uint8_t *raw, size_t n,
                        size_t width, uint16_t *to)
{
	if (kvarc_dtype_bytes(dtype) == sizeof *to) {
		const uint16_t *from = (const uint16_t *)(const void *)raw;
		kvi_kernels_get(trainer->options.common.isa_mask)
			->moves.transpose16(to, from, n, width);
		return;
	}
	for (size_t v = 0; v < n; v++, raw += width * kvarc_dtype_bytes(dtype))
		for (size_t c = 0; c < width; c++)
			to[c * n + v] = (uint16_t)element(dtype, raw, c);
}

void kvi_train_integers(const kvarc_trainer *trainer, const struct kvi_train_stack *stack, size_t k,
                        size_t shape, const struct kvi_train_tensor *tensor, size_t t0, size_t n,
                        int32_t *X, int32_t *U)
{
	const struct kvi_train_cache *c = stack->caches[k];
	const kvarc_tensor *g = kvi_train_tensor_of(c, shape);
	const kvarc_rope *rope = kvi_tensor_rope(&c->geometry, g);
	const struct kvi_grid_format *f = &kvi_float_format(g->dtype)->grid;
	size_t head_rows = kvi_train_head_stride(tensor->shape), channels = g->channels;
	const uint8_t *raw = tensor->raw + tensor->raw_at[k] + t0 * kvi_tensor_bytes(g);
	uint16_t *elements = (uint16_t *)(void *)U; /* U follows from X */
	kvi_train_channels(trainer, g->dtype, raw, n, kvi_tensor_width(g), elements);
	for (size_t h = 0; h < g->heads; h++)
		for (size_t i = 0; i < channels; i++) {
			size_t row = h * head_rows + i;
			size_t at = h * channels + kvi_rope_channel(rope, i);
			trainer->kernels->integers(X + row * KVI_TRAIN_BLOCK, elements + at * n, f,
			                           tensor->step[row], n);
		}
	kvi_train_remove_rope(stack, k, shape, tensor, t0, n, X, U);
}

void kvi_train_remove_rope(const struct kvi_train_stack *stack, size_t k, size_t shape,
                           const struct kvi_train_tensor *tensor, size_t t0, size_t n,
                           const int32_t *X, int32_t *U)
{
	const struct kvi_train_cache *c = stack->caches[k];
	const kvarc_tensor *g = kvi_train_tensor_of(c, shape);
	const kvarc_rope *rope = kvi_tensor_rope(&c->geometry, g);
	size_t head_rows = kvi_train_head_stride(tensor->shape);
	for (size_t r = 0; r < tensor->rows; r++)
		memcpy(U + r * KVI_TRAIN_BLOCK, X + r * KVI_TRAIN_BLOCK, n * sizeof *U);
	for (size_t i = 0; rope && i < rope->rotary / 2; i++)
		for (size_t v = 0; v < n; v++) {
			struct kvi_pair_rotation w = kvi_pair_rotation(rope->freq[i],
			                                               c->positions[t0 + v]);
			for (size_t h = 0; h < g->heads; h++) {
				size_t at = (h * head_rows + 2 * i) * KVI_TRAIN_BLOCK + v;
				int32_t a = X[at], b = X[at + KVI_TRAIN_BLOCK];
				int32_t u[2];
				kvi_linear_remove_rope(a, b, w.cosine, w.sine, u);
				U[at] = u[0];
				U[at + KVI_TRAIN_BLOCK] = u[1];
			}
		}
}

/* ---- features and weights ---- */

/* Tokens with values that are no numbers are not fitted, here and above. */
static void mark_bad(const struct kvi_train_stack *stack, size_t shape,
                     const struct kvi_train_tensor *tensor, struct kvi_train_weights *w)
{
	w->fitted = 0;
	for (size_t k = 0; k < stack->n_caches; k++) {
		const struct kvi_train_cache *c = stack->caches[k];
		const kvarc_tensor *g = kvi_train_tensor_of(c, shape);
		size_t width = kvi_tensor_width(g);
		const uint8_t *raw = tensor->raw + tensor->raw_at[k];
		for (size_t i = 0; i < c->n; i++, raw += kvi_tensor_bytes(g)) {
			bool ok = kvi_floats_finite(g->dtype, raw, width);
			w->n_bad += !ok && !w->bad[c->first + i];
			w->bad[c->first + i] |= !ok;
			w->fitted += i < c->held && !w->bad[c->first + i];
		}
	}
}

struct blocks_job {
	kvarc_trainer *t;
	const struct kvi_train_stack *stack;
	size_t shape;
	struct kvi_train_tensor *x;
	atomic_bool failed;
};

void kvi_train_fill_z(const struct kvi_train_kernels *kernels, struct kvi_train_tensor *tensor,
                      size_t at, size_t n, const int32_t *U)
{
	for (size_t r = 0; r < tensor->rows; r++)
		kernels->centred(tensor->z + r * tensor->capacity + at, U + r * KVI_TRAIN_BLOCK,
		                 tensor->expected ? tensor->expected + r * tensor->capacity + at
		                                  : NULL,
		                 tensor->mean[r], n);
}

/* z of cache k */
static void fill_z(void *arg, size_t k)
{
	struct blocks_job *j = arg;
	struct kvi_train_tensor *x = j->x;
	const struct kvi_train_cache *c = j->stack->caches[k];
	size_t entries = x->rows * KVI_TRAIN_BLOCK;
	int32_t *X = kvi_calloc(&j->t->alloc, 2 * entries, sizeof *X);
	if (!X) {
		atomic_store(&j->failed, true);
		return;
	}
	for (size_t t0 = 0; t0 < c->n; t0 += KVI_TRAIN_BLOCK) {
		size_t n = c->n - t0 < KVI_TRAIN_BLOCK ? c->n - t0 : KVI_TRAIN_BLOCK;
		kvi_train_integers(j->t, j->stack, k, j->shape, x, t0, n, X, X + entries);
		kvi_train_fill_z(j->t->kernels, x, c->first + t0, n, X + entries);
	}
	kvi_free(&j->t->alloc, X);
}

double kvi_train_sum_sizes(const struct kvi_train_kernels *kernels,
                           const struct kvi_train_layer *layer, size_t n, float *sum)
{
	double count = 0;
	memset(sum, 0, n * sizeof *sum);
	for (size_t i = 0; i < layer->n; i++) {
		const struct kvi_train_tensor *x = &layer->tensors[i];
		for (size_t r = 0; r < x->rows; r++) {
			const int16_t *z = x->z + r * x->capacity;
			if (!(x->sigma[r] > 0))
				continue;
			count++;
			kernels->sizes(sum, z, (float)(1 / x->sigma[r]), n);
		}
	}
	return count;
}

/* Weighs each token by one over its mean |z| / sigma over all channels of the layer. In the lowest
 * layer all tokens count the same, which was measured to be worth 0.05 bit: a large value there
 * belongs to a token's id, not to chance. */
void kvi_train_weigh_tokens(const struct kvi_train_kernels *kernels,
                            const struct kvi_train_layer *layer,
                            const struct kvi_train_stack *stack, bool lowest,
                            struct kvi_train_weights *w)
{
	double count = lowest ? 0 : kvi_train_sum_sizes(kernels, layer, stack->n_tokens, w->w);
	for (size_t v = 0; v < stack->n_tokens; v++) {
		/* a normal deviate is 0.8 sigma in the mean */
		float scale = count > 0 ? w->w[v] / (float)count * 1.25f : 1;
		w->w[v] = w->bad[v] ? 0 : 1 / (scale < 0.5f ? 0.5f : scale > 16 ? 16 : scale);
	}
	for (size_t k = 0; k < stack->n_caches; k++) /* tokens that are only measured */
		memset(w->w + stack->caches[k]->first + stack->caches[k]->held, 0,
		       (stack->caches[k]->n - stack->caches[k]->held) * sizeof *w->w);
}

struct mean_job {
	const struct kvi_train_kernels *kernels;
	const struct kvi_train_stack *stack;
	struct kvi_train_tensor *x;
	const float *w;
};

int32_t kvi_train_shifted(int32_t mean, double by)
{
	by = by > LIMIT ? LIMIT : by < -LIMIT ? -LIMIT : by;
	return kvi_train_clamp(mean + (int32_t)(by < 0 ? by - 0.5 : by + 0.5), LIMIT);
}

void kvi_train_centre_row(const struct kvi_train_kernels *kernels, struct kvi_train_tensor *tensor,
                          size_t r, int32_t mean, size_t n_tokens)
{
	if (mean != tensor->mean[r])
		kernels->shifted(tensor->z + r * tensor->capacity, mean - tensor->mean[r],
		                 n_tokens);
}

/* The mean that tokens have by weight becomes the mean of the model. */
static void centre(void *arg, size_t r)
{
	const struct mean_job *j = arg;
	struct kvi_train_tensor *x = j->x;
	const int16_t *z = x->z + r * x->capacity;
	double s0 = 0, s1 = 0;
	for (size_t v = 0; v < j->stack->n_tokens; v++) {
		double w = (double)j->w[v] * j->w[v];
		s0 += w;
		s1 += w * z[v];
	}
	if (!(s0 > 0))
		return;
	int32_t mean = kvi_train_shifted(x->mean[r], s1 / s0);
	kvi_train_centre_row(j->kernels, x, r, mean, j->stack->n_tokens);
	x->mean[r] = mean;
}

static kvarc_ret open_tensor(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                             size_t shape, struct kvi_train_tensor *tensor)
{
	const struct kvi_train_shape *p = &stack->shapes[shape];
	tensor->shape = p;
	tensor->rotary = p->rope ? trainer->ropes[p->rope - 1].rotary : 0;
	tensor->rows = kvi_train_rows(p);
	tensor->capacity = (stack->n_tokens + 127) & ~(size_t)63;
	tensor->raw_at = kvi_calloc(&trainer->alloc, stack->n_caches, sizeof *tensor->raw_at);
	tensor->mean = kvi_calloc(&trainer->alloc, tensor->rows, sizeof *tensor->mean);
	tensor->step = kvi_calloc(&trainer->alloc, tensor->rows, sizeof *tensor->step);
	tensor->sigma = kvi_calloc(&trainer->alloc, tensor->rows, sizeof *tensor->sigma);
	tensor->z = kvi_calloc(&trainer->alloc, tensor->rows, tensor->capacity * sizeof *tensor->z);
	return tensor->raw_at && tensor->mean && tensor->step && tensor->sigma && tensor->z
	               ? KVARC_OK
	               : kvi_train_no_memory(trainer);
}

static kvarc_ret make_z(kvarc_trainer *trainer, const struct kvi_train_stack *stack, size_t shape,
                        struct kvi_train_tensor *tensor)
{
	struct blocks_job j = { trainer, stack, shape, tensor, false };
	kvi_train_parallel(trainer, stack->n_caches, fill_z, &j);
	return atomic_load(&j.failed) ? kvi_train_no_memory(trainer) : KVARC_OK;
}

kvarc_ret kvi_train_layer_take(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                               size_t first, size_t n, const struct kvi_model *const model[],
                               struct kvi_train_layer *layer)
{
	kvarc_ret ret = KVARC_OK;
	memset(layer, 0, sizeof *layer);
	layer->n = n;
	for (size_t i = 0; i < n && !ret; i++) {
		struct kvi_train_tensor *x = &layer->tensors[i];
		ret = open_tensor(trainer, stack, first + i, x);
		if (!ret)
			ret = load(trainer, stack, first + i, x);
		for (size_t c = 0; c < model[i]->C && !ret; c++) {
			size_t row = kvi_train_row_of(model[i], c);
			x->step[row] = model[i]->step[c];
			x->mean[row] = model[i]->mean[c];
		}
		if (!ret)
			ret = make_z(trainer, stack, first + i, x);
	}
	return ret;
}

kvarc_ret kvi_train_layer_load(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                               size_t first, size_t n, struct kvi_train_weights *w,
                               struct kvi_train_layer *layer)
{
	kvarc_ret ret = KVARC_OK;
	memset(layer, 0, sizeof *layer);
	layer->n = n;
	for (size_t i = 0; i < n && !ret; i++) {
		ret = open_tensor(trainer, stack, first + i, &layer->tensors[i]);
		if (!ret)
			ret = load(trainer, stack, first + i, &layer->tensors[i]);
		if (!ret)
			mark_bad(stack, first + i, &layer->tensors[i], w);
		if (trainer->predictor)
			layer->tensors[i].predicted = kvi_train_walk_rows(
				&trainer->predictor->real, stack->shapes[first + i].kind);
	}
	for (size_t i = 0; i < n && !ret; i++) {
		struct kvi_train_tensor *x = &layer->tensors[i];
		ret = kvi_train_fit_steps(trainer, stack, first + i, x, w);
		if (!ret)
			ret = kvi_train_expect(trainer, stack, x);
		if (!ret)
			ret = make_z(trainer, stack, first + i, x);
	}
	if (!ret)
		kvi_train_weigh_tokens(trainer->kernels, layer, stack,
		                       first == 0 && !trainer->predictor, w);
	for (size_t i = 0; i < n && !ret; i++) {
		struct mean_job j = { trainer->kernels, stack, &layer->tensors[i], w->w };
		kvi_train_parallel(trainer, layer->tensors[i].rows, centre, &j);
	}
	return ret;
}
