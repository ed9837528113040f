/* SPDX-License-Identifier: BSD-3-Clause */
/* test_device_direct.c - payloads that cuFile reads: behind stand-ins of it and of the driver */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <kvarc/device.h>

#include "device_util.h"

#define CUFILE "tests/device/.libs/cufile_stand_in.so"
#define FILE_NAME "test_device_direct.kva"

static const struct synth_shape plain = { KVARC_BF16, 2, 2, 32, 400, true, SYNTH_SMOOTH };

/* An archive in a file, and its plan on its way. */
struct direct {
	struct made_archive m;
	kvarc_device *d;
	kvarc_source source;
	kvarc_reader *r;
	kvarc_device_plan *p;
	kvarc_device_plan_info info;
	struct device_memory mem;
};

static kvarc_device *open_with(const char *cufile)
{
	kvarc_device_options o = options_of(DRIVER, KERNELS);
	kvarc_device *d;
	o.cufile = cufile;
	assert_int_equal(kvarc_device_open(&d, &o), KVARC_OK);
	return d;
}

static void write_file(const struct made_archive *m)
{
	FILE *f = fopen(FILE_NAME, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(m->f.p, 1, m->f.n, f), m->f.n);
	assert_int_equal(fclose(f), 0);
}

static void begin_plan(struct direct *x)
{
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	o.common.error = &error;
	assert_int_equal(kvarc_reader_open(&x->r, &x->source, &o), KVARC_OK);
	assert_int_equal(kvarc_device_plan_read(&x->p, x->d, x->r, &range), KVARC_OK);
	make_memory(&x->mem, x->p, &x->m.c, x->m.c.shape.tokens, false);
}

static void begin(struct direct *x, int level, const char *cufile)
{
	const kvarc_common common = { .error = &error };
	memset(x, 0, sizeof *x);
	make_archive(&x->m, &plain, level);
	write_file(&x->m);
	x->d = open_with(cufile);
	assert_int_equal(kvarc_source_open_path(&x->source, FILE_NAME, &common), KVARC_OK);
	begin_plan(x);
}

/* Returns what kvarc_device_stage does. */
static kvarc_ret stage(struct direct *x)
{
	const kvarc_ret ret = kvarc_device_stage(x->p, address(x->mem.staging), NULL);
	assert_int_equal(kvarc_device_plan_get_info(x->p, &x->info), KVARC_OK);
	return ret;
}

/* What the stand-in of cuFile returns; it is in the process once a plan has used it. */
static uint64_t direct_stand_in(const char *name)
{
	return (uint64_t)(uintptr_t)stand_in_of(CUFILE, name);
}

static void end(struct direct *x)
{
	kvarc_device_plan_close(&x->p);
	kvarc_reader_close(&x->r);
	kvarc_source_close(&x->source);
	free_memory(&x->mem);
	free_archive(&x->m);
	kvarc_device_close(&x->d);
	assert_int_equal(left(), 0);
	assert_int_equal(direct_stand_in("stand_in_files"), 0);
	unlink(FILE_NAME);
}

/* Whether this file system can read past the page cache. */
static void need_direct(void)
{
	const int fd = open(FILE_NAME, O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (fd < 0) {
		unlink(FILE_NAME);
		skip();
	}
	close(fd);
}

/* ----- tests ------------------------------------------------ */

static void test_used(void **state)
{
	(void)state;
	need_direct();
	for (int level = 0; level < 2; level++) {
		struct direct x;
		begin(&x, level, CUFILE);
		(void)direct_stand_in("stand_in_bytes");
		(void)stand_in("stand_in_waits");
		assert_int_equal(stage(&x), KVARC_OK);
		assert_int_equal((uintptr_t)stand_in("stand_in_waits"), 1);
		assert_true(x.info.file_bytes > 0);
		assert_int_equal(x.info.host_chunks, 0);
		assert_int_equal(x.info.direct_bytes, x.info.file_bytes);
		assert_int_equal(direct_stand_in("stand_in_bytes"), x.info.file_bytes);
		decode_all(x.p, &x.mem, &x.m.c);
		/* once more: it is not counted twice */
		assert_int_equal(stage(&x), KVARC_OK);
		assert_int_equal(x.info.direct_bytes, x.info.file_bytes);
		decode_all(x.p, &x.mem, &x.m.c);
		end(&x);
	}
}

/* Among chunks that the host decodes. */
static void test_others(void **state)
{
	static const struct synth_shape shape = { KVARC_F16, 2, 2, 32, 400, true, SYNTH_SPARSE };
	const kvarc_common common = { .error = &error };
	struct direct x;
	(void)state;
	need_direct();
	memset(&x, 0, sizeof x);
	make_archive(&x.m, &shape, 0);
	write_file(&x.m);
	x.d = open_with(CUFILE);
	assert_int_equal(kvarc_source_open_path(&x.source, FILE_NAME, &common), KVARC_OK);
	begin_plan(&x);
	assert_int_equal(stage(&x), KVARC_OK);
	print_message("%u of %u chunks by the host\n", x.info.host_chunks, x.info.chunks);
	assert_true(x.info.host_chunks > 0 && x.info.host_chunks < x.info.chunks);
	assert_int_equal(x.info.direct_bytes, x.info.file_bytes);
	decode_all(x.p, &x.mem, &x.m.c);
	end(&x);
}

/* A descriptor of the caller: its file, though no path has it any more, and its flags stay. */
static void test_descriptor(void **state)
{
	struct direct x;
	(void)state;
	need_direct();
	memset(&x, 0, sizeof x);
	make_archive(&x.m, &plain, 1);
	write_file(&x.m);
	const int fd = open(FILE_NAME, O_RDONLY);
	assert_true(fd >= 0);
	unlink(FILE_NAME);
	x.d = open_with(CUFILE);
	assert_int_equal(kvarc_source_fd(&x.source, fd, NULL), KVARC_OK);
	begin_plan(&x);
	assert_int_equal(stage(&x), KVARC_OK);
	assert_int_equal(x.info.direct_bytes, x.info.file_bytes);
	assert_false(fcntl(fd, F_GETFL) & O_DIRECT);
	decode_all(x.p, &x.mem, &x.m.c);
	end(&x);
	close(fd);
}

/* What cuFile does not do the host does: from the first payload on, or from the second. */
static void test_faults(void **state)
{
	static const struct {
		const char *fault;
		bool some; /* the first payload is read */
	} faults[] = { { "no-driver", false },
		       { "no-file", false },
		       { "short", true },
		       { "error", true },
		       { "nothing", true } };
	(void)state;
	need_direct();
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		struct direct x;
		begin(&x, 1, CUFILE);
		setenv("KVARC_CUFILE_STAND_IN", faults[i].fault, 1);
		assert_int_equal(stage(&x), KVARC_OK);
		unsetenv("KVARC_CUFILE_STAND_IN");
		assert_int_equal(x.info.direct_bytes > 0, faults[i].some);
		assert_true(x.info.direct_bytes < x.info.file_bytes / 2);
		decode_all(x.p, &x.mem, &x.m.c);
		/* a driver that was not there is not looked for again; files are */
		assert_int_equal(stage(&x), KVARC_OK);
		assert_int_equal(x.info.direct_bytes,
		                 !strcmp(faults[i].fault, "no-driver") ? 0 : x.info.file_bytes);
		decode_all(x.p, &x.mem, &x.m.c);
		end(&x);
	}
	struct direct x;
	begin(&x, 1, CUFILE);
	setenv("KVARC_CUFILE_STAND_IN", "already-open", 1);
	assert_int_equal(stage(&x), KVARC_OK);
	unsetenv("KVARC_CUFILE_STAND_IN");
	assert_int_equal(x.info.direct_bytes, x.info.file_bytes);
	end(&x);
}

