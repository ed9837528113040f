/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_io.c - memory that grows, as a sink and as a source */
#include <errno.h>
#include <string.h>

#include "util/alloc.h"
#include "util/arguments.h"
#include "util/ckd.h"
#include "util/error.h"

struct kvarc_memory {
	struct kvi_alloc alloc;
	uint8_t *p;
	size_t bytes, capacity;
};

kvarc_ret kvarc_memory_open(kvarc_memory **memory, const kvarc_common *common)
{
	static const kvarc_common defaults = KVARC_COMMON_INIT;
	const kvarc_common *c = common ? common : &defaults;
	if (!memory)
		return kvi_fail(c->error, KVARC_PROG, "kvarc_memory_open: memory is NULL");
	*memory = NULL;
	return kvi_handle_new(memory, sizeof **memory, offsetof(kvarc_memory, alloc), c,
	                      c->memlimit);
}

void kvarc_memory_close(kvarc_memory **memory)
{
	kvarc_memory *m = memory ? *memory : NULL;
	if (!m)
		return;
	kvi_free(&m->alloc, m->p);
	kvi_free(&m->alloc, m);
	*memory = NULL;
}

const void *kvarc_memory_data(const kvarc_memory *memory)
{
	return memory && memory->bytes ? memory->p : NULL;
}

uint64_t kvarc_memory_bytes(const kvarc_memory *memory)
{
	return memory ? memory->bytes : 0;
}

/* Capacity for at least that number of bytes; half as much again as before where possible. */
static bool grow(kvarc_memory *memory, size_t bytes)
{
	enum { FIRST = 1 << 16 };
	size_t more, capacity;
	if (bytes <= memory->capacity)
		return true;
	capacity = kvi_add(memory->capacity, memory->capacity / 2 + FIRST, &more) || more < bytes
	                   ? bytes
	                   : more;
	uint8_t *p = kvi_malloc(&memory->alloc, capacity);
	if (!p && capacity > bytes)
		p = kvi_malloc(&memory->alloc, capacity = bytes);
	if (!p)
		return false;
	if (memory->bytes)
		memcpy(p, memory->p, memory->bytes);
	kvi_free(&memory->alloc, memory->p);
	memory->p = p;
	memory->capacity = capacity;
	return true;
}

static int memory_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	kvarc_memory *m = opaque;
	size_t end;
	if (offset > SIZE_MAX || kvi_add((size_t)offset, bytes, &end) || !grow(m, end)) {
		errno = ENOMEM;
		return -1;
	}
	if (bytes == 0)
		return 0;
	if (offset > m->bytes)
		memset(m->p + m->bytes, 0, (size_t)offset - m->bytes);
	memcpy(m->p + offset, buf, bytes);
	m->bytes = end > m->bytes ? end : m->bytes;
	return 0;
}

static int memory_truncate(void *opaque, uint64_t bytes)
{
	kvarc_memory *m = opaque;
	if (bytes < m->bytes)
		m->bytes = (size_t)bytes;
	return 0;
}

static int64_t memory_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const kvarc_memory *m = opaque;
	if (offset >= m->bytes)
		return 0;
	if (bytes > m->bytes - offset)
		bytes = (size_t)(m->bytes - offset);
	memcpy(buf, m->p + offset, bytes);
	return (int64_t)bytes;
}

kvarc_ret kvarc_memory_sink(kvarc_memory *memory, kvarc_sink *sink)
{
	if (sink)
		*sink = (kvarc_sink){ 0 };
	if (!memory || !sink)
		return KVARC_PROG;
	*sink = (kvarc_sink){ .write = memory_write,
		              .opaque = memory,
		              .truncate = memory_truncate };
	return KVARC_OK;
}

kvarc_ret kvarc_memory_source(kvarc_memory *memory, kvarc_source *source)
{
	if (source)
		*source = (kvarc_source){ 0 };
	if (!memory || !source)
		return KVARC_PROG;
	*source = (kvarc_source){ .read = memory_read,
		                  .opaque = memory,
		                  .size = memory->bytes,
		                  .memory = kvarc_memory_data(memory) };
	return KVARC_OK;
}
