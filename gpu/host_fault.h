/* SPDX-License-Identifier: BSD-3-Clause */
/* host_fault.h - how a kernel that runs on the host reports a wrong access */
#ifndef KVI_GPU_HOST_FAULT_H
#define KVI_GPU_HOST_FAULT_H

#include <stddef.h>
#include <stdint.h>

/* Prints what an access of a kernel did wrong, and aborts: tests alone run kernels on the host. */
__attribute__((noreturn, cold)) void kvi_gpu_host_fault(const char *what, uint64_t at, size_t bytes,
                                                        size_t limit);

#endif
