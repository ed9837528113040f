/* SPDX-License-Identifier: BSD-3-Clause */
/* prefixes.c - which tracks of an import begin as an earlier one does, and for how many tokens */
#include "prefixes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "format/fork.h"
#include "util/error.h"

enum {
	LOOKS = 64,              /* earlier tracks that are looked at */
	BLOCK_TOKENS = 256,      /* tokens that are compared at once, at most */
	BLOCK_BYTES = 256 << 10, /* and their bytes in a tensor, unless one token has more */
};

/* Tracks that are compared. */
struct comparing_tracks {
	kvarc_import *im;
	struct kvi_order order;
	struct kvi_prefix *prefixes;
	bool behind_padding; /* tokens are counted from the left padding of each track on */
	uint64_t *common;    /* by track: tokens that the current one shares with it */
	uint8_t *rows[2];
};

/* Two tracks; the later one is the second. */
struct track_pair {
	uint32_t track[2];
	uint64_t end; /* tokens that both have */
};

static uint64_t padding_of(const struct comparing_tracks *comparing, uint32_t track)
{
	const struct kvi_imp_track *t = &comparing->im->tracks[track];
	return comparing->behind_padding ? t->padding : 0;
}

/* Bytes of a token in the largest tensor of a track. */
static uint32_t largest_row(const struct comparing_tracks *comparing, uint32_t track)
{
	const struct kvi_order *order = &comparing->order;
	uint32_t most = 1;
	for (uint32_t i = order->first[track]; i < order->first[track + 1]; i++) {
		const kvarc_tensor *t = &comparing->im->geometry.tensors[order->tensors[i]];
		const uint32_t bytes = kvi_tensor_bytes(t);
		most = bytes > most ? bytes : most;
	}
	return most;
}

/* Moves *n, a number of tokens from `at` on, down to the first one whose position or id differs. */
static kvarc_ret compare_names(const struct comparing_tracks *comparing,
                               const struct track_pair *pair, uint64_t at, uint32_t *n)
{
	const struct kvi_imp_track *tracks = comparing->im->tracks;
	int32_t positions[2][BLOCK_TOKENS], ids[2][BLOCK_TOKENS] = { { 0 } };
	if (tracks[pair->track[0]].has_ids != tracks[pair->track[1]].has_ids)
		*n = 0;
	for (int k = 0; k < 2 && *n; k++)
		if (kvi_import_tokens(comparing->im, pair->track[k], at, *n, positions[k], ids[k]))
			return KVARC_IO;
	for (uint32_t i = 0; i < *n; i++)
		if (positions[0][i] != positions[1][i] || ids[0][i] != ids[1][i])
			*n = i;
	return KVARC_OK;
}

/* As compare_names, of the elements of a pair of tensors. */
static kvarc_ret compare_elements(const struct comparing_tracks *comparing,
                                  const struct track_pair *pair, const uint32_t tensors[2],
                                  uint64_t at, uint32_t *n)
{
	const kvarc_tensor *t = &comparing->im->geometry.tensors[tensors[0]];
	const size_t row = kvi_tensor_bytes(t);
	for (int k = 0; k < 2; k++)
		if (kvarc_import_fetch(comparing->im, tensors[k], 0, t->heads,
		                       padding_of(comparing, pair->track[k]) + at, *n,
		                       comparing->rows[k]))
			return KVARC_IO;
	if (!memcmp(comparing->rows[0], comparing->rows[1], *n * row))
		return KVARC_OK;
	for (uint32_t i = 0; i < *n; i++)
		if (memcmp(comparing->rows[0] + i * row, comparing->rows[1] + i * row, row))
			*n = i;
	return KVARC_OK;
}

