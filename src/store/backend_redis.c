/* SPDX-License-Identifier: BSD-3-Clause */
/* backend_redis.c - objects in a Redis server */
#include "config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "backend.h"
#include "hiredis_calls.h"
#include "util/alloc.h"
#include "util/arguments.h"
#include "util/bytes.h"
#include "util/error.h"
#include "util/hash.h"

#ifdef HAVE_HIREDIS

/* ==== A connection to a Redis server, and one command with its answer ==== */

/* A server, and the connection to it: zero what is not known. One thread. */
struct redis_server {
	char host[256], password[256]; /* password "": none */
	int port, db;
	uint32_t timeout_ms; /* limit for a command and its answer; 0: 30 seconds without a byte */
	redisContext *c;     /* NULL: there is none; the next command makes one */
};

/* An argument of a command. */
struct redis_text {
	const void *p;
	size_t n;
};
#define REDIS_TEXT(s) ((struct redis_text){ (s), strlen(s) })

/* Makes the connection, if there is none. Returns OK, IO. */
static kvarc_ret redis_connect(struct redis_server *r, kvarc_error *error);

enum { SECONDS = 30 };

/* Ends the connection, if there is one. */
static void redis_disconnect(struct redis_server *r)
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
static redisReply *exchange(struct redis_server *r, size_t n, const char **argv,
                            const size_t *sizes)
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

/* Sends a command of at most 12 arguments, the first of which is its name. On OK the caller frees
 * *reply, otherwise it is NULL; an answer of the kind "error" is IO. Returns OK, IO. */
static kvarc_ret redis_command(struct redis_server *r, redisReply **reply, size_t n,
                               const struct redis_text *args, kvarc_error *error)
{
	enum { ARGUMENTS_MAX = 12 };
	const char *argv[ARGUMENTS_MAX];
	size_t sizes[ARGUMENTS_MAX];
	*reply = NULL;
	kvarc_ret ret = redis_connect(r, error);
	if (ret)
		return ret;
	for (size_t i = 0; i < n; i++) {
		argv[i] = args[i].p;
		sizes[i] = args[i].n;
	}
	*reply = exchange(r, n, argv, sizes);
	if (!*reply) {
		ret = kvi_fail(error, KVARC_IO, "store redis://%s:%d: %s: %s", r->host, r->port,
		               (const char *)args[0].p,
		               r->c->err ? r->c->errstr : "no answer in time");
		redis_disconnect(r);
		return ret;
	}
	if ((*reply)->type == REDIS_REPLY_ERROR) {
		/* servers repeat the arguments of a command that they do not know */
		const int repeats = r->password[0] && strstr((*reply)->str, r->password);
		ret = kvi_fail(error, KVARC_IO, "store redis://%s:%d: %s: %.120s", r->host, r->port,
		               (const char *)args[0].p,
		               repeats ? "its answer is an error that repeats the password"
		                       : (*reply)->str);
		freeReplyObject(*reply);
		*reply = NULL;
	}
	return ret;
}

/* A command of two texts, to which any answer is good but an error. */
static kvarc_ret say(struct redis_server *r, const char *command, const char *text,
                     kvarc_error *error)
{
	redisReply *reply;
	const struct redis_text args[] = { REDIS_TEXT(command), REDIS_TEXT(text) };
	kvarc_ret ret = redis_command(r, &reply, 2, args, error);
	freeReplyObject(reply);
	return ret;
}

