/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_canary.c - whether a cache belongs to what computes now: rows of made slots, changed as
 * other weights and RoPE settings change real ones (tests/engines/canary.py asks a real server)
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvarc/canary.h"
#include "import_files.h"
#include "store_util.h"
#include "util/bytes.h"

enum { FILE_TOKENS = 100, MANY = 80, FEW = 32, ROWS = 64, KEYS = 0, VALUES = 1 };

/* Slots of the same tokens: the file's, and those of an engine that computes 80, 32 at a time. */
struct canary_world {
	struct slot_made file, many, few;
	kvarc_import *file_import, *many_import, *few_import;
};

static kvarc_import *open_slot(struct slot_made *slot)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source source = slot_source(slot);
	kvarc_import *im;
	io.rope = "none";
	assert_int_equal(kvarc_import_open(&im, &source, "slot.bin", &io), KVARC_OK);
	return im;
}

static void canary_begin(struct canary_world *w)
{
	w->file = test_slot(FILE_TOKENS, UINT32_MAX);
	w->many = test_slot(MANY, UINT32_MAX);
	w->few = test_slot(FEW, UINT32_MAX);
}

static void canary_end(struct canary_world *w)
{
	slot_free(&w->file);
	slot_free(&w->many);
	slot_free(&w->few);
}

/* The row of a token in a slot, found by the bytes that an import gives of it. */
static uint8_t *row_of(struct slot_made *slot, uint32_t layer, int side, uint64_t token)
{
	kvarc_import *im = open_slot(slot);
	const kvarc_geometry *g = kvarc_import_geometry(im);
	uint8_t row[SLOT_ROW], *at = NULL;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		if (g->tensors[i].layer != layer ||
		    g->tensors[i].kind != (side == KEYS ? KVARC_KEY : KVARC_VALUE))
			continue;
		assert_int_equal(kvarc_import_fetch(im, i, 0, g->tensors[i].heads, token, 1, row),
		                 0);
		for (size_t k = 0; k + SLOT_ROW <= slot->n && !at; k++)
			if (memcmp(slot->p + k, row, SLOT_ROW) == 0)
				at = slot->p + k;
	}
	kvarc_import_close(&im);
	assert_non_null(at);
	return at;
}

/* How the elements of a row are changed: by their last bit, 0.2 to 0.4 %, a factor of 2. */
enum change_by { A_BIT = 1, SOME = 1 << 2, MUCH = 1 << 10 };

/* Changes the elements of tokens a .. b - 1. */
static void change(struct slot_made *slot, uint32_t layer, int side, uint64_t a, uint64_t b,
                   enum change_by step)
{
	for (uint64_t t = a; t < b; t++) {
		uint8_t *row = row_of(slot, layer, side, t);
		for (size_t i = 0; i < SLOT_ROW; i += 2)
			kvi_store16(row + i, (uint16_t)(kvi_load16(row + i) ^ step));
	}
}

/* What comes out when `computed` slots were changed. */
static kvarc_canary_verdict compare(struct canary_world *w)
{
	kvarc_canary_verdict v;
	kvarc_import *file = open_slot(&w->file), *many = open_slot(&w->many),
		     *few = open_slot(&w->few);
	const kvarc_canary_rows rows[2] = { { many, ROWS }, { few, FEW } };
	assert_int_equal(kvarc_canary_compare(file, rows, 2, &v), KVARC_OK);
	kvarc_import_close(&file);
	kvarc_import_close(&many);
	kvarc_import_close(&few);
	return v;
}

static void change_both(struct canary_world *w, uint32_t layer, int side, uint64_t a, uint64_t b,
                        enum change_by step)
{
	change(&w->many, layer, side, a, b, step);
	change(&w->few, layer, side, a, b < FEW ? b : FEW, step);
}

