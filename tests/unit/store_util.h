/* SPDX-License-Identifier: BSD-3-Clause */
/* store_util.h - a store in a folder, sessions of made slots, and what others do meanwhile */
#ifndef STORE_UTIL_H
#define STORE_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../slots_made.h"
#include "store/store_state.h"

/* A store in a folder of its own. */
struct test_store {
	char folder[64];
	kvarc_store *s;
	kvarc_error error;
	char note[256]; /* the last one */
	int notes;
	const kvarc_keys *keys; /* of the next open; NULL: none */
	const char *index;      /* the same; NULL: in the folder */
};

/* A new folder. */
void store_new(struct test_store *t);
/* Opens the folder, once more; name_space NULL: the default. Returns what kvarc_store_open does. */
kvarc_ret store_again(struct test_store *t, const char *name_space);
void store_end(struct test_store *t);    /* closes it */
void store_remove(struct test_store *t); /* and removes the folder */

/* Tokens 0 .. n - 1 with ids that go on from `first`; from token `other` on with other ids. */
struct slot_made test_slot(uint32_t n, uint32_t other);
/* The same with rows that change at a token. */
struct slot_made test_slot_changed(uint32_t n, uint32_t changed);

/* Saves bytes as a file; options may be NULL. Returns what kvarc_store_save does. */
kvarc_ret store_save_bytes(kvarc_store *s, const char *session, struct slot_made *file,
                           const kvarc_save_options *o, kvarc_saved *saved);
/* The same of a slot that is freed; fails the test unless it is OK. */
kvarc_saved store_save_slot(kvarc_store *s, const char *session, struct slot_made slot);
/* Loads a version and compares it with a file. Returns what kvarc_store_load does; the test fails
 * when other bytes came. */
kvarc_ret store_compare(kvarc_store *s, const char *session, uint64_t number,
                        const struct slot_made *file);
/* The same of a slot that is freed; fails the test unless it is OK. */
void store_check_slot(kvarc_store *s, const char *session, uint64_t number, struct slot_made slot);
/* Loads the last version into nothing; fails the test unless it is OK. */
kvarc_session_version store_load_nowhere(kvarc_store *s, const char *session);
/* How many losses a verify finds. */
uint64_t store_losses(kvarc_store *s);
/* gc without a grace period. */
kvarc_gc_result store_gc_now(kvarc_store *s);
uint64_t store_packs(struct test_store *t); /* files below packs/ */
/* Path number i of a pattern in the folder of the store. */
void store_file(struct test_store *t, const char *pattern, size_t i, char path[300]);
void store_flip(const char *path, long at); /* changes a byte of a file */
long store_bytes(const char *path);         /* how many a file has */

/* Calls of a store's backend: fn is called before call number `at`, counted from 0. */
struct test_hook {
	struct kvi_backend base;
	struct kvi_backend *inner;
	int calls, at;
	bool fails; /* call `at` and all behind it return IO */
	void (*fn)(void *opaque);
	void *opaque;
};
void hook_start(struct test_hook *h, kvarc_store *s, int at, void (*fn)(void *opaque),
                void *opaque);
void hook_end(struct test_hook *h, kvarc_store *s);

#endif
