/* SPDX-License-Identifier: BSD-3-Clause */
/* import_build.c - what parsers call to add items, tracks, areas and tensors */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "import_internal.h"
#include "util/error.h"

struct kvi_imp_item *kvi_import_add_item(kvarc_import *im, const char *name)
{
	size_t bytes = strlen(name ? name : "") + 1;
	if (im->n_items >= KVI_IMPORT_ITEMS_MAX ||
	    !kvi_array_grow(&im->alloc, &im->items, &im->cap_items, im->n_items, sizeof *im->items))
		return NULL;
	struct kvi_imp_item *item = &im->items[im->n_items];
	memset(item, 0, sizeof *item);
	item->fd = -1;
	item->kind = KVI_ITEM_OPAQUE;
	item->name = kvi_malloc(&im->alloc, bytes);
	if (!item->name)
		return NULL;
	memcpy(item->name, name ? name : "", bytes);
	im->n_items++;
	return item;
}

struct kvi_imp_track *kvi_import_add_track(kvarc_import *im, uint64_t n)
{
	if (im->n_tracks >= KVI_IMPORT_TRACKS_MAX ||
	    !kvi_array_grow(&im->alloc, &im->tracks, &im->cap_tracks, im->n_tracks,
	                    sizeof *im->tracks))
		return NULL;
	struct kvi_imp_track *t = &im->tracks[im->n_tracks++];
	memset(t, 0, sizeof *t);
	t->n = n;
	return t;
}

struct kvi_imp_area *kvi_import_add_area(kvarc_import *im, uint32_t item, uint32_t track,
                                         uint64_t offset, uint64_t bytes)
{
	if (!kvi_array_grow(&im->alloc, &im->areas, &im->cap_areas, im->n_areas, sizeof *im->areas))
		return NULL;
	struct kvi_imp_area *a = &im->areas[im->n_areas++];
	*a = (struct kvi_imp_area){
		item, track, offset, bytes, 0, im->tracks[track].n, (uint32_t)im->n_tensors, 0
	};
	return a;
}

struct kvi_imp_area *kvi_import_add_part(kvarc_import *im, uint64_t offset, uint64_t bytes,
                                         uint64_t t0, uint64_t n_tokens)
{
	if (!kvi_array_grow(&im->alloc, &im->areas, &im->cap_areas, im->n_areas, sizeof *im->areas))
		return NULL;
	struct kvi_imp_area *a = &im->areas[im->n_areas++];
	*a = a[-1];
	a->offset = offset;
	a->bytes = bytes;
	a->t0 = t0;
	a->n_tokens = n_tokens;
	return a;
}

struct kvi_imp_tensor *kvi_import_add_tensor(kvarc_import *im)
{
	if (im->n_tensors >= KVI_IMPORT_TENSORS_MAX ||
	    !kvi_array_grow(&im->alloc, &im->tensors, &im->cap_tensors, im->n_tensors,
	                    sizeof *im->tensors))
		return NULL;
	struct kvi_imp_tensor *t = &im->tensors[im->n_tensors++];
	struct kvi_imp_area *a = &im->areas[im->n_areas - 1];
	memset(t, 0, sizeof *t);
	t->area = (uint32_t)im->n_areas - 1;
	t->pub.track = a->track;
	a->n_tensors++;
	return t;
}

kvarc_ret kvi_import_full(kvarc_import *im)
{
	if (im->n_items >= KVI_IMPORT_ITEMS_MAX || im->n_tracks >= KVI_IMPORT_TRACKS_MAX ||
	    im->n_tensors >= KVI_IMPORT_TENSORS_MAX) {
		kvi_import_note(im, "more files, tracks or tensors than an "
		                    "archive can describe: kept as opaque");
		return KVARC_END;
	}
	return kvi_fail_alloc(im->error, &im->alloc);
}

void kvi_import_note(kvarc_import *im, const char *format, ...)
{
	va_list ap;
	if (im->note[0])
		return;
	va_start(ap, format);
	(void)vsnprintf(im->note, sizeof im->note, format, ap);
	va_end(ap);
	for (char *p = im->note; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
}

kvarc_ret kvi_import_position(kvarc_import *im, struct kvi_imp_track *track, int64_t position)
{
	uint64_t start = 0;
	if (track->n_runs) {
		struct kvi_imp_run *last = &track->runs[track->n_runs - 1];
		start = last->start + last->count;
		if (last->first + (int64_t)last->count == position) {
			last->count++;
			return KVARC_OK;
		}
	}
	if (!kvi_array_grow(&im->alloc, &track->runs, &track->cap_runs, track->n_runs,
	                    sizeof *track->runs))
		return kvi_fail_alloc(im->error, &im->alloc);
	track->runs[track->n_runs++] = (struct kvi_imp_run){ start, 1, position };
	return KVARC_OK;
}

void kvi_import_shape(kvarc_tensor *tensor, uint64_t width, uint32_t wanted)
{
	uint64_t heads = wanted && width % wanted == 0 ? wanted : 1;
	/* A head has at most 65535 channels (spec 4.2). */
	while (width / heads > 65535 || width % heads)
		heads++;
	tensor->heads = (uint32_t)heads;
	tensor->channels = (uint32_t)(width / heads);
}

/* The run that token track is in. */
static size_t run_of(const struct kvi_imp_track *track, uint64_t token)
{
	size_t lo = 0, hi = track->n_runs;
	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;
		if (track->runs[mid].start <= token)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static void fill_positions(const struct kvi_imp_track *track, uint64_t t0, uint32_t n,
                           int32_t *positions)
{
	const struct kvi_imp_run from_zero = { 0, track->n, 0 };
	const struct kvi_imp_run *r = &from_zero;
	if (track->n_runs)
		r = &track->runs[run_of(track, t0)];
	for (uint32_t i = 0; i < n; i++) {
		if (t0 + i >= r->start + r->count)
			r++;
		positions[i] = (int32_t)(r->first + (int64_t)(t0 + i - r->start));
	}
}

kvarc_ret kvi_import_tokens(const kvarc_import *im, uint32_t track, uint64_t t0, uint32_t n,
                            int32_t *positions, int32_t *ids)
{
	const struct kvi_imp_track *t = &im->tracks[track];
	fill_positions(t, t0, n, positions);
	if (!t->has_ids)
		return KVARC_OK;
	const kvarc_source *src = &im->items[t->ids_item].src;
	uint8_t raw[256 * 8];
	uint32_t step = sizeof raw / t->ids_bytes;
	for (uint32_t i = 0; i < n; i += step) {
		uint32_t k = n - i < step ? n - i : step;
		if (kvi_source_read(src, raw, (size_t)k * t->ids_bytes,
		                    t->ids_at + (t0 + i) * t->ids_bytes))
			return KVARC_IO;
		for (uint32_t j = 0; j < k; j++)
			ids[i + j] = (int32_t)kvi_load32(raw + (size_t)j * t->ids_bytes);
	}
	return KVARC_OK;
}
