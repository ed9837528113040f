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

/* Version of the file, new when the numbers or their order in parts change:
 * tests/unit/test_weight_cache.c compares them. */
enum { KVI_WEIGHT_CACHE_VERSION = 3 };

/* Key and sizes of an engine's file. */
struct kvi_weight_cache_layout {
	struct kvi_h128 key;
	size_t parts, header, bytes;
};
/* Computes the layout for an engine with its layers. False: sizes overflow. */
bool kvi_weight_cache_layout(struct kvi_engine *engine, const struct kvi_h128 *stamp,
                             struct kvi_weight_cache_layout *layout);
/* Sets digest and parts of engine from n bytes, page-aligned, which must outlive it. False: the
 * bytes are another file or damaged; engine is unchanged. */
bool kvi_weight_cache_read(struct kvi_engine *engine, const struct kvi_weight_cache_layout *layout,
                           const uint8_t *p, size_t n, struct kvi_pool *pool);
/* Writes the first layout->header bytes of the file of a whole engine. False: no memory. */
bool kvi_weight_cache_header(struct kvi_engine *engine,
                             const struct kvi_weight_cache_layout *layout, uint8_t *header,
                             struct kvi_pool *pool);
/* Calls put for each part behind the header, in order; stops with false when put returns false. */
bool kvi_weight_cache_parts(struct kvi_engine *engine,
                            bool (*put)(void *opaque, const void *p, size_t n), void *opaque);
/* kvi_engine_make with a weight cache: uses the file of converted weights in the folder of
 * options->cache where there is one, else tries to store one after the conversion. Returns as
 * kvi_engine_make. */
KVI_SHARED kvarc_ret kvi_cached_engine(struct kvi_engine **engine,
                                       const struct kvi_engine_options *options);

#endif
