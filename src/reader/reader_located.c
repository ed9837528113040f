/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_located.c - the chunks of a range, for a decoder that is not this library's */

#include <string.h>

#include "reader_lists.h"
#include "reader_located.h"
#include "reader_prediction.h"
#include "reader_segments.h"
#include "reader_state.h"
#include "codecs/coder.h"
#include "format/codec_ids.h"
#include "util/arguments.h"

/* A walk through a range. */
struct range_walk {
	kvarc_reader *r;
	struct kvi_range g;
	kvi_located_take take;
	void *opaque;
};

kvarc_ret kvi_reader_bytes(kvarc_reader *r, void *to, size_t bytes, uint64_t offset)
{
	struct kvi_input in = r->in;
	size_t got;
	in.window = NULL;
	kvarc_ret ret = kvi_input_read(&in, to, bytes, offset, &got, r->error);
	return ret || got == bytes ? ret
	                           : kvi_fail_at(r->error, KVARC_DATA, offset, KVARC_UNKNOWN,
	                                         "the file ends inside a chunk");
}

/* ----- whether a chunk is of the subset ------------------------------------------------ */

/* Reads the head of a chunk's frame and sets what it says. */
static kvarc_ret read_head(struct range_walk *w, const struct kvi_segment_ref *segment,
                           const struct kvi_chunk_ref *chunk, struct kvi_located *located)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES];
	struct kvi_frame f;
	kvarc_reader *r = w->r;
	kvarc_ret ret = kvi_frame_peek(&r->in, chunk->offset, head, KVI_CHUNK_HEADER_BYTES, &f,
	                               r->error);
	if (ret)
		return ret;
	if (f.head.type != KVI_FRAME_CHUNK || f.head.sequence != chunk->sequence ||
	    f.head.payload_bytes < KVI_CHUNK_HEADER_BYTES ||
	    !kvi_chunk_header_parse(&located->header, f.payload, KVI_CHUNK_HEADER_BYTES))
		return kvi_fail_at(r->error, KVARC_DATA, chunk->offset, chunk->sequence,
		                   "its header is not valid");
	if (located->header.tensor != kvi_chunk_named(r, chunk) ||
	    located->header.head != chunk->head || located->header.heads != chunk->heads ||
	    located->header.params != chunk->params ||
	    located->header.segment != segment->sequence || located->header.t0 != segment->t0 ||
	    located->header.n != segment->n)
		return kvi_fail_at(r->error, KVARC_DATA, chunk->offset, chunk->sequence,
		                   "it is not what the index or its segment say");
	located->offset = chunk->offset + KVI_FRAME_HEAD_BYTES;
	located->bytes = f.head.payload_bytes;
	return KVARC_OK;
}

/* Sets decodable, and what depends on it. */
static kvarc_ret judge(struct range_walk *w, const struct kvi_segment_ref *segment,
                       const struct kvi_chunk_ref *chunk, const struct kvi_params *params,
                       struct kvi_located *located)
{
	if (segment->stored || w->r->in.crypt || chunk->linear)
		return KVARC_OK;
	kvarc_ret ret = read_head(w, segment, chunk, located);
	if (ret)
		return ret;
	switch (located->header.codec) {
	case KVI_CODEC_RAW:
	case KVI_CODEC_CONSTANT:
	case KVI_CODEC_LAYERS:
		located->decodable = true;
		return KVARC_OK;
	case KVI_CODEC_GRID:
	case KVI_CODEC_CELLS:
		if (!params || params->codec != kvi_codec_params(located->header.codec))
			return KVARC_OK; /* decoding the chunk reports the error */
		located->params = params;
		located->decodable = true;
		return KVARC_OK;
	default:
		return KVARC_OK;
	}
}

/* ----- the walk ------------------------------------------------ */

static kvarc_ret take_chunk(struct range_walk *w, const struct kvi_segment_ref *ref,
                            const struct kvi_segment *segment, const struct kvi_chunk_ref *chunk)
{
	kvarc_reader *r = w->r;
	const kvarc_tensor *t = &r->geometry.tensors[chunk->tensor];
	const uint64_t end = ref->t0 + ref->left < w->g.t_end ? ref->t0 + ref->left : w->g.t_end;
	struct kvi_params_use *use = NULL;
	struct kvi_located p = { .shape = { .dtype = t->dtype,
		                            .n_tokens = ref->n,
		                            .heads = chunk->heads,
		                            .head_channels = t->channels,
		                            .positions = segment->positions,
		                            .rope = kvi_tensor_rope(&r->geometry, t) },
		                 .from = ref->t0 < w->g.t0 ? (uint32_t)(w->g.t0 - ref->t0) : 0,
		                 .to = (uint32_t)(end - ref->t0),
		                 .tensor = chunk->tensor,
		                 .layer = t->layer,
		                 .head = chunk->head,
		                 .t0 = ref->t0,
		                 .predicted = chunk->linear };
	kvarc_ret ret = chunk->linear || ref->stored
	                        ? KVARC_OK
	                        : kvi_reader_params(r, &r->packer, chunk, &use, r->error);
	if (ret == KVARC_OK)
		ret = judge(w, ref, chunk, use ? use->params : NULL, &p);
	if (ret == KVARC_OK)
		ret = w->take(w->opaque, &p);
	kvi_params_store_release(&r->workers.store, use);
	return ret;
}

static kvarc_ret walk_segment(struct range_walk *w, const struct kvi_segment_ref *segment)
{
	struct kvi_segment_use *use = NULL;
	const uint64_t end = kvi_segment_chunks_end(w->r, segment);
	kvarc_ret ret = kvi_segment_use_load(w->r, &w->r->packer, segment, &use, w->r->error);
	for (uint64_t i = segment->first; i < end && ret == KVARC_OK; i++) {
		const struct kvi_chunk_ref c = kvi_segment_chunk(w->r, segment, i);
		if (kvi_range_wants(w->r, &w->g, c.tensor))
			ret = take_chunk(w, segment, &use->segment, &c);
	}
	kvi_segment_use_release(w->r, use);
	return ret;
}

kvarc_ret kvi_reader_locate(kvarc_reader *r, const kvarc_range *range, kvi_located_take take,
                            void *opaque)
{
	struct range_walk w = { .r = r, .take = take, .opaque = opaque };
	kvarc_ret ret = kvi_range_check(r, range, &w.g);
	if (ret == KVARC_OK && r->salvage)
		return kvi_fail(r->error, KVARC_PROG,
		                "a salvaged archive is read by kvarc_reader_read alone");
	if (ret == KVARC_OK)
		ret = kvi_reader_list_range(r, w.g.track, w.g.t0, w.g.t_end);
	for (size_t i = 0; i < r->index.segments.n && ret == KVARC_OK; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (kvi_segment_has(s, w.g.track, w.g.t0, w.g.t_end))
			ret = walk_segment(&w, s);
	}
	return ret;
}
