/* SPDX-License-Identifier: BSD-3-Clause */
/* test_small.c - caches of few tokens: archives that are not larger than files, or than level 0 */
#include <stdio.h>
#include <string.h>

#include "format/codec_ids.h"
#include "format/packed.h"
#include "import_files.h"
#include "kvarc/tools.h"
#include "random.h"
#include "util/bytes.h"

enum { LAYERS = 30, HEADS = 3, CHANNELS = 64, WIDTH = HEADS * CHANNELS, LEVELS = 4 };
enum { WIDE = 64 }; /* heads of an npy file */
/* Bytes that an archive may be larger than its file, and level 1 than level 0. */
enum { MORE_THAN_FILE = 200, MORE_THAN_0 = 64 };

/* ----- files ------------------------------------------------ */

static void put(struct blob *b, const void *p, size_t n)
{
	const kvarc_sink sink = blob_sink(b);
	assert_int_equal(sink.write(sink.opaque, p, n, b->n), 0);
}

static void put32(struct blob *b, uint32_t v)
{
	uint8_t bytes[4];
	kvi_store32(bytes, v);
	put(b, bytes, sizeof bytes);
}

static void put64(struct blob *b, uint64_t v)
{
	put32(b, (uint32_t)v);
	put32(b, (uint32_t)(v >> 32));
}

/* An element whose channel has a mean and a scale of its own, as caches have them. */
static float element(uint32_t tensor, uint32_t channel)
{
	const uint32_t mixed = (tensor * 977 + channel + 1) * 2654435761u;
	const float mean = (float)(int)(mixed >> 24) / 64.0f - 2.0f;
	return mean + normal() * (0.25f + (float)(mixed >> 8 & 255) / 256.0f);
}

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

/* f32, bf16 or f16, rounded to zero; what f16 has no normal number for is zero. */
static void put_element(struct blob *b, unsigned dtype, float x)
{
	const uint32_t bits = bits_of(x);
	const int exponent = (int)(bits >> 23 & 255) - 127 + 15;
	uint8_t bytes[4];
	kvi_store32(bytes, dtype == KVARC_F32 ? bits : bits >> 16);
	if (dtype == KVARC_F16)
		kvi_store16(bytes, (uint16_t)(bits >> 16 & 0x8000) |
		                           (uint16_t)(exponent < 1 ? 0
		                                                   : (exponent << 10 |
		                                                      (bits >> 13 & 1023))));
	put(b, bytes, dtype == KVARC_F32 ? 4 : 2);
}

static struct blob make_safetensors(unsigned dtype, uint32_t tokens)
{
	struct blob b = { NULL, 0, 0, -1 };
	static char text[16384];
	const char *name = dtype == KVARC_F32 ? "F32" : dtype == KVARC_F16 ? "F16" : "BF16";
	const size_t bytes = (size_t)tokens * WIDTH * kvarc_dtype_bytes(dtype);
	size_t at = 0, n = 0;
	for (uint32_t i = 0; i < 2 * LAYERS; i++, at += bytes)
		n += (size_t)snprintf(text + n, sizeof text - n,
		                      "%c\"layers.%u.%s\":{\"dtype\":\"%s\",\"shape\":[%d,%u,%d],"
		                      "\"data_offsets\":[%zu,%zu]}",
		                      i ? ',' : '{', (unsigned)(i / 2), i % 2 ? "value" : "key",
		                      name, HEADS, (unsigned)tokens, CHANNELS, at, at + bytes);
	text[n++] = '}';
	while (n % 8)
		text[n++] = ' ';
	put64(&b, n);
	put(&b, text, n);
	for (uint32_t i = 0; i < 2 * LAYERS; i++)
		for (uint32_t h = 0; h < HEADS; h++)
			for (uint32_t t = 0; t < tokens; t++)
				for (uint32_t c = 0; c < CHANNELS; c++)
					put_element(&b, dtype, element(i, h * CHANNELS + c));
	return b;
}

