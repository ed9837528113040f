/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c - a queue of jobs, the loops in them, and the threads that empty both */
#include "config.h"

#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

/* Most threads that a caller can ask for; more would not help. */
enum { THREADS_MAX = 256 };
/* Number of looks of an idle worker for news before it sleeps, while others work: some 100 us. */
enum { LOOKS = 200 };

struct worker {
	struct kvi_pool *pool;
	pthread_t thread;
	unsigned number;
};

/* A loop of a job, in the memory of its call. */
struct pool_loop {
	struct pool_loop *more; /* loops that began before it */
	size_t next, n;         /* steps that no worker has begun: from next on */
	unsigned running;       /* steps that other workers run */
	kvi_pool_step step;
	void *opaque;
};

struct kvi_pool {
	const struct kvi_alloc *alloc;
	pid_t process; /* the process that has the threads */
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	pthread_cond_t finished; /* a job is done, for a caller that runs no jobs */
	struct kvi_job *head, **tail;
	size_t n_queued;
	size_t unseen; /* work that was queued since a thread was woken */
	struct pool_loop *loops;
	atomic_uint news;       /* counts events that idle workers wait for */
	unsigned busy;          /* workers that run a job */
	unsigned idle;          /* workers that wait for something to do */
	struct kvi_job *waited; /* the caller sleeps until it is done ... */
	size_t wake_at;         /* ... and no more jobs than this are queued */
	bool stop;
	bool looks; /* idle workers look for news: the jobs are worth that */
	/* The caller is one worker more than the threads: it works while it
	 * waits, so that nobody sleeps while there are jobs. */
	bool caller_works;
	unsigned n_workers; /* threads that run */
	struct worker workers[];
};

bool kvi_pool_inherited(const struct kvi_pool *pool)
{
	return pool && pool->n_workers && pool->process != getpid();
}

/* Whether there are threads in this process. In a child of it the lock may be held for ever. */
static bool has_threads(const struct kvi_pool *pool)
{
	return pool->n_workers && !kvi_pool_inherited(pool);
}

/* Makes waiting workers look again; the lock is held. */
static void announce(struct kvi_pool *pool, pthread_cond_t *cond)
{
	atomic_fetch_add_explicit(&pool->news, 1, memory_order_relaxed);
	pthread_cond_broadcast(cond);
}

/* Runs the first job of the queue; the lock is held before and after. */
static void run_first(struct kvi_pool *pool, unsigned worker)
{
	struct kvi_job *job = pool->head;
	pool->head = job->next;
	pool->n_queued--;
	if (!pool->head)
		pool->tail = &pool->head;
	pool->busy++;
	pthread_mutex_unlock(&pool->lock);
	job->run(job, worker);
	pthread_mutex_lock(&pool->lock);
	pool->busy--;
	job->done = true;
}

/* A loop with steps that no worker has begun; NULL: there is none. */
static struct pool_loop *open_loop(const struct kvi_pool *pool)
{
	struct pool_loop *l = pool->loops;
	while (l && l->next == l->n)
		l = l->more;
	return l;
}

/* Takes the next step of a loop; the lock is held before and after. */
static void take_step(struct kvi_pool *pool, struct pool_loop *loop)
{
	size_t i = loop->next++;
	pthread_mutex_unlock(&pool->lock);
	loop->step(loop->opaque, i);
	pthread_mutex_lock(&pool->lock);
}

/* Runs a step of another worker's loop, if there is one; the lock is held before and after. */
static bool help(struct kvi_pool *pool)
{
	struct pool_loop *l = open_loop(pool);
	if (!l)
		return false;
	l->running++;
	take_step(pool, l);
	if (--l->running == 0 && l->next == l->n)
		announce(pool, &pool->done);
	return true;
}

/* Looks for news for a while, because waking a thread takes as long as many a stream; the lock is
 * held before and after. */
static bool look(struct kvi_pool *pool)
{
	const unsigned seen = atomic_load_explicit(&pool->news, memory_order_relaxed);
	unsigned now = seen;
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < LOOKS && now == seen; i++) {
		sched_yield();
		now = atomic_load_explicit(&pool->news, memory_order_relaxed);
	}
	pthread_mutex_lock(&pool->lock);
	return atomic_load_explicit(&pool->news, memory_order_relaxed) != seen;
}

