/* SPDX-License-Identifier: BSD-3-Clause */
/* prefixes.h - which tracks of an import begin as an earlier one does, and for how many tokens */
#ifndef KVI_PREFIXES_H
#define KVI_PREFIXES_H

#include <stddef.h>
#include <stdint.h>

#include "import_internal.h"
#include "kvarc.h"

/* Tokens that a track shares with an earlier one, at least. Fewer, as those that all texts begin
 * with, are not worth an archive that cannot be read from a pipe. */
enum { KVI_PREFIX_LEAST = 16 };

/* Tokens of a track that an archive need not have again. */
struct kvi_prefix {
	uint32_t from;   /* the earlier track whose first tokens are those of this one */
	uint64_t shared; /* how many; 0: there is none */
	uint64_t *cuts;  /* tokens before which a segment ends, ascending */
	size_t n_cuts;
};

/*
 * Compares the tracks of an import: by track, the earlier one that has most of its first tokens,
 * with the same positions, ids and elements. Where tracks have left paddings of several lengths,
 * they are compared behind these, without positions and ids, and get cuts in place of that:
 * segments that end there are equal in elements, so that later ones repeat earlier ones.
 * The tokens of a track are read once, as far as they are shared, and as often from tracks before.
 * *prefixes: kvi_prefixes_free; NULL after a failure. Returns OK, MEM, MEMLIMIT, IO.
 */
kvarc_ret kvi_prefixes_find(kvarc_import *im, struct kvi_prefix **prefixes);
/* Frees the prefixes of an import; NULL-safe. */
static inline void kvi_prefixes_free(const kvarc_import *im, struct kvi_prefix *prefixes)
{
	for (size_t i = 0; prefixes && i < im->n_tracks; i++)
		kvi_free(&im->alloc, prefixes[i].cuts);
	kvi_free(&im->alloc, prefixes);
}

#endif
