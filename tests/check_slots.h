/* SPDX-License-Identifier: BSD-3-Clause */
/* check_slots.h - a part of check_kernels */
#ifndef CHECK_SLOTS_H
#define CHECK_SLOTS_H

#include "kernels/rans.h"

/* One random round; the name of a kernel that differs from scalar C, or NULL. */
const char *check_slots(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                        const struct kvi_tables *tables);

#endif
