/* SPDX-License-Identifier: BSD-3-Clause */
/* store_index.c - the index of a store: its file, its tables, what is added, what it answers */
#include "config.h"

#include "store_index.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sqlite_calls.h"
#include "util/arguments.h"
#include "util/bytes.h"
#include "util/error.h"
#include "util/hash.h"

/* Statements, which are prepared when the index is opened. */
enum index_statement {
	ADD_PACK,
	ADD_ROW,
	ADD_REF,
	SET_KNOWN,
	SET_DOUBT,
	TRUST_ROWS,
	DOUBT_ROWS,
	DOUBT_AT,
	DOUBTS,
	BREAK_PACK,
	END_PACK,
	GET_PACK,
	PACKS_COUNTED,
	DROP_ROWS,
	DROP_REFS,
	DROP_PACK,
	FIND_PACK,
	LENGTHS,
	MATCH,
	CHILDREN,
	HOLDERS,
	PACKS_ALL,
	ROWS,
	REFS,
	COUNT_PACKS,
	COUNT_ROWS,
	USE,
	LAST_USE,
	STATEMENTS
};

/* Values of packs.sealed: encrypted and known; encrypted and not known; not whole. */
enum { SEALED = 1, LOCKED = 2, BROKEN = 3 };

/* segments.wn of a whole segment that is marked as damaged. */
enum { DOUBTED = -1 };

/* An index that is open. */
struct kvi_store_index {
	struct kvi_alloc alloc;
	sqlite3 *db;
	kvarc_error *error;
	bool damaged;
	bool unusable; /* the file cannot be read or written */
	sqlite3_stmt *statements[STATEMENTS];
};

/* Version of the tables below, with the letters KVA in front. */
#define INDEX_VERSION "1263943941"
enum { BUSY_MS = 60000, RETRY_MS = 10, NAME_BYTES = 4096 };

static const char tables[] =
	"CREATE TABLE packs(pack INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, bytes INTEGER,"
	" time INTEGER, sealed INTEGER, stamp INTEGER, rows INTEGER);"
	"CREATE TABLE segments(seg INTEGER PRIMARY KEY, pack INTEGER NOT NULL, ns INTEGER,"
	" key INTEGER, parent INTEGER, first INTEGER, track INTEGER, n INTEGER, t0 INTEGER,"
	" chain BLOB, digest BLOB, wn INTEGER, wchain BLOB, wdigest BLOB, id BLOB, hash INTEGER);"
	"CREATE TABLE refs(pack INTEGER NOT NULL, ns INTEGER, track INTEGER, t0 INTEGER,"
	" n INTEGER, left INTEGER, chained INTEGER, key BLOB, digest BLOB, hash INTEGER);"
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
	" s.wchain, s.wdigest, s.id, s.hash FROM segments s "

/* Count of the rows that were added for a pack. */
#define ROWS_OF_PACK                                                     \
	"(SELECT count(*) FROM segments s WHERE s.pack = packs.pack) + " \
	"(SELECT count(*) FROM refs r WHERE r.pack = packs.pack)"

