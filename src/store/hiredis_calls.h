/* SPDX-License-Identifier: BSD-3-Clause */
/* hiredis_calls.h - the calls of hiredis, linked or of the host's library, by their own names */
#ifndef KVI_HIREDIS_CALLS_H
#define KVI_HIREDIS_CALLS_H

#include "kvarc.h"

struct kvi_hiredis;
/*
 * Table of the calls that the names below use; it never changes, and any thread may use it. With
 * --with-hiredis=dlopen the first successful call opens the library. The caller asks for it before
 * any other call. Returns NULL where there is no library: *error, which may be NULL, says what to
 * do (OPTIONS).
 */
const struct kvi_hiredis *kvi_hiredis(kvarc_error *error);

#ifdef HAVE_HIREDIS

#include <hiredis/hiredis.h>

#ifdef HIREDIS_DLOPEN

#include "util/shared_library.h"

/* All that is used. */
#define KVI_HIREDIS_CALLS(X)       \
	X(freeReplyObject)         \
	X(redisAppendCommandArgv)  \
	X(redisBufferRead)         \
	X(redisBufferWrite)        \
	X(redisCommandArgv)        \
	X(redisConnectWithTimeout) \
	X(redisFree)               \
	X(redisGetReplyFromReader) \
	X(redisSetTimeout)

/* A pointer to each. */
struct kvi_hiredis {
	KVI_HIREDIS_CALLS(KVI_LIBRARY_POINTER)
};

#ifndef KVI_LIBRARY_TABLE
#define freeReplyObject (kvi_hiredis(NULL)->freeReplyObject)
#define redisAppendCommandArgv (kvi_hiredis(NULL)->redisAppendCommandArgv)
#define redisBufferRead (kvi_hiredis(NULL)->redisBufferRead)
#define redisBufferWrite (kvi_hiredis(NULL)->redisBufferWrite)
#define redisCommandArgv (kvi_hiredis(NULL)->redisCommandArgv)
#define redisConnectWithTimeout (kvi_hiredis(NULL)->redisConnectWithTimeout)
#define redisFree (kvi_hiredis(NULL)->redisFree)
#define redisGetReplyFromReader (kvi_hiredis(NULL)->redisGetReplyFromReader)
#define redisSetTimeout (kvi_hiredis(NULL)->redisSetTimeout)
#endif

#else

/* The names are those of the linker. */
struct kvi_hiredis {
	char linked;
};

#endif
#endif

#endif
