/* SPDX-License-Identifier: BSD-3-Clause */
/* tar_stream.c - pax tars of objects of a store, through pipes, in both directions */
#include "config.h"

#include "tar_stream.h"

#include <string.h>

#include "transfer_steps.h"
#include "util/libarchive.h"

#ifdef HAVE_LIBARCHIVE

enum { BLOCK_BYTES = 1 << 18 };

static kvarc_ret fail_tar(struct kvarc_store *s, struct archive *tar, const char *what)
{
	const char *why = tar ? archive_error_string(tar) : NULL;
	return kvi_fail(s->error, KVARC_IO, "store: %s the stream: %s", what,
	                why ? why : "the pipe was closed or is full");
}

static kvarc_ret make_block(struct kvarc_store *s, uint8_t **block)
{
	*block = kvi_malloc(&s->alloc, BLOCK_BYTES);
	return *block ? KVARC_OK : kvi_fail_alloc(s->error, &s->alloc);
}

/* ----- out ------------------------------------------------ */

static la_ssize_t write_block(struct archive *tar, void *opaque, const void *p, size_t n)
{
	struct kvi_tar_out *x = opaque;
	(void)tar;
	if (x->sink->write(x->sink->opaque, p, n, x->offset) != 0)
		return -1;
	x->offset += n;
	return (la_ssize_t)n;
}

kvarc_ret kvi_tar_out_open(struct kvi_tar_out *x, struct kvarc_store *s, const kvarc_sink *sink)
{
	*x = (struct kvi_tar_out){ .s = s, .sink = sink };
	if (!kvi_libarchive(s->error))
		return KVARC_OPTIONS;
	kvarc_ret ret = make_block(s, &x->block);
	if (ret)
		return ret;
	x->tar = archive_write_new();
	if (!x->tar || archive_write_set_format_pax_restricted(x->tar) != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(x->tar, BLOCK_BYTES) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(x->tar, 1) != ARCHIVE_OK ||
	    archive_write_open(x->tar, x, NULL, write_block, NULL) != ARCHIVE_OK)
		return fail_tar(s, x->tar, "writing");
	return KVARC_OK;
}

kvarc_ret kvi_tar_put(struct kvi_tar_out *x, const char *name, const kvarc_source *source)
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

kvarc_ret kvi_tar_out_close(struct kvi_tar_out *x, kvarc_ret ret)
{
	if (!ret && archive_write_close(x->tar) != ARCHIVE_OK)
		ret = fail_tar(x->s, x->tar, "writing");
	if (x->tar)
		(void)archive_write_free(x->tar);
	kvi_free(&x->s->alloc, x->block);
	x->tar = NULL;
	x->block = NULL;
	return ret;
}

/* ----- in ------------------------------------------------ */

static la_ssize_t read_block(struct archive *tar, void *opaque, const void **p)
{
	struct kvi_tar_in *x = opaque;
	(void)tar;
	int64_t n = x->source->read(x->source->opaque, x->block, BLOCK_BYTES, x->offset);
	*p = x->block;
	x->offset += n > 0 ? (uint64_t)n : 0;
	return (la_ssize_t)n;
}

static kvarc_ret fail_in(struct kvi_tar_in *x)
{
	return x->offset ? fail_tar(x->s, x->tar, "reading")
	                 : kvi_fail(x->s->error, KVARC_DATA,
	                            "store: the stream is empty: did the sender fail?");
}

kvarc_ret kvi_tar_in_open(struct kvi_tar_in *x, struct kvarc_store *s, const kvarc_source *source)
{
	*x = (struct kvi_tar_in){ .s = s, .source = source };
	if (!kvi_libarchive(s->error))
		return KVARC_OPTIONS;
	kvarc_ret ret = make_block(s, &x->block);
	if (ret)
		return ret;
	x->tar = archive_read_new();
	if (!x->tar || archive_read_support_format_tar(x->tar) != ARCHIVE_OK ||
	    archive_read_open(x->tar, x, NULL, read_block, NULL) != ARCHIVE_OK)
		return fail_in(x);
	return KVARC_OK;
}

kvarc_ret kvi_tar_next(struct kvi_tar_in *x, const char **name, uint64_t *bytes)
{
	struct archive_entry *entry;
	int got = archive_read_next_header(x->tar, &entry);
	if (got == ARCHIVE_EOF)
		return KVARC_END;
	if (got != ARCHIVE_OK)
		return fail_in(x);
	const int64_t size = archive_entry_size(entry);
	*name = archive_entry_pathname(entry);
	/* Holes would be written as zeros: a few bytes fill a disk. */
	if (!*name || size < 0 || archive_entry_filetype(entry) != AE_IFREG ||
	    archive_entry_sparse_count(entry) > 0)
		return kvi_fail(x->s->error, KVARC_DATA,
		                "store: the stream has an unknown entry");
	*bytes = (uint64_t)size;
	x->entry_offset = 0;
	return KVARC_OK;
}

