/* SPDX-License-Identifier: BSD-3-Clause */
/* parallel.c - the workers of a pool take steps until none is left */
#include "parallel.h"

#include <stdatomic.h>
#include <stdint.h>

#include "fpmode.h"

enum { JOBS_MAX = 64 };

struct parallel_loop {
	atomic_size_t next;
	size_t n;
	kvi_parallel_fn fn;
	void *opaque;
};

struct parallel_part {
	struct kvi_job job;
	struct parallel_loop *loop;
};

static void run(struct kvi_job *job, unsigned worker)
{
	struct parallel_loop *l = ((struct parallel_part *)job)->loop;
	uint64_t mode = kvi_fp_exact();
	for (;;) {
		size_t i = atomic_fetch_add(&l->next, 1);
		if (i >= l->n)
			break;
		l->fn(l->opaque, i, worker);
	}
	kvi_fp_restore(mode);
}

void kvi_parallel(struct kvi_pool *pool, size_t n, kvi_parallel_fn fn, void *opaque)
{
	struct parallel_loop l = { .n = n, .fn = fn, .opaque = opaque };
	struct parallel_part parts[JOBS_MAX];
	size_t jobs = kvi_pool_workers(pool);
	if (jobs > JOBS_MAX)
		jobs = JOBS_MAX;
	if (jobs > n)
		jobs = n;
	for (size_t i = 0; i < jobs; i++) {
		parts[i] = (struct parallel_part){ .job.run = run, .loop = &l };
		kvi_pool_submit(pool, &parts[i].job);
	}
	for (size_t i = 0; i < jobs; i++)
		kvi_pool_wait(pool, &parts[i].job);
}
