/* SPDX-License-Identifier: BSD-3-Clause */
/* stages.h - bits per element after each stage of a predictor, by tensor */
#ifndef KVARC_CLI_STAGES_H
#define KVARC_CLI_STAGES_H

#include "kvarc/tools.h"
#include "shape.h"

/* The measurement of one tensor. */
struct stage_row {
	uint32_t layer, kind; /* SHAPE_KEY ... */
	uint32_t channels;    /* channels of all heads together */
	kvarc_measured m;     /* measurement; its channel_bits are owned */
};

/* All measured tensors of track 0. */
struct stages {
	size_t n;
	struct stage_row *rows; /* ascending by layer */
	uint64_t tokens;
	unsigned level;
	bool no_memory;
};

/* Measures track 0 with the first predictor. Returns the code of kvarc_reader_measure, MEM, or END
 * when the archive has no predictor. stages_free in every case. */
kvarc_ret stages_make(struct stages *stages, kvarc_reader *r);
/* Releases the rows. */
void stages_free(struct stages *stages);

#endif
