/* SPDX-License-Identifier: BSD-3-Clause */
/* store_transfer.c - sessions out of a store and into one: as a tar, into another store */
#include "config.h"

#include "store_transfer.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "new_archive.h"
#include "kvarc/exchange.h"
#include "reader/reader_internal.h"
#include "util/arguments.h"
#include "util/libarchive.h"

/* ==== What leaves a store and what comes into one, in whatever form ==== */

/* A version that leaves. */
struct leaving {
	uint64_t number;
	struct kvi_manifest m; /* without its parent */
	struct kvi_list ids;   /* ids of the archives that it needs */
};

/* ----- what leaves ------------------------------------------------ */

/* A version, number 0: the last one, and what it needs. *leaving is to be freed, also on
 * failure. Returns OK, END (no such version), STORE (archives are missing), PROG, DATA, IO, MEM. */
static kvarc_ret leaving_find(struct leaving *leaving, struct kvarc_store *store,
                              const char *session, uint64_t number)
{
	uint64_t unreadable = 0;
	memset(leaving, 0, sizeof *leaving);
	leaving->number = number;
	kvarc_ret ret = kvi_session_check(store, session);
	if (!ret)
		ret = kvi_version_read(store, session, &leaving->number, &leaving->m);
	if (ret == KVARC_END)
		return kvi_fail(store->error, ret, "there is no such session or version: '%s'",
		                session);
	if (!ret)
		ret = kvi_index_refresh(store, store->index, NULL, NULL, &unreadable);
	if (!ret)
		ret = kvi_protocol_needs(store, &leaving->m.needs, NULL, &leaving->ids);
	if (ret == KVARC_END)
		ret = kvi_fail(store->error, KVARC_STORE,
		               "store: the version needs what is missing");
	leaving->m.parent[0] = 0;
	leaving->m.parent_number = 0;
	return ret;
}

/* Frees the ids. */
static void leaving_free(struct leaving *leaving, struct kvarc_store *store)
{
	kvi_free(&store->alloc, leaving->ids.p);
	leaving->ids = (struct kvi_list){ 0 };
}

/* Archive i of leaving->ids.n in the order in which a receiver wants them: those that are named
 * before those that name them. */
static const uint8_t *leaving_id(const struct leaving *leaving, size_t i)
{
	/* ids begin with the version's own archive */
	return (const uint8_t *)leaving->ids.p + 16 * ((i + 1) % leaving->ids.n);
}

/* The bytes of an archive of the store; close it with kvi_object_source_close. Returns OK, STORE
 * (it is missing), IO, MEM. */
static kvarc_ret leaving_source(struct kvarc_store *store, const char *key, kvarc_source *source)
{
	kvarc_ret ret = kvi_object_source(source, store->backend, key, store->error);
	return ret == KVARC_END ? kvi_fail(store->error, KVARC_STORE, "store: %s is missing", key)
	                        : ret;
}

/* ----- archives that come ------------------------------------------------ */

/* Checks all frames of an archive that kvi_pack_open has opened; `opened` is its return. */
static kvarc_ret check_open(struct kvarc_store *store, struct kvi_open_pack *pack, kvarc_ret opened)
{
	if (opened)
		return opened;
	kvarc_ret ret = kvi_reader_check_frames(pack->r);
	if (ret)
		kvi_fail(store->error, ret, "store: %s: %s", pack->key, pack->error.text);
	kvi_pack_close(pack);
	return ret;
}

/* Whether an archive of the store is the one that its key says, in all frames. */
static kvarc_ret check_pack(struct kvarc_store *store, const uint8_t id[16])
{
	struct kvi_open_pack open;
	kvarc_ret ret = kvi_pack_open(store, &open, id, false, NULL);
	return ret == KVARC_AUTH ? kvi_pack_check_locked(store, id) : check_open(store, &open, ret);
}

static bool is_damage(kvarc_ret ret)
{
	return ret == KVARC_DATA || ret == KVARC_FORMAT;
}

/* Checks an archive that has come: its transport has no checks. A damaged one is removed; one that
 * cannot be read now stays, as others may use it already. */
