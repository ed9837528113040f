/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.c - the manifests of sessions: reading, listing, putting */
#include "store_state.h"
#include "util/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	RACES_MOST = 10000, /* others put the version that is next */
	READS_MOST = 100,   /* others remove the last one */
	LOOKS_MOST = 3,     /* reads of a session that is not there */
	/* Lower marks stay that long, so that a list that is under way sees one of them, */
	MARK_SECONDS = 7200,
	LIST_SECONDS = 1800 /* which is not believed any more after so long */
};

kvarc_ret kvi_session_check(struct kvarc_store *store, const char *session)
{
	const char *wrong = kvi_session_wrong(session);
	return wrong ? kvi_fail(store->error, KVARC_PROG, "the name of a session %s", wrong)
	             : KVARC_OK;
}

void kvi_version_fill(kvarc_session_version *version, const struct kvi_session_key *key,
                      const struct kvi_manifest *manifest)
{
	memset(version, 0, sizeof *version);
	version->session = key->name;
	version->number = key->number;
	version->time = manifest->time;
	version->tokens = manifest->tokens;
	version->file_bytes = manifest->bytes;
	version->mode = manifest->mode;
	version->label = manifest->label;
	version->parent = manifest->parent;
	version->parent_number = manifest->parent_number;
	memcpy(version->archive, manifest->needs.pack, sizeof version->archive);
	version->encrypted = manifest->needs.encrypted;
}

/* ----- one ------------------------------------------------ */

kvarc_ret kvi_manifest_read(struct kvarc_store *store, const char *key,
                            struct kvi_manifest *manifest)
{
	/* Capacity for one byte more than the limit, to notice a manifest that is too long. */
	char text[KVI_MANIFEST_MAX + 1];
	size_t got;
	kvarc_ret ret = store->backend->calls->get(store->backend, key, 0, text, sizeof text, &got,
	                                           store->error);
	if (ret)
		return ret;
	ret = kvi_manifest_parse(manifest, text, got);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			store->error, KVARC_REASON_NEWER,
			kvi_fail(store->error, ret, "store: %s: made by a newer kvarc", key));
	return ret ? kvi_fail(store->error, ret, "store: %s is damaged", key) : KVARC_OK;
}

static int64_t read_text(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const char *text = opaque;
	memcpy(buf, text + offset, bytes);
	return (int64_t)bytes;
}

kvarc_source kvi_text_source(const char *text, size_t n)
{
	return (kvarc_source){
		.read = read_text, .opaque = (void *)text, .size = n, .memory = text
	};
}

/* Puts a manifest. Returns OK, END (the version exists), IO, MEM. */
static kvarc_ret put_manifest(struct kvarc_store *store, const char *key,
                              struct kvi_manifest *manifest)
{
	char text[KVI_MANIFEST_MAX];
	const size_t n = kvi_manifest_write(text, manifest);
	const kvarc_source source = kvi_text_source(text, n);
	kvi_manifest_digest(manifest->digest, text, n);
	return store->backend->calls->put(store->backend, key, &source, store->error);
}

/* ----- many ------------------------------------------------ */

/* Keys of a list, which are read when it is over. */
struct manifest_keys {
	struct kvarc_store *s;
	struct kvi_list list; /* struct kvi_session_key */
	kvarc_ret ret;
};

static int add_key(void *opaque, const struct kvi_object *object)
{
	struct manifest_keys *keys = opaque;
	struct kvi_session_key k, *to;
	/* Others are not manifests. */
	if (!kvi_session_key_parse(&k, object->key))
		return 0;
	k.touched = object->time;
	to = kvi_list_add(&keys->list, &keys->s->alloc, sizeof *to);
	if (!to) {
		keys->ret = kvi_fail_alloc(keys->s->error, &keys->s->alloc);
		return 1;
	}
	*to = k;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct kvi_session_key *x = a, *y = b;
	int order = strcmp(x->name_space, y->name_space);
	if (!order)
		order = strcmp(x->name, y->name);
	if (!order)
		order = x->number < y->number ? -1 : x->number > y->number;
	return order;
}

