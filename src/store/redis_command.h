/* SPDX-License-Identifier: BSD-3-Clause */
/* redis_command.h - a connection to a Redis server, and one command with its answer */
#ifndef KVI_REDIS_COMMAND_H
#define KVI_REDIS_COMMAND_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hiredis_calls.h"

#include "kvarc.h"

/* A server, and the connection to it: zero what is not known. One thread. */
struct kvi_redis {
	char host[256], password[256]; /* password "": none */
	int port, db;
	uint32_t timeout_ms; /* for a command and its answer; 0: 30 seconds without a byte */
	redisContext *c;     /* NULL: there is none; the next command makes one */
};

/* An argument of a command. */
struct kvi_redis_text {
	const void *p;
	size_t n;
};
#define KVI_REDIS_TEXT(s) ((struct kvi_redis_text){ (s), strlen(s) })

/* Fills the server of "[:PASSWORD@]HOST[:PORT][/DB][?prefix=TEXT]", and `prefix` where it is given.
 * Returns 0 where it is not like that. */
int kvi_redis_parse(struct kvi_redis *r, const char *rest, char *prefix, size_t capacity);
/* Makes the connection, if there is none. Returns OK, IO. */
kvarc_ret kvi_redis_connect(struct kvi_redis *r, kvarc_error *e);
/* One command of at most 12 arguments, the first one a text. On OK the caller frees *reply, else it
 * is NULL; an answer of the kind "error" is IO. Returns OK, IO. */
kvarc_ret kvi_redis_command(struct kvi_redis *r, redisReply **reply, size_t n,
                            const struct kvi_redis_text *args, kvarc_error *e);
/* Ends the connection, if there is one. */
void kvi_redis_close(struct kvi_redis *r);

#endif
