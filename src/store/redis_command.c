/* SPDX-License-Identifier: BSD-3-Clause */
/* redis_command.c - a connection to a Redis server, and one command with its answer */
#include "config.h"

#ifdef HAVE_HIREDIS

#include "redis_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "util/error.h"

enum { SECONDS = 30 };

void kvi_redis_close(struct kvi_redis *r)
{
	if (r->c)
		redisFree(r->c);
	r->c = NULL;
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Sends a command and waits for its answer. NULL: why not is in the connection; where that says
 * nothing, the time is over. */
static redisReply *exchange(struct kvi_redis *r, size_t n, const char **argv, const size_t *sizes)
{
	const int64_t end = now_ms() + r->timeout_ms;
	void *reply = NULL;
	int sent = 0;
	if (!r->timeout_ms)
		return redisCommandArgv(r->c, (int)n, argv, sizes);
	if (redisAppendCommandArgv(r->c, (int)n, argv, sizes) != REDIS_OK)
		return NULL;
	while (!sent && now_ms() <= end)
		if (redisBufferWrite(r->c, &sent) != REDIS_OK)
			return NULL;
	while (sent && now_ms() <= end)
		if (redisBufferRead(r->c) != REDIS_OK ||
		    redisGetReplyFromReader(r->c, &reply) != REDIS_OK || reply)
			return reply;
	return NULL;
}

kvarc_ret kvi_redis_command(struct kvi_redis *r, redisReply **reply, size_t n,
                            const struct kvi_redis_text *args, kvarc_error *e)
{
	enum { ARGUMENTS_MAX = 12 };
	const char *argv[ARGUMENTS_MAX];
	size_t sizes[ARGUMENTS_MAX];
	*reply = NULL;
	kvarc_ret ret = kvi_redis_connect(r, e);
	if (ret)
		return ret;
	for (size_t i = 0; i < n; i++) {
		argv[i] = args[i].p;
		sizes[i] = args[i].n;
	}
	*reply = exchange(r, n, argv, sizes);
	if (!*reply) {
		ret = kvi_fail(e, KVARC_IO, "store redis://%s:%d: %s: %s", r->host, r->port,
		               (const char *)args[0].p,
		               r->c->err ? r->c->errstr : "no answer in time");
		kvi_redis_close(r);
		return ret;
	}
	if ((*reply)->type == REDIS_REPLY_ERROR) {
		/* servers repeat the arguments of a command that they do not know */
		const int repeats = r->password[0] && strstr((*reply)->str, r->password);
		ret = kvi_fail(e, KVARC_IO, "store redis://%s:%d: %s: %.120s", r->host, r->port,
		               (const char *)args[0].p,
		               repeats ? "its answer is an error that repeats the password"
		                       : (*reply)->str);
		freeReplyObject(*reply);
		*reply = NULL;
	}
	return ret;
}

/* A command of two texts, to which any answer is good but an error. */
static kvarc_ret say(struct kvi_redis *r, const char *command, const char *text, kvarc_error *e)
{
	redisReply *reply;
	const struct kvi_redis_text args[] = { KVI_REDIS_TEXT(command), KVI_REDIS_TEXT(text) };
	kvarc_ret ret = kvi_redis_command(r, &reply, 2, args, e);
	freeReplyObject(reply);
	return ret;
}

kvarc_ret kvi_redis_connect(struct kvi_redis *r, kvarc_error *e)
{
	char number[16];
	struct timeval patience = { SECONDS, 0 };
	if (r->timeout_ms)
		patience = (struct timeval){ r->timeout_ms / 1000, r->timeout_ms % 1000 * 1000 };
	if (r->c)
		return KVARC_OK;
	if (!kvi_hiredis(e))
		return KVARC_OPTIONS;
	r->c = redisConnectWithTimeout(r->host, r->port, patience);
	if (!r->c || r->c->err) {
		kvarc_ret ret = kvi_fail(e, KVARC_IO, "store redis://%s:%d: %s", r->host, r->port,
		                         r->c ? r->c->errstr : "no memory");
		kvi_redis_close(r);
		return ret;
	}
	redisSetTimeout(r->c, patience);
	snprintf(number, sizeof number, "%d", r->db);
	kvarc_ret ret = r->password[0] ? say(r, "AUTH", r->password, e) : KVARC_OK;
	if (!ret && r->db)
		ret = say(r, "SELECT", number, e);
	if (ret)
		kvi_redis_close(r);
	return ret;
}

int kvi_redis_parse(struct kvi_redis *r, const char *rest, char *prefix, size_t capacity)
{
	char text[512], *at = text, *end;
	if (snprintf(text, sizeof text, "%s", rest) >= (int)sizeof text)
		return 0;
	r->port = 6379;
	char *query = strchr(at, '?');
	if (query) {
		*query++ = 0;
		if (strncmp(query, "prefix=", 7) != 0 || strpbrk(query, "*?[]\\# ") ||
		    snprintf(prefix, capacity, "%s", query + 7) >= (int)capacity)
			return 0;
	}
	char *user = strrchr(at, '@');
	if (user) {
		*user = 0;
		if (at[0] != ':' || snprintf(r->password, sizeof r->password, "%s", at + 1) >=
		                            (int)sizeof r->password)
			return 0;
		at = user + 1;
	}
	char *db = strchr(at, '/');
	if (db) {
		*db++ = 0;
		r->db = *db ? (int)strtol(db, &end, 10) : 0;
		if ((*db && *end) || r->db < 0)
			return 0;
	}
	char *port = strrchr(at, ':');
	if (port) {
		*port++ = 0;
		r->port = (int)strtol(port, &end, 10);
		if (end == port || *end || r->port < 1 || r->port > 65535)
			return 0;
	}
	return at[0] && snprintf(r->host, sizeof r->host, "%s", at) < (int)sizeof r->host;
}

#else
typedef int kvi_redis_command_empty; /* a C file has something in it */
#endif
