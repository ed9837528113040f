/* SPDX-License-Identifier: BSD-3-Clause */
/* superblock.h - the first 64 bytes of a file (spec 2) */
#ifndef KVI_SUPERBLOCK_H
#define KVI_SUPERBLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

/* Sizes of the superblock and of the magic number in front of it. */
enum { KVI_SUPERBLOCK_BYTES = 64, KVI_MAGIC_BYTES = 8 };

/* Bits of feature_incompat and feature_compat (spec 2). */
enum { KVI_INCOMPAT_ENCRYPTED = 1, KVI_INCOMPAT_STORE = 2, KVI_COMPAT_PARITY = 1 };

/* The fields of a superblock. */
struct kvi_superblock {
	uint16_t major, minor;
	uint32_t compat, ro_compat, incompat;
	uint8_t file_id[16];
};

/* Writes a superblock with its check. */
void kvi_superblock_write(uint8_t out[KVI_SUPERBLOCK_BYTES], const struct kvi_superblock *sb);
/* Whether the bytes begin with the magic number of the format. */
bool kvi_superblock_magic(const uint8_t *p, size_t bytes);
/* Fills sb whenever the magic is right. Returns OK, FORMAT, DATA, OPTIONS in
 * the order of tests of spec 2. */
kvarc_ret kvi_superblock_parse(struct kvi_superblock *sb, const uint8_t in[KVI_SUPERBLOCK_BYTES]);
/* Whether it is the superblock of a version before 1.0, whose layout this one does not read. */
bool kvi_superblock_pre_release(const uint8_t in[KVI_SUPERBLOCK_BYTES]);

#endif
