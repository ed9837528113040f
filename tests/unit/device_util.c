/* SPDX-License-Identifier: BSD-3-Clause */
/* device_util.c - a device behind the stand-in of the driver, and memory for its plans */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <kvarc/tools.h>

#include "device_util.h"

void make_alike(struct synth_cache *c)
{
	const size_t size = kvarc_dtype_bytes(c->shape.dtype), n = c->shape.tokens * c->row;
	for (size_t i = 2; i < c->geometry.n_tensors; i++)
		for (size_t k = 0; k < n; k++)
			c->raw[i][k] = c->raw[i - 2][k] ^
			               (k % size == 0 ? (uint8_t)(k * (37 + i) >> 6 & 1) : 0);
}

void make_archive_with(struct made_archive *m, const struct synth_shape *shape, int level,
                       const kvarc_profile *profile, bool alike)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_view views[16];
	kvarc_writer *w;
	memset(m, 0, sizeof *m);
	synth_make(&m->c, shape, 11);
	if (alike)
		make_alike(&m->c);
	o.level = KVARC_LEVEL(level);
	o.segment_tokens = SEGMENT;
	o.profile = profile;
	o.flags = profile ? KVARC_WRITE_EMBED_PROFILE : 0;
	kvarc_sink sink = synth_sink(&m->f);
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &m->c.geometry), KVARC_OK);
	synth_views(&m->c, m->c.raw, 0, views);
	assert_int_equal(kvarc_writer_append(w, 0, shape->tokens, m->c.ids, NULL, views), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
}

void make_archive(struct made_archive *m, const struct synth_shape *shape, int level)
{
	make_archive_with(m, shape, level, NULL, false);
}

void free_archive(struct made_archive *m)
{
	synth_free(&m->c);
	free(m->f.p);
}

kvarc_profile *train_profile(const struct synth_shape *shape, int level)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	struct made_archive m;
	kvarc_profile *profile;
	kvarc_trainer *t;
	kvarc_reader *r;
	make_archive_with(&m, shape, 0, NULL, level == 3);
	kvarc_source source = synth_source(&m.f);
	assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
	o.levels = 1u << level;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_OK);
	assert_int_equal(kvarc_trainer_add_reader(t, r), KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	assert_int_equal(kvarc_trainer_profile(t, &profile), KVARC_OK);
	kvarc_trainer_close(&t);
	kvarc_reader_close(&r);
	free_archive(&m);
	return profile;
}

kvarc_error error;

kvarc_device_options options_of(const char *driver, const char *kernels)
{
	kvarc_device_options o = KVARC_DEVICE_OPTIONS_INIT;
	o.common.error = &error;
	o.driver = driver;
	o.kernels = kernels;
	o.encoders = kernels;
	o.exact = kernels;
	return o;
}

kvarc_device *open_device(void)
{
	const kvarc_device_options o = options_of(DRIVER, KERNELS);
	kvarc_device *d;
	if (kvarc_device_open(&d, &o)) {
		print_error("%s\n", error.text);
		fail();
	}
	return d;
}

void *stand_in(const char *name)
{
	void *library = dlopen(DRIVER, RTLD_NOW);
	void *p = library ? dlsym(library, name) : NULL;
	void *(*f)(void);
	assert_non_null(p);
	memcpy(&f, &p, sizeof p);
	return f();
}

/* What the driver has not got back. */
int left(void)
{
	return (int)(intptr_t)stand_in("stand_in_left");
}

void settle(void)
{
	stand_in("stand_in_settle");
}

void *allocate(uint64_t bytes)
{
	void *p = aligned_alloc(256, (size_t)(bytes / 256 + 1) * 256);
	assert_non_null(p);
	memset(p, 0xa5, (size_t)(bytes / 256 + 1) * 256);
	return p;
}

uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* Memory for `tokens` tokens: in pages, heads outside of tokens, or packed. */
void make_memory(struct device_memory *m, const kvarc_device_plan *p, const struct synth_cache *c,
                 uint32_t tokens, bool paged)
{
	const kvarc_tensor *t = c->geometry.tensors;
	const uint32_t size = (uint32_t)kvarc_dtype_bytes(t->dtype), n = (tokens + PAGE - 1) / PAGE;
	kvarc_device_plan_info info;
	assert_int_equal(kvarc_device_plan_get_info(p, &info), KVARC_OK);
	memset(m, 0, sizeof *m);
	m->staging = allocate(info.staging_bytes);
	m->work = allocate(info.work_bytes);
	m->status = allocate(info.status_bytes);
	m->pages = allocate(n * sizeof *m->pages);
	for (uint32_t i = 0; i < n; i++)
		m->pages[i] = (int32_t)(n - 1 - i);
	m->bytes = (size_t)n * PAGE * c->row;
	for (size_t i = 0; i < c->geometry.n_tensors; i++) {
		const uint32_t row = t->channels * size;
		m->elements[i] = allocate(m->bytes);
		m->views[i] = (kvarc_device_view){ .base = address(m->elements[i]),
			                           .bytes = m->bytes,
			                           .token_stride = row,
			                           .head_stride = (uint64_t)n * PAGE * row,
			                           .elem_stride = size };
		if (!paged)
			continue;
		m->views[i].page_table = address(m->pages);
		m->views[i].page_stride = PAGE * c->row;
		m->views[i].head_stride = (uint64_t)PAGE * row;
		m->views[i].page_tokens = PAGE;
		m->views[i].n_pages = m->views[i].n_table = n;
	}
}

void free_memory(struct device_memory *m)
{
	settle();
	free(m->staging);
	free(m->work);
	free(m->status);
	free(m->pages);
	for (size_t i = 0; i < 16; i++)
		free(m->elements[i]);
}

/* The row of a head in the memory of a tensor. */
uint8_t *place(const struct device_memory *m, size_t tensor, uint32_t token, uint32_t head)
{
	const kvarc_device_view *v = &m->views[tensor];
	uint64_t at = head * v->head_stride;
	if (v->page_table)
		at += (uint64_t)m->pages[token / PAGE] * v->page_stride +
		      token % PAGE * v->token_stride;
	else
		at += token * v->token_stride;
	return m->elements[tensor] + at;
}

/* Whether the tokens first .. end - 1 of a tensor are those of the cache; t0: token of row 0. */
bool holds(const struct device_memory *m, const struct synth_cache *c, size_t tensor, uint64_t t0,
           uint32_t first, uint32_t end)
{
	const kvarc_tensor *t = &c->geometry.tensors[tensor];
	const size_t row = t->channels * kvarc_dtype_bytes(t->dtype);
	for (uint32_t i = first; i < end; i++)
		for (uint32_t h = 0; h < t->heads; h++)
			if (memcmp(place(m, tensor, i, h),
			           c->raw[tensor] + (t0 + i) * c->row + h * row, row))
				return false;
	return true;
}
