/* SPDX-License-Identifier: BSD-3-Clause */
/* store_index.c - the index of a store: its file, its tables, its statements */
#include "config.h"

#include "index_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/error.h"
#include "util/arguments.h"

/* Column segments.wn: whole_n of a row; -1: a whole segment that is marked as damaged. */
/* Version of the tables below, with the letters KVA in front. */
#define INDEX_VERSION "1263943940"
enum { BUSY_MS = 60000, RETRY_MS = 10, NAME_BYTES = 4096 };

static const char tables[] =
	"CREATE TABLE packs(pack INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, bytes INTEGER,"
	" time INTEGER, sealed INTEGER, stamp INTEGER, rows INTEGER);"
	"CREATE TABLE segments(seg INTEGER PRIMARY KEY, pack INTEGER NOT NULL, ns INTEGER,"
	" key INTEGER, parent INTEGER, first INTEGER, track INTEGER, n INTEGER, t0 INTEGER,"
	" chain BLOB, digest BLOB, wn INTEGER, wchain BLOB, wdigest BLOB, id BLOB);"
	"CREATE TABLE refs(pack INTEGER NOT NULL, ns INTEGER, track INTEGER, t0 INTEGER,"
	" n INTEGER, left INTEGER, chained INTEGER, key BLOB, digest BLOB);"
	"CREATE TABLE uses(version TEXT PRIMARY KEY, time INTEGER) WITHOUT ROWID;";
static const char make_trees[] =
	"CREATE INDEX IF NOT EXISTS children ON segments(parent, n, first);"
	"CREATE INDEX IF NOT EXISTS holders ON segments(key);"
	"CREATE INDEX IF NOT EXISTS held ON segments(pack);"
	"CREATE INDEX IF NOT EXISTS named ON refs(pack);";
static const char drop_trees[] = "DROP INDEX IF EXISTS children; DROP INDEX IF EXISTS holders;"
				 "DROP INDEX IF EXISTS held; DROP INDEX IF EXISTS named;";

#define COLUMNS                                                                                \
	"s.seg, s.pack, s.ns, s.parent, s.first, s.track, s.n, s.t0, s.chain, s.digest, s.wn," \
	" s.wchain, s.wdigest, s.id FROM segments s "

/* Count of the rows that were added for a pack. */
#define ROWS_OF_PACK                                                     \
	"(SELECT count(*) FROM segments s WHERE s.pack = packs.pack) + " \
	"(SELECT count(*) FROM refs r WHERE r.pack = packs.pack)"

