/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_import.h - pack a file, unpack it, compare */
#ifndef FUZZ_IMPORT_H
#define FUZZ_IMPORT_H

#include "fuzz_common.h"

/* options.common is taken from env. one: exactly one item comes back and it is
 * the input, byte for byte; otherwise (containers) only sizes are compared. */
void fuzz_import(const uint8_t *data, size_t n, struct fuzz_env *env, kvarc_import_options *options,
                 const char *name, bool one);

#endif
