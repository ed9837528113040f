/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer_steps.c - what leaves a store and what comes into one, in whatever form */
#include "transfer_steps.h"

#include <string.h>

#include "reader/reader_internal.h"
#include "new_archive.h"

/* ----- what leaves ------------------------------------------------ */

kvarc_ret kvi_leaving_find(struct kvi_leaving *x, struct kvarc_store *s, const char *session,
                           uint64_t number)
{
	uint64_t unreadable = 0;
	memset(x, 0, sizeof *x);
	x->number = number;
	kvarc_ret ret = kvi_session_check(s, session);
	if (!ret)
		ret = kvi_version_read(s, session, &x->number, &x->m);
	if (ret == KVARC_END)
		return kvi_fail(s->error, ret, "there is no such session or version: '%s'",
		                session);
	if (!ret)
		ret = kvi_index_refresh(s, s->index, NULL, NULL, &unreadable);
	if (!ret)
		ret = kvi_protocol_needs(s, &x->m.needs, NULL, &x->ids);
	if (ret == KVARC_END)
		ret = kvi_fail(s->error, KVARC_STORE, "store: the version needs what is missing");
	x->m.parent[0] = 0;
	x->m.parent_number = 0;
	return ret;
}

void kvi_leaving_free(struct kvi_leaving *x, struct kvarc_store *s)
{
	kvi_free(&s->alloc, x->ids.p);
	x->ids = (struct kvi_list){ 0 };
}

const uint8_t *kvi_leaving_id(const struct kvi_leaving *x, size_t i)
{
	/* ids begin with the version's own archive */
	return (const uint8_t *)x->ids.p + 16 * ((i + 1) % x->ids.n);
}

kvarc_ret kvi_leaving_source(struct kvarc_store *s, const char *key, kvarc_source *source)
{
	kvarc_ret ret = kvi_object_source(source, s->backend, key, s->error);
	return ret == KVARC_END ? kvi_fail(s->error, KVARC_STORE, "store: %s is missing", key)
	                        : ret;
}

/* ----- archives that come ------------------------------------------------ */

/* All frames of an archive that is open or could not be opened, which is `opened`. */
static kvarc_ret check_open(struct kvarc_store *s, struct kvi_open_pack *p, kvarc_ret opened)
{
	if (opened)
		return opened;
	kvarc_ret ret = kvi_reader_check_frames(p->r);
	if (ret)
		kvi_fail(s->error, ret, "store: %s: %s", p->key, p->error.text);
	kvi_pack_close(p);
	return ret;
}

/* Whether an archive of the store is the one that its key says, in all frames. */
static kvarc_ret check_pack(struct kvarc_store *s, const uint8_t id[16])
{
	struct kvi_open_pack open;
	kvarc_ret ret = kvi_pack_open(s, &open, id, false, NULL);
	return ret == KVARC_AUTH ? kvi_pack_check_locked(s, id) : check_open(s, &open, ret);
}

static bool is_damage(kvarc_ret ret)
{
	return ret == KVARC_DATA || ret == KVARC_FORMAT;
}

/* What brought an archive has no checks. One that is damaged goes again; one that cannot be
 * read now stays, as others may have found it. */
static kvarc_ret confirm_pack(struct kvarc_store *s, const char *key, const uint8_t id[16])
{
	kvarc_ret ret = check_pack(s, id);
	if (!is_damage(ret))
		return ret;
	(void)s->backend->calls->remove(s->backend, key, NULL);
	return kvi_fail(s->error, KVARC_DATA, "store: %s that came is damaged; send it again", key);
}

static kvarc_ret copy_source(const kvarc_source *from, struct kvi_new_archive *to)
{
	uint8_t buffer[1 << 16];
	for (uint64_t at = 0; at < from->size;) {
		const uint64_t left = from->size - at;
		const int64_t n = from->read(from->opaque, buffer,
		                             left < sizeof buffer ? (size_t)left : sizeof buffer,
		                             at);
		if (n <= 0 || to->sink.write(to->sink.opaque, buffer, (size_t)n, at) != 0)
			return KVARC_IO;
		at += (uint64_t)n;
	}
	return KVARC_OK;
}

/* Replaces an archive that is damaged: not before it is known to be whole, as what
 * is there may be all that there is. */
static kvarc_ret replace_pack(struct kvarc_store *s, const char *key, const uint8_t id[16],
                              const kvarc_source *source)
{
	const struct kvi_backend_calls *calls = s->backend->calls;
	struct kvi_new_archive copy = { .fd = -1 };
	struct kvi_open_pack open;
	kvarc_ret ret = kvi_new_archive_begin(&copy, s);
	if (!ret && copy_source(source, &copy) != KVARC_OK)
		ret = kvi_fail(s->error, KVARC_IO, "store: %s that comes cannot be copied", key);
	if (!ret)
		ret = kvi_new_archive_end(&copy, s);
	/* One that no key opens is checked when it is there. */
	if (!ret) {
		ret = kvi_pack_open_source(s, &open, id, &copy.source, NULL);
		ret = ret == KVARC_AUTH ? KVARC_OK : check_open(s, &open, ret);
		if (is_damage(ret))
			ret = kvi_fail(s->error, KVARC_DATA,
			               "store: %s is damaged here, and what came is, too; send it "
			               "again",
			               key);
	}
	if (!ret)
		ret = calls->remove(s->backend, key, s->error);
	if (!ret)
		ret = calls->put(s->backend, key, &copy.source, s->error);
	kvi_new_archive_close(&copy);
	kvi_pack_forget(s, id);
	/* Another one may have mended it, too. */
	if (!ret || ret == KVARC_END)
		ret = confirm_pack(s, key, id);
	if (!ret)
		kvi_store_note(s, "%s was damaged here, and is replaced by the one that came", key);
	return ret;
}

