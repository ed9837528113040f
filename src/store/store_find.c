/* SPDX-License-Identifier: BSD-3-Clause */
/* store_find.c - the sessions that begin with the token ids of a file */
#include "config.h"

#include "store_state.h"

#include <stdlib.h>
#include <string.h>

#include "files/pack_parts.h"

/* A segment of a session's last version, on the first track. */
struct found_segment {
	uint64_t t0;
	uint32_t n, left;
	bool chained;
	uint8_t key[16];
};

struct found_session {
	char name[KVI_SESSION_MAX + 1];
	uint64_t number, tokens, common;
	uint8_t id[16];
	bool encrypted;
};

struct finding {
	struct kvarc_store *s;
	kvarc_import *im;
	uint8_t root[16];
	struct kvi_list sessions;   /* struct found_session */
	struct kvi_list segments;   /* struct found_segment: of the session in hand */
	struct kvi_veil veil;       /* of its archive, */
	uint64_t name_space;        /* as the index has it */
	struct kvi_store_rows rows; /* of the store */
	int32_t ids[KVI_SEGMENT_MOST], positions[KVI_SEGMENT_MOST];
	uint64_t tokens;
};

/* ----- what there is ------------------------------------------------ */

static int add_session(void *opaque, const kvarc_session_version *v)
{
	struct finding *f = opaque;
	struct found_session *to = kvi_list_add(&f->sessions, &f->s->alloc, sizeof *to);
	if (!to)
		return 1;
	strcpy(to->name, v->session);
	to->number = v->number;
	to->tokens = v->tokens;
	memcpy(to->id, v->archive, 16);
	to->encrypted = v->encrypted;
	return 0;
}

