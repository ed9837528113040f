/* SPDX-License-Identifier: BSD-3-Clause */
/* store_save.c - saves a file as the next version of a session */
#include "config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "new_archive.h"
#include "store_state.h"
#include "files/import.h"
#include "files/pack_parts.h"
#include "util/arguments.h"
#include "util/bytes.h"
#include "kvarc.h"
#include "store/veil.h"
#include "util/list.h"

/* Plan of one track of the file. */
struct track_plan {
	struct kvi_list pieces; /* struct piece_kept */
	uint64_t tokens, kept;
	bool has_ids;
	bool chained;      /* whether the shared tokens have a chain value */
	uint8_t chain[16]; /* the last chain value, or the root */
};

/* A file on its way into the store. */
struct save_plan {
	struct kvarc_store *s;
	kvarc_import *im;
	const kvarc_geometry *g;
	const struct kvi_veil *veil; /* key of the hashes of archives that may be shared */
	uint64_t name_space;         /* namespace, as the index has it */
	bool alone;                  /* no archives are searched */
	const uint8_t *last;  /* id of the archive of the session's last version; NULL: none */
	bool looked;          /* `ends` has what that archive has of them */
	struct kvi_list ends; /* struct end_segment */
	uint8_t root[16];
	struct track_plan *tracks;
	struct kvi_store_rows rows, other; /* current track: of the file, of the store */
	uint64_t kept, tokens, kept_bytes;
};

/* ==== Whether versions of a session are encrypted, as their archives show it ==== */

#define ASK "save with --encrypt or --decrypt"

/* Finds from the archive of the last version whether the next one is encrypted, and checks that the
 * keys fit. */
static kvarc_ret look(struct kvarc_store *store, const struct kvi_needs *last, bool *encrypt)
{
	kvarc_reader *r;
	kvarc_ret ret = kvi_pack_reader(store, last->pack, false, &r);
	if (ret == KVARC_AUTH)
		return kvi_fail(store->error, ret,
		                "store: the last version of the session is encrypted, and %s",
		                store->options.keys ? "no key that was given opens it"
		                                    : "no key was given");
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return ret;
	/* A missing or damaged archive does not show that the session is not encrypted. */
	*encrypt = last->encrypted ||
	           (ret ? store->options.keys != NULL : kvi_pack_find(store, last->pack)->veil.on);
	if (*encrypt && !store->options.keys)
		return kvi_fail(store->error, KVARC_AUTH,
		                "store: the session is encrypted, and no key was given");
	if (!*encrypt && store->options.keys)
		return kvi_fail(store->error, KVARC_OPTIONS,
		                "store: the last version of the session is not encrypted, "
		                "although a key was given: " ASK);
	return KVARC_OK;
}

/*
 * Whether the next version of a session is encrypted. asked: kvarc_save_options.encrypt. read: what
 * kvi_version_read returned for the last version, with store->error; last: of that, where it is OK.
 * A manifest is not trusted to say that a session is not encrypted: its archive is looked at.
 * Returns OK; AUTH (no key opens the last version); OPTIONS (not asked, and what the session is
 * cannot be read, or it is not encrypted although there are keys); DATA, IO, MEM, MEMLIMIT.
 */
static kvarc_ret save_encrypts(struct kvarc_store *store, int asked, kvarc_ret read,
                               const struct kvi_needs *last, bool *encrypt)
{
	*encrypt = asked > 0;
	if (read == KVARC_END)
		return KVARC_OK;
	if (read && read != KVARC_DATA && read != KVARC_OPTIONS)
		return read;
	if (asked)
		return KVARC_OK;
	if (read) {
		const kvarc_error why = *store->error;
		return kvi_fail(store->error, KVARC_OPTIONS,
		                "%s: the last version cannot be read, and so it is not known "
		                "whether the session is encrypted: " ASK,
		                why.text);
	}
	return look(store, last, encrypt);
}

/* ==== Whether an archive of a store loads as the file that is saved ==== */

/* Results of a check. */
enum save_verdict {
	SAVE_SAME,
	SAVE_OTHER,  /* the archive loads as another file */
	SAVE_DAMAGED /* no load is possible; the damaged archive is marked in the index */
};

/* Marks the damaged archive in the index: the one with this id, or one that it needs. */
static kvarc_ret mark_damage(struct kvarc_store *store, const struct kvi_store_content *content,
                             const uint8_t id[16])
{
	const kvarc_error was = *store->error;
	kvarc_ret ret = kvi_doubt_damaged(store, content->has_damaged ? content->damaged : id);
	*store->error = was;
	return ret == KVARC_END ? KVARC_OK : ret;
}

static bool is_lost(kvarc_ret ret)
{
	return ret == KVARC_DATA || ret == KVARC_FORMAT || ret == KVARC_STORE;
}

/*
 * Loads an archive as kvarc_store_load does, with segments of other archives from the store, and
 * compares what comes with the files of an import. source NULL: the archive is in the store, else
 * it is not put yet. Returns OK (*verdict is set), IO, MEM, MEMLIMIT, AUTH, DATA (the index is
 * damaged), and what readers return of archives that are whole.
 */
static kvarc_ret save_check(struct kvarc_store *store, const uint8_t id[16],
                            const kvarc_source *source, const kvarc_import *im,
                            enum save_verdict *verdict)
{
	struct kvi_store_content content = kvi_content_of(store, false);
	struct kvi_open_pack p;
	kvarc_ret ret = source ? kvi_pack_open_source(store, &p, id, source, &content)
	                       : kvi_pack_open(store, &p, id, false, &content);
	const bool opened = !ret;
	*verdict = SAVE_SAME;
	if (opened) {
		ret = kvi_import_compare(im, p.r, &p.error);
		if (ret == KVARC_END)
			*verdict = SAVE_OTHER;
		else if (ret && !content.failed)
			kvi_fail(store->error, ret, "store: %s: %s", p.key, p.error.text);
		kvi_pack_close(&p);
	}
	if (ret == KVARC_END && opened)
		return KVARC_OK;
	if (content.failed)
		return content.failed;
	if (ret != KVARC_END && !is_lost(ret))
		return ret;
	*verdict = SAVE_DAMAGED;
	return mark_damage(store, &content, id);
}

/* ==== Which tokens of a file a store has already, in whole segments ==== */

/* A segment of the store that stands for tokens of the file, for the first `use` of its own. */
struct piece_kept {
	kvarc_stored stored;
	uint32_t use;
	uint8_t pack[16]; /* id of the archive that holds it */
	int32_t *tokens;  /* cut: ids, then positions, of all its tokens; NULL: those of the file */
	uint8_t digest[16]; /* cut: digest of the tokens that are used */
	uint8_t chain[16];  /* cut: chain value of these tokens */
	int32_t first;
	uint8_t before[16]; /* the chain value of the tokens before it */
};

enum { MATCHES_MOST = 16 };

/* ----- tokens of the file ------------------------------------------------ */

/* Bytes of n tokens of a track. */
static uint64_t plan_bytes(const struct save_plan *plan, uint32_t track, uint32_t n)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < plan->g->n_tensors; i++) {
		const kvarc_tensor *t = &plan->g->tensors[i];
		if (t->track == track)
			bytes += (uint64_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
	}
	return n * bytes;
}

