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

static const char *track_wrong(const kvarc_track *track)
{
	return kvi_string_fits(track->label) ? NULL : "a track's label is too long";
}

static const char *shape_wrong(const kvarc_tensor *tensor)
{
	if (tensor->heads < 1 || tensor->heads > UINT16_MAX || tensor->channels < 1 ||
	    tensor->channels > UINT16_MAX)
		return "a tensor's heads or channels are not 1 to 65535";
	if ((uint64_t)tensor->heads * tensor->channels > KVI_MAX_WIDTH)
		return "a tensor is wider than 2^20 elements a token";
	if (tensor->total_heads &&
	    (uint64_t)tensor->first_head + tensor->heads > tensor->total_heads)
		return "a tensor's first_head and heads exceed its total_heads";
	if ((uint64_t)tensor->first_head + tensor->heads > UINT32_MAX)
		return "a tensor's first_head is too large";
	return NULL;
}

/* Column c of what a tensor belongs to goes with its column c / group (spec 4). */
static const char *belonging_wrong(const kvarc_geometry *geometry, const kvarc_tensor *tensor)
{
	if (!tensor->belongs_to)
		return tensor->group ? "a tensor has groups and belongs to no other one" : NULL;
	if (tensor->belongs_to > geometry->n_tensors)
		return "a tensor belongs to one that does not exist";
	const kvarc_tensor *of = &geometry->tensors[tensor->belongs_to - 1];
	if (of == tensor || of->belongs_to || of->track != tensor->track)
		return "a tensor belongs to one that belongs to another one, or has another track";
	if (!tensor->group || tensor->group > KVI_MAX_WIDTH)
		return "a tensor's group is not 1 to 2^20";
	return (kvi_tensor_width(of) + tensor->group - 1) / tensor->group ==
	                       kvi_tensor_width(tensor)
	               ? NULL
	               : "a tensor does not have an element for each group";
}

static const char *tensor_wrong(const kvarc_geometry *geometry, const kvarc_tensor *tensor)
{
	if (tensor->layer > UINT16_MAX)
		return "a tensor's layer is above 65535";
	if (!kvarc_dtype_bytes(tensor->dtype))
		return "the element size of a tensor's dtype is not known";
	if (tensor->flags & ~(KVARC_TENSOR_POST_ROPE | KVARC_TENSOR_HADAMARD))
		return "a tensor has unknown flags";
	if (tensor->source_type && tensor->source_type < 0x100)
		return "a tensor's source_type is between 1 and 255";
	if (tensor->track >= geometry->n_tracks || tensor->rope > geometry->n_ropes)
		return "a tensor names a track or rope that does not exist";
	const char *wrong = shape_wrong(tensor);
	if (wrong)
		return wrong;
	wrong = belonging_wrong(geometry, tensor);
	if (wrong)
		return wrong;
	if (tensor->rope && geometry->ropes[tensor->rope - 1].rotary > tensor->channels)
		return "a rope turns more channels than the tensor's heads have";
	return kvi_string_fits(tensor->name) ? NULL : "a tensor's name is too long";
}

const char *kvi_geometry_wrong(const kvarc_geometry *geometry)
{
	const char *wrong = NULL;
	if (geometry->n_ropes > KVI_MAX_ROPES || geometry->n_tracks < 1 ||
	    geometry->n_tracks > KVI_MAX_TRACKS || geometry->n_tensors > KVI_MAX_TENSORS)
		return "too many ropes, tracks or tensors, or no track";
	if ((geometry->n_ropes && !geometry->ropes) || !geometry->tracks ||
	    (geometry->n_tensors && !geometry->tensors))
		return "an array of the geometry is missing";
	for (size_t i = 0; i < geometry->n_ropes && !wrong; i++)
		wrong = rope_wrong(&geometry->ropes[i]);
	for (size_t i = 0; i < geometry->n_tracks && !wrong; i++)
		wrong = track_wrong(&geometry->tracks[i]);
	for (size_t i = 0; i < geometry->n_tensors && !wrong; i++)
		wrong = tensor_wrong(geometry, &geometry->tensors[i]);
	return wrong;
}

kvarc_ret kvi_check_geometry(const kvarc_geometry *geometry, const char *call, kvarc_error *error)
{
	kvarc_ret ret = KVI_CHECK_RESERVED(error, call, "kvarc_geometry", geometry);
	const char *wrong = ret ? NULL : kvi_geometry_wrong(geometry);
	if (wrong)
		return kvi_fail(error, KVARC_GEOMETRY, "%s: %s", call, wrong);
	for (size_t i = 0; i < geometry->n_ropes && !ret; i++)
		ret = KVI_CHECK_RESERVED(error, call, "kvarc_rope", &geometry->ropes[i]);
	for (size_t i = 0; i < geometry->n_tracks && !ret; i++)
		ret = KVI_CHECK_RESERVED(error, call, "kvarc_track", &geometry->tracks[i]);
	for (size_t i = 0; i < geometry->n_tensors && !ret; i++)
		ret = KVI_CHECK_RESERVED(error, call, "kvarc_tensor", &geometry->tensors[i]);
	return ret;
}

void kvi_geometry_free(kvarc_geometry *geometry, const struct kvi_alloc *alloc)
{
	for (size_t i = 0; geometry->ropes && i < geometry->n_ropes; i++)
		kvi_free(alloc, (void *)(uintptr_t)geometry->ropes[i].freq);
	for (size_t i = 0; geometry->tracks && i < geometry->n_tracks; i++)
		kvi_free(alloc, (void *)(uintptr_t)geometry->tracks[i].label);
	for (size_t i = 0; geometry->tensors && i < geometry->n_tensors; i++)
		kvi_free(alloc, (void *)(uintptr_t)geometry->tensors[i].name);
	kvi_free(alloc, (void *)(uintptr_t)geometry->ropes);
	kvi_free(alloc, (void *)(uintptr_t)geometry->tracks);
	kvi_free(alloc, (void *)(uintptr_t)geometry->tensors);
	*geometry = (kvarc_geometry){ 0 };
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
