/* SPDX-License-Identifier: BSD-3-Clause */
/* backend.c - what all backends share: keys, and sources of objects */
#include "config.h"

#include "backend.h"

#include <errno.h>
#include <string.h>

#include "util/alloc.h"
#include "util/arguments.h"
#include "util/error.h"

/* Whether c may be in a component of a key. */
static int key_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("._-%=", c));
}

int kvi_key_valid(const char *key)
{
	size_t n = strlen(key);
	if (n == 0 || n > KVI_KEY_MAX || key[n - 1] == '/')
		return 0;
	for (size_t i = 0; i < n; i++) {
		int starts = i == 0 || key[i - 1] == '/';
		if (starts && (key[i] == '.' || key[i] == '/'))
			return 0;
		if (key[i] != '/' && !key_char(key[i]))
			return 0;
	}
	return 1;
}

void kvi_backend_close(struct kvi_backend **backend)
{
	if (*backend)
		(*backend)->calls->close(*backend);
	*backend = NULL;
}

kvarc_ret kvi_object_is(struct kvi_backend *backend, const char *key, const void *data, size_t n,
                        kvarc_error *error)
{
	struct kvi_alloc alloc;
	size_t got;
	kvi_alloc_init(&alloc, NULL, 0);
	/* Reads one byte more than n, to notice an object that is longer. */
	uint8_t *there = kvi_malloc(&alloc, n + 1);
	if (!there)
		return kvi_fail_alloc(error, &alloc);
	kvarc_ret ret = backend->calls->get(backend, key, 0, there, n + 1, &got, error);
	if (!ret && (got != n || memcmp(there, data, n) != 0))
		ret = KVARC_END;
	kvi_free(&alloc, there);
	return ret;
}

/* State of a source that reads an object. */
struct object_source {
	struct kvi_alloc alloc;
	struct kvi_backend *b;
	char key[KVI_KEY_MAX + 1];
};

static int64_t read_object(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct object_source *s = opaque;
	size_t got = 0;
	kvarc_ret ret = s->b->calls->get(s->b, s->key, offset, buf, bytes, &got, NULL);
	if (ret == KVARC_END)
		errno = ENOENT;
	else if (ret)
		errno = EIO;
	return ret ? -1 : (int64_t)got;
}

kvarc_ret kvi_object_source(kvarc_source *source, struct kvi_backend *backend, const char *key,
                            kvarc_error *error)
{
	struct object_source *s;
	struct kvi_object object;
	kvarc_common common = { .error = error };
	*source = (kvarc_source){ 0 };
	kvarc_ret ret = backend->calls->stat(backend, key, &object, error);
	if (!ret)
		ret = kvi_handle_new(&s, sizeof *s, offsetof(struct object_source, alloc), &common,
		                     0);
	if (ret)
		return ret;
	s->b = backend;
	memcpy(s->key, key, strlen(key) + 1);
	*source = (kvarc_source){ .read = read_object, .opaque = s, .size = object.bytes };
	return KVARC_OK;
}

void kvi_object_source_close(kvarc_source *source)
{
	struct object_source *s = source->opaque;
	if (s)
		kvi_free(&s->alloc, s);
	*source = (kvarc_source){ 0 };
}
