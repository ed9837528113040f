/* SPDX-License-Identifier: BSD-3-Clause */
/* weight_cache.h - converted weights in files of their own, below a size */
#ifndef KVI_WEIGHT_CACHE_H
#define KVI_WEIGHT_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "exact/engine.h"
#include "exact/engine_internal.h"
#include "util/hash.h"
#include "util/shared.h"

struct kvi_pool;

/* Another one when the numbers or their order in parts change: tests/unit/test_weight_cache.c
 * knows. */
enum { KVI_WEIGHT_CACHE_VERSION = 2 };

/* What the file of an engine has to be. */
struct kvi_weight_cache_layout {
	struct kvi_h128 key;
	size_t parts, header, bytes;
};
/* False: it cannot be, or there is no such stamp. engine has its layers. */
bool kvi_weight_cache_layout(struct kvi_engine *engine, const struct kvi_h128 *stamp,
                             struct kvi_weight_cache_layout *layout);
/* Takes digest and parts from n bytes, page-aligned, which have to stay. False: they are something
 * else or damaged; engine is as it was. */
bool kvi_weight_cache_read(struct kvi_engine *engine, const struct kvi_weight_cache_layout *layout,
                           const uint8_t *p, size_t n, struct kvi_pool *pool);
/* The first layout->header bytes of the file of a whole engine. False: no memory. */
bool kvi_weight_cache_header(struct kvi_engine *engine,
                             const struct kvi_weight_cache_layout *layout, uint8_t *header,
                             struct kvi_pool *pool);
/* Hands out what comes behind the header, in order; stops when put says false, and says so. */
bool kvi_weight_cache_parts(struct kvi_engine *engine,
                            bool (*put)(void *opaque, const void *p, size_t n), void *opaque);
/* As kvi_engine_make, with the converted weights from a file of the folder of options->cache
 * where it has one; else they are stored there afterwards, if that is possible. */
KVI_SHARED kvarc_ret kvi_kept_engine(struct kvi_engine **engine,
                                     const struct kvi_engine_options *options);

#endif
