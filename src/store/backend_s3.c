/* SPDX-License-Identifier: BSD-3-Clause */
/* backend_s3.c - objects in a bucket of an S3-compatible service */
#include "config.h"

#include "backend.h"

#include "util/error.h"

#ifdef HAVE_LIBCURL

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "s3_list.h"
#include "s3_parts.h"
#include "s3_request.h"
#include "util/alloc.h"
#include "util/hash.h"

#define AWS_REGION "us-east-1"
enum {
	PREFIX_MAX = 256,
	/* A byte may become three. */
	PATH_MAX_BYTES = 3 * (KVI_KEY_MAX + PREFIX_MAX) + 2,
	QUERY_MAX = 3 * (KVI_S3_TOKEN_MAX + KVI_KEY_MAX + PREFIX_MAX) + 128
};

struct s3 {
	struct kvi_backend base;
	struct kvi_alloc alloc;
	struct kvi_s3_client *client;
	char prefix[PREFIX_MAX + 1]; /* of all keys: "" or ".../" */
};

static struct s3 *s3_of(struct kvi_backend *b)
{
	return (struct s3 *)b;
}

/* The path of a key behind the bucket. */
static const char *path_of(const struct s3 *s, const char *key, char path[PATH_MAX_BYTES])
{
	char *at = path;
	*at++ = '/';
	at = kvi_s3_encode(at, s->prefix, '/');
	kvi_s3_encode(at, key, '/');
	return path;
}

static kvarc_ret s3_get(struct kvi_backend *b, const char *key, uint64_t offset, void *data,
                        size_t n, size_t *got, kvarc_error *e)
{
	struct s3 *s = s3_of(b);
	char path[PATH_MAX_BYTES];
	struct kvi_s3_request r = { .method = "GET",
		                    .path = path_of(s, key, path),
		                    .range_offset = offset,
		                    .range_bytes = n,
		                    .out = data,
		                    .out_capacity = n };
	*got = 0;
	if (n == 0)
		return KVARC_OK;
	kvarc_ret ret = kvi_s3_send(s->client, &r, e);
	if (ret)
		return ret;
	if (r.status == KVI_HTTP_NOT_FOUND)
		return KVARC_END;
	if (r.status == KVI_HTTP_RANGE)
		return KVARC_OK;
	if (r.status != KVI_HTTP_PARTIAL && !(r.status == KVI_HTTP_OK && offset == 0))
		return kvi_s3_fail(&r, key, e);
	*got = r.got;
	return KVARC_OK;
}

/* An ETag as a number. The quotes around it are written in two ways. */
static uint64_t stamp_of(const char *etag)
{
	char digits[KVI_S3_ETAG_MAX];
	size_t n = 0;
	for (; *etag && n < sizeof digits; etag++) {
		if (strncmp(etag, "&quot;", 6) == 0)
			etag += 5;
		else if (*etag != '"')
			digits[n++] = *etag;
	}
	return n ? kvi_h64(digits, n) : 0;
}

static kvarc_ret s3_stat(struct kvi_backend *b, const char *key, struct kvi_object *object,
                         kvarc_error *e)
{
	struct s3 *s = s3_of(b);
	char path[PATH_MAX_BYTES];
	struct kvi_s3_request r = { .method = "HEAD", .path = path_of(s, key, path) };
	kvarc_ret ret = kvi_s3_send(s->client, &r, e);
	if (ret)
		return ret;
	if (r.status == KVI_HTTP_NOT_FOUND)
		return KVARC_END;
	if (r.status != KVI_HTTP_OK)
		return kvi_s3_fail(&r, key, e);
	*object = (struct kvi_object){ key, r.content_bytes, r.time, stamp_of(r.etag) };
	return KVARC_OK;
}

static kvarc_ret s3_put(struct kvi_backend *b, const char *key, const kvarc_source *source,
                        kvarc_error *e)
{
	struct s3 *s = s3_of(b);
	char path[PATH_MAX_BYTES];
	path_of(s, key, path);
	if (source->size > KVI_S3_PART_BYTES)
		return kvi_s3_put_parts(s->client, &s->alloc, key, path, source, e);
	struct kvi_s3_request r = { .method = "PUT",
		                    .path = path,
		                    .if_absent = 1,
		                    .body = source,
		                    .body_bytes = source->size };
	kvarc_ret ret = kvi_s3_send(s->client, &r, e);
	return ret ? ret : kvi_s3_put_result(&r, key, e);
}

