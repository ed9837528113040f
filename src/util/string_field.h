/* SPDX-License-Identifier: BSD-3-Clause */
/* string_field.h - strings of metadata frames (spec 1.3) */
#ifndef KVI_STRING_FIELD_H
#define KVI_STRING_FIELD_H

#include <stdbool.h>

#include "alloc.h"
#include "bytes.h"

/* Most bytes of a string, without the terminator. */
enum { KVI_STRING_MAX = 65535 };

/*
 * Copies a string out of in, terminated, into memory of its own. A damaged
 * string sets in->bad; NULL with in->bad clear means that memory ran out.
 */
char *kvi_get_string(struct kvi_in *in, const struct kvi_alloc *alloc);
/* Appends a string, not longer than KVI_STRING_MAX; s NULL: an empty string. */
void kvi_put_string(struct kvi_out *out, const char *s);
/* Whether a string is short enough to be stored; NULL is fine. */
bool kvi_string_fits(const char *s);
/* A copy of a string, which the caller frees; NULL when memory ran out. s may be NULL: an empty
 * string. */
char *kvi_string_copy(const struct kvi_alloc *alloc, const char *s);

#endif
