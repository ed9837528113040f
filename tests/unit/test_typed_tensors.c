/* SPDX-License-Identifier: BSD-3-Clause */
/* test_typed_tensors.c - tensors that no rule knows: by their types, or as bytes */
#include "import_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/import.h"
#include "files/import_internal.h"
#include "files/kv_rules.h"
#include "files/named_tensors.h"

/* ----- files of one tensor ---------------------------------------------- */

static uint64_t state;

static uint32_t next(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33);
}

/* A number with a bell shape, which is wider for some columns. */
static float number_of(uint64_t column)
{
	float sum = -2;
	for (int i = 0; i < 4; i++)
		sum += (float)(next() % 65536) / 65536;
	return sum * (float)(1u << (column * 7 % 11));
}

/* Makes a safetensors file of a tensor; column: of the element, of which it says the scale. */
static struct blob make(const char *dtype, const char *shape, uint64_t n,
                        uint64_t (*column)(uint64_t i))
{
	struct blob b = { .fail_after = -1 };
	kvarc_sink sink = blob_sink(&b);
	const unsigned es = !strcmp(dtype, "BF16") ? 2 : 4;
	char text[256];
	uint8_t head[8] = { 0 };
	int bytes = snprintf(text, sizeof text,
	                     "{\"dump/3/att\":{\"dtype\":\"%s\",\"shape\":[%s],"
	                     "\"data_offsets\":[0,%llu]}}",
	                     dtype, shape, (unsigned long long)n * es);
	state = 7;
	head[0] = (uint8_t)bytes;
	assert_int_equal(sink.write(&b, head, 8, 0), 0);
	assert_int_equal(sink.write(&b, text, (size_t)bytes, b.n), 0);
	uint8_t *p = malloc((size_t)n * es);
	assert_non_null(p);
	for (uint64_t i = 0; i < n; i++) {
		uint32_t word = next() << 16 ^ next();
		const float f = column ? number_of(column(i)) : 0;
		if (column)
			memcpy(&word, &f, 4);
		word >>= 32 - 8 * es;
		memcpy(p + i * es, &word, es);
	}
	assert_int_equal(sink.write(&b, p, (size_t)n * es, b.n), 0);
	free(p);
	return b;
}

static uint64_t by_64(uint64_t i)
{
	return i % 64;
}

static uint64_t by_head_of_96(uint64_t i)
{
	return i / (96 * 64) * 5 + i % 64;
}

static uint64_t by_row_of_200(uint64_t i)
{
	return i / 200;
}

static uint64_t by_page(uint64_t i)
{
	return i / (16 * 64) % 2 * 5 + i % 64;
}

static kvarc_import *open_file(struct blob *b, int by_type, const char *rules)
{
	kvarc_source src = blob_source(b);
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	o.by_type = by_type;
	o.kv_rule = rules;
	assert_int_equal(kvarc_import_open(&im, &src, "dump", &o), KVARC_OK);
	return im;
}

/* Packs it, with or without its types, and compares what comes back; the bytes of the archive. */
static size_t pack(struct blob *b, int by_type, int level)
{
	kvarc_import *im = open_file(b, by_type, NULL);
	struct blob archive = { .fail_after = -1 };
	kvarc_sink sink = blob_sink(&archive);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.level = KVARC_LEVEL(level);
	o.flags = KVARC_WRITE_KEEP_WHOLE;
	assert_int_equal(kvarc_pack(im, &sink, &o, NULL), KVARC_OK);
	kvarc_reader *r = read_archive(&archive, NULL, 1);
	assert_int_equal(kvi_import_compare(im, r, NULL), KVARC_OK);
	kvarc_reader_close(&r);
	kvarc_import_close(&im);
	const size_t n = archive.n;
	blob_free(&archive);
	return n;
}

/* ----- what they are coded as -------------------------------------------- */

