/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan_engine.h - what a plan has of the exact engine: all tokens of a track, from the first one
 * on, go through the layers of a model as these are decoded (levels 4 to 8), or encoded (4 to 7)
 */
#ifndef KVI_PLAN_ENGINE_H
#define KVI_PLAN_ENGINE_H

#include "device_model.h"
#include "exact_run.h"
#include "model_job.h"
#include "reader/reader_located.h"
#include "util/bytes.h"

struct kvi_planned_model;

/* Offsets are in staging, or in work memory. */
struct kvi_planned_engine {
	const struct kvarc_device_model *model; /* NULL: kernels predict nothing */
	struct kvi_located_model of;
	bool unfit; /* the range has what kernels cannot go through */
	/* Of all tokens of its segments, i32; where they are in the constants, and the turns of the
	 * model's ropes, `capacity` tokens a pair. */
	struct kvi_out ids, positions;
	uint32_t tokens, segments, predicted, capacity; /* predicted: chunks */
	uint64_t ids_at, positions_at, turns_at[2];
	/* In work memory: the first token that is not predicted any more; keys and values for
	 * attention, of a closed loop; the run. */
	uint64_t lost, numbers[2], run_at;
	struct kvi_gpu_exact_run run;
};

/* Looks for the model of the range, or of the append, among those of the device. */
void kvi_plan_engine_find(struct kvarc_device_plan *p);
/* The model that the walk through its chunks has; NULL: none. */
const struct kvi_located_model *kvi_plan_engine_walks(const struct kvarc_device_plan *p);
/* Takes up a chunk, as the walk comes to it. modelled: kernels know its model; host: it is coded by
 * the host, which a plan that writes does of none that is predicted. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_plan_engine_add(struct kvarc_device_plan *p, const struct kvi_located *chunk,
                              bool modelled, bool host);
/* Behind the last chunk: puts what the run needs into the constants, or finds the range unfit.
 * Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_plan_engine_settle(struct kvarc_device_plan *p);
/* Lays the engine out in work memory from `at` on; returns where it ends. */
uint64_t kvi_plan_engine_place(struct kvarc_device_plan *p, uint64_t at);
/* What a chunk with a model has of it, but what kvi_gpu_linear_place sets. */
void kvi_plan_engine_expects(const struct kvarc_device_plan *p, const struct kvi_planned_model *x,
                             struct kvi_gpu_expects *e);
/* Frees what it has; then there is none. */
void kvi_plan_engine_free(struct kvarc_device_plan *p);

/* Whether the engine predicts a layer. */
bool kvi_plan_engine_predicts(const struct kvarc_device_plan *p, uint32_t layer);
/* Predicts a layer of the model; layer 0 begins. The context of the device is current. Returns OK,
 * IO, MEM. */
kvarc_ret kvi_plan_engine_enter(struct kvarc_device_plan *p, uint32_t layer, void *stream);
/* Predicted keys of the layer, before RoPE, become those behind it: once E is there, and in an open
 * loop before the next layer. Returns the same. */
kvarc_ret kvi_plan_engine_turn(struct kvarc_device_plan *p, uint32_t layer, void *stream);
/* Through the layer, whose elements are known: to the next one. Returns the same. */
kvarc_ret kvi_plan_engine_leave(struct kvarc_device_plan *p, uint32_t layer, void *stream);

#endif
