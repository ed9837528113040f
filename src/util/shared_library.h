/* SPDX-License-Identifier: BSD-3-Clause */
/* shared_library.h - opens a library of the host at run time and finds its calls */
#ifndef KVI_SHARED_LIBRARY_H
#define KVI_SHARED_LIBRARY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "kvarc.h"
#include "shared.h"

/* A call of a library, and where a table of pointers to functions has it. */
struct kvi_library_call {
	const char *name;
	size_t at; /* offset of the pointer in the table */
};

/*
 * Opens a library, which stays in the process, and writes the pointers of n calls to `table`. Any
 * thread. Returns the handle of dlopen, or NULL: dlerror() says why. *missing: NULL, or the name of
 * a call that the library does not have; the table is then not complete.
 */
KVI_SHARED void *kvi_library_open(const char *file, const struct kvi_library_call *calls, size_t n,
                                  void *table, const char **missing);

/* Whether a library is ready. */
struct kvi_library_once {
	pthread_mutex_t lock;
	atomic_bool ready;
};
#define KVI_LIBRARY_ONCE_INIT                    \
	{                                        \
		PTHREAD_MUTEX_INITIALIZER, false \
	}

/* Calls load until it has returned true once; one thread at a time, others wait. load fills the
 * table, or *e, which may be NULL. Returns whether the table is filled. */
KVI_SHARED bool kvi_library_once(struct kvi_library_once *once,
                                 bool (*load)(void *table, kvarc_error *e), void *table,
                                 kvarc_error *e);

#endif
