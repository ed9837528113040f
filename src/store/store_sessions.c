/* SPDX-License-Identifier: BSD-3-Clause */
/* store_sessions.c - the versions of sessions: log, list, fork, remove */
#include "store_state.h"

#include <inttypes.h>
#include <string.h>

/* ----- log, list ------------------------------------------------ */

/* Versions for a callback of the caller. */
struct showing {
	struct kvarc_store *s;
	const char *session; /* session with all versions; NULL: the last version of each */
	kvarc_session_version_fn fn;
	void *opaque;
	uint64_t n;
	kvarc_ret wrong; /* error for a version that cannot be read */
	kvarc_error error;
	bool waits; /* the last version of a session so far */
	struct kvi_session_key key;
	struct kvi_manifest manifest;
};

static kvarc_ret show(struct showing *showing)
{
	kvarc_session_version version;
	if (!showing->waits)
		return KVARC_OK;
	showing->waits = false;
	kvi_version_fill(&version, &showing->key, &showing->manifest);
	if (showing->fn(showing->opaque, &version))
		return kvi_fail(showing->s->error, KVARC_IO, "stopped on request");
	return KVARC_OK;
}

static kvarc_ret see(void *opaque, const char *key, const struct kvi_session_key *session_key,
                     const struct kvi_manifest *manifest, kvarc_ret wrong)
{
	struct showing *v = opaque;
	kvarc_ret ret = KVARC_OK;
	(void)key;
	if (strcmp(session_key->name_space, v->s->name_space) != 0 ||
	    (v->session && strcmp(session_key->name, v->session) != 0))
		return KVARC_OK;
	v->n++;
	if (wrong) {
		if (!v->wrong) {
			v->wrong = wrong;
			v->error = *v->s->error;
		}
		return KVARC_OK;
	}
	if (v->session || strcmp(v->key.name, session_key->name) != 0)
		ret = show(v);
	v->waits = true;
	v->key = *session_key;
	v->manifest = *manifest;
	return ret;
}

static kvarc_ret show_all(struct showing *showing)
{
	char prefix[KVI_KEY_MAX + 1];
	if (!kvi_session_prefix(prefix, showing->s->name_space,
	                        showing->session ? showing->session : ""))
		return KVARC_END;
	kvarc_ret ret = kvi_manifests(showing->s, prefix, NULL, see, showing);
	if (!ret)
		ret = show(showing);
	if (!ret && showing->wrong) {
		*showing->s->error = showing->error;
		ret = showing->wrong;
	}
	return ret;
}

kvarc_ret kvarc_store_log(kvarc_store *s, const char *session, kvarc_session_version_fn fn,
                          void *opaque)
{
	if (!s)
		return KVARC_PROG;
	if (!fn)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_log: fn is NULL");
	struct showing v = { .s = s, .session = session, .fn = fn, .opaque = opaque };
	kvarc_ret ret = kvi_session_check(s, session);
	if (!ret)
		ret = show_all(&v);
	if (!ret && !v.n)
		ret = kvi_fail(s->error, KVARC_END, "there is no such session");
	return ret;
}

kvarc_ret kvarc_store_list(kvarc_store *s, kvarc_session_version_fn fn, void *opaque)
{
	if (!s)
		return KVARC_PROG;
	if (!fn)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_list: fn is NULL");
	struct showing v = { .s = s, .fn = fn, .opaque = opaque };
	return show_all(&v);
}

/* ----- fork ------------------------------------------------ */

/* The version that is put names archives that gc may be about to remove (docs/store.md). */
static kvarc_ret confirm(struct kvarc_store *store, const struct kvi_needs *needs)
{
	kvarc_ret ret = kvi_protocol_stays(store, needs);
	return ret == KVARC_END ? kvi_fail(store->error, KVARC_STORE,
	                                   "store: archives of the version are missing, or being "
	                                   "removed: nothing was forked")
	                        : ret;
}

static kvarc_ret put_fork(struct kvarc_store *store, const char *to, struct kvi_manifest *manifest)
{
	char key[KVI_KEY_MAX + 1];
	uint64_t number;
	kvarc_ret ret = kvi_version_put(store, to, manifest, true, &number);
	if (ret == KVARC_END)
		return kvi_fail(store->error, KVARC_OPTIONS,
		                "the session to fork to is there already: remove it, or take "
		                "another name");
	if (ret)
		return ret;
	ret = confirm(store, &manifest->needs);
	if (ret)
		kvi_version_take_back(store, to, number, manifest);
	else if (kvi_version_key(key, store->name_space, to, number))
		(void)kvi_index_use(store->index, key, kvi_store_now());
	return ret;
}

kvarc_ret kvarc_store_fork(kvarc_store *s, const char *session, uint64_t number, const char *to)
{
	struct kvi_manifest m;
	if (!s)
		return KVARC_PROG;
	kvarc_ret ret = kvi_session_check(s, session);
	if (!ret)
		ret = kvi_session_check(s, to);
	if (!ret)
		ret = kvi_service_check(s);
	if (!ret)
		ret = kvi_version_read(s, session, &number, &m);
	if (ret == KVARC_END)
		return kvi_fail(s->error, ret, "there is no such session or version");
	if (ret)
		return ret;
	strcpy(m.parent, session);
	m.parent_number = number;
	ret = put_fork(s, to, &m);
	return kvi_store_mend(s, ret) ? put_fork(s, to, &m) : ret;
}

/* ----- remove ------------------------------------------------ */

kvarc_ret kvarc_store_remove(kvarc_store *s, const char *session, uint64_t *versions)
{
	struct kvi_list numbers = { 0 };
	struct kvi_session_key k = { .number = 0 };
	uint64_t n = 0;
	if (!s)
		return KVARC_PROG;
	kvarc_ret ret = kvi_session_check(s, session);
	if (!ret)
		ret = kvi_session_numbers(s, session, &numbers, NULL);
	if (ret == KVARC_END)
		kvi_fail(s->error, ret, "there is no such session");
	if (!ret) {
		strcpy(k.name_space, s->name_space);
		strcpy(k.name, session);
		k.number = *KVI_LIST(uint64_t, numbers, numbers.n - 1);
		ret = kvi_version_mark(s, &k);
	}
	/* The oldest first: if this ends early, the session still loads as it was. */
	for (size_t i = 0; i < numbers.n && !ret; i++) {
		k.number = *KVI_LIST(uint64_t, numbers, i);
		ret = kvi_version_remove(s, &k, NULL);
		n += !ret;
		if (ret == KVARC_END) /* others were at it, too */
			ret = KVARC_OK;
	}
	kvi_free(&s->alloc, numbers.p);
	if (versions)
		*versions = n;
	return ret;
}
