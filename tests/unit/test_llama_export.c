/* SPDX-License-Identifier: BSD-3-Clause */
/* test_llama_export.c - tokens of archives as llama.cpp files */
#include "slots_util.h"

#include <stdlib.h>
#include <string.h>

static kvarc_reader *open_archive(struct blob *archive, unsigned flags, kvarc_error *error)
{
	kvarc_source src = blob_source(archive);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	o.flags = flags;
	o.common.error = error;
	assert_int_equal(kvarc_reader_open(&r, &src, &o), KVARC_OK);
	return r;
}

/* The first n tokens of track 0. */
static kvarc_ret export_tokens(struct blob *archive, uint64_t n, unsigned flags, struct blob *out,
                               kvarc_slot_prefix *prefix)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = n };
	kvarc_slot_prefix dry;
	kvarc_sink sink = blob_sink(out);
	kvarc_error error = { 0 };
	kvarc_reader *r = open_archive(archive, flags, &error);
	kvarc_ret ret = kvarc_export_llama(r, &range, NULL, NULL, &dry);
	assert_int_equal(kvarc_export_llama(r, &range, &sink, NULL, prefix), ret);
	if (ret == KVARC_OK) {
		assert_int_equal(out->n, prefix->bytes);
		assert_memory_equal(prefix, &dry, sizeof dry);
	} else if (ret != KVARC_GEOMETRY || !(flags & KVARC_READ_SALVAGE)) { /* a token is left */
		if (ret != KVARC_OPTIONS)
			fail_msg("%d: %s", ret, error.text);
		assert_int_equal(out->n, 0);
		assert_non_null(prefix->why);
		assert_non_null(strstr(error.text, prefix->why));
	}
	kvarc_reader_close(&r);
	return ret;
}

static struct blob cut(struct blob *archive, uint64_t t0, uint64_t n)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .t0 = t0, .n = n };
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_sink sink = blob_sink(&out);
	kvarc_reader *r = open_archive(archive, 0, NULL);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.segment_tokens = 32;
	assert_int_equal(kvarc_cut(r, &range, &sink, &o, NULL), KVARC_OK);
	kvarc_reader_close(&r);
	return out;
}

/* All tokens of an archive give the file that was packed, whatever it is. */
static void whole_files(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < n_import_files; i++) {
		const struct expected *e = &import_files[i];
		struct blob out = { NULL, 0, 0, -1 };
		kvarc_slot_prefix prefix;
		if (strncmp(e->format, "llama.cpp", 9) != 0 || e->tensors == 0)
			continue;
		struct blob slot = blob_load(e->name), archive = slot_pack(&slot);
		assert_int_equal(export_tokens(&archive, UINT64_MAX, 0, &out, &prefix), KVARC_OK);
		assert_int_equal(out.n, slot.n);
		assert_memory_equal(out.p, slot.p, slot.n);
		assert_int_equal(prefix.whole_tokens, prefix.tokens);
		blob_free(&slot);
		blob_free(&archive);
		blob_free(&out);
	}
}

static bool same(const struct blob *a, const struct blob *b)
{
	return a->n == b->n && !memcmp(a->p, b->p, a->n);
}

/* The first n tokens of a slot: from its archive, from that archive cut to them and from one
 * cut to n + 1 tokens: the same file. */
