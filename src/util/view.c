/* SPDX-License-Identifier: BSD-3-Clause */
/* view.c - strided copies in both directions */
#include "view.h"

#include <stdbool.h>
#include <string.h>

/* A run of channels inside one block of a view. */
struct view_run {
	uint8_t *at;   /* first channel of the first token */
	size_t packed; /* byte offset in a packed token */
	uint32_t count;
};

static struct view_run run_at(const kvarc_view *view, const struct kvi_view_block *block,
                              uint32_t done)
{
	uint32_t c = block->c0 + done;
	uint32_t in = c % view->block_elems;
	uint32_t left = view->block_elems - in;
	struct view_run r = { (uint8_t *)view->data + block->row * view->token_stride +
		                      c / view->block_elems * view->block_stride +
		                      (uint64_t)in * view->elem_stride,
		              (size_t)done * block->elem,
		              block->nc - done < left ? block->nc - done : left };
	return r;
}

static inline void move(uint8_t *to, const uint8_t *from, uint32_t elem)
{
	if (elem == 2)
		memcpy(to, from, 2);
	else if (elem == 4)
		memcpy(to, from, 4);
	else
		*to = *from;
}

/* Copies a run of all tokens; out: into the view. Channels are the outer loop when tokens are
 * closer together, so that memory is walked in order. */
static void copy_run(const kvarc_view *view, const struct kvi_view_block *block,
                     const struct view_run *r, uint8_t *packed, bool out)
{
	size_t row = (size_t)block->nc * block->elem;
	bool token_outer = view->token_stride >= view->elem_stride;
	uint32_t outer = token_outer ? block->n : r->count;
	uint32_t inner = token_outer ? r->count : block->n;
	uint64_t step_o = token_outer ? view->token_stride : view->elem_stride;
	uint64_t step_i = token_outer ? view->elem_stride : view->token_stride;
	size_t pack_o = token_outer ? row : block->elem;
	size_t pack_i = token_outer ? block->elem : row;
	for (uint32_t i = 0; i < outer; i++) {
		uint8_t *at = r->at + i * step_o;
		uint8_t *p = packed + r->packed + i * pack_o;
		if (step_i == block->elem && pack_i == block->elem) {
			size_t bytes = (size_t)inner * block->elem;
			if (out)
				memcpy(at, p, bytes);
			else
				memcpy(p, at, bytes);
			continue;
		}
		for (uint32_t k = 0; k < inner; k++)
			if (out)
				move(at + k * step_i, p + k * pack_i, block->elem);
			else
				move(p + k * pack_i, at + k * step_i, block->elem);
	}
}

static void copy(const kvarc_view *view, const struct kvi_view_block *block, uint8_t *packed,
                 bool out)
{
	for (uint32_t done = 0; done < block->nc;) {
		struct view_run r = run_at(view, block, done);
		copy_run(view, block, &r, packed, out);
		done += r.count;
	}
}

void *kvi_view_packed(const kvarc_view *view, const struct kvi_view_block *block)
{
	struct view_run r = run_at(view, block, 0);
	bool packed = r.count == block->nc && view->elem_stride == block->elem &&
	              view->token_stride == (uint64_t)block->nc * block->elem;
	return packed ? r.at : NULL;
}

void kvi_view_gather(const kvarc_view *view, const struct kvi_view_block *block, void *packed)
{
	copy(view, block, packed, false);
}

void kvi_view_scatter(const kvarc_view *view, const struct kvi_view_block *block,
                      const void *packed)
{
	copy(view, block, (uint8_t *)(uintptr_t)packed, true);
}
