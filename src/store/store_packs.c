/* SPDX-License-Identifier: BSD-3-Clause */
/* store_packs.c - the archives of a store that are open to be read */
#include "config.h"

#include "store_state.h"

#include <string.h>

#include "reader/reader_internal.h"

#define OTHER_ARCHIVE "is another archive: it was exchanged"

void kvi_pack_reader_options(const struct kvarc_store *store, kvarc_reader_options *options,
                             kvarc_error *error)
{
	static const kvarc_reader_options zero = KVARC_READER_OPTIONS_INIT;
	*options = zero;
	options->common = store->options.common;
	options->common.error = error;
	options->common.progress = NULL;
	options->profiles = store->options.profiles;
	options->n_profiles = store->options.n_profiles;
	options->find_profile = store->options.find_profile;
	options->find_opaque = store->options.find_opaque;
	options->keys = store->ready.n ? &store->ready : NULL;
}

void kvi_pack_close(struct kvi_open_pack *pack)
{
	kvarc_reader_close(&pack->r);
	kvi_object_source_close(&pack->source);
	explicit_bzero(pack, sizeof *pack);
}

/* Sets the key of the hashes and the namespace with which the index has the archive. */
static void find_veil(struct kvi_open_pack *pack)
{
	const char *name_space = kvarc_reader_identity(pack->r, "namespace");
	const uint8_t *domain = kvi_reader_domain(pack->r);
	pack->veil.on = domain != NULL;
	if (domain)
		memcpy(pack->veil.key, domain, sizeof pack->veil.key);
	pack->name_space = kvi_veil_space(&pack->veil, name_space ? name_space : "");
}

/* Passphrases take their time, and are derived when an archive needs them. */
static kvarc_ret open_reader(struct kvarc_store *store, struct kvi_open_pack *pack,
                             const kvarc_source *source, struct kvi_store_content *content)
{
	kvarc_reader_options o;
	kvarc_ret ret, more = KVARC_OK;
	do {
		kvi_pack_reader_options(store, &o, &pack->error);
		if (content) {
			o.stored_read = content->read;
			o.stored_opaque = content;
		}
		ret = kvarc_reader_open(&pack->r, source, &o);
		if (ret == KVARC_AUTH)
			more = kvi_store_keys_complete(store, false);
	} while (ret == KVARC_AUTH && !more);
	if (ret == KVARC_AUTH && more != KVARC_END) {
		pack->error = *store->error;
		ret = more;
	}
	return ret;
}

/* Turns IO into END where the object was removed after its reader was opened. */
static kvarc_ret gone(struct kvarc_store *store, const char *key, kvarc_ret ret)
{
	struct kvi_object object;
	if (ret != KVARC_IO)
		return ret;
	return store->backend->calls->stat(store->backend, key, &object, NULL) == KVARC_END
	               ? KVARC_END
	               : ret;
}

kvarc_ret kvi_pack_gone(struct kvarc_store *store, const uint8_t id[16], kvarc_ret ret)
{
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, id);
	return gone(store, key, ret);
}

/* Checks that an archive is the one that its key says and, without `any`, that it is whole. */
static kvarc_ret check_whole(struct kvi_open_pack *pack, bool any)
{
	kvarc_info info;
	uint8_t id[16];
	pack->whole = kvi_reader_is_whole(pack->r);
	kvarc_ret ret = kvarc_reader_get_info(pack->r, &info);
	if (!ret && kvi_pack_key_parse(id, pack->key) && memcmp(info.file_id, id, 16) != 0)
		return kvi_fail(&pack->error, KVARC_DATA, OTHER_ARCHIVE);
	if (!ret && !pack->whole && !any)
		return kvi_fail(&pack->error, KVARC_DATA,
		                "is not whole: its end is missing or damaged");
	return ret;
}

/* Whether an archive that no key opens is another one than its key in the store says. It shows that
 * without a key. */
static bool is_other(const struct kvarc_store *store, const struct kvi_open_pack *pack,
                     const kvarc_source *source)
{
	uint8_t id[16], found[16];
	kvarc_common common = store->options.common;
	common.error = NULL;
	return kvi_pack_key_parse(id, pack->key) &&
	       kvi_envelope_id(source, &common, found) == KVARC_OK && memcmp(found, id, 16) != 0;
}

/* The index learns at once what opening an archive shows of it. It is a cache: a failure shows
 * itself when it is used. */
static void teach_index(struct kvarc_store *store, const struct kvi_open_pack *pack, kvarc_ret ret)
{
	struct kvi_index_pack known;
	uint8_t id[16];
	if (!store->index || !kvi_pack_key_parse(id, pack->key))
		return;
	if (ret == KVARC_DATA || ret == KVARC_FORMAT || (!ret && !pack->whole))
		(void)kvi_index_break(store->index, id);
	else if (!ret && kvi_index_get_pack(store->index, id, &known) == KVARC_OK && known.broken)
		(void)kvi_index_remove_pack(store->index, id);
}

