/* SPDX-License-Identifier: BSD-3-Clause */
/* store_save.c - saves a file as the next version of a session */
#include "config.h"

#include "store_state.h"

#include <limits.h>
#include <string.h>

#include "files/import_adopt.h"
#include "save_archive.h"
#include "save_check.h"
#include "save_encryption.h"
#include "util/arguments.h"
#include "util/bytes.h"

enum {
	TRIES_MOST = 8 /* what a save shares is removed again and again */
};

/* A save on its way. */
struct saving {
	struct kvarc_store *s;
	const char *session;
	kvarc_import *im;
	const kvarc_save_options *o;
	struct kvi_save_plan plan;
	struct kvi_new_archive archive;
	struct kvi_list known, needs; /* struct kvi_known; ids of archives */
	struct kvi_veil plain;        /* all zero */
	kvarc_key key;                /* of an encrypted one */
	bool encrypt;
	bool alone; /* it would need more archives than a manifest names */
	struct kvi_manifest manifest;
	struct kvi_manifest last; /* the last version before, */
	uint64_t last_number;     /* 0: there is none that can be read */
	uint64_t number;          /* of the version that was put; 0: none */
	bool unchanged;           /* that is the last one, which is the same file */
	bool confirmed;
	kvarc_saved *saved;
};

/* ----- what it needs ------------------------------------------------ */

/* Archives that its pieces lie in, and itself. */
static kvarc_ret collect_needs(struct saving *v)
{
	struct kvarc_store *s = v->s;
	v->needs.n = 0;
	for (size_t i = 0; i <= v->plan.g->n_tracks; i++) {
		const struct kvi_list *l = i < v->plan.g->n_tracks ? &v->plan.tracks[i].pieces
		                                                   : NULL;
		for (size_t k = 0; k < (l ? l->n : 1); k++) {
			const uint8_t *id = l ? KVI_LIST(struct kvi_piece_kept, *l, k)->pack
			                      : v->archive.id;
			if (kvi_protocol_has(&v->needs, id))
				continue;
			uint8_t *to = kvi_list_add(&v->needs, &s->alloc, 16);
			if (!to)
				return kvi_fail_alloc(s->error, &s->alloc);
			memcpy(to, id, 16);
		}
	}
	return KVARC_OK;
}

/* ----- putting ------------------------------------------------ */

static void make_manifest(struct saving *v)
{
	struct kvi_manifest *m = &v->manifest;
	uint64_t tensors;
	memset(m, 0, sizeof *m);
	memcpy(m->needs.pack, v->archive.id, 16);
	m->pack_bytes = v->archive.bytes;
	m->needs.encrypted = v->encrypt;
	/* The last one is its own. */
	for (size_t i = 0; v->encrypt && i + 1 < v->needs.n; i++)
		memcpy(m->needs.others[m->needs.n++], (uint8_t *)v->needs.p + 16 * i, 16);
	for (size_t i = 0; i < v->plan.g->n_tracks; i++)
		if (v->plan.tracks[i].tokens > m->tokens)
			m->tokens = v->plan.tracks[i].tokens;
	kvarc_import_sizes(v->im, &m->bytes, &tensors);
	m->time = v->o->time;
	m->mode = v->o->mode & 0777;
	if (v->o->label)
		strcpy(m->label, v->o->label);
}

static kvarc_ret put_archive(struct saving *v)
{
	struct kvarc_store *s = v->s;
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, v->archive.id);
	kvarc_ret ret = s->backend->calls->put(s->backend, key, &v->archive.source, s->error);
	return ret == KVARC_END
	               ? kvi_fail(s->error, KVARC_IO, "store: %s is there already; try again", key)
	               : ret;
}

/* ----- the index ------------------------------------------------ */