static void test_rows(void **state)
{
	struct canary_world w;
	kvarc_canary_verdict v;
	(void)state;
	canary_begin(&w);
	v = compare(&w);
	assert_int_equal(v.answer, KVARC_BELONGS_EXACT);
	assert_int_equal(v.tokens, ROWS);
	/* One way is enough. */
	change(&w.many, 1, KEYS, 0, MANY, MUCH);
	assert_int_equal(compare(&w).answer, KVARC_BELONGS_EXACT);
	canary_end(&w);

	/* The keys of the first layer: RoPE; its values: an adapter. */
	for (int side = KEYS; side <= VALUES; side++) {
		canary_begin(&w);
		change_both(&w, 0, side, 1, MANY, MUCH);
		v = compare(&w);
		assert_int_equal(v.answer, KVARC_BELONGS_NOT);
		assert_non_null(strstr(v.text, side == KEYS ? "RoPE" : "adapter"));
		canary_end(&w);
	}
	/* The keys alone, in the way that has the cache's kernel; in the other one both differ. */
	canary_begin(&w);
	change(&w.many, 0, KEYS, 1, MANY, SOME);
	change(&w.few, 0, KEYS, 1, FEW, SOME);
	change(&w.few, 0, VALUES, 1, FEW, SOME);
	v = compare(&w);
	assert_int_equal(v.answer, KVARC_BELONGS_NOT);
	assert_non_null(strstr(v.text, "RoPE"));
	canary_end(&w);
	/* Position 0 of a later layer: weights. */
	canary_begin(&w);
	change_both(&w, 2, VALUES, 0, 1, MUCH);
	v = compare(&w);
	assert_int_equal(v.answer, KVARC_BELONGS_NOT);
	assert_non_null(strstr(v.text, "from layer 2 on"));
	canary_end(&w);
	/* Behind it, by a little: another kernel; by much: pieced together. */
	for (int much = 0; much < 2; much++) {
		canary_begin(&w);
		for (uint32_t layer = 1; layer < SLOT_LAYERS; layer++)
			for (int side = KEYS; side <= VALUES; side++)
				change_both(&w, layer, side, 1, MANY, much ? MUCH : SOME);
		assert_int_equal(compare(&w).answer,
		                 much ? KVARC_BELONGS_MOVED : KVARC_BELONGS_NEAR);
		canary_end(&w);
	}
	/* Equal up to a row: moved behind it. */
	canary_begin(&w);
	change_both(&w, 1, VALUES, 20, MANY, MUCH);
	v = compare(&w);
	assert_int_equal(v.answer, KVARC_BELONGS_MOVED);
	assert_non_null(strstr(v.text, "first 20 tokens"));
	canary_end(&w);
	/* Everything, position 0 as well, by a little: other arithmetic; by much: other weights. */
	for (int much = 0; much < 2; much++) {
		canary_begin(&w);
		for (uint32_t layer = 0; layer < SLOT_LAYERS; layer++)
			for (int side = KEYS; side <= VALUES; side++)
				change_both(&w, layer, side, 0, MANY, much ? MUCH : SOME);
		assert_int_equal(compare(&w).answer, much ? KVARC_BELONGS_NOT : KVARC_BELONGS_NEAR);
		canary_end(&w);
	}
}

/* A slot of q8_0, and the same with a byte of the first row of a tensor changed: the last of its
 * first block. */
