/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_tar.c - sessions of a store as a tar, and back
 *
 * The first entry, "kvarc-export", has the number of versions, so that a tar that was cut between
 * two entries is noticed. Then come archives under their keys, before the manifests of the versions
 * that need them, which have their keys in the default namespace.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store_names.h"
#include "tar_stream.h"

#define HEAD_NAME "kvarc-export"
#define HEAD_FORMAT "kvarc-export=1\nversions="
enum { HEAD_MAX = 64 };

/* ----- export ------------------------------------------------ */

struct exporting {
	struct kvi_tar_out tar;
	struct kvi_list written; /* ids of archives, 16 bytes each */
	kvarc_exported *result;
};

static bool is_written(const struct exporting *x, const uint8_t id[16])
{
	for (size_t i = 0; i < x->written.n; i++)
		if (memcmp((const uint8_t *)x->written.p + 16 * i, id, 16) == 0)
			return true;
	return false;
}

static kvarc_ret put_pack(struct exporting *x, const uint8_t id[16])
{
	struct kvarc_store *s = x->tar.s;
	if (is_written(x, id))
		return KVARC_OK;
	uint8_t *to = kvi_list_add(&x->written, &s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(s->error, &s->alloc);
	memcpy(to, id, 16);
	return kvi_tar_put_pack(&x->tar, id, &x->result->archives, &x->result->archive_bytes);
}

static kvarc_ret put_version(void *opaque, const kvarc_version_name *version,
                             const struct kvi_leaving *v)
{
	struct exporting *x = opaque;
	char key[KVI_KEY_MAX + 1], text[KVI_MANIFEST_MAX];
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < v->ids.n && !ret; i++)
		ret = put_pack(x, kvi_leaving_id(v, i));
	if (!ret && !kvi_version_key(key, KVI_NAMESPACE_DEFAULT, version->session, v->number))
		ret = kvi_fail(x->tar.s->error, KVARC_PROG, "store: a name is too long");
	if (!ret)
		ret = kvi_tar_put_text(&x->tar, key, text, kvi_manifest_write(text, &v->m));
	x->result->versions += !ret;
	return ret;
}

kvarc_ret kvarc_store_export(kvarc_store *s, size_t n, const kvarc_version_name *versions,
                             const kvarc_sink *sink, kvarc_exported *exported)
{
	kvarc_exported unused;
	struct exporting x = { .result = exported ? exported : &unused };
	char head[HEAD_MAX];
	uint64_t count;
	if (!s || !sink || !sink->write || (n && !versions))
		return KVARC_PROG;
	memset(x.result, 0, sizeof *x.result);
	kvarc_ret ret = kvi_export_count(s, n, &count);
	if (ret)
		return ret;
	const int bytes = snprintf(head, sizeof head, HEAD_FORMAT "%" PRIu64 "\n", count);
	ret = kvi_tar_out_open(&x.tar, s, sink);
	if (!ret)
		ret = kvi_tar_put_text(&x.tar, HEAD_NAME, head, (size_t)bytes);
	if (!ret)
		ret = kvi_export_each(s, "kvarc_store_export", n, versions, put_version, &x);
	if (!ret && x.result->versions != count)
		ret = kvi_fail(s->error, KVARC_IO,
		               "store: sessions came or went while they were exported; try again");
	ret = kvi_tar_out_close(&x.tar, ret);
	x.result->bytes = x.tar.offset;
	kvi_free(&s->alloc, x.written.p);
	return ret;
}

/* ----- import ------------------------------------------------ */

static kvarc_ret read_head(struct kvi_tar_in *tar, uint64_t *versions)
{
	char text[HEAD_MAX + 1];
	const char *name, *end;
	uint64_t bytes;
	kvarc_ret ret = kvi_tar_next(tar, &name, &bytes);
	if (!ret && strcmp(name, HEAD_NAME) != 0)
		ret = KVARC_END;
	if (ret == KVARC_END)
		return kvi_fail(tar->s->error, KVARC_DATA,
		                "store: that is no tar of 'kvarc store export'; what 'kvarc "
		                "session send' writes is for 'kvarc session receive'");
	if (!ret)
		ret = kvi_tar_text(tar, bytes, text, HEAD_MAX);
	if (ret)
		return ret;
	text[bytes] = 0;
	if (strncmp(text, HEAD_FORMAT, strlen(HEAD_FORMAT)) != 0)
		return kvi_fail(tar->s->error, KVARC_OPTIONS,
		                "store: the tar was made by a newer kvarc");
	if (!kvi_decimal(text + strlen(HEAD_FORMAT), &end, versions) || strcmp(end, "\n") != 0)
		return kvi_fail(tar->s->error, KVARC_DATA, "store: the tar is damaged");
	return KVARC_OK;
}

static kvarc_ret import_all(struct kvi_importing *x, struct kvi_tar_in *tar)
{
	char text[KVI_MANIFEST_MAX], key[KVI_KEY_MAX + 1];
	uint64_t versions = 0, seen = 0, bytes;
	const char *name;
	kvarc_ret ret = read_head(tar, &versions);
	while (!ret && (ret = kvi_tar_next(tar, &name, &bytes)) == KVARC_OK) {
		if (strncmp(name, KVI_PACKS, strlen(KVI_PACKS)) == 0) {
			ret = kvi_tar_take_pack(tar, name, bytes, &x->came);
			continue;
		}
		snprintf(key, sizeof key, "%s", name);
		ret = kvi_tar_text(tar, bytes, text, sizeof text);
		if (!ret)
			ret = kvi_import_version(x, key, text, (size_t)bytes);
		seen++;
	}
	if (ret != KVARC_END)
		return ret;
	if (seen != versions)
		return kvi_fail(x->s->error, KVARC_DATA,
		                "store: the tar has %" PRIu64 " of its %" PRIu64
		                " versions: it was cut; those that came stay",
		                seen, versions);
	return kvi_import_end(x);
}

kvarc_ret kvarc_store_import(kvarc_store *s, const kvarc_source *source, size_t n,
                             const char *const *sessions, kvarc_imported_fn fn, void *opaque)
{
	struct kvi_importing x = {
		.s = s, .n = n, .sessions = sessions, .fn = fn, .opaque = opaque
	};
	struct kvi_tar_in tar;
	if (!s || !source || !source->read || (n && !sessions))
		return KVARC_PROG;
	kvarc_ret ret = kvi_tar_in_open(&tar, s, source);
	if (!ret)
		ret = import_all(&x, &tar);
	kvi_tar_in_close(&tar);
	return ret;
}