static kvarc_ret s3_remove(struct kvi_backend *b, const char *key, kvarc_error *e)
{
	struct s3 *s = s3_of(b);
	char path[PATH_MAX_BYTES];
	struct kvi_s3_request r = { .method = "DELETE", .path = path_of(s, key, path) };
	kvarc_ret ret = kvi_s3_send(s->client, &r, e);
	if (ret)
		return ret;
	if (r.status != KVI_HTTP_NO_CONTENT && r.status != KVI_HTTP_OK &&
	    r.status != KVI_HTTP_NOT_FOUND)
		return kvi_s3_fail(&r, key, e);
	return KVARC_OK;
}

/* The ETag of an object whose bytes are these. Returns OK, END (it is not there, or another one),
 * IO, MEM. */
static kvarc_ret find_etag(struct s3 *s, const char *path, const void *data, size_t n,
                           char etag[KVI_S3_ETAG_MAX], kvarc_error *e)
{
	/* One byte more: it may be longer. */
	uint8_t *there = kvi_malloc(&s->alloc, n + 1);
	if (!there)
		return kvi_fail_alloc(e, &s->alloc);
	struct kvi_s3_request r = { .method = "GET",
		                    .path = path,
		                    .range_bytes = n + 1,
		                    .out = there,
		                    .out_capacity = n + 1 };
	kvarc_ret ret = kvi_s3_send(s->client, &r, e);
	const bool is_there = r.status == KVI_HTTP_PARTIAL || r.status == KVI_HTTP_OK;
	if (!ret && !is_there && r.status != KVI_HTTP_NOT_FOUND && r.status != KVI_HTTP_RANGE)
		ret = kvi_s3_fail(&r, path, e);
	if (!ret && (!is_there || r.got != n || memcmp(there, data, n) != 0))
		ret = KVARC_END;
	memcpy(etag, r.etag, sizeof r.etag);
	kvi_free(&s->alloc, there);
	return ret;
}

/* A service that knows no condition of a DELETE ignores it or says so: then what was looked at is
 * removed, and the time between the two requests is not covered. */
static kvarc_ret s3_remove_if(struct kvi_backend *b, const char *key, const void *data, size_t n,
                              kvarc_error *e)
{
	struct s3 *s = s3_of(b);
	char path[PATH_MAX_BYTES], etag[KVI_S3_ETAG_MAX];
	path_of(s, key, path);
	kvarc_ret ret = find_etag(s, path, data, n, etag, e);
	if (ret)
		return ret;
	struct kvi_s3_request r = { .method = "DELETE",
		                    .path = path,
		                    .if_match = etag[0] ? etag : NULL };
	ret = kvi_s3_send(s->client, &r, e);
	if (r.if_match &&
	    (r.status == KVI_HTTP_NOT_IMPLEMENTED || r.status == KVI_HTTP_BAD_REQUEST)) {
		r.if_match = NULL;
		ret = kvi_s3_send(s->client, &r, e);
	}
	if (ret)
		return ret;
	if (r.status == KVI_HTTP_NOT_FOUND || r.status == KVI_HTTP_PRECONDITION)
		return KVARC_END;
	if (r.status != KVI_HTTP_NO_CONTENT && r.status != KVI_HTTP_OK)
		return kvi_s3_fail(&r, key, e);
	return KVARC_OK;
}

/* The objects of one page, without the prefix of the store. */
static kvarc_ret list_page(struct s3 *s, struct kvi_s3_page *page, kvi_object_fn fn, void *opaque,
                           kvarc_error *e)
{
	struct kvi_s3_object found;
	size_t skip = strlen(s->prefix);
	int more;
	while ((more = kvi_s3_page_next(page, &found)) > 0) {
		if (strncmp(found.key, s->prefix, skip) != 0 || !kvi_key_valid(found.key + skip))
			continue;
		const struct kvi_object object = { found.key + skip, found.bytes, found.time,
			                           stamp_of(found.etag) };
		if (fn(opaque, &object) != 0)
			return kvi_fail(e, KVARC_IO, "store: the list was ended");
	}
	return more == 0 ? KVARC_OK
	                 : kvi_fail(e, KVARC_IO, "store: the service's list cannot be read");
}

