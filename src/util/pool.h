/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h - worker threads that run jobs in the order they were handed in */
#ifndef KVI_POOL_H
#define KVI_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "util/alloc.h"

/* A job, part of the caller's own struct, which the caller keeps until the job is done. */
struct kvi_job {
	/* Runs the job. worker: 0 to kvi_pool_workers - 1, no two jobs at once in one. */
	void (*run)(struct kvi_job *job, unsigned worker);
	struct kvi_job *next;
	/* Bytes that it copies, hashes or codes at some GB/s; 0: it takes longer than that, and is
	 * worth a thread of its own. */
	size_t work;
	bool done;
};

/* Bytes of that kind: of jobs in the queue that are worth waking a thread for; of a loop that is
 * worth sharing; and those that are worth making threads for, where there is no more. */
enum { KVI_POOL_WAKES = 1 << 20, KVI_POOL_SHARES = 256 << 10, KVI_POOL_STARTS = 8 << 20 };

struct kvi_pool;

/*
 * Opens a pool. threads 0 and 1: no threads, jobs run inside kvi_pool_submit as worker 0. More: one
 * thread less than that is made; the caller runs jobs, too, while it waits for one. Only one thread
 * may submit and wait. Returns OK, MEM, MEMLIMIT; MEM too when the system gives no thread.
 */
kvarc_ret kvi_pool_open(struct kvi_pool **pool, const struct kvi_alloc *alloc, unsigned threads);
/* kvi_pool_open for a caller that runs no jobs and is free to read and write meanwhile. All threads
 * are made, at least one; where the system gives none, jobs run in kvi_pool_submit. */
kvarc_ret kvi_pool_open_beside(struct kvi_pool **pool, const struct kvi_alloc *alloc,
                               unsigned threads);
/*
 * Whether the pool has threads, but in the process that this one was forked from. Jobs then run
 * inside kvi_pool_submit, as without threads; one that was on its way at the fork is not done when
 * kvi_pool_wait returns, and never will be; kvi_pool_close frees. pool NULL: false.
 */
bool kvi_pool_inherited(const struct kvi_pool *pool);
/* Waits for all jobs, joins, frees. NULL-safe. */
void kvi_pool_close(struct kvi_pool *pool);
/* Number of workers, the calling thread included where it runs jobs; at least 1. */
unsigned kvi_pool_workers(const struct kvi_pool *pool);
/* The number of jobs of that work on their way that keeps all workers busy while the caller does
 * something else; 1 where jobs run inside kvi_pool_submit. */
unsigned kvi_pool_jobs(const struct kvi_pool *pool, size_t work);
/* Queues a job, which the pool's threads start in this order. The caller owns it and keeps it
 * until kvi_pool_wait returned. */
void kvi_pool_submit(struct kvi_pool *pool, struct kvi_job *job);
/* Waits until a job is done; see kvi_pool_inherited. */
void kvi_pool_wait(struct kvi_pool *pool, struct kvi_job *job);

/*
 * A step of a loop inside a job; workers without a job help with the loop. A step waits for nothing
 * and uses nothing that belongs to a worker: it may run in one that waits in the middle of a job.
 */
typedef void (*kvi_pool_step)(void *opaque, size_t i);
/* Calls step(opaque, i) for i in 0 .. n - 1, each once, in any order and several at once; returns
 * when all have ended. pool NULL: in this thread. */
void kvi_pool_loop(struct kvi_pool *pool, size_t n, kvi_pool_step step, void *opaque);
/* The workers that wait at this moment, and so would help with a loop of that work (kvi_job.work);
 * 0 where it is too little for them, or pool is NULL. */
unsigned kvi_pool_idle(struct kvi_pool *pool, size_t work);
/* Helps, inside a job, with the loops of others until `ready`, which may take locks that are never
 * held during calls of this pool. It is asked again after each kvi_pool_wake. */
void kvi_pool_until(struct kvi_pool *pool, bool (*ready)(void *opaque), void *opaque);
/* Makes kvi_pool_until ask `ready` again. */
void kvi_pool_wake(struct kvi_pool *pool);

#endif
