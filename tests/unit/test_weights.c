/* SPDX-License-Identifier: BSD-3-Clause */
/* test_weights.c - models: every architecture, every type of numbers, frequencies */
#include "config.h"

#include "models_util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/bytes.h"

static struct kvi_alloc alloc;
static char found[MODEL_TEXT_MAX];

/* The text is as that of a file beside the model. */
static void check_text(const struct kvi_model_file *m, const char *file)
{
	struct blob expected = blob_load(file);
	model_text(m, found);
	bool same = strlen(found) == expected.n && !memcmp(found, expected.p, expected.n);
	if (!same)
		fail_msg("%s: other than expected, found is\n%s", file, found);
	blob_free(&expected);
}

static void open_model(const char *name, const char *expected)
{
	const char *dir = getenv("srcdir");
	struct kvi_model_file *m;
	char path[1024];
	kvarc_error e = { .text = "" };
	kvi_alloc_init(&alloc, NULL, 1 << 22);
	snprintf(path, sizeof path, "%s/tests/data/models/%s", dir ? dir : ".", name);
	kvarc_ret ret = kvi_model_file_open(&m, &alloc, path, &e);
	if (ret)
		fail_msg("%s: %d %s", name, ret, e.text);
	snprintf(path, sizeof path, "../models/%s", expected);
	check_text(m, path);
	kvi_model_file_close(&m);
	assert_null(m);
	kvi_model_file_close(&m);
	assert_int_equal(alloc.used, 0);
}

static void test_ggufs(void **state)
{
	(void)state;
	open_model("llama.gguf", "llama.txt");
	open_model("qwen2.gguf", "qwen2.txt");
	open_model("qwen3.gguf", "qwen3.txt");
	open_model("gemma3.gguf", "gemma3.txt");
	open_model("gpt2.gguf", "gpt2.txt");
}

static void test_folders(void **state)
{
	(void)state;
	if (!reads_safetensors())
		skip();
	open_model("llama", "llama.folder.txt");
	open_model("llama/", "llama.folder.txt");
	open_model("mistral", "mistral.folder.txt");
	open_model("qwen2", "qwen2.folder.txt");
	open_model("qwen3", "qwen3.folder.txt");
	open_model("gemma3", "gemma3.folder.txt");
	open_model("gpt2", "gpt2.folder.txt");
}

/* Blocks of random bits, against the values that the gguf package makes of them. */
static void test_numbers(void **state)
{
	struct blob b = blob_load("../models/numbers.bin");
	unsigned types = 0;
	(void)state;
	for (size_t at = 0; at < b.n; types++) {
		uint32_t bytes = kvi_load32(b.p + at + 8);
		struct kvi_matrix m = { .type = b.p[at],
			                .rows = 2,
			                .columns = kvi_load32(b.p + at + 4),
			                .data = b.p + at + 12 };
		at += 12 + bytes;
		if (matrix_hash(&m) != kvi_load64(b.p + at))
			fail_msg("type %u", m.type);
		at += 8;
	}
	assert_int_equal(types, 12);
	blob_free(&b);
}

static void test_groups(void **state)
{
	static const struct {
		unsigned type, group;
		bool minima;
	} expected[] = { { KVI_NUM_F32, 0, false },
		         { KVI_NUM_F16, 0, false },
		         { KVI_NUM_BF16, 0, false },
		         { KVI_NUM_Q4_0, 32, false },
		         { KVI_NUM_Q4_1, 32, true },
		         { KVI_NUM_Q5_0, 32, false },
		         { KVI_NUM_Q5_1, 32, true },
		         { KVI_NUM_Q8_0, 32, false },
		         { KVI_NUM_Q4_K, 32, true },
		         { KVI_NUM_Q5_K, 32, true },
		         { KVI_NUM_Q6_K, 16, false },
		         { KVI_NUM_IQ4_NL, 32, false },
		         { 99, 0, false } };
	(void)state;
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		struct kvi_number_groups g = kvi_number_groups(expected[i].type);
		assert_int_equal(g.group, expected[i].group);
		assert_int_equal(g.minima, expected[i].minima);
	}
}

