/* SPDX-License-Identifier: BSD-3-Clause */
/* test_kv_rules.c - rules for tensor names: their text, metadata tests, axes, files of engines */
#include "import_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/import_internal.h"
#include "files/kv_rules.h"
#include "files/named_tensors.h"

static kvarc_import *open_file(struct blob *b, const char *name, const char *rules,
                               const char *axes)
{
	kvarc_source src = blob_source(b);
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	o.kv_rule = rules;
	o.axes = axes;
	assert_int_equal(kvarc_import_open(&im, &src, name, &o), KVARC_OK);
	return im;
}

/* ----- texts ------------------------------------------------------------ */

static size_t parsed(const char *text)
{
	struct kvi_alloc a;
	struct kvi_rules r;
	kvi_alloc_init(&a, NULL, 0);
	kvarc_ret ret = kvi_rules_parse(&r, &a, text, NULL);
	size_t n = ret ? SIZE_MAX : r.n_own;
	assert_true(ret == KVARC_OK || ret == KVARC_PROG);
	kvi_rules_free(&r, &a);
	assert_int_equal(a.used, 0);
	return n;
}

static void texts(void **unused)
{
	static const char *const bad[] = {
		"{layer",     "a}",      "{a}",          "{|b}",      "{a|}",
		"{a{b|c}}",   "a htd",   "a hc",         "a cht",     "a hbtc",
		"a 2tp",      "a ttc",   "a t11111111c", "a hltc",    "a lltc",
		"a l2thp",    "a l2t2c", "a l2",         "a lb1htmc", "a if",
		"a if x",     "a if =x", "a if ?=x",     "a htc x=y", "a htc if x=y more",
		"good\nbad ?"
	};
	(void)unused;
	assert_int_equal(parsed(NULL), 0);
	assert_int_equal(parsed(""), 0);
	assert_int_equal(parsed(" # nothing\n\n\t\r\n"), 0);
	assert_int_equal(parsed("a lhtc\nb lbhtc\nc l2htc\nd 2lbthc\ne ltm\nf lthp"), 6);
	assert_int_equal(parsed("a.{layer}.{k|v}\r\nb 2thc\nc - if x.{layer}[{number}]?=y|z\n"), 3);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(parsed(bad[i]), SIZE_MAX);

	char many[2 * KVI_RULES_MAX + 3] = "";
	for (size_t i = 0; i < KVI_RULES_MAX; i++)
		memcpy(many + 2 * i, "a\n", 3);
	assert_int_equal(parsed(many), KVI_RULES_MAX);
	strcat(many, "a");
	assert_int_equal(parsed(many), SIZE_MAX);
	char *huge = malloc(KVI_RULES_BYTES_MAX + 1);
	assert_non_null(huge);
	memset(huge, ' ', KVI_RULES_BYTES_MAX);
	huge[KVI_RULES_BYTES_MAX] = '\0';
	assert_int_equal(parsed(huge), SIZE_MAX);
	huge[KVI_RULES_BYTES_MAX - 1] = '\0';
	assert_int_equal(parsed(huge), 0);
	free(huge);
}

static void layers_of_files(void **unused)
{
	uint32_t layer = 99;
	(void)unused;
	assert_true(kvi_rule_layer_of_file("7/model.layers.3.self_attn.attn.safetensors", &layer));
	assert_int_equal(layer, 3);
	assert_true(kvi_rule_layer_of_file("12", &layer));
	assert_int_equal(layer, 12);
	assert_false(kvi_rule_layer_of_file("", &layer));
	assert_false(kvi_rule_layer_of_file("layers.x3.4y", &layer));
	assert_false(kvi_rule_layer_of_file("layers.3.experts.4", &layer));
	assert_false(kvi_rule_layer_of_file("layers.65536", &layer));
}

