/* SPDX-License-Identifier: BSD-3-Clause */
/* oci_folder.h - the files of an OCI image layout: blobs under their SHA-256, and index.json */
#ifndef KVI_OCI_FOLDER_H
#define KVI_OCI_FOLDER_H

#include "oci_json.h"
#include "store_state.h"

/* A layout that is open. */
struct kvi_oci_folder {
	struct kvarc_store *s;
	const char *path; /* for messages */
	int fd, blobs;    /* of the folder and of blobs/sha256; -1: not open */
	struct json_t *index;
};

/* Opens a layout and reads its index. create: it is made when it is not there, and locked against
 * other exports. To be closed, also on failure. Returns OK, OPTIONS (no layout), DATA, IO, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_oci_open(struct kvi_oci_folder *x, struct kvarc_store *s, const char *path,
                       bool create);
/* Closes what is open. */
void kvi_oci_close(struct kvi_oci_folder *x);

/* Puts all bytes of a source as a blob; *had: it was there. Returns OK, IO, MEM. */
kvarc_ret kvi_oci_put(struct kvi_oci_folder *x, const kvarc_source *source,
                      struct kvi_oci_blob *blob, bool *had);
/* Writes index.json. Returns OK, IO, MEM. */
kvarc_ret kvi_oci_put_index(struct kvi_oci_folder *x);

/* A blob that is read. */
struct kvi_oci_source {
	int fd;
	kvarc_source source;
};
/* Opens a blob and compares its size and SHA-256. On failure there is nothing to close. Returns OK,
 * DATA (missing, another size or content, no regular file), IO, MEM. */
kvarc_ret kvi_oci_get(struct kvi_oci_folder *x, const struct kvi_oci_blob *blob,
                      struct kvi_oci_source *source);
/* Closes a blob. */
void kvi_oci_get_close(struct kvi_oci_source *source);
/* All bytes of a blob of at most `most`, with the same checks; *p is to be freed. Returns as
 * kvi_oci_get, DATA: too large, MEMLIMIT. */
kvarc_ret kvi_oci_get_bytes(struct kvi_oci_folder *x, const struct kvi_oci_blob *blob, size_t most,
                            uint8_t **p);

#endif
