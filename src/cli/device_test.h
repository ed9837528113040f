/* SPDX-License-Identifier: BSD-3-Clause */
/* device_test.h - test --device: decodes archives on a GPU, too */
#ifndef KVARC_CLI_DEVICE_TEST_H
#define KVARC_CLI_DEVICE_TEST_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc.h"
#include "options.h"

/* The GPU of --device; true without one. false: a message was shown. */
bool device_test_open(const struct options *options);
/* Closes it. */
void device_test_close(void);

/* Work of a GPU. name: NULL, there is none. */
struct device_sum {
	const char *name;
	uint64_t chunks, host_chunks; /* decoded; of these by the host */
};
/* Decodes all tracks of an archive on the GPU and compares the checks of their chunks. Without a
 * GPU it does nothing. error is that of r, and gets failures of the GPU, too. */
kvarc_ret device_test_run(kvarc_reader *r, kvarc_error *error, struct device_sum *sum);

#endif
