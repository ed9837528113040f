/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cufile_stand_in.c - stands for NVIDIA's cuFile in tests, where there is no GPU: a mock, in whose
 * "device" memory is the host's, as in that of driver_stand_in.cc
 *
 * The environment variable KVARC_CUFILE_STAND_IN has what is to go wrong: "no-driver",
 * "already-open" (which is not wrong), "no-file" (files are not taken), and of all reads of a file
 * but the first one "short" (a byte is missing), "error", "nothing" (no byte is read).
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cufile.h"

/* Errors of cuFile, a block of files that are read past the page cache, files at a time. */
enum { NOT_INITIALIZED = 5001, INVALID_VALUE = 5022, INTERNAL = 5030, BLOCK = 4096, FILES = 4 };

struct mock_file {
	int descriptor;
	unsigned reads;
	bool used;
};
static struct mock_file files[FILES];
static uint64_t bytes_read;
static bool opened;

static bool wanted(const char *fault)
{
	const char *x = getenv("KVARC_CUFILE_STAND_IN");
	return x && !strcmp(x, fault);
}

static struct kvi_cufile_error answer(int error)
{
	return (struct kvi_cufile_error){ error, 0 };
}

struct kvi_cufile_error cuFileDriverOpen(void);
struct kvi_cufile_error cuFileDriverOpen(void)
{
	opened = !wanted("no-driver");
	return answer(!opened                  ? NOT_INITIALIZED
	              : wanted("already-open") ? KVI_CUFILE_ALREADY_OPEN
	                                       : KVI_CUFILE_SUCCESS);
}

struct kvi_cufile_error cuFileHandleRegister(void **file, struct kvi_cufile_file *of);
struct kvi_cufile_error cuFileHandleRegister(void **file, struct kvi_cufile_file *of)
{
	const int flags = fcntl(of->of.descriptor, F_GETFL);
	if (!opened)
		return answer(NOT_INITIALIZED);
	if (wanted("no-file"))
		return answer(INTERNAL);
	if (of->kind != KVI_CUFILE_DESCRIPTOR || of->operations || flags < 0 || !(flags & O_DIRECT))
		return answer(INVALID_VALUE);
	for (size_t i = 0; i < FILES; i++)
		if (!files[i].used) {
			files[i] = (struct mock_file){ of->of.descriptor, 0, true };
			*file = &files[i];
			return answer(KVI_CUFILE_SUCCESS);
		}
	return answer(INTERNAL);
}

void cuFileHandleDeregister(void *file);
void cuFileHandleDeregister(void *file)
{
	/* its descriptor is still open */
	if (fcntl(((struct mock_file *)file)->descriptor, F_GETFL) < 0)
		abort();
	((struct mock_file *)file)->used = false;
}

/* Reads whole blocks, which is all that such a descriptor can do. */
static ssize_t read_blocks(int descriptor, uint8_t *to, size_t bytes, off_t offset)
{
	const size_t skip = (size_t)offset % BLOCK;
	const size_t all = (skip + bytes + BLOCK - 1) / BLOCK * BLOCK;
	uint8_t *blocks = aligned_alloc(BLOCK, all);
	if (!blocks)
		return -INTERNAL;
	ssize_t n = pread(descriptor, blocks, all, offset - (off_t)skip);
	if (n >= 0) {
		n = (size_t)n < skip ? 0 : n - (ssize_t)skip;
		n = (size_t)n > bytes ? (ssize_t)bytes : n;
		memcpy(to, blocks + skip, (size_t)n);
	}
	free(blocks);
	return n;
}

ssize_t cuFileRead(void *file, void *memory, size_t bytes, off_t offset, off_t at);
ssize_t cuFileRead(void *file, void *memory, size_t bytes, off_t offset, off_t at)
{
	struct mock_file *f = file;
	uint8_t *to = (uint8_t *)memory + at;
	const bool later = f->reads++ > 0;
	if (later && wanted("nothing"))
		return 0;
	if (later && wanted("error")) {
		memset(to, 0x5a, bytes);
		errno = EIO;
		return -1;
	}
	const ssize_t n = read_blocks(f->descriptor, to, bytes - (later && wanted("short")),
	                              offset);
	bytes_read += n > 0 ? (uint64_t)n : 0;
	return n;
}

/* For tests: files that are registered; bytes that were read, and how many from now on. */
void *stand_in_files(void);
void *stand_in_files(void)
{
	uintptr_t n = 0;
	for (size_t i = 0; i < FILES; i++)
		n += files[i].used;
	return (void *)n;
}
void *stand_in_bytes(void);
void *stand_in_bytes(void)
{
	const uintptr_t n = (uintptr_t)bytes_read;
	bytes_read = 0;
	return (void *)n;
}
