/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_order.h - the order of the chunks of a segment (spec 3.4) */
#ifndef KVI_CHUNK_ORDER_H
#define KVI_CHUNK_ORDER_H

#include "geometry_check.h"

/* Tensors of track i are tensors[first[i]] to tensors[first[i + 1] - 1]; tensor t is
 * tensors[place[t]]. */
struct kvi_order {
	uint32_t *tensors;
	uint32_t *first;
	uint32_t *place;
};

/* Sorts the tensors of a geometry into file order; kvi_order_free frees the order. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_order_make(struct kvi_order *order, const struct kvi_alloc *alloc,
                         const kvarc_geometry *geometry);
/* Frees what kvi_order_make allocated. */
void kvi_order_free(struct kvi_order *order, const struct kvi_alloc *alloc);

/* Follows the chunks of one segment: each must continue where the last ended. */
struct kvi_order_walk {
	uint32_t at, end; /* indices in order->tensors */
	uint32_t head;
};

/* Starts at the first chunk of a segment of the track. */
void kvi_order_begin(struct kvi_order_walk *w, const struct kvi_order *order, uint32_t track);
/* False: this chunk is not the next one. */
bool kvi_order_next(struct kvi_order_walk *w, const struct kvi_order *order,
                    const kvarc_geometry *geometry, uint32_t tensor, uint32_t head, uint32_t heads);
/* True when every head of every tensor was there. */
static inline bool kvi_order_done(const struct kvi_order_walk *w)
{
	return w->at == w->end;
}

#endif