/* Names of tensors in files that people have, which need no rule of a user. */
static void usual_names(void **unused)
{
	static const struct {
		const char *name;
		int layer; /* -1: no rule has it */
		bool value;
	} cases[] = {
		{ "model.layers.5.self_attn.k_cache", 5, false },
		{ "model.layers.5.self_attn.v_cache", 5, true },
		{ "model.layers.5.self_attn.value_cache", 5, true },
		{ "transformer/layers.5.attn.v", 5, true },
		{ "cache.layers.31.keys", 31, false },
		{ "cache.layers.31.values", 31, true },
		{ "past_key_values.7.0", 7, false },
		{ "past_key_values.7.1", 7, true },
		{ "layer_3.key", 3, false },
		{ "layer_3.values", 3, true },
		{ "keys.12", 12, false },
		{ "values.12", 12, true },
		{ "past_key_2", 2, false },
		{ "past_value_2", 2, true },
		{ "cache_k_l9", 9, false },
		{ "cache_v_l9", 9, true },
		{ "k_l9", 9, false },
		{ "v_l9", 9, true },
		{ "4.0", 4, false },
		{ "4.1", 4, true },
		{ "layers.8.kv_c", 8, false },
		{ "model.layers.8.self_attn.compressed_kv", 8, true },
		{ "layers.8.k_pe", 8, false },
		{ "past:8.k_rope", 8, false },
		{ "model.layers.5.self_attn.k_proj.weight", -1, false },
		{ "xlayers.5.keys", -1, false },
		{ "model.layers.5.self_attn.attn", -1, false },
		{ "4.2", -1, false },
		{ "cache_k_l9.weight", -1, false },
	};
	const struct kvi_rules none = { 0 };
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kvi_rule_tests tests = { 0 };
		struct kvi_rule_match m = { 0 };
		const struct kvi_rule *rule;
		size_t k = 0;
		while ((rule = kvi_rules_at(&none, k++)))
			if (kvi_rule_match(rule->pattern, cases[i].name, &m) &&
			    kvi_rule_holds(&tests, rule, &m))
				break;
		print_message("%s\n", cases[i].name);
		assert_int_equal(rule ? (int)m.layer : -1, cases[i].layer);
		if (rule)
			assert_int_equal(m.value, cases[i].value);
	}
}

/* ----- tests of metadata ------------------------------------------------- */

static const char *get_text(const void *opaque, const char *key)
{
	const char *const *pairs = opaque;
	for (; pairs[0]; pairs += 2)
		if (!strcmp(pairs[0], key))
			return pairs[1];
	return NULL;
}

/* One tensor has a text. */
static bool spell(const void *opaque, const char *name, char text[KVI_SPELLED_BYTES])
{
	(void)opaque;
	if (strcmp(name, "3.4.1") != 0)
		return false;
	strcpy(text, "KV[1]");
	return true;
}

static void metadata_tests(void **unused)
{
	static const char *const pairs[] = {
		"1.3", "KV",         "0.3.4", "Ring",   "list",  " [\"A\" ,\"KV\",\"\", \"Ring\"] ",
		"odd", "[\"A\", 3]", "open",  "[\"A\"", "quote", "[\"A\\\"\"]",
		NULL
	};
	static const struct {
		const char *key, *values;
		bool may_lack, holds;
		const char *seen;
	} cases[] = {
		{ NULL, NULL, false, true, "" },
		{ "", NULL, false, false, "" },
		{ "1.{layer}", "Ring|KV", false, true, "KV" },
		{ "1.{layer}", "Ring|K|KVC", true, false, "KV" },
		{ "2.{layer}", "KV", false, false, "" },
		{ "2.{layer}", "KV", true, true, "" },
		{ "0.{layer}.{number}", "Ring", false, true, "Ring" },
		{ "list[{layer}]", "Ring", false, true, "Ring" },
		{ "list[{number}]", "Ring", false, false, "" },
		{ "list[1]", "KV", false, true, "KV" },
		{ "list[2]", "x|", false, false, "" },
		{ "odd[0]", "A", false, false, "" },
		{ "open[0]", "A", false, false, "" },
		{ "quote[0]", "A", false, false, "" },
		{ "none[0]", "A", true, true, "" },
		{ "@{layer}.{number}.1", "KV|KV[1]", false, true, "KV[1]" },
		{ "@{layer}.{number}.1", "KV", true, false, "KV[1]" },
		{ "@3.4", "KV[1]", false, false, "" },
		{ "@3.4", "KV[1]", true, true, "" },
		{ "3.4.1", "KV[1]", false, false, "" },
	};
	const struct kvi_rule_match m = { .layer = 3, .number = 4 };
	const struct kvi_metadata about = { get_text, spell, pairs, true };
	(void)unused;
	struct kvi_rule_tests *t = calloc(1, sizeof *t);
	assert_non_null(t);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct kvi_rule rule = { .key = cases[i].key,
			                       .values = cases[i].values,
			                       .may_lack = cases[i].may_lack };
		t->seen[0] = '\0';
		t->metadata = &about;
		assert_int_equal(kvi_rule_holds(t, &rule, &m), cases[i].holds);
		assert_string_equal(t->seen, cases[i].seen);
		t->metadata = NULL;
		assert_int_equal(kvi_rule_holds(t, &rule, &m),
		                 !rule.key || !*rule.key || rule.may_lack);
	}
	char key[400];
	memset(key, 'x', sizeof key - 1);
	key[sizeof key - 1] = '\0';
	const struct kvi_rule rule = { .key = key, .values = "x", .may_lack = true };
	assert_false(kvi_rule_holds(t, &rule, &m));
	free(t);
}