static void export_everywhere(struct blob *archive, struct blob *slot, uint64_t n)
{
	struct blob out[3] = { { NULL, 0, 0, -1 }, { NULL, 0, 0, -1 }, { NULL, 0, 0, -1 } };
	struct blob one = cut(archive, 0, n), more = cut(archive, 0, n + 1);
	kvarc_slot_prefix prefix;
	if (export_tokens(archive, n, 0, &out[0], &prefix))
		fail_msg("%u tokens: %s", (unsigned)n, prefix.why);
	assert_int_equal(prefix.tokens, n);
	assert_int_equal(prefix.whole_tokens, n);
	slot_check_prefix(slot, &out[0], n);
	assert_int_equal(export_tokens(&one, UINT64_MAX, 0, &out[1], &prefix), KVARC_OK);
	assert_int_equal(prefix.whole_tokens, n);
	assert_true(same(&out[0], &out[1]));
	assert_int_equal(export_tokens(&more, n, 0, &out[2], &prefix), KVARC_OK);
	assert_true(same(&out[0], &out[2]));
	for (size_t i = 0; i < 3; i++)
		blob_free(&out[i]);
	blob_free(&one);
	blob_free(&more);
}

static void prefixes(void **unused)
{
	static const char *const names[] = {
		"ggsq2-f16.bin",        "ggsq2-no-streams.bin",
		"ggsq3-bf16.bin",       "ggsq4-f16.bin",
		"ggsq4-f16-vtrans.bin", "ggsq4-f32-vtrans.bin",
		"ggsq4-q4_0.bin",       "ggsq4-q4_1.bin",
		"ggsq4-q5_0.bin",       "ggsq4-q5_1.bin",
		"ggsq4-q8_0.bin",       "ggsq4-iq4_nl.bin",
		"ggsq4-mxfp4.bin",      "ggsq4-nvfp4.bin",
		"ggsq4-mla.bin",        "ggsq4-stream3.bin",
		"engine-latent.bin",    "CORPUS/f16.slot",
		"CORPUS/q8_0.slot",     "CORPUS/f16-transposed.slot",
	};
	(void)unused;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[100] = "../../../fuzz/corpus/slot_import/";
		bool corpus = !strncmp(names[i], "CORPUS/", 7);
		if (corpus)
			strcat(path, names[i] + 7);
		struct blob slot = blob_load(corpus ? path : names[i]), archive = slot_pack(&slot);
		kvarc_import *im = slot_open(&slot);
		uint64_t tokens = kvarc_import_tokens(im, 0);
		print_message("%s: %u tokens\n", names[i], (unsigned)tokens);
		kvarc_import_close(&im);
		for (uint64_t n = 2; n < tokens; n += n < 4 ? 1 : 9)
			export_everywhere(&archive, &slot, n);
		blob_free(&slot);
		blob_free(&archive);
	}
}

/* Sessions; their cells name sequences, which an archive that was cut does not. */
static void session(const char *name, uint64_t n, bool cuts)
{
	struct blob slot = blob_load(name), archive = slot_pack(&slot), part = cut(&archive, 0, n);
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_slot_prefix prefix;
	assert_int_equal(export_tokens(&archive, n, 0, &out, &prefix), KVARC_OK);
	assert_int_equal(prefix.whole_tokens, n);
	slot_check_prefix(&slot, &out, n);
	out.n = 0;
	assert_int_equal(export_tokens(&part, UINT64_MAX, 0, &out, &prefix),
	                 cuts ? KVARC_OK : KVARC_OPTIONS);
	if (cuts)
		slot_check_prefix(&slot, &out, n);
	blob_free(&slot);
	blob_free(&archive);
	blob_free(&part);
	blob_free(&out);
}

/* Cells with positions 4, 0, 1, 9, 8: the first two tokens are in the middle. */
static void disorder(void **unused)
{
	struct blob slot = blob_load("ggsq4-disorder.bin"), archive = slot_pack(&slot);
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_slot_prefix prefix;
	(void)unused;
	assert_int_equal(export_tokens(&archive, 4, 0, &out, &prefix), KVARC_OK);
	assert_int_equal(prefix.whole_tokens, 2);
	slot_check_prefix(&slot, &out, 2);
	blob_free(&slot);
	blob_free(&archive);
	blob_free(&out);
}

