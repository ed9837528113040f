/* SPDX-License-Identifier: BSD-3-Clause */
/* test_salvage_slot.c - salvaged llama.cpp slots hold whole tokens alone */
#include "slots_util.h"

#include <stdlib.h>
#include <string.h>

#define CORPUS "../../../fuzz/corpus/slot_import/"

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
		slot_check_prefix(slot, &out, prefix.whole_tokens);
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
	struct blob slot = blob_load(name), archive = slot_pack(&slot);
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

/* A window that has lost its beginning is put together from those of checkpoints; where these
 * have lost theirs, or with a state, it goes back to one of them. */
static void checkpoints(void **unused)
{
	static const unsigned rows[] = { 32 }, channels[] = { 32, 40, 44 },
			      states[] = { 28, 40, 44 };
	(void)unused;
	salvage_everywhere("engine-checkpoints-window.bin", rows, 1);
	salvage_everywhere("engine-checkpoints-window-vtrans.bin", channels, 3);
	salvage_everywhere("engine-checkpoints-hybrid.bin", states, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain),
		cmocka_unit_test(checkpoints),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
