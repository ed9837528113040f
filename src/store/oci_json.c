/* SPDX-License-Identifier: BSD-3-Clause */
/* oci_json.c - index and artifact manifests of OCI image layouts, read and written */
#include "config.h"

#include "oci_json.h"

#include <ctype.h>
#include <inttypes.h>
#include "util/jansson_calls.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "parse/st_header.h"
#include "util/error.h"
#include "util/hash.h"

#define INDEX_TYPE "application/vnd.oci.image.index.v1+json"
#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define EMPTY_TYPE "application/vnd.oci.empty.v1+json"
#define EMPTY_DIGEST "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
#define ARTIFACT_TYPE "application/vnd.kvarc.session.v1"
#define ARCHIVE_TYPE "application/vnd.kvarc.archive.v1"
#define VERSION_TYPE "application/vnd.kvarc.session.version.v1"
#define REF_NAME "org.opencontainers.image.ref.name"
#define TITLE "org.opencontainers.image.title"
#define CREATED "org.opencontainers.image.created"
#define OWN_KEY "org.kvarc.key"
#define OWN_SESSION "org.kvarc.session"
#define OWN_TOKENS "org.kvarc.tokens"
#define OWN_CHAIN "org.kvarc.chain"
#define ALGORITHM "sha256:"

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

static const char *annotation_of(const json_t *object, const char *key)
{
	return text_of(json_object_get(object, "annotations"), key);
}

/* ----- descriptors ------------------------------------------------ */

/* Digest and size; any other algorithm than SHA-256 is not valid here. */
static bool get_blob(const json_t *d, struct kvi_oci_blob *blob)
{
	const char *digest = text_of(d, "digest");
	const json_t *size = json_object_get(d, "size");
	const size_t skip = sizeof ALGORITHM - 1;
	if (strncmp(digest, ALGORITHM, skip) != 0 || strlen(digest) != skip + 64 ||
	    strspn(digest + skip, "0123456789abcdef") != 64 || !json_is_integer(size) ||
	    json_integer_value(size) < 0)
		return false;
	memcpy(blob->digest, digest + skip, 65);
	blob->bytes = (uint64_t)json_integer_value(size);
	return true;
}

/* A new descriptor; title NULL: none. */
static json_t *make_descriptor(const char *type, const struct kvi_oci_blob *blob,
                               const char *annotation, const char *value)
{
	char digest[sizeof ALGORITHM + 64];
	json_t *d;
	snprintf(digest, sizeof digest, ALGORITHM "%s", blob->digest);
	d = json_pack("{s:s, s:s, s:I}", "mediaType", type, "digest", digest, "size",
	              (json_int_t)blob->bytes);
	if (d && annotation &&
	    json_object_set_new(d, "annotations", json_pack("{s:s}", annotation, value))) {
		json_decref(d);
		return NULL;
	}
	return d;
}

static int put_text(const char *p, size_t n, void *opaque)
{
	struct kvi_out *out = opaque;
	kvi_put_bytes(out, p, n);
	return out->failed ? -1 : 0;
}

static bool write_json(const json_t *root, struct kvi_out *out)
{
	return json_dump_callback(root, put_text, out, JSON_COMPACT) == 0 && !out->failed;
}

/* ----- the index ------------------------------------------------ */

static kvarc_ret fail_json(kvarc_error *e, const char *what)
{
	return kvi_fail(e, KVARC_DATA, "store: %s of the OCI layout is damaged", what);
}

kvarc_ret kvi_oci_index_load(const uint8_t *p, size_t n, uint64_t memlimit, json_t **root,
                             kvarc_error *e)
{
	uint64_t budget = memlimit;
	*root = NULL;
	if (n > KVI_OCI_JSON_MAX)
		return kvi_fail(e, KVARC_DATA, "store: index.json of the OCI layout is too large");
	kvarc_ret ret = kvi_json_load(p, n, "index.json", &budget, root, e);
	if (ret)
		return ret;
	if (json_integer_value(json_object_get(*root, "schemaVersion")) == 2 &&
	    json_is_array(json_object_get(*root, "manifests")))
		return KVARC_OK;
	kvi_oci_release(*root);
	*root = NULL;
	return fail_json(e, "index.json");
}

json_t *kvi_oci_index_new(void)
{
	return json_pack("{s:i, s:s, s:[]}", "schemaVersion", 2, "mediaType", INDEX_TYPE,
	                 "manifests");
}

kvarc_ret kvi_oci_index_entry(const json_t *root, size_t i, struct kvi_oci_blob *blob)
{
	const json_t *manifests = json_object_get(root, "manifests");
	const json_t *entry = json_array_get(manifests, i);
	if (i >= json_array_size(manifests))
		return KVARC_END;
	if (strcmp(text_of(entry, "mediaType"), MANIFEST_TYPE) != 0)
		return KVARC_OPTIONS;
	return get_blob(entry, blob) ? KVARC_OK : KVARC_DATA;
}

