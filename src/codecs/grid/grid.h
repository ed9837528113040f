/* SPDX-License-Identifier: BSD-3-Clause */
/* grid.h - inside codec 5 */
#ifndef KVI_GRID_H
#define KVI_GRID_H

#include "codecs/coder.h"

/* Contexts of a job's elements, as the kernels want them; fmt: the dtype's, or that of its lattice
 * (near.h). */
kvarc_ret kvi_grid_contexts(struct kvi_coder *c, const struct kvi_coder_job *job,
                            const struct kvi_grid_format *fmt, struct kvi_grid_job *g);

/* Contexts of all channels of one token under a rope; angle: room for its
 * pairs. */
void kvi_grid_rotate_row(const struct kvi_kernels *kernels, const struct kvi_params *p,
                         const struct kvi_grid_format *fmt, const kvarc_rope *rope,
                         int32_t position, uint16_t *angle, uint32_t *ctx);

/* Those without rotation, of all channels. */
void kvi_grid_fixed_contexts(const struct kvi_params *p, const struct kvi_grid_format *fmt,
                             uint32_t *ctx);

/* Sets the contexts without rotation from k and mean. */
void kvi_grid_params_finish(struct kvi_params *p);

/* Fits the parameters of the grid codec to the samples of a job. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_grid_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                       struct kvi_params **out);

#endif
