/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_calls.h - the system calls of a folder store, on their way: for programs that are linked
 * with the library, so that its calls come here first
 */
#ifndef KV_TEST_STORE_CALLS_H
#define KV_TEST_STORE_CALLS_H

#include <stddef.h>
#include <stdint.h>

enum store_call_kind {
	STORE_CALL_OPEN,
	STORE_CALL_WRITE,
	STORE_CALL_TRUNCATE,
	STORE_CALL_SYNC,
	STORE_CALL_MKDIR,
	STORE_CALL_LINK,
	STORE_CALL_RENAME,
	STORE_CALL_UNLINK
};

/* One call. Paths are relative to the folders of fd and to_fd, as the system has it. */
struct store_call {
	enum store_call_kind kind;
	int fd;           /* write, truncate, sync: the file; else the folder of `path` */
	const char *path; /* open, mkdir, unlink; link and rename: the old name */
	int to_fd;
	const char *to; /* link, rename: the new name */
	int flags;      /* of open and unlink */
	const void *data;
	size_t bytes;    /* write */
	uint64_t offset; /* write, after it was made; truncate */
};

/* Called in the thread of each call, when set. */
struct store_call_hooks {
	/* Returns 0, or the errno with which the call fails without being made. */
	int (*before)(const struct store_call *c);
	/* result: what the call returned; errno stays as it was. */
	void (*behind)(const struct store_call *c, long result);
};
extern struct store_call_hooks store_calls;

/* Another schedule of threads and processes: some of the calls that change names wait for up to
 * store_calls_delay_most microseconds, those of manifests 25 times as long. 0: none waits. For
 * store_calls.before. */
int store_calls_delay(const struct store_call *c);
extern unsigned store_calls_delay_most;

#endif
