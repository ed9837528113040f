/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_transfer.c - a version of a session from one store to another, through a pipe
 *
 * The stream is a pax tar: archives under their keys, those that are named before those that name
 * them, and the manifest of the version, "session", at its end. A receiver has each archive as soon
 * as it has passed; so what a broken connection has brought need not be sent again.
 */
#include "config.h"

#include "store_state.h"

#ifdef HAVE_LIBARCHIVE

#include <string.h>

#include <archive.h>
#include <archive_entry.h>

#include "reader/reader_internal.h"

#define MANIFEST_NAME "session"
enum { BLOCK_BYTES = 1 << 18 };

/* ----- send ------------------------------------------------ */

struct sending {
	struct kvarc_store *s;
	const kvarc_sink *sink;
	uint64_t offset;
	struct archive *tar;
	uint8_t *block;
};

static la_ssize_t write_block(struct archive *tar, void *opaque, const void *p, size_t n)
{
	struct sending *x = opaque;
	(void)tar;
	if (x->sink->write(x->sink->opaque, p, n, x->offset) != 0)
		return -1;
	x->offset += n;
	return (la_ssize_t)n;
}

static kvarc_ret fail_tar(struct kvarc_store *s, struct archive *tar, const char *what)
{
	const char *why = tar ? archive_error_string(tar) : NULL;
	return kvi_fail(s->error, KVARC_IO, "store: %s the stream: %s", what,
	                why ? why : "the pipe was closed or is full");
}

/* One entry of known size. */
static kvarc_ret send_entry(struct sending *x, const char *name, const kvarc_source *source)
{
	struct archive_entry *entry = archive_entry_new();
	kvarc_ret ret = KVARC_OK;
	if (!entry)
		return kvi_fail(x->s->error, KVARC_MEM, "store: no memory");
	archive_entry_set_pathname(entry, name);
	archive_entry_set_size(entry, (la_int64_t)source->size);
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 0600);
	if (archive_write_header(x->tar, entry) != ARCHIVE_OK)
		ret = fail_tar(x->s, x->tar, "writing");
	archive_entry_free(entry);
	for (uint64_t at = 0; !ret && at < source->size;) {
		uint64_t left = source->size - at;
		int64_t n = source->read(source->opaque, x->block,
		                         left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES, at);
		if (n <= 0)
			ret = kvi_fail(x->s->error, KVARC_IO, "store: %s cannot be read", name);
		else if (archive_write_data(x->tar, x->block, (size_t)n) != n)
			ret = fail_tar(x->s, x->tar, "writing");
		else
			at += (uint64_t)n;
	}
	return ret;
}

static kvarc_ret send_pack(struct sending *x, const uint8_t id[16], kvarc_sent *sent)
{
	char key[KVI_PACK_KEY];
	kvarc_source source;
	kvi_pack_key(key, id);
	kvarc_ret ret = kvi_object_source(&source, x->s->backend, key, x->s->error);
	if (ret == KVARC_END)
		return kvi_fail(x->s->error, KVARC_STORE, "store: %s is missing", key);
	if (ret)
		return ret;
	ret = send_entry(x, key, &source);
	sent->archives++;
	sent->archive_bytes += source.size;
	kvi_object_source_close(&source);
	return ret;
}

static int64_t read_text(void *opaque, void *buf, size_t n, uint64_t offset)
{
	memcpy(buf, (const char *)opaque + offset, n);
	return (int64_t)n;
}

/* The archives that the receiver lacks, the version's own one last, then its manifest. */
static kvarc_ret send_all(struct sending *x, struct kvi_manifest *m, const struct kvi_list *ids,
                          kvarc_has_fn has, void *opaque, kvarc_sent *sent)
{
	char text[KVI_MANIFEST_MAX];
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < ids->n && !ret; i++) {
		/* ids begin with the version's own archive */
		const uint8_t *id = (const uint8_t *)ids->p + 16 * ((i + 1) % ids->n);
		if (has && has(opaque, id))
			sent->left_out++;
		else
			ret = send_pack(x, id, sent);
	}
	m->parent[0] = 0;
	m->parent_number = 0;
	kvarc_source source = { .read = read_text,
		                .opaque = text,
		                .size = kvi_manifest_write(text, m) };
	return ret ? ret : send_entry(x, MANIFEST_NAME, &source);
}

