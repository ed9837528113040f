/* SPDX-License-Identifier: BSD-3-Clause */
/* url.c - URLs as they are shown: without user and password */
#include "url.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "kvarc/store.h"

/* Bytes of a character at p, as it is or percent-encoded; 0: something else is there. */
static size_t is_char(const char *p, char c)
{
	char encoded[4];
	snprintf(encoded, sizeof encoded, "%%%02X", (unsigned)(unsigned char)c);
	return *p == c ? 1 : strncasecmp(p, encoded, 3) == 0 ? 3 : 0;
}

/* Behind the last '@' of a text that ends at `end`; NULL: there is none. */
static const char *behind_last_at(const char *text, const char *end)
{
	const char *found = NULL;
	for (const char *p = text; p < end; p++)
		found = is_char(p, '@') ? p + is_char(p, '@') : found;
	return found;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Behind "SCHEME:" and slashes; p where, without slashes, it is a user; NULL: neither. */
static const char *behind_scheme(const char *p)
{
	const char *q = p;
	while (is_letter(*q) || (q > p && ((*q >= '0' && *q <= '9') || (*q && strchr("+.-", *q)))))
		q++;
	if (q == p || !is_char(q, ':'))
		return NULL;
	q += is_char(q, ':');
	if (!is_char(q, '/'))
		return p;
	while (is_char(q, '/'))
		q += is_char(q, '/');
	return q;
}

/* Finds the start of user and password in the settings of an s3 URL, between '?' and `last`. */
static const char *in_settings(const char *settings, const char *last)
{
	static const char endpoint[] = "endpoint=";
	const char *value = strstr(settings, endpoint);
	const char *from = value && value < last ? value + sizeof endpoint - 1 : settings;
	const char *behind = behind_scheme(from);
	return behind && behind < last ? behind : from;
}

size_t kvi_url_secret(const char *url, size_t *bytes)
{
	const char *last = behind_last_at(url, url + strlen(url));
	const char *from = last ? behind_scheme(url) : NULL;
	*bytes = 0;
	if (!from || strncmp(url, "file:", 5) == 0)
		return 0;
	const char *query = strncmp(url, "s3:", 3) == 0 ? strchr(from, '?') : NULL;
	if (query && query < last && !behind_last_at(from, query))
		from = in_settings(query + 1, last);
	if (from < last)
		*bytes = (size_t)(last - from);
	return (size_t)(from - url);
}

char *kvi_url_shown(char *to, size_t capacity, const char *url)
{
	size_t bytes, at = kvi_url_secret(url, &bytes);
	snprintf(to, capacity, "%.*s%s", (int)at, url, url + at + bytes);
	return to;
}

bool kvi_url_secret_is_plain(const char *url)
{
	size_t bytes, at = kvi_url_secret(url, &bytes);
	/* the last one is the '@' */
	return bytes < 2 || strcspn(url + at, "/?#@\\ \t") + 1 >= bytes;
}

char *kvarc_store_shown(const char *url, char *text, size_t capacity)
{
	return url && text && capacity ? kvi_url_shown(text, capacity, url) : NULL;
}
