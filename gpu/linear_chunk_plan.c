/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_chunk_plan.c - models, and chunks that have one, as kernels take them */
#include "linear_chunk_plan.h"

#include <string.h>

#include "device_job.h"
#include "numeric/rope_angles.h"

/* Arrays begin at multiples of ALIGN. MEMBERS: of two slots, in work memory. */
enum { ALIGN = 16, MEMBERS = 2 * 3 };

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

bool kvi_gpu_model_taken(const struct kvi_model *m)
{
	return m->C <= KVI_GPU_CHANNELS && (uint64_t)m->n_ids * m->C <= UINT32_MAX &&
	       !(m->flags & (KVI_MODEL_CORRECTS | KVI_MODEL_BASIS));
}

/* ----- models ------------------------------------------------ */

/* A memory that is filled from its begin on. */
struct model_arrays {
	uint8_t *memory; /* NULL: sizes alone are wanted */
	uint64_t address;
	size_t n;
};

/* The next array of `bytes` bytes; *address: where kernels find it. NULL: sizes alone. */
static uint8_t *next_array(struct model_arrays *to, size_t bytes, uint64_t *address)
{
	uint8_t *p = to->memory ? to->memory + to->n : NULL;
	*address = to->address + to->n;
	to->n += aligned(bytes);
	return p;
}

/* An array as it is. */
static uint64_t put(struct model_arrays *to, const void *from, size_t bytes)
{
	uint64_t address;
	uint8_t *p = next_array(to, bytes, &address);
	if (p && bytes)
		memcpy(p, from, bytes);
	return address;
}

static uint64_t put_means(struct model_arrays *to, const struct kvi_model *m)
{
	uint64_t address;
	uint8_t *p = next_array(to, m->C * sizeof(int16_t), &address);
	for (size_t c = 0; p && c < m->C; c++, p += 2)
		kvi_store16(p, (uint16_t)m->mean[c]); /* |mean| is at most 32767 */
	return address;
}

/* Two coefficients: the low bytes, then the high ones. */
static uint32_t split(const int16_t c[2])
{
	const uint32_t a = (uint16_t)c[0], b = (uint16_t)c[1];
	return (a & 255) | (b & 255) << 8 | a >> 8 << 16 | b >> 8 << 24;
}

/* The rows of a panel, pair after pair. */
static void put_panel(uint8_t *to, const int16_t *rows, size_t stride, size_t slots)
{
	for (size_t pair = 0; pair < stride / 2; pair++)
		for (size_t i = 0; i < KVI_GPU_PANEL; i++, to += sizeof(uint32_t))
			kvi_store32(to, i < slots ? split(rows + i * stride + 2 * pair) : 0);
}

static uint64_t put_matrix(struct model_arrays *to, const struct kvi_model *m, const int16_t *rows,
                           size_t stride)
{
	const size_t n = m->head_channels, panels = (n + KVI_GPU_PANEL - 1) / KVI_GPU_PANEL;
	const size_t panel = stride / 2 * KVI_GPU_PANEL * sizeof(uint32_t);
	uint64_t address;
	if (!stride)
		return 0;
	uint8_t *p = next_array(to, m->heads * panels * panel, &address);
	for (size_t h = 0; p && h < m->heads; h++)
		for (size_t first = 0; first < n; first += KVI_GPU_PANEL, p += panel)
			put_panel(p, rows + (h * n + first) * stride, stride,
			          n - first < KVI_GPU_PANEL ? n - first : KVI_GPU_PANEL);
	return address;
}

static size_t put_model(struct kvi_gpu_model *out, const struct kvi_model *m,
                        struct model_arrays to)
{
	*out = (struct kvi_gpu_model){
		.a_pairs = (uint32_t)m->a_stride / 2,
		.b_pairs = (uint32_t)m->b_stride / 2,
		.n_ids = m->n_ids,
		.tshift = m->tshift,
		.unknown = m->unknown,
		.heads = m->heads,
		.head_channels = m->head_channels,
		.rotary = m->rotary,
		.flags = m->flags,
		.n0 = m->n0,
		.beta = m->beta,
		.n_lower = m->n_lower,
		.n_same = m->n_same,
	};
	out->step = put(&to, m->step, m->C * sizeof *m->step);
	out->k = put(&to, m->k, m->C * sizeof *m->k);
	out->mean = put_means(&to, m);
	out->qa = put(&to, m->qa, m->a_stride ? m->C : 0);
	out->qb = put(&to, m->qb, m->b_stride ? m->C : 0);
	out->a = put_matrix(&to, m, m->a, m->a_stride);
	out->b = put_matrix(&to, m, m->b, m->b_stride);
	if (m->n_ids) {
		out->ids = put(&to, m->ids, m->n_ids * sizeof *m->ids);
		out->table = put(&to, m->table, m->n_ids * m->C);
	}
	return to.n;
}

