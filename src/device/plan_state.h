/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_state.h - what a plan has: its chunks, and where everything lies in staging memory */
#ifndef KVI_PLAN_STATE_H
#define KVI_PLAN_STATE_H

#include "chunk_plan.h"
#include "device_state.h"
#include "reader/reader_located.h"
#include "util/bytes.h"
#include "util/list.h"

/* Addresses of the caller, and parts of staging memory, are multiples of these. */
enum { KVI_PLACE_ALIGN = 256, KVI_PART_ALIGN = 16 };

/* A chunk of a plan. */
struct kvi_planned_chunk {
	struct kvi_gpu_chunk job; /* addresses are offsets in staging, or in work memory */
	struct kvi_gpu_work work;
	uint64_t file_offset; /* of its payload */
	uint64_t t0;          /* in the track */
	uint32_t tensor, layer;
	uint32_t tables;   /* of its parameters, codec exponent */
	uint32_t from, to; /* the tokens of the chunk that the range has */
	uint16_t head;
	bool host; /* decoded by the host: a raw chunk is made of it */
};

/* A plan. Offsets are in staging memory: the constants, then payloads, then the jobs. */
struct kvarc_device_plan {
	struct kvarc_device *d;
	kvarc_reader *r;
	const kvarc_geometry *geometry;
	kvarc_range range;
	uint64_t tokens;          /* of the range */
	struct kvi_list chunks;   /* struct kvi_planned_chunk, ascending by layer */
	struct kvi_out constants; /* tables, parameters, positions; addresses are offsets */
	struct kvi_list params;   /* struct kvi_planned_params */
	struct kvi_gpu_tables tables;
	uint64_t tables_at;             /* of struct kvi_gpu_tables */
	uint64_t jobs_at;               /* of struct kvi_gpu_chunk, in the order of chunks */
	uint64_t staging, work, status; /* addresses; 0: not staged, not placed */
	kvarc_device_plan_info info;
};

/* Parameters in the constants. */
struct kvi_planned_params {
	uint64_t sequence; /* of their PARAMS frame */
	uint32_t tensor;
	uint16_t head;
	uint64_t at; /* of struct kvi_gpu_params */
	uint32_t tables;
};

/* The header of the raw chunk of `heads` heads and n tokens that stands for one that the host
 * decodes; raw_check is 0. */
struct kvi_chunk_header kvi_planned_header(const struct kvi_planned_chunk *c, uint32_t heads,
                                           uint32_t n);

/* Whether there are kernels for chunks of a codec and a format. */
bool kvi_plan_has_kernel(uint32_t codec, uint32_t dtype);

/* The chunks of the layers layer0 .. layer0 + n - 1: *first to *end - 1. GEOMETRY: the plan does
 * not have these layers. */
kvarc_ret kvi_plan_layers(const struct kvarc_device_plan *p, const char *call, uint32_t layer0,
                          uint32_t n, size_t *first, size_t *end);

#endif
