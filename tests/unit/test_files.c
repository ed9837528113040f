/* SPDX-License-Identifier: BSD-3-Clause */
/* test_files.c - files into archives and back: pack, unpack, export, cut */
#include "import_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 8 };

/* Unpacked items. */
struct file_items {
	struct blob file[ITEMS_MAX];
	char name[ITEMS_MAX][64];
	size_t n;
	int skip;       /* item that is not wanted, -1: none */
	int fail_after; /* writes of each that succeed, -1: all */
};

static int take_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct file_items *s = opaque;
	assert_int_equal(item->index, s->n);
	assert_true(s->n < ITEMS_MAX);
	snprintf(s->name[s->n], sizeof s->name[0], "%s", item->name);
	struct blob *b = &s->file[s->n++];
	*b = (struct blob){ calloc(1, (size_t)item->bytes + 1), 0, (size_t)item->bytes + 1,
		            s->fail_after };
	*sink = blob_sink(b);
	return s->skip == (int)item->index;
}

static void free_items(struct file_items *s)
{
	for (size_t i = 0; i < s->n; i++)
		blob_free(&s->file[i]);
	s->n = 0;
}

static kvarc_import *import(struct blob *b, const char *name, const char *rope)
{
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source src = blob_source(b);
	kvarc_import *im;
	o.temp_dir = "/tmp";
	o.rope = rope;
	assert_int_equal(kvarc_import_open(&im, &src, name, &o), KVARC_OK);
	return im;
}

/* The archive of the files in a container. */
static struct blob pack_members(struct blob *b, const char *name, size_t n)
{
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source src = blob_source(b);
	kvarc_sink sink = blob_sink(&out);
	kvarc_import *im;
	o.temp_dir = "/tmp";
	o.members = 1;
	assert_int_equal(kvarc_import_open(&im, &src, name, &o), KVARC_OK);
	assert_int_equal(kvarc_import_members(im), n);
	assert_int_equal(n == 0, kvarc_import_note(im) != NULL);
	assert_int_equal(kvarc_pack(im, &sink, NULL, NULL), KVARC_OK);
	kvarc_import_close(&im);
	return out;
}

static struct blob pack(struct blob *b, const char *name, int level, unsigned threads)
{
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_writer_stats stats;
	kvarc_sink sink = blob_sink(&out);
	kvarc_import *im = import(b, name, NULL);
	o.level = KVARC_LEVEL(level);
	o.common.threads = threads;
	o.common.overlap = threads > 2;
	o.flags = KVARC_WRITE_VERIFY;
	assert_int_equal(kvarc_pack(im, &sink, &o, &stats), KVARC_OK);
	assert_int_equal(stats.file_bytes, out.n);
	kvarc_import_close(&im);
	return out;
}

static void unpack(struct blob *archive, bool piped, unsigned threads, struct file_items *s)
{
	struct blob_pipe pipe;
	kvarc_reader *r = read_archive(archive, piped ? &pipe : NULL, threads);
	*s = (struct file_items){ .skip = -1, .fail_after = -1 };
	assert_int_equal(kvarc_unpack(r, take_item, s), KVARC_OK);
	kvarc_reader_close(&r);
}

static void every_byte_comes_back(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < n_import_files; i++)
		for (int level = 0; level <= 1; level++) {
			const struct expected *e = &import_files[i];
			struct blob b = blob_load(e->name);
			struct blob one = pack(&b, e->name, level, 1);
			struct blob two = pack(&b, e->name, level, 3);
			struct file_items s;
			/* the same input gives the same archive */
			assert_int_equal(one.n, two.n);
			assert_memory_equal(one.p, two.p, one.n);
			for (int piped = 0; piped <= 1; piped++) {
				unpack(&one, piped, piped ? 1 : 3, &s);
				assert_int_equal(s.n, 1);
				assert_int_equal(s.file[0].n, b.n);
				if (b.n)
					assert_memory_equal(s.file[0].p, b.p, b.n);
				assert_string_equal(s.name[0], e->name);
				free_items(&s);
			}
			blob_free(&one);
			blob_free(&two);
			blob_free(&b);
		}
}

