/* SPDX-License-Identifier: BSD-3-Clause */
/* rule_options.c - --kv-rule and --kv-rules: rules for tensor names, one text of lines */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infile.h"
#include "message.h"
#include "option_table.h"

enum { RULES_BYTES = 64 << 10 }; /* limit of the library */

/* Adds n bytes and the end of a line. */
static int add_text(struct options *options, const char *text, size_t n)
{
	size_t had = options->kv_rule ? strlen(options->kv_rule) : 0;
	char *p = realloc(options->kv_rule, had + n + 2);

	if (!p) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	memcpy(p + had, text, n);
	p[had + n] = '\n';
	p[had + n + 1] = '\0';
	options->kv_rule = p;
	return 0;
}

int options_add_rule(struct options *options, const struct option_row *r, const char *value)
{
	(void)r;
	return add_text(options, value, strlen(value));
}

int options_add_rules(struct options *options, const struct option_row *r, const char *value)
{
	FILE *f = input_fopen(value);
	char *text = f ? malloc(RULES_BYTES) : NULL;
	size_t n = text ? fread(text, 1, RULES_BYTES, f) : 0;
	int ret = -1;

	(void)r;
	if (!f)
		return -1;
	if (!text)
		msg_error(NULL, "out of memory");
	else if (ferror(f))
		msg_error(value, "cannot read: %s", strerror(errno));
	else if (n == RULES_BYTES || memchr(text, 0, n))
		msg_error(value,
		          "is no file of rules: a text of less than %d bytes, one rule a line",
		          RULES_BYTES);
	else
		ret = add_text(options, text, n);
	fclose(f);
	free(text);
	return ret;
}
