/* SPDX-License-Identifier: BSD-3-Clause */
/* weight_cache_file.c - the file of converted weights: what it must be, reading, writing (kept.h)
 * */
#include "config.h"

#include <stdatomic.h>
#include <string.h>

#include "util/hash.h"
#include "exact/tensor_parts.h"
#include "weight_cache.h"
#include "util/bytes.h"
#include "util/ckd.h"

const uint8_t kvi_weight_cache_magic[KVI_WEIGHT_CACHE_MAGIC_BYTES] = { 0x89, 'K',  'V',  'W',
	                                                               '\r', '\n', 0x1a, '\n' };

enum {
	AT_VERSION = 8,
	AT_ORDER = 12,
	AT_KEY = 16,
	AT_DIGEST = 32,
	AT_PARTS = 48,
	AT_BYTES = 56,
	AT_TABLE = 64,
	ENTRY = 16,
	CHECK = 8,
	PAGE = 4096
};

/* ---------------------------------------------------- all parts in order */

/* Where each is in memory, or in the file. */
struct walk {
	struct kvi_engine *e;
	struct kvi_engine_part parts[KVI_LAYER_PARTS];
	struct kvi_part_form form; /* of the one in hand */
	uint32_t layer;
	size_t n, i;
	bool fits;
};

static const struct kvi_engine_part *next_part(struct walk *w)
{
	while (w->i == w->n) {
		if (w->layer == w->e->file->n_layers)
			return NULL;
		w->n = kvi_engine_parts(w->e, w->layer++, w->parts);
		w->i = 0;
	}
	w->fits = w->fits && kvi_engine_part_form(w->e, &w->parts[w->i], &w->form);
	return w->fits ? &w->parts[w->i++] : NULL;
}

static struct walk walk_begin(struct kvi_engine *e)
{
	return (struct walk){ .e = e, .fits = true };
}

static const void *memory_of(const struct kvi_engine_part *p)
{
	if (p->vector)
		return *p->vector;
	return p->operand->e4m3 ? (const void *)p->operand->e4m3 : p->operand->w[0];
}

bool kvi_weight_cache_parts(struct kvi_engine *e,
                            bool (*put)(void *opaque, const void *p, size_t n), void *opaque)
{
	struct walk w = walk_begin(e);
	for (const struct kvi_engine_part *p; (p = next_part(&w));)
		if (!put(opaque, memory_of(p), w.form.bytes))
			return false;
	return w.fits;
}

/* -------------------------------------------------------------- layout */

/* Files, version of the library, and how each part is made: two arithmetics that make the same
 * share a file. */
bool kvi_weight_cache_layout(struct kvi_engine *e, const struct kvi_h128 *stamp,
                             struct kvi_weight_cache_layout *l)
{
	const char *version = kvarc_version();
	struct walk w = walk_begin(e);
	uint8_t form[16] = { 0 };
	size_t table;
	*l = (struct kvi_weight_cache_layout){ .key = *stamp };
	l->key = kvi_h128_2(&l->key, sizeof l->key, version, strlen(version));
	while (next_part(&w)) {
		kvi_store64(form, w.form.bytes);
		kvi_store32(form + 8, w.form.group);
		form[12] = (uint8_t)w.form.planes;
		form[13] = w.form.minima;
		form[14] = w.form.e4m3;
		l->key = kvi_h128_2(&l->key, sizeof l->key, form, sizeof form);
		l->parts++;
		w.fits = !kvi_add(l->bytes, w.form.bytes, &l->bytes);
	}
	if (!w.fits || kvi_mul(l->parts, ENTRY, &table) ||
	    kvi_add(table, AT_TABLE + CHECK + PAGE - 1, &table))
		return false;
	l->header = table / PAGE * PAGE;
	return !kvi_add(l->bytes, l->header, &l->bytes);
}

/* -------------------------------------------------------------- checks */

struct piece {
	const uint8_t *p;
	size_t bytes;
	uint64_t hash;
};

struct pieces {
	struct piece *list;
	size_t n;
};

static void hash_piece(void *opaque, size_t i, unsigned worker)
{
	struct pieces *pieces = opaque;
	struct piece *p = &pieces->list[i];
	(void)worker;
	p->hash = kvi_h64(p->p, p->bytes);
}

