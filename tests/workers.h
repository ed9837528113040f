/* SPDX-License-Identifier: BSD-3-Clause */
/* workers.h - divides a test among processes, so that a crash of one fails it */
#ifndef KV_TEST_WORKERS_H
#define KV_TEST_WORKERS_H

#include <stddef.h>

enum { WORKERS_MAX = 8 };

/* Worker w of count: fills result, which is zeroed. */
typedef void workers_task(const void *opaque, unsigned w, unsigned count, void *result);

/*
 * Runs a task in a process a processor, WORKERS_MAX at most. Result w of worker w goes to
 * results + w * bytes, each at most 512 bytes. Returns the number of workers; ends the test when
 * one of them failed.
 */
unsigned workers_run(workers_task *task, const void *opaque, void *results, size_t bytes);

/* When KV_QUICK is set, a worker takes one place in 29 of its own. */
void workers_quick(unsigned *w, unsigned *count);

#endif