/* Waits for a condition of the pool; the lock is held before and after. */
static void sleep_on(struct kvi_pool *pool, pthread_cond_t *cond)
{
	pool->idle++;
	if (!pool->busy || !pool->looks || !look(pool))
		pthread_cond_wait(cond, &pool->lock);
	pool->idle--;
}

/* Wakes the caller, if it waits for what a worker has just ended; the lock is held. */
static void wake_caller(struct kvi_pool *pool)
{
	if (!pool->waited || !pool->waited->done)
		return;
	if (pool->caller_works)
		announce(pool, &pool->done);
	else if (pool->n_queued <= pool->wake_at)
		pthread_cond_signal(&pool->finished);
}

/* Wakes a thread for what is queued; the lock is held. */
static void wake_thread(struct kvi_pool *pool)
{
	pool->unseen = 0;
	pthread_cond_signal(&pool->work);
}

static void *loop(void *arg)
{
	struct worker *w = arg;
	struct kvi_pool *pool = w->pool;
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		if (pool->head) {
			run_first(pool, w->number);
			wake_caller(pool);
		} else if (pool->stop) {
			break;
		} else if (!help(pool)) {
			sleep_on(pool, &pool->work);
		}
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Opens a pool and makes n threads. */
static kvarc_ret open_pool(struct kvi_pool **out, const struct kvi_alloc *alloc, unsigned n,
                           bool caller_works)
{
	*out = NULL;
	struct kvi_pool *pool = kvi_calloc(alloc, 1, sizeof *pool + n * sizeof(struct worker));
	if (!pool)
		return kvi_alloc_error(alloc);
	pool->alloc = alloc;
	pool->process = getpid();
	pool->caller_works = caller_works;
	pool->tail = &pool->head;
	if (pthread_mutex_init(&pool->lock, NULL))
		goto no_lock;
	if (pthread_cond_init(&pool->work, NULL))
		goto no_work;
	if (pthread_cond_init(&pool->done, NULL))
		goto no_done;
	if (pthread_cond_init(&pool->finished, NULL))
		goto no_finished;
	for (; pool->n_workers < n; pool->n_workers++) {
		struct worker *w = &pool->workers[pool->n_workers];
		w->pool = pool;
		w->number = pool->n_workers;
		if (!pthread_create(&w->thread, NULL, loop, w))
			continue;
		if (caller_works || pool->n_workers) {
			kvi_pool_close(pool);
			return KVARC_MEM;
		}
		pool->caller_works = true; /* there is no other worker */
		break;
	}
	*out = pool;
	return KVARC_OK;
no_finished:
	pthread_cond_destroy(&pool->done);
no_done:
	pthread_cond_destroy(&pool->work);
no_work:
	pthread_mutex_destroy(&pool->lock);
no_lock:
	kvi_free(alloc, pool);
	return KVARC_MEM;
}

kvarc_ret kvi_pool_open(struct kvi_pool **out, const struct kvi_alloc *alloc, unsigned threads)
{
	unsigned n = threads > THREADS_MAX ? THREADS_MAX : threads;
	return open_pool(out, alloc, n > 1 ? n - 1 : 0, true);
}

kvarc_ret kvi_pool_open_beside(struct kvi_pool **out, const struct kvi_alloc *alloc,
                               unsigned threads)
{
	unsigned n = threads > THREADS_MAX ? THREADS_MAX : threads;
	return open_pool(out, alloc, n ? n : 1, false);
}

void kvi_pool_close(struct kvi_pool *pool)
{
	if (!pool)
		return;
	if (kvi_pool_inherited(pool)) {
		kvi_free(pool->alloc, pool);
		return;
	}
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	announce(pool, &pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->n_workers; i++)
		pthread_join(pool->workers[i].thread, NULL);
	pthread_cond_destroy(&pool->finished);
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	kvi_free(pool->alloc, pool);
}

unsigned kvi_pool_workers(const struct kvi_pool *pool)
{
	return pool->n_workers + pool->caller_works;
}

unsigned kvi_pool_jobs(const struct kvi_pool *pool, size_t work)
{
	enum { BESIDE = 4 };     /* a worker; the caller takes half of them at once */
	enum { JOBS_MOST = 64 }; /* of little work */
	const unsigned threads = pool->n_workers;
	if (threads == 0)
		return 1;
	const unsigned least = pool->caller_works ? 2 * (threads + 2) : BESIDE * (threads + 1);
	/* what a thread is woken for, while others have as much */
	const size_t wakes = work ? (threads + 1) * (size_t)KVI_POOL_WAKES / work : 0;
	const unsigned jobs = wakes < JOBS_MOST ? (unsigned)wakes : JOBS_MOST;
	return jobs > least ? jobs : least;
}

void kvi_pool_submit(struct kvi_pool *pool, struct kvi_job *job)
{
	job->next = NULL;
	job->done = false;
	if (!has_threads(pool)) {
		job->run(job, 0);
		job->done = true;
		return;
	}
	pthread_mutex_lock(&pool->lock);
	*pool->tail = job;
	pool->tail = &job->next;
	pool->n_queued++;
	pool->looks = !job->work || job->work >= KVI_POOL_SHARES;
	atomic_fetch_add_explicit(&pool->news, 1, memory_order_relaxed);
	/* a job whose loops others share wakes them for these */
	pool->unseen += pool->looks ? KVI_POOL_WAKES : job->work;
	if (pool->unseen >= KVI_POOL_WAKES)
		wake_thread(pool);
	pthread_mutex_unlock(&pool->lock);
}

/* A caller that runs no jobs sleeps until half of them are done: to wake up for each one would cost
 * more than a small job does. */
static void sleep_until(struct kvi_pool *pool, struct kvi_job *job)
{
	pool->waited = job;
	pool->wake_at = pool->n_queued / 2;
	if (pool->unseen)
		wake_thread(pool);
	while (!job->done || pool->n_queued > pool->wake_at)
		pthread_cond_wait(&pool->finished, &pool->lock);
	pool->waited = NULL;
}

void kvi_pool_wait(struct kvi_pool *pool, struct kvi_job *job)
{
	if (!has_threads(pool))
		return;
	pthread_mutex_lock(&pool->lock);
	if (!job->done && !pool->caller_works)
		sleep_until(pool, job);
	while (!job->done) {
		pool->waited = job;
		if (pool->head)
			run_first(pool, pool->n_workers);
		else if (!help(pool))
			sleep_on(pool, &pool->done);
	}
	pool->waited = NULL;
	pthread_mutex_unlock(&pool->lock);
}

unsigned kvi_pool_idle(struct kvi_pool *pool, size_t work)
{
	if (!pool || !has_threads(pool) || (work && work < KVI_POOL_SHARES))
		return 0;
	pthread_mutex_lock(&pool->lock);
	unsigned idle = pool->idle;
	pthread_mutex_unlock(&pool->lock);
	return idle;
}

/* Removes a loop from the list, all of whose steps have begun. */
static void close_loop(struct kvi_pool *pool, const struct pool_loop *loop)
{
	struct pool_loop **at = &pool->loops;
	while (*at != loop)
		at = &(*at)->more;
	*at = loop->more;
}

void kvi_pool_loop(struct kvi_pool *pool, size_t n, kvi_pool_step step, void *opaque)
{
	if (!pool || n < 2 || !has_threads(pool)) {
		for (size_t i = 0; i < n; i++)
			step(opaque, i);
		return;
	}
	struct pool_loop l = { .n = n, .step = step, .opaque = opaque };
	pthread_mutex_lock(&pool->lock);
	l.more = pool->loops;
	pool->loops = &l;
	announce(pool, &pool->work);
	announce(pool, &pool->done);
	while (l.next < l.n)
		take_step(pool, &l);
	close_loop(pool, &l);
	while (l.running)
		sleep_on(pool, &pool->done);
	pthread_mutex_unlock(&pool->lock);
}

void kvi_pool_until(struct kvi_pool *pool, bool (*ready)(void *opaque), void *opaque)
{
	if (kvi_pool_inherited(pool))
		return;
	pthread_mutex_lock(&pool->lock);
	while (!ready(opaque))
		if (!help(pool))
			sleep_on(pool, &pool->done);
	pthread_mutex_unlock(&pool->lock);
}

void kvi_pool_wake(struct kvi_pool *pool)
{
	if (kvi_pool_inherited(pool))
		return;
	pthread_mutex_lock(&pool->lock);
	announce(pool, &pool->done);
	pthread_mutex_unlock(&pool->lock);
}