static kvarc_canary_verdict compare_quantised(uint32_t layer, int kind)
{
	struct blob file = blob_load("ggsq4-q8_0.bin"), other = blob_load("ggsq4-q8_0.bin");
	const kvarc_source from = blob_source(&file), to = blob_source(&other);
	kvarc_canary_verdict v;
	kvarc_import *im, *computed;
	uint8_t row[1 << 16];
	assert_int_equal(kvarc_import_open(&im, &from, "slot.bin", NULL), KVARC_OK);
	const kvarc_geometry *g = kvarc_import_geometry(im);
	bool changed = layer == UINT32_MAX;
	for (uint32_t i = 0; i < g->n_tensors && !changed; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		if (t->layer != layer || (int)t->kind != kind || t->role != KVARC_PAYLOAD)
			continue;
		assert_int_equal(kvarc_import_fetch(im, i, 0, t->heads, 0, 1, row), 0);
		for (size_t k = 0; k + 32 <= other.n && !changed; k++) {
			changed = memcmp(other.p + k, row, 32) == 0;
			if (changed)
				other.p[k + 31] ^= 1;
		}
	}
	assert_true(changed);
	assert_int_equal(kvarc_import_open(&computed, &to, "slot.bin", NULL), KVARC_OK);
	const kvarc_canary_rows rows = { computed, 8 };
	assert_int_equal(kvarc_canary_compare(im, &rows, 1, &v), KVARC_OK);
	kvarc_import_close(&im);
	kvarc_import_close(&computed);
	blob_free(&file);
	blob_free(&other);
	return v;
}

/* Of quantised caches the bits count; shifted keys have others, as those of another RoPE have. */
static void test_quantised(void **state)
{
	(void)state;
	assert_int_equal(compare_quantised(UINT32_MAX, 0).answer, KVARC_BELONGS_EXACT);
	assert_int_equal(compare_quantised(0, KVARC_KEY).answer, KVARC_BELONGS_NEAR);
	assert_int_equal(compare_quantised(0, KVARC_VALUE).answer, KVARC_BELONGS_NOT);
	assert_int_equal(compare_quantised(1, KVARC_VALUE).answer, KVARC_BELONGS_NOT);
}

/* Caches of another shape are no reason to say anything; nor are those without these rows. */
/* Changes a bit of each element of a token in a slot of f16. */
static void change_tensor(struct blob *slot, const kvarc_import *im, uint32_t tensor,
                          uint64_t token, unsigned bit)
{
	const kvarc_tensor *t = &kvarc_import_geometry(im)->tensors[tensor];
	const size_t bytes = (size_t)2 * t->heads * t->channels;
	uint8_t row[1 << 12];
	bool found = false;
	assert_true(bytes <= sizeof row);
	assert_int_equal(
		kvarc_import_fetch((void *)(uintptr_t)im, tensor, 0, t->heads, token, 1, row), 0);
	for (size_t i = 0; i + bytes <= slot->n && !found; i++) {
		found = memcmp(slot->p + i, row, bytes) == 0;
		for (size_t k = 0; found && k < bytes; k += 2)
			kvi_store16(slot->p + i + k,
			            (uint16_t)(kvi_load16(slot->p + i + k) ^ 1u << bit));
	}
	assert_true(found);
}

/* Layers 0 and 1 attend to all tokens, 2 to 4 to a window: the model's first layer is 2, and what
 * lies behind it may be computed by another kernel. */
static void test_windows(void **state)
{
	enum { FIRST = 2, TOKENS = 5, BIT = 6 };
	struct blob file = blob_load("ggsq4-iswa.bin"), other = blob_load("ggsq4-iswa.bin");
	const kvarc_source from = blob_source(&file), to = blob_source(&other);
	kvarc_import *im, *computed;
	kvarc_canary_verdict v;
	(void)state;
	assert_int_equal(kvarc_import_open(&im, &from, "slot.bin", NULL), KVARC_OK);
	const kvarc_geometry *g = kvarc_import_geometry(im);
	assert_int_equal(g->n_tracks, 2);
	for (uint32_t i = 0; i < g->n_tensors; i++)
		for (uint64_t t = g->tensors[i].track ? 0 : 1;
		     t < kvarc_import_tokens(im, g->tensors[i].track); t++)
			if (g->tensors[i].layer != FIRST)
				change_tensor(&other, im, i, t, BIT);
	for (int adapter = 0; adapter < 2; adapter++) {
		assert_int_equal(kvarc_import_open(&computed, &to, "slot.bin", NULL), KVARC_OK);
		const kvarc_canary_rows rows = { computed, TOKENS };
		assert_int_equal(kvarc_canary_compare(im, &rows, 1, &v), KVARC_OK);
		assert_int_equal(v.answer, adapter ? KVARC_BELONGS_NOT : KVARC_BELONGS_NEAR);
		kvarc_import_close(&computed);
		for (uint32_t i = 0; i < g->n_tensors && !adapter; i++)
			if (g->tensors[i].layer == FIRST && g->tensors[i].kind == KVARC_VALUE)
				change_tensor(&other, im, i, 1, BIT);
	}
	kvarc_import_close(&im);
	blob_free(&file);
	blob_free(&other);
}

