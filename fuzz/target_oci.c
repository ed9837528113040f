/* SPDX-License-Identifier: BSD-3-Clause */
/* target_oci.c - fuzz target: index.json, manifests and oci-layout of an OCI image layout */
#include "config.h"

#include "fuzz_common.h"

const size_t fuzz_parameters = 0;

#if defined(HAVE_SODIUM) && defined(HAVE_JANSSON) && defined(HAVE_SQLITE3)
#include "store/oci_json.h"
#include "util/alloc.h"

enum { MEMORY = 8 << 20 };

/* No digest leads out of the folder of the blobs. */
static void check_blob(const struct kvi_oci_blob *blob)
{
	FUZZ_CHECK(strlen(blob->digest) == 64);
	FUZZ_CHECK(strspn(blob->digest, "0123456789abcdef") == 64);
}

static void read_index(const uint8_t *data, size_t n)
{
	struct kvi_oci_blob blob;
	struct json_t *root;
	kvarc_ret ret = kvi_oci_index_load(data, n, MEMORY, &root, NULL);
	FUZZ_CHECK((ret == KVARC_OK) == (root != NULL));
	for (size_t i = 0; !ret; i++) {
		ret = kvi_oci_index_entry(root, i, &blob);
		if (!ret)
			check_blob(&blob);
		if (ret == KVARC_OPTIONS || ret == KVARC_DATA)
			ret = KVARC_OK;
	}
	kvi_oci_release(root);
}

/* What was read is written so that it is read again. */
static void read_version(const uint8_t *data, size_t n, const struct kvi_alloc *alloc)
{
	struct kvi_oci_version v, again;
	struct kvi_out out;
	if (kvi_oci_version_load(&v, data, n, alloc, NULL) == KVARC_OK) {
		check_blob(&v.text);
		for (size_t i = 0; i < v.layers.n; i++)
			check_blob(&KVI_LIST(struct kvi_oci_layer, v.layers, i)->blob);
		kvi_out_init(&out, alloc);
		if (kvi_oci_version_write(&v, &out)) {
			kvarc_ret ret = kvi_oci_version_load(&again, out.p, out.n, alloc, NULL);
			FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_MEMLIMIT || ret == KVARC_MEM);
			FUZZ_CHECK(ret || (again.layers.n == v.layers.n &&
			                   strcmp(again.key, v.key) == 0));
			kvi_oci_version_free(&again, alloc);
		}
		kvi_out_free(&out);
	}
	kvi_oci_version_free(&v, alloc);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct kvi_alloc alloc;
	(void)env;
	kvi_alloc_init(&alloc, NULL, MEMORY);
	read_index(data, n);
	read_version(data, n, &alloc);
	(void)kvi_oci_layout_known(data, n);
}
#else
void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	(void)data, (void)n, (void)env;
}
#endif