static kvarc_ret confirm_pack(struct kvarc_store *store, const char *key, const uint8_t id[16])
{
	kvarc_ret ret = check_pack(store, id);
	if (!is_damage(ret))
		return ret;
	(void)store->backend->calls->remove(store->backend, key, NULL);
	return kvi_fail(store->error, KVARC_DATA, "store: %s that came is damaged; send it again",
	                key);
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
static kvarc_ret replace_pack(struct kvarc_store *store, const char *key, const uint8_t id[16],
                              const kvarc_source *source)
{
	const struct kvi_backend_calls *calls = store->backend->calls;
	struct kvi_new_archive copy = { .fd = -1 };
	struct kvi_open_pack open;
	kvarc_ret ret = kvi_new_archive_begin(&copy, store);
	if (!ret && copy_source(source, &copy) != KVARC_OK)
		ret = kvi_fail(store->error, KVARC_IO, "store: %s that comes cannot be copied",
		               key);
	if (!ret)
		ret = kvi_new_archive_end(&copy, store);
	/* A copy that no key opens is checked after the put. */
	if (!ret) {
		ret = kvi_pack_open_source(store, &open, id, &copy.source, NULL);
		ret = ret == KVARC_AUTH ? KVARC_OK : check_open(store, &open, ret);
		if (is_damage(ret))
			ret = kvi_fail(store->error, KVARC_DATA,
			               "store: %s is damaged here, and what came is, too; send it "
			               "again",
			               key);
	}
	if (!ret)
		ret = calls->remove(store->backend, key, store->error);
	if (!ret)
		ret = calls->put(store->backend, key, &copy.source, store->error);
	kvi_new_archive_close(&copy);
	kvi_pack_forget(store, id);
	/* Another process may have replaced it, too. */
	if (!ret || ret == KVARC_END)
		ret = confirm_pack(store, key, id);
	if (!ret)
		kvi_store_note(store, "%s was damaged here, and is replaced by the one that came",
		               key);
	return ret;
}

/* Puts an archive that comes from elsewhere under its key, unless it is there, and checks all of
 * its frames; one that is damaged goes again. Counts in *n. Returns OK, DATA, IO, MEM, MEMLIMIT. */
static kvarc_ret arrive_pack(struct kvarc_store *store, const uint8_t id[16],
                             const kvarc_source *source, kvarc_received *n)
{
	struct kvi_object object;
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, id);
	kvarc_ret ret = kvi_service_check(store);
	if (ret)
		return ret;
	/* The check comes before the put: a stream is read once. */
	ret = store->backend->calls->stat(store->backend, key, &object, store->error);
	const bool here = !ret;
	if (here) {
		kvi_pack_forget(store, id);
		ret = check_pack(store, id);
		n->left_out += !ret;
		if (!is_damage(ret))
			return ret;
		ret = replace_pack(store, key, id, source);
	} else if (ret == KVARC_END) {
		ret = store->backend->calls->put(store->backend, key, source, store->error);
		if (!ret || ret == KVARC_END)
			ret = confirm_pack(store, key, id);
	}
	n->archives += !ret;
	n->archive_bytes += ret ? 0 : source->size;
	return ret;
}

/* ----- versions that come ------------------------------------------------ */

/* Puts a version with the check of a save: gc may be about to remove what it names
 * (docs/store.md). */
static kvarc_ret publish(struct kvarc_store *store, const char *session,
                         struct kvi_manifest *manifest, kvarc_received *n)
{
	uint64_t number;
	kvarc_ret ret = kvi_version_put(store, session, manifest, false, &number);
	if (ret)
		return ret;
	ret = kvi_protocol_stays(store, &manifest->needs);
	if (!ret)
		n->version = number;
	else
		kvi_version_take_back(store, session, number, manifest);
	return ret == KVARC_END
	               ? kvi_fail(store->error, KVARC_STORE,
	                          "store: archives of the version are being removed; send it again")
	               : ret;
}

