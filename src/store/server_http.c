/* SPDX-License-Identifier: BSD-3-Clause */
/* server_http.c - requests to a server that answers with JSON, by libcurl */
#include "config.h"

#include "server_http.h"

#include "util/error.h"

#ifdef HAVE_LIBCURL

#include <stdio.h>
#include <string.h>

#include "libcurl.h"
#include "url.h"
#include "util/alloc.h"

enum { CONNECT_SECONDS = 10, URL_MAX = 1024, KEY_MAX = 512 };

struct kvi_http {
	struct kvi_alloc alloc;
	CURL *curl;
	struct curl_slist *headers;
	uint64_t timeout;
	char url[URL_MAX], shown[URL_MAX]; /* shown: for messages */
	char *text;
	size_t n, capacity, answer_max;
	int too_large;
	char why[CURL_ERROR_SIZE];
};

static size_t take_answer(char *p, size_t size, size_t n, void *opaque)
{
	struct kvi_http *h = opaque;
	size_t bytes = size * n, need = h->n + bytes + 1;
	if (need > h->answer_max) {
		h->too_large = 1;
		return 0;
	}
	if (need > h->capacity) {
		char *text = kvi_malloc(&h->alloc, 2 * need);
		if (!text)
			return 0;
		if (h->n)
			memcpy(text, h->text, h->n);
		kvi_free(&h->alloc, h->text);
		h->text = text;
		h->capacity = 2 * need;
	}
	memcpy(h->text + h->n, p, bytes);
	h->n += bytes;
	h->text[h->n] = 0;
	return bytes;
}

/* The headers of all requests. False: no memory. */
static int make_headers(struct kvi_http *h, const char *api_key)
{
	char line[KEY_MAX + 32];
	h->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (!h->headers || !api_key)
		return h->headers != NULL;
	snprintf(line, sizeof line, "Authorization: Bearer %s", api_key);
	struct curl_slist *longer = curl_slist_append(h->headers, line);
	memset(line, 0, sizeof line);
	return longer != NULL;
}

kvarc_ret kvi_http_open(struct kvi_http **out, const char *url, const char *api_key,
                        uint64_t timeout, size_t answer_max, const kvarc_allocator *allocator,
                        kvarc_error *e)
{
	struct kvi_http *h;
	kvarc_common common = { .allocator = allocator, .error = e };
	size_t n = strlen(url);
	*out = NULL;
	while (n && url[n - 1] == '/')
		n--;
	if (n >= URL_MAX || (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0))
		return kvi_fail(e, KVARC_OPTIONS, "server: write http://HOST:PORT");
	if (!kvi_url_secret_is_plain(url))
		return kvi_fail(e, KVARC_OPTIONS, "server: %s", KVI_URL_NOT_PLAIN);
	if (api_key && (strlen(api_key) > KEY_MAX || strpbrk(api_key, "\r\n")))
		return kvi_fail(e, KVARC_OPTIONS, "server: the API key is not valid");
	if (!kvi_libcurl(e))
		return KVARC_OPTIONS;
	kvarc_ret ret = kvi_handle_new(&h, sizeof *h, offsetof(struct kvi_http, alloc), &common, 0);
	if (ret)
		return ret;
	memcpy(h->url, url, n);
	kvi_url_shown(h->shown, sizeof h->shown, h->url);
	h->timeout = timeout;
	h->answer_max = answer_max;
	h->curl = curl_easy_init();
	if (!h->curl || !make_headers(h, api_key))
		ret = kvi_fail(e, KVARC_MEM, "server: libcurl cannot be started");
	*out = h;
	if (ret)
		kvi_http_close(out);
	return ret;
}

void kvi_http_close(struct kvi_http **h)
{
	struct kvi_http *x = *h;
	if (!x)
		return;
	if (x->curl)
		curl_easy_cleanup(x->curl);
	curl_slist_free_all(x->headers);
	kvi_free(&x->alloc, x->text);
	kvi_free(&x->alloc, x);
	*h = NULL;
}

kvarc_ret kvi_http_send(struct kvi_http *h, const char *path, const char *body, long *status,
                        const char **answer, size_t *bytes, kvarc_error *e)
{
	char url[URL_MAX + 128];
	*answer = "";
	*bytes = 0;
	*status = 0;
	h->n = 0;
	h->too_large = 0;
	h->why[0] = 0;
	snprintf(url, sizeof url, "%s%s", h->url, path);
	curl_easy_reset(h->curl);
	curl_easy_setopt(h->curl, CURLOPT_URL, url);
	curl_easy_setopt(h->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, h->why);
	curl_easy_setopt(h->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	/* of all of the answer: a server that sends a byte a second does not hold its client */
	curl_easy_setopt(h->curl, CURLOPT_TIMEOUT, (long)h->timeout);
	curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, h->headers);
	curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, take_answer);
	curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, h);
	if (body)
		curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, body);
	CURLcode code = curl_easy_perform(h->curl);
	if (h->too_large)
		return h->answer_max < KVI_HTTP_ANSWER_MAX
		               ? kvi_fail(e, KVARC_MEMLIMIT,
		                          "server %.80s%s: its answer is longer than %zu KB, "
		                          "which is what the memory limit allows",
		                          h->shown, path, h->answer_max >> 10)
		               : kvi_fail(e, KVARC_IO,
		                          "server %.80s%s: its answer is longer than %zu KB",
		                          h->shown, path, h->answer_max >> 10);
	if (code != CURLE_OK)
		return kvi_fail(e, KVARC_IO, "server %.80s%s: %s", h->shown, path,
		                h->why[0] ? h->why : curl_easy_strerror(code));
	curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, status);
	*answer = h->n ? h->text : "";
	*bytes = h->n;
	return KVARC_OK;
}

#else

kvarc_ret kvi_http_open(struct kvi_http **h, const char *url, const char *api_key, uint64_t timeout,
                        size_t answer_max, const kvarc_allocator *allocator, kvarc_error *e)
{
	(void)api_key;
	(void)timeout;
	(void)answer_max;
	(void)allocator;
	*h = NULL;
	(void)url;
	return kvi_fail(e, KVARC_OPTIONS, "server: kvarc was built without libcurl");
}

void kvi_http_close(struct kvi_http **h)
{
	*h = NULL;
}

kvarc_ret kvi_http_send(struct kvi_http *h, const char *path, const char *body, long *status,
                        const char **answer, size_t *bytes, kvarc_error *e)
{
	(void)h;
	(void)body;
	*status = 0;
	*answer = "";
	*bytes = 0;
	return kvi_fail(e, KVARC_OPTIONS, "server %s: kvarc was built without libcurl", path);
}

#endif
