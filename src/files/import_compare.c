/* SPDX-License-Identifier: BSD-3-Clause */
/* import_compare.c - whether an archive gives the files of an import back */
#include "import_compare.h"

#include <string.h>

#include "import_internal.h"
#include "util/error.h"

enum { BLOCK_BYTES = 1 << 18 };

struct import_comparing {
	const kvarc_import *im;
	struct compared_item *items; /* as many as the import has */
	size_t n;                    /* of the archive */
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
static const uint8_t *read_file(struct compared_item *x, size_t n, uint64_t offset)
{
	if (x->file->memory)
		return (const uint8_t *)x->file->memory + offset;
	for (size_t got = 0; got < n;) {
		int64_t k = x->file->read(x->file->opaque, x->c->block + got, n - got,
		                          offset + got);
		if (k <= 0)
			return NULL;
		got += (size_t)k;
	}
	return x->c->block;
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

/* Every file came as a whole. */
static bool is_complete(const struct import_comparing *c)
{
	bool complete = c->n == c->im->n_items;
	for (size_t i = 0; i < c->im->n_items && complete; i++)
		complete = c->items[i].file && c->items[i].bytes >= c->items[i].file->size;
	return complete;
}

kvarc_ret kvi_import_compare(const kvarc_import *im, kvarc_reader *r, kvarc_error *e)
{
	struct import_comparing c = { .im = im };
	kvarc_ret ret = KVARC_OK;
	c.items = kvi_calloc(&im->alloc, im->n_items + 1, sizeof *c.items);
	c.block = kvi_malloc(&im->alloc, BLOCK_BYTES);
	if (!c.items || !c.block)
		ret = kvi_fail_alloc(e, &im->alloc);
	if (!ret)
		ret = kvarc_unpack(r, open_item, &c);
	if (c.unreadable)
		ret = kvi_fail(e, KVARC_IO, "reading the file that is compared failed");
	else if (c.differs || (!ret && !is_complete(&c)))
		ret = KVARC_END;
	kvi_free(&im->alloc, c.items);
	kvi_free(&im->alloc, c.block);
	return ret;
}