/* The number of the version of a session with that archive, label and time; 0: there is none. */
static kvarc_ret find_same(struct kvarc_store *store, const char *session,
                           const struct kvi_manifest *manifest, uint64_t *number)
{
	struct kvi_list numbers = { 0 };
	kvarc_ret ret = kvi_session_numbers(store, session, &numbers, NULL);
	*number = 0;
	for (size_t i = 0; i < numbers.n && !ret && !*number; i++) {
		uint64_t at = *KVI_LIST(uint64_t, numbers, i);
		struct kvi_manifest other;
		ret = kvi_version_read(store, session, &at, &other);
		if (!ret && !memcmp(other.needs.pack, manifest->needs.pack, 16) &&
		    other.time == manifest->time && !strcmp(other.label, manifest->label))
			*number = at;
		if (ret == KVARC_END || ret == KVARC_DATA)
			ret = KVARC_OK;
	}
	kvi_free(&store->alloc, numbers.p);
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* A load refuses a version whose archive is not encrypted as its manifest says. */
static kvarc_ret check_encrypted(struct kvarc_store *store, const struct kvi_needs *needs)
{
	kvarc_reader *r;
	kvarc_ret ret = kvi_pack_reader(store, needs->pack, false, &r);
	bool encrypted = ret == KVARC_AUTH;
	/* The archive may need something of another machine, a profile for instance. */
	if (ret && !encrypted)
		return ret == KVARC_MEM || ret == KVARC_IO ? ret : KVARC_OK;
	if (!ret)
		encrypted = kvi_pack_find(store, needs->pack)->veil.on;
	return encrypted == needs->encrypted
	               ? KVARC_OK
	               : kvi_fail(store->error, KVARC_DATA,
	                          "store: the manifest that came says that its archive is %s, "
	                          "which it is not",
	                          needs->encrypted ? "encrypted" : "not encrypted");
}

kvarc_ret kvi_arrive_version(struct kvarc_store *store, const char *session, const char *text,
                             size_t bytes, kvarc_received *n)
{
	struct kvi_manifest m;
	struct kvi_list ids = { 0 };
	uint64_t unreadable = 0;
	kvarc_ret ret = kvi_manifest_parse(&m, text, bytes);
	if (ret)
		return kvi_fail(store->error, ret,
		                ret == KVARC_OPTIONS
		                        ? "store: the version that came needs a newer kvarc"
		                        : "store: the version that came is damaged");
	ret = kvi_index_refresh(store, store->index, NULL, NULL, &unreadable);
	if (!ret)
		ret = kvi_protocol_needs(store, &m.needs, NULL, &ids);
	if (ret == KVARC_END)
		ret = kvi_fail(store->error, KVARC_STORE,
		               "store: the version names archives that neither came nor are here; "
		               "send it without --have, or export it again");
	if (!ret)
		ret = check_encrypted(store, &m.needs);
	if (!ret)
		ret = find_same(store, session, &m, &n->version);
	n->was_here = n->version != 0;
	if (!ret && !n->version)
		ret = publish(store, session, &m, n);
	kvi_free(&store->alloc, ids.p);
	return ret;
}

/* ==== Which versions an export or an import is about ==== */

/* Does one version of an export; not OK ends it, and is returned. */
typedef kvarc_ret (*export_fn)(void *opaque, const kvarc_version_name *version,
                               const struct leaving *found);

/* An import on its way. */
struct importing {
	struct kvarc_store *s;
	size_t n;
	const char *const *sessions; /* names of the wanted sessions; n 0: all */
	kvarc_imported_fn fn;        /* or NULL */
	void *opaque;
	uint64_t found;      /* versions of wanted sessions */
	kvarc_received came; /* archives since the last version */
};

/* ----- export ------------------------------------------------ */

/* The last versions of all sessions. */
struct version_listing {
	struct kvarc_store *s;
	struct kvi_list names; /* struct kvi_session_key */
	kvarc_ret ret;
};

static int add_name(void *opaque, const kvarc_session_version *version)
{
	struct version_listing *l = opaque;
	struct kvi_session_key *to = kvi_list_add(&l->names, &l->s->alloc, sizeof *to);
	if (!to) {
		l->ret = kvi_fail_alloc(l->s->error, &l->s->alloc);
		return 1;
	}
	strcpy(to->name, version->session);
	to->number = version->number;
	return 0;
}

static kvarc_ret list_all(struct version_listing *listing, struct kvarc_store *store)
{
	*listing = (struct version_listing){ .s = store };
	kvarc_ret ret = kvarc_store_list(store, add_name, listing);
	if (listing->ret)
		return listing->ret;
	return ret || listing->names.n
	               ? ret
	               : kvi_fail(store->error, KVARC_END, "the store has no sessions");
}

/* Sets the number of versions of an export: n, or for n 0 the number of sessions. Returns OK, END
 * (there is none), and as kvarc_store_list. */
static kvarc_ret export_count(struct kvarc_store *store, size_t n, uint64_t *versions)
{
	struct version_listing l;
	*versions = n;
	if (n)
		return KVARC_OK;
	kvarc_ret ret = list_all(&l, store);
	*versions = l.names.n;
	kvi_free(&store->alloc, l.names.p);
	return ret;
}

static kvarc_ret export_one(struct kvarc_store *store, const char *call,
                            const kvarc_version_name *version, export_fn fn, void *opaque)
{
	struct leaving v;
	kvarc_ret ret = KVI_CHECK_RESERVED(store->error, call, "kvarc_version_name", version);
	if (ret)
		return ret;
	ret = leaving_find(&v, store, version->session, version->number);
	if (!ret)
		ret = fn(opaque, version, &v);
	leaving_free(&v, store);
	return ret;
}

/* Does each. Returns what fn does, and as leaving_find. */
static kvarc_ret export_each(struct kvarc_store *store, const char *call, size_t n,
                             const kvarc_version_name *versions, export_fn fn, void *opaque)
{
	struct version_listing l = { .s = store };
	kvarc_ret ret = n ? KVARC_OK : list_all(&l, store);
	for (size_t i = 0; i < n && !ret; i++)
		ret = export_one(store, call, &versions[i], fn, opaque);
	for (size_t i = 0; i < l.names.n && !ret; i++) {
		const struct kvi_session_key *k = KVI_LIST(struct kvi_session_key, l.names, i);
		const kvarc_version_name name = { .session = k->name };
		ret = export_one(store, call, &name, fn, opaque);
	}
	kvi_free(&store->alloc, l.names.p);
	return ret;
}

/* ----- import ------------------------------------------------ */

/* Whether a session is wanted. */
static bool import_wants(const struct importing *importing, const char *session)
{
	for (size_t i = 0; i < importing->n; i++)
		if (strcmp(importing->sessions[i], session) == 0)
			return true;
	return !importing->n;
}

/* A version whose archives have come: its key, "sessions/NAME/N", and its manifest. What is not
 * wanted is left out. Returns OK, DATA (no key of a version), IO (fn says so), and as
 * kvi_arrive_version. */
static kvarc_ret import_version(struct importing *importing, const char *key, const char *text,
                                size_t bytes)
{
	struct kvi_session_key k;
	if (!kvi_session_key_parse(&k, key))
		return kvi_fail(importing->s->error, KVARC_DATA,
		                "store: what is imported has an entry that is no version");
	if (!import_wants(importing, k.name))
		return KVARC_OK;
	importing->found++;
	kvarc_ret ret = kvi_arrive_version(importing->s, k.name, text, bytes, &importing->came);
	const kvarc_imported v = { .session = k.name,
		                   .version = importing->came.version,
		                   .was_here = importing->came.was_here != 0,
		                   .archives = importing->came.archives,
		                   .archive_bytes = importing->came.archive_bytes };
	importing->came = (kvarc_received){ 0 };
	if (!ret && importing->fn && importing->fn(importing->opaque, &v))
		ret = kvi_fail(importing->s->error, KVARC_IO, "stopped on request");
	return ret;
}

/* OK, or END where none was found. */
static kvarc_ret import_end(const struct importing *importing)
{
	return importing->found
	               ? KVARC_OK
	               : kvi_fail(importing->s->error, KVARC_END, "none of the sessions is in it");
}

/* ==== Pax tars of objects of a store, through pipes, in both directions ==== */

/* A tar that is written; its members are those of tar_stream.c. */
struct tar_out {
	struct kvarc_store *s;
	const kvarc_sink *sink;
	uint64_t offset; /* bytes that were written */
	struct archive *tar;
	uint8_t *block;
};

/* A tar that is read, once, from its start to its end. */
struct tar_in {
	struct kvarc_store *s;
	const kvarc_source *source;
	uint64_t offset;
	struct archive *tar;
	uint8_t *block;
	uint64_t entry_offset; /* offset in the current entry */
	bool cut;              /* the stream ended before the size of the entry */
};

#ifdef HAVE_LIBARCHIVE

enum { BLOCK_BYTES = 1 << 18 };

static kvarc_ret fail_tar(struct kvarc_store *store, struct archive *tar, const char *what)
{
	const char *why = tar ? archive_error_string(tar) : NULL;
	return kvi_fail(store->error, KVARC_IO, "store: %s the stream: %s", what,
	                why ? why : "the pipe was closed or is full");
}

static kvarc_ret make_block(struct kvarc_store *store, uint8_t **block)
{
	*block = kvi_malloc(&store->alloc, BLOCK_BYTES);
	return *block ? KVARC_OK : kvi_fail_alloc(store->error, &store->alloc);
}

/* ----- out ------------------------------------------------ */

static la_ssize_t write_block(struct archive *tar, void *opaque, const void *p, size_t n)
{
	struct tar_out *x = opaque;
	(void)tar;
	if (x->sink->write(x->sink->opaque, p, n, x->offset) != 0)
		return -1;
	x->offset += n;
	return (la_ssize_t)n;
}

/* Begins a tar; the sink takes writes in order, and stays until close. To be closed, also on
 * failure. Returns OK, OPTIONS (no libarchive), IO, MEM, MEMLIMIT. */
static kvarc_ret tar_out_open(struct tar_out *out, struct kvarc_store *store,
                              const kvarc_sink *sink)
{
	*out = (struct tar_out){ .s = store, .sink = sink };
	if (!kvi_libarchive(store->error))
		return KVARC_OPTIONS;
	kvarc_ret ret = make_block(store, &out->block);
	if (ret)
		return ret;
	out->tar = archive_write_new();
	if (!out->tar || archive_write_set_format_pax_restricted(out->tar) != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(out->tar, BLOCK_BYTES) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(out->tar, 1) != ARCHIVE_OK ||
	    archive_write_open(out->tar, out, NULL, write_block, NULL) != ARCHIVE_OK)
		return fail_tar(store, out->tar, "writing");
	return KVARC_OK;
}

/* Writes an entry with all bytes of a source of known size. Returns OK, IO, MEM, MEMLIMIT. */
static kvarc_ret tar_put(struct tar_out *out, const char *name, const kvarc_source *source)
{
	struct archive_entry *entry = archive_entry_new();
	kvarc_ret ret = KVARC_OK;
	if (!entry)
		return kvi_fail(out->s->error, KVARC_MEM, "store: no memory");
	archive_entry_set_pathname(entry, name);
	archive_entry_set_size(entry, (la_int64_t)source->size);
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 0600);
	if (archive_write_header(out->tar, entry) != ARCHIVE_OK)
		ret = fail_tar(out->s, out->tar, "writing");
	archive_entry_free(entry);
	for (uint64_t at = 0; !ret && at < source->size;) {
		uint64_t left = source->size - at;
		int64_t n = source->read(source->opaque, out->block,
		                         left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES, at);
		if (n <= 0)
			ret = kvi_fail(out->s->error, KVARC_IO, "store: %s cannot be read", name);
		else if (archive_write_data(out->tar, out->block, (size_t)n) != n)
			ret = fail_tar(out->s, out->tar, "writing");
		else
			at += (uint64_t)n;
	}
	return ret;
}

