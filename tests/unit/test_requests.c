/* SPDX-License-Identifier: BSD-3-Clause */
/* test_requests.c - what a reader asks of its source: plans, joined ranges, nothing twice */
#include <errno.h>
#include <stdio.h>

#include "stream_util.h"

#include "format/read_ahead.h"

/* A source that keeps account of what it was asked for. */
struct account {
	const uint8_t *p;
	size_t n;
	uint8_t *seen; /* each byte: how often it was read */
	size_t short_by;
	_Atomic long requests, calls, fail_at;
	_Atomic uint64_t bytes;
};

static int64_t account_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct account *a = opaque;
	if (a->fail_at && ++a->calls >= a->fail_at) {
		errno = ETIMEDOUT;
		return -1;
	}
	if (offset >= a->n - a->short_by)
		return 0;
	if (bytes > a->n - a->short_by - offset)
		bytes = (size_t)(a->n - a->short_by - offset);
	a->requests++;
	a->bytes += bytes;
	memcpy(buf, a->p + offset, bytes);
	for (size_t i = 0; i < bytes; i++)
		__atomic_add_fetch(&a->seen[offset + i], 1, __ATOMIC_RELAXED);
	return (int64_t)bytes;
}

static int account_ranges(void *opaque, const kvarc_byte_range *ranges, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (account_read(opaque, ranges[i].buf, (size_t)ranges[i].bytes,
		                 ranges[i].offset) != (int64_t)ranges[i].bytes)
			return -1;
	return 0;
}

static void account_begin(struct account *a, kvarc_memory *archive)
{
	*a = (struct account){ .p = kvarc_memory_data(archive),
		               .n = (size_t)kvarc_memory_bytes(archive) };
	a->seen = calloc(1, a->n);
	assert_non_null(a->seen);
}

static kvarc_source account_source(struct account *a)
{
	return (kvarc_source){ .read = account_read, .opaque = a, .size = a->n };
}

/* Bytes that were read more than once. */
static size_t twice(const struct account *a)
{
	size_t n = 0;
	for (size_t i = 0; i < a->n; i++)
		n += a->seen[i] > 1;
	return n;
}

/* The geometry of a small language model: 30 layers, 3 heads of 64 channels, f16. */
enum { LAYERS = 30, HEADS = 3, CHANNELS = 64, WIDTH = HEADS * CHANNELS, TOKENS = 1168 };

static bool all_equal; /* tensors: chunks repeat those of the first one */

static kvarc_memory *make_archive(int level, uint64_t tokens, bool close)
{
	static kvarc_tensor tensors[2 * LAYERS];
	static const kvarc_track track = { 0 };
	const kvarc_geometry g = {
		.n_tracks = 1, .tracks = &track, .n_tensors = 2 * LAYERS, .tensors = tensors
	};
	uint16_t *data = malloc(sizeof *data * (TOKENS + 1) * WIDTH);
	int32_t *ids = calloc(TOKENS, sizeof *ids);
	kvarc_view views[2 * LAYERS];
	kvarc_writer_options o = stream_options(level, 1);
	kvarc_memory *m;
	kvarc_sink sink;
	kvarc_writer *w;
	uint64_t seed = 5;
	assert_true(data && ids);
	for (size_t i = 0; i < (size_t)(TOKENS + 1) * WIDTH; i++)
		data[i] = (uint16_t)((rand_next(&seed) & 0x83ff) | (0x3000 + i % 5 * 0x200));
	for (unsigned i = 0; i < 2 * LAYERS; i++) {
		tensors[i] = (kvarc_tensor){ .layer = i / 2,
			                     .kind = i % 2 ? KVARC_VALUE : KVARC_KEY,
			                     .dtype = KVARC_F16,
			                     .heads = HEADS,
			                     .channels = CHANNELS };
		unsigned shift = all_equal ? 0 : i;
		views[i] = (kvarc_view){ .data = data + shift,
			                 .token_stride = 2 * WIDTH,
			                 .block_elems = WIDTH,
			                 .elem_stride = 2 };
	}
	assert_int_equal(kvarc_memory_open(&m, NULL), KVARC_OK);
	assert_int_equal(kvarc_memory_sink(m, &sink), KVARC_OK);
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &g), KVARC_OK);
	assert_int_equal(kvarc_writer_append(w, 0, tokens, ids, NULL, views), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	if (close)
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	kvarc_writer_abort(&w);
	free(ids);
	free(data);
	return m;
}

