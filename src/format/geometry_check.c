/* SPDX-License-Identifier: BSD-3-Clause */
/* geometry_check.c - validates, copies and frees geometries (spec 4) */
#include "geometry_check.h"

#include "util/arguments.h"
#include "util/error.h"
#include "util/string_field.h"

static const char *rope_wrong(const kvarc_rope *r)
{
	if (r->pairing > KVARC_ROPE_INTERLEAVED)
		return "a rope's pairing is not known";
	if (r->rotary < 2 || r->rotary > KVI_MAX_ROTARY || r->rotary % 2)
		return "a rope's rotary is not an even number of 2 to 65534";
	return r->freq ? NULL : "a rope has no frequencies";
}

static const char *track_wrong(const kvarc_track *t)
{
	if (t->kind > KVARC_TRACK_STATE && t->kind != KVARC_TRACK_OTHER)
		return "a track's kind is not known";
	return kvi_string_fits(t->label) ? NULL : "a track's label is too long";
}

static const char *shape_wrong(const kvarc_tensor *t)
{
	if (t->heads < 1 || t->heads > UINT16_MAX || t->channels < 1 || t->channels > UINT16_MAX)
		return "a tensor's heads or channels are not 1 to 65535";
	if ((uint64_t)t->heads * t->channels > KVI_MAX_WIDTH)
		return "a tensor is wider than 2^20 elements a token";
	if (t->total_heads && (uint64_t)t->first_head + t->heads > t->total_heads)
		return "a tensor's first_head and heads exceed its total_heads";
	if ((uint64_t)t->first_head + t->heads > UINT32_MAX)
		return "a tensor's first_head is too large";
	return NULL;
}

static const char *tensor_wrong(const kvarc_geometry *g, const kvarc_tensor *t)
{
	if (t->layer > UINT16_MAX)
		return "a tensor's layer is above 65535";
	if (t->kind > KVARC_OPAQUE || t->role > KVARC_HIGH_BITS)
		return "a tensor's kind or role is not known";
	if (!kvarc_dtype_bytes(t->dtype))
		return "a tensor's dtype is not known";
	if (t->flags & ~(KVARC_TENSOR_POST_ROPE | KVARC_TENSOR_HADAMARD))
		return "a tensor has unknown flags";
	if (t->source_type && t->source_type < 0x100)
		return "a tensor's source_type is between 1 and 255";
	if (t->track >= g->n_tracks || t->rope > g->n_ropes)
		return "a tensor names a track or rope that does not exist";
	const char *wrong = shape_wrong(t);
	if (wrong)
		return wrong;
	if (t->rope && g->ropes[t->rope - 1].rotary > t->channels)
		return "a rope turns more channels than the tensor's heads have";
	return kvi_string_fits(t->name) ? NULL : "a tensor's name is too long";
}

const char *kvi_geometry_wrong(const kvarc_geometry *g)
{
	const char *wrong = NULL;
	if (g->n_ropes > KVI_MAX_ROPES || g->n_tracks < 1 || g->n_tracks > KVI_MAX_TRACKS ||
	    g->n_tensors > KVI_MAX_TENSORS)
		return "too many ropes, tracks or tensors, or no track";
	if ((g->n_ropes && !g->ropes) || !g->tracks || (g->n_tensors && !g->tensors))
		return "an array of the geometry is missing";
	for (size_t i = 0; i < g->n_ropes && !wrong; i++)
		wrong = rope_wrong(&g->ropes[i]);
	for (size_t i = 0; i < g->n_tracks && !wrong; i++)
		wrong = track_wrong(&g->tracks[i]);
	for (size_t i = 0; i < g->n_tensors && !wrong; i++)
		wrong = tensor_wrong(g, &g->tensors[i]);
	return wrong;
}

