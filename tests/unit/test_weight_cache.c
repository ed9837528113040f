/* SPDX-License-Identifier: BSD-3-Clause */
/* test_weight_cache.c - converted weights in a folder: found, kept, and never wrong */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exact/engine_internal.h"
#include "exact/float8.h"
#include "weight_cache/weight_cache.h"
#include "small_model.h"

enum { PATH = 300, PAGE = 4096 };

static char where[] = "kept-weights-XXXXXX";

static struct {
	int found, kept, lost;
	uint64_t bytes;
	char why[80];
} report;

static void on_weights(void *opaque, kvarc_weights what, uint64_t bytes, const char *why)
{
	(void)opaque;
	report.found += what == KVARC_WEIGHTS_FOUND;
	report.kept += what == KVARC_WEIGHTS_KEPT;
	report.lost += what == KVARC_WEIGHTS_NOT_KEPT;
	report.bytes = bytes;
	snprintf(report.why, sizeof report.why, "%s", why);
}

static kvarc_weight_cache cache = { .folder = where, .report = on_weights };

/* Longer than a tick of a file system's clock: what was written before counts as settled. */
static void settle(void)
{
	nanosleep(&(struct timespec){ 0, 150000000 }, NULL);
}

static char *in_cache(const char *name)
{
	static char path[PATH];
	snprintf(path, sizeof path, "%s/%s", where, name);
	return path;
}

/* The only file of converted weights. */
static char *the_file(void)
{
	static char path[PATH];
	char command[PATH];
	snprintf(command, sizeof command, "ls %s/*.kvw", where);
	FILE *f = popen(command, "r");
	assert_non_null(f);
	assert_non_null(fgets(path, sizeof path, f));
	path[strcspn(path, "\n")] = '\0';
	assert_null(fgets(command, sizeof command, f));
	pclose(f);
	return path;
}

static void empty(void)
{
	char command[PATH];
	snprintf(command, sizeof command, "rm -rf %s", where);
	assert_int_equal(system(command), 0);
}

struct opened {
	struct kvi_alloc alloc;
	struct kvi_pool *pool;
	struct kvi_model_file *file;
	struct kvi_engine *e;
};

static kvarc_ret open_with(struct opened *o, struct kvi_arithmetic a)
{
	memset(o, 0, sizeof *o);
	kvi_alloc_init(&o->alloc, NULL, 0);
	assert_int_equal(kvi_pool_open(&o->pool, &o->alloc, 2), KVARC_OK);
	assert_int_equal(kvi_model_file_open(&o->file, &o->alloc, folder, NULL), KVARC_OK);
	const struct kvi_engine_options options = { .alloc = &o->alloc,
		                                    .file = o->file,
		                                    .arithmetic = a,
		                                    .pool = o->pool,
		                                    .cache = &cache };
	memset(&report, 0, sizeof report);
	return kvi_cached_engine(&o->e, &options);
}

static void close_opened(struct opened *o)
{
	kvi_engine_close(&o->e);
	kvi_model_file_close(&o->file);
	kvi_pool_close(o->pool);
	assert_int_equal(o->alloc.used, 0);
}

static struct kvi_arithmetic of_level(unsigned level)
{
	return kvi_engine_level(level).arithmetic;
}

static bool add_hash(void *opaque, const void *p, size_t n)
{
	struct kvi_h128 *all = opaque, one = kvi_h128(p, n);
	assert_int_equal((uintptr_t)p % 64, 0);
	assert_int_equal(n % 64, 0);
	*all = kvi_h128_2(all, sizeof *all, &one, sizeof one);
	return true;
}

/* Of every number of an engine. */
static struct kvi_h128 numbers(struct kvi_engine *e)
{
	struct kvi_h128 all = e->digest;
	assert_true(kvi_weight_cache_parts(e, add_hash, &all));
	return all;
}

/* Opens; the numbers are always the same. */
static void check(struct kvi_arithmetic a, int found, int kept, int lost)
{
	struct opened o;
	assert_int_equal(open_with(&o, a), KVARC_OK);
	struct kvi_h128 with = numbers(o.e), without;
	assert_int_equal(!!o.e->cached, found);
	if (report.found != found || report.kept != kept || report.lost != lost)
		fail_msg("found %d kept %d lost %d: %s", report.found, report.kept, report.lost,
		         report.why);
	assert_int_equal(!report.why[0], !lost);
	close_opened(&o);
	const kvarc_weight_cache old = cache;
	cache.folder = NULL;
	assert_int_equal(open_with(&o, a), KVARC_OK);
	without = numbers(o.e);
	assert_int_equal(report.found + report.kept + report.lost, 0);
	assert_memory_equal(&with, &without, sizeof with);
	close_opened(&o);
	cache = old;
}

