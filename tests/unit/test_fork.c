/* SPDX-License-Identifier: BSD-3-Clause */
/* test_fork.c - what a child process may do with handles that it inherits, threads and all */
#include "config.h"

#include <sys/wait.h>
#include <unistd.h>

#include "stream_util.h"

#include "util/pool.h"
#include "util/unroll.h"

enum { THREADS = 4, SECONDS = 60 };

/* Runs a child, which ends with 0 when all was right; a child that waits for ever is killed. */
static void in_child(int (*child)(void *opaque), void *opaque)
{
	int status = -1;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(SECONDS);
		_exit(child(opaque));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

struct at_read {
	kvarc_reader *r;
	const struct cache *c;
	struct cache *back;
};

/* 0: the whole cache came back. */
static int read_all(struct at_read *a)
{
	for (uint32_t i = 0; i < a->c->g.n_tracks; i++) {
		const kvarc_range all = KVARC_RANGE_ALL(i);
		if (kvarc_reader_read(a->r, &all, a->back->views) ||
		    kvarc_reader_read_tokens(a->r, i, 0, a->back->n[i], a->back->ids[i],
		                             a->back->positions[i]))
			return 1;
	}
	return cache_equal(a->c, a->back) ? 0 : 2;
}

static int child_reads(void *opaque)
{
	struct at_read *a = opaque;
	int ret = read_all(a);
	if (!ret && kvarc_reader_verify(a->r, NULL, NULL))
		ret = 3;
	kvarc_reader_close(&a->r);
	return ret ? ret : a->r ? 4 : 0;
}

static void test_reader(void **state)
{
	struct cache c;
	kvarc_writer_options wo = stream_options(1, 1);
	(void)state;
	cache_make(&c, 2, 6);
	struct memfile f = stream_written(&c, &wo);
	for (unsigned overlap = 0; overlap < 2; overlap++) {
		kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
		struct cache back, again;
		struct at_read a = { .c = &c, .back = &back };
		const kvarc_source source = memfile_source(&f);
		ro.common.threads = THREADS;
		ro.common.overlap = overlap;
		cache_make_empty(&back, &c);
		cache_make_empty(&again, &c);
		assert_int_equal(kvarc_reader_open(&a.r, &source, &ro), KVARC_OK);
		assert_int_equal(read_all(&a), 0); /* its threads run */
		a.back = &again;
		in_child(child_reads, &a);
		assert_int_equal(read_all(&a), 0); /* and are there afterwards */
		kvarc_reader_close(&a.r);
		cache_free(&back);
		cache_free(&again);
	}
	memfile_free(&f);
	cache_free(&c);
}

struct at_write {
	kvarc_writer *w;
	const struct cache *c;
	struct memfile *f;
	const kvarc_error *e;
	bool aborts;
};

static kvarc_ret append_all(struct at_write *a)
{
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < a->c->g.n_tracks && !ret; i++)
		ret = kvarc_writer_append(a->w, i, a->c->n[i], a->c->ids[i], a->c->positions[i],
		                          a->c->views);
	return ret;
}

static int child_writes(void *opaque)
{
	struct at_write *a = opaque;
	const long calls = a->f->calls;
	if (append_all(a) != KVARC_PROG || !strstr(a->e->text, "forked"))
		return 1;
	if (kvarc_writer_commit(a->w) != KVARC_PROG ||
	    kvarc_writer_rewind(a->w, 0, 0) != KVARC_PROG ||
	    kvarc_writer_checkpoint(a->w, NULL, 0, NULL) != KVARC_PROG)
		return 2;
	if (a->aborts)
		kvarc_writer_abort(&a->w);
	else if (kvarc_writer_close(&a->w) != KVARC_PROG)
		return 3;
	return a->w ? 4 : a->f->calls != calls ? 5 : 0;
}

