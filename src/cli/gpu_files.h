/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_files.h - pack --device and unpack --device: tokens of files on their way through a GPU */
#ifndef KVARC_CLI_GPU_FILES_H
#define KVARC_CLI_GPU_FILES_H

#include "gpu.h"

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