static kvarc_ret list_keys(struct manifest_keys *keys, const char *prefix)
{
	kvarc_ret ret = keys->s->backend->calls->list(keys->s->backend, prefix, add_key, keys,
	                                              keys->s->error);
	if (keys->ret)
		ret = keys->ret;
	if (!ret && keys->list.n)
		qsort(keys->list.p, keys->list.n, sizeof(struct kvi_session_key), by_name);
	return ret;
}

kvarc_ret kvi_manifests(struct kvarc_store *store, const char *prefix, kvi_manifest_skip_fn skip,
                        kvi_manifest_fn fn, void *opaque)
{
	struct manifest_keys keys = { .s = store };
	kvarc_ret ret = list_keys(&keys, prefix);
	for (size_t i = 0; i < keys.list.n && !ret; i++) {
		const struct kvi_session_key *k = KVI_LIST(struct kvi_session_key, keys.list, i);
		char key[KVI_KEY_MAX + 1];
		struct kvi_manifest m;
		if (!kvi_version_key(key, k->name_space, k->name, k->number) ||
		    (skip && skip(opaque, key)))
			continue;
		kvarc_ret wrong = kvi_manifest_read(store, key, &m);
		if (wrong == KVARC_END)
			continue;
		ret = wrong == KVARC_MEM ? wrong : fn(opaque, key, k, &m, wrong);
	}
	kvi_free(&store->alloc, keys.list.p);
	return ret;
}

/* Keys of one session: the numbers of its versions, the highest of its marks, and the numbers of
 * its old marks. */
struct session_keys {
	struct kvarc_store *s;
	const char *session;
	struct kvi_list *numbers, *old; /* uint64_t; old may be NULL */
	uint64_t marked;
	kvarc_ret ret;
};

