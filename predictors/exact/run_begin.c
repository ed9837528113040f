/* SPDX-License-Identifier: BSD-3-Clause */
/* run_begin.c - tokens come into a run, and leave it (spec/arithmetic.md 8) */
#include <string.h>

#include "util/fpmode.h"
#include "exact/run_state.h"

static bool id_row(const struct kvi_model_file *file, int32_t id, float *row)
{
	return id >= 0 && (uint32_t)id < file->vocabulary &&
	       kvi_matrix_row(&file->embedding, (uint64_t)id, row);
}

/* Rows of the embedding, or others in their place, and of positions. */
static kvarc_ret embed(struct kvi_run *r, const int32_t *ids, const float *rows,
                       const int32_t *positions)
{
	const struct kvi_model_file *m = r->m;
	for (size_t t = 0; t < r->n; t++) {
		float *h = r->h + t * r->width;
		if (rows)
			memcpy(h, rows + t * m->width, m->width * sizeof *h);
		else if (!id_row(m, ids[t], h))
			return KVARC_DATA;
		for (size_t i = 0; i < m->width; i++)
			h[i] = h[i] * m->embedding_scale;
		kvi_run_round(r, h, m->width);
		if (!m->positions.data)
			continue;
		if (positions[t] < 0 || (uint32_t)positions[t] >= m->positions.rows)
			return KVARC_DATA;
		if (!kvi_matrix_row(&m->positions, (uint64_t)positions[t], r->x + t * r->width))
			return KVARC_DATA;
		r->elementwise->add(h, r->x + t * r->width, m->width);
		kvi_run_round(r, h, m->width);
	}
	return KVARC_OK;
}

void kvi_run_place(struct kvi_run *r, size_t layer, size_t before, const int32_t *positions,
                   size_t n)
{
	r->before = before;
	r->n = n;
	r->layer = layer;
	r->at = NULL;
	for (unsigned i = 0; i < r->m->n_ropes; i++) {
		const kvarc_rope rope = {
			.rotary = r->m->ropes[i].rotary,
			.freq = r->o.freq[i] ? r->o.freq[i] : r->m->ropes[i].freq,
		};
		kvi_rotations_make(&r->turns[i], r->rotations_memory[i], &rope, positions, n);
	}
}

void kvi_run_forget(struct kvi_run *r, size_t layer)
{
	for (size_t i = 0; i < kvi_run_lanes(r); i++)
		kvi_cache_free(&r->caches[layer * kvi_run_lanes(r) + i], r->o.alloc);
}

void kvi_run_restart(struct kvi_run *r)
{
	for (size_t l = 0; l < r->m->n_layers; l++)
		kvi_run_forget(r, l);
	r->before = r->n = 0;
}

void kvi_run_rewind(struct kvi_run *r, size_t tokens)
{
	r->before = tokens;
	r->n = 0;
}

static kvarc_ret begin(struct kvi_run *r, const int32_t *ids, const int32_t *positions,
                       size_t before, size_t n)
{
	uint64_t mode = kvi_fp_exact();
	kvi_run_place(r, 0, before, positions, n);
	kvarc_ret ret = embed(r, ids, NULL, positions);
	kvi_fp_restore(mode);
	return ret;
}

kvarc_ret kvi_run_candidates(struct kvi_run *r, const struct kvi_candidates *candidates)
{
	uint64_t mode = kvi_fp_exact();
	kvi_run_place(r, 0, r->before, candidates->positions, candidates->n);
	r->at = candidates->at;
	kvarc_ret ret = embed(r, candidates->ids, candidates->rows, candidates->positions);
	kvi_fp_restore(mode);
	return ret;
}

kvarc_ret kvi_run_put(struct kvi_run *r, size_t layer, size_t at, const float *k, const float *v,
                      size_t stride, size_t n)
{
	uint64_t mode = kvi_fp_exact();
	r->caches[layer].kernels = r->kernels;
	kvarc_ret ret = kvi_cache_add(&r->caches[layer], r->o.alloc, at, n, k, v, stride);
	kvi_fp_restore(mode);
	return ret;
}

kvarc_ret kvi_run_segment(struct kvi_run *r, const int32_t *ids, const int32_t *positions, size_t n)
{
	size_t last = r->o.lanes && r->n ? 1 : r->n;
	return begin(r, ids, positions, r->before + last, n);
}

kvarc_ret kvi_run_again(struct kvi_run *r, const int32_t *ids, const int32_t *positions)
{
	r->kernels = &kvi_exact_scalar;
	r->elementwise = &kvi_elementwise_scalar;
	return begin(r, ids, positions, r->before, r->n);
}
