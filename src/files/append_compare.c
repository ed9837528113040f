/* SPDX-License-Identifier: BSD-3-Clause */
/* append_compare.c - which tokens of an import an archive has already, by ids and bytes */
#include "append_compare.h"

#include <pthread.h>
#include <string.h>

#include "codecs/streams.h"
#include "import_internal.h"
#include "reader/reader_state.h"
#include "reader_bounds.h"
#include "util/parallel.h"
#include "whole_chunks.h"

enum { BATCH = 1024 }; /* tokens that are compared at once */

/* A segment of the last state. */
struct compared_segment {
	const struct kvi_segment_ref *s;
	uint64_t t0, end; /* its tokens that are compared: none where end is not above */
	bool whole;       /* all of it, by its checks */
	bool holds;       /* they are right */
	bool failed;      /* the import cannot be read */
};

/* Memory of a thread. */
struct compare_worker {
	struct kvi_buffer rows; /* of a chunk */
	struct kvi_whole_memory frames;
};

struct comparing {
	kvarc_reader *r;
	kvarc_import *im;
	uint32_t track;
	uint64_t shift;
	bool decode;
	struct kvi_list segments; /* struct compared_segment, in order */
	struct kvi_pool *pool;
	struct compare_worker *workers;
	struct kvi_whole whole;
	uint64_t lost; /* tokens that are the same, but not kept: the first ones are damaged */
	/* While segments are decoded: */
	pthread_mutex_t lock;
	uint64_t differs; /* the first token of the archive's track that is another one */
	bool failed;      /* the import cannot be read */
};

static const char no_memory[] = "not enough memory to compare the file";

static kvarc_ret no_input(const struct comparing *c)
{
	return kvi_reader_fail(c->r, KVARC_IO, "reading the input failed");
}

/* ----- token ids and positions ----------------------------------------- */

/* Tokens of both sides, BATCH each. */
struct token_pair {
	int32_t ids[2][BATCH], positions[2][BATCH];
};

/* n tokens from token i of the import on; *same: how many leading ones are equal. */
static kvarc_ret compare_batch(struct comparing *c, struct token_pair *t, uint64_t i, uint32_t n,
                               bool ids, uint32_t *same)
{
	kvarc_ret ret = kvarc_reader_read_tokens(c->r, c->track, c->shift + i, n,
	                                         ids ? t->ids[0] : NULL, t->positions[0]);
	if (ret)
		return ret;
	if (kvarc_import_read_tokens(c->im, c->track, i, n, ids ? t->ids[1] : NULL,
	                             t->positions[1]))
		return no_input(c);
	*same = 0;
	while (*same < n && t->positions[0][*same] == t->positions[1][*same] &&
	       (!ids || t->ids[0][*same] == t->ids[1][*same]))
		++*same;
	return KVARC_OK;
}

/* How many of the first n tokens of the import have the same ids and positions. */
static kvarc_ret compare_tokens(struct comparing *c, struct token_pair *t, uint64_t n,
                                uint64_t *equal)
{
	const kvarc_range first = { c->track, 0, UINT32_MAX, c->shift, 1, { 0 } };
	const bool ids = c->im->tracks[c->track].has_ids;
	bool stored = false;
	*equal = 0;
	kvarc_ret ret = n ? kvi_range_has_ids(c->r, &first, &stored) : KVARC_OK;
	while (!ret && stored == ids && *equal < n) {
		uint32_t k = n - *equal < BATCH ? (uint32_t)(n - *equal) : BATCH;
		uint32_t same = 0;
		ret = compare_batch(c, t, *equal, k, ids, &same);
		if (ret == KVARC_OPTIONS)
			return KVARC_OK; /* no ids in this part */
		if (ret)
			break;
		*equal += same;
		if (same < k)
			break;
	}
	return ret;
}

/* The archive's token with the position of the import's first one: where a window begins. */
static kvarc_ret find_shift(struct comparing *c, struct token_pair *t, uint64_t n)
{
	int32_t first;
	c->shift = 0;
	if (kvarc_import_read_tokens(c->im, c->track, 0, 1, NULL, &first))
		return no_input(c);
	for (uint64_t i = 0; i < n; i += BATCH) {
		uint32_t k = n - i < BATCH ? (uint32_t)(n - i) : BATCH;
		kvarc_ret ret = kvarc_reader_read_tokens(c->r, c->track, i, k, NULL,
		                                         t->positions[0]);
		if (ret)
			return ret;
		for (uint32_t j = 0; j < k; j++) {
			if (t->positions[0][j] != first)
				continue;
			c->shift = i + j;
			return KVARC_OK;
		}
		if (i == 0 && c->im->pub_tracks[c->track].kind != KVARC_TRACK_WINDOW)
			break;
	}
	return KVARC_OK;
}

/* ----- bytes, by their checks ------------------------------------------- */

/* Rows of the import that a chunk would hold; NULL: they cannot be read. */
static const uint8_t *fetch_rows(const struct comparing *c, const struct kvi_chunk_ref *ref,
                                 const struct kvi_segment_ref *s, size_t bytes,
                                 struct kvi_buffer *rows)
{
	if (!kvi_buffer_grow(rows, &c->r->alloc, bytes, 0) ||
	    kvarc_import_fetch(c->im, ref->tensor, ref->head, ref->heads, s->t0 - c->shift, s->n,
	                       rows->p))
		return NULL;
	return rows->p;
}

