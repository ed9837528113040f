/* SPDX-License-Identifier: BSD-3-Clause */
/* curl_begin.h - libcurl's own beginning, once in a process */
#ifndef KVI_CURL_BEGIN_H
#define KVI_CURL_BEGIN_H

/* Any thread, before any other call of libcurl. */
void kvi_curl_begin(void);

#endif