/* Whatever the number of threads. */
static void long_input_has_one_id(void **unused)
{
	struct blob b = { malloc(5 << 20), (5 << 20) - 7, 0, -1 };
	(void)unused;
	for (size_t i = 0; i < b.n; i++)
		b.p[i] = (uint8_t)(i >> 18);
	struct blob one = pack(&b, "long", 0, 1);
	for (unsigned threads = 2; threads <= 4; threads++) {
		struct blob more = pack(&b, "long", 0, threads);
		assert_int_equal(one.n, more.n);
		assert_memory_equal(one.p, more.p, one.n);
		blob_free(&more);
	}
	blob_free(&one);
	blob_free(&b);
}

/* Members of a container instead of it, on request. */
static void members(void **unused)
{
	needs_all_parts();
	struct blob zip = blob_load("np-bf16.npz");
	struct blob array = blob_load("layers.0.key.npy");
	struct blob archive = pack_members(&zip, "np-bf16.npz", 5);
	struct file_items s;
	(void)unused;
	unpack(&archive, true, 1, &s);
	assert_int_equal(s.n, 5);
	assert_string_equal(s.name[1], "layers.0.key.npy");
	assert_int_equal(s.file[1].n, array.n);
	assert_memory_equal(s.file[1].p, "\x93NUMPY", 6);
	free_items(&s);

	/* one that is not wanted */
	kvarc_reader *r = read_archive(&archive, NULL, 1);
	s = (struct file_items){ .skip = 0, .fail_after = -1 };
	assert_int_equal(kvarc_unpack(r, take_item, &s), KVARC_OK);
	assert_int_equal(s.file[0].n, 0);
	assert_true(s.file[1].n > 0);
	/* twice is not possible */
	assert_int_equal(kvarc_unpack(r, take_item, &s), KVARC_PROG);
	kvarc_reader_close(&r);
	free_items(&s);
	blob_free(&archive);
	blob_free(&array);
	blob_free(&zip);
}

/* One of them is called ../readme: no folder could take it. */
static void members_that_cannot_be_unpacked(void **unused)
{
	needs_all_parts();
	struct blob zip = blob_load("box-slots.zip");
	struct blob archive = pack_members(&zip, "box-slots.zip", 0);
	struct file_items s;
	(void)unused;
	unpack(&archive, false, 1, &s);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.file[0].n, zip.n);
	assert_memory_equal(s.file[0].p, zip.p, zip.n);
	free_items(&s);
	blob_free(&archive);
	blob_free(&zip);
}

static void sinks_that_fail(void **unused)
{
	needs_all_parts();
	static const char *const names[] = { "ggsq4-q8_0.bin", "ggsq4-f16-vtrans.bin",
		                             "st-htc-bf16.safetensors" };
	(void)unused;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct blob b = blob_load(names[i]);
		struct blob archive = pack(&b, names[i], 1, 1);
		for (int n = 0; n < 4; n++) {
			kvarc_reader *r = read_archive(&archive, NULL, 1);
			struct file_items s = { .skip = -1, .fail_after = n };
			assert_int_equal(kvarc_unpack(r, take_item, &s), KVARC_IO);
			kvarc_reader_close(&r);
			free_items(&s);
		}
		for (int n = 0; n < 8; n++) {
			struct blob out = { NULL, 0, 0, n };
			kvarc_sink sink = blob_sink(&out);
			kvarc_import *im = import(&b, names[i], NULL);
			assert_int_equal(kvarc_pack(im, &sink, NULL, NULL), KVARC_IO);
			kvarc_import_close(&im);
			blob_free(&out);
		}
		blob_free(&archive);
		blob_free(&b);
	}
}

static void file_ids(void **unused)
{
	struct blob b = blob_load("ggsq4-f16.bin");
	struct blob one = pack(&b, "x", 1, 1), two = pack(&b, "y", 1, 1);
	struct blob three = pack(&b, "x", 0, 1), four;
	(void)unused;
	b.p[b.n - 1] ^= 1; /* the last token's last value */
	four = pack(&b, "x", 1, 1);
	assert_memory_not_equal(one.p + 24, two.p + 24, 16);
	assert_memory_not_equal(one.p + 24, three.p + 24, 16);
	assert_memory_not_equal(one.p + 24, four.p + 24, 16);
	blob_free(&one);
	blob_free(&two);
	blob_free(&three);
	blob_free(&four);
	blob_free(&b);
}

