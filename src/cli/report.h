/* SPDX-License-Identifier: BSD-3-Clause */
/* report.h - a report whose fields are given once, and written as JSON or as text */
#ifndef KVARC_CLI_REPORT_H
#define KVARC_CLI_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Capacity of a report: fields of text, and objects inside each other. */
enum { REPORT_FIELDS = 64, REPORT_DEPTH = 6 };

/*
 * A report of a verb. With --json each field is written at once, as a member of the object that is
 * open. For text the fields are collected, and templates show them. Names that begin with '.' are
 * for text alone. Strings are borrowed until the object that they belong to ends.
 */
struct report {
	bool json;
	bool comma; /* JSON: the next element needs one */
	struct report_field {
		const char *name, *string;
		uint64_t n;
		double real;
		char type; /* 's', 'n' or 'r': which of the above has the value */
	} fields[REPORT_FIELDS];
	size_t n;
	size_t before[REPORT_DEPTH]; /* fields before each open object */
	unsigned depth;
};

/* Starts a report on standard output: one object. */
void report_start(struct report *r, bool json);
/* Ends the object, with a line end; templates may still show its fields. */
void report_end(struct report *r);

/* Adds a string; NULL: none. In JSON bytes that are not UTF-8 become U+FFFD. */
void report_string(struct report *r, const char *name, const char *value);
/* Adds an integer; KVARC_UNKNOWN: none. */
void report_u64(struct report *r, const char *name, uint64_t value);
/* Adds a number, in JSON with this many decimals; none if it is not finite. */
void report_real(struct report *r, const char *name, double value, int decimals);
/* Adds a truth value. */
void report_bool(struct report *r, const char *name, bool value);
/* Starts an array of objects. */
void report_array(struct report *r, const char *name);
/* Starts an object, name NULL in an array; templates see its fields before those around it. */
void report_object(struct report *r, const char *name);
/* Ends the object; text forgets its fields. */
void report_end_object(struct report *r);
/* Ends the array. */
void report_end_array(struct report *r);

/*
 * Prints a template on standard output; nothing in JSON. "{NAME}" stands for the field of that
 * name, "{NAME:WIDTHFORMAT}" for one in a column: WIDTH is as in printf, FORMAT is B (bytes as 1.2
 * MB), R (bytes per second as 312 MB/s), C (a count as 1,168), s (nothing for 1, else a plural s),
 * or .2f, .3g, .2fx (a factor) and the like. "-" stands for none. "[...]" is left out where one of
 * its fields is none, 0 or empty. Control characters of strings are escaped.
 */
void report_print(const struct report *r, const char *template);
/* Shows a template as a note on file (message.h); nothing in JSON. */
void report_note(const struct report *r, const char *file, const char *template);
/* Shows a template as a result on file (message.h); nothing in JSON. */
void report_result(const struct report *r, const char *file, const char *template);

#endif
