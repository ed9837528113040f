/* SPDX-License-Identifier: BSD-3-Clause */
/* test_device_encode.c - writing from a GPU: library and kernels behind a stand-in of the driver */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_util.h"

/* A writer of a cache. */
struct made_writer {
	kvarc_writer *w;
	struct synth_file f;
	kvarc_sink sink;
};

static void open_writer(struct made_writer *m, const struct synth_cache *c, int level,
                        unsigned flags, const kvarc_profile *profile)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.common.error = &error;
	o.level = KVARC_LEVEL(level);
	o.profile = profile;
	o.segment_tokens = SEGMENT;
	o.flags = KVARC_WRITE_FILE_ID | flags;
	memset(&m->f, 0, sizeof m->f);
	m->sink = synth_sink(&m->f);
	assert_int_equal(kvarc_writer_open(&m->w, &m->sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(m->w, &c->geometry), KVARC_OK);
}

/* The archive that the library makes of the tokens: a segment, the next ones, as device_append. */
static void write_on_host(struct made_writer *m, const struct synth_cache *c)
{
	kvarc_view views[16];
	synth_views(c, c->raw, 0, views);
	assert_int_equal(kvarc_writer_append(m->w, 0, c->shape.tokens, c->ids, NULL, views),
	                 KVARC_OK);
	assert_int_equal(kvarc_writer_close(&m->w), KVARC_OK);
}

/* A plan for n tokens, and memory that has them, t0 the first. */
struct planned_append {
	kvarc_device_plan *p;
	struct device_memory mem;
};

static void plan(struct planned_append *x, kvarc_device *d, kvarc_writer *w,
                 const struct synth_cache *c, uint32_t t0, uint32_t n, bool paged)
{
	const kvarc_tensor *t = c->geometry.tensors;
	const size_t row = t->channels * kvarc_dtype_bytes(t->dtype);
	if (kvarc_device_plan_write(&x->p, d, w, 0, n, c->ids + t0, NULL)) {
		print_error("%s\n", error.text);
		fail();
	}
	make_memory(&x->mem, x->p, c, n, paged);
	for (size_t i = 0; i < c->geometry.n_tensors; i++)
		for (uint32_t k = 0; k < n; k++)
			for (uint32_t h = 0; h < t->heads; h++)
				memcpy(place(&x->mem, i, k, h),
				       c->raw[i] + (t0 + k) * c->row + h * row, row);
}

static kvarc_ret stage_and_place(struct planned_append *x)
{
	struct device_memory *m = &x->mem;
	kvarc_ret ret = kvarc_device_stage(x->p, address(m->staging), NULL);
	return ret ? ret
	           : kvarc_device_place(x->p, m->views, address(m->work), address(m->status), NULL);
}

static void drop(struct planned_append *x)
{
	kvarc_device_plan_close(&x->p);
	free_memory(&x->mem);
}

/* Appends n tokens from t0 on; returns how many chunks kernels encoded. */
static uint32_t append_range(kvarc_device *d, kvarc_writer *w, const struct synth_cache *c,
                             uint32_t t0, uint32_t n, bool paged)
{
	struct planned_append x;
	kvarc_device_plan_info info;
	plan(&x, d, w, c, t0, n, paged);
	assert_int_equal(stage_and_place(&x), KVARC_OK);
	for (uint32_t l = 0; l < c->shape.layers; l++)
		assert_int_equal(kvarc_device_encode(x.p, l, 1, NULL), KVARC_OK);
	if (kvarc_device_append(x.p, NULL)) {
		print_error("%s\n", error.text);
		fail();
	}
	assert_int_equal(kvarc_device_append(x.p, NULL), KVARC_PROG);
	assert_int_equal(kvarc_device_plan_get_info(x.p, &info), KVARC_OK);
	assert_int_equal(info.chunks, c->geometry.n_tensors * ((n + SEGMENT - 1) / SEGMENT));
	assert_true((info.file_bytes > 0) == (info.chunks > info.host_chunks));
	drop(&x);
	return info.chunks - info.host_chunks;
}

