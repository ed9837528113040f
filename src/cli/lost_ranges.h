/* SPDX-License-Identifier: BSD-3-Clause */
/* lost_ranges.h - damage joined to ranges of layers and tokens */
#ifndef KVARC_CLI_LOST_RANGES_H
#define KVARC_CLI_LOST_RANGES_H

#include <stdbool.h>
#include <stddef.h>

#include "kvarc.h"

/* Layers and tokens that are lost together. */
struct lost_range {
	const char *what; /* static storage */
	uint64_t offset;  /* offset of the first damage, or KVARC_UNKNOWN */
	uint32_t track;   /* UINT32_MAX: not known */
	bool all_layers;  /* all layers of the track */
	uint32_t first_layer, last_layer;
	const char *tensor; /* "key": this one of first_layer alone; NULL: all of the layers */
	uint64_t t0, end;   /* tokens [t0, end); equal: none */
};

/* Joins n neighbouring entries of damage. *ranges: malloc'd, the caller frees it; NULL when
 * there is no memory. Returns how many there are. */
size_t lost_ranges_make(struct lost_range **ranges, const kvarc_damage *damage, size_t n,
                        const kvarc_geometry *geometry);

#endif
