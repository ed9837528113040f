/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_sets.c - the table sets of the grid codec (spec grid 5) */
#include "grid_sets.h"

#include "tables/grid_sets.inc"
