/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvarc/store.h - stores of sessions, in a folder, S3 or Redis
 *
 * These calls are in libkvarc-store, which needs the libkvarc of the same version.
 */
#ifndef KVARC_STORE_H
#define KVARC_STORE_H

#include <kvarc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvarc_store kvarc_store;

/* Frees a store and sets *store to NULL; NULL-safe. */
KVARC_API void kvarc_store_close(kvarc_store **store);

#ifdef __cplusplus
}
#endif

#endif
