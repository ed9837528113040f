/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target_salvage_slot.c - fuzz target: llama.cpp slots from damaged archives, and prefixes of them
 *
 * The data is a slot, which is packed first. Its last seven bytes are the damage: twice where in
 * the archive (of 65536) and what a byte of it is changed by, then 128: nothing, else where the
 * archive ends (of 128; 0: nowhere). The last but one is also the number of tokens that are
 * exported as a slot, from the archive, and from one that is cut from it.
 */
#include "fuzz_common.h"

const size_t fuzz_parameters = 7;

static kvarc_ret pack(const uint8_t *data, size_t n, struct fuzz_env *env, struct fuzz_file *out)
{
	struct fuzz_input in = { .p = data, .n = n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_sink sink = fuzz_file_sink(out);
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_writer_options wopt = KVARC_WRITER_OPTIONS_INIT;
	kvarc_import *im = NULL;
	opt.common = env->common;
	opt.rope = "none";
	kvarc_ret ret = kvarc_import_open(&im, &source, "slot", &opt);
	wopt.common = env->common;
	wopt.level = KVARC_LEVEL(env->mode & 1);
	wopt.segment_tokens = 32;
	if (ret == KVARC_OK)
		ret = kvarc_pack(im, &sink, &wopt, NULL);
	kvarc_import_close(&im);
	return ret;
}

static void damage(struct fuzz_file *archive, const uint8_t *p)
{
	for (int i = 0; i < 2; i++, p += 3)
		archive->p[((size_t)p[0] << 8 | p[1]) * archive->n >> 16] ^= p[2];
	if (*p && *p < 128)
		archive->n = archive->n * *p >> 7;
}

/* The first item goes to a file, others nowhere. */
static int item_open(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	*sink = fuzz_file_sink(opaque);
	return item->index > 0;
}

/* What an engine gets is a slot to its exact end. */
static void check_slot(const struct fuzz_file *slot, const kvarc_slot_prefix *prefix,
                       struct fuzz_env *env)
{
	struct fuzz_input in = { .p = slot->p, .n = slot->n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im = NULL;
	FUZZ_CHECK(slot->n == prefix->bytes && prefix->whole_tokens <= prefix->tokens);
	opt.common = env->common;
	opt.rope = "none";
	kvarc_ret ret = kvarc_import_open(&im, &source, "slot", &opt);
	FUZZ_CHECK(ret == KVARC_OK || env->failing);
	FUZZ_CHECK(ret || !strncmp(kvarc_import_format(im), "llama.cpp", 9));
	kvarc_import_close(&im);
}

static void salvage(const struct fuzz_file *archive, struct fuzz_env *env)
{
	struct fuzz_input in = { .p = archive->p, .n = archive->n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common, .flags = KVARC_READ_SALVAGE };
	struct fuzz_file file = { 0 }, slot = { 0 };
	kvarc_slot_prefix prefix;
	kvarc_reader *r = NULL;
	opt.common.threads = env->mode & 2 ? 2 : 0;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &opt);
	if (ret == KVARC_OK)
		ret = kvarc_unpack(r, item_open, &file);
	if (ret == KVARC_OK) {
		struct fuzz_input again = { .p = file.p, .n = file.n };
		kvarc_source unpacked = fuzz_input_source(&again);
		kvarc_sink sink = fuzz_file_sink(&slot);
		ret = kvarc_salvage_slot(r, 0, &unpacked, &sink, &prefix);
		FUZZ_CHECK(ret != KVARC_PROG && (ret != KVARC_OPTIONS || prefix.why));
		FUZZ_CHECK((ret != KVARC_END && ret != KVARC_OPTIONS) || slot.n == 0);
		if (ret == KVARC_OK)
			check_slot(&slot, &prefix, env);
	}
	kvarc_reader_close(&r);
	fuzz_file_free(&file);
	fuzz_file_free(&slot);
}

/* The first tokens of track 0. */
static void export_tokens(const struct fuzz_file *archive, unsigned flags, uint64_t tokens,
                          struct fuzz_env *env)
{
	struct fuzz_input in = { .p = archive->p, .n = archive->n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common, .flags = flags };
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = tokens };
	struct fuzz_file slot = { 0 };
	kvarc_sink sink = fuzz_file_sink(&slot);
	kvarc_slot_prefix prefix;
	kvarc_reader *r = NULL;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &opt);
	if (ret == KVARC_OK) {
		ret = kvarc_export_llama(r, &range, &sink, NULL, &prefix);
		FUZZ_CHECK(ret != KVARC_PROG && (ret != KVARC_OPTIONS || prefix.why));
		FUZZ_CHECK(ret != KVARC_OPTIONS || slot.n == 0);
		/* a few tokens can be read in more than one way */
		if (ret == KVARC_OK && prefix.whole_tokens > 2)
			check_slot(&slot, &prefix, env);
	}
	kvarc_reader_close(&r);
	fuzz_file_free(&slot);
}

/* An archive of the first tokens, without the slot. */
static void cut(const struct fuzz_file *archive, uint64_t tokens, struct fuzz_env *env,
                struct fuzz_file *part)
{
	struct fuzz_input in = { .p = archive->p, .n = archive->n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_sink sink = fuzz_file_sink(part);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_writer_options wopt = KVARC_WRITER_OPTIONS_INIT;
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = tokens };
	kvarc_reader *r = NULL;
	wopt.common = env->common;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &opt);
	if (ret == KVARC_OK)
		ret = kvarc_cut(r, &range, &sink, &wopt, NULL);
	kvarc_reader_close(&r);
	if (ret == KVARC_OK)
		export_tokens(part, 0, UINT64_MAX, env);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_file archive = { 0 };
	if (n < fuzz_parameters)
		return;
	n -= fuzz_parameters;
	if (pack(data, n, env, &archive) == KVARC_OK) {
		struct fuzz_file part = { 0 };
		const uint64_t tokens = data[n + 5];
		export_tokens(&archive, 0, tokens ? tokens : UINT64_MAX, env);
		cut(&archive, tokens, env, &part);
		fuzz_file_free(&part);
		damage(&archive, data + n);
		export_tokens(&archive, KVARC_READ_SALVAGE, UINT64_MAX, env);
		salvage(&archive, env);
	}
	fuzz_file_free(&archive);
}
