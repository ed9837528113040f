/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_state.h - what a plan has: its chunks, and where everything lies in staging memory */
#ifndef KVI_PLAN_STATE_H
#define KVI_PLAN_STATE_H

#include "chunk_plan.h"
#include "device_state.h"
#include "format/codec_ids.h"
#include "reader/reader_located.h"
#include "util/bytes.h"
#include "util/list.h"

/* Addresses of the caller, and parts of staging memory, are multiples of these. */
enum { KVI_PLACE_ALIGN = 256, KVI_PART_ALIGN = 16 };

/* A chunk of a plan; of one that writes, a chunk that kernels encode. */
struct kvi_planned_chunk {
	struct kvi_gpu_chunk job; /* addresses are offsets in staging, or in a slot */
	uint64_t params_sequence; /* of its PARAMS frame, if it is encoded with one */
	uint64_t file_offset;     /* offset of its payload in the file */
	uint32_t file_bytes;
	uint64_t given; /* address of its payload in memory of the caller; 0: it is staged */
	uint64_t t0;    /* first token in the track */
	uint32_t tensor, layer;
	uint32_t from, to; /* the tokens of the chunk that the range has */
	uint16_t head;
	bool host;      /* decoded by the host: a raw chunk is made of it */
	bool predicted; /* by the host: from other chunks, or by a model */
	bool launched;  /* the kernel that encodes it is */
};

/* Parameters in the constants. */
struct kvi_planned_params {
	uint64_t sequence; /* sequence of their PARAMS frame */
	uint32_t tensor;
	uint16_t head;
	uint64_t at; /* offset of struct kvi_gpu_params */
};

/* A plan. Offsets are in staging memory: the constants, payloads, the jobs; where it writes,
 * payloads and the sums of chunks are behind the jobs. */
struct kvarc_device_plan {
	struct kvarc_device *d;
	kvarc_reader *r;
	kvarc_writer *w; /* NULL: the plan reads; else r is */
	const kvarc_geometry *geometry;
	kvarc_range range;
	uint64_t tokens;          /* tokens of the range */
	struct kvi_list chunks;   /* struct kvi_planned_chunk, in the order of kvi_plan_compare */
	struct kvi_out constants; /* tables, parameters, positions; addresses are offsets */
	struct kvi_list params;   /* struct kvi_planned_params */
	struct kvi_gpu_tables tables;
	uint64_t tables_at;             /* offset of struct kvi_gpu_tables */
	uint64_t jobs_at;               /* offset of the jobs, in the order of chunks */
	uint64_t locks_at;              /* offset of those of the slots, behind the jobs */
	uint64_t output_at;             /* offset of struct kvi_gpu_output, behind the locks */
	uint64_t slot_bytes;            /* bytes of work memory that a chunk takes at most */
	uint32_t slots, shared_bytes;   /* shared_bytes: of a block of the kernel */
	uint64_t output_bytes;          /* of payloads behind it; 0: the plan reads */
	uint64_t staging, work, status; /* addresses; 0: not staged, not placed */
	uint64_t staged_to;             /* number of the first layer that is not staged yet */
	kvarc_device_plan_info info;

	/* Members of plans that write. */
	int32_t *ids, *positions; /* per token; NULL: not known, and they continue */
	kvarc_device_view *views; /* views as placed, one per tensor */
	bool appended;
};

/* The header of the raw chunk of `heads` heads and n tokens that stands for one that the host
 * decodes; raw_check is 0. */
struct kvi_chunk_header kvi_planned_header(const struct kvi_planned_chunk *chunk, uint32_t heads,
                                           uint32_t n);

/* Space for n bytes at the end of the constants, zeros at first; NULL: no memory. *at: its
 * offset. */
uint8_t *kvi_plan_reserve(struct kvarc_device_plan *plan, size_t n, uint64_t *at);
/* The tables of all chunks, the first of the constants. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_plan_begin_constants(struct kvarc_device_plan *plan);
/* Parameters of a PARAMS frame for a tensor and head, added at their first use: fills at.
 * Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_plan_add_params(struct kvarc_device_plan *plan, struct kvi_planned_params *of,
                              const struct kvi_params *params, const struct kvi_chunk *shape);
/* n rounded up to a multiple of KVI_PART_ALIGN. */
static inline uint64_t kvi_part_aligned(uint64_t n)
{
	return (n + KVI_PART_ALIGN - 1) & ~(uint64_t)(KVI_PART_ALIGN - 1);
}

/* The order of chunks in a plan, as strcmp: by layer, token, tensor, head. */
static inline int kvi_plan_compare(const struct kvi_planned_chunk *chunk,
                                   const struct kvi_planned_chunk *other)
{
	if (chunk->layer != other->layer)
		return chunk->layer < other->layer ? -1 : 1;
	if (chunk->t0 != other->t0)
		return chunk->t0 < other->t0 ? -1 : 1;
	if (chunk->tensor != other->tensor)
		return chunk->tensor < other->tensor ? -1 : 1;
	return chunk->head < other->head ? -1 : chunk->head > other->head;
}
/* Sorts the chunks, and divides work memory: slots in which chunks take turns, each large enough
 * for any of them. */
void kvi_plan_arrange(struct kvarc_device_plan *plan);

/* The view of a tensor as kernels take it: from a head and a row on. */
struct kvi_gpu_view kvi_plan_view(const kvarc_device_view *view, uint16_t head, uint32_t row);

/* Whether a plan reads, or writes; PROG: it does not. */
kvarc_ret kvi_plan_check_use(const struct kvarc_device_plan *plan, const char *call, bool writes);

/* Whether there are kernels for elements of a dtype in a codec whose chunks are decodable. */
bool kvi_plan_has_kernel(unsigned codec, uint32_t dtype);

/* Whether a plan has the layers layer0 .. layer0 + n - 1: *stop is behind the last. Returns OK,
 * GEOMETRY. */
kvarc_ret kvi_plan_has_layers(const struct kvarc_device_plan *plan, const char *call,
                              uint32_t layer0, uint32_t n, uint64_t *stop);

/* The chunks of the layers layer0 .. layer0 + n - 1: *first to *end - 1. GEOMETRY: the plan does
 * not have these layers. */
kvarc_ret kvi_plan_layers(const struct kvarc_device_plan *plan, const char *call, uint32_t layer0,
                          uint32_t n, size_t *first, size_t *end);

#endif
