/* SPDX-License-Identifier: BSD-3-Clause */
/* device_state.h - what a device handle has */
#ifndef KVI_DEVICE_STATE_H
#define KVI_DEVICE_STATE_H

#include <stdbool.h>

#include <kvarc/device.h>

#include "driver.h"
#include "util/alloc.h"

/* The name of a kernel, and whether its blocks share more memory than every kernel's may. */
struct kvi_kernel_name {
	const char *name;
	bool shares;
};
/* The kernels of a module, loaded, so that launches do nothing else and can be captured. */
struct kvi_module {
	void *module; /* CUmodule */
	const struct kvi_kernel_name *names;
	size_t n;
	void *functions[]; /* CUfunction, by name */
};

/* Buffers of pinned memory: those for what is staged, and for copies in the order of a stream. */
enum {
	KVI_STAGING_BUFFERS = 2,
	KVI_STAGING_BYTES = 2 << 20,
	KVI_ORDERED_BUFFERS = 16,
	KVI_ORDERED_BYTES = 256 << 10
};
/* Some of them, which take turns. */
struct kvi_copies {
	uint8_t *memory; /* n buffers of `bytes` */
	size_t bytes;
	unsigned n, next;                /* next: number of the one whose turn it is */
	void *done[KVI_ORDERED_BUFFERS]; /* CUevent of the last copy from each */
};

/* A device. context is current between kvi_device_enter and kvi_device_leave alone. */
struct kvarc_device {
	struct kvi_alloc alloc;
	kvarc_common common;
	kvarc_error *error;
	struct kvi_driver driver;
	kvarc_device_info info;
	int device;                  /* CUdevice */
	void *context;               /* CUcontext */
	bool is_primary;             /* context is the primary one of the device, retained */
	struct kvi_module *module;   /* kernels that decode */
	struct kvi_module *encoders; /* NULL: not loaded yet */
	struct kvi_module *exact;    /* of the exact engine; NULL: not loaded yet */
	struct kvi_copies staging, ordered;
	void *stream;              /* CUstream of what is staged */
	void *staged;              /* CUevent in it */
	const char *kernels_file;  /* NULL: the installed one */
	const char *encoders_file; /* NULL: the installed one */
	const char *exact_file;
};

/* Makes the context of device current in this thread. Returns OK, or IO: then nothing is to be
 * left. */
kvarc_ret kvi_device_enter(struct kvarc_device *device);
/* Makes the context current that was so before. */
void kvi_device_leave(struct kvarc_device *device);

/* Copies bytes to the device, whose context is current, in the order of a stream; the caller may
 * use them as soon as it returns. Waits where the buffers are full of such copies that have not run
 * yet, for the oldest. In the
 * device's own stream it takes the buffers for staging. Returns OK, IO, MEM. */
kvarc_ret kvi_device_copy(struct kvarc_device *device, uint64_t to, const void *from, size_t bytes,
                          void *stream);

/*
 * Copies in the device's own stream, which waits for no other. *buffer: KVI_STAGING_BYTES to be
 * filled and sent before the next one is taken. The context is current. All return OK, IO, MEM.
 */
kvarc_ret kvi_staging_take(struct kvarc_device *device, uint8_t **buffer);
/* Copies the first bytes of it. */
kvarc_ret kvi_staging_send(struct kvarc_device *device, uint64_t to, size_t bytes);

/* Reads the file of some kernels and loads them into the context, which is current, unless they are
 * there. out: the member of the device for them. Returns OK, OPTIONS, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_device_load(struct kvarc_device *device, struct kvi_module **out);

/* Parameters of one launch of a kernel; threads: per block. */
struct kvi_launch {
	const char *name;
	uint32_t grid_x, grid_y, threads, shared_bytes, grid_z;
};
/* Threads of a block: of kernels that take a warp a chunk or a token, and a warp a stream. */
enum {
	KVI_WARP = 32,
	KVI_SMALL_WARPS = 4,
	KVI_SMALL_BLOCK = KVI_SMALL_WARPS * KVI_WARP,
	KVI_BLOCK = 8 * KVI_WARP
};
/* Blocks of KVI_SMALL_BLOCK threads for a number of warps. */
static inline uint32_t kvi_blocks_of(uint32_t warps)
{
	return (warps + KVI_SMALL_WARPS - 1) / KVI_SMALL_WARPS;
}
/* Unloads kernels in the context, which is current. NULL-safe. */
void kvi_device_unload(struct kvarc_device *device, struct kvi_module *kernels);
/* Launches a kernel of a module in the context, which is current. Returns OK, IO, MEM. */
kvarc_ret kvi_device_launch(const struct kvarc_device *device, const struct kvi_module *kernels,
                            const struct kvi_launch *launch, void **arguments, void *stream);

#endif