/* Whether an archive holds the cache. */
static bool reads_as(struct synth_file *f, const struct synth_cache *c,
                     const kvarc_profile *profile)
{
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = synth_source(f);
	uint8_t *got[16] = { 0 };
	kvarc_view views[16];
	kvarc_reader *r;
	bool same = true;
	o.common.error = &error;
	o.profiles = &profile;
	o.n_profiles = profile != NULL;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	for (size_t i = 0; i < c->geometry.n_tensors; i++)
		got[i] = allocate(c->shape.tokens * c->row);
	synth_views(c, got, 0, views);
	assert_int_equal(kvarc_reader_read(r, &range, views), KVARC_OK);
	for (size_t i = 0; i < c->geometry.n_tensors; i++) {
		same = same && !memcmp(got[i], c->raw[i], c->shape.tokens * c->row);
		free(got[i]);
	}
	kvarc_reader_close(&r);
	return same;
}

/* How both archives of a cache are made. */
struct both_archives {
	int level;
	unsigned flags;
	const kvarc_profile *profile; /* of levels 2 and 3 */
	bool paged;
};

/* Makes them; returns how many chunks kernels encoded of the first segment, *n: of the others,
 * *same: whether the files are equal. */
static uint32_t compare(kvarc_device *d, const struct synth_cache *c, const struct both_archives *b,
                        uint32_t *n, bool *same)
{
	struct made_writer host, device;
	open_writer(&host, c, b->level, b->flags, b->profile);
	write_on_host(&host, c);
	open_writer(&device, c, b->level, b->flags, b->profile);
	const uint32_t first = append_range(d, device.w, c, 0, SEGMENT, b->paged);
	*n = append_range(d, device.w, c, SEGMENT, c->shape.tokens - SEGMENT, b->paged);
	assert_int_equal(kvarc_writer_close(&device.w), KVARC_OK);
	assert_true(reads_as(&device.f, c, b->profile));
	*same = host.f.n == device.f.n && !memcmp(host.f.p, device.f.p, host.f.n);
	free(host.f.p);
	free(device.f.p);
	return first;
}

static void test_equal(void **state)
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
				struct synth_cache c;
				const struct both_archives how = { .level = level,
					                           .paged = (kind + level) % 2 };
				uint32_t n;
				bool same;
				synth_make(&c, &shape, 11);
				const uint32_t first = compare(d, &c, &how, &n, &same);
				/* what has kernels of the codec that the host takes */
				const bool taken = dtypes[i] == KVARC_E4M3 ||
				                   dtypes[i] == KVARC_F16 ||
				                   dtypes[i] == KVARC_BF16;
				/* the parameters of level 1 are those of the first segment; of some
				 * the host finds that others pay, and bf16 of this kind is compared
				 * with codec 5 */
				if (kind == SYNTH_SMOOTH && taken) {
					assert_int_equal(first, level ? 0 : 4);
					assert_true(n >= (!level                    ? 8
					                  : dtypes[i] == KVARC_BF16 ? 0
					                                            : 4));
				}
				if (kind == SYNTH_CONSTANT || !taken)
					assert_int_equal(first + n, 0);
				if (!same) {
					print_error("dtype %u, kind %d, level %d: other bytes\n",
					            dtypes[i], kind, level);
					fail();
				}
				synth_free(&c);
			}
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* A segment that repeats the one before, and verification of what kernels made. */
static void check_repeats(uint8_t dtype, int level, uint32_t first)
{
	const struct synth_shape shape = { dtype, 2, 3, 32, 250, false, SYNTH_SMOOTH };
	kvarc_device *d = open_device();
	struct made_writer streamable;
	const struct both_archives how = { .level = level,
		                           .flags = KVARC_WRITE_VERIFY,
		                           .paged = true };
	struct synth_cache c;
	uint32_t n;
	bool same;
	synth_make(&c, &shape, 11);
	for (size_t i = 0; i < c.geometry.n_tensors; i++)
		memcpy(c.raw[i] + SEGMENT * c.row, c.raw[i], SEGMENT * c.row);
	assert_int_equal(compare(d, &c, &how, &n, &same), first);
	assert_int_equal(n, 8);
	assert_true(same);
	open_writer(&streamable, &c, level, KVARC_WRITE_STREAMABLE, NULL);
	write_on_host(&streamable, &c);
	struct made_writer host;
	open_writer(&host, &c, level, 0, NULL);
	write_on_host(&host, &c);
	assert_true(host.f.n < streamable.f.n);
	free(host.f.p);
	free(streamable.f.p);
	synth_free(&c);
	kvarc_device_close(&d);
}

