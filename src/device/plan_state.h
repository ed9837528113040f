/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_state.h - what a plan has: its chunks, and where everything lies in staging memory */
#ifndef KVI_PLAN_STATE_H
#define KVI_PLAN_STATE_H

#include "chunk_plan.h"
#include "device_state.h"
#include "format/codec_ids.h"
#include "linear_chunk_plan.h"
#include "plan_engine.h"
#include "reader/reader_located.h"
#include "util/bytes.h"
#include "util/list.h"
#include "work_layout.h"

/* Addresses of the caller, and parts of staging memory, are multiples of these. */
enum { KVI_PLACE_ALIGN = 256, KVI_PART_ALIGN = 16 };

/* A chunk of a plan. */
struct kvi_planned_chunk {
	struct kvi_gpu_chunk job; /* addresses are offsets in staging, or in work memory */
	struct kvi_gpu_work work;
	uint64_t file_offset; /* of its payload */
	uint32_t file_bytes;
	struct kvi_packed_exact packed;
	uint64_t t0; /* in the track */
	uint32_t tensor, layer;
	uint32_t tables;   /* of its parameters, codec exponent */
	uint32_t from, to; /* the tokens of the chunk that the range has */
	uint32_t modelled; /* 1 + its index in the plan's list; 0: no model */
	uint16_t head;
	bool host; /* decoded by the host: a raw chunk is made of it */
};

/* A chunk with a linear model. */
struct kvi_planned_model {
	const struct kvi_model *model;
	const struct kvi_profile *profile; /* that has it */
	const kvarc_rope *rope;
	uint64_t t0, positions; /* positions: offset; 0: none */
	uint32_t order_index, layer, tokens;
	/* its sources, by their indices in the list; of a chunk that has r and w */
	uint32_t lower[KVI_LOWER_MAX], same[KVI_SAME_MAX], scale;
	bool coded;              /* of codec linear, model or klt, decoded by kernels */
	bool transforms;         /* of codec klt */
	bool z_there, all_there; /* kernels can make them */
	bool z;                  /* other layers need it */
	bool predicted, exact;   /* as in struct kvi_located */
	bool corrects;           /* the hidden state of the engine */
	uint8_t kind;            /* KVARC_KEY, KVARC_VALUE */
	uint8_t features;        /* KVI_GPU_FEATURES_* */
	uint32_t stage;
	uint32_t kept; /* 1 + the number of its model among those of the device that stay; 0: it is
	                * in the constants */
	struct kvi_gpu_linear job; /* offsets; sources are not set */
};

/* A model in the constants. */
struct kvi_model_constants {
	const struct kvi_model *model;
	uint64_t at; /* of struct kvi_gpu_model */
};

/* Parameters in the constants. */
struct kvi_planned_params {
	uint64_t sequence; /* of their PARAMS frame */
	uint32_t tensor;
	uint16_t head;
	uint64_t at; /* of struct kvi_gpu_params */
	uint32_t tables;
};

/* A chunk that kernels encode. */
struct kvi_output_chunk {
	struct kvi_gpu_encode job; /* addresses are offsets in staging, or in work memory */
	struct kvi_gpu_encode_work work;
	uint64_t params_sequence;
	uint32_t tensor, layer;
	uint32_t row;      /* of its first token in the plan */
	uint32_t modelled; /* as in struct kvi_planned_chunk */
	uint16_t head;
	bool coded;    /* else its features alone are made */
	bool launched; /* its kernels are */
};

/* A plan. Offsets are in staging memory: the constants, payloads, the jobs, those of models. */
struct kvarc_device_plan {
	struct kvarc_device *d;
	kvarc_reader *r;
	kvarc_writer *w; /* NULL: the plan reads; else r is */
	const kvarc_geometry *geometry;
	kvarc_range range;
	uint64_t tokens;          /* of the range */
	struct kvi_list chunks;   /* struct kvi_planned_chunk, ascending by layer */
	struct kvi_list outputs;  /* struct kvi_output_chunk, by layer, row, tensor, head */
	struct kvi_out constants; /* tables, parameters, positions; addresses are offsets */
	struct kvi_list params;   /* struct kvi_planned_params */
	struct kvi_gpu_tables tables;
	uint64_t tables_at;             /* of struct kvi_gpu_tables */
	uint64_t jobs_at;               /* of the jobs, in the order of chunks or outputs */
	uint64_t staging, work, status; /* addresses; 0: not staged, not placed */
	kvarc_device_plan_info info;

