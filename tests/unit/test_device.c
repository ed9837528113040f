/* SPDX-License-Identifier: BSD-3-Clause */
/* test_device.c - reading into a GPU: library and kernels behind a stand-in of the driver */
#include <dlfcn.h>
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

/* ----- a device ------------------------------------------------ */

static void refuse(const kvarc_device_options *o, kvarc_ret wanted, const char *text)
{
	kvarc_device *d = (kvarc_device *)(uintptr_t)1;
	assert_int_equal(kvarc_device_open(&d, o), wanted);
	assert_null(d);
	if (!strstr(error.text, text)) {
		print_error("\"%s\" is not in \"%s\"\n", text, error.text);
		fail();
	}
}

static void refuse_with(const char *fault, kvarc_ret wanted, const char *text)
{
	const kvarc_device_options o = options_of(DRIVER, KERNELS);
	setenv("KVARC_STAND_IN", fault, 1);
	refuse(&o, wanted, text);
	unsetenv("KVARC_STAND_IN");
}

static void test_open(void **state)
{
	kvarc_device_options o = options_of("no-such-driver.so", KERNELS);
	(void)state;
	refuse(&o, KVARC_OPTIONS, "no NVIDIA driver");
	o = options_of("libm.so.6", KERNELS);
	refuse(&o, KVARC_OPTIONS, "has no cuInit");
	o = options_of(DRIVER, "no-such-kernels.fatbin");
	refuse(&o, KVARC_OPTIONS, "no kernels for GPUs: no-such-kernels.fatbin");
	o = options_of(DRIVER, ".");
	refuse(&o, KVARC_OPTIONS, "not a file of kernels");
	o = options_of(DRIVER, KERNELS);
	o.ordinal = 1;
	refuse(&o, KVARC_OPTIONS, "no GPU with the number 1");
	o = options_of(DRIVER, KERNELS);
	o.reserved[3] = 1;
	refuse(&o, KVARC_PROG, "reserved");
	o = options_of(DRIVER, KERNELS);
	o.common.memlimit = 64 << 10; /* the file of the kernels is larger */
	refuse(&o, KVARC_MEMLIMIT, "memory");
	refuse_with("no-pinned", KVARC_MEM, "pinned memory for copies");
	refuse_with("no-gpu", KVARC_OPTIONS, "finds no GPU");
	refuse_with("no-binary", KVARC_OPTIONS,
	            "has no kernels for stand-in of a GPU (compute capability 9.0) that the NVIDIA "
	            "driver, of CUDA 13.0, can load (error 209); this library's are of CUDA ");
	refuse_with("other-image", KVARC_OPTIONS, "(error 200)");
	refuse_with("newer-ptx", KVARC_OPTIONS, "(error 222)");
	assert_int_equal(left(), 0);
}