/* Writes the end unless `ret` is a failure, which is returned then, and frees. */
static kvarc_ret tar_out_close(struct tar_out *out, kvarc_ret ret)
{
	if (!ret && archive_write_close(out->tar) != ARCHIVE_OK)
		ret = fail_tar(out->s, out->tar, "writing");
	if (out->tar)
		(void)archive_write_free(out->tar);
	kvi_free(&out->s->alloc, out->block);
	out->tar = NULL;
	out->block = NULL;
	return ret;
}

/* ----- in ------------------------------------------------ */

static la_ssize_t read_block(struct archive *tar, void *opaque, const void **p)
{
	struct tar_in *x = opaque;
	(void)tar;
	int64_t n = x->source->read(x->source->opaque, x->block, BLOCK_BYTES, x->offset);
	*p = x->block;
	x->offset += n > 0 ? (uint64_t)n : 0;
	return (la_ssize_t)n;
}

static kvarc_ret fail_in(struct tar_in *in)
{
	return in->offset ? fail_tar(in->s, in->tar, "reading")
	                  : kvi_fail(in->s->error, KVARC_DATA,
	                             "store: the stream is empty: did the sender fail?");
}

/* Begins to read a tar, with the contract of tar_out_open. */
static kvarc_ret tar_in_open(struct tar_in *in, struct kvarc_store *store,
                             const kvarc_source *source)
{
	*in = (struct tar_in){ .s = store, .source = source };
	if (!kvi_libarchive(store->error))
		return KVARC_OPTIONS;
	kvarc_ret ret = make_block(store, &in->block);
	if (ret)
		return ret;
	in->tar = archive_read_new();
	if (!in->tar || archive_read_support_format_tar(in->tar) != ARCHIVE_OK ||
	    archive_read_open(in->tar, in, NULL, read_block, NULL) != ARCHIVE_OK)
		return fail_in(in);
	return KVARC_OK;
}

