/* SPDX-License-Identifier: BSD-3-Clause */
/* s3_parts.c - the put of a large object in parts, which become visible together */
#include "config.h"

#include "s3_parts.h"

#ifdef HAVE_LIBCURL

#include <stdio.h>
#include <string.h>

#include "s3_list.h"
#include "util/error.h"

enum { PARTS_MAX = 10000 };

/* Text that grows by formatted pieces. */
struct growing {
	char *p;
	size_t n, capacity;
};

/* One part. Its ETag goes into the list that ends the upload. */
static kvarc_ret put_part(struct kvi_s3_client *c, const char *path, const char *upload,
                          unsigned number, const kvarc_source *source, uint64_t offset,
                          uint64_t bytes, struct growing *list, kvarc_error *e)
{
	char query[2 * KVI_S3_TOKEN_MAX];
	snprintf(query, sizeof query, "partNumber=%u&uploadId=%s", number, upload);
	struct kvi_s3_request r = { .method = "PUT",
		                    .path = path,
		                    .query = query,
		                    .body = source,
		                    .body_offset = offset,
		                    .body_bytes = bytes };
	kvarc_ret ret = kvi_s3_send(c, &r, e);
	if (ret)
		return ret;
	if (r.status != KVI_HTTP_OK)
		return kvi_s3_fail(&r, path, e);
	list->n += (size_t)snprintf(list->p + list->n, list->capacity - list->n,
	                            "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>",
	                            number, r.etag);
	return list->n < list->capacity
	               ? KVARC_OK
	               : kvi_fail(e, KVARC_IO, "store: too many parts of %s", path);
}

/* Begins an upload in parts; upload gets its encoded name. */
static kvarc_ret begin_parts(struct kvi_s3_client *c, const char *path,
                             char upload[KVI_S3_TOKEN_MAX], kvarc_error *e)
{
	const kvarc_source empty = { .memory = "" };
	char id[KVI_S3_TOKEN_MAX / 3];
	struct kvi_s3_request r = {
		.method = "POST", .path = path, .query = "uploads=", .body = &empty
	};
	kvarc_ret ret = kvi_s3_send(c, &r, e);
	if (ret)
		return ret;
	const char *from = r.status == KVI_HTTP_OK && r.text ? strstr(r.text, "<UploadId>") : NULL;
	const char *to = from ? strstr(from, "</UploadId>") : NULL;
	if (!to || (size_t)(to - from) >= sizeof id)
		return kvi_s3_fail(&r, path, e);
	snprintf(id, sizeof id, "%.*s", (int)(to - from - 10), from + 10);
	kvi_s3_encode(upload, id, 0);
	return KVARC_OK;
}

static kvarc_ret send_parts(struct kvi_s3_client *c, const char *key, const char *path,
                            const char *upload, const kvarc_source *source, struct growing *list,
                            kvarc_error *e)
{
	char query[2 * KVI_S3_TOKEN_MAX];
	uint64_t least = source->size / PARTS_MAX + 1;
	uint64_t part = least > KVI_S3_PART_BYTES ? least : KVI_S3_PART_BYTES;
	unsigned number = 0;
	kvarc_ret ret = KVARC_OK;
	list->n = (size_t)snprintf(list->p, list->capacity, "<CompleteMultipartUpload>");
	for (uint64_t at = 0; !ret && at < source->size; at += part) {
		uint64_t left = source->size - at;
		ret = put_part(c, path, upload, ++number, source, at, left < part ? left : part,
		               list, e);
	}
	if (ret)
		return ret;
	list->n += (size_t)snprintf(list->p + list->n, list->capacity - list->n,
	                            "</CompleteMultipartUpload>");
	if (list->n >= list->capacity)
		return kvi_fail(e, KVARC_IO, "store: too many parts of %s", key);
	const kvarc_source body = { .memory = list->p, .size = list->n };
	snprintf(query, sizeof query, "uploadId=%s", upload);
	struct kvi_s3_request r = { .method = "POST",
		                    .path = path,
		                    .query = query,
		                    .if_absent = 1,
		                    .body = &body,
		                    .body_bytes = list->n };
	ret = kvi_s3_send(c, &r, e);
	/* this one may begin with 200 and fail later */
	if (!ret && r.status == KVI_HTTP_OK && r.text && strstr(r.text, "<Error>"))
		return kvi_s3_fail(&r, key, e);
	return ret ? ret : kvi_s3_put_result(&r, key, e);
}

kvarc_ret kvi_s3_put_parts(struct kvi_s3_client *c, const struct kvi_alloc *alloc, const char *key,
                           const char *path, const kvarc_source *source, kvarc_error *e)
{
	enum { PART_TEXT = 64 + KVI_S3_ETAG_MAX };
	char upload[KVI_S3_TOKEN_MAX], query[2 * KVI_S3_TOKEN_MAX];
	struct growing list = { .capacity = (size_t)(PARTS_MAX + 2) * PART_TEXT };
	kvarc_ret ret = begin_parts(c, path, upload, e);
	if (ret)
		return ret;
	list.p = kvi_malloc(alloc, list.capacity);
	ret = list.p ? send_parts(c, key, path, upload, source, &list, e)
	             : kvi_fail_alloc(e, alloc);
	kvi_free(alloc, list.p);
	if (ret) {
		snprintf(query, sizeof query, "uploadId=%s", upload);
		struct kvi_s3_request r = { .method = "DELETE", .path = path, .query = query };
		/* what stays of it the service removes by its own rules */
		(void)kvi_s3_send(c, &r, NULL);
	}
	return ret;
}

#else
typedef int kvi_s3_parts_empty; /* a C file has something in it */
#endif