static kvarc_ret redis_connect(struct redis_server *r, kvarc_error *error)
{
	char number[16];
	struct timeval patience = { SECONDS, 0 };
	if (r->timeout_ms)
		patience = (struct timeval){ r->timeout_ms / 1000, r->timeout_ms % 1000 * 1000 };
	if (r->c)
		return KVARC_OK;
	if (!kvi_hiredis(error))
		return KVARC_OPTIONS;
	r->c = redisConnectWithTimeout(r->host, r->port, patience);
	if (!r->c || r->c->err) {
		kvarc_ret ret = kvi_fail(error, KVARC_IO, "store redis://%s:%d: %s", r->host,
		                         r->port, r->c ? r->c->errstr : "no memory");
		redis_disconnect(r);
		return ret;
	}
	redisSetTimeout(r->c, patience);
	snprintf(number, sizeof number, "%d", r->db);
	kvarc_ret ret = r->password[0] ? say(r, "AUTH", r->password, error) : KVARC_OK;
	if (!ret && r->db)
		ret = say(r, "SELECT", number, error);
	if (ret)
		redis_disconnect(r);
	return ret;
}

/* Fills the server of "[:PASSWORD@]HOST[:PORT][/DB][?prefix=TEXT]", and `prefix` where it is given.
 * Returns 0 where it is not like that. */
static int redis_parse(struct redis_server *r, const char *rest, char *prefix, size_t capacity)
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

/* ==== Objects in a Redis or Valkey server ==== */

/*
 * An object is a string under PREFIX KEY: a head of HEAD_BYTES, then its bytes. A large object has
 * its bytes in parts, strings under PREFIX "#" ID ":" NUMBER, which are written before the head.
 * The head is written with NX, so that one put of a key wins, whole.
 */

enum {
	/* u8[8] magic, u64 bytes, u64 time, u64 ID of its parts or 0, u64 random */
	HEAD_BYTES = 40,
	PART_BYTES = 64 << 20,
	PREFIX_MAX = 128,
	NAME_MAX_BYTES = PREFIX_MAX + KVI_KEY_MAX + 64,
	SCAN_COUNT = 1000
};
static const char magic[8] = { 'k', 'v', 'a', 'r', 'c', 'o', 'b', '1' };

struct redis {
	struct kvi_backend base;
	struct kvi_alloc alloc;
	struct redis_server at;
	char prefix[PREFIX_MAX + 1];
	uint64_t random;
	/* The head that was read last. */
	char head_key[KVI_KEY_MAX + 1];
	uint8_t head[HEAD_BYTES];
};

static struct redis *redis_of(struct kvi_backend *backend)
{
	return (struct redis *)backend;
}

/* The name of a key. */
static struct redis_text name_of(const struct redis *r, const char *key, char name[NAME_MAX_BYTES])
{
	int n = snprintf(name, NAME_MAX_BYTES, "%s%s", r->prefix, key);
	return (struct redis_text){ name, (size_t)n };
}

/* The name of a part. */
static struct redis_text part_name(const struct redis *r, uint64_t id, uint64_t number,
                                   char name[NAME_MAX_BYTES])
{
	int n = snprintf(name, NAME_MAX_BYTES, "%s#%016llx:%llu", r->prefix, (unsigned long long)id,
	                 (unsigned long long)number);
	return (struct redis_text){ name, (size_t)n };
}

/* Bytes [from, from + n) of a string, into memory. *got: fewer at its end. */
static kvarc_ret get_range(struct redis *r, struct redis_text name, uint64_t from, size_t n,
                           void *data, size_t *got, kvarc_error *error)
{
	redisReply *reply;
	char first[24], last[24];
	*got = 0;
	snprintf(first, sizeof first, "%llu", (unsigned long long)from);
	snprintf(last, sizeof last, "%llu", (unsigned long long)(from + n - 1));
	kvarc_ret ret = redis_command(&r->at, &reply, 4,
	                              (struct redis_text[]){ REDIS_TEXT("GETRANGE"), name,
	                                                     REDIS_TEXT(first), REDIS_TEXT(last) },
	                              error);
	if (ret)
		return ret;
	if (reply->type == REDIS_REPLY_STRING && reply->len <= n) {
		memcpy(data, reply->str, reply->len);
		*got = reply->len;
	} else {
		ret = kvi_fail(error, KVARC_IO, "store redis://%s:%d: an answer of another kind",
		               r->at.host, r->at.port);
	}
	freeReplyObject(reply);
	return ret;
}

