/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h - worker threads that run jobs in the order they were handed in */
#ifndef KVI_POOL_H
#define KVI_POOL_H

#include <stdbool.h>

#include "util/alloc.h"

/* Part of the caller's own job struct. The caller keeps it until it is done. */
struct kvi_job {
	/* worker: 0 to kvi_pool_workers - 1, no two at once in one. */
	void (*run)(struct kvi_job *job, unsigned worker);
	struct kvi_job *next;
	bool done;
};

struct kvi_pool;

/*
 * threads 0 and 1: no threads, jobs run inside kvi_pool_submit as worker 0.
 * More: one thread less than that is made; the caller runs jobs, too, while it
 * waits for one. Only one thread may submit and wait.
 * Returns OK, MEM, MEMLIMIT; MEM too when the system gives no thread.
 */
kvarc_ret kvi_pool_open(struct kvi_pool **pool, const struct kvi_alloc *alloc, unsigned threads);
/* Waits for all jobs, joins, frees. NULL-safe. */
void kvi_pool_close(struct kvi_pool *pool);
/* Number of workers, the calling thread included; at least 1. */
unsigned kvi_pool_workers(const struct kvi_pool *pool);
/* Queues a job, which the pool's threads start in this order. The caller owns it and keeps it
 * until kvi_pool_wait returned. */
void kvi_pool_submit(struct kvi_pool *pool, struct kvi_job *job);
/* Returns when this job is done. */
void kvi_pool_wait(struct kvi_pool *pool, struct kvi_job *job);

#endif
