/* SPDX-License-Identifier: BSD-3-Clause */
/* libcurl.h - the calls of libcurl, linked or of the host's library, by their own names */
#ifndef KVI_LIBCURL_H
#define KVI_LIBCURL_H

#include "kvarc.h"

struct kvi_libcurl;
/*
 * What the names below call, the same for good and with libcurl's own beginning done; any thread.
 * With --with-libcurl=dlopen the library is opened by the first call that finds it. To be asked
 * before any other call. NULL: there is none, and *e, which may be NULL, says what to do (OPTIONS).
 */
const struct kvi_libcurl *kvi_libcurl(kvarc_error *e);

#ifdef HAVE_LIBCURL

#include <curl/curl.h>

#ifdef LIBCURL_DLOPEN

/* All that is used, without "curl_". */
#define KVI_LIBCURL_CALLS(X) \
	X(global_init)       \
	X(version_info)      \
	X(easy_init)         \
	X(easy_cleanup)      \
	X(easy_reset)        \
	X(easy_setopt)       \
	X(easy_getinfo)      \
	X(easy_perform)      \
	X(easy_strerror)     \
	X(slist_append)      \
	X(slist_free_all)    \
	X(strnequal)

/* A pointer to each. */
struct kvi_libcurl {
#define KVI_POINTER(name) __typeof__(&curl_##name) name;
	KVI_LIBCURL_CALLS(KVI_POINTER)
#undef KVI_POINTER
};

/* libcurl's macros of these names check the types of arguments. */
#undef curl_easy_setopt
#undef curl_easy_getinfo

#define KVI_LIBCURL (kvi_libcurl(NULL))
#define curl_easy_init KVI_LIBCURL->easy_init
#define curl_easy_cleanup KVI_LIBCURL->easy_cleanup
#define curl_easy_reset KVI_LIBCURL->easy_reset
#define curl_easy_setopt KVI_LIBCURL->easy_setopt
#define curl_easy_getinfo KVI_LIBCURL->easy_getinfo
#define curl_easy_perform KVI_LIBCURL->easy_perform
#define curl_easy_strerror KVI_LIBCURL->easy_strerror
#define curl_slist_append KVI_LIBCURL->slist_append
#define curl_slist_free_all KVI_LIBCURL->slist_free_all
#define curl_strnequal KVI_LIBCURL->strnequal

#else

/* The names are those of the linker. */
struct kvi_libcurl {
	char linked;
};

#endif
#endif

#endif
