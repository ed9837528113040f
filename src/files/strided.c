/* SPDX-License-Identifier: BSD-3-Clause */
/* strided.c - packed token-major blocks from and to strided offsets of a file */
#include "strided.h"

#include <string.h>

enum { WINDOW_BYTES = 256 << 10 };

/*
 * A block as two nested loops over steps of file addresses. Tokens are the
 * outer loop when a token's channels lie closer together than tokens do
 * (rows), blocks of channels otherwise (transposed, heads first).
 */
struct stride_walk {
	const struct kvi_area_view *s;
	const struct kvi_block *b;
	bool rows;
	uint64_t b0, b1; /* blocks of channels: b0 .. b1 */
	uint64_t extent; /* bytes of one outer step */
	uint64_t stride; /* bytes between outer steps */
};

static uint64_t channel_at(const struct kvi_area_view *view, uint64_t c)
{
	return c / view->block_elems * view->block_stride +
	       c % view->block_elems * view->elem_stride;
}

static struct stride_walk walk_make(const struct kvi_area_view *view, const struct kvi_block *block)
{
	uint64_t c1 = (uint64_t)block->c0 + block->channels - 1;
	struct stride_walk w = {
		view, block, false, block->c0 / view->block_elems, c1 / view->block_elems, 0, 0
	};
	uint64_t row = channel_at(view, c1) - channel_at(view, block->c0) + block->elem_bytes;
	if (w.b0 != w.b1 && view->block_stride < view->block_elems * view->elem_stride)
		row = view->token_stride + 1; /* overlapping blocks: no rows */
	if (row <= view->token_stride || block->n == 1) {
		w.rows = true;
		w.extent = row;
		w.stride = view->token_stride;
	} else {
		uint64_t elems = view->block_elems < block->channels ? view->block_elems
		                                                     : block->channels;
		w.extent = (block->n - 1) * view->token_stride + (elems - 1) * view->elem_stride +
		           block->elem_bytes;
		w.stride = view->block_stride;
	}
	return w;
}

/* Channels of the block that are in channel block k: first one and how many. */
static uint32_t part_of(const struct stride_walk *w, uint64_t k, uint64_t *c)
{
	uint64_t lo = k * w->s->block_elems, hi = lo + w->s->block_elems;
	uint64_t end = (uint64_t)w->b->c0 + w->b->channels;
	*c = lo < w->b->c0 ? w->b->c0 : lo;
	return (uint32_t)((hi < end ? hi : end) - *c);
}

static void copy_elems(uint8_t *dst, size_t dst_step, const uint8_t *src, size_t src_step,
                       uint32_t n, uint32_t elem_bytes)
{
	if (dst_step == elem_bytes && src_step == elem_bytes) {
		memcpy(dst, src, (size_t)n * elem_bytes);
		return;
	}
	for (uint32_t i = 0; i < n; i++, dst += dst_step, src += src_step) {
		switch (elem_bytes) {
		case 1:
			*dst = *src;
			break;
		case 2:
			memcpy(dst, src, 2);
			break;
		default:
			memcpy(dst, src, 4);
			break;
		}
	}
}

/*
 * A run of elements that a step of the inner loop copies:
 * `count` elements, file_step apart in the file and pack_step in the packed
 * block.
 */
struct run {
	uint64_t at;     /* offset in the area */
	uint64_t packed; /* offset in the packed block */
	uint64_t file_step, pack_step;
	uint32_t count;
	uint64_t outer_at; /* offset of this outer step */
};
typedef kvarc_ret (*run_fn)(void *ctx, const struct stride_walk *w, const struct run *r);

static kvarc_ret walk_rows(const struct stride_walk *w, run_fn fn, void *ctx)
{
	const struct kvi_block *b = w->b;
	for (uint32_t t = 0; t < b->n; t++) {
		uint64_t base = w->s->offset + (b->t0 + t) * w->s->token_stride;
		for (uint64_t k = w->b0; k <= w->b1; k++) {
			uint64_t c;
			uint32_t count = part_of(w, k, &c);
			struct run r = { base + channel_at(w->s, c),
				         ((uint64_t)t * b->channels + (c - b->c0)) * b->elem_bytes,
				         w->s->elem_stride,
				         b->elem_bytes,
				         count,
				         base + channel_at(w->s, b->c0) };
			kvarc_ret ret = fn(ctx, w, &r);
			if (ret)
				return ret;
		}
	}
	return KVARC_OK;
}

