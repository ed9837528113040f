/* SPDX-License-Identifier: BSD-3-Clause */
/* oci_json.h - index and artifact manifests of OCI image layouts, read and written */
#ifndef KVI_OCI_JSON_H
#define KVI_OCI_JSON_H

#include "session_names.h"
#include "util/bytes.h"
#include "util/list.h"

/* Limits; bytes of JSON that registries take are at most 4 MiB. */
enum { KVI_OCI_JSON_MAX = 4 << 20, KVI_OCI_LAYERS_MAX = 65536, KVI_OCI_NAME_MAX = 128 };

/* A blob, by its SHA-256 as 64 hex digits. */
struct kvi_oci_blob {
	char digest[65];
	uint64_t bytes;
};

/* An archive of a version. */
struct kvi_oci_layer {
	uint8_t id[16];
	struct kvi_oci_blob blob;
};

/* A version of a session as an artifact. */
struct kvi_oci_version {
	char key[KVI_KEY_MAX + 1]; /* of its manifest in the default namespace */
	uint64_t tokens, time;     /* written alone, as annotations; milliseconds since 1970 */
	bool has_chain;
	uint8_t chain[16];
	struct kvi_list layers;    /* struct kvi_oci_layer: those that are named before others */
	struct kvi_oci_blob text;  /* the manifest of the store */
};

struct json_t;

/* Takes an index.json, n bytes. Release *root with kvi_oci_release; NULL on failure. Returns OK,
 * DATA, MEMLIMIT. */
kvarc_ret kvi_oci_index_load(const uint8_t *p, size_t n, uint64_t memlimit, struct json_t **root,
                             kvarc_error *e);
/* A new index without manifests. NULL: no memory. */
struct json_t *kvi_oci_index_new(void);
/* Entry i. Returns OK; END: there is none; OPTIONS: another kind of entry than an image manifest;
 * DATA: digest or size is not valid. */
kvarc_ret kvi_oci_index_entry(const struct json_t *root, size_t i, struct kvi_oci_blob *blob);
/*
 * Adds an entry of the version with a key, in place of one with its name that is of the same
 * session; where another entry has the name, a hash of that of the session is added to it.
 * numbered: the name has the number of the version. False: no memory.
 */
bool kvi_oci_index_add(struct json_t *root, const struct kvi_oci_blob *manifest, const char *key,
                       bool numbered);
/* The text of an index. False: no memory. */
bool kvi_oci_index_write(const struct json_t *root, struct kvi_out *out);
/* NULL-safe. */
void kvi_oci_release(struct json_t *root);

/* Takes a manifest. *v is to be freed, also on failure. Returns OK; END: of another kind of image;
 * DATA, MEM, MEMLIMIT. */
kvarc_ret kvi_oci_version_load(struct kvi_oci_version *v, const uint8_t *p, size_t n,
                               const struct kvi_alloc *alloc, kvarc_error *e);
/* The text of a manifest. False: no memory. */
bool kvi_oci_version_write(const struct kvi_oci_version *v, struct kvi_out *out);
/* Frees the layers. */
void kvi_oci_version_free(struct kvi_oci_version *v, const struct kvi_alloc *alloc);

/* The content of oci-layout. */
#define KVI_OCI_LAYOUT "{\"imageLayoutVersion\":\"1.0.0\"}"
/* Whether that of a layout is of a version that is known. */
bool kvi_oci_layout_known(const uint8_t *p, size_t n);
/* The content of the blob that the config of a manifest is. */
#define KVI_OCI_EMPTY "{}"

/* A name for a version that tools take: that of its session, with '-' in place of what they do not,
 * then, unless `more` is 0, "-" and a hash of the session and of `more`, and "@N" unless number
 * is 0. */
void kvi_oci_name(char name[KVI_OCI_NAME_MAX], const char *session, unsigned more, uint64_t number);

#endif
