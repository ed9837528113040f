/* SPDX-License-Identifier: BSD-3-Clause */
/* store_packs.c - the archives of a store that are open to be read */
#include "config.h"

#include "store_state.h"

#include <string.h>

#include "reader/reader_internal.h"

#define OTHER_ARCHIVE "is another archive: it was exchanged"

void kvi_pack_reader_options(const struct kvarc_store *s, kvarc_reader_options *o, kvarc_error *e)
{
	static const kvarc_reader_options zero = KVARC_READER_OPTIONS_INIT;
	*o = zero;
	o->common = s->options.common;
	o->common.error = e;
	o->common.progress = NULL;
	o->profiles = s->options.profiles;
	o->n_profiles = s->options.n_profiles;
	o->find_profile = s->options.find_profile;
	o->find_opaque = s->options.find_opaque;
	o->keys = s->ready.n ? &s->ready : NULL;
}

void kvi_pack_close(struct kvi_open_pack *p)
{
	kvarc_reader_close(&p->r);
	kvi_object_source_close(&p->source);
	explicit_bzero(p, sizeof *p);
}

/* As the index has what the archive holds. */
static void find_veil(struct kvi_open_pack *p)
{
	const char *name_space = kvarc_reader_identity(p->r, "namespace");
	const uint8_t *domain = kvi_reader_domain(p->r);
	p->veil.on = domain != NULL;
	if (domain)
		memcpy(p->veil.key, domain, sizeof p->veil.key);
	p->name_space = kvi_veil_space(&p->veil, name_space ? name_space : "");
}

/* Passphrases take their time, and are derived when an archive needs them. */
static kvarc_ret open_reader(struct kvarc_store *s, struct kvi_open_pack *p,
                             const kvarc_source *source, struct kvi_store_content *content)
{
	kvarc_reader_options o;
	kvarc_ret ret, more = KVARC_OK;
	do {
		kvi_pack_reader_options(s, &o, &p->error);
		if (content) {
			o.stored_read = content->read;
			o.stored_opaque = content;
		}
		ret = kvarc_reader_open(&p->r, source, &o);
		if (ret == KVARC_AUTH)
			more = kvi_store_keys_complete(s, false);
	} while (ret == KVARC_AUTH && !more);
	if (ret == KVARC_AUTH && more != KVARC_END) {
		p->error = *s->error;
		ret = more;
	}
	return ret;
}

/* After a failure of the reader of an object. */
static kvarc_ret gone(struct kvarc_store *s, const char *key, kvarc_ret ret)
{
	struct kvi_object object;
	if (ret != KVARC_IO)
		return ret;
	return s->backend->calls->stat(s->backend, key, &object, NULL) == KVARC_END ? KVARC_END
	                                                                            : ret;
}

kvarc_ret kvi_pack_gone(struct kvarc_store *s, const uint8_t id[16], kvarc_ret ret)
{
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, id);
	return gone(s, key, ret);
}

/* Whether it is what its key says, and all of it. */
static kvarc_ret check_whole(struct kvi_open_pack *p, bool any)
{
	kvarc_info info;
	uint8_t id[16];
	p->whole = kvi_reader_is_whole(p->r);
	kvarc_ret ret = kvarc_reader_get_info(p->r, &info);
	if (!ret && kvi_pack_key_parse(id, p->key) && memcmp(info.file_id, id, 16) != 0)
		return kvi_fail(&p->error, KVARC_DATA, OTHER_ARCHIVE);
	if (!ret && !p->whole && !any)
		return kvi_fail(&p->error, KVARC_DATA,
		                "is not whole: its end is missing or damaged");
	return ret;
}

/* Whether an archive that no key opens is another one than its key in the store says. It shows that
 * without a key. */
static bool is_other(const struct kvarc_store *s, const struct kvi_open_pack *p,
                     const kvarc_source *source)
{
	uint8_t id[16], found[16];
	kvarc_common common = s->options.common;
	common.error = NULL;
	return kvi_pack_key_parse(id, p->key) &&
	       kvi_envelope_id(source, &common, found) == KVARC_OK && memcmp(found, id, 16) != 0;
}

/* The index learns at once what opening an archive shows of it. It is a cache: a failure shows
 * itself when it is used. */
static void teach_index(struct kvarc_store *s, const struct kvi_open_pack *p, kvarc_ret ret)
{
	struct kvi_index_pack known;
	uint8_t id[16];
	if (!s->index || !kvi_pack_key_parse(id, p->key))
		return;
	if (ret == KVARC_DATA || ret == KVARC_FORMAT || (!ret && !p->whole))
		(void)kvi_index_break(s->index, id);
	else if (!ret && kvi_index_get_pack(s->index, id, &known) == KVARC_OK && known.broken)
		(void)kvi_index_remove_pack(s->index, id);
}

