/* SPDX-License-Identifier: BSD-3-Clause */
/* import.c - looks at files and containers and finds the caches in them */
#include "config.h"

#include "import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "import_internal.h"
#include "member_names.h"
#include "format/geometry_check.h"
#include "parse/members.h"
#include "util/arguments.h"
#include "util/ckd.h"
#include "util/error.h"
#include "util/libarchive.h"
#include "util/list.h"

/* ==== Heads and RoPEs of an import as an earlier archive of the same cache has them ==== */

/* Heads, channels and RoPE are a matter of how an import was made; the rest is of the cache. */
static bool same_tensor(const kvarc_tensor *tensor, const kvarc_tensor *b)
{
	return tensor->layer == b->layer && tensor->kind == b->kind && tensor->role == b->role &&
	       tensor->dtype == b->dtype && tensor->source_type == b->source_type &&
	       tensor->track == b->track && tensor->first_head == 0 && b->first_head == 0 &&
	       ((tensor->flags ^ b->flags) & KVARC_TENSOR_HADAMARD) == 0 &&
	       kvi_tensor_width(tensor) == kvi_tensor_width(b);
}

static bool fits(const kvarc_geometry *own, const kvarc_geometry *geometry)
{
	if (own->n_tracks != geometry->n_tracks || own->n_tensors != geometry->n_tensors ||
	    geometry->n_ropes > KVI_IMPORT_ROPES_MAX)
		return false;
	for (size_t i = 0; i < geometry->n_tracks; i++)
		if (own->tracks[i].kind != geometry->tracks[i].kind)
			return false;
	for (size_t i = 0; i < geometry->n_ropes; i++)
		if (geometry->ropes[i].rotary > 2 * KVI_ROPE_PAIRS_MAX)
			return false;
	for (size_t i = 0; i < geometry->n_tensors; i++)
		if (!same_tensor(&own->tensors[i], &geometry->tensors[i]))
			return false;
	return true;
}

/* Keys of an identity that chain values depend on (spec 5.3), and that say of which model a cache
 * is. */
static const char *const model_keys[] = { "adapter", "model", "quantization", "tokenizer",
	                                  "weights" };
enum { MODEL_KEYS = sizeof model_keys / sizeof *model_keys };

static const char *disown_identity(kvarc_import *im)
{
	const char *had = NULL;
	for (size_t i = 0; i < MODEL_KEYS; i++)
		if (im->adopted >> i & 1) {
			had = model_keys[i];
			(void)!kvi_identity_set(&im->identity, &im->alloc, had, "");
		}
	im->adopted = 0;
	return had;
}

/* Returns a key in which the import has another value of its own; NULL: none. */
static const char *adopt_identity(kvarc_import *im, const kvarc_reader *r)
{
	const char *differs = NULL;
	for (size_t i = 0; i < MODEL_KEYS; i++) {
		const char *value = kvarc_reader_identity(r, model_keys[i]);
		const char *own = kvi_identity_get(&im->identity, model_keys[i]);
		if (!own && !strcmp(model_keys[i], "model"))
			own = kvarc_import_model(im);
		if (own && *own) {
			if (!value || strcmp(value, own) != 0)
				differs = model_keys[i];
		} else if (value && kvi_identity_set(&im->identity, &im->alloc, model_keys[i],
		                                     value) == KVARC_OK) {
			im->adopted |= 1u << i;
		}
	}
	return differs;
}

const char *kvi_import_adopt(kvarc_import *im, const kvarc_reader *r, bool heads)
{
	const kvarc_geometry *geometry = r ? kvarc_reader_geometry(r) : NULL;
	if (!r)
		return disown_identity(im);
	if (!fits(&im->geometry, geometry))
		return NULL;
	for (size_t i = 0; heads && i < geometry->n_ropes; i++) {
		struct kvi_rope *rope = &im->ropes[i];
		rope->pairing = geometry->ropes[i].pairing;
		rope->rotary = geometry->ropes[i].rotary;
		memcpy(rope->freq, geometry->ropes[i].freq, rope->rotary / 2 * sizeof *rope->freq);
		im->pub_ropes[i] = (kvarc_rope){ .pairing = rope->pairing,
			                         .rotary = rope->rotary,
			                         .freq = rope->freq };
	}
	if (!heads)
		return adopt_identity(im, r);
	im->n_ropes = im->geometry.n_ropes = geometry->n_ropes;
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		kvarc_tensor *to[2] = { &im->tensors[i].pub, &im->pub_tensors[i] };
		for (int k = 0; k < 2; k++) {
			to[k]->heads = geometry->tensors[i].heads;
			to[k]->channels = geometry->tensors[i].channels;
			to[k]->total_heads = geometry->tensors[i].total_heads;
			to[k]->rope = geometry->tensors[i].rope;
			to[k]->flags = geometry->tensors[i].flags;
			to[k]->belongs_to = geometry->tensors[i].belongs_to;
			to[k]->group = geometry->tensors[i].group;
		}
	}
	return adopt_identity(im, r);
}

