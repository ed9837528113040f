/* SPDX-License-Identifier: BSD-3-Clause */
/* view.c - strided copies in both directions */
#include "view.h"

#include <stdbool.h>
#include <string.h>

/* A run of channels inside one block of a view. */
struct view_run {
	uint8_t *at;   /* first channel of the first token */
	size_t packed; /* where it is in a packed token, bytes */
	uint32_t count;
};

static struct view_run run_at(const kvarc_view *v, const struct kvi_view_block *b, uint32_t done)
{
	uint32_t c = b->c0 + done;
	uint32_t in = c % v->block_elems;
	uint32_t left = v->block_elems - in;
	struct view_run r = { (uint8_t *)v->data + b->row * v->token_stride +
		                      c / v->block_elems * v->block_stride +
		                      (uint64_t)in * v->elem_stride,
		              (size_t)done * b->elem, b->nc - done < left ? b->nc - done : left };
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

/* One run, all tokens; out: into the view. Channels are the outer loop when
 * tokens are closer together, so that memory is walked in order. */
static void copy_run(const kvarc_view *v, const struct kvi_view_block *b, const struct view_run *r,
                     uint8_t *packed, bool out)
{
	size_t row = (size_t)b->nc * b->elem;
	bool token_outer = v->token_stride >= v->elem_stride;
	uint32_t outer = token_outer ? b->n : r->count;
	uint32_t inner = token_outer ? r->count : b->n;
	uint64_t step_o = token_outer ? v->token_stride : v->elem_stride;
	uint64_t step_i = token_outer ? v->elem_stride : v->token_stride;
	size_t pack_o = token_outer ? row : b->elem;
	size_t pack_i = token_outer ? b->elem : row;
	for (uint32_t i = 0; i < outer; i++) {
		uint8_t *at = r->at + i * step_o;
		uint8_t *p = packed + r->packed + i * pack_o;
		if (step_i == b->elem && pack_i == b->elem) {
			size_t bytes = (size_t)inner * b->elem;
			if (out)
				memcpy(at, p, bytes);
			else
				memcpy(p, at, bytes);
			continue;
		}
		for (uint32_t k = 0; k < inner; k++)
			if (out)
				move(at + k * step_i, p + k * pack_i, b->elem);
			else
				move(p + k * pack_i, at + k * step_i, b->elem);
	}
}

static void copy(const kvarc_view *v, const struct kvi_view_block *b, uint8_t *packed, bool out)
{
	for (uint32_t done = 0; done < b->nc;) {
		struct view_run r = run_at(v, b, done);
		copy_run(v, b, &r, packed, out);
		done += r.count;
	}
}

void *kvi_view_packed(const kvarc_view *v, const struct kvi_view_block *b)
{
	struct view_run r = run_at(v, b, 0);
	bool packed = r.count == b->nc && v->elem_stride == b->elem &&
	              v->token_stride == (uint64_t)b->nc * b->elem;
	return packed ? r.at : NULL;
}

void kvi_view_gather(const kvarc_view *v, const struct kvi_view_block *b, void *packed)
{
	copy(v, b, packed, false);
}

void kvi_view_scatter(const kvarc_view *v, const struct kvi_view_block *b, const void *packed)
{
	copy(v, b, (uint8_t *)(uintptr_t)packed, true);
}