/* It is a cache: a save is good without it, and it is mended later. */
static void add_to_index(struct saving *v)
{
	struct kvarc_store *s = v->s;
	kvarc_reader_options o;
	kvarc_error e = { .text = "" };
	kvarc_reader *r = NULL;
	char key[KVI_KEY_MAX + 1], pack[KVI_PACK_KEY];
	struct kvi_object object;
	kvi_pack_reader_options(s, &o, &e);
	kvi_pack_key(pack, v->archive.id);
	kvarc_ret ret = s->backend->calls->stat(s->backend, pack, &object, s->error);
	if (!ret)
		ret = kvarc_reader_open(&r, &v->archive.source, &o);
	if (!ret && kvi_index_begin_change(s->index) == KVARC_OK) {
		ret = kvi_index_fill(s, s->index, v->archive.id, &object, r, &v->known, true);
		if (!ret && kvi_version_key(key, s->name_space, v->session, v->number))
			ret = kvi_index_use(s->index, key, kvi_store_now());
		ret = kvi_index_end_change(s->index, ret);
	}
	if (ret)
		kvi_store_note(s, "the index was not updated: %.200s",
		               *e.text ? e.text : s->error->text);
	kvarc_reader_close(&r);
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret confirm_file(struct saving *v)
{
	if (v->confirmed || !v->o->confirm)
		return KVARC_OK;
	v->confirmed = true;
	return v->o->confirm(v->o->confirm_opaque)
	               ? kvi_fail(v->s->error, KVARC_IO,
	                          "store: stopped before the version was put")
	               : KVARC_OK;
}

/* With KVARC_WRITE_VERIFY: what is about to be put loads as the file, with all that it names in
 * other archives. END: one of these is damaged; saves do not count on it any more. */
static kvarc_ret check_archive(struct saving *v)
{
	enum kvi_save_verdict verdict;
	if (!(v->o->writer.flags & KVARC_WRITE_VERIFY))
		return KVARC_OK;
	kvarc_ret ret = kvi_save_check(v->s, v->archive.id, &v->archive.source, v->im, &verdict);
	if (!ret && verdict == KVI_SAVE_OTHER) {
		ret = confirm_file(v);
		if (!ret)
			ret = kvi_fail(v->s->error, KVARC_DATA,
			               "store: the archive that was made does not give the file "
			               "back: nothing was saved");
	}
	return ret ? ret : verdict == KVI_SAVE_DAMAGED ? KVARC_END : KVARC_OK;
}

/* Whether the last version may be the file: the store has all tokens, but perhaps one of each track
 * that must follow a cut. */
static bool may_be_last(const struct saving *v)
{
	uint64_t bytes, tensors;
	kvarc_import_sizes(v->im, &bytes, &tensors);
	return v->last_number && v->last.bytes == bytes &&
	       v->plan.tokens - v->plan.kept <= v->plan.g->n_tracks &&
	       v->last.needs.encrypted == v->encrypt &&
	       (!v->o->label || strcmp(v->o->label, v->last.label) == 0);
}

/* It is decoded and compared: then nothing is put. END: it does not load, plan again. */
static kvarc_ret compare_last(struct saving *v)
{
	enum kvi_save_verdict verdict;
	struct kvi_manifest m;
	uint64_t number = 0;
	char key[KVI_KEY_MAX + 1];
	kvarc_ret ret = kvi_save_check(v->s, v->last.needs.pack, NULL, v->im, &verdict);
	if (ret)
		return ret;
	if (verdict != KVI_SAVE_SAME) {
		v->last_number = 0;
		return verdict == KVI_SAVE_DAMAGED ? KVARC_END : KVARC_OK;
	}
	ret = confirm_file(v);
	/* It may have been removed meanwhile. */
	if (ret || kvi_version_read(v->s, v->session, &number, &m) != KVARC_OK ||
	    number != v->last_number)
		return ret;
	v->number = number;
	v->unchanged = true;
	if (kvi_version_key(key, v->s->name_space, v->session, number))
		(void)kvi_index_use(v->s->index, key, kvi_store_now());
	return KVARC_OK;
}

/* Puts archive and version. END: what they need is being removed. */
static kvarc_ret publish(struct saving *v)
{
	kvarc_ret ret = confirm_file(v);
	if (!ret)
		ret = put_archive(v);
	/* Before anybody sees the version, and again once gc can see it. */
	if (!ret)
		ret = kvi_protocol_confirm(v->s, &v->needs);
	if (ret)
		return ret;
	make_manifest(v);
	ret = kvi_version_put(v->s, v->session, &v->manifest, false, &v->number);
	if (ret)
		return ret;
	ret = kvi_protocol_confirm(v->s, &v->needs);
	/* It names what was removed. Its archive stays for gc: a fork may name it by now. */
	if (ret) {
		kvi_version_take_back(v->s, v->session, v->number, &v->manifest);
		v->number = 0;
	}
	return ret;
}

static void report(struct saving *v, uint64_t tries)
{
	kvarc_saved *r = v->saved;
	uint64_t tensors;
	memset(r, 0, sizeof *r);
	r->version = v->number;
	r->tokens = v->plan.tokens;
	r->kept_tokens = v->unchanged ? v->plan.tokens : v->plan.kept;
	r->new_tokens = r->tokens - r->kept_tokens;
	kvarc_import_sizes(v->im, &r->file_bytes, &tensors);
	r->unchanged = v->unchanged;
	r->written_bytes = v->unchanged ? 0 : v->archive.bytes;
	r->not_written_bytes = v->plan.kept_bytes;
	r->tries = tries;
}

static kvarc_ret save_once(struct saving *v)
{
	v->known.n = 0;
	const kvarc_keys keys = { .list = &v->key, .n = 1 };
	kvarc_ret ret = kvi_plan_save(&v->plan, v->s, v->im,
	                              v->encrypt ? &v->s->save_veil : &v->plain, v->alone);
	if (!ret && may_be_last(v))
		ret = compare_last(v);
	if (ret || v->unchanged)
		return ret;
	ret = kvi_save_write(&v->archive, &v->plan, v->o, v->encrypt ? &keys : NULL, &v->known);
	if (!ret)
		ret = collect_needs(v);
	if (!ret && v->encrypt && v->needs.n > KVI_NEEDS_MAX + 1) {
		v->alone = true;
		return KVARC_END;
	}
	if (!ret)
		ret = check_archive(v);
	if (!ret)
		ret = publish(v);
	if (!ret)
		add_to_index(v);
	return ret;
}

/* What an import finds out about heads and RoPEs depends on its tokens and options, and chain
 * values on that: so the session's last version has precedence, unless a profile does. */
static void adopt_geometry(struct saving *v)
{
	struct kvi_manifest last;
	kvarc_reader *r;
	uint64_t number = 0;
	if (!v->o->writer.profile &&
	    kvi_version_read(v->s, v->session, &number, &last) == KVARC_OK &&
	    kvi_pack_reader(v->s, last.needs.pack, false, &r) == KVARC_OK)
		(void)kvi_import_adopt(v->im, kvarc_reader_geometry(r));
}

static kvarc_ret save(struct saving *v)
{
	kvarc_ret ret = KVARC_END;
	uint64_t tries = 0;
	adopt_geometry(v);
	v->archive.fd = -1;
	while (ret == KVARC_END && tries < TRIES_MOST) {
		kvi_new_archive_close(&v->archive);
		kvi_plan_free(&v->plan);
		ret = save_once(v);
		tries++;
		if (kvi_store_mend(v->s, ret))
			ret = KVARC_END;
	}
	if (ret == KVARC_END)
		ret = kvi_fail(v->s->error, KVARC_IO,
		               "store: what the session shares is removed by others all the time; "
		               "try again");
	if (!ret && v->saved)
		report(v, tries);
	kvi_new_archive_close(&v->archive);
	kvi_plan_free(&v->plan);
	kvi_free(&v->s->alloc, v->known.p);
	kvi_free(&v->s->alloc, v->needs.p);
	return ret;
}

static kvarc_ret check(struct kvarc_store *s, const char *session, const kvarc_save_options *o)
{
	static const char call[] = "kvarc_store_save";
	const int level = o->writer.level < 0 ? 0 : o->writer.level;
	kvarc_ret ret = kvi_session_check(s, session);
	if (!ret)
		ret = KVI_CHECK_RESERVED(s->error, call, "options", o);
	if (ret)
		return ret;
	if (o->label && strnlen(o->label, KVI_LABEL_MAX + 1) > KVI_LABEL_MAX)
		return kvi_fail(s->error, KVARC_PROG, "%s: the label is longer than %d bytes", call,
		                KVI_LABEL_MAX);
	if (o->time > KVI_NUMBER_MAX)
		return kvi_fail(s->error, KVARC_PROG, "%s: time is 2^53 or more", call);
	if (level > 3 || o->writer.lossy || (o->writer.flags & KVARC_WRITE_STREAMABLE))
		return kvi_fail(
			s->error, KVARC_OPTIONS,
			"a store takes levels 0 to 3, no lossy tier and no streamable archives: "
			"a model would have to go through all tokens of each save");
	if (o->encrypt < KVARC_SAVE_PLAIN || o->encrypt > KVARC_SAVE_ENCRYPT)
		return kvi_fail(s->error, KVARC_PROG, "%s: encrypt is not valid", call);
	if (o->writer.keys)
		return kvi_fail(s->error, KVARC_PROG,
		                "%s: keys are those of the store: set encrypt", call);
	if (o->writer.segment_tokens > KVI_SEGMENT_MOST)
		return kvi_fail(s->error, KVARC_PROG, "%s: segment_tokens is at most 256", call);
	return KVARC_OK;
}

/* Unless the caller says it, a session stays as it is. */
static kvarc_ret decide_encryption(struct saving *v, kvarc_ret read, const struct kvi_needs *last)
{
	kvarc_ret ret = kvi_save_encrypts(v->s, v->o->encrypt, read, last, &v->encrypt);
	return !ret && v->encrypt ? kvi_store_save_key(v->s, &v->key) : ret;
}

/* The index may not know the session's last version, of another machine: then it learns of all. */
static kvarc_ret refresh(struct saving *v)
{
	struct kvarc_store *s = v->s;
	struct kvi_manifest m;
	uint64_t number = 0, unreadable = 0;
	int64_t pack;
	const kvarc_ret read = kvi_version_read(s, v->session, &number, &m);
	kvarc_ret ret = decide_encryption(v, read, &m.needs);
	/* A damaged one is no reason not to save the next. */
	if (ret || read)
		return ret;
	v->last = m;
	v->last_number = number;
	ret = kvi_index_find_pack(s->index, m.needs.pack, &pack);
	return ret == KVARC_END ? kvi_index_refresh(s, s->index, NULL, NULL, &unreadable) : ret;
}

kvarc_ret kvarc_store_save(kvarc_store *s, const char *session, kvarc_import *im,
                           const kvarc_save_options *options, kvarc_saved *saved)
{
	static const kvarc_save_options defaults = KVARC_SAVE_OPTIONS_INIT;
	if (!s)
		return KVARC_PROG;
	if (!im)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_save: the import is NULL");
	struct saving v = { .s = s,
		            .session = session,
		            .im = im,
		            .o = options ? options : &defaults,
		            .saved = saved };
	kvarc_ret ret = check(s, session, v.o);
	if (!ret)
		ret = kvi_service_check(s);
	if (!ret)
		ret = kvarc_import_identity(im, "namespace", s->name_space);
	if (!ret)
		ret = refresh(&v);
	if (kvi_store_mend(s, ret))
		ret = KVARC_OK;
	return ret ? ret : save(&v);
}
