/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvc_import.c - KVC files: a header of 48 bytes that ds4, erllama and hanzo share
 *
 *     "KVC", u8 version 1, u8 quant_bits, u8 reason, u8 reserved[2], u32 tokens, u32 hits,
 *     u32 context_size, u8 reserved[4], u64 created, u64 last_used, u64 payload_bytes
 *
 * erllama has a second header behind it: u64 payload_offset, u64 payload_length, u32 CRC-32C of
 * the payload, u32 reserved; then a text and a list of (u8 tag, u32 length, value), each behind its
 * u32 length; then the payload, to the end of the file, a bare state of llama.cpp. The payloads of
 * others have formats of their own.
 */
#include <stdio.h>
#include <string.h>

#include "import_internal.h"
#include "util/error.h"
#include "util/source.h"

enum { HEADER_BYTES = 48, SECOND_BYTES = 24, TAG_TOKENS = 9, TAGS_MAX = 4096 };

struct kvc {
	uint64_t payload_at, payload_bytes;
	uint32_t check;
	uint64_t ids_at; /* 0: none */
	uint32_t n_ids;
};

/* CRC-32C (Castagnoli), four bits at a time. */
static uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
	static const uint32_t table[16] = { 0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
		                            0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		                            0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		                            0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75 };
	crc = ~crc;
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}

/* A section behind its u32 length; *at is moved past it. END: it is longer than the file. */
static kvarc_ret take_section(const kvarc_source *src, uint64_t *at, uint64_t end, uint32_t *bytes)
{
	uint8_t p[4];
	if (*at > end || end - *at < sizeof p)
		return KVARC_END;
	if (kvi_source_read(src, p, sizeof p, *at))
		return KVARC_IO;
	*bytes = kvi_load32(p);
	*at += sizeof p;
	if (*bytes > end - *at)
		return KVARC_END;
	*at += *bytes;
	return KVARC_OK;
}

/* Where the token ids are among the tags from `at` on, which end at `end`. */
static kvarc_ret take_tags(const kvarc_source *src, uint64_t at, uint64_t end, struct kvc *k)
{
	for (int i = 0; i < TAGS_MAX && at < end; i++) {
		uint8_t tag;
		uint32_t bytes;
		if (kvi_source_read(src, &tag, 1, at++))
			return KVARC_IO;
		kvarc_ret ret = take_section(src, &at, end, &bytes);
		if (ret)
			return ret;
		if (tag == TAG_TOKENS && bytes % 4 == 0 && bytes) {
			k->ids_at = at - bytes;
			k->n_ids = bytes / 4;
		}
	}
	return at == end ? KVARC_OK : KVARC_END;
}

/* The second header and what stands behind it, up to the payload. END: it is not erllama's. */
static kvarc_ret read_second(const kvarc_source *src, uint64_t payload_bytes, struct kvc *k)
{
	uint8_t p[SECOND_BYTES];
	uint64_t at = HEADER_BYTES + SECOND_BYTES;
	uint32_t text, tags;
	if (src->size < at)
		return KVARC_END;
	if (kvi_source_read(src, p, sizeof p, HEADER_BYTES))
		return KVARC_IO;
	*k = (struct kvc){ .payload_at = kvi_load64(p),
		           .payload_bytes = kvi_load64(p + 8),
		           .check = kvi_load32(p + 16) };
	if (k->payload_bytes != payload_bytes || k->payload_at > src->size ||
	    src->size - k->payload_at != payload_bytes)
		return KVARC_END;
	kvarc_ret ret = take_section(src, &at, k->payload_at, &text);
	if (!ret)
		ret = take_section(src, &at, k->payload_at, &tags);
	if (!ret && at != k->payload_at)
		ret = KVARC_END;
	return ret ? ret : take_tags(src, at - tags, at, k);
}

/* A wrong check is no reason to refuse: the file comes back as it is. */
static kvarc_ret compare_check(kvarc_import *im, const kvarc_source *src, const struct kvc *k)
{
	enum { STEP = 64 << 10 };
	uint8_t *buf = kvi_malloc(&im->alloc, STEP);
	uint32_t crc = 0;
	kvarc_ret ret = KVARC_OK;
	if (!buf)
		return kvi_fail_alloc(im->error, &im->alloc);
	for (uint64_t at = 0; at < k->payload_bytes && !ret; at += STEP) {
		const uint64_t left = k->payload_bytes - at;
		const size_t n = left < STEP ? (size_t)left : STEP;
		if (kvi_source_read(src, buf, n, k->payload_at + at))
			ret = KVARC_IO;
		else
			crc = crc32c(crc, buf, n);
	}
	kvi_free(&im->alloc, buf);
	if (!ret && crc != k->check)
		kvi_import_note(im, "the check of its payload is wrong: kept as it is; "
		                    "erllama will not load it");
	return ret;
}

kvarc_ret kvi_import_kvc(kvarc_import *im, uint32_t item)
{
	const kvarc_source *src = &im->items[item].src;
	uint8_t p[HEADER_BYTES];
	struct kvc k;
	if (src->size < sizeof p)
		return KVARC_END;
	if (kvi_source_read(src, p, sizeof p, 0))
		return KVARC_IO;
	if (memcmp(p, "KVC\1", 4))
		return KVARC_END;
	kvarc_ret ret = read_second(src, kvi_load64(p + 40), &k);
	if (!ret)
		ret = compare_check(im, src, &k);
	if (!ret)
		ret = kvi_import_llama_state(im, item, k.payload_at, k.ids_at, k.n_ids);
	if (ret == KVARC_END)
		kvi_import_note(im, "a KVC file whose payload is no state of llama.cpp: kept "
		                    "as an opaque file");
	if (ret)
		return ret;
	im->items[item].kind = KVI_ITEM_OTHER;
	im->engine = "erllama";
	snprintf(im->format, sizeof im->format, "KVC file, a state of llama.cpp");
	return KVARC_OK;
}
