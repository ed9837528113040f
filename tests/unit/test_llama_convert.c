/* SPDX-License-Identifier: BSD-3-Clause */
/* test_llama_convert.c - llama.cpp slots of one version as those of another */
#include "slots_util.h"

#include <stdio.h>
#include <string.h>

/* Exports all tokens of an archive; why: the reason of a refusal. */
static kvarc_ret export_as(struct blob *archive, uint64_t version, uint64_t n, struct blob *out,
                           kvarc_slot_prefix *prefix)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = n };
	const kvarc_llama_options options = { .state_version = version };
	kvarc_source src = blob_source(archive);
	kvarc_sink sink = blob_sink(out);
	kvarc_error error = { 0 };
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	o.common.error = &error;
	assert_int_equal(kvarc_reader_open(&r, &src, &o), KVARC_OK);
	kvarc_ret ret = kvarc_export_llama(r, &range, &sink, &options, prefix);
	if (ret && ret != KVARC_PROG) {
		assert_int_equal(out->n, 0);
		assert_non_null(strstr(error.text, prefix->why));
		assert_null(strchr(error.text, '\n'));
	}
	kvarc_reader_close(&r);
	return ret;
}

/* The packed token list of a slot becomes a plain one, which newer servers read as well. */
static void unpack_list(struct blob *slot)
{
	enum { LIST = 8, PACKED_LIST = 20, TOKENS = 12, MEDIA = 4 };
	const size_t tokens = 4 * (1 + TOKENS), behind = PACKED_LIST + tokens + MEDIA;
	memmove(slot->p + LIST, slot->p + PACKED_LIST, tokens);
	memmove(slot->p + LIST + tokens, slot->p + behind, slot->n - behind);
	slot->n -= behind - LIST - tokens;
}

static void same_file(const char *from, const char *to, uint64_t version, bool list)
{
	struct blob slot = blob_load(from), wanted = blob_load(to), archive = slot_pack(&slot);
	if (list)
		unpack_list(&wanted);
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_slot_prefix prefix;
	print_message("%s as version %u\n", from, (unsigned)version);
	kvarc_ret ret = export_as(&archive, version, UINT64_MAX, &out, &prefix);
	if (ret)
		fail_msg("%s", prefix.why);
	assert_int_equal(out.n, wanted.n);
	assert_memory_equal(out.p, wanted.p, out.n);
	blob_free(&slot);
	blob_free(&wanted);
	blob_free(&archive);
	blob_free(&out);
}

/* Each version of a cache gives each other one, byte for byte. */
static void all_versions(void **unused)
{
	static const char *const kinds[] = { "", "-picture", "-checkpoint" };
	(void)unused;
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
		for (unsigned from = 2; from <= 4; from++)
			for (unsigned to = 2; to <= 4; to++) {
				char name[2][40];
				(void)snprintf(name[0], sizeof name[0], "version%u%s.bin", from,
				               kinds[k]);
				(void)snprintf(name[1], sizeof name[1], "version%u%s.bin", to,
				               kinds[k]);
				same_file(name[0], name[1], to, from == 2 && to > 2);
			}
	same_file("ggsq2-no-streams.bin", "ggsq2-no-streams.bin", 2, false);
}

/* A prefix is cut from the converted slot. */
static void prefix_of_other(void **unused)
{
	struct blob slot = blob_load("version3-checkpoint.bin"), archive = slot_pack(&slot);
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_slot_prefix prefix;
	(void)unused;
	assert_int_equal(export_as(&archive, 4, 9, &out, &prefix), KVARC_OK);
	assert_int_equal(prefix.whole_tokens, 9);
	assert_int_equal(out.p[4], 4);
	slot_check_prefix(&slot, &out, 9);
	blob_free(&slot);
	blob_free(&archive);
	blob_free(&out);
}

static void refuse(const char *name, uint64_t version, const char *why)
{
	struct blob slot = blob_load(name), archive = slot_pack(&slot);
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_slot_prefix prefix;
	print_message("%s as version %u\n", name, (unsigned)version);
	assert_int_equal(export_as(&archive, version, UINT64_MAX, &out, &prefix), KVARC_OPTIONS);
	assert_string_equal(prefix.why, why);
	blob_free(&slot);
	blob_free(&archive);
	blob_free(&out);
}

static void refusals(void **unused)
{
	static const char quantised[] = "its elements are quantised, and versions 2 and 3 do not "
					"say whether they are rotated";
	struct blob slot = blob_load("version4.bin"), archive = slot_pack(&slot);
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_slot_prefix prefix;
	(void)unused;
	refuse("ggsq4-q8_0.bin", 3, quantised);
	refuse("ggsq4-q4_0.bin", 2, quantised);
	refuse("ggsq3-mrope-media.bin", 2,
	       "its tokens are not plain text, for which version 2 has no list");
	refuse("ggsq4-hybrid-idx-history.bin", 2,
	       "its model has an n-gram history, which version 2 does not know");
	refuse("ggsq4-deepseek4.bin", 3, "it is of a memory that only the engine converts");
	refuse("ggsn11-f16.bin", 3, "it is a session file, no slot");
	assert_int_equal(export_as(&archive, 1, UINT64_MAX, &out, &prefix), KVARC_PROG);
	assert_int_equal(export_as(&archive, 5, UINT64_MAX, &out, &prefix), KVARC_PROG);
	blob_free(&slot);
	blob_free(&archive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_versions),
		cmocka_unit_test(prefix_of_other),
		cmocka_unit_test(refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