kvarc_ret kvarc_store_send(kvarc_store *s, const char *session, uint64_t number,
                           const kvarc_sink *sink, kvarc_has_fn has, void *opaque, kvarc_sent *sent)
{
	kvarc_sent unused;
	struct kvi_manifest m;
	struct kvi_list ids = { 0 };
	uint64_t unreadable = 0;
	if (!s || !sink || !sink->write)
		return KVARC_PROG;
	sent = sent ? sent : &unused;
	memset(sent, 0, sizeof *sent);
	struct sending x = { .s = s, .sink = sink };
	kvarc_ret ret = kvi_session_check(s, "kvarc_store_send", session);
	if (!ret)
		ret = kvi_version_read(s, session, &number, &m);
	if (ret == KVARC_END)
		return kvi_fail(s->error, ret, "there is no such session or version");
	if (!ret)
		ret = kvi_index_refresh(s, s->index, NULL, NULL, &unreadable);
	if (!ret)
		ret = kvi_protocol_needs(s, s->index, &m.needs, &ids);
	if (ret == KVARC_END)
		ret = kvi_fail(s->error, KVARC_STORE, "store: the version needs what is missing");
	x.block = ret ? NULL : kvi_malloc(&s->alloc, BLOCK_BYTES);
	if (!ret && !x.block)
		ret = kvi_fail_alloc(s->error, &s->alloc);
	x.tar = ret ? NULL : archive_write_new();
	if (!ret && (!x.tar || archive_write_set_format_pax_restricted(x.tar) != ARCHIVE_OK ||
	             archive_write_set_bytes_per_block(x.tar, BLOCK_BYTES) != ARCHIVE_OK ||
	             archive_write_set_bytes_in_last_block(x.tar, 1) != ARCHIVE_OK ||
	             archive_write_open(x.tar, &x, NULL, write_block, NULL) != ARCHIVE_OK))
		ret = fail_tar(s, x.tar, "writing");
	if (!ret)
		ret = send_all(&x, &m, &ids, has, opaque, sent);
	if (!ret && archive_write_close(x.tar) != ARCHIVE_OK)
		ret = fail_tar(s, x.tar, "writing");
	if (x.tar)
		(void)archive_write_free(x.tar);
	kvi_free(&s->alloc, x.block);
	kvi_free(&s->alloc, ids.p);
	sent->bytes = x.offset;
	return ret;
}

/* ----- receive ------------------------------------------------ */

struct receiving {
	struct kvarc_store *s;
	const kvarc_source *source;
	uint64_t offset;
	struct archive *tar;
	uint8_t *block;
	uint64_t entry_offset; /* of the entry that a backend reads */
	kvarc_received *received;
};

static la_ssize_t read_block(struct archive *tar, void *opaque, const void **p)
{
	struct receiving *x = opaque;
	(void)tar;
	int64_t n = x->source->read(x->source->opaque, x->block, BLOCK_BYTES, x->offset);
	*p = x->block;
	x->offset += n > 0 ? (uint64_t)n : 0;
	return (la_ssize_t)n;
}

/* kvarc_source.read of an entry, which passes once. */
static int64_t read_entry(void *opaque, void *buf, size_t n, uint64_t offset)
{
	struct receiving *x = opaque;
	if (offset != x->entry_offset)
		return -1;
	la_ssize_t got = archive_read_data(x->tar, buf, n);
	x->entry_offset += got > 0 ? (uint64_t)got : 0;
	return (int64_t)got;
}

