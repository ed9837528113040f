/* SPDX-License-Identifier: BSD-3-Clause */
/* raw_import.c - raw pages as tensors: strides follow from the order of the axes */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "import_internal.h"
#include "raw_pages.h"
#include "util/ckd.h"
#include "util/error.h"

/* An axis of the file; one that is not there has extent 1. */
struct raw_axis {
	uint64_t extent, stride; /* bytes */
	size_t index;            /* in the order; behind all others: not there */
};

struct raw_shape {
	struct raw_axis kv, layer, page, token, head, channel;
	uint64_t tokens;
};

static struct raw_axis axis_of(const struct kvi_raw *r, char letter)
{
	const char *at = strchr(r->order, letter);
	struct raw_axis a = { 1, 0, KVI_RAW_AXES_MAX };
	if (!at)
		return a;
	a.index = (size_t)(at - r->order);
	a.extent = r->extent[a.index];
	/* cannot overflow: the product of all is the size of the file */
	a.stride = kvarc_dtype_bytes(r->dtype);
	for (size_t i = a.index + 1; r->order[i]; i++)
		a.stride *= r->extent[i];
	return a;
}

/* Pages that follow each other like their tokens are one run of tokens. */
static void join_pages(struct raw_shape *s)
{
	s->tokens = s->page.extent * s->token.extent;
	if (s->page.extent > 1 && s->page.stride != s->token.extent * s->token.stride)
		return;
	s->token.extent = s->tokens;
	s->page = (struct raw_axis){ 1, 0, KVI_RAW_AXES_MAX };
}

/* NULL, or what cannot be described. */
static const char *why_not(const struct raw_shape *s)
{
	const size_t page = s->page.index;
	if (s->page.extent > 1 &&
	    ((s->token.index < page) || (s->head.extent > 1 && s->head.index < page) ||
	     (s->channel.extent > 1 && s->channel.index < page)))
		return "P has to stand in front of B, H and D";
	if (s->tokens > UINT32_MAX)
		return "there are more tokens than an archive can hold";
	if (s->head.extent > 65535 || s->channel.extent > KVI_IMPORT_WIDTH_MAX ||
	    (s->head.index < KVI_RAW_AXES_MAX && s->channel.extent > 65535) ||
	    s->head.extent * s->channel.extent > KVI_IMPORT_WIDTH_MAX)
		return "heads or channels are more than an archive can describe";
	if (s->layer.extent > KVI_IMPORT_TENSORS_MAX / s->kv.extent)
		return "there are more layers than an archive can describe";
	return NULL;
}

static kvarc_ret read_shape(kvarc_import *im, uint64_t bytes, struct kvi_raw *r,
                            struct raw_shape *s)
{
	kvarc_ret ret = kvi_raw_parse(r, im->options.raw, im->error);
	if (!ret)
		ret = kvi_raw_fit(r, bytes, im->error);
	if (ret)
		return ret;
	*s = (struct raw_shape){ .kv = axis_of(r, '2'),
		                 .layer = axis_of(r, 'L'),
		                 .page = axis_of(r, 'P'),
		                 .token = axis_of(r, strchr(r->order, 'T') ? 'T' : 'B'),
		                 .head = axis_of(r, 'H'),
		                 .channel = axis_of(r, 'D') };
	join_pages(s);
	const char *why = why_not(s);
	return why ? kvi_fail(im->error, KVARC_GEOMETRY, "raw pages '%s': %s", r->order, why)
	           : KVARC_OK;
}

