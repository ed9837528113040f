/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.h - the GPU of --device, and memory of it */
#ifndef KVARC_CLI_GPU_H
#define KVARC_CLI_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include <kvarc/device.h>

#include "options.h"

/* Memory of the GPU that grows. */
struct gpu_memory {
	uint64_t at, bytes;
};

/* A GPU. d: NULL, there is none. */
struct gpu {
	kvarc_device *d;
	kvarc_device_info info;
	kvarc_error error; /* error of d */
	/* memory for the current plan; staging and work belong to it, too */
	struct gpu_memory staging, work, status;
	void *words; /* a copy of status, status.bytes of it */
};

/* Tokens that are coded at once: what they take in the memory of a GPU is bounded. */
enum { GPU_TOKENS = 2048 };

/* Opens the GPU of --device; without one true, and nothing is done. false: a message was shown. */
bool gpu_open(struct gpu *gpu, const struct options *options);
/* Closes it, and frees its memory. */
void gpu_close(struct gpu *gpu);

/* Makes memory large enough; what was in it is lost. Returns OK, MEM, IO. */
kvarc_ret gpu_reserve(struct gpu *gpu, struct gpu_memory *memory, uint64_t bytes);
/* Number of the next n tokens of a track, from t0 on, that a plan that writes has at most. */
uint64_t gpu_batch(const kvarc_writer *w, uint32_t track, uint64_t t0, uint64_t n);
/* Brings a plan's chunks, or parameters, to the GPU; info is that of the plan. Returns as
 * kvarc_device_stage and kvarc_device_place do. */
kvarc_ret gpu_place(struct gpu *gpu, kvarc_device_plan *plan, const kvarc_device_view *views,
                    kvarc_device_plan_info *info);
/* Decodes a plan that is placed, and waits for its answers. Returns as kvarc_device_plan_answer. */
kvarc_ret gpu_decode(struct gpu *gpu, kvarc_device_plan *plan, const kvarc_device_plan_info *info);

#endif
