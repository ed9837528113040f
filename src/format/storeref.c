/* SPDX-License-Identifier: BSD-3-Clause */
/* storeref.c - parses and writes STOREREF content (spec frames 12.3) */
#include "storeref.h"

#include "segment.h"

enum { FLAG_CHAIN = 1, HASH_BYTES = 16 };

uint64_t kvi_track_bytes(const kvarc_geometry *geometry, const struct kvi_order *order,
                         uint32_t track)
{
	uint64_t bytes = 0;
	for (uint32_t i = order->first[track]; i < order->first[track + 1]; i++)
		bytes += kvi_tensor_bytes(&geometry->tensors[order->tensors[i]]);
	return bytes;
}

void kvi_storeref_put(struct kvi_out *out, const kvarc_stored *segments, size_t n)
{
	kvi_put_varint(out, segments->track);
	kvi_put_varint(out, segments->t0);
	kvi_put_varint(out, n);
	for (size_t i = 0; i < n; i++) {
		const kvarc_stored *s = &segments[i];
		kvi_put_varint(out, s->n);
		kvi_put8(out, s->has_chain ? FLAG_CHAIN : 0);
		kvi_put_varint(out, s->bytes);
		kvi_put_bytes(out, s->digest, HASH_BYTES);
		if (s->has_chain)
			kvi_put_bytes(out, s->chain, HASH_BYTES);
	}
}

/* Reads one segment of the frame. False: it is not valid. */
static bool parse_segment(struct kvi_in *in, kvarc_stored *stored, uint64_t token_bytes)
{
	stored->n = (uint32_t)kvi_get_varint(in, KVI_SEGMENT_TOKENS);
	const uint8_t flags = kvi_get8(in);
	stored->bytes = kvi_get_varint(in, UINT64_MAX);
	const uint8_t *digest = kvi_get_bytes(in, HASH_BYTES);
	const uint8_t *chain = flags & FLAG_CHAIN ? kvi_get_bytes(in, HASH_BYTES) : NULL;
	if (in->bad || stored->n == 0 || flags & ~FLAG_CHAIN ||
	    stored->bytes != stored->n * token_bytes)
		return false;
	memcpy(stored->digest, digest, HASH_BYTES);
	stored->has_chain = chain != NULL;
	if (chain)
		memcpy(stored->chain, chain, HASH_BYTES);
	return true;
}

kvarc_ret kvi_storeref_parse(struct kvi_list *to, const struct kvi_alloc *alloc,
                             const kvarc_geometry *geometry, const struct kvi_order *order,
                             const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	const uint32_t track = (uint32_t)kvi_get_varint(&in, geometry->n_tracks - 1);
	uint64_t t0 = kvi_get_varint(&in, UINT32_MAX);
	const uint64_t n = kvi_get_varint(&in, KVI_STOREREF_SEGMENTS);
	to->n = 0;
	if (in.bad || n == 0)
		return KVARC_DATA;
	const uint64_t token_bytes = kvi_track_bytes(geometry, order, track);
	for (uint64_t i = 0; i < n; i++) {
		kvarc_stored *s = kvi_list_add(to, alloc, sizeof *s);
		if (!s)
			return kvi_alloc_error(alloc);
		*s = (kvarc_stored){ .track = track, .t0 = t0 };
		if (!parse_segment(&in, s, token_bytes) || t0 > UINT32_MAX)
			return KVARC_DATA;
		t0 += s->n;
	}
	return kvi_get_extensions(&in) ? KVARC_OK : KVARC_DATA;
}
