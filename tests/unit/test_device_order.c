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
#include "device_job.h"
#include "device_util.h"
#include "util/shared_library.h"

/* A stream of the caller: any handle but that of the default one. */
static char stream;

static uint64_t blocked(void)
{
	return (uint64_t)(uintptr_t)stand_in("stand_in_blocked");
}

static uint64_t lookups(void)
{
	return (uint64_t)(uintptr_t)stand_in("stand_in_lookups");
}

/* Finds a call of the driver; call: a pointer to a pointer to it. */
static void find_call(const char *name, void *call)
{
	const struct kvi_library_call calls[] = { { name, 0 } };
	const char *missing;
	assert_non_null(kvi_library_open(DRIVER, calls, 1, call, &missing));
	assert_null(missing);
}

/* ----- a plan ------------------------------------------------ */

/* An archive, a plan of all of it, and memory for it. */
struct order_trial {
	kvarc_device *d;
	struct made_archive m;
	kvarc_source source;
	kvarc_reader *r;
	kvarc_device_plan *p;
	struct device_memory mem;
};

static void begin(struct order_trial *t, const struct synth_shape *shape)
{
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	o.common.error = &error;
	t->d = open_device();
	make_archive(&t->m, shape, 0);
	t->source = synth_source(&t->m.f);
	assert_int_equal(kvarc_reader_open(&t->r, &t->source, &o), KVARC_OK);
	assert_int_equal(kvarc_device_plan_read(&t->p, t->d, t->r, &range), KVARC_OK);
	make_memory(&t->mem, t->p, &t->m.c, shape->tokens, false);
}

static kvarc_ret place_all(struct order_trial *t)
{
	return kvarc_device_place(t->p, t->mem.views, address(t->mem.work), address(t->mem.status),
	                          &stream);
}

static void end(struct order_trial *t)
{
	kvarc_device_plan_close(&t->p);
	kvarc_reader_close(&t->r);
	free_memory(&t->mem);
	free_archive(&t->m);
	kvarc_device_close(&t->d);
	assert_int_equal(left(), 0);
}

/* Waits for the stream, and nothing else; whether the elements of all layers were decoded. They are
 * then as before. */
static bool decoded(struct order_trial *t)
{
	kvarc_device_plan_info info;
	bool good = true;
	assert_int_equal(kvarc_device_plan_get_info(t->p, &info), KVARC_OK);
	uint32_t *status = allocate(info.status_bytes);
	assert_int_equal(kvarc_device_fetch(t->d, status, address(t->mem.status), info.status_bytes,
	                                    &stream),
	                 KVARC_OK);
	good = kvarc_device_plan_answer(t->p, 0, UINT32_MAX, status) == KVARC_OK;
	free(status);
	for (size_t i = 0; i < t->m.c.geometry.n_tensors; i++) {
		good = good && holds(&t->mem, &t->m.c, i, 0, 0, t->m.c.shape.tokens);
		memset(t->mem.elements[i], 0xa5, t->mem.bytes);
	}
	memset(t->mem.status, 0xa5, info.status_bytes);
	return good;
}

static const struct synth_shape small = { KVARC_BF16, 2, 2, 32, 200, true, SYNTH_SMOOTH };

/* ----- copies ------------------------------------------------ */

/* More than the buffers have; those of f32 are decoded by the host. */
static const struct synth_shape large = { KVARC_BF16, 8, 8, 128, 300, true, SYNTH_SMOOTH },
				larger = { KVARC_F32, 4, 8, 128, 300, true, SYNTH_SMOOTH };

/* Work of the caller's stream that is not done yet. */
static void keep_busy(struct order_trial *t)
{
	static uint8_t *some;
	free(some);
	some = allocate(1);
	assert_int_equal(kvarc_device_send(t->d, address(some), "x", 1, &stream), KVARC_OK);
	(void)blocked();
}

/* Staging and placing wait for no work of the stream, which finds all of it. */
static void test_stage(void **state)
{
	const struct synth_shape *shapes[] = { &small, &large, &larger };
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct order_trial t;
		begin(&t, shapes[i]);
		keep_busy(&t);
		assert_int_equal(kvarc_device_stage(t.p, address(t.mem.staging), &stream),
		                 KVARC_OK);
		assert_int_equal(place_all(&t), KVARC_OK);
		assert_int_equal(kvarc_device_decode(t.p, 0, UINT32_MAX, &stream), KVARC_OK);
		/* jobs for what is decoded next, which the kernels before do not find */
		t.mem.views[0].base = 0;
		assert_int_equal(place_all(&t), KVARC_OK);
		assert_int_equal(blocked(), 0);
		assert_true(decoded(&t));
		end(&t);
	}
}