	/* Of models. */
	uint64_t linear_at, n_linear; /* of struct kvi_gpu_linear, of chunks that have one */
	struct kvi_list modelled;     /* struct kvi_planned_model, in the order of chunks */
	struct kvi_list models;       /* struct kvi_model_constants */
	struct kvi_list analyses;     /* the same, of the inverses of bases */
	uint32_t reach;               /* how many layers below a source is, at most */
	uint32_t next_layer;          /* that may be next; with reach alone */
	bool keeps;                   /* some of its models stay in the device */
	/* the last rope, and arrays of the last segment, in the constants; 0: none */
	const kvarc_rope *rope;
	uint64_t rope_at, segment_t0, segment_positions, segment_ids;

	struct kvi_planned_engine engine;

	/* Of plans that write. */
	int32_t *ids, *positions; /* of all tokens; NULL: not known, they go on */
	kvarc_device_view *views; /* as placed, one a tensor */
	bool appended;
};

/* The header of the raw chunk of `heads` heads and n tokens that stands for one that the host
 * decodes; raw_check is 0. */
struct kvi_chunk_header kvi_planned_header(const struct kvi_planned_chunk *c, uint32_t heads,
                                           uint32_t n);

/* Frees what chunks and outputs have, and the engine: then there is none, and the plan can go
 * through them again. */
void kvi_plan_empty(struct kvarc_device_plan *p);
/* Space for n bytes at the end of the constants, zeros at first; NULL: no memory. *at: its
 * offset. */
uint8_t *kvi_plan_reserve(struct kvarc_device_plan *p, size_t n, uint64_t *at);
/* The tables of all chunks, the first of the constants. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_plan_begin_constants(struct kvarc_device_plan *p);
/* Parameters of a PARAMS frame for a tensor and head, added at their first use: fills at and
 * tables. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_plan_add_params(struct kvarc_device_plan *p, struct kvi_planned_params *of,
                              const struct kvi_params *params, const struct kvi_chunk *shape);
/* n rounded up to a multiple of KVI_PART_ALIGN. */
static inline uint64_t kvi_part_aligned(uint64_t n)
{
	return (n + KVI_PART_ALIGN - 1) & ~(uint64_t)(KVI_PART_ALIGN - 1);
}

/* Where elements that the host encodes are collected in work memory: behind their job. */
enum { KVI_COLLECTED_AT = (sizeof(struct kvi_gpu_encode) + 255) / 256 * 256 };
/* Whether a codec is one of the lossy tiers that kernels encode. */
static inline bool kvi_output_is_lossy(uint32_t codec)
{
	return codec == KVI_CODEC_HAD || codec == KVI_CODEC_KLT;
}
/* The order of outputs in a plan, as strcmp. */
int kvi_output_compare(const struct kvi_output_chunk *a, const struct kvi_output_chunk *b);

/* The view of a tensor as kernels take it: from a head and a row on. */
struct kvi_gpu_view kvi_plan_view(const kvarc_device_view *v, uint16_t head, uint32_t row);

/* Whether a plan reads, or writes; PROG: it does not. */
kvarc_ret kvi_plan_check_use(const struct kvarc_device_plan *p, const char *call, bool writes);

/* Whether chunks of a codec are decoded by a linear model, with or without the engine. */
static inline bool kvi_plan_is_linear(uint32_t codec)
{
	return codec == KVI_CODEC_LINEAR || codec == KVI_CODEC_MODEL;
}
/* Whether there are kernels for chunks of a codec and a format. */
bool kvi_plan_has_kernel(uint32_t codec, uint32_t dtype);

/* Whether a plan has the layers layer0 .. layer0 + n - 1: *stop is behind the last. Returns OK,
 * GEOMETRY. */
kvarc_ret kvi_plan_has_layers(const struct kvarc_device_plan *p, const char *call, uint32_t layer0,
                              uint32_t n, uint64_t *stop);

