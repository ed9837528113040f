/* SPDX-License-Identifier: BSD-3-Clause */
/* index_state.h - the insides of an index of a store, shared by its sources */
#ifndef KVI_INDEX_STATE_H
#define KVI_INDEX_STATE_H

#include "sqlite_calls.h"

#include "store_index.h"

/* Statements, which are prepared when the index is opened. */
enum kvi_index_statement {
	KVI_ADD_PACK,
	KVI_ADD_ROW,
	KVI_ADD_REF,
	KVI_SET_DIGEST,
	KVI_SET_FIRST,
	KVI_SET_DOUBT,
	KVI_TRUST_ROWS,
	KVI_DOUBT_ROWS,
	KVI_DOUBT_AT,
	KVI_DOUBTS,
	KVI_BREAK_PACK,
	KVI_END_PACK,
	KVI_GET_PACK,
	KVI_PACKS_COUNTED,
	KVI_DROP_ROWS,
	KVI_DROP_REFS,
	KVI_DROP_PACK,
	KVI_FIND_PACK,
	KVI_LENGTHS,
	KVI_MATCH,
	KVI_CHILDREN,
	KVI_HOLDERS,
	KVI_PACKS_ALL,
	KVI_ROWS,
	KVI_REFS,
	KVI_COUNT_PACKS,
	KVI_COUNT_ROWS,
	KVI_USE,
	KVI_LAST_USE,
	KVI_STATEMENTS
};

/* Values of packs.sealed: encrypted and known; encrypted and not known; not whole. */
enum { KVI_SEALED = 1, KVI_LOCKED = 2, KVI_BROKEN = 3 };

/* segments.wn of a whole segment that is marked as damaged. */
enum { KVI_DOUBTED = -1 };

/* An index that is open. */
struct kvi_store_index {
	struct kvi_alloc alloc;
	sqlite3 *db;
	kvarc_error *error;
	bool damaged;
	bool unusable; /* the file cannot be read or written */
	sqlite3_stmt *statements[KVI_STATEMENTS];
};

/* Fills an empty database in memory with that of a file, which is not changed. False: it cannot be
 * read. */
bool kvi_index_copy(sqlite3 *to, const char *path);
/* Fills the error for a code of SQLite. Returns DATA, IO or MEM. */
kvarc_ret kvi_index_fail(struct kvi_store_index *index, int code);
/* A statement, ready to be bound; NULL: *ret says why. */
sqlite3_stmt *kvi_index_prepare(struct kvi_store_index *index, enum kvi_index_statement which,
                                kvarc_ret *ret);
/* Ends a statement after its last step, whose code it gets: returns ret, or what the code means. */
kvarc_ret kvi_index_finish(struct kvi_store_index *index, sqlite3_stmt *statement, int code,
                           kvarc_ret ret);

#endif
