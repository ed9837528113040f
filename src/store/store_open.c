/* SPDX-License-Identifier: BSD-3-Clause */
/* store_open.c - opening and closing a store, and its index */
#include "config.h"

#include "sqlite_calls.h"
#include "store_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "util/arguments.h"
#include "util/string_field.h"

#define INDEX_NAME "/index.sqlite"
enum { NOTE_MOST = 256 };

int64_t kvi_store_now(void)
{
	return (int64_t)time(NULL);
}

void kvi_store_note(const struct kvarc_store *store, const char *format, ...)
{
	char text[NOTE_MOST];
	va_list args;
	if (!store->options.note)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	store->options.note(store->options.note_opaque, text);
}

kvarc_ret kvi_store_random(struct kvarc_store *store, uint8_t id[16])
{
	if (getrandom(id, 16, 0) != 16)
		return kvi_fail(store->error, KVARC_IO,
		                "store: no random bytes for the name of an archive");
	return KVARC_OK;
}

/* ----- the index ------------------------------------------------ */

static kvarc_ret fill_index(struct kvarc_store *store, const char *why)
{
	uint64_t unreadable = 0, packs = 0, segments = 0;
	kvarc_ret ret = kvi_index_refresh(store, store->index, store->options.note,
	                                  store->options.note_opaque, &unreadable);
	if (!ret)
		ret = kvi_index_counts(store->index, &packs, &segments);
	if (!ret && (why || packs))
		kvi_store_note(store, "the index%s%s: made again from %llu archive%s",
		               why ? " " : "", why ? why : " was missing",
		               (unsigned long long)packs, packs == 1 ? "" : "s");
	return ret;
}

/* Replaces the index by one in memory, for this handle: loading and removing need no file. */
static kvarc_ret replace_index(struct kvarc_store *store)
{
	struct kvi_store_index *x;
	uint64_t unreadable = 0;
	bool made;
	kvi_store_note(store, "the index %s cannot be used (%.80s): one in memory is used instead",
	               store->index_path, store->error->text);
	kvarc_ret ret = kvi_index_open_copy(&x, store->index_path, store->options.common.allocator,
	                                    &made, store->error);
	kvi_index_close(&store->index);
	kvi_free(&store->alloc, store->index_path);
	store->index_path = NULL;
	if (ret)
		return ret;
	store->index = x;
	return made ? kvi_index_refresh(store, x, store->options.note, store->options.note_opaque,
	                                &unreadable)
	            : KVARC_OK;
}

static kvarc_ret open_index(struct kvarc_store *store)
{
	bool made;
	const char *why;
	kvarc_ret ret = kvi_index_open(&store->index, store->index_path,
	                               store->options.common.allocator, &made, &why, store->error);
	if (!ret && made)
		ret = fill_index(store, why);
	const bool unusable = !store->index || kvi_index_unusable(store->index);
	return ret == KVARC_IO && store->index_path && unusable ? replace_index(store) : ret;
}

bool kvi_store_mend(struct kvarc_store *store, kvarc_ret ret)
{
	if (ret == KVARC_IO && store->index && store->index_path &&
	    kvi_index_unusable(store->index))
		return replace_index(store) == KVARC_OK;
	if (ret != KVARC_DATA || !store->index || !kvi_index_damaged(store->index))
		return false;
	/* The index is closed and its file removed, so that open_index makes it again. */
	kvi_index_close(&store->index);
	if (store->index_path)
		remove(store->index_path);
	return open_index(store) == KVARC_OK;
}

/* ----- open and close ------------------------------------------------ */

static kvarc_ret check(const char *url, const kvarc_store_options *options)
{
	static const char call[] = "kvarc_store_open";
	kvarc_error *e = options->common.error;
	const char *name_space = options->name_space ? options->name_space : KVI_NAMESPACE_DEFAULT;
	kvarc_ret ret = kvi_check_common(&options->common);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "options", options);
	if (ret)
		return ret;
	if (!url || !*url)
		return kvi_fail(e, KVARC_PROG, "%s: the URL is empty", call);
	if (options->flags & ~(KVARC_STORE_CREATE | KVARC_STORE_NO_SYNC | KVARC_STORE_ACCEPT_WEAK))
		return kvi_fail(e, KVARC_PROG, "%s: unknown flags", call);
	if (kvi_namespace_wrong(name_space))
		return kvi_fail(e, KVARC_PROG, "%s: the namespace %s", call,
		                kvi_namespace_wrong(name_space));
	return KVARC_OK;
}

/* The path of a store in a folder; NULL: it is elsewhere. */
static const char *folder_of_url(const char *url)
{
	if (strncmp(url, "file:", 5) == 0)
		return url + 5;
	const char *scheme = strstr(url, "://");
	return scheme && scheme < strchr(url, '/') ? NULL : url;
}

static kvarc_ret find_index(struct kvarc_store *store, const char *url)
{
	const char *path = store->options.index, *folder = folder_of_url(url);
	if (!path && !folder)
		return KVARC_OK;
	size_t bytes = path ? strlen(path) + 1 : strlen(folder) + sizeof INDEX_NAME;
	store->index_path = kvi_malloc(&store->alloc, bytes);
	if (!store->index_path)
		return kvi_fail_alloc(store->error, &store->alloc);
	snprintf(store->index_path, bytes, "%s%s", path ? path : folder, path ? "" : INDEX_NAME);
	return KVARC_OK;
}

kvarc_ret kvarc_store_open(kvarc_store **out, const char *url, const kvarc_store_options *options)
{
	static const kvarc_store_options defaults = KVARC_STORE_OPTIONS_INIT;
	struct kvarc_store *s;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	options = options ? options : &defaults;
	kvarc_ret ret = check(url, options);
	if (!ret && !kvi_sqlite(options->common.error)) /* before a folder is made */
		ret = KVARC_OPTIONS;
	if (!ret)
		ret = kvi_handle_new(&s, sizeof *s, offsetof(struct kvarc_store, alloc),
		                     &options->common, options->common.memlimit);
	if (ret)
		return ret;
	s->options = *options;
	s->error = options->common.error ? options->common.error : &s->own_error;
	snprintf(s->name_space, sizeof s->name_space, "%s",
	         options->name_space ? options->name_space : KVI_NAMESPACE_DEFAULT);
	const struct kvi_backend_options bo = { .allocator = options->common.allocator,
		                                .create = options->flags & KVARC_STORE_CREATE,
		                                .no_sync = options->flags & KVARC_STORE_NO_SYNC,
		                                .access_key = options->access_key,
		                                .secret_key = options->secret_key,
		                                .session_token = options->session_token,
		                                .region = options->region,
		                                .endpoint = options->endpoint };
	ret = kvi_store_keys_open(s);
	if (!ret)
		ret = kvi_backend_open(&s->backend, url, &bo, s->error);
	if (!ret)
		ret = find_index(s, url);
	if (!ret)
		ret = open_index(s);
	if (ret)
		kvarc_store_close(&s);
	*out = s;
	return ret;
}

void kvarc_store_close(kvarc_store **s)
{
	if (!s || !*s)
		return;
	for (size_t i = 0; i < KVI_OPEN_PACKS; i++)
		kvi_pack_close(&(*s)->packs[i]);
	kvi_store_keys_close(*s);
	kvi_index_close(&(*s)->index);
	kvi_backend_close(&(*s)->backend);
	kvi_free(&(*s)->alloc, (*s)->index_path);
	kvi_free(&(*s)->alloc, *s);
	*s = NULL;
}
