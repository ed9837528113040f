/* SPDX-License-Identifier: BSD-3-Clause */
/* store_load.c - restores the files of a version of a session */
#include "store_map.h"

#include <inttypes.h>
#include <string.h>

enum { TRIES_MOST = 8 }; /* the last version is removed again and again */

/* Finds the version that the caller asked for. */
static kvarc_ret find_version(struct kvarc_store *store, const char *session, uint64_t number)
{
	struct kvi_session_key *k = &store->version_key;
	kvarc_ret ret = kvi_session_check(store, session);
	if (ret)
		return ret;
	memset(k, 0, sizeof *k);
	k->number = number;
	ret = kvi_version_read(store, session, &k->number, &store->version);
	strcpy(k->name, session);
	strcpy(k->name_space, store->name_space);
	struct kvi_list numbers = { 0 };
	if (ret == KVARC_END && number &&
	    kvi_session_numbers(store, session, &numbers, NULL) == KVARC_OK)
		kvi_fail(store->error, ret, "the session has no version %" PRIu64, number);
	else if (ret == KVARC_END)
		kvi_fail(store->error, ret, "there is no such session");
	kvi_free(&store->alloc, numbers.p);
	return ret;
}

/* ----- whether its parts are there ------------------------------------------------ */

struct version_parts {
	struct kvarc_store *s;
	bool missing;
};

/* Whether any archive has a segment, a damaged one, too. */
static kvarc_ret see_ref(void *opaque, const struct kvi_index_ref *ref)
{
	struct version_parts *x = opaque;
	struct kvi_index_row row;
	size_t n = 0;
	kvarc_ret ret = KVARC_OK;
	for (int damaged = 0; damaged < 2 && !ret && !n; damaged++)
		ret = kvi_index_holders(x->s->index, ref->name_space, ref->key, damaged, &row, 1,
		                        &n);
	x->missing |= !ret && !n;
	return ret;
}

/* Looks in the index for the parts of a version. Of an archive that no key opens the index shows
 * its existence alone. */
static kvarc_ret look(struct kvarc_store *store, const struct kvi_needs *needs, bool *missing)
{
	struct version_parts x = { .s = store };
	int64_t pack;
	kvarc_ret ret = kvi_index_find_any(store->index, needs->pack, &pack);
	if (!ret)
		ret = kvi_index_refs(store->index, pack, see_ref, &x);
	*missing = ret == KVARC_END || x.missing;
	return ret == KVARC_END ? KVARC_OK : ret;
}

struct parts_asked {
	struct kvarc_store *s;
	const struct kvi_needs *needs;
};

/* Looks for the parts of a version. Returns OK, END (some are missing), IO, MEM. */
static kvarc_ret ask_parts(void *opaque)
{
	const struct parts_asked *asked = opaque;
	bool missing = true;
	kvarc_ret ret = look(asked->s, asked->needs, &missing);
	return !ret && missing ? KVARC_END : ret;
}

/* Looks for the parts of a version in the archives that are there now. */
static kvarc_ret look_again(struct kvarc_store *store, const struct kvi_needs *needs, bool *missing)
{
	struct parts_asked asked = { store, needs };
	kvarc_ret ret = kvi_index_refresh_until(store, store->index, ask_parts, &asked);
	*missing = ret == KVARC_END;
	return *missing ? KVARC_OK : ret;
}

/* Looks in a new index of all archives before anybody believes that something is missing. If
 * nothing is missing there, the store's own index is wrong, and is made again. */
static kvarc_ret look_afresh(struct kvarc_store *store, const struct kvi_needs *needs,
                             bool *missing)
{
	struct kvi_store_index *own;
	kvarc_ret ret = kvi_fresh_index(store, &own);
	if (!ret)
		ret = look_again(store, needs, missing);
	kvi_own_index(store, &own);
	if (ret || *missing)
		return ret;
	kvi_store_note(store, "the index lacked what is in the archives: made again");
	return kvarc_store_rebuild(store, NULL, NULL);
}

/* Whether archives that a version needs are not there. */
static kvarc_ret find_missing(struct kvarc_store *store, const struct kvi_needs *needs,
                              bool *missing)
{
	kvarc_ret ret = look(store, needs, missing);
	if (!ret && *missing)
		ret = look_again(store, needs, missing);
	return ret || !*missing ? ret : look_afresh(store, needs, missing);
}

