/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_speed.c - puts and gets of a backend beside those of its raw client
 *
 * usage: store_speed URL [OBJECTS]
 * 16 MiB an object. The raw client is write and fsync in a folder, one hiredis command in Redis,
 * one request of libcurl in S3: the same bytes by turns, the fastest of five rounds.
 * Exit 1 when one of the two is below 80 % of the raw client's speed.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_LIBCURL
#include <curl/curl.h>
#endif
#ifdef HAVE_HIREDIS
#include <hiredis/hiredis.h>
#endif

#include "store/backend.h"

enum { BYTES = 16 << 20, ROUNDS = 5, OBJECTS = 4 };
#define RATIO_MIN 0.8

static uint8_t *data, *into;
static const char *url;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void demand(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "store_speed: %s failed\n", what);
	exit(2);
}

/* The raw client: puts and gets object i. */
struct raw {
	void (*put)(unsigned i);
	void (*get)(unsigned i);
	void (*remove)(unsigned i);
};

static void file_name(char path[512], unsigned i)
{
	snprintf(path, 512, "%s/raw-%u", url, i);
}
static void file_put(unsigned i)
{
	char path[512];
	file_name(path, i);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	demand(fd >= 0, path);
	for (size_t at = 0; at < BYTES;) {
		ssize_t k = write(fd, data + at, BYTES - at);
		demand(k > 0, "write");
		at += (size_t)k;
	}
	demand(fsync(fd) == 0 && close(fd) == 0, "fsync");
	fd = open(url, O_RDONLY | O_DIRECTORY);
	demand(fd >= 0 && fsync(fd) == 0, "fsync of the folder");
	close(fd);
}
static void file_get(unsigned i)
{
	char path[512];
	file_name(path, i);
	int fd = open(path, O_RDONLY);
	demand(fd >= 0 && read(fd, into, BYTES) == BYTES, "read");
	close(fd);
}
static void file_remove(unsigned i)
{
	char path[512];
	file_name(path, i);
	unlink(path);
}
static const struct raw file_raw = { file_put, file_get, file_remove };

#ifdef HAVE_HIREDIS
static redisContext *redis;
static void redis_open(void)
{
	char host[128];
	int port = 6379;
	demand(sscanf(url, "redis://%127[^:/]:%d", host, &port) >= 1, "URL");
	redis = redisConnect(host, port);
	demand(redis && !redis->err, "connection");
}
static void redis_put(unsigned i)
{
	redisReply *r = redisCommand(redis, "SET raw:%u %b", i, data, (size_t)BYTES);
	demand(r && r->type == REDIS_REPLY_STATUS, "SET");
	freeReplyObject(r);
}
static void redis_get(unsigned i)
{
	redisReply *r = redisCommand(redis, "GET raw:%u", i);
	demand(r && r->type == REDIS_REPLY_STRING && r->len == BYTES, "GET");
	memcpy(into, r->str, BYTES);
	freeReplyObject(r);
}
static void redis_remove(unsigned i)
{
	freeReplyObject(redisCommand(redis, "DEL raw:%u", i));
}
static const struct raw redis_raw = { redis_put, redis_get, redis_remove };
#endif

#ifdef HAVE_LIBCURL
static CURL *curl;
static size_t moved;
static char base[512], user[512];
static size_t give(char *to, size_t size, size_t n, void *opaque)
{
	(void)opaque;
	size_t k = size * n < BYTES - moved ? size * n : BYTES - moved;
	memcpy(to, data + moved, k);
	moved += k;
	return k;
}
static size_t take(char *from, size_t size, size_t n, void *opaque)
{
	(void)opaque;
	demand(moved + size * n <= BYTES, "size of an answer");
	memcpy(into + moved, from, size * n);
	moved += size * n;
	return size * n;
}
static size_t ignore(char *from, size_t size, size_t n, void *opaque)
{
	(void)from;
	(void)opaque;
	return size * n;
}
static void curl_open(void)
{
	char bucket[128];
	demand(sscanf(url, "s3://%127[^/?]%*[^=]=%255[^&]", bucket, base) == 2,
	       "URL with endpoint");
	snprintf(base + strlen(base), sizeof base - strlen(base), "/%s/raw-", bucket);
	if (getenv("AWS_ACCESS_KEY_ID"))
		snprintf(user, sizeof user, "%s:%s", getenv("AWS_ACCESS_KEY_ID"),
		         getenv("AWS_SECRET_ACCESS_KEY"));
	demand((curl = curl_easy_init()) != NULL, "libcurl");
}
static void curl_do(unsigned i, const char *method)
{
	char address[600];
	long status;
	snprintf(address, sizeof address, "%s%u", base, i);
	moved = 0;
	curl_easy_reset(curl);
	curl_easy_setopt(curl, CURLOPT_URL, address);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, *method == 'G' ? take : ignore);
	curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 1L << 19);
	if (user[0]) {
		curl_easy_setopt(curl, CURLOPT_USERPWD, user);
		curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, "aws:amz:us-east-1:s3");
	}
	if (*method == 'P') {
		curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
		curl_easy_setopt(curl, CURLOPT_READFUNCTION, give);
		curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)BYTES);
	} else if (*method == 'D') {
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "DELETE");
	}
	demand(curl_easy_perform(curl) == CURLE_OK, method);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	demand(status / 100 == 2, method);
}
static void curl_put(unsigned i)
{
	curl_do(i, "PUT");
}
static void curl_get(unsigned i)
{
	curl_do(i, "GET");
}
static void curl_remove(unsigned i)
{
	curl_do(i, "DELETE");
}
static const struct raw curl_raw = { curl_put, curl_get, curl_remove };
#endif

