/* SPDX-License-Identifier: BSD-3-Clause */
/* transform_avx2.c - transform.h with AVX2 */
#include "config.h"

#include "codecs/had/transform_body.h"

KVI_TRANSFORM(kvi_transform_avx2, "avx2");
