/* SPDX-License-Identifier: BSD-3-Clause */
/* guarded.h - buffers of tests that end in front of a page that cannot be accessed */
#ifndef GUARDED_H
#define GUARDED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct guarded {
	uint8_t *map, *p;
	size_t mapped;
};

static bool guarded_front;

/* The bytes of the buffer, and those in front of it, are 0xa5 then. */
static inline struct guarded guarded_new(size_t bytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct guarded b = { .mapped = (bytes / page + 2) * page };
	b.map = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.map == MAP_FAILED || mprotect(b.map + b.mapped - page, page, PROT_NONE)) {
		perror("mmap");
		exit(99);
	}
	b.p = b.map + b.mapped - page - bytes;
	memset(b.map, 0xa5, b.mapped - page);
	return b;
}

static inline struct guarded guarded_copy(const void *from, size_t bytes)
{
	struct guarded b = guarded_new(bytes);
	if (bytes)
		memcpy(b.p, from, bytes);
	return b;
}

static inline void guarded_free(struct guarded *b)
{
	for (const uint8_t *p = b->map; p && p < b->p; p++)
		guarded_front = guarded_front || *p != 0xa5;
	if (b->map)
		munmap(b->map, b->mapped);
	*b = (struct guarded){ 0 };
}

/* Whether something was written in front of a buffer that is freed, since the last call. */
static inline bool guarded_written_in_front(void)
{
	const bool written = guarded_front;
	guarded_front = false;
	return written;
}

#endif
