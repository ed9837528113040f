/* SPDX-License-Identifier: BSD-3-Clause */
/* test_llama_memories.c - the memories of llama.cpp slots, in any order, as tracks */
#include "slots_util.h"

#include <stdlib.h>
#include <string.h>

enum { TRACKS_MAX = 10 };

/* A track, and the kind of its first tensor. */
struct track {
	const char *label;
	uint64_t tokens;
	uint8_t kind, tensor;
	bool ids;
};

static const struct memories_of {
	const char *name;
	struct track tracks[TRACKS_MAX];
} slots[] = {
	{ "ggsq4-hybrid-idx-history.bin",
	  { { "stream 0", 12, KVARC_TRACK_SELF, KVARC_KEY, true },
	    { "conv-state", 3, KVARC_TRACK_STATE, KVARC_CONV_STATE, false },
	    { "recurrent-state", 5, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE, false },
	    { "ngram-history", 3, KVARC_TRACK_STATE, KVARC_CONV_STATE, false },
	    { "stream 0 indexer", 12, KVARC_TRACK_OTHER, KVARC_INDEXER_KEY, true } } },
	{ "ggsq4-hybrid-idx-one-form.bin",
	  { { "stream 0", 12, KVARC_TRACK_SELF, KVARC_KEY, true },
	    { "conv-state", 3, KVARC_TRACK_STATE, KVARC_CONV_STATE, false },
	    { "recurrent-state", 3, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE, false },
	    { "ngram-history", 3, KVARC_TRACK_STATE, KVARC_CONV_STATE, false },
	    { "stream 0 indexer", 12, KVARC_TRACK_OTHER, KVARC_INDEXER_KEY, true } } },
	{ "ggsq4-hybrid-idx-checkpoints.bin",
	  { { "stream 0", 12, KVARC_TRACK_SELF, KVARC_KEY, true },
	    { "conv-state", 3, KVARC_TRACK_STATE, KVARC_CONV_STATE, false },
	    { "recurrent-state", 5, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE, false },
	    { "stream 0 indexer", 12, KVARC_TRACK_OTHER, KVARC_INDEXER_KEY, true },
	    { "conv-state checkpoint 0", 3, KVARC_TRACK_STATE, KVARC_CONV_STATE, false },
	    { "recurrent-state checkpoint 0", 5, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE, false },
	    { "conv-state checkpoint 1", 3, KVARC_TRACK_STATE, KVARC_CONV_STATE, false },
	    { "recurrent-state checkpoint 1", 5, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE,
	      false } } },
	{ "ggsq4-dsa-iswa.bin",
	  { { "stream 0", 12, KVARC_TRACK_SELF, KVARC_MLA_LATENT, true },
	    { "stream 0 indexer", 12, KVARC_TRACK_OTHER, KVARC_INDEXER_KEY, true },
	    { "stream 0 window", 6, KVARC_TRACK_WINDOW, KVARC_MLA_LATENT, true } } },
	{ "ggsq4-msa.bin",
	  { { "stream 0", 12, KVARC_TRACK_SELF, KVARC_KEY, true },
	    { "stream 0 indexer", 12, KVARC_TRACK_OTHER, KVARC_INDEXER_KEY, true } } },
	{ "ggsq4-deepseek4-checkpoint.bin",
	  { { "stream 0 window", 12, KVARC_TRACK_WINDOW, KVARC_MLA_LATENT, false },
	    { "blocks of 4", 35, KVARC_TRACK_OTHER, KVARC_MLA_LATENT, false },
	    { "blocks of 128", 1, KVARC_TRACK_OTHER, KVARC_MLA_LATENT, false },
	    { "indexer blocks of 4", 35, KVARC_TRACK_OTHER, KVARC_INDEXER_KEY, false },
	    { "compressor of 4", 8, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE, false },
	    { "compressor of 128", 128, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE, false },
	    { "indexer compressor of 4", 8, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE, false },
	    { "compressor of 4 checkpoint 0", 8, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE, false },
	    { "compressor of 128 checkpoint 0", 128, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE,
	      false },
	    { "indexer compressor of 4 checkpoint 0", 8, KVARC_TRACK_STATE, KVARC_RECURRENT_STATE,
	      false } } },
};

static uint8_t first_tensor(const kvarc_geometry *geometry, uint32_t track)
{
	for (size_t i = 0; i < geometry->n_tensors; i++)
		if (geometry->tensors[i].track == track)
			return geometry->tensors[i].kind;
	return 0;
}

/* What each track is, and that its first token has an id only where it is one of the list. */
static void tracks(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
		struct blob slot = blob_load(slots[i].name);
		kvarc_import *im = slot_open(&slot);
		const kvarc_geometry *g = kvarc_import_geometry(im);
		uint32_t n = 0;
		for (const struct track *t = slots[i].tracks; n < TRACKS_MAX && t[n].label; n++) {
			int32_t id = -1;
			print_message("%s: %s\n", slots[i].name, t[n].label);
			assert_true(n < g->n_tracks);
			assert_string_equal(g->tracks[n].label, t[n].label);
			assert_int_equal(g->tracks[n].kind, t[n].kind);
			assert_int_equal(kvarc_import_tokens(im, n), t[n].tokens);
			assert_int_equal(first_tensor(g, n), t[n].tensor);
			assert_int_equal(kvarc_import_read_tokens(im, n, 0, 1, &id, NULL) ==
			                         KVARC_OK,
			                 t[n].ids);
		}
		assert_int_equal(n, g->n_tracks);
		kvarc_import_close(&im);
		blob_free(&slot);
	}
}

