/* SPDX-License-Identifier: BSD-3-Clause */
/* keep_segments.c - an archive of a store again, without elements that are not needed any more */
#include "keep_segments.h"

#include <string.h>

#include "archive_copy.h"
#include "format/segment.h"
#include "reader/reader_state.h"
#include "transfer.h"
#include "util/error.h"

/* Segments that are named in one frame. */
enum { NAMED_MOST = 64 };

/* Segments of one track that wait to be named together, and their tokens. */
struct named_run {
	kvarc_stored segments[NAMED_MOST];
	int32_t ids[NAMED_MOST * KVI_SEGMENT_TOKENS], positions[NAMED_MOST * KVI_SEGMENT_TOKENS];
	size_t n, n_tokens;
	bool has_ids;
};

struct keeping {
	kvarc_reader *r;
	kvarc_writer *w;
	const struct kvi_alloc *alloc;
	const uint64_t *ends;
	kvi_keep_fn keep;
	void *opaque;
	uint32_t *same;           /* i, of each tensor */
	struct kvi_copy **copies; /* of each track; NULL: not opened yet */
	struct named_run *run;
	struct kvi_kept *kept; /* of the segment in hand */
	uint64_t number;       /* of the last one that was copied */
};

/* ----- what is named ------------------------------------------------ */

static kvarc_ret flush_run(struct keeping *k)
{
	struct named_run *run = k->run;
	kvarc_ret ret = KVARC_OK;
	if (run->n)
		ret = kvarc_writer_append_stored(k->w, run->n, run->segments,
		                                 run->has_ids ? run->ids : NULL,
		                                 run->has_ids ? run->positions : NULL);
	run->n = run->n_tokens = 0;
	return ret;
}

/* A segment that others have cut is named as a whole, and cut again by what follows it. */
static kvarc_ret put_named(struct keeping *k, const kvarc_stored *s)
{
	struct named_run *run = k->run;
	const struct kvi_kept *kept = k->kept;
	kvarc_ret ret = KVARC_OK;
	if (run->n == NAMED_MOST ||
	    (run->n && (run->segments->track != s->track || run->has_ids != kept->has_ids)))
		ret = flush_run(k);
	if (ret)
		return ret;
	run->has_ids = kept->has_ids;
	run->segments[run->n++] = *s;
	memcpy(run->ids + run->n_tokens, kept->ids, s->n * sizeof *run->ids);
	memcpy(run->positions + run->n_tokens, kept->positions, s->n * sizeof *run->ids);
	run->n_tokens += s->n;
	if (s->left == s->n)
		return KVARC_OK;
	ret = flush_run(k);
	return ret ? ret : kvarc_writer_rewind(k->w, s->track, s->t0 + s->left);
}

/* ----- what is copied ------------------------------------------------ */

/* The number of a segment among all segments, also those that rewinds have replaced. */
static uint64_t find_number(struct keeping *k, const kvarc_stored *s)
{
	const struct kvi_list *l = &k->r->index.segments;
	for (;; k->number++) {
		const struct kvi_segment_ref *ref = KVI_LIST(struct kvi_segment_ref, *l, k->number);
		if (kvi_segment_has(ref, s->track, s->t0, s->t0 + 1))
			return k->number;
	}
}

static kvarc_ret put_copied(struct keeping *k, const kvarc_stored *s)
{
	const struct kvi_copy_found found = { .t0 = s->t0,
		                              .n = s->n,
		                              .segment = find_number(k, s) };
	struct kvi_copy **c = &k->copies[s->track];
	kvarc_ret ret = flush_run(k);
	if (!ret && !*c)
		ret = kvi_copy_open(c, k->r, k->w, s->track, s->track, k->same);
	return ret ? ret
	           : kvi_copy_segment(*c, &found, k->kept->has_ids ? k->kept->ids : NULL,
	                              k->kept->positions);
}

