/* SPDX-License-Identifier: BSD-3-Clause */
/* json_out.h - writes one JSON value to a stream, with escaping */
#ifndef KVARC_CLI_JSON_OUT_H
#define KVARC_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A stream that a JSON value is written to; borrowed. */
struct json {
	FILE *file;
	bool comma; /* the next element needs one */
};

/* Starts a value at file. */
void json_init(struct json *j, FILE *file);
/* Opens an object; key is NULL inside arrays and at the top, here and below. */
void json_object(struct json *j, const char *key);
/* Opens an array. */
void json_array(struct json *j, const char *key);
/* Closes the object. */
void json_end_object(struct json *j);
/* Closes the array. */
void json_end_array(struct json *j);
/* value may be NULL (null); bytes that are not UTF-8 become U+FFFD. */
void json_string(struct json *j, const char *key, const char *value);
/* Writes an unsigned integer. */
void json_u64(struct json *j, const char *key, uint64_t value);
/* Writes a number with this many decimals; null if it is not finite. */
void json_number(struct json *j, const char *key, double value, int digits);
/* Writes true or false. */
void json_bool(struct json *j, const char *key, bool value);
/* Writes null. */
void json_null(struct json *j, const char *key);
/* Ends the line after the top value. */
void json_line(struct json *j);

#endif