static void ways(void **unused)
{
	static const struct {
		const char *dtype, *shape;
		uint64_t n;
		uint64_t (*column)(uint64_t);
		uint32_t tensors, heads, channels, tokens;
	} cases[] = {
		{ "BF16", "1, 3, 96, 64", 18432, by_head_of_96, 1, 3, 64, 96 },
		{ "BF16", "2, 2, 3, 96, 64", 73728, by_head_of_96, 4, 3, 64, 96 },
		{ "BF16", "300, 64", 19200, by_64, 1, 1, 64, 300 },
		{ "BF16", "40, 2, 16, 64", 81920, by_page, 1, 2, 64, 640 },
		{ "BF16", "32, 200", 6400, by_row_of_200, 1, 32, 1, 200 },
		{ "BF16", "6411", 6411, by_64, 1, 1, 64, 100 },
	};
	(void)unused;
	needs_all_parts();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct blob b = make(cases[i].dtype, cases[i].shape, cases[i].n, cases[i].column);
		kvarc_import *im = open_file(&b, 1, NULL);
		const kvarc_geometry *g = kvarc_import_geometry(im);
		print_message("%s %s\n", cases[i].dtype, cases[i].shape);
		assert_int_equal(g->n_tensors, cases[i].tensors);
		assert_int_equal(g->n_tracks, 1);
		assert_int_equal(g->tracks[0].kind, KVARC_TRACK_OTHER);
		assert_int_equal(g->tensors[0].kind, KVARC_OPAQUE);
		assert_int_equal(g->tensors[0].layer, 3);
		assert_int_equal(g->tensors[0].heads, cases[i].heads);
		assert_int_equal(g->tensors[0].channels, cases[i].channels);
		assert_int_equal(kvarc_import_tokens(im, 0), cases[i].tokens);
		assert_non_null(strstr(kvarc_import_note(im), "coded by their types"));
		kvarc_import_close(&im);
		for (int level = 0; level < 2; level++)
			assert_true(pack(&b, 1, level) < pack(&b, 0, level) * 97 / 100);
		blob_free(&b);
	}
}

/* Nothing is gained: bytes, and not one more than without the option. */
static void bytes_are_smaller(void **unused)
{
	(void)unused;
	needs_all_parts();
	struct blob b = make("BF16", "128, 128", 16384, NULL);
	kvarc_import *im = open_file(&b, 1, NULL);
	assert_int_equal(kvarc_import_geometry(im)->n_tensors, 0);
	assert_non_null(strstr(kvarc_import_note(im), "kept as bytes"));
	kvarc_import_close(&im);
	assert_int_equal(pack(&b, 1, 1), pack(&b, 0, 1));
	blob_free(&b);
	/* equal rows, which Zstandard finds */
	b = make("F32", "64, 1000", 64000, by_64);
	for (size_t i = b.n - 4 * 63000; i < b.n; i++)
		b.p[i] = b.p[i - 4000];
	assert_true(pack(&b, 1, 1) <= pack(&b, 0, 1));
	blob_free(&b);
	b = make("I32", "128, 64", 8192, by_64);
	im = open_file(&b, 1, NULL);
	assert_int_equal(kvarc_import_geometry(im)->n_tensors, 0);
	kvarc_import_close(&im);
	blob_free(&b);
}

/* A rule has precedence, and the message says one that works. */
static void suggested_rule(void **unused)
{
	static const struct {
		const char *name, *rule;
		uint8_t n_axes;
		uint64_t first;
	} cases[] = {
		{ "cache.layers.0.keys", "cache.layers.{layer}.{keys|values} bhtc", 4, 1 },
		{ "cache_k_l0", "cache_{k|v}_l{layer} bhtc", 4, 1 },
		{ "m.7.attn.1.V", "m.{layer}.attn.{number}.{K|V} htc", 3, 8 },
		{ "m.7.attn", "m.{layer}.attn 2thc", 4, 2 },
		{ "kv.7.value", "kv.{layer}.{key|value} tc", 2, 9 },
		{ "monkey.value", "monkey.{key|value} tc", 2, 9 },
		{ "weight", NULL, 2, 9 },
		{ "weight", NULL, 5, 9 },
		{ "keys", "{keys|values} lbhtc", 5, 9 },
		{ "all", "all 2lhtc", 5, 2 },
		{ "a.{7}.k", NULL, 2, 9 },
		{ "layer 7 k", NULL, 2, 9 },
		{ "7.k", NULL, 1, 9 },
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct kvi_named x = { .name = cases[i].name,
			                     .n_axes = cases[i].n_axes,
			                     .shape = { cases[i].first, 3, 96, 64, 8 } };
		char rule[KVI_RULE_SUGGESTED];
		const bool any = kvi_rule_suggest(rule, &x);
		assert_int_equal(any, cases[i].rule != NULL);
		if (any)
			assert_string_equal(rule, cases[i].rule);
	}
	char longest[2 * KVI_RULE_SUGGESTED], rule[KVI_RULE_SUGGESTED];
	memset(longest, 'x', sizeof longest);
	memcpy(longest + sizeof longest - 3, "7k", 3);
	const struct kvi_named y = { .name = longest, .n_axes = 2, .shape = { 9, 9 } };
	assert_false(kvi_rule_suggest(rule, &y));

	needs_all_parts();
	struct blob b = make("BF16", "2, 100, 3, 64", 38400, by_64);
	kvarc_import *im = open_file(&b, 1, NULL);
	assert_non_null(strstr(kvarc_import_note(im), "--kv-rule 'dump/{layer}/att 2thc'"));
	kvarc_import_close(&im);
	im = open_file(&b, 1, "dump/{layer}/att 2thc");
	assert_null(kvarc_import_note(im));
	assert_int_equal(kvarc_import_geometry(im)->tensors[0].kind, KVARC_KEY);
	assert_int_equal(kvarc_import_tokens(im, 0), 100);
	kvarc_import_close(&im);
	blob_free(&b);
}

