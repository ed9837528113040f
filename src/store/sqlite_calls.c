/* SPDX-License-Identifier: BSD-3-Clause */
/* sqlite_calls.c - SQLite: linked, opened on the host at the first use, or left out */
#include "config.h"

#ifdef SQLITE3_DLOPEN
#define KVI_LIBRARY_TABLE struct kvi_sqlite
#endif
#include "sqlite_calls.h"

#include "util/error.h"

#if !defined HAVE_SQLITE3

const struct kvi_sqlite *kvi_sqlite(kvarc_error *error)
{
	(void)kvi_fail(error, KVARC_OPTIONS, "stores need " SQLITE3_MISSING);
	return NULL;
}

#elif !defined SQLITE3_DLOPEN

const struct kvi_sqlite *kvi_sqlite(kvarc_error *error)
{
	static const struct kvi_sqlite linked = { 1 };
	(void)error;
	return &linked;
}

#else

static struct kvi_sqlite table;
static const struct kvi_library_call calls[] = { KVI_SQLITE_CALLS(KVI_LIBRARY_ENTRY) };

const struct kvi_sqlite *kvi_sqlite(kvarc_error *error)
{
	static struct kvi_library library = {
		.file = SQLITE3_FILE,
		.missing = SQLITE3_MISSING,
		.oldest = "SQLite 3.24",
		.calls = calls,
		.n = sizeof calls / sizeof *calls,
		.table = &table,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	return kvi_library_ready(&library, NULL, error) ? &table : NULL;
}

#endif