static const char *const texts[KVI_STATEMENTS] = {
	[KVI_ADD_PACK] = "INSERT INTO packs(id, bytes, time, sealed, stamp, rows)"
			 " VALUES(?1, ?2, ?3, ?4, ?5, 0)",
	[KVI_ADD_ROW] = "INSERT INTO segments(pack, ns, key, parent, first, track, n, t0, chain,"
			" digest, wn, wchain, wdigest, id)"
			" VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
	[KVI_ADD_REF] = "INSERT INTO refs VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
	[KVI_SET_DIGEST] = "UPDATE segments SET digest = ?2 WHERE seg = ?1",
	[KVI_DROP_ROWS] = "DELETE FROM segments WHERE pack = ?1",
	[KVI_DROP_REFS] = "DELETE FROM refs WHERE pack = ?1",
	[KVI_DROP_PACK] = "DELETE FROM packs WHERE pack = ?1",
	[KVI_FIND_PACK] = "SELECT pack FROM packs WHERE id = ?1 AND sealed <= ?2",
	[KVI_SET_FIRST] = "UPDATE segments SET first = ?2 WHERE seg = ?1",
	[KVI_SET_DOUBT] = "UPDATE segments SET wn = ?2 WHERE seg = ?1 AND wn <= 0",
	[KVI_TRUST_ROWS] = "UPDATE segments SET wn = 0 WHERE pack = ?1 AND wn < 0",
	[KVI_DOUBT_ROWS] = "UPDATE segments SET wn = -1 WHERE pack = ?1 AND wn = 0",
	[KVI_DOUBT_AT] = "UPDATE segments SET wn = -1 WHERE pack = ?1 AND track = ?2 AND t0 = ?3"
			 " AND wn = 0",
	[KVI_DOUBTS] = "SELECT " COLUMNS "WHERE s.wn = -1",
	[KVI_BREAK_PACK] = "UPDATE packs SET sealed = 3 WHERE pack = ?1",
	[KVI_END_PACK] = "UPDATE packs SET rows = " ROWS_OF_PACK " WHERE pack = ?1",
	[KVI_GET_PACK] = "SELECT pack, id, bytes, time, sealed, stamp, 0 FROM packs WHERE id = ?1",
	[KVI_LENGTHS] = "SELECT DISTINCT n FROM segments WHERE parent = ?1 ORDER BY n DESC",
	[KVI_MATCH] = "SELECT " COLUMNS "WHERE s.key = ?1 AND s.parent = ?2 AND s.ns = ?3"
		      " AND s.wn >= 0 LIMIT ?4",
	[KVI_CHILDREN] = "SELECT " COLUMNS "WHERE s.parent = ?1 AND s.n > 0"
			 " AND (s.first = ?2 OR s.first IS NULL) AND s.wn = 0 AND s.ns = ?3"
			 " ORDER BY s.n DESC LIMIT ?4",
	[KVI_HOLDERS] = "SELECT " COLUMNS "WHERE s.key = ?1 AND s.ns = ?2 AND s.wn = ?4"
			" LIMIT ?3",
	[KVI_PACKS_ALL] = "SELECT pack, id, bytes, time, sealed, stamp, 0 FROM packs ORDER BY pack",
	[KVI_PACKS_COUNTED] = "SELECT pack, id, bytes, time, sealed, stamp,"
			      " rows <> " ROWS_OF_PACK " FROM packs ORDER BY pack",
	[KVI_ROWS] = "SELECT " COLUMNS "WHERE s.pack = ?1 AND s.wn = 0 ORDER BY s.track, s.t0",
	[KVI_REFS] = "SELECT pack, ns, track, t0, n, left, chained, key, digest FROM refs"
		     " WHERE pack = ?1 ORDER BY track, rowid",
	[KVI_COUNT_PACKS] = "SELECT count(*) FROM packs",
	[KVI_COUNT_ROWS] = "SELECT count(*) FROM segments WHERE wn = 0",
	[KVI_USE] = "INSERT INTO uses VALUES(?1, ?2)"
		    " ON CONFLICT(version) DO UPDATE SET time = max(time, ?2)",
	[KVI_LAST_USE] = "SELECT time FROM uses WHERE version = ?1",
};

/* ----- errors and statements ------------------------------------------------ */

kvarc_ret kvi_index_fail(struct kvi_store_index *index, int code)
{
	const char *text = index->db ? sqlite3_errmsg(index->db) : sqlite3_errstr(code);
	kvarc_ret ret = KVARC_IO;
	code &= 0xff;
	if (code == SQLITE_NOMEM)
		ret = KVARC_MEM;
	else if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR ||
	         code == SQLITE_MISMATCH || code == SQLITE_CONSTRAINT)
		ret = KVARC_DATA;
	index->damaged |= ret == KVARC_DATA;
	index->unusable |= code == SQLITE_FULL || code == SQLITE_IOERR || code == SQLITE_READONLY ||
	                   code == SQLITE_CANTOPEN;
	return kvi_fail(index->error, ret, "store: its index: %s", text);
}

static kvarc_ret run_text(struct kvi_store_index *index, const char *text)
{
	int code = sqlite3_exec(index->db, text, NULL, NULL, NULL);
	return code == SQLITE_OK ? KVARC_OK : kvi_index_fail(index, code);
}