/* The sample slot, level 2, with its profile in the archive, in segments of 64 tokens. */
static kvarc_memory *make_predicted(void)
{
	const char *src = getenv("srcdir") ? getenv("srcdir") : ".";
	char path[2][512];
	kvarc_writer_options o = stream_options(2, 1);
	kvarc_profile *profile;
	kvarc_source source;
	kvarc_import *im;
	kvarc_memory *m;
	kvarc_sink sink;
	snprintf(path[0], 512, "%s/tests/data/sample/smollm2-135m-level2.kvp", src);
	snprintf(path[1], 512, "%s/tests/data/sample/smollm2-135m-f16-160.slot", src);
	assert_int_equal(kvarc_source_open_path(&source, path[0], NULL), KVARC_OK);
	assert_int_equal(kvarc_profile_open(&profile, &source, NULL), KVARC_OK);
	kvarc_source_close(&source);
	assert_int_equal(kvarc_source_open_path(&source, path[1], NULL), KVARC_OK);
	assert_int_equal(kvarc_memory_open(&m, NULL), KVARC_OK);
	assert_int_equal(kvarc_memory_sink(m, &sink), KVARC_OK);
	o.profile = profile;
	o.flags |= KVARC_WRITE_EMBED_PROFILE;
	o.segment_tokens = 64;
	assert_int_equal(kvarc_import_open(&im, &source, "slot", NULL), KVARC_OK);
	assert_int_equal(kvarc_pack(im, &sink, &o, NULL), KVARC_OK);
	kvarc_import_close(&im);
	kvarc_source_close(&source);
	kvarc_profile_close(&profile);
	return m;
}

/* Memory for all tokens of all tensors, and packed views of it. */
struct all_views {
	size_t bytes;
	uint8_t *p;
	kvarc_view *views;
};

static struct all_views views_make(const kvarc_reader *r)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	const uint64_t tokens = kvarc_reader_tokens(r, 0);
	struct all_views t = { 0 };
	t.views = calloc(g->n_tensors, sizeof *t.views);
	for (size_t i = 0; i < g->n_tensors; i++)
		t.bytes += tokens * g->tensors[i].heads * g->tensors[i].channels * 2;
	t.p = calloc(1, t.bytes);
	assert_true(t.views && t.p);
	uint8_t *at = t.p;
	for (size_t i = 0; i < g->n_tensors; i++) {
		uint32_t width = g->tensors[i].heads * g->tensors[i].channels;
		t.views[i] = (kvarc_view){ .data = at,
			                   .token_stride = 2 * width,
			                   .block_elems = width,
			                   .elem_stride = 2 };
		at += tokens * width * 2;
	}
	return t;
}

static void views_free(struct all_views *t)
{
	free(t->views);
	free(t->p);
}

/* The payloads of the chunks that have tokens of a range, in layers below its end from its first
 * layer, or from 0, on. */
static uint64_t chunk_bytes(kvarc_reader *r, const kvarc_range *g)
{
	const kvarc_geometry *geometry = kvarc_reader_geometry(r);
	kvarc_chunk_info c;
	uint64_t sum = 0;
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &c) == KVARC_OK; i++) {
		uint32_t layer = geometry->tensors[c.tensor].layer;
		if (layer >= g->layer0 && layer < g->layer0 + g->n_layers && c.t0 < g->t0 + g->n &&
		    c.t0 + c.n > g->t0)
			sum += c.payload_bytes;
	}
	return sum;
}

