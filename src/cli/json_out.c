/* SPDX-License-Identifier: BSD-3-Clause */
/* json_out.c - writes one JSON value to a stream, with escaping */
#include "json_out.h"

#include <inttypes.h>
#include <math.h>

/* Length of the UTF-8 sequence at p, 0 if it is none (RFC 3629). */
static unsigned utf8_length(const unsigned char *p)
{
	unsigned n = p[0] < 0x80   ? 1
	             : p[0] < 0xc2 ? 0
	             : p[0] < 0xe0 ? 2
	             : p[0] < 0xf0 ? 3
	             : p[0] < 0xf5 ? 4
	                           : 0;

	for (unsigned i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

static void quoted(FILE *f, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	putc('"', f);
	while (*p) {
		unsigned n = utf8_length(p);
		if (n == 0) {
			fputs("\\ufffd", f);
			n = 1;
		} else if (*p == '"' || *p == '\\') {
			fprintf(f, "\\%c", *p);
		} else if (*p < 0x20 || *p == 0x7f) {
			fprintf(f, "\\u%04x", *p);
		} else {
			fwrite(p, 1, n, f);
		}
		p += n;
	}
	putc('"', f);
}

static void start(struct json *j, const char *key)
{
	if (j->comma)
		putc(',', j->file);
	if (key) {
		quoted(j->file, key);
		putc(':', j->file);
	}
	j->comma = true;
}

static void open_with(struct json *j, const char *key, char c)
{
	start(j, key);
	putc(c, j->file);
	j->comma = false;
}

static void close_with(struct json *j, char c)
{
	putc(c, j->file);
	j->comma = true;
}

void json_init(struct json *j, FILE *file)
{
	j->file = file;
	j->comma = false;
}

void json_object(struct json *j, const char *key)
{
	open_with(j, key, '{');
}

void json_array(struct json *j, const char *key)
{
	open_with(j, key, '[');
}

void json_end_object(struct json *j)
{
	close_with(j, '}');
}

void json_end_array(struct json *j)
{
	close_with(j, ']');
}

void json_string(struct json *j, const char *key, const char *value)
{
	start(j, key);
	if (value)
		quoted(j->file, value);
	else
		fputs("null", j->file);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
	start(j, key);
	fprintf(j->file, "%" PRIu64, value);
}

void json_number(struct json *j, const char *key, double value, int digits)
{
	start(j, key);
	if (isfinite(value))
		fprintf(j->file, "%.*f", digits, value);
	else
		fputs("null", j->file);
}

void json_bool(struct json *j, const char *key, bool value)
{
	start(j, key);
	fputs(value ? "true" : "false", j->file);
}

void json_null(struct json *j, const char *key)
{
	json_string(j, key, NULL);
}

void json_line(struct json *j)
{
	putc('\n', j->file);
	j->comma = false;
}
