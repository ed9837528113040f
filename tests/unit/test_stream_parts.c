/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stream_parts.c - streams of a chunk: the wanted ones alone, each checked, by any threads */
#include "layers_util.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "format/chunk_header.h"
#include "format/codec_ids.h"
#include "format/frame.h"
#include "format/superblock.h"
#include "util/bytes.h"
#include "util/hash.h"
#include "util/pool.h"

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

enum { STEP = 32, SEGMENT = 256 };
static const unsigned threads[] = { 1, 2, 5 };
enum { N_THREADS = sizeof threads / sizeof *threads };

/* Some tokens are constant, which streams leave out (spec mask). */
static void flatten(struct cache *c)
{
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		const size_t row = c->views[i].token_stride;
		for (size_t t = 0; t < c->n[0]; t++)
			if (t % 50 < 7 || (t > 90 && t < 140))
				memset(c->data[i] + t * row, (int)t, row);
	}
}

static void make(struct cache *c, uint8_t dtype, uint32_t layers, uint32_t tokens, bool flat)
{
	/* a narrow tensor has longer streams than those that it is predicted from */
	const struct layers_shape s = { layers, 8, 128, tokens, 1, dtype, true, 1 };
	cache_make_layers(c, &s, 7);
	if (flat)
		flatten(c);
}

static struct memfile write_cache(const struct cache *c, int level, const kvarc_profile *p,
                                  unsigned n)
{
	kvarc_writer_options o = stream_options(level, n);
	o.profile = level >= 2 ? p : NULL;
	return stream_written(c, &o);
}

static kvarc_reader *open_reader(struct memfile *f, const kvarc_profile *const *p, unsigned n,
                                 uint32_t isa)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	o.common.threads = n;
	o.common.isa_mask = isa;
	o.profiles = p;
	o.n_profiles = *p != NULL;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	return r;
}

/* Reads a range and compares what came of it. */
static kvarc_ret read_part(kvarc_reader *r, const struct cache *c, const kvarc_range *g)
{
	struct cache to;
	kvarc_view views[16];
	cache_make_empty(&to, c);
	cache_views_at(&to, g->t0, views);
	kvarc_ret ret = kvarc_reader_read(r, g, views);
	for (size_t i = 0; i < c->g.n_tensors && !ret; i++) {
		const size_t row = c->views[i].token_stride;
		if (c->tensors[i].layer >= g->layer0 &&
		    c->tensors[i].layer - g->layer0 < g->n_layers)
			assert_memory_equal(to.data[i] + g->t0 * row, c->data[i] + g->t0 * row,
			                    g->n * row);
	}
	cache_free(&to);
	return ret;
}

static void check_parts(const struct cache *c, struct memfile *f, const kvarc_profile *const *p)
{
	static const uint32_t isas[] = { 0, KVARC_ISA_SCALAR };
	uint64_t seed = 3;
	for (size_t k = 0; k < N_THREADS; k++) {
		kvarc_reader *r = open_reader(f, p, threads[k], isas[k & 1]);
		for (int i = 0; i < 8; i++) {
			kvarc_range g = { .layer0 = i & 1, .n_layers = i & 1 ? 1 : UINT32_MAX };
			g.t0 = rand_next(&seed) % c->n[0];
			g.n = 1 + rand_next(&seed) % (c->n[0] - g.t0);
			if (i & 2 && g.n > STEP)
				g.n = STEP;
			assert_int_equal(read_part(r, c, &g), KVARC_OK);
		}
		kvarc_reader_close(&r);
	}
}

/* Any part, any number of threads on either side: the same bytes. */
static void test_parts(void **state)
{
	static const uint8_t dtypes[] = { KVARC_BF16, KVARC_F16, KVARC_F32, KVARC_I8 };
	(void)state;
	for (size_t d = 0; d < sizeof dtypes; d++)
		for (int level = 0; level < 4; level++) {
			struct cache c;
			if (dtypes[d] == KVARC_I8 && level)
				continue;
			make(&c, dtypes[d], 2, SEGMENT + 100, level < 2 && d & 1);
			kvarc_profile *p = level < 2 ? NULL : layers_profile(&c, 5);
			const kvarc_profile *const list = p;
			struct memfile f = write_cache(&c, level, p, 1);
			for (size_t k = 1; k < N_THREADS; k++) {
				struct memfile g = write_cache(&c, level, p, threads[k]);
				assert_int_equal(f.n, g.n);
				assert_memory_equal(f.p, g.p, f.n);
				memfile_free(&g);
			}
			check_parts(&c, &f, &list);
			memfile_free(&f);
			kvarc_profile_close(&p);
			cache_free(&c);
		}
}

