/* SPDX-License-Identifier: BSD-3-Clause */
/* libarchive.c - libarchive: linked, opened on the host at the first use, or left out */
#include "config.h"

#ifdef LIBARCHIVE_DLOPEN
#define KVI_LIBRARY_TABLE struct kvi_libarchive
#endif
#include "libarchive.h"

#include "error.h"

#if !defined HAVE_LIBARCHIVE

const struct kvi_libarchive *kvi_libarchive(kvarc_error *error)
{
	(void)kvi_fail(error, KVARC_OPTIONS, "tars need " LIBARCHIVE_MISSING);
	return NULL;
}

#elif !defined LIBARCHIVE_DLOPEN

const struct kvi_libarchive *kvi_libarchive(kvarc_error *error)
{
	static const struct kvi_libarchive linked = { 1 };
	(void)error;
	return &linked;
}

#else

static struct kvi_libarchive table;
static const struct kvi_library_call calls[] = { KVI_LIBARCHIVE_CALLS(KVI_LIBRARY_ENTRY) };

const struct kvi_libarchive *kvi_libarchive(kvarc_error *error)
{
	static struct kvi_library library = {
		.file = LIBARCHIVE_FILE,
		.missing = LIBARCHIVE_MISSING,
		.oldest = "libarchive 3.4",
		.calls = calls,
		.n = sizeof calls / sizeof *calls,
		.table = &table,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	return kvi_library_ready(&library, NULL, error) ? &table : NULL;
}

#endif
