/* SPDX-License-Identifier: BSD-3-Clause */
/* cufile.h - NVIDIA's cuFile (GPUDirect Storage): reads a file into the memory of a device */
#ifndef KVI_CUFILE_H
#define KVI_CUFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Values of the ABI of cuFile (cufile.h). */
enum {
	KVI_CUFILE_SUCCESS = 0,
	KVI_CUFILE_ALREADY_OPEN = 5026, /* somebody else has opened its driver */
	/* kinds of files: a descriptor */
	KVI_CUFILE_DESCRIPTOR = 1
};

/* CUfileError_t. */
struct kvi_cufile_error {
	int error, driver;
};
/* CUfileDescr_t. */
struct kvi_cufile_file {
	int kind;
	union {
		int descriptor;
		void *other;
	} of;
	const void *operations; /* of file systems in user space */
};

/* cuFile: each call is that of its name in cufile.h. */
struct kvi_cufile {
	bool tried, ready;
	struct kvi_cufile_error (*driver_open)(void);
	struct kvi_cufile_error (*file_register)(void **file, struct kvi_cufile_file *of);
	void (*file_deregister)(void *file);
	/* returns how many bytes were read; below 0: none */
	ssize_t (*read)(void *file, void *memory, size_t bytes, off_t offset, off_t at);
};

/*
 * Loads the library in `file` (NULL: libcufile.so.0, where the kernel has nvidia-fs; "": none) and
 * opens its driver, at the first call; both stay in the process, which may use them otherwise. A
 * context of CUDA is current. c: zeros at first. Returns whether files can be read with it.
 */
bool kvi_cufile_load(struct kvi_cufile *c, const char *file);

/* A file that cuFile reads. cufile NULL: it reads none. */
struct kvi_direct_file {
	const struct kvi_cufile *cufile;
	void *handle;
	int descriptor;
};

/* Opens the regular file of a descriptor, which stays the caller's, once more, without the page
 * cache. cufile: ready. Returns whether it can be read; x can be closed either way. */
bool kvi_direct_open(struct kvi_direct_file *x, const struct kvi_cufile *cufile, int descriptor);
/* Reads bytes from an offset of the file to address + at in the device, whose context is current,
 * and waits for them, not for streams. False: not all of them were read, those at address + at are
 * anything. */
bool kvi_direct_read(const struct kvi_direct_file *x, uint64_t address, uint64_t at, size_t bytes,
                     uint64_t offset);
/* Sets cufile to NULL; zeros will do. */
void kvi_direct_close(struct kvi_direct_file *x);

#endif