static bool is_of(const struct session_keys *keys, const struct kvi_session_key *key)
{
	/* "a/1" is under the prefix of "a/b", too, but of another session. */
	return strcmp(key->name, keys->session) == 0 &&
	       strcmp(key->name_space, keys->s->name_space) == 0;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static int add_number(void *opaque, const struct kvi_object *object)
{
	struct session_keys *x = opaque;
	struct kvi_session_key k;
	struct kvi_list *list = NULL;
	if (kvi_mark_key_parse(&k, object->key)) {
		if (!is_of(x, &k))
			return 0;
		if (k.number > x->marked)
			x->marked = k.number;
		if (object->time && object->time <= kvi_store_now() - MARK_SECONDS)
			list = x->old;
	} else if (kvi_session_key_parse(&k, object->key) && is_of(x, &k)) {
		list = x->numbers;
	}
	if (!list)
		return 0;
	uint64_t *to = kvi_list_add(list, &x->s->alloc, sizeof *to);
	if (to)
		*to = k.number;
	else
		x->ret = kvi_fail_alloc(x->s->error, &x->s->alloc);
	return x->ret != KVARC_OK;
}

/* kvi_session_numbers; *old, which may be NULL: the numbers of marks that were put long ago. */
static kvarc_ret list_session(struct kvarc_store *store, const char *session,
                              struct kvi_list *numbers, uint64_t *marked, struct kvi_list *old)
{
	struct session_keys x = { .s = store, .session = session, .numbers = numbers, .old = old };
	char prefix[KVI_KEY_MAX + 1];
	kvarc_ret ret = KVARC_OK;
	if (marked)
		*marked = 0;
	if (!kvi_session_prefix(prefix, store->name_space, session))
		return KVARC_END;
	/* A list takes its time: where one version was put and the one before it removed meanwhile,
	 * it may have neither. So a session is not there when it was not there again. */
	for (int i = 0; i < LOOKS_MOST && !ret && !numbers->n && (i < 2 || x.marked); i++) {
		if (old)
			old->n = 0;
		ret = store->backend->calls->list(store->backend, prefix, add_number, &x,
		                                  store->error);
		ret = x.ret ? x.ret : ret;
	}
	if (marked)
		*marked = x.marked;
	if (!ret && numbers->n)
		qsort(numbers->p, numbers->n, sizeof(uint64_t), by_number);
	return ret ? ret : numbers->n ? KVARC_OK : KVARC_END;
}

kvarc_ret kvi_session_numbers(struct kvarc_store *store, const char *session,
                              struct kvi_list *numbers, uint64_t *marked)
{
	return list_session(store, session, numbers, marked, NULL);
}

kvarc_ret kvi_version_read(struct kvarc_store *store, const char *session, uint64_t *number,
                           struct kvi_manifest *manifest)
{
	char key[KVI_KEY_MAX + 1];
	const bool last = !*number;
	kvarc_ret ret = KVARC_END;
	/* gc may remove the last one when another one is behind it. */
	for (int i = 0; i < READS_MOST && ret == KVARC_END; i++) {
		struct kvi_list numbers = { 0 };
		ret = last ? kvi_session_numbers(store, session, &numbers, NULL) : KVARC_OK;
		if (!ret && last)
			*number = *KVI_LIST(uint64_t, numbers, numbers.n - 1);
		kvi_free(&store->alloc, numbers.p);
		if (ret)
			return ret;
		ret = kvi_version_key(key, store->name_space, session, *number)
		              ? kvi_manifest_read(store, key, manifest)
		              : KVARC_END;
		if (!last)
			break;
	}
	return ret;
}

/* ----- put and remove ------------------------------------------------ */

static struct kvi_session_key key_of(const struct kvarc_store *store, const char *session,
                                     uint64_t number)
{
	struct kvi_session_key k = { .number = number };
	snprintf(k.name_space, sizeof k.name_space, "%s", store->name_space);
	snprintf(k.name, sizeof k.name, "%s", session);
	return k;
}

/* The number behind all that were used, and the numbers of old marks. Returns OK, END (`first`, and
 * there are versions), IO, MEM, PROG. */
static kvarc_ret find_next(struct kvarc_store *store, const char *session, bool first,
                           uint64_t *next, struct kvi_list *old)
{
	struct kvi_list numbers = { 0 };
	uint64_t last = 0;
	kvarc_ret ret = list_session(store, session, &numbers, &last, old);
	if (!ret && *KVI_LIST(uint64_t, numbers, numbers.n - 1) > last)
		last = *KVI_LIST(uint64_t, numbers, numbers.n - 1);
	kvi_free(&store->alloc, numbers.p);
	if (!ret && first)
		return KVARC_END;
	if (ret && ret != KVARC_END)
		return ret;
	*next = last + 1;
	return last < KVI_NUMBER_MAX ? KVARC_OK
	                             : kvi_fail(store->error, KVARC_PROG,
	                                        "store: the session has no next version");
}

/* Puts the mark of a number. Returns OK, END (it is there), IO, MEM. */
static kvarc_ret put_mark(struct kvarc_store *store, const struct kvi_session_key *session_key)
{
	/* A mark has no bytes: a full disk may have a name left, though no block. */
	const kvarc_source source = kvi_text_source("", 0);
	char key[KVI_KEY_MAX + 1];
	return kvi_mark_key(key, session_key)
	               ? store->backend->calls->put(store->backend, key, &source, store->error)
	               : kvi_fail(store->error, KVARC_PROG,
	                          "store: the name of the session is too long");
}

static kvarc_ret fail_race(struct kvarc_store *store)
{
	return kvi_fail(
		store->error, KVARC_IO,
		"store: other programs put versions of the session all the time; try again");
}

/* Takes the number behind all that were used, by its mark, which one process alone can put. Old
 * marks, which are lower, say nothing any more; where they cannot be removed they stay. Returns as
 * find_next, and IO where others take every number first. */
static kvarc_ret claim_number(struct kvarc_store *store, const char *session, bool first,
                              uint64_t *number)
{
	kvarc_ret ret = KVARC_END;
	for (int i = 0; i < RACES_MOST && ret == KVARC_END; i++) {
		struct kvi_list old = { 0 };
		const int64_t begin = kvi_store_now();
		ret = find_next(store, session, first, number, &old);
		const bool versions = ret == KVARC_END;
		const struct kvi_session_key k = key_of(store, session, *number);
		if (!ret)
			ret = put_mark(store, &k);
		for (size_t n = 0; n < old.n && !ret; n++) {
			const struct kvi_session_key o = key_of(store, session,
			                                        *KVI_LIST(uint64_t, old, n));
			char key[KVI_KEY_MAX + 1];
			if (kvi_mark_key(key, &o))
				(void)store->backend->calls->remove(store->backend, key, NULL);
		}
		kvi_free(&store->alloc, old.p);
		if (versions)
			return KVARC_END;
		/* A machine that slept meanwhile may have put the mark of a number whose own mark
		 * has gone as an old one. */
		if (!ret && kvi_store_now() - begin > LIST_SECONDS)
			ret = KVARC_END;
	}
	return ret == KVARC_END ? fail_race(store) : ret;
}

/* Whether a session has other versions than the one that was put. Returns OK (it has not), END, IO,
 * MEM. */
static kvarc_ret check_first(struct kvarc_store *store, const char *session, uint64_t number)
{
	struct kvi_list numbers = { 0 };
	kvarc_ret ret = kvi_session_numbers(store, session, &numbers, NULL);
	const bool alone = ret || (numbers.n == 1 && *KVI_LIST(uint64_t, numbers, 0) == number);
	kvi_free(&store->alloc, numbers.p);
	if (ret == KVARC_END) /* others have removed it, which is fine */
		return KVARC_OK;
	return ret ? ret : alone ? KVARC_OK : KVARC_END;
}

/* Puts a manifest under a number that was claimed. Returns OK, END (it is to be put under another
 * number), IO, MEM, PROG. */
static kvarc_ret put_numbered(struct kvarc_store *store, const char *session,
                              struct kvi_manifest *manifest, bool first, uint64_t number)
{
	char key[KVI_KEY_MAX + 1];
	if (!kvi_version_key(key, store->name_space, session, number))
		return kvi_fail(store->error, KVARC_PROG,
		                "store: the name of the session is too long");
	kvarc_ret ret = put_manifest(store, key, manifest);
	if (ret || !first)
		return ret;
	/* Two forks may put the first version at once: who looks last sees both, and goes. */
	ret = check_first(store, session, number);
	if (ret)
		kvi_version_take_back(store, session, number, manifest);
	return ret;
}

kvarc_ret kvi_version_put(struct kvarc_store *store, const char *session,
                          struct kvi_manifest *manifest, bool first, uint64_t *number)
{
	kvarc_ret ret = KVARC_END;
	*number = 0;
	for (int i = 0; i < RACES_MOST && ret == KVARC_END; i++) {
		uint64_t next = 0;
		ret = claim_number(store, session, first, &next);
		if (ret)
			return ret;
		ret = put_numbered(store, session, manifest, first, next);
		*number = ret ? 0 : next;
	}
	return ret == KVARC_END ? fail_race(store) : ret;
}

kvarc_ret kvi_version_mark(struct kvarc_store *store, const struct kvi_session_key *session_key)
{
	kvarc_ret ret = put_mark(store, session_key);
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvi_version_remove(struct kvarc_store *store, const struct kvi_session_key *session_key,
                             const uint8_t *digest)
{
	const struct kvi_backend_calls *calls = store->backend->calls;
	char key[KVI_KEY_MAX + 1], text[KVI_MANIFEST_MAX + 1];
	uint8_t found[16];
	size_t got;
	if (!kvi_version_key(key, session_key->name_space, session_key->name, session_key->number))
		return KVARC_END;
	kvarc_ret ret = calls->get(store->backend, key, 0, text, sizeof text, &got, store->error);
	if (ret)
		return ret;
	kvi_manifest_digest(found, text, got);
	if (digest && memcmp(found, digest, 16) != 0)
		return KVARC_END;
	/* An object that is longer is no manifest, and was never acknowledged. */
	return got > KVI_MANIFEST_MAX
	               ? calls->remove(store->backend, key, store->error)
	               : calls->remove_if(store->backend, key, text, got, store->error);
}

void kvi_version_take_back(struct kvarc_store *store, const char *session, uint64_t number,
                           const struct kvi_manifest *manifest)
{
	const kvarc_error was = *store->error;
	const struct kvi_session_key k = key_of(store, session, number);
	/* A version that cannot be removed is one that does not load: a load uses the one
	 * before. */
	(void)kvi_version_remove(store, &k, manifest->digest);
	*store->error = was;
}
