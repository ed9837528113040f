/* SPDX-License-Identifier: BSD-3-Clause */
/* elementwise_avx512.c - elementwise.h with AVX-512 */
#include "config.h"

#include "exact/elementwise_body.h"

KVI_ELEMENTWISE(kvi_elementwise_avx512);