/* No cuFile, one without its calls, none wanted; no file. */
static void test_not_there(void **state)
{
	static const char *const files[] = { "no-such-cufile.so", "libm.so.6", "" };
	struct direct x;
	(void)state;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		begin(&x, 0, files[i]);
		assert_int_equal(stage(&x), KVARC_OK);
		assert_int_equal(x.info.direct_bytes, 0);
		decode_all(x.p, &x.mem, &x.m.c);
		end(&x);
	}
	memset(&x, 0, sizeof x);
	make_archive(&x.m, &plain, 0);
	x.d = open_with(CUFILE);
	x.source = synth_source(&x.m.f);
	begin_plan(&x);
	assert_int_equal(stage(&x), KVARC_OK);
	assert_int_equal(x.info.direct_bytes, 0);
	decode_all(x.p, &x.mem, &x.m.c);
	end(&x);
}

/* A file that became shorter behind the plan: the same answer as without cuFile. */
static void test_truncated(void **state)
{
	kvarc_error host;
	(void)state;
	need_direct();
	for (int direct = 0; direct < 2; direct++) {
		struct direct x;
		begin(&x, 1, direct ? CUFILE : "");
		assert_int_equal(truncate(FILE_NAME, (off_t)x.m.f.n / 2), 0);
		memset(&error, 0, sizeof error);
		assert_int_equal(stage(&x), KVARC_DATA);
		assert_int_equal(x.info.direct_bytes > 0, direct);
		if (direct) {
			assert_string_equal(error.text, host.text);
			assert_int_equal(error.offset, host.offset);
		}
		host = error;
		/* it is not staged */
		assert_int_equal(kvarc_device_place(x.p, x.mem.views, address(x.mem.work),
		                                    address(x.mem.status), NULL),
		                 KVARC_PROG);
		end(&x);
	}
}

/* A bit of a payload in the file: the kernels' checks find it. */
static void test_damaged(void **state)
{
	struct direct x;
	(void)state;
	need_direct();
	begin(&x, 0, CUFILE);
	const int fd = open(FILE_NAME, O_RDWR);
	uint8_t byte;
	assert_int_equal(pread(fd, &byte, 1, (off_t)x.m.f.n / 2), 1);
	byte ^= 8;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)x.m.f.n / 2), 1);
	close(fd);
	assert_int_equal(stage(&x), KVARC_OK);
	assert_int_equal(x.info.direct_bytes, x.info.file_bytes);
	assert_int_equal(kvarc_device_place(x.p, x.mem.views, address(x.mem.work),
	                                    address(x.mem.status), NULL),
	                 KVARC_OK);
	assert_int_equal(kvarc_device_decode(x.p, 0, UINT32_MAX, NULL), KVARC_OK);
	assert_int_equal(kvarc_device_plan_answer(x.p, 0, UINT32_MAX, x.mem.status), KVARC_DATA);
	end(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_used),      cmocka_unit_test(test_descriptor),
		cmocka_unit_test(test_faults),    cmocka_unit_test(test_not_there),
		cmocka_unit_test(test_truncated), cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
