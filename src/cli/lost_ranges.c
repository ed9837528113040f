/* SPDX-License-Identifier: BSD-3-Clause */
/* lost_ranges.c - damage joined to ranges of layers and tokens */
#include "config.h"

#include "lost_ranges.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 65536 }; /* spec 4 */

struct joining {
	const kvarc_geometry *geometry;
	uint32_t track;   /* that counts is of */
	uint32_t *counts; /* a layer: its tensors on the track */
	struct lost_range *ranges;
	size_t n;
	bool whole; /* the last range is of whole layers of the run in hand */
};

static void count_tensors(struct joining *x, uint32_t track)
{
	if (x->track == track)
		return;
	x->track = track;
	memset(x->counts, 0, LAYERS * sizeof(*x->counts));
	for (size_t i = 0; i < x->geometry->n_tensors; i++) {
		const kvarc_tensor *t = &x->geometry->tensors[i];
		if (t->track == track && t->layer < LAYERS)
			x->counts[t->layer]++;
	}
}

static struct lost_range *add(struct joining *x, const kvarc_damage *d)
{
	struct lost_range *l = &x->ranges[x->n++];

	*l = (struct lost_range){ .what = d->what,
		                  .offset = d->offset,
		                  .track = d->track,
		                  .t0 = d->t0,
		                  .end = d->t0 + d->n };
	return l;
}

/* All tensors of a track: extends the last such range if it ends there. */
static void add_all(struct joining *x, const kvarc_damage *d)
{
	struct lost_range *l = x->n ? &x->ranges[x->n - 1] : NULL;

	if (l && l->all_layers && l->track == d->track && l->end == d->t0) {
		l->end += d->n;
		return;
	}
	l = add(x, d);
	l->all_layers = true;
	l->first_layer = UINT32_MAX;
	count_tensors(x, d->track);
	for (uint32_t i = 0; i < LAYERS; i++) {
		if (!x->counts[i])
			continue;
		if (l->first_layer == UINT32_MAX)
			l->first_layer = i;
		l->last_layer = i;
	}
	if (l->first_layer == UINT32_MAX)
		l->first_layer = 0;
}

/* n damaged ranges of the same layer. */
static void add_layer(struct joining *x, const kvarc_damage *d, size_t n)
{
	const kvarc_tensor *tensors = x->geometry->tensors;
	uint32_t layer = tensors[d->tensor].layer;
	struct lost_range *l = x->n ? &x->ranges[x->n - 1] : NULL;
	bool whole;

	count_tensors(x, d->track);
	whole = layer < LAYERS && n == x->counts[layer];
	if (whole && x->whole && l->last_layer + 1 == layer) {
		l->last_layer = layer;
		return;
	}
	for (size_t i = 0; i < (whole ? 1 : n); i++) {
		const char *kind = kvarc_kind_name(tensors[d[i].tensor].kind);
		l = add(x, &d[i]);
		l->first_layer = l->last_layer = layer;
		l->tensor = whole ? NULL : kind ? kind : "tensor";
	}
	x->whole = whole;
}

/* The number of entries from the first on that lost the same tokens for the same reason. */
static size_t run_of(const struct joining *x, const kvarc_damage *d, size_t n)
{
	size_t i = 1;

	while (i < n && d[i].tensor < x->geometry->n_tensors && d[i].track == d->track &&
	       d[i].t0 == d->t0 && d[i].n == d->n && strcmp(d[i].what, d->what) == 0)
		i++;
	return i;
}

static void add_run(struct joining *x, const kvarc_damage *d, size_t n)
{
	const kvarc_tensor *tensors = x->geometry->tensors;

	x->whole = false;
	while (n) {
		size_t same = 1;
		while (same < n && tensors[d[same].tensor].layer == tensors[d->tensor].layer)
			same++;
		add_layer(x, d, same);
		d += same;
		n -= same;
	}
}

size_t lost_ranges_make(struct lost_range **ranges, const kvarc_damage *damage, size_t n,
                        const kvarc_geometry *geometry)
{
	struct joining x = { .geometry = geometry, .track = UINT32_MAX };

	*ranges = x.ranges = calloc(n ? n : 1, sizeof(*x.ranges));
	x.counts = calloc(LAYERS, sizeof(*x.counts));
	for (size_t i = 0, same; x.ranges && x.counts && i < n; i += same) {
		same = 1;
		if (damage[i].n && damage[i].tensor < geometry->n_tensors) {
			same = run_of(&x, &damage[i], n - i);
			add_run(&x, &damage[i], same);
		} else if (damage[i].n && damage[i].track < geometry->n_tracks) {
			add_all(&x, &damage[i]);
		} else {
			add(&x, &damage[i]);
		}
	}
	free(x.counts);
	return x.n;
}
