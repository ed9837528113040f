/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c - a queue of jobs and the threads that empty it */
#include "pool.h"

#include <pthread.h>

/* More threads than this help nobody; it bounds what a caller can ask for. */
enum { THREADS_MAX = 256 };

struct worker {
	struct kvi_pool *pool;
	pthread_t thread;
	unsigned number;
};

struct kvi_pool {
	const struct kvi_alloc *alloc;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct kvi_job *head, **tail;
	bool stop;
	/* Threads that run. The caller is one worker more: it works while it
	 * waits, so that nobody sleeps while there are jobs. */
	unsigned n_workers;
	struct worker workers[];
};

/* Runs the first job of the queue; the lock is held before and after. */
static void run_first(struct kvi_pool *pool, unsigned worker)
{
	struct kvi_job *job = pool->head;
	pool->head = job->next;
	if (!pool->head)
		pool->tail = &pool->head;
	pthread_mutex_unlock(&pool->lock);
	job->run(job, worker);
	pthread_mutex_lock(&pool->lock);
	job->done = true;
}

static void *loop(void *arg)
{
	struct worker *w = arg;
	struct kvi_pool *pool = w->pool;
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		while (!pool->head && !pool->stop)
			pthread_cond_wait(&pool->work, &pool->lock);
		if (!pool->head)
			break; /* stopped, and nothing is left */
		run_first(pool, w->number);
		pthread_cond_broadcast(&pool->done);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

kvarc_ret kvi_pool_open(struct kvi_pool **out, const struct kvi_alloc *alloc, unsigned threads)
{
	unsigned n = threads > THREADS_MAX ? THREADS_MAX : threads;
	n = n > 1 ? n - 1 : 0;
	*out = NULL;
	struct kvi_pool *pool = kvi_calloc(alloc, 1, sizeof *pool + n * sizeof(struct worker));
	if (!pool)
		return kvi_alloc_error(alloc);
	pool->alloc = alloc;
	pool->tail = &pool->head;
	if (pthread_mutex_init(&pool->lock, NULL))
		goto no_lock;
	if (pthread_cond_init(&pool->work, NULL))
		goto no_work;
	if (pthread_cond_init(&pool->done, NULL))
		goto no_done;
	for (; pool->n_workers < n; pool->n_workers++) {
		struct worker *w = &pool->workers[pool->n_workers];
		w->pool = pool;
		w->number = pool->n_workers;
		if (pthread_create(&w->thread, NULL, loop, w)) {
			kvi_pool_close(pool);
			return KVARC_MEM;
		}
	}
	*out = pool;
	return KVARC_OK;
no_done:
	pthread_cond_destroy(&pool->work);
no_work:
	pthread_mutex_destroy(&pool->lock);
no_lock:
	kvi_free(alloc, pool);
	return KVARC_MEM;
}

void kvi_pool_close(struct kvi_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->n_workers; i++)
		pthread_join(pool->workers[i].thread, NULL);
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	kvi_free(pool->alloc, pool);
}

unsigned kvi_pool_workers(const struct kvi_pool *pool)
{
	return pool->n_workers + 1;
}

void kvi_pool_submit(struct kvi_pool *pool, struct kvi_job *job)
{
	job->next = NULL;
	job->done = false;
	if (pool->n_workers == 0) {
		job->run(job, 0);
		job->done = true;
		return;
	}
	pthread_mutex_lock(&pool->lock);
	*pool->tail = job;
	pool->tail = &job->next;
	pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

void kvi_pool_wait(struct kvi_pool *pool, struct kvi_job *job)
{
	if (pool->n_workers == 0)
		return;
	pthread_mutex_lock(&pool->lock);
	while (!job->done) {
		if (pool->head)
			run_first(pool, pool->n_workers);
		else
			pthread_cond_wait(&pool->done, &pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
}
