/* SPDX-License-Identifier: BSD-3-Clause */
/* json_out.h - writes one JSON value to a stream, with escaping */
#ifndef KVARC_CLI_JSON_OUT_H
#define KVARC_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A writer of one JSON text. */
struct json {
	FILE *file;
	bool comma; /* the next element needs one */
};

/* Starts a text on a stream. */
void json_init(struct json *j, FILE *file);
/* key is NULL inside arrays and at the top. */
void json_object(struct json *j, const char *key);
/* Begins an array. */
void json_array(struct json *j, const char *key);
/* Ends the object begun last. */
void json_end_object(struct json *j);
/* Ends the array begun last. */
void json_end_array(struct json *j);
/* value may be NULL (null); bytes that are not UTF-8 become U+FFFD. */
void json_string(struct json *j, const char *key, const char *value);
/* An integer. */
void json_u64(struct json *j, const char *key, uint64_t value);
/* Rounded to digits places; what is not finite is null. */
void json_number(struct json *j, const char *key, double value, int digits);
/* true or false. */
void json_bool(struct json *j, const char *key, bool value);
/* null. */
void json_null(struct json *j, const char *key);
/* Ends the line after the top value. */
void json_line(struct json *j);

#endif