static kvarc_ret walk_blocks(const struct stride_walk *w, run_fn fn, void *ctx)
{
	const struct kvi_block *b = w->b;
	uint64_t row = (uint64_t)b->channels * b->elem_bytes;
	for (uint64_t k = w->b0; k <= w->b1; k++) {
		uint64_t c;
		uint32_t count = part_of(w, k, &c);
		uint64_t base = w->s->offset + b->t0 * w->s->token_stride + channel_at(w->s, c);
		uint64_t packed = (c - b->c0) * b->elem_bytes;
		struct run r = { base, packed, w->s->token_stride, row, b->n, base };
		kvarc_ret ret = KVARC_OK;
		if (count == 1) /* channel-major: a run of tokens */
			ret = fn(ctx, w, &r);
		for (uint32_t t = 0; count > 1 && t < b->n && !ret; t++) {
			struct run one = { base + t * w->s->token_stride,
				           packed + t * row,
				           w->s->elem_stride,
				           b->elem_bytes,
				           count,
				           base };
			ret = fn(ctx, w, &one);
		}
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static kvarc_ret walk_all(const struct stride_walk *w, run_fn fn, void *ctx)
{
	return w->rows ? walk_rows(w, fn, ctx) : walk_blocks(w, fn, ctx);
}

struct stride_reading {
	const kvarc_source *src;
	uint64_t base;
	uint8_t *dst;
	uint8_t *window;
	uint64_t at; /* offset of the window in the area */
	size_t have;
	uint64_t area_end; /* end of the last outer step */
};

/* Fills the window from `at` on: to the end of this outer step, or further
 * when the steps lie close together. */
static kvarc_ret fill(struct stride_reading *reading, const struct stride_walk *w,
                      const struct run *r, uint64_t at)
{
	uint64_t end = w->stride <= 4 * w->extent ? reading->area_end : r->outer_at + w->extent;
	uint64_t need = at + w->b->elem_bytes;
	uint64_t want = (end > need ? end : need) - at;
	reading->have = want < WINDOW_BYTES ? (size_t)want : WINDOW_BYTES;
	reading->at = at;
	return kvi_source_read(reading->src, reading->window, reading->have, reading->base + at);
}

static kvarc_ret read_run(void *ctx, const struct stride_walk *w, const struct run *r)
{
	struct stride_reading *g = ctx;
	uint32_t es = w->b->elem_bytes, left = r->count;
	uint64_t at = r->at;
	uint8_t *dst = g->dst + r->packed;
	if (r->file_step == es && r->pack_step == es && (uint64_t)left * es >= WINDOW_BYTES / 2)
		return kvi_source_read(g->src, dst, (size_t)left * es, g->base + at);
	while (left) {
		if (at < g->at || at + es > g->at + g->have) {
			kvarc_ret ret = fill(g, w, r, at);
			if (ret)
				return ret;
		}
		uint64_t capacity = g->at + g->have - at - es;
		uint64_t fit = r->file_step ? capacity / r->file_step + 1 : left;
		uint32_t n = fit < left ? (uint32_t)fit : left;
		copy_elems(dst, r->pack_step, g->window + (at - g->at), r->file_step, n, es);
		dst += n * r->pack_step;
		at += n * r->file_step;
		left -= n;
	}
	return KVARC_OK;
}

/* Whether the block is one run of bytes, in the file as in memory. */
static bool contiguous(const struct kvi_area_view *view, const struct kvi_block *block)
{
	uint64_t c1 = (uint64_t)block->c0 + block->channels - 1;
	bool one = block->c0 / view->block_elems == c1 / view->block_elems ||
	           view->block_stride == view->block_elems * view->elem_stride;
	return one && view->elem_stride == block->elem_bytes &&
	       (block->n == 1 ||
	        view->token_stride == (uint64_t)block->channels * block->elem_bytes);
}

kvarc_ret kvi_strided_read(const struct kvi_alloc *alloc, const kvarc_source *src, uint64_t base,
                           const struct kvi_area_view *view, const struct kvi_block *block,
                           void *dst)
{
	if (contiguous(view, block))
		return kvi_source_read(src, dst,
		                       (size_t)block->n * block->channels * block->elem_bytes,
		                       base + view->offset + block->t0 * view->token_stride +
		                               channel_at(view, block->c0));
	struct stride_walk w = walk_make(view, block);
	struct stride_reading g = { src, base, dst, kvi_malloc(alloc, WINDOW_BYTES), 0, 0, 0 };
	if (!g.window)
		return kvi_alloc_error(alloc);
	/* The end of the area is one past the furthest byte of the block. */
	uint64_t t1 = block->t0 + block->n - 1, c1 = (uint64_t)block->c0 + block->channels - 1;
	uint64_t full = w.b1 > w.b0 ? w.b1 * view->block_elems - 1 : c1;
	uint64_t far = channel_at(view, c1) > channel_at(view, full) ? channel_at(view, c1)
	                                                             : channel_at(view, full);
	g.area_end = view->offset + t1 * view->token_stride + far + block->elem_bytes;
	kvarc_ret ret = walk_all(&w, read_run, &g);
	kvi_free(alloc, g.window);
	return ret;
}

struct writing {
	const kvarc_sink *sink;
	uint64_t base;
	const uint8_t *src;
	uint8_t *window;
	uint64_t at;
	size_t have;
};

static kvarc_ret flush(struct writing *writing)
{
	if (writing->have && writing->sink->write(writing->sink->opaque, writing->window,
	                                          writing->have, writing->base + writing->at))
		return KVARC_IO;
	writing->have = 0;
	return KVARC_OK;
}

static kvarc_ret write_run(void *ctx, const struct stride_walk *w, const struct run *r)
{
	struct writing *g = ctx;
	uint32_t es = w->b->elem_bytes, left = r->count;
	uint64_t at = r->at;
	const uint8_t *src = g->src + r->packed;
	while (left) {
		uint32_t n = r->file_step == es ? left : 1;
		if (g->at + g->have != at || g->have + es > WINDOW_BYTES) {
			kvarc_ret ret = flush(g);
			if (ret)
				return ret;
			g->at = at;
		}
		size_t fit = (WINDOW_BYTES - g->have) / es;
		if (n > fit)
			n = (uint32_t)fit;
		copy_elems(g->window + g->have, es, src, r->pack_step, n, es);
		g->have += (size_t)n * es;
		src += n * r->pack_step;
		at += n * r->file_step;
		left -= n;
	}
	return KVARC_OK;
}

kvarc_ret kvi_strided_write(const struct kvi_alloc *alloc, const kvarc_sink *sink, uint64_t base,
                            const struct kvi_area_view *view, const struct kvi_block *block,
                            const void *src)
{
	if (contiguous(view, block)) {
		size_t bytes = (size_t)block->n * block->channels * block->elem_bytes;
		uint64_t at = base + view->offset + block->t0 * view->token_stride +
		              channel_at(view, block->c0);
		return sink->write(sink->opaque, src, bytes, at) ? KVARC_IO : KVARC_OK;
	}
	struct stride_walk w = walk_make(view, block);
	struct writing g = { sink, base, src, kvi_malloc(alloc, WINDOW_BYTES), 0, 0 };
	if (!g.window)
		return kvi_alloc_error(alloc);
	kvarc_ret ret = walk_all(&w, write_run, &g);
	if (!ret)
		ret = flush(&g);
	kvi_free(alloc, g.window);
	return ret;
}

struct copying {
	uint8_t *mem;
	uint64_t from;
	const uint8_t *src;
};

static kvarc_ret copy_run(void *ctx, const struct stride_walk *w, const struct run *r)
{
	struct copying *g = ctx;
	copy_elems(g->mem + (r->at - g->from), r->file_step, g->src + r->packed, r->pack_step,
	           r->count, w->b->elem_bytes);
	return KVARC_OK;
}

void kvi_strided_copy(uint8_t *mem, uint64_t from, const struct kvi_area_view *view,
                      const struct kvi_block *block, const void *src)
{
	struct stride_walk w = walk_make(view, block);
	struct copying g = { mem, from, src };
	(void)walk_all(&w, copy_run, &g);
}
