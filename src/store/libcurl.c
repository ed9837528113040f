/* SPDX-License-Identifier: BSD-3-Clause */
/* libcurl.c - libcurl: linked, opened on the host at the first use, or left out */
#include "config.h"

#ifdef LIBCURL_DLOPEN
#define KVI_LIBRARY_TABLE struct kvi_libcurl
#endif
#include "libcurl.h"

#include "util/error.h"

#if !defined HAVE_LIBCURL

const struct kvi_libcurl *kvi_libcurl(kvarc_error *error)
{
	(void)kvi_fail(error, KVARC_OPTIONS, "stores in S3 and servers need " LIBCURL_MISSING);
	return NULL;
}

#elif !defined LIBCURL_DLOPEN

#include <pthread.h>

static void begin(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

const struct kvi_libcurl *kvi_libcurl(kvarc_error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static const struct kvi_libcurl linked = { 1 };
	(void)error;
	pthread_once(&once, begin);
	return &linked;
}

#else

/* Minimum version, as in configure.ac: older ones sign other requests. */
#define OLDEST "libcurl 7.85"
enum { OLDEST_NUMBER = 0x075500 };

static struct kvi_libcurl table;
static const struct kvi_library_call calls[] = { KVI_LIBCURL_CALLS(KVI_LIBRARY_ENTRY) };

static bool begin(kvarc_error *error)
{
	const curl_version_info_data *is = table.curl_version_info(CURLVERSION_NOW);
	if (is->version_num < OLDEST_NUMBER) {
		(void)kvi_fail(error, KVARC_OPTIONS,
		               "this needs " OLDEST " or newer: " LIBCURL_FILE
		               " of this host is %.40s",
		               is->version);
		return false;
	}
	table.curl_global_init(CURL_GLOBAL_DEFAULT);
	return true;
}

const struct kvi_libcurl *kvi_libcurl(kvarc_error *error)
{
	static struct kvi_library library = {
		.file = LIBCURL_FILE,
		.missing = LIBCURL_MISSING,
		.oldest = OLDEST,
		.calls = calls,
		.n = sizeof calls / sizeof *calls,
		.table = &table,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	return kvi_library_ready(&library, begin, error) ? &table : NULL;
}

#endif
