/* SPDX-License-Identifier: BSD-3-Clause */
/* geometry_io.c - GEOMETRY content to and from a struct (spec 4) */
#include "util/string_field.h"
#include "geometry_check.h"

enum { AXES = 3 };
/* token, head, channel: what version 1.0 stores (spec 4.2). */
static const uint8_t axis_labels[AXES] = { 0, 1, 2 };
enum { AXIS_LABEL_MAX = 7, AXES_MAX = 8 };

/* Fewest bytes that an entry takes: bounds what a count may announce. */
enum { ROPE_BYTES_MIN = 10, TRACK_BYTES_MIN = 3, TENSOR_BYTES_MIN = 16 };

void kvi_geometry_put(struct kvi_out *out, const kvarc_geometry *geometry)
{
	kvi_put_varint(out, geometry->n_ropes);
	for (size_t i = 0; i < geometry->n_ropes; i++) {
		kvi_put8(out, geometry->ropes[i].pairing);
		kvi_put_varint(out, geometry->ropes[i].rotary);
		for (size_t k = 0; k < geometry->ropes[i].rotary / 2; k++)
			kvi_put64(out, geometry->ropes[i].freq[k]);
	}
	kvi_put_varint(out, geometry->n_tracks);
	for (size_t i = 0; i < geometry->n_tracks; i++) {
		kvi_put8(out, geometry->tracks[i].kind);
		kvi_put_varint(out, geometry->tracks[i].window);
		kvi_put_string(out, geometry->tracks[i].label);
	}
	kvi_put_varint(out, geometry->n_tensors);
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *t = &geometry->tensors[i];
		const uint32_t extents[AXES] = { 0, t->heads, t->channels };
		kvi_put_varint(out, t->layer);
		kvi_put8(out, t->kind);
		kvi_put8(out, t->role);
		kvi_put8(out, t->dtype);
		kvi_put8(out, AXES);
		for (int k = 0; k < AXES; k++) {
			kvi_put8(out, axis_labels[k]);
			kvi_put_varint(out, extents[k]);
		}
		kvi_put_varint(out, t->track);
		kvi_put_varint(out, t->rope);
		kvi_put_varint(out, t->first_head);
		kvi_put_varint(out, t->total_heads);
		kvi_put8(out, t->flags);
		kvi_put16(out, t->source_type);
		kvi_put_varint(out, t->belongs_to);
		if (t->belongs_to)
			kvi_put_varint(out, t->group);
		kvi_put_string(out, t->name);
	}
}

static kvarc_ret parse_ropes(kvarc_geometry *geometry, const struct kvi_alloc *alloc,
                             struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MAX_ROPES);
	if (in->bad || n > kvi_in_remaining(in) / ROPE_BYTES_MIN)
		return KVARC_DATA;
	if (n == 0)
		return KVARC_OK;
	kvarc_rope *ropes = kvi_calloc(alloc, n, sizeof *ropes);
	if (!ropes)
		return kvi_alloc_error(alloc);
	geometry->ropes = ropes;
	geometry->n_ropes = n;
	for (size_t i = 0; i < n; i++) {
		ropes[i].pairing = kvi_get8(in);
		if (ropes[i].pairing > KVARC_ROPE_INTERLEAVED)
			return KVARC_OPTIONS;
		ropes[i].rotary = (uint32_t)kvi_get_varint(in, KVI_MAX_ROTARY);
		size_t pairs = ropes[i].rotary / 2;
		if (in->bad || pairs == 0 || pairs > kvi_in_remaining(in) / sizeof(uint64_t))
			return KVARC_DATA;
		uint64_t *freq = kvi_array(alloc, pairs, sizeof *freq);
		if (!freq)
			return kvi_alloc_error(alloc);
		ropes[i].freq = freq;
		for (size_t k = 0; k < pairs; k++)
			freq[k] = kvi_get64(in);
	}
	return KVARC_OK;
}

/* A string, or why there is none. */
static kvarc_ret parse_string(const char **s, const struct kvi_alloc *alloc, struct kvi_in *in)
{
	*s = kvi_get_string(in, alloc);
	if (*s)
		return KVARC_OK;
	return in->bad ? KVARC_DATA : kvi_alloc_error(alloc);
}