static void damaged_archives(void **unused)
{
	struct blob b = blob_load("ggsq4-q8_0.bin");
	struct blob archive = pack(&b, "x", 1, 1);
	(void)unused;
	for (size_t n = 0; n < archive.n; n += 9) {
		kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
		struct blob cut = blob_copy(&archive);
		kvarc_reader *r;
		cut.p[n] ^= 0x10;
		kvarc_source src = blob_source(&cut);
		kvarc_ret ret = kvarc_reader_open(&r, &src, &o);
		struct file_items s = { .skip = -1, .fail_after = -1 };
		if (!ret)
			ret = kvarc_unpack(r, take_item, &s);
		/* whatever is said to be whole is whole */
		if (!ret) {
			assert_int_equal(s.n, 1);
			assert_int_equal(s.file[0].n, b.n);
			assert_memory_equal(s.file[0].p, b.p, b.n);
		}
		kvarc_reader_close(&r);
		free_items(&s);
		blob_free(&cut);
	}
	blob_free(&archive);
	blob_free(&b);
}

/* An archive that ends early, after a commit or anywhere, is no whole file. */
static void cut_archives(void **unused)
{
	struct blob b = blob_load("ggsq4-long.bin");
	struct blob archive = pack(&b, "x", 1, 1);
	unsigned opened = 0;
	(void)unused;
	for (size_t k = 128; k < 2 * archive.n; k += 8) {
		kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
		struct file_items s = { .skip = -1, .fail_after = -1 };
		struct blob part = archive;
		struct blob_pipe pipe = { &part, 0 };
		part.n = k / 16 * 8;
		kvarc_source src = k % 16 ? pipe_source(&pipe) : blob_source(&part);
		kvarc_reader *r;
		if (kvarc_reader_open(&r, &src, &o) == KVARC_OK) {
			kvarc_ret ret = kvarc_unpack(r, take_item, &s);
			/* only the index and the footer may be missing */
			if (!ret)
				assert_memory_equal(s.file[0].p, b.p, b.n);
			else if (ret != KVARC_OPTIONS) /* no item yet */
				assert_int_equal(ret, KVARC_DATA);
			opened += ret == KVARC_DATA;
		}
		kvarc_reader_close(&r);
		free_items(&s);
	}
	assert_true(opened > 0);
	blob_free(&archive);
	blob_free(&b);
}

/* Values of a tensor, whole range. */
static uint8_t *read_tensor(struct blob *archive, uint32_t tensor, size_t *n)
{
	kvarc_reader *r = read_archive(archive, NULL, 1);
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	const kvarc_tensor *t = &g->tensors[tensor];
	kvarc_range all = KVARC_RANGE_ALL(t->track);
	uint32_t es = (uint32_t)kvarc_dtype_bytes(t->dtype);
	uint32_t width = t->heads * t->channels;
	*n = (size_t)kvarc_reader_tokens(r, t->track) * width * es;
	uint8_t *data = malloc(*n);
	kvarc_view *views = calloc(g->n_tensors, sizeof *views);
	assert_true(data && views);
	views[tensor] = (kvarc_view){ .data = data,
		                      .token_stride = (uint64_t)width * es,
		                      .block_elems = width,
		                      .elem_stride = es };
	assert_int_equal(kvarc_reader_read(r, &all, views), KVARC_OK);
	free(views);
	kvarc_reader_close(&r);
	return data;
}