/* Reads the head of an object. Returns OK, END (there is none), IO. */
static kvarc_ret read_head(struct redis *r, const char *key, kvarc_error *error)
{
	char name[NAME_MAX_BYTES];
	size_t got;
	if (strcmp(r->head_key, key) == 0)
		return KVARC_OK;
	r->head_key[0] = 0;
	kvarc_ret ret = get_range(r, name_of(r, key, name), 0, HEAD_BYTES, r->head, &got, error);
	if (ret)
		return ret;
	if (got == 0)
		return KVARC_END;
	if (got < HEAD_BYTES || memcmp(r->head, magic, sizeof magic) != 0)
		return kvi_fail(error, KVARC_IO, "store: %s in Redis was not put by kvarc", key);
	memcpy(r->head_key, key, strlen(key) + 1);
	return KVARC_OK;
}

static kvarc_ret redis_get(struct kvi_backend *backend, const char *key, uint64_t offset,
                           void *data, size_t n, size_t *got, kvarc_error *error)
{
	struct redis *r = redis_of(backend);
	char name[NAME_MAX_BYTES];
	*got = 0;
	if (offset == 0)
		r->head_key[0] = 0;
	kvarc_ret ret = read_head(r, key, error);
	if (ret)
		return ret;
	uint64_t bytes = kvi_load64(r->head + 8), id = kvi_load64(r->head + 24);
	uint64_t left = offset < bytes ? bytes - offset : 0;
	n = left < n ? (size_t)left : n;
	while (!ret && *got < n) {
		uint64_t at = offset + *got, inside = id ? at % PART_BYTES : at;
		uint64_t most = id ? PART_BYTES - inside : UINT64_MAX;
		size_t want = n - *got, k = 0;
		want = most < want ? (size_t)most : want;
		struct redis_text from = id ? part_name(r, id, at / PART_BYTES, name)
		                            : name_of(r, key, name);
		ret = get_range(r, from, id ? inside : inside + HEAD_BYTES, want,
		                (char *)data + *got, &k, error);
		*got += k;
		if (!ret && k < want)
			ret = kvi_fail(error, KVARC_IO,
			               "store: %s in Redis is shorter than it says", key);
	}
	return ret;
}

static kvarc_ret redis_stat(struct kvi_backend *backend, const char *key, struct kvi_object *object,
                            kvarc_error *error)
{
	struct redis *r = redis_of(backend);
	r->head_key[0] = 0;
	kvarc_ret ret = read_head(r, key, error);
	if (!ret)
		*object = (struct kvi_object){ key, kvi_load64(r->head + 8),
			                       (int64_t)kvi_load64(r->head + 16),
			                       kvi_h64(r->head, HEAD_BYTES) };
	return ret;
}

/* Removes parts 0 to n - 1 of an object. */
static kvarc_ret remove_parts(struct redis *r, uint64_t id, uint64_t n, kvarc_error *error)
{
	char name[NAME_MAX_BYTES];
	redisReply *reply;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t i = 0; !ret && i < n; i++) {
		ret = redis_command(
			&r->at, &reply, 2,
			(struct redis_text[]){ REDIS_TEXT("DEL"), part_name(r, id, i, name) },
			error);
		freeReplyObject(reply);
	}
	return ret;
}

/* Reads bytes of a source into memory. */
static kvarc_ret read_source(const kvarc_source *source, uint64_t at, uint8_t *to, size_t n,
                             const char *key, kvarc_error *error)
{
	if (source->memory) {
		memcpy(to, (const uint8_t *)source->memory + at, n);
		return KVARC_OK;
	}
	while (n > 0) {
		int64_t k = source->read(source->opaque, to, n, at);
		if (k <= 0)
			return kvi_fail(error, KVARC_IO, "store: what becomes %s ends at byte %llu",
			                key, (unsigned long long)at);
		to += k;
		at += (uint64_t)k;
		n -= (size_t)k;
	}
	return KVARC_OK;
}

