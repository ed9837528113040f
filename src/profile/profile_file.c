/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_file.c - header and packed content of a .kvp file (spec profile 1) */
#include "format/frame.h"
#include "format/packed.h"
#include "profile_tensors.h"

static const uint8_t magic[8] = { 0x89, 'K', 'V', 'P', 0x0d, 0x0a, 0x1a, 0x0a };
#define CONTENT_MAX ((uint64_t)1 << 34)
enum { VERSION_MAJOR = 1, VERSION_MINOR = 0, CHECK_AT = 56 };

kvarc_ret kvi_profile_header_parse(struct kvi_profile_header *h, const uint8_t *file, size_t bytes)
{
	if (bytes < sizeof magic || memcmp(file, magic, sizeof magic) != 0)
		return KVARC_FORMAT;
	if (bytes < KVI_PROFILE_HEADER_BYTES)
		return KVARC_DATA;
	const uint64_t check = kvi_load64(file + CHECK_AT);
	if (check != kvi_h64(file, CHECK_AT))
		return kvi_h64_pre_release(file, CHECK_AT, check) ? KVARC_OPTIONS : KVARC_DATA;
	if (kvi_load16(file + 8) != VERSION_MAJOR || kvi_load32(file + 12))
		return KVARC_OPTIONS;
	h->content_bytes = kvi_load64(file + 16);
	h->packed_bytes = kvi_load64(file + 24);
	h->digest = kvi_load_h128(file + 32);
	if (h->content_bytes > CONTENT_MAX || h->packed_bytes == 0 ||
	    h->packed_bytes > h->content_bytes + 1 || kvi_load64(file + 48))
		return KVARC_DATA;
	/* A content that no memory of this machine can hold. */
	return h->content_bytes > SIZE_MAX / 2 ? KVARC_MEMLIMIT : KVARC_OK;
}

kvarc_ret kvi_profile_unpack(struct kvi_profile **out, const struct kvi_alloc *alloc,
                             const struct kvi_profile_header *h, const uint8_t *packed)
{
	struct kvi_packer packer;
	const uint8_t *content;
	uint8_t *owned;
	*out = NULL;
	kvi_packer_init(&packer, alloc);
	kvarc_ret ret = kvi_unpack(&packer, packed, (size_t)h->packed_bytes,
	                           (size_t)h->content_bytes, &content, &owned);
	kvi_packer_free(&packer);
	if (ret)
		return ret;
	if (kvi_h128_equal(kvi_h128(content, (size_t)h->content_bytes), h->digest))
		ret = kvi_profile_parse(out, alloc, content, (size_t)h->content_bytes);
	else
		ret = KVARC_DATA;
	kvi_free(alloc, owned);
	return ret;
}

kvarc_ret kvi_profile_read_file(struct kvi_profile **out, const struct kvi_alloc *alloc,
                                const uint8_t *file, size_t bytes)
{
	struct kvi_profile_header h;
	*out = NULL;
	kvarc_ret ret = kvi_profile_header_parse(&h, file, bytes);
	if (ret)
		return ret;
	if (h.packed_bytes != bytes - KVI_PROFILE_HEADER_BYTES)
		return KVARC_DATA;
	return kvi_profile_unpack(out, alloc, &h, file + KVI_PROFILE_HEADER_BYTES);
}

static void put_header(uint8_t *to, const struct kvi_profile_header *h)
{
	memset(to, 0, KVI_PROFILE_HEADER_BYTES);
	memcpy(to, magic, sizeof magic);
	kvi_store16(to + 8, VERSION_MAJOR);
	kvi_store16(to + 10, VERSION_MINOR);
	kvi_store64(to + 16, h->content_bytes);
	kvi_store64(to + 24, h->packed_bytes);
	kvi_store_h128(to + 32, h->digest);
	kvi_store64(to + CHECK_AT, kvi_h64(to, CHECK_AT));
}

/* Header and packed content at the end of out. */
static kvarc_ret write_content(struct kvi_out *out, const struct kvi_out *content)
{
	static const uint8_t blank[KVI_PROFILE_HEADER_BYTES];
	struct kvi_profile_header h = { .content_bytes = content->n };
	struct kvi_packer packer;
	size_t start = out->n;
	kvi_put_bytes(out, blank, sizeof blank);
	kvi_packer_init(&packer, out->alloc);
	kvarc_ret ret = kvi_pack(&packer, out, content->p, content->n);
	kvi_packer_free(&packer);
	if (ret || out->failed)
		return ret ? ret : kvi_alloc_error(out->alloc);
	h.packed_bytes = out->n - start - sizeof blank;
	h.digest = kvi_h128(content->p, content->n);
	put_header(out->p + start, &h);
	return KVARC_OK;
}

kvarc_ret kvi_profile_write_file(const struct kvi_profile *p, struct kvi_out *out)
{
	struct kvi_out content;
	kvi_out_init(&content, out->alloc);
	kvi_profile_put(p, &content);
	kvarc_ret ret = content.failed ? kvi_alloc_error(out->alloc) : write_content(out, &content);
	kvi_out_free(&content);
	return ret;
}