static void test_unknown(void **state)
{
	struct canary_world w;
	kvarc_canary_verdict v;
	uint8_t *p;
	(void)state;
	canary_begin(&w);
	kvarc_import *file = open_slot(&w.file), *few = open_slot(&w.few);
	assert_int_equal(kvarc_canary_compare(file, NULL, 0, &v), KVARC_OK);
	assert_int_equal(v.answer, KVARC_BELONGS_UNKNOWN);
	/* Bytes, of which no import makes tensors. */
	p = calloc(1, 100);
	assert_non_null(p);
	struct slot_made bytes = { p, 100 };
	kvarc_import *other = open_slot(&bytes);
	const kvarc_canary_rows rows[2] = { { few, FEW }, { other, FEW } };
	assert_int_equal(kvarc_canary_compare(file, rows + 1, 1, &v), KVARC_OK);
	assert_int_equal(v.answer, KVARC_BELONGS_UNKNOWN);
	assert_non_null(strstr(v.text, "other layers"));
	assert_int_equal(kvarc_canary_compare(other, rows, 1, &v), KVARC_OK);
	assert_int_equal(v.answer, KVARC_BELONGS_UNKNOWN);
	kvarc_import_close(&other);
	kvarc_import_close(&file);
	kvarc_import_close(&few);
	free(p);
	canary_end(&w);
}

/* A value of an identity that is looked for. */
struct sought {
	const char *key;
	char *text;
	size_t size;
};

static int find(void *opaque, const char *key, const char *value)
{
	const struct sought *f = opaque;
	if (strcmp(key, f->key) == 0)
		snprintf(f->text, f->size, "%s", value);
	return 0;
}

/* The fingerprint that is recorded, as the store gives it back. */
static void record(const kvarc_next_words *next, char *text, size_t size)
{
	struct sought f = { "canary", text, size };
	struct test_store t;
	struct slot_made slot = test_slot(FEW, UINT32_MAX), file = test_slot(FILE_TOKENS, 7);
	kvarc_import *computed = open_slot(&slot), *im = open_slot(&file);
	kvarc_saved saved;
	store_new(&t);
	assert_int_equal(kvarc_canary_record(im, im, next), KVARC_OPTIONS); /* 100 tokens */
	assert_int_equal(kvarc_canary_record(im, computed, next), KVARC_OK);
	assert_int_equal(kvarc_store_save(t.s, "a", im, NULL, &saved), KVARC_OK);
	kvarc_import_close(&im);
	kvarc_import_close(&computed);
	slot_free(&slot);
	slot_free(&file);
	text[0] = 0;
	assert_int_equal(kvarc_store_identity(t.s, "a", 0, find, &f), KVARC_OK);
	store_end(&t);
	store_remove(&t);
}

static kvarc_canary_verdict check(const char *text, struct slot_made *slot,
                                  const kvarc_next_words *next)
{
	kvarc_canary_verdict v;
	kvarc_import *im = open_slot(slot);
	assert_int_equal(kvarc_canary_check(text, im, next, &v), KVARC_OK);
	kvarc_import_close(&im);
	return v;
}