/* ==== Whether an archive gives the files of an import back ==== */

enum { BLOCK_BYTES = 1 << 18 };

struct import_comparing {
	const kvarc_import *im;
	struct compared_item *items; /* by item of the import */
	size_t n;                    /* items of the archive */
	uint8_t *block;
	bool differs, unreadable;
};

/* A file, and how many bytes of it came. */
struct compared_item {
	struct import_comparing *c;
	const kvarc_source *file;
	uint64_t bytes;
};

/* Bytes of the file, in the block or in memory; NULL: they cannot be read. */
static const uint8_t *read_file(struct compared_item *item, size_t n, uint64_t offset)
{
	if (item->file->memory)
		return (const uint8_t *)item->file->memory + offset;
	for (size_t got = 0; got < n;) {
		int64_t k = item->file->read(item->file->opaque, item->c->block + got, n - got,
		                             offset + got);
		if (k <= 0)
			return NULL;
		got += (size_t)k;
	}
	return item->c->block;
}

static int compare_bytes(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct compared_item *x = opaque;
	struct import_comparing *c = x->c;
	c->differs |= offset > x->file->size || bytes > x->file->size - offset;
	for (size_t at = 0; at < bytes && !c->differs && !c->unreadable;) {
		const size_t n = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
		const uint8_t *was = read_file(x, n, offset + at);
		c->unreadable = !was;
		c->differs = was && memcmp(was, (const uint8_t *)buf + at, n) != 0;
		at += n;
	}
	x->bytes += bytes;
	return c->differs || c->unreadable ? -1 : 0;
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct import_comparing *c = opaque;
	c->n++;
	c->differs |= item->index >= c->im->n_items ||
	              item->kind != c->im->items[item->index].kind ||
	              item->bytes != c->im->items[item->index].src.size;
	if (c->differs)
		return -1;
	struct compared_item *x = &c->items[item->index];
	*x = (struct compared_item){ .c = c, .file = &c->im->items[item->index].src };
	sink->write = compare_bytes;
	sink->opaque = x;
	return 0;
}

/* Whether every file came as a whole. */
static bool is_complete(const struct import_comparing *comparing)
{
	bool complete = comparing->n == comparing->im->n_items;
	for (size_t i = 0; i < comparing->im->n_items && complete; i++)
		complete = comparing->items[i].file &&
		           comparing->items[i].bytes >= comparing->items[i].file->size;
	return complete;
}

kvarc_ret kvi_import_compare(const kvarc_import *im, kvarc_reader *r, kvarc_error *error)
{
	struct import_comparing c = { .im = im };
	kvarc_ret ret = KVARC_OK;
	c.items = kvi_calloc(&im->alloc, im->n_items + 1, sizeof *c.items);
	c.block = kvi_malloc(&im->alloc, BLOCK_BYTES);
	if (!c.items || !c.block)
		ret = kvi_fail_alloc(error, &im->alloc);
	if (!ret)
		ret = kvarc_unpack(r, open_item, &c);
	if (c.unreadable)
		ret = kvi_fail(error, KVARC_IO, "reading the file that is compared failed");
	else if (c.differs || (!ret && !is_complete(&c)))
		ret = KVARC_END;
	kvi_free(&im->alloc, c.items);
	kvi_free(&im->alloc, c.block);
	return ret;
}

/* ==== The files of a container as items of their own ==== */

/* A member, with a name of its own. */
struct listed_member {
	struct kvi_member m;
	char *name; /* NULL: as in struct kvi_member */
};

/* The members of a container by offset; they do not overlap. */
struct container_source {
	const char *what; /* "zip", "tar" */
	struct listed_member *list;
	size_t n, cap;
	size_t packed; /* members that are not stored as they are */
};

/* Limit of all members, in multiples of the container: more than deflate can reach. */
#define EXPANSION_MAX ((uint64_t)1100)

static bool is_file(const struct listed_member *member)
{
	return member->m.kind == KVI_MEMBER_STORED || member->m.kind == KVI_MEMBER_DEFLATED;
}

#ifdef HAVE_LIBARCHIVE

enum { BUFFER_BYTES = 64 << 10 };

/* The source as libarchive wants it. */
struct feed {
	const kvarc_source *src;
	uint64_t at;
	uint8_t buf[BUFFER_BYTES];
};

static la_ssize_t feed_read(struct archive *archive, void *opaque, const void **buf)
{
	struct feed *f = opaque;
	*buf = f->buf;
	if (f->at >= f->src->size)
		return 0;
	int64_t got = f->src->read(f->src->opaque, f->buf, sizeof f->buf, f->at);
	if (got < 0 || got > BUFFER_BYTES) {
		archive_set_error(archive, EIO, "read failed");
		return ARCHIVE_FATAL;
	}
	f->at += (uint64_t)got;
	return got;
}

