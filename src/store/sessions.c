/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.c - the manifests of sessions: reading, listing, putting */
#include "store_state.h"
#include "util/bytes.h"

#include <stdlib.h>
#include <string.h>

kvarc_ret kvi_session_check(struct kvarc_store *s, const char *session)
{
	const char *wrong = kvi_session_wrong(session);
	return wrong ? kvi_fail(s->error, KVARC_PROG, "the name of a session %s", wrong) : KVARC_OK;
}

void kvi_version_fill(kvarc_session_version *v, const struct kvi_session_key *k,
                      const struct kvi_manifest *m)
{
	memset(v, 0, sizeof *v);
	v->session = k->name;
	v->number = k->number;
	v->time = m->time;
	v->tokens = m->tokens;
	v->file_bytes = m->bytes;
	v->label = m->label;
	v->parent = m->parent;
	v->parent_number = m->parent_number;
	memcpy(v->archive, m->needs.pack, sizeof v->archive);
	v->encrypted = m->needs.encrypted;
}

/* ----- one ------------------------------------------------ */

kvarc_ret kvi_manifest_read(struct kvarc_store *s, const char *key, struct kvi_manifest *m)
{
	/* One byte more, so that one that is too long is seen. */
	char text[KVI_MANIFEST_MAX + 1];
	size_t got;
	kvarc_ret ret = s->backend->calls->get(s->backend, key, 0, text, sizeof text, &got,
	                                       s->error);
	if (ret)
		return ret;
	ret = kvi_manifest_parse(m, text, got);
	if (ret == KVARC_OPTIONS)
		return kvi_reason(s->error, KVARC_REASON_NEWER,
		                  kvi_fail(s->error, ret, "store: %s: made by a newer kvarc", key));
	return ret ? kvi_fail(s->error, ret, "store: %s is damaged", key) : KVARC_OK;
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

kvarc_ret kvi_manifest_put(struct kvarc_store *s, const char *key, const struct kvi_manifest *m)
{
	char text[KVI_MANIFEST_MAX];
	const kvarc_source source = kvi_text_source(text, kvi_manifest_write(text, m));
	return s->backend->calls->put(s->backend, key, &source, s->error);
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

kvarc_ret kvi_manifests(struct kvarc_store *s, const char *prefix, kvi_manifest_fn fn, void *opaque)
{
	struct manifest_keys keys = { .s = s };
	kvarc_ret ret = list_keys(&keys, prefix);
	for (size_t i = 0; i < keys.list.n && !ret; i++) {
		const struct kvi_session_key *k = KVI_LIST(struct kvi_session_key, keys.list, i);
		char key[KVI_KEY_MAX + 1];
		struct kvi_manifest m;
		if (!kvi_version_key(key, k->name_space, k->name, k->number))
			continue;
		kvarc_ret wrong = kvi_manifest_read(s, key, &m);
		if (wrong == KVARC_END)
			continue;
		ret = wrong == KVARC_MEM ? wrong : fn(opaque, key, k, &m, wrong);
	}
	kvi_free(&s->alloc, keys.list.p);
	return ret;
}

kvarc_ret kvi_session_numbers(struct kvarc_store *s, const char *session, struct kvi_list *numbers)
{
	struct manifest_keys keys = { .s = s };
	char prefix[KVI_KEY_MAX + 1];
	if (!kvi_session_prefix(prefix, s->name_space, session))
		return KVARC_END;
	kvarc_ret ret = list_keys(&keys, prefix);
	for (size_t i = 0; i < keys.list.n && !ret; i++) {
		const struct kvi_session_key *k = KVI_LIST(struct kvi_session_key, keys.list, i);
		/* "a/1" is under the prefix of "a/b", too, but of another session. */
		if (strcmp(k->name, session) != 0 || strcmp(k->name_space, s->name_space) != 0)
			continue;
		uint64_t *to = kvi_list_add(numbers, &s->alloc, sizeof *to);
		if (to)
			*to = k->number;
		else
			ret = kvi_fail_alloc(s->error, &s->alloc);
	}
	kvi_free(&s->alloc, keys.list.p);
	return ret ? ret : numbers->n ? KVARC_OK : KVARC_END;
}

kvarc_ret kvi_version_read(struct kvarc_store *s, const char *session, uint64_t *number,
                           struct kvi_manifest *m)
{
	char key[KVI_KEY_MAX + 1];
	kvarc_ret ret = KVARC_OK;
	if (!*number) {
		struct kvi_list numbers = { 0 };
		ret = kvi_session_numbers(s, session, &numbers);
		if (!ret)
			*number = *KVI_LIST(uint64_t, numbers, numbers.n - 1);
		kvi_free(&s->alloc, numbers.p);
	}
	if (!ret && !kvi_version_key(key, s->name_space, session, *number))
		ret = KVARC_END;
	return ret ? ret : kvi_manifest_read(s, key, m);
}

enum { RACES_MOST = 10000 }; /* others put the version that is next */

kvarc_ret kvi_version_put(struct kvarc_store *s, const char *session, const struct kvi_manifest *m,
                          uint64_t *number)
{
	*number = 0;
	for (int i = 0; i < RACES_MOST; i++) {
		char key[KVI_KEY_MAX + 1];
		struct kvi_list numbers = { 0 };
		uint64_t last = 0;
		kvarc_ret ret = kvi_session_numbers(s, session, &numbers);
		if (!ret)
			last = *KVI_LIST(uint64_t, numbers, numbers.n - 1);
		kvi_free(&s->alloc, numbers.p);
		if (ret && ret != KVARC_END)
			return ret;
		if (last >= KVI_NUMBER_MAX ||
		    !kvi_version_key(key, s->name_space, session, last + 1))
			return kvi_fail(s->error, KVARC_PROG,
			                "store: the session has no next version");
		ret = kvi_manifest_put(s, key, m);
		if (ret != KVARC_END) {
			*number = ret ? 0 : last + 1;
			return ret;
		}
	}
	return kvi_fail(
		s->error, KVARC_IO,
		"store: other programs put versions of the session all the time; try again");
}
