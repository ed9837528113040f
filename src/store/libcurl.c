/* SPDX-License-Identifier: BSD-3-Clause */
/* libcurl.c - libcurl: linked, opened on the host at the first use, or left out */
#include "config.h"

#include "libcurl.h"

#include "util/error.h"

#if !defined HAVE_LIBCURL

const struct kvi_libcurl *kvi_libcurl(kvarc_error *e)
{
	(void)kvi_fail(e, KVARC_OPTIONS,
	               "kvarc was built without libcurl, which stores in S3 and servers need");
	return NULL;
}

#else

#include "util/shared_library.h"

#ifdef LIBCURL_DLOPEN

#include <dlfcn.h>

/* Of all releases since 7.16. */
#define LIBCURL_FILE "libcurl.so.4"
/* That of configure.ac: older ones sign other requests. */
enum { OLDEST = 0x075500 };

static const struct kvi_library_call calls[] = {
#define CALL(name) { "curl_" #name, offsetof(struct kvi_libcurl, name) },
	KVI_LIBCURL_CALLS(CALL)
};

static bool load(void *opaque, kvarc_error *e)
{
	struct kvi_libcurl *table = opaque;
	const char *missing;
	if (!kvi_library_open(LIBCURL_FILE, calls, sizeof calls / sizeof *calls, table, &missing)) {
		(void)kvi_fail(e, KVARC_OPTIONS,
		               "this needs libcurl: install the package libcurl4 (%.140s)",
		               dlerror());
		return false;
	}
	const curl_version_info_data *is = missing ? NULL : table->version_info(CURLVERSION_NOW);
	if (!is || is->version_num < OLDEST) {
		(void)kvi_fail(e, KVARC_OPTIONS,
		               "this needs libcurl 7.85 or newer: " LIBCURL_FILE
		               " of this host is %.40s",
		               is ? is->version : "older");
		return false;
	}
	table->global_init(CURL_GLOBAL_DEFAULT);
	return true;
}

#else

static bool load(void *table, kvarc_error *e)
{
	(void)table;
	(void)e;
	curl_global_init(CURL_GLOBAL_DEFAULT);
	return true;
}

#endif

const struct kvi_libcurl *kvi_libcurl(kvarc_error *e)
{
	static struct kvi_library_once once = KVI_LIBRARY_ONCE_INIT;
	static struct kvi_libcurl table;
	return kvi_library_once(&once, load, &table, e) ? &table : NULL;
}

#endif
