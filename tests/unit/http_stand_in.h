/* SPDX-License-Identifier: BSD-3-Clause */
/* http_stand_in.h - a stand-in of a service on 127.0.0.1, whose answers a test makes */
#ifndef HTTP_STAND_IN_H
#define HTTP_STAND_IN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_request {
	char method[16], path[1024]; /* with what stands behind '?' */
	bool if_absent;              /* If-None-Match: * */
	bool has_range;
	uint64_t first, last; /* of its bytes, where it has one */
	const uint8_t *body;
	size_t bytes;
};

/* All zero: 200 without a body. */
struct http_answer {
	int status;
	const void *body; /* of the test */
	size_t bytes;
	bool cut; /* the connection ends in the middle of the body */
};

typedef void (*http_answer_fn)(void *opaque, const struct http_request *r, struct http_answer *a);

/* One request at a time, in a thread of its own, each with a connection of its own. */
struct http_stand_in {
	http_answer_fn answer;
	void *opaque;
	int fd;
	unsigned port;
	pthread_t thread;
};

/* fn runs in the thread. Fails the test where there is no socket. */
void http_start(struct http_stand_in *h, http_answer_fn answer, void *opaque);
void http_stop(struct http_stand_in *h);

#endif
