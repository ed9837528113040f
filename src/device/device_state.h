/* SPDX-License-Identifier: BSD-3-Clause */
/* device_state.h - what a device handle has */
#ifndef KVI_DEVICE_STATE_H
#define KVI_DEVICE_STATE_H

#include <stdbool.h>

#include <kvarc/device.h>

#include "driver.h"
#include "util/alloc.h"

/* A device. context is current between kvi_device_enter and kvi_device_leave alone. */
struct kvarc_device {
	struct kvi_alloc alloc;
	kvarc_common common;
	kvarc_error *error;
	struct kvi_driver driver;
	kvarc_device_info info;
	int device;      /* CUdevice */
	void *context;   /* CUcontext */
	bool is_primary; /* context is the primary one of the device, retained */
	void *module;    /* CUmodule of the kernels */
};

/* Makes the context of d current in this thread. Returns OK, or IO: then nothing is to be left. */
kvarc_ret kvi_device_enter(struct kvarc_device *d);
/* Makes the context current that was so before. */
void kvi_device_leave(struct kvarc_device *d);

/* Copies bytes to the device, whose context is current, in the order of a stream; the caller may
 * use them as soon as it returns. Returns OK, IO, MEM. */
kvarc_ret kvi_device_copy(const struct kvarc_device *d, uint64_t to, const void *from, size_t bytes,
                          void *stream);

/* Reads the file of the kernels (NULL: the installed one) and loads them into the context, which
 * is current. Returns OK, OPTIONS, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_device_load_kernels(struct kvarc_device *d, const char *file);

#endif
