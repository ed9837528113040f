/* SPDX-License-Identifier: BSD-3-Clause */
/* verb_aliases.c - the names and letters that users of zstd, xz and tar give to verbs */
#include "config.h"

#include "verb_aliases.h"

#include <stddef.h>
#include <string.h>

static const struct {
	const char *alias, *verb;
} aliases[] = {
	{ "-z", "pack" },   { "--compress", "pack" },     { "compress", "pack" },
	{ "-d", "unpack" }, { "--decompress", "unpack" }, { "decompress", "unpack" },
	{ "-x", "unpack" }, { "--extract", "unpack" },    { "extract", "unpack" },
	{ "x", "unpack" },  { "--uncompress", "unpack" }, { "restore", "unpack" },
	{ "-t", "test" },   { "--test", "test" },         { "verify", "test" },
	{ "-l", "list" },   { "--list", "list" },         { "ls", "list" },
	{ "show", "info" },
};

const char *verb_alias(const char *text)
{
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
		if (strcmp(aliases[i].alias, text) == 0)
			return aliases[i].verb;
	}
	return NULL;
}

const char *verb_alias_of_letters(const char *text)
{
	const char first[] = { '-', text[0] == '-' ? text[1] : '\0', '\0' };

	return first[1] && first[1] != '-' && text[2] && !verb_of_tar(text) ? verb_alias(first)
	                                                                    : NULL;
}

const char *verb_of_tar(const char *text)
{
	static const char letters[] = "xtc";
	static const char *const verbs[] = { "unpack", "list", "pack" };
	const char *p = text + (text[0] == '-');
	const char *mode = *p ? strchr(letters, *p) : NULL;
	size_t n = strlen(p);

	if (!mode || n < 2 || strspn(p, "xtcfvzJj") != n || !strchr(p, 'f'))
		return NULL;
	return verbs[mode - letters];
}
