/* SPDX-License-Identifier: BSD-3-Clause */
/* libarchive.c - libarchive: linked, opened on the host at the first use, or left out */
#include "config.h"

#include "libarchive.h"

#include "error.h"

#if !defined HAVE_LIBARCHIVE

const struct kvi_libarchive *kvi_libarchive(kvarc_error *e)
{
	(void)kvi_fail(e, KVARC_OPTIONS, "kvarc was built without libarchive, which tars need");
	return NULL;
}

#elif !defined LIBARCHIVE_DLOPEN

const struct kvi_libarchive *kvi_libarchive(kvarc_error *e)
{
	static const struct kvi_libarchive linked = { 1 };
	(void)e;
	return &linked;
}

#else

#include <dlfcn.h>

#include "shared_library.h"

/* Of all releases since 3.0. */
#define LIBARCHIVE_FILE "libarchive.so.13"

static const struct kvi_library_call calls[] = {
#define CALL(name) { "archive_" #name, offsetof(struct kvi_libarchive, la_##name) },
	KVI_LIBARCHIVE_CALLS(CALL)
};

static bool load(void *table, kvarc_error *e)
{
	const char *missing;
	if (!kvi_library_open(LIBARCHIVE_FILE, calls, sizeof calls / sizeof *calls, table,
	                      &missing))
		(void)kvi_fail(e, KVARC_OPTIONS,
		               "this needs libarchive: install the package libarchive13 (%.140s)",
		               dlerror());
	else if (missing)
		(void)kvi_fail(e, KVARC_OPTIONS,
		               "this needs libarchive 3.4 or newer: " LIBARCHIVE_FILE
		               " of this host has no %s",
		               missing);
	else
		return true;
	return false;
}

const struct kvi_libarchive *kvi_libarchive(kvarc_error *e)
{
	static struct kvi_library_once once = KVI_LIBRARY_ONCE_INIT;
	static struct kvi_libarchive table;
	return kvi_library_once(&once, load, &table, e) ? &table : NULL;
}

#endif
