/* SPDX-License-Identifier: BSD-3-Clause */
/* test_large_files.c - files of many segments come back in few writes */
#include "import_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A sink of a file that counts its writes. */
struct counted_writes {
	struct blob file;
	size_t writes;
};

static int write_counted(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct counted_writes *c = opaque;
	assert_true(offset + bytes <= c->file.cap);
	memcpy(c->file.p + offset, buf, bytes);
	c->file.n = offset + bytes > c->file.n ? (size_t)offset + bytes : c->file.n;
	c->writes++;
	return 0;
}

static int open_counted(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct counted_writes *c = opaque;
	*c = (struct counted_writes){ .file = { calloc(1, (size_t)item->bytes), 0,
		                                (size_t)item->bytes, -1 } };
	*sink = (kvarc_sink){ .write = write_counted, .opaque = c };
	return 0;
}

/* A layout of a file; grouped: tokens of a head, or of a tensor, lie together. */
struct large_layout {
	const char *raw, *axes;
	bool grouped;
};

/* Layers 0 and 1, keys and values of 4 heads of 64 channels. */
enum { LARGE_TOKENS = 4133, LARGE_TOKEN = 2 * 2 * 4 * 64 * 2 };

/* A safetensors file, whose shapes the axes say, or elements alone. */
static struct blob large_file(const struct large_layout *layout)
{
	const size_t tensor = (size_t)LARGE_TOKENS * LARGE_TOKEN / 4;
	struct blob b = { malloc(4 * tensor + 4096), 0, 0, -1 };
	char text[1024];
	uint32_t x = 1;
	assert_non_null(b.p);
	if (layout->axes) {
		int n = 0;
		for (int i = 0; i < 4; i++) {
			n += snprintf(text + n, sizeof text - (size_t)n,
			              "%c\"layers.%d.%s\":{\"dtype\":\"BF16\",\"shape\":[",
			              i ? ',' : '{', i / 2, i % 2 ? "value" : "key");
			for (int k = 0; k < 3; k++) {
				const int axis = layout->axes[k];
				n += snprintf(text + n, sizeof text - (size_t)n, "%s%d",
				              k ? "," : "",
				              axis == 'h'   ? 4
				              : axis == 'c' ? 64
				                            : LARGE_TOKENS);
			}
			n += snprintf(text + n, sizeof text - (size_t)n,
			              "],\"data_offsets\":[%zu,%zu]}", (size_t)i * tensor,
			              (size_t)(i + 1) * tensor);
		}
		n += snprintf(text + n, sizeof text - (size_t)n, "}");
		const uint8_t bytes[8] = { (uint8_t)n, (uint8_t)(n >> 8) };
		memcpy(b.p, bytes, 8);
		memcpy(b.p + 8, text, (size_t)n);
		b.n = 8 + (size_t)n;
	}
	for (size_t i = 0; i < 2 * tensor; i++) {
		x = x * 1664525 + 1013904223;
		b.p[b.n++] = (uint8_t)(x >> 24);
		b.p[b.n++] = (uint8_t)(0x3e + (x >> 22 & 1) + (x >> 8 & 0x80));
	}
	return b;
}

static kvarc_import *import_large(struct blob *b, const struct large_layout *layout)
{
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source src = blob_source(b);
	kvarc_import *im;
	o.raw = layout->raw;
	o.axes = layout->axes;
	o.rope = "none";
	assert_int_equal(kvarc_import_open(&im, &src, "large", &o), KVARC_OK);
	if (kvarc_import_note(im))
		fail_msg("%s: %s", layout->raw ? layout->raw : layout->axes, kvarc_import_note(im));
	assert_int_equal(kvarc_import_tokens(im, 0), LARGE_TOKENS);
	return im;
}

/* Damage in a chunk that is passed is found where it is decoded. */
static void check_damaged(struct blob *archive)
{
	kvarc_error e = { 0 };
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source src = blob_source(archive);
	struct counted_writes got;
	kvarc_reader *r;
	o.common.error = &e;
	archive->p[archive->n / 2] ^= 1;
	assert_int_equal(kvarc_reader_open(&r, &src, &o), KVARC_OK);
	assert_int_equal(kvarc_unpack(r, open_counted, &got), KVARC_DATA);
	assert_non_null(strstr(e.text, "is damaged"));
	kvarc_reader_close(&r);
	free(got.file.p);
	archive->p[archive->n / 2] ^= 1;
}

/* Elements of many segments are written at once, where a file has them together. */
static void large_files(void **unused)
{
	static const struct large_layout layouts[] = {
		{ "bf16,2LHTD,L=2,H=4,D=64", NULL, true },
		{ "bf16,2LTHD,L=2,H=4,D=64", NULL, true },
		{ "bf16,L2THD,L=2,H=4,D=64", NULL, true },
		{ "bf16,2HTLD,L=2,H=4,D=64", NULL, false },
		{ "bf16,LTH2D,L=2,H=4,D=64", NULL, false },
		{ NULL, "htc", true },
		{ NULL, "thc", true },
	};
	(void)unused;
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
		if (layouts[i].axes && !reads_safetensors())
			continue;
		struct blob b = large_file(&layouts[i]), archive = { NULL, 0, 0, -1 };
		kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
		kvarc_sink sink = blob_sink(&archive);
		kvarc_import *im = import_large(&b, &layouts[i]);
		o.level = i % 2 ? KVARC_LEVEL(1) : KVARC_LEVEL(0);
		o.common.threads = 2;
		assert_int_equal(kvarc_pack(im, &sink, &o, NULL), KVARC_OK);
		kvarc_import_close(&im);
		for (unsigned threads = 0; threads <= 4; threads++) {
			struct counted_writes got;
			struct blob_pipe pipe;
			kvarc_reader *r = read_archive(&archive, threads ? NULL : &pipe, threads);
			assert_int_equal(kvarc_unpack(r, open_counted, &got), KVARC_OK);
			kvarc_reader_close(&r);
			assert_int_equal(got.file.n, b.n);
			assert_memory_equal(got.file.p, b.p, b.n);
			/* of 8 segments, in which a tensor has 1 MiB, three times */
			if (layouts[i].grouped && threads)
				assert_true(got.writes <= 4 * 4 * 3 + 1);
			free(got.file.p);
		}
		check_damaged(&archive);
		blob_free(&archive);
		blob_free(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(large_files) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