/* One tensor of many heads. */
static struct blob make_npy(unsigned dtype, uint32_t tokens)
{
	struct blob b = { NULL, 0, 0, -1 };
	char text[118];
	const int n = snprintf(text, sizeof text,
	                       "{'descr': '<f%u', 'fortran_order': False, 'shape': (%d, %u, %d), }",
	                       dtype == KVARC_F32 ? 4u : 2u, WIDE, (unsigned)tokens, CHANNELS);
	memset(text + n, ' ', sizeof text - (size_t)n);
	text[sizeof text - 1] = '\n';
	put(&b, "\x93NUMPY\1\0v\0", 10);
	put(&b, text, sizeof text);
	for (uint32_t h = 0; h < WIDE; h++)
		for (uint32_t t = 0; t < tokens; t++)
			for (uint32_t c = 0; c < CHANNELS; c++)
				put_element(&b, dtype, element(0, h * CHANNELS + c));
	return b;
}

/* A llama.cpp sequence file of version 2. */
static struct blob make_slot(unsigned dtype, uint32_t tokens)
{
	struct blob b = { NULL, 0, 0, -1 };
	put32(&b, 0x67677371);
	put32(&b, 2);
	put32(&b, tokens);
	for (uint32_t t = 0; t < tokens; t++)
		put32(&b, below(32000));
	put32(&b, 1);
	put32(&b, tokens);
	for (uint32_t t = 0; t < tokens; t++) {
		put32(&b, t);
		put32(&b, 1);
		put32(&b, 0);
	}
	put32(&b, 0);
	put32(&b, LAYERS);
	for (uint32_t i = 0; i < 2 * LAYERS; i++) {
		put32(&b, dtype == KVARC_F16); /* ggml: 0 is F32, 1 is F16 */
		put64(&b, WIDTH * kvarc_dtype_bytes(dtype));
		for (uint32_t t = 0; t < tokens; t++)
			for (uint32_t c = 0; c < WIDTH; c++)
				put_element(&b, dtype, element(i, c));
	}
	return b;
}

/* A batch of sequences of one layer of bf16, [sequence, head, token, channel]. */
struct made_batch {
	uint32_t sequences, tokens;
	uint32_t shared; /* first tokens that all sequences have */
	uint32_t rows;   /* values of token t are those of token t % rows of the sequence */
};

static struct blob make_batch(const struct made_batch *batch)
{
	struct blob b = { NULL, 0, 0, -1 };
	char text[256];
	static uint32_t bits[16][64][WIDTH];
	const size_t bytes = (size_t)batch->sequences * batch->tokens * WIDTH * 2;
	size_t n = 0;
	for (uint32_t i = 0; i < 2; i++)
		n += (size_t)snprintf(
			text + n, sizeof text - n,
			"%c\"layers.0.%s\":{\"dtype\":\"BF16\",\"shape\":[%u,%d,%u,%d],"
			"\"data_offsets\":[%zu,%zu]}",
			i ? ',' : '{', i ? "value" : "key", (unsigned)batch->sequences, HEADS,
			(unsigned)batch->tokens, CHANNELS, i * bytes, (i + 1) * bytes);
	text[n++] = '}';
	while (n % 8)
		text[n++] = ' ';
	put64(&b, n);
	put(&b, text, n);
	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t s = 0; s < batch->sequences; s++)
			for (uint32_t t = 0; t < batch->tokens; t++)
				for (uint32_t c = 0; c < WIDTH; c++)
					bits[s][t][c] = s && t < batch->shared ? bits[0][t][c]
					                : i && t >= batch->rows
					                        ? bits[s][t % batch->rows][c]
					                        : bits_of(element(i, c)) >> 16;
		for (uint32_t s = 0; s < batch->sequences; s++)
			for (uint32_t h = 0; h < HEADS; h++)
				for (uint32_t t = 0; t < batch->tokens; t++)
					for (uint32_t c = 0; c < CHANNELS; c++) {
						uint8_t element16[2];
						kvi_store16(element16,
						            (uint16_t)bits[s][t][h * CHANNELS + c]);
						put(&b, element16, 2);
					}
	}
	return b;
}

/* ----- archives ------------------------------------------------ */

/* An archive, and the totals of its writer. */
struct packed {
	struct blob archive;
	kvarc_writer_stats stats;
};