static kvarc_ret fail_read(struct save_plan *plan)
{
	return kvi_fail(plan->s->error, KVARC_IO, "reading the file that is saved failed");
}

static kvarc_ret read_elements(struct save_plan *plan, uint32_t track, uint64_t t0, uint32_t n)
{
	for (size_t i = 0; i < plan->g->n_tensors; i++) {
		const kvarc_tensor *t = &plan->g->tensors[i];
		if (t->track == track && kvarc_import_fetch(plan->im, (uint32_t)i, 0, t->heads, t0,
		                                            n, plan->rows.views[i].data))
			return fail_read(plan);
	}
	return KVARC_OK;
}

/* Tokens of the import from t0 on into plan->rows, n of them, 1..256; elements: their elements,
 * too. Returns OK, MEM, IO. */
static kvarc_ret plan_read(struct save_plan *plan, uint32_t track, uint64_t t0, uint32_t n,
                           bool elements)
{
	struct kvi_store_rows *rows = &plan->rows;
	rows->n = n;
	rows->has_ids = plan->tracks[track].has_ids;
	kvarc_ret ret = kvarc_import_read_tokens(plan->im, track, t0, n,
	                                         rows->has_ids ? rows->ids : NULL, rows->positions);
	if (ret)
		return kvi_fail(plan->s->error, ret == KVARC_MEM ? ret : KVARC_IO,
		                "reading the token ids of the file that is saved failed");
	return elements ? read_elements(plan, track, t0, n) : KVARC_OK;
}

/* The content digest of plan->rows. Returns OK, MEM. */
static kvarc_ret plan_digest(struct save_plan *plan, uint32_t n, uint8_t digest[16])
{
	const struct kvi_store_rows *rows = &plan->rows;
	kvarc_ret ret = kvarc_content_digest(plan->g, rows->track, n,
	                                     rows->has_ids ? rows->ids : NULL, rows->positions,
	                                     rows->views, digest);
	return kvi_fail_memory(plan->s->error, ret, &plan->s->alloc);
}

/* ----- pieces ------------------------------------------------ */

/* A new piece at the end of a track; NULL: no memory. */
static struct piece_kept *plan_add(struct save_plan *plan, uint32_t track)
{
	struct piece_kept *k = kvi_list_add(&plan->tracks[track].pieces, &plan->s->alloc,
	                                    sizeof *k);
	if (k)
		memcpy(k->before, plan->tracks[track].chain, 16);
	else
		kvi_fail_alloc(plan->s->error, &plan->s->alloc);
	return k;
}

/* Makes a piece cut, with the tokens of a whole segment in plan->other. Returns OK, MEM. */
static kvarc_ret piece_cut(struct save_plan *plan, struct piece_kept *kept)
{
	const uint32_t n = plan->other.n;
	kept->tokens = kvi_array(&plan->s->alloc, n, 2 * sizeof *kept->tokens);
	if (!kept->tokens)
		return kvi_fail_alloc(plan->s->error, &plan->s->alloc);
	memcpy(kept->tokens, plan->other.ids, n * sizeof *kept->tokens);
	memcpy(kept->tokens + n, plan->other.positions, n * sizeof *kept->tokens);
	return KVARC_OK;
}

static kvarc_ret add_whole(struct save_plan *plan, const struct kvi_index_row *row, uint32_t track,
                           uint64_t t0, const uint8_t *chain, const uint8_t digest[16])
{
	struct piece_kept *k = plan_add(plan, track);
	if (!k)
		return kvi_alloc_error(&plan->s->alloc);
	k->stored.track = track;
	k->stored.n = k->use = row->n;
	k->stored.t0 = t0;
	k->stored.bytes = plan_bytes(plan, track, row->n);
	k->stored.has_chain = row->has_chain;
	if (chain)
		memcpy(k->stored.chain, chain, 16);
	memcpy(k->stored.digest, digest, 16);
	memcpy(k->pack, row->id, 16);
	return KVARC_OK;
}

/* The hashes of a whole segment, which lies in plan->other, as they are in its archive. END:
 * they are not those of the index. */
static kvarc_ret whole_hashes(struct save_plan *plan, const struct kvi_index_row *row,
                              kvarc_stored *st)
{
	const struct kvi_store_rows *o = &plan->other;
	if (!o->has_ids)
		return KVARC_END;
	kvarc_ret ret = kvarc_chain_next(plan->tracks[st->track].chain, st->track, o->n, o->ids,
	                                 o->positions, st->chain);
	if (!ret)
		ret = kvarc_content_digest(plan->g, st->track, o->n, o->ids, o->positions, o->views,
		                           st->digest);
	if (!ret && (!kvi_veil_equal(plan->veil, row->whole_chain, st->chain) ||
	             !kvi_veil_equal(plan->veil, row->whole_digest, st->digest)))
		return KVARC_END;
	return kvi_fail_memory(plan->s->error, ret, &plan->s->alloc);
}

/* Tokens that another version has cut off a segment: the segment is named, and cut again. Returns
 * END when it is in no archive any more. */
static kvarc_ret add_cut(struct save_plan *plan, const struct kvi_index_row *row, uint32_t track,
                         uint64_t t0, const uint8_t *chain, const uint8_t digest[16])
{
	struct kvi_index_row whole;
	kvarc_stored st = { .track = track, .t0 = t0, .has_chain = 1 };
	kvarc_ret ret = kvi_content_find(plan->s, plan->g, row->name_space, row->whole_chain,
	                                 row->whole_digest, &whole);
	if (!ret && whole.n != row->whole_n)
		ret = KVARC_END;
	if (!ret)
		ret = kvi_rows_read(plan->s, &whole, &plan->other, true);
	if (!ret)
		ret = whole_hashes(plan, row, &st);
	struct piece_kept *k = ret ? NULL : plan_add(plan, track);
	if (!k)
		return ret ? ret : kvi_alloc_error(&plan->s->alloc);
	st.n = whole.n;
	st.bytes = plan_bytes(plan, track, whole.n);
	k->stored = st;
	memcpy(k->pack, whole.id, 16);
	memcpy(k->digest, digest, 16);
	memcpy(k->chain, chain, 16);
	k->first = plan->other.ids[0];
	k->use = row->n;
	return piece_cut(plan, k);
}

/* ----- the walk ------------------------------------------------ */

/* Whether a failure stops the save, and not only a look-up, as damage of an archive does. */
static bool plan_final(const struct save_plan *plan, kvarc_ret ret)
{
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO ||
	       kvi_index_damaged(plan->s->index);
}

