/* SPDX-License-Identifier: BSD-3-Clause */
/* store_oci.c - sessions of a store as an OCI image layout, and back */
#include "config.h"

#include "store_names.h"

#if defined(HAVE_SODIUM) && defined(HAVE_JANSSON)

#include <string.h>

#include "oci_folder.h"
#include "oci_seen.h"

/* ----- export ------------------------------------------------ */

struct oci_export {
	struct kvi_oci_folder folder;
	struct kvi_oci_seen put; /* archives */
	kvarc_exported *result;
};

static kvarc_ret put_blob(struct oci_export *x, const char *text, size_t n,
                          struct kvi_oci_blob *blob)
{
	const kvarc_source source = kvi_text_source(text, n);
	bool had;
	return kvi_oci_put(&x->folder, &source, blob, &had);
}

static kvarc_ret put_pack(struct oci_export *x, const uint8_t id[16], struct kvi_oci_blob *blob)
{
	struct kvarc_store *s = x->folder.s;
	char key[KVI_PACK_KEY];
	kvarc_source source;
	bool had = false;
	kvi_pack_key(key, id);
	kvarc_ret ret = kvi_leaving_source(s, key, &source);
	if (ret)
		return ret;
	ret = kvi_oci_put(&x->folder, &source, blob, &had);
	kvi_object_source_close(&source);
	x->result->left_out += !ret && had;
	x->result->archives += !ret && !had;
	x->result->archive_bytes += ret || had ? 0 : blob->bytes;
	if (!ret && !kvi_oci_seen_add(&x->put, &s->alloc, id, blob))
		ret = kvi_fail_alloc(s->error, &s->alloc);
	return ret;
}

static kvarc_ret put_layer(struct oci_export *x, struct kvi_oci_version *v, const uint8_t id[16])
{
	struct kvarc_store *s = x->folder.s;
	struct kvi_oci_layer *to = kvi_list_add(&v->layers, &s->alloc, sizeof *to);
	const struct kvi_oci_blob *seen = kvi_oci_seen_find(&x->put, id, NULL);
	if (!to)
		return kvi_fail_alloc(s->error, &s->alloc);
	memcpy(to->id, id, 16);
	if (!seen)
		return put_pack(x, id, &to->blob);
	to->blob = *seen;
	x->result->left_out++;
	return KVARC_OK;
}

/* The chain value of the first track; one that is not known is left out, and so is that of an
 * encrypted archive, as it shows who has equal prompts. */
static void find_chain(struct kvarc_store *s, const uint8_t id[16], struct kvi_oci_version *v)
{
	kvarc_reader *r;
	if (kvi_pack_reader(s, id, false, &r) == KVARC_OK && kvarc_reader_tokens(r, 0))
		v->has_chain =
			kvarc_reader_chain(r, 0, kvarc_reader_tokens(r, 0), v->chain) == KVARC_OK;
}

static kvarc_ret put_manifest(struct oci_export *x, const struct kvi_oci_version *v,
                              struct kvi_oci_blob *blob)
{
	struct kvarc_store *s = x->folder.s;
	struct kvi_out out;
	kvi_out_init(&out, &s->alloc);
	kvarc_ret ret = kvi_oci_version_write(v, &out)
	                        ? put_blob(x, (const char *)out.p, out.n, blob)
	                        : kvi_fail_alloc(s->error, &s->alloc);
	kvi_out_free(&out);
	return ret;
}

static kvarc_ret put_version(void *opaque, const kvarc_version_name *version,
                             const struct kvi_leaving *leaving)
{
	struct oci_export *x = opaque;
	struct kvarc_store *s = x->folder.s;
	struct kvi_oci_version v = { .tokens = leaving->m.tokens, .time = leaving->m.time };
	struct kvi_oci_blob manifest;
	char text[KVI_MANIFEST_MAX];
	kvarc_ret ret = KVARC_OK;
	if (!kvi_version_key(v.key, KVI_NAMESPACE_DEFAULT, version->session, leaving->number))
		return kvi_fail(s->error, KVARC_PROG, "store: a name is too long");
	for (size_t i = 0; i < leaving->ids.n && !ret; i++)
		ret = put_layer(x, &v, kvi_leaving_id(leaving, i));
	if (!leaving->m.needs.encrypted)
		find_chain(s, leaving->m.needs.pack, &v);
	if (!ret)
		ret = put_blob(x, text, kvi_manifest_write(text, &leaving->m), &v.text);
	if (!ret)
		ret = put_manifest(x, &v, &manifest);
	if (!ret && !kvi_oci_index_add(x->folder.index, &manifest, v.key, version->number != 0))
		ret = kvi_fail(s->error, KVARC_MEM, "store: no memory");
	x->result->versions += !ret;
	kvi_oci_version_free(&v, &s->alloc);
	return ret;
}

kvarc_ret kvarc_store_export_oci(kvarc_store *s, size_t n, const kvarc_version_name *versions,
                                 const char *folder, kvarc_exported *exported)
{
	kvarc_exported unused;
	struct oci_export x = { .result = exported ? exported : &unused };
	struct kvi_oci_blob empty;
	if (!s || !folder || (n && !versions))
		return KVARC_PROG;
	memset(x.result, 0, sizeof *x.result);
	kvarc_ret ret = kvi_oci_open(&x.folder, s, folder, true);
	if (!ret)
		ret = put_blob(&x, KVI_OCI_EMPTY, sizeof KVI_OCI_EMPTY - 1, &empty);
	if (!ret)
		ret = kvi_export_each(s, "kvarc_store_export_oci", n, versions, put_version, &x);
	if (!ret)
		ret = kvi_oci_put_index(&x.folder);
	kvi_free(&s->alloc, x.put.list.p);
	kvi_oci_close(&x.folder);
	return ret;
}