static const kvarc_range four_layers = { .layer0 = 4, .n_layers = 4, .t0 = 100, .n = 64 };

/* The range that every change of the reader is measured by: a few requests, few bytes. */
static void test_few_requests(void **state)
{
	(void)state;
	for (int level = 0; level < 2; level++) {
		kvarc_memory *m = make_archive(level, TOKENS, true);
		kvarc_source source;
		kvarc_reader *r;
		struct account a;
		assert_int_equal(kvarc_memory_source(m, &source), KVARC_OK);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		uint64_t needed = chunk_bytes(r, &four_layers);
		kvarc_reader_close(&r);

		account_begin(&a, m);
		source = account_source(&a);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		long opening = a.requests;
		struct all_views t = views_make(r);
		assert_int_equal(kvarc_reader_read(r, &four_layers, t.views), KVARC_OK);
		printf("level %d: %ld + %ld requests, %llu bytes for %llu of chunks\n", level,
		       opening, (long)a.requests - opening, (unsigned long long)a.bytes,
		       (unsigned long long)needed);
		assert_true(a.requests <= 6);
		assert_true(a.bytes * 2 <= needed * 3);
		assert_int_equal(twice(&a), 0);
		/* Again: only what is not kept. */
		a.requests = 0;
		a.bytes = 0;
		assert_int_equal(kvarc_reader_read(r, &four_layers, t.views), KVARC_OK);
		assert_true(a.requests == 1 && a.bytes <= needed + needed / 50);
		views_free(&t);
		kvarc_reader_close(&r);
		free(a.seen);
		kvarc_memory_close(&m);
	}
}

/* A range at one archive: the plan names what is read, and the elements are right. */
static void check_plan(kvarc_memory *m, const kvarc_range *g, const kvarc_reader_options *o,
                       bool vectored, bool closed)
{
	const kvarc_byte_range *plan;
	kvarc_source source;
	kvarc_reader *r;
	struct account a;
	size_t n;
	assert_int_equal(kvarc_memory_source(m, &source), KVARC_OK);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	struct all_views good = views_make(r), t = views_make(r);
	assert_int_equal(kvarc_reader_read(r, g, good.views), KVARC_OK);
	assert_int_equal(kvarc_reader_plan(r, g, NULL, &plan, &n), KVARC_OK);
	assert_int_equal(n, 0);
	kvarc_reader_close(&r);

	account_begin(&a, m);
	source = account_source(&a);
	if (vectored)
		source.read_ranges = account_ranges;
	assert_int_equal(kvarc_reader_open(&r, &source, o), KVARC_OK);
	assert_int_equal(kvarc_reader_plan(r, g, t.views, &plan, &n), KVARC_OK);
	uint8_t *planned = calloc(1, a.n);
	uint64_t bytes = 0;
	assert_non_null(planned);
	for (size_t i = 0; i < n; i++) {
		assert_true(plan[i].bytes && plan[i].offset + plan[i].bytes <= a.n);
		memset(planned + plan[i].offset, 1, (size_t)plan[i].bytes);
		for (size_t k = 0; k < plan[i].bytes && closed; k++)
			assert_int_equal(a.seen[plan[i].offset + k], 0);
		bytes += plan[i].bytes;
	}
	uint8_t *before = malloc(a.n);
	assert_non_null(before);
	memcpy(before, a.seen, a.n);
	a.bytes = 0;
	a.requests = 0;
	assert_int_equal(kvarc_reader_read(r, g, t.views), KVARC_OK);
	for (size_t i = 0; i < a.n; i++)
		assert_true(planned[i] || a.seen[i] == before[i]);
	assert_true(a.bytes <= bytes);
	if (closed)
		assert_int_equal(twice(&a), 0);
	if (o->request_cost == 1)
		assert_int_equal(a.bytes, bytes);
	assert_memory_equal(t.p, good.p, t.bytes);
	kvarc_reader_close(&r);
	free(before);
	free(planned);
	free(a.seen);
	views_free(&t);
	views_free(&good);
}

