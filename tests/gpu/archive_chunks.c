/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_chunks.c - goes through the frames of a file in memory */
#include "archive_chunks.h"

#include <stdlib.h>
#include <string.h>

#include "format/frame.h"
#include "format/geometry_check.h"
#include "format/packed.h"
#include "format/params_header.h"
#include "format/superblock.h"
#include "util/alloc.h"

/* A PARAMS frame. */
struct seen_params {
	uint64_t sequence;
	struct kvi_params_header header;
	struct kvi_params *params;
};

struct chunk_walk {
	struct kvi_alloc alloc;
	struct kvi_packer packer;
	kvarc_geometry geometry; /* of the first GEOMETRY frame */
	bool has_geometry;
	struct seen_params *params;
	size_t n_params;
	struct kvi_segment segment;
	archive_chunk_fn fn;
	void *opaque;
};

static void see_params(struct chunk_walk *w, const struct kvi_frame_head *h, const uint8_t *content,
                       size_t n)
{
	struct seen_params seen = { .sequence = h->sequence };
	if (!kvi_params_header_parse(&seen.header, content, n) ||
	    seen.header.tensor >= w->geometry.n_tensors)
		return;
	const kvarc_tensor *t = &w->geometry.tensors[seen.header.tensor];
	if (seen.header.head + seen.header.heads > t->heads ||
	    kvi_params_parse(&seen.params, &w->alloc, seen.header.codec, t->dtype,
	                     seen.header.heads, t->channels, kvi_tensor_rope(&w->geometry, t),
	                     content + KVI_PARAMS_HEADER_BYTES, n - KVI_PARAMS_HEADER_BYTES))
		return;
	void *more = realloc(w->params, (w->n_params + 1) * sizeof *w->params);
	if (!more)
		abort();
	w->params = more;
	w->params[w->n_params++] = seen;
}

static void see_chunk(struct chunk_walk *w, const uint8_t *payload, size_t n)
{
	struct kvi_chunk_header h;
	if (!kvi_chunk_header_parse(&h, payload, n) || h.tensor >= w->geometry.n_tensors ||
	    h.segment != w->segment.sequence || h.n != w->segment.n)
		return;
	const kvarc_tensor *t = &w->geometry.tensors[h.tensor];
	struct archive_chunk c = {
		.header = &h,
		.shape = { .dtype = t->dtype,
		           .n_tokens = h.n,
		           .heads = h.heads,
		           .head_channels = t->channels,
		           .positions = w->segment.positions,
		           .rope = kvi_tensor_rope(&w->geometry, t) },
		.payload = payload,
		.bytes = n,
	};
	const bool wants = h.codec == KVI_CODEC_GRID || h.codec == KVI_CODEC_CELLS;
	if (h.head + h.heads > t->heads ||
	    (!wants && h.codec != KVI_CODEC_RAW && h.codec != KVI_CODEC_CONSTANT &&
	     h.codec != KVI_CODEC_LAYERS))
		return;
	for (size_t i = 0; wants && i < w->n_params; i++) {
		const struct seen_params *p = &w->params[i];
		if (p->sequence == h.params && p->header.tensor == h.tensor &&
		    p->header.head == h.head && p->header.heads == h.heads &&
		    p->header.codec == kvi_codec_params(h.codec))
			c.params = p->params;
	}
	if (!wants || c.params)
		w->fn(w->opaque, &c);
}

static void see_frame(struct chunk_walk *w, const struct kvi_frame_head *h, const uint8_t *payload)
{
	const uint8_t *content;
	uint8_t *owned = NULL;
	if (h->type == KVI_FRAME_CHUNK) {
		see_chunk(w, payload, h->payload_bytes);
		return;
	}
	if (h->type != KVI_FRAME_GEOMETRY && h->type != KVI_FRAME_PARAMS &&
	    h->type != KVI_FRAME_SEGMENT)
		return;
	if (kvi_unpack(&w->packer, payload, h->payload_bytes, h->decoded_bytes, &content, &owned))
		return;
	if (h->type == KVI_FRAME_GEOMETRY && !w->has_geometry) {
		w->has_geometry = true;
		if (kvi_geometry_parse(&w->geometry, &w->alloc, content, h->decoded_bytes))
			kvi_geometry_free(&w->geometry, &w->alloc);
	} else if (h->type == KVI_FRAME_PARAMS) {
		see_params(w, h, content, h->decoded_bytes);
	} else if (h->type == KVI_FRAME_SEGMENT) {
		w->segment.sequence = 0;
		if (kvi_segment_parse(&w->segment, content, h->decoded_bytes))
			w->segment.sequence = h->sequence;
	}
	kvi_free(&w->alloc, owned);
}

bool archive_chunks(const uint8_t *file, size_t bytes, archive_chunk_fn fn, void *opaque)
{
	struct chunk_walk w = { .fn = fn, .opaque = opaque };
	struct kvi_superblock sb;
	struct kvi_frame_head h;
	if (bytes < KVI_SUPERBLOCK_BYTES || kvi_superblock_parse(&sb, file) ||
	    sb.incompat & KVI_INCOMPAT_ENCRYPTED)
		return false;
	kvi_alloc_init(&w.alloc, NULL, 0);
	kvi_packer_init(&w.packer, &w.alloc);
	const uint64_t sync = kvi_frame_sync(sb.file_id);
	for (size_t at = KVI_SUPERBLOCK_BYTES; bytes - at >= KVI_FRAME_HEAD_BYTES;) {
		if (!kvi_frame_head_parse(&h, file + at, sync, at) ||
		    kvi_frame_bytes(h.payload_bytes) > bytes - at)
			break;
		see_frame(&w, &h, file + at + KVI_FRAME_HEAD_BYTES);
		at += (size_t)kvi_frame_bytes(h.payload_bytes);
	}
	for (size_t i = 0; i < w.n_params; i++)
		kvi_params_free(w.params[i].params);
	free(w.params);
	kvi_geometry_free(&w.geometry, &w.alloc);
	kvi_packer_free(&w.packer);
	return true;
}
