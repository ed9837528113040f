/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.h - how an imported file is put together again (spec 10) */
#ifndef KVI_PLAN_H
#define KVI_PLAN_H

#include "format/restore.h"
#include "kvarc.h"

/* The pieces of an item of an import: its areas, and literals between them.
 * Returns OK, MEM, MEMLIMIT; *r is empty then. kvi_restore_free. */
kvarc_ret kvi_plan_make(const kvarc_import *im, uint32_t item, struct kvi_restore *r);
/* As kvi_plan_make, with all bytes of the item as one literal. */
kvarc_ret kvi_plan_whole(const kvarc_import *im, uint32_t item, struct kvi_restore *r);

#endif