static la_int64_t feed_skip(struct archive *archive, void *opaque, la_int64_t n)
{
	struct feed *f = opaque;
	(void)archive;
	uint64_t left = f->at < f->src->size ? f->src->size - f->at : 0;
	uint64_t k = n < 0 ? 0 : (uint64_t)n < left ? (uint64_t)n : left;
	f->at += k;
	return (la_int64_t)k;
}

static la_int64_t feed_seek(struct archive *archive, void *opaque, la_int64_t offset, int whence)
{
	struct feed *f = opaque;
	int64_t base = whence == SEEK_SET   ? 0
	               : whence == SEEK_CUR ? (int64_t)f->at
	                                    : (int64_t)f->src->size;
	if (__builtin_add_overflow(base, offset, &base) || base < 0) {
		archive_set_error(archive, EINVAL, "bad seek");
		return ARCHIVE_FATAL;
	}
	f->at = (uint64_t)base;
	return base;
}

/* A file without a name in temp_dir. */
static int open_spool(const char *dir)
{
	int fd = -1;
	char path[4096];
#ifdef O_TMPFILE
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
#endif
	if (fd < 0 && snprintf(path, sizeof path, "%s/kvarc-XXXXXX", dir) < (int)sizeof path) {
		fd = mkstemp(path);
		if (fd >= 0)
			(void)unlink(path);
	}
	return fd;
}

static int64_t spool_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	/* the descriptor is the pointer's value: items move in memory */
	return pread((int)(intptr_t)opaque, buf, bytes, (off_t)offset);
}

static bool write_all(int fd, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t k = write(fd, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

static kvarc_ret bad_archive(kvarc_import *im, struct archive *archive)
{
	/* The library's own text may quote the archive: it is not passed on. */
	if (archive_errno(archive) == EIO)
		return KVARC_IO;
	return kvi_fail(im->error, KVARC_DATA,
	                "a member of the zip file is damaged; without "
	                "--members the file is packed as it is");
}

/* Copies the current member out, which says how long it is. */
static kvarc_ret spool_member(kvarc_import *im, struct archive *archive, struct kvi_imp_item *item,
                              uint64_t bytes, uint8_t *buf)
{
	uint64_t size = 0;
	item->fd = open_spool(im->options.temp_dir);
	if (item->fd < 0)
		return kvi_fail(im->error, KVARC_IO, "cannot make a temporary file");
	for (;;) {
		la_ssize_t n = archive_read_data(archive, buf, BUFFER_BYTES);
		if (n < 0 || (uint64_t)n > bytes - size)
			return bad_archive(im, archive);
		if (n == 0)
			break;
		if (!write_all(item->fd, buf, (size_t)n))
			return kvi_fail(im->error, KVARC_IO, "writing a temporary file failed");
		size += (uint64_t)n;
	}
	if (size != bytes)
		return bad_archive(im, archive);
	item->src = (kvarc_source){ .read = spool_read,
		                    .opaque = (void *)(intptr_t)item->fd,
		                    .size = size };
	return KVARC_OK;
}

/* Goes to the next member. It has to be member, and deflated for libarchive as well: other methods
 * may allocate without a bound. */
static kvarc_ret next_member(kvarc_import *im, struct archive *archive,
                             const struct listed_member *member)
{
	struct archive_entry *e;
	int r;
	do {
		r = archive_read_next_header(archive, &e);
	} while (r == ARCHIVE_RETRY);
	if (r < ARCHIVE_WARN || r == ARCHIVE_EOF)
		return bad_archive(im, archive);
	if (member->m.kind != KVI_MEMBER_DEFLATED)
		return KVARC_OK;
	const char *method = archive_format_name(archive);
	if (!method || !strstr(method, "(deflation)") || !archive_entry_size_is_set(e) ||
	    (uint64_t)archive_entry_size(e) != member->m.bytes)
		return bad_archive(im, archive);
	return KVARC_OK;
}

/* Spools deflated members; libarchive passes a zip file in the order of member headers, too. */
static kvarc_ret inflate_all(kvarc_import *im, struct archive *archive,
                             const struct container_source *source, uint8_t *buf)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0, item = 0; i < source->n && !ret; i++) {
		const struct listed_member *x = &source->list[i];
		ret = next_member(im, archive, x);
		if (!ret && x->m.kind == KVI_MEMBER_DEFLATED)
			ret = spool_member(im, archive, &im->items[item], x->m.bytes, buf);
		item += is_file(x);
	}
	return ret;
}

/* Inflates the deflated ones among the items, which are the files of source in order. Returns as
 * members_take. */