/* Packs a file as the command does; levels above 1 with a profile of the file. */
static struct packed pack(struct blob *file, const char *name, int level, unsigned flags)
{
	struct packed p = { .archive = { NULL, 0, 0, -1 } };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	const kvarc_source source = blob_source(file);
	const kvarc_sink sink = blob_sink(&p.archive);
	kvarc_profile *profile = NULL;
	kvarc_import *im;
	uint64_t bytes;
	assert_int_equal(kvarc_import_open(&im, &source, name, NULL), KVARC_OK);
	kvarc_import_sizes(im, NULL, &bytes);
	assert_true(bytes > 0);
	if (level > 1)
		assert_int_equal(kvarc_train_import(&profile, im, level, NULL, 0, NULL), KVARC_OK);
	o.level = KVARC_LEVEL(level > 1 && !profile ? 1 : level);
	o.flags = flags | (profile ? KVARC_WRITE_EMBED_PROFILE : 0);
	o.profile = profile;
	assert_int_equal(kvarc_pack(im, &sink, &o, &p.stats), KVARC_OK);
	assert_int_equal(p.stats.file_bytes, p.archive.n);
	kvarc_import_close(&im);
	kvarc_profile_close(&profile);
	return p;
}

static int take_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	assert_int_equal(item->index, 0);
	*sink = blob_sink(opaque);
	return 0;
}

static void check_restored(struct blob *archive, const struct blob *file)
{
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_reader *r = read_archive(archive, NULL, 1);
	assert_int_equal(kvarc_unpack(r, take_item, &out), KVARC_OK);
	kvarc_reader_close(&r);
	assert_int_equal(out.n, file->n);
	assert_memory_equal(out.p, file->p, file->n);
	blob_free(&out);
}

/* levels: number of levels; those above 1, which fit a profile, are for packs of whole files. */
static void check_sizes(struct blob *file, const char *name, const char *what, int levels)
{
	size_t bytes[2][LEVELS];
	for (int level = 0; level < levels; level++)
		for (int whole = level > 1; whole < 2; whole++) {
			struct packed p = pack(file, name, level,
			                       whole ? KVARC_WRITE_KEEP_WHOLE : 0);
			bytes[whole][level] = p.archive.n;
			check_restored(&p.archive, file);
			assert_true(whole || p.stats.elements);
			blob_free(&p.archive);
			if (whole && p.archive.n > file->n + MORE_THAN_FILE)
				fail_msg("%s, level %d: %zu bytes of %zu", what, level, p.archive.n,
				         file->n);
			if (bytes[whole][level] > bytes[whole][0] + MORE_THAN_0)
				fail_msg("%s, level %d: %zu bytes, level 0: %zu", what, level,
				         bytes[whole][level], bytes[whole][0]);
		}
}

static const uint32_t few[] = { 1, 2, 4, 8, 16, 33, 63 };

/* first: index of the fewest tokens. */
static void check_all(struct blob (*make)(unsigned, uint32_t), const char *name,
                      const unsigned *dtypes, size_t n, size_t first)
{
	char what[80];
	for (size_t i = 0; i < n; i++)
		for (size_t k = first; k < sizeof few / sizeof *few; k++) {
			struct blob file = make(dtypes[i], few[k]);
			snprintf(what, sizeof what, "%s, %s, %u tokens", name,
			         kvarc_dtype_name(dtypes[i]), (unsigned)few[k]);
			check_sizes(&file, name, what, i || few[k] > 16 ? 2 : LEVELS);
			blob_free(&file);
		}
}

static void test_safetensors(void **state)
{
	static const unsigned dtypes[] = { KVARC_F16, KVARC_BF16, KVARC_F32 };
	(void)state;
	if (!reads_safetensors())
		skip();
	check_all(make_safetensors, "cache.safetensors", dtypes, 3, 0);
}

static void test_npy(void **state)
{
	static const unsigned dtypes[] = { KVARC_F16, KVARC_F32 };
	(void)state;
	check_all(make_npy, "layers.0.key.npy", dtypes, 2, 0);
}

static void test_slots(void **state)
{
	static const unsigned dtypes[] = { KVARC_F16, KVARC_F32 };
	(void)state;
	/* One token of version 2 can be read in more than one way. */
	check_all(make_slot, "slot.bin", dtypes, 2, 1);
}

/* ----- a file that is kept whole ------------------------------------------------ */

