/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weight_cache.h - an engine's weights in a file of their own, so that they are converted once
 *
 * The file is private to the machine: numbers are in its byte order, and parts lie as kernels
 * want them (the same for all instruction sets), so that they are used from the mapping.
 *
 *   0  magic, 8 bytes          16  key, H128         48  parts n, u64
 *   8  version, u32            32  digest of the     56  bytes of the file, u64
 *  12  1, u32 in byte order        weights, H128     64  n times bytes, H64 of a part, u64
 *  ... zeros, and in the last 8 bytes of the first whole 4096 H64 of all before; then the parts,
 *  one behind the other. Numbers but the one at 12 are little-endian.
 *
 * What it must be - key, parts, their sizes - follows from the model and the arithmetic, and
 * anything else is no such file: nothing is believed but the numbers of the weights, which are
 * checked before one of them is used.
 */
#ifndef KVI_WEIGHT_CACHE_H
#define KVI_WEIGHT_CACHE_H

#include "exact/engine_internal.h"
#include "util/shared.h"

/* Another one when the numbers or their order in parts change: tests/unit/test_weight_cache.c
 * knows. */
enum { KVI_WEIGHT_CACHE_VERSION = 2 };
/* Size of the magic number in front of a weight cache file. */
enum { KVI_WEIGHT_CACHE_MAGIC_BYTES = 8 };
extern const uint8_t kvi_weight_cache_magic[KVI_WEIGHT_CACHE_MAGIC_BYTES];

/* What the file of an engine has to be. */
struct kvi_weight_cache_layout {
	struct kvi_h128 key;
	size_t parts, header, bytes;
};
/* False: it cannot be, or there is no such stamp. e has its layers. */
bool kvi_weight_cache_layout(struct kvi_engine *e, const struct kvi_h128 *stamp,
                             struct kvi_weight_cache_layout *l);
/* Takes digest and parts from n bytes, page-aligned, which have to stay. False: they are something
 * else or damaged; e is as it was. */
bool kvi_weight_cache_read(struct kvi_engine *e, const struct kvi_weight_cache_layout *l,
                           const uint8_t *p, size_t n, struct kvi_pool *pool);
/* The first l->header bytes of the file of a whole engine. False: no memory. */
bool kvi_weight_cache_header(struct kvi_engine *e, const struct kvi_weight_cache_layout *l,
                             uint8_t *header, struct kvi_pool *pool);
/* Hands out what comes behind the header, in order; stops when put says false, and says so. */
bool kvi_weight_cache_parts(struct kvi_engine *e,
                            bool (*put)(void *opaque, const void *p, size_t n), void *opaque);

/* As kvi_engine_make, with the converted weights from a file of the folder of o->cache where it
 * has one; else they are stored there afterwards, if that is possible. */
KVI_SHARED kvarc_ret kvi_kept_engine(struct kvi_engine **e, const struct kvi_engine_options *o);

/* Removes the least recently used of our files in a folder until they take at most `bytes` bytes,
 * and the temporary files of killed writers. False: there are still more. */
bool kvi_weight_cache_evict(int folder, uint64_t bytes);

#endif