/* The content digest of a row of the index, from the archive where it is not in the index. */
static kvarc_ret row_digest(struct save_plan *plan, struct kvi_index_row *row)
{
	struct kvi_index_row whole = *row;
	kvarc_ret ret = KVARC_OK;
	if (row->has_digest)
		return KVARC_OK;
	if (row->whole_n)
		ret = kvi_content_find(plan->s, plan->g, row->name_space, row->whole_chain,
		                       row->whole_digest, &whole);
	if (!ret)
		ret = kvi_rows_read(plan->s, &whole, &plan->other, true);
	if (!ret && plan->other.n < row->n)
		ret = KVARC_END;
	if (!ret)
		ret = kvarc_content_digest(plan->g, plan->other.track, row->n,
		                           plan->other.has_ids ? plan->other.ids : NULL,
		                           plan->other.positions, plan->other.views, row->digest);
	row->has_digest = !ret;
	if (!ret)
		kvi_veil_hash(plan->veil, row->digest, row->digest);
	if (!ret)
		(void)kvi_index_set_known(plan->s->index, row);
	return ret;
}

/* Uses one of the rows that has the elements of the file. END: none has. */
static kvarc_ret use_row(struct save_plan *plan, struct kvi_index_row *rows, size_t count,
                         uint32_t track, uint32_t n, const uint8_t chain[16])
{
	struct track_plan *t = &plan->tracks[track];
	uint8_t digest[16];
	kvarc_ret ret = plan_read(plan, track, t->kept, n, true);
	if (!ret)
		ret = plan_digest(plan, n, digest);
	if (ret)
		return ret;
	for (size_t i = 0; i < count; i++) {
		ret = row_digest(plan, &rows[i]);
		if (!ret && kvi_veil_equal(plan->veil, rows[i].digest, digest)) {
			ret = rows[i].whole_n
			              ? add_cut(plan, &rows[i], track, t->kept, chain, digest)
			              : add_whole(plan, &rows[i], track, t->kept, chain, digest);
			if (!ret)
				return ret;
		}
		if (ret && plan_final(plan, ret))
			return ret;
	}
	return KVARC_END;
}

static void keep(struct save_plan *plan, uint32_t track, uint32_t n)
{
	plan->tracks[track].kept += n;
	plan->kept += n;
	plan->kept_bytes += plan_bytes(plan, track, n);
}

/* Adds the longest tokens of the store that follow. END: none do. */
static kvarc_ret step_chain(struct save_plan *plan, uint32_t track)
{
	struct track_plan *t = &plan->tracks[track];
	struct kvi_index_row rows[MATCHES_MOST];
	const uint64_t left = t->tokens - t->kept, parent = kvi_veil_word(plan->veil, t->chain);
	uint32_t lengths[KVI_SEGMENT_MOST];
	size_t n_lengths, count;
	kvarc_ret ret = kvi_index_lengths(plan->s->index, parent, lengths, &n_lengths);
	if (!ret && n_lengths)
		ret = plan_read(plan, track, t->kept,
		                (uint32_t)(left < KVI_SEGMENT_MOST ? left : KVI_SEGMENT_MOST),
		                false);
	for (size_t i = 0; i < n_lengths && !ret; i++) {
		uint8_t chain[16], veiled[16];
		if (lengths[i] > left)
			continue;
		ret = kvarc_chain_next(t->chain, track, lengths[i], plan->rows.ids,
		                       plan->rows.positions, chain);
		ret = kvi_fail_memory(plan->s->error, ret, &plan->s->alloc);
		kvi_veil_hash(plan->veil, veiled, chain);
		if (!ret)
			ret = kvi_index_match(plan->s->index, plan->name_space, parent, veiled,
			                      rows, MATCHES_MOST, &count);
		if (ret || !count)
			continue;
		ret = use_row(plan, rows, count, track, lengths[i], chain);
		if (ret == KVARC_END) {
			ret = KVARC_OK;
			continue;
		}
		if (ret)
			return ret;
		memcpy(t->chain, chain, 16);
		keep(plan, track, lengths[i]);
		return KVARC_OK;
	}
	return ret ? ret : KVARC_END;
}

/* n tokens without a chain value, by their content. END: the store does not have them. */
static kvarc_ret step_content(struct save_plan *plan, uint32_t track, uint32_t n)
{
	const struct track_plan *t = &plan->tracks[track];
	struct kvi_index_row row;
	uint8_t digest[16], veiled[16];
	kvarc_ret ret = plan_read(plan, track, t->kept, n, true);
	if (!ret)
		ret = plan_digest(plan, n, digest);
	if (ret)
		return ret;
	kvi_veil_hash(plan->veil, veiled, digest);
	ret = kvi_content_find(plan->s, plan->g, plan->name_space, veiled, veiled, &row);
	if (!ret && (row.n != n || row.has_chain))
		ret = KVARC_END;
	if (!ret)
		ret = add_whole(plan, &row, track, t->kept, NULL, digest);
	if (!ret)
		keep(plan, track, n);
	return ret;
}

/* A segment of the session's last version that is shorter than usual: a save ended there. */
struct end_segment {
	uint32_t track, n;
	uint64_t t0;
};

/* Fills plan->ends with those that have no chain value. What cannot be read is not shared. */
static kvarc_ret look_at_last(struct save_plan *plan)
{
	kvarc_reader *r;
	kvarc_stored segment;
	if (plan->looked || !plan->last)
		return KVARC_OK;
	plan->looked = true;
	if (kvi_pack_reader(plan->s, plan->last, false, &r) != KVARC_OK)
		return KVARC_OK;
	for (uint64_t i = 0; kvarc_reader_segment_at(r, i, &segment, NULL) == KVARC_OK; i++) {
		if (segment.has_chain || segment.n >= KVI_SEGMENT_MOST)
			continue;
		struct end_segment *end = kvi_list_add(&plan->ends, &plan->s->alloc, sizeof *end);
		if (!end)
			return kvi_fail_alloc(plan->s->error, &plan->s->alloc);
		*end = (struct end_segment){ segment.track, segment.n, segment.t0 };
	}
	return KVARC_OK;
}

/* Tokens without a chain value: a segment of the usual length, or one that the last version ends
 * with. END: there is no such one. */
static kvarc_ret step_digest(struct save_plan *plan, uint32_t track)
{
	const struct track_plan *t = &plan->tracks[track];
	const uint64_t left = t->tokens - t->kept;
	kvarc_ret ret = step_content(plan, track,
	                             left < KVI_SEGMENT_MOST ? (uint32_t)left : KVI_SEGMENT_MOST);
	if (ret != KVARC_END)
		return ret;
	ret = look_at_last(plan);
	for (size_t i = 0; i < plan->ends.n && !ret; i++) {
		const struct end_segment *end = KVI_LIST(struct end_segment, plan->ends, i);
		if (end->track != track || end->t0 != t->kept || end->n >= left)
			continue;
		ret = step_content(plan, track, end->n);
		if (ret != KVARC_END)
			return ret;
		ret = KVARC_OK;
	}
	return ret ? ret : KVARC_END;
}

/* Finds whether a track has chain values, by the rule of writers: positions count from 0, and ids
 * identify the content. */
static kvarc_ret find_chained(struct save_plan *plan, uint32_t track)
{
	struct track_plan *t = &plan->tracks[track];
	t->chained = t->has_ids;
	for (uint64_t t0 = 0; t0 < t->tokens && t->chained; t0 += KVI_SEGMENT_MOST) {
		const uint64_t left = t->tokens - t0;
		const uint32_t n = left < KVI_SEGMENT_MOST ? (uint32_t)left : KVI_SEGMENT_MOST;
		kvarc_ret ret = plan_read(plan, track, t0, n, false);
		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			t->chained &= plan->rows.ids[i] >= 0 &&
			              plan->rows.positions[i] == (int64_t)(t0 + i);
	}
	memcpy(t->chain, plan->root, 16);
	return KVARC_OK;
}

