/* SPDX-License-Identifier: BSD-3-Clause */
/* oci_seen.c - the blobs that one export or import has gone through already */
#include "oci_seen.h"

#include <string.h>

/* Where an id and a digest are, or would be. */
static size_t position(const struct kvi_oci_seen *seen, const uint8_t id[16], const char *digest)
{
	size_t low = 0, high = seen->list.n;
	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		const struct kvi_oci_layer *l = KVI_LIST(struct kvi_oci_layer, seen->list, middle);
		int order = memcmp(l->id, id, sizeof l->id);
		if (!order)
			order = strcmp(l->blob.digest, digest);
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct kvi_oci_blob *kvi_oci_seen_find(const struct kvi_oci_seen *seen, const uint8_t id[16],
                                             const char *digest)
{
	const size_t i = position(seen, id, digest ? digest : "");
	if (i == seen->list.n)
		return NULL; /* also of a list without memory */
	const struct kvi_oci_layer *l = KVI_LIST(struct kvi_oci_layer, seen->list, i);
	if (memcmp(l->id, id, sizeof l->id) != 0 || (digest && strcmp(l->blob.digest, digest) != 0))
		return NULL;
	return &l->blob;
}

bool kvi_oci_seen_add(struct kvi_oci_seen *seen, const struct kvi_alloc *alloc,
                      const uint8_t id[16], const struct kvi_oci_blob *blob)
{
	const size_t i = position(seen, id, blob->digest);
	if (!kvi_list_add(&seen->list, alloc, sizeof(struct kvi_oci_layer)))
		return false;
	struct kvi_oci_layer *l = KVI_LIST(struct kvi_oci_layer, seen->list, i);
	memmove(l + 1, l, (seen->list.n - 1 - i) * sizeof *l);
	memcpy(l->id, id, sizeof l->id);
	l->blob = *blob;
	return true;
}