static kvarc_ret members_inflate(kvarc_import *im, const struct container_source *source)
{
	kvarc_ret ret;
	struct feed *f = kvi_malloc(&im->alloc, sizeof *f);
	uint8_t *buf = kvi_malloc(&im->alloc, BUFFER_BYTES);
	struct archive *a = archive_read_new();
	if (!f || !buf || !a) {
		ret = kvi_fail_alloc(im->error, &im->alloc);
		goto out;
	}
	f->src = &im->container;
	f->at = 0;
	archive_read_support_format_zip_seekable(a);
	archive_read_set_callback_data(a, f);
	archive_read_set_read_callback(a, feed_read);
	archive_read_set_skip_callback(a, feed_skip);
	archive_read_set_seek_callback(a, feed_seek);
	if (archive_read_open1(a) != ARCHIVE_OK)
		ret = bad_archive(im, a);
	else
		ret = inflate_all(im, a, source, buf);
out:
	if (a)
		(void)archive_read_free(a);
	kvi_free(&im->alloc, f);
	kvi_free(&im->alloc, buf);
	return ret;
}

static const char *why_no_inflate(const kvarc_import *im)
{
	if (!im->options.temp_dir)
		return "no folder for temporary files was given";
	return kvi_libarchive(NULL) ? NULL : "this needs " LIBARCHIVE_MISSING;
}

#else

static kvarc_ret members_inflate(kvarc_import *im, const struct container_source *source)
{
	(void)im;
	(void)source;
	return KVARC_END;
}

static const char *why_no_inflate(const kvarc_import *im)
{
	(void)im;
	return "libarchive was not built in";
}

#endif

/* ----- what can come back as files ------------------------------------ */

static int by_text(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;
	return strcmp(*x, *y);
}

/* Why the first of the members that cannot be restored as a file cannot; NULL: all n files can. */
static const char *why_not(kvarc_import *im, struct container_source *source, size_t n)
{
	uint64_t left = im->container.size < UINT64_MAX / EXPANSION_MAX
	                        ? im->container.size * EXPANSION_MAX
	                        : UINT64_MAX;
	size_t k = 0;
	const char **names = kvi_array(&im->alloc, n, sizeof *names);
	if (!names)
		return "there is not enough memory to compare their names";
	const char *why = NULL;
	for (size_t i = 0; i < source->n && !why; i++) {
		struct listed_member *x = &source->list[i];
		if (x->m.kind == KVI_MEMBER_FOLDER)
			continue;
		if (!is_file(x))
			why = "some are links or special, encrypted, or compressed by "
			      "another method than deflate";
		else if (x->m.bytes > left)
			why = "they are absurdly large";
		else if (!x->name || !kvi_member_name_tidy(x->name))
			why = "a name is not a relative path in UTF-8";
		else
			names[k++] = x->name;
		left -= x->m.bytes < left ? x->m.bytes : left;
	}
	if (!why) {
		qsort((void *)names, n, sizeof *names, by_text);
		if (!kvi_member_names_fit(names, n))
			why = "two of them have one name, or a file and a folder have";
	}
	kvi_free(&im->alloc, (void *)names);
	if (!why && source->packed)
		why = why_no_inflate(im);
	return why;
}

static kvarc_ret member_in_place(kvarc_import *im, const struct listed_member *member,
                                 const char *name);

/*
 * Items of an import that are the files of a container, as many as it has (folders are no files):
 * what is stored is read in place, what is deflated comes through temporary files in
 * options.temp_dir. Returns OK; END with a note when some of them cannot be restored as files
 * (names, links, other methods), or there is no folder or no libarchive for what is deflated;
 * DATA (a damaged member), IO, MEM, MEMLIMIT.
 */
static kvarc_ret members_take(kvarc_import *im, struct container_source *source)
{
	size_t n = 0;
	for (size_t i = 0; i < source->n; i++)
		n += source->list[i].m.kind != KVI_MEMBER_FOLDER;
	if (n == 0)
		return KVARC_END;
	const char *why = why_not(im, source, n);
	if (why) {
		kvi_import_note(im,
		                "its members cannot replace the %s file, "
		                "which is packed as a whole: %s",
		                source->what, why);
		return KVARC_END;
	}
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < source->n && !ret; i++)
		if (is_file(&source->list[i]))
			ret = member_in_place(im, &source->list[i], source->list[i].name);
	return ret || !source->packed ? ret : members_inflate(im, source);
}

/* ==== Members of zip (npz) and tar files, where they lie in the container ==== */

enum { TAR_MAGIC_AT = 257, SNIFF_BYTES = TAR_MAGIC_AT + 5, MEMBERS_MAX = 1 << 16 };

/* The kind of a container, "zip" or "tar"; NULL: no container. */
static const char *sniff(const kvarc_source *src, kvarc_ret *ret)
{
	uint8_t head[SNIFF_BYTES];
	size_t n = src->size < sizeof head ? (size_t)src->size : sizeof head;
	*ret = kvi_source_read(src, head, n, 0);
	if (*ret)
		*ret = KVARC_IO;
	else if (n >= 4 && !memcmp(head, "PK\3\4", 4))
		return "zip";
	else if (n == sizeof head && !memcmp(head + TAR_MAGIC_AT, "ustar", 5))
		return "tar";
	return NULL;
}

struct listing {
	kvarc_import *im;
	struct container_source *c;
};

