/* SPDX-License-Identifier: BSD-3-Clause */
/* identity.h - IDENTITY content (spec 5.1) */
#ifndef KVI_IDENTITY_H
#define KVI_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"
#include "util/bytes.h"

/* Most pairs of one identity. */
enum { KVI_IDENTITY_PAIRS = 4096 };

/* A key and its value, terminated strings. */
struct kvi_pair {
	char *key, *value;
};

/* Pairs in ascending byte order of unique keys. */
struct kvi_identity {
	size_t n;
	struct kvi_pair *pairs;
};

/* Frees all pairs; the identity is empty afterwards. */
void kvi_identity_free(struct kvi_identity *id, const struct kvi_alloc *alloc);
/* The value of a key; NULL: it is absent. The identity owns the string. */
const char *kvi_identity_get(const struct kvi_identity *id, const char *key);
/* Copies a pair in, replacing the value of its key. Returns OK, MEM, MEMLIMIT,
 * PROG (too many pairs or too long). */
kvarc_ret kvi_identity_set(struct kvi_identity *id, const struct kvi_alloc *alloc, const char *key,
                           const char *value);
/* Appends an IDENTITY content. Test out->failed afterwards. */
void kvi_identity_put(struct kvi_out *out, const struct kvi_identity *id);
/* Reads pairs as stored (n, at most max, then keys and values) from the front of in; *id is empty
 * before. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_identity_get_pairs(struct kvi_identity *id, const struct kvi_alloc *alloc,
                                 struct kvi_in *in, uint64_t max);
/* Adds the pairs of a content, which replace pairs of the same keys. Returns OK, MEM, MEMLIMIT,
 * DATA. */
kvarc_ret kvi_identity_parse(struct kvi_identity *id, const struct kvi_alloc *alloc,
                             const uint8_t *content, size_t bytes);

#endif
