/* SPDX-License-Identifier: BSD-3-Clause */
/* s3_parts.h - the put of a large object in parts, which become visible together */
#ifndef KVI_S3_PARTS_H
#define KVI_S3_PARTS_H

#include "s3_request.h"

/* An object of more is put in parts; the least size of a part. */
enum { KVI_S3_PART_BYTES = 64 << 20 };

/* Puts all bytes of a source under a key that has no object; path: the encoded one of the key.
 * Returns OK, END (the key has an object), IO, MEM. */
kvarc_ret kvi_s3_put_parts(struct kvi_s3_client *c, const struct kvi_alloc *alloc, const char *key,
                           const char *path, const kvarc_source *source, kvarc_error *e);

#endif