static const char *const texts[STATEMENTS] = {
	[ADD_PACK] = "INSERT INTO packs(id, bytes, time, sealed, stamp, rows)"
		     " VALUES(?1, ?2, ?3, ?4, ?5, 0)",
	[ADD_ROW] = "INSERT INTO segments(pack, ns, key, parent, first, track, n, t0, chain,"
		    " digest, wn, wchain, wdigest, id, hash)"
		    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
	[ADD_REF] = "INSERT INTO refs VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
	[SET_KNOWN] = "UPDATE segments SET first = ?2, digest = ?3, hash = ?4 WHERE seg = ?1",
	[DROP_ROWS] = "DELETE FROM segments WHERE pack = ?1",
	[DROP_REFS] = "DELETE FROM refs WHERE pack = ?1",
	[DROP_PACK] = "DELETE FROM packs WHERE pack = ?1",
	[FIND_PACK] = "SELECT pack FROM packs WHERE id = ?1 AND sealed <= ?2",
	[SET_DOUBT] = "UPDATE segments SET wn = ?2 WHERE seg = ?1 AND wn <= 0",
	[TRUST_ROWS] = "UPDATE segments SET wn = 0 WHERE pack = ?1 AND wn < 0",
	[DOUBT_ROWS] = "UPDATE segments SET wn = -1 WHERE pack = ?1 AND wn = 0",
	[DOUBT_AT] = "UPDATE segments SET wn = -1 WHERE pack = ?1 AND track = ?2 AND t0 = ?3"
		     " AND wn = 0",
	[DOUBTS] = "SELECT " COLUMNS "WHERE s.wn = -1",
	/* A file that was changed just now may change again and have the same stamp, where a file
	 * system counts in ticks: stamp 1 is of no object, so it is read once more. */
	[BREAK_PACK] = "UPDATE packs SET sealed = 3, stamp = CASE WHEN stamp AND time >"
		       " CAST(strftime('%s', 'now') AS INTEGER) - 3 THEN 1 ELSE stamp END"
		       " WHERE pack = ?1",
	[END_PACK] = "UPDATE packs SET rows = " ROWS_OF_PACK " WHERE pack = ?1",
	[GET_PACK] = "SELECT pack, id, bytes, time, sealed, stamp, 0 FROM packs WHERE id = ?1",
	[LENGTHS] = "SELECT DISTINCT n FROM segments WHERE parent = ?1 ORDER BY n DESC",
	[MATCH] = "SELECT " COLUMNS "WHERE s.key = ?1 AND s.parent = ?2 AND s.ns = ?3"
		  " AND s.wn >= 0 LIMIT ?4",
	[CHILDREN] = "SELECT " COLUMNS "WHERE s.parent = ?1 AND s.n > 0"
		     " AND (s.first = ?2 OR s.first IS NULL) AND s.wn = 0 AND s.ns = ?3"
		     " ORDER BY s.n DESC LIMIT ?4",
	[HOLDERS] = "SELECT " COLUMNS "WHERE s.key = ?1 AND s.ns = ?2 AND s.wn = ?4"
		    " LIMIT ?3",
	[PACKS_ALL] = "SELECT pack, id, bytes, time, sealed, stamp, 0 FROM packs ORDER BY pack",
	[PACKS_COUNTED] = "SELECT pack, id, bytes, time, sealed, stamp,"
			  " rows <> " ROWS_OF_PACK " FROM packs ORDER BY pack",
	[ROWS] = "SELECT " COLUMNS "WHERE s.pack = ?1 AND s.wn = 0 ORDER BY s.track, s.t0",
	[REFS] = "SELECT pack, ns, track, t0, n, left, chained, key, digest, hash FROM refs"
		 " WHERE pack = ?1 ORDER BY track, rowid",
	[COUNT_PACKS] = "SELECT count(*) FROM packs",
	[COUNT_ROWS] = "SELECT count(*) FROM segments WHERE wn = 0",
	[USE] = "INSERT INTO uses VALUES(?1, ?2)"
		" ON CONFLICT(version) DO UPDATE SET time = max(time, ?2)",
	[LAST_USE] = "SELECT time FROM uses WHERE version = ?1",
};

/* ----- errors and statements ------------------------------------------------ */

/* Fills the error for a code of SQLite. Returns DATA, IO or MEM. */
static kvarc_ret fail_index(struct kvi_store_index *index, int code)
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
	return code == SQLITE_OK ? KVARC_OK : fail_index(index, code);
}

/* A statement, ready to be bound; NULL: *ret says why. */
static sqlite3_stmt *prepare(struct kvi_store_index *index, enum index_statement which,
                             kvarc_ret *ret)
{
	int code = SQLITE_OK;
	*ret = KVARC_OK;
	if (!index->statements[which])
		code = sqlite3_prepare_v3(index->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT,
		                          &index->statements[which], NULL);
	*ret = code == SQLITE_OK ? KVARC_OK : fail_index(index, code);
	return *ret ? NULL : index->statements[which];
}

/* Ends a statement after its last step, whose code it gets: returns ret, or what the code means. */
static kvarc_ret finish(struct kvi_store_index *index, sqlite3_stmt *statement, int code,
                        kvarc_ret ret)
{
	if (code != SQLITE_DONE && code != SQLITE_ROW && !ret)
		ret = fail_index(index, code);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return ret;
}

/* ----- a copy in memory ------------------------------------------------ */

enum { URI_BYTES = 3 * 4096 };

/* A URI of a file that nobody changes. SQLite needs no file beside it then, which it could not make
 * in a folder that cannot be written. False: the path is too long. */
