/* SPDX-License-Identifier: BSD-3-Clause */
/* member_names.c - names of members that can be restored as files */
#include "member_names.h"

#include <stdlib.h>
#include <string.h>

enum { COMPONENT_MAX = 255 };

/* Bytes of the UTF-8 sequence at p (RFC 3629), 0 for none and for control characters. */
static size_t character(const unsigned char *p)
{
	if (*p < 0x80)
		return *p >= 0x20 && *p != 0x7f;
	size_t n = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
	if (*p < 0xc2 || *p > 0xf4)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
	    (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

static bool is_text(const char *name)
{
	const unsigned char *p = (const unsigned char *)name;
	while (*p) {
		size_t n = character(p);
		if (!n)
			return false;
		p += n;
	}
	return true;
}

bool kvi_member_name_tidy(char *name)
{
	char *from = name, *to = name;
	if (*name == '/' || !is_text(name))
		return false;
	while (*from) {
		size_t n = strcspn(from, "/");
		bool dots = n == 2 && from[0] == '.' && from[1] == '.';
		if (n > COMPONENT_MAX || dots)
			return false;
		if (n && !(n == 1 && *from == '.')) {
			if (to > name)
				*to++ = '/';
			memmove(to, from, n);
			to += n;
		}
		from += n;
		if (*from == '/' && *++from == '\0')
			return false; /* a folder */
	}
	*to = '\0';
	return to > name;
}

/* A name against the first n bytes of another one. */
struct prefix {
	const char *p;
	size_t n;
};

static int by_prefix(const void *a, const void *b)
{
	const struct prefix *x = a;
	const char *const *y = b;
	int order = strncmp(x->p, *y, x->n);
	return order ? order : (*y)[x->n] ? -1 : 0;
}

static bool has_folder_in(const char *name, const char *const *names, size_t n)
{
	for (const char *p = strchr(name, '/'); p; p = strchr(p + 1, '/')) {
		struct prefix x = { name, (size_t)(p - name) };
		if (bsearch(&x, (const void *)names, n, sizeof *names, by_prefix))
			return true;
	}
	return false;
}

bool kvi_member_names_fit(const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((i && !strcmp(names[i - 1], names[i])) || has_folder_in(names[i], names, n))
			return false;
	return true;
}
