/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target_append.c - fuzz target: archives are continued, with rewinds, forks and checkpoints, and
 * compacted; what verified before verifies afterwards (seal.h gives frames right checks)
 *
 * The last 6 bytes of the data say what is appended.
 */
#include "fuzz_store.h"
#include "seal.h"

const size_t fuzz_parameters = 6;

/* A kvarc_fetch: any elements, the same for the same place. */
static int fetch(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                 uint32_t n, void *dst)
{
	const kvarc_geometry *g = opaque;
	const kvarc_tensor *t = &g->tensors[tensor];
	size_t bytes = (size_t)n * heads * t->channels * kvarc_dtype_bytes(t->dtype);
	uint32_t x = tensor * 31 + head * 7 + (uint32_t)t0;
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)dst)[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24 & 0x3f);
	return 0;
}

/* Whether an archive verifies; *tokens: of track 0. */
static bool verifies(const struct fuzz_file *f, struct fuzz_env *env, uint64_t *tokens)
{
	struct fuzz_input in = { .p = f->p, .n = f->n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common, .flags = KVARC_READ_ALLOW_LOSSY };
	struct fuzz_store store;
	kvarc_reader *r;
	fuzz_store_use(&store, &opt);
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return false;
	store.vectors.geometry = kvarc_reader_geometry(r);
	*tokens = kvarc_reader_tokens(r, 0);
	kvarc_ret ret = kvarc_reader_verify(r, NULL, NULL);
	kvarc_reader_close(&r);
	return ret == KVARC_OK;
}

static kvarc_ret change(kvarc_writer *w, const kvarc_geometry *g, struct fuzz_bytes *b)
{
	const uint64_t had = kvarc_writer_tokens(w, 0);
	const uint8_t how = fuzz_take(b);
	kvarc_ret ret = KVARC_OK;
	if (how & 1)
		ret = kvarc_writer_rewind(w, 0, fuzz_take32(b) % (had + 1));
	/* A rewind that is not possible has changed nothing. */
	if (ret && !kvarc_usable(ret))
		return ret;
	int32_t ids[64] = { 0 };
	ret = kvarc_writer_append_fetch(w, 0, 1 + how / 4, how & 2 ? ids : NULL, NULL, fetch,
	                                (void *)(uintptr_t)g);
	const uint8_t then = fuzz_take(b);
	if (ret)
		return ret;
	if (then & 2)
		ret = kvarc_writer_fork(w, 1, 0, 1 + fuzz_take32(b) % kvarc_writer_tokens(w, 0));
	/* Nor has a fork that is not possible. */
	if (ret && !kvarc_usable(ret))
		return ret;
	return then & 1 ? kvarc_writer_checkpoint(w, "a label", 1, NULL) : KVARC_OK;
}

static void compact(const struct fuzz_file *f, struct fuzz_env *env, uint64_t tokens)
{
	struct fuzz_input in = { .p = f->p, .n = f->n };
	struct fuzz_file out = { 0 };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_sink sink = fuzz_file_sink(&out);
	kvarc_reader_options opt = { .common = env->common, .flags = KVARC_READ_ALLOW_LOSSY };
	kvarc_writer_options wopt = { .common = env->common, .flags = KVARC_WRITE_FILE_ID };
	struct fuzz_store store;
	kvarc_reader *r;
	uint64_t left;
	fuzz_store_use(&store, &opt);
	if (kvarc_reader_open(&r, &source, &opt) == KVARC_OK) {
		store.vectors.geometry = kvarc_reader_geometry(r);
		if (kvarc_compact(r, &sink, &wopt, NULL) == KVARC_OK)
			FUZZ_CHECK((verifies(&out, env, &left) && left == tokens) || env->failing);
		kvarc_reader_close(&r);
	}
	fuzz_file_free(&out);
}

static int shorten(void *opaque, uint64_t bytes)
{
	struct fuzz_file *f = opaque;
	FUZZ_CHECK(bytes <= f->n);
	f->n = (size_t)bytes;
	return 0;
}

/* The archive in f is continued. */
static void append(struct fuzz_file *f, const struct fuzz_input *in, struct fuzz_env *env,
                   struct fuzz_bytes *b)
{
	struct fuzz_input input = *in;
	kvarc_source source = fuzz_input_source(&input);
	kvarc_sink sink = fuzz_file_sink(f);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_writer_options wopt = { .common = env->common, .segment_tokens = 32 };
	struct fuzz_store store;
	sink.truncate = shorten;
	fuzz_store_use(&store, &opt);
	kvarc_reader *r;
	kvarc_writer *w;
	uint64_t tokens = 0;
	bool good = verifies(f, env, &tokens);
	wopt.level = KVARC_LEVEL(env->mode & 1);
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return;
	store.vectors.geometry = kvarc_reader_geometry(r);
	wopt.stored_read = opt.stored_read;
	wopt.stored_opaque = opt.stored_opaque;
	kvarc_ret ret = kvarc_writer_open_append(&w, &source, &sink, &wopt);
	if (!ret) {
		ret = change(w, kvarc_reader_geometry(r), b);
		tokens = kvarc_writer_tokens(w, 0);
		kvarc_ret closed = kvarc_writer_close(&w);
		ret = ret ? ret : closed;
	}
	if (!ret && good && !env->failing) {
		uint64_t now;
		FUZZ_CHECK(verifies(f, env, &now));
		FUZZ_CHECK(now == tokens);
		compact(f, env, now);
	}
	kvarc_reader_close(&r);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_file f = { 0 };
	if (n < fuzz_parameters)
		return;
	n -= fuzz_parameters;
	struct fuzz_bytes b = { data + n, fuzz_parameters };
	size_t sealed_n;
	uint8_t *sealed = fuzz_seal(data, n, &sealed_n);
	struct fuzz_input in = { .p = sealed, .n = sealed_n };
	kvarc_sink sink = fuzz_file_sink(&f);
	FUZZ_CHECK(sealed_n == 0 || sink.write(sink.opaque, sealed, sealed_n, 0) == 0);
	append(&f, &in, env, &b);
	fuzz_file_free(&f);
	free(sealed);
}