static kvarc_ret add_member(void *opaque, const struct kvi_member *member)
{
	struct listing *l = opaque;
	struct container_source *c = l->c;
	const struct kvi_alloc *alloc = &l->im->alloc;
	if (c->n >= MEMBERS_MAX) {
		kvi_import_note(l->im,
		                "more than %d members: the %s file is kept as an opaque file",
		                MEMBERS_MAX, c->what);
		return KVARC_END;
	}
	if (!kvi_array_grow(alloc, &c->list, &c->cap, c->n, sizeof *c->list))
		return kvi_fail_alloc(l->im->error, alloc);
	struct listed_member *x = &c->list[c->n];
	*x = (struct listed_member){ *member, NULL };
	if (member->name) {
		size_t n = strlen(member->name) + 1;
		x->name = kvi_malloc(alloc, n);
		if (!x->name)
			return kvi_fail_alloc(l->im->error, alloc);
		memcpy(x->name, member->name, n);
	}
	x->m.name = NULL;
	c->packed += member->kind == KVI_MEMBER_DEFLATED || member->kind == KVI_MEMBER_PACKED;
	c->n++;
	return KVARC_OK;
}

static int by_place(const void *a, const void *b)
{
	const struct kvi_member *x = &((const struct listed_member *)a)->m;
	const struct kvi_member *y = &((const struct listed_member *)b)->m;
	return (x->header_at > y->header_at) - (x->header_at < y->header_at);
}

static bool is_disjoint(const struct container_source *source)
{
	for (size_t i = 1; i < source->n; i++) {
		const struct kvi_member *m = &source->list[i - 1].m;
		if (m->offset + m->packed > source->list[i].m.header_at)
			return false;
	}
	return true;
}

static kvarc_ret list_members(kvarc_import *im, struct container_source *source)
{
	struct listing l = { im, source };
	kvarc_ret ret = (*source->what == 'z' ? kvi_zip_scan : kvi_tar_scan)(
		&im->container, &im->alloc, add_member, &l);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(im->error, &im->alloc);
	if (!ret && source->n)
		qsort(source->list, source->n, sizeof *source->list, by_place);
	if (ret == KVARC_END || (!ret && !is_disjoint(source))) {
		kvi_import_note(im,
		                "looks like a %s file, but is not one to its exact "
		                "end: kept as an opaque file",
		                source->what);
		ret = KVARC_END;
	}
	return ret;
}

/* ----- members in place ---------------------------------------------- */

static int64_t read_member(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct kvi_member_window *w = opaque;
	if (offset >= w->bytes)
		return 0;
	if (bytes > w->bytes - offset)
		bytes = (size_t)(w->bytes - offset);
	return w->container->read(w->container->opaque, buf, bytes, w->base + offset);
}

/* Makes an item of a member's bytes in im->container. Returns OK or as kvi_import_full. */
static kvarc_ret member_in_place(kvarc_import *im, const struct listed_member *member,
                                 const char *name)
{
	struct kvi_imp_item *item = kvi_import_add_item(im, name);
	if (!item)
		return kvi_import_full(im);
	item->window = kvi_malloc(&im->alloc, sizeof *item->window);
	if (!item->window)
		return kvi_fail_alloc(im->error, &im->alloc);
	*item->window = (struct kvi_member_window){ &im->container, member->m.offset,
		                                    member->m.packed };
	const uint8_t *memory = im->container.memory;
	item->src = (kvarc_source){ .read = read_member,
		                    .opaque = item->window,
		                    .size = member->m.packed,
		                    .memory = memory ? memory + member->m.offset : NULL };
	return KVARC_OK;
}

/* Adds the stored files as items in place; other members stay bytes of the container. */
static kvarc_ret take_stored(kvarc_import *im, const struct container_source *source)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < source->n && !ret; i++)
		if (source->list[i].m.kind == KVI_MEMBER_STORED)
			ret = member_in_place(im, &source->list[i], source->list[i].name);
	return ret;
}

static void import_drop_items(kvarc_import *im);

static kvarc_ret take(kvarc_import *im, struct container_source *source)
{
	kvarc_ret ret = list_members(im, source);
	if (!ret && im->options.members) {
		ret = members_take(im, source);
		if (ret != KVARC_END) {
			im->n_members = im->n_items;
			return ret;
		}
		import_drop_items(im);
		ret = KVARC_OK;
	}
	if (ret)
		return ret;
	if (source->packed) {
		kvi_import_note(im,
		                "%zu of %zu members are compressed: the %s file is "
		                "kept as an opaque file; --members packs its members instead",
		                source->packed, source->n, source->what);
		return KVARC_END;
	}
	return take_stored(im, source);
}

/*
 * Adds the members of a zip or tar file as items. Without options.members they are windows of the
 * container, in ascending order, and import_join_members makes one file of them again.
 * Returns OK; END (not a container, or one that stays whole: there may be items left, which
 * the caller drops, and a note); DATA, IO, MEM, MEMLIMIT.
 */
