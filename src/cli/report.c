/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - writes the fields of a report as JSON, or as text by templates */
#include "config.h"

#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvarc.h"
#include "message.h"
#include "units.h"

enum { NUMBER_BYTES = 64 };

/* ---- JSON ---- */

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

/* Writes text as a JSON string to file; bytes that are not UTF-8 become U+FFFD. */
static void json_quote(FILE *file, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	putc('"', file);
	while (*p) {
		unsigned n = utf8_length(p);
		if (n == 0) {
			fputs("\\ufffd", file);
			n = 1;
		} else if (*p == '"' || *p == '\\') {
			fprintf(file, "\\%c", *p);
		} else if (*p < 0x20 || *p == 0x7f) {
			fprintf(file, "\\u%04x", *p);
		} else {
			fwrite(p, 1, n, file);
		}
		p += n;
	}
	putc('"', file);
}

/* Starts an element; name is NULL in arrays and at the top. */
static void start(struct report *r, const char *name)
{
	if (r->comma)
		putchar(',');
	if (name) {
		json_quote(stdout, name);
		putchar(':');
	}
	r->comma = true;
}

static void open_with(struct report *r, const char *name, char c)
{
	if (!r->json)
		return;
	start(r, name);
	putchar(c);
	r->comma = false;
}

static void close_with(struct report *r, char c)
{
	if (r->json)
		putchar(c);
	r->comma = true;
}

/* ---- fields ---- */

static bool is_none(const struct report_field *field)
{
	return field->type == 's'   ? !field->string
	       : field->type == 'r' ? !isfinite(field->real)
	                            : field->n == KVARC_UNKNOWN;
}

/* Keeps a field for text. In JSON it writes the name, and null if there is no value; true: a value
 * has to follow. */
static bool add(struct report *r, struct report_field field)
{
	if (!r->json && r->n < REPORT_FIELDS)
		r->fields[r->n++] = field;
	if (!r->json || field.name[0] == '.')
		return false;
	start(r, field.name);
	if (is_none(&field))
		fputs("null", stdout);
	return !is_none(&field);
}

void report_string(struct report *r, const char *name, const char *value)
{
	if (add(r, (struct report_field){ .name = name, .string = value, .type = 's' }))
		json_quote(stdout, value);
}

void report_u64(struct report *r, const char *name, uint64_t value)
{
	if (add(r, (struct report_field){ .name = name, .n = value, .type = 'n' }))
		printf("%" PRIu64, value);
}

void report_real(struct report *r, const char *name, double value, int decimals)
{
	if (add(r, (struct report_field){ .name = name, .real = value, .type = 'r' }))
		printf("%.*f", decimals, value);
}

void report_bool(struct report *r, const char *name, bool value)
{
	if (add(r, (struct report_field){ .name = name, .n = value, .type = 'n' }))
		fputs(value ? "true" : "false", stdout);
}

void report_array(struct report *r, const char *name)
{
	open_with(r, name, '[');
}

void report_object(struct report *r, const char *name)
{
	r->before[r->depth++] = r->n;
	open_with(r, name, '{');
}

void report_end_object(struct report *r)
{
	r->n = r->before[--r->depth];
	close_with(r, '}');
}

void report_end_array(struct report *r)
{
	close_with(r, ']');
}

void report_start(struct report *r, bool json)
{
	r->json = json;
	r->comma = false;
	r->n = r->depth = 0;
	open_with(r, NULL, '{');
}

void report_end(struct report *r)
{
	if (r->json)
		fputs("}\n", stdout);
}

/* ---- text ---- */

/* The last field that is named at the start of text, up to '}' or ':'. */
static const struct report_field *find(const struct report *r, const char *text)
{
	size_t length = strcspn(text, ":}"), i = r->n;

	while (i-- > 0) {
		const char *name = r->fields[i].name;
		if (strlen(name) == length && memcmp(name, text, length) == 0)
			return &r->fields[i];
	}
	return NULL;
}

static bool is_empty(const struct report_field *field)
{
	return is_none(field) || (field->type == 's'   ? !field->string[0]
	                          : field->type == 'r' ? !(field->real != 0)
	                                               : !field->n);
}

static void format_number(char out[NUMBER_BYTES], const struct report_field *field,
                          const char *format)
{
	if (format[0] == 'B')
		units_bytes(out, NUMBER_BYTES, field->n);
	else if (format[0] == 'R')
		units_rate(out, NUMBER_BYTES, field->real);
	else if (format[0] == 'C')
		units_count(out, field->n);
	else if (format[0] == 's')
		strcpy(out, field->n == 1 ? "" : "s");
	else if (format[0] == '.')
		snprintf(out, NUMBER_BYTES, format[2] == 'f' ? "%.*f%s" : "%.*g%s", format[1] - '0',
		         field->real, format[3] == 'x' ? "x" : "");
	else
		snprintf(out, NUMBER_BYTES, "%" PRIu64, field->n);
}

static void print_field(FILE *out, const struct report_field *field, const char *format)
{
	char number[NUMBER_BYTES] = "-", *end;
	int width = (int)strtol(format, &end, 10), n;
	const char *text = field->type == 's' && field->string ? field->string : number;

	if (field->type != 's' && !is_none(field))
		format_number(number, field, end);
	n = (int)strlen(text);
	fprintf(out, "%*s", width > n ? width - n : 0, "");
	msg_put_safe(out, text);
	fprintf(out, "%*s", -width > n ? -width - n : 0, "");
}

/* Whether all fields of the optional part at text have something to show. */
static bool is_shown(const struct report *r, const char *text)
{
	for (; *text != ']'; text++) {
		const struct report_field *f = *text == '{' ? find(r, text + 1) : NULL;
		if (f && is_empty(f))
			return false;
	}
	return true;
}

static void print(FILE *out, const struct report *r, const char *template)
{
	for (const char *p = template; *p; p++) {
		if (*p == '[' && !is_shown(r, p)) {
			p = strchr(p, ']');
		} else if (*p == '{') {
			const struct report_field *f = find(r, p + 1);
			p += strcspn(p, ":}");
			if (f)
				print_field(out, f, p + (*p == ':'));
			p += strcspn(p, "}");
		} else if (*p != '[' && *p != ']') {
			putc(*p, out);
		}
	}
}

void report_print(const struct report *r, const char *template)
{
	if (!r->json)
		print(stdout, r, template);
}

/* NULL: in JSON, or out of memory; to be freed. */
static char *fill(const struct report *r, const char *template)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = r->json ? NULL : open_memstream(&text, &n);

	if (!out)
		return NULL;
	print(out, r, template);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

void report_note(const struct report *r, const char *file, const char *template)
{
	char *text = fill(r, template);

	if (text)
		msg_note(file, "%s", text);
	free(text);
}

void report_result(const struct report *r, const char *file, const char *template)
{
	char *text = fill(r, template);

	if (text)
		msg_result(file, "%s", text);
	free(text);
}
