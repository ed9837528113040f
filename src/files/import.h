/* SPDX-License-Identifier: BSD-3-Clause */
/* import.h - looks at files and containers and finds the caches in them */
#ifndef KVI_IMPORT_H
#define KVI_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/shared.h"

/* ==== Heads and RoPEs of an import as an earlier archive of the same cache has them ==== */

/* Gives an import what it does not say itself of the identity of an archive of the same cache and,
 * with `heads`, its tensors the heads, channels and RoPEs of that, so that both have the same chain
 * values. Returns a key of the identity in which they differ, or NULL. r NULL: takes back what the
 * import has adopted of an identity, and returns a key of that, or NULL. */
KVI_SHARED const char *kvi_import_adopt(kvarc_import *im, const kvarc_reader *r, bool heads);

/* ==== Which rows of an import are tokens of its sequences ==== */

/* Order in which kinds of tracks stand for the tokens of a file. */
static inline int kvi_import_rank(const kvarc_import *im, uint32_t track)
{
	const uint8_t kind = kvarc_import_geometry(im)->tracks[track].kind;
	return kind == KVARC_TRACK_SELF ? 0 : kind != KVARC_TRACK_STATE ? 1 : 2;
}

/* Whether the rows of a track count as tokens of the file: those of its sequences do. The rows of
 * windows, indexers and states repeat or sum up these, and count, of one track, where there are no
 * others. */
static inline bool kvi_import_counts(const kvarc_import *im, uint32_t track)
{
	const int rank = kvi_import_rank(im, track);
	const uint64_t n = kvarc_import_tokens(im, track);
	for (uint32_t i = 0; i < kvarc_import_geometry(im)->n_tracks; i++) {
		const int other = kvi_import_rank(im, i);
		const uint64_t k = kvarc_import_tokens(im, i);
		if ((k && other < rank) ||
		    (rank && other == rank && (k > n || (k == n && i < track))))
			return false;
	}
	return true;
}

/* ==== Whether an archive gives the files of an import back ==== */

/* Unpacks all items of an archive, of which nothing was read before, and compares them, byte by
 * byte, with the files of an import. Returns OK; END: they are other ones; IO: a file cannot be
 * read; and what kvarc_unpack returns. Errors but END go to error, or to the reader's. */
KVI_SHARED kvarc_ret kvi_import_compare(const kvarc_import *im, kvarc_reader *r,
                                        kvarc_error *error);

#endif