/* A slot of bytes that nothing makes smaller: frames of chunks weigh more than one BLOB. */
static struct blob random_slot(uint32_t tokens)
{
	struct blob b = make_slot(KVARC_F16, tokens);
	const size_t head = 12 + 4 * (size_t)tokens + 8 + 12 * (size_t)tokens + 8;
	for (size_t at = head, i = 0; i < 2 * LAYERS; i++) {
		at += 12;
		for (size_t k = 0; k < (size_t)tokens * WIDTH * 2; k++)
			b.p[at++] = (uint8_t)rnd();
	}
	return b;
}

static void test_whole(void **state)
{
	struct blob file = random_slot(2);
	struct packed cache = pack(&file, "slot.bin", 1, 0);
	struct packed whole = pack(&file, "slot.bin", 1, KVARC_WRITE_KEEP_WHOLE);
	struct packed again = pack(&file, "slot.bin", 1, KVARC_WRITE_KEEP_WHOLE);
	kvarc_item item;
	enum { FRAMES = 700 }; /* bytes of an archive of bytes that nothing makes smaller */
	(void)state;
	assert_true(cache.archive.n > file.n + MORE_THAN_FILE);
	assert_true(whole.archive.n <= file.n + FRAMES);
	assert_int_equal(whole.stats.elements, 0);
	assert_int_equal(again.archive.n, whole.archive.n);
	assert_memory_equal(again.archive.p, whole.archive.p, whole.archive.n);
	check_restored(&whole.archive, &file);
	kvarc_reader *r = read_archive(&whole.archive, NULL, 1);
	assert_int_equal(kvarc_reader_geometry(r)->n_tensors, 0);
	assert_int_equal(kvarc_reader_item(r, 0, &item), KVARC_OK);
	assert_int_equal(item.kind, 2); /* a llama.cpp sequence file (spec 10) */
	assert_string_equal(item.name, "slot.bin");
	kvarc_reader_close(&r);
	blob_free(&cache.archive);
	blob_free(&whole.archive);
	blob_free(&again.archive);
	blob_free(&file);
}

/* Of a file of at most 4 KiB the archive is mostly frames: it keeps its tensors where it is too
 * large without them, too. */
static void test_mostly_frames(void **state)
{
	struct blob file = { NULL, 0, 0, -1 };
	(void)state;
	if (!reads_safetensors())
		skip();
	put(&file, "\x80\0\0\0\0\0\0\0", 8);
	put(&file,
	    "{\"layers.0.key\":{\"dtype\":\"F16\",\"shape\":[1,1,64],\"data_offsets\":[0,128]}}"
	    "                                                           ",
	    128);
	for (int i = 0; i < 128; i++)
		put(&file, &(uint8_t){ (uint8_t)rnd() }, 1);
	struct packed p = pack(&file, "cache.safetensors", 1, KVARC_WRITE_KEEP_WHOLE);
	assert_true(p.archive.n > file.n + MORE_THAN_FILE);
	assert_int_equal(p.stats.elements, 64);
	check_restored(&p.archive, &file);
	blob_free(&p.archive);
	blob_free(&file);
}

/* Files larger than 1 MiB keep their tensors, whatever they are. */
static void test_large(void **state)
{
	struct blob file = random_slot(48);
	struct packed p = pack(&file, "slot.bin", 1, KVARC_WRITE_KEEP_WHOLE);
	(void)state;
	assert_true(file.n > 1 << 20);
	assert_true(p.archive.n > file.n + MORE_THAN_FILE);
	assert_true(p.stats.elements);
	blob_free(&p.archive);
	blob_free(&file);
}