/* The next entry, a regular file; *name stays until the next call. Returns OK; END: there is none;
 * DATA (another kind of entry), IO (damaged, or the pipe broke). */
static kvarc_ret tar_next(struct tar_in *in, const char **name, uint64_t *bytes)
{
	struct archive_entry *entry;
	int got = archive_read_next_header(in->tar, &entry);
	if (got == ARCHIVE_EOF)
		return KVARC_END;
	if (got != ARCHIVE_OK)
		return fail_in(in);
	const int64_t size = archive_entry_size(entry);
	*name = archive_entry_pathname(entry);
	/* Holes would be written as zeros: a few bytes fill a disk. */
	if (!*name || size < 0 || archive_entry_filetype(entry) != AE_IFREG ||
	    archive_entry_sparse_count(entry) > 0)
		return kvi_fail(in->s->error, KVARC_DATA, "store: the stream has an unknown entry");
	*bytes = (uint64_t)size;
	in->entry_offset = 0;
	return KVARC_OK;
}

static int64_t read_entry(void *opaque, void *buf, size_t n, uint64_t offset)
{
	struct tar_in *x = opaque;
	if (offset != x->entry_offset)
		return -1;
	la_ssize_t got = archive_read_data(x->tar, buf, n);
	x->entry_offset += got > 0 ? (uint64_t)got : 0;
	x->cut |= got <= 0;
	return (int64_t)got;
}

/* Source of the bytes of the entry that tar_next has found, to be read once, in order. */
static kvarc_source tar_entry(struct tar_in *in, uint64_t bytes)
{
	return (kvarc_source){ .read = read_entry, .opaque = in, .size = bytes };
}

/* Reads all bytes of the entry that tar_next has found, at most `capacity`. Returns OK; DATA: more;
 * IO. */
static kvarc_ret tar_text(struct tar_in *in, uint64_t bytes, char *text, size_t capacity)
{
	if (bytes > capacity)
		return kvi_fail(in->s->error, KVARC_DATA,
		                "store: the stream has an entry that is too large");
	if (archive_read_data(in->tar, text, (size_t)bytes) != (la_ssize_t)bytes)
		return fail_tar(in->s, in->tar, "reading");
	return KVARC_OK;
}

/* Frees. */
static void tar_in_close(struct tar_in *in)
{
	if (in->tar)
		(void)archive_read_free(in->tar);
	kvi_free(&in->s->alloc, in->block);
	in->tar = NULL;
	in->block = NULL;
}

#else