static void test_writer(void **state)
{
	struct cache c;
	(void)state;
	cache_make(&c, 2, 6);
	for (unsigned run = 0; run < 6; run++) {
		kvarc_writer_options wo = stream_options(1, run % 3 ? THREADS : 1);
		struct memfile f = { .fail_at = -1 };
		kvarc_error e = { 0 };
		struct cache back;
		struct at_write a = { .c = &c, .f = &f, .e = &e, .aborts = run / 3 };
		const kvarc_sink sink = memfile_sink(&f);
		wo.common.error = &e;
		wo.common.overlap = run % 3 == 2;
		assert_int_equal(kvarc_writer_open(&a.w, &sink, &wo), KVARC_OK);
		assert_int_equal(kvarc_writer_set_geometry(a.w, &c.g), KVARC_OK);
		assert_int_equal(append_all(&a), KVARC_OK); /* some of it is on its way */
		in_child(child_writes, &a);
		assert_int_equal(kvarc_writer_close(&a.w), KVARC_OK);
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &f, NULL, NULL), KVARC_OK);
		assert_true(cache_equal(&c, &back));
		cache_free(&back);
		memfile_free(&f);
	}
	cache_free(&c);
}

/* A job that is at work until a byte comes. */
struct waiting_job {
	struct kvi_job job; /* first */
	struct kvi_pool *pool;
	int began[2], goes_on[2];
};

static void run_waiting(struct kvi_job *job, unsigned worker)
{
	struct waiting_job *w = (struct waiting_job *)job;
	char c = 0;
	(void)worker;
	if (write(w->began[1], &c, 1) != 1 || read(w->goes_on[0], &c, 1) != 1)
		abort();
}

static void run_short(struct kvi_job *job, unsigned worker)
{
	(void)job;
	(void)worker;
}

static void step(void *opaque, size_t i)
{
	((char *)opaque)[i]++;
}

static int child_of_pool(void *opaque)
{
	struct waiting_job *w = opaque;
	struct kvi_job job = { .run = run_short };
	char steps[3] = { 0 };
	if (!kvi_pool_inherited(w->pool) || kvi_pool_idle(w->pool, 0))
		return 1;
	kvi_pool_submit(w->pool, &job);
	if (!job.done)
		return 2;
	kvi_pool_wait(w->pool, &w->job);
	if (w->job.done)
		return 3;
	kvi_pool_loop(w->pool, sizeof steps, step, steps);
	kvi_pool_wake(w->pool);
	kvi_pool_close(w->pool);
	return steps[0] == 1 && steps[1] == 1 && steps[2] == 1 ? 0 : 4;
}

/* A fork while a job is at work. */
static void test_pool(void **state)
{
	(void)state;
	struct kvi_alloc alloc;
	kvi_alloc_init(&alloc, NULL, 0);
	for (unsigned beside = 0; beside < 2; beside++) {
		struct waiting_job w = { .job.run = run_waiting };
		char c = 0;
		assert_int_equal(pipe(w.began) | pipe(w.goes_on), 0);
		assert_int_equal(
			(beside ? kvi_pool_open_beside : kvi_pool_open)(&w.pool, &alloc, THREADS),
			KVARC_OK);
		assert_false(kvi_pool_inherited(w.pool));
		kvi_pool_submit(w.pool, &w.job);
		assert_int_equal(read(w.began[0], &c, 1), 1);
		in_child(child_of_pool, &w);
		assert_int_equal(write(w.goes_on[1], &c, 1), 1);
		kvi_pool_wait(w.pool, &w.job);
		assert_true(w.job.done);
		kvi_pool_close(w.pool);
		for (unsigned i = 0; i < 2; i++) {
			close(w.began[i]);
			close(w.goes_on[i]);
		}
	}
}

int main(void)
{
#if defined(KVI_SANITIZED)
	/* Locks of its allocator stay as another thread had them: malloc may wait for ever. */
	puts("left out: children of threads cannot allocate under this sanitizer");
	return 77;
#endif
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_reader),
		                            cmocka_unit_test(test_writer),
		                            cmocka_unit_test(test_pool) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