static void check_plans(kvarc_memory *m, bool closed)
{
	static const struct {
		uint32_t layer0, n_layers;
		uint64_t t0, n;
	} at[] = {
		{ 4, 4, 90, 64 }, { 0, UINT32_MAX, 0, UINT64_MAX }, { 29, 1, 0, UINT64_MAX },
		{ 0, 1, 60, 10 }, { 7, UINT32_MAX, 63, 2 },         { 3, 2, 64, 0 },
	};
	for (unsigned i = 0; i < sizeof at / sizeof *at; i++)
		for (unsigned how = i; how < 24; how += 5) {
			const kvarc_reader_options o = { .common.threads = how % 3 * 2,
				                         .common.overlap = how / 3 % 2,
				                         .request_cost = how / 6 % 2 };
			const kvarc_range g = { .layer0 = at[i].layer0,
				                .n_layers = at[i].n_layers,
				                .t0 = at[i].t0,
				                .n = at[i].n };
			check_plan(m, &g, &o, how & 1, closed);
		}
}

static void test_plan(void **state)
{
	(void)state;
	for (int level = 0; level < 2; level++) {
		kvarc_memory *m = make_archive(level, 520, level);
		check_plans(m, level);
		kvarc_memory_close(&m);
	}
}

static void test_plan_predicted(void **state)
{
	kvarc_memory *m = make_predicted();
	(void)state;
	check_plans(m, true);
	kvarc_memory_close(&m);
}

/* Large requests for all that goes through the whole file. */
static void test_whole_file(void **state)
{
	(void)state;
	for (int close = 0; close < 2; close++) {
		kvarc_memory *m = make_archive(1, TOKENS, close);
		struct account a;
		kvarc_segment segment;
		kvarc_reader *r;
		account_begin(&a, m);
		kvarc_source source = account_source(&a);
		const long most = 3 + (long)(a.n >> 20);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		assert_true(a.requests <= (close ? 2 : most));
		assert_int_equal(kvarc_reader_tokens(r, 0), TOKENS);
		assert_int_equal(twice(&a), 0);
		a.requests = 0;
		while (kvarc_reader_next_segment(r, &segment) == KVARC_OK)
			;
		assert_true(a.requests <= most);
		kvarc_reader_close(&r);
		free(a.seen);
		kvarc_memory_close(&m);
	}
}

/* What chunks repeat is not in the plan, and takes one request each: the index has its size. */
static void test_repeats(void **state)
{
	(void)state;
	all_equal = true;
	kvarc_memory *m = make_archive(0, TOKENS, true);
	all_equal = false;
	struct account a;
	kvarc_reader *r;
	account_begin(&a, m);
	const kvarc_source source = account_source(&a);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	struct all_views t = views_make(r);
	a.requests = 0;
	assert_int_equal(kvarc_reader_read(r, &four_layers, t.views), KVARC_OK);
	assert_int_equal(a.requests, 1 + 2 * four_layers.n_layers);
	views_free(&t);
	kvarc_reader_close(&r);
	free(a.seen);
	kvarc_memory_close(&m);
}

