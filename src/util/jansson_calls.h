/* SPDX-License-Identifier: BSD-3-Clause */
/* jansson_calls.h - the calls of jansson, linked or of the host's library, by their own names */
#ifndef KVI_JANSSON_CALLS_H
#define KVI_JANSSON_CALLS_H

#include "kvarc.h"
#include "util/shared.h"

struct kvi_jansson;
/*
 * The library behind the names below, always the same one; any thread. With --with-jansson=dlopen
 * the first call that finds the library opens it. To be called before any other call. NULL: there
 * is no library, and *error, which may be NULL, says what to do (OPTIONS).
 */
KVI_SHARED const struct kvi_jansson *kvi_jansson(kvarc_error *error);

#ifdef HAVE_JANSSON

/* json_decref, an inline function of the header, calls this one by its name. */
#define json_delete kvi_json_delete
#include <jansson.h>
#undef json_delete
/* The library's, for its type alone. */
void json_delete(json_t *json);
/* Calls json_delete: releases an object without references. */
KVI_SHARED void kvi_json_delete(json_t *json);

#ifdef JANSSON_DLOPEN

#include "util/shared_library.h"

/* The calls that are used. */
#define KVI_JANSSON_CALLS(X)       \
	X(json_array_get)          \
	X(json_array_size)         \
	X(json_delete)             \
	X(json_integer_value)      \
	X(json_loadb)              \
	X(json_number_value)       \
	X(json_object_get)         \
	X(json_object_iter)        \
	X(json_object_iter_key)    \
	X(json_object_iter_next)   \
	X(json_object_iter_value)  \
	X(json_object_key_to_iter) \
	X(json_object_size)        \
	X(json_string_value)

/* Pointers to the calls. */
struct kvi_jansson {
	KVI_JANSSON_CALLS(KVI_LIBRARY_POINTER)
};

#ifndef KVI_LIBRARY_TABLE
#define json_array_get (kvi_jansson(NULL)->json_array_get)
#define json_array_size (kvi_jansson(NULL)->json_array_size)
#define json_integer_value (kvi_jansson(NULL)->json_integer_value)
#define json_loadb (kvi_jansson(NULL)->json_loadb)
#define json_number_value (kvi_jansson(NULL)->json_number_value)
#define json_object_get (kvi_jansson(NULL)->json_object_get)
#define json_object_iter (kvi_jansson(NULL)->json_object_iter)
#define json_object_iter_key (kvi_jansson(NULL)->json_object_iter_key)
#define json_object_iter_next (kvi_jansson(NULL)->json_object_iter_next)
#define json_object_iter_value (kvi_jansson(NULL)->json_object_iter_value)
#define json_object_key_to_iter (kvi_jansson(NULL)->json_object_key_to_iter)
#define json_object_size (kvi_jansson(NULL)->json_object_size)
#define json_string_value (kvi_jansson(NULL)->json_string_value)
#endif

#else

/* The names are those of the linker. */
struct kvi_jansson {
	char linked;
};

#endif
#endif

#endif