/* As compare_names, of all that a token has. */
static kvarc_ret compare_block(const struct comparing_tracks *comparing,
                               const struct track_pair *pair, uint64_t at, uint32_t *n)
{
	const struct kvi_order *order = &comparing->order;
	const uint32_t first = order->first[pair->track[0]];
	const uint32_t other = order->first[pair->track[1]];
	kvarc_ret ret = KVARC_OK;
	if (!comparing->behind_padding)
		ret = compare_names(comparing, pair, at, n);
	for (uint32_t i = first; i < order->first[pair->track[0] + 1] && *n && !ret; i++) {
		const uint32_t tensors[2] = { order->tensors[i],
			                      order->tensors[other + (i - first)] };
		ret = compare_elements(comparing, pair, tensors, at, n);
	}
	return ret;
}

/* Moves *at, up to which the tracks are equal, to the first token that differs. */
static kvarc_ret compare_tracks(const struct comparing_tracks *comparing,
                                const struct track_pair *pair, uint64_t *at)
{
	const uint32_t fit = BLOCK_BYTES / largest_row(comparing, pair->track[0]);
	const uint32_t most = fit > BLOCK_TOKENS ? BLOCK_TOKENS : fit ? fit : 1;
	kvarc_ret ret = KVARC_OK;
	/* Most tracks that differ do so in the first token. */
	bool equal = true;
	for (uint32_t n = 1; *at < pair->end && equal && !ret; n = most) {
		const uint64_t left = pair->end - *at;
		uint32_t same = n = left < n ? (uint32_t)left : n;
		ret = compare_block(comparing, pair, *at, &same);
		equal = same == n;
		*at += same;
	}
	return ret;
}

static bool may_share(const struct comparing_tracks *comparing, uint32_t track, uint32_t other)
{
	const kvarc_import *im = comparing->im;
	const uint8_t kind = im->tracks[track].pub.kind;
	return kind != KVARC_TRACK_STATE && kind == im->tracks[other].pub.kind &&
	       kvi_fork_fits(&im->geometry, &comparing->order, track, other);
}

/*
 * Counts the tokens that a track shares with an earlier one. What that shares with one before it
 * says all, unless both share the same with that: so every token is compared once.
 */
static kvarc_ret count_common(struct comparing_tracks *comparing, uint32_t track, uint32_t other)
{
	const struct kvi_imp_track *tracks = comparing->im->tracks;
	const struct kvi_prefix *x = &comparing->prefixes[other];
	const uint64_t left = tracks[track].n - padding_of(comparing, track);
	const uint64_t there = tracks[other].n - padding_of(comparing, other);
	const struct track_pair pair = { { other, track }, left < there ? left : there };
	uint64_t *n = &comparing->common[other];
	*n = 0;
	if (!may_share(comparing, track, other))
		return KVARC_OK;
	if (x->shared && (uint64_t)x->from + LOOKS >= track) {
		*n = x->shared;
		if (comparing->common[x->from] != x->shared) {
			*n = comparing->common[x->from] < *n ? comparing->common[x->from] : *n;
			return KVARC_OK;
		}
	}
	return compare_tracks(comparing, &pair, n);
}

static kvarc_ret find_prefix(struct comparing_tracks *comparing, uint32_t track)
{
	struct kvi_prefix *p = &comparing->prefixes[track];
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = track > LOOKS ? track - LOOKS : 0; i < track && !ret; i++) {
		ret = count_common(comparing, track, i);
		if (comparing->common[i] <= p->shared || comparing->common[i] < KVI_PREFIX_LEAST)
			continue;
		p->from = i;
		p->shared = comparing->common[i];
	}
	return ret;
}

/* ==== Segments of tracks with left paddings end where those of others do ==== */

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* Drops cuts that are near the one before: segments do not become many. Tracks have the same
 * cuts as far as their tokens are, and lose the same ones. */
static size_t drop_near(uint64_t *cuts, size_t n)
{
	size_t kept = 1;
	qsort(cuts, n, sizeof *cuts, by_number);
	for (size_t i = 1; i < n; i++)
		if (cuts[i] - cuts[kept - 1] >= KVI_PREFIX_LEAST)
			cuts[kept++] = cuts[i];
	return kept;
}

