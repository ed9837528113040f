/* SPDX-License-Identifier: BSD-3-Clause */
/* oci_seen.h - the blobs that one export or import has gone through already */
#ifndef KVI_OCI_SEEN_H
#define KVI_OCI_SEEN_H

#include "oci_json.h"

/* Layers, ascending by id, and then by digest: several versions share most of them. All zero:
 * empty. Its owner frees list.p. */
struct kvi_oci_seen {
	struct kvi_list list; /* struct kvi_oci_layer */
};

/* The blob that was added with an id; digest NULL: any. NULL: there is none. It stays until the
 * next kvi_oci_seen_add. */
const struct kvi_oci_blob *kvi_oci_seen_find(const struct kvi_oci_seen *seen, const uint8_t id[16],
                                             const char *digest);
/* Adds a blob. False: no memory. */
bool kvi_oci_seen_add(struct kvi_oci_seen *seen, const struct kvi_alloc *alloc,
                      const uint8_t id[16], const struct kvi_oci_blob *blob);

#endif
