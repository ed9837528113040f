/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_chunk_plan.c - models, and chunks that have one, as kernels take them */
#include "linear_chunk_plan.h"

#include <string.h>

#include "device_job.h"
#include "numeric/rope_angles.h"

/* Arrays begin at multiples of ALIGN. MEMBERS: of two slots, in work memory. FEATURES: panels of
 * features of a block of a matrix; LANES: of a warp; FEATURE_BYTES: what a lane has of a block;
 * FEATURE_ZERO: the feature that stands for 0. */
enum {
	ALIGN = 16,
	MEMBERS = 2 * 3,
	SLOT_BYTES = 4 * sizeof(uint32_t),
	FEATURES = 4,
	LANES = 32,
	FEATURE_BYTES = 2 * KVI_GPU_PANEL,
	BLOCK_BYTES = LANES * FEATURE_BYTES,
	FEATURE_ZERO = 32768
};

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static size_t at_most(size_t n, size_t limit)
{
	return n < limit ? n : limit;
}

static size_t panels_of(const struct kvi_model *m)
{
	return ((size_t)m->head_channels + KVI_GPU_PANEL - 1) / KVI_GPU_PANEL;
}

/* Heads of few channels fill their panels badly: matrices would be much larger than the model. */
bool kvi_gpu_model_taken(const struct kvi_model *m)
{
	return (uint64_t)m->heads * panels_of(m) * KVI_GPU_PANEL <= KVI_GPU_CHANNELS &&
	       (uint64_t)m->n_ids * m->C <= UINT32_MAX;
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

/* The binary32 pattern of n, which is at least 1 and below 2^24. */
static uint32_t float_pattern(uint32_t n)
{
	uint32_t exponent = 127 + 23;
	for (; n < 1u << 23; n <<= 1)
		exponent--;
	return exponent << 23 | (n & 0x7fffff);
}

/* The numbers of slots. */
static uint64_t put_slots(struct model_arrays *to, const struct kvi_model *m)
{
	uint64_t address;
	uint8_t *p = next_array(to, m->C * SLOT_BYTES, &address);
	for (size_t c = 0; p && c < m->C; c++, p += SLOT_BYTES) {
		const uint32_t qa = m->a_stride ? m->qa[c] : 0, qb = m->b_stride ? m->qb[c] : 0;
		kvi_store32(p, (uint32_t)m->step[c]);
		kvi_store32(p + 4, (uint16_t)m->k[c] | (uint32_t)m->mean[c] << 16);
		kvi_store32(p + 8, qa | qb << 8);
		kvi_store32(p + 12, m->flags & KVI_MODEL_SCALE
		                            ? (1u << 20) - float_pattern(13 * (m->n0 + (uint32_t)c))
		                            : 0);
	}
	return address;
}

/* What is added to a slot's sum: half a unit of q fraction bits, less what features have more. */
static uint32_t offset_of(unsigned q, const int16_t *row, size_t n)
{
	int64_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += row[i];
	return (1u << q >> 1) - (uint32_t)(FEATURE_ZERO * sum);
}

static uint64_t put_offsets(struct model_arrays *to, const struct kvi_model *m)
{
	uint64_t address;
	uint8_t *p = next_array(to, m->C * 2 * sizeof(uint32_t), &address);
	for (size_t c = 0; p && c < m->C; c++, p += 2 * sizeof(uint32_t)) {
		const size_t a = m->a_stride, b = m->b_stride;
		kvi_store32(p, a ? offset_of(m->qa[c], m->a + c * a, a) : 0);
		kvi_store32(p + 4, b ? offset_of(m->qb[c], m->b + c * b, b) : 0);
	}
	return address;
}

/* The low byte of a coefficient goes to `low`, the high one to `high`. */
static void put_coefficient(uint8_t *low, uint8_t *high, int16_t coefficient)
{
	*low = (uint8_t)coefficient;
	*high = (uint8_t)((uint16_t)coefficient >> 8);
}

/* Slots of a panel of a head. */
static size_t slots_of(const struct kvi_model *m, size_t panel)
{
	return at_most(m->head_channels - panel * KVI_GPU_PANEL, KVI_GPU_PANEL);
}

/* Blocks of the panels of some heads. */
static size_t blocks_of(const struct kvi_model *m, size_t heads)
{
	return (heads * panels_of(m) + FEATURES - 1) / FEATURES;
}

static size_t heads_in_scope(const struct kvi_source *s)
{
	return s->scope ? 1 : s->model->heads;
}

/* Own heads that a slot sees, its own one and others before it. */
static size_t own_heads(const struct kvi_model *m)
{
	if (!(m->flags & KVI_MODEL_SELF))
		return 0;
	return m->flags & KVI_MODEL_SELF_HEAD ? 1 : m->heads;
}

static size_t sources_blocks(const struct kvi_source *s, unsigned n)
{
	size_t blocks = 0;
	for (unsigned i = 0; i < n; i++)
		blocks += blocks_of(s[i].model, heads_in_scope(&s[i]));
	return blocks;
}

/* A panel of slots, while its coefficients are put. */
struct slot_panel {
	uint8_t *to;         /* its next block */
	const int16_t *from; /* those of its first slot for the next source */
	size_t stride;       /* to the next slot's */
	size_t slots;
};

/* Puts the coefficients for the first `panels` panels of `heads` heads of a tensor. */
static void put_blocks(struct slot_panel *p, const struct kvi_model *of, size_t heads,
                       size_t panels)
{
	const size_t each = panels_of(of), head = kvi_head_stride(of);
	for (size_t f = 0; f < panels; f++) {
		const int16_t *from = p->from + f / each * head + f % each * KVI_GPU_PANEL;
		uint8_t *to = p->to + (f / FEATURES * LANES + f % FEATURES) * FEATURE_BYTES;
		for (size_t i = 0; i < p->slots * KVI_GPU_PANEL; i++) {
			const size_t slot = i / KVI_GPU_PANEL, k = i % KVI_GPU_PANEL;
			uint8_t *lane = to + slot * FEATURES * FEATURE_BYTES;
			if (k < slots_of(of, f % each))
				put_coefficient(lane + k, lane + KVI_GPU_PANEL + k,
				                from[slot * p->stride + k]);
		}
	}
	p->to += blocks_of(of, heads) * BLOCK_BYTES;
	p->from += heads * head;
}

/* Puts those for all panels of `heads` heads. */
static void put_all(struct slot_panel *p, const struct kvi_model *of, size_t heads)
{
	put_blocks(p, of, heads, heads * panels_of(of));
}

static void put_sources(struct slot_panel *p, const struct kvi_source *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		put_all(p, s[i].model, heads_in_scope(&s[i]));
}

/* Puts a matrix of sources and, `own`, of the tensor's own slots. */
static uint64_t put_matrix(struct model_arrays *to, const struct kvi_model *m, bool own,
                           size_t blocks)
{
	const size_t each = panels_of(m), bytes = m->heads * each * blocks * BLOCK_BYTES;
	const size_t stride = own ? m->b_stride : m->a_stride;
	uint64_t address;
	if (!stride)
		return 0;
	uint8_t *p = next_array(to, bytes, &address);
	if (p)
		memset(p, 0, bytes);
	for (size_t i = 0; p && i < m->heads * each; i++, p += blocks * BLOCK_BYTES) {
		const size_t c = i / each * m->head_channels + i % each * KVI_GPU_PANEL;
		struct slot_panel x = { p, (own ? m->b : m->a) + c * stride, stride,
			                slots_of(m, i % each) };
		put_sources(&x, own ? m->same : m->lower, own ? m->n_same : m->n_lower);
		if (own && own_heads(m))
			put_blocks(&x, m, own_heads(m), own_heads(m) > 1 ? i : i % each);
	}
	return address;
}

/* Puts the coefficients of slots for those before them in their panel. */
static uint64_t put_near(struct model_arrays *to, const struct kvi_model *m)
{
	const size_t heads = own_heads(m);
	uint64_t address;
	if (!heads)
		return 0;
	uint8_t *p = next_array(to, m->C * FEATURE_BYTES, &address);
	for (size_t c = 0; p && c < m->C; c++, p += FEATURE_BYTES) {
		const size_t slot = c % m->head_channels, at = slot % KVI_GPU_PANEL;
		const size_t n = slot < m->rotary ? at & ~(size_t)1 : at;
		const size_t later = heads > 1 ? heads - c / m->head_channels : 1;
		const int16_t *row = m->b + (c + 1) * m->b_stride - later * kvi_head_stride(m);
		memset(p, 0, FEATURE_BYTES);
		for (size_t i = 0; i < n; i++) {
			const size_t f = KVI_GPU_PANEL - n + i, word = f / 4 * 8;
			put_coefficient(p + word + f % 4, p + word + 4 + f % 4, row[slot - at + i]);
		}
	}
	return address;
}

/* Blocks of a row of a correction: of all slots of the sources and of the tensor itself. */
static size_t correction_blocks(const struct kvi_model *m)
{
	size_t blocks = blocks_of(m, m->heads);
	for (unsigned i = 0; i < m->n_same; i++)
		blocks += blocks_of(m->same[i].model, m->same[i].model->heads);
	return m->d_stride ? blocks : 0;
}

static size_t correction_panels(const struct kvi_model *m)
{
	return ((size_t)m->width + KVI_GPU_PANEL - 1) / KVI_GPU_PANEL;
}

/* Puts the matrix of a correction. */
static uint64_t put_correction(struct model_arrays *to, const struct kvi_model *m, size_t blocks)
{
	const size_t bytes = correction_panels(m) * blocks * BLOCK_BYTES;
	uint64_t address;
	uint8_t *p = next_array(to, bytes, &address);
	if (p)
		memset(p, 0, bytes);
	for (size_t i = 0; p && i < m->width; i += KVI_GPU_PANEL, p += blocks * BLOCK_BYTES) {
		struct slot_panel x = { p, m->d + i * m->d_stride, m->d_stride,
			                at_most(m->width - i, KVI_GPU_PANEL) };
		for (unsigned k = 0; k < m->n_same; k++)
			put_all(&x, m->same[k].model, m->same[k].model->heads);
		put_all(&x, m, m->heads);
	}
	return address;
}

/* Puts what is added to the sums of a correction, and what they are multiplied by. */
static uint64_t put_correction_rows(struct model_arrays *to, const struct kvi_model *m)
{
	const size_t bytes = correction_panels(m) * KVI_GPU_PANEL * 2 * sizeof(uint32_t);
	uint64_t address;
	uint8_t *p = next_array(to, bytes, &address);
	if (p)
		memset(p, 0, bytes);
	for (size_t i = 0; p && i < m->width; i++, p += 2 * sizeof(uint32_t)) {
		kvi_store32(p, offset_of(0, m->d + i * m->d_stride, m->d_stride));
		kvi_store32(p + 4, (uint32_t)(127 - m->e[i]) << 23);
	}
	return address;
}

/* Puts a pair of coefficients of a basis for each slot of a panel: low bytes, then high ones. */
static void put_pair(uint8_t *to, const int16_t *from, size_t stride, size_t slots)
{
	for (size_t i = 0; i < slots; i++)
		for (size_t k = 0; k < 2; k++)
			put_coefficient(to + 4 * i + k, to + 4 * i + 2 + k, from[i * stride + k]);
}

/* Puts the basis of codec 14, or rows of the same shape. */
static uint64_t put_basis(struct model_arrays *to, const struct kvi_model *m, const int16_t *rows)
{
	const size_t each = panels_of(m), pairs = m->m_stride / 2;
	const size_t pair_bytes = KVI_GPU_PANEL * sizeof(uint32_t);
	const size_t bytes = m->heads * each * pairs * pair_bytes;
	uint64_t address;
	if (!m->m_stride)
		return 0;
	uint8_t *p = next_array(to, bytes, &address);
	if (p)
		memset(p, 0, bytes);
	for (size_t i = 0; p && i < m->heads * each; i++) {
		const size_t c = i / each * m->head_channels + i % each * KVI_GPU_PANEL;
		for (size_t k = 0; k < pairs; k++, p += pair_bytes)
			put_pair(p, rows + c * m->m_stride + 2 * k, m->m_stride,
			         slots_of(m, i % each));
	}
	return address;
}

static size_t put_model(struct kvi_gpu_model *out, const struct kvi_model *m,
                        struct model_arrays to)
{
	*out = (struct kvi_gpu_model){
		.a_blocks = (uint32_t)sources_blocks(m->lower, m->n_lower),
		.b_blocks =
			(uint32_t)(sources_blocks(m->same, m->n_same) + blocks_of(m, own_heads(m))),
		.d_blocks = (uint32_t)correction_blocks(m),
		.width = m->d_stride ? m->width : 0,
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
	out->slots = put_slots(&to, m);
	out->offsets = put_offsets(&to, m);
	out->a = put_matrix(&to, m, false, out->a_blocks);
	out->b = put_matrix(&to, m, true, out->b_blocks);
	out->near = put_near(&to, m);
	out->basis = put_basis(&to, m, m->m);
	out->qm = put(&to, m->qm, m->m_stride ? m->C : 0);
	if (m->d_stride) {
		out->d = put_correction(&to, m, out->d_blocks);
		out->d_rows = put_correction_rows(&to, m);
	}
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

size_t kvi_gpu_basis_bytes(const struct kvi_model *m)
{
	struct model_arrays to = { 0 };
	put_basis(&to, m, m->m);
	return to.n;
}

void kvi_gpu_basis_fill(const struct kvi_model *m, const int16_t *rows, uint8_t *memory)
{
	struct model_arrays to = { .memory = memory };
	put_basis(&to, m, rows);
}

static void move(uint64_t *address, uint64_t by)
{
	if (*address)
		*address += by;
}

void kvi_gpu_model_move(struct kvi_gpu_model *m, uint64_t by)
{
	uint64_t *const all[] = { &m->slots, &m->offsets, &m->a,     &m->b, &m->near,  &m->basis,
		                  &m->qm,    &m->ids,     &m->table, &m->d, &m->d_rows };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		move(all[i], by);
}

/* ----- chunks ------------------------------------------------ */

/* Whether bases begin with the predictions of an engine. */
static bool expects(const struct kvi_model *m)
{
	return m->level >= KVI_LEVEL_MODEL && m->level != KVI_LEVEL_BASIS;
}

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
	const bool all = s->features == KVI_GPU_FEATURES_ALL, predicts = all || s->transforms;
	const size_t n = kvi_padded_tokens(s->tokens), pairs = m->rotary / 2;
	const size_t features = m->heads * panels_of(m) * n * FEATURE_BYTES;
	struct kvi_gpu_linear unused, *l = out ? out : &unused;
	uint64_t at = work, to = kept;
	l->features = s->features;
	l->predicts = predicts;
	l->turns = take(&at, pairs * n * sizeof(uint32_t));
	l->classes = take(&at, pairs * n);
	l->elements = take(&at, s->coded ? m->C * n * sizeof(uint16_t) : 0);
	l->bases = take(&at, predicts ? m->C * n * sizeof(int16_t) : 0);
	l->sums = take(&at, all && m->b_stride ? m->C * n * sizeof(int32_t) : 0);
	l->r = take(&at, all ? features : 0);
	l->w = take(&at, all ? n * sizeof(uint32_t) : 0);
	l->rows = take(&at, m->flags & KVI_MODEL_TABLE ? n * sizeof(uint32_t) : 0);
	l->slots = take(&at, all ? MEMBERS * n * sizeof(uint32_t) : 0);
	l->expects.e = take(&at, all && expects(m) ? m->C * s->tokens * sizeof(int16_t) : 0);
	l->expects.hashes = take(&at, all && expects(m) ? KVI_GPU_HASHES * sizeof(uint64_t) : 0);
	if (!all || !expects(m))
		l->expects.e = l->expects.hashes = 0;
	l->kept = take(&to, sizeof(struct kvi_gpu_kept));
	l->z = s->z ? take(&to, features) : 0;
	return (struct kvi_gpu_linear_bytes){ (size_t)(at - work), (size_t)(to - kept) };
}

void kvi_gpu_linear_move(struct kvi_gpu_linear *l, uint64_t constants, uint64_t work)
{
	uint64_t *const given[] = { &l->model, &l->ids, &l->frequencies };
	struct kvi_gpu_expects *e = &l->expects;
	uint64_t *const own[] = { &l->elements,   &l->bases,        &l->sums,  &l->r,
		                  &l->w,          &l->rows,         &l->turns, &l->classes,
		                  &l->slots,      &l->kept,         &l->z,     &l->scale_w,
		                  &l->scale_kept, &l->scale_hashes, &e->p,     &e->e,
		                  &e->hashes,     &e->numbers,      &e->h,     &e->root,
		                  &e->lost };
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
		move(&l->same[i].hashes, work);
	}
}

struct kvi_gpu_source kvi_gpu_source_of(const struct kvi_source *s,
                                        const struct kvi_gpu_linear *from)
{
	const bool z = s->delta || s->model->level == KVI_LEVEL_BASIS;
	return (struct kvi_gpu_source){ .features = z ? from->z : from->r,
		                        .kept = from->kept,
		                        .hashes = from->expects.hashes,
		                        .heads = s->model->heads,
		                        .panels = (uint32_t)panels_of(s->model),
		                        .scope = s->scope };
}

uint32_t kvi_gpu_scale_n(const struct kvi_model *m)
{
	return m->flags & KVI_MODEL_SCALE ? m->n0 + (uint32_t)m->C : 1;
}
