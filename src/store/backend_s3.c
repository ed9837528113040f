/* SPDX-License-Identifier: BSD-3-Clause */
/* backend_s3.c - objects in a bucket of an S3-compatible service */
#include "config.h"

#include "backend_s3.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "backend.h"
#include "libcurl.h"
#include "url.h"
#include "util/alloc.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/hash.h"

/* ==== A page of an answer to ListObjectsV2 ==== */

/*
 * The parser searches the XML for the text of a few elements, none of which has attributes or
 * children. Keys of a store have no characters that XML escapes.
 */

/* The first occurrence of a word in [at, end). NULL: none. */
static const char *find(const char *at, const char *end, const char *word)
{
	size_t n = strlen(word);
	for (; (size_t)(end - at) >= n; at++) {
		at = memchr(at, word[0], (size_t)(end - at) - n + 1);
		if (!at)
			return NULL;
		if (memcmp(at, word, n) == 0)
			return at;
	}
	return NULL;
}

/* The text between two tags, terminated. *behind: behind the second one. False: it is not in
 * [at, end), or longer than text. */
static bool element(const char *at, const char *end, const char *open, const char *close,
                    char *text, size_t capacity, const char **behind)
{
	const char *from = find(at, end, open);
	if (!from)
		return false;
	from += strlen(open);
	const char *to = find(from, end, close);
	if (!to || (size_t)(to - from) >= capacity)
		return false;
	memcpy(text, from, (size_t)(to - from));
	text[to - from] = 0;
	if (behind)
		*behind = to + strlen(close);
	return true;
}

int kvi_s3_page_begin(struct kvi_s3_page *page, const char *xml, size_t bytes)
{
	char truncated[8] = "";
	*page = (struct kvi_s3_page){ xml, xml + bytes, "" };
	if (!find(xml, page->end, "<ListBucketResult"))
		return -1;
	if (!element(xml, page->end, "<IsTruncated>", "</IsTruncated>", truncated, sizeof truncated,
	             NULL))
		return -1;
	if (strcmp(truncated, "true") != 0)
		return 0;
	return element(xml, page->end, "<NextContinuationToken>", "</NextContinuationToken>",
	               page->next, sizeof page->next, NULL)
	               ? 0
	               : -1;
}

/* "2026-11-24T09:55:12.000Z" in seconds since 1970; 0: something else. */
static int64_t time_of(const char *text)
{
	int v[6];
	const char *p = text;
	for (int i = 0; i < 6; i++) {
		char *end;
		long x = strtol(p, &end, 10);
		if (end == p || x < 0 || x > 9999)
			return 0;
		v[i] = (int)x;
		p = *end ? end + 1 : end;
	}
	struct tm tm = { .tm_year = v[0] - 1900,
		         .tm_mon = v[1] - 1,
		         .tm_mday = v[2],
		         .tm_hour = v[3],
		         .tm_min = v[4],
		         .tm_sec = v[5] };
	time_t t = timegm(&tm);
	return t < 0 ? 0 : (int64_t)t;
}

int kvi_s3_page_next(struct kvi_s3_page *page, struct kvi_s3_object *object)
{
	char text[64], *rest;
	const char *from = find(page->at, page->end, "<Contents>");
	if (!from)
		return 0;
	const char *to = find(from, page->end, "</Contents>");
	if (!to)
		return -1;
	*object = (struct kvi_s3_object){ 0 };
	if (!element(from, to, "<Key>", "</Key>", object->key, sizeof object->key, NULL) ||
	    !element(from, to, "<Size>", "</Size>", text, sizeof text, NULL))
		return -1;
	object->bytes = strtoull(text, &rest, 10);
	if (rest == text || *rest)
		return -1;
	if (element(from, to, "<LastModified>", "</LastModified>", text, sizeof text, NULL))
		object->time = time_of(text);
	if (!element(from, to, "<ETag>", "</ETag>", object->etag, sizeof object->etag, NULL))
		object->etag[0] = 0;
	page->at = to;
	return 1;
}

#ifdef HAVE_LIBCURL

/* ==== One signed request to an S3-compatible service, by libcurl ==== */

/* Capacities for an address and an ETag. */
enum { S3_URL_MAX = 4096, S3_ETAG_MAX = 128 };

/* Status codes that are looked at. */
enum {
	HTTP_OK = 200,
	HTTP_PARTIAL = 206,
	HTTP_NO_CONTENT = 204,
	HTTP_BAD_REQUEST = 400,
	HTTP_NOT_FOUND = 404,
	HTTP_CONFLICT = 409,
	HTTP_PRECONDITION = 412,
	HTTP_RANGE = 416,
	HTTP_NOT_IMPLEMENTED = 501
};

