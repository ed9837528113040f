/* SPDX-License-Identifier: BSD-3-Clause */
/* segment.c - parses and writes SEGMENT content (spec 6) */
#include "segment.h"

enum { FLAG_IDS = 1, FLAG_CODED = 2, FLAG_CHAIN = 4 };
enum { CHAIN_BYTES = 16 };

/* Length of the maximal run of consecutive positions in [i, n) that starts at i. */
static uint32_t run_length(const struct kvi_segment *segment, uint32_t i, uint32_t n)
{
	uint32_t k = 1;
	while (i + k < n &&
	       (int64_t)segment->positions[i + k] == (int64_t)segment->positions[i] + k)
		k++;
	return k;
}

void kvi_segment_put_positions(struct kvi_out *out, const struct kvi_segment *segment, uint32_t n)
{
	uint32_t runs = 0;
	for (uint32_t i = 0; i < n; i += run_length(segment, i, n))
		runs++;
	kvi_put_varint(out, runs);
	for (uint32_t i = 0; i < n; i += run_length(segment, i, n)) {
		kvi_put_zigzag(out, segment->positions[i]);
		kvi_put_varint(out, run_length(segment, i, n));
	}
}

void kvi_segment_put(struct kvi_out *out, const struct kvi_segment *segment)
{
	unsigned ids = segment->coded ? FLAG_IDS | FLAG_CODED : segment->has_ids ? FLAG_IDS : 0;
	uint8_t chain[CHAIN_BYTES];
	kvi_put_varint(out, segment->track);
	kvi_put_varint(out, segment->t0);
	kvi_put_varint(out, segment->n);
	kvi_put8(out, (uint8_t)(ids | (segment->has_chain ? FLAG_CHAIN : 0)));
	kvi_segment_put_positions(out, segment, segment->n);
	kvi_store_h128(chain, segment->chain);
	if (segment->has_chain)
		kvi_put_bytes(out, chain, sizeof chain);
	if (segment->coded) {
		kvi_put64(out, segment->check);
		kvi_put_varint(out, segment->code_bytes);
		kvi_put_bytes(out, segment->code, segment->code_bytes);
	}
	for (uint32_t i = 0; !segment->coded && segment->has_ids && i < segment->n; i++)
		kvi_put32(out, (uint32_t)segment->ids[i]);
}

uint64_t kvi_segment_ids_check(const struct kvi_segment *segment)
{
	uint8_t ids[4 * KVI_SEGMENT_TOKENS];
	for (uint32_t i = 0; i < segment->n; i++)
		kvi_store32(ids + 4 * (size_t)i, (uint32_t)segment->ids[i]);
	return kvi_h64(ids, 4 * (size_t)segment->n);
}

static bool parse_positions(struct kvi_segment *segment, struct kvi_in *in)
{
	uint64_t runs = kvi_get_varint(in, segment->n);
	uint32_t at = 0;
	for (uint64_t r = 0; r < runs && !in->bad; r++) {
		int64_t first = kvi_get_zigzag(in);
		uint32_t count = (uint32_t)kvi_get_varint(in, segment->n - at);
		if (in->bad || count == 0 || first < INT32_MIN ||
		    first > (int64_t)INT32_MAX - (count - 1))
			return false;
		if (at > 0 && first == (int64_t)segment->positions[at - 1] + 1)
			return false; /* runs are maximal */
		for (uint32_t i = 0; i < count; i++)
			segment->positions[at++] = (int32_t)(first + i);
	}
	return !in->bad && at == segment->n;
}

static bool parse_code(struct kvi_segment *segment, struct kvi_in *in)
{
	segment->check = kvi_get64(in);
	const size_t bytes = (size_t)kvi_get_varint(in, KVI_CODE_ID_BYTES * (uint64_t)segment->n +
	                                                        KVI_CODE_END_BYTES);
	const uint8_t *code = kvi_get_bytes(in, bytes);
	if (!code)
		return false;
	segment->code_bytes = (uint32_t)bytes;
	memcpy(segment->code, code, bytes);
	return true;
}

bool kvi_segment_parse(struct kvi_segment *segment, const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	segment->track = (uint32_t)kvi_get_varint(&in, UINT32_MAX);
	segment->t0 = kvi_get_varint(&in, UINT64_MAX);
	segment->part = 0;
	segment->n = segment->left = (uint32_t)kvi_get_varint(&in, KVI_SEGMENT_TOKENS);
	uint8_t flags = kvi_get8(&in);
	if (in.bad || segment->n == 0 || (flags & ~(FLAG_IDS | FLAG_CODED | FLAG_CHAIN)) ||
	    (flags && !(flags & FLAG_IDS)) || !parse_positions(segment, &in))
		return false;
	segment->has_chain = flags & FLAG_CHAIN;
	const uint8_t *chain = segment->has_chain ? kvi_get_bytes(&in, CHAIN_BYTES) : NULL;
	segment->chain = chain ? kvi_load_h128(chain) : (struct kvi_h128){ 0, 0 };
	segment->has_ids = !(flags & FLAG_CODED) && (flags & FLAG_IDS);
	segment->coded = flags & FLAG_CODED;
	segment->code_bytes = 0;
	if (segment->coded && !parse_code(segment, &in))
		return false;
	for (uint32_t i = 0; i < segment->n; i++)
		segment->ids[i] = segment->has_ids ? (int32_t)kvi_get32(&in) : 0;
	return kvi_get_extensions(&in);
}