static kvarc_ret import_container(kvarc_import *im, const kvarc_source *src)
{
	struct container_source c = { .n = 0 };
	kvarc_ret ret;
	c.what = sniff(src, &ret);
	if (ret || !c.what)
		return ret ? ret : KVARC_END;
	im->container = *src;
	im->container_kind = c.what;
	ret = take(im, &c);
	for (size_t i = 0; i < c.n; i++)
		kvi_free(&im->alloc, c.list[i].name);
	kvi_free(&im->alloc, c.list);
	return ret ? ret : im->n_items ? KVARC_OK : KVARC_END;
}

/* Moves areas and token ids from members in place to item 0, the container, and drops all items:
 * the caller adds item 0. */
static void import_join_members(kvarc_import *im)
{
	for (size_t i = 0; i < im->n_areas; i++) {
		struct kvi_imp_area *a = &im->areas[i];
		a->offset += im->items[a->item].window->base;
		a->item = 0;
	}
	for (size_t i = 0; i < im->n_tracks; i++) {
		struct kvi_imp_track *t = &im->tracks[i];
		if (!t->has_ids)
			continue;
		t->ids_at += im->items[t->ids_item].window->base;
		t->ids_item = 0;
	}
	import_drop_items(im);
}

/* ==== Looks at files and finds the caches in them ==== */

static void drop_tracks(kvarc_import *im, size_t keep)
{
	while (im->n_tracks > keep)
		kvi_free(&im->alloc, im->tracks[--im->n_tracks].runs);
}

/* Drops all items with their areas, tensors and tracks. */
static void import_drop_items(kvarc_import *im)
{
	while (im->n_items) {
		struct kvi_imp_item *item = &im->items[--im->n_items];
		if (item->fd >= 0)
			(void)close(item->fd);
		kvi_free(&im->alloc, item->window);
		kvi_free(&im->alloc, item->name);
	}
}

void kvarc_import_close(kvarc_import **pim)
{
	kvarc_import *im = pim ? *pim : NULL;
	if (!im)
		return;
	*pim = NULL;
	import_drop_items(im);
	drop_tracks(im, 0);
	kvi_free(&im->alloc, im->items);
	kvi_free(&im->alloc, im->tracks);
	kvi_free(&im->alloc, im->tensors);
	kvi_free(&im->alloc, im->areas);
	kvi_free(&im->alloc, im->pub_tracks);
	kvi_free(&im->alloc, im->pub_tensors);
	kvi_identity_free(&im->identity, &im->alloc);
	kvi_free(&im->alloc, im);
}

/* Lengths of the lists at the start of a parser, to remove what it added. */
struct mark {
	size_t tracks, tensors, areas;
};

static void roll_back(kvarc_import *im, const struct mark *mark)
{
	drop_tracks(im, mark->tracks);
	im->n_tensors = mark->tensors;
	im->n_areas = mark->areas;
}

/* Asks the parsers in turn; what none of them knows stays opaque. */
static kvarc_ret look_at(kvarc_import *im, uint32_t item)
{
	static kvarc_ret (*const parsers[])(kvarc_import *, uint32_t) = { kvi_import_llama,
		                                                          kvi_import_kvc,
		                                                          kvi_import_safetensors };
	struct mark m = { im->n_tracks, im->n_tensors, im->n_areas };
	for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++) {
		kvarc_ret ret = parsers[i](im, item);
		if (ret != KVARC_END)
			return ret;
		roll_back(im, &m);
		im->items[item].kind = KVI_ITEM_OPAQUE;
	}
	return KVARC_OK;
}

static kvarc_ret find_tensors(kvarc_import *im)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < im->n_items && !ret; i++)
		ret = look_at(im, (uint32_t)i);
	if (ret)
		return ret;
	struct mark m = { im->n_tracks, im->n_tensors, im->n_areas };
	ret = kvi_import_pt(im);
	if (ret == KVARC_END) {
		roll_back(im, &m);
		ret = kvi_import_npy(im, 0);
	}
	if (ret == KVARC_END) {
		roll_back(im, &m);
		ret = KVARC_OK;
	}
	return ret;
}

/* Says what became of tensors that no rule has. */
static void note_unknown(kvarc_import *im)
{
	if (im->unknown[0])
		kvi_import_note(im, "%s: %s%s", im->unknown,
		                im->typing && im->n_tensors ? "coded by their types, or as bytes"
		                                            : "kept as bytes",
		                im->hint);
}

static kvarc_ret look_at_all(kvarc_import *im)
{
	kvarc_ret ret = find_tensors(im);
	im->typing = !ret && !im->n_tensors && im->options.by_type;
	if (im->typing) {
		roll_back(im, &(struct mark){ 0, 0, 0 });
		ret = find_tensors(im);
	}
	if (!ret)
		note_unknown(im);
	return ret ? ret : kvi_import_find_ropes(im);
}