/* What is sent is what the bytes were, in memory of any kind; more than the buffers take waits. */
static void test_send(void **state)
{
	enum { BYTES = 9 << 20 };
	struct order_trial t;
	uint8_t *to = allocate(BYTES), *from = allocate(BYTES);
	void *fixed;
	int (*host_alloc)(void **, size_t, unsigned), (*host_free)(void *);
	(void)state;
	find_call("cuMemHostAlloc", &host_alloc);
	find_call("cuMemFreeHost", &host_free);
	begin(&t, &small);
	assert_int_equal(host_alloc(&fixed, 2, 0), 0);
	memcpy(fixed, "ab", 2);
	(void)blocked();
	assert_int_equal(kvarc_device_send(t.d, address(to), fixed, 2, &stream), KVARC_OK);
	memcpy(fixed, "xy", 2);
	assert_int_equal(host_free(fixed), 0);
	assert_int_equal(blocked(), 0);
	settle();
	assert_memory_equal(to, "ab", 2);
	for (size_t i = 0; i < BYTES; i++)
		from[i] = (uint8_t)(i % 251);
	assert_int_equal(kvarc_device_send(t.d, address(to), from, BYTES, &stream), KVARC_OK);
	assert_true(blocked() > 0);
	settle();
	assert_memory_equal(to, from, BYTES);
	free(to);
	free(from);
	end(&t);
}

/* ----- bytes that are there ------------------------------------------------ */

/* All chunks but the last of an archive are in the device: they are not read, nor have they staging
 * memory. */
static void test_window(void **state)
{
	kvarc_device_plan_info before, info;
	kvarc_device_payload payloads[64];
	struct order_trial t;
	uint64_t given = 0, end_of_given = 0;
	(void)state;
	begin(&t, &small);
	assert_int_equal(kvarc_device_plan_get_info(t.p, &before), KVARC_OK);
	assert_int_equal(kvarc_device_plan_payloads(t.p, payloads, before.chunks + 1), KVARC_PROG);
	assert_int_equal(kvarc_device_plan_payloads(t.p, payloads, before.chunks), KVARC_OK);
	/* a window of all chunks but the last of the file, and of a part of that one */
	for (uint32_t i = 0; i < before.chunks; i++) {
		assert_int_equal(payloads[i].offset % 16, 0);
		assert_true(!i || payloads[i].layer >= payloads[i - 1].layer);
		if (payloads[i].offset > end_of_given)
			end_of_given = payloads[i].offset;
	}
	uint8_t *window = allocate(end_of_given + 16);
	memcpy(window, t.m.f.p + 64, end_of_given);
	for (uint32_t i = 0; i < before.chunks; i++)
		if (payloads[i].offset != end_of_given) {
			given += payloads[i].bytes;
			memset(t.m.f.p + payloads[i].offset, 0, payloads[i].bytes);
		}
	assert_int_equal(kvarc_device_plan_use(t.p, 64, end_of_given, address(window) + 8),
	                 KVARC_PROG);
	assert_int_equal(kvarc_device_plan_use(t.p, 64, end_of_given - 48, address(window)),
	                 KVARC_OK);
	assert_int_equal(kvarc_device_plan_get_info(t.p, &info), KVARC_OK);
	assert_int_equal(info.file_bytes, before.file_bytes - given);
	assert_true(info.file_bytes > 0 && info.staging_bytes <= before.staging_bytes - given);
	(void)stand_in("stand_in_copied");
	uint8_t *staging = allocate(info.staging_bytes);
	assert_int_equal(kvarc_device_stage(t.p, address(staging), &stream), KVARC_OK);
	assert_true((uintptr_t)stand_in("stand_in_copied") <= info.staging_bytes);
	assert_int_equal(place_all(&t), KVARC_OK);
	assert_int_equal(kvarc_device_decode(t.p, 0, UINT32_MAX, &stream), KVARC_OK);
	assert_true(decoded(&t));
	window[payloads[0].offset - 64 + payloads[0].bytes / 2] ^= 4;
	assert_int_equal(kvarc_device_decode(t.p, 0, UINT32_MAX, &stream), KVARC_OK);
	assert_false(decoded(&t));
	free(window);
	end(&t);
	free(staging);
}

/* ----- layers ------------------------------------------------ */

/* Whether the elements of a layer are there, and those of later ones are not. */
static bool has_layers(const struct order_trial *t, uint32_t n)
{
	for (size_t i = 0; i < t->m.c.geometry.n_tensors; i++)
		if (holds(&t->mem, &t->m.c, i, 0, 0, t->m.c.shape.tokens) != (i / 2 < n))
			return false;
	return true;
}