size_t kvi_gpu_model_bytes(const struct kvi_model *m)
{
	struct kvi_gpu_model unused;
	return put_model(&unused, m, (struct model_arrays){ 0 });
}

void kvi_gpu_model_fill(struct kvi_gpu_model *out, const struct kvi_model *m, uint8_t *memory,
                        uint64_t address)
{
	put_model(out, m, (struct model_arrays){ memory, address, 0 });
}

static void move(uint64_t *address, uint64_t by)
{
	if (*address)
		*address += by;
}

void kvi_gpu_model_move(struct kvi_gpu_model *m, uint64_t by)
{
	uint64_t *const all[] = { &m->step, &m->k, &m->mean, &m->qa,   &m->qb,
		                  &m->a,    &m->b, &m->ids,  &m->table };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		move(all[i], by);
}

/* ----- chunks ------------------------------------------------ */

/* Takes `bytes` of a memory that is taken up to *at; returns their address. */
static uint64_t take(uint64_t *at, size_t bytes)
{
	const uint64_t address = *at;
	*at += aligned(bytes);
	return address;
}

struct kvi_gpu_linear_bytes kvi_gpu_linear_place(struct kvi_gpu_linear *out,
                                                 const struct kvi_gpu_linear_shape *s,
                                                 uint64_t work, uint64_t kept)
{
	const struct kvi_model *m = s->model;
	const bool all = s->features == KVI_GPU_FEATURES_ALL;
	const size_t n = kvi_padded_tokens(s->tokens), pairs = m->rotary / 2;
	const size_t rows = m->heads * kvi_head_stride(m) / 2 * n * sizeof(uint32_t);
	struct kvi_gpu_linear unused, *l = out ? out : &unused;
	uint64_t at = work, to = kept;
	l->features = s->features;
	l->turns = take(&at, pairs * n * sizeof(uint32_t));
	l->classes = take(&at, pairs * n);
	l->elements = take(&at, s->coded ? m->C * n * sizeof(uint16_t) : 0);
	l->bases = take(&at, all ? m->C * n * sizeof(int16_t) : 0);
	l->sums = take(&at, all && m->b_stride ? m->C * n * sizeof(int32_t) : 0);
	l->r = take(&at, all ? rows : 0);
	l->w = take(&at, all ? n * sizeof(uint32_t) : 0);
	l->rows = take(&at, m->flags & KVI_MODEL_TABLE ? n * sizeof(uint32_t) : 0);
	l->slots = take(&at, all ? MEMBERS * n * sizeof(uint32_t) : 0);
	l->kept = take(&to, sizeof(struct kvi_gpu_kept));
	l->z = s->z ? take(&to, rows) : 0;
	return (struct kvi_gpu_linear_bytes){ (size_t)(at - work), (size_t)(to - kept) };
}

void kvi_gpu_linear_move(struct kvi_gpu_linear *l, uint64_t constants, uint64_t work)
{
	uint64_t *const given[] = { &l->model, &l->ids, &l->frequencies };
	uint64_t *const own[] = { &l->elements, &l->bases,   &l->sums,      &l->r,     &l->w,
		                  &l->rows,     &l->turns,   &l->classes,   &l->slots, &l->kept,
		                  &l->z,        &l->scale_w, &l->scale_kept };
	for (size_t i = 0; i < sizeof given / sizeof *given; i++)
		move(given[i], constants);
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		move(own[i], work);
	for (size_t i = 0; i < KVI_GPU_LOWER; i++) {
		move(&l->lower[i].features, work);
		move(&l->lower[i].kept, work);
	}
	for (size_t i = 0; i < KVI_GPU_SAME; i++) {
		move(&l->same[i].features, work);
		move(&l->same[i].kept, work);
	}
}

struct kvi_gpu_source kvi_gpu_source_of(const struct kvi_source *s,
                                        const struct kvi_gpu_linear *from)
{
	return (struct kvi_gpu_source){ .features = s->delta ? from->z : from->r,
		                        .kept = from->kept,
		                        .heads = s->model->heads,
		                        .pairs = (uint32_t)kvi_head_stride(s->model) / 2,
		                        .scope = s->scope };
}

uint32_t kvi_gpu_scale_n(const struct kvi_model *m)
{
	return m->flags & KVI_MODEL_SCALE ? m->n0 + (uint32_t)m->C : 1;
}
