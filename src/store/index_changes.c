/* SPDX-License-Identifier: BSD-3-Clause */
/* index_changes.c - what is added to the index of a store and removed from it */
#include "config.h"

#include "index_state.h"

#include <string.h>

#include "util/bytes.h"

static kvarc_ret step_once(struct kvi_store_index *index, sqlite3_stmt *statement)
{
	return kvi_index_finish(index, statement, sqlite3_step(statement), KVARC_OK);
}

static void bind_number(sqlite3_stmt *statement, int at, uint64_t n)
{
	sqlite3_bind_int64(statement, at, (sqlite3_int64)n);
}

static void bind_hash(sqlite3_stmt *statement, int at, const uint8_t hash[16])
{
	sqlite3_bind_blob(statement, at, hash, 16, SQLITE_STATIC);
}

/* ----- changes ------------------------------------------------ */

kvarc_ret kvi_index_add_pack(struct kvi_store_index *index, struct kvi_index_pack *pack)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_ADD_PACK, &ret);
	if (!q)
		return ret;
	bind_hash(q, 1, pack->id);
	bind_number(q, 2, pack->bytes);
	sqlite3_bind_int64(q, 3, pack->time);
	sqlite3_bind_int(q, 4,
	                 pack->broken      ? KVI_BROKEN
	                 : pack->locked    ? KVI_LOCKED
	                 : pack->encrypted ? KVI_SEALED
	                                   : 0);
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
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_ADD_ROW, &ret);
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
	return step_once(index, q);
}

kvarc_ret kvi_index_add_ref(struct kvi_store_index *index, const struct kvi_index_ref *r)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_ADD_REF, &ret);
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
	return step_once(index, q);
}

kvarc_ret kvi_index_set_digest(struct kvi_store_index *index, int64_t row, const uint8_t digest[16])
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_SET_DIGEST, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, row);
	bind_hash(q, 2, digest);
	return step_once(index, q);
}

kvarc_ret kvi_index_set_first(struct kvi_store_index *index, int64_t row, int32_t first)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_SET_FIRST, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, row);
	sqlite3_bind_int(q, 2, first);
	return step_once(index, q);
}

kvarc_ret kvi_index_set_doubt(struct kvi_store_index *index, int64_t row, bool damaged)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_SET_DOUBT, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, row);
	sqlite3_bind_int(q, 2, damaged ? KVI_DOUBTED : 0);
	return step_once(index, q);
}

/* Statements whose only value is the number of a pack; one that is not there is fine. */
static kvarc_ret run_on_pack(struct kvi_store_index *index, const uint8_t id[16], size_t n,
                             const enum kvi_index_statement *statements)
{
	int64_t pack;
	kvarc_ret ret = kvi_index_find_any(index, id, &pack);
	if (ret)
		return ret == KVARC_END ? KVARC_OK : ret;
	for (size_t i = 0; i < n && !ret; i++) {
		sqlite3_stmt *q = kvi_index_prepare(index, statements[i], &ret);
		if (!q)
			break;
		sqlite3_bind_int64(q, 1, pack);
		ret = step_once(index, q);
	}
	return ret;
}

kvarc_ret kvi_index_break(struct kvi_store_index *index, const uint8_t id[16])
{
	static const enum kvi_index_statement steps[] = { KVI_DOUBT_ROWS, KVI_BREAK_PACK };
	return run_on_pack(index, id, 2, steps);
}

kvarc_ret kvi_index_trust(struct kvi_store_index *index, const uint8_t id[16])
{
	static const enum kvi_index_statement steps[] = { KVI_TRUST_ROWS };
	int64_t pack;
	kvarc_ret ret = kvi_index_find_pack(index, id, &pack);
	if (ret == KVARC_END)
		return kvi_index_remove_pack(index, id);
	return ret ? ret : run_on_pack(index, id, 1, steps);
}

kvarc_ret kvi_index_remove_pack(struct kvi_store_index *index, const uint8_t id[16])
{
	static const enum kvi_index_statement steps[] = { KVI_DROP_ROWS, KVI_DROP_REFS,
		                                          KVI_DROP_PACK };
	return run_on_pack(index, id, 3, steps);
}

kvarc_ret kvi_index_doubt_at(struct kvi_store_index *index, const struct kvi_index_row *row)
{
	int64_t pack;
	kvarc_ret ret = kvi_index_find_any(index, row->id, &pack);
	sqlite3_stmt *q = ret ? NULL : kvi_index_prepare(index, KVI_DOUBT_AT, &ret);
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
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_END_PACK, &ret);
	if (!q)
		return ret;
	sqlite3_bind_int64(q, 1, pack);
	return step_once(index, q);
}

kvarc_ret kvi_index_use(struct kvi_store_index *index, const char *key, int64_t time)
{
	kvarc_ret ret;
	sqlite3_stmt *q = kvi_index_prepare(index, KVI_USE, &ret);
	if (!q)
		return ret;
	sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_int64(q, 2, time);
	return step_once(index, q);
}
