/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/blocks.h - blocks of an engine's cache as objects beside sessions: folder, S3, Redis */
/*
 * These calls are in libkvarc-store, as those of <kvarc/store.h>, and need no SQLite. A serving
 * engine that offloads its cache puts each block of it under a name that says what it holds, and
 * asks for it later; what it does not get, it computes again. docs/store.md has the layout.
 */
#ifndef KVARC_BLOCKS_H
#define KVARC_BLOCKS_H

#include <kvarc/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Blocks of a store: archives that the caller makes and reads. What a block holds is for its reader
 * to check: these calls pass bytes on. A name is 64 lower-case hex digits, such as the SHA-256 of
 * what the engine calls the block. Any number of processes and machines may use the blocks of a
 * store at once. A handle serves one thread at a time.
 */
typedef struct kvarc_blocks kvarc_blocks;

/* How blocks are opened; set unused members to 0. */
typedef struct kvarc_blocks_options {
	kvarc_common common; /* error must outlive the handle */
	unsigned flags;      /* KVARC_STORE_* */
	/* milliseconds in which S3 or Redis have answered a request, which is sent once; to find
	 * the address of a host takes as long as the system lets it. 0: 5000 */
	unsigned timeout_ms;
	/* as in kvarc_store_options */
	const char *access_key, *secret_key, *session_token, *region, *endpoint;
	uint64_t reserved[3]; /* zero */
} kvarc_blocks_options;
#define KVARC_BLOCKS_OPTIONS_INIT KVARC_ZERO

/*
 * Opens the blocks of a store by its URL (kvarc_store_open). options may be NULL; their strings are
 * copied. On failure *b is NULL.
 * Returns OK, OPTIONS (a kind that is not known or was not built in, no such folder), IO, MEM,
 * MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_blocks_open(kvarc_blocks **b, const char *url,
                                                       const kvarc_blocks_options *options);
/* NULL-safe; sets *b to NULL. */
KVARC_API void kvarc_blocks_close(kvarc_blocks **b);

/* Puts a block, whole or not at all, under a name that has none. Returns OK, END (the name has a
 * block), IO, MEM, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_blocks_put(kvarc_blocks *b, const char *name,
                                                      const void *data, size_t bytes);

/* Reads up to n bytes of a block from an offset on; *got is less at its end alone. Returns OK, END
 * (there is none), IO, MEM, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_blocks_get(kvarc_blocks *b, const char *name,
                                                      uint64_t offset, void *data, size_t n,
                                                      size_t *got);

/* A block as stat and list give it. */
typedef struct kvarc_block {
	const char *name; /* until the call returns */
	uint64_t bytes;
	uint64_t time; /* seconds since 1970 of its put, or of its last touch; 0: not known */
	uint64_t reserved[2];
} kvarc_block;
/* Takes one block; not 0 ends the call, which returns IO. */
typedef int (*kvarc_block_fn)(void *opaque, const kvarc_block *block);

/* Size and time of a block, which may be NULL: then whether there is one. Returns OK, END (there is
 * none), IO, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_blocks_stat(kvarc_blocks *b, const char *name,
                                                       kvarc_block *block);

/* Notes that a block was used: in a folder its time becomes now; S3 and Redis keep that of the
 * put. Returns OK, END (there is none), IO, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_blocks_touch(kvarc_blocks *b, const char *name);

/* Removes a block, also one that is not there. Returns OK, IO, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_blocks_remove(kvarc_blocks *b, const char *name);

/* All blocks, in any order; those that come or go meanwhile may be in it or not. Returns OK, IO,
 * MEM. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_blocks_list(kvarc_blocks *b, kvarc_block_fn fn,
                                                       void *opaque);

#ifdef __cplusplus
}
#endif

#endif
