/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_device.h - bench --device: a cache in the memory of a GPU, coded there */
#ifndef KVARC_CLI_BENCH_DEVICE_H
#define KVARC_CLI_BENCH_DEVICE_H

#include "bench_cache.h"
#include "gpu.h"

/*
 * Encodes a cache from memory of the GPU, decodes it into that, and compares; records the fastest
 * times, the memory of the GPU and the chunks of the host in run. false: a message was shown.
 */
bool bench_device_run(struct bench_cache *cache, const struct options *options, const char *file,
                      struct gpu *gpu, struct bench_run *run);

#endif