/* Whether an archive that came is the one that its key says, in all frames: a tar has no checks.
 * One that is damaged goes again; one that cannot be read now stays, as others may have found
 * it. */
static kvarc_ret confirm_pack(struct receiving *x, const char *key, const uint8_t id[16])
{
	struct kvi_open_pack open;
	kvarc_info info;
	kvarc_ret ret = kvi_pack_open(x->s, &open, id, NULL);
	if (!ret) {
		ret = kvi_reader_check_frames(open.r);
		if (!ret)
			ret = kvarc_reader_get_info(open.r, &info);
		if (!ret && memcmp(info.file_id, id, 16) != 0)
			ret = KVARC_DATA;
		if (ret)
			kvi_fail(x->s->error, ret, "store: %s: %s", key, open.error.text);
		kvi_pack_close(&open);
	} else if (ret == KVARC_AUTH) {
		ret = kvi_pack_check_locked(x->s, id);
	}
	if (ret != KVARC_DATA && ret != KVARC_FORMAT)
		return ret;
	(void)x->s->backend->calls->remove(x->s->backend, key, NULL);
	return kvi_fail(x->s->error, KVARC_DATA,
	                "store: %s in the stream is damaged; send it again", key);
}

static kvarc_ret receive_pack(struct receiving *x, const char *key, uint64_t bytes)
{
	uint8_t id[16];
	kvarc_source entry = { .read = read_entry, .opaque = x, .size = bytes };
	if (!kvi_pack_key_parse(id, key))
		return kvi_fail(x->s->error, KVARC_DATA,
		                "store: the stream has an entry that is no archive of a store");
	x->entry_offset = 0;
	kvarc_ret ret = x->s->backend->calls->put(x->s->backend, key, &entry, x->s->error);
	if (ret == KVARC_END) {
		x->received->left_out++;
		return KVARC_OK;
	}
	if (!ret)
		ret = confirm_pack(x, key, id);
	x->received->archives += !ret;
	x->received->archive_bytes += ret ? 0 : bytes;
	return ret;
}

/* As a save does it: gc may be about to remove what the version names (docs/store.md). */
static kvarc_ret publish(struct receiving *x, const char *session, const struct kvi_manifest *m,
                         const struct kvi_list *ids)
{
	struct kvi_backend *b = x->s->backend;
	char key[KVI_KEY_MAX + 1];
	uint64_t number;
	kvarc_ret ret = kvi_version_put(x->s, session, m, &number);
	if (ret)
		return ret;
	ret = kvi_protocol_confirm(x->s, ids);
	if (!ret)
		x->received->version = number;
	else if (kvi_version_key(key, x->s->name_space, session, number))
		(void)b->calls->remove(b, key, NULL);
	return ret == KVARC_END
	               ? kvi_fail(x->s->error, KVARC_STORE,
	                          "store: archives of the version are being removed; send it again")
	               : ret;
}

/* The version that the stream ends with. */
static kvarc_ret receive_version(struct receiving *x, uint64_t bytes, const char *session)
{
	char text[KVI_MANIFEST_MAX];
	struct kvi_manifest m;
	struct kvi_list ids = { 0 };
	uint64_t unreadable = 0;
	if (bytes > sizeof text ||
	    archive_read_data(x->tar, text, sizeof text) != (la_ssize_t)bytes)
		return fail_tar(x->s, x->tar, "reading");
	kvarc_ret ret = kvi_manifest_parse(&m, text, (size_t)bytes);
	if (ret)
		return kvi_fail(x->s->error, ret, "store: the version in the stream is damaged");
	ret = kvi_index_refresh(x->s, x->s->index, NULL, NULL, &unreadable);
	if (!ret)
		ret = kvi_protocol_needs(x->s, x->s->index, &m.needs, &ids);
	if (ret == KVARC_END)
		ret = kvi_fail(
			x->s->error, KVARC_STORE,
			"store: the version names archives that are neither in the stream nor "
			"here; send it without --have");
	if (!ret)
		ret = publish(x, session, &m, &ids);
	kvi_free(&x->s->alloc, ids.p);
	return ret;
}

