/* SPDX-License-Identifier: BSD-3-Clause */
/* import_adopt.c - heads and RoPEs of an import as an earlier archive of the same cache has them */
#include "import_adopt.h"

#include <string.h>

#include "format/geometry_check.h"
#include "import_internal.h"

/* Heads, channels and RoPE are a matter of how an import was made; the rest is of the cache. */
static bool same_tensor(const kvarc_tensor *a, const kvarc_tensor *b)
{
	return a->layer == b->layer && a->kind == b->kind && a->role == b->role &&
	       a->dtype == b->dtype && a->source_type == b->source_type && a->track == b->track &&
	       a->first_head == 0 && b->first_head == 0 &&
	       ((a->flags ^ b->flags) & KVARC_TENSOR_HADAMARD) == 0 &&
	       kvi_tensor_width(a) == kvi_tensor_width(b);
}

static bool fits(const kvarc_geometry *own, const kvarc_geometry *g)
{
	if (own->n_tracks != g->n_tracks || own->n_tensors != g->n_tensors ||
	    g->n_ropes > KVI_IMPORT_ROPES_MAX)
		return false;
	for (size_t i = 0; i < g->n_tracks; i++)
		if (own->tracks[i].kind != g->tracks[i].kind)
			return false;
	for (size_t i = 0; i < g->n_ropes; i++)
		if (g->ropes[i].rotary > 2 * KVI_ROPE_PAIRS_MAX)
			return false;
	for (size_t i = 0; i < g->n_tensors; i++)
		if (!same_tensor(&own->tensors[i], &g->tensors[i]))
			return false;
	return true;
}

bool kvi_import_adopt(kvarc_import *im, const kvarc_geometry *g)
{
	if (!fits(&im->geometry, g))
		return false;
	for (size_t i = 0; i < g->n_ropes; i++) {
		struct kvi_rope *r = &im->ropes[i];
		r->pairing = g->ropes[i].pairing;
		r->rotary = g->ropes[i].rotary;
		memcpy(r->freq, g->ropes[i].freq, r->rotary / 2 * sizeof *r->freq);
		im->pub_ropes[i] =
			(kvarc_rope){ .pairing = r->pairing, .rotary = r->rotary, .freq = r->freq };
	}
	im->n_ropes = im->geometry.n_ropes = g->n_ropes;
	for (size_t i = 0; i < g->n_tensors; i++) {
		kvarc_tensor *to[2] = { &im->tensors[i].pub, &im->pub_tensors[i] };
		for (int k = 0; k < 2; k++) {
			to[k]->heads = g->tensors[i].heads;
			to[k]->channels = g->tensors[i].channels;
			to[k]->total_heads = g->tensors[i].total_heads;
			to[k]->rope = g->tensors[i].rope;
			to[k]->flags = g->tensors[i].flags;
		}
	}
	return true;
}
