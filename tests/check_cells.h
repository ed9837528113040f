/* SPDX-License-Identifier: BSD-3-Clause */
/* check_cells.h - a part of check_kernels */
#ifndef CHECK_CELLS_H
#define CHECK_CELLS_H

#include "kernels/cells.h"

/* One random round of two sets, which may be the same; the name of a kernel that differs or does
 * not decode what was encoded. NULL: none. A kernel that reads or writes behind a buffer ends the
 * process by a signal. */
const char *check_cells(const struct kvi_cell_kernels *ref, const struct kvi_cell_kernels *fast);

#endif