/* A CHUNK frame of a file in memory. */
struct part_chunk {
	uint8_t *frame;
	uint64_t offset;
	struct kvi_frame_head head;
	struct kvi_chunk_header h;
	uint8_t *table;
	unsigned streams;
};

/* The chunk with this number, counted from 0. */
static struct part_chunk find_chunk(struct memfile *f, unsigned number)
{
	const uint64_t sync = kvi_load64(f->p + KVI_SUPERBLOCK_BYTES);
	struct part_chunk x;
	x.offset = KVI_SUPERBLOCK_BYTES;
	for (;;) {
		x.frame = f->p + x.offset;
		assert_true(x.offset < f->n);
		assert_true(kvi_frame_head_parse(&x.head, x.frame, sync, x.offset));
		if (x.head.type == KVI_FRAME_CHUNK && !number--)
			break;
		x.offset += kvi_frame_bytes(x.head.payload_bytes);
	}
	uint8_t *payload = x.frame + KVI_FRAME_HEAD_BYTES;
	assert_true(kvi_chunk_header_parse(&x.h, payload, x.head.payload_bytes));
	x.streams = 8u >> x.h.cut.stream_size;
	x.table = payload + KVI_CHUNK_HEADER_BYTES + (x.h.cut.section_bytes + 15) / 16 * 16;
	return x;
}

/* Whether streams have a table of words (spec rans 4), else checks alone. */
static bool has_word_table(const struct part_chunk *x)
{
	return x->h.codec != KVI_CODEC_LAYERS && x->h.codec != KVI_CODEC_CELLS;
}

/* A byte of the elements of the last stream. */
static uint8_t *last_stream(const struct part_chunk *x)
{
	if (!has_word_table(x)) /* the last element is far in front of the end */
		return x->frame + KVI_FRAME_HEAD_BYTES + x->head.payload_bytes - 2000;
	uint8_t *at = x->table + x->streams * (16 + 4 * 32);
	for (unsigned i = 0;; i++) {
		const size_t n = 2 * kvi_load32(x->table + 16 * i);
		if (i == x->streams - 1)
			return at + n / 2;
		at += (n + 15) / 16 * 16;
	}
}

/* The check of a stream. */
static uint8_t *check_of(const struct part_chunk *x, unsigned stream)
{
	return has_word_table(x) ? x->table + 16 * stream + 8 : x->table + 8 * stream;
}

/* The frame is good again, whatever its payload is now. */
static void seal(const struct part_chunk *x)
{
	const size_t padded = kvi_frame_padded(x->head.payload_bytes);
	uint8_t *payload = x->frame + KVI_FRAME_HEAD_BYTES;
	kvi_store_h128(payload + padded, kvi_frame_check(x->frame, x->offset, payload, padded));
}

/* raw_check is that of the table again. */
static void check_again(const struct part_chunk *x)
{
	uint8_t checks[8 * 8];
	for (unsigned i = 0; i < x->streams; i++)
		memcpy(checks + 8 * i, check_of(x, i), 8);
	kvi_store64(x->frame + KVI_FRAME_HEAD_BYTES + 32, kvi_h64(checks, 8 * x->streams));
	seal(x);
}

/* Reads of all steps of 32 tokens: those that need a stream fail, others get their bytes. */
static void check_damage(const struct cache *c, struct memfile *f, const kvarc_profile *p,
                         uint64_t t0, uint64_t end)
{
	for (size_t k = 0; k < N_THREADS; k++) {
		for (uint64_t t = 0; t < c->n[0]; t += STEP) {
			const kvarc_range g = { .n_layers = UINT32_MAX, .t0 = t, .n = STEP };
			kvarc_reader *r = open_reader(f, &p, threads[k], 0);
			kvarc_ret ret = read_part(r, c, &g);
			assert_int_equal(ret, t < end && t + STEP > t0 ? KVARC_DATA : KVARC_OK);
			kvarc_reader_close(&r);
		}
		const kvarc_range all = { .n_layers = UINT32_MAX, .n = c->n[0] };
		kvarc_reader *r = open_reader(f, &p, threads[k], 0);
		assert_int_equal(read_part(r, c, &all), KVARC_DATA);
		kvarc_reader_close(&r);
	}
}