static void found(unsigned level)
{
	check(of_level(level), 1, 0, 0);
}

static void kept(unsigned level)
{
	check(of_level(level), 0, 1, 0);
}

static void lost(unsigned level)
{
	check(of_level(level), 0, 0, 1);
}

static void test_arithmetics(void **state)
{
	const struct kvi_arithmetic fp8 = { 0, 0, true };
	struct stat st;
	(void)state;
	empty();
	kept(5);
	assert_int_equal(stat(where, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(the_file(), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	found(5);
	found(6); /* other activations, the same weights */
	kept(4);
	kept(7);
	check(fp8, 0, 1, 0);
	check(fp8, 1, 0, 0);
	found(4);
	found(5);
	found(7);
}

static void put_all(struct kvi_operand *w, const float *x)
{
	for (size_t r = 0; r < w->rows; r++)
		if (w->e4m3)
			kvi_e4m3_put(w, r, x + r * w->columns);
		else
			kvi_operand_put_floats(w, r, x + r * w->columns);
}

/* Other numbers, or another order of them, need another KVI_WEIGHT_CACHE_VERSION, and then a new
 * line here. */
static void test_version(void **state)
{
	enum { ROWS = 20, COLUMNS = 70 };
	static uint8_t memory[8192] __attribute__((aligned(64)));
	static const uint64_t is[3] = { 0x74eeea7778b585ee, 0x5a9af45eee2456c8,
		                        0x5f2975485783095a };
	const uint16_t one = 1;
	float x[ROWS * COLUMNS];
	struct kvi_operand w;
	uint64_t seed = 1;
	size_t bytes;
	(void)state;
	if (!*(const uint8_t *)&one)
		return; /* numbers are in the machine's order */
	for (size_t i = 0; i < ROWS * COLUMNS; i++)
		x[i] = (float)((int)(rand_next(&seed) >> 52) - 2048) / 64;
	assert_int_equal(KVI_WEIGHT_CACHE_VERSION, 3);
	for (unsigned planes = 0; planes < 3; planes++) {
		if (planes) {
			assert_true(kvi_operand_bytes(ROWS, COLUMNS, 64, planes, false, &bytes));
			assert_true(bytes <= sizeof memory);
			kvi_operand_init(&w, memory, ROWS, COLUMNS, 64, planes, false);
		} else {
			assert_true(kvi_e4m3_bytes(ROWS, COLUMNS, &bytes));
			kvi_e4m3_init(&w, memory, ROWS, COLUMNS);
		}
		put_all(&w, x);
		if (kvi_h64(memory, bytes) != is[planes])
			fail_msg("%u: %016llx", planes, (unsigned long long)kvi_h64(memory, bytes));
	}
}

/* ---- archives ---- */

static void pack(struct memfile *f, const struct cache *c, const kvarc_profile *p)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_predictor *predictor;
	kvarc_common common = KVARC_COMMON_INIT;
	common.weight_cache = &cache;
	memset(&report, 0, sizeof report);
	assert_int_equal(kvarc_predictor_open_model(&predictor, folder, &common), KVARC_OK);
	o.level = 5;
	o.flags = KVARC_WRITE_FILE_ID;
	o.profile = p;
	o.predictor = predictor;
	assert_int_equal(cache_write(c, f, &o), KVARC_OK);
	kvarc_predictor_close(&predictor);
}

static void test_archives(void **state)
{
	struct memfile miss = { .fail_at = -1 }, hit = { .fail_at = -1 };
	struct cache c;
	kvarc_profile *p;
	(void)state;
	empty();
	make(&c, 2, .01f);
	assert_int_equal(kvarc_profile_of_sizes(&p, 5, &c.g, 300, c.views, NULL), KVARC_OK);
	pack(&miss, &c, p);
	assert_int_equal(report.kept, 1);
	pack(&hit, &c, p);
	assert_int_equal(report.found, 1);
	assert_int_equal(miss.n, hit.n);
	assert_memory_equal(miss.p, hit.p, hit.n);
	kvarc_profile_close(&p);
	memfile_free(&miss);
	memfile_free(&hit);
	cache_free(&c);
}

/* ---- the model changes ---- */

static void model_path(char path[PATH], const char *name)
{
	snprintf(path, PATH, "%s/%s", folder, name);
}

/* Nothing is kept of what has just been written. A machine that pauses in between is asked again.
 * */
static void just_written(const char *path, const struct timespec times[2])
{
	struct opened o;
	for (int i = 0; i < 50; i++) {
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
		assert_int_equal(open_with(&o, of_level(5)), KVARC_OK);
		close_opened(&o);
		if (report.lost)
			return;
		empty();
	}
	fail_msg("kept");
}

static void test_model_changes(void **state)
{
	char path[PATH], moved[PATH];
	struct stat before;
	(void)state;
	empty();
	model_path(path, "model.safetensors");
	model_path(moved, "moved");
	assert_int_equal(stat(path, &before), 0);
	kept(5);
	/* another number, and the old times as far as programs can set them */
	FILE *f = fopen(path, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, -200, SEEK_END), 0);
	int old = fgetc(f);
	assert_int_equal(fseek(f, -200, SEEK_END), 0);
	fputc(old ^ 1, f);
	fclose(f);
	const struct timespec times[2] = { before.st_atim, before.st_mtim };
	just_written(path, times);
	settle();
	kept(5);
	found(5);
	/* touched */
	assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
	settle();
	kept(5);
	/* the configuration, too */
	model_path(path, "config.json");
	assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
	settle();
	kept(5);
	found(5);
	/* the file of what the model was, under the name of what it is */
	char name[PATH];
	empty();
	kept(5);
	assert_int_equal(rename(the_file(), in_cache("old")), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
	settle();
	kept(5);
	snprintf(name, sizeof name, "%s", the_file());
	assert_int_equal(rename(in_cache("old"), name), 0);
	kept(5);
	found(5);
	/* while it is open */
	struct opened o;
	assert_int_equal(open_with(&o, of_level(5)), KVARC_OK);
	struct kvi_h128 stamp;
	assert_true(kvi_model_file_stamp(o.file, &stamp));
	assert_int_equal(rename(path, moved), 0);
	assert_false(kvi_model_file_stamp(o.file, &stamp));
	assert_int_equal(rename(moved, path), 0);
	close_opened(&o);
	settle();
	kept(5);
}

/* ---- the file is not what it was ---- */

static void flip(const char *path, long at)
{
	FILE *f = fopen(path, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, at, SEEK_SET), 0);
	int old = fgetc(f);
	assert_int_equal(fseek(f, at, SEEK_SET), 0);
	fputc(old ^ 4, f);
	fclose(f);
}

static void test_flips(void **state)
{
	(void)state;
	empty();
	kept(5);
	struct stat st;
	assert_int_equal(stat(the_file(), &st), 0);
	long n = (long)st.st_size;
	/* all of the head, the table and the check here and there, and parts */
	for (long at = 0; at < n; at += at < 64 ? 3 : at < PAGE ? 97 : n / 23) {
		flip(the_file(), at);
		kept(5);
		found(5);
	}
	static const long last[] = { PAGE - 8, PAGE - 1, PAGE };
	for (size_t i = 0; i < 3; i++) {
		flip(the_file(), last[i]);
		kept(5);
	}
	flip(the_file(), n - 1);
	kept(5);
	found(5);
}

static void test_wrong_files(void **state)
{
	struct stat st;
	(void)state;
	empty();
	kept(5);
	assert_int_equal(stat(the_file(), &st), 0);
	static const long cuts[] = { 0, 7, 63, PAGE - 1, PAGE, 20000 };
	for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
		assert_int_equal(truncate(the_file(), cuts[i]), 0);
		kept(5);
		found(5);
	}
	assert_int_equal(truncate(the_file(), st.st_size - 1), 0);
	kept(5);
	assert_int_equal(truncate(the_file(), st.st_size + 1), 0);
	kept(5);
	/* others may write it */
	assert_int_equal(chmod(the_file(), 0620), 0);
	kept(5);
	/* a link to a right one */
	char name[PATH], other[PATH];
	snprintf(name, sizeof name, "%s", the_file());
	snprintf(other, sizeof other, "%s/other", where);
	assert_int_equal(rename(name, other), 0);
	assert_int_equal(symlink("other", name), 0);
	kept(5);
	found(5);
	/* that of another arithmetic under its name */
	empty();
	kept(7);
	snprintf(other, sizeof other, "%s", the_file());
	assert_int_equal(rename(other, in_cache("w15")), 0);
	kept(5);
	snprintf(name, sizeof name, "%s", the_file());
	assert_int_equal(rename(in_cache("w15"), name), 0);
	kept(5);
}

