/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.c - tokens of an archive into another one: decoded and coded again, or as they are */
#include "transfer.h"

#include <string.h>

#include "format/geometry_check.h"
#include "format/segment.h"
#include "reader/reader_internal.h"
#include "util/error.h"

enum {
	BATCH_TOKENS = 4096,
	PAIRS_MAX = 4096,
	AHEAD_BYTES = 32 << 20 /* more only when one segment needs it */
};

kvarc_ret kvi_transfer_identity(kvarc_reader *r, kvarc_writer *w, const char *key,
                                const char *value)
{
	const struct kvi_alloc *alloc = kvi_reader_alloc(r);
	const char **pairs = kvi_array(alloc, 2 * (size_t)PAIRS_MAX + 2, sizeof *pairs);
	size_t n = 0;
	if (!pairs)
		return kvi_reader_fail(r, kvi_alloc_error(alloc),
		                       "not enough memory for the identity");
	const char **values = pairs + PAIRS_MAX + 1;
	while (n < PAIRS_MAX && kvarc_reader_identity_at(r, n, &pairs[n], &values[n]) == KVARC_OK)
		n++;
	if (key) {
		pairs[n] = key;
		values[n++] = value;
	}
	kvarc_ret ret = n ? kvarc_writer_identity(w, n, pairs, values) : KVARC_OK;
	kvi_free(alloc, (void *)pairs);
	return ret;
}

/* Reads all heads of a block into dst, which has capacity for them. */
static kvarc_ret read_block(struct kvi_transfer *c, uint32_t tensor, uint64_t t0, uint32_t n,
                            void *dst)
{
	const kvarc_tensor *t = &c->tensors[tensor];
	kvarc_range range = { .track = c->range.track,
		              .layer0 = t->layer,
		              .n_layers = 1,
		              .t0 = c->range.t0 + t0,
		              .n = n };
	uint32_t es = (uint32_t)kvarc_dtype_bytes(t->dtype);
	uint32_t width = kvi_tensor_width(t);
	kvarc_view *view = &c->views[c->source[tensor]];
	*view = (kvarc_view){ .data = dst,
		              .token_stride = (uint64_t)width * es,
		              .block_elems = width,
		              .elem_stride = es };
	kvarc_ret ret = kvarc_reader_read(c->r, &range, c->views);
	view->data = NULL;
	return ret;
}

/* The same for a part of the heads. */
static kvarc_ret read_heads(struct kvi_transfer *c, uint32_t tensor, uint32_t head, uint32_t heads,
                            uint64_t t0, uint32_t n, uint8_t *dst)
{
	const kvarc_tensor *t = &c->tensors[tensor];
	size_t row = kvi_tensor_bytes(t), one = row / t->heads;
	uint8_t *all = kvi_array(c->alloc, n, row);
	if (!all)
		return kvi_reader_fail(c->r, kvi_alloc_error(c->alloc),
		                       "not enough memory for a block");
	kvarc_ret ret = read_block(c, tensor, t0, n, all);
	for (uint32_t i = 0; i < n && !ret; i++)
		memcpy(dst + i * heads * one, all + i * row + head * one, heads * one);
	kvi_free(c->alloc, all);
	return ret;
}

/* Whether a tensor of the writer is among those of the transfer. */
static bool has(const struct kvi_transfer *c, size_t tensor)
{
	return c->tensors[tensor].track == c->track;
}

/* Allocates a buffer for a batch where blocks are decoded from others, or lie in a store, which is
 * asked for whole segments. Without that memory they are read one by one, which is only slower. */
static void plan_ahead(struct kvi_transfer *c)
{
	uint32_t n = c->segment_tokens ? c->segment_tokens : KVI_SEGMENT_TOKENS;
	kvarc_predictor_info p;
	uint64_t row = 0;
	c->batch = BATCH_TOKENS / n * n;
	if (!c->short_segments && !kvi_reader_stored_tokens(c->r) &&
	    kvarc_reader_predictor(c->r, 0, &p) != KVARC_OK)
		return;
	for (size_t i = 0; i < c->n_tensors; i++)
		row += has(c, i) ? kvi_tensor_bytes(&c->tensors[i]) : 0;
	if (!row)
		return;
	uint64_t segments = AHEAD_BYTES / (row * n);
	uint32_t batch = n * (uint32_t)(segments < 1 ? 1 : segments);
	batch = batch < c->batch ? batch : c->batch;
	batch = batch < c->range.n ? batch : (uint32_t)c->range.n;
	c->ahead = kvi_array(c->alloc, batch, (size_t)row);
	if (c->ahead)
		c->batch = batch;
}

