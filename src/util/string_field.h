/* SPDX-License-Identifier: BSD-3-Clause */
/* string_field.h - strings as the format stores them: a varint length, then bytes (spec 1.3) */
#ifndef KVI_STRING_FIELD_H
#define KVI_STRING_FIELD_H

#include <stdbool.h>

#include "alloc.h"
#include "bytes.h"

/* Most bytes of a string, without the terminator. */
enum { KVI_STRING_MAX = 65535 };

/*
 * Reads a string; the caller frees it with alloc. NULL with in->bad: longer than KVI_STRING_MAX,
 * past the end, or with a byte 0. NULL without: no memory (kvi_alloc_error says which). Bytes need
 * not be UTF-8.
 */
char *kvi_get_string(struct kvi_in *in, const struct kvi_alloc *alloc);
/* Appends a string for which kvi_string_fits (not checked here); NULL: an empty one. */
void kvi_put_string(struct kvi_out *out, const char *s);
/* Whether a string is short enough to be stored; NULL is fine. */
bool kvi_string_fits(const char *s);
/* Copies a string of any length, NULL as an empty one; the caller frees it with alloc. NULL: no
 * memory. */
char *kvi_string_copy(const struct kvi_alloc *alloc, const char *s);

#endif