/* ---- the folder ---- */

static void test_no_folder(void **state)
{
	char file[PATH];
	(void)state;
	model_path(file, "config.json/below");
	cache.folder = file;
	lost(5);
	cache.folder = "nowhere/at/all";
	lost(5);
	cache.folder = "";
	lost(5);
	cache.folder = where;
	empty();
	if (geteuid() == 0)
		return; /* may write anywhere */
	assert_int_equal(mkdir(where, 0500), 0);
	lost(5);
	assert_int_equal(chmod(where, 0700), 0);
}

/* A file that is too long for the process would end it with a signal. */
static void test_file_limit(void **state)
{
	struct rlimit old, low;
	(void)state;
	empty();
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = PAGE + 100;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	lost(5);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	kept(5);
}

/* What has its name is no file. */
static void test_in_the_way(void **state)
{
	char name[PATH], command[PATH];
	(void)state;
	empty();
	kept(5);
	snprintf(name, sizeof name, "%s", the_file());
	assert_int_equal(unlink(name), 0);
	assert_int_equal(mkdir(name, 0700), 0);
	lost(5);
	assert_int_equal(rmdir(name), 0);
	kept(5);
	found(5);
	/* nothing is left of what failed */
	snprintf(command, sizeof command, "test $(ls -a %s | wc -l) -eq 3", where);
	assert_int_equal(system(command), 0);
}

