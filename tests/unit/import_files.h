/* SPDX-License-Identifier: BSD-3-Clause */
/* import_files.h - the files of tests/data/import in memory, for tests */
#ifndef IMPORT_FILES_H
#define IMPORT_FILES_H

#include <stdarg.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kvarc.h"

/* Bytes in memory; as a sink it grows. */
struct blob {
	uint8_t *p;
	size_t n, cap;
	int fail_after; /* writes that succeed, -1: all */
};

/* Fails the test when there is no such file. */
struct blob blob_load(const char *name);
struct blob blob_copy(const struct blob *b);
void blob_free(struct blob *b);
kvarc_source blob_source(struct blob *b);
kvarc_sink blob_sink(struct blob *b);

/* Ends a test that needs files which this build does not read (jansson or
 * libarchive was left out). */
void needs_all_parts(void);
bool reads_containers(void);
bool reads_safetensors(void);

/* What import_open is expected to find in a file. */
struct expected {
	const char *name;
	const char *format; /* start of it */
	const char *note;   /* part of it; NULL: there must be none */
	unsigned items, tracks, tensors;
	uint64_t tensor_bytes;
};
extern const struct expected import_files[];
extern const size_t n_import_files;

/* An allocator that fails from the nth allocation on and counts what is held. */
struct failing {
	kvarc_allocator fn;
	long left, held;
};
void failing_init(struct failing *f, long allocations);

/* A pipe over a blob: offsets go forward without gaps. */
struct blob_pipe {
	struct blob *b;
	uint64_t at;
};

/* The pipe as a source. */
kvarc_source pipe_source(struct blob_pipe *pipe);
/* A reader of an archive; pipe: NULL, or memory of the pipe that it is read from. */
kvarc_reader *read_archive(struct blob *archive, struct blob_pipe *pipe, unsigned threads);

#endif