static kvarc_ret stage_layers(struct order_trial *t, uint32_t layer0, uint32_t n)
{
	return kvarc_device_stage_layers(t->p, address(t->mem.staging), layer0, n, &stream);
}

/* A layer is decoded before the next ones are read; layers come in their order. */
static void test_layers(void **state)
{
	struct order_trial t;
	(void)state;
	begin(&t, &large);
	assert_int_equal(stage_layers(&t, 1, 1), KVARC_PROG);
	assert_int_equal(stage_layers(&t, 0, 9), KVARC_GEOMETRY);
	(void)stand_in("stand_in_copied");
	assert_int_equal(stage_layers(&t, 0, 1), KVARC_OK);
	assert_true((uintptr_t)stand_in("stand_in_copied") < t.m.f.n / 4);
	assert_int_equal(place_all(&t), KVARC_OK);
	assert_int_equal(kvarc_device_decode(t.p, 1, 1, &stream), KVARC_PROG);
	assert_int_equal(kvarc_device_decode(t.p, 0, UINT32_MAX, &stream), KVARC_PROG);
	(void)blocked();
	for (uint32_t layer = 0; layer < 3; layer++) {
		uint8_t byte;
		assert_int_equal(kvarc_device_decode(t.p, layer, 1, &stream), KVARC_OK);
		if (layer < 2) {
			assert_int_equal(stage_layers(&t, layer + 2, 1), KVARC_PROG);
			assert_int_equal(stage_layers(&t, layer + 1, 1), KVARC_OK);
		}
		assert_int_equal(blocked(), 0);
		if (layer == 1) { /* two are on their way */
			assert_int_equal(
				kvarc_device_fetch(t.d, &byte, address(t.mem.work), 1, &stream),
				KVARC_OK);
			assert_true(has_layers(&t, 2));
			(void)blocked();
		}
	}
	assert_int_equal(stage_layers(&t, 3, UINT32_MAX), KVARC_OK);
	assert_int_equal(kvarc_device_decode(t.p, 3, UINT32_MAX, &stream), KVARC_OK);
	assert_true(decoded(&t));
	end(&t);
}

/* ----- captures ------------------------------------------------ */

/* Calls of the driver that the library does not use. */
static struct capture_calls {
	int (*begin)(void *stream, int mode);
	int (*end)(void *stream, void **graph);
	int (*launch)(void *graph, void *stream);
	int (*destroy)(void *graph);
} capture;

static void find_capture(void)
{
	find_call("cuStreamBeginCapture_v2", &capture.begin);
	find_call("cuStreamEndCapture", &capture.end);
	find_call("cuGraphLaunch", &capture.launch);
	find_call("cuGraphDestroy", &capture.destroy);
}

/* The first decode of a device is captured, and run twice. */
static void test_capture(void **state)
{
	struct order_trial t;
	void *graph;
	(void)state;
	find_capture();
	begin(&t, &small);
	assert_int_equal(kvarc_device_stage(t.p, address(t.mem.staging), &stream), KVARC_OK);
	assert_int_equal(place_all(&t), KVARC_OK);
	(void)lookups();
	assert_int_equal(capture.begin(&stream, 0), 0);
	assert_int_equal(kvarc_device_decode(t.p, 0, UINT32_MAX, &stream), KVARC_OK);
	assert_int_equal(capture.end(&stream, &graph), 0);
	assert_int_equal(lookups(), 0);
	assert_false(decoded(&t));
	assert_int_equal(capture.launch(graph, &stream), 0);
	assert_true(decoded(&t));
	assert_int_equal(capture.launch(graph, &stream), 0);
	assert_true(decoded(&t));
	/* what is no launch is refused */
	assert_int_equal(capture.destroy(graph), 0);
	assert_int_equal(capture.begin(&stream, 0), 0);
	assert_int_not_equal(place_all(&t), KVARC_OK);
	assert_int_not_equal(capture.end(&stream, &graph), 0);
	assert_int_equal(capture.destroy(graph), 0);
	end(&t);
}

/* ----- the stand-in itself ------------------------------------------------ */

static struct kvi_driver driver;

/* Launches a kernel that reads no chunk. */
static int launch(void *function, unsigned blocks, unsigned threads, unsigned shared)
{
	struct kvi_gpu_batch none = { 0 };
	void *arguments[] = { &none };
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
	(void)blocked();
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
	assert_int_equal(driver.module_function(&function, module, "kvi_gpu_decode"), 0);
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
		cmocka_unit_test(test_stage),
		cmocka_unit_test(test_send),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_capture),
		cmocka_unit_test_setup_teardown(test_stand_in_copies, open_driver, close_driver),
		cmocka_unit_test_setup_teardown(test_stand_in_limits, open_driver, close_driver),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
