/* SPDX-License-Identifier: BSD-3-Clause */
/* primitives.cu - the primitives on a GPU (primitives_body.h), a warp a trial */
#include "primitives_body.h"

extern "C" __global__ void __launch_bounds__(128)
	kvi_contact_primitives(uint64_t in, uint64_t out, uint64_t bytes, uint32_t n,
                               uint32_t trials)
{
	const uint32_t trial = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	if (trial < trials)
		all_primitives(in + (uint64_t)trial * PRIMITIVE_INPUTS * 128,
		               out + (uint64_t)trial * PRIMITIVE_RESULTS * 128, bytes, n, nullptr);
}