static bool make_uri(char uri[URI_BYTES], const char *path)
{
	size_t n = (size_t)sprintf(uri, "file:");
	for (; *path && n < URI_BYTES - 32; path++)
		n += (size_t)sprintf(uri + n, strchr("%?#", *path) ? "%%%02X" : "%c",
		                     (unsigned char)*path);
	sprintf(uri + n, "?immutable=1");
	return !*path;
}

/* Copies all pages of a file. What is not a database of ours is found by those who open it. */
static bool copy_pages(sqlite3 *to, const char *name, int flags)
{
	sqlite3 *from = NULL;
	bool done = false;
	if (sqlite3_open_v2(name, &from, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | flags,
	                    NULL) == SQLITE_OK) {
		sqlite3_backup *copy = sqlite3_backup_init(to, "main", from, "main");
		done = copy && sqlite3_backup_step(copy, -1) == SQLITE_DONE;
		done = copy && sqlite3_backup_finish(copy) == SQLITE_OK && done;
	}
	sqlite3_close(from);
	return done;
}

/* Fills an empty database in memory with that of a file, which is not changed. False: it cannot be
 * read. */
static bool copy_database(sqlite3 *to, const char *path)
{
	char uri[URI_BYTES];
	return copy_pages(to, path, 0) ||
	       (make_uri(uri, path) && copy_pages(to, uri, SQLITE_OPEN_URI));
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
	return code == SQLITE_OK ? KVARC_OK : fail_index(index, code);
}

static void disconnect(struct kvi_store_index *index)
{
	for (int i = 0; i < STATEMENTS; i++) {
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
	kvarc_ret ret = code == SQLITE_ROW ? KVARC_OK : fail_index(index, code);
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
	for (int i = 0; i < STATEMENTS && !ret; i++)
		prepare(index, (enum index_statement)i, &ret);
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
	*made = !copy_database(x->db, path) || read_version(x, &version) ||
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

/* ----- changes ------------------------------------------------ */

static kvarc_ret step_once(struct kvi_store_index *index, sqlite3_stmt *statement)
{
	return finish(index, statement, sqlite3_step(statement), KVARC_OK);
}

static void bind_number(sqlite3_stmt *statement, int at, uint64_t n)
{
	sqlite3_bind_int64(statement, at, (sqlite3_int64)n);
}

static void bind_hash(sqlite3_stmt *statement, int at, const uint8_t hash[16])
{
	sqlite3_bind_blob(statement, at, hash, 16, SQLITE_STATIC);
}

/*
 * SQLite does not notice bits that have changed in a value, and a save would count on tokens that
 * are not where the row says: so each row of segments and refs has the H64 of what it means.
 */
struct row_bytes {
	uint8_t p[160];
	size_t n;
};

static void hash_number(struct row_bytes *bytes, uint64_t n)
{
	kvi_store64(bytes->p + bytes->n, n);
	bytes->n += 8;
}

static void hash_hash(struct row_bytes *bytes, const uint8_t hash[16])
{
	memcpy(bytes->p + bytes->n, hash, 16);
	bytes->n += 16;
}

static int64_t row_hash(const struct kvi_index_row *r)
{
	static const uint8_t none[16];
	struct row_bytes b = { .n = 0 };
	hash_number(&b, (uint64_t)r->pack);
	hash_number(&b, r->name_space);
	hash_number(&b, r->parent);
	hash_number(&b, r->has_first ? (uint32_t)r->first : UINT64_MAX);
	hash_number(&b, (uint64_t)r->track << 32 | r->n);
	hash_number(&b, r->t0);
	hash_number(&b, (uint64_t)r->whole_n << 2 | (uint64_t)r->has_chain << 1 | r->has_digest);
	hash_hash(&b, r->has_chain ? r->chain : none);
	hash_hash(&b, r->has_digest ? r->digest : none);
	hash_hash(&b, r->whole_n ? r->whole_chain : none);
	hash_hash(&b, r->whole_n ? r->whole_digest : none);
	hash_hash(&b, r->id);
	return (int64_t)kvi_h64(b.p, b.n);
}

static int64_t ref_hash(const struct kvi_index_ref *r)
{
	struct row_bytes b = { .n = 0 };
	hash_number(&b, (uint64_t)r->pack);
	hash_number(&b, r->name_space);
	hash_number(&b, (uint64_t)r->track << 32 | r->n);
	hash_number(&b, (uint64_t)r->left << 1 | r->has_chain);
	hash_number(&b, r->t0);
	hash_hash(&b, r->key);
	hash_hash(&b, r->digest);
	return (int64_t)kvi_h64(b.p, b.n);
}

kvarc_ret kvi_index_add_pack(struct kvi_store_index *index, struct kvi_index_pack *pack)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, ADD_PACK, &ret);
	if (!q)
		return ret;
	bind_hash(q, 1, pack->id);
	bind_number(q, 2, pack->bytes);
	sqlite3_bind_int64(q, 3, pack->time);
	sqlite3_bind_int(q, 4, pack->locked ? LOCKED : pack->encrypted ? SEALED : 0);
	bind_number(q, 5, pack->stamp);
	ret = step_once(index, q);
	pack->pack = sqlite3_last_insert_rowid(index->db);
	return ret;
}

