/* SPDX-License-Identifier: BSD-3-Clause */
/* curl_begin.c - libcurl's own beginning, once in a process */
#include "config.h"

#include "curl_begin.h"

#ifdef HAVE_LIBCURL

#include <pthread.h>

#include <curl/curl.h>

static void begin(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

void kvi_curl_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, begin);
}

#else

void kvi_curl_begin(void)
{
}

#endif