static void test_repeats(void **state)
{
	(void)state;
	check_repeats(KVARC_E4M3, 1, 0);
	check_repeats(KVARC_BF16, 0, 4);
	check_repeats(KVARC_E4M3, 0, 4);
}

/* Tokens of a segment that repeat others of it: the library tries Zstandard. */
static void test_rows(void **state)
{
	const struct synth_shape shape = { KVARC_E4M3, 2, 4, 32, 192, true, SYNTH_SMOOTH };
	kvarc_device *d = open_device();
	(void)state;
	for (unsigned repeats = 11; repeats < 13; repeats++) { /* an eighth is 12 */
		const struct both_archives how = { .level = 1 };
		struct synth_cache c;
		uint32_t n;
		bool same;
		synth_make(&c, &shape, 11);
		for (size_t i = 0; i < c.geometry.n_tensors; i++)
			for (unsigned k = 1; k <= repeats; k++)
				memcpy(c.raw[i] + (SEGMENT + 7 * k) * c.row,
				       c.raw[i] + SEGMENT * c.row, c.row);
		assert_int_equal(compare(d, &c, &how, &n, &same), 0);
		assert_true(same);
		/* of some the host finds that other parameters pay */
		assert_true(repeats < 12 ? n > 0 : !n);
		synth_free(&c);
	}
	kvarc_device_close(&d);
}

/* Elements of bf16 that are far from zero, of which codec 5 makes less than codec 16. */
static void test_far(void **state)
{
	const struct synth_shape shape = { KVARC_BF16, 2, 4, 32, 192, false, SYNTH_SMOOTH };
	const struct both_archives how = { .level = 1 };
	kvarc_device *d = open_device();
	struct synth_cache c;
	uint32_t n, random = 1;
	bool same;
	(void)state;
	synth_make(&c, &shape, 11);
	for (size_t i = 0; i < c.geometry.n_tensors; i++)
		for (size_t k = 0; k < shape.tokens * c.row; k += 2) {
			random = random * 1664525 + 1013904223;
			c.raw[i][k] = (uint8_t)(0x80 | (random >> 29));
			c.raw[i][k + 1] = 0x3f;
		}
	assert_int_equal(compare(d, &c, &how, &n, &same), 0);
	assert_true(same);
	assert_int_equal(n, 0);
	synth_free(&c);
	kvarc_device_close(&d);
}

/* The plans of two writers in one launch. */
static void test_plans(void **state)
{
	const struct synth_shape shape = { KVARC_BF16, 2, 3, 32, 250, true, SYNTH_SMOOTH };
	kvarc_device *d = open_device();
	struct synth_cache c[2];
	struct made_writer m[2], host;
	struct planned_append x[2];
	kvarc_device_plan *plans[2];
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		synth_make(&c[i], &shape, 11 + i);
		open_writer(&m[i], &c[i], 0, 0, NULL);
		plan(&x[i], d, m[i].w, &c[i], 0, 250, i);
		assert_int_equal(stage_and_place(&x[i]), KVARC_OK);
		plans[i] = x[i].p;
	}
	stand_in("stand_in_launches");
	assert_int_equal(kvarc_device_encode_plans(NULL, 2, 0, 1, NULL), KVARC_PROG);
	assert_int_equal(kvarc_device_encode_plans(plans, 2, 1, 2, NULL), KVARC_GEOMETRY);
	assert_int_equal(kvarc_device_encode_plans(plans, 0, 0, 1, NULL), KVARC_OK);
	assert_null(stand_in("stand_in_launches"));
	assert_int_equal(kvarc_device_encode_plans(plans, 2, 0, UINT32_MAX, NULL), KVARC_OK);
	assert_int_equal((uintptr_t)stand_in("stand_in_launches"), 1);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(kvarc_device_append(x[i].p, NULL), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&m[i].w), KVARC_OK);
		open_writer(&host, &c[i], 0, 0, NULL);
		write_on_host(&host, &c[i]);
		assert_int_equal(host.f.n, m[i].f.n);
		assert_memory_equal(host.f.p, m[i].f.p, host.f.n);
		free(host.f.p);
		free(m[i].f.p);
		drop(&x[i]);
		synth_free(&c[i]);
	}
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* ----- levels that the host encodes ------------------------------------------------ */