static uint64_t short_key(const uint8_t hash[16])
{
	return kvi_load64(hash);
}

kvarc_ret kvi_index_add_row(struct kvi_store_index *index, const struct kvi_index_row *r)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, ADD_ROW, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, r->pack);
	bind_number(q, 2, r->name_space);
	bind_number(q, 3, short_key(r->has_chain ? r->chain : r->digest));
	bind_number(q, 4, r->parent);
	if (r->has_first)
		sqlite3_bind_int(q, 5, r->first);
	bind_number(q, 6, r->track);
	bind_number(q, 7, r->n);
	bind_number(q, 8, r->t0);
	if (r->has_chain)
		bind_hash(q, 9, r->chain);
	if (r->has_digest)
		bind_hash(q, 10, r->digest);
	bind_number(q, 11, r->whole_n);
	bind_hash(q, 14, r->id);
	if (r->whole_n) {
		bind_hash(q, 12, r->whole_chain);
		bind_hash(q, 13, r->whole_digest);
	}
	sqlite3_bind_int64(q, 15, row_hash(r));
	return step_once(index, q);
}

kvarc_ret kvi_index_add_ref(struct kvi_store_index *index, const struct kvi_index_ref *r)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, ADD_REF, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, r->pack);
	bind_number(q, 2, r->name_space);
	bind_number(q, 3, r->track);
	bind_number(q, 4, r->t0);
	bind_number(q, 5, r->n);
	bind_number(q, 6, r->left);
	bind_number(q, 7, r->has_chain);
	bind_hash(q, 8, r->key);
	bind_hash(q, 9, r->digest);
	sqlite3_bind_int64(q, 10, ref_hash(r));
	return step_once(index, q);
}

kvarc_ret kvi_index_set_known(struct kvi_store_index *index, const struct kvi_index_row *r)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, SET_KNOWN, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, r->row);
	if (r->has_first)
		sqlite3_bind_int(q, 2, r->first);
	if (r->has_digest)
		bind_hash(q, 3, r->digest);
	sqlite3_bind_int64(q, 4, row_hash(r));
	return step_once(index, q);
}

kvarc_ret kvi_index_set_doubt(struct kvi_store_index *index, int64_t row, bool damaged)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, SET_DOUBT, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, row);
	sqlite3_bind_int(q, 2, damaged ? DOUBTED : 0);
	return step_once(index, q);
}

/* Statements whose only value is the number of a pack; one that is not there is fine. */
static kvarc_ret run_on_pack(struct kvi_store_index *index, const uint8_t id[16], size_t n,
                             const enum index_statement *statements)
{
	int64_t pack;
	kvarc_ret ret = kvi_index_find_any(index, id, &pack);
	if (ret)
		return ret == KVARC_END ? KVARC_OK : ret;
	for (size_t i = 0; i < n && !ret; i++) {
		sqlite3_stmt *q = prepare(index, statements[i], &ret);
		if (!q)
			break;
		sqlite3_bind_int64(q, 1, pack);
		ret = step_once(index, q);
	}
	return ret;
}

kvarc_ret kvi_index_break(struct kvi_store_index *index, const uint8_t id[16])
{
	static const enum index_statement steps[] = { DOUBT_ROWS, BREAK_PACK };
	return run_on_pack(index, id, 2, steps);
}

