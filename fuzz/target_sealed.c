/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target_sealed.c - fuzz target: all ways to read, behind the checks (seal.h), with the
 * model of the vectors at hand: $srcdir/spec/vectors/transformer.gguf, or tokens.gguf
 * where token ids may be coded
 */
#include "fuzz_store.h"
#include "seal.h"

const size_t fuzz_parameters = 0;

static bool codes_ids(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_input in = { .p = data, .n = n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_predictor_info info;
	kvarc_reader *r = NULL;
	bool codes = false;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return false;
	for (size_t i = 0; kvarc_reader_predictor(r, i, &info) == KVARC_OK; i++)
		codes = codes || info.token_ids;
	kvarc_reader_close(&r);
	return codes;
}

/* NULL: an allocation failed. */
static kvarc_predictor *open_model(struct fuzz_env *env, const char *name)
{
	const char *srcdir = getenv("srcdir");
	char path[4096];
	kvarc_predictor *p;
	snprintf(path, sizeof path, "%s/spec/vectors/%s", srcdir ? srcdir : ".", name);
	kvarc_ret ret = kvarc_predictor_open_model(&p, path, &env->common);
	FUZZ_CHECK(ret == KVARC_OK || env->failing);
	return p;
}

/* What is copied is sound if what it was copied from is. */
static kvarc_ret cut_all(kvarc_reader *r, const kvarc_range *range, struct fuzz_env *env)
{
	struct fuzz_file out = { 0 };
	kvarc_sink sink = fuzz_file_sink(&out);
	kvarc_writer_options opt = KVARC_WRITER_OPTIONS_INIT;
	opt.common = env->common;
	opt.flags = KVARC_WRITE_FILE_ID | (env->mode & 0x20 ? KVARC_WRITE_VERIFY : 0) |
	            (env->mode & 0x10 ? KVARC_WRITE_STREAMABLE : 0);
	kvarc_ret ret = kvarc_cut(r, range, &sink, &opt, NULL);
	fuzz_file_free(&out);
	return ret;
}

static void read_one(const uint8_t *data, size_t n, struct fuzz_env *env, kvarc_predictor *model,
                     unsigned how)
{
	struct fuzz_input in = { .p = data, .n = n, .pipe = how == 0 };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_range range = KVARC_RANGE_ALL(0);
	uint64_t ids, bytes;
	struct fuzz_store store;
	kvarc_reader *r = NULL;
	fuzz_store_use(&store, &opt);
	opt.predictor = model;
	opt.flags = KVARC_READ_ALLOW_LOSSY;
	if (how == 3)
		opt.flags |= KVARC_READ_SALVAGE;
	if (how == 1 || how == 2)
		opt.checkpoint = env->mode >> 4 & 7;
	if (how == 5 && env->mode & 0x40)
		opt.flags = 0;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return;
	struct fuzz_sum sum = { kvarc_reader_geometry(r), 0 };
	store.vectors.geometry = sum.geometry;
	kvarc_ret ret = KVARC_OK;
	switch (how) {
	case 0:
		ret = fuzz_read_all(r);
		break;
	case 1:
		fuzz_ask_all(r);
		ret = kvarc_reader_coded_ids(r, &ids, &bytes);
		ret = ret ? ret : kvarc_reader_verify(r, NULL, NULL);
		break;
	case 2:
		ret = kvarc_reader_read_deliver(r, &range, fuzz_deliver, &sum);
		break;
	case 5:
		ret = cut_all(r, &range, env);
		break;
	default:
		ret = fuzz_unpack_all(r);
	}
	FUZZ_CHECK(ret != KVARC_FORMAT && ret != KVARC_PROG);
	kvarc_reader_close(&r);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	size_t sealed_n;
	uint8_t *sealed = fuzz_seal(data, n, &sealed_n);
	/* an exact block, so that reads past the end are seen */
	uint8_t *exact = malloc(sealed_n);
	FUZZ_CHECK(exact);
	memcpy(exact, sealed, sealed_n);
	free(sealed);
	kvarc_predictor *model = open_model(
		env, codes_ids(exact, sealed_n, env) ? "tokens.gguf" : "transformer.gguf");
	if (env->mode & 0x80)
		for (unsigned how = 0; how < 6; how++)
			read_one(exact, sealed_n, env, model, how);
	else
		read_one(exact, sealed_n, env, model, env->mode % 6);
	kvarc_predictor_close(&model);
	free(exact);
}