/* Tensors with an axis of layers are as many tensors as that has, with elements of their own. */
static void layers(void **unused)
{
	static const struct {
		const char *rule;
		unsigned stride_layer, stride_value; /* in tensors of 3 x 96 x 64 */
	} cases[] = { { "dump/3/att l2htc", 2, 1 }, { "dump/3/att 2lhtc", 1, 2 } };
	const size_t one = 3 * 96 * 64, channels = 64;
	(void)unused;
	needs_all_parts();
	struct blob b = make("BF16", "2, 2, 3, 96, 64", 4 * one, by_head_of_96);
	const uint8_t *elements = b.p + b.n - 4 * one * 2;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		kvarc_import *im = open_file(&b, 0, cases[i].rule);
		const kvarc_geometry *g = kvarc_import_geometry(im);
		assert_int_equal(g->n_tensors, 4);
		assert_int_equal(g->n_tracks, 1);
		assert_int_equal(kvarc_import_tokens(im, 0), 96);
		for (uint32_t t = 0; t < 4; t++) {
			uint8_t got[64 * 2];
			const size_t at = (g->tensors[t].layer * cases[i].stride_layer +
			                   g->tensors[t].kind * cases[i].stride_value) *
			                          one +
			                  (2 * 96 + 5) * channels;
			assert_true(g->tensors[t].kind <= KVARC_VALUE && g->tensors[t].layer < 2);
			assert_int_equal(g->tensors[t].heads, 3);
			assert_int_equal(kvarc_import_fetch(im, t, 2, 1, 5, 1, got), 0);
			assert_memory_equal(got, elements + at * 2, sizeof got);
		}
		kvarc_import_close(&im);
	}
	/* pages are no layers: fewer tokens than heads, or more of them than a model has */
	const struct kvi_named pages = { .n_axes = 5, .shape = { 200, 2, 3, 16, 64 } };
	struct kvi_axes axes;
	assert_true(kvi_axes_take(&pages, "l2htc", &axes));
	assert_int_equal(axes.stacked, 400);
	assert_false(kvi_axes_take(&pages, "2lhtc", &axes));
	blob_free(&b);
}

/* The option changes nothing of a file with a cache. */
static void caches(void **unused)
{
	(void)unused;
	needs_all_parts();
	struct blob b = blob_load("st-htc-bf16.safetensors");
	for (int by_type = 0; by_type < 2; by_type++) {
		kvarc_import *im = open_file(&b, by_type, NULL);
		assert_int_equal(kvarc_import_geometry(im)->n_tensors, 4);
		assert_int_equal(kvarc_import_geometry(im)->tensors[0].kind, KVARC_KEY);
		kvarc_import_close(&im);
	}
	blob_free(&b);
	/* a slot without tokens has a track all the same, and one of them only */
	b = blob_load("ggsq4-empty.bin");
	kvarc_import *im = open_file(&b, 1, NULL);
	assert_int_equal(kvarc_import_geometry(im)->n_tracks, 1);
	kvarc_import_close(&im);
	blob_free(&b);
}

static void no_memory(void **unused)
{
	(void)unused;
	needs_all_parts();
	struct blob b = make("BF16", "2, 3, 96, 64", 36864, by_64);
	for (long n = 0;; n++) {
		struct failing f;
		kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
		kvarc_source src = blob_source(&b);
		kvarc_import *im;
		failing_init(&f, n);
		o.common.allocator = &f.fn;
		o.by_type = 1;
		kvarc_ret ret = kvarc_import_open(&im, &src, "x", &o);
		assert_true(ret == KVARC_OK || ret == KVARC_MEM);
		kvarc_import_close(&im);
		assert_int_equal(f.held, 0);
		if (ret == KVARC_OK)
			break;
	}
	blob_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ways),   cmocka_unit_test(bytes_are_smaller),
		cmocka_unit_test(caches), cmocka_unit_test(suggested_rule),
		cmocka_unit_test(layers), cmocka_unit_test(no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
