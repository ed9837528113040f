/* SPDX-License-Identifier: BSD-3-Clause */
/* test_prefixes.c - sequences of a batch that begin with the same tokens: found, packed once, read,
 * compacted */
#include "import_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/import.h"
#include "files/import_internal.h"
#include "files/prefixes.h"

enum { LAYERS = 2, HEADS = 2, CHANNELS = 16, MOST = 8 };

/* A sequence of a batch: as another one for some tokens, behind rows of padding. */
#define AS(other, n)                         \
	{                                    \
		.as = (other), .shared = (n) \
	}
#define PADDED(rows, other, n)                                  \
	{                                                       \
		.padding = (rows), .as = (other), .shared = (n) \
	}

/* ----- files of a batch -------------------------------------------------- */

/* A batch whose sequences begin as others. */
struct batch {
	unsigned n, tokens;
	struct {
		unsigned as, shared; /* an earlier sequence, and how many of its tokens */
		unsigned padding;    /* rows in front of the first token */
		unsigned other_ids;  /* its ids are others from this token on; 0: they are not */
	} of[MOST];
	bool mlx, ids; /* written as a BatchKVCache of mlx-lm; with token ids */
};

/* The sequence that a token is of: of the first that has it. */
static unsigned owner(const struct batch *b, unsigned sequence, unsigned token)
{
	while (token < b->of[sequence].shared)
		sequence = b->of[sequence].as;
	return sequence;
}

static uint16_t element(const struct batch *b, unsigned part, unsigned sequence, unsigned row,
                        unsigned column)
{
	const unsigned padding = b->of[sequence].padding;
	const bool pad = row < padding;
	uint64_t x = pad ? 999 + sequence : owner(b, sequence, row - padding);
	x = (x * 4096 + (pad ? row : row - padding)) * 64 + column;
	x = (x * LAYERS * 2 + part + 1) * 0x9e3779b97f4a7c15u;
	return (uint16_t)(0x3e00 + (x >> 55));
}

static void add(struct blob *b, const void *p, size_t n)
{
	kvarc_sink sink = blob_sink(b);
	assert_int_equal(sink.write(b, p, n, b->n), 0);
}

/* The tensors of a layer are parts 2 * layer and 2 * layer + 1. */
static struct blob make(const struct batch *batch)
{
	struct blob file = { .fail_after = -1 };
	const size_t part = (size_t)batch->n * HEADS * batch->tokens * CHANNELS * 2;
	const size_t all = 2 * LAYERS * part;
	char text[2048];
	int n = snprintf(text, sizeof text, "{");
	if (batch->mlx)
		n += snprintf(
			text + n, sizeof text - (size_t)n,
			"\"__metadata__\":{\"1.0\":\"BatchKVCache\",\"1.1\":\"BatchKVCache\"},"
			"\"0.3\":{\"dtype\":\"I32\",\"shape\":[%u],"
			"\"data_offsets\":[%zu,%zu]},",
			batch->n, all, all + 4 * (size_t)batch->n);
	if (batch->ids)
		n += snprintf(text + n, sizeof text - (size_t)n,
		              "\"tokens\":{\"dtype\":\"I32\",\"shape\":[%u,%u],"
		              "\"data_offsets\":[%zu,%zu]},",
		              batch->n, batch->tokens, all,
		              all + 4 * (size_t)batch->n * batch->tokens);
	for (unsigned i = 0; i < 2 * LAYERS; i++)
		n += snprintf(text + n, sizeof text - (size_t)n,
		              batch->mlx ? "\"%u.%u\":{\"dtype\":\"BF16\",\"shape\":[%u,%u,%u,%u],"
		                           "\"data_offsets\":[%zu,%zu]}%s"
		                         : "\"layers.%u.k%u\":{\"dtype\":\"BF16\","
		                           "\"shape\":[%u,%u,%u,%u],\"data_offsets\":[%zu,%zu]}%s",
		              i / 2, i % 2, batch->n, HEADS, batch->tokens, CHANNELS, i * part,
		              (i + 1) * part, i + 1 < 2 * LAYERS ? "," : "}");
	assert_true(n > 0 && (size_t)n < sizeof text);
	const uint64_t bytes = (uint64_t)n;
	add(&file, &bytes, 8);
	add(&file, text, (size_t)n);
	for (unsigned i = 0; i < 2 * LAYERS; i++)
		for (unsigned s = 0; s < batch->n; s++)
			for (unsigned h = 0; h < HEADS; h++)
				for (unsigned t = 0; t < batch->tokens; t++) {
					uint16_t row[CHANNELS];
					for (unsigned c = 0; c < CHANNELS; c++)
						row[c] = element(batch, i, s, t, h * CHANNELS + c);
					add(&file, row, sizeof row);
				}
	for (unsigned s = 0; batch->mlx && s < batch->n; s++) {
		const uint32_t padding = batch->of[s].padding;
		add(&file, &padding, 4);
	}
	for (unsigned s = 0; batch->ids && s < batch->n; s++)
		for (unsigned t = 0; t < batch->tokens; t++) {
			const unsigned other = batch->of[s].other_ids;
			const uint32_t id = 5 * t + 100 * owner(batch, s, t) +
			                    (other && t >= other);
			add(&file, &id, 4);
		}
	return file;
}

