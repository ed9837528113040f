/* SPDX-License-Identifier: BSD-3-Clause */
/* checked.h - arithmetic that reports overflow */
#ifndef KVARC_CLI_CHECKED_H
#define KVARC_CLI_CHECKED_H

/* Add and multiply any integer types; *r gets the result, wrapped when it overflows. Return whether
 * it does. */
#define checked_add(a, b, r) __builtin_add_overflow((a), (b), (r))
#define checked_mul(a, b, r) __builtin_mul_overflow((a), (b), (r))

#endif