/* Makes the cuts of a track, of which those before it have theirs: where its padding ends, where it
 * stops to be as an earlier track, where later ones stop to be as it, and before that, where that
 * earlier track is cut. */
static kvarc_ret make_cuts(const kvarc_import *im, struct kvi_prefix *prefixes, uint32_t track)
{
	struct kvi_prefix *p = &prefixes[track];
	const struct kvi_prefix *from = &prefixes[p->from];
	const uint64_t padding = im->tracks[track].padding;
	const uint64_t there = im->tracks[p->from].padding;
	const size_t most = im->n_tracks - track + 1 + (p->shared ? from->n_cuts : 0);
	uint64_t *cuts = kvi_array(&im->alloc, most, sizeof *cuts);
	size_t n = 1;
	if (!cuts)
		return kvi_fail_alloc(im->error, &im->alloc);
	cuts[0] = padding;
	for (size_t i = 0; p->shared && i < from->n_cuts; i++)
		if (from->cuts[i] - there < p->shared)
			cuts[n++] = from->cuts[i] - there + padding;
	if (p->shared)
		cuts[n++] = padding + p->shared;
	for (size_t i = track + 1; i < im->n_tracks; i++)
		if (prefixes[i].shared && prefixes[i].from == track)
			cuts[n++] = padding + prefixes[i].shared;
	p->cuts = cuts;
	p->n_cuts = drop_near(cuts, n);
	return KVARC_OK;
}

static kvarc_ret cut_segments(const kvarc_import *im, struct kvi_prefix *prefixes)
{
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < im->n_tracks && !ret; i++)
		ret = make_cuts(im, prefixes, i);
	for (uint32_t i = 0; i < im->n_tracks; i++)
		prefixes[i].shared = 0;
	return ret;
}

/* ==== What an archive need not have again of the tracks of an import ==== */

static kvarc_ret begin(struct comparing_tracks *comparing)
{
	kvarc_import *im = comparing->im;
	size_t bytes = BLOCK_BYTES;
	comparing->prefixes = kvi_calloc(&im->alloc, im->n_tracks, sizeof *comparing->prefixes);
	comparing->common = kvi_calloc(&im->alloc, im->n_tracks, sizeof *comparing->common);
	if (!comparing->prefixes || !comparing->common ||
	    kvi_order_make(&comparing->order, &im->alloc, &im->geometry))
		return kvi_fail_alloc(im->error, &im->alloc);
	for (uint32_t i = 0; i < im->n_tracks; i++) {
		const size_t row = largest_row(comparing, i);
		bytes = row > bytes ? row : bytes;
		comparing->behind_padding |= im->tracks[i].padding != im->tracks[0].padding;
	}
	for (int k = 0; k < 2; k++)
		comparing->rows[k] = kvi_malloc(&im->alloc, bytes);
	return comparing->rows[0] && comparing->rows[1] ? KVARC_OK
	                                                : kvi_fail_alloc(im->error, &im->alloc);
}

kvarc_ret kvi_prefixes_find(kvarc_import *im, struct kvi_prefix **prefixes)
{
	struct comparing_tracks c = { .im = im };
	kvarc_ret ret = begin(&c);
	for (uint32_t i = 1; i < im->n_tracks && !ret; i++)
		ret = find_prefix(&c, i);
	if (!ret && c.behind_padding)
		ret = cut_segments(im, c.prefixes);
	kvi_order_free(&c.order, &im->alloc);
	kvi_free(&im->alloc, c.common);
	kvi_free(&im->alloc, c.rows[0]);
	kvi_free(&im->alloc, c.rows[1]);
	if (ret) {
		kvi_prefixes_free(im, c.prefixes);
		c.prefixes = NULL;
	}
	*prefixes = c.prefixes;
	return ret == KVARC_IO ? kvi_fail(im->error, ret, "reading the input failed") : ret;
}