/* A stream that is not what its writer wrote, in a frame whose check is good. */
static void test_damaged_stream(void **state)
{
	(void)state;
	for (int level = 0; level < 4; level++) {
		struct cache c;
		make(&c, KVARC_BF16, 2, SEGMENT, false);
		kvarc_profile *p = level < 2 ? NULL : layers_profile(&c, 5);
		struct memfile f = write_cache(&c, level, p, 1);
		struct part_chunk x = find_chunk(&f, 0);
		assert_true(x.h.codec == KVI_CODEC_LAYERS || x.h.codec == KVI_CODEC_CELLS ||
		            x.h.codec == KVI_CODEC_LINEAR);
		assert_true(x.streams > 1);
		const uint64_t tokens = SEGMENT / x.streams;
		const uint64_t begin = SEGMENT - tokens;
		uint8_t *byte = last_stream(&x);
		*byte ^= 4;
		seal(&x);
		/* what is predicted from it has streams of its own, which may be longer */
		uint64_t longest = tokens;
		for (unsigned i = 1; level >= 2 && i < c.g.n_tensors; i++) {
			struct part_chunk y = find_chunk(&f, i);
			uint64_t m = SEGMENT / y.streams;
			longest = m > longest ? m : longest;
		}
		const uint64_t first = begin / longest * longest;
		check_damage(&c, &f, p, first, SEGMENT);
		*byte ^= 4;
		/* the table says another check: that of the chunk shows it, whatever is read */
		check_of(&x, x.streams - 1)[0] ^= 1;
		seal(&x);
		check_damage(&c, &f, p, 0, SEGMENT);
		/* that of the chunk fits again: the stream alone has another check */
		check_again(&x);
		check_damage(&c, &f, p, first, SEGMENT);
		memfile_free(&f);
		kvarc_profile_close(&p);
		cache_free(&c);
	}
}

/* Jobs of a pool with loops, some of which wait for others. */
struct loop_job {
	struct kvi_job job;
	struct kvi_pool *pool;
	struct loop_job *before; /* NULL: waits for nobody */
	atomic_uint steps[16];
	atomic_bool ended;
};

static void loop_step(void *opaque, size_t i)
{
	struct loop_job *j = opaque;
	atomic_fetch_add(&j->steps[i], 1);
}

static bool before_ended(void *opaque)
{
	const struct loop_job *j = opaque;
	return atomic_load(&j->before->ended);
}

static void run_loops(struct kvi_job *job, unsigned worker)
{
	struct loop_job *j = (struct loop_job *)job;
	(void)worker;
	if (j->before)
		kvi_pool_until(j->pool, before_ended, j);
	kvi_pool_loop(j->pool, 16, loop_step, j);
	atomic_store(&j->ended, true);
	kvi_pool_wake(j->pool);
}

static void run_all(struct kvi_pool *pool)
{
	enum { JOBS = 24 };
	static struct loop_job jobs[JOBS];
	memset(jobs, 0, sizeof jobs);
	for (int i = 0; i < JOBS; i++) {
		jobs[i].job.run = run_loops;
		jobs[i].pool = pool;
		jobs[i].before = i % 3 ? &jobs[i - 1] : NULL;
		kvi_pool_submit(pool, &jobs[i].job);
	}
	for (int i = 0; i < JOBS; i++) {
		kvi_pool_wait(pool, &jobs[i].job);
		for (int k = 0; k < 16; k++)
			assert_int_equal(atomic_load(&jobs[i].steps[k]), 1);
	}
}