static void test_models(void **state)
{
	const struct synth_shape shape = { KVARC_BF16, 3, 2, 8, 250, true, SYNTH_SMOOTH };
	kvarc_device *d = open_device();
	(void)state;
	for (int level = 2; level < 4; level++) {
		kvarc_profile *profile = train_profile(&shape, level);
		const struct both_archives how = { .level = level,
			                           .profile = profile,
			                           .paged = level == 3 };
		struct synth_cache c;
		uint32_t n;
		bool same;
		synth_make(&c, &shape, 11);
		if (level == 3)
			make_alike(&c);
		assert_int_equal(compare(d, &c, &how, &n, &same), 0);
		assert_int_equal(n, 0);
		assert_true(same);
		synth_free(&c);
		kvarc_profile_close(&profile);
	}
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

/* ----- what goes wrong ------------------------------------------------ */

static const struct synth_shape plain = { KVARC_E4M3, 2, 4, 32, 200, true, SYNTH_SMOOTH };

/* A writer with a first segment, and a plan for the other tokens of the cache. */
struct second_plan {
	kvarc_device *d;
	struct synth_cache c;
	struct made_writer m;
	struct planned_append x;
	size_t written; /* bytes of the file */
};

static void begin(struct second_plan *s, bool paged)
{
	s->d = open_device();
	synth_make(&s->c, &plain, 11);
	open_writer(&s->m, &s->c, 1, 0, NULL);
	append_range(s->d, s->m.w, &s->c, 0, SEGMENT, paged);
	plan(&s->x, s->d, s->m.w, &s->c, SEGMENT, 200 - SEGMENT, paged);
	s->written = s->m.f.n;
}

static void end(struct second_plan *s)
{
	drop(&s->x);
	kvarc_writer_abort(&s->m.w);
	free(s->m.f.p);
	synth_free(&s->c);
	kvarc_device_close(&s->d);
	assert_int_equal(left(), 0);
}

static void says(const char *text)
{
	if (!strstr(error.text, text)) {
		print_error("\"%s\" is not in \"%s\"\n", text, error.text);
		fail();
	}
}

/* Appends with a fault of the stand-in. */
static kvarc_ret append_with(struct second_plan *s, const char *fault)
{
	setenv("KVARC_STAND_IN", fault, 1);
	const kvarc_ret ret = kvarc_device_append(s->x.p, NULL);
	unsetenv("KVARC_STAND_IN");
	return ret;
}

/* The order of calls, and what they are given. */
static void test_misuse(void **state)
{
	kvarc_device_view views[16] = { KVARC_DEVICE_VIEW_INIT };
	struct second_plan s;
	kvarc_device_plan *p;
	kvarc_view host[16];
	(void)state;
	begin(&s, false);
	struct device_memory *m = &s.x.mem;
	assert_int_equal(kvarc_device_plan_write(&p, s.d, s.m.w, 0, 0, NULL, NULL), KVARC_PROG);
	assert_int_equal(kvarc_device_plan_write(&p, s.d, s.m.w, 1, 5, NULL, NULL), KVARC_GEOMETRY);
	assert_null(p);
	assert_int_equal(kvarc_device_plan_write(&p, s.d, s.m.w, 0, UINT32_MAX, NULL, NULL),
	                 KVARC_GEOMETRY);
	assert_int_equal(kvarc_device_encode(s.x.p, 0, 1, NULL), KVARC_PROG);
	assert_int_equal(kvarc_device_append(s.x.p, NULL), KVARC_PROG);
	says("kvarc_device_stage");
	assert_int_equal(kvarc_device_stage(s.x.p, address(m->staging), NULL), KVARC_OK);
	assert_int_equal(
		kvarc_device_place(s.x.p, views, address(m->work), address(m->status), NULL),
		KVARC_GEOMETRY);
	says("there is no view of tensor 0");
	assert_int_equal(stage_and_place(&s.x), KVARC_OK);
	assert_int_equal(kvarc_device_decode(s.x.p, 0, 1, NULL), KVARC_PROG);
	says("the plan writes");
	assert_int_equal(kvarc_device_plan_answer(s.x.p, 0, 1, m->status), KVARC_PROG);
	assert_int_equal(kvarc_device_encode(s.x.p, 2, 1, NULL), KVARC_GEOMETRY);
	assert_int_equal(kvarc_device_encode(s.x.p, 0, 1, NULL), KVARC_OK);
	assert_int_equal(kvarc_device_append(s.x.p, NULL), KVARC_PROG);
	says("kvarc_device_encode for all layers");
	assert_int_equal(kvarc_device_encode(s.x.p, 1, UINT32_MAX, NULL), KVARC_OK);
	/* other tokens in between, which wait */
	synth_views(&s.c, s.c.raw, 0, host);
	assert_int_equal(kvarc_writer_append(s.m.w, 0, 5, s.c.ids, NULL, host), KVARC_OK);
	assert_int_equal(kvarc_device_append(s.x.p, NULL), KVARC_PROG);
	says("other tokens");
	assert_int_equal(kvarc_device_plan_write(&p, s.d, s.m.w, 0, 5, NULL, NULL), KVARC_PROG);
	says("commit first");
	end(&s);
}

/* Pages that are not there: nothing was written, and the plan serves once they are. */
static void test_pages(void **state)
{
	struct second_plan s;
	(void)state;
	begin(&s, true);
	assert_int_equal(stage_and_place(&s.x), KVARC_OK);
	for (int32_t bad = -1; bad < 100; bad += 100) {
		const int32_t good = s.x.mem.pages[2];
		s.x.mem.pages[2] = bad;
		assert_int_equal(kvarc_device_encode(s.x.p, 0, UINT32_MAX, NULL), KVARC_OK);
		assert_int_equal(kvarc_device_append(s.x.p, NULL), KVARC_GEOMETRY);
		says("the tokens from 128 on of tensor 0 have a page that is not there");
		assert_int_equal(s.m.f.n, s.written);
		s.x.mem.pages[2] = good;
	}
	/* what kernels did not see is encoded by the host */
	assert_int_equal(kvarc_device_append(s.x.p, NULL), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&s.m.w), KVARC_OK);
	assert_true(reads_as(&s.m.f, &s.c, NULL));
	end(&s);
}

