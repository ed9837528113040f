/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_import.c - pack a file, unpack it, compare */
#include "fuzz_import.h"

struct import_items {
	struct fuzz_file now;
	uint64_t bytes, n;
};

static int item_open(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct import_items *it = opaque;
	FUZZ_CHECK(item->index == it->n && item->name);
	it->n++;
	it->bytes += item->bytes;
	fuzz_file_free(&it->now);
	*sink = fuzz_file_sink(&it->now);
	return 0;
}

static void unpack_and_compare(const struct fuzz_file *archive, const uint8_t *data, size_t n,
                               struct fuzz_env *env, bool one)
{
	struct fuzz_input in = { .p = archive->p, .n = archive->n, .pipe = env->mode & 8 };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common };
	struct import_items items = { { 0 }, 0, 0 };
	kvarc_reader *r = NULL;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &opt);
	FUZZ_CHECK(ret == KVARC_OK || env->failing);
	if (ret == KVARC_OK) {
		ret = kvarc_unpack(r, item_open, &items);
		FUZZ_CHECK(ret == KVARC_OK || env->failing);
	}
	if (ret == KVARC_OK && one) {
		FUZZ_CHECK(items.n == 1 && items.bytes == n);
		FUZZ_CHECK(items.now.n == n);
		FUZZ_CHECK(n == 0 || memcmp(items.now.p, data, n) == 0);
	}
	kvarc_reader_close(&r);
	fuzz_file_free(&items.now);
}

void fuzz_import(const uint8_t *data, size_t n, struct fuzz_env *env, kvarc_import_options *options,
                 const char *name, bool one)
{
	struct fuzz_input in = { .p = data, .n = n };
	struct fuzz_file out = { 0 };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_sink sink = fuzz_file_sink(&out);
	kvarc_writer_options wopt = KVARC_WRITER_OPTIONS_INIT;
	kvarc_import *im = NULL;
	uint64_t file_bytes, tensor_bytes;

	options->common = env->common;
	kvarc_ret ret = kvarc_import_open(&im, &source, name, options);
	FUZZ_CHECK((ret == KVARC_OK) == (im != NULL));
	if (ret != KVARC_OK)
		return;
	kvarc_import_sizes(im, &file_bytes, &tensor_bytes);
	FUZZ_CHECK(kvarc_import_geometry(im) && kvarc_import_format(im));
	FUZZ_CHECK(tensor_bytes <= file_bytes && (!one || file_bytes == n));
	wopt.common = env->common;
	wopt.level = KVARC_LEVEL(env->mode & 1);
	wopt.common.threads = env->mode & 2 ? 2 : 0;
	wopt.flags = KVARC_WRITE_STREAMABLE | (env->mode & 4 ? KVARC_WRITE_VERIFY : 0);
	ret = kvarc_pack(im, &sink, &wopt, NULL);
	kvarc_import_close(&im);
	FUZZ_CHECK(!im);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_MEMLIMIT || env->failing);
	if (ret == KVARC_OK)
		unpack_and_compare(&out, data, n, env, one);
	fuzz_file_free(&out);
}
