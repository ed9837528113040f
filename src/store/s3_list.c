/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * s3_list.c - a page of an answer to ListObjectsV2
 *
 * Of its XML only the text of a few elements is wanted, none of which has attributes or children:
 * they are searched. Keys of a store have no characters that XML writes in another way.
 */
#include "config.h"

#include "s3_list.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

int kvi_s3_page_begin(struct kvi_s3_page *p, const char *xml, size_t bytes)
{
	char truncated[8] = "";
	*p = (struct kvi_s3_page){ xml, xml + bytes, "" };
	if (!find(xml, p->end, "<ListBucketResult"))
		return -1;
	if (!element(xml, p->end, "<IsTruncated>", "</IsTruncated>", truncated, sizeof truncated,
	             NULL))
		return -1;
	if (strcmp(truncated, "true") != 0)
		return 0;
	return element(xml, p->end, "<NextContinuationToken>", "</NextContinuationToken>", p->next,
	               sizeof p->next, NULL)
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

int kvi_s3_page_next(struct kvi_s3_page *p, struct kvi_s3_object *object)
{
	char text[64], *rest;
	const char *from = find(p->at, p->end, "<Contents>");
	if (!from)
		return 0;
	const char *to = find(from, p->end, "</Contents>");
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
	p->at = to;
	return 1;
}