/* A request, and its answer. */
struct s3_request {
	/* in */
	const char *method; /* "GET", "HEAD", "PUT", "POST", "DELETE" */
	const char *path;   /* encoded, of the object behind the bucket: "/..."; "": the bucket */
	const char *query;  /* sorted by name, encoded; NULL: none */
	uint64_t range_offset, range_bytes; /* GET; range_bytes 0: all */
	int if_absent;                      /* PUT, POST: 412 when the object is there */
	const char *if_match;     /* an ETag: 412 when the object has another one; NULL: none */
	const kvarc_source *body; /* PUT, POST: its bytes from body_offset on */
	uint64_t body_offset, body_bytes;
	void *out; /* GET into out_capacity bytes, more fails; NULL: into text */
	size_t out_capacity;
	/* out */
	long status; /* HTTP status */
	size_t got;  /* bytes in out */
	char *text;  /* answer, terminated; owned by the client, until the next request */
	size_t text_bytes;
	uint64_t content_bytes; /* Content-Length of HEAD */
	int64_t time;           /* Last-Modified, 0: none */
	char etag[S3_ETAG_MAX];
};

enum {
	TEXT_MAX = 16 << 20, /* bytes of the longest answer that is read as text */
	TRIES = 3,
	CONNECT_SECONDS = 20,
	STALL_SECONDS = 60, /* without a byte */
	WAIT_MILLISECONDS = 200
};

struct s3_client {
	struct kvi_alloc alloc;
	CURL *curl;
	char *bucket_url, *signing, *user, *token;
	char *shown; /* bucket_url for messages */
	char *text;
	size_t text_capacity;
	uint32_t timeout_ms; /* 0: none */
	char why[CURL_ERROR_SIZE];
	/* state of the current request */
	struct s3_request *request;
	uint64_t sent;
	int failed; /* the source of the body, or memory */
};

/* NULL-safe. */
static void client_close(struct s3_client **client)
{
	struct s3_client *x = *client;
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
	*client = NULL;
}

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
	struct s3_client *c = opaque;
	const struct s3_request *r = c->request;
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

/* Sets the position in the body when libcurl has to repeat the request. */
static int seek_body(void *opaque, curl_off_t offset, int origin)
{
	struct s3_client *c = opaque;
	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > c->request->body_bytes)
		return CURL_SEEKFUNC_FAIL;
	c->sent = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

static size_t take_text(struct s3_client *client, const char *p, size_t bytes)
{
	struct s3_request *r = client->request;
	size_t need = r->text_bytes + bytes + 1;
	if (need > TEXT_MAX) {
		client->failed = 1;
		return 0;
	}
	if (need > client->text_capacity) {
		char *text = kvi_malloc(&client->alloc, 2 * need);
		if (!text) {
			client->failed = 1;
			return 0;
		}
		if (r->text_bytes)
			memcpy(text, client->text, r->text_bytes);
		kvi_free(&client->alloc, client->text);
		client->text = text;
		client->text_capacity = 2 * need;
	}
	memcpy(client->text + r->text_bytes, p, bytes);
	r->text_bytes += bytes;
	client->text[r->text_bytes] = 0;
	return bytes;
}

