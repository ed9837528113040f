/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_exact.c - payloads of lossy chunks whose exact tokens are unpacked (spec lossy 1) */
#include "reader_exact.h"

#include <string.h>

#include "format/chunk_header.h"
#include "reader_located.h"
#include "reader_state.h"
#include "util/arguments.h"

/* Generation and flags; methods of exact tokens, which are those of packed contents (spec 1.5);
 * payloads that are taken. */
enum {
	HEAD = 2,
	FLAG_EXACT = 1,
	STORED = 0,
	ZSTD = 1,
	BITMAP_MOST = KVI_SEGMENT_TOKENS / 8,
	BYTES_MOST = 1 << 30
};

kvarc_ret kvi_reader_find_exact(kvarc_reader *r, const struct kvi_chunk *shape, uint64_t offset,
                                uint32_t n, struct kvi_packed_exact *packed)
{
	const size_t T = shape->n_tokens, method = HEAD + (T + 7) / 8;
	const size_t row = kvi_chunk_bytes(shape) / T;
	uint8_t head[HEAD + BITMAP_MOST + 1 + KVI_VARINT_BYTES];
	size_t bytes = n - KVI_CHUNK_HEADER_BYTES, exact = 0;
	*packed = (struct kvi_packed_exact){ 0 };
	if (bytes <= method || n > BYTES_MOST)
		return KVARC_OK;
	bytes = bytes < sizeof head ? bytes : sizeof head;
	kvarc_ret ret = kvi_reader_bytes(r, head, bytes, offset + KVI_CHUNK_HEADER_BYTES);
	if (ret || !(head[1] & FLAG_EXACT) || head[method] != ZSTD)
		return ret;
	for (size_t t = 0; t < T; t++)
		exact += head[HEAD + t / 8] >> t % 8 & 1;
	struct kvi_in in = kvi_in_make(head + method + 1, bytes - method - 1);
	const size_t frame = (size_t)kvi_get_varint(&in, BYTES_MOST);
	const size_t length = bytes - method - kvi_in_remaining(&in);
	if (in.bad || frame > n - KVI_CHUNK_HEADER_BYTES - method - length ||
	    exact * row > BYTES_MOST)
		return KVARC_OK;
	*packed = (struct kvi_packed_exact){ .at = (uint32_t)(KVI_CHUNK_HEADER_BYTES + method),
		                             .head = (uint32_t)length,
		                             .frame = (uint32_t)frame,
		                             .raw_bytes = (uint32_t)(exact * row) };
	return KVARC_OK;
}

/* Unpacks a frame, in front of which is a byte for its method. */
static kvarc_ret unpack(kvarc_reader *r, const uint8_t *frame, const struct kvi_packed_exact *x,
                        uint8_t *to)
{
	const uint8_t *content;
	uint8_t *owned = NULL;
	kvarc_ret ret = kvi_unpack(&r->packer, frame, (size_t)x->frame + 1, x->raw_bytes, &content,
	                           &owned);
	if (ret == KVARC_OK)
		memcpy(to, content, x->raw_bytes);
	kvi_free(&r->alloc, owned);
	return ret;
}

kvarc_ret kvi_reader_payload(kvarc_reader *r, uint8_t *to, uint32_t n, uint64_t offset,
                             const struct kvi_packed_exact *packed)
{
	const uint32_t behind = packed->at + packed->head;
	if (!packed->at)
		return kvi_reader_bytes(r, to, n, offset);
	uint8_t *frame = kvi_malloc(&r->alloc, (size_t)packed->frame + 1), *at = to + packed->at;
	if (!frame)
		return kvi_fail_alloc(r->error, &r->alloc);
	frame[0] = ZSTD;
	kvarc_ret ret = kvi_reader_bytes(r, to, packed->at, offset);
	if (ret == KVARC_OK)
		ret = kvi_reader_bytes(r, frame + 1, packed->frame, offset + behind);
	*at = STORED;
	if (ret == KVARC_OK)
		ret = kvi_reader_bytes(r, at + 1 + packed->raw_bytes, n - behind - packed->frame,
		                       offset + behind + packed->frame);
	if (ret == KVARC_OK) {
		ret = unpack(r, frame, packed, at + 1);
		if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT) {
			kvi_fail_alloc(r->error, &r->alloc);
		} else if (ret) {
			memset(at + 1, 0, packed->raw_bytes);
			to[KVI_CHUNK_HEADER_BYTES] = 0;
			ret = KVARC_OK;
		}
	}
	kvi_free(&r->alloc, frame);
	return ret;
}