static kvarc_ret plan_partial(struct save_plan *plan, uint32_t track);

/* A cut takes effect with the next segment. Where none would follow, the last piece is looked for
 * once more, so that a token follows. */
static kvarc_ret end_with_token(struct save_plan *plan, uint32_t track)
{
	struct track_plan *t = &plan->tracks[track];
	struct piece_kept *k = t->pieces.n ? KVI_LIST(struct piece_kept, t->pieces, t->pieces.n - 1)
	                                   : NULL;
	if (!k || k->use == k->stored.n || t->kept < t->tokens)
		return KVARC_OK;
	memcpy(t->chain, k->before, 16);
	t->kept -= k->use;
	plan->kept -= k->use;
	plan->kept_bytes -= plan_bytes(plan, track, k->use);
	kvi_free(&plan->s->alloc, k->tokens);
	t->pieces.n--;
	return plan_partial(plan, track);
}

static kvarc_ret plan_track(struct save_plan *plan, uint32_t track)
{
	struct track_plan *t = &plan->tracks[track];
	int32_t id;
	t->tokens = kvarc_import_tokens(plan->im, track);
	plan->tokens += t->tokens;
	if (!t->tokens)
		return KVARC_OK;
	t->has_ids = kvarc_import_read_tokens(plan->im, track, 0, 1, &id, NULL) == KVARC_OK;
	kvarc_ret ret = kvi_rows_make(plan->s, &plan->rows, plan->g, track);
	if (!ret)
		ret = kvi_rows_make(plan->s, &plan->other, plan->g, track);
	if (!ret)
		ret = find_chained(plan, track);
	while (!ret && !plan->alone && t->kept < t->tokens)
		ret = t->chained ? step_chain(plan, track) : step_digest(plan, track);
	if (ret == KVARC_END)
		ret = t->chained ? plan_partial(plan, track) : KVARC_OK;
	else if (!ret && !plan->alone)
		ret = end_with_token(plan, track);
	kvi_rows_free(plan->s, &plan->rows);
	kvi_rows_free(plan->s, &plan->other);
	return ret;
}

/* Looks for the tokens of an import in the archives of a store whose hashes have the key of `veil`;
 * alone: in none. last: save_plan.last. plan is to be freed, also on failure. Returns OK, MEM,
 * MEMLIMIT, IO, DATA (the index is damaged). */
static kvarc_ret plan_save(struct save_plan *plan, struct kvarc_store *store, kvarc_import *im,
                           const struct kvi_veil *veil, bool alone, const uint8_t *last)
{
	memset(plan, 0, sizeof *plan);
	plan->last = last;
	plan->veil = veil;
	plan->alone = alone;
	plan->name_space = kvi_veil_space(veil, store->name_space);
	plan->s = store;
	plan->im = im;
	plan->g = kvarc_import_geometry(im);
	plan->tracks = kvi_calloc(&store->alloc, plan->g->n_tracks + 1, sizeof *plan->tracks);
	kvarc_ret ret = plan->tracks ? kvi_pack_chain_root(im, plan->root, store->error)
	                             : kvi_fail_alloc(store->error, &store->alloc);
	for (uint32_t i = 0; i < plan->g->n_tracks && !ret; i++)
		ret = plan_track(plan, i);
	return ret;
}

/* NULL-safe in all members. */
static void plan_free(struct save_plan *plan)
{
	if (!plan->tracks)
		return;
	for (size_t i = 0; i < plan->g->n_tracks; i++) {
		struct kvi_list *l = &plan->tracks[i].pieces;
		for (size_t k = 0; k < l->n; k++)
			kvi_free(&plan->s->alloc, KVI_LIST(struct piece_kept, *l, k)->tokens);
		kvi_free(&plan->s->alloc, l->p);
	}
	kvi_free(&plan->s->alloc, plan->tracks);
	kvi_free(&plan->s->alloc, plan->ends.p);
	plan->tracks = NULL;
}

/* ==== The segment of a store that shares a prefix with the tokens that follow ==== */

enum { CANDIDATES_MOST = 8, CHILDREN_MOST = 64 };

/* The best one so far. */
struct kept_candidate {
	struct kvi_index_row row;
	uint32_t use;
};

/* The first id of a row that an index made from archives has not. */
static kvarc_ret find_first(struct save_plan *plan, struct kvi_index_row *row)
{
	kvarc_ret ret = row->has_first ? KVARC_OK
	                               : kvi_rows_read(plan->s, row, &plan->other, false);
	if (ret || row->has_first)
		return ret;
	if (!plan->other.has_ids)
		return KVARC_END;
	row->has_first = true;
	row->first = kvi_veil_first(plan->veil, row->parent, plan->other.ids[0]);
	(void)kvi_index_set_known(plan->s->index, row);
	return KVARC_OK;
}

/* Counts the leading tokens with equal ids and positions. */
static uint32_t equal_ids(const struct kvi_store_rows *rows,
                          const struct kvi_store_rows *store_rows)
{
	uint32_t n = 0;
	while (n < rows->n && n < store_rows->n && rows->ids[n] == store_rows->ids[n] &&
	       rows->positions[n] == store_rows->positions[n])
		n++;
	return n;
}