kvarc_ret kvi_index_trust(struct kvi_store_index *index, const uint8_t id[16])
{
	static const enum index_statement steps[] = { TRUST_ROWS };
	int64_t pack;
	kvarc_ret ret = kvi_index_find_pack(index, id, &pack);
	if (ret == KVARC_END)
		return kvi_index_remove_pack(index, id);
	return ret ? ret : run_on_pack(index, id, 1, steps);
}

kvarc_ret kvi_index_remove_pack(struct kvi_store_index *index, const uint8_t id[16])
{
	static const enum index_statement steps[] = { DROP_ROWS, DROP_REFS, DROP_PACK };
	return run_on_pack(index, id, 3, steps);
}

kvarc_ret kvi_index_doubt_at(struct kvi_store_index *index, const struct kvi_index_row *row)
{
	int64_t pack;
	kvarc_ret ret = kvi_index_find_any(index, row->id, &pack);
	sqlite3_stmt *q = ret ? NULL : prepare(index, DOUBT_AT, &ret);
	if (!q)
		return ret == KVARC_END ? KVARC_OK : ret;
	sqlite3_bind_int64(q, 1, pack);
	bind_number(q, 2, row->track);
	bind_number(q, 3, row->t0);
	return step_once(index, q);
}

kvarc_ret kvi_index_end_pack(struct kvi_store_index *index, int64_t pack)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, END_PACK, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, pack);
	return step_once(index, q);
}

kvarc_ret kvi_index_use(struct kvi_store_index *index, const char *key, int64_t time)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, USE, &ret);
	if (!q)
		return ret;
	sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_int64(q, 2, time);
	return step_once(index, q);
}

/* ----- questions ------------------------------------------------ */

/* False: there is none. */
static bool get_hash(uint8_t out[16], sqlite3_stmt *statement, int column)
{
	if (sqlite3_column_bytes(statement, column) != 16) {
		memset(out, 0, 16);
		return false;
	}
	memcpy(out, sqlite3_column_blob(statement, column), 16);
	return true;
}

bool kvi_index_same_object(const struct kvi_index_pack *pack, const struct kvi_object *object)
{
	return pack->bytes == object->bytes &&
	       (!pack->stamp || !object->stamp || pack->stamp == object->stamp);
}

/* The number in the first column of the first row. */
static kvarc_ret ask_number(struct kvi_store_index *index, sqlite3_stmt *statement, int64_t *n)
{
	int code = sqlite3_step(statement);
	*n = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
	return finish(index, statement, code, code == SQLITE_DONE ? KVARC_END : KVARC_OK);
}

/* highest: of packs.sealed. */
static kvarc_ret find_pack(struct kvi_store_index *index, const uint8_t id[16], int highest,
                           int64_t *pack)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, FIND_PACK, &ret);
	if (!q)
		return ret;
	bind_hash(q, 1, id);
	sqlite3_bind_int(q, 2, highest);
	return ask_number(index, q, pack);
}

kvarc_ret kvi_index_find_pack(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack)
{
	return find_pack(index, id, SEALED, pack);
}

kvarc_ret kvi_index_find_locked(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack)
{
	return find_pack(index, id, LOCKED, pack);
}

kvarc_ret kvi_index_find_any(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack)
{
	return find_pack(index, id, BROKEN, pack);
}

kvarc_ret kvi_index_last_use(struct kvi_store_index *index, const char *key, int64_t *time)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, LAST_USE, &ret);
	*time = 0;
	if (!q)
		return ret;
	sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
	ret = ask_number(index, q, time);
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvi_index_counts(struct kvi_store_index *index, uint64_t *packs, uint64_t *segments)
{
	int64_t n[2] = { 0, 0 };
	kvarc_ret ret = KVARC_OK;
	for (int i = 0; i < 2 && !ret; i++) {
		sqlite3_stmt *q = prepare(index, i ? COUNT_ROWS : COUNT_PACKS, &ret);
		if (q)
			ret = ask_number(index, q, &n[i]);
	}
	*packs = (uint64_t)n[0];
	*segments = (uint64_t)n[1];
	return ret;
}

/* Compares the hash in a column with that of what was read. Returns OK, DATA: the index is
 * damaged. */
static kvarc_ret check_hash(struct kvi_store_index *index, sqlite3_stmt *statement, int column,
                            int64_t hash)
{
	if (sqlite3_column_int64(statement, column) == hash)
		return KVARC_OK;
	index->damaged = true;
	return kvi_fail(index->error, KVARC_DATA, "store: its index: a row is damaged");
}

