/* SPDX-License-Identifier: BSD-3-Clause */
/* shared_library.c - opens a library of the host at run time and finds its calls */
#include "config.h"

#include "shared_library.h"

#include <dlfcn.h>
#include <string.h>

#include "error.h"

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

static bool make_ready(struct kvi_library *library, bool (*begin)(kvarc_error *error),
                       kvarc_error *error)
{
	const char *missing;
	if (!kvi_library_open(library->file, library->calls, library->n, library->table, &missing))
		(void)kvi_fail(error, KVARC_OPTIONS, "this needs %s: %.120s", library->missing,
		               dlerror());
	else if (missing)
		(void)kvi_fail(error, KVARC_OPTIONS,
		               "this needs %s or newer: %s of this host has no %s", library->oldest,
		               library->file, missing);
	else
		return !begin || begin(error);
	return false;
}

bool kvi_library_ready(struct kvi_library *library, bool (*begin)(kvarc_error *error),
                       kvarc_error *error)
{
	if (atomic_load_explicit(&library->ready, memory_order_acquire))
		return true;
	pthread_mutex_lock(&library->lock);
	const bool ready = atomic_load_explicit(&library->ready, memory_order_relaxed) ||
	                   make_ready(library, begin, error);
	atomic_store_explicit(&library->ready, ready, memory_order_release);
	pthread_mutex_unlock(&library->lock);
	return ready;
}