/* More elements than are looked at, and a text that is too long. */
static void long_lists(void **unused)
{
	const size_t n = 20 << 10;
	char *text = calloc(n + 8, 1);
	struct kvi_rule_tests *t = calloc(1, sizeof *t);
	const char *pairs[] = { "x", text, NULL };
	const struct kvi_metadata about = { get_text, NULL, pairs, true };
	const struct kvi_rule rule = { .key = "x[0]", .values = "A" };
	const struct kvi_rule_match m = { 0 };
	(void)unused;
	assert_true(text && t);
	t->metadata = &about;
	strcpy(text, "[\"A\"");
	for (size_t i = 1; i < KVI_TEXT_LIST_MAX; i++)
		strcpy(text + 4 * i, ",\"A\"");
	strcat(text, "]");
	assert_true(kvi_rule_holds(t, &rule, &m));
	strcpy(text + strlen(text) - 1, ",\"A\"]");
	t->list.text = NULL;
	assert_false(kvi_rule_holds(t, &rule, &m));
	memset(text, ' ', n);
	strcpy(text + n, "[\"A\"]");
	t->list.text = NULL;
	assert_false(kvi_rule_holds(t, &rule, &m));
	free(text);
	free(t);
}

/* ----- axes ---------------------------------------------------------------- */

/* Every element is where the axes say: the shape's elements are their own numbers. */
static void axes_of_parts(void **unused)
{
	static const struct {
		const char *letters;
		uint8_t n;
		uint64_t shape[5];
		struct kvi_axes want;
	} cases[] = {
		{ "thp", 3, { 5, 2, 16 }, { 1, 2, 5, 2, 8, 32, 16, 8, 1, 0, 0, 0, 0, 0 } },
		{ "2tc", 3, { 2, 5, 16 }, { 1, 2, 5, 1, 16, 16, 16, 80, 1, 0, 1, 0, 0, 0 } },
		{ "b2htc", 5, { 3, 2, 2, 5, 8 }, { 3, 2, 5, 2, 8, 8, 40, 80, 1, 1, 1, 0, 0, 0 } },
		{ "t2hc", 4, { 5, 2, 2, 8 }, { 1, 2, 5, 2, 8, 32, 8, 16, 1, 0, 0, 0, 0, 0 } },
		{ "h2tc", 4, { 2, 2, 5, 8 }, { 1, 2, 5, 2, 8, 8, 80, 40, 1, 1, 0, 0, 0, 0 } },
		{ "tm", 2, { 5, 72 }, { 1, 1, 5, 1, 72, 72, 72, 0, 1, 0, 0, 1, 0, 0 } },
		{ "lhtc", 4, { 9, 2, 5, 8 }, { 1, 1, 5, 2, 8, 8, 40, 0, 9, 1, 0, 0, 0, 0 } },
		{ "2ltc", 4, { 2, 9, 5, 8 }, { 1, 1, 5, 1, 8, 8, 8, 0, 18, 0, 0, 0, 0, 0 } },
		{ "1thc", 4, { 1, 5, 2, 8 }, { 1, 1, 5, 2, 8, 16, 8, 0, 1, 0, 0, 0, 0, 0 } },
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kvi_named x = { .n_axes = cases[i].n };
		struct kvi_axes a;
		const struct kvi_axes *w = &cases[i].want;
		memcpy(x.shape, cases[i].shape, sizeof cases[i].shape);
		assert_true(kvi_axes_take(&x, cases[i].letters, &a));
		assert_int_equal(a.batch, w->batch);
		assert_int_equal(a.parts, w->parts);
		assert_int_equal(a.tokens, w->tokens);
		assert_int_equal(a.heads, w->heads);
		assert_int_equal(a.channels, w->channels);
		assert_int_equal(a.token_stride, w->token_stride);
		assert_int_equal(a.head_stride, w->head_stride);
		assert_int_equal(a.part_stride, w->part_stride);
		assert_int_equal(a.stacked, w->stacked);
		assert_int_equal(a.heads_first, w->heads_first);
		assert_int_equal(a.parts_apart, w->parts_apart);
		assert_int_equal(a.is_latent, w->is_latent);
		assert_false(a.is_state);
		x.shape[0] = 0;
		assert_false(kvi_axes_take(&x, cases[i].letters, &a));
	}
	struct kvi_named odd = { .n_axes = 2, .shape = { 5, 7 } },
			 three = { .n_axes = 3, .shape = { 3, 5, 8 } };
	struct kvi_axes a;
	assert_false(kvi_axes_take(&odd, "tp", &a));
	assert_false(kvi_axes_take(&three, "2tc", &a));
	assert_false(kvi_axes_take(&three, "1tc", &a));
	assert_false(kvi_axes_take(&three, "tc", &a));
}