/* So long ago was its last use: uses within one tick of a file system's clock are equally old. */
static void used_before(const char *path, time_t seconds)
{
	const struct timespec then = { time(NULL) - seconds, 0 };
	const struct timespec times[2] = { then, then };
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void write_file(const char *name, const char *text, size_t n, time_t age)
{
	FILE *f = fopen(in_cache(name), "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	fclose(f);
	used_before(in_cache(name), age);
}

static void test_bound(void **state)
{
	char name7[PATH], name5[PATH];
	static const char magic[] = "\x89KVW\r\n\x1a\nand so on";
	const struct kvi_arithmetic fp8 = { 0, 0, true };
	(void)state;
	empty();
	kept(7);
	struct stat st;
	assert_int_equal(stat(the_file(), &st), 0);
	uint64_t w15 = (uint64_t)st.st_size;
	snprintf(name7, sizeof name7, "%s", the_file());
	empty();
	kept(5);
	snprintf(name5, sizeof name5, "%s", the_file());
	assert_int_equal(stat(the_file(), &st), 0);
	uint64_t w8 = (uint64_t)st.st_size;
	assert_true(w8 < w15);
	cache.max_bytes = w15 - 1;
	lost(7); /* does not fit; the other stays */
	found(5);
	cache.max_bytes = w15 + w8 - 1;
	kept(7); /* replaces the other */
	cache.max_bytes = 0;
	kept(5);
	used_before(name7, 200);
	used_before(name5, 100);
	found(7); /* the one that was used last */
	cache.max_bytes = w15 + w8;
	check(fp8, 0, 1, 0);
	found(7);
	kept(5);
	/* what is not ours stays, however old */
	empty();
	assert_int_equal(mkdir(where, 0700), 0);
	write_file("mine.kvw", "my own file", 11, 100000);
	write_file("mine.tmp", "my own file", 11, 100000);
	write_file("ours", magic, 12, 100000);
	write_file("killed.tmp", magic, 12, 100000);
	write_file("busy.tmp", magic, 12, 60);
	write_file("older.kvw", magic, 12, 100000);
	cache.max_bytes = 0;
	kept(7); /* there is space */
	assert_int_equal(access(in_cache("older.kvw"), F_OK), 0);
	cache.max_bytes = w8 + 12;
	kept(5);
	assert_int_equal(access(in_cache("mine.kvw"), F_OK), 0);
	assert_int_equal(access(in_cache("mine.tmp"), F_OK), 0);
	assert_int_equal(access(in_cache("ours"), F_OK), 0);
	assert_int_equal(access(in_cache("busy.tmp"), F_OK), 0);
	assert_int_not_equal(access(in_cache("killed.tmp"), F_OK), 0);
	assert_int_not_equal(access(in_cache("older.kvw"), F_OK), 0);
	cache.max_bytes = w15 + 11; /* the busy one cannot go */
	lost(7);
	assert_int_equal(access(in_cache("busy.tmp"), F_OK), 0);
	cache.max_bytes = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arithmetics), cmocka_unit_test(test_version),
		cmocka_unit_test(test_archives),    cmocka_unit_test(test_flips),
		cmocka_unit_test(test_wrong_files), cmocka_unit_test(test_no_folder),
		cmocka_unit_test(test_file_limit),  cmocka_unit_test(test_in_the_way),
		cmocka_unit_test(test_bound),       cmocka_unit_test(test_model_changes),
	};
	int ret = make_folder() || !mkdtemp(where);
	bool reads = ret == 0 && reads_folders();
	settle();
	if (ret == 0 && reads)
		ret = cmocka_run_group_tests(tests, NULL, NULL);
	empty();
	remove_folder();
	return ret == 0 && !reads ? 77 : ret;
}