/* Sets a string that nobody has. Returns OK, END (somebody has), IO. */
static kvarc_ret set_new(struct redis *r, struct redis_text name, struct redis_text value,
                         kvarc_error *error)
{
	redisReply *reply;
	kvarc_ret ret = redis_command(
		&r->at, &reply, 4,
		(struct redis_text[]){ REDIS_TEXT("SET"), name, value, REDIS_TEXT("NX") }, error);
	if (!ret && reply->type == REDIS_REPLY_NIL)
		ret = KVARC_END;
	freeReplyObject(reply);
	return ret;
}

/* The parts of a large object, by a buffer of PART_BYTES. */
static kvarc_ret put_parts(struct redis *r, const char *key, uint64_t id, uint64_t *n_parts,
                           const kvarc_source *source, uint8_t *buffer, kvarc_error *error)
{
	char name[NAME_MAX_BYTES];
	kvarc_ret ret = KVARC_OK;
	for (uint64_t at = 0; !ret && at < source->size; at += PART_BYTES) {
		uint64_t left = source->size - at;
		size_t n = left < PART_BYTES ? (size_t)left : PART_BYTES;
		ret = read_source(source, at, buffer, n, key, error);
		if (!ret)
			ret = set_new(r, part_name(r, id, *n_parts, name),
			              (struct redis_text){ buffer, n }, error);
		if (ret == KVARC_END)
			ret = kvi_fail(error, KVARC_IO, "store: a part of %s exists, try again",
			               key);
		*n_parts += !ret;
	}
	return ret;
}

static kvarc_ret redis_put(struct kvi_backend *backend, const char *key, const kvarc_source *source,
                           kvarc_error *error)
{
	struct redis *r = redis_of(backend);
	char name[NAME_MAX_BYTES];
	int large = source->size > PART_BYTES;
	uint64_t id = large ? kvi_splitmix64(&r->random) | 1 : 0, n_parts = 0;
	size_t bytes = HEAD_BYTES + (large ? PART_BYTES : (size_t)source->size);
	uint8_t *value = kvi_malloc(&r->alloc, bytes);
	kvarc_ret ret = value ? KVARC_OK : kvi_fail_alloc(error, &r->alloc);
	if (!ret && large)
		ret = put_parts(r, key, id, &n_parts, source, value + HEAD_BYTES, error);
	else if (!ret)
		ret = read_source(source, 0, value + HEAD_BYTES, (size_t)source->size, key, error);
	if (!ret) {
		memcpy(value, magic, sizeof magic);
		kvi_store64(value + 8, source->size);
		kvi_store64(value + 16, (uint64_t)time(NULL));
		kvi_store64(value + 24, id);
		kvi_store64(value + 32, kvi_splitmix64(&r->random));
		ret = set_new(r, name_of(r, key, name),
		              (struct redis_text){ value, large ? HEAD_BYTES : bytes }, error);
	}
	kvi_free(&r->alloc, value);
	/* the first failure is the one to report */
	if (ret && n_parts)
		(void)remove_parts(r, id, n_parts, NULL);
	return ret;
}

static kvarc_ret redis_remove(struct kvi_backend *backend, const char *key, kvarc_error *error)
{
	struct redis *r = redis_of(backend);
	char name[NAME_MAX_BYTES];
	redisReply *reply;
	r->head_key[0] = 0;
	kvarc_ret ret = read_head(r, key, error);
	if (ret)
		return ret == KVARC_END ? KVARC_OK : ret;
	uint64_t bytes = kvi_load64(r->head + 8), id = kvi_load64(r->head + 24);
	r->head_key[0] = 0;
	ret = redis_command(&r->at, &reply, 2,
	                    (struct redis_text[]){ REDIS_TEXT("DEL"), name_of(r, key, name) },
	                    error);
	freeReplyObject(reply);
	if (!ret && id)
		ret = remove_parts(r, id, bytes / PART_BYTES + (bytes % PART_BYTES != 0), error);
	return ret;
}