static kvarc_ret s3_list(struct kvi_backend *b, const char *prefix, kvi_object_fn fn, void *opaque,
                         kvarc_error *e)
{
	struct s3 *s = s3_of(b);
	struct kvi_s3_page page = { .next = "" };
	char query[QUERY_MAX];
	if (strlen(prefix) > KVI_KEY_MAX)
		return KVARC_OK;
	do {
		char *at = query;
		if (page.next[0]) {
			at += sprintf(at, "continuation-token=");
			at = kvi_s3_encode(at, page.next, 0);
			*at++ = '&';
		}
		at += sprintf(at, "list-type=2&prefix=");
		at = kvi_s3_encode(at, s->prefix, 0);
		kvi_s3_encode(at, prefix, 0);
		struct kvi_s3_request r = { .method = "GET", .path = "", .query = query };
		kvarc_ret ret = kvi_s3_send(s->client, &r, e);
		if (ret)
			return ret;
		if (r.status != KVI_HTTP_OK)
			return kvi_s3_fail(&r, "the list", e);
		if (!r.text || kvi_s3_page_begin(&page, r.text, r.text_bytes) != 0)
			return kvi_fail(e, KVARC_IO, "store: the service's list cannot be read");
		ret = list_page(s, &page, fn, opaque, e);
		if (ret)
			return ret;
	} while (page.next[0]);
	return KVARC_OK;
}

/* Of two puts of a key the second one must be refused; a service that does not know If-None-Match
 * takes both, and the first one is gone. */
static kvarc_ret s3_promise(struct kvi_backend *b, int known, char why[KVI_WHY_MAX], kvarc_error *e)
{
	static const char text[] = "kvarc looks whether a second put of this key is refused\n";
	const kvarc_source source = { .memory = text, .size = sizeof text - 1 };
	uint64_t random;
	char key[64];
	if (known)
		return KVARC_OK;
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return kvi_fail(e, KVARC_IO, "store: no random bytes for the name of an object");
	snprintf(key, sizeof key, "probe/%016llx", (unsigned long long)random);
	kvarc_ret ret = s3_put(b, key, &source, e);
	if (ret)
		return ret == KVARC_END ? kvi_fail(e, KVARC_IO, "store: %s is there already", key)
		                        : ret;
	ret = s3_put(b, key, &source, e);
	(void)s3_remove(b, key, NULL);
	if (ret)
		return ret == KVARC_END ? KVARC_OK : ret;
	snprintf(
		why, KVI_WHY_MAX, "%s",
		"it does not refuse a second put of a key (If-None-Match), so that of two saves at "
		"once one is lost");
	return KVARC_OPTIONS;
}

static void s3_close(struct kvi_backend *b)
{
	struct s3 *s = s3_of(b);
	kvi_s3_close(&s->client);
	kvi_free(&s->alloc, s);
}

static const struct kvi_backend_calls s3_calls = {
	s3_get,     s3_put,   s3_stat, s3_remove, s3_remove_if, s3_list, NULL, /* touch */
	s3_promise, s3_close,
};

/* The parts of "BUCKET[/PREFIX][?endpoint=URL&region=NAME]". */
struct s3_url {
	char bucket[128], prefix[PREFIX_MAX + 1], endpoint[512], region[64];
};

/* Copies bytes [from, to) that all are printable. 0: they do not fit, or are not. */
static int take(char *to, size_t capacity, const char *from, const char *end)
{
	size_t n = (size_t)(end - from);
	if (n >= capacity)
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (from[i] <= ' ' || from[i] > '~')
			return 0;
	}
	memcpy(to, from, n);
	to[n] = 0;
	return 1;
}

