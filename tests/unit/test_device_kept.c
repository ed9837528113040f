/* SPDX-License-Identifier: BSD-3-Clause */
/* test_device_kept.c - models of profiles that stay in a device between plans that read */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <kvarc/device.h>
#include <kvarc/tools.h>

#include "device_util.h"

enum { TOKENS = 150, CANARY = 0xa5 };

/* An archive with its profile in it. */
static void make_modelled(struct made_archive *m, uint8_t dtype, int level)
{
	const struct synth_shape shape = { dtype, 3, 2, 8, TOKENS, true, SYNTH_SMOOTH };
	kvarc_profile *profile = train_profile(&shape, level);
	make_archive_with(m, &shape, level, profile, level == 3);
	kvarc_profile_close(&profile);
}

/* A plan of a whole archive, its reader, and memory. */
struct kept_reading {
	const struct made_archive *m;
	kvarc_source source;
	kvarc_reader *r;
	kvarc_device_plan *p;
	kvarc_device_plan_info info;
	struct device_memory mem;
	uint64_t waits; /* of staging, for the stream */
};

static void plan(struct kept_reading *x, kvarc_device *d, struct made_archive *m)
{
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	x->m = m;
	x->source = synth_source(&m->f);
	o.common.error = &error;
	assert_int_equal(kvarc_reader_open(&x->r, &x->source, &o), KVARC_OK);
	assert_int_equal(kvarc_device_plan_read(&x->p, d, x->r, &range), KVARC_OK);
	assert_int_equal(kvarc_device_plan_get_info(x->p, &x->info), KVARC_OK);
	assert_int_equal(x->info.host_chunks, 0);
	make_memory(&x->mem, x->p, &m->c, TOKENS, true);
}

/* Stages; returns how many bytes were copied to the device. */
static uint64_t stage(struct kept_reading *x)
{
	(void)stand_in("stand_in_copied");
	(void)stand_in("stand_in_waits");
	assert_int_equal(kvarc_device_stage(x->p, address(x->mem.staging), NULL), KVARC_OK);
	x->waits = (uint64_t)(uintptr_t)stand_in("stand_in_waits");
	return (uint64_t)(uintptr_t)stand_in("stand_in_copied");
}

static void end(struct kept_reading *x)
{
	kvarc_device_plan_close(&x->p);
	kvarc_reader_close(&x->r);
	free_memory(&x->mem);
}

/* Reads an archive; returns how many bytes staging copied. */
static uint64_t read_all(kvarc_device *d, struct made_archive *m, kvarc_device_plan_info *info)
{
	struct kept_reading x;
	plan(&x, d, m);
	*info = x.info;
	const uint64_t copied = stage(&x);
	decode_all(x.p, &x.mem, &x.m->c);
	end(&x);
	return copied;
}

/* ----- tests ------------------------------------------------ */

static void test_second_plan(void **state)
{
	(void)state;
	for (int level = 2; level < 4; level++) {
		kvarc_device *d = open_device();
		kvarc_device_plan_info info, kept;
		struct made_archive m;
		make_modelled(&m, KVARC_BF16, level);
		const uint64_t copied = read_all(d, &m, &info);
		assert_true(info.profile_bytes > 1000);
		assert_int_equal(read_all(d, &m, &kept), copied);
		uint8_t *memory = allocate(info.profile_bytes);
		assert_int_equal(kvarc_device_keep_models(d, address(memory), info.profile_bytes),
		                 KVARC_OK);
		/* the first one brings them there, others find them, those of other readers too */
		assert_int_equal(read_all(d, &m, &kept), copied);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(kept.profile_bytes, 0);
			assert_int_equal(kept.staging_bytes,
			                 info.staging_bytes - info.profile_bytes);
			assert_int_equal(read_all(d, &m, &kept), copied - info.profile_bytes);
		}
		/* none: as before */
		assert_int_equal(kvarc_device_keep_models(d, 0, 0), KVARC_OK);
		assert_int_equal(read_all(d, &m, &kept), copied);
		assert_int_equal(kept.profile_bytes, info.profile_bytes);
		free(memory);
		free_archive(&m);
		kvarc_device_close(&d);
		assert_int_equal(left(), 0);
	}
}

