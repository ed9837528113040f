/* SPDX-License-Identifier: BSD-3-Clause */
/* lost_ranges.c - damage joined to ranges of layers and tokens */
#include "config.h"

#include "lost_ranges.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 65536 }; /* spec 4 */

struct joining {
	const kvarc_geometry *geometry;
	uint32_t track;   /* track of counts */
	uint32_t *counts; /* a layer: its tensors on the track */
	struct lost_range *ranges;
	size_t n;
	bool whole; /* the last range is of whole layers of the current run */
};

static void count_tensors(struct joining *joining, uint32_t track)
{
	if (joining->track == track)
		return;
	joining->track = track;
	memset(joining->counts, 0, LAYERS * sizeof(*joining->counts));
	for (size_t i = 0; i < joining->geometry->n_tensors; i++) {
		const kvarc_tensor *t = &joining->geometry->tensors[i];
		if (t->track == track && t->layer < LAYERS)
			joining->counts[t->layer]++;
	}
}

static struct lost_range *add(struct joining *joining, const kvarc_damage *damage)
{
	struct lost_range *l = &joining->ranges[joining->n++];

	*l = (struct lost_range){ .what = damage->what,
		                  .offset = damage->offset,
		                  .track = damage->track,
		                  .t0 = damage->t0,
		                  .end = damage->t0 + damage->n };
	return l;
}

/* Adds damage to all tensors of a track: extends the last such range if it ends there. */
static void add_all(struct joining *joining, const kvarc_damage *damage)
{
	struct lost_range *l = joining->n ? &joining->ranges[joining->n - 1] : NULL;

	if (l && l->all_layers && l->track == damage->track && l->end == damage->t0) {
		l->end += damage->n;
		return;
	}
	l = add(joining, damage);
	l->all_layers = true;
	l->first_layer = UINT32_MAX;
	count_tensors(joining, damage->track);
	for (uint32_t i = 0; i < LAYERS; i++) {
		if (!joining->counts[i])
			continue;
		if (l->first_layer == UINT32_MAX)
			l->first_layer = i;
		l->last_layer = i;
	}
	if (l->first_layer == UINT32_MAX)
		l->first_layer = 0;
}

/* n damaged ranges of the same layer. */
static void add_layer(struct joining *joining, const kvarc_damage *damage, size_t n)
{
	const kvarc_tensor *tensors = joining->geometry->tensors;
	uint32_t layer = tensors[damage->tensor].layer;
	struct lost_range *l = joining->n ? &joining->ranges[joining->n - 1] : NULL;
	bool whole;

	count_tensors(joining, damage->track);
	whole = layer < LAYERS && n == joining->counts[layer];
	if (whole && joining->whole && l->last_layer + 1 == layer) {
		l->last_layer = layer;
		return;
	}
	for (size_t i = 0; i < (whole ? 1 : n); i++) {
		const char *kind = kvarc_kind_name(tensors[damage[i].tensor].kind);
		l = add(joining, &damage[i]);
		l->first_layer = l->last_layer = layer;
		l->tensor = whole ? NULL : kind ? kind : "tensor";
	}
	joining->whole = whole;
}

/* The number of entries from the first on that lost the same tokens for the same reason. */
static size_t run_of(const struct joining *joining, const kvarc_damage *damage, size_t n)
{
	size_t i = 1;

	while (i < n && damage[i].tensor < joining->geometry->n_tensors &&
	       damage[i].track == damage->track && damage[i].t0 == damage->t0 &&
	       damage[i].n == damage->n && strcmp(damage[i].what, damage->what) == 0)
		i++;
	return i;
}

static void add_run(struct joining *joining, const kvarc_damage *damage, size_t n)
{
	const kvarc_tensor *tensors = joining->geometry->tensors;

	joining->whole = false;
	while (n) {
		size_t same = 1;
		while (same < n &&
		       tensors[damage[same].tensor].layer == tensors[damage->tensor].layer)
			same++;
		add_layer(joining, damage, same);
		damage += same;
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