static kvarc_import *open_file(struct blob *file)
{
	kvarc_source source = blob_source(file);
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	o.kv_rule = "layers.{layer}.k{0|1} bhtc";
	o.rope = "none";
	assert_int_equal(kvarc_import_open(&im, &source, "batch", &o), KVARC_OK);
	return im;
}

static struct blob pack(kvarc_import *im, int level, uint32_t flags)
{
	struct blob archive = { .fail_after = -1 };
	kvarc_sink sink = blob_sink(&archive);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.level = KVARC_LEVEL(level);
	o.flags = flags;
	assert_int_equal(kvarc_pack(im, &sink, &o, NULL), KVARC_OK);
	return archive;
}

/* Tokens of a track that a fork has brought. */
static uint64_t forked(kvarc_reader *r, uint32_t track)
{
	kvarc_stored s;
	unsigned flags;
	uint64_t n = 0;
	for (uint64_t i = 0; kvarc_reader_segment_at(r, i, &s, &flags) == KVARC_OK; i++)
		n += s.track == track && flags & KVARC_SEGMENT_FORKED ? s.left : 0;
	return n;
}

/* Reads tokens of a track, and compares them with what the sequence has there. */
static void check_range(kvarc_reader *r, const struct batch *b, uint32_t track, unsigned t0,
                        unsigned n)
{
	uint16_t rows[2 * LAYERS][64][HEADS * CHANNELS];
	kvarc_view views[2 * LAYERS * MOST];
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	const kvarc_range range = { .track = track, .n_layers = LAYERS, .t0 = t0, .n = n };
	assert_true(n <= 64);
	memset(views, 0, sizeof views);
	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].track == track)
			views[i] = (kvarc_view){ .data = rows[2 * g->tensors[i].layer +
				                              (g->tensors[i].kind == KVARC_VALUE)],
				                 .token_stride = sizeof rows[0][0],
				                 .block_elems = HEADS * CHANNELS,
				                 .elem_stride = 2 };
	assert_int_equal(kvarc_reader_read(r, &range, views), KVARC_OK);
	for (unsigned i = 0; i < 2 * LAYERS; i++)
		for (unsigned t = 0; t < n; t++)
			for (unsigned c = 0; c < HEADS * CHANNELS; c++)
				assert_int_equal(rows[i][t][c], element(b, i, track, t0 + t, c));
}

/* The file comes back, and every sequence in parts, around the tokens where it leaves others. */
static void check_archive(struct blob *archive, const kvarc_import *im, const struct batch *b)
{
	kvarc_reader *r = read_archive(archive, NULL, 2);
	for (uint32_t i = 0; i < b->n; i++) {
		const unsigned at = b->of[i].padding + b->of[i].shared;
		const unsigned t0 = at > 20 ? at - 20 : 0;
		check_range(r, b, i, t0, b->tokens - t0 < 30 ? b->tokens - t0 : 30);
		check_range(r, b, i, b->tokens - 5, 5);
	}
	kvarc_reader_close(&r);
	r = read_archive(archive, NULL, 1);
	assert_int_equal(kvi_import_compare(im, r, NULL), KVARC_OK);
	kvarc_reader_close(&r);
}

/* Tokens that a sequence is to have of another one. */
static uint64_t expected(const struct batch *b, unsigned sequence)
{
	const unsigned n = b->of[sequence].shared, ids = b->of[sequence].other_ids;
	return n < KVI_PREFIX_LEAST ? 0 : ids && ids < n ? ids : n;
}

