/* SPDX-License-Identifier: BSD-3-Clause */
/* jansson_calls.c - jansson: linked, opened on the host at the first use, or left out */
#include "config.h"

#ifdef JANSSON_DLOPEN
#define KVI_LIBRARY_TABLE struct kvi_jansson
#endif
#include "jansson_calls.h"

#include "error.h"

#if !defined HAVE_JANSSON

const struct kvi_jansson *kvi_jansson(kvarc_error *error)
{
	(void)kvi_fail(error, KVARC_OPTIONS, "safetensors files need " JANSSON_MISSING);
	return NULL;
}

#elif !defined JANSSON_DLOPEN

void kvi_json_delete(json_t *json)
{
	json_delete(json);
}

const struct kvi_jansson *kvi_jansson(kvarc_error *error)
{
	static const struct kvi_jansson linked = { 1 };
	(void)error;
	return &linked;
}

#else

static struct kvi_jansson table;
static const struct kvi_library_call calls[] = { KVI_JANSSON_CALLS(KVI_LIBRARY_ENTRY) };

void kvi_json_delete(json_t *json)
{
	table.json_delete(json);
}

const struct kvi_jansson *kvi_jansson(kvarc_error *error)
{
	static struct kvi_library library = {
		.file = JANSSON_FILE,
		.missing = JANSSON_MISSING,
		.oldest = "jansson 2.12",
		.calls = calls,
		.n = sizeof calls / sizeof *calls,
		.table = &table,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	return kvi_library_ready(&library, NULL, error) ? &table : NULL;
}

#endif
