/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_device.h - bench --device: a cache in the memory of a GPU, coded there */
#ifndef KVARC_CLI_BENCH_DEVICE_H
#define KVARC_CLI_BENCH_DEVICE_H

#include "bench_cache.h"
#include "gpu.h"

/*
 * Copies a cache to the GPU, encodes it from there, decodes it into other memory of the GPU, and
 * compares. Lowers the times of run (0: none yet); sets its memory of the GPU, its chunks, and
 * those that the host encoded. file: name for messages. false: a message was shown.
 */
bool bench_device_run(struct bench_cache *cache, const struct work_options *work, const char *file,
                      struct gpu *gpu, struct bench_run *run);

#endif
