/* SPDX-License-Identifier: BSD-3-Clause */
/* sqlite_calls.h - the calls of SQLite, linked or of the host's library, by their own names */
#ifndef KVI_SQLITE_CALLS_H
#define KVI_SQLITE_CALLS_H

#include "kvarc.h"

struct kvi_sqlite;
/*
 * Table of the calls that the names below use; it never changes, and any thread may use it. With
 * --with-sqlite3=dlopen the first successful call opens the library. The caller asks for it before
 * any other call. Returns NULL where there is no library: *error, which may be NULL, says what to
 * do (OPTIONS).
 */
const struct kvi_sqlite *kvi_sqlite(kvarc_error *error);

#ifdef HAVE_SQLITE3

#include <sqlite3.h>

#ifdef SQLITE3_DLOPEN

#include "util/shared_library.h"

/* All that is used. */
#define KVI_SQLITE_CALLS(X)          \
	X(sqlite3_backup_finish)     \
	X(sqlite3_backup_init)       \
	X(sqlite3_backup_step)       \
	X(sqlite3_bind_blob)         \
	X(sqlite3_bind_int)          \
	X(sqlite3_bind_int64)        \
	X(sqlite3_bind_text)         \
	X(sqlite3_busy_timeout)      \
	X(sqlite3_clear_bindings)    \
	X(sqlite3_close)             \
	X(sqlite3_column_blob)       \
	X(sqlite3_column_bytes)      \
	X(sqlite3_column_int)        \
	X(sqlite3_column_int64)      \
	X(sqlite3_column_type)       \
	X(sqlite3_errmsg)            \
	X(sqlite3_errstr)            \
	X(sqlite3_exec)              \
	X(sqlite3_finalize)          \
	X(sqlite3_last_insert_rowid) \
	X(sqlite3_open_v2)           \
	X(sqlite3_prepare_v2)        \
	X(sqlite3_prepare_v3)        \
	X(sqlite3_reset)             \
	X(sqlite3_sleep)             \
	X(sqlite3_step)

/* A pointer to each. */
struct kvi_sqlite {
	KVI_SQLITE_CALLS(KVI_LIBRARY_POINTER)
};

#ifndef KVI_LIBRARY_TABLE
#define sqlite3_backup_finish (kvi_sqlite(NULL)->sqlite3_backup_finish)
#define sqlite3_backup_init (kvi_sqlite(NULL)->sqlite3_backup_init)
#define sqlite3_backup_step (kvi_sqlite(NULL)->sqlite3_backup_step)
#define sqlite3_bind_blob (kvi_sqlite(NULL)->sqlite3_bind_blob)
#define sqlite3_bind_int (kvi_sqlite(NULL)->sqlite3_bind_int)
#define sqlite3_bind_int64 (kvi_sqlite(NULL)->sqlite3_bind_int64)
#define sqlite3_bind_text (kvi_sqlite(NULL)->sqlite3_bind_text)
#define sqlite3_busy_timeout (kvi_sqlite(NULL)->sqlite3_busy_timeout)
#define sqlite3_clear_bindings (kvi_sqlite(NULL)->sqlite3_clear_bindings)
#define sqlite3_close (kvi_sqlite(NULL)->sqlite3_close)
#define sqlite3_column_blob (kvi_sqlite(NULL)->sqlite3_column_blob)
#define sqlite3_column_bytes (kvi_sqlite(NULL)->sqlite3_column_bytes)
#define sqlite3_column_int (kvi_sqlite(NULL)->sqlite3_column_int)
#define sqlite3_column_int64 (kvi_sqlite(NULL)->sqlite3_column_int64)
#define sqlite3_column_type (kvi_sqlite(NULL)->sqlite3_column_type)
#define sqlite3_errmsg (kvi_sqlite(NULL)->sqlite3_errmsg)
#define sqlite3_errstr (kvi_sqlite(NULL)->sqlite3_errstr)
#define sqlite3_exec (kvi_sqlite(NULL)->sqlite3_exec)
#define sqlite3_finalize (kvi_sqlite(NULL)->sqlite3_finalize)
#define sqlite3_last_insert_rowid (kvi_sqlite(NULL)->sqlite3_last_insert_rowid)
#define sqlite3_open_v2 (kvi_sqlite(NULL)->sqlite3_open_v2)
#define sqlite3_prepare_v2 (kvi_sqlite(NULL)->sqlite3_prepare_v2)
#define sqlite3_prepare_v3 (kvi_sqlite(NULL)->sqlite3_prepare_v3)
#define sqlite3_reset (kvi_sqlite(NULL)->sqlite3_reset)
#define sqlite3_sleep (kvi_sqlite(NULL)->sqlite3_sleep)
#define sqlite3_step (kvi_sqlite(NULL)->sqlite3_step)
#endif

#else

/* The names are those of the linker. */
struct kvi_sqlite {
	char linked;
};

#endif
#endif

#endif
