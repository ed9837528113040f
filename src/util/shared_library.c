/* SPDX-License-Identifier: BSD-3-Clause */
/* shared_library.c - opens a library of the host at run time and finds its calls */
#include "config.h"

#include "shared_library.h"

#include <dlfcn.h>
#include <string.h>

void *kvi_library_open(const char *file, const struct kvi_library_call *calls, size_t n,
                       void *table, const char **missing)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	*missing = NULL;
	for (size_t i = 0; library && i < n && !*missing; i++) {
		void *p = dlsym(library, calls[i].name);
		if (!p)
			*missing = calls[i].name;
		/* POSIX says that a pointer of dlsym is that of a function; C does not. */
		memcpy((char *)table + calls[i].at, &p, sizeof p);
	}
	return library;
}

bool kvi_library_once(struct kvi_library_once *once, bool (*load)(void *table, kvarc_error *e),
                      void *table, kvarc_error *e)
{
	if (atomic_load_explicit(&once->ready, memory_order_acquire))
		return true;
	pthread_mutex_lock(&once->lock);
	const bool ready = atomic_load_explicit(&once->ready, memory_order_relaxed) ||
	                   load(table, e);
	atomic_store_explicit(&once->ready, ready, memory_order_release);
	pthread_mutex_unlock(&once->lock);
	return ready;
}