static size_t take_answer(char *p, size_t size, size_t n, void *opaque)
{
	struct s3_client *c = opaque;
	struct s3_request *r = c->request;
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
	struct s3_client *c = opaque;
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

/* The service of a bucket. All strings are copied. Returns OK, MEM, OPTIONS, IO. */
static kvarc_ret s3_open(struct s3_client **out, const kvarc_allocator *allocator,
                         const char *endpoint, const char *region, const char *bucket,
                         const char *access_key, const char *secret_key, const char *session_token,
                         kvarc_error *error)
{
	struct s3_client *c;
	kvarc_common common = { .allocator = allocator, .error = error };
	*out = NULL;
	if (!kvi_libcurl(error))
		return KVARC_OPTIONS;
	if (!kvi_url_secret_is_plain(endpoint))
		return kvi_fail(error, KVARC_OPTIONS, "store: the endpoint: %s", KVI_URL_NOT_PLAIN);
	kvarc_ret ret = kvi_handle_new(&c, sizeof *c, offsetof(struct s3_client, alloc), &common,
	                               0);
	if (ret)
		return ret;
	c->bucket_url = joined(&c->alloc, endpoint, "/", bucket);
	c->shown = joined(&c->alloc, endpoint, "/", bucket);
	if (c->shown)
		kvi_url_shown(c->shown, strlen(c->shown) + 1, c->bucket_url);
	c->signing = joined(&c->alloc, "aws:amz:", region, ":s3");
	if (access_key && secret_key) {
		c->user = joined(&c->alloc, access_key, ":", secret_key);
		ret = c->user ? KVARC_OK : kvi_fail_alloc(error, &c->alloc);
	}
	if (!ret && session_token && session_token[0]) {
		c->token = joined(&c->alloc, "x-amz-security-token: ", session_token, "");
		ret = c->token ? KVARC_OK : kvi_fail_alloc(error, &c->alloc);
	}
	if (!ret && (!c->bucket_url || !c->shown || !c->signing))
		ret = kvi_fail_alloc(error, &c->alloc);
	if (!ret && !(c->curl = curl_easy_init()))
		ret = kvi_fail(error, KVARC_MEM, "store: libcurl cannot be started");
	*out = c;
	if (ret)
		client_close(out);
	return ret;
}

/* Milliseconds for a request and its answer; 0: no limit while bytes come. */
static void s3_set_timeout(struct s3_client *client, uint32_t timeout_ms)
{
	client->timeout_ms = timeout_ms;
}

/* Appends a header; frees all and returns NULL when memory ran out. */
static struct curl_slist *with_header(struct curl_slist *headers, const char *header)
{
	struct curl_slist *longer = headers ? curl_slist_append(headers, header) : NULL;
	if (headers && !longer)
		curl_slist_free_all(headers);
	return longer;
}

static struct curl_slist *headers_of(const struct s3_client *client, const struct s3_request *r)
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
		char match[S3_ETAG_MAX + 16];
		snprintf(match, sizeof match, "If-Match: %s", r->if_match);
		headers = with_header(headers, match);
	}
	if (client->token)
		headers = with_header(headers, client->token);
	if (r->body && headers)
		headers = with_header(headers, "Content-Type: application/octet-stream");
	return headers;
}

static void set_method(struct s3_client *client, const struct s3_request *r)
{
	char range[64];
	if (strcmp(r->method, "HEAD") == 0)
		curl_easy_setopt(client->curl, CURLOPT_NOBODY, 1L);
	if (r->body) {
		curl_easy_setopt(client->curl, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(client->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_bytes);
		curl_easy_setopt(client->curl, CURLOPT_READFUNCTION, take_body);
		curl_easy_setopt(client->curl, CURLOPT_READDATA, client);
		curl_easy_setopt(client->curl, CURLOPT_SEEKFUNCTION, seek_body);
		curl_easy_setopt(client->curl, CURLOPT_SEEKDATA, client);
		curl_easy_setopt(client->curl, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
	}
	if (strcmp(r->method, "HEAD") != 0)
		curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, r->method);
	if (r->range_bytes) {
		snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)r->range_offset,
		         (unsigned long long)(r->range_offset + r->range_bytes - 1));
		curl_easy_setopt(client->curl, CURLOPT_RANGE, range);
	}
}

