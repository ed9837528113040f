/* SPDX-License-Identifier: BSD-3-Clause */
/* parallel.h - a loop whose steps do not depend on each other, on all workers of a pool */
#ifndef KVI_PARALLEL_H
#define KVI_PARALLEL_H

#include <stddef.h>

#include "pool.h"

/* A step of a parallel loop, called for i in 0 .. n - 1, in any order, in exact arithmetic
 * (fpmode.h). */
typedef void (*kvi_parallel_fn)(void *opaque, size_t i, unsigned worker);
/* Runs fn for all i on the workers of pool and returns when all have ended. pool NULL: in this
 * thread, as worker 0. */
void kvi_parallel(struct kvi_pool *pool, size_t n, kvi_parallel_fn fn, void *opaque);

#endif
