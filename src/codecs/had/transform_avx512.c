/* SPDX-License-Identifier: BSD-3-Clause */
/* transform_avx512.c - transform.h with AVX-512 */
#include "config.h"

#include "codecs/had/transform_body.h"

KVI_TRANSFORM(kvi_transform_avx512, "avx512");