/* What is found of each sequence, and what its archive has. */
static void check(const struct batch *b)
{
	struct blob file = make(b);
	kvarc_import *im = open_file(&file);
	struct kvi_prefix *p;
	assert_int_equal(kvarc_import_geometry(im)->n_tracks, b->n);
	assert_int_equal(kvi_prefixes_find(im, &p), KVARC_OK);
	for (unsigned i = 0; i < b->n; i++) {
		assert_int_equal(p[i].shared, expected(b, i));
		if (p[i].shared)
			assert_int_equal(p[i].from, b->of[i].as);
		assert_int_equal(p[i].n_cuts, 0);
	}
	kvi_prefixes_free(im, p);
	for (int level = 0; level < 2; level++) {
		struct blob archive = pack(im, level, KVARC_WRITE_VERIFY);
		kvarc_reader *r = read_archive(&archive, NULL, 1);
		kvarc_info info = { 0 };
		uint64_t tokens = 0;
		assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
		for (unsigned i = 0; i < b->n; i++) {
			assert_int_equal(forked(r, i), expected(b, i));
			tokens += b->tokens - expected(b, i);
		}
		/* bytes are those of the file, elements those of the archive */
		assert_int_equal(info.raw_bytes,
		                 2ull * b->n * b->tokens * 2 * LAYERS * HEADS * CHANNELS);
		assert_int_equal(info.elements, tokens * 2 * LAYERS * HEADS * CHANNELS);
		kvarc_reader_close(&r);
		check_archive(&archive, im, b);
		blob_free(&archive);
	}
	kvarc_import_close(&im);
	blob_free(&file);
}

/* ----- which tokens sequences share --------------------------------------- */

static void samples(void **unused)
{
	(void)unused;
	const struct batch b = { .n = 4,
		                 .tokens = 128,
		                 .of = { AS(0, 0), AS(0, 112), AS(0, 112), AS(0, 112) } };
	check(&b);
	const struct batch longer = { .n = 3,
		                      .tokens = 700,
		                      .of = { AS(0, 0), AS(0, 513), AS(0, 300) } };
	check(&longer);
}

/* Each sequence has most of its first tokens of another one. */
static void tree(void **unused)
{
	(void)unused;
	const struct batch b = { .n = 8,
		                 .tokens = 160,
		                 .of = { AS(0, 0), AS(0, 40), AS(1, 100), AS(1, 60), AS(0, 40),
		                         AS(0, KVI_PREFIX_LEAST - 1), AS(2, 160), AS(4, 80) } };
	check(&b);
}

/* Nothing in common, and the least that counts. */
static void least(void **unused)
{
	(void)unused;
	const struct batch b = { .n = 3,
		                 .tokens = 64,
		                 .of = { AS(0, 0), AS(0, 0), AS(1, KVI_PREFIX_LEAST) } };
	check(&b);
}

/* A fork brings ids with it: tokens are the same where ids are, too. */
static void token_ids(void **unused)
{
	(void)unused;
	struct batch b = { .n = 2, .tokens = 96, .of = { AS(0, 0), AS(0, 80) }, .ids = true };
	check(&b);
	b.of[1].other_ids = 50;
	check(&b);
}

/* An archive for pipes has no forks, nor one that a tier changes. */
static void without(void **unused)
{
	(void)unused;
	const struct batch b = { .n = 2, .tokens = 64, .of = { AS(0, 0), AS(0, 48) } };
	struct blob file = make(&b);
	kvarc_import *im = open_file(&file);
	struct blob archive = pack(im, 1, KVARC_WRITE_STREAMABLE);
	struct blob_pipe pipe = { &archive, 0 };
	kvarc_reader *r = read_archive(&archive, &pipe, 1);
	assert_int_equal(kvi_import_compare(im, r, NULL), KVARC_OK);
	kvarc_reader_close(&r);
	blob_free(&archive);
	kvarc_import_close(&im);
	blob_free(&file);
}

/* ----- left paddings -------------------------------------------------------- */

static size_t size_of(const struct batch *b, bool compacts)
{
	struct blob file = make(b), second = { .fail_after = -1 };
	kvarc_import *im = open_file(&file);
	struct blob archive = pack(im, 1, KVARC_WRITE_VERIFY);
	check_archive(&archive, im, b);
	size_t n = archive.n;
	if (compacts) {
		kvarc_sink sink = blob_sink(&second);
		kvarc_reader *r = read_archive(&archive, NULL, 1);
		assert_int_equal(kvarc_compact(r, &sink, NULL, NULL), KVARC_OK);
		kvarc_reader_close(&r);
		check_archive(&second, im, b);
		n = second.n;
	}
	blob_free(&second);
	blob_free(&archive);
	kvarc_import_close(&im);
	blob_free(&file);
	return n;
}

