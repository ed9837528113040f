/* SPDX-License-Identifier: BSD-3-Clause */
/* elementwise_avx2.c - elementwise.h with AVX2 */
#include "config.h"

#include "exact/elementwise_body.h"

KVI_ELEMENTWISE(kvi_elementwise_avx2);
