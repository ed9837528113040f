/* SPDX-License-Identifier: BSD-3-Clause */
/* index_queries.c - what the index of a store answers */
#include "config.h"

#include "index_state.h"

#include <string.h>

#include "util/bytes.h"

static void bind_number(sqlite3_stmt *statement, int at, uint64_t n)
{
	sqlite3_bind_int64(statement, at, (sqlite3_int64)n);
}

static void bind_hash(sqlite3_stmt *statement, int at, const uint8_t hash[16])
{
	sqlite3_bind_blob(statement, at, hash, 16, SQLITE_STATIC);
}

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

/* ----- questions ------------------------------------------------ */

/* The number in the first column of the first row. */
static kvarc_ret ask_number(struct kvi_store_index *index, sqlite3_stmt *statement, int64_t *n)
{
	int code = sqlite3_step(statement);
	*n = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
	return kvi_index_finish(index, statement, code, code == SQLITE_DONE ? KVARC_END : KVARC_OK);
}

/* highest: of packs.sealed. */
static kvarc_ret find_pack(struct kvi_store_index *index, const uint8_t id[16], int highest,
                           int64_t *pack)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_FIND_PACK, &ret);
	if (!q)
		return ret;
	bind_hash(q, 1, id);
	sqlite3_bind_int(q, 2, highest);
	return ask_number(index, q, pack);
}

kvarc_ret kvi_index_find_pack(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack)
{
	return find_pack(index, id, KVI_SEALED, pack);
}

kvarc_ret kvi_index_find_locked(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack)
{
	return find_pack(index, id, KVI_LOCKED, pack);
}

kvarc_ret kvi_index_find_any(struct kvi_store_index *index, const uint8_t id[16], int64_t *pack)
{
	return find_pack(index, id, KVI_BROKEN, pack);
}

kvarc_ret kvi_index_last_use(struct kvi_store_index *index, const char *key, int64_t *time)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_LAST_USE, &ret);
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
		sqlite3_stmt *q = kvi_index_prepare(index, i ? KVI_COUNT_ROWS : KVI_COUNT_PACKS,
		                                    &ret);
		if (q)
			ret = ask_number(index, q, &n[i]);
	}
	*packs = (uint64_t)n[0];
	*segments = (uint64_t)n[1];
	return ret;
}

/* Reads a row; numbers out of range become values that no search finds. */
static void get_row(struct kvi_index_row *r, sqlite3_stmt *statement)
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
}

static kvarc_ret get_rows(struct kvi_store_index *index, sqlite3_stmt *statement,
                          struct kvi_index_row *rows, size_t most, size_t *n)
{
	int code = SQLITE_DONE;
	*n = 0;
	while (*n < most && (code = sqlite3_step(statement)) == SQLITE_ROW)
		get_row(&rows[(*n)++], statement);
	return kvi_index_finish(index, statement, code, KVARC_OK);
}

kvarc_ret kvi_index_children(struct kvi_store_index *index, uint64_t name_space, uint64_t parent,
                             int32_t first, struct kvi_index_row *rows, size_t most, size_t *n)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_CHILDREN, &ret);
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
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_LENGTHS, &ret);
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
	return kvi_index_finish(index, q, code, KVARC_OK);
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
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_MATCH, &ret);
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
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_HOLDERS, &ret);
	*n = 0;
	if (!q)
		return ret;
	bind_number(q, 1, kvi_load64(key));
	bind_number(q, 2, name_space);
	bind_number(q, 3, most);
	sqlite3_bind_int(q, 4, damaged ? KVI_DOUBTED : 0);
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
		                         .encrypted = sealed == KVI_SEALED || sealed == KVI_LOCKED,
		                         .locked = sealed == KVI_LOCKED,
		                         .broken = sealed == KVI_BROKEN,
		                         .lacks = sqlite3_column_int(statement, 6) != 0 };
	get_hash(pack->id, statement, 1);
}

kvarc_ret kvi_index_get_pack(struct kvi_store_index *index, const uint8_t id[16],
                             struct kvi_index_pack *pack)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_GET_PACK, &ret);
	if (!q)
		return ret;
	bind_hash(q, 1, id);
	int code = sqlite3_step(q);
	if (code == SQLITE_ROW)
		get_pack(pack, q);
	return kvi_index_finish(index, q, code, code == SQLITE_DONE ? KVARC_END : KVARC_OK);
}

kvarc_ret kvi_index_packs(struct kvi_store_index *index, bool count, kvi_index_pack_fn fn,
                          void *opaque)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, count ? KVI_PACKS_COUNTED : KVI_PACKS_ALL, &ret);
	int code = SQLITE_DONE;
	while (q && !ret && (code = sqlite3_step(q)) == SQLITE_ROW) {
		struct kvi_index_pack p;
		get_pack(&p, q);
		ret = fn(opaque, &p);
	}
	return q ? kvi_index_finish(index, q, code, ret) : ret;
}

/* Gives the rows of a statement that is bound; statement NULL: ret. */
static kvarc_ret give_rows(struct kvi_store_index *index, sqlite3_stmt *statement, kvarc_ret ret,
                           kvi_index_row_fn fn, void *opaque)
{
	int code = SQLITE_DONE;
	while (statement && !ret && (code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct kvi_index_row r;
		get_row(&r, statement);
		ret = fn(opaque, &r);
	}
	return statement ? kvi_index_finish(index, statement, code, ret) : ret;
}

kvarc_ret kvi_index_rows(struct kvi_store_index *index, int64_t pack, kvi_index_row_fn fn,
                         void *opaque)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_ROWS, &ret);
	if (q)
		sqlite3_bind_int64(q, 1, pack);
	return give_rows(index, q, ret, fn, opaque);
}

kvarc_ret kvi_index_doubts(struct kvi_store_index *index, kvi_index_row_fn fn, void *opaque)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_DOUBTS, &ret);
	return give_rows(index, q, ret, fn, opaque);
}

kvarc_ret kvi_index_refs(struct kvi_store_index *index, int64_t pack, kvi_index_ref_fn fn,
                         void *opaque)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_REFS, &ret);
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
		ret = fn(opaque, &r);
	}
	return q ? kvi_index_finish(index, q, code, ret) : ret;
}