static void axes_of_states(void **unused)
{
	static const struct {
		uint8_t n;
		uint64_t shape[4], rows;
		bool is_conv;
	} cases[] = {
		{ 4, { 1, 5, 2, 8 }, 10, false },
		{ 3, { 2, 5, 8 }, 10, true },
		{ 3, { 2, 8, 8 }, 16, false },
		{ 2, { 1, 8 }, 1, true },
	};
	struct kvi_axes a;
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kvi_named x = { .n_axes = cases[i].n };
		memcpy(x.shape, cases[i].shape, sizeof cases[i].shape);
		assert_true(kvi_axes_take(&x, "s", &a));
		assert_true(a.is_state && a.heads == 1 && a.batch == 1 && a.parts == 1);
		assert_int_equal(a.tokens, cases[i].rows);
		assert_int_equal(a.channels, 8);
		assert_int_equal(a.token_stride, 8);
		assert_int_equal(a.is_conv, cases[i].is_conv);
		x.shape[0] = 0;
		assert_false(kvi_axes_take(&x, "s", &a));
	}
	struct kvi_named flat = { .n_axes = 1, .shape = { 8 } };
	struct kvi_named wide = { .n_axes = 2, .shape = { 8, 65536 } };
	assert_false(kvi_axes_take(&flat, "s", &a));
	assert_false(kvi_axes_take(&wide, "s", &a));
	assert_false(kvi_axes_known("bs") || kvi_axes_known("st") || kvi_axes_known(""));
}

/* A tensor of the files below: two layers, 2 heads, 5 tokens, 8 channels, in bf16. */
enum { HEADS = 2, TOKENS = 5, CHANNELS = 8 };

static void fetch(kvarc_import *im, uint32_t layer, unsigned kind, uint16_t *dst)
{
	const kvarc_geometry *g = kvarc_import_geometry(im);
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		if (t->layer != layer || t->kind != kind)
			continue;
		assert_int_equal(t->heads * t->channels, HEADS * CHANNELS);
		assert_int_equal(t->dtype, KVARC_BF16);
		assert_int_equal(kvarc_import_fetch(im, i, 0, t->heads, 0, TOKENS, dst), 0);
		return;
	}
	fail_msg("layer %u has none of kind %u", (unsigned)layer, kind);
}

/* The elements of a file as an engine writes them, from its bytes: where its source puts them. */
struct placed {
	const char *name;
	uint32_t layer;
	size_t key, value; /* from the end of the file; 0 of a file in a tar: from its start */
	size_t token, head;
};