/* The public geometry. An archive needs a track, even an empty one. */
static kvarc_ret finish(kvarc_import *im)
{
	if (im->n_tracks == 0 && !kvi_import_add_track(im, 0))
		return kvi_import_full(im);
	im->pub_tracks = kvi_array(&im->alloc, im->n_tracks, sizeof(kvarc_track));
	if (im->n_tensors)
		im->pub_tensors = kvi_array(&im->alloc, im->n_tensors, sizeof(kvarc_tensor));
	if (!im->pub_tracks || (im->n_tensors && !im->pub_tensors))
		return kvi_import_full(im);
	for (size_t i = 0; i < im->n_tracks; i++) {
		im->pub_tracks[i] = im->tracks[i].pub;
		im->pub_tracks[i].label = im->tracks[i].label;
	}
	for (size_t i = 0; i < im->n_tensors; i++) {
		im->pub_tensors[i] = im->tensors[i].pub;
		im->pub_tensors[i].name = im->tensors[i].name;
	}
	for (size_t i = 0; i < im->n_ropes; i++)
		im->pub_ropes[i] = (kvarc_rope){ .pairing = im->ropes[i].pairing,
			                         .rotary = im->ropes[i].rotary,
			                         .freq = im->ropes[i].freq };
	im->geometry = (kvarc_geometry){ .n_ropes = im->n_ropes,
		                         .n_tracks = im->n_tracks,
		                         .n_tensors = im->n_tensors,
		                         .ropes = im->pub_ropes,
		                         .tracks = im->pub_tracks,
		                         .tensors = im->pub_tensors };
	return KVARC_OK;
}

static kvarc_ret read_model(kvarc_import *im)
{
	if (!im->options.model)
		return KVARC_OK;
	kvarc_ret ret = kvi_gguf_read(&im->gguf, &im->alloc, im->options.model);
	if (ret == KVARC_FORMAT)
		return kvi_fail_at(im->error, KVARC_DATA, 0, KVARC_UNKNOWN,
		                   "the model file is not a GGUF file");
	if (ret == KVARC_OPTIONS)
		return kvi_fail_at(im->error, ret, 4, KVARC_UNKNOWN,
		                   "the model file is a GGUF of "
		                   "an unknown version (2 and 3 are supported)");
	if (ret == KVARC_DATA)
		return kvi_fail(im->error, ret, "the metadata of the GGUF model file are damaged");
	return ret;
}

static kvarc_ret open_single(kvarc_import *im, const kvarc_source *src, const char *name)
{
	struct kvi_imp_item *item = kvi_import_add_item(im, name);
	if (!item)
		return kvi_import_full(im);
	item->src = *src;
	return KVARC_OK;
}

/* Drops all that reading the container has added. */
static void close_container(kvarc_import *im)
{
	roll_back(im, &(struct mark){ 0, 0, 0 });
	import_drop_items(im);
	im->n_members = 0;
}

/*
 * A container with caches among its stored members is one item: the tensors of all members, and
 * literal bytes between them. When members were asked for they are items of their own.
 */
static kvarc_ret open_container(kvarc_import *im, const kvarc_source *src, const char *name)
{
	kvarc_ret ret = import_container(im, src);
	if (!ret)
		ret = look_at_all(im);
	if (!ret && im->n_tensors == 0) {
		kvi_import_note(im, "no cache was found in the archive: it is "
		                    "kept as an opaque file");
		ret = KVARC_END;
	}
	if (ret == KVARC_END)
		close_container(im);
	if (ret)
		return ret;
	snprintf(im->format, sizeof im->format, "%s archive of %zu files", im->container_kind,
	         im->n_items);
	if (im->n_members)
		return KVARC_OK;
	import_join_members(im);
	ret = open_single(im, src, name);
	if (!ret)
		im->items[0].kind = KVI_ITEM_OTHER;
	return ret;
}

/* The caller said what the file is: nothing else is tried. */
static kvarc_ret open_raw(kvarc_import *im, const kvarc_source *src, const char *name)
{
	kvarc_ret ret = open_single(im, src, name);
	if (!ret)
		ret = kvi_import_raw(im, 0);
	if (ret == KVARC_END)
		ret = kvi_fail(im->error, KVARC_GEOMETRY,
		               "raw pages: more tensors than an archive can describe");
	return ret ? ret : finish(im);
}

static kvarc_ret open_all(kvarc_import *im, const kvarc_source *src, const char *name)
{
	kvarc_ret ret = read_model(im);
	if (!ret && im->options.raw)
		return open_raw(im, src, name);
	if (!ret && !im->options.opaque) {
		ret = open_container(im, src, name);
		if (ret != KVARC_END)
			return ret ? ret : finish(im);
		ret = open_single(im, src, name);
		if (!ret)
			ret = look_at_all(im);
	} else if (!ret) {
		ret = open_single(im, src, name);
	}
	if (!ret && im->n_tensors == 0 && im->items[0].kind == KVI_ITEM_OPAQUE)
		snprintf(im->format, sizeof im->format, "opaque file");
	return ret ? ret : finish(im);
}