sqlite3_stmt *kvi_index_prepare(struct kvi_store_index *index, enum kvi_index_statement which,
                                kvarc_ret *ret)
{
	int code = SQLITE_OK;
	*ret = KVARC_OK;
	if (!index->statements[which])
		code = sqlite3_prepare_v3(index->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT,
		                          &index->statements[which], NULL);
	*ret = code == SQLITE_OK ? KVARC_OK : kvi_index_fail(index, code);
	return *ret ? NULL : index->statements[which];
}

kvarc_ret kvi_index_finish(struct kvi_store_index *index, sqlite3_stmt *statement, int code,
                           kvarc_ret ret)
{
	if (code != SQLITE_DONE && code != SQLITE_ROW && !ret)
		ret = kvi_index_fail(index, code);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return ret;
}

/* ----- the file ------------------------------------------------ */

/* Sets up a connection. When several processes open a new file at once, SQLite refuses all but one
 * without a wait: so it is tried again. */
static int set_up(sqlite3 *db)
{
	static const char text[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
				   "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-65536;"
				   "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;";
	int code = SQLITE_BUSY;
	for (int ms = 0; ms < BUSY_MS && (code & 0xff) == SQLITE_BUSY; ms += RETRY_MS) {
		if (ms)
			sqlite3_sleep(RETRY_MS);
		code = sqlite3_exec(db, text, NULL, NULL, NULL);
	}
	return code;
}

static kvarc_ret connect(struct kvi_store_index *index, const char *path)
{
	int code = sqlite3_open_v2(path ? path : ":memory:", &index->db,
	                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
	                           NULL);
	if (code == SQLITE_OK) {
		sqlite3_busy_timeout(index->db, BUSY_MS);
		code = set_up(index->db);
	}
	return code == SQLITE_OK ? KVARC_OK : kvi_index_fail(index, code);
}

static void disconnect(struct kvi_store_index *index)
{
	for (int i = 0; i < KVI_STATEMENTS; i++) {
		sqlite3_finalize(index->statements[i]);
		index->statements[i] = NULL;
	}
	sqlite3_close(index->db);
	index->db = NULL;
}

static kvarc_ret read_version(struct kvi_store_index *index, sqlite3_int64 *version)
{
	sqlite3_stmt *q = NULL;
	int code = sqlite3_prepare_v2(index->db, "PRAGMA user_version", -1, &q, NULL);
	*version = 0;
	if (code == SQLITE_OK && (code = sqlite3_step(q)) == SQLITE_ROW)
		*version = sqlite3_column_int64(q, 0);
	kvarc_ret ret = code == SQLITE_ROW ? KVARC_OK : kvi_index_fail(index, code);
	sqlite3_finalize(q);
	return ret;
}

/* Tables where there are none; two processes may be at it. */
static kvarc_ret make_tables(struct kvi_store_index *index, bool *made)
{
	sqlite3_int64 version;
	kvarc_ret ret = run_text(index, "BEGIN IMMEDIATE");
	if (ret)
		return ret;
	ret = read_version(index, &version);
	*made = !ret && version == 0;
	if (*made)
		ret = run_text(index, tables);
	if (*made && !ret)
		ret = run_text(index, make_trees);
	if (*made && !ret)
		ret = run_text(index, "PRAGMA user_version=" INDEX_VERSION);
	return kvi_index_end_change(index, ret);
}

/* Prepares all statements: a file that is not an index has other tables. */
static kvarc_ret try_statements(struct kvi_store_index *index)
{
	kvarc_ret ret = KVARC_OK;
	for (int i = 0; i < KVI_STATEMENTS && !ret; i++)
		kvi_index_prepare(index, (enum kvi_index_statement)i, &ret);
	return ret;
}

static kvarc_ret try_open(struct kvi_store_index *index, const char *path, bool *made,
                          const char **why)
{
	sqlite3_int64 version = 0;
	kvarc_ret ret = connect(index, path);
	if (!ret)
		ret = read_version(index, &version);
	if (!ret && version == 0)
		ret = make_tables(index, made);
	else if (!ret && version != strtoll(INDEX_VERSION, NULL, 10)) {
		*why = "is of another version";
		ret = KVARC_DATA;
	}
	if (!ret)
		ret = try_statements(index);
	if (ret == KVARC_DATA && !*why)
		*why = "is damaged";
	return ret;
}

/* A damaged file makes place for another one; those who have it open go on to see the damage. */
static void remove_file(const char *path)
{
	static const char *const endings[] = { "-wal", "-shm", "" };
	char name[NAME_BYTES];
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
		if (snprintf(name, sizeof name, "%s%s", path, endings[i]) < (int)sizeof name)
			unlink(name);
}

/* SQLite would make it with the mode of the umask. */
static void make_private(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

kvarc_ret kvi_index_open(struct kvi_store_index **out, const char *path,
                         const kvarc_allocator *allocator, bool *made, const char **why,
                         kvarc_error *error)
{
	kvarc_common common = { .allocator = allocator, .error = error };
	struct kvi_store_index *x;
	*made = false;
	*why = NULL;
	*out = NULL;
	kvarc_ret ret = kvi_sqlite(error) ? kvi_handle_new(out, sizeof *x,
	                                                   offsetof(struct kvi_store_index, alloc),
	                                                   &common, 0)
	                                  : KVARC_OPTIONS;
	if (ret)
		return ret;
	x = *out;
	x->error = error;
	if (path)
		make_private(path);
	ret = try_open(x, path, made, why);
	if (ret == KVARC_DATA && path) {
		disconnect(x);
		x->damaged = false;
		remove_file(path);
		make_private(path);
		const char *again = NULL;
		ret = try_open(x, path, made, &again);
	}
	if (ret)
		kvi_index_close(out);
	return ret;
}

kvarc_ret kvi_index_open_copy(struct kvi_store_index **out, const char *path,
                              const kvarc_allocator *allocator, bool *made, kvarc_error *error)
{
	const char *why;
	sqlite3_int64 version = 0;
	kvarc_ret ret = kvi_index_open(out, NULL, allocator, made, &why, error);
	if (ret)
		return ret;
	struct kvi_store_index *x = *out;
	*made = !kvi_index_copy(x->db, path) || read_version(x, &version) ||
	        version != strtoll(INDEX_VERSION, NULL, 10) || try_statements(x);
	if (!*made)
		return KVARC_OK;
	kvi_index_close(out);
	return kvi_index_open(out, NULL, allocator, made, &why, error);
}

bool kvi_index_damaged(const struct kvi_store_index *index)
{
	return index->damaged;
}

bool kvi_index_unusable(const struct kvi_store_index *index)
{
	return index->unusable;
}

void kvi_index_close(struct kvi_store_index **index)
{
	if (!index || !*index)
		return;
	disconnect(*index);
	kvi_free(&(*index)->alloc, *index);
	*index = NULL;
}

kvarc_ret kvi_index_begin_change(struct kvi_store_index *index)
{
	return run_text(index, "BEGIN IMMEDIATE");
}

kvarc_ret kvi_index_end_change(struct kvi_store_index *index, kvarc_ret ret)
{
	if (!ret)
		ret = run_text(index, "COMMIT");
	if (ret)
		sqlite3_exec(index->db, "ROLLBACK", NULL, NULL, NULL);
	return ret;
}

kvarc_ret kvi_index_clear(struct kvi_store_index *index)
{
	return run_text(index, "DELETE FROM segments; DELETE FROM refs; DELETE FROM packs");
}

kvarc_ret kvi_index_bulk(struct kvi_store_index *index, bool on)
{
	return run_text(index, on ? drop_trees : make_trees);
}