/* Whether an entry is that of a version of a session. */
static bool is_of(const json_t *entry, const char *session)
{
	struct kvi_session_key k;
	return kvi_session_key_parse(&k, annotation_of(entry, OWN_KEY)) &&
	       strcmp(k.name, session) == 0;
}

/* The entry with a name; json_array_size: there is none. */
static size_t find_name(const json_t *manifests, const char *name)
{
	size_t i = 0;
	while (i < json_array_size(manifests) &&
	       strcmp(annotation_of(json_array_get(manifests, i), REF_NAME), name) != 0)
		i++;
	return i;
}

/* The first name that is free, or that the session has; *at: its entry. */
static void find_free(const json_t *manifests, const struct kvi_session_key *k, bool numbered,
                      char name[KVI_OCI_NAME_MAX], size_t *at)
{
	unsigned more = 0;
	do {
		kvi_oci_name(name, k->name, more++, numbered ? k->number : 0);
		*at = find_name(manifests, name);
	} while (*at < json_array_size(manifests) &&
	         !is_of(json_array_get(manifests, *at), k->name));
}

bool kvi_oci_index_add(json_t *root, const struct kvi_oci_blob *manifest, const char *key,
                       bool numbered)
{
	json_t *manifests = json_object_get(root, "manifests");
	struct kvi_session_key k;
	char name[KVI_OCI_NAME_MAX];
	size_t at;
	if (!kvi_session_key_parse(&k, key))
		return false;
	find_free(manifests, &k, numbered, name, &at);
	json_t *entry = make_descriptor(MANIFEST_TYPE, manifest, REF_NAME, name);
	if (json_object_set_new(json_object_get(entry, "annotations"), OWN_KEY, json_string(key)) ||
	    json_object_set_new(entry, "artifactType", json_string(ARTIFACT_TYPE))) {
		json_decref(entry);
		return false;
	}
	return at < json_array_size(manifests) ? json_array_set_new(manifests, at, entry) == 0
	                                       : json_array_append_new(manifests, entry) == 0;
}

bool kvi_oci_index_write(const json_t *root, struct kvi_out *out)
{
	return write_json(root, out);
}

void kvi_oci_release(json_t *root)
{
	json_decref(root);
}

/* ----- manifests ------------------------------------------------ */

static kvarc_ret get_layer(struct kvi_oci_version *v, const json_t *layer,
                           const struct kvi_alloc *alloc, kvarc_error *e)
{
	const char *type = text_of(layer, "mediaType");
	const char *title = annotation_of(layer, TITLE);
	struct kvi_oci_layer *to;
	if (strcmp(type, VERSION_TYPE) == 0 && !*v->text.digest)
		return get_blob(layer, &v->text) ? KVARC_OK : fail_json(e, "a manifest");
	if (strcmp(type, ARCHIVE_TYPE) != 0)
		return fail_json(e, "a manifest");
	to = kvi_list_add(&v->layers, alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(e, alloc);
	return get_blob(layer, &to->blob) && kvi_unhex(to->id, title) && !title[32]
	               ? KVARC_OK
	               : fail_json(e, "a manifest");
}

static kvarc_ret get_version(struct kvi_oci_version *v, const json_t *root,
                             const struct kvi_alloc *alloc, kvarc_error *e)
{
	const json_t *layers = json_object_get(root, "layers");
	const char *key = annotation_of(root, OWN_KEY);
	if (strcmp(text_of(root, "artifactType"), ARTIFACT_TYPE) != 0)
		return KVARC_END;
	if (json_integer_value(json_object_get(root, "schemaVersion")) != 2 ||
	    json_array_size(layers) > KVI_OCI_LAYERS_MAX || strlen(key) > KVI_KEY_MAX)
		return fail_json(e, "a manifest");
	strcpy(v->key, key);
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < json_array_size(layers) && !ret; i++)
		ret = get_layer(v, json_array_get(layers, i), alloc, e);
	if (!ret && (!*v->text.digest || !v->layers.n))
		ret = fail_json(e, "a manifest");
	return ret;
}

kvarc_ret kvi_oci_version_load(struct kvi_oci_version *v, const uint8_t *p, size_t n,
                               const struct kvi_alloc *alloc, kvarc_error *e)
{
	uint64_t budget = alloc->limit;
	json_t *root;
	memset(v, 0, sizeof *v);
	if (n > KVI_OCI_JSON_MAX)
		return kvi_fail(e, KVARC_DATA,
		                "store: a manifest of the OCI layout is too large");
	kvarc_ret ret = kvi_json_load(p, n, "a manifest", &budget, &root, e);
	if (!ret)
		ret = get_version(v, root, alloc, e);
	json_decref(root);
	return ret;
}

