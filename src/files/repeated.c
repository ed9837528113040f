/* SPDX-License-Identifier: BSD-3-Clause */
/* repeated.c - which segments of an archive have chunks that others repeat */
#include "repeated.h"

#include <stddef.h>
#include <stdint.h>

#include "prefixes.h"
#include "codecs/codec.h"
#include "format/chunk_header.h"
#include "format/frame.h"
#include "reader/reader_errors.h"
#include "reader/reader_frames.h"
#include "reader/reader_index.h"
#include "reader/reader_lists.h"

enum { HEAD_BYTES = KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES };

/* Reads the header of a chunk and `extra` bytes behind it. */
static kvarc_ret peek(kvarc_reader *r, const struct kvi_chunk_ref *chunk, uint8_t head[HEAD_BYTES],
                      size_t extra, struct kvi_chunk_header *header)
{
	struct kvi_frame f;
	return kvi_reader_peek_chunk(r, chunk, head, extra, header, &f);
}

/* Finds the segment whose chunk the first chunk of a segment repeats; *of: NULL where it is no
 * repeat. Returns as kvi_reader_peek_chunk. */
static kvarc_ret find_repeated(kvarc_reader *r, const struct kvi_segment_ref *segment,
                               const struct kvi_segment_ref **of)
{
	const struct kvi_reader_index *index = kvi_reader_index(r);
	uint8_t head[HEAD_BYTES];
	struct kvi_chunk_header h;
	*of = NULL;
	if (segment->first == kvi_segment_chunks_end(r, segment))
		return KVARC_OK;
	const struct kvi_chunk_ref *chunk = kvi_segment_chunks(index, segment) + segment->first;
	kvarc_ret ret = peek(r, chunk, head, 0, &h);
	if (ret || h.codec != KVI_CODEC_REPEAT)
		return ret;
	ret = peek(r, chunk, head, KVI_REPEAT_BYTES, &h);
	chunk = ret ? NULL
	            : kvi_index_chunk(index, kvi_load64(head + HEAD_BYTES - KVI_REPEAT_BYTES));
	if (!chunk)
		return ret;
	ret = peek(r, chunk, head, 0, &h);
	*of = ret ? NULL : kvi_index_segment(index, h.segment);
	return ret;
}

kvarc_ret kvi_mark_repeated(kvarc_reader *r, bool *marks)
{
	const struct kvi_list *l = &kvi_reader_index(r)->segments;
	kvarc_ret ret = kvi_reader_list_all(r);
	for (size_t i = 0; i < l->n && !ret; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, *l, i), *of;
		if (s->left < KVI_PREFIX_LEAST || s->stored || s->origin)
			continue;
		ret = find_repeated(r, s, &of);
		if (of && of->track != s->track) {
			marks[i] = true;
			marks[of - KVI_LIST(struct kvi_segment_ref, *l, 0)] = true;
		}
	}
	if (ret != KVARC_MEM && ret != KVARC_MEMLIMIT && ret != KVARC_IO && ret) {
		kvi_reader_forgive(r);
		ret = KVARC_OK;
	}
	return ret;
}