static kvarc_ret fail_without(struct kvarc_store *store)
{
	(void)kvi_libarchive(store->error);
	return KVARC_OPTIONS;
}

static kvarc_ret tar_out_open(struct tar_out *out, struct kvarc_store *store,
                              const kvarc_sink *sink)
{
	*out = (struct tar_out){ .s = store, .sink = sink };
	return fail_without(store);
}

static kvarc_ret tar_put(struct tar_out *out, const char *name, const kvarc_source *source)
{
	(void)name, (void)source;
	return fail_without(out->s);
}

static kvarc_ret tar_out_close(struct tar_out *out, kvarc_ret ret)
{
	(void)out;
	return ret;
}

static kvarc_ret tar_in_open(struct tar_in *in, struct kvarc_store *store,
                             const kvarc_source *source)
{
	*in = (struct tar_in){ .s = store, .source = source };
	return fail_without(store);
}

static kvarc_ret tar_next(struct tar_in *in, const char **name, uint64_t *bytes)
{
	(void)name, (void)bytes;
	return fail_without(in->s);
}

static kvarc_source tar_entry(struct tar_in *in, uint64_t bytes)
{
	(void)in;
	return (kvarc_source){ .size = bytes };
}

static kvarc_ret tar_text(struct tar_in *in, uint64_t bytes, char *text, size_t capacity)
{
	(void)bytes, (void)text, (void)capacity;
	return fail_without(in->s);
}

static void tar_in_close(struct tar_in *in)
{
	(void)in;
}

#endif

/* Writes n bytes in memory as tar_put does. */
static kvarc_ret tar_put_text(struct tar_out *out, const char *name, const char *text, size_t n)
{
	const kvarc_source source = kvi_text_source(text, n);
	return tar_put(out, name, &source);
}

/* Writes an archive of the store under its key as tar_put does, and counts it. Returns also STORE
 * (missing). */
static kvarc_ret tar_put_pack(struct tar_out *out, const uint8_t id[16], uint64_t *archives,
                              uint64_t *archive_bytes)
{
	char key[KVI_PACK_KEY];
	kvarc_source source;
	kvi_pack_key(key, id);
	kvarc_ret ret = leaving_source(out->s, key, &source);
	if (ret)
		return ret;
	ret = tar_put(out, key, &source);
	++*archives;
	*archive_bytes += source.size;
	kvi_object_source_close(&source);
	return ret;
}

/* Puts that entry, an archive under its key, into the store. Returns as arrive_pack; DATA: the
 * name is no key of one. */
static kvarc_ret tar_take_pack(struct tar_in *in, const char *name, uint64_t bytes,
                               kvarc_received *n)
{
	const kvarc_source entry = tar_entry(in, bytes);
	uint8_t id[16];
	if (!kvi_pack_key_parse(id, name))
		return kvi_fail(in->s->error, KVARC_DATA,
		                "store: the stream has an entry that is no archive of a store");
	kvarc_ret ret = arrive_pack(in->s, id, &entry, n);
	return ret && in->cut
	               ? kvi_fail(in->s->error, KVARC_DATA,
	                          "store: the stream ends early; what came is kept: send the rest "
	                          "with --have")
	               : ret;
}

/* ==== Sessions of a store as a tar, and back ==== */

/*
 * The first entry, "kvarc-export", has the number of versions, so that a tar that was cut between
 * two entries is noticed. Then come archives under their keys, before the manifests of the
 * versions that need them, which have their keys in the default namespace.
 */

#define HEAD_NAME "kvarc-export"
#define HEAD_FORMAT "kvarc-export=1\nversions="
enum { HEAD_MAX = 64 };

/* ----- export ------------------------------------------------ */

struct exporting {
	struct tar_out tar;
	struct kvi_list written; /* ids of archives, 16 bytes each */
	kvarc_exported *result;
};

static bool is_written(const struct exporting *exporting, const uint8_t id[16])
{
	for (size_t i = 0; i < exporting->written.n; i++)
		if (memcmp((const uint8_t *)exporting->written.p + 16 * i, id, 16) == 0)
			return true;
	return false;
}

static kvarc_ret put_pack(struct exporting *exporting, const uint8_t id[16])
{
	struct kvarc_store *s = exporting->tar.s;
	if (is_written(exporting, id))
		return KVARC_OK;
	uint8_t *to = kvi_list_add(&exporting->written, &s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(s->error, &s->alloc);
	memcpy(to, id, 16);
	return tar_put_pack(&exporting->tar, id, &exporting->result->archives,
	                    &exporting->result->archive_bytes);
}

static kvarc_ret put_version(void *opaque, const kvarc_version_name *version,
                             const struct leaving *leaving)
{
	struct exporting *x = opaque;
	char key[KVI_KEY_MAX + 1], text[KVI_MANIFEST_MAX];
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < leaving->ids.n && !ret; i++)
		ret = put_pack(x, leaving_id(leaving, i));
	if (!ret && !kvi_version_key(key, KVI_NAMESPACE_DEFAULT, version->session, leaving->number))
		ret = kvi_fail(x->tar.s->error, KVARC_PROG, "store: a name is too long");
	if (!ret)
		ret = tar_put_text(&x->tar, key, text, kvi_manifest_write(text, &leaving->m));
	x->result->versions += !ret;
	return ret;
}

