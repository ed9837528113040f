/* SPDX-License-Identifier: BSD-3-Clause */
/* fits_avx2.c - fits in vectors of 256 bits */
#include "config.h"

#define FIT(name) kvi_avx2_##name
#define FIT_BYTES 32
#include "fits_body.h"