/*
 * The last version of a session may be one whose save was stopped between its manifest and its last
 * look, while gc removed what it shares (docs/store.md). Then the last complete version before it
 * is loaded, if there is one.
 */
static kvarc_ret pass_over(struct kvarc_store *store, const char *session, uint64_t *passed)
{
	const uint64_t last = store->version_key.number;
	struct kvi_list numbers = { 0 };
	struct kvi_manifest m;
	bool missing = true;
	kvarc_ret ret = kvi_session_numbers(store, session, &numbers, NULL);
	for (size_t i = numbers.n; i-- > 0 && !ret && missing;) {
		uint64_t number = *KVI_LIST(uint64_t, numbers, i);
		if (number >= last || kvi_version_read(store, session, &number, &m))
			continue;
		ret = find_missing(store, &m.needs, &missing);
		if (ret || missing)
			continue;
		store->version = m;
		store->version_key.number = number;
		*passed = last;
	}
	kvi_free(&store->alloc, numbers.p);
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* Selects a loadable version in place of a last one that has parts missing; *passed: the number of
 * that last one. */
static kvarc_ret find_loadable(struct kvarc_store *store, const char *session, uint64_t number,
                               uint64_t *passed)
{
	bool missing;
	kvarc_ret ret = find_missing(store, &store->version.needs, &missing);
	return ret || !missing || number ? ret : pass_over(store, session, passed);
}

/* ----- loading ------------------------------------------------ */

/* A text for the failure of a reader, unless the store itself has failed. What is damaged is stored
 * again by the next save. */
static kvarc_ret explain(struct kvarc_store *store, const struct kvi_open_pack *pack,
                         const struct kvi_store_content *content, kvarc_ret ret)
{
	static const char next[] = "'kvarc store verify' says what is lost, and the next save "
				   "stores it again";
	const kvarc_error was = pack->error;
	char hex[33];
	if (content->failed)
		return content->failed;
	if (ret == KVARC_IO && !*was.text)
		return kvi_fail(store->error, ret, "writing the output failed");
	if (ret == KVARC_STORE && content->has_damaged) {
		kvi_hex(hex, content->damaged);
		return kvi_fail(store->error, ret,
		                "the version needs archive %s, which is damaged: %s", hex, next);
	}
	if (ret == KVARC_STORE)
		return kvi_fail(store->error, ret,
		                "the version needs tokens that no archive of the store has: %s",
		                next);
	if (ret == KVARC_DATA || ret == KVARC_FORMAT) {
		(void)kvi_doubt_damaged(store, pack->id);
		*store->error = was;
		return kvi_fail(store->error, ret, "store: %s: %s: %s", pack->key, was.text, next);
	}
	*store->error = was;
	return kvi_fail(store->error, ret, "store: %s: %s", pack->key, was.text);
}

/* An archive that is not whole may end before its files. */
static kvarc_ret check_files(struct kvi_open_pack *pack)
{
	kvarc_info info;
	kvarc_ret ret = kvarc_reader_get_info(pack->r, &info);
	return !ret && !pack->whole && !info.n_items
	               ? kvi_fail(&pack->error, KVARC_DATA, "was cut before its files")
	               : ret;
}

/*
 * Whether an archive that is open may be loaded for a version: it has the id that the manifest
 * names, and is encrypted where the manifest says so, and where keys were given. Returns OK, STORE.
 */
static kvarc_ret check_encryption(struct kvarc_store *store, const struct kvi_needs *needs,
                                  const struct kvi_open_pack *pack)
{
	if (pack->veil.on)
		return KVARC_OK;
	if (needs->encrypted)
		return kvi_fail(store->error, KVARC_STORE,
		                "store: %s is not encrypted, but its version is: it was exchanged",
		                pack->key);
	if (store->options.keys)
		return kvi_fail(store->error, KVARC_STORE,
		                "store: the version is not encrypted, and anybody who can write to "
		                "the store may have put it; without a key (--key-file, "
		                "--passphrase-file) it is loaded");
	return KVARC_OK;
}

static kvarc_ret unpack(struct kvarc_store *store, kvarc_item_open open, void *opaque, bool *whole)
{
	struct kvi_store_content content = kvi_content_of(store, true);
	struct kvi_open_pack p;
	const struct kvi_needs *needs = &store->version.needs;
	kvarc_ret ret = kvi_pack_open(store, &p, needs->pack, true, &content);
	if (ret == KVARC_END) {
		char key[KVI_PACK_KEY];
		kvi_pack_key(key, needs->pack);
		return kvi_fail(store->error, KVARC_STORE,
		                "store: %s is missing: the version is lost", key);
	}
	if (ret == KVARC_DATA || ret == KVARC_FORMAT) {
		const kvarc_error was = *store->error;
		(void)kvi_doubt_damaged(store, needs->pack);
		*store->error = was;
	}
	if (ret)
		return content.failed ? content.failed : ret;
	ret = check_encryption(store, needs, &p);
	if (ret) {
		kvi_pack_close(&p);
		return ret;
	}
	ret = check_files(&p);
	if (!ret)
		ret = kvarc_unpack(p.r, open, opaque);
	if (ret && kvi_pack_gone(store, needs->pack, ret) == KVARC_END)
		ret = kvi_fail(store->error, KVARC_STORE, "store: %s was removed meanwhile", p.key);
	else if (ret)
		ret = explain(store, &p, &content, ret);
	*whole = p.whole && !content.has_cut;
	kvi_pack_close(&p);
	return ret;
}

/* Notes the use for eviction: in the index of this host, and as the time of the manifest for
 * others. A failure to write is ignored. */
static void note_use(struct kvarc_store *store)
{
	const struct kvi_backend_calls *calls = store->backend->calls;
	char key[KVI_KEY_MAX + 1];
	if (!kvi_version_key(key, store->name_space, store->version_key.name,
	                     store->version_key.number))
		return;
	(void)kvi_index_use(store->index, key, kvi_store_now());
	if (calls->touch)
		(void)calls->touch(store->backend, key, NULL);
}

/* Sink of the caller for items; whether one was opened. */
struct load_target {
	kvarc_item_open open;
	void *opaque;
	bool opened;
};

static int open_target(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct load_target *to = opaque;
	to->opened = true;
	return to->open(to->opaque, item, sink);
}

/* Loads the version of a number; 0: the last one. */
static kvarc_ret load_version(struct kvarc_store *store, const char *session, uint64_t number,
                              struct load_target *to, kvarc_session_version *version)
{
	uint64_t passed = 0;
	bool whole = true;
	kvarc_ret ret = find_version(store, session, number);
	if (ret)
		return ret;
	ret = find_loadable(store, session, number, &passed);
	if (kvi_store_mend(store, ret))
		ret = find_loadable(store, session, number, &passed);
	if (ret)
		return ret;
	if (version) {
		kvi_version_fill(version, &store->version_key, &store->version);
		version->passed_over = passed;
	}
	ret = unpack(store, open_target, to, &whole);
	if (kvi_store_mend(store, ret))
		ret = unpack(store, open_target, to, &whole);
	if (version)
		version->not_whole = !ret && !whole;
	return ret;
}

/* Whether the version that was looked at is not there any more, with what it needed: others
 * have put another one, and gc has removed it. */
static bool was_removed(struct kvarc_store *store)
{
	const kvarc_error was = *store->error;
	struct kvi_manifest m;
	char key[KVI_KEY_MAX + 1];
	const bool gone = kvi_version_key(key, store->name_space, store->version_key.name,
	                                  store->version_key.number) &&
	                  kvi_manifest_read(store, key, &m) == KVARC_END;
	*store->error = was;
	return gone;
}

kvarc_ret kvarc_store_load(kvarc_store *s, const char *session, uint64_t number,
                           kvarc_item_open open, void *opaque, kvarc_session_version *version)
{
	struct load_target to = { open, opaque, false };
	kvarc_ret ret = KVARC_STORE;
	if (!s)
		return KVARC_PROG;
	if (!open)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_load: open is NULL");
	for (int i = 0; i < TRIES_MOST && ret == KVARC_STORE; i++) {
		ret = load_version(s, session, number, &to, version);
		if (number || to.opened || (ret == KVARC_STORE && !was_removed(s)))
			break;
	}
	if (!ret)
		note_use(s);
	return ret;
}