static void elements(void **unused)
{
	needs_all_parts();
	static const struct placed cases[] = {
		/* [1, heads, tokens, channels]; four tensors of 160 bytes, layer by layer */
		{ "mlx-0.31.safetensors", 1, 320, 160, 8, 40 },
		{ "omlx-2.safetensors", 0, 640, 480, 8, 40 },
		{ "omlx-3.safetensors", 1, 320, 160, 8, 40 },
		{ "omlx-3-hybrid.safetensors", 1, 320, 160, 8, 40 },
		/* [tokens, heads, 2 * channels] */
		{ "model.layers.7.attn.safetensors", 7, 320, 304, 32, 16 },
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct placed *c = &cases[i];
		struct blob b = blob_load(c->name);
		kvarc_import *im = open_file(&b, c->name, NULL, NULL);
		for (unsigned kind = KVARC_KEY; kind <= KVARC_VALUE; kind++) {
			uint16_t got[TOKENS * HEADS * CHANNELS];
			const uint8_t *p = b.p + b.n - (kind == KVARC_KEY ? c->key : c->value);
			fetch(im, c->layer, kind, got);
			for (size_t t = 0; t < TOKENS; t++)
				for (size_t h = 0; h < HEADS; h++)
					assert_memory_equal(got + (t * HEADS + h) * CHANNELS,
					                    p + (t * c->token + h * c->head) * 2,
					                    CHANNELS * 2);
		}
		kvarc_import_close(&im);
		blob_free(&b);
	}
}

/* Rows of the last axis, behind the tracks with tokens; bytes from the start of the data. */
static void states(void **unused)
{
	static const struct {
		const char *name;
		bool conv, recurrent;
		uint32_t tensors;
	} cases[] = {
		{ "mlx-0.32-hybrid.safetensors", true, true, 4 },
		{ "mlx-0.32-list.safetensors", true, true, 6 },
		{ "mlx-0.31-hybrid.safetensors", true, true, 4 },
		{ "omlx-2-hybrid.safetensors", true, true, 4 },
		{ "omlx-3-hybrid.safetensors", true, true, 4 },
		{ "mlx-0.31-arrays.safetensors", false, true, 4 },
	};
	(void)unused;
	needs_all_parts();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct blob b = blob_load(cases[i].name);
		kvarc_import *im = open_file(&b, cases[i].name, NULL, NULL);
		const kvarc_geometry *g = kvarc_import_geometry(im);
		const uint8_t *data = b.p + 8 + kvi_load64(b.p);
		bool conv = false, recurrent = false;
		assert_int_equal(g->n_tensors, cases[i].tensors);
		if (cases[i].conv)
			assert_int_equal(g->tracks[0].kind, KVARC_TRACK_SELF);
		for (uint32_t t = 0; t < g->n_tensors; t++) {
			const kvarc_tensor *x = &g->tensors[t];
			const uint32_t rows = (uint32_t)kvarc_import_tokens(im, x->track);
			uint8_t got[640];
			if (x->kind != KVARC_CONV_STATE && x->kind != KVARC_RECURRENT_STATE)
				continue;
			assert_int_equal(g->tracks[x->track].kind, KVARC_TRACK_STATE);
			assert_true(x->heads == 1 && x->channels == CHANNELS && x->layer < 2);
			assert_int_equal(kvarc_import_fetch(im, t, 0, 1, 0, rows, got), 0);
			if (x->kind == KVARC_CONV_STATE) {
				conv = true;
				assert_int_equal(rows, 3);
				assert_memory_equal(got, data, 48);
			} else if (!recurrent && cases[i].conv) {
				assert_int_equal(rows, 4);
				assert_int_equal(x->dtype, KVARC_F32);
				assert_memory_equal(got, data + 48, 128);
			} else if (!recurrent) {
				assert_int_equal(rows, 10);
				assert_memory_equal(got, data, 160);
			}
			recurrent = recurrent || x->kind == KVARC_RECURRENT_STATE;
		}
		assert_int_equal(conv, cases[i].conv);
		assert_int_equal(recurrent, cases[i].recurrent);
		kvarc_import_close(&im);
		blob_free(&b);
	}
}

