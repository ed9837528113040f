/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_device_predicted.c - appends that a model predicts (levels 4 to 8), from a GPU: library and
 * kernels behind a stand-in of the driver
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_util.h"
#include "prediction_util.h"

enum { TENSORS = 2 * LAYERS, CHUNKS = 3 * TENSORS };

/* A world, its writer, and a device that may have its model. */
struct gpu_world {
	struct world w;
	kvarc_device *d;
	kvarc_writer *writer;
	kvarc_sink sink;
};

static void open_gpu_world(struct gpu_world *g, int level)
{
	*g = (struct gpu_world){ .d = open_device() };
	world_open(&g->w, level);
}

/* As cache_write. */
static void open_writer(struct gpu_world *g)
{
	static const char *const keys[] = { "model", "engine" };
	static const char *const values[] = { "test model", "none" };
	memfile_free(&g->w.f);
	g->w.f = (struct memfile){ .fail_at = -1 };
	g->sink = memfile_sink(&g->w.f);
	assert_int_equal(kvarc_writer_open(&g->writer, &g->sink, &g->w.wo), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(g->writer, &g->w.c.g), KVARC_OK);
	assert_int_equal(kvarc_writer_identity(g->writer, 2, keys, values), KVARC_OK);
}

static void close_gpu_world(struct gpu_world *g)
{
	kvarc_writer_abort(&g->writer);
	world_close(&g->w);
	kvarc_device_close(&g->d);
	assert_int_equal(left(), 0);
}

/* Views of the cache from token t0 on: the "device" reads memory of the host. */
static void views_of(const struct gpu_world *g, uint64_t t0, uint64_t n, kvarc_device_view *views)
{
	for (size_t i = 0; i < TENSORS; i++) {
		const uint32_t size = (uint32_t)kvarc_dtype_bytes(g->w.c.tensors[i].dtype);
		views[i] =
			(kvarc_device_view){ .base = address(g->w.c.data[i]) + t0 * CHANNELS * size,
			                     .bytes = n * CHANNELS * size,
			                     .token_stride = (uint64_t)CHANNELS * size,
			                     .head_stride = (uint64_t)CHANNELS * size,
			                     .elem_stride = size };
	}
}

/* A plan of n tokens on its way. */
struct gpu_append {
	kvarc_device_plan *p;
	kvarc_device_view views[TENSORS];
	void *staging, *work, *status;
	kvarc_device_plan_info info;
};

static void plan(struct gpu_append *a, struct gpu_world *g, uint64_t t0, uint64_t n)
{
	if (kvarc_device_plan_write(&a->p, g->d, g->writer, 0, n, g->w.c.ids[0] + t0, NULL))
		fail_msg("%s%s", error.text, g->w.error.text);
	assert_int_equal(kvarc_device_plan_get_info(a->p, &a->info), KVARC_OK);
	a->staging = allocate(a->info.staging_bytes);
	a->work = allocate(a->info.work_bytes);
	a->status = allocate(a->info.status_bytes);
	views_of(g, t0, n, a->views);
	assert_int_equal(kvarc_device_stage(a->p, address(a->staging), NULL), KVARC_OK);
	assert_int_equal(
		kvarc_device_place(a->p, a->views, address(a->work), address(a->status), NULL),
		KVARC_OK);
}

static void drop(struct gpu_append *a)
{
	settle();
	kvarc_device_plan_close(&a->p);
	free(a->staging);
	free(a->work);
	free(a->status);
}

/* Returns how many of the chunks the host encoded. */
static uint32_t append(struct gpu_world *g, uint64_t t0, uint64_t n)
{
	struct gpu_append a;
	plan(&a, g, t0, n);
	for (uint32_t l = 0; l < LAYERS; l++)
		assert_int_equal(kvarc_device_encode(a.p, l, 1, NULL), KVARC_OK);
	if (kvarc_device_append(a.p, NULL))
		fail_msg("%s%s", error.text, g->w.error.text);
	assert_int_equal(kvarc_device_plan_get_info(a.p, &a.info), KVARC_OK);
	drop(&a);
	return a.info.host_chunks;
}

/* The archive is the host's. */
static void is_the_host_s(struct gpu_world *g)
{
	assert_int_equal(kvarc_writer_close(&g->writer), KVARC_OK);
	struct memfile made = g->w.f;
	g->w.f = (struct memfile){ .fail_at = -1 };
	world_write(&g->w);
	assert_int_equal(made.n, g->w.f.n);
	assert_memory_equal(made.p, g->w.f.p, made.n);
	memfile_free(&made);
	world_read(&g->w);
}

/* In any number of appends, and with chunks of other codecs: what is predicted, or not finite. */
static void test_equal(void **state)
{
	enum { PART = 256 };
	(void)state;
	for (int level = 4; level <= 8; level++) {
		struct gpu_world g;
		open_gpu_world(&g, level);
		if (level == 7) {
			world_close(&g.w);
			world_open_exact(&g.w, 7, KVARC_BF16);
		}
		if (level == 6)
			memset(g.w.c.data[3] + 100, 0xff, 2);
		open_writer(&g);
		assert_int_equal(append(&g, 0, PART), TENSORS);
		assert_int_equal(append(&g, PART, TOKENS - PART), CHUNKS - TENSORS);
		is_the_host_s(&g);
		close_gpu_world(&g);
	}
}

static void test_model(void **state)
{
	kvarc_device_model *m = (kvarc_device_model *)(uintptr_t)1;
	struct gpu_world g;
	uint64_t bytes;
	(void)state;
	open_gpu_world(&g, 5);
	assert_int_equal(kvarc_device_model_open_writer(&m, g.d, NULL, &bytes), KVARC_PROG);
	g.sink = memfile_sink(&g.w.f);
	assert_int_equal(kvarc_writer_open(&g.writer, &g.sink, &g.w.wo), KVARC_OK);
	assert_int_equal(kvarc_device_model_open_writer(&m, g.d, g.writer, &bytes), KVARC_PROG);
	assert_non_null(strstr(error.text, "kvarc_writer_set_geometry"));
	assert_null(m);
	kvarc_writer_abort(&g.writer);
	open_writer(&g);
	assert_int_equal(kvarc_device_model_open_writer(&m, g.d, g.writer, &bytes), KVARC_OK);
	kvarc_device_model_close(&m);
	kvarc_writer_abort(&g.writer);
	g.w.wo.level = 1;
	g.w.wo.profile = NULL;
	open_writer(&g);
	assert_int_equal(kvarc_device_model_open_writer(&m, g.d, g.writer, &bytes), KVARC_OPTIONS);
	assert_non_null(strstr(error.text, "the writer has no model"));
	close_gpu_world(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal),
		cmocka_unit_test(test_model),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
