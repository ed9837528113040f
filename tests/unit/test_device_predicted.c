/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_device_predicted.c - appends that a model predicts (levels 4 to 7), from a GPU: library and
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
	kvarc_device_model *m;
	void *weights;
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

static void load_model(struct gpu_world *g)
{
	uint64_t bytes;
	if (kvarc_device_model_open_writer(&g->m, g->d, g->writer, &bytes))
		fail_msg("%s", error.text);
	g->weights = allocate(bytes);
	assert_int_equal(kvarc_device_model_load(g->m, address(g->weights), NULL), KVARC_OK);
}

static void close_gpu_world(struct gpu_world *g)
{
	kvarc_writer_abort(&g->writer);
	kvarc_device_model_close(&g->m);
	free(g->weights);
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

static void test_equal(void **state)
{
	(void)state;
	for (int level = 4; level <= 7; level++) {
		struct gpu_world g;
		open_gpu_world(&g, level);
		open_writer(&g);
		load_model(&g);
		const uint32_t host = append(&g, 0, TOKENS);
		print_message("level %d: of %d chunks the host encoded %u\n", level, (int)CHUNKS,
		              (unsigned)host);
		assert_int_equal(host, 0);
		is_the_host_s(&g);
		close_gpu_world(&g);
	}
}

/* What kernels cannot go through the host's model does, in any number of appends. */
static void test_by_the_host(void **state)
{
	enum { PART = 256 };
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct gpu_world g;
		open_gpu_world(&g, i == 3 ? 8 : 5);
		g.w.wo.flags |= i == 2 ? KVARC_WRITE_VERIFY : 0;
		open_writer(&g);
		if (i == 1) { /* not the track's first token */
			load_model(&g);
			assert_int_equal(kvarc_writer_append(g.writer, 0, PART, g.w.c.ids[0], NULL,
			                                     g.w.c.views),
			                 KVARC_OK);
			assert_int_equal(kvarc_writer_commit(g.writer), KVARC_OK);
		} else {
			assert_int_equal(append(&g, 0, PART), TENSORS);
		}
		assert_int_equal(append(&g, PART, PART), TENSORS);
		assert_int_equal(append(&g, 2 * PART, TOKENS - 2 * PART), TENSORS);
		is_the_host_s(&g);
		close_gpu_world(&g);
	}
}

/* Behind what kernels predicted a track has no more tokens. */
static void test_end(void **state)
{
	kvarc_device_plan *p;
	struct gpu_world g;
	(void)state;
	open_gpu_world(&g, 6);
	open_writer(&g);
	load_model(&g);
	assert_int_equal(append(&g, 0, TOKENS), 0);
	assert_int_equal(kvarc_device_plan_write(&p, g.d, g.writer, 0, 1, g.w.c.ids[0], NULL),
	                 KVARC_PROG);
	assert_non_null(strstr(g.w.error.text, "takes all of its tokens at once"));
	assert_int_equal(kvarc_writer_append(g.writer, 0, 1, g.w.c.ids[0], NULL, g.w.c.views),
	                 KVARC_PROG);
	is_the_host_s(&g);
	close_gpu_world(&g);
}

/* A chunk that is what the model predicts has another codec; so has one that is not finite. */
static void test_other_codecs(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct gpu_world g;
		open_gpu_world(&g, 7);
		if (i) {
			world_close(&g.w);
			world_open_exact(&g.w, 7, i == 1 ? KVARC_BF16 : KVARC_F16);
		} else {
			memset(g.w.c.data[3] + 100, 0xff, 2);
		}
		open_writer(&g);
		load_model(&g);
		assert_int_equal(append(&g, 0, TOKENS), CHUNKS);
		is_the_host_s(&g);
		close_gpu_world(&g);
	}
}

/* A failure on the way: nothing was appended, and the host can. */
static void test_faults(void **state)
{
	struct gpu_world g;
	struct gpu_append a;
	(void)state;
	open_gpu_world(&g, 5);
	open_writer(&g);
	load_model(&g);
	plan(&a, &g, 0, TOKENS);
	assert_int_equal(a.info.host_chunks, 0);
	assert_int_equal(kvarc_device_encode(a.p, 1, 1, NULL), KVARC_PROG);
	assert_non_null(strstr(error.text, "layer 0 is the next one"));
	setenv("KVARC_STAND_IN", "no-launch", 1);
	assert_int_equal(kvarc_device_encode(a.p, 0, UINT32_MAX, NULL), KVARC_IO);
	unsetenv("KVARC_STAND_IN");
	assert_int_equal(kvarc_device_append(a.p, NULL), KVARC_PROG);
	assert_int_equal(kvarc_device_encode(a.p, 0, UINT32_MAX, NULL), KVARC_OK);
	setenv("KVARC_STAND_IN", "no-fetch", 1);
	assert_int_equal(kvarc_device_append(a.p, NULL), KVARC_IO);
	unsetenv("KVARC_STAND_IN");
	drop(&a);
	kvarc_device_model_close(&g.m);
	assert_int_equal(append(&g, 0, TOKENS), CHUNKS);
	is_the_host_s(&g);
	close_gpu_world(&g);
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
	for (int level = 1; level <= 8; level += 7) {
		g.w.wo.level = level;
		g.w.wo.profile = level > 1 ? g.w.profile : NULL;
		if (level == 8) {
			world_close(&g.w);
			world_open(&g.w, level);
		}
		open_writer(&g);
		assert_int_equal(kvarc_device_model_open_writer(&m, g.d, g.writer, &bytes),
		                 KVARC_OPTIONS);
		assert_non_null(strstr(error.text, "the writer has no model"));
		kvarc_writer_abort(&g.writer);
	}
	close_gpu_world(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal),  cmocka_unit_test(test_by_the_host),
		cmocka_unit_test(test_end),    cmocka_unit_test(test_other_codecs),
		cmocka_unit_test(test_faults), cmocka_unit_test(test_model),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
