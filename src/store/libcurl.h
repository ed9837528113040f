/* SPDX-License-Identifier: BSD-3-Clause */
/* libcurl.h - the calls of libcurl, linked or of the host's library, by their own names */
#ifndef KVI_LIBCURL_H
#define KVI_LIBCURL_H

#include "kvarc.h"

struct kvi_libcurl;
/*
 * Table of the calls that the names below use; it never changes, libcurl is initialised, and any
 * thread may use it. With --with-libcurl=dlopen the first successful call opens the library. The
 * caller asks for it before any other call. Returns NULL where there is no library: *error, which
 * may be NULL, says what to do (OPTIONS).
 */
const struct kvi_libcurl *kvi_libcurl(kvarc_error *error);

#ifdef HAVE_LIBCURL

#include <curl/curl.h>

#ifdef LIBCURL_DLOPEN

#include "util/shared_library.h"

/* All that is used. */
#define KVI_LIBCURL_CALLS(X)   \
	X(curl_global_init)    \
	X(curl_version_info)   \
	X(curl_easy_init)      \
	X(curl_easy_cleanup)   \
	X(curl_easy_reset)     \
	X(curl_easy_setopt)    \
	X(curl_easy_getinfo)   \
	X(curl_easy_perform)   \
	X(curl_easy_strerror)  \
	X(curl_slist_append)   \
	X(curl_slist_free_all) \
	X(curl_strnequal)

/* A pointer to each. */
struct kvi_libcurl {
	KVI_LIBCURL_CALLS(KVI_LIBRARY_POINTER)
};

#ifndef KVI_LIBRARY_TABLE
/* libcurl's macros of these names check the types of arguments. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#define curl_global_init (kvi_libcurl(NULL)->curl_global_init)
#define curl_version_info (kvi_libcurl(NULL)->curl_version_info)
#define curl_easy_init (kvi_libcurl(NULL)->curl_easy_init)
#define curl_easy_cleanup (kvi_libcurl(NULL)->curl_easy_cleanup)
#define curl_easy_reset (kvi_libcurl(NULL)->curl_easy_reset)
#define curl_easy_setopt (kvi_libcurl(NULL)->curl_easy_setopt)
#define curl_easy_getinfo (kvi_libcurl(NULL)->curl_easy_getinfo)
#define curl_easy_perform (kvi_libcurl(NULL)->curl_easy_perform)
#define curl_easy_strerror (kvi_libcurl(NULL)->curl_easy_strerror)
#define curl_slist_append (kvi_libcurl(NULL)->curl_slist_append)
#define curl_slist_free_all (kvi_libcurl(NULL)->curl_slist_free_all)
#define curl_strnequal (kvi_libcurl(NULL)->curl_strnequal)
#endif

#else

/* The names are those of the linker. */
struct kvi_libcurl {
	char linked;
};

#endif
#endif

#endif
