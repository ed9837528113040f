/* SPDX-License-Identifier: BSD-3-Clause */
/* save_partial.c - the segment of a store that shares a prefix with the tokens that follow */
#include "save_plan.h"

#include <string.h>

enum { CANDIDATES_MOST = 8, CHILDREN_MOST = 64 };

/* The best one so far. */
struct kept_candidate {
	struct kvi_index_row row;
	uint32_t use;
};

/* The first id of a row that an index made from archives has not. */
static kvarc_ret find_first(struct kvi_save_plan *p, struct kvi_index_row *row)
{
	kvarc_ret ret = row->has_first ? KVARC_OK : kvi_rows_read(p->s, row, &p->other, false);
	if (ret || row->has_first)
		return ret;
	if (!p->other.has_ids)
		return KVARC_END;
	row->has_first = true;
	row->first = kvi_veil_first(p->veil, row->parent, p->other.ids[0]);
	(void)kvi_index_set_first(p->s->index, row->row, row->first);
	return KVARC_OK;
}

/* Leading tokens with equal ids and positions. */
static uint32_t equal_ids(const struct kvi_store_rows *a, const struct kvi_store_rows *b)
{
	uint32_t n = 0;
	while (n < a->n && n < b->n && a->ids[n] == b->ids[n] && a->positions[n] == b->positions[n])
		n++;
	return n;
}

/* Of n leading tokens those with equal elements. */
static uint32_t equal_elements(const struct kvi_store_rows *a, const struct kvi_store_rows *b,
                               uint32_t n)
{
	for (size_t i = 0; i < a->geometry->n_tensors; i++) {
		const kvarc_view *x = &a->views[i], *y = &b->views[i];
		uint32_t k = 0;
		if (!x->data)
			continue;
		while (k < n && memcmp((const uint8_t *)x->const_data + k * x->token_stride,
		                       (const uint8_t *)y->const_data + k * y->token_stride,
		                       x->token_stride) == 0)
			k++;
		n = k;
	}
	return n;
}

/* How many tokens a candidate shares; decoded only when it may be more than the best one's. */
static kvarc_ret compare(struct kvi_save_plan *p, const struct kvi_index_row *row,
                         struct kept_candidate *best)
{
	kvarc_ret ret = kvi_rows_read(p->s, row, &p->other, false);
	if (ret || !p->other.has_ids || equal_ids(&p->rows, &p->other) <= best->use)
		return ret;
	const uint32_t n = equal_ids(&p->rows, &p->other);
	ret = kvi_rows_read(p->s, row, &p->other, true);
	if (ret)
		return ret;
	const uint32_t use = equal_elements(&p->rows, &p->other, n);
	if (use > best->use)
		*best = (struct kept_candidate){ *row, use };
	return KVARC_OK;
}

static kvarc_ret find_best(struct kvi_save_plan *p, uint32_t track, struct kept_candidate *best)
{
	const struct kvi_track_plan *t = &p->tracks[track];
	struct kvi_index_row *rows = kvi_array(&p->s->alloc, CHILDREN_MOST, sizeof *rows);
	size_t n = 0, compared = 0;
	if (!rows)
		return kvi_fail_alloc(p->s->error, &p->s->alloc);
	const uint64_t parent = kvi_veil_word(p->veil, t->chain);
	const int32_t first = kvi_veil_first(p->veil, parent, p->rows.ids[0]);
	kvarc_ret ret = kvi_index_children(p->s->index, p->name_space, parent, first, rows,
	                                   CHILDREN_MOST, &n);
	for (size_t i = 0; i < n && !ret && compared < CANDIDATES_MOST; i++) {
		ret = find_first(p, &rows[i]);
		if (!ret && rows[i].first == first) {
			ret = compare(p, &rows[i], best);
			compared++;
		}
		if (ret && !kvi_plan_final(p, ret))
			ret = KVARC_OK;
	}
	kvi_free(&p->s->alloc, rows);
	return ret;
}

/* p->other has its tokens again, p->rows those of the file. */
static kvarc_ret add_piece(struct kvi_save_plan *p, uint32_t track,
                           const struct kept_candidate *best)
{
	struct kvi_track_plan *t = &p->tracks[track];
	struct kvi_piece_kept *k = kvi_plan_add(p, track);
	if (!k)
		return kvi_alloc_error(&p->s->alloc);
	k->stored.track = track;
	k->stored.n = best->row.n;
	k->stored.t0 = t->kept;
	k->stored.bytes = kvi_plan_bytes(p, track, best->row.n);
	k->stored.has_chain = 1;
	memcpy(k->pack, best->row.id, 16);
	k->first = p->rows.ids[0];
	k->use = best->use;
	kvarc_ret ret = kvarc_content_digest(p->g, track, best->row.n, p->other.ids,
	                                     p->other.positions, p->other.views, k->stored.digest);
	if (!ret)
		ret = kvarc_chain_next(t->chain, track, best->row.n, p->other.ids,
		                       p->other.positions, k->stored.chain);
	if (!ret)
		ret = kvarc_chain_next(t->chain, track, best->use, p->rows.ids, p->rows.positions,
		                       k->chain);
	ret = kvi_fail_memory(p->s->error, ret, &p->s->alloc);
	if (!ret)
		ret = kvi_plan_digest(p, best->use, k->digest);
	if (!ret)
		ret = kvi_piece_cut(p, k);
	memcpy(t->chain, k->chain, 16);
	t->kept += best->use;
	p->kept += best->use;
	p->kept_bytes += kvi_plan_bytes(p, track, best->use);
	return ret;
}

kvarc_ret kvi_plan_partial(struct kvi_save_plan *p, uint32_t track)
{
	const struct kvi_track_plan *t = &p->tracks[track];
	const uint64_t left = t->tokens - t->kept;
	struct kept_candidate best = { .use = 0 };
	kvarc_ret ret = kvi_plan_read(p, track, t->kept,
	                              (uint32_t)(left < KVI_SEGMENT_MOST ? left : KVI_SEGMENT_MOST),
	                              true);
	if (!ret)
		ret = find_best(p, track, &best);
	/* A cut takes effect with the next segment: one token at least is written. */
	if (best.use == left)
		best.use--;
	if (ret || !best.use)
		return ret;
	ret = kvi_rows_read(p->s, &best.row, &p->other, true);
	return ret ? ret : add_piece(p, track, &best);
}
