/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.c - parses and writes FORK content, and pairs the tensors of two tracks (spec 6.3) */
#include "fork.h"

void kvi_fork_put(struct kvi_out *out, const struct kvi_fork *fork)
{
	kvi_put_varint(out, fork->track);
	kvi_put_varint(out, fork->from);
	kvi_put_varint(out, fork->n);
}

bool kvi_fork_parse(struct kvi_fork *fork, const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	fork->track = (uint32_t)kvi_get_varint(&in, UINT32_MAX);
	fork->from = (uint32_t)kvi_get_varint(&in, UINT32_MAX);
	fork->n = kvi_get_varint(&in, UINT64_MAX);
	return kvi_get_extensions(&in) && fork->n > 0;
}

/* Whether two tensors are a pair, but for what they belong to. */
static bool pairs(const kvarc_tensor *x, const kvarc_tensor *y)
{
	return x->layer == y->layer && x->kind == y->kind && x->role == y->role &&
	       x->dtype == y->dtype && x->heads == y->heads && x->channels == y->channels &&
	       x->rope == y->rope && x->first_head == y->first_head &&
	       x->total_heads == y->total_heads && x->flags == y->flags &&
	       x->source_type == y->source_type && !x->belongs_to == !y->belongs_to &&
	       x->group == y->group;
}

bool kvi_fork_fits(const kvarc_geometry *geometry, const struct kvi_order *order, uint32_t track,
                   uint32_t from)
{
	if (track >= geometry->n_tracks || from >= geometry->n_tracks || track == from)
		return false;
	const uint32_t a = order->first[track], b = order->first[from];
	const uint32_t n = order->first[track + 1] - a;
	if (order->first[from + 1] - b != n)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const kvarc_tensor *x = &geometry->tensors[order->tensors[a + i]];
		const kvarc_tensor *y = &geometry->tensors[order->tensors[b + i]];
		/* The tensors that these belong to are on their own tracks, a pair, too. */
		if (!pairs(x, y) || (x->belongs_to && order->place[x->belongs_to - 1] - a !=
		                                              order->place[y->belongs_to - 1] - b))
			return false;
	}
	return true;
}