static void drop_ahead(struct kvi_transfer *c)
{
	kvi_free(c->alloc, c->ahead);
	c->ahead = NULL;
	memset(c->views, 0, kvarc_reader_geometry(c->r)->n_tensors * sizeof *c->views);
}

/* Reads a batch of all tensors; they lie there one after another. */
static kvarc_ret read_ahead(struct kvi_transfer *c, uint64_t t0, uint32_t n)
{
	kvarc_range range = c->range;
	uint8_t *at = c->ahead;
	for (size_t i = 0; i < c->n_tensors; i++) {
		const kvarc_tensor *t = &c->tensors[i];
		uint32_t es = (uint32_t)kvarc_dtype_bytes(t->dtype);
		uint32_t width = kvi_tensor_width(t);
		if (!has(c, i))
			continue;
		c->views[c->source[i]] = (kvarc_view){ .data = at,
			                               .token_stride = (uint64_t)width * es,
			                               .block_elems = width,
			                               .elem_stride = es };
		at += (size_t)c->batch * width * es;
	}
	range.t0 += t0;
	range.n = n;
	c->ahead_t0 = t0;
	kvarc_ret ret = kvarc_reader_read(c->r, &range, c->views);
	if (ret != KVARC_MEMLIMIT)
		return ret;
	drop_ahead(c); /* what it holds is needed more elsewhere */
	return KVARC_OK;
}

static void take_ahead(const struct kvi_transfer *c, uint32_t tensor, uint32_t head, uint32_t heads,
                       uint64_t t0, uint32_t n, uint8_t *dst)
{
	const kvarc_view *v = &c->views[c->source[tensor]];
	const kvarc_tensor *t = &c->tensors[tensor];
	size_t one = (size_t)v->token_stride / t->heads;
	const uint8_t *from = (const uint8_t *)v->data + head * one +
	                      (t0 - c->ahead_t0) * v->token_stride;
	for (uint32_t i = 0; i < n; i++)
		memcpy(dst + i * heads * one, from + i * v->token_stride, heads * one);
}

static int fetch(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                 uint32_t n, void *dst)
{
	struct kvi_transfer *c = opaque;
	if (c->ahead) {
		take_ahead(c, tensor, head, heads, t0, n, dst);
		return 0;
	}
	pthread_mutex_lock(&c->lock);
	if (!c->failed)
		c->failed = heads == c->tensors[tensor].heads
		                    ? read_block(c, tensor, t0, n, dst)
		                    : read_heads(c, tensor, head, heads, t0, n, dst);
	kvarc_ret ret = c->failed;
	const kvarc_error *e = kvi_reader_error(c->r);
	if (ret && e && c->error.code == KVARC_OK)
		c->error = *e; /* the writer has one of its own, maybe the same */
	pthread_mutex_unlock(&c->lock);
	return ret != KVARC_OK;
}

/* Tokens of the range, to c->tokens. */
static kvarc_ret read_tokens(struct kvi_transfer *c, uint64_t at, uint32_t n)
{
	return kvarc_reader_read_tokens(c->r, c->range.track, c->range.t0 + at, n,
	                                c->ids ? c->tokens : NULL, c->tokens + BATCH_TOKENS);
}