/* The first row of the first tensor of a track. */
static void first_row(struct blob *slot, const char *label, uint8_t row[512])
{
	kvarc_import *im = slot_open(slot);
	const kvarc_geometry *g = kvarc_import_geometry(im);
	bool found = false;
	for (uint32_t i = 0; i < g->n_tensors && !found; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		found = !strcmp(g->tracks[t->track].label, label);
		if (found)
			assert_int_equal(kvarc_import_fetch(im, i, 0, t->heads, 0, 1, row), 0);
	}
	assert_true(found);
	kvarc_import_close(&im);
}

/* A prefix has the states of its context checkpoint in place of the slot's. */
static void states_of_prefix(void **unused)
{
	struct blob slot = blob_load("ggsq4-hybrid-idx-checkpoints.bin");
	struct blob archive = slot_pack(&slot), out = { NULL, 0, 0, -1 };
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = 10 };
	uint8_t row[3][512] = { { 0 } };
	kvarc_source src = blob_source(&archive);
	kvarc_sink sink = blob_sink(&out);
	kvarc_reader *r;
	(void)unused;
	assert_int_equal(kvarc_reader_open(&r, &src, NULL), KVARC_OK);
	assert_int_equal(kvarc_export_llama(r, &range, &sink, NULL, NULL), KVARC_OK);
	kvarc_reader_close(&r);
	first_row(&slot, "recurrent-state", row[0]);
	first_row(&slot, "recurrent-state checkpoint 1", row[1]);
	first_row(&out, "recurrent-state", row[2]);
	assert_memory_not_equal(row[0], row[1], sizeof *row);
	assert_memory_equal(row[1], row[2], sizeof *row);
	blob_free(&slot);
	blob_free(&archive);
	blob_free(&out);
}

/* Opens n bytes; returns the number of tensors. No bytes are an error. */
static size_t open_bytes(struct blob *slot, size_t n)
{
	kvarc_source src = blob_source(slot);
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	o.rope = "none";
	src.size = n;
	assert_int_equal(kvarc_import_open(&im, &src, "slot", &o), KVARC_OK);
	size_t tensors = kvarc_import_geometry(im)->n_tensors;
	if (!tensors)
		assert_null(strstr(kvarc_import_note(im), "damaged"));
	kvarc_import_close(&im);
	return tensors;
}

/* A slot that is not whole is bytes, but for one that lacks checkpoints. */
static void cut_anywhere(void **unused)
{
	static const char *const names[] = { "ggsq4-hybrid-idx-history.bin", "ggsq4-deepseek4.bin",
		                             "ggsq4-dsa-iswa.bin" };
	(void)unused;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct blob slot = blob_load(names[i]);
		const size_t all = slot.n;
		assert_true(open_bytes(&slot, all) > 0);
		for (slot.n = 8; slot.n < all; slot.n += slot.n + 60 < all ? 37 : 1)
			if (open_bytes(&slot, slot.n))
				print_message("%s: %zu of %zu bytes\n", names[i], slot.n, all);
		slot.n = all;
		blob_free(&slot);
	}
}

static void set32(struct blob *slot, size_t at, uint32_t value)
{
	assert_true(at + 4 <= slot->n);
	for (int i = 0; i < 4; i++)
		slot->p[at + (size_t)i] = (uint8_t)(value >> 8 * i);
}

/* Numbers of memories that would ask for too much are refused at once. */
static void large_numbers(void **unused)
{
	static const uint32_t values[] = { 0, 1, 0xff, 0x7fffffff, 0xffffffff };
	(void)unused;
	struct blob slot = blob_load("ggsq4-deepseek4.bin");
	for (size_t at = 8; at + 4 <= slot.n; at += at < 5000 ? 4 : 44)
		for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
			struct blob other = blob_copy(&slot);
			set32(&other, at, values[i]);
			(void)open_bytes(&other, other.n);
			blob_free(&other);
		}
	blob_free(&slot);
}

/* A slot of the n bytes of a memory behind one token. */
static struct blob slot_of(const uint8_t *memory, size_t n)
{
	static const uint8_t head[16] = { 'q', 's', 'g', 'g', 4, 0, 0, 0, 1 };
	struct blob slot = { malloc(sizeof head + n), sizeof head + n, sizeof head + n, -1 };
	assert_non_null(slot.p);
	memcpy(slot.p, head, sizeof head);
	memcpy(slot.p + sizeof head, memory, n);
	return slot;
}

/* Bytes that begin many memories, but are none, cost no more than a few readings. */
static void many_readings(void **unused)
{
	enum { BYTES = 1 << 20 };
	uint8_t *memory = calloc(BYTES, 1);
	(void)unused;
	assert_non_null(memory);
	for (uint8_t one = 0; one < 3; one++) {
		for (size_t i = 0; i < BYTES; i += 8)
			memory[i] = one;
		for (uint32_t cells = 1; cells < BYTES / 8; cells *= 16) {
			struct blob slot = slot_of(memory, BYTES);
			set32(&slot, 16, 1);
			set32(&slot, 20, cells);
			assert_int_equal(open_bytes(&slot, slot.n), 0);
			blob_free(&slot);
		}
	}
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tracks),        cmocka_unit_test(states_of_prefix),
		cmocka_unit_test(cut_anywhere),  cmocka_unit_test(large_numbers),
		cmocka_unit_test(many_readings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