/* A sink that fails; memory that is too little at any allocation. */
static void test_failures(void **state)
{
	struct blob file = random_slot(2), none = { NULL, 0, 0, 0 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_source source = blob_source(&file);
	kvarc_sink sink = blob_sink(&none);
	kvarc_error error;
	kvarc_import *im;
	(void)state;
	o.flags = KVARC_WRITE_KEEP_WHOLE;
	o.common.error = &error;
	assert_int_equal(kvarc_import_open(&im, &source, "slot.bin", NULL), KVARC_OK);
	assert_int_equal(kvarc_pack(im, &sink, &o, NULL), KVARC_IO);
	assert_non_null(strstr(error.text, "bytes at offset 0 failed"));
	kvarc_import_close(&im);
	blob_free(&none);
	kvarc_ret ret = KVARC_MEM;
	for (long i = 0; ret == KVARC_MEM; i++) {
		struct blob out = { NULL, 0, 0, -1 };
		struct failing f;
		kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
		failing_init(&f, i);
		io.common.allocator = &f.fn;
		sink = blob_sink(&out);
		ret = kvarc_import_open(&im, &source, "slot.bin", &io);
		if (!ret)
			ret = kvarc_pack(im, &sink, &o, NULL);
		assert_true(ret == KVARC_MEM ? out.n == 0 : ret == KVARC_OK);
		kvarc_import_close(&im);
		assert_int_equal(f.held, 0);
		blob_free(&out);
	}
	blob_free(&file);
}

/* ----- chunks and parameters ------------------------------------------------ */

/* A chunk that nothing makes smaller costs its frame, its header and an entry of the index. */
static void test_random_chunks(void **state)
{
	enum { CHUNK_MORE = 96, ENTRY = 12, FILE_MORE = 2048 };
	struct blob file = random_slot(100);
	(void)state;
	for (int level = 0; level < LEVELS; level++) {
		struct packed p = pack(&file, "slot.bin", level, 0);
		assert_int_equal(p.stats.chunks, 2 * LAYERS);
		assert_true(p.archive.n <=
		            file.n + p.stats.chunks * (CHUNK_MORE + ENTRY) + FILE_MORE);
		blob_free(&p.archive);
	}
	blob_free(&file);
}

/* The archive of the tokens of a slot, by calls of a writer. */
static struct packed write_tokens(struct blob *file)
{
	struct packed p = { .archive = { NULL, 0, 0, -1 } };
	const kvarc_sink sink = blob_sink(&p.archive);
	const kvarc_source source = blob_source(file);
	kvarc_view views[2 * LAYERS];
	static uint8_t elements[2 * LAYERS][16 * WIDTH * 2];
	kvarc_import *im;
	kvarc_writer *w;
	assert_int_equal(kvarc_import_open(&im, &source, "slot.bin", NULL), KVARC_OK);
	const kvarc_geometry *g = kvarc_import_geometry(im);
	assert_int_equal(kvarc_import_tokens(im, 0), 16);
	for (uint32_t i = 0; i < 2 * LAYERS; i++) {
		assert_int_equal(
			kvarc_import_fetch(im, i, 0, g->tensors[i].heads, 0, 16, elements[i]), 0);
		views[i] = (kvarc_view){ .data = elements[i],
			                 .token_stride = WIDTH * 2,
			                 .block_elems = WIDTH,
			                 .elem_stride = 2 };
	}
	assert_int_equal(kvarc_writer_open(&w, &sink, NULL), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, g), KVARC_OK);
	assert_int_equal(kvarc_writer_append(w, 0, 16, NULL, NULL, views), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	kvarc_writer_get_stats(w, &p.stats);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	kvarc_import_close(&im);
	return p;
}

/* Parameters of tokens that others may follow are written, those of a pack, which has all, are
 * not. */
static void test_appends(void **state)
{
	struct blob file = make_slot(KVARC_F16, 16);
	struct packed more = write_tokens(&file), last = pack(&file, "slot.bin", 1, 0);
	(void)state;
	assert_true(more.stats.frames > 2 * 2 * LAYERS);
	assert_true(last.stats.frames < 2 * 2 * LAYERS);
	/* At least 32 bytes a chunk; how many depends on the version of Zstandard. */
	assert_true(last.archive.n + 2 * LAYERS * 32 < more.archive.n);
	blob_free(&more.archive);
	blob_free(&last.archive);
	blob_free(&file);
}

/* ----- tokens and rows that occur more than once ------------------------------------------ */

/* Tokens that a reader gets from the segments of other tracks. */
static uint64_t forked_tokens(struct blob *archive)
{
	kvarc_reader *r = read_archive(archive, NULL, 1);
	kvarc_stored segment;
	unsigned flags;
	uint64_t n = 0;
	for (uint64_t i = 0; !kvarc_reader_segment_at(r, i, &segment, &flags); i++)
		n += flags & KVARC_SEGMENT_FORKED ? segment.left : 0;
	kvarc_reader_close(&r);
	return n;
}

/* The first tokens of sequences are there once, but in archives that are read from a pipe. */
static void test_batch(void **state)
{
	static const struct {
		struct made_batch batch;
		uint64_t forked;
	} cases[] = {
		{ { 4, 64, 48, 64 }, 3 * 48 }, { { 3, 64, 64, 64 }, 2 * 64 },
		{ { 2, 64, 16, 64 }, 16 },     { { 2, 64, 15, 64 }, 0 },
		{ { 2, 64, 0, 64 }, 0 },       { { 16, 16, 16, 16 }, 15 * 16 },
	};
	(void)state;
	if (!reads_safetensors())
		skip();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct blob file = make_batch(&cases[i].batch);
		for (int level = 0; level < 2; level++) {
			struct packed p = pack(&file, "batch.safetensors", level, 0);
			assert_int_equal(forked_tokens(&p.archive), cases[i].forked);
			check_restored(&p.archive, &file);
			blob_free(&p.archive);
		}
		struct packed p = pack(&file, "batch.safetensors", 1, KVARC_WRITE_STREAMABLE);
		assert_int_equal(forked_tokens(&p.archive), 0);
		check_restored(&p.archive, &file);
		blob_free(&p.archive);
		blob_free(&file);
	}
}