static void one_track_for_a_folder(void **unused)
{
	needs_all_parts();
	uint16_t packed[80], before[80];
	(void)unused;
	struct blob b = blob_load("vllm-packed.tar");
	kvarc_import *im = open_file(&b, "x.tar", NULL, NULL);
	assert_int_equal(kvarc_import_geometry(im)->n_tracks, 1);
	for (uint32_t layer = 0; layer < 12; layer++) {
		fetch(im, layer, KVARC_KEY, packed);
		fetch(im, layer, KVARC_VALUE, before);
		assert_memory_not_equal(packed, before, sizeof packed);
	}
	kvarc_import_close(&im);
	blob_free(&b);
	/* another folder of as many tokens is another track */
	b = blob_load("vllm-before.tar");
	for (size_t i = 0; i + 40 < b.n; i++)
		if (!memcmp(b.p + i, "0123456789abcdef/model.layers.1.", 32)) {
			unsigned sum = 0;
			b.p[i + 15] = 'g';
			memset(b.p + i + 148, ' ', 8);
			for (size_t k = 0; k < 512; k++)
				sum += b.p[i + k];
			snprintf((char *)b.p + i + 148, 8, "%06o", sum);
			break;
		}
	im = open_file(&b, "x.tar", NULL, NULL);
	assert_int_equal(kvarc_import_geometry(im)->n_tensors, 4);
	assert_int_equal(kvarc_import_geometry(im)->n_tracks, 2);
	kvarc_import_close(&im);
	blob_free(&b);
}

/* ----- rules of a user ------------------------------------------------------ */

static size_t tensors_with(const char *name, const char *rules, const char *axes)
{
	struct blob b = blob_load(name);
	kvarc_import *im = open_file(&b, name, rules, axes);
	size_t n = kvarc_import_geometry(im)->n_tensors;
	kvarc_import_close(&im);
	blob_free(&b);
	return n;
}

static void rules_of_a_user(void **unused)
{
	needs_all_parts();
	static const char st[] = "st-rule.safetensors", hybrid[] = "omlx-3-hybrid.safetensors";
	(void)unused;
	assert_int_equal(tensors_with(st, "x\nnet/{layer}/attn_{key|value}", NULL), 4);
	assert_int_equal(tensors_with(st, "net/{layer}/attn_{key|value} 1htc", NULL), 0);
	assert_int_equal(tensors_with(st, "net/{layer}/attn_{key|value} 1htc", "htc"), 0);
	/* the next rule is tried when axes do not fit, or the test does not hold */
	assert_int_equal(tensors_with(st,
	                              "net/{layer}/attn_{key|value} 1htc\n"
	                              "net/{layer}/attn_{key|value} htc if a=b\n"
	                              "net/{layer}/attn_{key|value} htc if a?=b",
	                              NULL),
	                 4);
	/* what users say comes before what engines do, whose other tensors stay */
	assert_int_equal(tensors_with(hybrid, NULL, NULL), 4);
	assert_int_equal(tensors_with(hybrid, "layer_1_state_{0|1} -", NULL), 2);
	assert_int_equal(
		tensors_with(hybrid, "layer_{layer}_state_{0|1} bthc if num_layers=2", NULL), 4);
	/* the axes of users are for keys and values */
	assert_int_equal(tensors_with(hybrid, NULL, "bhtc"), 4);
	assert_int_equal(tensors_with(st, "net/{layer}/attn_{key|value} s", NULL), 4);
	assert_int_equal(tensors_with("omlx-2.safetensors", NULL, "1htc"), 4);
	assert_int_equal(tensors_with("omlx-2.safetensors", NULL, "htc"), 0);

	struct blob b = blob_load(st);
	kvarc_source src = blob_source(&b);
	kvarc_error error = { 0 };
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	o.common.error = &error;
	o.kv_rule = "a\nnet/{layer htc\nb";
	assert_int_equal(kvarc_import_open(&im, &src, "x", &o), KVARC_PROG);
	assert_null(im);
	assert_non_null(strstr(error.text, "'net/{layer htc' is no rule"));
	blob_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts),
		cmocka_unit_test(layers_of_files),
		cmocka_unit_test(metadata_tests),
		cmocka_unit_test(long_lists),
		cmocka_unit_test(axes_of_parts),
		cmocka_unit_test(elements),
		cmocka_unit_test(axes_of_states),
		cmocka_unit_test(states),
		cmocka_unit_test(one_track_for_a_folder),
		cmocka_unit_test(rules_of_a_user),
		cmocka_unit_test(usual_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