static void test_info(void **state)
{
	kvarc_device_info info;
	kvarc_device *d = open_device();
	(void)state;
	assert_int_equal(kvarc_device_get_info(d, &info), KVARC_OK);
	assert_string_equal(info.name, "stand-in of a GPU");
	assert_int_equal(info.major, 9);
	assert_int_equal(info.minor, 0);
	assert_int_equal(info.multiprocessors, 132);
	assert_int_equal(info.driver_version, 13000);
	assert_int_equal(info.ordinal, 0);
	kvarc_device_close(&d);
	assert_null(d);
	kvarc_device_options o = options_of(DRIVER, KERNELS);
	o.context = stand_in("stand_in_context");
	assert_int_equal(kvarc_device_open(&d, &o), KVARC_OK);
	assert_true(left() > 0); /* the module, and what copies need */
	kvarc_device_close(&d);
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

static void test_memory(void **state)
{
	kvarc_device *d = open_device();
	unsigned char byte = 0;
	uint64_t at;
	(void)state;
	assert_int_equal(kvarc_device_alloc(d, 1000, &at), KVARC_OK);
	assert_int_equal(at % 256, 0);
	assert_int_equal(kvarc_device_fetch(d, &byte, at + 999, 1, NULL), KVARC_OK);
	assert_int_equal(byte, 0xa5);
	byte = 3;
	assert_int_equal(kvarc_device_send(d, at + 999, &byte, 1, NULL), KVARC_OK);
	byte = 0;
	assert_int_equal(kvarc_device_fetch(d, &byte, at + 999, 1, NULL), KVARC_OK);
	assert_int_equal(byte, 3);
	assert_int_equal(kvarc_device_send(d, 0, &byte, 1, NULL), KVARC_PROG);
	kvarc_device_free(d, at);
	assert_int_equal(kvarc_device_alloc(d, 0, &at), KVARC_PROG);
	setenv("KVARC_STAND_IN", "no-memory", 1);
	assert_int_equal(kvarc_device_alloc(d, 1000, &at), KVARC_MEM);
	assert_int_equal(at, 0);
	unsetenv("KVARC_STAND_IN");
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* ----- reading ------------------------------------------------ */

static bool untouched(const struct device_memory *m, size_t tensor)
{
	for (size_t i = 0; i < m->bytes; i++)
		if (m->elements[tensor][i] != 0xa5)
			return false;
	return true;
}

/* Whether readers get the archive as memory, and not by calls. */
static bool as_memory;

static kvarc_reader *open_reader(struct made_archive *m, kvarc_source *source)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	*source = as_memory ? (kvarc_source){ .size = m->f.n, .memory = m->f.p }
	                    : synth_source(&m->f);
	o.common.error = &error;
	assert_int_equal(kvarc_reader_open(&r, source, &o), KVARC_OK);
	return r;
}

/* Reads a range and compares all of it; what was planned. */
static kvarc_device_plan_info read_range(kvarc_device *d, struct made_archive *m, uint32_t t0,
                                         uint32_t n, bool paged)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .t0 = t0, .n = n };
	kvarc_device_plan_info info;
	kvarc_device_plan *p;
	kvarc_source source;
	struct device_memory mem;
	kvarc_reader *r = open_reader(m, &source);
	if (kvarc_device_plan_read(&p, d, r, &range)) {
		print_error("%s\n", error.text);
		fail();
	}
	assert_int_equal(kvarc_device_plan_get_info(p, &info), KVARC_OK);
	make_memory(&mem, p, &m->c, n, paged);
	assert_int_equal(kvarc_device_stage(p, address(mem.staging), NULL), KVARC_OK);
	assert_int_equal(
		kvarc_device_place(p, mem.views, address(mem.work), address(mem.status), NULL),
		KVARC_OK);
	for (uint32_t l = 0; l < m->c.shape.layers; l++) {
		assert_int_equal(kvarc_device_decode(p, l, 1, NULL), KVARC_OK);
		settle();
		if (kvarc_device_plan_answer(p, l, 1, mem.status)) {
			print_error("%s\n", error.text);
			fail();
		}
		for (size_t i = 2 * l; i < m->c.geometry.n_tensors; i++)
			assert_true(i < 2 * l + 2 ? holds(&mem, &m->c, i, t0, 0, n)
			                          : untouched(&mem, i));
	}
	kvarc_device_plan_close(&p);
	kvarc_reader_close(&r);
	free_memory(&mem);
	return info;
}