/* Rows that repeat are there once from level 1 on, and where an eighth does. */
static void test_rows(void **state)
{
	static const struct made_batch half = { 1, 64, 0, 32 }, some = { 1, 64, 0, 57 };
	const size_t row = WIDTH * 2;
	(void)state;
	if (!reads_safetensors())
		skip();
	struct blob file = make_batch(&half);
	struct packed plain = pack(&file, "batch.safetensors", 0, 0);
	for (int level = 1; level < LEVELS; level++) {
		struct packed p = pack(&file, "batch.safetensors", level, 0);
		assert_true(p.archive.n + 8 * row < plain.archive.n);
		check_restored(&p.archive, &file);
		blob_free(&p.archive);
	}
	blob_free(&plain.archive);
	blob_free(&file);
	file = make_batch(&some); /* too few rows: coded */
	plain = pack(&file, "batch.safetensors", 1, 0);
	check_restored(&plain.archive, &file);
	kvarc_reader *r = read_archive(&plain.archive, NULL, 1);
	kvarc_info info;
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	assert_int_equal(info.codecs & 1u << KVI_CODEC_ZSTD, 0);
	kvarc_reader_close(&r);
	blob_free(&plain.archive);
	blob_free(&file);
}

/* Arrays of parameters take less with code lengths for each, and never more. */
static void test_arrays(void **state)
{
	enum { ARRAYS = 5, EACH = 600 };
	static uint8_t content[10 + ARRAYS * EACH];
	struct kvi_alloc alloc;
	struct kvi_packer packer;
	struct kvi_out one, arrays;
	const uint8_t *back;
	uint8_t *owned;
	(void)state;
	kvi_alloc_init(&alloc, NULL, 0);
	kvi_packer_init(&packer, &alloc);
	for (unsigned alike = 0; alike < 2; alike++) {
		kvi_out_init(&one, &alloc);
		kvi_out_init(&arrays, &alloc);
		for (size_t i = 0; i < ARRAYS * EACH; i++)
			content[10 + i] = (uint8_t)(alike ? 7 * below(8)
			                                  : 50 * (i / EACH) + below(4));
		assert_int_equal(kvi_pack(&packer, &one, content, sizeof content, 1), KVARC_OK);
		assert_int_equal(kvi_pack(&packer, &arrays, content, sizeof content, ARRAYS),
		                 KVARC_OK);
		assert_true(arrays.n <= one.n - (alike ? 0 : one.n / 16));
		assert_int_equal(
			kvi_unpack(&packer, arrays.p, arrays.n, sizeof content, &back, &owned),
			KVARC_OK);
		assert_memory_equal(back, content, sizeof content);
		kvi_free(&alloc, owned);
		kvi_out_free(&one);
		kvi_out_free(&arrays);
	}
	kvi_packer_free(&packer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_safetensors),   cmocka_unit_test(test_npy),
		cmocka_unit_test(test_slots),         cmocka_unit_test(test_whole),
		cmocka_unit_test(test_mostly_frames), cmocka_unit_test(test_large),
		cmocka_unit_test(test_failures),      cmocka_unit_test(test_random_chunks),
		cmocka_unit_test(test_appends),       cmocka_unit_test(test_batch),
		cmocka_unit_test(test_rows),          cmocka_unit_test(test_arrays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