/* One "name=value" of the query. */
static int take_setting(struct s3_url *u, const char *from, const char *end)
{
	const char *value = memchr(from, '=', (size_t)(end - from));
	if (!value)
		return 0;
	size_t n = (size_t)(value - from);
	if (n == 8 && memcmp(from, "endpoint", n) == 0)
		return take(u->endpoint, sizeof u->endpoint, value + 1, end);
	if (n == 6 && memcmp(from, "region", n) == 0)
		return take(u->region, sizeof u->region, value + 1, end);
	return 0;
}

static int parse_url(struct s3_url *u, const char *rest)
{
	const char *end = strchr(rest, '?');
	const char *settings = end ? end + 1 : NULL;
	if (!end)
		end = rest + strlen(rest);
	const char *slash = memchr(rest, '/', (size_t)(end - rest));
	/* a user and a password before it would go to the service */
	if (!take(u->bucket, sizeof u->bucket, rest, slash ? slash : end) || !u->bucket[0] ||
	    strpbrk(u->bucket, "@:%"))
		return 0;
	while (slash && end > slash + 1 && end[-1] == '/')
		end--;
	if (slash && end > slash + 1) {
		if (!take(u->prefix, sizeof u->prefix - 1, slash + 1, end) ||
		    !kvi_key_valid(u->prefix))
			return 0;
		strcat(u->prefix, "/");
	}
	while (settings && *settings) {
		const char *stop = strchr(settings, '&');
		if (!stop)
			stop = settings + strlen(settings);
		if (!take_setting(u, settings, stop))
			return 0;
		settings = *stop ? stop + 1 : stop;
	}
	return 1;
}

/* What the URL does not say. */
static void complete_url(struct s3_url *u, const struct kvi_backend_options *o)
{
	if (!u->region[0])
		snprintf(u->region, sizeof u->region, "%s", o->region ? o->region : AWS_REGION);
	if (!u->endpoint[0] && o->endpoint)
		snprintf(u->endpoint, sizeof u->endpoint, "%s", o->endpoint);
	if (!u->endpoint[0])
		snprintf(u->endpoint, sizeof u->endpoint, "https://s3.%s.amazonaws.com", u->region);
	size_t n = strlen(u->endpoint);
	if (u->endpoint[n - 1] == '/')
		u->endpoint[n - 1] = 0;
}

kvarc_ret kvi_backend_s3(struct kvi_backend **b, const char *rest,
                         const struct kvi_backend_options *options, kvarc_error *e)
{
	struct s3 *s;
	struct s3_url u = { "", "", "", "" };
	kvarc_common common = { .allocator = options->allocator, .error = e };
	*b = NULL;
	if (!parse_url(&u, rest))
		return kvi_fail(e, KVARC_OPTIONS,
		                "store s3://...: write s3://BUCKET[/PREFIX][?endpoint=URL&"
		                "region=NAME]");
	complete_url(&u, options);
	if (strncmp(u.endpoint, "http://", 7) != 0 && strncmp(u.endpoint, "https://", 8) != 0)
		return kvi_fail(e, KVARC_OPTIONS,
		                "store s3://...: write its endpoint as https://HOST[:PORT]");
	kvarc_ret ret = kvi_handle_new(&s, sizeof *s, offsetof(struct s3, alloc), &common, 0);
	if (ret)
		return ret;
	s->base.calls = &s3_calls;
	memcpy(s->prefix, u.prefix, sizeof u.prefix);
	*b = &s->base;
	ret = kvi_s3_open(&s->client, options->allocator, u.endpoint, u.region, u.bucket,
	                  options->access_key, options->secret_key, options->session_token, e);
	if (ret)
		kvi_backend_close(b);
	else
		kvi_s3_set_timeout(s->client, options->timeout_ms);
	return ret;
}

#else

kvarc_ret kvi_backend_s3(struct kvi_backend **b, const char *rest,
                         const struct kvi_backend_options *options, kvarc_error *e)
{
	(void)rest;
	(void)options;
	*b = NULL;
	return kvi_fail(e, KVARC_OPTIONS,
	                "store s3://...: kvarc was built without libcurl: use a folder or "
	                "redis://, or install libcurl4-openssl-dev and build kvarc");
}

#endif