/* What was exported, packed again, has the same tensors and tokens. */
static void exported(void **unused)
{
	needs_all_parts();
	static const char *const names[] = { "ggsq4-f16.bin", "st-htc-bf16.safetensors",
		                             "st-thc-f16.safetensors", "ggsq4-f32-vtrans.bin",
		                             "st-i8.safetensors" };
	(void)unused;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct blob b = blob_load(names[i]);
		struct blob archive = pack(&b, names[i], 1, 1);
		struct blob out = { NULL, 0, 0, -1 };
		kvarc_sink sink = blob_sink(&out);
		kvarc_range all = KVARC_RANGE_ALL(0);
		kvarc_reader *r = read_archive(&archive, NULL, 2);
		assert_int_equal(kvarc_export_safetensors(r, &all, &sink), KVARC_OK);
		bool ids = kvarc_reader_read_tokens(r, 0, 0, 1, &(int32_t){ 0 }, NULL) == KVARC_OK;
		kvarc_reader_close(&r);
		struct blob again = pack(&out, "again", 0, 1);
		for (uint32_t t = 0; t < 4; t++) {
			size_t n, m;
			uint8_t *x = read_tensor(&archive, t, &n);
			uint8_t *y = read_tensor(&again, t, &m);
			assert_int_equal(n, m);
			assert_memory_equal(x, y, n);
			free(x);
			free(y);
		}
		if (ids) {
			int32_t x[5];
			r = read_archive(&again, NULL, 1);
			assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, 5, x, NULL), KVARC_OK);
			assert_int_equal(x[4], 55);
			kvarc_reader_close(&r);
		}
		blob_free(&again);
		blob_free(&out);
		blob_free(&archive);
		blob_free(&b);
	}
}

static void bad_ranges(void **unused)
{
	static const kvarc_range ranges[] = {
		{ .track = 1, .n_layers = UINT32_MAX, .n = UINT64_MAX },
		{ .layer0 = 2, .n_layers = 1, .n = 1 },
		{ .n_layers = 1, .t0 = 6, .n = UINT64_MAX },
		{ .n_layers = 1, .t0 = 5, .n = UINT64_MAX },
		{ .n_layers = 1, .t0 = 4, .n = 2 },
		{ .n = 1 }
	};
	struct blob b = blob_load("ggsq4-f16.bin");
	struct blob archive = pack(&b, "x", 1, 1);
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_sink sink = blob_sink(&out);
	struct blob_pipe pipe;
	(void)unused;
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
		kvarc_reader *r = read_archive(&archive, NULL, 1);
		assert_int_equal(kvarc_export_safetensors(r, &ranges[i], &sink), KVARC_GEOMETRY);
		kvarc_reader_close(&r);
		r = read_archive(&archive, NULL, 1);
		assert_int_equal(kvarc_cut(r, &ranges[i], &sink, NULL, NULL), KVARC_GEOMETRY);
		kvarc_reader_close(&r);
	}
	kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_reader *r = read_archive(&archive, &pipe, 1);
	assert_int_equal(kvarc_cut(r, &all, &sink, NULL, NULL), KVARC_OPTIONS);
	kvarc_reader_close(&r);
	blob_free(&out);
	blob_free(&archive);
	blob_free(&b);
}

/* A cut has the tokens and layers of its range, and nothing else. */
static void cuts(void **unused)
{
	struct blob b = blob_load("ggsq4-iswa.bin");
	struct blob archive = pack(&b, "x", 1, 1);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_range range = { .track = 1, .layer0 = 3, .n_layers = 2, .t0 = 1, .n = 2 };
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_sink sink = blob_sink(&out);
	kvarc_writer_stats stats;
	int32_t ids[2], positions[2];
	kvarc_reader *r = read_archive(&archive, NULL, 1);
	(void)unused;
	o.common.threads = 2;
	assert_int_equal(kvarc_cut(r, &range, &sink, &o, &stats), KVARC_OK);
	assert_int_equal(stats.file_bytes, out.n);
	kvarc_reader_close(&r);

	r = read_archive(&out, NULL, 1);
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	assert_int_equal(g->n_tracks, 1);
	assert_int_equal(g->tracks[0].kind, KVARC_TRACK_WINDOW);
	assert_int_equal(g->n_tensors, 4);
	assert_int_equal(g->tensors[0].layer, 3);
	assert_int_equal(kvarc_reader_tokens(r, 0), 2);
	assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, 2, ids, positions), KVARC_OK);
	assert_int_equal(ids[0], 44);
	assert_int_equal(positions[1], 4);
	assert_string_equal(kvarc_reader_identity(r, "engine"), "llama.cpp");
	struct file_items s = { .skip = -1, .fail_after = -1 };
	assert_int_equal(kvarc_unpack(r, take_item, &s), KVARC_OPTIONS);
	kvarc_reader_close(&r);

	/* tensor 1 of the cut is the value of layer 3: tensor 7 of the whole */
	size_t n, m;
	uint8_t *x = read_tensor(&archive, 7, &n), *y = read_tensor(&out, 1, &m);
	assert_int_equal(m, n / 3 * 2);
	assert_memory_equal(x + n / 3, y, m);
	free(x);
	free(y);
	blob_free(&out);
	blob_free(&archive);
	blob_free(&b);
}

