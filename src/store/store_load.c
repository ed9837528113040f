/* SPDX-License-Identifier: BSD-3-Clause */
/* store_load.c - restores the files of a version of a session */
#include "save_encryption.h"

#include <inttypes.h>
#include <string.h>

/* Which version the caller asked for. */
static kvarc_ret find_version(struct kvarc_store *s, const char *session, uint64_t number)
{
	struct kvi_session_key *k = &s->version_key;
	kvarc_ret ret = kvi_session_check(s, session);
	if (ret)
		return ret;
	memset(k, 0, sizeof *k);
	k->number = number;
	ret = kvi_version_read(s, session, &k->number, &s->version);
	strcpy(k->name, session);
	strcpy(k->name_space, s->name_space);
	struct kvi_list numbers = { 0 };
	if (ret == KVARC_END && number && kvi_session_numbers(s, session, &numbers, NULL) == KVARC_OK)
		kvi_fail(s->error, ret, "the session has no version %" PRIu64, number);
	else if (ret == KVARC_END)
		kvi_fail(s->error, ret, "there is no such session");
	kvi_free(&s->alloc, numbers.p);
	return ret;
}

/* A text for the failure of a reader, unless the store itself has failed. What is damaged is stored
 * again by the next save. */
static kvarc_ret explain(struct kvarc_store *s, const struct kvi_open_pack *p,
                         const struct kvi_store_content *content, kvarc_ret ret)
{
	static const char next[] = "'kvarc store verify' says what is lost, and the next save "
				   "stores it again";
	const kvarc_error was = p->error;
	char hex[33];
	if (content->failed)
		return content->failed;
	if (ret == KVARC_IO && !*was.text)
		return kvi_fail(s->error, ret, "writing the output failed");
	if (ret == KVARC_STORE && content->has_damaged) {
		kvi_hex(hex, content->damaged);
		return kvi_fail(s->error, ret, "the version needs archive %s, which is damaged: %s",
		                hex, next);
	}
	if (ret == KVARC_STORE)
		return kvi_fail(s->error, ret,
		                "the version needs tokens that no archive of the store has: %s",
		                next);
	if (ret == KVARC_DATA || ret == KVARC_FORMAT) {
		(void)kvi_doubt_damaged(s, p->id);
		*s->error = was;
		return kvi_fail(s->error, ret, "store: %s: %s: %s", p->key, was.text, next);
	}
	*s->error = was;
	return kvi_fail(s->error, ret, "store: %s: %s", p->key, was.text);
}

static kvarc_ret unpack(struct kvarc_store *s, kvarc_item_open open, void *opaque)
{
	struct kvi_store_content content = { .s = s };
	struct kvi_open_pack p;
	const struct kvi_needs *needs = &s->version.needs;
	kvarc_ret ret = kvi_pack_open(s, &p, needs->pack, &content);
	if (ret == KVARC_END) {
		char key[KVI_PACK_KEY];
		kvi_pack_key(key, needs->pack);
		return kvi_fail(s->error, KVARC_STORE, "store: %s is missing: the version is lost",
		                key);
	}
	if (ret == KVARC_DATA || ret == KVARC_FORMAT) {
		const kvarc_error was = *s->error;
		(void)kvi_doubt_damaged(s, needs->pack);
		*s->error = was;
	}
	if (ret)
		return content.failed ? content.failed : ret;
	ret = kvi_load_allowed(s, needs, &p);
	if (ret) {
		kvi_pack_close(&p);
		return ret;
	}
	ret = kvarc_unpack(p.r, open, opaque);
	if (ret && kvi_pack_gone(s, needs->pack, ret) == KVARC_END)
		ret = kvi_fail(s->error, KVARC_STORE, "store: %s was removed meanwhile", p.key);
	else if (ret)
		ret = explain(s, &p, &content, ret);
	kvi_pack_close(&p);
	return ret;
}

/* For eviction; an index that cannot be written is no reason to fail. */
static void note_use(struct kvarc_store *s)
{
	char key[KVI_KEY_MAX + 1];
	if (kvi_version_key(key, s->name_space, s->version_key.name, s->version_key.number))
		(void)kvi_index_use(s->index, key, kvi_store_now());
}

kvarc_ret kvarc_store_load(kvarc_store *s, const char *session, uint64_t number,
                           kvarc_item_open open, void *opaque, kvarc_session_version *version)
{
	if (!s)
		return KVARC_PROG;
	if (!open)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_load: open is NULL");
	kvarc_ret ret = find_version(s, session, number);
	if (ret)
		return ret;
	if (version)
		kvi_version_fill(version, &s->version_key, &s->version);
	ret = unpack(s, open, opaque);
	if (kvi_store_mend(s, ret))
		ret = unpack(s, open, opaque);
	if (!ret)
		note_use(s);
	return ret;
}
