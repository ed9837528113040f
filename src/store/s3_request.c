/* SPDX-License-Identifier: BSD-3-Clause */
/* s3_request.c - one signed request to an S3-compatible service, by libcurl */
#include "config.h"

#include "s3_request.h"

#ifdef HAVE_LIBCURL

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libcurl.h"
#include "url.h"
#include "util/error.h"

enum {
	TEXT_MAX = 16 << 20, /* the largest answer that is taken as text */
	TRIES = 3,
	CONNECT_SECONDS = 20,
	STALL_SECONDS = 60, /* without a byte */
	WAIT_MILLISECONDS = 200
};

struct kvi_s3_client {
	struct kvi_alloc alloc;
	CURL *curl;
	char *bucket_url, *signing, *user, *token;
	char *shown; /* bucket_url for messages */
	char *text;
	size_t text_capacity;
	uint32_t timeout_ms; /* 0: none */
	char why[CURL_ERROR_SIZE];
	/* of the request in hand */
	struct kvi_s3_request *request;
	uint64_t sent;
	int failed; /* the source of the body, or memory */
};

/* A copy of the parts of a text; NULL: no memory. */
static char *joined(const struct kvi_alloc *alloc, const char *a, const char *b, const char *c)
{
	size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
	char *text = kvi_malloc(alloc, n);
	if (text)
		snprintf(text, n, "%s%s%s", a, b, c);
	return text;
}

static size_t take_body(char *to, size_t size, size_t n, void *opaque)
{
	struct kvi_s3_client *c = opaque;
	const struct kvi_s3_request *r = c->request;
	uint64_t left = r->body_bytes - c->sent;
	size_t want = left < size * n ? (size_t)left : size * n;
	if (want == 0)
		return 0;
	int64_t got = (int64_t)want;
	if (r->body->memory)
		memcpy(to, (const char *)r->body->memory + r->body_offset + c->sent, want);
	else
		got = r->body->read(r->body->opaque, to, want, r->body_offset + c->sent);
	if (got <= 0) {
		c->failed = 1;
		return CURL_READFUNC_ABORT;
	}
	c->sent += (uint64_t)got;
	return (size_t)got;
}

/* The same again from another byte, when libcurl has to repeat the request. */
static int seek_body(void *opaque, curl_off_t offset, int origin)
{
	struct kvi_s3_client *c = opaque;
	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > c->request->body_bytes)
		return CURL_SEEKFUNC_FAIL;
	c->sent = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

static size_t take_text(struct kvi_s3_client *c, const char *p, size_t bytes)
{
	struct kvi_s3_request *r = c->request;
	size_t need = r->text_bytes + bytes + 1;
	if (need > TEXT_MAX) {
		c->failed = 1;
		return 0;
	}
	if (need > c->text_capacity) {
		char *text = kvi_malloc(&c->alloc, 2 * need);
		if (!text) {
			c->failed = 1;
			return 0;
		}
		if (r->text_bytes)
			memcpy(text, c->text, r->text_bytes);
		kvi_free(&c->alloc, c->text);
		c->text = text;
		c->text_capacity = 2 * need;
	}
	memcpy(c->text + r->text_bytes, p, bytes);
	r->text_bytes += bytes;
	c->text[r->text_bytes] = 0;
	return bytes;
}

static size_t take_answer(char *p, size_t size, size_t n, void *opaque)
{
	struct kvi_s3_client *c = opaque;
	struct kvi_s3_request *r = c->request;
	long status = 0;
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	if (!r->out || status >= 300)
		return take_text(c, p, size * n);
	if (size * n > r->out_capacity - r->got) {
		c->failed = 1;
		return 0;
	}
	memcpy((char *)r->out + r->got, p, size * n);
	r->got += size * n;
	return size * n;
}

static size_t take_header(char *p, size_t size, size_t n, void *opaque)
{
	struct kvi_s3_client *c = opaque;
	static const char name[] = "etag:";
	size_t bytes = size * n, at = sizeof name - 1, used = 0;
	if (bytes < at || curl_strnequal(p, name, at) == 0)
		return bytes;
	for (; at < bytes && used + 1 < sizeof c->request->etag; at++) {
		if (p[at] > ' ' && p[at] < 0x7f)
			c->request->etag[used++] = p[at];
	}
	c->request->etag[used] = 0;
	return bytes;
}