/* Faults of the driver at each step; what was written before them stays. */
static void test_faults(void **state)
{
	struct second_plan s;
	(void)state;
	begin(&s, false);
	setenv("KVARC_STAND_IN", "no-memory", 1);
	assert_int_equal(stage_and_place(&s.x), KVARC_MEM);
	unsetenv("KVARC_STAND_IN");
	assert_int_equal(stage_and_place(&s.x), KVARC_OK);
	setenv("KVARC_STAND_IN", "no-launch", 1);
	assert_int_equal(kvarc_device_encode(s.x.p, 0, UINT32_MAX, NULL), KVARC_IO);
	unsetenv("KVARC_STAND_IN");
	says("kvi_gpu_encode_chunks: the NVIDIA driver says CUDA_ERROR_OF_STAND_IN");
	assert_int_equal(kvarc_device_encode(s.x.p, 0, UINT32_MAX, NULL), KVARC_OK);
	assert_int_equal(append_with(&s, "no-fetch"), KVARC_IO);
	says("copying from the device: the NVIDIA driver says");
	/* kernels that did not run */
	assert_int_equal(stage_and_place(&s.x), KVARC_OK);
	assert_int_equal(kvarc_device_encode(s.x.p, 0, UINT32_MAX, NULL), KVARC_OK);
	kvarc_device_plan_info info;
	assert_int_equal(kvarc_device_plan_get_info(s.x.p, &info), KVARC_OK);
	settle();
	s.x.mem.status[info.status_bytes / info.chunks / 4] = 0xa5a5a5a5; /* of the second */
	assert_int_equal(append_with(&s, ""), KVARC_IO);
	says("have not run");
	assert_int_equal(s.m.f.n, s.written);
	/* payloads of chunks that are encoded again have no place: their elements, which cannot be
	 * copied, are wanted behind the payloads, which can */
	assert_int_equal(kvarc_device_encode(s.x.p, 0, UINT32_MAX, NULL), KVARC_OK);
	assert_int_equal(append_with(&s, "one-payload"), KVARC_IO);
	says("fetching 96 tokens");
	assert_int_equal(kvarc_writer_commit(s.m.w), KVARC_IO);
	end(&s);
}

