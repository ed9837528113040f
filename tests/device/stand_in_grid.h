/* SPDX-License-Identifier: BSD-3-Clause */
/* stand_in_grid.h - launches of the stand-in of the driver, as its kernels take them */
#ifndef KVI_TEST_STAND_IN_GRID_H
#define KVI_TEST_STAND_IN_GRID_H

#include <cstdint>
#include <cstring>

#include "output_run_body.h"

/* A launch: what kernels need of it. */
struct grid {
	uint32_t x, y, z, warps; /* blocks; warps of a block */
	uint32_t shared_bytes;   /* of a block */
	void **arguments;
};
/* A kernel by its name. */
struct kernel {
	const char *name;
	void (*run)(const grid &g);
};

/* A kernel; NULL: none has this name. */
const kernel *find_kernel(const char *name);
/* A kernel of the exact engine (stand_in_exact.cc); NULL: none has this name. */
const kernel *exact_kernel(const char *name);

/* Number i of the arguments. */
template <typename T> static T argument(const grid &g, int i)
{
	T x;
	memcpy(&x, g.arguments[i], sizeof x);
	return x;
}

#endif