/* Tokens of a segment that the archive has itself. */
static kvarc_ret read_tokens(struct keeping *k, const kvarc_stored *s)
{
	struct kvi_kept *kept = k->kept;
	kvarc_ret ret = kvarc_reader_read_tokens(k->r, s->track, s->t0, s->n, kept->ids,
	                                         kept->positions);
	kept->has_ids = ret == KVARC_OK;
	return ret == KVARC_OPTIONS ? kvarc_reader_read_tokens(k->r, s->track, s->t0, s->n, NULL,
	                                                       kept->positions)
	                            : ret;
}

/* ----- all of it ------------------------------------------------ */

static kvarc_ret put_segment(struct keeping *k, kvarc_stored *s, unsigned flags)
{
	const bool own = !(flags & KVARC_SEGMENT_STORED);
	memset(k->kept, 0, sizeof *k->kept);
	if ((own || !s->has_chain) && s->left != s->n)
		return kvi_reader_fail(k->r, KVARC_OPTIONS,
		                       "the archive has segments that no store has cut");
	kvarc_ret ret = k->keep(k->opaque, s, flags, k->kept);
	if (!ret && own)
		ret = read_tokens(k, s);
	if (ret)
		return ret;
	if (own && k->kept->copied)
		return put_copied(k, s);
	if (own)
		memcpy(s->digest, k->kept->digest, sizeof s->digest);
	return put_named(k, s);
}

static kvarc_ret write_all(struct keeping *k)
{
	kvarc_ret ret = kvarc_writer_set_geometry(k->w, kvarc_reader_geometry(k->r));
	if (!ret)
		ret = kvi_transfer_identity(k->r, k->w, NULL, NULL);
	for (uint64_t i = 0; !ret; i++) {
		kvarc_stored s;
		unsigned flags;
		ret = kvarc_reader_segment_at(k->r, i, &s, &flags);
		if (ret == KVARC_END)
			return flush_run(k);
		if (!ret && s.t0 < k->ends[s.track])
			ret = put_segment(k, &s, flags);
	}
	return ret;
}

static kvarc_ret begin(struct keeping *k)
{
	const kvarc_geometry *g = kvarc_reader_geometry(k->r);
	k->same = kvi_array(k->alloc, g->n_tensors + 1, sizeof *k->same);
	k->copies = kvi_calloc(k->alloc, g->n_tracks + 1, sizeof *k->copies);
	k->run = kvi_calloc(k->alloc, 1, sizeof *k->run);
	k->kept = kvi_calloc(k->alloc, 1, sizeof *k->kept);
	for (uint32_t i = 0; k->same && i < g->n_tensors; i++)
		k->same[i] = i;
	return k->same && k->copies && k->run && k->kept
	               ? KVARC_OK
	               : kvi_reader_fail(k->r, kvi_alloc_error(k->alloc),
	                                 "not enough memory to copy the archive");
}

static void end(struct keeping *k)
{
	for (uint32_t i = 0; k->copies && i < kvarc_reader_geometry(k->r)->n_tracks; i++)
		kvi_copy_close(k->copies[i]);
	kvi_free(k->alloc, (void *)k->copies);
	kvi_free(k->alloc, k->same);
	kvi_free(k->alloc, k->run);
	kvi_free(k->alloc, k->kept);
}

kvarc_ret kvi_keep_segments(kvarc_reader *r, const kvarc_sink *sink,
                            const kvarc_writer_options *options, const uint64_t *ends,
                            kvi_keep_fn keep, void *opaque)
{
	struct keeping k = {
		.r = r, .alloc = kvi_reader_alloc(r), .ends = ends, .keep = keep, .opaque = opaque
	};
	kvarc_ret ret = begin(&k);
	if (!ret)
		ret = kvarc_writer_open(&k.w, sink, options);
	if (!ret)
		ret = write_all(&k);
	if (ret)
		kvarc_writer_abort(&k.w);
	else
		ret = kvarc_writer_close(&k.w);
	end(&k);
	return ret;
}
