/* SPDX-License-Identifier: BSD-3-Clause */
/* strided.c - packed token-major blocks from and to strided offsets of a file */
#include "strided.h"

#include <string.h>

#include "util/ckd.h"

enum { WINDOW_BYTES = 256 << 10 };
/* The system copies fastest to addresses of these multiples: bytes of a window are as far behind
 * one as they are in the file. */
enum { ALIGN = 64 };

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
	uint8_t *memory, *window; /* window: in memory */
	uint64_t at;              /* offset of the window in the area */
	size_t have;
	uint64_t area_end; /* end of the last outer step */
};

/* The window in `memory` for bytes of a file from an offset on. */
static uint8_t *window_at(uint8_t *memory, uint64_t offset)
{
	return memory + offset % ALIGN;
}

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
	reading->window = window_at(reading->memory, reading->base + at);
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

/* The offset of a channel's last byte, or UINT64_MAX. */
static uint64_t end_of_channel(const struct kvi_area_view *view, uint64_t c, uint64_t t,
                               uint32_t elem_bytes)
{
	const uint64_t times[3] = { t, c / view->block_elems, c % view->block_elems };
	const uint64_t stride[3] = { view->token_stride, view->block_stride, view->elem_stride };
	uint64_t end = view->offset, step;
	bool over = kvi_add(end, elem_bytes, &end);
	for (unsigned i = 0; i < 3; i++)
		over |= kvi_mul(times[i], stride[i], &step) || kvi_add(end, step, &end);
	return over ? UINT64_MAX : end;
}

/* One past the furthest byte of the block in its area, or UINT64_MAX. */
static uint64_t end_in_area(const struct stride_walk *w)
{
	const struct kvi_area_view *view = w->s;
	const struct kvi_block *block = w->b;
	const uint64_t t = block->t0 + block->n - 1;
	const uint64_t c1 = (uint64_t)block->c0 + block->channels - 1;
	const uint64_t full = w->b1 > w->b0 ? w->b1 * view->block_elems - 1 : c1;
	const uint64_t end1 = end_of_channel(view, c1, t, block->elem_bytes);
	const uint64_t end = end_of_channel(view, full, t, block->elem_bytes);
	return end > end1 ? end : end1;
}

static void move_block(const struct stride_walk *w, uint8_t *mem, uint64_t from, uint8_t *packed,
                       bool in);

kvarc_ret kvi_strided_read(const struct kvi_alloc *alloc, const kvarc_source *src, uint64_t base,
                           const struct kvi_area_view *view, const struct kvi_block *block,
                           void *dst)
{
	struct stride_walk w = walk_make(view, block);
	const uint64_t area_end = end_in_area(&w);
	if (src->memory && base <= src->size && area_end <= src->size - base) {
		move_block(&w, (uint8_t *)(uintptr_t)src->memory + base, 0, dst, true);
		return KVARC_OK;
	}
	if (contiguous(view, block))
		return kvi_source_read(src, dst,
		                       (size_t)block->n * block->channels * block->elem_bytes,
		                       base + view->offset + block->t0 * view->token_stride +
		                               channel_at(view, block->c0));
	struct stride_reading g = { .src = src,
		                    .base = base,
		                    .dst = dst,
		                    .memory = kvi_malloc(alloc, WINDOW_BYTES + ALIGN),
		                    .area_end = area_end };
	if (!g.memory)
		return kvi_alloc_error(alloc);
	kvarc_ret ret = walk_all(&w, read_run, &g);
	kvi_free(alloc, g.memory);
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

/* n rows of bytes; sizes of heads are known to the compiler. */
static void copy_rows(uint8_t *dst, size_t dst_step, const uint8_t *src, size_t src_step,
                      size_t bytes, size_t n)
{
#define ROWS(bytes)                                                              \
	case bytes:                                                              \
		for (size_t i = 0; i < n; i++, dst += dst_step, src += src_step) \
			memcpy(dst, src, bytes);                                 \
		break
	switch (bytes) {
		ROWS(64);
		ROWS(128);
		ROWS(256);
		ROWS(512);
	default:
		for (size_t i = 0; i < n; i++, dst += dst_step, src += src_step)
			memcpy(dst, src, bytes);
	}
#undef ROWS
}

/* Whether the tokens of a block of channels, one behind the other, leave no byte between them. */
static bool is_dense(const struct kvi_area_view *view, const struct kvi_block *block)
{
	return view->elem_stride == block->elem_bytes && view->token_stride <= WINDOW_BYTES &&
	       view->token_stride == (uint64_t)view->block_elems * block->elem_bytes &&
	       block->c0 % view->block_elems == 0 && block->channels % view->block_elems == 0;
}

/* Writes whole blocks of channels that are dense, as many tokens at once as the window holds. */
static kvarc_ret write_dense(const struct stride_walk *w, struct writing *writing)
{
	const struct kvi_area_view *s = w->s;
	const struct kvi_block *b = w->b;
	const size_t row = (size_t)s->token_stride, most = WINDOW_BYTES / row;
	const size_t packed = (size_t)b->channels * b->elem_bytes;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t k = w->b0; k <= w->b1; k++) {
		const uint8_t *src = writing->src + (k - w->b0) * row;
		for (size_t t = 0; t < b->n && !ret; t += most, src += most * packed) {
			const size_t n = b->n - t < most ? b->n - t : most;
			copy_rows(writing->window, row, src, packed, row, n);
			writing->at = s->offset + (b->t0 + t) * row + k * s->block_stride;
			writing->have = n * row;
			ret = flush(writing);
		}
	}
	return ret;
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
	kvarc_ret ret = w.rows || !is_dense(view, block) ? walk_all(&w, write_run, &g)
	                                                 : write_dense(&w, &g);
	if (!ret)
		ret = flush(&g);
	kvi_free(alloc, g.window);
	return ret;
}

