/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_sets.h - the table sets of the grid codec (spec grid 5, spec/tables) */
#ifndef KVI_GRID_SETS_H
#define KVI_GRID_SETS_H

#include <stdint.h>

/* Number of built-in table sets. */
enum { KVI_GRID_SETS = 1 };

/* KVI_GRID_TABLES * KVI_GRID_SYMBOLS frequencies. */
extern const uint16_t kvi_grid_set_0[];

#endif