static int64_t read_entry(void *opaque, void *buf, size_t n, uint64_t offset)
{
	struct kvi_tar_in *x = opaque;
	if (offset != x->entry_offset)
		return -1;
	la_ssize_t got = archive_read_data(x->tar, buf, n);
	x->entry_offset += got > 0 ? (uint64_t)got : 0;
	x->cut |= got <= 0;
	return (int64_t)got;
}

kvarc_source kvi_tar_entry(struct kvi_tar_in *x, uint64_t bytes)
{
	return (kvarc_source){ .read = read_entry, .opaque = x, .size = bytes };
}

kvarc_ret kvi_tar_text(struct kvi_tar_in *x, uint64_t bytes, char *text, size_t capacity)
{
	if (bytes > capacity)
		return kvi_fail(x->s->error, KVARC_DATA,
		                "store: the stream has an entry that is too large");
	if (archive_read_data(x->tar, text, (size_t)bytes) != (la_ssize_t)bytes)
		return fail_tar(x->s, x->tar, "reading");
	return KVARC_OK;
}

void kvi_tar_in_close(struct kvi_tar_in *x)
{
	if (x->tar)
		(void)archive_read_free(x->tar);
	kvi_free(&x->s->alloc, x->block);
	x->tar = NULL;
	x->block = NULL;
}

#else

static kvarc_ret fail_without(struct kvarc_store *s)
{
	(void)kvi_libarchive(s->error);
	return KVARC_OPTIONS;
}

kvarc_ret kvi_tar_out_open(struct kvi_tar_out *x, struct kvarc_store *s, const kvarc_sink *sink)
{
	*x = (struct kvi_tar_out){ .s = s, .sink = sink };
	return fail_without(s);
}

kvarc_ret kvi_tar_put(struct kvi_tar_out *x, const char *name, const kvarc_source *source)
{
	(void)name, (void)source;
	return fail_without(x->s);
}

kvarc_ret kvi_tar_out_close(struct kvi_tar_out *x, kvarc_ret ret)
{
	(void)x;
	return ret;
}

kvarc_ret kvi_tar_in_open(struct kvi_tar_in *x, struct kvarc_store *s, const kvarc_source *source)
{
	*x = (struct kvi_tar_in){ .s = s, .source = source };
	return fail_without(s);
}

kvarc_ret kvi_tar_next(struct kvi_tar_in *x, const char **name, uint64_t *bytes)
{
	(void)name, (void)bytes;
	return fail_without(x->s);
}

kvarc_source kvi_tar_entry(struct kvi_tar_in *x, uint64_t bytes)
{
	(void)x;
	return (kvarc_source){ .size = bytes };
}

kvarc_ret kvi_tar_text(struct kvi_tar_in *x, uint64_t bytes, char *text, size_t capacity)
{
	(void)bytes, (void)text, (void)capacity;
	return fail_without(x->s);
}

void kvi_tar_in_close(struct kvi_tar_in *x)
{
	(void)x;
}

#endif

kvarc_ret kvi_tar_put_text(struct kvi_tar_out *x, const char *name, const char *text, size_t n)
{
	const kvarc_source source = kvi_text_source(text, n);
	return kvi_tar_put(x, name, &source);
}

kvarc_ret kvi_tar_put_pack(struct kvi_tar_out *x, const uint8_t id[16], uint64_t *archives,
                           uint64_t *archive_bytes)
{
	char key[KVI_PACK_KEY];
	kvarc_source source;
	kvi_pack_key(key, id);
	kvarc_ret ret = kvi_leaving_source(x->s, key, &source);
	if (ret)
		return ret;
	ret = kvi_tar_put(x, key, &source);
	++*archives;
	*archive_bytes += source.size;
	kvi_object_source_close(&source);
	return ret;
}

kvarc_ret kvi_tar_take_pack(struct kvi_tar_in *x, const char *name, uint64_t bytes,
                            kvarc_received *n)
{
	const kvarc_source entry = kvi_tar_entry(x, bytes);
	uint8_t id[16];
	if (!kvi_pack_key_parse(id, name))
		return kvi_fail(x->s->error, KVARC_DATA,
		                "store: the stream has an entry that is no archive of a store");
	kvarc_ret ret = kvi_arrive_pack(x->s, id, &entry, n);
	return ret && x->cut
	               ? kvi_fail(x->s->error, KVARC_DATA,
	                          "store: the stream ends early; what came is kept: send the rest "
	                          "with --have")
	               : ret;
}
