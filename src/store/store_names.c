/* SPDX-License-Identifier: BSD-3-Clause */
/* store_names.c - which versions an export or an import is about */
#include "store_names.h"

#include <string.h>

#include "util/arguments.h"

/* ----- export ------------------------------------------------ */

/* The last versions of all sessions. */
struct version_listing {
	struct kvarc_store *s;
	struct kvi_list names; /* struct kvi_session_key */
	kvarc_ret ret;
};

static int add_name(void *opaque, const kvarc_session_version *v)
{
	struct version_listing *l = opaque;
	struct kvi_session_key *to = kvi_list_add(&l->names, &l->s->alloc, sizeof *to);
	if (!to) {
		l->ret = kvi_fail_alloc(l->s->error, &l->s->alloc);
		return 1;
	}
	strcpy(to->name, v->session);
	to->number = v->number;
	return 0;
}

static kvarc_ret list_all(struct version_listing *l, struct kvarc_store *s)
{
	*l = (struct version_listing){ .s = s };
	kvarc_ret ret = kvarc_store_list(s, add_name, l);
	if (l->ret)
		return l->ret;
	return ret || l->names.n
	               ? ret
	               : kvi_fail(s->error, KVARC_END, "the store has no sessions");
}

kvarc_ret kvi_export_count(struct kvarc_store *s, size_t n, uint64_t *versions)
{
	struct version_listing l;
	*versions = n;
	if (n)
		return KVARC_OK;
	kvarc_ret ret = list_all(&l, s);
	*versions = l.names.n;
	kvi_free(&s->alloc, l.names.p);
	return ret;
}

static kvarc_ret export_one(struct kvarc_store *s, const char *call,
                            const kvarc_version_name *version, kvi_export_fn fn, void *opaque)
{
	struct kvi_leaving v;
	kvarc_ret ret = KVI_CHECK_RESERVED(s->error, call, "kvarc_version_name", version);
	if (ret)
		return ret;
	ret = kvi_leaving_find(&v, s, version->session, version->number);
	if (!ret)
		ret = fn(opaque, version, &v);
	kvi_leaving_free(&v, s);
	return ret;
}

kvarc_ret kvi_export_each(struct kvarc_store *s, const char *call, size_t n,
                          const kvarc_version_name *versions, kvi_export_fn fn, void *opaque)
{
	struct version_listing l = { .s = s };
	kvarc_ret ret = n ? KVARC_OK : list_all(&l, s);
	for (size_t i = 0; i < n && !ret; i++)
		ret = export_one(s, call, &versions[i], fn, opaque);
	for (size_t i = 0; i < l.names.n && !ret; i++) {
		const struct kvi_session_key *k = KVI_LIST(struct kvi_session_key, l.names, i);
		const kvarc_version_name name = { .session = k->name };
		ret = export_one(s, call, &name, fn, opaque);
	}
	kvi_free(&s->alloc, l.names.p);
	return ret;
}

/* ----- import ------------------------------------------------ */

bool kvi_import_wants(const struct kvi_importing *x, const char *session)
{
	for (size_t i = 0; i < x->n; i++)
		if (strcmp(x->sessions[i], session) == 0)
			return true;
	return !x->n;
}

kvarc_ret kvi_import_version(struct kvi_importing *x, const char *key, const char *text,
                             size_t bytes)
{
	struct kvi_session_key k;
	if (!kvi_session_key_parse(&k, key))
		return kvi_fail(x->s->error, KVARC_DATA,
		                "store: what is imported has an entry that is no version");
	if (!kvi_import_wants(x, k.name))
		return KVARC_OK;
	x->found++;
	kvarc_ret ret = kvi_arrive_version(x->s, k.name, text, bytes, &x->came);
	const kvarc_imported v = { .session = k.name,
		                   .version = x->came.version,
		                   .was_here = x->came.was_here != 0,
		                   .archives = x->came.archives,
		                   .archive_bytes = x->came.archive_bytes };
	x->came = (kvarc_received){ 0 };
	if (!ret && x->fn && x->fn(x->opaque, &v))
		ret = kvi_fail(x->s->error, KVARC_IO, "stopped on request");
	return ret;
}

kvarc_ret kvi_import_end(const struct kvi_importing *x)
{
	return x->found ? KVARC_OK
	                : kvi_fail(x->s->error, KVARC_END, "none of the sessions is in it");
}
