/* SPDX-License-Identifier: BSD-3-Clause */
/* store_content.c - segments that an archive names, from whatever archive holds them */
#include "store_state.h"

#include <errno.h>
#include <string.h>

enum { HOLDERS_MOST = 16 };

/* A segment that an archive asks for, and where its tokens go. */
struct asked_segment {
	struct kvi_store_content *c;
	uint64_t name_space;
	uint8_t key[16], digest[16];
	uint32_t n;
	int32_t *ids, *positions;
	const kvarc_view *views;
};

static kvarc_ret read_asked(const struct asked_segment *segment)
{
	struct kvi_store_content *c = segment->c;
	struct kvi_index_row row;
	bool has_ids;
	kvarc_ret ret = kvi_content_find(c->s, c->geometry, segment->name_space, segment->key,
	                                 segment->digest, &row);
	if (!ret && row.n != segment->n)
		ret = KVARC_END;
	return ret ? ret
	           : kvi_row_read(c->s, &row, c->geometry, false, segment->ids, segment->positions,
	                          segment->views, &has_ids);
}

/* END: other elements than those that were asked for. */
static kvarc_ret compare_digest(const struct asked_segment *segment,
                                const struct kvi_index_row *row, bool has_ids)
{
	uint8_t digest[16];
	kvarc_ret ret = kvarc_content_digest(segment->c->geometry, row->track, row->n,
	                                     has_ids ? segment->ids : NULL, segment->positions,
	                                     segment->views, digest);
	if (ret)
		return kvi_fail_memory(segment->c->s->error, ret, &segment->c->s->alloc);
	kvi_veil_hash(&segment->c->veil, digest, digest);
	return memcmp(digest, segment->digest, 16) == 0 ? KVARC_OK : KVARC_END;
}

/* Reads the segment from one of the archives that may hold it. The mark of damage is taken off a
 * row that is read from a whole archive. */
static kvarc_ret try_row(const struct asked_segment *segment, struct kvi_index_row *row,
                         bool damaged)
{
	struct kvi_store_content *c = segment->c;
	const bool any = damaged && c->any;
	bool has_ids;
	kvarc_ret ret = row->has_digest || any ? KVARC_OK : kvi_row_digest(c->s, row);
	if (!ret && (row->n != segment->n ||
	             (row->has_digest && memcmp(row->digest, segment->digest, 16) != 0)))
		return KVARC_END;
	if (!ret)
		ret = kvi_row_read(c->s, row, c->geometry, any, segment->ids, segment->positions,
		                   segment->views, &has_ids);
	if (!ret && !row->has_digest && segment->views)
		ret = compare_digest(segment, row, has_ids);
	const bool damage = kvi_store_is_damage(c->s, ret);
	const struct kvi_open_pack *p = kvi_pack_find(c->s, row->id);
	const bool whole = !ret && p && p->whole;
	c->has_cut |= !ret && !whole;
	if (damage) {
		c->has_damaged = true;
		memcpy(c->damaged, row->id, 16);
	}
	if (damaged && whole)
		(void)kvi_index_set_doubt(c->s->index, row->row, false);
	return damage ? KVARC_END : ret;
}

/* Damage of one archive is no reason to fail while another one holds the segment. */
static kvarc_ret try_all(const struct asked_segment *segment)
{
	struct kvi_index_row rows[HOLDERS_MOST];
	kvarc_ret ret = KVARC_END;
	for (int damaged = 0; damaged < 2 && ret == KVARC_END; damaged++) {
		size_t n;
		ret = kvi_index_holders(segment->c->s->index, segment->name_space, segment->key,
		                        damaged, rows, HOLDERS_MOST, &n);
		ret = ret ? ret : KVARC_END;
		for (size_t i = 0; i < n && ret == KVARC_END; i++)
			ret = try_row(segment, &rows[i], damaged);
	}
	return ret;
}

struct row_list {
	struct kvarc_store *s;
	struct kvi_list *list;
};

static kvarc_ret add_row(void *opaque, const struct kvi_index_row *row)
{
	struct row_list *l = opaque;
	struct kvi_index_row *to = kvi_list_add(l->list, &l->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(l->s->error, &l->s->alloc);
	*to = *row;
	return KVARC_OK;
}

kvarc_ret kvi_doubt_damaged(struct kvarc_store *store, const uint8_t id[16])
{
	struct kvi_list list = { 0 };
	int64_t pack;
	kvarc_ret ret = kvi_index_find_pack(store->index, id, &pack);
	if (!ret)
		ret = kvi_index_rows(store->index, pack, add_row,
		                     &(struct row_list){ store, &list });
	for (size_t i = 0; i < list.n && !ret; i++) {
		ret = kvi_row_digest(store, KVI_LIST(struct kvi_index_row, list, i));
		if (kvi_store_is_damage(store, ret))
			ret = KVARC_OK;
	}
	kvi_free(&store->alloc, list.p);
	return ret;
}

/* read_asked for kvi_index_refresh_until. */
static kvarc_ret ask_segment(void *opaque)
{
	return read_asked(opaque);
}

/* kvarc_reader_options.stored_read of an archive; opaque: struct kvi_store_content. */
static int read_content(void *opaque, const kvarc_stored *st, const char *ns, int32_t *ids,
                        int32_t *positions, const kvarc_view *views)
{
	struct kvi_store_content *c = opaque;
	struct asked_segment a = { .c = c,
		                   .name_space = kvi_veil_space(&c->veil, ns),
		                   .n = st->n,
		                   .ids = ids,
		                   .positions = positions,
		                   .views = views };
	if (!c->geometry)
		return 1;
	kvi_veil_hash(&c->veil, a.key, st->has_chain ? st->chain : st->digest);
	kvi_veil_hash(&c->veil, a.digest, st->digest);
	kvarc_ret ret = read_asked(&a);
	/* Other processes have put it lately, or gc has moved it, maybe again. */
	if (ret == KVARC_END)
		ret = kvi_index_refresh_until(c->s, c->s->index, ask_segment, &a);
	if (ret == KVARC_END || kvi_store_is_damage(c->s, ret))
		ret = try_all(&a);
	if (ret && (!kvi_store_may_pass(ret) || kvi_index_damaged(c->s->index))) {
		c->failed = ret;
		errno = 0;
		return -1;
	}
	return ret ? 1 : 0;
}

struct kvi_store_content kvi_content_of(struct kvarc_store *store, bool any)
{
	return (struct kvi_store_content){ .s = store, .read = read_content, .any = any };
}
