/* SPDX-License-Identifier: BSD-3-Clause */
/* view.h - copies blocks between packed memory and a kvarc_view */
#ifndef KVI_VIEW_H
#define KVI_VIEW_H

#include "kvarc.h"

/* A block: n tokens from row on, channels [c0, c0 + nc) of the width, elements
 * of 1, 2 or 4 bytes; packed means token-major without gaps. */
struct kvi_view_block {
	uint64_t row;
	uint32_t n, c0, nc, elem;
};

/* Copies the elements of a block from the view to packed memory. */
void kvi_view_gather(const kvarc_view *view, const struct kvi_view_block *block, void *packed);
/* The address of a block in the view if its elements are packed there, too; else NULL. */
void *kvi_view_packed(const kvarc_view *view, const struct kvi_view_block *block);
/* Copies the elements of a block from packed memory to the view. */
void kvi_view_scatter(const kvarc_view *view, const struct kvi_view_block *block,
                      const void *packed);

#endif
