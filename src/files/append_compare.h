/* SPDX-License-Identifier: BSD-3-Clause */
/* append_compare.h - which tokens of an import an archive has already, by ids and bytes */
#ifndef KVI_APPEND_COMPARE_H
#define KVI_APPEND_COMPARE_H

#include <stdbool.h>

#include "kvarc.h"

/* A track of an import beside that of an archive. */
struct kvi_append_track {
	uint64_t n;     /* tokens of the import */
	uint64_t shift; /* the archive's token that is its first */
	uint64_t kept;  /* its leading tokens that the archive has from there on */
	uint64_t lost;  /* those behind that the archive had, but of which the first are damaged */
};

/*
 * Finds what the archive has of the tokens of a track: ids, positions and the bytes of all tensors
 * are the same, and whole: the check of every frame that they need is verified. Damaged tokens are
 * not kept, nor are those behind them. The last state of r; im: matches it (append_match.h).
 * decode: bytes are compared, not their checks. A window whose first token is not that of the
 * archive is looked for by its position. Returns OK, or what readers return; IO: of the import,
 * too.
 */
kvarc_ret kvi_append_compare(kvarc_reader *r, kvarc_import *im, uint32_t track, bool decode,
                             struct kvi_append_track *to);

#endif