/* Compares and removes in one script, so that no command of another client comes between. Serves
 * small objects, whose bytes follow their head. */
static kvarc_ret redis_remove_if(struct kvi_backend *backend, const char *key, const void *data,
                                 size_t n, kvarc_error *error)
{
	static const char script[] =
		"local v = redis.call('GET', KEYS[1])\n"
		"if v and string.sub(v, tonumber(ARGV[1]) + 1) == ARGV[2] then\n"
		"return redis.call('DEL', KEYS[1])\nend\nreturn 0\n";
	struct redis *r = redis_of(backend);
	char name[NAME_MAX_BYTES], head[8];
	redisReply *reply;
	snprintf(head, sizeof head, "%d", HEAD_BYTES);
	r->head_key[0] = 0;
	kvarc_ret ret = redis_command(&r->at, &reply, 6,
	                              (struct redis_text[]){ REDIS_TEXT("EVAL"),
	                                                     REDIS_TEXT(script),
	                                                     REDIS_TEXT("1"),
	                                                     name_of(r, key, name),
	                                                     REDIS_TEXT(head),
	                                                     { data, n } },
	                              error);
	if (!ret && (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1))
		ret = KVARC_END;
	freeReplyObject(reply);
	return ret;
}

/* The keys of one answer to SCAN. */
static kvarc_ret list_reply(struct redis *r, const redisReply *keys, kvi_object_fn fn, void *opaque,
                            kvarc_error *error)
{
	size_t skip = strlen(r->prefix);
	for (size_t i = 0; i < keys->elements; i++) {
		const redisReply *name = keys->element[i];
		char key[KVI_KEY_MAX + 1];
		if (name->type != REDIS_REPLY_STRING || name->len < skip ||
		    name->len - skip > KVI_KEY_MAX)
			continue;
		memcpy(key, name->str + skip, name->len - skip);
		key[name->len - skip] = 0;
		struct kvi_object object;
		kvarc_ret ret = kvi_key_valid(key) ? redis_stat(&r->base, key, &object, error)
		                                   : KVARC_END;
		if (ret == KVARC_END)
			continue;
		if (ret)
			return ret;
		if (fn(opaque, &object) != 0)
			return kvi_fail(error, KVARC_IO, "store: the list was ended");
	}
	return KVARC_OK;
}

static kvarc_ret redis_list(struct kvi_backend *backend, const char *prefix, kvi_object_fn fn,
                            void *opaque, kvarc_error *error)
{
	struct redis *r = redis_of(backend);
	char pattern[NAME_MAX_BYTES + 1], cursor[32] = "0", count[16];
	snprintf(count, sizeof count, "%d", SCAN_COUNT);
	/* keys and prefixes have none of the characters that patterns give a meaning */
	if (strlen(prefix) > KVI_KEY_MAX || (prefix[0] && strpbrk(prefix, "*?[]\\")))
		return KVARC_OK;
	snprintf(pattern, sizeof pattern, "%s%s*", r->prefix, prefix);
	do {
		redisReply *reply;
		kvarc_ret ret = redis_command(
			&r->at, &reply, 6,
			(struct redis_text[]){ REDIS_TEXT("SCAN"), REDIS_TEXT(cursor),
		                               REDIS_TEXT("MATCH"), REDIS_TEXT(pattern),
		                               REDIS_TEXT("COUNT"), REDIS_TEXT(count) },
			error);
		if (ret)
			return ret;
		if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		    reply->element[0]->type != REDIS_REPLY_STRING ||
		    reply->element[0]->len >= sizeof cursor ||
		    reply->element[1]->type != REDIS_REPLY_ARRAY)
			ret = kvi_fail(error, KVARC_IO,
			               "store redis://%s:%d: an answer of another kind", r->at.host,
			               r->at.port);
		if (!ret) {
			memcpy(cursor, reply->element[0]->str, reply->element[0]->len + 1);
			ret = list_reply(r, reply->element[1], fn, opaque, error);
		}
		freeReplyObject(reply);
		if (ret)
			return ret;
	} while (strcmp(cursor, "0") != 0);
	return KVARC_OK;
}

