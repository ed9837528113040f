/* SPDX-License-Identifier: BSD-3-Clause */
/* primitives_host.cc - the primitives on the host (primitives.h) */
#include "primitives_body.h"

void primitives_host(const uint32_t *in, uint32_t *out, const uint8_t *bytes, uint32_t n,
                     const char *names[PRIMITIVE_RESULTS])
{
	all_primitives((uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out,
	               (uint64_t)(uintptr_t)bytes, n, names);
}
