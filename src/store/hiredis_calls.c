/* SPDX-License-Identifier: BSD-3-Clause */
/* hiredis_calls.c - hiredis: linked, opened on the host at the first use, or left out */
#include "config.h"

#ifdef HIREDIS_DLOPEN
#define KVI_LIBRARY_TABLE struct kvi_hiredis
#endif
#include "hiredis_calls.h"

#include "util/error.h"

#if !defined HAVE_HIREDIS

const struct kvi_hiredis *kvi_hiredis(kvarc_error *error)
{
	(void)kvi_fail(error, KVARC_OPTIONS, "stores in Redis need " HIREDIS_MISSING);
	return NULL;
}

#elif !defined HIREDIS_DLOPEN

const struct kvi_hiredis *kvi_hiredis(kvarc_error *error)
{
	static const struct kvi_hiredis linked = { 1 };
	(void)error;
	return &linked;
}

#else

static struct kvi_hiredis table;
static const struct kvi_library_call calls[] = { KVI_HIREDIS_CALLS(KVI_LIBRARY_ENTRY) };

const struct kvi_hiredis *kvi_hiredis(kvarc_error *error)
{
	static struct kvi_library library = {
		.file = HIREDIS_FILE,
		.missing = HIREDIS_MISSING,
		.oldest = "hiredis 0.14",
		.calls = calls,
		.n = sizeof calls / sizeof *calls,
		.table = &table,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	return kvi_library_ready(&library, NULL, error) ? &table : NULL;
}

#endif