/* The bytes from `from` on of an area in memory, and packed elements. */
struct block_moving {
	uint8_t *mem;
	uint64_t from;
	uint8_t *packed;
	bool in;
};

static kvarc_ret move_run(void *ctx, const struct stride_walk *w, const struct run *r)
{
	const struct block_moving *g = ctx;
	uint8_t *there = g->mem + (r->at - g->from), *here = g->packed + r->packed;
	if (g->in)
		copy_elems(here, r->pack_step, there, r->file_step, r->count, w->b->elem_bytes);
	else
		copy_elems(there, r->file_step, here, r->pack_step, r->count, w->b->elem_bytes);
	return KVARC_OK;
}

/* Copies a block between an area in memory and packed elements: in, or out of these. */
static void move_block(const struct stride_walk *w, uint8_t *mem, uint64_t from, uint8_t *packed,
                       bool in)
{
	const struct kvi_area_view *s = w->s;
	const struct kvi_block *b = w->b;
	const size_t row = (size_t)b->channels * b->elem_bytes;
	struct block_moving g = { mem, from, packed, in };
	if (s->elem_stride != b->elem_bytes) {
		(void)walk_all(w, move_run, &g);
		return;
	}
	for (uint64_t k = w->b0; k <= w->b1; k++) {
		uint64_t c;
		const size_t bytes = (size_t)part_of(w, k, &c) * b->elem_bytes;
		const uint64_t at = s->offset + b->t0 * s->token_stride + channel_at(s, c);
		uint8_t *there = mem + (at - from), *here = packed + (c - b->c0) * b->elem_bytes;
		if (in)
			copy_rows(here, row, there, s->token_stride, bytes, b->n);
		else
			copy_rows(there, s->token_stride, here, row, bytes, b->n);
	}
}

void kvi_strided_copy(uint8_t *mem, uint64_t from, const struct kvi_area_view *view,
                      const struct kvi_block *block, const void *src)
{
	struct stride_walk w = walk_make(view, block);
	move_block(&w, mem, from, (uint8_t *)(uintptr_t)src, false);
}

bool kvi_strided_runs(const struct kvi_area_view *view, uint64_t channels, uint32_t elem_bytes,
                      uint64_t n, struct kvi_strided_runs *runs)
{
	const uint64_t in_block = channels < view->block_elems ? channels : view->block_elems;
	const uint64_t block = in_block * elem_bytes, row = channels * elem_bytes;
	*runs = (struct kvi_strided_runs){ .view = *view };
	runs->view.offset = 0;
	if (channels % in_block)
		return false;
	if (view->elem_stride == elem_bytes && view->token_stride == block) {
		/* all tokens of a head, then those of the next */
		runs->channels = (uint32_t)in_block;
		runs->bytes = n * block;
		runs->view.block_stride = runs->bytes;
	} else if (view->elem_stride == elem_bytes && view->token_stride == row &&
	           view->block_stride == block) {
		runs->channels = (uint32_t)channels;
		runs->bytes = n * row;
	} else if (view->token_stride == elem_bytes) {
		/* all tokens of a channel */
		runs->channels = 1;
		runs->bytes = n * elem_bytes;
		runs->view.elem_stride = runs->bytes;
		runs->view.block_stride = in_block * runs->bytes;
	} else {
		return false;
	}
	runs->n = (uint32_t)(channels / runs->channels);
	return true;
}

kvarc_ret kvi_strided_runs_write(const kvarc_sink *sink, uint64_t base,
                                 const struct kvi_area_view *view, uint64_t t0,
                                 const struct kvi_strided_runs *runs, const uint8_t *mem)
{
	base += view->offset + t0 * view->token_stride;
	for (uint32_t i = 0; i < runs->n; i++, mem += runs->bytes)
		if (sink->write(sink->opaque, mem, (size_t)runs->bytes,
		                base + channel_at(view, (uint64_t)i * runs->channels)))
			return KVARC_IO;
	return KVARC_OK;
}