static kvarc_ret add_segment(struct finding *f, const struct found_segment *x)
{
	struct found_segment *to = kvi_list_add(&f->segments, &f->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(f->s->error, &f->s->alloc);
	*to = *x;
	return KVARC_OK;
}

static kvarc_ret add_row(void *opaque, const struct kvi_index_row *row)
{
	struct found_segment x = { row->t0, row->n, row->n, row->has_chain, { 0 } };
	memcpy(x.key, row->chain, 16);
	return row->track ? KVARC_OK : add_segment(opaque, &x);
}

static kvarc_ret add_ref(void *opaque, const struct kvi_index_ref *ref)
{
	struct found_segment x = { ref->t0, ref->n, ref->left, ref->has_chain, { 0 } };
	memcpy(x.key, ref->key, 16);
	return ref->track ? KVARC_OK : add_segment(opaque, &x);
}

static int by_t0(const void *a, const void *b)
{
	const struct found_segment *x = a, *y = b;
	return (x->t0 > y->t0) - (x->t0 < y->t0);
}

static kvarc_ret list_segments(struct finding *f, const struct found_session *x)
{
	int64_t pack;
	uint64_t unreadable = 0;
	f->segments.n = 0;
	kvarc_ret ret = kvi_index_find_pack(f->s->index, x->id, &pack);
	if (ret == KVARC_END) {
		ret = kvi_index_refresh(f->s, f->s->index, NULL, NULL, &unreadable);
		if (!ret)
			ret = kvi_index_find_pack(f->s->index, x->id, &pack);
	}
	if (!ret)
		ret = kvi_index_rows(f->s->index, pack, add_row, f);
	if (!ret)
		ret = kvi_index_refs(f->s->index, pack, add_ref, f);
	if (!ret && f->segments.n)
		qsort(f->segments.p, f->segments.n, sizeof(struct found_segment), by_t0);
	return ret;
}

/* ----- what is in common ------------------------------------------------ */

static kvarc_ret read_ids(struct finding *f, uint64_t t0, uint32_t *n)
{
	const uint64_t left = f->tokens - t0;
	*n = left < KVI_SEGMENT_MOST ? (uint32_t)left : KVI_SEGMENT_MOST;
	kvarc_ret ret = kvarc_import_read_tokens(f->im, 0, t0, *n, f->ids, f->positions);
	return ret ? kvi_fail(f->s->error, KVARC_IO, "reading the token ids of the file failed")
	           : KVARC_OK;
}

/* Leading tokens of a segment that the file has, too, by its ids. END: it cannot be read, or
 * follows something else. */
static kvarc_ret compare_ids(struct finding *f, const struct found_segment *x,
                             const uint8_t before[16], uint32_t n, uint32_t *common)
{
	struct kvi_index_row row;
	kvarc_ret ret = kvi_content_find(f->s, NULL, f->name_space, x->key, NULL, &row);
	*common = 0;
	if (!ret && row.parent != kvi_veil_word(&f->veil, before))
		ret = KVARC_END;
	if (!ret)
		ret = kvi_rows_read(f->s, &row, &f->rows, false);
	if (ret || !f->rows.has_ids)
		return ret;
	n = n < x->left ? n : x->left;
	n = n < row.n ? n : row.n;
	while (*common < n && f->rows.ids[*common] == f->ids[*common])
		++*common;
	return KVARC_OK;
}

static bool is_final(kvarc_ret ret)
{
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO;
}

/* One segment further; *t stays where the tokens differ. */
static kvarc_ret step(struct finding *f, const struct found_segment *x, uint8_t chain[16],
                      uint64_t *t)
{
	uint8_t next[16];
	uint32_t n, common;
	kvarc_ret ret = read_ids(f, *t, &n);
	if (ret)
		return ret;
	if (n >= x->n && x->left == x->n) {
		ret = kvarc_chain_next(chain, 0, x->n, f->ids, f->positions, next);
		if (ret || kvi_veil_equal(&f->veil, x->key, next)) {
			memcpy(chain, next, 16);
			*t += x->n;
			return kvi_fail_memory(f->s->error, ret, &f->s->alloc);
		}
	}
	ret = compare_ids(f, x, chain, n, &common);
	if (ret)
		return is_final(ret) ? ret : KVARC_END;
	if (common == x->left && common)
		ret = kvarc_chain_next(chain, 0, common, f->ids, f->positions, chain);
	*t += common;
	return ret                 ? kvi_fail_memory(f->s->error, ret, &f->s->alloc)
	       : common == x->left ? KVARC_OK
	                           : KVARC_END;
}

/* AUTH: it is encrypted, and no key opens it: nothing is in common. */
static kvarc_ret find_veil(struct finding *f, const struct found_session *x)
{
	kvarc_reader *r;
	kvarc_ret ret = KVARC_OK;
	f->veil = (struct kvi_veil){ 0 };
	if (x->encrypted)
		ret = kvi_pack_reader(f->s, x->id, false, &r);
	if (x->encrypted && !ret)
		f->veil = kvi_pack_find(f->s, x->id)->veil;
	f->name_space = kvi_veil_space(&f->veil, f->s->name_space);
	return ret;
}

static kvarc_ret compare(struct finding *f, struct found_session *x)
{
	uint8_t chain[16];
	uint64_t t = 0;
	memcpy(chain, f->root, 16);
	kvarc_ret ret = find_veil(f, x);
	if (!ret)
		ret = list_segments(f, x);
	for (size_t i = 0; i < f->segments.n && !ret && t < f->tokens; i++) {
		const struct found_segment *y = KVI_LIST(struct found_segment, f->segments, i);
		ret = y->t0 == t && y->chained ? step(f, y, chain, &t) : KVARC_END;
	}
	x->common = t;
	return is_final(ret) ? ret : KVARC_OK;
}

static int most_first(const void *a, const void *b)
{
	const struct found_session *x = a, *y = b;
	if (x->common != y->common)
		return x->common > y->common ? -1 : 1;
	return strcmp(x->name, y->name);
}

static kvarc_ret find_all(struct finding *f)
{
	kvarc_ret ret = kvarc_store_list(f->s, add_session, f);
	if (ret == KVARC_DATA || ret == KVARC_OPTIONS) /* of one; the others were given */
		ret = KVARC_OK;
	for (size_t i = 0; i < f->sessions.n && !ret; i++)
		ret = compare(f, KVI_LIST(struct found_session, f->sessions, i));
	if (!ret && f->sessions.n)
		qsort(f->sessions.p, f->sessions.n, sizeof(struct found_session), most_first);
	return ret;
}

static void report(const struct finding *f, kvarc_found_fn fn, void *opaque)
{
	for (size_t i = 0; i < f->sessions.n; i++) {
		const struct found_session *x = KVI_LIST(struct found_session, f->sessions, i);
		const kvarc_found found = { .session = x->name,
			                    .number = x->number,
			                    .tokens = x->tokens,
			                    .common_tokens = x->common };
		if (!x->common || fn(opaque, &found))
			return;
	}
}

kvarc_ret kvarc_store_find(kvarc_store *s, kvarc_import *im, kvarc_found_fn fn, void *opaque)
{
	int32_t id;
	if (!s)
		return KVARC_PROG;
	if (!im || !fn)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_find: an argument is NULL");
	struct finding *f = kvi_calloc(&s->alloc, 1, sizeof *f);
	if (!f)
		return kvi_fail_alloc(s->error, &s->alloc);
	f->s = s;
	f->im = im;
	f->tokens = kvarc_import_tokens(im, 0);
	kvarc_ret ret = kvarc_import_identity(im, "namespace", s->name_space);
	if (!ret && (!f->tokens || kvarc_import_read_tokens(im, 0, 0, 1, &id, NULL)))
		ret = kvi_fail(s->error, KVARC_OPTIONS, "the file has no token ids to look for");
	if (!ret)
		ret = kvi_pack_chain_root(im, f->root, s->error);
	if (!ret)
		ret = kvi_rows_make(s, &f->rows, kvarc_import_geometry(im), 0);
	if (!ret)
		ret = find_all(f);
	if (!ret)
		report(f, fn, opaque);
	kvi_rows_free(s, &f->rows);
	kvi_free(&s->alloc, f->sessions.p);
	kvi_free(&s->alloc, f->segments.p);
	explicit_bzero(&f->veil, sizeof f->veil);
	kvi_free(&s->alloc, f);
	return ret;
}