/* Some of them fit; nothing is written behind the memory. */
static void test_too_small(void **state)
{
	kvarc_device *d = open_device();
	kvarc_device_plan_info info, kept;
	struct made_archive m;
	bool some = false;
	(void)state;
	make_modelled(&m, KVARC_BF16, 3);
	const uint64_t copied = read_all(d, &m, &info);
	uint8_t *memory = allocate(info.profile_bytes);
	for (uint64_t bytes = 16; bytes < info.profile_bytes; bytes += info.profile_bytes / 5) {
		memset(memory, CANARY, info.profile_bytes);
		assert_int_equal(kvarc_device_keep_models(d, address(memory), bytes), KVARC_OK);
		assert_int_equal(read_all(d, &m, &kept), copied);
		assert_true(kept.profile_bytes >= info.profile_bytes - bytes);
		some |= kept.profile_bytes < info.profile_bytes;
		assert_int_equal(read_all(d, &m, &kept),
		                 copied - (info.profile_bytes - kept.profile_bytes));
		for (uint64_t i = bytes; i < info.profile_bytes; i++)
			assert_int_equal(memory[i], CANARY);
	}
	assert_true(some);
	free(memory);
	free_archive(&m);
	kvarc_device_close(&d);
}

/* Models of two profiles, which are of the same tensors. */
static void test_two_profiles(void **state)
{
	kvarc_device *d = open_device();
	kvarc_device_plan_info info[2], kept;
	uint64_t copied[2];
	struct made_archive m[2];
	(void)state;
	for (int i = 0; i < 2; i++) {
		make_modelled(&m[i], KVARC_BF16, i + 2);
		copied[i] = read_all(d, &m[i], &info[i]);
	}
	const uint64_t bytes = info[0].profile_bytes + info[1].profile_bytes;
	uint8_t *memory = allocate(bytes);
	assert_int_equal(kvarc_device_keep_models(d, address(memory), bytes), KVARC_OK);
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < 2; i++)
			assert_int_equal(read_all(d, &m[i], &kept),
			                 copied[i] - (k ? info[i].profile_bytes : 0));
	for (int i = 0; i < 2; i++)
		free_archive(&m[i]);
	free(memory);
	kvarc_device_close(&d);
}

/* A plan that was made first may be staged later, or never; copies that fail are made again. */
static void test_order(void **state)
{
	kvarc_device *d = open_device();
	kvarc_device_plan_info info, kept;
	struct made_archive m;
	struct kept_reading x, y;
	(void)state;
	make_modelled(&m, KVARC_BF16, 2);
	const uint64_t copied = read_all(d, &m, &info);
	uint8_t *memory = allocate(info.profile_bytes);
	assert_int_equal(kvarc_device_keep_models(d, address(memory), info.profile_bytes),
	                 KVARC_OK);
	plan(&x, d, &m);
	plan(&y, d, &m);
	setenv("KVARC_STAND_IN", "no-memory", 1);
	assert_int_equal(kvarc_device_stage(y.p, address(y.mem.staging), NULL), KVARC_MEM);
	unsetenv("KVARC_STAND_IN");
	/* nothing changes while they are open */
	assert_int_equal(kvarc_device_keep_models(d, 0, 0), KVARC_PROG);
	assert_non_null(strstr(error.text, "is open"));
	assert_int_equal(stage(&y), copied);
	assert_int_equal(y.waits, 1);
	decode_all(y.p, &y.mem, &y.m->c);
	assert_int_equal(stage(&x), copied - info.profile_bytes);
	assert_int_equal(x.waits, 0);
	decode_all(x.p, &x.mem, &x.m->c);
	end(&y);
	assert_int_equal(kvarc_device_keep_models(d, 0, 0), KVARC_PROG);
	end(&x);
	/* never staged: the next one copies */
	assert_int_equal(kvarc_device_keep_models(d, address(memory), info.profile_bytes),
	                 KVARC_OK);
	plan(&x, d, &m);
	end(&x);
	assert_int_equal(read_all(d, &m, &kept), copied);
	assert_int_equal(kept.profile_bytes, 0);
	assert_int_equal(kvarc_device_keep_models(d, 0, 0), KVARC_OK);
	assert_int_equal(kvarc_device_keep_models(NULL, 0, 0), KVARC_PROG);
	assert_int_equal(kvarc_device_keep_models(d, address(memory) + 16, 16), KVARC_PROG);
	assert_int_equal(kvarc_device_keep_models(d, 0, 16), KVARC_PROG);
	assert_int_equal(kvarc_device_keep_models(d, address(memory), UINT64_MAX), KVARC_PROG);
	free(memory);
	free_archive(&m);
	kvarc_device_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_second_plan),
		cmocka_unit_test(test_too_small),
		cmocka_unit_test(test_two_profiles),
		cmocka_unit_test(test_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