static void sessions(void **unused)
{
	(void)unused;
	session("ggsn9-outputs.bin", 3, false);
	session("ggsn9-f16.bin", 3, false);
	session("ggsn9-no-streams.bin", 3, false);
	session("../../../fuzz/corpus/slot_import/session.slot", 7, false);
	session("ggsn11-f16.bin", 3, true);
}

/* What cannot be restored is refused, and says why. */
static void refuse(struct blob *archive, const kvarc_range *range, const char *why)
{
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_sink sink = blob_sink(&out);
	kvarc_slot_prefix prefix;
	kvarc_reader *r = open_archive(archive, 0, NULL);
	if (kvarc_export_llama(r, range, &sink, NULL, &prefix) != KVARC_OPTIONS ||
	    strcmp(prefix.why, why) != 0)
		fail_msg("%s, not %s", prefix.why, why);
	assert_int_equal(out.n, 0);
	/* the reader is still good */
	assert_int_equal(kvarc_export_safetensors(r, range, &sink), KVARC_OK);
	blob_free(&out);
	kvarc_reader_close(&r);
}

static void refuse_prefix(const char *name, uint64_t n, const char *why)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = n };
	struct blob slot = blob_load(name), archive = slot_pack(&slot);
	refuse(&archive, &range, why);
	blob_free(&slot);
	blob_free(&archive);
}

static void refusals(void **unused)
{
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_range range = all;
	struct blob slot = blob_load("engine-checkpoints-window.bin"), archive = slot_pack(&slot);
	(void)unused;
	range.t0 = 1;
	refuse(&archive, &range, "an engine restores tokens from the first one on");
	range = all;
	range.track = 1;
	refuse(&archive, &range, "the track is not the first one of its file");
	struct blob part = cut(&archive, 0, 10);
	refuse(&part, &all,
	       "the file had several memories, of which one is not enough; "
	       "take the archive that was made from it");
	blob_free(&part);
	blob_free(&slot);
	blob_free(&archive);
	slot = blob_load("ggsq4-f16.bin");
	archive = slot_pack(&slot);
	range = all;
	range.n_layers = 1;
	refuse(&archive, &range, "an engine restores all layers");
	part = cut(&archive, 1, 2);
	refuse(&part, &all, "no token from position 0 on is whole in all layers");
	blob_free(&part);
	blob_free(&slot);
	blob_free(&archive);
	refuse_prefix("ggsq4-iswa.bin", 1,
	              "the sliding window or the recurrent state that goes with these tokens is "
	              "not there, and no context checkpoint before");
	refuse_prefix("engine-hybrid.bin", 5,
	              "the sliding window or the recurrent state that goes with these tokens is "
	              "not there, and no context checkpoint before");
	refuse_prefix("ggsq4-hybrid-idx.bin", 5,
	              "the sliding window or the recurrent state that goes with these tokens is "
	              "not there, and no context checkpoint before");
	refuse_prefix("ggsq4-deepseek4.bin", 5,
	              "its memory has rows of several tokens, which only the engine can cut");
	refuse_prefix("ggsq3-mrope-media.bin", 1, "its tokens are not plain text");
	refuse_prefix("ggsn10-stream3.bin", 1, "it holds several streams");
}

/* A window or a state goes back to a context checkpoint. */
static void checkpoint(const char *name, uint64_t n, uint64_t tokens)
{
	struct blob slot = blob_load(name), archive = slot_pack(&slot);
	struct blob out = { NULL, 0, 0, -1 };
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = n };
	const kvarc_llama_options exact = { .flags = KVARC_LLAMA_EXACT };
	kvarc_slot_prefix prefix;
	assert_int_equal(export_tokens(&archive, n, 0, &out, &prefix),
	                 tokens ? KVARC_OK : KVARC_OPTIONS);
	assert_int_equal(prefix.tokens, n);
	assert_int_equal(prefix.whole_tokens, tokens);
	if (tokens)
		slot_check_prefix(&slot, &out, tokens);
	kvarc_reader *r = open_archive(&archive, 0, NULL);
	assert_int_equal(kvarc_export_llama(r, &range, NULL, &exact, &prefix),
	                 n == tokens ? KVARC_OK : KVARC_OPTIONS);
	kvarc_reader_close(&r);
	blob_free(&out);
	blob_free(&archive);
	blob_free(&slot);
}