kvarc_ret kvi_s3_open(struct kvi_s3_client **out, const kvarc_allocator *allocator,
                      const char *endpoint, const char *region, const char *bucket,
                      const char *access_key, const char *secret_key, const char *session_token,
                      kvarc_error *e)
{
	struct kvi_s3_client *c;
	kvarc_common common = { .allocator = allocator, .error = e };
	*out = NULL;
	if (!kvi_libcurl(e))
		return KVARC_OPTIONS;
	if (!kvi_url_secret_is_plain(endpoint))
		return kvi_fail(e, KVARC_OPTIONS, "store: the endpoint: %s", KVI_URL_NOT_PLAIN);
	kvarc_ret ret = kvi_handle_new(&c, sizeof *c, offsetof(struct kvi_s3_client, alloc),
	                               &common, 0);
	if (ret)
		return ret;
	c->bucket_url = joined(&c->alloc, endpoint, "/", bucket);
	c->shown = joined(&c->alloc, endpoint, "/", bucket);
	if (c->shown)
		kvi_url_shown(c->shown, strlen(c->shown) + 1, c->bucket_url);
	c->signing = joined(&c->alloc, "aws:amz:", region, ":s3");
	if (access_key && secret_key) {
		c->user = joined(&c->alloc, access_key, ":", secret_key);
		ret = c->user ? KVARC_OK : kvi_fail_alloc(e, &c->alloc);
	}
	if (!ret && session_token && session_token[0]) {
		c->token = joined(&c->alloc, "x-amz-security-token: ", session_token, "");
		ret = c->token ? KVARC_OK : kvi_fail_alloc(e, &c->alloc);
	}
	if (!ret && (!c->bucket_url || !c->shown || !c->signing))
		ret = kvi_fail_alloc(e, &c->alloc);
	if (!ret && !(c->curl = curl_easy_init()))
		ret = kvi_fail(e, KVARC_MEM, "store: libcurl cannot be started");
	*out = c;
	if (ret)
		kvi_s3_close(out);
	return ret;
}

void kvi_s3_close(struct kvi_s3_client **c)
{
	struct kvi_s3_client *x = *c;
	if (!x)
		return;
	if (x->curl)
		curl_easy_cleanup(x->curl);
	kvi_free(&x->alloc, x->bucket_url);
	kvi_free(&x->alloc, x->shown);
	kvi_free(&x->alloc, x->signing);
	if (x->user)
		memset(x->user, 0, strlen(x->user));
	kvi_free(&x->alloc, x->user);
	kvi_free(&x->alloc, x->token);
	kvi_free(&x->alloc, x->text);
	kvi_free(&x->alloc, x);
	*c = NULL;
}

void kvi_s3_set_timeout(struct kvi_s3_client *c, uint32_t timeout_ms)
{
	c->timeout_ms = timeout_ms;
}

/* One more header; frees all and returns NULL when memory ran out. */
static struct curl_slist *with_header(struct curl_slist *headers, const char *header)
{
	struct curl_slist *longer = headers ? curl_slist_append(headers, header) : NULL;
	if (headers && !longer)
		curl_slist_free_all(headers);
	return longer;
}

static struct curl_slist *headers_of(const struct kvi_s3_client *c, const struct kvi_s3_request *r)
{
	/* A body is not hashed: TLS protects it on its way, and readers check archives. */
	const char *body =
		r->body ? "x-amz-content-sha256: UNSIGNED-PAYLOAD"
			: "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4"
			  "649b934ca495991b7852b855";
	struct curl_slist *headers = curl_slist_append(NULL, body);
	if (r->if_absent)
		headers = with_header(headers, "If-None-Match: *");
	if (r->if_match) {
		char match[KVI_S3_ETAG_MAX + 16];
		snprintf(match, sizeof match, "If-Match: %s", r->if_match);
		headers = with_header(headers, match);
	}
	if (c->token)
		headers = with_header(headers, c->token);
	if (r->body && headers)
		headers = with_header(headers, "Content-Type: application/octet-stream");
	return headers;
}

static void set_method(struct kvi_s3_client *c, const struct kvi_s3_request *r)
{
	char range[64];
	if (strcmp(r->method, "HEAD") == 0)
		curl_easy_setopt(c->curl, CURLOPT_NOBODY, 1L);
	if (r->body) {
		curl_easy_setopt(c->curl, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(c->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_bytes);
		curl_easy_setopt(c->curl, CURLOPT_READFUNCTION, take_body);
		curl_easy_setopt(c->curl, CURLOPT_READDATA, c);
		curl_easy_setopt(c->curl, CURLOPT_SEEKFUNCTION, seek_body);
		curl_easy_setopt(c->curl, CURLOPT_SEEKDATA, c);
		curl_easy_setopt(c->curl, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
	}
	if (strcmp(r->method, "HEAD") != 0)
		curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, r->method);
	if (r->range_bytes) {
		snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)r->range_offset,
		         (unsigned long long)(r->range_offset + r->range_bytes - 1));
		curl_easy_setopt(c->curl, CURLOPT_RANGE, range);
	}
}

