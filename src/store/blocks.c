/* SPDX-License-Identifier: BSD-3-Clause */
/* blocks.c - blocks of an engine's cache as objects of a store */
#include "config.h"

#include "kvarc/blocks.h"

#include <string.h>

#include "backend.h"
#include "session_names.h"
#include "util/alloc.h"
#include "util/arguments.h"
#include "util/error.h"

enum { TIMEOUT_MS = 5000 };

struct kvarc_blocks {
	struct kvi_alloc alloc;
	kvarc_error own_error, *error; /* the caller's, or its own; never NULL */
	struct kvi_backend *backend;
};

static kvarc_ret check(const char *url, const kvarc_blocks_options *options)
{
	static const char call[] = "kvarc_blocks_open";
	kvarc_ret ret = kvi_check_common(&options->common);
	if (!ret)
		ret = KVI_CHECK_RESERVED(options->common.error, call, "options", options);
	if (!ret && (!url || !*url))
		ret = kvi_fail(options->common.error, KVARC_PROG, "%s: the URL is empty", call);
	if (!ret && (options->flags & ~(KVARC_STORE_CREATE | KVARC_STORE_NO_SYNC)))
		ret = kvi_fail(options->common.error, KVARC_PROG, "%s: unknown flags", call);
	return ret;
}

kvarc_ret kvarc_blocks_open(kvarc_blocks **out, const char *url,
                            const kvarc_blocks_options *options)
{
	static const kvarc_blocks_options defaults = KVARC_BLOCKS_OPTIONS_INIT;
	struct kvarc_blocks *b;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	options = options ? options : &defaults;
	kvarc_ret ret = check(url, options);
	if (!ret)
		ret = kvi_handle_new(&b, sizeof *b, offsetof(struct kvarc_blocks, alloc),
		                     &options->common, options->common.memlimit);
	if (ret)
		return ret;
	b->error = options->common.error ? options->common.error : &b->own_error;
	const struct kvi_backend_options bo = {
		.allocator = options->common.allocator,
		.create = options->flags & KVARC_STORE_CREATE,
		.no_sync = options->flags & KVARC_STORE_NO_SYNC,
		.access_key = options->access_key,
		.secret_key = options->secret_key,
		.session_token = options->session_token,
		.region = options->region,
		.endpoint = options->endpoint,
		.timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS,
	};
	ret = kvi_backend_open(&b->backend, url, &bo, b->error);
	if (ret)
		kvarc_blocks_close(&b);
	*out = b;
	return ret;
}

void kvarc_blocks_close(kvarc_blocks **b)
{
	if (!b || !*b)
		return;
	kvi_backend_close(&(*b)->backend);
	kvi_free(&(*b)->alloc, *b);
	*b = NULL;
}

/* PROG where a block cannot be called that. */
static kvarc_ret find_key(const kvarc_blocks *blocks, const char *call, const char *name,
                          char key[KVI_BLOCK_KEY])
{
	if (!blocks)
		return KVARC_PROG;
	if (name && kvi_block_key(key, name))
		return KVARC_OK;
	return kvi_fail(blocks->error, KVARC_PROG,
	                "%s: the name of a block is not %d lower-case hex digits", call,
	                KVI_BLOCK_NAME);
}

kvarc_ret kvarc_blocks_put(kvarc_blocks *b, const char *name, const void *data, size_t bytes)
{
	char key[KVI_BLOCK_KEY];
	kvarc_ret ret = find_key(b, "kvarc_blocks_put", name, key);
	if (!ret && !data)
		ret = kvi_fail(b->error, KVARC_PROG, "kvarc_blocks_put: data is NULL");
	if (ret)
		return ret;
	const kvarc_source source = { .memory = data, .size = bytes };
	return b->backend->calls->put(b->backend, key, &source, b->error);
}

kvarc_ret kvarc_blocks_get(kvarc_blocks *b, const char *name, uint64_t offset, void *data, size_t n,
                           size_t *got)
{
	char key[KVI_BLOCK_KEY];
	if (got)
		*got = 0;
	kvarc_ret ret = find_key(b, "kvarc_blocks_get", name, key);
	if (!ret && (!data || !got))
		ret = kvi_fail(b->error, KVARC_PROG, "kvarc_blocks_get: data or got is NULL");
	return ret ? ret : b->backend->calls->get(b->backend, key, offset, data, n, got, b->error);
}

static void fill(kvarc_block *block, const char *name, const struct kvi_object *object)
{
	*block = (kvarc_block){ .name = name,
		                .bytes = object->bytes,
		                .time = object->time > 0 ? (uint64_t)object->time : 0 };
}

kvarc_ret kvarc_blocks_stat(kvarc_blocks *b, const char *name, kvarc_block *block)
{
	char key[KVI_BLOCK_KEY];
	struct kvi_object object;
	if (block)
		memset(block, 0, sizeof *block);
	kvarc_ret ret = find_key(b, "kvarc_blocks_stat", name, key);
	if (!ret)
		ret = b->backend->calls->stat(b->backend, key, &object, b->error);
	if (!ret && block)
		fill(block, name, &object);
	return ret;
}

kvarc_ret kvarc_blocks_touch(kvarc_blocks *b, const char *name)
{
	char key[KVI_BLOCK_KEY];
	kvarc_ret ret = find_key(b, "kvarc_blocks_touch", name, key);
	if (ret)
		return ret;
	return b->backend->calls->touch ? b->backend->calls->touch(b->backend, key, b->error)
	                                : kvarc_blocks_stat(b, name, NULL);
}

kvarc_ret kvarc_blocks_remove(kvarc_blocks *b, const char *name)
{
	char key[KVI_BLOCK_KEY];
	kvarc_ret ret = find_key(b, "kvarc_blocks_remove", name, key);
	return ret ? ret : b->backend->calls->remove(b->backend, key, b->error);
}

struct block_listing {
	kvarc_block_fn fn;
	void *opaque;
};

static int list_one(void *opaque, const struct kvi_object *object)
{
	const struct block_listing *l = opaque;
	char name[KVI_BLOCK_NAME + 1];
	kvarc_block block;
	if (!kvi_block_key_parse(name, object->key))
		return 0;
	fill(&block, name, object);
	return l->fn(l->opaque, &block);
}

kvarc_ret kvarc_blocks_list(kvarc_blocks *b, kvarc_block_fn fn, void *opaque)
{
	struct block_listing l = { fn, opaque };
	if (!b)
		return KVARC_PROG;
	if (!fn)
		return kvi_fail(b->error, KVARC_PROG, "kvarc_blocks_list: fn is NULL");
	return b->backend->calls->list(b->backend, KVI_BLOCKS, list_one, &l, b->error);
}
