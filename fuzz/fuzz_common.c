/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_common.c - failing allocator, leak count, memory files, entry point */
#include "fuzz_common.h"

#include <stddef.h>

#include "codecs/codec.h"

/* Allocations of one run; several threads may use it. */
struct counter {
	atomic_size_t calls, held, bytes;
	size_t fail_at;
	bool persistent;
	atomic_bool failed;
};

union head {
	size_t bytes;
	max_align_t align;
};

static void *counted_alloc(void *opaque, size_t bytes)
{
	struct counter *c = opaque;
	size_t call = atomic_fetch_add(&c->calls, 1) + 1;
	if (c->fail_at && (call == c->fail_at || (c->persistent && call > c->fail_at))) {
		atomic_store(&c->failed, true);
		return NULL;
	}
	FUZZ_CHECK(bytes > 0);
	/* A handle stays below its memlimit; targets have two at most. */
	size_t sum = atomic_fetch_add(&c->bytes, bytes) + bytes;
	FUZZ_CHECK(sum <= 2 * FUZZ_MEMLIMIT);
	union head *h = malloc(sizeof *h + bytes);
	FUZZ_CHECK(h);
	h->bytes = bytes;
	atomic_fetch_add(&c->held, 1);
	return h + 1;
}

static void counted_free(void *opaque, void *ptr)
{
	struct counter *c = opaque;
	if (!ptr)
		return;
	union head *h = (union head *)ptr - 1;
	atomic_fetch_sub(&c->bytes, h->bytes);
	atomic_fetch_sub(&c->held, 1);
	free(h);
}

bool fuzz_run(const uint8_t *data, size_t n, uint8_t mode, uint32_t isa, unsigned fail_at,
              bool persistent)
{
	struct counter c = { .fail_at = fail_at, .persistent = persistent };
	struct fuzz_env env = { .mode = mode, .failing = fail_at > 0 };
	env.allocator =
		(kvarc_allocator){ .alloc = counted_alloc, .free = counted_free, .opaque = &c };
	env.common.allocator = &env.allocator;
	env.common.error = &env.error;
	env.common.memlimit = FUZZ_MEMLIMIT;
	env.common.isa_mask = isa & kvarc_isa_available();
	/* An exact copy: reads past the end are seen by the sanitizer. */
	uint8_t *copy = malloc(n ? n : 1);
	FUZZ_CHECK(copy);
	if (n)
		memcpy(copy, data, n);
	fuzz_one(copy, n, &env);
	free(copy);
	FUZZ_CHECK(atomic_load(&c.held) == 0);
	FUZZ_CHECK(memchr(env.error.text, 0, sizeof env.error.text));
	FUZZ_CHECK(!strchr(env.error.text, '\n'));
	return atomic_load(&c.failed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n < FUZZ_TAIL)
		return 0;
	n -= FUZZ_TAIL;
	const uint8_t *tail = data + n;
	unsigned fail = tail[2] | (unsigned)tail[3] << 8;
	bool on = fail & 0x8000;
	fuzz_run(data, n, tail[0], 1u << (tail[1] & 3), on ? (fail & 0x3fff) + 1 : 0,
	         fail & 0x4000);
	return 0;
}

/* ------------------------------------------------------- memory files */

static int file_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct fuzz_file *f = opaque;
	if (offset > FUZZ_MEMLIMIT || bytes > FUZZ_MEMLIMIT - offset)
		return -1;
	size_t end = (size_t)offset + bytes;
	if (end > f->cap) {
		size_t cap = end + end / 2 + 4096;
		uint8_t *p = realloc(f->p, cap);
		FUZZ_CHECK(p);
		f->p = p;
		f->cap = cap;
	}
	if (offset > f->n)
		memset(f->p + f->n, 0, (size_t)offset - f->n);
	if (bytes)
		memcpy(f->p + offset, buf, bytes);
	if (end > f->n)
		f->n = end;
	return 0;
}

kvarc_sink fuzz_file_sink(struct fuzz_file *f)
{
	return (kvarc_sink){ .write = file_write, .opaque = f };
}

void fuzz_file_free(struct fuzz_file *f)
{
	free(f->p);
	*f = (struct fuzz_file){ 0 };
}

static int64_t input_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct fuzz_input *in = opaque;
	if (in->pipe)
		FUZZ_CHECK(offset == in->next);
	if (offset >= in->n)
		return 0;
	size_t left = in->n - (size_t)offset;
	if (bytes > left)
		bytes = left;
	if (in->piece && bytes > in->piece)
		bytes = in->piece;
	memcpy(buf, in->p + offset, bytes);
	if (in->pipe)
		in->next = offset + bytes;
	return (int64_t)bytes;
}

kvarc_source fuzz_input_source(struct fuzz_input *in)
{
	return (kvarc_source){ .read = input_read,
		               .opaque = in,
		               .size = in->pipe ? KVARC_UNKNOWN : in->n };
}

const struct kvi_coder_tables *fuzz_tables(void)
{
	static struct kvi_alloc a;
	static struct kvi_coder_tables *tables;
	if (!tables) {
		kvi_alloc_init(&a, NULL, 0);
		FUZZ_CHECK(kvi_coder_tables_open(&tables, &a) == KVARC_OK);
		FUZZ_CHECK(kvi_coder_tables_lossy(tables) == KVARC_OK);
	}
	return tables;
}