static void test_read(void **state)
{
	const uint8_t dtypes[] = { KVARC_F32, KVARC_F16, KVARC_BF16, KVARC_E4M3, KVARC_E5M2 };
	kvarc_device *d = open_device();
	(void)state;
	for (size_t i = 0; i < sizeof dtypes; i++)
		for (int kind = 0; kind < SYNTH_KINDS; kind++)
			for (int level = 0; level < 2; level++) {
				const struct synth_shape shape = {
					dtypes[i], 2, 3, 32, 250, true, (enum synth_kind)kind
				};
				struct made_archive m;
				make_archive(&m, &shape, level);
				const uint32_t by_host =
					read_range(d, &m, 0, 250, false).host_chunks;
				/* of bf16 no plane is worth packing: kernels decode all */
				if (kind == SYNTH_SMOOTH && dtypes[i] == KVARC_BF16)
					assert_int_equal(by_host, 0);
				if (kind == SYNTH_SMOOTH &&
				    (dtypes[i] == KVARC_F32 || dtypes[i] == KVARC_E5M2))
					assert_int_equal(by_host, 2 * 2 * 3);
				as_memory = true;
				(void)read_range(d, &m, 0, 250, true);
				as_memory = false;
				(void)read_range(d, &m, 90, 110, kind % 2);
				(void)read_range(d, &m, 100, 1, kind % 2);
				free_archive(&m);
			}
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* ----- levels that the host decodes ------------------------------------------------ */

static struct synth_shape modelled_shape(uint8_t dtype, enum synth_kind kind)
{
	return (struct synth_shape){ dtype, 3, 2, 8, 250, true, kind };
}

static void make_modelled(struct made_archive *m, const struct synth_shape *shape, int level)
{
	kvarc_profile *profile = train_profile(shape, level);
	make_archive_with(m, shape, level, profile, level == 3);
	kvarc_profile_close(&profile);
}

static void test_models(void **state)
{
	const uint8_t dtypes[] = { KVARC_F32, KVARC_BF16, KVARC_E4M3 };
	kvarc_device *d = open_device();
	(void)state;
	for (size_t i = 0; i < sizeof dtypes; i++)
		for (int kind = SYNTH_SMOOTH; kind <= SYNTH_SPARSE; kind++)
			for (int level = 2; level < 4; level++) {
				const struct synth_shape shape =
					modelled_shape(dtypes[i], (enum synth_kind)kind);
				struct made_archive m;
				make_modelled(&m, &shape, level);
				const kvarc_device_plan_info info = read_range(d, &m, 0, 250,
				                                               false);
				if (kind == SYNTH_SMOOTH)
					assert_int_equal(info.host_chunks, info.chunks);
				(void)read_range(d, &m, 0, 250, true);
				(void)read_range(d, &m, 90, 110, kind % 2);
				(void)read_range(d, &m, 100, 1, kind % 2);
				free_archive(&m);
			}
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* The payload of the chunk of tensor 0 from token 0 on in staging memory. */
static uint8_t *first_chunk(const struct device_memory *mem, const kvarc_device_plan *p,
                            uint8_t codec)
{
	kvarc_device_plan_info info;
	uint8_t *staged = mem->staging;
	assert_int_equal(kvarc_device_plan_get_info(p, &info), KVARC_OK);
	for (size_t i = 0; i + 48 < info.staging_bytes; i += 16)
		if (staged[i + 24] == codec && staged[i + 26] == SEGMENT && staged[i + 27] == 0 &&
		    !memcmp(staged + i, "\0\0\0\0\0\0\2\0", 8))
			return staged + i;
	fail();
	return NULL;
}

/* A raw chunk that the host made is checked like any other. */
static void test_damaged_host(void **state)
{
	const struct synth_shape shape = modelled_shape(KVARC_BF16, SYNTH_SMOOTH);
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_device *d = open_device();
	kvarc_device_plan *p;
	kvarc_source source;
	struct device_memory mem;
	struct made_archive m;
	(void)state;
	make_modelled(&m, &shape, 3);
	kvarc_reader *r = open_reader(&m, &source);
	assert_int_equal(kvarc_device_plan_read(&p, d, r, &range), KVARC_OK);
	make_memory(&mem, p, &m.c, 250, false);
	setenv("KVARC_STAND_IN", "no-memory", 1);
	assert_int_equal(kvarc_device_stage(p, address(mem.staging), NULL), KVARC_MEM);
	unsetenv("KVARC_STAND_IN");
	assert_int_equal(kvarc_device_stage(p, address(mem.staging), NULL), KVARC_OK);
	settle();
	first_chunk(&mem, p, 0)[250] ^= 4;
	assert_int_equal(
		kvarc_device_place(p, mem.views, address(mem.work), address(mem.status), NULL),
		KVARC_OK);
	assert_int_equal(kvarc_device_decode(p, 0, UINT32_MAX, NULL), KVARC_OK);
	settle();
	assert_int_equal(kvarc_device_plan_answer(p, 0, UINT32_MAX, mem.status), KVARC_DATA);
	assert_non_null(strstr(error.text, "the tokens from 0 on of tensor 0 are damaged"));
	assert_int_equal(mem.elements[0][0], 0xa5);
	assert_true(holds(&mem, &m.c, 0, 0, SEGMENT, 250));
	for (size_t i = 1; i < m.c.geometry.n_tensors; i++)
		assert_true(holds(&mem, &m.c, i, 0, 0, 250));
	kvarc_device_plan_close(&p);
	kvarc_reader_close(&r);
	free_memory(&mem);
	free_archive(&m);
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* ----- several plans ------------------------------------------------ */

/* Two requests in one launch, with the same work memory. */
static void test_plans(void **state)
{
	const struct synth_shape shape = { KVARC_BF16, 2, 2, 32, 200, true, SYNTH_SPARSE };
	const uint32_t t0[2] = { 0, 90 }, n[2] = { 60, 110 };
	kvarc_device *d = open_device();
	kvarc_device_plan *p[2];
	kvarc_device_plan_info info[2];
	struct device_memory mem[2];
	kvarc_source source;
	struct made_archive m;
	(void)state;
	make_archive(&m, &shape, 0);
	kvarc_reader *r = open_reader(&m, &source);
	for (int i = 0; i < 2; i++) {
		const kvarc_range range = { .n_layers = UINT32_MAX, .t0 = t0[i], .n = n[i] };
		assert_int_equal(kvarc_device_plan_read(&p[i], d, r, &range), KVARC_OK);
		assert_int_equal(kvarc_device_plan_get_info(p[i], &info[i]), KVARC_OK);
		make_memory(&mem[i], p[i], &m.c, n[i], i);
	}
	void *work = mem[info[1].work_bytes > info[0].work_bytes].work;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kvarc_device_stage(p[i], address(mem[i].staging), NULL), KVARC_OK);
		assert_int_equal(kvarc_device_decode_plans(p, 2, 0, UINT32_MAX, NULL), KVARC_PROG);
		assert_int_equal(kvarc_device_place(p[i], mem[i].views, address(work),
		                                    address(mem[i].status), NULL),
		                 KVARC_OK);
	}
	(void)stand_in("stand_in_launches");
	assert_int_equal(kvarc_device_decode_plans(p, 2, 0, 3, NULL), KVARC_GEOMETRY);
	assert_int_equal(kvarc_device_decode_plans(p, 0, 0, 1, NULL), KVARC_OK);
	assert_int_equal((intptr_t)stand_in("stand_in_launches"), 0);
	assert_int_equal(kvarc_device_decode_plans(p, 2, 0, UINT32_MAX, NULL), KVARC_OK);
	assert_int_equal((intptr_t)stand_in("stand_in_launches"), 1);
	settle();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kvarc_device_plan_answer(p[i], 0, UINT32_MAX, mem[i].status),
		                 KVARC_OK);
		for (size_t k = 0; k < m.c.geometry.n_tensors; k++)
			assert_true(holds(&mem[i], &m.c, k, t0[i], 0, n[i]));
		kvarc_device_plan_close(&p[i]);
		free_memory(&mem[i]);
	}
	kvarc_reader_close(&r);
	free_archive(&m);
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* ----- what goes wrong ------------------------------------------------ */