/*
 * Adds what a model says of a chunk, if it has one: *modelled is 1 more than its number in the
 * list, or 0. *decodable: whether kernels take its codec; false on return where what a chunk of
 * codec linear is predicted from is not in the plan. Returns OK, MEM, MEMLIMIT.
 */
kvarc_ret kvi_plan_add_model(struct kvarc_device_plan *p, const struct kvi_located *chunk,
                             uint32_t *modelled, bool *decodable);
/* The inverse of the basis of a model, added at its first use: fills analysis and gains, with 0
 * where it cannot be computed. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_plan_add_analysis(struct kvarc_device_plan *p, const struct kvi_model *m,
                                struct kvi_gpu_quantiser *q);
/* Once all chunks are there: which features are made, in which order, of which models. Returns
 * OK, MEM, MEMLIMIT. */
kvarc_ret kvi_plan_models(struct kvarc_device_plan *p);
/* Finds the model of a chunk in the memory that stays between plans, or reserves space for it
 * there; fills x->kept. False: there is none, the model is for the constants. */
bool kvi_kept_take(struct kvarc_device_plan *p, struct kvi_planned_model *x);
/* The address of struct kvi_gpu_model of a chunk that has `kept`. */
uint64_t kvi_kept_address(const struct kvarc_device_plan *p, const struct kvi_planned_model *x);
/* Copies the models of a plan that are not in that memory yet, and waits until they are. The
 * context is current. Returns OK, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_kept_stage(struct kvarc_device_plan *p, void *stream);
/* The plan does not use that memory any more. */
void kvi_kept_release(struct kvarc_device_plan *p);
/* Whether features of a chunk are made. */
bool kvi_plan_makes_features(const struct kvarc_device_plan *p, uint32_t modelled);
/* The memory that they take. */
struct kvi_gpu_linear_bytes kvi_plan_model_bytes(const struct kvarc_device_plan *p,
                                                 uint32_t modelled);
/* Says where that is, and adds the chunk to those with a struct kvi_gpu_linear. */
void kvi_plan_place_model(struct kvarc_device_plan *p, uint32_t modelled, struct kvi_gpu_chunk *job,
                          const struct kvi_work_part *at);
/* That of a chunk whose job has one, with its sources; offsets. */
struct kvi_gpu_linear kvi_plan_linear_job(const struct kvarc_device_plan *p, uint32_t modelled);

/* Whether the layers from layer0 on may be decoded, or encoded, now. Returns OK, PROG. */
kvarc_ret kvi_plan_check_order(const struct kvarc_device_plan *p, uint32_t layer0,
                               const char *call);
/* They are: those behind them are next. */
static inline void kvi_plan_next_layer(struct kvarc_device_plan *p, uint32_t layer0, uint32_t n)
{
	p->next_layer = n == UINT32_MAX ? p->info.layer0 + p->info.n_layers : layer0 + n;
}

/* 32 tokens of a chunk, at most. */
enum { KVI_PLAN_STEPS = KVI_GPU_TOKENS / KVI_WARP };
/* The kernel that corrects a hidden state of `width` numbers by n chunks. */
static inline struct kvi_launch kvi_correct_launch(const char *name, uint32_t n, uint32_t width)
{
	/* numbers of a warp; steps of 32 tokens of a block (model_correct_body.h) */
	enum { CORRECTED = 16, STEPS = KVI_BLOCK / KVI_SMALL_BLOCK };
	return (struct kvi_launch){ .name = name,
		                    .grid_x = kvi_blocks_of((width + CORRECTED - 1) / CORRECTED),
		                    .grid_y = n,
		                    .threads = KVI_BLOCK,
		                    .grid_z = KVI_PLAN_STEPS / STEPS };
}
/* Warps of the kernels that make angles and rows of token tables, and sums: the most that a chunk
 * has; 0: no chunk has a model. */
struct kvi_model_warps {
	uint32_t angles, sums;
};
/* Adds a chunk that has a model. */
void kvi_model_warps_add(struct kvi_model_warps *w, const struct kvi_gpu_chunk *j);

/* The chunks of the layers layer0 .. layer0 + n - 1: *first to *end - 1. GEOMETRY: the plan does
 * not have these layers. */
kvarc_ret kvi_plan_layers(const struct kvarc_device_plan *p, const char *call, uint32_t layer0,
                          uint32_t n, size_t *first, size_t *end);

#endif