/* Counts those of n leading tokens that have equal elements. */
static uint32_t equal_elements(const struct kvi_store_rows *rows,
                               const struct kvi_store_rows *store_rows, uint32_t n)
{
	for (size_t i = 0; i < rows->geometry->n_tensors; i++) {
		const kvarc_view *x = &rows->views[i], *y = &store_rows->views[i];
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

/* Counts the tokens that a candidate shares; decodes it only when it may share more than the
 * best. */
static kvarc_ret compare(struct save_plan *plan, const struct kvi_index_row *row,
                         struct kept_candidate *best)
{
	kvarc_ret ret = kvi_rows_read(plan->s, row, &plan->other, false);
	if (ret || !plan->other.has_ids || equal_ids(&plan->rows, &plan->other) <= best->use)
		return ret;
	const uint32_t n = equal_ids(&plan->rows, &plan->other);
	ret = kvi_rows_read(plan->s, row, &plan->other, true);
	if (ret)
		return ret;
	const uint32_t use = equal_elements(&plan->rows, &plan->other, n);
	if (use > best->use)
		*best = (struct kept_candidate){ *row, use };
	return KVARC_OK;
}

static kvarc_ret find_best(struct save_plan *plan, uint32_t track, struct kept_candidate *best)
{
	const struct track_plan *t = &plan->tracks[track];
	struct kvi_index_row *rows = kvi_array(&plan->s->alloc, CHILDREN_MOST, sizeof *rows);
	size_t n = 0, compared = 0;
	if (!rows)
		return kvi_fail_alloc(plan->s->error, &plan->s->alloc);
	const uint64_t parent = kvi_veil_word(plan->veil, t->chain);
	const int32_t first = kvi_veil_first(plan->veil, parent, plan->rows.ids[0]);
	kvarc_ret ret = kvi_index_children(plan->s->index, plan->name_space, parent, first, rows,
	                                   CHILDREN_MOST, &n);
	for (size_t i = 0; i < n && !ret && compared < CANDIDATES_MOST; i++) {
		ret = find_first(plan, &rows[i]);
		if (!ret && rows[i].first == first) {
			ret = compare(plan, &rows[i], best);
			compared++;
		}
		if (ret && !plan_final(plan, ret))
			ret = KVARC_OK;
	}
	kvi_free(&plan->s->alloc, rows);
	return ret;
}

/* plan->other has its tokens again, plan->rows those of the file. */
static kvarc_ret add_piece(struct save_plan *plan, uint32_t track,
                           const struct kept_candidate *best)
{
	struct track_plan *t = &plan->tracks[track];
	struct piece_kept *k = plan_add(plan, track);
	if (!k)
		return kvi_alloc_error(&plan->s->alloc);
	k->stored.track = track;
	k->stored.n = best->row.n;
	k->stored.t0 = t->kept;
	k->stored.bytes = plan_bytes(plan, track, best->row.n);
	k->stored.has_chain = 1;
	memcpy(k->pack, best->row.id, 16);
	k->first = plan->rows.ids[0];
	k->use = best->use;
	kvarc_ret ret = kvarc_content_digest(plan->g, track, best->row.n, plan->other.ids,
	                                     plan->other.positions, plan->other.views,
	                                     k->stored.digest);
	if (!ret)
		ret = kvarc_chain_next(t->chain, track, best->row.n, plan->other.ids,
		                       plan->other.positions, k->stored.chain);
	if (!ret)
		ret = kvarc_chain_next(t->chain, track, best->use, plan->rows.ids,
		                       plan->rows.positions, k->chain);
	ret = kvi_fail_memory(plan->s->error, ret, &plan->s->alloc);
	if (!ret)
		ret = plan_digest(plan, best->use, k->digest);
	if (!ret)
		ret = piece_cut(plan, k);
	memcpy(t->chain, k->chain, 16);
	t->kept += best->use;
	plan->kept += best->use;
	plan->kept_bytes += plan_bytes(plan, track, best->use);
	return ret;
}

/*
 * Adds a last piece behind the whole segments: the segment of the store that shares the longest
 * prefix with the tokens from t->kept on. Returns as plan_save.
 */
static kvarc_ret plan_partial(struct save_plan *plan, uint32_t track)
{
	const struct track_plan *t = &plan->tracks[track];
	const uint64_t left = t->tokens - t->kept;
	struct kept_candidate best = { .use = 0 };
	kvarc_ret ret = plan_read(plan, track, t->kept,
	                          (uint32_t)(left < KVI_SEGMENT_MOST ? left : KVI_SEGMENT_MOST),
	                          true);
	if (!ret)
		ret = find_best(plan, track, &best);
	/* A cut takes effect with the next segment: one token at least is written. */
	if (best.use == left)
		best.use--;
	if (ret || !best.use)
		return ret;
	ret = kvi_rows_read(plan->s, &best.row, &plan->other, true);
	return ret ? ret : add_piece(plan, track, &best);
}

/* ==== The archive of a save: what the store has is named, the rest is written ==== */

enum { RUN_MOST = 1024, BATCH_SEGMENTS = 16 };

struct save_writing {
	struct save_plan *p;
	kvarc_writer *w;
	struct kvi_list *known;
	uint32_t segment_tokens;
	/* Stored segments of one call, and their tokens. */
	kvarc_stored *stored;
	int32_t *ids, *positions;
	size_t n, n_tokens;
};

/* ----- what the store has ------------------------------------------------ */

static kvarc_ret flush_run(struct save_writing *writing, uint32_t track)
{
	const bool ids = writing->p->tracks[track].has_ids;
	kvarc_ret ret = KVARC_OK;
	if (writing->n)
		ret = kvarc_writer_append_stored(writing->w, writing->n, writing->stored,
		                                 ids ? writing->ids : NULL, writing->positions);
	writing->n = writing->n_tokens = 0;
	return ret;
}

static kvarc_ret add_stored(struct save_writing *writing, uint32_t track,
                            const struct piece_kept *kept)
{
	struct kvi_store_rows *rows = &writing->p->rows;
	const uint32_t n = kept->stored.n;
	kvarc_ret ret = KVARC_OK;
	if (writing->n == RUN_MOST)
		ret = flush_run(writing, track);
	if (!ret && !kept->tokens)
		ret = plan_read(writing->p, track, kept->stored.t0, n, false);
	if (ret)
		return ret;
	memcpy(writing->ids + writing->n_tokens, kept->tokens ? kept->tokens : rows->ids,
	       n * sizeof *writing->ids);
	memcpy(writing->positions + writing->n_tokens,
	       kept->tokens ? kept->tokens + n : rows->positions, n * sizeof *writing->ids);
	writing->stored[writing->n++] = kept->stored;
	writing->n_tokens += n;
	return KVARC_OK;
}

static struct kvi_known *add_known(struct save_writing *writing)
{
	struct kvi_known *k = kvi_list_add(writing->known, &writing->p->s->alloc, sizeof *k);
	if (!k)
		kvi_fail_alloc(writing->p->s->error, &writing->p->s->alloc);
	return k;
}

static kvarc_ret know_cut(struct save_writing *writing, uint32_t track,
                          const struct piece_kept *kept)
{
	struct kvi_known *known = add_known(writing);
	if (!known)
		return kvi_alloc_error(&writing->p->s->alloc);
	known->track = track;
	known->n = kept->use;
	known->t0 = kept->stored.t0;
	known->first = kept->first;
	known->has_first = true;
	memcpy(known->digest, kept->digest, 16);
	memcpy(known->chain, kept->chain, 16);
	return KVARC_OK;
}

static kvarc_ret put_kept(struct save_writing *writing, uint32_t track)
{
	const struct kvi_list *l = &writing->p->tracks[track].pieces;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < l->n && !ret; i++) {
		const struct piece_kept *k = KVI_LIST(struct piece_kept, *l, i);
		ret = add_stored(writing, track, k);
		if (ret || k->use == k->stored.n)
			continue;
		ret = flush_run(writing, track);
		if (!ret)
			ret = kvarc_writer_rewind(writing->w, track, k->stored.t0 + k->use);
		if (!ret)
			ret = know_cut(writing, track, k);
	}
	return ret ? ret : flush_run(writing, track);
}

/* ----- what is new ------------------------------------------------ */

/* Content digests of the segments that the next append makes. */
static kvarc_ret know_new(struct save_writing *writing, uint32_t track, uint64_t t0, uint32_t n)
{
	for (uint32_t at = 0; at < n; at += writing->segment_tokens) {
		struct kvi_known *k = add_known(writing);
		uint32_t m = n - at < writing->segment_tokens ? n - at : writing->segment_tokens;
		if (!k)
			return kvi_alloc_error(&writing->p->s->alloc);
		kvarc_ret ret = plan_read(writing->p, track, t0 + at, m, true);
		if (!ret)
			ret = plan_digest(writing->p, m, k->digest);
		if (ret)
			return ret;
		k->track = track;
		k->n = m;
		k->t0 = t0 + at;
		k->has_first = writing->p->rows.has_ids;
		k->first = writing->p->rows.has_ids ? writing->p->rows.ids[0] : 0;
	}
	return KVARC_OK;
}

static kvarc_ret put_new(struct save_writing *writing, uint32_t track)
{
	const struct track_plan *t = &writing->p->tracks[track];
	const uint32_t batch = writing->segment_tokens * BATCH_SEGMENTS;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t t0 = t->kept; t0 < t->tokens && !ret; t0 += batch) {
		uint32_t n = t->tokens - t0 < batch ? (uint32_t)(t->tokens - t0) : batch;
		ret = know_new(writing, track, t0, n);
		if (!ret)
			ret = kvarc_import_read_tokens(writing->p->im, track, t0, n,
			                               t->has_ids ? writing->ids : NULL,
			                               writing->positions);
		if (!ret)
			ret = kvarc_writer_append_fetch(
				writing->w, track, n, t->has_ids ? writing->ids : NULL,
				writing->positions, kvarc_import_fetch, writing->p->im);
	}
	return ret;
}