/* ----- import ------------------------------------------------ */

struct oci_import {
	struct kvi_importing x;
	struct kvi_oci_folder folder;
	/* layers, and the manifests of entries of the index, whose id is 0: a short file can name
	 * the same ones any number of times */
	struct kvi_oci_seen layers, manifests;
};

static kvarc_ret take_layer(struct oci_import *im, const struct kvi_oci_layer *l)
{
	struct kvarc_store *s = im->x.s;
	const struct kvi_oci_blob *seen = kvi_oci_seen_find(&im->layers, l->id, l->blob.digest);
	struct kvi_oci_source source;
	if (seen && seen->bytes == l->blob.bytes) {
		im->x.came.left_out++;
		return KVARC_OK;
	}
	kvarc_ret ret = kvi_oci_get(&im->folder, &l->blob, &source);
	if (ret)
		return ret;
	ret = kvi_arrive_pack(s, l->id, &source.source, &im->x.came);
	kvi_oci_get_close(&source);
	if (!ret && !kvi_oci_seen_add(&im->layers, &s->alloc, l->id, &l->blob))
		ret = kvi_fail_alloc(s->error, &s->alloc);
	return ret;
}

static kvarc_ret take_version(struct oci_import *im, const struct kvi_oci_version *v)
{
	struct kvi_importing *x = &im->x;
	struct kvi_session_key k;
	uint8_t *text;
	if (!kvi_session_key_parse(&k, v->key))
		return kvi_fail(x->s->error, KVARC_DATA,
		                "store: a manifest of the OCI layout has no valid name of a "
		                "session");
	if (!kvi_import_wants(x, k.name))
		return KVARC_OK;
	kvarc_ret ret = kvi_oci_get_bytes(&im->folder, &v->text, KVI_MANIFEST_MAX, &text);
	for (size_t i = 0; i < v->layers.n && !ret; i++)
		ret = take_layer(im, KVI_LIST(struct kvi_oci_layer, v->layers, i));
	if (!ret)
		ret = kvi_import_version(x, v->key, (const char *)text, (size_t)v->text.bytes);
	kvi_free(&x->s->alloc, text);
	return ret;
}

static kvarc_ret take_image(struct oci_import *im, const struct kvi_oci_blob *blob)
{
	static const uint8_t none[16];
	struct kvarc_store *s = im->x.s;
	struct kvi_oci_version v = { .tokens = 0 };
	uint8_t *p;
	const struct kvi_oci_blob *seen = kvi_oci_seen_find(&im->manifests, none, blob->digest);
	if (seen && seen->bytes == blob->bytes)
		return KVARC_OK;
	kvarc_ret ret = kvi_oci_get_bytes(&im->folder, blob, KVI_OCI_JSON_MAX, &p);
	if (ret)
		return ret;
	ret = kvi_oci_version_load(&v, p, (size_t)blob->bytes, &s->alloc, s->error);
	kvi_free(&s->alloc, p);
	if (!ret)
		ret = take_version(im, &v);
	kvi_oci_version_free(&v, &s->alloc);
	if (ret && ret != KVARC_END)
		return ret;
	return kvi_oci_seen_add(&im->manifests, &s->alloc, none, blob)
	               ? KVARC_OK
	               : kvi_fail_alloc(s->error, &s->alloc);
}

kvarc_ret kvarc_store_import_oci(kvarc_store *s, const char *folder, size_t n,
                                 const char *const *sessions, kvarc_imported_fn fn, void *opaque)
{
	struct oci_import im = {
		.x = { .s = s, .n = n, .sessions = sessions, .fn = fn, .opaque = opaque }
	};
	struct kvi_oci_blob blob;
	if (!s || !folder || (n && !sessions))
		return KVARC_PROG;
	kvarc_ret ret = kvi_oci_open(&im.folder, s, folder, false);
	for (size_t i = 0; !ret; i++) {
		ret = kvi_oci_index_entry(im.folder.index, i, &blob);
		if (ret == KVARC_DATA)
			ret = kvi_fail(s->error, ret,
			               "store: index.json of the OCI layout has a digest or size "
			               "that is not valid");
		else if (ret == KVARC_OPTIONS)
			ret = KVARC_OK;
		else if (!ret)
			ret = take_image(&im, &blob);
	}
	kvi_free(&s->alloc, im.layers.list.p);
	kvi_free(&s->alloc, im.manifests.list.p);
	kvi_oci_close(&im.folder);
	return ret == KVARC_END ? kvi_import_end(&im.x) : ret;
}

#else

static kvarc_ret fail_without(struct kvarc_store *s)
{
	return s ? kvi_fail(s->error, KVARC_OPTIONS,
	                    "store: OCI layouts need " JANSSON_MISSING ", and " SODIUM_MISSING)
	         : KVARC_PROG;
}

kvarc_ret kvarc_store_export_oci(kvarc_store *s, size_t n, const kvarc_version_name *versions,
                                 const char *folder, kvarc_exported *exported)
{
	(void)n, (void)versions, (void)folder, (void)exported;
	return fail_without(s);
}

kvarc_ret kvarc_store_import_oci(kvarc_store *s, const char *folder, size_t n,
                                 const char *const *sessions, kvarc_imported_fn fn, void *opaque)
{
	(void)folder, (void)n, (void)sessions, (void)fn, (void)opaque;
	return fail_without(s);
}

#endif