static kvarc_ret add_tensor(kvarc_import *im, const struct raw_shape *s, uint8_t dtype,
                            uint64_t layer, uint64_t kv, uint64_t offset)
{
	struct kvi_imp_tensor *t = kvi_import_add_tensor(im);
	if (!t)
		return kvi_import_full(im);
	const bool pairs = s->kv.index < KVI_RAW_AXES_MAX;
	const uint64_t width = s->head.extent * s->channel.extent;
	t->pub.layer = (uint32_t)layer;
	t->pub.kind = !pairs ? KVARC_MLA_LATENT : kv ? KVARC_VALUE : KVARC_KEY;
	t->pub.flags = (uint8_t)(kv ? 0 : KVARC_TENSOR_POST_ROPE);
	t->pub.dtype = dtype;
	if (s->head.index < KVI_RAW_AXES_MAX) {
		t->pub.heads = (uint32_t)s->head.extent;
		t->pub.channels = (uint32_t)s->channel.extent;
	} else {
		kvi_import_shape(&t->pub, width, pairs && im->gguf.present ? im->gguf.heads : 0);
	}
	snprintf(t->name, sizeof t->name, "layers.%u.%s", (unsigned)layer,
	         !pairs ? "latent"
	         : kv   ? "value"
	                : "key");
	const bool one = s->head.extent == 1 ||
	                 s->head.stride == s->channel.extent * s->channel.stride;
	t->at.offset = offset;
	t->at.token_stride = s->token.stride;
	t->at.elem_stride = s->channel.stride;
	t->at.block_elems = (uint32_t)(one ? width : s->channel.extent);
	t->at.block_stride = one ? s->token.stride : s->head.stride;
	return KVARC_OK;
}

/* The number of steps of an axis inside the pages, of which a group of areas has all, or of one in
 * front of them, of which it has one. */
static uint64_t inside(const struct raw_axis *a, const struct raw_shape *s)
{
	return s->page.extent > 1 && a->index < s->page.index ? 1 : a->extent;
}

/* Tensors of the area that begins at `from`, the rest of whose axes are inside of it. */
static kvarc_ret add_tensors(kvarc_import *im, const struct raw_shape *s, uint8_t dtype,
                             uint64_t from)
{
	const uint64_t kvs = inside(&s->kv, s), layers = inside(&s->layer, s);
	const uint64_t kv0 = kvs < s->kv.extent ? from / s->kv.stride % s->kv.extent : 0;
	const uint64_t l0 = layers < s->layer.extent ? from / s->layer.stride % s->layer.extent : 0;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t l = 0; l < layers && !ret; l++)
		for (uint64_t k = 0; k < kvs && !ret; k++)
			ret = add_tensor(im, s, dtype, l0 + l, kv0 + k,
			                 l * s->layer.stride + k * s->kv.stride);
	return ret;
}

/* Pages are areas one after another, for each layer and kind that stands in front of them. */
static kvarc_ret add_areas(kvarc_import *im, uint32_t item, const struct raw_shape *s,
                           uint8_t dtype, uint64_t bytes)
{
	const uint64_t pages = s->page.extent;
	const uint64_t step = pages > 1 ? s->page.stride : bytes;
	for (uint64_t at = 0; at < bytes; at += pages * step) {
		struct kvi_imp_area *a = kvi_import_add_area(im, item, 0, at, step);
		if (!a)
			return kvi_import_full(im);
		a->n_tokens = s->token.extent;
		kvarc_ret ret = add_tensors(im, s, dtype, at);
		for (uint64_t p = 1; p < pages && !ret; p++)
			if (!kvi_import_add_part(im, at + p * step, step, p * s->token.extent,
			                         s->token.extent))
				ret = kvi_import_full(im);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

kvarc_ret kvi_import_raw(kvarc_import *im, uint32_t item)
{
	struct kvi_raw r;
	struct raw_shape s;
	const uint64_t bytes = im->items[item].src.size;
	kvarc_ret ret = read_shape(im, bytes, &r, &s);
	if (ret)
		return ret;
	if (!kvi_import_add_track(im, s.tokens))
		return kvi_import_full(im);
	ret = add_areas(im, item, &s, r.dtype, bytes);
	if (ret)
		return ret;
	im->items[item].kind = KVI_ITEM_OTHER;
	snprintf(im->layout, sizeof im->layout, "%s", r.order);
	snprintf(im->format, sizeof im->format, "raw pages, %s %s, %" PRIu64 " tokens",
	         kvarc_dtype_name(r.dtype), r.order, s.tokens);
	return kvi_import_find_ropes(im);
}
