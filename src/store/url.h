/* SPDX-License-Identifier: BSD-3-Clause */
/* url.h - URLs as they are shown: without user and password */
#ifndef KVI_URL_H
#define KVI_URL_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Finds user and password of a URL, with the '@' behind them, which every message, result, line of
 * JSON and exception leaves out. These forms are found, plain or percent-encoded:
 * redis://:PASSWORD@HOST, http://USER:PASSWORD@HOST, s3://BUCKET?endpoint=http://USER:PASSWORD@H.
 * From an ambiguous URL more is left out: all up to the last '@'. Paths and file: have none.
 * Returns the offset; *bytes 0: there is nothing to leave out.
 */
size_t kvi_url_secret(const char *url, size_t *bytes);
/* Copies the URL without user and password, cut to capacity, 1 at least; strlen(url) + 1 bytes hold
 * all. Returns to. */
char *kvi_url_shown(char *to, size_t capacity, const char *url);
/* Whether all that reads the URL finds the same host in it: in user and password '/', '?', '#',
 * '@', '\' and blanks are percent-encoded. */
bool kvi_url_secret_is_plain(const char *url);
/* Advice where kvi_url_secret_is_plain returns false. */
#define KVI_URL_NOT_PLAIN                                                                          \
	"in its user and password write '/' as %2F, '?' as %3F, '#' as %23 and '@' as %40"

#endif
