/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_common.h - what all fuzz targets share: failing allocator, memory files
 *
 * A target is one file that defines fuzz_one and fuzz_parameters. fuzz_common.c
 * turns it into LLVMFuzzerTestOneInput: the last four bytes of an input are its
 * tail, the rest is the data, which ends with the target's own parameters.
 *
 *   byte -4  free for the target (env.mode)
 *   byte -3  instruction set: 1 << (byte & 3), all when that is not available
 *   u16  -2  bit 15: allocations fail; bit 14: all from there on, else one;
 *            bits 0..13: at which call
 */
#ifndef FUZZ_COMMON_H
#define FUZZ_COMMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvarc.h"

enum { FUZZ_TAIL = 4, FUZZ_MEMLIMIT = 64 << 20 };

/* Stops the process with a line on stderr: a promise was broken. */
#define FUZZ_CHECK(cond)                                                                   \
	do {                                                                               \
		if (!(cond)) {                                                             \
			fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                           \
		}                                                                          \
	} while (0)

struct fuzz_env {
	uint8_t mode;
	kvarc_allocator allocator; /* fails where the mode says */
	kvarc_error error;
	kvarc_common common; /* allocator, error, memlimit, isa_mask */
	bool failing;        /* an allocation was made to fail */
};

/* Bytes of parameters at the end of the data. */
extern const size_t fuzz_parameters;
/* The target. Whatever it opens it closes. */
void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env);

/* One run; fail_at 0: no allocation fails, else the fail_at-th (and all
 * after it). Returns whether that one was reached. */
bool fuzz_run(const uint8_t *data, size_t n, uint8_t mode, uint32_t isa, unsigned fail_at,
              bool persistent);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A file in memory. Growing costs what is written, at most FUZZ_MEMLIMIT. */
struct fuzz_file {
	uint8_t *p;
	size_t n, cap;
};
void fuzz_file_free(struct fuzz_file *f);
/* Takes writes at any offset. */
kvarc_sink fuzz_file_sink(struct fuzz_file *f);

struct fuzz_input {
	const uint8_t *p;
	size_t n;
	size_t piece;  /* largest read, 0: any */
	uint64_t next; /* a pipe is read forward only */
	bool pipe;
};
kvarc_source fuzz_input_source(struct fuzz_input *in);

/* A deliver that checks its arguments and reads every byte. */
struct fuzz_sum {
	const kvarc_geometry *geometry;
	_Atomic uint64_t sum; /* of several workers */
};
int fuzz_deliver(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                 uint32_t n, const void *src);
/* Sequential read of everything. Returns the first code but OK. */
kvarc_ret fuzz_read_all(kvarc_reader *r);
/* kvarc_unpack into memory; the items go nowhere but are counted. */
kvarc_ret fuzz_unpack_all(kvarc_reader *r);
/* Every question a reader answers without decoding. */
void fuzz_ask_all(kvarc_reader *r);

/* Takes numbers from a byte string; zeros after its end. */
struct fuzz_bytes {
	const uint8_t *p;
	size_t n;
};
static inline uint8_t fuzz_take(struct fuzz_bytes *b)
{
	if (!b->n)
		return 0;
	b->n--;
	return *b->p++;
}
static inline uint32_t fuzz_take32(struct fuzz_bytes *b)
{
	uint32_t v = fuzz_take(b);
	v = v << 8 | fuzz_take(b);
	v = v << 8 | fuzz_take(b);
	return v << 8 | fuzz_take(b);
}

/* Tables of coders, lossy ones too. They are large and the same every time: made once, for runs in
 * which making them cannot fail. */
const struct kvi_coder_tables *fuzz_tables(void);

#endif