/* One key of 4 heads, big enough for a chunk a head. */
static struct blob wide_file(void)
{
	static const char header[] = "{\"layers.0.key\":{\"dtype\":\"BF16\",\"shape\":[4,256,200],"
				     "\"data_offsets\":[0,409600]}}";
	struct blob b = { NULL, 0, 0, -1 };
	kvarc_sink sink = blob_sink(&b);
	uint8_t head[8] = { sizeof header - 1 }, row[400];
	uint32_t x = 1;
	sink.write(&b, head, 8, 0);
	sink.write(&b, header, sizeof header - 1, 8);
	for (int i = 0; i < 1024; i++) {
		for (int k = 0; k < 400; k++) {
			x = x * 1664525 + 1013904223;
			row[k] = (uint8_t)(k % 2 ? 0x3f + (x >> 31) : x >> 24);
		}
		sink.write(&b, row, sizeof row, b.n);
	}
	return b;
}

/* Chunks of one head each, on both sides. */
static void cuts_by_heads(void **unused)
{
	needs_all_parts();
	struct blob b = wide_file();
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	struct blob archive = { NULL, 0, 0, -1 }, out = { NULL, 0, 0, -1 };
	kvarc_sink to_archive = blob_sink(&archive), sink = blob_sink(&out);
	kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_import *im = import(&b, "x", NULL);
	kvarc_writer_stats stats;
	struct file_items s;
	size_t n, m;
	(void)unused;
	o.chunk_bytes = 1;
	assert_int_equal(kvarc_pack(im, &to_archive, &o, &stats), KVARC_OK);
	assert_int_equal(stats.chunks, 8);
	kvarc_import_close(&im);
	kvarc_reader *r = read_archive(&archive, NULL, 1);
	assert_int_equal(kvarc_cut(r, &range, &sink, &o, &stats), KVARC_OK);
	assert_int_equal(stats.chunks, 8);
	kvarc_reader_close(&r);
	uint8_t *x = read_tensor(&archive, 0, &n), *y = read_tensor(&out, 0, &m);
	assert_int_equal(n, m);
	assert_memory_equal(x, y, n);
	free(x);
	free(y);
	unpack(&archive, false, 2, &s);
	assert_memory_equal(s.file[0].p, b.p, b.n);
	free_items(&s);
	blob_free(&out);
	blob_free(&archive);
	blob_free(&b);
}

/* Salvage gives what is left: bytes are those of the file, or zero. */
static void salvaged(void **unused)
{
	static const char *const names[] = { "ggsq4-q5_1.bin", "ggsq4-f16-vtrans.bin",
		                             "st-htc-bf16.safetensors" };
	(void)unused;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct blob b = blob_load(names[i]);
		struct blob archive = pack(&b, names[i], 1, 1);
		unsigned given = 0;
		for (size_t at = 64; at < archive.n; at += 13) {
			kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
			struct blob bad = blob_copy(&archive);
			struct file_items s = { .skip = -1, .fail_after = -1 };
			kvarc_source src = blob_source(&bad);
			kvarc_reader *r;
			o.flags = KVARC_READ_SALVAGE;
			bad.p[at] ^= 4;
			kvarc_ret ret = kvarc_reader_open(&r, &src, &o);
			if (!ret)
				ret = kvarc_unpack(r, take_item, &s);
			assert_true(ret == KVARC_OK || ret == KVARC_DATA);
			for (size_t k = 0; !ret && k < b.n; k++)
				assert_true(s.file[0].p[k] == b.p[k] || s.file[0].p[k] == 0);
			given += !ret;
			kvarc_reader_close(&r);
			free_items(&s);
			blob_free(&bad);
		}
		assert_true(given > archive.n / 13 / 2);
		blob_free(&archive);
		blob_free(&b);
	}
}