kvarc_ret kvi_check_geometry(const kvarc_geometry *g, const char *call, kvarc_error *e)
{
	kvarc_ret ret = KVI_CHECK_RESERVED(e, call, "kvarc_geometry", g);
	const char *wrong = ret ? NULL : kvi_geometry_wrong(g);
	if (wrong)
		return kvi_fail(e, KVARC_GEOMETRY, "%s: %s", call, wrong);
	for (size_t i = 0; i < g->n_ropes && !ret; i++)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_rope", &g->ropes[i]);
	for (size_t i = 0; i < g->n_tracks && !ret; i++)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_track", &g->tracks[i]);
	for (size_t i = 0; i < g->n_tensors && !ret; i++)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_tensor", &g->tensors[i]);
	return ret;
}

void kvi_geometry_free(kvarc_geometry *g, const struct kvi_alloc *alloc)
{
	for (size_t i = 0; g->ropes && i < g->n_ropes; i++)
		kvi_free(alloc, (void *)(uintptr_t)g->ropes[i].freq);
	for (size_t i = 0; g->tracks && i < g->n_tracks; i++)
		kvi_free(alloc, (void *)(uintptr_t)g->tracks[i].label);
	for (size_t i = 0; g->tensors && i < g->n_tensors; i++)
		kvi_free(alloc, (void *)(uintptr_t)g->tensors[i].name);
	kvi_free(alloc, (void *)(uintptr_t)g->ropes);
	kvi_free(alloc, (void *)(uintptr_t)g->tracks);
	kvi_free(alloc, (void *)(uintptr_t)g->tensors);
	*g = (kvarc_geometry){ 0 };
}

static bool copy_ropes(kvarc_geometry *to, const struct kvi_alloc *alloc,
                       const kvarc_geometry *from)
{
	if (from->n_ropes == 0)
		return true;
	kvarc_rope *ropes = kvi_calloc(alloc, from->n_ropes, sizeof *ropes);
	if (!ropes)
		return false;
	to->ropes = ropes;
	to->n_ropes = from->n_ropes;
	for (size_t i = 0; i < from->n_ropes; i++) {
		size_t n = from->ropes[i].rotary / 2;
		uint64_t *freq = kvi_array(alloc, n, sizeof *freq);
		if (!freq)
			return false;
		memcpy(freq, from->ropes[i].freq, n * sizeof *freq);
		ropes[i] = from->ropes[i];
		ropes[i].freq = freq;
	}
	return true;
}

static bool copy_tracks(kvarc_geometry *to, const struct kvi_alloc *alloc,
                        const kvarc_geometry *from)
{
	kvarc_track *tracks = kvi_calloc(alloc, from->n_tracks, sizeof *tracks);
	if (!tracks)
		return false;
	to->tracks = tracks;
	to->n_tracks = from->n_tracks;
	for (size_t i = 0; i < from->n_tracks; i++) {
		tracks[i] = from->tracks[i];
		tracks[i].label = kvi_string_copy(alloc, from->tracks[i].label);
		if (!tracks[i].label)
			return false;
	}
	return true;
}

static bool copy_tensors(kvarc_geometry *to, const struct kvi_alloc *alloc,
                         const kvarc_geometry *from)
{
	if (from->n_tensors == 0)
		return true;
	kvarc_tensor *tensors = kvi_calloc(alloc, from->n_tensors, sizeof *tensors);
	if (!tensors)
		return false;
	to->tensors = tensors;
	to->n_tensors = from->n_tensors;
	for (size_t i = 0; i < from->n_tensors; i++) {
		tensors[i] = from->tensors[i];
		if (!tensors[i].total_heads)
			tensors[i].total_heads = tensors[i].first_head + tensors[i].heads;
		tensors[i].name = kvi_string_copy(alloc, from->tensors[i].name);
		if (!tensors[i].name)
			return false;
	}
	return true;
}

kvarc_ret kvi_geometry_copy(kvarc_geometry *to, const struct kvi_alloc *alloc,
                            const kvarc_geometry *from)
{
	*to = (kvarc_geometry){ 0 };
	if (copy_ropes(to, alloc, from) && copy_tracks(to, alloc, from) &&
	    copy_tensors(to, alloc, from))
		return KVARC_OK;
	kvarc_ret ret = kvi_alloc_error(alloc);
	kvi_geometry_free(to, alloc);
	return ret;
}