static kvarc_ret parse_tracks(kvarc_geometry *geometry, const struct kvi_alloc *alloc,
                              struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MAX_TRACKS);
	if (in->bad || n == 0 || n > kvi_in_remaining(in) / TRACK_BYTES_MIN)
		return KVARC_DATA;
	kvarc_track *tracks = kvi_calloc(alloc, n, sizeof *tracks);
	if (!tracks)
		return kvi_alloc_error(alloc);
	geometry->tracks = tracks;
	geometry->n_tracks = n;
	for (size_t i = 0; i < n; i++) {
		tracks[i].kind = kvi_get8(in);
		tracks[i].window = (uint32_t)kvi_get_varint(in, UINT32_MAX);
		kvarc_ret ret = parse_string(&tracks[i].label, alloc, in);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

/* Spec 4.2: other axes are a later version's, nonsense is damage. */
static kvarc_ret parse_axes(kvarc_tensor *tensor, struct kvi_in *in)
{
	uint64_t extents[AXES_MAX];
	bool known = true;
	uint8_t n = kvi_get8(in);
	if (n < 1 || n > AXES_MAX)
		return KVARC_DATA;
	for (unsigned k = 0; k < n; k++) {
		uint8_t label = kvi_get8(in);
		extents[k] = kvi_get_varint(in, UINT32_MAX);
		known = known && k < AXES && label == axis_labels[k];
	}
	if (in->bad)
		return KVARC_DATA;
	if (!known || n != AXES || extents[0] != 0)
		return KVARC_OPTIONS;
	tensor->heads = (uint32_t)extents[1];
	tensor->channels = (uint32_t)extents[2];
	return KVARC_OK;
}

static kvarc_ret parse_tensor(kvarc_tensor *tensor, const struct kvi_alloc *alloc,
                              struct kvi_in *in)
{
	tensor->layer = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	tensor->kind = kvi_get8(in);
	tensor->role = kvi_get8(in);
	tensor->dtype = kvi_get8(in);
	kvarc_ret ret = parse_axes(tensor, in);
	if (ret)
		return ret;
	if (!kvarc_dtype_bytes(tensor->dtype))
		return KVARC_OPTIONS;
	tensor->track = (uint32_t)kvi_get_varint(in, UINT32_MAX);
	tensor->rope = (uint32_t)kvi_get_varint(in, UINT32_MAX);
	tensor->first_head = (uint32_t)kvi_get_varint(in, UINT32_MAX);
	tensor->total_heads = (uint32_t)kvi_get_varint(in, UINT32_MAX);
	tensor->flags = kvi_get8(in);
	tensor->source_type = kvi_get16(in);
	tensor->belongs_to = (uint32_t)kvi_get_varint(in, UINT32_MAX);
	tensor->group = tensor->belongs_to ? (uint32_t)kvi_get_varint(in, UINT32_MAX) : 0;
	/* 0 is a shorthand of the API, not a value of the format. */
	if (in->bad || tensor->total_heads == 0)
		return KVARC_DATA;
	return parse_string(&tensor->name, alloc, in);
}

static kvarc_ret parse_tensors(kvarc_geometry *geometry, const struct kvi_alloc *alloc,
                               struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MAX_TENSORS);
	kvarc_ret ret = KVARC_OK;
	if (in->bad || n > kvi_in_remaining(in) / TENSOR_BYTES_MIN)
		return KVARC_DATA;
	if (n == 0)
		return KVARC_OK;
	kvarc_tensor *tensors = kvi_calloc(alloc, n, sizeof *tensors);
	if (!tensors)
		return kvi_alloc_error(alloc);
	geometry->tensors = tensors;
	geometry->n_tensors = n;
	for (size_t i = 0; i < n && ret == KVARC_OK; i++)
		ret = parse_tensor(&tensors[i], alloc, in);
	return ret;
}

kvarc_ret kvi_geometry_parse(kvarc_geometry *geometry, const struct kvi_alloc *alloc,
                             const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	*geometry = (kvarc_geometry){ 0 };
	kvarc_ret ret = parse_ropes(geometry, alloc, &in);
	if (ret == KVARC_OK)
		ret = parse_tracks(geometry, alloc, &in);
	if (ret == KVARC_OK)
		ret = parse_tensors(geometry, alloc, &in);
	if (ret == KVARC_OK && (!kvi_get_extensions(&in) || kvi_geometry_wrong(geometry)))
		ret = KVARC_DATA;
	return ret;
}