static kvarc_ret receive_all(struct receiving *x, const char *session)
{
	struct archive_entry *entry;
	kvarc_ret ret = KVARC_OK;
	while (!ret) {
		int got = archive_read_next_header(x->tar, &entry);
		if (got == ARCHIVE_EOF)
			return kvi_fail(x->s->error, KVARC_DATA,
			                "store: the stream ends before its version; what has "
			                "come stays: send the rest with --have");
		if (got != ARCHIVE_OK)
			return fail_tar(x->s, x->tar, "reading");
		const char *name = archive_entry_pathname(entry);
		int64_t bytes = archive_entry_size(entry);
		if (!name || bytes < 0 || archive_entry_filetype(entry) != AE_IFREG)
			return kvi_fail(x->s->error, KVARC_DATA,
			                "store: the stream has an unknown entry");
		if (strcmp(name, MANIFEST_NAME) == 0)
			return receive_version(x, (uint64_t)bytes, session);
		ret = receive_pack(x, name, (uint64_t)bytes);
	}
	return ret;
}

kvarc_ret kvarc_store_receive(kvarc_store *s, const char *session, const kvarc_source *source,
                              kvarc_received *received)
{
	kvarc_received unused;
	if (!s || !source || !source->read)
		return KVARC_PROG;
	received = received ? received : &unused;
	memset(received, 0, sizeof *received);
	struct receiving x = { .s = s, .source = source, .received = received };
	kvarc_ret ret = kvi_session_check(s, "kvarc_store_receive", session);
	if (ret)
		return ret;
	x.block = kvi_malloc(&s->alloc, BLOCK_BYTES);
	if (!x.block)
		return kvi_fail_alloc(s->error, &s->alloc);
	x.tar = archive_read_new();
	if (!x.tar || archive_read_support_format_tar(x.tar) != ARCHIVE_OK ||
	    archive_read_open(x.tar, &x, NULL, read_block, NULL) != ARCHIVE_OK)
		ret = fail_tar(s, x.tar, "reading");
	if (!ret)
		ret = receive_all(&x, session);
	if (x.tar)
		(void)archive_read_free(x.tar);
	kvi_free(&s->alloc, x.block);
	return ret;
}

#else

kvarc_ret kvarc_store_send(kvarc_store *s, const char *session, uint64_t number,
                           const kvarc_sink *sink, kvarc_has_fn has, void *opaque, kvarc_sent *sent)
{
	(void)session;
	(void)number;
	(void)sink;
	(void)has;
	(void)opaque;
	(void)sent;
	return s ? kvi_fail(s->error, KVARC_OPTIONS, "store: kvarc was built without libarchive")
	         : KVARC_PROG;
}

kvarc_ret kvarc_store_receive(kvarc_store *s, const char *session, const kvarc_source *source,
                              kvarc_received *received)
{
	(void)session;
	(void)source;
	(void)received;
	return s ? kvi_fail(s->error, KVARC_OPTIONS, "store: kvarc was built without libarchive")
	         : KVARC_PROG;
}

#endif

/* ----- what is here ------------------------------------------------ */

struct having {
	kvarc_has_fn fn;
	void *opaque;
};

static int have_object(void *opaque, const struct kvi_object *object)
{
	struct having *h = opaque;
	uint8_t id[16];
	return kvi_pack_key_parse(id, object->key) ? h->fn(h->opaque, id) : 0;
}

kvarc_ret kvarc_store_have(kvarc_store *s, kvarc_has_fn fn, void *opaque)
{
	struct having h = { fn, opaque };
	if (!s || !fn)
		return KVARC_PROG;
	return s->backend->calls->list(s->backend, KVI_PACKS, have_object, &h, s->error);
}