static void checkpoints(void **unused)
{
	static const char *const names[] = { "engine-checkpoints-window.bin",
		                             "engine-checkpoints-window-vtrans.bin",
		                             "engine-checkpoints-hybrid.bin" };
	(void)unused;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		bool state = i == 2;
		checkpoint(names[i], 27, 0);
		checkpoint(names[i], 28, 28);
		checkpoint(names[i], 39, state ? 28 : 39);
		checkpoint(names[i], 40, 40);
		checkpoint(names[i], 43, state ? 40 : 43);
		checkpoint(names[i], 44, 44);
	}
	/* an indexer whose value matrices have no bytes */
	for (uint64_t n = 1; n < 12; n++)
		checkpoint("ggsq4-msa.bin", n, n);
	/* states in place of the slot's, before the keys of the indexer */
	for (uint64_t n = 4; n < 12; n++)
		checkpoint("ggsq4-hybrid-idx-checkpoints.bin", n, n / 4 * 4);
	checkpoint("ggsq4-hybrid-idx-checkpoints.bin", 3, 0);
}

/* The window of a prefix, from those of the slot and of checkpoints at 28 and 40 tokens, and one
 * position more where there is one: the server wants it. */
static void windows(void **unused)
{
	enum { WINDOW = 16 };
	struct blob slot = blob_load("engine-checkpoints-window-vtrans.bin");
	struct blob archive = slot_pack(&slot);
	(void)unused;
	for (uint64_t n = 28; n < 44; n++) {
		struct blob out = { NULL, 0, 0, -1 };
		kvarc_slot_prefix prefix;
		int32_t position;
		assert_int_equal(export_tokens(&archive, n, 0, &out, &prefix), KVARC_OK);
		assert_int_equal(prefix.whole_tokens, n);
		kvarc_import *im = slot_open(&out);
		uint64_t cells = kvarc_import_tokens(im, 1), first = n - cells;
		assert_int_equal(cells, n == 28 || n == 40 ? WINDOW : WINDOW + 1);
		for (uint64_t i = 0; i < cells; i++) {
			assert_int_equal(kvarc_import_read_tokens(im, 1, i, 1, NULL, &position),
			                 KVARC_OK);
			assert_int_equal(position, first + i);
		}
		kvarc_import_close(&im);
		blob_free(&out);
	}
	blob_free(&slot);
	blob_free(&archive);
}

/* Salvage: of archives with and without files, cut at every place. */
static void salvage(void **unused)
{
	struct blob slot = blob_load("../../../fuzz/corpus/slot_import/f16.slot");
	struct blob archive = slot_pack(&slot), part = cut(&archive, 0, 40);
	unsigned seen[2] = { 0, 0 };
	(void)unused;
	for (int k = 0; k < 2; k++) {
		struct blob damaged = k ? part : archive;
		for (size_t at = 0; at < (k ? part.n : archive.n); at += 100) {
			struct blob out = { NULL, 0, 0, -1 };
			kvarc_source src = blob_source(&damaged);
			kvarc_reader_options o = { .flags = KVARC_READ_SALVAGE };
			kvarc_slot_prefix prefix;
			kvarc_reader *r;
			damaged.n = at;
			src.size = at;
			if (kvarc_reader_open(&r, &src, &o))
				continue;
			kvarc_reader_close(&r);
			if (export_tokens(&damaged, UINT64_MAX, KVARC_READ_SALVAGE, &out, &prefix))
				continue;
			assert_true(prefix.whole_tokens == 32 || prefix.whole_tokens == 40);
			seen[k] |= prefix.whole_tokens == 32 ? 1 : 2;
			slot_check_prefix(&slot, &out, prefix.whole_tokens);
			blob_free(&out);
		}
	}
	assert_int_equal(seen[0], 3);
	assert_int_equal(seen[1] & 1, 1);
	blob_free(&slot);
	blob_free(&archive);
	blob_free(&part);
}