static const struct synth_shape plain = { KVARC_BF16, 2, 2, 32, 200, true, SYNTH_SMOOTH };

/* A byte of the payload of a chunk: its chunk alone is not there. */
static void test_damaged(void **state)
{
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_device *d = open_device();
	kvarc_device_plan *p;
	kvarc_source source;
	struct device_memory mem;
	struct made_archive m;
	(void)state;
	make_archive(&m, &plain, 0);
	kvarc_reader *r = open_reader(&m, &source);
	assert_int_equal(kvarc_device_plan_read(&p, d, r, &range), KVARC_OK);
	make_memory(&mem, p, &m.c, 200, false);
	assert_int_equal(kvarc_device_stage(p, address(mem.staging), NULL), KVARC_OK);
	settle();
	first_chunk(&mem, p, 4)[1024] ^= 4; /* the middle of its payload */
	(void)stand_in("stand_in_launches");
	assert_int_equal(
		kvarc_device_place(p, mem.views, address(mem.work), address(mem.status), NULL),
		KVARC_OK);
	assert_int_equal(kvarc_device_decode(p, 0, UINT32_MAX, NULL), KVARC_OK);
	settle();
	assert_int_equal((intptr_t)stand_in("stand_in_launches"), 1);
	assert_int_equal(kvarc_device_plan_answer(p, 0, UINT32_MAX, mem.status), KVARC_DATA);
	assert_non_null(strstr(error.text, "the tokens from 0 on of tensor 0 are damaged"));
	assert_int_equal(kvarc_device_plan_answer(p, 1, 1, mem.status), KVARC_OK);
	assert_true(holds(&mem, &m.c, 0, 0, SEGMENT, 200));
	for (size_t i = 1; i < 4; i++)
		assert_true(holds(&mem, &m.c, i, 0, 0, 200));
	kvarc_device_plan_close(&p);
	kvarc_reader_close(&r);
	free_memory(&mem);
	free_archive(&m);
	kvarc_device_close(&d);
}