/* An index in several frames: each is read once. */
static void test_long_index(void **state)
{
	enum { STEPS = 45000 };
	const kvarc_track track = { 0 };
	const kvarc_tensor tensor = { .dtype = KVARC_F16, .heads = 1, .channels = 8 };
	const kvarc_geometry g = {
		.n_tracks = 1, .tracks = &track, .n_tensors = 1, .tensors = &tensor
	};
	const kvarc_writer_options o = stream_options(0, 1);
	uint16_t row[8] = { 0 };
	const kvarc_view view = {
		.data = row, .token_stride = 16, .block_elems = 8, .elem_stride = 2
	};
	kvarc_memory *m;
	kvarc_sink sink;
	kvarc_writer *w;
	kvarc_reader *r;
	struct account a;
	(void)state;
	assert_int_equal(kvarc_memory_open(&m, NULL), KVARC_OK);
	assert_int_equal(kvarc_memory_sink(m, &sink), KVARC_OK);
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &g), KVARC_OK);
	assert_int_equal(kvarc_writer_identity(w, 1, (const char *const[]){ "model" },
	                                       (const char *const[]){ "test" }),
	                 KVARC_OK);
	for (int i = 0; i < STEPS; i++) {
		row[i % 8] = (uint16_t)i;
		assert_int_equal(kvarc_writer_append(w, 0, 1, NULL, NULL, &view), KVARC_OK);
		assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	}
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	account_begin(&a, m);
	const kvarc_source source = account_source(&a);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_tokens(r, 0), STEPS);
	assert_int_equal(twice(&a), 0);
	printf("%ld requests, %llu bytes\n", (long)a.requests, (unsigned long long)a.bytes);
	assert_true(a.requests <= 6);
	kvarc_reader_close(&r);
	free(a.seen);
	kvarc_memory_close(&m);
}

/* With little memory: smaller batches, then frame by frame, the same elements. */
static void test_memory_limit(void **state)
{
	kvarc_memory *m = make_archive(1, TOKENS, true);
	(void)state;
	for (uint64_t limit = (uint64_t)64 << 20, i = 0; limit >= 1 << 20; limit /= 1 + i++ % 2) {
		const kvarc_range all = KVARC_RANGE_ALL(0);
		const kvarc_reader_options o = { .common.memlimit = limit,
			                         .common.threads = i % 2 * 4 };
		struct account a;
		kvarc_reader *r;
		account_begin(&a, m);
		kvarc_source source = account_source(&a);
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		struct all_views t = views_make(r);
		kvarc_ret ret = kvarc_reader_read(r, &all, t.views);
		assert_true(ret == KVARC_OK || (ret == KVARC_MEMLIMIT && limit < 8 << 20));
		if (ret == KVARC_OK) {
			kvarc_info info;
			/* Where the end does not fit into memory, the LIST between COMMIT and
			 * INDEX is read with them, and again when it is needed. */
			assert_true(twice(&a) <= (limit < 4 << 20 ? 1024 : 0));
			assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
			assert_true((uint64_t)a.requests <= info.frames);
		}
		views_free(&t);
		kvarc_reader_close(&r);
		free(a.seen);
	}
	kvarc_memory_close(&m);
}

static void test_failures(void **state)
{
	kvarc_memory *m = make_archive(0, TOKENS, true);
	kvarc_error e;
	(void)state;
	for (int vectored = 0; vectored < 2; vectored++) {
		const kvarc_reader_options o = { .common.error = &e };
		kvarc_ret ret = KVARC_IO;
		for (int at = 1; ret != KVARC_OK; at++) {
			struct account a;
			struct all_views t = { 0 };
			kvarc_reader *r;
			assert_true(at < 8);
			account_begin(&a, m);
			a.fail_at = at;
			kvarc_source source = account_source(&a);
			if (vectored)
				source.read_ranges = account_ranges;
			ret = kvarc_reader_open(&r, &source, &o);
			if (ret == KVARC_OK) {
				t = views_make(r);
				ret = kvarc_reader_read(r, &four_layers, t.views);
			}
			assert_true(ret == KVARC_OK || ret == KVARC_IO);
			if (ret)
				assert_non_null(strstr(e.text, strerror(ETIMEDOUT)));
			views_free(&t);
			kvarc_reader_close(&r);
			free(a.seen);
		}
	}
	/* A file that has become shorter than its source says. */
	struct account a;
	kvarc_reader *r;
	account_begin(&a, m);
	kvarc_source source = account_source(&a);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	struct all_views t = views_make(r);
	a.short_by = a.n - 1000000;
	assert_int_equal(kvarc_reader_read(r, &four_layers, t.views), KVARC_DATA);
	views_free(&t);
	kvarc_reader_close(&r);
	free(a.seen);
	kvarc_memory_close(&m);
}

