/* SPDX-License-Identifier: BSD-3-Clause */
/* strided.h - packed token-major blocks from and to strided offsets of a file */
#ifndef KVI_STRIDED_H
#define KVI_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/restore.h"
#include "kvarc.h"
#include "util/alloc.h"
#include "util/source.h"

/* A block of a tensor: tokens [t0, t0 + n), channels [c0, c0 + channels). */
struct kvi_block {
	uint64_t t0;
	uint32_t n;
	uint32_t c0, channels;
	uint32_t elem_bytes;
};

/* Gathers a block into dst, packed. base: where the area starts in the source. */
kvarc_ret kvi_strided_read(const struct kvi_alloc *alloc, const kvarc_source *src, uint64_t base,
                           const struct kvi_area_view *view, const struct kvi_block *block,
                           void *dst);

/* Scatters a packed block into a sink; neighbouring bytes go out in one write. */
kvarc_ret kvi_strided_write(const struct kvi_alloc *alloc, const kvarc_sink *sink, uint64_t base,
                            const struct kvi_area_view *view, const struct kvi_block *block,
                            const void *src);

/* Tokens of a whole tensor that a file has in runs: of each head, of each channel, or one. */
struct kvi_strided_runs {
	struct kvi_area_view view; /* of the runs in memory, one behind the other */
	uint64_t bytes;            /* of a run */
	uint32_t n;
	uint32_t channels; /* from the begin of a run to that of the next */
};
/* Finds the runs of n tokens of a tensor of `channels` in all. False: bytes of others, or none, are
 * between its elements. */
bool kvi_strided_runs(const struct kvi_area_view *view, uint64_t channels, uint32_t elem_bytes,
                      uint64_t n, struct kvi_strided_runs *runs);
/* Writes runs of tokens from t0 on, one write each. */
kvarc_ret kvi_strided_runs_write(const kvarc_sink *sink, uint64_t base,
                                 const struct kvi_area_view *view, uint64_t t0,
                                 const struct kvi_strided_runs *runs, const uint8_t *mem);

/* Scatters a packed block into memory that holds the bytes from `from` on of
 * the area. The caller made sure that they are all there. */
void kvi_strided_copy(uint8_t *mem, uint64_t from, const struct kvi_area_view *view,
                      const struct kvi_block *block, const void *src);

#endif
