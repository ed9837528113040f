/* SPDX-License-Identifier: BSD-3-Clause */
/* cufile.c - NVIDIA's cuFile (GPUDirect Storage): reads a file into the memory of a device */
#include "config.h"

#include "cufile.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/shared_library.h"

#define CUFILE_FILE "libcufile.so.0"
/* There with NVIDIA's kernel module. Without it cuFile copies through the host, too, and writes a
 * log into the current folder. */
#define MODULE_FOLDER "/proc/driver/nvidia-fs"

#define CALL(name, member)                                \
	{                                                 \
		name, offsetof(struct kvi_cufile, member) \
	}

static const struct kvi_library_call calls[] = {
	CALL("cuFileDriverOpen", driver_open),
	CALL("cuFileHandleRegister", file_register),
	CALL("cuFileHandleDeregister", file_deregister),
	CALL("cuFileRead", read),
};

bool kvi_cufile_load(struct kvi_cufile *c, const char *file)
{
	const char *missing;
	if (c->tried)
		return c->ready;
	c->tried = true;
	if (file ? !*file : access(MODULE_FOLDER, F_OK) != 0)
		return false;
	if (!kvi_library_open(file ? file : CUFILE_FILE, calls, sizeof calls / sizeof *calls, c,
	                      &missing) ||
	    missing)
		return false;
	/* never closed: it is one for the process */
	const struct kvi_cufile_error opened = c->driver_open();
	c->ready = opened.error == KVI_CUFILE_SUCCESS || opened.error == KVI_CUFILE_ALREADY_OPEN;
	return c->ready;
}

/* Another description of the same file: flags of a description are for all who have it. */
static int open_again(int descriptor)
{
	char path[64];
	struct stat st;
	if (fstat(descriptor, &st) || !S_ISREG(st.st_mode))
		return -1;
	snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
	return open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

bool kvi_direct_open(struct kvi_direct_file *x, const struct kvi_cufile *cufile, int descriptor)
{
	*x = (struct kvi_direct_file){ .descriptor = open_again(descriptor) };
	if (x->descriptor < 0)
		return false;
	struct kvi_cufile_file of = { .kind = KVI_CUFILE_DESCRIPTOR,
		                      .of.descriptor = x->descriptor };
	if (cufile->file_register(&x->handle, &of).error) {
		close(x->descriptor);
		return false;
	}
	x->cufile = cufile;
	return true;
}

bool kvi_direct_read(const struct kvi_direct_file *x, uint64_t address, uint64_t at, size_t bytes,
                     uint64_t offset)
{
	const ssize_t n = x->cufile->read(x->handle, (void *)(uintptr_t)address, bytes,
	                                  (off_t)offset, (off_t)at);
	return n >= 0 && (size_t)n == bytes;
}

void kvi_direct_close(struct kvi_direct_file *x)
{
	if (!x->cufile)
		return;
	x->cufile->file_deregister(x->handle);
	close(x->descriptor);
	x->cufile = NULL;
}
