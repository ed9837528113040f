/* SPDX-License-Identifier: BSD-3-Clause */
/* ckd.h - checked arithmetic; true means overflow, as in C23 stdckdint.h */
#ifndef KVI_CKD_H
#define KVI_CKD_H

#include <stdbool.h>
#include <stddef.h>

/* Sum, difference and product of any integer types; the result is stored wrapped when it
 * overflows. */
#define kvi_add(a, b, r) __builtin_add_overflow((a), (b), (r))
#define kvi_sub(a, b, r) __builtin_sub_overflow((a), (b), (r))
#define kvi_mul(a, b, r) __builtin_mul_overflow((a), (b), (r))

#endif