/* A scale, a minimum or a number that is not finite is an error that names the tensor. */
static void test_not_finite(void **state)
{
	static const struct {
		uint8_t type, at; /* of a binary16 in a row */
		uint16_t half;
	} cases[] = { { KVI_NUM_Q4_0, 0, 0x7c00 },   { KVI_NUM_Q4_1, 2, 0xfe00 },
		      { KVI_NUM_Q5_1, 0, 0xfc00 },   { KVI_NUM_Q8_0, 0, 0x7e01 },
		      { KVI_NUM_Q4_K, 2, 0x7c00 },   { KVI_NUM_Q5_K, 0, 0x7c00 },
		      { KVI_NUM_Q6_K, 208, 0x7c00 }, { KVI_NUM_F16, 6, 0x7c00 },
		      { KVI_NUM_BF16, 2, 0x7f80 },   { KVI_NUM_F32, 2, 0x7f80 } };
	float x[256], scale[16], minimum[16];
	int8_t q[256];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct kvi_number_info *t = kvi_number_info(cases[i].type);
		uint8_t raw[2 * 1024];
		memset(raw, 1, sizeof raw);
		struct kvi_matrix m = {
			.type = cases[i].type, .rows = 2, .columns = 256, .data = raw
		};
		kvi_store16(raw + 256 / t->elements * t->bytes + cases[i].at, cases[i].half);
		assert_true(kvi_matrix_row(&m, 0, x));
		assert_false(kvi_matrix_row(&m, 1, x));
		if (!kvi_number_groups(m.type).group)
			continue;
		assert_true(kvi_matrix_integers(&m, 0, q, scale, minimum));
		assert_false(kvi_matrix_integers(&m, 1, q, scale, minimum));
	}
}

/* As a power of the C library, but for its last bits; and numbers so near to a tie that
 * binary64 gets them wrong, by decimal arithmetic of 40 digits. */
static void test_frequencies(void **state)
{
	static const double bases[] = { 1.5, 2,   10000, 100000, 160000, 500000,
		                        1e6, 5e6, 1e7,   1e10,   1e12 };
	static const struct {
		double theta;
		uint32_t rotary, i;
		uint64_t freq;
	} ties[] = { { 2, 512, 77, 36367692401720 },
		     { 1e4, 512, 14, 27071350605281 },
		     { 5e5, 512, 1, 42559676867112 },
		     { 1e6, 450, 27, 8536108438484 } };
	uint64_t freq[256];
	(void)state;
	for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
		for (uint32_t n = 2; n <= 512; n += n < 16 ? 2 : 62) {
			struct kvi_rope_rule rule = { .rotary = n, .theta = bases[i] };
			assert_true(kvi_rope_rule_freq(&rule, freq));
			for (uint32_t k = 0; k < n / 2; k++) {
				double f = pow(bases[i], -2.0 * k / n) * 0x1p48 / 6.283185307179586;
				assert_true(freq[k] % 65536 == 0);
				assert_true(fabs((double)(freq[k] >> 16) - f) < 0.51);
			}
		}
	for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) {
		struct kvi_rope_rule rule = { .rotary = ties[i].rotary, .theta = ties[i].theta };
		assert_true(kvi_rope_rule_freq(&rule, freq));
		assert_true(freq[ties[i].i] >> 16 == ties[i].freq);
	}
}

static void test_bad_rules(void **state)
{
	const struct kvi_rope_rule good = { 8, 10000, KVI_ROPE_LLAMA3, 8, 1, 4, 8192 };
	struct kvi_rope_rule bad[12];
	uint64_t freq[4];
	size_t n = sizeof bad / sizeof *bad;
	(void)state;
	assert_true(kvi_rope_rule_freq(&good, freq));
	for (size_t i = 0; i < n; i++)
		bad[i] = good;
	bad[0].theta = 1;
	bad[1].theta = 1e13;
	bad[2].theta = (double)(0.0f / 0.0f);
	bad[3].factor = 0.5;
	bad[4].factor = 1e300;
	bad[5].factor = bad[2].theta;
	bad[6].low = 0;
	bad[7].high = 1;
	bad[8].high = 1e300;
	bad[9].context = 0;
	bad[10].context = bad[2].theta;
	bad[11].rotary = 7;
	for (size_t i = 0; i < n; i++)
		assert_false(kvi_rope_rule_freq(&bad[i], freq));
}

