/* SPDX-License-Identifier: BSD-3-Clause */
/* error.h - fills the caller's kvarc_error with one clear line */
#ifndef KVI_ERROR_H
#define KVI_ERROR_H

#include <stdarg.h>

#include "kvarc.h"

/*
 * Fills *error, if error is not NULL, and returns code. The text says what happened, where, and
 * what to do next; it never holds bytes of a cache. Any thread, as long as error is its own.
 */
kvarc_ret kvi_fail(kvarc_error *error, kvarc_ret code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* kvi_fail for an error at a byte offset of the file, in the frame of a sequence number;
 * KVARC_UNKNOWN where one of them means nothing. */
kvarc_ret kvi_fail_at(kvarc_error *error, kvarc_ret code, uint64_t offset, uint64_t frame,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
/* kvi_fail with arguments in a list. */
kvarc_ret kvi_vfail(kvarc_error *error, kvarc_ret code, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));
/* Sets the reason in *error (NULL: nothing), which holds a failure, and returns ret:
 * return kvi_reason(error, KVARC_REASON_SALVAGE, kvi_fail(error, ...)); */
kvarc_ret kvi_reason(kvarc_error *error, kvarc_reason reason, kvarc_ret ret);
/* Fails with GEOMETRY: there is no such track among n. */
kvarc_ret kvi_fail_track(kvarc_error *error, uint32_t track, size_t n);

/* Fails with IO at an offset of the file, because a callback of the caller failed. The text of
 * errno follows, if it is not 0: the caller of the callback has set it to 0 before. */
kvarc_ret kvi_fail_callback(kvarc_error *error, uint64_t offset, uint64_t frame, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));

struct kvi_alloc;
/* Fills *error, if error is not NULL, for a failed allocation of alloc. Returns MEM or MEMLIMIT. */
kvarc_ret kvi_fail_alloc(kvarc_error *error, const struct kvi_alloc *alloc);
/* Gives MEM and MEMLIMIT of calls that fill no error the text of kvi_fail_alloc; returns ret. */
kvarc_ret kvi_fail_memory(kvarc_error *error, kvarc_ret ret, const struct kvi_alloc *alloc);

#endif
