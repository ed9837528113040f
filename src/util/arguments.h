/* SPDX-License-Identifier: BSD-3-Clause */
/* arguments.h - checks of the structs that callers fill, and the handle that is made of them */
#ifndef KVI_ARGUMENTS_H
#define KVI_ARGUMENTS_H

#include "kvarc.h"

/*
 * Checks return OK or PROG; then *error (NULL: nothing) names the call and the member. A struct may
 * be NULL where its check says so.
 */

/* Whether all bytes are zero. */
int kvi_all_zero(const void *p, size_t bytes);
/* Checks that the reserved members of a struct, which `what` names, are zero. */
kvarc_ret kvi_check_reserved(kvarc_error *error, const char *call, const char *what,
                             const void *reserved, size_t bytes);
/* kvi_check_reserved for the member `reserved` of a struct. */
#define KVI_CHECK_RESERVED(e, call, what, s) \
	kvi_check_reserved(e, call, what, (s)->reserved, sizeof(s)->reserved)
/* Checks common options, and the structs that they point to. */
kvarc_ret kvi_check_common(const kvarc_common *common);
/* Checks a source that is read, or (memory) also one in memory; NULL is PROG. */
kvarc_ret kvi_check_source(kvarc_error *error, const char *call, const kvarc_source *source,
                           int memory);
/* Checks a sink; NULL is PROG. */
kvarc_ret kvi_check_sink(kvarc_error *error, const char *call, const kvarc_sink *sink);
/* Checks view i, of the first rows of a tensor, to be read or written: all its elements have bytes
 * of their own. */
kvarc_ret kvi_check_view(kvarc_error *error, const char *call, const kvarc_view *view, size_t i,
                         const kvarc_tensor *tensor, uint64_t rows);
/*
 * Makes a handle: *out (a pointer to a pointer) gets `bytes` zeroed bytes, whose struct kvi_alloc,
 * at offset `at`, counts the handle itself. Its owner frees the handle with that allocator, last.
 * On failure *out is NULL and common->error is filled. Returns OK, MEM, MEMLIMIT, PROG (common
 * options).
 */
kvarc_ret kvi_handle_new(void *out, size_t bytes, size_t at, const kvarc_common *common,
                         uint64_t limit);

#endif
