/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target_turns.c - fuzz target: a file becomes the next checkpoint of an archive, which restores it
 * if the archive verified before, and never another file (seal.h gives frames right checks)
 *
 * The last 4 bytes of the data are the size of the archive; the rest is the file.
 */
#include "fuzz_common.h"
#include "seal.h"

const size_t fuzz_parameters = 4;

/* An item that comes back. */
struct turn_item {
	struct fuzz_file now;
	size_t n;
};

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct turn_item *it = opaque;
	(void)item;
	it->n++;
	fuzz_file_free(&it->now);
	*sink = fuzz_file_sink(&it->now);
	return 0;
}

static bool turn_verifies(const struct fuzz_file *f, struct fuzz_env *env)
{
	struct fuzz_input in = { .p = f->p, .n = f->n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_reader *r;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return false;
	kvarc_ret ret = kvarc_reader_verify(r, NULL, NULL);
	kvarc_reader_close(&r);
	return ret == KVARC_OK;
}

static void check_turn(const struct fuzz_file *f, const struct fuzz_input *file,
                       struct fuzz_env *env, bool good, uint64_t checkpoint)
{
	struct fuzz_input in = { .p = f->p, .n = f->n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common, .checkpoint = checkpoint };
	struct turn_item item = { { 0 }, 0 };
	kvarc_reader *r = NULL;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &opt);
	if (ret == KVARC_OK)
		ret = kvarc_unpack(r, open_item, &item);
	FUZZ_CHECK(ret == KVARC_OK || !good || env->failing);
	if (ret == KVARC_OK && item.n == 1) {
		FUZZ_CHECK(item.now.n == file->n);
		FUZZ_CHECK(!file->n || !memcmp(item.now.p, file->p, file->n));
	}
	kvarc_reader_close(&r);
	fuzz_file_free(&item.now);
}

static int shorten(void *opaque, uint64_t bytes)
{
	struct fuzz_file *f = opaque;
	FUZZ_CHECK(bytes <= f->n);
	f->n = (size_t)bytes;
	return 0;
}

/* f: the archive. */
static void append_turn(struct fuzz_file *f, const struct fuzz_input *archive,
                        const struct fuzz_input *file, struct fuzz_env *env)
{
	struct fuzz_input in = *archive, turn = *file;
	kvarc_source source = fuzz_input_source(&in), from = fuzz_input_source(&turn);
	kvarc_sink sink = fuzz_file_sink(f);
	kvarc_import_options io = { .common = env->common, .rope = "none" };
	kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
	kvarc_append_result result;
	kvarc_import *im;
	bool good = turn_verifies(f, env);
	sink.truncate = shorten;
	o.writer.common = env->common;
	o.writer.level = KVARC_LEVEL(env->mode & 1);
	o.writer.flags = env->mode & 2 ? KVARC_WRITE_VERIFY : 0;
	o.writer.segment_tokens = 32;
	o.label = env->mode & 4 ? "a label" : NULL;
	if (kvarc_import_open(&im, &from, "slot", &io) != KVARC_OK)
		return;
	kvarc_ret ret = kvarc_append_import(im, archive->n ? &source : NULL, &sink, &o, &result);
	if (ret == KVARC_OK) {
		FUZZ_CHECK(result.kept_tokens <= result.tokens && result.checkpoint);
		FUZZ_CHECK(result.archive_bytes == f->n);
		check_turn(f, file, env, good || !archive->n, result.checkpoint);
		FUZZ_CHECK(!good || turn_verifies(f, env) || env->failing);
	}
	kvarc_import_close(&im);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_file f = { 0 };
	if (n < fuzz_parameters)
		return;
	n -= fuzz_parameters;
	struct fuzz_bytes b = { data + n, fuzz_parameters };
	size_t bytes = fuzz_take32(&b), sealed_n;
	bytes = bytes < n ? bytes : n;
	uint8_t *sealed = fuzz_seal(data, bytes, &sealed_n);
	const struct fuzz_input archive = { .p = sealed, .n = sealed_n };
	const struct fuzz_input file = { .p = data + bytes, .n = n - bytes };
	kvarc_sink sink = fuzz_file_sink(&f);
	FUZZ_CHECK(sealed_n == 0 || sink.write(sink.opaque, sealed, sealed_n, 0) == 0);
	append_turn(&f, &archive, &file, env);
	fuzz_file_free(&f);
	free(sealed);
}
