/* SPDX-License-Identifier: BSD-3-Clause */
/* driver.h - the calls of NVIDIA's driver that are used, loaded at run time */
#ifndef KVI_DRIVER_H
#define KVI_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include <kvarc.h>

/* Values of the driver's ABI (cuda.h), which does not change between its versions. */
enum {
	KVI_CU_OUT_OF_MEMORY = 2,
	KVI_CU_NO_DEVICE = 100,
	KVI_CU_INVALID_DEVICE = 101,
	KVI_CU_INVALID_IMAGE = 200,
	KVI_CU_NO_BINARY = 209,
	KVI_CU_UNSUPPORTED_PTX = 222,
	KVI_CU_NOT_FOUND = 500,
	/* attributes of a device */
	KVI_CU_MULTIPROCESSORS = 16,
	KVI_CU_MAJOR = 75,
	KVI_CU_MINOR = 76,
	/* a stream that does not wait for the default one; an event that is no clock */
	KVI_CU_STREAM_NON_BLOCKING = 1,
	KVI_CU_EVENT_NO_TIMING = 2,
	/* attribute of a kernel, and what one may have of it on every GPU since sm_80 */
	KVI_CU_MAX_SHARED = 8,
	KVI_SHARED_MOST = 99 << 10
};

/* The driver: each member is the call of its name in cuda.h; pointers are its handles. */
struct kvi_driver {
	void *library;
	int (*init)(unsigned flags);
	int (*version)(int *version);
	int (*error_name)(int result, const char **name);
	int (*error_text)(int result, const char **text);
	int (*device_count)(int *n);
	int (*device_get)(int *device, int ordinal);
	int (*device_name)(char *name, int bytes, int device);
	int (*device_memory)(size_t *bytes, int device);
	int (*device_attribute)(int *value, int attribute, int device);
	int (*primary_retain)(void **context, int device);
	int (*primary_release)(int device);
	int (*context_push)(void *context);
	int (*context_pop)(void **context);
	int (*context_device)(int *device);
	int (*module_load)(void **module, const void *image);
	int (*module_unload)(void *module);
	int (*module_function)(void **function, void *module, const char *name);
	int (*function_attribute)(void *function, int attribute, int value);
	int (*function_load)(void *function); /* NULL: a driver older than CUDA 12.4 */
	int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
	              void *stream, void **arguments, void **extra);
	int (*copy_to_device)(uint64_t to, const void *from, size_t bytes, void *stream);
	int (*copy_to_host)(void *to, uint64_t from, size_t bytes, void *stream);
	int (*stream_wait)(void *stream);
	int (*stream_create)(void **stream, unsigned flags);
	int (*stream_destroy)(void *stream);
	int (*stream_wait_event)(void *stream, void *event, unsigned flags);
	int (*event_create)(void **event, unsigned flags);
	int (*event_destroy)(void *event);
	int (*event_record)(void *event, void *stream);
	int (*event_wait)(void *event);
	int (*host_alloc)(void **memory, size_t bytes, unsigned flags);
	int (*host_free)(void *memory);
	int (*memory_alloc)(uint64_t *address, size_t bytes);
	int (*memory_free)(uint64_t address);
};

/*
 * Loads the driver in `file` (NULL: libcuda.so.1) and initialises it. It stays in the process,
 * which may use it otherwise. Returns OK, OPTIONS (no driver, too old a driver, no GPU), IO.
 */
kvarc_ret kvi_driver_load(struct kvi_driver *driver, const char *file, kvarc_error *error);
/* Unloads the driver; accepts the result of a load that failed, too. */
void kvi_driver_unload(struct kvi_driver *driver);

/* Fills *error for a call of the driver that gave `result`, not 0; `what` begins the line.
 * Returns MEM when the GPU has no memory left, otherwise `code`. */
kvarc_ret kvi_driver_fail(const struct kvi_driver *driver, kvarc_error *error, kvarc_ret code,
                          int result, const char *what);

#endif