static json_t *make_layers(const struct kvi_oci_version *v)
{
	json_t *layers = json_array();
	char title[33];
	bool good = layers;
	for (size_t i = 0; i < v->layers.n && good; i++) {
		const struct kvi_oci_layer *l = KVI_LIST(struct kvi_oci_layer, v->layers, i);
		kvi_hex(title, l->id);
		good = json_array_append_new(layers, make_descriptor(ARCHIVE_TYPE, &l->blob, TITLE,
		                                                     title)) == 0;
	}
	if (good && json_array_append_new(
			    layers, make_descriptor(VERSION_TYPE, &v->text, TITLE, "session")) == 0)
		return layers;
	json_decref(layers);
	return NULL;
}

static bool annotate(json_t *to, const char *key, const char *value)
{
	return json_object_set_new(to, key, json_string(value)) == 0;
}

static json_t *make_annotations(const struct kvi_oci_version *v)
{
	json_t *a = json_object();
	const time_t seconds = (time_t)(v->time / 1000);
	char number[24], hex[33], created[40] = "";
	struct kvi_session_key k;
	struct tm tm;
	bool good = a && annotate(a, OWN_KEY, v->key);
	snprintf(number, sizeof number, "%" PRIu64, v->tokens);
	kvi_hex(hex, v->chain);
	if (v->time && gmtime_r(&seconds, &tm))
		strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &tm);
	/* Names in other encodings than UTF-8 are in the key alone. */
	if (good && kvi_session_key_parse(&k, v->key))
		(void)annotate(a, OWN_SESSION, k.name);
	good = good && annotate(a, OWN_TOKENS, number);
	good = good && (!v->has_chain || annotate(a, OWN_CHAIN, hex));
	good = good && (!*created || annotate(a, CREATED, created));
	if (good)
		return a;
	json_decref(a);
	return NULL;
}

bool kvi_oci_version_write(const struct kvi_oci_version *v, struct kvi_out *out)
{
	const struct kvi_oci_blob empty = { EMPTY_DIGEST, sizeof KVI_OCI_EMPTY - 1 };
	json_t *root = json_pack("{s:i, s:s, s:s, s:o*, s:o*, s:o*}", "schemaVersion", 2,
	                         "mediaType", MANIFEST_TYPE, "artifactType", ARTIFACT_TYPE,
	                         "config", make_descriptor(EMPTY_TYPE, &empty, NULL, NULL),
	                         "layers", make_layers(v), "annotations", make_annotations(v));
	const bool good = json_object_size(root) == 6 && write_json(root, out);
	json_decref(root);
	return good;
}

void kvi_oci_version_free(struct kvi_oci_version *v, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, v->layers.p);
	v->layers = (struct kvi_list){ 0 };
}

/* ----- oci-layout, names ------------------------------------------------ */

/* Bytes of oci-layout that are looked at. */
enum { LAYOUT_MAX = 4096 };

bool kvi_oci_layout_known(const uint8_t *p, size_t n)
{
	uint64_t budget = (uint64_t)LAYOUT_MAX * KVI_JSON_COST;
	json_t *root;
	/* what is no JSON has no root */
	(void)!kvi_json_parse(p, n, &budget, &root);
	const bool known = strncmp(text_of(root, "imageLayoutVersion"), "1.0.", 4) == 0;
	json_decref(root);
	return known;
}

void kvi_oci_name(char name[KVI_OCI_NAME_MAX], const char *session, unsigned more, uint64_t number)
{
	const size_t most = KVI_OCI_NAME_MAX - 40;
	const char *p = session;
	size_t n = 0;
	/* Letters and digits with single other characters between them. */
	for (; *p && n < most; p++) {
		const bool plain = isascii((unsigned char)*p) && isalnum((unsigned char)*p);
		const bool may = n && isalnum((unsigned char)name[n - 1]) && p[1];
		if (plain)
			name[n++] = *p;
		else if (may)
			name[n++] = strchr("-._/", *p) ? *p : '-';
	}
	while (n && !isalnum((unsigned char)name[n - 1]))
		n--;
	if (!n)
		name[n++] = 's';
	name[n] = 0;
	if (more)
		n += (size_t)snprintf(
			name + n, 12, "-%08" PRIx32,
			(uint32_t)(kvi_h64(session, strlen(session)) + (more - 1)));
	if (number)
		snprintf(name + n, 24, "@%" PRIu64, number);
}