/* Whether a chunk is whole, and its raw_check that of the import's rows. False also where constant
 * rows of a chunk with several streams move their bounds, which only its payload says. */
static bool chunk_holds(struct comparing *c, struct compared_segment *x,
                        const struct kvi_chunk_ref *ref, struct compare_worker *w)
{
	const kvarc_tensor *t = &c->r->geometry.tensors[ref->tensor];
	const size_t channels = (size_t)ref->heads * t->channels;
	const unsigned size = (unsigned)kvarc_dtype_bytes(t->dtype);
	struct kvi_mask all = { .T = x->s->n, .C = channels, .rows = x->s->n, .size = size };
	uint64_t check[KVI_STREAMS_MAX];
	struct kvi_chunk_header h;
	struct kvi_streams streams;
	if (!kvi_whole_chunk(&c->whole, x->s, ref, &w->frames, &h) ||
	    !kvi_streams_cut(&streams, h.cut.stream_size, x->s->n))
		return false;
	const uint8_t *p = fetch_rows(c, ref, x->s, x->s->n * channels * size, &w->rows);
	x->failed = !p;
	return p && kvi_streams_check(&streams, &all, p, check) == h.raw_check;
}

/* A kvi_parallel_fn: the chunks of a segment. */
static void check_segment(void *opaque, size_t i, unsigned worker)
{
	struct comparing *c = opaque;
	struct compared_segment *x = KVI_LIST(struct compared_segment, c->segments, i);
	x->holds = x->whole && x->s->first < x->s->end;
	for (uint64_t k = x->s->first; k < x->s->end && x->holds; k++)
		x->holds = chunk_holds(c, x, KVI_LIST(struct kvi_chunk_ref, c->r->index.chunks, k),
		                       &c->workers[worker]);
}

/* ----- bytes, decoded ---------------------------------------------------- */

static void note_difference(struct comparing *c, bool failed, uint64_t token)
{
	pthread_mutex_lock(&c->lock);
	c->failed = c->failed || failed;
	if (!failed && token < c->differs)
		c->differs = token;
	pthread_mutex_unlock(&c->lock);
}

/* A kvarc_deliver: a decoded block beside that of the import. */
static int compare_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                         uint32_t n, const void *src)
{
	struct comparing *c = opaque;
	const kvarc_tensor *t = &c->r->geometry.tensors[tensor];
	const size_t row = (size_t)heads * t->channels * kvarc_dtype_bytes(t->dtype);
	uint8_t *rows = kvi_array(&c->r->alloc, n, row);
	bool failed = !rows || kvarc_import_fetch(c->im, tensor, head, heads, t0 - c->shift, n,
	                                          rows);
	if (failed)
		note_difference(c, true, 0);
	for (uint32_t i = 0; i < n && !failed; i++) {
		if (!memcmp(rows + i * row, (const uint8_t *)src + i * row, row))
			continue;
		note_difference(c, false, t0 + i);
		break;
	}
	kvi_free(&c->r->alloc, rows);
	return failed;
}

/* Decodes tokens of the archive's track. *end becomes the first one that differs, if one does. */
static kvarc_ret compare_decoded(struct comparing *c, uint64_t t0, uint64_t *end)
{
	const kvarc_range range = { c->track, 0, UINT32_MAX, t0, *end - t0, { 0 } };
	c->differs = UINT64_MAX;
	kvarc_ret ret = kvarc_reader_read_deliver(c->r, &range, compare_block, c);
	if (ret == KVARC_IO && c->failed)
		return no_input(c);
	if (!ret && c->differs < *end)
		*end = c->differs;
	return ret;
}

/* ----- a track ----------------------------------------------------------- */

/* The segments that hold tokens up to `end` of the archive's track. */
static kvarc_ret list_segments(struct comparing *c, uint64_t end)
{
	const struct kvi_list *l = &c->r->index.segments;
	for (size_t i = 0; i < l->n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, *l, i);
		if (!kvi_segment_has(s, c->track, c->shift, end))
			continue;
		struct compared_segment *x = kvi_list_add(&c->segments, &c->r->alloc, sizeof *x);
		if (!x)
			return kvi_reader_fail(c->r, kvi_alloc_error(&c->r->alloc), no_memory);
		*x = (struct compared_segment){ .s = s,
			                        .t0 = s->t0 > c->shift ? s->t0 : c->shift,
			                        .end = s->t0 + s->left < end ? s->t0 + s->left
			                                                     : end };
		x->whole = !c->decode && x->t0 == s->t0 && x->end == s->t0 + s->n;
	}
	return KVARC_OK;
}

