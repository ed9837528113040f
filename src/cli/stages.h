/* SPDX-License-Identifier: BSD-3-Clause */
/* stages.h - what the stages of an archive's predictor are worth, tensor by tensor */
#ifndef KVARC_CLI_STAGES_H
#define KVARC_CLI_STAGES_H

#include "kvarc.h"
#include "shape.h"

/* The measured bits of one tensor by coding stage. */
struct stage_row {
	uint32_t layer, kind; /* SHAPE_KEY ... */
	uint32_t channels;    /* of all heads */
	kvarc_measured m;     /* its channel_bits are owned */
};

/* The measured bits of all tensors. */
struct stages {
	size_t n;
	struct stage_row *rows; /* ascending by layer */
	uint64_t tokens;
	unsigned level;
	bool no_memory;
};

/* Of track 0. Returns what kvarc_reader_measure does, and MEM; END: nothing is
 * predicted. stages_free in every case. */
kvarc_ret stages_make(struct stages *s, kvarc_reader *r);
/* Frees the rows. */
void stages_free(struct stages *s);

#endif
