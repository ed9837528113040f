/* SPDX-License-Identifier: BSD-3-Clause */
/* error.h - fills the caller's kvarc_error with one clear line */
#ifndef KVI_ERROR_H
#define KVI_ERROR_H

#include "kvarc.h"

/*
 * Returns code. e may be NULL. offset and frame are KVARC_UNKNOWN when they
 * mean nothing. The text says what happened, where, and what to do next; it
 * never holds bytes of a cache.
 */
kvarc_ret kvi_fail(kvarc_error *e, kvarc_ret code, uint64_t offset,
                   uint64_t frame, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* The error of a failed allocation: MEM or MEMLIMIT, with its text. */
struct kvi_alloc;
kvarc_ret kvi_fail_alloc(kvarc_error *e, const struct kvi_alloc *alloc);

#endif