/* Reads a row. Returns OK, DATA. */
static kvarc_ret get_row(struct kvi_store_index *index, struct kvi_index_row *r,
                         sqlite3_stmt *statement)
{
	memset(r, 0, sizeof *r);
	r->row = sqlite3_column_int64(statement, 0);
	r->pack = sqlite3_column_int64(statement, 1);
	r->name_space = (uint64_t)sqlite3_column_int64(statement, 2);
	r->parent = (uint64_t)sqlite3_column_int64(statement, 3);
	r->has_first = sqlite3_column_type(statement, 4) != SQLITE_NULL;
	r->first = sqlite3_column_int(statement, 4);
	r->track = (uint32_t)sqlite3_column_int64(statement, 5);
	r->n = (uint32_t)sqlite3_column_int64(statement, 6);
	r->t0 = (uint64_t)sqlite3_column_int64(statement, 7);
	r->has_chain = get_hash(r->chain, statement, 8);
	r->has_digest = get_hash(r->digest, statement, 9);
	r->whole_n = sqlite3_column_int64(statement, 10) < 0
	                     ? 0
	                     : (uint32_t)sqlite3_column_int64(statement, 10);
	get_hash(r->whole_chain, statement, 11);
	get_hash(r->whole_digest, statement, 12);
	get_hash(r->id, statement, 13);
	return check_hash(index, statement, 14, row_hash(r));
}

static kvarc_ret get_rows(struct kvi_store_index *index, sqlite3_stmt *statement,
                          struct kvi_index_row *rows, size_t most, size_t *n)
{
	int code = SQLITE_DONE;
	kvarc_ret ret = KVARC_OK;
	*n = 0;
	while (!ret && *n < most && (code = sqlite3_step(statement)) == SQLITE_ROW) {
		ret = get_row(index, &rows[*n], statement);
		*n += !ret;
	}
	return finish(index, statement, code, ret);
}

kvarc_ret kvi_index_children(struct kvi_store_index *index, uint64_t name_space, uint64_t parent,
                             int32_t first, struct kvi_index_row *rows, size_t most, size_t *n)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, CHILDREN, &ret);
	*n = 0;
	if (!q)
		return ret;
	bind_number(q, 1, parent);
	sqlite3_bind_int(q, 2, first);
	bind_number(q, 3, name_space);
	bind_number(q, 4, most);
	return get_rows(index, q, rows, most, n);
}

kvarc_ret kvi_index_lengths(struct kvi_store_index *index, uint64_t parent, uint32_t n[256],
                            size_t *count)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, LENGTHS, &ret);
	int code = SQLITE_DONE;
	*count = 0;
	if (!q)
		return ret;
	bind_number(q, 1, parent);
	while (*count < 256 && (code = sqlite3_step(q)) == SQLITE_ROW) {
		sqlite3_int64 length = sqlite3_column_int64(q, 0);
		if (length > 0 && length <= 256)
			n[(*count)++] = (uint32_t)length;
	}
	return finish(index, q, code, KVARC_OK);
}

/* The column `key` has 8 bytes of the key. */
static void keep_equal(struct kvi_index_row *rows, size_t *n, const uint8_t key[16])
{
	size_t k = 0;
	for (size_t i = 0; i < *n; i++)
		if (memcmp(rows[i].has_chain ? rows[i].chain : rows[i].digest, key, 16) == 0)
			rows[k++] = rows[i];
	*n = k;
}

kvarc_ret kvi_index_match(struct kvi_store_index *index, uint64_t name_space, uint64_t parent,
                          const uint8_t chain[16], struct kvi_index_row *rows, size_t most,
                          size_t *n)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, MATCH, &ret);
	*n = 0;
	if (!q)
		return ret;
	bind_number(q, 1, kvi_load64(chain));
	bind_number(q, 2, parent);
	bind_number(q, 3, name_space);
	bind_number(q, 4, most);
	ret = get_rows(index, q, rows, most, n);
	keep_equal(rows, n, chain);
	return ret;
}

kvarc_ret kvi_index_holders(struct kvi_store_index *index, uint64_t name_space,
                            const uint8_t key[16], bool damaged, struct kvi_index_row *rows,
                            size_t most, size_t *n)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, HOLDERS, &ret);
	*n = 0;
	if (!q)
		return ret;
	bind_number(q, 1, kvi_load64(key));
	bind_number(q, 2, name_space);
	bind_number(q, 3, most);
	sqlite3_bind_int(q, 4, damaged ? DOUBTED : 0);
	ret = get_rows(index, q, rows, most, n);
	keep_equal(rows, n, key);
	return ret;
}