/* Sends the request once. */
static CURLcode perform(struct s3_client *client, struct s3_request *r, const char *url,
                        struct curl_slist *headers)
{
	curl_off_t bytes = -1;
	long filetime = -1;
	client->request = r;
	client->sent = 0;
	client->failed = 0;
	client->why[0] = 0;
	r->status = 0;
	r->got = r->text_bytes = 0;
	r->etag[0] = 0;
	curl_easy_reset(client->curl);
	curl_easy_setopt(client->curl, CURLOPT_URL, url);
	curl_easy_setopt(client->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(client->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(client->curl, CURLOPT_ERRORBUFFER, client->why);
	curl_easy_setopt(client->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	/* 0: no limit */
	curl_easy_setopt(client->curl, CURLOPT_TIMEOUT_MS, (long)client->timeout_ms);
	curl_easy_setopt(client->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(client->curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
	curl_easy_setopt(client->curl, CURLOPT_BUFFERSIZE, 1L << 19);
	curl_easy_setopt(client->curl, CURLOPT_FILETIME, 1L);
	curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(client->curl, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(client->curl, CURLOPT_HEADERDATA, client);
	curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, take_answer);
	curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, client);
	if (client->user) {
		curl_easy_setopt(client->curl, CURLOPT_USERPWD, client->user);
		curl_easy_setopt(client->curl, CURLOPT_AWS_SIGV4, client->signing);
	}
	set_method(client, r);
	CURLcode code = curl_easy_perform(client->curl);
	curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &r->status);
	curl_easy_getinfo(client->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &bytes);
	curl_easy_getinfo(client->curl, CURLINFO_FILETIME, &filetime);
	r->content_bytes = bytes < 0 ? 0 : (uint64_t)bytes;
	r->time = filetime < 0 ? 0 : filetime;
	r->text = r->text_bytes ? client->text : NULL;
	return code;
}

static void wait_before(int try)
{
	struct timespec t = { 0, (long)WAIT_MILLISECONDS * 1000000L * try };
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

/* Sends a request and waits for its answer. Requests that change nothing are sent three times
 * before they fail, but with a timeout once. Returns OK with any HTTP status below 500, IO, MEM. */
static kvarc_ret s3_send(struct s3_client *client, struct s3_request *r, kvarc_error *error)
{
	char url[S3_URL_MAX];
	int tries = r->body || client->timeout_ms || strcmp(r->method, "POST") == 0 ? 1 : TRIES;
	CURLcode code = CURLE_OK;
	int n = snprintf(url, sizeof url, "%s%s%s%s", client->bucket_url, r->path,
	                 r->query ? "?" : "", r->query ? r->query : "");
	if (n < 0 || (size_t)n >= sizeof url)
		return kvi_fail(error, KVARC_IO, "store: the address of an object is too long");
	struct curl_slist *headers = headers_of(client, r);
	if (!headers)
		return kvi_fail(error, KVARC_MEM, "store: no memory for a request");
	for (int i = 0; i < tries; i++) {
		if (i > 0)
			wait_before(i);
		code = perform(client, r, url, headers);
		if (client->failed || (code == CURLE_OK && r->status < 500))
			break;
	}
	curl_slist_free_all(headers);
	client->request = NULL;
	if (client->failed)
		return kvi_fail(error, KVARC_IO, "store: %s %.80s%.80s: bytes could not be %s",
		                r->method, client->shown, r->path, r->body ? "read" : "taken");
	if (code != CURLE_OK)
		return kvi_fail(error, KVARC_IO, "store: %s %.80s%.80s: %s", r->method,
		                client->shown, r->path,
		                client->why[0] ? client->why : curl_easy_strerror(code));
	if (r->status >= 500)
		return kvi_fail(error, KVARC_IO,
		                "store: %s %.80s%.80s: the service answers %ld, try again",
		                r->method, client->shown, r->path, r->status);
	return KVARC_OK;
}

/* Puts a text into an address as RFC 3986 and the signature demand. keep: a byte that stays;
 * 0: none. Returns the end of it, where a 0 is. */
static char *s3_encode(char *to, const char *text, char keep)
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

/* IO for a status that is no answer to what was asked; the service's own words follow. */
static kvarc_ret s3_fail(const struct s3_request *r, const char *key, kvarc_error *error)
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
	return kvi_fail(error, KVARC_IO, "store: %s of %s: the service answers %ld%s", r->method,
	                key, r->status, code);
}

/* Result of a put, or of the end of one in parts. Returns OK, END (the key has an object), IO. */
static kvarc_ret s3_put_result(const struct s3_request *r, const char *key, kvarc_error *error)
{
	if (r->status == HTTP_PRECONDITION)
		return KVARC_END;
	if (r->status == HTTP_CONFLICT)
		return kvi_fail(error, KVARC_IO, "store: another put of %s is under way, try again",
		                key);
	if (r->status != HTTP_OK)
		return s3_fail(r, key, error);
	return KVARC_OK;
}

/* ==== The put of a large object in parts, which become visible together ==== */

/* An object of more is put in parts; the least size of a part. */
enum { S3_PART_BYTES = 64 << 20 };

enum { PARTS_MAX = 10000 };

/* Text that grows by formatted pieces. */
struct growing {
	char *p;
	size_t n, capacity;
};

/* Uploads one part, and appends its ETag to the list that ends the upload. */
static kvarc_ret put_part(struct s3_client *client, const char *path, const char *upload,
                          unsigned number, const kvarc_source *source, uint64_t offset,
                          uint64_t bytes, struct growing *list, kvarc_error *error)
{
	char query[2 * KVI_S3_TOKEN_MAX];
	snprintf(query, sizeof query, "partNumber=%u&uploadId=%s", number, upload);
	struct s3_request r = { .method = "PUT",
		                .path = path,
		                .query = query,
		                .body = source,
		                .body_offset = offset,
		                .body_bytes = bytes };
	kvarc_ret ret = s3_send(client, &r, error);
	if (ret)
		return ret;
	if (r.status != HTTP_OK)
		return s3_fail(&r, path, error);
	list->n += (size_t)snprintf(list->p + list->n, list->capacity - list->n,
	                            "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>",
	                            number, r.etag);
	return list->n < list->capacity
	               ? KVARC_OK
	               : kvi_fail(error, KVARC_IO, "store: too many parts of %s", path);
}

/* Begins an upload in parts; upload gets its encoded name. */
static kvarc_ret begin_parts(struct s3_client *client, const char *path,
                             char upload[KVI_S3_TOKEN_MAX], kvarc_error *error)
{
	const kvarc_source empty = { .memory = "" };
	char id[KVI_S3_TOKEN_MAX / 3];
	struct s3_request r = {
		.method = "POST", .path = path, .query = "uploads=", .body = &empty
	};
	kvarc_ret ret = s3_send(client, &r, error);
	if (ret)
		return ret;
	const char *from = r.status == HTTP_OK && r.text ? strstr(r.text, "<UploadId>") : NULL;
	const char *to = from ? strstr(from, "</UploadId>") : NULL;
	if (!to || (size_t)(to - from) >= sizeof id)
		return s3_fail(&r, path, error);
	snprintf(id, sizeof id, "%.*s", (int)(to - from - 10), from + 10);
	s3_encode(upload, id, 0);
	return KVARC_OK;
}

static kvarc_ret send_parts(struct s3_client *client, const char *key, const char *path,
                            const char *upload, const kvarc_source *source, struct growing *list,
                            kvarc_error *error)
{
	char query[2 * KVI_S3_TOKEN_MAX];
	uint64_t least = source->size / PARTS_MAX + 1;
	uint64_t part = least > S3_PART_BYTES ? least : S3_PART_BYTES;
	unsigned number = 0;
	kvarc_ret ret = KVARC_OK;
	list->n = (size_t)snprintf(list->p, list->capacity, "<CompleteMultipartUpload>");
	for (uint64_t at = 0; !ret && at < source->size; at += part) {
		uint64_t left = source->size - at;
		ret = put_part(client, path, upload, ++number, source, at,
		               left < part ? left : part, list, error);
	}
	if (ret)
		return ret;
	list->n += (size_t)snprintf(list->p + list->n, list->capacity - list->n,
	                            "</CompleteMultipartUpload>");
	if (list->n >= list->capacity)
		return kvi_fail(error, KVARC_IO, "store: too many parts of %s", key);
	const kvarc_source body = { .memory = list->p, .size = list->n };
	snprintf(query, sizeof query, "uploadId=%s", upload);
	struct s3_request r = { .method = "POST",
		                .path = path,
		                .query = query,
		                .if_absent = 1,
		                .body = &body,
		                .body_bytes = list->n };
	ret = s3_send(client, &r, error);
	/* the answer to this request may begin with 200 and fail later */
	if (!ret && r.status == HTTP_OK && r.text && strstr(r.text, "<Error>"))
		return s3_fail(&r, key, error);
	return ret ? ret : s3_put_result(&r, key, error);
}

/* Puts all bytes of a source under a key that has no object; path: the encoded one of the key.
 * Returns OK, END (the key has an object), IO, MEM. */
static kvarc_ret s3_put_parts(struct s3_client *client, const struct kvi_alloc *alloc,
                              const char *key, const char *path, const kvarc_source *source,
                              kvarc_error *error)
{
	enum { PART_TEXT = 64 + S3_ETAG_MAX };
	char upload[KVI_S3_TOKEN_MAX], query[2 * KVI_S3_TOKEN_MAX];
	struct growing list = { .capacity = (size_t)(PARTS_MAX + 2) * PART_TEXT };
	kvarc_ret ret = begin_parts(client, path, upload, error);
	if (ret)
		return ret;
	list.p = kvi_malloc(alloc, list.capacity);
	ret = list.p ? send_parts(client, key, path, upload, source, &list, error)
	             : kvi_fail_alloc(error, alloc);
	kvi_free(alloc, list.p);
	if (ret) {
		snprintf(query, sizeof query, "uploadId=%s", upload);
		struct s3_request r = { .method = "DELETE", .path = path, .query = query };
		/* the service removes parts that remain by its own rules */
		(void)s3_send(client, &r, NULL);
	}
	return ret;
}

/* ==== Objects in a bucket of an S3-compatible service ==== */

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
	struct s3_client *client;
	char prefix[PREFIX_MAX + 1]; /* prefix of all keys: "" or ".../" */
};

static struct s3 *s3_of(struct kvi_backend *backend)
{
	return (struct s3 *)backend;
}

/* The path of a key behind the bucket. */
static const char *path_of(const struct s3 *s3, const char *key, char path[PATH_MAX_BYTES])
{
	char *at = path;
	*at++ = '/';
	at = s3_encode(at, s3->prefix, '/');
	s3_encode(at, key, '/');
	return path;
}

static kvarc_ret s3_get(struct kvi_backend *backend, const char *key, uint64_t offset, void *data,
                        size_t n, size_t *got, kvarc_error *error)
{
	struct s3 *s = s3_of(backend);
	char path[PATH_MAX_BYTES];
	struct s3_request r = { .method = "GET",
		                .path = path_of(s, key, path),
		                .range_offset = offset,
		                .range_bytes = n,
		                .out = data,
		                .out_capacity = n };
	*got = 0;
	if (n == 0)
		return KVARC_OK;
	kvarc_ret ret = s3_send(s->client, &r, error);
	if (ret)
		return ret;
	if (r.status == HTTP_NOT_FOUND)
		return KVARC_END;
	if (r.status == HTTP_RANGE)
		return KVARC_OK;
	if (r.status != HTTP_PARTIAL && !(r.status == HTTP_OK && offset == 0))
		return s3_fail(&r, key, error);
	*got = r.got;
	return KVARC_OK;
}

/* An ETag as a number. The quotes around it are written in two ways. */
static uint64_t stamp_of(const char *etag)
{
	char digits[S3_ETAG_MAX];
	size_t n = 0;
	for (; *etag && n < sizeof digits; etag++) {
		if (strncmp(etag, "&quot;", 6) == 0)
			etag += 5;
		else if (*etag != '"')
			digits[n++] = *etag;
	}
	return n ? kvi_h64(digits, n) : 0;
}

static kvarc_ret s3_stat(struct kvi_backend *backend, const char *key, struct kvi_object *object,
                         kvarc_error *error)
{
	struct s3 *s = s3_of(backend);
	char path[PATH_MAX_BYTES];
	struct s3_request r = { .method = "HEAD", .path = path_of(s, key, path) };
	kvarc_ret ret = s3_send(s->client, &r, error);
	if (ret)
		return ret;
	if (r.status == HTTP_NOT_FOUND)
		return KVARC_END;
	if (r.status != HTTP_OK)
		return s3_fail(&r, key, error);
	*object = (struct kvi_object){ key, r.content_bytes, r.time, stamp_of(r.etag) };
	return KVARC_OK;
}

static kvarc_ret s3_put(struct kvi_backend *backend, const char *key, const kvarc_source *source,
                        kvarc_error *error)
{
	struct s3 *s = s3_of(backend);
	char path[PATH_MAX_BYTES];
	path_of(s, key, path);
	if (source->size > S3_PART_BYTES)
		return s3_put_parts(s->client, &s->alloc, key, path, source, error);
	struct s3_request r = { .method = "PUT",
		                .path = path,
		                .if_absent = 1,
		                .body = source,
		                .body_bytes = source->size };
	kvarc_ret ret = s3_send(s->client, &r, error);
	return ret ? ret : s3_put_result(&r, key, error);
}

static kvarc_ret s3_remove(struct kvi_backend *backend, const char *key, kvarc_error *error)
{
	struct s3 *s = s3_of(backend);
	char path[PATH_MAX_BYTES];
	struct s3_request r = { .method = "DELETE", .path = path_of(s, key, path) };
	kvarc_ret ret = s3_send(s->client, &r, error);
	if (ret)
		return ret;
	if (r.status != HTTP_NO_CONTENT && r.status != HTTP_OK && r.status != HTTP_NOT_FOUND)
		return s3_fail(&r, key, error);
	return KVARC_OK;
}

/* The ETag of an object whose bytes are these. Returns OK, END (it is not there, or another one),
 * IO, MEM. */
static kvarc_ret find_etag(struct s3 *s3, const char *path, const void *data, size_t n,
                           char etag[S3_ETAG_MAX], kvarc_error *error)
{
	/* Reads one byte more than n, to notice an object that is longer. */
	uint8_t *there = kvi_malloc(&s3->alloc, n + 1);
	if (!there)
		return kvi_fail_alloc(error, &s3->alloc);
	struct s3_request r = { .method = "GET",
		                .path = path,
		                .range_bytes = n + 1,
		                .out = there,
		                .out_capacity = n + 1 };
	kvarc_ret ret = s3_send(s3->client, &r, error);
	const bool is_there = r.status == HTTP_PARTIAL || r.status == HTTP_OK;
	if (!ret && !is_there && r.status != HTTP_NOT_FOUND && r.status != HTTP_RANGE)
		ret = s3_fail(&r, path, error);
	if (!ret && (!is_there || r.got != n || memcmp(there, data, n) != 0))
		ret = KVARC_END;
	memcpy(etag, r.etag, sizeof r.etag);
	kvi_free(&s3->alloc, there);
	return ret;
}

/* A service that does not support a conditional DELETE ignores the condition or refuses it: then
 * the object is removed without one, and nothing guards the time between the two requests. */
static kvarc_ret s3_remove_if(struct kvi_backend *backend, const char *key, const void *data,
                              size_t n, kvarc_error *error)
{
	struct s3 *s = s3_of(backend);
	char path[PATH_MAX_BYTES], etag[S3_ETAG_MAX];
	path_of(s, key, path);
	kvarc_ret ret = find_etag(s, path, data, n, etag, error);
	if (ret)
		return ret;
	struct s3_request r = { .method = "DELETE",
		                .path = path,
		                .if_match = etag[0] ? etag : NULL };
	ret = s3_send(s->client, &r, error);
	if (r.if_match && (r.status == HTTP_NOT_IMPLEMENTED || r.status == HTTP_BAD_REQUEST)) {
		r.if_match = NULL;
		ret = s3_send(s->client, &r, error);
	}
	if (ret)
		return ret;
	if (r.status == HTTP_NOT_FOUND || r.status == HTTP_PRECONDITION)
		return KVARC_END;
	if (r.status != HTTP_NO_CONTENT && r.status != HTTP_OK)
		return s3_fail(&r, key, error);
	return KVARC_OK;
}

/* The objects of one page, without the prefix of the store. */
static kvarc_ret list_page(struct s3 *s3, struct kvi_s3_page *page, kvi_object_fn fn, void *opaque,
                           kvarc_error *error)
{
	struct kvi_s3_object found;
	size_t skip = strlen(s3->prefix);
	int more;
	while ((more = kvi_s3_page_next(page, &found)) > 0) {
		if (strncmp(found.key, s3->prefix, skip) != 0 || !kvi_key_valid(found.key + skip))
			continue;
		const struct kvi_object object = { found.key + skip, found.bytes, found.time,
			                           stamp_of(found.etag) };
		if (fn(opaque, &object) != 0)
			return kvi_fail(error, KVARC_IO, "store: the list was ended");
	}
	return more == 0 ? KVARC_OK
	                 : kvi_fail(error, KVARC_IO, "store: the service's list cannot be read");
}

static kvarc_ret s3_list(struct kvi_backend *backend, const char *prefix, kvi_object_fn fn,
                         void *opaque, kvarc_error *error)
{
	struct s3 *s = s3_of(backend);
	struct kvi_s3_page page = { .next = "" };
	char query[QUERY_MAX];
	if (strlen(prefix) > KVI_KEY_MAX)
		return KVARC_OK;
	do {
		char *at = query;
		if (page.next[0]) {
			at += sprintf(at, "continuation-token=");
			at = s3_encode(at, page.next, 0);
			*at++ = '&';
		}
		at += sprintf(at, "list-type=2&prefix=");
		at = s3_encode(at, s->prefix, 0);
		s3_encode(at, prefix, 0);
		struct s3_request r = { .method = "GET", .path = "", .query = query };
		kvarc_ret ret = s3_send(s->client, &r, error);
		if (ret)
			return ret;
		if (r.status != HTTP_OK)
			return s3_fail(&r, "the list", error);
		if (!r.text || kvi_s3_page_begin(&page, r.text, r.text_bytes) != 0)
			return kvi_fail(error, KVARC_IO,
			                "store: the service's list cannot be read");
		ret = list_page(s, &page, fn, opaque, error);
		if (ret)
			return ret;
	} while (page.next[0]);
	return KVARC_OK;
}

/* Checks that a second put of a key is refused: a service that does not know If-None-Match accepts
 * it, and the first object is lost. */
static kvarc_ret s3_promise(struct kvi_backend *backend, int known, char why[KVI_WHY_MAX],
                            kvarc_error *error)
{
	static const char text[] = "kvarc looks whether a second put of this key is refused\n";
	const kvarc_source source = { .memory = text, .size = sizeof text - 1 };
	uint64_t random;
	char key[64];
	if (known)
		return KVARC_OK;
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return kvi_fail(error, KVARC_IO,
		                "store: no random bytes for the name of an object");
	snprintf(key, sizeof key, "probe/%016llx", (unsigned long long)random);
	kvarc_ret ret = s3_put(backend, key, &source, error);
	if (ret)
		return ret == KVARC_END
		               ? kvi_fail(error, KVARC_IO, "store: %s is there already", key)
		               : ret;
	ret = s3_put(backend, key, &source, error);
	(void)s3_remove(backend, key, NULL);
	if (ret)
		return ret == KVARC_END ? KVARC_OK : ret;
	snprintf(
		why, KVI_WHY_MAX, "%s",
		"it does not refuse a second put of a key (If-None-Match), so that of two saves at "
		"once one is lost");
	return KVARC_OPTIONS;
}

static void s3_close(struct kvi_backend *backend)
{
	struct s3 *s = s3_of(backend);
	client_close(&s->client);
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

/* Reads one "name=value" of the query. */
static int take_setting(struct s3_url *url, const char *from, const char *end)
{
	const char *value = memchr(from, '=', (size_t)(end - from));
	if (!value)
		return 0;
	size_t n = (size_t)(value - from);
	if (n == 8 && memcmp(from, "endpoint", n) == 0)
		return take(url->endpoint, sizeof url->endpoint, value + 1, end);
	if (n == 6 && memcmp(from, "region", n) == 0)
		return take(url->region, sizeof url->region, value + 1, end);
	return 0;
}

static int parse_url(struct s3_url *url, const char *rest)
{
	const char *end = strchr(rest, '?');
	const char *settings = end ? end + 1 : NULL;
	if (!end)
		end = rest + strlen(rest);
	const char *slash = memchr(rest, '/', (size_t)(end - rest));
	/* a user and a password before it would go to the service */
	if (!take(url->bucket, sizeof url->bucket, rest, slash ? slash : end) || !url->bucket[0] ||
	    strpbrk(url->bucket, "@:%"))
		return 0;
	while (slash && end > slash + 1 && end[-1] == '/')
		end--;
	if (slash && end > slash + 1) {
		if (!take(url->prefix, sizeof url->prefix - 1, slash + 1, end) ||
		    !kvi_key_valid(url->prefix))
			return 0;
		strcat(url->prefix, "/");
	}
	while (settings && *settings) {
		const char *stop = strchr(settings, '&');
		if (!stop)
			stop = settings + strlen(settings);
		if (!take_setting(url, settings, stop))
			return 0;
		settings = *stop ? stop + 1 : stop;
	}
	return 1;
}

/* Fills the members that the URL lacks from the options, or with the defaults of AWS. */
static void complete_url(struct s3_url *url, const struct kvi_backend_options *options)
{
	if (!url->region[0])
		snprintf(url->region, sizeof url->region, "%s",
		         options->region ? options->region : AWS_REGION);
	if (!url->endpoint[0] && options->endpoint)
		snprintf(url->endpoint, sizeof url->endpoint, "%s", options->endpoint);
	if (!url->endpoint[0])
		snprintf(url->endpoint, sizeof url->endpoint, "https://s3.%s.amazonaws.com",
		         url->region);
	size_t n = strlen(url->endpoint);
	if (url->endpoint[n - 1] == '/')
		url->endpoint[n - 1] = 0;
}

kvarc_ret kvi_backend_s3(struct kvi_backend **backend, const char *rest,
                         const struct kvi_backend_options *options, kvarc_error *error)
{
	struct s3 *s;
	struct s3_url u = { "", "", "", "" };
	kvarc_common common = { .allocator = options->allocator, .error = error };
	*backend = NULL;
	if (!parse_url(&u, rest))
		return kvi_fail(error, KVARC_OPTIONS,
		                "store s3://...: write s3://BUCKET[/PREFIX][?endpoint=URL&"
		                "region=NAME]");
	complete_url(&u, options);
	if (strncmp(u.endpoint, "http://", 7) != 0 && strncmp(u.endpoint, "https://", 8) != 0)
		return kvi_fail(error, KVARC_OPTIONS,
		                "store s3://...: write its endpoint as https://HOST[:PORT]");
	kvarc_ret ret = kvi_handle_new(&s, sizeof *s, offsetof(struct s3, alloc), &common, 0);
	if (ret)
		return ret;
	s->base.calls = &s3_calls;
	memcpy(s->prefix, u.prefix, sizeof u.prefix);
	*backend = &s->base;
	ret = s3_open(&s->client, options->allocator, u.endpoint, u.region, u.bucket,
	              options->access_key, options->secret_key, options->session_token, error);
	if (ret)
		kvi_backend_close(backend);
	else
		s3_set_timeout(s->client, options->timeout_ms);
	return ret;
}

#else

kvarc_ret kvi_backend_s3(struct kvi_backend **backend, const char *rest,
                         const struct kvi_backend_options *options, kvarc_error *error)
{
	(void)rest;
	(void)options;
	*backend = NULL;
	return kvi_fail(error, KVARC_OPTIONS,
	                "store s3://...: kvarc was built without libcurl: use a folder or "
	                "redis://, or install libcurl4-openssl-dev and build kvarc");
}

#endif
