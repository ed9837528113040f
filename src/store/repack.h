/* SPDX-License-Identifier: BSD-3-Clause */
/* repack.h - copies of what is needed of archives that others need little of */
#ifndef KVI_REPACK_H
#define KVI_REPACK_H

#include "gc_steps.h"

/*
 * Puts a copy of what is needed of archives that no manifest names, and less than half of which is
 * needed. These archives are then not `needed` in the map of the gc, and archives are not either
 * if others hold all that is needed of them: the steps of the gc follow. A dry run puts nothing,
 * and counts them. An archive that cannot be copied is reported, and stays. Returns OK, MEM, IO,
 * DATA (the index).
 */
kvarc_ret kvi_repack(struct kvi_gc *g);

#endif