static kvarc_ret check_segments(struct comparing *c)
{
	kvarc_ret ret = kvi_pool_open(&c->pool, &c->r->alloc, c->r->options.common.threads);
	unsigned workers = ret ? 0 : kvi_pool_workers(c->pool);
	c->workers = kvi_calloc(&c->r->alloc, workers + 1, sizeof *c->workers);
	if (!ret)
		ret = c->workers ? kvi_whole_open(&c->whole, c->r) : kvi_alloc_error(&c->r->alloc);
	if (ret)
		ret = kvi_reader_fail(c->r, ret, no_memory);
	else
		kvi_parallel(c->pool, c->segments.n, check_segment, c);
	kvi_pool_close(c->pool);
	for (unsigned i = 0; c->workers && i < workers; i++) {
		kvi_free(&c->r->alloc, c->workers[i].rows.p);
		if (c->whole.r)
			kvi_whole_free(&c->whole, &c->workers[i].frames);
	}
	kvi_free(&c->r->alloc, c->workers);
	kvi_whole_close(&c->whole);
	return ret;
}

/* Of tokens up to *end of the archive's track, whose ids are equal: where bytes first differ. */
static kvarc_ret compare_bytes(struct comparing *c, uint64_t *end)
{
	kvarc_ret ret = list_segments(c, *end);
	if (!ret)
		ret = check_segments(c);
	for (size_t i = 0; i < c->segments.n && !ret; i++) {
		const struct compared_segment *x = KVI_LIST(struct compared_segment, c->segments,
		                                            i);
		uint64_t to = x->end;
		if (x->failed)
			ret = no_input(c);
		else if (!x->holds)
			ret = compare_decoded(c, x->t0, &to);
		if (ret == KVARC_DATA) {
			kvi_reader_forgive(c->r);
			ret = KVARC_OK;
			to = x->t0;
			c->lost = *end - to;
		}
		if (ret || to == x->end)
			continue;
		*end = to;
		break;
	}
	return ret;
}

/* The leading tokens of the archive's track whose ids and positions can be read. */
static kvarc_ret find_whole(struct comparing *c, uint64_t *there)
{
	const struct kvi_list *l = &c->r->index.segments;
	struct kvi_segment *s = kvi_malloc(&c->r->alloc, sizeof *s);
	kvarc_ret ret = s ? KVARC_OK
	                  : kvi_reader_fail(c->r, kvi_alloc_error(&c->r->alloc), no_memory);
	for (size_t i = 0; i < l->n && !ret; i++) {
		const struct kvi_segment_ref *x = KVI_LIST(struct kvi_segment_ref, *l, i);
		if (!kvi_segment_has(x, c->track, 0, *there))
			continue;
		ret = kvi_reader_read_segment(c->r, &c->r->packer, x, s, c->r->error);
		if (ret != KVARC_DATA)
			continue;
		kvi_reader_forgive(c->r);
		ret = KVARC_OK;
		*there = x->t0;
	}
	kvi_free(&c->r->alloc, s);
	return ret;
}

/* How many of the first tokens of the archive's track are the import's, by ids and positions. */
static kvarc_ret compare_ids(struct comparing *c, struct token_pair *t, uint64_t there, uint64_t n,
                             uint64_t *equal)
{
	*equal = 0;
	kvarc_ret ret = there ? find_shift(c, t, there) : KVARC_OK;
	if (!ret && there)
		ret = compare_tokens(c, t, there - c->shift < n ? there - c->shift : n, equal);
	return ret;
}

static kvarc_ret compare(struct comparing *c, struct token_pair *t, struct kvi_append_track *to)
{
	const uint64_t all = kvarc_reader_tokens(c->r, c->track);
	uint64_t there = all, equal = 0;
	kvarc_ret ret = compare_ids(c, t, there, to->n, &equal);
	if (ret == KVARC_DATA) {
		kvi_reader_forgive(c->r);
		ret = find_whole(c, &there);
		if (!ret)
			ret = compare_ids(c, t, there, to->n, &equal);
	}
	uint64_t end = c->shift + equal, behind = 0;
	/* whether those behind lost ids are the same is not known */
	if (!ret && there < all && end == there)
		behind = (all - c->shift < to->n ? all - c->shift : to->n) - equal;
	if (!ret && equal)
		ret = compare_bytes(c, &end);
	to->kept = ret ? 0 : end - c->shift;
	to->shift = to->kept ? c->shift : 0;
	if (!ret && (c->lost || end == c->shift + equal))
		to->lost = c->lost + behind;
	return ret;
}

kvarc_ret kvi_append_compare(kvarc_reader *r, kvarc_import *im, uint32_t track, bool decode,
                             struct kvi_append_track *to)
{
	struct comparing c = { .r = r, .im = im, .track = track, .decode = decode };
	*to = (struct kvi_append_track){ .n = im->tracks[track].n };
	if (!to->n || !kvarc_reader_tokens(r, track))
		return KVARC_OK;
	struct token_pair *t = kvi_malloc(&r->alloc, sizeof *t);
	if (!t)
		return kvi_reader_fail(r, kvi_alloc_error(&r->alloc), no_memory);
	pthread_mutex_init(&c.lock, NULL);
	kvarc_ret ret = compare(&c, t, to);
	pthread_mutex_destroy(&c.lock);
	kvi_free(&r->alloc, t);
	kvi_free(&r->alloc, c.segments.p);
	return ret;
}
