/* SPDX-License-Identifier: BSD-3-Clause */
/* test_device_order.c - what waits for what: streams, pinned memory and captures, behind a stand-in
 * of the driver that queues */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/driver.h"
#include "device_util.h"

/* A stream of the caller: any handle but that of the default one. */
static char stream;

static uint64_t blocked(void)
{
	return (uint64_t)(uintptr_t)stand_in("stand_in_blocked");
}

/* ----- the stand-in itself ------------------------------------------------ */

static struct kvi_driver driver;

/* Launches a kernel that reads no chunk. */
static int launch(void *function, unsigned blocks, unsigned threads, unsigned shared)
{
	uint64_t chunks = 0;
	uint32_t n = 0;
	void *arguments[] = { &chunks, &n };
	return driver.launch(function, blocks, 1, 1, threads, 1, 1, shared, &stream, arguments,
	                     NULL);
}

/* Copies wait for their turn; those from memory that is not pinned were read before it. */
static void test_stand_in_copies(void **state)
{
	uint64_t at;
	uint8_t from = 1, to = 0;
	(void)state;
	assert_int_equal(driver.memory_alloc(&at, 1), 0);
	const uint8_t *device = (const uint8_t *)(uintptr_t)at;
	assert_int_equal(driver.copy_to_device(at, &from, 1, &stream), 0);
	from = 2;
	assert_int_equal(*device, 0xa5);
	assert_int_equal(blocked(), 0);
	assert_int_equal(driver.copy_to_device(at, &from, 1, &stream), 0);
	assert_int_equal(blocked(), 1); /* for the first */
	assert_int_equal(*device, 1);
	assert_int_equal(driver.copy_to_host(&to, at, 1, &stream), 0);
	assert_int_equal(to, 2);
	assert_int_equal(blocked(), 1);
	assert_int_equal(driver.stream_wait(&stream), 0);
	assert_int_equal(blocked(), 0);
	assert_int_equal(driver.memory_free(at), 0);
}

/* Limits of launches, and kernels of other modules. */
static void test_stand_in_limits(void **state)
{
	void *module, *function;
	(void)state;
	assert_int_equal(driver.module_load(&module, "any"), 0);
	assert_int_equal(driver.module_function(&function, module, "kvi_gpu_none"), 500);
	assert_int_equal(driver.module_function(&function, module, "kvi_gpu_open"), 0);
	assert_int_equal(launch(function, 1, 32, 48 << 10), 0);
	assert_int_equal(launch(function, 0, 32, 0), 1);
	assert_int_equal(launch(function, 1, 2048, 0), 1);
	assert_int_equal(launch(function, 1, 32, (48 << 10) + 1), 1);
	assert_int_equal(driver.function_attribute(function, KVI_CU_MAX_SHARED, 200 << 10), 1);
	assert_int_equal(driver.function_attribute(function, KVI_CU_MAX_SHARED, 50 << 10), 0);
	assert_int_equal(launch(function, 1, 32, (48 << 10) + 1), 0);
	assert_int_equal(driver.module_function(&function, module, "kvi_gpu_collect"), 500);
	assert_int_equal(driver.module_function(&function, module, "kvi_gpu_embed"), 500);
	settle();
	assert_int_equal(driver.module_unload(module), 0);
}

static int open_driver(void **state)
{
	void *context;
	(void)state;
	if (kvi_driver_load(&driver, DRIVER, NULL) || driver.primary_retain(&context, 0))
		return -1;
	return driver.context_push(context);
}

static int close_driver(void **state)
{
	void *context;
	(void)state;
	driver.context_pop(&context);
	driver.primary_release(0);
	kvi_driver_unload(&driver);
	return left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stand_in_copies, open_driver, close_driver),
		cmocka_unit_test_setup_teardown(test_stand_in_limits, open_driver, close_driver),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
