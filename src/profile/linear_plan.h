/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_plan.h - which tensors a profile models, and from which others they are predicted */
#ifndef KVI_LINEAR_PLAN_H
#define KVI_LINEAR_PLAN_H

#include "format/chunk_order.h"
#include "profile_io.h"

/* Tensors whose chunk of a full segment is larger are written without a model,
 * cut into groups of heads: every worker holds some chunks. */
enum { KVI_LINEAR_CHUNK_MAX = 8 << 20 };

/* The model of a tensor, and its sources by their indices in the order of chunks. */
struct kvi_planned {
	const struct kvi_model *model; /* NULL: there is none that fits */
	bool complete;                 /* its sources are there: codec linear can be used, and r
	                                * and w are defined (spec linear 6) */
	uint32_t lower[KVI_LOWER_MAX], same[KVI_SAME_MAX], scale;
};

/* The models of a profile for the tensors of a geometry. */
struct kvi_linear_plan {
	const struct kvi_profile *profile;
	size_t n_complete;
	struct kvi_planned of[]; /* one for each tensor of the geometry */
};

/* Makes the plan of a level, which the caller frees with kvi_free. Tensors whose full chunk would
 * have more bytes than chunk_max are left out. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_linear_plan_make(struct kvi_linear_plan **plan, const struct kvi_alloc *alloc,
                               const struct kvi_profile *p, unsigned level,
                               const kvarc_geometry *geometry, const struct kvi_order *order,
                               uint64_t chunk_max);

#endif