static kvarc_ret put_track(struct save_writing *writing, uint32_t track)
{
	if (!writing->p->tracks[track].tokens)
		return KVARC_OK;
	kvarc_ret ret = kvi_rows_make(writing->p->s, &writing->p->rows, writing->p->g, track);
	if (!ret)
		ret = put_kept(writing, track);
	if (!ret)
		ret = put_new(writing, track);
	kvi_rows_free(writing->p->s, &writing->p->rows);
	return ret;
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret write_all(struct save_writing *writing, const kvarc_save_options *options)
{
	kvarc_error *e = writing->p->s->error;
	kvarc_ret ret = kvi_pack_begin(writing->p->im, writing->w, e);
	for (uint32_t i = 0; i < writing->p->g->n_tracks && !ret; i++)
		ret = put_track(writing, i);
	if (!ret)
		ret = kvi_pack_items(writing->p->im, writing->w, e);
	return ret ? ret : kvarc_writer_checkpoint(writing->w, options->label, options->time, NULL);
}

static kvarc_ret open_writer(struct save_writing *writing, struct kvi_new_archive *archive,
                             const kvarc_save_options *options, const kvarc_keys *keys)
{
	struct kvarc_store *s = writing->p->s;
	kvarc_writer_options wo = options->writer;
	const size_t tokens = (size_t)RUN_MOST * KVI_SEGMENT_MOST;
	writing->stored = kvi_array(&s->alloc, RUN_MOST, sizeof *writing->stored);
	writing->ids = kvi_array(&s->alloc, tokens, 2 * sizeof *writing->ids);
	if (!writing->stored || !writing->ids)
		return kvi_fail_alloc(s->error, &s->alloc);
	writing->positions = writing->ids + tokens;
	memcpy(wo.file_id, archive->id, sizeof wo.file_id);
	wo.flags |= KVARC_WRITE_FILE_ID | KVARC_WRITE_STORED;
	wo.common.error = s->error;
	wo.keys = keys;
	return kvarc_writer_open(&writing->w, &archive->sink, &wo);
}

/*
 * Writes the archive of a plan: what the store has as STOREREF, the rest as segments, the files,
 * a checkpoint. keys NULL: not encrypted. known gets what kvi_index_fill wants to know (struct
 * kvi_known). a is to be closed, also on failure. Returns OK, MEM, MEMLIMIT, IO, and what writers
 * return.
 */
static kvarc_ret save_write(struct kvi_new_archive *archive, struct save_plan *plan,
                            const kvarc_save_options *options, const kvarc_keys *keys,
                            struct kvi_list *known)
{
	struct kvarc_store *s = plan->s;
	struct save_writing x = { .p = plan, .known = known };
	x.segment_tokens = options->writer.segment_tokens ? options->writer.segment_tokens
	                                                  : KVI_SEGMENT_MOST;
	kvarc_ret ret = kvi_new_archive_begin(archive, s);
	if (!ret)
		ret = open_writer(&x, archive, options, keys);
	if (!ret)
		ret = write_all(&x, options);
	if (ret)
		kvarc_writer_abort(&x.w);
	else
		ret = kvarc_writer_close(&x.w);
	if (!ret)
		ret = kvi_new_archive_end(archive, s);
	kvi_free(&s->alloc, x.stored);
	kvi_free(&s->alloc, x.ids);
	return ret;
}

/* ==== Saves a file as the next version of a session ==== */

enum {
	TRIES_MOST = 8 /* tries when the archives that a save shares are removed again and again */
};

/* A save on its way. */
struct saving {
	struct kvarc_store *s;
	const char *session;
	kvarc_import *im;
	const kvarc_save_options *o;
	struct save_plan plan;
	struct kvi_new_archive archive;
	struct kvi_list known, needs; /* struct kvi_known; ids of archives */
	struct kvi_veil plain;        /* all zero: for an archive that is not encrypted */
	kvarc_key key;                /* key of an encrypted one */
	bool encrypt;
	bool alone; /* nothing is shared: it would need more archives than a manifest names */
	struct kvi_manifest manifest;
	struct kvi_manifest last; /* the last version before, */
	uint64_t last_number;     /* 0: there is none that can be read */
	uint64_t number;          /* number of the version that was put; 0: none */
	bool unchanged;           /* `number` is the last version before, which is the same file */
	bool confirmed;
	const char *differs; /* key of the identity that the last version has another value of */
	kvarc_saved *saved;
};

/* ----- what it needs ------------------------------------------------ */

/* Archives that its pieces lie in, and itself. */
static kvarc_ret collect_needs(struct saving *saving)
{
	struct kvarc_store *s = saving->s;
	saving->needs.n = 0;
	for (size_t i = 0; i <= saving->plan.g->n_tracks; i++) {
		const struct kvi_list *l = i < saving->plan.g->n_tracks
		                                   ? &saving->plan.tracks[i].pieces
		                                   : NULL;
		for (size_t k = 0; k < (l ? l->n : 1); k++) {
			const uint8_t *id = l ? KVI_LIST(struct piece_kept, *l, k)->pack
			                      : saving->archive.id;
			if (kvi_protocol_has(&saving->needs, id))
				continue;
			uint8_t *to = kvi_list_add(&saving->needs, &s->alloc, 16);
			if (!to)
				return kvi_fail_alloc(s->error, &s->alloc);
			memcpy(to, id, 16);
		}
	}
	return KVARC_OK;
}

/* ----- putting ------------------------------------------------ */

static void make_manifest(struct saving *saving)
{
	struct kvi_manifest *m = &saving->manifest;
	uint64_t tensors;
	memset(m, 0, sizeof *m);
	memcpy(m->needs.pack, saving->archive.id, 16);
	m->pack_bytes = saving->archive.bytes;
	m->needs.encrypted = saving->encrypt;
	/* The last one is its own. */
	for (size_t i = 0; saving->encrypt && i + 1 < saving->needs.n; i++)
		memcpy(m->needs.others[m->needs.n++], (uint8_t *)saving->needs.p + 16 * i, 16);
	for (uint32_t i = 0; i < saving->plan.g->n_tracks; i++)
		if (saving->plan.tracks[i].tokens > m->tokens && kvi_import_counts(saving->im, i))
			m->tokens = saving->plan.tracks[i].tokens;
	kvarc_import_sizes(saving->im, &m->bytes, &tensors);
	m->time = saving->o->time;
	m->mode = saving->o->mode & 0777;
	if (saving->o->label)
		strcpy(m->label, saving->o->label);
}

static kvarc_ret put_archive(struct saving *saving)
{
	struct kvarc_store *s = saving->s;
	char key[KVI_PACK_KEY];
	kvi_pack_key(key, saving->archive.id);
	kvarc_ret ret = s->backend->calls->put(s->backend, key, &saving->archive.source, s->error);
	return ret == KVARC_END
	               ? kvi_fail(s->error, KVARC_IO, "store: %s is there already; try again", key)
	               : ret;
}

/* ----- the index ------------------------------------------------ */

/* Adds the archive to the index. A failure is ignored: the index is a cache, which is repaired
 * later. */
static void add_to_index(struct saving *saving)
{
	struct kvarc_store *s = saving->s;
	kvarc_reader_options o;
	kvarc_error e = { .text = "" };
	kvarc_reader *r = NULL;
	char key[KVI_KEY_MAX + 1], pack[KVI_PACK_KEY];
	struct kvi_object object;
	kvi_pack_reader_options(s, &o, &e);
	kvi_pack_key(pack, saving->archive.id);
	kvarc_ret ret = s->backend->calls->stat(s->backend, pack, &object, s->error);
	if (!ret)
		ret = kvarc_reader_open(&r, &saving->archive.source, &o);
	if (!ret && kvi_index_begin_change(s->index) == KVARC_OK) {
		ret = kvi_index_fill(s, s->index, saving->archive.id, &object, r, &saving->known,
		                     true);
		if (!ret && kvi_version_key(key, s->name_space, saving->session, saving->number))
			ret = kvi_index_use(s->index, key, kvi_store_now());
		ret = kvi_index_end_change(s->index, ret);
	}
	if (ret)
		kvi_store_note(s, "the index was not updated: %.200s",
		               *e.text ? e.text : s->error->text);
	kvarc_reader_close(&r);
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret confirm_file(struct saving *saving)
{
	if (saving->confirmed || !saving->o->confirm)
		return KVARC_OK;
	saving->confirmed = true;
	return saving->o->confirm(saving->o->confirm_opaque)
	               ? kvi_fail(saving->s->error, KVARC_IO,
	                          "store: stopped before the version was put")
	               : KVARC_OK;
}

/* Checks, with KVARC_WRITE_VERIFY, that the archive to be put loads as the file, with all that it
 * names in other archives. END: one of these is damaged; saves do not count on it any more. */
static kvarc_ret check_archive(struct saving *saving)
{
	enum save_verdict verdict;
	if (!(saving->o->writer.flags & KVARC_WRITE_VERIFY))
		return KVARC_OK;
	kvarc_ret ret = save_check(saving->s, saving->archive.id, &saving->archive.source,
	                           saving->im, &verdict);
	if (!ret && verdict == SAVE_OTHER) {
		ret = confirm_file(saving);
		if (!ret)
			ret = kvi_fail(saving->s->error, KVARC_DATA,
			               "store: the archive that was made does not give the file "
			               "back: nothing was saved");
	}
	return ret ? ret : verdict == SAVE_DAMAGED ? KVARC_END : KVARC_OK;
}

/* Whether the last version may be the file: the store has all tokens, but perhaps one of each track
 * that must follow a cut. */
static bool may_be_last(const struct saving *saving)
{
	uint64_t bytes, tensors;
	kvarc_import_sizes(saving->im, &bytes, &tensors);
	return saving->last_number && !saving->differs && saving->last.bytes == bytes &&
	       saving->plan.tokens - saving->plan.kept <= saving->plan.g->n_tracks &&
	       saving->last.needs.encrypted == saving->encrypt &&
	       (!saving->o->label || strcmp(saving->o->label, saving->last.label) == 0);
}

/* Decodes the last version and compares it with the file: if they are equal, nothing is put. END:
 * it does not load, plan again. */
static kvarc_ret compare_last(struct saving *saving)
{
	enum save_verdict verdict;
	struct kvi_manifest m;
	uint64_t number = 0;
	char key[KVI_KEY_MAX + 1];
	kvarc_ret ret = save_check(saving->s, saving->last.needs.pack, NULL, saving->im, &verdict);
	if (ret)
		return ret;
	if (verdict != SAVE_SAME) {
		saving->last_number = 0;
		return verdict == SAVE_DAMAGED ? KVARC_END : KVARC_OK;
	}
	ret = confirm_file(saving);
	/* The last version may have been removed meanwhile. */
	if (ret || kvi_version_read(saving->s, saving->session, &number, &m) != KVARC_OK ||
	    number != saving->last_number)
		return ret;
	saving->number = number;
	saving->unchanged = true;
	if (kvi_version_key(key, saving->s->name_space, saving->session, number))
		(void)kvi_index_use(saving->s->index, key, kvi_store_now());
	return KVARC_OK;
}

/* Puts archive and version. END: what they need is being removed. */
static kvarc_ret publish(struct saving *saving)
{
	kvarc_ret ret = confirm_file(saving);
	if (!ret)
		ret = put_archive(saving);
	/* The check runs before anybody sees the version, and again once gc can see it. */
	if (!ret)
		ret = kvi_protocol_confirm(saving->s, &saving->needs);
	if (ret)
		return ret;
	make_manifest(saving);
	ret = kvi_version_put(saving->s, saving->session, &saving->manifest, false,
	                      &saving->number);
	if (ret)
		return ret;
	ret = kvi_protocol_confirm(saving->s, &saving->needs);
	/* The version names removed archives. Its own archive stays for gc: a fork may name it by
	 * now. */
	if (ret) {
		kvi_version_take_back(saving->s, saving->session, saving->number,
		                      &saving->manifest);
		saving->number = 0;
	}
	return ret;
}

static void report(struct saving *saving, uint64_t tries)
{
	kvarc_saved *r = saving->saved;
	uint64_t tensors;
	memset(r, 0, sizeof *r);
	r->version = saving->number;
	for (uint32_t i = 0; i < saving->plan.g->n_tracks; i++) {
		const struct track_plan *t = &saving->plan.tracks[i];
		if (!kvi_import_counts(saving->im, i))
			continue;
		r->tokens += t->tokens;
		r->kept_tokens += saving->unchanged ? t->tokens : t->kept;
	}
	r->new_tokens = r->tokens - r->kept_tokens;
	kvarc_import_sizes(saving->im, &r->file_bytes, &tensors);
	r->unchanged = saving->unchanged;
	r->written_bytes = saving->unchanged ? 0 : saving->archive.bytes;
	r->not_written_bytes = saving->plan.kept_bytes;
	r->tries = tries;
	if (saving->plan.tokens && !saving->plan.kept && saving->last.tokens)
		r->differs = saving->differs;
}

/* Looks for the tokens of the file in the store, once more where it was looked before. */
static kvarc_ret look_for_tokens(struct saving *saving)
{
	plan_free(&saving->plan);
	return plan_save(&saving->plan, saving->s, saving->im,
	                 saving->encrypt ? &saving->s->save_veil : &saving->plain, saving->alone,
	                 saving->last_number ? saving->last.needs.pack : NULL);
}

static kvarc_ret save_once(struct saving *saving)
{
	saving->known.n = 0;
	const kvarc_keys keys = { .list = &saving->key, .n = 1 };
	kvarc_ret ret = look_for_tokens(saving);
	/* The identity of the last version is that of the file only where they share tokens. */
	if (!ret && !saving->plan.kept && kvi_import_adopt(saving->im, NULL, false))
		ret = look_for_tokens(saving);
	if (!ret && may_be_last(saving))
		ret = compare_last(saving);
	if (ret || saving->unchanged)
		return ret;
	ret = save_write(&saving->archive, &saving->plan, saving->o, saving->encrypt ? &keys : NULL,
	                 &saving->known);
	if (!ret)
		ret = collect_needs(saving);
	if (!ret && saving->encrypt && saving->needs.n > KVI_NEEDS_MAX + 1) {
		saving->alone = true;
		return KVARC_END;
	}
	if (!ret)
		ret = check_archive(saving);
	if (!ret)
		ret = publish(saving);
	if (!ret)
		add_to_index(saving);
	return ret;
}

/* Adopts the heads and RoPEs of the session's last version, unless a profile has them, and its
 * identity: what an import finds depends on its tokens and options, and chain values depend on
 * that. Few tokens show no RoPE: they are stored again with the one that more of them show. */
static void adopt_last(struct saving *saving)
{
	enum { SHOW_ROPE = 32 };
	struct kvi_manifest last;
	kvarc_reader *r;
	uint64_t number = 0;
	if (kvi_version_read(saving->s, saving->session, &number, &last) != KVARC_OK ||
	    kvi_pack_reader(saving->s, last.needs.pack, false, &r) != KVARC_OK)
		return;
	const bool shows_more = last.tokens < SHOW_ROPE && !kvarc_reader_geometry(r)->n_ropes &&
	                        kvarc_import_geometry(saving->im)->n_ropes;
	saving->differs = kvi_import_adopt(saving->im, r,
	                                   !saving->o->writer.profile && !shows_more);
}

static kvarc_ret save(struct saving *saving)
{
	kvarc_ret ret = KVARC_END;
	uint64_t tries = 0;
	adopt_last(saving);
	saving->archive.fd = -1;
	while (ret == KVARC_END && tries < TRIES_MOST) {
		kvi_new_archive_close(&saving->archive);
		ret = save_once(saving);
		tries++;
		if (kvi_store_mend(saving->s, ret))
			ret = KVARC_END;
	}
	if (ret == KVARC_END)
		ret = kvi_fail(saving->s->error, KVARC_IO,
		               "store: what the session shares is removed by others all the time; "
		               "try again");
	if (!ret && saving->saved)
		report(saving, tries);
	kvi_new_archive_close(&saving->archive);
	plan_free(&saving->plan);
	kvi_free(&saving->s->alloc, saving->known.p);
	kvi_free(&saving->s->alloc, saving->needs.p);
	return ret;
}

static kvarc_ret check(struct kvarc_store *store, const char *session,
                       const kvarc_save_options *options)
{
	static const char call[] = "kvarc_store_save";
	const int level = options->writer.level < 0 ? 0 : options->writer.level;
	kvarc_ret ret = kvi_session_check(store, session);
	if (!ret)
		ret = KVI_CHECK_RESERVED(store->error, call, "options", options);
	if (ret)
		return ret;
	if (options->label && strnlen(options->label, KVI_LABEL_MAX + 1) > KVI_LABEL_MAX)
		return kvi_fail(store->error, KVARC_PROG, "%s: the label is longer than %d bytes",
		                call, KVI_LABEL_MAX);
	if (options->time > KVI_NUMBER_MAX)
		return kvi_fail(store->error, KVARC_PROG, "%s: time is 2^53 or more", call);
	if (level > 3 || options->writer.lossy || (options->writer.flags & KVARC_WRITE_STREAMABLE))
		return kvi_fail(
			store->error, KVARC_OPTIONS,
			"a store takes levels 0 to 3, no lossy tier and no streamable archives: "
			"a model would have to go through all tokens of each save");
	if (options->encrypt < KVARC_SAVE_PLAIN || options->encrypt > KVARC_SAVE_ENCRYPT)
		return kvi_fail(store->error, KVARC_PROG, "%s: encrypt is not valid", call);
	if (options->writer.keys)
		return kvi_fail(store->error, KVARC_PROG,
		                "%s: keys are those of the store: set encrypt", call);
	if (options->writer.segment_tokens > KVI_SEGMENT_MOST)
		return kvi_fail(store->error, KVARC_PROG, "%s: segment_tokens is at most 256",
		                call);
	return KVARC_OK;
}

/* Unless the caller says it, a session stays as it is. */
static kvarc_ret decide_encryption(struct saving *saving, kvarc_ret read,
                                   const struct kvi_needs *last)
{
	kvarc_ret ret = save_encrypts(saving->s, saving->o->encrypt, read, last, &saving->encrypt);
	return !ret && saving->encrypt ? kvi_store_save_key(saving->s, &saving->key) : ret;
}

/* The index may not know the session's last version, of another machine: then it learns of all. */
static kvarc_ret refresh(struct saving *saving)
{
	struct kvarc_store *s = saving->s;
	struct kvi_manifest m;
	uint64_t number = 0, unreadable = 0;
	int64_t pack;
	const kvarc_ret read = kvi_version_read(s, saving->session, &number, &m);
	kvarc_ret ret = decide_encryption(saving, read, &m.needs);
	/* A damaged one is no reason not to save the next. */
	if (ret || read)
		return ret;
	saving->last = m;
	saving->last_number = number;
	ret = kvi_index_find_pack(s->index, m.needs.pack, &pack);
	return ret == KVARC_END ? kvi_index_refresh(s, s->index, NULL, NULL, &unreadable) : ret;
}

kvarc_ret kvarc_store_save(kvarc_store *s, const char *session, kvarc_import *im,
                           const kvarc_save_options *options, kvarc_saved *saved)
{
	static const kvarc_save_options defaults = KVARC_SAVE_OPTIONS_INIT;
	if (!s)
		return KVARC_PROG;
	if (!im)
		return kvi_fail(s->error, KVARC_PROG, "kvarc_store_save: the import is NULL");
	struct saving v = { .s = s,
		            .session = session,
		            .im = im,
		            .o = options ? options : &defaults,
		            .saved = saved };
	kvarc_ret ret = check(s, session, v.o);
	if (!ret)
		ret = kvi_service_check(s);
	if (!ret)
		ret = kvarc_import_identity(im, "namespace", s->name_space);
	if (!ret)
		ret = refresh(&v);
	if (kvi_store_mend(s, ret))
		ret = KVARC_OK;
	return ret ? ret : save(&v);
}