/* Each step runs once, and nobody waits for ever, whether the caller runs jobs or not. */
static void test_loops(void **state)
{
	struct kvi_alloc a;
	(void)state;
	kvi_alloc_init(&a, NULL, 0);
	for (unsigned n = 0; n < 10; n++) {
		struct kvi_pool *pool;
		assert_int_equal((n % 2 ? kvi_pool_open_beside : kvi_pool_open)(&pool, &a, n / 2),
		                 KVARC_OK);
		for (int repeat = 0; repeat < 50; repeat++)
			run_all(pool);
		assert_int_equal(kvi_pool_idle(NULL, 0), 0);
		kvi_pool_close(pool);
	}
	/* workers that look for news notice the end */
	for (int repeat = 0; repeat < 200; repeat++) {
		struct loop_job j = { .job.run = run_loops };
		assert_int_equal(kvi_pool_open(&j.pool, &a, 3), KVARC_OK);
		kvi_pool_submit(j.pool, &j.job);
		kvi_pool_wait(j.pool, &j.job);
		kvi_pool_close(j.pool);
	}
	assert_int_equal(a.used, 0);
}

static void count_job(struct kvi_job *job, unsigned worker)
{
	struct loop_job *j = (struct loop_job *)job;
	assert_int_equal(worker, 0);
	atomic_fetch_add(&j->steps[0], 1);
}

/* Where the system gives no thread, the caller does the work that it wanted to be done beside it.
 * Before all threads: the stacks of ended ones are used again. */
static void test_no_threads(void **state)
{
	struct rlimit all, few;
	struct kvi_alloc a;
	struct loop_job j = { .job.run = count_job };
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	(void)state;
	if (!f || SANITIZED)
		skip(); /* a sanitizer has its own use for memory */
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	kvi_alloc_init(&a, NULL, 0);
	assert_int_equal(getrlimit(RLIMIT_AS, &all), 0);
	few = all;
	few.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + (1 << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
	kvarc_ret ret = kvi_pool_open_beside(&j.pool, &a, 2);
	assert_int_equal(setrlimit(RLIMIT_AS, &all), 0);
	assert_int_equal(ret, KVARC_OK);
	if (kvi_pool_workers(j.pool) > 1) {
		kvi_pool_close(j.pool);
		skip(); /* an emulator does not keep to such limits */
	}
	assert_int_equal(kvi_pool_jobs(j.pool, 0), 1);
	kvi_pool_submit(j.pool, &j.job);
	kvi_pool_wait(j.pool, &j.job);
	assert_int_equal(atomic_load(&j.steps[0]), 1);
	kvi_pool_close(j.pool);
	assert_int_equal(a.used, 0);
}

/* The thread that ran a job, and how many jobs of a worker run at once. */
struct seen_job {
	struct kvi_job job;
	pthread_t thread;
	unsigned worker;
};

static void see_job(struct kvi_job *job, unsigned worker)
{
	static atomic_int running[4];
	struct seen_job *j = (struct seen_job *)job;
	j->thread = pthread_self();
	j->worker = worker;
	assert_int_equal(atomic_fetch_add(&running[worker], 1), 0);
	atomic_fetch_sub(&running[worker], 1);
}

static void run_seen(struct kvi_pool *pool, struct seen_job *job, size_t work)
{
	*job = (struct seen_job){ .job = { .run = see_job, .work = work } };
	kvi_pool_submit(pool, &job->job);
}

/* No job is lost, whether its work wakes a thread or not. */
static void test_little_work(void **state)
{
	const size_t little = 64 << 10;
	(void)state;
	for (unsigned beside = 0; beside < 2; beside++) {
		struct kvi_alloc a;
		struct kvi_pool *pool;
		struct seen_job j[64];
		kvi_alloc_init(&a, NULL, 0);
		assert_int_equal((beside ? kvi_pool_open_beside : kvi_pool_open)(&pool, &a, 2),
		                 KVARC_OK);
		assert_true(kvi_pool_jobs(pool, little) > kvi_pool_jobs(pool, 0));
		for (unsigned n = 1; n <= 64; n *= 2) {
			for (unsigned i = 0; i < n; i++)
				run_seen(pool, &j[i], i % 5 ? little : 3 * little);
			for (unsigned i = 0; i < n; i++) {
				kvi_pool_wait(pool, &j[i].job);
				assert_true(j[i].job.done);
				assert_false(beside && pthread_equal(j[i].thread, pthread_self()));
			}
		}
		/* loops of little work are not shared, whoever waits */
		assert_int_equal(kvi_pool_idle(pool, little), 0);
		kvi_pool_close(pool);
		assert_int_equal(a.used, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_threads), cmocka_unit_test(test_little_work),
		cmocka_unit_test(test_parts),      cmocka_unit_test(test_damaged_stream),
		cmocka_unit_test(test_loops),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