/* The value of a line "name:value" of INFO. False: there is none. */
static bool find_line(const redisReply *info, const char *name, char *value, size_t capacity)
{
	const char *at = info->type == REDIS_REPLY_STRING ? strstr(info->str, name) : NULL;
	size_t n;
	if (!at)
		return false;
	at += strlen(name);
	n = strcspn(at, "\r\n");
	snprintf(value, capacity, "%.*s", (int)(n < capacity ? n : capacity - 1), at);
	return true;
}

/* A server that removes any key when its memory is full keeps nothing. That can be set at any time,
 * so it is asked each time. */
static kvarc_ret redis_promise(struct kvi_backend *backend, int known, char why[KVI_WHY_MAX],
                               kvarc_error *error)
{
	struct redis *r = redis_of(backend);
	char policy[64] = "", most[32] = "0";
	redisReply *reply;
	(void)known;
	kvarc_ret ret = redis_command(
		&r->at, &reply, 2,
		(struct redis_text[]){ REDIS_TEXT("INFO"), REDIS_TEXT("memory") }, error);
	if (ret)
		return ret;
	const bool found = find_line(reply, "\nmaxmemory_policy:", policy, sizeof policy) &&
	                   find_line(reply, "\nmaxmemory:", most, sizeof most);
	freeReplyObject(reply);
	if (!found)
		return kvi_fail(
			error, KVARC_IO,
			"store redis://%s:%d: INFO memory does not say what happens when its "
			"memory is full",
			r->at.host, r->at.port);
	if (strcmp(most, "0") == 0 || strncmp(policy, "allkeys", 7) != 0)
		return KVARC_OK;
	snprintf(why, KVI_WHY_MAX, "it removes keys when its memory is full (maxmemory-policy %s)",
	         policy);
	return KVARC_OPTIONS;
}

static void redis_close(struct kvi_backend *backend)
{
	struct redis *r = redis_of(backend);
	redis_disconnect(&r->at);
	kvi_free(&r->alloc, r);
}

static const struct kvi_backend_calls redis_calls = {
	redis_get,       redis_put,   redis_stat, redis_remove,
	redis_remove_if, redis_list,  NULL, /* touch */
	redis_promise,   redis_close,
};

kvarc_ret kvi_backend_redis(struct kvi_backend **backend, const char *rest,
                            const struct kvi_backend_options *options, kvarc_error *error)
{
	struct redis *r;
	kvarc_common common = { .allocator = options->allocator, .error = error };
	*backend = NULL;
	kvarc_ret ret = kvi_handle_new(&r, sizeof *r, offsetof(struct redis, alloc), &common, 0);
	if (ret)
		return ret;
	r->base.calls = &redis_calls;
	*backend = &r->base;
	snprintf(r->prefix, sizeof r->prefix, "kvarc:");
	if (!redis_parse(&r->at, rest, r->prefix, sizeof r->prefix))
		ret = kvi_fail(error, KVARC_OPTIONS,
		               "store redis://...: write "
		               "redis://[:PASSWORD@]HOST[:PORT][/DB][?prefix=TEXT]");
	if (!ret) {
		r->at.timeout_ms = options->timeout_ms;
		r->random = (uint64_t)time(NULL) << 24 ^ (uint64_t)getpid() ^
		            (uint64_t)(uintptr_t)r;
		ret = redis_connect(&r->at, error);
	}
	if (ret)
		kvi_backend_close(backend);
	return ret;
}

#else

kvarc_ret kvi_backend_redis(struct kvi_backend **backend, const char *rest,
                            const struct kvi_backend_options *options, kvarc_error *error)
{
	(void)rest;
	(void)options;
	*backend = NULL;
	return kvi_fail(error, KVARC_OPTIONS,
	                "store redis://...: this needs " HIREDIS_MISSING ": use a folder, or "
	                "install libhiredis-dev and build kvarc");
}

#endif
