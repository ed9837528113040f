/* SPDX-License-Identifier: BSD-3-Clause */
/* http_stand_in.c - a stand-in of a service on 127.0.0.1, whose answers a test makes */
#include "config.h"

#include "http_stand_in.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { REQUEST_MAX = 1 << 20 };

/* All of a request: its head, and the body that Content-Length announces. 0: it is not whole. */
static size_t read_request(int fd, char *text, size_t *head)
{
	size_t n = 0, want = 0;
	*head = 0;
	while (!*head || n < want) {
		ssize_t k = n < REQUEST_MAX ? recv(fd, text + n, REQUEST_MAX - n, 0) : 0;
		if (k <= 0)
			return 0;
		n += (size_t)k;
		text[n] = 0;
		const char *end = *head ? NULL : strstr(text, "\r\n\r\n");
		if (!end)
			continue;
		*head = (size_t)(end - text) + 4;
		const char *length = strcasestr(text, "\r\ncontent-length:");
		want = *head + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
	}
	return n;
}

static bool parse(struct http_request *r, char *text, size_t head, size_t n)
{
	unsigned long long first, last;
	*r = (struct http_request){ .body = (uint8_t *)text + head, .bytes = n - head };
	text[head - 1] = 0;
	if (sscanf(text, "%15s %1023s", r->method, r->path) != 2)
		return false;
	r->if_absent = strcasestr(text, "\r\nif-none-match: *") != NULL;
	const char *range = strcasestr(text, "\r\nrange: bytes=");
	r->has_range = range && sscanf(range + 15, "%llu-%llu", &first, &last) == 2;
	if (r->has_range) {
		r->first = first;
		r->last = last;
	}
	return true;
}

static void send_all(int fd, const void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t k = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
		if (k <= 0)
			return;
		at += (size_t)k;
	}
}

static void serve(const struct http_stand_in *h, int fd, char *text)
{
	struct http_request r;
	struct http_answer a = { 0 };
	size_t head, n = read_request(fd, text, &head);
	char line[160];
	if (!n || !parse(&r, text, head, n))
		return;
	h->answer(h->opaque, &r, &a);
	int k = snprintf(line, sizeof line,
	                 "HTTP/1.1 %d Status\r\nContent-Length: %zu\r\nETag: \"e\"\r\n"
	                 "Connection: close\r\n\r\n",
	                 a.status ? a.status : 200, a.bytes);
	send_all(fd, line, (size_t)k);
	if (strcmp(r.method, "HEAD") != 0)
		send_all(fd, a.body, a.cut ? a.bytes / 2 : a.bytes);
}

static void *run(void *opaque)
{
	const struct http_stand_in *h = opaque;
	char *text = malloc(REQUEST_MAX + 1);
	int fd;
	while (text && (fd = accept(h->fd, NULL, NULL)) >= 0) {
		serve(h, fd, text);
		shutdown(fd, SHUT_WR);
		close(fd);
	}
	free(text);
	return NULL;
}

void http_start(struct http_stand_in *h, http_answer_fn answer, void *opaque)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof to;
	*h = (struct http_stand_in){ .answer = answer, .opaque = opaque };
	setenv("no_proxy", "127.0.0.1", 1);
	h->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(h->fd >= 0);
	assert_int_equal(bind(h->fd, (struct sockaddr *)&to, bytes), 0);
	assert_int_equal(listen(h->fd, 8), 0);
	assert_int_equal(getsockname(h->fd, (struct sockaddr *)&to, &bytes), 0);
	h->port = ntohs(to.sin_port);
	assert_int_equal(pthread_create(&h->thread, NULL, run, h), 0);
}

void http_stop(struct http_stand_in *h)
{
	shutdown(h->fd, SHUT_RDWR); /* accept fails */
	pthread_join(h->thread, NULL);
	close(h->fd);
}