static void no_memory(void **unused)
{
	struct blob b = blob_load("ggsq4-long.bin");
	struct blob archive = pack(&b, "x", 1, 1);
	(void)unused;
	for (long n = 0;; n++) {
		struct failing f;
		kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
		struct blob out = { NULL, 0, 0, -1 };
		kvarc_sink sink = blob_sink(&out);
		kvarc_import *im = import(&b, "x", NULL);
		failing_init(&f, n);
		o.common.allocator = &f.fn;
		kvarc_ret ret = kvarc_pack(im, &sink, &o, NULL);
		assert_true(ret == KVARC_OK || ret == KVARC_MEM);
		kvarc_import_close(&im);
		assert_int_equal(f.held, 0);
		blob_free(&out);
		if (!ret)
			break;
	}
	for (long n = 0;; n++) {
		struct failing f;
		kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
		kvarc_source src = blob_source(&archive);
		struct file_items s = { .skip = -1, .fail_after = -1 };
		kvarc_reader *r;
		failing_init(&f, n);
		o.common.allocator = &f.fn;
		kvarc_ret ret = kvarc_reader_open(&r, &src, &o);
		if (!ret)
			ret = kvarc_unpack(r, take_item, &s);
		assert_true(ret == KVARC_OK || ret == KVARC_MEM);
		kvarc_reader_close(&r);
		assert_int_equal(f.held, 0);
		free_items(&s);
		if (!ret)
			break;
	}
	blob_free(&archive);
	blob_free(&b);
}

/* Pairs of the caller replace those of the file; some belong to the library. */
static void identities(void **state)
{
	struct blob in = blob_load("ggsq4-f16.bin"), out[3];
	uint8_t ids[3][16];
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		kvarc_import *im = import(&in, "x", NULL);
		kvarc_reader *r;
		kvarc_info info;
		out[i] = (struct blob){ NULL, 0, 0, -1 };
		kvarc_sink sink = blob_sink(&out[i]);
		assert_int_equal(kvarc_import_identity(im, i == 1 ? "ab" : "a", "b"), KVARC_OK);
		assert_int_equal(kvarc_import_identity(im, "engine", i ? "" : "other"), KVARC_OK);
		assert_int_equal(kvarc_import_identity(im, "lossy", "0"), KVARC_PROG);
		assert_int_equal(kvarc_import_identity(im, "layout", "0"), KVARC_PROG);
		assert_int_equal(kvarc_import_identity(im, "created_by", "me"), KVARC_PROG);
		assert_int_equal(kvarc_import_identity(im, "", "0"), KVARC_PROG);
		assert_int_equal(kvarc_import_identity(im, NULL, "0"), KVARC_PROG);
		assert_int_equal(kvarc_import_identity(im, "a", NULL), KVARC_PROG);
		assert_int_equal(kvarc_import_identity(NULL, "a", "b"), KVARC_PROG);
		assert_int_equal(kvarc_pack(im, &sink, NULL, NULL), KVARC_OK);
		kvarc_import_close(&im);
		kvarc_source src = blob_source(&out[i]);
		assert_int_equal(kvarc_reader_open(&r, &src, NULL), KVARC_OK);
		assert_string_equal(kvarc_reader_identity(r, i == 1 ? "ab" : "a"), "b");
		if (i)
			assert_null(kvarc_reader_identity(r, "engine"));
		else
			assert_string_equal(kvarc_reader_identity(r, "engine"), "other");
		assert_non_null(kvarc_reader_identity(r, "created_by"));
		assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
		memcpy(ids[i], info.file_id, 16);
		kvarc_reader_close(&r);
	}
	/* Other identities are other archives, also where only the key differs. */
	assert_memory_not_equal(ids[0], ids[2], 16);
	assert_memory_not_equal(ids[1], ids[2], 16);
	for (unsigned i = 0; i < 3; i++)
		blob_free(&out[i]);
	blob_free(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identities),
		cmocka_unit_test(every_byte_comes_back),
		cmocka_unit_test(long_input_has_one_id),
		cmocka_unit_test(members),
		cmocka_unit_test(members_that_cannot_be_unpacked),
		cmocka_unit_test(sinks_that_fail),
		cmocka_unit_test(file_ids),
		cmocka_unit_test(damaged_archives),
		cmocka_unit_test(cut_archives),
		cmocka_unit_test(exported),
		cmocka_unit_test(bad_ranges),
		cmocka_unit_test(cuts),
		cmocka_unit_test(cuts_by_heads),
		cmocka_unit_test(salvaged),
		cmocka_unit_test(no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
