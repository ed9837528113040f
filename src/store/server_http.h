/* SPDX-License-Identifier: BSD-3-Clause */
/* server_http.h - requests to a server that answers with JSON */
#ifndef KVI_SERVER_HTTP_H
#define KVI_SERVER_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

struct kvi_http;

/* The largest answer that anybody has a use for. */
enum { KVI_HTTP_ANSWER_MAX = 16 << 20 };

/* Returns OK, MEM, OPTIONS (the URL is not valid; without libcurl). Strings are copied; api_key may
 * be NULL. An answer of more than answer_max bytes is refused as soon as it is longer. */
kvarc_ret kvi_http_open(struct kvi_http **h, const char *url, const char *api_key, uint64_t timeout,
                        size_t answer_max, const kvarc_allocator *allocator, kvarc_error *e);
void kvi_http_close(struct kvi_http **h); /* NULL-safe */

/*
 * Sends body (JSON, NULL: a GET without one) to a path. *answer gets the text of the answer, of the
 * connection, until the next request. *status is that of HTTP. Returns OK, IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_http_send(struct kvi_http *h, const char *path, const char *body, long *status,
                        const char **answer, size_t *bytes, kvarc_error *e);

#endif
