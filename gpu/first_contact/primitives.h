/* SPDX-License-Identifier: BSD-3-Clause */
/* primitives.h - how much primitives_body.h takes and makes, and the same on the host */
#ifndef KVI_GPU_PRIMITIVES_H
#define KVI_GPU_PRIMITIVES_H

#include <stdint.h>

/* Numbers of each lane that go in and come out; those from PRIMITIVE_FLOATS on are fp32, of which
 * none may be infinite or no number. */
enum { PRIMITIVE_INPUTS = 23, PRIMITIVE_FLOATS = 20, PRIMITIVE_RESULTS = 104 };

#ifdef __cplusplus
extern "C" {
#endif
/* Results of a warp on the host; names: of each. in, out: 32 lanes of a number, then of the next.
 * bytes: n, more than 240, at a multiple of 8. */
void primitives_host(const uint32_t *in, uint32_t *out, const uint8_t *bytes, uint32_t n,
                     const char *names[PRIMITIVE_RESULTS]);
#ifdef __cplusplus
}
#endif

#endif
