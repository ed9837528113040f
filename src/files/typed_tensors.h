/* SPDX-License-Identifier: BSD-3-Clause */
/* typed_tensors.h - tensors that no rule knows, coded by the type of their elements alone */
#ifndef KVI_TYPED_TENSORS_H
#define KVI_TYPED_TENSORS_H

#include <stddef.h>

#include "kvarc.h"

struct kvi_named;

/*
 * Adds those of n tensors that do not overlap whose elements are floats and which a sample shows to
 * be smaller as such than as bytes: KVARC_OPAQUE, on tracks whose tokens are rows of the tensors.
 * Others stay bytes. Returns OK, END (a limit of the format), IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_import_typed(kvarc_import *im, const struct kvi_named *named, size_t n);

#endif
