/* SPDX-License-Identifier: BSD-3-Clause */
/* backend_s3.h - objects in a bucket of an S3-compatible service */
#ifndef KVI_BACKEND_S3_H
#define KVI_BACKEND_S3_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a key, a token and an ETag that the service may answer with. */
enum { KVI_S3_KEY_MAX = 1024, KVI_S3_TOKEN_MAX = 2048, KVI_S3_LIST_ETAG = 127 };

/* An object of the page. */
struct kvi_s3_object {
	char key[KVI_S3_KEY_MAX + 1];
	uint64_t bytes;
	int64_t time;                    /* seconds since 1970; 0: not known */
	char etag[KVI_S3_LIST_ETAG + 1]; /* ETag of the page; "": none, or a longer one */
};

/* The page, and how far it was read. */
struct kvi_s3_page {
	const char *at, *end;
	char next[KVI_S3_TOKEN_MAX + 1]; /* token of the next page; "": this is the last */
};

/* Begins with an answer of `bytes` bytes, which stays the caller's. Returns 0; -1: this is no such
 * answer. */
int kvi_s3_page_begin(struct kvi_s3_page *page, const char *xml, size_t bytes);
/* The next object. Returns 1, 0 (no more), -1 (the answer cannot be read). */
int kvi_s3_page_next(struct kvi_s3_page *page, struct kvi_s3_object *object);

#endif
