/* SPDX-License-Identifier: BSD-3-Clause */
/* store_verify.c - reads every archive and block of a store, and says what cannot be loaded */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "store_map.h"
#include "reader/reader_internal.h"

/* An archive that was read, and whether it is whole. */
struct seen_pack {
	uint8_t id[16];
	bool whole;
};

struct verifying {
	struct kvarc_store *s;
	struct kvi_store_index *own;
	struct kvi_store_map map;
	kvarc_store_loss_fn fn;
	void *opaque;
	uint64_t losses;
	struct kvi_list seen; /* struct seen_pack */
	struct kvi_list rows; /* struct kvi_index_row: rows of the current archive */
	struct kvi_veil veil; /* key of its hashes in the index */
};

static void see_loss(void *opaque, const char *text)
{
	struct verifying *v = opaque;
	v->losses++;
	if (v->fn)
		v->fn(v->opaque, text);
}

/* ----- archives ------------------------------------------------ */

static kvarc_ret add_row(void *opaque, const struct kvi_index_row *row)
{
	struct verifying *v = opaque;
	struct kvi_index_row *to = kvi_list_add(&v->rows, &v->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(v->s->error, &v->s->alloc);
	*to = *row;
	return KVARC_OK;
}

static bool is_final(kvarc_ret ret)
{
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO;
}

/* A segment is decoded, and its content digest found: what names it wants this one. */
static kvarc_ret verify_row(struct verifying *verifying, struct kvi_index_row *row)
{
	kvarc_reader *r;
	struct kvi_store_rows rows = { 0 };
	kvarc_ret ret = kvi_pack_reader(verifying->s, row->id, false, &r);
	if (!ret)
		ret = kvi_rows_make(verifying->s, &rows, kvarc_reader_geometry(r), row->track);
	if (!ret)
		ret = kvi_rows_read(verifying->s, row, &rows, true);
	if (!ret)
		ret = kvarc_content_digest(rows.geometry, row->track, row->n,
		                           rows.has_ids ? rows.ids : NULL, rows.positions,
		                           rows.views, row->digest);
	kvi_rows_free(verifying->s, &rows);
	if (ret)
		return ret;
	kvi_veil_hash(&verifying->veil, row->digest, row->digest);
	row->has_digest = true;
	return kvi_index_set_known(verifying->s->index, row);
}

static kvarc_ret verify_frames(struct verifying *verifying, const struct kvi_map_pack *pack)
{
	struct kvi_open_pack open;
	kvarc_ret ret = kvi_pack_open(verifying->s, &open, pack->id, false, NULL);
	if (ret == KVARC_AUTH) {
		kvarc_error auth = *verifying->s->error;
		ret = kvi_pack_check_locked(verifying->s, pack->id);
		if (ret)
			return ret;
		*verifying->s->error = auth;
		return KVARC_AUTH;
	}
	if (ret)
		return ret;
	ret = kvi_reader_check_frames(open.r);
	verifying->veil = open.veil;
	if (ret)
		kvi_fail(verifying->s->error, ret, "store: %s: %s", open.key, open.error.text);
	kvi_pack_close(&open);
	return kvi_pack_gone(verifying->s, pack->id, ret);
}

static kvarc_ret verify_rows(struct verifying *verifying, const struct kvi_map_pack *map_pack)
{
	int64_t pack;
	verifying->rows.n = 0;
	kvarc_ret ret = kvi_index_find_pack(verifying->s->index, map_pack->id, &pack);
	if (!ret)
		ret = kvi_index_rows(verifying->s->index, pack, add_row, verifying);
	for (size_t i = 0; i < verifying->rows.n && !ret; i++)
		ret = verify_row(verifying, KVI_LIST(struct kvi_index_row, verifying->rows, i));
	return ret;
}

static kvarc_ret drop_pack(struct verifying *verifying, const struct kvi_map_pack *pack)
{
	kvarc_ret ret = kvi_index_begin_change(verifying->s->index);
	return ret ? ret
	           : kvi_index_end_change(verifying->s->index,
	                                  kvi_index_remove_pack(verifying->s->index, pack->id));
}

static kvarc_ret note_pack(struct verifying *verifying, const struct kvi_map_pack *pack, bool whole)
{
	struct seen_pack *to = kvi_list_add(&verifying->seen, &verifying->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(verifying->s->error, &verifying->s->alloc);
	memcpy(to->id, pack->id, 16);
	to->whole = whole;
	return KVARC_OK;
}

/* Verifies an archive; others are not loaded from one that is damaged. */
static kvarc_ret verify_pack(struct verifying *verifying, const struct kvi_map_pack *pack)
{
	/* The map has said so. */
	if (pack->broken)
		return KVARC_OK;
	kvarc_ret ret = verify_frames(verifying, pack);
	if (!ret)
		ret = verify_rows(verifying, pack);
	if (!ret)
		return note_pack(verifying, pack, true);
	if (is_final(ret) || kvi_index_damaged(verifying->s->index))
		return ret;
	if (ret == KVARC_DATA || ret == KVARC_FORMAT) {
		const kvarc_error was = *verifying->s->error;
		if (note_pack(verifying, pack, false))
			return kvi_alloc_error(&verifying->s->alloc);
		*verifying->s->error = was;
	}
	if (ret != KVARC_END) /* removed meanwhile */
		see_loss(verifying, verifying->s->error->text);
	/* Whether one without its key is lost is not known. */
	return ret == KVARC_AUTH ? KVARC_OK : drop_pack(verifying, pack);
}

/* Teaches the store's own index, on which saves rely, the damage and its repair. The index is a
 * cache: where it cannot be written, the next load finds the damage again. */
static void teach_index(struct verifying *verifying)
{
	for (size_t i = 0; i < verifying->seen.n; i++) {
		const struct seen_pack *p = KVI_LIST(struct seen_pack, verifying->seen, i);
		if (p->whole)
			(void)kvi_index_trust(verifying->s->index, p->id);
		else
			(void)kvi_doubt_damaged(verifying->s, p->id);
	}
}

/* ----- versions ------------------------------------------------ */

static kvarc_ret see_holder(void *opaque, const struct kvi_index_row *row)
{
	(void)opaque;
	(void)row;
	return KVARC_OK;
}

/* Whether an archive, which is whole, has files, and every segment that it names is in one that is
 * whole, with the digest that it names. END: it is not so. AUTH: no key opens it. */
static kvarc_ret verify_parts(struct verifying *verifying, const uint8_t id[16])
{
	kvarc_reader *r;
	kvarc_info info;
	kvarc_ret ret = kvi_pack_reader(verifying->s, id, false, &r);
	if (!ret)
		ret = kvarc_reader_get_info(r, &info);
	if (!ret && !info.n_items)
		return KVARC_END;
	return ret ? ret : kvi_protocol_holders(verifying->s, id, NULL, see_holder, NULL);
}

static kvarc_ret verify_version(struct verifying *verifying, const struct kvi_map_version *version)
{
	struct kvi_list ids = { 0 };
	char hex[33];
	kvarc_ret ret = kvi_map_needs(&verifying->map, version, NULL, &ids);
	const bool lost = version->lost || (ret == KVARC_END && !ids.n);
	kvi_free(&verifying->s->alloc, ids.p);
	if (!ret && !lost)
		ret = verify_parts(verifying, version->id);
	if (is_final(ret) || kvi_index_damaged(verifying->s->index))
		return ret;
	/* For a version whose key is missing, the report on its archive suffices. */
	if (!lost && (!ret || ret == KVARC_AUTH))
		return KVARC_OK;
	kvi_hex(hex, version->id);
	kvi_map_report(&verifying->map, "session %s@%" PRIu64 ": cannot be loaded: %s %s",
	               version->key.name, version->key.number,
	               lost ? "its archive is missing or damaged:"
	                    : "segments are missing or damaged that are named by",
	               hex);
	return KVARC_OK;
}

static kvarc_ret verify_versions(struct verifying *verifying)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < verifying->map.versions.n && !ret; i++)
		ret = verify_version(verifying,
		                     KVI_LIST(struct kvi_map_version, verifying->map.versions, i));
	return ret;
}