/* Tokens at .. end - 1 of the range, decoded and coded again. */
static kvarc_ret code_tokens(struct kvi_transfer *c, uint64_t at, uint64_t end)
{
	kvarc_ret ret = KVARC_OK;
	while (at < end && !ret) {
		uint64_t left = end - at;
		uint32_t n = left < c->batch ? (uint32_t)left : c->batch;
		ret = read_tokens(c, at, n);
		if (!ret && c->ahead)
			ret = read_ahead(c, at, n);
		if (!ret)
			ret = kvarc_writer_append_fetch(c->w, c->track, n,
			                                c->ids ? c->tokens : NULL,
			                                c->tokens + BATCH_TOKENS, fetch, c);
		at += n;
	}
	return c->failed ? c->failed : ret;
}

/* The next segment at or behind token `at` of the range that can be taken as it is. */
static struct kvi_copy_found next_copied(struct kvi_transfer *c, uint64_t at, uint64_t end)
{
	struct kvi_copy_found f = { 0 };
	uint64_t from = c->range.t0 + at;
	end += c->range.t0;
	while (c->copy && (f = kvi_copy_find(c->copy, from, end)).n && !f.copied && !f.ret)
		from = f.t0 + f.n;
	return f;
}

/* Without permission tokens of lossy chunks are copied or left, not decoded. */
static kvarc_ret check_lossy(struct kvi_transfer *c, uint64_t at, uint64_t end)
{
	at += c->range.t0;
	end += c->range.t0;
	if (!c->copy || kvi_reader_allows_lossy(c->r))
		return KVARC_OK;
	for (;;) {
		struct kvi_copy_found f = kvi_copy_find(c->copy, at, end);
		if (!f.n || f.ret)
			return f.ret;
		at = f.t0 + f.n;
		if (f.copied)
			continue;
		bool parted = f.t0 < c->range.t0 || at > end;
		return kvi_reader_fail(c->r, KVARC_LOSSY,
		                       parted ? "a lossy tier changed tokens %llu to %llu "
		                                "as one: cut before or behind them"
		                              : "tokens %llu to %llu were changed by a lossy tier",
		                       (unsigned long long)f.t0, (unsigned long long)at - 1);
	}
}

kvarc_ret kvi_transfer_tokens(struct kvi_transfer *c, uint64_t at, uint64_t end, bool ids)
{
	kvarc_ret ret = check_lossy(c, at, end);
	c->ids = ids;
	while (!ret && at < end) {
		struct kvi_copy_found f = next_copied(c, at, end);
		ret = f.ret;
		if (!ret)
			ret = code_tokens(c, at, f.n ? f.t0 - c->range.t0 : end);
		at = f.n ? f.t0 + f.n - c->range.t0 : end;
		if (!f.n || ret)
			continue;
		ret = read_tokens(c, f.t0 - c->range.t0, (uint32_t)f.n);
		if (!ret)
			ret = kvi_copy_segment(c->copy, &f, c->ids ? c->tokens : NULL,
			                       c->tokens + BATCH_TOKENS);
	}
	return ret;
}

kvarc_ret kvi_transfer_begin(struct kvi_transfer *c)
{
	pthread_mutex_init(&c->lock, NULL);
	c->alloc = kvi_reader_alloc(c->r);
	c->views = kvi_calloc(c->alloc, kvarc_reader_geometry(c->r)->n_tensors + 1,
	                      sizeof *c->views);
	c->tokens = kvi_array(c->alloc, 2 * (size_t)BATCH_TOKENS, sizeof *c->tokens);
	if (!c->views || !c->tokens)
		return kvi_reader_fail(c->r, kvi_alloc_error(c->alloc),
		                       "not enough memory for the tokens");
	plan_ahead(c);
	return kvi_reader_is_salvage(c->r)
	               ? KVARC_OK
	               : kvi_copy_open(&c->copy, c->r, c->w, c->range.track, c->track, c->to_of);
}

void kvi_transfer_end(struct kvi_transfer *c)
{
	if (!c->alloc)
		return;
	if (c->failed && kvi_reader_error(c->r))
		*kvi_reader_error(c->r) = c->error;
	kvi_copy_close(c->copy);
	kvi_free(c->alloc, c->tokens);
	kvi_free(c->alloc, c->views);
	kvi_free(c->alloc, c->ahead);
	pthread_mutex_destroy(&c->lock);
	*c = (struct kvi_transfer){ 0 };
}
