/* SPDX-License-Identifier: BSD-3-Clause */
/* fits_scalar.c - fits in the vectors that every processor of an architecture has */
#include "config.h"

#define FIT(name) kvi_scalar_##name
#define FIT_BYTES 16
#include "fits_body.h"
