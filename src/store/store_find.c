/* SPDX-License-Identifier: BSD-3-Clause */
/* store_find.c - the sessions that begin with the token ids of a file */
#include "config.h"

#include "store_state.h"

#include <stdio.h>
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

enum { MODEL_BYTES = 128 };

struct found_session {
	char name[KVI_SESSION_MAX + 1];
	char model[MODEL_BYTES]; /* "": not known */
	uint64_t number, tokens, common;
	uint8_t id[16];
	bool encrypted;
};

struct finding {
	struct kvarc_store *s;
	kvarc_import *im;
	uint8_t root[16];
	struct kvi_list sessions; /* struct found_session */
	struct kvi_list segments; /* struct found_segment: segments of the current session */
	struct kvi_veil veil;     /* key of the hashes of its archive in the index */
	uint64_t name_space;      /* namespace of its archive, as the index has it */
	bool foreign; /* its chain values begin with another root than that of the file */
	struct kvi_store_rows rows; /* tokens of the store */
	int32_t ids[KVI_SEGMENT_MOST], positions[KVI_SEGMENT_MOST];
	uint64_t tokens;
};

/* ----- what there is ------------------------------------------------ */

static int add_session(void *opaque, const kvarc_session_version *version)
{
	struct finding *f = opaque;
	struct found_session *to = kvi_list_add(&f->sessions, &f->s->alloc, sizeof *to);
	if (!to)
		return 1;
	strcpy(to->name, version->session);
	to->number = version->number;
	to->tokens = version->tokens;
	memcpy(to->id, version->archive, 16);
	to->encrypted = version->encrypted;
	to->model[0] = '\0';
	return 0;
}

