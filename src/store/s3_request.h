/* SPDX-License-Identifier: BSD-3-Clause */
/* s3_request.h - one signed request to an S3-compatible service, by libcurl */
#ifndef KVI_S3_REQUEST_H
#define KVI_S3_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"

/* A connection, and who uses it. One thread. */
struct kvi_s3_client;

/* Capacities for an address and an ETag. */
enum { KVI_S3_URL_MAX = 4096, KVI_S3_ETAG_MAX = 128 };

/* Status codes that are looked at. */
enum {
	KVI_HTTP_OK = 200,
	KVI_HTTP_PARTIAL = 206,
	KVI_HTTP_NO_CONTENT = 204,
	KVI_HTTP_BAD_REQUEST = 400,
	KVI_HTTP_NOT_FOUND = 404,
	KVI_HTTP_CONFLICT = 409,
	KVI_HTTP_PRECONDITION = 412,
	KVI_HTTP_RANGE = 416,
	KVI_HTTP_NOT_IMPLEMENTED = 501
};

/* A request, and its answer. */
struct kvi_s3_request {
	/* in */
	const char *method; /* "GET", "HEAD", "PUT", "POST", "DELETE" */
	const char *path;   /* encoded, of the object behind the bucket: "/..."; "": the bucket */
	const char *query;  /* sorted by name, encoded; NULL: none */
	uint64_t range_offset, range_bytes; /* GET; range_bytes 0: all */
	int if_absent;                      /* PUT, POST: 412 when the object is there */
	const char *if_match;     /* an ETag: 412 when the object has another one; NULL: none */
	const kvarc_source *body; /* PUT, POST: its bytes from body_offset on */
	uint64_t body_offset, body_bytes;
	void *out; /* GET into out_capacity bytes, more fails; NULL: into text */
	size_t out_capacity;
	/* out */
	long status; /* of HTTP */
	size_t got;  /* bytes in out */
	char *text;  /* of the answer, with a 0 behind; of the client, until the next request */
	size_t text_bytes;
	uint64_t content_bytes; /* of HEAD */
	int64_t time;           /* Last-Modified, 0: none */
	char etag[KVI_S3_ETAG_MAX];
};

/* The service of a bucket. All strings are copied. Returns OK, MEM, OPTIONS, IO. */
kvarc_ret kvi_s3_open(struct kvi_s3_client **c, const kvarc_allocator *allocator,
                      const char *endpoint, const char *region, const char *bucket,
                      const char *access_key, const char *secret_key, const char *session_token,
                      kvarc_error *e);
void kvi_s3_close(struct kvi_s3_client **c); /* NULL-safe */
/* Milliseconds for a request and its answer; 0: no limit while bytes come. */
void kvi_s3_set_timeout(struct kvi_s3_client *c, uint32_t timeout_ms);

/* Sends a request and waits for its answer. Requests that change nothing are sent three times
 * before they fail, but with a timeout once. Returns OK with any HTTP status below 500, IO, MEM. */
kvarc_ret kvi_s3_send(struct kvi_s3_client *c, struct kvi_s3_request *r, kvarc_error *e);

/* Puts a text into an address as RFC 3986 and the signature demand. keep: a byte that stays;
 * 0: none. Returns the end of it, where a 0 is. */
char *kvi_s3_encode(char *to, const char *text, char keep);
/* IO for a status that is no answer to what was asked; the service's own words follow. */
kvarc_ret kvi_s3_fail(const struct kvi_s3_request *r, const char *key, kvarc_error *e);
/* A put, or the end of one in parts, has been answered. Returns OK, END (the key is taken), IO. */
kvarc_ret kvi_s3_put_result(const struct kvi_s3_request *r, const char *key, kvarc_error *e);

#endif
