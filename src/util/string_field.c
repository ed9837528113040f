/* SPDX-License-Identifier: BSD-3-Clause */
/* string_field.c - strings as the format stores them: a varint length, then bytes (spec 1.3) */
#include "string_field.h"

char *kvi_get_string(struct kvi_in *in, const struct kvi_alloc *alloc)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_STRING_MAX);
	const uint8_t *p = kvi_get_bytes(in, n);
	if (in->bad)
		return NULL;
	if (n && memchr(p, 0, n)) {
		in->bad = true;
		return NULL;
	}
	char *s = kvi_malloc(alloc, n + 1);
	if (!s)
		return NULL;
	if (n)
		memcpy(s, p, n);
	s[n] = '\0';
	return s;
}

void kvi_put_string(struct kvi_out *out, const char *s)
{
	size_t n = s ? strlen(s) : 0;
	kvi_put_varint(out, n);
	kvi_put_bytes(out, s, n);
}

bool kvi_string_fits(const char *s)
{
	return !s || strlen(s) <= KVI_STRING_MAX;
}

char *kvi_string_copy(const struct kvi_alloc *alloc, const char *s)
{
	size_t n = s ? strlen(s) : 0;
	char *to = kvi_malloc(alloc, n + 1);
	if (!to)
		return NULL;
	if (n)
		memcpy(to, s, n);
	to[n] = '\0';
	return to;
}
