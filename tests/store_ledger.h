/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_ledger.h - what processes have asked of a store, and what it has acknowledged: a file that
 * all of them append to, so that what a killed one has received is recorded
 *
 * The order of the records is the order of time: an operation begins before its call and ends
 * behind it, or when its process is dead.
 */
#ifndef KV_TEST_STORE_LEDGER_H
#define KV_TEST_STORE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/hash.h"

enum { LEDGER_NAME = 24 };

enum ledger_kind {
	LEDGER_PUT = 1, /* a version of a session: save, fork, receive */
	LEDGER_REMOVE,  /* all versions of a session */
	LEDGER_COLLECT, /* gc that keeps the last versions of each session */
	LEDGER_VOID     /* somebody empties the service: nothing is promised */
};

/* An operation, and what was acknowledged of it. */
struct ledger_operation {
	enum ledger_kind kind;
	uint32_t worker;
	char session[LEDGER_NAME]; /* of PUT and REMOVE */
	uint64_t keep;             /* of COLLECT; 0: all versions stay */
	size_t begin, end;         /* records; SIZE_MAX: it has no end yet */
	size_t first;              /* of the list: all before it ended before this one began */
	bool acknowledged;         /* PUT */
	/* of an acknowledged PUT; number 0: it is a fork, whose number nobody has said */
	uint64_t number, parent_number;
	char parent[LEDGER_NAME];
	struct kvi_h128 digest; /* of the file */
};

struct store_ledger {
	int fd;
	uint32_t worker;
	size_t records; /* that were read */
	struct ledger_operation *list;
	size_t n, capacity;
	size_t last_void; /* the last VOID, plus 1; one worker alone has them */
	size_t *open;     /* by worker: its operation without an end, plus 1 */
	size_t open_capacity;
};

/* The ledger of a file, which is made. Ends the program where that fails, as the other calls do. */
void ledger_open(struct store_ledger *l, const char *path, uint32_t worker);
void ledger_close(struct store_ledger *l);

/* Before a call. An operation of a worker begins when its last one has ended. */
void ledger_begin(struct store_ledger *l, enum ledger_kind kind, const char *session,
                  uint64_t keep);
/* Behind a call. */
void ledger_end(struct store_ledger *l);
void ledger_saved(struct store_ledger *l, uint64_t number, struct kvi_h128 digest);
void ledger_forked(struct store_ledger *l, const char *parent, uint64_t parent_number,
                   struct kvi_h128 digest);
/* A process is dead, and so are its operations. */
void ledger_dead(struct store_ledger *l, uint32_t worker);

/* Reads what others have written meanwhile. */
void ledger_read(struct store_ledger *l);
/* Whether an acknowledged version may be gone: somebody has asked to remove it, or gc may have, as
 * enough versions of its session were put behind it. */
bool ledger_excuses(const struct store_ledger *l, const struct ledger_operation *version);
/* Whether the service was emptied behind it: then another version may have its number. */
bool ledger_voids(const struct store_ledger *l, const struct ledger_operation *version);
/* The same, of what others have written by now, too; version is not of the list, which may move. */
bool ledger_voids_by_now(struct store_ledger *l, const struct ledger_operation *version);

#endif