static void test_misuse(void **state)
{
	kvarc_memory *m = make_archive(0, TOKENS, true);
	const kvarc_byte_range *plan;
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_source source;
	kvarc_reader *r;
	size_t n;
	(void)state;
	assert_int_equal(kvarc_reader_plan(NULL, &all, NULL, &plan, &n), KVARC_PROG);
	assert_int_equal(kvarc_memory_source(m, &source), KVARC_OK);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_plan(r, &all, NULL, NULL, &n), KVARC_PROG);
	kvarc_reader_close(&r);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_plan(r, NULL, NULL, &plan, &n), KVARC_PROG);
	assert_null(plan);
	kvarc_reader_close(&r);
	struct memfile f = { .p = (uint8_t *)kvarc_memory_data(m),
		             .n = (size_t)kvarc_memory_bytes(m),
		             .pipe = true,
		             .fail_at = -1 };
	source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_plan(r, &all, NULL, &plan, &n), KVARC_OPTIONS);
	kvarc_reader_close(&r);
	kvarc_memory_close(&m);
}

/* Lists of ranges by chance: joined, they hold all that was not there, and no block. */
static void test_join(void **state)
{
	enum { FILE_BYTES = 2000, N = 12, CAPACITY = 64 };
	static uint8_t file[FILE_BYTES];
	struct account a = { .p = file, .n = FILE_BYTES };
	uint64_t seed = 1;
	struct kvi_alloc alloc;
	(void)state;
	a.seen = calloc(1, FILE_BYTES);
	assert_non_null(a.seen);
	kvi_alloc_init(&alloc, NULL, 0);
	const kvarc_source source = account_source(&a);
	for (int run = 0; run < 3000; run++) {
		struct kvi_ahead ahead;
		assert_true(kvi_ahead_open(&ahead, &alloc, 1 + rand_next(&seed) % 100));
		memset(a.seen, 0, FILE_BYTES);
		for (int batch = 0; batch < 3; batch++) {
			kvarc_byte_range list[CAPACITY];
			uint8_t wanted[FILE_BYTES] = { 0 };
			size_t n = rand_next(&seed) % (N + 1);
			for (size_t i = 0; i < n; i++) {
				list[i].offset = rand_next(&seed) % FILE_BYTES;
				list[i].bytes = 1 + rand_next(&seed) % 50;
				if (list[i].bytes > FILE_BYTES - list[i].offset)
					list[i].bytes = FILE_BYTES - list[i].offset;
				memset(wanted + list[i].offset, 1, (size_t)list[i].bytes);
			}
			n = kvi_ahead_join(&ahead, list, n, CAPACITY);
			for (size_t i = 1; i < n; i++)
				assert_true(list[i].offset >
				            list[i - 1].offset + list[i - 1].bytes - 1);
			assert_int_equal(kvi_ahead_fetch(&ahead, &source, list, n,
			                                 (enum kvi_ahead_group)batch, NULL),
			                 KVARC_OK);
			assert_int_equal(twice(&a), 0);
			for (size_t i = 0; i < FILE_BYTES; i++)
				assert_true(!wanted[i] || a.seen[i] == 1);
		}
		for (size_t i = 0; i < FILE_BYTES; i++) {
			uint64_t until;
			uint8_t byte;
			size_t got = kvi_ahead_copy(&ahead, &byte, 1, i, &until);
			assert_int_equal(got, a.seen[i]);
			assert_true(!got || byte == file[i]);
		}
		kvi_ahead_close(&ahead);
		assert_int_equal(alloc.used, 0);
	}
	free(a.seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_requests),   cmocka_unit_test(test_plan),
		cmocka_unit_test(test_plan_predicted), cmocka_unit_test(test_whole_file),
		cmocka_unit_test(test_long_index),     cmocka_unit_test(test_repeats),
		cmocka_unit_test(test_memory_limit),   cmocka_unit_test(test_failures),
		cmocka_unit_test(test_misuse),         cmocka_unit_test(test_join),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