static void write_file(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void fails(const char *path, kvarc_ret code, const char *text)
{
	struct kvi_model_file *m;
	kvarc_error e = { .text = "" };
	kvi_alloc_init(&alloc, NULL, 1 << 22);
	assert_int_equal(kvi_model_file_open(&m, &alloc, path, &e), code);
	assert_null(m);
	if (!strstr(e.text, text))
		fail_msg("\"%s\" has no \"%s\"", e.text, text);
	assert_int_equal(alloc.used, 0);
}

/* What is wrong with files before their content. */
static void test_paths(void **state)
{
	char dir[] = "weights-XXXXXX", config[64], st[64], index[64];
	static const char text[] = "{\"weight_map\": {\"a\": \"../b.safetensors\"}}";
	static const char inner[] = "{\"weight_map\": {\"a\": \"c/b.safetensors\"}}";
	static const char lost[] = "{\"weight_map\": {\"a\": \"b.safetensors\"}}";
	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(config, sizeof config, "%s/config.json", dir);
	snprintf(st, sizeof st, "%s/model.safetensors", dir);
	snprintf(index, sizeof index, "%s/model.safetensors.index.json", dir);
	fails("weights-no-such-file", KVARC_IO, "No such file");
	fails(dir, KVARC_FORMAT, "no config.json");
	write_file(config, "", 0);
	fails(config, KVARC_FORMAT, "neither a GGUF");
	write_file(config, "GGUF", 4);
	fails(config, KVARC_OPTIONS, "version");
	fails(dir, KVARC_FORMAT, "neither model.safetensors");
	if (reads_safetensors()) {
		write_file(index, text, sizeof text - 1);
		fails(dir, KVARC_DATA, "not one of its folder");
		write_file(index, inner, sizeof inner - 1);
		fails(dir, KVARC_DATA, "not one of its folder");
		write_file(index, lost, sizeof lost - 1);
		fails(dir, KVARC_IO, "b.safetensors, a part");
		write_file(st, "", 0);
		fails(dir, KVARC_DATA, "config.json is damaged");
	}
	(void)unlink(config);
	(void)unlink(st);
	(void)unlink(index);
	assert_int_equal(mkdir(config, 0700), 0);
	fails(dir, KVARC_IO, "not a regular file");
	assert_int_equal(rmdir(config), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* Any allocation may fail, and any limit be too low. */
static void memory(const char *name)
{
	const char *dir = getenv("srcdir");
	struct failing f;
	struct kvi_model_file *m;
	char path[1024];
	kvarc_ret ret = KVARC_MEM;
	snprintf(path, sizeof path, "%s/tests/data/models/%s", dir ? dir : ".", name);
	for (long i = 0; ret; i++) {
		failing_init(&f, i);
		kvi_alloc_init(&alloc, &f.fn, 0);
		ret = kvi_model_file_open(&m, &alloc, path, NULL);
		assert_true(ret == KVARC_MEM || (!ret && i > 2));
		kvi_model_file_close(&m);
		assert_int_equal(f.held, 0);
	}
	ret = KVARC_MEMLIMIT;
	for (uint64_t limit = 100; ret; limit += 1000) {
		kvi_alloc_init(&alloc, NULL, limit);
		ret = kvi_model_file_open(&m, &alloc, path, NULL);
		assert_true(!ret || ret == KVARC_MEMLIMIT);
		kvi_model_file_close(&m);
		assert_int_equal(alloc.used, 0);
	}
}

static void test_memory(void **state)
{
	(void)state;
	memory("llama.gguf");
	memory("gemma3.gguf");
	if (reads_safetensors()) {
		memory("llama");
		memory("gemma3");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ggufs),      cmocka_unit_test(test_folders),
		cmocka_unit_test(test_numbers),    cmocka_unit_test(test_groups),
		cmocka_unit_test(test_not_finite), cmocka_unit_test(test_frequencies),
		cmocka_unit_test(test_bad_rules),  cmocka_unit_test(test_paths),
		cmocka_unit_test(test_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
