/* SPDX-License-Identifier: BSD-3-Clause */
/* append_match.h - whether an import continues an archive: the same model, cache and layout */
#ifndef KVI_APPEND_MATCH_H
#define KVI_APPEND_MATCH_H

#include "kvarc.h"

/*
 * Compares the geometry and identity of an import with those of a reader, and makes the import's
 * tensors have the heads and channels of the archive. Returns OK, GEOMETRY (they differ; nothing
 * has changed), LOSSY (a tier has changed the tokens of the archive).
 */
kvarc_ret kvi_append_match(kvarc_reader *r, kvarc_import *im);

#endif