/* The reader of an archive, whose source stays where it is. */
static kvarc_ret open_pack(struct kvarc_store *store, struct kvi_open_pack *pack,
                           const kvarc_source *source, bool any, struct kvi_store_content *content)
{
	kvarc_ret ret = open_reader(store, pack, source, content);
	if (ret == KVARC_AUTH && is_other(store, pack, source))
		ret = kvi_fail(&pack->error, KVARC_DATA, OTHER_ARCHIVE);
	if (!ret)
		ret = check_whole(pack, any);
	teach_index(store, pack, ret);
	if (!ret)
		find_veil(pack);
	if (!ret && content) {
		content->geometry = kvarc_reader_geometry(pack->r);
		content->veil = pack->veil;
	}
	if (ret) {
		kvi_fail(store->error, ret, "store: %s: %s", pack->key, pack->error.text);
		kvi_pack_close(pack);
	}
	return ret;
}

/* Opens the object under pack->key, as kvi_pack_open. */
static kvarc_ret open_key(struct kvarc_store *store, struct kvi_open_pack *pack, bool any,
                          struct kvi_store_content *content)
{
	char key[KVI_BLOCK_KEY];
	memcpy(key, pack->key, sizeof key);
	kvarc_ret ret = kvi_object_source(&pack->source, store->backend, key, store->error);
	if (ret)
		return ret;
	ret = open_pack(store, pack, &pack->source, any, content);
	return ret ? gone(store, key, ret) : KVARC_OK;
}

static void name_pack(struct kvi_open_pack *pack, const uint8_t id[16])
{
	memset(pack, 0, sizeof *pack);
	memcpy(pack->id, id, sizeof pack->id);
	kvi_pack_key(pack->key, id);
}

kvarc_ret kvi_pack_open(struct kvarc_store *store, struct kvi_open_pack *pack, const uint8_t id[16],
                        bool any, struct kvi_store_content *content)
{
	name_pack(pack, id);
	return open_key(store, pack, any, content);
}

kvarc_ret kvi_pack_open_source(struct kvarc_store *store, struct kvi_open_pack *pack,
                               const uint8_t id[16], const kvarc_source *source,
                               struct kvi_store_content *content)
{
	name_pack(pack, id);
	return open_pack(store, pack, source, false, content);
}

kvarc_ret kvi_pack_reader(struct kvarc_store *store, const uint8_t id[16], bool any,
                          kvarc_reader **r)
{
	struct kvi_open_pack *oldest = store->packs;
	*r = NULL;
	for (size_t i = 0; i < KVI_OPEN_PACKS; i++) {
		struct kvi_open_pack *p = &store->packs[i];
		if (p->r && memcmp(p->id, id, sizeof p->id) == 0 && (p->whole || any)) {
			p->used = ++store->uses;
			*r = p->r;
			return KVARC_OK;
		}
		if (p->used < oldest->used)
			oldest = p;
	}
	kvi_pack_close(oldest);
	kvarc_ret ret = kvi_pack_open(store, oldest, id, any, NULL);
	if (ret)
		return ret;
	oldest->used = ++store->uses;
	*r = oldest->r;
	return KVARC_OK;
}

const struct kvi_open_pack *kvi_pack_find(const struct kvarc_store *store, const uint8_t id[16])
{
	for (size_t i = 0; i < KVI_OPEN_PACKS; i++)
		if (store->packs[i].r && memcmp(store->packs[i].id, id, 16) == 0)
			return &store->packs[i];
	return NULL;
}

/* Checks the frames of a locked archive under a key, as kvi_pack_check_locked does; found: its
 * id. */
static kvarc_ret check_locked(struct kvarc_store *store, const char *key, uint8_t found[16])
{
	kvarc_common common = store->options.common;
	kvarc_error e = { .text = "" };
	kvarc_source source;
	common.error = &e;
	kvarc_ret ret = kvi_object_source(&source, store->backend, key, store->error);
	if (ret)
		return ret;
	ret = kvi_envelope_check(&source, &common, found);
	kvi_object_source_close(&source);
	return ret ? kvi_fail(store->error, ret, "store: %s: %s", key, e.text) : KVARC_OK;
}

kvarc_ret kvi_pack_check_locked(struct kvarc_store *store, const uint8_t id[16])
{
	char key[KVI_PACK_KEY];
	uint8_t found[16];
	kvi_pack_key(key, id);
	kvarc_ret ret = check_locked(store, key, found);
	if (!ret && memcmp(found, id, 16) != 0)
		ret = kvi_fail(store->error, KVARC_DATA, "store: %s: is another archive", key);
	return ret;
}

kvarc_ret kvi_block_check(struct kvarc_store *store, const char *key)
{
	struct kvi_open_pack p = { .r = NULL };
	uint8_t found[16];
	memcpy(p.key, key, strlen(key) + 1);
	kvarc_ret ret = open_key(store, &p, false, NULL);
	if (ret == KVARC_AUTH) {
		kvarc_error auth = *store->error;
		ret = check_locked(store, key, found);
		if (!ret)
			*store->error = auth;
		return ret ? ret : KVARC_AUTH;
	}
	if (ret)
		return ret;
	ret = kvi_reader_check_frames(p.r);
	if (ret)
		kvi_fail(store->error, ret, "store: %s: %s", key, p.error.text);
	kvi_pack_close(&p);
	return gone(store, key, ret);
}

void kvi_pack_forget(struct kvarc_store *store, const uint8_t id[16])
{
	for (size_t i = 0; i < KVI_OPEN_PACKS; i++)
		if (store->packs[i].r && memcmp(store->packs[i].id, id, 16) == 0)
			kvi_pack_close(&store->packs[i]);
}