kvarc_ret kvi_arrive_pack(struct kvarc_store *s, const uint8_t id[16], const kvarc_source *source,
                          kvarc_received *n)
{
	struct kvi_object object;
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, id);
	kvarc_ret ret = kvi_service_check(s);
	if (ret)
		return ret;
	/* Before the put: a stream is read once. */
	ret = s->backend->calls->stat(s->backend, key, &object, s->error);
	const bool here = !ret;
	if (here) {
		kvi_pack_forget(s, id);
		ret = check_pack(s, id);
		n->left_out += !ret;
		if (!is_damage(ret))
			return ret;
		ret = replace_pack(s, key, id, source);
	} else if (ret == KVARC_END) {
		ret = s->backend->calls->put(s->backend, key, source, s->error);
		if (!ret || ret == KVARC_END)
			ret = confirm_pack(s, key, id);
	}
	n->archives += !ret;
	n->archive_bytes += ret ? 0 : source->size;
	return ret;
}

/* ----- versions that come ------------------------------------------------ */

/* As a save does it: gc may be about to remove what the version names (docs/store.md). */
static kvarc_ret publish(struct kvarc_store *s, const char *session, struct kvi_manifest *m,
                         kvarc_received *n)
{
	uint64_t number;
	kvarc_ret ret = kvi_version_put(s, session, m, false, &number);
	if (ret)
		return ret;
	ret = kvi_protocol_stays(s, &m->needs);
	if (!ret)
		n->version = number;
	else
		kvi_version_take_back(s, session, number, m);
	return ret == KVARC_END
	               ? kvi_fail(s->error, KVARC_STORE,
	                          "store: archives of the version are being removed; send it again")
	               : ret;
}

/* The number of the version of a session with that archive, label and time; 0: there is none. */
static kvarc_ret find_same(struct kvarc_store *s, const char *session, const struct kvi_manifest *m,
                           uint64_t *number)
{
	struct kvi_list numbers = { 0 };
	kvarc_ret ret = kvi_session_numbers(s, session, &numbers, NULL);
	*number = 0;
	for (size_t i = 0; i < numbers.n && !ret && !*number; i++) {
		uint64_t at = *KVI_LIST(uint64_t, numbers, i);
		struct kvi_manifest other;
		ret = kvi_version_read(s, session, &at, &other);
		if (!ret && !memcmp(other.needs.pack, m->needs.pack, 16) && other.time == m->time &&
		    !strcmp(other.label, m->label))
			*number = at;
		if (ret == KVARC_END || ret == KVARC_DATA)
			ret = KVARC_OK;
	}
	kvi_free(&s->alloc, numbers.p);
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* A load refuses a version whose archive is not encrypted as its manifest says. */
static kvarc_ret check_encrypted(struct kvarc_store *s, const struct kvi_needs *needs)
{
	kvarc_reader *r;
	kvarc_ret ret = kvi_pack_reader(s, needs->pack, false, &r);
	bool encrypted = ret == KVARC_AUTH;
	/* What opens it, a profile for instance, may be on another machine. */
	if (ret && !encrypted)
		return ret == KVARC_MEM || ret == KVARC_IO ? ret : KVARC_OK;
	if (!ret)
		encrypted = kvi_pack_find(s, needs->pack)->veil.on;
	return encrypted == needs->encrypted
	               ? KVARC_OK
	               : kvi_fail(s->error, KVARC_DATA,
	                          "store: the manifest that came says that its archive is %s, "
	                          "which it is not",
	                          needs->encrypted ? "encrypted" : "not encrypted");
}

kvarc_ret kvi_arrive_version(struct kvarc_store *s, const char *session, const char *text,
                             size_t bytes, kvarc_received *n)
{
	struct kvi_manifest m;
	struct kvi_list ids = { 0 };
	uint64_t unreadable = 0;
	kvarc_ret ret = kvi_manifest_parse(&m, text, bytes);
	if (ret)
		return kvi_fail(s->error, ret,
		                ret == KVARC_OPTIONS
		                        ? "store: the version that came needs a newer kvarc"
		                        : "store: the version that came is damaged");
	ret = kvi_index_refresh(s, s->index, NULL, NULL, &unreadable);
	if (!ret)
		ret = kvi_protocol_needs(s, &m.needs, NULL, &ids);
	if (ret == KVARC_END)
		ret = kvi_fail(s->error, KVARC_STORE,
		               "store: the version names archives that neither came nor are here; "
		               "send it without --have, or export it again");
	if (!ret)
		ret = check_encrypted(s, &m.needs);
	if (!ret)
		ret = find_same(s, session, &m, &n->version);
	n->was_here = n->version != 0;
	if (!ret && !n->version)
		ret = publish(s, session, &m, n);
	kvi_free(&s->alloc, ids.p);
	return ret;
}
