/* SPDX-License-Identifier: BSD-3-Clause */
/* shared_library.h - opens a library of the host at run time and finds its calls */
#ifndef KVI_SHARED_LIBRARY_H
#define KVI_SHARED_LIBRARY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "kvarc.h"

/* A call of a library, and its position in a table of pointers to functions. */
struct kvi_library_call {
	const char *name;
	size_t at; /* offset of the pointer in the table */
};

/*
 * Opens a library, which stays in the process, and writes the pointers of n calls to `table`. Any
 * thread. Returns the handle of dlopen, or NULL: dlerror() says why. *missing: NULL, or the name of
 * a call that the library does not have; the table is then not complete.
 */
void *kvi_library_open(const char *file, const struct kvi_library_call *calls, size_t n,
                       void *table, const char **missing);

/* The members of a table, which have the names of the calls, and its entries above. A header that
 * gives these names to the table's pointers must not do so where its table is filled, so it has the
 * names between #ifndef KVI_LIBRARY_TABLE and #endif. */
#define KVI_LIBRARY_POINTER(name) __typeof__(&name) name;
#define KVI_LIBRARY_ENTRY(name) { #name, offsetof(KVI_LIBRARY_TABLE, name) },

/* A library of the host that is opened at its first use, and then stays. */
struct kvi_library {
	const char *file;    /* file name for dlopen */
	const char *missing; /* the end of "this needs ...", from config.h */
	const char *oldest;  /* "libcurl 7.85": the first release that has all calls */
	const struct kvi_library_call *calls;
	size_t n;
	void *table; /* table of pointers to functions */
	pthread_mutex_t lock;
	atomic_bool ready;
};

/*
 * Opens a library, if it is not open yet, and fills its table; then calls begin, which may be NULL
 * and returns whether the library can be used. Any thread; one opens it, others wait. Returns
 * whether it can be used; else *error, which may be NULL, says what to do (OPTIONS); the next call
 * tries again.
 */
bool kvi_library_ready(struct kvi_library *library, bool (*begin)(kvarc_error *error),
                       kvarc_error *error);

#endif