/* One try. */
static CURLcode perform(struct kvi_s3_client *c, struct kvi_s3_request *r, const char *url,
                        struct curl_slist *headers)
{
	curl_off_t bytes = -1;
	long filetime = -1;
	c->request = r;
	c->sent = 0;
	c->failed = 0;
	c->why[0] = 0;
	r->status = 0;
	r->got = r->text_bytes = 0;
	r->etag[0] = 0;
	curl_easy_reset(c->curl);
	curl_easy_setopt(c->curl, CURLOPT_URL, url);
	curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->why);
	curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	/* 0: no limit */
	curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)c->timeout_ms);
	curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
	curl_easy_setopt(c->curl, CURLOPT_BUFFERSIZE, 1L << 19);
	curl_easy_setopt(c->curl, CURLOPT_FILETIME, 1L);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c->curl, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(c->curl, CURLOPT_HEADERDATA, c);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_answer);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
	if (c->user) {
		curl_easy_setopt(c->curl, CURLOPT_USERPWD, c->user);
		curl_easy_setopt(c->curl, CURLOPT_AWS_SIGV4, c->signing);
	}
	set_method(c, r);
	CURLcode code = curl_easy_perform(c->curl);
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &r->status);
	curl_easy_getinfo(c->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &bytes);
	curl_easy_getinfo(c->curl, CURLINFO_FILETIME, &filetime);
	r->content_bytes = bytes < 0 ? 0 : (uint64_t)bytes;
	r->time = filetime < 0 ? 0 : filetime;
	r->text = r->text_bytes ? c->text : NULL;
	return code;
}

static void wait_before(int try)
{
	struct timespec t = { 0, (long)WAIT_MILLISECONDS * 1000000L * try };
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

kvarc_ret kvi_s3_send(struct kvi_s3_client *c, struct kvi_s3_request *r, kvarc_error *e)
{
	char url[KVI_S3_URL_MAX];
	int tries = r->body || c->timeout_ms || strcmp(r->method, "POST") == 0 ? 1 : TRIES;
	CURLcode code = CURLE_OK;
	int n = snprintf(url, sizeof url, "%s%s%s%s", c->bucket_url, r->path, r->query ? "?" : "",
	                 r->query ? r->query : "");
	if (n < 0 || (size_t)n >= sizeof url)
		return kvi_fail(e, KVARC_IO, "store: the address of an object is too long");
	struct curl_slist *headers = headers_of(c, r);
	if (!headers)
		return kvi_fail(e, KVARC_MEM, "store: no memory for a request");
	for (int i = 0; i < tries; i++) {
		if (i > 0)
			wait_before(i);
		code = perform(c, r, url, headers);
		if (c->failed || (code == CURLE_OK && r->status < 500))
			break;
	}
	curl_slist_free_all(headers);
	c->request = NULL;
	if (c->failed)
		return kvi_fail(e, KVARC_IO, "store: %s %.80s%.80s: bytes could not be %s",
		                r->method, c->shown, r->path, r->body ? "read" : "taken");
	if (code != CURLE_OK)
		return kvi_fail(e, KVARC_IO, "store: %s %.80s%.80s: %s", r->method, c->shown,
		                r->path, c->why[0] ? c->why : curl_easy_strerror(code));
	if (r->status >= 500)
		return kvi_fail(e, KVARC_IO,
		                "store: %s %.80s%.80s: the service answers %ld, try again",
		                r->method, c->shown, r->path, r->status);
	return KVARC_OK;
}

char *kvi_s3_encode(char *to, const char *text, char keep)
{
	static const char digits[] = "0123456789ABCDEF";
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		    strchr("-._~", c) || (keep && c == (unsigned char)keep)) {
			*to++ = (char)c;
			continue;
		}
		*to++ = '%';
		*to++ = digits[c >> 4];
		*to++ = digits[c & 15];
	}
	*to = 0;
	return to;
}

kvarc_ret kvi_s3_fail(const struct kvi_s3_request *r, const char *key, kvarc_error *e)
{
	char code[64] = "";
	const char *from = r->text ? strstr(r->text, "<Code>") : NULL;
	const char *to = from ? strstr(from, "</Code>") : NULL;
	if (to && to - from - 6 < (long)sizeof code)
		snprintf(code, sizeof code, " %.*s", (int)(to - from - 6), from + 6);
	for (char *c = code; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
	return kvi_fail(e, KVARC_IO, "store: %s of %s: the service answers %ld%s", r->method, key,
	                r->status, code);
}

kvarc_ret kvi_s3_put_result(const struct kvi_s3_request *r, const char *key, kvarc_error *e)
{
	if (r->status == KVI_HTTP_PRECONDITION)
		return KVARC_END;
	if (r->status == KVI_HTTP_CONFLICT)
		return kvi_fail(e, KVARC_IO, "store: another put of %s is under way, try again",
		                key);
	if (r->status != KVI_HTTP_OK)
		return kvi_s3_fail(r, key, e);
	return KVARC_OK;
}

#else
typedef int kvi_s3_request_empty; /* a C file has something in it */
#endif
