# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
	src/tables/cells.inc \
	src/tables/code_freq.inc \
	src/tables/grid_sets.inc \
	src/tables/rotate_tables.inc
