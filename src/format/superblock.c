/* SPDX-License-Identifier: BSD-3-Clause */
/* superblock.c - parses and writes the superblock (spec 2) */
#include "superblock.h"

#include "util/bytes.h"
#include "util/hash.h"

enum { CHECK_AT = 56 };

static const uint8_t magic[KVI_MAGIC_BYTES] = { 0x89, 'K', 'V', 'A', 0x0d, 0x0a, 0x1a, 0x0a };

void kvi_superblock_write(uint8_t out[KVI_SUPERBLOCK_BYTES], const struct kvi_superblock *sb)
{
	memset(out, 0, KVI_SUPERBLOCK_BYTES);
	memcpy(out, magic, sizeof magic);
	kvi_store16(out + 8, sb->major);
	kvi_store16(out + 10, sb->minor);
	kvi_store32(out + 12, sb->compat);
	kvi_store32(out + 16, sb->ro_compat);
	kvi_store32(out + 20, sb->incompat);
	memcpy(out + 24, sb->file_id, sizeof sb->file_id);
	kvi_store64(out + CHECK_AT, kvi_h64(out, CHECK_AT));
}

bool kvi_superblock_magic(const uint8_t *p, size_t bytes)
{
	return bytes >= sizeof magic && memcmp(p, magic, sizeof magic) == 0;
}

kvarc_ret kvi_superblock_parse(struct kvi_superblock *sb, const uint8_t in[KVI_SUPERBLOCK_BYTES])
{
	static const uint8_t zero[16];
	if (!kvi_superblock_magic(in, KVI_SUPERBLOCK_BYTES))
		return KVARC_FORMAT;
	sb->major = kvi_load16(in + 8);
	sb->minor = kvi_load16(in + 10);
	sb->compat = kvi_load32(in + 12);
	sb->ro_compat = kvi_load32(in + 16);
	sb->incompat = kvi_load32(in + 20);
	memcpy(sb->file_id, in + 24, sizeof sb->file_id);
	if (kvi_load64(in + CHECK_AT) != kvi_h64(in, CHECK_AT))
		return KVARC_DATA;
	if (sb->major != KVARC_FORMAT_MAJOR ||
	    sb->incompat & ~(uint32_t)(KVI_INCOMPAT_ENCRYPTED | KVI_INCOMPAT_STORE))
		return KVARC_OPTIONS;
	return memcmp(in + 40, zero, sizeof zero) ? KVARC_DATA : KVARC_OK;
}

bool kvi_superblock_pre_release(const uint8_t in[KVI_SUPERBLOCK_BYTES])
{
	return kvi_superblock_magic(in, KVI_SUPERBLOCK_BYTES) &&
	       kvi_h64_pre_release(in, CHECK_AT, kvi_load64(in + CHECK_AT));
}