static void test_misuse(void **state)
{
	kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_device *d = open_device();
	kvarc_device_plan *p;
	kvarc_source source;
	struct device_memory mem;
	struct made_archive m;
	(void)state;
	make_archive(&m, &plain, 0);
	kvarc_reader *r = open_reader(&m, &source);
	range.n = 201;
	assert_int_equal(kvarc_device_plan_read(&p, d, r, &range), KVARC_GEOMETRY);
	assert_null(p);
	range.n = 200;
	assert_int_equal(kvarc_device_plan_read(&p, d, r, &range), KVARC_OK);
	make_memory(&mem, p, &m.c, 200, true);
	const uint64_t staging = address(mem.staging), work = address(mem.work),
		       status = address(mem.status);
	assert_int_equal(kvarc_device_place(p, mem.views, work, status, NULL), KVARC_PROG);
	assert_int_equal(kvarc_device_decode(p, 0, 1, NULL), KVARC_PROG);
	assert_int_equal(kvarc_device_stage(p, staging + 16, NULL), KVARC_PROG);
	setenv("KVARC_STAND_IN", "no-memory", 1);
	assert_int_equal(kvarc_device_stage(p, staging, NULL), KVARC_MEM);
	unsetenv("KVARC_STAND_IN");
	assert_int_equal(kvarc_device_stage(p, staging, NULL), KVARC_OK);
	const kvarc_device_view good = mem.views[3];
	mem.views[3].n_table--;
	assert_int_equal(kvarc_device_place(p, mem.views, work, status, NULL), KVARC_GEOMETRY);
	mem.views[3] = good;
	mem.views[3].bytes--;
	assert_int_equal(kvarc_device_place(p, mem.views, work, status, NULL), KVARC_GEOMETRY);
	assert_non_null(strstr(error.text, "tensor 3 does not hold"));
	mem.views[3] = good;
	mem.views[3].base++;
	assert_int_equal(kvarc_device_place(p, mem.views, work, status, NULL), KVARC_GEOMETRY);
	mem.views[3] = good;
	mem.views[3].page_stride = UINT64_MAX / 2 - 1;
	assert_int_equal(kvarc_device_place(p, mem.views, work, status, NULL), KVARC_GEOMETRY);
	mem.views[3] = good;
	assert_int_equal(kvarc_device_place(p, mem.views, work, status, NULL), KVARC_OK);
	assert_int_equal(kvarc_device_decode(p, 2, 1, NULL), KVARC_GEOMETRY);
	setenv("KVARC_STAND_IN", "no-launch", 1);
	assert_int_equal(kvarc_device_decode(p, 0, 1, NULL), KVARC_IO);
	assert_non_null(strstr(error.text, "nothing works in this context any more"));
	unsetenv("KVARC_STAND_IN");
	mem.pages[1] = 99;
	assert_int_equal(kvarc_device_decode(p, 0, 2, NULL), KVARC_OK);
	settle();
	assert_int_equal(kvarc_device_plan_answer(p, 0, 2, mem.status), KVARC_GEOMETRY);
	assert_non_null(strstr(error.text, "have a page that is not there"));
	mem.pages[1] = -1;
	assert_int_equal(kvarc_device_decode(p, 0, 2, NULL), KVARC_OK);
	settle();
	assert_int_equal(kvarc_device_plan_answer(p, 0, 2, mem.status), KVARC_OK);
	kvarc_device_plan_close(&p);
	kvarc_reader_close(&r);
	free_memory(&mem);
	free_archive(&m);
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* ----- a model in the device ------------------------------------------------ */

/* A vector of level 7, of two layers, and its model. */
struct model_vector {
	kvarc_source source;
	kvarc_predictor *predictor;
	kvarc_reader *r;
};

static void vector_path(char *path, size_t bytes, const char *name)
{
	const char *srcdir = getenv("srcdir"); /* set by `make check' */
	snprintf(path, bytes, "%s/spec/vectors/%s", srcdir ? srcdir : ".", name);
}

static void open_vector(struct model_vector *v, const char *name, bool with_model)
{
	const kvarc_common common = { .error = &error };
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	char path[512];
	*v = (struct model_vector){ .r = NULL };
	vector_path(path, sizeof path, "transformer.gguf");
	if (with_model)
		assert_int_equal(kvarc_predictor_open_model(&v->predictor, path, &common),
		                 KVARC_OK);
	vector_path(path, sizeof path, name);
	o.common = common;
	o.predictor = v->predictor;
	assert_int_equal(kvarc_source_open_path(&v->source, path, &common), KVARC_OK);
	assert_int_equal(kvarc_reader_open(&v->r, &v->source, &o), KVARC_OK);
}

static void close_vector(struct model_vector *v)
{
	kvarc_reader_close(&v->r);
	kvarc_predictor_close(&v->predictor);
	kvarc_source_close(&v->source);
}

/* Opens the model that a vector needs; what comes of it. */
static kvarc_ret open_model_of(kvarc_device *d, const char *name, bool with_model)
{
	kvarc_device_model *m = (kvarc_device_model *)(uintptr_t)1;
	struct model_vector v;
	uint64_t bytes;
	open_vector(&v, name, with_model);
	const kvarc_ret ret = kvarc_device_model_open(&m, d, v.r, &bytes);
	assert_true(ret ? !m : bytes > 0);
	kvarc_device_model_close(&m);
	close_vector(&v);
	return ret;
}

static void test_model_open(void **state)
{
	kvarc_device_options o = options_of(DRIVER, KERNELS);
	kvarc_device *d;
	(void)state;
	o.exact = "no-such-kernels.fatbin";
	assert_int_equal(kvarc_device_open(&d, &o), KVARC_OK);
	assert_int_equal(open_model_of(d, "good-transformer-7.kva", true), KVARC_OPTIONS);
	assert_non_null(strstr(error.text, "no kernels for GPUs: no-such-kernels.fatbin"));
	kvarc_device_close(&d);
	d = open_device();
	assert_int_equal(open_model_of(d, "good-transformer-7.kva", true), KVARC_OK);
	assert_int_equal(open_model_of(d, "good-transformer-7.kva", false), KVARC_PREDICTOR);
	assert_int_equal(open_model_of(d, "good-linear-level2.kva", true), KVARC_OPTIONS);
	assert_non_null(strstr(error.text, "not made with a model"));
	assert_int_equal(kvarc_device_model_open(NULL, d, NULL, NULL), KVARC_PROG);
	kvarc_device_model_close(NULL);
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

static void test_model_load(void **state)
{
	kvarc_device *d = open_device();
	kvarc_device_model *m, *other;
	struct model_vector v;
	uint64_t bytes;
	(void)state;
	open_vector(&v, "good-transformer-7.kva", true);
	assert_int_equal(kvarc_device_model_open(&m, d, v.r, &bytes), KVARC_OK);
	assert_int_equal(kvarc_device_model_open(&other, d, v.r, &bytes), KVARC_OK);
	uint8_t *memory = allocate(bytes);
	assert_int_equal(kvarc_device_model_load(m, 0, NULL), KVARC_PROG);
	assert_int_equal(kvarc_device_model_load(m, address(memory) + 16, NULL), KVARC_PROG);
	setenv("KVARC_STAND_IN", "no-memory", 1);
	assert_int_equal(kvarc_device_model_load(m, address(memory), NULL), KVARC_MEM);
	setenv("KVARC_STAND_IN", "other-products", 1);
	assert_int_equal(kvarc_device_model_load(m, address(memory), NULL), KVARC_IO);
	assert_non_null(strstr(error.text, "do not predict what the host predicts (layer 0)"));
	unsetenv("KVARC_STAND_IN");
	assert_int_equal(kvarc_device_model_load(m, address(memory), NULL), KVARC_OK);
	assert_int_equal(kvarc_device_model_load(m, address(memory), NULL), KVARC_PROG);
	kvarc_device_model_close(&m); /* the first one of two */
	assert_null(m);
	kvarc_device_model_close(&other);
	free(memory);
	close_vector(&v);
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),       cmocka_unit_test(test_info),
		cmocka_unit_test(test_memory),     cmocka_unit_test(test_read),
		cmocka_unit_test(test_models),     cmocka_unit_test(test_damaged_host),
		cmocka_unit_test(test_plans),      cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_misuse),     cmocka_unit_test(test_model_open),
		cmocka_unit_test(test_model_load),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
