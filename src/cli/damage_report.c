/* SPDX-License-Identifier: BSD-3-Clause */
/* damage_report.c - what verify and salvage find missing, as lines and as JSON */
#include "config.h"

#include "damage_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "message.h"
#include "units.h"

/* ==== Damage joined to ranges of layers and tokens ==== */

/* Layers and tokens that are lost together. */
struct lost_range {
	const char *what; /* static storage */
	uint64_t offset;  /* offset of the first damage, or KVARC_UNKNOWN */
	uint32_t track;   /* UINT32_MAX: not known */
	bool all_layers;  /* all layers of the track */
	uint32_t first_layer, last_layer;
	const char *tensor; /* "key": this one of first_layer alone; NULL: all of the layers */
	uint64_t t0, end;   /* tokens [t0, end); equal: none */
};

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

/* Joins n neighbouring entries of damage. *ranges: malloc'd, the caller frees it; NULL when
 * there is no memory. Returns how many there are. */
static size_t lost_ranges_make(struct lost_range **ranges, const kvarc_damage *damage, size_t n,
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

/* ==== What verify and salvage find missing, as lines and as JSON ==== */

enum { KEEP = 10000, SHOW = 20 };

void damage_collect(void *opaque, const kvarc_damage *damage)
{
	struct damage_list *list = opaque;

	list->n++;
	if (list->kept == KEEP)
		return;
	if ((list->kept & (list->kept - 1)) == 0) {
		size_t cap = list->kept ? 2 * list->kept : 1;
		kvarc_damage *p = realloc(list->items, cap * sizeof(*p));
		if (!p)
			return;
		list->items = p;
	}
	list->items[list->kept++] = *damage;
}

bool damage_sum(struct damage_list *list, const char *file, kvarc_reader *r)
{
	kvarc_ret ret = kvarc_reader_loss(r, UINT32_MAX, &list->loss);

	if (ret == KVARC_OK)
		return true;
	memset(&list->loss, 0, sizeof(list->loss));
	list->loss.tokens = list->loss.whole_tokens = library_tokens(r);
	if (ret == KVARC_PROG)
		return true;
	msg_error(file, "%s", kvarc_strerror(ret));
	return false;
}

/* ", layers 25 to 29", ", layer 25 value", ", all layers" */
static void put_layers(char *out, size_t size, const struct lost_range *range)
{
	if (range->all_layers)
		snprintf(out, size, ", all layers");
	else if (range->tensor)
		snprintf(out, size, ", layer %" PRIu32 " %s", range->first_layer, range->tensor);
	else if (range->first_layer == range->last_layer)
		snprintf(out, size, ", layer %" PRIu32, range->first_layer);
	else
		snprintf(out, size, ", layers %" PRIu32 " to %" PRIu32, range->first_layer,
		         range->last_layer);
}

static void show_one(const char *file, const struct lost_range *range, size_t n_tracks, bool error)
{
	char layers[64] = "", tokens[80] = "", place[40] = "", track[32] = "";

	if (range->offset != KVARC_UNKNOWN)
		snprintf(place, sizeof(place), "byte %" PRIu64 ": ", range->offset);
	if (range->end > range->t0) {
		put_layers(layers, sizeof(layers), range);
		snprintf(tokens, sizeof(tokens), ", tokens %" PRIu64 " to %" PRIu64 " are lost",
		         range->t0, range->end - 1);
	}
	if (range->end > range->t0 && n_tracks > 1)
		snprintf(track, sizeof(track), ", track %" PRIu32, range->track);
	(error ? msg_error : msg_warning)(file, "%s%s%s%s%s", place, range->what, track, layers,
	                                  tokens);
}

void damage_show(const char *file, const struct damage_list *list, const kvarc_geometry *geometry,
                 bool errors)
{
	struct lost_range *ranges;
	size_t n = lost_ranges_make(&ranges, list->items, list->kept, geometry), shown = n;

	if (msg_level() < 1 && shown > SHOW)
		shown = SHOW;
	for (size_t i = 0; i < shown; i++)
		show_one(file, &ranges[i], geometry->n_tracks, errors);
	if (shown < n || list->kept < list->n)
		(errors ? msg_error : msg_warning)(file, "... and %zu more%s",
		                                   shown < n ? n - shown : list->n - list->kept,
		                                   shown < n ? "; -v shows them" : "");
	free(ranges);
}

void damage_show_sum(const char *file, const struct damage_list *list, bool error,
                     const char *advice)
{
	const kvarc_loss *l = &list->loss;
	char lost[32], all[32], whole[32], bytes[32], first[64], text[256] = "";
	size_t n = 0;

	units_bytes(bytes, sizeof(bytes), l->lost_bytes);
	snprintf(first, sizeof(first), "the first %s are whole",
	         units_count(whole, l->whole_tokens));
	if (l->lost_tokens)
		n = (size_t)snprintf(text, sizeof(text), ", %s of %s tokens are lost (%s), %s",
		                     units_count(lost, l->lost_tokens), units_count(all, l->tokens),
		                     bytes, l->whole_tokens ? first : "the first one included");
	else if (l->lost_bytes)
		n = (size_t)snprintf(text, sizeof(text), ", %s are lost", bytes);
	if (l->end_unknown)
		snprintf(text + n, sizeof(text) - n, ", how many tokens followed is not known");
	(error ? msg_error : msg_warning)(file, "damaged in %zu place%s%s; %s", list->n,
	                                  list->n == 1 ? "" : "s", text, advice);
}

static void report_place(struct report *r, const kvarc_damage *damage)
{
	report_object(r, NULL);
	report_string(r, "what", damage->what);
	report_u64(r, "offset", damage->offset);
	report_u64(r, "bytes", damage->bytes);
	if (damage->tensor != UINT32_MAX)
		report_u64(r, "tensor", damage->tensor);
	if (damage->track != UINT32_MAX)
		report_u64(r, "track", damage->track);
	report_u64(r, "first_token", damage->t0);
	report_u64(r, "tokens", damage->n);
	report_end_object(r);
}

static void report_range(struct report *r, const struct lost_range *range)
{
	report_object(r, NULL);
	report_u64(r, "track", range->track);
	report_u64(r, "first_layer", range->first_layer);
	report_u64(r, "last_layer", range->last_layer);
	report_string(r, "tensor", range->tensor);
	report_u64(r, "first_token", range->t0);
	report_u64(r, "tokens", range->end - range->t0);
	report_end_object(r);
}

void damage_report(struct report *r, const struct damage_list *list, const kvarc_geometry *geometry)
{
	struct lost_range *ranges = NULL;
	size_t n = list->kept ? lost_ranges_make(&ranges, list->items, list->kept, geometry) : 0;

	report_u64(r, "damaged_places", list->n);
	report_u64(r, "whole_tokens", list->loss.whole_tokens);
	report_u64(r, "lost_tokens", list->loss.lost_tokens);
	report_u64(r, "lost_bytes", list->loss.lost_bytes);
	report_bool(r, "end_unknown", list->loss.end_unknown);
	report_array(r, "lost");
	for (size_t i = 0; i < n; i++) {
		if (ranges[i].end > ranges[i].t0)
			report_range(r, &ranges[i]);
	}
	report_end_array(r);
	report_array(r, "damage");
	for (size_t i = 0; i < list->kept; i++)
		report_place(r, &list->items[i]);
	report_end_array(r);
	free(ranges);
}

void damage_free(struct damage_list *list)
{
	free(list->items);
	memset(list, 0, sizeof(*list));
}