static const struct raw *open_raw(void)
{
#ifdef HAVE_HIREDIS
	if (strncmp(url, "redis://", 8) == 0) {
		redis_open();
		return &redis_raw;
	}
#endif
#ifdef HAVE_LIBCURL
	if (strncmp(url, "s3://", 5) == 0) {
		curl_open();
		return &curl_raw;
	}
#endif
	return &file_raw;
}

static void keep_less(double *best, double seconds)
{
	if (*best == 0 || seconds < *best)
		*best = seconds;
}

/* One round: seconds of puts and gets, ours and raw. */
static void measure(struct kvi_backend *b, const struct raw *raw, unsigned n, double best[4])
{
	kvarc_source source = { .memory = data, .size = BYTES };
	kvarc_error e = { .text = "" };
	char key[64];
	size_t got;
	double t = now();
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof key, "speed/%ld-%u", (long)getpid(), i);
		demand(b->calls->put(b, key, &source, &e) == KVARC_OK, e.text);
	}
	keep_less(&best[0], now() - t);
	t = now();
	for (unsigned i = 0; i < n; i++)
		raw->put(i);
	keep_less(&best[1], now() - t);
	t = now();
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof key, "speed/%ld-%u", (long)getpid(), i);
		demand(b->calls->get(b, key, 0, into, BYTES, &got, &e) == KVARC_OK && got == BYTES,
		       e.text);
	}
	keep_less(&best[2], now() - t);
	demand(memcmp(data, into, BYTES) == 0, "comparison");
	t = now();
	for (unsigned i = 0; i < n; i++)
		raw->get(i);
	keep_less(&best[3], now() - t);
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof key, "speed/%ld-%u", (long)getpid(), i);
		demand(b->calls->remove(b, key, &e) == KVARC_OK, e.text);
		raw->remove(i);
	}
}

int main(int argc, char **argv)
{
	struct kvi_backend *b;
	kvarc_error e = { .text = "" };
	double best[4] = { 0 };
	if (argc < 2)
		return 2;
	url = argv[1];
	unsigned n = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : OBJECTS;
	struct kvi_backend_options options = { .create = 1,
		                               .access_key = getenv("AWS_ACCESS_KEY_ID"),
		                               .secret_key = getenv("AWS_SECRET_ACCESS_KEY") };
	data = malloc(BYTES);
	into = malloc(BYTES);
	demand(data && into, "memory");
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	if (kvi_backend_open(&b, url, &options, &e)) {
		fprintf(stderr, "store_speed: %s\n", e.text);
		return 2;
	}
	const struct raw *raw = open_raw();
	for (int i = 0; i < ROUNDS; i++)
		measure(b, raw, n, best);
	kvi_backend_close(&b);
	double mb = (double)n * BYTES * 1e-6;
	printf("put  %7.0f MB/s  raw client %7.0f MB/s  %.2f\n", mb / best[0], mb / best[1],
	       best[1] / best[0]);
	printf("get  %7.0f MB/s  raw client %7.0f MB/s  %.2f\n", mb / best[2], mb / best[3],
	       best[3] / best[2]);
	free(data);
	free(into);
	return best[1] / best[0] < RATIO_MIN || best[3] / best[2] < RATIO_MIN;
}