static void test_fingerprint(void **state)
{
	kvarc_next_words next = { 3, { 5, 900, 70000 }, { -.25, -1.5, -12.125 } }, other = next;
	static char text[16384], bad[16384];
	int32_t ids[KVARC_CANARY_TOKENS];
	kvarc_canary_verdict v;
	(void)state;
	record(&next, text, sizeof text);
	assert_int_equal(kvarc_canary_ids(ids, 0, text), KVARC_OK);
	for (int i = 0; i < KVARC_CANARY_TOKENS; i++)
		assert_int_equal(ids[i], 100 + i);
	struct slot_made slot = test_slot(FEW, UINT32_MAX);
	v = check(text, &slot, &next);
	assert_int_equal(v.answer, KVARC_BELONGS_EXACT);
	assert_null(strstr(v.text, "last layer"));
	v = check(text, &slot, NULL);
	assert_int_equal(v.answer, KVARC_BELONGS_EXACT);
	assert_non_null(strstr(v.text, "last layer"));
	other.logprobs[1] += .01;
	assert_int_equal(check(text, &slot, &other).answer, KVARC_BELONGS_NEAR);
	other.logprobs[1] += 1;
	assert_int_equal(check(text, &slot, &other).answer, KVARC_BELONGS_NOT);
	/* Rows, as in test_rows; how much does not matter. */
	change(&slot, 2, KEYS, 5, 6, A_BIT);
	assert_int_equal(check(text, &slot, &next).answer, KVARC_BELONGS_NEAR);
	change(&slot, 1, KEYS, 0, 1, A_BIT);
	v = check(text, &slot, &next);
	assert_int_equal(v.answer, KVARC_BELONGS_NOT);
	assert_non_null(strstr(v.text, "layer 1 on"));
	assert_int_equal(v.first_token_alone, 1);
	change(&slot, 0, VALUES, 9, 10, A_BIT);
	v = check(text, &slot, &next);
	assert_int_equal(v.answer, KVARC_BELONGS_NOT);
	assert_non_null(strstr(v.text, "adapter"));
	change(&slot, 0, KEYS, 9, 10, A_BIT);
	assert_int_equal(check(text, &slot, &next).answer, KVARC_BELONGS_NEAR);
	slot_free(&slot);
	slot = test_slot(FEW, UINT32_MAX);
	change(&slot, 0, KEYS, 9, 10, A_BIT);
	v = check(text, &slot, &next);
	assert_int_equal(v.answer, KVARC_BELONGS_NOT);
	assert_non_null(strstr(v.text, "RoPE"));
	assert_int_equal(v.first_token_alone, 0);
	slot_free(&slot);
	/* Other tokens are not the fingerprint's. */
	slot = test_slot(FEW, 31);
	kvarc_import *im = open_slot(&slot);
	assert_int_equal(kvarc_canary_check(text, im, NULL, &v), KVARC_OPTIONS);
	/* Texts that are none: cut, and with a byte that is another. */
	for (size_t i = 0; i < strlen(text); i++) {
		memcpy(bad, text, i);
		bad[i] = 0;
		const kvarc_ret cut = kvarc_canary_ids(ids, 0, bad);
		assert_true(cut == KVARC_DATA || text[i] == ',' || i > strlen(text) - 40);
		strcpy(bad, text);
		bad[i] = 'z';
		assert_int_equal(kvarc_canary_ids(ids, 0, bad), KVARC_DATA);
	}
	kvarc_import_close(&im);
	slot_free(&slot);
}

/* New ids are those of every vocabulary, all others refused. */
static void test_ids(void **state)
{
	static const uint64_t sizes[] = { 2000, 32000, 49152, 262144 };
	int32_t ids[KVARC_CANARY_TOKENS];
	(void)state;
	assert_int_equal(kvarc_canary_ids(ids, 1999, NULL), KVARC_PROG);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		assert_int_equal(kvarc_canary_ids(ids, sizes[i], NULL), KVARC_OK);
		for (int k = 0; k < KVARC_CANARY_TOKENS; k++)
			assert_true(ids[k] >= 0 && (uint64_t)ids[k] < sizes[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),        cmocka_unit_test(test_quantised),
		cmocka_unit_test(test_windows),     cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_fingerprint), cmocka_unit_test(test_ids),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
