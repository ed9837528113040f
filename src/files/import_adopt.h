/* SPDX-License-Identifier: BSD-3-Clause */
/* import_adopt.h - heads and RoPEs of an import as an earlier archive of the same cache has them */
#ifndef KVI_IMPORT_ADOPT_H
#define KVI_IMPORT_ADOPT_H

#include <stdbool.h>

#include "kvarc.h"
#include "util/shared.h"

/* Gives the tensors of an import the heads, channels and RoPEs of a valid geometry, so that both
 * have the same chain values. False: they are of other caches, and nothing has changed. */
KVI_SHARED bool kvi_import_adopt(kvarc_import *im, const kvarc_geometry *g);

#endif
