/* SPDX-License-Identifier: BSD-3-Clause */
/* test_salvage_slot.c - salvaged llama.cpp slots hold whole tokens alone */
#include "import_files.h"

#include <stdlib.h>
#include <string.h>

enum { SEGMENT = 32 };
#define CORPUS "../../../fuzz/corpus/slot_import/"

static struct blob pack(struct blob *slot)
{
	struct blob archive = { NULL, 0, 0, -1 };
	kvarc_source src = blob_source(slot);
	kvarc_sink sink = blob_sink(&archive);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_import *im;
	o.segment_tokens = SEGMENT;
	assert_int_equal(kvarc_import_open(&im, &src, "slot", NULL), KVARC_OK);
	assert_int_equal(kvarc_pack(im, &sink, &o, NULL), KVARC_OK);
	kvarc_import_close(&im);
	return archive;
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	*sink = blob_sink(opaque);
	return 0;
}

/* Unpacks the first `bytes` of an archive under salvage, and shortens the slot. */
static kvarc_ret salvage(struct blob *archive, size_t bytes, struct blob *out,
                         kvarc_slot_prefix *prefix)
{
	struct blob cut = *archive, full = { NULL, 0, 0, -1 };
	cut.n = bytes;
	kvarc_source src = blob_source(&cut);
	kvarc_sink sink = blob_sink(out);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_item item;
	kvarc_reader *r;
	o.flags = KVARC_READ_SALVAGE;
	if (kvarc_reader_open(&r, &src, &o))
		return KVARC_DATA;
	kvarc_ret ret = kvarc_unpack(r, open_item, &full);
	if (ret == KVARC_OK) {
		assert_int_equal(kvarc_reader_item(r, 0, &item), KVARC_OK);
		uint8_t zero = 0;
		if (full.n < item.bytes)
			blob_sink(&full).write(&full, &zero, 1, item.bytes - 1);
		src = blob_source(&full);
		ret = kvarc_salvage_slot(r, 0, &src, &sink, prefix);
		if (ret == KVARC_OK)
			assert_int_equal(out->n, prefix->bytes);
		else
			assert_int_equal(out->n, 0);
	} else {
		ret = KVARC_DATA;
	}
	kvarc_reader_close(&r);
	blob_free(&full);
	return ret;
}

static kvarc_import *open_slot(struct blob *b)
{
	kvarc_source src = blob_source(b);
	kvarc_import *im;
	assert_int_equal(kvarc_import_open(&im, &src, "slot", NULL), KVARC_OK);
	assert_null(kvarc_import_note(im));
	return im;
}

/* The token of a track that has a position; the track's count: none. */
static uint64_t token_at(const kvarc_import *im, uint32_t track, int32_t position)
{
	uint64_t n = kvarc_import_tokens(im, track), i;
	int32_t p = -1;
	for (i = 0; i < n; i++) {
		assert_int_equal(kvarc_import_read_tokens(im, track, i, 1, NULL, &p), KVARC_OK);
		if (p == position)
			break;
	}
	return i;
}

static void same_elements(kvarc_import *a, kvarc_import *b, uint32_t tensor, uint64_t ta,
                          uint64_t tb)
{
	const kvarc_tensor *t = &kvarc_import_geometry(a)->tensors[tensor];
	uint8_t x[4096], y[4096];
	size_t bytes = t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
	assert_true(bytes <= sizeof x);
	assert_int_equal(kvarc_import_fetch(a, tensor, 0, t->heads, ta, 1, x), 0);
	assert_int_equal(kvarc_import_fetch(b, tensor, 0, t->heads, tb, 1, y), 0);
	assert_memory_equal(x, y, bytes);
}