kvarc_ret kvarc_import_open(kvarc_import **pim, const kvarc_source *source, const char *name,
                            const kvarc_import_options *options)
{
	static const kvarc_import_options defaults = KVARC_IMPORT_OPTIONS_INIT;
	const kvarc_import_options *o = options ? options : &defaults;
	kvarc_import *im;
	if (!pim)
		return KVARC_PROG;
	*pim = NULL;
	kvarc_ret ret = kvi_check_source(o->common.error, "kvarc_import_open", source, false);
	if (!ret && source->size == KVARC_UNKNOWN)
		ret = kvi_fail(o->common.error, KVARC_PROG,
		               "kvarc_import_open: an import needs a source of known size");
	if (!ret)
		ret = KVI_CHECK_RESERVED(o->common.error, "kvarc_import_open",
		                         "kvarc_import_options", o);
	if (ret)
		return ret;
	ret = kvi_handle_new(&im, sizeof *im, offsetof(kvarc_import, alloc), &o->common,
	                     o->common.memlimit);
	if (ret)
		return ret;
	im->error = o->common.error;
	im->options = *o;
	ret = open_all(im, source, name);
	if (ret == KVARC_IO)
		ret = kvi_fail(im->error, ret, "reading the input failed");
	if (ret)
		kvarc_import_close(&im);
	*pim = im;
	return ret;
}

const kvarc_geometry *kvarc_import_geometry(const kvarc_import *im)
{
	return im ? &im->geometry : NULL;
}

uint64_t kvarc_import_tokens(const kvarc_import *im, uint32_t track)
{
	return im && track < im->n_tracks ? im->tracks[track].n : 0;
}

const char *kvarc_import_format(const kvarc_import *im)
{
	return im ? im->format : NULL;
}

const char *kvarc_import_layout(const kvarc_import *im)
{
	return im ? im->layout : NULL;
}

uint32_t kvarc_import_streams(const kvarc_import *im)
{
	return im ? im->streams : 0;
}

size_t kvarc_import_members(const kvarc_import *im)
{
	return im ? im->n_members : 0;
}

kvarc_ret kvarc_import_identity(kvarc_import *im, const char *key, const char *value)
{
	static const char *const own[] = { "created_by", "layout", "lossy" };
	if (!im || !key || !value)
		return KVARC_PROG;
	if (!*key)
		return kvi_fail(im->error, KVARC_PROG, "kvarc_import_identity: the key is empty");
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (strcmp(own[i], key) == 0)
			return kvi_fail(im->error, KVARC_PROG,
			                "the identity '%s' is recorded by the library itself", key);
	kvarc_ret ret = kvi_identity_set(&im->identity, &im->alloc, key, value);
	if (ret == KVARC_PROG)
		return kvi_fail(im->error, ret,
		                "kvarc_import_identity: too many pairs, or a key "
		                "or value that is too long");
	return kvi_fail_memory(im->error, ret, &im->alloc);
}

const char *kvarc_import_model(const kvarc_import *im)
{
	if (!im)
		return NULL;
	const struct kvi_gguf *g = &im->gguf;
	return g->name[0] ? g->name : g->arch[0] ? g->arch : NULL;
}

const char *kvarc_import_note(const kvarc_import *im)
{
	return im && im->note[0] ? im->note : NULL;
}

void kvarc_import_sizes(const kvarc_import *im, uint64_t *file_bytes, uint64_t *tensor_bytes)
{
	uint64_t files = 0, tensors = 0;
	for (size_t i = 0; im && i < im->n_items; i++)
		files += im->items[i].src.size;
	for (size_t i = 0; im && i < im->n_areas; i++)
		tensors += im->areas[i].bytes;
	if (file_bytes)
		*file_bytes = files;
	if (tensor_bytes)
		*tensor_bytes = tensors;
}

kvarc_ret kvarc_import_attach(kvarc_import *im, const kvarc_source *source, unsigned kind,
                              const char *name)
{
	static const char call[] = "kvarc_import_attach";
	if (!im)
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_source(im->error, call, source, false);
	if (ret)
		return ret;
	if (source->size == KVARC_UNKNOWN || !name || kind < KVARC_ITEM_CONTEXT ||
	    kind > KVARC_ITEM_WORKSPACE)
		return kvi_fail(im->error, KVARC_PROG,
		                "%s: give a source of known size, a kind and a name", call);
	if (im->n_items >= KVI_IMPORT_ITEMS_MAX)
		return kvi_fail(im->error, KVARC_OPTIONS, "%s: the import has too many items",
		                call);
	struct kvi_imp_item *item = kvi_import_add_item(im, name);
	if (!item)
		return kvi_fail_alloc(im->error, &im->alloc);
	item->src = *source;
	item->kind = (uint16_t)kind;
	return KVARC_OK;
}