static bool add_piece(void *opaque, const void *p, size_t n)
{
	struct pieces *pieces = opaque;
	pieces->list[pieces->n++] = (struct piece){ p, n, 0 };
	return true;
}

static void put_head(const struct kvi_engine *e, const struct kvi_weight_cache_layout *l,
                     uint8_t *header)
{
	const uint32_t one = 1;
	memcpy(header, kvi_weight_cache_magic, sizeof kvi_weight_cache_magic);
	kvi_store32(header + AT_VERSION, KVI_WEIGHT_CACHE_VERSION);
	memcpy(header + AT_ORDER, &one, sizeof one);
	kvi_store_h128(header + AT_KEY, l->key);
	kvi_store_h128(header + AT_DIGEST, e->digest);
	kvi_store64(header + AT_PARTS, l->parts);
	kvi_store64(header + AT_BYTES, l->bytes);
}

bool kvi_weight_cache_header(struct kvi_engine *e, const struct kvi_weight_cache_layout *l,
                             uint8_t *header, struct kvi_pool *pool)
{
	struct pieces pieces = { kvi_array(e->alloc, l->parts, sizeof *pieces.list), 0 };
	if (!pieces.list)
		return false;
	kvi_weight_cache_parts(e, add_piece, &pieces);
	kvi_parallel(pool, pieces.n, hash_piece, &pieces);
	memset(header, 0, l->header);
	put_head(e, l, header);
	for (size_t i = 0; i < pieces.n; i++) {
		kvi_store64(header + AT_TABLE + ENTRY * i, pieces.list[i].bytes);
		kvi_store64(header + AT_TABLE + ENTRY * i + 8, pieces.list[i].hash);
	}
	kvi_store64(header + l->header - CHECK, kvi_h64(header, l->header - CHECK));
	kvi_free(e->alloc, pieces.list);
	return true;
}

/* Everything in front of the table, and the check. */
static bool head_is(const struct kvi_engine *e, const struct kvi_weight_cache_layout *l,
                    const uint8_t *p, size_t n)
{
	uint8_t head[AT_TABLE];
	if (n != l->bytes || kvi_load64(p + l->header - CHECK) != kvi_h64(p, l->header - CHECK))
		return false;
	put_head(e, l, head);
	return memcmp(head, p, AT_DIGEST) == 0 &&
	       memcmp(head + AT_PARTS, p + AT_PARTS, AT_TABLE - AT_PARTS) == 0;
}

/* The sizes of the table, and the bytes of all parts. */
static bool parts_are(struct kvi_engine *e, const struct kvi_weight_cache_layout *l,
                      const uint8_t *p, struct pieces *pieces, struct kvi_pool *pool)
{
	struct walk w = walk_begin(e);
	size_t at = l->header;
	bool same = true;
	while (next_part(&w)) {
		const uint8_t *entry = p + AT_TABLE + ENTRY * pieces->n;
		same = same && kvi_load64(entry) == w.form.bytes;
		add_piece(pieces, p + at, w.form.bytes);
		at += w.form.bytes;
	}
	if (same)
		kvi_parallel(pool, pieces->n, hash_piece, pieces);
	for (size_t i = 0; same && i < pieces->n; i++)
		same = kvi_load64(p + AT_TABLE + ENTRY * i + 8) == pieces->list[i].hash;
	return same;
}

bool kvi_weight_cache_read(struct kvi_engine *e, const struct kvi_weight_cache_layout *l,
                           const uint8_t *p, size_t n, struct kvi_pool *pool)
{
	struct pieces pieces = { NULL, 0 };
	struct walk w = walk_begin(e);
	size_t at = l->header;
	if (!head_is(e, l, p, n))
		return false;
	pieces.list = kvi_array(e->alloc, l->parts, sizeof *pieces.list);
	bool good = pieces.list && parts_are(e, l, p, &pieces, pool);
	kvi_free(e->alloc, pieces.list);
	for (const struct kvi_engine_part *part; good && (part = next_part(&w));) {
		kvi_engine_part_at(part, &w.form, p + at);
		at += w.form.bytes;
	}
	if (good)
		e->digest = kvi_load_h128(p + AT_DIGEST);
	return good;
}