/* Every token of the shorter slot is the slot's own; track 0 begins with all of them. */
static void check(struct blob *slot, struct blob *shorter, uint64_t tokens)
{
	kvarc_import *a = open_slot(slot), *b = open_slot(shorter);
	const kvarc_geometry *g = kvarc_import_geometry(b);
	int32_t ids[2][64];
	assert_true(g->n_tensors <= kvarc_import_geometry(a)->n_tensors);
	assert_int_equal(kvarc_import_tokens(b, 0), tokens);
	assert_int_equal(kvarc_import_read_tokens(a, 0, 0, tokens, ids[0], NULL), 0);
	assert_int_equal(kvarc_import_read_tokens(b, 0, 0, tokens, ids[1], NULL), 0);
	assert_memory_equal(ids[0], ids[1], tokens * sizeof **ids);
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		uint32_t track = g->tensors[i].track;
		if (g->tracks[track].kind == KVARC_TRACK_STATE)
			continue;
		for (int32_t p = 0; p < (int32_t)tokens; p++) {
			uint64_t ta = token_at(a, track, p), tb = token_at(b, track, p);
			if (tb < kvarc_import_tokens(b, track) &&
			    ta < kvarc_import_tokens(a, track))
				same_elements(a, b, i, ta, tb);
		}
	}
	kvarc_import_close(&a);
	kvarc_import_close(&b);
}

/* Salvages one cut or damaged archive; marks the length of the slot in seen. */
static void try_one(struct blob *slot, struct blob *archive, size_t bytes, bool seen[64])
{
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_slot_prefix prefix;
	kvarc_ret ret = salvage(archive, bytes, &out, &prefix);
	if (ret == KVARC_OK) {
		assert_true(prefix.whole_tokens <= prefix.tokens);
		assert_true(prefix.whole_tokens > 0 && prefix.whole_tokens < 64);
		seen[prefix.whole_tokens] = true;
		check(slot, &out, prefix.whole_tokens);
	} else {
		assert_true(ret == KVARC_OPTIONS || ret == KVARC_END || ret == KVARC_DATA);
		if (ret == KVARC_OPTIONS)
			assert_non_null(prefix.why);
	}
	blob_free(&out);
}

/* An archive that is cut, then one that is damaged, every STEP bytes: slots of just
 * these lengths come out. */
static void salvage_everywhere(const char *name, const unsigned *lengths, size_t n)
{
	enum { STEP = 200 };
	struct blob slot = blob_load(name), archive = pack(&slot);
	bool seen[64] = { false }, expected[64] = { false };
	for (size_t at = 0; at < archive.n; at += STEP)
		try_one(&slot, &archive, at, seen);
	for (size_t at = 0; at < archive.n; at += STEP) {
		archive.p[at] ^= 0xff;
		try_one(&slot, &archive, archive.n, seen);
		archive.p[at] ^= 0xff;
	}
	for (size_t i = 0; i < n; i++)
		expected[lengths[i]] = true;
	for (size_t i = 0; i < 64; i++)
		if (seen[i] != expected[i])
			fail_msg("%s: length %zu", name, i);
	blob_free(&slot);
	blob_free(&archive);
}

static void plain(void **unused)
{
	static const unsigned first[] = { 32 };
	(void)unused;
	salvage_everywhere(CORPUS "f16.slot", first, 1);
	salvage_everywhere(CORPUS "f16-transposed.slot", first, 1);
	salvage_everywhere(CORPUS "bf16-v2.slot", first, 1);
	salvage_everywhere(CORPUS "q8_0.slot", NULL, 0);
}

/* A window that has lost its beginning cannot be rewound, but to its checkpoints. */
static void checkpoints(void **unused)
{
	static const unsigned lengths[] = { 28, 40, 44 };
	(void)unused;
	salvage_everywhere("engine-checkpoints-window.bin", lengths, 1);
	salvage_everywhere("engine-checkpoints-window-vtrans.bin", lengths, 3);
	salvage_everywhere("engine-checkpoints-hybrid.bin", lengths, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain),
		cmocka_unit_test(checkpoints),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