static void get_pack(struct kvi_index_pack *pack, sqlite3_stmt *statement)
{
	const int sealed = sqlite3_column_int(statement, 4);
	*pack = (struct kvi_index_pack){ .pack = sqlite3_column_int64(statement, 0),
		                         .bytes = (uint64_t)sqlite3_column_int64(statement, 2),
		                         .time = sqlite3_column_int64(statement, 3),
		                         .stamp = (uint64_t)sqlite3_column_int64(statement, 5),
		                         .encrypted = sealed == SEALED || sealed == LOCKED,
		                         .locked = sealed == LOCKED,
		                         .broken = sealed == BROKEN,
		                         .lacks = sqlite3_column_int(statement, 6) != 0 };
	get_hash(pack->id, statement, 1);
}

kvarc_ret kvi_index_get_pack(struct kvi_store_index *index, const uint8_t id[16],
                             struct kvi_index_pack *pack)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, GET_PACK, &ret);
	if (!q)
		return ret;
	bind_hash(q, 1, id);
	int code = sqlite3_step(q);
	if (code == SQLITE_ROW)
		get_pack(pack, q);
	return finish(index, q, code, code == SQLITE_DONE ? KVARC_END : KVARC_OK);
}

kvarc_ret kvi_index_packs(struct kvi_store_index *index, bool count, kvi_index_pack_fn fn,
                          void *opaque)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, count ? PACKS_COUNTED : PACKS_ALL, &ret);
	int code = SQLITE_DONE;
	while (q && !ret && (code = sqlite3_step(q)) == SQLITE_ROW) {
		struct kvi_index_pack p;
		get_pack(&p, q);
		ret = fn(opaque, &p);
	}
	return q ? finish(index, q, code, ret) : ret;
}

/* Gives the rows of a statement that is bound; statement NULL: ret. */
static kvarc_ret give_rows(struct kvi_store_index *index, sqlite3_stmt *statement, kvarc_ret ret,
                           kvi_index_row_fn fn, void *opaque)
{
	int code = SQLITE_DONE;
	while (statement && !ret && (code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct kvi_index_row r;
		ret = get_row(index, &r, statement);
		if (!ret)
			ret = fn(opaque, &r);
	}
	return statement ? finish(index, statement, code, ret) : ret;
}

kvarc_ret kvi_index_rows(struct kvi_store_index *index, int64_t pack, kvi_index_row_fn fn,
                         void *opaque)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, ROWS, &ret);
	if (q)
		sqlite3_bind_int64(q, 1, pack);
	return give_rows(index, q, ret, fn, opaque);
}

kvarc_ret kvi_index_doubts(struct kvi_store_index *index, kvi_index_row_fn fn, void *opaque)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, DOUBTS, &ret);
	return give_rows(index, q, ret, fn, opaque);
}

kvarc_ret kvi_index_refs(struct kvi_store_index *index, int64_t pack, kvi_index_ref_fn fn,
                         void *opaque)
{
	kvarc_ret ret;
	sqlite3_stmt *q = prepare(index, REFS, &ret);
	int code = SQLITE_DONE;
	if (q)
		sqlite3_bind_int64(q, 1, pack);
	while (q && !ret && (code = sqlite3_step(q)) == SQLITE_ROW) {
		struct kvi_index_ref r = { .pack = sqlite3_column_int64(q, 0),
			                   .name_space = (uint64_t)sqlite3_column_int64(q, 1),
			                   .track = (uint32_t)sqlite3_column_int64(q, 2),
			                   .n = (uint32_t)sqlite3_column_int64(q, 4),
			                   .left = (uint32_t)sqlite3_column_int64(q, 5),
			                   .t0 = (uint64_t)sqlite3_column_int64(q, 3),
			                   .has_chain = sqlite3_column_int(q, 6) != 0 };
		get_hash(r.key, q, 7);
		get_hash(r.digest, q, 8);
		ret = check_hash(index, q, 9, ref_hash(&r));
		if (!ret)
			ret = fn(opaque, &r);
	}
	return q ? finish(index, q, code, ret) : ret;
}
