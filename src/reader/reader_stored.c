/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_stored.c - segments as they are listed, and those that lie in a store (spec frames 12.3) */
#include "reader_state.h"

/* Bytes of all tensors of a track, for n tokens. */
static uint64_t track_bytes(const kvarc_reader *r, uint32_t track, uint32_t n)
{
	uint64_t bytes = 0;
	for (uint32_t i = r->order.first[track]; i < r->order.first[track + 1]; i++)
		bytes += kvi_tensor_bytes(&r->geometry.tensors[r->order.tensors[i]]);
	return n * bytes;
}

/* Segment i of those that have tokens left. NULL: there are not as many. */
static const struct kvi_segment_ref *segment_at(kvarc_reader *r, uint64_t i)
{
	struct kvi_reader_index *x = &r->index;
	if (i < x->listed || !x->listed_at)
		x->listed = x->listed_at = 0;
	for (; x->listed_at < x->segments.n; x->listed_at++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, x->segments,
		                                           x->listed_at);
		if (!s->left)
			continue;
		if (x->listed == i)
			return s;
		x->listed++;
	}
	return NULL;
}

kvarc_ret kvarc_reader_segment_at(kvarc_reader *r, uint64_t i, kvarc_stored *segment,
                                  unsigned *flags)
{
	if (!r || !segment)
		return KVARC_PROG;
	if (r->sticky)
		return r->sticky;
	if (!kvi_input_seekable(&r->in))
		return kvi_reason(
			r->error, KVARC_REASON_NEEDS_SEEK,
			kvi_reader_fail(
				r, KVARC_OPTIONS,
				"listing segments needs a source that can seek, not a pipe"));
	const struct kvi_segment_ref *s = segment_at(r, i);
	if (!s)
		return KVARC_END;
	*segment = (kvarc_stored){ .track = s->track,
		                   .n = s->n,
		                   .t0 = s->t0,
		                   .bytes = track_bytes(r, s->track, s->n),
		                   .has_chain = s->chain.known,
		                   .left = s->left };
	if (s->chain.known)
		kvi_store_h128(segment->chain, s->chain.value);
	if (flags)
		*flags = s->left < s->n ? KVARC_SEGMENT_CUT : 0;
	return KVARC_OK;
}