/* Damages the payload of tensor 0 in segment `number` of a plan that was encoded. */
static void damage(struct planned_append *x, unsigned number)
{
	uint8_t *staged = x->mem.staging;
	kvarc_device_plan_info info;
	assert_int_equal(kvarc_device_plan_get_info(x->p, &info), KVARC_OK);
	for (size_t i = 0; i + 1024 < info.staging_bytes; i += 16)
		if (staged[i + 24] == 5 && staged[i + 26] == SEGMENT && staged[i + 27] == 0 &&
		    !memcmp(staged + i, "\0\0\0\0\0\0\2\0", 8) &&
		    !memcmp(staged + i + 40, "\1\0\0\0\0\0\0\0", 8) && number-- == 0) {
			staged[i + 1000] ^= 4;
			return;
		}
	fail_msg("there is no such payload");
}

/* A payload that was damaged on its way, or by kernels, is noticed in the first segment that
 * kernels encoded, and with KVARC_WRITE_VERIFY in all. */
static void test_damaged(void **state)
{
	enum { TOKENS = 3 * SEGMENT };
	static const struct synth_shape longer = {
		KVARC_E4M3, 2, 2, 32, TOKENS, true, SYNTH_SMOOTH
	};
	struct synth_cache c;
	(void)state;
	synth_make(&c, &longer, 11);
	for (unsigned k = 0; k < 4; k++) {
		const unsigned flags = k / 2 ? KVARC_WRITE_VERIFY : 0, segment = k % 2;
		kvarc_device *d = open_device();
		struct planned_append x;
		struct made_writer m;
		open_writer(&m, &c, 1, flags, NULL);
		append_range(d, m.w, &c, 0, SEGMENT, false);
		plan(&x, d, m.w, &c, SEGMENT, TOKENS - SEGMENT, false);
		assert_int_equal(stage_and_place(&x), KVARC_OK);
		assert_int_equal(kvarc_device_encode(x.p, 0, UINT32_MAX, NULL), KVARC_OK);
		settle();
		damage(&x, segment);
		const kvarc_ret ret = kvarc_device_append(x.p, NULL);
		assert_int_equal(ret, flags || !segment ? KVARC_DATA : KVARC_OK);
		if (ret) {
			says("verification failed");
			says("the device that encoded it");
		}
		drop(&x);
		kvarc_writer_abort(&m.w);
		free(m.f.p);
		kvarc_device_close(&d);
	}
	synth_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal),  cmocka_unit_test(test_repeats),
		cmocka_unit_test(test_rows),   cmocka_unit_test(test_far),
		cmocka_unit_test(test_plans),  cmocka_unit_test(test_models),
		cmocka_unit_test(test_misuse), cmocka_unit_test(test_pages),
		cmocka_unit_test(test_faults), cmocka_unit_test(test_damaged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