kvarc_ret kvarc_store_export(kvarc_store *s, size_t n, const kvarc_version_name *versions,
                             const kvarc_sink *sink, kvarc_exported *exported)
{
	kvarc_exported unused;
	struct exporting x = { .result = exported ? exported : &unused };
	char head[HEAD_MAX];
	uint64_t count;
	if (!s || !sink || !sink->write || (n && !versions))
		return KVARC_PROG;
	memset(x.result, 0, sizeof *x.result);
	kvarc_ret ret = export_count(s, n, &count);
	if (ret)
		return ret;
	const int bytes = snprintf(head, sizeof head, HEAD_FORMAT "%" PRIu64 "\n", count);
	ret = tar_out_open(&x.tar, s, sink);
	if (!ret)
		ret = tar_put_text(&x.tar, HEAD_NAME, head, (size_t)bytes);
	if (!ret)
		ret = export_each(s, "kvarc_store_export", n, versions, put_version, &x);
	if (!ret && x.result->versions != count)
		ret = kvi_fail(s->error, KVARC_IO,
		               "store: sessions came or went while they were exported; try again");
	ret = tar_out_close(&x.tar, ret);
	x.result->bytes = x.tar.offset;
	kvi_free(&s->alloc, x.written.p);
	return ret;
}

/* ----- import ------------------------------------------------ */

static kvarc_ret read_head(struct tar_in *tar, uint64_t *versions)
{
	char text[HEAD_MAX + 1];
	const char *name, *end;
	uint64_t bytes;
	kvarc_ret ret = tar_next(tar, &name, &bytes);
	if (!ret && strcmp(name, HEAD_NAME) != 0)
		ret = KVARC_END;
	if (ret == KVARC_END)
		return kvi_fail(tar->s->error, KVARC_DATA,
		                "store: that is no tar of 'kvarc store export'; what 'kvarc "
		                "session send' writes is for 'kvarc session receive'");
	if (!ret)
		ret = tar_text(tar, bytes, text, HEAD_MAX);
	if (ret)
		return ret;
	text[bytes] = 0;
	if (strncmp(text, HEAD_FORMAT, strlen(HEAD_FORMAT)) != 0)
		return kvi_fail(tar->s->error, KVARC_OPTIONS,
		                "store: the tar was made by a newer kvarc");
	if (!kvi_decimal(text + strlen(HEAD_FORMAT), &end, versions) || strcmp(end, "\n") != 0)
		return kvi_fail(tar->s->error, KVARC_DATA, "store: the tar is damaged");
	return KVARC_OK;
}

static kvarc_ret import_all(struct importing *importing, struct tar_in *tar)
{
	char text[KVI_MANIFEST_MAX], key[KVI_KEY_MAX + 1];
	uint64_t versions = 0, seen = 0, bytes;
	const char *name;
	kvarc_ret ret = read_head(tar, &versions);
	while (!ret && (ret = tar_next(tar, &name, &bytes)) == KVARC_OK) {
		if (strncmp(name, KVI_PACKS, strlen(KVI_PACKS)) == 0) {
			ret = tar_take_pack(tar, name, bytes, &importing->came);
			continue;
		}
		snprintf(key, sizeof key, "%s", name);
		ret = tar_text(tar, bytes, text, sizeof text);
		if (!ret)
			ret = import_version(importing, key, text, (size_t)bytes);
		seen++;
	}
	if (ret != KVARC_END)
		return ret;
	if (seen != versions)
		return kvi_fail(importing->s->error, KVARC_DATA,
		                "store: the tar has %" PRIu64 " of its %" PRIu64
		                " versions: it was cut; those that came stay",
		                seen, versions);
	return import_end(importing);
}

kvarc_ret kvarc_store_import(kvarc_store *s, const kvarc_source *source, size_t n,
                             const char *const *sessions, kvarc_imported_fn fn, void *opaque)
{
	struct importing x = { .s = s, .n = n, .sessions = sessions, .fn = fn, .opaque = opaque };
	struct tar_in tar;
	if (!s || !source || !source->read || (n && !sessions))
		return KVARC_PROG;
	kvarc_ret ret = tar_in_open(&tar, s, source);
	if (!ret)
		ret = import_all(&x, &tar);
	tar_in_close(&tar);
	return ret;
}

/* ==== A version of a session from one store to another, through a pipe ==== */

/*
 * The stream is a pax tar: archives under their keys, those that are named before those that name
 * them, and the manifest of the version, "session", at its end. A receiver has each archive as
 * soon as it has passed; so what a broken connection has brought need not be sent again.
 */