/* ----- blocks ------------------------------------------------ */

struct block_names {
	struct kvarc_store *s;
	struct kvi_list keys; /* char[KVI_BLOCK_KEY] */
	kvarc_ret ret;
};

static int add_block(void *opaque, const struct kvi_object *object)
{
	struct block_names *b = opaque;
	char name[KVI_BLOCK_NAME + 1];
	if (!kvi_block_key_parse(name, object->key))
		return 0;
	char *to = kvi_list_add(&b->keys, &b->s->alloc, KVI_BLOCK_KEY);
	if (!to)
		b->ret = kvi_fail_alloc(b->s->error, &b->s->alloc);
	else
		memcpy(to, object->key, strlen(object->key) + 1);
	return b->ret != KVARC_OK;
}

/* Checks the frames of each; a line about each that is damaged, or that no key opens. */
static kvarc_ret verify_blocks(struct verifying *verifying)
{
	struct kvarc_store *s = verifying->s;
	struct block_names b = { .s = s };
	kvarc_ret ret = s->backend->calls->list(s->backend, KVI_BLOCKS, add_block, &b, s->error);
	if (b.ret)
		ret = b.ret;
	for (size_t i = 0; i < b.keys.n && !ret; i++) {
		ret = kvi_block_check(s, (const char *)b.keys.p + i * KVI_BLOCK_KEY);
		if (!ret || ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO)
			continue;
		if (ret != KVARC_END) /* removed meanwhile */
			see_loss(verifying, s->error->text);
		ret = KVARC_OK;
	}
	kvi_free(&s->alloc, b.keys.p);
	return ret;
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret verify_all(struct verifying *verifying)
{
	kvarc_ret ret = kvi_fresh_index(verifying->s, &verifying->own);
	if (!ret)
		ret = kvi_map_make(&verifying->map, verifying->s, verifying->own, NULL, see_loss,
		                   verifying);
	for (size_t i = 0; i < verifying->map.packs.n && !ret; i++)
		ret = verify_pack(verifying,
		                  KVI_LIST(struct kvi_map_pack, verifying->map.packs, i));
	if (!ret)
		ret = verify_versions(verifying);
	return ret ? ret : verify_blocks(verifying);
}

kvarc_ret kvarc_store_verify(kvarc_store *s, kvarc_store_loss_fn fn, void *opaque, uint64_t *losses)
{
	if (!s)
		return KVARC_PROG;
	struct verifying v = { .s = s, .own = s->index, .fn = fn, .opaque = opaque };
	kvarc_ret ret = verify_all(&v);
	kvi_free(&s->alloc, v.rows.p);
	kvi_map_free(&v.map);
	kvi_own_index(s, &v.own);
	if (!ret)
		teach_index(&v);
	kvi_free(&s->alloc, v.seen.p);
	if (losses)
		*losses = v.losses;
	return ret;
}