/* The reader of an archive, whose source stays where it is. */
static kvarc_ret open_pack(struct kvarc_store *s, struct kvi_open_pack *p,
                           const kvarc_source *source, bool any, struct kvi_store_content *content)
{
	kvarc_ret ret = open_reader(s, p, source, content);
	if (ret == KVARC_AUTH && is_other(s, p, source))
		ret = kvi_fail(&p->error, KVARC_DATA, OTHER_ARCHIVE);
	if (!ret)
		ret = check_whole(p, any);
	teach_index(s, p, ret);
	if (!ret)
		find_veil(p);
	if (!ret && content) {
		content->geometry = kvarc_reader_geometry(p->r);
		content->veil = p->veil;
	}
	if (ret) {
		kvi_fail(s->error, ret, "store: %s: %s", p->key, p->error.text);
		kvi_pack_close(p);
	}
	return ret;
}

/* Opens the object under p->key, as kvi_pack_open. */
static kvarc_ret open_key(struct kvarc_store *s, struct kvi_open_pack *p, bool any,
                          struct kvi_store_content *content)
{
	char key[KVI_BLOCK_KEY];
	memcpy(key, p->key, sizeof key);
	kvarc_ret ret = kvi_object_source(&p->source, s->backend, key, s->error);
	if (ret)
		return ret;
	ret = open_pack(s, p, &p->source, any, content);
	return ret ? gone(s, key, ret) : KVARC_OK;
}

static void name_pack(struct kvi_open_pack *p, const uint8_t id[16])
{
	memset(p, 0, sizeof *p);
	memcpy(p->id, id, sizeof p->id);
	kvi_pack_key(p->key, id);
}

kvarc_ret kvi_pack_open(struct kvarc_store *s, struct kvi_open_pack *p, const uint8_t id[16],
                        bool any, struct kvi_store_content *content)
{
	name_pack(p, id);
	return open_key(s, p, any, content);
}

kvarc_ret kvi_pack_open_source(struct kvarc_store *s, struct kvi_open_pack *p, const uint8_t id[16],
                               const kvarc_source *source, struct kvi_store_content *content)
{
	name_pack(p, id);
	return open_pack(s, p, source, false, content);
}

kvarc_ret kvi_pack_reader(struct kvarc_store *s, const uint8_t id[16], bool any, kvarc_reader **r)
{
	struct kvi_open_pack *oldest = s->packs;
	*r = NULL;
	for (size_t i = 0; i < KVI_OPEN_PACKS; i++) {
		struct kvi_open_pack *p = &s->packs[i];
		if (p->r && memcmp(p->id, id, sizeof p->id) == 0 && (p->whole || any)) {
			p->used = ++s->uses;
			*r = p->r;
			return KVARC_OK;
		}
		if (p->used < oldest->used)
			oldest = p;
	}
	kvi_pack_close(oldest);
	kvarc_ret ret = kvi_pack_open(s, oldest, id, any, NULL);
	if (ret)
		return ret;
	oldest->used = ++s->uses;
	*r = oldest->r;
	return KVARC_OK;
}

const struct kvi_open_pack *kvi_pack_find(const struct kvarc_store *s, const uint8_t id[16])
{
	for (size_t i = 0; i < KVI_OPEN_PACKS; i++)
		if (s->packs[i].r && memcmp(s->packs[i].id, id, 16) == 0)
			return &s->packs[i];
	return NULL;
}

/* As kvi_pack_check_locked, for a key; found: the id of the archive. */
static kvarc_ret check_locked(struct kvarc_store *s, const char *key, uint8_t found[16])
{
	kvarc_common common = s->options.common;
	kvarc_error e = { .text = "" };
	kvarc_source source;
	common.error = &e;
	kvarc_ret ret = kvi_object_source(&source, s->backend, key, s->error);
	if (ret)
		return ret;
	ret = kvi_envelope_check(&source, &common, found);
	kvi_object_source_close(&source);
	return ret ? kvi_fail(s->error, ret, "store: %s: %s", key, e.text) : KVARC_OK;
}

kvarc_ret kvi_pack_check_locked(struct kvarc_store *s, const uint8_t id[16])
{
	char key[KVI_PACK_KEY];
	uint8_t found[16];
	kvi_pack_key(key, id);
	kvarc_ret ret = check_locked(s, key, found);
	if (!ret && memcmp(found, id, 16) != 0)
		ret = kvi_fail(s->error, KVARC_DATA, "store: %s: is another archive", key);
	return ret;
}

kvarc_ret kvi_block_check(struct kvarc_store *s, const char *key)
{
	struct kvi_open_pack p = { .r = NULL };
	uint8_t found[16];
	memcpy(p.key, key, strlen(key) + 1);
	kvarc_ret ret = open_key(s, &p, false, NULL);
	if (ret == KVARC_AUTH) {
		kvarc_error auth = *s->error;
		ret = check_locked(s, key, found);
		if (!ret)
			*s->error = auth;
		return ret ? ret : KVARC_AUTH;
	}
	if (ret)
		return ret;
	ret = kvi_reader_check_frames(p.r);
	if (ret)
		kvi_fail(s->error, ret, "store: %s: %s", key, p.error.text);
	kvi_pack_close(&p);
	return gone(s, key, ret);
}

void kvi_pack_forget(struct kvarc_store *s, const uint8_t id[16])
{
	for (size_t i = 0; i < KVI_OPEN_PACKS; i++)
		if (s->packs[i].r && memcmp(s->packs[i].id, id, 16) == 0)
			kvi_pack_close(&s->packs[i]);
}
