/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.h - the GPU of --device: its memory, and tokens of files on their way through it */
#ifndef KVI_GPU_H
#define KVI_GPU_H

#include <kvarc/device.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/options.h"

/* ==== The GPU of --device, and memory of it ==== */

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
bool gpu_open(struct gpu *gpu, const struct device_options *device,
              const struct work_options *work);
/* Closes it, and frees its memory. */
void gpu_close(struct gpu *gpu);
/* Makes memory large enough; what was in it is lost. Returns OK, MEM, IO. */
kvarc_ret gpu_reserve(struct gpu *gpu, struct gpu_memory *memory, uint64_t bytes);
/* Number of the next n tokens of a track, from t0 on, that a plan that writes has at most. */
uint64_t gpu_batch(const kvarc_writer *w, uint32_t track, uint64_t t0, uint64_t n);
/* Encodes n tokens, whose elements are where views say, and appends them to an archive; the others
 * as for kvarc_device_plan_write. *info: of the plan. Returns as the calls of kvarc/device.h. */
kvarc_ret gpu_write(struct gpu *gpu, kvarc_writer *w, uint32_t track, uint64_t n,
                    const int32_t *ids, const int32_t *positions, const kvarc_device_view *views,
                    kvarc_device_plan_info *info);
/* Decodes a range to where views say, and waits for it. *info: of the plan; without chunks nothing
 * was decoded. Returns as the calls of kvarc/device.h. */
kvarc_ret gpu_read(struct gpu *gpu, kvarc_reader *r, const kvarc_range *range,
                   const kvarc_device_view *views, kvarc_device_plan_info *info);

/* ==== Pack --device and unpack --device: tokens of files on their way through a GPU ==== */

/* State of coding one file. Begin with the first two members, all else zero; end with
 * gpu_files_free. */
struct gpu_files {
	struct gpu *gpu;
	const kvarc_geometry *geometry;
	struct gpu_memory elements; /* elements of the current tokens, a tensor behind the other */
	uint8_t *host;              /* host copy of elements, or of a part */
	size_t host_bytes;
	kvarc_device_view *views;
	uint64_t chunks, host_chunks; /* coded chunks; of these by the host */
};

/* A kvarc_append_call; opaque is a struct gpu_files. */
kvarc_ret gpu_files_append(void *opaque, kvarc_writer *w, uint32_t track, uint64_t n,
                           const int32_t *ids, const int32_t *positions, kvarc_fetch fetch,
                           void *fetch_opaque);
/* A kvarc_read_call; opaque is a struct gpu_files. */
kvarc_ret gpu_files_read(void *opaque, kvarc_reader *r, const kvarc_range *range,
                         kvarc_deliver deliver, void *deliver_opaque);
/* Says how many chunks the host coded. */
void gpu_files_note(const struct gpu_files *files, const char *file);
/* The error of the GPU in place of *error, where it has one. */
void gpu_files_error(const struct gpu_files *files, kvarc_error *error);
/* Frees the memory. */
void gpu_files_free(struct gpu_files *files);

#endif