static void misuse(void **unused)
{
	const kvarc_range all = KVARC_RANGE_ALL(0), beyond = { .n_layers = UINT32_MAX, .n = 1000 };
	const kvarc_llama_options flags = { .flags = 2 }, reserved = { .reserved = { 0, 1 } };
	struct blob slot = blob_load("ggsq4-f16.bin"), archive = slot_pack(&slot);
	kvarc_error error = { 0 };
	kvarc_reader *r = open_archive(&archive, 0, &error);
	(void)unused;
	assert_int_equal(kvarc_export_llama(NULL, &all, NULL, NULL, NULL), KVARC_PROG);
	assert_int_equal(kvarc_export_llama(r, NULL, NULL, NULL, NULL), KVARC_PROG);
	assert_int_equal(kvarc_export_llama(r, &all, NULL, &flags, NULL), KVARC_PROG);
	assert_non_null(strstr(error.text, "kvarc_export_llama: kvarc_llama_options.flags"));
	assert_int_equal(kvarc_export_llama(r, &all, NULL, &reserved, NULL), KVARC_PROG);
	assert_non_null(strstr(error.text, "reserved"));
	assert_int_equal(kvarc_export_llama(r, &beyond, NULL, NULL, NULL), KVARC_GEOMETRY);
	assert_int_equal(kvarc_export_llama(r, &all, NULL, NULL, NULL), KVARC_OK);
	kvarc_reader_close(&r);
	blob_free(&slot);
	blob_free(&archive);
}

/* Each allocation that fails, and each write, is an error without a leak. */
static void failures(void **unused)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = 3 };
	struct blob slot = blob_load("ggsq4-q8_0.bin"), archive = slot_pack(&slot);
	struct blob part = cut(&archive, 0, 4);
	(void)unused;
	for (int k = 0; k < 2; k++) {
		kvarc_source src = blob_source(k ? &part : &archive);
		kvarc_ret ret = KVARC_MEM;
		for (long i = 0; ret == KVARC_MEM; i++) {
			struct failing f;
			struct blob out = { NULL, 0, 0, -1 };
			kvarc_sink sink = blob_sink(&out);
			failing_init(&f, i);
			kvarc_reader_options o = { .common = { .allocator = &f.fn } };
			kvarc_reader *r;
			ret = kvarc_reader_open(&r, &src, &o);
			if (!ret)
				ret = kvarc_export_llama(r, &range, &sink, NULL, NULL);
			kvarc_reader_close(&r);
			assert_int_equal(f.held, 0);
			blob_free(&out);
		}
		assert_int_equal(ret, KVARC_OK);
		ret = KVARC_IO;
		for (int i = 0; ret == KVARC_IO; i++) {
			struct blob out = { NULL, 0, 0, i };
			kvarc_sink sink = blob_sink(&out);
			kvarc_reader *r = open_archive(k ? &part : &archive, 0, NULL);
			ret = kvarc_export_llama(r, &range, &sink, NULL, NULL);
			kvarc_reader_close(&r);
			blob_free(&out);
		}
		assert_int_equal(ret, KVARC_OK);
	}
	blob_free(&slot);
	blob_free(&archive);
	blob_free(&part);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_files), cmocka_unit_test(prefixes),
		cmocka_unit_test(sessions),    cmocka_unit_test(refusals),
		cmocka_unit_test(checkpoints), cmocka_unit_test(windows),
		cmocka_unit_test(salvage),     cmocka_unit_test(disorder),
		cmocka_unit_test(misuse),      cmocka_unit_test(failures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