#define MANIFEST_NAME "session"

/* ----- send ------------------------------------------------ */

/* The archives that the receiver lacks, then the manifest. */
static kvarc_ret send_all(struct tar_out *out, const struct leaving *leaving, kvarc_has_fn has,
                          void *opaque, kvarc_sent *sent)
{
	char text[KVI_MANIFEST_MAX];
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < leaving->ids.n && !ret; i++) {
		const uint8_t *id = leaving_id(leaving, i);
		if (has && has(opaque, id))
			sent->left_out++;
		else
			ret = tar_put_pack(out, id, &sent->archives, &sent->archive_bytes);
	}
	return ret ? ret
	           : tar_put_text(out, MANIFEST_NAME, text, kvi_manifest_write(text, &leaving->m));
}

kvarc_ret kvarc_store_send(kvarc_store *s, const char *session, uint64_t number,
                           const kvarc_sink *sink, kvarc_has_fn has, void *opaque, kvarc_sent *sent)
{
	kvarc_sent unused;
	struct leaving v;
	struct tar_out x;
	if (!s || !sink || !sink->write)
		return KVARC_PROG;
	sent = sent ? sent : &unused;
	memset(sent, 0, sizeof *sent);
	kvarc_ret ret = leaving_find(&v, s, session, number);
	if (!ret) {
		ret = tar_out_open(&x, s, sink);
		if (!ret)
			ret = send_all(&x, &v, has, opaque, sent);
		ret = tar_out_close(&x, ret);
		sent->bytes = x.offset;
	}
	leaving_free(&v, s);
	return ret;
}

/* ----- receive ------------------------------------------------ */

static kvarc_ret receive_all(struct tar_in *in, const char *session, kvarc_received *n)
{
	char text[KVI_MANIFEST_MAX];
	const char *name;
	uint64_t bytes;
	kvarc_ret ret = KVARC_OK;
	while (!ret) {
		ret = tar_next(in, &name, &bytes);
		if (ret == KVARC_END)
			return kvi_fail(in->s->error, KVARC_DATA,
			                "store: the stream ends before its version; what has come "
			                "stays: send the rest with --have");
		if (ret)
			return ret;
		if (strcmp(name, MANIFEST_NAME) == 0) {
			ret = tar_text(in, bytes, text, sizeof text);
			return ret ? ret
			           : kvi_arrive_version(in->s, session, text, (size_t)bytes, n);
		}
		ret = tar_take_pack(in, name, bytes, n);
	}
	return ret;
}

kvarc_ret kvarc_store_receive(kvarc_store *s, const char *session, const kvarc_source *source,
                              kvarc_received *received)
{
	kvarc_received unused;
	struct tar_in x;
	if (!s || !source || !source->read)
		return KVARC_PROG;
	received = received ? received : &unused;
	memset(received, 0, sizeof *received);
	kvarc_ret ret = kvi_session_check(s, session);
	if (ret)
		return ret;
	ret = tar_in_open(&x, s, source);
	if (!ret)
		ret = receive_all(&x, session, received);
	tar_in_close(&x);
	return ret;
}

/* ----- what is here ------------------------------------------------ */

struct having {
	struct kvarc_store *s;
	kvarc_has_fn fn;
	void *opaque;
	struct kvi_list damaged; /* ids of archives of which something is known to be damaged */
};

static kvarc_ret add_damaged(struct having *having, const uint8_t id[16])
{
	if (kvi_protocol_has(&having->damaged, id))
		return KVARC_OK;
	uint8_t *to = kvi_list_add(&having->damaged, &having->s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(having->s->error, &having->s->alloc);
	memcpy(to, id, 16);
	return KVARC_OK;
}

static kvarc_ret see_broken(void *opaque, const struct kvi_index_pack *pack)
{
	return pack->broken ? add_damaged(opaque, pack->id) : KVARC_OK;
}

static kvarc_ret see_damaged(void *opaque, const struct kvi_index_row *row)
{
	return add_damaged(opaque, row->id);
}

static int have_object(void *opaque, const struct kvi_object *object)
{
	struct having *h = opaque;
	uint8_t id[16];
	return kvi_pack_key_parse(id, object->key) && !kvi_protocol_has(&h->damaged, id)
	               ? h->fn(h->opaque, id)
	               : 0;
}

kvarc_ret kvarc_store_have(kvarc_store *s, kvarc_has_fn fn, void *opaque)
{
	struct having h = { .s = s, .fn = fn, .opaque = opaque };
	if (!s || !fn)
		return KVARC_PROG;
	kvarc_ret ret = kvi_index_packs(s->index, false, see_broken, &h);
	if (!ret)
		ret = kvi_index_doubts(s->index, see_damaged, &h);
	if (!ret)
		ret = s->backend->calls->list(s->backend, KVI_PACKS, have_object, &h, s->error);
	kvi_free(&s->alloc, h.damaged.p);
	return ret;
}