/* Sequences of several lengths share tokens behind their paddings. */
static void paddings(void **unused)
{
	(void)unused;
	struct batch b = { .n = 5,
		           .tokens = 512,
		           .of = { PADDED(0, 0, 0), PADDED(40, 0, 300), PADDED(7, 1, 400),
		                   PADDED(90, 0, 100), PADDED(0, 0, 300) },
		           .mlx = true };
	const size_t packed = size_of(&b, false);
	/* of 2560 rows these are in no other sequence, and a little for each segment */
	const size_t own = 512 + (512 - 300) + (512 - 400) + (512 - 100) + (512 - 300);
	assert_in_range(packed, 1, 2 * own * 2 * LAYERS * HEADS * CHANNELS);
	assert_in_range(size_of(&b, true), 1, packed + packed / 50);
	/* Without the lengths of the paddings nothing is found. */
	b.mlx = false;
	assert_in_range(size_of(&b, false), packed + packed / 4, SIZE_MAX);
}

/* The ends of segments: where tokens of this or a later sequence are no longer shared, unless one
 * is near. */
static void cuts(void **unused)
{
	(void)unused;
	enum { N = 5 };
	const struct batch b = { .n = N,
		                 .tokens = 256,
		                 .of = { PADDED(10, 0, 0), PADDED(0, 0, 150), PADDED(30, 1, 170),
		                         PADDED(20, 0, 60), PADDED(5, 0, 65) },
		                 .mlx = true };
	static const uint64_t ends[N][4] = {
		{ 10, 70, 160 }, { 0, 60, 150, 170 }, { 30, 90, 180, 200 }, { 20, 80 }, { 5, 65 }
	};
	static const size_t n[N] = { 3, 4, 4, 2, 2 };
	struct blob file = make(&b);
	kvarc_import *im = open_file(&file);
	struct kvi_prefix *p;
	assert_int_equal(kvi_prefixes_find(im, &p), KVARC_OK);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(p[i].shared, 0);
		assert_int_equal(p[i].n_cuts, n[i]);
		assert_memory_equal(p[i].cuts, ends[i], n[i] * sizeof *ends[i]);
	}
	kvi_prefixes_free(im, p);
	kvarc_import_close(&im);
	blob_free(&file);
}

/* Equal paddings hide nothing; a padding that cannot be is none. */
static void equal_paddings(void **unused)
{
	(void)unused;
	struct batch b = {
		.n = 2, .tokens = 96, .of = { PADDED(16, 0, 0), PADDED(16, 0, 40) }, .mlx = true
	};
	struct blob file = make(&b);
	kvarc_import *im = open_file(&file);
	assert_int_equal(im->tracks[0].padding, 16);
	assert_int_equal(im->tracks[1].padding, 16);
	kvarc_import_close(&im);
	const uint32_t negative = (uint32_t)-3, all = 96;
	memcpy(file.p + file.n - 8, &negative, 4);
	memcpy(file.p + file.n - 4, &all, 4);
	im = open_file(&file);
	assert_int_equal(im->tracks[0].padding, 0);
	assert_int_equal(im->tracks[1].padding, 0);
	kvarc_import_close(&im);
	blob_free(&file);
}

/* ----- failures ---------------------------------------------------------- */

static int64_t read_nothing(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	(void)opaque;
	(void)buf;
	(void)bytes;
	(void)offset;
	return -1;
}

static void failures(void **unused)
{
	(void)unused;
	const struct batch b = { .n = 3,
		                 .tokens = 64,
		                 .of = { PADDED(2, 0, 0), PADDED(0, 0, 48), PADDED(4, 1, 50) },
		                 .mlx = true };
	struct blob file = make(&b);
	kvarc_import *im = open_file(&file);
	const struct kvi_alloc alloc = im->alloc;
	kvarc_ret ret = KVARC_MEM;
	struct kvi_prefix *p;
	for (long n = 0; ret; n++) {
		struct failing f;
		failing_init(&f, n);
		im->alloc.fn = f.fn;
		ret = kvi_prefixes_find(im, &p);
		/* what fetches elements says no more than that it failed */
		assert_true(ret == KVARC_OK || ((ret == KVARC_MEM || ret == KVARC_IO) && !p));
		kvi_prefixes_free(im, p);
		im->alloc = alloc;
		assert_int_equal(f.held, 0);
		assert_true(n < 100);
	}
	const kvarc_source whole = im->items[0].src;
	im->items[0].src = (kvarc_source){ .read = read_nothing, .size = whole.size };
	assert_int_equal(kvi_prefixes_find(im, &p), KVARC_IO);
	assert_null(p);
	im->items[0].src = whole;
	kvarc_import_close(&im);
	blob_free(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples),  cmocka_unit_test(tree),
		cmocka_unit_test(least),    cmocka_unit_test(token_ids),
		cmocka_unit_test(without),  cmocka_unit_test(paddings),
		cmocka_unit_test(cuts),     cmocka_unit_test(equal_paddings),
		cmocka_unit_test(failures),
	};
	return reads_safetensors() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