static kvarc_ret add_segment(struct finding *finding, const struct found_segment *segment)
{
	struct found_segment *to = kvi_list_add(&finding->segments, &finding->s->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(finding->s->error, &finding->s->alloc);
	*to = *segment;
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

static kvarc_ret list_segments(struct finding *finding, const struct found_session *session)
{
	int64_t pack;
	uint64_t unreadable = 0;
	finding->segments.n = 0;
	kvarc_ret ret = kvi_index_find_pack(finding->s->index, session->id, &pack);
	if (ret == KVARC_END) {
		ret = kvi_index_refresh(finding->s, finding->s->index, NULL, NULL, &unreadable);
		if (!ret)
			ret = kvi_index_find_pack(finding->s->index, session->id, &pack);
	}
	if (!ret)
		ret = kvi_index_rows(finding->s->index, pack, add_row, finding);
	if (!ret)
		ret = kvi_index_refs(finding->s->index, pack, add_ref, finding);
	if (!ret && finding->segments.n)
		qsort(finding->segments.p, finding->segments.n, sizeof(struct found_segment),
		      by_t0);
	return ret;
}

/* ----- what is in common ------------------------------------------------ */

static kvarc_ret read_ids(struct finding *finding, uint64_t t0, uint32_t *n)
{
	const uint64_t left = finding->tokens - t0;
	*n = left < KVI_SEGMENT_MOST ? (uint32_t)left : KVI_SEGMENT_MOST;
	kvarc_ret ret = kvarc_import_read_tokens(finding->im, 0, t0, *n, finding->ids,
	                                         finding->positions);
	return ret ? kvi_fail(finding->s->error, KVARC_IO,
	                      "reading the token ids of the file failed")
	           : KVARC_OK;
}

/* Counts the leading tokens of a segment whose ids the file has, too. An archive with another root
 * has another identity or other RoPEs, and may have the same tokens all the same. END: the segment
 * cannot be read, or follows other tokens. */
static kvarc_ret compare_ids(struct finding *finding, const struct found_segment *segment,
                             const uint8_t before[16], uint32_t n, uint32_t *common)
{
	struct kvi_index_row row;
	kvarc_ret ret = kvi_content_find(finding->s, NULL, finding->name_space, segment->key, NULL,
	                                 &row);
	*common = 0;
	if (!ret && row.parent != kvi_veil_word(&finding->veil, before)) {
		finding->foreign |= segment->t0 == 0;
		ret = finding->foreign ? KVARC_OK : KVARC_END;
	}
	if (!ret)
		ret = kvi_rows_read(finding->s, &row, &finding->rows, false);
	if (ret || !finding->rows.has_ids)
		return ret;
	n = n < segment->left ? n : segment->left;
	n = n < row.n ? n : row.n;
	while (*common < n && finding->rows.ids[*common] == finding->ids[*common])
		++*common;
	return KVARC_OK;
}

static bool is_final(kvarc_ret ret)
{
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO;
}

/* Advances by one segment; *t stays where the tokens differ. */
static kvarc_ret step(struct finding *finding, const struct found_segment *segment,
                      uint8_t chain[16], uint64_t *t)
{
	uint8_t next[16];
	uint32_t n, common;
	kvarc_ret ret = read_ids(finding, *t, &n);
	if (ret)
		return ret;
	if (n >= segment->n && segment->left == segment->n && !finding->foreign) {
		ret = kvarc_chain_next(chain, 0, segment->n, finding->ids, finding->positions,
		                       next);
		if (ret || kvi_veil_equal(&finding->veil, segment->key, next)) {
			memcpy(chain, next, 16);
			*t += segment->n;
			return kvi_fail_memory(finding->s->error, ret, &finding->s->alloc);
		}
	}
	ret = compare_ids(finding, segment, chain, n, &common);
	if (ret)
		return is_final(ret) ? ret : KVARC_END;
	if (common == segment->left && common)
		ret = kvarc_chain_next(chain, 0, common, finding->ids, finding->positions, chain);
	*t += common;
	return ret ? kvi_fail_memory(finding->s->error, ret, &finding->s->alloc)
	       : common == segment->left ? KVARC_OK
	                                 : KVARC_END;
}

/* AUTH: it is encrypted, and no key opens it: nothing is in common. */
static kvarc_ret find_veil(struct finding *finding, const struct found_session *session)
{
	kvarc_reader *r;
	kvarc_ret ret = KVARC_OK;
	finding->veil = (struct kvi_veil){ 0 };
	if (session->encrypted)
		ret = kvi_pack_reader(finding->s, session->id, false, &r);
	if (session->encrypted && !ret)
		finding->veil = kvi_pack_find(finding->s, session->id)->veil;
	finding->name_space = kvi_veil_space(&finding->veil, finding->s->name_space);
	return ret;
}

/* Whether two caches have the same tensors, whatever is known of their heads and RoPEs. */
static bool alike(const kvarc_geometry *one, const kvarc_geometry *other)
{
	bool same = one->n_tensors == other->n_tensors && one->n_tracks == other->n_tracks;
	for (size_t i = 0; same && i < one->n_tensors; i++) {
		const kvarc_tensor *x = &one->tensors[i], *y = &other->tensors[i];
		same = x->track == y->track && x->layer == y->layer && x->kind == y->kind &&
		       x->role == y->role && x->dtype == y->dtype &&
		       (uint64_t)x->heads * x->channels == (uint64_t)y->heads * y->channels;
	}
	return same;
}

/* Looks at the archive of a session with common tokens: other tensors have none in common; the
 * name of the model. */
static kvarc_ret look_at(struct finding *finding, struct found_session *session)
{
	kvarc_reader *r;
	kvarc_ret ret = kvi_pack_reader(finding->s, session->id, true, &r);
	if (ret)
		return ret;
	if (!alike(kvarc_import_geometry(finding->im), kvarc_reader_geometry(r)))
		session->common = 0;
	const char *model = kvarc_reader_identity(r, "model");
	if (!model)
		model = kvarc_reader_identity(r, "engine_model");
	snprintf(session->model, sizeof session->model, "%s", model ? model : "");
	return KVARC_OK;
}

static kvarc_ret compare(struct finding *finding, struct found_session *session)
{
	uint8_t chain[16];
	uint64_t t = 0;
	memcpy(chain, finding->root, 16);
	finding->foreign = false;
	kvarc_ret ret = find_veil(finding, session);
	if (!ret)
		ret = list_segments(finding, session);
	for (size_t i = 0; i < finding->segments.n && !ret && t < finding->tokens; i++) {
		const struct found_segment *y = KVI_LIST(struct found_segment, finding->segments,
		                                         i);
		ret = y->t0 == t && y->chained ? step(finding, y, chain, &t) : KVARC_END;
	}
	session->common = t;
	if (!is_final(ret) && t)
		ret = look_at(finding, session);
	return is_final(ret) ? ret : KVARC_OK;
}

static int most_first(const void *a, const void *b)
{
	const struct found_session *x = a, *y = b;
	if (x->common != y->common)
		return x->common > y->common ? -1 : 1;
	return strcmp(x->name, y->name);
}

static kvarc_ret find_all(struct finding *finding)
{
	kvarc_ret ret = kvarc_store_list(finding->s, add_session, finding);
	if (ret == KVARC_DATA || ret == KVARC_OPTIONS) /* a version cannot be read */
		ret = KVARC_OK;
	for (size_t i = 0; i < finding->sessions.n && !ret; i++)
		ret = compare(finding, KVI_LIST(struct found_session, finding->sessions, i));
	if (!ret && finding->sessions.n)
		qsort(finding->sessions.p, finding->sessions.n, sizeof(struct found_session),
		      most_first);
	return ret;
}

static void report(const struct finding *finding, kvarc_found_fn fn, void *opaque)
{
	for (size_t i = 0; i < finding->sessions.n; i++) {
		const struct found_session *x = KVI_LIST(struct found_session, finding->sessions,
		                                         i);
		const kvarc_found found = { .session = x->name,
			                    .number = x->number,
			                    .tokens = x->tokens,
			                    .common_tokens = x->common,
			                    .model = *x->model ? x->model : NULL };
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
